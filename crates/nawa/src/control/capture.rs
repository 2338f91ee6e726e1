//! Captured packets on the control socket: after the answer `{"capturing":"nawa0"}`, which names the inner interface, a line for each
//! packet until either end closes the connection, and one for what a slow reader has missed since the line before. The daemon waits
//! for no reader. Lines are JSON like all others, for a reader that is no `nawa`; packets are in base64.

use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::net::RecvFlags;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tunnel::capture::{Direction, Layer};
pub use tunnel::daemon::Wanted;
use tunnel::daemon::{Capture, Taken};

/// How often it is looked whether the reader is there, while there is nothing to write.
const LOOK: Duration = Duration::from_millis(500);

/// A line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Line {
    /// A packet.
    Packet(Packet),
    /// So many packets since the line before are lost, because they were not read in time.
    Missed {
        /// How many.
        missed: u64,
    },
    /// Why there will be no more.
    Error {
        /// A sentence.
        error: String,
    },
}

/// A captured packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packet {
    /// Since 1970.
    pub time_ns: u64,
    /// Which of the two packets it is.
    pub layer: Layer,
    /// Which way it goes.
    pub direction: Direction,
    /// Whose it is, where that is known.
    pub peer: Option<String>,
    /// Over which path it goes, where it does.
    pub path: Option<String>,
    /// This host's end of an outer packet; address 0 where the kernel chooses it.
    pub local: Option<SocketAddr>,
    /// The other end.
    pub remote: Option<SocketAddr>,
    /// The traffic class of an outer packet.
    pub tos: Option<u8>,
    /// What decided.
    pub comment: String,
    /// An IP packet, or an outer packet's UDP payload, in base64.
    pub packet: String,
}

impl Packet {
    fn of(taken: &Taken) -> Packet {
        let Taken { time, local, captured } = taken;
        Packet {
            time_ns: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
            layer: captured.layer,
            direction: captured.direction,
            peer: captured.peer.clone(),
            path: captured.path.clone(),
            local: *local,
            remote: captured.ends.map(|ends| ends.remote),
            tos: captured.ends.map(|ends| ends.tos),
            comment: captured.comment.clone(),
            packet: STANDARD.encode(&captured.packet),
        }
    }

    /// Its bytes; `None` if they are none.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        STANDARD.decode(&self.packet).ok()
    }
}

/// Writes what is captured until the reader or the tunnel has gone.
///
/// # Errors
/// The reader takes nothing: `WouldBlock` once that has lasted as long as a write may.
pub fn serve(stream: &UnixStream, interface: &str, capture: &Capture) -> std::io::Result<()> {
    let mut out = BufWriter::new(stream);
    let written = write(&mut out, stream, interface, capture);
    // What is left would wait once more if it was dropped with the writer.
    drop(out.into_parts());
    written
}

fn write(
    out: &mut impl Write,
    stream: &UnixStream,
    interface: &str,
    capture: &Capture,
) -> std::io::Result<()> {
    writeln!(out, "{}", json!({"capturing": interface}))?;
    out.flush()?;
    while let Some(batch) = capture.take(LOOK) {
        if batch.taken.is_empty() && has_ended(stream) {
            return Ok(());
        }
        for taken in &batch.taken {
            put(out, &Line::Packet(Packet::of(taken)))?;
        }
        if batch.missed > 0 {
            put(out, &Line::Missed { missed: batch.missed })?;
        }
        out.flush()?;
    }
    put(out, &Line::Error { error: "the tunnel has ended".into() })?;
    out.flush()
}

fn put(out: &mut impl Write, line: &Line) -> std::io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

/// Whether the reader has closed the connection.
fn has_ended(stream: &UnixStream) -> bool {
    let looked = rustix::net::recv(stream, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
    looked.is_ok_and(|(_, length)| length == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What programs rely on.
    #[test]
    fn a_line_is_json_with_its_units() {
        let ends = tunnel::capture::Ends {
            remote: "203.0.113.7:51900".parse().expect("an address"),
            local: tunnel::wire::address::LocalAddress::default(),
            tos: 2,
        };
        let mut captured = tunnel::capture::other(Direction::In, ends, &[0x11], "");
        captured.path = Some("lte".into());
        let local = Some("192.0.2.1:7".parse().expect("an address"));
        let taken = Taken { time: Duration::from_nanos(1_700_000_000_000_000_001), local, captured };
        let line = serde_json::to_string(&Line::Packet(Packet::of(&taken))).expect("JSON");
        let expected = r#"{"time_ns":1700000000000000001,"layer":"outer","direction":"in","peer":null,"path":"lte","local":"192.0.2.1:7","remote":"203.0.113.7:51900","tos":2,"comment":"handshake: initiation","packet":"EQ=="}"#;
        assert_eq!(line, expected);
        let read = |text: &str| serde_json::from_str::<Line>(text).ok();
        assert_eq!(read(expected), Some(Line::Packet(Packet::of(&taken))));
        assert_eq!(read(r#"{"missed":37}"#), Some(Line::Missed { missed: 37 }));
        assert_eq!(read(r#"{"error":"x"}"#), Some(Line::Error { error: "x".into() }));
        assert_eq!(read("{}"), None);
    }

    #[test]
    fn both_layers_are_captured_unless_said_otherwise() {
        let read = |text: &str| serde_json::from_str::<crate::control::Request>(text).ok();
        let both = Wanted { peer: None, path: None, inner: true, outer: true };
        assert_eq!(read(r#"{"command":"capture"}"#), Some(crate::control::Request::Capture(both)));
        assert_eq!(read(r#"{"command":"capture","layers":2}"#), None);
    }
}
