//! `tests/vectors/*.txt`: what is done to a connection and what becomes of it, line by line.
//!
//!     init FSAT NOW FLIGHT_LIMIT
//!     ack NOW RTT DELIVERED FLIGHT CWND CWND_MAX MSS APP_LIMITED [LOST] = TARGET SPACE RTT_MIN RCV_BYTES WINDOW RATE
//!     loss CWND SSTHRESH MSS = SSTHRESH
//!
//! FSAT is 0 for the paper's rules, 1 for `fsat`'s. Bytes and microseconds, the latter wrapping; TARGET is `-` where nothing is
//! limited; an SSTHRESH of 0 leaves it to the base. `#` begins a comment.

use std::fmt::Write;

use crate::ffi::{Constants, NO_LIMIT, RawAck, RawFsat};

/// Worked by hand.
const PAPER: &str = include_str!("../tests/vectors/paper.txt");
/// Generated: what changes in the algorithm shows in what changes in them.
const GENERATED: [(Course, &str); 2] = [
    (Course { name: "fsat_paper", paper: true }, include_str!("../tests/vectors/fsat_paper-generated.txt")),
    (Course { name: "fsat", paper: false }, include_str!("../tests/vectors/fsat-generated.txt")),
];

/// What a generated connection goes through.
#[derive(Clone, Copy)]
struct Course {
    /// Of its file.
    name: &'static str,
    paper: bool,
}

/// A connection that does what lines say.
#[derive(Default)]
struct Replay {
    paper: bool,
    state: RawFsat,
}

impl Replay {
    /// What comes of `event`, in the words that stand behind its `=`.
    fn apply(&mut self, event: &Event) -> String {
        match event {
            Event::Init(paper, ack) => {
                self.paper = *paper;
                self.state = RawFsat::new(ack.now_us, ack.cwnd);
                String::new()
            }
            Event::Ack(ack) => self.ack(ack),
            Event::Loss(ack, ssthresh) if self.paper => {
                self.state.paper_on_loss(ack.cwnd, *ssthresh, ack.mss).to_string()
            }
            Event::Loss(ack, ssthresh) => {
                self.state.on_loss(&Constants::default(), ack.cwnd, *ssthresh).to_string()
            }
        }
    }

    fn ack(&mut self, ack: &RawAck) -> String {
        let (constants, state) = (Constants::default(), &mut self.state);
        let (window, rate) = if self.paper {
            state.paper_on_ack(ack);
            (state.paper_window(ack.cwnd, ack.mss), 0)
        } else {
            state.on_ack(&constants, ack);
            (state.window(&constants, ack), state.pacing_rate(&constants, ack))
        };
        let target = if state.target == NO_LIMIT { "-".to_owned() } else { state.target.to_string() };
        format!("{target} {} {} {} {window} {rate}", state.space, state.rtt_min_us, state.rcv_bytes)
    }
}

/// What a line says that happens.
pub(crate) enum Event {
    /// A connection begins, by the paper's rules or `fsat`'s, at `now_us`, with `cwnd` as its limit.
    Init(bool, RawAck),
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
            ("init", &[fsat, now_us, cwnd]) => {
                Event::Init(fsat == 0, RawAck { now_us, cwnd, ..RawAck::default() })
            }
            (
                "ack",
                &[now_us, rtt_us, delivered, flight, cwnd, cwnd_max, mss, app_limited, ref rest @ ..],
            ) => {
                let lost = rest.first().copied().unwrap_or_default();
                Event::Ack(RawAck {
                    now_us,
                    rtt_us,
                    delivered,
                    lost,
                    flight,
                    cwnd,
                    cwnd_max,
                    mss,
                    app_limited,
                })
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

/// The events of a connection of 1 Mbyte/s or so: its queue comes and goes, and now and then it idles.
fn generate(course: Course, seed: u64) -> String {
    let mut numbers = Numbers(seed);
    let mut lost = Numbers(seed + 1);
    let mut replay = Replay::default();
    let mut text = "# Generated by src/vectors.rs; see there.\n".to_owned();
    let mut now = u32::MAX - 3_000_000;
    let mut line = |event: String| {
        let result = replay.apply(&Event::parse(&event));
        let equals = if result.is_empty() { "" } else { " = " };
        writeln!(text, "{event}{equals}{result}").expect("it fits");
    };
    line(format!("init {} {now} 96000", u32::from(!course.paper)));
    for n in 0..600 {
        let queue = numbers.below(60_000) * (n / 100 % 3) / 2;
        let rest = if n % 97 == 0 { 3_000_000 } else { 30_000 };
        now = now.wrapping_add(1000 + numbers.below(rest));
        if numbers.below(25) == 0 {
            line(format!("loss {} {} 1448", 10_000 + numbers.below(90_000), 20_000 + numbers.below(90_000)));
        }
        let rtt = if numbers.below(10) == 0 { 0 } else { 60_000 + numbers.below(3000) + queue };
        let delivered = 1448 * numbers.below(5);
        let flight = 20_000 + queue + numbers.below(20_000);
        let limited = u32::from(numbers.below(20) == 0);
        let lost = 1448 * lost.below(40).saturating_sub(37);
        let lost = if course.paper { String::new() } else { format!(" {lost}") };
        line(format!("ack {now} {rtt} {delivered} {flight} 90000 96000 1448 {limited}{lost}"));
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
fn the_generator_gives_what_is_committed() {
    for (course, text) in GENERATED {
        let same = generate(course, 7) == text;
        assert!(same, "{}: write them anew: cargo test -p flight write_vectors -- --ignored", course.name);
    }
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
