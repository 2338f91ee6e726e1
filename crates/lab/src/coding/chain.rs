//! A chain of nodes on an 802.11 medium: what each has on the way from IP to its interface.

use std::ffi::OsString;
use std::time::Duration;

use link::dcf::{DcfConfig, Phy, Position};

use crate::clock;
use crate::counters::Counters;
use crate::dcf::{INTERFACE, Medium};
use crate::error::Result;
use crate::guest::Guest;
use crate::mesh::{self, SPACING_M, address};
use crate::ping;
use crate::program::{self, Process, output};
use crate::system::{Means, start_nawa};

use super::batman;
use super::test::{Mode, Test};
use super::transfer::Host;

/// What `nawa` gives IP.
const MASTER: &str = "nc0";

/// Before each node's `nawa`: a node has a processor to itself in truth, and shares this one only here. Where priority is
/// refused, `nice` says so and goes on.
const LAUNCHER: [&str; 3] = ["nice", "-n", "-20"];

/// What IP sends at most, with coding and without.
const IP_MTU: u32 = 1500;

/// What an NC layer counts, by its name in `nawa status --json`.
const NAMES: &str = "sent_frames sent_coded_frames relayed_packets held_packets held_time_ms held_1ms_packets \
                     held_10ms_packets expired_packets missing_partner_frames wrong_partner_frames \
                     queue_dropped_frames";

/// The MAC's repetitions.
pub(super) const REPEATED: &str = "repeated";

/// For an answer from the far end.
const READY_LIMIT: Duration = Duration::from_secs(10);

/// The same from guests.
const SETTLED_LIMIT: Duration = Duration::from_secs(60);

/// A chain that carries traffic; dropping it removes it.
pub(super) struct Chain {
    // Dropped in this order.
    nodes: Vec<Process>,
    guests: Vec<Guest>,
    medium: Medium,
}

impl Chain {
    /// All nodes of `test` are ready, each knows its neighbours and the way to the others.
    pub(super) fn start(test: &Test, means: &Means, seed: u64) -> Result<Self> {
        let stations = Position::chain(test.hops + 1, SPACING_M);
        let config = DcfConfig {
            overhearing_loss: test.overhearing_loss,
            aggregate: test.aggregate,
            fq_codel: test.aggregate > 1 && test.mode.leaves_queue(),
            ..DcfConfig::new(Phy::g54(), stations)
        };
        let medium = Medium::build(config, seed)?;
        if let Mode::Batman { codes } = test.mode {
            return Self::start_guests(medium, codes, test.bursts);
        }
        let launcher = LAUNCHER.map(OsString::from);
        let mut nodes = Vec::new();
        for (number, node) in medium.nodes().iter().enumerate() {
            mesh::forward(node)?;
            let interface = match test.mode {
                Mode::Plain => {
                    node.ip(&[format!("addr add {}/24 dev {INTERFACE}", address(number))])?;
                    INTERFACE
                }
                _ => {
                    let text = configuration(test, number);
                    nodes.push(start_nawa(means, node, &launcher, &format!("n{number}"), &text)?);
                    MASTER
                }
            };
            node.ip(&[format!("link set {interface} mtu {IP_MTU} up")])?;
            mesh::join(node, number, test.hops + 1, interface)?;
            if !test.bursts {
                node.ip(&[one_segment_at_a_time(interface)])?;
            }
        }
        let chain = Self { nodes, guests: Vec::new(), medium };
        // An interface that has just come up loses what it is given first.
        let [(first, _), (_, last)] = chain.ends();
        ping::await_answer(first, last.into(), READY_LIMIT)?;
        Ok(chain)
    }

    fn start_guests(medium: Medium, codes: bool, bursts: bool) -> Result<Self> {
        let chain = Self { nodes: Vec::new(), guests: batman::start(&medium, codes)?, medium };
        for (host, address) in chain.ends() {
            host.ip(&[format!("addr add {address}/24 dev {}", batman::HOST_INTERFACE)])?;
            if !bursts {
                host.ip(&[one_segment_at_a_time(batman::HOST_INTERFACE)])?;
            }
        }
        // While the way is not known yet, nobody answers for the address, and `ping` gives up.
        let [(host, _), (_, far)] = chain.ends();
        let answered = || ping::await_answer(host, far.into(), Duration::from_secs(2)).ok();
        clock::within(SETTLED_LIMIT, "the guests did not find each other", answered)?;
        // That takes as long as nodes take to learn who overhears whom.
        output(host, "ping", &["-n", "-q", "-i", "0.5", "-c", "10", &far.to_string()])?;
        Ok(chain)
    }

    /// The first node and the last, and their addresses.
    pub(super) fn ends(&self) -> [Host<'_>; 2] {
        [0, self.medium.nodes().len() - 1].map(|n| (self.medium.node(n), address(n)))
    }

    /// What the layers of all nodes counted, or, where there are none, their stations.
    pub(super) fn counters(&mut self, means: &Means) -> Result<Counters> {
        let (plain, mut counters) = (self.nodes.is_empty(), Counters::default());
        for station in self.medium.stats()?.stations {
            counters.add(REPEATED, station.repeated.get() as f64);
            if plain {
                counters.add("sent_frames", station.queued.frames.get() as f64);
                counters.add("queue_dropped_frames", station.dropped.get() as f64);
            }
        }
        for guest in &mut self.guests {
            let (coded, undecoded) = batman::sums(guest)?;
            counters.add("sent_coded_frames", coded as f64);
            counters.add("missing_partner_frames", undecoded as f64);
        }
        if !plain {
            for node in self.medium.nodes() {
                counters.add_all(&program::status(node, means.nawa)?["coding"][0], NAMES)?;
            }
        }
        Ok(counters)
    }

    pub(super) fn lateness(&self) -> Result<Duration> {
        Ok(self.medium.stats()?.lateness)
    }

    /// Fails if a node's `nawa` has ended.
    pub(super) fn check(&mut self) -> Result<()> {
        self.nodes.iter_mut().try_for_each(Process::check)
    }
}

fn configuration(test: &Test, node: usize) -> String {
    let (address, mode, wait) = (address(node), test.mode.configuration(), test.wait.as_millis());
    format!(
        "[[coding]]\ninterface = \"{INTERFACE}\"\nmaster = \"{MASTER}\"\naddresses = [\"{address}/24\"]\n\
         {mode}wait = \"{wait}ms\"\n"
    )
}

/// A line of `ip`: what leaves by `interface` is made so, where the kernel would make bursts in software.
fn one_segment_at_a_time(interface: &str) -> String {
    format!("link set {interface} gso_max_segs 1")
}
