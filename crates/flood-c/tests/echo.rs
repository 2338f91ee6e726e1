//! The example in C, compiled and run beside a node in a network namespace that lives as long as a thread.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use device::poller::Interest;
use device::{Net, Poller, Tap};
use flood::node::{self, Mode, Settings};
use flood::{Format, Frame, Header, Padding, Rules, Wire, suppression};
use rand_core::{OsRng, TryRngCore};

fn compile(folder: &Path) -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let built = std::env::current_exe().expect("this program").parent().expect("a folder").to_owned();
    let (program, library) = (folder.join("echo"), built.join("libnawa_flood.a"));
    let mut cc = Command::new("cc");
    cc.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-I"]).arg(crate_folder.join("include"));
    cc.arg(crate_folder.join("examples/echo.c")).arg(library).args([
        "-lelf",
        "-lz",
        "-lm",
        "-lpthread",
        "-ldl",
    ]);
    let status = cc.arg("-o").arg(&program).status().expect("cc starts");
    assert!(status.success(), "{cc:?}");
    program
}

/// The next frame that the node sends out of `tap`.
fn next_frame(tap: &Tap, format: &Format) -> (Header, Vec<u8>) {
    let (mut poller, mut buffer) = (Poller::new().expect("a poller"), [0; 4096]);
    poller.add(tap, 0, Interest::Read).expect("it can be watched");
    loop {
        assert!(poller.wait(Some(Duration::from_secs(30))).expect("it waits").count() > 0, "no frame comes");
        let length = tap.recv(&mut buffer).unwrap_or(0);
        let bytes = buffer[..length].get(14..).unwrap_or_default();
        if let (Some([0x88, 0xb5]), Ok(Frame { header, data })) =
            (buffer.get(12..14), format.read(bytes, Padding::Ethernet))
        {
            return (header, data.to_vec());
        }
    }
}

#[test]
fn a_program_in_c_sends_and_receives() {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/net/tun").exists() {
        return println!("SKIPPED: a_program_in_c_sends_and_receives: needs root and /dev/net/tun");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compile(folder.path());
    let inside = || {
        // SAFETY: a new network namespace for this thread alone invalidates no descriptor and no memory.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }.expect("root may");
        let (tap, mut net) = (Tap::create("air0").expect("a TAP"), Net::open().expect("netlink"));
        let index = net.link("air0").expect("it is there").index;
        net.set_up(index).expect("it can be switched on");
        let format = Format::new(Wire::One, None);
        let settings = Settings {
            interface: "air0".into(),
            rules: Rules { format, id: 7, rate_limit: None },
            mode: Mode::Driver,
            ttl: 16,
            port: 51902,
            epoch: 1,
            suppression: suppression::Rules::PURE,
            busy_poll: false,
            warnings: Vec::new(),
        };
        let node = node::start(settings, OsRng.unwrap_err(), |why| panic!("{why}")).expect("it starts");
        let child = Command::new(&program).arg("air0").stdout(std::process::Stdio::piped()).spawn();
        let child = child.expect("the program starts");
        let (header, data) = next_frame(&tap, &format);
        assert_eq!((header.id, header.ttl, data.as_slice()), (7, 3, &b"hello from C"[..]));
        assert_eq!(node.watch().status().map(|status| status.receivers), Some(1));
        let message =
            format.write(&Header { id: 9, epoch: 1, seq: 5, ttl: 1, ..Header::default() }, b"and back");
        let ethernet = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 9], &[0x88, 0xb5], message.as_slice()].concat();
        tap.send(&ethernet).expect("it goes");
        let (header, data) = next_frame(&tap, &format);
        assert_eq!((header.id, header.ttl, data.as_slice()), (7, 16, &b"and back"[..]));
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success());
        assert_eq!(String::from_utf8_lossy(&output.stdout), "9 5 1 and back\n");
    };
    std::thread::scope(|scope| scope.spawn(inside).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}
