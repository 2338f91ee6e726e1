//! The lab's convoy with all strands, under faults: whether they get over each, whether daemons grow, and whether `nawa down` leaves
//! hosts as they were.

mod common;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use common::{namespaces_or_skip, output, pause, skip, stdout, succeed};
use device::monotonic;
use lab::field::{Fault, Trial, VEHICLES};
use lab::namespace::Namespace;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use rustix::process::Pid;

const NAWA: &str = env!("CARGO_BIN_EXE_nawa");
/// How long a fault lasts.
const LASTS: Duration = Duration::from_millis(1500);
/// From a fault's end until all is as it should be: more than a strand that failed waits before it starts again, for a few
/// failures in a row.
const RECOVERY_LIMIT: Duration = Duration::from_secs(20);
/// How much a daemon may grow in the second half of the faults, in bytes of memory and in threads and descriptors of each kind: in the first one
/// its buffers and the allocator's arenas begin to fill. Within a minute they still do, by up to 6 MB; after minutes by less than one.
const GROWTH_BYTES: u64 = 16 << 20;
const GROWTH_COUNT: usize = 2;
/// The file's sections, each a strand.
const SECTIONS: [&str; 5] = ["[[flood]]", "[[coding]]", "[tunnel]", "[flight]", "[bicast]"];
/// Interfaces that are the daemon's.
const INTERFACES: [&str; 2] = ["nawa0", "nc0"];

/// Every kind.
fn each() -> Vec<Fault> {
    let mut all = vec![
        Fault::NewAddress,
        Fault::Lost(0),
        Fault::OutOfRange(3),
        Fault::Off(1),
        Fault::Killed(2),
        Fault::Down(1),
        Fault::Unplugged(2),
    ];
    all.extend(INTERFACES.map(|interface| Fault::Deleted(2, interface)));
    all.extend(SECTIONS.map(|section| Fault::Without(2, section)));
    all.extend(SECTIONS.map(|section| Fault::Broken(0, section)));
    all
}

fn draw(dice: &mut ChaCha8Rng) -> Fault {
    let mut below = |count: usize| dice.next_u32() as usize % count;
    let (vehicle, section) = (below(VEHICLES), SECTIONS[below(SECTIONS.len())]);
    match below(10) {
        0 => Fault::NewAddress,
        1 => Fault::Lost([0, 2][below(2)]),
        2 => Fault::OutOfRange(vehicle),
        3 => Fault::Off(vehicle),
        4 => Fault::Killed(vehicle),
        5 => Fault::Down(vehicle),
        6 => Fault::Unplugged(vehicle),
        7 => Fault::Deleted(vehicle, INTERFACES[below(2)]),
        8 => Fault::Without(vehicle, section),
        _ => Fault::Broken(vehicle, section),
    }
}

#[test]
fn all_strands_get_over_every_fault_and_leave_nothing() {
    let name = "all_strands_get_over_every_fault_and_leave_nothing";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let half = each().len() / 2;
    let faults = each().into_iter().enumerate().map(|(number, fault)| (fault, number > half));
    endure(name, 1, faults);
}

/// Faults drawn by `SEED` (1), for `SECONDS` (3600): `SECONDS=900 cargo test --release -p nawa --test convoy -- --ignored --nocapture`.
#[test]
#[ignore = "an hour"]
fn all_strands_get_over_an_hour_of_faults() {
    let name = "all_strands_get_over_an_hour_of_faults";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a whole number"));
    let (seed, time) = (number("SEED").unwrap_or(1), Duration::from_secs(number("SECONDS").unwrap_or(3600)));
    let (mut dice, began) = (ChaCha8Rng::seed_from_u64(seed), monotonic());
    let faults = std::iter::from_fn(|| {
        let passed = monotonic() - began;
        (passed < time).then(|| (draw(&mut dice), passed > time / 2))
    });
    endure(name, seed, faults);
}

/// Lets these faults happen to a convoy under traffic, each with whether half of them is over.
fn endure(name: &str, seed: u64, faults: impl Iterator<Item = (Fault, bool)>) {
    let mut trial = match Trial::build(NAWA.as_ref(), seed) {
        Err(error @ (lab::Error::NoMacvtap { .. } | lab::Error::MissingProgram { .. })) => {
            return skip(name, &error.to_string());
        }
        trial => trial.expect("a convoy"),
    };
    let before: Vec<_> = trial.hosts().map(snapshot).collect();
    trial.start().expect("it starts");
    let mut amiss = Vec::new();
    amiss.extend(await_recovery(&trial, "the start"));
    trial.set_loaded(true).expect("traffic");
    let (began, mut first) = (monotonic(), None);
    for (fault, late) in faults {
        if late && first.is_none() {
            first = Some(sizes(&trial));
        }
        trial.set(fault, true).expect("a fault");
        pause(LASTS);
        trial.set(fault, false).expect("it ends");
        let mended = monotonic();
        amiss.extend(await_recovery(&trial, &format!("{fault:?}")));
        let (at, took) = ((monotonic() - began).as_secs(), (monotonic() - mended).as_secs_f64());
        println!("{at:4} s: {fault:?}, all well {took:.1} s later");
    }
    for (number, (first, last)) in first.into_iter().flatten().zip(sizes(&trial)).enumerate() {
        println!("daemon {}: {first:?}, at the end {last:?}", number + 1);
        // One that was started anew is compared with the first, too: it has to be no greater.
        if last.exceeds(&first) {
            amiss.push(format!("daemon {} has grown from {first:?} to {last:?}", number + 1));
        }
    }
    let bytes = trial.set_loaded(false).expect("it ends");
    assert!(!bytes.contains(&0), "of download and upload {bytes:?} bytes arrived");
    for (host, before) in trial.hosts().zip(before) {
        succeed(host.command(NAWA).arg("down"));
        amiss.extend(differences(host.name(), &before, &snapshot(host)));
    }
    assert_eq!(amiss, [""; 0]);
}

/// Waits until every vehicle's strands run, and the hub is reached from all; why that is not so, in time.
fn await_recovery(trial: &Trial, after: &str) -> Option<String> {
    let deadline = monotonic() + RECOVERY_LIMIT;
    loop {
        let why = (0..VEHICLES).find_map(|vehicle| ails(trial, vehicle))?;
        if monotonic() > deadline {
            return Some(format!("{} s after {after}: {why}", RECOVERY_LIMIT.as_secs()));
        }
        pause(Duration::from_millis(20));
    }
}

/// What does not run at a vehicle, in one sentence.
fn ails(trial: &Trial, vehicle: usize) -> Option<String> {
    let (host, name) = (trial.hosts().nth(vehicle)?, format!("vehicle {}", vehicle + 1));
    if let Err(error) = trial.join_mesh(vehicle) {
        return Some(format!("{name}: {error}"));
    }
    let status = stdout(&output(host.command(NAWA).args(["status", "--json"])));
    let Ok(status) = serde_json::from_str::<serde_json::Value>(&status) else {
        return Some(format!("{name}: no daemon runs"));
    };
    let checks = [
        ("peer", status["tunnel"]["peers"][0]["up"] == true),
        ("coding", status["coding"][0]["waits_because"].is_null() && status["coding"][0]["mode"] == "any"),
        ("flood", status["flood"][0]["relay"] == "xdp-generic"),
        ("bicast", status["bicast"]["mode"] == "adaptive"),
        ("flight", status["flight"]["default"] == "fsat"),
        ("reload", status["reload_refused"].is_null()),
    ];
    if let Some((what, _)) = checks.into_iter().find(|(_, well)| !well) {
        return Some(format!("{name}: {what} is not as it should be: {}", status[what]));
    }
    let answers = output(host.command("ping").args(["-q", "-c", "1", "-W", "1", "10.77.0.254"]));
    (!answers.status.success()).then(|| format!("{name}: the hub does not answer through the tunnel"))
}

fn sizes(trial: &Trial) -> Vec<Daemon> {
    let of = |host| trial.daemon(host).map_or_else(Daemon::default, Daemon::read);
    trial.hosts().map(of).collect()
}

/// What a daemon takes.
#[derive(Clone, Debug, Default)]
struct Daemon {
    /// Of its own, `RssAnon`: pages of its files that it has touched are the kernel's to drop, and grow with each new way through the code.
    anonymous_bytes: u64,
    /// By what they are of, up to the first number: `socket:[`, `anon_inode:bpf-map`.
    descriptors: BTreeMap<String, usize>,
    threads: usize,
}

impl Daemon {
    fn read(pid: Pid) -> Self {
        let folder = format!("/proc/{}", pid.as_raw_nonzero());
        let list = |what: &str| -> Vec<PathBuf> {
            let entries = std::fs::read_dir(format!("{folder}/{what}")).expect("a process");
            entries.flatten().map(|entry| entry.path()).collect()
        };
        let mut descriptors = BTreeMap::new();
        for to in list("fd").iter().filter_map(|at| std::fs::read_link(at).ok()) {
            let to = to.to_string_lossy();
            let kind = to.split(|c: char| c.is_ascii_digit()).next().unwrap_or_default();
            *descriptors.entry(kind.to_owned()).or_default() += 1;
        }
        let status = std::fs::read_to_string(format!("{folder}/status")).expect("a process");
        let memory =
            status.lines().find_map(|line| line.strip_prefix("RssAnon:")?.trim().strip_suffix(" kB"));
        Self {
            anonymous_bytes: memory.and_then(|text| text.parse::<u64>().ok()).expect("a size") << 10,
            descriptors,
            threads: list("task").len(),
        }
    }

    fn exceeds(&self, first: &Daemon) -> bool {
        let before = |kind: &String| first.descriptors.get(kind).copied().unwrap_or(0);
        let more = |(kind, count): (&String, &usize)| *count > before(kind) + GROWTH_COUNT;
        self.anonymous_bytes > first.anonymous_bytes + GROWTH_BYTES
            || self.descriptors.iter().any(more)
            || self.threads > first.threads + GROWTH_COUNT
    }
}

/// Questions whose answers are a host's state.
const STATE: [&str; 8] = [
    // Without indices, by name: what was unplugged has another place.
    "ip -o link | cut -d: -f2- | sort",
    "ip -o address | cut -d: -f2- | sort",
    "ip -4 rule",
    "ip -4 route show table all",
    "ip -6 rule",
    "nft list ruleset",
    "cat /proc/sys/net/ipv4/tcp_congestion_control",
    "grep -c @nawa /proc/net/unix",
];

fn snapshot(host: &Namespace) -> Vec<String> {
    STATE.map(|question| stdout(&output(host.command("sh").args(["-c", question])))).into()
}

fn differences(host: &str, before: &[String], after: &[String]) -> Vec<String> {
    let differ = before.iter().zip(after).zip(STATE).filter(|((before, after), _)| before != after);
    let lines = |one: &str, other: &str| {
        one.lines()
            .filter(|line| !other.lines().any(|known| known == *line))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    differ
        .map(|((before, after), question)| {
            let (gone, new) = (lines(before, after), lines(after, before));
            format!("`nawa down` on {host}: `{question}` had {gone:?} and has {new:?}")
        })
        .collect()
}
