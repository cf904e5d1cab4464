//! Paths and waiters to `.await`, in a runtime of tokio.
//!
//! An [`AsyncPath`] sends and receives for one task, an [`AsyncWaiter`] serves any number of guests, paths and
//! conversations for one. Both sleep in the runtime's own epoll while there is nothing to do, so other tasks go on.
//! They never spin: with a thread to spare, [`crate::Path`] with [`crate::Wait::Adaptive`] answers sooner.
//!
//! Making a path is not asynchronous: [`Guest::connect`](crate::Guest::connect) waits for the other side, and
//! belongs into `spawn_blocking`; accepting waits for the host alone, usually some microseconds.
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
//!     near.receive().await.map(|answer| answer.body.to_vec())
//! };
//! let answering = async {
//!     let question = far.receive().await?.body.to_vec();
//!     far.send(&question).await
//! };
//! let (answer, _) = tokio::try_join!(asking, answering)?;
//! assert_eq!(answer, b"hello");
//! # Ok(())
//! # }
//! ```

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ::tokio::io::unix::AsyncFd;
use ::tokio::task::coop::consume_budget;
use fabric::path::Message;

use crate::error::{SendError, Severed, TrySendError};
use crate::path::{Path, Receiver, Sender};
use crate::waiter::{Key, Member, Waiter};
use crate::waiting::Wait;

/// Serves any number of members for one task.
#[derive(Debug)]
pub struct AsyncWaiter<M> {
    waiter: Waiter<M>,
    /// A descriptor of the waiter's of its own, which is open for as long as it is registered.
    readable: AsyncFd<OwnedFd>,
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

/// Why a verb of an asynchronous path has failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The message was not sent.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The path has ended.
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
        let readable = AsyncFd::new(waiter.as_fd().try_clone_to_owned()?)?;
        Ok(AsyncWaiter { waiter, readable })
    }

    /// Serves `member` too. See [`Waiter::add`].
    ///
    /// # Errors
    /// `InvalidInput` if it has too many doorbells; no memory left in the kernel to wait for them.
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
                let mut ready = self.readable.readable().await?;
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
    /// [`Error`]; nothing was sent then.
    pub async fn send(&mut self, body: &[u8]) -> Result<(), Error> {
        consume_budget().await;
        loop {
            match self.get_mut().try_send(body) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full) => self.wait(true).await?,
                Err(TrySendError::Send(error)) => return Err(error.into()),
            }
        }
    }

    /// Waits until a send that was refused is worth another try: there is room again, the receiver has resumed the
    /// path, or the path has ended. At once if none was refused.
    ///
    /// # Errors
    /// [`Error::Runtime`].
    pub async fn room(&mut self) -> Result<(), Error> {
        if self.get_mut().sender().wants_room() {
            self.wait(true).await?;
        }
        Ok(())
    }

    /// Receives the next message, which stays where it is until the next verb. Waits until there is one, and hands
    /// over what was pushed before. A future that is dropped before it is done has received nothing.
    ///
    /// # Errors
    /// [`Error`], `Severed` once the path has ended and everything that was sent has been received.
    pub async fn receive(&mut self) -> Result<Message<'_>, Error> {
        consume_budget().await;
        let message = loop {
            let path = self.get_mut();
            if let Some(message) = path.receiver().fetch()? {
                break message;
            }
            // Whoever waits for an answer has asked all of the question.
            path.flush();
            self.wait(false).await?;
        };
        Ok(self.get_mut().receiver().message(message))
    }

    async fn wait(&mut self, wants_room: bool) -> io::Result<()> {
        self.waiter.get_mut(self.key).expect("it is never removed").wants_room = wants_room;
        self.waiter.next().await.map(drop)
    }

    /// The path, for verbs that do not wait. A verb that waits keeps the whole thread waiting.
    pub fn get_mut(&mut self) -> &mut Path {
        &mut self.waiter.get_mut(self.key).expect("it is never removed").path
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

impl Member for Awaited {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        self.path.doorbells(add);
    }

    fn hear(&mut self, index: usize) -> bool {
        // A receiver that wants quiet is answered, whatever this task waits for.
        self.path.halves().0.iter_mut().for_each(|sender| _ = sender.raw().is_ready());
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
    /// No descriptors left.
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
    /// [`Error`]; nothing was sent then.
    pub async fn send(&mut self, body: &[u8]) -> Result<(), Error> {
        consume_budget().await;
        loop {
            match self.get_mut().try_send(body) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full) => self.room().await?,
                Err(TrySendError::Send(error)) => return Err(error.into()),
            }
        }
    }

    /// Waits until a send that was refused is worth another try: there is room again, the receiver has resumed the
    /// path, or the path has ended. At once if none was refused.
    ///
    /// # Errors
    /// [`Error::Runtime`].
    pub async fn room(&mut self) -> Result<(), Error> {
        if self.get_mut().wants_room() {
            self.waiter.next().await?;
        }
        Ok(())
    }

    /// The half, for verbs that do not wait. A verb that waits keeps the whole thread waiting.
    pub fn get_mut(&mut self) -> &mut Sender {
        self.waiter.get_mut(self.key).expect("it is never removed")
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
    /// No descriptors left.
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
    /// [`Error`], `Severed` once the path has ended and everything that was sent has been received.
    pub async fn receive(&mut self) -> Result<Message<'_>, Error> {
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
        self.waiter.get_mut(self.key).expect("it is never removed")
    }

    /// The half, for another use.
    pub fn into_inner(mut self) -> Receiver {
        self.waiter.remove(self.key).expect("it is never removed")
    }
}
