//! One network namespace, `nawalab-PID-NUMBER-LABEL`, made and removed with iproute2.

use std::net::{SocketAddr, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use device::Tap;

use crate::cleanup;
use crate::command::{FOLDER, PREFIX, ip};
use crate::error::{Doing, Result};

/// A network namespace of this process; dropping it kills what still runs inside and removes it.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes the namespace `nawalab-PID-NUMBER-LABEL`, its loopback up, IPv6 without duplicate address detection, plain TCP
    /// that remembers nothing of earlier connections.
    pub fn create(label: &str) -> Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}-{label}", std::process::id());
        let _not_while_cleaning = cleanup::hold_off();
        ip(&["netns", "add", &name], "")?;
        let namespace = Self { name };
        namespace.ip(&["link set lo up".into()])?;
        for (key, value) in SYSCTLS {
            namespace.sysctl(key, value)?;
        }
        Ok(namespace)
    }

    /// The name that `ip netns` shows.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that [`device::netns::enter`] takes.
    pub fn path(&self) -> PathBuf {
        Path::new(FOLDER).join(&self.name)
    }

    /// Runs lines of `ip -batch` inside; the first that fails is the error.
    pub fn ip(&self, lines: &[String]) -> Result<()> {
        ip(&["-n", &self.name, "-batch", "-"], &(lines.join("\n") + "\n"))
    }

    /// Sets `/proc/sys/net/KEY`, as `ipv4/ip_forward`.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<()> {
        let path = format!("/proc/sys/net/{key}");
        self.run(|| std::fs::write(&path, value))?.doing(|| format!("set {path} to {value} in {}", self.name))
    }

    /// Turns IPv6 off on all interfaces: nobody says anything unasked.
    pub(crate) fn without_ipv6(&self) -> Result<()> {
        ["all", "default"].iter().try_for_each(|of| self.sysctl(&format!("ipv6/conf/{of}/disable_ipv6"), "1"))
    }

    /// Makes a TAP without IPv6.
    pub(crate) fn tap(&self, name: &str) -> Result<Tap> {
        let tap =
            self.run(|| Tap::create(name))?.doing(|| format!("make the TAP {name} in {}", self.name))?;
        self.sysctl(&format!("ipv6/conf/{name}/disable_ipv6"), "1")?;
        Ok(tap)
    }

    /// What `work` returns inside, on a thread of its own.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        device::netns::run_in(&self.path(), work).doing(|| format!("enter the namespace {}", self.name))
    }

    /// A UDP socket inside that is bound to `address` and does not block.
    pub(crate) fn udp(&self, address: SocketAddr) -> Result<UdpSocket> {
        let bound = self.run(|| {
            let socket = UdpSocket::bind(address)?;
            socket.set_nonblocking(true).map(|()| socket)
        });
        bound?.doing(|| format!("bind {address}"))
    }

    /// A command that runs `program` inside. Its process is `program`'s own and dies with the thread that starts it;
    /// Ctrl-C is for the lab alone, which then stops what it started.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        // What `ping` says is read, and it translates that.
        command.env("LC_ALL", "C");
        command.args(["netns", "exec", &self.name]).arg(program).stdin(Stdio::null()).process_group(0);
        device::process::die_with_parent(&mut command);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        cleanup::remove(&self.name);
    }
}

const SYSCTLS: [(&str, &str); 5] = [
    ("ipv6/conf/all/accept_dad", "0"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/tcp_no_metrics_save", "1"),
];

/// Of the interface `name` in the calling thread's namespace.
pub(crate) fn interface_index(name: &str) -> Result<u32> {
    let link = device::Net::open().and_then(|mut net| net.link(name));
    link.map(|link| link.index).doing(|| format!("find the interface {name}"))
}
