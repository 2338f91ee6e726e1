//! Programs of the host that do something and end.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::error::{Doing, Error};

/// Runs `command`, called `name`, with `input` on its standard input; its standard output. What it said on standard error is the
/// reason of a failure.
pub(crate) fn complete(name: &str, command: &mut Command, input: &str) -> Result<String, Error> {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().doing(|| format!("start `{name}`"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // If it has ended already, its status says why.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().doing(|| format!("wait for `{name}`"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    Err(Error::program(name, if said.is_empty() { output.status.to_string() } else { said.join("; ") }))
}
