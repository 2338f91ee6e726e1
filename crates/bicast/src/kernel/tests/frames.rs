//! Frames to send and to compare with.

use std::net::IpAddr;

use packet::checksum::Sum;
use packet::ip::{SCTP, UDP};
use packet::sctp::{self, kind};

/// Of an Ethernet header, in bytes.
pub const ETHERNET: usize = 14;
/// Of every neighbour.
pub const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// Tags of what this host sends and receives.
pub const OUT: u32 = 0x1111_1111;
pub const IN: u32 = 0x2222_2222;

/// How SCTP is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    V4,
    V6,
    Udp4,
    Udp6,
}

impl Carrier {
    pub const ALL: [Carrier; 4] = [Carrier::V4, Carrier::V6, Carrier::Udp4, Carrier::Udp6];

    /// Address `host` (1 here, 2 there) of link `nth`, from 1.
    pub fn address(self, nth: u8, host: u8) -> IpAddr {
        let text = match self {
            Carrier::V4 | Carrier::Udp4 => format!("10.0.{nth}.{host}"),
            Carrier::V6 | Carrier::Udp6 => format!("fd00:{nth}::{host}"),
        };
        text.parse().expect("an address")
    }

    /// A frame with `chunks` and `tag`, out on link `nth` or in.
    pub fn out(self, nth: u8, tag: u32, chunks: &[u8]) -> Vec<u8> {
        self.frame([self.address(nth, 1), self.address(nth, 2)], [5000, 6000], tag, chunks)
    }

    pub fn incoming(self, nth: u8, tag: u32, chunks: &[u8]) -> Vec<u8> {
        self.frame([self.address(nth, 2), self.address(nth, 1)], [6000, 5000], tag, chunks)
    }

    pub fn frame(self, addresses: [IpAddr; 2], ports: [u16; 2], tag: u32, chunks: &[u8]) -> Vec<u8> {
        self.frame_by([9899; 2], addresses, ports, tag, chunks)
    }

    /// As [`Carrier::frame`], with these ports of UDP.
    pub fn frame_by(
        self,
        udp_ports: [u16; 2],
        addresses: [IpAddr; 2],
        ports: [u16; 2],
        tag: u32,
        chunks: &[u8],
    ) -> Vec<u8> {
        let mut packet = ports.map(u16::to_be_bytes).concat();
        packet.extend(tag.to_be_bytes());
        packet.extend([0; 4]);
        packet.extend(chunks);
        sctp::fill_checksum(&mut packet);
        match self {
            Carrier::V4 | Carrier::V6 => ip(addresses, SCTP, &packet),
            Carrier::Udp4 | Carrier::Udp6 => {
                let length = 8 + packet.len() as u16;
                let mut udp = [udp_ports[0], udp_ports[1], length, 0].map(u16::to_be_bytes).concat();
                udp.extend(packet);
                let sum = Sum::pseudo_header(addresses[0], addresses[1], UDP, udp.len()).bytes(&udp);
                udp[6..8].copy_from_slice(&sum.finish_udp().to_be_bytes());
                ip(addresses, UDP, &udp)
            }
        }
    }
}

pub fn ip(addresses: [IpAddr; 2], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = [MAC, MAC].concat();
    match addresses {
        [IpAddr::V4(from), IpAddr::V4(to)] => {
            let length = (20 + payload.len() as u16).to_be_bytes();
            let mut header = vec![0x45, 2, length[0], length[1], 0, 7, 0x40, 0, 64, protocol, 0, 0];
            header.extend(from.octets());
            header.extend(to.octets());
            let sum = Sum::default().bytes(&header).finish();
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend([8, 0]);
            frame.extend(header);
        }
        [IpAddr::V6(from), IpAddr::V6(to)] => {
            let length = (payload.len() as u16).to_be_bytes();
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, length[0], length[1], protocol, 64]);
            frame.extend(from.octets());
            frame.extend(to.octets());
        }
        _ => unreachable!("one family"),
    }
    frame.extend(payload);
    frame
}

pub fn chunk(kind: u8, flags: u8, value: &[u8]) -> Vec<u8> {
    let length = (4 + value.len() as u16).to_be_bytes();
    let mut bytes = vec![kind, flags, length[0], length[1]];
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

pub fn data(tsn: u32) -> Vec<u8> {
    chunk(kind::DATA, 3, &[&tsn.to_be_bytes()[..], &[0; 8], &[b'x'; 100]].concat())
}

pub fn sack(gaps: u8, duplicates: u8) -> Vec<u8> {
    let lists = vec![1; 4 * usize::from(gaps + duplicates)];
    chunk(kind::SACK, 0, &[&[0, 0, 0, 9, 0, 0, 0x20, 0, 0, gaps, 0, duplicates][..], &lists].concat())
}

/// INIT or INIT ACK of the end that receives packets with `tag`, with these parameters behind its fields.
pub fn init(kind: u8, tag: u32, parameters: &[u8]) -> Vec<u8> {
    chunk(kind, 0, &[&tag.to_be_bytes()[..], &[0; 12], parameters].concat())
}

/// A HEARTBEAT or its answer, with `nonce` in it.
pub fn heartbeat(kind: u8, nonce: u8) -> Vec<u8> {
    chunk(kind, 0, &[&[0, 1, 0, 44][..], &[nonce; 40]].concat())
}

/// An ASCONF from the end with `sender`, that deletes `address`.
pub fn deletes(sender: [u8; 4], address: [u8; 4]) -> Vec<u8> {
    asconf(2, sender, address)
}

/// An ASCONF from the end with `sender`, that adds `address`.
pub fn adds(sender: [u8; 4], address: [u8; 4]) -> Vec<u8> {
    asconf(1, sender, address)
}

fn asconf(what: u8, sender: [u8; 4], address: [u8; 4]) -> Vec<u8> {
    let parameter = |address: [u8; 4]| [&[0, 5, 0, 8][..], &address].concat();
    let change = [&[0xc0, what, 0, 16, 0, 0, 0, 1][..], &parameter(address)].concat();
    chunk(kind::ASCONF, 0, &[&[0, 0, 0, 1][..], &parameter(sender), &change].concat())
}
