//! The running daemon: starts what the file asks for, answers on the control socket, and waits for a reason to stop.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use device::poller::{Interest, Poller, Signal, Signals};

use crate::config::{self, Settings};
use crate::control::{Request, server::Server};
use crate::failure::Failure;
use crate::notify;
use crate::strands::{Status, Strands};

/// What the daemon waits for.
pub enum Event {
    /// SIGINT, SIGTERM or `nawa down`.
    Stop,
    /// SIGHUP.
    Reload,
    /// A strand ended by itself, which it should not; the sentence says why.
    Ended(String),
}

/// Runs what `settings`, read from `file`, ask for. Calls `ready` once traffic is forwarded.
///
/// # Errors
/// Failed if another daemon runs here, if a strand cannot start, or if one ends by itself.
pub fn run(file: &Path, settings: Settings, ready: impl FnOnce()) -> Result<(), Failure> {
    let control = Server::bind()?;
    let resolved = settings.resolve()?;
    let (sender, events) = channel();
    forward_signals(sender.clone())
        .map_err(|error| Failure::failed(format!("cannot watch signals: {error}")))?;
    let strands = Strands::start(resolved, &sender)?;
    answer(control, strands.status(), sender)
        .map_err(|error| Failure::failed(format!("cannot answer on the control socket: {error}")))?;
    notify::ready();
    ready();
    let result = wait(file, &events);
    notify::stopping();
    drop(strands);
    result
}

/// SIGINT, SIGTERM and SIGHUP become events. All threads started later leave them to the one started here.
fn forward_signals(events: Sender<Event>) -> io::Result<()> {
    let signals = Signals::new()?;
    let forward = move || {
        if let Err(error) = watch(&signals, &events) {
            let _ = events.send(Event::Ended(format!("cannot watch signals any more: {error}")));
        }
    };
    thread::Builder::new().name("signals".into()).spawn(forward).map(drop)
}

fn watch(signals: &Signals, events: &Sender<Event>) -> io::Result<()> {
    let mut poller = Poller::new()?;
    poller.add(signals, 0, Interest::Read)?;
    loop {
        poller.wait(None)?.for_each(drop);
        while let Some(signal) = signals.next() {
            let event = match signal {
                Signal::Reload => Event::Reload,
                Signal::Stop => Event::Stop,
            };
            // Once nobody listens the process is ending.
            let _ = events.send(event);
        }
    }
}

fn answer(control: Server, status: Status, events: Sender<Event>) -> io::Result<()> {
    control.serve(move |request| match request {
        Request::Status => status.now(),
        Request::Stop => {
            // If nobody listens, the daemon is on its way out already.
            let _ = events.send(Event::Stop);
            serde_json::json!({"stopping": true})
        }
    })
}

/// Returns when it is time to stop.
fn wait(file: &Path, events: &Receiver<Event>) -> Result<(), Failure> {
    loop {
        match events.recv() {
            Ok(Event::Stop) | Err(_) => return Ok(()),
            Ok(Event::Reload) => look_at(file),
            Ok(Event::Ended(why)) => return Err(Failure::failed(why)),
        }
    }
}

/// A reload only checks the file for now.
fn look_at(file: &Path) {
    match config::load(file) {
        Ok(_) => tracing::warn!(
            file = %file.display(),
            "the file is good, but a running daemon cannot take it up yet; use `nawa down` and `nawa up`"
        ),
        Err(failure) => failure.lines.iter().for_each(|line| tracing::error!("{line}")),
    }
}
