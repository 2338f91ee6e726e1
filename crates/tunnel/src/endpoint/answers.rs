//! Initiations that are to be answered, the few that are being, and the steps of it, which any thread can do.

use std::collections::VecDeque;

use crate::handshake::noise::{Prologue, Responder};
use crate::handshake::sessions::{Answer, Reply};
use crate::keys::PrivateKey;
use crate::wire::address::Address;

/// Initiations that wait, at most: what comes within a quarter of a second, and the work of some 30 ms.
const MAX_WAITING: usize = 128;
/// Steps that are done at a time, so that whoever does them need not wait for the next: what who comes first waits for.
const MAX_STEPS: usize = 4;
/// The same initiation gets so many answers, to the addresses that it came from.
const MAX_COPIES: usize = 32;

/// An initiation that is to be answered.
#[derive(Debug)]
pub struct Ask {
    ephemeral: [u8; 32],
    /// Where it came from: over each path once, at least one.
    pub from: Vec<Address>,
    next: Step,
}

enum Step {
    /// Find out who it is from.
    Read(Vec<u8>),
    /// Answer it.
    Reply(Box<Reply>),
    /// It is being done.
    Busy,
}

impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Step::Read(_) => "Read",
            Step::Reply(_) => "Reply",
            Step::Busy => "Busy",
        })
    }
}

/// A step of a handshake: X25519, up to three times.
#[derive(Debug)]
pub struct Work {
    ephemeral: [u8; 32],
    me: PrivateKey,
    step: Step,
}

/// What came of a step.
pub struct Done {
    ephemeral: [u8; 32],
    outcome: Outcome,
}

/// The same, `None` if the initiation is worth nothing.
pub enum Outcome {
    /// Who it is from.
    Read(Option<Box<Responder>>),
    /// The answer.
    Answered(Option<Box<Answer>>),
}

impl Work {
    /// Does it.
    pub fn run(self) -> Done {
        let outcome = match self.step {
            Step::Read(message) => {
                Outcome::Read(Responder::read(Prologue::Tunnel, &self.me, &message).ok().map(Box::new))
            }
            Step::Reply(reply) => Outcome::Answered(reply.run().map(Box::new)),
            Step::Busy => Outcome::Read(None),
        };
        Done { ephemeral: self.ephemeral, outcome }
    }
}

impl std::fmt::Debug for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Done(…)")
    }
}

/// What waits and what is being done.
#[derive(Debug, Default)]
pub struct Answers {
    /// From where peers are known to be, and from elsewhere.
    known: VecDeque<Ask>,
    others: VecDeque<Ask>,
    busy: Vec<Ask>,
}

impl Answers {
    /// An initiation is to be answered; false if there are too many.
    pub fn ask(&mut self, ephemeral: [u8; 32], message: &[u8], from: Address, known: bool) -> bool {
        let all = self.busy.iter_mut().chain(&mut self.known).chain(&mut self.others);
        if let Some(ask) = all.into_iter().find(|ask| ask.ephemeral == ephemeral) {
            let room = ask.from.len() < MAX_COPIES;
            ask.from.extend(Some(from).filter(|_| room));
            return room;
        }
        let full = self.known.len() + self.others.len() >= MAX_WAITING;
        if full && (!known || self.others.pop_back().is_none()) {
            return false;
        }
        let ask = Ask { ephemeral, from: vec![from], next: Step::Read(message.to_vec()) };
        if known { &mut self.known } else { &mut self.others }.push_back(ask);
        true
    }

    /// The next step; `None` if there is none, or enough are being done.
    pub fn poll(&mut self, me: &PrivateKey) -> Option<Work> {
        let begun = self.busy.iter().position(|ask| !matches!(ask.next, Step::Busy));
        let at = match begun {
            Some(at) => at,
            None if self.busy.len() >= MAX_STEPS => return None,
            None => {
                self.busy.push(self.known.pop_front().or_else(|| self.others.pop_front())?);
                self.busy.len() - 1
            }
        };
        let ask = &mut self.busy[at];
        let step = std::mem::replace(&mut ask.next, Step::Busy);
        Some(Work { ephemeral: ask.ephemeral, me: me.clone(), step })
    }

    /// A step is done: of which initiation, and what came of it. `None` if that is forgotten.
    pub fn take(&mut self, done: Done) -> Option<(Ask, Outcome)> {
        let at = self.busy.iter().position(|ask| ask.ephemeral == done.ephemeral)?;
        Some((self.busy.swap_remove(at), done.outcome))
    }

    /// The initiation is to be answered so.
    pub fn go_on(&mut self, ask: Ask, reply: Reply) {
        self.busy.push(Ask { next: Step::Reply(Box::new(reply)), ..ask });
    }

    /// Forgets all: peers ask again.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
