//! What each path has carried in a month, over restarts: for those that may carry only so much.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// It is counted this often: so much may be carried beyond a cap.
pub const INTERVAL: Duration = Duration::from_secs(10);
/// IPv4 and UDP around a payload, or IPv6 and UDP, in bytes.
const AROUND: [u64; 2] = [28, 48];

/// What a daemon has counted of a path in its life: name, id, where datagrams go, packets and bytes of UDP payload.
pub type Counted = (String, u16, Option<SocketAddr>, u64, u64);

/// What is kept in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// As `2026-11`, UTC.
    month: String,
    /// Bytes of IP packets, both ways, by `PEER/PATH`.
    used_bytes: BTreeMap<String, u64>,
    /// What was kept before this month: a host without a clock of its own starts in another one, until it is told the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<Box<Kept>>,
}

impl Kept {
    /// Counts for `month` from now on, with what was kept of it, if it is the one before.
    fn turn_to(&mut self, month: String) {
        if self.month == month {
            return;
        }
        let mut last = std::mem::take(self);
        *self = match last.before.take() {
            Some(before) if before.month == month => *before,
            _ => Kept { month, ..Kept::default() },
        };
        self.before = (!last.month.is_empty()).then(|| Box::new(last));
    }
}

/// The counts.
#[derive(Debug)]
pub struct Caps {
    file: PathBuf,
    kept: Kept,
    /// The folder, locked: no other daemon keeps what it counts there. `None` before the first count, and where that is so.
    folder: Option<File>,
    /// Packets and bytes that the daemon had counted of a path by then, by its name and id: it begins anew with each life.
    seen: BTreeMap<(String, u16), (u64, u64)>,
}

impl Caps {
    /// Nothing is counted or read yet.
    pub fn new(folder: &Path) -> Self {
        Self { file: folder.join("usage.json"), kept: Kept::default(), folder: None, seen: BTreeMap::new() }
    }

    /// Takes the folder, and adds what it keeps, unless that is done; a file that cannot be read begins anew.
    ///
    /// # Errors
    /// What the file system says, or another daemon has it. What is counted meanwhile is kept once that is mended.
    pub fn open(&mut self) -> io::Result<()> {
        if self.folder.is_some() {
            return Ok(());
        }
        let folder = self.create()?;
        // A file system that knows no locks keeps them all the same.
        if matches!(folder.try_lock(), Err(TryLockError::WouldBlock)) {
            return Err(io::Error::other(
                "another daemon keeps its own counts there; give this one another `state-dir` in [node]",
            ));
        }
        let meanwhile = std::mem::replace(&mut self.kept, read(&self.file));
        if !meanwhile.month.is_empty() {
            self.kept.turn_to(meanwhile.month);
        }
        for (name, bytes) in meanwhile.used_bytes {
            *self.kept.used_bytes.entry(name).or_default() += bytes;
        }
        self.folder = Some(folder);
        Ok(())
    }

    fn create(&self) -> io::Result<File> {
        let folder = self.file.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(folder)?;
        File::open(folder)
    }

    /// Takes what was counted by then for none of this month's, as while no path has a cap; of a tunnel that begins that is nothing.
    pub fn pass_over(&mut self, paths: impl Iterator<Item = Counted>) {
        self.seen = paths.map(|(name, id, _, packets, bytes)| ((name, id), (packets, bytes))).collect();
    }

    /// Takes in what was counted by `time` since 1970.
    pub fn count(&mut self, time: Duration, paths: impl Iterator<Item = Counted>) {
        self.kept.turn_to(month(time));
        let mut seen = BTreeMap::new();
        for (name, id, remote, packets, bytes) in paths {
            let before = self.seen.get(&(name.clone(), id)).copied();
            let before = before.filter(|before| before.0 <= packets && before.1 <= bytes).unwrap_or_default();
            *self.kept.used_bytes.entry(name.clone()).or_default() +=
                total(remote, packets - before.0, bytes - before.1);
            seen.insert((name, id), (packets, bytes));
        }
        self.seen = seen;
    }

    /// Bytes that a path has carried this month.
    pub fn used(&self, name: &str) -> u64 {
        self.kept.used_bytes.get(name).copied().unwrap_or(0)
    }

    /// Keeps them. In one piece and on the disk before the old ones go, or a crash would lose the month.
    ///
    /// # Errors
    /// What the file system says.
    pub fn save(&self) -> io::Result<()> {
        self.create()?;
        let new = self.file.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(&self.kept)?)?;
        file.sync_all()?;
        fs::rename(new, &self.file)
    }
}

/// What a file keeps.
fn read(file: &Path) -> Kept {
    let kept = match fs::read(file) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::from),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Kept::default()),
        Err(error) => Err(error),
    };
    kept.unwrap_or_else(|error| {
        let file = file.display();
        tracing::warn!("{file} cannot be read ({error}): what paths have carried this month counts from 0");
        Kept::default()
    })
}

/// Bytes of IP packets.
fn total(remote: Option<SocketAddr>, packets: u64, bytes: u64) -> u64 {
    let v6 = remote.is_some_and(|remote| remote.is_ipv6());
    bytes + AROUND[usize::from(v6)] * packets
}

/// The day on which the count of so long after 1970 begins anew, as `2026-12-01`, UTC.
pub fn resets_on(time: Duration) -> String {
    let this = month(time);
    let (year, month) = this.split_once('-').unwrap_or_default();
    match (year.parse::<u64>(), month.parse::<u64>()) {
        (Ok(year), Ok(12)) => format!("{:04}-01-01", year + 1),
        (Ok(year), Ok(month)) => format!("{year:04}-{:02}-01", month + 1),
        _ => String::new(),
    }
}

/// The month of so long after 1970, UTC (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn month(time: Duration) -> String {
    let days = time.as_secs() / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let in_year = day - (365 * year + year / 4 - year / 100);
    let from_march = (5 * in_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    format!("{:04}-{month:02}", year + era * 400 + u64::from(month <= 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);
    /// 2026-11-25.
    const NOW: Duration = Duration::from_secs(1_795_564_800);

    #[test]
    fn months_are_those_of_the_calendar() {
        assert_eq!(month(Duration::ZERO), "1970-01");
        assert_eq!((month(NOW), month(NOW + 6 * DAY)), ("2026-11".into(), "2026-12".into()));
        assert_eq!((resets_on(NOW), resets_on(NOW + 6 * DAY)), ("2026-12-01".into(), "2027-01-01".into()));
        // 2024-02-29, 2000-03-01.
        assert_eq!(month(Duration::from_secs(1_709_164_800)), "2024-02");
        assert_eq!(month(Duration::from_secs(951_868_800)), "2000-03");
    }

    /// A life that begins.
    fn open(folder: &Path) -> Caps {
        let mut caps = Caps::new(folder);
        caps.open().expect("nobody else has it");
        caps
    }

    fn one(packets: u64, bytes: u64) -> impl Iterator<Item = Counted> {
        std::iter::once(("office/lte".to_owned(), 2, None, packets, bytes))
    }

    #[test]
    fn bytes_are_counted_over_restarts_until_the_month_ends() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut caps = open(folder.path());
        caps.count(NOW, one(10, 1000));
        caps.count(NOW, one(20, 2000));
        assert_eq!(caps.used("office/lte"), 2560);
        caps.save().expect("it is kept");
        drop(caps);
        // Another life counts from nothing, and so does another path of this name.
        let mut caps = open(folder.path());
        assert_eq!(caps.used("office/lte"), 2560);
        caps.count(NOW, one(1, 100));
        assert_eq!(caps.used("office/lte"), 2688);
        caps.count(NOW + 6 * DAY, one(2, 200));
        assert_eq!(caps.used("office/lte"), 128);
        drop(caps);
        // A host that starts in 1970, twice, and is told the time.
        for _ in 0..2 {
            let mut caps = open(folder.path());
            caps.count(DAY, one(1, 100));
            caps.save().expect("it is kept");
            caps.count(NOW, one(1, 100));
            assert_eq!(caps.used("office/lte"), 2560);
            caps.save().expect("it is kept");
        }
        // A cap that is given to a running daemon counts from then on.
        let mut caps = open(folder.path());
        caps.pass_over(one(1_000_000, 1_000_000_000));
        caps.count(NOW, one(1_000_001, 1_000_000_100));
        assert_eq!(caps.used("office/lte"), 2688);
        drop(caps);
        fs::write(folder.path().join("usage.json"), "nonsense").expect("a file");
        assert_eq!(open(folder.path()).used("office/lte"), 0);
    }

    #[test]
    fn two_daemons_do_not_write_over_each_others_counts() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut first = open(folder.path());
        first.count(NOW, one(10, 1000));
        first.save().expect("it is kept");
        let mut second = Caps::new(folder.path());
        let refused = second.open().expect_err("it is the other's").to_string();
        assert!(refused.contains("another daemon") && refused.contains("`state-dir`"), "{refused}");
        second.count(NOW, one(1, 100));
        assert_eq!(second.used("office/lte"), 128, "the other's do not count");
        drop(first);
        second.open().expect("the other has gone");
        assert_eq!(second.used("office/lte"), 1280 + 128);
    }

    #[test]
    fn what_is_around_a_payload_is_that_of_its_family() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut caps = open(folder.path());
        let mut count = |remote: &str, packets, bytes| {
            let remote = Some(remote.parse().expect("an address"));
            caps.count(NOW, std::iter::once(("office/lte".to_owned(), 2, remote, packets, bytes)));
            caps.used("office/lte")
        };
        assert_eq!(count("[2001:db8::7]:51900", 10, 10_000), 10_480);
        // Its name has another address: what went before went as it did.
        assert_eq!(count("203.0.113.7:51900", 20, 20_000), 20_760);
        assert_eq!(count("[2001:db8::7]:51900", 30, 30_000), 31_240);
    }
}
