//! The C side, `bpf/fsat.h`: the same structs and functions that the BPF object has.

/// `struct fsat_config`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RawConfig {
    pub additions: u32,
}

/// `struct fsat_ack`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RawAck {
    pub now_us: u32,
    pub rtt_us: u32,
    pub delivered: u32,
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
    pub period_app_limited: u32,
    pub rtt_us: u32,
    pub draining: u32,
    pub rtt_known: u32,
    pub rtt_found_us: u32,
    pub rtt_low_us: u32,
    pub alone_us: u32,
    pub dry_us: u32,
    pub period_rtt_us: u32,
    pub rtt_usual_us: u32,
    pub two_segments_us: u32,
    pub foreign: u32,
    pub falls: u32,
    pub quiet: u32,
    pub srtt_us: u32,
    pub rtt_least_us: u32,
    pub high_us: [u32; 2],
    pub single_acks: u32,
    pub dry_periods: u32,
    pub rcv_bytes: u32,
    pub flight_n: u32,
    pub s: u32,
    pub dev: u32,
    pub away: u32,
    pub apart: u32,
    pub period_flight: u32,
    pub losses_radio: u32,
    pub losses_congestion: u32,
    pub best: [u32; 2],
    pub spell_us: u32,
    pub lost_us: u32,
    pub drains: u32,
    pub drained_us: u32,
    pub drained_s: u32,
    pub above: u32,
    pub falls_us: u32,
    pub drain_rcv_bytes: u32,
    pub rtt_found_before_us: [u32; 3],
    pub arrived: u32,
    pub steady: u32,
    pub level: u32,
    pub level_periods: u32,
    pub rtt_before_us: u32,
    pub drain_rtt_us: u32,
    pub undrained: u32,
    pub rtt_first_us: u32,
    pub flat_periods: u32,
    pub filled: u32,
    pub sole: u32,
}

/// `FSAT_NO_LIMIT`.
pub const NO_LIMIT: u32 = u32::MAX;

unsafe extern "C" {
    #[cfg(test)]
    fn nawa_fsat_size() -> u32;
    fn nawa_fsat_init(f: *mut RawFsat, c: *const RawConfig, now_us: u32, flight_limit: u32);
    fn nawa_fsat_on_ack(f: *mut RawFsat, c: *const RawConfig, a: *const RawAck);
    fn nawa_fsat_window(f: *const RawFsat, a: *const RawAck) -> u32;
    fn nawa_fsat_on_loss(f: *mut RawFsat, c: *const RawConfig, cwnd: u32, ssthresh: u32, mss: u32) -> u32;
    fn nawa_fsat_on_mark(f: *mut RawFsat, mss: u32) -> u32;
    fn nawa_fsat_burst(f: *const RawFsat, c: *const RawConfig, mss: u32) -> u32;
    fn nawa_fsat_pacing_rate(f: *const RawFsat, c: *const RawConfig, a: *const RawAck) -> u64;
}

impl RawFsat {
    pub fn new(config: &RawConfig, now_us: u32, flight_limit: u32) -> RawFsat {
        let mut state = RawFsat::default();
        // SAFETY: both point to live structs of C's layout (a test compares the sizes); nothing is kept.
        unsafe { nawa_fsat_init(&mut state, config, now_us, flight_limit) };
        state
    }

    pub fn on_ack(&mut self, config: &RawConfig, ack: &RawAck) {
        // SAFETY: as in `new`.
        unsafe { nawa_fsat_on_ack(self, config, ack) }
    }

    pub fn window(&self, ack: &RawAck) -> u32 {
        // SAFETY: as in `new`.
        unsafe { nawa_fsat_window(self, ack) }
    }

    pub fn on_loss(&mut self, config: &RawConfig, cwnd: u32, ssthresh: u32, mss: u32) -> u32 {
        // SAFETY: as in `new`.
        unsafe { nawa_fsat_on_loss(self, config, cwnd, ssthresh, mss) }
    }

    pub fn on_mark(&mut self, mss: u32) -> u32 {
        // SAFETY: as in `new`.
        unsafe { nawa_fsat_on_mark(self, mss) }
    }

    pub fn burst(&self, config: &RawConfig, mss: u32) -> u32 {
        // SAFETY: as in `new`.
        unsafe { nawa_fsat_burst(self, config, mss) }
    }

    pub fn pacing_rate(&self, config: &RawConfig, ack: &RawAck) -> u64 {
        // SAFETY: as in `new`.
        unsafe { nawa_fsat_pacing_rate(self, config, ack) }
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

    /// The size of C's struct, bytes.
    #[cfg(test)]
    pub fn c_size() -> usize {
        // SAFETY: takes nothing and returns a constant.
        unsafe { nawa_fsat_size() as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_and_c_agree_on_the_size() {
        assert_eq!(RawFsat::c_size(), size_of::<RawFsat>());
    }
}
