//! Flight on other kernels; see [`common::guest`].

mod common;

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use common::flight::{CONTROLS, Stream, turn};
use common::guest::Guest;
use common::{Daemon, nawa, succeed};
use rustix::net::sockopt;
use rustix::process::Signal;
use serde_json::Value;

const MIB: u64 = 1 << 20;

fn runs_on(name: &str, version: &str) {
    Guest { inside: "inside_a_guest", programs: &[], modules: &[] }.runs_on(name, version);
}

#[test]
fn flight_runs_on_linux_6_1() {
    runs_on("flight_runs_on_linux_6_1", "6.1");
}

#[test]
fn flight_runs_on_linux_6_12() {
    runs_on("flight_runs_on_linux_6_12", "6.12");
}

/// Over loopback, the connecting end under `control`.
fn stream(control: &str) -> Stream {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback is up");
    let near = TcpStream::connect(listener.local_addr().expect("a socket")).expect("a connection");
    sockopt::set_tcp_congestion(&near, control).unwrap_or_else(|error| panic!("{control}: {error}"));
    Stream::new(near, listener.accept().expect("a connection").0)
}

#[test]
#[ignore = "started by others, inside a guest"]
fn inside_a_guest() {
    for base in ["reno", "cubic"] {
        succeed(&mut nawa(["flight", "on", "--default", "--base", base]));
        for control in CONTROLS {
            carries_under(control, base);
        }
    }
    let begun = stream(CONTROLS[0]);
    turn("off");
    let (near, far) = (sockopt::tcp_congestion(&begun.near), sockopt::tcp_congestion(&begun.far));
    assert_eq!((near.as_deref(), far.as_deref()), (Ok(CONTROLS[0]), Ok("fsat")), "chosen, and the default");
    outlives(begun);
    assert_eq!(
        sockopt::tcp_congestion(&stream("reno").far).as_deref(),
        Ok("cubic"),
        "the default is as before"
    );
    a_killed_daemon_is_cleared_away();
    a_daemon_that_stops_leaves_what_on_did();
}

/// Without links (before Linux 6.4) what a process registered stays when it is killed: the next finds it.
fn a_killed_daemon_is_cleared_away() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("nawa.toml");
    fs::write(&file, "[flight]\ndefault = true\n").expect("a file");
    let daemon = Daemon::spawn(&mut nawa(["run", file.to_str().expect("UTF-8")]));
    let begun = stream(CONTROLS[0]);
    // Its end is SIGKILL.
    drop(daemon);
    turn("on");
    outlives_off(begun);
}

/// Whichever of the two came first.
fn a_daemon_that_stops_leaves_what_on_did() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("nawa.toml");
    fs::write(&file, "[flight]\n").expect("a file");
    let start = || Daemon::spawn(&mut nawa(["run", file.to_str().expect("UTF-8")]));
    let stop = |daemon: Daemon| {
        daemon.signal(Signal::TERM);
        assert_eq!(daemon.rest(), "", "nothing is amiss");
    };
    turn("on");
    stop(start());
    outlives_off(stream(CONTROLS[0]));
    let daemon = start();
    turn("on");
    stop(daemon);
    outlives_off(stream(CONTROLS[0]));
    turn("on");
    let daemon = start();
    turn("off");
    let begun = stream(CONTROLS[0]);
    stop(daemon);
    is_registered_no_more(begun);
}

/// What is sent arrives, and is shown.
fn carries_under(control: &str, base: &str) {
    let mut stream = stream(control);
    stream.transfer(8 * MIB, || ());
    let port = stream.near.local_addr().expect("a socket").port();
    let shown: Value = serde_json::from_str(&succeed(&mut nawa(["flight", "show", "--json"]))).expect("JSON");
    let local = format!("127.0.0.1:{port}");
    let mut connections = shown["connections"].as_array().expect("a list").iter();
    let connection =
        connections.find(|one| one["local"] == *local).unwrap_or_else(|| panic!("not in {shown}"));
    assert_eq!((&connection["congestion_control"], &connection["base"]), (&control.into(), &base.into()));
    assert!(connection["rtt_min_us"].as_u64().is_some_and(|rtt| rtt > 0), "{connection}");
    stream.finish();
}

/// A connection goes on under a congestion control that is registered no more, and once another has its name.
fn outlives(mut stream: Stream) {
    for state in ["on", "off", "on"] {
        turn(state);
        stream.transfer(MIB, || ());
    }
    outlives_off(stream);
}

fn outlives_off(stream: Stream) {
    turn("off");
    is_registered_no_more(stream);
}

fn is_registered_no_more(mut stream: Stream) {
    let refused = sockopt::set_tcp_congestion(&stream.far, CONTROLS[0]);
    assert_eq!(refused, Err(rustix::io::Errno::NOENT), "it is registered no more");
    stream.transfer(MIB, || ());
    stream.finish();
}
