//! Initiations that are to be answered, the few that are being, responses that are to be read, and the steps of either, which any
//! thread can do.

use std::collections::VecDeque;

use crate::config::MAX_PATHS;
use crate::handshake::noise::{Finished, Initiator, Prologue, Responder};
use crate::handshake::sessions::{Answer, Reply};
use crate::keys::PrivateKey;
use crate::wire::address::Address;

/// Initiations that wait, at most: what comes within a quarter of a second, and the work of some 30 ms.
const MAX_WAITING: usize = 128;
/// Steps that are done at a time, so that whoever does them need not wait for the next: what who comes first waits for.
const MAX_STEPS: usize = 4;
/// The same initiation gets so many answers, to the addresses that it came from.
const MAX_COPIES: usize = 32;

/// Responses that wait to be read, of all peers, and of each: one for each path, and no more for who floods.
const MAX_RESPONSES: usize = 256;
const MAX_RESPONSES_EACH: usize = MAX_PATHS;

/// An initiation that is to be answered.
pub struct Ask {
    ephemeral: [u8; 32],
    /// Where it came from: over each path once, at least one.
    pub from: Vec<Address>,
    /// `None` while it is being done.
    next: Option<Step>,
}

enum Step {
    /// Find out who it is from.
    Read(Vec<u8>),
    /// Answer it.
    Reply(Box<Reply>),
}

/// A step of a handshake: X25519, up to three times.
pub struct Work(Task);

enum Task {
    /// Of an initiation, which this tells from others.
    Answer([u8; 32], PrivateKey, Step),
    /// A response to be read.
    Finish(Response, Box<Initiator>),
}

/// What came of a step.
pub enum Done {
    /// Who the initiation is from; `None` if it is worth nothing.
    Read([u8; 32], Option<Box<Responder>>),
    /// Its answer; `None` for the same reason.
    Answered([u8; 32], Option<Box<Answer>>),
    /// Where a response came from, what has read it, and what it gives, if it is one.
    Finished(Address, Box<Initiator>, Option<Box<Finished>>),
}

impl Work {
    /// Does it.
    pub fn run(self) -> Done {
        match self.0 {
            Task::Answer(ephemeral, me, Step::Read(message)) => {
                let read = Responder::read(Prologue::Tunnel, &me, &message);
                Done::Read(ephemeral, read.ok().map(Box::new))
            }
            Task::Answer(ephemeral, _, Step::Reply(reply)) => {
                Done::Answered(ephemeral, reply.run().map(Box::new))
            }
            Task::Finish(response, mut initiator) => {
                let finished = initiator.finish(&response.message).ok().map(Box::new);
                Done::Finished(response.from, initiator, finished)
            }
        }
    }
}

/// A response that waits to be read.
struct Response {
    /// This end's name for the session that it is to begin.
    index: u32,
    from: Address,
    message: Vec<u8>,
}

/// Responses that wait to be read. Of each peer one at a time is.
#[derive(Default)]
pub struct Responses(VecDeque<Response>);

impl Responses {
    /// A response has come that names an initiation of this end's; false if there are too many.
    pub fn take(&mut self, index: u32, from: Address, message: &[u8]) -> bool {
        let of_it = self.0.iter().filter(|other| other.index == index).count();
        let room = self.0.len() < MAX_RESPONSES && of_it < MAX_RESPONSES_EACH;
        if room {
            self.0.push_back(Response { index, from, message: message.to_vec() });
        }
        room
    }

    /// The next to be read, by what `lend` gives. What answers no initiation any more (`None`) is forgotten; what is read by what is
    /// lent (`Some(None)`) waits.
    pub fn poll(&mut self, mut lend: impl FnMut(&Address, u32) -> Option<Option<Initiator>>) -> Option<Work> {
        let mut at = 0;
        while let Some(response) = self.0.get(at) {
            match lend(&response.from, response.index) {
                Some(Some(initiator)) => {
                    let response = self.0.remove(at)?;
                    return Some(Work(Task::Finish(response, Box::new(initiator))));
                }
                Some(None) => at += 1,
                None => drop(self.0.remove(at)),
            }
        }
        None
    }
}

/// What waits and what is being done.
#[derive(Default)]
pub struct Answers {
    /// From where peers are known to be, and from elsewhere.
    known: VecDeque<Ask>,
    others: VecDeque<Ask>,
    busy: Vec<Ask>,
}

impl Answers {
    /// An initiation is to be answered; false if there are too many: it is not, or one from elsewhere is not in its place.
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
        let ask = Ask { ephemeral, from: vec![from], next: Some(Step::Read(message.to_vec())) };
        if known { &mut self.known } else { &mut self.others }.push_back(ask);
        !full
    }

    /// The next step; `None` if there is none, or enough are being done.
    pub fn poll(&mut self, me: &PrivateKey) -> Option<Work> {
        let begun = self.busy.iter().position(|ask| ask.next.is_some());
        let at = match begun {
            Some(at) => at,
            None if self.busy.len() >= MAX_STEPS => return None,
            None => {
                self.busy.push(self.known.pop_front().or_else(|| self.others.pop_front())?);
                self.busy.len() - 1
            }
        };
        let ask = &mut self.busy[at];
        let step = ask.next.take()?;
        Some(Work(Task::Answer(ask.ephemeral, me.clone(), step)))
    }

    /// A step is done of the initiation with this ephemeral key. `None` if that is forgotten.
    pub fn take(&mut self, ephemeral: &[u8; 32]) -> Option<Ask> {
        let at = self.busy.iter().position(|ask| ask.ephemeral == *ephemeral)?;
        Some(self.busy.swap_remove(at))
    }

    /// The initiation is to be answered so.
    pub fn go_on(&mut self, ask: Ask, reply: Reply) {
        self.busy.push(Ask { next: Some(Step::Reply(Box::new(reply))), ..ask });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::address::LocalAddress;

    #[test]
    fn who_makes_room_for_one_that_is_known_is_counted() {
        let from = Address::direct(([192, 0, 2, 1], 7).into(), LocalAddress::default());
        let mut answers = Answers::default();
        let mut ask = |n: usize, known| answers.ask([n as u8; 32], &[], from, known);
        assert!((1..MAX_WAITING).all(|n| ask(n, false)) && ask(MAX_WAITING, true));
        assert!(!ask(MAX_WAITING + 1, false) && !ask(MAX_WAITING + 2, true));
        assert_eq!((answers.known.len(), answers.others.len()), (2, MAX_WAITING - 2));
    }
}
