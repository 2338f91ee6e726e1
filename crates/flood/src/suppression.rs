//! Relaying less than pure flooding does and reaching as many: counter-based suppression (Ni, Tseng, Chen, Sheu, "The
//! broadcast storm problem in a mobile ad hoc network", MobiCom 1999), random jitter (RFC 5148), and repeats for links
//! that lose frames.
//!
//! A node that hears a message for the first time waits a random time and counts copies. If it has then heard
//! [`Rules::threshold`] of them, its neighbours have most likely heard the message too, and it keeps still; otherwise it
//! relays. Each copy draws one more wait, so that those who have heard least relay first, and the others hear them. Having sent,
//! it listens on: a relay whose neighbours relay in turn hears that as copies, and as long as it has heard fewer than
//! [`Rules::enough`], it repeats, at most [`Rules::repeats`] times. So repeats go where neighbours are
//! few, or where the message was lost, and cost nothing elsewhere. The source does the same, without waiting at first.
//!
//! Where the medium is slow, or others have it, a copy takes longer to come than the wait: so waits grow with what the medium
//! was seen to take for this node's frames ([`Suppression::handle_sent`]), and one frame is with the medium at a time.
//!
//! Without I/O: messages go in by [`Suppression::handle_first`], [`Suppression::handle_copy`] and
//! [`Suppression::handle_own`]; what to send comes out of [`Suppression::poll_transmit`], which is due at
//! [`Suppression::poll_timeout`]. Telling first copies from others is the duplicate window's part, not done here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand_core::RngCore;

/// When to relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The longest random wait before a message is relayed. A repeat waits for as long as neighbours may, who draw one for each
    /// copy short of the threshold, and for a random wait. On a real radio at least a few times what it takes to send a frame; 0
    /// relays at once.
    pub jitter: Duration,
    /// So many copies heard before relaying, the first included, keep a node from relaying; 0: it always relays.
    pub threshold: u32,
    /// So many copies heard keep a node from repeating; 0: it never repeats.
    pub enough: u32,
    /// How often a node sends a message again at most.
    pub repeats: u32,
}

impl Rules {
    /// Pure flooding: every node relays every message at once, as in the paper.
    pub const PURE: Rules = Rules { jitter: Duration::ZERO, threshold: 0, enough: 0, repeats: 0 };

    /// Few relays in a dense network. The numbers were chosen on 100 random geometric networks (seeds 10,000 to 10,099) of
    /// 100 nodes with 20 neighbours in the mean, where 20 % of frames are lost, for the fewest transmissions that
    /// reach clearly more than 99 %; `nawa lab run flood-reach` shows other networks. With 8 neighbours in the mean a
    /// threshold of 3 keeps too many still: it misses 4 to 6 % of nodes, and 4, 5 or 0 suits such networks. Repeats are for those in
    /// a row, of whom each has one to hear it: where there are more, `enough = 1` takes a tenth fewer frames.
    pub const SUPPRESSED: Rules =
        Rules { jitter: Duration::from_millis(10), threshold: 3, enough: 2, repeats: 1 };
}

/// The random wait in times that the medium takes for a frame: so many neighbours may relay one after the other, and all but the
/// first hear it.
const SPREAD: u32 = 32;

/// What waits grow to at most: who was cut off for a while is not slow when it is back.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Messages that wait at most; the next one drops the one that is due first, an own one that was not sent last of all.
pub const PENDING_MAX: usize = 1024;

/// One node's messages that are still to be relayed or repeated. `K` tells messages apart, `F` is what is sent.
#[derive(Debug)]
pub struct Suppression<K, F, R> {
    rules: Rules,
    rng: R,
    pending: BTreeMap<K, Pending<F>>,
    /// When each of `pending` is due.
    due: BTreeSet<(Duration, K)>,
    /// How long the medium takes a frame of this node's, lately; 0 before the first.
    access: Duration,
    stats: Stats,
}

/// What became of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Sent for the first time by this node, its own included.
    pub sent: u64,
    /// Sent again.
    pub repeated: u64,
    /// Not relayed, because enough copies were heard.
    pub suppressed: u64,
    /// Never sent, because too many messages waited, or one with the same number came.
    pub dropped: u64,
}

#[derive(Debug)]
struct Pending<F> {
    frame: F,
    due: Duration,
    heard: u32,
    sent: u32,
}

impl<K: Copy + Ord, F: Clone, R: RngCore> Suppression<K, F, R> {
    /// Nothing waits yet. Waits are drawn from `rng`.
    pub fn new(rules: Rules, rng: R) -> Self {
        Self {
            rules,
            rng,
            pending: BTreeMap::new(),
            due: BTreeSet::new(),
            access: Duration::ZERO,
            stats: Stats::default(),
        }
    }

    /// The message `key` was heard for the first time, and may be relayed as `frame`.
    pub fn handle_first(&mut self, now: Duration, key: K, frame: F) {
        let due = now.saturating_add(self.wait());
        self.insert(key, Pending { frame, due, heard: 1, sent: 0 });
    }

    /// This node is the source of the message `key`, to be sent as `frame` at once.
    pub fn handle_own(&mut self, now: Duration, key: K, frame: F) {
        self.insert(key, Pending { frame, due: now, heard: 0, sent: 0 });
    }

    /// `copies` more of the message `key` were heard, from whomever.
    pub fn handle_copy(&mut self, key: K, copies: u32) {
        let Some(pending) = self.pending.get_mut(&key) else { return };
        let (before, due) = (pending.heard, pending.due);
        pending.heard = before.saturating_add(copies);
        // Those that decide nothing delay nothing.
        if pending.sent > 0 || pending.heard >= self.rules.threshold {
            return;
        }
        let later = (before..pending.heard).fold(due, |due, _| due.saturating_add(self.wait()));
        self.due.remove(&(due, key));
        self.due.insert((later, key));
        if let Some(pending) = self.pending.get_mut(&key) {
            pending.due = later;
        }
    }

    /// So many copies of the message `key` were heard in all, the first included, as who counts them elsewhere says.
    pub fn set_copies(&mut self, key: K, copies: u32) {
        let heard = self.pending.get(&key).map_or(copies, |pending| pending.heard);
        self.handle_copy(key, copies.saturating_sub(heard));
    }

    /// The medium has sent what [`Suppression::poll_transmit`] gave last, so long after that. Whoever asks for the next frame only
    /// then keeps the others where copies can still cancel them.
    pub fn handle_sent(&mut self, access: Duration) {
        let access = access.min(WAIT_MAX);
        self.access = if self.access.is_zero() { access } else { (self.access * 7 + access) / 8 };
    }

    /// The next frame that is to be sent at `now`; `None` if there is none (yet).
    pub fn poll_transmit(&mut self, now: Duration) -> Option<F> {
        while self.poll_timeout().is_some_and(|due| due <= now) {
            let frame = self.decide(now);
            if frame.is_some() {
                return frame;
            }
        }
        None
    }

    /// When to call [`Suppression::poll_transmit`] next.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.due.first().map(|&(due, _)| due)
    }

    /// The messages about which [`Suppression::poll_transmit`] will decide at `now`: who counts copies elsewhere says now
    /// how many there were.
    pub fn due(&self, now: Duration) -> impl Iterator<Item = K> {
        self.due.iter().take_while(move |&&(due, _)| due <= now).map(|&(_, key)| key)
    }

    /// What became of messages so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    fn insert(&mut self, key: K, pending: Pending<F>) {
        // The message before of this key: sequence numbers of version 0 come round after 256.
        if let Some(older) = self.pending.remove(&key) {
            self.due.remove(&(older.due, key));
            self.stats.dropped += u64::from(older.sent == 0);
        }
        if self.pending.len() >= PENDING_MAX {
            self.drop_first();
        }
        self.due.insert((pending.due, key));
        self.pending.insert(key, pending);
    }

    /// Makes room: what is due first has had the longest time to be heard elsewhere. An own message was heard nowhere before it is sent.
    fn drop_first(&mut self) {
        let is_unheard = |key| self.pending.get(key).is_some_and(|pending| pending.heard + pending.sent == 0);
        let heard = self.due.iter().find(|(_, key)| !is_unheard(key));
        let Some(&(due, key)) = heard.or(self.due.first()) else { return };
        self.due.remove(&(due, key));
        let dropped = self.pending.remove(&key);
        self.stats.dropped += u64::from(dropped.is_some_and(|pending| pending.sent == 0));
    }

    /// What is due first is sent, or is done with.
    fn decide(&mut self, now: Duration) -> Option<F> {
        let (_, key) = self.due.pop_first()?;
        let mut pending = self.pending.remove(&key)?;
        if pending.sent > 0 && pending.heard >= self.rules.enough {
            return None;
        }
        if pending.sent == 0 && self.rules.threshold > 0 && pending.heard >= self.rules.threshold {
            self.stats.suppressed += 1;
            return None;
        }
        let counter = if pending.sent == 0 { &mut self.stats.sent } else { &mut self.stats.repeated };
        *counter += 1;
        pending.sent += 1;
        let frame = pending.frame.clone();
        if pending.sent <= self.rules.repeats && pending.heard < self.rules.enough {
            let all_waits = self.jitter() * self.rules.threshold.max(1);
            pending.due = now.saturating_add(all_waits).saturating_add(self.wait());
            self.insert(key, pending);
        }
        Some(frame)
    }

    /// Where the medium takes long, waits have to be longer for copies to be heard within them.
    fn jitter(&self) -> Duration {
        if self.rules.jitter.is_zero() {
            return Duration::ZERO;
        }
        self.rules.jitter.max((self.access * SPREAD).min(WAIT_MAX))
    }

    /// Uniform over 0 to the jitter.
    fn wait(&mut self) -> Duration {
        let share = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        self.jitter().mul_f64(share)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand_chacha::ChaCha8Rng;
    use rand_core::SeedableRng;

    use super::*;

    type Node = Suppression<u32, u32, ChaCha8Rng>;

    fn node(rules: Rules) -> Node {
        Suppression::new(rules, ChaCha8Rng::seed_from_u64(1))
    }

    /// What is sent when until nothing is left.
    fn drain(node: &mut Node) -> Vec<(Duration, u32)> {
        let mut sent = Vec::new();
        while let Some(now) = node.poll_timeout() {
            sent.extend(std::iter::from_fn(|| node.poll_transmit(now)).map(|frame| (now, frame)));
        }
        sent
    }

    #[test]
    fn pure_flooding_relays_at_once_whatever_was_heard() {
        let mut node = node(Rules::PURE);
        node.handle_first(Duration::from_secs(1), 1, 10);
        node.handle_copy(1, 100);
        assert_eq!(drain(&mut node), [(Duration::from_secs(1), 10)]);
    }

    #[test]
    fn waits_grow_with_what_the_medium_takes_and_shrink_with_it() {
        let mut node = node(Rules::SUPPRESSED);
        let mut longest = |access: Duration| {
            (0..100).for_each(|_| node.handle_sent(access));
            node.jitter()
        };
        let ms = Duration::from_millis;
        assert_eq!([longest(ms(3)), longest(ms(9000)), longest(ms(0))], [ms(96), WAIT_MAX, ms(10)]);
    }

    #[test]
    fn enough_copies_keep_a_node_still() {
        let mut node = node(Rules::SUPPRESSED);
        node.handle_first(Duration::ZERO, 1, 10);
        node.handle_copy(1, 2);
        assert_eq!(drain(&mut node), []);
        assert_eq!(node.stats().suppressed, 1);
    }

    #[test]
    fn who_has_heard_more_copies_relays_later_wherever_they_are_counted() {
        let due = |count: fn(&mut Node)| {
            let mut node = node(Rules::SUPPRESSED);
            node.handle_first(Duration::ZERO, 1, 10);
            let before = node.poll_timeout().unwrap();
            count(&mut node);
            (before, node.poll_timeout().unwrap())
        };
        let (before, after) = due(|node| node.handle_copy(1, 1));
        assert!(after > before && after <= before + Rules::SUPPRESSED.jitter, "{before:?} {after:?}");
        assert_eq!((before, after), due(|node| node.set_copies(1, 2)));
        let mut node = node(Rules::SUPPRESSED);
        node.handle_first(Duration::ZERO, 1, 10);
        node.set_copies(1, 2);
        assert_eq!(node.poll_transmit(before), None, "it was due, and is no more");
    }

    #[test]
    fn copies_without_end_put_off_nothing_without_end() {
        let mut node = node(Rules { threshold: 0, ..Rules::SUPPRESSED });
        node.handle_first(Duration::ZERO, 1, 10);
        (0..1000).for_each(|_| node.handle_copy(1, 1));
        assert!(node.poll_timeout() <= Some(Rules::SUPPRESSED.jitter));
    }

    #[test]
    fn a_relay_waits_no_longer_than_the_jitter() {
        let mut node = node(Rules::SUPPRESSED);
        (0..100).for_each(|key| node.handle_first(Duration::ZERO, key, key));
        assert!(node.poll_timeout() < Some(Duration::from_millis(1)), "some wait hardly at all");
        let wait = Duration::from_millis(10);
        assert_eq!(std::iter::from_fn(|| node.poll_transmit(wait)).count(), 100);
    }

    #[test]
    fn who_hears_nobody_repeats_as_often_as_allowed() {
        let mut node = node(Rules::SUPPRESSED);
        node.handle_own(Duration::ZERO, 1, 10);
        assert_eq!(node.poll_transmit(Duration::ZERO), Some(10), "a source does not wait");
        assert_eq!(drain(&mut node).len(), 1);
        assert_eq!(node.stats(), Stats { sent: 1, repeated: 1, ..Stats::default() });
    }

    #[test]
    fn a_repeat_waits_until_neighbours_may_have_relayed() {
        let mut node = node(Rules::SUPPRESSED);
        node.handle_own(Duration::ZERO, 1, 10);
        assert_eq!(node.poll_transmit(Duration::ZERO), Some(10));
        let waits = Rules::SUPPRESSED.jitter * Rules::SUPPRESSED.threshold;
        assert!(node.poll_timeout() >= Some(waits), "{:?}", node.poll_timeout());
    }

    #[test]
    fn who_hears_its_neighbours_relay_does_not_repeat() {
        let mut node = node(Rules::SUPPRESSED);
        node.handle_own(Duration::ZERO, 1, 10);
        assert_eq!(node.poll_transmit(Duration::ZERO), Some(10));
        node.handle_copy(1, 2);
        assert_eq!(drain(&mut node), []);
    }

    #[test]
    fn copies_may_be_counted_elsewhere_until_the_decision() {
        let mut node = node(Rules::SUPPRESSED);
        node.handle_first(Duration::ZERO, 7, 70);
        let now = node.poll_timeout().unwrap();
        assert_eq!(node.due(now).collect::<Vec<_>>(), [7]);
        node.set_copies(7, 5);
        assert_eq!(node.poll_transmit(now), None);
        assert_eq!(node.due(now).count(), 0);
    }

    #[test]
    fn too_many_messages_drop_the_first_due() {
        let mut node = node(Rules::SUPPRESSED);
        let messages = 3 * PENDING_MAX as u32;
        (0..messages).for_each(|key| node.handle_first(Duration::ZERO, key, key));
        assert_eq!(node.pending.len(), PENDING_MAX);
        assert_eq!(node.stats().dropped, 2 * PENDING_MAX as u64);
    }

    /// Version 0 has 256 sequence numbers.
    #[test]
    fn a_message_is_sent_though_the_one_before_of_its_number_waits() {
        let mut node = node(Rules::SUPPRESSED);
        let own = |node: &mut Node, frames: std::ops::Range<u32>| {
            frames.for_each(|frame| node.handle_own(Duration::ZERO, frame % 256, frame));
        };
        own(&mut node, 0..256);
        let mut sent: Vec<_> = std::iter::from_fn(|| node.poll_transmit(Duration::ZERO)).collect();
        own(&mut node, 256..512);
        sent.extend(std::iter::from_fn(|| node.poll_transmit(Duration::ZERO)));
        assert_eq!((sent, node.stats().dropped), ((0..512).collect(), 0));
        own(&mut node, 512..1024);
        assert_eq!(node.stats().dropped, 256, "never sent");
    }

    #[test]
    fn an_own_message_is_sent_however_many_wait() {
        let mut node = node(Rules::SUPPRESSED);
        let messages = 2 * PENDING_MAX as u32;
        (1..messages).for_each(|key| node.handle_first(Duration::ZERO, key, key));
        node.handle_own(Duration::ZERO, 0, 0);
        (messages..2 * messages).for_each(|key| node.handle_first(Duration::ZERO, key, key));
        assert_eq!((node.poll_transmit(Duration::ZERO), node.pending.len()), (Some(0), PENDING_MAX));
    }

    #[derive(Clone, Debug)]
    enum Call {
        First(u32),
        Own(u32),
        Copy(u32, u32),
    }

    fn calls() -> impl Strategy<Value = Vec<(u64, Call)>> {
        let key = 0u32..40;
        let call = prop_oneof![
            key.clone().prop_map(Call::First),
            key.clone().prop_map(Call::Own),
            (key, 0u32..3).prop_map(|(key, copies)| Call::Copy(key, copies)),
        ];
        prop::collection::vec((0u64..8000, call), 0..200)
    }

    fn rules() -> impl Strategy<Value = Rules> {
        (0u64..20, 0u32..6, 0u32..6, 0u32..4).prop_map(|(jitter, threshold, enough, repeats)| Rules {
            jitter: Duration::from_millis(jitter),
            threshold,
            enough,
            repeats,
        })
    }

    proptest! {
        #[test]
        fn every_message_is_sent_suppressed_or_dropped_and_sent_again_no_more_than_allowed(
            rules in rules(),
            calls in calls(),
        ) {
            let run = || {
                let (mut node, mut now, mut sent) = (node(rules), Duration::ZERO, Vec::new());
                for (step, call) in &calls {
                    now += Duration::from_micros(*step);
                    sent.extend(std::iter::from_fn(|| node.poll_transmit(now)));
                    match *call {
                        Call::First(key) => node.handle_first(now, key, key),
                        Call::Own(key) => node.handle_own(now, key, key),
                        Call::Copy(key, copies) => node.handle_copy(key, copies),
                    }
                }
                sent.extend(drain(&mut node).into_iter().map(|(_, frame)| frame));
                (sent, node.stats(), node.pending.len())
            };
            let (sent, stats, pending) = run();
            prop_assert_eq!(pending, 0);
            let messages = calls.iter().filter(|(_, call)| !matches!(call, Call::Copy(..))).count();
            prop_assert_eq!(stats.sent + stats.suppressed + stats.dropped, messages as u64);
            prop_assert_eq!(stats.sent + stats.repeated, sent.len() as u64);
            prop_assert!(stats.repeated <= stats.sent * u64::from(rules.repeats));
            if rules.threshold == 0 {
                prop_assert_eq!(stats.suppressed, 0);
            }
            prop_assert_eq!((sent, stats, pending), run());
        }
    }
}
