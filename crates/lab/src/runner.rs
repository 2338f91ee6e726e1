//! Carries out an experiment: a new network per run, results as they come.

use std::path::Path;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::emulator::Emulator;
use crate::error::{Doing, Error};
use crate::experiment::{self, Case, Change, Event, Experiment, RunOptions, Workload};
use crate::flows::Guests;
use crate::network::Network;
use crate::partial::Partial;
use crate::report::{Progress, Report};
use crate::system::{Means, Ready, System};
use crate::workload::{Bench, fetch, stream};
use crate::{bicast, cleanup, coding, controls, flight, flood, hostile, namespace, program};

/// Runs the experiment `name`: says how long it takes, shows how far it is, prints the results and writes them where
/// `options` ask for it.
///
/// A case that cannot be measured gets a note and no number. Fails where nothing could be measured, or a file arrived
/// changed.
pub fn run(name: &str, options: &RunOptions) -> Result<(), Error> {
    run_experiment(&experiment::find(name, options)?, options)
}

/// Runs `experiment` as [`run`] does.
pub fn run_experiment(experiment: &Experiment, options: &RunOptions) -> Result<(), Error> {
    check_host()?;
    program::require(&programs(experiment))?;
    cleanup::start()?;
    let (experiment, _controls) = controls::provide(experiment, &options.nawa)?;
    let experiment = &experiment;
    let mut lab = Lab::new(options)?;
    let mut results = Results::new(experiment, options)?;
    for repeat in 0..experiment.repeats {
        let mut index = 0;
        for group in experiment.groups() {
            run_group(&mut lab, &mut results, (index, group), repeat)?;
            index += group.len();
        }
    }
    results.finish(options)
}

/// Measures those of `group`, whose first case has the index given, that no earlier run has measured.
fn run_group(
    lab: &mut Lab,
    results: &mut Results,
    (first, group): (usize, &[Case]),
    repeat: usize,
) -> Result<(), Error> {
    let mut missing = Vec::new();
    for (index, case) in (first..).zip(group) {
        match results.earlier.take(index, repeat) {
            Some(sample) => {
                lab.learn(case, &sample);
                results.report.add(index, repeat, sample);
            }
            None => missing.push((index, case)),
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let cases: Vec<&Case> = missing.iter().map(|&(_, case)| case).collect();
    results.progress.begin(&cases);
    let outcomes = lab.measure(&cases, repeat as u64);
    for ((index, case), outcome) in missing.into_iter().zip(outcomes) {
        results.take(index, repeat, case, outcome)?;
    }
    results.progress.end();
    Ok(())
}

/// What has been measured so far, and what has not.
struct Results<'a> {
    report: Report<'a>,
    progress: Progress,
    failure: Option<Error>,
    earlier: Partial,
}

impl<'a> Results<'a> {
    fn new(experiment: &'a Experiment, options: &RunOptions) -> Result<Self, Error> {
        let (earlier, said) = Partial::open(experiment, options)?;
        let progress = Progress::start(experiment, said.as_deref(), |case, n| earlier.has(case, n));
        let mut report = Report::new(experiment, options);
        if earlier.len() > 0 {
            report.continues(earlier.len());
        }
        Ok(Self { report, progress, failure: None, earlier })
    }

    fn take(
        &mut self,
        index: usize,
        repeat: usize,
        case: &Case,
        outcome: Result<Sample, Error>,
    ) -> Result<(), Error> {
        match outcome {
            Ok(sample) => {
                self.earlier.record(index, repeat, &sample)?;
                self.progress.show(case, &sample);
                self.report.add(index, repeat, sample);
            }
            Err(corrupted @ Error::Corrupted { .. }) => return Err(corrupted),
            Err(error) => {
                cleanup::await_end_if_interrupted();
                self.progress.fail(case, &error);
                self.report.fail(index, &error);
                self.failure = Some(error);
            }
        }
        Ok(())
    }

    /// Fails with the last failure if nothing was measured.
    fn finish(mut self, options: &RunOptions) -> Result<(), Error> {
        self.progress.finish();
        self.report.compare();
        self.report.print();
        self.report.write(options)?;
        self.earlier.remove();
        match self.failure {
            Some(failure) if self.report.is_empty() => Err(failure),
            _ => Ok(()),
        }
    }
}

/// What one run of a case measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Names and values, in order.
    pub(crate) metrics: Vec<(String, f64)>,
    /// What else there is to say, such as which link was best.
    pub(crate) remark: Option<String>,
    /// The path (from 0) of the connection that was first to finish.
    pub(crate) winner: Option<usize>,
}

/// Fails, in one sentence, where the lab cannot work at all.
fn check_host() -> Result<(), Error> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::NotRoot);
    }
    let tun = std::fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun");
    tun.map(drop).map_err(Error::NoTun)
}

fn programs(experiment: &Experiment) -> Vec<&'static str> {
    let mut programs = vec!["ip"];
    for case in &experiment.cases {
        programs.extend(case.system.programs());
        programs.extend(case.workload.programs());
    }
    programs
}

impl Workload {
    fn programs(&self) -> &'static [&'static str] {
        match self {
            Workload::Fetch { event: Some(Event { change: Change::Rebind, .. }), .. } => {
                &["curl", "busybox", "ping", "nft"]
            }
            Workload::Fetch { .. } => &["curl", "busybox", "ping"],
            Workload::Stream { .. } | Workload::Attacked { .. } => &["iperf3", "ping"],
            Workload::Flows(_) => &[],
            Workload::Flood(test) => test.programs(),
            Workload::Coding(_) => &["ethtool", "ping"],
            Workload::Bicast(_) => &[],
        }
    }
}

/// A network, and a system in it that carries traffic.
struct Prepared<'a> {
    case: &'a Case,
    ready: Ready,
    guests: Guests,
    sctp: Option<bicast::Prepared>,
    network: Network,
    folder: tempfile::TempDir,
}

impl Prepared<'_> {
    /// Waits until all guests are up.
    fn finish(&mut self) -> Result<(), Error> {
        self.guests.finish()?;
        self.sctp.as_mut().map_or(Ok(()), bicast::Prepared::finish)
    }
}

struct Lab<'a> {
    options: &'a RunOptions,
    emulator: Emulator,
    folder: tempfile::TempDir,
    /// The path on which a single CUBIC connection did best so far.
    best_path: usize,
    baselines: Mutex<hostile::Baselines>,
}

impl<'a> Lab<'a> {
    fn new(options: &'a RunOptions) -> Result<Self, Error> {
        let _not_while_cleaning = cleanup::hold_off();
        let prefix = format!("{}{}-", namespace::PREFIX, std::process::id());
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir();
        let folder = folder.doing(|| "make a temporary folder".into())?;
        Ok(Self {
            options,
            emulator: Emulator::start()?,
            folder,
            best_path: 0,
            baselines: Default::default(),
        })
    }

    /// One run of each case, each on a network of its own, at the same time. All cases of a repeat see the same chances.
    fn measure(&mut self, cases: &[&Case], repeat: u64) -> Vec<Result<Sample, Error>> {
        let seed = self.options.seed.wrapping_add(repeat * 1000);
        // All are ready before the first is measured: making a network takes CPU.
        let mut prepared: Vec<_> = cases.iter().map(|case| self.prepare(case, seed)).collect();
        for one in &mut prepared {
            let up = one.as_mut().map_or(Ok(()), Prepared::finish);
            up.err().into_iter().for_each(|error| *one = Err(error));
        }
        let lab = &*self;
        let outcomes = std::thread::scope(|scope| {
            let measure = |one: Result<Prepared, Error>| lab.measure_one(one?, seed);
            let start = |one| scope.spawn(move || measure(one));
            let threads: Vec<_> = prepared.into_iter().map(start).collect();
            let end = |thread: std::thread::ScopedJoinHandle<_>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(end).collect::<Vec<_>>()
        });
        cleanup::remove_own_sockets();
        for (case, outcome) in cases.iter().zip(&outcomes) {
            outcome.iter().for_each(|sample| self.learn(case, sample));
        }
        outcomes
    }

    fn prepare<'c>(&self, case: &'c Case, seed: u64) -> Result<Prepared<'c>, Error> {
        let network = Network::build(&self.emulator, &case.topology, seed)?;
        let folder = tempfile::tempdir_in(&self.folder).doing(|| "make a temporary folder".into())?;
        let ready = case.system.start(&network, &self.means(folder.path()))?;
        network.set_congestion_control(case.congestion_control)?;
        let guests = match &case.workload {
            Workload::Flows(test) => Guests::boot(&network, test)?,
            _ => Guests::default(),
        };
        let sctp = match &case.workload {
            Workload::Bicast(test) => {
                Some(bicast::prepare(test, &self.emulator, &self.means(folder.path()), seed)?)
            }
            _ => None,
        };
        Ok(Prepared { case, ready, guests, sctp, network, folder })
    }

    fn measure_one(&self, prepared: Prepared, seed: u64) -> Result<Sample, Error> {
        let Prepared { case, mut ready, mut guests, sctp, network, folder } = prepared;
        let bench = Bench {
            case,
            network: &network,
            nawa: &self.options.nawa,
            files: self.folder.path(),
            seed: self.options.seed,
        };
        let sample = match &case.workload {
            &Workload::Fetch { bytes, event } => fetch(&bench, &mut ready, bytes, event)?,
            &Workload::Stream { protocol, time } => stream(&bench, &ready, protocol, time)?,
            Workload::Flows(test) => {
                flight::measure(&bench, &mut guests, test, seed, self.options.series.as_deref())?
            }
            &Workload::Attacked { time, attack } => {
                let means = self.means(folder.path());
                hostile::measure(&bench, &ready, &means, time, attack, &self.baselines)?
            }
            Workload::Flood(test) => flood::measure(test, &self.means(folder.path()), seed)?,
            Workload::Coding(test) => coding::measure(test, &self.means(folder.path()), seed)?,
            Workload::Bicast(_) => {
                sctp.map_or(Ok(Sample::default()), |sctp| sctp.measure(&self.options.nawa))?
            }
        };
        ready.check()?;
        Ok(sample)
    }

    fn means<'m>(&'m self, folder: &'m Path) -> Means<'m> {
        Means { nawa: &self.options.nawa, folder, best_path: self.best_path }
    }

    /// Remembers which path was best for CUBIC.
    fn learn(&mut self, case: &Case, sample: &Sample) {
        if case.system == System::BestTcp && case.congestion_control == "cubic" {
            self.best_path = sample.winner.unwrap_or(self.best_path);
        }
    }
}
