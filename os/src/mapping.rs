//! One mapped range of memory: the only place that maps and unmaps.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use crate::fork::ForkGuard;
use rustix::mm::{self, Advice, MapFlags, MlockFlags, ProtFlags};

/// A mapping of this process, unmapped when dropped. It is not inherited over fork: a child that
/// touches it takes a fault, so the verbs above ask their [`ForkGuard`] first.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    guard: ForkGuard,
}

// SAFETY: a mapping belongs to the process, not to a thread, and `Mapping` itself gives out only a
// raw pointer: what is done through it is justified where it is done.
unsafe impl Send for Mapping {}
// SAFETY: as above; no method changes anything through `&self`.
unsafe impl Sync for Mapping {}

/// What may be done through a mapping of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    ReadWrite,
    ReadOnly,
}

impl Mapping {
    /// Maps the first `bytes` of `descriptor`, shared with everybody who maps it too.
    pub(crate) fn shared(
        descriptor: BorrowedFd<'_>,
        bytes: usize,
        access: Access,
    ) -> io::Result<Mapping> {
        Mapping::shared_at(descriptor, 0, bytes, access)
    }

    /// Maps `bytes` of `descriptor` from `offset` on, shared with everybody who maps it too.
    pub(crate) fn shared_at(
        descriptor: BorrowedFd<'_>,
        offset: u64,
        bytes: usize,
        access: Access,
    ) -> io::Result<Mapping> {
        let protection = match access {
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
            Access::ReadOnly => ProtFlags::READ,
        };
        // SAFETY: the kernel chooses an address that is free, so no other object is touched.
        let base = unsafe {
            mm::mmap(ptr::null_mut(), bytes, protection, MapFlags::SHARED, descriptor, offset)
        }?;
        Mapping::keep(base.cast(), bytes)
    }

    /// Maps `bytes` of zeros that only this process can reach.
    pub(crate) fn private(bytes: usize) -> io::Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: as in `shared`.
        let base =
            unsafe { mm::mmap_anonymous(ptr::null_mut(), bytes, protection, MapFlags::PRIVATE) }?;
        Mapping::keep(base.cast(), bytes)
    }

    fn keep(base: *mut u8, bytes: usize) -> io::Result<Mapping> {
        let base = NonNull::new(base).expect("the kernel maps nothing at address zero");
        let mapping = Mapping { base, bytes, guard: ForkGuard::here() };
        // SAFETY: the range was mapped above and is ours alone.
        unsafe { mm::madvise(mapping.base.as_ptr().cast(), bytes, Advice::LinuxDontFork) }?;
        Ok(mapping)
    }

    /// Asks the kernel for huge pages behind this mapping; it may or may not find some.
    pub(crate) fn advise_huge(&self) -> io::Result<()> {
        let base = self.base.as_ptr().cast();
        // SAFETY: the range is mapped as long as `self` lives; the advice changes no byte.
        Ok(unsafe { mm::madvise(base, self.bytes, Advice::LinuxHugepage) }?)
    }

    /// Keeps the pages in memory from now on, and makes absent pages resident.
    pub(crate) fn lock(&self) -> io::Result<()> {
        let base = self.base.as_ptr().cast();
        // SAFETY: the range is mapped as long as `self` lives; locking changes no byte.
        Ok(unsafe { mm::mlock_with(base, self.bytes, MlockFlags::empty()) }?)
    }

    #[inline]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.guard.in_child() {
            // The child of a fork never had this mapping; something else may live there now.
            return;
        }
        // SAFETY: `base` and `bytes` are what mmap returned, and every handle that gives access to
        // the range keeps the `Mapping` alive, so nothing can reach it any more.
        let unmapped = unsafe { mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of a range of our own cannot fail");
    }
}
