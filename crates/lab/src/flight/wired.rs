//! `flight-wired`: one flow over links of constant rate (paper 001, figures 7 and 8, table 1).

use std::time::Duration;

use link::{Bitrate, Capacity, Loss};

use super::case::{
    AGAINST_RENO, CONTROLS, DEEP, DELAY, FRAME, GUESTS, INITIAL_WINDOW, PAYLOAD, RECEIVE_BUFFER, UP_TO, case,
    notes, overhead, topology, windowed,
};
use super::paper;
use crate::error::Error;
use crate::experiment::{Case, Experiment, RunOptions, SideBySide, Size};
use crate::flows::{FlowSpec, FlowTest};

pub(crate) const ABOUT: &str =
    "one TCP flow over 64 kbit/s to 4 Mbit/s, RTT 180 ms, deep buffer: goodput and queue (paper 001)";

const RATES_KBPS: [u64; 5] = [64, 384, 1000, 2000, 4000];

/// What the paper's flows send.
const BYTES: u64 = 10_000_000;

/// Linux's tuning of the receive buffer descends from DRS (Fisk and Feng, 2001), the paper's rival.
const DRS: &str = "drs";

/// The controls, and [`DRS`].
const ROWS: usize = CONTROLS.len() + 1;

const ABOUT_THIS: [&str; 3] = [
    "10 MB, RTT 180 ms, advertised window 96 KiB, initial window 3, a queue that is never full",
    "drs: Reno to a receiver whose buffer is not set: the kernel tunes it, up to the others' window (tcp_rmem); \
     Linux's tuning descends from DRS, and is not the paper's program",
    "with less than --paper a transfer is cut to what the link carries in 80 s (--quick) or 240 s",
];

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment, Error> {
    let (seconds, repeats) = match options.size {
        Size::Quick => (Some(80), 1),
        Size::Normal => (Some(240), 3),
        Size::Paper => (None, 9),
    };
    let cases: Vec<Case> = RATES_KBPS.into_iter().flat_map(|rate| cases(rate, seconds)).collect();
    Ok(Experiment {
        name: "flight-wired",
        cases,
        side_by_side: SideBySide::Links { alike: &["rate_kbps"], up_to: UP_TO },
        repeats,
        ratios: AGAINST_RENO.into(),
        paper: paper::wired(),
        notes: notes(&ABOUT_THIS),
        ..Experiment::default()
    })
}

/// What the receiver does by itself: its buffer is not set, and the kernel tunes it, as DRS did first, up to the window
/// that the others have at once.
fn tuned(bytes: u64) -> FlowSpec {
    FlowSpec { receive_buffer: None, ..windowed("reno", Some(bytes)) }
}

/// A transfer by each control, of at most what the link carries in `seconds`.
fn cases(rate_kbps: u64, seconds: Option<u64>) -> impl Iterator<Item = Case> {
    let bytes = seconds.map_or(BYTES, |seconds| BYTES.min(rate_kbps * 1000 / 8 * seconds));
    let rate = Bitrate::from_bps(rate_kbps * 1000);
    let ideal = rate.transmit_time(usize::try_from(bytes).unwrap_or(usize::MAX) / PAYLOAD * FRAME);
    let estimate = ideal.mul_f64(1.05) + Duration::from_secs(2) + overhead(ROWS, GUESTS);
    let capacity = Capacity::Fixed(rate);
    let topology = topology(capacity.clone(), capacity, DELAY, DEEP, Loss::None);
    let controls = CONTROLS.map(|name| (name, windowed(name, Some(bytes))));
    controls.into_iter().chain([(DRS, tuned(bytes))]).map(move |(name, flow)| {
        let test = FlowTest {
            flows: vec![flow],
            initial_window: Some(INITIAL_WINDOW),
            receive_buffer_max: 2 * RECEIVE_BUFFER,
            from: Duration::ZERO,
            until: None,
            limit: estimate * 4,
        };
        let key = vec![("cc", name.into()), ("rate_kbps", rate_kbps.into()), ("loss_percent", 0.0.into())];
        case(key, topology.clone(), test, estimate)
    })
}
