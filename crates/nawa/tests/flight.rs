//! `nawa flight` and `[flight]`: what is registered, whose default it is, and what is left afterwards.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

use common::flight::counter_here;
use common::{
    Daemon, Namespace, Node, eventually, namespaces_or_skip, output, skip, stderr, stdout, succeed,
};
use flight::kernel;
use rustix::net::sockopt::set_tcp_congestion;
use rustix::process::Signal;

/// Held while `fsat` is registered or has to be absent.
struct Alone {
    _namespaces: std::sync::MutexGuard<'static, ()>,
    _registration: fs::File,
}

fn alone_or_skip(name: &str) -> Option<Alone> {
    let namespaces = namespaces_or_skip(name)?;
    if let Err(lack) = kernel::probe() {
        skip(name, &lack.to_string());
        return None;
    }
    let registration = kernel::lock::registration().expect("the lock can be taken");
    // What a killed run of something else left.
    kernel::off("", || false).expect("nothing stays registered");
    Some(Alone { _namespaces: namespaces, _registration: registration })
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = kernel::off("", || false);
    }
}

fn available() -> Vec<String> {
    kernel::default::available().expect("it can be read")
}

fn is_registered() -> bool {
    ["fsat", "fsat_paper"].iter().all(|name| available().iter().any(|one| one == name))
}

fn default_of(namespace: &Namespace) -> String {
    namespace.within(kernel::default::default).expect("it can be read")
}

/// A connection within `namespace`, both ends.
fn connection(namespace: &Namespace) -> (TcpStream, TcpStream) {
    namespace.within(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        (near, listener.accept().expect("a connection").0)
    })
}

fn congestion_control(stream: &TcpStream) -> String {
    rustix::net::sockopt::tcp_congestion(stream.as_fd()).expect("it can be asked")
}

/// Sends `bytes` over it; the other end has them all when this returns.
fn exchange((near, far): &mut (TcpStream, TcpStream), bytes: usize) {
    let data = vec![7; bytes];
    std::thread::scope(|scope| {
        scope.spawn(|| near.write_all(&data).expect("it can be sent"));
        far.read_exact(&mut vec![0; bytes]).expect("it arrives");
    });
}

#[test]
fn on_and_off_and_on() {
    let Some(_alone) = alone_or_skip("on_and_off_and_on") else { return };
    let namespace = Namespace::new();
    for _ in 0..2 {
        assert!(!is_registered());
        let off = output(&mut namespace.nawa(["flight", "off"]));
        assert_eq!(off.status.code(), Some(1));
        assert!(stderr(&off).starts_with("nawa: there is nothing to switch off; "), "{}", stderr(&off));
        succeed(&mut namespace.nawa(["flight", "on"]));
        assert!(is_registered());
        succeed(&mut namespace.nawa(["flight", "off"]));
    }
    assert!(!is_registered());
}

#[test]
fn both_bases_are_registered_at_the_same_time_by_a_suffix() {
    let Some(_alone) = alone_or_skip("both_bases_are_registered_at_the_same_time_by_a_suffix") else {
        return;
    };
    let namespace = Namespace::new();
    let on_reno =
        || ["fsat_reno", "fsat_paper_reno"].iter().all(|name| available().iter().any(|one| one == name));
    succeed(&mut namespace.nawa(["flight", "on"]));
    succeed(&mut namespace.nawa(["flight", "on", "--base", "reno", "--suffix", "_reno"]));
    assert!(is_registered() && on_reno());
    succeed(&mut namespace.nawa(["flight", "off", "--suffix", "_reno"]));
    assert!(is_registered() && !on_reno());
    let long = output(&mut namespace.nawa(["flight", "on", "--suffix", "_cubic"]));
    assert_eq!(long.status.code(), Some(2), "no name of more than 15 bytes");
}

#[test]
fn the_default_that_was_comes_back() {
    let Some(_alone) = alone_or_skip("the_default_that_was_comes_back") else { return };
    let (namespace, other) = (Namespace::new(), Namespace::new());
    namespace.within(|| fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "reno")).expect("reno");
    let before = default_of(&other);
    // Twice: the second must not take `fsat` for what was.
    for _ in 0..2 {
        succeed(&mut namespace.nawa(["flight", "on", "--default"]));
        assert_eq!((default_of(&namespace).as_str(), default_of(&other)), ("fsat", before.clone()));
    }
    let begun = connection(&namespace);
    assert_eq!(congestion_control(&begun.0), "fsat");
    // From another namespace: it finds the one that has to be restored.
    succeed(&mut other.nawa(["flight", "off"]));
    assert_eq!((default_of(&namespace).as_str(), default_of(&other)), ("reno", before));
    assert_eq!(congestion_control(&connection(&namespace).0), "reno");
}

#[test]
fn what_somebody_set_since_stays() {
    let Some(_alone) = alone_or_skip("what_somebody_set_since_stays") else { return };
    let namespace = Namespace::new();
    succeed(&mut namespace.nawa(["flight", "on", "--default"]));
    namespace.within(|| fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "reno")).expect("reno");
    succeed(&mut namespace.nawa(["flight", "off"]));
    assert_eq!(default_of(&namespace), "reno");
}

#[test]
fn a_namespace_that_inherited_it_gets_the_default_back() {
    let Some(_alone) = alone_or_skip("a_namespace_that_inherited_it_gets_the_default_back") else { return };
    let (namespace, other) = (Namespace::new(), Namespace::new());
    succeed(&mut namespace.nawa(["flight", "on"]));
    // As a namespace has it that was made while the first had it: without a record.
    other.within(|| fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "fsat")).expect("fsat");
    succeed(&mut namespace.nawa(["flight", "off"]));
    assert_ne!(default_of(&other), "fsat");
}

#[test]
fn what_inherited_the_daemons_default_gets_the_default_back() {
    let Some(_alone) = alone_or_skip("what_inherited_the_daemons_default_gets_the_default_back") else {
        return;
    };
    let (namespace, other, third, node) = (Namespace::new(), Namespace::new(), Namespace::new(), Node::new());
    // As a namespace has it that was made while the first had it: without a record.
    let inherit =
        || other.within(|| fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "fsat")).expect("fsat");
    let stop = |daemon: Daemon| {
        daemon.signal(Signal::TERM);
        assert_eq!(daemon.wait(), Some(0));
    };
    let provide = |default: bool| node.write(&format!("[flight]\ndefault = {default}\n"));
    let _of_third = Daemon::start(&third, &provide(true));
    let daemon = Daemon::start(&namespace, &provide(true));
    inherit();
    stop(daemon);
    assert_ne!(default_of(&other), "fsat", "it has stopped");
    let mut daemon = Daemon::start(&namespace, &provide(true));
    inherit();
    provide(false);
    daemon.signal(Signal::HUP);
    daemon.read_until("the file is taken up");
    assert_ne!(default_of(&other), "fsat", "it is the default no more");
    inherit();
    stop(daemon);
    assert_eq!(default_of(&other), "fsat", "nothing that this daemon did");
    let daemon = Daemon::start(&namespace, &provide(true));
    daemon.signal(Signal::KILL);
    daemon.wait();
    output(&mut namespace.nawa(["down"]));
    assert_ne!(default_of(&other), "fsat", "it has crashed");
    assert_eq!(default_of(&third), "fsat", "which has a daemon of its own");
    let daemon = Daemon::start(&namespace, &provide(true));
    succeed(&mut third.nawa(["flight", "on"]));
    inherit();
    stop(daemon);
    assert_eq!(default_of(&other), "fsat", "it is `on`'s as well");
}

#[test]
fn a_daemon_does_not_undo_what_on_did() {
    let Some(_alone) = alone_or_skip("a_daemon_does_not_undo_what_on_did") else { return };
    let (namespace, node) = (Namespace::new(), Node::new());
    let before = default_of(&namespace);
    succeed(&mut namespace.nawa(["flight", "on", "--default"]));
    for default in [false, true] {
        let file = node.write(&format!("[flight]\ndefault = {default}\n"));
        let daemon = Daemon::start(&namespace, &file);
        assert_eq!(default_of(&namespace), "fsat");
        daemon.signal(Signal::TERM);
        assert_eq!(daemon.wait(), Some(0));
        assert_eq!(default_of(&namespace), "fsat");
    }
    succeed(&mut namespace.nawa(["flight", "off"]));
    assert_eq!(default_of(&namespace), before);
}

#[test]
fn connections_outlive_upgrade_and_off() {
    let Some(_alone) = alone_or_skip("connections_outlive_upgrade_and_off") else { return };
    let namespace = Namespace::new();
    succeed(&mut namespace.nawa(["flight", "on", "--base", "reno", "--default"]));
    let mut old = connection(&namespace);
    exchange(&mut old, 1 << 20);
    succeed(&mut namespace.nawa(["flight", "on", "--base", "cubic"]));
    let mut new = connection(&namespace);
    exchange(&mut old, 1 << 20);
    exchange(&mut new, 1 << 20);
    let bases = |streams: &[&TcpStream]| -> Vec<_> {
        let known = shown(&namespace);
        let own = |stream: &&TcpStream| {
            let local = stream.local_addr().expect("an address").to_string();
            let line = known.iter().find(|line| line["local"] == local.as_str()).expect("it is shown");
            line["base"].as_str().expect("a word").to_owned()
        };
        streams.iter().map(own).collect()
    };
    assert_eq!(bases(&[&old.0, &new.0]), ["reno", "cubic"]);
    succeed(&mut namespace.nawa(["flight", "off"]));
    exchange(&mut old, 1 << 20);
    exchange(&mut new, 1 << 20);
    assert_eq!((congestion_control(&old.0).as_str(), congestion_control(&new.0).as_str()), ("fsat", "fsat"));
    assert_eq!(bases(&[&old.0, &new.0]), ["reno", "cubic"]);
}

#[test]
fn what_replaces_it_is_for_all_namespaces() {
    let Some(_alone) = alone_or_skip("what_replaces_it_is_for_all_namespaces") else { return };
    let (namespace, other, node) = (Namespace::new(), Namespace::new(), Node::new());
    succeed(&mut namespace.nawa(["flight", "on", "--base", "reno"]));
    succeed(&mut other.nawa(["flight", "on", "--base", "reno", "--default"]));
    let is_on = |base: &str| {
        let begun = connection(&other);
        let local = begun.0.local_addr().expect("an address").to_string();
        let known = shown(&other);
        let line = known.iter().find(|line| line["local"] == local.as_str()).expect("it is shown");
        assert_eq!(line["base"], base);
    };
    is_on("reno");
    succeed(&mut namespace.nawa(["flight", "on", "--base", "cubic"]));
    is_on("cubic");
    let mut daemon = Daemon::start(&namespace, &node.write("[flight]\nbase = 'reno'\n"));
    is_on("reno");
    node.write("[flight]\nbase = 'cubic'\n");
    daemon.signal(Signal::HUP);
    daemon.read_until("the file is taken up");
    is_on("cubic");
}

/// What `nawa flight show --json` says of the connections in `namespace`.
fn shown(namespace: &Namespace) -> Vec<serde_json::Value> {
    let text = succeed(&mut namespace.nawa(["flight", "show", "--json"]));
    let state: serde_json::Value = serde_json::from_str(&text).expect("one JSON object");
    assert_eq!(state["schema"], 1);
    state["connections"].as_array().expect("a list").clone()
}

#[test]
fn a_live_connection_is_shown() {
    let Some(_alone) = alone_or_skip("a_live_connection_is_shown") else { return };
    let (namespace, other) = (Namespace::new(), Namespace::new());
    succeed(&mut namespace.nawa(["flight", "on", "--default"]));
    let mut streams = connection(&namespace);
    exchange(&mut streams, 4 << 20);
    let local = streams.0.local_addr().expect("an address").to_string();
    let lines = shown(&namespace);
    let line = lines.iter().find(|line| line["local"] == local.as_str()).expect("it is shown");
    let number = |key: &str| line[key].as_u64().unwrap_or_else(|| panic!("no {key}: {line}"));
    assert_eq!(line["remote"], streams.0.peer_addr().expect("an address").to_string());
    assert_eq!((line["congestion_control"].as_str(), line["base"].as_str()), (Some("fsat"), Some("cubic")));
    assert!(number("rtt_min_us") > 0 && number("space_bytes") > 0 && number("cwnd_bytes") > 0, "{line}");
    assert!(number("window_bytes") <= number("cwnd_bytes").max(number("space_bytes")), "{line}");
    assert!(line["target_bytes"].is_null() || number("target_bytes") > 0, "{line}");
    // A thread that waits for a processor makes TCP take its last segment for lost, here too: then it has sent that again.
    let again = namespace.within(|| counter_here("RetransSegs"));
    assert!(number("losses_radio") + number("losses_congestion") <= again, "{again} sent again: {line}");
    let table = succeed(&mut namespace.nawa(["flight", "show"]));
    assert!(table.contains(&local) && table.contains("registered: fsat, fsat_paper"), "{table}");
    assert_eq!(shown(&other), Vec::<serde_json::Value>::new());
    drop(streams);
    eventually("it is gone", || {
        shown(&namespace).iter().all(|line| line["local"] != local.as_str()).then_some(())
    });
}

#[test]
fn anybody_may_choose_it() {
    let Some(_alone) = alone_or_skip("anybody_may_choose_it") else { return };
    let namespace = Namespace::new();
    succeed(&mut namespace.nawa(["flight", "on"]));
    let chosen = namespace.within(|| {
        common::become_nobody();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let stream = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        ["fsat", "fsat_paper"]
            .map(|name| set_tcp_congestion(stream.as_fd(), name).map(|()| congestion_control(&stream)))
    });
    assert_eq!(chosen, [Ok("fsat".to_owned()), Ok("fsat_paper".to_owned())]);
}

#[test]
fn a_name_that_the_kernel_has_is_refused() {
    let Some(_alone) = alone_or_skip("a_name_that_the_kernel_has_is_refused") else { return };
    let [scheme, _] = kernel::Scheme::published(kernel::Base::Reno);
    let refused = kernel::register(&kernel::Scheme { name: "reno".into(), ..scheme });
    let words = "the kernel has a congestion control named reno that is not Nawa's; choose another name, or unload it";
    assert_eq!(refused.expect_err("it is taken").to_string(), words);
}

#[test]
fn not_for_anybody_to_register() {
    let Some(_alone) = alone_or_skip("not_for_anybody_to_register") else { return };
    let namespace = Namespace::new();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let copy = common::copy_for_anybody(folder.path());
    for command in ["on", "off", "show"] {
        let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", &copy, "flight", command];
        let output = output(&mut namespace.command("setpriv", nobody));
        assert_eq!(
            (output.status.code(), stderr(&output).as_str()),
            (Some(1), "nawa: BPF programs need root; use sudo\n")
        );
    }
    let wrong = output(&mut namespace.nawa(["flight", "on", "--base", "vegas"]));
    assert_eq!((wrong.status.code(), stdout(&wrong).as_str()), (Some(2), ""));
}

#[test]
fn the_daemon_provides_it_while_it_runs() {
    let Some(_alone) = alone_or_skip("the_daemon_provides_it_while_it_runs") else { return };
    let (namespace, node) = (Namespace::new(), Node::new());
    let before = default_of(&namespace);
    let file = node.write("[flight]\ndefault = true\n");
    let mut daemon = Daemon::start(&namespace, &file);
    assert!(is_registered());
    assert_eq!(default_of(&namespace), "fsat");
    let mut old = connection(&namespace);
    exchange(&mut old, 1 << 20);
    assert_eq!(namespace.status()["flight"]["default"], "fsat");
    node.write("[flight]\nbase = 'reno'\n");
    daemon.signal(Signal::HUP);
    daemon.read_until("the file is taken up");
    assert!(is_registered());
    assert_eq!(default_of(&namespace), before);
    exchange(&mut old, 1 << 20);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait(), Some(0));
    assert!(!is_registered());
    exchange(&mut old, 1 << 20);
}

#[test]
fn a_crash_of_the_daemon_leaves_nothing_registered() {
    let Some(_alone) = alone_or_skip("a_crash_of_the_daemon_leaves_nothing_registered") else { return };
    let (namespace, node) = (Namespace::new(), Node::new());
    let before = default_of(&namespace);
    let file = node.write("[flight]\ndefault = true\n");
    let daemon = Daemon::start(&namespace, &file);
    assert!(is_registered());
    let kill = |daemon: Daemon| {
        daemon.signal(Signal::KILL);
        assert_eq!(daemon.wait(), None);
        eventually("it is unregistered", || (!is_registered()).then_some(()));
    };
    kill(daemon);
    // The next one knows what was the default before.
    let daemon = Daemon::start(&namespace, &file);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait(), Some(0));
    assert_eq!(default_of(&namespace), before);
    // So do one that provides nothing, and `down`.
    kill(Daemon::start(&namespace, &file));
    assert_eq!(output(&mut namespace.nawa(["down"])).status.code(), Some(3));
    assert_eq!(default_of(&namespace), before);
    kill(Daemon::start(&namespace, &file));
    succeed(&mut namespace.nawa(["flight", "off"]));
    assert_eq!(default_of(&namespace), before, "that is something to take back");
    kill(Daemon::start(&namespace, &file));
    let _daemon = Daemon::start(&namespace, &node.write("[bicast]\ninterfaces = ['none0', 'none1']\n"));
    assert_eq!(default_of(&namespace), before);
}

#[test]
fn the_daemon_and_on_share_it() {
    let Some(_alone) = alone_or_skip("the_daemon_and_on_share_it") else { return };
    let (namespace, node) = (Namespace::new(), Node::new());
    let daemon = Daemon::start(&namespace, &node.write("[flight]\n"));
    succeed(&mut namespace.nawa(["flight", "on"]));
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait(), Some(0));
    assert!(is_registered());
    succeed(&mut namespace.nawa(["flight", "off"]));
    assert!(!is_registered());
}

#[test]
fn off_leaves_a_running_daemon_its_default() {
    let Some(_alone) = alone_or_skip("off_leaves_a_running_daemon_its_default") else { return };
    let (namespace, other, node) = (Namespace::new(), Namespace::new(), Node::new());
    let _daemon = Daemon::start(&namespace, &node.write("[flight]\ndefault = true\n"));
    let says = "fsat stays the default where a daemon with `default = true` runs";
    // Nothing is `on`'s.
    let off = output(&mut other.nawa(["flight", "off"]));
    assert_eq!(off.status.code(), Some(1));
    assert!(stderr(&off).contains(says), "{}", stderr(&off));
    succeed(&mut other.nawa(["flight", "on", "--default"]));
    let off = output(&mut other.nawa(["flight", "off"]));
    assert_eq!(off.status.code(), Some(0));
    assert!(stdout(&off).contains(says), "{}", stdout(&off));
    assert_ne!(default_of(&other), "fsat");
    assert_eq!(default_of(&namespace), "fsat");
}
