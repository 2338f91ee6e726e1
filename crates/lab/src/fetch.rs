//! A file fetched by curl over HTTP, its bytes timed as they reach the lab.

use std::io::Read;
use std::net::IpAddr;
use std::process::ChildStdout;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use crate::clock;
use crate::error::{Doing, Error, Result};
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

/// Fetches all `requests` at once from `host`; the first that is complete, as its index and what it brought, or, if none is, the first
/// failure. The others are stopped. `launcher` precedes curl, as `mptcpize run`. `received` counts the bytes of the first request.
pub fn race(
    host: &Namespace,
    launcher: &[&str],
    requests: &[Request],
    received: &AtomicU64,
) -> Result<(usize, Transfer)> {
    std::thread::scope(|scope| {
        let (ended, ends) = channel();
        let mut running = Vec::new();
        for (index, request) in requests.iter().enumerate() {
            let words = words(launcher, request);
            let started = clock::now();
            let mut process = Process::start(host, &words[0], &words[1..])?;
            let pipe = process.stdout()?;
            running.push(process);
            let (ended, count) = (ended.clone(), (index == 0).then_some(received));
            scope.spawn(move || ended.send((index, receive(pipe, started, count))));
        }
        drop(ended);
        let mut failure = None;
        for (index, transfer) in ends {
            let transfer = transfer.doing(|| "read what `curl` says".into());
            match running[index].finish().and(transfer) {
                Ok(transfer) => return Ok((index, transfer)),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.unwrap_or_else(|| Error::program("curl", "nothing was to be fetched")))
    })
}

/// Fetches one file.
pub fn fetch(host: &Namespace, launcher: &[&str], request: &Request) -> Result<Transfer> {
    let one = std::slice::from_ref(request);
    race(host, launcher, one, &AtomicU64::new(0)).map(|(_, transfer)| transfer)
}

/// A transfer that brings nothing for so many seconds is given up.
const STUCK_S: &str = "30";

/// `--no-buffer`, so that a byte reaches the lab when it reaches curl.
fn words(launcher: &[&str], request: &Request) -> Vec<String> {
    let mut words: Vec<String> = launcher.iter().map(|&word| word.into()).collect();
    let quiet = ["curl", "--silent", "--show-error", "--fail", "--no-buffer", "--noproxy", "*"];
    let limits = ["--connect-timeout", STUCK_S, "--speed-limit", "1", "--speed-time", STUCK_S];
    words.extend(quiet.into_iter().chain(limits).map(str::to_owned));
    if let Some(source) = request.source {
        words.extend(["--interface".into(), source.to_string()]);
    }
    words.push(format!("http://{}/{}", request.server, request.file));
    words
}

fn receive(
    mut pipe: ChildStdout,
    started: Instant,
    received: Option<&AtomicU64>,
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
        received.inspect(|received| received.store(bytes, Relaxed));
    }
}
