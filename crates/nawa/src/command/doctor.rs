//! `nawa doctor`

use serde_json::{Value, json};

use super::status;
use super::status::view::{DefaultRoute, Refused, State, Tunnel};
use crate::cli::Doctor;
use crate::config::{self, Settings};
use crate::control::{Request, client::Daemon};
use crate::doctor::{Finding, Level, gather, host, paths, render, strands};
use crate::failure::{Failure, Status};

/// Says what this host can run, what the file asks that it lacks, and what keeps the paths from coming up.
///
/// # Errors
/// Failed if something does not work; bad input if the file is bad.
pub fn run(doctor: &Doctor) -> Result<(), Failure> {
    let facts = gather::host();
    let mut all = host::findings(&facts);
    let daemon = Daemon::find()?.map(|mut daemon| state(daemon.ask(Request::Status), &mut all));
    if daemon.is_none() {
        all.extend(strands::leftovers(&gather::left()));
    }
    all.extend(daemon.iter().flat_map(of_daemon));
    let settings = doctor.file.as_deref().map(config::load);
    let status = if matches!(settings, Some(Err(_))) { Status::BadInput } else { Status::Failed };
    let hub_of = match (&settings, &daemon) {
        (Some(Ok(settings)), _) => settings.tunnel.as_ref().and_then(|tunnel| {
            let called = tunnel.config.peers.iter().any(|peer| peer.paths.is_empty());
            called.then(|| tunnel.addresses.clone())
        }),
        (_, Some(State { tunnel: Some(tunnel), interface: Some(interface), .. })) => {
            waits_for_calls(tunnel).then(|| gather::networks_of(interface))
        }
        _ => None,
    };
    if let Some(networks) = hub_of {
        let mut drops = gather::dropping(&["forward"]).unwrap_or_default();
        // Of IPv4 is spoken.
        drops.retain(|chain| chain.starts_with("ip ") || chain.starts_with("inet "));
        all.push(strands::hub(facts.forwards.0, gather::masquerades(&networks), &drops));
    }
    let tunnel = match (settings, daemon) {
        (Some(Err(failure)), _) => {
            let (costs, todo) = ("nothing of it runs", "correct it; `nawa check` reads it");
            all.extend(failure.lines.iter().map(|line| Finding::new(Level::Fail, "file", line, costs, todo)));
            None
        }
        (Some(Ok(settings)), daemon) => {
            all.extend(strands::findings(&gather::strands(&settings)));
            match daemon {
                Some(state) => state.tunnel,
                None if gather::answers_are_dropped(&facts) => {
                    let what = "its paths are not tried: by the rules that a killed daemon has left, \
                                no way leads back to a peer, and rp_filter drops its answers";
                    let (costs, todo) = ("whether they come up is not known", "`nawa down`, and ask again");
                    all.push(Finding::new(Level::Fail, "tunnel", what, costs, todo));
                    None
                }
                None => try_out(settings, &mut all),
            }
        }
        (None, daemon) => daemon.and_then(|state| state.tunnel),
    };
    all.extend(tunnel.iter().flat_map(of_tunnel));
    show(doctor.json, &all, status)
}

/// What a daemon answered; if it refused, nothing of what it runs is known.
fn state(answer: Result<Value, Failure>, all: &mut Vec<Finding>) -> State {
    answer.and_then(status::read).unwrap_or_else(|failure| {
        all.push(Finding::new(Level::Fail, "daemon", failure.why(), "what it runs is not shown", ""));
        State::default()
    })
}

/// Whether a tunnel has a peer that it lists no path to.
fn waits_for_calls(tunnel: &Tunnel) -> bool {
    !tunnel.peers.iter().all(|peer| peer.paths.iter().any(|path| path.listed))
}

/// The paths of a file that nobody runs.
fn try_out(settings: Settings, all: &mut Vec<Finding>) -> Option<Tunnel> {
    settings.tunnel.as_ref()?;
    let failed = |failure: Failure| {
        let costs = "no tunnel; its paths cannot be tried";
        all.push(Finding::new(Level::Fail, "tunnel", failure.why(), costs, ""));
    };
    gather::trial(settings).map_err(failed).ok()
}

/// Where packets go that no narrower route leads anywhere.
fn default_route(route: &DefaultRoute) -> Finding {
    let goes = |what: &str| route.ipv4.goes == what || route.ipv6.goes == what;
    let what = route.words().join("; ");
    let (level, costs, todo) = if goes("clear") {
        let todo = "see the paths below; without `fail-open` packets wait for the tunnel";
        (Level::Warn, "what should be in the tunnel can be read on the way", todo)
    } else if goes("held") {
        (Level::Fail, "nothing beyond this host's own networks is reached", "see the paths below")
    } else if goes("beside") {
        let todo = "give the peer the other default route as well, if all is to go through the tunnel";
        (Level::Note, "one family of addresses leaves in the clear", todo)
    } else {
        (Level::Ok, "", "")
    };
    Finding::new(level, "default route", what, costs, todo)
}

/// What a daemon says of itself: the strands that have failed, and a reload that it has refused.
fn of_daemon(state: &State) -> Vec<Finding> {
    let failed = state.failed.iter().filter(|one| one.starts_again_in_s.is_some()).map(|one| {
        let what = format!("has failed {} times in a row: {}", one.failures, one.why);
        Finding::new(Level::Fail, &one.strand, what, "it does not run, and is tried again", "")
    });
    let refused = state.reload_refused.iter().map(|why| {
        let costs = "the daemon runs what it ran before the last reload";
        Finding::new(Level::Warn, "reload", why, costs, "correct the file, and reload again")
    });
    failed.chain(refused).collect()
}

/// What a tunnel's state says of its peers and paths.
fn of_tunnel(tunnel: &Tunnel) -> Vec<Finding> {
    let mut all = Vec::new();
    for peer in &tunnel.peers {
        let amiss = |why: &String| Finding::new(Level::Fail, format!("peer {}", peer.name), why, "", "");
        all.extend(peer.why.as_ref().map(amiss));
    }
    all.extend(tunnel.default_route.as_ref().map(default_route));
    if let Some(Refused { ago_s, why }) = &tunnel.refused {
        let todo = "compare both ends' `public-key` with what `nawa pubkey` says at the other";
        let (what, costs) = (format!("{why} ({ago_s:.0} s ago)"), "whoever that is gets no answer");
        all.push(Finding::new(Level::Warn, "strangers", what, costs, todo));
    }
    let found = gather::paths(tunnel);
    all.extend(found.iter().flat_map(|(peer, path, seen)| paths::findings(&peer.name, path, seen)));
    all
}

/// `status`: of a failure.
fn show(json: bool, all: &[Finding], status: Status) -> Result<(), Failure> {
    if json {
        super::print_json(&json!({"schema": 1, "version": env!("CARGO_PKG_VERSION"), "findings": all}))?;
    } else {
        super::print(render(all).trim_end())?;
    }
    match all.iter().filter(|found| found.level == Level::Fail).count() {
        0 => Ok(()),
        1 => Err(Failure::new(status, "one thing does not work")),
        count => Err(Failure::new(status, format!("{count} things do not work"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strand_that_failed_and_a_refused_reload_are_told() {
        let failed =
            |due: Value| json!([{"strand": "tunnel", "why": "no", "failures": 2, "starts_again_in_s": due}]);
        let found = |said: Value| of_daemon(&state(Ok(said), &mut Vec::new()));
        let of = |due: Value| json!({"version": "0", "pid": 1, "failed": failed(due), "reload_refused": ["x.toml:1:1: bad"]});
        let twice = found(of(json!(3.0)));
        let told: Vec<_> =
            twice.iter().map(|one| (one.check.as_str(), one.level, one.what.as_str())).collect();
        let tunnel = ("tunnel", Level::Fail, "has failed 2 times in a row: no");
        assert_eq!(told, [tunnel, ("reload", Level::Warn, "x.toml:1:1: bad")]);
        assert_eq!(found(of(Value::Null)).len(), 1, "it runs again");
        // One that refuses is a finding as well, and not the end of all others.
        let mut all = Vec::new();
        let refused = state(Err(Failure::failed("the coding does not answer")), &mut all);
        assert_eq!(
            (refused.tunnel.is_none(), all[0].level, all[0].what.as_str()),
            (true, Level::Fail, "the coding does not answer")
        );
    }

    #[test]
    fn a_default_route_is_as_bad_as_where_it_goes() {
        let found = |route: Value| {
            let tunnel = json!({"public_key": "KEY=", "mtu": 1400, "default_route": route, "peers": []});
            of_tunnel(&serde_json::from_value(tunnel).expect("what the daemon shows"))
        };
        let level = |ipv4: &str, ipv6: &str| {
            let leads = |goes: &str| json!({"goes": goes, "peer": "office"});
            let route = json!({"ipv4": leads(ipv4), "ipv6": leads(ipv6)});
            let found = found(route);
            assert_eq!((found.len(), found[0].check.as_str()), (1, "default route"));
            found[0].level
        };
        assert_eq!(level("tunnel", "tunnel"), Level::Ok);
        assert_eq!(level("tunnel", "beside"), Level::Note);
        assert_eq!(level("held", "tunnel"), Level::Fail);
        assert_eq!(level("clear", "clear"), Level::Warn);
        assert_eq!(found(Value::Null), []);
    }
}
