//! Hosts with two paths, and hosts behind them.
//!
//! ```text
//!   guest ─vec0─g0─ a ─p1─[emulated link 1]─p1─ b ─g0─vec0─ guest
//!         ─vec1─g1─   ─p2─[emulated link 2]─p2─   ─g1─vec1─
//! ```
//!
//! SCTP's ends are guests behind `a` and `b`, which forward for them, or programs on these. Nawa runs on `a` and `b`, or in the
//! guests. Each address of the one end reaches the other end's address of the same path, and by that path. On path p the link is 10.p.0.0/24, the
//! n-th host behind `a` has 10.p.(10+n).2, that behind `b` 10.p.2.2.

use std::net::Ipv4Addr;
use std::path::Path;

use serde_json::Value;

use super::test::{PATHS, Stack, Test};
use crate::command::end;
use crate::emulator::{Emulator, Wire};
use crate::error::Result;
use crate::guest::{self, Booting, Guest, GuestSpec, Segment};
use crate::namespace::Namespace;
use crate::program::{output, read_json, status};

/// The segment of the host behind `b`.
const SERVER: u8 = 2;
/// The segment of the first host behind `a`.
const CLIENTS: u8 = 10;

/// A network that is up. Dropping it removes it.
pub(super) struct Network {
    // Dropped in this order.
    pub(super) wires: Vec<Wire>,
    /// The ends that are guests, the server first, then the clients: on their way up, and up.
    booting: Vec<Booting>,
    guests: Vec<Guest>,
    /// `a` and `b`.
    pub(super) client: Namespace,
    pub(super) server: Namespace,
    clients: Vec<u8>,
    nawa: Option<NawaInside>,
}

/// Lines of shell that start Nawa in a guest, and that ask for its state.
pub(super) struct NawaInside {
    pub(super) up: String,
    pub(super) status: String,
}

/// Of a namespace's SCTP.
const COUNTERS: &str = "/proc/net/sctp/snmp";

/// Where one end of transfers is.
pub(super) enum Place<'a> {
    Guest(&'a mut Guest),
    Host(&'a Namespace),
}

impl Network {
    pub(super) fn build(
        emulator: &Emulator,
        test: &Test,
        nawa: Option<NawaInside>,
        seed: u64,
    ) -> Result<Self> {
        let (client, server) = (Namespace::create("a")?, Namespace::create("b")?);
        let mut wires = Vec::new();
        for (path, [up, down]) in (1u8..).zip(&test.paths) {
            let name = format!("p{path}");
            let taps = [client.tap(&name)?, server.tap(&name)?];
            let links = [up.clone(), down.clone()];
            let seed = seed.wrapping_add(path.into());
            wires.push(emulator.join(taps, links, seed)?);
            let [a, b] = [1, 2].map(|host| Ipv4Addr::new(10, path, 0, host));
            client.ip(&end(&name, a, b))?;
            server.ip(&end(&name, b, a))?;
        }
        let (mut clients, mut booting) = (Vec::new(), Vec::new());
        if test.stack == Stack::LinuxNative {
            // As in guests.
            for host in [&client, &server] {
                host.sysctl("sctp/cookie_hmac_alg", "none")?;
            }
        }
        if test.stack.is_in_guests() {
            clients.extend((CLIENTS..).take(test.clients));
            let spec = spec(nawa.is_some());
            booting.push(boot(&server, SERVER, 0, &clients, &spec)?);
            for (number, &segment) in clients.iter().enumerate() {
                booting.push(boot(&client, segment, number, &[SERVER], &spec)?);
            }
            for path in 1..=PATHS as u8 {
                let via =
                    |segment: &u8, host| format!("route add 10.{path}.{segment}.0/24 via 10.{path}.0.{host}");
                client.ip(&[via(&SERVER, 2)])?;
                server.ip(&clients.iter().map(|segment| via(segment, 1)).collect::<Vec<_>>())?;
            }
        }
        Ok(Self { wires, booting, guests: Vec::new(), client, server, clients, nawa })
    }

    /// Waits until guests are up, and Nawa in those that are to run it.
    pub(super) fn finish(&mut self) -> Result<()> {
        for booting in self.booting.drain(..) {
            let mut guest = booting.finish()?;
            self.nawa.as_ref().map_or(Ok(String::new()), |nawa| guest.run(&nawa.up))?;
            self.guests.push(guest);
        }
        Ok(())
    }

    /// What `nawa status --json` says wherever it runs.
    pub(super) fn status(&mut self, nawa: &Path) -> Result<Vec<Value>> {
        if let Some(inside) = &self.nawa {
            let read = |guest: &mut Guest| read_json("nawa status --json", &guest.run(&inside.status)?);
            return self.guests.iter_mut().map(read).collect();
        }
        [&self.client, &self.server].iter().map(|host| status(host, nawa)).collect()
    }

    /// Where the receiving end is, and its addresses.
    pub(super) fn receiver(&mut self) -> (Place<'_>, [String; PATHS]) {
        match self.guests.first_mut() {
            Some(guest) => (Place::Guest(guest), addresses(SERVER, 2)),
            None => (Place::Host(&self.server), addresses(0, 2)),
        }
    }

    /// Where sender `number` is, and its addresses.
    pub(super) fn sender(&mut self, number: usize) -> (Place<'_>, [String; PATHS]) {
        if self.clients.is_empty() {
            return (Place::Host(&self.client), addresses(0, 1));
        }
        // One of each primary path from every host.
        let client = number / PATHS % self.clients.len();
        (Place::Guest(&mut self.guests[1 + client]), addresses(self.clients[client], 2))
    }

    /// What the kernels that send have counted; usrsctp counts for itself.
    pub(super) fn kernel_counters(&mut self, stack: Stack) -> Result<Vec<String>> {
        let senders = self.guests.iter_mut().skip(1);
        match stack {
            Stack::LinuxNative => Ok(vec![output(&self.client, "cat", &[COUNTERS])?]),
            _ => senders.map(|guest| guest.run(&format!("cat {COUNTERS}"))).collect(),
        }
    }
}

/// Of a host, on each path.
fn addresses(segment: u8, host: u8) -> [String; PATHS] {
    std::array::from_fn(|path| format!("10.{}.{segment}.{host}", path + 1))
}

fn spec(runs_nawa: bool) -> GuestSpec {
    GuestSpec {
        // Those beside SCTP's are what filters of clsact need.
        modules: if runs_nawa { vec!["sctp", "sch_ingress", "cls_bpf"] } else { vec!["sctp"] },
        // Its kernel has no digest that a cookie could be signed by; without one it refuses to listen.
        sysctls: vec![("net.sctp.cookie_hmac_alg", "none".into())],
        memory_mb: runs_nawa.then_some(256),
        ..GuestSpec::default()
    }
}

/// Begins to boot host `number` behind `host`, that of `segment`, which reaches what is in the segments `others`.
fn boot(host: &Namespace, segment: u8, number: usize, others: &[u8], spec: &GuestSpec) -> Result<Booting> {
    let network =
        |path: usize| Segment::new(format!("g{}", number * PATHS + path), [path as u8 + 1, segment]);
    let networks: Vec<Segment> = (0..PATHS).map(network).collect();
    let interface = |(path, network): (usize, &Segment)| {
        let gateway = network.gateway;
        let route = |other| format!("route add 10.{}.{other}.0/24 via {gateway}", path + 1);
        network.interface(path, others.iter().map(route))
    };
    let interfaces = networks.iter().enumerate().map(interface).collect();
    let booting = guest::boot(host, &GuestSpec { interfaces, ..spec.clone() })?;
    networks.iter().try_for_each(|network| network.admit(host))?;
    Ok(booting)
}
