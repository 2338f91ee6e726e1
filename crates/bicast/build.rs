//! Compiles the classifier, the C header that the BPF objects are made of as well, and with the feature `kernel` those.

fn main() {
    for file in ["bpf/bicast.h", "bpf/rate.h", "src/ffi.c"] {
        println!("cargo::rerun-if-changed={file}");
    }
    cc::Build::new().file("src/ffi.c").include("bpf").warnings_into_errors(true).compile("bicast");
    if std::env::var_os("CARGO_FEATURE_KERNEL").is_some() {
        let headers = ["bicast.h", "rate.h", "state.h", "tc.h", "walk.h", "maps.h", "ends.h"]
            .map(|h| format!("bpf/{h}"));
        for program in ["bpf/bicast.bpf.c", "bpf/vectors.bpf.c"] {
            bpf::compile::compile(program, &headers.each_ref().map(String::as_str));
        }
    }
}
