//! `include/nawa-flood.h`: [`flood::Client`] for programs in C. All of it is in [`ffi`].

pub mod ffi;
