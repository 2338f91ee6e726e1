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
    /// 2: from either end to the other; 1: only from the first to the last.
    pub(super) ways: usize,
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
    let (bytes, end) = match plan.end {
        End::Packets(packets) => (Some(packets * SEGMENT), limit),
        End::Time(time) => (None, time),
    };
    // The end that each flow comes from.
    let (mut pipes, mut from) = (Pipes::new()?, Vec::new());
    for number in 0..plan.flows {
        for (way, port) in PORTS.into_iter().enumerate().take(plan.ways) {
            let ((source, _), (target, address)) = (hosts[way], hosts[1 - way]);
            let address = SocketAddr::from((address, port.saturating_add(number as u16)));
            let window = plan.window.saturating_mul(SEGMENT as u32);
            pipes.listen((target, address), bytes, (Some(RECEIVE_BUFFER), Some(window)))?;
            pipes.connect(from.len(), (source, address), CONGESTION_CONTROL)?;
            from.push(way);
        }
    }
    let (mut looked, mut rtts) = (Duration::ZERO, Vec::new());
    let has_all = |pipe: &Pipe| bytes.is_some_and(|bytes| pipe.received >= bytes) && is_acknowledged(pipe);
    while !pipes.all.iter().all(has_all) {
        let now = pipes.now();
        if now >= looked + LOOK_EVERY {
            looked = now;
            let begun = pipes.all.iter().filter(|pipe| pipe.received > 0);
            rtts.extend(begun.filter_map(|pipe| Some(tcp::info(pipe.sender.as_ref()?).ok()?.rtt)));
        }
        match plan.end {
            End::Time(_) if now >= end => break,
            End::Packets(_) if now >= end => return Err(Error::late("the transfer did not end", end)),
            _ => pipes.step((looked + LOOK_EVERY).min(end).saturating_sub(now))?,
        }
    }
    let last = pipes.all.iter().map(|pipe| pipe.last).max().unwrap_or_default();
    let time = if bytes.is_some() { last } else { pipes.now() };
    let rtt = rtts.iter().sum::<Duration>() / rtts.len().max(1) as u32;
    let mut outcome = Outcome { time, rtt, ..Outcome::default() };
    for (pipe, from) in pipes.all.iter().zip(from) {
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

/// Whether all ACKs have come, so that what nodes counted is all that the transfer made them send.
fn is_acknowledged(pipe: &Pipe) -> bool {
    pipe.sender.as_ref().is_some_and(|sender| tcp::info(sender).is_ok_and(|sender| sender.unacked == 0))
}

/// Of receivers: so much that nothing else limits it, and that the kernel leaves it alone.
const RECEIVE_BUFFER: u32 = 2 << 20;
