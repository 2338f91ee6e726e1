//! The thread that asks the host: where the listed paths leave it, and whether the tunnel's interface still has what it was
//! given. Interfaces, addresses, routes and rules come and go; the data thread hears of what that changes, and waits for no
//! answer of the kernel's.

use std::io;
use std::net::IpAddr;
use std::sync::mpsc::Sender;
use std::time::Duration;

use device::net::{Link, Query};
use device::poller::{Interest, Poller, monotonic};
use device::{Changes, Net, News, Waker};
use ipnet::IpNet;

use super::interface::Interface;
use super::turn::mark;
use super::{Asked, Inbox};
use crate::address::LocalAddress;
use crate::config::{Config, Local, PathConfig};
use crate::why::Why;

/// How often interfaces are looked at where the kernel does not tell of changes.
const INTERVAL: Duration = Duration::from_secs(1);
/// The kernel tells of an address in several messages, and routers of many routes: what comes within this time of the
/// last look is looked at together.
const REST: Duration = Duration::from_millis(100);
const WAKER: u64 = 0;
const CHANGES: u64 = 1;

/// What the data thread is told, of the configuration of this number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Counts configurations.
    pub generation: u64,
    /// What is new.
    pub what: What,
}

/// Something new about the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The way out of a path (peer and path in the order of the configuration) came, is another one now, or went.
    Way(usize, usize, Result<LocalAddress, Why>),
    /// A path's way out is the same, but addresses or routes on it have changed, and with them perhaps where packets come
    /// from.
    Addresses(usize, usize),
    /// Routes may have changed.
    Routes,
}

/// What this thread is asked for.
#[derive(Debug)]
pub enum Order {
    /// The interface's addresses, and the routes of the peers; may be refused.
    Interface(Vec<IpNet>, Config),
    /// The ways out of the paths in the configuration of this number.
    Paths(u64, Config),
    /// The interface's MTU.
    Mtu(u16),
}

/// A path of the configuration.
#[derive(Debug)]
struct Listed {
    peer: usize,
    path: usize,
    local: Local,
    /// The peer, or the relay.
    to: IpAddr,
    /// As last told; `None` before the first look.
    known: Option<Result<LocalAddress, Why>>,
}

/// All that the thread owns.
pub struct Ways {
    state: State,
    inbox: Inbox<(), Order>,
    changes: Option<Changes>,
}

struct State {
    net: Net,
    interface: Interface,
    /// The mark that the file gives the outer packets; 0: none.
    fwmark: u32,
    mark: u32,
    generation: u64,
    listed: Vec<Listed>,
    /// What was told and not looked at yet.
    news: News,
    /// When to look again, if ever; not before `rest`.
    due: Option<Duration>,
    rest: Duration,
    told: Sender<Told>,
    waker: Waker,
}

impl Ways {
    /// Of the paths in `config`, in the calling thread's network namespace. What is new goes to `told`, and wakes `waker`.
    pub fn new(
        interface: Interface,
        fwmark: u32,
        config: &Config,
        inbox: Inbox<(), Order>,
        (told, waker): (Sender<Told>, Waker),
    ) -> io::Result<Self> {
        let changes = Changes::subscribe();
        if let Err(error) = &changes {
            tracing::warn!("cannot be told of changed addresses, and looks for itself each second: {error}");
        }
        let mut state = State {
            net: Net::open()?,
            interface,
            fwmark,
            mark: 0,
            generation: 0,
            listed: Vec::new(),
            news: News::default(),
            due: None,
            rest: Duration::ZERO,
            told,
            waker,
        };
        state.list(0, config);
        Ok(Self { state, inbox, changes: changes.ok() })
    }

    /// Runs until it is told to stop.
    pub fn run(mut self) -> io::Result<()> {
        let mut poller = Poller::new()?;
        poller.add(&self.inbox.waker, WAKER, Interest::Read)?;
        if let Some(changes) = &self.changes {
            poller.add(changes, CHANGES, Interest::Read)?;
        }
        loop {
            self.state.look(monotonic(), self.changes.is_none());
            let timeout = self.state.due.map(|due| due.saturating_sub(monotonic()));
            for ready in poller.wait(timeout)? {
                match ready.token {
                    CHANGES => self.listen(),
                    _ if self.inbox.answer(&mut self.state) => return Ok(()),
                    _ => {}
                }
            }
        }
    }

    /// Takes in what the kernel tells.
    fn listen(&mut self) {
        match self.changes.as_ref().map(Changes::take) {
            None => {}
            Some(Ok(news)) => self.state.note(news),
            Some(Err(error)) => {
                tracing::warn!("is not told of changed addresses any more, and looks each second: {error}");
                self.changes = None;
                self.state.due = Some(self.state.rest);
            }
        }
    }
}

impl Asked<(), Order> for State {
    fn status(&self) {}

    fn change(&mut self, order: Order) -> Result<(), String> {
        match order {
            Order::Interface(addresses, config) => {
                self.interface.reconfigure(&addresses, &config).map_err(|error| error.to_string())?;
            }
            Order::Paths(generation, config) => self.list(generation, &config),
            Order::Mtu(mtu) => self.interface.set_mtu(mtu),
        }
        Ok(())
    }
}

impl State {
    /// All paths of `config` are told at the next look, which is due.
    fn list(&mut self, generation: u64, config: &Config) {
        (self.generation, self.mark) = (generation, mark(self.fwmark, config));
        self.listed.clear();
        for (peer, peer_config) in config.peers.iter().enumerate() {
            let paths = peer_config.paths.iter().enumerate();
            self.listed.extend(paths.map(|(path, config)| Listed::new(peer, path, config)));
        }
        (self.due, self.rest) = (Some(Duration::ZERO), Duration::ZERO);
    }

    fn note(&mut self, news: News) {
        self.news.links |= news.links;
        self.news.rules |= news.rules;
        self.news.overrun |= news.overrun;
        self.news.changed.extend(news.changed);
        self.news.interfaces.extend(news.interfaces);
        if self.news != News::default() {
            self.due = Some(self.rest);
        }
    }

    /// Tells what has changed since the last time, if it is time to look.
    fn look(&mut self, now: Duration, untold: bool) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        self.due = untold.then_some(now + INTERVAL);
        self.rest = now + REST;
        let mut news = std::mem::take(&mut self.news);
        let own = self.interface.index();
        if untold || news.overrun || news.rules || news.changed.contains(&own) | news.interfaces.remove(&own)
        {
            self.interface.restore();
        }
        let mut host = Host { net: &mut self.net, own: (own, self.interface.name()), mark: self.mark };
        let changed: Vec<_> =
            self.listed.iter_mut().filter_map(|listed| listed.look(&mut host, &news)).collect();
        for what in changed.into_iter().chain([What::Routes]) {
            // Refused only when the data thread has ended.
            let _ = self.told.send(Told { generation: self.generation, what });
        }
        self.waker.wake();
    }
}

/// What is asked about a way out.
struct Host<'a> {
    net: &'a mut Net,
    /// Index and name of the tunnel's own interface.
    own: (u32, &'a str),
    mark: u32,
}

impl Listed {
    fn new(peer: usize, path: usize, config: &PathConfig) -> Self {
        let to = config.via.as_ref().map_or(config.remote, |via| via.address).ip();
        Self { peer, path, local: config.local.clone(), to, known: None }
    }

    fn look(&mut self, host: &mut Host<'_>, news: &News) -> Option<What> {
        let way = self.find(host);
        let same = self.known.as_ref() == Some(&way);
        let concerned = way.as_ref().is_ok_and(|local| concerns(news, local));
        self.known = Some(way.clone());
        match same {
            false => Some(What::Way(self.peer, self.path, way)),
            true => concerned.then_some(What::Addresses(self.peer, self.path)),
        }
    }

    fn find(&self, host: &mut Host<'_>) -> Result<LocalAddress, Why> {
        let query = Query { mark: host.mark, ..Query::to(self.to) };
        match &self.local {
            Local::Any => host.outside(&query, String::new()).map(|()| LocalAddress::default()),
            Local::Interface(name) => host.by_interface(name, &query),
            Local::Address(ip) => host.from_address(*ip, &query),
        }
    }
}

impl Host<'_> {
    /// Whether there is a way, and not into the tunnel itself.
    fn outside(&mut self, query: &Query, by: String) -> Result<(), Why> {
        let to = query.destination;
        match self.net.way_to(query) {
            Ok(way) if way.interface == self.own.0 => Err(Why::Loop { to, interface: self.own.1.to_owned() }),
            Ok(_) => Ok(()),
            Err(_) => Err(Why::NoRoute { by, to }),
        }
    }

    fn by_interface(&mut self, name: &str, query: &Query) -> Result<LocalAddress, Why> {
        let link = self.net.link(name).map_err(|_| Why::NoInterface(name.to_owned()))?;
        let query = &Query { interface: Some(link.index), ..*query };
        self.check(&link, query)?;
        if let Some(way) = leaves_by(self.net, &link, query) {
            return Ok(way);
        }
        // Perhaps a rule knows packets from its addresses.
        let mut sources = device::addresses(name).unwrap_or_default();
        sources.retain(|ip| ip.is_ipv4() == query.destination.is_ipv4());
        let way = |ip| leaves_by(self.net, &link, &Query { source: Some(ip), ..*query });
        let by = format!(" by {name}");
        sources.into_iter().find_map(way).ok_or(Why::NoRoute { by, to: query.destination })
    }

    fn from_address(&mut self, ip: IpAddr, query: &Query) -> Result<LocalAddress, Why> {
        let mut result = Err(Why::NoAddress(ip));
        for name in device::holders(ip).unwrap_or_default() {
            let Ok(link) = self.net.link(&name) else { continue };
            result = self.from_holder(ip, &link, &Query { source: Some(ip), ..*query });
            if result.is_ok() {
                break;
            }
        }
        result
    }

    fn from_holder(&mut self, ip: IpAddr, link: &Link, query: &Query) -> Result<LocalAddress, Why> {
        self.check(link, query)?;
        if link.leads_nowhere {
            let by = format!(" from {ip}");
            return self.outside(query, by).map(|()| LocalAddress { ip: Some(ip), interface: None });
        }
        let by = format!(" by {} from {ip}", link.name);
        let query = Query { interface: Some(link.index), ..*query };
        leaves_by(self.net, link, &query).ok_or(Why::NoRoute { by, to: query.destination })
    }

    fn check(&self, link: &Link, query: &Query) -> Result<(), Why> {
        if link.index == self.own.0 {
            return Err(Why::Loop { to: query.destination, interface: link.name.clone() });
        }
        if !link.running {
            return Err(Why::InterfaceDown(link.name.clone()));
        }
        Ok(())
    }
}

/// How packets leave by this interface, from this source if one is given; `None` if no route leads there by it.
pub fn leaves_by(net: &mut Net, link: &Link, query: &Query) -> Option<LocalAddress> {
    let way = |ip| LocalAddress { ip, interface: Some(link.index) };
    if link.point_to_point || net.has_route(query) {
        return Some(way(query.source));
    }
    // IPv6 keeps to an interface only where the source is left to it; of its own addresses it takes what it would anyway.
    let free = Query { source: None, ..*query };
    let taken = query.source.filter(|source| source.is_ipv6() && net.has_route(&free))?;
    net.way_to(&free).ok().filter(|found| found.source == Some(taken)).map(|_| way(None))
}

/// A path that is bound to no interface may leave by any.
fn concerns(news: &News, local: &LocalAddress) -> bool {
    let told = |index| news.interfaces.contains(&index);
    news.overrun || news.rules || local.interface.map_or(!news.interfaces.is_empty(), told)
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
