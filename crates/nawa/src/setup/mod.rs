//! What `nawa init`, `invite` and `join` share: finding uplinks, writing files, and the invite.

pub mod ask;
pub mod cost;
pub mod cost_flags;
pub mod exchange;
pub mod file;
pub mod invite;
pub mod uplinks;
