//! The reverse-path filter of the namespace (RFC 3704), while IPv4's default route leads into the tunnel.
//!
//! A strict one drops what a path brings, since the route back to where it comes from leads into the tunnel. Where it cannot be written,
//! the path says that nothing comes in.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

/// Where `rp_filter` is of each interface, of those to come, and of all. The greater of an interface's own and that of all counts.
const FILTERS: &str = "/proc/sys/net/ipv4/conf";
const ALL: &str = "/proc/sys/net/ipv4/conf/all/rp_filter";
/// Of the values 0 (off), 1 (strict) and 2 (loose).
const STRICT: &str = "1";
const LOOSE: &str = "2";
/// What the filter was, for after a kill: a symbolic link for each network namespace, named after its inode, whose target is the value.
const KEPT: &str = "/run/nawa";

/// What the filter of all was before it was made loose.
#[derive(Debug, Default)]
pub struct ReversePath(Option<String>);

impl ReversePath {
    /// Makes the filter loose where it is strict, for an interface that is there or those to come; whether it did.
    pub fn loosen(&mut self) -> bool {
        let all = read(Path::new(ALL)).filter(|all| all != LOOSE);
        let each = || fs::read_dir(FILTERS).into_iter().flatten().flatten();
        let strict = || each().any(|one| read(&one.path().join("rp_filter")).as_deref() == Some(STRICT));
        let Some(before) = all.filter(|_| strict()) else { return false };
        let before = self.0.get_or_insert(before);
        if let Some(kept) = kept() {
            let _ = fs::remove_file(&kept);
            let _ = fs::create_dir_all(KEPT).and_then(|()| symlink(before, kept));
        }
        fs::write(ALL, LOOSE).is_ok()
    }

    /// Whether a value is kept for this namespace.
    pub fn is_kept() -> bool {
        kept().is_some_and(|kept| kept.is_symlink())
    }

    /// Whether it is loose for one that runs here, or was killed.
    pub fn is_loose() -> bool {
        Self::is_kept() && read(Path::new(ALL)).as_deref() == Some(LOOSE)
    }

    /// Puts the filter back if a daemon was `killed` here. Without that, what is kept is of a namespace that had this inode before, and is
    /// only removed.
    pub fn recover(killed: bool) {
        let before = kept().and_then(|kept| fs::read_link(kept).ok()?.into_os_string().into_string().ok());
        let _ = kept().map(fs::remove_file);
        Self(before.filter(|before| killed && ["0", STRICT].contains(&before.as_str()))).put_back();
    }

    /// Makes it what it was. What somebody else has written since stays.
    pub fn put_back(&mut self) {
        let Some(before) = self.0.take() else { return };
        if read(Path::new(ALL)).as_deref() == Some(LOOSE) {
            let _ = fs::write(ALL, before);
        }
        let _ = kept().map(fs::remove_file);
    }
}

impl Drop for ReversePath {
    fn drop(&mut self) {
        self.put_back();
    }
}

fn kept() -> Option<PathBuf> {
    let namespace = fs::metadata("/proc/thread-self/ns/net").ok()?.ino();
    Some(Path::new(KEPT).join(format!("rp_filter-{namespace}")))
}

fn read(of: &Path) -> Option<String> {
    Some(fs::read_to_string(of).ok()?.trim().to_owned())
}
