//! IP packets that can be part of a sum.
//!
//! What goes into a sum is the packet from its IP header on, but for the fields that a router may change on the way
//! (TOS or traffic class, hop limit, IPv4's header checksum): these are zero in the sum and stand in the packet's
//! [`Label`], so that the copy which a neighbour kept equals the packet that the relay adds.

use std::hash::Hasher;
use std::net::SocketAddr;

use packet::checksum::{Sum, verify};
use packet::{Ip, Tcp, tcp};
use siphasher::sip::SipHasher24;

/// What identifies a packet in a sum, and what the sum leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Half of SipHash of the packet with its mutable fields zero: finds the copy, and tells whether a packet was decoded right. A
    /// CRC would not: it is linear, so that a wrong copy with the right CRC always gives a wrong packet with the right one.
    pub digest: u32,
    /// Bytes of the packet.
    pub length: u16,
    /// TOS or traffic class.
    pub tos: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
}

/// What a packet is to the NC layer (figure 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// TCP with payload.
    Data,
    /// TCP that only acknowledges.
    Ack,
    /// TCP with SYN: a flow begins.
    Open,
    /// TCP with FIN or RST: a flow ends.
    Close,
    /// Not TCP.
    Other,
}

/// The two ends of a TCP connection, the lesser first, whichever direction the packet has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowKey(SocketAddr, SocketAddr);

impl FlowKey {
    /// The flow's number in NC headers: the same in every node and both directions.
    pub fn id(&self) -> u16 {
        let mut hasher = crc32fast::Hasher::new();
        for end in [self.0, self.1] {
            match end.ip() {
                std::net::IpAddr::V4(address) => hasher.update(&address.octets()),
                std::net::IpAddr::V6(address) => hasher.update(&address.octets()),
            }
            hasher.update(&end.port().to_be_bytes());
        }
        let hash = hasher.finalize();
        (hash ^ hash >> 16) as u16
    }
}

/// A TCP segment's place: what the NC header of an uncoded packet says of it (4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The connection.
    pub flow: FlowKey,
    /// TCP's sequence number.
    pub sequence: u32,
    /// TCP's checksum.
    pub checksum: u16,
}

/// A whole, unfragmented IP packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    bytes: Vec<u8>,
    label: Label,
    kind: Kind,
    segment: Option<Segment>,
}

impl Datagram {
    /// Checks `bytes`. `None` if they are not exactly one packet, or one of several fragments, or IPv4 whose header checksum is
    /// wrong, so that it could not be made anew.
    pub fn parse(bytes: Vec<u8>) -> Option<Self> {
        let view = Ip::parse(&bytes).ok()?;
        let wrong = view.version() == 4 && !verify(Sum::default(), &bytes[..view.header_len()]);
        if view.is_fragment() || wrong {
            return None;
        }
        let (kind, segment) = Tcp::parse(&view).map_or((Kind::Other, None), |tcp| classify(&view, &tcp));
        let hop_limit = if view.version() == 4 { bytes[8] } else { bytes[7] };
        let tos = view.tos();
        let digest = digest(&canonical(&bytes));
        // 65,575 bytes of IPv6 cannot be told in 16 bits; no link carries them as one frame either.
        let length = u16::try_from(bytes.len()).ok()?;
        Some(Self { label: Label { digest, length, tos, hop_limit }, kind, segment, bytes })
    }

    /// Takes a packet out of what is left of a sum when its other packet is subtracted.
    ///
    /// `None` if the digest is not the label's: the partner was the wrong one, or the frame was damaged.
    pub(crate) fn restore(mut canonical: Vec<u8>, label: Label) -> Option<Self> {
        if digest(&canonical) != label.digest {
            return None;
        }
        match canonical.first().map(|byte| byte >> 4) {
            Some(4) if canonical.len() >= 20 => {
                (canonical[1], canonical[8]) = (label.tos, label.hop_limit);
                let header = usize::from(canonical[0] & 15) * 4;
                let checksum = Sum::default().bytes(canonical.get(..header)?).finish();
                canonical[10..12].copy_from_slice(&checksum.to_be_bytes());
            }
            Some(6) if canonical.len() >= 40 => {
                canonical[0] |= label.tos >> 4;
                canonical[1] |= label.tos << 4;
                canonical[7] = label.hop_limit;
            }
            _ => return None,
        }
        Self::parse(canonical).filter(|datagram| datagram.label == label)
    }

    /// The packet.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What identifies it in a sum.
    pub fn label(&self) -> Label {
        self.label
    }

    /// What it is to the NC layer.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its place in a TCP connection, if it belongs to one.
    pub fn segment(&self) -> Option<Segment> {
        self.segment
    }

    /// The packet with its mutable fields zero.
    pub(crate) fn canonical(&self) -> Vec<u8> {
        canonical(&self.bytes)
    }
}

fn classify(view: &Ip<'_>, segment: &Tcp<'_>) -> (Kind, Option<Segment>) {
    let kind = match segment.flags() {
        flags if flags & tcp::SYN != 0 => Kind::Open,
        flags if flags & (tcp::FIN | tcp::RST) != 0 => Kind::Close,
        _ if !segment.payload().is_empty() => Kind::Data,
        _ => Kind::Ack,
    };
    let bytes = view.payload();
    let source = SocketAddr::new(view.source(), u16::from_be_bytes([bytes[0], bytes[1]]));
    let destination = SocketAddr::new(view.destination(), u16::from_be_bytes([bytes[2], bytes[3]]));
    let flow = FlowKey(source.min(destination), source.max(destination));
    let checksum = u16::from_be_bytes([bytes[16], bytes[17]]);
    (kind, Some(Segment { flow, sequence: segment.sequence(), checksum }))
}

/// All nodes have the same key: what is to be told apart are packets, not their senders.
fn digest(canonical: &[u8]) -> u32 {
    let mut hasher = SipHasher24::new();
    hasher.write(canonical);
    hasher.finish() as u32
}

/// `bytes`, which were parsed, with the mutable fields zero.
fn canonical(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes[0] >> 4 == 4 {
        (bytes[1], bytes[8]) = (0, 0);
        bytes[10..12].fill(0);
    } else {
        bytes[0] &= 0xf0;
        bytes[1] &= 0x0f;
        bytes[7] = 0;
    }
    bytes
}

/// The exact packet at the front of `bytes`, without what Ethernet padded it with; `None` if it is no IP packet.
pub(crate) fn without_padding(bytes: &[u8]) -> Option<&[u8]> {
    let word = |at: usize| bytes.get(at..at + 2).map(|b| usize::from(u16::from_be_bytes([b[0], b[1]])));
    let length = match bytes.first()? >> 4 {
        4 => word(2)?,
        6 => word(4)? + 40,
        _ => return None,
    };
    bytes.get(..length)
}
