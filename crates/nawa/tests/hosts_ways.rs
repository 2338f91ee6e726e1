//! Where packets leave a host with several uplinks, and what it routes into the tunnel.

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::traffic::{Starved, stream};
use common::uplinks::{FAMILIES, Uplinks, nft, path, path_to, shell, wait_for_path};
use common::{Daemon, Namespace, eventually, namespaces_or_skip, output, pause, succeed};
use device::monotonic;
use rustix::process::Signal;
use serde_json::Value;

const OFFICE: &str = "'10.77.0.2/32', 'fd77::2/128'";
/// A path whose port is blocked is up by another so long after it fell silent, at most; what goes over the other link does not wait for
/// that. All times are beyond what the machine lets threads wait for.
const ANOTHER_PORT: Duration = Duration::from_secs(15);
const MEANWHILE: Duration = Duration::from_secs(5);
/// A NAT that keeps a mapping for a second has forgotten it by then, markers behind the last packet included.
const FORGOTTEN: Duration = Duration::from_secs(8);
/// Then the first answer comes after no more than this.
const AGAIN: Duration = Duration::from_secs(5);

/// Whether what goes to `to` goes into the tunnel.
fn goes_in(of: &Namespace, to: &str) -> bool {
    let found = output(of.command("ip", ["route", "get", to]).stderr(std::process::Stdio::null()));
    common::stdout(&found).contains("dev nawa0")
}

#[test]
fn a_path_by_address_leaves_by_the_interface_that_has_it() {
    let Some(_alone) = namespaces_or_skip("a_path_by_address_leaves_by_the_interface_that_has_it") else {
        return;
    };
    let net = Uplinks::new();
    net.lead_out();
    let paths = path("l1", "local = '10.0.1.2'") + &path("l2", "local = '10.0.2.2'");
    let _daemons = net.start("", OFFICE, &paths);
    net.wait_up(&["l1", "l2"]);
    net.van.ip("address del 10.0.2.2/24 dev wan2");
    net.wait_why("l2", "no interface has the address 10.0.2.2");
    net.van.ip("address add 10.0.2.2/24 dev wan2");
    net.wait_why("l2", "no route by wan2 from 10.0.2.2 to 203.0.113.7");
    net.van.ip("route add default via 10.0.2.1 metric 20");
    net.wait_up(&["l2"]);
}

#[test]
fn a_path_by_address_of_ipv6_leaves_by_the_interface_that_has_it() {
    let name = "a_path_by_address_of_ipv6_leaves_by_the_interface_that_has_it";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let net = Uplinks::new();
    net.lead_out();
    let paths = path("l1", "local = 'fd01::2'") + &path("l2", "local = 'fd02::2'");
    let _daemons = net.start("", OFFICE, &paths.replace("203.0.113.7", "[2001:db8::7]"));
    net.wait_up(&["l1", "l2"]);
    // One that IPv6 would not take by itself needs a rule, as where it prefers a temporary one.
    net.van.ip("address change fd02::2/64 dev wan2 preferred_lft 0 nodad");
    net.van.ip("address add fd02::9/64 dev wan2 nodad");
    net.wait_why("l2", "packets from fd02::2 do not keep to wan2, where IPv6 takes fd02::9 by itself");
    net.van.ip("route add default via fd02::1 dev wan2 table 102");
    net.van.ip("-6 rule add from fd02::2 lookup 102");
    net.wait_up(&["l2"]);
}

#[test]
fn a_path_by_interface_finds_a_rule_by_source() {
    let Some(_alone) = namespaces_or_skip("a_path_by_interface_finds_a_rule_by_source") else { return };
    for (family, office, one, two) in
        [("-4", "203.0.113.7", "10.0.1.", "10.0.2."), ("-6", "2001:db8::7", "fd01::", "fd02::")]
    {
        let net = Uplinks::new();
        net.van.ip(&format!("route add default via {one}1"));
        // A link may have several names.
        net.van.ip("link property add dev wan2 altname second");
        let paths =
            path("l1", "local = 'wan1'") + &path("l2", "local = 'wan2'") + &path("l3", "local = 'second'");
        let remote = SocketAddr::new(office.parse().expect("an address"), 51900).to_string();
        let _daemons = net.start("", OFFICE, &paths.replace("203.0.113.7:51900", &remote));
        net.wait_up(&["l1"]);
        net.wait_why("l2", &format!("no route by wan2 to {office}"));
        net.van.ip(&format!("route add default via {two}1 dev wan2 table 102"));
        net.van.ip(&format!("{family} rule add from {two}2 lookup 102"));
        net.wait_up(&["l2", "l3"]);
        net.van.ip("link set wan2 down");
        net.wait_why("l2", "wan2 is down");
        net.wait_for("l1", "nothing amiss", |path| path["why"].is_null());
    }
}

/// The van listens here, and the office calls it at both addresses.
#[test]
fn answers_leave_by_the_interface_that_was_hit() {
    let Some(_alone) = namespaces_or_skip("answers_leave_by_the_interface_that_was_hit") else { return };
    let net = Uplinks::new();
    net.lead_out();
    let hub = net.van_file("listen = 51900", OFFICE, "");
    let to = |ip: &str| format!("[[peer.path]]\nname = 'by-{}'\nremote = '{ip}:51900'\n", name(ip));
    fn name(ip: &str) -> String {
        ip.replace([':', '[', ']'], "-")
    }
    let called = ["10.0.1.2", "10.0.2.2", "[fd01::2]", "[fd02::2]"];
    let caller = net.office_file(&called.map(to).concat());
    let _daemons = [Daemon::start(&net.van, &hub), Daemon::start(&net.office, &caller)];
    let up = |name: &str| wait_for_path(&net.office, name, "up", |path| path["state"] == "up");
    called.iter().for_each(|ip| drop(up(&format!("by-{}", name(ip)))));
    nft(&net.core, "flush ruleset");
    // Where no route leads back by that interface, the answer leaves as the routing table says.
    for (ip, van, core, remote) in [
        ("10.0.9.9", "10.0.2.", "203.0.113.1", "10.0.9.9:51900"),
        ("fd09::9", "fd02::", "2001:db8::1", "[fd09::9]:51900"),
    ] {
        net.core.ip(&format!("route add {ip} via {van}2"));
        net.van.ip(&format!("address add {ip} dev lo"));
        net.van.ip(&format!("route del default via {van}1"));
        net.office.ip(&format!("route add {ip} via {core}"));
        succeed(&mut net.office.nawa(["path", "add", "van", &name(ip), "--remote", remote]));
        up(&name(ip));
    }
}

#[test]
fn a_path_into_the_tunnel_is_refused_by_name() {
    let Some(_alone) = namespaces_or_skip("a_path_into_the_tunnel_is_refused_by_name") else { return };
    let net = Uplinks::new();
    net.van.ip("route add default via 10.0.1.1");
    net.van.ip("route add default via fd01::1");
    let paths = path("l1", "") + &path("l2", "").replace("203.0.113.7", "[2001:db8::7]");
    let _daemons = net.start("", "'10.77.0.2/32', '203.0.113.0/24', '2001:db8::/64'", &paths);
    for (name, to, via) in [("l1", "203.0.113.7", "10.0.1.1"), ("l2", "2001:db8::7", "fd01::1")] {
        let why = format!("its packets to {to} would go into nawa0 itself");
        net.wait_why(name, &why);
        net.wait_for(name, "down", |path| path["state"] == "down");
        net.van.ip(&format!("route add {to} via {via}"));
        net.wait_up(&[name]);
        net.van.ip(&format!("route del {to}"));
        net.wait_why(name, &why);
    }
}

#[test]
fn everything_goes_through_the_tunnel_whatever_the_uplinks_have() {
    let name = "everything_goes_through_the_tunnel_whatever_the_uplinks_have";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let net = Uplinks::new();
    net.van.ip("route add default via 10.0.1.1");
    net.van.ip("route add default via fd01::1");
    net.van.ip("route add default via 10.0.2.1 metric 20");
    let outside = ["192.0.2.99", "2001:db8:99::1"];
    net.office.ip("address add 192.0.2.99/32 dev lo");
    net.office.ip("address add 2001:db8:99::1/128 dev lo");
    let paths = path("l1", "") + &path("l2", "local = 'wan2'") + &path("l3", "local = '10.0.1.2'");
    let paths = paths + &path_to(FAMILIES[1], "l4", "");
    let [office, van] = net.start("", "'0.0.0.0/0', '::/0'", &paths);
    net.wait_up(&["l1", "l2", "l3", "l4"]);
    let all_in = || outside.iter().all(|to| goes_in(&net.van, to));
    outside.iter().for_each(|to| net.ping(to));
    assert!(all_in() && !goes_in(&net.van, "10.0.1.1"), "neighbours stay neighbours");
    // What a DHCP client does on renewal.
    for router in ["10.0.1.1", "fd01::1"] {
        net.van.ip(&format!("route replace default via {router} dev wan1"));
    }
    assert!(all_in());
    for taken in [
        "ip rule del priority 32763",
        "ip -6 rule flush; ip -6 rule add priority 32766 lookup main",
        "ip route flush dev nawa0 table all",
        "ip -6 route flush dev nawa0 table 0x6e617761",
        "ip route replace default via 10.0.1.1 table 0x6e617761",
        "ip -6 route replace default via fd01::1 dev wan1 table 0x6e617761",
        "ip link set nawa0 down",
        "ip -4 rule del priority 32762",
    ] {
        shell(&net.van, taken);
        eventually(taken, || all_in().then_some(()));
    }
    outside.iter().for_each(|to| net.ping(to));
    // Nothing goes beside while the other end is away.
    drop(office);
    assert!(all_in());
    van.signal(Signal::TERM);
    assert_eq!(van.wait(), Some(0));
    assert!(!goes_in(&net.van, outside[0]));
    assert_eq!(net.van.ip("rule").lines().count(), 3, "{}", net.van.ip("rule"));
}

/// As other tunnels' recipes have it: halves, and a mark that a rule of the host's own sends by the second uplink.
#[test]
fn everything_goes_in_by_halves_by_a_mark_and_by_paths_with_addresses() {
    let name = "everything_goes_in_by_halves_by_a_mark_and_by_paths_with_addresses";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let net = Uplinks::new();
    net.lead_out();
    for line in [
        "route add default via 10.0.2.1 dev wan2 table 51",
        "route add default via fd02::1 dev wan2 table 51",
        "-4 rule add fwmark 51 lookup 51 priority 100",
        "-6 rule add fwmark 51 lookup 51 priority 100",
    ] {
        net.van.ip(line);
    }
    let outside = ["192.0.2.99", "2001:db8:99::1"];
    net.office.ip("address add 192.0.2.99/32 dev lo");
    net.office.ip("address add 2001:db8:99::1/128 dev lo");
    let (whole, halves) = ("'0.0.0.0/0', '::/0'", "'0.0.0.0/1', '128.0.0.0/1', '::/1', '8000::/1'");
    let [v4, v6] = FAMILIES;
    let by = |(name, to, local): (&str, &str, &str)| path_to(to, name, &format!("local = '{local}'"));
    let interfaces = [("i1", v4, "wan1"), ("i2", v6, "wan2")].map(by).concat();
    let addresses =
        [("a1", v4, "10.0.1.2"), ("a2", v4, "10.0.2.2"), ("a3", v6, "fd01::2"), ("a4", v6, "fd02::2")];
    let addresses = addresses.map(by).concat();
    let any = path_to(v4, "m1", "") + &path_to(v6, "m2", "");
    let (all, marked) = (["i1", "i2", "a1", "a2", "a3", "a4"], ["m1", "m2"]);
    for (tunnel, routes, paths, names) in [
        ("", halves, interfaces + &addresses, &all[..]),
        ("", whole, addresses, &all[2..]),
        ("fwmark = 51", halves, any.clone(), &marked[..]),
        ("fwmark = 51", whole, any, &marked[..]),
    ] {
        let [_office, van] = net.start(tunnel, routes, &paths);
        net.wait_up(names);
        outside.iter().for_each(|to| net.ping(to));
        assert!(outside.iter().all(|to| goes_in(&net.van, to)), "{tunnel} {routes}");
        for (name, from) in [("m1", "10.0.2.2:"), ("m2", "[fd02::2]:")] {
            let comes_from = |path: &Value| path["remote"].as_str().is_some_and(|at| at.starts_with(from));
            if names.contains(&name) {
                wait_for_path(&net.office, name, from, comes_from);
            }
        }
        van.signal(Signal::TERM);
        assert_eq!(van.wait(), Some(0));
        assert!(!outside.iter().any(|to| goes_in(&net.van, to)), "{tunnel} {routes}");
    }
}

/// The file says that packets may go beside the tunnel while it is down.
#[test]
fn a_tunnel_that_fails_open_is_left_while_the_other_end_is_away() {
    let name = "a_tunnel_that_fails_open_is_left_while_the_other_end_is_away";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let net = Uplinks::new();
    net.van.ip("route add default via 10.0.1.1");
    net.van.ip("route add default via fd01::1");
    let outside = ["192.0.2.99", "2001:db8:99::1"];
    let [office, van] = net.start("fail-open = true", "'0.0.0.0/0', '::/0'", &path("l1", "local = 'wan1'"));
    let all = |inside| outside.iter().all(|to| goes_in(&net.van, to) == inside);
    net.wait_up(&["l1"]);
    eventually("packets go in", || all(true).then_some(()));
    let goes = |where_to: &str| {
        let route = net.van.status()["tunnel"]["default_route"].clone();
        (route["ipv4"]["goes"] == where_to && route["ipv6"]["goes"] == where_to).then_some(())
    };
    eventually("it is said that they go in", || goes("tunnel"));
    drop(office);
    // What is sent is not answered: so the silence is noticed.
    let mut ping = net.van.command("ping", ["-i", "0.2", "-w", "60", "10.77.0.2"]);
    let mut ping = ping.stdout(std::process::Stdio::null()).spawn().expect("ping");
    eventually("packets go beside", || all(false).then_some(()));
    // It is said so, and the peer is not shown as up.
    eventually("it is said that they go beside", || goes("clear"));
    assert_eq!(net.van.status()["tunnel"]["peers"][0]["up"], false);
    let shown = succeed(&mut net.van.nawa(["status"]));
    assert!(
        shown.contains("default route: IPv4 in the clear") && shown.contains("peer office: fails open"),
        "{shown}"
    );
    let doctor = common::stdout(&output(&mut net.van.nawa(["doctor"])));
    assert!(doctor.contains("WARN  default route: IPv4 in the clear"), "{doctor}");
    // It is not taken for somebody's doing.
    net.van.ip("route add 198.51.100.0/24 via 10.0.1.1");
    let _office = Daemon::start(&net.office, &net.office_file(""));
    eventually("packets go in again", || all(true).then_some(()));
    ping.kill().expect("ping ends");
    ping.wait().expect("ping ends");
    van.signal(Signal::TERM);
    assert_eq!(van.wait(), Some(0));
    assert_eq!(net.van.ip("rule").lines().count(), 3, "{}", net.van.ip("rule"));
}

#[test]
fn a_default_route_that_is_held_back_is_said_for_each_family() {
    let name = "a_default_route_that_is_held_back_is_said_for_each_family";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let net = Uplinks::new();
    net.van.ip("route add default via 10.0.1.1");
    let file = net.van_file("", "'0.0.0.0/0'", &path("l1", ""));
    let _van = Daemon::start(&net.van, &file);
    let said = "default route: IPv4 held back, for no path is up to office (fail closed); \
                IPv6 beside the tunnel, for no peer has ::/0";
    let shown = succeed(&mut net.van.nawa(["status"]));
    assert!(shown.contains(said) && shown.contains("peer office: down"), "{shown}");
    let doctor = common::stdout(&output(&mut net.van.nawa(["doctor"])));
    assert!(doctor.contains(&format!("FAIL  {said}")), "{doctor}");
    let _office = Daemon::start(&net.office, &net.office_file(""));
    net.wait_up(&["l1"]);
    let shown = succeed(&mut net.van.nawa(["status"]));
    assert!(shown.contains("default route: IPv4 through the tunnel to office; IPv6 beside"), "{shown}");
    // Nobody needs to know an inner address of the hub's.
    let found = succeed(&mut net.van.nawa(["test", "office", "--time", "5s", "--json"]));
    assert!(found.contains("\"10.77.0.2\""), "{found}");
}

#[test]
fn what_others_take_from_the_interface_comes_back() {
    let Some(_alone) = namespaces_or_skip("what_others_take_from_the_interface_comes_back") else { return };
    let net = Uplinks::new();
    net.van.ip("route add default via 10.0.1.1");
    let [_office, mut van] = net.start("", "'10.77.0.2/32', '10.99.0.0/16', 'fd99::/64'", &path("l1", ""));
    let whole = || {
        let (addresses, routes) = (net.van.ip("address show dev nawa0"), net.van.ip("route"));
        let v6 = net.van.ip("-6 route");
        (addresses.contains("10.77.0.1/24")
            && addresses.contains("fd77::1/64")
            && routes.contains("10.99.0.0/16 dev nawa0"))
            && ["fd77::/64", "fd99::/64"].iter().all(|net| v6.contains(&format!("{net} dev nawa0")))
    };
    assert!(whole());
    for taken in [
        "ip route flush dev nawa0",
        "ip -6 route flush dev nawa0",
        "ip address flush dev nawa0",
        "ip link set nawa0 down; ip link set nawa0 up",
        "ip link set nawa0 down",
        "ip route del 10.99.0.0/16",
        "ip address del fd77::1/64 dev nawa0",
        "ip route replace 10.99.0.0/16 via 10.0.1.1 dev wan1",
        "ip -6 route replace fd99::/64 via fd01::1 dev wan1",
        "ip route del 10.99.0.0/16; ip route add unreachable 10.99.0.0/16",
        "ip route replace 10.99.0.0/16 nexthop via 10.0.1.1 nexthop via 10.0.2.1",
    ] {
        shell(&net.van, taken);
        van.read_until("put back");
        eventually(taken, || whole().then_some(()));
    }
    net.ping("10.77.0.2");
}

#[test]
fn an_interface_that_is_renamed_goes_on_by_its_new_name() {
    let name = "an_interface_that_is_renamed_goes_on_by_its_new_name";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let net = Uplinks::new();
    net.van.ip("route add default via 10.0.1.1");
    let [_office, mut van] = net.start("", "'10.77.0.2/32'", &path("l1", ""));
    net.wait_up(&["l1"]);
    for (from, to) in [("nawa0", "inner"), ("inner", "nawa0")] {
        net.van.ip(&format!("link set {from} name {to}"));
        van.read_until(&format!("somebody has renamed {from} to {to}"));
        net.van.ip(&format!("route flush dev {to}"));
        van.read_until(&format!("route 10.77.0.2/32 from {to}; it is put back"));
        assert_eq!(net.van.status()["interface"], to);
        net.ping("10.77.0.2");
    }
}

/// Another program's route or rule comes before the tunnel's, in whatever table.
#[test]
fn what_comes_before_the_tunnels_routes_gives_way_or_is_said() {
    let name = "what_comes_before_the_tunnels_routes_gives_way_or_is_said";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let net = Uplinks::new();
    net.van.ip("route add default via 10.0.1.1");
    let routes = "'10.77.0.2/32', '10.99.0.0/16', 'fd99::/64', '0.0.0.0/0'";
    let [_office, mut van] = net.start("", routes, &path("l1", "local = 'wan1'"));
    let outside = ["10.99.1.1", "fd99::1", "192.0.2.99"];
    let all_in = || outside.iter().all(|to| goes_in(&net.van, to));
    assert!(all_in());
    for before in [
        "ip route prepend 10.99.0.0/16 via 10.0.1.1 dev wan1",
        "ip route prepend 10.99.0.0/16 via 10.0.2.1; ip route prepend 10.99.0.0/16 via 10.0.1.1",
        "ip route prepend unreachable 10.99.0.0/16",
        "ip route prepend default via 10.0.1.1 table 0x6e617761",
    ] {
        shell(&net.van, before);
        van.read_until("put back");
        eventually(before, || all_in().then_some(()));
    }
    let why = || {
        let peer = net.van.status()["tunnel"]["peers"][0].clone();
        peer["why"].as_str().unwrap_or_default().to_owned()
    };
    for (before, again, said) in [
        (
            "ip -6 route add fd99::/64 via fd01::1 metric 5",
            "ip -6 route del fd99::/64 via fd01::1 metric 5",
            "packets to fd99::/64 go by wan1 and not into nawa0, for another route in the table main comes first",
        ),
        (
            "ip -6 route add unreachable fd99::/64 metric 5",
            "ip -6 route del unreachable fd99::/64 metric 5",
            "packets to fd99::/64 go nowhere and not into nawa0, for another route or rule comes first",
        ),
        (
            "ip route add 10.99.0.0/16 via 10.0.1.1 table 99; ip rule add lookup 99 priority 100",
            "ip route flush table 99; ip rule del priority 100",
            "packets to 10.99.0.0/16 go by wan1 and not into nawa0, for a route in the table 99 comes first",
        ),
        (
            "ip rule add lookup main priority 100",
            "ip rule del priority 100",
            "packets to 0.0.0.0/0 go by wan1 and not into nawa0, for another route in the table main comes first",
        ),
    ] {
        shell(&net.van, before);
        van.read_until(said);
        eventually(said, || why().starts_with(said).then_some(()));
        if before.contains("lookup main") {
            let shown = succeed(&mut net.van.nawa(["status"]));
            assert!(shown.contains("default route: IPv4 beside the tunnel, for another route"), "{shown}");
        }
        shell(&net.van, again);
        eventually("nothing is said any more", || (!why().contains("comes first") && all_in()).then_some(()));
    }
    // A narrower route is its owner's will.
    net.van.ip("route add 10.99.0.0/17 via 10.0.1.1");
    net.van.ip("route add 10.99.128.0/17 via 10.0.1.1");
    net.wait_up(&["l1"]);
    assert_eq!(why(), "");
}

/// The answers come by an uplink that the tunnel's default route does not leave by.
#[test]
fn a_default_route_passes_a_strict_reverse_path_filter() {
    let name = "a_default_route_passes_a_strict_reverse_path_filter";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let net = Uplinks::new();
    shell(&net.van, "for i in all wan1; do echo 1 >/proc/sys/net/ipv4/conf/$i/rp_filter; done");
    let filters = || shell(&net.van, "cat /proc/sys/net/ipv4/conf/*/rp_filter");
    let before = filters();
    net.van.ip("route add default via 10.0.1.1");
    net.office.ip("address add 192.0.2.99/32 dev lo");
    let [_office, van] = net.start("", "'0.0.0.0/0'", &path("l1", ""));
    net.wait_up(&["l1"]);
    net.ping("192.0.2.99");
    // Whoever makes it strict again while the daemon runs, and whatever an uplink that comes has.
    let all = "/proc/sys/net/ipv4/conf/all/rp_filter";
    shell(&net.van, &format!("echo 1 >{all}"));
    eventually("it is loose again", || (shell(&net.van, &format!("cat {all}")).trim() == "2").then_some(()));
    van.signal(Signal::TERM);
    assert_eq!(van.wait(), Some(0));
    assert_eq!(filters(), before);
}

#[test]
fn a_port_that_is_blocked_is_left() {
    let Some(_alone) = namespaces_or_skip("a_port_that_is_blocked_is_left") else { return };
    let net = Uplinks::new();
    net.van.ip("route add default via fd01::1 metric 10");
    net.van.ip("route add default via 10.0.2.1 metric 20");
    // A port that the test knows. The first path is of IPv6.
    let paths = path("l1", "local = 'wan1'").replace("203.0.113.7", "[2001:db8::7]");
    let _daemons = net.start("listen = 4000", OFFICE, &(paths + &path("l2", "local = 'wan2'")));
    net.wait_up(&["l1", "l2"]);
    let starved = Starved::new();
    stream(&net.van, &net.office, |progress| {
        for (name, wan) in [("l1", "wan1"), ("l2", "wan2")] {
            progress();
            nft(&net.core, &format!("add rule inet isp forward iifname {wan} udp sport 4000 drop"));
            net.wait_for(name, "silent", |path| path["state"] == "silent");
            let since = monotonic();
            let took = progress();
            assert!(took < MEANWHILE + starved.excuses(), "{name}: 400 kB take {took:?} over the other link");
            let path = net.wait_for(name, "up", |path| path["state"] == "up");
            let took = monotonic() - since;
            println!("{name}: up {took:.1?} after it fell silent");
            assert!(took < ANOTHER_PORT + starved.excuses(), "up {took:?} after it fell silent: {path}");
            let there = wait_for_path(&net.office, name, "up", |path| path["state"] == "up");
            assert!(!there["remote"].as_str().expect("an address").ends_with(":4000"), "{there}");
        }
    });
}

/// Also where the van's host is suspended meanwhile: it says nothing, and the NAT forgets sooner than after the usual minutes.
#[test]
fn a_nat_that_forgets_is_passed_again() {
    let Some(_alone) = namespaces_or_skip("a_nat_that_forgets_is_passed_again") else { return };
    FAMILIES.into_iter().for_each(nat_forgets);
}

fn nat_forgets(office: &str) {
    let net = Uplinks::new();
    net.van.ip("route add default via 10.0.1.1");
    net.van.ip("route add default via fd01::1");
    nft(
        &net.core,
        "table inet nat { chain post { type nat hook postrouting priority 100; oifname eth0 masquerade random\n}\n}",
    );
    let [_office, van] = net.start("", OFFICE, &path_to(office, "l1", ""));
    net.wait_up(&["l1"]);
    let seen = || wait_for_path(&net.office, "l1", "up", |path| path["state"] == "up")["remote"].clone();
    let timeouts = |seconds| {
        let names = ["udp_timeout", "udp_timeout_stream"];
        let set = |name| format!("echo {seconds} >/proc/sys/net/netfilter/nf_conntrack_{name}");
        shell(&net.core, &names.map(set).join("; "));
    };
    let starved = Starved::new();
    for suspended in [false, true] {
        let before = seen();
        timeouts(1);
        net.ping("10.77.0.2");
        if suspended {
            van.signal(Signal::STOP);
        }
        pause(FORGOTTEN);
        van.signal(Signal::CONT);
        // What comes next has another port.
        let since = monotonic();
        net.ping("10.77.0.2");
        let took = monotonic() - since;
        println!("{office}: the first answer after {took:.2?}");
        assert!(took < AGAIN + starved.excuses(), "{office}: the first answer after {took:?}");
        eventually("the office sees another port", || (seen() != before).then_some(()));
        timeouts(60);
        net.ping("10.77.0.2");
    }
}

/// What takes the interface away, and then keeps a new one from being made.
const TAKEN: [&str; 2] = [
    "ip link delete nawa0; ip link add nawa0 type veth peer name other0",
    "ip link set nawa0 name gone0; ip link add nawa0 type veth peer name other0; ip link delete gone0",
];

#[test]
fn what_is_to_go_through_a_tunnel_that_fails_goes_nowhere_else() {
    let name = "what_is_to_go_through_a_tunnel_that_fails_goes_nowhere_else";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let net = Uplinks::new();
    net.van.ip("route add default via 10.0.1.1");
    net.van.ip("route add default via fd01::1");
    let outside = ["192.0.2.99", "2001:db8:99::1"];
    let [_office, van] = net.start("", "'0.0.0.0/0', '::/0'", &path("l1", ""));
    net.wait_up(&["l1"]);
    let all_in = || outside.iter().all(|to| goes_in(&net.van, to)).then_some(());
    let leads = |to: &str| output(&mut net.van.command("ip", ["route", "get", to])).status.success();
    for taken in TAKEN {
        eventually("all goes in", all_in);
        shell(&net.van, taken);
        let failed = || net.van.status()["failed"][0]["starts_again_in_s"].is_number().then_some(());
        eventually(taken, failed);
        assert!(!outside.iter().any(|to| leads(to)), "{taken}: {}", net.van.ip("rule"));
        assert!(leads("10.0.1.1"), "neighbours stay neighbours");
        for command in
            [&["path", "why", "office"][..], &["path", "show"], &["test", "office"], &["capture", "-"]]
        {
            let said = common::stderr(&output(&mut net.van.nawa(command.iter().copied())));
            assert!(said.contains("the tunnel has failed and starts again in"), "{command:?}: {said}");
        }
        let doctor = common::stdout(&output(&mut net.van.nawa(["doctor"])));
        assert!(doctor.contains("FAIL  tunnel: has failed"), "{doctor}");
        net.van.ip("link delete nawa0");
    }
    eventually("it runs again", all_in);
    // One that has no default route any more holds nothing back.
    shell(&net.van, TAKEN[0]);
    eventually("it fails", || net.van.status()["failed"][0]["starts_again_in_s"].is_number().then_some(()));
    net.van_file("fail-open = true", "'0.0.0.0/0', '::/0'", &path("l1", ""));
    van.signal(Signal::HUP);
    eventually("packets go beside it", || outside.iter().all(|to| leads(to)).then_some(()));
    van.signal(Signal::TERM);
    assert_eq!(van.wait(), Some(0));
    assert_eq!(net.van.ip("rule").lines().count(), 3, "{}", net.van.ip("rule"));
}

/// Nobody is left to hold anything back then.
#[test]
fn what_is_to_go_through_a_tunnel_whose_daemon_is_killed_goes_nowhere_else() {
    let name = "what_is_to_go_through_a_tunnel_whose_daemon_is_killed_goes_nowhere_else";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let net = Uplinks::new();
    net.lead_out();
    let outside = ["192.0.2.99", "2001:db8:99::1"];
    let leads = |to: &str| output(&mut net.van.command("ip", ["route", "get", to])).status.success();
    let start = |tunnel: &str| {
        let file = net.van_file(tunnel, "'0.0.0.0/0', '::/0'", &path("l1", ""));
        Daemon::start(&net.van, &file)
    };
    let held = || ["-4 rule", "-6 rule"].iter().all(|rules| net.van.ip(rules).contains("unreachable"));
    // As systemd-networkd does when it starts.
    let flush = "for f in -4 -6; do ip $f rule flush; ip $f rule add pref 32766 lookup main; \
                 ip $f rule add pref 32767 lookup default; done";
    for meanwhile in ["true", flush] {
        let van = start("");
        assert!(outside.iter().all(|to| goes_in(&net.van, to)));
        shell(&net.van, meanwhile);
        eventually("rules that hold back", || held().then_some(()));
        // Dropping it kills it.
        drop(van);
        assert!(!outside.iter().any(|to| leads(to)), "{}", net.van.ip("rule"));
        assert!(leads("10.0.1.1"), "neighbours stay neighbours");
    }
    let doctor = common::stdout(&output(&mut net.van.nawa(["doctor"])));
    assert!(
        doctor.contains("WARN  leftover: ") && doctor.contains("the default route goes nowhere"),
        "{doctor}"
    );
    drop(start(""));
    // One that cannot start lets nothing out either.
    let wrong = path("l1", "") + "[[flood]]\ninterface = 'nowhere0'\nid = 1\n";
    let file = net.van_file("", "'0.0.0.0/0', '::/0'", &wrong);
    let failed = output(&mut net.van.nawa(["run", file.to_str().expect("UTF-8")]));
    assert_eq!(failed.status.code(), Some(1), "{}", common::stderr(&failed));
    assert!(!outside.iter().any(|to| leads(to)), "{}", net.van.ip("rule"));
    // Without a daemon there is nothing to stop, but something to clear away.
    assert_eq!(output(&mut net.van.nawa(["down"])).status.code(), Some(3));
    assert!(outside.iter().all(|to| leads(to)), "{}", net.van.ip("rule"));
    drop(start("fail-open = true"));
    assert!(outside.iter().all(|to| leads(to)), "the file says so: {}", net.van.ip("rule"));
}

/// Moved away with its descriptor, the interface would take what it is given there.
#[test]
fn an_interface_that_is_moved_away_is_made_again() {
    let Some(_alone) = namespaces_or_skip("an_interface_that_is_moved_away_is_made_again") else { return };
    let net = Uplinks::new();
    net.van.ip("route add default via 10.0.1.1");
    let _daemons = net.start("", OFFICE, &path("l1", ""));
    net.wait_up(&["l1"]);
    net.van.ip(&format!("link set nawa0 netns {}", net.core.name()));
    eventually("it is here again", || goes_in(&net.van, "10.77.0.2").then_some(()));
    net.wait_up(&["l1"]);
    net.ping("10.77.0.2");
    assert!(!net.core.has_interface("nawa0"));
    // Its MTU is what the paths carry, whoever else sets it.
    let mtu = || net.van.ip("-o link show nawa0").split_whitespace().nth(4).map(str::to_owned);
    let before = eventually("it is found", || mtu().filter(|mtu| mtu != "1280"));
    for other in ["9000", "576"] {
        net.van.ip(&format!("link set nawa0 mtu {other}"));
        eventually("it is set back", || (mtu().as_ref() == Some(&before)).then_some(()));
    }
    // With less than 1280 the kernel takes IPv6 away (RFC 8200 §5): addresses and routes come back after the MTU.
    eventually("IPv6 is there again", || goes_in(&net.van, "fd77::2").then_some(()));
    net.ping("fd77::2");
}

#[test]
fn a_daemon_that_is_killed_while_it_is_stopped_leaves_nothing() {
    let name = "a_daemon_that_is_killed_while_it_is_stopped_leaves_nothing";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let net = Uplinks::new();
    net.van.ip("route add default via 10.0.1.1");
    let van = Daemon::start(&net.van, &net.van_file("", "'0.0.0.0/0'", &path("l1", "")));
    shell(&net.van, TAKEN[0]);
    let held = || net.van.ip("rule").contains("unreachable").then_some(());
    eventually("it has failed, and holds back what is to go through it", held);
    van.signal(Signal::STOP);
    let mut down = net.van.nawa(["down"]).spawn().expect("nawa starts");
    // It asks by then, or finds none.
    succeed(std::process::Command::new("sleep").arg("0.3"));
    van.signal(Signal::KILL);
    assert_eq!(van.wait(), None);
    down.wait().expect("it ends");
    assert_eq!(net.van.ip("rule").lines().count(), 3, "{}", net.van.ip("rule"));
}

/// What `down` says of what it has cleared away.
const CLEARED: &str = "cleared away what one that was killed had left: ";
const FILTER: &str = "a loosened reverse-path filter (net.ipv4.conf.all.rp_filter)";

#[test]
fn a_reverse_path_filter_is_strict_again_behind_a_killed_daemon() {
    let name = "a_reverse_path_filter_is_strict_again_behind_a_killed_daemon";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let net = Uplinks::new();
    let all = "/proc/sys/net/ipv4/conf/all/rp_filter";
    shell(&net.van, &format!("echo 1 >{all}"));
    let filter = || shell(&net.van, &format!("cat {all}")).trim().to_owned();
    net.van.ip("route add default via 10.0.1.1");
    let file = net.van_file("", "'0.0.0.0/0'", &path("l1", ""));
    let start = || {
        let daemon = Daemon::start(&net.van, &file);
        let is_set = || filter() == "2" && net.van.ip("rule").lines().count() > 3;
        eventually("rules into the tunnel, and a loose filter", || is_set().then_some(()));
        daemon
    };
    let cleared = || {
        let down = output(&mut net.van.nawa(["down"]));
        assert_eq!(down.status.code(), Some(3));
        common::stderr(&down)
    };
    // By `down`, and by the next start.
    for again in [false, true] {
        let killed = start();
        killed.signal(Signal::KILL);
        assert_eq!(killed.wait(), None);
        if again {
            let van = Daemon::start(&net.van, &file);
            van.signal(Signal::TERM);
            assert_eq!(van.wait(), Some(0));
        } else {
            let said = cleared();
            assert!(
                said.contains(CLEARED) && said.contains("routing rule") && said.contains(FILTER),
                "{said}"
            );
        }
        assert_eq!(filter(), "1");
    }
    // While packets go beside it, too.
    let killed = Daemon::start(&net.van, &net.van_file("fail-open = true", "'0.0.0.0/0'", &path("l1", "")));
    let rules = |count: usize| (net.van.ip("rule").lines().count() == count).then_some(());
    eventually("the rule into the tunnel is gone", || rules(4));
    killed.signal(Signal::KILL);
    assert_eq!(killed.wait(), None);
    // Another user sees what he cannot put back.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = common::copy_for_anybody(folder.path());
    let mut down = net.van.command("setpriv", ["--reuid", "65534", "--clear-groups", &program, "down"]);
    let nobody = output(&mut down);
    let said = common::stderr(&nobody);
    assert_eq!(nobody.status.code(), Some(1), "{said}");
    assert!(said.contains(FILTER) && said.contains("only root may clear away"), "{said}");
    let doctor = common::stdout(&output(&mut net.van.nawa(["doctor"])));
    assert!(doctor.contains(FILTER), "{doctor}");
    let said = cleared();
    assert!(said.contains(CLEARED) && said.contains(FILTER), "{said}");
    assert_eq!((filter(), rules(3)), ("1".into(), Some(())));
    assert!(!cleared().contains(CLEARED), "that was all");
}
