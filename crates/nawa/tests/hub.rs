//! A hub with many peers: how soon all are up, what it keeps of each, how long it is asked for its state, what a packet costs.
//!
//! `cargo test --release -p nawa --test hub -- --nocapture` prints them for 200 peers. The peers are the tunnel's core over sockets of their
//! own, with addresses of their own, on one thread; the hub is `nawa run`.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::{Daemon, Namespace, Node, eventually, namespaces_or_skip, output, stdout, succeed};
use device::poller::{Interest, boottime};
use device::{Poller, monotonic};
use rand_core::{OsRng, TryRngCore};
use tunnel::endpoint::{Arrival, Endpoint};
use tunnel::wire::train::Train;
use tunnel::{Bicast, Config, Local, Mtu, PathConfig, PeerConfig, PresharedKey, PrivateKey, Scheduler};

const PEERS: usize = 200;
/// Packets a second to the hub, in all, of this size in bytes: what fills a part of one processor.
const RATE: u64 = 2000;
const SIZE: u16 = 1000;
/// So many packets of one peer come together.
const BURST: u64 = 8;
/// After so long the sizes of packets that pass are known, and the peers are quiet.
const SETTLED: Duration = Duration::from_secs(10);
/// A cost is measured for so long, so many times, of one peer's packets and of all peers' in turn.
const LOAD: Duration = Duration::from_secs(2);
const ROUNDS: usize = 3;

fn place(peer: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 5, 1 + (peer / 250) as u8, 1 + (peer % 250) as u8)
}

fn inner(peer: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 1 + (peer / 250) as u8, 1 + (peer % 250) as u8)
}

/// An inner UDP packet to the hub's discard port.
fn packet(from: Ipv4Addr) -> Vec<u8> {
    let mut packet = vec![0; SIZE.into()];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&SIZE.to_be_bytes());
    packet[8..10].copy_from_slice(&[64, 17]);
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&[10, 77, 0, 1]);
    let sum: u32 = packet[..20].chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet[22..24].copy_from_slice(&9u16.to_be_bytes());
    packet[24..26].copy_from_slice(&(SIZE - 20).to_be_bytes());
    packet
}

/// A hub with so many peers, and their cores.
struct Net {
    hub: Namespace,
    peers: Namespace,
    keys: Vec<PrivateKey>,
    node: Node,
}

impl Net {
    fn new(count: usize) -> Net {
        let (hub, peers, node) = (Namespace::new(), Namespace::new(), Node::new());
        Namespace::connect((&hub, "eth0", "10.5.0.1/16"), (&peers, "eth0", "10.5.0.2/16"));
        let add = |peer| format!("address add {}/16 dev eth0\n", place(peer));
        let batch: String = (0..count).map(add).collect();
        let file = node.key().with_file_name("batch");
        std::fs::write(&file, batch).expect("a file");
        succeed(&mut peers.command("ip", ["-batch", file.to_str().expect("UTF-8")]));
        let keys = (0..count).map(|_| PrivateKey::generate(&mut OsRng.unwrap_err())).collect();
        Net { hub, peers, keys, node }
    }

    fn start(&self) -> Daemon {
        let peer = |(at, key): (usize, &PrivateKey)| {
            let (key, inner) = (key.public(), inner(at));
            format!(
                "[[peer]]\nname = 'peer{at}'\npublic-key = '{key}'\nroutes = ['{inner}/32']\nkeepalive = '20s'\n"
            )
        };
        let peers: String = self.keys.iter().enumerate().map(peer).collect();
        let file = self.node.write(&format!(
            "[metrics]\nlisten = '127.0.0.1:9477'\n[tunnel]\ninterface = 'nawa0'\naddresses = ['10.77.0.1/16']\n\
             listen = 51900\n{peers}"
        ));
        Daemon::start(&self.hub, &file)
    }

    /// The core of a peer.
    fn end(&self, at: usize, hub: tunnel::PublicKey) -> Endpoint {
        let path = PathConfig {
            name: "path".into(),
            local: Local::Any,
            remote: SocketAddr::from(([10, 5, 0, 1], 51900)).into(),
            via: None,
            backup: false,
            receive: true,
            cost: Default::default(),
        };
        let peer = PeerConfig {
            name: "hub".into(),
            public_key: hub,
            preshared_key: PresharedKey::default(),
            routes: vec!["10.77.0.1/32".parse().expect("a route")],
            keepalive: Some(Duration::from_secs(20)),
            resend: true,
            bicast: Bicast::Off,
            paths: vec![path],
        };
        let config = Config {
            scheduler: Scheduler::Auto,
            mtu: Mtu::Auto,
            marks: Default::default(),
            fail_open: false,
            resolvers: Vec::new(),
            peers: vec![peer],
        };
        let mut seed = [0; 32];
        OsRng.try_fill_bytes(&mut seed).expect("randomness");
        let mut end = Endpoint::new(config, self.keys[at].clone(), seed);
        end.set_local(boottime(), 0, 0, Some(Default::default()));
        end
    }

    /// Runs the peers until `stop`; while `load` they send, the first `load` of them in turn.
    fn run(&self, stop: &AtomicBool, load: &AtomicU64) {
        let hub = self.node.public_key.parse().expect("the hub's key");
        let mut ends: Vec<_> = (0..self.keys.len()).map(|at| self.end(at, hub)).collect();
        let bind = |at| UdpSocket::bind((place(at), 4000)).expect("a socket");
        let sockets: Vec<_> = (0..ends.len()).map(bind).collect();
        let mut poller = Poller::new().expect("a poller");
        for (at, socket) in sockets.iter().enumerate() {
            socket.set_nonblocking(true).expect("a socket");
            poller.add(socket, at as u64, Interest::Read).expect("a socket");
        }
        let (mut timers, mut train) = (vec![Duration::ZERO; ends.len()], Train::default());
        let mut buffer = [0; 2048];
        let (mut turn, mut sent, mut since) = (0, 0, None);
        while !stop.load(Ordering::Relaxed) {
            let mut woken: Vec<_> = poller
                .wait(Some(Duration::from_millis(1)))
                .expect("waiting")
                .map(|r| r.token as usize)
                .collect();
            let now = boottime();
            for at in &woken {
                while let Ok((length, remote)) = sockets[*at].recv_from(&mut buffer) {
                    let arrival = Arrival { remote, local: Default::default(), tos: 0 };
                    ends[*at].handle_datagram(now, &arrival, &mut buffer[..length]);
                }
            }
            let senders = load.load(Ordering::Relaxed) as usize;
            let start = *since.get_or_insert(now);
            if senders == 0 {
                (since, sent) = (None, 0);
            }
            while senders > 0 && sent < RATE * (now - start).as_millis() as u64 / 1000 {
                let at = turn % senders;
                for _ in 0..BURST {
                    ends[at].handle_inner(now, &mut packet(inner(at)));
                }
                (turn, sent) = (turn + 1, sent + BURST);
                woken.push(at);
            }
            woken.extend((0..ends.len()).filter(|at| timers[*at] <= now));
            woken.sort_unstable();
            woken.dedup();
            for at in woken {
                let end = &mut ends[at];
                end.work(now);
                end.handle_timeout(now);
                while end.poll_transmit(now, &mut train) {
                    let to = train.to.expect("a train goes somewhere").remote;
                    for datagram in train.datagrams() {
                        match sockets[at].send_to(datagram, to) {
                            Err(error) if error.kind() != ErrorKind::WouldBlock => panic!("{error}"),
                            _ => {}
                        }
                    }
                }
                while end.poll_inner().is_some() {}
                timers[at] = end.poll_timeout(now).unwrap_or(Duration::MAX);
            }
        }
    }

    /// The hub's state. On a machine that is busy with other things a thread that carries a load may not answer in time.
    fn state(&self) -> serde_json::Value {
        eventually("the hub answers", || {
            let said = output(&mut self.hub.nawa(["status", "--json"]));
            said.status.success().then(|| serde_json::from_str(&stdout(&said)).expect("one JSON object"))
        })
    }

    fn up(&self) -> usize {
        let state = self.state();
        let peers = state["tunnel"]["peers"].as_array().expect("peers");
        let is_up = |peer: &&serde_json::Value| peer["up"] == true && peer["paths"][0]["state"] == "up";
        peers.iter().filter(is_up).count()
    }

    /// Packets that the hub has delivered.
    fn delivered(&self) -> u64 {
        let state = self.state();
        let peers = state["tunnel"]["peers"].as_array().expect("peers");
        peers.iter().filter_map(|peer| peer["order"]["delivered_packets"].as_u64()).sum()
    }
}

/// Ends the peers' thread, also where the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The processor's time of a process.
fn used(pid: u64) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("its threads").flatten();
    let time = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    Duration::from_nanos(tasks.filter_map(time).sum())
}

/// What a process keeps in memory, in bytes.
fn memory(pid: u64) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

fn quickest(mut work: impl FnMut()) -> Duration {
    let time = |_| {
        let start = monotonic();
        work();
        monotonic() - start
    };
    (0..5).map(time).min().expect("five")
}

/// What is measured of a hub with so many peers.
struct Found {
    ready_s: f64,
    memory: u64,
    status_ms: f64,
    metrics_ms: f64,
    metrics_lines: usize,
    /// What the peers take of a processor that carry nothing, percent.
    quiet_percent: f64,
    /// Microseconds of processor time for a packet, beside that, the middle of the rounds: one peer sends all, and all peers do in turn.
    packet_us: [f64; 2],
}

fn measure(count: usize) -> Found {
    let net = Net::new(count);
    let start = monotonic();
    let hub = net.start();
    let pid = net.state()["pid"].as_u64().expect("a process");
    let (stop, load) = (AtomicBool::new(false), AtomicU64::new(0));
    let found = std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| net.peers.within(|| net.run(&stop, &load)));
        let deadline = start + Duration::from_secs(60);
        let mut up = 0;
        while up < count && monotonic() < deadline {
            up = net.up();
        }
        let ready_s = (monotonic() - start).as_secs_f64();
        let discard = net.hub.within(|| UdpSocket::bind("10.77.0.1:9")).expect("a socket");
        let mut costs = [Vec::new(), Vec::new()];
        let mut poller = Poller::new().expect("a poller");
        poller.wait(Some(SETTLED)).expect("waiting").for_each(drop);
        let before = used(pid);
        poller.wait(Some(LOAD)).expect("waiting").for_each(drop);
        let quiet = used(pid) - before;
        for _ in 0..ROUNDS {
            for (senders, costs) in [1, count].iter().zip(&mut costs) {
                // What asking takes is not the load's.
                let delivered = net.delivered();
                let before = used(pid);
                load.store(*senders as u64, Ordering::Relaxed);
                poller.wait(Some(LOAD)).expect("waiting").for_each(drop);
                load.store(0, Ordering::Relaxed);
                let time = (used(pid) - before).saturating_sub(quiet);
                let packets = net.delivered() - delivered;
                costs.push(time.as_secs_f64() * 1e6 / packets.max(1) as f64);
            }
        }
        drop(discard);
        costs.iter_mut().for_each(|costs| costs.sort_by(f64::total_cmp));
        let mut page = String::new();
        let metrics = quickest(|| {
            net.hub.within(|| {
                page.clear();
                let mut stream = TcpStream::connect("127.0.0.1:9477").expect("it listens");
                stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("it reads");
                stream.read_to_string(&mut page).expect("it answers");
            });
        });
        let status = quickest(|| drop(net.state()));
        assert_eq!(up, count, "peers that are up after a minute");
        Found {
            ready_s,
            memory: memory(pid),
            status_ms: status.as_secs_f64() * 1e3,
            metrics_ms: metrics.as_secs_f64() * 1e3,
            metrics_lines: page.lines().count(),
            quiet_percent: 100.0 * quiet.as_secs_f64() / LOAD.as_secs_f64(),
            packet_us: costs.map(|costs| costs[ROUNDS / 2]),
        }
    });
    drop(hub);
    found
}

#[test]
fn a_hub_bears_two_hundred_peers() {
    let Some(_alone) = namespaces_or_skip("a_hub_bears_two_hundred_peers") else { return };
    let (one, many) = (measure(1), measure(PEERS));
    let each = (many.memory.saturating_sub(one.memory)) as f64 / PEERS as f64;
    println!("all {PEERS} up {:.1} s after the hub's start", many.ready_s);
    println!(
        "memory {:.1} MB with 1 peer, {:.1} with {PEERS}: {:.3} MB a peer",
        one.memory as f64 / 1e6,
        many.memory as f64 / 1e6,
        each / 1e6
    );
    println!(
        "`nawa status --json` in {:.0} ms, metrics ({} lines) in {:.0} ms, the quickest of five",
        many.status_ms, many.metrics_lines, many.metrics_ms
    );
    println!("{PEERS} quiet peers: {:.2} % of a processor", many.quiet_percent);
    let (alone, [of_one, of_all]) = (one.packet_us[0], many.packet_us);
    println!(
        "a packet of {SIZE} bytes in, of processor: {alone:.2} us of the only peer; {of_one:.2} of one of {PEERS}, {:.2} times; \
         {of_all:.2} where each sends its share in bursts of {BURST}, {:.2} times (medians of {ROUNDS})",
        of_one / alone,
        of_all / alone
    );
    // What a busy machine does not change; times are for who reads them, but for those that are whole orders off.
    assert!(each < 1e6, "{each} bytes a peer");
    assert!(many.ready_s < 60.0 && many.status_ms < 2000.0 && many.metrics_ms < 2000.0);
    assert!(of_all < 5.0 * alone, "linear work for each packet?");
}
