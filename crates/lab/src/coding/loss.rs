//! `coding-loss`: what is left of coding where neighbours do not overhear everything.

use super::measure::{RATIOS, Timing, experiment_of};
use crate::axes::{FULL, Grid, QUICK};
use crate::error::Error;
use crate::experiment::{Experiment, RunOptions};

pub(crate) const ABOUT: &str = "TCP over 2 and 3 hops of 802.11g where 0 to 50 % of what could be overheard is not: goodput and packets, by mode";

const ABOUT_THIS: [&str; 2] = [
    "overhearing_loss_percent: of the frames for one station, those that another which could does not overhear; nothing is \
     lost otherwise but by collisions",
    "each case for a fixed time, slow start included; wait 10 ms",
];

const GRIDS: [Grid; 2] = [
    Grid(
        QUICK,
        &[
            "hops=2 window_segments=64 overhearing_loss_percent:aggregation=0:off,10:off,50:off,50:on",
            "flows=1 directions=1 mode=plain,off,controlled,any",
        ],
    ),
    Grid(
        FULL,
        &[
            "hops=2,3 window_segments=4,64 overhearing_loss_percent=0,1,5,10,20,50 flows=1 directions=1 aggregation=off,on",
            "mode=plain,off,controlled,any",
        ],
    ),
];

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment, Error> {
    let experiment = experiment_of(&GRIDS, options.size, Timing::fixed(options.size), &ABOUT_THIS)?;
    Ok(Experiment { ratios: RATIOS.into(), ..experiment })
}
