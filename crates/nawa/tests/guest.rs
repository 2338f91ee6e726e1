//! FS-AT on other kernels: Debian's, booted in qemu with this binary and this test program inside.
//!
//! `make guest` fetches the kernels and installs qemu. A guest has no disk: its files are an initramfs with the two
//! programs, their libraries and busybox. It runs [`inside_a_guest`] and powers off; what it says comes over the
//! serial console.

mod common;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::flight::{CONTROLS, Stream, turn};
use common::{Daemon, nawa, output, skip, stdout, succeed};
use rustix::net::sockopt;
use serde_json::Value;

const MIB: u64 = 1 << 20;

/// Where `make guest` put Debian's kernel `version`; `None` skips the test `name`.
fn kernel_or_skip(name: &str, version: &str) -> Option<PathBuf> {
    let kernel = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("../guest/{version}/vmlinuz"));
    let reason = if Command::new("qemu-system-x86_64").arg("--version").output().is_err() {
        "needs qemu-system-x86_64: make guest"
    } else if !kernel.exists() {
        "needs a kernel to boot: make guest"
    } else {
        return Some(kernel);
    };
    skip(name, reason);
    None
}

/// What init is in a guest. The kernel's complaints are those behind the marker.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t bpf bpf /sys/fs/bpf
mkdir -p /run/lock
ip link set lo mtu 1500 up
echo "guest: begins" >/dev/kmsg
/guest --ignored --exact --nocapture inside_a_guest && echo "guest: passed on $(uname -r)"
dmesg | sed '1,/guest: begins/d' | grep -iE 'warning|bug:|oops|call trace|refcount|stall'
echo "guest: ends"
poweroff -f
"#;

/// The files of a guest, in a folder that becomes its root.
struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn new() -> Files {
        let files = Files { folder: tempfile::tempdir().expect("a temporary folder") };
        ["dev", "proc", "sys", "tmp", "run"].iter().for_each(|folder| files.make_folder(Path::new(folder)));
        files.add_program(&which("busybox"), "/bin/busybox");
        files.add_program(Path::new(env!("CARGO_BIN_EXE_nawa")), env!("CARGO_BIN_EXE_nawa"));
        files.add_program(&std::env::current_exe().expect("this program's path"), "/guest");
        fs::write(files.path("/init"), INIT).expect("a file");
        fs::set_permissions(files.path("/init"), fs::Permissions::from_mode(0o755)).expect("its mode");
        files
    }

    fn path(&self, inside: impl AsRef<Path>) -> PathBuf {
        let inside = inside.as_ref();
        self.folder.path().join("root").join(inside.strip_prefix("/").unwrap_or(inside))
    }

    fn make_folder(&self, inside: &Path) {
        fs::create_dir_all(self.path(inside)).expect("a folder");
    }

    /// `program`, without what only a debugger reads, and the libraries that it needs.
    fn add_program(&self, program: &Path, inside: &str) {
        self.make_folder(Path::new(inside).parent().expect("a folder"));
        succeed(Command::new("strip").arg("-o").arg(self.path(inside)).arg(program));
        for library in libraries(program) {
            self.make_folder(library.parent().expect("a folder"));
            fs::copy(&library, self.path(&library)).expect("a library");
        }
    }

    /// The archive that a kernel unpacks.
    fn pack(&self) -> PathBuf {
        let archive = self.folder.path().join("initramfs");
        let mut pack = Command::new("sh");
        pack.args(["-c", "find . | busybox cpio -o -H newc"]).current_dir(self.path("/"));
        pack.stdout(File::create(&archive).expect("the archive")).stderr(Stdio::null());
        assert!(pack.status().expect("a shell").success(), "the guest's files cannot be packed");
        archive
    }
}

fn which(program: &str) -> PathBuf {
    succeed(Command::new("sh").args(["-c", &format!("command -v {program}")])).trim().into()
}

/// The shared libraries that `program` needs, its loader among them; a static program needs none.
fn libraries(program: &Path) -> BTreeSet<PathBuf> {
    let said = stdout(&output(Command::new("ldd").arg(program)));
    said.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

/// Boots `kernel`; what the guest said, until it ended or two minutes were over. No KVM: it is not everywhere.
fn boot(kernel: &Path) -> String {
    let files = Files::new();
    let mut qemu = Command::new("timeout");
    qemu.args(["120", "qemu-system-x86_64", "-machine", "q35,accel=tcg", "-cpu", "max", "-m", "1024"]);
    qemu.args(["-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot"]);
    qemu.args(["-append", "console=ttyS0 quiet panic=-1"]);
    qemu.arg("-kernel").arg(kernel).arg("-initrd").arg(files.pack()).stdin(Stdio::null());
    stdout(&output(&mut qemu))
}

fn runs_on(name: &str, version: &str) {
    let Some(kernel) = kernel_or_skip(name, version) else { return };
    let said = boot(&kernel);
    let passed = said.lines().any(|line| line.starts_with(&format!("guest: passed on {version}.")));
    assert!(passed, "the guest said: {said}");
    let complaints = said.split_once("guest: passed").map_or("", |(_, rest)| rest).lines().skip(1);
    let complaints: Vec<&str> = complaints.take_while(|line| !line.contains("guest: ends")).collect();
    assert_eq!(complaints, [""; 0], "its kernel complained");
}

#[test]
fn flight_runs_on_linux_6_1() {
    runs_on("flight_runs_on_linux_6_1", "6.1");
}

#[test]
fn flight_runs_on_linux_6_12() {
    runs_on("flight_runs_on_linux_6_12", "6.12");
}

/// Over loopback, the connecting end under `control`.
fn stream(control: &str) -> Stream {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback is up");
    let near = TcpStream::connect(listener.local_addr().expect("a socket")).expect("a connection");
    sockopt::set_tcp_congestion(&near, control).unwrap_or_else(|error| panic!("{control}: {error}"));
    Stream::new(near, listener.accept().expect("a connection").0)
}

#[test]
#[ignore = "started by others, inside a guest"]
fn inside_a_guest() {
    for base in ["reno", "cubic"] {
        succeed(&mut nawa(["flight", "on", "--default", "--base", base]));
        for control in CONTROLS {
            carries_under(control, base);
        }
    }
    let begun = stream(CONTROLS[0]);
    turn("off");
    let (near, far) = (sockopt::tcp_congestion(&begun.near), sockopt::tcp_congestion(&begun.far));
    assert_eq!((near.as_deref(), far.as_deref()), (Ok(CONTROLS[0]), Ok("fsat")), "chosen, and the default");
    outlives(begun);
    assert_eq!(
        sockopt::tcp_congestion(&stream("reno").far).as_deref(),
        Ok("cubic"),
        "the default is as before"
    );
    a_killed_daemon_is_cleared_away();
}

/// Without links (before Linux 6.4) what a process registered stays when it is killed: the next finds it.
fn a_killed_daemon_is_cleared_away() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("nawa.toml");
    fs::write(&file, "[flight]\ndefault = true\n").expect("a file");
    let daemon = Daemon::spawn(&mut nawa(["run", file.to_str().expect("UTF-8")]));
    let begun = stream(CONTROLS[0]);
    // Its end is SIGKILL.
    drop(daemon);
    turn("on");
    outlives_off(begun);
}

/// What is sent arrives, and is shown.
fn carries_under(control: &str, base: &str) {
    let mut stream = stream(control);
    stream.transfer(8 * MIB, || ());
    let port = stream.near.local_addr().expect("a socket").port();
    let shown: Value = serde_json::from_str(&succeed(&mut nawa(["flight", "show", "--json"]))).expect("JSON");
    let local = format!("127.0.0.1:{port}");
    let mut connections = shown["connections"].as_array().expect("a list").iter();
    let connection =
        connections.find(|one| one["local"] == *local).unwrap_or_else(|| panic!("not in {shown}"));
    assert_eq!((&connection["congestion_control"], &connection["base"]), (&control.into(), &base.into()));
    assert!(connection["rtt_min_us"].as_u64().is_some_and(|rtt| rtt > 0), "{connection}");
    stream.finish();
}

/// A connection goes on under a congestion control that is registered no more, and once another has its name.
fn outlives(mut stream: Stream) {
    for state in ["on", "off", "on"] {
        turn(state);
        stream.transfer(MIB, || ());
    }
    outlives_off(stream);
}

fn outlives_off(mut stream: Stream) {
    turn("off");
    let refused = sockopt::set_tcp_congestion(&stream.far, CONTROLS[0]);
    assert_eq!(refused, Err(rustix::io::Errno::NOENT), "it is registered no more");
    stream.transfer(MIB, || ());
    stream.finish();
}
