//! Compiles `src/clock_shim.c` into a shared object, and the lab's BPF programs; the lab carries both with it.

use std::path::PathBuf;

fn main() {
    bpf::compile::compile("bpf/attack.bpf.c", &["bpf/attack.h"]);
    bpf::compile::compile("bpf/medium.bpf.c", &["bpf/medium.h"]);
    bpf::compile::compile("bpf/stages.bpf.c", &["bpf/medium.h", "bpf/stages.h"]);
    println!("cargo::rerun-if-changed=src/clock_shim.c");
    let folder = std::env::var_os("OUT_DIR").map(PathBuf::from).expect("cargo sets OUT_DIR");
    let mut compile =
        cc::Build::new().cargo_metadata(false).warnings(true).pic(true).get_compiler().to_command();
    compile.args(["-shared", "-o"]).arg(folder.join("clock_shim.so")).arg("src/clock_shim.c");
    let status = compile.status().expect("start the C compiler (Debian package `gcc`)");
    assert!(status.success(), "src/clock_shim.c does not compile: {status}");
}
