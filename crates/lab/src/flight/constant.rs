//! One flow over links of constant rate: `flight-wired` (paper 001, figures 7 and 8, table 1), and `flight-loss`, while frames are lost
//! that no queue has dropped (figure 13).

use std::time::Duration;

use link::{Bitrate, Loss};

use super::case::{
    AGAINST_RENO, CC, CONTROLS, DEEP, FRAME, Flows, GUESTS, INITIAL_WINDOW, PAYLOAD, RECEIVE_BUFFER, UP_TO,
    experiment_of, overhead, topology, windowed,
};
use crate::axes::{ALL, FULL, Grid, QUICK, cases, cells};
use crate::error::Result;
use crate::experiment::{Case, Experiment, Published, Ratio, RunOptions, SideBySide};
use crate::flows::{FlowSpec, FlowTest};
use crate::network::percent_lost;

pub(crate) const ABOUT: &str =
    "one TCP flow over 64 kbit/s to 4 Mbit/s, RTT 180 ms, deep buffer: goodput and queue (paper 001)";

/// drs: Linux's tuning of the receive buffer descends from DRS (Fisk and Feng, 2001), the paper's rival.
const GRIDS: [Grid; 1] = [Grid(ALL, &["rate_kbps=64,384,1000,2000,4000 loss_percent=0.0", CC_AND_DRS])];
const CC_AND_DRS: &str = "cc=reno,cubic,bbr,fsat_paper,fsat,reno-guest,vegas,westwood,drs";

/// Table 1, the greatest queue in packets: all that the paper gives numbers of.
const PUBLISHED: &str = "cc=reno,drs,vegas,fsat_paper rate_kbps=64,384,1000,2000,4000 loss_percent=0.0";
const QUEUE_MAX: [[f64; 5]; 4] = [
    [65.0, 61.0, 51.0, 36.0, 28.0],
    [21.0, 17.0, 27.0, 37.0, 23.0],
    [15.0, 27.0, 49.0, 36.0, 28.0],
    [6.0, 13.0, 37.0, 36.0, 28.0],
];

/// What the paper's flows send.
const BYTES: u64 = 10_000_000;

const ABOUT_THIS: [&str; 3] = [
    "10 MB, RTT 180 ms, advertised window 96 KiB, initial window 3, a queue that is never full",
    "drs: Reno to a receiver whose buffer is not set: the kernel tunes it, up to the others' window (tcp_rmem); \
     Linux's tuning descends from DRS, and is not the paper's program",
    "with less than --paper a transfer is cut to what the link carries in 30 s (--quick) or 240 s",
];

pub(crate) fn wired(options: &RunOptions) -> Result<Experiment> {
    let seconds = options.size.of(Some(30), Some(240), None);
    let cases = cases(&GRIDS, options.size, |cell| {
        let rate_kbps: u64 = cell.get("rate_kbps")?;
        let bytes = seconds.map_or(BYTES, |seconds| BYTES.min(rate_kbps * 1000 / 8 * seconds));
        let rate = Bitrate::from_bps(rate_kbps * 1000);
        let ideal = rate.transmit_time(usize::try_from(bytes).unwrap_or(usize::MAX) / PAYLOAD * FRAME);
        let estimate = ideal.mul_f64(1.05) + Duration::from_secs(2) + overhead(CONTROLS + 1, GUESTS);
        let flow = match cell.text("cc") {
            // What the receiver does by itself: its buffer is not set, and the kernel tunes it, as DRS did first, up to the window
            // that the others have at once.
            "drs" => FlowSpec { receive_buffer: None, ..windowed("reno", Some(bytes)) },
            name => windowed(name, Some(bytes)),
        };
        let test = FlowTest {
            flows: vec![flow],
            initial_window: Some(INITIAL_WINDOW),
            receive_buffer_max: 2 * RECEIVE_BUFFER,
            from: Duration::ZERO,
            until: None,
            limit: estimate * 4,
        };
        let topology = topology(cell, DEEP, Loss::None)?;
        Ok(Case::new(cell.key("cc rate_kbps loss_percent"), Flows { topology, test }, estimate))
    })?;
    let side_by_side = SideBySide::Links { alike: &["rate_kbps"], up_to: UP_TO };
    let paper = Published::row(PUBLISHED, "queue_max_packets", QUEUE_MAX.as_flattened());
    let experiment = experiment_of(cases, options.size.of(1, 3, 9), &AGAINST_RENO, &ABOUT_THIS);
    Ok(Experiment { side_by_side, paper, ..experiment })
}

pub(crate) const ABOUT_LOSS: &str =
    "one TCP flow over 1 Mbit/s, RTT 180 ms, with 0 to 1 % random loss (paper 001) and on to 5 %";

const LOSS_GRIDS: [Grid; 2] = [
    Grid(QUICK, &["rate_kbps=1000 loss_percent=0.0,0.5,1.0,3.0", CC]),
    Grid(FULL, &["rate_kbps=1000 loss_percent=0.0,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1.0,2.0,3.0,5.0", CC]),
];

const OF_LOSSLESS: Ratio = Ratio::new("goodput_of_lossless", "goodput_mbps", &[("loss_percent", "0.0")]);

const ABOUT_LOSSES: [&str; 2] = [
    "1 Mbit/s, RTT 180 ms, advertised window 96 KiB, initial window 3, a queue that is never full; frames from client \
     to server are lost independently, before the queue; with the same seed the same ones of them, counted from the \
     first",
    "goodput is that of the whole time, 30 s (--quick), 180 s or 300 s (--paper), from the start of the flow on",
];

pub(crate) fn loss(options: &RunOptions) -> Result<Experiment> {
    let time = Duration::from_secs(options.size.of(30, 180, 300));
    // All cases at the same time.
    let count = cells(&LOSS_GRIDS, options.size).len();
    let cases = cases(&LOSS_GRIDS, options.size, |cell| {
        let topology = topology(cell, DEEP, percent_lost(cell.get("loss_percent")?))?;
        let flows = vec![windowed(cell.text("cc"), None)];
        let initial_window = Some(INITIAL_WINDOW);
        let test = FlowTest { initial_window, ..FlowTest::lasting(flows, Duration::ZERO, time) };
        let estimate = time + overhead(count, count * GUESTS / CONTROLS);
        Ok(Case::new(cell.key("cc rate_kbps loss_percent"), Flows { topology, test }, estimate))
    })?;
    let ratios = [OF_LOSSLESS, AGAINST_RENO[0]];
    let experiment = experiment_of(cases, options.size.of(1, 3, 10), &ratios, &ABOUT_LOSSES);
    Ok(Experiment { side_by_side: SideBySide::Cases(count), ..experiment })
}
