//! `coding-loss`: what is left of coding where neighbours do not overhear everything.

use std::time::Duration;

use link::Probability;

use super::gain::{WAIT, all_ratios};
use super::measure::{case, notes};
use super::mode::Mode;
use super::test::Test;
use super::transfer::{End, Plan};
use crate::error::Error;
use crate::experiment::{Case, Experiment, RunOptions, SideBySide, Size};

pub(crate) const ABOUT: &str = "TCP over 2 and 3 hops of 802.11g where 0 to 50 % of what could be overheard is not: goodput and packets, by mode";

const MODES: [Mode; 4] = [Mode::Plain, Mode::Off, Mode::Controlled, Mode::Any];

const ABOUT_THIS: [&str; 2] = [
    "overhearing_loss_percent: of the frames for one station, those that another which could does not overhear; nothing is \
     lost otherwise but by collisions",
    "each case for a fixed time, slow start included; wait 10 ms",
];

/// What varies: hops, window in segments, percent of overhearing lost.
type Cell = (usize, u32, u32);

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment, Error> {
    let (time, repeats) = match options.size {
        Size::Quick => (Duration::from_millis(1500), 1),
        Size::Normal => (Duration::from_secs(5), 5),
        Size::Paper => (Duration::from_secs(10), 9),
    };
    let cases = cells(options.size).into_iter().flat_map(|cell| MODES.map(|mode| case_of(cell, mode, time)));
    Ok(Experiment {
        name: "coding-loss",
        cases: cases.collect(),
        side_by_side: SideBySide::Cases(1),
        repeats,
        ratios: all_ratios(),
        notes: notes(&ABOUT_THIS),
        ..Experiment::default()
    })
}

fn cells(size: Size) -> Vec<Cell> {
    if size == Size::Quick {
        return vec![(2, 4, 50), (2, 64, 0), (2, 64, 10), (2, 64, 50), (3, 4, 50), (3, 64, 50)];
    }
    let mut cells = Vec::new();
    for hops in [2, 3] {
        for window in [4, 64] {
            cells.extend([0, 1, 5, 10, 20, 50].map(|percent| (hops, window, percent)));
        }
    }
    cells
}

fn case_of((hops, window, percent): Cell, mode: Mode, time: Duration) -> Case {
    let plan = Plan { flows: 1, both_ways: false, window, end: End::Time(time) };
    let key = vec![
        ("mode", mode.name().into()),
        ("hops", hops.into()),
        ("window_segments", window.into()),
        ("flows", 1.into()),
        ("directions", 1.into()),
        ("overhearing_loss_percent", percent.into()),
    ];
    let overhearing_loss = Probability::new(f64::from(percent) / 100.0).unwrap_or(Probability::ZERO);
    case(key, Test { mode, hops, wait: WAIT, plan, bursts: true, overhearing_loss })
}
