//! `lab`: networks of namespaces joined by emulated links, real programs on them, and what they measured.
//!
//! Begin with [`experiment`]: an experiment is data, a list of cases, which `axes` span. What a case makes ready and measures is a
//! [`workload`]. Each strand has a folder with its experiments, and [`catalog`] lists them all; nothing below it names a strand.
//! [`run`] carries an experiment out:
//!
//! - [`network`] builds hosts and relays as namespaces ([`namespace`]); their links are TAPs that one thread
//!   ([`emulator`]) joins by [`link::Link`];
//! - [`system`] makes one system ready in it: plain TCP, MPTCP, Nawa as a user starts it, a rival; `links` are
//!   workloads of a system on such a network;
//! - [`program`], [`http`], [`fetch`], [`ping`] and `iperf` run real programs and time what reaches them;
//! - [`flows`] are TCP flows of the lab's own; `controls` has the kernel load what they need;
//! - [`medium`] is what nodes share that flood messages, within the kernel, [`dcf`] 802.11 or links with delay and jitter (`ether`) on a
//!   thread as `real_time` has it;
//! - [`guest`] boots another kernel in a namespace, for what the running one lacks;
//! - `disturbance` cuts links, changes addresses and restarts relays in mid-transfer;
//! - `report` prints the table and writes the JSON; `page` draws a folder of such files (`paper`), and the `series` of one run.
//!
//! Everything is removed at the end ([`cleanup`]): when a value is dropped, on SIGINT and SIGTERM, and by the next run
//! after a SIGKILL.

mod accuracy;
mod axes;
mod background;
pub mod bicast;
mod call;
pub mod catalog;
mod cleanup;
mod clock;
mod coding;
mod command;
mod congestion;
mod controls;
mod counters;
mod datagram;
pub mod dcf;
mod disturbance;
pub mod emulator;
mod error;
mod ether;
pub mod experiment;
pub mod fetch;
pub mod field;
pub mod flight;
mod flood;
pub mod flows;
pub mod guest;
pub mod http;
mod iperf;
mod links;
pub mod medium;
mod mesh;
pub mod namespace;
pub mod network;
mod options;
mod page;
mod paper;
mod partial;
pub mod ping;
pub mod program;
mod real_time;
mod report;
mod runner;
mod schedule;
mod series;
mod statistics;
pub mod system;
mod traces;
mod tunnel;
pub mod workload;

pub use bicast::sctp_stacks;
pub use catalog::list;
pub use cleanup::{remove_orphans, start as start_cleanup};
pub use error::{Error, Result};
pub use options::{RunOptions, Size};
pub use page::{picture, report, show};
pub use runner::{run, run_all, run_each, run_experiment};
