//! Descriptors that a peer passed.
//!
//! A descriptor of any kind can be passed, and closing it can take as long as its maker wants: a file of a
//! FUSE file system waits for its daemon to answer, a TCP socket that lingers for its peer to read, and a
//! Unix socket in whose queue such a descriptor lies for whatever that one waits for. So a [`Foreign`] that
//! was not adopted is closed by the thread that drops it only if that close is known not to wait. Otherwise
//! it is *refused*: a thread that does nothing else closes it.
//!
//! Refused descriptors are charged to an [`Account`], one for each party that can pass some. Those of one account are
//! closed one after the other, those of others meanwhile by other threads: what one party passes holds up only what
//! it has passed itself.
//!
//! [`close_on_a_thread`] registers the function that starts such a thread, usually [`spawn_closer`]: hosts and
//! guests do. In a process that has registered none, the thread that drops a refused descriptor closes it.

use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread;

use rustix::fs;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType,
    sockopt,
};

use crate::fork::{ForkGuard, ForkSafeFd};

/// A party that descriptors are refused of. A clone is the same.
#[derive(Clone, Debug, Default)]
pub struct Account {
    waiting: Arc<AtomicUsize>,
}

impl Account {
    /// Descriptors of this process that wait to be closed because this party has passed them.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Tells accounts from each other while they live.
    fn id(&self) -> usize {
        Arc::as_ptr(&self.waiting).addr()
    }
}

/// A descriptor that a peer passed. A forked child does not have it.
#[derive(Debug)]
pub struct Foreign {
    /// `None` only while it is dropped.
    descriptor: Option<ForkSafeFd>,
    /// Whom it is charged to if it is refused; none for everybody without an account.
    account: Option<Account>,
    /// Whether it is a memory file that we have mapped: then its close frees no page.
    is_mapped: AtomicBool,
}

impl From<OwnedFd> for Foreign {
    fn from(descriptor: OwnedFd) -> Foreign {
        Foreign {
            descriptor: Some(ForkSafeFd::foreign(descriptor)),
            account: None,
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

    /// Charges it to this account if it is refused, and what comes over it if it is adopted as a socket.
    pub fn charge_to(&mut self, account: &Account) {
        self.account = Some(account.clone());
    }

    /// The account that it is charged to.
    pub(crate) fn account(&self) -> Option<Account> {
        self.account.clone()
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
            close_or_refuse(descriptor, held, self.account.take());
        } else {
            refuse(descriptor, self.account.take());
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
    /// Whom everything that comes is charged to.
    account: Option<Account>,
}

impl End {
    pub(crate) fn new(socket: ForkSafeFd) -> End {
        End { socket: Some(socket), account: None }
    }

    /// An end of which everything that comes is charged to an account.
    pub(crate) fn of(socket: ForkSafeFd, account: Option<Account>) -> End {
        End { socket: Some(socket), account }
    }

    pub(crate) fn charge_to(&mut self, account: &Account) {
        self.account = Some(account.clone());
    }

    /// Receives a message, as [`receive`].
    pub(crate) fn receive(
        &self,
        buffer: &mut [u8],
        flags: RecvFlags,
        mut take: impl FnMut(Foreign),
    ) -> rustix::io::Result<Received> {
        receive(self, buffer, flags, |mut passed| {
            passed.account.clone_from(&self.account);
            take(passed);
        })
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
        let account = self.account.take();
        if descriptors_in_adopted(socket.as_fd()).is_some_and(|held| held > 0) {
            // An honest peer has lent storage that was not heard of: that needs no thread.
            // Of another peer, what waits to be closed takes one number while it lies in the queue, not many.
            let mut is_honest = true;
            for _ in 0..UNRECEIVED_MAX {
                let take = |mut passed: Foreign| {
                    passed.account.clone_from(&account);
                    is_honest &= closes_at_once(passed.as_fd());
                };
                match receive(&socket, &mut [0; 64], RecvFlags::DONTWAIT, take) {
                    Ok(Received { bytes: 1.., .. }) if is_honest => {}
                    _ => break,
                }
            }
        }
        let held = descriptors_in_adopted(socket.as_fd());
        close_or_refuse(socket, held, account);
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
fn close_or_refuse(end: ForkSafeFd, held: Option<u64>, account: Option<Account>) {
    if held == Some(0) {
        return drop(end);
    }
    // The peer is notified now; when the end is closed is not known.
    let _ = net::shutdown(&end, Shutdown::Both);
    refuse_end(end, account);
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

/// Refused descriptors of one process, by account. There can be as many as the process may have descriptors.
struct Refused {
    guard: ForkGuard,
    /// The account of those without one.
    nobody: Account,
    queue: Mutex<Queue>,
    come: Condvar,
}

/// Threads that close descriptors, at most: so many accounts can have one whose close does not end.
const CLOSERS_MAX: usize = 32;

#[derive(Default)]
struct Queue {
    /// Accounts of which something waits or is being closed.
    lines: HashMap<usize, Line>,
    /// Those of them that no thread is at.
    turn: VecDeque<usize>,
    /// All that waits or is being closed, and those of them that are parked.
    waiting: usize,
    parked: usize,
    /// Threads, and those of them that wait for something to close.
    threads: usize,
    idle: usize,
}

/// Descriptors of one account that wait to be closed.
struct Line {
    account: Account,
    waiting: VecDeque<ForkSafeFd>,
    /// Sockets in whose queues something lies, in the queue of a socket pair: many for two descriptors.
    parked: Option<Parked>,
}

/// Sockets in the queue of a socket pair.
struct Parked {
    ends: (OwnedFd, OwnedFd),
    count: usize,
}

/// The part of the descriptors that this process may have that may lie in queues of socket pairs: the kernel counts what is in flight by user,
/// and refuses every process of this user to pass a descriptor when it is as many as the process may have.
const PARKED_SHARE: u64 = 4;

/// The most that may lie there, since other processes of the user may have far fewer descriptors than this one.
const PARKED_MAX: u64 = 256;

/// The next thing that a thread closes.
enum Next {
    Descriptor(ForkSafeFd),
    Parked(Parked),
}

/// Starts the thread that does [`close_refused`].
type Start = fn() -> io::Result<()>;

static START: OnceLock<Start> = OnceLock::new();

/// Registers what starts a thread that does [`close_refused`]. It is called when a descriptor is refused and all such
/// threads are busy with other accounts, by the thread that drops it; again if it fails, when the next is refused; and
/// again in a forked child, which has its own. Only the first that is registered counts.
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
    let mut queue = refused.lock();
    loop {
        let id = loop {
            match queue.turn.pop_front() {
                Some(id) => break id,
                None => {
                    queue.idle += 1;
                    let waited = refused.come.wait(queue);
                    queue = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
                    queue.idle -= 1;
                }
            }
        };
        let line = queue.lines.get_mut(&id).expect("a line lives until nothing of it waits");
        let account = line.account.clone();
        let next = line.waiting.pop_front().map(Next::Descriptor);
        let next = next.or_else(|| line.parked.take().map(Next::Parked));
        // Only the thread that has taken a line out of the turn takes anything out of the line.
        let next = next.expect("a line in the turn has something to close");
        drop(queue);
        // Waits here, if it waits.
        let (closed, parked) = match next {
            Next::Descriptor(descriptor) => {
                drop(descriptor);
                (1, 0)
            }
            Next::Parked(Parked { ends, count }) => {
                drop(ends);
                (count, count)
            }
        };
        queue = refused.lock();
        queue.waiting -= closed;
        queue.parked -= parked;
        account.waiting.fetch_sub(closed, Ordering::Relaxed);
        let is_over = queue
            .lines
            .get(&id)
            .is_none_or(|line| line.waiting.is_empty() && line.parked.is_none());
        if is_over {
            queue.lines.remove(&id);
        } else {
            queue.turn.push_back(id);
        }
    }
}

/// Refused descriptors that are not closed yet.
pub fn waiting() -> usize {
    refused().lock().waiting
}

/// Leaves a descriptor to be closed by a thread that may wait for it.
pub(crate) fn refuse(descriptor: ForkSafeFd, account: Option<Account>) {
    let Some(start) = START.get() else { return drop(descriptor) };
    let refused = refused();
    let account = account.unwrap_or_else(|| refused.nobody.clone());
    let mut queue = refused.lock();
    queue.add(&account, |line| line.waiting.push_back(descriptor));
    refused.serve(queue, *start);
}

/// The same for a socket in whose queue something lies. Behind others of its account it takes no descriptor of this
/// process while it waits.
fn refuse_end(end: ForkSafeFd, account: Option<Account>) {
    let Some(start) = START.get() else { return drop(end) };
    let refused = refused();
    let account = account.unwrap_or_else(|| refused.nobody.clone());
    let parked_max = (crate::memory::descriptors_max() / PARKED_SHARE).min(PARKED_MAX) as usize;
    let mut queue = refused.lock();
    let may_park = queue.parked < parked_max;
    let line = queue.lines.get_mut(&account.id()).filter(|_| may_park);
    if line.is_some_and(|line| line.park(end.as_fd())) {
        queue.waiting += 1;
        queue.parked += 1;
        account.waiting.fetch_add(1, Ordering::Relaxed);
        // It is in the queue of the pair, which nobody closes while this thread has the lock: so this is not its last close, and a socket
        // is not told of others.
        drop(end);
        return refused.serve(queue, *start);
    }
    queue.add(&account, |line| line.waiting.push_back(end));
    refused.serve(queue, *start);
}

impl Line {
    /// Puts a socket into the queue of the pair. False if there is no room, or no pair to be had.
    fn park(&mut self, end: BorrowedFd<'_>) -> bool {
        if let Some(Parked { ends: (inside, _), count }) = &mut self.parked {
            let is_parked = pass(inside, end);
            *count += usize::from(is_parked);
            return is_parked;
        }
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let Ok(ends) = net::socketpair(AddressFamily::UNIX, kind, flags, None) else {
            return false;
        };
        let is_parked = pass(&ends.0, end);
        if is_parked {
            self.parked = Some(Parked { ends, count: 1 });
        }
        is_parked
    }
}

/// Passes a descriptor, without waiting. False if there is no room.
fn pass(socket: &OwnedFd, descriptor: BorrowedFd<'_>) -> bool {
    let passed = [descriptor];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fits = ancillary.push(SendAncillaryMessage::ScmRights(&passed));
    assert!(fits, "space for one descriptor holds one descriptor");
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    net::sendmsg(socket, &[IoSlice::new(&[0])], &mut ancillary, flags).is_ok()
}

impl Queue {
    /// Adds something to the line of an account.
    fn add(&mut self, account: &Account, put: impl FnOnce(&mut Line)) {
        self.waiting += 1;
        account.waiting.fetch_add(1, Ordering::Relaxed);
        let turn = &mut self.turn;
        let line = self.lines.entry(account.id()).or_insert_with(|| {
            turn.push_back(account.id());
            Line { account: account.clone(), waiting: VecDeque::new(), parked: None }
        });
        put(line);
    }
}

impl Refused {
    /// Has a thread close what was added, a new one if all are at others.
    fn serve(&self, mut queue: MutexGuard<'_, Queue>, start: Start) {
        if queue.turn.len() <= queue.idle {
            return self.come.notify_one();
        }
        if queue.threads >= CLOSERS_MAX {
            return;
        }
        queue.threads += 1;
        drop(queue);
        if start().is_err() {
            // No thread is to be had. The descriptor waits until one is.
            self.lock().threads -= 1;
        }
    }

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
            nobody: Account::default(),
            queue: Mutex::default(),
            come: Condvar::new(),
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
    use crate::fork::tests::{hold_forks, run_in_child};

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
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&passed)));
        let urgent = SendFlags::OOB;
        if net::sendmsg(&far, &[IoSlice::new(&[1])], &mut ancillary, urgent).is_err() {
            // A kernel without urgent bytes.
            return;
        }
        assert_eq!(net::recv(&copy, &mut [0; 1], RecvFlags::OOB).unwrap().1, 1);
        assert_eq!(rustix::io::ioctl_fionread(&end), Ok(0), "no byte");
        assert_eq!(descriptors_in(end.as_fd()), Some(1));
    }

    #[test]
    fn descriptors_of_one_account_are_parked_and_those_of_another_closed_meanwhile() {
        close_on_a_thread(spawn_closer);
        let _forks = hold_forks();
        let (slow, quick) = (Account::default(), Account::default());
        // Closing a socket that lingers waits for its peer.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (reader, _) = listener.accept().unwrap();
        sockopt::set_socket_linger(&stream, Some(std::time::Duration::from_secs(40))).unwrap();
        stream.set_nonblocking(true).unwrap();
        while io::Write::write(&mut stream, &[0; 1 << 16]).is_ok() {}
        let refused = |account: &Account, descriptor: OwnedFd| {
            let mut foreign = Foreign::from(descriptor);
            foreign.charge_to(account);
            drop(foreign);
        };
        refused(&slow, stream.into());
        let before = crate::memory::own_descriptors().unwrap();
        for _ in 0..200 {
            // An end in whose queue something lies.
            let (end, far) = Doorbell::ends().unwrap();
            let (_reader, writer) = io::pipe().unwrap();
            Doorbell::adopt(far).unwrap().pass(writer.as_fd(), 0);
            refused(&slow, end);
        }
        assert_eq!(
            slow.waiting(),
            201,
            "each counts: they are in flight, which the kernel bounds by user"
        );
        // Other tests have descriptors too.
        assert!(crate::memory::own_descriptors().unwrap() < before + 100);
        refused(&quick, io::pipe().unwrap().1.into());
        while quick.waiting() > 0 {
            thread::yield_now();
        }
        assert_eq!(slow.waiting(), 201);
        drop(reader);
        while slow.waiting() > 0 {
            thread::yield_now();
        }
    }

    #[test]
    fn child_has_a_queue_of_its_own() {
        let held = refused().lock();
        // With its parent's it would wait for a thread that it does not have.
        assert_eq!(run_in_child(|| waiting() as u8), 0);
        drop(held);
    }
}
