//! Descriptors that a peer passed.
//!
//! A descriptor of any kind can be passed, and closing it can take as long as its maker wants: a file of a
//! FUSE file system waits for its daemon to answer, a TCP socket that lingers for its peer to read, and a
//! Unix socket in whose queue such a descriptor lies for whatever that one waits for. So a [`Foreign`] that
//! was not adopted is closed by the thread that drops it only if that close is known not to wait. Otherwise
//! it is *refused*: a thread that does nothing else closes it.
//!
//! [`close_on_a_thread`] registers the function that starts that thread, usually [`spawn_closer`]: hosts and
//! guests do. In a process that has registered none, the thread that drops a refused descriptor closes it.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};
use std::thread;

use rustix::fs;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    Shutdown, SocketType, sockopt,
};

use crate::fork::{ForkGuard, ForkSafeFd};

/// A descriptor that a peer passed. A forked child does not have it.
#[derive(Debug)]
pub struct Foreign {
    /// `None` only while it is dropped.
    descriptor: Option<ForkSafeFd>,
    /// Whether it is a memory file that we have mapped: then its close frees no page.
    is_mapped: AtomicBool,
}

impl From<OwnedFd> for Foreign {
    fn from(descriptor: OwnedFd) -> Foreign {
        Foreign {
            descriptor: Some(ForkSafeFd::foreign(descriptor)),
            is_mapped: AtomicBool::new(false),
        }
    }
}

impl Foreign {
    /// The descriptor, as if it were our own: for those who trust the peer.
    ///
    /// # Errors
    /// `NotConnected` in a forked child, which does not have it.
    pub fn trust(self) -> io::Result<OwnedFd> {
        self.adopt()?.into_owned().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// The descriptor, once it was found to be what was wanted.
    pub(crate) fn adopt(mut self) -> io::Result<ForkSafeFd> {
        let descriptor = self.descriptor.take().expect("taken only here and by drop");
        if descriptor.in_child() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        descriptor.adopt();
        Ok(descriptor)
    }

    /// Whether the caller is a forked child, which does not have the descriptor.
    pub(crate) fn in_child(&self) -> bool {
        self.descriptor.as_ref().is_none_or(ForkSafeFd::in_child)
    }

    /// Whether it is a memory file, sealed or not: what is lent is one. No file system of a user's is asked.
    pub fn is_memory_file(&self) -> bool {
        !self.in_child() && fs::fcntl_get_seals(self).is_ok()
    }

    /// It is a memory file, and was mapped.
    pub(crate) fn set_mapped(&self) {
        // Relaxed: read by the thread that drops it, which got it from the thread that set this.
        self.is_mapped.store(true, Ordering::Relaxed);
    }
}

impl AsFd for Foreign {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_ref().expect("taken only when it is consumed").as_fd()
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let Some(descriptor) = self.descriptor.take() else { return };
        if descriptor.in_child() || *self.is_mapped.get_mut() || closes_at_once(descriptor.as_fd())
        {
            drop(descriptor);
        } else if is_end(descriptor.as_fd()) {
            shut_down(&descriptor);
            // It is not received from: it may not be set up to read urgent bytes in their place. For the same
            // reason a descriptor can lie in a stream without bytes: the owner of another copy of the end has
            // received the urgent byte that it came with.
            let held = descriptors_in(descriptor.as_fd());
            close_or_refuse(descriptor, held);
        } else {
            refuse(descriptor);
        }
    }
}

/// Messages that are received of an end that is dropped: more than an honest peer leaves there.
const UNRECEIVED_MAX: usize = 64;

/// Our end of a socket over which descriptors can come. What lies in its queue when the end is closed is closed
/// with it: so an end that holds descriptors is shut down when it is dropped, and refused.
#[derive(Debug)]
pub(crate) struct End {
    /// `None` only while it is dropped.
    socket: Option<ForkSafeFd>,
}

impl End {
    pub(crate) fn new(socket: ForkSafeFd) -> End {
        End { socket: Some(socket) }
    }

    /// Whether the caller is a forked child, which does not have the end.
    #[inline]
    pub(crate) fn in_child(&self) -> bool {
        self.socket().in_child()
    }

    #[inline]
    fn socket(&self) -> &ForkSafeFd {
        self.socket.as_ref().expect("taken only by drop")
    }
}

impl AsFd for End {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let Some(socket) = self.socket.take() else { return };
        if socket.in_child() {
            return;
        }
        shut_down(&socket);
        if descriptors_in_adopted(socket.as_fd()).is_some_and(|held| held > 0) {
            // An honest peer has lent storage that was not heard of: that needs no thread.
            // Of another peer, what waits to be closed takes one number while it lies in the queue, not many.
            let mut is_honest = true;
            for _ in 0..UNRECEIVED_MAX {
                let take = |passed: Foreign| is_honest &= closes_at_once(passed.as_fd());
                match receive(&socket, &mut [0; 64], RecvFlags::DONTWAIT, take) {
                    Ok(Received { bytes: 1.., .. }) if is_honest => {}
                    _ => break,
                }
            }
        }
        let held = descriptors_in_adopted(socket.as_fd());
        close_or_refuse(socket, held);
    }
}

/// Whether this is an end of a connection between Unix sockets, and so has one queue.
fn is_end(socket: BorrowedFd<'_>) -> bool {
    let is_connectable = |kind| matches!(kind, Ok(SocketType::STREAM | SocketType::SEQPACKET));
    sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX)
        && is_connectable(sockopt::socket_type(socket))
        // A listener has the queues of all whom it has not taken in.
        && sockopt::socket_acceptconn(socket) == Ok(false)
}

/// Nothing more comes to this end from here on.
fn shut_down(end: &ForkSafeFd) {
    // After an error no other message can come first.
    let _ = net::shutdown(end, Shutdown::Read);
}

/// Closes an end to which nothing more comes, if nothing that waits is closed with it: `held` descriptors lie in
/// its queue, as far as is known.
fn close_or_refuse(end: ForkSafeFd, held: Option<u64>) {
    if held == Some(0) {
        return drop(end);
    }
    // The peer is notified now; when the end is closed is not known.
    let _ = net::shutdown(&end, Shutdown::Both);
    refuse(end);
}

/// Descriptors in the queue of an end that was adopted; none if that cannot be found out.
fn descriptors_in_adopted(socket: BorrowedFd<'_>) -> Option<u64> {
    // A stream without bytes holds nothing, where urgent bytes are read in their place. A packet may have no
    // bytes, and descriptors all the same.
    let is_stream = sockopt::socket_type(socket) == Ok(SocketType::STREAM);
    if is_stream && rustix::io::ioctl_fionread(socket) == Ok(0) {
        return Some(0);
    }
    descriptors_in(socket)
}

/// Descriptors in the queue of a Unix socket; none if that cannot be found out.
pub(crate) fn descriptors_in(socket: BorrowedFd<'_>) -> Option<u64> {
    // The kernel counts them since 5.8. It takes a number to ask, and there may be none.
    let path = format!("/proc/thread-self/fdinfo/{}", socket.as_raw_fd());
    let facts = std::fs::read_to_string(path).ok()?;
    facts.lines().find_map(|line| line.strip_prefix("scm_fds:"))?.trim().parse().ok()
}

/// Descriptors that the kernel lets a message carry.
const PASSED_MAX: usize = 253;

/// What came over a socket, beside descriptors.
pub(crate) struct Received {
    pub(crate) bytes: usize,
    /// The message was longer than the buffer: the rest is lost.
    pub(crate) is_cut: bool,
    /// Descriptors came along that this process had no number left for.
    pub(crate) has_lost: bool,
}

/// Receives a message, and calls `take` with each descriptor that came along. There is room for all that
/// there can be: what there is no room for the kernel would close here and now.
pub(crate) fn receive(
    socket: impl AsFd,
    buffer: &mut [u8],
    flags: RecvFlags,
    mut take: impl FnMut(Foreign),
) -> rustix::io::Result<Received> {
    // Not initialised, and touched only if something came: it costs nothing to have it.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut buffers = [IoSliceMut::new(buffer)];
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let message = net::recvmsg(socket, &mut buffers, &mut ancillary, flags)?;
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = part {
            passed.map(Foreign::from).for_each(&mut take);
        }
    }
    Ok(Received {
        bytes: message.bytes,
        is_cut: message.flags.contains(ReturnFlags::TRUNC),
        has_lost: message.flags.contains(ReturnFlags::CTRUNC),
    })
}

/// Memory that a memory file may have for its close to count as one that does not wait: the kernel frees a
/// mebibyte in 0.1 ms.
const FREED_BYTES_MAX: u64 = 1 << 20;

/// Whether closing cannot wait, and takes a bounded time. No file system of a user's is asked.
fn closes_at_once(descriptor: BorrowedFd<'_>) -> bool {
    // Only the kernel's own file systems in memory answer this question, and so the next.
    fs::fcntl_get_seals(descriptor).is_ok()
        && fs::fstat(descriptor).is_ok_and(|facts| facts.st_blocks as u64 * 512 <= FREED_BYTES_MAX)
}

/// Whether closing cannot wait while the parent of this process has the descriptor too: what waits then are
/// files that want to know of each close, and sockets and memory files are none. Allowed between fork and
/// exec.
pub(crate) fn closes_at_once_in_child(descriptor: BorrowedFd<'_>) -> bool {
    sockopt::socket_domain(descriptor).is_ok() || fs::fcntl_get_seals(descriptor).is_ok()
}

/// Refused descriptors of one process, in the order in which they were dropped. There can be as many as the
/// process may have descriptors: what a descriptor waits for that is being closed, those behind it wait for
/// too.
struct Refused {
    guard: ForkGuard,
    queue: Mutex<Queue>,
    come: Condvar,
    /// Whether there is a thread that closes them.
    is_served: AtomicBool,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<ForkSafeFd>,
    /// The thread closes one that waits here no longer.
    is_closing: bool,
}

/// Starts the thread that does [`close_refused`].
type Start = fn() -> io::Result<()>;

static START: OnceLock<Start> = OnceLock::new();

/// Registers what starts a thread that does [`close_refused`]. It is called when the first descriptor is
/// refused, by the thread that drops it; again if it fails, when the next is refused; and again in a forked
/// child, which has its own. Only the first that is registered counts.
pub fn close_on_a_thread(start: Start) {
    // Another thread was first, and starts the same.
    let _ = START.set(start);
}

/// Stack of the thread, which calls nothing deep.
const CLOSER_STACK_BYTES: usize = 64 << 10;

/// Starts a thread that does [`close_refused`]. It does not keep the process from ending.
///
/// # Errors
/// No thread is to be had.
pub fn spawn_closer() -> io::Result<()> {
    let thread = thread::Builder::new().name("siga refused".into()).stack_size(CLOSER_STACK_BYTES);
    // It is never joined: what it waits for may never come.
    thread.spawn(|| -> () { close_refused() }).map(drop)
}

/// Closes refused descriptors as they come, for ever. For a thread of its own, that is never joined: a close
/// can last until the process ends. A process that is killed while a close waits in the kernel may end only
/// after it.
pub fn close_refused() -> ! {
    block_signals();
    let refused = refused();
    loop {
        let mut queue = refused.lock();
        queue.is_closing = false;
        let next = loop {
            match queue.waiting.pop_front() {
                Some(next) => break next,
                None => {
                    let waited = refused.come.wait(queue);
                    queue = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
                }
            }
        };
        queue.is_closing = true;
        drop(queue);
        drop(next);
    }
}

/// Refused descriptors that are not closed yet.
pub fn waiting() -> usize {
    let queue = refused().lock();
    queue.waiting.len() + usize::from(queue.is_closing)
}

/// Leaves a descriptor to be closed by the thread that may wait for it.
pub(crate) fn refuse(descriptor: ForkSafeFd) {
    let Some(start) = START.get() else { return drop(descriptor) };
    let refused = refused();
    refused.lock().waiting.push_back(descriptor);
    refused.come.notify_one();
    // Relaxed: only decides which thread starts it; the descriptor is passed under the lock.
    if !refused.is_served.swap(true, Ordering::Relaxed) && start().is_err() {
        // No thread is to be had. The descriptor waits until one is.
        refused.is_served.store(false, Ordering::Relaxed);
    }
}

impl Refused {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Those of this process. A forked child has none and makes its own: its parent's lock may be held for ever.
fn refused() -> &'static Refused {
    static CURRENT: AtomicPtr<Refused> = AtomicPtr::new(ptr::null_mut());
    // Acquire: pairs with the Release below. What is pointed to is seen as it was made.
    let mut current = CURRENT.load(Ordering::Acquire);
    loop {
        // SAFETY: what was ever stored here comes from `Box::leak` and lives as long as the process.
        if let Some(known) = unsafe { current.as_ref() }
            && !known.guard.in_child()
        {
            return known;
        }
        // Once in a process, or twice if two threads refuse their first at the same time.
        let fresh = Box::leak(Box::new(Refused {
            guard: ForkGuard::here(),
            queue: Mutex::default(),
            come: Condvar::new(),
            is_served: AtomicBool::new(false),
        }));
        let (release, acquire) = (Ordering::Release, Ordering::Acquire);
        current = match CURRENT.compare_exchange(current, fresh, release, acquire) {
            Ok(_) => fresh,
            Err(other_thread) => other_thread,
        };
    }
}

/// Signals are for threads of the program.
fn block_signals() {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: fills in the set, for which there is room.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the set was filled in above; no former set is asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doorbell::Doorbell;
    use crate::fork::tests::run_in_child;

    fn is_open(number: i32) -> bool {
        // SAFETY: asks for the flags of a number; a closed one is an error.
        unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 }
    }

    #[test]
    fn child_closes_what_waits_for_nobody_and_leaves_the_rest_open() {
        let (end, _far) = Doorbell::ends().unwrap();
        let (_reader, writer) = io::pipe().unwrap();
        let (socket, other) = (Foreign::from(end), Foreign::from(OwnedFd::from(writer)));
        let number = |foreign: &Foreign| foreign.as_fd().as_raw_fd();
        let numbers = (number(&socket), number(&other));
        let found = run_in_child(|| {
            let found = u8::from(is_open(numbers.0)) | u8::from(is_open(numbers.1)) << 1;
            drop((socket, other));
            found | u8::from(is_open(numbers.1)) << 2
        });
        assert_eq!(found, 0b110, "a file may want to know of each close: nobody asks for it here");
    }

    #[test]
    fn adopted_end_is_closed_in_a_child_unasked() {
        let (_reader, writer) = io::pipe().unwrap();
        let adopted = Foreign::from(OwnedFd::from(writer)).adopt().unwrap();
        let number = adopted.as_fd().as_raw_fd();
        assert_eq!(run_in_child(|| u8::from(is_open(number))), 0);
    }

    #[test]
    fn descriptor_whose_urgent_byte_was_received_still_lies_in_a_foreign_end() {
        let (end, far) = Doorbell::ends().unwrap();
        let copy = end.try_clone().unwrap();
        let (_reader, writer) = io::pipe().unwrap();
        let passed = [writer.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = net::SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(net::SendAncillaryMessage::ScmRights(&passed)));
        let urgent = net::SendFlags::OOB;
        if net::sendmsg(&far, &[io::IoSlice::new(&[1])], &mut ancillary, urgent).is_err() {
            // A kernel without urgent bytes.
            return;
        }
        assert_eq!(net::recv(&copy, &mut [0; 1], RecvFlags::OOB).unwrap().1, 1);
        assert_eq!(rustix::io::ioctl_fionread(&end), Ok(0), "no byte");
        assert_eq!(descriptors_in(end.as_fd()), Some(1));
    }

    #[test]
    fn child_has_a_queue_of_its_own() {
        let held = refused().lock();
        // With its parent's it would wait for a thread that it does not have.
        assert_eq!(run_in_child(|| waiting() as u8), 0);
        drop(held);
    }
}
