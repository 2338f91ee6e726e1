//! Coding and flooding on Linux's own 802.11 stack: the radios of mac80211_hwsim in a guest ([`common::guest`]), in a chain in which
//! each hears those beside it ([`common::hwsim`]), as an ad-hoc network and as a mesh whose nodes forward by IP.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use common::flood::PATIENCE;
use common::guest::Guest;
use common::hwsim::Air;
use common::{Daemon, Namespace, eventually, output, skip, succeed};
use device::{PacketSocket, PromiscuousSocket};
use flood::Client;
use rustix::process::Signal;
use serde_json::Value;

/// EtherType for local experiments.
const TRIAL: [u8; 2] = [0x88, 0xb7];
/// As many as `run_on` has hwsim make.
const RADIOS: usize = 4;
/// What goes over the chain in each direction.
const TRANSFER: usize = 200_000;
/// Messages flooded from one end of the chain.
const MESSAGES: usize = 30;
/// Each node sends each message three times, whatever it hears meanwhile.
const REPEATING: &str = "jitter = '10ms'\nenough = 99\nrepeats = 2\n";
/// The same, but who hears four copies, more than one neighbour sends, keeps still: the next hop has the message then.
const SUPPRESSING: &str = "suppress = true\nthreshold = 4\nenough = 4\nrepeats = 2\n";

/// A beacon of radio 0, to all, in hexadecimal, up to where the kernel goes on: its interval of 100 TU, its network's name, four rates of
/// 802.11b and four of 802.11g, channel 1.
const BEACON: &str = "80000000ffffffffffff0200000000000200000000000000000000000000000064000100\
                      00046e617761010882848b960c121824030101";

fn run_on(name: &str, version: &str) {
    if Command::new("iw").arg("--version").output().is_err() {
        return skip(name, "needs iw: make wifi");
    }
    let guest = Guest {
        inside: "inside_a_guest",
        programs: &["ip", "iw", "ping"],
        modules: &[
            "tun",
            "virtio_ring",
            "virtio",
            "sch_ingress",
            "cls_bpf",
            "rfkill",
            "libarc4",
            "cfg80211",
            "mac80211",
            "mac80211_hwsim radios=4",
        ],
    };
    guest.runs_on(name, version);
}

#[test]
fn coding_meets_wifi_on_linux_6_1() {
    run_on("coding_meets_wifi_on_linux_6_1", "6.1");
}

#[test]
fn coding_meets_wifi_on_linux_6_12() {
    run_on("coding_meets_wifi_on_linux_6_12", "6.12");
}

#[test]
#[ignore = "started by others, inside a guest"]
fn inside_a_guest() {
    let wifi = Wifi::new();
    wifi.join(Kind::AdHoc);
    a_radio_hears_others_by_a_monitor_only(&wifi);
    sums_are_decoded_at_both_ends(&wifi);
    who_overhears_nothing_is_not_coded_for_and_says_so(&wifi);
    floods_reach_everybody_over_three_hops(&wifi);
    floods_that_repeat_lose_nothing(&wifi);
    a_monitor_that_cannot_be_used_is_named(&wifi);
    a_monitor_that_cannot_be_made_is_named(&wifi);
    a_monitor_that_goes_is_made_again(&wifi);
    a_network_that_becomes_another_is_looked_at_again(&wifi);
    wifi.join(Kind::Wep);
    is_left_alone_because_it_is(&wifi, "encrypted");
    wifi.join(Kind::Ht);
    is_left_alone_because_it_is(&wifi, "802.11n");
    wifi.join(Kind::Mesh);
    sums_are_decoded_at_both_ends(&wifi);
    floods_reach_everybody_over_three_hops(&wifi);
    floods_that_repeat_lose_nothing(&wifi);
    a_mesh_that_forwards_is_named(&wifi);
    a_station_is_named(&wifi);
    an_access_point_is_left_alone(&wifi);
}

/// What the radios make up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    AdHoc,
    /// All frames are encrypted.
    Wep,
    /// 802.11n.
    Ht,
    Mesh,
}

/// Radios in a row, each the interface `wlanN` of its namespace. Coding has the first three, flooding all.
struct Wifi {
    air: Air,
    nodes: Vec<Namespace>,
    folder: tempfile::TempDir,
}

impl Wifi {
    fn new() -> Wifi {
        let air = Air::chain(RADIOS, 0.0);
        let nodes: Vec<_> = (0..RADIOS).map(|_| Namespace::new()).collect();
        for (number, node) in nodes.iter().enumerate() {
            let phy =
                fs::read_to_string(format!("/sys/class/net/wlan{number}/phy80211/name")).expect("its radio");
            succeed(Command::new("iw").args(["phy", phy.trim(), "set", "netns", "name", node.name()]));
        }
        Wifi { air, nodes, folder: tempfile::tempdir().expect("a temporary folder") }
    }

    fn iw(&self, node: usize, text: &str) {
        succeed(&mut self.nodes[node].command("iw", text.split(' ')));
    }

    fn join(&self, kind: Kind) {
        for (number, node) in self.nodes.iter().enumerate() {
            node.ip(&format!("link set wlan{number} down"));
            self.iw(
                number,
                &format!("dev wlan{number} set type {}", if kind == Kind::Mesh { "mp" } else { "ibss" }),
            );
            node.ip(&format!("link set wlan{number} up"));
            let ibss = "ibss join nawa 2412 fixed-freq 02:ca:fe:00:00:01";
            let network = match kind {
                Kind::AdHoc => ibss.to_owned(),
                Kind::Wep => format!("{ibss} key d:0:nawa5"),
                Kind::Ht => "ibss join nawa 2412 HT20 fixed-freq 02:ca:fe:00:00:01".to_owned(),
                Kind::Mesh => "mesh join nawa freq 2412 mesh_fwding=0".to_owned(),
            };
            self.iw(number, &format!("dev wlan{number} {network}"));
        }
    }

    fn index(&self, node: usize, name: &str) -> u32 {
        self.nodes[node]
            .within(|| device::Net::open().expect("netlink").link(name).expect("it is there").index)
    }

    /// A daemon on every node, and routes by which the ends reach each other over the middle.
    fn start(&self, more: &str) -> Vec<Daemon> {
        let daemons = (0..3).map(|number| self.code(number, more)).collect();
        self.nodes[0].ip("route replace 10.88.0.3/32 via 10.88.0.2 dev nc0");
        self.nodes[2].ip("route replace 10.88.0.1/32 via 10.88.0.2 dev nc0");
        self.nodes[1].within(|| {
            for (key, value) in [("ip_forward", "1"), ("conf/all/send_redirects", "0")] {
                fs::write(format!("/proc/sys/net/ipv4/{key}"), value).expect("a sysctl of the namespace");
            }
        });
        // Networks take a while to find together.
        let mut tries = 0;
        eventually("the other end answers", || {
            tries += 1;
            if tries == 10 {
                (0..3).for_each(|node| eprintln!("the other end does not answer: {}", self.status(node)));
            }
            let ping = ["-q", "-n", "-c", "1", "-W", "2", "10.88.0.3"];
            common::output(&mut self.nodes[0].command("ping", ping)).status.success().then_some(())
        });
        daemons
    }

    /// A daemon that codes.
    fn code(&self, node: usize, more: &str) -> Daemon {
        let path = self.folder.path().join(format!("{node}.toml"));
        let addresses = format!("['10.88.0.{}/24']", node + 1);
        let text =
            format!("[[coding]]\ninterface = 'wlan{node}'\nmaster = 'nc0'\naddresses = {addresses}\n{more}");
        fs::write(&path, text).expect("the configuration file");
        Daemon::start(&self.nodes[node], &path)
    }

    /// A daemon that floods.
    fn flood(&self, node: usize, more: &str) -> Daemon {
        let path = self.folder.path().join(format!("flood{node}.toml"));
        let text = format!("[[flood]]\ninterface = 'wlan{node}'\nid = {}\n{more}", node + 1);
        fs::write(&path, text).expect("the configuration file");
        Daemon::start(&self.nodes[node], &path)
    }

    fn status(&self, node: usize) -> Value {
        self.nodes[node].status()["coding"][0].clone()
    }

    fn counted(&self, node: usize, name: &str) -> u64 {
        self.status(node)[name].as_u64().expect("a number")
    }

    /// Both ways at once between the ends; how many data frames that takes.
    fn both_ways(&self) -> u64 {
        let before = self.air.data_frames();
        thread::scope(|scope| {
            scope.spawn(|| transfer(&self.nodes[0], &self.nodes[2], "10.88.0.3"));
            scope.spawn(|| transfer(&self.nodes[2], &self.nodes[0], "10.88.0.1"));
        });
        self.air.data_frames() - before
    }
}

/// Sends by TCP from one host to another, at `address`, and compares what comes.
fn transfer(from: &Namespace, to: &Namespace, address: &str) {
    let data: Vec<u8> = (0..TRANSFER).map(|n| (n / 7 % 251) as u8).collect();
    let listener = to.within(|| TcpListener::bind((address, 0)).expect("a port"));
    let at = listener.local_addr().expect("an address");
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = from.within(|| TcpStream::connect(at).expect("it listens"));
            stream.write_all(&data).expect("it goes");
        });
        let (mut stream, mut received) = (listener.accept().expect("a connection").0, Vec::new());
        stream.read_to_end(&mut received).expect("it comes");
        assert!(received == data, "{} of {} bytes, or others", received.len(), data.len());
    });
}

/// Since Linux 4.2 mac80211 takes promiscuous mode for nothing but monitors: this is why coding needs one.
fn a_radio_hears_others_by_a_monitor_only(wifi: &Wifi) {
    const FRAMES: usize = 100;
    wifi.iw(0, "dev wlan0 interface add mon0 type monitor flags otherbss");
    wifi.nodes[0].ip("link set mon0 up");
    let open = |name: &str| {
        let index = wifi.index(0, name);
        wifi.nodes[0].within(|| PromiscuousSocket::open(index, 1500).expect("a socket"))
    };
    let (mut promiscuous, mut monitor) = (open("wlan0"), open("mon0"));
    let index = wifi.index(1, "wlan1");
    let sender = wifi.nodes[1].within(|| PacketSocket::open(index, None).expect("a socket"));
    let heard = |socket: &mut PromiscuousSocket, count: &mut usize| {
        while socket.recv(|frame| *count += usize::from(frame.ends_with(b"to another radio"))).is_ok() {}
    };
    let (mut by_promiscuous, mut by_monitor) = (0, 0);
    let frame = [&[2, 0, 0, 0, 2, 0], &[2, 0, 0, 0, 1, 0], &TRIAL[..], b"to another radio"].concat();
    for sent in 1..=FRAMES {
        sender.send(&frame).expect("it goes");
        eventually("the monitor hears it", || {
            heard(&mut monitor, &mut by_monitor);
            (by_monitor >= sent).then_some(())
        });
    }
    heard(&mut promiscuous, &mut by_promiscuous);
    eprintln!("of {FRAMES} frames the monitor heard {by_monitor}, the promiscuous socket {by_promiscuous}");
    assert_eq!((by_monitor, by_promiscuous), (FRAMES, 0));
    wifi.iw(0, "dev mon0 del");
}

fn sums_are_decoded_at_both_ends(wifi: &Wifi) {
    let off = {
        let _daemons = wifi.start("mode = 'off'\n");
        wifi.both_ways()
    };
    let _daemons = wifi.start("");
    // Six transfers save 16 % with a standard deviation of 2.5; a guest that is held up saves less.
    let saves = |_| {
        let any = wifi.both_ways();
        eprintln!("{any} frames where mode off takes {off}");
        any * 10 <= off * 9
    };
    let saved = (0..3).any(saves);
    let (relay, ends) = (wifi.status(1), [wifi.status(0), wifi.status(2)]);
    eprintln!("the middle: {relay}; the ends: {ends:?}");
    for end in &ends {
        assert!(end["decoded_packets"].as_u64() > Some(0), "{end}");
        for lost in ["missing_partner_frames", "wrong_partner_frames", "malformed_frames"] {
            assert_eq!(end[lost], 0, "{end}");
        }
        let relay = &end["neighbours"][0];
        assert!(relay["overheard_frames"].as_u64() > Some(0), "{end}");
        assert_eq!((&end["mode"], &end["off_because"]), (&"any".into(), &Value::Null));
    }
    // Sums are for those alone that answer; by now they may have been silent for so long that it counts no more.
    assert_eq!(relay["neighbours"].as_array().map(Vec::len), Some(2), "{relay}");
    assert!(relay["sent_coded_frames"].as_u64() > Some(0), "{relay}");
    assert!(saved, "more than nine tenths of the frames that mode off takes in each of three tries");
}

/// Until the radios hand up what is for others. The middle needs none of it.
fn who_overhears_nothing_is_not_coded_for_and_says_so(wifi: &Wifi) {
    wifi.air.keep_what_is_for_others(true);
    let _daemons = wifi.start("");
    for (deaf, decoding) in [([true, false, true], 0), ([false; 3], 2)] {
        eventually("the ends say what they overhear", || {
            let ping = ["-q", "-n", "-c", "1", "-W", "2", "10.88.0.3"];
            output(&mut wifi.nodes[0].command("ping", ping));
            let nodes = [0, 1, 2].map(|node| wifi.status(node));
            let is_deaf = |text: &str| text.contains("has heard nothing so far");
            let said = nodes.each_ref().map(|node| node["warning"].as_str().is_some_and(is_deaf));
            let neighbours = nodes[1]["neighbours"].as_array().into_iter().flatten();
            let count = neighbours.filter(|one| one["decodes"] == true).count();
            (said == deaf && count == decoding).then_some(())
        });
        wifi.air.keep_what_is_for_others(false);
    }
}

fn a_mesh_that_forwards_is_named(wifi: &Wifi) {
    for (forwards, named) in [(0, false), (1, true)] {
        wifi.iw(0, &format!("dev wlan0 set mesh_param mesh_fwding {forwards}"));
        let told = warnings(wifi);
        assert_eq!((told.contains("mesh_fwding"), told.contains("access point")), (named, false), "{told}");
    }
    let _daemon = wifi.code(0, "");
    for forwards in [1, 0] {
        wifi.iw(0, &format!("dev wlan0 set mesh_param mesh_fwding {forwards}"));
        eventually("the node that codes says so, or no longer", || {
            let warning = wifi.status(0)["warning"].clone();
            let named = warning.as_str().is_some_and(|text| text.contains("mesh_fwding"));
            (named == (forwards == 1)).then_some(())
        });
    }
}

/// An access point sends on what a station floods.
fn a_station_is_named(wifi: &Wifi) {
    wifi.nodes[0].ip("link set wlan0 down");
    wifi.iw(0, "dev wlan0 set type managed");
    wifi.nodes[0].ip("link set wlan0 up");
    let told = warnings(wifi);
    assert!(told.contains("access point"), "{told}");
}

/// Nobody joins it, for `iw` has it send beacons and answers nobody.
fn an_access_point_is_left_alone(wifi: &Wifi) {
    wifi.nodes[0].ip("link set wlan0 down");
    wifi.iw(0, "dev wlan0 set type __ap");
    wifi.nodes[0].ip("link set wlan0 up");
    wifi.iw(0, &format!("dev wlan0 ap start nawa 2412 NOHT 100 2 head {BEACON}"));
    let told = warnings(wifi);
    assert!(told.contains("access point"), "{told}");
    let _daemon = wifi.code(0, "");
    eventually("it says so", || {
        let status = wifi.status(0);
        let why = status["off_because"].as_str().is_some_and(|why| why.contains("access point"));
        (why && status["mode"] == "off" && status["waits_because"].is_null()).then_some(())
    });
}

/// Of the first node, if it floods.
fn warnings(wifi: &Wifi) -> String {
    let _daemon = wifi.flood(0, "");
    wifi.nodes[0].status()["flood"][0]["warnings"].to_string()
}

/// In generic XDP, which is what radios get; a node that is killed and begins anew is heard. A broadcast that meets a beacon is lost,
/// as nobody repeats it: of three hops' broadcasts a tenth may be.
fn floods_reach_everybody_over_three_hops(wifi: &Wifi) {
    /// A message takes three frames of 1 Mbit/s, and the guest's processor.
    const LIMIT: Duration = Duration::from_secs(2);
    let start = |number: usize| wifi.flood(number, "");
    let mut daemons: Vec<_> = (0..RADIOS).map(start).collect();
    // A guest that is held up for so long hears less, but not each time.
    let tell = |from: usize| {
        let enough = |_| {
            let heard = heard(wifi, from, Some(LIMIT));
            eprintln!("of {MESSAGES} messages of node {from} the others hear {heard:?}");
            heard.iter().all(|came| came * 10 >= MESSAGES * 9)
        };
        assert!((0..3).any(enough), "the others hear too few of node {from} in each of three tries");
    };
    tell(0);
    tell(3);
    daemons[0].signal(Signal::KILL);
    daemons.remove(0).wait();
    daemons.insert(0, start(0));
    tell(0);
    let status = wifi.nodes[1].status()["flood"][0].clone();
    assert_eq!(status["relay"], "xdp-generic", "{status}");
    eprintln!("over three hops: {status}");
}

/// Each node sends what it hears three times, so that a beacon keeps no message from the next. Who suppresses reaches as many with fewer
/// frames; each of them waits until mac80211 says that the one before has left.
fn floods_that_repeat_lose_nothing(wifi: &Wifi) {
    let [all, fewer] = [REPEATING, SUPPRESSING].map(|more| {
        let _daemons: Vec<_> = (0..RADIOS).map(|number| wifi.flood(number, more)).collect();
        assert_eq!(heard(wifi, 0, PATIENCE), [MESSAGES; RADIOS - 1], "{more}");
        let relayed =
            |node: usize| wifi.nodes[node].status()["flood"][0]["relayed_frames"].as_u64().expect("a number");
        // It hears one neighbour alone.
        eventually("the last repeats all", || (relayed(RADIOS - 1) == 3 * MESSAGES as u64).then_some(()));
        (1..RADIOS - 1).map(relayed).sum::<u64>()
    });
    eprintln!("the two in the middle relay {all} frames, and {fewer} where they suppress");
    assert!(fewer * 10 <= all * 9, "{fewer} frames, and {all} without");
}

/// Sends messages from one node; how many of them each of the others hears.
fn heard(wifi: &Wifi, from: usize, limit: Option<Duration>) -> Vec<usize> {
    let connect = |node: usize| {
        wifi.nodes[node].within(|| Client::connect(&format!("wlan{node}"))).expect("the node runs")
    };
    let sender = connect(from);
    let others: Vec<_> = (0..RADIOS).filter(|node| *node != from).map(connect).collect();
    others.iter().for_each(|other| other.listen().expect("the node runs"));
    let mut heard = vec![BTreeSet::new(); others.len()];
    // What was sent before may come late.
    static SENT: AtomicUsize = AtomicUsize::new(0);
    let first = SENT.fetch_add(MESSAGES, Ordering::Relaxed);
    for number in first..first + MESSAGES {
        sender.send(0, &number.to_be_bytes()).expect("it goes");
        for (other, heard) in others.iter().zip(&mut heard) {
            let mut come = std::iter::from_fn(|| other.recv(limit).expect("the node runs"));
            if let Some(message) = come.find(|message| message.data[..] >= first.to_be_bytes()[..]) {
                assert!(heard.insert(message.data), "a message came twice");
            }
        }
    }
    heard.iter().map(BTreeSet::len).collect()
}

fn a_monitor_that_cannot_be_used_is_named(wifi: &Wifi) {
    let _daemons = wifi.start("monitor = 'mon7'\n");
    assert_eq!(wifi.status(1)["mode"], "off");
    // It is not there, is of another kind, is no radio's.
    let is_none = || {
        let why = wifi.status(1)["off_because"].clone();
        assert!(why.as_str().is_some_and(|why| why.contains("no interface `mon7`")), "{why}");
    };
    is_none();
    wifi.iw(1, "dev wlan1 interface add mon7 type managed");
    is_none();
    wifi.iw(1, "dev mon7 del");
    wifi.nodes[1].ip("tuntap add mon7 mode tap");
    wifi.nodes[1].ip("link set mon7 up");
    is_none();
    wifi.nodes[1].ip("tuntap del mon7 mode tap");
    wifi.iw(1, "dev wlan1 interface add mon7 type monitor flags otherbss");
    wifi.nodes[1].ip("link set mon7 up");
    let is_used = || eventually("it is used", || wifi.status(1)["off_because"].is_null().then_some(()));
    is_used();
    // Down, and up again before anybody looks.
    let file = wifi.folder.path().join("batch");
    std::fs::write(&file, "link set mon7 down\nlink set mon7 up\n".repeat(20)).expect("a file");
    wifi.nodes[1].ip(&format!("-batch {}", file.display()));
    is_used();
    wifi.nodes[1].ip("link set mon7 down");
    eventually("it is said", || {
        let status = wifi.status(1);
        status["off_because"].as_str().is_some_and(|why| why.contains("`mon7` is down")).then_some(())
    });
    wifi.nodes[1].ip("link set mon7 up");
    is_used();
    wifi.iw(1, "dev mon7 del");
    eventually("it is missed", || wifi.status(1)["off_because"].as_str().map(drop));
}

/// Somebody else has its name.
fn a_monitor_that_cannot_be_made_is_named(wifi: &Wifi) {
    wifi.nodes[1].ip("tuntap add nc0-mon mode tap");
    let _daemons = wifi.start("");
    let status = wifi.status(1);
    let why = "what neighbours send each other is not heard: the monitor interface `nc0-mon` cannot be used (another interface has this \
               name; remove it)";
    assert_eq!((&status["mode"], &status["off_because"]), (&"off".into(), &why.into()), "{status}");
    wifi.nodes[1].ip("tuntap del nc0-mon mode tap");
    eventually("it is made", || wifi.status(1)["off_because"].is_null().then_some(()));
}

/// Somebody takes away the one that Nawa made.
fn a_monitor_that_goes_is_made_again(wifi: &Wifi) {
    let _daemons = wifi.start("");
    let before = wifi.index(1, "nc0-mon");
    wifi.iw(1, "dev nc0-mon del");
    let name = ["-o", "link", "show", "nc0-mon"];
    eventually("it is there again", || {
        let there = output(&mut wifi.nodes[1].command("ip", name)).status.success();
        (there && wifi.index(1, "nc0-mon") != before && wifi.status(1)["off_because"].is_null()).then_some(())
    });
}

/// Left and joined again before anybody looks.
fn a_network_that_becomes_another_is_looked_at_again(wifi: &Wifi) {
    let _daemons = wifi.start("");
    for (ht, off) in [("HT20 ", true), ("", false)] {
        wifi.iw(1, "dev wlan1 ibss leave");
        wifi.iw(1, &format!("dev wlan1 ibss join nawa 2412 {ht}fixed-freq 02:ca:fe:00:00:01"));
        eventually("the network is another", || {
            let status = wifi.status(1);
            let is_off = status["off_because"].as_str().is_some_and(|why| why.contains("802.11n"));
            (status["waits_because"].is_null() && is_off == off).then_some(())
        });
    }
}

/// It works as without coding, and says so.
fn is_left_alone_because_it_is(wifi: &Wifi, what: &str) {
    let _daemons = wifi.start("");
    wifi.both_ways();
    for node in 0..3 {
        let status = wifi.status(node);
        assert_eq!((&status["mode"], &status["sent_coded_frames"]), (&"off".into(), &0.into()), "{status}");
        assert!(status["off_because"].as_str().is_some_and(|why| why.contains(what)), "{status}");
    }
    assert_eq!(wifi.counted(0, "missing_partner_frames"), 0);
}
