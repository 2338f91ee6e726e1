//! iproute2's `ip`, and how the lab's namespaces are called.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::error::{Doing, Error};

/// What every namespace of the lab begins with. Nothing else is ever touched.
pub(crate) const PREFIX: &str = "nawalab-";

/// Where iproute2 keeps namespaces.
pub(crate) const FOLDER: &str = "/run/netns";

/// Runs `ip` with `input` on its standard input.
pub(crate) fn ip(arguments: &[&str], input: &str) -> Result<(), Error> {
    let mut command = Command::new("ip");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().doing(|| "start `ip` (Debian package `iproute2`)".into())?;
    if let Some(mut stdin) = child.stdin.take() {
        // `ip` may have ended already; then its status says why.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().doing(|| "wait for `ip`".into())?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::program(&format!("ip {}", arguments.join(" ")), explain(said.trim(), input)))
}

/// `ip -batch` names the line that failed by number only: adds the line itself.
fn explain(said: &str, input: &str) -> String {
    let number = said.rsplit("-:").next().and_then(|tail| tail.trim().parse::<usize>().ok());
    match number.and_then(|n| input.lines().nth(n.checked_sub(1)?)) {
        Some(line) => format!("{} (at `{line}`)", said.replace('\n', "; ")),
        None => said.replace('\n', "; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_batch_names_its_line() {
        let said = "RTNETLINK answers: File exists\nCommand failed -:2";
        let explained = explain(said, "link set lo up\naddr add 10.0.0.1/8 dev lo\n");
        assert!(explained.ends_with("(at `addr add 10.0.0.1/8 dev lo`)"), "{explained}");
    }

    #[test]
    fn other_errors_stay_as_they_are() {
        assert_eq!(explain("no such namespace", ""), "no such namespace");
    }
}
