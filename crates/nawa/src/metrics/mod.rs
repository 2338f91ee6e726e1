//! `[metrics]`: the state by HTTP, at `/metrics` for Prometheus and at `/health` for what restarts a daemon. Nothing else is
//! answered, nothing is kept for a caller beyond its turn, and at most [`MAX_CALLERS`] have one.

mod families;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use device::monotonic;
use serde_json::Value;
use tunnel::daemon::{Listen, listen_advice, listen_tcp};

use crate::incoming::Incoming;

/// Callers that are answered at a time; others are turned away.
const MAX_CALLERS: usize = 8;
/// How long a caller has to ask, and to take the answer.
const TURN: Duration = Duration::from_secs(5);
/// A request's first lines, bytes; a longer one is refused.
const LONGEST_REQUEST: usize = 8192;
const TEXT: &str = "text/plain; charset=utf-8";
const UNAVAILABLE: &str = "503 Service Unavailable";
const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers with what `state` gives, for as long as the process lives.
///
/// # Errors
/// One sentence if `listen` cannot be taken.
pub fn serve(listen: SocketAddr, state: impl Fn() -> Value + Send + Sync + 'static) -> Result<(), String> {
    let listener = listen_tcp(Listen::Address(listen))
        .map_err(|error| format!("[metrics] {error}; {}", listen_advice(&error)))?;
    let cannot = |error| format!("[metrics] cannot start: {error}; see the limits on open files and memory");
    let mut incoming = Incoming::new().map_err(cannot)?;
    let (state, callers) = (Arc::new(state), Arc::new(AtomicUsize::new(0)));
    let accept = move || {
        loop {
            let (stream, _) = incoming.next("[metrics]", || listener.accept());
            let turn = Turn(Arc::clone(&callers));
            if turn.0.fetch_add(1, Ordering::Relaxed) >= MAX_CALLERS {
                continue;
            }
            let state = Arc::clone(&state);
            let one = move || {
                let _turn = turn;
                if let Err(error) = answer(stream, monotonic() + TURN, &*state) {
                    tracing::debug!("a scrape ends early: {error}");
                }
            };
            if let Err(error) = thread::Builder::new().name("scrape".into()).spawn(one) {
                tracing::warn!(%error, "cannot answer a scrape");
            }
        }
    };
    let spawned = thread::Builder::new().name("metrics".into()).spawn(accept);
    spawned.map(drop).map_err(cannot)
}

/// A caller's place, free again when dropped.
struct Turn(Arc<AtomicUsize>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What is asked by the deadline; a turn to take that begins when it is known, for a strand that hangs takes one to say so.
fn answer(mut stream: TcpStream, deadline: Duration, state: &dyn Fn() -> Value) -> io::Result<()> {
    let (status, kind, body) = match read_target(&mut stream, deadline)?.as_deref() {
        Some("/metrics") => {
            let state = state();
            match (state["error"].as_str(), families::render(&state)) {
                (None, Ok(text)) => ("200 OK", METRICS, text),
                (Some(why), _) => (UNAVAILABLE, TEXT, format!("{why}\n")),
                (None, Err(error)) => ("500 Internal Server Error", TEXT, format!("no metrics: {error}\n")),
            }
        }
        Some("/health") => health(&state()),
        Some(_) => ("404 Not Found", TEXT, "here are /metrics and /health\n".to_owned()),
        None => ("400 Bad Request", TEXT, "this is no GET request\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let deadline = monotonic() + TURN;
    let answer = [head.as_bytes(), body.as_bytes()].concat();
    let mut rest = answer.as_slice();
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(deadline).ok_or(ErrorKind::TimedOut)?))?;
        match stream.write(rest)? {
            0 => return Err(ErrorKind::WriteZero.into()),
            written => rest = &rest[written..],
        }
    }
    Ok(())
}

/// What is left of a turn.
fn left(deadline: Duration) -> Option<Duration> {
    Some(deadline.saturating_sub(monotonic())).filter(|left| !left.is_zero())
}

/// Healthy is a daemon whose strands run and answer. A peer that is down is the network's state, and no restart mends it.
fn health(state: &Value) -> (&'static str, &'static str, String) {
    let each = |key: &str| state[key].as_array().into_iter().flatten();
    let failed = each("failed").filter(|one| one["up"] == false).map(|one| &one["why"]);
    let hang = each("flood").filter(|one| one["hangs"] == true).map(|one| &one["waits"]);
    let whys = [&state["error"]].into_iter().chain(failed).chain(hang).filter_map(Value::as_str);
    let amiss: String = whys.map(|why| format!("{why}\n")).collect();
    match amiss.is_empty() {
        true => ("200 OK", TEXT, "ok\n".to_owned()),
        false => (UNAVAILABLE, TEXT, amiss),
    }
}

/// What a GET asks for; `None` if this is none. The rest of the head is read, so that closing resets nothing.
fn read_target(stream: &mut TcpStream, deadline: Duration) -> io::Result<Option<String>> {
    let (mut head, mut piece) = (Vec::new(), [0; 1024]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let Some(rest) = left(deadline).filter(|_| head.len() <= LONGEST_REQUEST) else { return Ok(None) };
        stream.set_read_timeout(Some(rest))?;
        match stream.read(&mut piece)? {
            0 => return Ok(None),
            read => head.extend_from_slice(&piece[..read]),
        }
    }
    let text = String::from_utf8_lossy(&head);
    let mut words = text.lines().next().unwrap_or_default().split(' ');
    let (method, target) = (words.next(), words.next());
    Ok(target.filter(|_| method == Some("GET")).map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use serde_json::json;

    use super::*;

    /// Who takes a byte now and then takes no longer than others.
    #[test]
    fn a_turn_ends_while_somebody_sips() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut sipper = TcpStream::connect(listener.local_addr().expect("it has one")).expect("it listens");
        let stream = listener.accept().expect("a caller").0;
        sipper.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("it is asked");
        // More than the sockets hold.
        let peers: Vec<_> = (0..10_000).map(|n| json!({"name": format!("{n:0>900}"), "up": true})).collect();
        let state = json!({"tunnel": {"peers": peers}});
        let deadline = monotonic() + Duration::from_secs(2);
        let turn = thread::spawn(move || answer(stream, deadline, &|| state.clone()));
        let mut taken = 0;
        while !turn.is_finished() {
            taken += sipper.read(&mut [0; 4096]).unwrap_or(0);
            let mut pause = device::Poller::new().expect("a descriptor");
            pause.wait(Some(Duration::from_millis(20))).expect("it waits").for_each(drop);
        }
        assert!(turn.join().expect("no panic").is_err(), "{taken} bytes");
    }

    #[test]
    fn a_strand_that_hangs_for_a_whole_turn_is_said() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut caller = TcpStream::connect(listener.local_addr().expect("it has one")).expect("it listens");
        let stream = listener.accept().expect("a caller").0;
        caller.write_all(b"GET /health HTTP/1.1\r\n\r\n").expect("it is asked");
        let deadline = monotonic() + Duration::from_millis(300);
        let hang = || {
            let mut pause = device::Poller::new().expect("a descriptor");
            while monotonic() < deadline {
                pause.wait(Some(Duration::from_millis(20))).expect("it waits").for_each(drop);
            }
            json!({"error": "it hangs"})
        };
        answer(stream, deadline, &hang).expect("somebody takes it");
        let mut said = String::new();
        caller.read_to_string(&mut said).expect("it is answered");
        assert!(said.starts_with("HTTP/1.1 503 ") && said.ends_with("it hangs\n"), "{said}");
    }

    #[test]
    fn a_flood_that_hangs_is_not_healthy() {
        let health = |hangs: bool| {
            let flood = json!({"interface": "wlan0", "relay": null, "waits": "for it", "hangs": hangs});
            health(&json!({"flood": [flood]}))
        };
        assert_eq!(health(true), (UNAVAILABLE, TEXT, "for it\n".to_owned()));
        assert_eq!(health(false).0, "200 OK");
    }
}
