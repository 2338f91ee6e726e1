//! Network namespaces for the tests of the daemons. Each test file uses a part of this.
#![allow(dead_code, reason = "each test file uses a part of this")]

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held by the one test that works in network namespaces at a time; `None`, after saying so by name, where the test
/// `name` cannot run.
pub fn namespaces_or_skip(name: &str) -> Option<MutexGuard<'static, ()>> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let reason = if !rustix::process::geteuid().is_root() {
        "needs root to make network namespaces"
    } else if std::fs::File::open("/dev/net/tun").is_err() {
        "needs /dev/net/tun"
    } else {
        return Some(ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner));
    };
    println!("SKIPPED: {name}: {reason}");
    None
}

/// A network namespace, removed with everything in it when dropped.
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// A new one with `lo` up. The name tells the lab's clean-up whose it is.
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("nawalab-{}-d{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        succeed(&format!("ip netns add {name}"));
        let namespace = Self { name };
        namespace.run("ip link set lo up");
        namespace
    }

    /// Runs a command inside, which has to succeed.
    #[track_caller]
    pub fn run(&self, command: &str) -> String {
        succeed(&format!("ip netns exec {} {command}", self.name))
    }

    /// What `work` returns on a thread inside.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        device::netns::run_in(&PathBuf::from("/run/netns").join(&self.name), work).unwrap()
    }

    /// The names of its interfaces but `lo`.
    pub fn interfaces(&self) -> Vec<String> {
        let listed = self.run("ip -o link show");
        let name = |line: &str| line.split([':', '@']).nth(1).map(|name| name.trim().to_owned());
        listed.lines().filter_map(name).filter(|name| name != "lo").collect()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.name]).status();
    }
}

/// A cable between `a` and `b`: an interface `name` at each end, with these addresses in a /24.
pub fn join(name: &str, a: (&Namespace, &str), b: (&Namespace, &str)) {
    let (left, right) = (&a.0.name, &b.0.name);
    succeed(&format!("ip link add {name} netns {left} type veth peer name {name} netns {right}"));
    for (namespace, address) in [a, b] {
        namespace.run(&format!("ip address add {address}/24 dev {name}"));
        namespace.run(&format!("ip link set {name} up"));
    }
}

/// Runs a command, which has to succeed, and returns what it printed.
#[track_caller]
fn succeed(command: &str) -> String {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}
