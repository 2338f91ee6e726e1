//! `coding-gain`: what coding gains by window, flows and directions, over 2 to 4 hops.

use super::measure::{RATIOS, Timing, experiment_of};
use crate::axes::{ALL, FULL, Grid, QUICK};
use crate::error::Error;
use crate::experiment::{Experiment, RunOptions};

pub(crate) const ABOUT: &str =
    "TCP over 2 to 4 hops of 802.11g, by window, flows and directions: goodput and packets sent, by mode";

const ABOUT_THIS: [&str; 2] = [
    "each case for a fixed time, slow start included; window_segments: what receivers advertise at most; directions 2: as \
     many flows from either end",
    "wait 10 ms; flows: for each direction",
];

/// Over one hop nobody relays: what the medium carries, to be compared with its model in virtual time. batman-adv is in guests,
/// which take long to begin.
const GRIDS: [Grid; 6] = [
    Grid(
        ALL,
        &[
            "hops=1 window_segments=64 flows=1 directions=1 overhearing_loss_percent=0 aggregation=off mode=plain",
        ],
    ),
    Grid(
        QUICK,
        &[
            "hops:aggregation=2:off,3:off,2:on window_segments=64 directions=1,2 flows=1 overhearing_loss_percent=0",
            "mode=plain,off,controlled,any",
        ],
    ),
    Grid(
        FULL,
        &[
            "hops=2,3,4 window_segments=4,8,16,32,64,128,256 flows=1 directions=1 overhearing_loss_percent=0 aggregation=off",
            "mode=plain,off,controlled,any",
        ],
    ),
    Grid(
        FULL,
        &[
            "hops=2,3,4 window_segments=64 flows:directions=1:2,4:1,2:2 overhearing_loss_percent=0 aggregation=off",
            "mode=plain,off,controlled,any",
        ],
    ),
    Grid(
        FULL,
        &[
            "hops=2,3 window_segments=64 flows=1 directions=1,2 overhearing_loss_percent=0 aggregation=off mode=batman-off,batman",
        ],
    ),
    Grid(
        FULL,
        &[
            "hops=2,3,4 window_segments=64,256 flows=1 directions=1,2 overhearing_loss_percent=0 aggregation=on",
            "mode=plain,off,controlled,any",
        ],
    ),
];

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment, Error> {
    let experiment = experiment_of(&GRIDS, options.size, Timing::fixed(options.size), &ABOUT_THIS)?;
    Ok(Experiment { ratios: RATIOS.into(), ..experiment })
}
