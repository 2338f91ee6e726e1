//! The state as tables for people.

use std::fmt::{Display, Write};

use comfy_table::{CellAlignment, Table, presets::NOTHING};

use super::view::{Path, Peer, State, Tunnel};

const HEADER: [&str; 9] =
    ["path", "state", "rtt ms", "Mbit/s", "weight", "loss %", "sent MB", "received MB", "to"];
/// Columns that hold numbers.
const NUMBERS: std::ops::Range<usize> = 2..8;
const UNKNOWN: &str = "–";

/// Lines of text, each ended.
pub fn render(state: &State) -> String {
    let mut text = format!("nawa {}, process {}\n", state.version, state.pid);
    if let Some(tunnel) = &state.tunnel {
        render_tunnel(&mut text, state.interface.as_deref().unwrap_or(UNKNOWN), tunnel);
    }
    if let Some(relay) = &state.relay {
        let figures: Vec<_> =
            relay.iter().map(|(name, value)| format!("{} {value}", name.replace('_', " "))).collect();
        line(&mut text, format!("relay: {}", figures.join(", ")));
    }
    text
}

/// Writing to a `String` cannot fail.
fn line(text: &mut String, line: impl Display) {
    let _ = writeln!(text, "{line}");
}

fn render_tunnel(text: &mut String, interface: &str, tunnel: &Tunnel) {
    line(text, format!("interface {interface}, mtu {}, public key {}", tunnel.mtu, tunnel.public_key));
    for peer in &tunnel.peers {
        line(text, format!("\n{}", peer_line(peer)));
        if !peer.paths.is_empty() {
            paths(&peer.paths).lines().for_each(|row| line(text, row.trim_end()));
        }
    }
}

fn peer_line(peer: &Peer) -> String {
    let cipher = peer.cipher.as_deref().map_or(String::new(), |cipher| format!(", {cipher}"));
    format!(
        "peer {}: {}, scheduler {}{cipher}, {} packets sent again, {} given up",
        peer.name,
        if peer.up { "up" } else { "down" },
        peer.scheduler,
        peer.resent_packets,
        peer.given_up_packets
    )
}

fn paths(paths: &[Path]) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(HEADER).add_rows(paths.iter().map(row));
    for column in NUMBERS {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn row(path: &Path) -> [String; 9] {
    let state = if path.backup { format!("{}, backup", path.state) } else { path.state.clone() };
    let relay = if path.relayed { " (relay)" } else { "" };
    [
        path.name.clone(),
        state,
        number(path.rtt_ms, 1),
        number(path.rate_bps.map(|rate| rate / 1e6), 2),
        number(Some(path.weight), 2),
        number(percent(path.lost_packets, path.sent_packets), 1),
        number(Some(path.sent_bytes as f64 / 1e6), 1),
        number(Some(path.received_bytes as f64 / 1e6), 1),
        path.remote.as_ref().map_or(UNKNOWN.into(), |remote| format!("{remote}{relay}")),
    ]
}

fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or(UNKNOWN.into(), |value| format!("{value:.decimals$}"))
}

/// `None` of nothing.
fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn path(name: &str, backup: bool, rtt_ms: Option<f64>, sent_packets: u64) -> serde_json::Value {
        json!({
            "name": name, "state": "up", "backup": backup, "remote": rtt_ms.map(|_| "198.51.100.2:51901"),
            "relayed": true, "rtt_ms": rtt_ms, "rate_bps": 9_870_000.0, "weight": 0.625,
            "sent_packets": sent_packets, "sent_bytes": 12_345_678, "lost_packets": 2, "received_bytes": 0,
        })
    }

    #[test]
    fn a_peer_with_two_paths() {
        let state = json!({
            "schema": 1, "version": "0.1.0", "pid": 7, "interface": "nawa0",
            "tunnel": {"public_key": "KEY=", "mtu": 1400, "peers": [{
                "name": "office", "up": true, "scheduler": "auto", "cipher": "aes-256-gcm",
                "resent_packets": 3, "given_up_packets": 0,
                "paths": [path("lte", false, Some(90.25), 100), path("sat", true, None, 0)],
            }]},
            "relay": {"sessions": 2, "forwarded_bytes": 10},
        });
        let state = serde_json::from_value(state).expect("what the daemon shows");
        let expected = "\
nawa 0.1.0, process 7
interface nawa0, mtu 1400, public key KEY=

peer office: up, scheduler auto, aes-256-gcm, 3 packets sent again, 0 given up
 path  state       rtt ms  Mbit/s  weight  loss %  sent MB  received MB  to
 lte   up            90.2    9.87    0.62     2.0     12.3          0.0  198.51.100.2:51901 (relay)
 sat   up, backup       –    9.87    0.62       –     12.3          0.0  –
relay: forwarded bytes 10, sessions 2
";
        assert_eq!(render(&state), expected);
    }

    #[test]
    fn a_relay_has_no_tunnel() {
        let state =
            serde_json::from_value(json!({"version": "0.1.0", "pid": 7})).expect("what the daemon shows");
        assert_eq!(render(&state), "nawa 0.1.0, process 7\n");
    }
}
