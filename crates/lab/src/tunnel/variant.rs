//! What the cases of `tunnel` vary.

use std::time::Duration;

use link::{Bitrate, Capacity, LinkConfig, Queue};

use crate::experiment::Case;
use crate::iperf::{Iperf, Protocol};
use crate::links::{OnLinks, Setup};
use crate::network::{PathSpec, Topology};
use crate::system::{Back, Clocks, NawaSetup, System};
use crate::tasks::Stream;

/// Rivals: the system's name and its program.
pub(super) const RIVALS: [(&str, &str); 2] =
    [("boringtun", "boringtun-cli"), ("wireguard-go", "wireguard-go")];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Tcp,
    Udp,
}

/// The links that a case has, by their name in the JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    /// So many of 10 Mbit/s, without delay.
    Equal(usize),
    /// Two of 50 and 10 Mbit/s.
    Uneven,
    /// Two fast ones and one of the same rate with a long delay.
    Slow,
    /// Nothing limits them.
    Unshaped,
}

/// One row of a plan: all that some systems are measured with.
pub(super) struct Row {
    pub(super) systems: Vec<&'static str>,
    pub(super) links: Vec<Links>,
    pub(super) transports: Vec<Transport>,
    pub(super) clocks: Vec<Clocks>,
    pub(super) back: Back,
}

/// One case's key.
pub(super) struct Variant {
    pub(super) system: &'static str,
    pub(super) links: Links,
    pub(super) transport: Transport,
    pub(super) clocks: Clocks,
    pub(super) back: Back,
}

impl Row {
    pub(super) fn variants(&self) -> Vec<Variant> {
        let mut variants = Vec::new();
        for &system in &self.systems {
            for &transport in &self.transports {
                for &clocks in &self.clocks {
                    let variant = |&links| Variant { system, links, transport, clocks, back: self.back };
                    variants.extend(self.links.iter().map(variant));
                }
            }
        }
        variants
    }
}

impl Variant {
    pub(super) fn case(&self, time: Duration) -> Case {
        let topology = self.links.topology();
        let paths = self.paths(&topology);
        Case {
            key: vec![
                ("system", self.system.into()),
                ("links", self.links.name().into()),
                ("paths", paths.into()),
                ("transport", self.transport.name().into()),
                ("clocks", self.clocks.name().into()),
                ("back", self.back.name().into()),
            ],
            estimate: time + Iperf::WARM_UP + overhead(paths),
            workload: OnLinks {
                task: Stream { protocol: self.transport.protocol(&topology), time },
                setup: Setup { topology, system: self.system(), congestion_control: "cubic" },
            },
        }
        .erase()
    }

    /// As many as the system uses.
    fn paths(&self, topology: &Topology) -> usize {
        match self.system() {
            System::Tcp | System::WireGuard(_) => 1,
            _ => topology.path_names().len(),
        }
    }

    fn system(&self) -> System {
        let setup = NawaSetup { clocks: self.clocks, back: self.back, ..NawaSetup::AUTO };
        match self.system {
            "cubic" | "plain" => System::Tcp,
            "mptcp" => System::Mptcp,
            "nawa" => System::Nawa(setup),
            "nawa-paper" => System::Nawa(NawaSetup { scheduler: "paper", ..setup }),
            "nawa-paper-absolute" => System::Nawa(NawaSetup { scheduler: "paper-absolute", ..setup }),
            rival => {
                let program = RIVALS.iter().find(|(name, _)| *name == rival).map(|(_, program)| *program);
                System::WireGuard(program.unwrap_or(rival))
            }
        }
    }
}

impl Transport {
    pub(super) fn name(self) -> &'static str {
        match self {
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
        }
    }

    fn protocol(self, topology: &Topology) -> Protocol {
        match self {
            Transport::Tcp => Protocol::Tcp,
            Transport::Udp => Protocol::Udp(offered(topology)),
        }
    }
}

impl Links {
    pub(super) fn name(self) -> &'static str {
        match self {
            Links::Equal(_) => "10x10",
            Links::Uneven => "50+10",
            Links::Slow => "10+10+10slow",
            Links::Unshaped => "unshaped",
        }
    }

    pub(super) fn topology(self) -> Topology {
        let path = |name: &str, mbps, milliseconds| path(name, mbps, Duration::from_millis(milliseconds));
        match self {
            Links::Equal(count) => {
                Topology::Relayed((1..=count).map(|n| path(&format!("path{n}"), 10.0, 0)).collect())
            }
            Links::Uneven => Topology::Relayed(vec![path("fast", 50.0, 10), path("slow", 10.0, 10)]),
            Links::Slow => Topology::Relayed(vec![
                path("fast1", 10.0, 10),
                path("fast2", 10.0, 10),
                path("slow", 10.0, 120),
            ]),
            Links::Unshaped => Topology::Direct,
        }
    }
}

fn path(name: &str, mbps: f64, delay: Duration) -> PathSpec {
    let capacity = Capacity::Fixed(Bitrate::from_mbps(mbps));
    PathSpec::symmetric(
        name,
        LinkConfig { capacity, delay, queue: Queue::Packets(100), ..LinkConfig::default() },
    )
}

/// 110 % of the sum of the links' rates; `None` where they have none.
pub(super) fn offered(topology: &Topology) -> Option<Bitrate> {
    let Topology::Relayed(paths) = topology else { return None };
    let rates = paths.iter().map(|path| match path.up.capacity {
        Capacity::Fixed(rate) => Some(rate.as_bps()),
        _ => None,
    });
    let sum: u64 = rates.sum::<Option<u64>>()?;
    Some(Bitrate::from_bps(sum * 11 / 10))
}

/// What starting and stopping a case takes beside its measurement.
fn overhead(paths: usize) -> Duration {
    Duration::from_millis(800 + 120 * paths as u64)
}
