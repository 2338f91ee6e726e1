//! The congestion avoidance below FS-AT: what a cwnd does without it. Windows in packets.

/// Which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Reno,
    Cubic,
}

/// A cwnd that grows by ACKs and is cut at losses: Linux's, in whole packets as there.
#[derive(Debug, Clone)]
pub struct Base {
    kind: Kind,
    pub cwnd: f64,
    pub ssthresh: f64,
    /// Packets that have arrived towards the next one more.
    count: f64,
    cubic: Cubic,
}

/// What CUBIC keeps between its losses.
#[derive(Debug, Clone, Default)]
struct Cubic {
    /// cwnd before the last loss, or less by fast convergence; 0: none yet.
    last_max: f64,
    epoch: Option<Epoch>,
}

/// Since a loss: when it began (s), the plateau and the time to it, and what Reno would have by now.
#[derive(Debug, Clone, Copy)]
struct Epoch {
    start: f64,
    origin: f64,
    k: f64,
    reno: f64,
    arrived: f64,
}

impl Base {
    pub fn new(kind: Kind, initial: f64) -> Base {
        Base { kind, cwnd: initial, ssthresh: 1e9, count: 0.0, cubic: Cubic::default() }
    }

    /// Grows for `packets` newly arrived, while cwnd is what limits.
    pub fn grow(&mut self, now_s: f64, packets: f64, rtt_min_s: f64) {
        let slow = if self.cwnd < self.ssthresh { packets.min(self.ssthresh - self.cwnd) } else { 0.0 };
        self.cwnd += slow;
        if packets > slow {
            self.avoid(now_s, packets - slow, rtt_min_s);
        }
    }

    /// Congestion avoidance: one packet more for so many that arrived.
    fn avoid(&mut self, now_s: f64, packets: f64, rtt_min_s: f64) {
        let each = match self.kind {
            Kind::Reno => self.cwnd,
            Kind::Cubic => self.cubic.packets_each(self.cwnd, now_s, packets, rtt_min_s),
        };
        if self.count >= each {
            self.count = 0.0;
            self.cwnd += 1.0;
        }
        self.count += packets;
        let more = (self.count / each).floor();
        self.count -= more * each;
        self.cwnd += more;
    }

    /// A loss without FS-AT: the new ssthresh.
    pub fn cut(&self) -> f64 {
        let beta = if self.kind == Kind::Reno { 0.5 } else { 0.7 };
        (self.cwnd * beta).floor().max(2.0)
    }

    /// Congestion, which leads to `ssthresh`: the next epoch's plateau is what cwnd is.
    pub fn reduce(&mut self, ssthresh: f64) {
        let last_max = self.cubic.last_max;
        self.cubic.last_max = if self.cwnd < last_max { (self.cwnd * 0.85).floor() } else { self.cwnd };
        self.cubic.epoch = None;
        self.ssthresh = ssthresh;
    }

    /// A timeout: CUBIC begins anew.
    pub fn time_out(&mut self) {
        (self.cwnd, self.count, self.cubic) = (1.0, 0.0, Cubic::default());
    }
}

impl Cubic {
    /// For how many packets that arrived cwnd grows by one (`bictcp_update`).
    fn packets_each(&mut self, cwnd: f64, now_s: f64, packets: f64, rtt_min_s: f64) -> f64 {
        let last_max = self.last_max;
        let epoch = self.epoch.get_or_insert_with(|| Epoch {
            start: now_s,
            origin: last_max.max(cwnd),
            k: ((last_max - cwnd).max(0.0) / 0.4).cbrt(),
            reno: cwnd,
            arrived: 0.0,
        });
        let target = (epoch.origin + 0.4 * (now_s - epoch.start + rtt_min_s - epoch.k).powi(3)).floor();
        let mut each = if target > cwnd { (cwnd / (target - cwnd)).floor() } else { 100.0 * cwnd };
        if last_max == 0.0 {
            each = each.min(20.0);
        }
        epoch.arrived += packets;
        let for_reno = (cwnd * 15.0 / 8.0).floor();
        while epoch.arrived > for_reno {
            epoch.arrived -= for_reno;
            epoch.reno += 1.0;
        }
        if epoch.reno > cwnd {
            each = each.min((cwnd / (epoch.reno - cwnd)).floor());
        }
        each.max(2.0)
    }
}
