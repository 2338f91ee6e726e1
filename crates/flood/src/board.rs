//! The board: where messages for the applications of this host are put, once for all of them. `bpf/board.h` says how it
//! lies in memory; the XDP program writes it, or a node that relays by itself ([`Writer`]). Each application has mapped it and
//! reads at its own pace ([`Reader`]): who falls behind loses the oldest messages, and nobody waits for anybody.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use device::{ReadOnly, Shared};

/// `BOARD_SLOTS`: messages that wait for an application at most.
pub(crate) const SLOTS: u64 = 1024;
/// `BOARD_WORDS`: stamp, length and frame.
const SLOT: usize = 294;
const WORDS: usize = SLOT * (1 + SLOTS as usize);
const WORD: usize = size_of::<u64>();
const FRAME_MAX: usize = (SLOT - 2) * WORD;

/// Where message `number` lies.
fn slot(number: u64) -> usize {
    SLOT * (1 + (number % SLOTS) as usize)
}

/// A slot's stamp when message `number` is there; one more while it is being written.
fn stamp(number: u64) -> u64 {
    2 * (number + 1)
}

/// Writes a board, alone.
#[derive(Debug)]
pub(crate) struct Writer(Shared);

impl Writer {
    /// An empty board; the descriptor is for readers.
    pub(crate) fn create() -> io::Result<(Writer, OwnedFd)> {
        let (memory, file) = Shared::create("nawa-flood-board", WORDS)?;
        Ok((Writer(memory), file))
    }

    /// Puts a frame there, from its header on.
    pub(crate) fn post(&mut self, frame: &[u8]) {
        let words = self.0.words();
        let number = words[0].fetch_add(1, Ordering::AcqRel);
        let frame = &frame[..frame.len().min(FRAME_MAX)];
        let at = slot(number);
        words[at].store(stamp(number) + 1, Ordering::Relaxed);
        // Nobody sees what follows and not this.
        fence(Ordering::Release);
        words[at + 1].store(frame.len() as u64, Ordering::Relaxed);
        for (word, bytes) in words[at + 2..].iter().zip(frame.chunks(WORD)) {
            let mut whole = [0; WORD];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
        }
        words[at].store(stamp(number), Ordering::Release);
    }
}

/// Reads a board that somebody writes.
#[derive(Debug)]
pub(crate) struct Reader {
    memory: ReadOnly,
    next: u64,
    dropped: u64,
}

impl Reader {
    /// Begins with the next message that is put there.
    pub(crate) fn open(file: impl AsFd) -> io::Result<Reader> {
        let memory = ReadOnly::map(file, WORDS)?;
        let next = memory.load(0, Ordering::Acquire);
        Ok(Reader { memory, next, dropped: 0 })
    }

    /// Messages that have been overwritten before they were read.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The next message's frame, into `frame`; false if there is none.
    pub(crate) fn take(&mut self, frame: &mut Vec<u8>) -> bool {
        loop {
            let written = self.memory.load(0, Ordering::Acquire);
            if written <= self.next {
                return false;
            }
            let behind = written - self.next;
            if behind > SLOTS {
                self.skip(behind - SLOTS);
            }
            let (at, there) = (slot(self.next), stamp(self.next));
            let seen = self.memory.load(at, Ordering::Acquire);
            if seen == there {
                self.copy(at, frame);
                // Not before all that is read.
                fence(Ordering::Acquire);
                if self.memory.load(at, Ordering::Relaxed) == there {
                    self.next += 1;
                    return true;
                }
            } else if (seen < there || seen == there + 1) && behind <= SLOTS / 2 {
                // It is being written. Only if its writer has given up, or been held up for so long, others go before it.
                return false;
            }
            self.skip(1);
        }
    }

    fn skip(&mut self, messages: u64) {
        self.next += messages;
        self.dropped += messages;
    }

    fn copy(&self, at: usize, frame: &mut Vec<u8>) {
        let length = (self.memory.load(at + 1, Ordering::Relaxed) as usize).min(FRAME_MAX);
        frame.clear();
        for word in at + 2..at + 2 + length.div_ceil(WORD) {
            frame.extend(self.memory.load(word, Ordering::Relaxed).to_ne_bytes());
        }
        frame.truncate(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board() -> (Writer, OwnedFd) {
        Writer::create().expect("memory")
    }

    fn take(reader: &mut Reader) -> Option<Vec<u8>> {
        let mut frame = Vec::new();
        reader.take(&mut frame).then_some(frame)
    }

    #[test]
    fn every_reader_reads_what_is_put_there_from_now_on() {
        let (mut writer, file) = board();
        writer.post(b"before");
        let mut readers = [(); 2].map(|()| Reader::open(&file).expect("it can be mapped"));
        for length in [0, 1, 8, 9, 100, FRAME_MAX] {
            writer.post(&vec![7; length]);
        }
        for reader in &mut readers {
            for length in [0, 1, 8, 9, 100, FRAME_MAX] {
                assert_eq!(take(reader), Some(vec![7; length]));
            }
            assert_eq!((take(reader), reader.dropped()), (None, 0));
        }
    }

    #[test]
    fn who_does_not_read_loses_the_oldest_and_knows_how_many() {
        let (mut writer, file) = board();
        let mut reader = Reader::open(&file).expect("it can be mapped");
        for number in 0..SLOTS + 10 {
            writer.post(&number.to_ne_bytes());
        }
        for number in 10..SLOTS + 10 {
            assert_eq!(take(&mut reader), Some(number.to_ne_bytes().to_vec()));
        }
        assert_eq!((take(&mut reader), reader.dropped()), (None, 10));
    }

    #[test]
    fn what_is_being_written_is_waited_for_but_not_for_ever() {
        let (mut writer, file) = board();
        let mut reader = Reader::open(&file).expect("it can be mapped");
        // Another writer has taken the number 0, and writes.
        writer.0.words()[0].store(1, Ordering::Relaxed);
        writer.post(b"one");
        assert_eq!(take(&mut reader), None);
        for _ in 0..SLOTS {
            writer.post(b"more");
        }
        assert!(take(&mut reader).is_some());
        assert!(reader.dropped() >= 1);
    }

    #[test]
    fn nothing_is_read_that_was_not_written() {
        let (mut writer, file) = board();
        let mut reader = Reader::open(&file).expect("it can be mapped");
        let count = 200_000u64;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..count {
                    writer.post(&number.to_ne_bytes().repeat(20));
                }
            });
            let (mut last, mut received) = (None, 0);
            while last != Some(count - 1) {
                let Some(frame) = take(&mut reader) else { continue };
                let number = u64::from_ne_bytes(*frame.first_chunk().expect("eight bytes"));
                assert_eq!(frame, number.to_ne_bytes().repeat(20), "all of one message");
                assert!(last < Some(number), "in order");
                (last, received) = (Some(number), received + 1);
            }
            assert_eq!(reader.dropped() + received, count);
        });
    }
}
