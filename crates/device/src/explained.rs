//! Errors that say what could not be done.

use std::fmt::Display;
use std::io;

/// `error` behind `what`. Too many open files, of this process or of all, are `QuotaExceeded`, which the standard library leaves without
/// a kind.
pub fn explained(error: impl Into<io::Error>, what: impl Display) -> io::Error {
    let error = error.into();
    let kind = match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => io::ErrorKind::QuotaExceeded,
        _ => error.kind(),
    };
    io::Error::new(kind, format!("{what}: {error}"))
}
