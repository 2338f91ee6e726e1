//! What runs, and how it is changed while it runs: by the file, read again, or by `nawa path` and `nawa peer`.

use std::path::Path;
use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use device::{News, realtime};
use serde_json::{Value, json};

use crate::config::{self, Settings, edit};
use crate::control::Request;
use crate::control::server::Answer;
use crate::event::Event;
use crate::failure::Failure;
use crate::logging;
use crate::notify;
use crate::restarts::Strand;
use crate::strands::{Status, Strands};

/// The running strands. Changes take their turn; asking for the state waits for none of them.
pub struct Live {
    strands: Mutex<Option<Strands>>,
    status: Mutex<Status>,
    /// What was wrong with the file when it was last read again.
    refused: Mutex<Vec<String>>,
    events: Sender<Event>,
}

impl Live {
    /// Starts what `settings` ask for; see [`Strands::start`].
    ///
    /// # Errors
    /// Failed if a strand cannot start; then none runs.
    pub fn start(settings: Settings, events: Sender<Event>) -> Result<Live, Failure> {
        let strands = Strands::start(settings, &events).map_err(Failure::failed)?;
        let status = Mutex::new(strands.status());
        Ok(Live { strands: Mutex::new(Some(strands)), status, refused: Mutex::default(), events })
    }

    /// Answers a request of the control socket.
    pub fn answer(&self, request: Request) -> Answer {
        Answer::Line(match request {
            Request::Status => self.status(),
            Request::Capture(wanted) => match self.asks().capture(wanted) {
                Ok((interface, packets)) => return Answer::Packets(interface, packets),
                Err(why) => json!({"error": why}),
            },
            Request::Stop => {
                // If nobody listens, the daemon is on its way out already.
                let _ = self.events.send(Event::Stop);
                json!({"stopping": true})
            }
            Request::PathAdd(add) => self.edit(|config| edit::add(config, &add)),
            Request::PathDel(del) => self.edit(|config| edit::del(config, &del)),
            Request::PathSet(set) => self.edit(|config| edit::set(config, &set)),
            Request::PeerAdd(add) => self.edit(|config| edit::add_peer(config, &add)),
            Request::PeerDel(del) => self.edit(|config| edit::del_peer(config, &del)),
        })
    }

    /// What asks for the state, unlocked: a strand that hangs holds up nobody but who asks it.
    fn asks(&self) -> Status {
        lock(&self.status).clone()
    }

    /// The whole state.
    pub fn status(&self) -> Value {
        let mut state = self.asks().now();
        if !state["error"].is_null() {
            // A change that is under way may have stopped a strand; what runs is known at its end.
            drop(lock(&self.strands));
            state = self.asks().now();
        }
        state["log"] = logging::place().into();
        let refused = lock(&self.refused).clone();
        if !refused.is_empty() {
            state["reload_refused"] = refused.into();
        }
        state
    }

    /// Reads `file` again and takes up what it says. What is wrong with it is logged, and then all goes on as it was.
    pub fn reload(&self, file: &Path) {
        notify::reloading();
        let result = self.try_reload(file);
        match &result {
            Ok(()) => tracing::info!(file = %file.display(), "the file is taken up"),
            Err(lines) => lines.iter().for_each(|line| tracing::error!("{line}")),
        }
        *lock(&self.refused) = result.err().unwrap_or_default();
        notify::ready();
    }

    /// Interfaces, addresses or routes have changed.
    pub fn follow_interfaces(&self, news: &News) {
        self.change(|strands| strands.follow_interfaces(news, &self.events));
    }

    /// A strand has ended by itself.
    pub fn handle_failure(&self, now: Duration, strand: Strand, life: &Weak<()>, why: String) {
        self.change(|strands| strands.handle_failure(now, strand, life, why));
    }

    /// Starts what it is time to start again.
    pub fn restart(&self, now: Duration) {
        self.change(|strands| strands.restart(now, &self.events));
    }

    /// Counts what paths have carried, if it is time to.
    pub fn count(&self, now: Duration, time: Duration) {
        self.change(|strands| strands.count(now, time));
    }

    /// When [`restart`](Self::restart) or [`count`](Self::count) has something to do.
    pub fn poll_timeout(&self) -> Option<Duration> {
        lock(&self.strands).as_ref().and_then(Strands::poll_timeout)
    }

    /// Stops all, and waits until what it made is gone.
    pub fn stop(&self) {
        if let Some(mut strands) = lock(&self.strands).take() {
            strands.take_count(realtime());
        }
    }

    fn try_reload(&self, file: &Path) -> Result<(), Vec<String>> {
        // A pipe at its place might never be read to its end, and nothing else be done meanwhile.
        if std::fs::metadata(file).is_ok_and(|found| !found.is_file()) {
            return Err(vec![format!("{}: it is not a regular file; put one in its place", file.display())]);
        }
        let settings = config::load(file).map_err(|failure| failure.sentences())?;
        let reload = |strands: &mut Strands| {
            strands.take_count(realtime());
            strands.reload(settings, &self.events)
        };
        self.change(reload).unwrap_or(Ok(()))
    }

    fn edit(&self, edit: impl FnOnce(&mut tunnel::Config) -> Result<(), String>) -> Value {
        let edit = |strands: &mut Strands| {
            strands.take_count(realtime());
            strands.edit(edit)
        };
        match self.change(edit) {
            Some(Ok(())) => {
                // If nobody listens, the daemon is on its way out already.
                let _ = self.events.send(Event::Changed);
                json!({"changed": true})
            }
            Some(Err(why)) => json!({"error": why}),
            None => json!({"error": "the daemon is on its way out"}),
        }
    }

    /// `None` if all has been stopped.
    fn change<T>(&self, change: impl FnOnce(&mut Strands) -> T) -> Option<T> {
        let mut strands = lock(&self.strands);
        let strands = strands.as_mut()?;
        let result = change(strands);
        *lock(&self.status) = strands.status();
        Some(result)
    }
}

/// A change that panicked left strands that are whole: they are replaced one at a time.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use device::poller::{Interest, Poller};
    use device::worker::watch;

    use super::*;

    #[test]
    fn who_waits_for_a_strand_that_hangs_holds_nobody_up() {
        let (relay, inbox) = watch().expect("descriptors");
        let live = Live {
            strands: Mutex::new(None),
            status: Mutex::new(Status::of_relay(relay)),
            refused: Mutex::default(),
            events: std::sync::mpsc::channel().0,
        };
        thread::scope(|scope| {
            let asking = scope.spawn(|| live.status());
            let mut asked = Poller::new().expect("a descriptor");
            asked.add(&inbox.waker, 0, Interest::Read).expect("it can be waited for");
            asked.wait(None).expect("it is asked").for_each(drop);
            let is_free = live.status.try_lock().is_ok();
            // It ends, and so does the wait.
            drop(inbox);
            assert!(asking.join().expect("no panic")["error"].is_string());
            assert!(is_free);
        });
    }
}
