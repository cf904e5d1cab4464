//! A guest of APPC/VM: many conversations, and their events.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use fabric::control::{Kind, Pending, Problem, Target, UserData};
use fabric::name::Name;
use fabric::path::{Counter, END_DATA_BYTES};
use message::appc::{Ended, Event, Level, State, StateError, TryError, Verb};
use os::doorbell::Listen;

use super::conversation::Conversation;
use super::function::{Completed, Function, Running};
use super::options::{Options, level};
use crate::guest::ConnectError;
use crate::switchboard::{Call, News, Switchboard};
use crate::waiter::Member;
use crate::waiting::{Wait, after, count_polls};

/// A conversation, as its guest knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConversationId(pub u16);

impl fmt::Display for ConversationId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// The kind of an event: the types of APPC/VM's external interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Interrupt {
    /// A guest asks for a conversation.
    ConnectionPending,
    /// A conversation that this guest asked for is there.
    ConnectionComplete,
    /// A conversation has ended, or will not be.
    Severed,
    /// A function that was started is complete.
    FunctionComplete,
    /// A partner asks for the turn.
    Request,
    /// A partner has sent something, and no function waits for it.
    MessagePending,
}

/// An event of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GuestEvent {
    /// A guest asks for a conversation. Accept it or sever it.
    ConnectionPending {
        /// The conversation that it may become.
        conversation: ConversationId,
        /// The guest.
        from: Name,
        /// For which resource; none if for the guest itself.
        resource: Option<Name>,
        /// Whether records can be confirmed.
        level: Level,
        /// From the other side's user.
        data: UserData,
    },
    /// A conversation that was asked for is there, in SEND state.
    ConnectionComplete {
        /// Which.
        conversation: ConversationId,
        /// From the other side's user.
        data: UserData,
    },
    /// A conversation that was asked for will not be.
    ConnectionSevered {
        /// Which.
        conversation: ConversationId,
        /// Why.
        problem: Option<Problem>,
        /// From the other side's user, if it refused.
        data: UserData,
    },
    /// A conversation has ended. Sever it.
    Severed(ConversationId, Ended),
    /// A function that was started is complete.
    FunctionComplete(ConversationId, Completed),
    /// The partner asks for the turn.
    Request(ConversationId),
    /// The partner has sent something: a function will find it.
    MessagePending(ConversationId),
}

impl GuestEvent {
    /// The type of interrupt that this is.
    pub fn interrupt(&self) -> Interrupt {
        match self {
            GuestEvent::ConnectionPending { .. } => Interrupt::ConnectionPending,
            GuestEvent::ConnectionComplete { .. } => Interrupt::ConnectionComplete,
            GuestEvent::ConnectionSevered { .. } | GuestEvent::Severed(..) => Interrupt::Severed,
            GuestEvent::FunctionComplete(..) => Interrupt::FunctionComplete,
            GuestEvent::Request(_) => Interrupt::Request,
            GuestEvent::MessagePending(_) => Interrupt::MessagePending,
        }
    }
}

/// Why a conversation was not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// It does not wait to be accepted.
    #[error(transparent)]
    State(#[from] StateError),
    /// It could not be made, and waits no longer.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

/// A function was not started, and is given back: one that was started before is not complete.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a function of this conversation is not complete")]
pub struct Busy(pub Function);

/// A guest that has many conversations and waits for none: it starts functions, and is notified when they
/// are complete and of what else happens, one event at a time.
#[derive(Debug)]
pub struct AppcGuest {
    board: Switchboard<Seat>,
    /// The conversation whose event was reported last.
    last_reported: u16,
}

/// A conversation, and the function that it is about.
#[derive(Debug)]
struct Seat {
    conversation: Conversation,
    running: Option<Running>,
}

impl AppcGuest {
    /// Makes a guest one of APPC/VM. Connections for anything else are refused from now on. Resources are
    /// managed as ever: [`crate::Guest::identify`].
    ///
    /// # Errors
    /// No descriptors left.
    pub fn declare(guest: crate::Guest, wait: Wait) -> io::Result<AppcGuest> {
        Ok(AppcGuest { board: Switchboard::new(guest, wait)?, last_reported: 0 })
    }

    /// Gives the guest back. All its conversations are severed.
    pub fn retrieve(self) -> crate::Guest {
        self.board.into_guest()
    }

    /// The guest, for what is not a conversation's.
    pub fn guest(&self) -> &crate::Guest {
        self.board.guest()
    }

    /// (CONNECT) Asks for a conversation with the manager of a resource. It is there with
    /// [`GuestEvent::ConnectionComplete`].
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn allocate(
        &mut self,
        resource: &str,
        options: &Options,
    ) -> Result<ConversationId, ConnectError> {
        self.allocate_to(Target::Resource(resource.parse()?), options)
    }

    /// Asks for a conversation with a guest, or with the manager of a resource.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn allocate_to(
        &mut self,
        target: Target,
        options: &Options,
    ) -> Result<ConversationId, ConnectError> {
        let ask = |guest: &_, (target, options): &(Target, Options)| {
            Conversation::start_allocating(guest, *target, options)
        };
        self.board.connect((target, *options), ask).map(ConversationId)
    }

    /// (ACCEPT) Accepts a conversation that is pending. It is there when this returns, in RECEIVE state.
    ///
    /// # Errors
    /// [`AcceptError`].
    pub fn accept(&mut self, id: ConversationId, options: &Options) -> Result<(), AcceptError> {
        let accepted = self.board.accept(id.0, |guest, pending| {
            Conversation::accept_pending(guest, pending, options).map(Seat::new)
        });
        let state = self.state(id);
        Ok(accepted.ok_or(StateError { verb: Verb::Accept, state })??)
    }

    /// (SEVER) Ends a conversation where it stands, refuses one that is pending, or takes back one that was
    /// asked for. One that has ended is forgotten. A function that is not complete is dropped.
    ///
    /// # Errors
    /// There is no such conversation.
    pub fn sever(
        &mut self,
        id: ConversationId,
        data: [u8; END_DATA_BYTES],
    ) -> Result<(), StateError> {
        let none = StateError { verb: Verb::Sever, state: State::Reset };
        if self.board.sever(id.0, data) { Ok(()) } else { Err(none) }
    }

    /// The state of a conversation: RESET if there is none, CONNECT if it was not accepted yet.
    pub fn state(&self, id: ConversationId) -> State {
        match self.board.get(id.0) {
            Some(seat) => seat.conversation.state(),
            None if self.board.is_known(id.0) => State::Connect,
            None => State::Reset,
        }
    }

    /// Starts a function, one at a time in each conversation. If it is complete at once, it is given back; if not,
    /// [`GuestEvent::FunctionComplete`] reports it.
    ///
    /// # Errors
    /// [`Busy`].
    pub fn start(
        &mut self,
        id: ConversationId,
        function: Function,
    ) -> Result<Option<Completed>, Busy> {
        let state = self.state(id);
        let Some(seat) = self.board.get_mut(id.0) else {
            let error = StateError { verb: function.verb(), state };
            return Ok(Some(Completed { function, outcome: Err(error.into()) }));
        };
        if seat.running.is_some() {
            return Err(Busy(function));
        }
        seat.running = Some(Running::new(function));
        Ok(seat.go_on())
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// `NotConnected` if there is nothing to wait for: the host was one of this process and is gone, and nothing is
    /// left that was made with its help. Otherwise the kernel refuses to let us wait.
    pub fn event(&mut self) -> io::Result<GuestEvent> {
        Ok(self.event_before(u64::MAX)?.expect("no time was set"))
    }

    /// Waits for the next event, at most for `time`. None if the time is over.
    ///
    /// # Errors
    /// The same as of waiting without a limit.
    pub fn event_within(&mut self, time: Duration) -> io::Result<Option<GuestEvent>> {
        self.event_before(after(time))
    }

    fn event_before(&mut self, deadline_ns: u64) -> io::Result<Option<GuestEvent>> {
        let mut is_over = false;
        loop {
            let event = self.try_event()?;
            if event.is_some() || is_over {
                return Ok(event);
            }
            is_over = !self.board.wait_until(deadline_ns)?;
        }
    }

    /// The next event, if there is one.
    ///
    /// # Errors
    /// `NotConnected` in a forked child; otherwise the kernel refuses to let us wait.
    pub fn try_event(&mut self) -> io::Result<Option<GuestEvent>> {
        self.board.listen()?;
        if let Some(news) = self.board.next_news(|_| true) {
            return Ok(Some(news.into()));
        }
        let AppcGuest { board, last_reported } = self;
        Ok(board.ask(last_reported, |number, seat| seat.next_event(ConversationId(number))))
    }

    /// Prepares for waiting elsewhere. True if there is no event: then the descriptor becomes readable
    /// when there may be.
    pub fn prepare_wait(&mut self) -> bool {
        self.board.prepare_wait(|_| true)
    }
}

impl From<News> for GuestEvent {
    fn from(news: News) -> GuestEvent {
        match news {
            News::Pending(number, Pending { from, resource, flags, data, .. }) => {
                let (conversation, level) = (ConversationId(number), level(flags));
                GuestEvent::ConnectionPending { conversation, from, resource, level, data }
            }
            News::Complete(number, data) => {
                GuestEvent::ConnectionComplete { conversation: ConversationId(number), data }
            }
            News::Severed(number, problem, data) => {
                let conversation = ConversationId(number);
                GuestEvent::ConnectionSevered { conversation, problem, data }
            }
        }
    }
}

/// Readable when there may be an event: for a program's own epoll. Call [`AppcGuest::prepare_wait`] before.
impl AsFd for AppcGuest {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.board.as_fd()
    }
}

impl Seat {
    fn new(conversation: Conversation) -> Seat {
        Seat { conversation, running: None }
    }

    /// Goes on with the function; what came of it if it is complete.
    fn go_on(&mut self) -> Option<Completed> {
        let running = self.running.as_mut()?;
        let outcome = match running.go_on(&mut self.conversation.inner) {
            Ok(received) => Ok(received),
            Err(TryError::Pending) => return None,
            Err(TryError::Verb(error)) => Err(error),
        };
        let function = self.running.take().expect("looked at just now").function;
        Some(Completed { function, outcome })
    }

    fn next_event(&mut self, id: ConversationId) -> Option<GuestEvent> {
        if let Some(completed) = self.go_on() {
            return Some(GuestEvent::FunctionComplete(id, completed));
        }
        let inner = &mut self.conversation.inner;
        if self.running.is_some() {
            return inner.next_request().then_some(GuestEvent::Request(id));
        }
        Some(match inner.next_event()? {
            Event::MessagePending => GuestEvent::MessagePending(id),
            Event::Request => GuestEvent::Request(id),
            Event::Severed(ended) => GuestEvent::Severed(id, ended),
        })
    }
}

impl Call for Seat {
    type Terms = (Target, Options);

    const KIND: Kind = Kind::APPC;

    const QUEUES: usize = 1;

    fn over(path: crate::Path, (target, options): &(Target, Options)) -> Seat {
        Seat::new(Conversation::allocated(path, *target, options))
    }

    fn sever(mut self, data: [u8; END_DATA_BYTES]) {
        // If it has ended, that is what is wanted.
        let _ = self.conversation.sever(data);
    }
}

/// Ready when a conversation has something to report.
impl Member for Seat {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        self.conversation.inner.descriptors().into_iter().for_each(add);
    }

    fn is_path(&self) -> bool {
        true
    }

    fn hear(&mut self, index: usize) -> bool {
        let (sender, receiver) = self.conversation.inner.halves();
        if index == 0 {
            receiver.hear(Listen::Now);
            receiver.ended().is_none()
        } else {
            sender.hear(Listen::Now);
            sender.ended().is_none()
        }
    }

    fn is_ready(&mut self) -> bool {
        let inner = &mut self.conversation.inner;
        match &self.running {
            Some(running) => inner.has_request() || running.wanted().is_there(inner),
            None => inner.has_event(),
        }
    }

    fn sleep(&mut self) {
        let inner = &mut self.conversation.inner;
        inner.flush();
        // Both: a function that is started while we sleep may wait for room.
        let (sender, receiver) = inner.halves();
        receiver.announce_sleep();
        sender.announce_sleep();
        inner.counters().add(Counter::Sleeps, 1);
    }

    fn wake(&mut self) {
        let (sender, receiver) = self.conversation.inner.halves();
        receiver.wake();
        sender.wake();
    }

    fn trim(&mut self) -> bool {
        self.conversation.inner.trim()
    }

    fn count(&mut self, polls: u64, spinning_ns: u64) {
        count_polls(self.conversation.inner.counters(), polls, false, spinning_ns);
    }
}
