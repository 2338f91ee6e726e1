//! Selective bicast (paper 004): sends the packets that control retransmission over two paths, the rest over one.
//!
//! Which packets those are is `bpf/bicast.h`, integers only, which the programs on tc's hooks are made of too; [`core`]
//! is its sans-IO face in Rust, for SCTP and TCP. Begin reading there.
//!
//! With the feature `kernel`, [`kernel`] loads those programs, which copy the packets of this host's SCTP, and
//! [`daemon`] keeps them on the interfaces that the configuration names.

pub mod core;
#[cfg(feature = "kernel")]
pub mod daemon;
mod ffi;
#[cfg(feature = "kernel")]
pub mod kernel;

pub use crate::core::{Association, Connection, Mode, Reasons, within_budget};

#[cfg(test)]
mod rate;
#[cfg(test)]
mod vectors;
