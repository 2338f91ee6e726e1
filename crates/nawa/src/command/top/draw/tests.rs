//! What is drawn, as text, at the sizes that terminals have.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const PLAIN: Look = Look { color: false, ramp: LETTERS };
/// The id of the path `dsl`.
const DSL: u16 = 1;
const COLOURED: Look = Look { color: true, ramp: BLOCKS };

/// A van's path after `t` seconds, `rate` bytes a second.
fn path(name: &str, t: u64, rate: u64, rtt: f64, loss: u64) -> Value {
    json!({
        "id": if name == "dsl" { DSL } else { 3 }, "name": name, "state": "up", "why": null, "backup": false, "remote": "198.51.100.2:51900",
        "relayed": false, "rtt_ms": rtt + (t % 5) as f64, "rtt_min_ms": rtt, "rate_bps": null, "weight": 0.5,
        "in_flight_bytes": rate / 20, "sent_packets": t * rate / 1000 + t * t, "sent_bytes": t * rate + t * t * 1000,
        "lost_packets": t * rate / 1000 * loss / 100, "received_bytes": t * rate / 10,
    })
}

fn peer(name: &str, paths: Vec<Value>) -> Value {
    json!({
        "name": name, "up": true, "why": null, "scheduler": "auto", "cipher": "aes-256-gcm", "queue_bytes": 23_000,
        "resent_packets": 12, "given_up_packets": 0, "paths": paths,
        "flows": [
            {"protocol": "tcp", "source": "10.77.0.1:40000", "destination": "10.77.0.2:443", "rate_bps": 9.5e6,
             "queue_bytes": 21_000, "limited": true},
            {"protocol": "udp", "source": "[fd77::1]:5004", "destination": "[fd77::2]:5004", "rate_bps": 96_000.0,
             "queue_bytes": 0, "limited": false},
        ],
    })
}

/// The state of a van after `t` seconds: every strand runs.
fn state(t: u64) -> Value {
    let mut sat = path("sat", t, 0, 600.0, 0);
    (sat["state"], sat["why"]) =
        (json!("silent"), json!("nothing has come back from 203.0.113.7:51900 for 3.2 s"));
    let mut lte = path("lte", t, 1_200_000, 41.0, 6);
    lte["backup"] = json!(true);
    let office = peer("office", vec![path("dsl", t, 300_000, 12.0, 0), lte, sat]);
    let mut home = peer("home", vec![]);
    (home["up"], home["why"]) = (json!(false), json!("it has never been heard"));
    let connection = |port: u16| {
        json!({"local": format!("10.1.0.1:{port}"), "remote": "192.0.2.9:443", "congestion_control": "fsat", "base": "cubic",
               "mode": "own", "target_bytes": null, "space_bytes": 45_600, "rcv_bytes": 22_500, "rtt_min_us": 180_250,
               "cwnd_bytes": 96_000, "window_bytes": 45_600, "losses_radio": 3, "losses_congestion": 1})
    };
    json!({
        "schema": 1, "version": "0.1.0", "pid": 7, "interface": "nawa0",
        "tunnel": {"public_key": "KEY=", "mtu": 1400, "peers": [office, home]},
        "flight": {"registered": ["fsat"], "default": "fsat", "connections": (1..9).map(connection).collect::<Vec<_>>()},
        "flood": [
            {"interface": "wlan0", "id": 7, "mode": "driver", "relay": "xdp-native", "sent_frames": 2 * t, "new_frames": 20 * t,
             "relayed_frames": 19 * t, "dropped_frames": {"duplicate": 40 * t}},
            {"interface": "wlan1", "id": 8, "mode": "kernel", "relay": null, "waits": "the interface is gone"},
        ],
        "coding": [{
            "interface": "mesh0", "master": "nc0", "mode": "any", "waits_because": null, "off_because": null, "warning": null,
            "neighbours": [{"address": "02:00:00:00:00:01", "overheard_frames": 7, "decodes": true, "left_out": false}],
            "sent_frames": 200 * t, "sent_coded_frames": 30 * t + t * t / 2, "coding_ratio": 0.125, "relayed_packets": 90 * t,
            "held_packets": 4 * t, "held_time_ms": 6.0, "decoded_packets": 30 * t, "missing_partner_frames": t,
            "wrong_partner_frames": 0, "left_out_neighbours": 0,
        }],
    })
}

fn told(model: &mut Model, t: u64, state: Value) {
    model.handle_state(
        t as u32 * SECOND,
        Rc::new(serde_json::from_value(state).expect("what the daemon shows")),
    );
}

/// After a minute.
fn model() -> Model {
    let mut model = Model::new(SECOND);
    (0..60).for_each(|t| told(&mut model, t, state(t)));
    model
}

fn press(model: &mut Model, keys: &str) -> bool {
    let code = |key| match key {
        '\n' => KeyCode::Enter,
        '\x1b' => KeyCode::Esc,
        key => KeyCode::Char(key),
    };
    keys.chars().any(|key| model.handle_key(KeyEvent::new(code(key), KeyModifiers::NONE)))
}

fn drawn(model: &mut Model, look: Look, (width, height): (u16, u16)) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen in memory");
    terminal.draw(|frame| draw(frame, model, look)).expect("it is drawn");
    terminal
}

fn text(model: &mut Model, look: Look, size: (u16, u16)) -> String {
    let terminal = drawn(model, look, size);
    let buffer = terminal.backend().buffer();
    let line = |row: u16| -> String { (0..size.0).map(|column| buffer[(column, row)].symbol()).collect() };
    (0..size.1).map(|row| format!("{}\n", line(row).trim_end())).collect()
}

/// As `tests/common` has it: NAWA_SNAPSHOTS=write writes it anew.
#[track_caller]
fn snapshot(name: &str, shown: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots");
    let file = folder.join(format!("{name}.txt"));
    if std::env::var_os("NAWA_SNAPSHOTS").is_some_and(|value| value == "write") {
        std::fs::write(&file, shown).expect("the snapshot");
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(kept == shown, "{} differs; NAWA_SNAPSHOTS=write writes it anew:\n{shown}", file.display());
}

#[test]
fn a_small_and_a_large_terminal() {
    let mut model = model();
    snapshot("top-80x24", &text(&mut model, COLOURED, (80, 24)));
    snapshot("top-80x24-ascii", &text(&mut model, PLAIN, (80, 24)));
    snapshot("top-200x60", &text(&mut model, COLOURED, (200, 60)));
}

#[test]
fn nothing_but_what_fits_is_drawn_at_any_size() {
    for (width, height) in [(1, 1), (71, 40), (72, 12), (79, 11), (80, 12), (119, 30), (120, 30), (500, 200)]
    {
        let shown = text(&mut model(), PLAIN, (width, height));
        assert_eq!(
            shown.contains("is too small"),
            width >= 30 && (width < 72 || height < 12),
            "{width}x{height}\n{shown}"
        );
    }
}

#[test]
fn without_colours_nothing_has_one() {
    let terminal = drawn(&mut model(), PLAIN, (80, 24));
    for cell in terminal.backend().buffer().content() {
        assert_eq!((cell.fg, cell.bg), (Color::Reset, Color::Reset), "{cell:?}");
        assert!(cell.symbol().is_ascii(), "{cell:?}");
    }
    let terminal = drawn(&mut model(), COLOURED, (80, 24));
    assert!(terminal.backend().buffer().content().iter().any(|cell| cell.fg == Color::Red));
}

#[test]
fn the_environment_decides_what_the_terminal_can() {
    let look = |variables: &'static [(&str, &str)]| {
        Look::of(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    };
    let utf8 = look(&[("LANG", "en_US.UTF-8"), ("TERM", "xterm")]);
    assert_eq!((utf8.color, utf8.ramp), (true, BLOCKS));
    assert_eq!(look(&[("LANG", "C.utf8"), ("TERM", "xterm")]).ramp, BLOCKS);
    assert_eq!(look(&[("LANG", "en_US.UTF-8"), ("LC_ALL", "C"), ("TERM", "xterm")]).ramp, LETTERS);
    assert_eq!(look(&[("LANG", "en_US.UTF-8"), ("TERM", "linux")]).ramp, LETTERS);
    assert!(!look(&[("NO_COLOR", "1")]).color);
}

/// Whatever others call themselves.
#[test]
fn names_do_nothing_to_the_terminal() {
    let evil = "\x1b]0;x\x07\x1b[2J\u{202e}\u{200b}é";
    let mut told_state = state(1);
    let office = &mut told_state["tunnel"]["peers"][0];
    office["name"] = json!(evil);
    office["paths"][0]["name"] = json!(evil);
    office["paths"][2]["why"] = json!(evil);
    office["flows"][0]["source"] = json!(evil);
    told_state["interface"] = json!(evil);
    told_state["version"] = json!(evil);
    told_state["coding"][0]["mode"] = json!(evil);
    told_state["flood"][0]["relay"] = json!(evil);
    told_state["flight"]["connections"][0]["local"] = json!(evil);
    told_state["reload_refused"] = json!([evil]);
    let mut model = Model::new(SECOND);
    told(&mut model, 1, told_state);
    model.handle_silence(evil.into());
    let shown = text(&mut model, PLAIN, (200, 60));
    assert!(shown.contains("?]0;x??[2J???"), "{shown}");
    assert!(shown.bytes().all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte)), "{shown:?}");
}

#[test]
fn a_daemon_that_goes_and_comes_back_is_said_to() {
    let mut model = Model::new(SECOND);
    model.handle_silence("no daemon is running: waiting for one".into());
    assert!(text(&mut model, PLAIN, (80, 24)).contains("no daemon is running: waiting for one"));
    (0..5).for_each(|t| told(&mut model, t, state(t)));
    model.handle_silence("the daemon (process 7) went away".into());
    let shown = text(&mut model, PLAIN, (80, 24));
    assert!(shown.contains("the daemon (process 7) went away") && shown.contains("office"), "{shown}");
    assert!(shown.contains("out - in - Mbit/s"), "what was is not what is: {shown}");
    // The next one counts from nothing, which is no rate.
    let mut next = state(0);
    next["pid"] = json!(8);
    told(&mut model, 9, next);
    assert!(!text(&mut model, PLAIN, (80, 24)).contains("went away"));
    let out = model.shown().series(&path_name("office", "dsl", DSL), "out");
    assert_eq!(out.last(3).map(|value| value.is_some()).collect::<Vec<_>>(), [true, false, false]);
}

#[test]
fn keys_choose_what_is_shown() {
    let mut model = model();
    assert!(press(&mut model, "q") && press(&mut model, "\x1b"));
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert!(model.handle_key(control_c));

    press(&mut model, "/DSL\n");
    let shown = text(&mut model, PLAIN, (80, 24));
    assert!(shown.contains("  dsl") && !shown.contains("  lte") && !shown.contains("home"), "{shown}");
    assert!(!press(&mut model, "/q\x1b"), "what is typed into the filter is no command");
    assert!(text(&mut model, PLAIN, (80, 24)).contains("  lte"));

    press(&mut model, "/nowhere\n");
    assert!(text(&mut model, PLAIN, (80, 24)).contains("nothing has \"nowhere\" in its name"));
    press(&mut model, "/\x1b");

    press(&mut model, "ss");
    let order = |shown: &str| {
        let at = |name| shown.lines().position(|line| line.starts_with(name)).expect(name);
        (at("  dsl"), at("  lte"))
    };
    let (dsl, lte) = order(&text(&mut model, PLAIN, (80, 24)));
    assert!(dsl < lte, "by round trip");
    press(&mut model, "s");
    let (dsl, lte) = order(&text(&mut model, PLAIN, (80, 24)));
    assert!(lte < dsl, "by loss");

    press(&mut model, "3");
    let shown = text(&mut model, PLAIN, (80, 24));
    assert!(shown.contains("FLIGHT") && !shown.contains("PATHS"), "{shown}");
    press(&mut model, "0jjjjjjjjjjjjjjjjjjjjjjjjjjjjjj");
    let shown = text(&mut model, PLAIN, (80, 12));
    assert!(!shown.contains("more below") && shown.contains("wlan1"), "{shown}");
}

#[test]
fn a_paused_screen_stands_still_and_forgets_nothing() {
    let mut model = model();
    press(&mut model, "p");
    let before = text(&mut model, PLAIN, (80, 24));
    assert!(before.contains("PAUSED"), "{before}");
    (60..70).for_each(|t| told(&mut model, t, state(t)));
    assert_eq!(text(&mut model, PLAIN, (80, 24)), before);
    press(&mut model, "p");
    let out = model.shown().series(&path_name("office", "dsl", DSL), "out");
    assert_eq!(out.last(100).filter(Option::is_some).count(), 69);
}

#[test]
fn what_is_kept_has_a_bound() {
    let mut model = Model::new(SECOND);
    (0..400).for_each(|t| told(&mut model, t, state(t)));
    let of = path_name("office", "dsl", DSL);
    assert_eq!(model.shown().series(&of, "out").last(1000).count(), 240);
    let mut fewer = state(400);
    fewer["tunnel"]["peers"] = json!([]);
    told(&mut model, 400, fewer);
    assert_eq!(model.shown().series(&of, "out").last(1000).count(), 0);
}

#[test]
fn a_node_without_a_tunnel_has_its_own_parts() {
    let mut alone = state(1);
    (alone["tunnel"], alone["flight"], alone["flood"], alone["interface"]) =
        (json!(null), json!(null), json!([]), json!(null));
    let mut model = Model::new(SECOND);
    told(&mut model, 1, alone);
    let shown = text(&mut model, PLAIN, (80, 24));
    assert!(shown.contains("CODING") && !shown.contains("PATHS"), "{shown}");
    press(&mut model, "5");
    assert!(text(&mut model, PLAIN, (80, 24)).contains("nothing of this part"));
}
