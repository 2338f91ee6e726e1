//! One connection's FS-AT, or one path's.

use std::time::Duration;

pub use crate::ffi::Constants;
use crate::ffi::{NO_LIMIT, RawAck, RawFsat};

/// Which rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// The paper's equations and nothing else: `fsat_paper`.
    Paper,
    /// `fsat`, with these constants.
    Fsat(Constants),
}

impl Algorithm {
    /// `fsat` as it is.
    pub fn fsat() -> Algorithm {
        Algorithm::Fsat(Constants::default())
    }
}

/// One ACK, or one report of what arrived. Bytes beyond 4 GB count as 4 GB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ack {
    /// The RTT that it measures; `None` if it measures none (a retransmission's).
    pub rtt: Option<Duration>,
    /// Bytes newly known to have arrived, in order or not.
    pub delivered: u64,
    /// Bytes newly believed to be lost; the paper's equations do not ask.
    pub lost: u64,
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
    algorithm: Algorithm,
    last: RawAck,
    /// The mode before the last loss.
    prior_mode: u16,
}

/// How the base answers a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The loss is the radio's: ssthresh in bytes, FS-AT (10); the base does not hear of it.
    Spared(u64),
    /// It is congestion.
    Reduce {
        /// ssthresh is no less than this, bytes: FS-AT (11), or 0.
        least: u64,
        /// Nor than what the base itself makes of it.
        base: bool,
    },
}

/// What FS-AT does at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Slow start, until a queue or heavy loss answers.
    Ask,
    /// The queue is its own.
    Own,
    /// The base alone, beside others.
    Others,
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
    /// The least RTT; `None` before the first sample.
    pub rtt_min: Option<Duration>,
    /// `fsat`'s mode; the paper has one, which is the first.
    pub mode: Mode,
    /// Losses that judge(3) put down to radio.
    pub losses_radio: u32,
    /// Losses that judge(3) put down to congestion.
    pub losses_congestion: u32,
}

impl FsAt {
    /// A new connection that may have `flight_limit` bytes in flight until something is known.
    pub fn new(algorithm: Algorithm, now: Duration, flight_limit: u64) -> FsAt {
        FsAt {
            raw: RawFsat::new(micros(now), bytes(flight_limit)),
            algorithm,
            last: RawAck::default(),
            prior_mode: 0,
        }
    }

    /// Something is newly known of what was sent. Two calls more than 71 minutes apart look closer. True: the base has to
    /// reduce, as after a loss by congestion.
    pub fn on_ack(&mut self, now: Duration, ack: &Ack) -> bool {
        self.last = raw_ack(now, ack);
        match &self.algorithm {
            Algorithm::Paper => {
                self.raw.paper_on_ack(&self.last);
                false
            }
            Algorithm::Fsat(constants) => self.raw.on_ack(constants, &self.last),
        }
    }

    /// How much may be in flight with the base's `cwnd`, bytes: FS-AT (4), at least one packet.
    pub fn window(&self, cwnd: u64) -> u64 {
        let window = match &self.algorithm {
            Algorithm::Paper => self.raw.paper_window(bytes(cwnd), self.last.mss),
            Algorithm::Fsat(constants) => {
                self.raw.window(constants, &RawAck { cwnd: bytes(cwnd), ..self.last })
            }
        };
        window.into()
    }

    /// A loss, once per recovery or timeout, with the base's cwnd and present ssthresh in bytes.
    pub fn on_loss(&mut self, cwnd: u64, ssthresh: u64, mss: u32) -> Answer {
        self.prior_mode = self.raw.mode;
        let (cwnd, ssthresh, radio) = (bytes(cwnd), bytes(ssthresh), self.raw.losses_radio);
        let new = match &self.algorithm {
            Algorithm::Paper => self.raw.paper_on_loss(cwnd, ssthresh, mss),
            Algorithm::Fsat(constants) => self.raw.on_loss(constants, cwnd, ssthresh),
        };
        if self.raw.losses_radio != radio {
            Answer::Spared(new.into())
        } else {
            Answer::Reduce { least: new.into(), base: self.algorithm != Algorithm::Paper }
        }
    }

    /// Whether recovery from a loss holds down what is in flight (RFC 9937), as the base has it. `fsat` holds to its own window where
    /// it has one.
    pub fn leaves_recovery(&self) -> bool {
        self.algorithm == Algorithm::Paper || self.state().mode == Mode::Others
    }

    /// The last loss was none: the mode is what it was, and `space` may be in flight again.
    pub fn undo(&mut self, space: u64) {
        self.raw.mode = self.prior_mode;
        self.raw.lost = 0;
        self.raw.space = self.raw.space.max(bytes(space));
    }

    /// A timeout, after which `space` bytes may be in flight. True: as [`FsAt::on_ack`].
    pub fn on_timeout(&mut self, space: u64, mss: u32) -> bool {
        match &self.algorithm {
            Algorithm::Paper => {
                self.raw.space = bytes(space);
                false
            }
            Algorithm::Fsat(constants) => self.raw.on_timeout(constants, bytes(space), mss),
        }
    }

    /// At which rate to send, bytes per second; `None` if FS-AT does not mind.
    pub fn pacing_rate(&self) -> Option<u64> {
        let Algorithm::Fsat(constants) = &self.algorithm else { return None };
        Some(self.raw.pacing_rate(constants, &self.last)).filter(|rate| *rate > 0)
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
            rtt_min: (raw.rtt_min_us > 0).then(|| Duration::from_micros(raw.rtt_min_us.into())),
            mode: match raw.mode {
                0 => Mode::Ask,
                1 => Mode::Own,
                _ => Mode::Others,
            },
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
        lost: bytes(ack.lost),
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

    #[test]
    fn a_loss_that_was_none_leaves_the_mode_as_it_was() {
        let mut fsat = FsAt::new(Algorithm::fsat(), Duration::ZERO, 20_000);
        fsat.raw.mode = 1;
        (fsat.raw.rtt_min_us, fsat.raw.queue_rtt_us) = (100_000, 200_000);
        assert!(matches!(fsat.on_loss(20_000, 20_000, 1000), Answer::Reduce { .. }));
        assert_eq!(fsat.state().mode, Mode::Others);
        fsat.undo(20_000);
        assert_eq!(fsat.state().mode, Mode::Own);
    }

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
        let mut fsat = FsAt::new(Algorithm::Paper, Duration::ZERO, 200_000);
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
