//! The fuzzer's corpus on stable Rust: one input per reason to drop a frame that a single frame can have, and no input
//! that makes anything panic.

#[path = "../../packet/tests/common/corpus.rs"]
mod files;
#[path = "../fuzz/targets.rs"]
mod targets;

use std::fs;
use std::path::{Path, PathBuf};

use flood::{Format, Header, Kind, Wire};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/frame")
}

#[test]
fn every_reason_has_its_file() {
    let files = files::corpus("frame");
    for reason in ["new", "short", "version", "length", "ttl", "own", "bad-tag"] {
        let mut named = files.iter().filter(|(name, _)| name.starts_with(reason)).peekable();
        assert!(named.peek().is_some(), "no file {reason}");
        for (name, bytes) in named {
            let verdict = targets::frame(bytes).expect(name);
            assert_eq!(verdict.name(), reason, "{name}");
        }
    }
    for bytes in files.values() {
        let _ = targets::frame(bytes);
    }
}

#[test]
#[ignore = "writes tests/corpus/frame anew, after the format was meant to change"]
fn write_corpus() {
    let header = Header { id: 7, epoch: 3, seq: 9, ttl: 5, kind: Kind::Data };
    let write = |name: &str, how: u8, frame: &[u8]| {
        fs::write(folder().join(name), [&[how], frame].concat()).expect("a file");
    };
    let [zero, one, keyed] = [(Wire::Paper, None), (Wire::One, None), (Wire::One, Some(targets::KEY))]
        .map(|(w, k)| Format::new(w, k));
    for (name, how, format) in [("wire-0", 0, zero), ("wire-1", 1, one), ("keyed", 3, keyed)] {
        let good = format.write(&header, b"a message of some bytes");
        let changed = |at: usize, to: u8| {
            let mut bytes = good.clone();
            bytes[at] = to;
            bytes
        };
        write(&format!("new-{name}"), how, &good);
        write(&format!("new-limited-{name}"), how | 8, &good);
        write(&format!("short-{name}"), how, &good[..4]);
        write(&format!("short-nothing-{name}"), how, &[]);
        write(&format!("length-cut-{name}"), how, &good[..good.len() - 1]);
        let mut padded = format.write(&header, b"x");
        padded.resize(46, 0);
        write(&format!("new-padded-{name}"), how | 4, &padded);
        write(&format!("length-padded-{name}"), how, &padded);
        write(&format!("own-{name}"), how, &format.write(&Header { id: 1, ..header }, b""));
        write(&format!("ttl-{name}"), how, &changed(if how == 0 { 2 } else { 1 }, 0));
        if how != 0 {
            write(&format!("version-{name}"), how, &changed(0, 0x20));
            write(&format!("version-kind-{name}"), how, &changed(0, 0x1f));
        }
    }
    write("bad-tag-forged", 3, &Format::new(Wire::One, Some([1; 16])).write(&header, b"forged"));
    write("bad-tag-none", 3, &one.write(&header, b"not even tried"));
}
