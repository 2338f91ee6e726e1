//! Data frames of IEEE 802.11 as a monitor interface hands them out, behind a radiotap header (radiotap.org; IEEE 802.11-2020
//! §9.2 and §9.3.2): who sent them to whom, and the Ethernet frames in them.

/// A MAC address.
type Address = [u8; 6];

/// `it_present`: more such words follow, a field of 8 bytes is there, one of flags, one that only sent frames have.
const PRESENT_MORE: u32 = 1 << 31;
const PRESENT_TIME: u32 = 1;
const PRESENT_FLAGS: u32 = 1 << 1;
const PRESENT_TX_FLAGS: u32 = 1 << 15;
/// Radiotap's flags: the frame ends with its check sequence, which is wrong.
const FLAG_CHECKED: u8 = 0x10;
const FLAG_WRONG: u8 = 0x40;
/// Bytes of a frame check sequence.
const CHECK: usize = 4;
/// Of the first byte of a frame: protocol version, type, subtypes without data and with a QoS field.
const VERSION: u8 = 0x03;
const TYPE: u8 = 0x0c;
const TYPE_DATA: u8 = 0x08;
const NO_DATA: u8 = 0x40;
const QOS: u8 = 0x80;
/// Of the second.
const TO_DS: u8 = 0x01;
const FROM_DS: u8 = 0x02;
const MORE_FRAGMENTS: u8 = 0x04;
const RETRY: u8 = 0x08;
const PROTECTED: u8 = 0x40;
const HT_CONTROL: u8 = 0x80;
/// Of the QoS field: the traffic's number, several Ethernet frames in one, a mesh header.
const TID: u8 = 0x0f;
const AGGREGATE: u8 = 0x80;
const MESH: u8 = 0x01;
/// LLC and SNAP before an EtherType (RFC 1042).
const SNAP: [u8; 6] = [0xaa, 0xaa, 3, 0, 0, 0];

/// Why bytes are no data frame that says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Dot11Error {
    /// Fewer bytes than the headers need.
    #[error("frame is cut off: {have} bytes, its headers need {need}")]
    Short {
        /// Bytes that the headers need.
        need: usize,
        /// Bytes there are.
        have: usize,
    },
    /// Another version of radiotap or of 802.11.
    #[error("frame has version {0}, not 0")]
    Version(u8),
    /// The radio says that the check sequence is wrong.
    #[error("frame is damaged")]
    Damaged,
    /// A beacon, an ACK, a data frame without data.
    #[error("frame carries no data")]
    NoData,
    /// A part of a frame.
    #[error("frame is a fragment")]
    Fragment,
}

/// A whole data frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataFrame<'a> {
    /// Sent by this radio, not heard.
    pub sent: bool,
    /// Whom it was sent to over the air.
    pub receiver: Address,
    /// Who sent it over the air.
    pub transmitter: Address,
    /// The sender repeats it.
    pub retry: bool,
    /// Its number among those of its transmitter and [`tid`](Self::tid), modulo 4096.
    pub sequence: u16,
    /// The traffic's number; frames without QoS have 16 of their own.
    pub tid: u8,
    /// Its content is encrypted.
    pub protected: bool,
    destination: Address,
    source: Address,
    aggregate: bool,
    body: &'a [u8],
}

impl<'a> DataFrame<'a> {
    /// Reads what a monitor interface hands out.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Dot11Error> {
        let (sent, frame) = strip_radiotap(bytes)?;
        let [first, second, ..] = *chunk::<2>(frame, 0)?;
        if first & VERSION != 0 {
            return Err(Dot11Error::Version(first & VERSION));
        }
        if first & TYPE != TYPE_DATA || first & NO_DATA != 0 {
            return Err(Dot11Error::NoData);
        }
        let control = u16::from_le_bytes(*chunk(frame, 22)?);
        if control & 0xf != 0 || second & MORE_FRAGMENTS != 0 {
            return Err(Dot11Error::Fragment);
        }
        let [one, two, three] = [*chunk::<6>(frame, 4)?, *chunk(frame, 10)?, *chunk(frame, 16)?];
        let mut at = 24;
        let (destination, source) = match (second & TO_DS != 0, second & FROM_DS != 0) {
            (false, false) => (one, two),
            (true, false) => (three, two),
            (false, true) => (one, three),
            (true, true) => {
                at += 6;
                (three, *chunk(frame, 24)?)
            }
        };
        let (mut tid, mut aggregate, mut mesh) = (16, false, false);
        if first & QOS != 0 {
            let [low, high] = *chunk(frame, at)?;
            at += if second & HT_CONTROL != 0 { 6 } else { 2 };
            (tid, aggregate, mesh) = (low & TID, low & AGGREGATE != 0, at >= 32 && high & MESH != 0);
        }
        let protected = second & PROTECTED != 0;
        if mesh && !protected {
            // Flags, of which two say how many addresses follow, a lifetime, a number of four bytes.
            let [flags] = *chunk(frame, at)?;
            at += 6 + 6 * usize::from(flags & 3);
        }
        let body = frame.get(at..).ok_or(Dot11Error::Short { need: at, have: frame.len() })?;
        Ok(Self {
            sent,
            receiver: one,
            transmitter: two,
            retry: second & RETRY != 0,
            sequence: control >> 4,
            tid,
            protected,
            destination,
            source,
            aggregate,
            body,
        })
    }

    /// Calls `each` with the Ethernet frames in it: none if it is encrypted, several if it is an aggregate.
    pub fn ethernet(&self, mut each: impl FnMut(&[u8])) {
        let mut frame = Vec::new();
        let mut emit = |to: &[u8], from: &[u8], body: &[u8]| {
            if let Some(typed) = body.strip_prefix(&SNAP).filter(|typed| typed.len() >= 2) {
                frame.clear();
                [to, from, typed].iter().for_each(|part| frame.extend_from_slice(part));
                each(&frame);
            }
        };
        if self.protected {
            return;
        }
        if !self.aggregate {
            return emit(&self.destination, &self.source, self.body);
        }
        // Each with its addresses, its length, and bytes to a multiple of four.
        let mut rest = self.body;
        while let Some((header, after)) = rest.split_first_chunk::<14>() {
            let length = usize::from(u16::from_be_bytes([header[12], header[13]]));
            let Some(body) = after.get(..length) else { return };
            emit(&header[..6], &header[6..12], body);
            rest = after.get((14 + length).next_multiple_of(4) - 14..).unwrap_or_default();
        }
    }
}

/// Whether this radio sent the frame, and the frame without radiotap's header and the check sequence.
fn strip_radiotap(bytes: &[u8]) -> Result<(bool, &[u8]), Dot11Error> {
    let [version, _, low, high] = *chunk(bytes, 0)?;
    if version != 0 {
        return Err(Dot11Error::Version(version));
    }
    let length = usize::from(u16::from_le_bytes([low, high]));
    let (header, frame) =
        bytes.split_at_checked(length).ok_or(Dot11Error::Short { need: length, have: bytes.len() })?;
    let present = u32::from_le_bytes(*chunk(header, 4)?);
    let (mut at, mut more) = (8, present);
    while more & PRESENT_MORE != 0 {
        more = u32::from_le_bytes(*chunk(header, at)?);
        at += 4;
    }
    if present & PRESENT_TIME != 0 {
        at = at.next_multiple_of(8) + 8;
    }
    let flags = if present & PRESENT_FLAGS != 0 { chunk::<1>(header, at)?[0] } else { 0 };
    if flags & FLAG_WRONG != 0 {
        return Err(Dot11Error::Damaged);
    }
    let behind = if flags & FLAG_CHECKED != 0 { CHECK } else { 0 };
    let frame = frame
        .len()
        .checked_sub(behind)
        .map(|end| &frame[..end])
        .ok_or(Dot11Error::Short { need: behind, have: frame.len() })?;
    Ok((present & PRESENT_TX_FLAGS != 0, frame))
}

fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Result<&[u8; N], Dot11Error> {
    let short = Dot11Error::Short { need: at + N, have: bytes.len() };
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).ok_or(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Address = [2, 0, 0, 0, 0, 0xa];
    const B: Address = [2, 0, 0, 0, 0, 0xb];
    const C: Address = [2, 0, 0, 0, 0, 0xc];
    const BSSID: Address = [2, 0, 0, 0, 0, 0xff];
    const CONTENT: &[u8] = b"\xaa\xaa\x03\0\0\0\x88\xb6content";

    /// Radiotap without fields.
    const TAP: [u8; 8] = [0, 0, 8, 0, 0, 0, 0, 0];

    fn frame(control: [u8; 2], addresses: [Address; 3], sequence: u16, rest: &[u8]) -> Vec<u8> {
        let sequence = (sequence << 4).to_le_bytes();
        [&control[..], &[0, 0], addresses.as_flattened(), &sequence, rest].concat()
    }

    fn ethernet(bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        DataFrame::parse(bytes).unwrap().ethernet(|frame| found.push(frame.to_vec()));
        found
    }

    fn typed(to: Address, from: Address) -> Vec<u8> {
        [&to[..], &from, b"\x88\xb6content"].concat()
    }

    #[test]
    fn addresses_are_where_the_network_puts_them() {
        for (flags, [to, from]) in [(0, [A, B]), (TO_DS, [C, B]), (FROM_DS, [A, C])] {
            let bytes = [&TAP[..], &frame([8, flags], [A, B, C], 5, CONTENT)].concat();
            assert_eq!(ethernet(&bytes), [typed(to, from)], "{flags}");
        }
        let four = frame([8, TO_DS | FROM_DS], [A, B, C], 5, &[&BSSID, CONTENT].concat());
        assert_eq!(ethernet(&[&TAP[..], &four].concat()), [typed(C, BSSID)]);
    }

    #[test]
    fn a_mesh_header_is_passed_over_with_its_addresses() {
        let mesh = |flags: u8, more: usize| {
            let header = [&[7, 1][..], &[flags, 31, 1, 2, 3, 4], &vec![9; more]].concat();
            let both = TO_DS | FROM_DS;
            [&TAP[..], &frame([0x88, both], [A, B, C], 5, &[&BSSID, &header[..], CONTENT].concat())].concat()
        };
        for (flags, more) in [(0, 0), (1, 6), (2, 12)] {
            assert_eq!(ethernet(&mesh(flags, more)), [typed(C, BSSID)]);
        }
        assert_eq!(DataFrame::parse(&mesh(0, 0)).unwrap().tid, 7);
    }

    #[test]
    fn frames_that_were_joined_are_told_apart() {
        let one = |to: Address, from: Address, pad: usize| {
            let length = (CONTENT.len() as u16).to_be_bytes();
            [&to[..], &from, &length, CONTENT, &vec![0; pad]].concat()
        };
        let both = [one(A, B, 3), one(C, B, 0)].concat();
        let bytes =
            [&TAP[..], &frame([0x88, 0], [A, B, C], 5, &[&[AGGREGATE, 0][..], &both].concat())].concat();
        assert_eq!(CONTENT.len(), 15, "14 and 15 bytes, and 3");
        assert_eq!(ethernet(&bytes), [typed(A, B), typed(C, B)]);
        assert_eq!(ethernet(&bytes[..bytes.len() - 1]), [typed(A, B)], "what is cut off is none");
    }

    #[test]
    fn radiotap_tells_what_was_sent_and_where_the_check_sequence_is() {
        let one = frame([8, RETRY], [A, B, C], 4095, CONTENT);
        // Two words of fields, a time, flags; then TX flags.
        let present = (PRESENT_MORE | PRESENT_TIME | PRESENT_FLAGS | PRESENT_TX_FLAGS).to_le_bytes();
        let tap =
            |flags: u8| [&[0, 0, 28, 0][..], &present, &[0; 4], &[0; 4], &[1; 8], &[flags, 0, 0, 0]].concat();
        let bytes = [&tap(FLAG_CHECKED)[..], &one, &[1, 2, 3, 4]].concat();
        let read = DataFrame::parse(&bytes).unwrap();
        assert_eq!((read.sent, read.retry, read.sequence, read.tid), (true, true, 4095, 16));
        assert_eq!((read.receiver, read.transmitter, ethernet(&bytes)), (A, B, vec![typed(A, B)]));
        assert_eq!(DataFrame::parse(&[&tap(FLAG_WRONG)[..], &one].concat()), Err(Dot11Error::Damaged));
    }

    #[test]
    fn what_is_encrypted_is_known_and_not_read() {
        let bytes = [&TAP[..], &frame([8, PROTECTED], [A, B, C], 5, CONTENT)].concat();
        assert!(DataFrame::parse(&bytes).unwrap().protected);
        assert_eq!(ethernet(&bytes), [[0; 0]; 0]);
    }

    #[test]
    fn what_is_cut_off_is_refused_wherever() {
        let whole =
            [&TAP[..], &frame([0x88, TO_DS | FROM_DS], [A, B, C], 5, &[&BSSID[..], &[0, 0]].concat())];
        let whole = whole.concat();
        assert!(DataFrame::parse(&whole).is_ok());
        for length in 0..whole.len() {
            assert!(matches!(DataFrame::parse(&whole[..length]), Err(Dot11Error::Short { .. })), "{length}");
        }
    }

    #[test]
    fn what_carries_no_data_is_none() {
        let error = |control: [u8; 2], sequence: u16| {
            let mut bytes = [&TAP[..], &frame(control, [A, B, C], sequence, CONTENT)].concat();
            bytes[TAP.len() + 22] |= u8::from(control == [8, 1]);
            DataFrame::parse(&bytes).unwrap_err()
        };
        assert_eq!(error([0x80, 0], 1), Dot11Error::NoData, "a beacon");
        assert_eq!(error([0x48, 0], 1), Dot11Error::NoData, "null data");
        assert_eq!(error([0x09, 0], 1), Dot11Error::Version(1));
        assert_eq!(error([8, MORE_FRAGMENTS], 1), Dot11Error::Fragment, "the first");
        assert_eq!(error([8, 1], 1), Dot11Error::Fragment, "the last");
    }
}
