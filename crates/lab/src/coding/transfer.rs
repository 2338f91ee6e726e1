//! TCP transfers between the ends of a chain: one thread moves the bytes of all, and looks at their round-trip times.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use device::tcp::{self, TcpInfo};

use crate::error::{Doing, Error, Result};
use crate::flows::pipes::{Pipe, Pipes};
use crate::namespace::Namespace;
use crate::statistics::mbps;

use super::bound::Sent;

/// The payload of a full segment.
pub(super) const SEGMENT: u64 = 1448;

const CONGESTION_CONTROL: &str = "cubic";

/// The port of the first transfer from the first end, and of the first from the other.
const PORTS: [u16; 2] = [5001, 6001];

/// How often round-trip times are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// An end of a chain, and its address.
pub(super) type Host<'a> = (&'a Namespace, Ipv4Addr);

#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// So many at once, each way that there are any.
    pub(super) flows: usize,
    /// From either end to the other, or only from the first to the last.
    pub(super) both_ways: bool,
    /// The window that receivers advertise at most, in segments.
    pub(super) window: u32,
    pub(super) end: End,
}

/// When a transfer is over.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// When so many full segments of each flow have arrived, and the last ACK.
    Packets(u64),
    /// After so long.
    Time(Duration),
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcome {
    /// Payload that reached the receiving programs.
    bytes: u64,
    /// From the start to the last byte, or to the end.
    time: Duration,
    /// The mean of the senders' smoothed round-trip times.
    pub(super) rtt: Duration,
    /// What the first end sent, and the last.
    pub(super) there: Sent,
    pub(super) back: Sent,
    /// Segments sent again.
    pub(super) retransmitted: u64,
    /// The greatest window, in bytes, that a receiver advertises at the end.
    pub(super) window: u32,
}

impl Outcome {
    pub(super) fn goodput_mbps(&self) -> f64 {
        mbps(self.bytes, self.time)
    }

    /// Full segments that arrived.
    pub(super) fn segments(&self) -> f64 {
        self.bytes as f64 / SEGMENT as f64
    }

    pub(super) fn data_per_ack(&self) -> f64 {
        (self.there.data + self.back.data) as f64 / ((self.there.acks + self.back.acks) as f64).max(1.0)
    }
}

/// Carries out `plan` between two `hosts`. Fails if it takes longer than `limit`.
pub(super) fn run(hosts: [Host; 2], plan: &Plan, limit: Duration) -> Result<Outcome> {
    let mut transfer = Transfer::start(hosts, plan)?;
    while !transfer.is_over(plan, limit)? {
        transfer.step(plan)?;
    }
    transfer.outcome(plan)
}

struct Transfer {
    pipes: Pipes,
    /// The end that each flow comes from: 0 or 1.
    from: Vec<usize>,
    looked: Duration,
    /// The sum of the round-trip times looked at, and how many.
    rtts: (Duration, u32),
}

impl Transfer {
    fn start(hosts: [Host; 2], plan: &Plan) -> Result<Self> {
        let ways = if plan.both_ways { 2 } else { 1 };
        let mut transfer = Self {
            pipes: Pipes::new()?,
            from: Vec::new(),
            looked: Duration::ZERO,
            rtts: (Duration::ZERO, 0),
        };
        for number in 0..plan.flows {
            for from in 0..ways {
                transfer.begin([hosts[from], hosts[1 - from]], from, number, plan)?;
            }
        }
        Ok(transfer)
    }

    /// A flow from the first of two hosts, end `from`, to the second.
    fn begin(
        &mut self,
        [(source, _), (target, address)]: [Host; 2],
        from: usize,
        number: usize,
        plan: &Plan,
    ) -> Result<()> {
        let port = PORTS[from].saturating_add(u16::try_from(number).unwrap_or(u16::MAX));
        let address = SocketAddr::from((address, port));
        let window = plan.window.saturating_mul(SEGMENT as u32);
        let bytes = if let End::Packets(packets) = plan.end { Some(packets * SEGMENT) } else { None };
        self.pipes.listen((target, address), bytes, (Some(RECEIVE_BUFFER), Some(window)))?;
        self.pipes.connect(self.from.len(), (source, address), CONGESTION_CONTROL)?;
        self.from.push(from);
        Ok(())
    }

    fn is_over(&self, plan: &Plan, limit: Duration) -> Result<bool> {
        let now = self.pipes.now();
        match plan.end {
            End::Time(time) => Ok(now >= time),
            End::Packets(packets) if now < limit => {
                let has_all = |pipe: &Pipe| pipe.received >= packets * SEGMENT && is_acknowledged(pipe);
                Ok(self.pipes.all.iter().all(has_all))
            }
            End::Packets(_) => {
                Err(Error::Late { what: "the transfer did not end".into(), seconds: limit.as_secs() })
            }
        }
    }

    /// Moves what can be moved, and looks at round-trip times when it is time to.
    fn step(&mut self, plan: &Plan) -> Result<()> {
        let end = if let End::Time(time) = plan.end { time } else { Duration::MAX };
        let next = (self.looked + LOOK_EVERY).min(end);
        self.pipes.step(next.saturating_sub(self.pipes.now()))?;
        let now = self.pipes.now();
        if now >= self.looked + LOOK_EVERY {
            self.looked = now;
            let begun = self.pipes.all.iter().filter(|pipe| pipe.received > 0);
            let rtts = begun.filter_map(|pipe| Some(tcp::info(pipe.sender.as_ref()?).ok()?.rtt));
            self.rtts = rtts.fold(self.rtts, |(sum, count), rtt| (sum + rtt, count + 1));
        }
        Ok(())
    }

    fn outcome(&self, plan: &Plan) -> Result<Outcome> {
        let (sum, looks) = self.rtts;
        let last = self.pipes.all.iter().map(|pipe| pipe.last).max().unwrap_or_default();
        let time = if let End::Time(_) = plan.end { self.pipes.now() } else { last };
        let mut outcome = Outcome { time, rtt: sum / looks.max(1), ..Outcome::default() };
        for (pipe, &from) in self.pipes.all.iter().zip(&self.from) {
            let info = |end: &Option<OwnedFd>| end.as_ref().map_or(Ok(TcpInfo::default()), tcp::info);
            let both = info(&pipe.sender).and_then(|sender| Ok((sender, info(&pipe.receiver)?)));
            let (sender, receiver) = both.doing(|| "ask for the state of a flow".into())?;
            let ends = [&mut outcome.there, &mut outcome.back];
            ends[from].data += u64::from(sender.segments_sent);
            ends[1 - from].acks += u64::from(receiver.segments_sent);
            outcome.bytes += pipe.received;
            outcome.retransmitted += u64::from(sender.retransmitted);
            outcome.window = outcome.window.max(sender.snd_wnd);
        }
        Ok(outcome)
    }
}

/// Whether all ACKs have come, so that what nodes counted is all that the transfer made them send.
fn is_acknowledged(pipe: &Pipe) -> bool {
    pipe.sender.as_ref().is_some_and(|sender| tcp::info(sender).is_ok_and(|sender| sender.unacked == 0))
}

/// Of receivers: so much that nothing else limits it, and that the kernel leaves it alone.
const RECEIVE_BUFFER: u32 = 2 << 20;
