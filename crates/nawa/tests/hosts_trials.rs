//! What befalls hosts on the way: programs that are stopped and killed, modems that all have the same address.

mod common;

use common::uplinks::{Uplinks, nft, path, shell, wait_for_path};
use common::{Daemon, Namespace, namespaces_or_skip};
use rustix::process::Signal;

const OFFICE: &str = "'10.77.0.2/32', 'fd77::2/128'";

/// The van's host is suspended for so long that the office finds it silent.
#[test]
fn a_daemon_that_was_stopped_goes_on() {
    let Some(_alone) = namespaces_or_skip("a_daemon_that_was_stopped_goes_on") else { return };
    let net = Uplinks::new();
    net.van.ip("route add default via 10.0.1.1");
    let [_office, van] = net.start("", OFFICE, &path("l1", ""));
    net.wait_up(&["l1"]);
    net.ping("10.77.0.2");
    van.signal(Signal::STOP);
    let mut ping = net.office.command("ping", ["-i", "0.2", "-w", "60", "10.77.0.1"]);
    let mut ping = ping.stdout(std::process::Stdio::null()).spawn().expect("ping");
    wait_for_path(&net.office, "l1", "silent", |path| path["state"] == "silent");
    van.signal(Signal::CONT);
    net.ping("10.77.0.2");
    wait_for_path(&net.office, "l1", "up", |path| path["state"] == "up");
    ping.kill().expect("ping ends");
    ping.wait().expect("ping ends");
}

/// Dropping a daemon kills it at once.
#[test]
fn a_killed_end_is_back_when_it_is_started_again() {
    let Some(_alone) = namespaces_or_skip("a_killed_end_is_back_when_it_is_started_again") else { return };
    let net = Uplinks::new();
    net.van.ip("route add default via 10.0.1.1");
    let [office, van] = net.start("", OFFICE, &path("l1", ""));
    net.wait_up(&["l1"]);
    drop(office);
    let office = Daemon::start(&net.office, &net.office_file(""));
    net.ping("10.77.0.2");
    drop(van);
    let _van = Daemon::start(&net.van, &net.van_file("", OFFICE, &path("l1", "")));
    net.ping("10.77.0.2");
    drop(office);
}

/// As modems come from the factory, each with a NAT of its own behind it.
#[test]
fn two_modems_with_one_address_are_both_used() {
    let Some(_alone) = namespaces_or_skip("two_modems_with_one_address_are_both_used") else { return };
    let net = Uplinks::new();
    let modems = [Namespace::new(), Namespace::new()];
    for (number, modem) in (1..).zip(&modems) {
        let (inside, outside) = (format!("usb{number}"), format!("lte{number}"));
        Namespace::connect((&net.van, &inside, "192.168.8.100/24"), (modem, "lan", "192.168.8.1/24"));
        let (here, there) = (format!("10.9.{number}.2/24"), format!("10.9.{number}.1/24"));
        Namespace::connect((modem, "wwan", &here), (&net.core, &outside, &there));
        modem.ip(&format!("route add default via 10.9.{number}.1"));
        shell(modem, "echo 1 >/proc/sys/net/ipv4/ip_forward");
        nft(
            modem,
            "table ip nat { chain out { type nat hook postrouting priority 100; oifname wwan masquerade\n}\n}",
        );
        net.van.ip(&format!("route add default via 192.168.8.1 dev {inside} metric {number}0"));
    }
    let paths = path("l1", "local = 'usb1'") + &path("l2", "local = 'usb2'");
    let _daemons = net.start("", OFFICE, &paths);
    net.wait_up(&["l1", "l2"]);
    for (name, from) in [("l1", "10.9.1.2:"), ("l2", "10.9.2.2:")] {
        let comes_from = |path: &serde_json::Value| {
            path["state"] == "up" && path["remote"].as_str().is_some_and(|remote| remote.starts_with(from))
        };
        wait_for_path(&net.office, name, from, comes_from);
    }
    net.ping("10.77.0.2");
}

/// What a path is given stays in the interface's queue, as with a modem that has hung.
#[test]
fn a_transmit_queue_that_stands_still_holds_nobody_up() {
    let name = "a_transmit_queue_that_stands_still_holds_nobody_up";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let net = Uplinks::new();
    net.van.ip("route add default via 10.0.1.1 metric 10");
    net.van.ip("route add default via 10.0.2.1 metric 20");
    let paths = path("l1", "local = 'wan1'") + &path("l2", "local = 'wan2'");
    let _daemons = net.start("", OFFICE, &paths);
    net.wait_up(&["l1", "l2"]);
    net.ping("10.77.0.2");
    // A byte a second.
    shell(&net.van, "tc qdisc add dev wan1 root tbf rate 8bit burst 2000 limit 100mb");
    let pings = "ping -c 100 -i 0.05 -s 1000 -W 20 10.77.0.2";
    assert!(shell(&net.van, pings).contains(" 100 received"));
    net.wait_for("l1", "silent", |path| path["state"] == "silent");
    shell(&net.van, "tc qdisc del dev wan1 root");
    net.wait_up(&["l1", "l2"]);
    assert!(shell(&net.van, pings).contains(" 100 received"));
}
