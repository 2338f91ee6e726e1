//! The state as tables for people.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use super::cells::{UNKNOWN, megabytes, number, percent, rows_under};
use super::view::{
    self, Coding, CodingNeighbour, Copies, Flight, Flood, Path, Peer, Relay, Session, State, Tunnel,
};

const PATH_HEADER: [&str; 9] =
    ["path", "state", "rtt ms", "Mbit/s", "weight", "loss %", "sent MB", "received MB", "to"];
const SESSION_HEADER: [&str; 5] = ["client", "its key", "destination", "state", "idle s"];

/// Lines of text, each ended.
pub fn render(state: &State) -> String {
    let log = state.log.as_ref().map_or(String::new(), |log| format!(", log: {log}"));
    let mut text = format!("nawa {}, process {}{log}\n", state.version, state.pid);
    for view::Failed { strand, why, failures, starts_again_in_s } in &state.failed {
        let now =
            starts_again_in_s.map_or("runs again".into(), |time| format!("starts again in {time:.0} s"));
        line(&mut text, format!("{strand}: failed {failures} times in a row, {now}: {why}"));
    }
    if !state.reload_refused.is_empty() {
        line(&mut text, "the last reload changed nothing:");
    }
    for why in &state.reload_refused {
        line(&mut text, format!("  {why}"));
    }
    if let Some(tunnel) = &state.tunnel {
        render_tunnel(&mut text, state.interface.as_deref().unwrap_or(UNKNOWN), tunnel);
    }
    if let Some(relay) = &state.relay {
        render_relay(&mut text, relay);
    }
    if let Some(flight) = &state.flight {
        line(&mut text, format!("\n{}", flight_line(flight)));
    }
    if let Some(bicast) = &state.bicast {
        line(&mut text, "");
        text.push_str(&super::bicast::render(bicast));
    }
    for flood in &state.flood {
        render_flood(&mut text, flood);
    }
    for coding in &state.coding {
        line(&mut text, format!("\n{}", coding_line(coding)));
        let off = coding.off_because.iter().map(|why| format!("off: {why}"));
        let idle = coding.holds_nothing_because.iter().map(|why| format!("holds nothing: {why}"));
        for note in off.chain(idle).chain(coding.warning.clone()) {
            line(&mut text, format!(" {note}"));
        }
        for one in &coding.neighbours {
            line(&mut text, format!(" {}", coding_neighbour(one)));
        }
    }
    text
}

fn render_flood(text: &mut String, flood: &Flood) {
    let Flood { interface, id, mode, .. } = flood;
    let Some(relay) = &flood.relay else {
        let why = flood.waits.as_deref().unwrap_or(UNKNOWN);
        return line(text, format!("\nflood on {interface}: id {id}, mode {mode}, waits: {why}"));
    };
    let authenticated = if flood.authenticated { "authenticated" } else { "not authenticated" };
    line(
        text,
        format!(
            "\nflood on {interface}: id {id}, mode {mode} ({relay}), {authenticated}, {} receivers",
            flood.receivers
        ),
    );
    if let Some(why) = &flood.fallback {
        line(text, format!(" not in the driver: {why}"));
    }
    for warning in &flood.warnings {
        line(text, format!(" {warning}"));
    }
    // Of what should not be, only what is.
    let failed = |count: u64, what: &str| if count > 0 { format!(", {count} {what}") } else { String::new() };
    line(
        text,
        format!(
            " {} frames sent{}, {} heard, {} relayed{}{}",
            flood.sent_frames,
            failed(flood.unsent_frames, "not sent"),
            flood.new_frames,
            flood.relayed_frames,
            failed(flood.suppressed_frames, "left to neighbours"),
            failed(flood.undelivered_messages, "messages not delivered"),
        ),
    );
    line(text, format!(" dropped: {}", counts(&flood.dropped_frames)));
}

fn coding_line(coding: &Coding) -> String {
    let Coding { interface, master, mode, .. } = coding;
    if let Some(why) = &coding.waits_because {
        return format!("coding on {interface} by {master}: mode {mode}, waits: {why}");
    }
    let held = (coding.held_packets > 0).then(|| coding.held_time_ms / coding.held_packets as f64);
    format!(
        "coding on {interface} by {master}: mode {mode}, {} frames sent, {} % of them sums, {} packets relayed, {} of them in sums, \
         {} held for {} ms, {} decoded, {} not decoded, {} neighbours left out",
        coding.sent_frames,
        number(coding.coding_ratio.map(|ratio| ratio * 100.0), 1),
        coding.relayed_packets,
        2 * coding.sent_coded_frames,
        coding.held_packets,
        number(held, 1),
        coding.decoded_packets,
        coding.missing_partner_frames + coding.wrong_partner_frames,
        coding.left_out_neighbours
    )
}

fn coding_neighbour(neighbour: &CodingNeighbour) -> String {
    let CodingNeighbour { address, overheard_frames, decodes, left_out } = neighbour;
    let heard = match overheard_frames {
        0 => "not overheard yet".to_owned(),
        count => format!("{count} frames for others overheard"),
    };
    let says = if *decodes { ", decodes" } else { "" };
    format!("neighbour {address}: {heard}{says}{}", if *left_out { ", left out" } else { "" })
}

fn flight_line(flight: &Flight) -> String {
    let Flight { registered, default, connections, error, lost } = flight;
    if let Some(error) = error {
        return format!("flight: {error}");
    }
    if !lost.is_empty() {
        let lost = lost.join(", ");
        return format!(
            "flight: somebody has taken {lost} away, as `nawa flight off` does; a reload registers it again"
        );
    }
    let (registered, count) = (registered.join(", "), connections.len());
    format!("flight: {registered} registered, default {default}, {count} connections; see `nawa flight show`")
}

/// Those that are not 0, by name.
fn counts(counts: &BTreeMap<String, u64>) -> String {
    let counts = counts.iter().filter(|(_, count)| **count > 0);
    let counts: Vec<_> = counts.map(|(what, count)| format!("{what} {count}")).collect();
    if counts.is_empty() { "none".into() } else { counts.join(", ") }
}

/// Writing to a `String` cannot fail.
fn line(text: &mut String, line: impl Display) {
    let _ = writeln!(text, "{line}");
}

fn render_tunnel(text: &mut String, interface: &str, tunnel: &Tunnel) {
    line(text, format!("interface {interface}, mtu {}, public key {}", tunnel.mtu, tunnel.public_key));
    if let Some(route) = &tunnel.default_route {
        line(text, format!("default route: {}", route.words().join("; ")));
    }
    if let Some(name) = &tunnel.congestion_control {
        line(text, format!("TCP connections of this host into it use {name}"));
    }
    if let Some(view::Refused { ago_s, why }) = &tunnel.refused {
        line(text, format!("last handshake refused: {why} ({ago_s:.0} s ago)"));
    }
    if tunnel.peers.is_empty() {
        line(text, "no peer yet: invite one with `nawa invite NAME`");
    }
    for peer in &tunnel.peers {
        let open = tunnel.default_route.as_ref().is_some_and(|route| route.leaves(&peer.name));
        line(text, format!("\n{}", peer_line(peer, open)));
        peer.reasons().for_each(|why| line(text, format!(" {why}")));
        peer.bicast.iter().for_each(|copies| line(text, copies_line(copies)));
        text.push_str(&paths(peer));
    }
}

/// `open`: packets that should go to it leave in the clear.
fn peer_line(peer: &Peer, open: bool) -> String {
    let cipher = peer.cipher.as_deref().map_or(String::new(), |cipher| format!(", {cipher}"));
    format!(
        "peer {}: {}, scheduler {}{cipher}, {} packets sent again, {} given up",
        peer.name,
        match (open, peer.up) {
            (true, _) => "fails open",
            (false, true) => "up",
            (false, false) => "down",
        },
        peer.scheduler,
        peer.resent_packets,
        peer.given_up_packets
    )
}

fn copies_line(copies: &Copies) -> String {
    format!(
        " sent twice: {}; not: {}; {} % more bytes",
        counts(&copies.duplicated_packets),
        counts(&copies.not_duplicated_packets),
        number(percent(copies.extra_bytes, copies.sent_bytes), 1)
    )
}

fn render_relay(text: &mut String, relay: &Relay) {
    line(
        text,
        format!(
            "\nrelay: {} sessions, {} packets and {} MB forwarded, dropped: {}",
            relay.sessions.len(),
            relay.forwarded_packets,
            megabytes(relay.forwarded_bytes),
            counts(&relay.dropped_packets)
        ),
    );
    if !relay.sessions.is_empty() {
        let rows = relay.sessions.iter().map(session_row).collect();
        text.push_str(&rows_under(SESSION_HEADER, rows, 4..5));
    }
}

fn session_row(session: &Session) -> [String; 5] {
    let state = if session.open { "open" } else { "waits for the destination" };
    [
        format!("{}{}", session.client, if session.tls { " (TLS)" } else { "" }),
        session.client_key.clone(),
        session.destination.clone(),
        state.into(),
        number(Some(session.idle_s), 0),
    ]
}

fn path_row(path: &Path) -> [String; 9] {
    let mut state = path.state.clone();
    state += if path.backup { ", backup" } else { "" };
    state += &if path.prefer > 0 { format!(", prefer {}", path.prefer) } else { String::new() };
    state += if path.metered { ", metered" } else { "" };
    let relay = match (path.relayed, path.tls) {
        (_, true) => " (relay, TLS)",
        (true, false) => " (relay)",
        (false, false) => "",
    };
    [
        path.name.clone(),
        state,
        number(path.rtt_ms, 1),
        number(path.rate_bps.map(|rate| rate / 1e6), 2),
        number(Some(path.weight), 2),
        number(percent(path.lost_packets, path.sent_packets), 1),
        megabytes(path.sent_bytes),
        megabytes(path.received_bytes),
        path.remote.as_ref().map_or(UNKNOWN.into(), |remote| format!("{remote}{relay}")),
    ]
}

/// The paths of `peer` as a table, each line ended; empty if it has none.
pub fn paths(peer: &Peer) -> String {
    if peer.paths.is_empty() {
        return String::new();
    }
    let rows = peer.paths.iter().map(path_row).collect();
    let mut text = rows_under(PATH_HEADER, rows, 2..8);
    for path in &peer.paths {
        path.reason().iter().for_each(|why| line(&mut text, format!(" {}: {why}", path.name)));
        if let Some(cap) = path.monthly_cap_bytes {
            let (used, cap) = (megabytes(path.monthly_used_bytes), megabytes(cap));
            let resets = &path.monthly_resets_on;
            line(
                &mut text,
                format!(" {}: {used} of {cap} MB used this month, resets on {resets} (UTC)", path.name),
            );
            let unsaved = path.monthly_unsaved.iter();
            unsaved.for_each(|why| line(&mut text, format!(" {}: what is used is {why}", path.name)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn path(name: &str, backup: bool, rtt_ms: Option<f64>, sent_packets: u64) -> serde_json::Value {
        json!({
            "id": 0, "name": name, "state": "up", "why": backup.then_some("wan2 is down"), "backup": backup, "remote": rtt_ms.map(|_| "198.51.100.2:51901"),
            "relayed": true, "rtt_ms": rtt_ms, "rate_bps": 9_870_000.0, "weight": 0.625,
            "sent_packets": sent_packets, "sent_bytes": 12_345_678, "lost_packets": 2, "received_bytes": 0,
            "monthly_cap_bytes": backup.then_some(30_000_000_000u64), "monthly_used_bytes": 1_250_000_000,
            "monthly_resets_on": "2026-12-01",
        })
    }

    fn coding(waits_because: Option<&str>) -> serde_json::Value {
        json!({
            "interface": "mesh0", "master": "nc0", "mode": "any", "waits_because": waits_because,
            "off_because": null, "holds_nothing_because": waits_because.is_none().then_some("nothing is relayed"),
            "warning": waits_because.is_none().then_some("`mesh0` has an address"),
            "neighbours": if waits_because.is_some() { json!([]) } else { json!([
                {"address": "02:00:00:00:00:01", "overheard_frames": 7, "decodes": true, "left_out": false},
                {"address": "02:00:00:00:00:03", "overheard_frames": 0, "decodes": false, "left_out": true},
            ]) }, "sent_frames": 200,
            "sent_coded_frames": 25, "coding_ratio": 0.125, "relayed_packets": 90, "held_packets": 4,
            "held_time_ms": 6.0, "decoded_packets": 30, "missing_partner_frames": 2, "wrong_partner_frames": 1,
            "left_out_neighbours": 1,
        })
    }

    #[test]
    fn a_peer_with_two_paths() {
        let state = json!({
            "schema": 1, "version": "0.1.0", "pid": 7, "interface": "nawa0",
            "tunnel": {"public_key": "KEY=", "mtu": 1400, "peers": [{
                "name": "office", "up": true, "scheduler": "auto", "cipher": "aes-256-gcm",
                "resent_packets": 3, "given_up_packets": 0, "bicast": {
                    "sent_bytes": 2000, "extra_bytes": 50, "duplicated_packets": {"begin": 1, "request": 7},
                    "not_duplicated_packets": {},
                },
                "paths": [path("lte", false, Some(90.25), 100), path("sat", true, None, 0)],
            }]},
            "relay": {
                "sessions": [{"client_key": "VAN=", "client": "10.2.0.1:4", "destination": "10.3.0.2:5",
                              "open": true, "idle_s": 0.25}],
                "pending_handshakes": 0, "forwarded_packets": 7, "forwarded_bytes": 7_000_000,
                "dropped_packets": {"no-session": 2},
            },
            "flight": {"schema": 1, "registered": ["fsat"], "default": "fsat", "connections": []},
            "flood": [{
                "interface": "wlan0", "id": 7, "mode": "driver", "relay": "packet-socket", "authenticated": true,
                "fallback": "another program is there", "warnings": ["nobody has relayed it"], "sent_frames": 1, "unsent_frames": 0, "new_frames": 20,
                "relayed_frames": 19, "suppressed_frames": 0, "receivers": 2, "undelivered_messages": 3,
                "dropped_frames": {"duplicate": 40, "bad-tag": 0},
            }, {
                "interface": "wlan1", "id": 8, "mode": "kernel", "relay": null, "waits": "the interface is gone",
            }],
            "coding": [coding(None), coding(Some("`mesh0` is down"))],
        });
        let state = serde_json::from_value(state).expect("what the daemon shows");
        let expected = "\
nawa 0.1.0, process 7
interface nawa0, mtu 1400, public key KEY=

peer office: up, scheduler auto, aes-256-gcm, 3 packets sent again, 0 given up
 sent twice: begin 1, request 7; not: none; 2.5 % more bytes
 path  state       rtt ms  Mbit/s  weight  loss %  sent MB  received MB  to
 lte   up            90.2    9.87    0.62     2.0     12.3          0.0  198.51.100.2:51901 (relay)
 sat   up, backup       –    9.87    0.62       –     12.3          0.0  –
 sat: wan2 is down
 sat: 1250.0 of 30000.0 MB used this month, resets on 2026-12-01 (UTC)

relay: 1 sessions, 7 packets and 7.0 MB forwarded, dropped: no-session 2
 client      its key  destination  state  idle s
 10.2.0.1:4  VAN=     10.3.0.2:5   open        0

flight: fsat registered, default fsat, 0 connections; see `nawa flight show`

flood on wlan0: id 7, mode driver (packet-socket), authenticated, 2 receivers
 not in the driver: another program is there
 nobody has relayed it
 1 frames sent, 20 heard, 19 relayed, 3 messages not delivered
 dropped: duplicate 40

flood on wlan1: id 8, mode kernel, waits: the interface is gone

coding on mesh0 by nc0: mode any, 200 frames sent, 12.5 % of them sums, 90 packets relayed, 50 of them in sums, 4 held for 1.5 ms, \
30 decoded, 3 not decoded, 1 neighbours left out
 holds nothing: nothing is relayed
 `mesh0` has an address
 neighbour 02:00:00:00:00:01: 7 frames for others overheard, decodes
 neighbour 02:00:00:00:00:03: not overheard yet, left out

coding on mesh0 by nc0: mode any, waits: `mesh0` is down
";
        assert_eq!(render(&state), expected);
    }

    #[test]
    fn where_the_default_route_goes_is_said() {
        let leads = |goes: &str| json!({"goes": goes, "peer": (goes != "beside").then_some("office")});
        let shown = |ipv4: &str, ipv6: &str| {
            let state = json!({"version": "0.1.0", "pid": 7, "interface": "nawa0", "log": "/var/lib/nawa/nawa.log",
                "tunnel": {"public_key": "KEY=", "mtu": 1400, "refused": {"ago_s": 3.2, "why": "a stranger"},
                "default_route": {"ipv4": leads(ipv4), "ipv6": leads(ipv6)}, "peers": [{
                "name": "office", "up": true, "scheduler": "auto", "resent_packets": 0, "given_up_packets": 0, "paths": []}]}});
            render(&serde_json::from_value(state).expect("what the daemon shows"))
        };
        let expected = "\
nawa 0.1.0, process 7, log: /var/lib/nawa/nawa.log
interface nawa0, mtu 1400, public key KEY=
default route: IPv4 through the tunnel to office; IPv6 beside the tunnel, for no peer has ::/0
last handshake refused: a stranger (3 s ago)

peer office: up, scheduler auto, 0 packets sent again, 0 given up
 no path yet: this end lists none, and the other has not called; see that `nawa up` runs there
";
        assert_eq!(shown("tunnel", "beside"), expected);
        let open = shown("clear", "clear");
        assert!(open.contains("IPv4 in the clear") && open.contains("peer office: fails open,"), "{open}");
        assert!(shown("held", "held").contains("IPv6 held back, for no path is up to office"));
    }

    /// A hub shows why nobody is there.
    #[test]
    fn nobody_and_a_path_by_which_nobody_comes_are_explained() {
        let shown = |peers| {
            let state = json!({"version": "0.1.0", "pid": 7, "tunnel": {"public_key": "KEY=", "mtu": 1400, "peers": peers}});
            render(&serde_json::from_value(state).expect("what the daemon shows"))
        };
        assert!(shown(json!([])).contains("no peer yet: invite one"));
        let mut wlan = path("wlan", false, None, 0);
        wlan["state"] = "down".into();
        let van = json!({"name": "van", "up": false, "scheduler": "auto", "resent_packets": 0, "given_up_packets": 0, "paths": [wlan]});
        assert!(shown(json!([van])).contains(" wlan: the other end lists it and has not come by it"));
    }

    #[test]
    fn a_relay_has_no_tunnel() {
        let state =
            serde_json::from_value(json!({"version": "0.1.0", "pid": 7})).expect("what the daemon shows");
        assert_eq!(render(&state), "nawa 0.1.0, process 7\n");
    }
}
