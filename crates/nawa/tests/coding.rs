//! Coding in real namespaces: a chain of nodes on a shared medium, real transfers over it, and what a hostile neighbour or a
//! broken interface does to them.
//!
//! The medium is a bridge that forgets at once, in a namespace of its own: whatever one sends, all others hear. Each node's
//! way onto it is slow, so that frames meet in the nodes' queues.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::thread;

use common::{Daemon, Namespace, eventually, namespaces_or_skip, output, stderr, stdout, succeed};
use device::{PacketSocket, PromiscuousSocket};
use rustix::process::Signal;
use serde_json::Value;

/// EtherType of network coding.
const NC: u16 = 0x88b6;
const MODES: [&str; 5] = ["off", "piggy", "delayed", "controlled", "any"];
/// Modes whose holds make sure that opposing transfers are coded.
const CODING: [&str; 3] = ["delayed", "controlled", "any"];

/// Nodes 1, 2, … in a row, as their routes have it; in fact all hear all. `outsider` has an interface there too, and no daemon.
struct Chain {
    nodes: Vec<Namespace>,
    outsider: Namespace,
    folder: tempfile::TempDir,
    medium: Namespace,
    mtu: usize,
}

impl Chain {
    fn new(count: usize) -> Chain {
        Chain::with_mtu(count, 1500)
    }

    fn with_mtu(count: usize, mtu: usize) -> Chain {
        let medium = Namespace::new();
        medium.ip("link add name medium type bridge mcast_snooping 0 ageing_time 0");
        medium.ip("link set medium up");
        let nodes = (0..count).map(|_| Namespace::new()).collect();
        let outsider = Namespace::new();
        let folder = tempfile::tempdir().expect("a temporary folder");
        let chain = Chain { nodes, outsider, folder, medium, mtu };
        (1..=count).for_each(|number| chain.join(number, chain.node(number)));
        chain.join(100, &chain.outsider);
        chain
    }

    /// Gives `node` its interface `air0`, slow on its way out.
    fn join(&self, number: usize, node: &Namespace) {
        let (mtu, name) = (self.mtu, node.name());
        self.medium
            .ip(&format!("link add port{number} mtu {mtu} type veth peer name air0 mtu {mtu} netns {name}"));
        self.medium.ip(&format!("link set port{number} master medium up"));
        let slow = format!("qdisc add dev air0 root tbf rate 50mbit burst {} latency 100ms", mtu + 100);
        succeed(&mut node.command("tc", slow.split(' ')));
        node.ip("link set air0 up");
    }

    fn node(&self, number: usize) -> &Namespace {
        &self.nodes[number - 1]
    }

    fn file(&self, number: usize, more: &str) -> PathBuf {
        let path = self.folder.path().join(format!("{number}.toml"));
        let addresses = format!("addresses = ['10.88.0.{number}/24', 'fd88::{number}/64']");
        let text = format!("[[coding]]\ninterface = 'air0'\nmaster = 'nc0'\n{addresses}\n{more}");
        fs::write(&path, text).expect("the configuration file");
        path
    }

    fn start(&self, number: usize, more: &str) -> Daemon {
        let daemon = Daemon::start(self.node(number), &self.file(number, more));
        self.route(number);
        daemon
    }

    /// A daemon on every node.
    fn start_all(&self, more: &str) -> Vec<Daemon> {
        (1..=self.nodes.len()).map(|number| self.start(number, more)).collect()
    }

    /// The ways of node `number` to those that are not its neighbours, and theirs through it.
    fn route(&self, number: usize) {
        let node = self.node(number);
        let on = ["ipv4/ip_forward", "ipv6/conf/all/forwarding"].map(|key| (key, "1"));
        let off = ["ipv4/conf/all/send_redirects", "ipv4/conf/nc0/send_redirects"].map(|key| (key, "0"));
        node.within(|| {
            for (key, value) in on.into_iter().chain(off) {
                fs::write(format!("/proc/sys/net/{key}"), value).expect("a sysctl of the namespace");
            }
        });
        for far in (1..=self.nodes.len()).filter(|far| far.abs_diff(number) > 1) {
            let next = if far > number { number + 1 } else { number - 1 };
            node.ip(&format!("route replace 10.88.0.{far}/32 via 10.88.0.{next} dev nc0"));
            node.ip(&format!("-6 route replace fd88::{far}/128 via fd88::{next} dev nc0"));
        }
    }

    fn ping(&self, from: usize, address: &str) {
        let ping = ["-q", "-n", "-c", "2", "-i", "0.2", "-W", "10", address];
        // A node that is still asking for its next hop says that nothing can be reached.
        eventually(&format!("{address} answers"), || {
            output(&mut self.node(from).command("ping", ping)).status.success().then_some(())
        });
    }

    fn status(&self, number: usize) -> Value {
        self.node(number).status()["coding"][0].clone()
    }

    fn counted(&self, number: usize, name: &str) -> u64 {
        self.status(number)[name].as_u64().unwrap_or_else(|| panic!("{name}: {}", self.status(number)))
    }

    /// Waits until node `number` has counted so many, or more.
    fn wait_for(&self, number: usize, name: &str, least: u64) {
        eventually(&format!("{name} of {least}"), || (self.counted(number, name) >= least).then_some(()));
    }

    /// The outsider's way onto the medium.
    fn socket(&self) -> PacketSocket {
        self.outsider.within(|| PacketSocket::open(index("air0"), None).expect("a packet socket"))
    }

    fn mac(&self, number: usize) -> [u8; 6] {
        self.node(number).within(|| net().link("air0").expect("air0").mac.expect("an address"))
    }
}

fn net() -> device::Net {
    device::Net::open().expect("netlink")
}

fn index(interface: &str) -> u32 {
    net().link(interface).expect("the interface").index
}

/// Bytes in which every piece differs from every other.
fn bytes(length: u32, seed: u32) -> Vec<u8> {
    (0..length / 4).flat_map(|n| (n.wrapping_mul(2_654_435_761) ^ seed).to_be_bytes()).collect()
}

/// Sends `data` by TCP from one host to another, at `address`, and compares what comes.
fn transfer(from: &Namespace, to: &Namespace, address: &str, data: &[u8]) {
    let listener = to.within(|| TcpListener::bind((address, 0)).expect("a port"));
    let at = listener.local_addr().expect("an address");
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut stream = from.within(|| TcpStream::connect(at).expect("it listens"));
            stream.write_all(data).expect("it goes");
        });
        let (mut stream, mut received) = (listener.accept().expect("a connection").0, Vec::new());
        stream.read_to_end(&mut received).expect("it comes");
        assert!(received == data, "{} of {} bytes, or others", received.len(), data.len());
    });
}

/// Both ways at once between the ends of the chain.
fn both_ways(chain: &Chain, length: u32) {
    let last = chain.nodes.len();
    let (one, other) = (chain.node(1), chain.node(last));
    thread::scope(|scope| {
        scope.spawn(|| transfer(one, other, &format!("10.88.0.{last}"), &bytes(length, 1)));
        scope.spawn(|| transfer(other, one, "10.88.0.1", &bytes(length, 2)));
    });
}

/// Sends both ways until both ends of three have decoded sums.
fn both_ends_decode(chain: &Chain) {
    eventually("something is decoded at both ends", || {
        let decoded = [1, 3].map(|number| chain.counted(number, "decoded_packets"));
        decoded.iter().all(|count| *count > 0).then_some(()).or_else(|| {
            both_ways(chain, 400_000);
            None
        })
    });
    assert!(chain.counted(2, "sent_coded_frames") > 0, "{}", chain.status(2));
}

#[test]
fn every_mode_carries_everything_over_two_hops() {
    let Some(_alone) = namespaces_or_skip("every_mode_carries_everything_over_two_hops") else { return };
    for mode in MODES {
        let chain = Chain::new(3);
        let _daemons = chain.start_all(&format!("mode = '{mode}'\n"));
        chain.ping(1, "10.88.0.3");
        chain.ping(3, "fd88::1");
        both_ways(&chain, 400_000);
        transfer(chain.node(1), chain.node(3), "fd88::3", &bytes(200_000, 3));
        if CODING.contains(&mode) {
            both_ends_decode(&chain);
        } else if mode == "off" {
            assert_eq!(chain.counted(2, "sent_coded_frames"), 0);
        }
        let status = chain.status(2);
        assert_eq!((&status["mode"], &status["mtu_bytes"]), (&mode.into(), &(1500 - 26).into()), "{status}");
        assert_eq!(
            (&status["malformed_frames"], &status["waits_because"]),
            (&0.into(), &Value::Null),
            "{status}"
        );
    }
}

#[test]
fn packets_as_long_as_the_slave_carries_are_coded() {
    let Some(_alone) = namespaces_or_skip("packets_as_long_as_the_slave_carries_are_coded") else { return };
    for mtu in [1600, 9000] {
        let chain = Chain::with_mtu(3, mtu);
        let _daemons = chain.start_all("");
        chain.ping(1, "10.88.0.3");
        let longest = (mtu - 26 - 28).to_string();
        let ping = ["-q", "-n", "-c", "2", "-i", "0.2", "-W", "10", "-M", "do", "-s", &longest, "10.88.0.3"];
        succeed(&mut chain.node(1).command("ping", ping));
        both_ends_decode(&chain);
        let status = chain.status(2);
        assert_eq!(
            (&status["mtu_bytes"], &status["malformed_frames"]),
            (&(mtu - 26).into(), &0.into()),
            "{status}"
        );
    }
}

/// Ends a program of these tests that does not end by itself.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_master_without_addresses_takes_that_of_dhcp_and_a_reload_leaves_it() {
    let name = "a_master_without_addresses_takes_that_of_dhcp_and_a_reload_leaves_it";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let chain = Chain::new(2);
    let file = chain.file(2, "");
    let text = fs::read_to_string(&file).expect("the file").replace("['10.88.0.2/24', 'fd88::2/64']", "[]");
    fs::write(&file, &text).expect("the file");
    let (_server_node, mut daemon) = (chain.start(1, ""), Daemon::start(chain.node(2), &file));
    let path = |name: &str| chain.folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (conf, script) = (path("udhcpd.conf"), path("bound"));
    let text_of_conf = format!(
        "interface nc0\nstart 10.88.0.50\nend 10.88.0.50\noption subnet 255.255.255.0\nlease_file {}\npidfile {}\n",
        path("leases"),
        path("pid")
    );
    fs::write(&conf, text_of_conf).expect("a file");
    fs::write(path("leases"), "").expect("a file");
    fs::write(&script, "#!/bin/sh\n[ \"$1\" != bound ] || ip address add \"$ip/24\" dev \"$interface\"\n")
        .expect("a file");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("its mode");
    let _server =
        Ended(chain.node(1).command("busybox", ["udhcpd", "-f", &conf]).spawn().expect("busybox has it"));
    let ask = ["udhcpc", "-i", "nc0", "-f", "-n", "-q", "-t", "20", "-T", "1", "-s", &script];
    succeed(&mut chain.node(2).command("busybox", ask));
    chain.ping(2, "10.88.0.1");
    fs::write(&file, format!("{text}mode = 'off'\n")).expect("the file");
    daemon.signal(Signal::HUP);
    daemon.read_until("the file is taken up");
    assert_eq!(chain.status(2)["mode"], "off");
    chain.ping(1, "10.88.0.50");
}

#[test]
fn nothing_is_left_of_a_daemon_that_coded() {
    let Some(_alone) = namespaces_or_skip("nothing_is_left_of_a_daemon_that_coded") else { return };
    let chain = Chain::new(1);
    let shown = || (chain.node(1).ip("-d link show air0"), chain.node(1).ip("-br link"));
    let before = shown();
    for signal in [Signal::TERM, Signal::KILL] {
        let daemon = chain.start(1, "");
        assert_ne!(shown(), before);
        daemon.signal(signal);
        daemon.wait();
        eventually("the interfaces are as before", || (shown() == before).then_some(()));
    }
    // IP has the interface again.
    chain.node(1).ip("address add 10.9.0.1/24 dev air0");
    chain.outsider.ip("address add 10.9.0.2/24 dev air0");
    chain.ping(1, "10.9.0.2");
}

#[test]
fn messages_are_flooded_over_a_master_of_the_same_file() {
    let Some(_alone) = namespaces_or_skip("messages_are_flooded_over_a_master_of_the_same_file") else {
        return;
    };
    let chain = Chain::new(2);
    let flood = |id: usize| format!("[[flood]]\ninterface = 'nc0'\nid = {id}\nmode = 'application'\n");
    let daemons = [1, 2].map(|number| chain.start(number, &flood(number)));
    let ping = ["flood", "ping", "nc0", "2", "--count", "1", "--timeout", "30s"];
    succeed(&mut chain.node(1).nawa(ping));
    // Out and in again, both at once.
    let file = chain.file(1, &flood(1));
    let text = fs::read_to_string(&file).expect("the file");
    for text in ["[flight]\n", &text] {
        fs::write(&file, text).expect("the file");
        daemons[0].signal(Signal::HUP);
        let there = text.contains("nc0");
        eventually("the file is taken up", || (chain.node(1).has_interface("nc0") == there).then_some(()));
    }
    eventually("the master floods again", || {
        output(&mut chain.node(1).nawa(["flood", "ping", "nc0", "2", "--count", "1"]))
            .status
            .success()
            .then_some(())
    });
}

#[test]
fn coding_needs_three_capabilities() {
    let Some(_alone) = namespaces_or_skip("coding_needs_three_capabilities") else { return };
    let chain = Chain::new(2);
    let start = |number: usize| {
        let (file, binary) = (chain.file(number, ""), env!("CARGO_BIN_EXE_nawa"));
        let few = ["--bounding-set", "-all,+net_admin,+bpf,+net_raw", "--inh-caps", "-all"];
        let run = [binary, "run", file.to_str().expect("UTF-8")];
        Daemon::spawn(&mut chain.node(number).command("setpriv", few.into_iter().chain(run)))
    };
    let _daemons = [start(1), start(2)];
    chain.ping(1, "10.88.0.2");
}

#[test]
fn a_reload_changes_mode_wait_and_addresses_under_a_transfer() {
    let Some(_alone) = namespaces_or_skip("a_reload_changes_mode_wait_and_addresses_under_a_transfer") else {
        return;
    };
    let chain = Chain::new(3);
    let mut daemons = chain.start_all("mode = 'any'\n");
    let (one, three) = (chain.node(1), chain.node(3));
    let listener = three.within(|| TcpListener::bind(("10.88.0.3", 0)).expect("a port"));
    let at = listener.local_addr().expect("an address");
    let mut sender = one.within(|| TcpStream::connect(at).expect("it listens"));
    let mut receiver = listener.accept().expect("a connection").0;
    let index = chain.node(2).within(|| index("nc0"));
    // Between two reloads some bytes have to get through, on the connection that was there before.
    for (round, mode) in MODES.iter().enumerate() {
        let text = fs::read_to_string(
            chain.file(2, &format!("mode = '{mode}'\nwait = '{round}ms'\nthin-acks = true\n")),
        );
        let text = text.expect("the file").replace("['", &format!("['10.88.0.{}/24', '", 20 + round));
        fs::write(chain.folder.path().join("2.toml"), text).expect("the file");
        daemons[1].signal(Signal::HUP);
        daemons[1].read_until("the file is taken up");
        let status = chain.status(2);
        assert_eq!((&status["mode"], &status["wait_ms"]), (&(*mode).into(), &(round as f64).into()));
        assert_eq!(status["thin_acks"], true);
        let sent = bytes(100_000, round as u32);
        let mut received = vec![0; sent.len()];
        thread::scope(|scope| {
            scope.spawn(|| sender.write_all(&sent).expect("it goes"));
            receiver.read_exact(&mut received).expect("it comes");
        });
        assert!(received == sent, "{mode}");
        let addresses = chain.node(2).ip("-br address show nc0");
        let has = |number| addresses.contains(&format!("10.88.0.{number}/24"));
        assert!(has(2) && has(20 + round) && !has(19 + round), "{addresses}");
    }
    assert_eq!(chain.node(2).within(|| self::index("nc0")), index, "the same interface");

    // What cannot be changed is said, and all goes on.
    let text = fs::read_to_string(chain.file(2, "")).expect("the file").replace("air0", "none0");
    fs::write(chain.folder.path().join("2.toml"), text).expect("the file");
    daemons[1].signal(Signal::HUP);
    daemons[1].read_until("there is no interface `none0`");
    eventually("what ran before runs", || (chain.status(2)["interface"] == "air0").then_some(()));
}

#[test]
fn a_slave_that_goes_down_or_away_is_waited_for() {
    let Some(_alone) = namespaces_or_skip("a_slave_that_goes_down_or_away_is_waited_for") else { return };
    let chain = Chain::new(2);
    let _daemons = chain.start_all("");
    let waits = |what: &str| {
        eventually(what, || {
            chain.status(1)["waits_because"].as_str().is_some_and(|why| why.contains(what)).then_some(())
        });
    };
    let resumes = || {
        eventually("it resumes", || chain.status(1)["waits_because"].is_null().then_some(()));
        assert_eq!(chain.status(1)["mode"], "any");
        chain.ping(1, "10.88.0.2");
    };
    chain.ping(1, "10.88.0.2");
    chain.node(1).ip("link set air0 down");
    waits("is down");
    assert_eq!(chain.status(1)["mode"], "off", "nothing is coded that is lost");
    chain.node(1).ip("link set air0 up");
    resumes();
    chain.medium.ip("link delete port1");
    waits("no interface `air0`");
    chain.join(1, chain.node(1));
    resumes();
    chain.node(1).ip("link set air0 mtu 1400");
    eventually("the master follows", || (chain.status(1)["mtu_bytes"] == 1400 - 26).then_some(()));
    chain.node(1).ip("link set air0 address 02:00:00:00:00:77");
    eventually("the master follows", || chain.node(1).ip("link show nc0").contains("00:77").then_some(()));
    resumes();
}

#[test]
fn a_slave_that_cannot_be_opened_for_want_of_descriptors_is_tried_again() {
    let name = "a_slave_that_cannot_be_opened_for_want_of_descriptors_is_tried_again";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let chain = Chain::new(2);
    let node = chain.node(1);
    // What the kernel tells of interfaces is all told when they have these states: then nothing else has the slave tried again.
    node.within(|| fs::write("/proc/sys/net/ipv6/conf/air0/disable_ipv6", "1")).expect("a sysctl");
    let settles = |interface: &str, state: &str| {
        let shown = || node.ip(&format!("link show {interface}")).contains(&format!("state {state} "));
        eventually(&format!("{interface} is {state}"), || shown().then_some(()));
    };
    let mut daemons = chain.start_all("");
    node.ip("link set air0 down");
    daemons[0].read_until("waits for its slave: `air0` is down");
    settles("nc0", "DOWN");
    daemons[0].allow_descriptors(false);
    node.ip("link set air0 up");
    daemons[0].read_until("waits for its slave");
    settles("air0", "UP");
    daemons[0].allow_descriptors(true);
    eventually("it resumes", || chain.status(1)["waits_because"].is_null().then_some(()));
    chain.ping(1, "10.88.0.2");
}

#[test]
fn an_address_that_appears_on_the_slave_is_said_and_stops_nothing() {
    let name = "an_address_that_appears_on_the_slave_is_said_and_stops_nothing";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let chain = Chain::new(2);
    let _daemons = chain.start_all("");
    chain.node(1).ip("address add 10.9.0.1/24 dev air0");
    eventually("it is said", || {
        let status = chain.status(1);
        status["warning"].as_str().is_some_and(|text| text.contains("10.9.0.1")).then_some(())
    });
    chain.ping(1, "10.88.0.2");
    assert_eq!(chain.status(1)["waits_because"], Value::Null);
    chain.node(1).ip("address flush dev air0");
    eventually("it is right again", || chain.status(1)["warning"].is_null().then_some(()));
}

#[test]
fn a_monitor_that_no_radio_has_is_said() {
    let Some(_alone) = namespaces_or_skip("a_monitor_that_no_radio_has_is_said") else { return };
    let chain = Chain::new(1);
    let _daemon = chain.start(1, "monitor = 'mon0'\n");
    let warning = chain.status(1)["warning"].clone();
    assert!(warning.as_str().is_some_and(|text| text.contains("`mon0` is not used")), "{warning}");
}

#[test]
fn a_slave_that_is_too_small_for_ipv6_is_said_and_loses_no_address() {
    let name = "a_slave_that_is_too_small_for_ipv6_is_said_and_loses_no_address";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let chain = Chain::new(2);
    let daemons = chain.start_all("");
    let mtu = |mtu: u32| chain.node(1).ip(&format!("link set air0 mtu {mtu}"));
    mtu(1305);
    eventually("it is said", || {
        let status = chain.status(1);
        status["warning"].as_str().is_some_and(|text| text.contains("MTU of `air0` to 1306")).then_some(())
    });
    chain.ping(1, "10.88.0.2");
    // Nor does that keep anything else from being changed.
    chain.file(1, "mode = 'off'\n");
    daemons[0].signal(Signal::HUP);
    eventually("the mode is changed", || (chain.status(1)["mode"] == "off").then_some(()));
    mtu(1306);
    eventually("it is right again", || chain.status(1)["warning"].is_null().then_some(()));
    chain.ping(1, "fd88::2");
}

#[test]
fn a_master_in_a_bridge_is_refused_until_it_is_taken_out() {
    let name = "a_master_in_a_bridge_is_refused_until_it_is_taken_out";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let chain = Chain::new(2);
    let _daemons = chain.start_all("");
    chain.ping(1, "10.88.0.2");
    chain.node(1).ip("link add lan0 type bridge");
    chain.node(1).ip("link set nc0 master lan0");
    eventually("it is said", || {
        let status = chain.status(1);
        status["waits_because"]
            .as_str()
            .is_some_and(|text| text.contains("`nc0` is a port of a bridge"))
            .then_some(())
    });
    chain.node(1).ip("link set nc0 nomaster");
    eventually("it is used again", || chain.status(1)["waits_because"].is_null().then_some(()));
    chain.ping(1, "10.88.0.2");
}

#[test]
fn a_relay_tells_nobody_to_do_without_it() {
    let Some(_alone) = namespaces_or_skip("a_relay_tells_nobody_to_do_without_it") else { return };
    let chain = Chain::new(1);
    let _daemon = Daemon::start(chain.node(1), &chain.file(1, ""));
    let redirects = || fs::read_to_string("/proc/sys/net/ipv4/conf/nc0/send_redirects").expect("a setting");
    assert_eq!(chain.node(1).within(redirects).trim(), "0");
    // The kernel asks the setting of `all` as well, which is not the daemon's to change.
    let warning = |all: &str| {
        let set = |key: &str, value: &str| {
            fs::write(format!("/proc/sys/net/ipv4/{key}"), value).expect("a sysctl");
        };
        chain.node(1).within(|| {
            set("ip_forward", "1");
            set("conf/all/send_redirects", all);
        });
        chain.status(1)["warning"].clone()
    };
    let said = warning("1");
    assert!(said.as_str().is_some_and(|text| text.contains("ipv4/conf/all/send_redirects")), "{said}");
    assert_eq!(warning("0"), Value::Null);
}

#[test]
fn what_cannot_be_a_slave_or_a_master_is_refused() {
    let Some(_alone) = namespaces_or_skip("what_cannot_be_a_slave_or_a_master_is_refused") else { return };
    let chain = Chain::new(1);
    let node = chain.node(1);
    let refused = |text: &str, because: &str| {
        let file = chain.folder.path().join("refused.toml");
        fs::write(&file, text).expect("the file");
        let run = output(&mut node.nawa(["run", file.to_str().expect("UTF-8")]));
        assert_eq!((run.status.code(), stdout(&run).as_str()), (Some(1), ""), "{text}: {}", stderr(&run));
        assert!(stderr(&run).contains(because), "{text}: {}", stderr(&run));
        assert_eq!(
            stderr(&run).lines().filter(|line| line.starts_with("nawa: ")).count(),
            1,
            "{}",
            stderr(&run)
        );
    };
    let good = fs::read_to_string(chain.file(1, "")).expect("the file");
    refused(&good.replace("air0", "none0"), "there is no interface `none0`");
    refused(&good.replace("air0", "lo"), "`lo` carries no Ethernet frames");
    node.ip("link add nc0 type bridge");
    refused(&good, "interface `nc0` exists already");
    node.ip("link delete nc0");
    node.ip("address add 10.9.0.1/24 dev air0");
    refused(&good, "`air0` has the address 10.9.0.1");
    node.ip("address flush dev air0");
    node.ip("link add lan0 type bridge");
    node.ip("link set air0 master lan0");
    refused(&good, "`air0` is a port of a bridge");
    node.ip("link set air0 nomaster");
    node.ip("link set air0 mtu 580");
    refused(&good, "the MTU of `air0` is 580 bytes, and 602 are needed");
    assert!(!node.has_interface("nc0"));
}

#[test]
fn what_a_slow_slave_has_no_room_for_is_counted_in_every_mode() {
    let name = "what_a_slow_slave_has_no_room_for_is_counted_in_every_mode";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let chain = Chain::new(1);
    let node = chain.node(1);
    let slow = "qdisc replace dev air0 root tbf rate 8kbit burst 1600 limit 100000";
    succeed(&mut node.command("tc", slow.split(' ')));
    for mode in MODES {
        let _daemon = Daemon::start(node, &chain.file(1, &format!("mode = '{mode}'\n")));
        let master = node.within(|| PacketSocket::open(index("nc0"), None).expect("a packet socket"));
        let frame = [&[2; 6][..], &chain.mac(1), &[0x88, 0xb7], &[7; 1000]].concat();
        // As many at a time as a master holds; more than wait here.
        for sent in [500, 1000, 1500, 2000] {
            (0..500).for_each(|_| drop(master.send(&frame)));
            eventually(&format!("{mode}: {sent} are taken"), || {
                let status = chain.status(1);
                let taken = ["sent_frames", "queued_frames", "queue_dropped_frames"];
                (taken.iter().filter_map(|name| status[name].as_u64()).sum::<u64>() >= sent).then_some(())
            });
        }
        assert!(chain.counted(1, "queue_dropped_frames") > 0, "{mode}");
    }
}

/// What waits can be coded or thinned in the layer alone; where it is not, the interface has it all, to schedule it by itself and to send
/// many as one. In the paper's modes a node may code once it has relayed, in `any` while two of its neighbours decode.
#[test]
fn what_waits_is_left_to_the_interface_unless_the_node_may_code_or_thin_it() {
    /// Sent each time. The interface sends one a second.
    const FRAMES: u64 = 100;
    let name = "what_waits_is_left_to_the_interface_unless_the_node_may_code_or_thin_it";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let chain = Chain::new(3);
    let mut daemons = chain.start_all("mode = 'controlled'\n");
    chain.ping(1, "10.88.0.3");
    both_ways(&chain, 100_000);
    let node = chain.node(2);
    let slow = "qdisc replace dev air0 root tbf rate 8kbit burst 1600 limit 1000000";
    succeed(&mut node.command("tc", slow.split(' ')));
    let master = node.within(|| PacketSocket::open(index("nc0"), None).expect("a packet socket"));
    let frame = [&[2; 6][..], &chain.mac(2), &[0x88, 0xb7], &[7; 1000]].concat();
    let in_interface = || {
        let shown = succeed(&mut node.command("tc", "-s -j qdisc show dev air0".split(' ')));
        let queues: Value = serde_json::from_str(&shown).expect("JSON");
        queues[0]["qlen"].as_u64().unwrap_or_else(|| panic!("no length in {shown}"))
    };
    let (in_layer, mostly) = (|| chain.counted(2, "queued_frames"), FRAMES / 2);
    for (more, is_kept) in [
        ("mode = 'controlled'\n", true),
        ("mode = 'off'\n", false),
        ("mode = 'off'\nthin-acks = true\n", true),
        ("mode = 'any'\n", false),
    ] {
        chain.file(2, more);
        daemons[1].signal(Signal::HUP);
        daemons[1].read_until("the file is taken up");
        (0..FRAMES).for_each(|_| master.send(&frame).expect("it goes"));
        eventually(&format!("{more} keeps them: {is_kept}"), || {
            let is_so =
                if is_kept { in_layer() >= mostly } else { in_layer() == 0 && in_interface() >= mostly };
            is_so.then_some(())
        });
    }
}

#[test]
fn hosts_that_do_not_code_are_reached() {
    let Some(_alone) = namespaces_or_skip("hosts_that_do_not_code_are_reached") else { return };
    let chain = Chain::new(2);
    let _daemons = chain.start_all("");
    // The outsider's kernel leaves checksums and segmentation to a card that is none.
    chain.outsider.ip("address add 10.88.0.100/24 dev air0");
    chain.outsider.ip("route add 10.88.0.1/32 via 10.88.0.2 dev air0");
    chain.node(1).ip("route add 10.88.0.100/32 via 10.88.0.2 dev nc0");
    for number in [2, 1] {
        let address = format!("10.88.0.{number}");
        transfer(&chain.outsider, chain.node(number), &address, &bytes(300_000, 4));
        transfer(chain.node(number), &chain.outsider, "10.88.0.100", &bytes(300_000, 5));
    }
    // Nobody answered twice: IP has the slave's frames by the master alone.
    let neighbours = chain.outsider.ip("neighbour show dev air0");
    assert!(neighbours.contains("10.88.0.2"), "{neighbours}");
    let duplicates =
        succeed(&mut chain.outsider.command("ping", ["-n", "-c", "3", "-i", "0.2", "-W", "20", "10.88.0.2"]));
    assert!(!duplicates.contains("DUP") && duplicates.contains("3 received"), "{duplicates}");
}

#[test]
fn what_a_hostile_neighbour_sends_does_no_harm() {
    let Some(_alone) = namespaces_or_skip("what_a_hostile_neighbour_sends_does_no_harm") else { return };
    let chain = Chain::new(3);
    let _daemons = chain.start_all("");
    let (outsider, victim) = (chain.socket(), chain.mac(2));
    let from = [2, 0, 0, 0, 0, 0x64];
    let frame = |to: [u8; 6], behind: &[u8]| [&to[..], &from, behind].concat();
    let nc = |to: [u8; 6], payload: &[u8]| frame(to, &[&NC.to_be_bytes()[..], payload].concat());
    // Of every kind and version, too short and too long, for the victim, for another, for all.
    for first in 0..=255u8 {
        for length in [0, 1, 9, 13, 25, 60, 1400] {
            let payload = [vec![first], vec![first.wrapping_mul(31); length]].concat();
            for to in [victim, chain.mac(1), [0xff; 6]] {
                // The interface may be full: then it is one less.
                let _ = outsider.send(&nc(to, &payload));
            }
        }
    }
    chain.wait_for(2, "malformed_frames", 100);
    assert!(outsider.send(&[0; 13]).is_err(), "the kernel takes no frame without a header");

    // What is not IP reaches the master as it was sent, the tag of a VLAN as well.
    let mut master = chain.node(2).within(|| PromiscuousSocket::open(index("nc0"), 1500).expect("a socket"));
    let tagged = [&[0x81, 0, 0, 5, 8, 0][..], &[0x45; 60]].concat();
    let foreign = [&[0x88, 0xb7][..], &[7; 60]].concat();
    for behind in [tagged, foreign] {
        let sent = frame(victim, &behind);
        eventually("it comes to the master", || {
            let (mut found, _) = (None, outsider.send(&sent));
            while master.recv(|heard| found = found.or((heard == sent).then_some(()))).is_ok() {}
            found
        });
    }
    both_ways(&chain, 100_000);
    assert_eq!(chain.status(2)["waits_because"], Value::Null);
}
