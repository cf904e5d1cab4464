//! A guest: a party that has a name.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::Duration;

use fabric::control::{
    Allowance, Joined, Kind, Malformed, PACKET_BYTES_MAX, Pending, Problem, Reply, Request, Scope,
    Target, UserData,
};
use fabric::name::{Name, NoName};
use fabric::path::{JoinError, Side, SideDescriptors};
use host::Embedded;
use os::foreign::Foreign;
use os::fork::Kept;
use os::memory::shortage;
use os::packets::Packets;
use os::poller::{Poller, wait_readable};
use os::processor::now_ns;
use os::storage::BorrowError;

use crate::link::{Account, Link, MadeUp, Membership, Unsent};
use crate::options::PathOptions;
use crate::path::{Path, Said};

/// How often a guest whose host has died looks for a new one.
const RETRY_NS: u64 = 100_000_000;

/// Packets of the host that are taken in at once: one that never stops must not keep its guests from what
/// else they do. The descriptor stays readable while there are more.
const PACKETS_PER_POLL: usize = 64;

/// How long to leave a host alone that is behind.
const BEHIND_NS: u64 = 1_000_000;

/// How long a host may take to answer what it can answer by itself.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// Connections that wait for this guest, as far as we keep them: the host does not send more.
const PENDING_MAX: usize = 2 * host::PENDING_MAX;

const NO_DATA: UserData = [0; 16];

/// A party that is attached to a host under a name.
///
/// Its paths do not need it: they are made with its help, and go on when it is dropped or when its host
/// dies. A guest that is being used ([`Guest::connect`], [`Guest::accept`], [`Guest::poll`], or in a
/// [`crate::Waiter`]) attaches to a new host by itself, and has its paths accounted there.
#[derive(Debug)]
pub struct Guest {
    name: Name,
    /// Where to look for a new host; none for one in this process.
    socket: Option<PathBuf>,
    link: Arc<Link>,
    /// Readable when the host has sent something; the same descriptor for every host.
    poller: Poller,
    inbox: RefCell<Inbox>,
    /// What we manage, to tell a new host.
    resources: RefCell<Vec<(Name, Scope)>>,
}

#[derive(Debug)]
struct Inbox {
    standing: Standing,
    /// Answers that are awaited, and those that have come and were not claimed yet.
    answers: HashMap<u32, Awaited>,
    /// Accounts of paths whose new number is awaited.
    rejoining: HashMap<u32, u64>,
    /// Connections that wait, in order, and whether they were handed out to be accepted or refused.
    pending: VecDeque<(Pending, bool)>,
    /// There will be no host again, which nobody was told yet.
    is_newly_forsaken: bool,
}

/// Who wants an answer: nobody any more, once this is dropped.
#[derive(Debug)]
struct Claim {
    serial: u32,
    _alive: Arc<()>,
}

#[derive(Debug)]
struct Awaited {
    claim: Weak<()>,
    answer: Option<Answer>,
    /// Whether it was left to whoever takes it, and is no news any more.
    is_left: bool,
}

impl Awaited {
    fn is_claimed(&self) -> bool {
        self.claim.strong_count() > 0
    }
}

/// What became of a question.
#[derive(Debug)]
enum Answer {
    /// The reply, and what came with it; an error if this process had no descriptor left for that.
    Reply(Reply, io::Result<Vec<Foreign>>),
    /// The host that it was asked of is gone.
    HostGone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Attached,
    /// The host is gone.
    Alone {
        retry_ns: u64,
    },
    /// A new host has been asked.
    Asking {
        serial: u32,
        give_up_ns: u64,
    },
}

/// Why a guest could not attach.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// That is no name.
    #[error(transparent)]
    Name(#[from] NoName),
    /// Nobody could be reached.
    #[error("no host at {}: {error}; start one with: siga up SYSTEM.toml", .socket.display())]
    Unreachable {
        /// Where we looked.
        socket: PathBuf,
        /// What the kernel says.
        error: io::Error,
    },
    /// The host does not want us.
    #[error("cannot attach as {name}: {problem}")]
    Refused {
        /// As whom.
        name: Name,
        /// Why.
        problem: Problem,
    },
    /// The host is gone, or does not answer.
    #[error("the host does not answer")]
    NoAnswer,
    /// This process lacks descriptors or memory.
    #[error("cannot attach: {0}")]
    Resources(#[from] io::Error),
}

/// Why there is no path.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// That is no name.
    #[error(transparent)]
    Name(#[from] NoName),
    /// The options, or the other side, ask for queues that such a path does not have.
    #[error("a path has 1 to 8 queues each way; one of IUCV has 2, one of APPC/VM 1")]
    Shape,
    /// The host, or the other side, does not want it.
    #[error("{problem}")]
    Refused {
        /// Why.
        problem: Problem,
        /// From the other side, if it refused.
        data: UserData,
    },
    /// The other side did not accept in time.
    #[error("the target did not accept in time")]
    TimedOut,
    /// There is no host at the moment.
    #[error("the host is gone")]
    HostGone,
    /// The host has not read what it was asked before, and there is no room to ask more. Try again later.
    #[error("the host is behind: try again later")]
    HostBehind,
    /// Another guest has asked for this connection, which is given back as it was. Only that guest can complete
    /// it.
    #[error("another guest has asked for this connection")]
    OtherGuest(Box<Connecting>),
    /// What the host or the other side sent is not what makes a path.
    #[error("the path could not be joined: {0}")]
    Join(JoinError),
    /// This process lacks descriptors or memory.
    #[error("cannot connect: {0}")]
    Resources(#[from] io::Error),
}

/// Why a guest does not manage a resource, or still does.
#[derive(Debug, thiserror::Error)]
pub enum ResourceError {
    /// That is no name.
    #[error(transparent)]
    Name(#[from] NoName),
    /// The host does not want it.
    #[error("{problem}")]
    Refused {
        /// Why.
        problem: Problem,
    },
    /// There is no host at the moment.
    #[error("the host is gone")]
    HostGone,
    /// The host has not read what it was asked before, and there is no room to ask more. Try again later.
    #[error("the host is behind: try again later")]
    HostBehind,
}

impl From<JoinError> for ConnectError {
    fn from(error: JoinError) -> ConnectError {
        match error {
            // Both sides have sent what they must: it is this process that cannot map it.
            JoinError::Borrow(BorrowError::Os(error)) | JoinError::Doorbell(error)
                if shortage(&error).is_some() =>
            {
                ConnectError::Resources(error)
            }
            error => ConnectError::Join(error),
        }
    }
}

impl From<Unsent> for ConnectError {
    fn from(unsent: Unsent) -> ConnectError {
        match unsent {
            Unsent::HostGone => ConnectError::HostGone,
            Unsent::HostBehind => ConnectError::HostBehind,
            Unsent::Resources(error) => ConnectError::Resources(error),
        }
    }
}

impl From<Unsent> for ResourceError {
    fn from(unsent: Unsent) -> ResourceError {
        match unsent {
            Unsent::HostGone => ResourceError::HostGone,
            // Nothing is passed with what is asked about resources: what lacks is memory, for a moment.
            Unsent::HostBehind | Unsent::Resources(_) => ResourceError::HostBehind,
        }
    }
}

/// A connection that was asked for. Give it to [`Guest::complete`] of the guest that asked for it, or drop it to
/// take it back.
#[derive(Debug)]
#[must_use = "a connection that is dropped is taken back"]
pub struct Connecting {
    claim: Claim,
    side: Option<Side>,
    board: Option<OwnedFd>,
    options: PathOptions,
    link: Arc<Link>,
}

impl Drop for Connecting {
    fn drop(&mut self) {
        if self.side.is_some() {
            self.link.say(&Request::Cancel { connect: self.claim.serial });
        }
    }
}

impl Guest {
    /// Attaches to the host at `socket` under a name. [`host::default_socket`] knows the usual place.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn attach(socket: impl AsRef<FilePath>, name: &str) -> Result<Guest, AttachError> {
        let socket = socket.as_ref();
        let name = name.parse()?;
        let packets = Packets::connect(socket).map_err(|error| unreached(socket, error))?;
        Guest::attach_over(packets, Some(socket.to_owned()), name)
    }

    /// Attaches to a host in this process.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn attach_embedded(host: &Embedded, name: &str) -> Result<Guest, AttachError> {
        let name = name.parse()?;
        Guest::attach_over(host.connect()?, None, name)
    }

    fn attach_over(
        packets: Packets,
        socket: Option<PathBuf>,
        name: Name,
    ) -> Result<Guest, AttachError> {
        host::close_refused_on_a_thread();
        let poller = Poller::new()?;
        poller.add(&packets, 0)?;
        let inbox = Inbox {
            standing: Standing::Attached,
            answers: HashMap::new(),
            rejoining: HashMap::new(),
            pending: VecDeque::new(),
            is_newly_forsaken: false,
        };
        let link = Arc::new(Link::new(packets));
        let guest = Guest {
            name,
            socket,
            link,
            poller,
            inbox: RefCell::new(inbox),
            resources: RefCell::default(),
        };
        let claim = guest.ask(&Request::Attach { name }, &[]).map_err(|unsent| match unsent {
            Unsent::Resources(error) => AttachError::Resources(error),
            Unsent::HostGone | Unsent::HostBehind => AttachError::NoAnswer,
        })?;
        match guest.wait_for_answer(&claim, after(ANSWER_TIME)) {
            Some(Answer::Reply(Reply::Attached, _)) => Ok(guest),
            Some(Answer::Reply(Reply::Failed { problem, .. }, _)) => {
                Err(AttachError::Refused { name, problem })
            }
            _ => Err(AttachError::NoAnswer),
        }
    }

    /// The name we are attached under.
    pub fn name(&self) -> Name {
        self.name
    }

    /// Whether there is a host at the moment.
    pub fn is_attached(&self) -> bool {
        self.inbox.borrow().standing == Standing::Attached
    }

    /// Makes a path to another guest, which has to accept it. Waits until it does.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(&self, target: &str, options: &PathOptions) -> Result<Path, ConnectError> {
        self.complete(self.start_connecting(target, options)?)
    }

    /// Asks for a path to another guest, and does not wait.
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

    /// Asks for a path to a guest or to whoever manages a resource, and does not wait.
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
            side: Some(side),
            board: Some(board),
            options: *options,
            link: self.link.clone(),
        })
    }

    /// Waits until a connection that was asked for is accepted.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn complete(&self, connecting: Connecting) -> Result<Path, ConnectError> {
        let connecting = self.check_own(connecting)?;
        let deadline_ns = after(connecting.options.time);
        match self.wait_for_answer(&connecting.claim, deadline_ns) {
            Some(answer) => self.finish(connecting, answer),
            None => Err(ConnectError::TimedOut),
        }
    }

    /// The path that was asked for, if it has been accepted by now.
    ///
    /// # Errors
    /// The connection back while it is pending, as `Ok(Err(connecting))`; [`ConnectError`] if there will
    /// be no path.
    pub fn try_complete(
        &self,
        connecting: Connecting,
    ) -> Result<Result<Path, Connecting>, ConnectError> {
        let connecting = self.check_own(connecting)?;
        self.poll(now_ns());
        match self.take_answer(&connecting.claim) {
            Some(answer) => self.finish(connecting, answer).map(Ok),
            None => Ok(Err(connecting)),
        }
    }

    /// The connection, if this guest has asked for it: the answer is found by a number that each guest counts
    /// for itself.
    fn check_own(&self, connecting: Connecting) -> Result<Connecting, ConnectError> {
        if Arc::ptr_eq(&connecting.link, &self.link) {
            Ok(connecting)
        } else {
            Err(ConnectError::OtherGuest(Box::new(connecting)))
        }
    }

    fn finish(&self, mut connecting: Connecting, answer: Answer) -> Result<Path, ConnectError> {
        let side = connecting.side.take().expect("finished once");
        let board = connecting.board.take().expect("finished once");
        self.join(side, board, connecting.options.kind, answer, &connecting.options)
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
        // The other side hears that nobody is there: its doorbells have lost their other ends.
        let descriptors = descriptors.inspect_err(|_| self.give_up(path))?;
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
            board: Kept::new(board),
        };
        // From here on the host hears of the end, also if joining fails.
        let membership = Membership::new(self.link.clone(), account);
        let peer = SideDescriptors { board: peer_board, lines: peer_lines };
        let halves = side.join(peer, descriptors.collect(), options.terms(ours, theirs))?;
        let messages_max = (ours.messages, theirs.messages);
        let said = Said { flags, data, messages_max };
        Ok(Path::new(halves, membership, said, options.wait))
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
    /// [`ConnectError`].
    pub fn accept_with(&self, options: &PathOptions) -> Result<Path, ConnectError> {
        let wanted = |pending: &Pending| pending.kind == options.kind;
        self.accept_where(wanted, |pending| self.accept_pending(pending, options))
    }

    /// Waits for a connection that is wanted, and that `accept` can accept.
    pub(crate) fn accept_where<T>(
        &self,
        wanted: impl Fn(&Pending) -> bool,
        mut accept: impl FnMut(Pending) -> Result<T, ConnectError>,
    ) -> Result<T, ConnectError> {
        loop {
            match accept(self.wait_for_pending(&wanted)?) {
                // It was taken back between being heard of and being accepted.
                Err(ConnectError::Refused { problem: Problem::NoPath, .. }) => {}
                // It was refused, and is no reason for others to go without an answer.
                Err(ConnectError::Shape) => {}
                accepted => return accepted,
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

    /// Waits for a connection that is wanted. Others go on waiting.
    ///
    /// # Errors
    /// `HostGone` if the host was one of this process, which does not come back, or in a forked child. For another
    /// host at the same place the guest waits.
    pub fn wait_for_pending(
        &self,
        wanted: impl Fn(&Pending) -> bool,
    ) -> Result<Pending, ConnectError> {
        let next = |inbox: &mut Inbox| inbox.next_pending(&wanted);
        self.wait_for(u64::MAX, next).ok_or(ConnectError::HostGone)
    }

    /// Whether a connection waits, or something has become of one that was asked for, or the host is gone for
    /// good, as far as we have heard. Every verb takes in what the host has sent, so one may bring what another waits for:
    /// whoever waits on the descriptor, or in a waiter, looks here before.
    pub fn has_news(&self) -> bool {
        let inbox = self.inbox.borrow();
        let is_news = |awaited: &Awaited| {
            awaited.answer.is_some() && awaited.is_claimed() && !awaited.is_left
        };
        inbox.is_newly_forsaken
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

    /// A connection that waits, to be accepted or refused, for whatever kind of conversation.
    pub fn pending(&self) -> Option<Pending> {
        self.poll(now_ns());
        let mut inbox = self.inbox.borrow_mut();
        // Whoever asks sees it for himself.
        inbox.is_newly_forsaken = false;
        inbox.next_pending(|_| true)
    }

    /// Whether a connection that [`Guest::pending`] has told of still waits, as far as we have heard.
    pub(crate) fn still_waits(&self, pending: &Pending) -> bool {
        self.inbox.borrow().pending.iter().any(|(known, _)| known == pending)
    }

    /// Accepts a connection that waits. If that fails, the connection is refused, so that nobody waits for it.
    ///
    /// # Errors
    /// [`ConnectError`]; `Refused` with [`Problem::NoPath`] if it was taken back meanwhile, or waits for another
    /// guest, or at a host that is gone.
    pub fn accept_pending(
        &self,
        pending: Pending,
        options: &PathOptions,
    ) -> Result<Path, ConnectError> {
        if !self.inbox.borrow_mut().take_pending(&pending) {
            return Err(ConnectError::Refused { problem: Problem::NoPath, data: NO_DATA });
        }
        let Pending { path, kind, .. } = pending;
        let side = Side::create(pending.shape).inspect_err(|_| self.refuse_path(path, NO_DATA))?;
        let (side, SideDescriptors { board, lines }) = side;
        let allowance: Allowance = options.allowance();
        let PathOptions { flags, data, .. } = *options;
        let request = Request::Accept { path, flags, data, allowance };
        let claim = self.ask(&request, &[board.as_fd(), lines.as_fd()]);
        if claim.is_err() {
            self.refuse_path(path, NO_DATA);
        }
        let answer = self.wait_for_answer(&claim?, after(ANSWER_TIME));
        let answer = answer.unwrap_or(Answer::HostGone);
        if let Answer::Reply(Reply::Failed { .. }, _) = answer {
            // It waits at the host, unless it was taken back: nobody will accept it any more.
            self.refuse_path(path, NO_DATA);
        }
        let joined = self.join(side, board, kind, answer, options)?;
        Ok(joined.with_what_was_said(pending.flags, pending.data))
    }

    /// Refuses a connection that waits. One that waits for another guest, or does not wait any more, is left
    /// alone.
    pub fn refuse(&self, pending: Pending, data: UserData) {
        if self.inbox.borrow_mut().take_pending(&pending) {
            self.refuse_path(pending.path, data);
        }
    }

    fn refuse_path(&self, path: u64, data: UserData) {
        self.link.say(&Request::Refuse { path, data });
    }

    /// Becomes the manager of a resource: connections to it are for this guest. A new host is told by
    /// itself.
    ///
    /// # Errors
    /// [`ResourceError`].
    pub fn identify(&self, resource: &str, scope: Scope) -> Result<(), ResourceError> {
        let resource = resource.parse::<Name>()?;
        self.ask_about_resource(&Request::Identify { resource, scope })?;
        self.resources.borrow_mut().push((resource, scope));
        Ok(())
    }

    /// Gives a resource up. Paths that were made stay.
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
    fn ask(&self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> Result<Claim, Unsent> {
        let serial = self.link.ask(request, descriptors)?;
        let alive = Arc::new(());
        let awaited = Awaited { claim: Arc::downgrade(&alive), answer: None, is_left: false };
        self.inbox.borrow_mut().answers.insert(serial, awaited);
        Ok(Claim { serial, _alive: alive })
    }

    /// The answer, if it has come.
    fn take_answer(&self, claim: &Claim) -> Option<Answer> {
        self.inbox.borrow_mut().take_answer(claim)
    }

    /// Waits for an answer; none if the time is over.
    fn wait_for_answer(&self, claim: &Claim, deadline_ns: u64) -> Option<Answer> {
        self.wait_for(deadline_ns, |inbox| inbox.take_answer(claim))
    }

    /// Waits until `found` finds something in the inbox. None if the time is over, or there will never be a host
    /// again.
    fn wait_for<T>(
        &self,
        deadline_ns: u64,
        mut found: impl FnMut(&mut Inbox) -> Option<T>,
    ) -> Option<T> {
        loop {
            let now = now_ns();
            let next = self.poll(now);
            if let Some(found) = found(&mut self.inbox.borrow_mut()) {
                return Some(found);
            }
            if now >= deadline_ns || self.is_forsaken() {
                return None;
            }
            // What was taken in may have taken a while.
            let wait = next.unwrap_or(u64::MAX).min(deadline_ns).saturating_sub(now_ns());
            let wait = (wait < u64::MAX / 2).then(|| Duration::from_nanos(wait));
            if wait_readable(&self.poller, wait).is_err() {
                return None;
            }
        }
    }

    /// Whether there is no host, and will be none.
    pub(crate) fn is_forsaken(&self) -> bool {
        self.inbox.borrow().standing == Standing::Alone { retry_ns: u64::MAX }
    }

    /// Takes in what the host has sent, without waiting; looks for a new host if it is gone. Returns when
    /// to come back though nothing was heard, in the machine's time.
    pub fn poll(&self, now_ns: u64) -> Option<u64> {
        if self.link.inherited() && !self.is_forsaken() {
            self.lose_host(now_ns);
        }
        // Copied, so that the inbox is not borrowed in what follows.
        let standing = self.inbox.borrow().standing;
        match standing {
            Standing::Alone { retry_ns } if now_ns < retry_ns => return Some(retry_ns),
            Standing::Alone { .. } => self.look_for_host(now_ns),
            Standing::Attached | Standing::Asking { .. } => {}
        }
        self.take_in(now_ns);
        self.forget_unclaimed();
        let is_behind = self.make_up();
        let standing = self.inbox.borrow().standing;
        match standing {
            Standing::Attached => is_behind.then_some(now_ns + BEHIND_NS),
            Standing::Alone { retry_ns } => Some(retry_ns),
            Standing::Asking { give_up_ns, .. } if now_ns >= give_up_ns => {
                self.lose_host(now_ns);
                Some(now_ns + RETRY_NS)
            }
            Standing::Asking { give_up_ns, .. } => Some(give_up_ns),
        }
    }

    /// Says what the host was not told because it was behind. Whether something is left.
    fn make_up(&self) -> bool {
        let MadeUp { rejoined, is_behind } = self.link.make_up();
        self.inbox.borrow_mut().rejoining.extend(rejoined);
        is_behind
    }

    fn take_in(&self, now_ns: u64) {
        let mut buffer = [0; PACKET_BYTES_MAX];
        for _ in 0..PACKETS_PER_POLL {
            let Some(packets) = self.link.packets() else { return };
            match packets.receive(&mut buffer) {
                Ok(packet) if packet.bytes > 0 => {
                    match Reply::parse(&buffer[..packet.bytes]) {
                        Ok((serial, reply)) => self.sort(serial, reply, packet.passed(), now_ns),
                        // An older host answers in its own version, whatever it says.
                        Err(Malformed::Version { serial, .. }) => {
                            let failed = Reply::Failed { problem: Problem::Version, data: NO_DATA };
                            self.sort(serial, failed, packet.passed(), now_ns);
                        }
                        // From a host of another kind: nothing to be done.
                        Err(_) => {}
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                _ => return self.lose_host(now_ns),
            }
        }
    }

    /// Forgets what was asked by those who do not want to know any more.
    fn forget_unclaimed(&self) {
        let mut inbox = self.inbox.borrow_mut();
        let unclaimed = inbox.answers.extract_if(|_, awaited| !awaited.is_claimed());
        for (_, Awaited { answer, .. }) in unclaimed {
            if let Some(Answer::Reply(Reply::Joined(joined), _)) = answer {
                self.give_up(joined.path);
            }
        }
    }

    /// Tells the host that a path that it has made is not wanted.
    fn give_up(&self, path: u64) {
        self.link.say(&Request::Ended { path });
    }

    /// Puts a message where it is awaited.
    fn sort(&self, serial: u32, reply: Reply, descriptors: io::Result<Vec<Foreign>>, now_ns: u64) {
        let mut inbox = self.inbox.borrow_mut();
        if let Some(awaited) = inbox.answers.get_mut(&serial) {
            awaited.answer = Some(Answer::Reply(reply, descriptors));
            return;
        }
        if let Some(account) = inbox.rejoining.remove(&serial) {
            if let Reply::Done { path } = reply
                && !self.link.settle(account, path)
            {
                self.give_up(path);
            }
            return;
        }
        match (inbox.standing, reply) {
            (_, Reply::Pending(pending)) if inbox.pending.len() < PENDING_MAX => {
                inbox.pending.push_back((pending, false));
            }
            (_, Reply::Withdrawn { path }) => {
                inbox.forget_pending(path);
            }
            // A path that we did not want to wait for any longer.
            (_, Reply::Joined(joined)) => self.give_up(joined.path),
            (Standing::Asking { serial: asked, .. }, reply) if asked == serial => {
                if reply == Reply::Attached {
                    inbox.standing = Standing::Attached;
                    for (resource, scope) in self.resources.borrow().iter().copied() {
                        // If somebody else was faster, it is no longer ours.
                        self.link.say(&Request::Identify { resource, scope });
                    }
                    self.link.start_rejoining();
                } else {
                    // Our former self may not have been buried yet.
                    drop(inbox);
                    self.lose_host(now_ns);
                }
            }
            _ => {}
        }
    }

    /// There is no host any more: whatever was asked of it will not be answered.
    fn lose_host(&self, now_ns: u64) {
        self.drop_packets();
        let mut inbox = self.inbox.borrow_mut();
        for awaited in inbox.answers.values_mut() {
            // An answer that came and was not taken is void too: a new host would not account the path. A
            // refusal stays one.
            if !matches!(awaited.answer, Some(Answer::Reply(Reply::Failed { .. }, _))) {
                awaited.answer = Some(Answer::HostGone);
            }
        }
        inbox.rejoining.clear();
        inbox.pending.clear();
        // A host in this process does not come back, and a forked child is a guest of none.
        let comes_back = self.socket.is_some() && !self.link.inherited();
        let retry_ns = if comes_back { now_ns + RETRY_NS } else { u64::MAX };
        inbox.standing = Standing::Alone { retry_ns };
        inbox.is_newly_forsaken = !comes_back;
    }

    /// Drops the connection. It may be closed only later, if the host has passed what takes long to be closed,
    /// and would be readable in the poller for as long.
    fn drop_packets(&self) {
        if let Some(packets) = self.link.packets() {
            let _ = self.poller.remove(&*packets);
        }
        self.link.set_packets(None);
    }

    fn look_for_host(&self, now_ns: u64) {
        let retry = Standing::Alone { retry_ns: now_ns + RETRY_NS };
        self.inbox.borrow_mut().standing = retry;
        let Some(Ok(packets)) = self.socket.as_ref().map(|socket| Packets::connect(socket)) else {
            return;
        };
        if self.poller.add(&packets, 0).is_err() {
            return;
        }
        self.link.set_packets(Some(packets));
        if let Ok(serial) = self.link.ask(&Request::Attach { name: self.name }, &[]) {
            let give_up_ns = now_ns + ANSWER_TIME.as_nanos() as u64;
            self.inbox.borrow_mut().standing = Standing::Asking { serial, give_up_ns };
        } else {
            self.drop_packets();
        }
    }
}

impl Inbox {
    /// Hands out the first that is wanted.
    fn next_pending(&mut self, wanted: impl Fn(&Pending) -> bool) -> Option<Pending> {
        let is_next = |entry: &&mut (Pending, bool)| !entry.1 && wanted(&entry.0);
        let (pending, is_handed_out) = self.pending.iter_mut().find(is_next)?;
        *is_handed_out = true;
        Some(*pending)
    }

    /// Whether a connection waits, which it does no longer. All of it is compared: the next host begins with
    /// the same numbers.
    fn take_pending(&mut self, pending: &Pending) -> bool {
        let at = self.pending.iter().position(|(known, _)| known == pending);
        at.and_then(|at| self.pending.remove(at)).is_some()
    }

    fn forget_pending(&mut self, path: u64) {
        self.pending.retain(|(pending, _)| pending.path != path);
    }

    fn take_answer(&mut self, claim: &Claim) -> Option<Answer> {
        let answer = self.answers.get_mut(&claim.serial)?.answer.take()?;
        self.answers.remove(&claim.serial);
        Some(answer)
    }
}

/// The descriptor that becomes readable when the host has sent something. See [`Guest::has_news`].
impl AsFd for Guest {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

/// Why nobody was reached at `socket`.
fn unreached(socket: &FilePath, error: io::Error) -> AttachError {
    // As many connections wait there as may: somebody listens, and takes in nobody.
    if error.kind() == io::ErrorKind::WouldBlock {
        AttachError::NoAnswer
    } else if shortage(&error).is_some() {
        AttachError::Resources(error)
    } else {
        AttachError::Unreachable { socket: socket.to_owned(), error }
    }
}

fn after(time: Duration) -> u64 {
    let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    now_ns().saturating_add(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn want_of_resources_is_no_lack_of_a_host() {
        let unreached = |code| unreached("s".as_ref(), io::Error::from_raw_os_error(code));
        for (code, is_ours) in [(24, true), (23, true), (12, true), (111, false), (2, false)] {
            let error = unreached(code);
            assert_eq!(matches!(error, AttachError::Resources(_)), is_ours, "{error}");
            assert_eq!(matches!(error, AttachError::Unreachable { .. }), !is_ours, "{error}");
        }
        assert!(matches!(unreached(11), AttachError::NoAnswer), "its backlog is full");
    }
}
