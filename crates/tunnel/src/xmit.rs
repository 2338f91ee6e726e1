//! Xmit: chooses the path of the next packet.
//!
//! `paper`: by weight alone. `auto`: by predicted arrival, as follows.
//!
//! 1. A path has room while less is in flight on it than its window ([`rate`](crate::rate)) allows, and its pacer is due.
//! 2. Of the paths with room, the one on which the packet would arrive first; of those that differ by less than a
//!    millisecond, the one that is furthest behind its weight.
//! 3. A slower path than those that are full just now is used only if it pays: if its delay is no longer than waiting for
//!    a full one, or than the full ones take, all together, for everything that waits. So a flow that the fast paths can
//!    carry never pays for the slow one's delay, and one that they cannot uses it.
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
    /// How long until it has room again, roughly.
    pub wait: Duration,
    /// One-way delay with an offset common to all paths, µs; `None` before it was measured.
    pub delay: Option<i64>,
    /// What it carries, bytes per second.
    pub rate: f64,
    /// Bytes it was given over its weight.
    pub virtual_time: f64,
}

/// By weight alone: the path furthest behind its share.
pub fn by_weight(paths: impl Iterator<Item = View>) -> Option<usize> {
    paths.min_by(|a, b| a.virtual_time.total_cmp(&b.virtual_time)).map(|v| v.index)
}

/// By predicted arrival; `None` if it is better to wait. `backlog`: bytes that wait behind this packet and are not
/// served before it.
pub fn by_arrival(paths: impl Iterator<Item = View> + Clone, backlog: usize) -> Option<usize> {
    // A path that was never measured is tried like the slowest that was.
    let unknown = paths.clone().filter_map(|v| v.delay).max().unwrap_or(0);
    let delay = |v: &View| v.delay.unwrap_or(unknown);
    let first = paths.clone().filter(|v| v.room).map(|v| delay(&v)).min()?;
    let faster = || paths.clone().filter(|v| !v.room && delay(v) < first);
    if let Some(waited) = faster().map(|v| delay(&v) + micros(v.wait)).min() {
        let rate: f64 = faster().map(|v| v.rate).sum();
        let drained =
            faster().map(|v| delay(&v)).max().unwrap_or(0) + (backlog as f64 / rate.max(1.0) * 1e6) as i64;
        if first > waited && (backlog == 0 || first > drained) {
            return None;
        }
    }
    by_weight(paths.filter(|v| v.room && delay(v) <= first + SAME))
}

fn micros(t: Duration) -> i64 {
    i64::try_from(t.as_micros()).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 Mbit/s.
    const RATE: f64 = 1.25e6;

    fn view(index: usize, room: bool, wait_ms: u64, delay_ms: i64, virtual_time: f64) -> View {
        let wait = Duration::from_millis(wait_ms);
        View { index, room, wait, delay: Some(delay_ms * 1000), rate: RATE, virtual_time }
    }

    #[test]
    fn the_path_furthest_behind_its_weight() {
        assert_eq!(by_weight([view(0, true, 0, 0, 2.0), view(1, true, 0, 9, 1.0)].into_iter()), Some(1));
        assert_eq!(by_weight(std::iter::empty()), None);
    }

    #[test]
    fn the_first_arrival_wins_and_weight_breaks_ties() {
        let paths = [view(0, true, 0, 50, 0.0), view(1, true, 0, 10, 9.0), view(2, true, 0, 10, 5.0)];
        assert_eq!(by_arrival(paths.into_iter(), 0), Some(2));
    }

    #[test]
    fn a_full_fast_path_is_waited_for_while_it_carries_what_waits() {
        let paths = [view(0, false, 20, 10, 0.0), view(1, true, 0, 150, 0.0)];
        assert_eq!(by_arrival(paths.into_iter(), 0), None);
        // 140 ms at 10 Mbit/s are 175 kB.
        assert_eq!(by_arrival(paths.into_iter(), 170_000), None);
        assert_eq!(by_arrival(paths.into_iter(), 180_000), Some(1));
        let paths = [view(0, false, 200, 10, 0.0), view(1, true, 0, 150, 0.0)];
        assert_eq!(by_arrival(paths.into_iter(), 0), Some(1));
    }

    #[test]
    fn full_fast_paths_carry_what_waits_together() {
        let paths = [view(0, false, 5, 10, 0.0), view(1, false, 5, 50, 0.0), view(2, true, 0, 150, 0.0)];
        // 100 ms at 20 Mbit/s are 250 kB.
        assert_eq!(by_arrival(paths.into_iter(), 240_000), None);
        assert_eq!(by_arrival(paths.into_iter(), 260_000), Some(2));
    }

    #[test]
    fn an_offset_common_to_all_changes_nothing() {
        for offset in [-3_600_000, 0, 3_600_000] {
            let paths = [view(0, false, 20, 10 + offset, 0.0), view(1, true, 0, 25 + offset, 0.0)];
            assert_eq!(by_arrival(paths.into_iter(), 0), Some(1));
        }
    }

    #[test]
    fn an_unmeasured_path_is_like_the_slowest() {
        let unknown = View { delay: None, ..view(0, true, 0, 0, 0.0) };
        let measured = [unknown, view(1, true, 0, 10, 0.0), view(2, true, 0, 40, 0.0)];
        assert_eq!(by_arrival(measured.into_iter(), 0), Some(1));
        assert_eq!(by_arrival([unknown].into_iter(), 0), Some(0));
    }
}
