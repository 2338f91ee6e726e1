//! Says of which commit the program is built, for results to name it.

use std::process::Command;

fn main() {
    // Whatever changes in the sources or in what is committed makes this run again.
    for watched in ["..", "../../.git/HEAD", "../../.git/logs/HEAD"] {
        println!("cargo::rerun-if-changed={watched}");
    }
    println!("cargo::rustc-env=NAWA_COMMIT={}", commit().unwrap_or_else(|| "unknown".into()));
}

/// With `+` behind it where files have changed since. `None` outside of a repository.
fn commit() -> Option<String> {
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Some(commit + if changed { "+" } else { "" })
}

fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
