//! What happens in the course of one run, for people to look at: one file per case and seed.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use crate::error::{Doing, Error};
use crate::flows::Look;

/// A file of comma-separated values, a line per look and flow.
pub(super) struct Series(BufWriter<File>);

const HEADER: &str = "time_s,queue_packets,flow,cwnd_packets,ssthresh_packets,unacked_packets,window_bytes,rtt_ms,\
                      min_rtt_ms,acked_bytes,retransmitted_packets,pacing_bytes_per_s";

impl Series {
    /// In `folder`, which is made if it is not there.
    pub(super) fn create(folder: &Path, title: &str, seed: u64) -> Result<Self, Error> {
        let path = folder.join(format!("{} {seed}.csv", title.replace('/', "_")));
        let made = fs::create_dir_all(folder).and_then(|()| File::create(&path));
        let mut file = BufWriter::new(made.doing(|| format!("make {}", path.display()))?);
        writeln!(file, "{HEADER}").doing(|| format!("write {}", path.display()))?;
        Ok(Self(file))
    }

    /// What cannot be written is missing from the file, and the measurement goes on.
    pub(super) fn write(&mut self, look: Look) {
        for (flow, info) in look.infos.iter().enumerate() {
            let Some(info) = info else { continue };
            let (time, queue) = (look.time.as_secs_f64(), look.queued);
            let (rtt, min_rtt) = (info.rtt.as_secs_f64() * 1e3, info.min_rtt.as_secs_f64() * 1e3);
            let _ = writeln!(
                self.0,
                "{time:.3},{queue},{flow},{},{},{},{},{rtt:.3},{min_rtt:.3},{},{},{}",
                info.cwnd,
                info.ssthresh,
                info.unacked,
                info.snd_wnd,
                info.bytes_acked,
                info.retransmitted,
                info.pacing_rate
            );
        }
    }
}
