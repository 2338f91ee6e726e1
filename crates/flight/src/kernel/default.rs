//! The default congestion control of network namespaces. What one had before is kept beside the pins, as a symbolic
//! link `default-INODE` that points to its name, so that `off`, or the next `on` after a crash, knows it.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use bpf::{Error, pins};

const SYSCTL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
const HERE: &str = "/proc/thread-self/ns/net";
const RECORD: &str = "default-";

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
pub fn namespace() -> Result<u32, Error> {
    let inode = fs::metadata(HERE).map_err(|error| pin(HERE, error))?.ino();
    Ok(inode as u32)
}

/// Makes `name` this namespace's default, and remembers what was. That it is already has it taken up anew: the
/// namespace then gets what is registered by that name now.
///
/// # Errors
/// If it cannot be remembered or set; then nothing has changed.
pub fn take(name: &str) -> Result<(), Error> {
    let (before, record) = (default()?, record(namespace()?));
    if before != name {
        pins::folder()?;
        pins::remove(&record)?;
        symlink(&before, &record).map_err(|error| Error::Pin { path: record.clone(), error })?;
    }
    set(name)
}

/// Takes `name` up anew where it is the default.
///
/// # Errors
/// If it cannot be read or set.
pub fn refresh(name: &str) -> Result<(), Error> {
    if default()? == name { set(name) } else { Ok(()) }
}

/// Gives this namespace what it had before [`take`], unless somebody has changed it since.
///
/// # Errors
/// If it cannot be set.
pub fn restore(name: &str) -> Result<(), Error> {
    restore_from(&record(namespace()?), name)
}

fn restore_from(record: &Path, name: &str) -> Result<(), Error> {
    let Ok(before) = fs::read_link(record) else { return Ok(()) };
    if default()? == name {
        set(&before.to_string_lossy())?;
    }
    pins::remove(record)
}

/// Does so in every namespace that has one; those that are gone are forgotten.
///
/// # Errors
/// The first that failed; the others are restored.
pub fn restore_everywhere(name: &str) -> Result<(), Error> {
    let mut result = Ok(());
    for (inode, record) in records() {
        let restored = match find(inode) {
            Some(path) => within(&path, || restore_from(&record, name)),
            None => pins::remove(&record),
        };
        result = result.and(restored);
    }
    result
}

fn records() -> Vec<(u64, PathBuf)> {
    let entries = fs::read_dir(pins::existing()).into_iter().flatten().flatten();
    let record = |entry: fs::DirEntry| {
        let inode = entry.file_name().to_str()?.strip_prefix(RECORD)?.parse().ok()?;
        Some((inode, entry.path()))
    };
    entries.filter_map(record).collect()
}

/// A path by which to enter the namespace with that inode number: this one's, a named one's, or some process's.
fn find(inode: u64) -> Option<PathBuf> {
    let named = fs::read_dir("/run/netns").into_iter().flatten().flatten().map(|entry| entry.path());
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().map(|p| p.path().join("ns/net"));
    let mut candidates = [PathBuf::from(HERE)].into_iter().chain(named).chain(processes);
    candidates.find(|path| fs::metadata(path).is_ok_and(|namespace| namespace.ino() == inode))
}

fn within(namespace: &Path, work: impl FnOnce() -> Result<(), Error> + Send) -> Result<(), Error> {
    device::netns::run_in(namespace, work).map_err(|error| pin(&namespace.to_string_lossy(), error))?
}

fn record(namespace: u32) -> PathBuf {
    pins::existing().join(format!("{RECORD}{namespace}"))
}

fn set(name: &str) -> Result<(), Error> {
    fs::write(SYSCTL, name).map_err(|error| pin(SYSCTL, error))
}

fn pin(path: &str, error: io::Error) -> Error {
    Error::Pin { path: path.into(), error }
}
