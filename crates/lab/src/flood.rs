//! The experiments of paper 000: messages flooded over a medium that many nodes share.

mod breakdown;
mod frames;
mod node;
mod ping;
mod rate;
mod reach;
mod real;
mod relay;
mod simulation;
mod stages;

use std::time::Duration;

use serde_json::Value;

use crate::error::Error;
use crate::experiment::{Case, Fields, Workload};
use crate::network::Topology;
use crate::runner::Sample;
use crate::system::{Means, System};

pub(crate) use breakdown::{ABOUT as ABOUT_BREAKDOWN, experiment as breakdown};
pub(crate) use rate::{ABOUT as ABOUT_RATE, experiment as rate};
pub(crate) use reach::{ABOUT as ABOUT_REACH, experiment as reach};
pub(crate) use relay::{ABOUT as ABOUT_RELAY, experiment as relay};

/// What is done on a medium of its own.
#[derive(Clone, Debug)]
pub enum Test {
    /// `flood-relay`.
    Relay(relay::RelayTest),
    /// `flood-breakdown`.
    Breakdown(breakdown::StageTest),
    /// `flood-rate`.
    Rate(rate::RateTest),
    /// `flood-reach`, in virtual time.
    Reach(reach::ReachTest),
}

/// A case that brings its own network.
fn case(key: Fields<Value>, test: Test, estimate: Duration) -> Case {
    Case {
        key,
        topology: Topology::Direct,
        system: System::Tcp,
        congestion_control: "reno",
        workload: Workload::Flood(Box::new(test)),
        estimate,
    }
}

impl Test {
    /// What it runs.
    pub(crate) fn programs(&self) -> &'static [&'static str] {
        match self {
            Test::Relay(_) | Test::Breakdown(_) | Test::Rate(_) => &["ethtool", "nft"],
            Test::Reach(_) => &["ethtool"],
        }
    }
}

/// One sample.
pub(crate) fn measure(test: &Test, means: &Means, seed: u64) -> Result<Sample, Error> {
    match test {
        Test::Relay(test) => relay::measure(test, means, seed),
        Test::Breakdown(test) => breakdown::measure(test, means),
        Test::Rate(test) => rate::measure(test, means),
        Test::Reach(test) => reach::measure(test, means, seed),
    }
}
