//! Xmit: chooses the path of the next packet.
//!
//! `paper`: by weight alone. `auto`: *when will it be there?* A packet's expected arrival on a path is the path's delay, what
//! waits on it, its jitter (half of it if the flow sends much), and its loss times what a repair takes. A slower path is used for a
//! packet if the quicker ones, all full, have less to do than its head start: then what is left to send, the *rest*, is through
//! sooner. So
//!
//! ```text
//! use path k  if  rest ≥ Σ rate_i · (arrival_k − arrival_i − wait_i) · (1 + (LITTLE / share_k)²)
//! ```
//!
//! over those of the quicker paths i on which the packet would arrive sooner though it waits for wait_i until they take it. share_k
//! is what path k has been seen to carry of what it and the quicker ones do together. A path that was never full may carry more than
//! was seen. Where it would be used if it carried any share, it is tried with a copy of a packet that another path takes, so that
//! nothing waits for it.
//!
//! A packet that nothing follows has no rest, and takes the path on which it arrives first, of those that are alike the one
//! furthest behind its weight; what sends much uses every path that has room.
//!
//! One-way delays carry the unknown offset between the clocks; it is the same for all paths of a direction, and only
//! differences are used.

use std::time::Duration;

/// Arrivals that differ by less are the same, µs: the weight decides.
const SAME: i64 = 1_000;
/// A path that carries less than this share of what it and the quicker ones do together is hardly worth the delay that it adds.
const LITTLE: f64 = 0.1;

/// What the choice needs to know of a path.
#[derive(Clone, Copy, Debug, Default)]
pub struct View {
    /// Its place in the peer's list.
    pub index: usize,
    /// Whether it takes a packet now.
    pub room: bool,
    /// How long until it has room again, roughly.
    pub wait: Duration,
    /// Expected one-way delay with an offset common to all paths, µs; `None` before it was measured.
    pub arrival: Option<i64>,
    /// What it may carry, bytes per second.
    pub rate: f64,
    /// What it has been seen to carry: less than `rate` until it was full once.
    pub seen: f64,
    /// Bytes it was given over its weight.
    pub virtual_time: f64,
}

impl View {
    /// What was never full may carry any share.
    fn at_best(self) -> Self {
        View { seen: if self.seen < self.rate { f64::INFINITY } else { self.seen }, ..self }
    }
}

/// By weight alone: the path furthest behind its share.
pub fn by_weight(paths: impl Iterator<Item = View>) -> Option<usize> {
    paths.min_by(|a, b| a.virtual_time.total_cmp(&b.virtual_time)).map(|v| v.index)
}

/// By expected arrival, of a packet of a flow with so many bytes left to send; `None` if it is better to wait. And one that is to
/// be tried with a copy of it.
pub fn by_arrival(paths: &mut [View], rest: f64) -> Option<(usize, Option<usize>)> {
    sort(paths);
    let pays = |k: &usize| rest >= need(&paths[..*k], &paths[*k]).0;
    let may_pay = |k: &usize| rest >= need(&paths[..*k], &paths[*k].at_best()).0;
    let with_room = || (0..paths.len()).filter(|k| paths[*k].room);
    let first = with_room().find(pays)?;
    let same = |v: &&View| v.room && v.arrival <= paths[first].arrival.map(|arrival| arrival + SAME);
    let taken = by_weight(paths[first..].iter().filter(same).copied())?;
    let tried = with_room().find(|k| paths[*k].index != taken && !pays(k) && may_pay(k));
    Some((taken, tried.map(|k| paths[k].index)))
}

/// For each of the paths, while the quicker ones are full but take packets at their rate: bytes that must be left for it to be
/// used or tried, and how many of them wait until then.
pub fn steps(paths: &mut [View]) -> Vec<(f64, f64)> {
    sort(paths);
    (0..paths.len()).map(|k| need(&paths[..k], &paths[k].at_best())).collect()
}

/// The quickest first. A path that was never measured is taken to be like the slowest that was.
fn sort(paths: &mut [View]) {
    let unknown = paths.iter().filter_map(|v| v.arrival).max().unwrap_or(0);
    paths.iter_mut().for_each(|v| v.arrival = v.arrival.or(Some(unknown)));
    paths.sort_by_key(|v| v.arrival);
}

/// Bytes that must be left for a path to be used while `quicker` ones are full, and what those send in its stead until then.
fn need(quicker: &[View], path: &View) -> (f64, f64) {
    let arrival = |v: &View| v.arrival.unwrap_or(0);
    let (mut wait, mut rates) = (0.0, 0.0);
    for i in quicker {
        let head_start = arrival(path) - arrival(i) - micros(i.wait);
        if head_start > 0 {
            wait += i.rate * head_start as f64 / 1e6;
        }
        rates += i.rate;
    }
    let others_to_it = rates / path.seen.max(1.0);
    (wait * (1.0 + (LITTLE * (1.0 + others_to_it)).powi(2)), wait)
}

fn micros(t: Duration) -> i64 {
    i64::try_from(t.as_micros()).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 Mbit/s.
    const RATE: f64 = 1.25e6;

    fn view(index: usize, room: bool, wait_ms: u64, delay_ms: i64) -> View {
        let wait = Duration::from_millis(wait_ms);
        View { index, room, wait, arrival: Some(delay_ms * 1000), rate: RATE, seen: RATE, virtual_time: 0.0 }
    }

    fn taken(paths: &mut [View], rest: f64) -> Option<usize> {
        by_arrival(paths, rest).map(|(taken, _)| taken)
    }

    #[test]
    fn the_path_furthest_behind_its_weight() {
        let behind = View { virtual_time: -1.0, ..view(1, true, 0, 9) };
        assert_eq!(by_weight([view(0, true, 0, 0), behind].into_iter()), Some(1));
        assert_eq!(by_weight(std::iter::empty()), None);
    }

    #[test]
    fn what_nothing_follows_goes_where_it_arrives_first() {
        assert_eq!(taken(&mut [view(0, true, 0, 50), view(1, true, 0, 10)], 0.0), Some(1));
        assert_eq!(taken(&mut [view(0, false, 20, 10), view(1, true, 0, 50)], 0.0), None);
        assert_eq!(taken(&mut [view(0, false, 60, 10), view(1, true, 0, 50)], 0.0), Some(1));
    }

    #[test]
    fn a_slower_path_is_used_for_more_than_the_quicker_ones_carry_in_their_head_start() {
        let mut paths = [view(0, false, 20, 10), view(1, true, 0, 150)];
        // 120 ms at 10 Mbit/s are 150 kB, and 4 % for a path that carries half.
        assert_eq!(taken(&mut paths, 155e3), None);
        assert_eq!(taken(&mut paths, 157e3), Some(1));
        let mut paths = [view(0, false, 0, 10), view(1, false, 0, 50), view(2, true, 0, 150)];
        // 140 ms and 100 ms: 300 kB, and 9 % for a path that carries a third.
        assert_eq!(taken(&mut paths, 326e3), None);
        assert_eq!(taken(&mut paths, 328e3), Some(2));
        // One that carries a hundredth is no use.
        paths.iter_mut().filter(|v| v.index == 2).for_each(|v| (v.rate, v.seen) = (RATE / 50.0, RATE / 50.0));
        assert_eq!(taken(&mut paths, 3e6), None);
    }

    #[test]
    fn a_path_that_was_never_full_is_tried_with_copies_until_it_carries_a_share() {
        let quick = view(0, true, 0, 10);
        let slow = |seen| View { seen, ..view(1, true, 0, 150) };
        assert_eq!(by_arrival(&mut [quick, slow(RATE / 50.0)], 200e3), Some((0, Some(1))));
        assert_eq!(by_arrival(&mut [quick, slow(RATE / 50.0)], 100e3), Some((0, None)), "too little is left");
        assert_eq!(by_arrival(&mut [quick, slow(RATE / 2.0)], 200e3), Some((0, None)), "it takes data");
        let full = View { room: false, ..quick };
        assert_eq!(by_arrival(&mut [full, slow(RATE / 50.0)], 200e3), None);
        assert_eq!(by_arrival(&mut [full, slow(RATE / 2.0)], 200e3), Some((1, None)));
        let thin = View { rate: RATE / 50.0, ..slow(RATE / 50.0) };
        assert_eq!(by_arrival(&mut [quick, thin], 200e3), Some((0, None)), "it was full");
    }

    #[test]
    fn an_offset_common_to_all_changes_nothing() {
        for offset in [-3_600_000, 0, 3_600_000] {
            let mut paths = [view(0, false, 20, 10 + offset), view(1, true, 0, 25 + offset)];
            assert_eq!(taken(&mut paths, 0.0), Some(1));
        }
    }

    #[test]
    fn an_unmeasured_path_is_like_the_slowest() {
        let unknown = View { arrival: None, ..view(0, true, 0, 0) };
        assert_eq!(taken(&mut [unknown, view(1, true, 0, 10), view(2, true, 0, 40)], 0.0), Some(1));
        assert_eq!(taken(&mut [unknown], 0.0), Some(0));
        // Whatever the offset between the clocks.
        let steps = |arrival: Option<i64>, offset: i64| {
            let mut paths =
                [View { arrival, ..unknown }, view(1, true, 0, 10 + offset), view(2, true, 0, 40 + offset)];
            let mut steps = super::steps(&mut paths);
            steps.sort_by(|a, b| a.0.total_cmp(&b.0));
            steps
        };
        assert_eq!(steps(None, 3_600_000), steps(Some(40_000), 0));
    }
}
