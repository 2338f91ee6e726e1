//! `nawa status`

mod bicast;
pub mod cells;
pub mod table;
pub mod view;

use serde_json::Value;

use self::view::State;
use crate::control::{Request, client::Daemon};
use crate::failure::Failure;

/// Shows the daemon's state, as one JSON object or as tables.
pub fn run(json: bool) -> Result<(), Failure> {
    let state = Daemon::connect()?.ask(Request::Status)?;
    if json {
        return super::print(&state.to_string());
    }
    super::print(table::render(&read(state)?).trim_end())
}

/// What the daemon shows, for tables.
///
/// # Errors
/// Failed if the daemon shows something else.
pub fn read(state: Value) -> Result<State, Failure> {
    serde_json::from_value(state).map_err(|error| {
        Failure::failed(format!(
            "the daemon is of another version ({error}); use `nawa status --json`, or restart it"
        ))
    })
}
