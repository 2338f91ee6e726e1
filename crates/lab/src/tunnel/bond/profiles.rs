//! The links that are bonded.

use std::path::Path;
use std::time::Duration;

use link::{Jitter, LinkConfig, Queue};

use crate::error::{Error, Result};
use crate::network::{PathSpec, fixed, percent_lost};
use crate::traces::{Recording, recordings};

/// The cases by name: sixteen of the public report, and ours. A link is Mbit/s@ms one way, then, where it has them, ±σ of half-normal
/// jitter that keeps order, in ms, -percent that are lost before the queue, independently, and ↑Mbit/s of the way up where that
/// differs. The last word is what each drop-tail queue holds: so many packets, or what the link carries in so many ms.
const PROFILES: [(&str, &str); 24] = [
    ("baseline", "50@20 50@20 100ms"),
    ("rtt_40", "50@20 50@40 100ms"),
    ("rtt_70", "50@20 50@70 100ms"),
    ("rtt_120", "50@20 50@120 100ms"),
    ("rtt_320", "50@20 50@320 100ms"),
    ("jit_5", "50@20±5 50@20±5 100ms"),
    ("jit_20", "50@20±20 50@20±20 100ms"),
    ("loss_05", "50@20-0.5 50@20-0.5 100ms"),
    ("loss_2", "50@20-2 50@20-2 100ms"),
    ("bw_4to1", "50@20 12@20 100ms"),
    ("bw_10to1", "100@20 10@20 100ms"),
    ("dual_lte", "40@30±5-0.5 25@45±8-0.5 100ms"),
    ("fiber_lte", "300@8 30@40±8-0.5 100ms"),
    ("lte_starlink", "40@35±8 100@50±25-1 100ms"),
    ("lte_geo", "40@35 20@320±20-0.5 100ms"),
    ("congested", "20@50±20-2 15@60±25-2 100ms"),
    ("three", "10@40 14@10-2 5@140 100"),
    ("50+10", "50@2 10@9 100"),
    ("lossy30", "10@20 10@25 10@20-30 100"),
    ("sat+dsl", "2@15 20@300 40,600"),
    ("shallow", "20@20 10@30 10"),
    ("tiny", "0.5@60 0.3@90 0.7@120 30"),
    ("bloat", "5@20 8@30 800"),
    ("thin-up", "12@20↑0.256 100"),
];

/// Pairs of recordings by the beginnings of their names, as mahimahi's are called.
pub(super) const RECORDED: [(&str, [&str; 2]); 2] =
    [("att+verizon", ["ATT-LTE", "Verizon-LTE"]), ("att+tmobile", ["ATT-LTE", "TMobile-UMTS"])];

/// The links of a case, or why there are none: recordings are in the folder `traces`.
pub(super) fn links(case: &str, traces: Option<&Path>) -> Result<Result<Vec<PathSpec>, String>> {
    if let Some((name, profile)) = PROFILES.iter().find(|(name, _)| *name == case) {
        let bad = || Error::BadCell { field: (*name).into(), value: (*profile).into() };
        return paths(profile).ok_or_else(bad).map(Ok);
    }
    let names = RECORDED.iter().find(|(name, _)| *name == case).map_or(["", ""], |(_, names)| *names);
    let found = traces.map(|folder| recorded(folder, names)).transpose()?.flatten();
    let [one, two] = names;
    let why = || format!("it needs a folder (--traces) with the recordings {one}*.down and {two}*.down");
    Ok(found.ok_or_else(why))
}

/// As a network has them, "link1" and so on.
fn paths(profile: &str) -> Option<Vec<PathSpec>> {
    let (links, rooms) = profile.rsplit_once(' ')?;
    let rooms = rooms.split(',').cycle();
    (1..).zip(links.split(' ').zip(rooms)).map(|(number, (link, room))| path(number, link, room)).collect()
}

fn path(number: usize, link: &str, room: &str) -> Option<PathSpec> {
    let read = |text: &str| text.parse::<f64>().ok();
    let (link, up) = link.split_once('↑').map_or((link, None), |(link, up)| (link, Some(up)));
    let (link, loss) = link.split_once('-').unwrap_or((link, "0"));
    let (link, jitter) = link.split_once('±').map_or((link, None), |(link, jitter)| (link, Some(jitter)));
    let (down, delay) = link.split_once('@')?;
    let (loss, delay) = (percent_lost(read(loss)?), Duration::from_millis(delay.parse().ok()?));
    let jitter = match jitter {
        Some(ms) => Jitter::HalfNormal(Duration::from_millis(ms.parse().ok()?)),
        None => Jitter::None,
    };
    let direction = |mbps: &str| {
        let mbps = read(mbps)?;
        let queue = match room.strip_suffix("ms") {
            Some(ms) => Queue::Bytes((mbps * 1e3 / 8.0) as usize * ms.parse::<usize>().ok()?),
            None => Queue::Packets(room.parse().ok()?),
        };
        Some(LinkConfig { jitter, loss, ..fixed(mbps, delay, queue) })
    };
    Some(PathSpec {
        name: format!("link{number}"),
        up: direction(up.unwrap_or(down))?,
        down: direction(down)?,
    })
}

/// One way, of a recorded link.
const RECORDED_DELAY: Duration = Duration::from_millis(20);

/// What a recorded link's drop-tail queue holds, in bytes.
const RECORDED_QUEUE: usize = 500_000;

/// The links of the recordings in `folder` whose names begin so; `None` where one is missing. A recording without a way
/// back has one that limits nothing.
fn recorded(folder: &Path, names: [&str; 2]) -> Result<Option<Vec<PathSpec>>> {
    let recordings = recordings(folder)?;
    let found = |name| recordings.iter().find(|one| one.name.starts_with(name) && !one.has_rates());
    let [Some(first), Some(second)] = names.map(found) else { return Ok(None) };
    let path = |(number, recording): (usize, &Recording)| {
        let (name, queue) = (format!("link{number}"), Queue::Bytes(RECORDED_QUEUE));
        Ok(PathSpec::of(name, recording.load()?, RECORDED_DELAY, queue))
    };
    [(1, first), (2, second)].into_iter().map(path).collect::<Result<_>>().map(Some)
}
