//! Every function that docs/papers.md names is there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

/// Whether `text` defines a function of this name, in Rust or in C.
fn defines(text: &str, name: &str) -> bool {
    text.lines().any(|line| {
        let rust = ["(", "<"].iter().any(|after| line.contains(&format!("fn {name}{after}")));
        let macro_first =
            line.split(' ').next().is_some_and(|word| word.ends_with("INLINE") || word.ends_with("_FN"));
        rust || macro_first && line.contains(&format!(" {name}("))
    })
}

#[test]
fn every_function_that_the_papers_are_led_to_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("docs/papers.md")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| 00"));
    let (mut papers, mut faults, mut count) = (BTreeSet::new(), Vec::new(), 0);
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        let [_, paper, _, crate_name, file, function, _] = cells[..] else {
            panic!("not a row of five: {row}")
        };
        let mut all = Vec::new();
        files(&root.join("crates").join(crate_name), &mut all);
        let named = all.iter().filter(|path| path.file_name().is_some_and(|name| name == file));
        let found =
            named.map(|path| std::fs::read_to_string(path).unwrap()).any(|text| defines(&text, function));
        if !found {
            faults.push(format!("{crate_name}: no {file} has a function {function} (docs/papers.md)"));
        }
        papers.insert(paper);
        count += 1;
    }
    assert_eq!(faults, Vec::<String>::new());
    assert!(papers.len() == 5 && count >= 10, "{papers:?} {count}");
}

#[test]
fn a_call_or_a_comment_is_no_definition() {
    assert!(
        defines("pub(super) fn insert(&mut self)", "insert") && defines("    fn write<T>(x: T)", "write")
    );
    assert!(defines("INLINE int relay(struct xdp_md *ctx)", "relay"));
    assert!(!defines("    self.insert(x);", "insert") && !defines("/* relay() */", "relay"));
    assert!(!defines("\treturn relay(ctx, 1);", "relay"));
}
