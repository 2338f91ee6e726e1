//! The reverse-path filter of the namespace (RFC 3704), while IPv4's default route leads into the tunnel.
//!
//! A strict one drops what a path brings, since the route back to where it comes from leads into the tunnel. Where it cannot be written,
//! the path says that nothing comes in.

use std::fs;
use std::path::Path;

/// Where `rp_filter` is of each interface, of those to come, and of all. The greater of an interface's own and that of all counts.
const FILTERS: &str = "/proc/sys/net/ipv4/conf";
const ALL: &str = "/proc/sys/net/ipv4/conf/all/rp_filter";
/// Of the values 0 (off), 1 (strict) and 2 (loose).
const STRICT: &str = "1";
const LOOSE: &str = "2";

/// What the filter of all was before it was made loose.
#[derive(Debug, Default)]
pub struct ReversePath(Option<String>);

impl ReversePath {
    /// Makes the filter loose where it is strict, for an interface that is there or those to come; whether it did.
    pub fn loosen(&mut self) -> bool {
        let all = read(Path::new(ALL)).filter(|all| all != LOOSE);
        let each = || fs::read_dir(FILTERS).into_iter().flatten().flatten();
        let strict = || each().any(|one| read(&one.path().join("rp_filter")).as_deref() == Some(STRICT));
        let Some(before) = all.filter(|_| strict() && fs::write(ALL, LOOSE).is_ok()) else { return false };
        self.0.get_or_insert(before);
        true
    }

    /// Makes it what it was. What somebody else has written since stays.
    pub fn put_back(&mut self) {
        if let Some(before) = self.0.take().filter(|_| read(Path::new(ALL)).as_deref() == Some(LOOSE)) {
            let _ = fs::write(ALL, before);
        }
    }
}

impl Drop for ReversePath {
    fn drop(&mut self) {
        self.put_back();
    }
}

fn read(of: &Path) -> Option<String> {
    Some(fs::read_to_string(of).ok()?.trim().to_owned())
}
