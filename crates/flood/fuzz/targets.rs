//! What the fuzzer calls, and `tests/corpus.rs` on stable Rust. No bytes may make it panic.

use std::time::Duration;

use flood::{Format, Padding, RateLimit, Rules, Verdict, Window, Wire};

/// The key under which the corpus' tags are right.
pub const KEY: [u8; 16] = *b"flood's test key";

/// Byte 0: bit 0 the wire version, bit 1 a key, bit 2 Ethernet's padding, bit 3 a rate limit; then a frame. Returns what
/// becomes of it.
pub fn frame(data: &[u8]) -> Option<Verdict> {
    let (&[how], bytes) = data.split_first_chunk()?;
    let wire = if how & 1 == 0 { Wire::Paper } else { Wire::One };
    let format = Format::new(wire, (how & 2 != 0).then_some(KEY));
    let padding = if how & 4 == 0 { Padding::None } else { Padding::Ethernet };
    let rate_limit = (how & 8 != 0).then_some(RateLimit { frames_per_s: 1 });
    let mut window = Window::new(Rules { format, id: 1, rate_limit });
    let heard = window.handle_frame(Duration::ZERO, bytes, padding);
    if let Ok(frame) = heard {
        let written = format.write(&frame.header, frame.data);
        let again = format.read(&written, Padding::None).expect("what was read can be written");
        assert_eq!(again, frame);
        if let Some(relayed) = format.relayed(&frame, bytes) {
            let next = format.read(&relayed, Padding::None).expect("what goes on is a frame");
            assert!(format.tag_is_good(&next, &relayed) && next.header.ttl == frame.header.ttl - 1);
        }
        let twice = window.handle_frame(Duration::ZERO, bytes, padding);
        assert_eq!(twice, Err(Verdict::Duplicate));
    }
    Some(heard.err().unwrap_or(Verdict::New))
}
