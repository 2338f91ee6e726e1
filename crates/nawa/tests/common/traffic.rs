//! Traffic that goes on while something else happens.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use device::{monotonic, realtime};
use rustix::process::{Pid, Signal, kill_process};

use super::{Namespace, PATIENCE, accept, eventually};

/// Ends, when dropped, what goes on until then, also where the test fails.
pub struct Stop<'a>(pub &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A TCP stream through a tunnel to 10.77.0.2, as long as `during` runs; `during` gets what waits until more has arrived, and says
/// how long that took.
pub fn stream(from: &Namespace, to: &Namespace, during: impl FnOnce(&dyn Fn() -> Duration)) {
    let (arrived, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let listener = to.within(|| TcpListener::bind("10.77.0.2:9")).expect("the tunnel's address");
    let receive = || {
        let (mut stream, mut buffer) = (accept(&listener), vec![0; 1 << 16]);
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        loop {
            match stream.read(&mut buffer).expect("the stream goes on") {
                0 => return arrived.load(Relaxed),
                length => arrived.fetch_add(length as u64, Relaxed),
            };
        }
    };
    let send = || {
        let mut stream = TcpStream::connect("10.77.0.2:9").expect("a connection");
        stream.set_write_timeout(Some(PATIENCE)).expect("a time-out");
        let (mut sent, mut pace) = (0, device::Poller::new().expect("a poller"));
        while !stop.load(Relaxed) {
            stream.write_all(&[7; 4096]).expect("the stream goes on");
            sent += 4096;
            // Some 30 Mbit/s: the tests share the machine.
            pace.wait(Some(Duration::from_millis(1))).expect("waiting").for_each(drop);
        }
        sent
    };
    std::thread::scope(|scope| {
        let receiver = scope.spawn(receive);
        let sender = scope.spawn(|| from.within(send));
        let running = Stop(&stop);
        let progress = || {
            let (since, goal) = (monotonic(), arrived.load(Relaxed) + 400_000);
            eventually("the stream goes on", || (arrived.load(Relaxed) > goal).then_some(()));
            monotonic() - since
        };
        during(&progress);
        progress();
        drop(running);
        let sent = sender.join().expect("all was sent");
        assert_eq!(receiver.join().expect("all was received"), sent);
    });
}

/// Pings, twenty a second, killed when dropped.
pub struct Pings {
    child: Child,
    said: Option<JoinHandle<String>>,
}

/// What became of pings.
#[derive(Debug)]
pub struct Answers {
    /// The longest time without an answer, from the first one on.
    pub longest: Duration,
    /// How many had none, of those before the last that had one.
    pub missing: u64,
}

impl Pings {
    /// From `of` to an address.
    pub fn start(of: &Namespace, to: &str) -> Pings {
        let mut ping = of.command("ping", ["-n", "-D", "-i", "0.05", to]);
        let mut child = ping.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("ping");
        let mut stdout = child.stdout.take().expect("stdout is piped");
        let read = move || {
            let mut said = String::new();
            stdout.read_to_string(&mut said).expect("a text");
            said
        };
        Pings { child, said: Some(std::thread::spawn(read)) }
    }

    /// Ends them.
    #[track_caller]
    pub fn end(mut self) -> Answers {
        let ended = realtime().as_secs_f64();
        kill_process(Pid::from_child(&self.child), Signal::INT).expect("ping runs");
        let said = self.said.take().expect("it is read").join().expect("a text");
        let answered = answered(&said);
        assert!(answered.len() > 10, "hardly an answer: {said}");
        let times: Vec<f64> = answered.iter().map(|(at, _)| *at).chain([ended]).collect();
        let longest = times.windows(2).map(|two| two[1] - two[0]).fold(0.0, f64::max);
        let numbers: BTreeSet<u64> = answered.iter().map(|(_, number)| *number).collect();
        let last = *numbers.last().expect("an answer");
        Answers { longest: Duration::from_secs_f64(longest), missing: last - numbers.len() as u64 }
    }
}

impl Drop for Pings {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How long the machine lets a thread wait that does nothing but sleep.
pub struct Starved {
    sleep: Arc<Sleep>,
    thread: Option<JoinHandle<()>>,
}

/// Of that thread: the longest time so far, since when it sleeps, both in ns, and whether it is over.
#[derive(Default)]
struct Sleep {
    longest: AtomicU64,
    since: AtomicU64,
    over: AtomicBool,
}

impl Sleep {
    /// Counts the present one.
    fn count(&self) -> u64 {
        let present = (monotonic().as_nanos() as u64).saturating_sub(self.since.load(Relaxed));
        self.longest.fetch_max(present, Relaxed).max(present)
    }
}

impl Starved {
    /// Threads that a ping and its answer wake one after the other: two of each daemon's, both ways.
    const TURNS: u32 = 8;

    /// From now on until it is dropped.
    pub fn new() -> Starved {
        let begins = |sleep: &Sleep| sleep.since.store(monotonic().as_nanos() as u64, Relaxed);
        let sleep = Arc::new(Sleep::default());
        begins(&sleep);
        let sleeps = sleep.clone();
        let watch = move || {
            let mut poller = device::Poller::new().expect("a poller");
            while !sleeps.over.load(Relaxed) {
                poller.wait(Some(Duration::from_millis(5))).expect("waiting").for_each(drop);
                sleeps.count();
                begins(&sleeps);
            }
        };
        Starved { sleep, thread: Some(std::thread::spawn(watch)) }
    }

    /// The longest time until now.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.sleep.count())
    }

    /// How much longer a ping's answer may have taken until now for that alone.
    pub fn excuses(&self) -> Duration {
        Self::TURNS * self.longest()
    }
}

impl Drop for Starved {
    fn drop(&mut self) {
        self.sleep.over.store(true, Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// When answers came, s, and to which ping, as `ping -D` says.
pub fn answered(said: &str) -> Vec<(f64, u64)> {
    let read = |line: &str| -> Option<(f64, u64)> {
        let (at, rest) = line.strip_prefix('[')?.split_once(']')?;
        let number = rest.split_once("icmp_seq=")?.1.split_once(' ')?.0;
        Some((at.parse().ok()?, number.parse().ok()?)).filter(|_| rest.contains("time="))
    };
    said.lines().filter_map(read).collect()
}
