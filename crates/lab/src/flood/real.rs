//! The real check of `flood-reach`: one `nawa` in each of some namespaces, and messages sent as a user sends them.

use std::collections::BTreeMap;
use std::time::Duration;

use flood::suppression::Rules;

use crate::clock;
use crate::datagram::ETHERNET;
use crate::dcf::{Event, INTERFACE, Medium};
use crate::error::{Error, Result};
use crate::namespace::Namespace;
use crate::program::{self, output};
use crate::system::{Means, start_nawa};
use crate::workload::Sample;

use super::node::{Mode, configuration, format};
use super::simulation::TTL;

/// Messages in one network.
pub(super) const MESSAGES: usize = 20;
/// Any longer without a frame, and nobody has anything left to send.
const QUIET: Duration = Duration::from_millis(100);
/// For a message.
const LIMIT: Duration = Duration::from_secs(5);

/// Which node sends this message.
pub(super) fn source(message: usize, nodes: usize) -> usize {
    message * 7 % nodes
}

pub(super) fn text(message: usize) -> String {
    format!("message {message}")
}

/// Floods [`MESSAGES`] messages with `nawa` at every node of `medium`.
pub(super) fn measure(mut medium: Medium, rules: Rules, means: &Means) -> Result<Sample> {
    let more = if rules == Rules::PURE { "" } else { "suppress = true\n" };
    medium.take_from_drivers()?;
    medium.log()?;
    let hosts = medium.nodes();
    let start = |(number, host)| {
        let text = configuration(INTERFACE, number, Mode::Driver, None, more);
        start_nawa(means, host, &[], &format!("n{number}"), &text)
    };
    let mut nodes = hosts.iter().enumerate().map(start).collect::<Result<Vec<_>>>()?;
    for message in 0..MESSAGES {
        let (from, text) = (&hosts[source(message, hosts.len())], text(message));
        output(from, means.nawa, &["flood", "send", INTERFACE, &text, "--ttl", &TTL.to_string()])?;
        await_quiet(&medium)?;
    }
    nodes.iter_mut().try_for_each(|node| node.check())?;
    let all = (MESSAGES * hosts.len()) as f64;
    let heard = heard(hosts, means)? as f64;
    Ok(Sample::from(vec![
        // Each source has its own message.
        ("reached_ratio", (heard + MESSAGES as f64) / all),
        ("transmissions_per_message", medium.sent()? as f64 / MESSAGES as f64),
        ("last_node_ms", mean_last_ms(&medium.log()?)),
    ]))
}

/// The mean time from a message's being sent to its reaching the last node that it reaches, in ms.
fn mean_last_ms(events: &[Event]) -> f64 {
    // When a message was sent first, and when the last node heard it first.
    let mut messages = BTreeMap::new();
    let mut reached = BTreeMap::new();
    for event in events {
        let header = event.head.get(ETHERNET..).and_then(|frame| format().header(frame));
        let Some(header) = header else { continue };
        let message = (header.id, header.seq);
        let (_, last) = messages.entry(message).or_insert((event.time, event.time));
        // Its source, whose ID is one more than its number, has it already.
        if event.heard && header.id as usize != event.node + 1 {
            let first = *reached.entry((message, event.node)).or_insert(event.time);
            *last = first.max(*last);
        }
    }
    let times = messages.values().map(|(sent, last)| last.saturating_sub(*sent).as_secs_f64() * 1e3);
    times.sum::<f64>() / messages.len().max(1) as f64
}

/// Waits until nobody sends any more.
fn await_quiet(medium: &Medium) -> Result<()> {
    let (mut before, mut since) = (medium.sent()?, clock::now());
    let quiet = || {
        let now = medium.sent().ok()?;
        if now != before {
            (before, since) = (now, clock::now());
        }
        (since.elapsed() > QUIET).then_some(())
    };
    clock::within(LIMIT, "a message did not come to an end", quiet)
}

/// Messages that nodes have heard for the first time, as their `nawa status --json` has it.
fn heard(hosts: &[Namespace], means: &Means) -> Result<u64> {
    let heard = |node| {
        let heard = program::status(node, means.nawa)?["flood"][0]["new_frames"].as_u64();
        heard.ok_or_else(|| Error::program("nawa status --json", "it has no flood[0].new_frames"))
    };
    hosts.iter().map(heard).sum()
}
