//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624).

use std::net::IpAddr;

/// A running one's complement sum.
///
/// Kept in the machine's own byte order and turned once, in [`Sum::fold`] (RFC 1071 §2 (B)), so that adding a
/// payload is one wide load per word.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// The pseudo-header of TCP, UDP and ICMPv6 (RFC 9293 §3.1, RFC 8200 §8.1).
    ///
    /// `length` is that of the transport header and its payload, in bytes.
    pub fn pseudo_header(source: IpAddr, destination: IpAddr, protocol: u8, length: usize) -> Self {
        let length = length as u32;
        Self::default()
            .address(source)
            .address(destination)
            .word(u16::from(protocol))
            .word((length >> 16) as u16)
            .word(length as u16)
    }

    fn address(self, address: IpAddr) -> Self {
        match address {
            IpAddr::V4(a) => self.bytes(&a.octets()),
            IpAddr::V6(a) => self.bytes(&a.octets()),
        }
    }

    /// Adds one 16-bit word, given in host order.
    #[must_use]
    pub fn word(self, word: u16) -> Self {
        Self(self.0 + u64::from(word.to_be()))
    }

    /// Adds `bytes`, which must begin at an even offset of what is summed. At most 4 GiB in all.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        let (words, tail) = bytes.as_chunks::<4>();
        let sum: u64 = words.iter().map(|w| u64::from(u32::from_ne_bytes(*w))).sum();
        let mut last = [0; 4];
        last[..tail.len()].copy_from_slice(tail);
        Self(self.0 + sum + u64::from(u32::from_ne_bytes(last)))
    }

    /// The sum folded to 16 bits, not complemented, in host order: what a partial checksum field holds.
    pub fn fold(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        u16::from_be(sum as u16)
    }

    /// The checksum: the complement of [`Sum::fold`], in host order.
    pub fn finish(self) -> u16 {
        !self.fold()
    }

    /// As [`Sum::finish`], with 0xffff for 0, which in UDP means "none" (RFC 768).
    pub fn finish_udp(self) -> u16 {
        match self.finish() {
            0 => 0xffff,
            sum => sum,
        }
    }
}

/// The checksum that follows when the 16-bit word `old` becomes `new` (RFC 1624 §3, equation 3).
///
/// For a word at an odd offset give both with their bytes swapped.
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    Sum::default().word(!checksum).word(!old).word(new).finish()
}

/// Whether `bytes`, which include their checksum field, sum to what a right checksum gives.
pub fn verify(start: Sum, bytes: &[u8]) -> bool {
    start.bytes(bytes).fold() == 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 1071 §3, the worked example.
    #[test]
    fn rfc_1071_example() {
        let sum = Sum::default().bytes(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.fold(), 0xddf2);
    }

    /// RFC 1624 §4, the example in which equation 2 fails and equation 3 does not.
    #[test]
    fn rfc_1624_example() {
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    fn reference(bytes: &[u8]) -> u16 {
        let word = |c: &[u8]| u32::from(u16::from_be_bytes([c[0], *c.get(1).unwrap_or(&0)]));
        bytes.chunks(2).map(word).fold(0u32, |s, w| (s + w) % 0xffff) as u16
    }

    proptest! {
        #[test]
        fn equals_the_definition(bytes: Vec<u8>) {
            prop_assert_eq!(Sum::default().bytes(&bytes).fold() % 0xffff, reference(&bytes));
        }

        #[test]
        fn update_equals_recomputing(mut bytes in proptest::collection::vec(any::<u8>(), 4..64), at: u16, new: u16) {
            let at = usize::from(at) % (bytes.len() - 1);
            let before = Sum::default().bytes(&bytes).finish();
            let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
            let turn = |w: u16| if at % 2 == 1 { w.swap_bytes() } else { w };
            let after = update(before, turn(old), turn(new));
            prop_assert_eq!(after % 0xffff, Sum::default().bytes(&bytes).finish() % 0xffff);
        }
    }
}
