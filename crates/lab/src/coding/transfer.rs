//! TCP transfers between the ends of a chain: one thread moves the bytes of all, and looks at their round-trip times.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use device::poller::{Interest, Poller};
use device::tcp::{self, TcpInfo};

use crate::clock;
use crate::error::{Doing, Error};
use crate::flows::socket;
use crate::namespace::Namespace;

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

/// What is transferred.
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

/// What was transferred.
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
        self.bytes as f64 * 8e-6 / self.time.as_secs_f64().max(1e-9)
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
pub(super) fn run(hosts: [Host; 2], plan: &Plan, limit: Duration) -> Result<Outcome, Error> {
    let mut transfer = Transfer::start(hosts, plan)?;
    while !transfer.is_over(plan, limit)? {
        transfer.step(plan)?;
    }
    transfer.outcome(plan)
}

struct Transfer {
    poller: Poller,
    flows: Vec<Flow>,
    started: Instant,
    buffer: Vec<u8>,
    looked: Duration,
    /// The sum of the round-trip times looked at, and how many.
    rtts: (Duration, u32),
}

/// One flow's sockets, and how far it is.
struct Flow {
    /// The end that it comes from: 0 or 1.
    from: usize,
    listener: OwnedFd,
    sender: OwnedFd,
    receiver: Option<OwnedFd>,
    /// What the receiver is to advertise at most, in bytes.
    window: u32,
    unsent: u64,
    received: u64,
    /// When the last byte came.
    last: Duration,
}

/// What of a flow a token of the poller is: the token is three times the flow's index, plus this.
const LISTENER: u64 = 0;
const RECEIVER: u64 = 1;
const SENDER: u64 = 2;

impl Transfer {
    fn start(hosts: [Host; 2], plan: &Plan) -> Result<Self, Error> {
        let ways = if plan.both_ways { 2 } else { 1 };
        let poller = Poller::new().doing(|| "make an epoll instance".into())?;
        let started = clock::now();
        let mut flows = Vec::new();
        for number in 0..plan.flows {
            for from in 0..ways {
                let flow = Flow::start([hosts[from], hosts[1 - from]], from, number, plan)?;
                let token = 3 * flows.len() as u64;
                poller
                    .add(&flow.listener, token + LISTENER, Interest::Read)
                    .and_then(|()| poller.add(&flow.sender, token + SENDER, Interest::Write))
                    .doing(|| "wait for a socket".into())?;
                flows.push(flow);
            }
        }
        let (buffer, looked, rtts) = (vec![0; 1 << 16], Duration::ZERO, (Duration::ZERO, 0));
        Ok(Self { poller, flows, started, buffer, looked, rtts })
    }

    fn now(&self) -> Duration {
        clock::now() - self.started
    }

    fn is_over(&self, plan: &Plan, limit: Duration) -> Result<bool, Error> {
        let now = self.now();
        match plan.end {
            End::Time(time) => Ok(now >= time),
            End::Packets(packets) if now < limit => {
                Ok(self.flows.iter().all(|flow| flow.received >= packets * SEGMENT && flow.is_acknowledged()))
            }
            End::Packets(_) => {
                Err(Error::Late { what: "the transfer did not end".into(), seconds: limit.as_secs() })
            }
        }
    }

    /// Moves what can be moved, and looks at round-trip times when it is time to.
    fn step(&mut self, plan: &Plan) -> Result<(), Error> {
        let end = if let End::Time(time) = plan.end { time } else { Duration::MAX };
        let next = (self.looked + LOOK_EVERY).min(end);
        let ready = self.poller.wait(Some(next.saturating_sub(self.now())));
        let tokens: Vec<u64> = ready.doing(|| "wait for sockets".into())?.map(|ready| ready.token).collect();
        let now = self.now();
        for token in tokens {
            let Some(flow) = self.flows.get_mut((token / 3) as usize) else { continue };
            let moved = match token % 3 {
                LISTENER => flow.accept(&self.poller, token - LISTENER + RECEIVER),
                RECEIVER => flow.receive(&mut self.buffer, now),
                _ => flow.send(&self.poller, &self.buffer),
            };
            moved.doing(|| "transfer over a chain".into())?;
        }
        if now >= self.looked + LOOK_EVERY {
            self.looked = now;
            let rtts = self.flows.iter().filter(|flow| flow.received > 0);
            let rtts = rtts.filter_map(|flow| Some(tcp::info(&flow.sender).ok()?.rtt));
            self.rtts = rtts.fold(self.rtts, |(sum, count), rtt| (sum + rtt, count + 1));
        }
        Ok(())
    }

    fn outcome(&self, plan: &Plan) -> Result<Outcome, Error> {
        let (sum, looks) = self.rtts;
        let last = self.flows.iter().map(|flow| flow.last).max().unwrap_or_default();
        let time = if let End::Time(_) = plan.end { self.now() } else { last };
        let mut outcome = Outcome { time, rtt: sum / looks.max(1), ..Outcome::default() };
        for flow in &self.flows {
            let (sender, receiver) = flow.infos().doing(|| "ask for the state of a flow".into())?;
            let ends = [&mut outcome.there, &mut outcome.back];
            ends[flow.from].data += u64::from(sender.segments_sent);
            ends[1 - flow.from].acks += u64::from(receiver.segments_sent);
            outcome.bytes += flow.received;
            outcome.retransmitted += u64::from(sender.retransmitted);
            outcome.window = outcome.window.max(sender.snd_wnd);
        }
        Ok(outcome)
    }
}

impl Flow {
    /// From the first of two hosts, end `from`, to the second.
    fn start(
        [(source, _), (target, address)]: [Host; 2],
        from: usize,
        number: usize,
        plan: &Plan,
    ) -> Result<Self, Error> {
        let port = PORTS[from].saturating_add(u16::try_from(number).unwrap_or(u16::MAX));
        let address = SocketAddr::from((address, port));
        let listener = target.run(|| socket::listen(address, Some(RECEIVE_BUFFER)))?;
        let listener = listener.doing(|| format!("listen at {address}"))?;
        let window = plan.window.saturating_mul(SEGMENT as u32);
        // What has been advertised once is not taken back: the first window has to be small too.
        tcp::clamp_window(&listener, window).doing(|| "limit a receiver's window".into())?;
        let sender = source.run(|| socket::connect(address, CONGESTION_CONTROL))?;
        let sender = sender.doing(|| format!("connect to {address}"))?;
        let unsent = if let End::Packets(packets) = plan.end { packets * SEGMENT } else { u64::MAX };
        Ok(Self { from, listener, sender, receiver: None, window, unsent, received: 0, last: Duration::ZERO })
    }

    fn accept(&mut self, poller: &Poller, token: u64) -> std::io::Result<()> {
        if let Some(receiver) = socket::accept(&self.listener)? {
            poller.add(&receiver, token, Interest::Read)?;
            self.receiver = Some(receiver);
        }
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8], now: Duration) -> std::io::Result<()> {
        let Some(receiver) = &self.receiver else { return Ok(()) };
        let bytes = socket::receive(receiver, buffer)?;
        tcp::clamp_window(receiver, self.window)?;
        if bytes > 0 {
            self.received += bytes;
            self.last = now;
        }
        Ok(())
    }

    fn send(&mut self, poller: &Poller, content: &[u8]) -> std::io::Result<()> {
        let length = content.len().min(usize::try_from(self.unsent).unwrap_or(usize::MAX));
        self.unsent -= socket::send(&self.sender, &content[..length])?;
        if self.unsent == 0 { poller.remove(&self.sender) } else { Ok(()) }
    }

    /// Whether all ACKs have come, so that what nodes counted is all that the transfer made them send.
    fn is_acknowledged(&self) -> bool {
        tcp::info(&self.sender).is_ok_and(|sender| sender.unacked == 0)
    }

    /// The state of the sender and of the receiver.
    fn infos(&self) -> std::io::Result<(TcpInfo, TcpInfo)> {
        let receiver = self.receiver.as_ref().map(tcp::info).transpose()?;
        Ok((tcp::info(&self.sender)?, receiver.unwrap_or_default()))
    }
}

/// Of receivers: so much that nothing else limits it, and that the kernel leaves it alone.
const RECEIVE_BUFFER: u32 = 2 << 20;
