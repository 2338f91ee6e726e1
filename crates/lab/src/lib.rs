//! `lab`: networks of namespaces joined by emulated links, real programs on them, and what they measured.
//!
//! Begin with [`experiment`]: an experiment is data, a list of cases, each one network, one system under test and one
//! thing to do with it. [`run`] carries them out:
//!
//! - [`network`] builds hosts and relays as namespaces ([`namespace`]); their links are TAPs that one real-time
//!   thread ([`emulator`]) joins by [`link::Link`];
//! - [`system`] makes one system ready in it: plain TCP, MPTCP, Nawa as a user starts it, a rival;
//! - [`program`], [`http`], [`fetch`], [`ping`] and [`iperf`] run real programs and time what reaches them;
//! - [`flows`] are TCP flows of the lab's own, for the experiments of `flight`; `controls` has the kernel load what they
//!   need;
//! - [`medium`] is what nodes share that flood messages, [`air`] one with delay and jitter, and `flood` the experiments on
//!   both and in virtual time;
//! - [`dcf`] is the 802.11 medium in real time, and `coding` the experiments on it;
//! - `bicast` are files over SCTP between hosts with two paths, by a program of its own (`transfer.c`);
//! - [`guest`] boots another kernel in a namespace, for what the running one lacks;
//! - `disturbance` cuts links, changes addresses and restarts relays in mid-transfer;
//! - [`report`] prints the table and writes the JSON.
//!
//! Everything is removed at the end ([`cleanup`]): when a value is dropped, on SIGINT and SIGTERM, and by the next run
//! after a SIGKILL.

pub mod air;
mod attack;
mod bicast;
mod bond;
mod call;
mod cleanup;
mod clock;
mod coding;
mod congestion;
mod controls;
pub mod dcf;
mod demo;
mod disturbance;
pub mod emulator;
mod error;
mod events;
pub mod experiment;
pub mod fetch;
mod filter;
mod flight;
mod flood;
pub mod flows;
pub mod guest;
mod hostile;
pub mod http;
pub mod iperf;
pub mod medium;
pub mod namespace;
pub mod network;
mod partial;
pub mod ping;
pub mod program;
#[cfg(feature = "quic")]
mod quic;
mod recovery;
pub mod report;
mod runner;
mod schedule;
mod statistics;
pub mod system;
mod traces;
mod tunnel;
mod workload;

pub use bicast::sctp_stacks;
pub use cleanup::{remove_orphans, start as start_cleanup};
pub use error::Error;
pub use experiment::{RunOptions, Size, list};
pub use runner::{run, run_experiment};
