//! Hazard messages: the front vehicle warns all others, again and again.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use device::monotonic;
use flood::{Client, ClientError};

use super::convoy::{Convoy, FRONT, VEHICLES};
use crate::background::Background;
use crate::error::Result;

/// From one message to the next, and its bytes: where, how fast, what.
const EVERY: Duration = Duration::from_millis(100);
const BYTES: usize = 100;
/// How long a thread waits before it looks whether it is to end, or tries again.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// For the last message to arrive.
const PATIENCE: Duration = Duration::from_secs(1);

/// Messages until they are stopped or dropped: when each was due, or came, by its number.
pub(super) struct Hazards {
    sender: Background<BTreeMap<u64, Duration>>,
    receivers: Vec<Background<BTreeMap<u64, Duration>>>,
}

#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// How many should have come, over all receivers.
    pub(super) due: usize,
    /// How long each took that did.
    pub(super) took: Vec<Duration>,
}

impl Hazards {
    pub(super) fn start(convoy: &Convoy, interface: &'static str) -> Result<Self> {
        let receiver = |vehicle| {
            let path = convoy.vehicle(vehicle).path();
            Background::start("warned", move |over| hear(&path, interface, over))
        };
        let receivers = (0..VEHICLES).filter(|vehicle| *vehicle != FRONT).map(receiver);
        let receivers = receivers.collect::<Result<_>>()?;
        let path = convoy.vehicle(FRONT).path();
        let sender = Background::start("warns", move |over| warn(&path, interface, over))?;
        Ok(Self { sender, receivers })
    }

    pub(super) fn stop(self) -> Outcome {
        let sent = self.sender.stop().unwrap_or_default();
        crate::clock::poll_until(PATIENCE, || None::<()>);
        let mut outcome = Outcome::default();
        for receiver in self.receivers {
            let heard = receiver.stop().unwrap_or_default();
            outcome.due += sent.len();
            let took = sent.iter().filter_map(|(number, at)| Some(heard.get(number)?.saturating_sub(*at)));
            outcome.took.extend(took);
        }
        outcome
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

/// Receives; when each message came. A node that is gone is waited for.
fn hear(namespace: &Path, interface: &str, over: &AtomicBool) -> BTreeMap<u64, Duration> {
    let (mut heard, mut client) = (BTreeMap::new(), None);
    while !over.load(Relaxed) {
        client = client.or_else(|| connect(namespace, interface).filter(|client| client.listen().is_ok()));
        match client.as_ref().map(|client| client.recv(Some(LOOK_EVERY))) {
            Some(Ok(message)) => {
                if let Some(number) = message.as_ref().and_then(|message| message.data.first_chunk()) {
                    heard.entry(u64::from_be_bytes(*number)).or_insert_with(monotonic);
                }
            }
            Some(Err(_)) => client = None,
            None => std::thread::park_timeout(LOOK_EVERY),
        }
    }
    heard
}
