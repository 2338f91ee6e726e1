//! Programs on tc's hooks of an interface, beside those of others.
//!
//! Since Linux 6.6 by links (TCX), which go with their holder. Before, as a filter of the clsact qdisc: it outlives a crash,
//! until [`remove_left`] removes it.
//!
//! Either way ours sees packets first, so that no other's that ends the chain keeps them from it: a link before those that are
//! there already, a filter by the first priority there is. Who attaches a link before ours later sees them before.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{TC_EGRESS, TC_INGRESS, TcHook};

use crate::{Error, ffi};

/// Handles of our filters, from "nw" on: as many programs of ours as one hook may have.
const HANDLES: std::ops::Range<u32> = 0x6e77..0x6e7f;
/// Their priority: the first.
const PRIORITY: u32 = 1;

/// Which way packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Into this host.
    Ingress,
    /// Out of it.
    Egress,
}

/// A program on a hook, until this is dropped.
#[derive(Debug)]
pub struct Attached(How);

#[derive(Debug)]
enum How {
    Link { _link: OwnedFd },
    Filter { interface: u32, direction: Direction, handle: u32 },
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let How::Filter { interface, direction, handle } = self.0 {
            // The interface may be gone, and its filters with it.
            let _ = any_program(interface, direction, handle).detach();
        }
    }
}

/// Runs `program` on packets of the interface with index `interface`, before the programs that are there already
/// decide; it has to return TC_ACT_UNSPEC for what it leaves to them.
///
/// # Errors
/// What the kernel says.
pub fn attach(program: BorrowedFd, interface: u32, direction: Direction) -> Result<Attached, Error> {
    match ffi::link_to_hook(program, interface, direction == Direction::Egress) {
        Ok(link) => Ok(Attached(How::Link { _link: link })),
        // A kernel that does not know this kind of link.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            attach_filter(program, interface, direction)
        }
        Err(error) => Err(Error::system("attach a BPF program to an interface")(error)),
    }
}

/// As kernels before 6.6 have it.
///
/// # Errors
/// What the kernel says; it refuses if another's classifier of another kind has the first priority.
pub fn attach_filter(program: BorrowedFd, interface: u32, direction: Direction) -> Result<Attached, Error> {
    let failed = |error| Error::loader("attach a BPF program to an interface as its first filter", error);
    hook(program, interface, direction, HANDLES.start).create().map_err(failed)?;
    let is_free = |handle: &u32| any_program(interface, direction, *handle).query().is_err();
    let handle = HANDLES.clone().find(is_free).unwrap_or(HANDLES.start);
    hook(program, interface, direction, handle).attach().map_err(failed)?;
    Ok(Attached(How::Filter { interface, direction, handle }))
}

fn hook(program: BorrowedFd, interface: u32, direction: Direction, handle: u32) -> TcHook {
    let point = match direction {
        Direction::Ingress => TC_INGRESS,
        Direction::Egress => TC_EGRESS,
    };
    let mut hook = TcHook::new(program);
    hook.ifindex(interface as i32).attach_point(point).handle(handle).priority(PRIORITY);
    hook
}

/// To ask and to detach, which look at no program.
fn any_program(interface: u32, direction: Direction, handle: u32) -> TcHook {
    hook(io::stderr().as_fd(), interface, direction, handle)
}

/// Removes filters that a crash left on the interface with index `interface`, if the programs' names start with
/// `prefix`. True if there were any.
pub fn remove_left(interface: u32, prefix: &str) -> bool {
    crate::refusal::hush();
    let remove = |direction, handle| {
        let mut hook = any_program(interface, direction, handle);
        let ours = hook.query().is_ok_and(|id| name_of(id).is_some_and(|name| name.starts_with(prefix)));
        ours && hook.detach().is_ok()
    };
    let hooks = [Direction::Ingress, Direction::Egress].map(|way| HANDLES.map(move |handle| (way, handle)));
    hooks.into_iter().flatten().filter(|(direction, handle)| remove(*direction, *handle)).count() > 0
}

fn name_of(id: u32) -> Option<String> {
    let program = ProgInfoIter::default().find(|program| program.id == id)?;
    Some(program.name.to_string_lossy().into_owned())
}
