//! What the fuzzers call, and `tests/corpus.rs` on stable Rust. No bytes may make it panic, or a layer keep more than it
//! may.
#![allow(dead_code, reason = "each fuzzer calls one of these")]

use std::time::Duration;

use coding::header::Header;
use coding::{Config, Mac, Mode, NcLayer};

/// What follows the NC EtherType. A sum is written as it was read.
pub fn header(data: &[u8]) {
    if let Ok(Header::Coded(coded)) = Header::parse(data) {
        let mut again = Vec::new();
        coded.emit(&mut again);
        assert_eq!(again, data[..again.len()]);
    }
}

/// Frames to a relay of any mode, from its IP and from its neighbours. First the mode, then per frame: the side, the
/// length in two bytes, the frame.
pub fn layer(data: &[u8]) {
    let Some((mode, mut rest)) = data.split_first() else { return };
    let mode = Mode::ALL[usize::from(mode % 5)];
    let mac = Mac([2, 0, 0, 0, 0, 2]);
    let (wait, thin_acks) = (Duration::from_millis(2), mode == Mode::Any);
    let mut layer = NcLayer::new(Config { mode, wait, thin_acks, mac, mtu: 1560, ..Config::default() }, 1);
    let mut now = Duration::ZERO;
    while let Some((&[side, high, low], after)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes([high, low])).min(after.len());
        let (frame, after) = after.split_at(length);
        rest = after;
        now += Duration::from_micros(700);
        if side % 2 == 0 {
            layer.handle_master(now, frame.to_vec())
        } else {
            layer.handle_slave(now, frame)
        }
        while let Some(handed) = layer.poll_master() {
            layer.handle_master(now, handed);
        }
        if side % 4 < 2 {
            layer.poll_slave(now);
        }
    }
    while layer.poll_timeout().is_some() {
        now += Duration::from_millis(2);
        layer.poll_slave(now);
    }
    assert_eq!((layer.kept(now).queued, layer.kept(now).held), (0, 0));
}
