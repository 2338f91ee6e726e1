//! `nawa path`

use serde_json::{Value, json};

use super::status::{self, table, view};
use crate::cli::{PathShow, PathWhy};
use crate::control::{Request, client::Daemon, path::Set};
use crate::failure::Failure;

/// Shows the paths that are asked for.
pub fn show(show: &PathShow) -> Result<(), Failure> {
    let mut state = Daemon::connect()?.ask(Request::Status)?;
    select(&mut state, show.peer.as_deref(), show.name.as_deref())?;
    if show.json {
        return super::print_json(&as_json(&state));
    }
    let state = status::read(state)?;
    let peers = state.tunnel.map_or(Vec::new(), |tunnel| tunnel.peers);
    let shown: Vec<_> =
        peers.iter().map(|peer| format!("peer {}\n{}", peer.name, table::paths(peer))).collect();
    super::print(shown.join("\n").trim_end())
}

/// Says what became of the paths that are asked for, and what decided it.
pub fn why(why: &PathWhy) -> Result<(), Failure> {
    let mut state = Daemon::connect()?.ask(Request::Status)?;
    select(&mut state, Some(&why.peer), why.name.as_deref())?;
    if why.json {
        return super::print_json(&explained(&state));
    }
    let state = status::read(state)?;
    let Some(tunnel) = state.tunnel else { return Ok(()) };
    super::print(&explain_all(&tunnel).join("\n"))
}

fn explain_all(tunnel: &view::Tunnel) -> Vec<String> {
    let mut lines = Vec::new();
    for peer in &tunnel.peers {
        lines.extend(explain(peer));
        // Silence may be a wrong key's, and no stranger is told which: so both are named where they can be compared.
        if peer.paths.iter().any(|path| path.cause == "no-answer") {
            let (own, name, key) = (&tunnel.public_key, &peer.name, &peer.public_key);
            lines.push(format!(
                "this end's key is {own}: the file of {name} has to have it as this end's `public-key`"
            ));
            lines.push(format!(
                "the key of {name} is {key}, as this end's file says: `nawa status` there has to show it"
            ));
        }
        if !peer.up
            && let Some(view::Refused { ago_s, why }) = &tunnel.refused
        {
            lines.push(format!("last handshake refused: {why} ({ago_s:.0} s ago)"));
        }
    }
    lines
}

/// What became of the paths of `peer`, a line each.
fn explain(peer: &view::Peer) -> Vec<String> {
    let mut lines: Vec<_> = peer.reasons().map(|why| format!("{}: {why}", peer.name)).collect();
    for path in &peer.paths {
        let why = path.reason().map_or_else(String::new, |why| format!(": {why}"));
        lines.push(format!("path {} to {} is {}{why}", path.name, peer.name, path.state));
        let change =
            |one: &view::Change| format!("  {:>9.1} s ago  {:<8}  {}", one.ago_s, one.state, one.why);
        lines.extend(path.changes.iter().rev().map(change));
    }
    lines
}

/// Of each path what explains it.
fn explained(state: &Value) -> Value {
    let mut all = as_json(state);
    for path in all["paths"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        path.retain(|key, _| ["peer", "name", "state", "cause", "why", "changes"].contains(&key.as_str()));
    }
    all
}

/// Asks for a change; returns when it is in force.
pub fn change(request: Request) -> Result<(), Failure> {
    Daemon::connect()?.ask(request).map(drop)
}

/// Asks for a change of one path.
pub fn set(set: Set) -> Result<(), Failure> {
    if set.is_empty() {
        return Err(Failure::bad_input("nothing to change; `nawa path set --help` says what may be given"));
    }
    change(Request::PathSet(set))
}

/// Leaves the peer and the path in `state` that are asked for.
pub fn select(state: &mut Value, peer: Option<&str>, path: Option<&str>) -> Result<(), Failure> {
    if state["tunnel"].is_null() {
        return Err(Failure::failed(status::no_tunnel(state)));
    }
    let Some(peers) = state.pointer_mut("/tunnel/peers").and_then(Value::as_array_mut) else { return Ok(()) };
    let to = peer.map_or("any peer".into(), |name| format!("peer {name}"));
    if let Some(name) = peer {
        keep(peers, name).map_err(|there| missing(&to, &there))?;
    }
    let Some(path) = path else { return Ok(()) };
    let paths = peers.iter_mut().filter_map(|peer| peer["paths"].as_array_mut());
    let others: Vec<_> = paths.filter_map(|paths| keep(paths, path).err()).collect();
    match others.len() < peers.len() {
        true => Ok(()),
        false => Err(missing(&format!("path {path} to {to}"), &others.join(", "))),
    }
}

/// Leaves the one that is called `name`; the names that there are if none is.
fn keep(named: &mut Vec<Value>, name: &str) -> Result<(), String> {
    let names: Vec<_> = named.iter().filter_map(|one| one["name"].as_str()).collect();
    let there = names.join(", ");
    named.retain(|one| one["name"].as_str() == Some(name));
    if named.is_empty() { Err(there) } else { Ok(()) }
}

fn missing(what: &str, there: &str) -> Failure {
    let there = if there.is_empty() { "none" } else { there };
    Failure::failed(format!("there is no {what}; there is: {there}"))
}

/// `{"paths": […]}`, each path as in `nawa status --json`, with its `peer`.
fn as_json(state: &Value) -> Value {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut all = Vec::new();
    for peer in list(&state["tunnel"]["peers"]) {
        for mut path in list(&peer["paths"]) {
            path["peer"] = peer["name"].clone();
            all.push(path);
        }
    }
    json!({"schema": 1, "paths": all})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_named_where_one_may_be_wrong() {
        let lines = |cause: &str, up: bool| {
            let path = json!({
                "id": 0, "name": "lte", "state": "silent", "cause": cause, "why": null, "backup": false, "remote": null,
                "relayed": false, "rtt_ms": null, "rate_bps": null, "weight": 1.0, "sent_packets": 0, "sent_bytes": 0,
                "lost_packets": 0, "received_bytes": 0,
            });
            let tunnel = json!({"public_key": "OWN=", "mtu": 1400, "refused": {"ago_s": 2.0, "why": "a stranger"},
                "peers": [{"name": "office", "public_key": "THEIRS=", "up": up, "scheduler": "auto", "resent_packets": 0,
                           "given_up_packets": 0, "paths": [path]}]});
            explain_all(&serde_json::from_value(tunnel).expect("what the daemon shows")).join("\n")
        };
        let silent = lines("no-answer", false);
        assert!(
            silent.contains("OWN=") && silent.contains("THEIRS=") && silent.contains("a stranger"),
            "{silent}"
        );
        assert_eq!(lines("link-silent", true), "path lte to office is silent");
    }

    fn state() -> Value {
        let path = |name: &str| json!({"name": name});
        json!({"tunnel": {"peers": [
            {"name": "a", "paths": [path("x"), path("y")]},
            {"name": "b", "paths": [path("x")]},
        ]}})
    }

    fn selected(peer: Option<&str>, name: Option<&str>) -> Result<String, String> {
        let mut state = state();
        let shown = select(&mut state, peer, name);
        shown.map(|()| as_json(&state).to_string()).map_err(|failure| failure.lines.concat())
    }

    #[test]
    fn the_newest_change_comes_first() {
        let change = |ago_s: f64, state: &str, why: &str| json!({"ago_s": ago_s, "state": state, "why": why});
        let changes =
            [change(75.0, "up", "answers after 41.2 ms"), change(3.2, "silent", "silent for 3.2 s")];
        let path = json!({
            "id": 0, "name": "lte", "state": "silent", "cause": "no-answer", "why": "no answer", "backup": false,
            "remote": null, "relayed": false, "rtt_ms": null, "rate_bps": null, "weight": 1.0, "sent_packets": 0,
            "sent_bytes": 0, "lost_packets": 0, "received_bytes": 0, "changes": changes,
        });
        let peer = json!({
            "name": "office", "up": false, "why": null, "scheduler": "auto", "cipher": null, "resent_packets": 0,
            "given_up_packets": 0, "bicast": null, "paths": [path],
        });
        let lines = explain(&serde_json::from_value(peer.clone()).expect("what the daemon shows"));
        let expected = [
            "path lte to office is silent: no answer",
            "        3.2 s ago  silent    silent for 3.2 s",
            "       75.0 s ago  up        answers after 41.2 ms",
        ];
        assert_eq!(lines, expected);
        let said = explained(&json!({"tunnel": {"peers": [peer]}}));
        let keys: Vec<_> = said["paths"][0].as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["cause", "changes", "name", "peer", "state", "why"]);
    }

    #[test]
    fn what_is_asked_for_is_left() {
        let all = r#"{"paths":[{"name":"x","peer":"a"},{"name":"y","peer":"a"},{"name":"x","peer":"b"}],"schema":1}"#;
        assert_eq!(selected(None, None).as_deref(), Ok(all));
        assert_eq!(
            selected(Some("b"), None).as_deref(),
            Ok(r#"{"paths":[{"name":"x","peer":"b"}],"schema":1}"#)
        );
        assert_eq!(
            selected(Some("a"), Some("y")).as_deref(),
            Ok(r#"{"paths":[{"name":"y","peer":"a"}],"schema":1}"#)
        );
        assert_eq!(selected(Some("c"), None), Err("nawa: there is no peer c; there is: a, b".into()));
        assert_eq!(
            selected(Some("b"), Some("y")),
            Err("nawa: there is no path y to peer b; there is: x".into())
        );
        assert_eq!(
            selected(None, Some("y")).as_deref(),
            Ok(r#"{"paths":[{"name":"y","peer":"a"}],"schema":1}"#)
        );
        assert_eq!(
            selected(None, Some("z")),
            Err("nawa: there is no path z to any peer; there is: x, y, x".into())
        );
    }
}
