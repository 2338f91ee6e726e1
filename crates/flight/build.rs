//! Compiles FS-AT, the C header that the BPF objects are made of as well, and with the feature `kernel` those.

const HEADERS: [&str; 3] = ["bpf/fsat.h", "bpf/fsat_paper.h", "bpf/connection.h"];

fn main() {
    for file in HEADERS.iter().chain(&["src/ffi.c"]) {
        println!("cargo::rerun-if-changed={file}");
    }
    cc::Build::new().file("src/ffi.c").include("bpf").warnings_into_errors(true).compile("fsat");
    if std::env::var_os("CARGO_FEATURE_KERNEL").is_some() {
        for program in ["bpf/fsat.bpf.c", "bpf/show.bpf.c", "bpf/cubic.bpf.c", "bpf/vectors.bpf.c"] {
            bpf::compile::compile(program, &HEADERS);
        }
    }
}
