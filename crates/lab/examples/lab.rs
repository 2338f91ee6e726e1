//! Runs an experiment by hand: `cargo run -p lab --example lab -- NAME [--quick] [--json FILE]`.
//!
//! Nawa as a system under test is the program that the environment variable `NAWA` names.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(name) = arguments.first() else {
        for (name, about) in lab::list() {
            println!("{name}  {about}");
        }
        return ExitCode::SUCCESS;
    };
    let mut options = lab::RunOptions::default();
    if arguments.iter().any(|argument| argument == "--quick") {
        options.size = lab::Size::Quick;
    }
    if let Some(nawa) = std::env::var_os("NAWA") {
        options.nawa = nawa.into();
    }
    options.json = arguments
        .iter()
        .position(|argument| argument == "--json")
        .and_then(|at| arguments.get(at + 1))
        .map(Into::into);
    match lab::run(name, &options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab: {error}");
            ExitCode::from(if error.is_bad_input() { 2 } else { 1 })
        }
    }
}
