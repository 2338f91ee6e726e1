//! Memory that processes share, as atomic words of 64 bits: a file without a name, or whatever else can be mapped.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Bytes of a word.
const WORD: usize = size_of::<AtomicU64>();

#[derive(Debug)]
struct Mapping {
    start: NonNull<c_void>,
    words: usize,
}

// SAFETY: it is memory that stays mapped as long as this lives, and is only touched as atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: impl AsFd, words: usize, access: ProtFlags) -> io::Result<Self> {
        // SAFETY: a new mapping where the kernel likes it, which nothing else of this process knows.
        let start = unsafe { mmap(std::ptr::null_mut(), words * WORD, access, MapFlags::SHARED, file, 0) }?;
        let start = NonNull::new(start).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Self { start, words })
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: so many words are mapped, at the beginning of a page, until this is dropped.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.words) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing borrows from it any more. It is not refused then.
        let _ = unsafe { munmap(self.start.as_ptr(), self.words * WORD) };
    }
}

/// Shared memory to read and write.
#[derive(Debug)]
pub struct Shared(Mapping);

impl Shared {
    /// New memory, all zero, that is as long as this or anybody else has it; `name` is for whoever debugs. The
    /// descriptor is for others to map; its length cannot be changed.
    pub fn create(name: &str, words: usize) -> io::Result<(Self, OwnedFd)> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, (words * WORD) as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((Self::map(&file, words)?, file))
    }

    /// What `file` is, which must be as long.
    pub fn map(file: impl AsFd, words: usize) -> io::Result<Self> {
        Mapping::new(file, words, ProtFlags::READ | ProtFlags::WRITE).map(Self)
    }

    /// The memory.
    pub fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }
}

/// Shared memory that others write.
#[derive(Debug)]
pub struct ReadOnly(Mapping);

impl ReadOnly {
    /// What `file` is, which must be as long.
    pub fn map(file: impl AsFd, words: usize) -> io::Result<Self> {
        Mapping::new(file, words, ProtFlags::READ).map(Self)
    }

    /// The word of this number; 0 behind the end.
    pub fn load(&self, at: usize, order: Ordering) -> u64 {
        self.0.words().get(at).map_or(0, |word| word.load(order))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_writes_the_other_reads() {
        let (writer, file) = Shared::create("test", 1000).expect("memory");
        let reader = ReadOnly::map(&file, 1000).expect("it can be mapped");
        writer.words()[999].store(7, Ordering::Release);
        assert_eq!((reader.load(999, Ordering::Acquire), reader.load(1000, Ordering::Acquire)), (7, 0));
        drop(writer);
        assert_eq!(reader.load(999, Ordering::Acquire), 7, "it is there as long as anybody has it");
    }

    #[test]
    fn nobody_can_cut_it_short() {
        let (_writer, file) = Shared::create("test", 1000).expect("memory");
        assert!(ftruncate(&file, 8).is_err());
    }
}
