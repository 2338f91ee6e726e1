//! The daemon's side of the control socket.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::client::Daemon;
use super::{LONGEST_REQUEST, ROOT, Request, STALLED, address, capture};
use crate::failure::Failure;
use crate::incoming::Incoming;

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
        let (answer, mut incoming) = (Arc::new(answer), Incoming::new()?);
        let accept = move || {
            loop {
                let stream = incoming.next("the control socket", || self.listener.accept());
                let Some(stream) = allowed(stream.0) else { continue };
                let answer = Arc::clone(&answer);
                let spawned = thread::Builder::new()
                    .name("control".into())
                    .spawn(move || talk(stream, STALLED, &*answer));
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
    if device::process::peer(&stream).is_ok_and(|(uid, _)| uid == ROOT) {
        return Some(stream);
    }
    let refusal = json!({"error": "only root may talk to the daemon; use sudo"});
    // The first of a new connection's buffer: this cannot block.
    let _ = stream.write_all(format!("{refusal}\n").as_bytes());
    None
}

fn already_running() -> Failure {
    let who = match Daemon::find() {
        Ok(Some(daemon)) => format!(" ({})", daemon.who()),
        Ok(None) => String::new(),
        Err(failure) => return failure,
    };
    Failure::failed(format!(
        "another nawa daemon{who} runs in this network namespace; stop it with `nawa down` or use another namespace"
    ))
}

/// One connection: requests are answered until it ends, or nothing of an answer is taken for as long as `patience`.
fn talk(stream: UnixStream, patience: Duration, answer: &dyn Fn(Request) -> Answer) {
    // It fails for no time that is not 0.
    let _ = stream.set_write_timeout(Some(patience));
    let mut reader = BufReader::new(stream);
    while let Ok(Some(line)) = read_line(&mut reader) {
        if line.len() as u64 == LONGEST_REQUEST && !line.ends_with(b"\n") {
            let reply = json!({"error": format!("a request is a line of at most {LONGEST_REQUEST} bytes")});
            // What follows is the rest of it, and no request.
            let _ = reader.get_mut().write_all(format!("{reply}\n").as_bytes());
            return;
        }
        let reply = match serde_json::from_slice(&line) {
            Ok(request) => match answer(request) {
                Answer::Line(reply) => reply,
                Answer::Packets(interface, packets) => {
                    let served = capture::serve(reader.get_ref(), &interface, &packets);
                    // Whoever has gone wants no more.
                    if served.is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
                        tracing::info!("a capture ends: its reader has taken nothing for {patience:?}");
                    }
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

/// With its end; `None` where nothing follows.
fn read_line(reader: &mut BufReader<UnixStream>) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let length = reader.take(LONGEST_REQUEST).read_until(b'\n', &mut line)?;
    Ok((length > 0).then_some(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is answered to these bytes, until the connection ends.
    fn answers(asked: &[u8]) -> String {
        let (mut here, there) = UnixStream::pair().expect("two ends");
        let answer = |request| Answer::Line(json!(request));
        let talk = thread::spawn(move || talk(there, STALLED, &answer));
        // Who is cut off may be so before all is written.
        let _ = here.write_all(asked).and_then(|()| here.shutdown(std::net::Shutdown::Write));
        let mut said = String::new();
        let _ = here.read_to_string(&mut said);
        talk.join().expect("it ends");
        said
    }

    #[test]
    fn what_is_no_request_is_told_so() {
        let status = r#"{"command":"status"}"#;
        assert_eq!(answers(format!("{status}\n{status}\n").as_bytes()), format!("{status}\n{status}\n"));
        assert!(answers(b"\xff\xfe\n").starts_with(r#"{"error":"this is no request: "#));
        // Much is within bounds, as a peer's routes; beyond them nothing of it is a request.
        let padded = |length: usize| format!("{}{status}\n", " ".repeat(length - status.len() - 1));
        assert_eq!(answers(padded(65_536).as_bytes()), format!("{status}\n"));
        let said = answers(padded(70_000).as_bytes());
        assert_eq!(said, "{\"error\":\"a request is a line of at most 65536 bytes\"}\n");
    }

    #[test]
    fn who_takes_nothing_for_long_is_dropped() {
        let (mut here, there) = UnixStream::pair().expect("two ends");
        here.write_all(b"{\"command\":\"status\"}\n").expect("it asks");
        // More than a socket's buffer takes.
        talk(there, Duration::from_millis(10), &|_| Answer::Line("x".repeat(16 << 20).into()));
        let mut said = String::new();
        here.read_to_string(&mut said).expect("it ends");
        assert!((1..16 << 20).contains(&said.len()), "{} bytes", said.len());
    }
}
