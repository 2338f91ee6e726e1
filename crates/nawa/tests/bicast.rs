//! `[bicast]` in the daemon: interfaces that come and go, reloading, and what stays behind. What the programs do with
//! packets is tested in the crate `bicast`.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use common::{Daemon, Namespace, eventually, namespaces_or_skip, succeed};
use libbpf_rs::query::{MapInfoIter, ProgInfoIter};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use rustix::process::Signal;
use serde_json::Value;

/// A host with an interface `wlan0` that has an address, and its configuration file.
struct Host {
    namespace: Namespace,
    /// Holds the other ends of its cables.
    far: Namespace,
    folder: tempfile::TempDir,
}

impl Host {
    fn new() -> Host {
        let (namespace, far) = (Namespace::new(), Namespace::new());
        let host = Host { namespace, far, folder: tempfile::tempdir().expect("a temporary folder") };
        host.plug("wlan0", 1);
        host
    }

    fn plug(&self, name: &str, nth: u8) {
        let (here, there) = (format!("10.0.{nth}.1/24"), format!("10.0.{nth}.2/24"));
        Namespace::connect((&self.namespace, name, &here), (&self.far, name, &there));
    }

    fn write(&self, more: &str) -> PathBuf {
        let path = self.folder.path().join("nawa.toml");
        fs::write(&path, format!("[bicast]\ninterfaces = ['wlan0', 'wlan1']\n{more}")).expect("a file");
        path
    }

    fn bicast(&self) -> Value {
        self.namespace.status()["bicast"].clone()
    }

    #[track_caller]
    fn wait_for(&self, what: &str, right: impl Fn(&Value) -> bool) {
        eventually(what, || right(&self.bicast()).then_some(()));
    }
}

/// Ids of the programs that this kernel holds; other tests may hold some too, so only what is new counts.
fn programs() -> BTreeSet<u32> {
    let ours = ProgInfoIter::default().filter(|one| one.name.to_string_lossy() == "bicast_egress");
    ours.map(|one| one.id).collect()
}

fn start(host: &Host, file: &Path) -> Daemon {
    Daemon::start(&host.namespace, file)
}

#[test]
fn without_a_second_path_nothing_is_copied_and_status_says_so() {
    let name = "without_a_second_path_nothing_is_copied_and_status_says_so";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let host = Host::new();
    let _daemon = start(&host, &host.write(""));
    let state = host.bicast();
    assert_eq!(state["mode"], "adaptive");
    assert_eq!(state["idle_because"], "there are no two interfaces with addresses");
    assert_eq!(state["interfaces"][1]["state"], "absent");
    // It comes, it loses its address, it goes.
    host.plug("wlan1", 2);
    host.wait_for("the second interface is used", |state| state["idle_because"].is_null());
    assert_eq!(host.bicast()["interfaces"][1]["addresses"], serde_json::json!(["10.0.2.1"]));
    host.namespace.ip("address delete 10.0.2.1/24 dev wlan1");
    host.wait_for("no address", |state| state["interfaces"][1]["state"] == "no-address");
    host.namespace.ip("link delete wlan1");
    host.wait_for("no interface", |state| state["interfaces"][1]["state"] == "absent");
}

#[test]
fn a_reload_changes_the_mode() {
    let Some(_alone) = namespaces_or_skip("a_reload_changes_the_mode") else { return };
    let host = Host::new();
    host.plug("wlan1", 2);
    let daemon = start(&host, &host.write("mode = 'adaptive'\nbudget = '5%'\n"));
    assert_eq!((&host.bicast()["mode"], &host.bicast()["budget_percent"]), (&"adaptive".into(), &5.into()));
    host.write("mode = 'off'\n");
    daemon.signal(Signal::HUP);
    host.wait_for("the mode is off", |state| state["idle_because"] == "the mode is off");
}

#[test]
fn changes_of_rules_are_told_to_the_programs() {
    let name = "changes_of_rules_are_told_to_the_programs";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let host = Host::new();
    let daemon = start(&host, &host.write(""));
    // Other tests have such maps at the same time: this daemon's is one that it holds open.
    let open = fs::read_dir(format!("/proc/{}/fdinfo", daemon.id())).expect("it runs");
    let held: BTreeSet<u32> = open
        .filter_map(|one| fs::read_to_string(one.ok()?.path()).ok())
        .filter_map(|info| info.lines().find_map(|line| line.strip_prefix("map_id:")?.trim().parse().ok()))
        .collect();
    let map = MapInfoIter::default()
        .find(|one| held.contains(&one.id) && one.name.to_string_lossy() == "rules_changed");
    let map = MapHandle::from_map_id(map.expect("the programs' map").id).expect("it is there");
    let changed = || map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).expect("a map").expect("an element");
    let mut last = vec![0; 8];
    assert_eq!(changed(), last);
    for (program, change) in [
        ("ip", "xfrm policy add dir out src 10.0.1.1 dst 10.0.1.2 action block"),
        ("ip", "xfrm policy flush"),
        ("nft", "add table inet n { chain c { type filter hook output priority 0; oifname wlan1 drop; }; }"),
        ("nft", "flush ruleset"),
    ] {
        succeed(&mut host.namespace.command(program, change.split(' ')));
        eventually("the programs know", || (changed() != last).then_some(()));
        last = changed();
    }
}

#[test]
fn a_crash_of_bicast_leaves_nothing() {
    let Some(_alone) = namespaces_or_skip("a_crash_of_bicast_leaves_nothing") else { return };
    let host = Host::new();
    host.plug("wlan1", 2);
    let file = host.write("");
    for signal in [Signal::KILL, Signal::TERM] {
        let before = programs();
        let daemon = start(&host, &file);
        let new: BTreeSet<_> = programs().difference(&before).copied().collect();
        assert!(!new.is_empty());
        daemon.signal(signal);
        daemon.wait();
        // The kernel frees a program after the last packet that it may be looking at.
        eventually("its programs are gone", || programs().is_disjoint(&new).then_some(()));
    }
}
