//! What the fuzzers call, and `tests/corpus.rs` on stable Rust. No text may make it panic.
#![allow(dead_code, reason = "each fuzzer calls one of these")]

use std::time::Duration;

use link::{Trace, TracePosition};

/// A mahimahi trace.
pub fn mahimahi(data: &[u8]) {
    carry(data, |text| Trace::from_mahimahi(text).ok());
}

/// A `seconds Mbit/s` trace.
pub fn seconds_mbps(data: &[u8]) {
    carry(data, |text| Trace::from_seconds_mbps(text).ok());
}

/// What was parsed carries frames and never finishes before it began.
fn carry(data: &[u8], parse: impl Fn(&str) -> Option<Trace>) {
    let Some(trace) = std::str::from_utf8(data).ok().and_then(parse) else { return };
    let (mut position, mut now) = (TracePosition::default(), Duration::from_millis(7));
    for size in [0, 1, 60, 1514, 65_536, 1514] {
        let (done, next) = trace.carry(position, now, size);
        assert!(done >= now);
        (position, now) = (next, done);
    }
}
