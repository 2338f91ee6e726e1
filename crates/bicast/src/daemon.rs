//! Keeps the programs where the configuration says, as interfaces and addresses come and go.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bpf::Error;
use device::poller::Interest;
use device::worker::{self, Asked, Inbox, Worker};
use device::{Changes, Net, Notices, Poller};

use crate::kernel::{Programs, Settings, Watch};

/// An association of which nothing has been sent for so long is forgotten: ten times a HEARTBEAT's interval
/// (RFC 9260 §16).
const IDLE: Duration = Duration::from_secs(300);
/// How often those are looked for.
const SWEEP: Duration = Duration::from_secs(60);

/// The most bytes of copies that leave by a metered interface, in percent of what an association sends.
pub const METERED_PERCENT: u32 = 3;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Between which packets are copied, by name.
    pub interfaces: Vec<String>,
    /// Those of them that are paid for by the byte.
    pub metered: Vec<String>,
    /// What the programs do.
    pub settings: Settings,
}

/// How an interface takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// There is none of that name; it is waited for.
    Absent,
    /// It cannot: its frames are not Ethernet's.
    NotEthernet,
    /// It is down, or has no address that others can reach.
    NoAddress,
    /// Copies leave by it.
    Used,
}

/// An interface of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// How it takes part.
    pub part: Part,
    /// Its addresses that copies may leave from.
    pub addresses: Vec<IpAddr>,
}

/// What is in force, how the interfaces take part, and what the programs know and have counted.
pub type Status = (Config, Vec<Interface>, Arc<Watch>);
/// Asks for the state.
pub type View = worker::Watch<Status, Config>;
/// The programs at work. Dropping it takes them off.
pub type Running = Worker<Status, Config>;

struct State {
    config: Config,
    programs: Programs,
    watch: Arc<Watch>,
    interfaces: Vec<Interface>,
}

/// Starts in the calling thread's network namespace. `on_end` is told if it ends without being stopped.
///
/// # Errors
/// What the kernel lacks or says.
pub fn start(config: Config, on_end: impl FnOnce(String) + Send + 'static) -> Result<Running, Error> {
    let programs = Programs::load(&config.settings)?;
    let watch = Arc::new(programs.watch()?);
    let mut state = State { config, programs, watch, interfaces: Vec::new() };
    // Subscribed before looking, so that nothing is missed in between.
    let changes = Changes::subscribe().map_err(Error::system("watch interfaces"))?;
    // A kernel without IPsec or nftables has none of their rules.
    let rules =
        [Notices::of_ipsec_policies(), Notices::of_nftables()].into_iter().flatten().collect::<Vec<_>>();
    state.refresh()?;
    let (asks, inbox) = worker::watch().map_err(Error::system("start a thread"))?;
    let on_end = |why| on_end(format!("bicast does not see interfaces change any more: {why}"));
    let work = move || follow(state, &changes, &rules, &inbox);
    Worker::start("bicast", asks, on_end, work).map_err(Error::system("start a thread"))
}

/// Until it is told to stop.
fn follow(
    mut state: State,
    changes: &Changes,
    rules: &[Notices],
    inbox: &Inbox<Status, Config>,
) -> io::Result<()> {
    const ASKED: u64 = 1;
    const RULES: u64 = 2;
    let mut poller = Poller::new()?;
    poller.add(changes, 0, Interest::Read)?;
    poller.add(&inbox.waker, ASKED, Interest::Read)?;
    rules.iter().try_for_each(|notices| poller.add(notices, RULES, Interest::Read))?;
    let mut sweep_at = device::monotonic() + SWEEP;
    loop {
        let left = sweep_at.saturating_sub(device::monotonic());
        let ready: Vec<u64> = poller.wait(Some(left))?.map(|ready| ready.token).collect();
        if inbox.answer(&mut state) {
            return Ok(());
        }
        if ready == [ASKED] && device::monotonic() < sweep_at {
            continue;
        }
        changes.take()?;
        if ready.contains(&RULES) {
            rules.iter().try_for_each(Notices::forget)?;
            if let Err(error) = state.programs.rules_changed(device::monotonic()) {
                tracing::warn!("{error}");
            }
        }
        if let Err(error) = state.refresh() {
            tracing::warn!("{error}");
        }
        let now = device::monotonic();
        if now >= sweep_at {
            state.watch.forget_idle(now, IDLE);
            sweep_at = now + SWEEP;
        }
    }
}

impl Asked<Status, Config> for State {
    fn status(&self) -> Status {
        (self.config.clone(), self.interfaces.clone(), Arc::clone(&self.watch))
    }

    /// What the kernel refuses is not in force, but what came before it is: whoever asks goes back.
    fn change(&mut self, config: Config) -> Result<(), String> {
        self.programs.set(&config.settings).map_err(|error| error.to_string())?;
        self.config = config;
        self.refresh().map_err(|error| error.to_string())
    }
}

impl State {
    /// Looks at the interfaces, and has the programs where they can be.
    fn refresh(&mut self) -> Result<(), Error> {
        let mut net = Net::open().map_err(Error::system("look at interfaces"))?;
        let (mut hooks, mut own, mut interfaces) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        for name in &self.config.interfaces {
            let (part, index, addresses) = look(&mut net, name);
            let most = if self.config.metered.contains(name) { METERED_PERCENT } else { 100 };
            hooks.extend(index.map(|index| (index, most)));
            own.extend(addresses.iter().filter_map(|address| Some((*address, index?))));
            interfaces.push(Interface { name: name.clone(), part, addresses });
        }
        if self.interfaces != interfaces {
            tell(&interfaces);
            self.interfaces = interfaces;
        }
        // Addresses first: those of an interface that is gone are no place to send copies to.
        self.programs.set_own(&own)?;
        self.programs.attach(&hooks)
    }
}

/// How an interface takes part, its index if the programs belong on it, and its addresses.
fn look(net: &mut Net, name: &str) -> (Part, Option<u32>, Vec<IpAddr>) {
    let Ok(link) = net.link(name) else { return (Part::Absent, None, Vec::new()) };
    if !link.ethernet {
        return (Part::NotEthernet, None, Vec::new());
    }
    let mut addresses = if link.running { device::addresses(name).unwrap_or_default() } else { Vec::new() };
    addresses.retain(reachable);
    addresses.sort();
    let part = if addresses.is_empty() { Part::NoAddress } else { Part::Used };
    (part, Some(link.index), addresses)
}

/// Whether others than the neighbours can send to it.
fn reachable(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
    }
}

/// Never worse than doing nothing, and never silently nothing.
fn tell(interfaces: &[Interface]) {
    for interface in interfaces {
        tracing::info!(interface = interface.name, part = ?interface.part, "bicast");
    }
    if usable(interfaces) < 2 {
        tracing::warn!(
            "bicast copies nothing: it needs two interfaces with addresses; `nawa status` shows what is missing"
        );
    }
}

/// How many interfaces copies may leave by.
pub fn usable(interfaces: &[Interface]) -> usize {
    interfaces.iter().filter(|interface| interface.part == Part::Used).count()
}
