//! The fuzzers' corpus, `tests/corpus/TARGET/NAME` of the crate that includes this file.

use std::collections::BTreeMap;
use std::path::Path;

/// The files of `target`, by name.
pub fn corpus(target: &str) -> BTreeMap<String, Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(target);
    let entries = std::fs::read_dir(&folder).expect("the corpus is there").map(|e| e.expect("an entry"));
    entries
        .map(|e| (e.file_name().into_string().expect("a name"), std::fs::read(e.path()).expect("a file")))
        .collect()
}

/// What a fuzzer runs on each input.
pub type Target = fn(&[u8]);

/// Runs each target, which panics where it should not, on each of its files.
#[allow(dead_code, reason = "not in every crate that includes this file")]
pub fn replay(targets: &[(&str, Target)]) {
    for (name, target) in targets {
        let files = corpus(name);
        assert!(files.len() >= 10, "{name}");
        files.values().for_each(|bytes| target(bytes));
    }
}
