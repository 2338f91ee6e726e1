//! Compiles `src/clock_shim.c` and `src/guest/xstate_shim.c` into shared objects, `src/bicast/transfer.c` into a program, and
//! the lab's BPF programs; the lab carries all with it.

use std::path::PathBuf;

fn main() {
    bpf::compile::compile("bpf/attack.bpf.c", &["bpf/attack.h"]);
    bpf::compile::compile("bpf/medium.bpf.c", &["bpf/medium.h"]);
    bpf::compile::compile("bpf/stages.bpf.c", &["bpf/medium.h", "bpf/stages.h"]);
    compile("src/clock_shim.c", "clock_shim.so", &["-shared"]);
    compile("src/guest/xstate_shim.c", "xstate_shim.so", &["-shared"]);
    compile("src/bicast/transfer.c", "transfer", &[]);
}

fn compile(source: &str, output: &str, arguments: &[&str]) {
    println!("cargo::rerun-if-changed={source}");
    let folder = std::env::var_os("OUT_DIR").map(PathBuf::from).expect("cargo sets OUT_DIR");
    let mut compile =
        cc::Build::new().cargo_metadata(false).warnings(true).pic(true).get_compiler().to_command();
    compile.args(arguments).arg("-o").arg(folder.join(output)).arg(source);
    let status = compile.status().expect("start the C compiler (Debian package `gcc`)");
    assert!(status.success(), "{source} does not compile: {status}");
}
