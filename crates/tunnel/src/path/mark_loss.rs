//! Which marks of a packet's traffic class a path does not carry: some networks drop what has a DSCP, or what is capable of ECN.
//! Then probes and reports, which have no mark, come through, and the path looks well while all that is marked vanishes. Such a
//! mark is left off the outer packets.

use std::ops::RangeInclusive;
use std::time::Duration;

/// So many times in turn nothing with a mark arrives, and it is left off: a path that loses a third of all packets does that by
/// chance once in 6,000 times. What is lost at once, as while a path is dead, is lost for one reason, and counts once.
const VAIN: u32 = 8;
/// What has not been reported for so long, while later ones have, has not arrived.
const PATIENCE: Duration = Duration::from_millis(500);
/// After this a mark is tried again: the path may lead elsewhere.
const LIFE: Duration = Duration::from_secs(600);
/// Packets that are followed at a time; the others are not, until it is known what became of these.
const FOLLOWED: usize = 64;

/// The DSCP and the ECN field of a traffic class, and what they are called.
const MARKS: [(u8, &str); 2] = [(0xfc, "DSCP"), (0x03, "ECN")];

/// What became of a path's marked packets.
#[derive(Debug, Default)]
pub struct MarkLoss {
    /// Path sequence, traffic class, and when it was sent.
    followed: Vec<(u64, u8, Duration)>,
    /// Of each mark.
    vain: [u32; MARKS.len()],
    /// Until when each is left off.
    off: [Option<Duration>; MARKS.len()],
    /// Until when what comes in marked as congested says nothing.
    forged: Option<Duration>,
}

impl MarkLoss {
    /// What is left of the traffic class `tos` on this path.
    pub fn outer(&self, tos: u8) -> u8 {
        let off = MARKS.iter().zip(self.off).filter(|(_, off)| off.is_some());
        off.fold(tos, |tos, ((mask, _), _)| tos & !mask)
    }

    /// A packet came in marked as congested that left without being capable of it: nobody may do that (RFC 3168 §5), and who
    /// does marks everything. True if that is new.
    pub fn handle_forged(&mut self, now: Duration) -> bool {
        let new = !self.is_forged(now);
        self.forged = Some(now + LIFE);
        new
    }

    /// Whether what comes in marked as congested says nothing.
    pub fn is_forged(&self, now: Duration) -> bool {
        self.forged.is_some_and(|until| now < until)
    }

    /// The marks that are left off.
    pub fn left_off(&self) -> impl Iterator<Item = &'static str> {
        MARKS.iter().zip(self.off).filter(|(_, off)| off.is_some()).map(|((_, name), _)| *name)
    }

    /// A packet with the traffic class `tos` is being sent.
    pub fn handle_sent(&mut self, now: Duration, sequence: u64, tos: u8) {
        self.off.iter_mut().for_each(|off| *off = off.filter(|until| now < *until));
        if tos != 0 && self.followed.len() < FOLLOWED {
            self.followed.push((sequence, tos, now));
        }
    }

    /// The path's sequences in `ranges` have arrived. What mark is to be left off from now on, if one is.
    pub fn handle_report(&mut self, now: Duration, ranges: &[RangeInclusive<u64>]) -> Option<&'static str> {
        let largest = ranges.first().map_or(0, |range| *range.end());
        self.followed.retain(|&(sequence, tos, _)| {
            let arrived = ranges.iter().any(|range| range.contains(&sequence));
            if arrived {
                (0..MARKS.len()).filter(|at| tos & MARKS[*at].0 != 0).for_each(|at| self.vain[at] = 0);
            }
            !arrived
        });
        let vain =
            |&&(sequence, _, sent): &&(u64, u8, Duration)| sequence < largest && now >= sent + PATIENCE;
        let tos = self.followed.iter().find(vain)?.1;
        self.followed.retain(|&(sequence, ..)| sequence >= largest);
        // Of two, the first is suspected; if it is the second, that shows without the first.
        let at = (0..MARKS.len()).find(|at| tos & MARKS[*at].0 != 0)?;
        if self.off[at].is_some() {
            return None;
        }
        self.vain[at] += 1;
        if self.vain[at] < VAIN {
            return None;
        }
        self.vain[at] = 0;
        self.off[..at].fill(None);
        self.off[at] = Some(now + LIFE);
        Some(MARKS[at].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn a_mark_that_does_not_arrive_is_left_off_for_a_while() {
        let mut marked = MarkLoss::default();
        let report = |marked: &mut MarkLoss, now: Duration, first: u64, tos: u8, arrives: bool| {
            let each = (first..first + 8).map(|sequence| {
                marked.handle_sent(now, sequence, tos);
                let ranges = if arrives { [sequence..=sequence + 1] } else { [sequence + 1..=sequence + 1] };
                marked.handle_report(now + S, &ranges)
            });
            each.last().flatten()
        };
        assert_eq!(report(&mut marked, S, 0, 0xb8, true), None);
        assert_eq!((report(&mut marked, S, 10, 0xb8, false), marked.outer(0xb9)), (Some("DSCP"), 0x01));
        assert_eq!(marked.left_off().collect::<Vec<_>>(), ["DSCP"]);
        // With that it was the other one all the time, until the first does not arrive alone.
        assert_eq!((report(&mut marked, S, 20, 0x02, false), marked.outer(0xba)), (Some("ECN"), 0xb8));
        assert_eq!((report(&mut marked, S, 30, 0xb8, false), marked.outer(0xba)), (Some("DSCP"), 0));
        marked.handle_sent(700 * S, 40, 0);
        assert_eq!(marked.outer(0xba), 0xba);
    }

    #[test]
    fn what_is_lost_at_once_counts_once() {
        let mut marked = MarkLoss::default();
        for round in 0..100 {
            let first = 100 * round;
            (first..first + 30).for_each(|sequence| marked.handle_sent(S, sequence, 0xb8));
            assert_eq!(marked.handle_report(3 * S, &[first + 40..=first + 40]), None, "a path was dead");
            marked.handle_sent(3 * S, first + 50, 0xb8);
            assert_eq!(marked.handle_report(4 * S, &[first + 50..=first + 50]), None);
        }
    }

    #[test]
    fn losses_in_between_say_nothing() {
        let mut marked = MarkLoss::default();
        for round in 0..1000 {
            marked.handle_sent(S, 2 * round, 0xb8);
            marked.handle_sent(S, 2 * round + 1, 0xb8);
            let even = [2 * round + 1..=2 * round + 1];
            assert_eq!(marked.handle_report(3 * S, &even), None);
        }
        (0..1000).for_each(|n| marked.handle_sent(S, 5000 + n, 0xb8));
        assert_eq!(marked.followed.len(), FOLLOWED);
    }
}
