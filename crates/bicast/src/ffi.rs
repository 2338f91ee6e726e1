//! The C side, `bpf/bicast.h`: the same structs and functions that the BPF object has.

/// `struct bicast_sctp`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RawSctp {
    pub found: u32,
    pub tsn_low: u32,
    pub tsn_high: u32,
}

/// `struct bicast_association`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RawAssociation {
    pub tsn_known: u32,
    pub tsn_highest: u32,
}

/// `struct bicast_segment`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RawSegment {
    pub seq: u32,
    pub ack: u32,
    pub length: u32,
    pub flags: u32,
    pub window: u32,
    pub sack_blocks: u32,
}

/// `struct bicast_connection`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RawConnection {
    pub next_known: u32,
    pub next: u32,
    pub ack_known: u32,
    pub ack: u32,
    pub window: u32,
}

/// `struct bicast_rate`.
#[cfg(test)]
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RawRate {
    pub sent_bytes: u64,
    pub copied_bytes: u64,
    pub met_us: u64,
    pub lossy: u32,
    pub every: u32,
    pub wait: u32,
    pub watched: u32,
    pub tsn: u32,
    pub stack: u32,
    pub path: u32,
    pub late: u32,
}

unsafe extern "C" {
    fn nawa_bicast_chunk_seen(p: *mut RawSctp, kind: u32, flags: u32, tsn: u32, gaps: u32);
    fn nawa_bicast_sctp_classify(a: *mut RawAssociation, p: *const RawSctp) -> u32;
    fn nawa_bicast_tcp_classify(c: *mut RawConnection, s: *const RawSegment) -> u32;
    fn nawa_bicast_wanted(mode: u32, reasons: u32) -> u32;
    fn nawa_bicast_within_budget(sent_bytes: u64, extra_bytes: u64, length: u32, percent: u32) -> u32;
    #[cfg(test)]
    fn nawa_bicast_rate_sent(r: *mut RawRate, reasons: u32, length: u32, percent: u32, now_us: u64) -> u32;
    #[cfg(test)]
    fn nawa_bicast_rate_affords(r: *const RawRate, length: u32, percent: u32, patient: u32) -> u32;
    #[cfg(test)]
    fn nawa_bicast_rate_copied(r: *mut RawRate, reasons: u32, tsn: u32, length: u32, path: u32);
    #[cfg(test)]
    fn nawa_bicast_rate_acknowledged(
        r: *mut RawRate,
        highest: u32,
        tsn: u32,
        count: u32,
        percent: u32,
        now_us: u64,
    );
    #[cfg(test)]
    fn nawa_bicast_size(which: u32) -> u32;
}

impl RawSctp {
    pub fn chunk_seen(&mut self, kind: u8, flags: u8, tsn: u32, gaps: u32) {
        // SAFETY: points to a live struct of C's layout (a test compares the sizes); nothing is kept.
        unsafe { nawa_bicast_chunk_seen(self, kind.into(), flags.into(), tsn, gaps) }
    }
}

impl RawAssociation {
    pub fn classify(&mut self, packet: &RawSctp) -> u32 {
        // SAFETY: as in `chunk_seen`.
        unsafe { nawa_bicast_sctp_classify(self, packet) }
    }
}

#[cfg(test)]
impl RawRate {
    pub fn sent(&mut self, reasons: u32, length: u32, percent: u32, now_us: u64) -> u32 {
        // SAFETY: as in `chunk_seen`.
        unsafe { nawa_bicast_rate_sent(self, reasons, length, percent, now_us) }
    }

    pub fn affords(&self, length: u32, percent: u32, patient: bool) -> bool {
        // SAFETY: as in `chunk_seen`.
        unsafe { nawa_bicast_rate_affords(self, length, percent, patient.into()) != 0 }
    }

    pub fn copied(&mut self, reasons: u32, tsn: u32, length: u32, path: u32) {
        // SAFETY: as in `chunk_seen`.
        unsafe { nawa_bicast_rate_copied(self, reasons, tsn, length, path) }
    }

    pub fn acknowledged(&mut self, highest: u32, tsn: u32, count: u32, percent: u32, now_us: u64) {
        // SAFETY: as in `chunk_seen`.
        unsafe { nawa_bicast_rate_acknowledged(self, highest, tsn, count, percent, now_us) }
    }
}

impl RawConnection {
    pub fn classify(&mut self, segment: &RawSegment) -> u32 {
        // SAFETY: as in `chunk_seen`.
        unsafe { nawa_bicast_tcp_classify(self, segment) }
    }
}

pub fn wanted(mode: u32, reasons: u32) -> u32 {
    // SAFETY: takes and returns numbers.
    unsafe { nawa_bicast_wanted(mode, reasons) }
}

pub fn within_budget(sent_bytes: u64, extra_bytes: u64, length: u32, percent: u32) -> bool {
    // SAFETY: takes and returns numbers.
    unsafe { nawa_bicast_within_budget(sent_bytes, extra_bytes, length, percent) != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_and_c_agree_on_the_sizes() {
        let rust = [
            size_of::<RawSctp>(),
            size_of::<RawAssociation>(),
            size_of::<RawSegment>(),
            size_of::<RawConnection>(),
            size_of::<RawRate>(),
        ];
        // SAFETY: takes and returns a number.
        let c = [0, 1, 2, 3, 4].map(|which| unsafe { nawa_bicast_size(which) } as usize);
        assert_eq!(rust, c);
    }
}
