//! iproute2's `ip`, and how the lab's namespaces are called.

use std::process::Command;

use crate::command::complete;
use crate::error::Error;

/// What every namespace of the lab begins with. Nothing else is ever touched.
pub(crate) const PREFIX: &str = "nawalab-";

/// Where iproute2 keeps namespaces.
pub(crate) const FOLDER: &str = "/run/netns";

/// Runs `ip` with `input` on its standard input.
pub(crate) fn ip(arguments: &[&str], input: &str) -> Result<(), Error> {
    let name = format!("ip {}", arguments.join(" "));
    match complete(&name, Command::new("ip").args(arguments), input) {
        Err(Error::Program { reason, .. }) => Err(Error::program(&name, explain(&reason, input))),
        said => said.map(drop),
    }
}

/// `ip -batch` names the line that failed by number only: adds the line itself.
fn explain(said: &str, input: &str) -> String {
    let number = said.rsplit("-:").next().and_then(|tail| tail.trim().parse::<usize>().ok());
    match number.and_then(|n| input.lines().nth(n.checked_sub(1)?)) {
        Some(line) => format!("{said} (at `{line}`)"),
        None => said.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_batch_names_its_line() {
        let said = "RTNETLINK answers: File exists; Command failed -:2";
        let explained = explain(said, "link set lo up\naddr add 10.0.0.1/8 dev lo\n");
        assert!(explained.ends_with("(at `addr add 10.0.0.1/8 dev lo`)"), "{explained}");
    }

    #[test]
    fn other_errors_stay_as_they_are() {
        assert_eq!(explain("no such namespace", ""), "no such namespace");
    }
}
