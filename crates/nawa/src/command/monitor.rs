//! `nawa monitor`

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::time::Duration;

use device::monotonic;
use device::poller::{Interest, Poller, Signals};
use serde::Serialize;

use super::flight;
use super::status::cells::{number, percent, rows_under};
use super::status::{self, view};
use crate::control::{Request, client::Daemon};
use crate::failure::Failure;
use crate::flight::Line as Connection;
use crate::terminal;

const HEADER: [&str; 7] = ["path", "state", "rtt ms", "loss %", "weight", "out Mbit/s", "in Mbit/s"];
/// Clears a terminal: cursor home, erase what is below.
const CLEAR: &str = "\x1b[H\x1b[J";

/// A round.
#[derive(Debug, Serialize)]
pub(super) struct Round {
    schema: u32,
    /// Since the first round.
    pub t_s: f64,
    pub paths: Vec<Line>,
    /// Under `fsat` and `fsat_paper`, if the daemon provides them.
    pub flight: Vec<Connection>,
}

/// A path. What is since the last round is absent in the first.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    pub peer: String,
    pub name: String,
    /// Tells two of a name apart.
    pub id: u16,
    pub state: String,
    pub backup: bool,
    pub rtt_ms: Option<f64>,
    pub weight: f64,
    /// Of the packets sent since the last round, and found out since to be lost.
    pub loss_percent: Option<f64>,
    pub sent_bps: Option<f64>,
    pub received_bps: Option<f64>,
}

/// What was counted on a path: packets sent and lost, bytes sent and received.
#[derive(Clone, Copy, Default)]
pub(super) struct Count {
    pub sent_packets: u64,
    pub lost_packets: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
}

/// The last round: its time, and what was counted on each path by peer, name and id.
pub(super) type Last = Option<(Duration, BTreeMap<(String, String, u16), Count>)>;

/// Shows each round until a signal ends it.
pub fn run(json: bool, interval: Duration) -> Result<(), Failure> {
    let mut daemon = Daemon::connect()?;
    let (signals, mut poller) =
        watch_signals().map_err(|error| Failure::failed(format!("cannot wait: {error}")))?;
    let (mut begin, mut last) = (None, None);
    loop {
        let state = status::read(daemon.ask(Request::Status)?)?;
        let now = monotonic();
        let round = round(&state, now, *begin.get_or_insert(now), &mut last);
        print(&round, json)?;
        // Rounds that were missed, as by who stops it, are not made up for: their rates would be of no time at all.
        if stopped(&signals, &mut poller, now + interval)? {
            return Ok(());
        }
    }
}

fn watch_signals() -> io::Result<(Signals, Poller)> {
    let (signals, poller) = (Signals::new()?, Poller::new()?);
    poller.add(&signals, 0, Interest::Read)?;
    Ok((signals, poller))
}

/// Waits until `due`; true if a signal came first.
fn stopped(signals: &Signals, poller: &mut Poller, due: Duration) -> Result<bool, Failure> {
    loop {
        let rest = due.saturating_sub(monotonic());
        let waited = poller.wait(Some(rest)).map(|ready| ready.count());
        waited.map_err(|error| Failure::failed(format!("cannot wait: {error}")))?;
        if signals.next().is_some() {
            return Ok(true);
        }
        if monotonic() >= due {
            return Ok(false);
        }
    }
}

pub(super) fn round(state: &view::State, now: Duration, begin: Duration, last: &mut Last) -> Round {
    let (mut paths, mut counts) = (Vec::new(), BTreeMap::new());
    let peers = state.tunnel.iter().flat_map(|tunnel| &tunnel.peers);
    for (peer, path) in peers.flat_map(|peer| peer.paths.iter().map(move |path| (peer, path))) {
        let key = (peer.name.clone(), path.name.clone(), path.id);
        let count = Count::of(path);
        let before =
            last.as_ref().and_then(|(then, counts)| Some((now.checked_sub(*then)?, counts.get(&key)?)));
        paths.push(line(peer, path, before.map(|(time, before)| (time, count.since(before)))));
        counts.insert(key, count);
    }
    *last = Some((now, counts));
    let flight = state.flight.as_ref().map_or(Vec::new(), |flight| flight.connections.clone());
    Round { schema: 1, t_s: now.saturating_sub(begin).as_secs_f64(), paths, flight }
}

fn line(peer: &view::Peer, path: &view::Path, since: Option<(Duration, Count)>) -> Line {
    let bps = |bytes: fn(&Count) -> u64| {
        since.map(|(time, count)| bytes(&count) as f64 * 8.0 / time.as_secs_f64().max(1e-3))
    };
    Line {
        peer: peer.name.clone(),
        name: path.name.clone(),
        id: path.id,
        state: path.state.clone(),
        backup: path.backup,
        rtt_ms: path.rtt_ms,
        weight: path.weight,
        loss_percent: since.and_then(|(_, count)| percent(count.lost_packets, count.sent_packets)),
        sent_bps: bps(|count| count.sent_bytes),
        received_bps: bps(|count| count.received_bytes),
    }
}

impl Count {
    pub fn of(path: &view::Path) -> Self {
        let view::Path { sent_packets, lost_packets, sent_bytes, received_bytes, .. } = *path;
        Count { sent_packets, lost_packets, sent_bytes, received_bytes }
    }

    /// A loss that turned out to be none is taken back later, so counts may fall.
    pub fn since(&self, before: &Count) -> Count {
        Count {
            sent_packets: self.sent_packets.saturating_sub(before.sent_packets),
            lost_packets: self.lost_packets.saturating_sub(before.lost_packets),
            sent_bytes: self.sent_bytes.saturating_sub(before.sent_bytes),
            received_bytes: self.received_bytes.saturating_sub(before.received_bytes),
        }
    }
}

fn print(round: &Round, json: bool) -> Result<(), Failure> {
    if json {
        return super::print_json(round);
    }
    let clear = if io::stdout().is_terminal() && terminal::obeys(terminal::variable) { CLEAR } else { "" };
    super::print(&format!("{clear}{}", render(round)))
}

fn render(round: &Round) -> String {
    let mut text = format!("after {:.1} s\n", round.t_s);
    for paths in round.paths.chunk_by(|one, next| one.peer == next.peer) {
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "peer {}", paths[0].peer);
        let rows = paths.iter().map(row).collect();
        text.push_str(&rows_under(HEADER, rows, 2..7));
    }
    text.push_str(&flight::table(&round.flight));
    text
}

fn row(line: &Line) -> [String; 7] {
    let mbps = |bps: Option<f64>| number(bps.map(|bps| bps / 1e6), 2);
    [
        line.name.clone(),
        if line.backup { format!("{}, backup", line.state) } else { line.state.clone() },
        number(line.rtt_ms, 1),
        number(line.loss_percent, 1),
        number(Some(line.weight), 2),
        mbps(line.sent_bps),
        mbps(line.received_bps),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn state(sent_bytes: u64, lost_packets: u64) -> view::State {
        let path = json!({
            "id": 0, "name": "lte", "state": "up", "backup": false, "remote": null, "relayed": false,
            "rtt_ms": 20.5, "rate_bps": null, "weight": 0.5, "sent_packets": sent_bytes / 1000,
            "sent_bytes": sent_bytes, "lost_packets": lost_packets, "received_bytes": 0,
        });
        let peer = json!({"name": "office", "up": true, "scheduler": "auto", "cipher": null,
            "resent_packets": 0, "given_up_packets": 0, "paths": [path]});
        let tunnel = json!({"public_key": "KEY=", "mtu": 1400, "peers": [peer]});
        serde_json::from_value(json!({"version": "0", "pid": 1, "tunnel": tunnel})).expect("a state")
    }

    #[test]
    fn rates_are_since_the_last_round() {
        let (second, mut last) = (Duration::from_secs(1), None);
        let first = round(&state(5000, 0), second, second, &mut last);
        assert_eq!((first.t_s, first.paths[0].sent_bps), (0.0, None));
        let next = round(&state(1_005_000, 10), 3 * second, second, &mut last);
        let line = &next.paths[0];
        assert_eq!((line.sent_bps, line.received_bps, line.loss_percent), (Some(4e6), Some(0.0), Some(1.0)));
        let expected = "\
after 2.0 s
peer office
 path  state  rtt ms  loss %  weight  out Mbit/s  in Mbit/s
 lte   up       20.5     1.0    0.50        4.00       0.00
";
        assert_eq!(render(&next), expected);
    }
}
