//! Captures of a running tunnel: what its thread notes goes to readers that may be slow, and never waits for them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::capture::{Captured, Layer};

/// Bytes of packets that wait for one reader; what comes when there are more is lost to it, and counted.
const WAITING: usize = 4 << 20;
/// What a packet costs beside its bytes.
const ENTRY: usize = 256;
/// Captures at the same time: each costs the tunnel's thread a copy of every packet.
const CAPTURES: usize = 4;

/// Which packets to capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Of this peer only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Of the paths of this name only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// IP packets in the clear.
    #[serde(default = "yes")]
    pub inner: bool,
    /// What goes over the paths.
    #[serde(default = "yes")]
    pub outer: bool,
}

fn yes() -> bool {
    true
}

impl Wanted {
    fn takes(&self, one: &Captured) -> bool {
        let layer = match one.layer {
            Layer::Inner => self.inner,
            Layer::Outer => self.outer,
        };
        layer
            && (self.peer.is_none() || self.peer == one.peer)
            && (self.path.is_none() || self.path == one.path)
    }
}

/// A captured packet on its way to a reader.
#[derive(Clone, Debug)]
pub struct Taken {
    /// Since 1970.
    pub time: Duration,
    /// This host's address and port, of an outer packet; unspecified where the kernel chooses it.
    pub local: Option<SocketAddr>,
    /// The packet.
    pub captured: Captured,
}

/// What a reader takes at once.
#[derive(Debug, Default)]
pub struct Batch {
    /// The packets.
    pub taken: Vec<Taken>,
    /// So many after them are lost.
    pub missed: u64,
}

#[derive(Debug, Default)]
struct Waiting {
    batch: Batch,
    bytes: usize,
    reader_is_gone: bool,
    tunnel_is_gone: bool,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    news: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tunnel's end of a capture.
#[derive(Debug)]
pub struct CaptureSender {
    wanted: Wanted,
    shared: Arc<Shared>,
}

/// The reader's end. Dropping it ends the capture.
#[derive(Debug)]
pub struct Capture(Arc<Shared>);

/// Both ends.
pub fn capture(wanted: Wanted) -> (CaptureSender, Capture) {
    let shared = Arc::new(Shared::default());
    (CaptureSender { wanted, shared: Arc::clone(&shared) }, Capture(shared))
}

impl Capture {
    /// What has been captured since the last time, after `patience` at the latest; `None` when the tunnel has ended and nothing is left.
    pub fn take(&self, patience: Duration) -> Option<Batch> {
        let waiting = self.0.lock();
        let empty = |waiting: &mut Waiting| waiting.batch.taken.is_empty() && !waiting.tunnel_is_gone;
        let waited = self.0.news.wait_timeout_while(waiting, patience, empty);
        let (mut waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        waiting.bytes = 0;
        let batch = std::mem::take(&mut waiting.batch);
        (!batch.taken.is_empty() || !waiting.tunnel_is_gone).then_some(batch)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.0.lock().reader_is_gone = true;
    }
}

impl CaptureSender {
    fn is_read(&self) -> bool {
        !self.shared.lock().reader_is_gone
    }

    fn put(&self, time: Duration, local: Option<SocketAddr>, captured: &Captured) {
        let mut waiting = self.shared.lock();
        let size = captured.packet.len() + captured.comment.len() + ENTRY;
        if waiting.bytes + size > WAITING {
            waiting.batch.missed += 1;
            return;
        }
        waiting.bytes += size;
        waiting.batch.taken.push(Taken { time, local, captured: captured.clone() });
        self.shared.news.notify_one();
    }
}

impl Drop for CaptureSender {
    fn drop(&mut self) {
        self.shared.lock().tunnel_is_gone = true;
        self.shared.news.notify_one();
    }
}

/// The captures that run.
#[derive(Debug, Default)]
pub struct Captures(Vec<CaptureSender>);

impl Captures {
    /// One more.
    ///
    /// # Errors
    /// There are enough.
    pub fn add(&mut self, sender: CaptureSender) -> Result<(), String> {
        self.forget();
        if self.0.len() >= CAPTURES {
            return Err(format!("{CAPTURES} captures run already; end one"));
        }
        self.0.push(sender);
        Ok(())
    }

    /// Ends those that nobody reads any more.
    pub fn forget(&mut self) {
        self.0.retain(CaptureSender::is_read);
    }

    /// Whether anybody captures.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Gives a packet to whoever wants it; `port` is this host's.
    pub fn put(&self, time: Duration, port: impl FnOnce(SocketAddr, u8) -> u16, captured: &Captured) {
        let mut taking = self.0.iter().filter(|sender| sender.wanted.takes(captured)).peekable();
        if taking.peek().is_none() {
            return;
        }
        let local = captured.ends.map(|ends| {
            let any: IpAddr = match ends.remote {
                SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            SocketAddr::new(ends.local.ip.unwrap_or(any), port(ends.remote, ends.local.socket))
        });
        taking.for_each(|sender| sender.put(time, local, captured));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::{self, Direction};

    const NOW: Duration = Duration::from_secs(1);

    fn wanted() -> Wanted {
        Wanted { peer: None, path: None, inner: true, outer: true }
    }

    fn packet(peer: &str, path: Option<&str>, size: usize) -> Captured {
        let path = path.map(str::to_owned);
        Captured { path, ..capture::dropped(Direction::Out, Some(peer), &vec![0; size], "x") }
    }

    fn put(captures: &Captures, captured: &Captured) {
        captures.put(NOW, |_, _| 0, captured);
    }

    #[test]
    fn a_slow_reader_loses_what_is_counted() {
        let (mut captures, (sender, capture)) = (Captures::default(), capture(wanted()));
        captures.add(sender).unwrap();
        (0..10_000).for_each(|_| put(&captures, &packet("office", None, 1400)));
        let first = capture.take(NOW).unwrap();
        assert!((1..3000).contains(&first.taken.len()), "{}", first.taken.len());
        assert_eq!(first.taken.len() as u64 + first.missed, 10_000);
        put(&captures, &packet("office", None, 1400));
        let next = capture.take(NOW).unwrap();
        assert_eq!((next.taken.len(), next.missed), (1, 0));
    }

    #[test]
    fn what_is_wanted_is_taken_and_nothing_else() {
        let of = |wanted| {
            let (mut captures, (sender, capture)) = (Captures::default(), capture(wanted));
            captures.add(sender).unwrap();
            for (peer, path) in [("office", Some("lte")), ("office", None), ("home", Some("lte"))] {
                put(&captures, &packet(peer, path, 9));
            }
            capture.take(NOW).unwrap().taken.len()
        };
        assert_eq!(of(wanted()), 3);
        assert_eq!(of(Wanted { peer: Some("office".into()), ..wanted() }), 2);
        assert_eq!(of(Wanted { path: Some("lte".into()), ..wanted() }), 2);
        let (mut captures, (sender, capture)) =
            (Captures::default(), capture(Wanted { inner: false, ..wanted() }));
        captures.add(sender).unwrap();
        put(&captures, &packet("office", None, 9));
        assert_eq!(capture.take(Duration::ZERO).map(|batch| batch.taken.len()), Some(0));
    }

    #[test]
    fn both_ends_hear_when_the_other_goes() {
        let mut captures = Captures::default();
        let mut readers: Vec<_> = (0..CAPTURES)
            .map(|_| {
                let (sender, reader) = capture(wanted());
                captures.add(sender).unwrap();
                reader
            })
            .collect();
        let (sender, _reader) = capture(wanted());
        assert!(captures.add(sender).is_err());
        readers.truncate(1);
        captures.forget();
        let (sender, reader) = capture(wanted());
        captures.add(sender).unwrap();
        put(&captures, &packet("office", None, 9));
        drop(captures);
        assert_eq!(reader.take(NOW).map(|batch| batch.taken.len()), Some(1));
        assert!(reader.take(NOW).is_none());
    }
}
