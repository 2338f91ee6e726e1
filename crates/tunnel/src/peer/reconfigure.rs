//! A new configuration for a peer that is known already: what is the same goes on undisturbed.

use std::time::Duration;

use rand_core::RngCore;

use super::{ANNOUNCE_AGAIN, ANNOUNCE_LONGEST, ANNOUNCEMENTS, Memory, Peer, repeats, sizes_of};
use crate::config::{Bicast, Config, Marks, Mtu, PathConfig, PeerConfig, Scheduler};
use crate::flow::copies::Copies;
use crate::keys::PrivateKey;
use crate::path::Path;
use crate::wire::address::Way;
use crate::wire::frame;

/// What a new configuration brings beside the peer's own section.
#[derive(Clone, Copy, Debug)]
pub struct Common {
    /// How packets are spread.
    pub scheduler: Scheduler,
    /// The MTU of the TUN interface.
    pub mtu: Mtu,
    /// What outer packets have of inner ones.
    pub marks: Marks,
    /// Bytes of inner packets that may wait for each peer.
    pub memory: Memory,
}

impl Common {
    /// What `config` has for all its peers.
    pub fn of(config: &Config) -> Self {
        let Config { scheduler, mtu, marks, ref peers, .. } = *config;
        Self { scheduler, mtu, marks, memory: Memory::of_each(peers.len()) }
    }
}

impl Peer {
    /// Whether there are ids for the paths of `config` that are new: each is used once in a life.
    pub fn has_ids_for(&self, config: &PeerConfig) -> bool {
        let known = |one: &&PathConfig| self.config.paths.iter().any(|path| path.name == one.name);
        let new = config.paths.len() - config.paths.iter().filter(known).count();
        usize::from(u16::MAX - self.next_id) >= 2 * new
    }

    /// Takes up `config`, which is about the same public key and for whose paths [there are ids](Self::has_ids_for). Paths
    /// are known by their names. Where a path leaves this host is told by [`set_way`](Self::set_way) as ever: at once
    /// for a path that is new or has another [`Local`](crate::config::Local).
    pub fn reconfigure(
        &mut self,
        now: Duration,
        config: PeerConfig,
        common: Common,
        me: &PrivateKey,
        rng: &mut impl RngCore,
    ) {
        let listed = self.listed();
        self.beside = None;
        self.sessions.set_preshared_key(&config.preshared_key);
        self.set_common(now, common, &config);
        self.replace_paths(now, &config.paths, me, rng);
        self.unconfirmed.set_repeats(repeats(self.scheduler, &config));
        if config.bicast == Bicast::Off {
            self.copies = None;
        } else {
            let adaptive = config.bicast == Bicast::Adaptive;
            self.copies.get_or_insert_with(|| Copies::new(rng.next_u64(), adaptive)).set_adaptive(adaptive);
        }
        self.config = config;
        if self.listed() != listed {
            self.generation = self.generation.wrapping_add(1);
            self.announce(now);
        }
    }

    /// What the peer is told of this end's paths: id, name, and how to use them.
    pub(super) fn listed(&self) -> Vec<(u16, String, u8)> {
        let listed = self.paths.iter().filter_map(|path| Some((path.id, path.config.as_ref()?)));
        let flags = |config: &PathConfig| frame::flags(config.is_backup_for_peer(), config.cost);
        listed.map(|(id, config)| (id, config.name.clone(), flags(config))).collect()
    }

    /// An end that never listed a path has nothing to announce; one that did says so too when none is left.
    fn has_listed(&self) -> bool {
        self.next_id > 1
    }

    /// Tells the peer on every path which paths there are.
    pub(super) fn announce(&mut self, now: Duration) {
        let announcements = if self.has_listed() { ANNOUNCEMENTS } else { 0 };
        for path in &mut self.paths {
            path.announcements = announcements;
            path.announced.clear();
            path.probe_wanted = true;
            path.next_marker = Some(now);
        }
        self.announce_again = (announcements > 0).then_some((now + ANNOUNCE_AGAIN, ANNOUNCE_AGAIN));
    }

    /// Tells the peer once more, over the path that is most likely to arrive: an outage may have swallowed all before.
    pub(super) fn announce_late(&mut self, now: Duration) {
        let Some((_, step)) = self.announce_again.filter(|(at, _)| *at <= now) else { return };
        let step = 4 * step;
        self.announce_again = (step <= ANNOUNCE_LONGEST).then_some((now + step, step));
        if let Some(at) = self.report_paths(now)[0] {
            self.paths[at].announcements = 1;
            self.paths[at].probe_wanted = true;
        }
    }

    /// The addresses of the interface that listed path `index` leaves by have changed, or the routes to it: the peer and
    /// the relay are to hear at once where it comes from now.
    pub fn handle_address_change(&mut self, now: Duration, index: usize) {
        let Some(path) = self.paths.get_mut(index).filter(|path| path.config.is_some()) else { return };
        path.probe_wanted = true;
        if let Some(registration) = &mut path.registration {
            registration.restart(now);
        }
    }

    fn set_common(&mut self, now: Duration, common: Common, config: &PeerConfig) {
        (self.scheduler, self.marks, self.memory) = (common.scheduler, common.marks, common.memory);
        self.queue.set_max_bytes(self.memory.waiting());
        self.unconfirmed.set_max_bytes(self.memory.kept());
        self.ordered.set_max_bytes(self.memory.held());
        let sizes = sizes_of(common.mtu, config, self.sizes.pieces);
        if sizes != self.sizes {
            self.sizes = sizes;
            self.inner_mtu = sizes.least;
            let (fit, short): (Vec<_>, Vec<_>) =
                self.paths.iter_mut().partition(|path| path.inner_mtu() >= sizes.least);
            fit.into_iter().for_each(|path| path.mtu.look_again(now));
            short.into_iter().for_each(|path| path.mtu.restart(now));
        }
    }

    /// Makes the listed paths those of `wanted`, in that order and before the learned ones.
    fn replace_paths(
        &mut self,
        now: Duration,
        wanted: &[PathConfig],
        me: &PrivateKey,
        rng: &mut impl RngCore,
    ) {
        let (mut old, learned): (Vec<_>, Vec<_>) =
            self.paths.drain(..).partition(|path| path.config.is_some());
        for (index, config) in wanted.iter().enumerate() {
            let at = old.iter().position(|path| path.name == config.name);
            let path = at.map(|at| old.remove(at));
            let leads_elsewhere = path.as_ref().is_some_and(|path| leads_elsewhere(path, config));
            let mut path = path.unwrap_or_else(|| self.new_path(config));
            (path.backup, path.cost, path.config) = (config.is_backup(), config.cost, Some(config.clone()));
            self.paths.push(path);
            if leads_elsewhere {
                let path = &mut self.paths[index];
                path.registration = None;
                path.set_way(path.way().and_then(|way| Way::of(config, way.local)));
                self.find_way(now, index, me, rng);
            }
        }
        self.paths.extend(learned);
        self.outcome.clear();
        old.iter_mut().for_each(|path| path.sent.abandon(&mut self.outcome));
        self.settle(now);
    }

    /// A path that this end lists from now on.
    pub(super) fn new_path(&mut self, config: &PathConfig) -> Path {
        let path = Path::new(self.next_id, &self.config.public_key, Some(config.clone()));
        self.next_id += 2;
        path
    }
}

fn leads_elsewhere(path: &Path, config: &PathConfig) -> bool {
    path.config.as_ref().is_some_and(|old| (&old.remote, &old.via) != (&config.remote, &config.via))
}
