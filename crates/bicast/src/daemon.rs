//! Keeps the programs where the configuration says, as interfaces and addresses come and go.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use bpf::Error;
use device::poller::Interest;
use device::{Changes, Net, Notices, Poller, Waker};

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

/// The programs at work. Dropping it takes them off.
pub struct Running {
    state: Arc<Mutex<State>>,
    stop: Waker,
    thread: Option<JoinHandle<()>>,
}

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
    let state = Arc::new(Mutex::new(state));
    let stop = Waker::new().map_err(Error::system("start a thread"))?;
    let (theirs, stopped) = (Arc::clone(&state), stop.clone());
    let work = move || {
        if let Err(why) = device::process::outcome(|| follow(&theirs, &changes, &rules, &stopped)) {
            on_end(format!("bicast does not see interfaces change any more: {why}"));
        }
    };
    let thread = Builder::new().name("bicast".into()).spawn(work);
    let thread = Some(thread.map_err(Error::system("start a thread"))?);
    Ok(Running { state, stop, thread })
}

impl Running {
    /// Does as `config` says from now on.
    ///
    /// # Errors
    /// What the kernel says; then some of it may not be in force.
    pub fn reconfigure(&self, config: Config) -> Result<(), Error> {
        let mut state = lock(&self.state);
        state.programs.set(&config.settings)?;
        state.config = config;
        state.refresh()
    }

    /// What asks for the state, from any thread, for as long as this runs.
    pub fn view(&self) -> View {
        View(Arc::clone(&self.state))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.wake();
        if let Some(thread) = self.thread.take() {
            // A panic there has been told already.
            let _ = thread.join();
        }
        // Whoever still holds a view keeps no program attached.
        let _ = lock(&self.state).programs.attach(&BTreeMap::new());
    }
}

/// Asks for the state.
#[derive(Clone)]
pub struct View(Arc<Mutex<State>>);

impl View {
    /// What is in force, and how the interfaces take part.
    pub fn interfaces(&self) -> (Config, Vec<Interface>) {
        let state = lock(&self.0);
        (state.config.clone(), state.interfaces.clone())
    }

    /// What the programs know and have counted.
    pub fn watch(&self) -> Arc<Watch> {
        Arc::clone(&lock(&self.0).watch)
    }
}

/// A panic left a state that is whole: it is refreshed as one.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Until `stop` is woken.
fn follow(state: &Mutex<State>, changes: &Changes, rules: &[Notices], stop: &Waker) -> io::Result<()> {
    const STOP: u64 = 1;
    const RULES: u64 = 2;
    let mut poller = Poller::new()?;
    poller.add(changes, 0, Interest::Read)?;
    poller.add(stop, STOP, Interest::Read)?;
    rules.iter().try_for_each(|notices| poller.add(notices, RULES, Interest::Read))?;
    let mut sweep_at = device::monotonic() + SWEEP;
    loop {
        let left = sweep_at.saturating_sub(device::monotonic());
        let ready: Vec<u64> = poller.wait(Some(left))?.map(|ready| ready.token).collect();
        if ready.contains(&STOP) {
            return Ok(());
        }
        changes.take()?;
        let mut state = lock(state);
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
