//! Traces: against a count by hand, over links, and every reason to refuse one.

mod common;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use common::*;
use link::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// The ms at which each of `frames` (arrival in ms, bytes) has been carried by opportunities at `stamps`:
/// one ms after the other, as mahimahi's `link_queue.cc` goes about it.
fn count_by_hand(stamps: &[u64], frames: &[(u64, usize)]) -> Vec<u64> {
    let period = *stamps.last().unwrap();
    let mut done = Vec::new();
    let mut rest: Vec<_> = frames.to_vec();
    for now in 1.. {
        let here = |stamp: &&u64| **stamp % period == now % period;
        let mut budget = 1500 * stamps.iter().filter(here).count();
        while let Some(left) = rest.get_mut(done.len()).filter(|(arrival, _)| *arrival <= now) {
            let used = left.1.min(budget);
            left.1 -= used;
            budget -= used;
            if left.1 > 0 {
                break;
            }
            done.push(now);
        }
        if done.len() == frames.len() {
            return done;
        }
    }
    unreachable!()
}

proptest! {
    #[test]
    fn mahimahi_traces_carry_as_counted_by_hand(
        mut stamps in vec(0u64..60, 0..60),
        last in 60u64..80,
        mut frames in vec((1u64..300, 1usize..4000), 1..60),
    ) {
        stamps.sort_unstable();
        stamps.push(last);
        frames.sort_unstable_by_key(|(arrival, _)| *arrival);
        let text: Vec<_> = stamps.iter().map(u64::to_string).collect();
        let trace = Trace::from_mahimahi(&text.join("\n")).unwrap();
        let config = LinkConfig { capacity: Capacity::Trace(trace.into()), ..LinkConfig::default() };
        let calls: Vec<_> = frames.iter().map(|(at, size)| (ms(*at), Call::Send(vec![0; *size]))).collect();
        let (arrivals, _) = polled_late(&config, 0, &calls);
        let millis: Vec<_> = arrivals.iter().map(|(arrival, _)| arrival.as_nanos()).collect();
        let by_hand: Vec<_> = count_by_hand(&stamps, &frames).iter().map(|at| ms(*at).as_nanos()).collect();
        prop_assert_eq!(millis, by_hand);
    }

    /// A backlogged trace carries its mean in every period, to the byte.
    #[test]
    fn every_period_carries_the_same(trace in trace(), periods in 1u32..1000) {
        let bits = trace.mean().as_bps() as f64 * trace.period().as_secs_f64() * f64::from(periods);
        let (done, _) = trace.carry(TracePosition::default(), Duration::ZERO, (bits / 8.0) as usize);
        let end = trace.period() * periods;
        prop_assert!(done <= end + Duration::from_nanos(1));
        let (beyond, _) = trace.carry(TracePosition::default(), Duration::ZERO, (bits / 8.0) as usize + 200_000);
        prop_assert!(beyond > end);
    }

    #[test]
    fn generated_traces_have_the_mean_they_were_asked_for(
        seed: u64, mbps in 0.1f64..200.0, variation in 0.0f64..1.0, seconds in 1u64..60,
    ) {
        let config = CellularConfig {
            mean: Bitrate::from_mbps(mbps),
            variation,
            duration: Duration::from_secs(seconds),
            ..CellularConfig::default()
        };
        let trace = Trace::cellular(seed, &config);
        prop_assert_eq!(trace.period(), config.duration);
        prop_assert!((trace.mean().as_mbps() / mbps - 1.0).abs() < 1e-3);
    }

    #[test]
    fn no_text_makes_a_parser_panic(text in "([0-9]{1,20}|[ \t\r\n.,eE+-]|nan|inf|.)*", start: u64, bytes: u32) {
        for trace in [Trace::from_mahimahi(&text), Trace::from_seconds_mbps(&text)].into_iter().flatten() {
            let (done, _) = trace.carry(TracePosition::default(), Duration::from_nanos(start), bytes as usize);
            prop_assert!(done >= Duration::from_nanos(start));
        }
    }
}

type Parser = fn(&str) -> Result<Trace, TraceError>;

/// File in `tests/corpus/FORMAT/`, and the sentence it is refused with.
type Refused = (&'static str, &'static str);

/// One file per reason to refuse a trace: folder, parser, files.
const REFUSED: [(&str, Parser, &[Refused]); 2] = [
    (
        "mahimahi",
        Trace::from_mahimahi,
        &[
            ("empty", "the trace has no lines"),
            ("blank", "the trace has no lines"),
            ("word", "line 2: \"five\" is no whole number of milliseconds"),
            ("fraction", "line 1: \"1.5\" is no whole number of milliseconds"),
            ("negative", "line 1: \"-3\" is no whole number of milliseconds"),
            ("two-fields", "line 3: 2 fields, but a line of this trace has 1"),
            ("falls", "line 3: this time is not after that of the line before; sort the trace by time"),
            ("too-long", "line 1: a trace is at most 30 days long"),
            ("overflow", "line 1: \"99999999999999999999\" is no whole number of milliseconds"),
            (
                "no-period",
                "line 2: the last timestamp is the trace's period in milliseconds and must be above 0",
            ),
        ],
    ),
    (
        "seconds-mbps",
        Trace::from_seconds_mbps,
        &[
            ("empty", "the trace has no lines"),
            ("one-field", "line 2: 1 fields, but a line of this trace has 2"),
            ("three-fields", "line 1: 3 fields, but a line of this trace has 2"),
            ("word-time", "line 1: \"now\" is no time in seconds"),
            ("word-rate", "line 1: \"fast\" is no rate in Mbit/s"),
            ("nan-time", "line 1: \"NaN\" is no time in seconds"),
            ("infinite-rate", "line 1: \"inf\" is no rate in Mbit/s"),
            ("negative-time", "line 1: a time lies within 0 and 30 days"),
            ("negative-rate", "line 2: a rate lies within 0 and 1000000 Mbit/s"),
            ("too-long", "line 2: a time lies within 0 and 30 days"),
            ("too-fast", "line 1: a rate lies within 0 and 1000000 Mbit/s"),
            ("repeats", "line 2: this time is not after that of the line before; sort the trace by time"),
            ("falls", "line 3: this time is not after that of the line before; sort the trace by time"),
            ("idle", "every rate of the trace is 0; it would never carry anything"),
        ],
    ),
];

fn corpus(format: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(format)
}

#[test]
fn every_reason_to_refuse_a_trace_has_its_sentence() {
    for (format, parse, cases) in REFUSED {
        for (name, sentence) in cases {
            let text = std::fs::read_to_string(corpus(format).join(name)).unwrap();
            let error = parse(&text).expect_err(name);
            assert_eq!(error.to_string(), *sentence, "{format}/{name}");
        }
    }
}

#[test]
fn every_file_of_the_corpus_is_replayed() {
    for (format, _, cases) in REFUSED {
        let entries = std::fs::read_dir(corpus(format)).unwrap();
        let files: BTreeSet<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        let named: BTreeSet<_> = cases.iter().map(|(name, _)| name.to_string()).collect();
        assert_eq!(files, named, "{format}");
    }
}
