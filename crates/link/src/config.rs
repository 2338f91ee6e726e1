//! What a link is asked to do.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::loss::Loss;
use crate::trace::Trace;
use crate::units::{Bitrate, Probability};

/// One direction of a link. The default is a perfect link: no limit, no delay, no loss, up to 1000
/// packets waiting.
///
/// What a link holds is bounded by its queue and, behind it, by capacity times delay: a link that is
/// [`Capacity::Unlimited`] holds all that is sent within its delay.
#[derive(Debug, Clone)]
pub struct LinkConfig {
    /// How fast frames leave the queue.
    pub capacity: Capacity,
    /// Propagation delay, added to every frame after its transmission.
    pub delay: Duration,
    /// Additional delay, uniform from 0 to this. Order is kept: no frame arrives before its predecessor.
    pub jitter: Duration,
    /// Frames that are held back, so that those behind overtake them; `None` keeps order.
    pub reorder: Option<Reorder>,
    /// Which frames are lost, or, with [`LinkConfig::arq`], which attempts to transmit one.
    pub loss: Loss,
    /// Whether [`LinkConfig::loss`] comes behind the bottleneck, where a lost frame has used capacity;
    /// otherwise it comes before the queue. Without meaning if there is an [`Arq`].
    pub loss_after_queue: bool,
    /// Share of frames that arrive twice. The copy uses no capacity.
    pub duplicate: Probability,
    /// Share of frames that arrive with one bit flipped.
    pub corrupt: Probability,
    /// What may wait for transmission.
    pub queue: Queue,
    /// Times at which the link is down, as [`Link::set_up`](crate::Link::set_up) describes. Ranges may
    /// overlap and be in any order.
    pub blackouts: Vec<Range<Duration>>,
    /// Repetition of lost frames by the link itself.
    pub arq: Option<Arq>,
}

impl Default for LinkConfig {
    fn default() -> LinkConfig {
        LinkConfig {
            capacity: Capacity::Unlimited,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            reorder: None,
            loss: Loss::None,
            loss_after_queue: false,
            duplicate: Probability::ZERO,
            corrupt: Probability::ZERO,
            queue: Queue::Packets(1000),
            blackouts: Vec::new(),
            arq: None,
        }
    }
}

/// How fast a link carries bytes. Sizes are those of the frames as given, link-layer header included.
#[derive(Debug, Clone)]
pub enum Capacity {
    /// Transmission takes no time.
    Unlimited,
    /// A constant rate; at rate 0 nothing is ever transmitted.
    Fixed(Bitrate),
    /// A rate that varies with time; the trace begins at `now` = 0 and repeats.
    Trace(Arc<Trace>),
}

/// A drop-tail queue: a frame that finds it full is dropped. The frame in transmission does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// At most this many frames wait.
    Packets(usize),
    /// At most this many bytes wait.
    Bytes(usize),
}

/// Reordering: some frames are held back while those behind overtake them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reorder {
    /// Share of frames that are held back.
    pub probability: Probability,
    /// By how much, on top of delay and jitter.
    pub extra_delay: Duration,
}

/// A link layer that repeats lost frames and delivers in order (as 802.11 or LTE's RLC do).
///
/// Every attempt takes the frame's transmission time, so loss costs capacity. A frame that needed `n`
/// repetitions arrives `n · retry_delay` later, and those behind it wait for it at the receiver; the
/// transmitter meanwhile goes on (selective repeat). A frame that failed in all attempts is lost, and
/// those behind it have waited for it in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arq {
    /// Transmissions of one frame at most, the first included; 0 means 1.
    pub attempts: u32,
    /// From a failed attempt to its repetition: how long the sender needs to notice.
    pub retry_delay: Duration,
}
