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
use crate::event::Event;
use crate::restarts::Strand;
use crate::strands::kept::{Ended, Kept, Unable};

/// A node for each `[[flood]]`. Dropping it stops them.
pub struct Floods {
    nodes: Vec<Node>,
    epochs: Epochs,
}

struct Node {
    kept: Kept<Settings, Running>,
    /// The interface as it was when the node began or was tried last, if it was there.
    link: Option<Seen>,
    /// Why it does not run, if it waits.
    why: String,
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
        self.nodes.retain(|node| wanted.contains(node.kept.wanted()));
        for flood in wanted {
            if self.nodes.iter().any(|node| *node.kept.wanted() == flood) {
                continue;
            }
            let mut link = None;
            let kept = Kept::new(Strand::Flood(flood.interface.clone()), flood);
            let start = |flood: &Settings, ended| start(flood, &mut self.epochs, &mut link, ended);
            let kept = kept.start(unable, events, start)?;
            self.nodes.push(Node { kept, link, why: "it cannot start".into() });
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
        for Node { kept, link, why } in &mut self.nodes {
            let interface = kept.wanted().interface.clone();
            let there = see(&mut net, kept.wanted()).ok();
            let gone = link.is_some_and(|link| removed.contains(&link.0));
            if kept.running().is_some() && (there != *link || gone) {
                let changed = !gone && there.map(|there| there.0) == link.map(|link| link.0);
                *why = match changed {
                    true => "the interface's address or MTU has changed".into(),
                    false => "the interface is gone".into(),
                };
                tracing::warn!(interface, "{why}; its node ends, and another begins when it is there");
                // What it made has to be gone before the next node starts.
                kept.stop();
                *link = None;
            }
            if kept.running().is_none() && std::mem::replace(link, there) != there && there.is_some() {
                back.push(Strand::Flood(interface));
            }
        }
        back
    }

    /// The node on `interface` has ended.
    pub fn stop(&mut self, interface: &str, why: &str) {
        for node in self.nodes.iter_mut().filter(|node| node.kept.wanted().interface == interface) {
            node.kept.stop();
            why.clone_into(&mut node.why);
        }
    }

    /// Starts the node on `interface`, if it waits.
    ///
    /// # Errors
    /// One sentence; then it waits.
    pub fn restart(&mut self, interface: &str, events: &Sender<Event>) -> Result<(), String> {
        for Node { kept, link, why } in &mut self.nodes {
            if kept.wanted().interface == interface {
                let start = |flood: &Settings, ended| start(flood, &mut self.epochs, link, ended);
                kept.restart(events, start).inspect_err(|error| why.clone_from(error))?;
            }
        }
        Ok(())
    }

    /// What they are to do.
    pub fn wanted(&self) -> Vec<Settings> {
        self.nodes.iter().map(|node| node.kept.wanted().clone()).collect()
    }

    /// What says how they are.
    pub fn views(&self) -> Vec<View> {
        self.nodes.iter().map(Node::view).collect()
    }
}

impl Node {
    fn view(&self) -> View {
        let (flood, watch) = (self.kept.wanted(), self.kept.running().map(Running::watch));
        let why = match watch {
            Some(_) => "the node does not answer: it is being stopped, or hangs",
            None => self.why.as_str(),
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

fn start(
    flood: &Settings,
    epochs: &mut Epochs,
    link: &mut Option<Seen>,
    ended: Ended,
) -> Result<Running, String> {
    let interface = flood.interface.as_str();
    let there = Net::open().and_then(|mut net| see(&mut net, flood));
    *link = Some(there.map_err(|error| format!("cannot flood on `{interface}`: {error}"))?);
    let (epoch, unkept) = epochs.next();
    let warnings: Vec<_> = unkept.into_iter().collect();
    warnings.iter().for_each(|why| tracing::warn!("{why}"));
    let settings = Settings { epoch, warnings, ..flood.clone() };
    let running = node::start(settings, OsRng.unwrap_err(), ended).map_err(|error| error.to_string())?;
    tracing::info!(interface, id = flood.rules.id, "the node floods");
    Ok(running)
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

    fn on(interface: &str) -> Settings {
        Settings {
            interface: interface.into(),
            rules: Rules { format: Format::new(Wire::One, None), id: 7, rate_limit: None },
            mode: Mode::Driver,
            ttl: 16,
            port: 51902,
            suppression: suppression::Rules::PURE,
            busy_poll: false,
            epoch: 0,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn a_node_that_cannot_be_put_back_is_told_of() {
        let (events, told) = std::sync::mpsc::channel();
        let mut floods = Floods::new(Path::new("/nowhere"));
        floods.reconfigure(vec![on("nowhere0")], Unable::Waits(&events), &events).expect("it waits");
        let Ok(Event::Failed(strand, life, why)) = told.try_recv() else { panic!("it is told") };
        assert_eq!((strand, life.strong_count()), (Strand::Flood("nowhere0".into()), 1));
        assert!(why.contains("cannot flood on `nowhere0`"), "{why}");
    }

    #[test]
    fn a_node_that_waits_is_tried_once_on_what_its_interface_is() {
        let mut floods = Floods::new(Path::new("/nowhere"));
        let kept = Kept::new(Strand::Flood("lo".into()), on("lo"));
        floods.nodes.push(Node { kept, link: None, why: "it failed".into() });
        let mut follow = || floods.follow_interfaces(&BTreeSet::new());
        assert_eq!(follow(), [Strand::Flood("lo".into())]);
        assert_eq!(follow(), []);
    }
}
