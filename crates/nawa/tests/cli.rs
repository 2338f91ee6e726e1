//! The commands that need no daemon: what they print, and their exit status.

mod common;

use std::io::Write;
use std::process::{Command, Output, Stdio};

use common::{Node, namespaces_or_skip, nawa, output, stderr, stdout, succeed};

fn with_input(arguments: &[&str], input: &str) -> Output {
    let mut child = nawa(arguments.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("nawa starts");
    child.stdin.take().expect("stdin is piped").write_all(input.as_bytes()).expect("nawa reads");
    child.wait_with_output().expect("nawa ends")
}

#[test]
fn keys_are_44_characters_and_differ() {
    let keys = [succeed(&mut nawa(["keygen"])), succeed(&mut nawa(["keygen"]))];
    assert_ne!(keys[0], keys[1]);
    for key in keys {
        assert_eq!((key.len(), key.ends_with("=\n")), (45, true));
    }
}

/// RFC 7748 §6.1.
#[test]
fn a_private_key_gives_its_public_key() {
    let output = with_input(&["pubkey"], "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=\n");
    assert_eq!(stdout(&output), "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=\n");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_bad_key_is_bad_input_in_one_sentence() {
    for bad in ["", "not a key\n", "AAAA\n", &"A".repeat(10_000)] {
        let output = with_input(&["pubkey"], bad);
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn wrong_flags_are_bad_input() {
    let wrong: [&[&str]; 24] = [
        &["--wrong"],
        &["wrong"],
        &["lab"],
        &["lab", "run", "demo", "--quick", "--paper"],
        &["lab", "run", "demo", "--out", "results"],
        &["lab", "run", "demo", "--links", "5@1"],
        &["lab", "run", "bond", "--links", "5"],
        &["lab", "run", "all", "--html", "page.html"],
        &["monitor", "--interval", "1"],
        &["top", "--interval", "1"],
        &["capture"],
        &["capture", "-", "--inner", "--outer"],
        &["capture", "-", "--count", "0"],
        &["capture", "-", "--duration", "0s"],
        &["invite", "van", "--valid", "0s"],
        &["test", "office", "--time", "0s"],
        &["flood", "ping", "wlan0", "7", "--timeout", "0s"],
        &["path"],
        &["path", "add", "office", "lte"],
        &["path", "add", "office", "l/te", "--remote", "192.0.2.1:9"],
        &["path", "add", "office", "lte", "--remote", "192.0.2.1"],
        &["path", "add", "office", "lte", "--remote", "192.0.2.1:9", "--via", "192.0.2.2:9"],
        &["path", "set", "office", "lte", "--local", "not an interface"],
        &["path", "set", "office", "lte"],
    ];
    for arguments in wrong {
        assert_eq!(output(&mut nawa(arguments.iter().copied())).status.code(), Some(2), "{arguments:?}");
    }
    for level in ["tunnel=loud", "loud"] {
        let output = output(&mut nawa(["--log-level", level, "keygen"]));
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""));
        assert!(stderr(&output).contains("write error, warn, info, debug or trace"), "{}", stderr(&output));
    }
}

/// Not in those of the program's own types.
#[test]
fn a_wrong_value_is_answered_in_plain_words() {
    let whole = "cannot stand here; write a whole number from";
    let wrong: [(&[&str], &str); 9] = [
        (
            &["init", "--address", "10.77.0.1"],
            "\"10.77.0.1\" is not an address with a prefix length; write e.g.",
        ),
        (&["test", "office", "--to", "zz"], "\"zz\" is no address; write one, as"),
        (&["capture", "-", "--count", "x"], whole),
        (&["path", "set", "office", "lte", "--prefer", "99"], whole),
        (&["flood", "send", "wlan0", "hi", "--ttl", "300"], whole),
        (&["flood", "recv", "wlan0", "--count", "0"], whole),
        (&["flood", "ping", "wlan0", "x"], whole),
        (&["lab", "run", "demo", "--seed", "x"], whole),
        (&["lab", "run", "demo", "--repeats", "0"], whole),
    ];
    for (arguments, words) in wrong {
        let output = output(&mut nawa(arguments.iter().copied()));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(words), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn a_good_file_is_checked_in_silence() {
    let node = Node::new();
    let file =
        node.write("[relay]\nlisten = 51901\nallow = ['3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=']\n");
    let output = output(&mut nawa(["check", file.to_str().expect("UTF-8")]));
    assert_eq!(
        (output.status.code(), stdout(&output), stderr(&output)),
        (Some(0), String::new(), String::new())
    );
}

#[test]
fn every_error_of_a_bad_file_has_its_line() {
    let node = Node::new();
    let file = node.write("[relay]\nlisten = 0\nallow = ['x']\n[metrics]\nlisten = 'all'\n");
    let file = file.to_str().expect("UTF-8");
    for command in ["check", "run"] {
        let output = output(&mut nawa([command, file]));
        assert_eq!(output.status.code(), Some(2));
        let complaints = stderr(&output);
        let places: Vec<_> =
            complaints.lines().map(|line| line.split(' ').next().unwrap_or_default()).collect();
        assert_eq!(places, [format!("{file}:4:10:"), format!("{file}:5:10:"), format!("{file}:7:10:")]);
    }
}

/// As `nawa lab list | head -1`, where `head` has seen enough.
#[test]
fn a_reader_that_goes_is_no_news() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let ended = output(nawa(["keygen"]).stdout(writer));
    assert_eq!((ended.status.code(), stderr(&ended)), (Some(1), String::new()));
}

#[test]
fn the_lab_names_its_experiments() {
    let list = succeed(&mut nawa(["lab", "list"]));
    assert!(list.lines().any(|line| line.starts_with("demo ")), "{list}");
    assert_eq!(output(&mut nawa(["lab", "run", "nothing"])).status.code(), Some(2));
    let nobody = output(&mut nawa(["lab", "run", "demo", "system=nobody"]));
    assert_eq!(nobody.status.code(), Some(2));
    assert!(stderr(&nobody).contains("`system` cannot be \"nobody\", but bbr"), "{}", stderr(&nobody));
}

/// Not a table of measurements that failed, each for the same reason.
#[test]
fn the_lab_says_once_that_it_cannot_work_in_a_container() {
    let Some(_alone) = namespaces_or_skip("the_lab_says_once_that_it_cannot_work_in_a_container") else {
        return;
    };
    let mut lab = Command::new("unshare");
    lab.args(["--user", "--map-root-user", "--net", env!("CARGO_BIN_EXE_nawa"), "lab", "run", "emulator"]);
    let output = output(&mut lab);
    let (said, lines) = (stderr(&output), stderr(&output).lines().count());
    assert_eq!((output.status.code(), lines, stdout(&output).as_str()), (Some(1), 1, ""), "{said}");
    assert!(said.starts_with("nawa: the lab cannot make a network namespace here ("), "{said}");
}
