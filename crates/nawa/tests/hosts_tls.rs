//! Paths by TLS to a relay, where no UDP passes.

mod common;

use std::net::TcpStream;
use std::path::PathBuf;

use common::uplinks::{Names, Resolver, Uplinks, nft, path, shell};
use common::{Daemon, Namespace, Node, eventually, namespaces_or_skip, succeed};
use serde_json::Value;

const OFFICE: &str = "'10.77.0.2/32', 'fd77::2/128'";

/// The van's uplinks let no UDP pass, and the core is a relay.
struct Blocked {
    net: Uplinks,
    relay: Node,
}

impl Blocked {
    fn new() -> Blocked {
        let net = Uplinks::new();
        nft(
            &net.core,
            "table inet wall { chain pre { type filter hook prerouting priority -200; iifname \"wan*\" meta l4proto udp drop\n}\n\
             chain post { type filter hook postrouting priority 0; oifname \"wan*\" meta l4proto udp drop\n}\n}",
        );
        net.van.ip("route add default via 10.0.1.1 metric 10");
        net.van.ip("route add default via 10.0.2.1 metric 20");
        Blocked { net, relay: Node::new() }
    }

    fn relay_file(&self) -> PathBuf {
        let van = &self.net.nodes[0].public_key;
        self.relay.write(&format!("[relay]\nlisten = 51901\ntls = 443\nallow = ['{van}']\n"))
    }

    /// A path by the relay there.
    fn via(&self, name: &str, relay: &str, more: &str) -> String {
        let key = &self.relay.public_key;
        path(name, &format!("via = {{ tls = '{relay}', public-key = '{key}' }}\n{more}"))
    }
}

#[test]
fn a_tunnel_comes_up_by_tls_where_no_udp_passes() {
    let Some(_alone) = namespaces_or_skip("a_tunnel_comes_up_by_tls_where_no_udp_passes") else { return };
    let blocked = Blocked::new();
    let net = &blocked.net;
    let relay = Daemon::start(&net.core, &blocked.relay_file());
    let paths = path("udp", "local = 'wan1'")
        + &blocked.via("l1", "203.0.113.1:443", "local = 'wan1'")
        + &blocked.via("l2", "[2001:db8::1]:443", "local = 'fd02::2'");
    net.van.ip("route add default via fd02::1");
    let _daemons = net.start("", OFFICE, &paths);
    net.wait_up(&["l1", "l2"]);
    net.wait_why("udp", "no answer from 203.0.113.7:51900");
    net.wait_why("l1", "goes by TLS to 203.0.113.1:443, slower than by UDP");
    let one = net.wait_for("l1", "by TLS", |path| path["tls"] == true);
    assert_eq!((&one["remote"], &one["relayed"]), (&"203.0.113.1:443".into(), &true.into()));
    net.wait_for("l1", "as large as any", |path| path["mtu"] == 1500);
    let pings = "ping -c 200 -i 0.01 -s 1300 -W 20 10.77.0.2";
    assert!(shell(&net.van, pings).contains(" 200 received"));
    // The relay knows who they really are.
    let sessions = net.core.status()["relay"]["sessions"].as_array().expect("sessions").clone();
    let mut clients: Vec<_> =
        sessions.iter().map(|session| session["client"].as_str().unwrap_or("")).collect();
    clients.sort_unstable();
    assert!(clients[0].starts_with("10.0.1.2:") && clients[1].starts_with("[fd02::2]:"), "{clients:?}");
    assert!(sessions.iter().all(|session| session["tls"] == true));
    let key = &blocked.relay.public_key;
    let to = ["--remote", "203.0.113.7:51900", "--via", "203.0.113.1:443", "--via-key", key, "--via-tls"];
    succeed(&mut net.van.nawa(["path", "add", "office", "l3"].into_iter().chain(to)));
    net.wait_for("l3", "by TLS", |path| path["state"] == "up" && path["tls"] == true);
    succeed(&mut net.van.nawa(["path", "del", "office", "l3"]));
    // Without the relay there is no connection, and with it again there is.
    drop(relay);
    net.wait_why("l1", "no connection by TLS to 203.0.113.1:443: ");
    net.wait_for("l1", "down", |path| path["cause"] == "no-tls");
    let _relay = Daemon::start(&net.core, &blocked.relay_file());
    net.wait_up(&["l1", "l2"]);
    net.ping("10.77.0.2");
    // A connection whose link dies without a word is found to be dead.
    nft(&net.core, "add rule inet wall pre iifname wan1 tcp dport 443 drop");
    net.wait_why("l1", "no connection by TLS");
    nft(&net.core, "flush chain inet wall pre");
    net.wait_up(&["l1"]);
}

/// A connection from an address that packets do not leave from any more is given up before it is found to be dead.
#[test]
fn a_connection_by_tls_follows_the_address_that_packets_leave_from() {
    let name = "a_connection_by_tls_follows_the_address_that_packets_leave_from";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let blocked = Blocked::new();
    let net = &blocked.net;
    let _relay = Daemon::start(&net.core, &blocked.relay_file());
    let paths =
        blocked.via("l1", "203.0.113.1:443", "") + &blocked.via("l2", "203.0.113.1:443", "local = 'wan1'");
    let _daemons = net.start("", OFFICE, &paths);
    net.wait_up(&["l1", "l2"]);
    let has_client = |at: &str| {
        let sessions = net.core.status()["relay"]["sessions"].as_array().expect("sessions").clone();
        let is_there = |one: &Value| one["client"].as_str().is_some_and(|client| client.starts_with(at));
        sessions.iter().any(is_there).then_some(())
    };
    // The old one stays, so that the connection would live.
    net.van.ip("address add 10.0.1.3/24 dev wan1");
    net.van.ip("route replace default via 10.0.1.1 metric 10 src 10.0.1.3");
    eventually("it leaves from the new address", || has_client("10.0.1.3:"));
    net.wait_up(&["l1", "l2"]);
    net.van.ip("route replace default via 10.0.2.1 metric 5");
    eventually("the free one leaves by the other uplink", || has_client("10.0.2.2:"));
    net.wait_up(&["l1", "l2"]);
    // With the first address of a network the others go.
    net.van.ip("address del 10.0.1.2/24 dev wan1");
    net.wait_why("l2", "no route by wan1");
    net.van.ip("address add 10.0.1.4/24 dev wan1");
    net.van.ip("route add default via 10.0.1.1 metric 10");
    eventually("it leaves from the one that came", || has_client("10.0.1.4:"));
    net.wait_up(&["l2"]);
}

#[test]
fn a_path_by_tls_waits_for_the_loopback_address() {
    let Some(_alone) = namespaces_or_skip("a_path_by_tls_waits_for_the_loopback_address") else { return };
    let blocked = Blocked::new();
    let net = &blocked.net;
    let _relay = Daemon::start(&net.core, &blocked.relay_file());
    net.van.ip("address del 127.0.0.1/8 dev lo");
    let _daemons = net.start("", OFFICE, &blocked.via("l1", "203.0.113.1:443", "local = 'wan1'"));
    net.wait_why("l1", "no socket on the loopback interface");
    net.van.ip("address add 127.0.0.1/8 dev lo");
    net.wait_up(&["l1"]);
}

/// The default route leads into the tunnel, the office is the relay as well, and has a name whose server is asked by UDP.
#[test]
fn a_connection_by_tls_goes_beside_the_default_route() {
    let name = "a_connection_by_tls_goes_beside_the_default_route";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let blocked = Blocked::new();
    let net = &blocked.net;
    nft(&net.core, "insert rule inet wall pre udp dport 53 accept");
    nft(&net.core, "insert rule inet wall post udp sport 53 accept");
    net.core.ip("address add 198.51.100.53/32 dev lo");
    let resolver = Resolver::new(&net.van, "", 1);
    resolver.ask("nameserver 198.51.100.53\n");
    let names = Names::new(&net.core, "198.51.100.53", false);
    let [van, office] = net.nodes.each_ref().map(|node| &node.public_key);
    let relay = format!("[relay]\nlisten = 51901\ntls = 443\nallow = ['{van}']\n");
    let _office = Daemon::start(&net.office, &net.office_file(&relay));
    let via = path("l1", &format!("via = {{ tls = 'office.test:443', public-key = '{office}' }}\n"));
    let van_daemon = Daemon::start(&net.van, &net.van_file("", "'0.0.0.0/0'", &via));
    net.wait_why("l1", "\"office.test\" has no address");
    names.set("office.test", &["203.0.113.7"]);
    net.wait_up(&["l1"]);
    net.ping("10.77.0.2");
    // Read again, it goes on.
    shell(&net.van, &format!("kill -HUP {}", van_daemon.id()));
    net.ping("10.77.0.2");
    net.wait_up(&["l1"]);
}

/// Idle, slow and senseless connections from many addresses.
#[test]
fn a_relay_by_tls_has_room_for_its_clients() {
    let Some(_alone) = namespaces_or_skip("a_relay_by_tls_has_room_for_its_clients") else { return };
    let blocked = Blocked::new();
    let net = &blocked.net;
    let relay = Daemon::start(&net.core, &blocked.relay_file());
    let descriptors = || {
        let count = std::fs::read_dir(format!("/proc/{}/fd", relay.id())).expect("its descriptors").count();
        assert!(count < 500, "{count} descriptors");
        count
    };
    let before = descriptors();
    // Another host's place, with addresses of its own.
    let stranger = Namespace::new();
    Namespace::connect((&stranger, "wan", "198.18.0.2/16"), (&net.core, "wan9", "198.18.0.1/16"));
    stranger.ip("route add default via 198.18.0.1");
    shell(&stranger, "for n in $(seq 1 100); do echo address add 198.18.1.$n/32 dev lo; done | ip -batch -");
    shell(&net.core, "ip route add 198.18.1.0/24 via 198.18.0.2");
    let to = "203.0.113.1:443".parse().expect("an address");
    let mut all: Vec<TcpStream> = stranger.within(|| {
        let connect = |n: u32| {
            let source = std::net::IpAddr::from([198, 18, 1, 1 + (n % 100) as u8]);
            let out = device::Outgoing { source: Some(source), ..device::Outgoing::default() };
            out.tcp(to).expect("a connection begins")
        };
        (0..1000).map(connect).collect()
    });
    for (n, stream) in all.iter_mut().enumerate() {
        // Some say nothing, some begin a handshake, some talk of other things.
        let words: &[&[u8]] = &[b"", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/1.1\r\n\r\n"];
        let _ = std::io::Write::write(stream, words[n % words.len()]);
    }
    eventually("they are taken", || (descriptors() > before + 100).then_some(()));
    let _daemons = net.start("", OFFICE, &blocked.via("l1", "203.0.113.1:443", ""));
    net.wait_up(&["l1"]);
    descriptors();
    // They come on and on, and the client stays.
    for _ in 0..3 {
        stranger.within(|| {
            let out = device::Outgoing::default();
            all.extend((0..100).filter_map(|_| out.tcp(to).ok()));
        });
        net.ping("10.77.0.2");
    }
    eventually("strangers' time is over", || (descriptors() < before + 10).then_some(()));
    net.ping("10.77.0.2");
}
