//! What happens to a network in mid-transfer, and how long it takes until the paths concerned carry data again.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use link::Capacity;

use crate::clock;
use crate::error::Result;
use crate::network::{Network, Topology};
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
    ReaddressServer,
    /// The first path's relay is killed and started again.
    RelayRestart,
}

/// A transfer that something happens to.
pub(crate) struct Disturbance<'a> {
    pub(crate) network: &'a Network,
    pub(crate) topology: &'a Topology,
    pub(crate) ready: &'a mut Ready,
    pub(crate) system: &'a System,
    pub(crate) nawa: &'a Path,
    /// The file's size, and how much of it has arrived.
    pub(crate) bytes: u64,
    pub(crate) received: &'a AtomicU64,
    /// Whether the transfer has ended.
    pub(crate) is_over: &'a dyn Fn() -> bool,
}

/// When every path concerned was used again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UsedAgain {
    /// After the event's end; if `in_time` is false, they were not for at least so long.
    pub(crate) after: Duration,
    pub(crate) in_time: bool,
}

impl Disturbance<'_> {
    /// Lets `event` happen, and waits until every path concerned is used again, at most until the transfer is over; `None` if it was
    /// over before.
    pub(crate) fn run(&mut self, event: Event) -> Result<Option<UsedAgain>> {
        let begins = || self.received.load(Relaxed) as f64 >= self.bytes as f64 * event.at;
        while clock::poll_until(LOOK_EVERY, || (begins() || (self.is_over)()).then_some(())).is_none() {}
        if !begins() {
            return Ok(None);
        }
        let all: Vec<usize> = (0..self.topology.links().len()).collect();
        let mut waiting = match event.change {
            Change::Cut { path, time } => {
                self.network.set_up(path, false);
                if self.is_over_within(time) {
                    return Ok(Some(UsedAgain { after: Duration::ZERO, in_time: false }));
                }
                self.network.set_up(path, true);
                vec![path]
            }
            Change::ReaddressClient => self.network.readdress_client(0).map(|()| vec![0])?,
            Change::ReaddressClientAll => {
                all.iter().try_for_each(|&path| self.network.readdress_client(path)).map(|()| all)?
            }
            Change::Rebind => self.network.rebind(0).map(|()| vec![0])?,
            Change::ReaddressServer => self.network.readdress_server().map(|()| all)?,
            Change::RelayRestart => self.ready.restart_relay(self.network, 0).map(|()| vec![0])?,
        };
        let (since, mut last, mut pause) = (clock::now(), None, DRAINED);
        while !self.is_over_within(pause) {
            pause = LOOK_EVERY;
            let (now, received) = (clock::now(), self.system.received(self.network, self.nawa));
            let Some(received) = received else { continue };
            if let Some((before, last)) = last.replace((now, received.clone())) {
                waiting.retain(|&path| {
                    !self.is_used(path, received[path].saturating_sub(last[path]), now - before)
                });
            }
            if waiting.is_empty() {
                return Ok(Some(UsedAgain { after: now - since, in_time: true }));
            }
        }
        Ok(Some(UsedAgain { after: clock::now() - since, in_time: false }))
    }

    fn is_over_within(&self, limit: Duration) -> bool {
        clock::poll_until(limit, || (self.is_over)().then_some(())).is_some()
    }

    /// Whether so many bytes in `time` are more than probes. Where the link's rate towards the client is not constant, any data counts.
    fn is_used(&self, path: usize, bytes: u64, time: Duration) -> bool {
        let rate = match self.topology.links()[path].down.capacity {
            Capacity::Fixed(rate) => rate.as_bps(),
            _ => 0,
        };
        bytes as f64 * 8.0 > rate as f64 * USED * time.as_secs_f64()
    }
}
