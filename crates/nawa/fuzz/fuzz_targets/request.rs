//! `nawa` has no library: what is fuzzed is included as source.
#![no_main]
#![allow(dead_code, unused_imports)]

#[path = "../../src/config/mod.rs"]
mod config;
#[path = "../../src/control/mod.rs"]
mod control;
#[path = "../../src/failure.rs"]
mod failure;
#[path = "../../src/incoming.rs"]
mod incoming;

// A line is refused, or is a request that says the same when written again.
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(request) = serde_json::from_slice::<control::Request>(data) else { return };
    let again = serde_json::to_string(&request).expect("a request is JSON");
    let read: control::Request = serde_json::from_str(&again).expect("its own request");
    assert_eq!(serde_json::to_string(&read).ok(), Some(again));
});
