//! `device`: see ARCHITECTURE.md.

pub mod netns;
pub mod process;
pub mod tap;

pub use tap::Tap;
