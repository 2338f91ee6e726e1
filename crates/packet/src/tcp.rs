//! TCP headers (RFC 9293) and the clamp of their maximum segment size.

use crate::ip::{self, Ip, replace_checksum};

/// FIN, as a bit of [`Tcp::flags`].
pub const FIN: u8 = 0x01;
/// SYN.
pub const SYN: u8 = 0x02;
/// RST.
pub const RST: u8 = 0x04;
/// PSH.
pub const PSH: u8 = 0x08;
/// ACK.
pub const ACK: u8 = 0x10;
/// CWR (RFC 3168 §6.1).
pub const CWR: u8 = 0x80;

/// Where the checksum lies in a TCP header.
pub(crate) const CHECKSUM: usize = 16;
/// Where the window lies in it.
const WINDOW: usize = 14;

/// A checked TCP header and what follows it.
#[derive(Clone, Copy, Debug)]
pub struct Tcp<'a> {
    bytes: &'a [u8],
    header_len: usize,
}

impl<'a> Tcp<'a> {
    /// The TCP segment in `ip`; `None` if it is none, cut off, or a later fragment.
    pub fn parse(ip: &Ip<'a>) -> Option<Self> {
        let bytes = ip.payload();
        if ip.protocol() != ip::TCP || !ip.has_transport_header() || bytes.len() < 20 {
            return None;
        }
        let header_len = usize::from(bytes[12] >> 4) * 4;
        (20..=bytes.len()).contains(&header_len).then_some(Self { bytes, header_len })
    }

    /// The header with its options, in bytes: 20 to 60.
    pub fn header_len(&self) -> usize {
        self.header_len
    }

    /// Sequence number of the first payload byte (or SYN).
    pub fn sequence(&self) -> u32 {
        let b = self.bytes;
        u32::from_be_bytes([b[4], b[5], b[6], b[7]])
    }

    /// What its sender expects next; means something with [`ACK`] only.
    pub fn acknowledgment(&self) -> u32 {
        let b = self.bytes;
        u32::from_be_bytes([b[8], b[9], b[10], b[11]])
    }

    /// The receive window as it stands in the header, unscaled.
    pub fn window(&self) -> u16 {
        u16::from_be_bytes([self.bytes[14], self.bytes[15]])
    }

    /// The shift that a SYN offers for its sender's windows, 0 to 14; larger ones count as 14 (RFC 7323 §2.3).
    pub fn window_scale(&self) -> Option<u8> {
        self.option(3, |length| length == 3).map(|at| self.bytes[at + 2].min(14))
    }

    /// How many blocks the SACK option has, 0 to 4 (RFC 2018 §3).
    pub fn sack_blocks(&self) -> usize {
        self.sacked().count()
    }

    /// Its blocks, from where to where.
    fn sacked(&self) -> impl Iterator<Item = [u32; 2]> + use<'a> {
        let option = self.option(5, |length| length >= 10 && length % 8 == 2);
        let blocks = option.map_or(&[][..], |at| &self.bytes[at + 2..at + usize::from(self.bytes[at + 1])]);
        let edge =
            |block: &[u8], at| u32::from_be_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
        blocks.chunks_exact(8).map(move |block| [edge(block, 0), edge(block, 4)])
    }

    /// Whether the first block tells of what has come twice (RFC 2883 §4): it is acknowledged already, or within the second.
    fn has_dsack(&self) -> bool {
        let mut blocks = self.sacked();
        let (first, second) = (blocks.next(), blocks.next());
        first.is_some_and(|first| {
            is_before(first[0], self.acknowledgment())
                || second.is_some_and(|second| is_within(first, second))
        })
    }

    /// The flags from CWR (0x80) down to FIN (0x01).
    pub fn flags(&self) -> u8 {
        self.bytes[13]
    }

    /// What follows the header.
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[self.header_len..]
    }

    /// Whether its header is under a signature (RFC 2385, RFC 5925): who changes it breaks the connection.
    pub fn is_signed(&self) -> bool {
        [19, 29].into_iter().any(|kind| self.option(kind, |length| length >= 2).is_some())
    }

    /// Offset in the TCP header of the maximum segment size's two bytes (RFC 9293 §3.7.1).
    fn mss_at(&self) -> Option<usize> {
        self.option(2, |length| length == 4).map(|at| at + 2)
    }

    /// Offset in the TCP header of the first option of this kind whose length is right and that the header holds.
    fn option(&self, kind: u8, right: impl Fn(u8) -> bool) -> Option<usize> {
        let mut at = 20;
        while at < self.header_len {
            let left = &self.bytes[at..self.header_len];
            match *left {
                [0, ..] => return None,
                [1, ..] => at += 1,
                [found, length, ..]
                    if found == kind && right(length) && usize::from(length) <= left.len() =>
                {
                    return Some(at);
                }
                [_, length, ..] if length >= 2 => at += usize::from(length),
                _ => return None,
            }
        }
        None
    }
}

/// Whether `packet` is a TCP acknowledgement and nothing else: no data, and no place in the sequence of either end.
pub fn is_pure_ack(packet: &[u8]) -> bool {
    let Ok(ip) = Ip::parse(packet) else { return false };
    let only_ack = |tcp: &Tcp| tcp.payload().is_empty() && tcp.flags() & (SYN | FIN | RST | ACK) == ACK;
    Tcp::parse(&ip).is_some_and(|tcp| only_ack(&tcp))
}

/// Whether one place in a sequence comes before another.
fn is_before(one: u32, other: u32) -> bool {
    one.wrapping_sub(other).cast_signed() < 0
}

fn is_within(inner: [u32; 2], outer: [u32; 2]) -> bool {
    !is_before(inner[0], outer[0]) && !is_before(outer[1], inner[1])
}

/// Whether both packets are acknowledgements of one connection and nothing else, and `newer` says all that `older` does: it
/// acknowledges as much and, where it does not acknowledge more, has SACK blocks; what `older` has in such blocks it acknowledges or has
/// in its own; they do not differ in their marks, and nothing in `older` has come twice.
pub fn says_all_of(newer: &[u8], older: &[u8]) -> bool {
    if !is_pure_ack(newer) || !is_pure_ack(older) {
        return false;
    }
    let (Ok(new), Ok(old)) = (Ip::parse(newer), Ip::parse(older)) else { return false };
    let (Some(n), Some(o)) = (Tcp::parse(&new), Tcp::parse(&old)) else { return false };
    let ends = new.source() == old.source() && new.destination() == old.destination();
    let marks = |tcp: &Tcp<'_>, ip: &Ip<'_>| (tcp.bytes[12] & 0xf, tcp.flags(), ip.tos());
    let ahead = n.acknowledgment().wrapping_sub(o.acknowledgment()).cast_signed();
    let said = |block: [u32; 2]| {
        !is_before(n.acknowledgment(), block[1]) || n.sacked().any(|other| is_within(block, other))
    };
    ends && n.bytes[..8] == o.bytes[..8]
        && marks(&n, &new) == marks(&o, &old)
        && (ahead > 0 || (ahead == 0 && n.sack_blocks() > 0))
        && !o.has_dsack()
        && o.sacked().all(said)
}

/// Lowers the maximum segment size that a SYN announces to what fits into `mtu` (in bytes, of the IP packet), and
/// corrects the checksum. Returns whether it did; never raises one (RFC 6691 §2 says which headers count).
pub fn clamp_mss(packet: &mut [u8], mtu: u16) -> bool {
    let Some((tcp_at, mss_at, headers)) = find_mss(packet) else { return false };
    let Some(limit) = mtu.checked_sub(headers).filter(|limit| *limit > 0) else { return false };
    let old = u16::from_be_bytes([packet[mss_at], packet[mss_at + 1]]);
    if old <= limit {
        return false;
    }
    packet[mss_at..mss_at + 2].copy_from_slice(&limit.to_be_bytes());
    let odd = (mss_at - tcp_at) % 2 == 1;
    let turn = |word: u16| if odd { word.swap_bytes() } else { word };
    replace_checksum(packet, tcp_at + CHECKSUM, turn(old), turn(limit));
    true
}

/// Writes the window field of the TCP segment in `packet` and corrects the checksum; nothing if it is no TCP segment.
pub fn set_window(packet: &mut [u8], window: u16) {
    let Some(tcp_at) = Ip::parse(packet).ok().and_then(|ip| Tcp::parse(&ip).map(|_| ip.header_len())) else {
        return;
    };
    let at = tcp_at + WINDOW;
    let old = u16::from_be_bytes([packet[at], packet[at + 1]]);
    packet[at..at + 2].copy_from_slice(&window.to_be_bytes());
    replace_checksum(packet, tcp_at + CHECKSUM, old, window);
}

/// Offsets of the TCP header and its MSS value, and the bytes of fixed headers, if `packet` is a SYN with one.
fn find_mss(packet: &[u8]) -> Option<(usize, usize, u16)> {
    let ip = Ip::parse(packet).ok()?;
    let tcp = Tcp::parse(&ip).filter(|tcp| tcp.flags() & SYN != 0 && !tcp.is_signed())?;
    let headers = if ip.version() == 4 { 40 } else { 60 };
    Some((ip.header_len(), ip.header_len() + tcp.mss_at()?, headers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Build, TcpFields, bytes, checksums_right};
    use proptest::prelude::*;

    fn syn(options: &[u8]) -> TcpFields<'_> {
        TcpFields { seq: 5, flags: SYN, options, ..Default::default() }
    }

    #[test]
    fn clamps() {
        const AT_EVEN: &[u8] = &[2, 4, 0x05, 0xb4, 1, 1, 1, 1];
        const AT_ODD: &[u8] = &[1, 2, 4, 0x05, 0xb4, 1, 1, 1];
        const AFTER_OTHERS: &[u8] = &[8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 4, 2, 1, 2, 4, 0x05, 0xb4, 0, 0, 0];
        for (build, mtu, expected) in [(Build::v4(), 1340, 1300u16), (Build::v6(), 1340, 1280)] {
            for options in [AT_EVEN, AT_ODD, AFTER_OTHERS] {
                let mut packet = build.tcp(syn(options), b"");
                assert!(clamp_mss(&mut packet, mtu), "{options:?}");
                let (_, at, _) = find_mss(&packet).unwrap();
                assert_eq!(packet[at..at + 2], expected.to_be_bytes());
                assert!(checksums_right(&packet));
                assert!(!clamp_mss(&mut packet, mtu), "once is enough");
            }
        }
    }

    #[test]
    fn leaves_signed_segments_alone() {
        for (kind, length) in [(19, 18), (29, 16)] {
            let options = [&[2, 4, 0x05, 0xb4, kind, length][..], &[0; 18]].concat();
            let mut packet = Build::v4().tcp(syn(&options), b"");
            assert!(!clamp_mss(&mut packet, 1000), "{kind}");
        }
    }

    #[test]
    fn counts_sack_blocks() {
        let count = |options: &[u8]| {
            let packet = Build::v4().tcp(TcpFields { ack: 7, options, ..Default::default() }, b"");
            let tcp = Tcp::parse(&Ip::parse(&packet).unwrap()).unwrap();
            assert_eq!((tcp.acknowledgment(), tcp.window()), (7, 0x0100));
            tcp.sack_blocks()
        };
        let blocks = |length: u8| [&[1, 1, 5, length][..], &[0; 32]].concat();
        assert_eq!([10, 18, 26, 34].map(|length| count(&blocks(length))), [1, 2, 3, 4]);
        assert_eq!([2, 9, 12, 42].map(|length| count(&blocks(length))), [0; 4], "lengths that cannot be");
        assert_eq!((count(&[]), count(&[4, 2, 1, 1])), (0, 0), "permitted is not used");
    }

    #[test]
    fn a_pure_ack_is_nothing_else() {
        let with = |flags, data: &[u8]| Build::v4().tcp(TcpFields { flags, ..Default::default() }, data);
        assert!(is_pure_ack(&with(ACK, b"")) && is_pure_ack(&with(ACK | CWR, b"")));
        assert!(is_pure_ack(&Build::v6().tcp(TcpFields { flags: ACK, ..Default::default() }, b"")));
        for flags in [0, ACK | SYN, ACK | FIN, ACK | RST] {
            assert!(!is_pure_ack(&with(flags, b"")), "{flags}");
        }
        assert!(!is_pure_ack(&with(ACK, b"x")) && !is_pure_ack(&Build::v4().udp(b"")) && !is_pure_ack(b""));
    }

    #[test]
    fn a_later_ack_says_what_an_earlier_one_does() {
        let ack = |ack: u32, blocks: &[[u32; 2]]| {
            let edges = blocks.iter().flatten().flat_map(|edge| edge.to_be_bytes());
            let length = 2 + 8 * blocks.len() as u8;
            let options: Vec<u8> = [1, 1, 5, length].into_iter().chain(edges).collect();
            let options = if blocks.is_empty() { &[][..] } else { &options };
            Build::v4().tcp(TcpFields { ack, flags: ACK, options, ..Default::default() }, b"")
        };
        // At the sequence's wrap, too.
        for base in [1000, 500u32.wrapping_neg()] {
            let at = |n: u32| base.wrapping_add(n);
            let block = |from, to| [at(from), at(to)];
            let says = |newer: (u32, &[[u32; 2]]), older: (u32, &[[u32; 2]])| {
                says_all_of(&ack(at(newer.0), newer.1), &ack(at(older.0), older.1))
            };
            assert!(says((200, &[]), (100, &[])) && !says((100, &[]), (200, &[])));
            assert!(!says((100, &[]), (100, &[])), "senders without SACK count these");
            assert!(says((100, &[block(200, 300)]), (100, &[])), "the first beyond a gap");
            assert!(says((100, &[block(200, 400)]), (100, &[block(200, 300)])), "one more beyond it");
            assert!(!says((100, &[block(200, 300)]), (100, &[block(200, 400)])));
            let two = [block(500, 600), block(200, 400)];
            assert!(says((100, &two), (100, &[block(200, 400)])) && !says((100, &two[..1]), (100, &two)));
            assert!(says((400, &two[..1]), (100, &two)), "what is acknowledged needs no block");
            assert!(says((700, &[]), (100, &two)));
            assert!(
                !says((400, &[]), (300, &[block(100, 200)])),
                "what came twice, before the acknowledgement"
            );
            let twice = [block(200, 250), block(200, 400)];
            assert!(!says((700, &[]), (100, &twice)), "and behind it");
            assert!(says((700, &twice), (100, &[block(200, 400)])));
        }
        let marked = TcpFields { ack: 200, flags: ACK | 0x40, ..Default::default() };
        assert!(!says_all_of(&Build::v4().tcp(marked, b""), &ack(100, &[])), "ECN-Echo");
        assert!(!says_all_of(
            &Build::v6().tcp(TcpFields { ack: 9, flags: ACK, ..Default::default() }, b""),
            &ack(1, &[])
        ));
    }

    #[test]
    fn a_window_is_read_and_written() {
        for build in [Build::v4(), Build::v6()] {
            let mut packet = build.tcp(syn(&[2, 4, 5, 0xb4, 1, 3, 3, 7]), b"data");
            set_window(&mut packet, 4711);
            let ip = Ip::parse(&packet).unwrap();
            let tcp = Tcp::parse(&ip).unwrap();
            assert_eq!((tcp.window(), tcp.window_scale()), (4711, Some(7)));
            assert!(checksums_right(&packet));
        }
        let scale = |options: &[u8]| {
            let packet = Build::v4().tcp(syn(options), b"");
            Tcp::parse(&Ip::parse(&packet).unwrap()).unwrap().window_scale()
        };
        assert_eq!(scale(&[3, 3, 200, 1]), Some(14));
        for none in [&[1, 1, 1, 1][..], &[1, 1, 3, 3], &[3, 4, 7, 7], &[0, 3, 3, 7]] {
            assert_eq!(scale(none), None, "{none:?}");
        }
        let mut udp = Build::v4().udp(b"twenty bytes and some more");
        let before = udp.clone();
        set_window(&mut udp, 1);
        assert_eq!(udp, before);
    }

    #[test]
    fn leaves_alone() {
        let mss = [2, 4, 0x05, 0xb4];
        let cases = [
            ("an MSS that fits", Build::v4().tcp(syn(&mss), b""), 1500),
            ("no SYN", Build::v4().tcp(TcpFields { flags: ACK, ..syn(&mss) }, b""), 600),
            ("no MSS", Build::v4().tcp(syn(&[1, 1, 1, 1]), b""), 600),
            ("an MSS behind the end of options", Build::v4().tcp(syn(&[0, 1, 1, 1, 2, 4, 9, 9]), b""), 600),
            ("an option of length 0", Build::v4().tcp(syn(&[9, 0, 2, 4, 9, 9, 0, 0]), b""), 600),
            ("an option beyond the header", Build::v4().tcp(syn(&[9, 44, 0, 0]), b""), 600),
            ("an MSS cut off by the header's end", Build::v4().tcp(syn(&[1, 1, 2, 4]), &[9, 9]), 600),
            ("an MTU below the headers", Build::v4().tcp(syn(&mss), b""), 40),
            ("UDP", Build::v4().udp(&mss), 600),
        ];
        for (name, packet, mtu) in cases {
            let mut changed = packet.clone();
            assert!(!clamp_mss(&mut changed, mtu), "{name}");
            assert_eq!(changed, packet, "{name}");
        }
    }

    proptest! {
        #[test]
        fn never_panics_and_keeps_checksums(
            options in proptest::collection::vec(0u8..12, 0..=10), six: bool, mtu: u16, mut junk in bytes()
        ) {
            let options: Vec<u8> = options.iter().flat_map(|o| [*o, 4, 200, *o]).collect();
            let mut packet = if six { Build::v6() } else { Build::v4() }.tcp(syn(&options), b"x");
            clamp_mss(&mut packet, mtu);
            prop_assert!(checksums_right(&packet));
            clamp_mss(&mut junk, mtu);
        }
    }
}
