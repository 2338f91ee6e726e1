//! What a TCP connection may do besides sending all it can: wait, be idle, begin with data, have subflows.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use common::flight::{CONTROLS, Net, PORT, Stream, counter, link, registered_or_skip, undisturbed};
use common::{eventually, succeed};
use lab::network::{PathSpec, SERVER};
use link::{Bitrate, Capacity, Jitter, LinkConfig};
use rustix::net::{AddressFamily, Protocol, SendFlags, SocketType, ipproto, sockopt};
use serde_json::Value;

const MIB: u64 = 1 << 20;

/// Packets with which a connection may begin, and begin again, unless its route says how many (RFC 6928; RFC 5681, 4.1).
const INITIAL_WINDOW: u64 = 10;

#[test]
fn what_the_application_limits_does_not_limit_the_path() {
    let Some(_on) = registered_or_skip("what_the_application_limits_does_not_limit_the_path") else { return };
    // Now and then what arrives within the least RTT is less than what is under way, queue or not.
    let uneven = LinkConfig { jitter: Jitter::Uniform(Duration::from_millis(20)), ..link() };
    undisturbed("timeouts", |control| {
        let net = Net::new(control, uneven.clone());
        // Pauses are not what this is about.
        net.sysctl("ipv4/tcp_slow_start_after_idle", "0");
        let (mut stream, mut pace) = (net.connect(), device::Poller::new().expect("a poller"));
        stream.transfer(MIB, || ());
        let (before, mut samples) = (net.sample(), Vec::new());
        for _ in 0..30 {
            stream.transfer(10_000, || ());
            // Not a wait for a result: what the application has to say comes at this pace.
            pace.wait(Some(Duration::from_millis(100))).expect("waiting").for_each(drop);
            assert!(target(&net) > 2 * 10_000, "{control}: the application has become the limit");
            samples.push(net.sample());
        }
        // Any one may meet a slowdown, which leaves half of what arrives within the least RTT in flight.
        let after = samples.iter().rev().take(10).max_by_key(|sample| sample.cwnd()).expect("samples");
        assert!(after.cwnd() >= before.cwnd() / 2, "{control}: from {}\nto {}", before.line, after.line);
        stream.transfer(MIB, || ());
        stream.finish();
        net.counter("TCPTimeouts")
    });
}

/// The target of the client's connection, bytes; `u64::MAX` where nothing is limited.
#[track_caller]
fn target(net: &Net) -> u64 {
    let mut show = net.network.client.command(env!("CARGO_BIN_EXE_nawa"));
    let shown: Value = serde_json::from_str(&succeed(show.args(["flight", "show", "--json"]))).expect("JSON");
    let connections = shown["connections"].as_array().expect("a list");
    assert_eq!(connections.len(), 1, "{shown}");
    match &connections[0]["target_bytes"] {
        Value::Null => u64::MAX,
        target => target.as_u64().expect("a number"),
    }
}

#[test]
fn a_closed_window_opens_again() {
    let Some(_on) = registered_or_skip("a_closed_window_opens_again") else { return };
    undisturbed("timeouts", |control| {
        let net = Net::new(control, link());
        let mut stream = net.connect();
        let length = 16 * MIB;
        let mut near = Stream::new(
            stream.near.try_clone().expect("a socket"),
            stream.far.try_clone().expect("a socket"),
        );
        std::thread::scope(|scope| {
            scope.spawn(|| near.send(length));
            let probed =
                |sample: &common::flight::Sample| sample.timer() == "persist" && sample.number("backoff") > 1;
            let closed = net.wait_for("window probes", probed);
            assert_eq!(closed.in_flight(), 0, "{control}: {}", closed.line);
            stream.receive(length);
        });
        stream.finish();
        net.counter("TCPTimeouts")
    });
}

#[test]
fn after_idleness_no_burst_follows() {
    let Some(_on) = registered_or_skip("after_idleness_no_burst_follows") else { return };
    // So slow that `ss` sees what was sent before the first of it is acknowledged.
    let slow = LinkConfig { delay: Duration::from_millis(150), ..link() };
    for (control, initial) in CONTROLS.into_iter().flat_map(|one| [(one, INITIAL_WINDOW), (one, 32)]) {
        let net = Net::new(control, slow.clone());
        net.network.set_initial_window(initial as u32).expect("a route's");
        let mut stream = net.connect();
        sockopt::set_tcp_keepidle(&stream.near, Duration::from_secs(1)).expect("a socket");
        sockopt::set_tcp_keepintvl(&stream.near, Duration::from_secs(1)).expect("a socket");
        sockopt::set_socket_keepalive(&stream.near, true).expect("a socket");
        stream.transfer(MIB / 2, || ());
        let mut after_idleness = |_| {
            let before = net.sample();
            assert!(before.cwnd() > initial, "{control}: too little was sent for a burst: {}", before.line);
            let probes = net.counter("TCPKeepAlive") + 3;
            eventually("three keepalive probes", || (net.counter("TCPKeepAlive") >= probes).then_some(()));
            let acknowledged = net.sample().number("bytes_acked");
            let mut burst = 0;
            stream.transfer(MIB / 2, || {
                let sample = net.sample();
                if sample.number("bytes_acked") == acknowledged {
                    burst = burst.max(sample.in_flight());
                }
            });
            let line = before.line;
            assert!(burst <= initial, "{control}: {burst} of {initial} packets at once, before {line}");
            2 * burst > initial
        };
        // Where the machine is busy, `ss` may come when the first of it is acknowledged.
        assert!((0..5).any(&mut after_idleness), "{control}: half of {initial} packets are not sent at once");
        stream.finish();
    }
}

/// What `sendto` has for TCP Fast Open (RFC 7413): connect, and send this in the SYN.
const MSG_FASTOPEN: SendFlags = SendFlags::from_bits_retain(0x2000_0000);

fn connect_with(net: &Net, data: &[u8]) -> TcpStream {
    let server: SocketAddrV4 = format!("{SERVER}:{PORT}").parse().expect("an address");
    let connect = || {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
        rustix::net::sendto(&socket, data, MSG_FASTOPEN, &server)?;
        Ok::<_, rustix::io::Errno>(TcpStream::from(socket))
    };
    net.network.client.run(connect).expect("the namespace is there").expect("a connection")
}

#[test]
fn data_in_the_syn_arrives() {
    let Some(_on) = registered_or_skip("data_in_the_syn_arrives") else { return };
    for control in CONTROLS {
        let net = Net::new(control, link());
        // Client and server, without a cookie, for every listener.
        net.sysctl("ipv4/tcp_fastopen", "1543");
        let listener = net.listen();
        let connect = || {
            let near = connect_with(&net, b"hello");
            let mut far = listener.accept().expect("a connection").0;
            let mut data = [0; 5];
            far.read_exact(&mut data).expect("the data");
            assert_eq!(&data, b"hello");
            (near, far)
        };
        // A SYN that is sent again, as where the machine is busy, has no data.
        let mut connections = std::iter::repeat_with(connect).take(5);
        let with_data = connections.find(|_| counter(&net.network.server, "TCPFastOpenPassive") > 0);
        let (near, far) = with_data.unwrap_or_else(|| panic!("{control}: no SYN has data"));
        for end in [&near, &far] {
            assert_eq!(sockopt::tcp_congestion(end).expect("a socket"), control);
        }
        let mut stream = Stream::new(near, far);
        stream.transfer(MIB, || ());
        stream.finish();
    }
}

#[test]
fn what_is_accepted_has_its_listeners_control() {
    let Some(_on) = registered_or_skip("what_is_accepted_has_its_listeners_control") else { return };
    for control in CONTROLS {
        let net = Net::new("reno", link());
        let listener = net.listen();
        sockopt::set_tcp_congestion(&listener, control).expect("it is registered");
        let near =
            net.network.client.run(|| TcpStream::connect((SERVER, PORT))).expect("the namespace is there");
        let mut far = listener.accept().expect("a connection").0;
        assert_eq!(sockopt::tcp_congestion(&far).expect("a socket"), control);
        let mut near = near.expect("a connection");
        assert_eq!(sockopt::tcp_congestion(&near).expect("a socket"), "reno");
        // In the middle of a connection it may change, too: there and back.
        for next in [control, "reno", control] {
            sockopt::set_tcp_congestion(&near, next).expect("it is registered");
            near.write_all(b"there").expect("the stream goes on");
            far.read_exact(&mut [0; 5]).expect("the stream goes on");
            far.write_all(b"back").expect("the stream goes on");
            near.read_exact(&mut [0; 4]).expect("the stream goes on");
        }
    }
}

/// A socket for MPTCP (RFC 8684).
fn mptcp() -> OwnedFd {
    let protocol: Option<Protocol> = Some(ipproto::MPTCP);
    rustix::net::socket(AddressFamily::INET, SocketType::STREAM, protocol).expect("an MPTCP socket")
}

/// A connection, and the listener, which is what a second subflow connects to.
fn mptcp_pair(net: &Net) -> (Stream, TcpListener) {
    let server: SocketAddr = (SERVER, PORT).into();
    let listen = || {
        let socket = mptcp();
        rustix::net::bind(&socket, &server)
            .and_then(|()| rustix::net::listen(&socket, 8))
            .expect("a listener");
        TcpListener::from(socket)
    };
    let connect = || {
        let socket = mptcp();
        rustix::net::connect(&socket, &server).expect("a connection");
        TcpStream::from(socket)
    };
    let listener = net.network.server.run(listen).expect("the namespace is there");
    let near = net.network.client.run(connect).expect("the namespace is there");
    (Stream::new(near, listener.accept().expect("a connection").0), listener)
}

#[test]
fn each_subflow_of_mptcp_runs_under_it() {
    let Some(_on) = registered_or_skip("each_subflow_of_mptcp_runs_under_it") else { return };
    let narrow = LinkConfig { capacity: Capacity::Fixed(Bitrate::from_mbps(8.0)), ..link() };
    for control in CONTROLS {
        let paths = ["one", "two"].map(|name| PathSpec::symmetric(name, narrow.clone()));
        let net = Net::with_paths(control, paths.into());
        for host in [&net.network.client, &net.network.server] {
            host.ip(&["mptcp limits set subflow 2 add_addr_accepted 2".into()]).expect("MPTCP");
        }
        let second = net.network.client_address(1);
        net.network.client.ip(&[format!("mptcp endpoint add {second} dev p2 subflow")]).expect("MPTCP");
        let ((mut stream, _listener), mut last) = (mptcp_pair(&net), Vec::new());
        stream.transfer(4 * MIB, || last = net.samples());
        assert_eq!(last.len(), 2, "{control}: {last:?}");
        for subflow in &last {
            assert_eq!(subflow.control, control);
            assert!(subflow.number("bytes_acked") > 100_000, "{control}: {}", subflow.line);
        }
        stream.finish();
    }
}

/// Packets to which a route locks the window: more than a connection begins with, less than the link carries.
const LOCKED: u64 = 12;

#[test]
fn a_window_that_a_route_locks_is_never_more() {
    let Some(_on) = registered_or_skip("a_window_that_a_route_locks_is_never_more") else { return };
    for control in CONTROLS {
        let net = Net::new(control, link());
        let next = net.network.relay_address(0);
        let routes = ["table 101", "metric 1"]
            .map(|which| format!("route replace default via {next} {which} cwnd lock {LOCKED}"));
        net.network.client.ip(&routes).expect("routes");
        // The kernel has it from what it remembers of a peer, which begins with the end of a connection.
        net.sysctl("ipv4/tcp_no_metrics_save", "0");
        let mut first = net.connect();
        first.transfer(1000, || ());
        first.finish();
        let remembered = || succeed(net.network.client.command("ip").args(["tcp_metrics", "show"]));
        eventually("the peer is remembered", || remembered().contains("cwnd").then_some(()));
        let (mut stream, mut most) = (net.connect(), 0);
        stream.transfer(MIB, || most = most.max(net.sample().cwnd()));
        stream.finish();
        assert!(most <= LOCKED && 2 * most > LOCKED, "{control}: {most} of {LOCKED} packets");
    }
}
