//! Other kernels: Debian's, booted in qemu with this binary and the running test program inside.
//!
//! `make guest` fetches the kernels and installs qemu. A guest has no disk: its files are an initramfs with the two
//! programs, others that the test names, their libraries and busybox. It runs one test of the program, which is ignored
//! otherwise, and powers off; what it says comes over the serial console.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{output, skip, stdout, succeed};

/// What a guest is for.
pub struct Guest<'a> {
    /// The test that it runs.
    pub inside: &'a str,
    /// Programs of this machine that the test needs, beside `nawa`.
    pub programs: &'a [&'a str],
    /// Modules that its kernel loads, each with its parameters, what is needed first; one that the kernel does not have is built
    /// in.
    pub modules: &'a [&'a str],
}

/// The folder in which `make guest` put Debian's kernel `version` and its modules, those named among them; `None` skips the test `name`.
fn kernel_or_skip(name: &str, version: &str, modules: &[&str]) -> Option<PathBuf> {
    let script = include_str!("../../../../scripts/guest-kernel");
    let is_fetched = |module: &&str| script.split([' ', '\n', '(', ')']).any(|word| word == bare(module));
    assert!(modules.iter().all(is_fetched), "scripts/guest-kernel does not fetch all of {modules:?}");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("../guest/{version}"));
    // Behind the package all modules that were looked for, in a file that is there once everything else is.
    let package = fs::read_to_string(folder.join("package")).unwrap_or_default();
    let is_asked_for = |module: &&str| package.split_whitespace().any(|word| word == bare(module));
    let reason = if Command::new("qemu-system-x86_64").arg("--version").output().is_err() {
        "needs qemu-system-x86_64: make guest"
    } else if package.is_empty() || !modules.iter().all(is_asked_for) {
        "needs a kernel to boot, with its modules: make guest"
    } else {
        return Some(folder);
    };
    skip(name, reason);
    None
}

/// A module without its parameters.
fn bare(module: &str) -> &str {
    module.split(' ').next().unwrap_or(module)
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
cat /modules/order | while read module parameters; do insmod "/modules/$module.ko" $parameters; done
echo "guest: begins" >/dev/kmsg
/guest --ignored --exact --nocapture "$INSIDE" && echo "guest: passed on $(uname -r)"
dmesg | sed '1,/guest: begins/d' | grep -iE 'warning|bug:|oops|call trace|refcount|stall'
echo "guest: ends"
poweroff -f
"#;

/// The files of a guest, in a folder that becomes its root.
struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn new(guest: &Guest, kernel: &Path) -> Files {
        let files = Files { folder: tempfile::tempdir().expect("a temporary folder") };
        ["dev", "proc", "sys", "tmp", "run"].iter().for_each(|folder| files.make_folder(Path::new(folder)));
        files.add_program(&which("busybox"), "/bin/busybox");
        files.add_program(Path::new(env!("CARGO_BIN_EXE_nawa")), env!("CARGO_BIN_EXE_nawa"));
        files.add_program(&std::env::current_exe().expect("this program's path"), "/guest");
        guest.programs.iter().for_each(|name| files.add_program(&which(name), &format!("/sbin/{name}")));
        files.add_modules(guest.modules, &kernel.join("modules"));
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

    /// Those of `names` that are in `folder`, and their order.
    fn add_modules(&self, names: &[&str], folder: &Path) {
        self.make_folder(Path::new("/modules"));
        let file = |name: &str| format!("{}.ko", bare(name));
        let there = |name: &&&str| folder.join(file(name)).exists();
        let names: Vec<&str> = names.iter().filter(there).copied().collect();
        for name in &names {
            let file = file(name);
            fs::copy(folder.join(&file), self.path(format!("/modules/{file}"))).expect("a module");
        }
        let order: String = names.iter().map(|name| format!("{name}\n")).collect();
        fs::write(self.path("/modules/order"), order).expect("a file");
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

impl Guest<'_> {
    /// Boots Debian's kernel `version`, runs the test inside, and fails unless it passed and the kernel said nothing of
    /// it; skips the test `name` where there is none.
    pub fn runs_on(&self, name: &str, version: &str) {
        let Some(kernel) = kernel_or_skip(name, version, self.modules) else { return };
        let said = self.boot(&kernel);
        let passed = said.lines().any(|line| line.starts_with(&format!("guest: passed on {version}.")));
        assert!(passed, "the guest said: {said}");
        println!("the guest said: {said}");
        let complaints = said.split_once("guest: passed").map_or("", |(_, rest)| rest).lines().skip(1);
        let complaints: Vec<&str> = complaints.take_while(|line| !line.contains("guest: ends")).collect();
        assert_eq!(complaints, [""; 0], "its kernel complained");
    }

    /// What the guest said, until it ended or twenty minutes were over, which it needs on a busy host. No KVM: it is not everywhere.
    fn boot(&self, kernel: &Path) -> String {
        let files = Files::new(self, kernel);
        let mut qemu = Command::new("timeout");
        qemu.args(["1200", "qemu-system-x86_64", "-machine", "q35,accel=tcg", "-cpu", "max", "-m", "1024"]);
        qemu.args(["-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot"]);
        // On a busy host the kernel waits in vain for ticks while it checks its timer. What it does not know, it hands to init as an
        // environment variable.
        qemu.args([
            "-append",
            &format!("console=ttyS0 quiet panic=-1 no_timer_check INSIDE={}", self.inside),
        ]);
        qemu.arg("-kernel").arg(kernel.join("vmlinuz")).arg("-initrd").arg(files.pack()).stdin(Stdio::null());
        stdout(&output(&mut qemu))
    }
}
