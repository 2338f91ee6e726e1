//! `flood-breakdown`: where the time of relaying, sending and receiving goes, stage by stage.

use std::time::Duration;

use link::Adjacency;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::experiment::{Case, Experiment, Fields, Published, RunOptions};
use crate::medium::{INTERFACE, Medium};
use crate::namespace::Namespace;
use crate::program::output;
use crate::statistics::median;
use crate::system::Means;
use crate::workload::{Measure, Sample};

use super::node::{Mode, Node, ping};
use super::stages::{Tracer, passages};

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
    way: Vec<&'static str>,
    /// From which of its events to which.
    stage: (usize, usize),
    threaded: bool,
}

/// Ways through a node: the direction, the node (of three), and events with the stages between them. With a direction `receive` in mode
/// driver it is the application that pings, whose answer comes past its node; in the other modes the node that is pinged.
const WAYS: [(Mode, &str, &str, usize, &str); 11] = {
    use Mode::*;
    [
        (Driver, "softirq", "relay", 1, "leave driver-and-deferral enter"),
        (Kernel, "softirq", "relay", 1, "leave driver-and-deferral receive ip queue driver-out enter"),
        (
            Application,
            "softirq",
            "relay",
            1,
            "leave driver-and-deferral receive ip-udp wake wake-and-schedule run application call udp-ip-out queue driver-out enter",
        ),
        (Driver, "softirq", "send", 0, "call packet-socket queue driver-out enter"),
        (Kernel, "softirq", "send", 0, "call udp-ip-out queue driver-out enter"),
        (Application, "softirq", "send", 0, "call udp-ip-out queue driver-out enter"),
        (Driver, "softirq", "receive", 0, "leave driver-and-deferral wake wake-and-schedule run"),
        (Kernel, "softirq", "receive", 2, RECEIVE),
        (Application, "softirq", "receive", 2, RECEIVE),
        (Driver, "threaded", "relay", 1, "leave deferral napi-run driver enter"),
        (Kernel, "threaded", "relay", 1, "leave deferral napi-run driver receive ip queue driver-out enter"),
    ]
};
const RECEIVE: &str = "leave driver-and-deferral receive ip-udp wake wake-and-schedule run";

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment> {
    // Table 2, and table 1 for the relay: no stages but in figure 12, which has no numbers.
    let paper = Published::row(
        "mode=application,kernel,driver direction=relay,send,receive stage=all",
        "delay_us",
        &[970.0, 230.0, 1820.0, 950.0, 230.0, 1810.0, 350.0, 200.0, 1400.0],
    );
    let cases = WAYS.iter().flat_map(cases).collect();
    Ok(Experiment { paper, ..Experiment::of(cases, options.size.of(1, 9, 9), &[], &NOTES) })
}

fn cases(&(mode, napi, direction, node, way): &(Mode, &str, &str, usize, &'static str)) -> Vec<Case> {
    let kinds: Vec<&str> = way.split(' ').step_by(2).collect();
    let stages = way.split(' ').skip(1).step_by(2);
    let each = stages.enumerate().map(|(stage, name)| ((stage, stage + 1), name));
    // A way of one stage is that stage.
    let all = (kinds.len() > 2).then_some(((0, kinds.len() - 1), "all"));
    let case = |(stage, name): ((usize, usize), &str)| {
        let key: Fields<Value> = vec![
            ("mode", mode.name().into()),
            ("direction", direction.into()),
            ("stage", name.into()),
            ("napi", napi.into()),
        ];
        let workload = StageTest { mode, node, way: kinds.clone(), stage, threaded: napi == "threaded" };
        Case::new(key, workload, ESTIMATE)
    };
    each.chain(all).map(case).collect()
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

impl Measure for StageTest {
    const PROGRAMS: &'static [&'static str] = &["ethtool", "nft"];

    fn measure(&self, means: &Means, _: u64) -> Result<Sample> {
        let medium = Medium::build(&Adjacency::chain(NODES), false)?;
        let start = |node| Node::start(&medium, node, self.mode, None, means);
        let mut nodes = (0..NODES).map(start).collect::<Result<Vec<_>>>()?;
        if self.threaded {
            poll_by_thread(medium.node(self.node))?;
        }
        ping(medium.node(0), INTERFACE, NODES - 1, WARM_UP, means)?;
        let tracer = Tracer::start(&medium)?;
        ping(medium.node(0), INTERFACE, NODES - 1, ROUND_TRIPS, means)?;
        let times = passages(&tracer.events()?, self.node, &self.way, self.stage);
        nodes.iter_mut().try_for_each(Node::check)?;
        if times.is_empty() {
            let reason = "no message went through all of the stages that were expected";
            return Err(Error::program("flood-breakdown", reason));
        }
        Ok(vec![("delay_us", median(times.into_iter().map(|ns| ns as f64 / 1e3).collect()))].into())
    }
}

/// The node's driver gets a kernel thread for its polls.
fn poll_by_thread(node: &Namespace) -> Result<()> {
    let path = format!("/sys/class/net/{INTERFACE}/threaded");
    // `ip netns exec` mounts the namespace's own /sys.
    output(node, "sh", &["-c", &format!("echo 1 > {path}")]).map(drop)
}
