//! The modules that a guest's kernel may load.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Doing, Error, Result};

/// Where the Debian package keeps them, a folder per kernel.
const FOLDER: &str = "/usr/lib/uml/modules";

/// All modules of the newest kernel.
#[derive(Debug)]
pub(super) struct Modules {
    folder: PathBuf,
    /// By name: the files to load, in this order.
    known: BTreeMap<String, Vec<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Module {
    pub(super) name: String,
    path: PathBuf,
}

impl Module {
    /// Its path in a guest.
    pub(super) fn inside(&self) -> String {
        format!("/lib/modules/{}.ko", self.name)
    }

    pub(super) fn read(&self) -> Result<Vec<u8>> {
        fs::read(&self.path).doing(|| format!("read {}", self.path.display()))
    }
}

/// A module's name, in which `-` and `_` are the same.
pub(super) fn plain(name: &str) -> String {
    name.replace('-', "_")
}

impl Modules {
    pub(super) fn find() -> Result<Self> {
        let entries = fs::read_dir(FOLDER).doing(|| format!("read {FOLDER}"))?;
        let newest = entries.flatten().map(|entry| entry.path()).max();
        let folder = newest.ok_or_else(|| Error::program("linux.uml", format!("{FOLDER} is empty")))?;
        let index = folder.join("modules.dep");
        let text = fs::read_to_string(&index).doing(|| format!("read {}", index.display()))?;
        Ok(Self::parse(&folder, &text))
    }

    /// From the text of a `modules.dep`, lines `FILE: FILE FILE …`: what a file needs, of which the last is needed first
    /// (modules.dep(5)).
    fn parse(folder: &Path, text: &str) -> Self {
        let entry = |line: &str| {
            let (file, needed) = line.split_once(':')?;
            let order = needed.split_whitespace().rev().chain([file]);
            Some((name_of(file), order.map(str::to_owned).collect()))
        };
        Self { folder: folder.into(), known: text.lines().filter_map(entry).collect() }
    }

    /// `name` and all that it depends on, what is needed first.
    pub(super) fn in_order(&self, name: &str) -> Result<Vec<Module>> {
        let none = || format!("{} has no module `{}`", self.folder.display(), plain(name));
        let files = self.known.get(&plain(name)).ok_or_else(|| Error::program("linux.uml", none()))?;
        Ok(files.iter().map(|file| Module { name: name_of(file), path: self.folder.join(file) }).collect())
    }
}

fn name_of(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    plain(name.split('.').next().unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEP: &str = "kernel/net/sctp/sctp.ko: kernel/net/ipv6/ip6_udp_tunnel.ko kernel/net/ipv6/ipv6.ko\n\
                       kernel/net/batman-adv/batman-adv.ko:\n";

    fn names(name: &str) -> Vec<String> {
        let modules = Modules::parse(Path::new("/m"), DEP);
        modules.in_order(name).unwrap().into_iter().map(|module| module.name).collect()
    }

    #[test]
    fn what_is_needed_comes_first_and_once() {
        assert_eq!(names("sctp"), ["ipv6", "ip6_udp_tunnel", "sctp"]);
        assert_eq!(names("batman-adv"), ["batman_adv"]);
    }

    #[test]
    fn a_module_that_is_not_there_is_named() {
        let error = Modules::parse(Path::new("/m"), DEP).in_order("tcp_none").unwrap_err();
        assert!(error.to_string().contains("no module `tcp_none`"), "{error}");
    }
}
