//! Where what has to outlive a command is kept: a folder in the BPF file system of the first process's mounts, so that
//! commands in other mount namespaces (`ip netns exec` makes one) find it too.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::statfs;
use rustix::mount::{MountFlags, mount};

use crate::Error;

const BPFFS: &str = "/proc/1/root/sys/fs/bpf";
const BPFFS_MAGIC: u64 = 0xcafe_4a11;

/// The folder, made if it is not there. Where no BPF file system is mounted on /sys/fs/bpf, it mounts one, as systemd
/// does.
///
/// # Errors
/// If there is none and none can be mounted from here.
pub fn folder() -> Result<PathBuf, Error> {
    if !is_bpffs(Path::new(BPFFS)) {
        mount_bpffs().map_err(Error::NoBpffs)?;
    }
    let path = existing();
    fs::create_dir_all(&path).map_err(|error| Error::Pin { path: path.clone(), error })?;
    Ok(path)
}

/// The folder, which may not be there.
pub fn existing() -> PathBuf {
    Path::new(BPFFS).join("nawa")
}

/// Removes the pin `path`; that it is not there is no error.
///
/// # Errors
/// If it cannot be removed.
pub fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::Pin { path: path.to_owned(), error })
        }
        _ => Ok(()),
    }
}

fn is_bpffs(path: &Path) -> bool {
    statfs(path).is_ok_and(|fs| fs.f_type as u64 & 0xffff_ffff == BPFFS_MAGIC)
}

/// Only where the first process sees it: a mount elsewhere would end with this command.
fn mount_bpffs() -> io::Result<()> {
    if fs::read_link("/proc/self/ns/mnt")? != fs::read_link("/proc/1/ns/mnt")? {
        return Err(io::Error::other("this process has mounts of its own"));
    }
    mount("bpf", "/sys/fs/bpf", "bpf", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, None)?;
    tracing::debug!("mounted a BPF file system on /sys/fs/bpf");
    Ok(())
}
