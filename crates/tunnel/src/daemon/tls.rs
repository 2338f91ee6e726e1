//! The client's end: a thread with a TCP connection for each path that goes by TLS, and a socket on the loopback interface that
//! stands for the relay.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use std::time::Duration;

use device::net::WayOut;
use device::outgoing::loopback;
use device::poller::{Interest, Poller, boottime};
use device::{Outgoing, Waker};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::tls::pump::{Pump, stand_in};

const WAKER: u64 = 0;
/// A connection is made, TLS and all, within this time.
const PATIENCE: Duration = Duration::from_secs(10);
/// After one that failed, or was lost, the next begins after this, and after twice as long each time, up to the longest.
const RETRY: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// Where a relay is, and how to get there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// By TCP.
    pub to: SocketAddr,
    /// How this host is left.
    pub out: Outgoing,
    /// How the kernel leaves it then: a connection keeps its source address, and does not outlive it.
    pub leaves: Option<WayOut>,
    /// What it is called, if it is given by name: whoever is on the way may want to read one.
    pub name: Option<String>,
}

/// What became of a path's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// The path's number.
    pub path: u64,
    /// It is made, and where the relay is found, or why it is not.
    pub state: Result<SocketAddr, String>,
}

enum Order {
    /// The path of this number has this target from now on.
    Lead(u64, Target),
    /// It is no more.
    Forget(u64),
}

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub struct Client {
    orders: Option<Sender<Order>>,
    waker: Waker,
    news: Receiver<News>,
}

impl Client {
    /// Starts it, in the calling thread's network namespace. The tunnel's own socket is at `tunnel`; `told` is woken by news.
    ///
    /// # Errors
    /// Descriptors or memory have run out.
    pub fn start(tunnel: SocketAddr, told: Waker) -> io::Result<Self> {
        let ip = tunnel.ip();
        let tunnel = if ip.is_unspecified() { SocketAddr::new(loopback(ip), tunnel.port()) } else { tunnel };
        let ((orders, to_do), (tell, news)) = (channel(), channel());
        let (waker, poller) = (Waker::new()?, Poller::new()?);
        poller.add(&waker, WAKER, Interest::Read)?;
        let config = crate::tls::client_config()?;
        let woken = waker.clone();
        let work =
            Work { tunnel, config, orders: to_do, waker: woken, told: (tell, told), all: BTreeMap::new() };
        Builder::new().name("tls".into()).spawn(move || work.run(poller))?;
        Ok(Self { orders: Some(orders), waker, news })
    }

    /// The path of this number leads there; its number is new, or `target` another one.
    pub fn lead(&self, path: u64, target: Target) {
        self.order(Order::Lead(path, target));
    }

    /// The path of this number is no more.
    pub fn forget(&self, path: u64) {
        self.order(Order::Forget(path));
    }

    fn order(&self, order: Order) {
        // Refused only where the thread has ended.
        let _ = self.orders.as_ref().map(|orders| orders.send(order));
        self.waker.wake();
    }

    /// What is new since the last time.
    pub fn news(&self) -> impl Iterator<Item = News> {
        self.news.try_iter()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.orders = None;
        self.waker.wake();
    }
}

struct Work {
    tunnel: SocketAddr,
    config: Arc<ClientConfig>,
    orders: Receiver<Order>,
    waker: Waker,
    told: (Sender<News>, Waker),
    all: BTreeMap<u64, Path>,
}

struct Path {
    target: Target,
    /// Once it is needed. Stays where it is: the tunnel knows it.
    stands_for_relay: Option<Arc<UdpSocket>>,
    state: State,
    /// How long to wait after the next failure.
    wait: Duration,
}

enum State {
    /// Until then.
    Waiting(Duration),
    /// By TCP; given up then.
    Connecting(TcpStream, Duration),
    /// By TLS; given up then.
    Shaking(Box<Pump>, Duration),
    Made(Box<Pump>),
}

impl Work {
    fn run(mut self, mut poller: Poller) {
        loop {
            let now = boottime();
            self.waker.reset();
            loop {
                match self.orders.try_recv() {
                    Ok(order) => self.take(&poller, now, order),
                    Err(std::sync::mpsc::TryRecvError::Empty) => break,
                    Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
                }
            }
            let due = self.all.iter().filter(|(_, path)| path.due().is_some_and(|due| due <= now));
            let due: Vec<_> = due.map(|(number, _)| *number).collect();
            due.into_iter().for_each(|path| self.step(&poller, now, path));
            let timeout = self.all.values().filter_map(Path::due).min().map(|due| due.saturating_sub(now));
            let mut ready: Vec<_> = match poller.wait(timeout) {
                Ok(ready) => ready.map(|ready| ready.token).filter(|token| *token != WAKER).collect(),
                Err(error) => {
                    tracing::warn!("no path goes by TLS any more: {error}");
                    return;
                }
            };
            ready.dedup_by_key(|token| *token / 2);
            let now = boottime();
            ready.into_iter().for_each(|token| self.step(&poller, now, token / 2));
        }
    }

    fn take(&mut self, poller: &Poller, now: Duration, order: Order) {
        match order {
            Order::Lead(path, target) => {
                let old = self.all.remove(&path);
                let stands_for_relay = old.and_then(|mut old| {
                    old.state.close(poller);
                    old.stands_for_relay
                });
                let state = State::Waiting(now);
                self.all.insert(path, Path { target, stands_for_relay, state, wait: RETRY });
                self.step(poller, now, path);
            }
            Order::Forget(path) => {
                self.all.remove(&path).into_iter().for_each(|mut path| path.state.close(poller));
            }
        }
    }

    /// Goes on with what a path is about.
    fn step(&mut self, poller: &Poller, now: Duration, number: u64) {
        let Some(path) = self.all.get_mut(&number) else { return };
        let was_made = matches!(path.state, State::Made(_));
        match path.step(poller, now, number, self.tunnel, &self.config) {
            Ok(()) if matches!(path.state, State::Made(_)) && !was_made => {
                let at = path.stand_in(self.tunnel).and_then(|socket| socket.local_addr());
                self.tell(number, at.map_err(|error| error.to_string()));
            }
            Ok(()) => {}
            Err(error) => {
                path.state.close(poller);
                path.state = State::Waiting(now + path.wait);
                path.wait = (2 * path.wait).min(LONGEST);
                self.tell(number, Err(error.to_string()));
            }
        }
    }

    fn tell(&self, path: u64, state: Result<SocketAddr, String>) {
        // Nobody listens any more when the tunnel has ended.
        let _ = self.told.0.send(News { path, state });
        self.told.1.wake();
    }
}

impl State {
    /// Before it is dropped.
    fn close(&mut self, poller: &Poller) {
        if let State::Shaking(pump, _) | State::Made(pump) = self {
            pump.close(poller);
        }
    }
}

impl Path {
    fn due(&self) -> Option<Duration> {
        match &self.state {
            State::Waiting(until) | State::Connecting(_, until) | State::Shaking(_, until) => Some(*until),
            State::Made(_) => None,
        }
    }

    /// The socket that stands for the relay.
    fn stand_in(&mut self, tunnel: SocketAddr) -> io::Result<Arc<UdpSocket>> {
        if let Some(socket) = &self.stands_for_relay {
            return Ok(socket.clone());
        }
        let own = SocketAddr::new(loopback(tunnel.ip()), 0);
        let explain = |error| io::Error::other(format!("no socket on the loopback interface: {error}"));
        let socket = Arc::new(stand_in(own, tunnel).map_err(explain)?);
        Ok(self.stands_for_relay.insert(socket).clone())
    }

    fn step(
        &mut self,
        poller: &Poller,
        now: Duration,
        number: u64,
        tunnel: SocketAddr,
        config: &Arc<ClientConfig>,
    ) -> io::Result<()> {
        let late = |until: Duration| match now >= until {
            true => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")),
            false => Ok(()),
        };
        let token = 2 * number;
        match &mut self.state {
            State::Waiting(until) if now < *until => Ok(()),
            State::Waiting(_) => {
                let stream = self.target.out.tcp(self.target.to)?;
                poller.add(&stream, token, Interest::Write)?;
                self.state = State::Connecting(stream, now + PATIENCE);
                Ok(())
            }
            State::Connecting(stream, until) => {
                late(*until)?;
                if let Some(error) = stream.take_error()? {
                    return Err(error);
                }
                if stream.peer_addr().is_err() {
                    return Ok(());
                }
                let until = *until;
                let State::Connecting(stream, _) = std::mem::replace(&mut self.state, State::Waiting(now))
                else {
                    return Ok(());
                };
                poller.remove(&stream)?;
                let name = self.target.name.as_deref();
                let name = name.and_then(|name| ServerName::try_from(name.to_owned()).ok());
                let name = name.unwrap_or_else(|| self.target.to.ip().into());
                let tls = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
                let pump = Pump::new(poller, token, stream, tls.into(), self.stand_in(tunnel)?)?;
                self.state = State::Shaking(Box::new(pump), until);
                self.step(poller, now, number, tunnel, config)
            }
            State::Shaking(pump, until) => {
                late(*until)?;
                pump.turn(poller)?;
                if pump.is_made()
                    && let State::Shaking(pump, _) = std::mem::replace(&mut self.state, State::Waiting(now))
                {
                    self.state = State::Made(pump);
                }
                Ok(())
            }
            State::Made(pump) => {
                pump.turn(poller)?;
                if pump.handed_on > 0 {
                    self.wait = RETRY;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use rustls::ServerConnection;

    use super::*;

    #[test]
    fn waits_are_short_again_once_the_relay_has_said_something() {
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let [tunnel, relay] = [(); 2].map(|()| UdpSocket::bind(here).unwrap());
        [&tunnel, &relay].into_iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
        let (at, listener) = (tunnel.local_addr().unwrap(), TcpListener::bind(here).unwrap());
        let (mut poller, config) = (Poller::new().unwrap(), crate::tls::client_config().unwrap());
        let to = listener.local_addr().unwrap();
        let target = Target { to, out: Outgoing::default(), leaves: None, name: None };
        let state = State::Waiting(Duration::ZERO);
        let mut path = Path { target, stands_for_relay: None, state, wait: LONGEST };
        path.step(&poller, boottime(), 1, at, &config).unwrap();
        let stream = listener.accept().unwrap().0;
        stream.set_nonblocking(true).unwrap();
        let tls = ServerConnection::new(crate::tls::server_config().unwrap()).unwrap();
        let udp = Arc::new(stand_in(here, relay.local_addr().unwrap()).unwrap());
        let mut far = Pump::new(&poller, 4, stream, tls.into(), udp).unwrap();
        poller.add(&tunnel, 8, Interest::Read).unwrap();
        poller.add(&relay, 9, Interest::Read).unwrap();
        // Until something comes to `socket`: who sent it.
        let mut comes = |path: &mut Path, socket: &UdpSocket| loop {
            path.step(&poller, boottime(), 1, at, &config).unwrap();
            far.turn(&poller).unwrap();
            match socket.recv_from(&mut [0; 8]) {
                Ok((_, from)) => break from,
                Err(_) => assert!(poller.wait(Some(PATIENCE)).unwrap().next().is_some(), "nothing comes"),
            }
        };
        let stands_for_relay = path.stand_in(at).unwrap().local_addr().unwrap();
        tunnel.send_to(&[1; 28], stands_for_relay).unwrap();
        comes(&mut path, &relay);
        tunnel.send_to(&[1; 28], stands_for_relay).unwrap();
        let from = comes(&mut path, &relay);
        assert_eq!(path.wait, LONGEST, "the relay has said nothing");
        relay.send_to(&[2; 28], from).unwrap();
        comes(&mut path, &tunnel);
        assert_eq!(path.wait, RETRY);
    }
}
