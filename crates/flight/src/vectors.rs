//! `tests/vectors/*.txt`: what is done to a connection and what becomes of it, line by line.
//!
//!     init ADDITIONS NOW FLIGHT_LIMIT
//!     ack NOW RTT DELIVERED FLIGHT CWND CWND_MAX MSS APP_LIMITED = TARGET SPACE RTT_MIN RCV_BYTES WINDOW RATE
//!     loss CWND SSTHRESH MSS = SSTHRESH
//!
//! Bytes and microseconds, the latter wrapping; TARGET is `-` where nothing is limited. `#` begins a comment.

use std::fmt::Write;

use crate::core::Additions;
use crate::ffi::{NO_LIMIT, RawAck, RawConfig, RawFsat};

/// Worked by hand.
const PAPER: &str = include_str!("../tests/vectors/paper.txt");
/// Generated: what changes in the algorithm shows in what changes in them.
const GENERATED: [(Course, &str); 3] = [
    (
        Course { name: "fsat_paper", additions: 0, filled: false },
        include_str!("../tests/vectors/fsat_paper-generated.txt"),
    ),
    (
        Course { name: "fsat", additions: 63, filled: false },
        include_str!("../tests/vectors/fsat-generated.txt"),
    ),
    (
        Course { name: "fsat-filled", additions: 63, filled: true },
        include_str!("../tests/vectors/fsat-filled-generated.txt"),
    ),
];

/// What a generated connection goes through.
#[derive(Clone, Copy)]
struct Course {
    /// Of its file.
    name: &'static str,
    additions: u32,
    /// Others come soon, and fill a buffer of a second.
    filled: bool,
}

/// A connection that does what lines say.
#[derive(Default)]
struct Replay {
    config: RawConfig,
    state: RawFsat,
}

impl Replay {
    /// What comes of `event`, in the words that stand behind its `=`.
    fn apply(&mut self, event: &Event) -> String {
        match event {
            Event::Init(config, ack) => {
                self.config = *config;
                self.state = RawFsat::new(config, ack.now_us, ack.cwnd);
                String::new()
            }
            Event::Ack(ack) => self.ack(ack),
            Event::Loss(ack, ssthresh) => {
                self.state.on_loss(&self.config, ack.cwnd, *ssthresh, ack.mss).to_string()
            }
        }
    }

    fn ack(&mut self, ack: &RawAck) -> String {
        self.state.on_ack(&self.config, ack);
        let state = &self.state;
        let target = if state.target == NO_LIMIT { "-".to_owned() } else { state.target.to_string() };
        let rate = state.pacing_rate(&self.config, ack);
        let window = state.window(ack);
        format!("{target} {} {} {} {window} {rate}", state.space, state.rtt_min_us, state.rcv_bytes)
    }
}

/// What a line says that happens.
pub(crate) enum Event {
    /// A connection begins, at `now_us`, with `cwnd` as its limit.
    Init(RawConfig, RawAck),
    /// An ACK.
    Ack(RawAck),
    /// A loss, with this `cwnd` and `mss`, and ssthresh.
    Loss(RawAck, u32),
}

impl Event {
    fn parse(text: &str) -> Event {
        let mut words = text.split_whitespace();
        let kind = words.next().unwrap_or_default();
        let numbers: Vec<u32> = words.map(|word| word.parse().expect(text)).collect();
        match (kind, numbers.as_slice()) {
            ("init", &[additions, now_us, cwnd]) => {
                Event::Init(RawConfig { additions }, RawAck { now_us, cwnd, ..RawAck::default() })
            }
            ("ack", &[now_us, rtt_us, delivered, flight, cwnd, cwnd_max, mss, app_limited]) => {
                Event::Ack(RawAck { now_us, rtt_us, delivered, flight, cwnd, cwnd_max, mss, app_limited })
            }
            ("loss", &[cwnd, ssthresh, mss]) => {
                Event::Loss(RawAck { cwnd, mss, ..RawAck::default() }, ssthresh)
            }
            _ => panic!("no event: {text}"),
        }
    }
}

/// All files.
#[cfg(feature = "kernel")]
pub(crate) fn files() -> impl Iterator<Item = &'static str> {
    GENERATED.iter().map(|(_, text)| *text).chain([PAPER])
}

/// The events of a file, each with its line's number and the words behind its `=`.
pub(crate) fn events(text: &str) -> impl Iterator<Item = (usize, Event, String)> {
    text.lines().enumerate().filter_map(|(at, line)| {
        let line = line.split('#').next().unwrap_or_default().trim();
        let (event, expected) = line.split_once('=').unwrap_or((line, ""));
        let expected = expected.split_whitespace().collect::<Vec<_>>().join(" ");
        (!line.is_empty()).then(|| (at + 1, Event::parse(event), expected))
    })
}

/// What becomes of the connection.
fn replay(text: &str) -> RawFsat {
    let mut replay = Replay::default();
    for (line, event, expected) in events(text) {
        assert_eq!(replay.apply(&event), expected, "line {line}");
    }
    replay.state
}

/// Numbers that look random and are the same for the same seed (xorshift).
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 32) % u64::from(limit)) as u32
    }
}

/// The events of a connection of 1 Mbyte/s or so: its queue comes and goes, and now and then it idles. Or of few segments
/// in a buffer that others fill.
fn generate(course: Course, seed: u64) -> String {
    let Course { additions, filled, .. } = course;
    let mut numbers = Numbers(seed);
    let mut replay = Replay::default();
    let mut text = "# Generated by src/vectors.rs; see there.\n".to_owned();
    let mut now = u32::MAX - 3_000_000;
    let mut line = |event: String| {
        let result = replay.apply(&Event::parse(&event));
        let equals = if result.is_empty() { "" } else { " = " };
        writeln!(text, "{event}{equals}{result}").expect("it fits");
    };
    line(format!("init {additions} {now} 96000"));
    for n in 0..600 {
        let others = filled && n >= 40;
        let queue =
            if others { 700_000 + numbers.below(400_000) } else { numbers.below(60_000) * (n / 100 % 3) / 2 };
        let rest = if n % 97 == 0 {
            3_000_000
        } else if others {
            300_000
        } else {
            30_000
        };
        now = now.wrapping_add(1000 + numbers.below(rest));
        if numbers.below(if others { 12 } else { 25 }) == 0 {
            line(format!("loss {} {} 1448", 10_000 + numbers.below(90_000), 20_000 + numbers.below(90_000)));
        }
        let rtt = if numbers.below(10) == 0 { 0 } else { 60_000 + numbers.below(3000) + queue };
        let delivered = 1448 * numbers.below(5);
        let flight = if others { 6000 } else { 20_000 + queue } + numbers.below(20_000);
        let limited = u32::from(numbers.below(20) == 0);
        line(format!("ack {now} {rtt} {delivered} {flight} 90000 96000 1448 {limited}"));
    }
    text
}

#[test]
fn the_papers_equations_by_hand() {
    replay(PAPER);
}

#[test]
fn generated_events_give_what_they_gave() {
    for (_, text) in GENERATED {
        replay(text);
    }
}

#[test]
fn others_queue_comes_into_rtt_min_where_they_fill_the_buffer() {
    let filled = replay(GENERATED[2].1);
    assert!(filled.losses_congestion >= 12, "{filled:?}");
    assert!(filled.rtt_min_us > 2 * filled.rtt_least_us, "{filled:?}");
}

#[test]
fn the_generator_gives_what_is_committed() {
    for (course, text) in GENERATED {
        assert_eq!(
            generate(course, 7),
            text,
            "write them anew: cargo test -p flight write_vectors -- --ignored"
        );
    }
    assert_eq!(Additions::FSAT.bits(), 63);
}

#[test]
#[ignore = "writes tests/vectors anew, after the algorithm was meant to change"]
fn write_vectors() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors");
    for (course, _) in GENERATED {
        let file = format!("{folder}/{}-generated.txt", course.name);
        std::fs::write(file, generate(course, 7)).expect("write");
    }
}
