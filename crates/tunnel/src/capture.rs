//! What a capture sees: every inner and outer packet, with the path that it took and what decided. An endpoint makes these notes only
//! while it is told to ([`Endpoint::set_captured`](crate::endpoint::Endpoint::set_captured)); else it tests one flag for each packet.

use std::net::SocketAddr;

use crate::wire::Kind;
use crate::wire::address::LocalAddress;
use crate::wire::frame::{Frame, Piece};

/// Which of the two packets it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// An IP packet in the clear, as the TUN has it.
    Inner,
    /// The UDP payload on a path.
    Outer,
}

/// Which way it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the peer.
    In,
    /// To the peer.
    Out,
}

/// The two ends of an outer packet, as this end's socket sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The peer's, or the relay's.
    pub remote: SocketAddr,
    /// This host's.
    pub local: LocalAddress,
    /// The traffic class.
    pub tos: u8,
}

/// A packet, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Which packet.
    pub layer: Layer,
    /// Which way.
    pub direction: Direction,
    /// The peer's name, where one is known.
    pub peer: Option<String>,
    /// The path's name, where it takes one.
    pub path: Option<String>,
    /// Of an outer packet.
    pub ends: Option<Ends>,
    /// Its bytes.
    pub packet: Vec<u8>,
    /// What decided, and what an outer packet carries.
    pub comment: String,
}

/// A transport packet before it is sealed, or after it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// The path's name.
    pub path: String,
    /// Its sequence on the path.
    pub sequence: u64,
    /// The frame in it; none if no key opened it.
    pub frame: Vec<u8>,
    /// The inner packet, where the frame is the last piece of it to go or to come.
    pub joined: Vec<u8>,
    /// What decided.
    pub why: String,
}

impl Opened {
    /// What it carries.
    fn content(&self) -> String {
        let Opened { sequence, frame, .. } = self;
        if frame.is_empty() {
            return format!("packet {sequence}");
        }
        let size = frame.len();
        let content = match Frame::parse(&mut frame.clone()) {
            Ok(Frame::Data(data, packet)) => {
                let again = if data.resend { " sent again" } else { "" };
                let piece = match data.piece {
                    Piece::WHOLE => String::new(),
                    Piece { index, of } => format!(", piece {} of {of}", index + 1),
                };
                format!("data, order {}{again}{piece}, {} bytes", data.order, packet.len())
            }
            Ok(Frame::Feedback(order, reports)) => {
                let largest =
                    reports.iter().filter_map(|r| Some(format!("path id {} up to {}", r.path, r.largest()?)));
                let largest: Vec<_> = largest.collect();
                format!("feedback: {}; floor {}", largest.join(", "), order.floor)
            }
            Ok(Frame::Announce(edition, paths)) => {
                let names: Vec<_> = paths.iter().map(|path| path.name.as_str()).collect();
                format!("announces, edition {edition}: {}", names.join(", "))
            }
            Ok(Frame::Probe(order, _)) => format!("probe of {size} bytes; next order {}", order.next),
            Ok(Frame::Challenge(_)) => "challenge".into(),
            Ok(Frame::Response(_)) => "answer to a challenge".into(),
            Err(error) => error.to_string(),
        };
        format!("packet {sequence}: {content}")
    }

    /// The inner packet in it, and its place in the order.
    fn inner(&self) -> Option<(Vec<u8>, u32, u16)> {
        match Frame::parse(&mut self.frame.clone()) {
            Ok(Frame::Data(data, whole)) => {
                let packet = if data.piece == Piece::WHOLE { whole.to_vec() } else { self.joined.clone() };
                Some((packet, data.order, data.behind))
            }
            _ => None,
        }
    }

    /// Notes both packets of `outer`, which was sealed or opened.
    pub fn note(
        &self,
        direction: Direction,
        peer: &str,
        ends: Ends,
        outer: &[u8],
        mut each: impl FnMut(Captured),
    ) {
        let (peer, path) = (Some(peer.to_owned()), Some(self.path.clone()));
        if let Some((packet, order, behind)) = self.inner().filter(|(packet, ..)| !packet.is_empty()) {
            let after = match behind {
                0 => String::new(),
                behind => format!(", after {}", order.wrapping_sub(behind.into())),
            };
            let why = if self.why.is_empty() { String::new() } else { format!("; {}", self.why) };
            let comment = format!("order {order}{after}{why}");
            let (layer, ends) = (Layer::Inner, None);
            each(Captured {
                layer,
                direction,
                peer: peer.clone(),
                path: path.clone(),
                ends,
                packet,
                comment,
            });
        }
        let mut comment = self.content();
        if self.frame.is_empty() && !self.why.is_empty() {
            comment += &format!("; {}", self.why);
        }
        let (layer, ends, packet) = (Layer::Outer, Some(ends), outer.to_vec());
        each(Captured { layer, direction, peer, path, ends, packet, comment });
    }
}

/// Of an outer packet that is no transport packet of a peer's.
pub fn other(direction: Direction, ends: Ends, outer: &[u8], why: &str) -> Captured {
    let kind = crate::wire::peel(outer).map_or(outer, |(.., inner)| inner);
    let kind = match Kind::of(kind) {
        Ok(Kind::Initiation) => "handshake: initiation".to_owned(),
        Ok(Kind::Response) => "handshake: response".to_owned(),
        Ok(Kind::CookieReply) => "handshake: cookie reply".to_owned(),
        Ok(Kind::Transport) => "transport".to_owned(),
        Ok(Kind::Registered) => "relay: registered".to_owned(),
        Ok(Kind::RelayUp | Kind::RelayDown) => "relay: data in data".to_owned(),
        Ok(Kind::Challenge) => "relay: challenge".to_owned(),
        Ok(Kind::Echo) => "relay: echo".to_owned(),
        Err(error) => error.to_string(),
    };
    let comment = if why.is_empty() { kind } else { format!("{kind}; {why}") };
    Captured {
        layer: Layer::Outer,
        direction,
        peer: None,
        path: None,
        ends: Some(ends),
        packet: outer.to_vec(),
        comment,
    }
}

/// Of an inner packet that goes nowhere.
pub fn dropped(direction: Direction, peer: Option<&str>, packet: &[u8], why: &str) -> Captured {
    Captured {
        layer: Layer::Inner,
        direction,
        peer: peer.map(str::to_owned),
        path: None,
        ends: None,
        packet: packet.to_vec(),
        comment: format!("dropped: {why}"),
    }
}

/// What is noted of the datagrams of a train while it is filled.
#[derive(Debug, Default)]
pub struct TrainNotes {
    peer: String,
    /// Each with the place of its datagram in the train.
    opened: Vec<(usize, Opened)>,
}

impl TrainNotes {
    /// Empties it.
    pub fn clear(&mut self) {
        self.peer.clear();
        self.opened.clear();
    }

    /// The train is for this peer.
    pub fn set_peer(&mut self, peer: &str) {
        peer.clone_into(&mut self.peer);
    }

    /// Datagram `at` is this, sealed.
    pub fn push(&mut self, at: usize, opened: Opened) {
        self.opened.push((at, opened));
    }

    /// The last one is the last piece of `packet`.
    pub fn join(&mut self, packet: &[u8]) {
        if let Some((_, last)) = self.opened.last_mut() {
            last.joined = packet.to_vec();
        }
    }

    /// What decided about the last one.
    pub fn remark(&mut self, why: String) {
        if let Some((_, last)) = self.opened.last_mut() {
            last.why = why;
        }
    }

    /// Tells of all datagrams of the train, which goes between `ends`.
    pub fn tell<'a>(
        &self,
        ends: Ends,
        datagrams: impl Iterator<Item = &'a [u8]>,
        mut each: impl FnMut(Captured),
    ) {
        for (at, datagram) in datagrams.enumerate() {
            match self.opened.iter().find(|(place, _)| *place == at) {
                Some((_, opened)) => opened.note(Direction::Out, &self.peer, ends, datagram, &mut each),
                None => each(Captured {
                    peer: (!self.peer.is_empty()).then(|| self.peer.clone()),
                    ..other(Direction::Out, ends, datagram, "")
                }),
            }
        }
    }
}
