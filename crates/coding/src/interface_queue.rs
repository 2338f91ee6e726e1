//! The interface queue: what waits for the slave interface's turn.
//!
//! It is in the NC layer, not below it, because there PiggyCode codes: at the moment a packet leaves, with one that
//! still waits. Whoever drives the layer keeps the queue below as short as the interface allows.

use std::collections::VecDeque;

use crate::ack_thinning;
use crate::transit::{Transit, find_partner};

/// Frames that may wait, as many as an interface's usual `txqueuelen`; one more is dropped.
pub const MAX_FRAMES: usize = 1000;

/// What waits for its turn.
#[derive(Debug)]
pub enum Entry {
    /// A frame that the NC layer leaves as it is.
    Untouched(Vec<u8>),
    /// A packet that is sent by itself, unless it finds a partner here.
    Packet(Transit),
    /// Two packets that are sent as one: the first to its next hop, for the second's to overhear.
    Sum(Box<[Transit; 2]>),
}

impl Entry {
    /// The one IP packet in it.
    pub fn packet(&self) -> Option<&[u8]> {
        match self {
            Entry::Untouched(frame) => ack_thinning::packet_in(frame),
            Entry::Packet(packet) => Some(packet.datagram.bytes()),
            Entry::Sum(_) => None,
        }
    }
}

/// First in, first out.
#[derive(Debug, Default)]
pub struct InterfaceQueue {
    entries: VecDeque<Entry>,
}

impl InterfaceQueue {
    /// Puts an entry at the end; false if there is no room, and it is dropped.
    pub fn push(&mut self, entry: Entry) -> bool {
        let room = self.has_room();
        if room {
            self.entries.push_back(entry);
        }
        room
    }

    /// Puts an entry at the front, where it does not wait; false if there is no room, and it is dropped.
    pub fn push_front(&mut self, entry: Entry) -> bool {
        let room = self.has_room();
        if room {
            self.entries.push_front(entry);
        }
        room
    }

    /// Puts a packet in the place of the last that `is_superseded`; it comes back if there is none.
    pub fn replace(&mut self, entry: Entry, is_superseded: impl Fn(&[u8]) -> bool) -> Option<Entry> {
        match self.entries.iter_mut().rev().find(|older| older.packet().is_some_and(&is_superseded)) {
            Some(older) => {
                *older = entry;
                None
            }
            None => Some(entry),
        }
    }

    /// The entry whose turn it is.
    pub fn pop(&mut self) -> Option<Entry> {
        self.entries.pop_front()
    }

    /// Takes out the partner of `leaving`, as [`find_partner`] chooses it.
    pub fn take_partner(&mut self, leaving: &Transit, fits: impl Fn(&Transit) -> bool) -> Option<Transit> {
        let packets = (0..).zip(&self.entries).filter_map(|(index, entry)| match entry {
            Entry::Packet(packet) => Some((index, packet)),
            _ => None,
        });
        let index = find_partner(packets, leaving, fits)?;
        match self.entries.remove(index) {
            Some(Entry::Packet(packet)) => Some(packet),
            _ => None,
        }
    }

    /// How many packets that `fit` wait.
    pub fn count_packets(&self, fit: impl Fn(&Transit) -> bool) -> usize {
        self.entries.iter().filter(|e| matches!(e, Entry::Packet(packet) if fit(packet))).count()
    }

    /// Whether one more frame may wait.
    pub fn has_room(&self) -> bool {
        self.entries.len() < MAX_FRAMES
    }

    /// Entries that wait.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
