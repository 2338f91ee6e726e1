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

use std::path::Path;

// A file is taken, or there is a complaint with a line of its own for each thing that is wrong with it.
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // A text could name any file as a key, and this opens it.
    if text.contains("/dev") {
        return;
    }
    if let Err(complaints) = config::parse(Path::new("/nowhere/nawa.toml"), text) {
        assert!(!complaints.is_empty());
        assert!(complaints.iter().all(|complaint| complaint.to_string().starts_with("/nowhere/nawa.toml:")));
    }
});
