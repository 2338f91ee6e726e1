//! A chain of nodes on an 802.11 medium: what each has on the way from IP to its interface.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use link::dcf::{DcfConfig, Phy, Position};

use crate::clock;
use crate::dcf::{INTERFACE, Lateness, Medium, mac};
use crate::error::Error;
use crate::guest::Guest;
use crate::namespace::Namespace;
use crate::ping;
use crate::program::{Process, output};
use crate::system::{Means, start_nawa};

use super::batman;
use super::counters::Counters;
use super::mode::Mode;
use super::test::Test;

/// What `nawa` gives IP.
const MASTER: &str = "nc0";

/// Between neighbours, in metres: they read each other at the data rate, and nobody further does.
const SPACING_M: f64 = 90.0;

/// Before each node's `nawa`: a node has a processor to itself in truth, and shares this one only here. Where priority is
/// refused, `nice` says so and goes on.
const LAUNCHER: [&str; 3] = ["nice", "-n", "-20"];

/// What IP sends at most, with coding and without.
const IP_MTU: u32 = 1500;

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
    pub(super) fn start(test: &Test, means: &Means, seed: u64) -> Result<Self, Error> {
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
            forward(node)?;
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
            node.sysctl(&format!("ipv4/conf/{interface}/send_redirects"), "0")?;
            node.ip(&way(number, test.hops + 1, interface))?;
            if !test.bursts {
                node.ip(&[one_segment_at_a_time(interface)])?;
            }
        }
        let chain = Self { nodes, guests: Vec::new(), medium };
        // An interface that has just come up loses what it is given first.
        let ((first, _), (_, last)) = chain.ends();
        ping::await_answer(first, None, last.into(), READY_LIMIT)?;
        Ok(chain)
    }

    fn start_guests(medium: Medium, codes: bool, bursts: bool) -> Result<Self, Error> {
        let chain = Self { nodes: Vec::new(), guests: batman::start(&medium, codes)?, medium };
        let ends = chain.ends();
        for (host, address) in [ends.0, ends.1] {
            host.ip(&[format!("addr add {address}/24 dev {}", batman::HOST_INTERFACE)])?;
            if !bursts {
                host.ip(&[one_segment_at_a_time(batman::HOST_INTERFACE)])?;
            }
        }
        // While the way is not known yet, nobody answers for the address, and `ping` gives up.
        let (host, far) = (ends.0.0, IpAddr::from(ends.1.1));
        let answered = || ping::await_answer(host, None, far, Duration::from_secs(2)).ok();
        let late = || Error::Late {
            what: "the guests did not find each other".into(),
            seconds: SETTLED_LIMIT.as_secs(),
        };
        clock::poll_until(SETTLED_LIMIT, answered).ok_or_else(late)?;
        // That takes as long as nodes take to learn who overhears whom.
        output(host, "ping", &["-n", "-q", "-i", "0.5", "-c", "10", &far.to_string()])?;
        Ok(chain)
    }

    /// The first node and the last, and their addresses.
    pub(super) fn ends(&self) -> (super::transfer::Host<'_>, super::transfer::Host<'_>) {
        let last = self.medium.nodes().len() - 1;
        let host = |n: usize| (self.medium.node(n), address(n));
        (host(0), host(last))
    }

    /// What the layers of all nodes counted, or, where there are none, their stations.
    pub(super) fn counters(&mut self, means: &Means) -> Result<Counters, Error> {
        let stations = self.medium.stats()?.stations;
        if self.nodes.is_empty() {
            let mut counters = Counters::of_stations(&stations);
            for guest in &mut self.guests {
                let (coded, undecoded) = batman::sums(guest)?;
                (counters.coded, counters.undecoded) =
                    (counters.coded + coded, counters.undecoded + undecoded);
            }
            return Ok(counters);
        }
        let layers = self.medium.nodes().iter().map(|node| Counters::of_layer(node, means));
        let layers = layers.collect::<Result<Vec<_>, _>>()?;
        let repeated = Counters::of_stations(&stations).repeated;
        Ok(Counters { repeated, ..layers.into_iter().sum() })
    }

    pub(super) fn lateness(&self) -> Result<Lateness, Error> {
        Ok(self.medium.stats()?.lateness)
    }

    /// Fails if a node's `nawa` has ended.
    pub(super) fn check(&mut self) -> Result<(), Error> {
        self.nodes.iter_mut().try_for_each(Process::check)
    }
}

fn address(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 88, 0, u8::try_from(node + 1).unwrap_or(u8::MAX))
}

fn configuration(test: &Test, node: usize) -> String {
    let (address, mode, wait) = (address(node), test.mode.configuration(), test.wait.as_millis());
    format!(
        "[[coding]]\ninterface = \"{INTERFACE}\"\nmaster = \"{MASTER}\"\naddresses = [\"{address}/24\"]\n\
         {mode}wait = \"{wait}ms\"\n"
    )
}

/// Packets go out by the interface that they came in by: nobody is to be told of a shorter way.
fn forward(node: &Namespace) -> Result<(), Error> {
    node.sysctl("ipv4/ip_forward", "1")?;
    ["all", "default"].iter().try_for_each(|of| {
        node.sysctl(&format!("ipv4/conf/{of}/send_redirects"), "0")?;
        node.sysctl(&format!("ipv4/conf/{of}/accept_redirects"), "0")
    })
}

/// Lines of `ip` that give `node` its MTU, its neighbours and, by them, the way to the others of `count` nodes.
fn way(node: usize, count: usize, interface: &str) -> Vec<String> {
    let mut lines = vec![format!("link set {interface} mtu {IP_MTU} up")];
    for other in (0..count).filter(|other| *other != node) {
        let next = if other > node { node + 1 } else { node - 1 };
        lines.push(match other == next {
            true => {
                format!("neigh replace {} lladdr {} dev {interface} nud permanent", address(next), mac(next))
            }
            false => format!("route replace {} via {} dev {interface}", address(other), address(next)),
        });
    }
    lines
}

/// A line of `ip`: what leaves by `interface` is made so, where the kernel would make bursts in software.
fn one_segment_at_a_time(interface: &str) -> String {
    format!("link set {interface} gso_max_segs 1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_in_the_middle_knows_both_neighbours_and_the_way_beyond() {
        let lines = way(1, 4, "w0");
        assert_eq!(
            lines[1..],
            [
                "neigh replace 10.88.0.1 lladdr 02:00:00:00:00:01 dev w0 nud permanent",
                "neigh replace 10.88.0.3 lladdr 02:00:00:00:00:03 dev w0 nud permanent",
                "route replace 10.88.0.4 via 10.88.0.3 dev w0",
            ]
        );
    }
}
