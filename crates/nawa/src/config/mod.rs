//! The configuration file: read ([`document`]) and checked ([`check`], [`peer`]). A file with one mistake starts nothing, and all
//! its mistakes are named at once.

mod bicast;
mod check;
mod coding;
mod document;
pub mod edit;
mod flood;
mod fragments;
mod peer;
mod secret;
mod settings;
mod source;
pub mod value;

#[cfg(test)]
mod tests;

use std::path;

pub use self::bicast::mode_name;
pub use secret::read as read_key;
pub use settings::{Base, Flight, Relay, Settings, Tunnel};
pub use source::Complaint;
pub use value::HostPort;

use crate::failure::Failure;
use source::Source;

/// Reads and checks `file`, and the fragments in `FILE.d`.
///
/// # Errors
/// Bad input with a line for everything that is wrong.
pub fn load(file: &path::Path) -> Result<Settings, Failure> {
    load_text(file, None).map_err(|complaints| bad_file(&complaints))
}

/// Checks `text`, which is to stand in `file`, and the fragments in `FILE.d`.
///
/// # Errors
/// As [`load`].
pub fn check_text(file: &path::Path, text: &str) -> Result<(), Failure> {
    load_text(file, Some(text)).map(drop).map_err(|complaints| bad_file(&complaints))
}

fn bad_file(complaints: &[Complaint]) -> Failure {
    let mut failure = Failure::bad_input("");
    failure.lines = complaints.iter().map(Complaint::to_string).collect();
    failure
}

fn load_text(file: &path::Path, new: Option<&str>) -> Result<Settings, Vec<Complaint>> {
    let files = fragments::read(file, new)?;
    meant(Source::of(file, &files))
}

#[cfg(test)]
fn parse(file: &path::Path, text: &str) -> Result<Settings, Vec<Complaint>> {
    meant(Source::new(file, text))
}

fn meant(mut source: Source<'_>) -> Result<Settings, Vec<Complaint>> {
    let document = document::read(&mut source);
    let settings = document.and_then(|document| check::check(&mut source, document));
    let complaints = source.into_complaints();
    match settings {
        Some(settings) if complaints.is_empty() => Ok(settings),
        _ => Err(complaints),
    }
}
