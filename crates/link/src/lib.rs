//! Emulated network links without I/O: one direction of a link as a seeded state machine.
//!
//! Nothing in here reads a clock. `now` is the time since an epoch that the caller chose; it may be
//! virtual (a simulation) or real (an emulator between network interfaces). What happens on a link
//! depends only on its configuration, its seed, and on when frames were handed to [`Link::send`],
//! never on when [`Link::poll`] was called: a caller who is late does not delay the frames behind.
//!
//! A frame's way through a [`Link`], in this order (each step is a field of [`LinkConfig`]):
//!
//! 1. it is dropped if the link is down ([`LinkConfig::blackouts`], [`Link::set_up`]);
//! 2. it is lost with [`LinkConfig::loss`], unless the loss is behind the queue;
//! 3. it is dropped if it exceeds the rate of the [`LinkConfig::policer`];
//! 4. it waits in the drop-tail [`LinkConfig::queue`], of which an [`Aqm`] may drop it;
//! 5. it is transmitted at [`LinkConfig::capacity`], more than once if an [`Arq`] repeats lost frames;
//! 6. it is lost with [`LinkConfig::loss`] if that is behind the queue, or duplicated;
//! 7. each copy may be corrupted, and arrives after delay, jitter and reordering.
//!
//! ```
//! use std::time::Duration;
//! use link::{Bitrate, Capacity, Link, LinkConfig};
//!
//! let config = LinkConfig {
//!     capacity: Capacity::Fixed(Bitrate::from_mbps(12.0)),
//!     delay: Duration::from_millis(10),
//!     ..LinkConfig::default()
//! };
//! let mut link = Link::new(config, 1);
//! link.send(Duration::ZERO, vec![0; 1500]); // 1 ms on the wire
//! link.send(Duration::ZERO, vec![1; 1500]);
//!
//! assert_eq!(link.poll_timeout(), Some(Duration::from_millis(11)));
//! let late = Duration::from_millis(50);
//! assert_eq!(link.poll(late), Some((Duration::from_millis(11), vec![0; 1500])));
//! assert_eq!(link.poll(late), Some((Duration::from_millis(12), vec![1; 1500])));
//! assert_eq!(link.poll(late), None);
//! ```
//!
//! Many nodes on a shared medium ([`Medium`]) hear each other over links as an [`Adjacency`] says; the shared medium of
//! 802.11 stations, who contend for it, is [`dcf`].
//!
//! [`notation`] reads links from a line of text. Begin reading at `link.rs`.

mod adjacency;
mod aqm;
mod config;
pub mod dcf;
mod delay;
mod dice;
mod flight;
mod link;
mod loss;
mod medium;
pub mod notation;
mod outage;
mod policer;
mod queue;
mod stats;
pub mod trace;
mod transmitter;
pub mod units;

pub use adjacency::{Adjacency, Position, Walk};
pub use config::{Aqm, Arq, Capacity, Jitter, LinkConfig, PolicerConfig, Queue, Reorder};
pub use link::Link;
pub use loss::Loss;
pub use medium::{Arrival, Medium};
pub use queue::QueueStats;
pub use stats::{Stats, Tally};
pub use trace::{CellularConfig, FadingConfig, Outages, Trace, TraceError, TracePosition};
pub use units::{Bitrate, ByteCount, PacketCount, Probability, UnitError};
