//! One file per command.

pub mod capture;
pub mod check;
pub mod doctor;
pub mod down;
pub mod flight;
pub mod flood;
pub mod generate;
pub mod init;
pub mod invite;
pub mod join;
pub mod keygen;
pub mod lab;
pub mod monitor;
pub mod path;
pub mod peer;
pub mod pubkey;
pub mod run;
pub mod status;
pub mod test;
pub mod top;
pub mod up;

use std::io::{ErrorKind, Write};

use serde::Serialize;

use crate::failure::Failure;

/// The line on stderr by which whoever started the daemon knows that it forwards traffic.
pub const READY: &str = "nawa: ready";

/// Prints `text` and a line's end on stdout.
///
/// # Errors
/// Failed if nobody reads any more; as with `| head`, that is no news.
pub fn print(text: &str) -> Result<(), Failure> {
    writeln!(std::io::stdout(), "{text}").map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::silent(),
        _ => Failure::failed(format!("cannot print: {error}")),
    })
}

/// Prints `value` as a line of JSON.
///
/// # Errors
/// As [`print`].
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    print(&serde_json::to_string(value).map_err(|error| Failure::failed(format!("no JSON: {error}")))?)
}
