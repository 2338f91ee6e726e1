//! Capacity that varies with time: recorded and generated traces.
//!
//! A trace is a curve: how many bytes a link has offered to carry since the trace began. Frames use it up
//! in order, so that the time at which a frame has been carried is where the curve reaches the bytes used
//! before it plus its own (a service curve; Le Boudec and Thiran, Network Calculus, 1.3).

mod cellular;
mod fading;
mod parse;

use std::fmt;
use std::time::Duration;

use crate::units::{Bitrate, ByteCount, nanoseconds};

pub use cellular::{CellularConfig, Outages};
pub use fading::FadingConfig;
pub use parse::TraceError;

/// 10⁻⁹ bit: what 1 bit/s carries in 1 ns, so that the curve has no rounding.
type Nanobits = u128;

const NANOBITS_PER_BYTE: Nanobits = 8_000_000_000;

/// The curve from one point in time to the next: a step, then a straight line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Segment {
    /// Nanoseconds since the period's begin.
    start: u64,
    /// Offered before `start`.
    before: Nanobits,
    /// Offered at the very moment `start`.
    step: Nanobits,
    /// Offered from then on, in bit/s.
    rate: u64,
}

impl Segment {
    /// Offered up to `time`, which lies after `start`, nanoseconds since the period's begin.
    fn offered(&self, time: u64) -> Nanobits {
        self.before + self.step + self.rate as Nanobits * (time - self.start) as Nanobits
    }

    /// When `target`, which lies beyond `before` and within this segment, is reached.
    fn reached(&self, target: Nanobits) -> u64 {
        match target.saturating_sub(self.before + self.step) {
            0 => self.start,
            rest => self.start + rest.div_ceil(self.rate as Nanobits) as u64,
        }
    }
}

/// A capacity that varies with time and repeats after its period.
#[derive(Clone, PartialEq, Eq)]
pub struct Trace {
    /// In order of `start`; never empty.
    segments: Vec<Segment>,
    /// Nanoseconds; a moment at the period's end belongs to it and not to the next.
    period: u64,
    /// Offered in one period; never 0.
    total: Nanobits,
}

/// How much of a trace has been used up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TracePosition(Nanobits);

impl Trace {
    /// `steps` (for how long, which rate) one after the other, and around again. An error if they take no time or never carry
    /// anything.
    pub fn steps(steps: &[(Duration, Bitrate)]) -> Result<Trace, TraceError> {
        let mut period = 0_u64;
        let mut rates = Vec::with_capacity(steps.len());
        for (length, rate) in steps.iter().filter(|(length, _)| !length.is_zero()) {
            rates.push((period, rate.as_bps()));
            period = period.saturating_add(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX));
        }
        match rates.iter().map(|(_, rate)| *rate).max() {
            None => Err(TraceError::Empty),
            Some(0) => Err(TraceError::Idle),
            Some(_) => Ok(Trace::from_rates(&rates, period)),
        }
    }

    /// How long the trace is before it repeats.
    pub fn period(&self) -> Duration {
        Duration::from_nanos(self.period)
    }

    /// The mean rate over one period.
    pub fn mean(&self) -> Bitrate {
        Bitrate::from_bps((self.total / self.period as u128) as u64)
    }

    /// What the trace offers to carry from its begin until just before `time`.
    pub fn offered(&self, time: Duration) -> ByteCount {
        ByteCount(u64::try_from(self.offered_before(time) / NANOBITS_PER_BYTE).unwrap_or(u64::MAX))
    }

    /// Carries `bytes` more behind `position`, not before `start`: when the last of them has been carried
    /// (`Duration::MAX` if that is centuries away), and the position behind them.
    ///
    /// Capacity that was offered before `start` and not used is gone; what is offered at the moment
    /// `start` counts. A frame may share a delivery opportunity with others.
    pub fn carry(&self, position: TracePosition, start: Duration, bytes: usize) -> (Duration, TracePosition) {
        let begin = position.0.max(self.offered_before(start));
        let end = begin + bytes as Nanobits * NANOBITS_PER_BYTE;
        let done = if end == begin { start } else { self.reached(end).max(start) };
        (done, TracePosition(end))
    }

    /// Offered from the trace's begin until just before `time`.
    fn offered_before(&self, time: Duration) -> Nanobits {
        let nanos = time.as_nanos();
        if nanos == 0 {
            return 0;
        }
        let periods = (nanos - 1) / self.period as u128;
        let within = (nanos - periods * self.period as u128) as u64;
        let behind = self.segments.partition_point(|s| s.start < within);
        let offered = if behind == 0 { 0 } else { self.segments[behind - 1].offered(within) };
        periods * self.total + offered
    }

    /// When `target`, which is above 0, has been offered.
    fn reached(&self, target: Nanobits) -> Duration {
        let periods = (target - 1) / self.total;
        let within = target - periods * self.total;
        let behind = self.segments.partition_point(|s| s.before < within);
        let time = self.segments[behind.saturating_sub(1)].reached(within);
        nanoseconds(periods * self.period as u128 + time as u128)
    }

    /// A trace from delivery opportunities: (ns since the begin, from 1 to `period`; bytes), in order.
    fn from_opportunities(opportunities: impl Iterator<Item = (u64, u64)>, period: u64) -> Trace {
        let mut trace = Trace { segments: Vec::new(), period, total: 0 };
        for (start, bytes) in opportunities {
            let step = bytes as Nanobits * NANOBITS_PER_BYTE;
            match trace.segments.last_mut() {
                Some(last) if last.start == start => last.step += step,
                _ => trace.segments.push(Segment { start, before: trace.total, step, rate: 0 }),
            }
            trace.total += step;
        }
        trace
    }

    /// A trace from rates: (ns since the begin, the first 0; bit/s from then on), in order.
    fn from_rates(rates: &[(u64, u64)], period: u64) -> Trace {
        let ends = rates.iter().skip(1).map(|(start, _)| *start).chain([period]);
        let mut trace = Trace { segments: Vec::with_capacity(rates.len()), period, total: 0 };
        for (&(start, rate), end) in rates.iter().zip(ends) {
            trace.segments.push(Segment { start, before: trace.total, step: 0, rate });
            trace.total += rate as Nanobits * (end - start) as Nanobits;
        }
        trace
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trace({} over {:?}, {} segments)", self.mean(), self.period(), self.segments.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn carry(trace: &Trace, position: &mut TracePosition, start_ms: u64, bytes: usize) -> Duration {
        let (done, next) = trace.carry(*position, Duration::from_millis(start_ms), bytes);
        *position = next;
        done
    }

    #[test]
    fn frames_share_an_opportunity_and_span_several() {
        let trace = Trace::from_opportunities([(5 * MS, 1500), (8 * MS, 1500)].into_iter(), 10 * MS);
        let mut at = TracePosition::default();
        assert_eq!(carry(&trace, &mut at, 0, 1000), Duration::from_millis(5));
        assert_eq!(carry(&trace, &mut at, 0, 400), Duration::from_millis(5));
        assert_eq!(carry(&trace, &mut at, 0, 400), Duration::from_millis(8));
        assert_eq!(carry(&trace, &mut at, 0, 2000), Duration::from_millis(15));
        assert_eq!(carry(&trace, &mut at, 90, 1500), Duration::from_millis(95));
    }

    #[test]
    fn an_opportunity_counts_at_its_moment_and_is_gone_after_it() {
        let trace = Trace::from_opportunities([(10 * MS, 1500)].into_iter(), 10 * MS);
        for (start, done) in [(10, 10), (11, 20), (20, 20), (21, 30)] {
            assert_eq!(
                carry(&trace, &mut TracePosition::default(), start, 1500),
                Duration::from_millis(done)
            );
        }
    }

    #[test]
    fn a_frame_spans_rates_and_pauses() {
        let trace = Trace::from_rates(&[(0, 12_000_000), (MS, 0), (5 * MS, 6_000_000)], 10 * MS);
        let mut at = TracePosition::default();
        assert_eq!(carry(&trace, &mut at, 0, 1500), Duration::from_millis(1));
        assert_eq!(carry(&trace, &mut at, 1, 750), Duration::from_millis(6));
        assert_eq!(carry(&trace, &mut at, 6, 3000), Duration::from_millis(10));
        assert_eq!(carry(&trace, &mut at, 103, 0), Duration::from_millis(103));
        assert_eq!(carry(&trace, &mut at, 103, 750), Duration::from_millis(106));
        assert_eq!(trace.mean(), Bitrate::from_bps(4_200_000));
        assert_eq!(trace.offered(Duration::from_millis(11)), ByteCount(5250 + 1500));
    }
}
