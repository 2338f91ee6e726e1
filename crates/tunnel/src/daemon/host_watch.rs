//! The thread that asks the host: where the listed paths leave it and lead, and whether the tunnel's interface still has what it was
//! given. Interfaces, addresses, routes and rules come and go; the data thread hears of what that changes, and asks the kernel for
//! nothing but routes back to peers ([`return_routes`](super::return_routes)).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use device::net::Query;
use device::poller::{Interest, Poller, boottime};
use device::unreachable::{Because, Listener, Unreachable};
use device::worker::{Asked, Inbox};
use device::{Changes, Net, News, Outgoing, Waker};
use ipnet::IpNet;

use super::interface::{Interface, mark};
use super::names::{Answer, Answers, Name};
use super::resolver::By;
use super::routing::Host;
use super::sockets::PLACES;
use super::tls::{self, Client, Target};
use crate::config::{self, Config, Local, PathConfig, PeerConfig};
use crate::handshake::cookie::LoadGauge;
use crate::keys::PublicKey;
use crate::why::Why;
use crate::wire::address::{LocalAddress, Way};

/// What could not begin is tried again after this.
const INTERVAL: Duration = Duration::from_secs(1);
/// The kernel tells of an address in several messages, and routers of many routes: what comes within this time of the
/// last look is looked at together.
const REST: Duration = Duration::from_millis(100);
/// A NAT or a firewall may have given a path's port up that has not been up for so long: it takes another one, and again
/// after twice as long each time, up to this.
const STALE: Duration = Duration::from_secs(10);
const STALE_LONGEST: Duration = Duration::from_secs(300);
/// So many messages of ICMP in a second are passed on, and so many at once. Anybody can send them, and each costs the data thread
/// a look at all paths. They are hints: what is dropped is found out by silence.
const REFUSALS_PER_SECOND: u32 = 100;
const WAKER: u64 = 0;
const CHANGES: u64 = 1;
const REFUSALS: u64 = 2;

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
    Way(usize, usize, Result<Way, Why>),
    /// A path's way out is the same, but addresses or routes on it have changed, and with them perhaps where packets come
    /// from.
    Addresses(usize, usize),
    /// Why packets that are routed to a peer (in the order of the configuration) do not go into the tunnel, if some do not.
    Beside(usize, Option<Why>),
    /// Routes may have changed.
    Routes,
    /// A datagram to there did not arrive, as ICMP says.
    Unreachable(SocketAddr, Why),
    /// Such a one, a packet of so many bytes, was too large.
    TooLarge(SocketAddr, u16),
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
    /// Whether packets of the default routes go beside the tunnel.
    Open(bool),
    /// In the configuration of this number, a peer's path came up, or is not up any more.
    State(u64, (usize, usize), bool),
}

/// A path of the configuration.
#[derive(Debug)]
struct Listed {
    peer: usize,
    path: usize,
    /// What it is known by in another configuration: the peer's key and its name.
    key: (PublicKey, String),
    local: Local,
    remote: Name,
    relay: Option<Name>,
    /// How its relay is reached by TLS, if it is.
    tls: Option<Tls>,
    /// As last heard.
    up: bool,
    /// The place of the socket that it leaves by.
    socket: u8,
    /// When to take another, unless the path is up until then, and how long it has been waited for.
    stale: Option<(Duration, Duration)>,
    /// As last told; `None` before the first look.
    known: Option<Result<Way, Why>>,
}

/// A peer of the configuration, and what is routed to it.
#[derive(Debug)]
struct Routed {
    peer: usize,
    routes: Vec<IpNet>,
    /// As last told.
    beside: Option<Why>,
}

/// A path's connection to its relay.
#[derive(Debug)]
struct Tls {
    /// Unique in the life of the daemon.
    number: u64,
    /// Where it leads, as last asked for.
    target: Option<Target>,
    /// What became of it: where the relay is found.
    state: Result<SocketAddr, String>,
    /// It is another one than the way was told of.
    new: bool,
    /// The thread that makes it knows the target.
    led: bool,
}

impl Tls {
    fn new(number: u64) -> Self {
        Self { number, target: None, state: Err("it is not made yet".into()), new: false, led: true }
    }

    /// It is to lead there.
    fn lead(&mut self, target: Target) {
        if self.target.as_ref() != Some(&target) {
            *self = Self { target: Some(target), led: false, ..Self::new(self.number) };
        }
    }
}

/// All that the thread owns.
pub struct HostWatch {
    state: State,
    inbox: Inbox<(), Order>,
    changes: Changes,
    /// Of IPv4 and IPv6, where they can be had.
    refusals: Vec<Listener>,
    /// Of what they say.
    gauge: LoadGauge,
}

struct State {
    net: Net,
    interface: Interface,
    /// The mark that the file gives the outer packets; 0: none.
    fwmark: u32,
    mark: u32,
    generation: u64,
    listed: Vec<Listed>,
    routed: Vec<Routed>,
    /// What was told and not looked at yet.
    news: News,
    /// When to look again, if ever; not before `rest`.
    due: Option<Duration>,
    rest: Duration,
    /// What others take of the interface is not put back before: who takes a route each time, as another tunnel does, is not answered
    /// faster.
    restore_from: Duration,
    told: Sender<Told>,
    waker: Waker,
    /// What resolvers say, and where they say it.
    found: Receiver<Answer>,
    answers: Answers,
    /// Whom to ask for names, if the file says.
    resolvers: Vec<IpAddr>,
    /// Counts lookups.
    lookups: u64,
    /// The place of the socket that was last given to a path.
    next_socket: u8,
    /// Where the tunnel's own socket is.
    tunnel: SocketAddr,
    /// For paths that go by TLS, once there is one.
    client: Option<Client>,
    /// Counts them.
    connections: u64,
}

impl HostWatch {
    /// Of the paths in `config`, in the calling thread's network namespace. What is new goes to `told`, and wakes `waker`.
    pub fn new(
        interface: Interface,
        fwmark: u32,
        config: &Config,
        tunnel: SocketAddr,
        inbox: Inbox<(), Order>,
        (told, waker): (Sender<Told>, Waker),
    ) -> io::Result<Self> {
        let changes = Changes::subscribe()?;
        let (sender, found) = channel();
        let mut state = State {
            net: Net::open()?,
            interface,
            fwmark,
            mark: 0,
            generation: 0,
            listed: Vec::new(),
            routed: Vec::new(),
            news: News::default(),
            due: None,
            rest: Duration::ZERO,
            restore_from: Duration::ZERO,
            told,
            waker,
            found,
            answers: (sender, inbox.waker.clone()),
            resolvers: Vec::new(),
            lookups: 0,
            next_socket: 0,
            tunnel,
            client: None,
            connections: 0,
        };
        state.list(0, config);
        // Where raw sockets are not to be had, refusals are silence.
        let refusals = [false, true].into_iter().filter_map(|v6| Listener::open(v6).ok()).collect();
        let gauge = LoadGauge::new(REFUSALS_PER_SECOND, REFUSALS_PER_SECOND);
        Ok(Self { state, inbox, changes, refusals, gauge })
    }

    /// Runs until it is told to stop.
    pub fn run(mut self) -> io::Result<()> {
        let mut poller = Poller::new()?;
        poller.add(&self.inbox.waker, WAKER, Interest::Read)?;
        poller.add(&self.changes, CHANGES, Interest::Read)?;
        for listener in &self.refusals {
            poller.add(listener, REFUSALS, Interest::Read)?;
        }
        loop {
            let now = boottime();
            self.state.ask(now);
            self.state.hear_connections(now);
            self.state.leave_ports(now);
            self.state.look(now)?;
            let timeout = self.state.poll_timeout().map(|due| due.saturating_sub(boottime()));
            for ready in poller.wait(timeout)? {
                match ready.token {
                    CHANGES => self.state.note(self.changes.take()?),
                    REFUSALS => self.hear(),
                    _ if self.inbox.answer(&mut self.state) => return Ok(()),
                    _ => {}
                }
            }
        }
    }

    /// Passes on what ICMP says became of datagrams, wherever they were to go.
    fn hear(&mut self) {
        let lost = self.refusals.iter().flat_map(Listener::take);
        let mut told = false;
        for what in passed_on(&mut self.gauge, boottime(), lost) {
            told |= self.state.told.send(Told { generation: 0, what }).is_ok();
        }
        if told {
            self.state.waker.wake();
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
            Order::Open(open) => self.interface.set_open(open),
            Order::State(generation, place, up) if generation == self.generation => {
                let listed = self.listed.iter_mut().find(|listed| (listed.peer, listed.path) == place);
                listed.into_iter().for_each(|listed| listed.handle_state(boottime(), up));
            }
            Order::State(..) => {}
        }
        Ok(())
    }
}

impl State {
    /// All paths of `config` are told at the next look, which is due.
    fn list(&mut self, generation: u64, config: &Config) {
        (self.generation, self.mark) = (generation, mark(self.fwmark, config));
        self.resolvers.clone_from(&config.resolvers);
        let mut old = std::mem::take(&mut self.listed);
        for (peer, peer_config) in config.peers.iter().enumerate() {
            for (path, config) in peer_config.paths.iter().enumerate() {
                let key = (peer_config.public_key, config.name.clone());
                let before = old.iter().position(|listed| listed.key == key).map(|at| old.swap_remove(at));
                let mut listed = Listed::new(boottime(), (peer, path), key, config, before);
                if config.via.as_ref().is_some_and(|via| via.tls) {
                    listed.tls.get_or_insert_with(|| {
                        self.connections += 1;
                        Tls::new(self.connections)
                    });
                } else {
                    self.forget(listed.tls.take());
                }
                self.listed.push(listed);
            }
        }
        old.into_iter().for_each(|listed| self.forget(listed.tls));
        let routed =
            |(peer, config): (_, &PeerConfig)| Routed { peer, routes: config.routes.clone(), beside: None };
        self.routed = config.peers.iter().enumerate().map(routed).collect();
        (self.due, self.rest) = (Some(Duration::ZERO), Duration::ZERO);
    }

    fn forget(&self, tls: Option<Tls>) {
        if let (Some(client), Some(tls)) = (&self.client, tls) {
            client.forget(tls.number);
        }
    }

    /// Takes in what became of connections.
    fn hear_connections(&mut self, now: Duration) {
        for tls::News { path, state } in self.client.iter().flat_map(Client::news) {
            let found = self.listed.iter_mut().filter_map(|listed| listed.tls.as_mut());
            if let Some(tls) = { found }.find(|tls| tls.number == path) {
                (tls.state, tls.new) = (state, true);
                self.due = Some(now);
            }
        }
    }

    /// Has connections made to where paths lead.
    fn connect(&mut self, now: Duration) {
        for tls in self.listed.iter_mut().filter_map(|listed| listed.tls.as_mut()).filter(|tls| !tls.led) {
            let Some(target) = &tls.target else { continue };
            if self.client.is_none() {
                match Client::start(self.tunnel, self.answers.1.clone()) {
                    Ok(client) => self.client = Some(client),
                    Err(error) => {
                        tls.state = Err(error.to_string());
                        self.due = Some(now + INTERVAL);
                    }
                }
            }
            if let Some(client) = &self.client {
                client.lead(tls.number, target.clone());
                tls.led = true;
            }
        }
    }

    fn note(&mut self, news: News) {
        self.news.links |= news.links;
        self.news.rules |= news.rules;
        self.news.prefixes.extend(news.prefixes);
        self.news.overrun |= news.overrun;
        self.news.changed.extend(news.changed);
        self.news.interfaces.extend(news.interfaces);
        if self.news != News::default() {
            self.due = Some(self.rest);
        }
    }

    /// Asks resolvers what it is time to ask, and takes in what they say.
    fn ask(&mut self, now: Duration) {
        for answer in self.found.try_iter() {
            let mut names = self.listed.iter_mut().flat_map(Listed::names);
            if names.any(|name| name.handle_answer(now, &answer)) {
                self.due = Some(now);
            }
        }
        let host = &mut Host { net: &mut self.net, own: (0, ""), mark: self.mark };
        for listed in &mut self.listed {
            let local = listed.local.clone();
            for name in listed.names() {
                let by = || By { out: host.leaves(&local), servers: self.resolvers.clone() };
                name.ask(now, &mut self.lookups, &self.answers, by);
            }
        }
    }

    /// Gives the paths that have waited for too long another port.
    fn leave_ports(&mut self, now: Duration) {
        for listed in &mut self.listed {
            if let Some((_, waited)) = listed.stale.filter(|(at, _)| *at <= now) {
                let wait = (2 * waited).min(STALE_LONGEST);
                listed.stale = Some((now + wait, wait));
                // Where it has no way out, the port is not to blame.
                if listed.tls.is_none() && listed.known.as_ref().is_some_and(Result::is_ok) {
                    self.next_socket = self.next_socket % (PLACES - 1) + 1;
                    listed.socket = self.next_socket;
                    self.due = Some(now);
                }
            }
        }
    }

    fn poll_timeout(&self) -> Option<Duration> {
        let names = self.listed.iter().flat_map(|listed| listed.relay.iter().chain([&listed.remote]));
        let stale = self.listed.iter().filter_map(|listed| listed.stale);
        names.filter_map(Name::due).chain(stale.map(|(at, _)| at)).chain(self.due).min()
    }

    /// Tells what has changed since the last time, if it is time to look.
    ///
    /// # Errors
    /// The tunnel's interface has gone.
    fn look(&mut self, now: Duration) -> io::Result<()> {
        if self.due.is_none_or(|due| now < due) {
            return Ok(());
        }
        self.due = None;
        self.rest = now + REST;
        let mut news = std::mem::take(&mut self.news);
        let own = self.interface.index();
        let touched = news.changed.contains(&own) | news.interfaces.remove(&own);
        let touched = touched || news.overrun || news.rules || self.interface.has_route_of(&news.prefixes);
        if touched && now < self.restore_from {
            self.news.interfaces.insert(own);
            self.due = Some(self.restore_from);
        } else if touched && self.interface.restore()? {
            self.restore_from = now + INTERVAL;
        }
        let mut host = Host { net: &mut self.net, own: (own, self.interface.name()), mark: self.mark };
        let changed: Vec<_> =
            self.listed.iter_mut().filter_map(|listed| listed.look(&mut host, &news)).collect();
        self.connect(now);
        let beside: Vec<_> =
            self.routed.iter_mut().filter_map(|routed| routed.look(&mut self.interface)).collect();
        for what in changed.into_iter().chain(beside).chain([What::Routes]) {
            // Refused only when the data thread has ended.
            let _ = self.told.send(Told { generation: self.generation, what });
        }
        self.waker.wake();
        Ok(())
    }
}

impl Routed {
    fn look(&mut self, interface: &mut Interface) -> Option<What> {
        let beside = self.routes.iter().find_map(|net| interface.leads_beside(net));
        let told = std::mem::replace(&mut self.beside, beside.clone());
        (told != beside).then_some(What::Beside(self.peer, beside))
    }
}

impl Listed {
    /// As `config` has it; what is known of the same names stays known, and is asked for again.
    fn new(
        now: Duration,
        place: (usize, usize),
        key: (PublicKey, String),
        config: &PathConfig,
        before: Option<Self>,
    ) -> Self {
        let new = (false, 0, Some((now + STALE, STALE)));
        let (up, socket, stale) = before.as_ref().map_or(new, |b| (b.up, b.socket, b.stale));
        let (remote, relay, tls) = match before {
            Some(before) => (Some(before.remote), before.relay, before.tls),
            None => (None, None, None),
        };
        let name = |host: &config::Host, before: Option<Name>| {
            let mut name =
                before.filter(|name| name.host() == host).unwrap_or_else(|| Name::new(host.clone()));
            name.ask_again();
            name
        };
        Self {
            peer: place.0,
            path: place.1,
            key,
            local: config.local.clone(),
            remote: name(&config.remote, remote),
            relay: config.via.as_ref().map(|via| name(&via.address, relay)),
            tls,
            up,
            socket,
            stale,
            known: None,
        }
    }

    /// It came up, or is not up any more.
    fn handle_state(&mut self, now: Duration, up: bool) {
        if std::mem::replace(&mut self.up, up) == up {
            return;
        }
        self.stale = (!up).then_some((now + STALE, STALE));
        self.names().for_each(|name| name.handle_state(now, up));
    }

    fn names(&mut self) -> impl Iterator<Item = &mut Name> {
        self.relay.iter_mut().chain([&mut self.remote])
    }

    fn look(&mut self, host: &mut Host<'_>, news: &News) -> Option<What> {
        let mut way = self.find(host);
        if let Ok(way) = &mut way {
            // The stand-in of a relay hears the first socket alone.
            way.local.socket = if self.tls.is_some() { 0 } else { self.socket };
            way.rival.iter_mut().for_each(|(_, local)| local.socket = self.socket);
        }
        let same = self.known.as_ref() == Some(&way);
        let another = self.tls.as_mut().is_some_and(|tls| std::mem::take(&mut tls.new));
        let concerned = another || way.as_ref().is_ok_and(|way| concerns(news, &way.local));
        self.known = Some(way.clone());
        match same {
            false => Some(What::Way(self.peer, self.path, way)),
            true => concerned.then_some(What::Addresses(self.peer, self.path)),
        }
    }

    /// By the first address that a way leads to, of the peer or of the relay in between.
    fn find(&mut self, host: &mut Host<'_>) -> Result<Way, Why> {
        let source = match self.local {
            Local::Address(ip) => Some(ip),
            _ => None,
        };
        let Some(relay) = &mut self.relay else {
            let (remote, local) = host.first_way(&self.local, source, &mut self.remote)?;
            let rival = host.rival(&self.local, source, &self.remote, remote);
            return Ok(Way { local, remote, relay: None, tls: None, rival });
        };
        let (address, local) = host.first_way(&self.local, source, relay)?;
        self.remote.wait_for(relay);
        let remote = *self.remote.candidates(None).first().ok_or_else(|| self.remote.why())?;
        self.remote.choose(remote);
        let Some(tls) = &mut self.tls else {
            return Ok(Way { local, remote, relay: Some(address), tls: None, rival: None });
        };
        let name = match relay.host() {
            config::Host::Name(name, _) => Some(name.clone()),
            config::Host::Address(_) => None,
        };
        let out = Outgoing { mark: host.mark, interface: local.interface, source: local.ip };
        let query =
            Query { mark: out.mark, source: out.source, interface: out.interface, ..Query::to(address.ip()) };
        let leaves = host.net.way_to(&query).ok();
        tls.lead(Target { to: address, out, leaves, name });
        let error = |error: &String| Why::NoTls { to: address, error: error.clone() };
        let relay = tls.state.as_ref().map_err(error)?;
        let local = LocalAddress::default();
        Ok(Way { local, remote, relay: Some(*relay), tls: Some(address), rival: None })
    }
}

/// What the data thread is told of these, as long as there are not too many.
fn passed_on(
    gauge: &mut LoadGauge,
    now: Duration,
    lost: impl Iterator<Item = Unreachable>,
) -> impl Iterator<Item = What> {
    lost.filter(move |_| !gauge.under_load(now)).map(|Unreachable { remote, because }| match because {
        Because::Refused => What::Unreachable(remote, Why::Refused(remote)),
        Because::NoWay => What::Unreachable(remote, Why::Unreachable(remote)),
        Because::TooBig(size) => What::TooLarge(remote, size),
    })
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
    fn a_flood_of_refusals_is_passed_on_in_part() {
        let peer = |n: u32| SocketAddr::from(([10, 0, 0, (n % 200) as u8], 7));
        let lost = |n| Unreachable { remote: peer(n), because: Because::NoWay };
        let mut gauge = LoadGauge::new(REFUSALS_PER_SECOND, REFUSALS_PER_SECOND);
        let second = Duration::from_secs(1);
        let mut flood = |now| passed_on(&mut gauge, now, (0..100_000).map(lost)).count();
        assert_eq!(flood(second), REFUSALS_PER_SECOND as usize);
        assert_eq!(flood(second), 0);
        assert_eq!(flood(2 * second), REFUSALS_PER_SECOND as usize);
    }

    #[test]
    fn news_concern_the_paths_on_their_interfaces() {
        let on = |interface| LocalAddress { interface, ..LocalAddress::default() };
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
