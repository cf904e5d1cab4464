//! A path of IUCV, to program with: its verbs wait.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use fabric::control::{Kind, Target, UserData};
use fabric::name::Name;
use fabric::path::{Counter, END_DATA_BYTES, Lack, Reason, Severed};
use message::iucv::{
    self, Completion, Counts, Event, Interrupt, MessageId, Outgoing, PARAMETER_BYTES,
    PendingMessage, PurgeError, ReceiveError, Received, ReplyError, SendError, TryReplyError,
    TrySendError, Which,
};
use os::doorbell::Listen;
use os::processor::now_ns;

use super::mask::Masks;
use super::options::Options;
use super::waits::{Waiting, Wanted};
use crate::guest::{ConnectError, Connecting, Guest};
use crate::link::Membership;
use crate::waiter::Member;
use crate::waiting::{Half, SpinPolicy, Wait, Waited, after, count_polls};
use crate::whole;

/// A path of IUCV to another guest.
#[derive(Debug)]
pub struct IucvPath {
    inner: iucv::Path,
    spin: SpinPolicy,
    membership: Arc<Membership>,
    data: UserData,
    /// A message or reply that was shown whole, when it was not shown where it lay.
    whole: Vec<u8>,
    /// What makes it ready, as a member of a waiter.
    masks: Masks,
}

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The call's message, complete.
    pub completion: Completion,
    /// How many bytes of the reply were copied now.
    pub bytes: usize,
    /// How many are left: of [`IucvPath::answer`] only, whose next call copies more.
    pub residual: usize,
}

/// Why a call brought no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The question was not sent.
    #[error(transparent)]
    Send(#[from] SendError),
    /// It was sent, and there is no reply: see the audit.
    #[error("{}", .0.audit)]
    Incomplete(Completion),
    /// The reply was cut off: the path has ended.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
}

impl IucvPath {
    /// (CONNECT) Makes a path to another guest, which has to accept it. Waits until it does, at most for
    /// [`Options::time`].
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(
        guest: &Guest,
        target: &str,
        options: &Options,
    ) -> Result<IucvPath, ConnectError> {
        IucvPath::connect_to(guest, Target::Guest(target.parse()?), options)
    }

    /// Makes a path to a guest, or to the manager of a resource.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect_to(
        guest: &Guest,
        target: Target,
        options: &Options,
    ) -> Result<IucvPath, ConnectError> {
        let connecting = guest.start_connecting_to(target, &options.below())?;
        IucvPath::complete_connecting(guest, connecting, options)
    }

    pub(super) fn complete_connecting(
        guest: &Guest,
        connecting: Connecting,
        options: &Options,
    ) -> Result<IucvPath, ConnectError> {
        Ok(IucvPath::over(guest.complete(connecting)?, options))
    }

    /// (ACCEPT) Waits for a connection for IUCV from another guest and accepts it.
    ///
    /// # Errors
    /// [`ConnectError`]; another connection can be accepted after that.
    pub fn accept(guest: &Guest, options: &Options) -> Result<IucvPath, ConnectError> {
        Ok(IucvPath::accept_before(guest, options, u64::MAX)?.expect("no time was set"))
    }

    /// Waits at most for `time` for a connection for IUCV and accepts it. None if the time is over. Accepting waits for the host besides.
    ///
    /// # Errors
    /// [`ConnectError`]; another connection can be accepted after that.
    pub fn accept_within(
        guest: &Guest,
        options: &Options,
        time: Duration,
    ) -> Result<Option<IucvPath>, ConnectError> {
        IucvPath::accept_before(guest, options, after(time))
    }

    fn accept_before(
        guest: &Guest,
        options: &Options,
        deadline_ns: u64,
    ) -> Result<Option<IucvPath>, ConnectError> {
        let wanted = |pending: &fabric::control::Pending| pending.kind == Kind::IUCV;
        let accept = |pending| IucvPath::accept_pending(guest, pending, options);
        guest.accept_where(deadline_ns, wanted, accept)
    }

    /// Accepts a connection for IUCV that waits.
    ///
    /// # Errors
    /// [`ConnectError`]; `Shape` if it was refused because it has not two queues each way.
    pub fn accept_pending(
        guest: &Guest,
        pending: fabric::control::Pending,
        options: &Options,
    ) -> Result<IucvPath, ConnectError> {
        Ok(IucvPath::over(guest.accept_fitting(pending, &options.below())?, options))
    }

    /// A path of IUCV over a path that was made for it: of kind [`fabric::control::Kind::IUCV`], with two
    /// queues each way. For those who wait for connections by themselves.
    ///
    /// # Panics
    /// If there are not two queues each way.
    pub fn over(path: crate::Path, options: &Options) -> IucvPath {
        let limits = options.limits(path.flags(), path.messages_max());
        let data = path.user_data();
        let (halves, membership, _) = path.into_parts();
        IucvPath {
            inner: iucv::Path::new(halves, limits),
            spin: SpinPolicy::new(options.wait),
            membership,
            data,
            whole: Vec::new(),
            masks: Masks::ALL,
        }
    }

    /// The guest at the other end.
    pub fn peer(&self) -> Name {
        self.membership.peer()
    }

    /// The number that the host gave the path.
    pub fn number(&self) -> u64 {
        self.membership.number()
    }

    /// The user data that the other side passed when the path was made.
    pub fn user_data(&self) -> UserData {
        self.data
    }

    /// (SEND) Sends a message: it is with the target when this returns. Waits while as many are outstanding as
    /// the path allows, or the target is too far behind. Completions that are not taken stay outstanding:
    /// [`Outgoing::quiet`] sends without one.
    ///
    /// # Errors
    /// [`SendError`]; `Limit` if all that is outstanding is complete, or waits for a reply, so that waiting
    /// would not help.
    pub fn send(&mut self, outgoing: &Outgoing, data: &[u8]) -> Result<MessageId, SendError> {
        self.until_sent(outgoing, |inner| inner.send(outgoing, data))
    }

    /// Sends a message as [`IucvPath::send`] does, and waits at most for `time`. None if the time is over: nothing was
    /// sent then.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent then.
    pub fn send_within(
        &mut self,
        outgoing: &Outgoing,
        data: &[u8],
        time: Duration,
    ) -> Result<Option<MessageId>, SendError> {
        self.sent_before(Some(after(time)), outgoing, |inner| inner.send(outgoing, data))
    }

    /// Pushes a message: for streams of small ones. It may be held back while the target is behind, to go
    /// with those that follow, with the next verb that waits, and at the latest with [`IucvPath::flush`].
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent then.
    // Inlined into the caller's loop: a call costs as much as the rest of a push.
    #[inline(always)]
    pub fn push(&mut self, outgoing: &Outgoing, data: &[u8]) -> Result<MessageId, SendError> {
        match self.inner.push(outgoing, data) {
            Ok(id) => Ok(id),
            Err(error) => self.push_waiting(error, outgoing, data),
        }
    }

    #[cold]
    #[inline(never)]
    fn push_waiting(
        &mut self,
        refused: TrySendError,
        outgoing: &Outgoing,
        data: &[u8],
    ) -> Result<MessageId, SendError> {
        match refused {
            TrySendError::Full | TrySendError::Send(SendError::Limit { .. }) => {
                self.until_sent(outgoing, |inner| inner.push(outgoing, data))
            }
            TrySendError::Send(error) => Err(error),
        }
    }

    /// Hands over what was pushed, and acknowledges what was received.
    #[inline]
    pub fn flush(&mut self) {
        self.inner.flush();
    }

    /// Sends a message of `bytes` that `build` makes in place, in memory that is lent to the target.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent then, though `build` may have been called.
    pub fn send_built(
        &mut self,
        outgoing: &Outgoing,
        bytes: usize,
        mut build: impl FnMut(&mut [u8]),
    ) -> Result<MessageId, SendError> {
        self.until_sent(outgoing, |inner| inner.send_built(outgoing, bytes, &mut build))
    }

    /// (SEND DATA=PRMMSG) Sends eight bytes in the parameter list.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent then.
    pub fn send_parameters(
        &mut self,
        outgoing: &Outgoing,
        data: [u8; PARAMETER_BYTES],
    ) -> Result<MessageId, SendError> {
        self.until_sent(outgoing, |inner| inner.send_parameters(outgoing, data))
    }

    fn until_sent(
        &mut self,
        outgoing: &Outgoing,
        mut attempt: impl FnMut(&mut iucv::Path) -> Result<MessageId, TrySendError>,
    ) -> Result<MessageId, SendError> {
        Ok(self.sent_before(None, outgoing, &mut attempt)?.expect("no time was set"))
    }

    /// None if the time is over.
    fn sent_before(
        &mut self,
        deadline_ns: Option<u64>,
        outgoing: &Outgoing,
        mut attempt: impl FnMut(&mut iucv::Path) -> Result<MessageId, TrySendError>,
    ) -> Result<Option<MessageId>, SendError> {
        loop {
            let wanted = match attempt(&mut self.inner) {
                Ok(id) => return Ok(Some(id)),
                Err(TrySendError::Full) => Wanted::Room(usize::from(outgoing.priority)),
                // Nobody but the caller will take the completions, or the replies.
                Err(TrySendError::Send(SendError::Limit { .. })) if self.inner.will_free() => {
                    Wanted::Completion
                }
                Err(TrySendError::Send(error)) => return Err(error),
            };
            if self.wait_before(wanted, deadline_ns) {
                return Ok(None);
            }
        }
    }

    /// Sends a message and waits for the reply, of which as many bytes are copied into `answer` as fit.
    ///
    /// # Errors
    /// [`CallError`].
    #[inline]
    pub fn call(
        &mut self,
        outgoing: &Outgoing,
        question: &[u8],
        answer: &mut [u8],
    ) -> Result<Answered, CallError> {
        let most = u32::try_from(answer.len()).unwrap_or(u32::MAX);
        let outgoing = Outgoing { reply_bytes_max: Some(most), ..*outgoing };
        let id = self.send(&outgoing, question)?;
        self.answer(id, outgoing.source_class, answer)
    }

    /// Sends a message and waits for the reply, both together at most for `time`. None if the time is over: the
    /// message is purged then, if it was sent.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn call_within(
        &mut self,
        outgoing: &Outgoing,
        question: &[u8],
        answer: &mut [u8],
        time: Duration,
    ) -> Result<Option<Answered>, CallError> {
        let deadline_ns = Some(after(time));
        let most = u32::try_from(answer.len()).unwrap_or(u32::MAX);
        let outgoing = Outgoing { reply_bytes_max: Some(most), ..*outgoing };
        let class = outgoing.source_class;
        let attempt = |inner: &mut iucv::Path| inner.send(&outgoing, question);
        let Some(id) = self.sent_before(deadline_ns, &outgoing, attempt)? else { return Ok(None) };
        let answered = self.answer_before(id, class, answer, deadline_ns)?;
        if answered.is_none() {
            // If it is complete by now, its reply is given up.
            let _ = self.inner.purge(id, class);
            self.inner.discard(id);
        }
        Ok(answered)
    }

    /// Waits for the reply to a message that was sent two-way, and copies it into `answer`, or as much of it
    /// as fits: what is left is copied by the next call, or given up by [`iucv::Path::discard`].
    ///
    /// # Errors
    /// [`CallError`], but never `Send`; `Receive` with `NotFound` if no such message is outstanding: it was never sent, was purged,
    /// or its completion was taken.
    #[inline]
    pub fn answer(
        &mut self,
        id: MessageId,
        source_class: u32,
        answer: &mut [u8],
    ) -> Result<Answered, CallError> {
        Ok(self.answer_before(id, source_class, answer, None)?.expect("no time was set"))
    }

    #[inline]
    fn answer_before(
        &mut self,
        id: MessageId,
        source_class: u32,
        answer: &mut [u8],
        deadline_ns: Option<u64>,
    ) -> Result<Option<Answered>, CallError> {
        let which = Which::Message { id, class: source_class };
        let mut bytes = 0;
        loop {
            let wanted = match self.inner.complete(which, &mut answer[bytes..])? {
                None if !self.inner.is_outstanding(id) => {
                    let severed = self.inner.severed().map(ReceiveError::Severed);
                    return Err(severed.unwrap_or(ReceiveError::NotFound).into());
                }
                None => Wanted::Completion,
                Some((completion, copied, residual)) => {
                    bytes += copied;
                    if !completion.audit.is_good() {
                        return Err(CallError::Incomplete(completion));
                    }
                    if residual == 0 || bytes == answer.len() {
                        return Ok(Some(Answered { completion, bytes, residual }));
                    }
                    Wanted::AnswerFilling { id }
                }
            };
            if self.wait_before(wanted, deadline_ns) {
                return Ok(None);
            }
        }
    }

    /// (TEST COMPLETION) Waits until a message of ours is complete, takes its completion, and copies as many
    /// bytes of the reply into `answer` as fit; what does not is lost.
    ///
    /// # Errors
    /// [`ReceiveError`]: `NotFound` if there is no completion to come: nothing is outstanding, or the message that
    /// is meant by its identity was never sent, was purged, or its completion was taken; `Severed` instead if the
    /// path has ended.
    pub fn completion(
        &mut self,
        mut which: Which,
        answer: &mut [u8],
    ) -> Result<Answered, ReceiveError> {
        let mut bytes = 0;
        loop {
            match self.inner.complete(which, &mut answer[bytes..])? {
                Some((completion, copied, residual)) => {
                    bytes += copied;
                    if residual == 0 {
                        return Ok(Answered { completion, bytes, residual: 0 });
                    }
                    let Completion { id, source_class: class, .. } = completion;
                    which = Which::Message { id, class };
                    if bytes == answer.len() {
                        self.inner.discard(id);
                        return Ok(Answered { completion, bytes, residual: 0 });
                    }
                    self.wait(Wanted::AnswerFilling { id });
                }
                None => {
                    let is_missing = match which {
                        Which::Message { id, .. } => !self.inner.is_outstanding(id),
                        Which::Any | Which::Class(_) => !self.inner.has_outstanding(),
                    };
                    if is_missing {
                        let severed = self.inner.severed().map(ReceiveError::Severed);
                        return Err(severed.unwrap_or(ReceiveError::NotFound));
                    }
                    self.wait(Wanted::Completion);
                }
            }
        }
    }

    /// (RECEIVE) Waits for a message and copies it into `target`, or as much of it as fits: what is left is
    /// received by its identity and class.
    ///
    /// # Errors
    /// [`ReceiveError`]; `NotFound` if the message is meant by its identity, which is not waited for.
    #[inline]
    pub fn receive(&mut self, which: Which, target: &mut [u8]) -> Result<Received, ReceiveError> {
        Ok(self.receive_before(which, target, None)?.expect("no time was set"))
    }

    /// Receives a message as [`IucvPath::receive`] does, and waits at most for `time`. None if the time is over. If that
    /// is in the middle of a large message, so much of it is received, and what is left is received by its
    /// identity and class.
    ///
    /// # Errors
    /// [`ReceiveError`]; `NotFound` if the message is meant by its identity, which is not waited for.
    pub fn receive_within(
        &mut self,
        which: Which,
        target: &mut [u8],
        time: Duration,
    ) -> Result<Option<Received>, ReceiveError> {
        self.receive_before(which, target, Some(after(time)))
    }

    #[inline]
    fn receive_before(
        &mut self,
        which: Which,
        target: &mut [u8],
        deadline_ns: Option<u64>,
    ) -> Result<Option<Received>, ReceiveError> {
        let asked = which;
        let (mut which, mut bytes) = (asked, 0);
        loop {
            match self.inner.receive(which, &mut target[bytes..]) {
                Ok(Received { message, bytes: copied, residual }) => {
                    bytes += copied;
                    let PendingMessage { id, class, priority, .. } = message;
                    which = Which::Message { id, class };
                    if residual == 0
                        || bytes == target.len()
                        || self.wait_before(Wanted::Filling { id, priority }, deadline_ns)
                    {
                        return Ok(Some(Received { message, bytes, residual }));
                    }
                }
                // Its source has purged it when part of it was here.
                Err(ReceiveError::NotFound) if which != asked => (which, bytes) = (asked, 0),
                Err(ReceiveError::NotFound) if !self.is_missing(which) => {
                    if self.wait_before(Wanted::Arrival, deadline_ns) {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// (TEST MESSAGE) Waits for a message, and leaves it as it is.
    ///
    /// # Errors
    /// [`ReceiveError`].
    pub fn pending(&mut self, which: Which) -> Result<PendingMessage, ReceiveError> {
        loop {
            match self.inner.describe(which) {
                Err(ReceiveError::NotFound) if !self.is_missing(which) => {
                    self.wait(Wanted::Arrival);
                }
                found => return found,
            }
        }
    }

    /// Whether a message that was not found will not be found: it is meant by its identity, which is not waited for,
    /// and all that has come was polled.
    fn is_missing(&self, which: Which) -> bool {
        matches!(which, Which::Message { .. }) && !self.inner.is_ready()
    }

    /// Waits for the next message and shows it whole, until the next verb.
    ///
    /// # Errors
    /// [`ReceiveError`]; `Severed` for [`Reason::Lacking`] if there is no memory for the message: the path is severed
    /// then.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend from itself")]
    #[inline]
    pub fn next(&mut self) -> Result<(PendingMessage, &[u8]), ReceiveError> {
        // Where both ways meet the compiler would have the message copied: a third of the time.
        if let Some((pending, shown)) = self.inner.receive_packed() {
            return Ok((pending, self.inner.data(shown)));
        }
        self.next_of_all()
    }

    #[inline(never)]
    fn next_of_all(&mut self) -> Result<(PendingMessage, &[u8]), ReceiveError> {
        loop {
            if let Some((pending, shown)) = self.inner.receive_packed() {
                return Ok((pending, self.inner.data(shown)));
            }
            match self.inner.receive_in_place(Which::Any) {
                Ok(Some((pending, shown))) => return Ok((pending, self.inner.data(shown))),
                Ok(None) => match self.receive_whole() {
                    Ok(pending) => return Ok((pending, &self.whole)),
                    // Its source has purged it meanwhile.
                    Err(ReceiveError::NotFound) => {}
                    Err(error) => return Err(error),
                },
                Err(ReceiveError::NotFound) => self.wait(Wanted::Arrival),
                Err(error) => return Err(error),
            }
        }
    }

    /// Receives the next message into memory of our own.
    fn receive_whole(&mut self) -> Result<PendingMessage, ReceiveError> {
        let pending = self.inner.describe(Which::Any)?;
        let PendingMessage { id, class, bytes, .. } = pending;
        let which = Which::Message { id, class };
        let mut whole = std::mem::take(&mut self.whole);
        let resized = whole::resize(&mut whole, bytes);
        let received = match resized {
            Ok(()) => self.receive(which, &mut whole),
            Err(lack) => Err(self.end_for_want_of(lack)),
        };
        self.whole = whole;
        received.map(|_| pending)
    }

    /// Ends the path, as it ends below when there is no memory for what comes over it.
    #[cold]
    fn end_for_want_of(&mut self, lack: Lack) -> ReceiveError {
        let reason = Reason::Lacking(lack);
        // What was pushed was taken, and what was received is complete.
        self.inner.flush();
        self.inner.fail(reason);
        Severed { reason, data: [0; END_DATA_BYTES] }.into()
    }

    /// (REPLY) Replies to a message that was received. Waits while its source is too far behind.
    ///
    /// # Errors
    /// [`ReplyError`].
    #[inline]
    pub fn reply(&mut self, id: MessageId, data: &[u8]) -> Result<(), ReplyError> {
        match self.inner.reply(id, false, data) {
            Ok(()) => Ok(()),
            Err(TryReplyError::Full) => self.until_replied(|inner| inner.reply(id, false, data)),
            Err(TryReplyError::Reply(error)) => Err(error),
        }
    }

    /// Replies with priority.
    ///
    /// # Errors
    /// [`ReplyError`]; nothing was sent then.
    pub fn reply_with_priority(&mut self, id: MessageId, data: &[u8]) -> Result<(), ReplyError> {
        self.until_replied(|inner| inner.reply(id, true, data))
    }

    /// Replies with `bytes` that `build` makes in place.
    ///
    /// # Errors
    /// [`ReplyError`]; nothing was sent then, though `build` may have been called.
    pub fn reply_built(
        &mut self,
        id: MessageId,
        bytes: usize,
        mut build: impl FnMut(&mut [u8]),
    ) -> Result<(), ReplyError> {
        self.until_replied(|inner| inner.reply_built(id, false, bytes, &mut build))
    }

    fn until_replied(
        &mut self,
        mut attempt: impl FnMut(&mut iucv::Path) -> Result<(), TryReplyError>,
    ) -> Result<(), ReplyError> {
        loop {
            match attempt(&mut self.inner) {
                Ok(()) => return Ok(()),
                Err(TryReplyError::Full) => self.wait(Wanted::Room(1)),
                Err(TryReplyError::Reply(error)) => return Err(error),
            }
        }
    }

    /// Waits for the next event: for programs that do several things on a path at once. Of a path that has ended, the
    /// end is reported again when there is no other event.
    pub fn event(&mut self) -> Event {
        loop {
            if let Some(event) = self.inner.next_event(|_| true) {
                return event;
            }
            if let Some(severed) = self.inner.severed() {
                return Event::Severed(severed);
            }
            self.wait(Wanted::Arrival);
        }
    }

    /// The next event that `wanted` lets through, if there is one.
    pub fn try_event(&mut self, wanted: impl Fn(Interrupt) -> bool) -> Option<Event> {
        self.inner.next_event(wanted)
    }

    /// (SEVER) Ends the path: the peer's reason is [`Reason::Peer`]. What was sent can still be received.
    pub fn close(self) {
        self.sever([0; END_DATA_BYTES]);
    }

    /// (SEVER) Ends the path, with data for the other side's user. What was sent can still be received.
    pub fn sever(mut self, data: UserData) {
        self.inner.sever(data);
    }

    /// (REJECT) Refuses a message that was received and has no reply yet, or that is pending. Its source is notified.
    /// Does not wait.
    ///
    /// # Errors
    /// [`ReplyError`]: `NotFound` or `Severed`.
    pub fn reject(&mut self, id: MessageId) -> Result<(), ReplyError> {
        self.inner.reject(id)
    }

    /// (PURGE) Takes a message of ours back: it is not received, or its reply is not taken. Does not wait.
    ///
    /// # Errors
    /// [`PurgeError`].
    pub fn purge(&mut self, id: MessageId, source_class: u32) -> Result<(), PurgeError> {
        self.inner.purge(id, source_class)
    }

    /// (QUERY) How many messages are in which state.
    pub fn counts(&self) -> Counts {
        self.inner.counts()
    }

    /// The path below, none of whose verbs waits. See [`crate::raw`].
    pub fn raw(&mut self) -> &mut iucv::Path {
        &mut self.inner
    }

    /// Sets how to wait from now on.
    pub fn set_wait(&mut self, wait: Wait) {
        self.spin.set_policy(wait);
    }

    fn arrivals(&mut self) -> Waiting<'_> {
        Waiting { path: &mut self.inner, wanted: Wanted::Arrival }
    }

    /// As a member of a waiter, be ready for what these masks let through.
    pub(super) fn set_masks(&mut self, masks: Masks) {
        self.masks = masks;
    }

    /// Sends control records that wait, if there is room for them: no event is made of that.
    fn send_pending(&mut self) {
        if self.arrivals().is_sayable() {
            self.inner.flush();
        }
    }

    fn wait(&mut self, wanted: Wanted) {
        self.wait_before(wanted, None);
    }

    /// Waits for the next occasion to try a verb again; whether the time is over.
    fn wait_before(&mut self, wanted: Wanted, deadline_ns: Option<u64>) -> bool {
        if wanted == Wanted::Arrival && self.inner.has_pending_controls() {
            // Between two packs of a stream there is no time to say what was received of the first: it is
            // said with what is received of the others. (64 B: a record to each of 60 messages, and
            // nothing to do while it went.)
            self.inner.hand_over();
            let path = &mut self.inner;
            if self.spin.glance(&mut Waiting { path, wanted: Wanted::Next }) {
                return deadline_ns.is_some_and(|deadline_ns| now_ns() >= deadline_ns);
            }
        }
        self.inner.flush();
        let path = &mut self.inner;
        let mut waiting = Waiting { path, wanted };
        let waited = self.spin.wait(&mut waiting, deadline_ns);
        if waited == Waited::Idle {
            let may_trim = Member::trim(self);
            self.spin.trimmed(may_trim);
        }
        waited == Waited::TimedOut
    }
}

/// Ready when something has come, or the path has ended.
impl Member for IucvPath {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        self.inner.descriptors().into_iter().for_each(add);
    }

    fn is_path(&self) -> bool {
        true
    }

    fn hear(&mut self, index: usize) -> bool {
        match index {
            0 => self.inner.hear_arrivals(Listen::Now),
            _ => self.inner.hear_returns(),
        };
        self.inner.can_be_rung()[index]
    }

    #[inline]
    fn is_ready(&mut self) -> bool {
        let has_come = self.inner.is_ready_for(|interrupt| self.masks.let_through(interrupt));
        if !has_come {
            self.send_pending();
        }
        has_come
    }

    fn sleep(&mut self) {
        self.inner.flush();
        self.arrivals().announce_sleep();
        self.inner.counters().add(Counter::Sleeps, 1);
    }

    fn wake(&mut self) {
        Half::wake(&mut self.arrivals());
    }

    fn trim(&mut self) -> bool {
        // Nobody is shown it any more.
        self.whole = Vec::new();
        self.inner.trim()
    }

    fn count(&mut self, polls: u64, spinning_ns: u64) {
        count_polls(self.inner.counters(), polls, false, spinning_ns);
    }
}
