//! Trains of datagrams over loopback: nothing here needs privileges.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use device::poller::Interest;
use device::udp::{Meta, Options, RecvBatch, Transmit, UdpSocket};
use device::{Net, Poller};

fn bind(address: &str) -> (UdpSocket, SocketAddr) {
    let options = Options { v6_only: true, ..Options::default() };
    let socket = UdpSocket::bind(address.parse().unwrap(), options).unwrap();
    let address = socket.local_address().unwrap();
    (socket, address)
}

fn to<'a>(remote: SocketAddr, contents: &'a [u8]) -> Transmit<'a> {
    Transmit { remote, local: None, interface: None, tos: 0, segment_size: None, contents }
}

/// The next `count` datagrams.
fn receive(socket: &UdpSocket, count: usize) -> Vec<(Meta, Vec<u8>)> {
    let (mut poller, mut batch, mut all) = (Poller::new().unwrap(), RecvBatch::default(), Vec::new());
    poller.add(socket, 0, Interest::Read).unwrap();
    while all.len() < count {
        let ready = poller.wait(Some(Duration::from_secs(10))).unwrap().count();
        assert_eq!(ready, 1, "{} of {count} datagrams came", all.len());
        socket.recv(&mut batch, |meta, datagram| all.push((meta, datagram.to_vec()))).unwrap();
    }
    all
}

fn datagrams(train: &[u8], size: usize) -> VecDeque<&[u8]> {
    train.chunks(size).collect()
}

/// Longer than one message may be, with a short datagram at its end.
fn train() -> Vec<u8> {
    (0..199 * 1000 + 7u32).map(|i| (i / 1000) as u8 ^ i as u8).collect()
}

#[test]
fn a_train_arrives_whole_with_its_addresses_and_tos() {
    for (local, any) in [("127.0.0.1:0", "0.0.0.0:0"), ("[::1]:0", "[::]:0")] {
        let ((sender, from), (receiver, _)) = (bind(local), bind(any));
        let port = receiver.local_address().unwrap().port();
        let train = train();
        let remote = SocketAddr::new(from.ip(), port);
        let failures = sender.send(&[Transmit { tos: 0xb9, segment_size: Some(1000), ..to(remote, &train) }]);
        assert!(failures.is_empty(), "{failures:?}");
        let loopback = Net::open().unwrap().link("lo").unwrap().index;
        let mut expected = datagrams(&train, 1000);
        for (meta, datagram) in receive(&receiver, expected.len()) {
            assert_eq!(datagram, expected.pop_front().unwrap());
            assert_eq!((meta.remote, meta.local), (from, Some(from.ip())));
            assert_eq!((meta.tos, meta.interface), (0xb9, loopback));
        }
    }
}

#[test]
fn trains_are_received_as_trains() {
    let ((sender, _), (receiver, remote)) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
    let train = &train()[..10 * 1000 + 7];
    let failures = sender.send(&[Transmit { segment_size: Some(1000), ..to(remote, train) }]);
    assert!(failures.is_empty(), "{failures:?}");
    let mut batch = RecvBatch::default();
    receiver.fill(&mut batch).unwrap();
    let all: Vec<_> = batch.trains().map(|(meta, bytes)| (meta.segment_size, bytes.to_vec())).collect();
    assert_eq!(all, [(1000, train.to_vec())], "loopback hands a train over as it was sent");
}

#[test]
fn the_local_address_can_be_chosen() {
    let ((sender, from), (receiver, remote)) = (bind("0.0.0.0:0"), bind("127.0.0.1:0"));
    let local: IpAddr = "127.0.0.9".parse().unwrap();
    let failures = sender.send(&[Transmit { local: Some(local), ..to(remote, b"hello") }]);
    assert!(failures.is_empty(), "{failures:?}");
    let all = receive(&receiver, 1);
    assert_eq!((all[0].0.remote, &all[0].1[..]), (SocketAddr::new(local, from.port()), &b"hello"[..]));
}

#[test]
fn a_failure_is_told_and_stops_nothing_else() {
    // The kernel takes a path's MTU down for what is too long: not that of the other tests' address.
    let ((sender, _), (receiver, remote)) = (bind("127.0.0.2:0"), bind("127.0.0.2:0"));
    let long = vec![0; 65508];
    let failures = sender.send(&[to(remote, b"one"), to(remote, &long), to(remote, b"two")]);
    let codes: Vec<_> = failures.iter().map(|f| (f.index, f.error.raw_os_error())).collect();
    assert_eq!(codes, [(1, Some(libc::EMSGSIZE))]);
    let all: Vec<_> = receive(&receiver, 2).into_iter().map(|(_, datagram)| datagram).collect();
    assert_eq!(all, [b"one", b"two"]);
}

#[test]
fn nothing_to_read_would_block() {
    let (socket, _) = bind("127.0.0.1:0");
    let error = socket.recv(&mut RecvBatch::default(), |_, _| ()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn both_families_share_a_port() {
    let (_v4, address) = bind("0.0.0.0:0");
    let v6 = SocketAddr::new("::".parse().unwrap(), address.port());
    UdpSocket::bind(v6, Options { v6_only: true, ..Options::default() }).unwrap();
    let error = UdpSocket::bind(address, Options::default()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    assert!(error.to_string().starts_with(&format!("cannot bind UDP {address}")), "{error}");
}

#[test]
fn datagrams_are_steered_by_their_first_byte() {
    let options = Options { reuse_port: true, v6_only: true, ..Options::default() };
    for any in ["127.0.0.1:0", "[::1]:0"] {
        let first = UdpSocket::bind(any.parse().unwrap(), options).unwrap();
        let remote = first.local_address().unwrap();
        let second = UdpSocket::bind(remote, options).unwrap();
        first.steer(0x19).unwrap();
        // Many senders: without steering the kernel would spread them over both.
        for _ in 0..16 {
            let (sender, _) = bind(any);
            let failures =
                sender.send(&[to(remote, b"\x18up"), to(remote, b"\x19down"), to(remote, b"\x01")]);
            assert!(failures.is_empty(), "{failures:?}");
        }
        let bytes = |socket, count| {
            receive(socket, count).into_iter().map(|(_, datagram)| datagram[0]).collect::<Vec<_>>()
        };
        assert_eq!(bytes(&second, 16), [0x19; 16]);
        assert_eq!(bytes(&first, 32), [0x18, 0x01].repeat(16));
    }
}
