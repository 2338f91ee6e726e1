//! The links that are bonded.

use std::path::Path;
use std::time::Duration;

use link::{Jitter, LinkConfig, Queue};

use crate::error::Error;
use crate::network::{PathSpec, fixed, percent_lost};
use crate::traces::{Recording, recordings};

/// One link, both directions alike but for the rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Profile {
    /// Mbit/s.
    down: f64,
    up: f64,
    /// One way, ms.
    delay: u64,
    /// σ of half-normal jitter that keeps order, ms.
    jitter: u64,
    /// Before the queue, independent, percent.
    loss: f64,
    queue: Room,
}

/// What a drop-tail queue holds.
#[derive(Clone, Copy, Debug)]
enum Room {
    Packets(usize),
    /// What the link carries in so many ms.
    Time(u64),
}

/// A link with a queue of 100 packets.
const fn link(mbps: f64, delay: u64) -> Profile {
    Profile { down: mbps, up: mbps, delay, jitter: 0, loss: 0.0, queue: Room::Packets(100) }
}

/// A link with a queue of 100 ms, as those of mqvpn's report.
const fn wide(mbps: f64, delay: u64) -> Profile {
    Profile { queue: Room::Time(100), ..link(mbps, delay) }
}

impl Profile {
    const fn jitter(self, jitter: u64) -> Self {
        Self { jitter, ..self }
    }

    const fn loss(self, loss: f64) -> Self {
        Self { loss, ..self }
    }

    const fn queue(self, packets: usize) -> Self {
        Self { queue: Room::Packets(packets), ..self }
    }

    const fn up(self, up: f64) -> Self {
        Self { up, ..self }
    }
}

/// The cases by name: sixteen of the public report, and ours.
const PROFILES: [(&str, &[Profile]); 24] = [
    ("baseline", &[wide(50.0, 20), wide(50.0, 20)]),
    ("rtt_40", &[wide(50.0, 20), wide(50.0, 40)]),
    ("rtt_70", &[wide(50.0, 20), wide(50.0, 70)]),
    ("rtt_120", &[wide(50.0, 20), wide(50.0, 120)]),
    ("rtt_320", &[wide(50.0, 20), wide(50.0, 320)]),
    ("jit_5", &[wide(50.0, 20).jitter(5), wide(50.0, 20).jitter(5)]),
    ("jit_20", &[wide(50.0, 20).jitter(20), wide(50.0, 20).jitter(20)]),
    ("loss_05", &[wide(50.0, 20).loss(0.5), wide(50.0, 20).loss(0.5)]),
    ("loss_2", &[wide(50.0, 20).loss(2.0), wide(50.0, 20).loss(2.0)]),
    ("bw_4to1", &[wide(50.0, 20), wide(12.0, 20)]),
    ("bw_10to1", &[wide(100.0, 20), wide(10.0, 20)]),
    ("dual_lte", &[wide(40.0, 30).jitter(5).loss(0.5), wide(25.0, 45).jitter(8).loss(0.5)]),
    ("fiber_lte", &[wide(300.0, 8), wide(30.0, 40).jitter(8).loss(0.5)]),
    ("lte_starlink", &[wide(40.0, 35).jitter(8), wide(100.0, 50).jitter(25).loss(1.0)]),
    ("lte_geo", &[wide(40.0, 35), wide(20.0, 320).jitter(20).loss(0.5)]),
    ("congested", &[wide(20.0, 50).jitter(20).loss(2.0), wide(15.0, 60).jitter(25).loss(2.0)]),
    ("three", &[link(10.0, 40), link(14.0, 10).loss(2.0), link(5.0, 140)]),
    ("50+10", &[link(50.0, 2), link(10.0, 9)]),
    ("lossy30", &[link(10.0, 20), link(10.0, 25), link(10.0, 20).loss(30.0)]),
    ("sat+dsl", &[link(2.0, 15).queue(40), link(20.0, 300).queue(600)]),
    ("shallow", &[link(20.0, 20).queue(10), link(10.0, 30).queue(10)]),
    ("tiny", &[link(0.5, 60).queue(30), link(0.3, 90).queue(30), link(0.7, 120).queue(30)]),
    ("bloat", &[link(5.0, 20).queue(800), link(8.0, 30).queue(800)]),
    ("thin-up", &[link(12.0, 20).up(0.256)]),
];

/// Pairs of recordings by the beginnings of their names, as mahimahi's are called.
const RECORDED: [(&str, [&str; 2]); 2] =
    [("att+verizon", ["ATT-LTE", "Verizon-LTE"]), ("att+tmobile", ["ATT-LTE", "TMobile-UMTS"])];

/// Whether a case is of recordings.
pub(super) fn is_recorded(case: &str) -> bool {
    RECORDED.iter().any(|(name, _)| *name == case)
}

/// The links of a case, or why there are none: recordings are in the folder `traces`.
pub(super) fn links(case: &str, traces: Option<&Path>) -> Result<Result<Vec<PathSpec>, String>, Error> {
    if let Some((_, profiles)) = PROFILES.iter().find(|(name, _)| *name == case) {
        return Ok(Ok(paths(profiles)));
    }
    let names = RECORDED.iter().find(|(name, _)| *name == case).map_or(["", ""], |(_, names)| *names);
    let found = traces.map(|folder| recorded(folder, names)).transpose()?.flatten();
    let [one, two] = names;
    let why = || format!("it needs a folder (--traces) with the recordings {one}*.down and {two}*.down");
    Ok(found.ok_or_else(why))
}

/// As a network has them, "link1" and so on.
fn paths(profiles: &[Profile]) -> Vec<PathSpec> {
    (1..).zip(profiles).map(|(number, profile)| profile.path(number)).collect()
}

impl Profile {
    fn path(&self, number: usize) -> PathSpec {
        let direction = |mbps: f64| {
            let queue = match self.queue {
                Room::Packets(packets) => Queue::Packets(packets),
                Room::Time(ms) => Queue::Bytes((mbps * 1e3 / 8.0) as usize * ms as usize),
            };
            let jitter = match self.jitter {
                0 => Jitter::None,
                ms => Jitter::HalfNormal(Duration::from_millis(ms)),
            };
            let loss = percent_lost(self.loss);
            LinkConfig { jitter, loss, ..fixed(mbps, Duration::from_millis(self.delay), queue) }
        };
        PathSpec { name: format!("link{number}"), up: direction(self.up), down: direction(self.down) }
    }
}

/// One way, of a recorded link.
const RECORDED_DELAY: Duration = Duration::from_millis(20);

/// What a recorded link's drop-tail queue holds, in bytes.
const RECORDED_QUEUE: usize = 500_000;

/// The links of the recordings in `folder` whose names begin so; `None` where one is missing. A recording without a way
/// back has one that limits nothing.
fn recorded(folder: &Path, names: [&str; 2]) -> Result<Option<Vec<PathSpec>>, Error> {
    let recordings = recordings(folder)?;
    let found = |name| recordings.iter().find(|one| one.name.starts_with(name) && !one.has_rates());
    let [Some(first), Some(second)] = names.map(found) else { return Ok(None) };
    let path = |(number, recording): (usize, &Recording)| {
        let [up, down] = recording.load()?.map(|capacity| LinkConfig {
            capacity,
            delay: RECORDED_DELAY,
            queue: Queue::Bytes(RECORDED_QUEUE),
            ..LinkConfig::default()
        });
        Ok(PathSpec { name: format!("link{number}"), up, down })
    };
    [(1, first), (2, second)].into_iter().map(path).collect::<Result<_, Error>>().map(Some)
}
