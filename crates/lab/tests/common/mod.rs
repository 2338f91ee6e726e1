//! What the namespace tests share.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::fmt::Display;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lab::experiment::Experiment;
use lab::{RunOptions, run_experiment};
use serde_json::Value;

/// Held by the one namespace test that runs at a time.
type Alone = MutexGuard<'static, ()>;

/// `None`, after saying so by name, where the test `name` cannot run.
pub fn alone(name: &str) -> Option<Alone> {
    static LOCK: Mutex<()> = Mutex::new(());
    if !rustix::process::geteuid().is_root() {
        return skip(name, "needs root");
    }
    if std::fs::File::open("/dev/net/tun").is_err() {
        return skip(name, "needs /dev/net/tun");
    }
    Some(LOCK.lock().unwrap_or_else(PoisonError::into_inner))
}

/// As [`alone`], also where no guest can be booted.
pub fn alone_with_guests(name: &str) -> Option<Alone> {
    let alone = alone(name)?;
    match lab::guest::check(&["tcp_vegas"]) {
        Ok(()) => Some(alone),
        Err(error) => skip(name, format!("{error}: make guest")),
    }
}

/// As [`alone`], also where the kernel cannot have the 802.11 medium in real time.
pub fn alone_with_macvtap(name: &str) -> Option<Alone> {
    let alone = alone(name)?;
    let stations = link::dcf::Position::chain(1, 90.0);
    match lab::dcf::Medium::build(link::dcf::DcfConfig::new(link::dcf::Phy::g54(), stations), 1) {
        Err(error @ lab::Error::NoMacvtap { .. }) => skip(name, error),
        _ => Some(alone),
    }
}

/// Says that the test `name` cannot run, and why.
pub fn skip<T>(name: &str, reason: impl Display) -> Option<T> {
    println!("SKIPPED: {name}: {reason}");
    None
}

/// Runs `experiment`; what it reports.
pub fn report(experiment: &Experiment, options: RunOptions) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.json");
    run_experiment(experiment, &RunOptions { json: Some(file.clone()), ..options }).unwrap();
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

/// Names of `folder`'s entries that belong to the process `owner`.
pub fn left_in(folder: &str, owner: u32) -> Vec<String> {
    let prefix = format!("nawalab-{owner}-");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&prefix)).collect()
}
