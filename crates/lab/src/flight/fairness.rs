//! `flight-fairness`: equal numbers of flows of two congestion controls on one link (paper 001, figure 14), and of one
//! control with latecomers.

use std::time::Duration;

use link::{Loss, Queue};

use super::case::{
    DELAY, FRAME, Flows, INITIAL_WINDOW, PAYLOAD, RECEIVE_BUFFER, STARTS, UP_TO, experiment_of, flow,
    overhead, topology,
};
use crate::axes::{Grid, NORMAL, PAPER, QUICK, cases};
use crate::error::Result;
use crate::experiment::{Case, Experiment, RunOptions, SideBySide, Size};
use crate::flows::{FlowSpec, FlowTest};

pub(crate) const ABOUT: &str = "flows of two congestion controls on 1 and 10 Mbit/s, RTT 180 ms, buffers of 0.5 to 10 BDP: shares and queue (paper 001)";

/// What each node of the paper sends.
const BYTES_EACH: u64 = 10_000_000;

/// Those of one link, about.
const CASES: usize = 18;

/// When latecomers start, within [`STARTS`] of it.
const LATE: Duration = Duration::from_secs(20);

/// Who is measured against whom, each flow beginning by chance. `…_reno` have Reno's congestion avoidance below, as the paper's had;
/// the others of FS-AT have CUBIC's.
const PAIRS: &str = "rate_kbps=1000 starts=random cc:against=cubic:reno,reno-guest:reno,vegas:reno,westwood:reno,\
    fsat_paper:reno,fsat:reno,fsat_paper_reno:reno,fsat_reno:reno,fsat_paper:cubic,fsat:cubic,fsat_paper:bbr,fsat:bbr,\
    reno:reno,fsat_paper:fsat_paper,fsat:fsat";
/// A control against itself has latecomers as well.
const LATECOMERS: &str = "rate_kbps=1000 starts=late cc:against=reno:reno,fsat_paper:fsat_paper,fsat:fsat";
/// The paper's link has a BDP of 15 packets of 1500 bytes; this one has 150, beyond the paper.
const WIDE: &str = "rate_kbps=10000 cc:against:starts=fsat:cubic:random,fsat:fsat:late";
const QUICK_LINKS: &str = "buffer_bdp=0.5,2.0,10.0 flows=1 windows=kernel";
const NORMAL_LINKS: &str = "buffer_bdp=0.5,1.0,2.0,5.0,10.0 flows=1,2,4 windows=kernel";
const PAPER_LINKS: &str = "buffer_bdp=0.5,1.0,2.0,3.0,5.0,10.0 flows=1,2,4 windows=paper,kernel";

const GRIDS: [Grid; 8] = [
    Grid(QUICK, &[QUICK_LINKS, PAIRS]),
    Grid(QUICK, &[QUICK_LINKS, LATECOMERS]),
    Grid(NORMAL, &[NORMAL_LINKS, PAIRS]),
    Grid(NORMAL, &[NORMAL_LINKS, LATECOMERS]),
    Grid(NORMAL, &[NORMAL_LINKS, WIDE]),
    Grid(PAPER, &[PAPER_LINKS, PAIRS]),
    Grid(PAPER, &[PAPER_LINKS, LATECOMERS]),
    Grid(PAPER, &[PAPER_LINKS, WIDE]),
];

const ABOUT_THIS: [&str; 4] = [
    "fsat_paper_reno, fsat_reno: FS-AT with Reno's congestion avoidance below, as the paper's; the others of FS-AT have \
     CUBIC's",
    "rate_kbps 1000 or, for fsat beside CUBIC and itself, 10000; RTT 180 ms, drop-tail queue of buffer_bdp times 15 or 150 packets; `flows` flows of cc and as many of `against`, \
     which start at random within 5 s; starts=late: those of `against` start 20 to 25 s later than the others may",
    "goodput_mbps: of all flows of cc, from 5 s (late: 30 s) on, when all have started, to the end; share: that of the \
     sum of all flows; jain: Jain's index over all flows; queue_max_packets from the very start",
    "windows=paper: advertised window 96 KiB, initial window 3, of every flow; windows=kernel: both as the kernel has them",
];

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment> {
    let mut cases = cases(&GRIDS, options.size, |cell| {
        let flows: usize = cell.get("flows")?;
        let time = time(options.size, flows);
        let late = if cell.text("starts") == "late" { STARTS + LATE } else { Duration::ZERO };
        let until = time + late;
        let (initial_window, receive_buffer) = match cell.text("windows") {
            "paper" => (Some(INITIAL_WINDOW), Some(RECEIVE_BUFFER)),
            _ => (None, None),
        };
        let all = |name, start: Duration| {
            let spec = FlowSpec { start: [start, start + STARTS], receive_buffer, ..flow(name) };
            std::iter::repeat_n(spec, flows)
        };
        let flows = all(cell.text("cc"), Duration::ZERO).chain(all(cell.text("against"), late)).collect();
        let test = FlowTest { initial_window, ..FlowTest::lasting(flows, late + STARTS, until) };
        let bdp_packets = cell.get::<f64>("rate_kbps")? * 1e3 * 2.0 * DELAY.as_secs_f64() / (8.0 * 1500.0);
        let queue = Queue::Packets((cell.get::<f64>("buffer_bdp")? * bdp_packets).round() as usize);
        let topology = topology(cell, queue, Loss::None)?;
        let key = cell.key("cc against rate_kbps flows buffer_bdp windows starts");
        Ok(Case::new(key, Flows { topology, test }, until + overhead(CASES, CASES / 4)))
    })?;
    // Those that agree in these fields follow each other.
    cases.sort_by_key(|case| ALIKE.map(|name| case.field(name).map(ToString::to_string)));
    let side_by_side = SideBySide::Links { alike: &ALIKE, up_to: UP_TO };
    Ok(Experiment { side_by_side, ..experiment_of(cases, options.size.of(1, 3, 10), &[], &ABOUT_THIS) })
}

/// The link of a case.
const ALIKE: [&str; 3] = ["rate_kbps", "flows", "buffer_bdp"];

/// How long a case of `flows` and as many others lasts. For the paper's size it is what they all take to send [`BYTES_EACH`] at equal
/// shares, on the paper's link.
fn time(size: Size, flows: usize) -> Duration {
    match size {
        Size::Quick => Duration::from_secs(40),
        Size::Normal => Duration::from_secs(150),
        Size::Paper => {
            let frames = 2 * flows as u64 * BYTES_EACH.div_ceil(PAYLOAD as u64);
            Duration::from_secs((frames * FRAME as u64 * 8).div_ceil(1_000_000))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_could_send_the_papers_ten_megabytes() {
        // 6907 frames of 1514 bytes each, on 1 Mbit/s.
        let seconds = [1, 2, 4].map(|flows| time(Size::Paper, flows).as_secs());
        assert_eq!(seconds, [168, 335, 670]);
    }
}
