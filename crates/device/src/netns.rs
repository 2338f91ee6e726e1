//! Network namespaces by path, and nameless ones, one thread at a time.
//!
//! A namespace belongs to a thread, not to the process, so [`run_in`] does its work on a thread of its own and the
//! caller's stays where it was.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// Moves the calling thread, for good, into the network namespace at `path`, such as `/run/netns/NAME`.
///
/// Fails where `path` is not there or no namespace, or without CAP_SYS_ADMIN.
pub fn enter(path: &Path) -> io::Result<()> {
    let namespace = File::open(path)?;
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// What `work` returns when it runs inside the network namespace at `path`, on a thread that lives as long as it does.
///
/// Fails as [`enter`] does. A panic of `work` goes on in the caller.
pub fn run_in<T: Send>(path: &Path, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    on_a_thread(|| enter(path).map(|()| work()))
}

/// What `work` returns when it runs inside a network namespace of its own, which nobody else sees and which lasts as long as
/// a socket or TAP that `work` has opened there.
///
/// Fails without CAP_SYS_ADMIN. A panic of `work` goes on in the caller.
pub fn run_in_new<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    // SAFETY: the thread has a network namespace of its own from then on; no memory and no descriptor changes.
    on_a_thread(|| Ok(unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.map(|()| work())?))
}

fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let joined = std::thread::scope(|scope| scope.spawn(work).join());
    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_that_is_not_there_is_an_error() {
        let missing = Path::new("/run/netns/nawalab-that-is-not-there");
        assert_eq!(run_in(missing, || ()).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_file_that_is_no_namespace_is_refused() {
        assert!(run_in(Path::new("/proc/self/status"), || ()).is_err());
    }
}
