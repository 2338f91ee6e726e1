//! `bicast-loss`, `bicast-load`, `bicast-burst`, `bicast-budget`, `bicast-uneven` and `bicast-cut`: SCTP; `bicast-tcp`: one TCP flow
//! through the tunnel, with and without copies of what controls retransmission; `bicast-dropping`: copies into a second path that drops
//! them, and a TCP flow that shares it.

use std::ops::Range;
use std::time::Duration;

use link::{Bitrate, ByteCount, LinkConfig, Loss, PolicerConfig, Probability, Queue};

use super::test::{STACKS_BY_NAME, Stack, Test};
use crate::axes::{ALL, Cell, FULL, Grid, QUICK, cases};
use crate::error::Result;
use crate::experiment::{Case, Experiment, Ratio, RunOptions, SideBySide, Size};
use crate::links::{Fetch, OnLinks, Setup};
use crate::network::{PathSpec, Topology, fixed, percent_lost};
use crate::system::{NawaSetup, System};

pub(crate) const ABOUT_LOSS: &str = "2 and 4 SCTP transfers over two paths with 1 to 6 % loss, by what is sent twice (paper 004, figures 8 and 9)";
pub(crate) const ABOUT_LOAD: &str = "1 to 8 SCTP transfers over two paths with 1 and 5 % loss, by what is sent twice (paper 004, figures 10 and 11)";
pub(crate) const ABOUT_BURST: &str =
    "1 and 4 SCTP transfers over two paths that lose several packets at a time, by what is sent twice";
pub(crate) const ABOUT_UNEVEN: &str =
    "SCTP transfers over two paths of different rate or delay, from one host and from several";

pub(crate) const ABOUT_CUT: &str =
    "SCTP transfers over two paths of which one fails for some seconds in mid-transfer";

pub(crate) const ABOUT_BUDGET: &str =
    "1 and 4 SCTP transfers over two paths with 5 % loss, by the budget of adaptive copies";

/// The stacks, and all modes of each. What nawa runs on is a router where SCTP's ends are in guests.
const STACKS: &str = "stack:where=linux:router,linux-probed:router,linux-native:host,usrsctp:host";
/// Several hosts are guests.
const GUESTS: &str = "stack:where=linux:router,linux-probed:router";
/// With `--quick` kernel SCTP alone, with paths that are known from the start: without, most of a run's difference is when the kernel's
/// first HEARTBEATs happen to go out.
const PROBED: &str = "stack:where=linux-probed:router";
const ALL_MODES: &str = "mode=normal,full,selective,adaptive";

/// As in the JSON, and as the configuration has them.
const MODES: [(&str, &str); 4] =
    [("normal", "off"), ("full", "full"), ("selective", "selective"), ("adaptive", "adaptive")];

/// Paper 004, 4.2.
const BYTES: u64 = 10 << 20;
const RATE_MBPS: f64 = 10.0;
const DELAY: Duration = Duration::from_millis(5);
/// dummynet's, by which the paper's paths were emulated, unless told otherwise.
const QUEUE: Queue = Queue::Packets(50);
/// Mean length of a burst of losses, in packets.
const BURST_LENGTH: f64 = 3.0;

/// Cells at the same time. Guests feel a machine that is busy (docs/lab.md), and a cell's two to six take a tenth to a sixth of a
/// processor each. With `--quick` each has two.
fn side_by_side(size: Size) -> SideBySide {
    SideBySide::Cases(size.of(4, 3, 3))
}

/// What a sample takes beside its transfers: guests boot, daemons start.
const OVERHEAD: Duration = Duration::from_secs(6);

const RATIOS: [Ratio; 3] = [
    Ratio::new("time_of_normal", "transfer_s", &[("mode", "normal")]),
    Ratio::new("time_of_full", "transfer_s", &[("mode", "full")]),
    Ratio::new("time_of_selective", "transfer_s", &[("mode", "selective")]),
];

const NOTES: [&str; 5] = [
    "each transfer: 10 MiB from client to server, a process and a fixed primary path of its own, spread evenly over the \
     paths; one transfer: the mean of two runs, one on each path",
    "stack linux: kernel SCTP of Linux 6.1 in user-mode-linux guests behind two hosts, which forward, and run nawa unless said otherwise; \
     linux-probed: the same, whose programs ask for HEARTBEATs on all paths at once (SPP_HB_DEMAND), where by itself it waits \
     for seconds, in which nothing can be copied; linux-native: the running kernel's SCTP on those hosts, asked likewise; \
     usrsctp: libusrsctp on them, raw IP sockets; no counter or setting of either differs between modes",
    "loss = both: of each packet in each direction, drawn before the queue; bursts: likewise, in bursts of 3 in the mean (Gilbert); \
     data: from client to server alone",
    "transfer_s: mean over the transfers, at the receiver, from the association's being up to its last byte; \
     longest_gap_ms: the longest of all; gaps_over_500ms, t3_expiries, retransmitted_chunks: of all together",
    "extra_bytes_ratio: bytes of copies over bytes of the stacks' own packets, both ends together",
];

fn bursts(percent: f64) -> Loss {
    let mean = Probability::new(percent / 100.0).ok();
    mean.and_then(|mean| Loss::gilbert_elliott(mean, BURST_LENGTH).ok()).unwrap_or_default()
}

fn link(rate_mbps: f64, delay: Duration, loss: Loss) -> LinkConfig {
    LinkConfig { loss, ..fixed(rate_mbps, delay, QUEUE) }
}

/// Rates and delays by the field `links`.
const KINDS: [(&str, [(f64, Duration); 2]); 4] = [
    ("", [(RATE_MBPS, DELAY); 2]),
    ("10x2", [(RATE_MBPS, DELAY); 2]),
    ("10+2", [(10.0, DELAY), (2.0, DELAY)]),
    ("5ms+50ms", [(RATE_MBPS, DELAY), (RATE_MBPS, Duration::from_millis(50))]),
];

/// A cell's case, with these fields in its key. `loss`: `both`: packets in both directions are lost; `bursts`: several at a time;
/// `data`: from client to server alone. `cut`: when the first path carries nothing, in seconds.
fn case(cell: &Cell, key: &'static str, cut: Option<Range<u64>>) -> Result<Case> {
    let (percent, transfers): (f64, usize) = (cell.get("loss_percent")?, cell.get("transfers")?);
    let (stack, mode) = (cell.one_of("stack", &STACKS_BY_NAME)?, cell.one_of("mode", &MODES)?);
    let kind = cell.one_of("links", &KINDS)?;
    let mut links = kind.map(|(rate, delay)| {
        let lost = if cell.text("loss") == "bursts" { bursts(percent) } else { percent_lost(percent) };
        let back = if cell.text("loss") == "data" { Loss::None } else { lost };
        [link(rate, delay, lost), link(rate, delay, back)]
    });
    let cut = cut.map(|cut| Duration::from_secs(cut.start)..Duration::from_secs(cut.end));
    links[0].iter_mut().for_each(|link| link.blackouts.extend(cut.clone()));
    // About: what the slower path needs for its share, and what timers add, which is most in the kernel's SCTP.
    let slowest = kind.iter().map(|(rate, _)| *rate).fold(f64::INFINITY, f64::min);
    let on_it = if mode == "full" { transfers } else { transfers.div_ceil(2) };
    let floor = BYTES as f64 * 8e-6 / slowest * on_it as f64;
    let stalls = match (stack, mode) {
        (_, "full") => 0.5,
        (Stack::Linux | Stack::LinuxProbed | Stack::LinuxNative, "off") => 5.0,
        _ => 2.0,
    };
    let estimate = OVERHEAD + Duration::from_secs_f64(floor.max(stalls * percent + 8.4));
    let budget: u32 = cell.get("budget_percent")?;
    let workload = Test {
        stack,
        on_routers: cell.one_of("where", &[("host", false), ("router", true)])?,
        mode,
        budget_percent: (budget > 0).then_some(budget),
        paths: links,
        transfers,
        on_first: false,
        beside: false,
        clients: cell.get("clients").map(|clients: usize| clients.max(1))?,
        later: cut.clone().map(|cut| cut.end),
        bytes: BYTES,
        limit: estimate * 5 + Duration::from_secs(120),
    };
    let estimate = estimate + cut.map_or(Duration::ZERO, |cut| cut.end - cut.start);
    Ok(Case::new([cell.key(KEY), cell.key(key)].concat(), workload, estimate))
}

const KEY: &str = "stack mode loss_percent loss transfers";

/// Cells that take about as long stand side by side.
fn sorted(mut cases: Vec<Case>) -> Vec<Case> {
    cases.sort_by_key(|case| case.estimate);
    cases
}

/// `key`: what varies beside [`KEY`]. `repeats`: of the paper's size.
fn experiment(
    grids: &[Grid],
    (size, repeats): (Size, usize),
    key: &'static str,
    cut: Option<Range<u64>>,
    notes: &[&str],
) -> Result<Experiment> {
    let cases = sorted(cases(grids, size, |cell| case(cell, key, cut.clone()))?);
    let experiment = Experiment::of(cases, size.of(1, 3, repeats), &RATIOS, &[notes, &NOTES].concat());
    Ok(Experiment { side_by_side: side_by_side(size), ..experiment })
}

const LOSS: [Grid; 3] = [
    Grid(QUICK, &["loss_percent=1.0,5.0 loss=both transfers=2", PROBED, ALL_MODES]),
    Grid(FULL, &["loss_percent=1.0,2.0,3.0,4.0,5.0,6.0 loss=both transfers=2,4", STACKS, ALL_MODES]),
    Grid(FULL, &["loss_percent=1.0,3.0,5.0 loss=data transfers=2", STACKS, ALL_MODES]),
];

pub(crate) fn loss(options: &RunOptions) -> Result<Experiment> {
    experiment(&LOSS, (options.size, 5), "", None, &[])
}

const LOAD: [Grid; 3] = [
    Grid(QUICK, &["loss_percent=1.0,5.0 transfers=4 loss=both", PROBED, ALL_MODES]),
    Grid(FULL, &["loss_percent=1.0,5.0 loss=both transfers=1,2,4,8", STACKS, ALL_MODES]),
    // Nawa beside kernel SCTP, in its guests.
    Grid(FULL, &["loss_percent=1.0,5.0 loss=both transfers=1,4 stack=linux-probed where=host", ALL_MODES]),
];

pub(crate) fn load(options: &RunOptions) -> Result<Experiment> {
    let note = "where: what nawa runs on, the hosts that are SCTP's ends (in their guests, if they are in guests) or a \
                router in front of each";
    experiment(&LOAD, (options.size, 5), "where", None, &[note])
}

const BURST: [Grid; 2] = [
    Grid(QUICK, &["loss_percent=3.0 loss=bursts transfers=2", PROBED, ALL_MODES]),
    Grid(FULL, &["loss_percent=1.0,3.0,5.0 loss=bursts transfers=1,4", STACKS, ALL_MODES]),
];

pub(crate) fn burst(options: &RunOptions) -> Result<Experiment> {
    experiment(&BURST, (options.size, 3), "", None, &[])
}

const BUDGET: [Grid; 2] = [
    Grid(
        QUICK,
        &[
            "loss_percent=5.0 loss=both transfers=1 mode:budget_percent=normal:0,adaptive:3,adaptive:100",
            PROBED,
        ],
    ),
    Grid(FULL, &["loss_percent=5.0 loss=both transfers=1,4", STACKS, BUDGETS]),
];
const BUDGETS: &str =
    "mode:budget_percent=normal:0,adaptive:3,adaptive:7,adaptive:15,adaptive:30,adaptive:100";

pub(crate) fn budget(options: &RunOptions) -> Result<Experiment> {
    let note = "budget_percent: `budget` in the configuration; 0 stands for none, without copies";
    let experiment = experiment(&BUDGET, (options.size, 3), "budget_percent", None, &[note])?;
    // What is without copies has no budget.
    let of_normal = Ratio { of: &[("mode", "normal"), ("budget_percent", "0")], ..RATIOS[0] };
    Ok(Experiment { ratios: vec![of_normal], ..experiment })
}

/// On paths that are alike only several hosts are new.
const UNEVEN: [Grid; 3] = [
    Grid(QUICK, &["loss_percent=5.0 loss=both links=5ms+50ms clients=1 transfers=2", PROBED, ALL_MODES]),
    Grid(FULL, &["loss_percent=1.0,5.0 loss=both", UNEVEN_LINKS, STACKS, ALL_MODES]),
    Grid(FULL, &["loss_percent=1.0,5.0 loss=both", TWO_HOSTS, GUESTS, ALL_MODES]),
];
const UNEVEN_LINKS: &str = "links=10+2,5ms+50ms clients=1 transfers=2";
const TWO_HOSTS: &str = "links=10x2 clients=2 transfers=4";

pub(crate) fn uneven(options: &RunOptions) -> Result<Experiment> {
    let note = "links: 10 and 2 Mbit/s, 5 ms; 10 Mbit/s, 5 and 50 ms; 10 Mbit/s, 5 ms. clients: hosts that transfers come \
                from, each with one on each path, behind the same nawa";
    experiment(&UNEVEN, (options.size, 3), "links clients", None, &[note])
}

const CUT: [Grid; 2] = [
    Grid(QUICK, &["loss_percent=3.0 loss=both transfers=2", PROBED, ALL_MODES]),
    Grid(FULL, &["loss_percent=3.0 loss=both transfers=2", STACKS, ALL_MODES]),
];

/// Seconds: well within the shortest transfer, and for some of the kernel's retransmission timeouts.
const CUT_S: Range<u64> = 2..6;

pub(crate) fn cut(options: &RunOptions) -> Result<Experiment> {
    let note = "one transfer on each path; the first path is down from 2 s to 6 s after the start; later_copies, later_copied_ratio: made after that";
    experiment(&CUT, (options.size, 3), "", Some(CUT_S), &[note])
}

pub(crate) const ABOUT_TCP: &str =
    "one TCP flow in the tunnel over two paths with 5 % bursty loss, by what goes over both";

/// Of either path, one way.
const TCP_DELAY: Duration = Duration::from_millis(20);

const TCP: [Grid; 1] =
    [Grid(ALL, &["system=nawa resend=false,true bicast=off,selective,adaptive loss_percent=5.0"])];

const TCP_RATIOS: [Ratio; 3] = [
    Ratio::new("goodput_of_off", "goodput_mbps", &[("bicast", "off")]),
    Ratio::new("rto_of_off", "rto_expiries", &[("bicast", "off")]),
    Ratio::new("stall_of_off", "longest_stall_ms", &[("bicast", "off")]),
];

const TCP_NOTES: [&str; 4] = [
    "two paths of 10 Mbit/s, 20 ms one way, drop-tail queues of 50 packets; of each direction of each 5 % of the packets are \
     lost, in bursts of 3 in the mean (Gilbert); one file by curl from server to client, CUBIC, `ping` beside it",
    "resend: what a path loses is sent again by the tunnel itself; bicast: as in the configuration of both ends",
    "rto_expiries, retransmitted_segments: of the server's TCP (TCPTimeouts, RetransSegs); resent_packets: by the tunnel, both \
     ends; longest_stall_ms: the longest time between two bytes that reached what reads curl's output",
    "extra_bytes_ratio: bytes of copies over bytes of the other inner packets, both ends; sent_bytes_ratio: UDP payload that \
     both ends sent over the file's size",
];

pub(crate) fn tcp(options: &RunOptions) -> Result<Experiment> {
    let bytes = options.size.of(4, 16, 32) << 20;
    let cases = cases(&TCP, options.size, |cell| {
        let loss = bursts(cell.get("loss_percent")?);
        let path = |name| PathSpec::symmetric(name, link(RATE_MBPS, TCP_DELAY, loss));
        let setup = Setup {
            topology: Topology::Relayed(["one", "two"].map(path).to_vec()),
            system: System::Nawa(NawaSetup {
                relayed: false,
                resend: cell.get("resend")?,
                bicast: cell.text("bicast"),
                ..NawaSetup::AUTO
            }),
            congestion_control: "cubic",
        };
        let workload = OnLinks { setup, task: Fetch { bytes, event: None, recovery: true } };
        // About 1.2 Mbit/s where nothing helps.
        let estimate = Duration::from_secs_f64(4.0 + bytes as f64 * 8.0 / 1.2e6);
        Ok(Case::new(cell.key("system resend bicast loss_percent"), workload, estimate))
    })?;
    let side_by_side = SideBySide::Cases(cases.len());
    Ok(Experiment {
        side_by_side,
        ..Experiment::of(cases, options.size.of(1, 5, 9), &TCP_RATIOS, &TCP_NOTES)
    })
}

pub(crate) const ABOUT_DROPPING: &str = "SCTP transfers by a clean path, and what is copied into a second one that drops, polices or has no buffer";

/// All transfers together, which takes longer than the TCP flow beside them.
const DROPPING_BYTES: u64 = 20 << 20;
/// What is copied after that is counted as well.
const LATER: Duration = Duration::from_secs(5);

const DROPPING_NOTES: [&str; 4] = [
    "all transfers keep to the first path, 10 Mbit/s, 5 ms, which loses loss_percent of the packets in each direction; 20 MiB together, \
     kernel SCTP in guests whose programs ask for HEARTBEATs at once, nawa on a router in front of each",
    "second: of the second path, as fast, loss-N: loses N % in each direction; policed: passes 1 Mbit/s and 15 kB at once; short: has room \
     for three packets",
    "copied_ratio: bytes of copies over bytes of the stacks' own packets, both ends; later_copied_ratio: of those \
     from 5 s on",
    "tcp_goodput_mbps: of one CUBIC flow by the second path for 10 s, from 2 s on; none where 50 % and more are lost",
];

const DROPPING_RATIOS: [Ratio; 2] = [
    Ratio::new("tcp_goodput_ratio", "tcp_goodput_mbps", &[("mode", "normal")]),
    Ratio::new("time_of_normal", "transfer_s", &[("mode", "normal")]),
];

/// A TCP flow goes by the second path where one gets through.
const DROPPING: [Grid; 3] = [
    Grid(QUICK, &["loss_percent=0.0 transfers=1 second=loss-10,policed mode=normal,selective,adaptive"]),
    Grid(FULL, &["loss_percent=0.0 transfers=1", SECONDS, ALL_MODES]),
    Grid(FULL, &["loss_percent:transfers=0.0:4,5.0:1", SECONDS, ALL_MODES]),
];
const SECONDS: &str = "second=loss-2,loss-10,loss-50,loss-90,policed,short";

fn second(name: &str) -> LinkConfig {
    let percent = name.strip_prefix("loss-").and_then(|text| text.parse().ok());
    let mut config = link(RATE_MBPS, DELAY, percent_lost(percent.unwrap_or(0.0)));
    match name {
        "policed" => {
            let rate = Bitrate::from_mbps(RATE_MBPS / 10.0);
            config.policer = Some(PolicerConfig { rate, burst: ByteCount(15_000) });
        }
        "short" => config.queue = Queue::Packets(3),
        _ => {}
    }
    config
}

pub(crate) fn dropping(options: &RunOptions) -> Result<Experiment> {
    let cases = sorted(cases(&DROPPING, options.size, dropping_case)?);
    let experiment = Experiment::of(cases, options.size.of(1, 3, 3), &DROPPING_RATIOS, &DROPPING_NOTES);
    Ok(Experiment { side_by_side: side_by_side(options.size), ..experiment })
}

fn dropping_case(cell: &Cell) -> Result<Case> {
    let (name, transfers) = (cell.text("second"), cell.get("transfers")?);
    let loss_percent: f64 = cell.get("loss_percent")?;
    let first = link(RATE_MBPS, DELAY, percent_lost(loss_percent));
    let seconds = DROPPING_BYTES as f64 * 8e-6 / RATE_MBPS * if loss_percent > 0.0 { 3.0 } else { 1.1 };
    let estimate = OVERHEAD + Duration::from_secs_f64(seconds);
    let test = Test {
        stack: Stack::LinuxProbed,
        on_routers: true,
        mode: cell.one_of("mode", &MODES)?,
        budget_percent: None,
        paths: [first, second(name)].map(|one| [one.clone(), one]),
        transfers,
        on_first: true,
        beside: !["loss-50", "loss-90"].contains(&name),
        clients: 1,
        later: Some(LATER),
        bytes: DROPPING_BYTES / transfers as u64,
        limit: estimate * 5 + Duration::from_secs(120),
    };
    Ok(Case::new(cell.key("mode second transfers loss_percent"), test, estimate))
}
