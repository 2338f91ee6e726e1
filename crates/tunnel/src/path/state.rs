//! A path's state, and the log of its changes.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use crate::why::Why;

/// What a path is good for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It leads nowhere: no way, or no session at its relay.
    #[default]
    Down,
    /// It has not proved to be of use.
    Checking,
    /// Nothing comes back.
    Silent,
    /// It carries data.
    Up,
}

impl State {
    /// As status and logs call it.
    pub fn name(self) -> &'static str {
        match self {
            State::Down => "down",
            State::Checking => "checking",
            State::Silent => "silent",
            State::Up => "up",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What became of a path, and what decided it.
#[derive(Clone, Debug)]
pub struct Change {
    /// When.
    pub at: Duration,
    /// What it is good for since.
    pub state: State,
    /// For scripts, as [`Why::cause`].
    pub cause: &'static str,
    /// With the number that decided.
    pub why: String,
}

/// A path's state as it was logged last, and before.
#[derive(Debug, Default)]
pub struct StateLog {
    pub(crate) state: State,
    pub(crate) why: Option<Why>,
    pub(crate) at: Duration,
    /// What was logged, the newest last.
    pub(crate) changes: VecDeque<Change>,
    /// The state that it is in, logged or not yet, and since when.
    pub(crate) now: (State, Duration),
    /// When to look again though nothing happens.
    pub(crate) due: Option<Duration>,
}
