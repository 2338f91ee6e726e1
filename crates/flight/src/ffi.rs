//! The C side, `bpf/fsat.h` and `bpf/fsat_paper.h`: the same structs and functions that the BPF object has.

/// `struct fsat_ack`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RawAck {
    pub now_us: u32,
    pub rtt_us: u32,
    pub delivered: u32,
    pub lost: u32,
    pub flight: u32,
    pub cwnd: u32,
    pub cwnd_max: u32,
    pub mss: u32,
    pub app_limited: u32,
}

/// `struct fsat`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RawFsat {
    pub target: u32,
    pub space: u32,
    pub rtt_min_us: u32,
    pub period_start_us: u32,
    pub period_rcv_bytes: u32,
    pub period_app_limited: u16,
    pub mode: u16,
    pub rcv_bytes: u32,
    pub s: u32,
    pub dev: u32,
    pub losses_radio: u32,
    pub losses_congestion: u32,
    pub flight_n: u32,
    pub period_flight: u32,
    pub period_rtt_us: u32,
    pub queue_rtt_us: u32,
    pub high_us: u32,
    pub seen_us: u32,
    pub near_us: u32,
    pub low_us: u32,
    pub ack_us: u32,
    pub gap_us: u32,
    pub lost: u32,
}

/// `struct fsat_constants`: what each is, its unit and its range stand in `bpf/fsat.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "bpf/fsat.h says it once")]
pub struct Constants {
    pub contract: u32,
    pub deviations: u32,
    pub more: u32,
    pub answer: u32,
    pub empty: u32,
    pub heavy: u32,
    pub memory: u32,
    pub stale_us: u32,
    pub far: u32,
    pub slow: u32,
    pub host_us: u32,
    pub pace: u32,
}

/// `FSAT_NO_LIMIT`.
pub const NO_LIMIT: u32 = u32::MAX;

unsafe extern "C" {
    #[cfg(test)]
    fn nawa_fsat_size(which: u32) -> u32;
    static nawa_fsat_constants: Constants;
    fn nawa_fsat_init(f: *mut RawFsat, now_us: u32, flight_limit: u32);
    fn nawa_fsat_on_ack(f: *mut RawFsat, c: *const Constants, a: *const RawAck) -> i32;
    fn nawa_fsat_window(f: *const RawFsat, c: *const Constants, a: *const RawAck) -> u32;
    fn nawa_fsat_on_loss(f: *mut RawFsat, c: *const Constants, cwnd: u32, ssthresh: u32) -> u32;
    fn nawa_fsat_on_timeout(f: *mut RawFsat, c: *const Constants, space: u32, mss: u32) -> i32;
    #[cfg(test)]
    fn nawa_fsat_on_mark(f: *mut RawFsat);
    fn nawa_fsat_pacing_rate(f: *const RawFsat, c: *const Constants, a: *const RawAck) -> u64;
    #[cfg(test)]
    fn nawa_fsat_paper_on_mark(f: *mut RawFsat, mss: u32) -> u32;
    fn nawa_fsat_paper_on_ack(f: *mut RawFsat, a: *const RawAck);
    fn nawa_fsat_paper_window(f: *const RawFsat, cwnd: u32, mss: u32) -> u32;
    fn nawa_fsat_paper_on_loss(f: *mut RawFsat, cwnd: u32, ssthresh: u32, mss: u32) -> u32;
}

impl Default for Constants {
    fn default() -> Constants {
        // SAFETY: a constant of C's, of its layout (a test compares the sizes).
        unsafe { nawa_fsat_constants }
    }
}

impl RawFsat {
    pub fn new(now_us: u32, flight_limit: u32) -> RawFsat {
        let mut state = RawFsat::default();
        // SAFETY: points to a live struct of C's layout (a test compares the sizes); nothing is kept.
        unsafe { nawa_fsat_init(&mut state, now_us, flight_limit) };
        state
    }

    /// Whether the base has to reduce.
    pub fn on_ack(&mut self, constants: &Constants, ack: &RawAck) -> bool {
        // SAFETY: as in `new`.
        unsafe { nawa_fsat_on_ack(self, constants, ack) != 0 }
    }

    pub fn window(&self, constants: &Constants, ack: &RawAck) -> u32 {
        // SAFETY: as in `new`.
        unsafe { nawa_fsat_window(self, constants, ack) }
    }

    /// 0: the base has to reduce.
    pub fn on_loss(&mut self, constants: &Constants, cwnd: u32, ssthresh: u32) -> u32 {
        // SAFETY: as in `new`.
        unsafe { nawa_fsat_on_loss(self, constants, cwnd, ssthresh) }
    }

    /// Whether the base has to reduce.
    pub fn on_timeout(&mut self, constants: &Constants, space: u32, mss: u32) -> bool {
        // SAFETY: as in `new`.
        unsafe { nawa_fsat_on_timeout(self, constants, space, mss) != 0 }
    }

    #[cfg(test)]
    pub fn on_mark(&mut self) {
        // SAFETY: as in `new`.
        unsafe { nawa_fsat_on_mark(self) }
    }

    pub fn pacing_rate(&self, constants: &Constants, ack: &RawAck) -> u64 {
        // SAFETY: as in `new`.
        unsafe { nawa_fsat_pacing_rate(self, constants, ack) }
    }

    #[cfg(test)]
    pub fn paper_on_mark(&mut self, mss: u32) -> u32 {
        // SAFETY: as in `new`.
        unsafe { nawa_fsat_paper_on_mark(self, mss) }
    }

    pub fn paper_on_ack(&mut self, ack: &RawAck) {
        // SAFETY: as in `new`.
        unsafe { nawa_fsat_paper_on_ack(self, ack) }
    }

    pub fn paper_window(&self, cwnd: u32, mss: u32) -> u32 {
        // SAFETY: as in `new`.
        unsafe { nawa_fsat_paper_window(self, cwnd, mss) }
    }

    pub fn paper_on_loss(&mut self, cwnd: u32, ssthresh: u32, mss: u32) -> u32 {
        // SAFETY: as in `new`.
        unsafe { nawa_fsat_paper_on_loss(self, cwnd, ssthresh, mss) }
    }

    /// As the BPF object keeps it; `None` if `bytes` is shorter.
    #[cfg(feature = "kernel")]
    pub fn from_bytes(bytes: &[u8]) -> Option<RawFsat> {
        let bytes = bytes.get(..size_of::<RawFsat>())?;
        // SAFETY: as many bytes as the struct has, and any are valid numbers; they may be unaligned.
        Some(unsafe { bytes.as_ptr().cast::<RawFsat>().read_unaligned() })
    }

    /// As the BPF object keeps it.
    #[cfg(all(test, feature = "kernel"))]
    pub fn to_bytes(self) -> Vec<u8> {
        let bytes = std::ptr::from_ref(&self).cast::<u8>();
        // SAFETY: as many bytes as the struct has, which is numbers without gaps.
        unsafe { std::slice::from_raw_parts(bytes, size_of::<RawFsat>()) }.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_and_c_agree_on_the_sizes() {
        // SAFETY: takes and returns a number.
        let c = [0, 1, 2].map(|which| unsafe { nawa_fsat_size(which) } as usize);
        assert_eq!(c, [size_of::<RawFsat>(), size_of::<RawAck>(), size_of::<Constants>()]);
    }
}
