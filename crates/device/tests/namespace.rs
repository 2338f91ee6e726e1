//! TUN, netlink and UDP in network namespaces that live as long as a thread.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Barrier;
use std::time::Duration;

use device::net::{MAIN_TABLE, Query, Route, Rule};
use device::poller::Interest;
use device::udp::{Options, RecvBatch, Transmit, UdpSocket};
use device::{Changes, Net, News, PacketSocket, Poller, PromiscuousSocket, Tun, Waker, netns};
use packet::gro::Accepts;

const LEFT: &str = "10.9.0.1";
const RIGHT: &str = "10.9.0.2";

/// Runs `work` in a network namespace of its own, which has nothing but loopback, switched on.
fn in_namespace<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    netns::run_in_new(|| {
        Net::open().unwrap().set_up(1).unwrap();
        work()
    })
    .unwrap()
}

/// Says why, where this test cannot run.
fn skipped(name: &str) -> bool {
    let skip = if !rustix::process::geteuid().is_root() {
        "not root, which a network namespace needs"
    } else if !std::path::Path::new("/dev/net/tun").exists() {
        "no /dev/net/tun"
    } else {
        return false;
    };
    println!("SKIPPED: {name}: {skip}");
    true
}

/// A TUN that is up, with MTU 1400 and this address in a /24.
fn tun(address: &str) -> Tun {
    let tun = Tun::create("nawa%d").unwrap();
    let mut net = Net::open().unwrap();
    let link = net.link(tun.name()).unwrap();
    net.set_mtu(link.index, 1400).unwrap();
    net.set_queue_length(link.index, 1000).unwrap();
    net.add_address(link.index, address.parse().unwrap(), 24, true).unwrap();
    net.set_up(link.index).unwrap();
    tun
}

fn route(destination: IpAddr, prefix: u8, interface: u32, table: u32) -> Route {
    Route { destination, prefix, interface, table, source: None, congestion_control: None }
}

#[test]
fn a_veth_takes_tags_off_and_loopback_does_not() {
    if skipped("a_veth_takes_tags_off_and_loopback_does_not") {
        return;
    }
    in_namespace(|| {
        let mut net = Net::open().unwrap();
        net.add_veth("one", "other").unwrap();
        let socket = PacketSocket::open(net.link("one").unwrap().index, None).unwrap();
        assert_eq!(["one", "lo"].map(|name| socket.takes_tags_off(name).unwrap()), [true, false]);
        assert!(socket.takes_tags_off("none").is_err());
    });
}

#[test]
fn whether_an_interface_has_one_other_end_is_told_by_its_index() {
    if skipped("whether_an_interface_has_one_other_end_is_told_by_its_index") {
        return;
    }
    in_namespace(|| {
        let (tun, mut net) = (tun(LEFT), Net::open().unwrap());
        let index = net.link(tun.name()).unwrap().index;
        for (index, expected) in [(index, true), (1, false)] {
            assert_eq!(net.is_point_to_point(index).unwrap(), expected);
            assert_eq!(net.link_at(index).unwrap().point_to_point, expected);
        }
        assert!(net.is_point_to_point(index + 1000).is_err());
    });
}

#[test]
fn what_one_end_of_a_veth_sends_the_other_receives() {
    if skipped("what_one_end_of_a_veth_sends_the_other_receives") {
        return;
    }
    in_namespace(|| {
        let mut net = Net::open().unwrap();
        net.add_veth("one", "other").unwrap();
        let again = net.add_veth("one", "third").unwrap_err();
        assert_eq!(again.kind(), std::io::ErrorKind::AlreadyExists);
        let [one, other] = ["one", "other"].map(|name| net.link(name).unwrap().index);
        // The sender last: one that was switched on before its other end takes frames a little later.
        net.set_up(other).unwrap();
        net.set_up(one).unwrap();
        let ends =
            [(one, None), (other, Some(0x88b5))].map(|(end, kind)| PacketSocket::open(end, kind).unwrap());
        let frame = [&[0xff; 12][..], &[0x88, 0xb5], &[7; 46]].concat();
        ends[0].send(&frame).unwrap();
        let mut poller = Poller::new().unwrap();
        poller.add(&ends[1], 0, Interest::Read).unwrap();
        assert_eq!(poller.wait(Some(Duration::from_secs(5))).unwrap().count(), 1);
        assert_eq!(ends[1].recv(&mut [0; 100]), Some(&frame[..]));
        let foreign = [&[2; 6][..], &frame[6..]].concat();
        for sent in [&foreign, &frame] {
            ends[0].send(sent).unwrap();
            assert_eq!(poller.wait(Some(Duration::from_secs(5))).unwrap().count(), 1);
            let wanted = (*sent == frame).then_some(&frame[..]);
            assert_eq!(ends[1].recv_broadcast(&mut [0; 100]), Some(wanted), "one frame at a time");
        }
        assert_eq!(ends[1].recv_broadcast(&mut [0; 100]), None);
    });
}

/// An interface that sends a frame in ten seconds or so.
#[test]
fn the_queue_below_is_two_frames_or_the_interfaces() {
    if skipped("the_queue_below_is_two_frames_or_the_interfaces") {
        return;
    }
    in_namespace(|| {
        for command in [
            "ip link add slow0 type veth peer name slow1",
            "ip link set slow0 up",
            "ip link set slow1 up",
            "tc qdisc add dev slow0 root tbf rate 1kbit burst 1600 limit 1000000",
        ] {
            let mut words = command.split(' ');
            let program = words.next().unwrap();
            assert!(std::process::Command::new(program).args(words).status().unwrap().success(), "{command}");
        }
        let index = Net::open().unwrap().link("slow0").unwrap().index;
        let mut socket = PromiscuousSocket::open(index, 1500).unwrap();
        let frame = [&[0xff; 12][..], &[0x88, 0xb7], &[0; 1000]].concat();
        let sent = |socket: &PromiscuousSocket| {
            (0..100).take_while(|_| socket.has_room() && socket.send(&frame).is_ok()).count()
        };
        let short = sent(&socket);
        assert!(short <= 4, "one or two on their way, and two below: {short}");
        socket.keep_short(false).unwrap();
        assert_eq!(sent(&socket), 100);
        socket.keep_short(true).unwrap();
        assert!(!socket.has_room());
    });
}

/// Many times what a queue holds, to one host and nobody reads; then a few packets to others.
#[test]
fn a_flood_to_one_destination_leaves_the_others_packets_alone() {
    if skipped("a_flood_to_one_destination_leaves_the_others_packets_alone") {
        return;
    }
    in_namespace(|| {
        let mut tun = Tun::with_queues("nawa%d", 16).expect("a TUN");
        let mut net = Net::open().expect("netlink");
        let link = net.link(tun.name()).expect("the TUN");
        net.set_queue_length(link.index, 100).expect("a queue length");
        net.set_up(link.index).expect("up");
        for (address, prefix) in [(LEFT, 24), ("fd77::1", 64)] {
            net.add_address(link.index, address.parse().expect("an address"), prefix, true).expect("added");
        }
        // Their places in the hash are others than the flooded one's.
        for (flooded, others) in [("10.9.0.7", ["10.9.0.8", "10.9.0.9"]), ("fd77::7", ["fd77::8", "fd77::9"])]
        {
            let any = if flooded.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
            let socket = std::net::UdpSocket::bind(any).expect("a socket");
            let send = |to: &str, times: usize| {
                let to = SocketAddr::new(to.parse().expect("an address"), 9);
                (0..times).for_each(|_| drop(socket.send_to(&[7; 64], to)));
            };
            send(flooded, 1000);
            others.iter().for_each(|other| send(other, 50));
            let mut counts = [0; 3];
            for queue in 0..16 {
                let count = |packet: &mut [u8]| {
                    let Ok(ip) = packet::Ip::parse(packet) else { return };
                    let to = ip.destination().to_string();
                    if let Some(at) = [flooded, others[0], others[1]].iter().position(|one| **one == to) {
                        counts[at] += 1;
                    }
                };
                let mut count = count;
                while tun.recv_from(queue, &mut count).is_ok() {}
            }
            assert_eq!(counts[1..], [50, 50], "{counts:?}");
            assert!(counts[0] <= 100, "{counts:?}");
        }
    });
}

#[test]
fn netlink_does_what_it_is_asked() {
    if skipped("netlink_does_what_it_is_asked") {
        return;
    }
    in_namespace(|| {
        let tun = tun(LEFT);
        let mut net = Net::open().unwrap();
        let link = net.link(tun.name()).unwrap();
        assert_eq!((link.name.as_str(), link.mtu, link.up), (tun.name(), 1400, true));
        assert_eq!(net.link_at(link.index).unwrap(), link);
        for (address, prefix) in [("192.0.2.0", 24), ("2001:db8::", 32)] {
            let destination: IpAddr = address.parse().unwrap();
            let route = route(destination, prefix, link.index, MAIN_TABLE);
            net.add_route(&route).unwrap();
            let error = net.add_route(&route).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists, "{error}");
            assert_eq!(net.way_to(&Query::to(destination)).unwrap().interface, link.index);
            net.delete_route(&route).unwrap();
            let error = net.way_to(&Query::to(destination)).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::NetworkUnreachable, "{error}");
        }
        net.add_address(link.index, "fd77::1".parse().unwrap(), 64, true).unwrap();
        let error = net.add_address(link.index, "fd77::1".parse().unwrap(), 64, true).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists, "{error}");
        let way = net.way_to(&Query::to("fd77::2".parse().unwrap())).unwrap();
        assert_eq!(way.source, Some("fd77::1".parse().unwrap()), "usable at once");
        let error = net.add_address(99, LEFT.parse().unwrap(), 24, true).unwrap_err();
        assert!(error.to_string().starts_with("cannot add address 10.9.0.1/24 to interface 99: "), "{error}");
        let error = net.link("none").unwrap_err();
        assert!(error.to_string().starts_with("cannot find interface `none`: "), "{error}");
        net.delete_address(link.index, "fd77::1".parse().unwrap(), 64).unwrap();
        net.delete_address(link.index, "fd77::1".parse().unwrap(), 64).expect_err("it is gone");
    });
}

/// An IPv4 packet bound to an interface finds a neighbour everywhere, which no table knows of.
#[test]
fn a_route_is_told_from_a_guess() {
    if skipped("a_route_is_told_from_a_guess") {
        return;
    }
    in_namespace(|| {
        let (_tun, mut net) = (tun(LEFT), Net::open().unwrap());
        let interface = net.link("nawa0").unwrap().index;
        let far: IpAddr = "192.0.2.1".parse().unwrap();
        let bound = Query { interface: Some(interface), ..Query::to(far) };
        assert!(net.way_to(&bound).is_ok() && !net.has_route(&bound));
        assert!(net.has_route(&Query { interface: Some(interface), ..Query::to(RIGHT.parse().unwrap()) }));
        // By a table of its own, for what is not marked.
        let route = route(far, 32, interface, 7000);
        let rule = Rule {
            v6: false,
            priority: 100,
            unless_marked: Some(9),
            table: 7000,
            no_default: false,
            unreachable: false,
        };
        net.add_route(&route).unwrap();
        net.add_rule(&rule).unwrap();
        assert_eq!(net.add_rule(&rule).unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
        assert!(net.has_route(&bound) && !net.has_route(&Query { mark: 9, ..bound }));
        let found = net.find_route(&Query::to(far)).unwrap();
        assert_eq!((found.table, found.prefix, found.interface), (7000, 32, Some(interface)));
        assert_eq!(device::holders(LEFT.parse().unwrap()).unwrap(), ["nawa0"]);
        net.delete_rule(&rule).unwrap();
        assert!(!net.has_route(&bound));
    });
}

#[test]
fn changes_are_told() {
    if skipped("changes_are_told") {
        return;
    }
    in_namespace(|| {
        let (changes, mut poller) = (Changes::subscribe().unwrap(), Poller::new().unwrap());
        poller.add(&changes, 1, Interest::Read).unwrap();
        let mut told = || {
            assert_eq!(poller.wait(Some(Duration::from_secs(30))).unwrap().count(), 1, "nothing is told");
            changes.take().unwrap()
        };
        let (tun, mut net) = (tun(LEFT), Net::open().unwrap());
        let index = net.link(tun.name()).unwrap().index;
        let news = told();
        assert!(news.links && news.interfaces.contains(&index), "{news:?}");
        let destination = "192.0.2.0".parse().unwrap();
        // The kernel may have news of its own of a link meanwhile, and IPv6 routes to add to it, but not each time.
        let only_of_the_route = |_| {
            let route = route(destination, 24, index, MAIN_TABLE);
            net.add_route(&route).unwrap();
            let news = told();
            net.delete_route(&route).unwrap();
            assert!(told().prefixes.contains(&(destination, 24)));
            assert!(news.prefixes.contains(&(destination, 24)), "{news:?}");
            news == News { interfaces: [index].into(), prefixes: news.prefixes.clone(), ..News::default() }
        };
        assert!((0..10).any(only_of_the_route));
        net.add_address(index, RIGHT.parse().unwrap(), 32, true).unwrap();
        assert!(told().interfaces.contains(&index));
        assert!((0..10).any(|_| changes.take().unwrap() == News::default()), "once");
    });
}

/// Moves packets between two TUNs until woken; returns the most that one read brought, and what the TUNs accept.
fn pump(mut tuns: [Tun; 2], stop: &Waker) -> (usize, Accepts) {
    let accepts = tuns[0].accepts();
    let mut poller = Poller::new().unwrap();
    poller.add(stop, 2, Interest::Read).unwrap();
    for (token, tun) in tuns.iter().enumerate() {
        poller.add(tun.queues().next().unwrap(), token as u64, Interest::Read).unwrap();
    }
    let (mut most, mut batch) = (0, Vec::new());
    loop {
        let ready: Vec<_> =
            poller.wait(Some(Duration::from_secs(30))).unwrap().map(|ready| ready.token).collect();
        assert!(!ready.is_empty(), "nothing moves");
        if ready.contains(&2) {
            assert!(tuns.iter().all(|tun| tun.accepts() == accepts), "the kernel refused a super-packet");
            return (most, accepts);
        }
        for token in ready {
            let from = token as usize;
            while let Ok(count) = tuns[from].recv_from(0, |packet| batch.push(packet.to_vec())) {
                most = most.max(count);
                if batch.len() >= 256 {
                    break;
                }
            }
            assert_eq!(tuns[1 - from].send(&batch).unwrap(), batch.len());
            batch.clear();
        }
    }
}

/// Runs `left` and `right` on two hosts joined by their TUNs; see [`pump`].
fn between(left: impl FnOnce() + Send, right: impl FnOnce() + Send) -> (usize, Accepts) {
    let (sender, tuns) = std::sync::mpsc::channel();
    let (stop, both_up, both_done) = (Waker::new().unwrap(), Barrier::new(3), Barrier::new(2));
    let host = |address, work: Box<dyn FnOnce() + Send + '_>| {
        in_namespace(|| {
            sender.send(tun(address)).unwrap();
            both_up.wait();
            work();
            // A host's namespace must outlive what the other still expects from it.
            both_done.wait();
            stop.wake();
        });
    };
    std::thread::scope(|scope| {
        scope.spawn(|| host(LEFT, Box::new(left)));
        scope.spawn(|| host(RIGHT, Box::new(right)));
        let tuns = [tuns.recv().unwrap(), tuns.recv().unwrap()];
        both_up.wait();
        pump(tuns, &stop)
    })
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).take(length).collect()
}

#[test]
fn tcp_survives_being_cut_and_joined() {
    if skipped("tcp_survives_being_cut_and_joined") {
        return;
    }
    let data = pattern(8 << 20);
    let listening = Barrier::new(2);
    let serve = || {
        let listener = TcpListener::bind((RIGHT, 80)).unwrap();
        listening.wait();
        let mut received = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
        assert!(received == data, "{} bytes came, of {}", received.len(), data.len());
    };
    let send = || {
        listening.wait();
        let mut stream = TcpStream::connect((RIGHT, 80)).unwrap();
        stream.write_all(&data).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        // Its end shows that the other has read all.
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    };
    let (most, accepts) = between(send, serve);
    assert_eq!(most > 1, accepts.tcp, "the most that one read brought: {most}");
}

#[test]
fn udp_survives_being_cut_and_joined() {
    if skipped("udp_survives_being_cut_and_joined") {
        return;
    }
    const SIZE: usize = 1200;
    let data = pattern(60 * SIZE - 700);
    let bound = Barrier::new(2);
    let options = Options::default();
    let remote: SocketAddr = (RIGHT.parse::<IpAddr>().unwrap(), 5000).into();
    let receive = || {
        let socket = UdpSocket::bind(remote, options).unwrap();
        bound.wait();
        let (mut poller, mut batch, mut all) =
            (Poller::new().unwrap(), RecvBatch::default(), Vec::<Vec<u8>>::new());
        poller.add(&socket, 0, Interest::Read).unwrap();
        while all.len() < data.len().div_ceil(SIZE) {
            assert_ne!(poller.wait(Some(Duration::from_secs(10))).unwrap().count(), 0, "{} came", all.len());
            let _ = socket.recv(&mut batch, |meta, datagram| {
                assert_eq!((meta.remote.ip(), meta.tos), (LEFT.parse::<IpAddr>().unwrap(), 2));
                all.push(datagram.to_vec());
            });
        }
        assert!(all.iter().eq(data.chunks(SIZE)));
    };
    let send = || {
        let socket = UdpSocket::bind((LEFT.parse::<IpAddr>().unwrap(), 0).into(), options).unwrap();
        bound.wait();
        let interface = Net::open().unwrap().way_to(&Query::to(remote.ip())).unwrap().interface;
        let train = Transmit {
            remote,
            local: None,
            interface: Some(interface),
            tos: 2,
            segment_size: Some(SIZE),
            contents: &data,
        };
        assert!(socket.send(&[train]).is_empty());
    };
    let (most, accepts) = between(send, receive);
    assert_eq!(most > 1, accepts.udp, "the most that one read brought: {most}");
}

#[test]
fn every_failure_to_send_is_told() {
    if skipped("every_failure_to_send_is_told") {
        return;
    }
    in_namespace(|| {
        let _tun = tun(LEFT);
        let socket = UdpSocket::bind("0.0.0.0:0".parse().unwrap(), Options::default()).unwrap();
        let to = |remote: &str, size, contents| {
            let remote: SocketAddr = (remote.parse::<IpAddr>().unwrap(), 9).into();
            Transmit { remote, local: None, interface: None, tos: 0, segment_size: Some(size), contents }
        };
        let data = vec![0; 60_000];
        let failures =
            socket.send(&[to("192.0.2.1", 1200, &data), to(RIGHT, 1373, &data), to(RIGHT, 1372, &data)]);
        let codes: Vec<_> = failures.iter().map(|f| (f.index, f.error.raw_os_error())).collect();
        assert_eq!(codes, [(0, Some(libc::ENETUNREACH)), (1, Some(libc::EMSGSIZE))]);
    });
}

#[test]
fn a_full_buffer_ends_a_batch() {
    if skipped("a_full_buffer_ends_a_batch") {
        return;
    }
    in_namespace(|| {
        // Nobody answers on this link, so that datagrams wait for the neighbour's address.
        let _tap = device::Tap::create("nawatap").unwrap();
        let mut net = Net::open().unwrap();
        let link = net.link("nawatap").unwrap();
        net.add_address(link.index, LEFT.parse().unwrap(), 24, true).unwrap();
        net.set_up(link.index).unwrap();
        let socket = UdpSocket::bind("0.0.0.0:0".parse().unwrap(), Options::default()).unwrap();
        rustix::net::sockopt::set_socket_send_buffer_size(&socket, 20_000).unwrap();
        let remote = (RIGHT.parse::<IpAddr>().unwrap(), 9).into();
        let datagram = Transmit {
            remote,
            local: None,
            interface: None,
            tos: 0,
            segment_size: None,
            contents: &[0; 1000],
        };
        let batch = [datagram; 100];
        let failures = socket.send(&batch);
        let first = failures.first().expect("100 kB do not fit into the buffer").index;
        assert!(first > 0);
        assert!(failures.iter().map(|f| f.index).eq(first..batch.len()), "all from the first that blocked");
        assert!(failures.iter().all(|f| f.error.kind() == std::io::ErrorKind::WouldBlock));
    });
}
