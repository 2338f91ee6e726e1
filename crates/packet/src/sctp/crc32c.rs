//! CRC32c, as SCTP takes it (RFC 9260 appendix A).

/// The polynomial of Castagnoli, its bits turned round.
const POLYNOMIAL: u32 = 0x82f6_3b78;

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut remainder, mut bit) = (byte as u32, 0);
        while bit < 8 {
            remainder = remainder >> 1 ^ if remainder & 1 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        table[byte] = remainder;
        byte += 1;
    }
    table
}

/// Of `parts`, one after another. For tests and the lab: a byte at a time.
pub fn crc32c<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let step = |crc: u32, byte: &u8| crc >> 8 ^ TABLE[usize::from(crc as u8 ^ byte)];
    !parts.into_iter().flatten().fold(u32::MAX, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720 §B.4, and the check value of the catalogue of CRCs.
    #[test]
    fn published_examples() {
        let rising: Vec<u8> = (0..32).collect();
        let examples: [(&[u8], u32); 4] = [
            (&[0; 32], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&rising, 0x46dd_794e),
            (b"123456789", 0xe306_9283),
        ];
        for (bytes, expected) in examples {
            assert_eq!(crc32c([bytes]), expected);
        }
    }
}
