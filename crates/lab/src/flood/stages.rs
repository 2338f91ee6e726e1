//! What the kernel's tracepoints tell of a message's way, and how long it spends in each stage of it.

use std::os::unix::fs::MetadataExt;

use bpf::xdp::Loaded;

use crate::error::{Doing, Error, Result};
use crate::medium::Medium;

const OBJECT: &[u8] = bpf::object!("stages.bpf.o");

// As in bpf/stages.h and bpf/medium.h.
const EVENTS: u32 = 1 << 18;
const MEDIUM: u32 = 256;

/// A stage over which more time passes than this was interrupted by something else.
const LONGEST_NS: u64 = 5_000_000;

/// Kinds of events, by their numbers in `enum stages_kind`.
const KINDS: [&str; 9] =
    ["leave", "enter", "receive", "queue", "wake", "run", "call", "napi-wake", "napi-run"];

/// Something that happened at a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    ns: u64,
    kind: &'static str,
    node: u32,
}

/// Traces while it lives.
pub(super) struct Tracer {
    _traced: bpf::Traced,
    loaded: Loaded,
}

impl Tracer {
    /// Begins to trace all nodes of `medium`.
    pub(super) fn start(medium: &Medium) -> Result<Self> {
        let loaded = bpf::xdp::load(OBJECT, &[])?;
        let numbered = (0..).zip(medium.nodes()).chain([(MEDIUM, medium.host())]);
        for (node, namespace) in numbered {
            let path = namespace.path();
            let inode = std::fs::metadata(&path).doing(|| format!("look at {}", path.display()))?.ino();
            loaded.update("namespaces", u32::try_from(inode).unwrap_or(0), &node.to_ne_bytes())?;
        }
        Ok(Self { _traced: loaded.trace()?, loaded })
    }

    /// All that happened, in order; the first of it is forgotten if there is too much.
    pub(super) fn events(&self) -> Result<Vec<Event>> {
        let written = self.loaded.lookup(".bss.written", 0)?.unwrap_or_default();
        let count = written.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
        let read = |slot| Ok::<_, Error>(read(&self.loaded.lookup("events", slot)?.unwrap_or_default()));
        let events = (0..count.min(EVENTS)).map(read).collect::<Result<Vec<_>>>()?;
        let mut events: Vec<Event> = events.into_iter().flatten().collect();
        events.sort_by_key(|event| event.ns);
        Ok(events)
    }
}

fn read(bytes: &[u8]) -> Option<Event> {
    let ns = u64::from_ne_bytes(*bytes.first_chunk()?);
    let word = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let kind = *KINDS.get(word(8)? as usize)?;
    Some(Event { ns, kind, node: word(12)? })
}

/// How long each passage through `way` at `node` spent between two of its events, in ns. A passage begins
/// with the first event and goes on with the next of each kind, `call` with the last before what follows it. One
/// that begins anew, or takes too long, does not count.
pub(super) fn passages(events: &[Event], node: usize, way: &[&str], (from, to): (usize, usize)) -> Vec<u64> {
    let concerns = |event: &&Event| event.node as usize == node || event.kind.starts_with("napi-");
    let (mut found, mut times) = (Vec::new(), Vec::new());
    for event in events.iter().filter(concerns) {
        let last = times.len().checked_sub(1).and_then(|last| way.get(last));
        if event.kind == "call" && last == Some(&"call") {
            times.pop();
            times.push(event.ns);
        } else if Some(&event.kind) == way.get(times.len()) {
            times.push(event.ns);
        } else if Some(&event.kind) == way.first() {
            times = vec![event.ns];
        }
        if times.len() == way.len() {
            let whole = times[times.len() - 1] - times[0];
            found.extend((whole < LONGEST_NS).then(|| times[to] - times[from]));
            times.clear();
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(kinds: &[(u64, &'static str)]) -> Vec<Event> {
        kinds.iter().map(|&(ns, kind)| Event { ns, kind, node: 1 }).collect()
    }

    #[test]
    fn a_passage_goes_from_event_to_event() {
        let seen = events(&[
            (10, "leave"),
            (12, "receive"),
            (17, "wake"),
            (30, "enter"),
            (40, "leave"),
            (43, "receive"),
        ]);
        assert_eq!(passages(&seen, 1, &["leave", "receive"], (0, 1)), [2, 3]);
        assert_eq!(passages(&seen, 1, &["leave", "receive", "enter"], (1, 2)), [18]);
        assert_eq!(passages(&seen, 2, &["leave", "receive"], (0, 1)), Vec::<u64>::new());
    }

    #[test]
    fn the_call_that_sends_is_the_last_one_before() {
        let seen = events(&[(1, "run"), (2, "call"), (5, "call"), (6, "queue"), (9, "enter")]);
        assert_eq!(passages(&seen, 1, &["run", "call", "queue", "enter"], (0, 1)), [4]);
        assert_eq!(passages(&seen, 1, &["call", "queue", "enter"], (0, 1)), [1]);
    }

    #[test]
    fn what_begins_anew_or_takes_too_long_does_not_count() {
        let seen = events(&[
            (1, "leave"),
            (100, "leave"),
            (103, "enter"),
            (200, "leave"),
            (200 + LONGEST_NS, "enter"),
        ]);
        assert_eq!(passages(&seen, 1, &["leave", "enter"], (0, 1)), [3]);
    }
}
