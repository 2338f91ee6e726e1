//! Links that carry less than IPv6 asks for inside, around the tunnel's own bytes.

mod sim;

use std::time::Duration;

use sim::{Net, inner, record, udp_packet};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
/// IPv4 and UDP around a payload, in bytes.
const HEADERS: usize = 28;

/// Two ends over a link that swallows what is larger than `mtu`; only IPv4 is routed inside, unless `v6`.
fn over(mtu: usize, v6: bool) -> Net {
    let mut net = Net::quick(1, 10 * MS, |_, config| {
        config.peers[0].routes.retain(|route| v6 || route.addr().is_ipv4());
    });
    record(&mut net, move |datagram| datagram.bytes.len() + HEADERS <= mtu);
    net.pass(10 * S);
    net
}

#[test]
fn a_small_link_carries_ipv4() {
    for (mtu, inside) in [(1500, 1428), (1352, 1280), (1340, 1268), (1280, 1208), (576, 504)] {
        let mut net = over(mtu, false);
        for end in 0..2 {
            assert_eq!((net.peer(end).paths[0].state, net.ends[end].inner_mtu()), ("up", inside), "{mtu}");
            (0..50).for_each(|number| net.send(end, number, usize::from(inside)));
        }
        net.pass(2 * S);
        for end in 0..2 {
            assert_eq!(net.numbers(end), (0..50).collect::<Vec<_>>(), "over {mtu} bytes");
        }
        // What is larger is told so.
        net.received[0].clear();
        let mut large = udp_packet(inner(0), inner(1), usize::from(inside) + 1);
        large[6] = 0x40;
        net.ends[0].handle_inner(net.now, &mut large);
        net.turn(0);
        let told = net.received[0].pop().expect("an answer");
        assert_eq!((told[20], told[21], u16::from_be_bytes([told[26], told[27]])), (3, 4, inside));
    }
}

#[test]
fn a_small_link_says_what_ipv6_inside_would_need() {
    for (mtu, carries) in [(1340, 1340), (1330, 1320), (576, 576)] {
        let net = over(mtu, true);
        let path = net.peer(0).paths.remove(0);
        // No router said that they are too large.
        let why = format!(
            "it carries packets of {carries} bytes, and needs 1352: larger ones vanish without a word"
        );
        assert_eq!((path.state, path.why.as_deref()), ("checking", Some(&why[..])));
    }
}
