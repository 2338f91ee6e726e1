//! What a thread or a child asks of the kernel's scheduler and process table.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Pid, Signal, set_parent_process_death_signal, setpriority_process};
use rustix::thread::set_current_timer_slack;

/// Makes the child that `command` starts die (SIGKILL) with the **thread** that starts it.
pub fn die_with_parent(command: &mut Command) {
    let in_child = || Ok(set_parent_process_death_signal(Some(Signal::KILL))?);
    // SAFETY: the closure runs between fork and exec and makes one system call; it allocates and locks nothing.
    unsafe { command.pre_exec(in_child) };
}

/// What [`real_time`] could get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// SCHED_RR with the priority asked for.
    RealTime,
    /// Nice −20: SCHED_RR was refused.
    Nice,
    /// As it was: both were refused.
    Unchanged,
}

/// Lets the calling thread wake up on time: SCHED_RR at `priority` (1 to 99), timers without slack, the process's
/// memory locked. What the kernel refuses is left as it was. Children do not inherit the priority.
pub fn real_time(priority: i32) -> Priority {
    let _ = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT);
    precise_timers();
    if round_robin(priority).is_ok() {
        return Priority::RealTime;
    }
    // On Linux this is the calling thread's own nice value.
    match setpriority_process(None, -20) {
        Ok(()) => Priority::Nice,
        Err(_) => Priority::Unchanged,
    }
}

/// Lets the calling thread's timeouts end when they are due; the kernel otherwise adds up to 50 µs to save power.
pub fn precise_timers() {
    let _ = set_current_timer_slack(NonZeroU64::new(1));
}

fn round_robin(priority: i32) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: priority };
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: 0 is the calling thread; `parameters` is read only, and outlives the call.
    let result = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The user at the other end of a Unix socket, and the process: `None` for one in a pid namespace that this one does not see, which
/// rustix's `UCred` cannot say.
pub fn peer(socket: impl AsFd) -> io::Result<(u32, Option<Pid>)> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let (mut length, socket) = (size_of_val(&peer) as libc::socklen_t, socket.as_fd().as_raw_fd());
    // SAFETY: the kernel writes at most `length` bytes to `peer`, which is that long, may hold any bytes and outlives the call, and
    // the number of those that it wrote to `length`.
    let result = unsafe {
        let peer = (&raw mut peer).cast();
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, peer, &raw mut length)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok((peer.uid, Pid::from_raw(peer.pid))) }
}

/// What became of a thread's work: a sentence if it failed, also by a panic. Nothing that `work` owns is looked at after one.
pub fn outcome(work: impl FnOnce() -> std::io::Result<()>) -> Result<(), String> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Err(format!("a bug, please report it: {text}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_end_is_known() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(peer(one).unwrap(), (rustix::process::getuid().as_raw(), Some(rustix::process::getpid())));
    }

    #[test]
    fn a_child_still_runs_and_reports() {
        let mut command = Command::new("true");
        die_with_parent(&mut command);
        assert!(command.status().unwrap().success());
    }
}
