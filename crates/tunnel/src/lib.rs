//! The tunnel of paper 003: one encrypted interface over many UDP paths and relays.
//!
//! Begin with [`endpoint`], the sans-IO whole; then the paper's parts: [`xmit`] chooses a path, [`weights`] holds
//! equations (1) to (3), [`recv_enqueue`] keeps what a path receives and reports it, [`packet_queue`] restores order.

pub mod address;
pub mod config;
pub mod cookie;
pub mod copies;
pub mod daemon;
pub mod endpoint;
pub mod enrol;
pub mod flow_queue;
pub mod followed;
pub mod frame;
pub mod keys;
pub mod knock;
pub mod lives;
pub mod marked;
pub mod mtu_search;
pub mod noise;
pub mod packet_queue;
pub mod path;
pub mod peer;
pub mod place;
pub mod rate;
pub mod recv_enqueue;
pub mod registration;
pub mod relay;
pub mod relay_daemon;
pub mod replay;
pub mod routes;
pub mod sent;
pub mod session;
pub mod sessions;
pub mod skew;
pub mod sources;
pub mod status;
pub mod tail;
pub mod unconfirmed;
pub mod weights;
pub mod why;
pub mod window;
pub mod wire;
pub mod xmit;

pub use config::{Bicast, Config, Cost, Host, Local, Marks, Mtu, PathConfig, PeerConfig, Scheduler, Via};
pub use keys::{PresharedKey, PrivateKey, PublicKey};
