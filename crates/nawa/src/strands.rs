//! The strands that a file asks for, running: the tunnel and the relay, each on threads of its own.

use std::sync::mpsc::Sender;

use serde_json::{Value, json};

use crate::config::Resolved;
use crate::daemon::Event;
use crate::failure::Failure;

/// All that runs.
pub struct Strands {}

/// What `nawa status` asks.
pub struct Status {}

impl Strands {
    /// Starts what `resolved` asks for. A strand that ends by itself sends [`Event::Ended`].
    ///
    /// # Errors
    /// Failed if one cannot start; then none runs.
    pub fn start(_resolved: Resolved, _events: &Sender<Event>) -> Result<Strands, Failure> {
        Ok(Strands {})
    }

    /// The state, for as long as they run.
    pub fn status(&self) -> Status {
        Status {}
    }

    /// Stops all and waits until what they made is gone.
    pub fn stop(self) {}
}

impl Status {
    /// One JSON object with a member for each strand.
    pub fn now(&self) -> Value {
        json!({"schema": 1, "version": env!("CARGO_PKG_VERSION"), "pid": std::process::id()})
    }
}
