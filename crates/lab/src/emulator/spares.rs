//! What the loss of an emulated link leaves alone.

use std::fmt::Debug;

/// Which frames the loss before a link's queue spares. Asked once for each frame of a wire, when it enters its link.
pub trait Spares: Debug + Send + Sync {
    /// Whether it spares this one, which begins with its Ethernet header.
    fn spares(&self, frame: &[u8]) -> bool;
}
