//! Paths and waiters to `.await`, in a runtime of tokio.
//!
//! An [`AsyncPath`] sends and receives for one task, an [`AsyncWaiter`] serves any number of guests, paths and
//! conversations for one. Both sleep in the runtime's own epoll while there is nothing to do, so other tasks go on.
//! They never spin: with a thread to spare, [`crate::Path`] with [`crate::Wait::Adaptive`] answers sooner.
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
use std::os::fd::{AsFd, OwnedFd};

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

/// A path for one task, or for two that each have a half of it.
#[derive(Debug)]
pub struct AsyncPath {
    sender: AsyncSender,
    receiver: AsyncReceiver,
    /// Other queues of the path, which would end if they were dropped.
    rest: (Vec<Sender>, Vec<Receiver>),
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
    #[allow(deprecated, reason = "an owned descriptor stays open while it is registered")]
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
        // A member that always has something leaves other tasks their turn.
        consume_budget().await;
        loop {
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
    /// A path for this task: its first queue each way, as for the verbs of [`Path`].
    ///
    /// # Errors
    /// No descriptors left.
    ///
    /// # Panics
    /// Outside a runtime of tokio with I/O enabled.
    pub fn new(path: Path) -> io::Result<AsyncPath> {
        let (mut senders, mut receivers) = path.split();
        let sender = AsyncSender::new(senders.remove(0))?;
        let receiver = AsyncReceiver::new(receivers.remove(0))?;
        Ok(AsyncPath { sender, receiver, rest: (senders, receivers) })
    }

    /// Sends a message: it is in the receiver's hands when this is done. Waits while the receiver is too far
    /// behind. A future that is dropped before it is done has sent nothing.
    ///
    /// # Errors
    /// [`Error`]; nothing was sent then.
    pub async fn send(&mut self, body: &[u8]) -> Result<(), Error> {
        self.sender.send(body).await
    }

    /// Receives the next message, which stays where it is until the next verb. Waits until there is one, and hands
    /// over what was pushed before. A future that is dropped before it is done has received nothing.
    ///
    /// # Errors
    /// [`Error`], `Severed` once the path has ended and everything that was sent has been received.
    pub async fn receive(&mut self) -> Result<Message<'_>, Error> {
        // Whoever waits for an answer has asked all of the question.
        self.sender.get_mut().flush();
        self.receiver.receive().await
    }

    /// The sending half.
    pub fn sender(&mut self) -> &mut AsyncSender {
        &mut self.sender
    }

    /// The receiving half.
    pub fn receiver(&mut self) -> &mut AsyncReceiver {
        &mut self.receiver
    }

    /// Gives out the halves, each for any task. Further queues of the path end.
    pub fn split(self) -> (AsyncSender, AsyncReceiver) {
        (self.sender, self.receiver)
    }

    /// Ends the path in good order. What was sent can still be received.
    pub fn close(self) {
        let (senders, receivers) = self.rest;
        senders.into_iter().chain([self.sender.into_inner()]).for_each(Sender::close);
        receivers.into_iter().chain([self.receiver.into_inner()]).for_each(Receiver::close);
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
        loop {
            match self.get_mut().try_send(body) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full) => {}
                Err(TrySendError::Send(error)) => return Err(error.into()),
            }
            self.waiter.next().await?;
        }
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
