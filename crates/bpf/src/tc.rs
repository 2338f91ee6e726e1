//! Programs on tc's hooks of an interface, beside those of others.
//!
//! Since Linux 6.6 by links (TCX), which go with their holder. Before, as a filter of the clsact qdisc with a handle of
//! our own: it outlives a crash, and the next [`attach`] replaces it, [`remove_left`] removes it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{TC_EGRESS, TC_INGRESS, TcHook};

use crate::{Error, ffi};

/// Handle and priority of our filters: "nw".
const HANDLE: u32 = 0x6e77;
const PRIORITY: u32 = 0x6e77;

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
    Filter { interface: u32, direction: Direction },
}

impl Attached {
    /// Whether it goes with its holder, whatever ends that.
    pub fn is_link(&self) -> bool {
        matches!(self.0, How::Link { .. })
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let How::Filter { interface, direction } = self.0 {
            // The interface may be gone, and its filters with it.
            let _ = any_program(interface, direction).detach();
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
/// What the kernel says.
pub fn attach_filter(program: BorrowedFd, interface: u32, direction: Direction) -> Result<Attached, Error> {
    let failed = |error| Error::loader("attach a BPF program to an interface", error);
    let mut hook = hook(program, interface, direction);
    hook.create().map_err(failed)?;
    hook.replace(true);
    hook.attach().map(|_| Attached(How::Filter { interface, direction })).map_err(failed)
}

fn hook(program: BorrowedFd, interface: u32, direction: Direction) -> TcHook {
    let point = match direction {
        Direction::Ingress => TC_INGRESS,
        Direction::Egress => TC_EGRESS,
    };
    let mut hook = TcHook::new(program);
    hook.ifindex(interface as i32).attach_point(point).handle(HANDLE).priority(PRIORITY);
    hook
}

/// To ask and to detach, which look at no program.
fn any_program(interface: u32, direction: Direction) -> TcHook {
    hook(io::stderr().as_fd(), interface, direction)
}

/// Removes filters that a crash left on the interface with index `interface`, if the programs' names start with
/// `prefix`. True if there were any.
pub fn remove_left(interface: u32, prefix: &str) -> bool {
    let remove = |direction| {
        let mut hook = any_program(interface, direction);
        let ours = hook.query().is_ok_and(|id| name_of(id).is_some_and(|name| name.starts_with(prefix)));
        ours && hook.detach().is_ok()
    };
    [Direction::Ingress, Direction::Egress].map(remove).contains(&true)
}

fn name_of(id: u32) -> Option<String> {
    let program = ProgInfoIter::default().find(|program| program.id == id)?;
    Some(program.name.to_string_lossy().into_owned())
}
