//! The modules that a guest's kernel may load.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Doing, Error};

/// Where the Debian package keeps them, a folder per kernel.
const FOLDER: &str = "/usr/lib/uml/modules";

/// All modules of the newest kernel, with what each depends on.
#[derive(Debug)]
pub(super) struct Modules {
    folder: PathBuf,
    /// By name: the file, and the names of what it depends on.
    known: BTreeMap<String, (String, Vec<String>)>,
}

/// A module to load.
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

    pub(super) fn read(&self) -> Result<Vec<u8>, Error> {
        fs::read(&self.path).doing(|| format!("read {}", self.path.display()))
    }
}

/// A module's name, in which `-` and `_` are the same.
pub(super) fn plain(name: &str) -> String {
    name.replace('-', "_")
}

impl Modules {
    pub(super) fn find() -> Result<Self, Error> {
        let entries = fs::read_dir(FOLDER).doing(|| format!("read {FOLDER}"))?;
        let newest = entries.flatten().map(|entry| entry.path()).max();
        let folder = newest.ok_or_else(|| Error::program("linux.uml", format!("{FOLDER} is empty")))?;
        let index = folder.join("modules.dep");
        let text = fs::read_to_string(&index).doing(|| format!("read {}", index.display()))?;
        Ok(Self::parse(&folder, &text))
    }

    /// From the text of a `modules.dep`: lines `FILE: FILE FILE …`.
    fn parse(folder: &Path, text: &str) -> Self {
        let entry = |line: &str| {
            let (file, needed) = line.split_once(':')?;
            let needed = needed.split_whitespace().map(name_of).collect();
            Some((name_of(file), (file.to_owned(), needed)))
        };
        Self { folder: folder.into(), known: text.lines().filter_map(entry).collect() }
    }

    /// `name` and all that it depends on, what is needed first.
    pub(super) fn in_order(&self, name: &str) -> Result<Vec<Module>, Error> {
        let mut order = Vec::new();
        self.visit(&plain(name), &mut order, 0)?;
        Ok(order)
    }

    fn visit(&self, name: &str, order: &mut Vec<Module>, depth: usize) -> Result<(), Error> {
        let Some((file, needed)) = self.known.get(name).filter(|_| depth <= self.known.len()) else {
            let reason = format!("{} has no module `{name}`", self.folder.display());
            return Err(Error::program("linux.uml", reason));
        };
        needed.iter().try_for_each(|needed| self.visit(needed, order, depth + 1))?;
        let module = Module { name: name.into(), path: self.folder.join(file) };
        if !order.contains(&module) {
            order.push(module);
        }
        Ok(())
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
                       kernel/net/ipv6/ip6_udp_tunnel.ko: kernel/net/ipv6/ipv6.ko\n\
                       kernel/net/ipv6/ipv6.ko:\n\
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

    #[test]
    fn a_circle_ends() {
        assert!(Modules::parse(Path::new("/m"), "a.ko: b.ko\nb.ko: a.ko\n").in_order("a").is_err());
    }
}
