//! All experiments into one folder, of one program and seed, however often that is interrupted.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::error::{Doing, Error};
use crate::experiment::{Experiment, RunOptions};
use crate::partial::run_of;
use crate::report::{rough, say};
use crate::runner::{arranged, check_host, programs, run_experiment};
use crate::{catalog, controls, program};

/// Runs every experiment of the lab; the results are `FOLDER/NAME.json`. What is there already is not measured again.
///
/// What cannot be measured on this machine is said beforehand, and left out.
pub fn run_all(options: &RunOptions, folder: &Path) -> Result<(), Error> {
    let find = |(name, _): (&'static str, _)| {
        let mut experiment = catalog::find(name, options)?;
        if let Some(rival) = &options.rival {
            experiment.add_rival(rival);
        }
        arranged(experiment, options)
    };
    let experiments = catalog::list().into_iter().map(find).collect::<Result<Vec<_>, _>>()?;
    run_each(&experiments, options, folder)
}

/// Runs these experiments likewise.
pub fn run_each(experiments: &[Experiment], options: &RunOptions, folder: &Path) -> Result<(), Error> {
    program::require(&["ip"])?;
    check_host()?;
    std::fs::create_dir_all(folder).doing(|| format!("make the folder {}", folder.display()))?;
    let plan = experiments.iter().map(|experiment| Plan::of(experiment, options, folder));
    let plan = plan.collect::<Result<Vec<_>, Error>>()?;
    let whole: Duration = plan.iter().map(|plan| plan.time).sum();
    say(&format!("{} experiments into {}, about {}", plan.len(), folder.display(), rough(whole)));
    plan.iter().for_each(Plan::say);
    for (experiment, plan) in experiments.iter().zip(&plan).filter(|(_, plan)| plan.skipped.is_none()) {
        let options = RunOptions { json: Some(plan.file.clone()), ..options.clone() };
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
    fn of(experiment: &Experiment, options: &RunOptions, folder: &Path) -> Result<Self, Error> {
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
fn is_there(file: &Path, run: &str) -> Result<bool, Error> {
    let Ok(text) = std::fs::read(file) else { return Ok(false) };
    let result: Value = serde_json::from_slice(&text).unwrap_or_default();
    if result["conditions"]["run"] != run {
        return Err(Error::OtherRun(file.into()));
    }
    Ok(result["results"].as_array().is_some_and(|results| !results.is_empty()))
}
