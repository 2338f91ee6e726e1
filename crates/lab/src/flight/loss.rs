//! `flight-loss`: one flow while frames are lost that no queue has dropped (paper 001, figure 13).

use std::time::Duration;

use super::case::{
    AGAINST_RENO, CC, CONTROLS, DEEP, DELAY, GUESTS, INITIAL_WINDOW, case, fixed, notes, overhead, topology,
    windowed,
};
use crate::axes::{FULL, Grid, QUICK, cases, cells};
use crate::error::Error;
use crate::experiment::{Experiment, Ratio, RunOptions, SideBySide};
use crate::flows::FlowTest;
use crate::network::percent_lost;

pub(crate) const ABOUT: &str =
    "one TCP flow over 1 Mbit/s, RTT 180 ms, with 0 to 1 % random loss (paper 001) and on to 5 %";

const GRIDS: [Grid; 2] = [
    Grid(QUICK, &["rate_kbps=1000 loss_percent=0.0,0.5,1.0,3.0", CC]),
    Grid(FULL, &["rate_kbps=1000 loss_percent=0.0,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1.0,2.0,3.0,5.0", CC]),
];

const OF_LOSSLESS: Ratio = Ratio::new("goodput_of_lossless", "goodput_mbps", &[("loss_percent", "0.0")]);

const ABOUT_THIS: [&str; 2] = [
    "1 Mbit/s, RTT 180 ms, advertised window 96 KiB, initial window 3, a queue that is never full; frames from client \
     to server are lost independently, before the queue; with the same seed the same ones of them, counted from the \
     first",
    "goodput is that of the whole time, 30 s (--quick), 180 s or 300 s (--paper), from the start of the flow on",
];

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment, Error> {
    let time = Duration::from_secs(options.size.of(30, 180, 300));
    // All cases at the same time.
    let count = cells(&GRIDS, options.size).len();
    let cases = cases(&GRIDS, options.size, |cell| {
        let capacity = fixed(cell)?;
        let topology =
            topology(capacity.clone(), capacity, DELAY, DEEP, percent_lost(cell.get("loss_percent")?));
        let flows = vec![windowed(cell.text("cc"), None)];
        let initial_window = Some(INITIAL_WINDOW);
        let test = FlowTest { initial_window, ..FlowTest::lasting(flows, Duration::ZERO, time) };
        let key = cell.key(&["cc", "rate_kbps", "loss_percent"]);
        Ok(case(key, topology, test, time + overhead(count, count * GUESTS / CONTROLS)))
    })?;
    let [goodput_of_reno, _] = AGAINST_RENO;
    Ok(Experiment {
        side_by_side: SideBySide::Cases(count),
        cases,
        repeats: options.size.of(1, 3, 10),
        ratios: vec![OF_LOSSLESS, goodput_of_reno],
        notes: notes(&ABOUT_THIS),
        ..Experiment::default()
    })
}
