//! `flood-breakdown`: where the time of relaying, sending and receiving goes, stage by stage.

use std::time::Duration;

use link::Adjacency;
use serde_json::Value;

use crate::error::Error;
use crate::experiment::{Case, Experiment, Fields, Published, RunOptions};
use crate::medium::{INTERFACE, Medium};
use crate::namespace::Namespace;
use crate::program::output;
use crate::statistics::median;
use crate::system::Means;
use crate::workload::{Need, Prepared, Sample, Site, Workload};

use super::mode::Mode;
use super::node::Node;
use super::ping::ping;
use super::stages::{Kind, Tracer, passages};

pub(crate) const ABOUT: &str =
    "where a message's time goes in a node: driver, protocols, scheduling, application";

/// Round trips that are traced.
const ROUND_TRIPS: u32 = 300;
const WARM_UP: u32 = 50;
const ESTIMATE: Duration = Duration::from_millis(800);

/// The ends of the chain, and the node between them.
const NODES: usize = 3;

/// One stage of one way through one node.
#[derive(Clone, Debug)]
pub struct StageTest {
    mode: Mode,
    node: usize,
    way: &'static [Kind],
    /// From which of its events to which.
    stage: (usize, usize),
    threaded: bool,
}

/// A way through a node, and what its stages are called.
struct Way {
    mode: Mode,
    direction: &'static str,
    node: usize,
    threaded: bool,
    kinds: &'static [Kind],
    stages: &'static [&'static str],
}

const fn way(
    (mode, threaded): (Mode, bool),
    (direction, node): (&'static str, usize),
    kinds: &'static [Kind],
    stages: &'static [&'static str],
) -> Way {
    Way { mode, direction, node, threaded, kinds, stages }
}

const RELAY: (&str, usize) = ("relay", 1);
const SEND: (&str, usize) = ("send", 0);
/// By the application that pings, whose answer comes past its node; in the other modes by the node that is pinged.
const RECEIVE: (&str, usize) = ("receive", 0);
const RECEIVE_IN_NODE: (&str, usize) = ("receive", 2);
const IN: &str = "driver-and-deferral";

const WAYS: [Way; 11] = {
    use Kind::*;
    use Mode::*;
    [
        way((Driver, false), RELAY, &[Leave, Enter], &[IN]),
        way((Kernel, false), RELAY, &[Leave, Receive, Queue, Enter], &[IN, "ip", "driver-out"]),
        way(
            (Application, false),
            RELAY,
            &[Leave, Receive, Wake, Run, Call, Queue, Enter],
            &[IN, "ip-udp", "wake-and-schedule", "application", "udp-ip-out", "driver-out"],
        ),
        way((Driver, false), SEND, &[Call, Queue, Enter], &["packet-socket", "driver-out"]),
        way((Kernel, false), SEND, &[Call, Queue, Enter], &["udp-ip-out", "driver-out"]),
        way((Application, false), SEND, &[Call, Queue, Enter], &["udp-ip-out", "driver-out"]),
        way((Driver, false), RECEIVE, &[Leave, Wake, Run], &[IN, "wake-and-schedule"]),
        way(
            (Kernel, false),
            RECEIVE_IN_NODE,
            &[Leave, Receive, Wake, Run],
            &[IN, "ip-udp", "wake-and-schedule"],
        ),
        way(
            (Application, false),
            RECEIVE_IN_NODE,
            &[Leave, Receive, Wake, Run],
            &[IN, "ip-udp", "wake-and-schedule"],
        ),
        way((Driver, true), RELAY, &[Leave, NapiRun, Enter], &["deferral", "driver"]),
        way(
            (Kernel, true),
            RELAY,
            &[Leave, NapiRun, Receive, Queue, Enter],
            &["deferral", "driver", "ip", "driver-out"],
        ),
    ]
};

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment, Error> {
    // Table 2, and table 1 for the relay: no stages but in figure 12, which has no numbers.
    let paper = Published::row(
        "mode=application,kernel,driver direction=relay,send,receive stage=all",
        "delay_us",
        &[970.0, 230.0, 1820.0, 950.0, 230.0, 1810.0, 350.0, 200.0, 1400.0],
    );
    Ok(Experiment {
        cases: WAYS.iter().flat_map(cases).collect(),
        repeats: options.size.of(1, 9, 9),
        paper,
        notes: NOTES.map(str::to_owned).to_vec(),
        ..Experiment::default()
    })
}

fn cases(way: &Way) -> impl Iterator<Item = Case> {
    let &Way { mode, direction, node, threaded, kinds, .. } = way;
    let each = way.stages.iter().enumerate().map(|(stage, name)| ((stage, stage + 1), *name));
    // A way of one stage is that stage.
    let all = (way.stages.len() > 1).then_some(((0, way.stages.len()), "all"));
    each.chain(all).map(move |(stage, name)| {
        let key: Fields<Value> = vec![
            ("mode", mode.name().into()),
            ("direction", direction.into()),
            ("stage", name.into()),
            ("napi", if threaded { "threaded" } else { "softirq" }.into()),
        ];
        let workload = StageTest { mode, node, way: kinds, stage, threaded };
        Case { key, workload, estimate: ESTIMATE }.erase()
    })
}

const NOTES: [&str; 6] = [
    "the middle node of a chain of three relays, the first sends (`nawa flood ping`); medians between the kernel's \
     tracepoints, which themselves take some tenths of a microsecond each",
    "in mode driver the application itself sends and receives, the answer at the first node; in the others a node does, the last \
     receives, and between it and its applications there is another wake-up",
    "driver-and-deferral: from the medium's handing a frame over until the node's kernel has a packet of it, or, in mode \
     driver, until it is back in the medium; in a softirq the wait for the poll cannot be told from the poll",
    "threaded: the node's driver is polled by a kernel thread (threaded NAPI); deferral is then the time until that runs",
    "a veth has no hard interrupt: relaying in one, as the paper did, and the time from it to the softirq cannot be \
     measured here",
    "application: from its running to the system call that sends; send begins with that call",
];

impl Workload for StageTest {
    fn needs(&self) -> Vec<Need> {
        Need::programs(&["ethtool", "nft"])
    }

    fn prepare<'a>(&'a self, site: Site<'a>) -> Result<Box<dyn Prepared + 'a>, Error> {
        Ok(Box::new(move || measure(self, &site.means())))
    }
}

fn measure(test: &StageTest, means: &Means) -> Result<Sample, Error> {
    let medium = Medium::build(&Adjacency::chain(NODES), false)?;
    let start = |node| Node::start(&medium, node, test.mode, None, means);
    let mut nodes = (0..NODES).map(start).collect::<Result<Vec<_>, _>>()?;
    if test.threaded {
        poll_by_thread(medium.node(test.node))?;
    }
    ping(medium.node(0), INTERFACE, NODES - 1, WARM_UP, means)?;
    let tracer = Tracer::start(&medium)?;
    ping(medium.node(0), INTERFACE, NODES - 1, ROUND_TRIPS, means)?;
    let times = passages(&tracer.events()?, test.node, test.way, test.stage);
    nodes.iter_mut().try_for_each(Node::check)?;
    if times.is_empty() {
        let reason = "no message went through all of the stages that were expected";
        return Err(Error::program("flood-breakdown", reason));
    }
    Ok(vec![("delay_us", median(times.into_iter().map(|ns| ns as f64 / 1e3).collect()))].into())
}

/// The node's driver gets a kernel thread for its polls.
fn poll_by_thread(node: &Namespace) -> Result<(), Error> {
    let path = format!("/sys/class/net/{INTERFACE}/threaded");
    // `ip netns exec` mounts the namespace's own /sys.
    output(node, "sh", &["-c", &format!("echo 1 > {path}")]).map(drop)
}
