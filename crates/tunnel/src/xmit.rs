//! Xmit: chooses the path of the next packet.
//!
//! `paper`: by weight alone. `auto`: by predicted arrival, as follows.
//!
//! 1. A path has room while less is in flight on it than its window ([`rate`](crate::rate)) allows, and its pacer is due.
//! 2. Of the paths with room, the one on which the packet would arrive first; of those that differ by less than a
//!    millisecond, the one that is furthest behind its weight.
//! 3. If the packets that wait would arrive sooner by waiting for a faster path that is full just now, they wait; but
//!    not when so much waits that every path is needed.
//!
//! One-way delays carry the unknown offset between the clocks; it is the same for all paths of a direction, and only
//! differences are used.

use std::time::Duration;

/// Arrivals that differ by less are the same, µs.
const SAME: i64 = 1_000;

/// What the choice needs to know of a path.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Its place in the peer's list.
    pub index: usize,
    /// Whether in-flight bytes and the pacer let it send now.
    pub room: bool,
    /// How long until it has room again, roughly, plus how long it takes for all that waits.
    pub wait: Duration,
    /// One-way delay with an offset common to all paths, µs; `None` before it was measured.
    pub delay: Option<i64>,
    /// Bytes it was given over its weight.
    pub virtual_time: f64,
}

/// By weight alone: the path furthest behind its share.
pub fn by_weight(paths: impl Iterator<Item = View>) -> Option<usize> {
    paths.min_by(|a, b| a.virtual_time.total_cmp(&b.virtual_time)).map(|v| v.index)
}

/// By predicted arrival; `None` if it is better to wait. `saturated`: more waits than the paths carry.
pub fn by_arrival(paths: impl Iterator<Item = View> + Clone, saturated: bool) -> Option<usize> {
    // A path that was never measured is tried like the slowest that was.
    let unknown = paths.clone().filter_map(|v| v.delay).max().unwrap_or(0);
    let delay = |v: &View| v.delay.unwrap_or(unknown);
    let first = paths.clone().filter(|v| v.room).map(|v| delay(&v)).min()?;
    let waiting = |v: &View| delay(v).saturating_add(v.wait.as_micros() as i64);
    if !saturated && paths.clone().any(|v| !v.room && waiting(&v) < first) {
        return None;
    }
    by_weight(paths.filter(|v| v.room && delay(v) <= first + SAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(index: usize, room: bool, wait_ms: u64, delay_ms: i64, virtual_time: f64) -> View {
        let wait = Duration::from_millis(wait_ms);
        View { index, room, wait, delay: Some(delay_ms * 1000), virtual_time }
    }

    #[test]
    fn the_path_furthest_behind_its_weight() {
        assert_eq!(by_weight([view(0, true, 0, 0, 2.0), view(1, true, 0, 9, 1.0)].into_iter()), Some(1));
        assert_eq!(by_weight(std::iter::empty()), None);
    }

    #[test]
    fn the_first_arrival_wins_and_weight_breaks_ties() {
        let paths = [view(0, true, 0, 50, 0.0), view(1, true, 0, 10, 9.0), view(2, true, 0, 10, 5.0)];
        assert_eq!(by_arrival(paths.into_iter(), false), Some(2));
    }

    #[test]
    fn a_full_fast_path_is_waited_for_unless_every_path_is_needed() {
        let paths = [view(0, false, 20, 10, 0.0), view(1, true, 0, 150, 0.0)];
        assert_eq!(by_arrival(paths.into_iter(), false), None);
        assert_eq!(by_arrival(paths.into_iter(), true), Some(1));
        let paths = [view(0, false, 200, 10, 0.0), view(1, true, 0, 150, 0.0)];
        assert_eq!(by_arrival(paths.into_iter(), false), Some(1));
    }

    #[test]
    fn an_offset_common_to_all_changes_nothing() {
        for offset in [-3_600_000, 0, 3_600_000] {
            let paths = [view(0, false, 20, 10 + offset, 0.0), view(1, true, 0, 25 + offset, 0.0)];
            assert_eq!(by_arrival(paths.into_iter(), false), Some(1));
        }
    }

    #[test]
    fn an_unmeasured_path_is_like_the_slowest() {
        let unknown = View { delay: None, ..view(0, true, 0, 0, 0.0) };
        assert_eq!(
            by_arrival([unknown, view(1, true, 0, 10, 0.0), view(2, true, 0, 40, 0.0)].into_iter(), true),
            Some(1)
        );
        assert_eq!(by_arrival([unknown].into_iter(), false), Some(0));
    }
}
