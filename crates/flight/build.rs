//! Compiles FS-AT, the C header that the BPF object is made of as well.

fn main() {
    for file in ["bpf/fsat.h", "src/ffi.c"] {
        println!("cargo::rerun-if-changed={file}");
    }
    cc::Build::new().file("src/ffi.c").include("bpf").warnings_into_errors(true).compile("fsat");
}
