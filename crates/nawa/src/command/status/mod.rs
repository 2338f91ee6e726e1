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
        return super::print_json(&state);
    }
    super::print(table::render(&read(state)?).trim_end())
}

/// Why there is no tunnel in `state`.
pub fn no_tunnel(state: &Value) -> String {
    let strands = state["failed"].as_array().into_iter().flatten();
    let mut waiting = strands.filter_map(|one| Some((one, one["starts_again_in_s"].as_f64()?)));
    match waiting.find(|(one, _)| one["strand"] == "tunnel") {
        Some((one, time)) => {
            let why = one["why"].as_str().unwrap_or("see the daemon's log");
            format!("the tunnel has failed and starts again in {time:.0} s: {why}")
        }
        None => "this daemon runs no tunnel; `nawa status` shows what it runs".into(),
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tunnel_that_failed_is_not_one_that_is_not_wanted() {
        let failed = json!({"failed": [
            {"strand": "relay", "why": "x", "failures": 1, "starts_again_in_s": 9.0},
            {"strand": "tunnel", "why": "nawa0 is gone", "failures": 1, "starts_again_in_s": 4.0},
        ]});
        assert_eq!(no_tunnel(&failed), "the tunnel has failed and starts again in 4 s: nawa0 is gone");
        assert!(no_tunnel(&json!({})).contains("runs no tunnel"));
    }
}
