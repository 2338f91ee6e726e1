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
    assert_eq!(error("empty"), HeaderError::Short { need: 2, have: 0 });
    assert_eq!(error("one-byte"), HeaderError::Short { need: 2, have: 1 });
    assert_eq!(error("version"), HeaderError::Version(1));
    assert_eq!(error("kind"), HeaderError::Kind(9));
    assert_eq!(error("reserved"), HeaderError::Reserved(0x80));
    assert_eq!(error("plain-short"), HeaderError::Short { need: 10, have: 9 });
    assert_eq!(error("reserved-coded"), HeaderError::Reserved(0xc0));
    assert_eq!(error("coded-short"), HeaderError::Short { need: 26, have: 25 });
    assert_eq!(error("report-short"), HeaderError::Short { need: 22, have: 21 });
    assert_eq!(error("greeting-short"), HeaderError::Short { need: 10, have: 9 });
    assert_eq!(error("reserved-greeting"), HeaderError::Reserved(0x40));
    assert_eq!(error("length-first"), HeaderError::Length(19));
    assert_eq!(error("length-second"), HeaderError::Length(0));
    assert_eq!(error("sum-short"), HeaderError::Sum { need: 40, have: 39 });
    for (name, bytes) in files.iter().filter(|(name, _)| name.starts_with("good-")) {
        assert!(Header::parse(bytes).is_ok(), "{name}");
    }
}
