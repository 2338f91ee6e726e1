//! TCP under a congestion control of `nawa flight`, over an emulated link, and what the kernel tells about it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use flight::kernel::{self, Connection};
use lab::emulator::Emulator;
use lab::namespace::Namespace;
use lab::network::{Network, PathSpec, SERVER, Topology};
use link::{Bitrate, Capacity, LinkConfig, Queue};

use super::{PATIENCE, eventually, namespaces_or_skip, succeed};

/// What is tested.
pub const CONTROLS: [&str; 2] = ["fsat_paper", "fsat"];

/// A machine that is busy with other tests disturbs TCP, too: of three tries under each congestion control one has to do without.
#[track_caller]
pub fn undisturbed(by: &str, mut disturbances: impl FnMut(&str) -> u64) {
    for control in CONTROLS {
        assert!((0..3).any(|_| disturbances(control) == 0), "{control}: {by} in each of three tries");
    }
}

/// Where the receiver listens.
pub const PORT: u16 = 9;

/// `nawa flight on`, and off when dropped. It is the kernel's, not a namespace's: one such value at a time on a machine.
pub struct Registered {
    _alone: MutexGuard<'static, ()>,
    _machine: File,
}

/// Registers the congestion controls; `None` skips the test `name`.
#[track_caller]
pub fn registered_or_skip(name: &str) -> Option<Registered> {
    let alone = namespaces_or_skip(name)?;
    if let Err(error) = kernel::probe() {
        super::skip(name, &error.to_string());
        return None;
    }
    let machine = kernel::lock::registration().expect("the lock can be taken");
    turn("on");
    Some(Registered { _alone: alone, _machine: machine })
}

impl Drop for Registered {
    /// While the lock is still held, so that the next begins with nothing registered.
    fn drop(&mut self) {
        let _ = super::nawa(["flight", "off"]).output();
    }
}

/// `nawa flight on` or `off`.
#[track_caller]
pub fn turn(state: &str) {
    succeed(&mut super::nawa(["flight", state]));
}

/// 20 Mbit/s, 20 ms there and back, and room for 300 kB: some 6 times the product of both.
pub fn link() -> LinkConfig {
    LinkConfig {
        capacity: Capacity::Fixed(Bitrate::from_mbps(20.0)),
        delay: Duration::from_millis(10),
        queue: Queue::Packets(200),
        ..LinkConfig::default()
    }
}

/// A client and a server whose TCP has `control` as its default, and between them a link that is alike both ways.
pub struct Net {
    /// Client, server, and the relay between the link and the server.
    pub network: Network,
    _emulator: Emulator,
}

impl Net {
    /// One link.
    pub fn new(control: &str, link: LinkConfig) -> Net {
        Net::with_paths(control, vec![PathSpec::symmetric("link", link)])
    }

    /// As many links as `paths`.
    pub fn with_paths(control: &str, paths: Vec<PathSpec>) -> Net {
        let emulator = Emulator::start().expect("the emulator starts");
        let network =
            Network::build(&emulator, &Topology::Relayed(paths), 1).expect("the network can be built");
        let net = Net { network, _emulator: emulator };
        net.sysctl("ipv4/tcp_congestion_control", control);
        net
    }

    /// Sets it at both ends.
    pub fn sysctl(&self, key: &str, value: &str) {
        for host in [&self.network.client, &self.network.server] {
            host.sysctl(key, value).expect("it can be set");
        }
    }

    /// Rules of nftables for what the first relay forwards; `data` in one stands for a full segment to the server.
    pub fn rules(&self, rules: &[&str]) {
        let rules = rules.join("\n").replace("data", &format!("tcp dport {PORT} ip length > 1000"));
        let table =
            format!("table ip t {{\nchain c {{\ntype filter hook forward priority 0\n{rules}\n}}\n}}\n");
        let mut nft = self.network.relays[0].command("nft");
        let mut nft = nft.args(["-f", "-"]).stdin(Stdio::piped()).spawn().expect("nft starts");
        nft.stdin.take().expect("a pipe").write_all(table.as_bytes()).expect("nft reads");
        assert!(nft.wait().expect("nft ends").success(), "{table}");
    }

    /// Takes all rules back.
    pub fn forget_rules(&self) {
        succeed(self.network.relays[0].command("nft").args(["flush", "ruleset"]));
    }

    /// How many packets met the rules that count, in order.
    pub fn counted(&self) -> Vec<u64> {
        let shown = succeed(self.network.relays[0].command("nft").args(["list", "ruleset"]));
        let mut words = shown.split_whitespace();
        let mut counts = Vec::new();
        while words.by_ref().any(|word| word == "packets") {
            counts.push(words.next().and_then(|count| count.parse().ok()).expect("a number"));
        }
        counts
    }

    /// A listener on the server.
    pub fn listen(&self) -> TcpListener {
        listen(&self.network.server, SocketAddr::new(SERVER, PORT))
    }

    /// A connection from client to server.
    #[track_caller]
    pub fn connect(&self) -> Stream {
        let listener = self.listen();
        let near = self.network.client.run(|| TcpStream::connect((SERVER, PORT)));
        let near = near.expect("the namespace is there").expect("a connection");
        Stream::new(near, listener.accept().expect("a connection").0)
    }

    /// What FS-AT knows of the client's connections.
    #[track_caller]
    pub fn known(&self) -> Vec<Connection> {
        let known = self.network.client.run(kernel::connections);
        known.expect("the namespace is there").expect("they can be read")
    }

    /// What `ss` says about the client's connections.
    pub fn samples(&self) -> Vec<Sample> {
        samples(&self.network.client)
    }

    /// What `ss` says about the client's only connection.
    #[track_caller]
    pub fn sample(&self) -> Sample {
        self.samples().pop().expect("there is a connection")
    }

    /// Waits until the client's connection is as `wanted`.
    #[track_caller]
    pub fn wait_for(&self, what: &str, wanted: impl Fn(&Sample) -> bool) -> Sample {
        eventually(what, || self.samples().pop().filter(&wanted))
    }

    /// A counter of the client's TCP, as `TCPTimeouts` of /proc/net/netstat or `RetransSegs` of /proc/net/snmp.
    #[track_caller]
    pub fn counter(&self, name: &str) -> u64 {
        counter(&self.network.client, name)
    }
}

/// A listener in `host`.
pub fn listen(host: &Namespace, address: SocketAddr) -> TcpListener {
    host.run(|| TcpListener::bind(address)).expect("the namespace is there").expect("the address is free")
}

/// A counter of `host`'s TCP.
#[track_caller]
pub fn counter(host: &Namespace, name: &str) -> u64 {
    host.run(|| counter_here(name)).expect("the namespace is there")
}

/// The same, of the namespace that the thread is in.
pub fn counter_here(name: &str) -> u64 {
    let read =
        |file: &str| fs::read_to_string(format!("/proc/thread-self/net/{file}")).expect("it can be read");
    let text = read("netstat") + &read("snmp");
    let lines: Vec<&str> = text.lines().collect();
    let pairs = lines.chunks_exact(2).flat_map(|pair| pair[0].split(' ').zip(pair[1].split(' ')));
    let mut found = pairs.filter(|(key, _)| *key == name);
    found.next().and_then(|(_, value)| value.parse().ok()).unwrap_or_else(|| panic!("no counter {name}"))
}

/// What `ss -ti` tells about one connection.
#[derive(Debug, Clone)]
pub struct Sample {
    /// The congestion control's name.
    pub control: String,
    /// What it said.
    pub line: String,
    numbers: BTreeMap<String, u64>,
}

impl Sample {
    fn parse(line: &str) -> Sample {
        let words: Vec<&str> = line.split_whitespace().collect();
        let before_scale = words.iter().position(|word| word.starts_with("wscale:")).unwrap_or(1);
        let number = |text: &str| {
            let digits = text.split(['/', ',', '(', '.']).next().unwrap_or("");
            digits.parse().ok()
        };
        let pairs = words.iter().filter_map(|word| word.split_once(':'));
        let numbers = pairs.filter_map(|(key, value)| Some((key.to_owned(), number(value)?))).collect();
        Sample { control: words[before_scale - 1].to_owned(), line: line.to_owned(), numbers }
    }

    /// A number by its name, as `cwnd`; 0 if it is not said, as `ss` has it.
    pub fn number(&self, name: &str) -> u64 {
        self.numbers.get(name).copied().unwrap_or(0)
    }

    /// The congestion window, packets.
    pub fn cwnd(&self) -> u64 {
        self.number("cwnd")
    }

    /// The slow start threshold, packets; `u64::MAX` as long as there is none.
    pub fn ssthresh(&self) -> u64 {
        self.numbers.get("ssthresh").copied().unwrap_or(u64::MAX)
    }

    /// Packets in flight as RFC 6675's pipe has it.
    pub fn in_flight(&self) -> u64 {
        let out = self.number("unacked") + self.number("retrans");
        out.saturating_sub(self.number("sacked") + self.number("lost"))
    }

    /// Packets sent again since the connection began.
    pub fn resent(&self) -> u64 {
        let both = self.line.split(" retrans:").nth(1).and_then(|rest| rest.split([' ', '/']).nth(1));
        both.and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    /// Whether something is lost, or sent again and not acknowledged.
    pub fn recovers(&self) -> bool {
        self.number("lost") + self.number("retrans") > 0
    }

    /// The timer that runs, as `on`, `persist` or `keepalive`.
    pub fn timer(&self) -> &str {
        let timer = self.line.split("timer:(").nth(1).and_then(|rest| rest.split(',').next());
        timer.unwrap_or("")
    }
}

/// What `ss` says about `host`'s connections to [`PORT`].
pub fn samples(host: &Namespace) -> Vec<Sample> {
    let mut command = Command::new("ss");
    command.args(["-tinOHo", "state", "established", "dport", &format!("= :{PORT}")]).stdin(Stdio::null());
    let said = host.run(|| succeed(&mut command)).expect("the namespace is there");
    said.lines().filter(|line| line.contains("cwnd:")).map(Sample::parse).collect()
}

/// Both ends of a connection; what waits longer than it may ever take is an error.
pub struct Stream {
    /// The end that connected, and sends.
    pub near: TcpStream,
    /// The end that accepted, and receives.
    pub far: TcpStream,
    sent: u64,
    received: u64,
}

impl Stream {
    /// Of these two ends.
    pub fn new(near: TcpStream, far: TcpStream) -> Stream {
        for end in [&near, &far] {
            end.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            end.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        }
        Stream { near, far, sent: 0, received: 0 }
    }

    /// Sends `length` bytes.
    #[track_caller]
    pub fn send(&mut self, length: u64) {
        send(&mut self.near, &mut self.sent, length);
    }

    /// Receives `length` bytes, which have to be those sent.
    #[track_caller]
    pub fn receive(&mut self, length: u64) {
        receive(&mut self.far, &mut self.received, length);
    }

    /// Carries `length` bytes, which have to arrive as they were sent; meanwhile calls `watch` again and again.
    pub fn transfer(&mut self, length: u64, mut watch: impl FnMut()) {
        let done = AtomicBool::new(false);
        let Stream { near, far, sent, received } = self;
        std::thread::scope(|scope| {
            scope.spawn(|| send(near, sent, length));
            scope.spawn(|| {
                let _done = SetWhenDropped(&done);
                receive(far, received, length);
            });
            let mut pace = device::Poller::new().expect("a poller");
            while !done.load(Relaxed) {
                watch();
                pace.wait(Some(Duration::from_millis(3))).expect("waiting").for_each(drop);
            }
        });
    }

    /// Lets the sender send no more; the receiver has to see the end of the stream and nothing before it.
    #[track_caller]
    pub fn finish(mut self) {
        self.near.shutdown(std::net::Shutdown::Write).expect("it is open");
        assert_eq!(self.far.read(&mut [0]).expect("the stream goes on"), 0, "more arrived than was sent");
    }
}

/// So that who panics does not leave others waiting.
pub struct SetWhenDropped<'a>(pub &'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// The byte at `position` of every stream.
fn byte(position: u64) -> u8 {
    (position * 7 + position / 251) as u8
}

#[track_caller]
fn send(stream: &mut TcpStream, sent: &mut u64, length: u64) {
    let end = *sent + length;
    while *sent < end {
        let chunk: Vec<u8> = (*sent..end.min(*sent + 16_384)).map(byte).collect();
        stream.write_all(&chunk).expect("the stream goes on");
        *sent += chunk.len() as u64;
    }
}

#[track_caller]
fn receive(stream: &mut TcpStream, received: &mut u64, length: u64) {
    let (end, mut buffer) = (*received + length, vec![0; 65_536]);
    while *received < end {
        let room = buffer.len().min((end - *received) as usize);
        let got = stream.read(&mut buffer[..room]).expect("the stream goes on");
        assert!(got > 0, "the stream ended after {received} of {end} bytes");
        let wrong = (0..got).find(|&index| buffer[index] != byte(*received + index as u64));
        assert_eq!(wrong, None, "another byte arrived than was sent, after {received}");
        *received += got as u64;
    }
}
