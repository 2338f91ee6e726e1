//! Where the listed paths leave this host: interfaces that come and go.

use std::io;
use std::time::Duration;

use device::Net;

use crate::address::LocalAddress;
use crate::config::{Config, Local};

/// How often interfaces are looked at: an outage of a second is noticed by the path's own probes sooner.
const INTERVAL: Duration = Duration::from_secs(1);

/// A path of the configuration.
#[derive(Debug)]
struct Listed {
    peer: usize,
    path: usize,
    local: Local,
    /// As last told; `None` before the first look.
    known: Option<Option<LocalAddress>>,
}

/// A path whose way out came, changed or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The peer's place in the configuration.
    pub peer: usize,
    /// The path's place in the peer's.
    pub path: usize,
    /// The way out now.
    pub local: Option<LocalAddress>,
}

/// All listed paths' ways out.
#[derive(Debug)]
pub struct Locals {
    net: Net,
    listed: Vec<Listed>,
    /// When to look again.
    due: Option<Duration>,
}

impl Locals {
    /// Of the paths in `config`, in the calling thread's network namespace.
    pub fn new(config: &Config) -> io::Result<Self> {
        let mut listed = Vec::new();
        for (peer, peer_config) in config.peers.iter().enumerate() {
            for (path, path_config) in peer_config.paths.iter().enumerate() {
                listed.push(Listed { peer, path, local: path_config.local.clone(), known: None });
            }
        }
        Ok(Self { net: Net::open()?, listed, due: Some(Duration::ZERO) })
    }

    /// When to call [`look`](Self::look).
    pub fn due(&self) -> Option<Duration> {
        self.due
    }

    /// What has changed since the last time, if it is time to look.
    pub fn look(&mut self, now: Duration) -> Vec<Change> {
        if self.due.is_none_or(|due| now < due) {
            return Vec::new();
        }
        let watched = self.listed.iter().any(|listed| matches!(listed.local, Local::Interface(_)));
        self.due = watched.then_some(now + INTERVAL);
        let net = &mut self.net;
        self.listed.iter_mut().filter_map(|listed| listed.look(net)).collect()
    }
}

impl Listed {
    fn look(&mut self, net: &mut Net) -> Option<Change> {
        let local = match &self.local {
            Local::Any => Some(LocalAddress::default()),
            Local::Address(ip) => Some(LocalAddress { ip: Some(*ip), interface: None }),
            Local::Interface(name) => {
                let link = net.link(name).ok().filter(|link| link.running);
                link.map(|link| LocalAddress { ip: None, interface: Some(link.index) })
            }
        };
        if self.known.replace(local) == Some(local) {
            return None;
        }
        Some(Change { peer: self.peer, path: self.path, local })
    }
}
