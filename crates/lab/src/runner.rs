//! Carries out an experiment: a new network per run, results as they come; or all of them into one folder, however often that is
//! interrupted.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

use crate::background::at_once;
use crate::emulator::Emulator;
use crate::error::{Doing, Error, Result};
use crate::experiment::{Case, Experiment, RunOptions, SideBySide};
use crate::namespace::Namespace;
use crate::partial::{Partial, run_of};
use crate::report::{Progress, Report, rough, say};
use crate::schedule::{Schedule, Turn};
use crate::workload::{BestPaths, Need, Prepared, Sample, Site};
use crate::{catalog, cleanup, controls, program};

/// Runs the experiment `name`: says how long it takes, shows how far it is, prints the results and writes them where
/// `options` ask for it.
///
/// A case that cannot be measured gets a note and no number. Fails where nothing could be measured, or a file arrived
/// changed.
pub fn run(name: &str, options: &RunOptions) -> Result<()> {
    let mut experiment = catalog::find(name, options)?;
    if let Some(rival) = &options.rival
        && experiment.add_rival(rival) == 0
    {
        return Err(Error::BadInput(format!(
            "`{name}` has no case that a rival could do: only those whose `system` is `nawa`, unless that is configured, have one"
        )));
    }
    run_experiment(&arranged(experiment, options)?, options)
}

/// Those cases, as often and as many at once, as `options` ask for.
pub(crate) fn arranged(mut experiment: Experiment, options: &RunOptions) -> Result<Experiment> {
    experiment.keep(&options.only)?;
    experiment.repeats = options.repeats.unwrap_or(experiment.repeats);
    experiment.side_by_side = options.side_by_side.map_or(experiment.side_by_side, SideBySide::Cases);
    Ok(experiment)
}

/// Runs `experiment` as it is.
pub fn run_experiment(experiment: &Experiment, options: &RunOptions) -> Result<()> {
    program::require(&programs(experiment))?;
    check_host()?;
    cleanup::start()?;
    let options = &RunOptions { run: run_of(experiment, options)?, ..options.clone() };
    let (experiment, _controls) = controls::provide(experiment, &options.nawa)?;
    let experiment = &experiment;
    let lab = Lab::new(options)?;
    let mut results = Results::new(experiment, options)?;
    for ((index, repeat), sample) in results.earlier.take() {
        lab.best_paths.learn(&sample);
        results.report.add(index, repeat, sample);
    }
    run_turns(&lab, &mut results)?;
    results.finish(options)
}

/// A turn that is over, and what came of each of its cases; or of the thread, if it panicked.
type Ended = (Turn, std::thread::Result<Vec<Result<Sample>>>);

/// Measures what no earlier run has measured, turn by turn as the schedule lets them begin.
fn run_turns(lab: &Lab, results: &mut Results) -> Result<()> {
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
    fn new(experiment: &'a Experiment, options: &RunOptions) -> Result<Self> {
        let (earlier, said) = Partial::open(experiment, options)?;
        let schedule = Schedule::new(experiment, options.seed, |case, repeat| earlier.has(case, repeat));
        let progress = Progress::start(experiment, said.as_deref(), &schedule);
        let mut report = Report::new(experiment, options);
        if earlier.len() > 0 {
            report.continues(earlier.len());
        }
        Ok(Self { experiment, schedule, report, progress, failure: None, earlier })
    }

    fn end(&mut self, turn: &Turn, outcomes: Vec<Result<Sample>>) -> Result<()> {
        self.schedule.end(turn);
        for (&index, outcome) in turn.cases.iter().zip(outcomes) {
            self.take(index, turn.repeat, outcome)?;
        }
        Ok(())
    }

    fn take(&mut self, index: usize, repeat: usize, outcome: Result<Sample>) -> Result<()> {
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
    fn finish(mut self, options: &RunOptions) -> Result<()> {
        self.progress.finish();
        self.report.compare();
        self.report.ends();
        self.report.print();
        self.report.write(options)?;
        self.earlier.remove();
        match self.failure {
            Some(failure) if self.report.is_empty() => Err(failure),
            _ => Ok(()),
        }
    }
}

/// Fails, in one sentence, where the lab cannot work at all.
pub(crate) fn check_host() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::Unusable(
            "the lab makes network namespaces and needs root: run it with sudo".into(),
        ));
    }
    let tun = std::fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun");
    tun.map_err(|error| {
        Error::Unusable(format!(
            "the lab's links need /dev/net/tun, which cannot be opened ({error}): load the module `tun` or pass the device in"
        ))
    })?;
    // Root of a container may lack what that takes, in more ways than can be listed.
    Namespace::create("check").map(drop).map_err(|error| {
        Error::Unusable(format!(
            "the lab cannot make a network namespace here ({error}): run it on the host, not in a container"
        ))
    })
}

pub(crate) fn programs(experiment: &Experiment) -> Vec<&'static str> {
    let needs = experiment.cases.iter().flat_map(|case| case.workload.needs());
    let program = |need| if let Need::Program(name) = need { Some(name) } else { None };
    std::iter::once("ip").chain(needs.filter_map(program)).collect()
}

struct Lab<'a> {
    options: &'a RunOptions,
    emulator: Emulator,
    folder: tempfile::TempDir,
    best_paths: BestPaths,
    /// Held by whoever makes networks: that takes CPU, and many guests that boot at once take long.
    preparing: Mutex<()>,
}

impl<'a> Lab<'a> {
    fn new(options: &'a RunOptions) -> Result<Self> {
        Ok(Self {
            options,
            emulator: Emulator::start()?,
            folder: cleanup::folder("")?,
            best_paths: BestPaths::default(),
            preparing: Mutex::new(()),
        })
    }

    /// One run of each case, each on a network of its own, at the same time. All cases of a repeat see the same chances, by `seed`.
    fn measure(&self, cases: &[Case], seed: u64) -> Vec<Result<Sample>> {
        let prepared = self.prepare_all(cases, seed);
        let outcomes = at_once(prepared, |one| one?.measure());
        outcomes.iter().flatten().for_each(|sample| self.best_paths.learn(sample));
        outcomes
    }

    /// All are ready before the first of them is measured.
    fn prepare_all<'c>(&'c self, cases: &'c [Case], seed: u64) -> Vec<Result<Box<dyn Prepared + 'c>>> {
        let _one_at_a_time = self.preparing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut prepared: Vec<_> = cases.iter().map(|case| self.prepare(case, seed)).collect();
        for one in &mut prepared {
            let up = one.as_mut().map_or(Ok(()), |one| one.finish());
            up.err().into_iter().for_each(|error| *one = Err(error));
        }
        prepared
    }

    fn prepare<'c>(&'c self, case: &'c Case, seed: u64) -> Result<Box<dyn Prepared + 'c>> {
        let folder = tempfile::tempdir_in(&self.folder).doing(|| "make a temporary folder".into())?;
        case.workload.prepare(Site {
            options: self.options,
            emulator: &self.emulator,
            files: self.folder.path(),
            folder,
            seed,
            title: Experiment::title(case),
            best_paths: &self.best_paths,
        })
    }
}

/// Runs every experiment of the lab; the results are `FOLDER/NAME.json`, and the series of each are in a folder NAME.
/// What is there already is not measured again.
///
/// What cannot be measured on this machine is said beforehand, and left out.
pub fn run_all(options: &RunOptions, folder: &Path) -> Result<()> {
    let find = |(name, _): (&'static str, _)| {
        let mut experiment = catalog::find(name, options)?;
        if let Some(rival) = &options.rival {
            experiment.add_rival(rival);
        }
        arranged(experiment, options)
    };
    let experiments = catalog::list().into_iter().map(find).collect::<Result<Vec<_>>>()?;
    run_each(&experiments, options, folder)
}

/// Runs these experiments likewise.
pub fn run_each(experiments: &[Experiment], options: &RunOptions, folder: &Path) -> Result<()> {
    program::require(&["ip"])?;
    check_host()?;
    std::fs::create_dir_all(folder).doing(|| format!("make the folder {}", folder.display()))?;
    let plan = experiments.iter().map(|experiment| Plan::of(experiment, options, folder));
    let plan = plan.collect::<Result<Vec<_>>>()?;
    let whole: Duration = plan.iter().map(|plan| plan.time).sum();
    say(&format!("{} experiments into {}, about {}", plan.len(), folder.display(), rough(whole)));
    plan.iter().for_each(Plan::say);
    for (experiment, plan) in experiments.iter().zip(&plan).filter(|(_, plan)| plan.skipped.is_none()) {
        let series = options.series.as_ref().map(|folder| folder.join(experiment.name));
        let options = RunOptions { json: Some(plan.file.clone()), series, ..options.clone() };
        match run_experiment(experiment, &options) {
            Err(error @ Error::Corrupted { .. }) => return Err(error),
            Err(error) => say(&format!("{}: nothing was measured: {error}", experiment.name)),
            Ok(()) => {}
        }
    }
    Ok(())
}

/// What is done about an experiment.
struct Plan {
    name: &'static str,
    file: PathBuf,
    time: Duration,
    /// Why it is not run at all.
    skipped: Option<String>,
    /// What of it is left out, and why.
    missing: Vec<String>,
}

impl Plan {
    fn of(experiment: &Experiment, options: &RunOptions, folder: &Path) -> Result<Self> {
        let file = folder.join(format!("{}.json", experiment.name));
        let (possible, missing) = controls::without_missing(experiment.clone());
        let skipped = match is_there(&file, &run_of(experiment, options)?)? {
            true => Some("it is there".to_owned()),
            false if possible.cases.is_empty() => Some("nothing of it can be measured here".to_owned()),
            false => program::require(&programs(&possible)).err().map(|error| error.to_string()),
        };
        let time = if skipped.is_some() { Duration::ZERO } else { possible.estimate() };
        Ok(Self { name: experiment.name, file, time, skipped, missing })
    }

    fn say(&self) {
        match &self.skipped {
            Some(why) => say(&format!("  {}: skipped, {why}", self.name)),
            None => say(&format!("  {}: about {}", self.name, rough(self.time))),
        }
        self.missing.iter().for_each(|note| say(&format!("    {note}")));
    }
}

/// Whether `file` has figures of this `run`. Fails if it has those of another.
fn is_there(file: &Path, run: &str) -> Result<bool> {
    let Ok(text) = std::fs::read(file) else { return Ok(false) };
    let result: Value = serde_json::from_slice(&text).unwrap_or_default();
    if result["conditions"]["run"] != run {
        return Err(Error::BadInput(format!(
            "{} is the result of another program, seed, size or selection: give another folder, or remove that file",
            file.display()
        )));
    }
    Ok(result["results"].as_array().is_some_and(|results| !results.is_empty()))
}
