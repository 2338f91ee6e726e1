//! `nawa flight on` and `off`: registrations that outlive the command, pinned in the BPF file system.

use std::fs;
use std::path::PathBuf;

use bpf::struct_ops::{self, Registration};
use bpf::{Error, pins};

use super::{FSAT, Scheme, default, load, probe};

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
/// names are free, unless a daemon holds them too. Connections go on as they are. False if there was nothing to take back.
///
/// # Errors
/// What the kernel says.
pub fn off(suffix: &str) -> Result<bool, Error> {
    let kernel = probe()?;
    if FSAT.ends_with(suffix) {
        default::restore_everywhere(FSAT)?;
    }
    let mut pinned = pinned();
    pinned.retain(|path| path.to_string_lossy().ends_with(suffix));
    for path in &pinned {
        let registered = Registration::open(path, &kernel)?;
        pins::remove(path)?;
        registered.map_or(Ok(()), Registration::end)?;
    }
    Ok(!pinned.is_empty())
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
