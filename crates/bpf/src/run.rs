//! Running a BPF program by hand, as tests do.

use std::io;
use std::os::fd::BorrowedFd;

use libbpf_rs::{Object, ProgramInput};

use crate::{Error, ffi};

/// A loaded object whose programs of type `syscall` can be run.
pub struct Runnable(Object);

impl Runnable {
    /// Loads `object`.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn load(object: &[u8]) -> Result<Runnable, Error> {
        let name = "to run by hand";
        let loaded = crate::open(object, name)?.load().map_err(|error| crate::refused(name, error))?;
        Ok(Runnable(loaded))
    }

    /// Runs `program` on `context`, which it may change.
    ///
    /// # Errors
    /// If there is none, or the kernel does not run it.
    pub fn run(&self, program: &str, context: &mut [u8]) -> Result<(), Error> {
        let found = crate::program(&self.0, program)?;
        let input = ProgramInput { context_in: Some(context), ..ProgramInput::default() };
        found.test_run(input).map(drop).map_err(|error| Error::loader("run a BPF program", error))
    }
}

/// Runs `program` on `frame` so many times in a row, with `context` at first. Several threads may do so with one program.
///
/// # Errors
/// If the kernel does not run it.
pub fn repeat(program: BorrowedFd, context: &[u8], frame: &[u8], times: u32) -> io::Result<()> {
    ffi::run_repeatedly(program, context, frame, times)
}
