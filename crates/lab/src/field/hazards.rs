//! Hazard messages: the front vehicle warns all others, again and again.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use device::monotonic;
use flood::{Client, ClientError};

use super::convoy::{Convoy, FRONT, VEHICLES};
use super::traffic::spawn;
use crate::error::Error;

/// From one message to the next, and its bytes: where, how fast, what.
const EVERY: Duration = Duration::from_millis(100);
const BYTES: usize = 100;
/// How long a thread waits before it looks whether it is to end, or tries again.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// For the last message to arrive.
const PATIENCE: Duration = Duration::from_secs(1);

/// Messages until they are stopped or dropped.
pub(super) struct Hazards {
    over: [Arc<AtomicBool>; 2],
    sender: Option<JoinHandle<BTreeMap<u64, Duration>>>,
    receivers: Vec<JoinHandle<BTreeMap<u64, Duration>>>,
}

/// What came of them.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// How many should have come, over all receivers.
    pub(super) due: usize,
    /// How long each took that did.
    pub(super) took: Vec<Duration>,
}

impl Hazards {
    /// Begins.
    pub(super) fn start(convoy: &Convoy, interface: &'static str) -> Result<Self, Error> {
        let over = [Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false))];
        let mut receivers = Vec::new();
        for vehicle in (0..VEHICLES).filter(|vehicle| *vehicle != FRONT) {
            let (path, over) = (convoy.vehicle(vehicle).path(), over[1].clone());
            receivers.push(spawn("warned", move || hear(&path, interface, &over))?);
        }
        let (path, ended) = (convoy.vehicle(FRONT).path(), over[0].clone());
        let sender = Some(spawn("warns", move || warn(&path, interface, &ended))?);
        Ok(Self { over, sender, receivers })
    }

    /// Ends them.
    pub(super) fn stop(mut self) -> Outcome {
        self.over[0].store(true, Relaxed);
        let sent = self.sender.take().and_then(|sender| sender.join().ok()).unwrap_or_default();
        crate::clock::poll_until(PATIENCE, || None::<()>);
        self.over[1].store(true, Relaxed);
        let mut outcome = Outcome::default();
        for receiver in std::mem::take(&mut self.receivers) {
            let heard = receiver.join().unwrap_or_default();
            outcome.due += sent.len();
            let took = sent.iter().filter_map(|(number, at)| Some(heard.get(number)?.saturating_sub(*at)));
            outcome.took.extend(took);
        }
        outcome
    }
}

impl Drop for Hazards {
    fn drop(&mut self) {
        self.over.iter().for_each(|over| over.store(true, Relaxed));
        let _ = self.sender.take().map(JoinHandle::join);
        for receiver in self.receivers.drain(..) {
            let _ = receiver.join();
        }
    }
}

fn connect(namespace: &Path, interface: &str) -> Option<Client> {
    let client = device::netns::run_in(namespace, || Client::connect(interface)).ok()?;
    client.ok()
}

/// Sends; when each message was due.
fn warn(namespace: &Path, interface: &str, over: &AtomicBool) -> BTreeMap<u64, Duration> {
    let (mut sent, mut client, mut next) = (BTreeMap::new(), None, monotonic());
    while !over.load(Relaxed) {
        let now = monotonic();
        if now < next {
            std::thread::park_timeout(next - now);
            continue;
        }
        let number = sent.len() as u64;
        sent.insert(number, next);
        next += EVERY;
        let mut message = [0; BYTES];
        message[..8].copy_from_slice(&number.to_be_bytes());
        client = client.or_else(|| connect(namespace, interface));
        let refused = client.as_ref().is_some_and(|client| {
            matches!(client.send(0, &message), Err(ClientError::Closed | ClientError::System(_)))
        });
        if refused {
            client = None;
        }
    }
    sent
}

/// Receives; when each message came.
fn hear(namespace: &Path, interface: &str, over: &AtomicBool) -> BTreeMap<u64, Duration> {
    let mut heard = BTreeMap::new();
    while !over.load(Relaxed) {
        match connect(namespace, interface).filter(|client| client.listen().is_ok()) {
            Some(client) => hear_from(&client, over, &mut heard),
            None => std::thread::park_timeout(LOOK_EVERY),
        }
    }
    heard
}

/// Until the node is gone.
fn hear_from(client: &Client, over: &AtomicBool, heard: &mut BTreeMap<u64, Duration>) {
    while !over.load(Relaxed) {
        match client.recv(Some(LOOK_EVERY)) {
            Ok(Some(message)) => {
                let now = monotonic();
                if let Some(number) = message.data.first_chunk() {
                    heard.entry(u64::from_be_bytes(*number)).or_insert(now);
                }
            }
            Ok(None) => {}
            Err(_) => return,
        }
    }
}
