//! `flight-radio`: one flow over cellular links whose rate varies, generated or recorded, with and without loss.

use std::sync::Arc;
use std::time::Duration;

use link::{Bitrate, Capacity, CellularConfig, LinkConfig, Outages, Queue, Trace};

use super::case::{self, AGAINST_RENO, CC, CONTROLS, Flows, GUESTS, experiment_of, flow, overhead};
use super::hsdpa::{SCENARIOS, Scenario};
use crate::error::Result;
use crate::experiment::{Case, Experiment, Ratio, RunOptions, SideBySide, Size};
use crate::flows::FlowTest;
use crate::network::{PathSpec, Topology, percent_lost};
use crate::traces::{Recording, recordings};

pub(crate) const ABOUT: &str =
    "one TCP flow over cellular traces, without loss and with 1 %, and over the HSDPA channels of paper 001";

const DELAY: Duration = Duration::from_millis(30);
const QUEUE: Queue = Queue::Packets(2000);
const LOSSES: [f64; 2] = [0.0, 1.0];

/// Cases of a quick run at the same time, whose links carry up to some 20 Mbit/s each. Delay-based controls in guests suffer from it
/// (docs/lab.md); otherwise those of one link are, unless some are left out.
const SIDE_BY_SIDE_QUICK: usize = 16;

const RATIOS: [Ratio; 4] = [
    Ratio::new("goodput_of_lossless", "goodput_mbps", &[("loss_percent", "0.0")]),
    Ratio::new("p95_of_bbr", "queue_p95_ms", &[("cc", "bbr")]),
    AGAINST_RENO[0],
    AGAINST_RENO[1],
];

const ABOUT_THIS: [&str; 4] = [
    "hsdpa-*: the paper's channels (standstill, pedestrian 3 km/h, vehicle 30 km/h; geometry in dB), RTT 180 ms, \
     advertised window 96 KiB, initial window 3; a fading channel whose throughput per ten frames has the published mean \
     and deviation; 2 % of the frames are repeated by the link, 12 ms later, and arrive in order",
    "the others: RTT 60 ms, drop-tail queue of 2000 packets, windows as the kernel tunes them; loss before the queue; every run begins \
     at the trace's begin",
    "utilisation: frames delivered, of what the trace offers from the flow's start to the end (60 s; --quick: 10 s)",
    "generated traces (seeded): 3g 1.5 Mbit/s, driving 5 Mbit/s, lte 10 Mbit/s on average, with fades and outages; with \
     --traces every recording NAME.down (mahimahi) or NAME.txt (lines of seconds and Mbit/s) of the folder, acknowledgements \
     over NAME.up or, if there is none, over a link that limits nothing; NAME.down: over such a link though there is one",
];

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment> {
    let size = options.size;
    let mut cells = match &options.traces {
        Some(folder) => {
            let cells = recordings(folder)?.iter().map(recorded).collect::<Result<Vec<_>>>()?;
            cells.into_iter().flatten().collect()
        }
        None => generated(options.seed),
    };
    if size == Size::Quick {
        cells.iter_mut().for_each(|cell| cell.losses = &LOSSES[..1]);
    }
    cells.extend(hsdpa(options));
    let time = Duration::from_secs(size.of(10, 60, 60));
    let of =
        |cell: &Cell| -> Vec<Case> { cell.losses.iter().flat_map(|&loss| cell.cases(loss, time)).collect() };
    let cases: Vec<Case> = cells.iter().flat_map(of).collect();
    let side_by_side = SideBySide::Cases(size.of(SIDE_BY_SIDE_QUICK, CONTROLS, CONTROLS));
    let own = experiment_of(cases, size.of(1, 3, 10), &RATIOS, &ABOUT_THIS);
    Ok(Experiment { side_by_side, draw: Some(experiment), ..own })
}

/// A cellular link, and what is measured on it.
struct Cell {
    /// The data go up.
    link: PathSpec,
    losses: &'static [f64],
    as_in_paper: bool,
}

impl Cell {
    /// A link whose rate is all that varies, with and without loss.
    fn of_rate(name: &str, there_and_back: [Capacity; 2]) -> Self {
        let link = PathSpec::of(name, there_and_back, DELAY, QUEUE);
        Self { link, losses: &LOSSES, as_in_paper: false }
    }

    /// A channel of the paper, under the paper's conditions.
    fn hsdpa(scenario: &Scenario, seed: u64) -> Self {
        let down = LinkConfig { delay: case::DELAY, queue: case::DEEP, ..LinkConfig::default() };
        let link = PathSpec { name: scenario.name(), up: scenario.link(seed, down.clone()), down };
        Self { link, losses: &LOSSES[..1], as_in_paper: true }
    }

    fn cases(&self, loss: f64, time: Duration) -> impl Iterator<Item = Case> {
        let mut link = self.link.clone();
        if loss > 0.0 {
            link.up.loss = percent_lost(loss);
        }
        CC.split(['=', ',']).skip(1).map(move |name| {
            let flow = if self.as_in_paper { case::windowed(name, None) } else { flow(name) };
            let initial_window = self.as_in_paper.then_some(case::INITIAL_WINDOW);
            let test = FlowTest { initial_window, ..FlowTest::lasting(vec![flow], Duration::ZERO, time) };
            let key =
                vec![("cc", name.into()), ("trace", link.name.clone().into()), ("loss_percent", loss.into())];
            let estimate = time + overhead(SIDE_BY_SIDE_QUICK, SIDE_BY_SIDE_QUICK * GUESTS / CONTROLS);
            let topology = Topology::Single(Box::new(link.clone()));
            Case::new(key, Flows { topology, test }, estimate)
        })
    }
}

/// The paper's channels; for a quick run one of each kind.
fn hsdpa(options: &RunOptions) -> impl Iterator<Item = Cell> {
    let (quick, seed) = (options.size == Size::Quick, options.seed);
    let wanted = SCENARIOS.iter().filter(move |scenario| !quick || scenario.geometry == 5);
    wanted.map(move |scenario| Cell::hsdpa(scenario, seed))
}

/// Three kinds of links; the same seed gives the same.
fn generated(seed: u64) -> Vec<Cell> {
    let kind = |name: &str, mbps, variation, outage_every, outage_ms| {
        let outages =
            Outages { every: Duration::from_secs(outage_every), length: Duration::from_millis(outage_ms) };
        let (mean, outages) = (Bitrate::from_mbps(mbps), Some(outages));
        (name.to_owned(), CellularConfig { mean, variation, outages, ..CellularConfig::default() })
    };
    let kinds =
        [kind("3g", 1.5, 0.4, 30, 400), kind("driving", 5.0, 0.8, 10, 500), kind("lte", 10.0, 0.5, 20, 200)];
    let trace = |seed, config: &_| Capacity::Trace(Arc::new(Trace::cellular(seed, config)));
    let cell = |(number, (name, config)): (u64, (String, CellularConfig))| {
        let seed = seed.wrapping_mul(1000).wrapping_add(2 * number);
        Cell::of_rate(&name, [trace(seed, &config), trace(seed.wrapping_add(1), &config)])
    };
    (0..).zip(kinds).map(cell).collect()
}

/// A recording. Where the way back was recorded too, an outage of it stops a sender whose link is there: what the link itself makes
/// of a congestion control is another figure, under the name of its file.
fn recorded(recording: &Recording) -> Result<Vec<Cell>> {
    let [up, down] = recording.load()?;
    let mut cells = vec![Cell::of_rate(&recording.name, [down.clone(), up])];
    if recording.back.is_some() {
        cells.push(Cell::of_rate(&recording.file_name(), [down, Capacity::Unlimited]));
    }
    Ok(cells)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn recordings_replace_the_generated_traces() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("x.down"), "1\n2\n").unwrap();
        std::fs::write(folder.path().join("y.down"), "1\n2\n").unwrap();
        std::fs::write(folder.path().join("z.txt"), "0 1.5\n1 0.5\n").unwrap();
        std::fs::write(folder.path().join("y.up"), "3\n").unwrap();
        let options = RunOptions { traces: Some(folder.path().into()), ..RunOptions::default() };
        let experiment = experiment(&options).unwrap();
        let own = |case: &&Case| !case.key[1].1.as_str().unwrap().starts_with("hsdpa");
        let names: BTreeSet<_> =
            experiment.cases.iter().filter(own).map(|case| case.key[1].1.as_str()).collect();
        assert_eq!(names, BTreeSet::from(["x", "y", "y.down", "z"].map(Some)));
        assert_eq!(experiment.cases.iter().filter(own).count(), 4 * LOSSES.len() * CONTROLS);
    }

    #[test]
    fn each_repeat_draws_its_own_channels() {
        let options = RunOptions::default();
        let experiment = experiment(&options).unwrap();
        let fading =
            experiment.cases.iter().position(|case| case.key[1].1.as_str() == Some("hsdpa-pa3-5db")).unwrap();
        let drawn = |seed| format!("{:?}", experiment.drawn(&[fading], &options, seed).unwrap()[0].workload);
        assert_eq!(drawn(options.seed), format!("{:?}", experiment.cases[fading].workload));
        assert_ne!(drawn(options.seed), drawn(options.seed + 1000));
    }
}
