//! `nawa`: many weak links, one strong line. Wiring only: the command line ([`cli`]), one file per command
//! ([`command`]), the configuration file ([`config`]), the running daemon ([`daemon`]) and the socket by which
//! commands reach it ([`control`]); [`live`] changes what runs. The work is done by the crates `tunnel` and `lab`.

mod bicast;
mod caps;
mod cli;
mod coding;
mod command;
mod config;
mod control;
mod daemon;
mod doctor;
mod epoch;
mod event;
mod failure;
mod flight;
mod flood;
mod incoming;
mod live;
mod logging;
mod metrics;
mod notify;
mod restarts;
mod setup;
mod strands;
mod terminal;

fn main() -> std::process::ExitCode {
    cli::main()
}
