//! The fuzzers' corpus on stable Rust: one input per reason to reject, and no input that makes anything panic.

#[path = "common/corpus.rs"]
mod files;
#[path = "../fuzz/targets.rs"]
mod targets;

use files::corpus;
use packet::gso::{self, Segmentation};
use packet::sctp::{Content, SctpError};
use packet::{DataFrame, Dot11Error, Ip, PacketError, Sctp};

#[test]
fn no_input_of_the_corpus_makes_a_target_panic() {
    files::replay(&[
        ("views", targets::views),
        ("gso", targets::gso),
        ("gro", targets::gro),
        ("sctp", targets::sctp),
        ("dot11", targets::dot11),
    ]);
}

#[test]
fn every_reason_to_reject_a_frame_off_the_air_has_its_file() {
    let files = corpus("dot11");
    let error = |name: &str| DataFrame::parse(&files[name]).expect_err(name);
    assert_eq!(error("empty"), Dot11Error::Short { need: 4, have: 0 });
    assert_eq!(error("radiotap-cut"), Dot11Error::Short { need: 255, have: 50 });
    assert_eq!(error("header-cut"), Dot11Error::Short { need: 24, have: 20 });
    assert_eq!(error("radiotap-version"), Dot11Error::Version(1));
    assert_eq!(error("version"), Dot11Error::Version(1));
    assert_eq!(error("damaged"), Dot11Error::Damaged);
    assert_eq!(error("beacon"), Dot11Error::NoData);
    assert_eq!(error("fragment"), Dot11Error::Fragment);
    for (name, bytes) in files.iter().filter(|(name, _)| name.starts_with("good-")) {
        assert!(DataFrame::parse(bytes).is_ok(), "{name}");
    }
}

#[test]
fn every_reason_to_reject_a_packet_has_its_file() {
    let files = corpus("views");
    let is = |name: &str, right: fn(&PacketError) -> bool| {
        let error = Ip::parse(&files[name]).expect_err(name);
        assert!(right(&error), "{name}: {error}");
    };
    for name in ["empty", "one-byte", "short-v4", "short-v6", "extension-cut"] {
        is(name, |e| matches!(e, PacketError::Short { .. }));
    }
    is("version", |e| *e == PacketError::Version(5));
    for name in ["length-v4-more", "length-v4-less", "length-v6"] {
        is(name, |e| matches!(e, PacketError::Length { .. }));
    }
    for name in ["header-length-v4-small", "header-length-v4-beyond"] {
        is(name, |e| matches!(e, PacketError::HeaderLength(_)));
    }
    is("extensions-many", |e| matches!(e, PacketError::Extensions(_)));
    for (name, bytes) in files.iter().filter(|(name, _)| name.starts_with("good-")) {
        assert!(Ip::parse(bytes).is_ok(), "{name}");
    }
}

#[test]
fn every_reason_to_refuse_to_cut_a_packet_has_its_file() {
    let files = corpus("gso");
    let cut = |name: &str| {
        let (head, packet) = files[name].split_first_chunk::<3>().expect(name);
        let kind = if head[0] & 1 == 0 { Segmentation::Tcp } else { Segmentation::Udp };
        let size = usize::from(u16::from_be_bytes([head[1], head[2]]));
        gso::split(&mut packet.to_vec(), kind, size, |_| ())
    };
    for name in ["size-zero", "udp-as-tcp", "tcp-as-udp", "fragment", "tcp-offset"] {
        assert!(matches!(cut(name), Err(PacketError::Segmentation(_))), "{name}: {:?}", cut(name));
    }
    assert!(matches!(cut("version"), Err(PacketError::Version(5))));
    assert!(matches!(cut("short"), Err(PacketError::Short { .. })));
    for (name, count) in [("good-tcp", 10), ("good-tcp-v6", 10), ("good-udp", 3), ("good-udp-v6", 9)] {
        assert_eq!(cut(name), Ok(count), "{name}");
    }
}

/// The first thing in the packet that is refused.
fn sctp_error(bytes: &[u8]) -> Option<SctpError> {
    let read = |bytes| {
        for chunk in Sctp::from_bytes(bytes)?.chunks() {
            if let Content::Init(init) = chunk?.content()? {
                { init.parameters }.try_for_each(|parameter| parameter?.address().map(drop))?;
            }
        }
        Ok(())
    };
    read(bytes).err()
}

#[test]
fn every_reason_to_refuse_sctp_has_its_file() {
    let files = corpus("sctp");
    let is = |name: &str, right: fn(&SctpError) -> bool| {
        let error = sctp_error(&files[name]).expect(name);
        assert!(right(&error), "{name}: {error}");
    };
    for name in ["empty", "header-cut"] {
        is(name, |e| matches!(e, SctpError::Short(_)));
    }
    for name in ["chunk-length-zero", "chunk-length-beyond", "chunk-cut", "parameter-length-zero"] {
        is(name, |e| matches!(e, SctpError::Length { .. }));
    }
    for name in ["data-cut", "init-cut", "sack-cut", "sack-counts", "shutdown-cut", "asconf-cut"] {
        is(name, |e| matches!(e, SctpError::Content { .. }));
    }
    is("init-address-length", |e| matches!(e, SctpError::Address { .. }));
    for (name, bytes) in files.iter().filter(|(name, _)| name.starts_with("good-")) {
        let bytes = Ip::parse(bytes).map_or(&bytes[..], |ip| ip.payload());
        assert_eq!(sctp_error(bytes), None, "{name}");
    }
}
