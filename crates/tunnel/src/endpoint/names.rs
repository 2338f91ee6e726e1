//! What datagrams call the peers' sessions by.

use std::collections::HashMap;

use crate::handshake::sessions::{Indices, Sessions};

/// The peers (their places in the list) by session indices, of established, pending and attempted sessions, and by the
/// initiations that pending ones answer.
#[derive(Debug)]
pub struct Names {
    indices: Indices,
    ephemerals: HashMap<[u8; 32], usize>,
    /// Each peer's.
    own: Vec<Own>,
}

#[derive(Clone, Debug, Default)]
struct Own {
    indices: Vec<u32>,
    ephemerals: Vec<[u8; 32]>,
}

impl Names {
    /// None yet of so many peers.
    pub fn new(peers: usize) -> Self {
        Self { indices: Indices::new(), ephemerals: HashMap::new(), own: vec![Own::default(); peers] }
    }

    /// Whose session this is.
    pub fn of_index(&self, index: u32) -> Option<usize> {
        self.indices.get(&index).copied()
    }

    /// Whose pending session answers the initiation with this ephemeral key.
    pub fn of_ephemeral(&self, ephemeral: &[u8; 32]) -> Option<usize> {
        self.ephemerals.get(ephemeral).copied()
    }

    /// All indices in use.
    pub fn indices(&self) -> &Indices {
        &self.indices
    }

    /// Takes over what the sessions of the peer at `at` are called, if that has changed.
    pub fn note(&mut self, at: usize, sessions: &Sessions) {
        let own = &mut self.own[at];
        let same = sessions.indices().eq(own.indices.iter().copied());
        if same && sessions.ephemerals().eq(own.ephemerals.iter().copied()) {
            return;
        }
        for index in own.indices.drain(..) {
            self.indices.remove(&index);
        }
        for ephemeral in own.ephemerals.drain(..) {
            self.ephemerals.remove(&ephemeral);
        }
        own.indices.extend(sessions.indices());
        own.ephemerals.extend(sessions.ephemerals());
        self.indices.extend(own.indices.iter().map(|index| (*index, at)));
        self.ephemerals.extend(own.ephemerals.iter().map(|ephemeral| (*ephemeral, at)));
    }
}
