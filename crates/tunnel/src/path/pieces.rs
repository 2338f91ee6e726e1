//! Inner packets that come in pieces, over paths that carry less than a packet in one datagram. The pieces of a packet have sequences
//! of one path that follow one another, so a piece says itself which ones are its packet's; what is sent again, perhaps over another
//! path and in other pieces, has other sequences, and is another packet here.

use std::collections::VecDeque;
use std::time::Duration;

use packet::Ecn;

use crate::wire::frame::{MAX_PIECES, Piece};

/// Bytes that wait at most: what a path of 100 Mbit/s displaces by five milliseconds.
pub const MAX_BYTES: usize = 64 << 10;
/// Bytes of a piece at most: no IP packet is larger than so many of them.
const LARGEST: usize = u16::MAX as usize / MAX_PIECES;
/// What a packet costs beside its bytes.
const ENTRY: usize = 256;

/// Pieces of one peer's that wait for the others of their packets.
#[derive(Debug, Default)]
pub struct Pieces {
    /// The oldest first.
    waiting: VecDeque<Waiting>,
    bytes: usize,
    dropped: u64,
}

#[derive(Debug)]
struct Waiting {
    since: Duration,
    path: u16,
    /// The sequence of the first piece.
    first: u64,
    /// Each that has come; empty for one that has not.
    pieces: Vec<Vec<u8>>,
    tos: u8,
}

impl Waiting {
    fn bytes(&self) -> usize {
        ENTRY + self.pieces.iter().map(Vec::len).sum::<usize>()
    }
}

impl Pieces {
    /// `bytes` came in the packet `sequence` of `path`, with the traffic class `tos`. If nothing of their packet lacks any more: that, and
    /// the traffic class, which is marked as congested if that of a piece is (RFC 3168 §5.3).
    pub fn join(
        &mut self,
        now: Duration,
        (path, sequence): (u16, u64),
        piece: Piece,
        bytes: &[u8],
        tos: u8,
    ) -> Option<(Vec<u8>, u8)> {
        let first =
            sequence.checked_sub(piece.index.into()).filter(|_| (1..=LARGEST).contains(&bytes.len()))?;
        let of = usize::from(piece.of);
        let same = |one: &Waiting| (one.path, one.first, one.pieces.len()) == (path, first, of);
        // Nearly always it is the last one's.
        let at = self.waiting.iter().rposition(same).unwrap_or_else(|| {
            let pieces = vec![Vec::new(); of];
            self.waiting.push_back(Waiting { since: now, path, first, pieces, tos });
            self.bytes += ENTRY;
            self.waiting.len() - 1
        });
        let one = &mut self.waiting[at];
        let place = &mut one.pieces[usize::from(piece.index)];
        if place.is_empty() {
            *place = bytes.to_vec();
            self.bytes += bytes.len();
        }
        if Ecn::from_tos(tos) == Ecn::Ce {
            one.tos = tos;
        }
        if one.pieces.iter().all(|piece| !piece.is_empty()) {
            let whole = self.waiting.remove(at)?;
            self.bytes -= whole.bytes();
            return Some((whole.pieces.concat(), whole.tos));
        }
        while self.bytes > MAX_BYTES {
            self.drop_first();
        }
        None
    }

    /// Drops what has waited for longer than a gap may, `hold`: its sender has given the packet up, or sent it again.
    pub fn handle_timeout(&mut self, now: Duration, hold: Duration) {
        while self.waiting.front().is_some_and(|one| now >= one.since + hold) {
            self.drop_first();
        }
    }

    /// Drops all: what comes next is of another life of the peer's, whose paths and sequences are others.
    pub fn clear(&mut self) {
        while !self.waiting.is_empty() {
            self.drop_first();
        }
    }

    /// What waits, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Packets of which a piece came, and not all.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn drop_first(&mut self) {
        if let Some(first) = self.waiting.pop_front() {
            self.bytes -= first.bytes();
            self.dropped += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn piece(index: u8, of: u8) -> Piece {
        Piece { index, of }
    }

    #[test]
    fn a_packet_is_whole_when_its_last_piece_has_come() {
        let mut pieces = Pieces::default();
        assert_eq!(pieces.join(S, (1, 12), piece(2, 3), &[3], 0), None);
        assert_eq!(pieces.join(S, (1, 10), piece(0, 3), &[1], 0), None);
        // The same sequences of another path, and others of the same.
        assert_eq!(pieces.join(S, (2, 11), piece(1, 3), &[9], 0), None);
        assert_eq!(pieces.join(S, (1, 14), piece(1, 3), &[9], 0), None);
        assert_eq!(pieces.join(S, (1, 11), piece(1, 3), &[2], 0), Some((vec![1, 2, 3], 0)));
        assert_eq!((pieces.waiting.len(), pieces.dropped()), (2, 0));
        pieces.handle_timeout(S + S, S);
        assert_eq!((pieces.waiting.len(), pieces.bytes, pieces.dropped()), (0, 0, 2));
    }

    #[test]
    fn congestion_on_the_way_of_one_is_congestion_on_the_way_of_all() {
        for marked in 0..2 {
            let mut pieces = Pieces::default();
            let tos = |index: u8| if index == marked { 0xbb } else { 0xb9 };
            assert_eq!(pieces.join(S, (1, 10), piece(0, 2), &[1], tos(0)), None);
            assert_eq!(pieces.join(S, (1, 11), piece(1, 2), &[2], tos(1)), Some((vec![1, 2], 0xbb)));
        }
    }

    #[test]
    fn what_contradicts_itself_is_no_packet_and_costs_little() {
        let mut pieces = Pieces::default();
        assert_eq!(
            pieces.join(S, (1, 0), piece(1, 2), &[1], 0),
            None,
            "a first piece before the first packet"
        );
        for size in [0, LARGEST + 1] {
            assert_eq!(pieces.join(S, (1, 5), piece(0, 2), &vec![0; size], 0), None);
        }
        assert_eq!((pieces.waiting.len(), pieces.bytes), (0, 0));
        // Two that claim to be the same one, and one that is of another packet.
        for bytes in [&[1, 1], &[2, 2]] {
            assert_eq!(pieces.join(S, (1, 5), piece(0, 2), bytes, 0), None);
        }
        assert_eq!(pieces.join(S, (1, 6), piece(1, 3), &[3], 0), None);
        assert_eq!(pieces.join(S, (1, 6), piece(1, 2), &[4], 0), Some((vec![1, 1, 4], 0)));
        // First pieces only.
        for sequence in 0..10_000 {
            let large = vec![0; if sequence % 2 == 0 { LARGEST } else { 1 }];
            assert_eq!(pieces.join(S, (1, 2 * sequence), piece(0, 2), &large, 0), None);
            let bytes: usize = pieces.waiting.iter().map(Waiting::bytes).sum();
            assert!(pieces.bytes == bytes && bytes <= MAX_BYTES, "{bytes}");
        }
        assert!(pieces.dropped() > 9000);
    }

    proptest! {
        /// What comes of packets in pieces, of which some are lost and all are displaced, is those of which all have come.
        #[test]
        fn what_comes_whole_is_what_nothing_lacks_of(
            packets in proptest::collection::vec((1..=MAX_PIECES, 8usize..1300), 1..60),
            fates in proptest::collection::vec((prop::bool::weighted(0.1), 0usize..12), 480),
        ) {
            let mut sent = Vec::new();
            let (mut whole, mut sequence) = (Vec::new(), 0);
            for (number, (of, size)) in packets.into_iter().enumerate() {
                let packet: Vec<_> = (0..size).map(|at| (number + at) as u8).collect();
                let chunks = packet.chunks(size.div_ceil(of));
                let of = chunks.len() as u8;
                let mut lost = false;
                for (index, bytes) in (0..).zip(chunks) {
                    let (gone, late) = fates[sequence as usize];
                    lost |= gone;
                    if !gone {
                        sent.push((sequence as usize + late, sequence, Piece { index, of }, bytes.to_vec()));
                    }
                    sequence += 1;
                }
                if !lost {
                    whole.push(packet);
                }
            }
            sent.sort_by_key(|(at, ..)| *at);
            let mut pieces = Pieces::default();
            let mut came: Vec<_> = sent.into_iter()
                .filter_map(|(_, sequence, piece, bytes)| pieces.join(S, (3, sequence), piece, &bytes, 0))
                .map(|(packet, _)| packet)
                .collect();
            came.sort();
            whole.sort();
            prop_assert_eq!(came, whole);
        }
    }
}
