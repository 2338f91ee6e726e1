//! Nothing of FS-AT stays behind its connections, its namespaces and its registration, and nothing stands still.

mod common;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use common::flight::{CONTROLS, SetWhenDropped, Stream, registered_or_skip, turn};
use common::{Namespace, eventually};
use flight::kernel;
use libbpf_rs::query::{LinkInfoIter, LinkTypeInfo, MapInfoIter, ProgInfoIter};
use rustix::net::sockopt;

/// A connection over `host`'s loopback, whose both ends have its default congestion control.
fn connect(listener: &TcpListener) -> Stream {
    let near = TcpStream::connect(listener.local_addr().expect("a socket")).expect("a connection");
    Stream::new(near, listener.accept().expect("a connection").0)
}

/// A namespace whose default is `control`.
fn host(control: &str) -> Namespace {
    let host = Namespace::new();
    let set = || std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", control);
    host.within(set).expect("it is registered, for everybody");
    host
}

fn listen() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback is up")
}

/// What the kernel holds of it: programs, maps, registrations.
fn held() -> BTreeSet<(&'static str, u32)> {
    let ours = |name: &OsString| name.as_bytes().starts_with(b"fsat");
    let programs = ProgInfoIter::default().filter(|program| ours(&program.name));
    let maps = MapInfoIter::default().filter(|map| ours(&map.name));
    let links = LinkInfoIter::default().filter(|link| matches!(link.info, LinkTypeInfo::StructOps(_)));
    let programs = programs.map(|program| ("program", program.id));
    programs.chain(maps.map(|map| ("map", map.id))).chain(links.map(|link| ("link", link.id))).collect()
}

/// Runs `work` while it is switched on, and waits until the kernel holds no more than before it was.
#[track_caller]
fn leaves_nothing(work: impl FnOnce()) {
    turn("off");
    let before = held();
    turn("on");
    assert!(!held().is_subset(&before), "what is registered is not seen");
    work();
    turn("off");
    // A connection that was left would keep its congestion control.
    eventually("all of it gone", || held().is_subset(&before).then_some(()));
    assert!(kernel::pinned().is_empty(), "pins are left");
    turn("on");
}

#[test]
fn ten_thousand_connections_leave_nothing() {
    let Some(_on) = registered_or_skip("ten_thousand_connections_leave_nothing") else { return };
    leaves_nothing(|| {
        for control in CONTROLS {
            host(control).within(|| {
                let listener = listen();
                for _ in 0..50 {
                    let mut open: Vec<Stream> = (0..100).map(|_| connect(&listener)).collect();
                    open.iter_mut().for_each(|stream| stream.send(1000));
                    for stream in &open {
                        assert_eq!(sockopt::tcp_congestion(&stream.far).as_deref(), Ok(control));
                    }
                    // The others end by a reset, because of what was not read.
                    open.iter_mut().step_by(2).for_each(|stream| stream.receive(1000));
                }
            });
        }
    });
}

#[test]
fn namespaces_take_their_connections_with_them() {
    let Some(_on) = registered_or_skip("namespaces_take_their_connections_with_them") else { return };
    leaves_nothing(|| {
        for control in CONTROLS {
            for _ in 0..20 {
                let host = host(control);
                let (listener, mut stream) = host.within(|| {
                    let listener = listen();
                    let stream = connect(&listener);
                    (listener, stream)
                });
                stream.send(100_000);
                // Its name goes first, then the listener, then a connection with something unread.
                drop((host, listener));
            }
        }
    });
}

/// Carries data over `stream` until `stop`; counts in `carried`.
fn carry(mut stream: Stream, carried: &AtomicU64, stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        stream.transfer(100_000, || ());
        carried.fetch_add(1, Relaxed);
    }
    stream.finish();
}

#[test]
fn connections_go_on_through_a_hundred_changes() {
    let Some(_on) = registered_or_skip("connections_go_on_through_a_hundred_changes") else { return };
    let (hosts, stop) = (CONTROLS.map(host), AtomicBool::new(false));
    let carried: Vec<AtomicU64> = (0..CONTROLS.len() * 3).map(|_| AtomicU64::new(0)).collect();
    leaves_nothing(|| {
        std::thread::scope(|scope| {
            let _stop = SetWhenDropped(&stop);
            let (mut counts, mut running) = (carried.iter(), Vec::new());
            for round in 0..100 {
                // Some of each were there before the first change, some begin under a later registration.
                if round % 40 == 0 {
                    for host in &hosts {
                        let (stream, count) =
                            (host.within(|| connect(&listen())), counts.next().expect("one each"));
                        scope.spawn(|| carry(stream, count, &stop));
                        running.push(count);
                    }
                }
                for state in ["off", "on"] {
                    turn(state);
                    let then: Vec<u64> = running.iter().map(|count| count.load(Relaxed)).collect();
                    let moved = || running.iter().zip(&then).all(|(now, then)| now.load(Relaxed) > then + 1);
                    eventually("all of them go on", || moved().then_some(()));
                }
            }
        });
    });
}
