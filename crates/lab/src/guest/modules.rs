//! The modules that a guest's kernel may load.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::error::{Doing, Error, Result};

/// Where the Debian package keeps them, a folder per kernel.
const FOLDER: &str = "/usr/lib/uml/modules";

/// What loads modules of the newest kernel, each named as `modprobe` takes it, and before it what it depends on.
pub(super) fn commands(lines: &[&str]) -> Result<Vec<String>> {
    let entries = fs::read_dir(FOLDER).doing(|| format!("read {FOLDER}"))?;
    let newest = entries.flatten().map(|entry| entry.path()).max();
    let folder = newest.ok_or_else(|| Error::program("linux.uml", format!("{FOLDER} is empty")))?;
    let index = folder.join("modules.dep");
    let text = fs::read_to_string(&index).doing(|| format!("read {}", index.display()))?;
    commands_of(&folder, &text, lines)
}

/// By the text of a `modules.dep`, lines `FILE: FILE FILE …`: what a file needs, of which the last is needed first
/// (modules.dep(5)).
fn commands_of(folder: &Path, text: &str, lines: &[&str]) -> Result<Vec<String>> {
    let (mut loaded, mut commands) = (BTreeSet::new(), Vec::new());
    for line in lines {
        let (name, parameters) = line.split_once(' ').unwrap_or((line, ""));
        let mut entries = text.lines().filter_map(|entry| entry.split_once(':'));
        let none = || format!("{} has no module `{}`", folder.display(), plain(name));
        let found = entries.find(|(file, _)| name_of(file) == plain(name));
        let (file, needed) = found.ok_or_else(|| Error::program("linux.uml", none()))?;
        let before = needed.split_whitespace().rev().map(|file| (file, ""));
        for (file, parameters) in before.chain([(file, parameters)]) {
            if loaded.insert(file) {
                commands.push(format!("insmod {} {parameters}", folder.join(file).display()));
            }
        }
    }
    Ok(commands)
}

fn name_of(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    plain(name.split('.').next().unwrap_or(name))
}

/// A module's name, in which `-` and `_` are the same.
fn plain(name: &str) -> String {
    name.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEP: &str = "kernel/net/sctp/sctp.ko: kernel/net/ipv4/udp_tunnel.ko kernel/net/ipv6/ipv6.ko\n\
                       kernel/net/ipv6/ipv6.ko:\n\
                       kernel/net/batman-adv/batman-adv.ko:\n";

    #[test]
    fn what_is_needed_comes_first_and_once() {
        let commands = commands_of(Path::new("/m"), DEP, &["sctp a=1 b=2", "ipv6", "batman_adv"]).unwrap();
        let files =
            ["ipv6/ipv6.ko ", "ipv4/udp_tunnel.ko ", "sctp/sctp.ko a=1 b=2", "batman-adv/batman-adv.ko "];
        assert_eq!(commands, files.map(|file| format!("insmod /m/kernel/net/{file}")));
    }

    #[test]
    fn a_module_that_is_not_there_is_named() {
        let error = commands_of(Path::new("/m"), DEP, &["tcp_none"]).unwrap_err();
        assert!(error.to_string().contains("no module `tcp_none`"), "{error}");
    }
}
