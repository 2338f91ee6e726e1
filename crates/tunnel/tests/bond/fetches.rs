//! Files that are fetched one after the other, with pauses between: pages, the parts of a film.

use std::time::Duration;

use link::notation::Ways;
use tcp_sim::{Config, Connection, Hosts, LinkPair, Network, Socket};

use super::{Case, Load, MTU, inner_mtu, tunnel};
use crate::sim::inner;

/// What is fetched: so many bytes each time, from a second host, from so often.
#[derive(Debug, Clone, Copy)]
pub struct Fetch {
    pub bytes: u64,
    pub every: Duration,
}

/// How often what arrived is looked at.
const STEP: Duration = Duration::from_millis(2);
/// A fetch that takes longer has failed.
const LONGEST: Duration = Duration::from_secs(60);

/// How long each takes through the tunnel, ms, in order of length.
pub fn over_bond(case: &Case, load: &Load, fetch: Fetch) -> Vec<f64> {
    let mut net = tunnel(case, load);
    let mtu = inner_mtu(&net);
    fetches(&mut net, mtu, load, fetch)
}

/// The same over one link alone.
pub fn over_single((there, back): &Ways, load: &Load, fetch: Fetch) -> Vec<f64> {
    fetches(&mut LinkPair::new(there.clone(), back.clone(), load.seed), MTU, load, fetch)
}

fn fetches(network: &mut impl Network, mtu: u16, load: &Load, fetch: Fetch) -> Vec<f64> {
    let mut hosts = Hosts::new([inner(0), inner(1)]);
    let begin = network.now();
    let count = (load.time.as_nanos() / fetch.every.as_nanos()) as u32;
    let mut one = |n: u32| {
        let start = network.now().max(begin + fetch.every * n);
        tcp_sim::run(network, &mut hosts, start);
        let socket = |end: usize, port: u16| Socket { ip: inner(end), port };
        let (client, server) = (socket(0, 5000 + n as u16), socket(1, 80));
        let config = |send| Config { control: load.control, mtu, send };
        let asks = Connection::connect(start, config(0), client, server);
        hosts.connections = vec![[asks, Connection::listen(config(fetch.bytes), server, client)]];
        while hosts.connections[0][0].received() < fetch.bytes && network.now() < start + LONGEST {
            let now = network.now();
            tcp_sim::run(network, &mut hosts, now + STEP);
        }
        (network.now() - start).as_secs_f64() * 1e3
    };
    let mut times: Vec<f64> = (0..count).map(&mut one).collect();
    times.sort_by(f64::total_cmp);
    times
}
