//! Compiling BPF programs, from build scripts.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Major versions of clang that are tried by name, newest first, after plain `clang`; the first that is there and knows
/// BPF is taken. `scripts/install-packages` installs one of these.
const VERSIONS: std::ops::RangeInclusive<u32> = OLDEST..=40;

/// The oldest major version of clang that compiles these programs.
const OLDEST: u32 = 16;

/// Compiles `source` to an object in `OUT_DIR` that is named after it with `.o` for `.c`, and asks cargo to look at
/// `source` and `headers` for changes. `$CLANG` names another compiler.
///
/// # Panics
/// Ends the build, with a sentence, if there is no clang or the program does not compile.
pub fn compile(source: &str, headers: &[&str]) {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let ours = ["vmlinux.h", "helpers.h", "skb.h", "xdp.h"].map(|header| include.join(header));
    let watched = ours.iter().map(PathBuf::as_path).chain(headers.iter().map(Path::new));
    for file in watched.chain([Path::new(source)]) {
        println!("cargo::rerun-if-changed={}", file.display());
    }
    println!("cargo::rerun-if-env-changed=CLANG");
    let mut clang = Command::new(clang());
    clang.args(["-target", "bpf", "-mcpu=v3", "-g", "-O2", "-Wall", "-Wextra", "-Werror"]);
    clang.arg("-I").arg(include).arg("-c").arg(source).arg("-o").arg(object(source));
    let status = clang.status().unwrap_or_else(|error| panic!("cannot start {clang:?}: {error}"));
    assert!(status.success(), "{source} does not compile: {clang:?}");
}

fn object(source: &str) -> PathBuf {
    let folder = env::var_os("OUT_DIR").map(PathBuf::from).expect("cargo sets OUT_DIR");
    let name = Path::new(source).file_name().expect("a source file has a name");
    folder.join(name).with_extension("o")
}

fn clang() -> String {
    if let Ok(clang) = env::var("CLANG") {
        return clang;
    }
    let names = VERSIONS.rev().map(|version| format!("clang-{version}"));
    std::iter::once("clang".to_owned()).chain(names).find(|clang| knows_bpf(clang)).unwrap_or_else(|| {
        panic!("no clang of version {OLDEST} or newer that compiles for BPF is here; install it (Debian package `clang-19`), or name one by CLANG")
    })
}

fn knows_bpf(clang: &str) -> bool {
    let asked = Command::new(clang).args(["-target", "bpf", "-dumpversion"]).output();
    let version = asked.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    let version = version.and_then(|version| String::from_utf8(version).ok());
    let major = version.and_then(|version| version.trim().split('.').next()?.parse::<u32>().ok());
    major.is_some_and(|major| major >= OLDEST)
}
