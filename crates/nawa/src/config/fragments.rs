//! A file and the fragments beside it, `FILE.d/*.toml`, read as one text, in the order of their names. So a section stands once
//! in all of them together, and what may stand several times (`[[peer]]`) is spread over as many files as one likes.

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::source::{Complaint, Files, Source};

/// A file of more bytes is none: tens of thousands of peers take less.
const LARGEST: u64 = 16 << 20;

/// Reads `file` and its fragments; `new`, where there is one, is to stand in `file`, and is read in its place.
///
/// # Errors
/// What cannot be read, and fragments that do not stand for themselves.
pub fn read(file: &Path, new: Option<&str>) -> Result<Files, Vec<Complaint>> {
    let mut files = Files::default();
    let fragments = fragments(file).map_err(|complaint| vec![complaint])?;
    let mut complaints = Vec::new();
    for (index, part) in std::iter::once(file.to_owned()).chain(fragments).enumerate() {
        let read = match new.filter(|_| index == 0) {
            Some(new) => Ok(new.to_owned()),
            None => contents(&part, index > 0),
        };
        match read {
            Ok(text) => {
                if index > 0 {
                    complaints.extend(stands_alone(&part, &text));
                }
                files.parts.push((files.text.len(), part));
                files.text += &text;
                files.text += "\n";
            }
            Err(error) => {
                let what = match error.kind() {
                    ErrorKind::NotFound if index > 0 => {
                        "this link leads to no file; remove it, or put the file in its place".into()
                    }
                    ErrorKind::NotFound => {
                        "there is no such file; `nawa init` or `nawa join` writes one, or name another".into()
                    }
                    ErrorKind::InvalidData => "this is no text in UTF-8; name a configuration file".into(),
                    _ => format!("cannot be read: {error}; name a file that can"),
                };
                complaints.push(Complaint::about_file(&part, what));
            }
        }
    }
    if complaints.is_empty() { Ok(files) } else { Err(complaints) }
}

/// What `file` holds. What is no regular file might never be read to its end. The file itself may be what a link leads to, as
/// `/dev/stdin` and a shell's `<(…)`: somebody writes there. To a pipe that has a name of its own perhaps nobody ever does.
fn contents(file: &Path, fragment: bool) -> io::Result<String> {
    let pipe = fs::symlink_metadata(file)?.file_type().is_fifo();
    if pipe || (fragment && !fs::metadata(file)?.is_file()) {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    fs::File::open(file)?.take(LARGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST {
        return Err(io::Error::other("it is larger than a configuration can be"));
    }
    // Some editors begin a file with a mark of its encoding, which may not stand in the middle of a text.
    Ok(text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned())
}

fn fragments(file: &Path) -> Result<Vec<PathBuf>, Complaint> {
    let mut folder = file.as_os_str().to_owned();
    folder.push(".d");
    let folder = PathBuf::from(folder);
    // One that cannot be listed to its end has fragments that nobody has read.
    let listed = fs::read_dir(&folder).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let paths: Vec<PathBuf> = match listed {
        Ok(paths) => paths,
        // Too long a name is the file's own, or with what is put behind it: then there is no such folder either.
        Err(error) if [ErrorKind::NotFound, ErrorKind::InvalidFilename].contains(&error.kind()) => {
            return Ok(Vec::new());
        }
        Err(error) => {
            let what =
                format!("cannot be read: {error}; make it a folder that root may read, or move it away");
            return Err(Complaint::about_file(&folder, what));
        }
    };
    // Hidden files are editors' own: locks, and copies of what is being written.
    let hidden = |path: &Path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let is_fragment = |path: &PathBuf| path.extension().is_some_and(|end| end == "toml") && !hidden(path);
    let mut all: Vec<_> = paths.into_iter().filter(is_fragment).collect();
    all.sort();
    Ok(all)
}

/// What begins in the middle of a section would belong to whatever file comes before.
fn stands_alone(file: &Path, text: &str) -> Vec<Complaint> {
    let mut source = Source::new(file, text);
    let (root, errors) = DeTable::parse_recoverable(text);
    errors.iter().for_each(|error| source.complain_of_toml(error));
    for (key, value) in root.get_ref() {
        let (listed, section) = match value.get_ref() {
            DeValue::Array(_) => (true, true),
            DeValue::Table(_) => (false, true),
            _ => (false, false),
        };
        if !section || (key.get_ref() == "peer" && !listed) {
            let what = "this belongs to no section of this file; begin it with its own, as [[peer]]";
            source.complain(key.span(), what);
        }
    }
    source.into_complaints()
}
