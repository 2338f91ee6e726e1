//! `nawa status`

use crate::control::{Request, client::Daemon};
use crate::failure::Failure;

/// Shows the daemon's state, as one JSON object or as tables.
pub fn run(json: bool) -> Result<(), Failure> {
    let state = Daemon::connect()?.ask(Request::Status)?;
    if json { super::print(&state.to_string()) } else { super::print(&state.to_string()) }
}
