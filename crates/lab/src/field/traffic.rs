//! What is used by the third vehicle: a download, an upload, an interactive connection and a call;
//! and a file over SCTP from the front vehicle, by both its uplinks.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::net::{SocketFlags, sockopt};

use super::convoy::{Convoy, FRONT, hub_address};
use crate::background::Background;
use crate::bicast::transfer::{self, Program, Running};
use crate::call::{self, Call};
use crate::clock;
use crate::error::{Doing, Result};
use crate::flows::pipes::{listen, make_with};
use crate::namespace::Namespace;

/// The ports of the hub.
const DOWNLOAD: u16 = 5001;
const UPLOAD: u16 = 5002;
const INTERACTIVE: u16 = 5003;

/// Requests, and their sizes in bytes.
pub(super) const REQUESTS_A_SECOND: usize = 10;
const REQUEST_EVERY: Duration = Duration::from_millis(1000 / REQUESTS_A_SECOND as u64);
const REQUEST: usize = 100;
const ANSWER: usize = 1000;

/// How long a thread waits for anything before it looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// For a connection to come about, before another is tried.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Where and how everything goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    /// The hub's address.
    pub(super) hub: Ipv4Addr,
    /// Whether connections are MPTCP's.
    pub(super) multipath: bool,
}

/// All of it, until it is stopped or dropped.
pub(super) struct Traffic {
    received: [Arc<AtomicU64>; 2],
    interactive: Background<Vec<Duration>>,
    call: Call,
    /// Download and upload, then the servers.
    _others: Vec<Background<()>>,
}

#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Payload that arrived, down and up.
    pub(super) bytes: [u64; 2],
    /// How long each request took; of what was not answered, until the end.
    pub(super) answers: Vec<Duration>,
    pub(super) call: call::Outcome,
}

impl Traffic {
    /// Begins: the servers at `hub`, the rest at `user`.
    pub(super) fn start(user: &Namespace, hub: &Namespace, way: Way) -> Result<Self> {
        let received = [Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0))];
        let [down, up] = received.clone();
        let serve = |port, work: Box<Work>| {
            let listener = hub.run(|| listen((Ipv4Addr::UNSPECIFIED, port).into(), None, way.multipath))?;
            let listener = TcpListener::from(listener.doing(|| format!("listen at port {port}"))?);
            Background::start("served", move |over| serve(&listener, over, &*work))
        };
        let servers = [
            serve(DOWNLOAD, Box::new(send_on))?,
            serve(UPLOAD, Box::new(move |stream, over| take_in(stream, &up, over)))?,
            serve(INTERACTIVE, Box::new(answer))?,
        ];
        let connector = |port| {
            let namespace = user.path();
            move || connect(&namespace, (way.hub, port).into(), way.multipath)
        };
        let (download, upload, asking) = (connector(DOWNLOAD), connector(UPLOAD), connector(INTERACTIVE));
        let download = Background::start("download", move |over| {
            again_and_again(&download, over, |stream| take_in(stream, &down, over));
        })?;
        let upload = Background::start("upload", move |over| {
            again_and_again(&upload, over, |stream| send_on(stream, over));
        })?;
        let interactive = Background::start("asks", move |over| ask(&asking, over))?;
        let call = Call::start(user, hub, None, way.hub.into())?;
        Ok(Self {
            received,
            interactive,
            call,
            _others: [download, upload].into_iter().chain(servers).collect(),
        })
    }

    /// Payload that has arrived until now, down and up.
    pub(super) fn received(&self) -> [u64; 2] {
        self.received.each_ref().map(|bytes| bytes.load(Relaxed))
    }

    pub(super) fn stop(self) -> Result<Outcome> {
        let bytes = self.received();
        let answers = self.interactive.stop().unwrap_or_default();
        Ok(Outcome { bytes, answers, call: self.call.stop()? })
    }
}

/// Connects from a namespace.
fn connect(namespace: &Path, address: SocketAddr, multipath: bool) -> io::Result<TcpStream> {
    device::netns::run_in(namespace, || {
        let socket = make_with(SocketFlags::CLOEXEC, multipath)?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(CONNECT_LIMIT))?;
        rustix::net::connect(&socket, &address)?;
        prepared(socket.into())
    })?
}

/// Does `work` over a connection, and, where one breaks, over another.
fn again_and_again(
    connect: impl Fn() -> io::Result<TcpStream>,
    over: &AtomicBool,
    mut work: impl FnMut(TcpStream),
) {
    while !over.load(Relaxed) {
        match connect() {
            Ok(stream) => work(stream),
            Err(_) => std::thread::park_timeout(LOOK_EVERY),
        }
    }
}

type Work = dyn Fn(TcpStream, &AtomicBool) + Send + Sync;

/// Each connection has a thread of its own: one that a client has given up may be noticed late.
fn serve(listener: &TcpListener, over: &AtomicBool, work: &Work) {
    std::thread::scope(|scope| {
        while !over.load(Relaxed) {
            match listener.accept() {
                Ok((stream, _)) => {
                    let stream = stream.set_nonblocking(false).and_then(|()| prepared(stream));
                    scope.spawn(move || stream.map(|stream| work(stream, over)));
                }
                Err(_) => std::thread::park_timeout(Duration::from_millis(20)),
            }
        }
    });
}

fn prepared(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_read_timeout(Some(LOOK_EVERY))?;
    stream.set_write_timeout(Some(LOOK_EVERY))?;
    Ok(stream)
}

/// How many bytes were moved: none where there was nothing to be moved in time. At the end of a connection there are no more.
fn moved(result: io::Result<usize>) -> io::Result<usize> {
    use ErrorKind::{Interrupted, TimedOut, WouldBlock};
    match result {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Err(error) if matches!(error.kind(), WouldBlock | TimedOut | Interrupted) => Ok(0),
        other => other,
    }
}

fn send_on(mut stream: TcpStream, over: &AtomicBool) {
    let content = [0; 1 << 14];
    while !over.load(Relaxed) {
        if moved(stream.write(&content)).is_err() {
            return;
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
}

fn take_in(mut stream: TcpStream, count: &AtomicU64, over: &AtomicBool) {
    let mut buffer = vec![0; 1 << 16];
    while !over.load(Relaxed) {
        let Ok(length) = moved(stream.read(&mut buffer)) else { return };
        count.fetch_add(length as u64, Relaxed);
    }
    let _ = stream.shutdown(Shutdown::Both);
}

fn answer(mut stream: TcpStream, over: &AtomicBool) {
    let (mut buffer, mut asked) = ([0; 4096], 0);
    let _ = stream.set_nodelay(true);
    while !over.load(Relaxed) {
        let Ok(length) = moved(stream.read(&mut buffer)) else { return };
        asked += length;
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
        content = &content[moved(stream.write(content))?..];
    }
    Ok(())
}

/// Requests at a steady rate, over one connection as long as it holds; how long each took.
fn ask(connect: impl Fn() -> io::Result<TcpStream>, over: &AtomicBool) -> Vec<Duration> {
    let (mut next, mut waiting, mut took) = (clock::now(), VecDeque::new(), Vec::new());
    again_and_again(connect, over, |stream| {
        let _ = ask_over(stream, over, &mut next, &mut waiting, &mut took);
    });
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
        match moved(stream.read(&mut buffer)) {
            // The far end closes when it is over.
            Err(_) if over.load(Relaxed) => return Ok(()),
            length => come += length?,
        }
        while come >= ANSWER {
            come -= ANSWER;
            let now = clock::now();
            took.extend(waiting.pop_front().map(|asked| now - asked));
        }
    }
    Ok(())
}

/// The file's size.
const BYTES: u64 = 2_000_000;
const PORT: &str = "5005";
/// The programs end with the sample, whatever has arrived.
const LIMIT: Duration = Duration::from_secs(3600);

/// A transfer under way.
pub(super) struct Association {
    receiver: Running,
    _sender: Running,
}

impl Association {
    pub(super) fn start(convoy: &Convoy, program: &Program) -> Result<Self> {
        let size = BYTES.to_string();
        let hub = [0, 1].map(|uplink| hub_address(uplink).to_string());
        let words = ["receive", PORT, &size, &hub[0], &hub[1]].map(str::to_owned);
        let mut receiver = program.start_on(&convoy.hub, &words, LIMIT)?;
        receiver.expect_line(LIMIT)?;
        let words = ["send", PORT, &size, "0", "10.1.0.1", "10.2.0.1", &hub[0], &hub[1]].map(str::to_owned);
        Ok(Self { receiver, _sender: program.start_on(convoy.vehicle(FRONT), &words, LIMIT)? })
    }

    /// What came of it; `None` while it goes on.
    pub(super) fn outcome(mut self) -> Result<Option<transfer::Outcome>> {
        let ended = self.receiver.has_ended();
        ended.then(|| transfer::Outcome::read(&self.receiver.expect_line(LIMIT)?)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_over_a_connection_is_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let is_answered_within = |time| {
            let over = AtomicBool::new(false);
            let (mut next, mut waiting, mut took) =
                (clock::now(), VecDeque::from([clock::now()]), Vec::new());
            std::thread::scope(|scope| {
                scope.spawn(|| answer(prepared(listener.accept().unwrap().0).unwrap(), &over));
                scope.spawn(|| {
                    clock::poll_until(time, || None::<()>);
                    over.store(true, Relaxed);
                });
                ask_over(TcpStream::connect(address).unwrap(), &over, &mut next, &mut waiting, &mut took)
                    .unwrap();
            });
            println!("{took:?}, {waiting:?}");
            took.len() >= 2 && waiting.len() <= 1
        };
        // In a short time, threads that wait for a processor come to nothing.
        assert!([250, 2500, 10_000].map(Duration::from_millis).into_iter().any(is_answered_within));
    }
}
