//! The running daemon: starts what the file asks for, answers on the control socket, and waits for a reason to stop.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;

use device::poller::{Interest, Poller, Signal, Signals};
use device::{Changes, monotonic, realtime};

use crate::config::Settings;
use crate::control::server::Server;
use crate::event::Event;
use crate::failure::Failure;
use crate::live::Live;
use crate::{logging, metrics, notify};

/// Runs what `settings`, read from `file`, ask for. Calls `ready` once traffic is forwarded.
///
/// # Errors
/// Failed if another daemon runs here, or if a strand cannot start. One that ends by itself later is started again.
pub fn run(file: &Path, settings: Settings, ready: impl FnOnce()) -> Result<(), Failure> {
    let (sender, events) = channel();
    // First of all, or a reload that comes early ends the process.
    forward_signals(sender.clone())
        .map_err(|error| Failure::failed(format!("cannot watch signals: {error}")))?;
    let control = Server::bind()?;
    let metrics = settings.metrics;
    let changes = Changes::subscribe();
    let live = Arc::new(Live::start(settings, sender)?);
    let followed = changes.and_then(|changes| follow_interfaces(changes, Arc::clone(&live)));
    if let Err(error) = followed {
        warn_deaf(&error.to_string());
    }
    let answers = answer(control, metrics, &live);
    if answers.is_ok() {
        notify::ready();
        ready();
    }
    let _log = logging::write_apart();
    let result = answers.and_then(|()| wait(file, &live, &events));
    notify::stopping();
    live.stop();
    result
}

/// Answers on the control socket, and scrapers.
fn answer(control: Server, metrics: Option<SocketAddr>, live: &Arc<Live>) -> Result<(), Failure> {
    let answering = Arc::clone(live);
    control.serve(move |request| answering.answer(request)).map_err(|error| {
        Failure::failed(format!(
            "cannot answer on the control socket: {error}; see the limits on open files and memory"
        ))
    })?;
    let Some(listen) = metrics else { return Ok(()) };
    let asked = Arc::clone(live);
    metrics::serve(listen, move || asked.status()).map_err(Failure::failed)
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

/// Tells what runs of interfaces that come and go, for as long as the process lives.
fn follow_interfaces(changes: Changes, live: Arc<Live>) -> io::Result<()> {
    let follow = move || -> io::Result<()> {
        let mut poller = Poller::new()?;
        poller.add(&changes, 0, Interest::Read)?;
        loop {
            poller.wait(None)?.for_each(drop);
            live.follow_interfaces(&changes.take()?);
        }
    };
    let report = move || {
        if let Err(why) = device::process::outcome(follow) {
            warn_deaf(&why);
        }
    };
    thread::Builder::new().name("interfaces".into()).spawn(report).map(drop)
}

fn warn_deaf(why: &str) {
    tracing::warn!(
        "the daemon does not hear of interfaces and rules: {why}; floods do not follow their interfaces, and rules that hold \
         the default route's packets back stay away once they are gone; restart it"
    );
}

/// Returns when it is time to stop.
fn wait(file: &Path, live: &Live, events: &Receiver<Event>) -> Result<(), Failure> {
    loop {
        let event = match live.poll_timeout() {
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(due) => events.recv_timeout(due.saturating_sub(monotonic())),
        };
        match event {
            Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Ok(Event::Reload) => live.reload(file),
            Ok(Event::Failed(strand, life, why)) => live.handle_failure(monotonic(), strand, &life, why),
            Ok(Event::Changed) => {}
            Err(RecvTimeoutError::Timeout) => {
                live.restart(monotonic());
                live.count(monotonic(), realtime());
            }
            Ok(Event::Ended(why)) => return Err(Failure::failed(why)),
        }
    }
}
