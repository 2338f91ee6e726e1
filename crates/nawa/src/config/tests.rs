//! Bad files and the exact complaints about them, and the sample, which shows every option.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use flood::node::Mode;
use tunnel::config::{Bicast, Local, Mtu, Scheduler};
use tunnel::daemon::Listen;

use super::{Complaint, Flight, Settings, load, parse, secret};
use crate::config::Base;

mod files;

/// RFC 7748 §6.1: Alice's private key, her public key, Bob's public key.
const ALICE_PRIVATE: &str = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=";
const ALICE: &str = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";
const BOB: &str = "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=";

const NODE: &str = "[node]\nkey-file = 'key'\n";
const TUNNEL: &str = "[tunnel]\ninterface = 'nawa0'\naddresses = ['10.77.0.1/24']\nlisten = 51900\n";

/// A folder with a good key, one that others may read, and one that is none.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, mode, text) in [
        ("key", 0o600, ALICE_PRIVATE),
        ("open", 0o644, ALICE_PRIVATE),
        ("short", 0o600, "AAAA"),
        ("psk", 0o600, BOB),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("a key file");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("its mode");
    }
    folder
}

fn read(folder: &Path, text: &str) -> Result<Settings, Vec<Complaint>> {
    parse(&folder.join("nawa.toml"), text)
}

/// What is said about `text`, a line each, without the folder.
fn complaints(text: &str) -> String {
    let folder = folder();
    let Err(complaints) = read(folder.path(), text) else { return "nothing".into() };
    let prefix = format!("{}/", folder.path().display());
    let lines: Vec<_> =
        complaints.iter().map(|complaint| complaint.to_string().replace(&prefix, "")).collect();
    lines.join("\n")
}

fn peer(more: &str) -> String {
    format!("[[peer]]\nname = 'office'\npublic-key = '{BOB}'\nroutes = ['10.77.0.2/32']\n{more}")
}

fn path(more: &str) -> String {
    format!("[[peer.path]]\nname = 'lte'\nremote = '203.0.113.7:51900'\n{more}")
}

#[test]
fn a_path_has_addresses_of_one_family() {
    let direct = path("local = '2001:db8::2'\n");
    let via = format!("via = {{ address = '[2001:db8::9]:51901', public-key = '{ALICE}' }}\n");
    let relayed = path(&format!("local = '10.0.0.2'\n{via}"));
    for (path, relay) in [(direct, "203.0.113.7"), (relayed, "2001:db8::9")] {
        let bob = peer(&path);
        let what = format!("\"{relay}\" has no address of the same family as `local`; change one of the two");
        assert_complaints(&format!("{NODE}{TUNNEL}{bob}"), &format!("nawa.toml:14:9: {what}"));
    }
}

#[test]
fn files_of_other_names_have_a_state_of_their_own() {
    let folder = folder();
    let state_of = |name: &str| {
        parse(&folder.path().join(name), &format!("{NODE}{TUNNEL}{}", peer(""))).expect("good").state_dir
    };
    assert_eq!(state_of("van.toml"), state_of("nawa.toml").join("van"));
}

#[track_caller]
fn assert_complaints(text: &str, expected: &str) {
    assert_eq!(complaints(text), expected, "about:\n{text}");
}

#[test]
fn a_file_without_an_end_is_none() {
    let lines = load(Path::new("/dev/zero")).expect_err("it has no end").lines;
    assert_eq!(
        lines,
        ["/dev/zero: cannot be read: it is larger than a configuration can be; name a file that can"]
    );
}

#[test]
fn what_is_not_toml() {
    assert_complaints("[node\n", "nawa.toml:1:6: unclosed table, expected `]`");
    assert_complaints(
        "node = 1\nnode = 2\n",
        "nawa.toml:2:1: this stands here a second time; take one out, or, if it is a path, write [[peer.path]] above each",
    );
}

#[test]
fn sections() {
    let missing = "nawa.toml:1:1: there is no [node] section; write one with key-file = \"FILE\"\n\
        nawa.toml:1:1: there is nothing to run; write a [tunnel], [relay], [flight], [bicast], [[coding]] or [[flood]] section";
    assert_complaints("", missing);
    assert_complaints(
        &format!("{NODE}{TUNNEL}[[floot]]\n"),
        "nawa.toml:7:3: unknown section or key `floot`; \
         the sections are [node], [tunnel], [[peer]], [[peer.path]], [relay], [flight], [bicast], [[coding]], [[flood]] \
         and [metrics]",
    );
    assert_complaints(
        &format!("{NODE}{}", peer("")),
        "nawa.toml:1:1: there is nothing to run; write a [tunnel], [relay], [flight], [bicast], [[coding]] or [[flood]] section\n\
         nawa.toml:4:8: a peer needs a [tunnel] section; write one",
    );
    assert_complaints(
        "[[node]]\nkey-file = 'key'\n[[tunnel]]\n[[relay]]\n",
        "nawa.toml:1:1: `node` is no list; write [node], once\n\
         nawa.toml:3:1: `tunnel` is no list; write [tunnel], once\n\
         nawa.toml:4:1: `relay` is no list; write [relay], once",
    );
    assert_complaints(
        "node = 3\npeer = [1]\n",
        "nawa.toml:1:1: there is nothing to run; write a [tunnel], [relay], [flight], [bicast], [[coding]] or [[flood]] section\n\
         nawa.toml:1:8: this is no section; write its name in brackets in a line of its own, and its keys below\n\
         nawa.toml:2:9: this is no section; write its name in brackets in a line of its own, and its keys below",
    );
    assert_complaints(&format!("{NODE}{TUNNEL}[peer]\n"), "nawa.toml:7:1: `peer` is a list; write [[peer]]");
}

#[test]
fn where_metrics_are() {
    assert_complaints(
        &format!("{NODE}{TUNNEL}[metrics]\nlisten = '9477'\n"),
        "nawa.toml:8:10: \"9477\" is not where one can listen; write \"ADDRESS:PORT\", as \"127.0.0.1:9477\"",
    );
}

#[test]
fn what_a_flood_cannot_be() {
    let flood = |more: &str| format!("[[flood]]\ninterface = 'wlan0'\nid = 7\n{more}");
    let settings = read(folder().path(), &flood("")).expect("a good file");
    assert_eq!(settings.floods[0].rules.id, 7);
    for (more, expected) in [
        ("wire = 2\n", "4:8: there is no wire version 2; write 0 (the paper's) or 1"),
        (
            "wire = 0\nkey-file = 'key'\n",
            "5:12: wire version 0 has no room for a tag; remove the key, or write wire = 1",
        ),
        (
            "mode = 'fast'\n",
            "4:8: there is no mode \"fast\"; write \"driver\", \"kernel\" or \"application\"",
        ),
        (
            "mode = 'kernel'\nkey-file = 'key'\n",
            "5:12: nftables cannot check tags; remove the key, or write mode = \"driver\" or \"application\"",
        ),
        (
            "mode = 'kernel'\nsuppress = true\n",
            "5:12: nftables relay at once; remove this, or write mode = \"driver\" or \"application\"",
        ),
        ("ttl = 0\n", "4:7: a TTL of 0 reaches nobody; write 1 to 255"),
        ("rate-limit = 100001\n", "4:14: a rate limit is 1 to 100000 frames per second; 0 is none"),
        ("jitter = '2s'\n", "4:10: \"2s\" is no jitter; write a duration from \"0ms\" to \"1s\""),
        ("repeats = 9\n", "4:11: more than 8 repeats make a storm; write fewer"),
        (
            "[[flood]]\ninterface = 'wlan0'\nid = 300\nwire = 0\n",
            "5:13: another [[flood]] has this interface; an interface floods once\n\
             nawa.toml:6:6: wire version 0 has IDs of 8 bits; write 0 to 255, or wire = 1",
        ),
    ] {
        assert_complaints(&flood(more), &format!("nawa.toml:{expected}"));
    }
}

#[test]
fn what_a_coding_cannot_be() {
    let coding =
        |more: &str| format!("[[coding]]\ninterface = 'mesh0'\nmaster = 'nc0'\naddresses = {more}\n");
    let settings = read(folder().path(), &coding("['10.88.0.2/24']")).expect("a good file");
    let change = &settings.codings[0].change;
    assert_eq!((change.mode, change.wait), (coding::Mode::Any, std::time::Duration::from_millis(10)));
    let settings =
        read(folder().path(), &coding("[]\nmonitor = 'mon0'")).expect("addresses may come by DHCP");
    let coding_settings = &settings.codings[0];
    assert_eq!(
        (coding_settings.monitor.as_deref(), coding_settings.change.addresses.len()),
        (Some("mon0"), 0)
    );
    for (more, expected) in [
        (
            "['10.88.0.2']",
            "4:14: \"10.88.0.2\" is not an address with a prefix length; write e.g. \"10.77.0.1/24\"",
        ),
        (
            "['10.88.0.2/24']\nmode = 'all'",
            "5:8: there is no mode \"all\"; write one of \"off\", \"piggy\", \"delayed\", \"controlled\", \"any\"",
        ),
        ("['10.88.0.2/24']\nwait = '2s'", "5:8: \"2s\" is no wait; write a duration from \"0ms\" to \"1s\""),
        ("['10.88.0.2/24']\nwait = 10", "5:8: 10 cannot stand here; write text in quotes, as \"…\""),
        (
            "['10.88.0.2/24']\nhold = '1ms'",
            "5:1: unknown key `hold`, expected one of `interface`, `master`, `addresses`, `monitor`, `mode`, `wait`, `thin-acks`",
        ),
        (
            "['10.88.0.2/24']\n[[coding]]\ninterface = 'nc0'\nmaster = 'nc1'\naddresses = ['10.89.0.2/24']",
            "6:13: this interface is named twice; every slave has a master of its own",
        ),
        (
            "['10.88.0.2/24']\n[bicast]\ninterfaces = ['mesh0', 'wlan1']",
            "6:15: [[coding]] has this interface, and IP runs on its master; name that",
        ),
    ] {
        assert_complaints(&coding(more), &format!("nawa.toml:{expected}"));
    }
    assert_complaints("coding = 1\n", "nawa.toml:1:10: `coding` is a list; write [[coding]]");
}

#[test]
fn no_strand_is_below_the_tunnel() {
    let others = "[bicast]\ninterfaces = ['wan1', 'nawa0']\n[[flood]]\ninterface = 'nawa0'\nid = 7\n\
                  [[coding]]\ninterface = 'wan2'\nmaster = 'nawa0'\naddresses = []\n";
    let says = "this is the interface that [tunnel] makes; name another";
    let expected = ["14:9", "16:23", "18:13", "22:10"].map(|at| format!("nawa.toml:{at}: {says}")).join("\n");
    let text = format!("{NODE}{TUNNEL}{}{}{others}", peer(""), path("local = 'nawa0'\n"));
    assert_complaints(&text, &expected);
}

#[test]
fn bicast_needs_no_key_and_two_interfaces() {
    let folder = folder();
    let section = "[bicast]\ninterfaces = ['wlan0', 'wlan1']\n";
    let written = |keys| {
        let file = read(folder.path(), &format!("{section}{keys}")).expect("a good file");
        file.bicast.expect("the section")
    };
    let config = written("mode = 'selective'\nbudget = '30%'\nmetered = ['wlan1']\n");
    assert_eq!(config.interfaces, ["wlan0", "wlan1"]);
    assert_eq!((config.metered, written("").metered), (vec!["wlan1".to_owned()], vec![]));
    let settings = config.settings;
    assert_eq!((settings.mode, settings.budget_percent), (bicast::Mode::Selective, 30));
    let default = written("").settings;
    assert_eq!((default.mode, default.budget_percent), (bicast::Mode::Adaptive, 15));
    assert_eq!(settings.udp_port, 9899);
    assert_complaints(
        "[bicast]\ninterfaces = ['wlan0', 'wlan0']\nmode = 'both'\nbudget = 30\nudp-port = 0\n",
        "nawa.toml:2:24: this interface is named twice; remove one\n\
         nawa.toml:3:8: there is no mode \"both\"; write \"off\", \"selective\", \"full\" or \"adaptive\"\n\
         nawa.toml:4:10: 30 is not a share; write one from \"0%\" to \"100%\"\n\
         nawa.toml:5:12: 0 is not a port; write one from 1 to 65535",
    );
    assert_complaints(
        "[bicast]\ninterfaces = ['wlan0', 'wlan1']\nmetered = ['wwan0']\n",
        "nawa.toml:3:12: this interface is not among `interfaces`; add it there, or take it out here",
    );
    assert_complaints(
        "[bicast]\ninterfaces = ['wlan0']\n",
        "nawa.toml:2:14: copies need a second path; name two interfaces or more",
    );
}

#[test]
fn congestion_controls_need_no_key() {
    let folder = folder();
    let settings = read(folder.path(), "[flight]\ndefault = true\nbase = 'reno'\n").expect("a good file");
    assert_eq!(settings.flight, Some(Flight { default: true, base: Base::Reno }));
    assert!(settings.key.is_none() && settings.tunnel.is_none());
    assert_complaints(
        "[flight]\nbase = 'vegas'\n",
        "nawa.toml:2:8: there is no base \"vegas\"; write \"cubic\" or \"reno\"",
    );
}

#[test]
fn key_files() {
    let about = |key: &str| complaints(&format!("[node]\nkey-file = '{key}'\n{TUNNEL}"));
    assert_eq!(
        about("none"),
        "nawa.toml:2:12: there is no none; make it with `umask 077; nawa keygen > none`"
    );
    assert_complaints(
        &format!("{NODE}{TUNNEL}{}", peer("preshared-key-file = 'none'\n")),
        "nawa.toml:11:22: there is no none; copy the file that the other nodes have, or make the first with \
         `umask 077; nawa keygen > none`",
    );
    assert_eq!(about("open"), "nawa.toml:2:12: open may be read by others (mode 0644); run chmod 600 open");
    assert_eq!(
        about("short"),
        "nawa.toml:2:12: short: this key holds 3 bytes instead of 32; copy all 44 characters of it"
    );
    assert!(about(".").ends_with("is not a regular file; name the file that holds the key"));
    let nothing = "this names no file or folder; write its name, or leave the key out where it may be";
    assert_eq!(about(""), format!("nawa.toml:2:12: {nothing}"));
    let about = complaints(&format!("[node]\nkey-file = 'key'\nstate-dir = ''\n{TUNNEL}"));
    assert_eq!(about, format!("nawa.toml:3:13: {nothing}"));
}

#[test]
fn unknown_and_missing_keys() {
    assert_complaints(
        &format!("{NODE}[tunnel]\ninterface = 'nawa0'\naddresses = ['10.77.0.1/24']\nmtuu = 1400\n"),
        "nawa.toml:6:1: unknown key `mtuu`, expected one of \
         `interface`, `addresses`, `listen`, `endpoints`, `scheduler`, `mtu`, `fwmark`, `copy-dscp`, `copy-ecn`, `fail-open`, `congestion-control`, `resolvers`",
    );
    assert_complaints(
        &format!("{NODE}[tunnel]\naddresses = ['10.77.0.1/24']\n"),
        "nawa.toml:3:1: missing key `interface`",
    );
}

#[test]
fn names_that_the_kernel_keeps_name_no_interface() {
    for name in ["all", "default"] {
        assert_complaints(
            &format!("{NODE}[tunnel]\ninterface = '{name}'\naddresses = ['10.77.0.1/24']\n"),
            &format!(
                "nawa.toml:4:13: \"{name}\" cannot name an interface, for the kernel keeps that name; write another"
            ),
        );
    }
}

#[test]
fn values_of_the_tunnel() {
    assert_complaints(
        &format!(
            "{NODE}[tunnel]\ninterface = 'a/b'\naddresses = ['10.77.0.1']\nlisten = 0\nscheduler = 'fast'\nmtu = 900\nresolvers = ['9.9.9.9', 'dns.test']\n"
        ),
        "nawa.toml:4:13: \"a/b\" cannot name an interface; write 1 to 15 letters, digits, `-`, `_` or `.`\n\
         nawa.toml:5:14: \"10.77.0.1\" is not an address with a prefix length; write e.g. \"10.77.0.1/24\"\n\
         nawa.toml:6:10: 0 is not a port; write a port from 1 to 65535, or \"ADDRESS:PORT\"\n\
         nawa.toml:7:13: there is no scheduler \"fast\"; write \"auto\", \"paper\" or \"paper-absolute\"\n\
         nawa.toml:8:7: 900 is not an MTU; write \"auto\" or a number of bytes from 1280 to 9000\n\
         nawa.toml:9:25: \"dns.test\" is no address; write one, as \"192.0.2.53\"",
    );
    assert_complaints(
        &format!("{NODE}[tunnel]\ninterface = 'nawa0'\naddresses = []\nlisten = 'lo'\n"),
        "nawa.toml:5:13: the interface has no address; write at least one, as \"10.77.0.1/24\"\n\
         nawa.toml:6:10: \"lo\" is not where one can listen; write a port from 1 to 65535, or \"ADDRESS:PORT\"",
    );
}

#[test]
fn values_of_a_peer() {
    assert_complaints(
        &format!("{NODE}{TUNNEL}{}", peer("keepalive = 20\n")),
        "nawa.toml:11:13: 20 has no unit; write a duration with its unit, as \"20s\"",
    );
    assert_complaints(
        &format!("{NODE}{TUNNEL}{}", peer("keepalive = '2h'\n")),
        "nawa.toml:11:13: \"2h\" is out of range; write more than nothing and at most \"1h\"",
    );
    assert_complaints(
        &format!("{NODE}{TUNNEL}{}", peer("bicast = 'full'\n")),
        "nawa.toml:11:10: a peer's bicast cannot be \"full\"; write \"off\", \"selective\" or \"adaptive\"",
    );
    assert_complaints(
        &format!("{NODE}{TUNNEL}[[peer]]\nname = 'a b'\npublic-key = 'x'\nroutes = ['10.77.0.2/24']\n"),
        "nawa.toml:8:8: \"a b\" is not a name; write 1 to 32 letters, digits, `-`, `_` or `.`\n\
         nawa.toml:9:14: this key is not base64; expected 44 characters as `nawa keygen` or `nawa pubkey` print them\n\
         nawa.toml:10:11: \"10.77.0.2/24\" has bits set behind its prefix length; \
         write \"10.77.0.0/24\" for the network or \"10.77.0.2/32\" for the host",
    );
    let nobody = format!("{}=", "A".repeat(43));
    assert_complaints(
        &format!("{NODE}{TUNNEL}{}", peer("").replace(BOB, &nobody)),
        "nawa.toml:9:14: this is nobody's public key; copy what `nawa pubkey` prints at the other end",
    );
    assert_complaints(
        &format!("{NODE}{TUNNEL}[[peer]]\nname = 'me'\npublic-key = '{ALICE}'\nroutes = []\n"),
        "nawa.toml:9:14: this is this node's own key; write the peer's\n\
         nawa.toml:10:10: this peer has no route, so nothing reaches it; write its inner addresses",
    );
}

#[test]
fn what_peers_may_not_share() {
    assert_complaints(
        &format!("{NODE}{TUNNEL}{}{}", peer(""), peer("")),
        "nawa.toml:12:8: another peer has this name; choose another name\n\
         nawa.toml:13:14: another peer has this key; a peer is listed once, with all its paths\n\
         nawa.toml:14:11: this route is listed already; a prefix belongs to one peer",
    );
}

#[test]
fn a_path_does_not_lead_into_the_tunnel_that_it_is_to_carry() {
    let inner = path("").replace("203.0.113.7", "10.77.0.2");
    assert_complaints(
        &format!("{NODE}{TUNNEL}{}{inner}", peer("")),
        "nawa.toml:8:8: path lte leads to 10.77.0.2, this peer's address inside the tunnel; write the one outside",
    );
}

#[test]
fn somebody_has_to_call() {
    let deaf = "[tunnel]\ninterface = 'nawa0'\naddresses = ['10.77.0.1/24']\n";
    assert_complaints(
        &format!("{NODE}{deaf}{}", peer("")),
        "nawa.toml:7:8: this peer has no [[peer.path]] and [tunnel] has no `listen`, \
         so neither end can call; write one",
    );
    let wrong = path("").replace("51900", "0");
    let complaints = complaints(&format!("{NODE}{deaf}{}{wrong}", peer("")));
    assert_eq!(complaints.lines().count(), 1, "one mistake, one line: {complaints}");
    assert_complaints(&format!("{NODE}{deaf}{}{}", peer(""), path("")), "nothing");
}

#[test]
fn values_of_paths() {
    assert_complaints(
        &format!(
            "{NODE}{TUNNEL}{}{}{}",
            peer(""),
            path(&format!("local = 'ppp 0'\nvia = {{ address = 'relay', public-key = '{BOB}' }}\n")),
            path("backup = 'yes'\n")
        ),
        "nawa.toml:14:9: \"ppp 0\" cannot name an interface; write 1 to 15 letters, digits, `-`, `_` or `.`\n\
         nawa.toml:15:19: \"relay\" is not HOST:PORT; write e.g. \"203.0.113.7:51900\" or \"[2001:db8::1]:51900\"\n\
         nawa.toml:19:10: \"yes\" cannot stand here; write true or false",
    );
    assert_complaints(
        &format!("{NODE}{TUNNEL}{}{}", peer(""), path("metered = true\nprefer = 16\n")),
        "nawa.toml:15:10: 16 is not a rank; write 0 for what comes first, up to 15 for what comes last",
    );
    assert_complaints(
        &format!("{NODE}{TUNNEL}{}{}{}", peer(""), path(""), path("")),
        "nawa.toml:15:8: another path of this peer has this name; choose another name",
    );
}

#[test]
fn sixteen_paths_and_no_more() {
    let paths = |count: usize| -> String {
        let one = |i| format!("[[peer.path]]\nname = 'p{i}'\nremote = '203.0.113.7:51900'\n");
        (0..count).map(one).collect()
    };
    assert_complaints(&format!("{NODE}{TUNNEL}{}{}", peer(""), paths(16)), "nothing");
    assert_complaints(
        &format!("{NODE}{TUNNEL}{}{}", peer(""), paths(17)),
        "nawa.toml:60:8: a peer has at most 16 paths; remove this and what follows",
    );
}

#[test]
fn values_of_the_relay() {
    assert_complaints(
        &format!("{NODE}{TUNNEL}[relay]\nlisten = 51900\nallow = []\nmode = 'xdp'\n"),
        "nawa.toml:8:10: [tunnel] listens here already; give the relay another port\n\
         nawa.toml:9:9: nobody may use this relay; list the public keys that may\n\
         nawa.toml:10:8: the relay mode \"xdp\" is not built yet; write \"auto\" or \"userspace\"",
    );
    assert_complaints(
        &format!("{NODE}[relay]\nlisten = 51901\nallow = ['{BOB}', '{BOB}']\n"),
        "nawa.toml:5:58: this key is listed twice; remove one",
    );
}

#[test]
fn a_relay_is_reached_by_udp_or_by_tls() {
    let via = |how: &str| {
        format!("{NODE}{TUNNEL}{}{}", peer(""), path(&format!("via = {{ {how}public-key = '{BOB}' }}\n")))
    };
    assert_complaints(&via("tls = 'relay.test:443', "), "nothing");
    let one = "a relay is reached by UDP or by TLS; write one of `address` and `tls`";
    assert_complaints(&via(""), &format!("nawa.toml:14:22: {one}"));
    let both = via("address = '192.0.2.1:9', tls = '192.0.2.1:443', ");
    assert_complaints(&both, &format!("nawa.toml:14:70: {one}"));
    let relay = |tls: &str| format!("{NODE}[relay]\nlisten = 51901\ntls = {tls}\nallow = ['{BOB}']\n");
    // A port of UDP and one of TCP may have one number.
    assert_complaints(&relay("51901"), "nothing");
    assert_complaints(
        &relay("0"),
        "nawa.toml:5:7: 0 is not a port; write a port from 1 to 65535, or \"ADDRESS:PORT\"",
    );
}

fn pipe(path: &Path) {
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600));
    rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).expect("a pipe");
}

#[test]
fn a_key_file_that_is_a_pipe_is_not_waited_for() {
    let folder = folder();
    pipe(&folder.path().join("pipe"));
    let why = secret::read::<tunnel::PrivateKey>(&folder.path().join("pipe")).expect_err("no key");
    assert!(why.contains("is not a regular file"), "{why}");
}

#[test]
fn fragments_are_read_with_their_file() {
    let folder = folder();
    let file = folder.path().join("nawa.toml");
    let fragments = folder.path().join("nawa.toml.d");
    std::fs::write(&fragments, "").expect("no folder");
    let lines = load(&file).expect_err("it is no folder").lines;
    assert!(lines[0].ends_with("; make it a folder that root may read, or move it away"), "{lines:?}");
    std::fs::remove_file(&fragments).expect("it is there");
    std::fs::create_dir(&fragments).expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(fragments.join(name), text).expect("a fragment");
    let tunnel = "[tunnel]\ninterface = 'nawa0'\naddresses = ['10.77.0.1/24']\nlisten = 51900\n";
    std::fs::write(&file, format!("[node]\nkey-file = 'key'\n{tunnel}{}", peer(""))).expect("the file");
    let key = tunnel::PublicKey::from([9; 32]).to_string();
    let other = peer("").replace("office", "home").replace(BOB, &key).replace("10.77.0.2", "10.77.0.3");
    write("20-home.toml", &format!("# Another\n{other}"));
    write("10-flight.toml", "[flight]\n");
    write("notes.txt", "no TOML");
    // As Windows and some editors leave them.
    write("30-bom.toml", "\u{feff}# All\r\n[metrics]\r\nlisten = '127.0.0.1:9477'\r\n");
    write(".20-home.toml", &other);
    std::os::unix::fs::symlink("someone@host.1", fragments.join(".#20-home.toml")).expect("a lock");
    let settings = load(&file).expect("it is good");
    let names: Vec<_> =
        settings.tunnel.iter().flat_map(|tunnel| &tunnel.config.peers).map(|peer| &peer.name).collect();
    assert_eq!(names, ["office", "home"]);
    assert!(settings.flight.is_some() && settings.metrics.is_some());
    // Each mistake is at its place in its own file.
    let says = |name: &str, text: &str, at: &str| {
        write(name, text);
        let lines = load(&file).expect_err("it is bad").lines;
        let expected = format!("{}:{at}", fragments.join(name).display());
        assert!(lines.iter().any(|line| line.starts_with(&expected)), "{expected}: {lines:?}");
        std::fs::remove_file(fragments.join(name)).expect("it is there");
    };
    says("30-a.toml", "[flight]\nbase = 'vegas'\n", "1:");
    says("05-a.toml", "[relay]\nlisten = 0\nallow = []\n", "2:10:");
    says("30-a.toml", "listen = 7\n", "1:1: this belongs to no section");
    pipe(&fragments.join("30-pipe.toml"));
    let lines = load(&file).expect_err("it is a pipe").lines;
    assert!(lines[0].contains("30-pipe.toml: cannot be read: it is not a regular file"), "{lines:?}");
    std::fs::remove_file(fragments.join("30-pipe.toml")).expect("it is there");
    std::os::unix::fs::symlink("/nonexistent/peer.toml", fragments.join("30-link.toml")).expect("a link");
    let lines = load(&file).expect_err("it leads nowhere").lines;
    assert!(lines[0].contains("30-link.toml: this link leads to no file; remove it"), "{lines:?}");
    std::fs::remove_file(fragments.join("30-link.toml")).expect("it is there");
    says(
        "30-a.toml",
        "\n[[peer.path]]\nname = 'x'\nremote = '192.0.2.1:9'\n",
        "2:3: this belongs to no section",
    );
    says("30-a.toml", "[relay\n", "1:");
    assert!(load(&file).is_ok());
}

/// What a shell gives as `<(…)` is read, and nobody waits for a pipe that is opened by its name.
#[test]
fn a_file_may_be_what_somebody_writes_and_no_pipe_of_its_own() {
    let folder = folder();
    let file = folder.path().join("nawa.toml");
    pipe(&file);
    let lines = load(&file).expect_err("nobody writes").lines;
    let expected =
        format!("{}: cannot be read: it is not a regular file; name a file that can", file.display());
    assert_eq!(lines, [expected]);
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    std::io::Write::write_all(&mut writer, b"[flight]\n").expect("it has room");
    drop(writer);
    let file = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
    assert!(load(Path::new(&file)).expect("it is read").flight.is_some());
}

#[test]
fn a_file_that_is_not_there() {
    let complaints = super::load_text(Path::new("/nonexistent/nawa.toml"), None).expect_err("no such file");
    let lines: Vec<_> = complaints.iter().map(Complaint::to_string).collect();
    assert_eq!(
        lines,
        [
            "/nonexistent/nawa.toml: there is no such file; `nawa init` or `nawa join` writes one, or name another"
        ]
    );
    let long = "a".repeat(300);
    let lines = load(Path::new(&long)).expect_err("no such file").lines;
    assert_eq!(
        lines,
        [format!("{long}: cannot be read: File name too long (os error 36); name a file that can")]
    );
}

/// `packaging/nawa.toml` as shipped, with its keys put where it expects them.
#[test]
fn the_sample_is_good_and_shows_every_option() {
    let folder = folder();
    let sample = include_str!("../../../../packaging/nawa.toml")
        .replace("/etc/nawa/key", "key")
        .replace("/etc/nawa/flood.key", "key")
        .replace("/etc/nawa/office.psk", "psk");
    let settings = read(folder.path(), &sample).expect("the sample is a good file");
    let tunnel = settings.tunnel.expect("it has a tunnel");
    assert_eq!((tunnel.interface.as_str(), tunnel.listen, tunnel.fwmark), ("nawa0", Listen::Port(51900), 0));
    assert_eq!((tunnel.config.scheduler, tunnel.config.mtu), (Scheduler::Auto, Mtu::Auto));
    let [office] = &tunnel.config.peers[..] else { panic!("it has one peer") };
    assert_eq!((office.resend, office.bicast), (true, Bicast::Off));
    assert_eq!(office.keepalive, Some(std::time::Duration::from_secs(20)));
    let locals: Vec<_> = office.paths.iter().map(|path| &path.local).collect();
    assert_eq!(locals[0], &Local::Interface("wwan0".into()));
    assert_eq!(office.paths.iter().filter(|path| path.via.is_some()).count(), 2);
    assert!(office.paths.iter().any(|path| path.backup));
    assert_eq!(settings.relay.expect("it has a relay").listen, Listen::Port(51901));
    assert_eq!(settings.flight, Some(Flight { default: false, base: Base::Cubic }));
    let [flood] = &settings.floods[..] else { panic!("it floods on one interface") };
    assert_eq!((flood.interface.as_str(), flood.mode, flood.ttl), ("wlan0", Mode::Driver, 16));
    assert_eq!(flood.suppression, flood::suppression::Rules::PURE);
    assert!(flood.rules.format.is_keyed() && flood.rules.rate_limit.is_none());
    let [coding] = &settings.codings[..] else { panic!("it codes on one interface") };
    assert_eq!((coding.interface.as_str(), coding.master.as_str()), ("mesh0", "nc0"));
    assert_eq!(coding.change.mode, coding::Mode::default());
    let copies = settings.bicast.expect("it has copies").settings;
    assert_eq!((copies.mode, copies.budget_percent), (bicast::Mode::default(), 15));
    for key in [
        "id",
        "wire",
        "ttl",
        "port",
        "rate-limit",
        "suppress",
        "jitter",
        "threshold",
        "enough",
        "repeats",
        "busy-poll",
        "default",
        "base",
        "key-file",
        "interface",
        "addresses",
        "listen",
        "scheduler",
        "mtu",
        "fwmark",
        "copy-dscp",
        "copy-ecn",
        "fail-open",
        "congestion-control",
        "resolvers",
        "tls",
        "name",
        "public-key",
        "preshared-key-file",
        "routes",
        "keepalive",
        "resend",
        "bicast",
        "local",
        "remote",
        "via",
        "backup",
        "metered",
        "prefer",
        "monthly-cap",
        "state-dir",
        "receive",
        "allow",
        "mode",
        "interfaces",
        "metered",
        "budget",
        "udp-port",
        "master",
        "wait",
        "thin-acks",
    ] {
        assert!(
            sample.lines().any(|line| line.starts_with(&format!("{key} = "))),
            "the sample does not show `{key}`"
        );
    }
}

/// Every key of the sample with every kind of value that somebody may write, misspelt, and left out: taken, or answered at its line in
/// words of the file, with what to do.
#[test]
fn whatever_a_key_is_given_is_taken_or_answered_in_words_of_the_file() {
    let sample = include_str!("../../../../packaging/nawa.toml").replace("/etc/nawa/", "");
    let folder = folder();
    for name in ["office.psk", "flood.key"] {
        fs::copy(folder.path().join("key"), folder.path().join(name)).expect("a key");
    }
    assert!(read(folder.path(), &sample).is_ok());
    let lines: Vec<&str> = sample.lines().collect();
    let keys = lines.iter().enumerate().filter_map(|(at, line)| Some((at, *line, line.split_once(" = ")?)));
    let keys =
        keys.filter(|(.., (key, _))| key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'));
    let (mut count, mut faults) = (0, String::new());
    for (at, line, (key, value)) in keys {
        let values =
            ["-1", "99999999999", "'zzz qq'", "''", "[1]", "[]", "true", "1.5", "2026-01-01", "{ a = 1 }"];
        let mut written: Vec<_> = values.iter().map(|value| format!("{key} = {value}")).collect();
        written.extend([
            format!("{key}x = {value}"),
            format!("{} = {value}", key.to_uppercase()),
            String::new(),
        ]);
        for written in written {
            let text = [&lines[..at], &[&*written], &lines[at + 1..]].concat().join("\n");
            let Err(complaints) = read(folder.path(), &text) else { continue };
            for complaint in complaints.iter().map(Complaint::to_string) {
                // The folder's name is of random letters, that can be jargon.
                let complaint = complaint.replace(&*folder.path().to_string_lossy(), "");
                let jargon =
                    ["struct", "invalid ", "u8", "u16", "u32", "map", "sequence", "boolean", "integer"];
                let words = complaint.split_once("nawa.toml:").expect("its place").1;
                let helps =
                    words.contains("; ") || words.contains("expected ") || words.contains("missing key `");
                if !helps || jargon.iter().any(|word| words.contains(word)) {
                    faults += &format!("{written}    (for {line}): {words}\n");
                }
            }
            count += 1;
        }
    }
    assert!(count > 500, "{count}");
    assert!(faults.is_empty(), "{faults}");
}

#[test]
fn a_key_is_the_same_with_spaces_around_it() {
    let spaced = peer("").replace("office", "home").replace(BOB, &format!(" {BOB} ")).replace(".2/", ".3/");
    assert_complaints(
        &format!("{NODE}{TUNNEL}{}{spaced}", peer("")),
        "nawa.toml:13:14: another peer has this key; a peer is listed once, with all its paths",
    );
}

#[test]
fn metrics_and_tls_do_not_share_a_port() {
    let relay = format!("[relay]\nlisten = 51901\nallow = ['{BOB}']\ntls = 9477\n");
    assert_complaints(
        &format!("{NODE}{relay}[metrics]\nlisten = '127.0.0.1:9477'\n"),
        "nawa.toml:8:10: [relay] has this port for `tls`; give the metrics another",
    );
}

#[test]
fn an_auto_monitor_is_none_that_has_a_name() {
    let text = "[[coding]]\ninterface = 'mesh0'\nmaster = 'nc0'\naddresses = []\nmonitor = 'auto'\n";
    let settings = read(folder().path(), text).expect("a good file");
    assert_eq!(settings.codings[0].monitor, None);
}
