//! The flow table: what each TCP connection through this relay has waiting.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::datagram::FlowKey;
use crate::transit::Transit;
use crate::wait_queue::WaitQueue;
use crate::wait_queue_controller::WaitQueueController;

/// Flows known at once; one more takes the place of the one that was silent for longest.
pub const MAX_FLOWS: usize = 256;

/// A flow whose FIN was never seen is forgotten after this silence.
pub const IDLE: Duration = Duration::from_secs(60);

/// One TCP connection, both directions.
#[derive(Debug, Default)]
pub struct Flow {
    /// Its data that waits.
    pub wait_queue: WaitQueue,
    /// How much of it may.
    pub controller: WaitQueueController,
    last: Duration,
}

/// All flows, by their two ends.
#[derive(Debug, Default)]
pub struct FlowTable {
    flows: BTreeMap<FlowKey, Flow>,
}

impl FlowTable {
    /// The flow, made if it is not known: by its SYN, or later if that went another way. Whatever a flow that had to go
    /// for it had waiting is put into `evicted`.
    pub fn open(&mut self, now: Duration, key: FlowKey, evicted: &mut Vec<Transit>) -> &mut Flow {
        if self.flows.len() >= MAX_FLOWS && !self.flows.contains_key(&key) {
            self.evict(evicted);
        }
        let flow = self.flows.entry(key).or_default();
        flow.last = now;
        flow
    }

    /// Forgets a flow. Returns what it had waiting.
    pub fn close(&mut self, key: &FlowKey) -> Vec<Transit> {
        let flow = self.flows.remove(key);
        flow.into_iter().flat_map(|mut flow| std::iter::from_fn(move || flow.wait_queue.push_out())).collect()
    }

    /// Forgets all flows. Returns what they had waiting.
    pub fn clear(&mut self) -> Vec<Transit> {
        let keys: Vec<_> = self.flows.keys().copied().collect();
        keys.iter().flat_map(|key| self.close(key)).collect()
    }

    /// Flows known.
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// Whether no flow is known.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Packets that wait, of all flows.
    pub fn held(&self) -> usize {
        self.flows.values().map(|flow| flow.wait_queue.len()).sum()
    }

    /// The greatest `Qlen` of all flows.
    pub fn longest_qlen(&self) -> usize {
        self.flows.values().map(|flow| flow.controller.qlen()).max().unwrap_or_default()
    }

    /// The packets whose time is over at `now`. Flows that were silent for [`IDLE`], and have none waiting, are forgotten.
    pub fn expire(&mut self, now: Duration) -> Vec<Transit> {
        let mut expired = Vec::new();
        for flow in self.flows.values_mut() {
            while let Some(packet) = flow.wait_queue.expire(now) {
                flow.controller.left();
                expired.push(packet);
            }
        }
        let idle = |flow: &Flow| now.saturating_sub(flow.last) >= IDLE && flow.wait_queue.is_empty();
        self.flows.retain(|_, flow| !idle(flow));
        expired
    }

    /// When [`FlowTable::expire`] has something next.
    pub fn next_expiry(&self) -> Option<Duration> {
        self.flows.values().filter_map(|flow| flow.wait_queue.next_expiry()).min()
    }

    /// Forgets the flow that was silent for longest.
    fn evict(&mut self, evicted: &mut Vec<Transit>) {
        if let Some(key) = self.flows.iter().min_by_key(|(_, flow)| flow.last).map(|(key, _)| *key) {
            evicted.extend(self.close(&key));
        }
    }
}
