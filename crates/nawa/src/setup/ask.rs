//! Questions on stderr, answers on stdin: a script may pipe them in, or give flags and be asked nothing.

use std::io::{self, BufRead, Write};
use std::str::FromStr;

use crate::failure::Failure;

/// The longest answer, bytes.
const LONGEST: u64 = 4096;

/// `given`, if a flag gave it; else what is answered to `question`, asked again until it can be read. An empty answer takes
/// `default`.
///
/// # Errors
/// Bad input if nobody answers; the sentence names `flag`.
pub fn ask<T: FromStr>(
    given: Option<T>,
    flag: &str,
    question: &str,
    default: Option<&str>,
) -> Result<T, Failure>
where
    T::Err: std::fmt::Display,
{
    if let Some(given) = given {
        return Ok(given);
    }
    let shown = default.map_or(String::new(), |default| format!(" [{default}]"));
    loop {
        // Where nobody reads, the answer may still come.
        let _ = write!(io::stderr(), "{question}{shown}: ");
        let line = read_line(flag)?;
        let answer = match (line.trim(), default) {
            ("", Some(default)) => default,
            (answer, _) => answer,
        };
        match answer.parse() {
            Ok(value) => return Ok(value),
            Err(error) => {
                let _ = writeln!(io::stderr(), "{error}");
            }
        }
    }
}

fn read_line(flag: &str) -> Result<String, Failure> {
    let mut line = String::new();
    match io::Read::take(io::stdin().lock(), LONGEST).read_line(&mut line) {
        Ok(0) => Err(Failure::bad_input(format!("nobody answers; give {flag}"))),
        Ok(_) => Ok(line),
        Err(error) => {
            Err(Failure::bad_input(format!("cannot read an answer from stdin: {error}; give {flag}")))
        }
    }
}

/// Values with commas or spaces between them.
#[derive(Clone, Debug)]
pub struct List<T>(pub Vec<T>);

impl<T: FromStr> FromStr for List<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        let parts = text.split([',', ' ']).filter(|part| !part.is_empty());
        parts.map(str::parse).collect::<Result<_, _>>().map(List)
    }
}
