//! What the tests of the binary share.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod flight;
pub mod flood;
pub mod guest;
pub mod hub;
pub mod hwsim;
pub mod rtnl;
pub mod traffic;
pub mod uplinks;

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What is waited for happens within milliseconds, unless the machine is busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Says that the test `name` cannot run here, and why; `make test` compares with `expected-skips.txt`. On standard output, which
/// is written by lines: standard error is by pieces, between which another test's may come.
pub fn skip(name: &str, reason: &str) {
    println!("SKIPPED: {name}: {reason}");
}

/// Held by the one test that works in network namespaces at a time; `None` skips the test `name`, because no
/// namespaces with TUN devices can be made here.
pub fn namespaces_or_skip(name: &str) -> Option<MutexGuard<'static, ()>> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let reason = if !rustix::process::geteuid().is_root() {
        "needs root to make network namespaces"
    } else if fs::File::open("/dev/net/tun").is_err() {
        "needs /dev/net/tun"
    } else {
        // A test that failed has poisoned it, and that is no reason for the next to fail.
        return Some(ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner));
    };
    skip(name, reason);
    None
}

/// The binary under test.
pub fn nawa<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nawa"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs to the end.
#[track_caller]
pub fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"))
}

/// Runs to the end, which has to be a success, and returns stdout.
#[track_caller]
pub fn succeed(command: &mut Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{command:?}: {}{}", stdout(&output), stderr(&output));
    stdout(&output)
}

/// What it printed.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What it complained about.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A network namespace, removed with everything in it when dropped.
pub struct Namespace {
    name: String,
    /// What daemons keep, out of the host's folders and of one another's.
    state: PathBuf,
}

impl Namespace {
    /// A new one with `lo` up. The name tells the lab's clean-up whose it is.
    pub fn new() -> Namespace {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("nawalab-{}-t{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        succeed(Command::new("ip").args(["netns", "add", &name]));
        let state = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&name);
        fs::create_dir_all(&state).expect("a folder");
        let namespace = Namespace { name, state };
        namespace.ip("link set lo up");
        namespace
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `program` inside.
    pub fn command<'a>(&self, program: &str, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]).args(arguments).stdin(Stdio::null());
        command.env("STATE_DIRECTORY", &self.state);
        command
    }

    /// The binary under test inside.
    pub fn nawa<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        self.command(env!("CARGO_BIN_EXE_nawa"), arguments)
    }

    /// `ip` inside, which has to succeed.
    #[track_caller]
    pub fn ip(&self, arguments: &str) -> String {
        succeed(Command::new("ip").args(["-n", &self.name]).args(arguments.split(' ')))
    }

    /// A cable between two namespaces: `a`'s end and `b`'s end, each an interface name and an address with prefix.
    #[track_caller]
    pub fn connect(a: (&Namespace, &str, &str), b: (&Namespace, &str, &str)) {
        a.0.ip(&format!("link add {} type veth peer name {} netns {}", a.1, b.1, b.0.name()));
        for (namespace, interface, address) in [a, b] {
            namespace.ip(&format!("address add {address} dev {interface}"));
            namespace.ip(&format!("link set {interface} up"));
        }
    }

    /// What `work` returns on a thread inside.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        device::netns::run_in(&Path::new("/run/netns").join(&self.name), work).expect("it can be entered")
    }

    /// The daemon's state.
    #[track_caller]
    pub fn status(&self) -> serde_json::Value {
        let state = succeed(&mut self.nawa(["status", "--json"]));
        serde_json::from_str(&state).expect("one JSON object")
    }

    /// Whether `interface` exists.
    pub fn has_interface(&self, interface: &str) -> bool {
        output(Command::new("ip").args(["-n", &self.name, "link", "show", interface])).status.success()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let inside = output(Command::new("ip").args(["netns", "pids", &self.name]));
        for pid in stdout(&inside).split_whitespace().filter_map(|pid| pid.parse().ok()) {
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        output(Command::new("ip").args(["netns", "delete", &self.name]));
        let _ = fs::remove_dir_all(&self.state);
    }
}

/// A `nawa run` in the foreground, killed when dropped.
pub struct Daemon {
    child: Child,
    stderr: Option<BufReader<std::process::ChildStderr>>,
}

impl Daemon {
    /// Starts it in `namespace` and waits until it is ready.
    #[track_caller]
    pub fn start(namespace: &Namespace, file: &Path) -> Daemon {
        let file = file.to_str().expect("a temporary folder's name is UTF-8");
        Daemon::spawn(&mut namespace.nawa(["run", file]))
    }

    /// Starts `command`, a `nawa run`, and waits until it is ready.
    #[track_caller]
    pub fn spawn(command: &mut Command) -> Daemon {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("nawa starts");
        let mut stderr = BufReader::new(child.stderr.take().expect("stderr is piped"));
        let mut said = String::new();
        while !said.ends_with("nawa: ready\n") {
            let length = stderr.read_line(&mut said).expect("stderr can be read");
            assert!(length > 0, "nawa run ended before it was ready: {said}");
        }
        // The pipe stays open, and its 64 kB hold what a daemon logs in a test.
        Daemon { child, stderr: Some(stderr) }
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("the daemon runs");
    }

    /// Whether it may open any more files and sockets; those that it has stay.
    pub fn allow_descriptors(&self, any: bool) {
        use rustix::process::{Pid, Resource, getrlimit, prlimit};
        let mut limits = getrlimit(Resource::Nofile);
        if !any {
            limits.current = Some(0);
        }
        prlimit(Some(Pid::from_child(&self.child)), Resource::Nofile, limits).expect("root may");
    }

    /// The next line on stderr that holds `what`.
    #[track_caller]
    pub fn read_until(&mut self, what: &str) -> String {
        let stderr = self.stderr.as_mut().expect("stderr is piped");
        let mut line = String::new();
        while !line.contains(what) {
            line.clear();
            assert!(stderr.read_line(&mut line).expect("stderr can be read") > 0, "never said: {what}");
        }
        line
    }

    /// Nobody reads its stderr from here on.
    pub fn close_stderr(&mut self) {
        self.stderr = None;
    }

    /// What else it says on stderr, until it has ended.
    pub fn rest(mut self) -> String {
        let mut rest = String::new();
        let stderr = self.stderr.as_mut().expect("stderr is piped");
        stderr.read_to_string(&mut rest).expect("stderr can be read");
        rest
    }

    /// Waits until it has ended; its exit status, `None` if a signal ended it.
    pub fn wait(mut self) -> Option<i32> {
        self.child.wait().expect("the daemon can be waited for").code()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What `look` finds, as soon as it finds it.
#[track_caller]
pub fn eventually<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    within(PATIENCE, what, look)
}

/// The same, where it takes longer than other things do.
#[track_caller]
pub fn within<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = device::monotonic() + limit;
    let mut poller = device::Poller::new().expect("a poller");
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(device::monotonic() < deadline, "never: {what}");
        poller.wait(Some(Duration::from_millis(20))).expect("waiting").for_each(drop);
    }
}

/// The next connection, if one comes in time.
pub fn accept(listener: &std::net::TcpListener) -> std::net::TcpStream {
    listener.set_nonblocking(true).expect("a listener");
    eventually("a connection", || listener.accept().ok()).0
}

/// Waits for so long, where there is no event to wait for.
pub fn pause(time: Duration) {
    let until = device::monotonic() + time;
    let mut poller = device::Poller::new().expect("a poller");
    // A signal ends a wait early.
    while let Some(rest) = until.checked_sub(device::monotonic()).filter(|rest| !rest.is_zero()) {
        poller.wait(Some(rest)).expect("waiting").for_each(drop);
    }
}

/// This thread has no rights any more, for good: one of [`Namespace::within`], which ends with its work.
pub fn become_nobody() {
    rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65534)).expect("root may become nobody");
}

/// A node's folder: its key, and files beside it.
pub struct Node {
    folder: tempfile::TempDir,
    /// What others know it by.
    pub public_key: String,
}

impl Node {
    /// A new folder with a new key in `key`.
    pub fn new() -> Node {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let private = succeed(&mut nawa(["keygen"]));
        let path = folder.path().join("key");
        fs::write(&path, &private).expect("the key file");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("its mode");
        let input = fs::File::open(&path).expect("the key file");
        let public_key = succeed(nawa(["pubkey"]).stdin(input)).trim().to_owned();
        Node { folder, public_key }
    }

    /// Its private key's file.
    pub fn key(&self) -> PathBuf {
        self.folder.path().join("key")
    }

    /// Writes `nawa.toml` with `[node]` and `more`.
    pub fn write(&self, more: &str) -> PathBuf {
        let path = self.folder.path().join("nawa.toml");
        fs::write(&path, format!("[node]\nkey-file = \"key\"\n{more}")).expect("the configuration file");
        path
    }
}

/// Writes `to` into a file, wherever `from` stands there.
pub fn replace(file: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(file).expect("the file");
    fs::write(file, text.replace(from, to)).expect("the file");
}

/// Has a daemon keep its state in a folder beside its file.
pub fn keep_state_beside(file: &Path) {
    replace(file, "key-file", "state-dir = 'state'\nkey-file");
}

/// A copy of the binary under test in `folder`, because the folder of the build may be closed to others.
pub fn copy_for_anybody(folder: &Path) -> String {
    fs::set_permissions(folder, Permissions::from_mode(0o755)).expect("its mode");
    let copy = folder.join("nawa");
    fs::copy(env!("CARGO_BIN_EXE_nawa"), &copy).expect("a copy of nawa");
    copy.into_os_string().into_string().expect("UTF-8")
}

/// Compares `shown` with the file of this name in `tests/snapshots`, which NAWA_SNAPSHOTS=write writes.
#[track_caller]
pub fn snapshot(name: &str, shown: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(format!("{name}.txt"));
    if std::env::var_os("NAWA_SNAPSHOTS").is_some_and(|value| value == "write") {
        fs::write(&file, shown).expect("the snapshot");
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    assert!(kept == shown, "{} differs; NAWA_SNAPSHOTS=write writes it anew:\n{shown}", file.display());
}
