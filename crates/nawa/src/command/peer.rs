//! `nawa peer`

use serde_json::{Value, json};

use super::path::select;
use super::status::{self, cells, view};
use crate::cli::PeerShow;
use crate::control::{Request, client::Daemon};
use crate::failure::Failure;

const HEADER: [&str; 5] = ["peer", "state", "paths up", "public key", "routes"];

/// Shows the peers that are asked for.
pub fn show(show: &PeerShow) -> Result<(), Failure> {
    let mut state = Daemon::connect()?.ask(Request::Status)?;
    select(&mut state, show.name.as_deref(), None)?;
    if show.json {
        return super::print_json(&as_json(&state));
    }
    let state = status::read(state)?;
    let rows = state.tunnel.iter().flat_map(|tunnel| &tunnel.peers).map(row).collect();
    super::print(cells::rows_under(HEADER, rows, 2..3).trim_end())
}

fn row(peer: &view::Peer) -> [String; 5] {
    let up = peer.paths.iter().filter(|path| path.state == "up").count();
    [
        peer.name.clone(),
        if peer.up { "up" } else { "down" }.into(),
        format!("{up} of {}", peer.paths.len()),
        peer.public_key.clone(),
        peer.routes.join(", "),
    ]
}

/// `{"peers": […]}`, each as in `nawa status --json`.
fn as_json(state: &Value) -> Value {
    json!({"schema": 1, "peers": state["tunnel"]["peers"]})
}
