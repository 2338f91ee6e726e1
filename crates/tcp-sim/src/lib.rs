//! A simulated Linux TCP: real TCP/IPv4 packets, in whatever time the caller counts.
//!
//! For tests only. A [`Connection`] is one end, sans-IO: packets and `now` in, packets and the next time out. What it does
//! follows Linux 6.x function by function, whose names the comments give, since the point is that a flow behind a tunnel
//! behaves as the kernel's would: IW10, SACK with D-SACK, RACK, TLP, PRR, F-RTO, undo, CUBIC with HyStart, BBRv1 with
//! pacing, delayed and compressed ACKs, a receive window that grows with what is read. Left out: ECN, TSO (every segment
//! leaves by itself), the send buffer's limit, slow start after idle, and whatever a kernel does without SACK or timestamps.
//!
//! [`Hosts`] are the applications at both ends of a [`Network`], that is a pair of links ([`LinkPair`]) or a tunnel.
//! The tests of `flight` have a TCP of their own on abstract packets, and can move to this one.
//!
//! Begin reading at `connection.rs`, then `sender.rs` and `output.rs`.

mod ack;
mod bbr;
mod connection;
mod cubic;
mod extra;
mod hosts;
mod network;
mod output;
mod policer;
mod rack;
mod rate;
mod receiver;
mod recovery;
mod rtt;
pub mod segment;
mod sender;
mod state;

pub use connection::{Config, Connection};
pub use hosts::{Call, Hosts, Ping};
pub use network::{LinkPair, Network, run};
pub use segment::{Segment, Socket};
pub use sender::{CongestionControl, Counters, Sender};
