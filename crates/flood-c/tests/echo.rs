//! What C calls, and the example in C, compiled and run, beside a node in a network namespace of its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use device::poller::Interest;
use device::{Net, Poller, Tap, Waker};
use flood::node::{self, Mode, Running, Settings};
use flood::{Format, Frame, Header, Kind, Padding, Rules, Wire, suppression};
use nawa_flood::ffi;
use rand_core::{OsRng, TryRngCore};
use rustix::io::Errno;

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

/// Runs `test` beside a node on a TAP, which are gone with it, unless it has to be skipped.
fn beside_a_node(name: &str, test: impl FnOnce(&Tap, &Format, &Running) + Send) {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/net/tun").exists() {
        return println!("SKIPPED: {name}: needs root and /dev/net/tun");
    }
    let inside = || {
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
        test(&tap, &format, &node);
    };
    device::netns::run_in_new(inside).expect("root may");
}

/// A frame of node 9, to everybody.
fn from_another(format: &Format, header: Header, data: &[u8]) -> Vec<u8> {
    let message = format.write(&Header { id: 9, epoch: 1, ttl: 1, ..header }, data);
    [&[0xff; 6][..], &[2, 0, 0, 0, 0, 9], &[0x88, 0xb5], message.as_slice()].concat()
}

#[test]
fn a_program_in_c_sends_and_receives() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    beside_a_node("a_program_in_c_sends_and_receives", |tap, format, node| {
        let program = compile(folder.path());
        let child = Command::new(&program).arg("air0").stdout(std::process::Stdio::piped()).spawn();
        let child = child.expect("the program starts");
        let (header, data) = next_frame(tap, format);
        assert_eq!((header.id, header.ttl, data.as_slice()), (7, 3, &b"hello from C"[..]));
        assert_eq!(node.watch().status().map(|status| status.receivers), Some(1));
        let message = from_another(format, Header { seq: 5, ..Header::default() }, b"and back");
        tap.send(&message).expect("it goes");
        let (header, data) = next_frame(tap, format);
        assert_eq!((header.id, header.ttl, data.as_slice()), (7, 16, &b"and back"[..]));
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success());
        assert_eq!(String::from_utf8_lossy(&output.stdout), "9 5 1 and back\n");
    });
}

/// Every node hears the answers to everybody's pings.
#[test]
fn answers_to_pings_make_nobody_wait_longer() {
    beside_a_node("answers_to_pings_make_nobody_wait_longer", |tap, format, _| {
        // SAFETY: a string.
        let flood = unsafe { ffi::nawa_flood_open(c"air0".as_ptr()) };
        // SAFETY: it is open.
        assert_eq!(unsafe { ffi::nawa_flood_listen(flood) }, 0);
        let (mut poller, done) = (Poller::new().expect("a poller"), Waker::new().expect("a waker"));
        poller.add(&done, 0, Interest::Read).expect("it can be watched");
        let mut answer = |seq: u32| {
            let header = Header { seq, kind: Kind::EchoReply, ..Header::default() };
            tap.send(&from_another(format, header, &[0; 12])).expect("it goes");
            poller.wait(Some(Duration::from_millis(10))).expect("it waits").count() > 0
        };
        std::thread::scope(|scope| {
            let answers = scope.spawn(|| (0..500).find(|seq| answer(*seq)));
            // SAFETY: it is open; there is no room for a header or data.
            let heard =
                unsafe { ffi::nawa_flood_recv(flood, std::ptr::null_mut(), std::ptr::null_mut(), 0, 100) };
            done.wake();
            assert_eq!(heard, std::ffi::c_long::from(-Errno::TIMEDOUT.raw_os_error()));
            assert!(answers.join().expect("it ends").is_some(), "it came back after the last of them");
        });
        // SAFETY: it is open, and not used any more.
        unsafe { ffi::nawa_flood_close(flood) };
    });
}
