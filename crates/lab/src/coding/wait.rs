//! `coding-wait`: one transfer over 2 and 3 hops, by mode and waiting time (paper 002, figures 7 to 12).

use link::Probability;

use super::measure::{case, notes, ratios};
use super::mode::{Mode, wait_of};
use super::test::Test;
use super::transfer::{End, Plan};
use crate::error::Error;
use crate::experiment::{Case, Experiment, Published, Ratio, Reference, RunOptions, SideBySide, Size};

pub(crate) const ABOUT: &str = "one TCP transfer over 2 and 3 hops of 802.11g, by mode and waiting time: goodput, RTT, packets sent (paper 002)";

const WAITS_MS: [u64; 7] = [1, 3, 5, 10, 20, 50, 100];

/// The paper's transfer, in packets.
const PACKETS: u64 = 10_000;

/// What receivers advertise at most, in segments. The paper does not say; what it says of the time that packets wait (99 % of
/// them less than 10 ms, 5.3) is so with about 16 on this medium, where relays' queues are short. 256 fill them.
const WINDOWS: [u32; 2] = [16, 256];

const ABOUT_THIS: [&str; 4] = [
    "10,000 packets of 1448 bytes with --paper, 4,000 without, 1,500 with --quick",
    "receivers advertise window_segments at most, which the paper does not say; with 16 packets wait for as long as it says \
     (99 % of them less than 10 ms), 256 fill the relays' queues",
    "hosts make one segment at a time (gso_max_segs 1), as on the paper's kernel, and windows are not tuned, so that a receiver \
     acknowledges every second segment (data_per_ack): today's Linux ends each burst of segments with PSH, which it \
     answers at once, and answers every segment while it tunes a window",
    "delayed with wait 0 is what the paper measured as PiggyCode; piggy codes in the interface queue, as PiggyCode was \
     published",
];

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment, Error> {
    let (packets, repeats) = match options.size {
        Size::Quick => (1_500, 1),
        Size::Normal => (4_000, 5),
        Size::Paper => (PACKETS, 5),
    };
    let cells = cells(options.size);
    let windows = if options.size == Size::Quick { &WINDOWS[1..] } else { &WINDOWS };
    let chains = windows.iter().flat_map(|&window| [(window, 2), (window, 3)]);
    let cases = chains.flat_map(|(window, hops)| {
        cells.iter().map(move |&(mode, wait_ms)| cell(mode, hops, wait_ms, window, packets))
    });
    Ok(Experiment {
        name: "coding-wait",
        cases: cases.collect(),
        side_by_side: SideBySide::Cases(1),
        repeats,
        ratios: all_ratios(),
        paper: paper(),
        notes: notes(&ABOUT_THIS),
        ..Experiment::default()
    })
}

/// Modes with their waiting times, those without first: 0.
fn cells(size: Size) -> Vec<(Mode, u64)> {
    let waits = if size == Size::Quick { &[1, 10, 100][..] } else { &WAITS_MS };
    let mut cells =
        vec![(Mode::Plain, 0), (Mode::Off, 0), (Mode::Thinned, 0), (Mode::Piggy, 0), (Mode::Delayed, 0)];
    for mode in [Mode::Delayed, Mode::Controlled, Mode::Any] {
        cells.extend(waits.iter().map(|&wait| (mode, wait)));
    }
    if size != Size::Quick {
        cells.extend([false, true].map(|codes| (Mode::Batman { codes }, 0)));
    }
    cells
}

fn cell(mode: Mode, hops: usize, wait_ms: u64, window: u32, packets: u64) -> Case {
    let plan = Plan { flows: 1, both_ways: false, window, end: End::Packets(packets) };
    let wait = wait_of(mode, wait_ms);
    let key = vec![
        ("mode", mode.name().into()),
        ("hops", hops.into()),
        ("wait_ms", wait_ms.into()),
        ("window_segments", window.into()),
    ];
    case(key, Test { mode, hops, wait, plan, bursts: false, overhearing_loss: Probability::ZERO })
}

fn all_ratios() -> Vec<Ratio> {
    let at_0 = |mode| Reference::NameAt(mode, ("wait_ms", 0.0));
    let plain = ratios("mode", ["goodput_of_plain", "packets_of_plain"], at_0("plain"));
    let off = ratios("mode", ["goodput_of_off", "packets_of_off"], at_0("off"));
    let rtt = |name, of| Ratio { name, metric: "rtt_ms", of: ("mode", of) };
    let rtts = [rtt("rtt_of_piggycode", at_0("delayed")), rtt("rtt_of_delayed", Reference::Name("delayed"))];
    [&plain[..], &off, &rtts].concat()
}

/// What chapter 5.2 says of figures 7 to 12, which give no numbers: the best over all waiting times.
fn paper() -> Vec<Published> {
    let best = |mode: &str, hops: u32, metrics| Published {
        key: vec![("mode", mode.into()), ("hops", hops.into()), ("wait_ms", "best".into())],
        metrics,
    };
    vec![
        best(
            "controlled",
            2,
            vec![("goodput_of_plain", 1.06), ("packets_of_plain", 0.84), ("rtt_of_piggycode", 0.93)],
        ),
        best("delayed", 2, vec![("goodput_of_plain", 1.06), ("packets_of_plain", 0.85)]),
        best(
            "controlled",
            3,
            vec![("goodput_of_plain", 1.05), ("packets_of_plain", 0.79), ("rtt_of_piggycode", 0.87)],
        ),
        best(
            "delayed",
            3,
            vec![("goodput_of_plain", 1.04), ("packets_of_plain", 0.80), ("rtt_of_piggycode", 0.94)],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_cases_are_there() {
        let experiment = experiment(&RunOptions { size: Size::Paper, ..RunOptions::default() }).unwrap();
        assert_eq!(experiment.cases.len(), 2 * 2 * (7 + 3 * WAITS_MS.len()));
        for case in &experiment.cases {
            let test = case.workload::<Test>().unwrap();
            assert!(matches!(test.plan.end, End::Packets(PACKETS)));
        }
    }
}
