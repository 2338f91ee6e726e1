//! `[metrics]`: the state by HTTP, at `/metrics` for Prometheus and at `/health` for what restarts a daemon. Nothing else is
//! answered, nothing is kept for a caller beyond its turn, and at most [`MAX_CALLERS`] have one.

mod families;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use device::monotonic;
use serde_json::Value;

/// Callers that are answered at a time; others are turned away.
const MAX_CALLERS: usize = 8;
/// How long a caller has.
const TURN: Duration = Duration::from_secs(5);
/// A request's first lines, bytes; a longer one is refused.
const LONGEST_REQUEST: usize = 8192;
const TEXT: &str = "text/plain; charset=utf-8";
const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers with what `state` gives, for as long as the process lives.
///
/// # Errors
/// One sentence if `listen` cannot be taken.
pub fn serve(listen: SocketAddr, state: impl Fn() -> Value + Send + Sync + 'static) -> Result<(), String> {
    let listener = TcpListener::bind(listen)
        .map_err(|error| format!("[metrics] cannot listen at {listen}: {error}; choose another port"))?;
    let (state, callers) = (Arc::new(state), Arc::new(AtomicUsize::new(0)));
    let accept = move || {
        // One that failed is gone.
        for stream in listener.incoming().flatten() {
            let turn = Turn(Arc::clone(&callers));
            if turn.0.fetch_add(1, Ordering::Relaxed) >= MAX_CALLERS {
                continue;
            }
            let state = Arc::clone(&state);
            let one = move || {
                let _turn = turn;
                if let Err(error) = answer(stream, &*state) {
                    tracing::debug!("a scrape ends early: {error}");
                }
            };
            if let Err(error) = thread::Builder::new().name("scrape".into()).spawn(one) {
                tracing::warn!(%error, "cannot answer a scrape");
            }
        }
    };
    let spawned = thread::Builder::new().name("metrics".into()).spawn(accept);
    spawned.map(drop).map_err(|error| format!("[metrics] cannot start: {error}"))
}

/// A caller's place, free again when dropped.
struct Turn(Arc<AtomicUsize>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn answer(mut stream: TcpStream, state: &dyn Fn() -> Value) -> io::Result<()> {
    stream.set_write_timeout(Some(TURN))?;
    let (status, kind, body) = match read_target(&mut stream)?.as_deref() {
        Some("/metrics") => match families::render(&state()) {
            Ok(text) => ("200 OK", METRICS, text),
            Err(error) => ("500 Internal Server Error", TEXT, format!("no metrics: {error}\n")),
        },
        Some("/health") => health(&state()),
        Some(_) => ("404 Not Found", TEXT, "here are /metrics and /health\n".to_owned()),
        None => ("400 Bad Request", TEXT, "this is no GET request\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body.as_bytes()].concat())
}

/// Healthy is a daemon whose strands answer. A peer that is down is the network's state, and no restart mends it.
fn health(state: &Value) -> (&'static str, &'static str, String) {
    match state["error"].as_str() {
        None => ("200 OK", TEXT, "ok\n".to_owned()),
        Some(why) => ("503 Service Unavailable", TEXT, format!("{why}\n")),
    }
}

/// What a GET asks for; `None` if this is none. The rest of the head is read, so that closing resets nothing.
fn read_target(stream: &mut TcpStream) -> io::Result<Option<String>> {
    let (deadline, mut head, mut piece) = (monotonic() + TURN, Vec::new(), [0; 1024]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let rest = deadline.saturating_sub(monotonic());
        if rest.is_zero() || head.len() > LONGEST_REQUEST {
            return Ok(None);
        }
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
