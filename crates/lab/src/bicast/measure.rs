//! One sample: transfers on networks on which Nawa runs, and what it copied.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use super::network::{NawaInside, Network};
use super::test::{PATHS, Test};
use super::transfer::{self, Outcome, Program};
use crate::background::at_once;
use crate::clock;
use crate::counters::Counters;
use crate::emulator::Wire;
use crate::error::{Doing, Result};
use crate::experiment::Fields;
use crate::iperf::Iperf;
use crate::program::Process;
use crate::system::{Means, start_nawa};
use crate::workload::{self, Need, Sample, Site, Workload};

impl Workload for Test {
    fn needs(&self) -> Vec<Need> {
        let stack = self.stack;
        vec![Need::Other(stack.name().into(), Box::new(move || stack.check()))]
    }

    fn prepare<'a>(&'a self, site: Site<'a>) -> Result<Box<dyn workload::Prepared + 'a>> {
        let (means, mut runs) = (site.means(), Vec::new());
        let program = Program::make(self.stack, means.folder)?;
        for (number, primaries) in (0..).zip(self.runs()) {
            let seed = site.seed.wrapping_add(500 * number);
            let inside = self.nawa_in_guests().then(|| inside(self, &means)).transpose()?;
            let network = Network::build(site.emulator, self, inside, seed)?;
            let mut nawa = Vec::new();
            if !self.nawa_in_guests() {
                for (name, host) in [("client", &network.client), ("server", &network.server)] {
                    let text = configuration(self, ["p1", "p2"]);
                    nawa.push(start_nawa(&means, host, &[], &format!("{name}{number}"), &text)?);
                }
            }
            runs.push(Run { primaries, network, program: program.clone(), _nawa: nawa });
        }
        Ok(Box::new(Prepared { test: self, runs, site }))
    }
}

/// Networks on which Nawa runs, with hosts on their way up.
struct Prepared<'a> {
    // Dropped in this order.
    runs: Vec<Run>,
    site: Site<'a>,
    test: &'a Test,
}

struct Run {
    primaries: Vec<usize>,
    network: Network,
    program: Program,
    // Dropped last: what it writes goes there. None where it runs in guests.
    _nawa: Vec<Process>,
}

fn configuration(test: &Test, [one, two]: [&str; PATHS]) -> String {
    let Test { mode, on_routers, .. } = test;
    let budget = test.budget_percent.map_or(String::new(), |percent| format!("budget = \"{percent}%\"\n"));
    format!(
        "[bicast]\ninterfaces = [\"{one}\", \"{two}\"]\nmode = \"{mode}\"\nforwarding = {on_routers}\n{budget}"
    )
}

/// Nawa as guests have it, which have another working directory and can write only to `/run`.
fn inside(test: &Test, means: &Means) -> Result<NawaInside> {
    let (nawa, path) = (fs::canonicalize(means.nawa), means.folder.join("guest.toml"));
    let nawa = nawa.doing(|| format!("find {}", means.nawa.display()))?;
    fs::write(&path, configuration(test, ["vec0", "vec1"])).doing(|| format!("write {}", path.display()))?;
    let (nawa, path) = (nawa.display(), path.display());
    let up = format!("STATE_DIRECTORY=/run/nawa-state '{nawa}' up '{path}'");
    Ok(NawaInside { up, status: format!("'{nawa}' status --json") })
}

impl workload::Prepared for Prepared<'_> {
    fn finish(&mut self) -> Result<()> {
        self.runs.iter_mut().try_for_each(|run| run.network.finish())
    }

    fn measure(mut self: Box<Self>) -> Result<Sample> {
        let (test, nawa) = (self.test, &self.site.options.nawa);
        let all = at_once(self.runs.iter_mut(), |run| measure(run, test, nawa));
        Ok(mean(&all.into_iter().collect::<Result<Vec<_>>>()?).into())
    }
}

type Metrics = Fields<f64>;

fn measure(run: &mut Run, test: &Test, nawa: &Path) -> Result<Metrics> {
    let started = clock::now();
    run.network.wires.iter().for_each(Wire::restart);
    let beside = test.beside.then(|| start_beside(&run.network)).transpose()?;
    let mut before = None;
    let outcomes = transfer::run(&mut run.network, &run.program, test, &run.primaries, |network| {
        if let Some(later) = test.later {
            let at = started + later;
            clock::poll_until(later, || (clock::now() >= at).then_some(()));
            before = Some(copied(network, nawa)?);
        }
        Ok(())
    })?;
    let copied = copied(&mut run.network, nawa)?;
    let mut metrics = metrics(&outcomes, &copied);
    if test.on_first {
        metrics.push(("copied_ratio", extra_ratio(&copied)));
    }
    if let Some(before) = before {
        let later = copied.since(&before);
        metrics.push(("later_copies", later.get("duplicated_packets")));
        metrics.push(("later_copied_ratio", extra_ratio(&later)));
    }
    if let Some((client, _server)) = beside {
        metrics.push(("tcp_goodput_mbps", Iperf::finish(client)?.goodput_mbps));
    }
    Ok(metrics)
}

/// How long a TCP flow goes by the second path.
const BESIDE: Duration = Duration::from_secs(10);

/// A TCP flow by the second path, in the direction of the transfers: its client and its server.
fn start_beside(network: &Network) -> Result<(Process, Process)> {
    let address = Ipv4Addr::new(10, 2, 0, 2).into();
    let server = Iperf::serve(&network.server, &[], address)?;
    Ok((Iperf { time: BESIDE, ..Iperf::tcp(address, None, "cubic") }.start(&network.client, &[])?, server))
}

/// The transfers' mean time, their longest gap, and what they counted together.
fn metrics(outcomes: &[Outcome], copied: &Counters) -> Metrics {
    let sum = |of: fn(&Outcome) -> f64| outcomes.iter().map(of).sum::<f64>();
    vec![
        ("transfer_s", sum(|outcome| outcome.seconds) / outcomes.len() as f64),
        ("longest_gap_ms", outcomes.iter().map(|outcome| outcome.longest_gap_ms).fold(0.0, f64::max)),
        ("gaps_over_500ms", sum(|outcome| outcome.long_gaps)),
        ("t3_expiries", sum(|outcome| outcome.t3_expiries)),
        ("retransmitted_chunks", sum(|outcome| outcome.retransmitted_chunks)),
        ("extra_bytes_ratio", extra_ratio(copied)),
    ]
}

fn mean(runs: &[Metrics]) -> Metrics {
    let sum = |index: usize| runs.iter().map(|metrics| metrics[index].1).sum::<f64>();
    let names = runs.iter().take(1).flatten().map(|(name, _)| *name);
    names.enumerate().map(|(index, name)| (name, sum(index) / runs.len() as f64)).collect()
}

/// Of both ends: bytes that they sent, those of the copies beside them, and how many copies.
const NAMES: &str = "sent_bytes extra_bytes duplicated_packets";

fn copied(network: &mut Network, nawa: &Path) -> Result<Counters> {
    let mut copied = Counters::default();
    for status in network.status(nawa)? {
        copied.add_all(&status["bicast"], NAMES)?;
    }
    Ok(copied)
}

/// Bytes of copies over the others.
fn extra_ratio(copied: &Counters) -> f64 {
    copied.get("extra_bytes") / copied.get("sent_bytes").max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_transfers_did_is_added_or_averaged() {
        let one = Outcome { seconds: 2.0, longest_gap_ms: 7.0, t3_expiries: 1.0, ..Outcome::default() };
        let two = Outcome { seconds: 4.0, longest_gap_ms: 5.0, t3_expiries: 2.0, ..Outcome::default() };
        let mut copied = Counters::default();
        copied.add("sent_bytes", 200.0);
        copied.add("extra_bytes", 10.0);
        let metrics = metrics(&[one, two], &copied);
        let value = |name: &str| metrics.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        assert_eq!((value("transfer_s"), value("longest_gap_ms")), (Some(3.0), Some(7.0)));
        assert_eq!((value("t3_expiries"), value("extra_bytes_ratio")), (Some(3.0), Some(0.05)));
    }
}
