//! Carries out an experiment: a new network per run, results as they come.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::emulator::Emulator;
use crate::error::{Doing, Error};
use crate::experiment::{self, Case, Change, Event, Experiment, RunOptions, SideBySide, Workload};
use crate::flows::Guests;
use crate::network::Network;
use crate::partial::Partial;
use crate::report::{Progress, Report};
use crate::schedule::{Schedule, Turn};
use crate::system::{Means, Ready, System};
use crate::workload::{Bench, fetch, stream};
use crate::{bicast, bond, cleanup, coding, controls, flight, flood, hostile, namespace, program};

/// Runs the experiment `name`: says how long it takes, shows how far it is, prints the results and writes them where
/// `options` ask for it.
///
/// A case that cannot be measured gets a note and no number. Fails where nothing could be measured, or a file arrived
/// changed.
pub fn run(name: &str, options: &RunOptions) -> Result<(), Error> {
    let mut experiment = experiment::find(name, options)?;
    experiment.keep(&options.only)?;
    experiment.repeats = options.repeats.unwrap_or(experiment.repeats);
    experiment.side_by_side = options.side_by_side.map_or(experiment.side_by_side, SideBySide::Cases);
    run_experiment(&experiment, options)
}

/// Runs `experiment` as it is.
pub fn run_experiment(experiment: &Experiment, options: &RunOptions) -> Result<(), Error> {
    check_host()?;
    program::require(&programs(experiment))?;
    cleanup::start()?;
    let (experiment, _controls) = controls::provide(experiment, &options.nawa)?;
    let experiment = &experiment;
    let lab = Lab::new(options)?;
    let mut results = Results::new(experiment, options)?;
    results.add_earlier(&lab);
    run_turns(&lab, &mut results)?;
    results.finish(options)
}

/// A turn that is over, and what came of each of its cases; or of the thread, if it panicked.
type Ended = (Turn, std::thread::Result<Vec<Result<Sample, Error>>>);

/// Measures what no earlier run has measured, turn by turn as the schedule lets them begin.
fn run_turns(lab: &Lab, results: &mut Results) -> Result<(), Error> {
    let experiment = results.experiment;
    let (sender, ended) = channel::<Ended>();
    std::thread::scope(|scope| {
        loop {
            while let Some(turn) = results.schedule.begin() {
                let seed = lab.options.seed.wrapping_add(turn.repeat as u64 * 1000);
                let cases = experiment.drawn(&turn.cases, lab.options, seed)?;
                results.progress.begin(&cases);
                let sender = sender.clone();
                scope.spawn(move || {
                    let measure = || lab.measure(&cases, seed);
                    let outcomes = catch_unwind(AssertUnwindSafe(measure));
                    let _ = sender.send((turn, outcomes));
                });
            }
            if results.schedule.is_idle() {
                return Ok(());
            }
            let Ok((turn, outcomes)) = ended.recv() else { return Ok(()) };
            results.end(&turn, outcomes.unwrap_or_else(|panic| resume_unwind(panic)))?;
        }
    })
}

/// What has been measured so far, and what has not.
struct Results<'a> {
    experiment: &'a Experiment,
    schedule: Schedule,
    report: Report<'a>,
    progress: Progress,
    failure: Option<Error>,
    earlier: Partial,
}

impl<'a> Results<'a> {
    fn new(experiment: &'a Experiment, options: &RunOptions) -> Result<Self, Error> {
        let (earlier, said) = Partial::open(experiment, options)?;
        let schedule = Schedule::new(experiment, |case, repeat| earlier.has(case, repeat));
        let progress = Progress::start(experiment, said.as_deref(), &schedule);
        let mut report = Report::new(experiment, options);
        if earlier.len() > 0 {
            report.continues(earlier.len());
        }
        Ok(Self { experiment, schedule, report, progress, failure: None, earlier })
    }

    /// Takes over what an earlier run has measured.
    fn add_earlier(&mut self, lab: &Lab) {
        for ((index, repeat), sample) in self.earlier.take() {
            lab.learn(&self.experiment.cases[index], &sample);
            self.report.add(index, repeat, sample);
        }
    }

    fn end(&mut self, turn: &Turn, outcomes: Vec<Result<Sample, Error>>) -> Result<(), Error> {
        self.schedule.end(turn);
        if self.schedule.is_idle() {
            cleanup::remove_own_sockets();
        }
        for (&index, outcome) in turn.cases.iter().zip(outcomes) {
            self.take(index, turn.repeat, outcome)?;
        }
        Ok(())
    }

    fn take(&mut self, index: usize, repeat: usize, outcome: Result<Sample, Error>) -> Result<(), Error> {
        let case = &self.experiment.cases[index];
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
            Workload::Stream { .. } | Workload::Bond(_) | Workload::Attacked { .. } => &["iperf3", "ping"],
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
    best_path: AtomicUsize,
    /// Held by whoever makes networks: that takes CPU, and many guests that boot at once take long.
    preparing: Mutex<()>,
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
            best_path: AtomicUsize::new(0),
            preparing: Mutex::new(()),
            baselines: Default::default(),
        })
    }

    /// One run of each case, each on a network of its own, at the same time. All cases of a repeat see the same chances, by `seed`.
    fn measure(&self, cases: &[Case], seed: u64) -> Vec<Result<Sample, Error>> {
        let prepared = self.prepare_all(cases, seed);
        let outcomes = std::thread::scope(|scope| {
            let measure = |one: Result<Prepared, Error>| self.measure_one(one?, seed);
            let start = |one| scope.spawn(move || measure(one));
            let threads: Vec<_> = prepared.into_iter().map(start).collect();
            let end = |thread: std::thread::ScopedJoinHandle<_>| {
                thread.join().unwrap_or_else(|panic| resume_unwind(panic))
            };
            threads.into_iter().map(end).collect::<Vec<_>>()
        });
        for (case, outcome) in cases.iter().zip(&outcomes) {
            outcome.iter().for_each(|sample| self.learn(case, sample));
        }
        outcomes
    }

    /// All are ready before the first of them is measured.
    fn prepare_all<'c>(&self, cases: &'c [Case], seed: u64) -> Vec<Result<Prepared<'c>, Error>> {
        let _one_at_a_time = self.preparing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut prepared: Vec<_> = cases.iter().map(|case| self.prepare(case, seed)).collect();
        for one in &mut prepared {
            let up = one.as_mut().map_or(Ok(()), Prepared::finish);
            up.err().into_iter().for_each(|error| *one = Err(error));
        }
        prepared
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
            &Workload::Fetch { bytes, event, recovery } => fetch(&bench, &mut ready, bytes, event, recovery)?,
            &Workload::Stream { protocol, time } => stream(&bench, &ready, protocol, time)?,
            Workload::Bond(test) => bond::measure(&bench, &ready, test)?,
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
        Means { nawa: &self.options.nawa, folder, best_path: self.best_path.load(Relaxed) }
    }

    /// Remembers which path was best for CUBIC.
    fn learn(&self, case: &Case, sample: &Sample) {
        if case.system == System::BestTcp && case.congestion_control == "cubic" {
            sample.winner.into_iter().for_each(|path| self.best_path.store(path, Relaxed));
        }
    }
}
