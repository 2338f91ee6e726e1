//! With the feature `daemon`, compiles the program at the slave interface.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_DAEMON").is_some() {
        bpf::compile::compile("bpf/slave.bpf.c", &[]);
    }
}
