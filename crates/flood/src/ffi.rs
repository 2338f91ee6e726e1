//! The C side, `bpf/flood.h`: the same structs and functions that the XDP program has.

/// `struct flood_config`.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct RawConfig {
    pub key: [u64; 2],
    pub id: u32,
    pub wire: u32,
    pub keyed: u32,
    pub credit_tick: u32,
    pub credit_max: u32,
    pub reserved: u32,
}

/// `struct flood_header`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RawHeader {
    pub id: u32,
    pub epoch: u32,
    pub seq: u32,
    pub len: u16,
    pub ttl: u8,
    pub kind: u8,
}

/// `struct flood_source`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RawSource {
    pub life: u64,
    pub highest: u32,
    pub paid: u32,
    pub credit: u32,
    pub reserved: u32,
    pub seen: [u64; 8],
}

unsafe extern "C" {
    fn nawa_flood_parse(
        header: *mut RawHeader,
        config: *const RawConfig,
        at: *const u8,
        end: *const u8,
        pad: u32,
    ) -> u32;
    fn nawa_flood_tag(
        config: *const RawConfig,
        header: *const RawHeader,
        at: *const u8,
        end: *const u8,
    ) -> u64;
    fn nawa_flood_check(
        source: *const RawSource,
        config: *const RawConfig,
        header: *const RawHeader,
        now: u32,
    ) -> u32;
    fn nawa_flood_source_init(
        source: *mut RawSource,
        config: *const RawConfig,
        header: *const RawHeader,
        now: u32,
    );
    fn nawa_flood_take(
        source: *mut RawSource,
        config: *const RawConfig,
        header: *const RawHeader,
        now: u32,
    ) -> u32;
    #[cfg(test)]
    fn nawa_flood_source_size() -> u32;
    #[cfg(test)]
    fn nawa_flood_config_size() -> u32;
    #[cfg(test)]
    fn nawa_flood_header_size() -> u32;
}

impl std::fmt::Debug for RawConfig {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let RawConfig { id, wire, keyed, credit_tick, credit_max, .. } = self;
        write!(f, "RawConfig({id}, {wire}, {keyed}, {credit_tick}, {credit_max})")
    }
}

impl RawConfig {
    /// The header of `frame`, or the verdict that says why it is none.
    pub fn parse(&self, frame: &[u8], pad: u32) -> Result<RawHeader, u32> {
        let mut header = RawHeader::default();
        let bytes = frame.as_ptr_range();
        // SAFETY: the structs live and have C's layout (a test compares the sizes); C reads from `start` to before `end`
        // only, and keeps nothing.
        let verdict = unsafe { nawa_flood_parse(&mut header, self, bytes.start, bytes.end, pad) };
        if verdict == 0 { Ok(header) } else { Err(verdict) }
    }

    /// The tag of `frame`, whose header is `header`, in the order of the frame's bytes.
    pub fn tag(&self, header: &RawHeader, frame: &[u8]) -> [u8; 8] {
        let bytes = frame.as_ptr_range();
        // SAFETY: as in `parse`; what is shorter than its header says gives 0.
        unsafe { nawa_flood_tag(self, header, bytes.start, bytes.end) }.to_ne_bytes()
    }
}

impl RawSource {
    pub fn new(config: &RawConfig, header: &RawHeader, now: u32) -> RawSource {
        let mut source = RawSource::default();
        // SAFETY: live structs of C's layout; nothing is kept.
        unsafe { nawa_flood_source_init(&mut source, config, header, now) };
        source
    }

    pub fn check(&self, config: &RawConfig, header: &RawHeader, now: u32) -> u32 {
        // SAFETY: as in `new`.
        unsafe { nawa_flood_check(self, config, header, now) }
    }

    pub fn take(&mut self, config: &RawConfig, header: &RawHeader, now: u32) -> u32 {
        // SAFETY: as in `new`.
        unsafe { nawa_flood_take(self, config, header, now) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_and_c_agree_on_the_sizes() {
        // SAFETY: they take nothing and return constants.
        let sizes = unsafe { [nawa_flood_source_size(), nawa_flood_config_size(), nawa_flood_header_size()] };
        let rust = [size_of::<RawSource>(), size_of::<RawConfig>(), size_of::<RawHeader>()];
        assert_eq!(sizes.map(|size| size as usize), rust);
    }
}
