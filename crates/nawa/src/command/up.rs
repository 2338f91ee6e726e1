//! `nawa up`

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::control::client::Daemon;
use crate::failure::Failure;

/// Starts `nawa run` in the background, which logs at `level`; returns when it is ready.
pub fn run(file: &Path, level: Option<&str>) -> Result<(), Failure> {
    if let Some(daemon) = Daemon::find()? {
        let who = daemon.who();
        return Err(Failure::failed(format!(
            "already up ({who}); see `nawa status`, or stop it with `nawa down`"
        )));
    }
    let mut child =
        start(file, level).map_err(|error| Failure::failed(format!("cannot start the daemon: {error}")))?;
    let (ready, lines) = said_before_ready(&mut child);
    if !ready {
        return Err(ended(child, lines));
    }
    // The log begins when it is ready: what somebody has to mind before stands nowhere else.
    let matters =
        |line: &&String| line.split_whitespace().take(2).any(|word| ["WARN", "ERROR"].contains(&word));
    for line in lines.iter().filter(matters) {
        // Where nobody listens, it runs all the same.
        let _ = writeln!(std::io::stderr(), "{line}");
    }
    Ok(())
}

fn start(file: &Path, level: Option<&str>) -> std::io::Result<Child> {
    Command::new("/proc/self/exe")
        // As `ps` shows it.
        .arg0("nawa")
        .arg("run")
        .arg("--background")
        .args(level.map(|level| format!("--log-level={level}")))
        .arg("--")
        .arg(std::path::absolute(file)?)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
}

/// Whether the child is ready, or has ended before, and all that it said until then.
fn said_before_ready(child: &mut Child) -> (bool, Vec<String>) {
    let mut lines = Vec::new();
    let Some(stderr) = child.stderr.take() else { return (false, lines) };
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        if line == super::READY {
            return (true, lines);
        }
        lines.push(line);
    }
    (false, lines)
}

fn ended(mut child: Child, lines: Vec<String>) -> Failure {
    let status = child.wait().ok().and_then(|status| status.code()).and_then(|code| u8::try_from(code).ok());
    match status {
        Some(status) if status > 0 => Failure::of_child(status, lines),
        _ => Failure::failed("the daemon ended before it was ready; `nawa run` shows why"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_says_much_is_ready_in_the_end() {
        let script = "yes | head -n 600000 >&2; echo nawa: ready >&2; exec sleep 60";
        let mut child =
            Command::new("sh").args(["-c", script]).stderr(Stdio::piped()).spawn().expect("a shell");
        let (ready, lines) = said_before_ready(&mut child);
        child.kill().and_then(|()| child.wait()).expect("it ends");
        assert_eq!((ready, lines.len()), (true, 600_000));
    }
}
