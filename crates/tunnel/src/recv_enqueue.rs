//! RecvEnqueue: what one path received, what is fed back about it, and which gaps in the order it has passed.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::frame::{Delay, MAX_RANGES, Report};

/// Ranges of received sequences that are remembered, more than one report holds.
const MEMORY: usize = 2 * MAX_RANGES;
/// A path that reorders by more than this many packets is taken to have lost them.
const MAX_MARGIN: u64 = 1024;
/// Packets that may be late before a path has shown how much it reorders (as TCP's three duplicate ACKs).
const FIRST_MARGIN: u64 = 3;

/// A clock's low 32 bits in µs.
pub fn micros(t: Duration) -> u32 {
    t.as_micros() as u32
}

/// The receiving side of one path.
#[derive(Debug)]
pub struct Received {
    /// The largest first, disjoint and not adjacent.
    ranges: VecDeque<(u64, u64)>,
    arrival: Duration,
    bytes: u64,
    packets: u64,
    unreported: u32,
    first_unreported: Option<Duration>,
    delay: DelaySum,
    last_delay: Option<u32>,
    margin: u64,
    settled: Option<u64>,
    /// Path sequence and the order sequence below which it says that all was sent, not yet settled.
    marks: VecDeque<(u64, u64)>,
    passed: u64,
}

impl Default for Received {
    fn default() -> Self {
        Received {
            ranges: VecDeque::new(),
            arrival: Duration::ZERO,
            bytes: 0,
            packets: 0,
            unreported: 0,
            first_unreported: None,
            delay: DelaySum::default(),
            last_delay: None,
            margin: FIRST_MARGIN,
            settled: None,
            marks: VecDeque::new(),
            passed: 0,
        }
    }
}

impl Received {
    /// An authenticated packet that no replay window refused arrived. `reportable`: its sender waits for a report of it,
    /// which is not so for reports themselves, or two idle ends would report to each other for ever.
    ///
    /// True if none with a larger sequence came before.
    pub fn handle_packet(&mut self, now: Duration, sequence: u64, bytes: usize, reportable: bool) -> bool {
        if let Some(&(_, largest)) = self.ranges.front() {
            self.measure_reordering(largest, sequence);
        }
        let newest = self.ranges.front().is_none_or(|&(_, largest)| sequence > largest);
        if newest {
            self.arrival = now;
        }
        self.add(sequence);
        self.bytes += bytes as u64;
        self.packets += 1;
        if reportable {
            self.unreported += 1;
            self.first_unreported.get_or_insert(now);
        }
        self.settle();
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

    /// The packet says that every order sequence below `order` given to this path was sent on it before.
    pub fn handle_mark(&mut self, sequence: u64, order: u64) {
        let at = self.marks.iter().rposition(|m| m.0 < sequence).map_or(0, |i| i + 1);
        self.marks.insert(at, (sequence, order));
        if self.marks.len() > 2 * MAX_MARGIN as usize {
            self.marks.pop_front();
        }
        self.settle();
    }

    /// Every order sequence below this that was given to this path has arrived or is taken to be lost.
    pub fn passed(&self) -> u64 {
        self.passed
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
        Some(Report {
            path,
            arrival: micros(self.arrival),
            report_delay: u32::try_from(now.saturating_sub(self.arrival).as_micros()).unwrap_or(u32::MAX),
            bytes: self.bytes,
            delay: std::mem::take(&mut self.delay).summary(),
            ranges: self.ranges.iter().take(MAX_RANGES).map(|&(low, high)| low..=high).collect(),
        })
    }

    /// A late packet raises the margin to its displacement; 256 packets in order lower it by one.
    fn measure_reordering(&mut self, largest: u64, sequence: u64) {
        if sequence < largest {
            self.margin = self.margin.max(largest - sequence + 1).min(MAX_MARGIN);
        } else if self.packets.is_multiple_of(256) {
            self.margin = (self.margin - 1).max(FIRST_MARGIN);
        }
    }

    fn add(&mut self, sequence: u64) {
        // Nearly always the first range grows; a late packet is found near the front.
        let at = self.ranges.iter().position(|r| r.0 <= sequence + 1).unwrap_or(self.ranges.len());
        match self.ranges.get_mut(at) {
            Some(r) if sequence <= r.1 && sequence >= r.0 => return,
            Some(r) if sequence == r.1 + 1 => r.1 = sequence,
            Some(r) if sequence + 1 == r.0 => r.0 = sequence,
            _ => self.ranges.insert(at, (sequence, sequence)),
        }
        self.join(at);
        self.ranges.truncate(MEMORY);
    }

    /// Joins the range at `at` with its neighbours if they touch.
    fn join(&mut self, at: usize) {
        for upper in [at, at.wrapping_sub(1)] {
            if let (Some(&u), Some(&l)) = (self.ranges.get(upper), self.ranges.get(upper.wrapping_add(1)))
                && l.1 + 1 >= u.0
            {
                self.ranges[upper].0 = l.0;
                self.ranges.remove(upper + 1);
            }
        }
    }

    /// Moves the settled sequence on: contiguously, and over holes that the margin leaves behind.
    fn settle(&mut self) {
        let Some(&(low, largest)) = self.ranges.front() else { return };
        let mut settled = self.settled.unwrap_or_else(|| self.ranges.back().map_or(low, |r| r.0));
        settled = settled.max(largest.saturating_sub(self.margin));
        let inside: Option<RangeInclusive<u64>> =
            self.ranges.iter().find(|r| r.0 <= settled + 1).map(|r| r.0..=r.1);
        self.settled = Some(inside.map_or(settled, |r| settled.max(*r.end())));
        while let Some(&(sequence, order)) = self.marks.front()
            && Some(sequence) <= self.settled
        {
            self.passed = self.passed.max(order);
            self.marks.pop_front();
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

    #[test]
    fn a_path_passes_a_gap_only_beyond_its_margin() {
        let mut r = Received::default();
        receive(&mut r, &[0]);
        r.handle_mark(0, 10);
        assert_eq!(r.passed(), 10);
        // Sequence 1 is missing: what follows does not pass until the margin is behind.
        for s in 2..=3 {
            receive(&mut r, &[s]);
            r.handle_mark(s, 20 + s);
        }
        assert_eq!(r.passed(), 10);
        receive(&mut r, &[4]);
        r.handle_mark(4, 24);
        assert_eq!(r.passed(), 24, "1 is three behind 4: lost");
    }

    #[test]
    fn a_path_that_reorders_more_is_waited_for_longer() {
        let mut r = Received::default();
        receive(&mut r, &[0, 9, 1, 2, 3, 4, 5, 6, 7, 8, 10]);
        receive(&mut r, &[12, 13, 14, 15]);
        r.handle_mark(15, 99);
        assert_eq!(r.passed(), 0);
        receive(&mut r, &[11]);
        assert_eq!(r.passed(), 99);
    }

    proptest! {
        #[test]
        fn ranges_are_the_set_of_what_arrived(sequences in proptest::collection::vec(0u64..100, 1..80)) {
            let mut r = Received::default();
            receive(&mut r, &sequences);
            let set: BTreeSet<u64> = sequences.iter().copied().collect();
            let ranges = r.ranges.clone();
            prop_assert_eq!(ranges.iter().rev().flat_map(|r| r.0..=r.1).collect::<Vec<_>>(), set.into_iter().collect::<Vec<_>>());
            prop_assert!(ranges.iter().zip(ranges.iter().skip(1)).all(|(u, l)| l.1 + 1 < u.0));
        }
    }
}
