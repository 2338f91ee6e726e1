//! A convoy with a system on it, whose daemons run.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::convoy::{Convoy, HUB_INNER, POLICED, USER, VEHICLES, hub_address};
use super::system::{Identities, Strand, System, hub_file, vehicle_file};
use super::traffic::Way;
use crate::bicast::transfer::Program;
use crate::dcf::INTERFACE;
use crate::emulator::Emulator;
use crate::error::{Doing, Result};
use crate::namespace::Namespace;
use crate::ping;
use crate::program::output;
use crate::system::Means;
use crate::{cleanup, clock, congestion};

/// For the hub to answer, once all has been started.
const READY_LIMIT: Duration = Duration::from_secs(15);

/// The convoy with a system.
pub(super) struct Field {
    pub(super) system: System,
    pub(super) convoy: Convoy,
    pub(super) nawa: PathBuf,
    folder: PathBuf,
    /// What transfers over SCTP.
    pub(super) program: Program,
    pub(super) addresses: Cell<u8>,
}

impl Field {
    /// Nothing runs yet.
    pub(super) fn build(system: System, means: &Means, emulator: &Emulator, seed: u64) -> Result<Self> {
        let (nawa, folder) = (means.nawa.to_owned(), means.folder.to_owned());
        let program = Program::compile(&folder)?;
        let convoy = Convoy::build(emulator, system.mesh_interface(), seed)?;
        let field = Self { system, convoy, nawa, folder, program, addresses: Cell::new(1) };
        field.write_files(means)?;
        Ok(field)
    }

    /// Returns when the hub answers.
    pub(super) fn start(&self) -> Result<()> {
        if self.hub_path().exists() {
            self.up(&self.convoy.hub, "hub")?;
        }
        (0..VEHICLES).try_for_each(|vehicle| self.start_vehicle(vehicle))?;
        if !self.system.has(Strand::Tunnel) {
            self.allow_subflows()?;
        }
        ping::await_answer(self.convoy.vehicle(USER), self.way().hub.into(), READY_LIMIT)
    }

    pub(super) fn vehicle_path(&self, vehicle: usize) -> PathBuf {
        self.folder.join(format!("v{}.toml", vehicle + 1))
    }

    fn hub_path(&self) -> PathBuf {
        self.folder.join("hub.toml")
    }

    fn write_files(&self, means: &Means) -> Result<()> {
        let vehicle = |number| means.identity(format!("v{number}"));
        let identities = Identities {
            flood_key: means.identity("flood")?.key_file,
            hub: means.identity("hub")?,
            vehicles: (1..=VEHICLES).map(vehicle).collect::<Result<_>>()?,
        };
        let write = |path: PathBuf, text: String| {
            std::fs::write(&path, text).doing(|| format!("write {}", path.display()))
        };
        for vehicle in 0..VEHICLES {
            write(self.vehicle_path(vehicle), vehicle_file(self.system, vehicle, &identities))?;
        }
        hub_file(self.system, &identities).map_or(Ok(()), |text| write(self.hub_path(), text))
    }

    /// As a user starts it.
    fn up(&self, host: &Namespace, name: &str) -> Result<()> {
        let state = self.folder.join(format!("{name}-state"));
        std::fs::create_dir_all(&state).doing(|| format!("make the folder {}", state.display()))?;
        let state = format!("STATE_DIRECTORY={}", state.display());
        let (nawa, file) = (self.nawa.display().to_string(), self.folder.join(format!("{name}.toml")));
        output(host, "env", &[&state, &nawa, "up", &file.display().to_string()]).map(drop)
    }

    /// As `vehicle` does when it is switched on.
    pub(super) fn start_vehicle(&self, vehicle: usize) -> Result<()> {
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
    fn allow_subflows(&self) -> Result<()> {
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
        Way { hub: if tunnel { HUB_INNER } else { hub_address(POLICED) }, multipath: !tunnel }
    }
}

pub(super) fn wait_until(moment: Instant) {
    clock::poll_until(moment.saturating_duration_since(clock::now()), || None::<()>);
}

/// The processes in `host` that run the file `program`.
pub(super) fn pids(host: &Namespace, program: &Path) -> impl Iterator<Item = Pid> {
    let link = |pid: &Pid| std::fs::read_link(format!("/proc/{}/exe", pid.as_raw_nonzero()));
    cleanup::pids(host.name()).into_iter().filter(move |pid| link(pid).is_ok_and(|file| file == program))
}
