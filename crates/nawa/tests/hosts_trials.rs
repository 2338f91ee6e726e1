//! What befalls hosts on the way: programs that are stopped and killed, modems that all have the same address.

mod common;

use std::path::Path;
use std::time::Duration;

use common::rtnl::{self, Rtnl};
use common::traffic::{Pings, Starved, stream};
use common::uplinks::{FAMILIES, Uplinks, limit, nft, path_to, shell, wait_for_path};
use common::{Daemon, Namespace, eventually, namespaces_or_skip, skip, succeed};
use device::monotonic;
use rustix::process::Signal;

const OFFICE: &str = "'10.77.0.2/32', 'fd77::2/128'";
/// A path is up again within a second of its route being there, and what goes over another stops for no longer than that; on a machine
/// that is busy with other things, and beyond what it lets threads wait for:
const BACK: Duration = Duration::from_secs(3);
const GAP: Duration = Duration::from_secs(2);
/// With a keepalive of two seconds, a peer that has forgotten all hears of this end within this.
const KEPT_ALIVE: Duration = Duration::from_secs(10);

/// The van's host is suspended for so long that the office finds it silent.
#[test]
fn a_daemon_that_was_stopped_goes_on() {
    let Some(_alone) = namespaces_or_skip("a_daemon_that_was_stopped_goes_on") else { return };
    FAMILIES.into_iter().for_each(stopped);
}

fn stopped(office: &str) {
    let net = Uplinks::new();
    net.lead_out();
    let [_office, van] = net.start("", OFFICE, &path_to(office, "l1", ""));
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
    for to in FAMILIES {
        let net = Uplinks::new();
        net.lead_out();
        let paths = path_to(to, "l1", "");
        let [office, van] = net.start("", OFFICE, &paths);
        net.wait_up(&["l1"]);
        drop(office);
        let office = Daemon::start(&net.office, &net.office_file(""));
        net.ping("10.77.0.2");
        drop(van);
        let van = Daemon::start(&net.van, &net.van_file("", OFFICE, &paths));
        net.ping("10.77.0.2");
        // An office that is new knows no address of the van: its packets wait for the van's next keepalive.
        drop(van);
        let file = net.van_file("", OFFICE, &format!("keepalive = '2s'\n{paths}"));
        let _van = Daemon::start(&net.van, &file);
        net.wait_up(&["l1"]);
        net.wait_idle("l1");
        drop(office);
        let _office = Daemon::start(&net.office, &net.office_file(""));
        let since = monotonic();
        succeed(&mut net.office.command("ping", ["-c", "1", "-i", "0.2", "-w", "30", "10.77.0.1"]));
        let took = monotonic() - since;
        println!("{to}: the office's first answer comes after {took:.1?}");
        assert!(took < KEPT_ALIVE, "{to}: the office's first answer comes after {took:?}");
    }
}

/// As modems come from the factory, each with a NAT of its own behind it.
#[test]
fn two_modems_with_one_address_are_both_used() {
    let Some(_alone) = namespaces_or_skip("two_modems_with_one_address_are_both_used") else { return };
    two_modems(FAMILIES[0], ["192.168.8.", "10.9.1.", "10.9.2."], "24");
    two_modems(FAMILIES[1], ["fd08::", "fd09:1::", "fd09:2::"], "64 nodad");
}

/// The network between the van and either modem, and those between the modems and the core.
fn two_modems(office: &str, [inside, wide @ ..]: [&str; 3], prefix: &str) {
    let net = Uplinks::new();
    let modems = [Namespace::new(), Namespace::new()];
    for ((number, modem), wide) in (1..).zip(&modems).zip(wide) {
        let (usb, lte) = (format!("usb{number}"), format!("lte{number}"));
        let of = |network: &str, host: u8| format!("{network}{host}/{prefix}");
        Namespace::connect((&net.van, &usb, &of(inside, 100)), (modem, "lan", &of(inside, 1)));
        Namespace::connect((modem, "wwan", &of(wide, 2)), (&net.core, &lte, &of(wide, 1)));
        limit(&net.van, &usb, 20);
        limit(&net.core, &lte, 20);
        modem.ip(&format!("route add default via {wide}1"));
        shell(modem, "echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding");
        nft(
            modem,
            "table inet nat { chain out { type nat hook postrouting priority 100; oifname wwan masquerade\n}\n}",
        );
        net.van.ip(&format!("route add default via {inside}1 dev {usb} metric {number}0"));
    }
    let paths = path_to(office, "l1", "local = 'usb1'") + &path_to(office, "l2", "local = 'usb2'");
    let _daemons = net.start("", OFFICE, &paths);
    net.wait_up(&["l1", "l2"]);
    for (name, from) in ["l1", "l2"].into_iter().zip(wide) {
        let comes_from = |path: &serde_json::Value| {
            let remote = path["remote"].as_str().unwrap_or_default().trim_start_matches('[');
            path["state"] == "up" && remote.starts_with(&format!("{from}2"))
        };
        wait_for_path(&net.office, name, from, comes_from);
    }
    net.carries();
    net.wait_used(&["l1", "l2"]);
}

/// What a path is given stays in the interface's queue, as with a modem that has hung.
#[test]
fn a_transmit_queue_that_stands_still_holds_nobody_up() {
    let name = "a_transmit_queue_that_stands_still_holds_nobody_up";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    FAMILIES.into_iter().for_each(stands_still);
}

fn stands_still(office: &str) {
    let net = Uplinks::new();
    net.lead_out();
    let paths = path_to(office, "l1", "local = 'wan1'") + &path_to(office, "l2", "local = 'wan2'");
    let _daemons = net.start("", OFFICE, &paths);
    net.wait_up(&["l1", "l2"]);
    net.ping("10.77.0.2");
    // A byte a second.
    let stop = || shell(&net.van, "tc qdisc add dev wan1 root tbf rate 8bit burst 2000 limit 100mb");
    let is_silent = || net.wait_for("l1", "silent", |path| path["state"] == "silent");
    let go_on = || {
        shell(&net.van, "tc qdisc del dev wan1 root");
        net.wait_up(&["l1", "l2"]);
    };
    let (starved, pings) = (Starved::new(), Pings::start(&net.van, "10.77.0.2"));
    stop();
    let large = "ping -c 100 -i 0.05 -s 1000 -W 20 10.77.0.2";
    assert!(shell(&net.van, large).contains(" 100 received"));
    is_silent();
    go_on();
    stream(&net.van, &net.office, |progress| {
        progress();
        stop();
        is_silent();
        let took = progress();
        let limit = BACK + starved.excuses();
        assert!(took < limit, "{office}: 400 kB take {took:?} over the other link");
        go_on();
    });
    let longest = pings.end().longest;
    println!("{office}: {longest:.2?} without an answer");
    assert!(longest < GAP + starved.excuses(), "{office}: {longest:?} without an answer");
}

/// Where the van's packets come from after a while, and where answers to it lead, for the office.
const MOVED: [&str; 2] = ["198.51.100.50", "2001:db8:50::50"];

/// Whoever changes interfaces may hold the kernel's lock of them (RTNL) for seconds. Meanwhile the van comes from an address that the
/// office has not seen, and its file is read again.
#[test]
fn data_does_not_wait_for_the_kernels_lock_of_interfaces() {
    let name = "data_does_not_wait_for_the_kernels_lock_of_interfaces";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(holder) = rtnl::compile(folder.path()) else { return skip(name, "needs cc") };
    // Answers leave by the interface that was hit, or no route leads back by it and they leave by another one.
    for office in FAMILIES.into_iter().chain(["198.18.0.7", "[2001:db8:18::7]"]) {
        locked(&holder, office);
    }
}

fn locked(holder: &Path, office: &str) {
    let net = Uplinks::new();
    net.lead_out();
    Namespace::connect((&net.core, "eth1", "198.18.0.1/24"), (&net.office, "eth1", "198.18.0.7/24"));
    net.core.ip("address add 2001:db8:18::1/64 dev eth1 nodad");
    net.office.ip("address add 2001:db8:18::7/64 dev eth1 nodad");
    let paths = path_to(office, "l1", "local = 'wan1'");
    let [_office, van] = net.start("", OFFICE, &paths);
    net.wait_up(&["l1"]);
    let [v4, v6] = MOVED;
    stream(&net.van, &net.office, |progress| {
        progress();
        van.signal(Signal::STOP);
        nft(
            &net.core,
            &format!(
                "table inet moved {{ chain out {{ type filter hook postrouting priority 100;\n\
                 oifname \"eth*\" ip saddr 10.0.1.2 ip saddr set {v4}\n\
                 oifname \"eth*\" ip6 saddr fd01::2 ip6 saddr set {v6}\n}}\n\
                 chain back {{ type filter hook prerouting priority -300;\n\
                 ip daddr {v4} ip daddr set 10.0.1.2\nip6 daddr {v6} ip6 daddr set fd01::2\n}}\n}}"
            ),
        );
        net.van_file("", OFFICE, &(paths.clone() + &path_to(office, "l2", "local = 'wan2'")));
        let rtnl = Rtnl::hold(holder, &net.core);
        van.signal(Signal::CONT);
        van.signal(Signal::HUP);
        for _ in 0..5 {
            progress();
        }
        assert!(rtnl.release(), "{office}: the lock was not held, which shows nothing");
    });
    let moved = |path: &serde_json::Value| {
        let remote = path["remote"].as_str().unwrap_or_default();
        MOVED.iter().any(|address| remote.trim_start_matches('[').starts_with(address))
    };
    wait_for_path(&net.office, "l1", "seen at its new address", moved);
    // What did wait goes on.
    net.wait_up(&["l1", "l2"]);
}

/// What befalls the second uplink, and what makes it well again, each a line of shell in the van or (`core:`) in the core.
const REPLUGGED: [(&str, &str); 7] = [
    ("ip link set wan2 down", "ip link set wan2 up"),
    ("core: ip link set wan2 down", "core: ip link set wan2 up"),
    ("ip route flush dev wan2; ip -6 route flush dev wan2", "ip link set wan2 down; ip link set wan2 up"),
    ("ip link delete wan2", "CABLE"),
    ("ip address flush dev wan2", ""),
    ("ip link set wan2 down; ip link set wan2 name gone2", "ip link property add dev gone2 altname wan2"),
    ("ip link property del dev gone2 altname wan2", "ip link set gone2 down; ip link set gone2 name wan2"),
];

/// A modem is plugged in and out, comes back as another interface, with another address, by another name: its path is used again each
/// time, the other one all the time, and nothing grows. `--nocapture` prints how long each time takes.
#[test]
fn a_modem_that_is_replugged_again_and_again_is_used_each_time() {
    let name = "a_modem_that_is_replugged_again_and_again_is_used_each_time";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    FAMILIES.into_iter().for_each(replugged);
}

fn replugged(office: &str) {
    let net = Uplinks::new();
    net.lead_out();
    let paths = path_to(office, "l1", "local = 'wan1'") + &path_to(office, "l2", "local = 'wan2'");
    let [_office, van] = net.start("", OFFICE, &paths);
    net.wait_up(&["l1", "l2"]);
    // What is used is noticed to be silent.
    let (starved, pings) = (Starved::new(), Pings::start(&net.van, "10.77.0.2"));
    let run = |line: &str| match line.strip_prefix("core: ") {
        Some(line) => drop(shell(&net.core, line)),
        None if line == "CABLE" => {
            Namespace::connect((&net.van, "wan2", "10.0.2.9/24"), (&net.core, "wan2", "10.0.2.1/24"));
        }
        None => drop(shell(&net.van, line)),
    };
    let ids = |of: &Namespace| {
        let paths = of.status()["tunnel"]["peers"][0]["paths"].as_array().expect("paths").clone();
        paths.iter().map(|path| path["id"].clone()).collect::<Vec<_>>()
    };
    let grown = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", van.id())).expect("it runs");
        let line = status.lines().find(|line| line.starts_with("VmRSS")).expect("its memory");
        line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).expect("kB")
    };
    let mut sizes = Vec::new();
    let first = ids(&net.van);
    for round in 2..6 {
        for (broken, mended) in REPLUGGED {
            run(broken);
            let away = net.wait_for("l2", broken, |path| path["state"] != "up");
            run(mended);
            // The addresses are others each time, and come after the interface; the routes come last.
            let wan2 = if net.van.has_interface("wan2") { "wan2" } else { "gone2" };
            let [v4, v6] = [format!("10.0.2.{round}/24"), format!("fd02::{round}/64")];
            for line in [
                "core: ip address replace fd02::1/64 dev wan2 nodad".to_owned(),
                format!(
                    "ip link set {wan2} up; ip address flush dev {wan2} scope global; ip -6 route flush default dev {wan2}"
                ),
                format!("ip address replace {v4} dev {wan2}; ip address replace {v6} dev {wan2} nodad"),
            ] {
                run(&line);
            }
            net.wait_for("l2", "no route", |path| {
                path["why"].as_str().is_some_and(|why| why.contains("route"))
            });
            let since = monotonic();
            net.lead_out();
            net.wait_up(&["l2"]);
            let took = monotonic() - since;
            println!(
                "{office}: {broken}: {} ({}), up {took:.2?} after its route",
                away["state"], away["why"]
            );
            let limit = BACK + starved.excuses();
            assert!(took < limit, "{office}: {broken}: up {took:?} after its route");
            assert_eq!(ids(&net.van), first);
            net.wait_for("l1", "up", |path| path["state"] == "up");
        }
        sizes.push(grown());
    }
    let longest = pings.end().longest;
    println!("{office}: {longest:.2?} without an answer");
    assert!(longest < GAP + starved.excuses(), "{office}: {longest:?} without an answer");
    // Names change places.
    let _used = Pings::start(&net.van, "10.77.0.2");
    shell(
        &net.van,
        "ip link set wan1 down; ip link set wan1 name old; ip link set wan2 down; ip link set wan2 name wan1; ip link set old name wan2",
    );
    eventually("both are away", || {
        let paths = net.van.status()["tunnel"]["peers"][0]["paths"].as_array()?.clone();
        paths.iter().all(|path| path["state"] != "up").then_some(())
    });
    for (wan, of) in [("wan2", 1), ("wan1", 2)] {
        shell(
            &net.van,
            &format!(
                "ip link set {wan} up; ip address replace 10.0.{of}.2/24 dev {wan}; ip address replace fd0{of}::2/64 dev {wan} nodad"
            ),
        );
    }
    net.lead_out();
    net.wait_up(&["l1", "l2"]);
    assert_eq!((ids(&net.van), ids(&net.office).len()), (first, 2));
    println!("{office}: {sizes:?} kB");
    // The allocator may take more in any one round; what leaks does so in each.
    let grows = |two: &[u64]| two[1] > two[0] + 2048 / 3;
    assert!(!sizes.windows(2).all(grows), "{sizes:?} kB");
}
