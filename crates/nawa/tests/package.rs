//! What a package is made of: man pages and completions from one definition, and the unit.

mod common;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{nawa, output, skip, stdout, succeed};

/// `systemd-analyze security` gives 0 to a unit that can do nothing and 10 to one that can do all.
const MOST_EXPOSURE: f64 = 4.0;

#[test]
fn man_pages_and_completions_come_from_the_same_definitions() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    succeed(&mut nawa(["generate", folder.path().to_str().expect("UTF-8")]));
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).expect(name);
    for page in ["nawa", "nawa-invite", "nawa-path-add", "nawa-lab-run"] {
        assert!(read(&format!("man/{page}.1")).starts_with(".ie"), "{page}");
    }
    assert!(read("man/nawa-join.1").contains("STRING"));
    let pages = fs::read_dir(folder.path().join("man")).expect("man pages");
    let of_help = pages
        .filter(|page| page.as_ref().is_ok_and(|page| page.file_name().to_string_lossy().contains("help")));
    assert_eq!(of_help.count(), 0, "`help` has no page of its own");
    for shell in ["nawa.bash", "_nawa", "nawa.fish"] {
        assert!(read(&format!("completions/{shell}")).contains("invite"), "{shell}");
    }
}

/// The words of a page without its commands of troff.
fn words(page: &str) -> Vec<String> {
    let lines = page.lines().map(|line| match line.split_once(' ') {
        Some((macros, rest)) if macros.starts_with('.') => rest,
        None if line.starts_with('.') => "",
        _ => line,
    });
    let text = lines.collect::<Vec<_>>().join(" ");
    let text = text
        .replace("\\fB", "")
        .replace("\\fI", "")
        .replace("\\fR", "")
        .replace("\\-", "-")
        .replace("\\*(Aq", "'")
        .replace('\\', "");
    text.split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

/// docs/commands.md is what `--help` says of each command; so its man page has each sentence of that.
#[test]
fn every_man_page_says_what_help_says() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    succeed(&mut nawa(["generate", folder.path().to_str().expect("UTF-8")]));
    let commands = include_str!("../../../docs/commands.md");
    let mut count = 0;
    for section in commands.split("\n## ").skip(1) {
        let (name, help) = section.split_once('\n').expect("a heading");
        let file = folder.path().join(format!("man/{}.1", name.replace(' ', "-")));
        let page =
            words(&fs::read_to_string(&file).unwrap_or_else(|_| panic!("{}", file.display()))).join(" ");
        // What is said of each option, and the paragraphs above: the rest is the synopsis, which a page has in its own way.
        for paragraph in help.split("\n\n").filter(|text| !text.contains("Usage:") && !text.contains("```")) {
            let lines = paragraph.lines().map(str::trim).filter(|line| !line.starts_with('-'));
            let text = lines.collect::<Vec<_>>().join(" ");
            if ["Print help", "Print version", "Options:", "Arguments:", "Commands:", "[default", "[possible"]
                .iter()
                .any(|start| text.contains(start))
            {
                continue;
            }
            let said = words(&text).join(" ");
            assert!(page.contains(&said), "man page {name} lacks: {said}\n{page}");
            count += 1;
        }
    }
    assert!(count > 60, "{count}");
}

#[test]
fn the_unit_is_confined() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        return skip("the_unit_is_confined", "needs systemd-analyze");
    }
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/nawa.service");
    let said =
        output(Command::new("systemd-analyze").args(["security", "--offline=true", "--no-pager"]).arg(unit));
    let said = stdout(&said);
    let level = said.lines().find_map(|line| line.split_once("Overall exposure level for nawa.service: "));
    let level = level.and_then(|(_, rest)| rest.split(' ').next()?.parse::<f64>().ok());
    assert!(level.is_some_and(|level| level <= MOST_EXPOSURE), "{said}");
}

/// libbpf is built by a Makefile of its own, which installs where DESTDIR says.
#[test]
fn where_make_installs_is_not_told_to_what_it_builds() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut make = Command::new("make");
    make.args(["--file=-", "shown", "DESTDIR=/nowhere", "PREFIX=/nowhere"]).current_dir(root);
    let mut make = make.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("make starts");
    let mut typed = make.stdin.take().expect("stdin is piped");
    typed.write_all(b"include Makefile\nshown:\n\t@env\n").expect("make reads");
    drop(typed);
    let shown = stdout(&make.wait_with_output().expect("make ends"));
    assert!(shown.contains("PATH=") && !shown.contains("/nowhere"), "{shown}");
}
