//! What waits for a partner in mode `any`, and whether that is worth it (beyond the paper).
//!
//! The paper's rule, for any ratio: of a run of packets, as many of the later ones wait as partners are due. The ratio of
//! both ways through this node is learnt by counting (two of data for an ACK, or anything else), so no protocol is
//! assumed.
//!
//! A hold can starve nobody: all holds end as soon as the medium falls silent, since then nobody has a partner to send.
//! And packets of a way are held only as long as most of its holds are worth it; after that a trial is made once in a
//! while, to see whether that has changed.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::ethernet::Mac;
use crate::transit::{Transit, find_partner};

/// Ways that are known at once: 8 neighbours, each with each other.
const MAX_WAYS: usize = 64;
/// Packets of one way that wait at most.
const MAX_HELD: u32 = 32;
/// One packet of a budget.
const ONE: u32 = 256;
/// Packets after which counts of both ways are halved, so that they follow what changes.
const HALVE_AT: u32 = 64;
/// What a packet that is pushed out takes from a budget: its partner is late, or will not come.
const PUSHED_OUT: u32 = ONE / 4;
/// An opposite packet this old does not announce another.
const FRESH: Duration = Duration::from_millis(200);
/// Credit that a failure costs: a silence costs the time of several transmissions, a success saves that of one.
const FAILURE_COST: u32 = 4;
/// The most credit: failures in a row that a good way survives.
const MAX_CREDIT: u32 = 16;
/// Packets that pass after credit is used up until the next trial, at first and at most.
const PAUSE: (u32, u32) = (16, 1024);
/// Silence that ends holds, as a multiple of the usual time from one frame to the next: frames of stations two hops away
/// are not heard. A way whose holds were all worth it lately is given the second, any other the first.
const SILENCE_GAPS: (u32, u32) = (3, 8);
/// What the time from one frame to the next is taken for at least: about a frame's at 54 Mbit/s.
const LEAST_GAP: Duration = Duration::from_micros(200);
/// The least silence that ends holds: two full frames at 54 Mbit/s.
const MIN_SILENCE: Duration = Duration::from_micros(800);

/// Packets of the interface queue, as one that is about to be relayed sees them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Leaving {
    /// On its way.
    pub own: usize,
    /// On the opposite way.
    pub partners: usize,
}

/// From one neighbour through this node to another.
type Way = (Mac, Mac);

#[derive(Debug)]
struct Held {
    until: Duration,
    packet: Transit,
}

/// What is known of a way.
#[derive(Debug)]
struct Experience {
    /// Packets lately.
    packets: u32,
    last: Duration,
    /// Packets that may wait, in parts of [`ONE`].
    budget: u32,
    /// While there is credit, packets are held.
    credit: u32,
    /// Packets that still pass until the next trial, and that will pass after it if it fails.
    passing: u32,
    pause: u32,
}

/// All packets that wait, and what is known of the ways that they take.
#[derive(Debug, Default)]
pub struct Holds {
    held: VecDeque<Held>,
    ways: BTreeMap<Way, Experience>,
    activity: Activity,
}

impl Holds {
    /// A packet that is about to be relayed waits until `until`, or for less. `leaving` are about to leave. Returns what goes
    /// now, in its order: those that somebody waits for or that are pushed out, and the packet itself if it is not to wait.
    pub fn insert(
        &mut self,
        now: Duration,
        until: Duration,
        packet: Transit,
        leaving: Leaving,
    ) -> Vec<Transit> {
        let Some(way) = way(&packet) else { return vec![packet] };
        self.count(now, way);
        self.hold(until, packet);
        let (waiting, may_wait) = (self.waiting(way), self.may_wait(now, way));
        // Two that wait for each other would both wait in vain. Of those that wait, each that leaves already takes one.
        let wanted = self.waiting((way.1, way.0)).saturating_sub(leaving.own).min(waiting);
        let going = waiting.saturating_sub(may_wait + leaving.partners.min(MAX_HELD as usize)).max(wanted);
        let pushed_out = going.min(waiting - 1).saturating_sub(wanted);
        if let Some(own) = self.ways.get_mut(&way) {
            own.spend(ONE * wanted as u32 + PUSHED_OUT * pushed_out as u32);
        }
        (0..going).filter_map(|_| self.take_first(way)).collect()
    }

    /// A packet waits until `until`, or for less.
    pub fn hold(&mut self, until: Duration, packet: Transit) {
        self.held.push_back(Held { until, packet });
    }

    fn waiting(&self, way: Way) -> usize {
        self.held.iter().filter(|held| is_on(&held.packet, way)).count()
    }

    fn take_first(&mut self, way: Way) -> Option<Transit> {
        let first = self.held.iter().position(|held| is_on(&held.packet, way))?;
        self.held.remove(first).map(|held| held.packet)
    }

    /// How many packets of a way may wait, one more of them having come: the generalised `Qlen`.
    fn may_wait(&mut self, now: Duration, way: Way) -> usize {
        let opposite = self.ways.get(&(way.1, way.0));
        let others = opposite.filter(|o| now.saturating_sub(o.last) < FRESH).map_or(0, |o| o.packets);
        let Some(own) = self.ways.get_mut(&way) else { return 0 };
        if others == 0 || !own.tries() {
            own.budget = 0;
            return 0;
        }
        let as_many = others * 5 >= own.packets * 4;
        let share = if as_many { ONE } else { others * ONE / own.packets };
        own.budget = (own.budget + share).min(MAX_HELD * ONE);
        (own.budget / ONE) as usize
    }

    /// The partner of `leaving`, as [`find_partner`] chooses it: its wait was worth it.
    pub fn take_partner(&mut self, leaving: &Transit, fits: impl Fn(&Transit) -> bool) -> Option<Transit> {
        let packets = (0..).zip(&self.held).map(|(index, held)| (index, &held.packet));
        let index = find_partner(packets, leaving, fits)?;
        let packet = self.held.remove(index)?.packet;
        self.learn(&packet, Experience::succeeded);
        Some(packet)
    }

    /// What waits on the same way as `packet`, which is not to wait, so that nothing is overtaken.
    pub fn release(&mut self, packet: &Transit) -> Vec<Transit> {
        match way(packet) {
            Some(way) => take_all(&mut self.held, |held| is_on(&held.packet, way)),
            None => Vec::new(),
        }
    }

    /// Everything that waits.
    pub fn clear(&mut self) -> Vec<Transit> {
        self.held.drain(..).map(|held| held.packet).collect()
    }

    /// A frame was heard, or sent.
    pub fn note_activity(&mut self, now: Duration) {
        self.activity.note(now);
    }

    /// The usual time from one frame on the medium to the next.
    pub fn gap(&self) -> Duration {
        self.activity.gap.max(LEAST_GAP)
    }

    /// What has waited in vain: too long, or the medium is silent.
    pub fn expire(&mut self, now: Duration) -> Vec<Transit> {
        let [short, long] = [SILENCE_GAPS.0, SILENCE_GAPS.1].map(|gaps| now >= self.activity.silent_at(gaps));
        let ways = &self.ways;
        let is_over = |held: &Held| {
            held.until <= now || if patience(ways, held) == SILENCE_GAPS.1 { long } else { short }
        };
        let expired = take_all(&mut self.held, is_over);
        expired.iter().for_each(|packet| self.learn(packet, Experience::failed));
        expired
    }

    /// When [`expire`](Self::expire) has something next, if nothing is heard.
    pub fn next_expiry(&self) -> Option<Duration> {
        let due = |held: &Held| held.until.min(self.activity.silent_at(patience(&self.ways, held)));
        self.held.iter().map(due).min()
    }

    /// Packets that wait.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Why no packet waits at present, if so.
    pub fn idle_because(&self, now: Duration) -> Option<&'static str> {
        let lately =
            |way: Way| self.ways.get(&way).is_some_and(|known| now.saturating_sub(known.last) < FRESH);
        let opposed = self.ways.iter().filter(|((from, to), _)| lately((*from, *to)) && lately((*to, *from)));
        let mut credits = opposed.map(|(_, known)| known.credit).peekable();
        if credits.peek().is_none() {
            return Some("nothing is relayed both ways between neighbours that packets are held for");
        }
        credits.all(|credit| credit == 0).then_some("too many packets that waited found no partner")
    }

    fn count(&mut self, now: Duration, way: Way) {
        if self.ways.len() >= MAX_WAYS && !self.ways.contains_key(&way) {
            let oldest = self.ways.iter().min_by_key(|(_, known)| known.last).map(|(way, _)| *way);
            oldest.and_then(|oldest| self.ways.remove(&oldest));
        }
        let known = self.ways.entry(way).or_default();
        known.packets += 1;
        known.last = now;
        if known.packets >= HALVE_AT {
            known.packets /= 2;
            if let Some(opposite) = self.ways.get_mut(&(way.1, way.0)) {
                opposite.packets /= 2;
            }
        }
    }

    fn learn(&mut self, packet: &Transit, lesson: fn(&mut Experience)) {
        if let Some(known) = way(packet).and_then(|way| self.ways.get_mut(&way)) {
            lesson(known);
        }
    }
}

fn take_all(held: &mut VecDeque<Held>, which: impl Fn(&Held) -> bool) -> Vec<Transit> {
    let (taken, left) = held.drain(..).partition(which);
    *held = left;
    VecDeque::into_iter(taken).map(|held| held.packet).collect()
}

impl Default for Experience {
    fn default() -> Self {
        Self {
            packets: 0,
            last: Duration::ZERO,
            budget: 0,
            credit: MAX_CREDIT - FAILURE_COST,
            passing: 0,
            pause: PAUSE.0,
        }
    }
}

impl Experience {
    /// Whether the next packet waits: while there is credit, or for a trial.
    fn tries(&mut self) -> bool {
        if self.credit > 0 {
            return true;
        }
        self.passing = self.passing.saturating_sub(1);
        if self.passing == 0 {
            self.credit = 1;
        }
        self.credit > 0
    }

    fn spend(&mut self, budget: u32) {
        self.budget = self.budget.saturating_sub(budget);
    }

    fn succeeded(&mut self) {
        self.spend(ONE);
        self.credit = (self.credit + 1).min(MAX_CREDIT);
        self.pause = (self.pause / 2).max(PAUSE.0);
    }

    fn failed(&mut self) {
        self.spend(ONE);
        if self.credit > 0 {
            self.credit = self.credit.saturating_sub(FAILURE_COST);
            if self.credit == 0 {
                self.passing = self.pause;
                self.pause = (self.pause * 2).min(PAUSE.1);
            }
        }
    }
}

/// How busy the medium is.
#[derive(Debug, Default)]
struct Activity {
    last: Duration,
    /// From one frame to the next, smoothed over eight.
    gap: Duration,
}

impl Activity {
    fn note(&mut self, now: Duration) {
        // A silence in which all held what they had says nothing of the medium's pace, and would make the next one longer.
        let most = SILENCE_GAPS.0 * self.gap.max(LEAST_GAP);
        let gap = now.saturating_sub(self.last).min(most);
        self.gap = (self.gap * 7 + gap) / 8;
        self.last = now;
    }

    /// When nobody who had something to send would be silent still.
    fn silent_at(&self, gaps: u32) -> Duration {
        self.last.saturating_add((gaps * self.gap).max(MIN_SILENCE))
    }
}

/// How much silence ends a hold, in gaps: where senders wait for their windows, a long one costs more than it gains.
fn patience(ways: &BTreeMap<Way, Experience>, held: &Held) -> u32 {
    let known = way(&held.packet).and_then(|way| ways.get(&way));
    let all_well = known.is_some_and(|known| known.credit >= MAX_CREDIT);
    if all_well { SILENCE_GAPS.1 } else { SILENCE_GAPS.0 }
}

fn way(packet: &Transit) -> Option<Way> {
    packet.previous_hop.map(|previous| (previous, packet.next_hop))
}

fn is_on(packet: &Transit, wanted: Way) -> bool {
    way(packet) == Some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagram::Datagram;

    const LEFT: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const RIGHT: Mac = Mac([2, 0, 0, 0, 0, 3]);

    fn us(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    fn packet(from: Mac, to: Mac, n: u32) -> Transit {
        let mut bytes = vec![0; 60];
        (bytes[0], bytes[5], bytes[6]) = (0x60, 20, 17);
        bytes[48..52].copy_from_slice(&n.to_be_bytes());
        let datagram = Datagram::parse(bytes).unwrap();
        Transit { datagram, previous_hop: Some(from), next_hop: to, came: us(0) }
    }

    fn there(holds: &mut Holds, now: Duration, n: u32) -> usize {
        holds.insert(now, now + us(10_000), packet(LEFT, RIGHT, n), Leaving::default()).len()
    }

    #[test]
    fn why_nothing_waits_is_said() {
        let mut holds = Holds::default();
        there(&mut holds, us(0), 0);
        let one_way = holds.idle_because(us(0));
        assert!(one_way.is_some_and(|why| why.contains("both ways")));
        learn(&mut holds, 1);
        assert_eq!((holds.idle_because(us(0)), holds.idle_because(FRESH)), (None, one_way));
        holds.ways.values_mut().for_each(|known| (0..MAX_CREDIT / FAILURE_COST).for_each(|_| known.failed()));
        assert!(holds.idle_because(us(0)).is_some_and(|why| why.contains("no partner")));
    }

    /// One packet back for each `ratio` there, all of which find a partner.
    fn learn(holds: &mut Holds, ratio: u32) {
        for n in 0..400 {
            holds.note_activity(us(0));
            if n % (ratio + 1) == 0 {
                let back = packet(RIGHT, LEFT, n);
                holds.take_partner(&back, |_| true);
                holds.insert(us(0), us(10_000), back, Leaving { own: 0, partners: 1 });
                holds.take_partner(&packet(LEFT, RIGHT, n), |_| true);
            } else {
                there(holds, us(0), n);
            }
        }
        holds.clear();
        holds.ways.values_mut().for_each(|known| known.budget = 0);
    }

    #[test]
    fn nothing_waits_before_anything_came_the_other_way() {
        let mut holds = Holds::default();
        assert!((0..50).all(|n| there(&mut holds, us(0), n) == 1));
    }

    #[test]
    fn the_share_that_waits_is_learnt() {
        for ratio in [1, 2, 4] {
            let mut holds = Holds::default();
            learn(&mut holds, ratio);
            let out: usize = (0..8).map(|n| there(&mut holds, us(100), n)).sum();
            let expected = 8 - 8 / ratio as usize;
            assert!(out.abs_diff(expected) <= 2, "{ratio} for one: {out} instead of {expected}");
        }
    }

    #[test]
    fn none_waits_for_one_that_waits_for_it() {
        let mut holds = Holds::default();
        learn(&mut holds, 1);
        assert_eq!([0, 1].map(|n| there(&mut holds, us(100), n)), [0, 0]);
        let mut back = |n, own| {
            let leaving = Leaving { own, partners: 0 };
            holds.insert(us(100), us(10_000), packet(RIGHT, LEFT, n), leaving)
        };
        assert_eq!([back(0, 0), back(1, 1)].concat(), [0, 1].map(|n| packet(RIGHT, LEFT, n)));
        assert_eq!(back(2, 2), [], "each of both takes one");
        assert_eq!(there(&mut holds, us(100), 2), 1, "the first goes, so that none is overtaken");
    }

    #[test]
    fn silence_ends_all_holds() {
        let mut holds = Holds::default();
        learn(&mut holds, 1);
        assert_eq!(there(&mut holds, us(100), 0), 0);
        assert_eq!(holds.next_expiry(), Some(MIN_SILENCE));
        holds.note_activity(us(500));
        let silent = holds.next_expiry().unwrap();
        assert!(silent >= us(500) + MIN_SILENCE, "the medium was busy");
        assert_eq!((holds.expire(silent - us(1)).len(), holds.expire(silent).len()), (0, 1));
        assert_eq!((holds.len(), holds.next_expiry()), (0, None));
    }

    #[test]
    fn what_fails_is_given_up_and_tried_again_ever_more_rarely() {
        let mut holds = Holds::default();
        learn(&mut holds, 1);
        let mut waited = Vec::new();
        for n in 0..3000u32 {
            let now = us(u64::from(n) * 10);
            let back = packet(RIGHT, LEFT, n);
            holds.count(now, way(&back).unwrap());
            if there(&mut holds, now, n) == 0 {
                waited.push(n);
                assert_eq!(holds.expire(now + us(50_000)).len(), 1);
            }
        }
        let gaps: Vec<u32> = waited.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.len() < 16 && gaps.is_sorted() && gaps.last() > Some(&500), "{gaps:?}");
    }

    #[test]
    fn what_is_known_is_bounded() {
        let mut holds = Holds::default();
        for n in 0..1000u32 {
            let [_, _, high, low] = n.to_be_bytes();
            let other = Mac([4, 0, 0, 0, high, low]);
            let leaving = Leaving { own: 40, partners: 40 };
            holds.insert(us(n.into()), us(10_000), packet(RIGHT, other, n), leaving);
            holds.insert(us(n.into()), us(10_000), packet(other, RIGHT, n), leaving);
        }
        assert!(holds.ways.len() <= MAX_WAYS);
        let kept = (0..200).map(|n| there(&mut holds, us(2000), n)).filter(|out| *out == 0).count();
        assert!(kept <= 2 * MAX_HELD as usize, "{kept}");
    }
}
