//! Scheduled blackouts.

use std::ops::Range;
use std::time::Duration;

/// Blackouts in order, without overlap; those that are over have been taken out.
#[derive(Debug)]
pub(crate) struct Blackouts {
    /// The next one last.
    ahead: Vec<Range<Duration>>,
    down: bool,
}

impl Blackouts {
    pub(crate) fn new(mut ranges: Vec<Range<Duration>>) -> Blackouts {
        ranges.retain(|range| !range.is_empty());
        ranges.sort_by_key(|range| range.start);
        ranges.dedup_by(|next, kept| {
            let touches = next.start <= kept.end;
            if touches {
                kept.end = kept.end.max(next.end);
            }
            touches
        });
        ranges.reverse();
        Blackouts { ahead: ranges, down: false }
    }

    /// When the next blackout begins or the present one ends.
    pub(crate) fn next_change(&self) -> Option<Duration> {
        self.ahead.last().map(|range| if self.down { range.end } else { range.start })
    }

    /// Goes on behind the next change.
    pub(crate) fn change(&mut self) {
        if self.down {
            self.ahead.pop();
        }
        self.down = !self.down && !self.ahead.is_empty();
    }

    pub(crate) fn down(&self) -> bool {
        self.down
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn overlapping_ranges_are_one_blackout() {
        let mut blackouts = Blackouts::new(vec![s(5)..s(6), s(1)..s(3), s(2)..s(4), s(9)..s(9)]);
        let mut changes = Vec::new();
        while let Some(at) = blackouts.next_change() {
            blackouts.change();
            changes.push((at, blackouts.down()));
        }
        assert_eq!(changes, [(s(1), true), (s(4), false), (s(5), true), (s(6), false)]);
    }
}
