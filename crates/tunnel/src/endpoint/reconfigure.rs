//! A new configuration for an endpoint that runs.

use std::time::Duration;

use rand_core::RngCore;

use super::{Endpoint, peer_of, routes_of};
use crate::config::{Config, ConfigError, Mtu, PeerConfig};
use crate::peer::{Common, Peer};

impl Endpoint {
    /// Whether [`reconfigure`](Self::reconfigure) would take `config` up.
    ///
    /// # Errors
    /// [`ConfigError`]: it contradicts itself, or this life has no ids for its new paths.
    pub fn check(&self, config: &Config) -> Result<(), ConfigError> {
        config.validate()?;
        let exhausted = |new: &&PeerConfig| {
            self.peers.iter().any(|peer| peer.config.public_key == new.public_key && !peer.has_ids_for(new))
        };
        match config.peers.iter().find(exhausted) {
            Some(peer) => Err(ConfigError::NoIds(peer.name.clone())),
            None => Ok(()),
        }
    }

    /// Takes up `config`, the whole of it. Peers are known by their public keys, paths by their names; what is the same
    /// goes on undisturbed, what has gone is forgotten at once, and what was under way over a path that has gone is sent
    /// again over others. Call [`set_local`](Self::set_local) afterwards for every path that is new or whose
    /// [`Local`](crate::config::Local) is another.
    ///
    /// # Errors
    /// [`ConfigError`]; then nothing has changed.
    pub fn reconfigure(&mut self, now: Duration, config: Config) -> Result<(), ConfigError> {
        self.check(&config)?;
        (0..self.peers.len()).for_each(|at| self.collect_inner(at));
        self.routes = routes_of(&config);
        self.mtu = config.mtu;
        if let Mtu::Fixed(mtu) = config.mtu {
            self.inner_mtu = mtu;
        }
        self.fail_open = config.fail_open;
        let common = Common::of(&config);
        self.congestion_control = config.congestion_control;
        let mut old = std::mem::take(&mut self.peers);
        for wanted in config.peers {
            let known = old.iter().position(|peer| peer.config.public_key == wanted.public_key);
            let peer = match known.map(|at| old.swap_remove(at)) {
                Some(mut peer) => {
                    peer.reconfigure(now, wanted, common, &self.me, &mut self.rng);
                    peer
                }
                None => self.new_peer(wanted, common),
            };
            self.peers.push(peer);
        }
        self.list_anew();
        self.update_mtu();
        Ok(())
    }

    /// See [`Peer::handle_address_change`]; `path` of `peer` in the order of the configuration.
    pub fn handle_address_change(&mut self, now: Duration, peer: usize, path: usize) {
        self.roster.wake(peer);
        if let Some(peer) = self.peers.get_mut(peer) {
            peer.handle_address_change(now, path);
        }
    }

    /// A peer that comes while this end runs may have been here before: to it, this is another life.
    fn new_peer(&mut self, config: PeerConfig, common: Common) -> Peer {
        let incarnation = self.rng.next_u64();
        peer_of(config, common, &self.me, incarnation, &mut self.rng)
    }
}
