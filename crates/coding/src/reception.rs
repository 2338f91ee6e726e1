//! What this node overheard of each relay's sums, and when to report it (mode `any`).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ethernet::Mac;
use crate::header::Report;

/// Relays that are kept account of; one more takes the place of the one that was silent for longest.
const MAX_RELAYS: usize = 32;
/// Sums between two reports at most, while some are missed and while none is. At first each is reported, then half of them,
/// and so on, for a relay trusts only what it knows.
const EVERY: (u16, u16) = (16, 128);
/// So many missed since the last report are reported at once: they may be reason enough to leave this node out.
const ALARMING: u16 = 3;
/// A report is not put off for longer.
pub const REPORT_DELAY: Duration = Duration::from_secs(1);
/// A jump of the numbers by more, or back by more than a report covers, is a relay that began anew.
const JUMP: u16 = 1024;

/// The second packets of one relay's sums, which nobody repeats if they are missed.
#[derive(Debug)]
struct Heard {
    report: Report,
    /// Sums after which the next report is due, while none is missed.
    every: u16,
    /// Sums since the last report, and how many of them were missed.
    unreported: u16,
    missed: u16,
    due: Option<Duration>,
    last: Duration,
}

/// By relay.
#[derive(Debug, Default)]
pub struct Reception(BTreeMap<Mac, Heard>);

impl Reception {
    /// A sum whose second packet is for this node. If packets before it, or this one, are `wanted` again and missing, it
    /// is reported at once.
    pub fn note(&mut self, now: Duration, relay: Mac, number: u16, decoded: bool, wanted: bool) {
        if self.0.len() >= MAX_RELAYS && !self.0.contains_key(&relay) {
            let oldest = self.0.iter().min_by_key(|(_, heard)| heard.last).map(|(relay, _)| *relay);
            oldest.and_then(|oldest| self.0.remove(&oldest));
        }
        let heard = self.0.entry(relay).or_insert_with(|| Heard::new(number));
        heard.note(number, decoded);
        heard.last = now;
        let every = if heard.missed > 0 { EVERY.0.min(heard.every) } else { heard.every };
        let at_once = heard.unreported >= every || heard.missed >= ALARMING || (heard.missed > 0 && wanted);
        let due = if at_once { now } else { now.saturating_add(REPORT_DELAY) };
        heard.due = Some(heard.due.map_or(due, |before| before.min(due)));
    }

    /// The next report that is due at `now`, and whom it is for.
    pub fn poll(&mut self, now: Duration) -> Option<(Mac, Report)> {
        let (relay, heard) = self.0.iter_mut().find(|(_, heard)| heard.due.is_some_and(|due| due <= now))?;
        heard.every = (heard.every * 2).min(EVERY.1);
        (heard.due, heard.unreported, heard.missed) = (None, 0, 0);
        Some((*relay, heard.report))
    }

    /// Whether this node has long had sums of `relay`, and missed of the last 64 no more than one of five.
    pub fn is_good(&self, relay: Mac) -> bool {
        let good = |heard: &Heard| heard.every == EVERY.1 && heard.report.missing.count_ones() <= 64 / 5;
        self.0.get(&relay).is_some_and(good)
    }

    /// When [`poll`](Self::poll) has something next.
    pub fn next_due(&self) -> Option<Duration> {
        self.0.values().filter_map(|heard| heard.due).min()
    }
}

impl Heard {
    /// As if the sum before `number` had been heard, and none was missed.
    fn new(number: u16) -> Self {
        let report = Report { newest: number.wrapping_sub(1), ..Report::default() };
        Self { report, every: 1, unreported: 0, missed: 0, due: None, last: Duration::ZERO }
    }

    fn note(&mut self, number: u16, decoded: bool) {
        let report = &mut self.report;
        let ahead = number.wrapping_sub(report.newest);
        let late = report.newest.wrapping_sub(number);
        // What is later has no bit in `missing`.
        if u32::from(late) < u64::BITS {
            report.missing &= !(u64::from(decoded) << late);
            return;
        }
        if ahead > JUMP {
            let lost = report.lost;
            *self = Self::new(number);
            self.report.lost = lost;
            return self.note(number, decoded);
        }
        // One bit for each number from the one after the newest to this one, which is bit 0.
        let unheard = 1u64.checked_shl(ahead.into()).map_or(u64::MAX, |bit| bit - 1) & !u64::from(decoded);
        report.missing = report.missing.checked_shl(ahead.into()).unwrap_or(0) | unheard;
        report.newest = number;
        let missed = ahead - u16::from(decoded);
        report.lost = report.lost.wrapping_add(missed);
        self.unreported = self.unreported.saturating_add(ahead);
        self.missed = self.missed.saturating_add(missed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELAY: Mac = Mac([2, 0, 0, 0, 0, 2]);

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn what_is_missing_is_reported_once_and_at_once_if_it_is_wanted() {
        let mut reception = Reception::default();
        for number in [65_534, 65_535, 2] {
            reception.note(ms(1), RELAY, number, true, true);
        }
        let report = Report { newest: 2, lost: 2, missing: 0b110, answer: 0 };
        assert_eq!((reception.poll(ms(1)), reception.poll(ms(500))), (Some((RELAY, report)), None));
        reception.note(ms(2), RELAY, 3, false, false);
        assert_eq!((reception.poll(ms(1001)), reception.next_due()), (None, Some(ms(1002))));
        assert_eq!(
            reception.poll(ms(1002)),
            Some((RELAY, Report { newest: 3, lost: 3, missing: 0b1101, answer: 0 }))
        );
    }

    #[test]
    fn while_nothing_is_missed_reports_become_rare() {
        let mut reception = Reception::default();
        let mut due = |number: &u16| {
            reception.note(ms(1), RELAY, *number, true, true);
            reception.poll(ms(1)).is_some()
        };
        let at: Vec<u16> = (1..=511).filter(&mut due).collect();
        assert_eq!(at, [1, 3, 7, 15, 31, 63, 127, 255, 383, 511]);
    }

    #[test]
    fn reception_is_good_once_it_is_known_and_while_little_is_missed() {
        let of = |missed_one_in: u16, sums: u16| {
            let mut reception = Reception::default();
            for number in 0..sums {
                if number % missed_one_in != 0 {
                    reception.note(ms(1), RELAY, number, true, true);
                    reception.poll(ms(1));
                }
            }
            reception.is_good(RELAY)
        };
        assert_eq!([of(10, 20), of(10, 200), of(4, 200), of(1000, 200)], [false, true, false, true]);
    }

    #[test]
    fn a_relay_that_begins_anew_has_lost_nothing() {
        let mut reception = Reception::default();
        reception.note(ms(1), RELAY, 9, true, true);
        reception.note(ms(1), RELAY, 9 + 5000, true, true);
        reception.note(ms(1), RELAY, 8, true, true);
        assert_eq!(
            reception.poll(ms(1)),
            Some((RELAY, Report { newest: 8, lost: 0, missing: 0, answer: 0 }))
        );
    }

    #[test]
    fn a_relay_that_begins_anew_after_few_sums_is_told_at_once_what_is_missing() {
        let mut reception = Reception::default();
        (0..=600).for_each(|number| reception.note(ms(1), RELAY, number, true, true));
        while reception.poll(ms(1)).is_some() {}
        for (number, decoded) in [(0, true), (1, false), (2, false)] {
            reception.note(ms(2), RELAY, number, decoded, true);
        }
        let report = Report { newest: 2, lost: 2, missing: 0b11, answer: 0 };
        assert_eq!(reception.poll(ms(2)), Some((RELAY, report)));
    }

    #[test]
    fn a_sum_that_comes_late_is_missed_no_longer() {
        let mut reception = Reception::default();
        for number in [0, 64, 1] {
            reception.note(ms(1), RELAY, number, true, true);
        }
        let report = Report { newest: 64, lost: 63, missing: (u64::MAX >> 1) & !1, answer: 0 };
        assert_eq!(reception.poll(ms(1)), Some((RELAY, report)));
    }

    #[test]
    fn relays_are_bounded() {
        let mut reception = Reception::default();
        for n in 0..1000u32 {
            let [_, _, high, low] = n.to_be_bytes();
            reception.note(ms(n.into()), Mac([2, 0, 0, 0, high, low]), 0, true, true);
        }
        assert!(reception.0.len() <= MAX_RELAYS);
    }
}
