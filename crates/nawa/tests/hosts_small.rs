//! Links that carry less than a packet of IPv6 inside: the tunnel is dual-stack, and a packet goes in several datagrams.

mod common;

use common::uplinks::{FAMILIES, Uplinks, limit, path, path_to};
use common::{Daemon, Node, eventually, namespaces_or_skip, replace, succeed};
use rustix::process::Signal;

const OFFICE: &str = "'10.77.0.2/32', 'fd77::2/128'";

fn van_with_routes() -> Uplinks {
    let net = Uplinks::new();
    net.lead_out();
    net
}

#[test]
fn a_tunnel_with_ipv6_inside_works_over_a_link_of_576_bytes() {
    let name = "a_tunnel_with_ipv6_inside_works_over_a_link_of_576_bytes";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let net = van_with_routes();
    net.core.ip("link set eth0 mtu 576");
    net.office.ip("link set eth0 mtu 576");
    let _daemons = net.start("", OFFICE, &path("l1", ""));
    net.wait_why("l1", "it carries packets of 576 bytes, so one of 1280 bytes inside goes in 3 datagrams");
    let one = net.wait_for("l1", "up", |path| path["state"] == "up");
    assert_eq!((&one["cause"], &one["mtu"]), (&"in-pieces".into(), &576.into()));
    let why = succeed(&mut net.van.nawa(["path", "why", "office", "l1"]));
    assert!(why.contains("one of 1280 bytes inside goes in 3 datagrams"), "{why}");
    assert!(net.van.ip("link show nawa0").contains("mtu 1280"));
    net.carries();
}

/// Until then the interface is as small as the link, too small for IPv6.
#[test]
fn a_reload_brings_ipv6_into_a_tunnel_over_a_small_link() {
    let name = "a_reload_brings_ipv6_into_a_tunnel_over_a_small_link";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let net = van_with_routes();
    net.core.ip("link set eth0 mtu 576");
    net.office.ip("link set eth0 mtu 576");
    let file = net.van_file("", "'10.77.0.2/32'", &path("l1", ""));
    replace(&file, ", 'fd77::1/64'", "");
    let (_office, van) = (Daemon::start(&net.office, &net.office_file("")), Daemon::start(&net.van, &file));
    let link = || net.van.ip("link show dev nawa0");
    eventually("the link's size", || (!link().contains("mtu 1280")).then_some(()));
    let before = link();
    net.van.ip("route add unreachable fd99::/64");
    net.van_file("", &format!("{OFFICE}, 'fd99::/64'"), &path("l1", ""));
    van.signal(Signal::HUP);
    eventually("it is refused", || net.van.status()["reload_refused"].is_array().then_some(()));
    assert_eq!(link(), before);
    net.van_file("", OFFICE, &path("l1", ""));
    van.signal(Signal::HUP);
    eventually("it is taken up", || net.van.status()["reload_refused"].is_null().then_some(()));
    net.ping("fd77::2");
    net.carries();
    // What is of IPv6 alone needs no route to the peer.
    net.van_file("", "'10.77.0.2/32'", &path("l1", ""));
    van.signal(Signal::HUP);
    eventually("its route goes", || (!net.van.ip("-6 route").contains("fd77::2 ")).then_some(()));
    eventually("the tunnel takes less", || {
        (net.van.status()["tunnel"]["mtu"].as_u64() < Some(1280)).then_some(())
    });
    assert!(net.van.ip("-6 address show dev nawa0").contains("fd77::1/64"));
}

#[test]
fn a_tunnel_with_ipv6_inside_works_over_ipv6_at_its_least() {
    let name = "a_tunnel_with_ipv6_inside_works_over_ipv6_at_its_least";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let net = van_with_routes();
    net.core.ip("link set eth0 mtu 1280");
    net.office.ip("link set eth0 mtu 1280");
    let _daemons = net.start("", OFFICE, &path_to(FAMILIES[1], "l1", ""));
    net.wait_why("l1", "it carries packets of 1280 bytes, so one of 1280 bytes inside goes in 2 datagrams");
    net.carries();
}

/// The core is a relay, and what is beyond it small.
#[test]
fn a_tunnel_with_ipv6_inside_works_by_a_relay_over_small_links() {
    let name = "a_tunnel_with_ipv6_inside_works_by_a_relay_over_small_links";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let net = van_with_routes();
    let relay = Node::new();
    let van = &net.nodes[0].public_key;
    let file = relay.write(&format!("[relay]\nlisten = 51901\nallow = ['{van}']\n"));
    net.core.ip("link set eth0 mtu 1280");
    net.office.ip("link set eth0 mtu 1280");
    let _relay = Daemon::start(&net.core, &file);
    let key = &relay.public_key;
    let via = |relay: &str| format!("via = {{ address = '{relay}', public-key = '{key}' }}\n");
    let paths =
        path("l1", &via("203.0.113.1:51901")) + &path_to(FAMILIES[1], "l2", &via("[2001:db8::1]:51901"));
    let _daemons = net.start("", OFFICE, &paths);
    for name in ["l1", "l2"] {
        net.wait_why(
            name,
            "it carries packets of 1280 bytes, so one of 1280 bytes inside goes in 2 datagrams",
        );
    }
    net.carries();
}

/// Both carry their part, and the small one all when the other dies.
#[test]
fn a_small_link_is_used_beside_a_normal_one() {
    let Some(_alone) = namespaces_or_skip("a_small_link_is_used_beside_a_normal_one") else { return };
    FAMILIES.into_iter().for_each(small_beside_normal);
}

fn small_beside_normal(office: &str) {
    let net = van_with_routes();
    net.core.ip("link set wan2 mtu 1280");
    net.van.ip("link set wan2 mtu 1280");
    for wan in ["wan1", "wan2"] {
        limit(&net.van, wan, 20);
        limit(&net.core, wan, 20);
    }
    let paths = path_to(office, "l1", "local = 'wan1'") + &path_to(office, "l2", "local = 'wan2'");
    let _daemons = net.start("", OFFICE, &paths);
    net.wait_up(&["l1"]);
    net.wait_why("l2", "it carries packets of 1280 bytes, so one of 1280 bytes inside goes in 2 datagrams");
    net.carries();
    net.wait_used(&["l1", "l2"]);
    net.core.ip("link set wan1 down");
    net.carries();
}
