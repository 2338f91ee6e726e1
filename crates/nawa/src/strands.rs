//! The strands that a file asks for, running: the tunnel and the relay, each on threads of its own.

use std::sync::mpsc::Sender;

use serde_json::{Value, json};
use tunnel::config::Config;
use tunnel::daemon::Watch;
use tunnel::relay::RelayStatus;
use tunnel::status::TunnelStatus;
use tunnel::{PrivateKey, daemon, relay_daemon};

use crate::config::{Relay, Resolved, Tunnel};
use crate::daemon::Event;
use crate::failure::Failure;

/// All that runs. Dropping it stops all, and waits until what they made is gone.
pub struct Strands {
    tunnel: Option<RunningTunnel>,
    relay: Option<relay_daemon::RelayRunning>,
}

struct RunningTunnel {
    interface: String,
    running: daemon::Running,
}

/// What `nawa status` asks.
pub struct Status {
    tunnel: Option<(String, Watch<TunnelStatus>)>,
    relay: Option<Watch<RelayStatus>>,
}

impl Strands {
    /// Starts what `resolved` asks for. A strand that ends by itself sends [`Event::Ended`].
    ///
    /// # Errors
    /// Failed if one cannot start; then none runs.
    pub fn start(resolved: Resolved, events: &Sender<Event>) -> Result<Strands, Failure> {
        let Resolved { key, tunnel, relay } = resolved;
        let relay = relay.map(|relay| start_relay(relay, key.clone(), events)).transpose()?;
        let tunnel = tunnel.map(|(tunnel, config)| start_tunnel(tunnel, config, key, events)).transpose()?;
        Ok(Strands { tunnel, relay })
    }

    /// What asks for the state, for as long as they run.
    pub fn status(&self) -> Status {
        Status {
            tunnel: self.tunnel.as_ref().map(|tunnel| (tunnel.interface.clone(), tunnel.running.watch())),
            relay: self.relay.as_ref().map(relay_daemon::RelayRunning::watch),
        }
    }
}

fn start_tunnel(
    tunnel: Tunnel,
    config: Config,
    key: PrivateKey,
    events: &Sender<Event>,
) -> Result<RunningTunnel, Failure> {
    let interface = tunnel.interface.clone();
    let settings = daemon::Settings {
        interface: tunnel.interface,
        addresses: tunnel.addresses,
        listen: tunnel.listen,
        fwmark: tunnel.fwmark,
        tunnel: config,
        key,
    };
    let running = daemon::start(settings, ended(events)).map_err(Failure::failed)?;
    tracing::info!(interface, listen = %running.local_address(), "the tunnel runs");
    Ok(RunningTunnel { interface, running })
}

fn start_relay(
    relay: Relay,
    key: PrivateKey,
    events: &Sender<Event>,
) -> Result<relay_daemon::RelayRunning, Failure> {
    let settings = relay_daemon::Settings { listen: relay.listen, allow: relay.allow, key };
    let running = relay_daemon::start(settings, ended(events)).map_err(Failure::failed)?;
    tracing::info!(listen = %running.local_address(), "the relay runs");
    Ok(running)
}

fn ended(events: &Sender<Event>) -> impl FnOnce(String) + Send + 'static {
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
        state
    }
}

fn silent(strand: &str) -> Value {
    json!({"error": format!("the {strand} does not answer; see the daemon's log, or restart it")})
}
