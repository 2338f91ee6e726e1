//! Segmentation: one super-packet from a TUN becomes the packets it stands for.

use crate::checksum::Sum;
use crate::ip::{self, Ip};
use crate::{PacketError, Tcp, tcp};
use std::net::IpAddr;

/// How a super-packet is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segmentation {
    /// One TCP segment longer than the path takes.
    Tcp,
    /// UDP datagrams of one length (the last may be shorter) behind one header.
    Udp,
}

/// Room for the headers: an IPv6 header with extensions and 60 bytes of TCP.
const MAX_HEADERS: usize = 256;

/// The headers of a super-packet, from which each segment's are made.
struct Template {
    bytes: [u8; MAX_HEADERS],
    length: usize,
    ip_length: usize,
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    sequence: u32,
}

/// Calls `each` with every packet that `packet` stands for, in order and with right checksums; `segment_size` is the
/// payload of each but the last, in bytes. Returns how many. The super-packet's own checksums do not matter.
///
/// It is cut in place: every segment's headers are written over the end of the one before, so `packet` is used up.
pub fn split(
    packet: &mut [u8],
    kind: Segmentation,
    segment_size: usize,
    mut each: impl FnMut(&mut [u8]),
) -> Result<usize, PacketError> {
    let template = Template::of(packet, kind, segment_size)?;
    let payload = packet.len() - template.length;
    let count = payload.div_ceil(segment_size).max(1);
    for index in 0..count {
        let at = index * segment_size;
        let end = (at + segment_size).min(payload) + template.length;
        let segment = &mut packet[at..end];
        template.write(segment, index, segment_size, index + 1 == count);
        each(segment);
    }
    Ok(count)
}

impl Template {
    fn of(packet: &[u8], kind: Segmentation, segment_size: usize) -> Result<Self, PacketError> {
        let ip = Ip::parse(packet)?;
        let refused = PacketError::Segmentation(ip.protocol());
        let (transport, sequence) = match kind {
            Segmentation::Tcp => {
                Tcp::parse(&ip).map(|tcp| (tcp.header_len(), tcp.sequence())).ok_or(refused)?
            }
            Segmentation::Udp if ip.protocol() == ip::UDP && ip.payload().len() >= 8 => (8, 0),
            Segmentation::Udp => return Err(refused),
        };
        let length = ip.header_len() + transport;
        if ip.is_fragment() || segment_size == 0 || length > MAX_HEADERS {
            return Err(refused);
        }
        let mut bytes = [0; MAX_HEADERS];
        bytes[..length].copy_from_slice(&packet[..length]);
        Ok(Self {
            bytes,
            length,
            ip_length: ip.header_len(),
            source: ip.source(),
            destination: ip.destination(),
            protocol: ip.protocol(),
            sequence,
        })
    }

    /// Writes the headers of segment `index` into `segment`, whose payload is in place.
    fn write(&self, segment: &mut [u8], index: usize, segment_size: usize, last: bool) {
        segment[..self.length].copy_from_slice(&self.bytes[..self.length]);
        let (header, transport) = segment.split_at_mut(self.ip_length);
        self.write_ip(header, transport.len(), index);
        let checksum_at = if self.protocol == ip::TCP {
            let sequence = self.sequence.wrapping_add((index * segment_size) as u32);
            write_tcp(transport, sequence, index == 0, last)
        } else {
            let length = transport.len() as u16;
            transport[4..6].copy_from_slice(&length.to_be_bytes());
            6
        };
        self.write_checksum(transport, checksum_at);
    }

    fn write_ip(&self, header: &mut [u8], payload: usize, index: usize) {
        if matches!(self.source, IpAddr::V6(_)) {
            let length = (self.ip_length - 40 + payload) as u16;
            header[4..6].copy_from_slice(&length.to_be_bytes());
            return;
        }
        let id = u16::from_be_bytes([header[4], header[5]]).wrapping_add(index as u16);
        header[2..4].copy_from_slice(&((self.ip_length + payload) as u16).to_be_bytes());
        header[4..6].copy_from_slice(&id.to_be_bytes());
        header[10..12].fill(0);
        let checksum = Sum::default().bytes(header).finish();
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
    }

    fn write_checksum(&self, transport: &mut [u8], at: usize) {
        transport[at..at + 2].fill(0);
        let sum = Sum::pseudo_header(self.source, self.destination, self.protocol, transport.len())
            .bytes(transport);
        let checksum = if self.protocol == ip::TCP { sum.finish() } else { sum.finish_udp() };
        transport[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// FIN and PSH belong to the last segment, CWR to the first (RFC 3168 §6.1.2). Returns where the checksum lies.
fn write_tcp(transport: &mut [u8], sequence: u32, first: bool, last: bool) -> usize {
    transport[4..8].copy_from_slice(&sequence.to_be_bytes());
    if !last {
        transport[13] &= !(tcp::FIN | tcp::PSH);
    }
    if !first {
        transport[13] &= !tcp::CWR;
    }
    tcp::CHECKSUM
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Build, TcpFields, bytes, checksums_right};
    use proptest::prelude::*;

    fn segments(mut packet: Vec<u8>, kind: Segmentation, size: usize) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let count = split(&mut packet, kind, size, |segment| all.push(segment.to_vec())).unwrap();
        assert_eq!(count, all.len());
        all
    }

    #[test]
    fn cuts_tcp() {
        let data: Vec<u8> = (0..2500u32).map(|i| i as u8).collect();
        let flags = tcp::ACK | tcp::PSH | tcp::FIN | tcp::CWR;
        let fields = TcpFields { seq: u32::MAX - 999, ack: 5, flags, options: &[1, 1, 1, 1] };
        for build in [Build::v4(), Build::v6()] {
            let expected = [(fields.seq, 0x90, 0..1000), (0, 0x10, 1000..2000), (1000, 0x19, 2000..2500)];
            let all = segments(build.tcp(fields, &data), Segmentation::Tcp, 1000);
            assert_eq!(all.len(), expected.len());
            for (i, (packet, (seq, flags, range))) in all.iter().zip(expected).enumerate() {
                assert!(checksums_right(packet));
                let ip = Ip::parse(packet).unwrap();
                let tcp = Tcp::parse(&ip).unwrap();
                assert_eq!((tcp.sequence(), tcp.flags(), tcp.payload()), (seq, flags, &data[range]));
                assert!(ip.version() == 6 || packet[5] == 7 + i as u8, "IPv4 identification counts up");
            }
        }
    }

    #[test]
    fn cuts_udp() {
        for build in [Build::v4(), Build::v6()] {
            let all = segments(build.udp(&[1, 2, 3, 4, 5]), Segmentation::Udp, 2);
            let expected = [&[1, 2][..], &[3, 4], &[5]].map(|payload| build.udp(payload));
            let payload = |p: &Vec<u8>| Ip::parse(p).unwrap().payload().to_vec();
            assert_eq!(
                all.iter().map(payload).collect::<Vec<_>>(),
                expected.iter().map(payload).collect::<Vec<_>>()
            );
            assert!(all.iter().all(|packet| checksums_right(packet)));
        }
    }

    #[test]
    fn refuses_what_cannot_be_cut() {
        let refuse = |mut packet: Vec<u8>, kind, size| split(&mut packet, kind, size, |_| ()).unwrap_err();
        let (tcp, udp) = (Build::v4().tcp(TcpFields::default(), b"abc"), Build::v4().udp(b"abc"));
        assert_eq!(refuse(tcp.clone(), Segmentation::Udp, 2), PacketError::Segmentation(6));
        assert_eq!(refuse(udp, Segmentation::Tcp, 2), PacketError::Segmentation(17));
        assert_eq!(refuse(tcp, Segmentation::Tcp, 0), PacketError::Segmentation(6));
    }

    proptest! {
        #[test]
        fn never_panics(mut packet in bytes(), size in 0usize..70000, udp: bool) {
            let kind = if udp { Segmentation::Udp } else { Segmentation::Tcp };
            let _ = split(&mut packet, kind, size, |_| ());
        }
    }
}
