//! What a forked child must not have: storage and descriptors of its parent.
//!
//! Mappings stay behind because they are made with `MADV_DONTFORK`. Descriptors stay behind because a child
//! closes those that a [`ForkSafe`] has: a doorbell that lived on in a child would hide the death
//! of its parent from the peer. A [`ForkGuard`] shows an object that it is the child's useless copy. [`fork`]
//! makes a child, for programs that want to see all this happen.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rustix::mm::{self, Advice, MapFlags, ProtFlags};
use rustix::process::{Pid, WaitOptions, waitpid};

use crate::foreign;

/// Remembers the process that made an object. Made once, compared at each use: one load.
#[derive(Clone, Copy, Debug)]
pub struct ForkGuard {
    page: &'static AtomicU64,
    process: u64,
}

impl ForkGuard {
    /// The guard of the calling process.
    ///
    /// # Panics
    /// If the kernel has no page left for the guard, once in the life of a process.
    pub fn here() -> ForkGuard {
        static PAGE: OnceLock<&'static AtomicU64> = OnceLock::new();
        static PROCESSES: AtomicU64 = AtomicU64::new(0);
        let page = *PAGE.get_or_init(wiped_on_fork);
        let mut process = page.load(Ordering::Relaxed);
        if process == 0 {
            // First use here, or first use in a child, whose page the kernel has wiped. The static
            // counter was inherited, so a child's number differs from all its ancestors'.
            let fresh = PROCESSES.fetch_add(1, Ordering::Relaxed) + 1;
            process = match page.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => fresh,
                Err(other_thread) => other_thread,
            };
        }
        ForkGuard { page, process }
    }

    /// Whether the caller is a forked child of the process that made this guard.
    #[inline]
    pub fn in_child(self) -> bool {
        self.page.load(Ordering::Relaxed) != self.process
    }
}

/// A page that reads as zeros in every child, whichever way it was forked.
fn wiped_on_fork() -> &'static AtomicU64 {
    let bytes = rustix::param::page_size();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses a free address; nothing else is touched.
    let page = unsafe { mm::mmap_anonymous(ptr::null_mut(), bytes, protection, MapFlags::PRIVATE) };
    let page = page.expect("one page of memory for the fork guard");
    // SAFETY: the range was mapped just above and no other code knows it.
    let advised = unsafe { mm::madvise(page, bytes, Advice::LinuxWipeOnFork) };
    advised.expect("MADV_WIPEONFORK, in Linux since 4.14");
    // SAFETY: the page is never unmapped, is aligned, holds zeros, and is only used as this atomic.
    unsafe { AtomicU64::from_ptr(page.cast()) }
}

/// What has a descriptor that a forked child does not have: closed there at the fork, never twice. A file, for example. The child's copy
/// is never dropped, so nothing but the descriptor may need to be given back in a child.
#[derive(Debug)]
pub struct ForkSafe<T: AsRawFd> {
    owner: Option<T>,
    guard: ForkGuard,
}

/// A descriptor that a forked child does not have.
pub type ForkSafeFd = ForkSafe<OwnedFd>;

impl<T: AsRawFd> ForkSafe<T> {
    /// Takes charge of the descriptor of `owner`, which keeps the same one from now on.
    pub fn new(owner: T) -> ForkSafe<T> {
        static CLOSER: OnceLock<()> = OnceLock::new();
        CLOSER.get_or_init(|| {
            // SAFETY: the handler only reads static atomics, asks what descriptors are, and closes them,
            // which is allowed between fork and exec in a child of a process with threads.
            let registered = unsafe { libc::pthread_atfork(None, None, Some(close_fork_safe)) };
            assert_eq!(registered, 0, "pthread_atfork: no memory for one handler");
        });
        FORK_SAFE.add(owner.as_raw_fd());
        ForkSafe { owner: Some(owner), guard: ForkGuard::here() }
    }

    /// Whether the caller is a forked child, in which the descriptor is closed and its number may be
    /// somebody else's.
    #[inline]
    pub fn in_child(&self) -> bool {
        self.guard.in_child()
    }

    /// What has the descriptor. None in a forked child.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        self.owner.as_ref().filter(|_| !self.guard.in_child())
    }

    /// What has the descriptor, to change it. None in a forked child.
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.owner.as_mut().filter(|_| !self.guard.in_child())
    }

    /// What has the descriptor, which children are to have from now on.
    fn release(&mut self) -> Option<T> {
        let owner = self.owner.take()?;
        // In this order: a fork in between leaves a descriptor that a peer passed open in the child.
        FORK_SAFE.remove(owner.as_raw_fd());
        FOREIGN.remove(owner.as_raw_fd());
        Some(owner)
    }
}

impl ForkSafeFd {
    /// Takes charge of a descriptor that a peer passed. A child closes it only if its close waits for
    /// nobody; otherwise the child has it until it executes another program.
    pub(crate) fn foreign(descriptor: OwnedFd) -> ForkSafeFd {
        // First, or a fork in between would have the child close it unasked.
        FOREIGN.add(descriptor.as_raw_fd());
        ForkSafeFd::new(descriptor)
    }

    /// What a peer passed is ours from now on: a child closes it unasked.
    pub(crate) fn adopt(&self) {
        if !self.in_child() {
            FOREIGN.remove(self.as_fd().as_raw_fd());
        }
    }

    /// Gives the descriptor up: a child will have it. None in a forked child.
    pub(crate) fn into_owned(mut self) -> Option<OwnedFd> {
        if self.in_child() {
            return None;
        }
        self.release()
    }
}

impl<T: AsRawFd + AsFd> AsFd for ForkSafe<T> {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.owner.as_ref().expect("taken only by drop").as_fd()
    }
}

impl<T: AsRawFd> Drop for ForkSafe<T> {
    fn drop(&mut self) {
        if self.guard.in_child() {
            // Closed at the fork; the number may be another descriptor of this process by now.
            std::mem::forget(self.owner.take());
        } else {
            drop(self.release());
        }
    }
}

/// Descriptors that can be closed in children: those below this number, far above the usual limit.
const FORK_SAFE_NUMBERS_MAX: usize = 1 << 20;

/// Numbers of descriptors, one bit each. Untouched parts take no memory.
struct Numbers {
    words: [AtomicU64; FORK_SAFE_NUMBERS_MAX / 64],
    /// Words that may have a bit set: a child reads no more of them.
    used: AtomicUsize,
}

/// Descriptors that a child must close.
static FORK_SAFE: Numbers = Numbers::none();

/// Of these, those that a peer passed, whose close may wait for the peer.
static FOREIGN: Numbers = Numbers::none();

impl Numbers {
    const fn none() -> Numbers {
        Numbers {
            words: [const { AtomicU64::new(0) }; FORK_SAFE_NUMBERS_MAX / 64],
            used: AtomicUsize::new(0),
        }
    }

    fn add(&self, descriptor: RawFd) {
        if let Some((at, word, bit)) = self.find(descriptor) {
            word.fetch_or(bit, Ordering::Relaxed);
            self.used.fetch_max(at + 1, Ordering::Relaxed);
        }
    }

    fn remove(&self, descriptor: RawFd) {
        if let Some((_, word, bit)) = self.find(descriptor) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    fn find(&self, descriptor: RawFd) -> Option<(usize, &AtomicU64, u64)> {
        let number = descriptor as usize;
        Some((number / 64, self.words.get(number / 64)?, 1 << (number % 64)))
    }
}

extern "C" fn close_fork_safe() {
    let used = FORK_SAFE.used.load(Ordering::Relaxed);
    for (index, word) in FORK_SAFE.words.iter().enumerate().take(used) {
        let mut bits = word.swap(0, Ordering::Relaxed);
        let foreign = FOREIGN.words[index].swap(0, Ordering::Relaxed);
        while bits != 0 {
            let bit = bits.trailing_zeros();
            let number = index * 64 + bit as usize;
            bits &= bits - 1;
            // The kernel copies descriptors before memory, and another thread of the parent may have opened this one in between: then the number is nobody's
            // here, or that of a file which the parent has closed meanwhile.
            // SAFETY: the request reads no memory.
            if unsafe { libc::fcntl(number as RawFd, libc::F_GETFD) } < 0 {
                continue;
            }
            // SAFETY: it is open, and nothing else of the child runs.
            let descriptor = unsafe { BorrowedFd::borrow_raw(number as RawFd) };
            if foreign >> bit & 1 == 0 || foreign::closes_at_once_in_child(descriptor) {
                // SAFETY: the bit states that a `ForkSafe` of the parent owns this number; the child's copy of that `ForkSafe` will not close it, so this is
                // the only close.
                unsafe { libc::close(number as RawFd) };
            }
        }
    }
}

/// A child that was forked and not waited for yet.
#[derive(Debug)]
#[must_use = "a child that is not waited for stays in the table of processes"]
pub struct Forked {
    number: Pid,
}

impl Forked {
    /// Its process number.
    pub fn process(&self) -> u32 {
        self.number.as_raw_nonzero().get() as u32
    }

    /// Waits until it has ended, and returns what its deed returned; none if a signal ended it.
    ///
    /// # Errors
    /// As from the kernel: none is expected.
    pub fn wait(self) -> io::Result<Option<u8>> {
        let ended = waitpid(Some(self.number), WaitOptions::empty())?;
        let (_, status) = ended.expect("it was waited for");
        Ok(status.exit_status().map(|status| status as u8))
    }
}

/// Forks. The child does `deed` and ends without running destructors; what the deed returns is its exit
/// status.
///
/// For proofs. The deed may call the verbs of whatever it inherited, and drop it. Memory of storage that was
/// borrowed as a slice before is not mapped in the child: touching it ends the child.
///
/// # Errors
/// If this process has other threads, whose locks would stay locked in the child for ever; otherwise what
/// the kernel says.
pub fn fork(deed: impl FnOnce() -> u8) -> io::Result<Forked> {
    // Workers of a ring (`iou-wrk-1234`) run the kernel, and hold no lock of the program.
    fork_beside("iou-", deed)
}

/// The same, beside threads whose names begin so. A lock that one of them holds at this moment stays locked in the child: a deed that wants it hangs,
/// which is what a proof is to find.
///
/// # Errors
/// As [`fork`], if there are other threads.
pub fn fork_beside(threads: &str, deed: impl FnOnce() -> u8) -> io::Result<Forked> {
    let is_other = |task: &io::Result<std::fs::DirEntry>| {
        let name = task.as_ref().map(|task| std::fs::read(task.path().join("comm")));
        !matches!(name, Ok(Ok(name)) if name.starts_with(threads.as_bytes()))
    };
    if std::fs::read_dir("/proc/self/task")?.filter(is_other).count() != 1 {
        return Err(io::Error::other("a process with several threads must not fork"));
    }
    // SAFETY: no thread but this one is at work on anything that the deed needs, unless those that are named hold a lock: then the deed waits for
    // ever. The allocator's locks are free in the child, because the C library takes them for the fork.
    unsafe { fork_as_is(deed) }
}

/// Exit status of a child whose deed panicked: what Rust programs have.
const PANICKED: u8 = 101;

/// # Safety
/// The deed needs no lock that another thread may hold at this moment.
pub(crate) unsafe fn fork_as_is(deed: impl FnOnce() -> u8) -> io::Result<Forked> {
    // SAFETY: the child does its deed, which the caller vouches for, and leaves.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // A panic must not climb into what the parent was doing.
            let status = catch_unwind(AssertUnwindSafe(deed)).unwrap_or(PANICKED);
            // SAFETY: ends the child at once, which is all it is still good for.
            unsafe { libc::_exit(status.into()) }
        }
        child => Ok(Forked { number: Pid::from_raw(child).expect("a child has a number") }),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::io::Read;
    use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

    static FORKS: RwLock<()> = RwLock::new(());

    /// While it is held, no test forks: a child has all descriptors of its parent's, and keeps open what a test closes.
    pub(crate) fn hold_forks() -> RwLockWriteGuard<'static, ()> {
        FORKS.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn may_fork() -> RwLockReadGuard<'static, ()> {
        FORKS.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a child computes.
    pub(crate) fn run_in_child(compute: impl FnOnce() -> u8) -> u8 {
        let _may_fork = may_fork();
        // SAFETY: these steps only use atomics and descriptors.
        let child = unsafe { fork_as_is(compute) }.unwrap();
        child.wait().unwrap().expect("it ended by itself")
    }

    #[test]
    fn child_knows_that_a_guard_is_not_its_own() {
        let guard = ForkGuard::here();
        assert!(!guard.in_child());
        assert_eq!(run_in_child(|| u8::from(guard.in_child())), 1);
        assert_eq!(run_in_child(|| u8::from(ForkGuard::here().in_child())), 0);
        assert!(!guard.in_child());
    }

    #[test]
    fn process_with_several_threads_does_not_fork() {
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || wait.recv().is_err());
        assert!(fork(|| 0).is_err());
        drop(end);
        assert!(other.join().unwrap());
    }

    #[test]
    fn fork_safe_descriptor_is_closed_in_the_child_and_only_there() {
        let (reader, writer) = std::io::pipe().unwrap();
        let descriptor = ForkSafeFd::new(OwnedFd::from(writer));
        let number = descriptor.as_fd().as_raw_fd();
        let open_in_child = run_in_child(|| {
            // SAFETY: asks for the flags of a number; a closed one is an error.
            u8::from(unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0)
        });
        assert_eq!(open_in_child, 0);
        rustix::io::write(&descriptor, b"x").unwrap();
        drop(descriptor);
        let mut all = Vec::new();
        (&reader).read_to_end(&mut all).unwrap();
        assert_eq!(all, b"x", "the parent's end worked, and closed when dropped");
    }
}
