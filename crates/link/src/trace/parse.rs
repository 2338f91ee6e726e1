//! Traces as files: mahimahi's and `seconds Mbit/s`.

use std::str::SplitAsciiWhitespace;

use thiserror::Error;

use super::Trace;

/// What one line of a mahimahi trace carries, in bytes (mahimahi, `src/packet/link_queue.hh`).
pub(super) const OPPORTUNITY_BYTES: u64 = 1500;
const NANOS_PER_MS: u64 = 1_000_000;
/// 30 days: longest trace.
const MAX_SECONDS: u64 = 30 * 24 * 3600;
/// 1 Tbit/s: highest rate.
const MAX_MBPS: f64 = 1e6;

/// Why a text is no trace. Lines are counted from 1.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum TraceError {
    /// A number that cannot be read.
    #[error("line {line}: {text:?} is no {what}")]
    Number {
        /// Line.
        line: usize,
        /// What was read, shortened to 40 characters.
        text: String,
        /// What was expected there.
        what: &'static str,
    },
    /// A line with too few or too many fields.
    #[error("line {line}: {found} fields, but a line of this trace has {expected}")]
    Fields {
        /// Line.
        line: usize,
        /// Fields found.
        found: usize,
        /// Fields expected.
        expected: usize,
    },
    /// A time before, or where it must not be, at that of the line before.
    #[error("line {line}: this time is not after that of the line before; sort the trace by time")]
    Order {
        /// Line.
        line: usize,
    },
    /// A number beyond what a trace may hold.
    #[error("line {line}: {what}")]
    Range {
        /// Line.
        line: usize,
        /// The limit.
        what: &'static str,
    },
    /// No line at all.
    #[error("the trace has no lines")]
    Empty,
    /// A mahimahi trace whose last timestamp, which is its period, is 0.
    #[error("line {line}: the last timestamp is the trace's period in milliseconds and must be above 0")]
    Period {
        /// Line.
        line: usize,
    },
    /// A trace that never carries anything.
    #[error("every rate of the trace is 0; it would never carry anything")]
    Idle,
}

impl Trace {
    /// Reads a mahimahi trace: a line is a timestamp in ms, and one opportunity to carry 1500 bytes then.
    /// Timestamps do not fall; the last is the period, after which the trace repeats. A timestamp 0 is the
    /// same moment as the period's end, and counts there. Empty lines are skipped.
    pub fn from_mahimahi(text: &str) -> Result<Trace, TraceError> {
        let mut stamps: Vec<u64> = Vec::new();
        let mut last_line = 0;
        for (line, mut fields) in lines(text) {
            last_line = line;
            let [stamp] = exactly(line, &mut fields)?;
            let stamp = milliseconds(line, stamp)?;
            if stamps.last().is_some_and(|last| stamp < *last) {
                return Err(TraceError::Order { line });
            }
            stamps.push(stamp);
        }
        match stamps.last() {
            None => Err(TraceError::Empty),
            Some(0) => Err(TraceError::Period { line: last_line }),
            Some(&period) => Ok(repeat_opportunities(&stamps, period)),
        }
    }

    /// Reads a trace of rates: a line is a time in seconds and the rate in Mbit/s from then until the next
    /// line's time. Times rise and count from the first line's. The last rate holds as long as the one
    /// before it (1 s if there is none), then the trace repeats. Empty lines are skipped.
    pub fn from_seconds_mbps(text: &str) -> Result<Trace, TraceError> {
        let mut rates: Vec<(u64, u64)> = Vec::new();
        for (line, mut fields) in lines(text) {
            let [time, rate] = exactly(line, &mut fields)?;
            let time = seconds(line, time)?;
            if rates.last().is_some_and(|(last, _)| time <= *last) {
                return Err(TraceError::Order { line });
            }
            rates.push((time, mbps(line, rate)?));
        }
        let &(begin, _) = rates.first().ok_or(TraceError::Empty)?;
        if rates.iter().all(|(_, rate)| *rate == 0) {
            return Err(TraceError::Idle);
        }
        rates.iter_mut().for_each(|(time, _)| *time -= begin);
        Ok(Trace::from_rates(&rates, end(&rates)))
    }
}

/// Numbered lines that are not empty, in fields.
fn lines(text: &str) -> impl Iterator<Item = (usize, SplitAsciiWhitespace<'_>)> {
    let numbered = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    numbered
        .filter(|(_, line)| !line.trim_ascii().is_empty())
        .map(|(n, line)| (n, line.split_ascii_whitespace()))
}

/// All fields of a line, which must be `N`.
fn exactly<'a, const N: usize>(
    line: usize,
    fields: &mut SplitAsciiWhitespace<'a>,
) -> Result<[&'a str; N], TraceError> {
    let mut all = [""; N];
    let mut found = 0;
    for field in fields {
        if let Some(place) = all.get_mut(found) {
            *place = field;
        }
        found += 1;
    }
    if found == N { Ok(all) } else { Err(TraceError::Fields { line, found, expected: N }) }
}

fn no_number(line: usize, text: &str, what: &'static str) -> TraceError {
    TraceError::Number { line, text: text.chars().take(40).collect(), what }
}

/// A timestamp in whole ms.
fn milliseconds(line: usize, text: &str) -> Result<u64, TraceError> {
    let error = || no_number(line, text, "whole number of milliseconds");
    let stamp: u64 = text.parse().map_err(|_| error())?;
    if stamp > MAX_SECONDS * 1000 {
        return Err(TraceError::Range { line, what: "a trace is at most 30 days long" });
    }
    Ok(stamp)
}

/// A time in seconds, as ns.
fn seconds(line: usize, text: &str) -> Result<u64, TraceError> {
    let error = || no_number(line, text, "time in seconds");
    let value: f64 = text.parse().ok().filter(|v: &f64| v.is_finite()).ok_or_else(error)?;
    if !(0.0..=MAX_SECONDS as f64).contains(&value) {
        return Err(TraceError::Range { line, what: "a time lies within 0 and 30 days" });
    }
    Ok((value * 1e9).round() as u64)
}

/// A rate in Mbit/s, as bit/s.
fn mbps(line: usize, text: &str) -> Result<u64, TraceError> {
    let error = || no_number(line, text, "rate in Mbit/s");
    let value: f64 = text.parse().ok().filter(|v: &f64| v.is_finite()).ok_or_else(error)?;
    if !(0.0..=MAX_MBPS).contains(&value) {
        return Err(TraceError::Range { line, what: "a rate lies within 0 and 1000000 Mbit/s" });
    }
    Ok((value * 1e6).round() as u64)
}

/// The trace of opportunities at `stamps`, in ms; those at 0 count at the period's end.
pub(super) fn repeat_opportunities(stamps: &[u64], period: u64) -> Trace {
    let at_zero = stamps.partition_point(|stamp| *stamp == 0);
    let later = stamps[at_zero..].iter().copied().chain(std::iter::repeat_n(period, at_zero));
    let opportunities = later.map(|stamp| (stamp * NANOS_PER_MS, OPPORTUNITY_BYTES));
    Trace::from_opportunities(opportunities, period * NANOS_PER_MS)
}

/// When a trace of rates ends, in ns.
fn end(rates: &[(u64, u64)]) -> u64 {
    match rates {
        [.., (before, _), (last, _)] => last + (last - before),
        _ => 1_000_000_000,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::units::Bitrate;

    #[test]
    fn a_mahimahi_trace_repeats_after_its_last_timestamp() {
        let trace = Trace::from_mahimahi("0\n1\n\n1\n4\n").unwrap();
        assert_eq!(trace.period(), Duration::from_millis(4));
        assert_eq!(trace.mean(), Bitrate::from_mbps(12.0));
        let position = Default::default();
        let done = |bytes| trace.carry(position, Duration::ZERO, bytes).0.as_millis();
        assert_eq!([1500, 3000, 3001, 6000, 6001].map(done), [1, 1, 4, 4, 5]);
    }

    #[test]
    fn a_trace_of_rates_counts_from_its_first_line() {
        let trace = Trace::from_seconds_mbps("10.0 8\n 10.5\t0 \n11.5 4\n").unwrap();
        assert_eq!(trace.period(), Duration::from_millis(2500));
        let position = Default::default();
        let done = |bytes| trace.carry(position, Duration::ZERO, bytes).0.as_millis();
        assert_eq!([500_000, 1_000_000, 1_100_000].map(done), [500, 2500, 2600]);
    }
}
