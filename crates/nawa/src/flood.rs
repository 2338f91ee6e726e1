//! The nodes that flood: those that the daemon runs.

use std::sync::mpsc::Sender;
use std::time::{SystemTime, UNIX_EPOCH};

use flood::nft;
use flood::node::{self, Running, Settings, Watch};
use rand_core::{OsRng, TryRngCore};

use crate::config::Flood;
use crate::daemon::Event;
use crate::strands;

/// A running node for each `[[flood]]`. Dropping it stops them.
#[derive(Default)]
pub struct Floods(Vec<(Flood, Running)>);

impl Floods {
    /// Runs what `wanted` says from now on. A node whose section is the same goes on undisturbed; one that has changed
    /// starts anew.
    ///
    /// # Errors
    /// One sentence if a node cannot start; then those run that ran before.
    pub fn reconfigure(&mut self, wanted: Vec<Flood>, events: &Sender<Event>) -> Result<(), String> {
        let before = self.0.iter().map(|(flood, _)| flood.clone()).collect();
        let result = self.run(wanted, events);
        if result.is_err()
            && let Err(error) = self.run(before, events)
        {
            tracing::error!("what flooded before cannot start again: {error}");
        }
        result
    }

    fn run(&mut self, wanted: Vec<Flood>, events: &Sender<Event>) -> Result<(), String> {
        self.0.retain(|(flood, _)| wanted.contains(flood));
        for flood in wanted {
            if self.0.iter().any(|(running, _)| *running == flood) {
                continue;
            }
            let running = start(&flood, events)?;
            self.0.push((flood, running));
        }
        Ok(())
    }

    /// What asks them for their state.
    pub fn watches(&self) -> Vec<Watch> {
        self.0.iter().map(|(_, running)| running.watch()).collect()
    }
}

fn start(flood: &Flood, events: &Sender<Event>) -> Result<Running, String> {
    let settings = Settings {
        interface: flood.interface.clone(),
        rules: flood.rules,
        mode: flood.mode,
        ttl: flood.ttl,
        port: flood.port,
        epoch: epoch(),
        suppression: flood.suppression,
        busy_poll: flood.busy_poll,
    };
    let running = node::start(settings, OsRng.unwrap_err(), strands::ended(events));
    let running = running.map_err(|error| error.to_string())?;
    tracing::info!(interface = flood.interface, id = flood.rules.id, "the node floods");
    Ok(running)
}

/// Seconds since 1970 until 2106: greater in each life than in the one before, as long as the clock is not set back.
#[allow(
    clippy::disallowed_methods,
    reason = "the daemon is an edge, and a life has to be told from the one before"
)]
fn epoch() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}

/// Removes what a daemon that was killed has left in nftables, if nft is here at all.
pub fn remove_leftovers() {
    if let Err(error) = nft::remove_leftovers() {
        tracing::debug!("nothing to remove from nftables: {error}");
    }
}
