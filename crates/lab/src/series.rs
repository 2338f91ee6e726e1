//! What happens in the course of one run, as a file of comma-separated values that `nawa lab show` draws.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use crate::clock;
use crate::emulator::Wire;
use crate::error::{Doing, Result};
use crate::statistics::mbps;
use crate::workload::Site;

/// The columns that every file has first.
pub(crate) const FIRST: &str = "time_s,queue_packets,flow";

/// From one look at the links to the next: at 1 Mbit/s four full packets are delivered meanwhile, and of fewer a rate says little.
const INTERVAL: Duration = Duration::from_millis(50);

/// A line per look and flow.
pub(crate) struct Series(BufWriter<File>);

impl Series {
    /// That of a run, with these columns behind the [`FIRST`], if `--series` asks for it.
    pub(crate) fn of(site: &Site, columns: &str) -> Result<Option<Self>> {
        let folder = site.options.series.as_deref();
        folder.map(|folder| Self::create(folder, &site.title, site.seed, columns)).transpose()
    }

    /// In `folder`, which is made if it is not there.
    pub(crate) fn create(folder: &Path, title: &str, seed: u64, columns: &str) -> Result<Self> {
        let path = folder.join(format!("{} {seed}.csv", title.replace('/', "_")));
        let made = fs::create_dir_all(folder).and_then(|()| File::create(&path));
        let mut file = BufWriter::new(made.doing(|| format!("make {}", path.display()))?);
        writeln!(file, "{FIRST},{columns}").doing(|| "write a series".into())?;
        Ok(Self(file))
    }

    /// What cannot be written is missing from the file, and the measurement goes on.
    pub(crate) fn write(&mut self, time: Duration, queued: u64, flow: impl Display, columns: impl Display) {
        let _ = writeln!(self.0, "{:.3},{queued},{flow},{columns}", time.as_secs_f64());
    }
}

/// What `measure` comes to, while the series of both ways of the links `wires`, called so, is written if it is asked for.
pub(crate) fn beside<N: Display + Sync, T>(
    site: &Site,
    names: &[N],
    wires: &[Wire],
    measure: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let Some(series) = Series::of(site, "mbps")? else { return measure() };
    let (over, ended) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || watch(series, names, wires, &ended));
        // Dropped at the end, whatever it is: the thread ends then.
        let _over = over;
        measure()
    })
}

fn watch(mut series: Series, names: &[impl Display], wires: &[Wire], ended: &Receiver<()>) {
    let (start, mut last, mut before) = (clock::now(), clock::now(), Vec::new());
    while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
        let Ok(stats) = wires.iter().map(Wire::stats).collect::<Result<Vec<_>>>() else { return };
        let (now, ways) = (clock::now(), stats.concat());
        let delivered: Vec<u64> = ways.iter().map(|way| way.delivered.bytes.get()).collect();
        for (index, way) in ways.iter().enumerate() {
            let flow = format!("{} {}", names[index / 2], ["up", "down"][index % 2]);
            // A link that is started anew counts from 0.
            let bytes = delivered[index].saturating_sub(*before.get(index).unwrap_or(&delivered[index]));
            let rate = mbps(bytes, now - last);
            series.write(now - start, way.queue.frames.get(), flow, format_args!("{rate:.3}"));
        }
        (last, before) = (now, delivered);
    }
}
