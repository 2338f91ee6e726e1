//! The convoy with all strands under traffic, for tests that let faults happen to it.

use std::fs::File;
use std::path::Path;

use rustix::process::Pid;
use tempfile::TempDir;

use super::convoy::{USER, VEHICLES};
use super::fault::Fault;
use super::hazards::Hazards;
use super::running::{Field, pids};
use super::system::System;
use super::traffic::Traffic;
use crate::bicast::check_usrsctp;
use crate::emulator::Emulator;
use crate::error::Result;
use crate::namespace::Namespace;
use crate::system::Means;
use crate::{cleanup, controls, program};

/// The convoy; dropping it removes it.
pub struct Trial {
    // Dropped in this order.
    load: Option<(Hazards, Traffic)>,
    field: Field,
    _emulator: Emulator,
    _registrations: File,
    _folder: TempDir,
}

impl Trial {
    /// Hosts and links, with the chances of `seed`. Nothing runs yet.
    pub fn build(nawa: &Path, seed: u64) -> Result<Self> {
        program::require(&["ethtool", "nft", "ping"])?;
        check_usrsctp()?;
        cleanup::start()?;
        let registrations = controls::lock()?;
        let folder = cleanup::folder("")?;
        let emulator = Emulator::start()?;
        let means = Means { nawa, folder: folder.path() };
        let field = Field::build(System::Nawa, &means, &emulator, seed)?;
        Ok(Self { load: None, field, _emulator: emulator, _registrations: registrations, _folder: folder })
    }

    /// Starts all daemons; returns when the hub answers.
    pub fn start(&self) -> Result<()> {
        self.field.start()
    }

    /// Begins the traffic, or ends it: bytes that a download and an upload have carried until then.
    pub fn set_loaded(&mut self, loaded: bool) -> Result<[u64; 2]> {
        let bytes = self.load.take().map_or([0; 2], |(_, traffic)| traffic.received());
        if loaded {
            let (field, convoy) = (&self.field, &self.field.convoy);
            let hazards = Hazards::start(convoy, field.system.flood_interface())?;
            self.load = Some((hazards, Traffic::start(convoy.vehicle(USER), &convoy.hub, field.way())?));
        }
        Ok(bytes)
    }

    /// The vehicles, and the hub.
    pub fn hosts(&self) -> impl Iterator<Item = &Namespace> {
        (0..VEHICLES).map(|vehicle| self.field.convoy.vehicle(vehicle)).chain([&self.field.convoy.hub])
    }

    /// Gives a vehicle its ways to the others, as a routing program does, which nawa is none.
    pub fn join_mesh(&self, vehicle: usize) -> Result<()> {
        self.field.convoy.join_mesh(vehicle)
    }

    /// The daemon of a host, if one runs.
    pub fn daemon(&self, host: &Namespace) -> Option<Pid> {
        pids(host, &self.field.nawa).next()
    }

    /// Lets a fault begin, or ends it.
    pub fn set(&self, fault: Fault, on: bool) -> Result<()> {
        self.field.set(fault, on)
    }
}
