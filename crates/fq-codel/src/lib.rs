//! Queues that keep a wait short, sans-IO: [`Codel`] decides what is dropped of one (RFC 8289), and [`Flows`] has one for each
//! flow, which take turns (FQ-CoDel, RFC 8290).

mod codel;
mod flows;

pub use codel::Codel;
pub use flows::{Flows, Place};

/// A full Ethernet frame, in bytes: what a flow may send before the next has its turn, and what may wait without being a queue.
pub const FRAME: u64 = 1514;
