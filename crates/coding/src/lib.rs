//! Network coding in a relay: two packets that meet on opposite ways are sent as one, their sum.
//!
//! The strand of paper 002, a wait queue for PiggyCode. Each neighbour of the relay has sent one of the two packets
//! itself and so has a copy; it subtracts that from the sum and has the other.
//!
//! ```text
//!            IP (master interface)
//!   ───────┬────────────────────▲───────
//!          │ nc_xmit            │ nc_rcv                      layer.rs
//!    flow table ─ wait queue ◀─ controller       decoder      flow_table.rs, wait_queue.rs, wait_queue_controller.rs
//!          │ ACK + data                             ▲ copies  decoder.rs
//!     interface queue ─ encoder ─────────▶ decoding buffer    interface_queue.rs, encoder.rs, decoding_buffer.rs
//!   ───────▼────────────────────┴───────
//!           MAC (slave interface)
//! ```
//!
//! Mode `any` goes beyond the paper: `layer/any.rs`, with what it holds (`hold.rs`), which neighbours decode
//! (`greetings.rs`, `neighbours.rs`) and what this node overheard (`reception.rs`).
//!
//! Begin reading at [`NcLayer`]. It has no I/O: frames go in and come out, time is an argument. The node that drives it
//! gives the master interface the slave's MAC address, and has the slave hear frames that are for its neighbours: with the
//! feature `daemon`, that is `daemon.rs`, the only part that touches sockets and the clock.

mod arrivals;
mod config;
#[cfg(feature = "daemon")]
pub mod daemon;
mod datagram;
pub mod decoder;
mod decoding_buffer;
mod encoder;
pub mod ethernet;
mod flow_table;
mod greetings;
pub mod header;
mod hold;
mod interface_queue;
mod layer;
mod neighbours;
mod overhearing;
mod recent;
mod reception;
mod stats;
mod transit;
mod wait_queue;
mod wait_queue_controller;

pub use config::{Config, Mode};
pub use datagram::{Datagram, FlowKey, Kind, Label, Segment};
pub use decoding_buffer::DecodingBuffer;
pub use encoder::{Part, encode};
pub use ethernet::Mac;
pub use flow_table::{FlowTable, MAX_FLOWS};
pub use layer::NcLayer;
pub use neighbours::Neighbourhood;
pub use overhearing::Overhearing;
pub use stats::{Kept, Stats};
pub use wait_queue::MAX_WQ_LEN;
pub use wait_queue_controller::WaitQueueController;
