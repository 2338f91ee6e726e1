//! What is to be said of a peer's paths: their states, why they are not what they should be, and when that changes.

use std::net::SocketAddr;
use std::time::Duration;

use super::Peer;
use crate::config::Local;
use crate::path::Path;
use crate::path::state::{Change, State};
use crate::schedule::choice::tier_of;
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
/// So many changes of a path are remembered: what led to where it is, and an hour of one that flaps every few minutes.
const CHANGES: usize = 16;

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

    /// Since when it is what it is.
    fn since(&self, now: Duration) -> Duration {
        if self.log.now.0 == self.state() { self.log.now.1 } else { now }
    }

    /// What keeps it from carrying packets, both ways.
    pub fn why(&self, now: Duration) -> Option<Why> {
        if let Some(obstacle) = &self.obstacle {
            return Some(obstacle.clone());
        }
        let state = self.state();
        let since = self.since(now);
        let waited = |time: Duration| now >= since + time;
        let trouble = self.trouble.as_ref().filter(|(at, _)| now < *at + TROUBLE_LIFE);
        match (state, self.address()) {
            (State::Up, _) => self.brings_nothing().filter(|_| waited(NOTHING_COMES)),
            (State::Down, _) | (_, None) => {
                let relay = self.relay().filter(|_| waited(PATIENCE))?;
                let at = self.tls().unwrap_or(relay.remote);
                Some(trouble.map_or(Why::NoRelay(at), |(_, why)| why.clone()))
            }
            (_, Some(_)) if trouble.is_some() => trouble.map(|(_, why)| why.clone()),
            (_, Some(to)) => match self.mtu.too_small() {
                Some((carries, needs)) => Some(Why::TooSmall { carries, needs, larger: self.mtu.larger() }),
                None => waited(PATIENCE).then_some(Why::NoAnswer(self.tls().unwrap_or(to.remote))),
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

    /// The number that decided its state, where the reason has none.
    fn decided(&self, now: Duration, state: State, why: Option<&Why>) -> String {
        let seconds = |since: Duration| now.saturating_sub(since).as_secs_f64();
        let fact = match state {
            State::Up => {
                let rtt = self.sent.rtt().smoothed().unwrap_or_default().as_secs_f64() * 1e3;
                format!("answers after {rtt:.1} ms, carries packets of {} bytes", self.mtu.carried())
            }
            State::Checking | State::Silent => match (self.received.last_arrival(), self.sent.silences()) {
                (Some(at), 0) => format!("not proved: heard {:.1} s ago", seconds(at)),
                (Some(at), probes) => format!("silent for {:.1} s, {probes} probes unanswered", seconds(at)),
                (None, _) => format!("nothing ever came back, in {:.1} s", seconds(self.tried_since)),
            },
            State::Down => "leads nowhere".to_owned(),
        };
        match (state, why) {
            (State::Down, Some(why)) => why.to_string(),
            (_, Some(why)) => format!("{why} ({fact})"),
            (_, None) => fact,
        }
    }

    /// For scripts: what keeps it from carrying packets, also where there is nothing to be said of that yet.
    pub fn cause(&self, why: Option<&Why>) -> &'static str {
        why.map_or_else(|| cause_of(self.state()), Why::cause)
    }

    /// Something is amiss on the way; what comes on it shows that it is not.
    pub fn handle_trouble(&mut self, now: Duration, why: Why) {
        self.trouble = Some((now, why));
    }

    /// When its state or its reason changes though nothing happens.
    fn next_change(&self, now: Duration) -> Option<Duration> {
        let waits = match self.log.now.0 {
            State::Up => self.brings_nothing().map(|_| NOTHING_COMES),
            State::Down => self.relay().map(|_| PATIENCE),
            State::Checking | State::Silent => Some(PATIENCE),
        };
        let trouble = self.trouble.as_ref().map(|(at, _)| *at + TROUBLE_LIFE);
        waits.map(|time| self.log.now.1 + time).into_iter().chain(trouble).filter(|at| *at > now).min()
    }
}

fn cause_of(state: State) -> &'static str {
    match state {
        State::Up => "carries",
        State::Silent => "silent",
        State::Checking => "not-proved",
        State::Down => "leads-nowhere",
    }
}

/// What is known of a peer's paths together.
#[derive(Clone, Copy, Debug)]
pub struct Others {
    /// The best kind of path that there is.
    tier: u8,
    /// Where the path leads that is up and was last heard, and when that was.
    reached: Option<(SocketAddr, Duration)>,
    /// The largest inner packet that goes over them.
    inner_mtu: u16,
}

/// What is to be said of a path among `others`.
pub fn why_of(path: &Path, others: Others, now: Duration) -> Option<Why> {
    let Others { tier, reached, inner_mtu } = others;
    let kept = tier_of(path).is_some_and(|own| path.is_up() && own > tier);
    let cost = path.config.as_ref().map(|config| config.cost).unwrap_or_default();
    let spent = cost.monthly_cap.filter(|_| cost.spent).map(|cap| Why::Spent { cap });
    let tls = path.tls().filter(|_| path.is_up()).map(Why::OverTls);
    let pieces = path.pieces(inner_mtu.into()).filter(|pieces| path.is_up() && *pieces > 1);
    let (carries, packet, larger) = (path.mtu.carried(), inner_mtu, path.mtu.larger());
    let pieces = pieces.map(|pieces| Why::InPieces { carries, packet, pieces, larger });
    // What was heard before this path fell silent says nothing of the peer since.
    let since = path.since(now);
    let reached = reached.filter(|(_, heard)| *heard >= since).map(|(to, _)| to);
    let why = path.why(now).map(|why| why.among(reached)).or(spent);
    let helps = (path.is_up() && path.backup && path.helps).then_some(Why::Helps);
    why.or_else(|| kept.then_some(Why::Kept)).or(helps).or(tls).or(pieces)
}

impl Why {
    /// The same of a path whose peer is `reached` by another one: then neither the peer nor its keys are to blame.
    fn among(self, reached: Option<SocketAddr>) -> Why {
        match (self, reached) {
            (Why::NoAnswer(to), Some(there)) => Why::LinkSilent { to, elsewhere: there != to },
            (Why::Refused(to), Some(there)) if there == to => Why::LinkRefuses(to),
            (why, _) => why,
        }
    }
}

impl Peer {
    /// What is known of its paths together.
    pub(crate) fn others(&self) -> Others {
        let up = self.paths.iter().filter(|path| path.is_up());
        let heard = up.filter_map(|path| Some((path.address()?.remote, path.received.last_arrival()?)));
        Others { tier: self.tier(), reached: heard.max_by_key(|(_, at)| *at), inner_mtu: self.inner_mtu }
    }

    /// What is amiss with it, whatever its paths are like.
    pub fn why(&self, now: Duration) -> Option<Why> {
        self.sessions.is_of_two(now).then_some(Why::TwoPlaces).or_else(|| self.beside.clone())
    }

    /// Says what is new of it and of its paths, a line for each change, and calls `each` with those (in the order of the
    /// configuration) that came up, or are not up any more.
    pub fn notice(&mut self, now: Duration, mut each: impl FnMut(usize, bool)) {
        let why = self.why(now);
        if let Some(why) = why.as_ref().filter(|_| self.said != why) {
            tracing::info!("{}: {why}", self.config.name);
        }
        self.said = why;
        let others = self.others();
        let mut fell_silent = false;
        for (index, path) in self.paths.iter_mut().enumerate() {
            let state = path.state();
            if path.log.now.0 != state {
                fell_silent |= state == State::Silent;
                path.log.now = (state, now);
            }
            if state == State::Down || path.log.changes.is_empty() {
                path.tried_since = now;
            }
            let why = why_of(path, others, now);
            path.log.due = path.next_change(now);
            if (path.log.state, &path.log.why) == (state, &why) {
                continue;
            }
            if path.log.at > Duration::ZERO && now < path.log.at + INTERVAL {
                path.log.due = Some(path.log.at + INTERVAL);
                continue;
            }
            say(&self.config.name, path, state, why.as_ref());
            if (state == State::Up) != (path.log.state == State::Up) {
                each(index, state == State::Up);
            }
            let cause = path.cause(why.as_ref());
            let decided = path.decided(now, state, why.as_ref());
            if path.log.changes.len() == CHANGES {
                path.log.changes.pop_front();
            }
            path.log.changes.push_back(Change { at: now, state, cause, why: decided });
            (path.log.state, path.log.why, path.log.at) = (state, why, now);
        }
        // Where nothing is sent, silence shows by keepalives alone: whether it is this link's or the peer's, the others tell at once.
        if fell_silent && !self.is_active(now) {
            self.paths.iter_mut().filter(|path| path.is_up()).for_each(|path| path.probe_wanted = true);
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
