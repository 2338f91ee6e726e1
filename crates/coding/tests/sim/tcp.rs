//! One TCP connection in virtual time: NewReno under a greatest window, delayed ACKs. A model to compare modes with, not
//! to predict the kernel's.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::common::{ACK, Tcp, tcp};

/// Payload of a full packet of 1500 bytes.
pub const MSS: u32 = 1460;

const RTO: Duration = Duration::from_millis(300);
const DELAYED_ACK: Duration = Duration::from_millis(40);

/// Both ends of a connection that carries data from host `from` to host `to`. Sequence numbers are in segments.
#[derive(Debug)]
pub struct Connection {
    pub from: u8,
    pub to: u8,
    port: u16,
    limit: u32,
    cwnd: f64,
    ssthresh: f64,
    next: u32,
    highest: u32,
    una: u32,
    duplicates: u32,
    recover: u32,
    rto_at: Duration,
    /// When each segment was sent, for the RTT of those sent once.
    sent_at: HashMap<u32, Duration>,
    pub rtts: Vec<Duration>,
    // The receiver.
    pub expected: u32,
    early: BTreeSet<u32>,
    unacknowledged: u32,
    ack_at: Option<Duration>,
    pub acks: u64,
    pub retransmitted: u64,
}

impl Connection {
    pub fn new(from: u8, to: u8, port: u16, limit: u32) -> Connection {
        Connection {
            from,
            to,
            port,
            limit,
            cwnd: 10.0,
            ssthresh: f64::MAX,
            next: 0,
            highest: 0,
            una: 0,
            duplicates: 0,
            recover: 0,
            rto_at: RTO,
            sent_at: Default::default(),
            rtts: Vec::new(),
            expected: 0,
            early: Default::default(),
            unacknowledged: 0,
            ack_at: None,
            acks: 0,
            retransmitted: 0,
        }
    }

    fn window(&self) -> u32 {
        (self.cwnd as u32).clamp(1, self.limit)
    }

    /// The next packet of the sending end, if its window allows one.
    pub fn poll_data(&mut self, now: Duration) -> Option<Vec<u8>> {
        if self.next >= self.una + self.window() {
            return None;
        }
        let seq = self.next;
        self.next += 1;
        Some(self.segment(now, seq))
    }

    fn segment(&mut self, now: Duration, seq: u32) -> Vec<u8> {
        if seq == self.una {
            self.rto_at = now + RTO;
        }
        if seq < self.highest {
            self.retransmitted += 1;
            self.sent_at.remove(&seq);
        } else {
            self.sent_at.insert(seq, now);
        }
        self.highest = self.highest.max(seq + 1);
        let (from, to) = (self.from, self.to);
        let payload = [seq as u8; MSS as usize];
        tcp(Tcp { six: false, from, to, port: self.port, flags: ACK, seq, ack: 0, payload: &payload })
    }

    /// The sending end gets an ACK; it may send one segment again.
    pub fn handle_ack(&mut self, now: Duration, ack: u32) -> Option<Vec<u8>> {
        if ack > self.una {
            self.advance(now, ack);
            if ack < self.recover {
                return Some(self.segment(now, ack));
            }
            return None;
        }
        if ack < self.una || self.next == self.una {
            return None;
        }
        self.duplicates += 1;
        if self.duplicates == 3 && ack >= self.recover {
            self.ssthresh = (self.cwnd.min(self.limit.into()) / 2.0).max(2.0);
            self.cwnd = self.ssthresh;
            self.recover = self.highest;
            return Some(self.segment(now, ack));
        }
        None
    }

    fn advance(&mut self, now: Duration, ack: u32) {
        if let Some(sent) = self.sent_at.get(&(ack - 1)) {
            self.rtts.push(now - *sent);
        }
        for seq in self.una..ack {
            self.sent_at.remove(&seq);
        }
        let newly = f64::from(ack - self.una);
        self.cwnd += if self.cwnd < self.ssthresh { newly } else { newly / self.cwnd };
        self.cwnd = self.cwnd.min(f64::from(self.limit));
        (self.una, self.duplicates, self.rto_at) = (ack, 0, now + RTO);
        self.next = self.next.max(ack);
    }

    /// The receiving end gets data.
    pub fn handle_data(&mut self, now: Duration, seq: u32) -> Option<Vec<u8>> {
        let in_order = seq == self.expected && self.early.is_empty();
        if seq >= self.expected {
            self.early.insert(seq);
        }
        while self.early.remove(&self.expected) {
            self.expected += 1;
        }
        self.unacknowledged += 1;
        if in_order && self.unacknowledged < 2 {
            self.ack_at = Some(now + DELAYED_ACK);
            return None;
        }
        Some(self.ack())
    }

    fn ack(&mut self) -> Vec<u8> {
        (self.unacknowledged, self.ack_at) = (0, None);
        self.acks += 1;
        let (from, to) = (self.to, self.from);
        tcp(Tcp {
            six: false,
            from,
            to,
            port: self.port,
            flags: ACK,
            seq: 0,
            ack: self.expected,
            payload: &[],
        })
    }

    pub fn next_timer(&self) -> Duration {
        self.rto_at.min(self.ack_at.unwrap_or(Duration::MAX))
    }

    /// What timers send at `now`: from the sending end, from the receiving end.
    pub fn handle_timers(&mut self, now: Duration) -> [Option<Vec<u8>>; 2] {
        let ack = self.ack_at.filter(|at| *at <= now).map(|_| self.ack());
        let mut data = None;
        if self.rto_at <= now {
            self.rto_at = now + RTO;
            if self.una < self.highest {
                self.ssthresh = (self.cwnd / 2.0).max(2.0);
                self.cwnd = 1.0;
                self.duplicates = 0;
                self.recover = self.highest;
                self.next = self.una;
                data = self.poll_data(now);
            }
        }
        [data, ack]
    }

    /// Whether a packet is of this connection; its sequence and acknowledgement.
    pub fn reads(&self, packet: &[u8]) -> Option<(u32, u32, bool)> {
        let word = |at: usize| u32::from_be_bytes(packet[at..at + 4].try_into().unwrap());
        let port = u16::from_be_bytes([packet[20], packet[21]]);
        (port == self.port).then(|| (word(24), word(28), packet.len() > 40))
    }
}

/// The mean of RTTs in ms.
pub fn mean_ms(rtts: &[Duration]) -> f64 {
    rtts.iter().sum::<Duration>().as_secs_f64() * 1e3 / rtts.len().max(1) as f64
}
