//! Files that are there: the documentation's, and those that the fuzzer starts from.

use super::*;

/// The blocks of the documentation that are whole files: they begin with a section that needs nothing before it.
#[test]
fn the_files_in_the_documentation_are_good() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages =
        ["docs", "docs/use", "docs/howto"].map(|folder| fs::read_dir(root.join(folder)).expect("a folder"));
    let pages = pages.into_iter().flatten().map(|entry| entry.expect("an entry").path());
    let keys = folder();
    fs::copy(keys.path().join("key"), keys.path().join("flood.key")).expect("a key");
    let mut count = 0;
    for page in pages.filter(|path| path.extension().is_some_and(|end| end == "md")) {
        let text = fs::read_to_string(&page).expect("a page");
        for block in text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default())
        {
            let first = block.lines().find(|line| !line.starts_with('#')).unwrap_or_default();
            let whole =
                ["[node]", "[flight]", "[bicast]", "[metrics]", "[[flood]]", "[[coding]]"].contains(&first);
            if !whole {
                continue;
            }
            let mut file = block.replace("/etc/nawa/", "");
            while let Some((before, rest)) = file.split_once("'S PUBLIC KEY") {
                file = format!(
                    "{}{BOB}{rest}",
                    before.trim_end_matches(|letter: char| letter.is_ascii_uppercase())
                );
            }
            if let Err(complaints) = read(keys.path(), &file) {
                panic!("{complaints:?} about {}:\n{file}", page.display());
            }
            count += 1;
        }
    }
    assert!(count > 8, "{count} files");
}

/// What the fuzzer starts from: one file per mistake, and some that have none but that their keys are not there.
#[test]
fn the_corpus_is_taken_or_complained_about() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/config");
    let keys = self::folder();
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("the corpus").map(|entry| entry.expect("an entry")) {
        let bytes = fs::read(entry.path()).expect("a file");
        let name = entry.file_name().into_string().expect("a name");
        let Ok(text) = std::str::from_utf8(&bytes) else { continue };
        match read(keys.path(), text) {
            Ok(_) => assert!(name.contains("good"), "{name} has nothing wrong with it"),
            Err(complaints) => {
                assert!(!complaints.is_empty() && !name.contains("good"), "{name}: {complaints:?}")
            }
        }
        count += 1;
    }
    assert!(count > 30, "{count} files");
}
