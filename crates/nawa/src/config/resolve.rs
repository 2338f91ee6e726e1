//! From host names to addresses, at start.

use tunnel::config::{Config, Local, PathConfig, PeerConfig, Via};

use super::{Path, Peer, Tunnel};
use crate::failure::Failure;

/// What the tunnel's core is told.
///
/// # Errors
/// Failed if a host name has no address now.
pub fn tunnel(tunnel: &Tunnel) -> Result<Config, Failure> {
    let peers = tunnel.peers.iter().map(peer).collect::<Result<_, _>>()?;
    Ok(Config { scheduler: tunnel.scheduler, mtu: tunnel.mtu, peers })
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
        paths: resolved.collect::<Result<_, _>>()?,
    })
}

/// A relayed path's local address has to fit the relay, a direct one's the peer.
fn path(path: &Path) -> Result<PathConfig, String> {
    let local = match path.local {
        Local::Address(address) => Some(address),
        _ => None,
    };
    let remote = path.remote.resolve(if path.via.is_some() { None } else { local })?;
    let via = path.via.as_ref().map(|via| {
        let address = via.address.resolve(local)?;
        Ok::<_, String>(Via { address, public_key: via.public_key })
    });
    Ok(PathConfig {
        name: path.name.clone(),
        local: path.local.clone(),
        remote,
        via: via.transpose()?,
        backup: path.backup,
    })
}
