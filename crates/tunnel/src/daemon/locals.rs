//! Where the listed paths leave this host: interfaces, addresses and routes that come and go.

use std::io;
use std::time::Duration;

use device::{Changes, Net, News};

use crate::address::LocalAddress;
use crate::config::{Config, Local};

/// How often interfaces are looked at where the kernel does not tell of changes.
const INTERVAL: Duration = Duration::from_secs(1);
/// The kernel tells of an address in several messages, and routers of many routes: what comes within this time of the
/// last look is looked at together.
const REST: Duration = Duration::from_millis(100);

/// A path of the configuration.
#[derive(Debug)]
struct Listed {
    peer: usize,
    path: usize,
    local: Local,
    /// As last told; `None` before the first look.
    known: Option<Option<LocalAddress>>,
}

/// What became of a path's way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It came, is another one now, or went.
    Local(Option<LocalAddress>),
    /// It is the same, but addresses or routes on it have changed, and with them perhaps where packets come from.
    Addresses,
}

/// All listed paths' ways out.
#[derive(Debug)]
pub struct Locals {
    net: Net,
    changes: Option<Changes>,
    /// Index of the tunnel's own interface, whose changes are this daemon's.
    own: u32,
    listed: Vec<Listed>,
    /// What was told and not looked at yet.
    news: News,
    /// When to look again, if ever; not before `rest`.
    due: Option<Duration>,
    rest: Duration,
}

impl Locals {
    /// Of the paths in `config`, in the calling thread's network namespace; `own` is the tunnel's interface.
    pub fn new(config: &Config, own: u32) -> io::Result<Self> {
        let changes = Changes::subscribe();
        if let Err(error) = &changes {
            tracing::warn!("cannot be told of changed addresses, and looks for itself each second: {error}");
        }
        let mut locals = Self {
            net: Net::open()?,
            changes: changes.ok(),
            own,
            listed: Vec::new(),
            news: News::default(),
            due: None,
            rest: Duration::ZERO,
        };
        locals.reconfigure(config);
        Ok(locals)
    }

    /// Of the paths in `config` from now on. All of them are told at the next look, which is due.
    pub fn reconfigure(&mut self, config: &Config) {
        self.listed.clear();
        for (peer, peer_config) in config.peers.iter().enumerate() {
            for (path, path_config) in peer_config.paths.iter().enumerate() {
                self.listed.push(Listed { peer, path, local: path_config.local.clone(), known: None });
            }
        }
        (self.due, self.rest) = (Some(Duration::ZERO), Duration::ZERO);
    }

    /// What to wait for: when it is readable, [`listen`](Self::listen).
    pub fn changes(&self) -> Option<&Changes> {
        self.changes.as_ref()
    }

    /// Takes in what the kernel tells.
    pub fn listen(&mut self) {
        match self.changes.as_ref().map(Changes::take) {
            None => {}
            Some(Ok(news)) => self.note(news),
            Some(Err(error)) => {
                tracing::warn!("is not told of changed addresses any more, and looks each second: {error}");
                self.changes = None;
                self.due = Some(self.rest);
            }
        }
    }

    fn note(&mut self, news: News) {
        self.news.links |= news.links;
        self.news.overrun |= news.overrun;
        self.news.interfaces.extend(news.interfaces.into_iter().filter(|index| *index != self.own));
        if self.news != News::default() {
            self.due = Some(self.rest);
        }
    }

    /// When to call [`look`](Self::look).
    pub fn due(&self) -> Option<Duration> {
        self.due
    }

    /// The paths (peer and path, in the order of the configuration) whose ways out have changed since the last time, if
    /// it is time to look.
    pub fn look(&mut self, now: Duration) -> Vec<(usize, usize, Change)> {
        if self.due.is_none_or(|due| now < due) {
            return Vec::new();
        }
        let untold = self.changes.is_none()
            && self.listed.iter().any(|listed| matches!(listed.local, Local::Interface(_)));
        self.due = untold.then_some(now + INTERVAL);
        self.rest = now + REST;
        let (net, news) = (&mut self.net, std::mem::take(&mut self.news));
        let changed = |listed: &mut Listed| Some((listed.peer, listed.path, listed.look(net, &news)?));
        self.listed.iter_mut().filter_map(changed).collect()
    }
}

impl Listed {
    fn look(&mut self, net: &mut Net, news: &News) -> Option<Change> {
        let local = self.find(net);
        if self.known.replace(local) != Some(local) {
            return Some(Change::Local(local));
        }
        local.filter(|local| concerns(news, local)).map(|_| Change::Addresses)
    }

    fn find(&self, net: &mut Net) -> Option<LocalAddress> {
        match &self.local {
            Local::Any => Some(LocalAddress::default()),
            Local::Address(ip) => Some(LocalAddress { ip: Some(*ip), interface: None }),
            Local::Interface(name) => {
                let link = net.link(name).ok().filter(|link| link.running)?;
                Some(LocalAddress { ip: None, interface: Some(link.index) })
            }
        }
    }
}

/// A path that is bound to no interface may leave by any.
fn concerns(news: &News, local: &LocalAddress) -> bool {
    let told = |index| news.interfaces.contains(&index);
    news.overrun || local.interface.map_or(!news.interfaces.is_empty(), told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_concern_the_paths_on_their_interfaces() {
        let on = |interface| LocalAddress { ip: None, interface };
        let news = |interfaces: &[u32], overrun| News {
            interfaces: interfaces.iter().copied().collect(),
            overrun,
            links: true,
            ..News::default()
        };
        assert!(!concerns(&news(&[], false), &on(None)), "a link alone has no addresses");
        assert!(concerns(&news(&[3], false), &on(None)));
        assert!(concerns(&news(&[3], false), &on(Some(3))));
        assert!(!concerns(&news(&[3], false), &on(Some(4))));
        assert!(concerns(&news(&[], true), &on(Some(4))), "who knows");
    }
}
