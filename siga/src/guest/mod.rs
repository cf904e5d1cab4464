//! A guest: a party that has a name.

mod attachment;
mod error;
mod inbox;
mod news;

pub use attachment::{Attachment, AttachmentState};
pub use error::{AttachError, ConnectError, ResourceError};

use std::borrow::BorrowMut;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path as FilePath;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

#[cfg(feature = "embedded")]
use ::host::Embedded;
use fabric::control::{
    Allowance, Joined, Kind, Limit, Owner, Pending, Problem, Reached, Reply, Request, Scope,
    Target, UserData,
};
#[cfg(feature = "tcpip")]
use fabric::control::{Order, Placed};
use fabric::name::Name;
use fabric::path::{Side, SideDescriptors};
use os::alarm::Alarm;
use os::foreign::{self, Foreign, close_on_a_thread, spawn_closer};
use os::fork::ForkSafeFd;
use os::packets::Packets;
use os::poller::{Poller, wait_readable};
use os::processor::now_ns;

use self::error::unreached;
pub(crate) use self::inbox::Claim;
use self::inbox::{Answer, Awaited, Inbox, Standing};
use crate::link::{ANSWER_TIME, Account, Link, Membership, Unsent};
use crate::options::PathOptions;
use crate::path::{Negotiated, Path};
use crate::waiting::after;

/// Requests for paths that whoever serves a guest takes in one call. What is left keeps the guest ready.
pub(crate) const PENDING_PER_CALL_MAX: usize = 4;

const NO_DATA: UserData = [0; 16];

/// A party that is attached to a host under a name.
///
/// Its paths do not need it: they are made with its help, and go on when it is dropped or when its host
/// dies. A guest that is being used ([`Guest::connect`], [`Guest::accept`], [`Guest::poll`], or in a
/// [`crate::Waiter`]) attaches to a new host by itself, and has its paths accounted there.
#[derive(Debug)]
pub struct Guest {
    name: Name,
    /// Where to connect to a new host; none for one in this process.
    socket: Option<Box<FilePath>>,
    link: Arc<Link>,
    /// Readable when the host has sent something, and when the guest is to be polled without that; the same
    /// descriptor for every host.
    poller: Poller,
    inbox: RefCell<Inbox>,
    /// Resources this guest manages, announced to each new host.
    resources: RefCell<Vec<(Name, Scope)>>,
    /// Accounts of descriptors that other guests have passed over their paths and that wait to be closed.
    passed: Box<RefCell<BTreeMap<Name, foreign::Account>>>,
}

/// Questions after which a guest takes in what the host has sent: their answers, and as many notices, are fewer than a
/// socket holds, and than one poll takes in.
const QUESTIONS_MAX: u8 = 32;

/// Descriptors of one peer that wait to be closed. Beyond, no path to that peer is made: each of its paths could leave
/// hundreds more.
const REFUSED_MAX: usize = 64;

/// A connection that was asked for, or is being accepted. Give it to [`Guest::complete`] of the guest that asked for it,
/// or drop it to take it back.
#[derive(Debug)]
#[must_use = "a connection that is dropped is taken back"]
pub struct Connecting {
    claim: Claim,
    /// The other's request that is being accepted, if it is not ours, and at which host.
    pending: Option<(Pending, u64)>,
    side: Option<Side>,
    board: Option<OwnedFd>,
    options: PathOptions,
    link: Arc<Link>,
}

/// A reply of the host, and what came with it; none if the host is gone, or did not answer in time.
pub(crate) type Answered = Option<(Reply, io::Result<Vec<Foreign>>)>;

fn answered(answer: Answer) -> Answered {
    match answer {
        Answer::Reply(reply, descriptors) => Some((reply, descriptors)),
        Answer::HostGone => None,
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        match (&self.side, &self.pending) {
            (Some(_), None) => {
                self.link.notify_host(&Request::Cancel { connect: self.claim.serial });
            }
            // If the host has joined us by now, its answer is not claimed, and the path is given up.
            (Some(_), Some(_)) => self.refuse(),
            (None, _) => {}
        }
    }
}

impl Connecting {
    /// Refuses the other's request, if it waits still, so that it waits no longer.
    fn refuse(&self) {
        if let Some((Pending { path, .. }, host)) = self.pending {
            self.link.notify_this_host(host, &Request::Refuse { path, data: NO_DATA });
        }
    }
}

impl Guest {
    /// Attaches to the host at `socket` under a name, 1 to 8 characters. [`crate::default_socket`] returns the usual
    /// place. Waits at most 10 s for the answer.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn attach(socket: impl AsRef<FilePath>, name: &str) -> Result<Guest, AttachError> {
        let socket = socket.as_ref();
        let name = name.parse()?;
        let packets = Packets::connect(socket).map_err(|error| unreached(socket, error))?;
        Guest::attach_over(packets, Some(socket.into()), name)
    }

    /// Attaches to a host in this process.
    ///
    /// # Errors
    /// [`AttachError`].
    #[cfg(feature = "embedded")]
    pub fn attach_embedded(host: &Embedded, name: &str) -> Result<Guest, AttachError> {
        let name = name.parse()?;
        let packets = host.connect().map_err(|error| match error.kind() {
            io::ErrorKind::NotConnected => AttachError::NoAnswer,
            _ => AttachError::Resources(error),
        })?;
        Guest::attach_over(packets, None, name)
    }

    fn attach_over(
        packets: Packets,
        socket: Option<Box<FilePath>>,
        name: Name,
    ) -> Result<Guest, AttachError> {
        close_on_a_thread(spawn_closer);
        let (poller, alarm) = (Poller::new()?, Alarm::new()?);
        poller.add(&packets, 0)?;
        poller.add(&alarm, 0)?;
        let link = Arc::new(Link::new(packets, alarm));
        let guest = Guest {
            name,
            socket,
            link,
            poller,
            inbox: RefCell::new(Inbox::new()),
            resources: RefCell::default(),
            passed: Box::default(),
        };
        let claim = match guest.ask(&Request::Attach { name }, &[]) {
            Ok(claim) => claim,
            Err(Unsent::Resources(error)) => return Err(AttachError::Resources(error)),
            // It may have said why.
            Err(Unsent::HostGone | Unsent::HostBehind) => {
                guest.poll();
                return Err(guest.not_attached());
            }
        };
        match guest.wait_for_answer(&claim, after(ANSWER_TIME)) {
            Some(Answer::Reply(Reply::Attached, _)) => Ok(guest),
            Some(Answer::Reply(Reply::Failed { problem, .. }, _)) => {
                Err(AttachError::Refused { name, problem })
            }
            _ => Err(guest.not_attached()),
        }
    }

    /// The error for a host that has not answered, or that takes no connection of ours.
    fn not_attached(&self) -> AttachError {
        let name = self.name;
        let refused = |problem| AttachError::Refused { name, problem };
        self.inbox.borrow().seldom.turned_away.map_or(AttachError::NoAnswer, refused)
    }

    /// The name we are attached under.
    pub fn name(&self) -> Name {
        self.name
    }

    /// Whether there was a host when the guest polled last.
    pub fn is_attached(&self) -> bool {
        self.inbox.borrow().standing == Standing::Attached
    }

    /// Returns what follows from another thread whether this guest has a host. Each thread that does that has one of its own.
    ///
    /// # Errors
    /// No descriptor or no memory left.
    pub fn attachment(&self) -> io::Result<Attachment> {
        let mut inbox = self.inbox.borrow_mut();
        let state = inbox.attachment_state();
        inbox.seldom.followers.add(state)
    }

    /// Makes a path to another guest, which has to accept it. Waits until it does, at most for
    /// [`PathOptions::time`].
    ///
    /// # Errors
    /// [`ConnectError`], `TimedOut` if the time is over.
    pub fn connect(&self, target: &str, options: &PathOptions) -> Result<Path, ConnectError> {
        self.connect_to(Target::Guest(target.parse()?), options)
    }

    /// Makes a path to a guest, or to the manager of a resource. Waits as [`Guest::connect`] does.
    ///
    /// # Errors
    /// [`ConnectError`], `TimedOut` if the time is over.
    pub fn connect_to(&self, target: Target, options: &PathOptions) -> Result<Path, ConnectError> {
        self.complete(self.start_connecting_to(target, options)?)
    }

    /// Asks for a path to another guest, and does not wait: complete it within the time that the target allows, or
    /// drop it to withdraw.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn start_connecting(
        &self,
        target: &str,
        options: &PathOptions,
    ) -> Result<Connecting, ConnectError> {
        self.start_connecting_to(Target::Guest(target.parse()?), options)
    }

    /// Asks for a path to a guest or to the manager of a resource, and does not wait.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn start_connecting_to(
        &self,
        target: Target,
        options: &PathOptions,
    ) -> Result<Connecting, ConnectError> {
        let shape = options.shape();
        if !shape.is_valid() {
            return Err(ConnectError::Shape);
        }
        let (side, SideDescriptors { board, lines }) = Side::create(shape)?;
        let allowance = options.allowance();
        let PathOptions { kind, flags, data, .. } = *options;
        let request = Request::Connect { target, kind, flags, data, shape, allowance };
        let claim = self.ask(&request, &[board.as_fd(), lines.as_fd()]);
        Ok(Connecting {
            claim: claim?,
            pending: None,
            side: Some(side),
            board: Some(board),
            options: *options,
            link: self.link.clone(),
        })
    }

    /// Waits until a connection that this guest has asked for is accepted, at most for [`PathOptions::time`].
    ///
    /// # Errors
    /// [`ConnectError`]; after `TimedOut` the connection is still pending, and can be completed later if the caller
    /// has kept it.
    pub fn complete(
        &self,
        mut connecting: impl BorrowMut<Connecting>,
    ) -> Result<Path, ConnectError> {
        let connecting = connecting.borrow_mut();
        self.check_own(connecting)?;
        let deadline_ns = after(connecting.options.time);
        match self.wait_for_answer(&connecting.claim, deadline_ns) {
            Some(answer) => self.finish(connecting, answer),
            None => Err(ConnectError::TimedOut),
        }
    }

    /// The path that this guest has asked for, if it has been accepted by now. After a path or an error it is
    /// `Completed`.
    ///
    /// # Errors
    /// [`ConnectError`] if there will be no path.
    pub fn try_complete(&self, connecting: &mut Connecting) -> Result<Option<Path>, ConnectError> {
        self.check_own(connecting)?;
        self.poll_inside(now_ns());
        let answer = self.take_answer(&connecting.claim);
        self.pass_on();
        answer.map(|answer| self.finish(connecting, answer)).transpose()
    }

    /// The answer is found by a number that each guest counts for itself.
    fn check_own(&self, connecting: &Connecting) -> Result<(), ConnectError> {
        if !Arc::ptr_eq(&connecting.link, &self.link) {
            return Err(ConnectError::OtherGuest);
        }
        if connecting.side.is_none() { Err(ConnectError::Completed) } else { Ok(()) }
    }

    fn finish(&self, connecting: &mut Connecting, answer: Answer) -> Result<Path, ConnectError> {
        let side = connecting.side.take().expect("checked before");
        let board = connecting.board.take().expect("as long as the side");
        let Connecting { options, pending, .. } = &*connecting;
        let Some((pending, _)) = pending else {
            return self.join(side, board, options.kind, answer, options);
        };
        if let Answer::Reply(Reply::Failed { .. }, _) = answer {
            // The connection is still pending at the host unless it was withdrawn; no guest will accept it now.
            connecting.refuse();
        }
        let joined = self.join(side, board, pending.kind, answer, options)?;
        Ok(joined.with_negotiated(pending.flags, pending.data))
    }

    /// Joins our side with the other that the host has sent.
    fn join(
        &self,
        side: Side,
        board: OwnedFd,
        kind: Kind,
        answer: Answer,
        options: &PathOptions,
    ) -> Result<Path, ConnectError> {
        let (joined, descriptors) = match answer {
            Answer::Reply(Reply::Joined(joined), descriptors) => (joined, descriptors),
            Answer::Reply(Reply::Failed { problem, data }, _) => {
                return Err(ConnectError::Refused { problem, data });
            }
            Answer::Reply(..) | Answer::HostGone => return Err(ConnectError::HostGone),
        };
        let Joined { path, token, peer, flags, data, shape, ours, theirs } = joined;
        // The peer finds its doorbells closed.
        let mut descriptors = descriptors.inspect_err(|_| self.give_up(path))?;
        let passed = self.passed_by(peer);
        if passed.waiting() > REFUSED_MAX {
            self.give_up(path);
            let (limit, owner, most) = (Limit::Refused, Owner::Guest(peer), REFUSED_MAX as u64);
            let problem = Problem::Limit(Reached { limit, owner, most });
            return Err(ConnectError::Refused { problem, data: NO_DATA });
        }
        descriptors.iter_mut().for_each(|descriptor| descriptor.charge_to(&passed));
        let mut descriptors = descriptors.into_iter();
        let (Some(peer_board), Some(peer_lines)) = (descriptors.next(), descriptors.next()) else {
            return Err(ConnectError::HostGone);
        };
        let account = Account {
            token,
            number: Arc::new(AtomicU64::new(path)),
            peer,
            kind,
            shape,
            allowance: ours,
            board: ForkSafeFd::new(board),
        };
        // From here on dropping the membership reports the end to the host, also if joining fails.
        let membership = Membership::new(self.link.clone(), account);
        let peer = SideDescriptors { board: peer_board, lines: peer_lines };
        let halves = side.join(peer, descriptors.collect(), options.terms(kind, ours, theirs))?;
        let messages_max = (ours.messages, theirs.messages);
        let negotiated = Negotiated { flags, data, messages_max };
        Ok(Path::new(halves, membership, negotiated, options))
    }

    /// The account of what a peer passes over its paths.
    fn passed_by(&self, peer: Name) -> foreign::Account {
        let mut passed = RefCell::borrow_mut(&self.passed);
        passed.retain(|name, account| *name == peer || account.waiting() > 0);
        passed.entry(peer).or_default().clone()
    }

    /// Waits for a connection from another guest and accepts it.
    ///
    /// # Errors
    /// [`ConnectError`]; another connection can be accepted after that.
    pub fn accept(&self) -> Result<Path, ConnectError> {
        self.accept_with(&PathOptions::default())
    }

    /// Waits for a connection of the options' kind from another guest and accepts it.
    ///
    /// # Errors
    /// [`ConnectError`]; another connection can be accepted after that.
    pub fn accept_with(&self, options: &PathOptions) -> Result<Path, ConnectError> {
        Ok(self.accept_before(u64::MAX, options)?.expect("no time was set"))
    }

    /// Waits at most for `time` for a connection of the options' kind from another guest and accepts it. None if
    /// the time is over. Accepting waits for the host besides, usually some microseconds.
    ///
    /// # Errors
    /// [`ConnectError`]; another connection can be accepted after that.
    pub fn accept_within(
        &self,
        options: &PathOptions,
        time: Duration,
    ) -> Result<Option<Path>, ConnectError> {
        self.accept_before(after(time), options)
    }

    fn accept_before(
        &self,
        deadline_ns: u64,
        options: &PathOptions,
    ) -> Result<Option<Path>, ConnectError> {
        let wanted = |pending: &Pending| pending.kind == options.kind;
        self.accept_where(deadline_ns, wanted, |pending| self.accept_pending(pending, options))
    }

    /// Waits for a connection that is wanted, and that `accept` can accept. None if the time is over; `u64::MAX`
    /// never is.
    pub(crate) fn accept_where<T>(
        &self,
        deadline_ns: u64,
        wanted: impl Fn(&Pending) -> bool,
        mut accept: impl FnMut(Pending) -> Result<T, ConnectError>,
    ) -> Result<Option<T>, ConnectError> {
        loop {
            let next = self.wait_for(deadline_ns, |guest| guest.next_pending(&wanted));
            let Some(pending) = next else {
                let is_over = deadline_ns != u64::MAX && !self.is_forsaken();
                return if is_over { Ok(None) } else { Err(ConnectError::HostGone) };
            };
            match accept(pending) {
                // It was withdrawn after it was received and before it was accepted.
                Err(ConnectError::Refused { problem: Problem::NoPath, .. }) => {}
                // It was refused, and is no reason for others to go without an answer.
                Err(ConnectError::Shape) => {}
                accepted => return accepted.map(Some),
            }
            // Each costs time. The next one is found by the next call.
            if now_ns() >= deadline_ns {
                return Ok(None);
            }
        }
    }

    /// Accepts a connection of a kind that has as many queues as the options say, or refuses it.
    ///
    /// # Errors
    /// [`ConnectError`]; `Shape` if the other side wants another number of queues.
    pub(crate) fn accept_fitting(
        &self,
        pending: Pending,
        options: &PathOptions,
    ) -> Result<Path, ConnectError> {
        if pending.shape != options.shape() {
            self.refuse(pending, NO_DATA);
            return Err(ConnectError::Shape);
        }
        self.accept_pending(pending, options)
    }

    /// Waits for a connection that is wanted, to be accepted or refused. Others go on waiting.
    ///
    /// # Errors
    /// `HostGone` if the host was one of this process, which does not come back, or in a forked child. For another
    /// host at the same place the guest waits.
    pub fn wait_for_pending(
        &self,
        wanted: impl Fn(&Pending) -> bool,
    ) -> Result<Pending, ConnectError> {
        let next = |guest: &Guest| guest.next_pending(&wanted);
        self.wait_for(u64::MAX, next).ok_or(ConnectError::HostGone)
    }

    /// Whether a connection is pending that was not handed out, an answer has come for one that this guest has asked
    /// for, or the host is gone for good and [`Guest::pending`] has not been called since.
    ///
    /// The descriptor becomes readable when one of these comes, whichever verb takes it in, and stays readable until
    /// [`Guest::poll`]. So a program with an epoll of its own polls when the descriptor is readable, and then asks
    /// for all that it wants: [`Guest::pending`] until there is none, [`Guest::try_complete`] for each that it has
    /// asked for. What it leaves is news until it is taken, but the descriptor says so only once, except that it
    /// becomes readable again when a connection is handed out and another is left.
    pub fn has_news(&self) -> bool {
        let inbox = self.inbox.borrow();
        let is_news = |awaited: &Awaited| {
            awaited.answer.is_some() && awaited.is_claimed() && !awaited.is_left
        };
        inbox.is_newly_forsaken
            || inbox.is_newly_attached
            || inbox.is_reminded
            || !inbox.seldom.orders.is_empty()
            || inbox.pending.iter().any(|(_, is_handed_out)| !is_handed_out)
            || inbox.answers.values().any(is_news)
    }

    /// What has come by now of other connections than these is no news any more.
    pub(crate) fn leave_others<'a>(&self, connecting: impl Iterator<Item = &'a Connecting>) {
        let ours: BTreeSet<_> = connecting.map(|connecting| connecting.claim.serial).collect();
        for (serial, awaited) in &mut self.inbox.borrow_mut().answers {
            awaited.is_left = awaited.answer.is_some() && !ours.contains(serial);
        }
    }

    /// The oldest connection that is pending and was not handed out yet, to be accepted or refused, whatever its kind.
    /// Polls.
    pub fn pending(&self) -> Option<Pending> {
        self.poll_inside(now_ns());
        // The caller learns it from the result.
        let mut inbox = self.inbox.borrow_mut();
        (inbox.is_newly_forsaken, inbox.is_newly_attached) = (false, false);
        inbox.is_reminded = false;
        drop(inbox);
        let pending = self.next_pending(|_| true);
        self.pass_on();
        pending
    }

    /// The oldest connection from this guest that is pending and was not handed out yet. Does not poll.
    pub(crate) fn pending_from(&self, from: Name, kind: Kind) -> Option<Pending> {
        self.next_pending(|pending| pending.from == from && pending.kind == kind)
    }

    /// Whether a connection that [`Guest::pending`] has handed out still waits, as far as the host has reported.
    pub(crate) fn still_waits(&self, pending: &Pending) -> bool {
        self.inbox.borrow().pending.iter().any(|(known, _)| known == pending)
    }

    /// Whether one that was handed out was taken back since the last question.
    pub(crate) fn takes_note_of_withdrawn(&self) -> bool {
        std::mem::take(&mut self.inbox.borrow_mut().is_newly_withdrawn)
    }

    /// Accepts a connection that waits. If that fails, the connection is refused, so that the asking guest does not wait.
    ///
    /// # Errors
    /// [`ConnectError`]; `Refused` with [`Problem::NoPath`] if it was taken back meanwhile, or waits for another
    /// guest, or at a host that is gone.
    pub fn accept_pending(
        &self,
        pending: Pending,
        options: &PathOptions,
    ) -> Result<Path, ConnectError> {
        let mut accepting = self.start_accepting(pending, options)?;
        let answer = self.wait_for_answer(&accepting.claim, after(ANSWER_TIME));
        self.finish(&mut accepting, answer.unwrap_or(Answer::HostGone))
    }

    /// Accepts a connection that waits, and does not wait for the host: [`Guest::try_complete`] has the path. If it is
    /// dropped, or accepting fails, the connection is refused, so that the asking guest does not wait.
    ///
    /// # Errors
    /// [`ConnectError`]; `Refused` with [`Problem::NoPath`] if it was taken back meanwhile, or waits for another
    /// guest, or at a host that is gone.
    pub fn start_accepting(
        &self,
        pending: Pending,
        options: &PathOptions,
    ) -> Result<Connecting, ConnectError> {
        if !self.inbox.borrow_mut().take_pending(&pending) {
            return Err(ConnectError::Refused { problem: Problem::NoPath, data: NO_DATA });
        }
        let Pending { path, .. } = pending;
        let side = Side::create(pending.shape).inspect_err(|_| self.refuse_path(path, NO_DATA))?;
        let (side, SideDescriptors { board, lines }) = side;
        let allowance: Allowance = options.allowance();
        let PathOptions { flags, data, .. } = *options;
        let request = Request::Accept { path, flags, data, allowance };
        let claim = self.ask(&request, &[board.as_fd(), lines.as_fd()]);
        if claim.is_err() {
            self.refuse_path(path, NO_DATA);
        }
        Ok(Connecting {
            claim: claim?,
            pending: Some((pending, self.link.host())),
            side: Some(side),
            board: Some(board),
            options: *options,
            link: self.link.clone(),
        })
    }

    /// Refuses a connection that is pending: its guest's error is `Refused`, with `data`. One that is pending for another
    /// guest, or was withdrawn, is left alone.
    pub fn refuse(&self, pending: Pending, data: UserData) {
        if self.inbox.borrow_mut().take_pending(&pending) {
            self.refuse_path(pending.path, data);
        }
    }

    fn refuse_path(&self, path: u64, data: UserData) {
        self.link.notify_host(&Request::Refuse { path, data });
    }

    /// Becomes the manager of a resource: connections to it are for this guest. After a restart of the host the guest
    /// registers the resource again. Waits at most 10 s for the host; a guest manages at most 64 resources.
    ///
    /// # Errors
    /// [`ResourceError`].
    pub fn identify(&self, resource: &str, scope: Scope) -> Result<(), ResourceError> {
        let resource = resource.parse::<Name>()?;
        self.ask_about_resource(&Request::Identify { resource, scope })?;
        self.resources.borrow_mut().push((resource, scope));
        Ok(())
    }

    /// Gives a resource up. Paths that were made stay. Waits at most 10 s for the host.
    ///
    /// # Errors
    /// [`ResourceError`].
    pub fn revoke(&self, resource: &str, scope: Scope) -> Result<(), ResourceError> {
        let resource = resource.parse::<Name>()?;
        self.resources.borrow_mut().retain(|own| *own != (resource, scope));
        self.ask_about_resource(&Request::Revoke { resource, scope })
    }

    fn ask_about_resource(&self, request: &Request) -> Result<(), ResourceError> {
        let claim = self.ask(request, &[])?;
        match self.wait_for_answer(&claim, after(ANSWER_TIME)) {
            Some(Answer::Reply(Reply::Done { .. }, _)) => Ok(()),
            Some(Answer::Reply(Reply::Failed { problem, .. }, _)) => {
                Err(ResourceError::Refused { problem })
            }
            _ => Err(ResourceError::HostGone),
        }
    }

    /// Asks the host something whose answer is awaited.
    pub(crate) fn ask(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Claim, Unsent> {
        let asked = self.link.ask(request, descriptors);
        let is_behind = matches!(asked, Err(Unsent::HostBehind));
        let mut inbox = self.inbox.borrow_mut();
        let claim = asked.map(|serial| inbox.await_answer(serial));
        inbox.questions += 1;
        let is_due = is_behind || inbox.questions == QUESTIONS_MAX;
        if is_due {
            inbox.questions = 0;
        }
        drop(inbox);
        if is_due {
            // A host gives up a guest that leaves its answers unread. Whoever only asks reads them nowhere else.
            self.take_in(now_ns());
            self.forget_unclaimed();
            self.pass_on();
        }
        claim
    }

    /// The answer to what was asked, which is waited for at most 10 s.
    pub(crate) fn answer(&self, claim: &Claim) -> Answered {
        answered(self.wait_for_answer(claim, after(ANSWER_TIME))?)
    }

    /// The answer to what was asked, if it has come.
    pub(crate) fn take(&self, claim: &Claim) -> Option<Answered> {
        self.take_answer(claim).map(answered)
    }

    /// From now on a new host is news, until [`Guest::pending`] is called.
    pub(crate) fn follow_hosts(&self) {
        self.inbox.borrow_mut().follows_hosts = true;
    }

    /// Says that this guest is a TCPIP machine that takes orders, to this host and to each new one. An order is news until it is taken. A
    /// host of an older build has none to give.
    #[cfg(feature = "tcpip")]
    pub(crate) fn take_orders(&self) {
        self.inbox.borrow_mut().seldom.takes_orders = true;
        self.link.notify_host(&Request::TakeOrders);
    }

    /// The oldest order that nobody has taken, and the host that it is from. Does not poll.
    #[cfg(feature = "tcpip")]
    pub(crate) fn next_order(&self) -> Option<(Order, u64)> {
        let order = self.inbox.borrow_mut().seldom.orders.pop_front()?;
        Some((order, self.link.host()))
    }

    /// Tells the host what came of an order, if that host is still there.
    #[cfg(feature = "tcpip")]
    pub(crate) fn answer_order(&self, (order, host): (Order, u64), placed: Placed) {
        let done = Request::OrderDone { order: order.order, placed };
        self.link.notify_this_host(host, &done);
    }

    /// A new host is no news any more, and there is nothing to be reminded of.
    pub(crate) fn stop_following(&self) {
        let mut inbox = self.inbox.borrow_mut();
        (inbox.follows_hosts, inbox.is_newly_attached) = (false, false);
        (inbox.reminder_ns, inbox.is_reminded) = (u64::MAX, false);
    }

    /// There is news at this time, whatever comes: until [`Guest::pending`] is called after it. One time is remembered, the
    /// earliest.
    pub(crate) fn remind(&self, at_ns: u64) {
        let mut inbox = self.inbox.borrow_mut();
        if at_ns < inbox.reminder_ns {
            inbox.reminder_ns = at_ns;
            drop(inbox);
            // The poll that follows sets the alarm.
            self.link.ring();
        }
    }

    /// When there will be news though nothing comes.
    #[cfg(test)]
    pub(crate) fn reminder_ns(&self) -> u64 {
        self.inbox.borrow().reminder_ns
    }

    /// How many hosts this guest has been attached to so far.
    pub(crate) fn attachments(&self) -> u32 {
        self.inbox.borrow().attachments
    }

    /// The answer, if it has come.
    fn take_answer(&self, claim: &Claim) -> Option<Answer> {
        self.inbox.borrow_mut().take_answer(claim)
    }

    /// Hands out the first connection that is wanted. `wanted` may use the guest.
    fn next_pending(&self, wanted: impl Fn(&Pending) -> bool) -> Option<Pending> {
        let waiting: Vec<Pending> = self.inbox.borrow().not_handed_out().collect();
        let pending = waiting.into_iter().find(wanted)?;
        let mut inbox = self.inbox.borrow_mut();
        inbox.hand_out(&pending);
        // Whoever takes one at a time polls once for all that came.
        let has_left = inbox.not_handed_out().next().is_some();
        inbox.has_come |= has_left;
        Some(pending)
    }

    /// Waits for an answer; none if the time is over.
    fn wait_for_answer(&self, claim: &Claim, deadline_ns: u64) -> Option<Answer> {
        self.wait_for(deadline_ns, |guest| guest.take_answer(claim))
    }

    /// Waits until `found` finds something in the inbox. None if the time is over, or there will never be a host
    /// again.
    fn wait_for<T>(
        &self,
        deadline_ns: u64,
        mut found: impl FnMut(&Guest) -> Option<T>,
    ) -> Option<T> {
        let found = loop {
            let now = now_ns();
            self.poll_inside(now);
            if let Some(found) = found(self) {
                break Some(found);
            }
            if now >= deadline_ns || self.is_forsaken() {
                break None;
            }
            // What was taken in may have taken a while.
            let wait = deadline_ns.saturating_sub(now_ns());
            let wait = (deadline_ns != u64::MAX).then(|| Duration::from_nanos(wait));
            if wait_readable(&self.poller, wait).is_err() {
                break None;
            }
        };
        self.pass_on();
        found
    }

    /// Whether there is no host, and will be none.
    pub(crate) fn is_forsaken(&self) -> bool {
        self.inbox.borrow().standing == Standing::Alone { retry_ns: u64::MAX }
    }
}

/// The descriptor that becomes readable when [`Guest::poll`] has something to do. See [`Guest::has_news`].
impl AsFd for Guest {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}
