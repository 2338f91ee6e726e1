//! A call beside other traffic: packets at a steady rate, and what of them is answered.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use device::poller::{Interest, Poller};

use crate::background::Background;
use crate::clock;
use crate::error::{Doing, Result};
use crate::namespace::Namespace;

/// From one packet to the next.
const EVERY: Duration = Duration::from_millis(20);

/// Bytes of UDP payload: RTP's header and 20 ms of speech at 19 kbit/s.
const PAYLOAD: usize = 60;

/// How long answers are waited for after the last packet.
const PATIENCE: Duration = Duration::from_secs(3);

/// The UDP port of the end that answers.
const PORT: u16 = 7000;

/// A call until it is stopped or dropped: 50 packets a second, each sent back.
#[derive(Debug)]
pub(crate) struct Call(Background<io::Result<Outcome>>);

/// What came of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    /// The round trip of each packet; `None` if it was not answered.
    pub(crate) round_trips: Vec<Option<Duration>>,
    /// The longest time between two answers.
    pub(crate) longest_gap: Duration,
}

impl Outcome {
    /// The share of packets that were not answered within `limit`, 0 to 1.
    pub(crate) fn loss_ratio(&self, limit: Duration) -> f64 {
        let answered = self.round_trips.iter().flatten().filter(|time| **time <= limit).count();
        let sent = self.round_trips.len();
        (sent - answered) as f64 / sent.max(1) as f64
    }

    /// How long each packet waited for its answer, at most `limit`: what never comes is no better than what comes late.
    pub(crate) fn waits(&self, limit: Duration) -> Vec<Duration> {
        self.round_trips.iter().map(|time| time.unwrap_or(limit).min(limit)).collect()
    }
}

impl Call {
    /// Calls `server`, an address of `far`, from `near`, which leaves with `source` where one is given.
    pub(crate) fn start(
        near: &Namespace,
        far: &Namespace,
        source: Option<IpAddr>,
        server: IpAddr,
    ) -> Result<Self> {
        let target = SocketAddr::new(server, PORT);
        let source = SocketAddr::new(source.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), 0);
        let (far, near) = (far.udp(target)?, near.udp(source)?);
        near.connect(target).doing(|| format!("reach {target}"))?;
        Background::start("call", move |over| talk(&near, &far, over)).map(Self)
    }

    /// Ends it, waits for late answers, and says what came of it.
    pub(crate) fn stop(self) -> Result<Outcome> {
        self.0.stop().unwrap_or_else(|| Ok(Outcome::default())).doing(|| "make a call".into())
    }
}

/// Both ends of the call, until it is `over` and nothing more is to be expected.
fn talk(near: &UdpSocket, far: &UdpSocket, over: &AtomicBool) -> io::Result<Outcome> {
    let mut poller = Poller::new()?;
    poller.add(near, 0, Interest::Read)?;
    poller.add(far, 1, Interest::Read)?;
    let (mut sent, mut outcome) = (Vec::new(), Outcome::default());
    let (mut next, mut last_answer) = (clock::now(), None);
    loop {
        let (now, over) = (clock::now(), over.load(Relaxed));
        if !over && now >= next {
            // It begins with its number. One that the kernel refuses is lost.
            let mut packet = [0; PAYLOAD];
            packet[..8].copy_from_slice(&(sent.len() as u64).to_be_bytes());
            let _ = near.send(&packet);
            sent.push(now);
            outcome.round_trips.push(None);
            next += EVERY;
        }
        let waits = sent.last().is_some_and(|last| now < *last + PATIENCE);
        if over && !(waits && outcome.round_trips.contains(&None)) {
            return Ok(outcome);
        }
        let wait = next.saturating_duration_since(now).clamp(Duration::from_millis(1), EVERY);
        let _ = poller.wait(Some(wait))?.count();
        echo(far);
        hear(near, &sent, &mut outcome, &mut last_answer);
    }
}

fn echo(far: &UdpSocket) {
    let mut buffer = [0; PAYLOAD];
    while let Ok((length, from)) = far.recv_from(&mut buffer) {
        let _ = far.send_to(&buffer[..length], from);
    }
}

fn hear(near: &UdpSocket, sent: &[Instant], outcome: &mut Outcome, last_answer: &mut Option<Instant>) {
    let mut buffer = [0; PAYLOAD];
    while near.recv(&mut buffer).is_ok_and(|length| length == PAYLOAD) {
        let number = buffer.first_chunk().map_or(0, |number| u64::from_be_bytes(*number) as usize);
        let now = clock::now();
        if let Some((at, took)) = sent.get(number).zip(outcome.round_trips.get_mut(number)) {
            took.get_or_insert(now - *at);
            let gap = now - last_answer.replace(now).unwrap_or(now);
            outcome.longest_gap = outcome.longest_gap.max(gap);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_answered_in_time_is_lost() {
        let ms = Duration::from_millis;
        let round_trips = vec![Some(ms(1)), None, Some(ms(2000)), Some(ms(2))];
        let outcome = Outcome { round_trips, ..Outcome::default() };
        assert_eq!([outcome.loss_ratio(Duration::MAX), outcome.loss_ratio(ms(1000))], [0.25, 0.5]);
    }

    #[test]
    fn an_answered_call_loses_nothing() {
        let bound = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let lasting = |time| {
            let (near, far) = (bound(), bound());
            near.connect(far.local_addr().unwrap()).unwrap();
            [&near, &far].into_iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
            let call = Call(Background::start("call", move |over| talk(&near, &far, over)).unwrap());
            clock::poll_until(time, || None::<()>);
            call.stop().unwrap()
        };
        // A thread that waits for a processor says nothing in a short one.
        let mut calls = [100, 1000, 10_000].map(Duration::from_millis).into_iter().map(lasting);
        let outcome = calls.find(|outcome| !outcome.round_trips.is_empty()).unwrap();
        assert_eq!(outcome.loss_ratio(PATIENCE), 0.0);
    }
}
