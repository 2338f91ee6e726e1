//! Round-trip times, by `ping`, with nothing else going on or beside it.

use std::io::Read;
use std::net::IpAddr;
use std::time::Duration;

use rustix::process::Signal;

use crate::error::{Doing, Error, Result};
use crate::namespace::Namespace;
use crate::program::{Process, output};

/// A `ping` that runs until it is stopped or dropped.
#[derive(Debug)]
pub struct Ping {
    process: Process,
}

impl Ping {
    /// Pings `target` from `host`, leaving with `source` where one is given.
    pub fn start(host: &Namespace, source: Option<IpAddr>, target: IpAddr, every: Duration) -> Result<Self> {
        Ok(Self { process: Process::start(host, "ping", &words(source, target, every, &[]))? })
    }

    /// Stops it; the round-trip times of the answers, in order.
    pub fn stop(mut self) -> Result<Vec<Duration>> {
        let mut pipe = self.process.stdout()?;
        self.process.signal(Signal::INT);
        let mut text = String::new();
        pipe.read_to_string(&mut text).doing(|| "read what `ping` says".into())?;
        Ok(text.lines().filter_map(round_trip).collect())
    }
}

/// The round-trip times of the answers to `count` pings.
pub fn round_trips(
    host: &Namespace,
    source: Option<IpAddr>,
    target: IpAddr,
    every: Duration,
    count: u32,
) -> Result<Vec<Duration>> {
    let text = output(host, "ping", &words(source, target, every, &["-c", &count.to_string()]))?;
    Ok(text.lines().filter_map(round_trip).collect())
}

/// Waits for one answer from `target`, at most for `limit`.
pub fn await_answer(host: &Namespace, target: IpAddr, limit: Duration) -> Result<()> {
    // With a deadline, `-c 1` waits for one answer and asks again until then.
    let once = ["-q", "-c", "1", "-w", &limit.as_secs().to_string()];
    match output(host, "ping", &words(None, target, Duration::from_millis(100), &once)) {
        Ok(_) => Ok(()),
        Err(Error::Program { .. }) => Err(Error::late(format!("{target} did not answer `ping`"), limit)),
        Err(other) => Err(other),
    }
}

fn words(source: Option<IpAddr>, target: IpAddr, every: Duration, more: &[&str]) -> Vec<String> {
    let mut words = vec!["-n".to_owned(), "-i".into(), every.as_secs_f64().to_string()];
    words.extend(more.iter().map(|&word| word.into()));
    words.extend(source.into_iter().flat_map(|source| ["-I".into(), source.to_string()]));
    words.push(target.to_string());
    words
}

/// `64 bytes from 10.0.0.2: icmp_seq=1 ttl=63 time=20.3 ms`
fn round_trip(line: &str) -> Option<Duration> {
    let (_, after) = line.split_once(" time=")?;
    let milliseconds: f64 = after.split(' ').next()?.parse().ok()?;
    Duration::try_from_secs_f64(milliseconds / 1000.0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_and_the_rest_is_not() {
        let line = "64 bytes from 10.0.0.2: icmp_seq=1 ttl=63 time=20.3 ms";
        assert_eq!(round_trip(line), Some(Duration::from_micros(20_300)));
        assert_eq!(round_trip("rtt min/avg/max/mdev = 20.1/20.2/20.3/0.1 ms"), None);
        assert_eq!(round_trip("64 bytes from 10.0.0.2: time=x ms"), None);
    }
}
