//! One end of a connection: the handshake, and packets for both halves.

use std::time::Duration;

use crate::ack::Acknowledgement;
use crate::receiver::{self, Receiver};
use crate::segment::{ACK, HEADERS, PSH, SYN, Segment, Socket, TIMESTAMPS, timestamp};
use crate::sender::{CongestionControl, Sender};

/// A SYN is sent again after so long, doubled each time.
const SYN_TIMEOUT: Duration = Duration::from_secs(1);

/// What a connection is.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Of the sender at this end.
    pub control: CongestionControl,
    /// The IP packets that this end's interface takes, bytes.
    pub mtu: u16,
    /// This end sends so many bytes, then no more.
    pub send: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Waits for a SYN.
    Listening,
    /// Sent a SYN, or one with an ACK, since when; and how often.
    Calling {
        since: Duration,
        times: u32,
        owed: bool,
    },
    Established,
}

/// One end of a connection. It begins with a SYN or waits for one.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    from: Socket,
    to: Socket,
    phase: Phase,
    heard: bool,
    initial: u32,
    peer_initial: u32,
    scale: u8,
    mss: u64,
    id: u16,
    newest_timestamp: u32,
    established: Option<Duration>,
    halves: Option<(Sender, Receiver)>,
}

impl Connection {
    /// This end calls the other.
    pub fn connect(now: Duration, config: Config, from: Socket, to: Socket) -> Connection {
        let phase = Phase::Calling { since: now, times: 0, owed: true };
        Connection { phase, ..Connection::listen(config, from, to) }
    }

    /// This end waits for the other.
    pub fn listen(config: Config, from: Socket, to: Socket) -> Connection {
        Connection {
            config,
            from,
            to,
            phase: Phase::Listening,
            heard: false,
            // Anything: it wraps within the first gigabytes.
            initial: u32::from(from.port).wrapping_mul(0x9e37_79b1),
            peer_initial: 0,
            scale: 0,
            mss: u64::from(config.mtu) - HEADERS as u64 - TIMESTAMPS as u64,
            id: 0,
            newest_timestamp: 0,
            established: None,
            halves: None,
        }
    }

    /// Whether a packet from `from` to `to` is of this connection.
    pub fn is_between(&self, from: Socket, to: Socket) -> bool {
        (from, to) == (self.to, self.from)
    }

    /// The sending half, once there is a connection.
    pub fn sender(&self) -> Option<&Sender> {
        self.halves.as_ref().map(|(sender, _)| sender)
    }

    /// When this end came to know of the connection.
    pub fn established(&self) -> Option<Duration> {
        self.established
    }

    /// Bytes that arrived in order.
    pub fn received(&self) -> u64 {
        self.halves.as_ref().map_or(0, |(_, receiver)| receiver.received())
    }

    /// A segment arrives.
    pub fn handle(&mut self, now: Duration, segment: &Segment) {
        if let Some((value, _)) = segment.timestamps {
            self.newest_timestamp = value;
        }
        if segment.flags & SYN != 0 {
            self.handle_syn(now, segment);
            return;
        }
        if let Phase::Calling { since, times, .. } = self.phase
            && self.heard
        {
            self.establish(now, if times == 1 { now - since } else { Duration::ZERO });
        }
        let (initial, peer_initial) = (self.initial, self.peer_initial);
        let Some((sender, receiver)) = &mut self.halves else { return };
        let echo = segment.timestamps.map(|(_, echo)| echo);
        if segment.len > 0 {
            let start = unwrap(segment.seq.wrapping_sub(peer_initial).wrapping_sub(1), receiver.received());
            let (value, echo) = segment.timestamps.unwrap_or_default();
            let age = Duration::from_millis(u64::from(timestamp(now).wrapping_sub(echo)));
            receiver.handle_data(now, (start, start + segment.len as u64), value, echo, age);
        }
        let place = |number: u32| unwrap(number.wrapping_sub(initial).wrapping_sub(1), sender.acknowledged());
        let ack = Acknowledgement {
            ack: place(segment.ack),
            window: u64::from(segment.window) << self.scale,
            blocks: segment.sacks.iter().map(|(start, end)| (place(*start), place(*end))).collect(),
            echo,
        };
        sender.handle_ack(now, &ack);
    }

    fn handle_syn(&mut self, now: Duration, segment: &Segment) {
        if self.heard {
            // It comes again: what answered it was lost.
            if let Phase::Calling { owed, .. } = &mut self.phase {
                *owed = true;
            } else if let Some((_, receiver)) = &mut self.halves {
                receiver.ask_for_ack();
            }
            return;
        }
        self.heard = true;
        self.peer_initial = segment.seq;
        self.scale = segment.scale.unwrap_or(0);
        let mss = u64::from(segment.mss.unwrap_or(536)) - TIMESTAMPS as u64;
        self.mss = self.mss.min(mss);
        match self.phase {
            Phase::Calling { since, times, .. } => {
                self.establish(now, if times == 1 { now - since } else { Duration::ZERO });
                if let Some((sender, receiver)) = &mut self.halves {
                    // The window of a SYN is not scaled.
                    let ack =
                        Acknowledgement { window: u64::from(segment.window), ..Acknowledgement::default() };
                    sender.handle_ack(now, &ack);
                    receiver.ask_for_ack();
                }
            }
            _ => self.phase = Phase::Calling { since: now, times: 0, owed: true },
        }
    }

    fn establish(&mut self, now: Duration, rtt: Duration) {
        self.phase = Phase::Established;
        self.established = Some(now);
        let sender = Sender::new(now, self.config.control, self.mss, self.config.send, rtt);
        self.halves = Some((sender, Receiver::new(now, self.mss)));
    }

    /// When [`Connection::handle_timeout`] and [`Connection::poll_transmit`] are due.
    pub fn poll_timeout(&self, now: Duration) -> Option<Duration> {
        if let Phase::Calling { since, times, .. } = self.phase {
            return Some(since + SYN_TIMEOUT * (1 << times.saturating_sub(1).min(6)));
        }
        let (sender, receiver) = self.halves.as_ref()?;
        sender.poll_timeout(now).into_iter().chain(receiver.poll_timeout()).min()
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Duration) {
        let due = self.poll_timeout(now).is_some_and(|at| at <= now);
        if let Phase::Calling { owed, .. } = &mut self.phase {
            *owed |= due;
        } else if let Some((sender, _)) = &mut self.halves {
            sender.handle_timeout(now);
        }
    }

    /// The next packet to be sent.
    pub fn poll_transmit(&mut self, now: Duration) -> Option<Vec<u8>> {
        let segment = match &mut self.phase {
            Phase::Listening => return None,
            Phase::Calling { owed: false, .. } => return None,
            Phase::Calling { since, times, owed } => {
                (*since, *times, *owed) = (now, *times + 1, false);
                self.syn(now)
            }
            Phase::Established => self.next_segment(now)?,
        };
        self.id = self.id.wrapping_add(1);
        Some(segment.encode(self.id, self.from, self.to))
    }

    fn syn(&self, now: Duration) -> Segment {
        Segment {
            flags: if self.heard { SYN | ACK } else { SYN },
            seq: self.initial,
            ack: if self.heard { self.peer_initial.wrapping_add(1) } else { 0 },
            window: u16::MAX,
            mss: Some(self.config.mtu - HEADERS as u16),
            scale: Some(receiver::SCALE),
            timestamps: Some((timestamp(now), self.newest_timestamp)),
            ..Segment::default()
        }
    }

    fn next_segment(&mut self, now: Duration) -> Option<Segment> {
        let (sender, receiver) = self.halves.as_mut()?;
        let out = sender.poll(now);
        if out.is_none() && !receiver.wants_ack(now) {
            return None;
        }
        let next = sender.next_byte();
        let (start, len) = out.map_or((next, 0), |out| (out.start, out.len));
        let echo = if receiver.received() == 0 { self.newest_timestamp } else { receiver.echo() };
        let (ack, window, blocks) = receiver.take_ack(now);
        let wire = |byte: u64, initial: u32| initial.wrapping_add(1).wrapping_add(byte as u32);
        Some(Segment {
            flags: if len > 0 && start + len as u64 == self.config.send { ACK | PSH } else { ACK },
            seq: wire(start, self.initial),
            ack: wire(ack, self.peer_initial),
            window: (window >> receiver::SCALE).min(u64::from(u16::MAX)) as u16,
            timestamps: Some((timestamp(now), echo)),
            sacks: blocks
                .iter()
                .map(|(start, end)| (wire(*start, self.peer_initial), wire(*end, self.peer_initial)))
                .collect(),
            len,
            ..Segment::default()
        })
    }
}

/// The place in the stream whose lower 32 bits are `low` that is nearest to `near`.
fn unwrap(low: u32, near: u64) -> u64 {
    let ahead = i64::from(low.wrapping_sub(near as u32).cast_signed());
    near.saturating_add_signed(ahead)
}
