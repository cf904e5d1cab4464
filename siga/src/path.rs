//! A path, to program with: blocking, polling, adaptive.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use fabric::control::UserData;
use fabric::name::Name;
use fabric::path::{
    self, Announced, Claim, END_DATA_BYTES, HEAD_BYTES_MAX, Halves, InPage, Incoming, List,
    Message, MessageRef, NotOurs, Severed,
};

use crate::error::{CommitError, SendError, TrySendError, after_waiting};
use crate::link::Membership;
use crate::options::PathOptions;
use crate::waiting::{Half, Slip, SpinPolicy, Wait, Waited, after};

/// A path to another guest: one or more queues each way.
///
/// The verbs of the path itself use its first queue each way, which is all there is unless its options
/// asked for more. [`Path::split`] gives the queues to several threads.
#[derive(Debug)]
pub struct Path {
    pub(crate) senders: Vec<Sender>,
    pub(crate) receivers: Vec<Receiver>,
    membership: Arc<Membership>,
    negotiated: Negotiated,
}

/// What the two sides have negotiated when a path was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Negotiated {
    /// By the other side, as the kind of the conversation has them.
    pub(crate) flags: u16,
    /// By the other side's user.
    pub(crate) data: UserData,
    /// Messages that we, and that the other side, may have waiting.
    pub(crate) messages_max: (u32, u32),
}

/// The sending half of one queue of a path.
#[derive(Debug)]
pub struct Sender {
    half: path::Sender,
    /// The last send that did not want to wait was refused.
    wants_room: bool,
    spin: SpinPolicy,
    membership: Arc<Membership>,
}

/// The receiving half of one queue of a path.
#[derive(Debug)]
pub struct Receiver {
    half: path::Receiver,
    spin: SpinPolicy,
    slip: Slip,
    membership: Arc<Membership>,
}

/// Whether a send that was refused is worth another try later: a waiter finds the half ready then.
fn is_for_now(error: &path::SendError) -> bool {
    matches!(error, path::SendError::Full | path::SendError::Quiesced)
}

fn check_head(head: &[u8]) -> Result<(), SendError> {
    if head.len() > HEAD_BYTES_MAX {
        return Err(SendError::HeadTooLong { most: HEAD_BYTES_MAX });
    }
    Ok(())
}

impl Path {
    pub(crate) fn new(
        halves: Halves,
        membership: Membership,
        negotiated: Negotiated,
        options: &PathOptions,
    ) -> Path {
        let PathOptions { wait, slip, .. } = *options;
        let membership = Arc::new(membership);
        let sender = |half| Sender {
            half,
            wants_room: false,
            spin: SpinPolicy::new(wait),
            membership: membership.clone(),
        };
        let receiver = |half| Receiver {
            half,
            spin: SpinPolicy::new(wait),
            slip: Slip::new(slip),
            membership: membership.clone(),
        };
        Path {
            senders: halves.senders.into_iter().map(sender).collect(),
            receivers: halves.receivers.into_iter().map(receiver).collect(),
            membership,
            negotiated,
        }
    }

    pub(crate) fn with_negotiated(self, flags: u16, data: UserData) -> Path {
        Path { negotiated: Negotiated { flags, data, ..self.negotiated }, ..self }
    }

    /// The guest at the other end.
    pub fn peer(&self) -> Name {
        self.membership.peer()
    }

    /// The number that the host gave the path, for `siga audit`. It changes when a new host accounts the path.
    pub fn number(&self) -> u64 {
        self.membership.number()
    }

    /// The user data that the other side passed when the path was made: [`crate::PathOptions::data`].
    pub fn user_data(&self) -> UserData {
        self.negotiated.data
    }

    /// The flags that the other side passed when the path was made: [`crate::PathOptions::flags`].
    pub fn flags(&self) -> u16 {
        self.negotiated.flags
    }

    /// How many messages this side, and how many the other, may have waiting, as the host has granted; the kind has
    /// the meaning: [`crate::PathOptions::messages`].
    pub fn messages_max(&self) -> (u32, u32) {
        self.negotiated.messages_max
    }

    /// Sends a message: it is in the receiver's hands when this returns. Waits while the receiver is too
    /// far behind.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent then.
    #[inline]
    pub fn send(&mut self, body: &[u8]) -> Result<(), SendError> {
        self.senders[0].send(body)
    }

    /// Sends a message, if the receiver is not too far behind.
    ///
    /// # Errors
    /// [`TrySendError`]; nothing was sent then.
    #[inline]
    pub fn try_send(&mut self, body: &[u8]) -> Result<(), TrySendError> {
        self.senders[0].try_send(body)
    }

    /// Sends a message, and waits at most for `time` while the receiver is too far behind.
    ///
    /// # Errors
    /// [`TrySendError`], `Full` if the time is over; nothing was sent then.
    pub fn send_within(&mut self, body: &[u8], time: Duration) -> Result<(), TrySendError> {
        self.senders[0].send_within(body, time)
    }

    /// Pushes a message: for streams of small messages, which cost less when they are packed. It may be
    /// held back while the receiver is behind, to go with those that follow: with the next send, with the
    /// next receive that has to wait, and at the latest with [`Path::flush`]. Waits while the receiver is
    /// too far behind.
    ///
    /// # Errors
    /// [`SendError`]; this message was not pushed then.
    #[inline(always)]
    pub fn push(&mut self, body: &[u8]) -> Result<(), SendError> {
        self.senders[0].push(body)
    }

    /// Hands over what was pushed and held back.
    #[inline]
    pub fn flush(&mut self) {
        self.senders[0].flush();
    }

    /// Receives the next message, which stays where it is until the next verb. Waits until there is one.
    ///
    /// When messages come as fast as they are received, four or more without a wait between them, this lets some gather:
    /// it polls again fourteen times as long after the last poll as a cache line takes to come from the other processor,
    /// and at most [`crate::PathOptions::slip`] after it. Otherwise each message would cost both sides a cache line
    /// there and back. An exchange is answered at once, and so is a stream that is slower. `try_receive` never waits.
    ///
    /// # Errors
    /// [`Severed`] once the path has ended and everything that was sent has been received.
    #[inline]
    pub fn receive(&mut self) -> Result<Message<'_>, Severed> {
        Ok(self.receive_before(None)?.expect("no time was set"))
    }

    /// Receives the next message, if there is one.
    ///
    /// # Errors
    /// [`Severed`] once the path has ended and everything that was sent has been received.
    #[inline]
    pub fn try_receive(&mut self) -> Result<Option<Message<'_>>, Severed> {
        self.receivers[0].half.receive()
    }

    /// Receives the next message, and waits at most for `time`. None if the time is over.
    ///
    /// # Errors
    /// [`Severed`] once the path has ended and everything that was sent has been received.
    pub fn receive_within(&mut self, time: Duration) -> Result<Option<Message<'_>>, Severed> {
        self.receive_before(Some(after(time)))
    }

    #[inline]
    fn receive_before(&mut self, deadline_ns: Option<u64>) -> Result<Option<Message<'_>>, Severed> {
        let Path { senders, receivers, .. } = self;
        let receiver = &mut receivers[0];
        let message = loop {
            if receiver.slips() {
                senders.iter_mut().for_each(Sender::flush);
                receiver.slip.wait(&mut receiver.half, deadline_ns);
            }
            if let Some(message) = receiver.half.fetch()? {
                break message;
            }
            // Whoever waits for an answer has asked all of the question.
            senders.iter_mut().for_each(Sender::flush);
            if let Some(message) = receiver.spin.poll_short(&mut receiver.half)? {
                break message;
            }
            match receiver.spin.wait(&mut receiver.half, deadline_ns) {
                Waited::Ready => {}
                Waited::TimedOut => return Ok(None),
                // Perhaps it was about the other direction.
                Waited::Rung => senders.iter_mut().for_each(|sender| _ = sender.half.is_ready()),
                Waited::Idle => receiver.trim_with(senders),
            }
        };
        Ok(Some(receiver.half.message(message)))
    }

    /// Asks the other side to stop sending, and returns at once: its sends fail with
    /// [`SendError::Quiesced`] from then on. What it has sent until then keeps coming; once all of it has been
    /// received, [`Path::known_point`] says after how many messages it fell quiet.
    pub fn quiesce(&mut self) {
        self.receivers[0].half.quiesce();
        // Its thread may be asleep over the other direction.
        self.senders[0].half.wake_peer();
    }

    /// Lets the other side send again. No effect if it was not quiesced.
    pub fn resume(&mut self) {
        self.receivers[0].half.resume();
        self.senders[0].half.wake_peer();
    }

    /// How many messages the other side had sent since the path was made, when it fell quiet; none while it has not.
    pub fn known_point(&self) -> Option<u64> {
        self.receivers[0].half.known_point()
    }

    /// Gives back storage that was not used since the last call, and returns whether there may be more to give back
    /// later. Verbs that wait do this by themselves when nothing comes for a second, and so does a waiter.
    pub fn trim(&mut self) -> bool {
        let Path { senders, receivers, .. } = self;
        receivers.iter_mut().for_each(|receiver| receiver.half.trim());
        let mut may_trim = false;
        for sender in senders {
            may_trim |= sender.half.trim();
        }
        may_trim
    }

    /// Sets from now on the longest that a receive lets messages of a stream gather: [`crate::PathOptions::slip`].
    pub fn set_slip(&mut self, slip: Duration) {
        self.receivers.iter_mut().for_each(|receiver| receiver.set_slip(slip));
    }

    /// Sets how to wait from now on.
    pub fn set_wait(&mut self, wait: Wait) {
        self.senders.iter_mut().for_each(|sender| sender.spin.set_policy(wait));
        self.receivers.iter_mut().for_each(|receiver| receiver.spin.set_policy(wait));
    }

    /// Ends the path in good order. What was sent can still be received; what the other side has sent and
    /// this side has not received is lost.
    pub fn close(self) {
        self.close_with([0; END_DATA_BYTES]);
    }

    /// Ends the path in good order, with data for the other side's user: [`Severed::data`].
    pub fn close_with(mut self, data: UserData) {
        self.senders.iter_mut().for_each(|sender| sender.half.sever(data));
        self.receivers.iter_mut().for_each(|receiver| receiver.half.sever(data));
    }

    /// Ends sending in good order, and goes on receiving.
    pub fn end_sending(&mut self) {
        self.end_sending_with([0; END_DATA_BYTES]);
    }

    /// Ends sending in good order, with data for the other side's user, and goes on receiving.
    pub fn end_sending_with(&mut self, data: UserData) {
        for sender in &mut self.senders {
            sender.half.sever(data);
            // No send is worth another try.
            sender.wants_room = false;
        }
    }

    /// The halves without their waiting, and what keeps the path in the host's accounts.
    pub(crate) fn into_parts(self) -> (Halves, Arc<Membership>, Negotiated) {
        let Path { senders, receivers, membership, negotiated } = self;
        let senders = senders.into_iter().map(|sender| sender.half).collect();
        let receivers = receivers.into_iter().map(|receiver| receiver.half).collect();
        (Halves { senders, receivers }, membership, negotiated)
    }

    /// Gives out the halves, in the order of their queues: one sender for each output queue, one receiver for each
    /// input queue. The path ends when the last half is dropped.
    pub fn split(self) -> (Vec<Sender>, Vec<Receiver>) {
        (self.senders, self.receivers)
    }

    /// The first sending half.
    pub fn sender(&mut self) -> &mut Sender {
        &mut self.senders[0]
    }

    /// The first receiving half.
    pub fn receiver(&mut self) -> &mut Receiver {
        &mut self.receivers[0]
    }

    /// All halves.
    pub fn halves(&mut self) -> (&mut [Sender], &mut [Receiver]) {
        (&mut self.senders, &mut self.receivers)
    }
}

impl Sender {
    /// The guest at the other end.
    pub fn peer(&self) -> Name {
        self.membership.peer()
    }

    /// Sends a message: it is in the receiver's hands when this returns. Waits while the receiver is too
    /// far behind.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent then.
    #[inline]
    pub fn send(&mut self, body: &[u8]) -> Result<(), SendError> {
        match self.half.send(&[], body) {
            Ok(()) => self.sent(),
            Err(error) => self.send_later(error, |half| half.send(&[], body)),
        }
    }

    /// Sends a message, if the receiver is not too far behind. If it is, a waiter finds this half ready when
    /// sending is worth another try.
    ///
    /// # Errors
    /// [`TrySendError`]; nothing was sent then.
    #[inline]
    pub fn try_send(&mut self, body: &[u8]) -> Result<(), TrySendError> {
        Ok(self.try_with(|half| half.send(&[], body))?)
    }

    /// Sends a message, and waits at most for `time` while the receiver is too far behind.
    ///
    /// # Errors
    /// [`TrySendError`], `Full` if the time is over; nothing was sent then.
    pub fn send_within(&mut self, body: &[u8], time: Duration) -> Result<(), TrySendError> {
        let deadline_ns = after(time);
        loop {
            match self.try_send(body) {
                Err(TrySendError::Full) => {}
                done => return done,
            }
            if self.wait_once(Some(deadline_ns)) == Waited::TimedOut {
                return Err(TrySendError::Full);
            }
        }
    }

    /// Sends a message with a head: at most [`HEAD_BYTES_MAX`] bytes that the receiver has at once, even when the
    /// body is large and stays where it is.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent then.
    #[inline]
    pub fn send_with_head(&mut self, head: &[u8], body: &[u8]) -> Result<(), SendError> {
        check_head(head)?;
        match self.half.send(head, body) {
            Ok(()) => self.sent(),
            Err(error) => self.send_later(error, |half| half.send(head, body)),
        }
    }

    /// Pushes a message: for streams of small messages, which cost less when they are packed. It may be
    /// held back while the receiver is behind, to go with those that follow: with the next send, and at the
    /// latest with [`Sender::flush`]. Waits while the receiver is too far behind.
    ///
    /// # Errors
    /// [`SendError`]; this message was not pushed then.
    #[inline(always)]
    pub fn push(&mut self, body: &[u8]) -> Result<(), SendError> {
        match self.half.push(&[], body) {
            Ok(()) => self.sent(),
            Err(error) => self.send_later(error, |half| half.push(&[], body)),
        }
    }

    /// Hands over what was pushed and held back.
    #[inline]
    pub fn flush(&mut self) {
        self.half.flush();
    }

    /// Sends a message of `bytes` that `build` makes in place, in memory that is lent to the receiver: at most half of
    /// [`crate::PathOptions::storage_bytes`]. Waits while the receiver is too far behind; `build` may be called again
    /// then.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent then, though `build` may have been called.
    #[inline]
    pub fn send_built(
        &mut self,
        bytes: usize,
        mut build: impl FnMut(&mut [u8]),
    ) -> Result<(), SendError> {
        match self.half.send_built(&[], bytes, &mut build) {
            Ok(()) => self.sent(),
            Err(error) => self.send_later(error, |half| half.send_built(&[], bytes, &mut build)),
        }
    }

    /// Claims room for a message of `bytes` behind a head, to build it in memory that is lent to the
    /// receiver: [`Sender::claimed`] has its bytes, [`Sender::commit`] sends it, and [`Sender::cancel`] gives
    /// it up. Waits while the receiver is too far behind. Room that is dropped is lost until the path ends.
    ///
    /// # Errors
    /// [`SendError`]; nothing was claimed then.
    pub fn claim(&mut self, head: &[u8], bytes: usize) -> Result<Claim, SendError> {
        check_head(head)?;
        self.until_done(|half| half.claim(head, bytes)).map_err(after_waiting)
    }

    /// The bytes of claimed room; none if another half has given it out, or in a forked child.
    pub fn claimed<'a>(&'a mut self, claim: &'a mut Claim) -> Option<&'a mut [u8]> {
        self.half.claimed(claim)
    }

    /// Sends what was built in claimed room. Waits while the receiver is too far behind.
    ///
    /// # Errors
    /// [`CommitError`]; the room is given up then.
    pub fn commit(&mut self, claim: Claim) -> Result<(), CommitError> {
        let mut claim = claim;
        loop {
            let (error, back) = match self.half.commit(claim) {
                Ok(()) => return Ok(self.sent()?),
                Err(refused) => refused,
            };
            let error = match error {
                path::CommitError::Send(path::SendError::Full) => {
                    claim = back;
                    self.wait_once(None);
                    continue;
                }
                path::CommitError::Send(error) => {
                    self.wants_room = is_for_now(&error);
                    CommitError::Send(after_waiting(error))
                }
                path::CommitError::NotOurs => CommitError::NotOurs,
            };
            // If it is another half's, that one has it back when its path ends.
            let _ = self.half.cancel(back);
            return Err(error);
        }
    }

    /// Gives claimed room up.
    ///
    /// # Errors
    /// [`NotOurs`] if another half has given it out.
    pub fn cancel(&mut self, claim: Claim) -> Result<(), NotOurs<Claim>> {
        self.half.cancel(claim)
    }

    /// Ends this half in good order. What was sent can still be received.
    pub fn close(self) {
        self.close_with([0; END_DATA_BYTES]);
    }

    /// Ends this half in good order, with data for the other side's user: [`Severed::data`].
    pub fn close_with(mut self, data: UserData) {
        self.half.sever(data);
    }

    /// A message was sent: whatever was refused before, no room is waited for.
    #[inline(always)]
    fn sent(&mut self) -> Result<(), SendError> {
        self.wants_room = false;
        Ok(())
    }

    /// Sends what was refused once, when there is room.
    #[cold]
    fn send_later(
        &mut self,
        refused: path::SendError,
        attempt: impl FnMut(&mut path::Sender) -> Result<(), path::SendError>,
    ) -> Result<(), SendError> {
        match refused {
            path::SendError::Full => self.until_done(attempt).map_err(after_waiting),
            error => {
                self.wants_room = is_for_now(&error);
                Err(after_waiting(error))
            }
        }
    }

    /// Does something with the engine's half that may have to wait for room, again and again.
    ///
    /// # Errors
    /// The error of `attempt`, which is never `Full`.
    #[cold]
    pub fn until_done<T>(
        &mut self,
        mut attempt: impl FnMut(&mut path::Sender) -> Result<T, path::SendError>,
    ) -> Result<T, path::SendError> {
        loop {
            match attempt(&mut self.half) {
                Err(path::SendError::Full) => {}
                done => {
                    self.wants_room = done.as_ref().is_err_and(is_for_now);
                    return done;
                }
            }
            self.wait_once(None);
        }
    }

    /// Does something with the engine's half that may be refused for want of room, or because the receiver has
    /// asked for quiet. If it is, a waiter finds this half ready when it is worth another try.
    ///
    /// # Errors
    /// The error of `attempt`.
    #[inline]
    pub fn try_with<T>(
        &mut self,
        attempt: impl FnOnce(&mut path::Sender) -> Result<T, path::SendError>,
    ) -> Result<T, path::SendError> {
        let done = attempt(&mut self.half);
        self.wants_room = done.as_ref().is_err_and(is_for_now);
        done
    }

    /// Waits until a send that was refused is worth another try: there is room again, the receiver has
    /// resumed the path, or the path has ended.
    pub fn wait(&mut self) {
        while self.wait_once(None) != Waited::Ready {}
    }

    /// Waits for the next occasion to poll.
    fn wait_once(&mut self, deadline_ns: Option<u64>) -> Waited {
        let waited = self.spin.wait(&mut self.half, deadline_ns);
        if waited == Waited::Idle {
            self.spin.trimmed(Half::trim(&mut self.half));
        }
        waited
    }

    pub(crate) fn wants_room(&self) -> bool {
        self.wants_room
    }

    /// Sets whether a waiter finds this half ready when there is room: for sends past it, to the engine's half.
    #[cfg(any(feature = "ctc", feature = "disk", feature = "tcpip"))]
    pub(crate) fn set_wants_room(&mut self, wants_room: bool) {
        self.wants_room = wants_room;
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.half.descriptor()
    }

    /// The engine's half: everything else that a sending half can do, without waiting. See [`crate::raw`].
    pub fn raw(&mut self) -> &mut path::Sender {
        &mut self.half
    }

    /// Sets how to wait from now on.
    pub fn set_wait(&mut self, wait: Wait) {
        self.spin.set_policy(wait);
    }
}

impl Receiver {
    /// The guest at the other end.
    pub fn peer(&self) -> Name {
        self.membership.peer()
    }

    /// Receives the next message, which stays where it is until the next verb. Waits until there is one.
    ///
    /// # Errors
    /// [`Severed`] once the path has ended and everything that was sent has been received.
    #[inline]
    pub fn receive(&mut self) -> Result<Message<'_>, Severed> {
        Ok(self.receive_before(None)?.expect("no time was set"))
    }

    /// Receives the next message, if there is one.
    ///
    /// # Errors
    /// [`Severed`] once the path has ended and everything that was sent has been received.
    #[inline]
    pub fn try_receive(&mut self) -> Result<Option<Message<'_>>, Severed> {
        self.half.receive()
    }

    /// Receives the next message, and waits at most for `time`. None if the time is over.
    ///
    /// # Errors
    /// [`Severed`] once the path has ended and everything that was sent has been received.
    pub fn receive_within(&mut self, time: Duration) -> Result<Option<Message<'_>>, Severed> {
        self.receive_before(Some(after(time)))
    }

    /// Receives the next message, if there is one, and says where it is: see [`Receiver::message`].
    ///
    /// # Errors
    /// [`Severed`] once the path has ended and everything that was sent has been received.
    #[inline]
    pub fn fetch(&mut self) -> Result<Option<MessageRef>, Severed> {
        self.half.fetch()
    }

    /// Ends this half in good order: the peer's sends fail with [`path::Reason::Peer`]. What has not been received yet
    /// is lost.
    pub fn close(self) {
        self.close_with([0; END_DATA_BYTES]);
    }

    /// Ends this half in good order, with data for the other side's user: [`Severed::data`]. What has not been received
    /// yet is lost.
    pub fn close_with(mut self, data: UserData) {
        self.half.sever(data);
    }

    #[inline]
    fn receive_before(&mut self, deadline_ns: Option<u64>) -> Result<Option<Message<'_>>, Severed> {
        let message = loop {
            if self.slips() {
                self.slip.wait(&mut self.half, deadline_ns);
            }
            if let Some(message) = self.half.fetch()? {
                break message;
            }
            if let Some(message) = self.spin.poll_short(&mut self.half)? {
                break message;
            }
            match self.spin.wait(&mut self.half, deadline_ns) {
                Waited::Ready | Waited::Rung => {}
                Waited::TimedOut => return Ok(None),
                Waited::Idle => self.trim_with(&mut []),
            }
        };
        Ok(Some(self.half.message(message)))
    }

    /// Returns true if messages are to gather before the next poll.
    #[inline(always)]
    fn slips(&self) -> bool {
        self.half.has_caught_up() && self.spin.polls() && self.slip.is_allowed()
    }

    /// What has arrived next, if there is something: a message of at most `copied_bytes_max`, copied; or a
    /// longer one or a list, which stay where they are, and are to be given back. One call looks into 128 buffers at
    /// most: none may be returned while the half is ready.
    ///
    /// # Errors
    /// [`Severed`] once the path has ended and everything that was sent has been received.
    #[inline]
    pub fn poll(&mut self, copied_bytes_max: usize) -> Result<Option<Incoming>, Severed> {
        self.half.poll(copied_bytes_max)
    }

    /// A message that was copied. It is valid until the next verb that receives; after that its bytes are others.
    #[inline]
    pub fn message(&self, message: MessageRef) -> Message<'_> {
        self.half.message(message)
    }

    /// Gives back a message that was read in its page.
    ///
    /// # Errors
    /// [`NotOurs`] if another half has given it out.
    pub fn give_back(&mut self, message: InPage) -> Result<(), NotOurs<InPage>> {
        self.half.give_back(message)
    }

    /// Gives back a list that was read.
    ///
    /// # Errors
    /// [`NotOurs`] if another half has given it out.
    pub fn give_back_list(&mut self, list: List) -> Result<(), NotOurs<List>> {
        self.half.give_back_list(list)
    }

    /// Copies the next bytes of a large message into `target`, and returns how many: zero, with bytes left, if they are
    /// not filled in yet, which [`Receiver::wait`] waits for.
    ///
    /// # Errors
    /// [`Severed`] if the sender is gone before the message was whole, or if another half has given it out.
    pub fn pull(&mut self, message: &mut Announced, target: &mut [u8]) -> Result<usize, Severed> {
        self.half.pull(message, target)
    }

    /// Ends the reading of a large message: the sender may use its storage again.
    ///
    /// # Errors
    /// [`NotOurs`] if another half has given it out.
    pub fn release(&mut self, message: Announced) -> Result<(), NotOurs<Announced>> {
        self.half.release(message)
    }

    /// Waits until there is something to poll, or the path has ended.
    pub fn wait(&mut self) {
        loop {
            match self.spin.wait(&mut self.half, None) {
                Waited::Ready => return,
                Waited::Idle => self.trim_with(&mut []),
                Waited::Rung | Waited::TimedOut => {}
            }
        }
    }

    /// The engine's half: everything else that a receiving half can do, without waiting. See [`crate::raw`].
    pub fn raw(&mut self) -> &mut path::Receiver {
        &mut self.half
    }

    /// Sets from now on the longest that a receive lets messages of a stream gather: [`crate::PathOptions::slip`].
    pub fn set_slip(&mut self, slip: Duration) {
        self.slip = Slip::new(slip);
    }

    /// Sets how to wait from now on.
    pub fn set_wait(&mut self, wait: Wait) {
        self.spin.set_policy(wait);
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.half.descriptor()
    }

    /// Housekeeping for this half and for others that share its waits.
    fn trim_with(&mut self, senders: &mut [Sender]) {
        self.half.trim();
        let mut may_trim = false;
        for sender in senders {
            may_trim |= sender.half.trim();
        }
        self.spin.trimmed(may_trim);
    }
}
