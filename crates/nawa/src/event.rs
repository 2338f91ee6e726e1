//! What happens to the running daemon, by whatever thread.

use std::sync::Weak;

use crate::restarts::Strand;

/// What the daemon waits for.
pub enum Event {
    /// SIGINT, SIGTERM or `nawa down`.
    Stop,
    /// SIGHUP: read the file again.
    Reload,
    /// What runs was changed: something may be due sooner than was waited for.
    Changed,
    /// A strand ended by itself, which it should not; the sentence says why. If the token is dead, that strand has been stopped since.
    Failed(Strand, Weak<()>, String),
    /// The daemon cannot go on; the sentence says why.
    Ended(String),
}
