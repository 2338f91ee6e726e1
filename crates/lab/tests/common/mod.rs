//! What the namespace tests share.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// True, after saying so by name, where the test `name` cannot run.
pub fn skip(name: &str) -> bool {
    let reason = if !rustix::process::geteuid().is_root() {
        "needs root"
    } else if std::fs::File::open("/dev/net/tun").is_err() {
        "needs /dev/net/tun"
    } else {
        return false;
    };
    println!("SKIPPED: {name}: {reason}");
    true
}

/// Namespace tests run one at a time.
pub fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names of `folder`'s entries that belong to the process `owner`.
#[allow(dead_code, reason = "not every test makes namespaces of its own")]
pub fn left_in(folder: &str, owner: u32) -> Vec<String> {
    let prefix = format!("nawalab-{owner}-");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&prefix)).collect()
}

/// As [`skip`], also where no guest can be booted.
#[allow(dead_code, reason = "not every test boots one")]
pub fn skip_without_guests(name: &str) -> bool {
    if skip(name) {
        return true;
    }
    match lab::guest::check(&["tcp_vegas"]) {
        Ok(()) => false,
        Err(error) => {
            println!("SKIPPED: {name}: {error}: make guest");
            true
        }
    }
}

/// As [`skip`], for what needs the 802.11 medium in real time, where the kernel cannot have it.
#[allow(dead_code, reason = "not every test has a medium")]
pub fn skip_without_macvtap(name: &str) -> bool {
    let _alone = alone();
    let stations = link::dcf::Position::chain(1, 90.0);
    match lab::dcf::Medium::build(link::dcf::DcfConfig::new(link::dcf::Phy::g54(), stations), 1) {
        Err(error @ lab::Error::NoMacvtap { .. }) => {
            println!("SKIPPED: {name}: {error}");
            true
        }
        _ => false,
    }
}
