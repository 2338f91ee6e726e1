//! The addresses of hosts that are given by name. Each lookup has a thread of its own, which nobody waits for: a resolver may
//! take minutes.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc::Sender;
use std::thread::Builder;
use std::time::Duration;

use device::Waker;

use crate::config::Host;
use crate::why::Why;

/// A path that has not been up for so long may lead elsewhere by now: its names are asked for.
const PATIENCE: Duration = Duration::from_secs(1);
/// And again after this, for as long as it is not.
const RETRY: Duration = Duration::from_secs(3);

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
    /// The lookup that has not been answered yet.
    asked: Option<u64>,
    /// When to ask, if ever.
    due: Option<Duration>,
}

impl Name {
    /// Of `host`, whose name is asked for at once.
    pub fn new(host: Host) -> Self {
        let found: Vec<_> = host.address().into_iter().collect();
        let due = found.is_empty().then_some(Duration::ZERO);
        Self { host, found, error: None, chosen: None, vain: false, up: false, asked: None, due }
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
            self.due = (!up).then_some(now + PATIENCE);
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
        self.due.filter(|_| self.asked.is_none())
    }

    /// Asks the resolver if it is time to, as lookup `lookup`; true if it did.
    pub fn ask(&mut self, now: Duration, lookup: u64, answers: &Answers) -> bool {
        let Host::Name(name, port) = &self.host else { return false };
        if self.due().is_none_or(|due| now < due) {
            return false;
        }
        let (name, port, (sender, waker)) = (name.clone(), *port, answers.clone());
        let look = move || {
            let found = (name.as_str(), port).to_socket_addrs().map(Iterator::collect);
            // Nobody listens any more when the tunnel has ended.
            let _ = sender.send(Answer { lookup, found: found.map_err(|error| error.to_string()) });
            waker.wake();
        };
        match Builder::new().name("name".into()).spawn(look) {
            Ok(_) => self.asked = Some(lookup),
            Err(error) => tracing::warn!("cannot ask for the address of a host: {error}"),
        }
        self.due = Some(now + RETRY);
        true
    }

    /// True if this answers its lookup. Addresses that were known stay where the resolver fails.
    pub fn handle_answer(&mut self, now: Duration, answer: &Answer) -> bool {
        if self.asked != Some(answer.lookup) {
            return false;
        }
        self.asked = None;
        self.due = (!self.up).then_some(now + RETRY);
        self.vain = !self.up;
        match &answer.found {
            Ok(found) => (self.found, self.error) = (found.clone(), None),
            Err(error) => self.error = Some(error.clone()),
        }
        true
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
        assert!(name.ask(now, 7, &(sender, Waker::new().expect("a waker"))));
        assert!(!name.handle_answer(now, &Answer { lookup: 8, found: Err("of another".into()) }));
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
        assert_eq!(name.due(), Some(30 * S + PATIENCE));
        let moved = addresses(&["192.0.2.2:9"]);
        answered(&mut name, 31 * S, Ok(moved.clone()));
        assert_eq!(name.candidates(None), moved);
        answered(&mut name, 35 * S, Err("no".into()));
        assert_eq!(name.candidates(None), moved, "what was known stays");
    }
}
