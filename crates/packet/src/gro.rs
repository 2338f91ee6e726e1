//! Coalescing: packets of one flow that follow each other become one super-packet for a TUN.
//!
//! The order within a flow is kept: a packet only ever joins its flow's latest train, and trains go out in the
//! order of their first packets. Only packets whose checksums are right are joined, because the kernel does not
//! look at the checksums of a super-packet's segments. Conditions as in the kernel's `tcp_gro_receive`.

use crate::checksum::{Sum, verify};
use crate::gso::Segmentation;
use crate::ip::{self, Ip};
use crate::{Tcp, flow_hash, tcp};

/// The longest IP packet, in bytes.
const MAX_PACKET: usize = 65535;
/// The kernel refuses super-packets of more UDP datagrams (UDP_MAX_SEGMENTS before Linux 6.9), and cuts writes of more than 1,024 parts
/// (IOV_MAX). So many full segments of TCP are longer than a packet may be.
const MAX_SEGMENTS: usize = 64;
/// Trains that are searched for a packet's flow.
const LOOK_BACK: usize = 16;
/// An IPv6 header and 60 bytes of TCP.
const MAX_HEADERS: usize = 100;
/// Ends the list of a train's packets.
const NONE: usize = usize::MAX;

/// Which super-packets the receiver understands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepts {
    /// TCP over IPv4 and IPv6.
    pub tcp: bool,
    /// UDP over IPv4 and IPv6.
    pub udp: bool,
}

/// The trains of one batch of packets. Keep it for the next batch: its memory is used again.
#[derive(Debug, Default)]
pub struct Trains {
    trains: Vec<Train>,
    /// For each packet, the next one of its train.
    next: Vec<usize>,
}

/// Packets to be written as one.
#[derive(Clone, Copy, Debug)]
pub struct Train {
    first: usize,
    last: usize,
    count: usize,
    flow: u64,
    /// Length of all packets together once joined, in bytes.
    length: usize,
    /// `None`: a packet that cannot be joined with any.
    shape: Option<Shape>,
    /// Nothing may follow: a short segment or one with PSH was the last.
    closed: bool,
}

/// What packets must share to be joined, beyond the bytes of their headers.
#[derive(Clone, Copy, Debug)]
struct Shape {
    kind: Segmentation,
    ip_length: usize,
    /// Of all headers, in bytes.
    headers: usize,
    /// Payload of every packet but the last, in bytes.
    segment_size: usize,
    /// The TCP sequence number that may follow; 0 for UDP.
    sequence: u32,
    push: bool,
}

/// The headers of a super-packet and what a virtio header says about it.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    bytes: [u8; MAX_HEADERS],
    length: usize,
    /// How it is to be cut.
    pub kind: Segmentation,
    /// Payload of each segment but the last, in bytes.
    pub segment_size: u16,
    /// Offset of the transport header.
    pub checksum_start: u16,
    /// Offset of the checksum field in the transport header; it holds the pseudo-header's sum.
    pub checksum_offset: u16,
}

impl Header {
    /// The headers; the packets' payloads follow.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Trains {
    /// Groups `packets`, forgetting those of before.
    pub fn group<P: AsRef<[u8]>>(&mut self, packets: &[P], accepts: Accepts) {
        self.trains.clear();
        self.next.clear();
        self.next.resize(packets.len(), NONE);
        for (index, packet) in packets.iter().enumerate() {
            self.add(index, packet.as_ref(), packets, accepts);
        }
    }

    /// The trains, in the order in which they have to be written.
    pub fn iter(&self) -> impl Iterator<Item = Train> + '_ {
        self.trains.iter().copied()
    }

    /// Indices of a train's packets, in order.
    pub fn members(&self, train: &Train) -> impl Iterator<Item = usize> + '_ {
        let some = |index| (index != NONE).then_some(index);
        std::iter::successors(Some(train.first), move |index| some(self.next[*index]))
    }

    fn add<P: AsRef<[u8]>>(&mut self, index: usize, packet: &[u8], packets: &[P], accepts: Accepts) {
        let (flow, shape) = match Ip::parse(packet) {
            Ok(ip) => (flow_hash(&ip, 0), Shape::of(&ip, accepts)),
            Err(_) => (0, None),
        };
        if let Some(shape) = &shape {
            let latest = self.trains.iter_mut().rev().take(LOOK_BACK).find(|train| train.flow == flow);
            if let Some(train) = latest
                && train.takes(shape, packet, packets[train.first].as_ref())
            {
                self.next[train.last] = index;
                train.append(index, shape, packet.len());
                return;
            }
        }
        let closed = shape.is_none_or(|shape| shape.push);
        self.trains.push(Train {
            first: index,
            last: index,
            count: 1,
            flow,
            length: packet.len(),
            shape,
            closed,
        });
    }
}

impl Train {
    /// How many packets it has.
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many bytes of headers each of its packets has; 0 if it is a single packet that was not looked into.
    pub fn headers(&self) -> usize {
        self.shape.map_or(0, |shape| shape.headers)
    }

    fn takes(&self, shape: &Shape, packet: &[u8], first: &[u8]) -> bool {
        let Some(mine) = &self.shape else { return false };
        let payload = packet.len() - shape.headers;
        !self.closed
            && mine.kind == shape.kind
            && mine.headers == shape.headers
            && payload <= mine.segment_size
            && self.length + payload <= MAX_PACKET
            && self.count < MAX_SEGMENTS
            && (mine.kind == Segmentation::Udp
                || mine.sequence == shape.sequence.wrapping_sub(payload as u32))
            && same_headers(shape, packet, first)
    }

    fn append(&mut self, index: usize, shape: &Shape, length: usize) {
        let payload = length - shape.headers;
        self.last = index;
        self.count += 1;
        self.length += payload;
        if let Some(mine) = &mut self.shape {
            mine.sequence = shape.sequence;
            mine.push |= shape.push;
            self.closed = shape.push || payload < mine.segment_size;
        }
    }

    /// The headers of the super-packet, made from those of `first`, the train's first packet; `None` if the train
    /// is one packet, to be written as it is.
    pub fn header(&self, first: &[u8]) -> Option<Header> {
        let shape = self.shape.filter(|_| self.count > 1)?;
        let mut bytes = [0; MAX_HEADERS];
        bytes[..shape.headers].copy_from_slice(first.get(..shape.headers)?);
        let (header, transport) = bytes.split_at_mut(shape.ip_length);
        write_ip(header, self.length);
        let length = self.length - shape.ip_length;
        let (protocol, checksum_offset) = match shape.kind {
            Segmentation::Tcp => {
                transport[13] |= if shape.push { tcp::PSH } else { 0 };
                (ip::TCP, tcp::CHECKSUM)
            }
            Segmentation::Udp => {
                transport[4..6].copy_from_slice(&(length as u16).to_be_bytes());
                (ip::UDP, 6)
            }
        };
        let ip = Ip::parse(first).ok()?;
        let partial = Sum::pseudo_header(ip.source(), ip.destination(), protocol, length).fold();
        transport[checksum_offset..checksum_offset + 2].copy_from_slice(&partial.to_be_bytes());
        Some(Header {
            bytes,
            length: shape.headers,
            kind: shape.kind,
            segment_size: shape.segment_size as u16,
            checksum_start: shape.ip_length as u16,
            checksum_offset: checksum_offset as u16,
        })
    }
}

/// Writes the length of the whole packet, and IPv4's checksum.
fn write_ip(header: &mut [u8], length: usize) {
    if header[0] >> 4 == 6 {
        header[4..6].copy_from_slice(&((length - 40) as u16).to_be_bytes());
        return;
    }
    header[2..4].copy_from_slice(&(length as u16).to_be_bytes());
    header[10..12].fill(0);
    let checksum = Sum::default().bytes(header).finish();
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

impl Shape {
    /// The shape of a packet that may be joined with others.
    fn of(ip: &Ip<'_>, accepts: Accepts) -> Option<Self> {
        let plain = ip.header_len() == if ip.version() == 4 { 20 } else { 40 };
        if !plain || !ip.dont_fragment() || ip.is_fragment() {
            return None;
        }
        let shape = match ip.protocol() {
            ip::TCP if accepts.tcp => Self::of_tcp(ip),
            ip::UDP if accepts.udp => Self::of_udp(ip),
            _ => None,
        }?;
        let pseudo = Sum::pseudo_header(ip.source(), ip.destination(), ip.protocol(), ip.payload().len());
        verify(pseudo, ip.payload()).then_some(shape)
    }

    fn of_tcp(ip: &Ip<'_>) -> Option<Self> {
        let tcp = Tcp::parse(ip)?;
        let payload = tcp.payload().len();
        let joinable = tcp.flags() & !tcp::PSH == tcp::ACK && payload > 0;
        joinable.then_some(Self {
            kind: Segmentation::Tcp,
            ip_length: ip.header_len(),
            headers: ip.header_len() + tcp.header_len(),
            segment_size: payload,
            sequence: tcp.sequence().wrapping_add(payload as u32),
            push: tcp.flags() & tcp::PSH != 0,
        })
    }

    fn of_udp(ip: &Ip<'_>) -> Option<Self> {
        let udp: &[u8; 8] = ip.payload().first_chunk()?;
        let length = usize::from(u16::from_be_bytes([udp[4], udp[5]]));
        let joinable = length == ip.payload().len() && length > 8 && udp[6..8] != [0, 0];
        joinable.then(|| Self {
            kind: Segmentation::Udp,
            ip_length: ip.header_len(),
            headers: ip.header_len() + 8,
            segment_size: length - 8,
            sequence: 0,
            push: false,
        })
    }
}

/// Whether two packets of the same shape differ only where segments of one super-packet may.
fn same_headers(shape: &Shape, a: &[u8], b: &[u8]) -> bool {
    let same = |from: usize, to: usize| a.get(from..to) == b.get(from..to);
    let ip = match shape.ip_length {
        20 => same(0, 2) && same(6, 10) && same(12, 20),
        _ => same(0, 4) && same(6, 40),
    };
    let at = shape.ip_length;
    // Ports; then acknowledgement and header length, window, urgent pointer and options.
    let transport = match shape.kind {
        Segmentation::Tcp => same(at + 8, at + 13) && same(at + 14, at + 16) && same(at + 18, shape.headers),
        Segmentation::Udp => true,
    };
    ip && same(at, at + 4) && transport
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gso::split;
    use crate::testing::{Build, TcpFields, bytes};
    use proptest::prelude::*;

    const ALL: Accepts = Accepts { tcp: true, udp: true };

    fn data(build: Build, seq: u32, flags: u8, length: usize) -> Vec<u8> {
        let payload: Vec<u8> = (0..length).map(|i| (seq as usize + i) as u8).collect();
        build.tcp(TcpFields { seq, ack: 77, flags, options: &[1, 1, 1, 1] }, &payload)
    }

    fn grouped(packets: &[Vec<u8>]) -> Vec<Vec<usize>> {
        let mut trains = Trains::default();
        trains.group(packets, ALL);
        trains.iter().map(|train| trains.members(&train).collect()).collect()
    }

    /// Joins and cuts again, as the kernel would.
    fn round_trip(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut trains = Trains::default();
        trains.group(packets, ALL);
        let mut out = Vec::new();
        for train in trains.iter() {
            let Some(header) = train.header(&packets[train.first]) else {
                out.push(packets[train.first].clone());
                continue;
            };
            let mut joined = header.bytes().to_vec();
            trains.members(&train).for_each(|i| joined.extend(&packets[i][train.headers()..]));
            let size = usize::from(header.segment_size);
            split(&mut joined, header.kind, size, |packet| out.push(packet.to_vec())).unwrap();
        }
        out
    }

    /// IPv4's identification counts up in what the kernel makes of a super-packet.
    fn without_id(packet: &[u8]) -> Vec<u8> {
        let mut packet = packet.to_vec();
        if packet.first().is_some_and(|b| b >> 4 == 4) && packet.len() >= 20 {
            packet[4..6].fill(0);
            packet[10..12].fill(0);
        }
        packet
    }

    #[test]
    fn joins_a_flow_and_restores_it() {
        for build in [Build::v4(), Build::v6()] {
            let packets = [
                data(build, u32::MAX - 99, tcp::ACK, 100),
                data(build, 0, tcp::ACK, 100),
                data(build, 100, tcp::ACK | tcp::PSH, 60),
                data(build, 160, tcp::ACK, 100),
            ];
            assert_eq!(grouped(&packets), [vec![0, 1, 2], vec![3]]);
            let expected: Vec<_> = packets.iter().map(|p| without_id(p)).collect();
            assert_eq!(round_trip(&packets).iter().map(|p| without_id(p)).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn joins_udp_and_keeps_flows_apart() {
        let (a, b) = (Build::v4(), Build::v6());
        let packets = [a.udp(b"abc"), b.udp(b"x"), a.udp(b"def"), b.udp(b"y"), a.udp(b"g"), a.udp(b"hij")];
        assert_eq!(grouped(&packets), [vec![0, 2, 4], vec![1, 3], vec![5]]);
    }

    #[test]
    fn keeps_apart() {
        let build = Build::v4();
        let first = data(build, 0, tcp::ACK, 100);
        let mut corrupt = data(build, 100, tcp::ACK, 100);
        corrupt[90] ^= 1;
        let cases = [
            ("a gap", data(build, 101, tcp::ACK, 100)),
            ("a longer segment", data(build, 100, tcp::ACK, 101)),
            ("a FIN", data(build, 100, tcp::ACK | tcp::FIN, 100)),
            ("a bare ACK", data(build, 100, tcp::ACK, 0)),
            ("another ECN field", data(build.tos(3), 100, tcp::ACK, 100)),
            ("another family", data(Build::v6(), 100, tcp::ACK, 100)),
            ("a packet without DF", data(build.may_fragment(), 100, tcp::ACK, 100)),
            ("a wrong checksum", corrupt),
            ("no packet", vec![0x45, 0]),
        ];
        for (name, second) in cases {
            assert_eq!(grouped(&[first.clone(), second]), [[0], [1]], "{name}");
        }
    }

    #[test]
    fn bounds_a_train() {
        let packets: Vec<_> = (0..50).map(|i| data(Build::v4(), i * 1400, tcp::ACK, 1400)).collect();
        let groups = grouped(&packets);
        assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [46, 4]);
        assert_eq!(grouped(&vec![Build::v4().udp(b"a"); 65]).len(), 2);
        let short: Vec<_> = (0..2000).map(|i| data(Build::v4(), i * 20, tcp::ACK, 20)).collect();
        assert!(grouped(&short).iter().all(|train| train.len() + 2 <= 1024), "each goes as one write");
    }

    proptest! {
        /// Whatever comes, every packet goes out once, unchanged, and in its flow's order.
        #[test]
        fn loses_and_changes_nothing(
            steps in proptest::collection::vec((0u32..3, 1usize..4, any::<bool>(), any::<bool>()), 0..40),
            junk in bytes()
        ) {
            let mut packets: Vec<Vec<u8>> = Vec::new();
            let mut seq = 0;
            for (gap, length, push, six) in steps {
                let build = if six { Build::v6() } else { Build::v4() };
                let flags = tcp::ACK | if push { tcp::PSH } else { 0 };
                packets.push(data(build, seq, flags, length * 10));
                seq += length as u32 * 10 + gap / 2;
            }
            packets.push(junk);
            let sorted = |packets: &[Vec<u8>], version: u8| -> Vec<Vec<u8>> {
                let of = |p: &&Vec<u8>| p.first().map_or(0, |b| b >> 4) == version;
                packets.iter().filter(of).map(|p| without_id(p)).collect()
            };
            let out = round_trip(&packets);
            prop_assert_eq!(out.len(), packets.len());
            for version in 0..16 {
                prop_assert_eq!(sorted(&out, version), sorted(&packets, version));
            }
        }
    }
}
