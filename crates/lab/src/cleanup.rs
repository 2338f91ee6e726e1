//! Nothing of the lab stays: namespaces `nawalab-PID-*`, and folders of the same name in the temporary directory.
//!
//! What a process owns goes when its values are dropped, or when SIGINT or SIGTERM arrives. What a killed process left
//! is found by the number in the name and removed by the next run; what has no name of its own ([`at_end`]) goes at once.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tempfile::TempDir;

use crate::background::spawn;
use crate::command::{FOLDER, PREFIX, ip};
use crate::error::{Doing, Result};

/// Held while something that must be removed is made; taken for good when a signal ends the process.
static MAKING: Mutex<()> = Mutex::new(());

pub(crate) fn hold_off() -> MutexGuard<'static, ()> {
    MAKING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Processes that undo what no namespace or folder holds, by number. Each waits until its standard input ends, which it
/// does however this process ends.
static UNDO: Mutex<BTreeMap<u64, Child>> = Mutex::new(BTreeMap::new());

/// Something to be undone by a command when this is dropped, or when the process ends, even killed.
#[derive(Debug)]
pub(crate) struct AtEnd(u64);

/// Undoes by `words`, a program and its arguments. Call it before doing what is to be undone.
pub(crate) fn at_end(words: &[OsString]) -> Result<AtEnd> {
    let mut keeper = Command::new("sh");
    keeper.args(["-c", r#"cat; exec "$@""#, "sh"]).args(words);
    // A group of its own: what interrupts this process from a terminal must not end it.
    let keeper = keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let keeper = keeper.spawn().doing(|| "start `sh`".into())?;
    let mut undo = UNDO.lock().unwrap_or_else(PoisonError::into_inner);
    let number = undo.last_key_value().map_or(0, |(last, _)| last + 1);
    undo.insert(number, keeper);
    Ok(AtEnd(number))
}

impl Drop for AtEnd {
    fn drop(&mut self) {
        let keeper = UNDO.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
        keeper.into_iter().for_each(undo);
    }
}

fn undo_all() {
    let mut keepers = UNDO.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::take(&mut *keepers).into_values().rev().for_each(undo);
}

/// Ends its input and waits, whatever comes of it.
fn undo(mut keeper: Child) {
    drop(keeper.stdin.take());
    let _ = keeper.wait();
}

/// A folder that goes with this process. `purpose` is the end of its name.
pub(crate) fn folder(purpose: &str) -> Result<TempDir> {
    let _not_while_cleaning = hold_off();
    let prefix = format!("{PREFIX}{}-{purpose}", std::process::id());
    tempfile::Builder::new().prefix(&prefix).tempdir().doing(|| "make a temporary folder".into())
}

/// Does not return if a signal is ending the process: what failed then failed for that reason.
pub(crate) fn await_end_if_interrupted() {
    drop(hold_off());
}

/// Removes what dead processes left; from now on SIGINT and SIGTERM remove what this one made and end it with status
/// 128 + signal, as a shell reports it.
pub fn start() -> Result<()> {
    remove_orphans();
    let mut signals = Signals::new([SIGINT, SIGTERM]).doing(|| "watch for SIGINT and SIGTERM".into())?;
    let watch = move || {
        if let Some(signal) = signals.forever().next() {
            let _for_good = hold_off();
            remove_of(|owner| owner == std::process::id());
            undo_all();
            // Nobody may be reading any more.
            let _ = writeln!(std::io::stderr(), "interrupted; everything the lab made is removed");
            std::process::exit(128 + signal);
        }
    };
    spawn("signals", watch)?;
    Ok(())
}

/// Removes namespaces and temporary folders whose owner is dead; how many there were.
pub fn remove_orphans() -> usize {
    remove_of(|owner| !is_alive(owner))
}

/// A killed process that its parent has not waited for yet is dead (proc_pid_stat(5): states Z and X).
fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Kills what runs in the namespace `name`, then removes it. Anything that is not the lab's is left alone.
pub(crate) fn remove(name: &str) {
    if owner(name).is_none() {
        return;
    }
    for pid in pids(name) {
        let _ = kill_process(pid, Signal::KILL);
    }
    let _ = ip(&["netns", "del", name], "");
}

fn remove_of(mine: impl Fn(u32) -> bool) -> usize {
    let namespaces = entries(FOLDER.as_ref(), |name| owner(name).is_some_and(&mine));
    let folders = entries(&std::env::temp_dir(), |name| owner(name).is_some_and(&mine));
    namespaces.iter().for_each(|name| remove(name));
    for name in &folders {
        let _ = fs::remove_dir_all(std::env::temp_dir().join(name));
    }
    namespaces.len() + folders.len()
}

fn entries(folder: &Path, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| wanted(name)).collect()
}

/// The process that made `nawalab-PID-…`.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split_once('-')?.0.parse().ok()
}

/// What runs in a namespace, but for this process.
pub(crate) fn pids(namespace: &str) -> Vec<Pid> {
    let Ok(output) = Command::new("ip").args(["netns", "pids", namespace]).output() else {
        return Vec::new();
    };
    let own = std::process::id().cast_signed();
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers = text.lines().filter_map(|line| line.parse::<i32>().ok());
    numbers.filter(|&pid| pid != own).filter_map(Pid::from_raw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_process_is_dead_before_its_parent_has_waited_for_it() {
        assert!(is_alive(std::process::id()));
        let mut child = Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        assert!(is_alive(child.id()));
        child.kill().unwrap();
        let pid = Pid::from_child(&child);
        let ended = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        rustix::process::waitid(rustix::process::WaitId::Pid(pid), ended).unwrap();
        assert!(!is_alive(child.id()));
        child.wait().unwrap();
        assert!(!is_alive(child.id()));
    }

    #[test]
    fn what_was_done_is_undone_once_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("undone");
        let undo = at_end(&["mkdir".into(), path.clone().into()]).unwrap();
        assert!(!path.exists());
        drop(undo);
        assert!(path.exists());
        assert!(UNDO.lock().unwrap().is_empty());
    }

    #[test]
    fn only_the_labs_own_names_have_an_owner() {
        assert_eq!(owner("nawalab-17-1-a"), Some(17));
        assert_eq!(owner("nawalab-tests-a"), None);
        assert_eq!(owner("nawalab-17"), None);
        assert_eq!(owner("other-17-a"), None);
        assert_eq!(owner("my-nawalab-17-a"), None);
    }
}
