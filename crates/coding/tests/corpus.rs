//! The fuzzers' corpus on stable Rust: one input per reason to reject, and no input that makes anything panic.

#[path = "../../packet/tests/common/corpus.rs"]
mod files;
#[path = "../fuzz/targets.rs"]
mod targets;

use coding::header::{Header, HeaderError};
use files::corpus;

#[test]
fn no_input_of_the_corpus_makes_a_target_panic() {
    files::replay(&[("header", targets::header), ("layer", targets::layer)]);
}

#[test]
fn every_reason_to_reject_a_header_has_its_file() {
    let files = corpus("header");
    let error = |name: &str| Header::parse(&files[name]).expect_err(name);
    assert_eq!(error("empty"), HeaderError::Short);
    assert_eq!(error("one-byte"), HeaderError::Short);
    assert_eq!(error("version"), HeaderError::Version);
    assert_eq!(error("kind"), HeaderError::Kind);
    assert_eq!(error("reserved"), HeaderError::Reserved);
    assert_eq!(error("plain-short"), HeaderError::Short);
    assert_eq!(error("reserved-coded"), HeaderError::Reserved);
    assert_eq!(error("coded-short"), HeaderError::Short);
    assert_eq!(error("report-short"), HeaderError::Short);
    assert_eq!(error("greeting-short"), HeaderError::Short);
    assert_eq!(error("reserved-greeting"), HeaderError::Reserved);
    assert_eq!(error("length-first"), HeaderError::Length);
    assert_eq!(error("length-second"), HeaderError::Length);
    assert_eq!(error("sum-short"), HeaderError::Sum);
    for (name, bytes) in files.iter().filter(|(name, _)| name.starts_with("good-")) {
        assert!(Header::parse(bytes).is_ok(), "{name}");
    }
}
