//! The congestion avoidance below FS-AT: what a cwnd does without it. Windows in packets.

/// Which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Reno,
    Cubic,
}

/// A cwnd that grows by ACKs and is cut at losses.
#[derive(Debug, Clone)]
pub struct Base {
    kind: Kind,
    pub cwnd: f64,
    pub ssthresh: f64,
    /// CUBIC's plateau, and when its epoch began (s).
    w_max: f64,
    epoch: Option<f64>,
}

impl Base {
    pub fn new(kind: Kind, initial: f64) -> Base {
        Base { kind, cwnd: initial, ssthresh: 1e9, w_max: 0.0, epoch: None }
    }

    /// Grows for `packets` newly arrived, while cwnd is what limits.
    pub fn grow(&mut self, now_s: f64, packets: f64, rtt_s: f64) {
        if self.cwnd < self.ssthresh {
            self.cwnd += packets;
            return;
        }
        self.cwnd += packets * self.per_packet(now_s, rtt_s);
    }

    fn per_packet(&mut self, now_s: f64, rtt_s: f64) -> f64 {
        let reno = 1.0 / self.cwnd;
        if self.kind == Kind::Reno {
            return reno;
        }
        let start = *self.epoch.get_or_insert_with(|| {
            self.w_max = self.w_max.max(self.cwnd);
            now_s
        });
        let k = ((self.w_max - self.cwnd).max(0.0) / 0.4).cbrt();
        let target = self.w_max + 0.4 * (now_s - start + rtt_s - k).powi(3);
        let cubic = ((target - self.cwnd) / self.cwnd).clamp(0.0, 0.5);
        cubic.max(reno * 0.53)
    }

    /// A loss without FS-AT: the new ssthresh.
    pub fn cut(&mut self) -> f64 {
        let beta = if self.kind == Kind::Reno { 0.5 } else { 0.7 };
        (self.cwnd * beta).max(2.0)
    }

    /// cwnd was reduced to `ssthresh`: the next epoch's plateau is what it was.
    pub fn reduced(&mut self, ssthresh: f64) {
        self.w_max = if self.cwnd < self.w_max { self.cwnd * 0.85 } else { self.cwnd };
        self.epoch = None;
        self.ssthresh = ssthresh;
    }
}
