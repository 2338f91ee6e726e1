//! The strand's own core, a node for each place on a medium in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use flood::suppression::Rules as Suppressing;
use flood::{Format, Padding, Rules, Suppression, Verdict, Window, Wire, frame::Kind};
use link::dcf::Destination;
use link::{Adjacency, Arrival};
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

use crate::datagram::ETHERNET;
use crate::ether::Ether;

/// At least any diameter here.
pub(super) const TTL: u8 = 255;

/// ID, epoch and SEQ.
type Key = (u32, u32, u32);

/// A network in virtual time.
pub(crate) struct Simulation {
    format: Format,
    ether: Ether,
    nodes: Vec<Node>,
    /// When each node wants to be asked what it sends.
    due: BTreeSet<(Duration, usize)>,
    /// The nodes whose frame is with the medium, and since when.
    below: BTreeMap<usize, Duration>,
    /// Whether relays wait, and so have one frame with the medium at a time.
    waits: bool,
    now: Duration,
    seq: u32,
}

struct Node {
    window: Window,
    suppression: Suppression<Key, Vec<u8>, ChaCha8Rng>,
}

/// What became of one message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Flooded {
    /// Nodes that have it, the source included.
    pub(crate) reached: usize,
    /// Frames that were sent, by all together.
    pub(crate) transmissions: u64,
    /// From the source's sending to the last node's hearing it.
    pub(crate) last: Duration,
}

impl Simulation {
    /// So many nodes on `ether`, and nobody has sent anything. All chances of theirs are drawn from `seed`.
    pub(crate) fn new(ether: Ether, nodes: usize, rules: Suppressing, seed: u64) -> Self {
        let format = Format::new(Wire::One, None);
        let node = |id: usize| Node {
            window: Window::new(Rules { format, id: number(id), rate_limit: None }),
            suppression: Suppression::new(rules, rng(seed, id)),
        };
        Self {
            format,
            ether,
            nodes: (0..nodes).map(node).collect(),
            due: BTreeSet::new(),
            below: BTreeMap::new(),
            waits: rules != Suppressing::PURE,
            now: Duration::ZERO,
            seq: 0,
        }
    }

    /// Until when it has gone.
    pub(crate) fn now(&self) -> Duration {
        self.now
    }

    /// From now on nodes hear each other so, over links; stations stay where they are.
    pub(crate) fn set_adjacency(&mut self, adjacency: &Adjacency) {
        if let Ether::Links(medium) = &mut self.ether {
            medium.set_adjacency(adjacency);
        }
    }

    /// `source` sends a message of `bytes` with `ttl`; goes on until nobody has anything left to send.
    pub(crate) fn flood(&mut self, source: usize, bytes: usize, ttl: u8) -> Flooded {
        self.flood_all(&[(self.now, source)], bytes, ttl)[0]
    }

    /// The same with a message at each of these times. What was sent is shared among them.
    pub(crate) fn flood_all(
        &mut self,
        messages: &[(Duration, usize)],
        bytes: usize,
        ttl: u8,
    ) -> Vec<Flooded> {
        let (first, before) = (self.seq + 1, self.ether.transmissions(self.nodes.len()));
        let mut flooded =
            vec![Flooded { reached: 1, transmissions: 0, last: Duration::ZERO }; messages.len()];
        let mut coming = messages.iter();
        loop {
            let began = coming.as_slice().first().map(|&(time, _)| time);
            let Some(now) = self.next().into_iter().chain(began).min() else { break };
            self.now = self.now.max(now);
            while let Some(Arrival { at, frame, .. }) = self.ether.poll(self.now) {
                if let Some(message) = self.hear(at, &frame[self.header()..]) {
                    let index = (message.2 - first) as usize;
                    flooded[index].reached += 1;
                    flooded[index].last = self.now - messages[index].0;
                }
            }
            self.finish();
            while coming.as_slice().first().is_some_and(|&(time, _)| time <= self.now) {
                let Some(&(_, source)) = coming.next() else { break };
                self.begin(source, bytes, ttl);
            }
            self.transmit();
        }
        let transmissions = self.ether.transmissions(self.nodes.len()) - before;
        let count = messages.len() as u64;
        for (index, message) in (0..).zip(&mut flooded) {
            message.transmissions = transmissions / count + u64::from(index < transmissions % count);
        }
        flooded
    }

    fn begin(&mut self, source: usize, bytes: usize, ttl: u8) {
        self.seq += 1;
        let header = flood::Header { id: number(source), epoch: 1, seq: self.seq, ttl, kind: Kind::Data };
        let frame = self.format.write(&header, &vec![0; bytes]);
        self.change(source, |node, now| node.suppression.handle_own(now, key(&header), frame));
    }

    /// What a frame has before the strand's own on this medium.
    fn header(&self) -> usize {
        if let Ether::Dcf(_) = self.ether { ETHERNET } else { 0 }
    }

    fn next(&self) -> Option<Duration> {
        let due = self.due.first().map(|&(time, _)| time);
        self.ether.poll_timeout().into_iter().chain(due).min()
    }

    /// The message, if it is new to the node.
    fn hear(&mut self, at: usize, bytes: &[u8]) -> Option<Key> {
        let format = self.format;
        self.change(at, |node, now| match node.window.handle_frame(now, bytes, Padding::None) {
            Ok(frame) => {
                if let Some(relayed) = format.relayed(&frame, bytes) {
                    node.suppression.handle_first(now, key(&frame.header), relayed);
                }
                Some(key(&frame.header))
            }
            Err(Verdict::Duplicate | Verdict::Own) => {
                let copy = format.read(bytes, Padding::None);
                copy.iter().for_each(|frame| node.suppression.handle_copy(key(&frame.header), 1));
                None
            }
            Err(_) => None,
        })
    }

    /// Sends what is due.
    fn transmit(&mut self) {
        while let Some((_, index)) = self.due.first().copied().filter(|&(due, _)| due <= self.now) {
            let frame = self.change(index, |node, now| node.suppression.poll_transmit(now));
            let Some(frame) = frame else { continue };
            let frame = [&vec![0; self.header()][..], &frame].concat();
            self.ether.send(self.now, index, Destination::Broadcast, frame);
            if self.waits && !self.ether.is_done(index) {
                self.below.insert(index, self.now);
                self.change(index, |_, _| ());
            }
        }
    }

    /// Nodes whose frame has been on the air may send the next.
    fn finish(&mut self) {
        let below = self.below.iter().map(|(&index, &since)| (index, since));
        let done: Vec<_> = below.filter(|(index, _)| self.ether.is_done(*index)).collect();
        for (index, since) in done {
            self.below.remove(&index);
            self.change(index, |node, now| node.suppression.handle_sent(now - since));
        }
    }

    /// Something happens at a node now; when it is due changes.
    fn change<T>(&mut self, index: usize, event: impl FnOnce(&mut Node, Duration) -> T) -> T {
        let node = &mut self.nodes[index];
        if let Some(due) = node.suppression.poll_timeout() {
            self.due.remove(&(due, index));
        }
        let result = event(node, self.now);
        if !self.below.contains_key(&index) {
            self.due.extend(node.suppression.poll_timeout().map(|due| (due, index)));
        }
        result
    }
}

fn key(header: &flood::Header) -> Key {
    (header.id, header.epoch, header.seq)
}

fn number(node: usize) -> u32 {
    u32::try_from(node).unwrap_or(u32::MAX)
}

/// Each node's own stream of the seed.
fn rng(seed: u64, node: usize) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(node as u64 + 1);
    rng
}

#[cfg(test)]
mod tests {
    use super::*;
    use link::{LinkConfig, dcf};

    fn on(adjacency: &Adjacency, rules: Suppressing, seed: u64) -> Simulation {
        let ether = Ether::links(adjacency, LinkConfig::default(), seed);
        Simulation::new(ether, adjacency.nodes(), rules, seed)
    }

    fn run(adjacency: &Adjacency, rules: Suppressing, seed: u64) -> Flooded {
        on(adjacency, rules, seed).flood(0, 100, TTL)
    }

    #[test]
    fn pure_flooding_reaches_all_of_any_connected_network_with_one_frame_each() {
        let mut networks = vec![Adjacency::chain(40), Adjacency::grid(7, 9), Adjacency::complete(30)];
        networks.extend((0..20).filter_map(|seed| Adjacency::geometric(60, 6.0 + seed as f64, seed)));
        assert!(networks.len() > 10);
        for network in &networks {
            let Flooded { reached, transmissions, .. } = run(network, Suppressing::PURE, 1);
            assert_eq!((reached, transmissions), (network.nodes(), network.nodes() as u64));
        }
    }

    #[test]
    fn ttl_ends_a_message_that_many_hops_away() {
        let mut chain = on(&Adjacency::chain(10), Suppressing::PURE, 1);
        assert_eq!(chain.flood(0, 100, 4).reached, 5);
    }

    #[test]
    fn a_node_takes_no_message_twice_and_every_message_once() {
        let mut net = on(&Adjacency::grid(5, 5), Suppressing::PURE, 1);
        for round in 0..50 {
            assert_eq!(net.flood(round % 25, 20, TTL).reached, 25);
        }
    }

    #[test]
    fn on_the_air_relays_wait_for_whom_they_hear_and_collide_with_others() {
        let flood = |stations: Vec<_>, seed| {
            let (nodes, config) = (stations.len(), dcf::DcfConfig::new(dcf::Phy::b1(), stations));
            Simulation::new(Ether::dcf(config, seed), nodes, Suppressing::PURE, seed).flood(0, 100, TTL)
        };
        // Those that hear each other take turns.
        let Flooded { reached, transmissions, last } = flood(dcf::Position::chain(5, 20.0), 1);
        assert_eq!((reached, transmissions), (5, 5));
        let first = dcf::Phy::b1().broadcast_time(ETHERNET + 124);
        assert!(last >= first && last < first * 2, "all hear the source: {last:?}");
        // Two that do not are hidden from each other: they send at the same time, and who hears both reads neither.
        let at = |x, y| dcf::Position { x, y };
        let hidden = vec![at(0.0, 0.0), at(55.0, 75.0), at(55.0, -75.0), at(110.0, 0.0)];
        assert!((0..50).all(|seed| flood(hidden.clone(), seed).reached == 3));
    }

    #[test]
    fn suppression_sends_less_and_the_same_seed_the_same() {
        let network = Adjacency::geometric(100, 20.0, 5).unwrap();
        let once = run(&network, Suppressing::SUPPRESSED, 9);
        assert!(once.transmissions < 50 && once.reached > 90, "{once:?}");
        assert_eq!(once, run(&network, Suppressing::SUPPRESSED, 9));
    }
}
