//! The real check of `flood-reach`: one `nawa` in each of some namespaces, and messages sent as a user sends them.

use std::time::Duration;

use flood::suppression::Rules;
use link::{Adjacency, Loss};
use serde_json::Value;

use crate::clock;
use crate::error::Error;
use crate::medium::{INTERFACE, Medium, MediumConfig};
use crate::program::output;
use crate::runner::Sample;
use crate::system::{Means, start_nawa};

use super::node::{Mode, configuration};

/// Messages in one network.
const MESSAGES: usize = 20;
/// Any longer without a frame, and nobody has anything left to send.
const QUIET: Duration = Duration::from_millis(100);
/// For a message.
const LIMIT: Duration = Duration::from_secs(5);

/// Floods [`MESSAGES`] messages over a medium with `nawa` at every node of `adjacency`.
pub(super) fn measure(
    adjacency: &Adjacency,
    loss: Loss,
    rules: Rules,
    means: &Means,
    seed: u64,
) -> Result<Sample, Error> {
    let medium = Medium::build(adjacency, MediumConfig { loss, seed, timed_wire: None })?;
    let more = if rules == Rules::PURE { "" } else { "suppress = true\n" };
    let start = |node| {
        let text = configuration(node, Mode::Driver, None, more);
        start_nawa(means, medium.node(node), &[], &format!("n{node}"), &text)
    };
    let mut nodes = (0..adjacency.nodes()).map(start).collect::<Result<Vec<_>, _>>()?;
    for message in 0..MESSAGES {
        let from = medium.node(message * 7 % adjacency.nodes());
        let text = format!("message {message}");
        output(from, means.nawa, &["flood", "send", INTERFACE, &text, "--ttl", "255"])?;
        await_quiet(&medium)?;
    }
    nodes.iter_mut().try_for_each(|node| node.check())?;
    let all = (MESSAGES * adjacency.nodes()) as f64;
    let heard = heard(&medium, means)? as f64;
    let metrics = [
        // Each source has its own message.
        ("reached_ratio", (heard + MESSAGES as f64) / all),
        ("transmissions_per_message", sent(&medium)? as f64 / MESSAGES as f64),
    ];
    Ok(Sample {
        metrics: metrics.map(|(name, value)| (name.to_owned(), value)).to_vec(),
        ..Sample::default()
    })
}

/// Waits until nobody sends any more.
fn await_quiet(medium: &Medium) -> Result<(), Error> {
    let (mut before, mut since) = (sent(medium)?, clock::now());
    let quiet = || {
        let now = sent(medium).ok()?;
        if now != before {
            (before, since) = (now, clock::now());
        }
        (since.elapsed() > QUIET).then_some(())
    };
    let late = || Error::Late { what: "a message did not come to an end".into(), seconds: LIMIT.as_secs() };
    clock::poll_until(LIMIT, quiet).ok_or_else(late)
}

/// Frames that all nodes have sent.
fn sent(medium: &Medium) -> Result<u64, Error> {
    (0..medium.nodes().len()).map(|node| medium.sent(node)).sum()
}

/// Messages that nodes have heard for the first time, as their `nawa status --json` has it.
fn heard(medium: &Medium, means: &Means) -> Result<u64, Error> {
    let heard = |node| {
        let status = output(node, means.nawa, &["status", "--json"])?;
        let status: Option<Value> = serde_json::from_str(&status).ok();
        let heard = status.and_then(|status| status["flood"][0]["new_frames"].as_u64());
        heard.ok_or_else(|| Error::program("nawa status --json", "it has no flood[0].new_frames"))
    };
    medium.nodes().iter().map(heard).sum()
}
