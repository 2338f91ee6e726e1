//! The 802.11 medium in real time: nodes reach their neighbours, who overhears, and that a full queue stops its senders.

mod common;

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use common::{alone_with_macvtap, left_in};
use device::poller::Interest;
use device::{Net, PacketSocket, Poller};
use lab::dcf::{INTERFACE, INTERFACE_QUEUE, Medium, mac};
use lab::ping::await_answer;
use link::dcf::{DcfConfig, Phy, Position};

const PORT: u16 = 4000;
const PATIENCE: Duration = Duration::from_secs(5);

fn address(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 98, 0, node as u8 + 1)
}

/// A chain of `count` nodes with addresses.
fn chain(count: usize) -> Medium {
    let medium = Medium::build(DcfConfig::new(Phy::g54(), Position::chain(count, 90.0)), 1).unwrap();
    for (n, node) in medium.nodes().iter().enumerate() {
        node.ip(&[format!("addr add {}/24 dev {INTERFACE}", address(n))]).unwrap();
    }
    medium
}

fn bind(medium: &Medium, node: usize) -> UdpSocket {
    let socket = medium.node(node).run(|| UdpSocket::bind((address(node), PORT)).unwrap()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

#[test]
fn neighbours_answer_over_the_air_and_nothing_remains() {
    let Some(_alone) = alone_with_macvtap("neighbours_answer_over_the_air_and_nothing_remains") else {
        return;
    };
    let medium = chain(3);
    await_answer(medium.node(0), address(1).into(), PATIENCE).unwrap();
    assert!(await_answer(medium.node(0), address(2).into(), Duration::from_secs(1)).is_err());
    let stats = medium.stats().unwrap();
    let [first, second, third] = [0, 1, 2].map(|n| stats.stations[n]);
    assert!(first.received.frames.get() > 0 && second.queued.frames == second.transmitted.frames);
    assert_eq!(first.given_up.get(), 0);
    assert!(third.received.frames.get() > 0, "requests for addresses are for everybody");
    assert!(!stats.lateness.is_zero());
    drop(medium);
    assert_eq!(left_in("/run/netns", std::process::id()), Vec::<String>::new());
    assert_eq!(left_in("/dev", std::process::id()), Vec::<String>::new());
}

#[test]
fn a_neighbour_overhears_what_is_for_another() {
    let Some(_alone) = alone_with_macvtap("a_neighbour_overhears_what_is_for_another") else { return };
    let medium = chain(3);
    let open =
        || PacketSocket::open(Net::open().unwrap().link(INTERFACE).unwrap().index, Some(0x0800)).unwrap();
    let ears = medium.node(2).run(open).unwrap();
    let (near, far) = (bind(&medium, 1), bind(&medium, 0));
    near.send_to(b"for another", (address(0), PORT)).unwrap();
    assert_eq!(far.recv(&mut [0; 99]).unwrap(), 11);
    let mut buffer = [0; 2000];
    let mut poller = Poller::new().unwrap();
    poller.add(&ears, 0, Interest::Read).unwrap();
    assert_eq!(poller.wait(Some(PATIENCE)).unwrap().count(), 1, "nothing was overheard");
    let overheard = ears.recv(&mut buffer).unwrap();
    let to: Vec<String> = overheard[..6].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(to.join(":"), mac(0));
    assert!(overheard.ends_with(b"for another"));
}

#[test]
fn a_sender_waits_for_the_medium_and_loses_nothing() {
    let Some(_alone) = alone_with_macvtap("a_sender_waits_for_the_medium_and_loses_nothing") else { return };
    let medium = chain(2);
    let (near, far) = (bind(&medium, 0), bind(&medium, 1));
    await_answer(medium.node(0), address(1).into(), PATIENCE).unwrap();
    let count = 2 * INTERFACE_QUEUE;
    let receive = || {
        let mut bytes = [0; 4];
        (0..count).map(|_| far.recv(&mut bytes).map(|_| u32::from_be_bytes(bytes))).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let received = scope.spawn(receive);
        for number in 0..count {
            near.send_to(&number.to_be_bytes(), (address(1), PORT)).unwrap();
        }
        let received: Result<Vec<_>, _> = received.join().unwrap().into_iter().collect();
        assert_eq!(received.unwrap(), (0..count).collect::<Vec<_>>(), "a blocking socket waits");
    });
}
