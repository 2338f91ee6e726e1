//! What is used by the third vehicle: a download, an upload, an interactive connection and a call.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with, sockopt};

use crate::clock;
use crate::error::{Doing, Error};
use crate::namespace::Namespace;

/// The ports of the hub.
const DOWNLOAD: u16 = 5001;
const UPLOAD: u16 = 5002;
const INTERACTIVE: u16 = 5003;
const CALL: u16 = 5004;

/// From one request to the next, and their sizes in bytes.
const REQUEST_EVERY: Duration = Duration::from_millis(100);
const REQUEST: usize = 100;
const ANSWER: usize = 1000;

/// From one packet of the call to the next, and its bytes.
const PACKET_EVERY: Duration = Duration::from_millis(20);
const PACKET: usize = 60;
/// A packet that is answered later is lost.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a thread waits for anything before it looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// For a connection to come about, before another is tried.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Where and how everything goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    /// The hub's address for connections, and for the call.
    pub(super) hub: Ipv4Addr,
    pub(super) call: Ipv4Addr,
    /// Whether connections are MPTCP's.
    pub(super) multipath: bool,
}

/// All of it, until it is stopped or dropped.
pub(super) struct Traffic {
    over: Arc<AtomicBool>,
    received: [Arc<AtomicU64>; 2],
    servers: Vec<JoinHandle<()>>,
    bulk: Vec<JoinHandle<()>>,
    interactive: Option<JoinHandle<Vec<Duration>>>,
    call: Option<JoinHandle<Vec<Option<Duration>>>>,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Payload that arrived, down and up.
    pub(super) bytes: [u64; 2],
    /// How long each request took; of what was not answered, until the end.
    pub(super) answers: Vec<Duration>,
    /// The round trip of each packet of the call.
    pub(super) call: Vec<Option<Duration>>,
}

impl Traffic {
    /// Begins: the servers at `hub`, the rest at `user`.
    pub(super) fn start(user: &Namespace, hub: &Namespace, way: Way) -> Result<Self, Error> {
        let over = Arc::new(AtomicBool::new(false));
        let received = [Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0))];
        let [down, up] = received.clone();
        let mut traffic = Self {
            over: over.clone(),
            received,
            servers: Vec::new(),
            bulk: Vec::new(),
            interactive: None,
            call: None,
        };
        let serve = |port, work: Box<Work>| {
            let listener =
                hub.run(|| listen(port, way.multipath))?.doing(|| format!("listen at port {port}"))?;
            let over = over.clone();
            spawn("served", move || serve(&listener, &over, &*work))
        };
        traffic.servers.push(serve(DOWNLOAD, Box::new(send_on))?);
        traffic.servers.push(serve(UPLOAD, Box::new(move |stream, over| take_in(stream, &up, over)))?);
        traffic.servers.push(serve(INTERACTIVE, Box::new(answer))?);
        let call = (way.call, CALL).into();
        let far = hub
            .run(|| bound(SocketAddr::from((Ipv4Addr::UNSPECIFIED, CALL))))?
            .doing(|| "bind the call's port".into())?;
        let ended = over.clone();
        traffic.servers.push(spawn("served", move || echo(&far, &ended))?);

        let connector = |port| Connector {
            namespace: user.path(),
            address: (way.hub, port).into(),
            multipath: way.multipath,
        };
        let (download, ended) = (connector(DOWNLOAD), over.clone());
        traffic.bulk.push(spawn("download", move || {
            download.again_and_again(&ended, |stream| take_in(stream, &down, &ended));
        })?);
        let (upload, ended) = (connector(UPLOAD), over.clone());
        traffic.bulk.push(spawn("upload", move || {
            upload.again_and_again(&ended, |stream| send_on(stream, &ended));
        })?);
        let (asking, ended) = (connector(INTERACTIVE), over.clone());
        traffic.interactive = Some(spawn("asks", move || ask(&asking, &ended))?);
        let near = user.run(|| bound((Ipv4Addr::UNSPECIFIED, 0).into()))?.doing(|| "bind a port".into())?;
        let ended = over.clone();
        traffic.call = Some(spawn("calls", move || talk(&near, call, &ended))?);
        Ok(traffic)
    }

    /// Payload that has arrived until now, down and up.
    pub(super) fn received(&self) -> [u64; 2] {
        [0, 1].map(|way: usize| self.received[way].load(Relaxed))
    }

    /// Ends it.
    pub(super) fn stop(mut self) -> Outcome {
        let bytes = self.received();
        self.over.store(true, Relaxed);
        let call = self.call.take().and_then(|call| call.join().ok()).unwrap_or_default();
        let answers = self.interactive.take().and_then(|asks| asks.join().ok()).unwrap_or_default();
        Outcome { bytes, answers, call }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        for thread in self.bulk.drain(..).chain(self.servers.drain(..)) {
            let _ = thread.join();
        }
        let _ = self.interactive.take().map(JoinHandle::join);
        let _ = self.call.take().map(JoinHandle::join);
    }
}

pub(super) fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Error> {
    std::thread::Builder::new().name(name.into()).spawn(work).doing(|| "start a thread".into())
}

// ---- Connections ----

fn make(multipath: bool) -> io::Result<std::os::fd::OwnedFd> {
    let protocol = multipath.then_some(ipproto::MPTCP);
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, protocol)?;
    sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
    Ok(socket)
}

fn listen(port: u16, multipath: bool) -> io::Result<TcpListener> {
    let socket = make(multipath)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))?;
    rustix::net::listen(&socket, 8)?;
    let listener = TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Makes connections from a namespace.
struct Connector {
    namespace: std::path::PathBuf,
    address: SocketAddr,
    multipath: bool,
}

impl Connector {
    fn connect(&self) -> io::Result<TcpStream> {
        device::netns::run_in(&self.namespace, || {
            let socket = make(self.multipath)?;
            sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(CONNECT_LIMIT))?;
            rustix::net::connect(&socket, &self.address)?;
            Ok(TcpStream::from(socket))
        })?
    }

    /// Does `work` over a connection, and, where one breaks, over another.
    fn again_and_again(&self, over: &AtomicBool, work: impl Fn(TcpStream)) {
        while !over.load(Relaxed) {
            match self.connect() {
                Ok(stream) => work(stream),
                Err(_) => std::thread::park_timeout(LOOK_EVERY),
            }
        }
    }
}

/// What is done with a connection.
type Work = dyn Fn(TcpStream, &AtomicBool) + Send + Sync;

/// Each connection has a thread of its own: one that a client has given up may be noticed late.
fn serve(listener: &TcpListener, over: &AtomicBool, work: &Work) {
    std::thread::scope(|scope| {
        while !over.load(Relaxed) {
            match listener.accept() {
                Ok((stream, _)) if stream.set_nonblocking(false).is_ok() => {
                    scope.spawn(move || work(stream, over));
                }
                _ => std::thread::park_timeout(Duration::from_millis(20)),
            }
        }
    });
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(LOOK_EVERY))?;
    stream.set_write_timeout(Some(LOOK_EVERY))
}

fn is_wait(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Sends without end.
fn send_on(mut stream: TcpStream, over: &AtomicBool) {
    let content = [0; 1 << 14];
    let _ = prepare(&stream);
    while !over.load(Relaxed) {
        match stream.write(&content) {
            Ok(0) => return,
            Err(error) if !is_wait(&error) => return,
            _ => {}
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
}

/// Counts what comes.
fn take_in(mut stream: TcpStream, count: &AtomicU64, over: &AtomicBool) {
    let mut buffer = vec![0; 1 << 16];
    let _ = prepare(&stream);
    while !over.load(Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => drop(count.fetch_add(length as u64, Relaxed)),
            Err(error) if is_wait(&error) => {}
            Err(_) => return,
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
}

/// Answers requests.
fn answer(mut stream: TcpStream, over: &AtomicBool) {
    let (mut buffer, mut asked) = ([0; 4096], 0);
    let _ = prepare(&stream).and_then(|()| stream.set_nodelay(true));
    while !over.load(Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => asked += length,
            Err(error) if is_wait(&error) => continue,
            Err(_) => return,
        }
        while asked >= REQUEST {
            asked -= REQUEST;
            if write_whole(&mut stream, &[0; ANSWER], over).is_err() {
                return;
            }
        }
    }
}

fn write_whole(stream: &mut TcpStream, mut content: &[u8], over: &AtomicBool) -> io::Result<()> {
    while !content.is_empty() && !over.load(Relaxed) {
        match stream.write(content) {
            Ok(length) => content = &content[length..],
            Err(error) if is_wait(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Requests at a steady rate, over one connection as long as it holds; how long each took.
fn ask(connector: &Connector, over: &AtomicBool) -> Vec<Duration> {
    let (mut next, mut waiting, mut took) = (clock::now(), VecDeque::new(), Vec::new());
    while !over.load(Relaxed) {
        match connector.connect() {
            Ok(stream) => drop(ask_over(stream, over, &mut next, &mut waiting, &mut took)),
            Err(_) => std::thread::park_timeout(LOOK_EVERY),
        }
    }
    let end = clock::now();
    // What would have been asked meanwhile, had there been a connection, waits as well.
    while next <= end {
        waiting.push_back(next);
        next += REQUEST_EVERY;
    }
    took.extend(waiting.into_iter().map(|asked| end - asked));
    took
}

fn ask_over(
    mut stream: TcpStream,
    over: &AtomicBool,
    next: &mut Instant,
    waiting: &mut VecDeque<Instant>,
    took: &mut Vec<Duration>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(LOOK_EVERY))?;
    let (mut buffer, mut come) = ([0; 1 << 14], 0);
    for _ in 0..waiting.len() {
        write_whole(&mut stream, &[0; REQUEST], over)?;
    }
    while !over.load(Relaxed) {
        let now = clock::now();
        if now >= *next {
            waiting.push_back(*next);
            *next += REQUEST_EVERY;
            write_whole(&mut stream, &[0; REQUEST], over)?;
            continue;
        }
        stream.set_read_timeout(Some((*next - now).max(Duration::from_millis(1))))?;
        match stream.read(&mut buffer) {
            Err(error) if is_wait(&error) => continue,
            // The far end closes when it is over.
            Ok(0) | Err(_) if over.load(Relaxed) => return Ok(()),
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => come += length,
            Err(error) => return Err(error),
        }
        while come >= ANSWER {
            come -= ANSWER;
            let now = clock::now();
            took.extend(waiting.pop_front().map(|asked| now - asked));
        }
    }
    Ok(())
}

// ---- The call ----

fn bound(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    socket.set_read_timeout(Some(LOOK_EVERY))?;
    Ok(socket)
}

fn echo(far: &UdpSocket, over: &AtomicBool) {
    let mut buffer = [0; PACKET];
    while !over.load(Relaxed) {
        if let Ok((length, from)) = far.recv_from(&mut buffer) {
            let _ = far.send_to(&buffer[..length], from);
        }
    }
}

fn talk(near: &UdpSocket, to: SocketAddr, over: &AtomicBool) -> Vec<Option<Duration>> {
    let mut sent: Vec<(Instant, Option<Duration>)> = Vec::new();
    let mut next = clock::now();
    let mut buffer = [0; PACKET];
    loop {
        let now = clock::now();
        let ended = over.load(Relaxed);
        if ended && sent.last().is_none_or(|(last, _)| now >= *last + PATIENCE) {
            return sent.into_iter().map(|(_, took)| took).collect();
        }
        if !ended && now >= next {
            let mut packet = [0; PACKET];
            packet[..8].copy_from_slice(&(sent.len() as u64).to_be_bytes());
            // What the kernel refuses is lost.
            let _ = near.send_to(&packet, to);
            sent.push((now, None));
            next += PACKET_EVERY;
            continue;
        }
        let wait = if ended { PACKET_EVERY } else { next - now };
        let _ = near.set_read_timeout(Some(wait.max(Duration::from_millis(1))));
        if near.recv(&mut buffer).is_ok_and(|length| length == PACKET) {
            let number = buffer.first_chunk().map_or(0, |number| u64::from_be_bytes(*number) as usize);
            if let Some((at, took)) = sent.get_mut(number) {
                let round_trip = clock::now() - *at;
                *took = took.or((round_trip <= PATIENCE).then_some(round_trip));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_over_a_connection_is_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let over = AtomicBool::new(false);
        let (mut next, mut waiting, mut took) = (clock::now(), VecDeque::from([clock::now()]), Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| answer(listener.accept().unwrap().0, &over));
            scope.spawn(|| {
                clock::poll_until(Duration::from_millis(250), || None::<()>);
                over.store(true, Relaxed);
            });
            ask_over(TcpStream::connect(address).unwrap(), &over, &mut next, &mut waiting, &mut took)
                .unwrap();
        });
        assert!(took.len() >= 2 && waiting.len() <= 1, "{took:?}, {waiting:?}");
    }
}
