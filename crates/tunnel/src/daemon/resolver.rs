//! Asks for the addresses of a host as the tunnel's own packets go: with their mark and by their interface, and so beside the
//! tunnel. The system's own resolver, whose sockets have no mark, knows more kinds of names, and is for what is not found here.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, SocketAddrV6, TcpStream, UdpSocket};
use std::time::Duration;

use device::Outgoing;
use device::poller::boottime;
use rand_core::{OsRng, TryRngCore};
use resolv_conf::ScopedIp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::dns::{Question, Reply, is_same};

const HOSTS: &str = "/etc/hosts";
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// Where caches on this host (systemd-resolved, NetworkManager's, Debian's dnsmasq) write whom they ask themselves. Their
/// own questions have no mark.
const BEHIND_CACHES: [&str; 3] = [
    "/run/systemd/resolve/resolv.conf",
    "/run/NetworkManager/no-stub-resolv.conf",
    "/run/dnsmasq/resolv.conf",
];
const PORT: u16 = 53;
/// A lookup takes so long at most, for all servers and all of the search list.
const PATIENCE: Duration = Duration::from_secs(4);
/// The next server is asked beside one that has not answered within this, and addresses of one family wait so long for those of the
/// other.
const STAGGER: Duration = Duration::from_millis(250);
/// And this one is asked again after this.
const AGAIN: Duration = Duration::from_secs(1);

/// Whom to ask, and how questions leave.
#[derive(Clone, Debug, Default)]
pub struct By {
    /// As the path's packets.
    pub out: Outgoing,
    /// Instead of those that the host's files name.
    pub servers: Vec<IpAddr>,
}

/// The addresses of `name`, at least one.
///
/// # Errors
/// Why there is none, in a sentence without its full stop.
pub fn look(name: &str, by: &By) -> Result<Vec<IpAddr>, String> {
    let known = std::fs::read_to_string(HOSTS).map(|hosts| in_hosts(&hosts, name)).unwrap_or_default();
    if !known.is_empty() {
        return Ok(known);
    }
    let conf = read(RESOLV_CONF).unwrap_or_default();
    let servers = servers(&by.servers, &conf);
    if servers.is_empty() {
        return Err(format!("no server for names stands in {RESOLV_CONF}"));
    }
    let deadline = boottime() + PATIENCE;
    let mut error = None;
    for name in candidates(name, &conf) {
        let mut asking = Asking::new(&name, &servers, by, deadline)?;
        match asking.run() {
            Ok(found) => return Ok(found),
            Err(why) => error = error.or(Some(why)),
        }
    }
    Err(error.unwrap_or_else(|| "it is no name".into()))
}

fn read(path: &str) -> Option<resolv_conf::Config> {
    let bytes = std::fs::read(path).ok()?;
    // A line that is wrong leaves the others as they are.
    Some(resolv_conf::Config::parse_with_errors(&bytes).0)
}

/// What a file as [`HOSTS`] says of `name`.
fn in_hosts(hosts: &str, name: &str) -> Vec<IpAddr> {
    let lines = hosts.lines().filter_map(|line| line.split('#').next());
    let found = lines.filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let address = words.next()?.parse().ok()?;
        words.any(|word| is_same(word, name)).then_some(address)
    });
    found.collect()
}

/// In the order in which they are asked.
fn servers(given: &[IpAddr], conf: &resolv_conf::Config) -> Vec<SocketAddr> {
    if !given.is_empty() {
        return given.iter().map(|ip| SocketAddr::new(*ip, PORT)).collect();
    }
    let mut all: Vec<_> = conf.nameservers.iter().filter_map(server).collect();
    if all.iter().any(|server| server.ip().is_loopback()) {
        let behind = BEHIND_CACHES.iter().filter_map(|path| read(path)).flat_map(|conf| conf.nameservers);
        all.extend({ behind }.filter_map(|ip| server(&ip)).filter(|server| !server.ip().is_loopback()));
    }
    let mut seen = BTreeSet::new();
    all.retain(|server| seen.insert(*server));
    all
}

fn server(ip: &ScopedIp) -> Option<SocketAddr> {
    Some(match ip {
        ScopedIp::V4(ip) => (*ip, PORT).into(),
        ScopedIp::V6(ip, None) => (*ip, PORT).into(),
        ScopedIp::V6(ip, Some(zone)) => SocketAddrV6::new(*ip, PORT, 0, interface(zone)?).into(),
    })
}

/// The index of the interface that has this name, or this number.
pub fn interface(zone: &str) -> Option<u32> {
    let named = || device::Net::open().ok()?.link(zone).ok();
    named().map(|link| link.index).or_else(|| zone.parse().ok())
}

/// The name as it stands, and with each suffix of the search list: first as it stands if it has dots enough.
fn candidates(name: &str, conf: &resolv_conf::Config) -> Vec<String> {
    let bare = name.strip_suffix('.').unwrap_or(name);
    let suffixes = conf.get_last_search_or_domain().filter(|suffix| *suffix != "." && !name.ends_with('.'));
    let mut all: Vec<_> = suffixes.map(|suffix| format!("{bare}.{suffix}")).collect();
    let enough = bare.matches('.').count() >= conf.ndots as usize;
    all.insert(if enough { 0 } else { all.len() }, bare.to_owned());
    all
}

/// One name, asked for.
struct Asking {
    questions: [Question; 2],
    /// Servers that have not been asked yet, each with how; the next one last.
    left: Vec<(SocketAddr, Outgoing)>,
    asked: Vec<Asked>,
    /// When to ask the next.
    next: Duration,
    deadline: Duration,
    /// What went wrong, by server.
    errors: Vec<(SocketAddr, String)>,
    marked: bool,
}

/// A server that has been asked.
struct Asked {
    server: SocketAddr,
    out: Outgoing,
    socket: UdpSocket,
    again: Duration,
    /// Of IPv4 and IPv6.
    replies: [Option<Vec<IpAddr>>; 2],
    /// When the first addresses came.
    since: Option<Duration>,
    /// Why it has none of a family, where it fails: of the other it may have some.
    failed: Option<String>,
    /// Nothing can be sent to it.
    broken: Option<io::Error>,
}

impl Asking {
    fn new(name: &str, servers: &[SocketAddr], by: &By, deadline: Duration) -> Result<Self, String> {
        let mut ids = [0; 4];
        OsRng.try_fill_bytes(&mut ids).map_err(|error| error.to_string())?;
        let question = |v6: bool| {
            let at = 2 * usize::from(v6);
            Question { id: u16::from_be_bytes([ids[at], ids[at + 1]]), name: name.to_owned(), v6 }
        };
        // By the path's own way, and then by any: a server may be on another link. This host's own is behind neither.
        let free = Outgoing { mark: by.out.mark, ..Outgoing::default() };
        let ways = |server: &SocketAddr| {
            let own = (by.out != free && !server.ip().is_loopback()).then_some((*server, by.out));
            own.into_iter().chain([(*server, free)])
        };
        let mut left: Vec<_> = servers.iter().flat_map(ways).collect();
        left.reverse();
        Ok(Self {
            questions: [question(false), question(true)],
            left,
            asked: Vec::new(),
            next: Duration::ZERO,
            deadline,
            errors: Vec::new(),
            marked: by.out.mark != 0,
        })
    }

    /// Until there are addresses, or nothing to wait for.
    fn run(&mut self) -> Result<Vec<IpAddr>, String> {
        loop {
            let now = boottime();
            if now >= self.deadline || (self.left.is_empty() && self.asked.is_empty()) {
                return Err(self.why());
            }
            self.ask(now);
            self.wait(now);
            let now = boottime();
            for at in (0..self.asked.len()).rev() {
                if let Err(why) = self.hear(now, at) {
                    let gone = self.asked.swap_remove(at);
                    self.errors.push((gone.server, why));
                    self.next = now;
                }
            }
            if let Some(found) = self.asked.iter().find_map(|asked| asked.found(now)) {
                let none = || "there is no address of that name".to_owned();
                return if found.is_empty() { Err(none()) } else { Ok(found) };
            }
        }
    }

    fn ask(&mut self, now: Duration) {
        while now >= self.next
            && let Some((server, out)) = self.left.pop()
        {
            match out.udp(server) {
                Ok(socket) => {
                    let replies = [None, None];
                    self.asked.push(Asked {
                        server,
                        out,
                        socket,
                        again: now,
                        replies,
                        since: None,
                        failed: None,
                        broken: None,
                    });
                    self.next = now + STAGGER;
                }
                Err(error) => self.errors.push((server, error.to_string())),
            }
        }
        for asked in self.asked.iter_mut().filter(|asked| now >= asked.again) {
            asked.again = now + AGAIN;
            for (question, _) in
                self.questions.iter().zip(&asked.replies).filter(|(_, reply)| reply.is_none())
            {
                let sent = question.datagram().map(|datagram| asked.socket.send(&datagram));
                // Mostly what became of the question before.
                asked.broken = sent.and_then(Result::err).or(asked.broken.take());
            }
        }
    }

    fn wait(&self, now: Duration) {
        let again = self.asked.iter().map(|asked| if asked.broken.is_some() { now } else { asked.again });
        let others = self.asked.iter().filter_map(|asked| Some(asked.since? + STAGGER));
        let next = (!self.left.is_empty()).then_some(self.next);
        let due = again.chain(others).chain(next).min().unwrap_or(self.deadline).min(self.deadline);
        let timeout = Timespec::try_from(due.saturating_sub(now)).ok();
        let mut sockets: Vec<_> =
            self.asked.iter().map(|asked| PollFd::new(&asked.socket, PollFlags::IN)).collect();
        // Interrupted: the next round waits.
        let _ = poll(&mut sockets, timeout.as_ref());
    }

    /// What the server at this place has said.
    fn hear(&mut self, now: Duration, at: usize) -> Result<(), String> {
        let asked = &mut self.asked[at];
        if let Some(error) = asked.broken.take() {
            return Err(error.to_string());
        }
        let mut buffer = [0; 4096];
        // TCP may be silent: what is left is for other servers, and other names.
        let half = (boottime() + self.deadline) / 2;
        // One datagram a round: who floods is heard no longer than until the deadline.
        let length = match asked.socket.recv(&mut buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        for (question, place) in self.questions.iter().zip(0..) {
            let reply = match question.reply(&buffer[..length]) {
                Some(Reply::Cut) => by_tcp(question, asked.server, &asked.out, half)
                    .unwrap_or_else(|error| Reply::Failed(format!("by TCP: {error}"))),
                Some(reply) => reply,
                None => continue,
            };
            let failed = match reply {
                Reply::Addresses(found) => {
                    if !found.is_empty() {
                        asked.since.get_or_insert(now);
                    }
                    asked.replies[place] = Some(found);
                    continue;
                }
                Reply::Cut => "cuts its answer by TCP too".into(),
                Reply::Failed(why) => why,
            };
            asked.replies[place].get_or_insert_default();
            asked.failed = Some(failed);
        }
        let vain = asked.replies.iter().all(|reply| reply.as_ref().is_some_and(Vec::is_empty));
        asked.failed.clone().filter(|_| vain).map_or(Ok(()), Err)
    }

    fn why(&self) -> String {
        let silent = self.asked.iter().filter(|asked| asked.failed.is_none());
        let silent = silent.map(|asked| format!("no answer from the server {}", asked.server.ip()));
        let failed = self.asked.iter().filter_map(|asked| Some((&asked.server, asked.failed.as_ref()?)));
        let failed = { failed }.chain(self.errors.iter().map(|(server, why)| (server, why)));
        let failed = failed.map(|(server, why)| format!("the server {} fails: {why}", server.ip()));
        let mut said: Vec<_> = silent.chain(failed).collect();
        said.sort();
        said.dedup();
        let servers = self.asked.iter().map(|asked| asked.server).chain(self.errors.iter().map(|e| e.0));
        if self.marked && { servers }.all(|server| server.ip().is_loopback()) {
            said.push("what it asks itself goes into the tunnel: name its own server in `resolvers`".into());
        }
        said.join("; ")
    }
}

impl Asked {
    /// What it knows, if that is all, or enough.
    fn found(&self, now: Duration) -> Option<Vec<IpAddr>> {
        let all = self.replies.iter().all(Option::is_some);
        let waited = self.since.is_some_and(|since| now >= since + STAGGER);
        (all || waited).then(|| self.replies.iter().flatten().flatten().copied().collect())
    }
}

/// Asks again where the answer does not fit into a datagram.
fn by_tcp(question: &Question, server: SocketAddr, out: &Outgoing, deadline: Duration) -> io::Result<Reply> {
    let mut stream = out.tcp(server)?;
    let left = || {
        let left = deadline.saturating_sub(boottime());
        if left.is_zero() { Err(io::Error::from(ErrorKind::TimedOut)) } else { Ok(left) }
    };
    let mut fds = [PollFd::new(&stream, PollFlags::OUT)];
    poll(&mut fds, Timespec::try_from(left()?).ok().as_ref())?;
    if let Some(error) = stream.take_error()? {
        return Err(error);
    }
    stream.set_nonblocking(false)?;
    let wait = |stream: &TcpStream| {
        stream.set_read_timeout(Some(left()?)).and_then(|()| stream.set_write_timeout(Some(left()?)))
    };
    wait(&stream)?;
    let datagram = question.datagram().ok_or(ErrorKind::InvalidInput)?;
    let length = u16::try_from(datagram.len()).map_err(|_| ErrorKind::InvalidInput)?;
    stream.write_all(&[&length.to_be_bytes()[..], &datagram].concat())?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut message = Vec::new();
    // In pieces, each of which may take what is left of the time.
    while message.len() < usize::from(u16::from_be_bytes(length)) {
        wait(&stream)?;
        let mut piece = [0; 4096];
        let wanted = (usize::from(u16::from_be_bytes(length)) - message.len()).min(piece.len());
        match stream.read(&mut piece[..wanted])? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            read => message.extend(&piece[..read]),
        }
    }
    question.reply(&message).ok_or_else(|| io::Error::other("its answer is none to the question"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use simple_dns::rdata::{A, RData};
    use simple_dns::{CLASS, Packet, PacketFlag, RCODE, ResourceRecord};

    use super::*;

    #[test]
    fn a_hosts_file_is_read_as_others_do() {
        let hosts = "127.0.0.1 localhost\n# 192.0.2.9 office\n192.0.2.1\toffice.example  Office # old\n\
                     2001:db8::1 OFFICE\nfe80::1%lo office\n\nnonsense office\n";
        let found = |name| in_hosts(hosts, name);
        assert_eq!(found("office"), ["192.0.2.1".parse::<IpAddr>().unwrap(), "2001:db8::1".parse().unwrap()]);
        assert_eq!(found("office.example."), ["192.0.2.1".parse::<IpAddr>().unwrap()]);
        assert!(found("old").is_empty() && found("192.0.2.1").is_empty());
    }

    #[test]
    fn names_and_servers_are_those_of_the_file() {
        let conf =
            "nameserver 192.0.2.53\nnameserver nonsense\nnameserver 192.0.2.53\nsearch a.example b.example\n";
        let conf = resolv_conf::Config::parse_with_errors(conf.as_bytes()).0;
        assert_eq!(servers(&[], &conf), ["192.0.2.53:53".parse().unwrap()]);
        let given = "9.9.9.9".parse().unwrap();
        assert_eq!(servers(&[given], &conf), [SocketAddr::new(given, 53)]);
        assert_eq!(candidates("hub", &conf), ["hub.a.example", "hub.b.example", "hub"]);
        assert_eq!(candidates("hub.test", &conf), ["hub.test", "hub.test.a.example", "hub.test.b.example"]);
        assert_eq!(candidates("hub.test.", &conf), ["hub.test"]);
    }

    /// What is said of a name whose server answers the questions of IPv4 and IPv6 so, in the order in which they come or in the other.
    fn said(answers: [RCODE; 2], turned: bool) -> Result<Vec<IpAddr>, String> {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let serve = move || {
            let mut replies: Vec<_> = (answers.into_iter())
                .map(|code| {
                    let mut buffer = [0; 512];
                    let (length, to) = server.recv_from(&mut buffer).unwrap();
                    let mut packet = Packet::parse(&buffer[..length]).unwrap().into_reply();
                    *packet.rcode_mut() = code;
                    if code == RCODE::NoError {
                        let data = RData::A(A { address: 7 });
                        let name = packet.questions[0].qname.clone();
                        packet.answers.push(ResourceRecord::new(name, CLASS::IN, 9, data));
                    }
                    (packet.build_bytes_vec().unwrap(), to)
                })
                .collect();
            if turned {
                replies.reverse();
            }
            for (reply, to) in &replies {
                server.send_to(reply, to).unwrap();
            }
        };
        let served = std::thread::spawn(serve);
        let deadline = boottime() + PATIENCE;
        let found = Asking::new("office.test", &[address], &By::default(), deadline).unwrap().run();
        served.join().unwrap();
        found
    }

    #[test]
    fn a_server_that_fails_for_one_family_is_taken_at_its_word_for_the_other() {
        for code in [RCODE::ServerFailure, RCODE::NotImplemented, RCODE::Refused, RCODE::NameError] {
            for turned in [false, true] {
                assert_eq!(said([RCODE::NoError, code], turned), Ok(vec![IpAddr::from([0, 0, 0, 7])]));
                let why = said([RCODE::ServerFailure, RCODE::ServerFailure], turned).unwrap_err();
                assert_eq!(why, "the server 127.0.0.1 fails: SERVFAIL");
                let why = said([RCODE::NameError, RCODE::NameError], turned).unwrap_err();
                assert_eq!(why, "there is no address of that name");
            }
        }
    }

    #[test]
    fn who_is_silent_by_tcp_leaves_time_for_the_next_server() {
        // The kernel takes the connections, and nobody reads from them. A port that is free for both may need more than one look.
        let both = || {
            let silent = TcpListener::bind("127.0.9.53:0").unwrap();
            let cuts = UdpSocket::bind(silent.local_addr().unwrap()).ok()?;
            Some((silent, cuts))
        };
        let (_silent, cuts) = std::iter::repeat_with(both).take(100).flatten().next().unwrap();
        let answers = UdpSocket::bind("127.0.9.54:0").unwrap();
        let servers = [&cuts, &answers].map(|socket| socket.local_addr().unwrap());
        let serve = |socket: UdpSocket, cut: bool| {
            socket.set_read_timeout(Some(2 * PATIENCE)).unwrap();
            for _ in 0..2 {
                let mut buffer = [0; 512];
                let (length, to) = socket.recv_from(&mut buffer).unwrap();
                let mut packet = Packet::parse(&buffer[..length]).unwrap().into_reply();
                if cut {
                    packet.set_flags(PacketFlag::TRUNCATION);
                } else {
                    let name = packet.questions[0].qname.clone();
                    let data = RData::A(A { address: 7 });
                    packet.answers.push(ResourceRecord::new(name, CLASS::IN, 9, data));
                }
                socket.send_to(&packet.build_bytes_vec().unwrap(), to).unwrap();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| serve(cuts, true));
            scope.spawn(|| serve(answers, false));
            let deadline = boottime() + PATIENCE;
            let found = Asking::new("office.test", &servers, &By::default(), deadline).unwrap().run();
            assert_eq!(found, Ok(vec![IpAddr::from([0, 0, 0, 7])]));
        });
    }

    #[test]
    fn who_refuses_and_who_is_silent_is_named() {
        // Of an address of its own: nobody else takes the port when it is free again.
        let silent = UdpSocket::bind("127.0.9.55:0").unwrap();
        let deadline = boottime() + 2 * STAGGER;
        let servers = [silent.local_addr().unwrap()];
        let mut asking = Asking::new("office.test", &servers, &By::default(), deadline).unwrap();
        let why = asking.run().unwrap_err();
        assert_eq!(why, "no answer from the server 127.0.9.55");
        drop(silent);
        let mut asking = Asking::new("office.test", &servers, &By::default(), boottime() + PATIENCE).unwrap();
        asking.marked = true;
        let why = asking.run().unwrap_err();
        assert!(why.contains("refused") && why.contains("`resolvers`"), "{why}");
    }
}
