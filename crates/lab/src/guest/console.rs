//! What is said over a guest's console: one line each way at a time.
//!
//! To the guest goes `NUMBER COMMAND`; the command is a line of shell, number 0 for the guest's first process itself. Back comes
//! `NUMBER |TEXT` for each line that it says, and `NUMBER =STATUS` at its end. Before that comes the end of the guest's own set-up,
//! or in one line why it fails. Whatever else appears there is the kernel's own talk, and is passed over. When the console is
//! closed, the guest powers off.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::background::spawn;
use crate::clock;
use crate::error::{Doing, Error, Result};
use crate::program;

/// The number of what the guest says of itself; jobs are counted from 1.
const ITSELF: u64 = 0;

/// The guest's first program, which carries out `steps`, each a command of one line, before it listens. The kernel has mounted
/// `/dev`; busybox is first in the path, so that its programs are the same on every machine, but has an `ip` that knows little.
pub(super) fn init(steps: &[String]) -> String {
    let steps: String = steps.iter().map(|step| format!("step {step}\n")).collect();
    let busybox = program::find("busybox".as_ref()).unwrap_or_else(|| "/bin/busybox".into());
    let (busybox, path) = (busybox.display(), std::env::var("PATH").unwrap_or_default());
    format!(
        r#"#!{busybox} sh
{busybox} mount -t proc proc /proc
{busybox} mount -t sysfs sys /sys
{busybox} mount -t tmpfs run /run
{busybox} mkdir /run/bin
{busybox} --install -s /run/bin
{busybox} rm /run/bin/ip
export PATH='/run/bin:{path}'
exec </dev/ttyS0 >/dev/ttyS0 2>&1
stty raw -echo
step() {{
    said=$("$@" 2>&1) && return
    echo "{ITSELF} |$*: "$said
    poweroff -f
}}
step ip link set lo up
{steps}echo "{ITSELF} =0"
while read -r number line; do
    [ "$number" != {ITSELF} ] || {{ eval "$line" >/dev/null 2>&1; continue; }}
    {{
        {{ sh -c "$line" </dev/null 2>&1; echo $? >"/run/$number"; }} |
            while IFS= read -r said || [ -n "$said" ]; do echo "$number |$said"; done
        echo "$number =$(cat "/run/$number")"
    }} &
done
poweroff -f
"#
    )
}

/// What a guest may say.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Line(String),
    Ended(i32),
}

/// One line from the console; `None` if it is not one of ours.
fn parse(line: &str) -> Option<(u64, Said)> {
    let (number, rest) = line.split_once(' ')?;
    let number = number.parse().ok()?;
    match (rest.strip_prefix('|'), rest.strip_prefix('=')) {
        (Some(text), _) => Some((number, Said::Line(text.into()))),
        (_, Some(status)) => Some((number, Said::Ended(status.parse().ok()?))),
        _ => None,
    }
}

type Listeners = Arc<Mutex<BTreeMap<u64, Sender<Said>>>>;

/// The lab's end of a console.
#[derive(Debug)]
pub(super) struct Console {
    stdin: ChildStdin,
    listeners: Listeners,
    itself: Receiver<Said>,
    jobs: u64,
}

impl Console {
    /// Reads on a thread of its own, until the guest is gone.
    pub(super) fn new(stdin: ChildStdin, stdout: ChildStdout) -> Result<Self> {
        let (sender, itself) = channel();
        let listeners: Listeners = Arc::new(Mutex::new(BTreeMap::from([(ITSELF, sender)])));
        let shared = listeners.clone();
        let read = move || read(stdout, &shared);
        spawn("guest", read)?;
        Ok(Self { stdin, listeners, itself, jobs: ITSELF })
    }

    pub(super) fn await_ready(&self, limit: Duration) -> Result<()> {
        match self.itself.recv_timeout(limit) {
            Ok(Said::Line(reason)) => Err(Error::program("a guest's set-up", reason.trim())),
            Ok(Said::Ended(_)) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
            Err(RecvTimeoutError::Timeout) => Err(Error::late("the guest did not come up", limit)),
        }
    }

    /// Has the guest run `line`, which is cut at a line's end.
    pub(super) fn start(&mut self, line: &str) -> Result<Job> {
        self.jobs += 1;
        let (sender, said) = channel();
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).insert(self.jobs, sender);
        self.write(self.jobs, line)?;
        Ok(Job { line: line.into(), said })
    }

    pub(super) fn tell(&mut self, line: &str) -> Result<()> {
        self.write(ITSELF, line)
    }

    fn write(&mut self, number: u64, line: &str) -> Result<()> {
        let line = line.lines().next().unwrap_or_default();
        let written = self.stdin.write_all(format!("{number} {line}\n").as_bytes());
        written.doing(|| "write to a guest's console".into())
    }
}

fn read(stdout: ChildStdout, listeners: &Listeners) {
    for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        let Some((number, said)) = parse(line.trim_end_matches('\r')) else { continue };
        let mut listeners = listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = matches!(said, Said::Ended(_));
        // Whoever started it may be gone; then nobody misses what it says.
        let _ = listeners.get(&number).map(|listener| listener.send(said));
        if ended {
            listeners.remove(&number);
        }
    }
    listeners.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

fn gone() -> Error {
    Error::program("linux.uml", "the guest has ended")
}

/// A command that runs in a guest. It goes on when this is dropped.
#[derive(Debug)]
pub struct Job {
    line: String,
    said: Receiver<Said>,
}

impl Job {
    /// The next line that it says, waiting at most for `limit`; `None` once it has ended well. Fails if it fails, or says
    /// nothing for that long.
    pub fn next_line(&self, limit: Duration) -> Result<Option<String>> {
        match self.said.recv_timeout(limit) {
            Ok(Said::Line(line)) => Ok(Some(line)),
            Ok(Said::Ended(0)) => Ok(None),
            Ok(Said::Ended(status)) => Err(Error::program(&self.line, format!("exit status {status}"))),
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
            Err(RecvTimeoutError::Timeout) => {
                Err(Error::late(format!("`{}` said nothing and did not end", self.line), limit))
            }
        }
    }

    /// Waits for its end; all it says. Fails if it fails, with the end of what it said, or has not ended within `limit`.
    pub fn finish(self, limit: Duration) -> Result<String> {
        let started = clock::now();
        let mut text = String::new();
        loop {
            match self.next_line(limit.saturating_sub(started.elapsed())) {
                Ok(Some(line)) => text += &(line + "\n"),
                Ok(None) => return Ok(text),
                Err(Error::Program { program, reason }) => {
                    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
                    return Err(Error::Program { program, reason: format!("{reason}: {last}") });
                }
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_protocol_are_told_from_the_kernels() {
        assert_eq!(parse("3 | two  words"), Some((3, Said::Line(" two  words".into()))));
        assert_eq!(parse("3 =127"), Some((3, Said::Ended(127))));
        for line in ["", "Core dump limits :", "3 =x", "x =1", "3 words", "reboot: System halted"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
