//! Real programs over an emulated link, and that nothing stays.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use common::{alone, left_in};
use lab::emulator::Emulator;
use lab::fetch::{Request, fetch, race};
use lab::http::HttpServer;
use lab::network::{Network, PathSpec, SERVER, Topology};
use lab::ping::Ping;
use sha2::{Digest, Sha256};

/// One way.
const DELAY_MS: u64 = 5;

fn two_paths() -> Topology {
    Topology::Relayed(["one", "two"].map(|name| PathSpec::plain(name, 20.0, DELAY_MS)).to_vec())
}

fn network() -> Network {
    Network::build(&Emulator::start().unwrap(), &two_paths(), 1).unwrap()
}

/// A folder with the file `file`, and the file's hash.
fn folder(bytes: usize) -> (tempfile::TempDir, [u8; 32]) {
    let folder = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..bytes).map(|index| (index * 7 + index / 251) as u8).collect();
    std::fs::write(folder.path().join("file"), &content).unwrap();
    (folder, Sha256::digest(&content).into())
}

fn serve(network: &Network, folder: &Path) -> HttpServer {
    HttpServer::start(&network.server, false, "cubic", SocketAddr::new(SERVER, 80), folder).unwrap()
}

fn request(source: IpAddr) -> Request {
    Request { server: SERVER, file: "file".into(), source: Some(source) }
}

#[test]
fn a_file_crosses_each_path_and_nothing_remains() {
    let Some(_alone) = alone("a_file_crosses_each_path_and_nothing_remains") else { return };
    let (folder, hash) = folder(300_000);
    {
        let network = network();
        let _server = serve(&network, folder.path());
        for path in 0..2 {
            network.restart_links();
            let transfer = fetch(&network.client, &[], &request(network.client_address(path))).unwrap();
            assert_eq!((transfer.bytes, transfer.sha256), (300_000, hash));
            let stats = network.stats().unwrap();
            assert!(stats[path][1].delivered.bytes.get() > 300_000, "the bound path carried it");
            assert!(stats[1 - path][1].delivered.bytes.get() < 1000, "and no other");
        }
    }
    assert_eq!(left_in("/run/netns", std::process::id()), Vec::<String>::new());
}

/// The congestion controls of the connections that the server has accepted.
fn controls(network: &Network) -> Vec<String> {
    let words = ["-tinHO", "state", "established", "sport", "=", ":80"];
    let shown = lab::program::output(&network.server, "ss", &words).unwrap();
    let control =
        |line: &str| line.split_whitespace().find(|word| ["reno", "cubic"].contains(word)).map(str::to_owned);
    shown.lines().filter_map(control).collect()
}

#[test]
fn mptcp_uses_both_paths_by_the_congestion_control_of_the_server() {
    let Some(_alone) = alone("mptcp_uses_both_paths_by_the_congestion_control_of_the_server") else { return };
    let emulator = Emulator::start().unwrap();
    let [network, other] = [1, 2].map(|seed| Network::build(&emulator, &two_paths(), seed).unwrap());
    // Long enough to see both subflows at once.
    let (folder, hash) = folder(32_000_000);
    let means = lab::system::Means { nawa: Path::new("nawa"), folder: folder.path() };
    let ready = lab::system::System::Mptcp.start(&network, &means, 0).unwrap();
    let address = SocketAddr::new(SERVER, 80);
    let _server =
        HttpServer::start(&network.server, ready.multipath, "reno", address, folder.path()).unwrap();
    let request = request(network.client_address(0));
    let mut seen = Vec::new();
    let transfer = std::thread::scope(|scope| {
        let fetching = scope.spawn(|| fetch(&network.client, ready.launcher, &request).unwrap());
        while seen.len() < 2 && !fetching.is_finished() {
            seen = controls(&network);
        }
        fetching.join().unwrap()
    });
    assert_eq!(seen, ["reno", "reno"]);
    assert_eq!((transfer.bytes, transfer.sha256), (32_000_000, hash));
    for [_, down] in network.stats().unwrap() {
        assert!(down.delivered.bytes.get() > 100_000, "both paths carried a part: {down:?}");
    }
    for [_, down] in other.stats().unwrap() {
        assert_eq!(down.delivered.bytes.get(), 0, "the other network is another one");
    }
}

#[test]
fn a_request_that_fails_leaves_the_race_to_the_others() {
    let Some(_alone) = alone("a_request_that_fails_leaves_the_race_to_the_others") else { return };
    let network = network();
    let (folder, hash) = folder(300_000);
    let _server = serve(&network, folder.path());
    let [first, second] = [0, 1].map(|path| request(network.client_address(path)));
    let missing = Request { file: "missing".into(), ..first };
    let run = |requests: &[Request]| race(&network.client, &[], requests, &AtomicU64::new(0));
    let (winner, transfer) = run(&[missing.clone(), second]).unwrap();
    assert_eq!((winner, transfer.sha256), (1, hash));
    let error = run(&[missing.clone(), missing]).unwrap_err();
    assert!(error.to_string().contains("404"), "{error}");
}

#[test]
fn no_answer_is_faster_than_the_links() {
    let Some(_alone) = alone("no_answer_is_faster_than_the_links") else { return };
    let network = network();
    let (folder, _) = folder(2_000_000);
    let _server = serve(&network, folder.path());
    let source = network.client_address(1);
    let ping = Ping::start(&network.client, Some(source), SERVER, Duration::from_millis(100)).unwrap();
    fetch(&network.client, &[], &request(source)).unwrap();
    let times = ping.stop().unwrap();
    assert!(!times.is_empty());
    assert!(times.iter().all(|&time| time >= Duration::from_millis(2 * DELAY_MS)), "{times:?}");
}

#[test]
fn a_transfer_outlives_a_cut() {
    let Some(_alone) = alone("a_transfer_outlives_a_cut") else { return };
    let network = network();
    // More than has come by the time of the cut.
    let (folder, hash) = folder(8_000_000);
    let _server = serve(&network, folder.path());
    let (cut, received) = (Duration::from_millis(500), AtomicU64::new(0));
    let requests = [request(network.client_address(0))];
    let transfer = std::thread::scope(|scope| {
        let fetching = scope.spawn(|| race(&network.client, &[], &requests, &received).unwrap().1);
        while received.load(Relaxed) <= 300_000 && !fetching.is_finished() {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        network.set_up(0, false);
        let began = device::monotonic();
        while device::monotonic() - began < cut {
            std::thread::park_timeout(cut);
        }
        network.set_up(0, true);
        fetching.join().unwrap()
    });
    assert_eq!(transfer.sha256, hash);
    assert!(transfer.longest_stall >= cut, "nothing crosses a cut link");
    assert!(network.stats().unwrap()[0][1].blackout_dropped.frames.get() > 0);
}

/// Sends a datagram from `from`, bound in the client, to `to`, bound in `far`; where it seems to come from, and whether
/// an answer to there comes back.
fn exchange(
    network: &Network,
    from: SocketAddr,
    far: &lab::namespace::Namespace,
    to: SocketAddr,
) -> (SocketAddr, bool) {
    let bound = |address| {
        let socket = UdpSocket::bind(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket
    };
    let near = network.client.run(|| bound(from)).unwrap();
    let far = far.run(|| bound(to)).unwrap();
    near.send_to(b"there", to).unwrap();
    let (_, seen) = far.recv_from(&mut [0; 9]).unwrap();
    far.send_to(b"back", seen).unwrap();
    (seen, near.recv(&mut [0; 9]).is_ok())
}

#[test]
fn a_rebound_client_is_seen_from_another_port_and_not_told() {
    let Some(_alone) = alone("a_rebound_client_is_seen_from_another_port_and_not_told") else { return };
    let network = network();
    let from = |path| SocketAddr::new(network.client_address(path), 51_900);
    let to = |path| SocketAddr::new(network.relay_address(path), 51_901);
    assert_eq!(exchange(&network, from(0), &network.relays[0], to(0)), (from(0), true));
    network.rebind(0).unwrap();
    let (seen, answered) = exchange(&network, from(0), &network.relays[0], to(0));
    assert_eq!(seen.ip(), from(0).ip());
    assert_ne!(seen.port(), 51_900);
    assert!(answered, "what is sent to the new port arrives");
    assert_eq!(
        exchange(&network, from(1), &network.relays[1], to(1)),
        (from(1), true),
        "the other path stays"
    );
    let lost = network.relays[0].run(|| UdpSocket::bind(to(0)).unwrap().send_to(b"back", from(0))).unwrap();
    assert!(lost.is_err(), "what is sent to the old port is dropped");
}

#[test]
fn hosts_are_reached_at_their_new_addresses_only() {
    let Some(_alone) = alone("hosts_are_reached_at_their_new_addresses_only") else { return };
    let network = network();
    network.readdress_client(1).unwrap();
    network.readdress_server().unwrap();
    let (server, second) = (SocketAddr::from(([10, 0, 0, 3], 7)), SocketAddr::from(([10, 2, 1, 101], 7)));
    for from in [SocketAddr::new(network.client_address(0), 7), second] {
        assert_eq!(exchange(&network, from, &network.server, server), (from, true));
    }
    let old = SocketAddr::new(network.client_address(1), 7);
    assert!(network.client.run(|| UdpSocket::bind(old)).unwrap().is_err());
    assert!(network.server.run(|| UdpSocket::bind((SERVER, 7))).unwrap().is_err());
}

/// Not a test by itself: what `a_killed_run_is_cleaned_up_by_the_next` kills.
#[test]
#[ignore = "started by another test"]
fn holds_a_network_until_it_is_killed() {
    let network = network();
    let _ping = Ping::start(&network.client, None, SERVER, Duration::from_millis(100)).unwrap();
    eprintln!("up");
    // Ends without an answer when the parent goes, so that nothing stays if that test fails.
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn a_killed_run_is_cleaned_up_by_the_next() {
    let Some(_alone) = alone("a_killed_run_is_cleaned_up_by_the_next") else { return };
    let mut run = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "holds_a_network_until_it_is_killed"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(run.stderr.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("up")), "the run did not get up");
    assert_eq!(left_in("/run/netns", run.id()).len(), 4, "two hosts, two relays");
    run.kill().unwrap();
    run.wait().unwrap();
    assert!(lab::remove_orphans() >= 4);
    assert_eq!(left_in("/run/netns", run.id()), Vec::<String>::new());
}
