//! Where in the file something is wrong, and the list of all that is.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::{self, Display};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// What the parsers of TOML and of serde say, and the same for who knows neither.
const PLAIN: [(&str, &str); 6] = [
    ("unknown field", "unknown key"),
    ("missing field", "missing key"),
    (
        "duplicate key",
        "this stands here a second time; take one out, or, if it is a path, write [[peer.path]] above each",
    ),
    ("must be quoted, expected literal string", "must be quoted, as \"…\""),
    ("invalid basic string, expected `\"`", "this string does not end in its line; close it with `\"`"),
    ("invalid literal string, expected `'`", "this string does not end in its line; close it with `'`"),
];

/// What serde says that it expected, and what to write.
const WANTED: [(&str, &str); 8] = [
    ("a string", "text in quotes, as \"…\""),
    ("path string", "the name of a file in quotes"),
    ("a boolean", "true or false"),
    ("a sequence", "a list, as [\"…\", \"…\"]"),
    ("u8", "a whole number from 0 to 255"),
    ("u16", "a whole number from 0 to 65535"),
    ("u32", "a whole number from 0 to 4294967295"),
    ("struct Via", "{ address = \"HOST:PORT\", public-key = \"…\" }"),
];

/// What serde says of a value of another type, as `invalid type: integer `3`, expected a string`, in words of the file.
fn plain_type(message: &str) -> Option<String> {
    let rest = ["type: ", "value: ", "length "]
        .iter()
        .find_map(|of| message.strip_prefix("invalid ")?.strip_prefix(of))?;
    let (found, wanted) = rest.split_once(", expected ")?;
    let wanted = wanted.split_once(" with ").map_or(wanted, |(wanted, _)| wanted);
    let found = match found {
        _ if message.starts_with("invalid length") => "a list",
        "map" => "a section",
        "sequence" => "a list",
        _ => found.find(['`', '"']).map_or(found, |at| found[at..].trim_matches('`')),
    };
    let wanted = WANTED.iter().find(|(theirs, _)| *theirs == wanted).map_or(wanted, |(_, ours)| ours);
    Some(format!("{found} cannot stand here; write {wanted}"))
}

/// One thing that is wrong with a configuration file. Displays as `FILE:LINE:COLUMN: what is wrong; what to do`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Complaint {
    file: PathBuf,
    /// Line and column from 1; the column counts characters. `None` if the file could not be read at all.
    position: Option<(usize, usize)>,
    what: String,
}

impl Complaint {
    /// The whole file is at fault.
    pub fn about_file(file: &Path, what: impl Display) -> Self {
        Complaint { file: file.to_owned(), position: None, what: what.to_string() }
    }
}

impl Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some((line, column)) = self.position {
            write!(f, "{line}:{column}:")?;
        }
        write!(f, " {}", self.what)
    }
}

/// Files, one behind the other.
#[derive(Debug, Default)]
pub struct Files {
    /// All of their text.
    pub text: String,
    /// Where each begins in it.
    pub parts: Vec<(usize, PathBuf)>,
}

/// The text of a configuration file and its fragments, and what has been found wrong with it so far.
pub struct Source<'a> {
    file: &'a Path,
    text: &'a str,
    /// Where each file begins in the text.
    parts: Vec<(usize, &'a Path)>,
    complaints: Vec<Complaint>,
}

impl<'a> Source<'a> {
    /// Nothing is wrong with `text` yet.
    pub fn new(file: &'a Path, text: &'a str) -> Self {
        Source { file, text, parts: vec![(0, file)], complaints: Vec::new() }
    }

    /// The same of `file` and its fragments.
    pub fn of(file: &'a Path, files: &'a Files) -> Self {
        let parts = files.parts.iter().map(|(start, part)| (*start, part.as_path())).collect();
        Source { parts, ..Source::new(file, &files.text) }
    }

    /// The text.
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// The folder that relative paths in the file start from.
    pub fn folder(&self) -> &'a Path {
        self.file.parent().unwrap_or(Path::new(""))
    }

    /// The file's name without its extension.
    pub fn stem(&self) -> &'a OsStr {
        self.file.file_stem().unwrap_or(OsStr::new("nawa"))
    }

    /// Notes that what stands at the bytes `span` is wrong.
    pub fn complain(&mut self, span: Range<usize>, what: impl Display) {
        let part = self.parts.iter().rev().find(|(start, _)| *start <= span.start);
        let (start, file) = part.copied().unwrap_or((0, self.file));
        let position = Some(position(&self.text[start..], span.start - start));
        self.complaints.push(Complaint { file: file.to_owned(), position, what: what.to_string() });
    }

    /// Notes an error of the TOML parser or of serde.
    pub fn complain_of_toml(&mut self, error: &toml::de::Error) {
        let what = error.message().trim_end().replace('\n', ", ");
        let plain = plain_type(&what)
            .unwrap_or_else(|| PLAIN.iter().fold(what, |what, (theirs, ours)| what.replace(theirs, ours)));
        self.complain(error.span().unwrap_or(0..0), plain);
    }

    /// Unwraps `result`, or notes its error at `span`.
    pub fn expect<T>(&mut self, span: Range<usize>, result: Result<T, impl Display>) -> Option<T> {
        result.map_err(|error| self.complain(span, error)).ok()
    }

    /// All complaints in the file's order.
    pub fn into_complaints(mut self) -> Vec<Complaint> {
        self.complaints.sort();
        self.complaints
    }
}

/// Complains about every value that was there before.
pub fn unique<T: Ord>(source: &mut Source, values: impl Iterator<Item = (Range<usize>, T)>, what: &str) {
    let mut seen = BTreeSet::new();
    for (span, value) in values {
        if !seen.insert(value) {
            source.complain(span, what);
        }
    }
}

/// Line and column, from 1, of the byte `offset`.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    (line, column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_from_one_in_characters() {
        assert_eq!(position("ab\ncd", 0), (1, 1));
        assert_eq!(position("ab\ncd", 3), (2, 1));
        assert_eq!(position("縄 = 1", 4), (1, 3));
        assert_eq!(position("ab", 99), (1, 3));
    }
}
