//! From what a file says to what the daemon starts.

use std::net::SocketAddr;

use tunnel::PrivateKey;
use tunnel::config::{Config, Local, PathConfig, PeerConfig, Via};

use super::{Flight, Flood, Path, Peer, Relay, Settings, Tunnel};
use crate::failure::Failure;

/// What the daemon starts.
#[derive(Debug)]
pub struct Resolved {
    /// Who this node is; there is one with a tunnel or a relay.
    pub key: Option<PrivateKey>,
    /// As in the file.
    pub state_dir: std::path::PathBuf,
    /// The tunnel's edges, and what its core is told.
    pub tunnel: Option<(Tunnel, Config)>,
    /// As in the file.
    pub relay: Option<Relay>,
    /// As in the file.
    pub flight: Option<Flight>,
    /// As in the file.
    pub floods: Vec<Flood>,
    /// As in the file.
    pub codings: Vec<coding::daemon::Settings>,
    /// As in the file.
    pub bicast: Option<bicast::daemon::Config>,
    /// As in the file.
    pub metrics: Option<SocketAddr>,
}

impl Settings {
    /// What the daemon starts. It asks the resolver for host names while it runs.
    ///
    /// # Errors
    /// Failed if a path's addresses are of two families.
    pub fn resolve(self) -> Result<Resolved, Failure> {
        let core = self.tunnel.as_ref().map(core).transpose()?;
        let Settings { key, state_dir, tunnel, relay, flight, bicast, floods, codings, metrics } = self;
        Ok(Resolved {
            key,
            state_dir,
            tunnel: tunnel.zip(core),
            relay,
            flight,
            bicast,
            floods,
            codings,
            metrics,
        })
    }
}

fn core(tunnel: &Tunnel) -> Result<Config, Failure> {
    let peers = tunnel.peers.iter().map(peer).collect::<Result<_, _>>()?;
    let Tunnel { scheduler, mtu, marks, fail_open, .. } = *tunnel;
    let resolvers = tunnel.resolvers.clone();
    let congestion_control = tunnel.congestion_control.clone();
    Ok(Config { scheduler, mtu, marks, fail_open, congestion_control, resolvers, peers })
}

fn peer(peer: &Peer) -> Result<PeerConfig, Failure> {
    let resolved = peer.paths.iter().map(|path| {
        self::path(path)
            .map_err(|error| Failure::failed(format!("peer {}, path {}: {error}", peer.name, path.name)))
    });
    Ok(PeerConfig {
        name: peer.name.clone(),
        public_key: peer.public_key,
        preshared_key: peer.preshared_key.clone(),
        routes: peer.routes.clone(),
        keepalive: peer.keepalive,
        resend: peer.resend,
        bicast: peer.bicast,
        paths: resolved.collect::<Result<_, _>>()?,
    })
}

/// What the tunnel is told of a path. A relayed path's local address has to fit the relay, a direct one's the peer.
///
/// # Errors
/// One sentence.
pub fn path(path: &Path) -> Result<PathConfig, String> {
    let local = match path.local {
        Local::Address(address) => Some(address),
        _ => None,
    };
    let remote = path.remote.host(if path.via.is_some() { None } else { local })?;
    let via = path.via.as_ref().map(|via| {
        let address = via.address.host(local)?;
        Ok::<_, String>(Via { address, tls: via.tls, public_key: via.public_key })
    });
    Ok(PathConfig {
        name: path.name.clone(),
        local: path.local.clone(),
        remote,
        via: via.transpose()?,
        backup: path.backup,
        receive: path.receive,
        cost: path.cost,
    })
}
