//! A file over SCTP from the front vehicle, by both its uplinks.

use std::time::Duration;

use super::convoy::{Convoy, FRONT, hub_address};
use crate::bicast::transfer::{Outcome, Program, Running};
use crate::error::Error;

/// The file's size.
const BYTES: u64 = 2_000_000;
const PORT: &str = "5005";
/// The programs end with the sample, whatever has arrived.
const LIMIT: Duration = Duration::from_secs(3600);

/// A transfer under way.
pub(super) struct Association {
    receiver: Running,
    _sender: Running,
}

impl Association {
    pub(super) fn start(convoy: &Convoy, program: &Program) -> Result<Self, Error> {
        let size = BYTES.to_string();
        let hub = [0, 1].map(|uplink| hub_address(uplink).to_string());
        let words = ["receive", PORT, &size, &hub[0], &hub[1]].map(str::to_owned);
        let mut receiver = program.start_on(&convoy.hub, &words, LIMIT)?;
        receiver.expect_line(LIMIT)?;
        let words = ["send", PORT, &size, "0", "10.1.0.1", "10.2.0.1", &hub[0], &hub[1]].map(str::to_owned);
        Ok(Self { receiver, _sender: program.start_on(convoy.vehicle(FRONT), &words, LIMIT)? })
    }

    /// What came of it; `None` while it goes on.
    pub(super) fn outcome(mut self) -> Result<Option<Outcome>, Error> {
        self.receiver.has_ended().then(|| Outcome::read(&self.receiver.expect_line(LIMIT)?)).transpose()
    }
}
