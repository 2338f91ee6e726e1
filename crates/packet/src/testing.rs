//! Packets to test with.

use crate::checksum::Sum;
use crate::ip::{TCP, UDP};
use proptest::prelude::*;
use std::net::IpAddr;

/// Builds correct packets from 192.0.2.1 to 198.51.100.2, or 2001:db8::1 to 2001:db8:1::2, port 1000 to 2000.
#[derive(Clone, Copy)]
pub struct Build {
    pub source: IpAddr,
    pub destination: IpAddr,
    tos: u8,
    dont_fragment: bool,
}

/// The fields of a TCP header that tests vary.
#[derive(Clone, Copy, Default)]
pub struct TcpFields<'a> {
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    /// A multiple of four bytes, at most 40.
    pub options: &'a [u8],
}

impl Build {
    pub fn v4() -> Self {
        Self::between("192.0.2.1", "198.51.100.2")
    }

    pub fn v6() -> Self {
        Self::between("2001:db8::1", "2001:db8:1::2")
    }

    pub fn between(source: &str, destination: &str) -> Self {
        let parse = |a: &str| a.parse().unwrap();
        Self { source: parse(source), destination: parse(destination), tos: 0, dont_fragment: true }
    }

    pub fn tos(self, tos: u8) -> Self {
        Self { tos, ..self }
    }

    pub fn may_fragment(self) -> Self {
        Self { dont_fragment: false, ..self }
    }

    pub fn raw(&self, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let length = (20 + payload.len() as u16).to_be_bytes();
                let df = if self.dont_fragment { 0x40 } else { 0 };
                let mut header = vec![0x45, self.tos, length[0], length[1], 0, 7, df, 0, 64, protocol, 0, 0];
                header.extend(source.octets());
                header.extend(destination.octets());
                let checksum = Sum::default().bytes(&header).finish();
                header[10..12].copy_from_slice(&checksum.to_be_bytes());
                header
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let length = (payload.len() as u16).to_be_bytes();
                let mut header =
                    vec![0x60 | self.tos >> 4, self.tos << 4, 0, 9, length[0], length[1], protocol, 64];
                header.extend(source.octets());
                header.extend(destination.octets());
                header
            }
            _ => unreachable!("one family"),
        };
        packet.extend(payload);
        packet
    }

    fn transport(&self, protocol: u8, checksum_at: usize, mut bytes: Vec<u8>) -> Vec<u8> {
        let pseudo = Sum::pseudo_header(self.source, self.destination, protocol, bytes.len());
        let checksum = pseudo.bytes(&bytes).finish_udp();
        bytes[checksum_at..checksum_at + 2].copy_from_slice(&checksum.to_be_bytes());
        self.raw(protocol, &bytes)
    }

    pub fn udp(&self, payload: &[u8]) -> Vec<u8> {
        let mut bytes = [1000u16, 2000, 8 + payload.len() as u16, 0].map(u16::to_be_bytes).concat();
        bytes.extend(payload);
        self.transport(UDP, 6, bytes)
    }

    pub fn tcp(&self, fields: TcpFields, payload: &[u8]) -> Vec<u8> {
        let mut bytes = [1000u16, 2000].map(u16::to_be_bytes).concat();
        bytes.extend(fields.seq.to_be_bytes());
        bytes.extend(fields.ack.to_be_bytes());
        bytes.extend([(5 + fields.options.len() as u8 / 4) << 4, fields.flags, 1, 0, 0, 0, 0, 0]);
        bytes.extend(fields.options);
        bytes.extend(payload);
        self.transport(TCP, 16, bytes)
    }
}

/// Whether the IPv4 header's checksum and the transport's are right.
pub fn checksums_right(packet: &[u8]) -> bool {
    let ip = crate::Ip::parse(packet).unwrap();
    let pseudo = match ip.protocol() {
        crate::ip::ICMP => Sum::default(),
        protocol => Sum::pseudo_header(ip.source(), ip.destination(), protocol, ip.payload().len()),
    };
    let header = ip.version() == 6 || crate::checksum::verify(Sum::default(), &packet[..ip.header_len()]);
    header && crate::checksum::verify(pseudo, ip.payload())
}

/// Random bytes, half of them dressed up as an IP packet whose lengths agree, so that what lies behind is reached.
pub fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let random = proptest::collection::vec(any::<u8>(), 0..200);
    let protocol = prop_oneof![Just(TCP), Just(UDP), Just(1), Just(58), Just(44), any::<u8>()];
    (random, any::<bool>(), any::<bool>(), protocol).prop_map(|(mut bytes, dress, six, protocol)| {
        let need = if six { 40 } else { 20 };
        if dress && bytes.len() >= need {
            let length = if six { bytes.len() - 40 } else { bytes.len() } as u16;
            let at = if six { 4 } else { 2 };
            bytes[at..at + 2].copy_from_slice(&length.to_be_bytes());
            bytes[0] = if six { 0x60 } else { 0x45 };
            bytes[if six { 6 } else { 9 }] = protocol;
        }
        bytes
    })
}
