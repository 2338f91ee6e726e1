//! `nawa init`, `invite` and `join` as two people type them: both ends come up with the files that were written.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::{Daemon, Namespace, eventually, namespaces_or_skip, nawa, output, stderr, stdout, succeed};

const JOINED_UNTOLD: &str =
    "van has joined; no running tunnel has taken it up: reload the daemon, or start it with `nawa up`\n";

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// A waiting `nawa invite`, killed when dropped, and its string.
struct Inviting(Child, BufReader<std::process::ChildStdout>, String);

impl Inviting {
    fn start(command: &mut Command) -> Inviting {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("nawa starts");
        let mut reader = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut invite = String::new();
        reader.read_line(&mut invite).expect("the invite");
        assert!(invite.starts_with("nawa1-"), "{invite}");
        Inviting(child, reader, invite.trim().to_owned())
    }

    fn finish(mut self) -> (bool, String) {
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.1, &mut rest).expect("the rest");
        (self.0.wait().expect("it ends").success(), rest)
    }
}

impl Drop for Inviting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The van has two cables to the hub, and answers are typed.
#[test]
fn two_ends_come_up_with_what_they_wrote() {
    let Some(_alone) = namespaces_or_skip("two_ends_come_up_with_what_they_wrote") else { return };
    let (hub, van) = (Namespace::new(), Namespace::new());
    Namespace::connect((&van, "wan1", "10.1.0.2/24"), (&hub, "eth1", "10.1.0.1/24"));
    Namespace::connect((&van, "wan2", "10.2.0.2/24"), (&hub, "eth2", "10.2.0.1/24"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (there, here) = (folder.path().join("hub/nawa.toml"), folder.path().join("van/nawa.toml"));

    let mut init = hub.nawa(["init", "--file", text(&there)]);
    let mut init =
        init.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("nawa starts");
    let typed = b"middle\nhub\n10.1.0.1:51900,10.2.0.1:51900\n";
    init.stdin.take().expect("stdin is piped").write_all(typed).expect("nawa reads");
    assert!(init.wait().expect("it ends").success());
    let _hub_daemon = Daemon::start(&hub, &there);
    // Who came by a live edit stays, and keeps its address.
    let boat = "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=";
    succeed(&mut hub.nawa(["peer", "add", "boat", "--public-key", boat, "--route", "10.77.0.2/32"]));

    let inviting = Inviting::start(&mut hub.nawa(["invite", "van", "--file", text(&there)]));
    let other = hub.nawa(["invite", "home", "--file", text(&there)]).output().expect("nawa starts");
    assert_eq!(other.status.code(), Some(1), "two invites at one port: {}", stderr(&other));
    let (invite, file) = (inviting.2.clone(), text(&here));
    let costs = ["--metered", "wan2", "--prefer", "wan2=1", "--monthly-cap", "wan2=30GB"];
    let joined = succeed(van.nawa(["join", &invite, "--file", file]).args(costs));
    assert!(joined.contains("joined over wan1, wan2"), "{joined}");
    assert_eq!(inviting.finish(), (true, "van has joined\n".into()));

    let written = fs::read_to_string(&here).expect("the van's file");
    assert!(written.contains("10.77.0.3/24") && written.contains("remote = \"10.2.0.1:51900\""), "{written}");
    assert!(!written.contains(&invite) && !fs::read_to_string(&there).expect("the hub's").contains(&invite));
    assert!(written.ends_with("metered = true\nprefer = 1\nmonthly-cap = \"30GB\"\n"), "{written}");
    let peers = succeed(&mut hub.nawa(["peer", "show"]));
    assert!(peers.contains("boat") && peers.contains("van"), "{peers}");
    let _van_daemon = Daemon::start(&van, &here);
    for address in ["10.77.0.1", "fd77::1"] {
        succeed(&mut van.command("ping", ["-c", "1", "-w", "30", address]));
    }
    eventually("both paths are up", || {
        let state = van.status();
        let paths = state.pointer("/tunnel/peers/0/paths")?.as_array()?.clone();
        (paths.len() == 2 && paths.iter().all(|path| path["state"] == "up")).then_some(())
    });

    // Used up, nothing is overwritten, and what failed left nothing.
    let again = folder.path().join("again/nawa.toml");
    let refused = output(&mut van.nawa(["join", &invite, "--file", text(&again)]));
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("cannot be reached"), "{}", stderr(&refused));
    assert!(!folder.path().join("again").exists(), "nothing is left");
    let refused = output(&mut van.nawa(["join", &invite, "--file", file]));
    assert_eq!((refused.status.code(), stdout(&refused)), (Some(2), String::new()));
    let named = output(&mut hub.nawa(["invite", "van", "--file", text(&there)]));
    assert_eq!(named.status.code(), Some(2), "{}", stderr(&named));
}

/// A hub's file, and a host that can reach it.
struct Hub {
    hub: Namespace,
    van: Namespace,
    folder: tempfile::TempDir,
    there: std::path::PathBuf,
    place: &'static str,
}

impl Hub {
    fn new() -> Self {
        let (hub, van) = (Namespace::new(), Namespace::new());
        Namespace::connect((&van, "wan1", "10.1.0.2/24"), (&hub, "eth1", "10.1.0.1/24"));
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (there, place) = (folder.path().join("hub/nawa.toml"), "10.1.0.1:51900");
        succeed(&mut hub.nawa(["init", "--role", "hub", "--endpoint", place, "--file", text(&there)]));
        Self { hub, van, folder, there, place }
    }
}

/// A bridge of containers has addresses too, more than an invite names, and sorts before the uplink.
#[test]
fn a_hub_offers_the_addresses_that_others_reach() {
    let Some(_alone) = namespaces_or_skip("a_hub_offers_the_addresses_that_others_reach") else { return };
    let (hub, other) = (Namespace::new(), Namespace::new());
    Namespace::connect((&other, "wan1", "10.1.0.2/24"), (&hub, "eth1", "10.1.0.1/24"));
    Namespace::connect((&other, "inside", "10.2.0.2/24"), (&hub, "docker0", "10.2.0.1/24"));
    (3..12).for_each(|host| drop(hub.ip(&format!("address add 10.2.0.{host}/24 dev docker0"))));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let offered = |name: &str| {
        let file = folder.path().join(name);
        let typed = format!("echo | {} init --role hub --file {}", env!("CARGO_BIN_EXE_nawa"), text(&file));
        succeed(&mut hub.command("sh", ["-c", &typed]));
        let written = fs::read_to_string(&file).expect("the file");
        let endpoints = written.lines().find(|line| line.starts_with("endpoints")).expect("there are some");
        endpoints.to_owned()
    };
    let alone = offered("alone.toml");
    assert!(alone.matches(":51900").count() == 8 && alone.contains("10.1.0.1:51900"), "{alone}");
    hub.ip("route add default via 10.1.0.2");
    assert!(offered("routed.toml").starts_with("endpoints = [\"10.1.0.1:51900\""));
}

/// A hub may be told more addresses than others reach it by.
#[test]
fn paths_lead_to_the_endpoint_that_answers() {
    let Some(_alone) = namespaces_or_skip("paths_lead_to_the_endpoint_that_answers") else { return };
    let Hub { hub, van, folder, .. } = Hub::new();
    // A private network's, say.
    let (there, places) = (folder.path().join("other/nawa.toml"), "10.9.9.9:51900,10.1.0.1:51900");
    succeed(&mut hub.nawa(["init", "--role", "hub", "--endpoint", places, "--file", text(&there)]));
    hub.ip("route add unreachable 10.9.9.9");
    hub.within(|| fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("a sysctl of the namespace"));
    van.ip("route add default via 10.1.0.1");
    let here = folder.path().join("van/nawa.toml");
    let inviting = Inviting::start(&mut hub.nawa(["invite", "van", "--file", text(&there)]));
    succeed(&mut van.nawa(["join", &inviting.2, "--file", text(&here)]));
    let written = fs::read_to_string(&here).expect("the van's file");
    assert!(written.contains("remote = \"10.1.0.1:51900\"") && !written.contains("10.9.9.9"), "{written}");
}

/// The hub has the same link-local address at both cables. The invite names the van's interface; one that names the hub's is refused.
#[test]
fn a_neighbour_joins_by_the_interface_that_the_invite_names() {
    let name = "a_neighbour_joins_by_the_interface_that_the_invite_names";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let (hub, van) = (Namespace::new(), Namespace::new());
    for cable in [1, 2] {
        let (near, far) = (format!("wan{cable}"), format!("eth{cable}"));
        let [mine, theirs] = [2, 1].map(|host| format!("10.{cable}.0.{host}/24"));
        Namespace::connect((&van, &near, &mine), (&hub, &far, &theirs));
        van.ip(&format!("address add fe80::a/64 dev {near} nodad"));
        hub.ip(&format!("address add fe80::b/64 dev {far} nodad"));
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (there, here) = (folder.path().join("hub/nawa.toml"), folder.path().join("van/nawa.toml"));
    succeed(&mut hub.nawa(["init", "--role", "hub", "--endpoint", "10.1.0.1:51900", "--file", text(&there)]));
    let invite = |endpoint: &str| {
        Inviting::start(&mut hub.nawa(["invite", "van", "--endpoint", endpoint, "--file", text(&there)]))
    };
    let wrong = invite("[fe80::b%eth2]:51900");
    let refused = output(&mut van.nawa(["join", &wrong.2, "--file", text(&here)]));
    let why =
        "[fe80::b%eth2]:51900 is a neighbour by the interface eth2, and this host has none of that name";
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    assert!(stderr(&refused).contains(why), "{}", stderr(&refused));
    assert!(!here.parent().expect("a folder").exists(), "nothing is left");
    drop(wrong);
    let inviting = invite("[fe80::b%wan2]:51900");
    let joined = succeed(&mut van.nawa(["join", &inviting.2, "--file", text(&here)]));
    assert!(joined.contains("joined over wan2;"), "{joined}");
    assert_eq!(inviting.finish(), (true, JOINED_UNTOLD.into()));
    let written = fs::read_to_string(&here).expect("the van's file");
    let (local, remote) = ("local = \"wan2\"", "remote = \"[fe80::b%wan2]:51900\"");
    // The bare name may be a part of the key.
    let other = written.contains("\"wan1") || written.contains("%wan1");
    assert!(written.contains(local) && written.contains(remote) && !other, "{written}");
    let _daemons = [Daemon::start(&hub, &there), Daemon::start(&van, &here)];
    succeed(&mut van.command("ping", ["-c", "1", "-w", "30", "10.77.0.1"]));
}

/// Who connects, and says nothing, keeps nobody out.
#[test]
fn silent_callers_keep_nobody_from_joining() {
    let Some(_alone) = namespaces_or_skip("silent_callers_keep_nobody_from_joining") else { return };
    let Hub { hub, van, folder, there, place } = Hub::new();
    let here = folder.path().join("van/nawa.toml");
    let inviting = Inviting::start(&mut hub.nawa(["invite", "van", "--file", text(&there)]));
    let connect = || std::net::TcpStream::connect(place).expect("it listens");
    let silent: Vec<_> = van.within(|| (0..40).map(|_| connect()).collect());
    succeed(&mut van.nawa(["join", &inviting.2, "--file", text(&here)]));
    assert_eq!(inviting.finish(), (true, JOINED_UNTOLD.into()));
    drop(silent);
}

/// Who is interrupted while the inviter is called, or asked at a terminal what an uplink costs, has written nothing.
#[test]
fn an_interrupted_join_leaves_nothing() {
    let Some(_alone) = namespaces_or_skip("an_interrupted_join_leaves_nothing") else { return };
    let Hub { hub, van, folder, there, place } = Hub::new();
    let here = folder.path().join("van/nawa.toml");
    let invite = Inviting::start(&mut hub.nawa(["invite", "van", "--file", text(&there)])).2.clone();
    // It waits no longer: somebody else takes calls at its port, and says nothing.
    let mute = hub.within(|| std::net::TcpListener::bind(place)).expect("a socket");
    let mut join = van.nawa(["join", &invite, "--file", text(&here)]);
    let mut join = join.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("nawa starts");
    let _called = mute.accept().expect("a call");
    rustix::process::kill_process(rustix::process::Pid::from_child(&join), rustix::process::Signal::INT)
        .expect("it runs");
    assert!(!join.wait().expect("it ends").success());
    assert!(!here.parent().expect("a folder").exists(), "nothing is left");
    // At a terminal it asks before it calls.
    let line = format!("{} join {invite} --file {}", env!("CARGO_BIN_EXE_nawa"), text(&here));
    let mut asked = van.command("script", ["-qec", &line, "/dev/null"]);
    let mut asked = asked.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script starts");
    let mut shown = BufReader::new(asked.stdout.take().expect("stdout is piped"));
    let mut question = Vec::new();
    shown.read_until(b'?', &mut question).expect("a question");
    let question = String::from_utf8_lossy(&question).into_owned();
    assert!(question.contains("What does wan1 cost?"), "{question}");
    asked.stdin.take().expect("stdin is piped").write_all(&[3]).expect("an interruption");
    asked.wait().expect("it ends");
    assert!(!here.parent().expect("a folder").exists(), "nothing is left");
}

/// Strangers, and who has another secret, neither join nor use the invite up.
#[test]
fn only_the_invited_joins() {
    let Some(_alone) = namespaces_or_skip("only_the_invited_joins") else { return };
    let host = Namespace::new();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [hub, thief, van] = ["hub", "thief", "van"].map(|name| folder.path().join(name).join("nawa.toml"));
    succeed(&mut host.nawa(["init", "--role", "hub", "--endpoint", "127.0.0.1:51900", "--file", text(&hub)]));
    let before = fs::read_to_string(&hub).expect("the hub's file");
    let inviting = Inviting::start(&mut host.nawa(["invite", "van", "--no-qr", "--file", text(&hub)]));
    host.within(|| {
        let mut stranger = std::net::TcpStream::connect("127.0.0.1:51900").expect("it listens");
        stranger.write_all(&[7; 4096]).expect("it takes them");
    });
    let mut forged = inviting.2.clone().into_bytes();
    forged[10] = if forged[10] == b'A' { b'B' } else { b'A' };
    let forged = String::from_utf8(forged).expect("ASCII");
    let refused = output(&mut host.nawa(["join", &forged, "--file", text(&thief)]));
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    assert_eq!(fs::read_to_string(&hub).expect("the hub's file"), before);
    // A terminal has broken it, and nobody ends the input.
    let mut join = host.nawa(["join", "-", "--file", text(&van)]);
    let mut join = join.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("nawa starts");
    let mut typed = join.stdin.take().expect("stdin is piped");
    let (first, rest) = inviting.2.split_at(40);
    write!(typed, "{first}\n{rest}\n").expect("nawa reads");
    assert!(join.wait().expect("it ends").success());
    drop(typed);
    assert_eq!(inviting.finish(), (true, JOINED_UNTOLD.into()));
}

#[test]
fn an_invite_ends_with_its_time() {
    let Some(_alone) = namespaces_or_skip("an_invite_ends_with_its_time") else { return };
    let host = Namespace::new();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let hub = folder.path().join("nawa.toml");
    succeed(&mut host.nawa(["init", "--role", "hub", "--endpoint", "127.0.0.1:51900", "--file", text(&hub)]));
    let over = output(&mut host.nawa(["invite", "van", "--valid", "1ms", "--file", text(&hub)]));
    assert_eq!(over.status.code(), Some(1));
    assert!(stderr(&over).contains("nobody joined in time"), "{}", stderr(&over));
}

#[test]
fn a_spoke_is_written_by_flags_alone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("nawa.toml");
    let key = "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=";
    let flags = ["--peer", "203.0.113.7:51900", "--peer-key", key, "--uplinks", "wlan0,wwan0"];
    let mut init = nawa(["init", "--role", "spoke", "--file", text(&file)]);
    let said = succeed(init.args(flags));
    assert!(said.contains("routes = [\"10.77.0.2/32\", \"fd77::2/128\"]"), "{said}");
    let written = fs::read_to_string(&file).expect("the file");
    assert!(written.contains("routes = [\"10.77.0.1/32\", \"fd77::1/128\"]"), "{written}");
    assert!(written.contains("local = \"wwan0\"") && written.contains(key), "{written}");
    let asked = output(&mut nawa(["init", "--role", "spoke", "--file", text(&folder.path().join("other"))]));
    assert_eq!(asked.status.code(), Some(2), "{}", stderr(&asked));
    assert!(stderr(&asked).contains("give --peer"), "{}", stderr(&asked));
}

/// Its file is written, and the inviter is about to enrol it.
#[test]
fn who_interrupts_the_end_of_a_join_has_joined() {
    let Some(_alone) = namespaces_or_skip("who_interrupts_the_end_of_a_join_has_joined") else { return };
    let Hub { hub, van, folder, there, .. } = Hub::new();
    let here = folder.path().join("van/nawa.toml");
    let inviting = Inviting::start(&mut hub.nawa(["invite", "van", "--file", text(&there)]));
    // The inviter reads its file again to put the new end there, and waits for who writes.
    let written = fs::read_to_string(&there).expect("the hub's file");
    fs::remove_file(&there).expect("it is there");
    succeed(Command::new("mkfifo").arg(&there));
    let mut join = van.nawa(["join", &inviting.2, "--file", text(&here)]);
    let mut join = join.stdout(Stdio::null()).spawn().expect("nawa starts");
    eventually("its file is written", || here.exists().then_some(()));
    rustix::process::kill_process(rustix::process::Pid::from_child(&join), rustix::process::Signal::INT)
        .expect("it runs");
    fs::write(&there, written).expect("the inviter reads it");
    assert!(join.wait().expect("it ends").success() && here.exists());
    assert_eq!(inviting.finish(), (true, JOINED_UNTOLD.into()));
}
