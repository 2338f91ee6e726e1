//! `convoy NAWA SECONDS [SEED]`: the convoy of `nawa lab run field` with all strands, under faults drawn by the seed, until the time is
//! over; then what leaked, what did not recover, and what `nawa down` left. Needs root.

use std::process::ExitCode;
use std::time::Duration;

use lab::field::{Plan, endure};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| words.get(index).and_then(|word| word.parse().ok());
    let (Some(nawa), Some(seconds)) = (words.first(), number(1)) else {
        eprintln!("convoy NAWA SECONDS [SEED]");
        return ExitCode::from(2);
    };
    let plan = Plan::Random { seed: number(2).unwrap_or(1), time: Duration::from_secs(seconds) };
    let nawa = std::fs::canonicalize(nawa).unwrap_or_else(|_| nawa.into());
    match endure(&nawa, plan, &mut |line| println!("{line}")) {
        Ok(amiss) if amiss.is_empty() => {
            println!("nothing leaked, nothing is stuck, and `nawa down` left nothing");
            ExitCode::SUCCESS
        }
        Ok(amiss) => {
            amiss.iter().for_each(|line| println!("AMISS: {line}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
