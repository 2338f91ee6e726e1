//! What a monitor interface of the slave's radio hears: frames of neighbours for each other, each once.
//!
//! Linux's 802.11 stack hands frames for other stations to monitors alone. A monitor also has what this node itself sent, what
//! is for it (which the slave hears as well), and every repetition.

use std::collections::BTreeMap;

use packet::DataFrame;

use crate::ethernet::{Frame, Mac};

/// Streams of numbered frames that are kept account of; when there are more, all are forgotten. A frame that was heard before
/// such a moment and is repeated after it counts twice, which is rare.
const MAX_STREAMS: usize = 256;
/// Numbers of 802.11's frames are modulo this; a frame that is ahead by less than half of it is newer.
const NUMBERS: u16 = 4096;

/// What was heard of one station's frames with one traffic number: the newest, and bit i for the one i before it.
#[derive(Clone, Copy, Debug)]
struct Heard {
    newest: u16,
    before: u64,
}

/// What is known of the network by listening.
#[derive(Debug, Default)]
pub struct Overhearing {
    streams: BTreeMap<(Mac, u8), Heard>,
    /// Whether the latest frame that this node sent to one station was encrypted. What came over the air anybody may have written.
    pub encrypted: bool,
}

impl Overhearing {
    /// Before anything was heard in a network that is encrypted, or not.
    pub fn new(encrypted: bool) -> Self {
        Self { encrypted, ..Self::default() }
    }

    /// Takes what the monitor of the node `own` handed out, and calls `each` with the Ethernet frames in it that are from one
    /// neighbour to another. What is for this node, at the end of a mesh's ways too, the slave hands up, if the network's keys and
    /// rules let it.
    pub fn handle(&mut self, own: Mac, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        let Ok(frame) = DataFrame::parse(bytes) else { return };
        let (to, from) = (Mac(frame.receiver), Mac(frame.transmitter));
        if to.is_group() {
            return;
        }
        if frame.sent && from == own {
            self.encrypted = frame.protected;
        }
        let elsewhere = !frame.sent && from != own && to != own;
        if !elsewhere || frame.protected || self.encrypted || !self.is_new((from, frame.tid), &frame) {
            return;
        }
        frame.ethernet(|inside| {
            let end = Frame::parse(inside).map(|inside| inside.destination);
            if end.is_some_and(|end| end != own && !end.is_group()) {
                each(inside);
            }
        });
    }

    /// Only a repetition can have been heard before. One whose original was missed is new.
    fn is_new(&mut self, stream: (Mac, u8), frame: &DataFrame<'_>) -> bool {
        if self.streams.len() >= MAX_STREAMS && !self.streams.contains_key(&stream) {
            self.streams.clear();
        }
        let number = frame.sequence;
        let heard = self
            .streams
            .entry(stream)
            .or_insert(Heard { newest: number.wrapping_sub(1) % NUMBERS, before: 0 });
        let behind = heard.newest.wrapping_sub(number) % NUMBERS;
        if frame.retry && behind < NUMBERS / 2 {
            let bit = 1u64.checked_shl(behind.into()).unwrap_or(0);
            let new = heard.before & bit == 0;
            heard.before |= bit;
            return new;
        }
        let ahead = number.wrapping_sub(heard.newest) % NUMBERS;
        heard.before = heard.before.checked_shl(ahead.into()).unwrap_or(0) | 1;
        heard.newest = number;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const LEFT: Mac = Mac([2, 0, 0, 0, 0, 2]);
    const RIGHT: Mac = Mac([2, 0, 0, 0, 0, 3]);
    const RETRY: u8 = 8;
    const PROTECTED: u8 = 0x40;

    /// As a monitor hands it out.
    fn frame(flags: u8, to: Mac, from: Mac, number: u16) -> Vec<u8> {
        let tap = [0, 0, 8, 0, 0, 0, 0, 0];
        let number = (number << 4).to_le_bytes();
        [&tap[..], &[8, flags, 0, 0], &to.0, &from.0, &[9; 6], &number, b"\xaa\xaa\x03\0\0\0\x88\xb6sum"]
            .concat()
    }

    fn count(overhearing: &mut Overhearing, bytes: &[u8]) -> usize {
        let mut count = 0;
        overhearing.handle(OWN, bytes, |frame| {
            assert_eq!(frame[12..], *b"\x88\xb6sum");
            count += 1;
        });
        count
    }

    #[test]
    fn only_what_neighbours_send_each_other_is_overheard() {
        let mut overhearing = Overhearing::default();
        for (to, from, expected) in
            [(RIGHT, LEFT, 1), (OWN, LEFT, 0), (LEFT, OWN, 0), (Mac::BROADCAST, LEFT, 0), (LEFT, RIGHT, 1)]
        {
            assert_eq!(count(&mut overhearing, &frame(0, to, from, 7)), expected, "{from} to {to}");
        }
    }

    #[test]
    fn what_ends_here_is_not_overheard() {
        // To an access point or over a mesh, the third address is where it ends.
        const TO_DS: u8 = 1;
        for (end, expected) in [(OWN, 0), (Mac::BROADCAST, 0), (Mac([2, 0, 0, 0, 0, 4]), 1)] {
            let mut bytes = frame(TO_DS, RIGHT, LEFT, 7);
            bytes[24..30].copy_from_slice(&end.0);
            assert_eq!(count(&mut Overhearing::default(), &bytes), expected, "{end}");
            assert_eq!(count(&mut Overhearing::new(true), &bytes), 0, "no key was needed to write it");
        }
    }

    #[test]
    fn each_is_overheard_once_though_it_is_repeated() {
        let mut overhearing = Overhearing::default();
        let mut heard = |flags, number| count(&mut overhearing, &frame(flags, RIGHT, LEFT, number));
        assert_eq!((heard(0, 4094), heard(RETRY, 4094), heard(RETRY, 4094)), (1, 0, 0));
        assert_eq!((heard(RETRY, 4095), heard(RETRY, 4095)), (1, 0), "the original was missed");
        // Of an aggregate 1 comes first, and 0 when it is repeated, past the end of the numbers.
        assert_eq!((heard(0, 1), heard(RETRY, 0), heard(RETRY, 0), heard(RETRY, 1)), (1, 1, 0, 0));
        assert_eq!((heard(0, 1), heard(0, 3000)), (1, 1), "a station that begins anew repeats nothing");
    }

    #[test]
    fn encryption_is_seen_at_what_this_radio_sent_alone() {
        // Radiotap's `it_present`, little endian from byte 4 on, says that a sent frame has TX flags.
        const TX_FLAGS: (usize, u8) = (5, 0x80);
        let mut overhearing = Overhearing::default();
        let mut encrypted = |sent, flags, to, from| {
            let mut bytes = frame(flags, to, from, 1);
            bytes[TX_FLAGS.0] = TX_FLAGS.1 * u8::from(sent);
            overhearing.handle(OWN, &bytes, |_| {});
            overhearing.encrypted
        };
        for (to, from) in [(RIGHT, LEFT), (OWN, LEFT), (RIGHT, OWN)] {
            assert!(!encrypted(false, PROTECTED, to, from), "anybody may have written {from} to {to}");
        }
        assert!(encrypted(true, PROTECTED, RIGHT, OWN));
        assert!(encrypted(false, 0, OWN, RIGHT));
        assert!(!encrypted(true, 0, RIGHT, OWN));
    }

    #[test]
    fn what_strangers_send_is_bounded() {
        let mut overhearing = Overhearing::default();
        for n in 0..10_000u16 {
            let [high, low] = n.to_be_bytes();
            count(&mut overhearing, &frame(0, RIGHT, Mac([2, 0, 0, 9, high, low]), n % NUMBERS));
        }
        assert!(overhearing.streams.len() <= MAX_STREAMS);
    }
}
