//! A van with two uplinks to an office elsewhere:
//!
//! ```text
//! van wan1 10.0.1.2, fd01::2 ── 10.0.1.1, fd01::1 wan1 ┐
//!                                                      core eth0 203.0.113.1, 2001:db8::1 ── 203.0.113.7, 2001:db8::7 office
//! van wan2 10.0.2.2, fd02::2 ── 10.0.2.1, fd02::1 wan2 ┘
//! ```
//!
//! The core forwards, and drops what comes by an uplink from another uplink's address, as providers do (BCP 38). The van has
//! no default route: a test gives it those that it is about.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use super::{Daemon, Namespace, Node, accept, eventually, pause, succeed};

/// The three hosts, and the keys of the van and the office.
pub struct Uplinks {
    pub van: Namespace,
    pub core: Namespace,
    pub office: Namespace,
    pub nodes: [Node; 2],
}

/// Where the office is, in each family.
pub const FAMILIES: [&str; 2] = ["203.0.113.7", "[2001:db8::7]"];

/// `[[peer.path]]` to the office; `more` are further lines.
pub fn path(name: &str, more: &str) -> String {
    path_to(FAMILIES[0], name, more)
}

/// The same to one of its addresses.
pub fn path_to(office: &str, name: &str, more: &str) -> String {
    format!("[[peer.path]]\nname = '{name}'\nremote = '{office}:51900'\n{more}\n")
}

impl Uplinks {
    pub fn new() -> Uplinks {
        let (van, core, office) = (Namespace::new(), Namespace::new(), Namespace::new());
        for wan in [1, 2] {
            let name = format!("wan{wan}");
            let (inside, outside) = (format!("10.0.{wan}.2/24"), format!("10.0.{wan}.1/24"));
            Namespace::connect((&van, &name, &inside), (&core, &name, &outside));
            van.ip(&format!("address add fd0{wan}::2/64 dev {name} nodad"));
            core.ip(&format!("address add fd0{wan}::1/64 dev {name} nodad"));
        }
        Namespace::connect((&core, "eth0", "203.0.113.1/24"), (&office, "eth0", "203.0.113.7/24"));
        core.ip("address add 2001:db8::1/64 dev eth0 nodad");
        office.ip("address add 2001:db8::7/64 dev eth0 nodad");
        office.ip("route add default via 203.0.113.1");
        office.ip("route add default via 2001:db8::1");
        shell(&core, "echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding");
        nft(
            &core,
            "table inet isp { chain forward { type filter hook forward priority 0;\n\
             iifname wan1 ip saddr != 10.0.1.0/24 drop; iifname wan2 ip saddr != 10.0.2.0/24 drop\n\
             iifname wan1 ip6 saddr != fd01::/64 drop; iifname wan2 ip6 saddr != fd02::/64 drop\n}\n}",
        );
        Uplinks { van, core, office, nodes: [Node::new(), Node::new()] }
    }

    /// The van has default routes by both uplinks, the first before the second.
    pub fn lead_out(&self) {
        for wan in [1, 2] {
            for via in [format!("10.0.{wan}.1"), format!("fd0{wan}::1")] {
                self.van.ip(&format!("route replace default via {via} metric {wan}0"));
            }
        }
    }

    /// The van's file: `tunnel` and `peer` go into those sections, `paths` behind them.
    pub fn van_file(&self, tunnel: &str, routes: &str, paths: &str) -> PathBuf {
        let key = &self.nodes[1].public_key;
        self.nodes[0].write(&format!(
            "[tunnel]\ninterface = 'nawa0'\naddresses = ['10.77.0.1/24', 'fd77::1/64']\n{tunnel}\n\
             [[peer]]\nname = 'office'\npublic-key = '{key}'\nroutes = [{routes}]\n{paths}"
        ))
    }

    /// The office's, which listens; `more` goes behind the peer's section.
    pub fn office_file(&self, more: &str) -> PathBuf {
        let key = &self.nodes[0].public_key;
        self.nodes[1].write(&format!(
            "[tunnel]\ninterface = 'nawa0'\naddresses = ['10.77.0.2/24', 'fd77::2/64']\nlisten = 51900\n\
             [[peer]]\nname = 'van'\npublic-key = '{key}'\nroutes = ['10.77.0.1/32', 'fd77::1/128']\n{more}"
        ))
    }

    /// Both daemons, the van's with these paths.
    pub fn start(&self, tunnel: &str, routes: &str, paths: &str) -> [Daemon; 2] {
        [
            Daemon::start(&self.office, &self.office_file("")),
            Daemon::start(&self.van, &self.van_file(tunnel, routes, paths)),
        ]
    }

    /// A path of the van's, as its status has it, once it is as `wanted`.
    #[track_caller]
    pub fn wait_for(&self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        wait_for_path(&self.van, name, what, wanted)
    }

    /// Waits until these paths of the van's are up.
    #[track_caller]
    pub fn wait_up(&self, names: &[&str]) {
        for name in names {
            self.wait_for(name, "up", |path| path["state"] == "up");
        }
    }

    /// Waits until a path of the van's says why it is not up.
    #[track_caller]
    pub fn wait_why(&self, name: &str, why: &str) {
        let says = |path: &Value| path["why"].as_str().is_some_and(|said| said.contains(why));
        self.wait_for(name, why, says);
    }

    /// A packet through the tunnel, to `to`, and back.
    #[track_caller]
    pub fn ping(&self, to: &str) {
        succeed(&mut self.van.command("ping", ["-c", "1", "-w", "30", to]));
    }

    /// Packets of IPv6's least size, and 4 MB by TCP each way, over the tunnel.
    #[track_caller]
    pub fn carries(&self) {
        let pings = shell(&self.van, "ping -6 -c 20 -i 0.05 -s 1232 -W 20 fd77::2");
        assert!(pings.contains(" 20 received"), "{pings}");
        let sent: Vec<u8> =
            (0u32..1 << 20).flat_map(|number| number.wrapping_mul(2_654_435_761).to_be_bytes()).collect();
        let listener = self.office.within(|| TcpListener::bind("[fd77::2]:9")).expect("the tunnel's address");
        std::thread::scope(|scope| {
            // The office sends all back.
            scope.spawn(|| {
                let mut stream = accept(&listener);
                let mut all = Vec::new();
                stream.read_to_end(&mut all).expect("all that was sent");
                stream.write_all(&all).expect("all goes back");
            });
            let exchange = || {
                let mut stream = TcpStream::connect("[fd77::2]:9").expect("a connection");
                stream.write_all(&sent).expect("it is taken");
                stream.shutdown(std::net::Shutdown::Write).expect("the end");
                let mut back = Vec::new();
                stream.read_to_end(&mut back).expect("all comes back");
                back
            };
            assert!(self.van.within(exchange) == sent, "what comes back is what was sent");
        });
    }

    /// Waits until each of these paths of the van's has carried more than 400 kB either way: a tenth of what
    /// [`carries`](Self::carries) sends.
    #[track_caller]
    pub fn wait_used(&self, names: &[&str]) {
        let both = |path: &Value| {
            ["sent_bytes", "received_bytes"].iter().all(|way| path[way].as_u64() > Some(400_000))
        };
        for name in names {
            self.wait_for(name, "carried its part both ways", both);
        }
    }

    /// Waits until the van sends nothing over a path: so it hears of nothing that befalls it.
    #[track_caller]
    pub fn wait_idle(&self, name: &str) {
        let sent = || self.wait_for(name, "there", |_| true)["sent_packets"].clone();
        eventually(&format!("{name} is idle"), || {
            let before = sent();
            pause(Duration::from_secs(1));
            (sent() == before).then_some(())
        });
    }
}

/// A path that a daemon knows, as its status has it, once it is as `wanted`.
#[track_caller]
pub fn wait_for_path(of: &Namespace, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let find = || {
        let status = of.status();
        let paths = status["tunnel"]["peers"].as_array()?.iter().flat_map(|p| p["paths"].as_array());
        let path = paths.flatten().find(|path| path["name"] == name)?.clone();
        wanted(&path).then_some(path)
    };
    eventually(&format!("{name}: {what}"), find)
}

/// A line of shell inside.
#[track_caller]
pub fn shell(of: &Namespace, line: &str) -> String {
    succeed(&mut of.command("sh", ["-c", line]))
}

/// What an interface sends goes at so many Mbit/s from now on.
#[track_caller]
pub fn limit(of: &Namespace, interface: &str, mbit: u32) {
    shell(of, &format!("tc qdisc add dev {interface} root tbf rate {mbit}mbit burst 16k limit 256k"));
}

/// Rules for nftables inside.
#[track_caller]
pub fn nft(of: &Namespace, rules: &str) {
    succeed(&mut of.command("nft", [rules]));
}

/// A server for names in a namespace, on port 53 of an address there, by UDP and TCP; gone when dropped.
pub struct Names {
    known: Arc<Mutex<BTreeMap<String, Vec<IpAddr>>>>,
    /// Whether questions came by UDP, and by TCP.
    asked: Arc<[AtomicBool; 2]>,
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Names {
    /// Answers by UDP are cut if `cut`, so that who asks has to come by TCP.
    pub fn new(of: &Namespace, at: &str, cut: bool) -> Names {
        let at: IpAddr = at.parse().expect("an address");
        let (udp, tcp) = of.within(move || {
            let tcp = TcpListener::bind((at, 53)).expect("port 53 of TCP is free");
            (UdpSocket::bind((at, 53)).expect("port 53 of UDP is free"), tcp)
        });
        let wait = Some(Duration::from_millis(100));
        udp.set_read_timeout(wait).expect("a time-out");
        tcp.set_nonblocking(true).expect("it does not block");
        let known = Arc::new(Mutex::new(BTreeMap::new()));
        let (asked, end) =
            (Arc::new([AtomicBool::new(false), AtomicBool::new(false)]), Arc::new(AtomicBool::new(false)));
        let mut names = Names { known, asked, end, threads: Vec::new() };
        let (known, asked, end) = (names.known.clone(), names.asked.clone(), names.end.clone());
        names.threads.push(std::thread::spawn(move || {
            let mut buffer = [0; 512];
            while !end.load(Ordering::Relaxed) {
                let Ok((length, from)) = udp.recv_from(&mut buffer) else { continue };
                asked[0].store(true, Ordering::Relaxed);
                let mut answer = reply(&known.lock().expect("no panic"), &buffer[..length]);
                if cut {
                    answer.truncate(length);
                    answer[2] |= 2;
                    answer[6..8].fill(0);
                }
                let _ = udp.send_to(&answer, from);
            }
        }));
        let (known, asked, end) = (names.known.clone(), names.asked.clone(), names.end.clone());
        names.threads.push(std::thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                let Ok((mut stream, _)) = tcp.accept() else {
                    // A look each 20 ms costs nothing and needs no other end of it.
                    let _ = rustix::thread::nanosleep(&rustix::thread::Timespec {
                        tv_sec: 0,
                        tv_nsec: 20_000_000,
                    });
                    continue;
                };
                asked[1].store(true, Ordering::Relaxed);
                stream.set_nonblocking(false).expect("it blocks");
                stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a time-out");
                let mut length = [0; 2];
                let mut question = Vec::new();
                if stream.read_exact(&mut length).is_ok() {
                    question.resize(u16::from_be_bytes(length).into(), 0);
                }
                if question.len() > 12 && stream.read_exact(&mut question).is_ok() {
                    let answer = reply(&known.lock().expect("no panic"), &question);
                    let length = u16::try_from(answer.len()).expect("a short answer").to_be_bytes();
                    let _ = stream.write_all(&[&length[..], &answer].concat());
                }
            }
        }));
        names
    }

    /// The name has these addresses from now on.
    pub fn set(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|text| text.parse().expect("an address")).collect();
        self.known.lock().expect("no panic").insert(name.to_owned(), addresses);
    }

    /// There is no such name any more.
    pub fn forget(&self, name: &str) {
        self.known.lock().expect("no panic").remove(name);
    }

    /// Whether questions came by UDP, and by TCP.
    pub fn asked(&self) -> [bool; 2] {
        std::array::from_fn(|by| self.asked[by].load(Ordering::Relaxed))
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().expect("it ends well"));
    }
}

/// To a question for a name's addresses of one family (RFC 1035); no such name where it is not known.
fn reply(known: &BTreeMap<String, Vec<IpAddr>>, question: &[u8]) -> Vec<u8> {
    let (mut name, mut at) = (Vec::new(), 12);
    while question[at] != 0 {
        let length = usize::from(question[at]);
        name.push(String::from_utf8_lossy(&question[at + 1..=at + length]).into_owned());
        at += length + 1;
    }
    let v6 = question[at + 2] == 28;
    let found = known.get(&name.join("."));
    let mut answer = question[..at + 5].to_vec();
    answer[2..4].copy_from_slice(&[0x81, if found.is_some() { 0x80 } else { 0x83 }]);
    answer[6..12].fill(0);
    for ip in found.into_iter().flatten().filter(|ip| ip.is_ipv6() == v6) {
        let bytes = match ip {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        answer.extend([0xc0, 12, 0, question[at + 2], 0, 1, 0, 0, 0, 9, 0, bytes.len() as u8]);
        answer.extend(bytes);
        answer[7] += 1;
    }
    answer
}

/// The files of the resolver in a namespace, as `ip netns exec` has them; gone when dropped.
pub struct Resolver(PathBuf);

impl Resolver {
    /// Knows the names in `hosts`; asks a server at 10.0.1.1 for others, and waits for it for so long.
    pub fn new(of: &Namespace, hosts: &str, seconds: u32) -> Resolver {
        let resolver = Resolver(std::path::Path::new("/etc/netns").join(of.name()));
        std::fs::create_dir_all(&resolver.0).expect("a folder below /etc/netns");
        resolver.ask(&format!("nameserver 10.0.1.1\noptions timeout:{seconds} attempts:1\n"));
        resolver.write(hosts);
        resolver
    }

    /// What resolv.conf says from now on.
    pub fn ask(&self, conf: &str) {
        std::fs::write(self.0.join("resolv.conf"), conf).expect("resolv.conf");
    }

    /// Knows these names from now on.
    pub fn write(&self, hosts: &str) {
        std::fs::write(self.0.join("hosts"), format!("127.0.0.1 localhost\n{hosts}")).expect("hosts");
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
