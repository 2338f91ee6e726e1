//! How two ends come to share keys, and what keeps those away who have none: Noise messages, macs and cookies, fresh
//! initiations, sealed packets, and the keys of one peer over time.

pub mod client_mac;
pub mod cookie;
pub mod enrol;
pub mod erasing_rng;
pub mod freshness;
pub mod noise;
pub mod rate_limit;
pub mod session;
pub mod sessions;
