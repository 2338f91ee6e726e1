//! The experiments of paper 004: files over SCTP between hosts with two paths, of which some packets go over both.

mod dropping;
mod experiments;
mod network;
mod spared;
mod tcp;
mod transfer;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use link::LinkConfig;
use serde_json::Value;

use crate::clock;
use crate::emulator::Emulator;
use crate::error::{Doing, Error};
use crate::guest;
use crate::program::require;
use crate::runner::Sample;
use crate::system::{Means, start_nawa};

use dropping::Beside;
pub(crate) use dropping::{ABOUT as ABOUT_DROPPING, experiment as dropping};
pub(crate) use experiments::{ABOUT_BUDGET, budget};
pub(crate) use experiments::{ABOUT_BURST, ABOUT_CUT, ABOUT_LOAD, ABOUT_LOSS, ABOUT_UNEVEN};
pub(crate) use experiments::{burst, cut, load, loss, uneven};
use network::{NawaInside, Network, PATHS};
pub(crate) use tcp::{ABOUT as ABOUT_TCP, experiment as tcp};
use transfer::{Outcome, Program};

/// Whose SCTP is at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// Linux's, in guests behind the two hosts of the network: the running kernel may have none.
    Linux,
    /// The same, whose programs ask for HEARTBEATs on all paths at once: by itself it waits for some seconds, in which
    /// nothing can be copied.
    LinuxProbed,
    /// That of the running kernel, where it has one, on the two hosts themselves; programs ask for HEARTBEATs likewise.
    LinuxNative,
    /// FreeBSD's as a library, on the two hosts themselves.
    Usrsctp,
}

impl Stack {
    fn is_in_guests(self) -> bool {
        matches!(self, Stack::Linux | Stack::LinuxProbed)
    }

    /// Whether programs ask for HEARTBEATs.
    fn is_probed(self) -> bool {
        matches!(self, Stack::LinuxProbed | Stack::LinuxNative)
    }

    fn name(self) -> &'static str {
        match self {
            Stack::Linux => "linux",
            Stack::LinuxProbed => "linux-probed",
            Stack::LinuxNative => "linux-native",
            Stack::Usrsctp => "usrsctp",
        }
    }

    /// Fails, in one sentence, where this machine does not have it.
    fn check(self) -> Result<(), Error> {
        match self {
            Stack::Linux | Stack::LinuxProbed => guest::check(&["sctp"]),
            Stack::LinuxNative => transfer::check_native(),
            Stack::Usrsctp => transfer::check_usrsctp(),
        }
    }
}

/// Where Nawa runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// On the hosts that are SCTP's ends.
    Host,
    /// On a router in front of each.
    Router,
}

impl Where {
    fn name(self) -> &'static str {
        match self {
            Where::Host => "host",
            Where::Router => "router",
        }
    }
}

/// Fails, in one sentence, where this machine lacks one of the stacks.
pub fn sctp_stacks() -> Result<(), Error> {
    [Stack::Linux, Stack::Usrsctp].into_iter().try_for_each(Stack::check)
}

/// Transfers at the same time between the same hosts.
#[derive(Clone, Debug)]
pub struct Test {
    stack: Stack,
    nawa_on: Where,
    /// `mode` in the configuration of both.
    mode: &'static str,
    /// `budget` there, in percent, if it is there.
    budget_percent: Option<u32>,
    /// Of each path: from client to server, and back.
    paths: [[LinkConfig; 2]; PATHS],
    /// Whether their losses spare what controls retransmission.
    spares: bool,
    /// How many, each a process with a primary path of its own. A single one is measured on each path, and the mean taken.
    transfers: usize,
    /// All keep to the first path.
    on_first: bool,
    /// A TCP flow that goes by the second path meanwhile.
    beside: Option<Beside>,
    /// Hosts that they come from, behind the one that runs Nawa; 1 for usrsctp.
    clients: usize,
    /// Since when copies are counted as well: when a path that fails on the way carries packets again.
    later: Option<Duration>,
    bytes: u64,
    /// When transfers that have not ended are given up.
    limit: Duration,
}

impl Test {
    /// Transfers so many bytes instead of the experiment's, as a test wants it.
    pub fn set_bytes(&mut self, bytes: u64) {
        self.bytes = bytes;
    }

    /// The name of its stack.
    pub(crate) fn stack(&self) -> &'static str {
        self.stack.name()
    }

    /// Why this machine cannot carry it out.
    pub(crate) fn missing(&self) -> Option<Error> {
        let strip = if self.nawa_in_guests() { &["strip"][..] } else { &[] };
        self.stack.check().and_then(|()| require(strip)).err()
    }

    fn nawa_in_guests(&self) -> bool {
        self.stack.is_in_guests() && self.nawa_on == Where::Host
    }

    /// The primary paths of its runs, each run on a network of its own.
    fn runs(&self) -> Vec<Vec<usize>> {
        match self.transfers {
            many if self.on_first => vec![vec![0; many]],
            1 => (0..PATHS).map(|path| vec![path]).collect(),
            many => vec![(0..many).map(|number| number % PATHS).collect()],
        }
    }
}

/// Networks on which Nawa runs, with hosts on their way up.
#[derive(Debug)]
pub(crate) struct Prepared {
    test: Test,
    runs: Vec<Run>,
}

#[derive(Debug)]
struct Run {
    primaries: Vec<usize>,
    network: Network,
    program: Program,
    // Dropped last: what it writes goes there. None where it runs in guests.
    _nawa: Vec<crate::program::Process>,
}

/// Makes the networks of `test`; hosts that are guests begin to boot.
pub(crate) fn prepare(test: &Test, emulator: &Emulator, means: &Means, seed: u64) -> Result<Prepared, Error> {
    let program = Program::make(test.stack, means.folder)?;
    let inside = test.nawa_in_guests().then(|| inside(test, means)).transpose()?;
    let mut runs = Vec::new();
    for (number, primaries) in test.runs().into_iter().enumerate() {
        let seed = seed.wrapping_add(500 * number as u64);
        let network = Network::build(emulator, test, &program, inside.as_ref(), seed)?;
        let mut nawa = Vec::new();
        if inside.is_none() {
            for (name, host) in [("client", &network.client), ("server", &network.server)] {
                let text = configuration(test, ["p1", "p2"]);
                nawa.push(start_nawa(means, host, &[], &format!("{name}{number}"), &text)?);
            }
        }
        runs.push(Run { primaries, network, program: program.clone(), _nawa: nawa });
    }
    Ok(Prepared { test: test.clone(), runs })
}

fn configuration(test: &Test, [one, two]: [&str; PATHS]) -> String {
    let forwarding = test.nawa_on == Where::Router;
    let budget = test.budget_percent.map_or(String::new(), |percent| format!("budget = \"{percent}%\"\n"));
    format!(
        "[bicast]\ninterfaces = [\"{one}\", \"{two}\"]\nmode = \"{}\"\nforwarding = {forwarding}\n{budget}",
        test.mode
    )
}

/// Nawa as guests have it, without what only a debugger reads: a guest's files are in its memory.
fn inside(test: &Test, means: &Means) -> Result<NawaInside, Error> {
    let program = means.folder.join("nawa");
    let output = Command::new("strip").arg("-o").args([&program, means.nawa]).stdin(Stdio::null()).output();
    let output = output.doing(|| "start `strip`".into())?;
    if !output.status.success() {
        return Err(Error::program("strip", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(NawaInside { program, configuration: configuration(test, ["vec0", "vec1"]) })
}

impl Prepared {
    /// Waits until all hosts are up.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        self.runs.iter_mut().try_for_each(|run| run.network.finish())
    }

    /// Does all transfers.
    pub(crate) fn measure(mut self, nawa: &Path) -> Result<Sample, Error> {
        let test = &self.test;
        let all = std::thread::scope(|scope| {
            let start = |run| scope.spawn(move || measure(run, test, nawa));
            let threads: Vec<_> = self.runs.iter_mut().map(start).collect();
            let end = |thread: std::thread::ScopedJoinHandle<_>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(end).collect::<Result<Vec<_>, Error>>()
        })?;
        Ok(Sample { metrics: mean(&all), ..Sample::default() })
    }
}

type Metrics = Vec<(String, f64)>;

fn measure(run: &mut Run, test: &Test, nawa: &Path) -> Result<Metrics, Error> {
    let started = clock::now();
    run.network.restart_links();
    let beside = test.beside.map(|beside| beside.start(&run.network)).transpose()?;
    let mut before = None;
    let outcomes = transfer::run(&mut run.network, &run.program, test, &run.primaries, |network| {
        if let Some(later) = test.later {
            let at = started + later;
            clock::poll_until(later, || (clock::now() >= at).then_some(()));
            before = Some(Copied::read(network, nawa)?);
        }
        Ok(())
    })?;
    let copied = Copied::read(&mut run.network, nawa)?;
    let mut metrics = metrics(&outcomes, &copied);
    if test.on_first {
        metrics.push(("copied_ratio".to_owned(), copied.extra / copied.sent.max(1.0)));
    }
    if let Some(before) = before {
        let (sent, extra) = (copied.sent - before.sent, copied.extra - before.extra);
        metrics.push(("later_copies".to_owned(), copied.copies - before.copies));
        metrics.push(("later_copied_ratio".to_owned(), extra / sent.max(1.0)));
    }
    if let Some(beside) = beside {
        metrics.push(("tcp_goodput_mbps".to_owned(), beside.finish()?));
    }
    Ok(metrics)
}

/// The transfers' mean time, their longest gap, and what they counted together.
fn metrics(outcomes: &[Outcome], copied: &Copied) -> Metrics {
    let time: f64 = outcomes.iter().map(|outcome| outcome.seconds).sum::<f64>() / outcomes.len() as f64;
    let gap = outcomes.iter().map(|outcome| outcome.longest_gap_ms).fold(0.0, f64::max);
    let gaps: f64 = outcomes.iter().map(|outcome| outcome.long_gaps).sum();
    let t3: f64 = outcomes.iter().map(|outcome| outcome.t3_expiries).sum();
    let resent: f64 = outcomes.iter().map(|outcome| outcome.retransmitted_chunks).sum();
    let values = [
        ("transfer_s", time),
        ("longest_gap_ms", gap),
        ("gaps_over_500ms", gaps),
        ("t3_expiries", t3),
        ("retransmitted_chunks", resent),
        ("extra_bytes_ratio", copied.extra / copied.sent.max(1.0)),
    ];
    values.map(|(name, value)| (name.to_owned(), value)).into()
}

/// Of each metric the mean over runs.
fn mean(runs: &[Metrics]) -> Metrics {
    let mean = |index: usize| {
        let sum: f64 = runs.iter().map(|metrics| metrics[index].1).sum();
        (runs[0][index].0.clone(), sum / runs.len() as f64)
    };
    (0..runs.first().map_or(0, Vec::len)).map(mean).collect()
}

/// Bytes that both ends sent, and those of the copies beside them; how many copies.
#[derive(Clone, Copy, Debug, Default)]
struct Copied {
    sent: f64,
    extra: f64,
    copies: f64,
}

impl Copied {
    fn read(network: &mut Network, nawa: &Path) -> Result<Self, Error> {
        let mut copied = Self::default();
        for text in network.status(nawa)? {
            let status: Value = serde_json::from_str(&text)
                .map_err(std::io::Error::from)
                .doing(|| "read nawa's status".into())?;
            let number = |key: &str| status["bicast"][key].as_f64();
            let missing = || Error::program("nawa status --json", "it shows no bytes of bicast");
            copied.sent += number("sent_bytes").ok_or_else(missing)?;
            copied.extra += number("extra_bytes").ok_or_else(missing)?;
            copied.copies += number("duplicated_packets").ok_or_else(missing)?;
        }
        Ok(copied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_transfers_did_is_added_or_averaged() {
        let one = Outcome { seconds: 2.0, longest_gap_ms: 7.0, t3_expiries: 1.0, ..Outcome::default() };
        let two = Outcome { seconds: 4.0, longest_gap_ms: 5.0, t3_expiries: 2.0, ..Outcome::default() };
        let metrics = metrics(&[one, two], &Copied { sent: 200.0, extra: 10.0, copies: 1.0 });
        let value = |name: &str| metrics.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
        assert_eq!((value("transfer_s"), value("longest_gap_ms")), (Some(3.0), Some(7.0)));
        assert_eq!((value("t3_expiries"), value("extra_bytes_ratio")), (Some(3.0), Some(0.05)));
    }

    #[test]
    fn a_single_transfer_is_the_mean_over_both_paths() {
        let run = |value: f64| vec![("transfer_s".to_owned(), value)];
        assert_eq!(mean(&[run(1.0), run(3.0)]), run(2.0));
    }
}
