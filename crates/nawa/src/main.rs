//! The `nawa` binary.
fn main() {}
