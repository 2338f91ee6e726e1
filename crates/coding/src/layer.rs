//! The NC layer (figures 3 and 6): between IP on the master interface and the MAC below the slave interface.

mod any;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use packet::tcp;

use crate::arrivals::Arrivals;
use crate::config::{Config, Mode};
use crate::datagram::{Datagram, Kind, without_padding};
use crate::decoder::{DecodeError, decode};
use crate::decoding_buffer::DecodingBuffer;
use crate::encoder::{encode, payload_len};
use crate::ethernet::{self, Frame, Mac, ip_frame};
use crate::flow_table::FlowTable;
use crate::greetings::Greetings;
use crate::header::{self, Coded, Header};
use crate::hold::Holds;
use crate::interface_queue::{Entry, InterfaceQueue};
use crate::neighbours::{KNOWN_FOR, Neighbourhood, Neighbours};
use crate::reception::Reception;
use crate::stats::{Kept, Stats};
use crate::transit::Transit;
use crate::wait_queue::MAX_WQ_LEN;

/// Stations whose frames for others are counted; one more takes the place of the one that was silent for longest.
const MAX_OVERHEARD: usize = 64;
/// How long a relay may code for this node after its last question, whose nonce counts for no longer (`greetings.rs`).
const CODED_FOR: Duration = Duration::from_secs(2 * KNOWN_FOR.as_secs());

/// One node's NC layer.
///
/// Events: [`handle_master`](Self::handle_master) and [`handle_slave`](Self::handle_slave). Output: after each, and at
/// [`poll_timeout`](Self::poll_timeout), drain [`poll_master`](Self::poll_master); and
/// [`poll_slave`](Self::poll_slave) whenever the slave takes a frame, not before: what has not left can still be coded.
#[derive(Debug)]
pub struct NcLayer {
    config: Config,
    flows: FlowTable,
    holds: Holds,
    neighbours: Neighbours,
    reception: Reception,
    /// Frames for other nodes that were heard, by sender, and when the last was.
    overheard: BTreeMap<Mac, (u64, Duration)>,
    greetings: Greetings,
    /// The relay that asked last of those that got no answer, and when, if it is not overheard since.
    unanswered: Option<(Mac, Duration)>,
    /// Until then a relay may code for this node, whatever its mode has become.
    coded_for_until: Duration,
    /// When many packets waited last (mode `any`).
    many_waited: Option<Duration>,
    /// When a packet was relayed last (mode `any`).
    relayed: Option<Duration>,
    /// Until then another that has just heard the same sum sends first (mode `any`).
    quiet_until: Duration,
    interface_queue: InterfaceQueue,
    decoding_buffer: DecodingBuffer,
    arrivals: Arrivals,
    delivered: VecDeque<Vec<u8>>,
    stats: Stats,
}

impl NcLayer {
    /// A layer with nothing in it. `secret` is random: who knows it can speak for neighbours.
    pub fn new(config: Config, secret: u64) -> Self {
        Self {
            config,
            flows: FlowTable::default(),
            holds: Holds::default(),
            neighbours: Neighbours::default(),
            reception: Reception::default(),
            overheard: BTreeMap::new(),
            greetings: Greetings::new(secret),
            unanswered: None,
            coded_for_until: Duration::ZERO,
            many_waited: None,
            relayed: None,
            quiet_until: Duration::ZERO,
            interface_queue: InterfaceQueue::new(config.queues_by_flow(), secret),
            decoding_buffer: DecodingBuffer::default(),
            arrivals: Arrivals::default(),
            delivered: VecDeque::new(),
            stats: Stats::default(),
        }
    }

    /// Works as `config` says from now on. What waits for a partner goes by itself; nothing is lost.
    pub fn reconfigure(&mut self, now: Duration, config: Config) {
        let waiting = [self.flows.clear(), self.holds.clear()].concat();
        self.send_held(now, waiting);
        self.interface_queue.set_by_flow(now, config.queues_by_flow());
        (self.config, self.unanswered) = (config, None);
    }

    /// How it works.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The flows that this node relays, and what they have waiting.
    pub fn flows(&self) -> &FlowTable {
        &self.flows
    }

    /// What the layer keeps.
    pub fn kept(&self, now: Duration) -> Kept {
        Kept {
            queued: self.interface_queue.len(),
            held: self.flows.held() + self.holds.len(),
            flows: self.flows.len(),
            left_out: self.neighbours.left_out(now),
            copies: self.decoding_buffer.len(),
            arrivals: self.arrivals.len(),
        }
    }

    /// What is known of each neighbour: of those that were overheard, or sent NC frames.
    pub fn neighbours(&self, now: Duration) -> BTreeMap<Mac, Neighbourhood> {
        let mut all = self.neighbours.all(now);
        self.overheard.iter().for_each(|(mac, (count, _))| all.entry(*mac).or_default().overheard = *count);
        all
    }

    /// Who is not overheard, so that a relay's sums past this node are lost or not sent: a relay that asked of late; in the paper's modes,
    /// in which nobody asks, anybody, of a node that has had packets and relays none. Where there is no relay that is no harm.
    pub fn unheard(&self, now: Duration) -> Option<String> {
        let asks_nobody = self.config.by_monitor && !matches!(self.config.mode, Mode::Off | Mode::Any);
        let nothing = self.overheard.is_empty() && self.arrivals.len() > 0 && self.stats.relayed == 0;
        let asked = self.unanswered.filter(|(_, asked)| now < asked.saturating_add(KNOWN_FOR));
        asked.map(|(relay, _)| relay.to_string()).or((asks_nobody && nothing).then(|| "anybody".to_owned()))
    }

    /// Whether there may be something to code, so that packets are to wait here: in mode `any` if two neighbours decode, as only a
    /// relay finds out, in the paper's modes if the node has relayed. Else the slave's own queue is the better one.
    pub fn can_code(&self, now: Duration) -> bool {
        match self.config.mode {
            Mode::Off => false,
            Mode::Any => self.neighbours.decoding(now) >= 2,
            _ => self.stats.relayed > 0,
        }
    }

    /// A frame from IP (`nc_xmit`, figure 4).
    pub fn handle_master(&mut self, now: Duration, frame: Vec<u8>) {
        match self.transit(now, &frame) {
            Some(packet) => self.route(now, packet),
            None => self.enqueue(now, Entry::Untouched(frame)),
        }
    }

    /// A frame that the slave heard, also one for another node (`nc_rcv`, figure 5).
    pub fn handle_slave(&mut self, now: Duration, frame: &[u8]) {
        self.holds.note_activity(now);
        let Some(heard) = Frame::parse(frame).filter(|heard| heard.source != self.config.mac) else { return };
        let for_us = heard.destination == self.config.mac || heard.destination.is_group();
        if !for_us {
            self.count_overheard(now, heard.source);
        }
        match heard.ethertype {
            ethernet::NC => self.receive_nc(now, &heard, for_us),
            ethernet::IPV4 | ethernet::IPV6 if for_us => {
                self.note_arrival(&heard);
                self.delivered.push_back(frame.to_vec());
            }
            _ if for_us => self.delivered.push_back(frame.to_vec()),
            _ => {}
        }
    }

    fn count_overheard(&mut self, now: Duration, from: Mac) {
        if self.overheard.len() >= MAX_OVERHEARD && !self.overheard.contains_key(&from) {
            let oldest = self.overheard.iter().min_by_key(|(_, (_, last))| *last).map(|(mac, _)| *mac);
            oldest.and_then(|oldest| self.overheard.remove(&oldest));
        }
        let (count, last) = self.overheard.entry(from).or_default();
        (*count, *last) = (*count + 1, now);
        self.unanswered = self.unanswered.filter(|(relay, _)| *relay != from);
    }

    /// The next frame for IP.
    pub fn poll_master(&mut self) -> Option<Vec<u8>> {
        self.delivered.pop_front()
    }

    /// The next frame for the slave. Call it only when the slave takes one.
    pub fn poll_slave(&mut self, now: Duration) -> Option<Vec<u8>> {
        self.expire(now);
        if let Some(report) = self.report(now) {
            return Some(report);
        }
        if now < self.quiet_until {
            return None;
        }
        let frame = loop {
            match self.interface_queue.pop(now, &mut self.stats)? {
                Entry::Untouched(frame) => {
                    self.keep_copy(now, &frame);
                    break frame;
                }
                Entry::Sum(pair) => break self.send_sum(now, &pair),
                Entry::Packet(packet) => match self.meet(now, &packet) {
                    Some(partner) => break self.send_sum(now, &[packet, partner]),
                    None if self.waits_for_its_like(now, &packet) => {
                        self.holds.hold(packet.came.saturating_add(self.config.wait), packet);
                    }
                    None => break self.send_plain(&packet),
                },
            }
        };
        self.holds.note_activity(now);
        self.stats.sent += 1;
        Some(frame)
    }

    /// When to call [`poll_slave`](Self::poll_slave) next if nothing happens before; the past if something waits there.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let greets = (!self.greetings.is_empty()).then_some(Duration::ZERO);
        let sends = (!self.interface_queue.is_empty()).then_some(self.quiet_until);
        let due =
            [greets, sends, self.flows.next_expiry(), self.holds.next_expiry(), self.reception.next_due()];
        due.into_iter().flatten().min()
    }

    /// The packet in a frame from IP; `None` if the layer leaves the frame as it is.
    fn transit(&self, now: Duration, frame: &[u8]) -> Option<Transit> {
        let Frame { destination, payload, .. } = unicast_ip(frame)?;
        let any = self.config.mode == Mode::Any;
        let fits = any || header::PLAIN + payload.len() <= self.config.mtu;
        if self.config.mode == Mode::Off || !fits {
            return None;
        }
        let datagram = Datagram::parse(payload.to_vec()).filter(|d| any || d.segment().is_some())?;
        let previous_hop = self.arrivals.sender(&datagram);
        Some(Transit { datagram, previous_hop, next_hop: destination, came: now })
    }

    fn route(&mut self, now: Duration, packet: Transit) {
        if let Some(previous) = packet.previous_hop.filter(|_| self.config.mode == Mode::Any) {
            self.ask(now, [previous, packet.next_hop]);
        }
        match self.config.mode {
            Mode::Any if packet.previous_hop.is_some() => self.wait_or_go(now, packet),
            Mode::Any => self.enqueue(now, Entry::Packet(packet)),
            _ => self.xmit(now, packet),
        }
    }

    /// What figure 4 does with a TCP packet.
    fn xmit(&mut self, now: Duration, packet: Transit) {
        let flow = packet.datagram.segment().map(|segment| segment.flow);
        let Some(flow) = flow.filter(|_| packet.previous_hop.is_some()) else {
            return self.enqueue(now, Entry::Packet(packet));
        };
        self.stats.relayed += 1;
        if self.config.mode == Mode::Piggy {
            return self.enqueue(now, Entry::Packet(packet));
        }
        match packet.datagram.kind() {
            Kind::Open => {
                let mut evicted = Vec::new();
                self.flows.open(now, flow, &mut evicted);
                self.send_held(now, evicted);
                self.enqueue(now, Entry::Packet(packet));
            }
            Kind::Close => {
                let held = self.flows.close(&flow);
                self.send_held(now, held);
                self.enqueue(now, Entry::Packet(packet));
            }
            Kind::Data => self.hold(now, flow, packet),
            Kind::Ack => self.try_code(now, flow, packet),
            Kind::Other => self.enqueue(now, Entry::Packet(packet)),
        }
    }

    /// Data goes into its flow's wait queue; the controller may push out what waited there first.
    fn hold(&mut self, now: Duration, key: crate::FlowKey, packet: Transit) {
        let mut out = Vec::new();
        let flow = self.flows.open(now, key, &mut out);
        flow.wait_queue.insert(now.saturating_add(self.config.wait), packet);
        let held = flow.wait_queue.len();
        let push = self.config.mode == Mode::Controlled && flow.controller.inserted(held);
        if push || held > MAX_WQ_LEN {
            out.extend(flow.wait_queue.push_out());
        }
        self.send_pushed_out(now, out);
    }

    /// An ACK is coded with the head of its flow's wait queue, or goes by itself.
    fn try_code(&mut self, now: Duration, key: crate::FlowKey, ack: Transit) {
        let mut evicted = Vec::new();
        let flow = self.flows.open(now, key, &mut evicted);
        let partner = flow.wait_queue.take_partner(&ack, self.config.mtu);
        if partner.is_some() {
            flow.controller.left();
        }
        self.send_held(now, evicted);
        match partner {
            Some(data) => {
                self.stats.released(now.saturating_sub(data.came));
                self.enqueue(now, Entry::Sum(Box::new([data, ack])));
            }
            None => self.enqueue(now, Entry::Packet(ack)),
        }
    }

    fn expire(&mut self, now: Duration) {
        let expired = [self.flows.expire(now), self.holds.expire(now)].concat();
        self.stats.expired += expired.len() as u64;
        self.send_held(now, expired);
    }

    fn send_pushed_out(&mut self, now: Duration, packets: Vec<Transit>) {
        self.stats.pushed_out += packets.len() as u64;
        self.send_held(now, packets);
    }

    /// Packets that waited for a partner go by themselves.
    fn send_held(&mut self, now: Duration, packets: Vec<Transit>) {
        for packet in packets {
            self.stats.released(now.saturating_sub(packet.came));
            self.enqueue(now, Entry::Packet(packet));
        }
    }

    fn enqueue(&mut self, now: Duration, entry: Entry) {
        if let Some(entry) = self.thin(entry) {
            self.interface_queue.push(now, entry, &mut self.stats);
        }
    }

    /// Lets a pure ACK take the place of an earlier one that it says all of, if ACKs are thinned (RFC 3449 §5.2.2); anything else
    /// comes back. The sender sees fewer ACKs, each for more data, as from a receiver that delays them longer.
    fn thin(&mut self, entry: Entry) -> Option<Entry> {
        let ack = entry.packet().filter(|packet| self.config.thin_acks && tcp::is_pure_ack(packet));
        let Some(ack) = ack.map(<[u8]>::to_vec) else { return Some(entry) };
        let left = self.interface_queue.replace(entry, |older| tcp::says_all_of(&ack, older));
        self.stats.thinned += u64::from(left.is_none());
        left
    }

    /// The partner of a packet that leaves, if the mode codes what meets in the interface queue.
    fn meet(&mut self, now: Duration, leaving: &Transit) -> Option<Transit> {
        match self.config.mode {
            Mode::Piggy => self.meet_ack_or_data(now, leaving),
            Mode::Any => self.meet_any(now, leaving),
            _ => None,
        }
    }

    /// PiggyCode: an ACK for data or data for an ACK, of the same flow.
    fn meet_ack_or_data(&mut self, now: Duration, leaving: &Transit) -> Option<Transit> {
        let wanted = match leaving.datagram.kind() {
            Kind::Data => Kind::Ack,
            Kind::Ack => Kind::Data,
            _ => return None,
        };
        let flow = |packet: &Transit| packet.datagram.segment().map(|segment| segment.flow);
        let mtu = self.config.mtu;
        let fits = |other: &Transit| {
            other.datagram.kind() == wanted
                && flow(other) == flow(leaving)
                && payload_len(&other.datagram, &leaving.datagram) <= mtu
        };
        self.interface_queue.take_partner(now, leaving, fits, &mut self.stats)
    }

    /// Keeps a copy of a packet that a relay may yet send on in a sum.
    fn keep_copy(&mut self, now: Duration, frame: &[u8]) {
        let packet = unicast_ip(frame).filter(|_| now < self.coded_for_until);
        if let Some(datagram) = packet.and_then(|one| Datagram::parse(one.payload.to_vec())) {
            self.decoding_buffer.insert(&datagram);
        }
    }

    fn send_plain(&mut self, packet: &Transit) -> Vec<u8> {
        self.decoding_buffer.insert(&packet.datagram);
        let bytes = packet.datagram.bytes();
        let has_header = !matches!(self.config.mode, Mode::Any | Mode::Off);
        let Some(segment) = packet.datagram.segment().filter(|_| has_header) else {
            return ip_frame(packet.next_hop, self.config.mac, bytes);
        };
        let room = header::PLAIN + bytes.len();
        let mut frame = ethernet::begin(packet.next_hop, self.config.mac, ethernet::NC, room);
        header::emit_plain(&mut frame, &segment, bytes);
        frame
    }

    fn send_sum(&mut self, now: Duration, pair: &[Transit; 2]) -> Vec<u8> {
        self.stats.sent_coded += 1;
        pair.iter().for_each(|packet| self.decoding_buffer.insert(&packet.datagram));
        let (first, second) = pair[0].in_order(&pair[1]);
        let any = self.config.mode == Mode::Any;
        let number = if any { self.neighbours.number(now, second) } else { 0 };
        let wanted = any && second.is_wanted();
        encode(self.config.mac, first.part(), second.part(), number, wanted)
    }

    fn receive_nc(&mut self, now: Duration, heard: &Frame<'_>, for_us: bool) {
        match Header::parse(heard.payload) {
            Err(_) => self.stats.malformed += 1,
            Ok(Header::Plain(_)) if !for_us => {}
            Ok(Header::Plain(packet)) => {
                let datagram = without_padding(packet).and_then(|p| Datagram::parse(p.to_vec()));
                match datagram {
                    Some(datagram) => self.deliver(heard.source, &datagram),
                    None => self.stats.malformed += 1,
                }
            }
            Ok(Header::Coded(coded)) => self.receive_coded(now, heard, &coded),
            Ok(Header::Report(report)) if heard.destination == self.config.mac => {
                self.receive_report(now, heard.source, &report);
            }
            Ok(Header::Greeting(greeting))
                if heard.destination == self.config.mac && self.config.mode == Mode::Any =>
            {
                self.receive_greeting(now, heard.source, &greeting);
            }
            Ok(Header::Report(_) | Header::Greeting(_)) => {}
        }
    }

    fn receive_coded(&mut self, now: Duration, heard: &Frame<'_>, coded: &Coded<'_>) {
        let decoded = decode(&self.decoding_buffer, self.config.mac, heard.destination, coded);
        let overheard = heard.destination != self.config.mac && coded.second_receiver == self.config.mac;
        if overheard && (self.config.mode == Mode::Any || now < self.coded_for_until) {
            self.reception.note(now, heard.source, coded.number, decoded.is_ok(), coded.wanted);
            self.give_way(now, heard.source);
        }
        match decoded {
            Ok(datagram) => {
                self.stats.decoded += 1;
                self.deliver(heard.source, &datagram);
            }
            Err(DecodeError::NotForUs) => {}
            Err(DecodeError::NoPartner) => self.stats.missing_partner += 1,
            Err(DecodeError::WrongPartner) => self.stats.wrong_partner += 1,
        }
    }

    fn deliver(&mut self, sender: Mac, datagram: &Datagram) {
        self.arrivals.insert(datagram, sender);
        self.delivered.push_back(ip_frame(self.config.mac, sender, datagram.bytes()));
    }

    /// Remembers whom IP has a packet from that came without NC header.
    fn note_arrival(&mut self, heard: &Frame<'_>) {
        if self.config.mode == Mode::Off {
            return;
        }
        let packet = without_padding(heard.payload);
        if let Some(datagram) = packet.and_then(|packet| Datagram::parse(packet.to_vec())) {
            self.arrivals.insert(&datagram, heard.source);
        }
    }
}

/// The frame, if it has an IP packet for one station.
fn unicast_ip(frame: &[u8]) -> Option<Frame<'_>> {
    let is_ip = |frame: &Frame<'_>| matches!(frame.ethertype, ethernet::IPV4 | ethernet::IPV6);
    Frame::parse(frame).filter(|frame| is_ip(frame) && !frame.destination.is_group())
}
