//! `nawa flight on` and `off`: registrations that outlive the command, pinned in the BPF file system.

use std::fs;
use std::path::{Path, PathBuf};

use bpf::probe::TcpStructOps;
use bpf::struct_ops::{self, Registration};
use bpf::{Error, pins};

use super::default::{self, Restored};
use super::{FSAT, Scheme, load, probe};

/// Registers `schemes` until [`off`]. What is registered by their names is replaced, for new connections.
///
/// # Errors
/// What the kernel lacks or says; if it refuses a program, nothing has changed.
pub fn on(schemes: &[Scheme]) -> Result<(), Error> {
    let (kernel, folder) = (probe()?, pins::folder()?);
    let loaded = schemes.iter().map(|scheme| load(scheme, &kernel)).collect::<Result<Vec<_>, _>>()?;
    for (scheme, loaded) in schemes.iter().zip(loaded) {
        let registered = loaded.register(struct_ops::find(&scheme.name, &kernel)?)?;
        let path = folder.join(&scheme.name);
        pins::remove(&path)?;
        registered.pin(&path)?;
    }
    default::refresh_everywhere(FSAT)
}

/// Takes all back that [`on`] did under names that end in `suffix`: namespaces get the default that they had, and the
/// names are free, unless a daemon holds them too. Connections go on as they are. `lives` says of the calling thread's namespace
/// whether a daemon runs there, which keeps its default.
///
/// # Errors
/// The first thing that the kernel says; what else there is is taken back.
pub fn off(suffix: &str, lives: impl Fn() -> bool + Sync) -> Result<Restored, Error> {
    let kernel = probe()?;
    let mut result = match FSAT.ends_with(suffix) {
        true => default::restore_everywhere(FSAT, lives),
        false => Ok(Restored::default()),
    };
    for path in pinned().iter().filter(|path| path.to_string_lossy().ends_with(suffix)) {
        let taken = take_back(path, &kernel);
        result = result.and_then(|restored| taken.map(|()| Restored { changed: true, ..restored }));
    }
    result
}

fn take_back(path: &Path, kernel: &TcpStructOps) -> Result<(), Error> {
    let registered = Registration::open(path, kernel)?;
    pins::remove(path)?;
    registered.map_or(Ok(()), Registration::end)
}

/// Lets go of what has been registered as `name` until now; what [`on`] holds too stays.
///
/// # Errors
/// What the kernel says.
pub fn let_go(name: &str, registered: Registration) -> Result<(), Error> {
    if !pins::has(name) {
        return registered.end();
    }
    // Without links `on`'s pin still has what was replaced, which is not registered any more.
    if let Some(now @ Registration::Map(_)) = struct_ops::find(name, &probe()?)? {
        let path = pins::existing().join(name);
        pins::remove(&path)?;
        now.pin(&path)?;
    }
    Ok(())
}

/// What [`on`] pinned.
pub fn pinned() -> Vec<PathBuf> {
    let entries = fs::read_dir(pins::existing()).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries
        .filter(|entry| entry.file_type().is_ok_and(|ty| !ty.is_symlink()))
        .map(|e| e.path())
        .collect();
    paths.sort();
    paths
}
