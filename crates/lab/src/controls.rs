//! Congestion controls that the kernel has only as long as somebody provides them: `fsat` and `fsat_paper`, on CUBIC
//! and, by names of their own, on Reno.
//!
//! The lab has them loaded as a user would, by `nawa flight on`, and taken off again by `nawa flight off` if it was the
//! one that put them on, even if it is killed. They are the kernel's, not a namespace's, so whoever needs them holds a lock.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use crate::cleanup::{self, AtEnd};
use crate::command::complete;
use crate::error::{Doing, Error, Result};
use crate::experiment::{Case, Experiment};
use crate::workload::Need;

/// What `nawa flight on` provides.
struct Provided {
    names: [&'static str; 2],
    base: &'static str,
    suffix: &'static str,
}

const PROVIDED: [Provided; 2] = [
    Provided { names: ["fsat", "fsat_paper"], base: "cubic", suffix: "" },
    Provided { names: ["fsat_reno", "fsat_paper_reno"], base: "reno", suffix: "_reno" },
];

/// Held by whoever needs them.
const LOCK: &str = "/run/lock/nawa-fsat.lock";

/// Keeps the congestion controls that an experiment needs; dropping it takes off what it put on.
#[derive(Debug)]
pub(crate) struct Controls {
    // Dropped in this order.
    _loaded: Vec<AtEnd>,
    _lock: Option<File>,
}

/// Provides what the cases of `experiment` need, and leaves out those cases that need what the kernel does not have then,
/// with a note each.
pub(crate) fn provide(experiment: &Experiment, nawa: &Path) -> Result<(Experiment, Controls)> {
    let (mut experiment, notes) = without_missing(experiment.clone());
    experiment.notes.splice(0..0, notes);
    let needed: BTreeSet<&str> = experiment.cases.iter().flat_map(needs).collect();
    let mut controls = Controls { _loaded: Vec::new(), _lock: None };
    let mut reason = None;
    let wanted = |set: &&Provided| set.names.iter().any(|name| needed.contains(name));
    for set in PROVIDED.iter().filter(wanted) {
        if controls._lock.is_none() {
            controls._lock = Some(lock()?);
        }
        if !set.names.iter().all(|&name| available(name)) {
            match load(nawa, set) {
                Ok(loaded) => controls._loaded.push(loaded),
                Err(error) => reason = Some(error),
            }
        }
    }
    for name in needed.into_iter().filter(|name| !available(name)) {
        experiment.cases.retain(|case| !needs(case).any(|needed| needed == name));
        experiment.notes.insert(0, missing(name, reason.as_ref()));
    }
    Ok((experiment, controls))
}

/// The congestion controls of the running kernel that a case names by itself.
fn needs(case: &Case) -> impl Iterator<Item = &'static str> {
    let control = |need| if let Need::CongestionControl(name) = need { Some(name) } else { None };
    case.workload.needs().into_iter().filter_map(control)
}

/// Leaves out the cases that need something else which is not there; a note for each such thing.
pub(crate) fn without_missing(mut experiment: Experiment) -> (Experiment, Vec<String>) {
    let mut known = BTreeMap::new();
    experiment.cases.retain(|case| {
        let needs = case.workload.needs().into_iter();
        let missing = needs.filter_map(|need| {
            let Need::Other(name, check) = need else { return None };
            known.entry(name).or_insert_with(|| check().err()).as_ref().map(drop)
        });
        missing.count() == 0
    });
    let note = |(name, reason): (String, Option<Error>)| Some(format!("{name}: not measured, {}", reason?));
    let notes = known.into_iter().filter_map(note).collect();
    (experiment, notes)
}

/// Whether a socket can have it. Asked so, the kernel loads its module; `tcp_available_congestion_control` names only what is loaded.
fn available(name: &str) -> bool {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    socket.and_then(|socket| sockopt::set_tcp_congestion(&socket, name)).is_ok()
}

fn missing(name: &str, reason: Option<&Error>) -> String {
    let provided = PROVIDED.iter().any(|set| set.names.contains(&name));
    let why = reason.filter(|_| provided).map(|error| format!(": {error}")).unwrap_or_default();
    format!("{name}: not measured, {}{why}", Error::NoCongestionControl(name.into()))
}

/// Waits until nobody else needs them.
pub(crate) fn lock() -> Result<File> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(LOCK);
    let file = file.doing(|| format!("open {LOCK}"))?;
    if file.try_lock().is_err() {
        println!("waiting for whoever holds {LOCK}, because fsat is the whole kernel's");
        file.lock().doing(|| format!("lock {LOCK}"))?;
    }
    Ok(file)
}

fn load(nawa: &Path, set: &Provided) -> Result<AtEnd> {
    let nawa: PathBuf = nawa.into();
    let off = ["flight", "off", "--suffix", set.suffix].map(Into::into);
    let undo = cleanup::at_end(&[vec![nawa.clone().into()], off.into()].concat())?;
    let on = ["flight", "on", "--base", set.base, "--suffix", set.suffix];
    complete("nawa flight on", Command::new(&nawa).args(on), "").map(|_| undo)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::find;
    use crate::experiment::RunOptions;

    #[test]
    fn a_case_needs_the_controls_of_all_its_flows() {
        let experiment = find("flight-fairness", &RunOptions::default()).unwrap();
        let mixed = experiment.cases.iter().find(|case| case.key[0].1 == "fsat" && case.key[1].1 == "bbr");
        assert_eq!(needs(mixed.unwrap()).collect::<BTreeSet<_>>(), BTreeSet::from(["bbr", "fsat"]));
    }

    #[test]
    fn what_is_missing_is_named_with_its_reason() {
        let reason = Error::program("nawa flight on", "no struct_ops");
        assert_eq!(
            missing("fsat", Some(&reason)),
            "fsat: not measured, the kernel has no congestion control `fsat`: `nawa flight on` failed: no struct_ops"
        );
        assert!(!missing("vegas", Some(&reason)).contains("struct_ops"));
    }

    #[test]
    fn an_experiment_without_a_missing_control_stays_as_it_is() {
        let experiment = find("demo", &RunOptions::default()).unwrap();
        let (provided, _controls) = provide(&experiment, Path::new("no-such-nawa")).unwrap();
        assert_eq!(provided.cases.len(), experiment.cases.len());
        assert_eq!(provided.notes, experiment.notes);
    }
}
