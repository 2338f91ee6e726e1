//! A guest's files, as the archive that its kernel unpacks (cpio, "newc").

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::complete;
use crate::error::{Doing, Error, Result};
use crate::program;

const FOLDER: u32 = 0o040_755;
/// Everything may be executed.
const FILE: u32 = 0o100_755;

/// Where the kernel mounts something, or programs expect to write.
const FOLDERS: [&str; 5] = ["dev", "proc", "sys", "tmp", "run"];

/// Files by path, without the leading slash: mode and content. A folder sorts before what is in it.
#[derive(Debug)]
pub(super) struct Files(BTreeMap<String, (u32, Vec<u8>)>);

impl Files {
    pub(super) fn new() -> Self {
        let folders = FOLDERS.map(|name| (name.to_owned(), (FOLDER, Vec::new())));
        Self(BTreeMap::from(folders))
    }

    /// `path` is absolute.
    pub(super) fn add(&mut self, path: impl AsRef<str>, content: Vec<u8>) {
        let path = path.as_ref().trim_start_matches('/');
        for (at, _) in path.match_indices('/') {
            self.0.entry(path[..at].to_owned()).or_insert_with(|| (FOLDER, Vec::new()));
        }
        self.0.insert(path.to_owned(), (FILE, content));
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.0.contains_key(path.trim_start_matches('/'))
    }

    /// A program by name or path, under its name in `/bin`, and where it expects them the libraries that it needs.
    pub(super) fn add_program(&mut self, program: &Path) -> Result<()> {
        let found = program::find(program).ok_or_else(|| program::missing(&program.to_string_lossy()))?;
        let name = found.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.add(format!("/bin/{name}"), read(&found)?);
        for library in libraries(&found)? {
            self.add(library.to_string_lossy(), read(&library)?);
        }
        Ok(())
    }

    pub(super) fn pack(&self) -> Vec<u8> {
        let mut archive = Vec::new();
        for (number, (path, (mode, content))) in (1..).zip(&self.0) {
            write_entry(&mut archive, number, path, *mode, content);
        }
        write_entry(&mut archive, 0, "TRAILER!!!", 0, &[]);
        archive
    }
}

/// A header of thirteen numbers in hexadecimal, the name with its NUL, the content; each padded to four bytes (Linux,
/// Documentation/driver-api/early-userspace/buffer-format.rst).
fn write_entry(archive: &mut Vec<u8>, number: u32, path: &str, mode: u32, content: &[u8]) {
    let links = if mode == FOLDER { 2 } else { 1 };
    let fields = [number, mode, 0, 0, links, 0, content.len() as u32, 0, 0, 0, 0, path.len() as u32 + 1, 0];
    archive.extend(b"070701");
    for field in fields {
        archive.extend(format!("{field:08x}").bytes());
    }
    archive.extend(path.bytes());
    archive.push(0);
    archive.resize(archive.len().next_multiple_of(4), 0);
    archive.extend(content);
    archive.resize(archive.len().next_multiple_of(4), 0);
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).doing(|| format!("read {}", path.display()))
}

/// The shared libraries that `program` needs, its loader among them; a static program needs none.
fn libraries(program: &Path) -> Result<BTreeSet<PathBuf>> {
    let said = match complete("ldd", Command::new("ldd").arg(program), "") {
        // For a static program.
        Err(Error::Program { .. }) => String::new(),
        said => said?,
    };
    Ok(said.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_folders_before_files_and_an_end() {
        let mut files = Files::new();
        files.add("/a/b/c", b"hello".to_vec());
        let archive = files.pack();
        let text = String::from_utf8_lossy(&archive);
        let at = |name: &str| text.find(name).unwrap_or_else(|| panic!("{name} in {text}"));
        assert!(at("a\0") < at("a/b\0") && at("a/b\0") < at("a/b/c\0"));
        assert!(at("hello") < at("TRAILER!!!\0"));
        assert_eq!(archive.len() % 4, 0);
        assert!(files.has("/a/b/c") && !files.has("/a/c"));
    }

    #[test]
    fn what_a_program_needs_comes_with_it() {
        let mut files = Files::new();
        files.add_program(Path::new("sh")).unwrap();
        assert!(files.has("/bin/sh"));
        let needed = libraries(Path::new("/bin/sh")).unwrap();
        assert!(!needed.is_empty() && needed.iter().all(|library| files.has(&library.to_string_lossy())));
        let error = files.add_program(Path::new("no-such-program-anywhere")).unwrap_err();
        assert!(error.to_string().contains("no-such-program-anywhere"), "{error}");
    }
}
