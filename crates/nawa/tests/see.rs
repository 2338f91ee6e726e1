//! What shows the tunnel at work: `nawa top` on a terminal, `nawa capture`, and the dissector for Wireshark.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use coding::ethernet::{Mac, NC};
use coding::header::{Coded, Greeting, Report};
use common::{
    Daemon, Namespace, Node, PATIENCE, eventually, namespaces_or_skip, output, pause, skip, snapshot, stderr,
    stdout, succeed,
};
use flood::frame::{ETHERTYPE, Format, Header, Kind, Wire};
use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use rustix::process::{Pid, Signal, kill_process};

/// What tells a terminal to leave its other screen, and to show the cursor.
const RESTORED: [&str; 2] = ["\x1b[?1049l", "\x1b[?25h"];

/// How long a reader of a capture may stop: a third of what it is waited for.
const PAUSE: Duration = Duration::from_millis(300);

/// A van and its office, joined by one path, `lte`.
struct Pair {
    van: Namespace,
    _office: Namespace,
    _nodes: [Node; 2],
    _daemons: [Daemon; 2],
}

impl Pair {
    fn new() -> Pair {
        let [van, office] = std::array::from_fn(|_| Namespace::new());
        Namespace::connect((&van, "wan", "10.1.0.1/24"), (&office, "wan", "10.1.0.2/24"));
        let nodes: [Node; 2] = std::array::from_fn(|_| Node::new());
        let [van_key, office_key] = nodes.each_ref().map(|node| node.public_key.as_str());
        let van_file = nodes[0].write(&format!(
            "[tunnel]\ninterface = 'nawa0'\naddresses = ['10.77.0.1/24']\n\
             [[peer]]\nname = 'office'\npublic-key = '{office_key}'\nroutes = ['10.77.0.2/32']\n\
             [[peer.path]]\nname = 'lte'\nremote = '10.1.0.2:51900'\n"
        ));
        let office_file = nodes[1].write(&format!(
            "[tunnel]\ninterface = 'nawa0'\naddresses = ['10.77.0.2/24']\nlisten = 51900\n\
             [[peer]]\nname = 'van'\npublic-key = '{van_key}'\nroutes = ['10.77.0.1/32']\n"
        ));
        let daemons = [Daemon::start(&office, &office_file), Daemon::start(&van, &van_file)];
        let pair = Pair { van, _office: office, _nodes: nodes, _daemons: daemons };
        pair.ping("1");
        pair
    }

    fn ping(&self, count: &str) {
        succeed(&mut self.van.command("ping", ["-c", count, "-i", "0.02", "-w", "30", "10.77.0.2"]));
    }

    /// More than a pipe holds.
    fn floods(&self) {
        let large = ["-c", "60", "-i", "0.02", "-s", "1200", "-w", "30", "10.77.0.2"];
        succeed(&mut self.van.command("ping", large));
    }
}

/// The number of its interface, its comment, its bytes.
type Captured = (usize, String, Vec<u8>);

/// What was captured: names of interfaces, and of each packet its interface, comments and bytes.
fn read(file: &[u8]) -> (Vec<String>, Vec<Captured>) {
    let mut reader = PcapNgReader::new(file).expect("it is pcapng");
    let (mut names, mut packets) = (Vec::new(), Vec::new());
    while let Some(block) = reader.next_block() {
        match block.expect("a whole block") {
            Block::InterfaceDescription(one) => {
                names.extend(one.options.iter().find_map(|option| match option {
                    InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
                    _ => None,
                }));
            }
            Block::EnhancedPacket(one) => {
                let comments = one.options.iter().filter_map(|option| match option {
                    EnhancedPacketOption::Comment(comment) => Some(comment.to_string()),
                    _ => None,
                });
                let comment = comments.collect::<Vec<_>>().join("; ");
                packets.push((one.interface_id as usize, comment, one.data.to_vec()));
            }
            _ => {}
        }
    }
    (names, packets)
}

/// Captures with these arguments while pings go to and fro.
fn capture(pair: &Pair, arguments: &[&str]) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("capture.pcapng");
    let mut all = vec!["capture", file.to_str().expect("UTF-8")];
    all.extend(arguments);
    let running = pair.van.nawa(all).stderr(Stdio::piped()).spawn().expect("nawa starts");
    let running = std::cell::RefCell::new(running);
    eventually("it has captured enough", || {
        pair.ping("3");
        running.borrow_mut().try_wait().expect("it can be waited for")
    });
    let said = running.into_inner().wait_with_output().expect("it has ended");
    assert!(said.status.success(), "{}", stderr(&said));
    assert!(stderr(&said).contains("packets written"), "{}", stderr(&said));
    assert_eq!(fs::metadata(&file).expect("the file").permissions().mode() & 0o777, 0o600);
    fs::read(&file).expect("the file")
}

#[test]
fn inner_and_outer_packets_say_their_path_and_what_decided() {
    let Some(_alone) = namespaces_or_skip("inner_and_outer_packets_say_their_path_and_what_decided") else {
        return;
    };
    let pair = Pair::new();
    let (names, packets) = read(&capture(&pair, &["--count", "20"]));
    assert_eq!(packets.len(), 20);
    assert!(names.contains(&"nawa0".to_owned()) && names.contains(&"office/lte".to_owned()), "{names:?}");
    let of = |name: &str| {
        let at = names.iter().position(|one| one == name).expect(name);
        packets.iter().filter(move |(interface, ..)| *interface == at)
    };
    for (_, comment, packet) in of("nawa0") {
        let ip = packet::Ip::parse(packet).expect("an IP packet");
        let (there, back) = ("to office by lte: order ", "from office by lte: order ");
        let expected = if ip.source().to_string() == "10.77.0.1" { there } else { back };
        assert!(comment.starts_with(expected), "{comment}");
    }
    let comments: Vec<_> = of("nawa0").map(|(_, comment, _)| comment.as_str()).collect();
    assert!(comments.iter().any(|comment| comment.ends_with("; handed on")), "{comments:?}");
    for (_, comment, packet) in of("office/lte") {
        let ip = packet::Ip::parse(packet).expect("an IP packet");
        assert_eq!(ip.protocol(), packet::ip::UDP);
        let ends = [ip.source().to_string(), ip.destination().to_string()];
        // Until the other end is heard, it is the kernel's choice from where it is sent.
        let known = ["10.1.0.1", "10.1.0.2", "0.0.0.0"];
        assert!(ends.iter().all(|end| known.contains(&end.as_str())), "{ends:?}");
        assert!(comment.contains("by lte: packet "), "{comment}");
    }
    let data: Vec<_> = of("office/lte")
        .map(|(_, comment, _)| comment)
        .filter(|one| one.contains(": data, order "))
        .collect();
    assert!(!data.is_empty());

    let (names, packets) =
        read(&capture(&pair, &["--inner", "--peer", "office", "--path", "lte", "--count", "4"]));
    assert_eq!((names, packets.len()), (vec!["nawa0".to_owned()], 4));
    let (names, _) = read(&capture(&pair, &["--outer", "--duration", "200ms"]));
    assert!(!names.contains(&"nawa0".to_owned()), "{names:?}");
}

/// What is captured to standard output ends well by a signal, and when its reader goes.
#[test]
fn a_capture_ends_as_it_is_told() {
    let Some(_alone) = namespaces_or_skip("a_capture_ends_as_it_is_told") else { return };
    let pair = Pair::new();
    let begin = |more: &[&str]| {
        let mut command = pair.van.nawa(["capture", "-"].iter().chain(more).copied());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("nawa starts")
    };
    let start = || begin(&[]);
    let mut child = start();
    let mut out = child.stdout.take().expect("stdout is piped");
    let mut written = vec![0; 4];
    out.read_exact(&mut written).expect("it begins at once");
    // Of the last of them not all may have been handed over when it ends.
    pair.ping("10");
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    out.read_to_end(&mut written).expect("it ends");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    let (_, packets) = read(&written);
    assert!(packets.len() >= 12, "{}", packets.len());

    // Its reader pauses, as one does that draws: it gets all that was there at the end. On a machine that is busy with other things a
    // pause may be longer than it is waited for, but not each time.
    let pauses = |_| {
        let mut child = start();
        let mut out = child.stdout.take().expect("stdout is piped");
        let mut written = vec![0; 4];
        out.read_exact(&mut written).expect("it begins at once");
        pair.floods();
        kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
        pause(PAUSE);
        out.read_to_end(&mut written).expect("it ends");
        let whole = child.wait().expect("it ends").code() == Some(0);
        if whole {
            read(&written);
        }
        whole
    };
    assert!((0..3).any(pauses), "its reader has not had all in each of three tries");

    let mut child = start();
    child.stdout.as_mut().expect("stdout is piped").read_exact(&mut [0; 4]).expect("it begins at once");
    drop(child.stdout.take());
    let status = eventually("it ends with its reader", || {
        pair.ping("1");
        child.try_wait().expect("it can be waited for")
    });
    assert_eq!(status.code(), Some(0));

    // Its reader has stopped: it ends by a signal, and when its time is over, by when the pipe is full.
    for more in [[].as_slice(), &["--duration", "5s"]] {
        let mut child = begin(more);
        child.stdout.as_mut().expect("stdout is piped").read_exact(&mut [0; 4]).expect("it begins at once");
        pair.floods();
        if more.is_empty() {
            kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
        }
        let status = eventually("it ends", || child.try_wait().expect("it can be waited for"));
        assert_eq!(status.code(), Some(1));
        let said = stderr(&child.wait_with_output().expect("it has ended"));
        assert!(said.contains("its reader takes nothing"), "{said}");
    }

    // The daemon goes: what came until then is a whole file.
    let mut child = start();
    let mut out = child.stdout.take().expect("stdout is piped");
    let mut written = vec![0; 4];
    out.read_exact(&mut written).expect("it begins at once");
    pair.ping("1");
    succeed(&mut pair.van.nawa(["down"]));
    out.read_to_end(&mut written).expect("it ends");
    let said = child.wait_with_output().expect("it ends");
    assert_eq!(said.status.code(), Some(1), "{}", stderr(&said));
    assert!(stderr(&said).contains("what came until then is written"), "{}", stderr(&said));
    read(&written);
}

#[test]
fn a_capture_is_refused_with_a_reason() {
    let Some(_alone) = namespaces_or_skip("a_capture_is_refused_with_a_reason") else { return };
    let pair = Pair::new();
    let refused = |arguments: &[&str]| {
        let said = output(&mut pair.van.nawa(arguments.iter().copied()));
        assert_eq!(said.status.code(), Some(1), "{arguments:?}");
        stderr(&said)
    };
    let said = refused(&["capture", "-", "--peer", "home"]);
    assert_eq!(said, "nawa: there is no peer home; there is: office\n");
    let said = refused(&["capture", "-", "--path", "wifi"]);
    assert_eq!(said, "nawa: there is no path wifi to any peer; there is: lte\n");
    let said = refused(&["capture", "/no/such/folder/x"]);
    assert!(said.starts_with("nawa: cannot write to /no/such/folder/x: "), "{said}");
}

/// A program on a terminal, by script(1), which the system has that has a terminal at all.
fn on_a_terminal(namespace: &Namespace, program: &str) -> Command {
    let line = format!("stty rows 24 cols 80; {program}; stty -a");
    let mut command = namespace.command("script", ["-qec", &line, "/dev/null"]);
    command.env("TERM", "xterm").stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

#[test]
fn top_gives_the_terminal_back() {
    let Some(_alone) = namespaces_or_skip("top_gives_the_terminal_back") else { return };
    if Command::new("script").arg("--version").output().is_err() {
        return skip("top_gives_the_terminal_back", "needs script");
    }
    let pair = Pair::new();
    let top = format!("{} top --interval 100ms", env!("CARGO_BIN_EXE_nawa"));
    for end in ["q", "\x03", "SIGTERM"] {
        let mut child = on_a_terminal(&pair.van, &top).spawn().expect("script starts");
        let (mut keys, mut screen) =
            (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let mut shown = Vec::new();
        while !String::from_utf8_lossy(&shown).contains("office") {
            let mut some = [0; 4096];
            let length = screen.read(&mut some).expect("it is shown");
            assert!(length > 0, "{}", String::from_utf8_lossy(&shown));
            shown.extend(&some[..length]);
        }
        match end {
            "SIGTERM" => kill_process(top_inside(&pair.van), Signal::TERM).expect("it runs"),
            key => keys.write_all(key.as_bytes()).expect("it reads"),
        }
        screen.read_to_end(&mut shown).expect("it ends");
        assert!(child.wait().expect("it ends").success());
        let shown = String::from_utf8_lossy(&shown);
        for restored in RESTORED {
            assert!(shown.contains(restored), "{end:?}: {shown}");
        }
        assert!(shown.contains(" icanon") && shown.contains(" echo "), "{end:?}: {shown}");
    }
    // Without a terminal it prints lines.
    let mut lines = pair.van.nawa(["top", "--interval", "100ms"]);
    let mut child = lines.stdout(Stdio::piped()).spawn().expect("nawa starts");
    let mut first = [0; 14];
    child.stdout.as_mut().expect("piped").read_exact(&mut first).expect("it prints");
    assert_eq!(&first, b"after 0.0 s\npe");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    // On one that is dumb, too.
    let mut child = on_a_terminal(&pair.van, &top).env("TERM", "dumb").spawn().expect("script starts");
    let (mut screen, mut shown) = (BufReader::new(child.stdout.take().expect("piped")), String::new());
    while !shown.contains("office") {
        assert!(screen.read_line(&mut shown).expect("it is shown") > 0, "{shown}");
    }
    kill_process(top_inside(&pair.van), Signal::TERM).expect("it runs");
    screen.read_to_string(&mut shown).expect("it ends");
    assert!(child.wait().expect("it ends").success() && !shown.contains('\x1b'), "{shown:?}");
}

/// The process that runs `nawa top`.
fn top_inside(namespace: &Namespace) -> Pid {
    let pids = succeed(Command::new("ip").args(["netns", "pids", namespace.name()]));
    let is_top = |pid: &&str| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(b"top")
    };
    let pid = pids.split_whitespace().find(is_top).and_then(|pid| pid.parse().ok());
    Pid::from_raw(pid.expect("it runs")).expect("a process")
}

/// What tshark says of `file` with the dissector, a line for each packet; `None` skips the test `name`.
fn tshark(name: &str, file: &Path, fields: &[&str]) -> Option<String> {
    if Command::new("tshark").arg("--version").output().is_err() {
        skip(name, "needs tshark");
        return None;
    }
    let dissector = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/nawa.lua");
    let script = format!("lua_script:{}", dissector.display());
    let mut command = Command::new("tshark");
    command.args(["-X", &script, "-n", "-T", "fields", "-E", "separator= ", "-r"]).arg(file);
    command.args(fields.iter().flat_map(|field| ["-e", field]));
    let said = output(&mut command);
    assert!(said.status.success() && !stderr(&said).contains("Lua"), "{}", stderr(&said));
    Some(stdout(&said))
}

#[test]
fn tshark_reads_what_capture_writes() {
    const NAME: &str = "tshark_reads_what_capture_writes";
    let Some(_alone) = namespaces_or_skip(NAME) else { return };
    let pair = Pair::new();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("capture.pcapng");
    fs::write(&file, capture(&pair, &["--count", "40"])).expect("the file");
    let fields = ["frame.interface_name", "_ws.col.Protocol", "nawa.type", "frame.comment"];
    let Some(said) = tshark(NAME, &file, &fields) else { return };
    let lines = |start: &str| said.lines().filter(|line| line.starts_with(start)).collect::<Vec<_>>();
    assert!(lines("nawa0 ICMP  to office by lte: order ").len() > 1, "{said}");
    assert!(lines("nawa0 ICMP  from office by lte: order ").len() > 1, "{said}");
    assert!(lines("office/lte NAWA 4 to office by lte: packet ").len() > 1, "{said}");
    assert!(lines("office/lte NAWA 4 from office by lte: packet ").len() > 1, "{said}");
}

/// Frames that the cores write, behind an Ethernet header.
fn frames() -> Vec<Vec<u8>> {
    let behind = |ethertype: u16, payload: &[u8]| {
        let mut frame = vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1];
        frame.extend(ethertype.to_be_bytes());
        frame.extend(payload);
        frame
    };
    let format = Format::new(Wire::One, Some([7; 16]));
    let flooded = |kind, data: &[u8]| {
        let header = Header { kind, id: 7, epoch: 100, seq: 3, ttl: 9 };
        behind(ETHERTYPE, &format.write(&header, data))
    };
    let coded = |emit: &dyn Fn(&mut Vec<u8>)| {
        let mut payload = Vec::new();
        emit(&mut payload);
        behind(NC, &payload)
    };
    let label = |digest, length| coding::Label { digest, length, tos: 3, hop_limit: 63 };
    let sum = Coded {
        wanted: true,
        number: 2,
        second_receiver: Mac([2, 0, 0, 0, 0, 3]),
        first: label(0x0102_0304, 40),
        second: label(0x0506_0708, 20),
        sum: &[9; 40],
    };
    // A plain packet, as the paper's modes send it: IPv4 with TCP's header alone.
    let mut plain = vec![0x20, 0, 0x12, 0x34, 0, 0, 0, 5, 0xab, 0xcd];
    plain.extend([0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    plain.extend([0x13, 0x88, 0x17, 0x70, 0, 0, 0, 5, 0, 0, 0, 6, 0x50, 0x10, 1, 0, 0xab, 0xcd, 0, 0]);
    let mut padded = flooded(Kind::Data, b"hello");
    padded.resize(60, 0);
    let cut = |mut frame: Vec<u8>, length| {
        frame.truncate(length);
        frame
    };
    vec![
        padded,
        flooded(Kind::EchoRequest, &[0, 0, 0, 9, 1, 2]),
        flooded(Kind::EchoReply, &[0, 0, 0, 9, 1, 2]),
        cut(flooded(Kind::Data, b"hello"), 40),
        coded(&|out| sum.emit(out)),
        coded(&|out| Report { newest: 7, lost: 300, missing: 5, answer: 9 }.emit(out)),
        coded(&|out| Greeting { asks: true, nonce: 5 }.emit(out)),
        behind(NC, &plain),
        cut(coded(&|out| sum.emit(out)), 60),
    ]
}

#[test]
fn tshark_reads_frames_of_coding_and_flood() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("frames.pcap");
    let header = PcapHeader { datalink: DataLink::ETHERNET, ..PcapHeader::default() };
    let mut writer =
        PcapWriter::with_header(fs::File::create(&file).expect("a file"), header).expect("a file");
    for frame in frames() {
        let packet = PcapPacket::new(PATIENCE, frame.len() as u32, &frame);
        writer.write_packet(&packet).expect("it is written");
    }
    drop(writer);
    let fields = [
        "_ws.col.Protocol",
        "_ws.col.Info",
        "nawa_flood.id",
        "nawa_flood.data",
        "nawa_flood.target",
        "nawa_coding.digest",
        "nawa_coding.nonce",
        "tcp.dstport",
        "_ws.expert.message",
    ];
    let Some(said) = tshark("tshark_reads_frames_of_coding_and_flood", &file, &fields) else { return };
    snapshot("tshark-frames", &said);
}

#[test]
fn a_monitor_that_was_stopped_does_not_catch_up() {
    let Some(_alone) = namespaces_or_skip("a_monitor_that_was_stopped_does_not_catch_up") else { return };
    let pair = Pair::new();
    let mut monitor = pair.van.nawa(["monitor", "--json", "--interval", "100ms"]);
    let mut child = monitor.stdout(Stdio::piped()).spawn().expect("nawa starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut next = || {
        let line = lines.next().expect("a round").expect("a line");
        let round: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        round["t_s"].as_f64().expect("its time")
    };
    let signal = |signal| kill_process(Pid::from_child(&child), signal).expect("it runs");
    let mut last = next();
    assert_eq!(last, 0.0);
    signal(Signal::STOP);
    common::pause(Duration::from_secs(1));
    signal(Signal::CONT);
    for _ in 0..10 {
        let time = next();
        assert!(time - last > 0.0999, "{last} s, {time} s");
        last = time;
    }
    signal(Signal::TERM);
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}
