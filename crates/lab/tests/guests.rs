//! A guest is another kernel: it boots, does what it is told, and is gone with whoever booted it.

mod common;

use std::io::Read;
use std::time::Duration;

use common::{alone_with_guests, left_in};
use lab::guest::{self, GuestSpec, Interface};
use lab::namespace::Namespace;

const LIMIT: Duration = Duration::from_secs(30);

fn spec() -> GuestSpec {
    GuestSpec {
        modules: vec!["tcp_vegas alpha=1 beta=3", "sctp"],
        sysctls: vec![
            ("net.ipv4.tcp_congestion_control", "vegas".into()),
            ("net.sctp.cookie_hmac_alg", "none".into()),
        ],
        interfaces: vec![Interface {
            tap: "g0".into(),
            mac: "02:00:00:00:09:02".into(),
            options: None,
            lines: vec!["addr add 10.9.0.2/24 dev vec0".into()],
        }],
        ..GuestSpec::default()
    }
}

/// How many processes are in `host`.
fn processes(host: &Namespace) -> usize {
    let output = std::process::Command::new("ip").args(["netns", "pids", host.name()]).output();
    String::from_utf8_lossy(&output.expect("iproute2").stdout).lines().count()
}

#[test]
fn a_guest_does_what_it_is_told_and_is_gone() {
    let Some(_alone) = alone_with_guests("a_guest_does_what_it_is_told_and_is_gone") else { return };
    let host = Namespace::create("guest").unwrap();
    let booting = guest::boot(&host, &spec()).unwrap();
    host.ip(&["addr add 10.9.0.1/24 dev g0".into()]).unwrap();
    let mut guest = booting.finish().unwrap();

    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rivals/vxlan");
    assert_eq!(guest.run(&format!("cat '{script}'")).unwrap(), include_str!("rivals/vxlan"));
    assert!(guest.run(&format!("touch '{script}'")).is_err(), "this machine's files can only be read");
    let alpha = guest.run("cat /sys/module/tcp_vegas/parameters/alpha").unwrap();
    assert_eq!(alpha, "1\n", "a module's parameters");
    assert_eq!(guest.run("cat /proc/sys/net/ipv4/tcp_congestion_control").unwrap(), "vegas\n");
    assert_eq!(guest.run("env A=b /bin/env | grep ^A").unwrap(), "A=b\n", "this machine's programs");
    let error = guest.run("echo no good; exit 3").unwrap_err().to_string();
    assert!(error.contains("status 3") && error.contains("no good"), "{error}");

    let listener = host.run(|| std::net::TcpListener::bind("10.9.0.1:7000")).unwrap().unwrap();
    let job = guest.start("head -c 300000 /dev/zero | nc 10.9.0.1 7000").unwrap();
    let (mut stream, from) = listener.accept().unwrap();
    assert_eq!(from.ip().to_string(), "10.9.0.2");
    let mut zeros = vec![1; 300_000];
    stream.read_exact(&mut zeros).unwrap();
    drop(stream);
    job.finish(LIMIT).unwrap();
    assert!(zeros.iter().all(|&byte| byte == 0));

    guest.tell("echo told >/run/told").unwrap();
    assert_eq!(guest.run("cat /run/told").unwrap(), "told\n");

    assert!(processes(&host) > 0);
    drop(guest);
    drop(host);
    let folders = ["/run/netns".into(), std::env::temp_dir()];
    for folder in folders.iter().filter_map(|folder| folder.to_str()) {
        assert_eq!(left_in(folder, std::process::id()), Vec::<String>::new());
    }
}

#[test]
fn a_guest_that_cannot_be_set_up_says_why() {
    let Some(_alone) = alone_with_guests("a_guest_that_cannot_be_set_up_says_why") else { return };
    let host = Namespace::create("guest").unwrap();
    let unknown = GuestSpec { modules: vec!["tcp_none"], ..GuestSpec::default() };
    let error = guest::boot(&host, &unknown).unwrap_err().to_string();
    assert!(error.contains("no module `tcp_none`"), "{error}");
    let refused = GuestSpec { sysctls: vec![("net.no.such", "1".into())], ..GuestSpec::default() };
    let error = guest::boot(&host, &refused).unwrap().finish().unwrap_err().to_string();
    assert!(error.contains("net.no.such"), "{error}");
    let small = GuestSpec { memory_mb: Some(16), ..GuestSpec::default() };
    let error = guest::boot(&host, &small).unwrap().finish().unwrap_err().to_string();
    assert!(error.contains("linux.uml"), "{error}");
}
