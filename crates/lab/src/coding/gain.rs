//! `coding-gain`: what coding gains by window, flows and directions, over 2 to 4 hops.

use std::time::Duration;

use link::Probability;

use super::measure::{case, notes, ratios};
use super::mode::Mode;
use super::test::Test;
use super::transfer::{End, Plan};
use crate::error::Error;
use crate::experiment::{Case, Experiment, Reference, RunOptions, SideBySide, Size};

pub(crate) const ABOUT: &str =
    "TCP over 2 to 4 hops of 802.11g, by window, flows and directions: goodput and packets sent, by mode";

const MODES: [Mode; 4] = [Mode::Plain, Mode::Off, Mode::Controlled, Mode::Any];

/// Where it is not what varies.
pub(super) const WAIT: Duration = Duration::from_millis(10);

/// In guests, which take long to begin: not with `--quick`, and only for [`RIVALLED`].
const RIVALS: [Mode; 2] = [Mode::Batman { codes: false }, Mode::Batman { codes: true }];

const ABOUT_THIS: [&str; 2] = [
    "each case for a fixed time, slow start included; window_segments: what receivers advertise at most; directions 2: as \
     many flows from either end",
    "wait 10 ms; flows: for each direction",
];

/// What varies: hops, window in segments, flows each way, directions.
type Cell = (usize, u32, usize, usize);

/// Nobody relays: what the medium carries, to be compared with its model in virtual time.
const ONE_HOP: Cell = (1, 64, 1, 1);

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment, Error> {
    let (time, repeats) = match options.size {
        Size::Quick => (Duration::from_millis(1500), 1),
        Size::Normal => (Duration::from_secs(5), 5),
        Size::Paper => (Duration::from_secs(10), 9),
    };
    let cases = cells(options.size).into_iter().flat_map(|cell| {
        let rivals =
            RIVALS.into_iter().filter(move |_| options.size != Size::Quick && RIVALLED.contains(&cell));
        MODES.into_iter().chain(rivals).map(move |mode| case_of(cell, mode, time))
    });
    let cases = [case_of(ONE_HOP, Mode::Plain, time)].into_iter().chain(cases);
    Ok(Experiment {
        name: "coding-gain",
        cases: cases.collect(),
        side_by_side: SideBySide::Cases(1),
        repeats,
        ratios: all_ratios(),
        notes: notes(&ABOUT_THIS),
        ..Experiment::default()
    })
}

pub(super) fn all_ratios() -> Vec<crate::experiment::Ratio> {
    let plain = ratios("mode", ["goodput_of_plain", "packets_of_plain"], Reference::Name("plain"));
    let off = ratios("mode", ["goodput_of_off", "packets_of_off"], Reference::Name("off"));
    [plain, off].concat()
}

fn cells(size: Size) -> Vec<Cell> {
    if size == Size::Quick {
        return vec![(2, 4, 1, 1), (2, 64, 1, 1), (2, 64, 1, 2), (3, 4, 1, 1), (3, 64, 1, 1), (3, 64, 1, 2)];
    }
    let mut cells = Vec::new();
    for hops in 2..=4 {
        cells.extend([4, 8, 16, 32, 64, 128, 256].map(|window| (hops, window, 1, 1)));
        cells.extend([(1, 2), (4, 1), (2, 2)].map(|(flows, directions)| (hops, 64, flows, directions)));
    }
    cells
}

/// The cells that are measured with [`RIVALS`] too.
const RIVALLED: [Cell; 4] = [(2, 64, 1, 1), (2, 64, 1, 2), (3, 64, 1, 1), (3, 64, 1, 2)];

fn case_of((hops, window, flows, directions): Cell, mode: Mode, time: Duration) -> Case {
    let plan = Plan { flows, both_ways: directions == 2, window, end: End::Time(time) };
    let key = vec![
        ("mode", mode.name().into()),
        ("hops", hops.into()),
        ("window_segments", window.into()),
        ("flows", flows.into()),
        ("directions", directions.into()),
        ("overhearing_loss_percent", 0.into()),
    ];
    case(key, Test { mode, hops, wait: WAIT, plan, bursts: true, overhearing_loss: Probability::ZERO })
}
