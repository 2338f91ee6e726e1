//! The header before every packet of a TUN with IFF_VNET_HDR (virtio 1.2 §5.1.6, in the machine's byte order).

use packet::gro::Header;
use packet::gso::Segmentation;

/// The checksum field holds only the pseudo-header's sum.
const NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCP_V4: u8 = 1;
const GSO_TCP_V6: u8 = 4;
const GSO_UDP: u8 = 5;
/// A bit beside the kinds: CWR is set in the first segment only.
const GSO_ECN: u8 = 0x80;

/// `struct virtio_net_hdr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VirtioHeader {
    flags: u8,
    kind: u8,
    headers: u16,
    segment_size: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

impl VirtioHeader {
    /// In bytes.
    pub(crate) const LENGTH: usize = 10;

    /// The header of what was read, and the packet behind it; `None` if it is too short.
    pub(crate) fn parse(read: &mut [u8]) -> Option<(Self, &mut [u8])> {
        let (header, packet) = read.split_first_chunk_mut::<{ Self::LENGTH }>()?;
        let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let header = Self {
            flags: header[0],
            kind: header[1],
            headers: word(2),
            segment_size: word(4),
            checksum_start: word(6),
            checksum_offset: word(8),
        };
        Some((header, packet))
    }

    /// The header for a super-packet.
    pub(crate) fn of(joined: &Header) -> Self {
        let kind = match (joined.kind, joined.bytes()[0] >> 4) {
            (Segmentation::Udp, _) => GSO_UDP,
            (Segmentation::Tcp, 4) => GSO_TCP_V4,
            (Segmentation::Tcp, _) => GSO_TCP_V6,
        };
        Self {
            flags: NEEDS_CHECKSUM,
            kind,
            headers: joined.bytes().len() as u16,
            segment_size: joined.segment_size,
            checksum_start: joined.checksum_start,
            checksum_offset: joined.checksum_offset,
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [self.flags, self.kind, 0, 0, 0, 0, 0, 0, 0, 0];
        let words = [self.headers, self.segment_size, self.checksum_start, self.checksum_offset];
        for (to, word) in bytes[2..].chunks_exact_mut(2).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// How the packet has to be cut, if at all. A kind that was never asked for counts as TCP's, whose parser
    /// then refuses it.
    pub(crate) fn segmentation(&self) -> Option<Segmentation> {
        match self.kind & !GSO_ECN {
            GSO_NONE => None,
            GSO_UDP => Some(Segmentation::Udp),
            _ => Some(Segmentation::Tcp),
        }
    }

    /// Payload of each segment but the last, in bytes.
    pub(crate) fn segment_size(&self) -> usize {
        usize::from(self.segment_size)
    }

    /// Where the sum over a packet of `length` bytes begins and where it belongs, if it has to be filled in.
    pub(crate) fn checksum(&self, length: usize) -> Option<(usize, usize)> {
        let start = usize::from(self.checksum_start);
        let at = start + usize::from(self.checksum_offset);
        (self.flags & NEEDS_CHECKSUM != 0 && at + 2 <= length).then_some((start, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_read_as_it_was_written() {
        let header = VirtioHeader {
            flags: 1,
            kind: GSO_TCP_V6,
            headers: 72,
            segment_size: 1400,
            ..Default::default()
        };
        let mut bytes = [&header.to_bytes()[..], b"packet"].concat();
        let (read, packet) = VirtioHeader::parse(&mut bytes).unwrap();
        assert_eq!((read, &*packet), (header, &b"packet"[..]));
        assert_eq!(VirtioHeader::parse(&mut bytes[..9]), None);
    }

    #[test]
    fn a_checksum_outside_the_packet_is_ignored() {
        let header = VirtioHeader { flags: 1, checksum_start: 20, checksum_offset: 16, ..Default::default() };
        assert_eq!(header.checksum(38), Some((20, 36)));
        assert_eq!(header.checksum(37), None);
        assert_eq!(VirtioHeader { flags: 0, ..header }.checksum(38), None);
    }
}
