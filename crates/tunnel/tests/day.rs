//! Hours of virtual time under faults of every kind, drawn by a seed: after each all paths are used again, no packet comes twice, and
//! nothing grows. `cargo test --release -p tunnel --test day -- --ignored --nocapture` takes a day of it.

mod sim;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use link::{LinkConfig, Loss, Probability, Queue};
use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};
use sim::{Net, Options, client, plain, stranger};
use tunnel::Scheduler;
use tunnel::wire::address::LocalAddress;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
const WIRES: usize = 3;

/// From a fault's end until every path is used again: a path that was silent for long is asked this rarely.
const RECOVERY_LIMIT: Duration = Duration::from_secs(60);
/// A packet that came more than so many numbers late would be from before the last faults.
const LATE: u64 = 20_000;
/// What the test's heap may grow by after the first quarter, in kB: the allocator's pieces.
const GROWTH_KB: u64 = 3000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Dead(usize),
    AllDead,
    Bad(usize),
    Rebound(usize),
    AllRebound,
    /// The end's clock jumps ahead, as that of a machine that slept.
    Slept(usize),
    Restarted(usize),
    Unplugged(usize),
}

fn link(wire: usize) -> LinkConfig {
    plain(10.0, (20 + 40 * wire as u32) * MS)
}

fn bad(wire: usize) -> LinkConfig {
    let share = |share| Probability::new(share).expect("a share");
    let loss = Loss::gilbert_elliott(share(0.3), 5.0).expect("a loss");
    LinkConfig { loss, corrupt: share(0.05), duplicate: share(0.05), queue: Queue::Packets(5), ..link(wire) }
}

struct Soak {
    net: Net,
    rng: ChaCha20Rng,
    /// How many packets each end has sent.
    sent: u64,
    /// The numbers that came at each end of late.
    seen: [BTreeSet<u64>; 2],
    changes: u32,
}

impl Soak {
    fn new(seed: u64) -> Soak {
        let links = (0..WIRES).map(|wire| (link(wire), link(wire))).collect();
        let net = Net::new(&Options { scheduler: Scheduler::Auto, seed }, links);
        Soak { net, rng: ChaCha20Rng::seed_from_u64(seed), sent: 0, seen: Default::default(), changes: 0 }
    }

    fn below(&mut self, count: usize) -> usize {
        self.rng.next_u32() as usize % count
    }

    /// Ten packets a second each way.
    fn pass(&mut self, time: Duration) {
        let until = self.net.now + time;
        while self.net.now < until {
            (0..2).for_each(|end| self.net.send(end, self.sent, 200));
            self.sent += 1;
            self.net.pass(100 * MS);
            self.net.strays.clear();
            for end in 0..2 {
                for number in self.net.numbers(end) {
                    assert!(
                        number + LATE > self.sent,
                        "end {end}: {number} comes when {} are sent",
                        self.sent
                    );
                    assert!(self.seen[end].insert(number), "end {end}: {number} comes twice");
                }
                self.net.received[end].clear();
                self.seen[end] = self.seen[end].split_off(&self.sent.saturating_sub(LATE));
            }
        }
    }

    fn draw(&mut self) -> Fault {
        let (wire, end) = (self.below(WIRES), self.below(2));
        match self.below(8) {
            0 => Fault::Dead(wire),
            1 => Fault::AllDead,
            2 => Fault::Bad(wire),
            3 => Fault::Rebound(wire),
            4 => Fault::AllRebound,
            5 => Fault::Slept(end),
            6 => Fault::Restarted(end),
            _ => Fault::Unplugged(wire),
        }
    }

    fn rebind(&mut self, wire: usize) {
        self.changes += 1;
        self.net.seen_at[wire] = stranger(self.changes);
    }

    fn plug(&mut self, wire: usize, plugged: bool) {
        let local = LocalAddress { ip: Some(client(wire).ip()), ..LocalAddress::default() };
        let now = self.net.clock(0);
        self.net.ends[0].set_local(now, 0, wire, plugged.then_some(local));
    }

    fn suffer(&mut self, fault: Fault) {
        let lasts = (1 + self.below(600)) as u32 * 100 * MS;
        match fault {
            Fault::Dead(wire) => self.net.set_up(wire, false),
            Fault::AllDead => (0..WIRES).for_each(|wire| self.net.set_up(wire, false)),
            Fault::Bad(wire) => self.net.replace(wire, &bad(wire), &bad(wire)),
            Fault::Rebound(wire) => return self.rebind(wire),
            Fault::AllRebound => return (0..WIRES).for_each(|wire| self.rebind(wire)),
            Fault::Slept(end) => return self.net.clocks[end].offset += lasts * 10,
            Fault::Restarted(end) => {
                self.changes += 1;
                return self.net.restart(end, 1000 + u64::from(self.changes));
            }
            Fault::Unplugged(wire) => self.plug(wire, false),
        }
        self.pass(lasts);
        match fault {
            Fault::Bad(wire) => self.net.replace(wire, &link(wire), &link(wire)),
            Fault::Unplugged(wire) => self.plug(wire, true),
            _ => (0..WIRES).for_each(|wire| self.net.set_up(wire, true)),
        }
    }

    /// Waits until both ends use every path, and packets come through; how long that took.
    fn recover(&mut self, fault: Fault) -> Duration {
        let (mended, sent) = (self.net.now, self.sent);
        loop {
            self.pass(100 * MS);
            let peers = [self.net.peer(0), self.net.peer(1)];
            let up = |end: usize| peers[end].paths.iter().filter(|path| path.state == "up").count();
            let comes = |end: usize| self.seen[end].last().is_some_and(|last| *last > sent);
            if (0..2).all(|end| up(end) == WIRES && comes(end)) {
                // What an address of before left.
                assert!(peers[1].paths.len() <= 16, "{fault:?}: {:#?}", peers[1].paths);
                return self.net.now - mended;
            }
            assert!(self.net.now < mended + RECOVERY_LIMIT, "not well after {fault:?}: {peers:#?}");
        }
    }
}

/// Of this process, in kB; none where the kernel does not tell.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn soak(time: Duration, seed: u64) {
    let mut soak = Soak::new(seed);
    let (mut slowest, mut first) = (BTreeMap::<Fault, (u32, Duration)>::new(), None);
    soak.pass(5 * S);
    while soak.net.now < time {
        let fault = soak.draw();
        soak.suffer(fault);
        let took = soak.recover(fault);
        println!("{:7.1} s: {fault:?}, well {:.1} s later", soak.net.now.as_secs_f64(), took.as_secs_f64());
        let entry = slowest.entry(fault).or_default();
        *entry = (entry.0 + 1, entry.1.max(took));
        // Faults meet rekeying, which comes every two minutes, at any phase.
        let quiet = soak.below(60) as u32 * S;
        soak.pass(quiet);
        if soak.net.now > time / 4 {
            first.get_or_insert_with(memory);
        }
    }
    soak.pass(S);
    slowest
        .iter()
        .for_each(|(fault, (count, took))| println!("{count} times {fault:?}: well after {took:?} at most"));
    for end in 0..2 {
        let peer = soak.net.peer(end);
        // What was sent within the last round trip may be under way.
        assert!(
            peer.reorder_bytes == 0 && peer.queue_bytes == 0 && peer.unconfirmed_bytes < 5000,
            "{peer:#?}"
        );
    }
    let (first, last) = (first.unwrap_or(0), memory());
    println!("{first} kB after a quarter, {last} kB at the end");
    assert!(last <= first + GROWTH_KB, "{first} kB after a quarter, {last} kB at the end");
}

#[test]
fn an_hour_of_faults_is_got_over() {
    soak(3600 * S, 1);
}

#[test]
#[ignore = "takes minutes"]
fn a_day_of_faults_is_got_over() {
    soak(86_400 * S, 2);
}
