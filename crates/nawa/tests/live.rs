//! A daemon that is told to change while it runs, by its file and by `nawa path`, and whose links change under it.

mod common;

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use common::traffic::stream;
use common::uplinks::shell;
use common::{
    Daemon, Namespace, Node, eventually, namespaces_or_skip, output, replace, stderr, stdout, succeed,
};
use rustix::process::Signal;
use serde_json::Value;

/// Two ends, joined by the cables `lte` (10.1.0.0/24) and `wifi` (10.2.0.0/24): `van` is .1 and lists paths, `office` is .2.
struct Pair {
    van: Namespace,
    office: Namespace,
    nodes: [Node; 2],
}

/// Somebody's public key.
const HOME: &str = "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=";

/// `[[peer.path]]` over cable `cable`.
fn path(cable: &str) -> String {
    let net = if cable == "lte" { 1 } else { 2 };
    format!("[[peer.path]]\nname = '{cable}'\nlocal = '{cable}'\nremote = '10.{net}.0.2:51900'\n")
}

impl Pair {
    fn new() -> Pair {
        let (van, office) = (Namespace::new(), Namespace::new());
        Namespace::connect((&van, "lte", "10.1.0.1/24"), (&office, "lte", "10.1.0.2/24"));
        Namespace::connect((&van, "wifi", "10.2.0.1/24"), (&office, "wifi", "10.2.0.2/24"));
        Pair { van, office, nodes: [Node::new(), Node::new()] }
    }

    /// The van's file: `tunnel` and `peer` go into those sections, `more` behind them.
    fn van_file(&self, tunnel: &str, peer: &str, more: &str) -> PathBuf {
        let key = &self.nodes[1].public_key;
        self.nodes[0].write(&format!(
            "[tunnel]\ninterface = 'nawa0'\naddresses = ['10.77.0.1/24']\n{tunnel}\n\
             [[peer]]\nname = 'office'\npublic-key = '{key}'\nroutes = ['10.77.0.2/32']\n{peer}\n{more}"
        ))
    }

    fn office_file(&self) -> PathBuf {
        let key = &self.nodes[0].public_key;
        self.nodes[1].write(&format!(
            "[tunnel]\ninterface = 'nawa0'\naddresses = ['10.77.0.2/24']\nlisten = 51900\n\
             [[peer]]\nname = 'van'\npublic-key = '{key}'\nroutes = ['10.77.0.1/32']\n"
        ))
    }

    /// Both daemons, the van's with these paths, and a packet through the tunnel.
    fn start(&self, paths: &str) -> [Daemon; 2] {
        let daemons = [
            Daemon::start(&self.van, &self.van_file("", "", paths)),
            Daemon::start(&self.office, &self.office_file()),
        ];
        self.ping();
        daemons
    }

    #[track_caller]
    fn ping(&self) {
        succeed(&mut self.van.command("ping", ["-c", "1", "-w", "30", "10.77.0.2"]));
    }

    /// The state of the van's paths, as `nawa path show` has it.
    #[track_caller]
    fn states(&self, of: &Namespace) -> Vec<(String, String)> {
        let text = succeed(&mut of.nawa(["path", "show", "--json"]));
        let shown: Value = serde_json::from_str(&text).expect("one JSON object");
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let paths = shown["paths"].as_array().expect("a list").iter();
        paths.map(|path| (text(&path["name"]), text(&path["state"]))).collect()
    }

    #[track_caller]
    fn wait_for(&self, of: &Namespace, wanted: &[(&str, &str)]) {
        let wanted: Vec<_> =
            wanted.iter().map(|(name, state)| (name.to_string(), state.to_string())).collect();
        eventually(&format!("{wanted:?}"), || (self.states(of) == wanted).then_some(()));
    }
}

fn reload(daemon: &mut Daemon) {
    daemon.signal(Signal::HUP);
    let line = daemon.read_until("file");
    assert!(line.contains("the file is taken up"), "{line}");
}

/// Where IPv6 is switched off on new links.
#[test]
fn a_reload_may_bring_the_first_of_ipv6() {
    let Some(_alone) = namespaces_or_skip("a_reload_may_bring_the_first_of_ipv6") else { return };
    let pair = Pair::new();
    shell(&pair.van, "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6");
    let file = pair.van_file("", "", &path("lte"));
    let van = Daemon::start(&pair.van, &file);
    replace(&file, "1/24'", "1/24', 'fd77::1/64'");
    van.signal(Signal::HUP);
    let address = || pair.van.ip("-6 address show dev nawa0").contains("fd77::1/64").then_some(());
    eventually("an address", address);
}

#[test]
fn a_stream_goes_on_through_reloads() {
    let Some(_alone) = namespaces_or_skip("a_stream_goes_on_through_reloads") else { return };
    let pair = Pair::new();
    let [mut van, mut office] = pair.start(&path("lte"));
    stream(&pair.van, &pair.office, |progress| {
        progress();
        reload(&mut office);
        pair.van_file("", "", &(path("lte") + &path("wifi")));
        reload(&mut van);
        pair.wait_for(&pair.van, &[("lte", "up"), ("wifi", "up")]);
        progress();
        pair.van_file("", "keepalive = '5s'", &path("wifi"));
        reload(&mut van);
        progress();
        pair.van_file("mtu = 1300\nscheduler = 'paper'", "", &path("wifi"));
        reload(&mut van);
        progress();
        pair.van_file("", "", &path("lte"));
        reload(&mut van);
        progress();
    });
    pair.wait_for(&pair.van, &[("lte", "up")]);
}

/// A package that is upgraded stops the old daemon and starts the new one, on either end.
#[test]
fn a_stream_goes_on_through_an_upgrade() {
    let Some(_alone) = namespaces_or_skip("a_stream_goes_on_through_an_upgrade") else { return };
    let pair = Pair::new();
    let paths = path("lte") + &path("wifi");
    let [van, office] = pair.start(&paths);
    let ends = [(van, &pair.van, pair.van_file("", "", &paths)), (office, &pair.office, pair.office_file())];
    let mut running = Vec::new();
    stream(&pair.van, &pair.office, |progress| {
        progress();
        for (mut daemon, host, file) in ends {
            for signal in [Signal::TERM, Signal::KILL] {
                daemon.signal(signal);
                daemon.wait();
                daemon = Daemon::start(host, &file);
                progress();
            }
            running.push(daemon);
        }
    });
}

#[test]
fn a_stream_goes_on_while_paths_are_changed() {
    let Some(_alone) = namespaces_or_skip("a_stream_goes_on_while_paths_are_changed") else { return };
    let pair = Pair::new();
    let _daemons = pair.start(&path("lte"));
    let nawa = |arguments: &[&str]| succeed(&mut pair.van.nawa(arguments.iter().copied()));
    stream(&pair.van, &pair.office, |progress| {
        progress();
        nawa(&["path", "add", "office", "wifi", "--remote", "10.2.0.2:51900", "--local", "wifi"]);
        pair.wait_for(&pair.van, &[("lte", "up"), ("wifi", "up")]);
        pair.wait_for(&pair.office, &[("lte", "up"), ("wifi", "up")]);
        progress();
        nawa(&["path", "set", "office", "lte", "--backup", "true"]);
        assert!(nawa(&["path", "show", "office", "lte"]).contains("up, backup"));
        progress();
        nawa(&["path", "set", "office", "lte", "--backup", "false", "--prefer", "3", "--metered", "true"]);
        assert!(nawa(&["path", "show", "office", "lte"]).contains("up, prefer 3, metered"));
        progress();
        nawa(&["path", "del", "office", "lte"]);
        pair.wait_for(&pair.van, &[("wifi", "up")]);
        pair.wait_for(&pair.office, &[("wifi", "up")]);
        progress();
        // The same path over the other cable.
        nawa(&["path", "set", "office", "wifi", "--remote", "10.1.0.2:51900", "--local", "10.1.0.1"]);
        pair.van.ip("link set wifi down");
        progress();
    });
    let shown = nawa(&["path", "show", "office", "wifi", "--json"]);
    let shown: Value = serde_json::from_str(&shown).expect("one JSON object");
    let path = &shown["paths"][0];
    assert_eq!((path["remote"].as_str(), path["local"].as_str()), (Some("10.1.0.2:51900"), Some("10.1.0.1")));
}

#[test]
fn copies_begin_and_end_with_a_reload() {
    let Some(_alone) = namespaces_or_skip("copies_begin_and_end_with_a_reload") else { return };
    let pair = Pair::new();
    let both = path("lte") + &path("wifi");
    let [mut van, _office] = pair.start(&both);
    pair.wait_for(&pair.van, &[("lte", "up"), ("wifi", "up")]);
    let peer = |of: &Namespace| {
        let text = succeed(&mut of.nawa(["status", "--json"]));
        let status: Value = serde_json::from_str(&text).expect("one JSON object");
        status["tunnel"]["peers"][0].clone()
    };
    assert_eq!(peer(&pair.van)["bicast"], Value::Null);
    pair.van_file("", "bicast = 'selective'\nresend = false", &both);
    reload(&mut van);
    // It ends when all that was sent has arrived, once and in order, as TCP has it; its beginning and end went twice.
    stream(&pair.van, &pair.office, |progress| {
        progress();
    });
    let counted = eventually("the end of the stream goes twice", || {
        let counted = &peer(&pair.van)["bicast"];
        counted["duplicated_packets"]["end"].is_u64().then(|| counted.clone())
    });
    assert_eq!(peer(&pair.van)["resend"], false);
    assert!(counted["duplicated_packets"]["begin"].as_u64() > Some(0), "{counted}");
    assert!(counted["extra_bytes"].as_u64() > Some(0), "{counted}");
    assert!(peer(&pair.office)["order"]["duplicate_packets"].as_u64() > Some(0), "the copies ended there");
    assert!(succeed(&mut pair.van.nawa(["status"])).contains("\n sent twice: begin "));
    pair.van_file("", "", &both);
    reload(&mut van);
    let peer = peer(&pair.van);
    assert_eq!((&peer["bicast"], &peer["resend"]), (&Value::Null, &Value::Bool(true)));
}

#[test]
fn what_cannot_be_changed_is_refused_in_one_sentence() {
    let Some(_alone) = namespaces_or_skip("what_cannot_be_changed_is_refused_in_one_sentence") else {
        return;
    };
    let pair = Pair::new();
    let _daemons = pair.start(&path("lte"));
    let many: Vec<String> = (0..16).map(|n| format!("p{n}")).collect();
    for name in &many[1..] {
        succeed(&mut pair.van.nawa(["path", "add", "office", name, "--remote", "10.1.0.2:51900"]));
    }
    let add = ["path", "add", "office", "lte", "--remote", "10.1.0.2:51900"];
    for (arguments, said) in [
        (&add[..], "peer office has a path lte already"),
        (&["path", "add", "office", "p0", "--remote", "10.1.0.2:51900"], "more than 16 paths"),
        (&["path", "add", "home", "lte", "--remote", "10.1.0.2:51900"], "there is no peer home"),
        (&["path", "del", "office", "none"], "peer office has no path none"),
        (&["path", "set", "office", "none", "--backup", "true"], "peer office has no path none"),
        (&["path", "set", "office", "lte", "--local", "::1"], "no address of the same family"),
        (&["path", "show", "home"], "there is no peer home"),
        (
            &["peer", "add", "home", "--public-key", HOME, "--route", "10.77.0.1/32"],
            "10.77.0.1 is this node's own",
        ),
        (&["path", "show", "office", "none"], "there is no path none"),
    ] {
        let output = output(&mut pair.van.nawa(arguments.iter().copied()));
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(said), "{arguments:?}: {}", stderr(&output));
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    }
    for name in &many[1..] {
        succeed(&mut pair.van.nawa(["path", "del", "office", name]));
    }
    pair.wait_for(&pair.van, &[("lte", "up")]);
    // The end that learns its paths lists none that could be changed.
    let learned = output(&mut pair.office.nawa(["path", "del", "van", "lte"]));
    assert_eq!(learned.status.code(), Some(1), "{}", stderr(&learned));
}

/// What the van's status says of the last reload, if that was refused.
fn refused(pair: &Pair) -> String {
    let status = output(&mut pair.van.nawa(["status"]));
    let text = String::from_utf8(status.stdout).expect("a table");
    text.split_once("the last reload changed nothing:").map_or(String::new(), |(_, why)| why.to_owned())
}

#[test]
fn a_reload_that_cannot_be_done_changes_nothing() {
    let Some(_alone) = namespaces_or_skip("a_reload_that_cannot_be_done_changes_nothing") else { return };
    let pair = Pair::new();
    let [mut van, _office] = pair.start(&path("lte"));
    pair.van.ip("route add 192.0.2.0/24 dev wifi");
    let before = (pair.van.ip("address show dev nawa0"), pair.van.ip("route"));
    let both = path("lte") + &path("wifi");
    let other = Node::new();
    let good = std::fs::read_to_string(pair.van_file("", "", &both)).expect("the file");
    let file = pair.van_file("", "", "");
    for (from, to, said) in [
        ("'nawa0'", "'nawa1'", "[tunnel] interface cannot change while the daemon runs"),
        ("[tunnel]", "[tunnel]\nlisten = 51999", "[tunnel] listen cannot change while the daemon runs"),
        ("[tunnel]", "[tunnel]\nfwmark = 7", "[tunnel] fwmark cannot change while the daemon runs"),
        (
            "\"key\"",
            &format!("'{}'", other.key().display()),
            "[node] key-file cannot change while the daemon runs",
        ),
        ("[node]", "[node]\nstate-dir = 'elsewhere'", "[node] state-dir cannot change while the daemon runs"),
        (
            "'10.77.0.2/32'",
            "'10.77.0.2/32', '192.0.2.0/24'",
            "the tunnel goes on as it was: cannot route 192.0.2.0/24",
        ),
        ("'10.77.0.2/32'", "'10.77.0.2'", "nawa.toml:10:11: "),
        ("name = 'wifi'", "name = 'lte'", "another path of this peer has this name"),
        ("'lte'\nremote = '10.1.0.2", "'::1'\nremote = '10.1.0.2", "no address of the same family"),
    ] {
        assert!(good.contains(from), "{from}");
        std::fs::write(&file, good.replacen(from, to, 1)).expect("the file");
        van.signal(Signal::HUP);
        let line = van.read_until("ERROR");
        assert!(line.contains(said), "{line}");
        eventually("status says why", || refused(&pair).contains(said).then_some(()));
        assert_eq!((pair.van.ip("address show dev nawa0"), pair.van.ip("route")), before, "{said}");
        pair.wait_for(&pair.van, &[("lte", "up")]);
    }
    // Nobody writes to it.
    std::fs::remove_file(&file).expect("it is there");
    shell(&pair.van, &format!("mkfifo {}", file.display()));
    van.signal(Signal::HUP);
    assert!(van.read_until("ERROR").contains("it is not a regular file"));
    std::fs::remove_file(&file).expect("it is there");
    pair.ping();
    std::fs::write(&file, good).expect("the file");
    reload(&mut van);
    eventually("status says nothing of it", || refused(&pair).is_empty().then_some(()));
    pair.wait_for(&pair.van, &[("lte", "up"), ("wifi", "up")]);
}

#[test]
fn addresses_and_routes_follow_the_file() {
    let Some(_alone) = namespaces_or_skip("addresses_and_routes_follow_the_file") else { return };
    let pair = Pair::new();
    let [mut van, _office] = pair.start(&path("lte"));
    let file = pair.van_file("", "", &path("lte"));
    let text = std::fs::read_to_string(&file).expect("the file");
    let write = |from: &str, to: &str| std::fs::write(&file, text.replacen(from, to, 1)).expect("the file");
    write("'10.77.0.2/32'", "'10.77.0.2/32', '10.99.0.0/16', 'fd99::/64'");
    reload(&mut van);
    assert!(pair.van.ip("route").contains("10.99.0.0/16 dev nawa0"));
    assert!(pair.van.ip("-6 route").contains("fd99::/64 dev nawa0"));
    // Another address of the same prefix: the kernel takes it with the first, and the routes with the last.
    write("'10.77.0.1/24'", "'10.77.0.9/24', 'fd77::9/64'");
    reload(&mut van);
    let (addresses, routes) = (pair.van.ip("address show dev nawa0"), pair.van.ip("route"));
    assert!(addresses.contains("10.77.0.9/24") && addresses.contains("fd77::9/64"), "{addresses}");
    assert!(!addresses.contains("10.77.0.1/24"), "{addresses}");
    assert!(routes.contains("10.77.0.2 dev nawa0") && !routes.contains("10.99.0.0/16"), "{routes}");
    write("", "");
    reload(&mut van);
    pair.ping();
    // Somebody gives it another name: that is shown, and all stays as it is.
    pair.van.ip("link set nawa0 name rope0");
    eventually("the new name is shown", || (pair.van.status()["interface"] == "rope0").then_some(()));
    pair.ping();
}

#[test]
fn strands_come_and_go_with_the_file() {
    let Some(_alone) = namespaces_or_skip("strands_come_and_go_with_the_file") else { return };
    let pair = Pair::new();
    let [mut van, _office] = pair.start(&path("lte"));
    let (key, other) = (&pair.nodes[1].public_key, &pair.nodes[0].public_key);
    pair.van_file("", "", &format!("{}[relay]\nlisten = 51901\nallow = ['{key}']\n", path("lte")));
    reload(&mut van);
    assert!(pair.van.status()["relay"].is_object());
    pair.van_file("", "", &format!("{}[relay]\nlisten = 51902\nallow = ['{key}']\n", path("lte")));
    van.signal(Signal::HUP);
    let line = van.read_until("ERROR");
    assert!(line.contains("[relay] listen cannot change while the daemon runs"), "{line}");
    pair.nodes[0].write(&format!("[relay]\nlisten = 51901\nallow = ['{key}', '{other}']\n"));
    reload(&mut van);
    assert!(pair.van.status()["relay"].is_object() && pair.van.status()["tunnel"].is_null());
    assert!(!pair.van.has_interface("nawa0"));
    let no_tunnel = output(&mut pair.van.nawa(["path", "show"]));
    assert_eq!(no_tunnel.status.code(), Some(1), "{}", stdout(&no_tunnel));
    pair.van_file("", "", &path("lte"));
    reload(&mut van);
    assert!(pair.van.status()["relay"].is_null());
    pair.ping();
}

#[test]
fn systemd_is_told_of_reloads() {
    let Some(_alone) = namespaces_or_skip("systemd_is_told_of_reloads") else { return };
    let pair = Pair::new();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let address = folder.path().join("notify");
    let socket = UnixDatagram::bind(&address).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a time-out");
    let told = || {
        let mut buffer = [0; 256];
        let length = socket.recv(&mut buffer).expect("a message");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let file = pair.van_file("", "", &path("lte"));
    let mut command = pair.van.nawa(["run", file.to_str().expect("UTF-8")]);
    let daemon = Daemon::spawn(command.env("NOTIFY_SOCKET", &address));
    assert_eq!(told(), "READY=1\n");
    for good in [true, false] {
        if !good {
            pair.nodes[0].write("[flight]\n");
        }
        daemon.signal(Signal::HUP);
        let reloading = told();
        let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").map(str::trim_end);
        let since: u128 = since.and_then(|since| since.parse().ok()).expect("since when");
        assert!(since <= device::monotonic().as_micros() && since > 0, "{reloading}");
        assert_eq!(told(), "READY=1\n");
    }
    daemon.signal(Signal::TERM);
    assert_eq!(told(), "STOPPING=1\n");
    assert_eq!(daemon.wait(), Some(0));
}

#[test]
fn monitor_goes_on_until_it_is_interrupted_or_the_daemon_goes() {
    let name = "monitor_goes_on_until_it_is_interrupted_or_the_daemon_goes";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let pair = Pair::new();
    let [van, _office] = pair.start(&path("lte"));
    let monitor = |more: &[&str]| {
        let arguments = ["monitor", "--interval", "100ms"].iter().chain(more).copied();
        let mut command = pair.van.nawa(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("nawa starts")
    };
    let mut child = monitor(&["--json"]);
    let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
    let mut round = || -> Value {
        let line = lines.next().expect("a round").expect("text");
        serde_json::from_str(&line).expect("one JSON object a line")
    };
    let rounds = [round(), round()];
    assert!(rounds[0]["t_s"].as_f64() < rounds[1]["t_s"].as_f64(), "{rounds:?}");
    assert!(
        rounds[0]["paths"][0]["sent_bps"].is_null() && rounds[1]["paths"][0]["sent_bps"].is_f64(),
        "{rounds:?}"
    );
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::INT).expect("it runs");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));

    let mut child = monitor(&[]);
    let mut lines =
        BufReader::new(child.stdout.take().expect("stdout is piped")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("out Mbit/s")) && lines.any(|line| line.contains("out Mbit/s")));
    van.signal(Signal::KILL);
    van.wait();
    lines.for_each(drop);
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!((ended.status.code(), stderr(&ended).lines().count()), (Some(1), 1), "{}", stderr(&ended));
}

#[test]
fn an_uplink_gets_another_address() {
    let Some(_alone) = namespaces_or_skip("an_uplink_gets_another_address") else { return };
    let pair = Pair::new();
    let free = "[[peer.path]]\nname = 'lte'\nremote = '10.1.0.2:51900'\n".to_owned();
    for paths in [path("lte"), free] {
        let _daemons = pair.start(&paths);
        stream(&pair.van, &pair.office, |progress| {
            progress();
            pair.van.ip("address del 10.1.0.1/24 dev lte");
            pair.van.ip("address add 10.1.0.3/24 dev lte");
            progress();
            eventually("the office sees the new address", || {
                let remote = &pair.office.status()["tunnel"]["peers"][0]["paths"][0]["remote"];
                remote.as_str()?.starts_with("10.1.0.3:").then_some(())
            });
        });
        pair.wait_for(&pair.van, &[("lte", "up")]);
        pair.van.ip("address del 10.1.0.3/24 dev lte");
        pair.van.ip("address add 10.1.0.1/24 dev lte");
    }
}

#[test]
fn a_link_goes_down_and_comes_up() {
    let Some(_alone) = namespaces_or_skip("a_link_goes_down_and_comes_up") else { return };
    let pair = Pair::new();
    let _daemons = pair.start(&(path("lte") + &path("wifi")));
    pair.wait_for(&pair.van, &[("lte", "up"), ("wifi", "up")]);
    stream(&pair.van, &pair.office, |progress| {
        for cable in ["lte", "wifi"] {
            progress();
            pair.van.ip(&format!("link set {cable} down"));
            let down = |name| (name, if name == cable { "down" } else { "up" });
            pair.wait_for(&pair.van, &["lte", "wifi"].map(down));
            progress();
            pair.van.ip(&format!("link set {cable} up"));
            pair.wait_for(&pair.van, &[("lte", "up"), ("wifi", "up")]);
        }
    });
}

/// `van` reaches `office` through a relay only:
///
/// ```text
/// van 10.3.0.1 ── 10.3.0.9 relay 10.4.0.9 ── 10.4.0.2 office
/// ```
#[test]
fn a_relay_is_started_anew_and_refuses_whom_it_no_longer_allows() {
    let name = "a_relay_is_started_anew_and_refuses_whom_it_no_longer_allows";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let (pair, relay, node) = (Pair::new(), Namespace::new(), Node::new());
    Namespace::connect((&pair.van, "west", "10.3.0.1/24"), (&relay, "west", "10.3.0.9/24"));
    Namespace::connect((&relay, "east", "10.4.0.9/24"), (&pair.office, "east", "10.4.0.2/24"));
    let allow = |key: &str| node.write(&format!("[relay]\nlisten = 51901\nallow = ['{key}']\n"));
    let [van_key, office_key] = pair.nodes.each_ref().map(|node| node.public_key.as_str());
    let file = allow(van_key);
    let mut daemon = Daemon::start(&relay, &file);
    let _ends = pair.start(&format!(
        "[[peer.path]]\nname = 'relayed'\nremote = '10.4.0.2:51900'\n\
         via = {{ address = '10.3.0.9:51901', public-key = '{}' }}\n",
        node.public_key
    ));
    daemon.signal(Signal::KILL);
    daemon.wait();
    daemon = Daemon::start(&relay, &file);
    pair.ping();
    assert_eq!(relay.status()["relay"]["sessions"].as_array().map(Vec::len), Some(1));

    allow(office_key);
    reload(&mut daemon);
    assert_eq!(relay.status()["relay"]["sessions"].as_array().map(Vec::len), Some(0));
    allow(van_key);
    reload(&mut daemon);
    pair.ping();
}
