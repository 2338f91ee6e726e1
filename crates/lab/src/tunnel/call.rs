//! A call beside other traffic: packets at a steady rate, and what of them is answered.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use device::poller::{Interest, Poller};

use crate::clock;
use crate::error::{Doing, Error};
use crate::network::Network;

/// From one packet to the next.
const EVERY: Duration = Duration::from_millis(20);

/// Bytes of UDP payload: RTP's header and 20 ms of speech at 19 kbit/s.
const PAYLOAD: usize = 60;

/// How long answers are waited for after the last packet.
const PATIENCE: Duration = Duration::from_secs(3);

const PORT: u16 = 7000;

/// A call until it is stopped or dropped: 50 packets a second from client to server, which sends each back.
#[derive(Debug)]
pub(crate) struct Call {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<Outcome>>>,
}

/// What came of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    /// Of each packet, whether it was answered.
    answered: Vec<bool>,
    /// The longest time between two answers.
    pub(crate) longest_gap: Duration,
}

impl Outcome {
    /// The share of packets that were not answered, 0 to 1.
    pub(crate) fn loss_ratio(&self) -> f64 {
        let lost = self.answered.iter().filter(|&&answered| !answered).count();
        lost as f64 / self.answered.len().max(1) as f64
    }
}

impl Call {
    /// Calls `server` from the client, which leaves with `source` where one is given.
    pub(crate) fn start(network: &Network, source: Option<IpAddr>, server: IpAddr) -> Result<Self, Error> {
        let target = SocketAddr::new(server, PORT);
        let source = SocketAddr::new(source.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), 0);
        let bound = |address| {
            let socket = UdpSocket::bind(address)?;
            socket.set_nonblocking(true).map(|()| socket)
        };
        let far = network.server.run(|| bound(target))?.doing(|| format!("bind {target}"))?;
        let near = network.client.run(|| bound(source).and_then(|near| near.connect(target).map(|()| near)));
        let near = near?.doing(|| format!("reach {target}"))?;
        let over = Arc::new(AtomicBool::new(false));
        let seen = over.clone();
        let thread = std::thread::Builder::new().name("call".into()).spawn(move || talk(&near, &far, &seen));
        Ok(Self { over, thread: Some(thread.doing(|| "start a thread".into())?) })
    }

    /// Ends it, waits for late answers, and says what came of it.
    pub(crate) fn stop(mut self) -> Result<Outcome, Error> {
        self.over.store(true, Relaxed);
        let outcome = self.thread.take().map_or(Ok(Ok(Outcome::default())), JoinHandle::join);
        outcome.unwrap_or_else(|panic| resume_unwind(panic)).doing(|| "make a call".into())
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Both ends of the call, until it is `over` and nothing more is to be expected.
fn talk(near: &UdpSocket, far: &UdpSocket, over: &AtomicBool) -> io::Result<Outcome> {
    let mut poller = Poller::new()?;
    poller.add(near, 0, Interest::Read)?;
    poller.add(far, 1, Interest::Read)?;
    let mut outcome = Outcome::default();
    let (mut next, mut last_sent, mut last_answer) = (clock::now(), clock::now(), None);
    loop {
        let now = clock::now();
        if !over.load(Relaxed) && now >= next {
            // A packet that the kernel refuses is lost.
            let _ = near.send(&packet(outcome.answered.len()));
            outcome.answered.push(false);
            (last_sent, next) = (now, next + EVERY);
        } else if over.load(Relaxed) && (outcome.loss_ratio() == 0.0 || now >= last_sent + PATIENCE) {
            return Ok(outcome);
        }
        let _ = poller
            .wait(Some(next.saturating_duration_since(now).clamp(Duration::from_millis(1), EVERY)))?
            .count();
        echo(far);
        hear(near, &mut outcome, &mut last_answer);
    }
}

/// Packet `number` begins with it.
fn packet(number: usize) -> [u8; PAYLOAD] {
    let mut packet = [0; PAYLOAD];
    packet[..8].copy_from_slice(&(number as u64).to_be_bytes());
    packet
}

fn echo(far: &UdpSocket) {
    let mut buffer = [0; PAYLOAD];
    while let Ok((length, from)) = far.recv_from(&mut buffer) {
        let _ = far.send_to(&buffer[..length], from);
    }
}

fn hear(near: &UdpSocket, outcome: &mut Outcome, last_answer: &mut Option<Instant>) {
    let mut buffer = [0; PAYLOAD];
    while near.recv(&mut buffer).is_ok_and(|length| length == PAYLOAD) {
        let number = buffer.first_chunk().map_or(0, |number| u64::from_be_bytes(*number) as usize);
        let now = clock::now();
        if let Some(answered) = outcome.answered.get_mut(number) {
            *answered = true;
            let gap = now - last_answer.replace(now).unwrap_or(now);
            outcome.longest_gap = outcome.longest_gap.max(gap);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_answered_is_lost() {
        let answered = vec![true, false, true, true];
        assert_eq!(Outcome { answered, ..Outcome::default() }.loss_ratio(), 0.25);
        assert_eq!(Outcome::default().loss_ratio(), 0.0);
    }

    #[test]
    fn an_answered_call_loses_nothing() {
        let bound = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let (near, far) = (bound(), bound());
        near.connect(far.local_addr().unwrap()).unwrap();
        [&near, &far].into_iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
        let over = AtomicBool::new(false);
        let outcome = std::thread::scope(|scope| {
            let call = scope.spawn(|| talk(&near, &far, &over));
            clock::poll_until(Duration::from_millis(100), || None::<()>);
            over.store(true, Relaxed);
            call.join().unwrap().unwrap()
        });
        assert!(!outcome.answered.is_empty() && outcome.loss_ratio() == 0.0);
    }
}
