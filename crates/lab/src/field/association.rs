//! A file over SCTP from the front vehicle, by both its uplinks.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::ChildStdout;

use super::convoy::{Convoy, FRONT, hub_address};
use crate::error::{Doing, Error};
use crate::program::Process;

/// The file's size.
pub(super) const BYTES: u64 = 2_000_000;
const PORT: &str = "5005";

/// A transfer under way.
pub(super) struct Association {
    receiver: Process,
    said: BufReader<ChildStdout>,
    _sender: Process,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub(super) seconds: f64,
    pub(super) longest_gap_ms: f64,
}

impl Association {
    pub(super) fn start(convoy: &Convoy, program: &Path) -> Result<Self, Error> {
        let (size, own) = (BYTES.to_string(), ["10.1.0.1", "10.2.0.1"].map(str::to_owned));
        let hub = [0, 1].map(|uplink| hub_address(uplink).to_string());
        let words = ["receive", PORT, &size, &hub[0], &hub[1]];
        let mut receiver = Process::start(&convoy.hub, program, &words)?;
        let mut said = BufReader::new(receiver.stdout()?);
        said.read_line(&mut String::new()).doing(|| "read what `transfer` says".into())?;
        let words = ["send", PORT, &size, "0", &own[0], &own[1], &hub[0], &hub[1]];
        let sender = Process::start(convoy.vehicle(FRONT), program, &words)?;
        Ok(Self { receiver, said, _sender: sender })
    }

    /// What came of it; `None` while it goes on.
    pub(super) fn outcome(mut self) -> Result<Option<Outcome>, Error> {
        if !self.receiver.has_ended() {
            return Ok(None);
        }
        self.receiver.end()?;
        let mut text = String::new();
        self.said.read_to_string(&mut text).doing(|| "read what `transfer` says".into())?;
        let line = text.lines().last().unwrap_or_default();
        let mut numbers = line.split(' ').map_while(|word| word.parse().ok());
        match (numbers.next(), numbers.next()) {
            (Some(seconds), Some(longest_gap_ms)) => Ok(Some(Outcome { seconds, longest_gap_ms })),
            _ => Err(Error::program("transfer", format!("it said {line:?}"))),
        }
    }
}
