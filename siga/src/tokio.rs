//! Paths and waiters to `.await`, in a runtime of tokio.
//!
//! An [`AsyncPath`] sends and receives for one task, an [`AsyncWaiter`] serves any number of members for one: guests,
//! paths, and conversations of IUCV, [`IucvPath`](crate::iucv::IucvPath). A conversation of APPC is no member by
//! itself. Both sleep in the runtime's own epoll while there is nothing to do, so other tasks go on. They never spin:
//! with a thread to spare, [`crate::Path`] with [`crate::Wait::Adaptive`] answers sooner.
//!
//! Each of them takes up to three descriptors: for an epoll of its own, for that epoll in the runtime's, and for the
//! time to trim. An [`AsyncPath`] takes them beside the three of its path, and a path whose halves are awaited each by
//! themselves takes six.
//!
//! Making a path is not asynchronous: [`Guest::connect`](crate::Guest::connect) and
//! [`Guest::accept`](crate::Guest::accept) wait for the other side, and belong into `spawn_blocking`.
//! [`Guest::accept_pending`](crate::Guest::accept_pending) waits for the host alone, usually some microseconds.
//!
//! ```
//! use siga::host::{Embedded, System};
//! use siga::tokio::AsyncPath;
//! use siga::{Guest, PathOptions};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let host = Embedded::start(System::open())?;
//! # let guest = Guest::attach_embedded(&host, "GUEST")?;
//! # let connecting = guest.start_connecting("GUEST", &PathOptions::default())?;
//! # let accepted = guest.accept()?;
//! # let connected = guest.complete(connecting)?;
//! let (mut near, mut far) = (AsyncPath::new(connected)?, AsyncPath::new(accepted)?);
//! let asking = async {
//!     near.send(b"hello").await?;
//!     let answer = near.receive().await?;
//!     Ok::<_, Box<dyn std::error::Error>>(answer.body.to_vec())
//! };
//! let answering = async {
//!     let question = far.receive().await?.body.to_vec();
//!     Ok(far.send(&question).await?)
//! };
//! let (answer, _) = tokio::try_join!(asking, answering)?;
//! assert_eq!(answer, b"hello");
//! # Ok(())
//! # }
//! ```

use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ::tokio::io::unix::AsyncFd;
use ::tokio::task::coop::consume_budget;
use fabric::path::Message;
use os::fork::ForkGuard;

use crate::error::{self, Severed, TrySendError};
use crate::path::{Path, Receiver, Sender};
use crate::waiter::{Key, Member, Waiter};
use crate::waiting::Wait;

#[cfg(feature = "tcpip")]
pub use crate::tcpip::asynchronous::{AsyncTcpListener, AsyncTcpStream, AsyncUdpSocket};

/// Serves any number of members for one task.
#[derive(Debug)]
pub struct AsyncWaiter<M> {
    waiter: Waiter<M>,
    readable: Readable,
}

/// A descriptor of the waiter's of its own, which is open for as long as it is registered.
#[derive(Debug)]
struct Readable {
    /// There until it is dropped.
    descriptor: Option<AsyncFd<OwnedFd>>,
    guard: ForkGuard,
}

impl Drop for Readable {
    fn drop(&mut self) {
        if self.guard.in_child() {
            // The child shares the runtime's epoll with its parent: to deregister here would end the parent's wait.
            mem::forget(self.descriptor.take());
        }
    }
}

/// A path for one task.
#[derive(Debug)]
pub struct AsyncPath {
    waiter: AsyncWaiter<Awaited>,
    key: Key,
}

/// A path, and what is awaited on it.
#[derive(Debug)]
struct Awaited {
    path: Path,
    wants_room: bool,
}

/// The sending half of one queue of a path, for one task.
#[derive(Debug)]
pub struct AsyncSender {
    waiter: AsyncWaiter<Sender>,
    key: Key,
}

/// The receiving half of one queue of a path, for one task.
#[derive(Debug)]
pub struct AsyncReceiver {
    waiter: AsyncWaiter<Receiver>,
    key: Key,
}

/// Why a message was not sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// As of a path that is not asynchronous.
    #[error(transparent)]
    Send(#[from] error::SendError),
    /// The runtime is shutting down, or this is a forked child.
    #[error("cannot wait in this runtime: {0}")]
    Runtime(#[from] io::Error),
}

/// Why there is no message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The path has ended, and everything that was sent has been received.
    #[error(transparent)]
    Severed(#[from] Severed),
    /// The runtime is shutting down, or this is a forked child.
    #[error("cannot wait in this runtime: {0}")]
    Runtime(#[from] io::Error),
}

impl<M: Member> AsyncWaiter<M> {
    /// A waiter that serves nobody yet.
    ///
    /// # Errors
    /// No descriptors left.
    ///
    /// # Panics
    /// Outside a runtime of tokio with I/O enabled.
    #[expect(deprecated, reason = "an owned descriptor stays open while it is registered")]
    pub fn new() -> io::Result<AsyncWaiter<M>> {
        let waiter = Waiter::new(Wait::Block)?;
        let descriptor = Some(AsyncFd::new(waiter.as_fd().try_clone_to_owned()?)?);
        let readable = Readable { descriptor, guard: ForkGuard::here() };
        Ok(AsyncWaiter { waiter, readable })
    }

    /// Serves `member` too. See [`Waiter::add`].
    ///
    /// # Errors
    /// `InvalidInput` if it has too many doorbells; `AlreadyExists` if one of them is another member's too; no memory
    /// left in the kernel to wait for them. The member is dropped then, which ends a path.
    pub fn add(&mut self, member: M) -> io::Result<Key> {
        self.waiter.add(member)
    }

    /// Serves a member no longer, and gives it back. None if the key stands for nobody here.
    pub fn remove(&mut self, key: Key) -> Option<M> {
        self.waiter.remove(key)
    }

    /// A member. None if the key stands for nobody here.
    pub fn get(&self, key: Key) -> Option<&M> {
        self.waiter.get(key)
    }

    /// A member, to do something with it. None if the key stands for nobody here.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut M> {
        self.waiter.get_mut(key)
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.waiter.len()
    }

    /// Whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.waiter.is_empty()
    }

    /// Waits until a member has something to do, and gives it out. A future that is dropped has done nothing.
    ///
    /// # Errors
    /// The runtime is shutting down; `NotConnected` in a forked child.
    pub async fn next(&mut self) -> io::Result<(Key, &mut M)> {
        loop {
            // A member that always has something, or always rings for nothing, leaves other tasks their turn.
            consume_budget().await;
            if let Some((key, _)) = self.waiter.try_next()? {
                return Ok((key, self.waiter.get_mut(key).expect("it was found just now")));
            }
            if self.waiter.prepare_wait() {
                let descriptor = self.readable.descriptor.as_ref().expect("until it is dropped");
                let mut ready = descriptor.readable().await?;
                // Only when nothing more is to be heard: the runtime learns of changes, not of what is left.
                if !self.waiter.hear()? {
                    ready.clear_ready();
                }
            }
        }
    }
}

impl AsyncPath {
    /// A path for this task.
    ///
    /// # Errors
    /// No descriptors left; the path has ended then.
    ///
    /// # Panics
    /// Outside a runtime of tokio with I/O enabled.
    pub fn new(path: Path) -> io::Result<AsyncPath> {
        let mut waiter = AsyncWaiter::new()?;
        let key = waiter.add(Awaited { path, wants_room: false })?;
        Ok(AsyncPath { waiter, key })
    }

    /// Sends a message: it is in the receiver's hands when this is done. Waits while the receiver is too far
    /// behind. A future that is dropped before it is done has sent nothing.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent then.
    pub async fn send(&mut self, body: &[u8]) -> Result<(), SendError> {
        send(&mut self.waiter, self.key, Awaited::sender_awaited, body).await
    }

    /// Waits until a send that was refused is worth another try: there is room again, the receiver has resumed the
    /// path, or the path has ended. At once if none was refused.
    ///
    /// # Errors
    /// The runtime is shutting down; `NotConnected` in a forked child.
    pub async fn room(&mut self) -> io::Result<()> {
        room(&mut self.waiter, self.key, Awaited::sender_awaited).await
    }

    /// Receives the next message, which stays where it is until the next verb. Waits until there is one, and hands
    /// over first what was pushed. A future that is dropped before it is done has received nothing.
    ///
    /// # Errors
    /// [`ReceiveError`].
    pub async fn receive(&mut self) -> Result<Message<'_>, ReceiveError> {
        consume_budget().await;
        let message = loop {
            let awaited = member(&mut self.waiter, self.key);
            awaited.wants_room = false;
            if let Some(message) = awaited.path.receiver().fetch()? {
                break message;
            }
            // Whoever waits for an answer has asked all of the question.
            awaited.path.flush();
            self.waiter.next().await?;
        };
        Ok(self.get_mut().receiver().message(message))
    }

    /// The path, for verbs that do not wait. A verb that waits keeps the whole thread waiting.
    pub fn get_mut(&mut self) -> &mut Path {
        &mut member(&mut self.waiter, self.key).path
    }

    /// The path, for another use.
    pub fn into_inner(mut self) -> Path {
        self.waiter.remove(self.key).expect("it is never removed").path
    }

    /// Ends the path in good order. What was sent can still be received.
    pub fn close(self) {
        self.into_inner().close();
    }
}

/// Sends a message over a member's sender once there is room.
async fn send<M: Member>(
    waiter: &mut AsyncWaiter<M>,
    key: Key,
    sender: impl Fn(&mut M) -> &mut Sender,
    body: &[u8],
) -> Result<(), SendError> {
    consume_budget().await;
    loop {
        match sender(member(waiter, key)).try_send(body) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Full) => _ = waiter.next().await?,
            Err(TrySendError::Send(error)) => return Err(error.into()),
        }
    }
}

/// Waits until a send over a member's sender that was refused is worth another try.
async fn room<M: Member>(
    waiter: &mut AsyncWaiter<M>,
    key: Key,
    sender: impl Fn(&mut M) -> &mut Sender,
) -> io::Result<()> {
    if sender(member(waiter, key)).wants_room() {
        waiter.next().await?;
    }
    Ok(())
}

/// The one member of a path or half.
fn member<M: Member>(waiter: &mut AsyncWaiter<M>, key: Key) -> &mut M {
    waiter.get_mut(key).expect("it is never removed")
}

impl Awaited {
    /// The sender, whose room is awaited from now on.
    fn sender_awaited(&mut self) -> &mut Sender {
        self.wants_room = true;
        self.path.sender()
    }
}

impl Member for Awaited {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        self.path.doorbells(add);
    }

    fn hear(&mut self, index: usize) -> bool {
        self.path.hear(index)
    }

    fn is_ready(&mut self) -> bool {
        let (senders, receivers) = self.path.halves();
        match self.wants_room {
            true => Member::is_ready(&mut senders[0]),
            false => Member::is_ready(&mut receivers[0]),
        }
    }

    fn sleep(&mut self) {
        self.path.sleep();
    }

    fn wake(&mut self) {
        self.path.wake();
    }

    fn trim(&mut self) -> bool {
        Member::trim(&mut self.path)
    }
}

impl AsyncSender {
    /// A half for this task.
    ///
    /// # Errors
    /// No descriptors left; the half has ended then.
    ///
    /// # Panics
    /// Outside a runtime of tokio with I/O enabled.
    pub fn new(sender: Sender) -> io::Result<AsyncSender> {
        let mut waiter = AsyncWaiter::new()?;
        let key = waiter.add(sender)?;
        Ok(AsyncSender { waiter, key })
    }

    /// Sends a message: it is in the receiver's hands when this is done. Waits while the receiver is too far
    /// behind. A future that is dropped before it is done has sent nothing.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent then.
    pub async fn send(&mut self, body: &[u8]) -> Result<(), SendError> {
        send(&mut self.waiter, self.key, |sender| sender, body).await
    }

    /// Waits until a send that was refused is worth another try: there is room again, the receiver has resumed the
    /// path, or the path has ended. At once if none was refused.
    ///
    /// # Errors
    /// The runtime is shutting down; `NotConnected` in a forked child.
    pub async fn room(&mut self) -> io::Result<()> {
        room(&mut self.waiter, self.key, |sender| sender).await
    }

    /// The half, for verbs that do not wait. A verb that waits keeps the whole thread waiting.
    pub fn get_mut(&mut self) -> &mut Sender {
        member(&mut self.waiter, self.key)
    }

    /// The half, for another use.
    pub fn into_inner(mut self) -> Sender {
        self.waiter.remove(self.key).expect("it is never removed")
    }
}

impl AsyncReceiver {
    /// A half for this task.
    ///
    /// # Errors
    /// No descriptors left; the half has ended then.
    ///
    /// # Panics
    /// Outside a runtime of tokio with I/O enabled.
    pub fn new(receiver: Receiver) -> io::Result<AsyncReceiver> {
        let mut waiter = AsyncWaiter::new()?;
        let key = waiter.add(receiver)?;
        Ok(AsyncReceiver { waiter, key })
    }

    /// Receives the next message, which stays where it is until the next verb. Waits until there is one. A future
    /// that is dropped before it is done has received nothing.
    ///
    /// # Errors
    /// [`ReceiveError`].
    pub async fn receive(&mut self) -> Result<Message<'_>, ReceiveError> {
        consume_budget().await;
        let message = loop {
            if let Some(message) = self.get_mut().fetch()? {
                break message;
            }
            self.waiter.next().await?;
        };
        Ok(self.get_mut().message(message))
    }

    /// The half, for verbs that do not wait. A verb that waits keeps the whole thread waiting.
    pub fn get_mut(&mut self) -> &mut Receiver {
        member(&mut self.waiter, self.key)
    }

    /// The half, for another use.
    pub fn into_inner(mut self) -> Receiver {
        self.waiter.remove(self.key).expect("it is never removed")
    }
}
