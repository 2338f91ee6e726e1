//! `flight-loss`: one flow while frames are lost that no queue has dropped (paper 001, figure 13).

use std::time::Duration;

use link::{Bitrate, Capacity};

use super::case::{
    AGAINST_RENO, CONTROLS, DEEP, DELAY, GUESTS, INITIAL_WINDOW, case, notes, overhead, percent, topology,
    windowed,
};
use crate::error::Error;
use crate::experiment::{Case, Experiment, Ratio, Reference, RunOptions, SideBySide, Size};
use crate::flows::{BUFFER_MAX, FlowTest};

pub(crate) const ABOUT: &str =
    "one TCP flow over 1 Mbit/s, RTT 180 ms, with 0 to 1 % random loss (paper 001) and on to 5 %";

const RATE_KBPS: u64 = 1000;

const QUICK: [f64; 6] = [0.0, 0.5, 1.0, 2.0, 3.0, 5.0];
const ALL: [f64; 14] = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 2.0, 3.0, 5.0];

const OF_LOSSLESS: Ratio = Ratio {
    name: "goodput_of_lossless",
    metric: "goodput_mbps",
    of: ("loss_percent", Reference::Number(0.0)),
};

const ABOUT_THIS: [&str; 2] = [
    "1 Mbit/s, RTT 180 ms, advertised window 96 KiB, initial window 3, a queue that is never full; frames from client \
     to server are lost independently, before the queue; with the same seed the same ones of them, counted from the \
     first",
    "goodput is that of the whole time, 90 s (--quick), 180 s or 300 s (--paper), from the start of the flow on",
];

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment, Error> {
    let (losses, seconds, repeats): (&[f64], _, _) = match options.size {
        Size::Quick => (&QUICK, 90, 1),
        Size::Normal => (&ALL, 180, 3),
        Size::Paper => (&ALL, 300, 10),
    };
    let cases: Vec<Case> = losses.iter().flat_map(|&loss| cases(loss, losses.len(), seconds)).collect();
    let [goodput_of_reno, _] = AGAINST_RENO;
    Ok(Experiment {
        name: "flight-loss",
        side_by_side: SideBySide::Cases(cases.len()),
        cases,
        repeats,
        ratios: vec![OF_LOSSLESS, goodput_of_reno],
        notes: notes(&ABOUT_THIS),
        ..Experiment::default()
    })
}

fn cases(loss: f64, losses: usize, seconds: u64) -> impl Iterator<Item = Case> {
    let time = Duration::from_secs(seconds);
    let capacity = Capacity::Fixed(Bitrate::from_bps(RATE_KBPS * 1000));
    let topology = topology(capacity.clone(), capacity, DELAY, DEEP, percent(loss));
    CONTROLS.into_iter().map(move |name| {
        let test = FlowTest {
            flows: vec![windowed(name, None)],
            initial_window: Some(INITIAL_WINDOW),
            receive_buffer_max: BUFFER_MAX,
            from: Duration::ZERO,
            until: Some(time),
            limit: time,
        };
        let key = vec![("cc", name.into()), ("rate_kbps", RATE_KBPS.into()), ("loss_percent", loss.into())];
        case(key, topology.clone(), test, time + overhead(losses * CONTROLS.len(), losses * GUESTS))
    })
}
