//! Compiles the classifier, the C header that the BPF objects are made of as well.

fn main() {
    for file in ["bpf/bicast.h", "src/ffi.c"] {
        println!("cargo::rerun-if-changed={file}");
    }
    cc::Build::new().file("src/ffi.c").include("bpf").warnings_into_errors(true).compile("bicast");
}
