//! How a relay comes to know that its neighbours decode (mode `any`).
//!
//! It asks those that packets come from and go to, with a nonce, and whoever answers with it decodes. A nonce is of use for a short
//! time: what somebody recorded, or wrote without having heard this node, is no answer.

use std::collections::{BTreeMap, VecDeque};
use std::hash::Hasher;
use std::time::Duration;

use siphasher::sip::SipHasher24;

use crate::ethernet::Mac;
use crate::header::Greeting;
use crate::neighbours::KNOWN_FOR;

/// Time between two questions to one neighbour: doubled from the first to the second, since any may be lost. Two fit into the half of
/// [`KNOWN_FOR`] in which a neighbour is asked again.
const ASK_EVERY: (Duration, Duration) =
    (Duration::from_millis(25), Duration::from_secs(KNOWN_FOR.as_secs() / 4));
/// Neighbours asked that are remembered; when there are more, all are forgotten and asked anew.
const MAX_ASKED: usize = 64;
/// Greetings that wait at once; of more, the neighbours ask and are asked again.
const MAX_WAITING: usize = 16;

/// Who asks keeps to that; whoever does not is answered no more than so often, after as many at once as may wait, for answers go before
/// packets.
const ANSWER_EVERY: Duration = ASK_EVERY.0;

/// Whom to ask and to answer, and when.
#[derive(Debug)]
pub struct Greetings {
    secret: u64,
    /// By neighbour: when it was asked last, and how long it is not.
    asked: BTreeMap<Mac, (Duration, Duration)>,
    waiting: VecDeque<(Mac, Greeting)>,
    /// When all answers so far have taken their time.
    answered: Duration,
}

impl Greetings {
    /// With nonces that nobody can guess who does not know `secret`.
    pub fn new(secret: u64) -> Self {
        Self { secret, asked: BTreeMap::new(), waiting: VecDeque::new(), answered: Duration::ZERO }
    }

    /// A packet could be coded if this neighbour decodes: asks, unless that was a short time ago.
    pub fn ask(&mut self, now: Duration, to: Mac) {
        if self.asked.len() >= MAX_ASKED && !self.asked.contains_key(&to) {
            self.asked.clear();
        }
        let (last, every) = self.asked.get(&to).copied().unwrap_or_default();
        let silence = now.saturating_sub(last);
        if silence < every {
            return;
        }
        let every = if silence >= KNOWN_FOR { Duration::ZERO } else { every * 2 };
        self.asked.insert(to, (now, every.clamp(ASK_EVERY.0, ASK_EVERY.1)));
        let nonce = self.nonce(now.as_secs() / KNOWN_FOR.as_secs());
        self.push(to, Greeting { asks: true, nonce });
    }

    /// Answers a neighbour that asked with this nonce.
    pub fn answer(&mut self, now: Duration, to: Mac, nonce: u64) {
        if self.answered > now + ANSWER_EVERY * MAX_WAITING as u32 {
            return;
        }
        self.answered = self.answered.max(now) + ANSWER_EVERY;
        self.push(to, Greeting { asks: false, nonce });
    }

    fn push(&mut self, to: Mac, greeting: Greeting) {
        if self.waiting.len() < MAX_WAITING {
            self.waiting.push_back((to, greeting));
        }
    }

    /// The next greeting, and whom it is for.
    pub fn poll(&mut self) -> Option<(Mac, Greeting)> {
        self.waiting.pop_front()
    }

    /// Whether there is one.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Until when `answer` counts, if it is this node's nonce, or was in the period before.
    pub fn answered_until(&self, now: Duration, answer: u64) -> Option<Duration> {
        let period = now.as_secs() / KNOWN_FOR.as_secs();
        let of =
            [period, period.saturating_sub(1)].into_iter().find(|period| self.nonce(*period) == answer)?;
        Some(Duration::from_secs((of + 2) * KNOWN_FOR.as_secs()))
    }

    /// One for each period of [`KNOWN_FOR`].
    fn nonce(&self, period: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.secret, 0);
        hasher.write_u64(period);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: u64 = 7;
    const NEIGHBOUR: Mac = Mac([2, 0, 0, 0, 0, 3]);

    #[test]
    fn questions_go_with_traffic_and_become_rare() {
        let (mut greetings, mut at) = (Greetings::new(SECRET), Vec::new());
        for millis in (0..8000).step_by(25).chain([60_000, 60_025]) {
            greetings.ask(Duration::from_millis(millis), NEIGHBOUR);
            at.extend(greetings.poll().map(|_| millis));
        }
        assert_eq!(at, [0, 25, 75, 175, 375, 775, 1575, 3175, 5175, 7175, 60_000, 60_025]);
    }

    #[test]
    fn an_answer_counts_for_a_while_and_from_nobody_elses_nonce() {
        let s = Duration::from_secs;
        let mut greetings = Greetings::new(SECRET);
        greetings.ask(s(9), NEIGHBOUR);
        let (to, Greeting { asks, nonce }) = greetings.poll().unwrap();
        assert_eq!((to, asks, greetings.is_empty()), (NEIGHBOUR, true, true));
        let until = |seconds, nonce| greetings.answered_until(s(seconds), nonce);
        assert_eq!([9, 23, 24].map(|seconds| until(seconds, nonce)), [Some(s(24)), Some(s(24)), None]);
        assert_eq!((until(9, 0), Greetings::new(SECRET + 1).answered_until(s(9), nonce)), (None, None));
    }

    #[test]
    fn whoever_asks_too_often_is_answered_now_and_then() {
        let mut greetings = Greetings::new(SECRET);
        let answered = |millis| {
            greetings.answer(Duration::from_millis(millis), NEIGHBOUR, millis);
            greetings.poll().is_some()
        };
        let count = (1000..2000).map(answered).filter(|answered| *answered).count();
        assert!((40..=60).contains(&count), "{count}");
    }

    #[test]
    fn what_strangers_cause_is_bounded() {
        let mut greetings = Greetings::new(SECRET);
        for n in 0..=255 {
            greetings.answer(Duration::ZERO, Mac([2, 0, 0, 0, 0, n]), 1);
            greetings.ask(Duration::ZERO, Mac([2, 0, 0, 0, 0, n]));
        }
        assert!(greetings.waiting.len() <= MAX_WAITING && greetings.asked.len() <= MAX_ASKED);
    }
}
