//! The number of each life of a node that floods: greater than that of any life before, whatever the clock says. The last one
//! given is kept in a file, which all daemons of a host share.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// Gives epochs.
pub struct Epochs {
    file: PathBuf,
    /// The last one given here, for where the file cannot be used.
    last: u32,
}

impl Epochs {
    /// With the file in this folder.
    pub fn new(folder: &Path) -> Epochs {
        Epochs { file: folder.join("flood-epoch"), last: 0 }
    }

    /// The next one; and if it may be smaller than one before this process, why.
    pub fn next(&mut self) -> (u32, Option<String>) {
        // Since 1970, until 2106.
        self.next_at(u32::try_from(device::realtime().as_secs()).unwrap_or(u32::MAX))
    }

    fn next_at(&mut self, now: u32) -> (u32, Option<String>) {
        let least = now.max(self.last.saturating_add(1));
        let kept = keep(&self.file, least);
        self.last = *kept.as_ref().unwrap_or(&least);
        let why = kept.err().map(|error| {
            format!(
                "cannot keep the epoch in {}: {error}; if the clock is set back before the next start, others take this node's \
                 messages for old ones until they have not heard it for two minutes",
                self.file.display()
            )
        });
        (self.last, why)
    }
}

/// An epoch that is at least `least` and greater than what the file has, which has it then.
fn keep(path: &Path, least: u32) -> io::Result<u32> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    flock(&file, FlockOperation::LockExclusive)?;
    let epoch = least.max(read(&mut file)?.saturating_add(1));
    file.seek(SeekFrom::Start(0))?;
    // Always as long, so that no crash leaves a part of one.
    file.write_all(format!("{epoch:010}\n").as_bytes())?;
    file.sync_data()?;
    Ok(epoch)
}

/// The number in the file; 0 of one that is new.
fn read(file: &mut File) -> io::Result<u32> {
    let mut text = String::new();
    file.take(64).read_to_string(&mut text)?;
    if text.is_empty() {
        return Ok(0);
    }
    text.trim().parse().map_err(|_| io::Error::other("it holds no number; remove it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_folder(folder: &Path) -> Epochs {
        Epochs { file: folder.join("state/flood-epoch"), last: 0 }
    }

    #[test]
    fn no_start_has_the_epoch_of_one_before_whatever_the_clock_says() {
        let folder = tempfile::tempdir().expect("a folder");
        // A process each: the second starts in the same second, the third with the clock set back, the fourth with a file
        // that says nothing.
        let start = |now| in_folder(folder.path()).next_at(now);
        assert_eq!([start(1000), start(1000), start(10)], [(1000, None), (1001, None), (1002, None)]);
        assert_eq!(start(2000), (2000, None));
        fs::write(folder.path().join("state/flood-epoch"), "nonsense").expect("the file");
        let (epoch, why) = start(5);
        assert_eq!(
            (epoch, why.is_some_and(|why| why.contains("flood-epoch: it holds no number"))),
            (5, true)
        );
    }

    #[test]
    fn without_a_file_the_process_remembers() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("state"), "no folder").expect("a file");
        let mut epochs = in_folder(folder.path());
        let [(first, why), (second, _)] = [epochs.next_at(1000), epochs.next_at(10)];
        assert_eq!((first, second, why.is_some()), (1000, 1001, true));
    }
}
