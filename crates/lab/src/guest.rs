//! Guests: another Linux on this machine, with what the running kernel lacks.
//!
//! A guest is user-mode Linux (Debian package `user-mode-linux`): a kernel that is a program, run in a namespace of the
//! lab, with that package's modules. It has no disk; its files are this machine's, which it can only read, so that it
//! has every program by its path here, those of busybox (but for `ip`) before all others. `/run` is its own, and can be written: nothing
//! of this machine's `/run` is there.
//! Its interfaces are TAPs of the namespace. What it is to do goes in by its console, what its programs say comes out by it
//! ([`console`]).
//!
//! A guest is gone, with all its processes, when the value is dropped, when its namespace is removed, or when the thread
//! that booted it ends in whatever way.

use std::fs::{self, File, Permissions};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use console::Console;
use rustix::process::{Pid, Signal, kill_process};

use crate::command::{end, mac};
use crate::error::{Doing, Error, Result};
use crate::namespace::Namespace;
use crate::{cleanup, program};

mod console;
mod modules;

pub use console::Job;

/// The kernel, as the Debian package installs it.
const KERNEL: &str = "linux.uml";
/// `xstate_shim.c` as a shared object (`build.rs`).
const SHIM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/xstate_shim.so"));

/// A guest is up in two seconds; with dozens of them on a busy machine it takes longer.
const BOOT_LIMIT: Duration = Duration::from_secs(180);

/// What one command of [`Guest::run`] may take: loading BPF in a guest takes seconds, and many times that on a busy machine.
const RUN_LIMIT: Duration = Duration::from_secs(90);

/// What a guest is made of.
#[derive(Clone, Debug, Default)]
pub struct GuestSpec {
    /// Modules as `modprobe` takes them, such as `tcp_vegas alpha=1 beta=3`, loaded in this order. Those that they
    /// depend on are loaded before them.
    pub modules: Vec<&'static str>,
    /// Keys and values, as `net.ipv4.tcp_congestion_control` and `vegas`, set in this order once modules are loaded.
    pub sysctls: Vec<(&'static str, String)>,
    /// Its network interfaces: the first is `vec0` inside, the next `vec1`.
    pub interfaces: Vec<Interface>,
    /// Its memory, in MiB, if not [`MEMORY_MB`]; this machine gives what is in use.
    pub memory_mb: Option<u32>,
}

/// Of a guest that does not say how much. With 48 it sometimes does not come up.
const MEMORY_MB: u32 = 128;

/// A network interface of a guest.
#[derive(Clone, Debug)]
pub struct Interface {
    /// The TAP in the guest's namespace that is its other end, at most 15 bytes. It is made, and is up when
    /// [`Booting`] is there; to the namespace it is an interface like any other.
    pub tap: String,
    /// The guest's MAC address, as `02:00:00:00:00:01`.
    pub mac: String,
    /// Further options of the guest's driver, as `mtu=1560,headroom=128`.
    pub options: Option<String>,
    /// What `ip` is told inside once the interface is up, a line each, as `addr add 10.1.1.2/24 dev vec0`.
    pub lines: Vec<String>,
}

/// A guest on its way up. Dropping it ends it.
#[derive(Debug)]
pub struct Booting(Guest);

/// A guest that is up. Dropping it ends it.
#[derive(Debug)]
pub struct Guest {
    machine: Machine,
    console: Console,
}

/// Fails, in one sentence, where this machine has no guests, or their kernel lacks one of `modules`.
pub fn check(modules: &[&str]) -> Result<()> {
    program::require(&[KERNEL, "busybox", "ip"])?;
    modules::commands(modules).map(drop)
}

/// Begins to boot a guest in `host`. Several may boot at the same time; [`Booting::finish`] waits.
///
/// Fails where the kernel, a module or a TAP is missing.
pub fn boot(host: &Namespace, spec: &GuestSpec) -> Result<Booting> {
    check(&[])?;
    let init = console::init(&steps(spec)?);
    let tap = |Interface { tap, .. }: &Interface| {
        [format!("tuntap add dev {tap} mode tap"), format!("link set {tap} up")]
    };
    host.ip(&spec.interfaces.iter().flat_map(tap).collect::<Vec<_>>())?;
    let (machine, console) = Machine::start(host, spec, &init)?;
    Ok(Booting(Guest { machine, console }))
}

impl Booting {
    /// Waits until the guest is up, with all that its specification asks for done.
    pub fn finish(self) -> Result<Guest> {
        let Booting(guest) = self;
        match guest.console.await_ready(BOOT_LIMIT) {
            Ok(()) => Ok(guest),
            Err(error) => Err(guest.machine.explain(error)),
        }
    }
}

impl Guest {
    /// Starts a line of shell in the guest; it runs beside whatever else does.
    pub fn start(&mut self, line: &str) -> Result<Job> {
        self.console.start(line)
    }

    /// Has the guest's first process itself carry out a line of shell, which must not take long: without the time that it
    /// takes to start another. What it says is lost.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        self.console.tell(line)
    }

    /// Runs a line of shell to its end, within [`RUN_LIMIT`]; what it said, on standard output and standard error.
    /// Fails if it does.
    pub fn run(&mut self, line: &str) -> Result<String> {
        let job = self.start(line)?;
        job.finish(RUN_LIMIT).map_err(|error| self.machine.explain(error))
    }
}

/// What a guest does before it is up, a command each.
fn steps(spec: &GuestSpec) -> Result<Vec<String>> {
    let mut steps = modules::commands(&spec.modules)?;
    steps.extend(spec.sysctls.iter().map(|(key, value)| format!("sysctl -w '{key}={value}'")));
    for (number, interface) in spec.interfaces.iter().enumerate() {
        steps.push(format!("ip link set vec{number} up"));
        steps.extend(interface.lines.iter().map(|line| format!("ip {line}")));
    }
    Ok(steps)
}

/// The process that is a guest, and the folder of its own.
#[derive(Debug)]
struct Machine {
    child: Child,
    /// What its kernel complained of.
    errors: File,
    _folder: tempfile::TempDir,
}

impl Machine {
    fn start(host: &Namespace, spec: &GuestSpec, init: &str) -> Result<(Self, Console)> {
        let folder = cleanup::folder("guest-")?;
        let _not_while_cleaning = cleanup::hold_off();
        write_program(&folder.path().join("init"), init.as_bytes())?;
        let shim = folder.path().join("xstate_shim.so");
        write_program(&shim, SHIM)?;
        let errors = tempfile::tempfile().doing(|| "make a temporary file".into())?;
        // A process namespace of its own: whoever dies, nothing of the guest is left. Its first process is a shell,
        // because a kernel that panics sends itself a signal, which a first process would not get.
        let mut command = host.command("unshare");
        command.args(["--pid", "--fork", "--kill-child", "sh", "-c", "\"$@\"; exit $?", "sh", KERNEL]);
        command.args(arguments(spec, folder.path()));
        command.env("LD_PRELOAD", &shim);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(errors.try_clone().doing(|| "open a file again".into())?);
        let mut child = command.spawn().doing(|| format!("start `{KERNEL}`"))?;
        let pipes = (child.stdin.take(), child.stdout.take());
        let machine = Self { child, errors, _folder: folder };
        let (Some(stdin), Some(stdout)) = pipes else {
            return Err(Error::program(KERNEL, "it has no console"));
        };
        Ok((machine, Console::new(stdin, stdout)?))
    }

    /// `error`, or why the kernel gave up.
    fn explain(&self, error: Error) -> Error {
        let said = program::said(&self.errors);
        let panic = said.lines().find(|line| line.contains("Kernel panic"));
        panic.map_or(error, |panic| Error::program(KERNEL, panic.trim()))
    }

    /// The first process of its namespace, with which all others go.
    fn first(&self) -> Option<Pid> {
        let pid = self.child.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // `unshare` waits for it, then ends by itself; killed first, it would leave that to whoever adopts orphans.
        if self.first().is_none_or(|first| kill_process(first, Signal::KILL).is_err()) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// Writes a file that may be executed.
pub(crate) fn write_program(path: &Path, content: &[u8]) -> Result<()> {
    let written = fs::write(path, content);
    let made = written.and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o755)));
    made.doing(|| format!("write {}", path.display()))
}

/// What the kernel is told. Its console is the standard input and output, its complaints go to standard error.
fn arguments(spec: &GuestSpec, folder: &Path) -> Vec<String> {
    let files = "root=/dev/root rootfstype=hostfs hostfs=/ ro";
    let talk = "quiet loglevel=4 con=null con0=null,fd:2 console=tty0 ssl0=fd:0,fd:1";
    let mut words: Vec<String> = files.split(' ').chain(talk.split(' ')).map(str::to_owned).collect();
    words.extend(["panic=-1".into(), "umid=guest".into()]);
    words.push(format!("mem={}M", spec.memory_mb.unwrap_or(MEMORY_MB)));
    words.push(format!("init={}", folder.join("init").display()));
    words.push(format!("uml_dir={}/", folder.display()));
    let interface = |(number, interface): (usize, &Interface)| {
        let options = interface.options.iter().map(|options| format!(",{options}")).collect::<String>();
        format!("vec{number}:transport=tap,ifname={},mac={}{options}", interface.tap, interface.mac)
    };
    words.extend(spec.interfaces.iter().enumerate().map(interface));
    words
}

/// Such a network. The host's end is a TAP.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    tap: String,
    /// The host's address there, and the guest's.
    pub(crate) gateway: Ipv4Addr,
    pub(crate) own: Ipv4Addr,
}

impl Segment {
    /// In the network 10.A.B.0/24.
    pub(crate) fn new(tap: String, [a, b]: [u8; 2]) -> Self {
        let [gateway, own] = [1, 2].map(|host| Ipv4Addr::new(10, a, b, host));
        Self { tap, gateway, own }
    }

    /// The guest's interface `number` (from 0), with further `lines`.
    pub(crate) fn interface(&self, number: usize, lines: impl IntoIterator<Item = String>) -> Interface {
        let own = end(&format!("vec{number}"), self.own, self.gateway).into_iter().skip(1);
        Interface {
            tap: self.tap.clone(),
            mac: mac(self.own),
            options: None,
            lines: own.chain(lines).collect(),
        }
    }

    /// Has `host`, where the guest has begun to boot, forward for it.
    pub(crate) fn admit(&self, host: &Namespace) -> Result<()> {
        host.sysctl(&format!("ipv6/conf/{}/disable_ipv6", self.tap), "1")?;
        host.sysctl("ipv4/ip_forward", "1")?;
        host.ip(&end(&self.tap, self.gateway, self.own))
    }
}
