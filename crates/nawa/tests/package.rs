//! Help texts.

mod common;

use std::fs;
use std::path::Path;

use common::{nawa, succeed};

/// After a change that is meant: `nawa NAME --help > crates/nawa/tests/help/NAME.txt`.
#[test]
fn help_is_as_it_was_agreed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help");
    for name in ["init", "invite", "join"] {
        let expected = fs::read_to_string(folder.join(name).with_extension("txt")).expect("the help");
        assert_eq!(succeed(&mut nawa([name, "--help"])), expected, "nawa {name} --help");
    }
}
