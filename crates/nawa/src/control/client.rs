//! The commands' side of the control socket.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::Value;

use super::{ROOT, Request, address};
use crate::failure::Failure;

/// A daemon that does not say how it is within this time, nor that it stops, is stopped itself (SIGSTOP) or stuck. Longer than it
/// waits for its own threads.
pub const PATIENCE: Duration = Duration::from_secs(15);
/// How often, and how far apart, it is looked whether the control socket's name is free.
const LOOKS: usize = 100;
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// A connection to the daemon of this network namespace.
pub struct Daemon {
    stream: BufReader<UnixStream>,
    /// Where this process's pid namespace sees it.
    pid: Option<Pid>,
}

impl Daemon {
    /// Finds the daemon.
    ///
    /// # Errors
    /// No daemon, or the socket cannot be used.
    pub fn connect() -> Result<Daemon, Failure> {
        Daemon::find()?.ok_or_else(Failure::no_daemon)
    }

    /// The daemon, if one runs.
    ///
    /// # Errors
    /// Failed if the socket's name is held by somebody who is no daemon.
    pub fn find() -> Result<Option<Daemon>, Failure> {
        let stream = match address().and_then(|address| UnixStream::connect_addr(&address)) {
            Ok(stream) => stream,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(None),
            Err(error) => {
                return Err(Failure::failed(format!("cannot reach the control socket @nawa: {error}")));
            }
        };
        let (uid, pid) = device::process::peer(&stream).map_err(|error| {
            Failure::failed(format!("cannot tell who holds the control socket @nawa: {error}"))
        })?;
        let daemon = Daemon { stream: BufReader::new(stream), pid };
        if uid != ROOT {
            let who = daemon.who();
            let what = format!("{who} of user {uid} holds the control socket @nawa and is no daemon; end it");
            return Err(Failure::failed(what));
        }
        Ok(Some(daemon))
    }

    /// The daemon's process.
    pub fn who(&self) -> String {
        self.pid.map_or("a process outside this pid namespace".into(), |pid| format!("process {pid}"))
    }

    /// Its number, for advice.
    pub fn pid(&self) -> String {
        self.pid.map_or("PID".into(), |pid| pid.to_string())
    }

    /// Asks, and returns the answer.
    ///
    /// # Errors
    /// Failed if the daemon refuses or goes away; its refusal is the sentence.
    pub fn ask(&mut self, request: Request) -> Result<Value, Failure> {
        let (who, pid) = (self.who(), self.pid());
        let line = self.exchange(request).map_err(|error| {
            Failure::failed(match error.kind() {
                ErrorKind::WouldBlock => format!(
                    "the daemon ({who}) has not answered for {} s: it is stopped or stuck; \
                     `kill -CONT {pid}` lets it go on, or else `kill -KILL {pid}` ends it and `nawa down` clears up",
                    PATIENCE.as_secs()
                ),
                _ => format!("the daemon ({who}) went away while asked: {error}; try again"),
            })
        })?;
        let answer: Value = serde_json::from_str(&line)
            .map_err(|error| Failure::failed(format!("the daemon ({who}) answers no JSON: {error}")))?;
        match answer.get("error").and_then(Value::as_str) {
            Some(refusal) => Err(Failure::failed(refusal)),
            None => Ok(answer),
        }
    }

    fn exchange(&mut self, request: Request) -> std::io::Result<String> {
        let mut line = serde_json::to_string(&request)?;
        line.push('\n');
        // A change that is made after all has to be waited for.
        let patience = matches!(request, Request::Status | Request::Stop).then_some(PATIENCE);
        self.stream.get_ref().set_read_timeout(patience)?;
        // Who is refused is so before he asks, and reads why all the same.
        let written = self.stream.get_mut().write_all(line.as_bytes());
        let mut answer = String::new();
        match self.stream.read_line(&mut answer)? {
            0 => Err(written.err().unwrap_or(ErrorKind::UnexpectedEof.into())),
            _ => Ok(answer),
        }
    }

    /// The connection, on which lines follow, and those that have come.
    pub fn into_stream(self) -> (UnixStream, Vec<u8>) {
        let come = self.stream.buffer().to_vec();
        (self.stream.into_inner(), come)
    }

    /// Waits until the daemon's process is gone, and what it held with it. The kernel closes this connection when the process ends,
    /// and may close the control socket a moment later, which a `nawa up` would take for a daemon. False if that takes longer than
    /// `longest`.
    pub fn wait_until_gone(&mut self, longest: Option<Duration>) -> bool {
        let process = self.pid.map(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        // A reset says the same as an end.
        let _ = self.stream.get_ref().set_read_timeout(longest);
        let read = self.stream.read_to_end(&mut Vec::new());
        if read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
            return false;
        }
        let longest = longest.and_then(|time| Timespec::try_from(time).ok());
        let wait = |on: &mut [PollFd], time: Option<&Timespec>| poll(on, time).is_ok_and(|ready| ready > 0);
        match process {
            Some(process) => process
                .is_none_or(|process| wait(&mut [PollFd::new(&process, PollFlags::IN)], longest.as_ref())),
            // A process of another pid namespace cannot be waited for, but the name that it holds can.
            None => (0..LOOKS).any(|_| matches!(Daemon::find(), Ok(None)) || wait(&mut [], Some(&LOOK))),
        }
    }
}
