//! Guests that flows come from: hosts behind the client, which forwards for them, so that their flows take the same link.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{BUFFER_MAX, FlowSpec, FlowTest, Origin, address, buffer_limits};
use crate::error::{Error, Result};
use crate::guest::{self, Booting, Guest, GuestSpec, Job, Segment};
use crate::network::Network;

/// Far above what a window's data takes.
const MEMORY_MB: u32 = 256;

/// The second byte of their networks; paths have 1 to 200.
const NET: u8 = 254;

/// What tells guests apart: those flows have one in common which have the same congestion control.
type Kind = (&'static str, Option<&'static str>);

/// How long a guest may take to get a flow's programs ready.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// What they say then.
const WAITING: &str = "waiting";

#[derive(Debug, Default)]
pub(crate) struct Guests {
    flows: Vec<FlowSpec>,
    booting: Vec<(Kind, Booting)>,
    ready: Vec<(Kind, Guest)>,
    /// By the flow's index: programs that only wait for its start.
    waiting: BTreeMap<usize, Job>,
}

/// Fails, in one sentence, where no guest can be the origin of `spec`.
pub(crate) fn check(spec: &FlowSpec) -> Result<()> {
    let Some((_, module)) = kind(spec) else { return Ok(()) };
    let names: Vec<&str> = module.and_then(|line| line.split(' ').next()).into_iter().collect();
    guest::check(&names)
}

fn kind(spec: &FlowSpec) -> Option<Kind> {
    match spec.origin {
        Origin::Host => None,
        Origin::Guest { module } => Some((spec.congestion_control, module)),
    }
}

impl Guests {
    /// Begins to boot what the flows of `test` need.
    pub(crate) fn boot(network: &Network, test: &FlowTest) -> Result<Self> {
        let mut guests = Self { flows: test.flows.clone(), ..Self::default() };
        for kind in test.flows.iter().filter_map(kind) {
            if guests.booting.iter().all(|(known, _)| *known != kind) {
                let number = u8::try_from(guests.booting.len()).unwrap_or(u8::MAX);
                guests.booting.push((kind, boot(network, test, kind, number)?));
            }
        }
        Ok(guests)
    }

    /// Waits until all are up and their flows' programs wait for the start: to fork takes a guest a while.
    pub(crate) fn finish(&mut self) -> Result<()> {
        for (kind, booting) in self.booting.drain(..) {
            self.ready.push((kind, booting.finish()?));
        }
        for (index, spec) in self.flows.iter().enumerate() {
            let Some(guest) = guest_of(&mut self.ready, spec) else { continue };
            self.waiting.insert(index, guest.start(&command(spec, index))?);
        }
        self.waiting.values().try_for_each(|job| match job.next_line(READY_LIMIT)? {
            Some(line) if line == WAITING => Ok(()),
            said => Err(Error::program("a flow in a guest", said.unwrap_or_default())),
        })
    }

    /// Has flow `index` connect and send; `None` if it is not a guest's.
    pub(super) fn start(&mut self, index: usize) -> Result<Option<Job>> {
        let Some(job) = self.waiting.remove(&index) else { return Ok(None) };
        if let Some(guest) = guest_of(&mut self.ready, &self.flows[index]) {
            guest.tell(&format!("echo >{}", gate(index)))?;
        }
        Ok(Some(job))
    }
}

fn guest_of<'a>(ready: &'a mut [(Kind, Guest)], spec: &FlowSpec) -> Option<&'a mut Guest> {
    let kind = kind(spec)?;
    ready.iter_mut().find(|(known, _)| *known == kind).map(|(_, guest)| guest)
}

/// A pipe in the guest that flow `index` waits at.
fn gate(index: usize) -> String {
    format!("/run/gate-{index}")
}

/// The connection stays open when all is sent, as the lab's own do.
fn command(spec: &FlowSpec, index: usize) -> String {
    let (gate, to) = (gate(index), address(index));
    let send = match spec.bytes {
        Some(bytes) => format!("{{ head -c {bytes} /dev/zero; sleep 1000000; }}"),
        None => "cat /dev/zero".into(),
    };
    let connect = format!("read -r _ <{gate}; exec nc {} {}", to.ip(), to.port());
    format!("mkfifo {gate}; {send} | {{ echo {WAITING}; {connect}; }}")
}

fn boot(network: &Network, test: &FlowTest, kind: Kind, number: u8) -> Result<Booting> {
    let (congestion_control, module) = kind;
    let segment = Segment::new(format!("g{number}"), [NET, number]);
    let window = test.initial_window.map(|segments| format!(" initcwnd {segments}")).unwrap_or_default();
    let route = format!("route add default via {}{window}", segment.gateway);
    let spec = GuestSpec {
        modules: module.into_iter().collect(),
        sysctls: vec![
            ("net.ipv4.tcp_congestion_control", congestion_control.into()),
            ("net.ipv4.tcp_no_metrics_save", "1".into()),
            ("net.ipv4.tcp_wmem", buffer_limits(BUFFER_MAX)),
        ],
        interfaces: vec![segment.interface(0, [route])],
        memory_mb: Some(MEMORY_MB),
    };
    let booting = guest::boot(&network.client, &spec)?;
    segment.admit(&network.client)?;
    network.server.ip(&[format!("route add {}/32 via {}", segment.own, network.client_address(0))])?;
    Ok(booting)
}
