//! The decoder: one packet out of a sum, by means of the other.

use crate::datagram::{Datagram, Label};
use crate::decoding_buffer::DecodingBuffer;
use crate::encoder::add;
use crate::ethernet::Mac;
use crate::header::Coded;

/// Why nothing came out of a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// Neither packet is for this node.
    NotForUs,
    /// This node has no copy of the other packet.
    NoPartner,
    /// The digest of what came out is not the label's: another packet has the partner's digest, or the frame is
    /// damaged or forged.
    WrongPartner,
}

/// The packet for `own` out of a sum that was sent to `destination`.
pub fn decode(
    buffer: &DecodingBuffer,
    own: Mac,
    destination: Mac,
    coded: &Coded<'_>,
) -> Result<Datagram, DecodeError> {
    let (wanted, partner) = roles(own, destination, coded).ok_or(DecodeError::NotForUs)?;
    let copy = buffer.find(partner).ok_or(DecodeError::NoPartner)?;
    let mut packet = add(coded.sum.to_vec(), copy);
    // What lies beyond the packet is the partner's, and cancelled out; if not, the digest does not tell, so look.
    let beyond = packet.split_off(usize::from(wanted.length).min(packet.len()));
    if beyond.iter().any(|byte| *byte != 0) {
        return Err(DecodeError::WrongPartner);
    }
    Datagram::restore(packet, wanted).ok_or(DecodeError::WrongPartner)
}

/// The label of the packet that `own` wants, and that of the one it must have sent.
fn roles(own: Mac, destination: Mac, coded: &Coded<'_>) -> Option<(Label, Label)> {
    if destination == own {
        Some((coded.first, coded.second))
    } else if coded.second_receiver == own {
        Some((coded.second, coded.first))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoder::{Part, encode};
    use crate::ethernet::Frame;
    use crate::header::Header;

    const RELAY: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const LEFT: Mac = Mac([2, 0, 0, 0, 0, 2]);
    const RIGHT: Mac = Mac([2, 0, 0, 0, 0, 3]);

    fn packet(length: u8, fill: u8) -> Datagram {
        let mut bytes = vec![fill; 40 + usize::from(length)];
        bytes[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, length, 17, 64]);
        Datagram::parse(bytes).unwrap()
    }

    /// What `LEFT`, which sent `kept`, gets out of the sum of `longer` to `RIGHT` and `shorter` to itself.
    fn at_left(kept: &Datagram, damage: impl Fn(&mut [u8])) -> Result<Datagram, DecodeError> {
        let [longer, shorter] = [packet(50, 1), packet(20, 2)];
        let part = |datagram, receiver| Part { datagram, receiver };
        let mut frame = encode(RELAY, part(&longer, RIGHT), part(&shorter, LEFT), 0, false);
        damage(&mut frame);
        let frame = Frame::parse(&frame).unwrap();
        let Ok(Header::Coded(coded)) = Header::parse(frame.payload) else { panic!("a sum") };
        let mut buffer = DecodingBuffer::default();
        buffer.insert(kept);
        decode(&buffer, LEFT, frame.destination, &coded)
    }

    #[test]
    fn the_copy_that_was_kept_gives_the_other_packet() {
        assert_eq!(at_left(&packet(50, 1), |_| ()), Ok(packet(20, 2)));
    }

    #[test]
    fn a_missing_partner_is_told() {
        assert_eq!(at_left(&packet(50, 9), |_| ()), Err(DecodeError::NoPartner));
    }

    /// The label of a packet that was kept, on a sum of another one.
    #[test]
    fn a_wrong_partner_is_detected() {
        let kept = packet(50, 9);
        let digest = kept.label().digest.to_be_bytes();
        let wrong = Err(DecodeError::WrongPartner);
        assert_eq!(at_left(&kept, |frame| frame[24..28].copy_from_slice(&digest)), wrong);
    }

    /// CRC-32's polynomial, bit by bit, added to a packet leaves its CRC as it was; and what is decoded with such a copy has the
    /// CRC that it should have.
    #[test]
    fn a_copy_with_the_same_crc_is_told_apart() {
        let mut bytes = packet(50, 1).bytes().to_vec();
        bytes[60..65].iter_mut().zip([0x41, 0x06, 0x71, 0xdb, 0x01]).for_each(|(byte, bits)| *byte ^= bits);
        let other = Datagram::parse(bytes).unwrap();
        assert_eq!(crc32fast::hash(other.bytes()), crc32fast::hash(packet(50, 1).bytes()));
        assert!(at_left(&other, |_| ()).is_err());
    }

    #[test]
    fn damage_anywhere_in_the_sum_is_detected() {
        let wrong = Err(DecodeError::WrongPartner);
        for at in 40..40 + 90 {
            assert_eq!(at_left(&packet(50, 1), |frame| frame[at] ^= 1), wrong, "byte {at}");
        }
    }
}
