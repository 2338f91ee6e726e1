//! One view for IPv4 (RFC 791) and IPv6 (RFC 8200).

use crate::{Ecn, PacketError, checksum};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// ICMP for IPv4.
pub const ICMP: u8 = 1;
/// TCP.
pub const TCP: u8 = 6;
/// UDP.
pub const UDP: u8 = 17;
/// SCTP.
pub const SCTP: u8 = 132;
/// ICMP for IPv6.
pub const ICMPV6: u8 = 58;
/// The least MTU of a link that carries IPv6, in bytes (RFC 8200 §5).
pub const LEAST_MTU_V6: u16 = 1280;

/// IPv6 extension headers that are walked before a packet is refused.
const MAX_EXTENSIONS: usize = 8;

/// A checked IP packet: its lengths agree with each other and with the slice.
#[derive(Clone, Copy, Debug)]
pub struct Ip<'a> {
    bytes: &'a [u8],
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    header_len: usize,
    fragment: Fragment,
}

#[derive(Clone, Copy, Debug, Default)]
struct Fragment {
    /// In bytes.
    offset: usize,
    more: bool,
}

impl<'a> Ip<'a> {
    /// Checks `bytes`, which must be exactly one packet.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PacketError> {
        match bytes.first().map(|b| b >> 4) {
            Some(4) => Self::parse_v4(bytes),
            Some(6) => Self::parse_v6(bytes),
            Some(version) => Err(PacketError::Version(version)),
            None => Err(PacketError::Short { need: 1, have: 0 }),
        }
    }

    fn parse_v4(bytes: &'a [u8]) -> Result<Self, PacketError> {
        let header: &[u8; 20] = first(bytes)?;
        let header_len = usize::from(header[0] & 15) * 4;
        let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if total != bytes.len() {
            return Err(PacketError::Length { header: total, slice: bytes.len() });
        }
        if header_len < 20 || header_len > total {
            return Err(PacketError::HeaderLength(header_len));
        }
        let flags = u16::from_be_bytes([header[6], header[7]]);
        Ok(Self {
            bytes,
            source: v4(&header[12..16]),
            destination: v4(&header[16..20]),
            protocol: header[9],
            header_len,
            fragment: Fragment { offset: usize::from(flags & 0x1fff) * 8, more: flags & 0x2000 != 0 },
        })
    }

    fn parse_v6(bytes: &'a [u8]) -> Result<Self, PacketError> {
        let header: &[u8; 40] = first(bytes)?;
        let total = 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
        if total != bytes.len() {
            return Err(PacketError::Length { header: total, slice: bytes.len() });
        }
        let (protocol, header_len, fragment) = walk_extensions(bytes, header[6])?;
        Ok(Self {
            bytes,
            source: v6(&header[8..24]),
            destination: v6(&header[24..40]),
            protocol,
            header_len,
            fragment,
        })
    }

    /// 4 or 6.
    pub fn version(&self) -> u8 {
        self.bytes[0] >> 4
    }

    /// Source address.
    pub fn source(&self) -> IpAddr {
        self.source
    }

    /// Destination address.
    pub fn destination(&self) -> IpAddr {
        self.destination
    }

    /// TOS or traffic class: DSCP and ECN.
    pub fn tos(&self) -> u8 {
        match self.version() {
            4 => self.bytes[1],
            _ => self.bytes[0] << 4 | self.bytes[1] >> 4,
        }
    }

    /// Differentiated services code point, 0 to 63 (RFC 2474).
    pub fn dscp(&self) -> u8 {
        self.tos() >> 2
    }

    /// ECN field (RFC 3168).
    pub fn ecn(&self) -> Ecn {
        Ecn::from_tos(self.tos())
    }

    /// What follows the IP header and, in IPv6, its extension headers.
    pub fn protocol(&self) -> u8 {
        self.protocol
    }

    /// The IP header with its options or extension headers, in bytes.
    pub fn header_len(&self) -> usize {
        self.header_len
    }

    /// Whether a router must not fragment it: IPv4 with DF, or any IPv6.
    pub fn dont_fragment(&self) -> bool {
        self.version() == 6 || self.bytes[6] & 0x40 != 0
    }

    /// Whether this is one of several fragments.
    pub fn is_fragment(&self) -> bool {
        self.fragment.more || self.fragment.offset > 0
    }

    /// Whether the payload begins with the transport's header: not a later fragment.
    pub fn has_transport_header(&self) -> bool {
        self.fragment.offset == 0
    }

    /// What follows [`Ip::header_len`].
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[self.header_len..]
    }

    /// The whole packet.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

fn first<const N: usize>(bytes: &[u8]) -> Result<&[u8; N], PacketError> {
    bytes.first_chunk().ok_or(PacketError::Short { need: N, have: bytes.len() })
}

fn v4(bytes: &[u8]) -> IpAddr {
    let octets: [u8; 4] = bytes.try_into().expect("callers give four bytes");
    Ipv4Addr::from(octets).into()
}

fn v6(bytes: &[u8]) -> IpAddr {
    let octets: [u8; 16] = bytes.try_into().expect("callers give sixteen bytes");
    Ipv6Addr::from(octets).into()
}

/// Upper protocol, offset of its header, and the fragment header's content (RFC 8200 §4).
fn walk_extensions(bytes: &[u8], mut next: u8) -> Result<(u8, usize, Fragment), PacketError> {
    let (mut at, mut fragment) = (40, Fragment::default());
    for _ in 0..=MAX_EXTENSIONS {
        if !matches!(next, 0 | 43 | 44 | 51 | 60) || fragment.offset > 0 {
            return Ok((next, at, fragment));
        }
        let short = PacketError::Short { need: at + 8, have: bytes.len() };
        let header: &[u8; 8] = bytes.get(at..).and_then(|b| b.first_chunk()).ok_or(short)?;
        let length = match next {
            44 => 8,
            51 => (usize::from(header[1]) + 2) * 4, // authentication header, RFC 4302 §2.2
            _ => (usize::from(header[1]) + 1) * 8,
        };
        if next == 44 {
            let field = u16::from_be_bytes([header[2], header[3]]);
            fragment = Fragment { offset: usize::from(field & !7), more: field & 1 != 0 };
        }
        (next, at) = (header[0], at + length);
        if at > bytes.len() {
            return Err(PacketError::Short { need: at, have: bytes.len() });
        }
    }
    Err(PacketError::Extensions(MAX_EXTENSIONS))
}

/// Sets the ECN field, and IPv4's header checksum with it. What is no IP header is left as it is.
pub fn set_ecn(packet: &mut [u8], ecn: Ecn) {
    match packet.first().map(|b| b >> 4) {
        Some(4) if packet.len() >= 20 => {
            let old = u16::from_be_bytes([packet[0], packet[1]]);
            packet[1] = ecn.in_tos(packet[1]);
            let new = u16::from_be_bytes([packet[0], packet[1]]);
            replace_checksum(packet, 10, old, new);
        }
        Some(6) if packet.len() >= 40 => packet[1] = packet[1] & !0x30 | (ecn as u8) << 4,
        _ => {}
    }
}

/// Updates the checksum field at `at`, which must lie inside, for a word that changed.
pub(crate) fn replace_checksum(packet: &mut [u8], at: usize, old: u16, new: u16) {
    let checksum = u16::from_be_bytes([packet[at], packet[at + 1]]);
    let checksum = checksum::update(checksum, old, new);
    packet[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::{Sum, verify};
    use crate::testing::{Build, bytes};
    use proptest::prelude::*;

    #[test]
    fn reads_ipv4() {
        let packet = Build::v4().tos(0xb9).udp(b"hello");
        let ip = Ip::parse(&packet).unwrap();
        assert_eq!((ip.version(), ip.dscp(), ip.ecn()), (4, 46, Ecn::Ect1));
        assert_eq!((ip.protocol(), ip.header_len(), ip.payload().len()), (UDP, 20, 13));
        assert_eq!(ip.source().to_string(), "192.0.2.1");
        assert_eq!(ip.destination().to_string(), "198.51.100.2");
        assert!(ip.dont_fragment() && ip.has_transport_header() && !ip.is_fragment());
    }

    #[test]
    fn reads_ipv6() {
        let packet = Build::v6().tos(0xba).udp(b"hello");
        let ip = Ip::parse(&packet).unwrap();
        assert_eq!((ip.version(), ip.dscp(), ip.ecn()), (6, 46, Ecn::Ect0));
        assert_eq!((ip.protocol(), ip.header_len(), ip.payload().len()), (UDP, 40, 13));
        assert_eq!(ip.source().to_string(), "2001:db8::1");
    }

    #[test]
    fn walks_extension_headers() {
        let mut packet = Build::v6().raw(60, &[44, 0, 0, 0, 0, 0, 0, 0, UDP, 0, 0, 9, 1, 2, 3, 4, 7, 7]);
        let ip = Ip::parse(&packet).unwrap();
        assert_eq!((ip.protocol(), ip.payload()), (UDP, &[7, 7][..]));
        assert!(ip.is_fragment() && !ip.has_transport_header());
        packet[41] = 9; // destination options longer than the packet
        assert_eq!(Ip::parse(&packet).unwrap_err(), PacketError::Short { need: 120, have: 58 });
        let chain = Build::v6().raw(0, &[0; 8 * 10]);
        assert_eq!(Ip::parse(&chain).unwrap_err(), PacketError::Extensions(8));
    }

    #[test]
    fn refuses_what_disagrees() {
        let good = Build::v4().udp(b"hello");
        let with = |at: usize, value: u8| {
            let mut packet = good.clone();
            packet[at] = value;
            Ip::parse(&packet).map(|_| ()).unwrap_err()
        };
        assert_eq!(with(0, 0x55), PacketError::Version(5));
        assert_eq!(with(0, 0x44), PacketError::HeaderLength(16));
        assert_eq!(with(0, 0x4f), PacketError::HeaderLength(60));
        assert_eq!(with(3, 32), PacketError::Length { header: 32, slice: 33 });
        assert_eq!(Ip::parse(&good[..19]).unwrap_err(), PacketError::Short { need: 20, have: 19 });
        assert_eq!(Ip::parse(&[]).unwrap_err(), PacketError::Short { need: 1, have: 0 });
    }

    #[test]
    fn sets_ecn_in_both() {
        for build in [Build::v4(), Build::v6()] {
            for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
                let mut packet = build.tos(0xb9).udp(b"hello");
                set_ecn(&mut packet, ecn);
                let ip = Ip::parse(&packet).unwrap();
                assert_eq!((ip.dscp(), ip.ecn()), (46, ecn));
                assert!(ip.version() == 6 || verify(Sum::default(), &packet[..20]));
            }
        }
    }

    proptest! {
        #[test]
        fn never_panics(mut packet in bytes(), ecn in 0u8..4) {
            if let Ok(ip) = Ip::parse(&packet) {
                prop_assert!(ip.header_len() + ip.payload().len() == packet.len());
                let _ = (ip.tos(), ip.dont_fragment(), ip.is_fragment());
            }
            set_ecn(&mut packet, Ecn::from_tos(ecn));
        }
    }
}
