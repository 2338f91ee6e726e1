//! `bicast-loss`, `bicast-load`, `bicast-burst`, `bicast-uneven`, `bicast-cut`.

use std::ops::Range;
use std::time::Duration;

use link::{Bitrate, Capacity, LinkConfig, Loss, Probability, Queue};
use serde_json::Value;

use super::test::{Stack, Test, Where};
use crate::error::Error;
use crate::experiment::{Case, Experiment, Fields, Pooled, Ratio, Reference, RunOptions, SideBySide, Size};

pub(crate) const ABOUT_LOSS: &str = "2 and 4 SCTP transfers over two paths with 1 to 6 % loss, by what is sent twice (paper 004, figures 8 and 9)";
pub(crate) const ABOUT_LOAD: &str = "1 to 8 SCTP transfers over two paths with 1 and 5 % loss, by what is sent twice (paper 004, figures 10 and 11)";
pub(crate) const ABOUT_BURST: &str = "as bicast-load, where losses come in bursts";
pub(crate) const ABOUT_UNEVEN: &str =
    "SCTP transfers over two paths of different rate or delay, from one host and from several";

pub(crate) const ABOUT_CUT: &str =
    "SCTP transfers over two paths of which one fails for some seconds in mid-transfer";

pub(crate) const ABOUT_BUDGET: &str =
    "1 and 4 SCTP transfers over two paths with 5 % loss, by the budget of adaptive copies";

const STACKS: [Stack; 4] = [Stack::Linux, Stack::LinuxProbed, Stack::LinuxNative, Stack::Usrsctp];

/// With `--quick` kernel SCTP is measured with paths that are known from the start: without, most of a run's difference is
/// when the kernel's first HEARTBEATs happen to go out.
const QUICK_STACKS: [Stack; 2] = [Stack::LinuxProbed, Stack::Usrsctp];

/// As in the JSON, and as the configuration has them.
pub(super) const MODES: [(&str, &str); 4] =
    [("normal", "off"), ("full", "full"), ("selective", "selective"), ("adaptive", "adaptive")];

/// Paper 004, 4.2.
const BYTES: u64 = 10 << 20;
pub(super) const RATE_MBPS: f64 = 10.0;
pub(super) const DELAY: Duration = Duration::from_millis(5);
/// dummynet's, by which the paper's paths were emulated, unless told otherwise.
const QUEUE: Queue = Queue::Packets(50);
/// Mean length of a burst of losses, in packets.
const BURST: f64 = 3.0;

/// Cells at the same time. Guests feel a machine that is busy (docs/lab.md), and a cell's two to six take a tenth to a sixth of a
/// processor each.
pub(super) const SIDE_BY_SIDE: usize = 3;

/// What a sample takes beside its transfers: guests boot, daemons start.
pub(super) const OVERHEAD: Duration = Duration::from_secs(6);

const RATIOS: [Ratio; 3] = [
    Ratio { name: "time_of_normal", metric: "transfer_s", of: ("mode", Reference::Name("normal")) },
    Ratio { name: "time_of_full", metric: "transfer_s", of: ("mode", Reference::Name("full")) },
    Ratio { name: "time_of_selective", metric: "transfer_s", of: ("mode", Reference::Name("selective")) },
];

/// One run has few of them, and none at all where a mode does well.
const GAPS: Pooled = Pooled {
    ratio: Ratio {
        name: "gaps_of_normal",
        metric: "gaps_over_500ms",
        of: ("mode", Reference::Name("normal")),
    },
    over: &["transfers", "loss", "links", "clients"],
};

const NOTES: [&str; 5] = [
    "each transfer: 10 MiB from client to server, a process and a fixed primary path of its own, spread evenly over the \
     paths; one transfer: the mean of two runs, one on each path",
    "stack linux: kernel SCTP of Linux 6.1 in user-mode-linux guests behind two hosts, which forward, and run nawa unless said otherwise; \
     linux-probed: the same, whose programs ask for HEARTBEATs on all paths at once (SPP_HB_DEMAND), where by itself it waits \
     for seconds, in which nothing can be copied; linux-native: the running kernel's SCTP on those hosts, asked likewise; \
     usrsctp: libusrsctp on them, raw IP sockets; no counter or setting of either differs between modes",
    "loss = both: of each packet in each direction, drawn before the queue; data: from client to server alone; first: in each \
     direction, of DATA sent for the first time and of SACKs without gap ack blocks alone",
    "transfer_s: mean over the transfers, at the receiver, from the association's being up to its last byte; \
     longest_gap_ms: the longest of all; gaps_over_500ms, t3_expiries, retransmitted_chunks: of all together",
    "extra_bytes_ratio: bytes of copies over bytes of the stacks' own packets, both ends together",
];

/// What a cell varies beside stack and mode.
#[derive(Clone, Copy, Debug)]
struct Cell {
    loss_percent: f64,
    lost: Lost,
    transfers: usize,
}

/// What is lost.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lost {
    /// Packets in both directions.
    Both,
    /// From client to server alone.
    Data,
    /// In both directions, but nothing that `selective` copies: the most that copies of it can gain.
    First,
}

impl Lost {
    fn name(self) -> &'static str {
        match self {
            Lost::Both => "both",
            Lost::Data => "data",
            Lost::First => "first",
        }
    }
}

impl Cell {
    const fn both(loss_percent: f64, transfers: usize) -> Cell {
        Cell { loss_percent, lost: Lost::Both, transfers }
    }

    const fn data(loss_percent: f64, transfers: usize) -> Cell {
        Cell { loss_percent, lost: Lost::Data, transfers }
    }

    const fn first(loss_percent: f64, transfers: usize) -> Cell {
        Cell { loss_percent, lost: Lost::First, transfers }
    }
}

/// How a direction loses packets.
type MakeLoss = fn(f64) -> Loss;

pub(super) fn independent(percent: f64) -> Loss {
    Probability::new(percent / 100.0).map_or(Loss::None, Loss::Bernoulli)
}

pub(super) fn bursts(percent: f64) -> Loss {
    let mean = Probability::new(percent / 100.0).ok();
    mean.and_then(|mean| Loss::gilbert_elliott(mean, BURST).ok()).unwrap_or_default()
}

pub(super) fn link(rate_mbps: f64, delay: Duration, loss: Loss) -> LinkConfig {
    let capacity = Capacity::Fixed(Bitrate::from_mbps(rate_mbps));
    LinkConfig { capacity, delay, loss, queue: QUEUE, ..LinkConfig::default() }
}

/// Both directions of each path, given rates and delays.
fn paths(cell: Cell, kind: [(f64, Duration); 2], make_loss: MakeLoss) -> [[LinkConfig; 2]; 2] {
    kind.map(|(rate, delay)| {
        let back = if cell.lost == Lost::Data { Loss::None } else { make_loss(cell.loss_percent) };
        [link(rate, delay, make_loss(cell.loss_percent)), link(rate, delay, back)]
    })
}

const EVEN: [(f64, Duration); 2] = [(RATE_MBPS, DELAY); 2];

fn stacks(size: Size) -> &'static [Stack] {
    if size == Size::Quick { &QUICK_STACKS } else { &STACKS }
}

/// All modes of a cell with each of `stacks`; `more` stands at the key's end.
fn cases(
    stacks: &[Stack],
    cell: Cell,
    paths: &[[LinkConfig; 2]; 2],
    clients: usize,
    more: Fields<Value>,
) -> Vec<Case<Test>> {
    let mut cases = Vec::new();
    for &stack in stacks {
        // Several hosts are guests.
        if !stack.is_in_guests() && clients > 1 {
            continue;
        }
        for (mode, setting) in MODES {
            let mut key: Fields<Value> = vec![
                ("stack", stack.name().into()),
                ("mode", mode.into()),
                ("loss_percent", cell.loss_percent.into()),
                ("loss", cell.lost.name().into()),
                ("transfers", cell.transfers.into()),
            ];
            key.extend(more.iter().cloned());
            let estimate = estimate(cell, stack, mode, paths);
            let nawa_on = if stack.is_in_guests() { Where::Router } else { Where::Host };
            let test = Test {
                stack,
                nawa_on,
                mode: setting,
                budget_percent: None,
                paths: paths.clone(),
                spares: cell.lost == Lost::First,
                transfers: cell.transfers,
                on_first: false,
                beside: false,
                clients,
                later: None,
                bytes: BYTES,
                limit: estimate * 5 + Duration::from_secs(120),
            };
            cases.push(Case { key, workload: test, estimate });
        }
    }
    cases
}

/// About: what the slower path needs for its share, and what timers add, which is most in the kernel's SCTP.
fn estimate(cell: Cell, stack: Stack, mode: &str, paths: &[[LinkConfig; 2]; 2]) -> Duration {
    let rate = |[up, _]: &[LinkConfig; 2]| match &up.capacity {
        Capacity::Fixed(rate) => rate.as_bps() as f64,
        _ => f64::INFINITY,
    };
    let slowest = paths.iter().map(rate).fold(f64::INFINITY, f64::min);
    let on_it = if mode == "full" { cell.transfers } else { cell.transfers.div_ceil(2) };
    let floor = BYTES as f64 * 8.0 / slowest * on_it as f64;
    let stalls = match (stack, mode) {
        (_, "full") => 0.5,
        (Stack::Linux | Stack::LinuxProbed | Stack::LinuxNative, "normal") => 5.0,
        _ => 2.0,
    };
    OVERHEAD + Duration::from_secs_f64(floor.max(stalls * cell.loss_percent + 8.4))
}

/// Cells that take about as long stand side by side.
pub(super) fn sorted(mut cases: Vec<Case<Test>>) -> Vec<Case> {
    cases.sort_by_key(|case| case.estimate);
    cases.into_iter().map(Case::erase).collect()
}

fn experiment(name: &'static str, cases: Vec<Case<Test>>, repeats: usize, notes: &[&str]) -> Experiment {
    Experiment {
        name,
        cases: sorted(cases),
        side_by_side: SideBySide::Cases(SIDE_BY_SIDE),
        repeats,
        ratios: RATIOS.to_vec(),
        pooled: Some(GAPS),
        notes: notes.iter().chain(&NOTES).map(|&note| note.to_owned()).collect(),
        ..Experiment::default()
    }
}

fn even(size: Size, cells: &[Cell], make_loss: MakeLoss) -> Vec<Case<Test>> {
    even_of(stacks(size), cells, make_loss)
}

fn even_of(stacks: &[Stack], cells: &[Cell], make_loss: MakeLoss) -> Vec<Case<Test>> {
    let cases = |&cell| cases(stacks, cell, &paths(cell, EVEN, make_loss), 1, Vec::new());
    cells.iter().flat_map(cases).collect()
}

pub(crate) fn loss(options: &RunOptions) -> Result<Experiment, Error> {
    let all: Vec<Cell> = (1..=6).flat_map(|loss| [2, 4].map(|n| Cell::both(loss.into(), n))).collect();
    let (cells, repeats) = match options.size {
        Size::Quick => ([1.0, 3.0, 5.0].map(|loss| Cell::both(loss, 2)).to_vec(), 1),
        Size::Normal => (all, 3),
        Size::Paper => (all, 5),
    };
    let mut cells = cells;
    if options.size != Size::Quick {
        cells.extend([1.0, 3.0, 5.0].map(|loss| Cell::data(loss, 2)));
    }
    Ok(experiment("bicast-loss", even(options.size, &cells, independent), repeats, &[]))
}

pub(crate) fn load(options: &RunOptions) -> Result<Experiment, Error> {
    let quick = [Cell::both(1.0, 1), Cell::both(1.0, 4), Cell::both(5.0, 1), Cell::both(5.0, 4)];
    let all: Vec<Cell> =
        [1.0, 5.0].iter().flat_map(|&loss| [1, 2, 4, 8].map(|n| Cell::both(loss, n))).collect();
    let (cells, repeats) = match options.size {
        Size::Quick => (quick.to_vec(), 1),
        Size::Normal => (all, 3),
        Size::Paper => (all, 5),
    };
    let mut cases = even(options.size, &cells, independent);
    if options.size != Size::Quick {
        cases.extend(in_guests(&quick));
        cases.extend(probed(Cell::first(5.0, 4)));
    }
    cases.iter_mut().for_each(say_where);
    let note = "where: what nawa runs on, the hosts that are SCTP's ends (in their guests, if they are in guests) or a \
                router in front of each";
    // Gaps of `first` are not added to those of `both`.
    let pooled = Some(Pooled { over: &["transfers"], ..GAPS });
    Ok(Experiment { pooled, ..experiment("bicast-load", cases, repeats, &[note]) })
}

/// Kernel SCTP whose paths are known from the start.
fn probed(cell: Cell) -> Vec<Case<Test>> {
    cases(&[Stack::LinuxProbed], cell, &paths(cell, EVEN, independent), 1, Vec::new())
}

/// The same with Nawa beside it, in the guests.
fn in_guests(cells: &[Cell]) -> Vec<Case<Test>> {
    let mut cases: Vec<Case<Test>> = cells.iter().copied().flat_map(probed).collect();
    for case in &mut cases {
        case.workload.nawa_on = Where::Host;
    }
    cases
}

/// Adds to the key what Nawa runs on.
fn say_where(case: &mut Case<Test>) {
    case.key.push(("where", case.workload.nawa_on.name().into()));
}

pub(crate) fn burst(options: &RunOptions) -> Result<Experiment, Error> {
    let quick = [Cell::both(1.0, 1), Cell::both(5.0, 1), Cell::both(5.0, 4)];
    let all: Vec<Cell> =
        [1.0, 3.0, 5.0].iter().flat_map(|&loss| [1, 4].map(|n| Cell::both(loss, n))).collect();
    let (cells, repeats) = if options.size == Size::Quick { (quick.to_vec(), 1) } else { (all, 3) };
    let note = "losses of each direction in bursts of 3 packets in the mean (Gilbert)";
    Ok(experiment("bicast-burst", even(options.size, &cells, bursts), repeats, &[note]))
}

/// In percent.
const BUDGETS: [u32; 5] = [3, 7, 15, 30, 100];

pub(crate) fn budget(options: &RunOptions) -> Result<Experiment, Error> {
    let cells = [Cell::both(5.0, 1), Cell::both(5.0, 4)];
    let stacks: &[Stack] = if options.size == Size::Quick { &[Stack::LinuxProbed] } else { &STACKS };
    let mut all = Vec::new();
    for case in even_of(stacks, &cells, independent) {
        match case.workload.mode {
            "adaptive" => all.extend(BUDGETS.map(|percent| with_budget(case.clone(), percent))),
            "off" => all.push(with_budget(case, 0)),
            _ => {}
        }
    }
    let note = "budget_percent: `budget` in the configuration; 0 stands for none, without copies";
    Ok(experiment("bicast-budget", all, if options.size == Size::Quick { 1 } else { 3 }, &[note]))
}

fn with_budget(mut case: Case<Test>, percent: u32) -> Case<Test> {
    case.workload.budget_percent = (percent > 0).then_some(percent);
    case.key.push(("budget_percent", percent.into()));
    case
}

/// The paths of `bicast-uneven`.
const KINDS: [(&str, [(f64, Duration); 2]); 3] = [
    ("10+2", [(10.0, DELAY), (2.0, DELAY)]),
    ("5ms+50ms", [(RATE_MBPS, DELAY), (RATE_MBPS, Duration::from_millis(50))]),
    ("10x2", EVEN),
];

pub(crate) fn uneven(options: &RunOptions) -> Result<Experiment, Error> {
    let quick = options.size == Size::Quick;
    let losses: &[f64] = if quick { &[5.0] } else { &[1.0, 5.0] };
    let mut cases = Vec::new();
    for &loss in losses {
        for (links, kind) in KINDS {
            // On paths that are alike only several hosts are new.
            let clients = if links == "10x2" { 2 } else { 1 };
            let cell = Cell::both(loss, 2 * clients);
            let more = vec![("links", links.into()), ("clients", clients.into())];
            cases.extend(self::cases(
                stacks(options.size),
                cell,
                &paths(cell, kind, independent),
                clients,
                more,
            ));
        }
    }
    let note = "links: 10 and 2 Mbit/s, 5 ms; 10 Mbit/s, 5 and 50 ms; 10 Mbit/s, 5 ms. clients: hosts that transfers come \
                from, each with one on each path, behind the same nawa";
    Ok(experiment("bicast-uneven", cases, if quick { 1 } else { 3 }, &[note]))
}

/// When the first path of `bicast-cut` carries nothing, in both directions: well within the shortest transfer, and for some of the
/// kernel's retransmission timeouts.
const CUT: Range<Duration> = Duration::from_secs(2)..Duration::from_secs(6);

pub(crate) fn cut(options: &RunOptions) -> Result<Experiment, Error> {
    let quick = options.size == Size::Quick;
    let cell = Cell::both(3.0, 2);
    let mut paths = paths(cell, EVEN, independent);
    paths[0].iter_mut().for_each(|link| link.blackouts = vec![CUT]);
    let mut cases = cases(stacks(options.size), cell, &paths, 1, Vec::new());
    for case in &mut cases {
        case.estimate += CUT.end - CUT.start;
        case.workload.later = Some(CUT.end);
    }
    let note = "one transfer on each path; the first path is down from 2 s to 6 s after the start; later_copies, later_copied_ratio: made after that";
    Ok(experiment("bicast-cut", cases, if quick { 1 } else { 3 }, &[note]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_ends_within_five_minutes() {
        for make in [loss, load, burst, uneven, cut, budget] {
            let experiment = make(&RunOptions { size: Size::Quick, ..RunOptions::default() }).unwrap();
            let estimate = experiment.estimate();
            assert!(estimate <= Duration::from_secs(300), "{}: {estimate:?}", experiment.name);
        }
    }

    #[test]
    fn every_size_compares_all_modes() {
        for make in [loss, load, burst, uneven, cut] {
            for size in [Size::Quick, Size::Normal, Size::Paper] {
                let experiment = make(&RunOptions { size, ..RunOptions::default() }).unwrap();
                assert_eq!(experiment.cases.len() % MODES.len(), 0);
                for (mode, _) in MODES {
                    let of = experiment.cases.iter().filter(|case| case.key[1].1 == mode).count();
                    assert_eq!(of, experiment.cases.len() / MODES.len(), "{}", experiment.name);
                }
            }
        }
    }
}
