//! The strands that a file asks for, running: the tunnel, the relay, the nodes that flood and those that code, each on
//! threads of its own, and the congestion controls and copies, which the kernel makes.

pub mod kept;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Weak;
use std::sync::mpsc::Sender;
use std::time::Duration;

use device::worker::Watch;
use device::{News, monotonic, realtime};
use serde_json::{Value, json};
use tunnel::config::{Config, PathConfig};
use tunnel::daemon::{Hold, TunnelWatch};
use tunnel::relay::RelayStatus;
use tunnel::{PrivateKey, PublicKey, daemon, relay_daemon};

use crate::bicast::{self as copies, Copies};
use crate::caps::{self, Caps};
use crate::coding::Codings;
use crate::config::{Flight, Relay, Settings, Tunnel};
use crate::control::capture;
use crate::event::Event;
use crate::flight::{self, Provided};
use crate::flood::Floods;
use crate::restarts::{Restarts, Strand};
use kept::{Ended, Kept, Unable};

/// All that runs. Dropping it stops all, and waits until what they made is gone.
pub struct Strands {
    key: Option<PrivateKey>,
    state_dir: PathBuf,
    restarts: Restarts,
    caps: Caps,
    /// Why what was counted is not kept.
    unsaved: Option<String>,
    /// When bytes are counted next.
    count_at: Duration,
    tunnel: Option<Kept<Tunnel, daemon::Running>>,
    /// What of the tunnel's goes nowhere while it waits, and if this daemon is killed.
    held: Hold,
    relay: Option<Kept<Relay, relay_daemon::RelayRunning>>,
    flight: Option<Kept<Flight, Provided>>,
    floods: Floods,
    codings: Codings,
    bicast: Option<Copies>,
    metrics: Option<SocketAddr>,
}

fn has(settings: &Settings, strand: &Strand) -> bool {
    match strand {
        Strand::Tunnel => settings.tunnel.is_some(),
        Strand::Relay => settings.relay.is_some(),
        Strand::Flight => settings.flight.is_some(),
        Strand::Bicast => settings.bicast.is_some(),
        Strand::Flood(interface) => settings.floods.iter().any(|flood| flood.interface == *interface),
        Strand::Coding(interface) => settings.codings.iter().any(|coding| coding.interface == *interface),
    }
}

/// Removes what a daemon that was killed has left in this network namespace, and names what of that nobody sees before. What else it
/// made was its process's, and went with it.
pub fn remove_left() -> Vec<String> {
    remove_left_but(&Hold::default())
}

/// The same, but for what is held back.
fn remove_left_but(held: &Hold) -> Vec<String> {
    daemon::remove_left(held);
    crate::flood::remove_leftovers();
    flight::remove_left();
    let mut removed = remove_from_interfaces("bicast", bicast::kernel::remove_left);
    removed.extend(remove_from_interfaces("coding", coding::daemon::remove_left));
    removed
}

/// Takes off what a strand that crashed left on this namespace's interfaces; `remove` does so from one, by its index.
fn remove_from_interfaces(strand: &str, remove: fn(u32) -> bool) -> Vec<String> {
    let Ok(mut net) = device::Net::open() else { return Vec::new() };
    let mut names = device::interfaces().unwrap_or_default();
    names.retain(|name| net.link(name).is_ok_and(|link| remove(link.index)));
    names.into_iter().map(|name| format!("the filters of {strand} in tc on {name}")).collect()
}

/// What `nawa status` asks.
#[derive(Clone, Default)]
pub struct Status {
    restarts: Restarts,
    tunnel: Option<(String, TunnelWatch)>,
    relay: Option<Watch<RelayStatus, Vec<PublicKey>>>,
    flight: bool,
    floods: Vec<crate::flood::View>,
    codings: Vec<coding::daemon::Watch>,
    bicast: Option<bicast::daemon::View>,
    caps: Vec<Cap>,
}

/// What a path with a monthly cap has carried, as counted last.
#[derive(Clone)]
struct Cap {
    peer: String,
    path: String,
    /// Bytes.
    cap: u64,
    used: u64,
    /// Why that is forgotten with the daemon's end.
    unsaved: Option<String>,
}

impl Strands {
    /// Starts what `settings` ask for. A strand that ends by itself sends [`Event::Failed`].
    ///
    /// # Errors
    /// One sentence if one cannot start; then none runs. What a daemon that was killed held back is held back still.
    pub fn start(settings: Settings, events: &Sender<Event>) -> Result<Strands, String> {
        let mut held = Hold::default();
        if let Some(tunnel) = &settings.tunnel {
            held.take(&tunnel.config, tunnel.fwmark);
        }
        for what in remove_left_but(&held) {
            tracing::info!("removed what a daemon that was killed had left: {what}");
        }
        let mut strands = Strands::new(&settings, held);
        strands.take_up(settings, Unable::Refuses, events)?;
        Ok(strands)
    }

    /// None that runs.
    fn new(settings: &Settings, held: Hold) -> Strands {
        Strands {
            key: None,
            state_dir: settings.state_dir.clone(),
            restarts: Restarts::default(),
            caps: Caps::new(&settings.state_dir),
            unsaved: None,
            count_at: Duration::ZERO,
            tunnel: None,
            held,
            relay: None,
            flight: None,
            floods: Floods::new(&settings.state_dir),
            codings: Codings::default(),
            bicast: None,
            metrics: settings.metrics,
        }
    }

    /// What asks for the state, for as long as they run.
    pub fn status(&self) -> Status {
        Status {
            restarts: self.restarts.clone(),
            tunnel: self.tunnel.as_ref().and_then(|tunnel| {
                let running = tunnel.running()?;
                let name = running.interface().unwrap_or_else(|| tunnel.wanted().interface.clone());
                Some((name, running.watch()))
            }),
            relay: self.relay.as_ref().and_then(|relay| Some(relay.running()?.watch())),
            flight: self.flight.as_ref().is_some_and(|flight| flight.running().is_some()),
            floods: self.floods.views(),
            codings: self.codings.watches(),
            bicast: self.bicast.as_ref().and_then(|copies| Some(copies.running()?.watch().clone())),
            caps: self.used(),
        }
    }

    fn used(&self) -> Vec<Cap> {
        let peers = self.tunnel.iter().flat_map(|tunnel| &tunnel.wanted().config.peers);
        let paths = peers.flat_map(|peer| peer.paths.iter().map(move |path| (&peer.name, path)));
        let used = |(peer, path): (&String, &PathConfig)| {
            let (peer, path, cap) = (peer.clone(), path.name.clone(), path.cost.monthly_cap?);
            let used = self.caps.used(&cap_name(&peer, &path));
            Some(Cap { used, peer, path, cap, unsaved: self.unsaved.clone() })
        };
        paths.filter_map(used).collect()
    }

    /// Runs what `settings` ask for from now on. What is the same goes on undisturbed.
    ///
    /// # Errors
    /// A sentence for each thing that cannot change in a running daemon, or for what failed; then all is as before.
    pub fn reload(&mut self, settings: Settings, events: &Sender<Event>) -> Result<(), Vec<String>> {
        let refused = self.refusals(&settings);
        if !refused.is_empty() {
            return Err(refused);
        }
        self.count_at = Duration::ZERO;
        let gone = self.peers_gone(settings.tunnel.as_ref().map(|tunnel| &tunnel.config));
        let before = self.wanted();
        let result = self.take_up(settings, Unable::Refuses, events);
        match &result {
            Ok(()) => gone.iter().for_each(|name| {
                tracing::warn!("peer {name} goes with this reload, which does not list it");
            }),
            Err(_) => {
                if let Err(error) = self.take_up(before, Unable::Waits(events), events) {
                    tracing::error!("what ran before the reload cannot be put back: {error}");
                }
            }
        }
        let wanted = self.wanted();
        self.restarts.retain(|strand| has(&wanted, strand));
        self.restarts.hurry();
        result.map_err(|why| vec![why])
    }

    /// The names of the peers that a configuration leaves out.
    fn peers_gone(&self, wanted: Option<&Config>) -> Vec<String> {
        let now = self.tunnel.iter().flat_map(|tunnel| &tunnel.wanted().config.peers);
        let stays = |key: &PublicKey| {
            wanted.is_some_and(|wanted| wanted.peers.iter().any(|peer| peer.public_key == *key))
        };
        now.filter(|peer| !stays(&peer.public_key)).map(|peer| peer.name.clone()).collect()
    }

    /// What all are to do at present.
    fn wanted(&self) -> Settings {
        Settings {
            key: self.key.clone(),
            state_dir: self.state_dir.clone(),
            metrics: self.metrics,
            tunnel: self.tunnel.as_ref().map(|tunnel| tunnel.wanted().clone()),
            relay: self.relay.as_ref().map(|relay| relay.wanted().clone()),
            flight: self.flight.as_ref().map(|flight| *flight.wanted()),
            floods: self.floods.wanted(),
            codings: self.codings.wanted(),
            bicast: self.bicast.as_ref().map(|copies| copies.wanted().clone()),
        }
    }

    /// Does what `wanted` says from now on: what may fail comes first, and what is not wanted any more goes last. If something fails,
    /// what came before it is in force: whoever asks goes back.
    fn take_up(&mut self, wanted: Settings, unable: Unable, events: &Sender<Event>) -> Result<(), String> {
        let Settings { key, tunnel, relay, flight, floods, codings, bicast, .. } = wanted;
        let (no_tunnel, no_relay) = (tunnel.is_none(), relay.is_none());
        // Before what may flood on a master.
        self.codings.reconfigure(codings, unable, events)?;
        self.floods.reconfigure(floods, unable, events)?;
        flight::reconfigure(&mut self.flight, flight, unable, events)?;
        copies::reconfigure(&mut self.bicast, bicast, unable, events)?;
        // Last: a peer that goes loses what its tunnel knows and holds, and going back makes another.
        if let Some((relay, key)) = relay.zip(key.clone()) {
            let start = |relay: &Relay, ended| start_relay(relay, key, ended);
            match &mut self.relay {
                Some(kept) => {
                    kept.change(relay, unable, |running, relay| running.set_allow(relay.allow.clone()))?;
                }
                None => self.relay = Some(Kept::new(Strand::Relay, relay).start(unable, events, start)?),
            }
        }
        if let Some((tunnel, key)) = tunnel.zip(key.clone()) {
            let start = |tunnel: &Tunnel, ended| start_tunnel(tunnel, key, ended);
            match &mut self.tunnel {
                Some(kept) => reconfigure(kept, &mut self.held, tunnel, unable)?,
                None => {
                    self.held.take(&tunnel.config, tunnel.fwmark);
                    let kept = Kept::new(Strand::Tunnel, tunnel).start(unable, events, start)?;
                    if kept.running().is_some() {
                        self.held.adopt();
                    }
                    self.tunnel = Some(kept);
                    self.caps.pass_over(std::iter::empty());
                }
            }
        }
        if no_tunnel {
            (self.tunnel, self.held) = (None, Hold::default());
        }
        self.relay.take_if(|_| no_relay);
        self.key = key.or(self.key.take());
        Ok(())
    }

    /// Interfaces, addresses, routes or rules have changed. The tunnel and bicast look for themselves.
    pub fn follow_interfaces(&mut self, news: &News, events: &Sender<Event>) {
        if news.rules || news.overrun {
            self.held.restore();
        }
        let back = self.floods.follow_interfaces(&news.removed);
        if !back.is_empty() {
            self.start_again(monotonic(), back, events);
            // One that cannot start may be due sooner than the daemon waits for. Once nobody listens the process is ending.
            let _ = events.send(Event::Changed);
        }
    }

    /// A strand has ended by itself: what is left of it goes, the others go on, and it is started again after a while.
    pub fn handle_failure(&mut self, now: Duration, strand: Strand, life: &Weak<()>, why: String) {
        // It is stopped, and perhaps another of that name runs.
        if life.strong_count() == 0 {
            return;
        }
        tracing::error!("the {strand} has ended: {why}; it is started again");
        match &strand {
            Strand::Tunnel => {
                self.tunnel.iter_mut().for_each(Kept::stop);
                self.held.restore();
                self.caps.pass_over(std::iter::empty());
            }
            Strand::Relay => self.relay.iter_mut().for_each(Kept::stop),
            Strand::Flight => self.flight.iter_mut().for_each(Kept::stop),
            Strand::Bicast => self.bicast.iter_mut().for_each(Kept::stop),
            Strand::Flood(interface) => self.floods.stop(interface, &why),
            Strand::Coding(interface) => self.codings.stop(interface),
        }
        self.restarts.handle_failure(now, strand, why);
    }

    /// Starts what it is time to start again.
    pub fn restart(&mut self, now: Duration, events: &Sender<Event>) {
        self.start_again(now, self.restarts.due(now), events);
    }

    fn start_again(&mut self, now: Duration, strands: Vec<Strand>, events: &Sender<Event>) {
        for strand in strands {
            match self.try_restart(&strand, events) {
                Ok(()) => {
                    tracing::info!("the {strand} runs again");
                    self.restarts.handle_start(now, &strand);
                }
                Err(why) => {
                    tracing::warn!("the {strand} cannot start again: {why}");
                    self.restarts.handle_failure(now, strand, why);
                }
            }
        }
    }

    /// When [`restart`](Self::restart) or [`count`](Self::count) has something to do.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let count = self.has_caps().then_some(self.count_at);
        self.restarts.poll_timeout().into_iter().chain(count).min()
    }

    fn has_caps(&self) -> bool {
        let configs =
            self.tunnel.iter().flat_map(|tunnel| &tunnel.wanted().config.peers).flat_map(|peer| &peer.paths);
        configs.map(|path| path.cost).any(|cost| cost.monthly_cap.is_some() || cost.spent)
    }

    /// Counts what paths have carried if it is time to, at `time` since 1970, and makes backups of those that have carried what
    /// they may this month.
    pub fn count(&mut self, now: Duration, time: Duration) {
        if now >= self.count_at && self.has_caps() {
            self.count_at = now + caps::INTERVAL;
            self.take_count(time);
            self.judge();
        }
    }

    /// Counts what paths have carried by now, as before some of them go, at `time` since 1970.
    pub fn take_count(&mut self, time: Duration) {
        let running = self.tunnel.as_ref().and_then(Kept::running);
        let Some(status) = running.and_then(daemon::Running::status) else { return };
        let paths = status.peers.iter().flat_map(|peer| peer.paths.iter().map(move |path| (peer, path)));
        // One that the peer lists may have the name of one that the file lists, and what it carries is not that one's.
        let counts = paths.filter(|(_, path)| path.listed).map(|(peer, path)| {
            let packets = path.sent_packets + path.received_packets;
            let bytes = path.sent_bytes + path.received_bytes;
            (cap_name(&peer.name, &path.name), path.id, path.remote, packets, bytes)
        });
        if !self.has_caps() {
            return self.caps.pass_over(counts);
        }
        let opened = self.caps.open();
        self.caps.count(time, counts);
        let folder = self.state_dir.display();
        let forgotten =
            |why: io::Error| format!("forgotten at the next start, for {folder} cannot be written: {why}");
        let unsaved = opened.and_then(|()| self.caps.save()).err().map(forgotten);
        if let Some(why) = unsaved.as_ref().filter(|_| unsaved != self.unsaved) {
            tracing::warn!("what paths have carried is {why}");
        }
        self.unsaved = unsaved;
    }

    fn judge(&mut self) {
        let caps = &self.caps;
        let Some(tunnel) = &mut self.tunnel else { return };
        let mut wanted = tunnel.wanted().clone();
        let mut changed = false;
        for peer in &mut wanted.config.peers {
            for path in &mut peer.paths {
                let used = caps.used(&cap_name(&peer.name, &path.name));
                let spent = path.cost.monthly_cap.is_some_and(|cap| used >= cap);
                changed |= std::mem::replace(&mut path.cost.spent, spent) != spent;
            }
        }
        if changed && let Err(why) = reconfigure(tunnel, &mut self.held, wanted, Unable::Refuses) {
            tracing::warn!("{why}");
        }
    }

    /// What runs needs no start.
    fn try_restart(&mut self, strand: &Strand, events: &Sender<Event>) -> Result<(), String> {
        let key = self.key.clone().ok_or_else(|| "there is no key".to_owned());
        match strand {
            Strand::Tunnel => {
                let start = |tunnel: &Tunnel, ended| start_tunnel(tunnel, key?, ended);
                self.tunnel.as_mut().map_or(Ok(()), |kept| kept.restart(events, start))
            }
            Strand::Relay => {
                let start = |relay: &Relay, ended| start_relay(relay, key?, ended);
                self.relay.as_mut().map_or(Ok(()), |kept| kept.restart(events, start))
            }
            Strand::Flight => self.flight.as_mut().map_or(Ok(()), |kept| kept.restart(events, flight::start)),
            Strand::Bicast => self.bicast.as_mut().map_or(Ok(()), |kept| kept.restart(events, copies::start)),
            Strand::Flood(interface) => self.floods.restart(interface, events),
            Strand::Coding(interface) => self.codings.restart(interface, events),
        }
    }

    /// Changes the tunnel's configuration by `edit`, in a copy that comes into force as a whole.
    ///
    /// # Errors
    /// One sentence; then all is as before.
    pub fn edit(&mut self, edit: impl FnOnce(&mut Config) -> Result<(), String>) -> Result<(), String> {
        let missing = "this daemon runs no tunnel; write a [tunnel] section and reload, with `kill -HUP`";
        let tunnel = self.tunnel.as_mut().ok_or(missing)?;
        let mut wanted = tunnel.wanted().clone();
        edit(&mut wanted.config)?;
        let own = self.key.as_ref().map(PrivateKey::public);
        if let Some(peer) = wanted.config.peers.iter().find(|peer| Some(peer.public_key) == own) {
            return Err(format!("peer {} would have this node's own key; give the peer's", peer.name));
        }
        let own = tunnel.wanted().addresses.iter().map(|address| ipnet::IpNet::from(address.addr()));
        let routed = |own: &ipnet::IpNet| wanted.config.peers.iter().find(|peer| peer.routes.contains(own));
        if let Some((own, peer)) = own.filter_map(|own| Some((own, routed(&own)?))).next() {
            let (ip, name) = (own.addr(), &peer.name);
            return Err(format!(
                "{ip} is this node's own, and would be peer {name}'s route as well; give another"
            ));
        }
        self.count_at = Duration::ZERO;
        reconfigure(tunnel, &mut self.held, wanted, Unable::Refuses)
    }

    /// What `settings` would change that cannot change in a running daemon.
    fn refusals(&self, settings: &Settings) -> Vec<String> {
        let public = |key: &Option<PrivateKey>| key.as_ref().map(PrivateKey::public);
        let key = public(&settings.key).zip(public(&self.key));
        let mut fixed = vec![
            ("[node] key-file", key.is_none_or(|(new, old)| new == old)),
            ("[node] state-dir", settings.state_dir == self.state_dir),
            ("[metrics] listen", settings.metrics == self.metrics),
        ];
        if let (Some(new), Some(old)) = (&settings.tunnel, &self.tunnel) {
            fixed.push(("[tunnel] interface", new.interface == old.wanted().interface));
            fixed.push(("[tunnel] listen", new.listen == old.wanted().listen));
            fixed.push(("[tunnel] fwmark", new.fwmark == old.wanted().fwmark));
        }
        if let (Some(new), Some(old)) = (&settings.relay, &self.relay) {
            fixed.push(("[relay] listen", new.listen == old.wanted().listen));
            fixed.push(("[relay] tls", new.tls == old.wanted().tls));
        }
        let changed = fixed.into_iter().filter(|(_, same)| !same);
        changed.map(|(what, _)| refusal(what)).collect()
    }
}

fn cap_name(peer: &str, path: &str) -> String {
    format!("{peer}/{path}")
}

fn refusal(what: &str) -> String {
    format!(
        "{what} cannot change while the daemon runs, so nothing has changed; use `nawa down && nawa up`, or put it back"
    )
}

fn reconfigure(
    tunnel: &mut Kept<Tunnel, daemon::Running>,
    held: &mut Hold,
    wanted: Tunnel,
    unable: Unable,
) -> Result<(), String> {
    wanted.config.validate().map_err(|error| error.to_string())?;
    tunnel
        .change(wanted, unable, |running, wanted| running.reconfigure(&wanted.addresses, &wanted.config))?;
    held.take(&tunnel.wanted().config, tunnel.wanted().fwmark);
    Ok(())
}

fn start_tunnel(wanted: &Tunnel, key: PrivateKey, ended: Ended) -> Result<daemon::Running, String> {
    let Tunnel { interface, addresses, listen, fwmark, config: tunnel, .. } = wanted.clone();
    let settings = daemon::Settings { interface, addresses, listen, fwmark, tunnel, key };
    let running = daemon::start(settings, ended).map_err(|error| error.to_string())?;
    tracing::info!(interface = wanted.interface, listen = %running.local_address(), "the tunnel runs");
    Ok(running)
}

fn start_relay(wanted: &Relay, key: PrivateKey, ended: Ended) -> Result<relay_daemon::RelayRunning, String> {
    let Relay { listen, tls, allow } = wanted.clone();
    let settings = relay_daemon::Settings { listen, tls, allow, key };
    let running = relay_daemon::start(settings, ended).map_err(|error| error.to_string())?;
    tracing::info!(listen = %running.local_address(), "the relay runs");
    Ok(running)
}

impl Status {
    /// One JSON object with a member for each strand that runs.
    pub fn now(&self) -> Value {
        let mut state = json!({"schema": 1, "version": env!("CARGO_PKG_VERSION"), "pid": std::process::id()});
        let failed = self.restarts.status(monotonic());
        if !failed.is_empty() {
            state["failed"] = json!(failed);
        }
        if let Some((interface, tunnel)) = &self.tunnel {
            let Some(tunnel) = tunnel.status() else { return silent("tunnel") };
            state["interface"] = json!(interface);
            state["tunnel"] = json!(tunnel);
            let resets = caps::resets_on(realtime());
            for cap in &self.caps {
                put_cap(&mut state["tunnel"], cap, &resets);
            }
        }
        if let Some(relay) = &self.relay {
            let Some(relay) = relay.status() else { return silent("relay") };
            state["relay"] = json!(relay);
        }
        if self.flight {
            state["flight"] = flight::State::read()
                .map_or_else(|error| json!({"error": error.to_string()}), |now| json!(now));
            let lost = flight::State::lost();
            if !lost.is_empty() {
                state["flight"]["lost"] = json!(lost);
            }
        }
        if !self.floods.is_empty() {
            state["flood"] = self.floods.iter().map(crate::flood::View::state).collect();
        }
        if !self.codings.is_empty() {
            let states: Option<Vec<_>> = self.codings.iter().map(coding::daemon::Watch::status).collect();
            let Some(states) = states else { return silent("coding") };
            state["coding"] = json!(states);
        }
        if let Some(bicast) = &self.bicast {
            let Some(bicast) = bicast.status() else { return silent("bicast") };
            state["bicast"] = crate::bicast::state(&bicast);
        }
        state
    }
}

/// Puts what a path has carried of its cap beside what else is known of it.
fn put_cap(tunnel: &mut Value, cap: &Cap, resets: &str) {
    let named = |list: &mut Value, name: &str| {
        let list = list.as_array_mut()?;
        // Of two paths of a name the cap is that of the one that the file lists.
        list.iter().position(|one| one["name"] == name && one["listed"] != false)
    };
    let Some(peer) = named(&mut tunnel["peers"], &cap.peer) else { return };
    let paths = &mut tunnel["peers"][peer]["paths"];
    let Some(path) = named(paths, &cap.path) else { return };
    paths[path]["monthly_cap_bytes"] = json!(cap.cap);
    paths[path]["monthly_used_bytes"] = json!(cap.used);
    paths[path]["monthly_resets_on"] = json!(resets);
    paths[path]["monthly_unsaved"] = json!(cap.unsaved);
}

impl Status {
    /// Captures what goes through the tunnel; its interface.
    ///
    /// # Errors
    /// One sentence: there is no tunnel, or enough captures run.
    pub fn capture(&self, wanted: capture::Wanted) -> Result<(String, daemon::Capture), String> {
        let none = "this daemon runs no tunnel, so there is nothing to capture; tcpdump shows what other strands send";
        let (interface, tunnel) = self.tunnel.as_ref().ok_or(none)?;
        let capture = daemon::capture(tunnel, wanted)?;
        Ok((interface.clone(), capture))
    }
}

#[cfg(test)]
impl Status {
    /// Of a relay alone.
    pub fn of_relay(watch: Watch<RelayStatus, Vec<PublicKey>>) -> Status {
        Status { relay: Some(watch), ..Status::default() }
    }
}

fn silent(strand: &str) -> Value {
    json!({"error": format!("the {strand} does not answer; see the daemon's log, or restart it")})
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use rand_core::{OsRng, TryRngCore};
    use tunnel::daemon::Listen;

    use super::*;

    /// A tunnel, and a relay at an address that is nobody's.
    fn settings(fwmark: u32) -> Settings {
        let relay = Listen::Address("192.0.2.1:9".parse().expect("an address"));
        Settings {
            key: Some(PrivateKey::generate(&mut OsRng.unwrap_err())),
            state_dir: "/nowhere".into(),
            tunnel: Some(Tunnel {
                interface: "nawa0".into(),
                addresses: Vec::new(),
                listen: Listen::Port(0),
                endpoints: Vec::new(),
                fwmark,
                config: Config::default(),
            }),
            relay: Some(Relay { listen: relay, tls: None, allow: Vec::new() }),
            flight: None,
            floods: Vec::new(),
            codings: Vec::new(),
            bicast: None,
            metrics: None,
        }
    }

    #[test]
    fn what_cannot_be_put_back_is_tried_again_and_the_rest_is_put_back() {
        let (events, told) = channel();
        let (refused, mut before) = (settings(1), settings(2));
        let nowhere = "nowhere0".to_owned();
        let change = coding::daemon::Change {
            addresses: Vec::new(),
            mode: coding::Mode::Off,
            wait: Duration::ZERO,
            thin_acks: false,
        };
        before.codings = vec![coding::daemon::Settings {
            interface: nowhere.clone(),
            master: "nc0".into(),
            monitor: None,
            change,
        }];
        before.flight = Some(Flight { default: false, base: crate::config::Base::Reno });
        let mut strands = Strands::new(&refused, Hold::default());
        strands.tunnel = refused.tunnel.map(|tunnel| Kept::new(Strand::Tunnel, tunnel));
        std::thread::scope(|scope| {
            let put_back = scope.spawn(|| {
                // Nobody may register a congestion control.
                if rustix::process::geteuid().is_root() {
                    rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65534)).expect("root may");
                }
                strands.take_up(before, Unable::Waits(&events), &events)
            });
            put_back.join().expect("no panic").expect("it goes on");
        });
        assert_eq!(strands.tunnel.as_ref().map(|tunnel| tunnel.wanted().fwmark), Some(2));
        for event in told.try_iter() {
            let Event::Failed(strand, life, why) = event else { panic!("another event") };
            strands.handle_failure(Duration::ZERO, strand, &life, why);
        }
        let waits = [Strand::Relay, Strand::Flight, Strand::Coding(nowhere)];
        assert_eq!(strands.restarts.due(Duration::MAX), waits);
    }

    #[test]
    fn what_has_been_stopped_does_not_fail() {
        let mut strands = Strands::new(&settings(1), Hold::default());
        strands.handle_failure(Duration::ZERO, Strand::Bicast, &Weak::new(), "gone".into());
        assert_eq!(strands.restarts.poll_timeout(), None);
    }
}
