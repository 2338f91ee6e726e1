//! Runs a part of an experiment by hand: `NAWA=target/debug/nawa cargo run -p lab --example lab -- demo nawa nawa-cut`
//! runs only the cases whose key has one of the words after the experiment's name; without such a word, all.
//! `SEED` and `REPEATS` are what they say. `NAWA` is the `nawa` under test.

use std::process::ExitCode;

use lab::experiment::{Experiment, find};
use lab::{Error, RunOptions, run_experiment};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, words)) = arguments.split_first() else {
        lab::list().iter().for_each(|(name, about)| println!("{name}  {about}"));
        return ExitCode::SUCCESS;
    };
    match run(name, words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab: {error}");
            ExitCode::from(if error.is_bad_input() { 2 } else { 1 })
        }
    }
}

fn run(name: &str, words: &[String]) -> Result<(), Error> {
    let mut options = RunOptions::default();
    if let Some(nawa) = std::env::var_os("NAWA") {
        options.nawa = std::path::absolute(nawa).unwrap_or_default();
    }
    options.seed = variable("SEED").unwrap_or(RunOptions::SEED);
    let mut experiment = find(name, &options)?;
    if !words.is_empty() {
        experiment
            .cases
            .retain(|case| Experiment::title(case).split(' ').any(|word| words.iter().any(|w| w == word)));
    }
    experiment.repeats = variable("REPEATS").map_or(experiment.repeats, |repeats| repeats as usize);
    run_experiment(&experiment, &options)
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
