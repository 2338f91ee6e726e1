//! The enrolment over TCP. The stream carries the joiner's request and the inviter's answer ([`tunnel::handshake::enrol`]), and then sealed
//! messages, each behind its length in two bytes: the inviter's [`Terms`], the joiner's "written", the inviter's "done".
//!
//! The secret lives in the inviter's memory alone. Strangers cost little: [`MAX_STRANGERS`] at a time, [`CALL`] each, four X25519
//! operations, and no answer that says anything without the secret. With one too many, the first goes of the network that most come
//! from: nobody keeps others out by waiting. Who has shown that it knows the inviter's key stays before all who have not.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use device::monotonic;
use ipnet::IpNet;
use rand_core::{OsRng, TryRngCore};
use serde::{Deserialize, Serialize};
use tunnel::handshake::enrol::{self, Channel, Joining};
use tunnel::{PrivateKey, PublicKey};

use super::invite::Invite;
use super::uplinks;
use crate::config::HostPort;
use crate::incoming::Incoming;

/// How long one caller may take.
const CALL: Duration = Duration::from_secs(10);
/// Callers without the secret, so far, that are listened to at a time.
const MAX_STRANGERS: usize = 16;
/// The longest sealed message, bytes.
const LONGEST: usize = 4096;
const WRITTEN: &[u8] = b"written";
const DONE: &[u8] = b"done";

/// What the joiner is to put into its file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// The joiner's inner addresses, with prefix lengths.
    pub addresses: Vec<IpNet>,
    /// The inviter's inner addresses, as routes.
    pub routes: Vec<IpNet>,
}

/// A joiner who has the secret, and has written its file.
struct Enrolling {
    key: PublicKey,
    talk: Talk,
}

/// Waits, for `valid` at most, until somebody has joined by `invite`; `enrol` puts the joiner's key into force.
///
/// # Errors
/// One sentence: nobody came, or what `enrol` says.
pub fn wait(
    listener: TcpListener,
    me: &PrivateKey,
    invite: &Invite,
    terms: &Terms,
    valid: Duration,
    enrol: impl FnOnce(PublicKey) -> Result<(), String>,
) -> Result<(), String> {
    let (sender, joiners) = channel();
    let strangers = Mutex::default();
    let callers = Callers { me: me.clone(), invite: invite.clone(), terms: terms.clone(), strangers };
    let listen = |incoming| {
        let listen = move || callers.listen(&listener, incoming, &sender);
        thread::Builder::new().name("invite".into()).spawn(listen)
    };
    Incoming::new().and_then(listen).map_err(|error| format!("cannot wait for who joins: {error}"))?;
    let over =
        |_| "nobody joined in time, and the invite is worth nothing from now on; make another".to_owned();
    let Enrolling { key, mut talk } = joiners.recv_timeout(valid).map_err(over)?;
    let enrolled = enrol(key);
    let said = enrolled.as_ref().map_or_else(|why| why.as_bytes(), |()| DONE);
    if let Err(error) = talk.say(said) {
        tracing::warn!("the new end may not know that it has joined: {error}");
    }
    enrolled
}

struct Callers {
    me: PrivateKey,
    invite: Invite,
    terms: Terms,
    /// Who has not shown the secret yet, in the order of their coming.
    strangers: Mutex<Vec<Stranger>>,
}

struct Stranger {
    network: u64,
    /// Its request is for this inviter's key, or a copy of one that is: of the two things in an invite it has one.
    knows_key: bool,
    stream: Arc<TcpStream>,
}

impl Callers {
    /// For as long as the process lives.
    fn listen(self, listener: &TcpListener, mut incoming: Incoming, joiners: &Sender<Enrolling>) {
        let callers = Arc::new(self);
        loop {
            let (stream, from) = incoming.next("the invite's port", || listener.accept());
            let stream = Arc::new(stream);
            callers.admit(network(from.ip()), &stream);
            let (callers_here, joiners, stream_here) =
                (Arc::clone(&callers), joiners.clone(), Arc::clone(&stream));
            let one = move || {
                match callers_here.hear(&stream_here) {
                    // Once nobody waits, somebody has joined.
                    Ok(joiner) => drop(joiners.send(joiner)),
                    Err(error) => tracing::debug!("a caller does not join: {error}"),
                }
                callers_here.dismiss(&stream_here);
            };
            if thread::Builder::new().name("caller".into()).spawn(one).is_err() {
                callers.dismiss(&stream);
            }
        }
    }

    fn admit(&self, network: u64, stream: &Arc<TcpStream>) {
        let mut strangers = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        strangers.push(Stranger { network, knows_key: false, stream: Arc::clone(stream) });
        if strangers.len() > MAX_STRANGERS {
            let at = superfluous(strangers.iter().map(|one| (one.knows_key, one.network)));
            // Its thread finds that nothing more comes. One that is gone already is as good.
            let _ = strangers.remove(at).stream.shutdown(Shutdown::Both);
        }
    }

    /// It knows whom it calls.
    fn prefer(&self, stream: &Arc<TcpStream>) {
        let mut strangers = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        let one = strangers.iter_mut().find(|one| Arc::ptr_eq(&one.stream, stream));
        one.into_iter().for_each(|one| one.knows_key = true);
    }

    /// It is no stranger any more, or gone.
    fn dismiss(&self, stream: &Arc<TcpStream>) {
        let mut strangers = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        strangers.retain(|one| !Arc::ptr_eq(&one.stream, stream));
    }

    fn hear(&self, stream: &Arc<TcpStream>) -> io::Result<Enrolling> {
        let mut wire = Wire { stream: Arc::clone(stream), deadline: monotonic() + CALL };
        let request = wire.read(enrol::REQUEST_LEN)?;
        let mut rng = OsRng.unwrap_err();
        let answered = enrol::answer(&mut rng, &self.me, &self.invite.secret, &request);
        let (key, answer, channel) = answered.map_err(io::Error::other)?;
        self.prefer(stream);
        wire.write(&answer)?;
        let mut talk = Talk { wire, channel };
        talk.say(&serde_json::to_vec(&self.terms)?)?;
        // The first that is sealed shows the secret.
        let said = talk.hear()?;
        self.dismiss(stream);
        match said.as_slice() {
            WRITTEN => Ok(Enrolling { key, talk }),
            _ => Err(ErrorKind::InvalidData.into()),
        }
    }
}

/// Which of the callers goes, of whom each may know the inviter's key and is from a network: one that does not, if there is one, and
/// of those the first of the network that has most.
fn superfluous(callers: impl Iterator<Item = (bool, u64)> + Clone) -> usize {
    let count = |of: (bool, u64)| callers.clone().filter(|one| *one == of).count();
    let rank = |one: (bool, u64)| (!one.0, count(one));
    let first = callers.clone().map(rank).max();
    callers.clone().position(|one| Some(rank(one)) == first).unwrap_or(0)
}

/// What a stranger has many addresses of: a /48 of IPv6, which is what providers give whoever asks.
fn network(ip: IpAddr) -> u64 {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.to_bits().into(),
        IpAddr::V6(ip) => (ip.to_bits() >> 80) as u64,
    }
}

/// A joiner that has been told its terms.
pub struct Called(Talk);

/// Calls the inviter at one after the other of its endpoints, until one of them is the inviter's: that one is returned as well.
///
/// # Errors
/// One sentence.
pub fn call<'a>(invite: &'a Invite, me: &PrivateKey) -> Result<(Called, Terms, &'a HostPort), String> {
    let (mut reached, mut why) = (false, Vec::new());
    for endpoint in &invite.endpoints {
        match connect(endpoint) {
            Ok(stream) => {
                let wire = Wire { stream: Arc::new(stream), deadline: monotonic() + CALL };
                match ask(wire, invite, me) {
                    Ok((called, terms)) => return Ok((called, terms, endpoint)),
                    Err(error) => why.push(format!("{endpoint}: {error}")),
                }
                reached = true;
            }
            Err(errors) => why.extend(errors),
        }
    }
    let why = why.join("; ");
    Err(if reached {
        format!(
            "the inviter does not take this invite ({why}); it may have been used, or be over: ask for another"
        )
    } else {
        format!(
            "the inviter cannot be reached by TCP ({why}); see that `nawa invite` still waits there, and that a firewall lets \
             TCP through to this port as well"
        )
    })
}

fn ask(mut wire: Wire, invite: &Invite, me: &PrivateKey) -> io::Result<(Called, Terms)> {
    let joining = Joining::new(&mut OsRng.unwrap_err(), me, &invite.inviter, &invite.secret);
    let (joining, request) = joining.map_err(io::Error::other)?;
    wire.write(&request)?;
    let answer = wire.read(enrol::ANSWER_LEN)?;
    let channel = joining.finish(&answer).map_err(io::Error::other)?;
    let mut talk = Talk { wire, channel };
    let terms = serde_json::from_slice(&talk.hear()?)?;
    Ok((Called(talk), terms))
}

impl Called {
    /// Says that the file is written, and waits until the inviter has enrolled this end.
    ///
    /// # Errors
    /// One sentence: it has not, as far as it says.
    pub fn finish(self) -> Result<(), String> {
        let mut talk = self.0;
        let said = talk.say(WRITTEN).and_then(|()| talk.hear());
        match said {
            Ok(said) if said == DONE => Ok(()),
            Ok(why) => Err(refusal(&why)),
            Err(error) => {
                Err(format!("the inviter did not say whether it has enrolled this end ({error}); look there"))
            }
        }
    }
}

/// Nothing in what an inviter says can act on the terminal.
fn refusal(why: &[u8]) -> String {
    format!("the inviter says: {}", why.escape_ascii())
}

/// To the first of its addresses that takes the connection, or why none does.
fn connect(endpoint: &HostPort) -> Result<TcpStream, Vec<String>> {
    let addresses = uplinks::addresses(endpoint).map_err(|error| vec![error])?;
    let mut why = Vec::new();
    for address in addresses {
        match TcpStream::connect_timeout(&address, CALL) {
            Ok(stream) => return Ok(stream),
            Err(error) => why.push(format!("{address}: {error}")),
        }
    }
    Err(why)
}

/// Bytes to and fro until the deadline.
struct Wire {
    stream: Arc<TcpStream>,
    deadline: Duration,
}

impl Wire {
    fn rest(&self) -> io::Result<Duration> {
        let rest = self.deadline.saturating_sub(monotonic());
        if rest.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(rest) }
    }

    fn read(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let (mut bytes, mut at) = (vec![0; length], 0);
        while at < length {
            self.stream.set_read_timeout(Some(self.rest()?))?;
            match self.stream.as_ref().read(&mut bytes[at..])? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                read => at += read,
            }
        }
        Ok(bytes)
    }

    /// A few hundred bytes, which the kernel takes at once.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.set_write_timeout(Some(self.rest()?))?;
        self.stream.as_ref().write_all(bytes)
    }
}

/// Sealed messages over it.
struct Talk {
    wire: Wire,
    channel: Channel,
}

impl Talk {
    fn say(&mut self, text: &[u8]) -> io::Result<()> {
        let sealed = self.channel.seal(&text[..text.len().min(LONGEST)]);
        let length = u16::try_from(sealed.len()).map_err(io::Error::other)?;
        self.wire.write(&[&length.to_be_bytes(), sealed.as_slice()].concat())
    }

    fn hear(&mut self) -> io::Result<Vec<u8>> {
        let length = self.wire.read(2)?;
        let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
        if length > LONGEST + enrol::SEAL_LEN {
            return Err(ErrorKind::InvalidData.into());
        }
        let sealed = self.wire.read(length)?;
        self.channel.open(sealed).map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use tunnel::PresharedKey;

    use super::*;

    #[test]
    fn what_an_inviter_says_is_a_line_whatever_is_in_it() {
        assert_eq!(refusal(b"no\n\x1b[2J"), "the inviter says: no\\n\\x1b[2J");
    }

    #[test]
    fn who_waits_goes_before_who_comes_from_elsewhere() {
        let strangers = |networks: &[u64]| superfluous(networks.iter().map(|network| (false, *network)));
        assert_eq!(strangers(&[7, 1, 1, 2]), 1);
        assert_eq!(strangers(&[7, 1, 2]), 0);
        let of = |text: &str| network(text.parse().expect("an address"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::2"));
        assert_eq!(of("2001:db8:0:1::1"), of("2001:db8::1"));
        assert!(of("2001:db8:1::1") != of("2001:db8::1"));
        assert!(of("2001:db8::1") > u32::MAX.into(), "no IPv4 address is called so");
    }

    /// From as many networks as he likes.
    #[test]
    fn who_does_not_know_whom_he_calls_keeps_nobody_out_who_does() {
        let mut rng = OsRng.unwrap_err();
        let [me, joiner] = [(); 2].map(|()| PrivateKey::generate(&mut rng));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let place = listener.local_addr().expect("an address");
        let secret = PresharedKey::generate(&mut rng);
        let endpoints = vec![place.to_string().parse().expect("an endpoint")];
        let invite = Invite { secret, inviter: me.public(), endpoints };
        let terms = Terms { addresses: Vec::new(), routes: Vec::new() };
        let callers = Callers { me, invite: invite.clone(), terms, strangers: Mutex::default() };
        let call = |network| {
            let caller = TcpStream::connect(place).expect("it listens");
            let stream = Arc::new(listener.accept().expect("the caller").0);
            callers.admit(network, &stream);
            (caller, stream)
        };
        let (stream, heard) = call(1);
        thread::scope(|scope| {
            let hearing = scope.spawn(|| callers.hear(&heard));
            let wire = Wire { stream: Arc::new(stream), deadline: monotonic() + CALL };
            let (Called(mut talk), _) = ask(wire, &invite, &joiner).expect("terms");
            let strangers: Vec<_> = (2..40).map(call).collect();
            talk.say(WRITTEN).expect("it is heard");
            assert!(hearing.join().expect("no panic").is_ok_and(|one| one.key == joiner.public()));
            drop(strangers);
        });
    }
}
