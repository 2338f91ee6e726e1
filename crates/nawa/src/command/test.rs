//! `nawa test`: what the tunnel to a peer gives at present, idle and loaded, in the direction away from this end.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use device::{Poller, monotonic};
use ipnet::IpNet;
use serde_json::{Value, json};

use super::monitor::Count;
use super::status::cells::{number, rows_under};
use super::status::{self, view};
use crate::cli::Test;
use crate::control::{Request, client::Daemon};
use crate::failure::Failure;
use crate::setup::file;

/// This part of the time the tunnel is idle.
const IDLE: u32 = 5;
/// Bytes of a datagram of the load: what the narrowest tunnel carries in one piece.
const DATAGRAM: usize = 1200;
/// UDP's discard service; where nobody runs it, what comes is discarded as well.
const DISCARD: u16 = 9;
/// What is offered at first, bytes a second; it doubles while nearly all of it is delivered.
const FIRST_RATE: f64 = 125_000.0;
/// Delivered, of what is offered, while there is more room; then so much more than delivered is offered.
const ROOM: f64 = 0.85;
const MORE: f64 = 1.15;
/// The load is looked at, and sent, this often.
const LOOK: Duration = Duration::from_millis(250);
const BURST: Duration = Duration::from_millis(5);
/// So long an address that is guessed has to answer.
const ONE_ANSWER: Duration = Duration::from_secs(2);
/// From one ping to the next.
const PING: &str = "0.1";

/// A path's id, which tells two of a name apart.
type Id = u16;
/// What was counted on the paths by then.
type Counts = BTreeMap<Id, Count>;

/// Measures, and shows it.
pub fn run(test: &Test) -> Result<(), Failure> {
    let mut daemon = Daemon::connect()?;
    let before = peer(&mut daemon, &test.peer)?;
    let target = address(test, &mut daemon, &before)?;
    let idle_time = test.time / IDLE;
    let idle = answers(ping(target, idle_time)?)?;
    let (pings, rates) = load(&mut daemon, &test.peer, target, test.time - idle_time)?;
    let loaded = answers(pings)?;
    let after = peer(&mut daemon, &test.peer)?;
    let result = result(test, target, (&before, &idle), (&after, &loaded), &rates);
    if test.json { super::print_json(&result) } else { super::print(render(&result).trim_end()) }
}

/// The state of this peer.
fn peer(daemon: &mut Daemon, name: &str) -> Result<view::Peer, Failure> {
    let mut state = daemon.ask(Request::Status)?;
    super::path::select(&mut state, Some(name), None)?;
    let mut peers = status::read(state)?.tunnel.into_iter().flat_map(|tunnel| tunnel.peers);
    let down = || Failure::failed(format!("the tunnel to {name} is down; `nawa path why {name}` says why"));
    peers.find(|peer| peer.up).ok_or_else(down)
}

/// An inner address of the peer's: the one that is given, or the first host in its routes, or where those name networks alone, as a
/// default route does, the first address of this end's own network that answers: a hub has it.
fn address(test: &Test, daemon: &mut Daemon, peer: &view::Peer) -> Result<IpAddr, Failure> {
    let routes: Vec<IpNet> = peer.routes.iter().filter_map(|route| route.parse().ok()).collect();
    let host = routes.iter().find(|route| route.prefix_len() == route.max_prefix_len()).map(IpNet::addr);
    if let Some(found) = test.to.or(host) {
        return Ok(found);
    }
    let interface = daemon.ask(Request::Status)?["interface"].as_str().unwrap_or_default().to_owned();
    let own = crate::doctor::gather::networks_of(&interface);
    let guessed = guesses(&own, &routes);
    let found = guessed
        .iter()
        .copied()
        .find(|guess| ping(*guess, ONE_ANSWER).ok().and_then(|ping| answers(ping).ok()).is_some());
    found.ok_or_else(|| {
        let tried: Vec<_> = guessed.iter().map(IpAddr::to_string).collect();
        let tried =
            if tried.is_empty() { String::new() } else { format!(" ({} does not answer)", tried.join(", ")) };
        Failure::failed(format!("the peer's routes name no host{tried}; say which inner address with --to"))
    })
}

/// The first other host of each of this end's `own` networks that the peer is routed.
fn guesses(own: &[IpNet], routes: &[IpNet]) -> Vec<IpAddr> {
    let first = |net: &IpNet| file::usable(net).find(|host| *host != net.addr());
    own.iter().filter_map(first).filter(|host| routes.iter().any(|route| route.contains(host))).collect()
}

fn ping(to: IpAddr, time: Duration) -> Result<Child, Failure> {
    let seconds = time.as_secs().max(1).to_string();
    let mut ping = Command::new("ping");
    // What it says is read: it is not to be translated.
    ping.env("LC_ALL", "C");
    ping.args(["-n", "-i", PING, "-w", &seconds, &to.to_string()]).stdin(Stdio::null());
    let started = ping.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    started.map_err(|error| Failure::failed(format!("cannot start ping: {error}; install it (iputils-ping)")))
}

/// Round trips, ms, the least first.
fn answers(ping: Child) -> Result<Vec<f64>, Failure> {
    let said = ping.wait_with_output().map_err(Failure::failed)?;
    let mut all = round_trips(&String::from_utf8_lossy(&said.stdout));
    if all.is_empty() {
        return Err(Failure::failed(
            "no ping through the tunnel was answered; see that the peer answers pings",
        ));
    }
    all.sort_by(f64::total_cmp);
    Ok(all)
}

fn round_trips(said: &str) -> Vec<f64> {
    let time = |line: &str| line.split_once("time=")?.1.split(' ').next()?.parse().ok();
    said.lines().filter_map(time).collect()
}

/// Offers what the tunnel takes; the pings of the second half, and what each path delivered in it, bytes a second.
fn load(
    daemon: &mut Daemon,
    name: &str,
    to: IpAddr,
    time: Duration,
) -> Result<(Child, BTreeMap<Id, f64>), Failure> {
    let any: SocketAddr = if to.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
    let socket = UdpSocket::bind(any).map_err(Failure::failed)?;
    socket.connect((to, DISCARD)).and_then(|()| socket.set_nonblocking(true)).map_err(Failure::failed)?;
    let mut poller = Poller::new().map_err(Failure::failed)?;
    let (start, mut rate, mut room) = (monotonic(), FIRST_RATE, true);
    let (mut sent, mut looked, mut last) = (0.0, start, counts(&peer(daemon, name)?));
    let mut half = None;
    let mut burst = start;
    while monotonic() < start + time {
        poller.wait(Some(BURST)).map_err(Failure::failed)?.for_each(drop);
        let now = monotonic();
        // A machine that was busy does not catch up: that would be a burst.
        sent += rate * (now - burst).min(4 * BURST).as_secs_f64();
        burst = now;
        while sent >= DATAGRAM as f64 {
            // Refusals of earlier ones, or a full queue: the load is what passes.
            let _ = socket.send(&[0; DATAGRAM]);
            sent -= DATAGRAM as f64;
        }
        if now >= looked + LOOK {
            let seen = counts(&peer(daemon, name)?);
            let delivered: f64 = delivered(&last, &seen, now - looked).values().sum();
            room &= delivered >= ROOM * rate;
            rate = if room { 2.0 * rate } else { (MORE * delivered).max(FIRST_RATE) };
            (looked, last) = (now, seen);
        }
        if half.is_none() && now >= start + time / 2 {
            half = Some((now, counts(&peer(daemon, name)?), ping(to, time / 2)?));
        }
    }
    let (since, before, pings) =
        half.ok_or_else(|| Failure::bad_input("the time is too short; give --time 5s or more"))?;
    Ok((pings, delivered(&before, &counts(&peer(daemon, name)?), monotonic() - since)))
}

fn counts(peer: &view::Peer) -> Counts {
    peer.paths.iter().map(|path| (path.id, Count::of(path))).collect()
}

/// Bytes a second that each path delivered in `time`; what was lost is as large as what was sent, on average.
fn delivered(before: &Counts, after: &Counts, time: Duration) -> BTreeMap<Id, f64> {
    let rate = |(id, count): (&Id, &Count)| {
        let new = before.get(id).map_or(*count, |before| count.since(before));
        let arrived = new.sent_packets.saturating_sub(new.lost_packets) as f64;
        let share = arrived / new.sent_packets.max(1) as f64;
        (*id, new.sent_bytes as f64 * share / time.as_secs_f64().max(1e-3))
    };
    after.iter().map(rate).collect()
}

fn percentile(sorted: &[f64], percent: usize) -> f64 {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

fn result(
    test: &Test,
    target: IpAddr,
    (before, idle): (&view::Peer, &[f64]),
    (after, loaded): (&view::Peer, &[f64]),
    rates: &BTreeMap<Id, f64>,
) -> Value {
    let latency = |sorted: &[f64]| {
        let [p50, p95] = [50, 95].map(|percent| percentile(sorted, percent));
        json!({"rtt_p50_ms": p50, "rtt_p95_ms": p95, "rpm": (60_000.0 / p50).round()})
    };
    let path = |path: &view::Path| {
        let view::Path { id, name, state, rtt_ms, .. } = path;
        let idle = before.paths.iter().find(|before| before.id == *id).and_then(|before| before.rtt_ms);
        let rate = rates.get(id).map(|rate| rate * 8.0);
        json!({"name": name, "id": id, "state": state, "rtt_idle_ms": idle, "rtt_loaded_ms": rtt_ms, "rate_bps": rate})
    };
    let mut load = latency(loaded);
    load["rate_bps"] = json!(rates.values().sum::<f64>() * 8.0);
    json!({
        "schema": 1, "peer": test.peer, "address": target, "idle": latency(idle), "loaded": load,
        "paths": after.paths.iter().map(path).collect::<Vec<_>>(),
    })
}

fn render(result: &Value) -> String {
    let cell = |value: &Value, decimals: usize| number(value.as_f64(), decimals);
    let rate = |value: &Value| number(value.as_f64().map(|rate| rate / 1e6), 2);
    let (idle, loaded) = (&result["idle"], &result["loaded"]);
    let mut rows: Vec<_> = result["paths"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|path| {
            let text = |key: &str| path[key].as_str().unwrap_or_default().to_owned();
            [
                text("name"),
                text("state"),
                cell(&path["rtt_idle_ms"], 1),
                cell(&path["rtt_loaded_ms"], 1),
                String::new(),
                rate(&path["rate_bps"]),
            ]
        })
        .collect();
    rows.push([
        "all, by ping".into(),
        String::new(),
        cell(&idle["rtt_p50_ms"], 1),
        format!("{}, p95 {}", cell(&loaded["rtt_p50_ms"], 1), cell(&loaded["rtt_p95_ms"], 1)),
        format!("{} of {}", cell(&loaded["rpm"], 0), cell(&idle["rpm"], 0)),
        rate(&loaded["rate_bps"]),
    ]);
    let header = ["path", "state", "idle ms", "loaded ms", "round trips/min", "Mbit/s out"];
    rows_under(header, rows, 2..6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_a_default_route_the_hub_is_guessed() {
        let net = |text: &&str| text.parse().expect("a network");
        let guessed = |own: &[&str], routes: &[&str]| {
            let all = guesses(
                &own.iter().map(net).collect::<Vec<_>>(),
                &routes.iter().map(net).collect::<Vec<_>>(),
            );
            all.iter().map(IpAddr::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            guessed(&["10.77.0.2/24", "fd77::2/64"], &["0.0.0.0/0", "::/0"]),
            ["10.77.0.1", "fd77::1"]
        );
        assert_eq!(guessed(&["10.77.0.1/24"], &["0.0.0.0/0"]), ["10.77.0.2"]);
        assert_eq!(guessed(&["10.77.0.2/24"], &["10.99.0.0/16"]), Vec::<String>::new());
    }

    #[test]
    fn what_ping_says_is_read() {
        let said = "PING 10.77.0.2 (10.77.0.2) 56(84) bytes of data.\n64 bytes from 10.77.0.2: icmp_seq=1 ttl=64 time=41.3 ms\n\
                    64 bytes from 10.77.0.2: icmp_seq=2 ttl=64 time=9 ms\n\n--- 10.77.0.2 ping statistics ---\n";
        assert_eq!(round_trips(said), [41.3, 9.0]);
    }

    #[test]
    fn what_was_lost_was_not_delivered() {
        // Two of one name, of which the second carries nothing.
        let count = |sent_bytes, sent_packets, lost_packets| Count {
            sent_bytes,
            sent_packets,
            lost_packets,
            ..Count::default()
        };
        let counts = |first| Counts::from([(3, first), (4, Count::default())]);
        let (before, after) = (counts(count(1000, 1, 0)), counts(count(101_000, 101, 25)));
        assert_eq!(delivered(&before, &after, Duration::from_secs(2))[&3], 37_500.0);
        assert_eq!(delivered(&after, &after, Duration::from_secs(2))[&3], 0.0);
    }

    #[test]
    fn the_middle_and_the_tail() {
        let sorted: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(
            (percentile(&sorted, 50), percentile(&sorted, 95), percentile(&[7.0], 95)),
            (51.0, 96.0, 7.0)
        );
    }
}
