//! What happens in the course of one run, for people to look at: a file per case and seed.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use crate::error::{Doing, Error};
use crate::flows::Look;

/// A file of comma-separated values, a line per look and flow.
pub(super) struct Series(BufWriter<File>);

const HEADER: &str = "time_s,queue_packets,flow,cwnd_packets,ssthresh_packets,unacked_packets,window_bytes,rtt_ms,\
                      min_rtt_ms,acked_bytes,retransmitted_packets,pacing_bytes_per_s";

/// The columns that only a sender knows: empty for one in a guest, and before a flow has begun.
const UNKNOWN: usize = 9;

impl Series {
    /// In `folder`, which is made if it is not there.
    pub(super) fn create(folder: &Path, title: &str, seed: u64) -> Result<Self, Error> {
        let path = folder.join(format!("{} {seed}.csv", title.replace('/', "_")));
        let made = fs::create_dir_all(folder).and_then(|()| File::create(&path));
        let mut file = BufWriter::new(made.doing(|| format!("make {}", path.display()))?);
        writeln!(file, "{HEADER}").doing(|| "write a series".into())?;
        Ok(Self(file))
    }

    /// What cannot be written is missing from the file, and the measurement goes on.
    pub(super) fn write(&mut self, look: Look) {
        for (flow, info) in look.infos.iter().enumerate() {
            let (time, queue) = (look.time.as_secs_f64(), look.queued);
            let _ = write!(self.0, "{time:.3},{queue},{flow}");
            let Some(info) = info else {
                let _ = writeln!(self.0, "{}", ",".repeat(UNKNOWN));
                continue;
            };
            let (rtt, min_rtt) = (info.rtt.as_secs_f64() * 1e3, info.min_rtt.as_secs_f64() * 1e3);
            let _ = writeln!(
                self.0,
                ",{},{},{},{},{rtt:.3},{min_rtt:.3},{},{},{}",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_the_columns_of_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let mut series = Series::create(folder.path(), "x", 1).unwrap();
        series.write(Look {
            time: std::time::Duration::from_millis(250),
            queued: 7,
            infos: vec![None, Some(Default::default())],
        });
        drop(series);
        let text = std::fs::read_to_string(folder.path().join("x 1.csv")).unwrap();
        let columns: Vec<usize> = text.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(columns, [12, 12, 12], "{text}");
        assert!(text.contains("0.250,7,0,,"), "{text}");
    }
}
