//! Key files: read once, never printed, forgotten with zeros.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::str::FromStr;

use rustix::fs::OFlags;
use tunnel::keys::KeyError;
use zeroize::Zeroizing;

/// A key is 44 characters; this leaves room for white space and a confused user.
const LONGEST_FILE: u64 = 4096;

/// Reads a base64 key of 32 bytes from `path`.
///
/// # Errors
/// One sentence if the file is missing, may be read by others than its owner, or holds no key.
pub fn read<K: FromStr<Err = KeyError>>(path: &Path) -> Result<K, String> {
    parse(path, "make it")
}

/// The same, of a secret that others have as well.
///
/// # Errors
/// As those of [`read`].
pub fn read_shared<K: FromStr<Err = KeyError>>(path: &Path) -> Result<K, String> {
    parse(path, "copy the file that the other nodes have, or make the first")
}

/// `get`: how a missing file is got by the command that makes one.
fn parse<K: FromStr<Err = KeyError>>(path: &Path, get: &str) -> Result<K, String> {
    let text = contents(path, get)?;
    text.parse().map_err(|error| format!("{}: {error}", path.display()))
}

fn contents(path: &Path, get: &str) -> Result<Zeroizing<String>, String> {
    let shown = path.display();
    // A pipe that nobody writes to is not waited for.
    let without_waiting = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(without_waiting)
        .open(path)
        .map_err(|error| cannot_open(path, &error, get))?;
    let metadata = file.metadata().map_err(|error| format!("cannot look at {shown}: {error}"))?;
    if !metadata.is_file() {
        return Err(format!("{shown} is not a regular file; name the file that holds the key"));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(format!(
            "{shown} may be read by others (mode {:04o}); run chmod 600 {shown}",
            metadata.mode() & 0o7777
        ));
    }
    let mut text = Zeroizing::new(String::with_capacity(LONGEST_FILE as usize));
    file.by_ref()
        .take(LONGEST_FILE)
        .read_to_string(&mut text)
        .map_err(|error| format!("cannot read {shown}: {error}"))?;
    Ok(text)
}

fn cannot_open(path: &Path, error: &io::Error, get: &str) -> String {
    let shown = path.display();
    match error.kind() {
        ErrorKind::NotFound => {
            format!("there is no {shown}; {get} with `umask 077; nawa keygen > {shown}`")
        }
        _ => format!("cannot open {shown}: {error}; run nawa as the user who may read it, root for a daemon"),
    }
}
