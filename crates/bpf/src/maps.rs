//! The maps of a loaded object by their names, frames sent from within the kernel, and tracepoints.

use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{Map, MapCore, MapFlags, ProgramInput};

use crate::xdp::Loaded;
use crate::{Error, tc};

/// `BPF_F_TEST_XDP_LIVE_FRAMES`: a run by hand does with the frame what the program says.
const LIVE_FRAMES: u32 = 1 << 1;
/// Before a program's frame in its context: where it begins and ends, and the interface that it came in by.
const CONTEXT_BYTES: usize = 24;
const CONTEXT_END: std::ops::Range<usize> = 4..8;
const CONTEXT_INTERFACE: std::ops::Range<usize> = 12..16;

/// Programs at tracepoints.
pub struct Traced {
    _links: Vec<libbpf_rs::Link>,
}

impl Loaded {
    /// Sets the element `key` of the map `name`.
    ///
    /// # Errors
    /// If there is no such map, or it takes no such key or value.
    pub fn update(&self, name: &str, key: u32, value: &[u8]) -> Result<(), Error> {
        self.update_at(name, &key.to_ne_bytes(), value)
    }

    /// The element `key` of the map `name`, if it has one.
    ///
    /// # Errors
    /// If there is no such map, or it takes no such key.
    pub fn lookup(&self, name: &str, key: u32) -> Result<Option<Vec<u8>>, Error> {
        self.lookup_at(name, &key.to_ne_bytes())
    }

    /// The same of a map whose keys are these bytes.
    ///
    /// # Errors
    /// As of [`Loaded::lookup`].
    pub fn lookup_at(&self, name: &str, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let read = self.map(name)?.lookup(key, MapFlags::ANY);
        read.map_err(|error| Error::loader("read a BPF map", error))
    }

    /// [`Loaded::update`] of a map whose keys are these bytes.
    ///
    /// # Errors
    /// As of [`Loaded::update`].
    pub fn update_at(&self, name: &str, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let changed = self.map(name)?.update(key, value, MapFlags::ANY);
        changed.map_err(|error| Error::loader("change a BPF map", error))
    }

    /// Has the device map `name` send by `interface` under `key`, each frame through `program` first.
    ///
    /// # Errors
    /// If there are no such map, program or interface.
    pub fn set_port(&self, name: &str, key: u32, interface: u32, program: &str) -> Result<(), Error> {
        let fd = crate::program(&self.object, program)?.as_fd().as_raw_fd();
        self.update(name, key, &[interface.to_ne_bytes(), fd.to_ne_bytes()].concat())
    }

    /// Runs `program` `count` times on `frame`, as if it had come in by `interface`, and does with it what the program
    /// says. The program may change it; the next run finds it changed or as it was.
    ///
    /// # Errors
    /// If there is no such program, or the kernel does not run it.
    pub fn send(&self, program: &str, frame: &[u8], interface: u32, count: u32) -> Result<(), Error> {
        let found = crate::program(&self.object, program)?;
        let mut context = [0; CONTEXT_BYTES];
        context[CONTEXT_END].copy_from_slice(&u32::try_from(frame.len()).unwrap_or(0).to_ne_bytes());
        context[CONTEXT_INTERFACE].copy_from_slice(&interface.to_ne_bytes());
        let input = ProgramInput {
            context_in: Some(&mut context),
            data_in: Some(frame),
            flags: LIVE_FRAMES,
            repeat: count,
            ..ProgramInput::default()
        };
        found
            .test_run(input)
            .map(drop)
            .map_err(|error| Error::loader("send frames from a BPF program", error))
    }

    /// Runs `program` on what leaves or comes in by the interface with this index ([`tc::attach`]).
    ///
    /// # Errors
    /// If there is no such program, or what the kernel says.
    pub fn attach_to_hook(
        &self,
        program: &str,
        interface: u32,
        direction: tc::Direction,
    ) -> Result<tc::Attached, Error> {
        tc::attach(crate::program(&self.object, program)?.as_fd(), interface, direction)
    }

    /// Attaches all programs to the tracepoints that their sections name, for as long as what is returned lives.
    ///
    /// # Errors
    /// What the kernel says, as where it has no such tracepoint.
    pub fn trace(&self) -> Result<Traced, Error> {
        let attach = |program: libbpf_rs::ProgramMut| program.attach_trace();
        let links = self.object.progs_mut().map(attach).collect::<Result<Vec<_>, _>>();
        let links = links.map_err(|error| Error::loader("attach a BPF program to a tracepoint", error))?;
        Ok(Traced { _links: links })
    }

    pub(crate) fn map(&self, name: &str) -> Result<Map<'_>, Error> {
        let found = self.object.maps().find(|map| map.name().to_string_lossy().ends_with(name));
        found.ok_or_else(|| Error::Missing(name.to_owned()))
    }
}
