//! Carries out an experiment: a new network per run, results as they come.

use serde::{Deserialize, Serialize};

use crate::emulator::Emulator;
use crate::error::{Doing, Error};
use crate::experiment::{self, Case, Change, Event, Experiment, RunOptions, Workload};
use crate::network::Network;
use crate::partial::Partial;
use crate::report::{Progress, Report};
use crate::system::{Means, System};
use crate::workload::{Bench, fetch, stream};
use crate::{cleanup, hostile, namespace, program};

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
    let mut lab = Lab::new(options)?;
    let mut results = Results::new(experiment, options)?;
    for repeat in 0..experiment.repeats {
        for (index, case) in experiment.cases.iter().enumerate() {
            if let Some(sample) = results.earlier.take(index, repeat) {
                lab.learn(case, &sample);
                results.report.add(index, sample);
                continue;
            }
            results.progress.begin(case);
            let outcome = lab.measure(case, repeat as u64);
            results.take(index, repeat, case, outcome)?;
        }
    }
    results.finish(options)
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
                self.progress.end(case, &sample);
                self.report.add(index, sample);
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
    fn finish(self, options: &RunOptions) -> Result<(), Error> {
        self.progress.finish();
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
        }
    }
}

struct Lab<'a> {
    options: &'a RunOptions,
    emulator: Emulator,
    folder: tempfile::TempDir,
    /// The path on which a single CUBIC connection did best so far.
    best_path: usize,
    baselines: hostile::Baselines,
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

    /// One run of one case, on a network of its own. All cases of a repeat see the same chances.
    fn measure(&mut self, case: &Case, repeat: u64) -> Result<Sample, Error> {
        let seed = self.options.seed.wrapping_add(repeat * 1000);
        let network = Network::build(&self.emulator, &case.topology, seed)?;
        let folder = tempfile::tempdir_in(&self.folder).doing(|| "make a temporary folder".into())?;
        let means = Means { nawa: &self.options.nawa, folder: folder.path(), best_path: self.best_path };
        let mut ready = case.system.start(&network, &means)?;
        network.set_congestion_control(case.congestion_control)?;
        let bench = Bench {
            case,
            network: &network,
            nawa: &self.options.nawa,
            files: self.folder.path(),
            seed: self.options.seed,
        };
        let sample = match case.workload {
            Workload::Fetch { bytes, event } => fetch(&bench, &mut ready, bytes, event)?,
            Workload::Stream { protocol, time } => stream(&bench, &ready, protocol, time)?,
            Workload::Attacked { time, attack } => {
                hostile::measure(&bench, &ready, &means, time, attack, &mut self.baselines)?
            }
        };
        ready.check()?;
        drop(ready);
        cleanup::remove_own_sockets();
        self.learn(case, &sample);
        Ok(sample)
    }

    /// Remembers which path was best for CUBIC.
    fn learn(&mut self, case: &Case, sample: &Sample) {
        if case.system == System::BestTcp && case.congestion_control == "cubic" {
            self.best_path = sample.winner.unwrap_or(self.best_path);
        }
    }
}
