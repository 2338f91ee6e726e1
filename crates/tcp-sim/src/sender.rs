//! The sending half: what it knows. What leaves is in `output.rs`, what acknowledgements do in `ack.rs`, how losses are found
//! in `rack.rs`, and what follows from them in `recovery.rs`, all after Linux 6.x.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::bbr::Bbr;
use crate::cubic::{Cubic, INFINITE, Window};
use crate::rate::Rate;
use crate::rtt::Rtt;
use crate::state::State;

/// `TCP_INIT_CWND`.
const INITIAL_WINDOW: u64 = 10;

/// What the application has handed over and is not acknowledged (`tcp_wmem[2]`); it is asked for more when a third is free.
pub(crate) const BUFFER: u64 = 4 << 20;

/// Which congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CongestionControl {
    /// With HyStart, not paced.
    Cubic,
    /// The same, paced as by the queueing discipline `fq`.
    PacedCubic,
    /// Version 1, paced.
    Bbr,
}

#[derive(Debug)]
pub(crate) enum Control {
    Cubic(Cubic),
    Bbr(Box<Bbr>),
}

/// A segment in flight or beyond a gap.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slot {
    pub sent: Duration,
    /// Number of its newest transmission.
    pub tx: u64,
    pub sacked: bool,
    pub lost: bool,
    /// A retransmission is under way; there was one ever.
    pub again: bool,
    pub ever_again: bool,
    pub rate: crate::rate::Snapshot,
}

/// What expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timer {
    Retransmission,
    /// Of a tail that may be lost.
    Probe,
    /// By then what seems missing is lost.
    Reordering,
}

/// What may leave after an acknowledgement (`REXMIT_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// New segments only, from the first not sent before.
    New(u64),
    Lost,
}

/// A segment to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outgoing {
    /// First byte.
    pub start: u64,
    /// Bytes.
    pub len: usize,
}

/// What was counted.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counters {
    /// Retransmission time-outs.
    pub timeouts: u64,
    /// Retransmissions.
    pub retransmitted: u64,
    /// Times of recovery begun, and undone.
    pub recoveries: u64,
    /// Reductions that were undone.
    pub undone: u64,
}

/// The state of a sender. Segments are counted from 0; all but the last have `mss` bytes.
#[derive(Debug)]
pub struct Sender {
    pub(crate) mss: u64,
    /// Bytes to send in all, and handed over so far.
    pub(crate) total: u64,
    pub(crate) written: u64,
    pub(crate) una: u64,
    pub(crate) slots: VecDeque<Slot>,
    pub(crate) next_tx: u64,
    /// Bytes that may be sent, from the first; the segment that told so.
    pub(crate) edge: u64,
    pub(crate) window: Window,
    pub(crate) control: Control,
    /// What it sends waits for its time by the pacing rate.
    pub(crate) paced: bool,
    pub(crate) sacked_out: u64,
    pub(crate) lost_out: u64,
    pub(crate) again_out: u64,
    /// Lost and not yet sent again.
    pub(crate) to_repeat: BTreeSet<u64>,
    /// What was SACKed: from, to.
    pub(crate) sacked: BTreeMap<u64, u64>,
    /// After the highest segment SACKed or acknowledged.
    pub(crate) sacked_before: u64,
    /// By so many segments one was overtaken at most (`tp->reordering`).
    pub(crate) reordering: u64,
    /// In the order of transmission: number, segment. Some have left since.
    pub(crate) order: VecDeque<(u64, u64)>,
    pub(crate) rack: Rack,
    /// Segments said to have arrived twice.
    pub(crate) duplicates: u64,
    pub(crate) state: State,
    pub(crate) high: u64,
    pub(crate) undo: Option<u64>,
    /// Retransmissions not yet shown needless; `None`: none was sent yet.
    pub(crate) undo_again: Option<u64>,
    pub(crate) again_since: Option<Duration>,
    pub(crate) prior_cwnd: u64,
    pub(crate) prior_ssthresh: u64,
    pub(crate) prr_delivered: u64,
    pub(crate) prr_out: u64,
    pub(crate) frto: bool,
    pub(crate) next: Next,
    pub(crate) timer: Option<(Duration, Timer)>,
    pub(crate) backoff: u32,
    /// Time-outs since something new was acknowledged.
    pub(crate) expired: u32,
    /// The end of what was under way when a probe was sent, and whether it was a retransmission.
    pub(crate) probe: Option<(u64, bool)>,
    /// To be sent whatever the window: the first segment, or the last or a new one.
    pub(crate) force: Option<Force>,
    pub(crate) rtt: Rtt,
    pub(crate) rate: Rate,
    pub(crate) cwnd_limited: bool,
    pub(crate) max_out: u64,
    pub(crate) usage_end: u64,
    /// Something left since the window's use was last looked at.
    pub(crate) sent: bool,
    pub(crate) next_send: Duration,
    /// How many may still leave of a paced burst.
    pub(crate) burst: u64,
    pub(crate) counters: Counters,
}

/// RACK's state.
#[derive(Debug)]
pub(crate) struct Rack {
    /// The delivered segment that was sent last: when, as which transmission, and its round trip.
    pub newest: (Duration, u64),
    pub rtt: Duration,
    pub advanced: bool,
    pub reordering_seen: bool,
    /// Quarters of the least round trip for which a segment may be late.
    pub steps: u32,
    pub persist: u32,
    pub duplicate_seen: bool,
    pub last_delivered: u64,
}

impl Default for Rack {
    fn default() -> Rack {
        Rack {
            newest: (Duration::ZERO, 0),
            rtt: Duration::ZERO,
            advanced: false,
            reordering_seen: false,
            steps: 1,
            persist: 0,
            duplicate_seen: false,
            last_delivered: 0,
        }
    }
}

/// What is sent whatever the window says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Force {
    First,
    Probe,
}

impl Sender {
    /// A connection is established; the handshake took `rtt`.
    pub fn new(now: Duration, control: CongestionControl, mss: u64, total: u64, rtt: Duration) -> Sender {
        let mut sender = Sender {
            mss,
            total,
            written: total.min(BUFFER),
            una: 0,
            slots: VecDeque::new(),
            next_tx: 1,
            edge: 0,
            window: Window { cwnd: INITIAL_WINDOW, ssthresh: INFINITE, count: 0 },
            control: match control {
                CongestionControl::Cubic | CongestionControl::PacedCubic => Control::Cubic(Cubic::default()),
                CongestionControl::Bbr => Control::Bbr(Box::new(Bbr::new(now, mss, INITIAL_WINDOW, rtt))),
            },
            paced: control != CongestionControl::Cubic,
            sacked_out: 0,
            lost_out: 0,
            again_out: 0,
            to_repeat: BTreeSet::new(),
            sacked: BTreeMap::new(),
            sacked_before: 0,
            reordering: 3,
            order: VecDeque::new(),
            rack: Rack::default(),
            duplicates: 0,
            state: State::Open,
            high: 0,
            undo: None,
            undo_again: None,
            again_since: None,
            prior_cwnd: 0,
            prior_ssthresh: 0,
            prr_delivered: 0,
            prr_out: 0,
            frto: false,
            next: Next::Lost,
            timer: None,
            backoff: 0,
            expired: 0,
            probe: None,
            force: None,
            rtt: Rtt::default(),
            rate: Rate::default(),
            cwnd_limited: false,
            max_out: 0,
            usage_end: 0,
            sent: false,
            next_send: now,
            burst: 0,
            counters: Counters::default(),
        };
        if !rtt.is_zero() {
            sender.rtt.measure(rtt, 0, 0);
            sender.rtt.note_min(now, rtt);
        }
        if let Control::Cubic(cubic) = &mut sender.control {
            cubic.restart(now, 0);
        }
        sender
    }

    /// Segments that may be in flight.
    pub fn cwnd(&self) -> u64 {
        self.window.cwnd
    }

    /// The threshold of slow start; `None` while it was never ended.
    pub fn ssthresh(&self) -> Option<u64> {
        (self.window.ssthresh != INFINITE).then_some(self.window.ssthresh)
    }

    /// Bytes acknowledged.
    pub fn acknowledged(&self) -> u64 {
        (self.una * self.mss).min(self.total)
    }

    /// The byte after the last that was sent.
    pub fn next_byte(&self) -> u64 {
        (self.end() * self.mss).min(self.total)
    }

    /// The receiver's window, bytes.
    pub fn receive_window(&self) -> u64 {
        self.edge.saturating_sub(self.una * self.mss)
    }

    /// Whether all was acknowledged.
    pub fn is_done(&self) -> bool {
        self.acknowledged() == self.total
    }

    /// What was counted.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Segments that the receiver said had arrived twice.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// The smoothed round trip.
    pub fn srtt(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    /// Segments in flight (`tcp_packets_in_flight`).
    pub fn in_flight(&self) -> u64 {
        self.slots.len() as u64 + self.again_out - self.sacked_out - self.lost_out
    }

    /// The next segment to be sent for the first time (`snd_nxt`).
    pub(crate) fn end(&self) -> u64 {
        self.una + self.slots.len() as u64
    }

    pub(crate) fn segments(&self) -> u64 {
        self.total.div_ceil(self.mss)
    }
}
