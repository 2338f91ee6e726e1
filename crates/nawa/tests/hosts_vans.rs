//! Three vans at one office: what befalls one of them leaves the others alone.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use common::traffic::Stop;
use common::uplinks::limit;
use common::{Daemon, Namespace, Node, accept, eventually, namespaces_or_skip, output, succeed};
use device::monotonic;

const MEGABYTE: usize = 1_000_000;
/// Of the rate that a van's TCP has alone, it keeps so much while another van is flooded.
const SHARE: f64 = 0.8;

/// The office, and vans that are each joined to it by a cable of their own.
struct Office {
    host: Namespace,
    node: Node,
    vans: Vec<(Namespace, Node)>,
    v6: bool,
}

/// A test over cables of either family.
fn each_family(test: impl Fn(Office)) {
    [false, true].into_iter().for_each(|v6| test(Office::new(v6)));
}

impl Office {
    fn new(v6: bool) -> Office {
        let office = Office {
            host: Namespace::new(),
            node: Node::new(),
            vans: (0..3).map(|_| (Namespace::new(), Node::new())).collect(),
            v6,
        };
        for (number, (van, _)) in (1..).zip(&office.vans) {
            let at = |host: u8| match v6 {
                true => format!("fd0{number}::{host}/64 nodad"),
                false => format!("10.0.{number}.{host}/24"),
            };
            let (here, there) = (at(1), at(2));
            Namespace::connect((&office.host, &format!("van{number}"), &here), (van, "wan", &there));
        }
        office
    }

    fn file(&self) -> PathBuf {
        self.file_of(self.vans.len())
    }

    /// The office's file with the first so many vans.
    fn file_of(&self, vans: usize) -> PathBuf {
        let peers: String = (1..=vans)
            .zip(&self.vans)
            .map(|(number, (_, node))| {
                let (key, net) = (&node.public_key, format!("10.77.0.{number}/32"));
                format!("[[peer]]\nname = 'van{number}'\npublic-key = '{key}'\nroutes = ['{net}']\n")
            })
            .collect();
        self.node.write(&format!(
            "[tunnel]\ninterface = 'nawa0'\naddresses = ['10.77.0.100/24']\nlisten = 51900\n{peers}"
        ))
    }

    fn van_file(&self, number: usize) -> PathBuf {
        let key = &self.node.public_key;
        let remote = if self.v6 { format!("[fd0{number}::1]") } else { format!("10.0.{number}.1") };
        self.vans[number - 1].1.write(&format!(
            "[tunnel]\ninterface = 'nawa0'\naddresses = ['10.77.0.{number}/24']\n\
             [[peer]]\nname = 'office'\npublic-key = '{key}'\nroutes = ['10.77.0.100/32']\n\
             [[peer.path]]\nname = 'wan'\nremote = '{remote}:51900'\n"
        ))
    }

    /// The largest inner packet that goes in one datagram over a link of so many bytes.
    fn inner(&self, mtu: usize) -> usize {
        mtu - if self.v6 { 92 } else { 72 }
    }

    /// The state of the path to this van.
    fn path(&self, number: usize) -> serde_json::Value {
        let status = self.host.status();
        let peers = status["tunnel"]["peers"].as_array().expect("peers").clone();
        let name = format!("van{number}");
        let peer = peers.into_iter().find(|peer| peer["name"] == name.as_str()).expect("the van");
        peer["paths"][0].clone()
    }

    /// Waits until the path to this van carries packets of so many bytes at most.
    #[track_caller]
    fn wait_for_mtu(&self, number: usize, bytes: u64) {
        eventually(&format!("van {number} at {bytes}"), || {
            let path = self.path(number);
            (path["state"] == "up" && path["mtu"] == bytes).then_some(())
        });
    }

    /// Whether a packet of so many bytes gets to this van and back.
    fn carries(&self, number: usize, bytes: usize) -> bool {
        let (size, to) = ((bytes - 28).to_string(), format!("10.77.0.{number}"));
        let arguments = ["-M", "do", "-c", "1", "-w", "20", "-s", size.as_str(), to.as_str()];
        output(&mut self.host.command("ping", arguments)).status.success()
    }

    /// How long a megabyte by TCP to this van takes: the shorter of two times.
    fn megabyte(&self, number: usize) -> Duration {
        let at = format!("10.77.0.{number}:9");
        let listener =
            self.vans[number - 1].0.within(|| TcpListener::bind(&at)).expect("the tunnel's address");
        let send = || {
            let since = monotonic();
            let mut stream = TcpStream::connect(&at).expect("a connection");
            stream.write_all(&vec![7; MEGABYTE]).expect("it is taken");
            stream.shutdown(Shutdown::Write).expect("the end");
            // The van says when it has all.
            stream.read_exact(&mut [0]).expect("an answer");
            monotonic() - since
        };
        let once = || {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let (mut stream, mut all) = (accept(&listener), Vec::new());
                    assert_eq!(stream.read_to_end(&mut all).expect("it comes"), MEGABYTE);
                    stream.write_all(&[7]).expect("it is taken");
                });
                self.host.within(send)
            })
        };
        once().min(once())
    }
}

#[test]
fn a_van_with_a_small_link_leaves_the_others_their_packet_size() {
    let name = "a_van_with_a_small_link_leaves_the_others_their_packet_size";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    each_family(small_link);
}

fn small_link(office: Office) {
    let (large, small) = (office.inner(1500), office.inner(1400));
    office.host.ip("link set van3 mtu 1400");
    office.vans[2].0.ip("link set wan mtu 1400");
    let _office = Daemon::start(&office.host, &office.file());
    let mut vans: Vec<_> =
        (1..=3).map(|van| Daemon::start(&office.vans[van - 1].0, &office.van_file(van))).collect();
    (1..=2).for_each(|van| office.wait_for_mtu(van, 1500));
    office.wait_for_mtu(3, 1400);
    assert!(office.host.ip("link show nawa0").contains(&format!("mtu {large}")));
    assert!((1..=2).all(|van| office.carries(van, large)));
    assert!(office.carries(3, small) && !office.carries(3, small + 1));
    // It goes: nothing changes for the others.
    drop(vans.pop());
    assert!((1..=2).all(|van| office.carries(van, large)));
    assert!(office.host.ip("link show nawa0").contains(&format!("mtu {large}")));
}

/// Nobody takes what is for the third, and the others' packets are not dropped for it.
#[test]
fn a_flood_to_one_van_leaves_the_others_packets_alone() {
    let name = "a_flood_to_one_van_leaves_the_others_packets_alone";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    each_family(flood);
}

fn flood(office: Office) {
    // Two of them join later.
    let daemon = Daemon::start(&office.host, &office.file_of(1));
    office.file();
    daemon.signal(rustix::process::Signal::HUP);
    let _vans: Vec<_> =
        (1..=3).map(|van| Daemon::start(&office.vans[van - 1].0, &office.van_file(van))).collect();
    (1..=3).for_each(|van| office.wait_for_mtu(van, 1500));
    // Slow enough that a processor that is shared with a flood is not what it waits for.
    limit(&office.host, "van1", 10);
    let alone = office.megabyte(1);
    let dropped = || {
        let mut count = office.host.command("cat", ["/sys/class/net/nawa0/statistics/tx_dropped"]);
        succeed(&mut count).trim().parse::<u64>().expect("a number")
    };
    let (before, done) = (dropped(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _running = Stop(&done);
        let done = &done;
        let flood = move || {
            let socket = std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket");
            // As fast as it goes.
            while !done.load(Relaxed) {
                let _ = socket.send_to(&[7; 64], "10.77.0.3:9");
            }
        };
        let host = &office.host;
        scope.spawn(move || host.within(flood));
        eventually("the TUN drops", || (dropped() > before).then_some(()));
        for van in 1..=2 {
            let to = format!("10.77.0.{van}");
            let ping = ["-c", "20", "-i", "0.05", "-W", "20", to.as_str()];
            let answers = succeed(&mut office.host.command("ping", ping));
            assert!(answers.contains(" 20 received"), "{answers}");
        }
        // What else the machine is busy with passes, the flood does not.
        let keeps_its_rate = |_| {
            let beside = office.megabyte(1);
            println!("a megabyte takes {alone:.2?}, beside a flood {beside:.2?}");
            alone.as_secs_f64() >= SHARE * beside.as_secs_f64()
        };
        assert!(
            (0..3).any(keeps_its_rate),
            "{alone:?} alone, and more beside a flood in each of three tries"
        );
    });
}

#[test]
fn a_van_whose_link_flaps_leaves_the_others_alone() {
    let Some(_alone) = namespaces_or_skip("a_van_whose_link_flaps_leaves_the_others_alone") else { return };
    each_family(flaps);
}

fn flaps(office: Office) {
    let _office = Daemon::start(&office.host, &office.file());
    let _vans: Vec<_> =
        (1..=3).map(|van| Daemon::start(&office.vans[van - 1].0, &office.van_file(van))).collect();
    (1..=3).for_each(|van| office.wait_for_mtu(van, 1500));
    let to = ["10.77.0.1", "10.77.0.2"];
    let pings = to.map(|to| {
        let ping = ["-c", "100", "-i", "0.05", "-W", "20", to];
        let mut ping = office.host.command("ping", ping);
        ping.stdout(std::process::Stdio::piped()).spawn().expect("ping")
    });
    // Somebody has to have words with van 3, or nobody notices.
    let mut third = office.host.command("ping", ["-i", "0.1", "10.77.0.3"]);
    let mut third = third.stdout(std::process::Stdio::null()).spawn().expect("ping");
    for _ in 0..4 {
        office.host.ip("link set van3 down");
        eventually("van 3 is gone", || (office.path(3)["state"] != "up").then_some(()));
        office.host.ip("link set van3 up");
        if office.v6 {
            office.host.ip("address replace fd03::1/64 dev van3 nodad");
        }
        eventually("van 3 is back", || (office.path(3)["state"] == "up").then_some(()));
    }
    third.kill().and_then(|()| third.wait()).expect("ping ends");
    for ping in pings {
        let answers = ping.wait_with_output().expect("ping ends");
        let answers = String::from_utf8_lossy(&answers.stdout).into_owned();
        assert!(answers.contains(" 100 received"), "{answers}");
    }
    assert!(office.carries(3, office.inner(1500)));
}
