//! The fuzzers' corpus on stable Rust: one input per reason to reject, and no input that makes anything panic.

#[path = "../../packet/tests/common/corpus.rs"]
mod files;
#[path = "../fuzz/models.rs"]
mod models;
mod sim;
#[path = "../fuzz/targets.rs"]
mod targets;

use files::corpus;
use tunnel::wire::frame::{Frame, FrameError};
use tunnel::wire::{Kind, Message, WireError};

#[test]
fn no_input_of_the_corpus_makes_a_target_panic() {
    files::replay(&[
        ("pieces", targets::pieces),
        ("capture", targets::capture),
        ("wire", targets::wire),
        ("dns", targets::dns),
        ("tls-frames", targets::tls_frames),
        ("frame", targets::frame),
        ("endpoint", targets::endpoint),
        ("session", targets::session),
        ("relay", targets::relay),
        ("handshake", targets::handshake),
        ("replay", models::replay),
        ("network", models::network),
        ("relay-model", models::relay_model),
    ]);
}

#[test]
fn every_reason_to_reject_a_datagram_has_its_file() {
    let length = |kind, got, expected| Some(WireError::Length { kind, got, expected });
    let reserved = |kind| Some(WireError::Reserved(kind));
    let expected = [
        ("empty", Some(WireError::Empty)),
        ("version", Some(WireError::Version(2))),
        ("type", Some(WireError::Type(15))),
        ("short-initiation", length(Kind::Initiation, 167, 168)),
        ("long-response", length(Kind::Response, 125, 124)),
        ("short-cookie-reply", length(Kind::CookieReply, 63, 64)),
        ("short-transport", length(Kind::Transport, 31, 32)),
        ("short-registered", length(Kind::Registered, 39, 40)),
        ("short-relay-up", length(Kind::RelayUp, 12, 13)),
        ("empty-relay-down", length(Kind::RelayDown, 12, 13)),
        ("long-challenge", length(Kind::Challenge, 29, 28)),
        ("short-echo", length(Kind::Echo, 27, 28)),
        ("reserved-initiation", reserved(Kind::Initiation)),
        ("reserved-transport", reserved(Kind::Transport)),
        ("reserved-relay-up", reserved(Kind::RelayUp)),
    ];
    let mut files = corpus("wire");
    for (name, error) in expected {
        let bytes = files.remove(name).unwrap_or_else(|| panic!("no file {name}"));
        assert_eq!(Message::parse(&bytes).err(), error, "{name}");
    }
    for (name, bytes) in files {
        assert!(name.starts_with("good-") && Message::parse(&bytes).is_ok(), "{name}");
    }
}

#[test]
fn every_reason_to_reject_a_frame_has_its_file() {
    let reasons = [
        ("empty", FrameError::Truncated),
        ("cut-", FrameError::Truncated),
        ("kind", FrameError::Kind),
        ("range-", FrameError::Range),
        ("name-", FrameError::Name),
        ("piece-", FrameError::Piece),
    ];
    for (name, mut bytes) in corpus("frame") {
        let reason = reasons.iter().find(|(start, _)| name.starts_with(start)).map(|(_, error)| *error);
        assert_eq!(Frame::parse(&mut bytes).err(), reason, "{name}");
        assert!(reason.is_some() || name.starts_with("good-"), "{name}");
    }
}
