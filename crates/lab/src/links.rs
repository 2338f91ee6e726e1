//! A system on emulated links, and a task that it does there.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use link::Bitrate;

use crate::error::Error;
use crate::network::{Network, Topology};
use crate::system::{NawaSetup, Ready, System};
use crate::workload::{Need, Prepared, Sample, Site, Workload};

/// A task with its system and its links.
#[derive(Clone, Debug)]
pub(crate) struct OnLinks<T> {
    pub(crate) setup: Setup,
    pub(crate) task: T,
}

/// A system and its links.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// The network, built anew for each run.
    pub(crate) topology: Topology,
    /// What is under test.
    pub(crate) system: System,
    /// The congestion control of both ends' TCP.
    pub(crate) congestion_control: &'static str,
}

/// What is done with a system that carries traffic.
pub(crate) trait Task: Clone + Debug + Send + Sync + 'static {
    /// What it runs, beside the system.
    fn programs(&self) -> &'static [&'static str];

    fn measure(&self, bench: &Bench, ready: &mut Ready) -> Result<Sample, Error>;
}

pub(crate) struct Bench<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) network: &'a Network,
    pub(crate) site: &'a Site<'a>,
}

/// A system that carries traffic, and its network.
struct Standing<'a, T> {
    // Dropped in this order.
    ready: Ready,
    network: Network,
    site: Site<'a>,
    workload: &'a OnLinks<T>,
}

impl<T: Task> Workload for OnLinks<T> {
    fn needs(&self) -> Vec<Need> {
        Need::programs(&[self.setup.system.programs(), self.task.programs()].concat())
    }

    fn rate(&self) -> Bitrate {
        self.setup.topology.rate()
    }

    fn by_rival(&self, program: &Path) -> Option<Arc<dyn Workload>> {
        let is_usual = matches!(self.setup.system, System::Nawa(setup) if setup == NawaSetup { relayed: setup.relayed, ..NawaSetup::AUTO });
        let setup = Setup { system: System::Rival(program.into()), ..self.setup.clone() };
        is_usual.then(|| Arc::new(Self { setup, task: self.task.clone() }) as Arc<dyn Workload>)
    }

    fn prepare<'a>(&'a self, site: Site<'a>) -> Result<Box<dyn Prepared + 'a>, Error> {
        let network = Network::build(site.emulator, &self.setup.topology, site.seed)?;
        let ready = self.setup.system.start(&network, &site.means())?;
        network.set_congestion_control(self.setup.congestion_control)?;
        Ok(Box::new(Standing { ready, network, site, workload: self }))
    }
}

impl<T: Task> Prepared for Standing<'_, T> {
    fn measure(mut self: Box<Self>) -> Result<Sample, Error> {
        let bench = Bench { setup: &self.workload.setup, network: &self.network, site: &self.site };
        let sample = self.workload.task.measure(&bench, &mut self.ready)?;
        self.ready.check()?;
        Ok(sample)
    }
}
