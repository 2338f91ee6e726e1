//! What is to be said of a peer's paths: their states, why they are not what they should be, and when that changes.

use std::fmt;
use std::time::Duration;

use super::Peer;
use crate::config::Local;
use crate::path::Path;
use crate::why::Why;

/// A path is not without an answer before it has waited so long for one.
const PATIENCE: Duration = Duration::from_secs(3);
/// What was heard to be amiss is so for this long, unless it is heard again.
const TROUBLE_LIFE: Duration = Duration::from_secs(10);
/// The other end asks for a proof of a path's address at once, and repeats that for longer than this: a path that is used
/// and brought nothing for so long brings nothing.
const NOTHING_COMES: Duration = Duration::from_secs(10);
/// A path that flaps is spoken of at most this often.
const INTERVAL: Duration = Duration::from_secs(1);

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

/// What was said of a path last.
#[derive(Debug, Default)]
pub struct Said {
    state: State,
    why: Option<Why>,
    at: Duration,
    /// The state that it is in, and since when.
    now: (State, Duration),
    /// When to look again though nothing happens.
    due: Option<Duration>,
}

impl Said {
    /// Whether it was said to carry data.
    pub fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// When there may be more to say.
    pub fn due(&self) -> Option<Duration> {
        self.due
    }
}

impl Path {
    /// What it is good for.
    pub fn state(&self) -> State {
        match self.address() {
            None => State::Down,
            Some(_) if self.is_up() => State::Up,
            Some(_) if self.sent.is_silent() => State::Silent,
            Some(_) => State::Checking,
        }
    }

    /// What keeps it from carrying packets, both ways.
    pub fn why(&self, now: Duration) -> Option<Why> {
        if let Some(obstacle) = &self.obstacle {
            return Some(obstacle.clone());
        }
        let state = self.state();
        let since = if self.said.now.0 == state { self.said.now.1 } else { now };
        let waited = |time: Duration| now >= since + time;
        let trouble = self.trouble.as_ref().filter(|(at, _)| now < *at + TROUBLE_LIFE);
        match (state, self.address()) {
            (State::Up, _) => self.brings_nothing().filter(|_| waited(NOTHING_COMES)),
            (State::Down, _) | (_, None) => {
                let relay = self.relay().filter(|_| waited(PATIENCE))?;
                Some(trouble.map_or(Why::NoRelay(relay.remote), |(_, why)| why.clone()))
            }
            (_, Some(_)) if trouble.is_some() => trouble.map(|(_, why)| why.clone()),
            (_, Some(to)) => match self.too_small() {
                Some((carries, needs)) => Some(Why::TooSmall { carries, needs }),
                None => waited(PATIENCE).then_some(Why::NoAnswer(to.remote)),
            },
        }
    }

    /// Nothing has ever come over it though it is used. A path that the peer lists was learned from what came.
    fn brings_nothing(&self) -> Option<Why> {
        let config = self.config.as_ref().filter(|_| self.received.packets() == 0)?;
        Some(Why::NothingComesIn(match &config.local {
            Local::Any => String::new(),
            Local::Interface(name) => format!(" by {name}"),
            Local::Address(ip) => format!(" at {ip}"),
        }))
    }

    /// Something is amiss on the way; what comes on it shows that it is not.
    pub fn handle_trouble(&mut self, now: Duration, why: Why) {
        self.trouble = Some((now, why));
    }

    /// When its state or its reason changes though nothing happens.
    fn next_change(&self, now: Duration) -> Option<Duration> {
        let waits = match self.said.now.0 {
            State::Up => self.brings_nothing().map(|_| NOTHING_COMES),
            State::Down => self.relay().map(|_| PATIENCE),
            State::Checking | State::Silent => Some(PATIENCE),
        };
        let trouble = self.trouble.as_ref().map(|(at, _)| *at + TROUBLE_LIFE);
        waits.map(|time| self.said.now.1 + time).into_iter().chain(trouble).filter(|at| *at > now).min()
    }
}

impl Peer {
    /// What is amiss with it, whatever its paths are like.
    pub fn why(&self, now: Duration) -> Option<Why> {
        self.sessions.is_of_two(now).then_some(Why::TwoPlaces)
    }

    /// Says what is new of it and of its paths, a line for each change, and calls `each` with those (in the order of the
    /// configuration) that came up, or are not up any more.
    pub fn notice(&mut self, now: Duration, mut each: impl FnMut(usize, bool)) {
        let why = self.why(now);
        if let Some(why) = why.as_ref().filter(|_| self.said != why) {
            tracing::info!("{}: {why}", self.config.name);
        }
        self.said = why;
        for (index, path) in self.paths.iter_mut().enumerate() {
            let state = path.state();
            if path.said.now.0 != state {
                path.said.now = (state, now);
            }
            let why = path.why(now);
            path.said.due = path.next_change(now);
            if (path.said.state, &path.said.why) == (state, &why) {
                continue;
            }
            if path.said.at > Duration::ZERO && now < path.said.at + INTERVAL {
                path.said.due = Some(path.said.at + INTERVAL);
                continue;
            }
            say(&self.config.name, path, state, why.as_ref());
            if (state == State::Up) != (path.said.state == State::Up) {
                each(index, state == State::Up);
            }
            (path.said.state, path.said.why, path.said.at) = (state, why, now);
        }
    }
}

/// That a path is tried is not worth a line; how that ends is.
fn say(peer: &str, path: &Path, state: State, why: Option<&Why>) {
    let name = &path.name;
    match why {
        Some(why) => tracing::info!("path {name} to {peer} is {state}: {why}"),
        None if state == State::Checking || state == State::Down => {}
        None => tracing::info!("path {name} to {peer} is {state}"),
    }
}
