//! Real programs in a namespace.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::clock;
use crate::command::complete;
use crate::error::{Doing, Error, Result};
use crate::namespace::Namespace;

/// The Debian packages of what the lab runs.
const PACKAGES: [(&str, &str); 11] = [
    ("ip", "iproute2"),
    ("nstat", "iproute2"),
    ("ethtool", "ethtool"),
    ("curl", "curl"),
    ("busybox", "busybox"),
    ("mptcpize", "mptcpize"),
    ("ping", "iputils-ping"),
    ("iperf3", "iperf3"),
    ("nft", "nftables"),
    ("linux.uml", "user-mode-linux"),
    ("wg", "wireguard-tools"),
];

/// Fails with the Debian package of the first program that is not in PATH.
pub fn require(programs: &[&'static str]) -> Result<()> {
    match programs.iter().find(|program| find(program.as_ref()).is_none()) {
        Some(program) => Err(missing(program)),
        None => Ok(()),
    }
}

/// That `program` is missing, and the Debian package that has it, which for most is called like it.
fn missing(program: &str) -> Error {
    let package = PACKAGES.iter().find(|(name, _)| *name == program).map_or(program, |(_, package)| package);
    Error::MissingProgram { program: program.into(), package: package.into() }
}

/// The file of `program`, which is a path or a name to look for in PATH.
pub(crate) fn find(program: &Path) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// What `nawa` says in `host` as JSON.
pub(crate) fn json(host: &Namespace, nawa: &Path, arguments: &[&str]) -> Result<Value> {
    read_json(&format!("nawa {}", arguments.join(" ")), &output(host, nawa, arguments)?)
}

/// What `program` has said as JSON.
pub(crate) fn read_json(program: &str, said: &str) -> Result<Value> {
    serde_json::from_str(said).map_err(|error| Error::program(program, format!("bad JSON: {error}")))
}

/// What `nawa status --json` says in `host`.
pub(crate) fn status(host: &Namespace, nawa: &Path) -> Result<Value> {
    json(host, nawa, &["status", "--json"])
}

/// A program that runs in a namespace; dropping it kills it.
#[derive(Debug)]
pub struct Process {
    name: String,
    words: Vec<OsString>,
    child: Child,
    errors: File,
}

impl Process {
    /// Starts `program` in `host`, its standard output for [`Process::stdout`].
    ///
    /// It lives no longer than the calling thread.
    pub fn start<A: AsRef<OsStr>>(
        host: &Namespace,
        program: impl AsRef<OsStr>,
        arguments: &[A],
    ) -> Result<Self> {
        let mut words = vec![program.as_ref().to_owned()];
        words.extend(arguments.iter().map(|argument| argument.as_ref().to_owned()));
        Self::start_words(host, words)
    }

    fn start_words(host: &Namespace, words: Vec<OsString>) -> Result<Self> {
        let name = name_of(&words[0]);
        let errors = tempfile::tempfile().doing(|| "make a temporary file".into())?;
        let mut command = host.command(&words[0]);
        command.args(&words[1..]).stdout(Stdio::piped());
        command.stderr(errors.try_clone().doing(|| "open a file again".into())?);
        let child = command.spawn().doing(|| format!("start `{name}`"))?;
        Ok(Self { name, words, child, errors })
    }

    /// Kills it, and starts the same command again in `host`.
    pub fn restart(&mut self, host: &Namespace) -> Result<()> {
        self.kill();
        *self = Self::start_words(host, std::mem::take(&mut self.words))?;
        Ok(())
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// The pipe from its standard output, once.
    pub fn stdout(&mut self) -> Result<ChildStdout> {
        self.child.stdout.take().ok_or_else(|| Error::program(&self.name, "its output is already being read"))
    }

    /// Sends it a signal, if it still runs.
    pub fn signal(&mut self, signal: Signal) {
        if !self.has_ended() {
            let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
            let _ = pid.map(|pid| kill_process(pid, signal));
        }
    }

    /// Memory that it has in RAM, in MiB.
    pub fn resident_mb(&self) -> Result<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let kib = text.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
        let mib = kib.and_then(|kib| Some(kib.parse::<f64>().ok()? / 1024.0));
        mib.ok_or_else(|| Error::program(&self.name, "it has ended"))
    }

    /// Time that it has had on a processor, all its threads together; what interrupts took meanwhile is in it.
    pub fn cpu_time(&self) -> Result<Duration> {
        let folder = format!("/proc/{}/task", self.child.id());
        let threads = std::fs::read_dir(&folder).doing(|| format!("read {folder}"))?;
        Ok(threads.flatten().filter_map(|thread| on_cpu(&thread.path())).sum())
    }

    /// True once it has ended.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Fails if it has ended, with what it said.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                let reason = format!("it has ended ({status}): {}", self.complaint("without a word"));
                Err(Error::program(&self.name, reason))
            }
            Err(_) => Err(Error::program(&self.name, "it is lost")),
        }
    }

    /// Waits for its end; what it said on standard error is the reason of a failure.
    pub fn finish(&mut self) -> Result<()> {
        let status = self.child.wait().doing(|| format!("wait for `{}`", self.name))?;
        if status.success() {
            Ok(())
        } else {
            Err(Error::program(&self.name, self.complaint(&status.to_string())))
        }
    }

    /// The end of what it said on standard error, or else `otherwise`.
    pub fn complaint(&self, otherwise: &str) -> String {
        let said = self.said();
        let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = &lines[lines.len().saturating_sub(3)..];
        if last.is_empty() { otherwise.into() } else { last.join("; ") }
    }

    /// All it said on standard error so far, at most 64 KiB.
    pub fn said(&self) -> String {
        said(&self.errors)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a program has written to `errors` so far, at most 64 KiB.
pub(crate) fn said(errors: &File) -> String {
    let mut said = vec![0; 65_536];
    // The offset is the program's to move: read without it.
    let length = errors.read_at(&mut said, 0).unwrap_or(0);
    String::from_utf8_lossy(&said[..length]).into_owned()
}

/// Runs `program` in `host` to its end; its standard output.
pub fn output<A: AsRef<OsStr>>(
    host: &Namespace,
    program: impl AsRef<OsStr>,
    arguments: &[A],
) -> Result<String> {
    complete(&name_of(program.as_ref()), host.command(program).args(arguments), "")
}

/// The last part of a program's path.
fn name_of(program: &OsStr) -> String {
    Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned()
}

/// Time that a thread, a folder of `/proc/PID/task`, has had on a processor.
pub(crate) fn on_cpu(thread: &Path) -> Option<Duration> {
    let text = std::fs::read_to_string(thread.join("schedstat")).ok()?;
    text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// Waits until `server`, running in `host`, accepts TCP connections at `address`.
pub fn await_port(host: &Namespace, server: &mut Process, address: SocketAddr) -> Result<()> {
    let what = format!("`{}` did not listen", server.name);
    let attempt = || match TcpStream::connect(address) {
        Ok(_) => Some(Ok(())),
        Err(_) => server.check().err().map(Err),
    };
    host.run(|| clock::within(Duration::from_secs(5), what, attempt))??
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_names_its_package() {
        let error = require(&["no-such-program-anywhere"]).unwrap_err();
        assert!(error.to_string().ends_with("package `no-such-program-anywhere`"), "{error}");
        assert!(missing("ping").to_string().ends_with("package `iputils-ping`"));
    }
}
