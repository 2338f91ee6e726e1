//! Every command of README and of the documentation is run as it stands there, by people who follow the pages, or named in
//! [`NOT_RUN`] with what runs it instead.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use common::{Namespace, eventually, namespaces_or_skip};

/// A line of a page that begins with one of these, or with a prompt as `hub#`, is a command.
const PROGRAMS: [&str; 14] = [
    "nawa",
    "make",
    "ip",
    "nft",
    "sysctl",
    "wg",
    "firewall-cmd",
    "apt",
    "tar",
    "cargo",
    "umask",
    "kill",
    "iperf3",
    "$",
];
/// How a page's command begins, in which pages, and why it is not run here.
const NOT_RUN: [(&str, &str, &str); 18] = [
    ("", "make ", "scripts/check-clean-root runs them in a fresh Debian"),
    ("", "cargo ", "it builds, or is a test or an example itself"),
    ("", "apt ", "scripts/check-deb installs and removes the package"),
    ("", "tar ", "scripts/check-deb unpacks and removes the tarball"),
    ("", "firewall-cmd ", "firewalld is the whole host's"),
    ("", "wg ", "it needs WireGuard"),
    ("howto/on-top.md", "ip link set wg0 ", "it needs WireGuard"),
    (
        "",
        "nawa flight ",
        "the kernel's congestion controls are everybody's: tests/flight.rs, which holds their lock",
    ),
    ("use/server.md", "iperf3 ", "it needs a server of somebody else's"),
    ("", "nawa lab run ", "minutes: the lab's own tests run its parts"),
    ("", "nawa lab report ", "tests/report.rs, which has results"),
    ("", "nawa lab show ", "it draws what a run has written"),
    ("lab.md", "ip ", "a part of the rival that crates/lab/tests/rival.rs runs"),
    ("", "nawa test ", "half a minute: tests/doctor.rs, tests/hosts_ways.rs"),
    ("", "nawa top", "tests/see.rs, which has a terminal"),
    ("tunnel.md", "nawa capture - ", "tests/see.rs runs it into tshark"),
    ("tunnel.md", "kill ", "tests/live.rs sends the signal"),
    ("tunnel.md", "$ echo ", "tests/daemon.rs asks the socket"),
];

/// A command of a page.
struct Line {
    page: String,
    /// Who types it, where the page says so.
    prompt: Option<String>,
    /// Without its explanation.
    command: String,
    run: bool,
}

/// Those of all pages.
struct Pages(Vec<Line>);

impl Pages {
    fn read() -> Pages {
        let mut lines = Vec::new();
        let docs = root().join("docs");
        let folders = ["", "use", "howto"].map(|folder| fs::read_dir(docs.join(folder)).expect("a folder"));
        let pages = folders.into_iter().flatten().map(|entry| entry.expect("an entry").path());
        let pages = pages.filter(|path| path.extension().is_some_and(|end| end == "md"));
        for path in pages.chain([root().join("README.md")]) {
            let page = path.strip_prefix(&docs).unwrap_or(Path::new("README.md")).display().to_string();
            let text = fs::read_to_string(&path).expect("a page");
            lines.extend(text.lines().filter_map(|line| command(&page, line.strip_prefix("    ")?)));
        }
        Pages(lines)
    }

    /// The command of `page` that begins so, which the caller runs.
    #[track_caller]
    fn take(&mut self, page: &str, start: &str) -> String {
        let found = self.0.iter_mut().find(|line| line.page == page && line.command.starts_with(start));
        let line = found.unwrap_or_else(|| panic!("{page} has no {start}"));
        line.run = true;
        line.command.clone()
    }

    /// Has `person` type what `page` tells whoever has `prompt`, with `words` put in place of what stands for something else.
    #[track_caller]
    fn play(&mut self, page: &str, prompt: Option<&str>, person: &mut Person, words: &[(&str, &str)]) {
        for line in self.0.iter_mut().filter(|line| line.page == page && line.prompt.as_deref() == prompt) {
            if line.run || line.is_exempt() {
                continue;
            }
            line.run = true;
            let mut command = line.command.clone();
            for (theirs, ours) in words {
                command = command.replace(theirs, ours);
            }
            person.types(&command);
        }
    }
}

impl Line {
    fn is_exempt(&self) -> bool {
        NOT_RUN.iter().any(|(page, start, _)| self.page.ends_with(page) && self.command.starts_with(start))
    }
}

/// The command in a line of a block of code, if one is there.
fn command(page: &str, line: &str) -> Option<Line> {
    let (prompt, rest) = match line.split_once("#   ") {
        Some((who, rest)) if who.chars().all(|c| c.is_ascii_lowercase()) && !who.is_empty() => {
            (Some(who.to_owned()), rest)
        }
        _ => (None, line),
    };
    let told = rest.split("   ").next()?.split(" # ").next()?.trim().to_owned();
    let first = told.split(' ').next()?;
    PROGRAMS.contains(&first).then(|| Line { page: page.to_owned(), prompt, command: told, run: false })
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The first whole file that a page shows.
fn file_of(page: &str) -> String {
    let text = fs::read_to_string(root().join("docs").join(page)).expect("a page");
    let block = text.split("```toml\n").nth(1).expect("a file");
    block.split("```").next().expect("its end").to_owned()
}

/// A shell at a host that has a network, an /etc and a /var/lib of its own.
struct Person {
    shell: Child,
    typed: ChildStdin,
    shown: BufReader<ChildStdout>,
}

impl Person {
    fn at(host: &Namespace) -> Person {
        let mut command = host.command("unshare", ["--mount", "sh"]);
        let mut shell = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .env_remove("STATE_DIRECTORY")
            .spawn()
            .expect("a shell");
        let typed = shell.stdin.take().expect("stdin is piped");
        let shown = BufReader::new(shell.stdout.take().expect("stdout is piped"));
        let mut person = Person { shell, typed, shown };
        let program = Path::new(env!("CARGO_BIN_EXE_nawa")).parent().expect("a folder").display().to_string();
        person.silently("mount -t tmpfs nawa /mnt && cp -a /etc /mnt/etc && mkdir /mnt/lib");
        person.silently("mount --bind /mnt/etc /etc && mount --bind /mnt/lib /var/lib && cd /mnt");
        person.silently(&format!("PATH={program}:$PATH; rm -rf /etc/nawa"));
        person
    }

    /// In the shell itself, which is to have what it changes.
    #[track_caller]
    fn silently(&mut self, command: &str) {
        let (status, said) = self.ask(&format!("{{ {command}\n}} </dev/null 2>&1"));
        assert_eq!(status, 0, "{command}: {said}");
    }

    /// What a command that succeeds says.
    #[track_caller]
    fn types(&mut self, command: &str) -> String {
        let (status, said) = self.ask(&format!("( {command}\n) </dev/null 2>&1"));
        assert_eq!(status, 0, "{command}: {said}");
        said
    }

    fn ask(&mut self, command: &str) -> (i32, String) {
        writeln!(self.typed, "{command}; echo \"@@$?\"").expect("the shell reads");
        let mut said = String::new();
        loop {
            let mut line = String::new();
            assert!(self.shown.read_line(&mut line).expect("the shell writes") > 0, "it ended: {said}");
            if let Some((before, status)) = line.split_once("@@") {
                said += before;
                return (status.trim().parse().expect("a status"), said);
            }
            said += &line;
        }
    }

    /// Writes /etc/nawa/nawa.toml.
    #[track_caller]
    fn has(&mut self, file: &str) {
        self.silently("mkdir -p /etc/nawa");
        self.silently(&format!("cat >/etc/nawa/nawa.toml <<'END'\n{file}\nEND"));
    }

    /// Begins anew.
    #[track_caller]
    fn forgets(&mut self) {
        self.types("nawa down");
        self.silently("rm -rf /etc/nawa /var/lib/nawa");
    }

    /// Starts the daemon, and a `nawa flood recv` that waits for one message.
    #[track_caller]
    fn hears(&mut self, command: &str) {
        self.types("nawa up");
        self.silently("rm -f heard");
        self.silently(&format!("{command} --count 1 >heard 2>&1 </dev/null & hears=$!"));
        eventually("a receiver", || self.types("nawa status").contains("1 receivers").then_some(()));
    }

    /// Types a `nawa invite`, which goes on waiting; its string.
    #[track_caller]
    fn invites(&mut self, command: &str) -> String {
        // The shell makes it beside what is typed next.
        self.silently(": >invite");
        self.silently(&format!("{command} >invite 2>&1 </dev/null & waits=$!"));
        eventually("an invite", || {
            let said = self.types("cat invite");
            said.lines().find(|line| line.starts_with("nawa1-")).map(str::to_owned)
        })
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// The van and its hub as `page` has them: what is typed there, up to a packet through the tunnel.
#[track_caller]
fn join(pages: &mut Pages, page: &str, hub: &mut Person, van: &mut Person) {
    let lines: Vec<_> = pages.0.iter().filter(|line| line.page == page && line.prompt.is_some()).collect();
    let of = |who: &str, what: &str| {
        let found =
            lines.iter().find(|line| line.prompt.as_deref() == Some(who) && line.command.contains(what));
        found.unwrap_or_else(|| panic!("{page} has no {what}")).command.clone()
    };
    let (init, invite, take) = (of("hub", "nawa init"), of("hub", "nawa invite"), of("van", "nawa join"));
    hub.silently("printf 'hub\\n203.0.113.7:51900\\n' >answers");
    hub.types(&format!("{{ {init}; }} <answers"));
    if !init.contains("nawa up") {
        hub.types(&of("hub", "nawa up"));
    }
    let string = hub.invites(&invite);
    van.types(&take.replace("nawa1-…", &string).replace("STRING", &string));
    hub.silently("wait $waits");
    if !take.contains("nawa up") {
        van.types(&of("van", "nawa up"));
    }
    van.types("ping -c 1 -w 30 10.77.0.1");
    pages
        .0
        .iter_mut()
        .filter(|line| line.page == page && line.prompt.is_some())
        .for_each(|line| line.run = true);
}

#[test]
fn every_command_of_the_pages_works_as_it_stands_there() {
    let Some(_alone) = namespaces_or_skip("every_command_of_the_pages_works_as_it_stands_there") else {
        return;
    };
    let mut pages = Pages::read();
    let (hub_host, van_host) = (Namespace::new(), Namespace::new());
    for (at, uplink) in ["wwan0", "wlan0", "sat0"].iter().enumerate() {
        let [here, there] = [2, 1].map(|end| format!("10.1.{at}.{end}/24"));
        let port = format!("eth{at}");
        Namespace::connect((&van_host, uplink, &here), (&hub_host, &port, &there));
        van_host.ip(&format!("route add default via 10.1.{at}.1 dev {uplink} metric {}", 100 + at));
    }
    hub_host.ip("address add 203.0.113.7/32 dev lo");
    let (mut hub, mut van) = (Person::at(&hub_host), Person::at(&van_host));

    // Three pages bring two ends together.
    for page in ["README.md", "join.md", "use/van.md"] {
        join(&mut pages, page, &mut hub, &mut van);
        if page != "use/van.md" {
            [&mut hub, &mut van].into_iter().for_each(Person::forgets);
        }
    }
    // By then it has begun, on a machine that is busy as well: before, the signal would kill it.
    let ended = ("nawa monitor", "timeout --preserve-status --signal=INT 5 nawa monitor");
    pages.play("use/van.md", None, &mut van, &[ended]);
    let names =
        [("[PEER [NAME]]", ""), ("[NAME]", ""), ("[--json]", "--json"), ("PEER", "hub"), ("office", "hub")];
    pages.play("doctor.md", None, &mut van, &names);
    pages.play("howto/default-route.md", None, &mut hub, &[]);
    let key = van.types("nawa keygen | nawa pubkey");
    let rules = [("10.0.2.1 dev wan2", "10.1.1.1 dev wlan0"), ("10.0.2.2", "10.1.1.2"), ("KEY", key.trim())];
    let captured = [("--path lte --duration 10s", "--path wwan0 --duration 1s")];
    pages.play("tunnel.md", None, &mut van, &[&names[..], &rules, &captured].concat());

    // One who wants another price for each link joins by the page's flags.
    van.forgets();
    let string = hub.invites("nawa invite boat");
    pages.play("join.md", None, &mut van, &[("nawa1-…", &string)]);
    hub.silently("wait $waits");
    // The boat's file, with the keys of both.
    let hubs = hub.types("nawa pubkey </etc/nawa/key");
    let file = file_of("use/boat.md").replace("HUB'S PUBLIC KEY", hubs.trim());
    let inner = van.types("grep addresses /etc/nawa/nawa.toml");
    let own = file.lines().find(|line| line.starts_with("addresses")).expect("addresses");
    van.has(&file.replace(own, inner.trim()));
    van.types("nawa up && ping -c 1 -w 30 10.77.0.1");
    pages.play("use/boat.md", None, &mut van, &[]);
    van.types("ping -c 1 -w 30 10.77.0.1");
    pages.play("howto/remove.md", None, &mut van, &[]);
    mesh(&mut pages);
    sctp(&mut pages);
    pages.play("use/research.md", None, &mut hub, &[]);
    pages.play("lab.md", None, &mut hub, &[]);

    let left = pages.0.iter().filter(|line| !line.run && !line.is_exempt());
    let left: Vec<_> = left.map(|line| format!("{}: {}", line.page, line.command)).collect();
    assert!(left.is_empty(), "nothing runs these, and NOT_RUN does not say why:\n{}", left.join("\n"));
    for (page, start, _) in NOT_RUN {
        let used = pages.0.iter().any(|line| line.page.ends_with(page) && line.command.starts_with(start));
        assert!(used, "no page has `{start}`: take it off NOT_RUN");
    }
}

/// Two nodes with the mesh's file: one sends, the other receives; then the pages of flood and coding.
fn mesh(pages: &mut Pages) {
    let (here, there) = (Namespace::new(), Namespace::new());
    for name in ["mesh0", "wlan0"] {
        here.ip(&format!("link add {name} type veth peer name {name} netns {}", there.name()));
        [&here, &there].iter().for_each(|host| drop(host.ip(&format!("link set {name} up"))));
    }
    let (mut one, mut other) = (Person::at(&here), Person::at(&there));
    one.has(&file_of("use/mesh.md"));
    one.types(&pages.take("use/mesh.md", "umask"));
    let key = one.types("cat /etc/nawa/flood.key");
    other.has(&file_of("use/mesh.md").replace("id = 7 ", "id = 8 ").replace("10.88.0.7", "10.88.0.8"));
    other.silently(&format!("(umask 077; echo {} >/etc/nawa/flood.key)", key.trim()));
    other.hears(&pages.take("use/mesh.md", "nawa flood recv"));
    pages.play("use/mesh.md", None, &mut one, &[]);
    other.silently("wait $hears");
    assert_eq!(other.types("cat heard"), "7: brake!\n");
    one.types("ping -c 1 -w 30 10.88.0.8 && nawa down");
    other.types("nawa down");

    one.has(&file_of("flood.md"));
    other.has(&file_of("flood.md").replace("id = 7 ", "id = 9 "));
    other.hears(&pages.take("flood.md", "nawa flood recv"));
    pages.play("flood.md", None, &mut one, &[("wlan0 9", "wlan0 9 --count 3"), ("[--json]", "--json")]);
    other.silently("wait $hears");
    pages.play("README.md", None, &mut one, &[]);
    one.types("nawa down");
    one.has(&file_of("coding.md"));
    pages.play("coding.md", None, &mut one, &[("[--json]", "--json")]);
}

fn sctp(pages: &mut Pages) {
    let host = Namespace::new();
    let far = Namespace::new();
    Namespace::connect((&host, "eth0", "10.1.0.1/24"), (&far, "eth0", "10.1.0.2/24"));
    Namespace::connect((&host, "eth1", "10.2.0.1/24"), (&far, "eth1", "10.2.0.2/24"));
    let mut person = Person::at(&host);
    person.has(&file_of("use/sctp.md"));
    pages.play("use/sctp.md", None, &mut person, &[]);
    assert!(!person.types("nawa status").contains("copies nothing"));
}
