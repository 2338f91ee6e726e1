//! An attacker: a host of its own beside the victim, which sends it a constant flood of datagrams. They are made within
//! the kernel (`bpf/attack.bpf.c`), since what that costs is taken from the victim here, and would not be elsewhere.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use blake2::{Blake2s256, Blake2sMac, Digest, digest::KeyInit, digest::Mac, digest::consts::U16};
use bpf::tc::Direction;
use bpf::xdp::Loaded;
use device::PacketSocket;
use device::raw::Sniffer;
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use crate::clock;
use crate::command::end;
use crate::datagram::{ETHERNET, HEADERS, packet};
use crate::error::{Doing, Error, Result};
use crate::experiment::Fields;
use crate::namespace::{Namespace, interface_index};

const OBJECT: &[u8] = bpf::object!("attack.bpf.o");

// As in bpf/attack.h.
const FRAME_BYTES: usize = 1532;
const SEED_TYPE: u16 = 0x88b5;
const STATE_SENT: usize = 8;

/// Datagrams per second.
pub const RATE: u32 = 50_000;
/// Different datagrams, which are sent in turn.
const VARIETY: usize = 4096; // as in bpf/attack.h
/// Bytes of UDP payload, where the kind does not say.
const PAYLOAD: usize = 168;
/// Of the attacker's host, and the victim's end of the cable.
const INTERFACE: &str = "x0";
/// How long is waited for traffic to record.
const RECORDING: Duration = Duration::from_millis(1500);
/// The flood is kept up by batches this far apart.
const TICK: Duration = Duration::from_millis(1);

/// What the flood consists of. Sources are made up, but for what was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flood {
    /// Random bytes to a closed port: what the flood costs without Nawa.
    ClosedPort,
    /// Random bytes.
    Garbage,
    /// Well-formed transport packets, and data for relays, of sessions that do not exist.
    UnknownSession,
    /// Initiations with a good mac1 by somebody who knows the victim's public key.
    Handshakes,
    /// What a client sent lately, from its address.
    Replays,
}

/// Who is attacked, and how it is reached.
#[derive(Debug)]
pub struct Victim<'a> {
    pub host: &'a Namespace,
    pub address: IpAddr,
    pub port: u16,
    pub public_key: [u8; 32],
    /// Where, and on which interface, its genuine traffic can be recorded.
    pub recorded: (&'a Namespace, &'a str),
}

/// A flood that goes on.
#[derive(Debug, Default)]
pub struct Progress {
    pub stop: AtomicBool,
    /// Datagrams sent so far.
    pub sent: AtomicU64,
}

/// An attacker's host, joined to the victim's by a cable. Whatever the victim sends to addresses it does not know goes to the
/// attacker, as to the Internet.
pub fn join(victim: &Namespace) -> Result<Namespace> {
    let host = Namespace::create("x")?;
    host.ip(&[format!("link add {INTERFACE} type veth peer name {INTERFACE} netns {}", victim.name())])?;
    let [own, other] = [1, 2].map(|end| Ipv4Addr::new(10, 250, 0, end));
    for (namespace, own, other) in [(&host, own, other), (victim, other, own)] {
        namespace.sysctl(&format!("ipv6/conf/{INTERFACE}/disable_ipv6"), "1")?;
        namespace.ip(&end(INTERFACE, own, other))?;
        namespace.ip(&[format!("route add default via {other}")])?;
    }
    Ok(host)
}

/// Floods `victim` from `host` until it is told to stop. Processor time is the attacker's for each datagram: sending, and what the
/// victim's kernel does in the same context.
pub fn run(host: &Namespace, flood: Flood, victim: &Victim, progress: &Progress) -> Result<Fields<f64>> {
    let loaded = load(&packets(flood, victim)?)?;
    let (socket, _hook) = host.run(|| {
        let index = interface_index(INTERFACE)?;
        let socket = PacketSocket::open(index, None).doing(|| "open a packet socket".into())?;
        Ok::<_, Error>((socket, loaded.attach_to_hook("multiply", index, Direction::Egress)?))
    })??;
    let (start, cpu) = (clock::now(), clock::thread_cpu());
    let Progress { stop, sent } = progress;
    while !stop.load(Ordering::Relaxed) {
        let done = sent.load(Ordering::Relaxed);
        let due = (start.elapsed().as_secs_f64() * f64::from(RATE)) as u64;
        // What could not be sent in time is not made up for.
        let count = (due - done.min(due)).min(u64::from(RATE) / 100);
        // A full queue of the kernel's passes.
        let _ = socket.send(&seed(count as u16));
        sent.store(done + count, Ordering::Relaxed);
        std::thread::park_timeout(TICK);
    }
    let cpu = clock::thread_cpu() - cpu;
    let state = loaded.lookup(".bss.state", 0)?.unwrap_or_default();
    let sent = state.get(STATE_SENT..).and_then(|bytes| bytes.first_chunk()).copied();
    let sent = sent.map_or(0, u64::from_ne_bytes) as f64;
    Ok(vec![
        ("attack_pps", sent / start.elapsed().as_secs_f64()),
        ("attacker_us", cpu.as_secs_f64() * 1e6 / sent.max(1.0)),
    ])
}

/// The program with its list of packets of IPv4.
fn load(packets: &[Vec<u8>]) -> Result<Loaded> {
    let loaded = bpf::xdp::load(OBJECT, &[])?;
    for (index, packet) in (0..).zip(packets.iter().take(VARIETY)) {
        let mut frame = ethernet(0x0800);
        frame.extend(packet);
        let length = u32::try_from(frame.len()).unwrap_or(0);
        frame.resize(FRAME_BYTES, 0);
        loaded.update("frames", index, &[&length.to_ne_bytes(), &frame[..]].concat())?;
    }
    let count = u32::try_from(packets.len().min(VARIETY)).unwrap_or(0);
    loaded.set(".bss.state", &[&[0, count].map(u32::to_ne_bytes).concat()[..], &[0; 8]].concat())?;
    Ok(loaded)
}

/// From the attacker to the victim.
fn ethernet(kind: u16) -> Vec<u8> {
    [&[2, 0, 0, 0xfa, 0, 2], &[2, 0, 0, 0xfa, 0, 1], &kind.to_be_bytes()[..]].concat()
}

/// What becomes `count` packets. Its length is that of most of them.
fn seed(count: u16) -> Vec<u8> {
    let mut frame = [&ethernet(SEED_TYPE)[..], &count.to_ne_bytes()].concat();
    frame.resize(ETHERNET + HEADERS + PAYLOAD, 0);
    frame
}

/// The datagrams of a flood as packets of IPv4.
fn packets(flood: Flood, victim: &Victim) -> Result<Vec<Vec<u8>>> {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let IpAddr::V4(to) = victim.address else { return Ok(Vec::new()) };
    if flood == Flood::Replays {
        return record(victim, to);
    }
    let port = if flood == Flood::ClosedPort { 9 } else { victim.port };
    let mut one = || {
        let mut payload = vec![0; PAYLOAD];
        rng.fill_bytes(&mut payload);
        shape(flood, &victim.public_key, &mut payload);
        // 11.0.0.0/8: nobody in the lab.
        let from = Ipv4Addr::from(0x0b00_0000 | rng.next_u32() >> 8);
        packet((from, 1024 | rng.next_u32() as u16), (to, port), &payload)
    };
    Ok((0..VARIETY).map(|_| one()).collect())
}

/// Makes random bytes look like what they are to be.
fn shape(flood: Flood, public_key: &[u8; 32], payload: &mut [u8]) {
    match flood {
        Flood::Garbage | Flood::ClosedPort | Flood::Replays => {}
        Flood::UnknownSession => {
            // Type 4 or 8, by chance.
            payload[0] = if payload[1] & 1 == 0 { 0x14 } else { 0x18 };
            payload[1..4].fill(0);
        }
        Flood::Handshakes => {
            payload[..4].copy_from_slice(&[0x11, 0, 0, 0]);
            let key = Blake2s256::new().chain_update(b"nawa mac1").chain_update(public_key).finalize();
            let at = payload.len() - 32;
            if let Ok(mac) = <Blake2sMac<U16> as KeyInit>::new_from_slice(&key) {
                let mac1 = mac.chain_update(&payload[..at]).finalize().into_bytes();
                payload[at..at + 16].copy_from_slice(&mac1);
            }
        }
    }
}

/// Records datagrams that are on their way to the victim or a relay of its, and addresses them to the victim.
fn record(victim: &Victim, to: Ipv4Addr) -> Result<Vec<Vec<u8>>> {
    let (host, interface) = victim.recorded;
    let sniffer = host.run(|| Sniffer::new(interface))?.doing(|| format!("listen on {interface}"))?;
    let (mut buffer, mut packets) = (vec![0; 65_536], Vec::new());
    clock::poll_until(RECORDING, || {
        while let Some(seen) = sniffer.next(&mut buffer) {
            packets.extend(readdress(seen, to, victim.port));
        }
        (packets.len() >= VARIETY).then_some(())
    });
    if packets.is_empty() {
        return Err(Error::program("the attacker", format!("there was nothing to record on {interface}")));
    }
    Ok(packets)
}

/// A UDP datagram as `seen`, to another destination; `None` for anything else, and for trains.
fn readdress(seen: &[u8], to: Ipv4Addr, port: u16) -> Option<Vec<u8>> {
    let usable = (HEADERS + 32..=1500).contains(&seen.len()) && seen[0] == 0x45 && seen[9] == 17;
    if !usable {
        return None;
    }
    let from = Ipv4Addr::from(*seen[12..16].first_chunk::<4>()?);
    let source = u16::from_be_bytes([seen[20], seen[21]]);
    Some(packet((from, source), (to, port), &seen[HEADERS..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_of_ipv4_and_udp() {
        let packet = packet((Ipv4Addr::LOCALHOST, 5), (Ipv4Addr::new(10, 0, 0, 2), 6), &[7; 10]);
        assert_eq!((packet.len(), packet[3], packet[25]), (38, 38, 18));
        let again = readdress(&[&packet[..], &[7; 30]].concat(), Ipv4Addr::new(10, 0, 0, 3), 9).unwrap();
        assert_eq!((&again[12..16], &again[16..20], again[23]), (&[127, 0, 0, 1][..], &[10, 0, 0, 3][..], 9));
        assert_eq!(readdress(&packet[..20], Ipv4Addr::LOCALHOST, 9), None);
    }

    #[test]
    fn each_kind_has_its_shape() {
        let made = |flood| {
            let mut payload = vec![3; PAYLOAD];
            shape(flood, &[1; 32], &mut payload);
            payload
        };
        assert_eq!(made(Flood::Garbage), vec![3; PAYLOAD]);
        assert_eq!(made(Flood::UnknownSession)[..4], [0x18, 0, 0, 0]);
        let initiation = made(Flood::Handshakes);
        assert_eq!(initiation[..4], [0x11, 0, 0, 0]);
        assert_ne!(initiation[136..152], [3; 16]);
    }
}
