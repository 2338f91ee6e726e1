//! `nawa status`

mod table;
mod view;

use crate::control::{Request, client::Daemon};
use crate::failure::Failure;

/// Shows the daemon's state, as one JSON object or as tables.
pub fn run(json: bool) -> Result<(), Failure> {
    let state = Daemon::connect()?.ask(Request::Status)?;
    if json {
        return super::print(&state.to_string());
    }
    let state = serde_json::from_value(state).map_err(|error| {
        Failure::failed(format!(
            "the daemon is of another version ({error}); use `nawa status --json`, or restart it"
        ))
    })?;
    super::print(table::render(&state).trim_end())
}
