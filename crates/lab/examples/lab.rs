//! Runs a part of an experiment by hand: `cargo run --release -p lab --example lab -- tunnel system=nawa,nawa-paper
//! paths=10` runs only the cases whose key has one of the values named for each of these keys.
//! `SIZE` (quick, paper), `SEED`, `REPEATS`, `JSON`, `TRACES`, `SERIES` and `SIDE_BY_SIDE` are what they
//! say. `NAWA` is the `nawa` under test; without it, the one that `cargo build --release -p nawa` has put into the same folder.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use lab::experiment::{Case, Experiment, SideBySide, find};
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
    match chosen(name, words, &options) {
        Ok(Ok(experiment)) => {
            run_experiment(&experiment, &options).map_or_else(failed, |()| ExitCode::SUCCESS)
        }
        Ok(Err(complaint)) => {
            eprintln!("lab: {complaint}");
            ExitCode::from(2)
        }
        Err(error) => failed(error),
    }
}

fn failed(error: Error) -> ExitCode {
    eprintln!("lab: {error}");
    ExitCode::from(if error.is_bad_input() { 2 } else { 1 })
}

/// The cases of `name` that have the values in `words`, or which word leaves none.
fn chosen(name: &str, words: &[String], options: &RunOptions) -> Result<Result<Experiment, String>, Error> {
    let mut experiment: Experiment = find(name, options)?;
    for word in words {
        let before = std::mem::take(&mut experiment.cases);
        experiment.cases = before.iter().filter(|case| has(case, word)).cloned().collect();
        if experiment.cases.is_empty() {
            return Ok(Err(format!("no case is left by `{word}`: {}", possible(&before, split(word).0))));
        }
    }
    experiment.repeats = number("REPEATS").map_or(experiment.repeats, |repeats| repeats as usize);
    experiment.side_by_side =
        number("SIDE_BY_SIDE").map_or(experiment.side_by_side, |cases| SideBySide::Cases(cases as usize));
    Ok(Ok(experiment))
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

/// What a word for `key` can say of `cases`.
fn possible(cases: &[Case], key: &str) -> String {
    let list = |words: BTreeSet<String>| Vec::from_iter(words).join(", ");
    let values: BTreeSet<_> = cases.iter().filter_map(|case| value(case, key)).collect();
    if values.is_empty() {
        let keys = cases.iter().flat_map(|case| case.key.iter().map(|(name, _)| (*name).to_owned()));
        return format!("the keys are {}", list(keys.collect()));
    }
    format!("`{key}` can be {}", list(values))
}

/// Whether `case` has one of the values in `word`, "KEY=VALUE,VALUE".
fn has(case: &Case, word: &str) -> bool {
    let (key, values) = split(word);
    value(case, key).is_some_and(|own| values.split(',').any(|value| value == own))
}

fn split(word: &str) -> (&str, &str) {
    word.split_once('=').unwrap_or(("system", word))
}

fn value(case: &Case, key: &str) -> Option<String> {
    let (_, value) = case.key.iter().find(|(name, _)| *name == key)?;
    Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
