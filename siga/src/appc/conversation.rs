//! A conversation, to program with: its verbs wait (WAIT=YES).

use std::sync::Arc;
use std::time::Duration;

use fabric::control::{Kind, Pending, Target, UserData};
use fabric::name::Name;
use fabric::path::END_DATA_BYTES;
use message::appc::{
    self, Data, Level, Received, Role, State, StateError, Then, TryError, VerbError,
};

use super::function::receive_on;
use super::options::{Options, level};
use super::waits::{Waiting, Wanted};
use crate::guest::{ConnectError, Connecting, Guest};
use crate::link::Membership;
use crate::waiting::{SpinPolicy, Wait, Waited, after};
use crate::whole;

/// A conversation with another guest. Dropping it before it has ended is a failure to the partner.
#[derive(Debug)]
pub struct Conversation {
    pub(super) inner: appc::Conversation,
    spin: SpinPolicy,
    membership: Arc<Membership>,
    data: UserData,
    resource: Option<Name>,
}

impl Conversation {
    /// (CONNECT) Allocates a conversation with the manager of a resource: the local one of this name, or else
    /// the global one. Waits until it accepts. This side sends first.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn allocate(
        guest: &Guest,
        resource: &str,
        options: &Options,
    ) -> Result<Conversation, ConnectError> {
        Conversation::allocate_to(guest, Target::Resource(resource.parse()?), options)
    }

    /// Allocates a conversation with a guest, or with the manager of a resource.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn allocate_to(
        guest: &Guest,
        target: Target,
        options: &Options,
    ) -> Result<Conversation, ConnectError> {
        let connecting = Conversation::start_allocating(guest, target, options)?;
        let path = guest.complete(connecting)?;
        Ok(Conversation::allocated(path, target, options))
    }

    pub(super) fn start_allocating(
        guest: &Guest,
        target: Target,
        options: &Options,
    ) -> Result<Connecting, ConnectError> {
        guest.start_connecting_to(target, &options.below())
    }

    pub(super) fn allocated(path: crate::Path, target: Target, options: &Options) -> Conversation {
        let resource = match target {
            Target::Resource(resource) => Some(resource),
            Target::Guest(_) => None,
        };
        Conversation::over(path, Role::Allocator, options.level, resource, options)
    }

    /// (ACCEPT) Waits until a guest allocates a conversation with this one, for any resource, and
    /// accepts it. This side receives first.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn accept(guest: &Guest, options: &Options) -> Result<Conversation, ConnectError> {
        Ok(Conversation::accept_where(guest, options, u64::MAX, |_| true)?
            .expect("no time was set"))
    }

    /// Waits at most for `time` until a guest allocates a conversation with this one, and accepts it. None if
    /// the time is over. Accepting waits for the host besides.
    ///
    /// # Errors
    /// [`ConnectError`]; another conversation can be accepted after that.
    pub fn accept_within(
        guest: &Guest,
        options: &Options,
        time: Duration,
    ) -> Result<Option<Conversation>, ConnectError> {
        Conversation::accept_where(guest, options, after(time), |_| true)
    }

    /// Waits until a guest allocates a conversation for this resource, and accepts it. Others go on
    /// waiting.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn accept_for(
        guest: &Guest,
        resource: &str,
        options: &Options,
    ) -> Result<Conversation, ConnectError> {
        let resource: Name = resource.parse()?;
        let wanted = |pending: &Pending| pending.resource == Some(resource);
        let accepted = Conversation::accept_where(guest, options, u64::MAX, wanted)?;
        Ok(accepted.expect("no time was set"))
    }

    fn accept_where(
        guest: &Guest,
        options: &Options,
        deadline_ns: u64,
        wanted: impl Fn(&Pending) -> bool,
    ) -> Result<Option<Conversation>, ConnectError> {
        let wanted = |pending: &Pending| pending.kind == Kind::APPC && wanted(pending);
        let accept = |pending| Conversation::accept_pending(guest, pending, options);
        guest.accept_where(deadline_ns, wanted, accept)
    }

    /// Accepts a conversation that waits.
    ///
    /// # Errors
    /// [`ConnectError`]; `Shape` if it was refused because it has not one queue each way.
    pub fn accept_pending(
        guest: &Guest,
        pending: Pending,
        options: &Options,
    ) -> Result<Conversation, ConnectError> {
        let path = guest.accept_fitting(pending, &options.below())?;
        let level = level(path.flags());
        Ok(Conversation::over(path, Role::Acceptor, level, pending.resource, options))
    }

    fn over(
        path: crate::Path,
        role: Role,
        level: Level,
        resource: Option<Name>,
        options: &Options,
    ) -> Conversation {
        let data = path.user_data();
        let (halves, membership, _) = path.into_parts();
        Conversation {
            inner: appc::Conversation::new(halves, role, level),
            spin: SpinPolicy::new(options.wait),
            membership,
            data,
            resource,
        }
    }

    /// The guest at the other end.
    pub fn peer(&self) -> Name {
        self.membership.peer()
    }

    /// The number that the host gave the path below.
    pub fn number(&self) -> u64 {
        self.membership.number()
    }

    /// The user data that the other side passed when the conversation was made.
    pub fn user_data(&self) -> UserData {
        self.data
    }

    /// The resource that it was allocated for; none if it was allocated with a guest.
    pub fn resource(&self) -> Option<Name> {
        self.resource
    }

    /// The state, as far as it was reported to this program.
    pub fn state(&self) -> State {
        self.inner.state()
    }

    /// Whether records can be confirmed.
    pub fn level(&self) -> Level {
        self.inner.level()
    }

    /// (SENDDATA) Sends a record, and says what comes next. Waits while the partner is too far behind, and, if
    /// it is to confirm, until it has.
    ///
    /// # Errors
    /// [`VerbError`]; `Trouble` if the partner has found an error, also instead of
    /// confirming.
    #[inline]
    pub fn send(&mut self, record: &[u8], then: Then) -> Result<(), VerbError> {
        self.until_done(Wanted::Room, |inner| inner.send(record, then))?;
        self.until_confirmed(then)
    }

    /// Sends a record: for streams of small ones. It may be held back while the partner is behind, to go with
    /// those that follow, with the next verb that waits or says what comes next, and at the latest with
    /// [`Conversation::flush`].
    ///
    /// # Errors
    /// [`VerbError`]; nothing was sent then.
    #[inline]
    pub fn push(&mut self, record: &[u8]) -> Result<(), VerbError> {
        self.until_done(Wanted::Room, |inner| inner.push(record))
    }

    /// Hands over what was pushed.
    #[inline]
    pub fn flush(&mut self) {
        self.inner.flush();
    }

    /// Sends a record of `bytes` that `build` makes in place, in memory that is lent to the partner.
    ///
    /// # Errors
    /// [`VerbError`]: the record was not sent, though `build` may have been called, or the
    /// partner has not confirmed.
    pub fn send_built(
        &mut self,
        bytes: usize,
        then: Then,
        mut build: impl FnMut(&mut [u8]),
    ) -> Result<(), VerbError> {
        self.until_done(Wanted::Room, |inner| inner.send_built(bytes, then, &mut build))?;
        self.until_confirmed(then)
    }

    /// Sends what comes next, without a record: turns round, asks to confirm, or ends the conversation. Waits
    /// as [`Conversation::send`] does.
    ///
    /// # Errors
    /// [`VerbError`]: nothing was sent, or the partner has not confirmed.
    pub fn send_without_data(&mut self, then: Then) -> Result<(), VerbError> {
        self.until_done(Wanted::Room, |inner| inner.send_without_data(then))?;
        self.until_confirmed(then)
    }

    /// (SENDCNF) Asks the partner to confirm, and waits until it has.
    ///
    /// # Errors
    /// [`VerbError`]: nothing was sent, or the partner has not confirmed.
    pub fn confirm(&mut self) -> Result<(), VerbError> {
        self.send_without_data(Then::Confirm)
    }

    #[inline]
    fn until_confirmed(&mut self, then: Then) -> Result<(), VerbError> {
        if !then.confirms() {
            return Ok(());
        }
        self.until_done(Wanted::Arrival, appc::Conversation::confirmation)
    }

    /// (RECEIVE) Waits for a record and copies it into `target`, or as much of it as fits: the rest is received
    /// by the next call. Waits too for what comes next, if the partner says that without a record.
    ///
    /// # Errors
    /// [`VerbError`].
    #[inline]
    pub fn receive(&mut self, target: &mut [u8]) -> Result<Received, VerbError> {
        let (mut at, mut requested) = (0, false);
        self.until_done(Wanted::Arrival, |inner| receive_on(inner, target, &mut at, &mut requested))
    }

    /// Receives a record as [`Conversation::receive`] does, and waits at most for `time`. None if the time is over.
    /// If that is in the middle of a record, so much of it is received, and the rest by the next call.
    ///
    /// # Errors
    /// [`VerbError`].
    pub fn receive_within(
        &mut self,
        target: &mut [u8],
        time: Duration,
    ) -> Result<Option<Received>, VerbError> {
        let deadline_ns = after(time);
        let (mut bytes, mut requested) = (0, false);
        loop {
            match receive_on(&mut self.inner, target, &mut bytes, &mut requested) {
                Ok(received) => return Ok(Some(received)),
                Err(TryError::Verb(error)) => return Err(error),
                Err(TryError::Pending) => {}
            }
            if self.wait_before(Wanted::Arrival, Some(deadline_ns)) {
                if bytes == 0 {
                    return Ok(None);
                }
                // Part of the record has come: this does not wait.
                let left = self.until_done(Wanted::Arrival, appc::Conversation::pending_bytes)?;
                let (data, status) = (Data::Incomplete { left }, self.inner.state());
                return Ok(Some(Received { bytes, data, status, requested }));
            }
        }
    }

    /// Waits for a record and receives it whole, into `target`, which is made as long as the record.
    ///
    /// # Errors
    /// [`VerbError`]; `Lacking` if there is no memory for the record, which can then be received in
    /// parts.
    pub fn receive_whole(&mut self, target: &mut Vec<u8>) -> Result<Received, VerbError> {
        let bytes = self.until_done(Wanted::Arrival, appc::Conversation::pending_bytes)?;
        whole::resize(target, bytes).map_err(VerbError::Lacking)?;
        self.receive(target)
    }

    /// (SENDCNFD) Confirms what the partner has asked to be confirmed.
    ///
    /// # Errors
    /// [`VerbError`].
    pub fn confirmed(&mut self) -> Result<(), VerbError> {
        self.until_done(Wanted::Room, appc::Conversation::confirmed)
    }

    /// (SENDERR) Tells the partner of an error. What it has sent and this side has not received is purged, or is
    /// not confirmed; this side sends then. A side that is sending goes on, and nothing is purged.
    ///
    /// # Errors
    /// [`VerbError`].
    pub fn error(&mut self) -> Result<(), VerbError> {
        self.until_done(Wanted::Room, appc::Conversation::error)
    }

    /// (SENDREQ) Asks the partner for the turn.
    ///
    /// # Errors
    /// [`VerbError`].
    pub fn request(&mut self) -> Result<(), VerbError> {
        self.until_done(Wanted::Room, appc::Conversation::request)
    }

    /// Whether the partner has asked for the turn since this was said last.
    pub fn take_requested(&mut self) -> bool {
        self.inner.take_requested()
    }

    /// (SEVER) Ends the conversation where it stands. What was sent can still be received; then the partner is
    /// notified, with `data` for its user. To end it in good order, send [`Then::Sever`].
    ///
    /// # Errors
    /// It has ended already.
    pub fn sever(&mut self, data: [u8; END_DATA_BYTES]) -> Result<(), StateError> {
        self.inner.sever(data)
    }

    /// The conversation below, none of whose verbs waits. See [`crate::raw`].
    pub fn raw(&mut self) -> &mut appc::Conversation {
        &mut self.inner
    }

    /// Sets how to wait from now on.
    pub fn set_wait(&mut self, wait: Wait) {
        self.spin.set_policy(wait);
    }

    #[inline]
    fn until_done<T>(
        &mut self,
        wanted: Wanted,
        mut verb: impl FnMut(&mut appc::Conversation) -> Result<T, TryError>,
    ) -> Result<T, VerbError> {
        loop {
            match verb(&mut self.inner) {
                Ok(done) => return Ok(done),
                Err(TryError::Pending) => self.wait(wanted),
                Err(TryError::Verb(error)) => return Err(error),
            }
        }
    }

    fn wait(&mut self, wanted: Wanted) {
        self.wait_before(wanted, None);
    }

    /// Waits for the next occasion to try a verb again; whether the time is over.
    fn wait_before(&mut self, wanted: Wanted, deadline_ns: Option<u64>) -> bool {
        self.inner.flush();
        let mut waiting = Waiting { conversation: &mut self.inner, wanted };
        let waited = self.spin.wait(&mut waiting, deadline_ns);
        if waited == Waited::Idle {
            self.spin.trimmed(self.inner.trim());
        }
        waited == Waited::TimedOut
    }
}
