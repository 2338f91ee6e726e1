//! `flight-fairness`: equal numbers of flows of two congestion controls on one link (paper 001, figure 14), and of one
//! control with latecomers.

use std::time::Duration;

use link::{Bitrate, Capacity, Loss, Queue};

use super::case::{
    DELAY, FRAME, INITIAL_WINDOW, PAYLOAD, RECEIVE_BUFFER, STARTS, UP_TO, case, flow, notes, overhead,
    topology,
};
use crate::error::Error;
use crate::experiment::{Case, Experiment, RunOptions, SideBySide, Size};
use crate::flows::{BUFFER_MAX, FlowSpec, FlowTest};

pub(crate) const ABOUT: &str = "flows of two congestion controls on 1 and 10 Mbit/s, RTT 180 ms, buffers of 0.5 to 10 BDP: shares and queue (paper 001)";

/// The paper's link, whose BDP is 15 packets of 1500 bytes, and one with 150, for [`WIDE`] alone.
const RATES_KBPS: [u64; 2] = [1000, 10_000];

/// Beside whom `fsat` is measured on the wider link, beyond the paper; beside itself with latecomers.
const WIDE: [&str; 2] = ["cubic", "fsat"];

/// What each node of the paper sends.
const BYTES_EACH: u64 = 10_000_000;

/// Those of one link, about.
const CASES: usize = PAIRS.len() + 3;

/// When latecomers start, within [`STARTS`] of it.
const LATE: Duration = Duration::from_secs(20);

/// Who is measured against whom. A control against itself has latecomers as well. `…_reno` have Reno's congestion
/// avoidance below, as the paper's had; the others of FS-AT have CUBIC's.
const PAIRS: [(&str, &str); 15] = [
    ("cubic", "reno"),
    ("reno-guest", "reno"),
    ("vegas", "reno"),
    ("westwood", "reno"),
    ("fsat_paper", "reno"),
    ("fsat", "reno"),
    ("fsat_paper_reno", "reno"),
    ("fsat_reno", "reno"),
    ("fsat_paper", "cubic"),
    ("fsat", "cubic"),
    ("fsat_paper", "bbr"),
    ("fsat", "bbr"),
    ("reno", "reno"),
    ("fsat_paper", "fsat_paper"),
    ("fsat", "fsat"),
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

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment, Error> {
    let (buffers, flows, repeats): (&[f64], &[usize], _) = match options.size {
        Size::Quick => (&[0.5, 2.0, 10.0], &[1], 1),
        Size::Normal => (&[0.5, 1.0, 2.0, 5.0, 10.0], &[1, 2, 4], 3),
        Size::Paper => (&[0.5, 1.0, 2.0, 3.0, 5.0, 10.0], &[1, 2, 4], 10),
    };
    let windows: &[Windows] = match options.size {
        Size::Paper => &[Windows::Paper, Windows::Kernel],
        _ => &[Windows::Kernel],
    };
    let mut cases = Vec::new();
    for &buffer in buffers {
        for &flows in flows {
            for &windows in windows {
                cases.extend(pairs(options.size, flows, buffer, windows));
            }
        }
    }
    Ok(Experiment {
        name: "flight-fairness",
        side_by_side: SideBySide::Links { alike: &["rate_kbps", "flows", "buffer_bdp"], up_to: UP_TO },
        cases,
        repeats,
        notes: notes(&ABOUT_THIS),
        ..Experiment::default()
    })
}

/// All of [`PAIRS`] on one link, `flows` flows of each.
fn pairs(size: Size, flows: usize, buffer: f64, windows: Windows) -> Vec<Case> {
    let time = time(size, flows);
    let mut cases = Vec::new();
    for &(name, against) in &PAIRS {
        let starts: &[bool] = if name == against { &[false, true] } else { &[false] };
        let setup = |rate_kbps, late| Setup { rate_kbps, name, against, flows, buffer, windows, late, time };
        cases.extend(starts.iter().map(|&late| setup(RATES_KBPS[0], late).case()));
        if name == "fsat" && WIDE.contains(&against) && size != Size::Quick {
            cases.push(setup(RATES_KBPS[1], against == name).case());
        }
    }
    cases
}

/// How long a case of `flows` and as many others lasts. For the paper's size it is what they all take to send [`BYTES_EACH`] at equal
/// shares, on the paper's link.
fn time(size: Size, flows: usize) -> Duration {
    match size {
        Size::Quick => Duration::from_secs(85),
        Size::Normal => Duration::from_secs(150),
        Size::Paper => {
            let frames = 2 * flows as u64 * BYTES_EACH.div_ceil(PAYLOAD as u64);
            Duration::from_secs((frames * FRAME as u64 * 8).div_ceil(RATES_KBPS[0] * 1000))
        }
    }
}

/// What flows may have outstanding at first, and at most.
#[derive(Clone, Copy)]
enum Windows {
    Paper,
    Kernel,
}

struct Setup {
    rate_kbps: u64,
    name: &'static str,
    against: &'static str,
    flows: usize,
    buffer: f64,
    windows: Windows,
    late: bool,
    time: Duration,
}

impl Setup {
    fn case(&self) -> Case {
        let late = if self.late { STARTS + LATE } else { Duration::ZERO };
        let until = self.time + late;
        let (windows, initial_window, receive_buffer) = match self.windows {
            Windows::Paper => ("paper", Some(INITIAL_WINDOW), Some(RECEIVE_BUFFER)),
            Windows::Kernel => ("kernel", None, None),
        };
        let flows = |name, start: Duration| {
            let spec = FlowSpec { start: [start, start + STARTS], receive_buffer, ..flow(name) };
            std::iter::repeat_n(spec, self.flows)
        };
        let test = FlowTest {
            flows: flows(self.name, Duration::ZERO).chain(flows(self.against, late)).collect(),
            initial_window,
            receive_buffer_max: BUFFER_MAX,
            from: late + STARTS,
            until: Some(until),
            limit: until,
        };
        let key = vec![
            ("cc", self.name.into()),
            ("against", self.against.into()),
            ("rate_kbps", self.rate_kbps.into()),
            ("flows", self.flows.into()),
            ("buffer_bdp", self.buffer.into()),
            ("windows", windows.into()),
            ("starts", if self.late { "late" } else { "random" }.into()),
        ];
        case(key, self.topology(), test, until + overhead(CASES, CASES / 4))
    }

    fn topology(&self) -> crate::network::Topology {
        let capacity = Capacity::Fixed(Bitrate::from_bps(self.rate_kbps * 1000));
        let bdp_packets = self.rate_kbps as f64 * 1e3 * 2.0 * DELAY.as_secs_f64() / (8.0 * 1500.0);
        let queue = Queue::Packets((self.buffer * bdp_packets).round() as usize);
        topology(capacity.clone(), capacity, DELAY, queue, Loss::None)
    }
}

#[cfg(test)]
mod tests {
    use super::super::case::Flows;
    use super::*;

    #[test]
    fn each_could_send_the_papers_ten_megabytes() {
        // 6907 frames of 1514 bytes each, on 1 Mbit/s.
        let seconds = [1, 2, 4].map(|flows| time(Size::Paper, flows).as_secs());
        assert_eq!(seconds, [168, 335, 670]);
    }

    /// How many cases begin with so many segments, and with an advertised window that ends.
    fn windows(size: Size) -> [usize; 2] {
        let experiment = experiment(&RunOptions { size, ..RunOptions::default() }).unwrap();
        let flows = experiment.cases.iter().filter_map(|case| case.workload::<Flows>());
        let tests = flows.map(|flows| &flows.test);
        let narrow = tests.filter(|test| test.initial_window == Some(3));
        let all_end = |test: &&FlowTest| test.flows.iter().all(|flow| flow.receive_buffer.is_some());
        [experiment.cases.len(), narrow.filter(all_end).count()]
    }

    #[test]
    fn the_papers_windows_belong_to_its_size() {
        let [all, narrow] = windows(Size::Paper);
        assert_eq!(all, 2 * narrow, "each with the kernel's as well");
        assert_eq!([windows(Size::Quick)[1], windows(Size::Normal)[1]], [0; 2]);
    }
}
