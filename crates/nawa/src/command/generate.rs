//! `nawa generate`: man pages and completions from the command line's definitions.

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use clap_complete::Shell;

use crate::failure::Failure;

/// Writes `man/*.1`, one for each command, and `completions/` of the usual shells into `folder`.
pub fn run(folder: &Path, command: Command) -> Result<(), Failure> {
    let failed = |error| Failure::failed(format!("cannot write into {}: {error}", folder.display()));
    write(folder, command).map_err(failed)
}

fn write(folder: &Path, mut command: Command) -> io::Result<()> {
    let (man, completions) = (folder.join("man"), folder.join("completions"));
    fs::create_dir_all(&man)?;
    fs::create_dir_all(&completions)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command, "nawa", &completions)?;
    }
    clap_mangen::generate_to(command.disable_help_subcommand(true), &man)
}
