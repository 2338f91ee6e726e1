//! The strands that a file asks for, running: the tunnel, the relay, the nodes that flood and those that code, each on
//! threads of its own, and the congestion controls and copies, which the kernel makes.

use std::net::SocketAddr;
use std::sync::mpsc::Sender;

use device::News;
use serde_json::{Value, json};
use tunnel::config::Config;
use tunnel::daemon::{Listen, Reconfiguration, TunnelWatch, Watch};
use tunnel::relay::RelayStatus;
use tunnel::{PrivateKey, PublicKey, daemon, relay_daemon};

use crate::coding::Codings;
use crate::config::{Relay, Resolved, Tunnel};
use crate::daemon::Event;
use crate::flight::{self, Provided};
use crate::flood::Floods;

/// All that runs. Dropping it stops all, and waits until what they made is gone.
pub struct Strands {
    public_key: Option<PublicKey>,
    tunnel: Option<RunningTunnel>,
    relay: Option<RunningRelay>,
    flight: Option<Provided>,
    floods: Floods,
    codings: Codings,
    bicast: Option<bicast::daemon::Running>,
    metrics: Option<SocketAddr>,
}

struct RunningTunnel {
    interface: String,
    listen: Listen,
    fwmark: u32,
    /// What is in force.
    now: Reconfiguration,
    running: daemon::Running,
}

struct RunningRelay {
    listen: Listen,
    running: relay_daemon::RelayRunning,
}

/// What `nawa status` asks.
#[derive(Clone)]
pub struct Status {
    tunnel: Option<(String, TunnelWatch)>,
    relay: Option<Watch<RelayStatus, Vec<PublicKey>>>,
    flight: bool,
    floods: Vec<crate::flood::View>,
    codings: Vec<coding::daemon::Watch>,
    bicast: Option<bicast::daemon::View>,
}

impl Strands {
    /// Starts what `resolved` asks for. A strand that ends by itself sends [`Event::Ended`].
    ///
    /// # Errors
    /// One sentence if one cannot start; then none runs.
    pub fn start(resolved: Resolved, events: &Sender<Event>) -> Result<Strands, String> {
        let Resolved { key, tunnel, relay, flight, bicast, floods, codings, metrics } = resolved;
        let public_key = key.as_ref().map(PrivateKey::public);
        let flight = flight.map(Provided::start).transpose()?;
        let bicast = bicast.map(crate::bicast::start).transpose()?;
        crate::flood::remove_leftovers();
        let mut running = Floods::default();
        running.reconfigure(floods, events)?;
        let mut coding = Codings::default();
        coding.reconfigure(codings, events)?;
        let relay = relay.zip(key.clone());
        let relay = relay.map(|(relay, key)| start_relay(relay, key, events)).transpose()?;
        let tunnel = tunnel.zip(key);
        let tunnel =
            tunnel.map(|((tunnel, config), key)| start_tunnel(tunnel, config, key, events)).transpose()?;
        Ok(Strands { public_key, tunnel, relay, flight, bicast, floods: running, codings: coding, metrics })
    }

    /// What asks for the state, for as long as they run.
    pub fn status(&self) -> Status {
        Status {
            tunnel: self.tunnel.as_ref().map(|tunnel| (tunnel.interface.clone(), tunnel.running.watch())),
            relay: self.relay.as_ref().map(|relay| relay.running.watch()),
            flight: self.flight.is_some(),
            floods: self.floods.views(),
            codings: self.codings.watches(),
            bicast: self.bicast.as_ref().map(|bicast| bicast.view()),
        }
    }

    /// Runs what `resolved` asks for from now on. What is the same goes on undisturbed.
    ///
    /// # Errors
    /// A sentence for each thing that cannot change in a running daemon, or for what failed; then all is as before.
    pub fn reload(&mut self, resolved: Resolved, events: &Sender<Event>) -> Result<(), Vec<String>> {
        let refused = self.refusals(&resolved);
        if !refused.is_empty() {
            return Err(refused);
        }
        let Resolved { key, tunnel, relay, flight, bicast, floods, codings, .. } = resolved;
        let public_key = key.as_ref().map(PrivateKey::public);
        // What may fail comes first: what has been started is dropped again if something after it fails.
        let (new_relay, allow) = match (relay.zip(key.clone()), &self.relay) {
            (Some((relay, key)), None) => (Some(start_relay(relay, key, events).map_err(one)?), None),
            (relay, _) => (None, relay.map(|(relay, _)| relay.allow)),
        };
        let new_tunnel = match (tunnel.zip(key), &mut self.tunnel) {
            (Some(((tunnel, config), key)), None) => {
                Some(start_tunnel(tunnel, config, key, events).map_err(one)?)
            }
            (Some(((tunnel, config), _)), Some(running)) => {
                running.reconfigure(Reconfiguration { addresses: tunnel.addresses, config }).map_err(one)?;
                None
            }
            (None, _) => {
                self.tunnel = None;
                None
            }
        };
        match (allow, &self.relay) {
            (Some(allow), Some(relay)) => relay.running.set_allow(allow).map_err(one)?,
            _ => self.relay = None,
        }
        self.tunnel = new_tunnel.or(self.tunnel.take());
        self.relay = new_relay.or(self.relay.take());
        self.public_key = public_key.or(self.public_key);
        self.floods.reconfigure(floods, events).map_err(one)?;
        self.codings.reconfigure(codings, events).map_err(one)?;
        Provided::reconfigure(&mut self.flight, flight).map_err(one)?;
        crate::bicast::reconfigure(&mut self.bicast, bicast).map_err(one)
    }

    /// Interfaces, addresses or routes have changed. The tunnel and bicast look for themselves.
    pub fn follow_interfaces(&mut self, news: &News, events: &Sender<Event>) {
        self.floods.follow_interfaces(&news.removed, events);
    }

    /// Changes the tunnel's configuration by `edit`, in a copy that comes into force as a whole.
    ///
    /// # Errors
    /// One sentence; then all is as before.
    pub fn edit(&mut self, edit: impl FnOnce(&mut Config) -> Result<(), String>) -> Result<(), String> {
        let missing = "this daemon runs no tunnel; write a [tunnel] section and reload, with `kill -HUP`";
        let tunnel = self.tunnel.as_mut().ok_or(missing)?;
        let mut wanted = tunnel.now.clone();
        edit(&mut wanted.config)?;
        tunnel.reconfigure(wanted)
    }

    /// What `resolved` would change that cannot change in a running daemon.
    fn refusals(&self, resolved: &Resolved) -> Vec<String> {
        let key = resolved.key.as_ref().map(PrivateKey::public).zip(self.public_key);
        let mut fixed = vec![
            ("[node] key-file", key.is_none_or(|(new, old)| new == old)),
            ("[metrics] listen", resolved.metrics == self.metrics),
        ];
        if let (Some((new, _)), Some(old)) = (&resolved.tunnel, &self.tunnel) {
            fixed.push(("[tunnel] interface", new.interface == old.interface));
            fixed.push(("[tunnel] listen", new.listen == old.listen));
            fixed.push(("[tunnel] fwmark", new.fwmark == old.fwmark));
        }
        if let (Some(new), Some(old)) = (&resolved.relay, &self.relay) {
            fixed.push(("[relay] listen", new.listen == old.listen));
        }
        let changed = fixed.into_iter().filter(|(_, same)| !same);
        changed.map(|(what, _)| refusal(what)).collect()
    }
}

fn refusal(what: &str) -> String {
    format!(
        "{what} cannot change while the daemon runs, so nothing has changed; use `nawa down && nawa up`, or put it back"
    )
}

fn one(why: String) -> Vec<String> {
    vec![why]
}

impl RunningTunnel {
    fn reconfigure(&mut self, wanted: Reconfiguration) -> Result<(), String> {
        self.running.reconfigure(wanted.clone())?;
        self.now = wanted;
        Ok(())
    }
}

fn start_tunnel(
    tunnel: Tunnel,
    config: Config,
    key: PrivateKey,
    events: &Sender<Event>,
) -> Result<RunningTunnel, String> {
    let Tunnel { interface, addresses, listen, fwmark, .. } = tunnel;
    let now = Reconfiguration { addresses: addresses.clone(), config: config.clone() };
    let settings =
        daemon::Settings { interface: interface.clone(), addresses, listen, fwmark, tunnel: config, key };
    let running = daemon::start(settings, ended(events)).map_err(|error| error.to_string())?;
    tracing::info!(interface, listen = %running.local_address(), "the tunnel runs");
    Ok(RunningTunnel { interface, listen, fwmark, now, running })
}

fn start_relay(relay: Relay, key: PrivateKey, events: &Sender<Event>) -> Result<RunningRelay, String> {
    let settings = relay_daemon::Settings { listen: relay.listen, allow: relay.allow, key };
    let running = relay_daemon::start(settings, ended(events)).map_err(|error| error.to_string())?;
    tracing::info!(listen = %running.local_address(), "the relay runs");
    Ok(RunningRelay { listen: relay.listen, running })
}

pub(crate) fn ended(events: &Sender<Event>) -> impl FnOnce(String) + Send + 'static {
    let events = events.clone();
    move |why| {
        // Once nobody listens the process is ending.
        let _ = events.send(Event::Ended(why));
    }
}

impl Status {
    /// One JSON object with a member for each strand that runs.
    pub fn now(&self) -> Value {
        let mut state = json!({"schema": 1, "version": env!("CARGO_PKG_VERSION"), "pid": std::process::id()});
        if let Some((interface, tunnel)) = &self.tunnel {
            let Some(tunnel) = tunnel.status() else { return silent("tunnel") };
            state["interface"] = json!(interface);
            state["tunnel"] = json!(tunnel);
        }
        if let Some(relay) = &self.relay {
            let Some(relay) = relay.status() else { return silent("relay") };
            state["relay"] = json!(relay);
        }
        if self.flight {
            state["flight"] = flight::State::read()
                .map_or_else(|error| json!({"error": error.to_string()}), |now| json!(now));
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
            state["bicast"] = crate::bicast::state(bicast);
        }
        state
    }
}

fn silent(strand: &str) -> Value {
    json!({"error": format!("the {strand} does not answer; see the daemon's log, or restart it")})
}
