//! Flooding relayed in the driver (paper 000): a message goes to every node of an ad-hoc network, and each node relays
//! what it hears for the first time onto the network it came from, inside the driver.
//!
//! `bpf/flood.h` is the protocol, integers only: the frame, its tag, which frames are new. This crate is its sans-IO face
//! in Rust; begin reading at [`Window`]. Nothing here reads a clock: `now` is the time since an epoch of the caller's.

#[cfg(feature = "node")]
pub mod driver;
mod ffi;
pub mod frame;
pub mod suppression;
pub mod window;

pub use frame::{DATA_MAX, ETHERTYPE, Format, Frame, Header, Kind, Padding, Verdict, Wire};
pub use suppression::Suppression;
pub use window::{RateLimit, Rules, Window};
