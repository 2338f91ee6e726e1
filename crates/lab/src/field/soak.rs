//! The convoy under faults, and what is left of them: whether all strands get over each, whether daemons grow, and whether
//! `nawa down` leaves hosts as they were.

use std::path::Path;
use std::time::{Duration, Instant};

use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;
use rustix::process::Pid;

use super::convoy::{Convoy, USER, VEHICLES};
use super::fault::Fault;
use super::hazards::Hazards;
use super::running::{Field, Place, pids, wait_until};
use super::system::System;
use super::traffic::Traffic;
use crate::bicast::check_usrsctp;
use crate::clock;
use crate::emulator::Emulator;
use crate::error::{Doing, Error, Result};
use crate::namespace::Namespace;
use crate::program::output;
use crate::{cleanup, controls, program};

/// How long a fault lasts.
const LASTS: Duration = Duration::from_millis(1500);
/// From a fault's end until all is as it should be: more than a strand that failed waits before it starts again, for a few
/// failures in a row.
const RECOVERY_LIMIT: Duration = Duration::from_secs(20);
/// How much a daemon may grow in the second half of the faults, in bytes of memory and in descriptors and threads: in the first one
/// its buffers and the allocator's arenas begin to fill. Within a minute they still do, by up to 6 MB; after minutes by less than one.
const GROWTH_BYTES: u64 = 16 << 20;
const GROWTH_COUNT: usize = 2;

/// Which faults.
#[derive(Clone, Copy, Debug)]
pub enum Plan {
    /// Every kind once, in order.
    Each,
    /// Drawn by a seed, for so long.
    Random {
        /// Of all chances.
        seed: u64,
        /// How long.
        time: Duration,
    },
}

impl Plan {
    fn seed(self) -> u64 {
        match self {
            Plan::Each => 1,
            Plan::Random { seed, .. } => seed,
        }
    }
}

/// Lets faults happen to a convoy with all strands under traffic, telling `say` of each; what did not recover, grew, or was left.
pub fn endure(nawa: &Path, plan: Plan, say: &mut dyn FnMut(&str)) -> Result<Vec<String>> {
    program::require(&["ethtool", "nft", "ping"])?;
    check_usrsctp()?;
    cleanup::remove_orphans();
    let _registrations = controls::lock()?;
    let folder = tempfile::tempdir().doing(|| "make a temporary folder".into())?;
    let emulator = Emulator::start()?;
    let place = Place { nawa, folder: folder.path(), emulator: &emulator, seed: plan.seed() };
    let field = Field::build(System::Nawa, &place)?;
    let before = hosts(&field.convoy).map(snapshot).collect::<Result<Vec<_>>>()?;
    field.start()?;
    let mut trial = Trial { field: &field, amiss: Vec::new() };
    trial.await_recovery("the start")?;
    let hazards = Hazards::start(&field.convoy, field.system.flood_interface())?;
    let traffic = Traffic::start(field.convoy.vehicle(USER), &field.convoy.hub, field.way())?;
    trial.run(plan, say)?;
    let bytes = traffic.received();
    drop((traffic, hazards));
    let mut amiss = trial.amiss;
    if bytes.contains(&0) {
        amiss.push(format!("of download and upload {bytes:?} bytes arrived"));
    }
    for (host, before) in hosts(&field.convoy).zip(before) {
        output(host, nawa, &["down"])?;
        amiss.extend(differences(host.name(), &before, &snapshot(host)?));
    }
    Ok(amiss)
}

fn hosts(convoy: &Convoy) -> impl Iterator<Item = &Namespace> {
    (0..VEHICLES).map(|vehicle| convoy.vehicle(vehicle)).chain([&convoy.hub])
}

struct Trial<'a> {
    field: &'a Field,
    amiss: Vec<String>,
}

impl Trial<'_> {
    fn run(&mut self, plan: Plan, say: &mut dyn FnMut(&str)) -> Result<()> {
        let began = clock::now();
        let mut dice = ChaCha8Rng::seed_from_u64(plan.seed());
        let mut each = Fault::each().into_iter();
        let half = each.len() / 2;
        let mut first = None;
        // The next fault, and whether half of all is over.
        let mut next = || match plan {
            Plan::Each => each.next().map(|fault| (fault, each.len() < half)),
            Plan::Random { time, .. } => {
                (began.elapsed() < time).then(|| (Fault::draw(&mut dice), began.elapsed() > time / 2))
            }
        };
        while let Some((fault, late)) = next() {
            if late && first.is_none() {
                first = Some(self.sizes()?);
            }
            self.suffer(fault, began, say)?;
        }
        for (number, (first, last)) in first.into_iter().flatten().zip(self.sizes()?).enumerate() {
            say(&format!("daemon {}: {first:?}, at the end {last:?}", number + 1));
            // One that was started anew is compared with the first, too: it has to be no greater.
            if last.exceeds(&first) {
                self.amiss.push(format!("daemon {} has grown from {first:?} to {last:?}", number + 1));
            }
        }
        Ok(())
    }

    fn suffer(&mut self, fault: Fault, began: Instant, say: &mut dyn FnMut(&str)) -> Result<()> {
        self.field.strike(fault)?;
        wait_until(clock::now() + LASTS);
        self.field.mend(fault)?;
        let mended = clock::now();
        self.await_recovery(&format!("{fault:?}"))?;
        say(&format!(
            "{:4} s: {fault:?}, all well {:.1} s later",
            began.elapsed().as_secs(),
            mended.elapsed().as_secs_f64()
        ));
        Ok(())
    }

    /// Waits until every vehicle's strands run, and the hub is reached from all.
    fn await_recovery(&mut self, after: &str) -> Result<()> {
        let mut why = String::new();
        let well =
            || (0..VEHICLES).try_for_each(|vehicle| self.look(vehicle)).map_err(|reason| why = reason).ok();
        if clock::poll_until(RECOVERY_LIMIT, well).is_none() {
            self.amiss.push(format!("{} s after {after}: {why}", RECOVERY_LIMIT.as_secs()));
        }
        Ok(())
    }

    /// Fails, in one sentence, where something does not run.
    fn look(&self, vehicle: usize) -> Result<(), String> {
        let host = self.field.convoy.vehicle(vehicle);
        let name = format!("vehicle {}", vehicle + 1);
        // As a routing program does, which nawa is none.
        self.field.convoy.join_mesh(vehicle).map_err(|error| format!("{name}: {error}"))?;
        let status = program::status(host, self.field.nawa()).map_err(|error| format!("{name}: {error}"))?;
        let checks = [
            ("peer", status["tunnel"]["peers"][0]["up"] == true),
            (
                "coding",
                status["coding"][0]["waits_because"].is_null() && status["coding"][0]["mode"] == "any",
            ),
            ("flood", status["flood"][0]["relay"] == "xdp-native"),
            ("bicast", status["bicast"]["mode"] == "adaptive"),
            ("flight", status["flight"]["default"] == "fsat"),
            ("reload", status["reload_refused"].is_null()),
        ];
        let failed = checks.into_iter().find(|(_, well)| !well);
        failed.map_or(Ok(()), |(what, _)| {
            Err(format!("{name}: {what} is not as it should be: {}", status[what]))
        })?;
        let ping = ["-q", "-c", "1", "-W", "1", "10.77.0.254"];
        output(host, "ping", &ping)
            .map(drop)
            .map_err(|_| format!("{name}: the hub does not answer through the tunnel"))
    }

    fn sizes(&self) -> Result<Vec<Daemon>> {
        let of = |host| {
            pids(host, self.field.nawa())?.first().map_or(Ok(Daemon::default()), |pid| Daemon::read(*pid))
        };
        hosts(&self.field.convoy).map(of).collect()
    }
}

/// What a daemon takes.
#[derive(Clone, Copy, Debug, Default)]
struct Daemon {
    /// Of its own, `RssAnon`: pages of its files that it has touched are the kernel's to drop, and grow with each new way through the code.
    anonymous_bytes: u64,
    descriptors: usize,
    /// Those of its descriptors that are BPF maps, programs and links.
    bpf: usize,
    threads: usize,
}

impl Daemon {
    fn read(pid: Pid) -> Result<Self> {
        let folder = format!("/proc/{}", pid.as_raw_nonzero());
        let list = |what: &str| {
            let entries =
                std::fs::read_dir(format!("{folder}/{what}")).doing(|| format!("read {folder}/{what}"))?;
            Ok::<_, Error>(entries.flatten().map(|entry| entry.path()).collect::<Vec<_>>())
        };
        let descriptors = list("fd")?;
        let is_bpf = |path: &std::path::PathBuf| {
            std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("bpf"))
        };
        let memory = program::memory(pid.as_raw_nonzero().get().unsigned_abs(), "RssAnon:");
        Ok(Self {
            anonymous_bytes: memory.unwrap_or(0),
            bpf: descriptors.iter().filter(|path| is_bpf(path)).count(),
            descriptors: descriptors.len(),
            threads: list("task")?.len(),
        })
    }

    fn exceeds(&self, first: &Daemon) -> bool {
        self.anonymous_bytes > first.anonymous_bytes + GROWTH_BYTES
            || self.descriptors > first.descriptors + GROWTH_COUNT
            || self.bpf > first.bpf + GROWTH_COUNT
            || self.threads > first.threads + GROWTH_COUNT
    }
}

/// Questions whose answers are a host's state, and what is asked for it.
const STATE: [(&str, &[&str]); 8] = [
    // Without indices, by name: what was unplugged has another place.
    ("ip", &["-o", "link", "|", "cut", "-d:", "-f2-", "|", "sort"]),
    ("ip", &["-o", "address", "|", "cut", "-d:", "-f2-", "|", "sort"]),
    ("ip", &["-4", "rule"]),
    ("ip", &["-4", "route", "show", "table", "all"]),
    ("ip", &["-6", "rule"]),
    ("nft", &["list", "ruleset"]),
    ("cat", &["/proc/sys/net/ipv4/tcp_congestion_control"]),
    ("grep", &["-c", "@nawa", "/proc/net/unix"]),
];

fn snapshot(host: &Namespace) -> Result<Vec<String>> {
    let ask = |(program, words): (&str, &[&str])| {
        let command = format!("{program} {} || true", words.join(" "));
        output(host, "sh", &["-c", &command])
    };
    STATE.into_iter().map(ask).collect()
}

fn differences(host: &str, before: &[String], after: &[String]) -> Vec<String> {
    let differ = before.iter().zip(after).zip(STATE).filter(|((before, after), _)| before != after);
    differ
        .map(|((before, after), (program, words))| {
            let lines = |one: &str, other: &str| {
                one.lines()
                    .filter(|line| !other.lines().any(|known| known == *line))
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            };
            let (gone, new) = (lines(before, after), lines(after, before));
            format!("`nawa down` on {host}: `{program} {}` had {gone:?} and has {new:?}", words.join(" "))
        })
        .collect()
}
