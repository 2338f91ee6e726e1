//! The addresses of hosts that are given by name. Each lookup has a thread of its own, which nobody waits for: a resolver may
//! take minutes. A name is asked for beside the tunnel first ([`resolver`](super::resolver)), and of the system where that
//! finds nothing.

use std::net::{IpAddr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::sync::mpsc::Sender;
use std::thread::Builder;
use std::time::Duration;

use device::Waker;

use super::resolver::{self, By};
use crate::config::Host;
use crate::why::Why;

/// A path that has not been up for so long may lead elsewhere by now: its names are asked for, and again each time that long later.
/// With what a lookup and a handshake take, a path is back within five seconds of its name being right. A path that is never up costs
/// some 12 MB a day in questions and answers.
const RETRY: Duration = Duration::from_secs(2);

/// What the resolver said.
#[derive(Debug)]
pub struct Answer {
    /// The lookup's number.
    pub lookup: u64,
    /// Addresses, at least one, or what is wrong.
    pub found: Result<Vec<SocketAddr>, String>,
}

/// Where answers go, and who is woken by them.
pub type Answers = (Sender<Answer>, Waker);

/// A host, and its addresses as the resolver gave them last.
#[derive(Debug)]
pub struct Name {
    host: Host,
    found: Vec<SocketAddr>,
    error: Option<String>,
    /// The one in use.
    chosen: Option<SocketAddr>,
    /// It has been tried in vain.
    vain: bool,
    /// Its path is up.
    up: bool,
    /// The lookup beside the tunnel that has not been answered yet.
    asked: Option<u64>,
    /// The system's, which may take long: whoever asks again does not wait for it.
    system: Option<u64>,
    /// The system is to be asked as well.
    vain_beside: bool,
    /// When to ask, if ever.
    due: Option<Duration>,
}

impl Name {
    /// Of `host`, whose name is asked for at once.
    pub fn new(host: Host) -> Self {
        let found: Vec<_> = host.address().into_iter().collect();
        let due = found.is_empty().then_some(Duration::ZERO);
        Self {
            host,
            found,
            error: None,
            chosen: None,
            vain: false,
            up: false,
            asked: None,
            system: None,
            vain_beside: false,
            due,
        }
    }

    /// What was asked for.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Its addresses of the family of `local`, beginning with the one in use or, if that is in vain, with the next.
    pub fn candidates(&self, local: Option<IpAddr>) -> Vec<SocketAddr> {
        let fits = |address: &&SocketAddr| local.is_none_or(|local| local.is_ipv4() == address.is_ipv4());
        let mut fitting: Vec<_> = self.found.iter().filter(fits).copied().collect();
        let chosen = fitting.iter().position(|address| Some(*address) == self.chosen);
        if let Some(at) = chosen.map(|at| (at + usize::from(self.vain)) % fitting.len()) {
            fitting.rotate_left(at);
        }
        fitting
    }

    /// This one is used from now on.
    pub fn choose(&mut self, address: SocketAddr) {
        (self.chosen, self.vain) = (Some(address), false);
    }

    /// Of two that are tried together, this one takes its next address when the other begins with its first again: so each is tried
    /// with each.
    pub fn wait_for(&mut self, other: &Name) {
        self.vain &= other.chosen == other.found.first().copied();
    }

    /// Why there is none.
    pub fn why(&self) -> Why {
        let name = match &self.host {
            Host::Name(name, _) => name.clone(),
            Host::Address(address) => address.ip().to_string(),
        };
        let unknown =
            if self.found.is_empty() { "the resolver has not answered yet" } else { "none fits `local`" };
        Why::NoName { name, error: self.error.clone().unwrap_or_else(|| unknown.to_owned()) }
    }

    /// The path that it is a name of came up, or is not up any more.
    pub fn handle_state(&mut self, now: Duration, up: bool) {
        self.up = up;
        if self.host.address().is_none() && self.asked.is_none() && !self.found.is_empty() {
            self.due = (!up).then_some(now + RETRY);
        }
    }

    /// The file is read again: so is the name.
    pub fn ask_again(&mut self) {
        if self.host.address().is_none() {
            self.due = Some(Duration::ZERO);
        }
    }

    /// When [`ask`](Self::ask) has something to do.
    pub fn due(&self) -> Option<Duration> {
        if self.vain_beside && self.system.is_none() {
            return Some(Duration::ZERO);
        }
        self.due.filter(|_| self.asked.is_none())
    }

    /// Asks if it is time to, `by` this way; `lookups` counts.
    pub fn ask(&mut self, now: Duration, lookups: &mut u64, answers: &Answers, by: impl FnOnce() -> By) {
        let Host::Name(name, port) = &self.host else { return };
        let (name, port) = (name.clone(), *port);
        if self.due.is_some_and(|due| self.asked.is_none() && due <= now) {
            self.due = Some(now + RETRY);
            if is_for_the_system(&name) {
                self.vain_beside = true;
            } else {
                let (by, name) = (by(), name.clone());
                let look = move || match name.split_once('%') {
                    Some((ip, zone)) => neighbour(ip, zone, port),
                    None => Ok(to_ports(resolver::look(&name, &by)?, port)),
                };
                self.asked = start(lookups, answers, look);
            }
        }
        if self.vain_beside && self.system.is_none() {
            self.vain_beside = false;
            let look = move || match (name.as_str(), port).to_socket_addrs() {
                Ok(found) => Ok(found.collect()),
                Err(error) => Err(error.to_string()),
            };
            self.system = start(lookups, answers, look);
        }
    }

    /// True if this answers its lookup. Addresses that were known stay where the resolver fails.
    pub fn handle_answer(&mut self, now: Duration, answer: &Answer) -> bool {
        let beside = self.asked == Some(answer.lookup);
        if !beside && self.system != Some(answer.lookup) {
            return false;
        }
        let asked = if beside { &mut self.asked } else { &mut self.system };
        *asked = None;
        self.due = (!self.up).then_some(now + RETRY);
        match &answer.found {
            Ok(found) => (self.found, self.error) = (found.clone(), None),
            Err(error) if beside => {
                self.error = Some(error.clone());
                self.vain_beside = true;
                return true;
            }
            // What was said beside the tunnel says more.
            Err(error) => {
                self.error.get_or_insert_with(|| error.clone());
            }
        }
        self.vain = !self.up;
        true
    }
}

/// What is looked for by multicast (RFC 6762 §3).
fn is_for_the_system(name: &str) -> bool {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase().ends_with(".local")
}

/// An address with its zone: the interface may be another one by now, and have another number.
fn neighbour(ip: &str, zone: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let ip = ip.parse().map_err(|_| "it is no address of IPv6".to_owned())?;
    let interface = resolver::interface(zone).ok_or_else(|| format!("there is no interface {zone}"))?;
    Ok(vec![SocketAddrV6::new(ip, port, 0, interface).into()])
}

fn to_ports(found: Vec<IpAddr>, port: u16) -> Vec<SocketAddr> {
    found.into_iter().map(|ip| SocketAddr::new(ip, port)).collect()
}

/// On a thread of its own; `None` where there is none to be had.
fn start(
    lookups: &mut u64,
    (sender, waker): &Answers,
    look: impl FnOnce() -> Result<Vec<SocketAddr>, String> + Send + 'static,
) -> Option<u64> {
    *lookups += 1;
    let (lookup, sender, waker) = (*lookups, sender.clone(), waker.clone());
    let run = move || {
        // Whatever a resolver sends, there is an answer.
        let mut found = Ok(Vec::new());
        let result = device::process::outcome(|| {
            found = look();
            Ok(())
        });
        // Nobody listens any more when the tunnel has ended.
        let _ = sender.send(Answer { lookup, found: result.and(found) });
        waker.wake();
    };
    match Builder::new().name("name".into()).spawn(run) {
        Ok(_) => Some(lookup),
        Err(error) => {
            tracing::warn!("no thread can be started to look up a host's address: {error}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    fn answered(name: &mut Name, now: Duration, found: Result<Vec<SocketAddr>, String>) {
        let (sender, _answers) = channel();
        name.ask(now, &mut 6, &(sender, Waker::new().expect("a waker")), By::default);
        assert!(!name.handle_answer(now, &Answer { lookup: 9, found: Err("of another".into()) }));
        assert!(name.handle_answer(now, &Answer { lookup: 7, found }));
    }

    #[test]
    fn an_address_is_never_asked_for() {
        let address = addresses(&["192.0.2.1:9"])[0];
        let mut name = Name::new(Host::Address(address));
        name.handle_state(S, false);
        name.ask_again();
        assert_eq!((name.due(), name.candidates(None)), (None, vec![address]));
    }

    #[test]
    fn a_name_is_asked_for_while_its_path_is_not_up_and_its_addresses_take_turns() {
        // What the resolver says, the test does: the name is one that no resolver is asked for.
        let mut name = Name::new(Host::Name("localhost".into(), 9));
        assert_eq!((name.due(), name.candidates(None)), (Some(Duration::ZERO), vec![]));
        answered(&mut name, S, Err("no".into()));
        assert!(name.why().to_string().contains("no"));
        assert_eq!(name.due(), Some(Duration::ZERO), "the system is to be asked");
        name.vain_beside = false;
        assert_eq!(name.due(), Some(S + RETRY));
        let found = addresses(&["[2001:db8::1]:9", "192.0.2.1:9"]);
        answered(&mut name, 5 * S, Ok(found.clone()));
        assert_eq!(name.candidates(None), found);
        assert_eq!(name.candidates(Some("10.0.0.1".parse().expect("an address"))), found[1..]);
        name.choose(found[0]);
        // The first leads nowhere.
        answered(&mut name, 9 * S, Ok(found.clone()));
        assert_eq!(name.candidates(None), [found[1], found[0]]);
        name.choose(found[1]);
        name.handle_state(10 * S, true);
        assert_eq!(name.due(), None);
        // Read again while the path is up: it stays.
        name.ask_again();
        answered(&mut name, 20 * S, Ok(found.clone()));
        assert_eq!((name.candidates(None)[0], name.due()), (found[1], None));
        name.handle_state(30 * S, false);
        assert_eq!(name.due(), Some(30 * S + RETRY));
        let moved = addresses(&["192.0.2.2:9"]);
        answered(&mut name, 32 * S, Ok(moved.clone()));
        assert_eq!(name.candidates(None), moved);
        answered(&mut name, 35 * S, Err("no".into()));
        assert_eq!(name.candidates(None), moved, "what was known stays");
    }

    #[test]
    fn of_two_names_each_address_is_tried_with_each() {
        let name = |texts: &[&str]| {
            let mut name = Name::new(Host::Name("localhost".into(), 9));
            name.found = addresses(texts);
            name
        };
        let relays = ["192.0.2.1:9", "192.0.2.2:9", "192.0.2.3:9"];
        let (mut relay, mut remote) = (name(&relays), name(&["198.51.100.1:9", "198.51.100.2:9"]));
        let mut tried = std::collections::BTreeSet::new();
        for turn in 0..12 {
            // Their answers come one by one.
            if turn % 2 == 0 {
                relay.vain = true;
            } else {
                remote.vain = true;
            }
            relay.choose(relay.candidates(None)[0]);
            remote.wait_for(&relay);
            remote.choose(remote.candidates(None)[0]);
            tried.extend(relay.chosen.zip(remote.chosen));
        }
        assert_eq!(tried.len(), 6, "{tried:?}");
    }

    #[test]
    fn the_system_is_asked_where_nothing_is_found_and_not_waited_for() {
        let (sender, answers) = channel();
        let to = (sender, Waker::new().expect("a waker"));
        let mut name = Name::new(Host::Name("localhost".into(), 9));
        let mut lookups = 0;
        let mut ask = |name: &mut Name, now| name.ask(now, &mut lookups, &to, By::default);
        ask(&mut name, S);
        assert!(name.handle_answer(S, &Answer { lookup: 1, found: Err("nobody answers".into()) }));
        ask(&mut name, S);
        assert_eq!((name.asked, name.system), (None, Some(2)));
        ask(&mut name, 5 * S);
        assert_eq!((name.asked, name.system), (Some(3), Some(2)));
        assert!(name.handle_answer(5 * S, &Answer { lookup: 3, found: Err("nobody answers".into()) }));
        ask(&mut name, 5 * S);
        assert_eq!((name.asked, name.system), (None, Some(2)), "one at a time");
        assert!(name.handle_answer(6 * S, &Answer { lookup: 2, found: Err("the system's".into()) }));
        assert!(name.why().to_string().ends_with("nobody answers"));
        ask(&mut name, 6 * S);
        let found = addresses(&["192.0.2.1:9"]);
        assert!(name.handle_answer(7 * S, &Answer { lookup: 4, found: Ok(found.clone()) }));
        assert_eq!(name.candidates(None), found);
        // The threads have ended, or nobody hears them.
        drop(answers);
    }

    #[test]
    fn some_names_only_the_system_knows() {
        assert!(["office.local", "Office.LOCAL."].into_iter().all(is_for_the_system));
        assert!(!["office.test", "local", "office", "fe80::1%lo"].into_iter().any(is_for_the_system));
    }

    #[test]
    fn who_is_a_neighbour_by_an_interface_that_is_not_there_is_told_so() {
        let (sender, answers) = channel();
        let ask = |name: &str| {
            let mut name = Name::new(Host::Name(name.into(), 9));
            name.ask(S, &mut 6, &(sender.clone(), Waker::new().expect("a waker")), By::default);
            assert!(name.handle_answer(S, &answers.recv().expect("an answer")));
            name
        };
        // The loopback interface's number is always 1.
        for zone in ["lo", "1"] {
            assert_eq!(ask(&format!("fe80::7%{zone}")).candidates(None), addresses(&["[fe80::7%1]:9"]));
        }
        let why = ask("fe80::7%none0").why().to_string();
        assert_eq!(why, "\"fe80::7%none0\" has no address: there is no interface none0");
    }
}
