//! `nawa up`

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::control::client::Daemon;
use crate::failure::Failure;

/// Starts `nawa run` in the background; returns when it is ready.
pub fn run(file: &Path) -> Result<(), Failure> {
    if let Some(daemon) = Daemon::find()? {
        let pid = daemon.pid();
        return Err(Failure::failed(format!(
            "already up (process {pid}); see `nawa status`, or stop it with `nawa down`"
        )));
    }
    let mut child =
        start(file).map_err(|error| Failure::failed(format!("cannot start the daemon: {error}")))?;
    match said_before_ready(&mut child) {
        None => Ok(()),
        Some(lines) => Err(ended(child, lines)),
    }
}

fn start(file: &Path) -> std::io::Result<Child> {
    Command::new("/proc/self/exe")
        // As `ps` shows it.
        .arg0("nawa")
        .arg("run")
        .arg("--background")
        .arg("--")
        .arg(std::path::absolute(file)?)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
}

/// `None` once the child is ready; all that it said if it ended before.
fn said_before_ready(child: &mut Child) -> Option<Vec<String>> {
    let stderr = child.stderr.take()?;
    let mut lines = Vec::new();
    for line in BufReader::new(stderr.take(1 << 20)).lines().map_while(Result::ok) {
        if line == super::READY {
            return None;
        }
        lines.push(line);
    }
    Some(lines)
}

fn ended(mut child: Child, lines: Vec<String>) -> Failure {
    let status = child.wait().ok().and_then(|status| status.code()).and_then(|code| u8::try_from(code).ok());
    match status {
        Some(status) if status > 0 => Failure::of_child(status, lines),
        _ => Failure::failed("the daemon ended before it was ready; `nawa run` shows why"),
    }
}
