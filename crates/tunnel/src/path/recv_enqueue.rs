//! RecvEnqueue: what one path received, and what is fed back about it.

use std::collections::VecDeque;
use std::time::Duration;

use crate::flow::unconfirmed::DEADLINE;
use crate::schedule::weights::Delay;
use crate::wire::frame::{MAX_RANGES, Report};

/// Ranges of received sequences that are remembered, more than one report holds.
const MEMORY: usize = 2 * MAX_RANGES;
/// The newest ranges are always reported: what came before an outage may never have been.
const NEWEST: usize = 4;
/// A clock's low 32 bits in µs.
pub fn micros(t: Duration) -> u32 {
    t.as_micros() as u32
}

/// Sequences that arrived, without a gap.
#[derive(Clone, Copy, Debug)]
struct Range {
    low: u64,
    high: u64,
    /// When the last of them arrived.
    grew: Duration,
}

/// The receiving side of one path.
#[derive(Debug, Default)]
pub struct Received {
    /// The largest first, disjoint and not adjacent.
    ranges: VecDeque<Range>,
    arrival: Duration,
    bytes: u64,
    packets: u64,
    unreported: u32,
    first_unreported: Option<Duration>,
    delay: DelaySum,
    last_delay: Option<u32>,
}

impl Received {
    /// An authenticated packet that no replay window refused arrived. `reportable`: its sender waits for a report of it,
    /// which is not so for reports themselves, or two idle ends would report to each other for ever.
    ///
    /// True if none with a larger sequence came before.
    pub fn handle_packet(&mut self, now: Duration, sequence: u64, bytes: usize, reportable: bool) -> bool {
        let newest = self.ranges.front().is_none_or(|range| sequence > range.high);
        if newest {
            self.arrival = now;
        }
        self.add(now, sequence);
        self.bytes += bytes as u64;
        self.packets += 1;
        if reportable {
            self.unreported += 1;
            self.first_unreported.get_or_insert(now);
        }
        newest
    }

    /// The packet carried its sender's clock.
    pub fn handle_time(&mut self, now: Duration, time: u32) {
        let delay = micros(now).wrapping_sub(time);
        self.last_delay = Some(delay);
        self.delay.add(delay);
    }

    /// The one-way delay of the last packet that carried its sender's clock: the receiver's clock minus that, wrapping.
    pub fn last_delay(&self) -> Option<u32> {
        self.last_delay
    }

    /// Packets that arrived since the last report, and when the first of them did.
    pub fn unreported(&self) -> (u32, Option<Duration>) {
        (self.unreported, self.first_unreported)
    }

    /// Bytes received so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Packets received so far.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// When the packet with the largest sequence arrived.
    pub fn last_arrival(&self) -> Option<Duration> {
        (!self.ranges.is_empty()).then_some(self.arrival)
    }

    /// What to feed back; `None` if nothing was ever received.
    pub fn report(&mut self, now: Duration, path: u16) -> Option<Report> {
        self.ranges.front()?;
        (self.unreported, self.first_unreported) = (0, None);
        // A range that grew longer ago is left out: its sender has given up by then what it heard nothing of. Losses leave gaps that nothing
        // fills, and would fill each report, for which a thin way back has little room.
        let recent = |(at, range): &(usize, &Range)| *at < NEWEST || now < range.grew + DEADLINE;
        let ranges = self.ranges.iter().enumerate().filter(recent).take(MAX_RANGES);
        Some(Report {
            path,
            arrival: micros(self.arrival),
            report_delay: u32::try_from(now.saturating_sub(self.arrival).as_micros()).unwrap_or(u32::MAX),
            bytes: self.bytes,
            delay: std::mem::take(&mut self.delay).summary(),
            ranges: ranges.map(|(_, range)| range.low..=range.high).collect(),
        })
    }

    fn add(&mut self, now: Duration, sequence: u64) {
        // Nearly always the first range grows; a late packet is found near the front.
        let at = self.ranges.iter().position(|r| r.low <= sequence + 1).unwrap_or(self.ranges.len());
        match self.ranges.get_mut(at) {
            Some(r) if sequence <= r.high && sequence >= r.low => return,
            Some(r) if sequence == r.high + 1 => (r.high, r.grew) = (sequence, now),
            Some(r) if sequence + 1 == r.low => (r.low, r.grew) = (sequence, now),
            _ => self.ranges.insert(at, Range { low: sequence, high: sequence, grew: now }),
        }
        self.join(at);
        self.ranges.truncate(MEMORY);
    }

    /// Joins the range at `at` with its neighbours if they touch.
    fn join(&mut self, at: usize) {
        for upper in [at, at.wrapping_sub(1)] {
            if let (Some(&u), Some(&l)) = (self.ranges.get(upper), self.ranges.get(upper.wrapping_add(1)))
                && l.high + 1 >= u.low
            {
                self.ranges[upper] = Range { low: l.low, grew: u.grew.max(l.grew), ..u };
                self.ranges.remove(upper + 1);
            }
        }
    }
}

/// Sums one-way delays relative to the first, so that the unknown offset and the wrapping do not matter.
#[derive(Debug, Default)]
struct DelaySum {
    samples: u32,
    first: u32,
    sum: i64,
    min: i32,
    max: i32,
}

impl DelaySum {
    fn add(&mut self, delay: u32) {
        if self.samples == 0 {
            self.first = delay;
        }
        let over = delay.wrapping_sub(self.first) as i32;
        self.samples = self.samples.saturating_add(1);
        self.sum += i64::from(over);
        self.min = self.min.min(over);
        self.max = self.max.max(over);
    }

    fn summary(self) -> Delay {
        let mean = self.sum / i64::from(self.samples.max(1));
        Delay {
            samples: self.samples,
            min: self.first.wrapping_add_signed(self.min),
            mean_over_min: (mean - i64::from(self.min)).max(0) as u32,
            max_over_min: self.max.wrapping_sub(self.min) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn receive(r: &mut Received, sequences: &[u64]) {
        for &s in sequences {
            r.handle_packet(Duration::ZERO, s, 1, true);
        }
    }

    #[test]
    fn gaps_are_news_for_a_while() {
        let mut r = Received::default();
        receive(&mut r, &(0..80).step_by(2).collect::<Vec<_>>());
        assert_eq!(r.report(DEADLINE / 2, 0).expect("something came").ranges.len(), MAX_RANGES);
        assert_eq!(r.report(DEADLINE, 0).expect("something came").ranges.len(), NEWEST);
        // What fills one is news again.
        r.handle_packet(DEADLINE, 41, 1, true);
        assert_eq!(r.report(DEADLINE, 0).expect("something came").ranges[NEWEST..], [40..=42]);
    }

    #[test]
    fn delays_are_reported_over_a_wrapping_clock() {
        let mut r = Received::default();
        receive(&mut r, &[1]);
        let now = Duration::from_micros(5);
        for delay in [10u32, 4, 16] {
            r.handle_time(now, 5u32.wrapping_sub(delay.wrapping_sub(8)));
        }
        let d = r.report(now, 0).unwrap().delay;
        assert_eq!((d.samples, d.min, d.mean_over_min, d.max_over_min), (3, 4u32.wrapping_sub(8), 6, 12));
        assert_eq!(r.report(now, 0).unwrap().delay.samples, 0);
    }

    proptest! {
        #[test]
        fn ranges_are_the_set_of_what_arrived(sequences in proptest::collection::vec(0u64..100, 1..80)) {
            let mut r = Received::default();
            receive(&mut r, &sequences);
            let set: BTreeSet<u64> = sequences.iter().copied().collect();
            let ranges = r.ranges.clone();
            prop_assert_eq!(ranges.iter().rev().flat_map(|r| r.low..=r.high).collect::<Vec<_>>(), set.into_iter().collect::<Vec<_>>());
            prop_assert!(ranges.iter().zip(ranges.iter().skip(1)).all(|(u, l)| l.high + 1 < u.low));
        }
    }
}
