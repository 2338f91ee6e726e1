//! One connection's FS-AT, or one path's.

use std::time::Duration;

use crate::ffi::{NO_LIMIT, RawAck, RawConfig, RawFsat};

/// What is added to the published equations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Additions(u32);

impl Additions {
    /// The paper's equations and nothing else: `fsat_paper`.
    pub const PAPER: Additions = Additions(0);
    /// Losses are judged by the best BDP of late, not by the last: `FSAT_ADD_BEST`.
    pub const BEST: Additions = Additions(1);
    /// The queue is let run dry now and then, to learn rtt_min: `FSAT_ADD_DRAIN`.
    pub const DRAIN: Additions = Additions(2);
    /// A constant on top of target, so that equal flows get equal shares: `FSAT_ADD_FAIR`.
    pub const FAIR: Additions = Additions(4);
    /// A rate to send at: `FSAT_ADD_PACE`.
    pub const PACE: Additions = Additions(8);
    /// What arrived is scaled to exactly one rtt_min: `FSAT_ADD_EVEN`.
    pub const EVEN: Additions = Additions(16);
    /// A loss in a buffer that is full is congestion: `FSAT_ADD_FULL`.
    pub const FULL: Additions = Additions(32);
    /// All that is added: `fsat`.
    pub const FSAT: Additions = Additions(63);

    /// As `FSAT_ADD_*`.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// From `FSAT_ADD_*`.
    pub fn from_bits(bits: u32) -> Additions {
        Additions(bits)
    }

    /// All of these but `other`.
    pub fn without(self, other: Additions) -> Additions {
        Additions(self.0 & !other.0)
    }
}

/// One ACK, or one report of what arrived. Bytes beyond 4 GB count as 4 GB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ack {
    /// The RTT that it measures; `None` if it measures none (a retransmission's).
    pub rtt: Option<Duration>,
    /// Bytes newly known to have arrived, in order or not.
    pub delivered: u64,
    /// Bytes outstanding after it: sent, not known to have arrived.
    pub flight: u64,
    /// The congestion window of the congestion avoidance below, bytes.
    pub cwnd: u64,
    /// What the advertised window and the send buffer allow, bytes.
    pub cwnd_max: u64,
    /// The size of a full packet, bytes.
    pub mss: u32,
    /// The application, not the window, limits what is sent.
    pub app_limited: bool,
}

/// FS-AT: events in by [`FsAt::on_ack`] and [`FsAt::on_loss`], the limit out of [`FsAt::window`].
#[derive(Debug, Clone)]
pub struct FsAt {
    raw: RawFsat,
    config: RawConfig,
    last: RawAck,
}

/// What FS-AT knows and decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// Ceiling of `space`, bytes; `None` while nothing queues.
    pub target: Option<u64>,
    /// The limit of what is in flight, bytes.
    pub space: u64,
    /// What arrived within the last whole period, the path's BDP, bytes.
    pub rcv_bytes: u64,
    /// What was outstanding when that period began, bytes.
    pub flight: u64,
    /// The least RTT; `None` before the first sample.
    pub rtt_min: Option<Duration>,
    /// Whether the queue is let run dry at present, to learn rtt_min.
    pub draining: bool,
    /// How often that has been begun.
    pub drains: u32,
    /// Losses that judge(3) put down to radio.
    pub losses_radio: u32,
    /// Losses that judge(3) put down to congestion.
    pub losses_congestion: u32,
}

impl FsAt {
    /// A new connection that may have `flight_limit` bytes in flight until something is known.
    pub fn new(additions: Additions, now: Duration, flight_limit: u64) -> FsAt {
        let config = RawConfig { additions: additions.0 };
        let raw = RawFsat::new(&config, micros(now), bytes(flight_limit));
        FsAt { raw, config, last: RawAck::default() }
    }

    /// Something is newly known of what was sent. Two calls more than 71 minutes apart look closer.
    pub fn on_ack(&mut self, now: Duration, ack: &Ack) {
        self.last = raw_ack(now, ack);
        self.raw.on_ack(&self.config, &self.last);
    }

    /// How much may be in flight with the base's `cwnd`, bytes: FS-AT (4), at least one packet.
    pub fn window(&self, cwnd: u64) -> u64 {
        self.raw.window(&RawAck { cwnd: bytes(cwnd), ..self.last }).into()
    }

    /// A loss, once per recovery or timeout: the base's new ssthresh in bytes, FS-AT (10) and (11), from its
    /// cwnd and present ssthresh. For one that is no smaller than `cwnd`, nothing is to be reduced.
    pub fn on_loss(&mut self, cwnd: u64, ssthresh: u64, mss: u32) -> u64 {
        self.raw.on_loss(&self.config, bytes(cwnd), bytes(ssthresh), mss).into()
    }

    /// The path itself says that it is congested (ECN): the base's new ssthresh in bytes, FS-AT (11).
    pub fn on_mark(&mut self, mss: u32) -> u64 {
        self.raw.on_mark(mss).into()
    }

    /// At which rate to send, bytes per second, `u64::MAX` for no pacing at all; `None` if FS-AT does not mind.
    pub fn pacing_rate(&self) -> Option<u64> {
        Some(self.raw.pacing_rate(&self.config, &self.last)).filter(|rate| *rate > 0)
    }

    /// How many segments to hand over at once; `None` if FS-AT does not mind.
    pub fn burst(&self) -> Option<u32> {
        Some(self.raw.burst(&self.config, self.last.mss)).filter(|segments| *segments > 0)
    }

    /// What it knows and decided.
    pub fn state(&self) -> State {
        State::from(&self.raw)
    }
}

impl From<&RawFsat> for State {
    fn from(raw: &RawFsat) -> State {
        State {
            target: (raw.target != NO_LIMIT).then_some(raw.target.into()),
            space: raw.space.into(),
            rcv_bytes: raw.rcv_bytes.into(),
            flight: raw.flight_n.into(),
            rtt_min: (raw.rtt_min_us > 0).then(|| Duration::from_micros(raw.rtt_min_us.into())),
            draining: raw.draining != 0,
            drains: raw.drains,
            losses_radio: raw.losses_radio,
            losses_congestion: raw.losses_congestion,
        }
    }
}

fn raw_ack(now: Duration, ack: &Ack) -> RawAck {
    RawAck {
        now_us: micros(now),
        rtt_us: ack.rtt.map_or(0, |rtt| rtt.as_micros().clamp(1, u32::MAX.into()) as u32),
        delivered: bytes(ack.delivered),
        flight: bytes(ack.flight),
        cwnd: bytes(ack.cwnd),
        cwnd_max: bytes(ack.cwnd_max),
        mss: ack.mss,
        app_limited: ack.app_limited.into(),
    }
}

/// Microseconds, wrapping.
fn micros(time: Duration) -> u32 {
    time.as_micros() as u32
}

fn bytes(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(delivered: u64, flight: u64) -> Ack {
        Ack {
            rtt: Some(Duration::from_millis(100)),
            delivered,
            flight,
            cwnd: 100_000,
            cwnd_max: 200_000,
            mss: 1000,
            ..Ack::default()
        }
    }

    #[test]
    fn what_queues_is_limited() {
        let mut fsat = FsAt::new(Additions::PAPER, Duration::ZERO, 200_000);
        assert_eq!(fsat.window(100_000), 100_000);
        for n in 0..1000 {
            fsat.on_ack(Duration::from_millis(10 * n), &ack(1000, 60_000));
        }
        let state = fsat.state();
        assert_eq!(state.rcv_bytes, 10_000);
        assert!(state.target.is_some_and(|target| (15_000..=20_000).contains(&target)), "{state:?}");
        assert!((15_000..=20_000).contains(&fsat.window(100_000)));
        assert_eq!(state.rtt_min, Some(Duration::from_millis(100)));
    }
}
