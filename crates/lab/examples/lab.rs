//! Runs an experiment, or a part of it, by hand: `cargo run --release -p lab --example lab -- tunnel
//! system=nawa,nawa-paper paths=10` is `nawa lab run tunnel …` with a choice of repeats and of the `nawa` under test.
//! `SIZE` (quick, paper), `SEED`, `REPEATS`, `JSON`, `TRACES`, `SERIES`, `SIDE_BY_SIDE` (cases) and `RATES` (their sum, Mbit/s) are what they
//! say. `NAWA` is the `nawa` under test; without it, the one that `cargo build --release -p nawa` has put into the same folder.

use std::path::PathBuf;
use std::process::ExitCode;

use lab::experiment::{Experiment, SideBySide, find};
use lab::{Error, RunOptions, Size, run_experiment};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, words)) = arguments.split_first() else {
        lab::list().iter().for_each(|(name, about)| println!("{name}  {about}"));
        return ExitCode::SUCCESS;
    };
    let options = options();
    if !options.nawa.is_file() {
        eprintln!("lab: there is no {}: build it (-p nawa), or name another by NAWA", options.nawa.display());
    }
    let run = |experiment| run_experiment(&experiment, &options);
    chosen(name, words, &options).and_then(run).map_or_else(failed, |()| ExitCode::SUCCESS)
}

fn failed(error: Error) -> ExitCode {
    eprintln!("lab: {error}");
    ExitCode::from(if error.is_bad_input() { 2 } else { 1 })
}

/// The cases of `name` that have the values in `words`.
fn chosen(name: &str, words: &[String], options: &RunOptions) -> Result<Experiment, Error> {
    let mut experiment: Experiment = find(name, options)?;
    experiment.keep(words)?;
    experiment.repeats = number("REPEATS").map_or(experiment.repeats, |repeats| repeats as usize);
    experiment.side_by_side =
        number("SIDE_BY_SIDE").map_or(experiment.side_by_side, |cases| SideBySide::Cases(cases as usize));
    if let Some(rates) = number("RATES") {
        experiment.side_by_side = SideBySide::Rates(link::Bitrate::from_mbps(rates as f64));
    }
    Ok(experiment)
}

fn options() -> RunOptions {
    let size = match std::env::var("SIZE").as_deref() {
        Ok("quick") => Size::Quick,
        Ok("paper") => Size::Paper,
        _ => Size::Normal,
    };
    let mut options =
        RunOptions { size, json: std::env::var_os("JSON").map(Into::into), ..RunOptions::default() };
    let nawa = std::env::var_os("NAWA").map_or_else(built, PathBuf::from);
    options.nawa = std::path::absolute(nawa).unwrap_or_default();
    options.traces = std::env::var_os("TRACES").map(Into::into);
    options.series = std::env::var_os("SERIES").map(Into::into);
    options.seed = number("SEED").unwrap_or(RunOptions::SEED);
    options
}

/// The `nawa` of the same build: this program is beside it in `examples`.
fn built() -> PathBuf {
    let this = std::env::current_exe().unwrap_or_default();
    this.ancestors().nth(2).unwrap_or(&this).join("nawa")
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
