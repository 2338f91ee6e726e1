//! A medium that namespaces share: who hears whom, what is lost, and that nothing stays.

mod common;

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use common::{alone, left_in, skip};
use device::{Net, PacketSocket};
use flood::{ETHERTYPE, Format, Header, Wire};
use lab::medium::{INTERFACE, Medium, MediumConfig};
use link::{Adjacency, Loss, Probability};

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
fn only_neighbours_hear_a_node_also_after_it_has_moved() {
    if skip("only_neighbours_hear_a_node_also_after_it_has_moved") {
        return;
    }
    let _alone = alone();
    let mut medium = Medium::build(&Adjacency::chain(4), MediumConfig::default()).unwrap();
    let sockets = sockets(&medium);
    for (round, adjacency) in (1..).zip([Adjacency::chain(4), Adjacency::grid(2, 2), Adjacency::complete(4)])
    {
        medium.set_adjacency(&adjacency).unwrap();
        for (sender, socket) in sockets.iter().enumerate() {
            let message = round * 10 + sender as u32;
            send(socket, message);
            for &hearer in adjacency.hearers(sender) {
                assert_eq!(receive(&sockets[hearer]), Some(message), "{sender} to {hearer}");
            }
        }
        assert!(sockets.iter().all(is_silent));
    }
    assert_eq!(medium.sent(0).unwrap(), 3);
    assert_eq!(medium.edge(0, 3).unwrap().offered, 1, "heard in the last round only");
    drop(medium);
    assert_eq!(left_in("/run/netns", std::process::id()), Vec::<String>::new());
}

#[test]
fn no_frame_is_lost_over_four_hops() {
    if skip("no_frame_is_lost_over_four_hops") {
        return;
    }
    let _alone = alone();
    let medium = Medium::build(&Adjacency::chain(5), MediumConfig::default()).unwrap();
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

#[test]
fn loss_is_what_the_link_model_draws_and_each_hearers_own() {
    if skip("loss_is_what_the_link_model_draws_and_each_hearers_own") {
        return;
    }
    let _alone = alone();
    const MESSAGES: u64 = 2000;
    let loss = Loss::Bernoulli(Probability::new(0.2).unwrap());
    let lost = |seed| {
        let config = MediumConfig { loss, seed, ..MediumConfig::default() };
        let medium = Medium::build(&Adjacency::complete(3), config).unwrap();
        let sockets = sockets(&medium);
        (0..MESSAGES as u32).for_each(|n| send(&sockets[0], n));
        [1, 2].map(|to| {
            let edge = medium.edge(0, to).unwrap();
            assert_eq!(edge.offered, MESSAGES);
            assert!((300..500).contains(&edge.lost), "{edge:?}");
            edge.lost
        })
    };
    let once = lost(1);
    assert_eq!(once, lost(1), "the same seed loses the same frames");
    assert_ne!(once, lost(2));
}

/// Messages of two sources over a relay that sends everything back.
#[test]
fn a_timed_relay_says_whose_message_it_was() {
    if skip("a_timed_relay_says_whose_message_it_was") {
        return;
    }
    let _alone = alone();
    let config = MediumConfig { timed_wire: Some(1), ..MediumConfig::default() };
    let medium = Medium::build(&Adjacency::chain(3), config).unwrap();
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
