//! Somebody who holds the kernel's lock of interfaces, addresses and routes (RTNL), as whoever changes them does.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{Namespace, output, stderr};

/// The program that holds it; `None` where there is no compiler of C.
#[track_caller]
pub fn compile(folder: &Path) -> Option<PathBuf> {
    if Command::new("cc").arg("--version").stdout(Stdio::null()).status().is_err() {
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common/hold_rtnl.c");
    let program = folder.join("hold_rtnl");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu99", "-Wall", "-Wextra", "-Werror"])
        .arg(source)
        .arg("-o")
        .arg(&program)
        .arg("-lpthread");
    let compiled = output(&mut cc);
    assert!(compiled.status.success(), "{}", stderr(&compiled));
    Some(program)
}

/// Held until it is released or dropped. It is the whole machine's: all who set up namespaces wait for it meanwhile.
pub struct Rtnl {
    holder: Child,
    /// Somebody else who asks for it.
    waiting: Child,
}

impl Rtnl {
    /// Takes it; what waits for it does so in `namespace`.
    #[track_caller]
    pub fn hold(program: &Path, namespace: &Namespace) -> Rtnl {
        let mut holder = Command::new(program);
        let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut said = String::new();
        let stdout = holder.stdout.take().expect("stdout is piped");
        BufReader::new(stdout).read_line(&mut said).expect("a line");
        assert_eq!(said, "held\n", "see what it says on standard error");
        let waiting = Command::new("ip").args(["-n", namespace.name(), "link", "set", "lo", "up"]).spawn();
        Rtnl { holder, waiting: waiting.expect("ip starts") }
    }

    /// Lets go of it; whether it was held until now.
    pub fn release(mut self) -> bool {
        let held = self.waiting.try_wait().expect("it was started").is_none();
        drop(self.holder.stdin.take());
        let ended = [&mut self.holder, &mut self.waiting].map(|child| child.wait().expect("it ends"));
        held && ended.iter().all(|status| status.success())
    }
}

impl Drop for Rtnl {
    fn drop(&mut self) {
        for child in [&mut self.holder, &mut self.waiting] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
