//! The default congestion control of network namespaces. What one had before is kept beside the pins, as a symbolic
//! link `default-INODE`, or `daemon-INODE` if the daemon changed it, that points to its name, so that `off`, or the next start
//! after a crash, knows it.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use bpf::{Error, pins};

const SYSCTL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
const HERE: &str = "/proc/thread-self/ns/net";
const FIRST: &str = "/proc/1/ns/net";
/// What every kernel has, and every namespace may use.
const ALWAYS: &str = "reno";

/// Who changed a default, and may give it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// `nawa flight on --default`, until `off`.
    On,
    /// The daemon, while it runs.
    Daemon,
}

impl Holder {
    const ALL: [Holder; 2] = [Holder::On, Holder::Daemon];

    fn record(self, namespace: u64) -> PathBuf {
        pins::existing().join(format!("{}{namespace}", self.prefix()))
    }

    fn prefix(self) -> &'static str {
        match self {
            Holder::On => "default-",
            Holder::Daemon => "daemon-",
        }
    }
}

/// The default of this thread's network namespace.
///
/// # Errors
/// If it cannot be read.
pub fn default() -> Result<String, Error> {
    let name = fs::read_to_string(SYSCTL).map_err(|error| pin(SYSCTL, error))?;
    Ok(name.trim().to_owned())
}

/// The congestion controls that can be chosen here.
///
/// # Errors
/// If they cannot be read.
pub fn available() -> Result<Vec<String>, Error> {
    let names = fs::read_to_string(AVAILABLE).map_err(|error| pin(AVAILABLE, error))?;
    Ok(names.split_whitespace().map(str::to_owned).collect())
}

/// This thread's network namespace, by inode number.
///
/// # Errors
/// If it cannot be read.
fn namespace() -> Result<u32, Error> {
    let inode = fs::metadata(HERE).map_err(|error| pin(HERE, error))?.ino();
    Ok(inode as u32)
}

/// Makes `name` this namespace's default, and remembers what was, and for whom. That it is already has it taken up anew: the
/// namespace then gets what is registered by that name now; what the daemon changed is `on`'s from then on.
///
/// # Errors
/// If it cannot be remembered or set; then nothing has changed.
pub fn take(name: &str, holder: Holder) -> Result<(), Error> {
    let (before, here) = (default()?, namespace()?.into());
    let (record, daemons) = (holder.record(here), Holder::Daemon.record(here));
    let noted = |error| Error::Pin { path: record.clone(), error };
    if before != name {
        pins::folder()?;
        Holder::ALL.into_iter().try_for_each(|one| pins::remove(&one.record(here)))?;
        symlink(&before, &record).map_err(noted)?;
    } else if record != daemons && daemons.is_symlink() {
        fs::rename(&daemons, &record).map_err(noted)?;
    }
    set(name)
}

/// Takes `name` up anew in every namespace whose default it is: each keeps what was registered by that name when it was set.
///
/// # Errors
/// The first that failed, with its namespace; the others are done.
pub fn refresh_everywhere(name: &str) -> Result<(), Error> {
    everywhere(|| replace(name, name)).map(drop)
}

/// Whether `holder` has changed this namespace's default, and not given it back.
pub fn is_changed(holder: Holder) -> bool {
    namespace().is_ok_and(|here| holder.record(here.into()).is_symlink())
}

/// Gives this namespace what it had before the daemon changed it, unless somebody has changed it since; and those that have
/// inherited `name` meanwhile what the first one has by then, unless `name` is `on`'s as well.
///
/// # Errors
/// The first that failed, with its namespace; the others are restored.
pub fn restore(name: &str) -> Result<(), Error> {
    let record = Holder::Daemon.record(namespace()?.into());
    if !record.is_symlink() {
        return Ok(());
    }
    let restored = restore_from(&record, name);
    // A sandbox hides the first one from a service, whose namespace that is as a rule.
    let before = within(Path::new(FIRST), default).or_else(|_| default())?;
    if before == name || pins::has(name) {
        return restored;
    }
    restored.and(restore_inherited(name, &before).map(drop))
}

fn restore_from(record: &Path, name: &str) -> Result<(), Error> {
    let Ok(before) = fs::read_link(record) else { return Ok(()) };
    replace(name, &before.to_string_lossy())?;
    pins::remove(record)
}

/// What giving defaults back came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// There was something to give back.
    pub changed: bool,
    /// A daemon that runs keeps what it changed.
    pub kept: bool,
}

/// Does so in every namespace that has one, but for what a daemon changed in one where a daemon lives, as `lives` says there; those
/// that are gone are forgotten. A namespace that was made meanwhile has inherited `name` without a record: it gets what the first
/// one has by then, unless a daemon keeps it, which gives that back when it stops.
///
/// # Errors
/// The first that failed, with its namespace; the others are restored.
pub fn restore_everywhere(name: &str, lives: impl Fn() -> bool + Sync) -> Result<Restored, Error> {
    let (mut result, mut restored) = (Ok(()), Restored::default());
    for (inode, holder, record) in records() {
        let kept = match find(inode) {
            Some(path) => within_if_there(&path, || match holder == Holder::Daemon && lives() {
                true => Ok(true),
                false => restore_from(&record, name).map(|()| false),
            }),
            None => pins::remove(&record).map(|()| false),
        };
        match kept {
            Ok(true) => restored.kept = true,
            Ok(false) => restored.changed = true,
            Err(error) => result = result.and(Err(error)),
        }
    }
    if !restored.kept {
        let before = within(Path::new(FIRST), default).unwrap_or_default();
        let before = if before.is_empty() || before == name { ALWAYS } else { &before };
        let inherited = restore_inherited(name, before);
        restored.changed |= matches!(inherited, Ok(true));
        result = result.and(inherited.map(drop));
    }
    result.map(|()| restored)
}

/// Gives `before` to each namespace that has `name` without a record; whether any had it.
fn restore_inherited(name: &str, before: &str) -> Result<bool, Error> {
    let recorded = || Holder::ALL.into_iter().any(is_changed);
    everywhere(|| if recorded() { Ok(false) } else { replace(name, before) })
}

/// Does `work` in each namespace that can be entered; whether it did anything, or the first error, with its namespace.
fn everywhere(work: impl Fn() -> Result<bool, Error> + Sync) -> Result<bool, Error> {
    let mut result = Ok(false);
    for path in reachable() {
        let done = within_if_there(&path, &work);
        result = result.and_then(|before| done.map(|done| before | done));
    }
    result
}

/// Whether there was something to replace.
fn replace(name: &str, by: &str) -> Result<bool, Error> {
    let is_so = default()? == name;
    if is_so { set(by).map(|()| true) } else { Ok(false) }
}

fn records() -> Vec<(u64, Holder, PathBuf)> {
    let entries = fs::read_dir(pins::existing()).into_iter().flatten().flatten();
    let record = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let name = name.to_str()?;
        let of = |one: Holder| Some((name.strip_prefix(one.prefix())?.parse().ok()?, one, entry.path()));
        Holder::ALL.into_iter().find_map(of)
    };
    entries.filter_map(record).collect()
}

/// A path by which to enter each namespace that can be entered.
fn reachable() -> Vec<PathBuf> {
    let mut known = std::collections::BTreeSet::new();
    let new = |path: &PathBuf| fs::metadata(path).is_ok_and(|namespace| known.insert(namespace.ino()));
    candidates().filter(new).collect()
}

/// A path by which to enter the namespace with that inode number.
fn find(inode: u64) -> Option<PathBuf> {
    candidates().find(|path| fs::metadata(path).is_ok_and(|namespace| namespace.ino() == inode))
}

/// Paths of namespaces, some more than once: this one's, the named ones', and each process's.
fn candidates() -> impl Iterator<Item = PathBuf> {
    let named = fs::read_dir("/run/netns").into_iter().flatten().flatten().map(|entry| entry.path());
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().map(|p| p.path().join("ns/net"));
    [PathBuf::from(HERE)].into_iter().chain(named).chain(processes)
}

fn within<T: Send>(namespace: &Path, work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    device::netns::run_in(namespace, work).map_err(|error| pin(&namespace.to_string_lossy(), error))?
}

/// The same, and nothing where the namespace has ended meanwhile, or a file that is to be one has none yet (EINVAL).
fn within_if_there(
    namespace: &Path,
    work: impl FnOnce() -> Result<bool, Error> + Send,
) -> Result<bool, Error> {
    match device::netns::run_in(namespace, work) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput) => Ok(false),
        entered => entered.map_err(|error| pin(&namespace.to_string_lossy(), error))?,
    }
}

fn set(name: &str) -> Result<(), Error> {
    fs::write(SYSCTL, name).map_err(|error| pin(SYSCTL, error))
}

fn pin(path: &str, error: io::Error) -> Error {
    Error::Pin { path: path.into(), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `ip netns add` leaves it for a moment, before it mounts the namespace there.
    #[test]
    fn a_file_that_is_no_namespace_yet_is_passed_over() {
        let file = format!("/run/netns/nawalab-{}-file", std::process::id());
        let made = rustix::process::geteuid().is_root()
            && fs::create_dir_all("/run/netns").and_then(|()| fs::write(&file, "")).is_ok();
        if !made {
            println!("SKIPPED: a_file_that_is_no_namespace_yet_is_passed_over: needs root");
            return;
        }
        let restored = restore_everywhere("nobody's default", || false);
        fs::remove_file(&file).unwrap();
        restored.unwrap();
    }
}
