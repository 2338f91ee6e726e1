//! Flooding relayed in the driver (paper 000): a message goes to every node of an ad-hoc network, and each node relays
//! what it hears for the first time onto the network it came from, inside the driver.
//!
//! `bpf/flood.h` is the protocol, integers only: the frame, its tag, which frames are new. This crate is its sans-IO face
//! in Rust; begin reading at [`Window`]. Nothing of it reads a clock: `now` is the time since an epoch of the caller's.
//!
//! With the feature `node`: `bpf/flood.bpf.c` and [`driver`], the relay inside the driver; [`node`], which runs it or one of
//! the other two relays on an interface; and [`Client`], by which applications send and receive: past it, by a board in memory
//! (`bpf/board.h`) that the XDP program writes, and a bell that wakes them.

#[cfg(feature = "node")]
mod bell;
#[cfg(feature = "node")]
mod board;
#[cfg(feature = "node")]
pub mod client;
#[cfg(feature = "node")]
pub mod driver;
mod ffi;
pub mod frame;
#[cfg(feature = "node")]
mod local;
#[cfg(feature = "node")]
mod medium;
#[cfg(feature = "node")]
pub mod nft;
#[cfg(feature = "node")]
pub mod node;
#[cfg(feature = "node")]
mod sequence;
#[cfg(feature = "node")]
mod settings;
pub mod suppression;
pub mod window;

#[cfg(feature = "node")]
pub use client::{Client, ClientError, Message};
pub use frame::{DATA_MAX, ETHERTYPE, Format, Frame, Header, Kind, Padding, Verdict, Wire};
#[cfg(feature = "node")]
pub use local::Welcome;
pub use suppression::Suppression;
pub use window::{RateLimit, Rules, Window};
