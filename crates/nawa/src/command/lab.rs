//! `nawa lab`

use lab::{RunOptions, Size};

use crate::cli::LabRun;
use crate::failure::Failure;

/// Names the experiments, each with a line about it.
pub fn list() -> Result<(), Failure> {
    let widest = lab::list().iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    lab::list().iter().try_for_each(|(name, about)| super::print(&format!("{name:widest$}  {about}")))
}

/// Runs one.
pub fn run(run: LabRun) -> Result<(), Failure> {
    let name = run.name.clone();
    lab::run(&name, &options(run)?).map_err(|error| match error.is_bad_input() {
        true => Failure::bad_input(error),
        false => Failure::failed(error),
    })
}

fn options(run: LabRun) -> Result<RunOptions, Failure> {
    let size = match (run.quick, run.paper) {
        (true, _) => Size::Quick,
        (_, true) => Size::Paper,
        _ => Size::Normal,
    };
    let usual = RunOptions::default();
    let nawa = match run.nawa {
        Some(nawa) if !nawa.is_file() => {
            return Err(Failure::bad_input(format!("there is no program {}", nawa.display())));
        }
        Some(nawa) => std::path::absolute(nawa).map_err(Failure::failed)?,
        None => usual.nawa,
    };
    Ok(RunOptions {
        size,
        seed: run.seed.unwrap_or(RunOptions::SEED),
        traces: run.traces,
        json: run.json,
        html: run.html,
        series: run.series,
        only: run.only,
        repeats: run.repeats.map(|repeats| repeats as usize),
        side_by_side: run.side_by_side.map(|cases| cases as usize),
        commit: env!("NAWA_COMMIT").into(),
        nawa,
    })
}
