//! FS-AT, Flight Size Auto Tuning (paper 001): limits what a sender has in flight to what the path carries.
//!
//! The algorithm is `bpf/fsat.h`, and as published `bpf/fsat_paper.h`, integers only, which the BPF congestion controls `fsat` and `fsat_paper`
//! are made of too. This crate is its sans-IO face in Rust; begin reading at [`FsAt`]. Nothing here reads a
//! clock: `now` is the time since an epoch of the caller's.
//!
//! With the feature `kernel`, [`kernel`] registers the congestion controls with this machine's TCP and shows what
//! they know of each connection.

pub mod core;
mod ffi;
#[cfg(feature = "kernel")]
pub mod kernel;

pub use crate::core::{Ack, Algorithm, Answer, Constants, FsAt, Mode, State};

#[cfg(test)]
mod equations;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod vectors;
