//! One sample: everything at once, while things happen.

use std::cell::Cell;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::association::Association;
use super::convoy::{Convoy, HUB_INNER, LTE, POLICED, USER, VEHICLES, hub_address};
use super::fault::TIMELINE;
use super::hazards::Hazards;
use super::system::{Identities, Strand, System, hub_file, vehicle_file};
use super::traffic::{Traffic, Way};
use crate::bicast::compile_transfer;
use crate::clock;
use crate::congestion;
use crate::dcf::INTERFACE;
use crate::emulator::Emulator;
use crate::error::{Doing, Error};
use crate::namespace::Namespace;
use crate::ping::{self, percentile};
use crate::program::output;
use crate::system::{KeyPair, write_key};
use crate::workload::{Need, Prepared, Sample, Site, Workload};

/// For the hub to answer, once all has been started.
const READY_LIMIT: Duration = Duration::from_secs(15);

/// A packet of the call that is answered later is lost.
const CALL_LIMIT: Duration = Duration::from_secs(1);

/// One system in the convoy.
#[derive(Clone, Debug)]
pub(super) struct Test {
    pub(super) system: System,
    pub(super) time: Duration,
}

impl Workload for Test {
    fn needs(&self) -> Vec<Need> {
        let mut needs = Need::programs(&["ethtool", "nft", "ping", "cc"]);
        if self.system.has(Strand::Flight) {
            needs.push(Need::CongestionControl("fsat"));
        }
        needs.extend(self.system.congestion_control().map(Need::CongestionControl));
        needs
    }

    fn prepare<'a>(&'a self, site: Site<'a>) -> Result<Box<dyn Prepared + 'a>, Error> {
        Ok(Box::new(move || {
            let (nawa, folder) = (&*site.options.nawa, site.folder.path());
            let place = Place { nawa, folder, emulator: site.emulator, seed: site.seed };
            let field = Field::build(self.system, &place)?;
            field.start()?;
            field.measure(self.time)
        }))
    }
}

/// Where a convoy is made.
pub(super) struct Place<'a> {
    pub(super) nawa: &'a Path,
    pub(super) folder: &'a Path,
    pub(super) emulator: &'a Emulator,
    pub(super) seed: u64,
}

/// The convoy with a system.
pub(super) struct Field {
    pub(super) system: System,
    pub(super) convoy: Convoy,
    nawa: PathBuf,
    folder: PathBuf,
    program: PathBuf,
    /// Which address the NAT has.
    pub(super) addresses: Cell<u8>,
}

impl Field {
    /// Nothing runs yet.
    pub(super) fn build(system: System, place: &Place) -> Result<Self, Error> {
        let (nawa, folder) = (place.nawa.to_owned(), place.folder.to_owned());
        let program = compile_transfer(&folder)?;
        let from_drivers = system.has(Strand::Flood);
        let convoy = Convoy::build(place.emulator, system.mesh_interface(), from_drivers, place.seed)?;
        let field = Self { system, convoy, nawa, folder, program, addresses: Cell::new(1) };
        field.write_files()?;
        Ok(field)
    }

    /// Returns when the hub answers.
    pub(super) fn start(&self) -> Result<(), Error> {
        if self.hub_path().exists() {
            self.up(&self.convoy.hub, "hub")?;
        }
        (0..VEHICLES).try_for_each(|vehicle| self.start_vehicle(vehicle))?;
        if !self.system.has(Strand::Tunnel) {
            self.allow_subflows()?;
        }
        self.await_hub()
    }

    pub(super) fn nawa(&self) -> &Path {
        &self.nawa
    }

    pub(super) fn vehicle_path(&self, vehicle: usize) -> PathBuf {
        self.folder.join(format!("v{}.toml", vehicle + 1))
    }

    fn await_hub(&self) -> Result<(), Error> {
        let way = self.way();
        ping::await_answer(self.convoy.vehicle(USER), None, way.hub.into(), READY_LIMIT)?;
        ping::await_answer(self.convoy.vehicle(USER), None, way.call.into(), READY_LIMIT)
    }

    fn hub_path(&self) -> PathBuf {
        self.folder.join("hub.toml")
    }

    fn write_files(&self) -> Result<(), Error> {
        let names: Vec<String> = (0..VEHICLES).map(|vehicle| format!("v{}", vehicle + 1)).collect();
        let make = |name: &str| {
            let keys = KeyPair::generate(&self.nawa)?;
            Ok::<_, Error>((write_key(&keys, &self.folder, name)?, keys.public))
        };
        let (flood_key, _) = make("flood")?;
        let hub = make("hub")?;
        let vehicles = names.iter().map(|name| make(name)).collect::<Result<Vec<_>, _>>()?;
        let identities = Identities {
            flood_key: &flood_key,
            hub: (&hub.0, &hub.1),
            vehicles: vehicles.iter().map(|(path, public)| (&**path, &**public)).collect(),
        };
        let write = |name: &str, text: String| {
            let path = self.folder.join(format!("{name}.toml"));
            std::fs::write(&path, text).doing(|| format!("write {}", path.display()))
        };
        for (vehicle, name) in names.iter().enumerate() {
            write(name, vehicle_file(self.system, vehicle, &identities))?;
        }
        hub_file(self.system, &identities).map_or(Ok(()), |text| write("hub", text))
    }

    /// As a user starts it.
    fn up(&self, host: &Namespace, name: &str) -> Result<(), Error> {
        let state = self.folder.join(format!("{name}-state"));
        std::fs::create_dir_all(&state).doing(|| format!("make the folder {}", state.display()))?;
        let state = format!("STATE_DIRECTORY={}", state.display());
        let (nawa, file) = (self.nawa.display().to_string(), self.folder.join(format!("{name}.toml")));
        output(host, "env", &[&state, &nawa, "up", &file.display().to_string()]).map(drop)
    }

    /// As `vehicle` does when it is switched on.
    pub(super) fn start_vehicle(&self, vehicle: usize) -> Result<(), Error> {
        let host = self.convoy.vehicle(vehicle);
        if self.system.mesh_interface() == INTERFACE {
            self.convoy.join_mesh(vehicle)?;
        }
        self.up(host, &format!("v{}", vehicle + 1))?;
        if self.system.mesh_interface() != INTERFACE {
            self.convoy.join_mesh(vehicle)?;
        }
        if let Some(control) = self.system.congestion_control() {
            congestion::set(host, control)?;
        }
        Ok(())
    }

    /// MPTCP over all uplinks: the hub tells its addresses.
    fn allow_subflows(&self) -> Result<(), Error> {
        let limits = "mptcp limits set subflows 8 add_addr_accepted 8".to_owned();
        let mut lines = vec![limits.clone()];
        let address =
            |uplink: usize| format!("mptcp endpoint add {} dev eth{uplink} signal", hub_address(uplink));
        lines.extend((0..4).map(address));
        self.convoy.hub.ip(&lines)?;
        if let Some(control) = self.system.congestion_control() {
            congestion::set(&self.convoy.hub, control)?;
        }
        self.convoy.vehicle(USER).ip(&[limits])
    }

    pub(super) fn way(&self) -> Way {
        let tunnel = self.system.has(Strand::Tunnel);
        let address = if tunnel { HUB_INNER } else { hub_address(POLICED) };
        Way { hub: address, call: address, multipath: !tunnel }
    }

    fn measure(self, time: Duration) -> Result<Sample, Error> {
        self.convoy.restart_links();
        let hazards = Hazards::start(&self.convoy, self.system.flood_interface())?;
        let traffic = Traffic::start(self.convoy.vehicle(USER), &self.convoy.hub, self.way())?;
        let association = Association::start(&self.convoy, &self.program)?;
        let (air, metered) = (self.convoy.air_bytes()?, self.convoy.bytes(LTE)?);
        let (began, busy) = (clock::now(), Busy::now()?);
        for (Range { start, end }, fault) in TIMELINE {
            wait_until(began + Duration::from_secs(start));
            self.strike(fault)?;
            wait_until(began + Duration::from_secs(end));
            self.mend(fault)?;
        }
        wait_until(began + time);
        let cores = Busy::now()?.cores_since(&busy, began.elapsed());
        let (air, metered) = (self.convoy.air_bytes()? - air, self.convoy.bytes(LTE)? - metered);
        let time = began.elapsed().as_secs_f64();
        let traffic = traffic.stop()?;
        let hazards = hazards.stop();
        let association = association.outcome()?;
        let mbps = |bytes: u64| bytes as f64 * 8e-6 / time;
        let ms =
            |times: &[Duration], percent| percentile(times, percent).map(|time| time.as_secs_f64() * 1e3);
        let answered: Vec<Duration> = traffic.call.answered(CALL_LIMIT).collect();
        let mut sample = Sample::from([
            ("goodput_mbps", Some(mbps(traffic.bytes[0] + traffic.bytes[1]))),
            ("download_mbps", Some(mbps(traffic.bytes[0]))),
            ("upload_mbps", Some(mbps(traffic.bytes[1]))),
            ("interactive_p50_ms", ms(&traffic.answers, 50)),
            ("interactive_p99_ms", ms(&traffic.answers, 99)),
            ("call_loss_ratio", Some(traffic.call.loss_ratio(CALL_LIMIT))),
            ("call_p50_ms", ms(&answered, 50)),
            ("call_p99_ms", ms(&answered, 99)),
            ("hazard_p50_ms", ms(&hazards.took, 50)),
            ("hazard_p99_ms", ms(&hazards.took, 99)),
            ("hazard_delivered_ratio", Some(hazards.took.len() as f64 / hazards.due.max(1) as f64)),
            ("sctp_transfer_s", Some(association.map_or(time, |outcome| outcome.seconds))),
            ("sctp_longest_gap_ms", association.map(|outcome| outcome.longest_gap_ms)),
            ("air_bytes", Some(air as f64)),
            ("metered_bytes", Some(metered as f64)),
            ("cpu_cores", Some(cores)),
        ]);
        sample.remark = association.is_none().then(|| {
            format!(
                "{}: in a run SCTP's file had not arrived at the end, which counts as its time",
                self.system.name()
            )
        });
        Ok(sample)
    }
}

pub(super) fn wait_until(moment: Instant) {
    clock::poll_until(moment.saturating_duration_since(clock::now()), || None::<()>);
}

/// The processes in `host` that run the file `program`.
pub(super) fn pids(host: &Namespace, program: &Path) -> Result<Vec<rustix::process::Pid>, Error> {
    let text = output(host, "ip", &["netns", "pids", host.name()])?;
    let numbers = text.lines().filter_map(|line| line.trim().parse::<i32>().ok());
    let runs = |pid: &i32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|file| file == program);
    Ok(numbers.filter(runs).filter_map(rustix::process::Pid::from_raw).collect())
}

/// Processor time until now.
struct Busy {
    /// Of the machine.
    all: Duration,
    /// Of the threads that are the network.
    emulation: Duration,
}

/// Those threads' names.
const EMULATION: [&str; 2] = ["links", "medium"];

impl Busy {
    fn now() -> Result<Self, Error> {
        let text = std::fs::read_to_string("/proc/stat").doing(|| "read /proc/stat".into())?;
        // User, nice and system time, idle and waiting, interrupts hard and soft (proc_stat(5)), in hundredths of a second.
        let ticks: Vec<u64> = text
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .skip(1)
            .map_while(|word| word.parse().ok())
            .collect();
        let busy: u64 = [0, 1, 2, 5, 6].iter().filter_map(|&field| ticks.get(field)).sum();
        let threads = std::fs::read_dir("/proc/self/task").doing(|| "read /proc/self/task".into())?;
        let emulation = threads.flatten().filter_map(|thread| {
            let read = |file| std::fs::read_to_string(thread.path().join(file)).ok();
            EMULATION.contains(&read("comm")?.trim()).then_some(())?;
            read("schedstat")?.split(' ').next()?.parse().ok().map(Duration::from_nanos)
        });
        Ok(Self { all: Duration::from_millis(busy * 10), emulation: emulation.sum() })
    }

    fn cores_since(&self, before: &Busy, time: Duration) -> f64 {
        let all = self.all.saturating_sub(before.all);
        all.saturating_sub(self.emulation.saturating_sub(before.emulation)).as_secs_f64() / time.as_secs_f64()
    }
}
