#![no_main]

#[path = "../models.rs"]
mod models;
#[path = "../../tests/sim/mod.rs"]
mod sim;

libfuzzer_sys::fuzz_target!(|data: &[u8]| models::replay(data));
