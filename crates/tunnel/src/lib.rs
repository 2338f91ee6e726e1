//! The tunnel of paper 003: one encrypted interface over many UDP paths and relays.
//!
//! A packet's way: [`daemon`] reads it from the TUN, [`endpoint`] finds its peer, [`flow`] queues it, [`schedule`] chooses
//! its path, [`path`] says how much that may have in flight, [`handshake`] seals it, [`wire`] is what it looks like.
//! At the far end [`path::recv_enqueue`] reports it and [`packet_queue`] restores its order. [`peer`] brings these parts
//! together; a [`relay`] in between only forwards. [`tls`] is for links that let no UDP pass.

pub mod capture;
pub mod config;
pub mod daemon;
pub mod endpoint;
pub mod flow;
pub mod handshake;
pub mod keys;
pub mod packet_queue;
pub mod path;
pub mod peer;
pub mod relay;
pub mod relay_daemon;
pub mod schedule;
pub mod status;
pub mod tls;
pub mod why;
pub mod wire;

pub use config::{Bicast, Config, Cost, Host, Local, Marks, Mtu, PathConfig, PeerConfig, Scheduler, Via};
pub use keys::{PresharedKey, PrivateKey, PublicKey};
