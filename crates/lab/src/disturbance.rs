//! What happens to a network in mid-transfer, and how long it takes until the paths concerned carry data again.

use std::path::Path;
use std::time::{Duration, Instant};

use link::{Bitrate, Capacity};

use crate::clock;
use crate::error::Error;
use crate::network::{Network, PathSpec, Topology};
use crate::system::{Ready, System};

/// How often is looked at what the paths have carried.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What was under way at the event's end has arrived by then, and does not count.
const DRAINED: Duration = Duration::from_millis(200);

/// The share of its link's rate at which a path carries data again, rather than probes.
const USED: f64 = 0.1;

/// Something that happens in mid-transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) change: Change,
    /// When this share of the file has arrived.
    pub(crate) at: f64,
}

/// What may happen to a network while it is used.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// A link is cut, without notice and in both directions, and comes back.
    Cut {
        path: usize,
        /// How long it stays cut.
        time: Duration,
    },
    /// The client's address on the first path changes.
    ReaddressClient,
    /// The client's addresses on all paths change at once.
    ReaddressClientAll,
    /// A NAT on the first path gives the client another port.
    Rebind,
    /// The server's address changes.
    ReaddressServer,
    /// The first path's relay is killed and started again.
    RelayRestart,
}

/// Lets an event happen when its time has come, and watches what follows.
pub(crate) struct Disturbance<'a> {
    pub(crate) network: &'a Network,
    pub(crate) ready: &'a mut Ready,
    pub(crate) system: System,
    pub(crate) nawa: &'a Path,
    /// The rate of each path towards the client; 0 where it is not constant, so that any data counts.
    pub(crate) rates: Vec<Bitrate>,
    pub(crate) bytes: u64,
    pub(crate) phase: Phase,
}

/// How far an event is.
pub(crate) enum Phase {
    /// It has not begun.
    Before(Event),
    /// A link is cut until then.
    Cut { path: usize, until: Instant },
    /// The paths in `waiting` have not been used again.
    After(After),
    /// All paths have been used again after this time, or nothing was to happen, or it could not be made to happen.
    Over(Result<Option<Duration>, Error>),
}

/// When every path concerned was used again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UsedAgain {
    /// After the event's end; if `in_time` is false, they were not for at least so long.
    pub(crate) after: Duration,
    pub(crate) in_time: bool,
}

/// What is watched after an event.
pub(crate) struct After {
    since: Instant,
    waiting: Vec<usize>,
    look_at: Instant,
    last: Option<(Instant, Vec<u64>)>,
}

impl Disturbance<'_> {
    /// Does what is due when `count` bytes have arrived; when to be asked again at the latest.
    pub(crate) fn watch(&mut self, count: u64, now: Instant) -> Option<Instant> {
        match &mut self.phase {
            Phase::Before(event) if count as f64 >= self.bytes as f64 * event.at => {
                let change = event.change;
                self.phase = self.begin(change, now).unwrap_or_else(|error| Phase::Over(Err(error)));
            }
            Phase::Cut { path, until } if now >= *until => {
                self.network.set_up(*path, true);
                self.phase = Phase::After(After::new(vec![*path]));
            }
            Phase::After(after) if now >= after.look_at => {
                after.look_at = now + LOOK_EVERY;
                self.look();
            }
            _ => {}
        }
        match &self.phase {
            Phase::Cut { until, .. } => Some(*until),
            Phase::After(after) => Some(after.look_at),
            _ => None,
        }
    }

    /// How long it took, after the event's end, until every path concerned was used again; `None` if nothing happened.
    pub(crate) fn used_again(self) -> Result<Option<UsedAgain>, Error> {
        let outcome = match self.phase {
            Phase::Over(outcome) => return Ok(outcome?.map(|after| UsedAgain { after, in_time: true })),
            Phase::After(after) => Some(clock::now() - after.since),
            Phase::Cut { .. } => Some(Duration::ZERO),
            Phase::Before(_) => None,
        };
        Ok(outcome.map(|after| UsedAgain { after, in_time: false }))
    }

    fn begin(&mut self, change: Change, now: Instant) -> Result<Phase, Error> {
        let all: Vec<usize> = (0..self.rates.len()).collect();
        let waiting = match change {
            Change::Cut { path, time } => {
                self.network.set_up(path, false);
                return Ok(Phase::Cut { path, until: now + time });
            }
            Change::ReaddressClient => self.network.readdress_client(0).map(|()| vec![0]),
            Change::ReaddressClientAll => {
                all.iter().try_for_each(|&path| self.network.readdress_client(path)).map(|()| all)
            }
            Change::Rebind => self.network.rebind(0).map(|()| vec![0]),
            Change::ReaddressServer => self.network.readdress_server().map(|()| all),
            Change::RelayRestart => self.ready.restart_relay(self.network, 0).map(|()| vec![0]),
        };
        Ok(Phase::After(After::new(waiting?)))
    }

    fn look(&mut self) {
        // Not when the byte came that is being told of: that may have been a while ago.
        let (now, received) = (clock::now(), self.system.received(self.network, self.nawa));
        let (Phase::After(after), Some(received)) = (&mut self.phase, received) else { return };
        if let Some((before, last)) = &after.last {
            let seconds = (now - *before).as_secs_f64();
            let used = |path: usize| {
                let bits = received[path].saturating_sub(last[path]) as f64 * 8.0;
                bits > self.rates[path].as_bps() as f64 * USED * seconds
            };
            after.waiting.retain(|&path| !used(path));
        }
        after.last = Some((now, received));
        if after.waiting.is_empty() {
            self.phase = Phase::Over(Ok(Some(now - after.since)));
        }
    }
}

impl After {
    /// From now on.
    fn new(waiting: Vec<usize>) -> Self {
        let since = clock::now();
        Self { since, waiting, look_at: since + DRAINED, last: None }
    }
}

/// The rates of the paths' links towards the client; 0 where one is not constant.
pub(crate) fn rates(topology: &Topology) -> Vec<Bitrate> {
    let rate = |path: &PathSpec| match path.down.capacity {
        Capacity::Fixed(rate) => rate,
        _ => Bitrate::from_bps(0),
    };
    topology.links().iter().map(rate).collect()
}
