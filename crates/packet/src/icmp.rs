//! The ICMP messages a tunnel owes to hosts whose packets do not fit, or lead nowhere.

use crate::checksum::Sum;
use crate::ip::{self, Ip};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An ICMPv4 error carries as much of the packet as fits into this many bytes (RFC 1812 §4.3.2.3).
const V4_LIMIT: usize = 576;
/// Hop limit of what is built here.
const TTL: u8 = 64;

/// Writes into `reply` the ICMP message that tells the sender of `packet` that only `mtu` bytes fit: ICMPv4
/// "fragmentation needed" (RFC 1191 §4), or ICMPv6 "packet too big" (RFC 4443 §3.2).
///
/// It seems to come from the packet's destination, so that no router's address is needed. Returns `false`, and
/// leaves `reply` empty, where none may be sent: IPv4 without DF; ICMP errors; later fragments; multicast,
/// broadcast and unspecified addresses (RFC 1122 §3.2.2, RFC 4443 §2.4).
pub fn packet_too_big(packet: &[u8], mtu: u16, reply: &mut Vec<u8>) -> bool {
    answer(packet, Some(mtu), reply)
}

/// The same where nobody is there: ICMPv4 "host unreachable" (RFC 792), or ICMPv6 "no route to destination" (RFC 4443 §3.1). IPv4 without
/// DF is answered as well.
pub fn unreachable(packet: &[u8], reply: &mut Vec<u8>) -> bool {
    answer(packet, None, reply)
}

fn answer(packet: &[u8], fits: Option<u16>, reply: &mut Vec<u8>) -> bool {
    reply.clear();
    let Ok(ip) = Ip::parse(packet) else { return false };
    let may_be_cut = fits.is_some() && !ip.dont_fragment();
    if may_be_cut || !ip.has_transport_header() || is_icmp_error(&ip) {
        return false;
    }
    match (ip.source(), ip.destination()) {
        (IpAddr::V4(to), IpAddr::V4(from)) if one_host_v4(to) && one_host_v4(from) => {
            answer_v4(packet, from, to, fits, reply);
        }
        (IpAddr::V6(to), IpAddr::V6(from)) if one_host_v6(to) && one_host_v6(from) => {
            answer_v6(packet, from, to, fits, reply);
        }
        _ => return false,
    }
    true
}

fn one_host_v4(a: Ipv4Addr) -> bool {
    !(a.is_multicast() || a.is_broadcast() || a.is_unspecified() || a.is_loopback())
}

fn one_host_v6(a: Ipv6Addr) -> bool {
    !(a.is_multicast() || a.is_unspecified() || a.is_loopback())
}

/// Whether no error may be sent about it; an ICMP message without a type counts as one.
fn is_icmp_error(ip: &Ip<'_>) -> bool {
    let kind = ip.payload().first();
    match ip.protocol() {
        // Everything but the queries: echo, router discovery, timestamp, information, address mask.
        ip::ICMP => !matches!(kind, Some(0 | 8 | 9 | 10 | 13..=18)),
        // Errors are below 128; 137 is a redirect (RFC 4443 §2.1, §2.4 (e.2)).
        ip::ICMPV6 => kind.is_none_or(|kind| *kind < 128 || *kind == 137),
        _ => false,
    }
}

fn answer_v4(packet: &[u8], from: Ipv4Addr, to: Ipv4Addr, fits: Option<u16>, reply: &mut Vec<u8>) {
    let quote = &packet[..packet.len().min(V4_LIMIT - 28)];
    let length = (28 + quote.len()) as u16;
    let [high, low] = length.to_be_bytes();
    // Precedence 6, internetwork control (RFC 1812 §4.3.2.5).
    reply.extend([0x45, 0xc0, high, low, 0, 0, 0, 0, TTL, ip::ICMP, 0, 0]);
    reply.extend(from.octets());
    reply.extend(to.octets());
    put_checksum(reply, 0, 10, Sum::default());
    let code = if fits.is_some() { 4 } else { 1 };
    let [high, low] = fits.unwrap_or(0).to_be_bytes();
    reply.extend([3, code, 0, 0, 0, 0, high, low]);
    reply.extend(quote);
    put_checksum(reply, 20, 22, Sum::default());
}

fn answer_v6(packet: &[u8], from: Ipv6Addr, to: Ipv6Addr, fits: Option<u16>, reply: &mut Vec<u8>) {
    // The whole must not exceed the least MTU (RFC 4443 §3.2).
    let quote = &packet[..packet.len().min(usize::from(ip::LEAST_MTU_V6) - 48)];
    let length = 8 + quote.len();
    let [high, low] = (length as u16).to_be_bytes();
    reply.extend([0x60, 0, 0, 0, high, low, ip::ICMPV6, TTL]);
    reply.extend(from.octets());
    reply.extend(to.octets());
    reply.extend([if fits.is_some() { 2 } else { 1 }, 0, 0, 0]);
    reply.extend(u32::from(fits.unwrap_or(0)).to_be_bytes());
    reply.extend(quote);
    put_checksum(reply, 40, 42, Sum::pseudo_header(from.into(), to.into(), ip::ICMPV6, length));
}

/// Writes at `at` the checksum over `start` and `reply[from..]`, whose field is still 0.
fn put_checksum(reply: &mut [u8], from: usize, at: usize, start: Sum) {
    let checksum = start.bytes(&reply[from..]).finish();
    reply[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Build, bytes, checksums_right};
    use proptest::prelude::*;

    fn answer(packet: &[u8], mtu: u16) -> Option<Vec<u8>> {
        let mut reply = vec![1, 2, 3];
        packet_too_big(packet, mtu, &mut reply).then_some(reply)
    }

    #[test]
    fn whoever_sends_to_nobody_is_told() {
        let cases = [
            (Build::v4().udp(&[7; 9]), Some([3, 1])),
            (Build::v4().may_fragment().udp(&[7; 9]), Some([3, 1])),
            (Build::v6().udp(&[7; 9]), Some([1, 0])),
            (Build::v4().raw(ip::ICMP, &[3, 4, 0, 0, 0, 0, 0, 0]), None),
            (Build::between("192.0.2.1", "224.0.0.9").udp(&[]), None),
        ];
        for (packet, expected) in cases {
            let mut reply = Vec::new();
            assert_eq!(unreachable(&packet, &mut reply), expected.is_some());
            let Some(expected) = expected else { continue };
            let (asked, ip) = (Ip::parse(&packet).unwrap(), Ip::parse(&reply).unwrap());
            assert!(checksums_right(&reply));
            assert_eq!((ip.source(), ip.destination()), (asked.destination(), asked.source()));
            assert_eq!((&ip.payload()[..2], &ip.payload()[8..]), (&expected[..], &packet[..]));
        }
    }

    #[test]
    fn answers_ipv4() {
        let packet = Build::v4().udp(&[7; 1400]);
        let reply = answer(&packet, 1300).unwrap();
        let ip = Ip::parse(&reply).unwrap();
        assert!(checksums_right(&reply));
        assert_eq!(reply.len(), 576);
        assert_eq!((ip.source(), ip.destination()), (Build::v4().destination, Build::v4().source));
        assert_eq!(ip.payload()[..2], [3, 4]);
        assert_eq!(ip.payload()[6..8], 1300u16.to_be_bytes());
        assert_eq!(ip.payload()[8..], packet[..548]);
    }

    #[test]
    fn answers_ipv6() {
        let packet = Build::v6().udp(&[7; 1400]);
        let reply = answer(&packet, 1300).unwrap();
        let ip = Ip::parse(&reply).unwrap();
        assert!(checksums_right(&reply));
        assert_eq!(reply.len(), 1280);
        assert_eq!((ip.source(), ip.destination()), (Build::v6().destination, Build::v6().source));
        assert_eq!(ip.payload()[..8], [2, 0, ip.payload()[2], ip.payload()[3], 0, 0, 0x05, 0x14]);
        assert_eq!(ip.payload()[8..], packet[..1232]);
    }

    #[test]
    fn is_silent_where_it_must_be() {
        let mut fragment = Build::v4().udp(&[0; 64]);
        fragment[7] = 2;
        let cases = [
            ("IPv4 that may be fragmented", Build::v4().may_fragment().udp(&[0; 64])),
            ("a later fragment", fragment),
            ("an ICMP error", Build::v4().raw(ip::ICMP, &[3, 4, 0, 0, 0, 0, 0, 0])),
            ("an ICMPv6 error", Build::v6().raw(ip::ICMPV6, &[2, 0, 0, 0, 0, 0, 0, 0])),
            ("an ICMPv6 redirect", Build::v6().raw(ip::ICMPV6, &[137, 0, 0, 0, 0, 0, 0, 0])),
            ("multicast", Build::between("192.0.2.1", "224.0.0.9").udp(&[])),
            ("broadcast", Build::between("192.0.2.1", "255.255.255.255").udp(&[])),
            ("nobody", Build::between("0.0.0.0", "192.0.2.1").udp(&[])),
            ("IPv6 multicast", Build::between("2001:db8::1", "ff02::1").udp(&[])),
        ];
        for (name, packet) in cases {
            assert_eq!(answer(&packet, 1300), None, "{name}");
        }
        assert!(
            answer(&Build::v4().raw(ip::ICMP, &[8, 0, 0, 0, 0, 0, 0, 0]), 1300).is_some(),
            "an echo request"
        );
        assert!(answer(&Build::v6().raw(ip::ICMPV6, &[128, 0, 0, 0, 0, 0, 0, 0]), 1300).is_some());
    }

    proptest! {
        #[test]
        fn replies_are_right_or_absent(packet in bytes(), mtu: u16) {
            if let Some(reply) = answer(&packet, mtu) {
                prop_assert!(checksums_right(&reply));
                prop_assert_eq!(answer(&reply, mtu), None, "no error about an error");
            }
        }
    }
}
