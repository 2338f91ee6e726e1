//! The daemon's side of the control socket.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use serde_json::{Value, json};

use device::Poller;

use super::client::Daemon;
use super::{LONGEST_REQUEST, ROOT, Request, address, capture};
use crate::failure::Failure;

/// Without descriptors, a connection waits so long for the next try.
const REST: Duration = Duration::from_millis(100);

/// What a request gets.
pub enum Answer {
    /// A line.
    Line(Value),
    /// What goes over this interface, and the paths below, until the connection ends.
    Packets(String, tunnel::daemon::Capture),
}

/// The name `@nawa`, taken. Nobody is answered before [`Server::serve`].
pub struct Server {
    listener: UnixListener,
}

impl Server {
    /// Takes the name.
    ///
    /// # Errors
    /// Failed if another daemon runs in this network namespace.
    pub fn bind() -> Result<Server, Failure> {
        match address().and_then(|address| UnixListener::bind_addr(&address)) {
            Ok(listener) => Ok(Server { listener }),
            Err(error) if error.kind() == ErrorKind::AddrInUse => Err(already_running()),
            Err(error) => Err(Failure::failed(format!("cannot open the control socket @nawa: {error}"))),
        }
    }

    /// Answers requests with `answer` on threads of its own, for as long as the process lives.
    pub fn serve(self, answer: impl Fn(Request) -> Answer + Send + Sync + 'static) -> io::Result<()> {
        let answer = Arc::new(answer);
        let accept = move || {
            for stream in self.listener.incoming() {
                let Some(stream) = stream.map_or_else(|error| rest(&error), allowed) else { continue };
                let answer = Arc::clone(&answer);
                let spawned =
                    thread::Builder::new().name("control".into()).spawn(move || talk(stream, &*answer));
                if let Err(error) = spawned {
                    tracing::warn!(%error, "cannot answer on the control socket");
                }
            }
        };
        thread::Builder::new().name("control".into()).spawn(accept).map(drop)
    }
}

/// Whoever is not root gets a sentence, and nothing is kept for him.
fn allowed(mut stream: UnixStream) -> Option<UnixStream> {
    if socket_peercred(&stream).is_ok_and(|peer| peer.uid.as_raw() == ROOT) {
        return Some(stream);
    }
    let refusal = json!({"error": "only root may talk to the daemon; use sudo"});
    // The first of a new connection's buffer: this cannot block.
    let _ = stream.write_all(format!("{refusal}\n").as_bytes());
    None
}

/// Nothing can be accepted at present, for want of descriptors perhaps: asking again at once would only burn a processor.
fn rest(error: &io::Error) -> Option<UnixStream> {
    tracing::warn!(%error, "cannot answer on the control socket");
    let waited =
        Poller::new().and_then(|mut poller| poller.wait(Some(REST)).map(|ready| ready.for_each(drop)));
    if waited.is_err() {
        // Not even that: whoever else runs goes first.
        thread::yield_now();
    }
    None
}

fn already_running() -> Failure {
    let who = match Daemon::find() {
        Ok(Some(daemon)) => format!(" (process {})", daemon.pid()),
        Ok(None) => String::new(),
        Err(failure) => return failure,
    };
    Failure::failed(format!(
        "another nawa daemon{who} runs in this network namespace; stop it with `nawa down` or use another namespace"
    ))
}

/// One connection: requests are answered until it ends.
fn talk(stream: UnixStream, answer: &dyn Fn(Request) -> Answer) {
    let mut reader = BufReader::new(stream);
    while let Ok(Some(line)) = read_request(&mut reader) {
        let reply = match serde_json::from_str(&line) {
            Ok(request) => match answer(request) {
                Answer::Line(reply) => reply,
                Answer::Packets(interface, packets) => {
                    // Whoever has gone wants no more.
                    let _ = capture::serve(reader.get_ref(), &interface, &packets);
                    return;
                }
            },
            Err(error) => json!({"error": format!("this is no request: {error}")}),
        };
        if reader.get_mut().write_all(format!("{reply}\n").as_bytes()).is_err() {
            return;
        }
    }
}

fn read_request(reader: &mut BufReader<UnixStream>) -> io::Result<Option<String>> {
    let mut line = String::new();
    let length = reader.take(LONGEST_REQUEST).read_line(&mut line)?;
    Ok((length > 0).then_some(line))
}
