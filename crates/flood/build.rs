//! Compiles frames and window, the C header that the XDP program is made of as well, and with the feature `node` that.

fn main() {
    for file in ["bpf/flood.h", "src/ffi.c"] {
        println!("cargo::rerun-if-changed={file}");
    }
    cc::Build::new().file("src/ffi.c").include("bpf").warnings_into_errors(true).compile("flood");
    if std::env::var_os("CARGO_FEATURE_NODE").is_some() {
        bpf::compile::compile("bpf/flood.bpf.c", &["bpf/flood.h", "bpf/board.h"]);
    }
}
