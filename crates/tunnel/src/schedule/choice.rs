//! Which paths a packet may take, what [`xmit`] is told of each, and which one it takes.

use std::time::Duration;

use super::xmit;
use crate::config::{MAX_PREFER, Scheduler};
use crate::flow::queue::MIN_TARGET;
use crate::path::Path;

/// The tier of what may be tried when there is neither a path in use nor a backup.
pub const LAST_RESORT: u8 = 2;

/// Paths in use, backups, and what may be tried when there is neither.
pub fn tier_of(path: &Path) -> Option<u8> {
    match (path.is_up(), path.is_kept(), path.is_perhaps_up()) {
        (true, false, _) => Some(0),
        (true, true, _) => Some(1),
        (false, _, true) => Some(LAST_RESORT),
        _ => None,
    }
}

/// The tier of the paths that are used now.
pub fn best_tier(paths: &[Path]) -> u8 {
    paths.iter().filter_map(tier_of).min().unwrap_or(u8::MAX)
}

/// What a packet asks of the path that is to take it.
pub struct Want {
    /// Its bytes.
    pub size: usize,
    /// Bytes left to send behind it.
    pub rest: f64,
    /// Bytes per second of its flow.
    pub rate: f64,
    /// Its flow sends little.
    pub sparse: bool,
    /// A second path takes a copy of it if the first one loses, or may be late.
    pub copied: bool,
    /// The id of the path that lost it, if it is sent again: that one may be full.
    pub lost_by: Option<u16>,
    /// The id of a path that it is on already.
    pub avoid: Option<u16>,
    /// Bytes that wait with it.
    pub backlog: usize,
}

/// The path for a packet, of those that carry it if any does, and one to be tried with a copy; `None` if it is better to wait.
pub fn choose(
    paths: &[Path],
    scheduler: Scheduler,
    now: Duration,
    want: &Want,
) -> Option<(usize, Option<usize>)> {
    let tier = best_tier(paths);
    // Of paths that are all silent, the one that the peer was last heard on.
    let heard = |p: &Path| if tier == LAST_RESORT { p.received.last_arrival() } else { None };
    let last = paths.iter().filter(|p| tier_of(p) == Some(tier)).map(heard).max().flatten();
    let usable = |p: &&Path| tier_of(p) == Some(tier) && heard(p) == last && Some(p.id) != want.avoid;
    let level = level(&mut paths.iter().filter(usable), want.backlog);
    let usable = |p: &&Path| usable(p) && p.cost.prefer <= level;
    let carries = |p: &Path| p.pieces(want.size).is_some();
    let any_carries = paths.iter().filter(usable).any(carries);
    let paths = paths.iter().enumerate().filter(|(_, p)| usable(p) && (carries(p) || !any_carries));
    let views = paths.map(|(index, path)| view(scheduler, now, index, path, want));
    match scheduler {
        Scheduler::Paper | Scheduler::PaperAbsolute => xmit::by_weight(views).map(|at| (at, None)),
        Scheduler::Auto => xmit::by_arrival(&mut views.collect::<Vec<_>>(), want.rest),
    }
}

/// The greatest `prefer` of the paths to be used: those with lower ones alone, unless what waits here would wait for them for longer
/// than half of what the queue before them lets a flow wait for at least: so it is noticed before the flow is told to send less.
fn level(paths: &mut dyn Iterator<Item = &Path>, backlog: usize) -> u8 {
    let mut rates = [None; MAX_PREFER as usize + 1];
    for path in paths {
        *rates[usize::from(path.cost.prefer.min(MAX_PREFER))].get_or_insert(0.0) += path.sent.rate.perhaps();
    }
    let (mut sum, mut last) = (0.0, 0);
    for (prefer, rate) in (0..).zip(rates) {
        let Some(rate) = rate else { continue };
        (sum, last) = (sum + rate, prefer);
        if backlog as f64 <= sum * MIN_TARGET.as_secs_f64() / 2.0 {
            break;
        }
    }
    last
}

/// What a path has been seen to carry, bytes per second. No copy goes over a metered one: data itself has to show what it carries.
pub fn seen(path: &Path) -> f64 {
    let rate = &path.sent.rate;
    match (rate.is_starting(), path.cost.metered) {
        (false, _) => rate.perhaps(),
        (true, true) => f64::INFINITY,
        (true, false) => rate.bytes_per_second().unwrap_or(0.0),
    }
}

fn view(scheduler: Scheduler, now: Duration, index: usize, path: &Path, want: &Want) -> xmit::View {
    let rate = &path.sent.rate;
    // What sends little goes at once, though the window is full.
    let hurries = want.sparse && want.lost_by != Some(path.id);
    let (room, wait) = if hurries && rate.may_hurry(now, path.sent.in_flight(), path.sent.window(now)) {
        (true, Duration::ZERO)
    } else {
        let excess = (path.sent.in_flight() + want.size).saturating_sub(path.sent.window(now));
        let wait = rate.next_send().saturating_sub(now).max(rate.transmit_time(excess));
        (has_room(scheduler, path, now, false), wait)
    };
    let arrival = path.expected_arrival(want.rate, want.sparse, want.copied);
    xmit::View {
        index,
        room,
        wait,
        arrival,
        rate: rate.perhaps(),
        seen: seen(path),
        virtual_time: path.virtual_time,
    }
}

/// Why path `at` is taken: what speaks against each of the others.
pub fn explain(paths: &[Path], scheduler: Scheduler, now: Duration, at: usize, sparse: bool) -> String {
    let here = paths[at].queued_arrival();
    let against = |path: &Path| {
        let full = !has_room(scheduler, path, now, false);
        let later = here.zip(path.queued_arrival()).map(|(here, there)| (there - here) as f64 / 1e3);
        let why = match later {
            _ if !path.is_up() => "not up".to_owned(),
            _ if path.is_kept() && !paths[at].is_kept() => "backup".to_owned(),
            _ if path.cost.prefer > paths[at].cost.prefer => "kept for when others are full".to_owned(),
            None => "not measured".to_owned(),
            Some(later) => format!("{later:+.1} ms{}", if full { ", full" } else { "" }),
        };
        format!("{} {why}", path.name)
    };
    let others = paths.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, path)| against(path));
    let sparse = sparse.then(|| "its flow sends little".to_owned());
    sparse.into_iter().chain(others).collect::<Vec<_>>().join("; ")
}

/// The paper's scheduler knows no windows. A burst that has begun may go on though the pacer is not due again.
pub fn has_room(scheduler: Scheduler, path: &Path, now: Duration, in_burst: bool) -> bool {
    let rate = &path.sent.rate;
    scheduler != Scheduler::Auto
        || (path.sent.in_flight() < path.sent.window(now) && (in_burst || rate.next_send() <= now))
}
