//! What happens to the running daemon, by whatever thread.

use std::sync::mpsc::Sender;

use crate::restarts::Strand;

/// What the daemon waits for.
pub enum Event {
    /// SIGINT, SIGTERM or `nawa down`.
    Stop,
    /// SIGHUP: read the file again.
    Reload,
    /// What runs was changed: something may be due sooner than was waited for.
    Changed,
    /// A strand ended by itself, which it should not; the sentence says why.
    Failed(Strand, String),
    /// The daemon cannot go on; the sentence says why.
    Ended(String),
}

/// Tells that `strand` has ended by itself.
pub fn ended(events: &Sender<Event>, strand: Strand) -> impl FnOnce(String) + Send + 'static {
    let events = events.clone();
    move |why| {
        // Once nobody listens the process is ending.
        let _ = events.send(Event::Failed(strand, why));
    }
}
