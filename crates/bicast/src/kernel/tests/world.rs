//! A namespace with two TAPs, or three, on which the programs are attached: packets go into them by the kernel's test-run call,
//! and copies come out of the TAPs.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use bpf::tc::{Attached, Direction};
use device::udp::{Options, Transmit, UdpSocket};
use device::{Net, PacketSocket, Tap};
use libbpf_rs::{ProgramInput, TC_EGRESS, TcHook};

use super::frames::{ETHERNET, MAC};
use crate::core::Mode;
use crate::kernel::{Known, Programs, Settings, Watch};

/// Offsets in `struct __sk_buff`, and its size.
const MARK: usize = 8;
const IFINDEX: usize = 40;
const SK_BUFF: usize = 192;

/// What the tests begin with.
pub const SETTINGS: Settings =
    Settings { mode: Mode::Selective, budget_percent: 20, udp_port: 9899, forwarding: false };

pub struct World {
    pub programs: Programs,
    pub watch: Watch,
    taps: Vec<Tap>,
    interfaces: Vec<u32>,
}

/// Removes the namespace.
struct Namespace(String);

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.0]).status();
    }
}

/// Runs `test`, one at a time, unless it has to be skipped.
pub fn in_world(name: &str, test: impl FnOnce(&mut World) + Send) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    static COUNT: AtomicU32 = AtomicU32::new(0);
    if !bpf::is_root() || File::open("/dev/net/tun").is_err() {
        eprintln!("SKIPPED: {name}: needs root and /dev/net/tun to make network namespaces with TAPs");
        return;
    }
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let namespace = Namespace(format!("nawalab-{}-b{count}", std::process::id()));
    run("ip", &["netns", "add", &namespace.0]);
    let path = Path::new("/run/netns").join(&namespace.0);
    device::netns::run_in(&path, || test(&mut World::new())).expect("it can be entered");
}

#[track_caller]
fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().expect("it starts");
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn make(name: &str, net: &mut Net, nth: u8) -> (Tap, u32) {
    let tap = Tap::create(name).expect("a TAP");
    (tap, set_up(name, net, nth))
}

fn set_up(name: &str, net: &mut Net, nth: u8) -> u32 {
    for address in [format!("10.0.{nth}.1/24"), format!("fd00:{nth}::1/64")] {
        run("ip", &["address", "add", &address, "dev", name, "nodad"]);
    }
    // With a queue, what is sent while the kernel's own neighbour discovery leaves on another CPU comes out of the TAP some
    // time later, and would count as another packet's copy.
    run("tc", &["qdisc", "replace", "dev", name, "root", "noqueue"]);
    run("ip", &["link", "set", name, "up"]);
    let mac = MAC.map(|byte| format!("{byte:02x}")).join(":");
    for address in [format!("10.0.{nth}.2"), format!("fd00:{nth}::2")] {
        run("ip", &["neigh", "add", &address, "lladdr", &mac, "dev", name, "nud", "permanent"]);
    }
    net.link(name).expect("it is there").index
}

impl World {
    fn new() -> World {
        let mut net = Net::open().expect("netlink");
        let ((a, a_index), (b, b_index)) = (make("a0", &mut net, 1), make("b0", &mut net, 2));
        let mut programs = Programs::load(&SETTINGS).expect("the kernel takes them");
        programs.attach(&BTreeMap::from([(a_index, 100), (b_index, 100)])).expect("they attach");
        let watch = programs.watch().expect("maps");
        let mut world = World { programs, watch, taps: vec![a, b], interfaces: vec![a_index, b_index] };
        world.give_addresses();
        world
    }

    /// A third interface comes.
    pub fn add_third(&mut self) {
        let (tap, index) = make("c0", &mut Net::open().expect("netlink"), 3);
        self.taps.push(tap);
        self.interfaces.push(index);
        self.attach_all();
        self.give_addresses();
    }

    /// A third interface comes that fills checksums in itself, as most hardware does.
    pub fn add_third_with_offload(&mut self) {
        self.ip("link add c0 type veth peer name c1");
        self.ip("link set c1 up");
        self.interfaces.push(set_up("c0", &mut Net::open().expect("netlink"), 3));
        self.attach_all();
        self.give_addresses();
    }

    /// All interfaces have their addresses.
    pub fn give_addresses(&mut self) {
        self.programs.set_own(&self.addresses()).expect("a map");
    }

    /// The first interface has these addresses as well.
    pub fn give_more(&mut self, more: &[IpAddr]) {
        let mut addresses = self.addresses();
        addresses.extend(more.iter().map(|address| (*address, self.interfaces[0])));
        self.programs.set_own(&addresses).expect("a map");
    }

    /// Copies that leave by the second interface have that budget.
    pub fn meter_second(&mut self, percent: u32) {
        let [first, second] = [0, 1].map(|nth| self.interfaces[nth]);
        self.programs.attach(&BTreeMap::from([(first, 100), (second, percent)])).expect("they attach");
    }

    /// The host loses that address.
    pub fn take_address(&mut self, address: IpAddr) {
        let mut addresses = self.addresses();
        addresses.remove(&address);
        self.programs.set_own(&addresses).expect("a map");
    }

    fn addresses(&self) -> BTreeMap<IpAddr, u32> {
        let of = |(nth, &index): (usize, &u32)| {
            let own = [format!("10.0.{}.1", nth + 1), format!("fd00:{}::1", nth + 1)];
            own.map(|text| (text.parse().expect("an address"), index))
        };
        self.interfaces.iter().enumerate().flat_map(of).collect()
    }

    /// Attaches the egress program to the first interface as kernels before 6.6 do, and forgets it, as a crash does;
    /// the interface's index.
    pub fn leave_filter(&self) -> u32 {
        std::mem::forget(self.attach_filter());
        self.interfaces[0]
    }

    /// Attaches the egress program to the first interface as kernels before 6.6 do.
    pub fn attach_filter(&self) -> Attached {
        let attached = bpf::tc::attach_filter(self.egress().as_fd(), self.interfaces[0], Direction::Egress);
        attached.expect("it attaches")
    }

    /// A filter of somebody else's on that hook of the first interface, with that priority.
    pub fn filter_of_others(&self, priority: u32) -> TcHook {
        let mut hook = TcHook::new(self.egress().as_fd());
        hook.ifindex(self.interfaces[0] as i32).attach_point(TC_EGRESS).handle(1).priority(priority);
        hook.create().and_then(|mut hook| hook.attach()).expect("it attaches")
    }

    /// The programs are on the first interface as kernels before 6.6 have them, after what is there already.
    pub fn attach_first_as_filters(&mut self) {
        let attach = |name: &str, direction| {
            let program = self.programs.object.progs().find(|one| one.name() == name).expect("a program");
            bpf::tc::attach_filter(program.as_fd(), self.interfaces[0], direction).expect("it attaches")
        };
        let both = [attach("bicast_ingress", Direction::Ingress), attach("bicast_egress", Direction::Egress)];
        self.programs.attached.insert(self.interfaces[0], both);
    }

    /// The programs are not on that interface any more; they stay told that copies may leave by it.
    pub fn detach(&mut self, nth: usize) {
        self.programs.attached.remove(&self.interfaces[nth]);
    }

    /// The programs are on all interfaces.
    pub fn attach_all(&mut self) {
        self.programs
            .attach(&self.interfaces.iter().map(|index| (*index, 100)).collect())
            .expect("they attach");
    }

    /// The programs are on all interfaces but that one.
    pub fn leave_one(&mut self, nth: usize) {
        let mut interfaces: BTreeMap<u32, u32> = self.interfaces.iter().map(|index| (*index, 100)).collect();
        interfaces.remove(&self.interfaces[nth]);
        self.programs.attach(&interfaces).expect("they attach");
    }

    /// Has `program` look at what leaves that interface.
    pub fn attach_others(&self, program: BorrowedFd, nth: usize, by_link: bool) -> Attached {
        let attach = if by_link { bpf::tc::attach } else { bpf::tc::attach_filter };
        attach(program, self.interfaces[nth], Direction::Egress).expect("it attaches")
    }

    /// Has `frame` leave the first interface as a program's packet does; how many frames come out of each.
    #[track_caller]
    pub fn leave(&self, frame: &[u8]) -> Vec<usize> {
        self.copies();
        let socket = PacketSocket::open(self.interfaces[0], None).expect("a packet socket");
        // What a program on the hook drops is an error to its sender.
        let _ = socket.send(frame);
        self.copies().iter().map(Vec::len).collect()
    }

    fn egress(&self) -> libbpf_rs::Program<'_> {
        self.programs.object.progs().find(|one| one.name() == "bicast_egress").expect("a program")
    }

    /// Has this host send `frame` from its first interface; the copies that leave from each. The frame itself is
    /// neither changed nor stopped.
    #[track_caller]
    pub fn send(&self, frame: &[u8]) -> [Vec<Vec<u8>>; 2] {
        self.send_from(0, frame)
    }

    /// As [`World::send`], from that interface.
    #[track_caller]
    pub fn send_from(&self, nth: usize, frame: &[u8]) -> [Vec<Vec<u8>>; 2] {
        let mut copies = self.send_among_all(nth, frame).into_iter();
        [(); 2].map(|()| copies.next().expect("two interfaces"))
    }

    /// As [`World::send_from`]; the copies that leave from each interface there is.
    #[track_caller]
    pub fn send_among_all(&self, nth: usize, frame: &[u8]) -> Vec<Vec<Vec<u8>>> {
        self.copies();
        self.run("bicast_egress", nth, frame, &[]);
        self.copies()
    }

    /// As [`World::send`], with that mark.
    #[track_caller]
    pub fn send_marked(&self, mark: u32, frame: &[u8]) -> [Vec<Vec<u8>>; 2] {
        self.copies();
        self.run("bicast_egress", 0, frame, &[(MARK, mark)]);
        let mut copies = self.copies().into_iter();
        [(); 2].map(|()| copies.next().expect("two interfaces"))
    }

    /// Has this host's own UDP send a train of datagrams of `bytes` each, which the kernel cuts behind the programs; the copies that
    /// leave by the second interface.
    #[track_caller]
    pub fn send_train(&self, [from, to]: [SocketAddr; 2], bytes: usize, contents: &[u8]) -> Vec<Vec<u8>> {
        self.copies();
        let socket = UdpSocket::bind(from, Options::default()).expect("a socket");
        let (local, segment_size) = (None, Some(bytes));
        let train = Transmit { remote: to, local, interface: None, tos: 0, segment_size, contents };
        assert!(socket.send(&[train]).is_empty());
        self.copies().swap_remove(1)
    }

    /// Has `frame` arrive at that interface.
    #[track_caller]
    pub fn receive(&self, nth: usize, frame: &[u8]) {
        self.run("bicast_ingress", nth, frame, &[]);
    }

    /// Does as `ip` does in this namespace.
    #[track_caller]
    pub fn ip(&self, arguments: &str) {
        run("ip", &arguments.split(' ').collect::<Vec<_>>());
    }

    /// As [`World::ip`] by `tc`; what it says.
    #[track_caller]
    pub fn tc(&self, arguments: &str) -> String {
        let output = Command::new("tc").args(arguments.split(' ')).output().expect("it starts");
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// As [`World::ip`] by `nft`.
    #[track_caller]
    pub fn nft(&self, commands: &str) {
        run("nft", &[commands]);
    }

    #[track_caller]
    fn run(&self, name: &str, nth: usize, frame: &[u8], words: &[(usize, u32)]) {
        let program = self.programs.object.progs_mut().find(|one| one.name() == name).expect("a program");
        let mut context = vec![0; SK_BUFF];
        for (at, word) in [(IFINDEX, self.interfaces[nth])].iter().chain(words) {
            context[*at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        let mut out = vec![0; frame.len() + 64];
        let input = ProgramInput {
            context_in: Some(&mut context),
            data_in: Some(frame),
            data_out: Some(&mut out),
            ..ProgramInput::default()
        };
        let output = program.test_run(input).expect("it runs");
        assert_eq!(output.return_value, u32::MAX, "TC_ACT_UNSPEC leaves it to others");
        assert_eq!(output.data.as_deref().map(|data| &data[..frame.len()]), Some(frame), "as it was");
    }

    /// Takes the programs off the second interface.
    pub fn leave_second(&mut self) {
        self.programs.attach(&BTreeMap::from([(self.interfaces[0], 100)])).expect("it is attached");
    }

    /// How long the egress program takes for `frame`, in ns, in the mean of 400 packets: the least of 250 such runs, which others' work
    /// on the machine disturbs least, and their mean. No more at a time than a TAP holds, so that copies are not dropped there.
    pub fn cost(&self, frame: &[u8]) -> [u128; 2] {
        let one = |_| {
            self.copies();
            self.cost_at_a_time(frame, 400)
        };
        let runs: Vec<u128> = (0..250).map(one).collect();
        [runs.iter().copied().min().expect("runs"), runs.iter().sum::<u128>() / 250]
    }

    /// Has the host send `frame` so many times, on two processors at once.
    pub fn race(&self, frame: &[u8], times: u32) {
        let mut context = vec![0; SK_BUFF];
        context[IFINDEX..IFINDEX + 4].copy_from_slice(&self.interfaces[0].to_ne_bytes());
        let program = self.egress().as_fd().try_clone_to_owned().expect("a descriptor");
        let run = || bpf::run::repeat(program.as_fd(), &context, frame, times).expect("it runs");
        std::thread::scope(|scope| {
            scope.spawn(run);
            scope.spawn(run);
        });
        self.copies();
    }

    fn cost_at_a_time(&self, frame: &[u8], repeat: u32) -> u128 {
        let mut programs = self.programs.object.progs_mut();
        let program = programs.find(|one| one.name() == "bicast_egress").expect("a program");
        let mut context = vec![0; SK_BUFF];
        context[IFINDEX..IFINDEX + 4].copy_from_slice(&self.interfaces[0].to_ne_bytes());
        let input = ProgramInput {
            context_in: Some(&mut context),
            data_in: Some(frame),
            repeat,
            ..ProgramInput::default()
        };
        program.test_run(input).expect("it runs").duration.as_nanos()
    }

    /// What has left from each interface since this was asked last.
    pub fn copies(&self) -> Vec<Vec<Vec<u8>>> {
        let of = |tap: &Tap| {
            let mut buffer = vec![0; 1 << 16];
            let frames = std::iter::from_fn(|| tap.recv(&mut buffer).ok().map(|n| buffer[..n].to_vec()));
            // The kernel's own neighbour discovery is of no interest.
            frames.filter(|frame| is_transport(frame)).collect()
        };
        self.taps.iter().map(of).collect()
    }

    /// The only association that is known.
    #[track_caller]
    pub fn only(&self) -> Known {
        let mut known = self.watch.associations();
        assert_eq!(known.len(), 1, "{known:?}");
        known.remove(0)
    }
}

fn is_transport(frame: &[u8]) -> bool {
    let protocol = if frame[12] == 8 { frame[ETHERNET + 9] } else { frame[ETHERNET + 6] };
    protocol == packet::ip::SCTP || protocol == packet::ip::UDP
}
