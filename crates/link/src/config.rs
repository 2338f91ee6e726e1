//! What a link is asked to do.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::loss::Loss;
use crate::trace::Trace;
use crate::units::{Bitrate, ByteCount, Probability};

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
    /// Delays that replace [`LinkConfig::delay`]: for how long, which delay, one after the other from time 0, and then
    /// around again. A frame has the delay of the moment at which its transmission ends; order is kept where it falls.
    /// Empty: the delay never changes.
    pub delay_steps: Vec<(Duration, Duration)>,
    /// Additional delay by chance.
    pub jitter: Jitter,
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
    /// What is dropped before it may wait because it exceeds a rate; `None` drops nothing.
    pub policer: Option<PolicerConfig>,
    /// What may wait for transmission.
    pub queue: Queue,
    /// What is dropped of it before it is full.
    pub aqm: Aqm,
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
            delay_steps: Vec::new(),
            jitter: Jitter::None,
            reorder: None,
            loss: Loss::None,
            loss_after_queue: false,
            duplicate: Probability::ZERO,
            corrupt: Probability::ZERO,
            policer: None,
            queue: Queue::Packets(1000),
            aqm: Aqm::None,
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

/// Active queue management.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Aqm {
    /// Drop-tail.
    #[default]
    None,
    /// RFC 8289: drops the first of the queue where frames waited for more than 5 ms for 100 ms.
    CoDel,
    /// RFC 8033: drops of those that come a share that holds the delay at 15 ms.
    Pie,
}

/// Delay on top of [`LinkConfig::delay`], drawn anew for each frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Jitter {
    /// None.
    #[default]
    None,
    /// Uniform from 0 to this. Order is kept: no frame arrives before its predecessor.
    Uniform(Duration),
    /// |N(0, σ)| with this σ; the mean is 0.8 σ. Order is kept, so that frames behind a late one arrive with it in a bunch.
    HalfNormal(Duration),
    /// |N(0, σ)| with this σ, each frame for itself: one that is late is overtaken by those behind it.
    HalfNormalReordering(Duration),
}

/// A token bucket before the queue, as an operator that sells a rate enforces it: frames that find less than their size in
/// the bucket are dropped. Nothing waits in it. The bucket is full at time 0; a frame larger than it never passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicerConfig {
    /// What fills the bucket.
    pub rate: Bitrate,
    /// What the bucket holds.
    pub burst: ByteCount,
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
