//! A file fetched by curl over HTTP, its bytes timed as they reach the lab.

use std::io::Read;
use std::net::IpAddr;
use std::process::ChildStdout;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use crate::background::spawn;
use crate::clock;
use crate::error::Error;
use crate::namespace::Namespace;
use crate::program::Process;

/// One file to be fetched.
#[derive(Clone, Debug)]
pub struct Request {
    /// The HTTP server's address; its port is 80.
    pub server: IpAddr,
    /// The file's name there.
    pub file: String,
    /// The address that curl binds (`--interface`).
    pub source: Option<IpAddr>,
}

/// What arrived.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// Bytes of the file.
    pub bytes: u64,
    /// Their SHA-256.
    pub sha256: [u8; 32],
    /// From curl's start to the end of its output.
    pub time: Duration,
    /// The longest time between two bytes that reached the lab.
    pub longest_stall: Duration,
}

/// Told about the first request's bytes so far, and asked at the latest at the time that it returned last.
pub type Watch<'a> = &'a mut dyn FnMut(u64, Instant) -> Option<Instant>;

/// Fetches all `requests` at once from `host`; the first that is complete, as its index and what it brought. The
/// others are stopped. `launcher` precedes curl, as `mptcpize run`.
pub fn race(
    host: &Namespace,
    launcher: &[&str],
    requests: &[Request],
    watch: Watch,
) -> Result<(usize, Transfer), Error> {
    let (sender, events) = channel();
    let mut running = Vec::new();
    for (index, request) in requests.iter().enumerate() {
        running.push(start(host, launcher, request, index, &sender)?);
    }
    drop(sender);
    let (index, transfer) = first(&events, running.len(), watch)?;
    running.swap_remove(index).finish()?;
    Ok((index, transfer))
}

/// Fetches one file.
pub fn fetch(host: &Namespace, launcher: &[&str], request: &Request) -> Result<Transfer, Error> {
    race(host, launcher, std::slice::from_ref(request), &mut |_, _| None).map(|(_, transfer)| transfer)
}

enum Event {
    Bytes { index: usize, count: u64, at: Instant },
    End { index: usize, transfer: Option<Transfer> },
}

fn start(
    host: &Namespace,
    launcher: &[&str],
    request: &Request,
    index: usize,
    events: &Sender<Event>,
) -> Result<Process, Error> {
    let words = words(launcher, request);
    let started = clock::now();
    let mut process = Process::start(host, &words[0], &words[1..])?;
    let pipe = process.stdout()?;
    let events = events.clone();
    let read = move || {
        let transfer =
            receive(pipe, started, |count, at| drop(events.send(Event::Bytes { index, count, at })));
        // Nobody listens any more once another request has won.
        let _ = events.send(Event::End { index, transfer: transfer.ok() });
    };
    spawn("fetch", read)?;
    Ok(process)
}

/// `--no-buffer`, so that a byte reaches the lab when it reaches curl.
fn words(launcher: &[&str], request: &Request) -> Vec<String> {
    let mut words: Vec<String> = launcher.iter().map(|&word| word.into()).collect();
    words.extend(
        ["curl", "--silent", "--show-error", "--fail", "--no-buffer", "--noproxy", "*"].map(str::to_owned),
    );
    if let Some(source) = request.source {
        words.extend(["--interface".into(), source.to_string()]);
    }
    words.push(format!("http://{}/{}", request.server, request.file));
    words
}

fn receive(
    mut pipe: ChildStdout,
    started: Instant,
    mut each: impl FnMut(u64, Instant),
) -> std::io::Result<Transfer> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    let (mut bytes, mut longest_stall, mut last) = (0, Duration::ZERO, None);
    loop {
        let count = pipe.read(&mut buffer)?;
        let at = clock::now();
        if count == 0 {
            return Ok(Transfer { bytes, sha256: hash.finalize().into(), time: at - started, longest_stall });
        }
        hash.update(&buffer[..count]);
        bytes += count as u64;
        longest_stall = longest_stall.max(at - last.unwrap_or(at));
        last = Some(at);
        each(bytes, at);
    }
}

fn first(events: &Receiver<Event>, mut running: usize, watch: Watch) -> Result<(usize, Transfer), Error> {
    let (mut first_has, mut last) = (0, clock::now());
    let mut wake = watch(0, last);
    while running > 0 {
        match next(events, wake, last + STUCK)? {
            Some(Event::Bytes { index, count, at }) => {
                last = at;
                if index == 0 {
                    first_has = count;
                    wake = watch(first_has, at);
                }
            }
            Some(Event::End { index, transfer: Some(transfer) }) => return Ok((index, transfer)),
            Some(Event::End { .. }) => running -= 1,
            None => wake = watch(first_has, clock::now()),
        }
    }
    Err(Error::program("curl", "its output could not be read"))
}

/// The next event; `None` if `wake` comes first. Fails where nothing has come until `stuck`.
fn next(events: &Receiver<Event>, wake: Option<Instant>, stuck: Instant) -> Result<Option<Event>, Error> {
    let until = wake.map_or(stuck, |wake| wake.min(stuck));
    match events.recv_timeout(until.saturating_duration_since(clock::now())) {
        Ok(event) => Ok(Some(event)),
        Err(RecvTimeoutError::Timeout) if until < stuck => Ok(None),
        Err(_) => Err(Error::Late { what: "no byte reached curl".into(), seconds: STUCK.as_secs() }),
    }
}

/// A transfer that brings nothing for this long is given up.
const STUCK: Duration = Duration::from_secs(30);
