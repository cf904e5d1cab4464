//! Storage: memory with one writer.
//!
//! Its owner creates it as a memory file, maps it for writing, and seals it. From then on it cannot be mapped
//! for writing again, by the owner either, and its size is fixed: the kernel enforces both. The owner *lends*
//! it by passing the descriptor; the other party *borrows* it, which checks the seals and the size before
//! anything is mapped. The owner *retires* it by dropping it; what a borrower has mapped stays readable until
//! the borrower drops it too.

use std::borrow::Borrow;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};
use std::slice;
use std::sync::Arc;

use rustix::fs::{self, MemfdFlags, SealFlags};
use rustix::io::Errno;
use thiserror::Error;

use crate::copy::copy_out;
#[cfg(not(loom))]
use crate::copy::expect_read;
use crate::foreign::Foreign;
use crate::mapping::{Access, Mapping};

/// Storage sizes are multiples of this.
pub const STORAGE_GRAIN_BYTES: usize = 4096;

/// Storage on huge pages has a size that is a multiple of this.
pub const HUGE_GRAIN_BYTES: usize = 2 << 20;

/// What the kernel counts the pages of a file in.
const BLOCK_BYTES: u64 = 512;

/// What no storage can do without: fixed size, no second writer, no further change of seals.
const SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

/// What kind of memory to ask for. Both wishes are dropped where the machine does not grant them;
/// [`Storage::is_huge`] and [`Storage::is_locked`] return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageOptions {
    /// Use huge pages: fewer address translations for large storage that is read at random.
    pub huge: bool,
    /// Keep the storage in memory from the start: no page fault later, within the locked-memory limit.
    pub locked: bool,
}

/// Storage of our own: we read and write it, others can only read it.
#[derive(Debug)]
pub struct Storage {
    mapping: Arc<Mapping>,
    huge: bool,
    locked: bool,
}

impl Storage {
    /// Creates `bytes` of zeros, rounded up to the grain, sealed. The descriptor is for lending: pass a
    /// duplicate to each borrower and drop it after the last. `name` shows in `/proc/PID/maps`.
    ///
    /// Pages take memory when they are first touched.
    ///
    /// # Errors
    /// As from the kernel: no memory, no descriptor left.
    pub fn create(
        name: &str,
        bytes: usize,
        options: StorageOptions,
    ) -> io::Result<(Storage, OwnedFd)> {
        if options.huge {
            // No huge pages set aside is the usual case, not an error.
            if let Ok(created) = Storage::create_as(name, bytes, options, true) {
                return Ok(created);
            }
        }
        Storage::create_as(name, bytes, options, false)
    }

    fn create_as(
        name: &str,
        bytes: usize,
        options: StorageOptions,
        huge_file: bool,
    ) -> io::Result<(Storage, OwnedFd)> {
        let grain = if huge_file { HUGE_GRAIN_BYTES } else { STORAGE_GRAIN_BYTES };
        let bytes = bytes
            .max(1)
            .checked_next_multiple_of(grain)
            .filter(|bytes| isize::try_from(*bytes).is_ok())
            .ok_or(io::ErrorKind::InvalidInput)?;
        let descriptor = memory_file(name, huge_file)?;
        fs::ftruncate(&descriptor, bytes as u64)?;
        if huge_file {
            // Borrowers refuse holes here. Small pages are used if there are not so many huge ones.
            fs::fallocate(&descriptor, fs::FallocateFlags::empty(), 0, bytes as u64)?;
        }
        let mapping = Mapping::shared(descriptor.as_fd(), bytes, Access::ReadWrite)?;
        fs::fcntl_add_seals(&descriptor, SEALS)?;
        let huge = huge_file || (options.huge && mapping.advise_huge().is_ok());
        let locked = options.locked && mapping.lock().is_ok();
        Ok((Storage { mapping: Arc::new(mapping), huge, locked }, descriptor))
    }

    /// Size in bytes, a multiple of [`STORAGE_GRAIN_BYTES`].
    #[inline]
    pub fn bytes(&self) -> usize {
        self.mapping.bytes()
    }

    /// Whether huge pages were granted, or at least asked for with the kernel's consent.
    pub fn is_huge(&self) -> bool {
        self.huge
    }

    /// Whether the storage is locked in memory.
    pub fn is_locked(&self) -> bool {
        self.locked
    }

    /// Our bytes, to read and to write. Borrowers see what is written, as it is written.
    ///
    /// # Panics
    /// If the range is not within the storage.
    #[inline]
    pub fn bytes_mut(&mut self, offset: usize, count: usize) -> &mut [u8] {
        let bytes = self.mapping.bytes();
        assert!(offset <= bytes && count <= bytes - offset, "range outside the storage");
        // SAFETY: the range is within the mapping, checked above.
        let start = unsafe { self.mapping.base().add(offset) };
        // SAFETY: mapped for writing while `self` lives. Only this `Storage` reaches the mapping
        // (`into_mapping` consumes it), it is borrowed exclusively for the slice's life, and the
        // seals keep every other process from writing.
        unsafe { slice::from_raw_parts_mut(start.as_ptr(), count) }
    }

    #[cfg(not(loom))]
    pub(crate) fn into_mapping(self) -> Arc<Mapping> {
        self.mapping
    }
}

/// The file system of memory files on huge pages that are set aside, as `fstatfs` names it.
const HUGETLBFS: u64 = 0x9584_58f6;

fn memory_file(name: &str, huge: bool) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let flags = if huge { flags | MemfdFlags::HUGETLB } else { flags };
    match fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Before Linux 6.3 there is no such flag; the seal it adds is not one we depend on.
        Err(Errno::INVAL) => Ok(fs::memfd_create(name, flags)?),
        other => Ok(other?),
    }
}

/// Why a lent descriptor was refused. Nothing was mapped.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BorrowError {
    /// Not a memory file that can carry seals.
    #[error("the descriptor lent as storage is not a sealed memory file")]
    Kind,
    /// A seal is missing: the owner could shrink it under us, or others could write it.
    #[error("storage with seals {0:#x}: must have shrink, grow, future-write and seal (0x17)")]
    Seals(u32),
    /// The size is not what was agreed.
    #[error("storage of {found} bytes: must have {least} to {most}")]
    Size {
        /// The size of the file.
        found: u64,
        /// Least size that would do.
        least: usize,
        /// Largest size that would do.
        most: usize,
    },
    /// It has pages beyond its end, which the process that closes it last would have to free.
    #[error("storage of {bytes} bytes with pages of {found} bytes")]
    Pages {
        /// The size of the file.
        bytes: u64,
        /// The bytes that its pages take.
        found: u64,
    },
    /// It is on huge pages that are set aside, and has holes: where this process may have no such page, reading a hole
    /// would end the process.
    #[error("storage of {bytes} bytes on huge pages has only {found} bytes: must be whole")]
    Holes {
        /// The size of the file.
        bytes: u64,
        /// The bytes that its pages take.
        found: u64,
    },
    /// The kernel refused to examine or to map it.
    #[error("storage could not be mapped: {0}")]
    Os(#[from] io::Error),
}

/// Storage of another party: we can read it, and it may change while we do.
#[derive(Clone, Debug)]
pub struct Borrowed {
    mapping: Arc<Mapping>,
}

/// A range of storage of another party's. There is no slice of it, for it may change at any time.
#[derive(Clone, Copy, Debug)]
pub struct LentPart<'a> {
    storage: &'a Borrowed,
    offset: usize,
    bytes: usize,
}

impl<'a> LentPart<'a> {
    /// How many bytes there are.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first `bytes` of them, or all if there are not so many.
    pub fn truncated(self, bytes: usize) -> LentPart<'a> {
        LentPart { bytes: self.bytes.min(bytes), ..self }
    }

    /// Copies the bytes from `at` on out.
    ///
    /// # Errors
    /// [`OutOfRange`] if there are not so many.
    pub fn read(&self, at: usize, target: &mut [u8]) -> Result<(), OutOfRange> {
        if at > self.bytes || target.len() > self.bytes - at {
            return Err(OutOfRange);
        }
        self.storage.read(self.offset + at, target)
    }

    /// For the kernel to read, which copes with bytes that change.
    pub(crate) fn as_io(&self) -> libc::iovec {
        // SAFETY: the range is within the mapping: checked when this was made.
        let base = unsafe { self.storage.mapping.base().add(self.offset) };
        libc::iovec { iov_base: base.as_ptr().cast(), iov_len: self.bytes }
    }
}

/// A range that is not within what was lent.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("range outside the lent storage")]
pub struct OutOfRange;

impl Borrowed {
    /// Checks what `descriptor` is and maps it for reading. The descriptor is not needed afterwards. Nothing
    /// here can wait for the peer that passed it.
    ///
    /// # Errors
    /// [`BorrowError`] if it is not storage, or not of a size within `bytes`.
    pub fn borrow(
        descriptor: impl Borrow<Foreign>,
        bytes: RangeInclusive<usize>,
    ) -> Result<Borrowed, BorrowError> {
        let descriptor = descriptor.borrow();
        if descriptor.in_child() {
            return Err(io::Error::from(io::ErrorKind::NotConnected).into());
        }
        // Only memory files answer this question: devices, sockets and files on disk do not. Those after
        // it would be asked of a file system, which could let us wait.
        let seals = fs::fcntl_get_seals(descriptor).map_err(|_| BorrowError::Kind)?;
        if !seals.contains(SEALS) {
            return Err(BorrowError::Seals(seals.bits()));
        }
        let facts = fs::fstat(descriptor).map_err(io::Error::from)?;
        let found = facts.st_size as u64;
        let (least, most) = (*bytes.start(), *bytes.end());
        if found < least.max(1) as u64 || found > most as u64 {
            return Err(BorrowError::Size { found, least, most });
        }
        // What is within the size may lie on a huge page that is not. With its size sealed it gets no more.
        let pages_bytes = facts.st_blocks as u64 * BLOCK_BYTES;
        if pages_bytes > found + HUGE_GRAIN_BYTES as u64 {
            return Err(BorrowError::Pages { bytes: found, found: pages_bytes });
        }
        // With its seals it gets no more holes than it has.
        let system = fs::fstatfs(descriptor).map_err(io::Error::from)?;
        if system.f_type as u64 & u64::from(u32::MAX) == HUGETLBFS && pages_bytes < found {
            return Err(BorrowError::Holes { bytes: found, found: pages_bytes });
        }
        let mapping = Mapping::shared(descriptor.as_fd(), found as usize, Access::ReadOnly)?;
        descriptor.set_mapped();
        Ok(Borrowed { mapping: Arc::new(mapping) })
    }

    /// Size in bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.mapping.bytes()
    }

    /// Whether `count` bytes at `offset` are within what was lent.
    #[inline]
    pub fn contains(&self, offset: usize, count: usize) -> bool {
        let bytes = self.mapping.bytes();
        offset <= bytes && count <= bytes - offset
    }

    /// Copies bytes out, each read once. The owner may change them meanwhile; what arrives is then some
    /// mixture of old and new.
    ///
    /// # Errors
    /// [`OutOfRange`] if the range is not within what was lent; nothing is copied then.
    #[inline]
    pub fn read(&self, offset: usize, target: &mut [u8]) -> Result<(), OutOfRange> {
        if !self.contains(offset, target.len()) {
            return Err(OutOfRange);
        }
        // SAFETY: the range is within the mapping, checked above.
        let source = unsafe { self.mapping.base().add(offset) };
        // SAFETY: the source is mapped while `self` lives, the target is a slice of ours. They do not
        // overlap: safe code has no slice of a borrowed mapping.
        unsafe { copy_out(source.as_ptr(), target.as_mut_ptr(), target.len()) };
        Ok(())
    }

    /// Prefetches the lines of a range, to be read soon. Nothing happens if the range is not within what was lent.
    #[inline]
    #[cfg(not(loom))]
    pub fn expect(&self, offset: usize, count: usize) {
        if count == 0 || !self.contains(offset, count) {
            return;
        }
        const LINE_BYTES: usize = 64;
        let base = self.mapping.base().as_ptr();
        let first = offset - offset % LINE_BYTES;
        for line in (first..offset + count).step_by(LINE_BYTES) {
            expect_read(base.wrapping_add(line));
        }
    }

    /// A range, to be given to the kernel where it is.
    ///
    /// # Errors
    /// [`OutOfRange`] if it is not within what was lent.
    pub fn part(&self, offset: usize, bytes: usize) -> Result<LentPart<'_>, OutOfRange> {
        if !self.contains(offset, bytes) {
            return Err(OutOfRange);
        }
        Ok(LentPart { storage: self, offset, bytes })
    }

    #[cfg(not(loom))]
    pub(crate) fn into_mapping(self) -> Arc<Mapping> {
        self.mapping
    }
}

/// Memory for this process alone, given back to the kernel when dropped. Unlike a `Vec` it leaves
/// nothing behind in the allocator, so a burst does not leave its peak resident.
#[derive(Debug)]
pub struct Scratch {
    mapping: Mapping,
}

impl Scratch {
    /// At least `bytes` of zeros.
    ///
    /// # Errors
    /// As from the kernel: no memory.
    pub fn new(bytes: usize) -> io::Result<Scratch> {
        let bytes = bytes
            .max(1)
            .checked_next_multiple_of(STORAGE_GRAIN_BYTES)
            .ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Scratch { mapping: Mapping::private(bytes)? })
    }

    /// All bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: private memory, mapped while `self` lives; changed only through `&mut self`.
        unsafe { slice::from_raw_parts(self.mapping.base().as_ptr(), self.mapping.bytes()) }
    }

    /// All bytes, to change.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.mapping.base().as_ptr(), self.mapping.bytes()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storage(bytes: usize) -> (Storage, OwnedFd) {
        Storage::create("test", bytes, StorageOptions::default()).unwrap()
    }

    #[test]
    fn what_the_owner_writes_the_borrower_reads() {
        let (mut own, descriptor) = storage(10_000);
        assert_eq!(own.bytes(), 12_288);
        let lent = Borrowed::borrow(Foreign::from(descriptor), 12_288..=12_288).unwrap();
        own.bytes_mut(4090, 12).copy_from_slice(b"across pages");
        let mut read = [0; 12];
        lent.read(4090, &mut read).unwrap();
        assert_eq!(&read, b"across pages");
        drop(own);
        lent.read(4090, &mut read).unwrap();
        assert_eq!(&read, b"across pages", "readable after the owner retired it");
    }

    #[test]
    fn borrower_cannot_read_past_the_end() {
        let (_own, descriptor) = storage(4096);
        let lent = Borrowed::borrow(Foreign::from(descriptor), 4096..=4096).unwrap();
        let mut two = [0; 2];
        assert_eq!(lent.read(4094, &mut two), Ok(()));
        assert_eq!(lent.read(4095, &mut two), Err(OutOfRange));
        assert_eq!(lent.read(usize::MAX, &mut two), Err(OutOfRange));
        for (at, bytes) in [(0, 4096), (63, 2), (4095, 1), (4095, 2), (4096, 0), (9, usize::MAX)] {
            lent.expect(at, bytes);
        }
        assert_eq!(lent.read(4096, &mut []), Ok(()));
    }

    #[test]
    fn wrong_kind_seals_or_size_is_refused() {
        let refused = |descriptor: &OwnedFd| {
            let passed = Foreign::from(descriptor.try_clone().unwrap());
            Borrowed::borrow(passed, 4096..=8192).unwrap_err()
        };
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(matches!(refused(&reader.into()), BorrowError::Kind));
        let file = tempfile();
        assert!(matches!(refused(&file), BorrowError::Kind));

        let unsealed = memory_file("test", false).unwrap();
        fs::ftruncate(&unsealed, 4096).unwrap();
        assert!(matches!(refused(&unsealed), BorrowError::Seals(_)));
        fs::fcntl_add_seals(&unsealed, SealFlags::SHRINK | SealFlags::GROW).unwrap();
        assert!(matches!(refused(&unsealed), BorrowError::Seals(_)));

        for bytes in [12_288, 1 << 30] {
            let (_own, descriptor) = storage(bytes);
            assert!(matches!(refused(&descriptor), BorrowError::Size { .. }));
        }
    }

    #[test]
    fn pages_beyond_the_end_are_refused() {
        let with_pages = |bytes: usize| {
            let descriptor = memory_file("test", false).unwrap();
            fs::ftruncate(&descriptor, 4096).unwrap();
            let kept = fs::FallocateFlags::KEEP_SIZE;
            fs::fallocate(&descriptor, kept, 0, bytes as u64).unwrap();
            fs::fcntl_add_seals(&descriptor, SEALS).unwrap();
            Borrowed::borrow(Foreign::from(descriptor), 4096..=4096)
        };
        with_pages(HUGE_GRAIN_BYTES).unwrap();
        let refused = with_pages(2 * HUGE_GRAIN_BYTES).unwrap_err();
        assert!(matches!(refused, BorrowError::Pages { bytes: 4096, .. }), "{refused}");
    }

    fn tempfile() -> OwnedFd {
        let path = std::env::temp_dir().join(format!("siga-storage-{}", std::process::id()));
        let file = std::fs::File::create(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file.set_len(4096).unwrap();
        file.into()
    }

    #[test]
    fn nobody_can_write_what_was_lent() {
        let (_own, descriptor) = storage(4096);
        let mapped = Mapping::shared(descriptor.as_fd(), 4096, Access::ReadWrite);
        assert!(mapped.is_err());
        assert!(rustix::io::pwrite(&descriptor, b"x", 0).is_err());
        assert!(fs::ftruncate(&descriptor, 0).is_err());
        assert!(fs::fcntl_add_seals(&descriptor, SealFlags::WRITE).is_err());
    }

    #[test]
    fn wishes_the_machine_cannot_grant_are_dropped() {
        let options = StorageOptions { huge: true, locked: true };
        let (mut own, descriptor) = Storage::create("test", 1 << 20, options).unwrap();
        assert!(own.bytes() >= 1 << 20);
        own.bytes_mut(0, 1 << 20).fill(7);
        let lent = Borrowed::borrow(Foreign::from(descriptor), own.bytes()..=own.bytes()).unwrap();
        let mut byte = [0];
        lent.read((1 << 20) - 1, &mut byte).unwrap();
        assert_eq!(byte, [7]);
    }

    #[test]
    fn absurd_sizes_are_errors() {
        assert!(Storage::create("test", usize::MAX, StorageOptions::default()).is_err());
        assert!(Scratch::new(usize::MAX).is_err());
    }

    #[test]
    fn holes_on_huge_pages_are_not_borrowed() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        // A kernel without huge pages has no such file.
        let Ok(file) = fs::memfd_create("huge", flags) else { return };
        fs::ftruncate(&file, HUGE_GRAIN_BYTES as u64).unwrap();
        fs::fcntl_add_seals(&file, SEALS).unwrap();
        let refused = Borrowed::borrow(Foreign::from(file), 1..=HUGE_GRAIN_BYTES).unwrap_err();
        assert!(matches!(refused, BorrowError::Holes { found: 0, .. }), "{refused}");
        // What we lend ourselves is whole, or on small pages.
        let options = StorageOptions { huge: true, locked: false };
        let (own, descriptor) = Storage::create("test", 1, options).unwrap();
        let lent = Borrowed::borrow(Foreign::from(descriptor), 1..=own.bytes()).unwrap();
        lent.read(own.bytes() - 1, &mut [0]).unwrap();
    }

    #[test]
    fn scratch_is_zeroed_and_private() {
        let mut scratch = Scratch::new(5000).unwrap();
        assert!(scratch.bytes().iter().all(|byte| *byte == 0));
        scratch.bytes_mut()[4999] = 1;
        assert_eq!(scratch.bytes()[4999], 1);
    }
}
