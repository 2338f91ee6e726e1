//! `nawa lab`

use std::path::{Path, PathBuf};

use lab::{RunOptions, Size};

use crate::cli::{LabReport, LabRun};
use crate::failure::Failure;

/// Names the experiments, each with a line about it.
pub fn list() -> Result<(), Failure> {
    let widest = lab::list().iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    lab::list().iter().try_for_each(|(name, about)| super::print(&format!("{name:widest$}  {about}")))
}

/// Where `all` puts results if nothing else is said.
const FOLDER: &str = "lab-results";

/// Runs one, or all.
pub fn run(run: LabRun) -> Result<(), Failure> {
    let (name, out) = (run.name.clone(), run.out.clone());
    let options = options(run)?;
    let one = options.json.is_some() || options.html.is_some();
    let done = match (&*name, out) {
        ("all", None) if one => {
            Err("--json and --html are for one experiment; `nawa lab run all` has --out DIR")
        }
        ("all", out) => Ok(lab::run_all(&options, &out.unwrap_or_else(|| FOLDER.into()))),
        (_, Some(_)) => Err("--out is for `nawa lab run all`; one experiment has --json FILE"),
        (_, None) => Ok(lab::run(&name, &options)),
    };
    done.map_err(Failure::bad_input)?.map_err(failed)
}

/// Writes one page of a folder of results, and a picture.
pub fn report(LabReport { folder, html, picture }: LabReport) -> Result<(), Failure> {
    let file = html.unwrap_or_else(|| folder.join("report.html"));
    lab::report(&folder, &file).map_err(failed)?;
    super::print(&format!("{}", file.display()))?;
    let Some(picture) = picture else { return Ok(()) };
    lab::picture(&folder, &picture).map_err(failed)?;
    super::print(&format!("{}", picture.display()))
}

/// Draws the course of one run.
pub fn show(run: &Path) -> Result<(), Failure> {
    let file = run.with_extension("html");
    lab::show(run, &file).map_err(failed)?;
    super::print(&format!("{}", file.display()))
}

fn failed(error: lab::Error) -> Failure {
    if error.is_bad_input() { Failure::bad_input(error) } else { Failure::failed(error) }
}

fn options(run: LabRun) -> Result<RunOptions, Failure> {
    let size = match (run.quick, run.paper) {
        (true, _) => Size::Quick,
        (_, true) => Size::Paper,
        _ => Size::Normal,
    };
    let usual = RunOptions::default();
    let program = |file: Option<PathBuf>| match file {
        Some(file) if !file.is_file() => {
            Err(Failure::bad_input(format!("there is no program {}", file.display())))
        }
        file => file.map(std::path::absolute).transpose().map_err(Failure::failed),
    };
    let nawa = program(run.nawa)?.unwrap_or_else(|| usual.nawa.clone());
    let rival = program(run.rival)?;
    Ok(RunOptions {
        size,
        seed: run.seed.unwrap_or(RunOptions::SEED),
        traces: run.traces,
        links: run.links,
        json: run.json,
        html: run.html,
        series: run.series,
        only: run.only,
        repeats: run.repeats.map(|repeats| repeats as usize),
        side_by_side: run.side_by_side.map(|cases| cases as usize),
        commit: env!("NAWA_COMMIT").into(),
        nawa,
        rival,
        ..usual
    })
}
