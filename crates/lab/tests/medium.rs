//! A medium that namespaces share: who hears whom, and that nothing stays.

mod common;

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use common::{alone, left_in};
use device::{Net, PacketSocket};
use flood::{ETHERTYPE, Format, Header, Wire};
use lab::medium::{INTERFACE, Medium};
use link::Adjacency;

const PORT: u16 = 4000;
const EVERYBODY: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 99, 0, 255), PORT);
/// What is on its way arrives sooner: a medium has no delay.
const PATIENCE: Duration = Duration::from_secs(5);

/// A socket for broadcasts on each node.
fn sockets(medium: &Medium) -> Vec<UdpSocket> {
    let open = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap();
        socket.set_broadcast(true).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    };
    medium.nodes().iter().map(|node| node.run(open).unwrap()).collect()
}

/// Sends to everybody, which a socket is one of itself.
fn send(socket: &UdpSocket, message: u32) {
    socket.send_to(&message.to_be_bytes(), EVERYBODY).unwrap();
    assert_eq!(receive(socket), Some(message));
}

fn receive(socket: &UdpSocket) -> Option<u32> {
    let mut bytes = [0; 4];
    socket.recv(&mut bytes).ok().map(|_| u32::from_be_bytes(bytes))
}

/// Nothing more is there.
fn is_silent(socket: &UdpSocket) -> bool {
    socket.set_nonblocking(true).unwrap();
    let silent = receive(socket).is_none();
    socket.set_nonblocking(false).unwrap();
    silent
}

#[test]
fn only_neighbours_hear_a_node_and_nothing_remains() {
    let Some(_alone) = alone("only_neighbours_hear_a_node_and_nothing_remains") else { return };
    for adjacency in [Adjacency::chain(4), Adjacency::grid(2, 2), Adjacency::complete(4)] {
        let medium = Medium::build(&adjacency, false).unwrap();
        let sockets = sockets(&medium);
        for (sender, socket) in sockets.iter().enumerate() {
            send(socket, sender as u32);
            for &hearer in adjacency.hearers(sender) {
                assert_eq!(receive(&sockets[hearer]), Some(sender as u32), "{sender} to {hearer}");
            }
        }
        assert!(sockets.iter().all(is_silent));
        assert_eq!(medium.sent(0).unwrap(), 1);
        assert_eq!(medium.crossed(0, 3).unwrap(), u64::from(adjacency.hearers(0).contains(&3)));
    }
    assert_eq!(left_in("/run/netns", std::process::id()), Vec::<String>::new());
}

#[test]
fn no_frame_is_lost_over_four_hops() {
    let Some(_alone) = alone("no_frame_is_lost_over_four_hops") else { return };
    let medium = Medium::build(&Adjacency::chain(5), false).unwrap();
    let sockets = sockets(&medium);
    for message in 0..1000u32 {
        for hop in 0..4 {
            send(&sockets[hop], message);
            assert_eq!(receive(&sockets[hop + 1]), Some(message));
            if hop > 0 {
                assert_eq!(receive(&sockets[hop - 1]), Some(message), "what goes on comes back too");
            }
        }
    }
}

/// Messages of two sources over a relay that sends everything back.
#[test]
fn a_timed_relay_says_whose_message_it_was() {
    let Some(_alone) = alone("a_timed_relay_says_whose_message_it_was") else { return };
    let medium = Medium::build(&Adjacency::chain(3), true).unwrap();
    let _relay = medium.attach(1, "echo").unwrap();
    for (sender, id) in [(0, 7), (2, 9)] {
        let open = || PacketSocket::open(Net::open()?.link(INTERFACE)?.index, Some(ETHERTYPE));
        let socket = medium.node(sender).run(open).unwrap().unwrap();
        let header = Header { id, epoch: 1, seq: 1, ttl: 3, ..Header::default() };
        let ethernet = [[0xff; 6], socket.mac()].concat();
        let frame = Format::new(Wire::One, None).write(&header, &[0; 40]);
        socket.send(&[&ethernet[..], &ETHERTYPE.to_be_bytes(), &frame].concat()).unwrap();
    }
    let relayed: Vec<_> = medium.relays().unwrap().iter().map(|one| (one.node, one.source)).collect();
    assert_eq!(relayed, [(1, 7), (1, 9)]);
}
