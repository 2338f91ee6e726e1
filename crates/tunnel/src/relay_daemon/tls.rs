//! The relay's end: a thread that takes TCP connections, and for each has a socket on the loopback interface that stands for the
//! client.
//!
//! Anybody may connect. A connection counts for nothing until the relay has sent something to it, which it does to those only whom
//! it allows: until then it has little time, few of a host's and in all are kept, and where there is no room a new one takes the
//! oldest one's place.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use device::outgoing::loopback;
use device::poller::{Interest, Poller, boottime};
use device::worker::{Inbox, NoState};
use rustls::{ServerConfig, ServerConnection};

use crate::handshake::rate_limit::{self, RateLimit};
use crate::relay::IDLE;
use crate::tls::pump::{Pump, stand_in};

const WAKER: u64 = 0;
const LISTENER: u64 = 1;
/// Connections have tokens from here on, two each.
const FIRST: u64 = 2;
/// Each has two descriptors, and a process 1024 where nobody has raised that.
const MAX: usize = 384;
/// Of those that the relay has not answered yet.
const MAX_STRANGERS: usize = 128;
/// Of one host's, an IPv4 address or an IPv6 network of 64 bits: a provider may have many customers behind one.
const MAX_OF_HOST: usize = 64;
/// A host's connections: so many at once, and then one each interval.
const BURST: u32 = 20;
const INTERVAL: Duration = Duration::from_millis(500);
/// Hosts whose connections are counted at a time.
const HOSTS: usize = 4096;
/// What the relay has not answered within this time of its beginning ends: TLS's handshake and the relay's.
const STRANGER: Duration = Duration::from_secs(15);
/// How often it is looked whose time is over.
const LOOK: Duration = Duration::from_secs(1);
/// Connections taken in a turn.
const ACCEPTED: usize = 16;

/// By which address the relay knows each client that comes by TLS, and where that really is.
#[derive(Clone, Debug, Default)]
pub struct Clients(Arc<Mutex<BTreeMap<SocketAddr, SocketAddr>>>);

impl Clients {
    /// Where the client is that the relay knows at `address`, if it comes by TLS.
    pub fn really(&self, address: SocketAddr) -> Option<SocketAddr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&address).copied()
    }

    fn set(&self, address: SocketAddr, really: Option<SocketAddr>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match really {
            Some(really) => known.insert(address, really),
            None => known.remove(&address),
        };
    }
}

/// What the thread owns.
pub struct Server {
    listener: TcpListener,
    /// The relay's socket.
    relay: SocketAddr,
    clients: Clients,
    inbox: Inbox<()>,
    poller: Poller,
    config: Arc<ServerConfig>,
    all: BTreeMap<u64, Connection>,
    /// So many at a time.
    most: usize,
    next: u64,
    hosts: RateLimit,
    /// Spreads clients over loopback addresses, in a way that none of them knows.
    spread: RandomState,
    /// The listener is heard: there is a descriptor for who comes.
    listening: bool,
    /// The last could not be taken, and the log says so.
    failed: bool,
}

struct Connection {
    pump: Pump,
    /// The client's, and the one by which the relay knows it.
    really: SocketAddr,
    stand_in: SocketAddr,
    since: Duration,
    /// When the relay sent something last, and how much it had then.
    answered: Option<Duration>,
    count: u64,
}

impl Server {
    /// Clients come to `listener`; the relay's socket is at `relay`.
    pub fn new(
        listener: TcpListener,
        relay: SocketAddr,
        clients: Clients,
        inbox: Inbox<()>,
    ) -> io::Result<Self> {
        let ip = relay.ip();
        let relay = if ip.is_unspecified() { SocketAddr::new(loopback(ip), relay.port()) } else { relay };
        listener.set_nonblocking(true)?;
        let poller = Poller::new()?;
        poller.add(&inbox.waker, WAKER, Interest::Read)?;
        poller.add(&listener, LISTENER, Interest::Read)?;
        Ok(Self {
            listener,
            relay,
            clients,
            inbox,
            poller,
            config: crate::tls::server_config()?,
            all: BTreeMap::new(),
            most: MAX,
            next: FIRST,
            hosts: RateLimit::new(INTERVAL, BURST, HOSTS),
            spread: RandomState::new(),
            listening: true,
            failed: false,
        })
    }

    /// Where it listens.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Runs until it is told to stop.
    pub fn run(mut self) -> io::Result<()> {
        let mut look = Duration::ZERO;
        loop {
            let idle = self.all.is_empty() && self.listening;
            let timeout = (!idle).then(|| look.saturating_sub(boottime()));
            let mut ready: Vec<_> = self.poller.wait(timeout)?.map(|ready| ready.token).collect();
            let now = boottime();
            if ready.contains(&WAKER) && self.inbox.answer(&mut NoState) {
                return Ok(());
            }
            if ready.contains(&LISTENER) {
                self.accept(now);
            }
            ready.retain(|token| *token >= FIRST);
            ready.dedup_by_key(|token| *token & !1);
            ready.into_iter().for_each(|token| self.turn(now, token & !1));
            if now >= look {
                look = now + LOOK;
                self.look(now);
            }
        }
    }

    fn turn(&mut self, now: Duration, token: u64) {
        let Some(connection) = self.all.get_mut(&token) else { return };
        let result = connection.pump.turn(&self.poller);
        if connection.count != connection.pump.answered {
            (connection.count, connection.answered) = (connection.pump.answered, Some(now));
        }
        if let Err(error) = result {
            let really = connection.really;
            tracing::debug!("the connection of {really} has ended: {error}");
            self.end(token);
        }
    }

    /// Ends what has had its time, and listens again.
    fn look(&mut self, now: Duration) {
        let over = |connection: &Connection| match connection.answered {
            Some(last) => now >= last + IDLE,
            None => now >= connection.since + STRANGER,
        };
        let over: Vec<_> = self.all.iter().filter(|(_, one)| over(one)).map(|(token, _)| *token).collect();
        over.into_iter().for_each(|token| self.end(token));
        if !self.listening {
            self.listening = self.poller.add(&self.listener, LISTENER, Interest::Read).is_ok();
        }
    }

    fn end(&mut self, token: u64) {
        if let Some(mut connection) = self.all.remove(&token) {
            connection.pump.close(&self.poller);
            self.clients.set(connection.stand_in, None);
        }
    }

    fn accept(&mut self, now: Duration) {
        for _ in 0..ACCEPTED {
            match self.listener.accept() {
                Ok((stream, from)) => {
                    self.failed = false;
                    if let Err(error) = self.take(now, stream, from) {
                        tracing::debug!("the connection of {from} is not taken: {error}");
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Who came is gone already.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    if !std::mem::replace(&mut self.failed, true) {
                        tracing::warn!("the relay takes no connections by TLS for a while: {error}");
                    }
                    self.listening = self.poller.remove(&self.listener).is_err();
                    return;
                }
            }
        }
    }

    fn take(&mut self, now: Duration, stream: TcpStream, from: SocketAddr) -> io::Result<()> {
        let really = SocketAddr::new(from.ip().to_canonical(), from.port());
        if !self.hosts.take(now, really.ip()) {
            return Err(io::Error::other("too many of that host's"));
        }
        let host = rate_limit::name(really.ip());
        let strangers = self.all.values().filter(|one| one.answered.is_none()).count();
        if self.all.values().filter(|one| rate_limit::name(one.really.ip()) == host).count() >= MAX_OF_HOST {
            return Err(io::Error::other("too many of that host's"));
        }
        if strangers >= MAX_STRANGERS || self.all.len() >= self.most {
            // The map's order is that of their coming: the oldest stranger goes, or else who has not been answered for longest.
            let oldest = self.all.iter().min_by_key(|(_, one)| one.answered).map(|(token, _)| *token);
            oldest.into_iter().for_each(|token| self.end(token));
        }
        stream.set_nonblocking(true)?;
        let own = SocketAddr::new(self.stand_in(really.ip()), 0);
        let udp = stand_in(own, self.relay)?;
        let stand_in = udp.local_addr()?;
        let tls = ServerConnection::new(self.config.clone()).map_err(io::Error::other)?;
        let token = self.next;
        let pump = Pump::new(&self.poller, token, stream, tls.into(), Arc::new(udp))?;
        self.next += 2;
        self.clients.set(stand_in, Some(really));
        let connection = Connection { pump, really, stand_in, since: now, answered: None, count: 0 };
        self.all.insert(token, connection);
        Ok(())
    }

    /// The relay's limits are by host, so each client has an address of its own, of 127.64.0.0/10, as far as those go. IPv6 has
    /// one loopback address only.
    fn stand_in(&self, client: IpAddr) -> IpAddr {
        if self.relay.is_ipv6() {
            return loopback(self.relay.ip());
        }
        let mut hasher = self.spread.build_hasher();
        hasher.write_u64(rate_limit::name(client));
        let low = hasher.finish() as u32 & 0x003f_ffff;
        // Not the network's first address.
        Ipv4Addr::from(0x7f40_0000 | low.max(1)).into()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::UdpSocket;

    use device::{Outgoing, Waker};

    use super::*;
    use crate::daemon::tls::{Client, Target};
    use crate::tls::frames::MAX;
    use device::worker::{Worker, watch};

    /// Nothing here takes so long.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn here(port: u16) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, port).into()
    }

    fn udp() -> UdpSocket {
        let socket = UdpSocket::bind(here(0)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    /// A relay's end on a port of the loopback interface, in front of `relay`.
    fn serve(relay: &UdpSocket) -> (Worker<()>, SocketAddr, Clients) {
        serve_at(here(0), MAX, relay)
    }

    fn serve_at(at: SocketAddr, most: usize, relay: &UdpSocket) -> (Worker<()>, SocketAddr, Clients) {
        let clients = Clients::default();
        let (watch, inbox) = watch().unwrap();
        let relay = relay.local_addr().unwrap();
        let listener = device::tcp::listen(at).unwrap();
        let mut server = Server::new(listener, relay, clients.clone(), inbox).unwrap();
        server.most = most;
        let address = server.local_address().unwrap();
        let worker = Worker::start("relay-tls", watch, |why| panic!("{why}"), move || server.run()).unwrap();
        (worker, address, clients)
    }

    fn news(client: &Client, told: &Waker) -> Result<SocketAddr, String> {
        let mut poller = Poller::new().unwrap();
        poller.add(told, 0, Interest::Read).unwrap();
        loop {
            if let Some(news) = client.news().next() {
                return news.state;
            }
            assert!(poller.wait(Some(PATIENCE)).unwrap().next().is_some(), "no news");
            told.reset();
        }
    }

    #[test]
    fn datagrams_go_both_ways_and_a_lost_connection_is_made_again() {
        let (tunnel, relay) = (udp(), udp());
        // At an address of its own, so that its port stays free while the relay is away.
        let own = |port| SocketAddr::from(([127, 0, 9, 56], port));
        let (server, to, clients) = serve_at(own(0), MAX, &relay);
        let told = Waker::new().unwrap();
        let client = Client::start(tunnel.local_addr().unwrap(), told.clone()).unwrap();
        let target = Target { to, out: Outgoing::default(), leaves: None, name: Some("relay.test".into()) };
        client.lead(7, target.clone());
        let stands_for_relay = news(&client, &told).unwrap();
        let mut buffer = [0; 2 * MAX];
        let sizes = [28, 29, 100, 1400, MAX];
        for size in sizes {
            tunnel.send_to(&vec![size as u8; size], stands_for_relay).unwrap();
        }
        // What is too long, and what is no message, is dropped, and what follows is not.
        tunnel.send_to(&[1; MAX + 1], stands_for_relay).unwrap();
        tunnel.send_to(&[1; 27], stands_for_relay).unwrap();
        tunnel.send_to(&[2; 28], stands_for_relay).unwrap();
        let mut from = here(0);
        for size in sizes.into_iter().chain([28]) {
            let (length, sender) = relay.recv_from(&mut buffer).unwrap();
            assert_eq!(length, size);
            from = sender;
        }
        assert_eq!(buffer[0], 2);
        assert!(from.ip() != here(0).ip() && from.ip().is_loopback(), "{from}");
        let really = clients.really(from).unwrap();
        assert_eq!(really.ip(), here(0).ip());
        for size in sizes {
            relay.send_to(&vec![size as u8; size], from).unwrap();
            let (length, sender) = tunnel.recv_from(&mut buffer).unwrap();
            assert_eq!((length, sender), (size, stands_for_relay));
        }
        // The relay ends, and another one takes its place.
        drop(server);
        assert!(news(&client, &told).is_err());
        let (watch, inbox) = watch().unwrap();
        let relay_at = relay.local_addr().unwrap();
        let listener = device::tcp::listen(to).unwrap();
        let server = Server::new(listener, relay_at, Clients::default(), inbox).unwrap();
        let _server =
            Worker::<()>::start("relay-tls", watch, |why| panic!("{why}"), move || server.run()).unwrap();
        let found = std::iter::repeat_with(|| news(&client, &told)).find_map(Result::ok).unwrap();
        assert_eq!(found, stands_for_relay, "the tunnel finds it where it was");
        tunnel.send_to(&[9; 28], stands_for_relay).unwrap();
        assert_eq!(relay.recv_from(&mut buffer).unwrap().0, 28);
        // Elsewhere nobody listens.
        client.lead(7, Target { to: own(1), ..target });
        assert!(news(&client, &told).is_err_and(|why| why.contains("refused")));
        client.forget(7);
    }

    #[test]
    fn where_all_are_clients_the_one_that_was_answered_longest_ago_goes() {
        let (tunnel, relay) = (udp(), udp());
        let (_server, to, clients) = serve_at(here(0), 2, &relay);
        let told = [(); 3].map(|()| Waker::new().unwrap());
        let ends =
            told.each_ref().map(|told| Client::start(tunnel.local_addr().unwrap(), told.clone()).unwrap());
        let comes = |n: usize| {
            ends[n].lead(1, Target { to, out: Outgoing::default(), leaves: None, name: None });
            let stands_for_relay = news(&ends[n], &told[n]).unwrap();
            tunnel.send_to(&[1; 28], stands_for_relay).unwrap();
            let from = relay.recv_from(&mut [0; 8]).expect("what it sends arrives").1;
            (from, stands_for_relay)
        };
        let is_answered = |(from, stands_for_relay)| {
            relay.send_to(&[0; 28], from).unwrap();
            assert_eq!(tunnel.recv_from(&mut [0; 8]).unwrap().1, stands_for_relay);
        };
        let (first, second) = (comes(0), comes(1));
        [first, second, first].into_iter().for_each(is_answered);
        comes(2);
        let [first, second] = [first, second].map(|(from, _)| clients.really(from));
        assert!(first.is_some() && second.is_none());
    }

    #[test]
    fn strangers_get_nothing_and_are_few() {
        let (tunnel, relay) = (udp(), udp());
        let (_server, to, _) = serve(&relay);
        // Not TLS: it ends at once.
        let mut garbage = TcpStream::connect(to).unwrap();
        garbage.set_read_timeout(Some(PATIENCE)).unwrap();
        garbage.write_all(&[0xff; 4096]).unwrap();
        let mut all = Vec::new();
        // An alert of TLS is all that may come.
        match garbage.read_to_end(&mut all) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
        assert!(all.len() < 64, "{all:?}");
        // One host's are few, and the others end at once.
        let idle: Vec<_> = (0..100).map(|_| TcpStream::connect(to).unwrap()).collect();
        let ended = |mut stream: &TcpStream| {
            stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            stream.read(&mut [0]).map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |n| n == 0)
        };
        let last = idle.last().unwrap();
        last.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(matches!((&*last).read(&mut [0]), Ok(0)), "the last one is one too many");
        let left = idle.iter().filter(|stream| !ended(stream)).count();
        assert!((10..=25).contains(&left), "{left}");
        // Another host gets in beside them.
        let told = Waker::new().unwrap();
        let client = Client::start(tunnel.local_addr().unwrap(), told.clone()).unwrap();
        let out = Outgoing { source: Some([127, 0, 0, 2].into()), ..Outgoing::default() };
        client.lead(1, Target { to, out, leaves: None, name: None });
        tunnel.send_to(&[5; 28], news(&client, &told).unwrap()).unwrap();
        assert_eq!(relay.recv_from(&mut [0; 64]).unwrap().0, 28);
    }
}
