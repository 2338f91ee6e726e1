//! Where what has to outlive a command is kept: a folder in the BPF file system on /sys/fs/bpf, as the first process
//! sees it. A command may have mounts of its own (`ip netns exec` makes some, with a /sys that has no such file
//! system), and what is pinned in those would end with it and be found by nobody.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::statfs;
use rustix::mount::{MountFlags, mount};
use rustix::process::Pid;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::{Error, ffi};

const BPFFS: &str = "sys/fs/bpf";
const BPFFS_MAGIC: u64 = 0xcafe_4a11;

/// The folder, made if it is not there. Where no BPF file system is mounted on /sys/fs/bpf, it mounts one, as systemd
/// does.
///
/// # Errors
/// If there is none and none can be mounted.
pub fn folder() -> Result<PathBuf, Error> {
    let first = first_process();
    if !is_bpffs(&root(first).join(BPFFS)) {
        mount_bpffs(first).map_err(Error::NoBpffs)?;
    }
    let path = existing();
    fs::create_dir_all(&path).map_err(|error| Error::Pin { path: path.clone(), error })?;
    Ok(path)
}

/// The folder, which may not be there.
pub fn existing() -> PathBuf {
    /// The root as it was found first: a daemon in the background loses the ancestors that saw it.
    static FOUND: OnceLock<Option<File>> = OnceLock::new();
    let found = FOUND.get_or_init(|| File::open(root(first_process())).ok());
    let root = found.as_ref().map_or_else(
        || root(first_process()),
        |file| PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())),
    );
    root.join(BPFFS).join("nawa")
}

/// Whether something is pinned there as `name`.
pub fn has(name: &str) -> bool {
    existing().join(name).exists()
}

/// The first of this process's ancestors whose mounts it may see: process 1 but for containers and sandboxes.
fn first_process() -> i32 {
    let parent = |pid: &i32| parent(*pid).filter(|parent| *parent > 0);
    let line: Vec<_> = std::iter::successors(Some(std::process::id() as i32), parent).collect();
    let sees = |pid: &&i32| fs::metadata(root(**pid)).is_ok() && mounts(**pid).is_ok();
    line.iter().rev().find(sees).copied().unwrap_or(Pid::INIT.as_raw_nonzero().get())
}

/// As the process's status says.
fn parent(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

fn root(pid: i32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/root"))
}

fn mounts(pid: i32) -> io::Result<File> {
    File::open(format!("/proc/{pid}/ns/mnt"))
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

/// On a thread of its own, which moves to where the mount has to be.
fn mount_bpffs(process: i32) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let there = move || -> io::Result<()> {
        let mounts = mounts(process)?;
        ffi::unshare_files()?;
        move_into_link_name_space(mounts.as_fd(), Some(LinkNameSpaceType::Mount))?;
        Ok(mount("bpf", Path::new("/").join(BPFFS), "bpf", flags, None)?)
    };
    std::thread::scope(|scope| scope.spawn(there).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    tracing::debug!("mounted a BPF file system on /sys/fs/bpf");
    Ok(())
}
