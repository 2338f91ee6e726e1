//! `tunnel-hostile`: one TCP flow through the tunnel while a host of its own floods the server or a relay.

use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::Value;

use super::attack::{self, Flood, Progress, Victim};
use crate::axes::{FULL, Grid, QUICK, cases};
use crate::clock;
use crate::error::{Error, Result};
use crate::experiment::{Case, Experiment, Ratio, RunOptions};
use crate::iperf::{Iperf, Protocol};
use crate::links::{Bench, OnLinks, Setup, Stream, Task};
use crate::namespace::Namespace;
use crate::network::{Network, PathSpec, SERVER, Topology};
use crate::program;
use crate::system::{Means, NawaSetup, Ready, System};
use crate::workload::Sample;

pub(crate) const ABOUT: &str =
    "one TCP flow while 50,000 hostile datagrams a second reach the server or a relay";

/// What starting and stopping a case takes beside its measurement.
const OVERHEAD: Duration = Duration::from_secs(4);
/// How long refusing alone is timed.
const IDLE: Duration = Duration::from_secs(1);
/// By then an attacker has recorded what it replays.
const RECORDING_LIMIT: Duration = Duration::from_secs(3);

const NOTES: [&str; 7] = [
    "goodput_mbps: one iperf3 flow from client to server, CUBIC, as received; the first 2 s are not counted",
    "ratio: goodput by that without attack in the same round; ratio_own: by that under the same flood to a closed port \
     of the same host, that is what Nawa's own work costs (attacker, server, relays and iperf3 share this machine's \
     CPUs)",
    "attack_pps: datagrams per second that the attacker sent; sources are made up, but for replays",
    "refusal_us: processor time of the attacked nawa for each hostile datagram, before the flow begins; attacker_us: the attacker's \
     own for each, over the whole case, with what the victim's kernel does in its context until the datagram is queued",
    "handshakes: initiations whose mac1 is good; replays: what the client has just sent, from its address",
    "rss_mb, rss_growth_mb: memory of the attacked nawa at the end, and how much more than before",
    "changes: peers, paths, addresses and sessions that are not in its status as they were before the attack",
];

/// One TCP flow while somebody attacks.
#[derive(Clone, Debug)]
struct Attacked {
    /// How long it is measured, whole seconds.
    time: Duration,
    /// With what; `None` is no attack.
    flood: Option<Flood>,
    /// The first relay is attacked, not the server.
    relay: bool,
}

const GRIDS: [Grid; 5] = [
    Grid(QUICK, &["links=2x50 at=- attack=none"]),
    Grid(FULL, &["links=2x50,unshaped at=- attack=none"]),
    Grid(QUICK, &["links:at=2x50:server", ATTACKS]),
    Grid(QUICK, &["links=2x50 at=relay attack=closed_port,garbage"]),
    Grid(FULL, &["links:at=2x50:server,2x50:relay,unshaped:server", ATTACKS]),
];
const ATTACKS: &str = "attack=closed_port,garbage,unknown_session,handshakes,replays";

const FLOODS: [(&str, Option<Flood>); 6] = [
    ("none", None),
    ("closed_port", Some(Flood::ClosedPort)),
    ("garbage", Some(Flood::Garbage)),
    ("unknown_session", Some(Flood::UnknownSession)),
    ("handshakes", Some(Flood::Handshakes)),
    ("replays", Some(Flood::Replays)),
];

const RATIOS: [Ratio; 2] = [
    Ratio::new("ratio", "goodput_mbps", &[("attack", "none"), ("at", "-")]),
    Ratio::new("ratio_own", "goodput_mbps", &[("attack", "closed port")]),
];

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment> {
    let time = Duration::from_secs(options.size.of(2, 6, 10));
    let cases = cases(&GRIDS, options.size, |cell| {
        let topology = match cell.text("links") {
            "2x50" => Topology::Relayed(["one", "two"].map(|name| PathSpec::plain(name, 50.0, 10)).to_vec()),
            _ => Topology::Direct,
        };
        let flood = cell.one_of("attack", &FLOODS)?;
        let setup = Setup { topology, system: System::Nawa(NawaSetup::AUTO), congestion_control: "cubic" };
        let workload = OnLinks { setup, task: Attacked { time, flood, relay: cell.text("at") == "relay" } };
        let mut key = cell.key("links at attack");
        key[2].1 = cell.text("attack").replace('_', " ").into();
        Ok(Case::new(key, workload, time + Iperf::WARM_UP + OVERHEAD))
    })?;
    Ok(Experiment::of(cases, options.size.of(1, 3, 9), &RATIOS, &NOTES))
}

impl Task for Attacked {
    fn measure(&self, bench: &Bench, ready: &mut Ready) -> Result<Sample> {
        let stream = Stream { protocol: Protocol::Tcp, time: self.time };
        let flow = || stream.run(bench, ready);
        match self.flood {
            None => flow(),
            Some(flood) => under(flood, bench, ready, self.relay, flow),
        }
    }
}

/// What `flow` measures while the server, or the first relay, is flooded; and what that does to its memory and state.
fn under(
    flood: Flood,
    bench: &Bench,
    ready: &Ready,
    relay: bool,
    flow: impl FnOnce() -> Result<Sample>,
) -> Result<Sample> {
    let means = &bench.site.means();
    let victim = victim(relay, bench.network, means)?;
    let gone = || Error::program("nawa", "nothing runs where the attack goes");
    let process = ready.attacked(relay).ok_or_else(gone)?;
    let attacker = attack::join(victim.host)?;
    let (state, rss) = (self::state(victim.host, means)?, process.resident_mb()?);
    let progress = Progress::default();
    let (refusal, sample, flooded) = std::thread::scope(|scope| {
        let flood = scope.spawn(|| attack::run(&attacker, flood, &victim, &progress));
        let refusal = refusal(&progress, || process.cpu_time());
        let sample = flow();
        progress.stop.store(true, Ordering::Relaxed);
        (refusal, sample, flood.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let (mut sample, flooded, rss_after) = (sample?, flooded?, process.resident_mb()?);
    let changes = differences(&state, &self::state(victim.host, means)?) as f64;
    sample.add(flooded);
    sample.add([
        ("refusal_us", refusal?),
        ("rss_mb", rss_after),
        ("rss_growth_mb", rss_after - rss),
        ("changes", changes),
    ]);
    Ok(sample)
}

/// Processor time of the victim's for each hostile datagram, in µs, while there is nothing else to do.
fn refusal(progress: &Progress, cpu_time: impl Fn() -> Result<Duration>) -> Result<f64> {
    let now = || Ok::<_, Error>((cpu_time()?, progress.sent.load(Ordering::Relaxed)));
    clock::poll_until(RECORDING_LIMIT, || (progress.sent.load(Ordering::Relaxed) > 0).then_some(()));
    let (cpu, sent) = now()?;
    std::thread::park_timeout(IDLE);
    let (cpu_after, sent_after) = now()?;
    Ok((cpu_after - cpu).as_secs_f64() * 1e6 / (sent_after - sent).max(1) as f64)
}

fn victim<'a>(relay: bool, network: &'a Network, means: &Means) -> Result<Victim<'a>> {
    let recorded = network.relays.first().map_or((&network.server, "p1"), |relay| (relay, "c1"));
    let at = |host, address: IpAddr, port, name: &str| -> Result<Victim<'a>> {
        let public_key = means.public_key(name)?;
        Ok(Victim { host, address, port, public_key, recorded })
    };
    match network.relays.first().filter(|_| relay) {
        Some(relay) => at(relay, network.relay_address(0), 51901, "r1"),
        None => at(&network.server, SERVER, 51900, "b"),
    }
}

/// What a status says of who is there and where, one line each.
fn state(host: &Namespace, means: &Means) -> Result<Vec<String>> {
    Ok(lines(&program::status(host, means.nawa)?))
}

fn lines(status: &Value) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let peers = list(&status["tunnel"]["peers"]);
    let paths = peers.iter().flat_map(|peer| list(&peer["paths"]));
    let paths =
        paths.map(|path| format!("{} {} {} {}", path["name"], path["id"], path["remote"], path["state"]));
    let sessions = list(&status["relay"]["sessions"]).into_iter();
    let sessions =
        sessions.map(|s| format!("{} {} {} {}", s["client_key"], s["client"], s["destination"], s["open"]));
    paths.chain(sessions).collect()
}

fn differences(before: &[String], after: &[String]) -> usize {
    let only = |a: &[String], b: &[String]| a.iter().filter(|line| !b.contains(line)).count();
    only(before, after) + only(after, before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_and_what_went_are_differences() {
        let status = |state: &str| {
            let path = format!(r#"{{"name": "lte", "id": 3, "remote": "a", "state": "{state}"}}"#);
            let text = format!(r#"{{"tunnel": {{"peers": [{{"paths": [{path}]}}]}}}}"#);
            lines(&serde_json::from_str(&text).unwrap())
        };
        assert_eq!(status("up").len(), 1);
        assert_eq!(differences(&status("up"), &status("up")), 0);
        assert_eq!(differences(&status("up"), &status("silent")), 2);
        assert_eq!(differences(&status("up"), &[]), 1);
    }
}
