//! The nodes that flood: those that the daemon runs. One whose interface goes waits for another with that name.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::mpsc::Sender;

use device::Net;
use flood::nft;
use flood::node::{self, Mode, Running, Settings, Watch};
use rand_core::{OsRng, TryRngCore};
use serde_json::{Value, json};

use crate::epoch::Epochs;
use crate::event::{Event, ended};
use crate::restarts::{Strand, Unable};

/// A node for each `[[flood]]`. Dropping it stops them.
pub struct Floods {
    nodes: Vec<(Settings, Node)>,
    epochs: Epochs,
}

enum Node {
    Runs {
        /// The interface as it began.
        link: Seen,
        running: Running,
    },
    Waits {
        /// Why it does not run.
        why: String,
        /// The interface as it was when the node ended or was tried last, if it was there.
        tried: Option<Seen>,
    },
}

/// What a node takes for granted of its interface: index, address, MTU, and, in UDP, its first address of IPv4.
type Seen = (u32, Option<[u8; 6]>, u32, Option<Ipv4Addr>);

fn see(net: &mut Net, flood: &Settings) -> io::Result<Seen> {
    let link = net.link(&flood.interface)?;
    let addresses = match flood.mode {
        Mode::Driver => Vec::new(),
        Mode::Kernel | Mode::Application => device::addresses(&flood.interface)?,
    };
    let first = addresses.into_iter().find_map(|address| match address {
        IpAddr::V4(v4) => Some(v4),
        IpAddr::V6(_) => None,
    });
    Ok((link.index, link.mac, link.mtu, first))
}

/// What says how a node is.
#[derive(Clone)]
pub struct View {
    /// Asks it, if it runs.
    watch: Option<Watch>,
    /// Its state if it does not, or does not answer.
    waits: Value,
}

impl Floods {
    /// None yet.
    pub fn new(state_dir: &Path) -> Floods {
        Floods { nodes: Vec::new(), epochs: Epochs::new(state_dir) }
    }

    /// Runs what `wanted` says from now on. A node whose section is the same goes on undisturbed; one that has changed
    /// starts anew.
    ///
    /// # Errors
    /// One sentence if a node cannot start; what came before it in `wanted` is in force: whoever asks goes back.
    pub fn reconfigure(
        &mut self,
        wanted: Vec<Settings>,
        unable: Unable,
        events: &Sender<Event>,
    ) -> Result<(), String> {
        self.nodes.retain(|(flood, _)| wanted.contains(flood));
        for flood in wanted {
            if self.nodes.iter().any(|(running, _)| *running == flood) {
                continue;
            }
            let node = match (start(&flood, &mut self.epochs, events), unable) {
                (Err(why), Unable::Waits) => Node::Waits { why, tried: None },
                (started, _) => started?,
            };
            self.nodes.push((flood, node));
        }
        Ok(())
    }

    /// Interfaces have come, gone or changed; those of `removed` have gone. Stops the nodes whose interface is not there
    /// any more. Returns those to be started: they wait, and their interface is not what they were tried on.
    pub fn follow_interfaces(&mut self, removed: &BTreeSet<u32>) -> Vec<Strand> {
        let mut back = Vec::new();
        if self.nodes.is_empty() {
            return back;
        }
        let Ok(mut net) = Net::open() else { return back };
        for (flood, node) in &mut self.nodes {
            let interface = flood.interface.as_str();
            let there = see(&mut net, flood).ok();
            if let Node::Runs { link, .. } = node
                && (there != Some(*link) || removed.contains(&link.0))
            {
                let changed = there.is_some_and(|there| there.0 == link.0) && !removed.contains(&link.0);
                let why = if changed {
                    "the interface's address or MTU has changed"
                } else {
                    "the interface is gone"
                };
                tracing::warn!(interface, "{why}; its node ends, and another begins when it is there");
                // What it made has to be gone before the next node starts.
                *node = Node::Waits { why: why.into(), tried: None };
            }
            if let Node::Waits { tried, .. } = node
                && std::mem::replace(tried, there) != there
                && there.is_some()
            {
                back.push(Strand::Flood(interface.to_owned()));
            }
        }
        back
    }

    /// The node on `interface` has ended.
    pub fn stop(&mut self, interface: &str, why: &str) {
        for (_, node) in self.nodes.iter_mut().filter(|(flood, _)| flood.interface == interface) {
            let tried = match node {
                Node::Runs { link, .. } => Some(*link),
                Node::Waits { tried, .. } => *tried,
            };
            *node = Node::Waits { why: why.to_owned(), tried };
        }
    }

    /// Starts the node on `interface`, if it waits.
    ///
    /// # Errors
    /// One sentence; then it waits.
    pub fn restart(&mut self, interface: &str, events: &Sender<Event>) -> Result<(), String> {
        for (flood, node) in self.nodes.iter_mut().filter(|(flood, _)| flood.interface == interface) {
            if let Node::Waits { why, .. } = node {
                *node = start(flood, &mut self.epochs, events).inspect_err(|error| why.clone_from(error))?;
            }
        }
        Ok(())
    }

    /// What they are to do.
    pub fn wanted(&self) -> Vec<Settings> {
        self.nodes.iter().map(|(flood, _)| flood.clone()).collect()
    }

    /// What says how they are.
    pub fn views(&self) -> Vec<View> {
        self.nodes.iter().map(|(flood, node)| node.view(flood)).collect()
    }
}

impl Node {
    fn view(&self, flood: &Settings) -> View {
        let (watch, why) = match self {
            Node::Runs { running, .. } => {
                (Some(running.watch()), "the node does not answer: it is being stopped, or hangs")
            }
            Node::Waits { why, .. } => (None, why.as_str()),
        };
        let waits = json!({
            "interface": flood.interface, "id": flood.rules.id, "wire": flood.rules.format.wire() as u8,
            "mode": flood.mode.name(), "relay": null, "waits": why, "hangs": watch.is_some(),
        });
        View { watch, waits }
    }
}

impl View {
    /// As JSON.
    pub fn state(&self) -> Value {
        let state = self.watch.as_ref().and_then(Watch::status);
        state.map_or_else(|| self.waits.clone(), |state| json!(state))
    }
}

fn start(flood: &Settings, epochs: &mut Epochs, events: &Sender<Event>) -> Result<Node, String> {
    let interface = flood.interface.as_str();
    let link = Net::open().and_then(|mut net| see(&mut net, flood));
    let link = link.map_err(|error| format!("cannot flood on `{interface}`: {error}"))?;
    let (epoch, unkept) = epochs.next();
    let warnings: Vec<_> = unkept.into_iter().collect();
    warnings.iter().for_each(|why| tracing::warn!("{why}"));
    let settings = Settings { epoch, warnings, ..flood.clone() };
    let running =
        node::start(settings, OsRng.unwrap_err(), ended(events, Strand::Flood(interface.to_owned())));
    let running = running.map_err(|error| error.to_string())?;
    tracing::info!(interface, id = flood.rules.id, "the node floods");
    Ok(Node::Runs { link, running })
}

/// Removes what a daemon that was killed has left in nftables, if nft is here at all.
pub fn remove_leftovers() {
    if let Err(error) = nft::remove_leftovers() {
        tracing::debug!("nothing to remove from nftables: {error}");
    }
}

#[cfg(test)]
mod tests {
    use flood::{Format, Rules, Wire, suppression};

    use super::*;

    #[test]
    fn a_node_that_waits_is_tried_once_on_what_its_interface_is() {
        let flood = Settings {
            interface: "lo".into(),
            rules: Rules { format: Format::new(Wire::One, None), id: 7, rate_limit: None },
            mode: Mode::Driver,
            ttl: 16,
            port: 51902,
            suppression: suppression::Rules::PURE,
            busy_poll: false,
            epoch: 0,
            warnings: Vec::new(),
        };
        let mut floods = Floods::new(Path::new("/nowhere"));
        floods.nodes.push((flood, Node::Waits { why: "it failed".into(), tried: None }));
        let mut follow = || floods.follow_interfaces(&BTreeSet::new());
        assert_eq!(follow(), [Strand::Flood("lo".into())]);
        assert_eq!(follow(), []);
    }
}
