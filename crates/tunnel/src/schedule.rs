//! The choice of the path for the next packet: by expected arrival, and the paper's weights with the clocks they need.

pub mod backups;
pub mod choice;
pub mod clock_skew;
pub mod weights;
pub mod xmit;
