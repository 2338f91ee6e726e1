//! `nawa generate`: man pages, completions and the page of the commands, from the command line's definitions.

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use clap_complete::Shell;

use crate::failure::Failure;

/// Columns of the page of the commands.
const WIDTH: usize = 100;

/// Writes `man/*.1`, one for each command, `completions/` of the usual shells, and `commands.md` into `folder`.
pub fn run(folder: &Path, command: Command) -> Result<(), Failure> {
    let failed = |error| Failure::failed(format!("cannot write into {}: {error}", folder.display()));
    write(folder, command).map_err(failed)
}

fn write(folder: &Path, mut command: Command) -> io::Result<()> {
    let (man, completions) = (folder.join("man"), folder.join("completions"));
    fs::create_dir_all(&man)?;
    fs::create_dir_all(&completions)?;
    fs::write(folder.join("commands.md"), page(command.clone()))?;
    // Before the completions, which add a `help` to each command.
    clap_mangen::generate_to(command.clone().disable_help_subcommand(true), &man)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command, "nawa", &completions)?;
    }
    Ok(())
}

/// docs/commands.md: every command's help.
pub fn page(command: Command) -> String {
    let mut text = "# Commands\n\nWhat `--help` says of each.\n".to_owned();
    let mut command = command.disable_help_subcommand(true).term_width(WIDTH);
    command.build();
    add(&mut text, &mut command);
    text
}

fn add(text: &mut String, command: &mut Command) {
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    let help: Vec<String> =
        command.render_long_help().to_string().lines().map(|line| line.trim_end().to_owned()).collect();
    *text += &format!("\n## {name}\n\n```text\n{}\n```\n", help.join("\n").trim_end());
    command
        .get_subcommands_mut()
        .filter(|command| !command.is_hide_set())
        .for_each(|command| add(text, command));
}
