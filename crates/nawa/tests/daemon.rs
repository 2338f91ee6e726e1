//! The daemon in network namespaces: starting, asking, stopping, and what a crash leaves.

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use common::traffic::{Pings, Stop};
use common::uplinks::{Uplinks, path};
use common::{
    Daemon, Namespace, Node, become_nobody, copy_for_anybody, keep_state_beside, namespaces_or_skip, output,
    replace, stderr, stdout, succeed,
};
use device::monotonic;
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};

/// How long another user floods the control socket, and what a command and a ping take at most meanwhile.
const FLOODED: Duration = Duration::from_secs(2);
const USUAL: Duration = Duration::from_secs(2);

/// A tunnel's end whose peer never answers: enough for a daemon to run.
fn lonely() -> (Node, PathBuf) {
    let node = Node::new();
    let file = node.write(
        "[tunnel]\ninterface = 'nawa0'\naddresses = ['10.77.0.1/24']\nlisten = 51900\n\
         [[peer]]\nname = 'office'\npublic-key = '3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08='\n\
         routes = ['10.88.0.0/16']\n",
    );
    (node, file)
}

/// A connection to the daemon's socket, of the namespace that the thread is in.
fn call() -> UnixStream {
    let address = SocketAddr::from_abstract_name("nawa").expect("a name");
    UnixStream::connect_addr(&address).expect("it listens")
}

#[test]
fn without_a_daemon_commands_end_with_3() {
    let Some(_alone) = namespaces_or_skip("without_a_daemon_commands_end_with_3") else { return };
    let namespace = Namespace::new();
    let commands: [&[&str]; 11] = [
        &[],
        &["status"],
        &["status", "--json"],
        &["monitor"],
        &["top"],
        &["capture", "-"],
        &["path", "show"],
        &["path", "add", "office", "lte", "--remote", "192.0.2.1:9"],
        &["path", "set", "office", "lte", "--backup", "true"],
        &["path", "del", "office", "lte"],
        &["down"],
    ];
    for arguments in commands {
        let output = output(&mut namespace.nawa(arguments.iter().copied()));
        assert_eq!(output.status.code(), Some(3), "{arguments:?}");
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    }
}

#[test]
fn up_and_down_leave_nothing() {
    let Some(_alone) = namespaces_or_skip("up_and_down_leave_nothing") else { return };
    let (namespace, (_node, file)) = (Namespace::new(), lonely());
    let file = file.to_str().expect("UTF-8");
    let before = (namespace.ip("-o link"), namespace.ip("route show table all"));
    for _ in 0..2 {
        succeed(&mut namespace.nawa(["up", file]));
        assert!(namespace.has_interface("nawa0"));
        let comm =
            std::fs::read_to_string(format!("/proc/{}/comm", namespace.status()["pid"])).expect("its name");
        assert_eq!(comm, "nawa\n", "`ps` and `pgrep` know it by this name");
        assert!(namespace.ip("route").contains("10.88.0.0/16 dev nawa0"), "{}", namespace.ip("route"));
        let again = output(&mut namespace.nawa(["up", file]));
        assert_eq!(again.status.code(), Some(1));
        assert!(stderr(&again).contains("already up"), "{}", stderr(&again));
        succeed(&mut namespace.nawa(["down"]));
        assert_eq!((namespace.ip("-o link"), namespace.ip("route show table all")), before);
    }
}

#[test]
fn up_has_a_log_also_without_a_journal() {
    let Some(_alone) = namespaces_or_skip("up_has_a_log_also_without_a_journal") else { return };
    let (namespace, (node, file)) = (Namespace::new(), lonely());
    keep_state_beside(&file);
    succeed(&mut namespace.nawa(["up", file.to_str().expect("UTF-8")]));
    let log = namespace.status()["log"].as_str().expect("it is said where").to_owned();
    let table = succeed(&mut namespace.nawa(["status"]));
    assert!(table.lines().next().is_some_and(|line| line.ends_with(&format!("log: {log}"))), "{table}");
    if !std::path::Path::new("/run/systemd/journal/stdout").exists() {
        assert_eq!(log, node.key().with_file_name("state/nawa.log").to_str().expect("UTF-8"));
        // What the daemon says from now on stands there, and at most so much of it.
        std::fs::write(&log, vec![b'x'; 1 << 20]).expect("a full log");
        for name in ["lte", "wifi"] {
            succeed(&mut namespace.nawa(["path", "add", "office", name, "--remote", "192.0.2.1:9"]));
            let said = || std::fs::read_to_string(&log).ok()?.contains(name).then_some(());
            common::eventually("a line of the path", said);
        }
        assert!(std::fs::metadata(&log).expect("the log").len() < 1 << 20);
        assert_eq!(std::fs::metadata(format!("{log}.1")).expect("what was before").len(), 1 << 20);
    }
    succeed(&mut namespace.nawa(["down"]));
}

/// What a daemon warns of before it is ready is in no log.
#[test]
fn up_says_what_is_to_be_minded() {
    let Some(_alone) = namespaces_or_skip("up_says_what_is_to_be_minded") else { return };
    let (namespace, other, (_node, file)) = (Namespace::new(), Namespace::new(), lonely());
    Namespace::connect((&namespace, "lan", "10.77.0.9/24"), (&other, "lan", "10.77.0.2/24"));
    let file = file.to_str().expect("UTF-8");
    let up = |more: &[&str]| {
        let up = output(namespace.nawa(["up", file]).args(more));
        assert!(up.status.success(), "{}", stderr(&up));
        succeed(&mut namespace.nawa(["down"]));
        stderr(&up)
    };
    let said = up(&[]);
    assert!(
        said.contains("packets to that prefix do not go into nawa0") && !said.contains(" INFO "),
        "{said}"
    );
    assert_eq!(up(&["--log-level", "error"]), "");
}

#[test]
fn up_says_why_not() {
    let Some(_alone) = namespaces_or_skip("up_says_why_not") else { return };
    let (namespace, node) = (Namespace::new(), Node::new());
    let file = node.write("[metrics]\n");
    let output = output(&mut namespace.nawa(["up", file.to_str().expect("UTF-8")]));
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("missing key `listen`"), "{}", stderr(&output));
}

/// Each with what is wrong, where, and what to do about it.
#[test]
fn what_is_in_a_tunnels_way_is_named() {
    let Some(_alone) = namespaces_or_skip("what_is_in_a_tunnels_way_is_named") else { return };
    let (namespace, other, (_node, file)) = (Namespace::new(), Namespace::new(), lonely());
    Namespace::connect((&namespace, "lan", "10.88.0.1/16"), (&other, "lan", "10.88.0.2/16"));
    let text = std::fs::read_to_string(&file).expect("the file");
    let why_not = |from: &str, to: &str| {
        std::fs::write(&file, text.replace(from, to)).expect("the file");
        let up = output(&mut namespace.nawa(["up", file.to_str().expect("UTF-8")]));
        assert_eq!(up.status.code(), Some(1));
        stderr(&up)
    };
    assert_eq!(
        why_not("", ""),
        "nawa: cannot route 10.88.0.0/16 into nawa0: lan has a route of that prefix; delete that route, or give the peer \
         narrower routes\n"
    );
    let said = why_not("listen", "congestion-control = 'nope'\nlisten");
    assert!(
        said.contains("with congestion control nope: this kernel has none of that name; write one that"),
        "{said}"
    );
    let said = why_not("51900", "'192.0.2.9:51900'");
    assert!(said.ends_with("; listen on an address that this host has\n"), "{said}");
    let _taken = namespace.within(|| std::net::UdpSocket::bind("10.88.0.1:51900")).expect("the port is free");
    let said = why_not("", "");
    assert!(said.ends_with("; listen on another port, or stop the program that has this one\n"), "{said}");
    assert!(!namespace.has_interface("nawa0"));
}

#[test]
fn a_log_that_cannot_be_written_is_said() {
    let Some(_alone) = namespaces_or_skip("a_log_that_cannot_be_written_is_said") else { return };
    let (namespace, (node, file)) = (Namespace::new(), lonely());
    keep_state_beside(&file);
    let log = node.key().with_file_name("state/nawa.log");
    std::fs::create_dir(log.parent().expect("a folder")).expect("the folder");
    std::os::unix::fs::symlink("/dev/full", &log).expect("a link to a disk that is full");
    succeed(&mut namespace.nawa(["up", file.to_str().expect("UTF-8")]));
    if !std::path::Path::new("/run/systemd/journal/stdout").exists() {
        succeed(&mut namespace.nawa(["path", "add", "office", "lte", "--remote", "192.0.2.1:9"]));
        let why =
            format!("none, for {} cannot be written: No space left on device (os error 28)", log.display());
        common::eventually(&why, || (namespace.status()["log"] == why.as_str()).then_some(()));
        std::fs::remove_file(&log).expect("the link");
    }
    succeed(&mut namespace.nawa(["down"]));
}

/// As over a terminal that is hung up, or into a pipe whose reader has ended.
#[test]
fn a_log_that_nobody_takes_ends_nothing() {
    let Some(_alone) = namespaces_or_skip("a_log_that_nobody_takes_ends_nothing") else { return };
    let (namespace, (_node, file)) = (Namespace::new(), lonely());
    let mut daemon = Daemon::start(&namespace, &file);
    daemon.close_stderr();
    std::fs::write(&file, "nonsense").expect("the file");
    daemon.signal(Signal::HUP);
    common::eventually("the reload is refused", || {
        namespace.status()["reload_refused"].is_array().then_some(())
    });
    succeed(&mut namespace.nawa(["path", "add", "office", "lte", "--remote", "192.0.2.1:9"]));
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait(), Some(0));
}

/// As into a pager that nobody scrolls.
#[test]
fn a_log_whose_reader_stalls_holds_nothing_up() {
    let Some(_alone) = namespaces_or_skip("a_log_whose_reader_stalls_holds_nothing_up") else { return };
    let (namespace, (_node, file)) = (Namespace::new(), lonely());
    let daemon = Daemon::start(&namespace, &file);
    let without_waiting = i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag");
    let mut stderr = File::options()
        .write(true)
        .custom_flags(without_waiting)
        .open(format!("/proc/{}/fd/2", daemon.id()))
        .expect("the other end of the pipe");
    while stderr.write_all(b"x").is_ok() {}
    std::fs::write(&file, "nonsense").expect("the file");
    daemon.signal(Signal::HUP);
    let add = ["path", "add", "office", "lte", "--remote", "192.0.2.1:9"];
    for command in [&add[..], &["status"], &["down"]] {
        let in_time = ["20", env!("CARGO_BIN_EXE_nawa")];
        succeed(&mut namespace.command("timeout", in_time.iter().chain(command).copied()));
    }
    assert_eq!(daemon.wait(), Some(0));
}

/// Nobody waits for ever for a daemon that is stopped or stuck.
#[test]
fn a_daemon_that_does_not_answer_is_named() {
    let Some(_alone) = namespaces_or_skip("a_daemon_that_does_not_answer_is_named") else { return };
    let (namespace, (_node, file)) = (Namespace::new(), lonely());
    let daemon = Daemon::start(&namespace, &file);
    daemon.signal(Signal::STOP);
    let waiting = ["status", "down"].map(|command| {
        let in_time = ["60", env!("CARGO_BIN_EXE_nawa"), command];
        let mut command = namespace.command("timeout", in_time);
        command.stderr(Stdio::piped()).spawn().expect("it starts")
    });
    for waiting in waiting {
        let said = waiting.wait_with_output().expect("it ends");
        assert_eq!(said.status.code(), Some(1));
        let why = format!(
            "nawa: the daemon (process {0}) has not answered for 15 s: it is stopped or stuck; `kill -CONT {0}` lets",
            daemon.id()
        );
        assert!(stderr(&said).starts_with(&why), "{}", stderr(&said));
    }
    daemon.signal(Signal::CONT);
    assert_eq!(daemon.wait(), Some(0), "it has been told to stop");
}

#[test]
fn one_daemon_in_each_namespace() {
    let Some(_alone) = namespaces_or_skip("one_daemon_in_each_namespace") else { return };
    let (namespace, other) = (Namespace::new(), Namespace::new());
    let (_node, file) = lonely();
    let _daemon = Daemon::start(&namespace, &file);
    let second = output(&mut namespace.nawa(["run", file.to_str().expect("UTF-8")]));
    assert_eq!(second.status.code(), Some(1));
    assert!(stderr(&second).starts_with("nawa: another nawa daemon (process "), "{}", stderr(&second));
    let _elsewhere = Daemon::start(&other, &file);
}

/// Callers that take all descriptors there are cost no processor, and fill no log.
#[test]
fn without_descriptors_it_rests() {
    let Some(_alone) = namespaces_or_skip("without_descriptors_it_rests") else { return };
    let (namespace, node) = (Namespace::new(), Node::new());
    let file = node.write(
        "[tunnel]\ninterface = 'nawa0'\naddresses = ['10.77.0.1/24']\nlisten = 51900\n\
         [metrics]\nlisten = '127.0.0.1:9477'\n",
    );
    let few = format!("ulimit -n 64; exec {} run {}", env!("CARGO_BIN_EXE_nawa"), file.display());
    let mut daemon = Daemon::spawn(&mut namespace.command("sh", ["-c", &few]));
    let stat = format!("/proc/{}/stat", daemon.id());
    // Ticks of a processor, user's and system's.
    let used = || {
        let stat = std::fs::read_to_string(&stat).expect("it runs");
        let fields: Vec<_> = stat.rsplit(')').next().expect("a name").split_whitespace().collect();
        fields[11..13].iter().map(|ticks| ticks.parse::<u64>().expect("a number")).sum::<u64>()
    };
    // Anybody's, however many, take none.
    let _others: Vec<_> = namespace.within(|| {
        become_nobody();
        (0..80).map(|_| call()).collect()
    });
    namespace.status();
    let _callers: Vec<_> = namespace.within(|| (0..80).map(|_| call()).collect());
    let _scraper = namespace.within(|| TcpStream::connect("127.0.0.1:9477").expect("it listens"));
    daemon.read_until("cannot answer on the control socket");
    let before = used();
    succeed(std::process::Command::new("sleep").arg("1"));
    // A hundred in a second: those that rest take one or two.
    assert!(used() - before < 25, "{} ticks of a second", used() - before);
    daemon.signal(Signal::TERM);
    let said = daemon.rest().matches("cannot answer").count();
    assert!(said <= 20, "{said} lines");
}

#[test]
fn who_has_too_few_descriptors_is_told_so() {
    let Some(_alone) = namespaces_or_skip("who_has_too_few_descriptors_is_told_so") else { return };
    let (namespace, (_node, file)) = (Namespace::new(), lonely());
    let text = std::fs::read_to_string(&file).expect("the file");
    let key = Node::new().public_key;
    let relay = format!("[relay]\nlisten = 51901\ntls = 443\nallow = ['{key}']\n");
    std::fs::write(&file, text + &relay + "[metrics]\nlisten = '127.0.0.1:9477'\n").expect("the file");
    let few = "ulimit -n $0; exec timeout 5 $1 run $2";
    let program = env!("CARGO_BIN_EXE_nawa");
    // What is opened last needs the most; `timeout` ends one that has enough.
    for limit in (6..200).map(|limit| limit.to_string()) {
        let few = ["-c", few, &limit, program, file.to_str().expect("UTF-8")];
        let ended = output(&mut namespace.command("sh", few));
        if ended.status.code() == Some(124) {
            return;
        }
        let said = stderr(&ended);
        let why = said.lines().last().expect("a sentence");
        assert!(why.contains("(os error 24); see the limits on open files"), "{limit}: {said}");
    }
    panic!("it never starts");
}

#[test]
fn it_has_all_descriptors_that_it_may_have() {
    let Some(_alone) = namespaces_or_skip("it_has_all_descriptors_that_it_may_have") else { return };
    let (namespace, (_node, file)) = (Namespace::new(), lonely());
    let few = format!("ulimit -S -n 48; exec {} run {}", env!("CARGO_BIN_EXE_nawa"), file.display());
    let daemon = Daemon::spawn(&mut namespace.command("sh", ["-c", &few]));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", daemon.id())).expect("it runs");
    let files = limits.lines().find(|line| line.starts_with("Max open files")).expect("a limit");
    let words: Vec<_> = files.split_whitespace().collect();
    assert_eq!(words[3], words[4], "{files}");
}

#[test]
fn only_root_may_ask() {
    let Some(_alone) = namespaces_or_skip("only_root_may_ask") else { return };
    let net = Uplinks::new();
    net.lead_out();
    let _daemons = net.start("", "'10.77.0.2/32'", &path("l1", ""));
    net.wait_up(&["l1"]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let copy = copy_for_anybody(folder.path());
    for command in [&["status"][..], &["down"], &["capture", "-"]] {
        let mut nobody = vec!["--reuid=65534", "--regid=65534", "--clear-groups", &copy];
        nobody.extend(command);
        let output = output(&mut net.van.command("setpriv", nobody));
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(stderr(&output), "nawa: only root may talk to the daemon; use sudo\n");
    }
    // Who calls as fast as he can holds up neither root nor what goes through the tunnel. Other things that the machine is busy with do so
    // now and then.
    assert!((0..3).any(|_| nobody_is_held_up(&net)), "root or the tunnel waits in each of three floods");
}

/// Whether root and the tunnel are answered as usual while another user floods the control socket.
fn nobody_is_held_up(net: &Uplinks) -> bool {
    let done = AtomicBool::new(false);
    let flood = || {
        net.van.within(|| {
            become_nobody();
            let mut calls = 0_u64;
            while !done.load(Relaxed) {
                call();
                calls += 1;
            }
            calls
        })
    };
    std::thread::scope(|scope| {
        let floods = [scope.spawn(flood), scope.spawn(flood)];
        let running = Stop(&done);
        let pings = Pings::start(&net.van, "10.77.0.2");
        let (since, mut longest) = (monotonic(), Duration::ZERO);
        while monotonic() < since + FLOODED {
            let asked = monotonic();
            let in_time = ["20", env!("CARGO_BIN_EXE_nawa"), "status"];
            succeed(&mut net.van.command("timeout", in_time));
            longest = longest.max(monotonic() - asked);
        }
        let answers = pings.end();
        drop(running);
        let calls: u64 = floods.into_iter().map(|flood| flood.join().expect("it ends")).sum();
        println!("{calls} calls: root's answer took {longest:.2?} at most, {answers:?}");
        // Few calls are no flood.
        calls > 1000 && longest < USUAL && answers.longest < USUAL && answers.missing == 0
    })
}

#[test]
fn the_tunnel_has_ipv6_where_the_links_have_none() {
    let Some(_alone) = namespaces_or_skip("the_tunnel_has_ipv6_where_the_links_have_none") else { return };
    let (namespace, (_node, file)) = (Namespace::new(), lonely());
    let off = "for i in all default; do echo 1 >/proc/sys/net/ipv6/conf/$i/disable_ipv6; done";
    common::uplinks::shell(&namespace, off);
    replace(&file, "/24'", "/24', 'fd77::1/64'");
    let _daemon = Daemon::start(&namespace, &file);
    assert!(namespace.ip("address show dev nawa0").contains("fd77::1/64"));
}

#[test]
fn signals_stop_it_cleanly() {
    let Some(_alone) = namespaces_or_skip("signals_stop_it_cleanly") else { return };
    let (namespace, (_node, file)) = (Namespace::new(), lonely());
    for signal in [Signal::INT, Signal::TERM] {
        let daemon = Daemon::start(&namespace, &file);
        assert!(namespace.has_interface("nawa0"));
        daemon.signal(signal);
        assert_eq!(daemon.wait(), Some(0));
        assert!(!namespace.has_interface("nawa0"));
    }
}

#[test]
fn a_crash_leaves_nothing() {
    let Some(_alone) = namespaces_or_skip("a_crash_leaves_nothing") else { return };
    let (namespace, (_node, file)) = (Namespace::new(), lonely());
    let before = (namespace.ip("-o link"), namespace.ip("route show table all"));
    let daemon = Daemon::start(&namespace, &file);
    assert!(namespace.has_interface("nawa0"));
    daemon.signal(Signal::KILL);
    assert_eq!(daemon.wait(), None);
    assert_eq!((namespace.ip("-o link"), namespace.ip("route show table all")), before);
    assert_eq!(output(&mut namespace.nawa(["down"])).status.code(), Some(3));
    drop(Daemon::start(&namespace, &file));
}

/// `van` reaches `office` directly and through a relay that stands on both their networks:
///
/// ```text
/// van 10.1.0.1 ──────────────────────────────── 10.1.0.2 office
/// van 10.2.0.1 ── 10.2.0.9 relay 10.3.0.9 ────── 10.3.0.2 office
/// ```
#[test]
fn two_ends_and_a_relay() {
    let Some(_alone) = namespaces_or_skip("two_ends_and_a_relay") else { return };
    let [van, office, relay] = std::array::from_fn(|_| Namespace::new());
    Namespace::connect((&van, "direct", "10.1.0.1/24"), (&office, "direct", "10.1.0.2/24"));
    Namespace::connect((&van, "relayed", "10.2.0.1/24"), (&relay, "west", "10.2.0.9/24"));
    Namespace::connect((&relay, "east", "10.3.0.9/24"), (&office, "relayed", "10.3.0.2/24"));
    let nodes: [Node; 3] = std::array::from_fn(|_| Node::new());
    let [van_key, office_key, relay_key] = nodes.each_ref().map(|node| node.public_key.as_str());
    let files = [
        nodes[0].write(&format!(
            "[tunnel]\ninterface = 'nawa0'\naddresses = ['10.77.0.1/24', 'fd77::1/64']\n\
             [[peer]]\nname = 'office'\npublic-key = '{office_key}'\nroutes = ['10.77.0.2/32', 'fd77::2/128']\n\
             [[peer.path]]\nname = 'direct'\nlocal = 'direct'\nremote = '10.1.0.2:51900'\n\
             [[peer.path]]\nname = 'relayed'\nlocal = '10.2.0.1'\nremote = '10.3.0.2:51900'\n\
             via = {{ address = '10.2.0.9:51901', public-key = '{relay_key}' }}\n"
        )),
        nodes[1].write(&format!(
            "[tunnel]\ninterface = 'nawa0'\naddresses = ['10.77.0.2/24', 'fd77::2/64']\nlisten = 51900\n\
             [[peer]]\nname = 'van'\npublic-key = '{van_key}'\nroutes = ['10.77.0.1/32', 'fd77::1/128']\n"
        )),
        nodes[2].write(&format!("[relay]\nlisten = 51901\nallow = ['{van_key}']\n")),
    ];
    let [_van, _office, _relay] =
        [(&van, 0), (&office, 1), (&relay, 2)].map(|(at, i)| Daemon::start(at, &files[i]));
    let ping = |from: &Namespace, to: &str| succeed(&mut from.command("ping", ["-c", "1", "-w", "30", to]));
    ping(&van, "10.77.0.2");
    ping(&office, "fd77::1");

    // Each path alone carries the connection.
    van.ip("link set direct down");
    ping(&van, "10.77.0.2");
    van.ip("link set direct up");
    van.ip("link set relayed down");
    ping(&van, "10.77.0.2");

    let state = output(&mut van.nawa(["status", "--json"]));
    let state: serde_json::Value = serde_json::from_str(&stdout(&state)).expect("one JSON object");
    let names = state.pointer("/tunnel/peers/0/paths").and_then(|paths| paths.as_array()).expect("paths");
    let names: Vec<_> = names.iter().filter_map(|path| path["name"].as_str()).collect();
    assert_eq!(names, ["direct", "relayed"]);
    let table = succeed(&mut van.nawa([]));
    assert!(table.contains("office") && table.contains("relayed"), "{table}");
}

#[test]
fn root_of_another_pid_namespace_is_answered() {
    let Some(_alone) = namespaces_or_skip("root_of_another_pid_namespace_is_answered") else { return };
    let (_node, file) = lonely();
    let namespace = Namespace::new();
    let daemon = Daemon::start(&namespace, &file);
    let apart = |command| {
        let arguments = ["--fork", "--pid", "--mount-proc", env!("CARGO_BIN_EXE_nawa"), command];
        namespace.command("unshare", arguments)
    };
    succeed(&mut apart("status"));
    let again = stderr(&output(apart("up").arg(&file)));
    assert!(again.contains("already up (a process outside this pid namespace)"), "{again}");
    succeed(&mut apart("down"));
    assert_eq!(daemon.wait(), Some(0));
}

/// A thread of the daemon that hangs keeps it from ending after it has said that it stops.
#[test]
fn who_stops_a_daemon_that_hangs_is_told() {
    let Some(_alone) = namespaces_or_skip("who_stops_a_daemon_that_hangs_is_told") else { return };
    let namespace = Namespace::new();
    let name = SocketAddr::from_abstract_name("nawa").expect("a name");
    let daemon = namespace.within(|| UnixListener::bind_addr(&name)).expect("it is free");
    let mut down = namespace.command("timeout", ["60", env!("CARGO_BIN_EXE_nawa"), "down"]);
    let mut down = down.stderr(Stdio::piped()).spawn().expect("it starts");
    let mut asking = daemon.accept().expect("it asks").0;
    asking.write_all(b"{\"stopping\":true}\n").expect("it listens");
    let (mut said, stderr) = (String::new(), down.stderr.take().expect("it is piped"));
    BufReader::new(stderr).read_line(&mut said).expect("text");
    kill_process(Pid::from_child(&down), Signal::TERM).expect("it waits");
    down.wait().expect("it ends");
    assert!(said.contains(&format!("`kill -KILL {}` ends it", std::process::id())), "{said}");
}
