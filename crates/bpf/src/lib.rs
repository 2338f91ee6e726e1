//! BPF programs: compiling them ([`compile`], for build scripts), and with the feature `load` finding out what this
//! kernel can do ([`probe`]), loading and registering them ([`struct_ops`]), reading what they know of sockets
//! ([`sockets`]), attaching them to interfaces ([`xdp`], [`tc`]) and where they are kept ([`pins`]). `include/vmlinux.h`
//! holds the kernel's types that programs use.

pub mod compile;

#[cfg(feature = "load")]
pub mod cost;
#[cfg(feature = "load")]
mod error;
#[cfg(feature = "load")]
mod ffi;
#[cfg(feature = "load")]
pub mod lock;
#[cfg(feature = "load")]
mod maps;
#[cfg(feature = "load")]
pub mod pins;
#[cfg(feature = "load")]
pub mod probe;
#[cfg(feature = "load")]
mod refusal;
#[cfg(feature = "load")]
pub mod run;
#[cfg(feature = "load")]
pub mod sockets;
#[cfg(feature = "load")]
pub mod struct_ops;
#[cfg(feature = "load")]
pub mod tc;
#[cfg(feature = "load")]
pub mod xdp;

#[cfg(feature = "load")]
pub use error::Error;
#[cfg(feature = "load")]
pub use maps::Traced;
#[cfg(feature = "load")]
pub use refusal::{open, program, refused};

/// Whether this process may load programs at all.
#[cfg(feature = "load")]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A compiled object, aligned as the loader reads it.
#[repr(C, align(8))]
pub struct Aligned<T: ?Sized>(pub T);

/// The object that a build script compiled to the file `$name` in `OUT_DIR`.
#[macro_export]
macro_rules! object {
    ($name:literal) => {{
        static OBJECT: &$crate::Aligned<[u8]> =
            &$crate::Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/", $name)));
        &OBJECT.0
    }};
}
