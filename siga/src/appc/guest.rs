//! A guest of APPC/VM: many conversations, and their events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use fabric::appc::{Ended, Event, Level, State, StateError, Verb};
use fabric::control::{Kind, Pending, Problem, Target, UserData};
use fabric::name::Name;
use fabric::path::{Counter, END_DATA_BYTES};
use os::doorbell::Listen;

use super::conversation::Conversation;
use super::function::{Completed, Function, Running};
use super::options::{Options, level};
use crate::guest::{ConnectError, Connecting};
use crate::waiter::{Key, Member, Waiter};
use crate::waiting::Wait;

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
pub enum Interrupt {
    /// Somebody wants a conversation.
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

/// Something that a guest is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuestEvent {
    /// Somebody wants a conversation. Accept it or sever it.
    ConnectionPending {
        /// The conversation that it may become.
        conversation: ConversationId,
        /// Who.
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
pub enum AcceptError {
    /// It does not wait to be accepted.
    #[error(transparent)]
    State(#[from] StateError),
    /// It could not be made, and waits no longer.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

/// A function was not started: one that was started before is not complete.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a function of this conversation is not complete")]
pub struct Busy(pub Function);

/// A guest that has many conversations and waits for none: it starts functions, and is told when they are
/// complete and what else happens, one event at a time.
#[derive(Debug)]
pub struct Guest {
    waiter: Waiter<Served>,
    guest: Key,
    places: BTreeMap<ConversationId, Place>,
    /// Conversations that may have something to tell.
    active: BTreeSet<ConversationId>,
    /// What is to be told about connections.
    connections: VecDeque<GuestEvent>,
}

#[derive(Debug)]
enum Place {
    /// It waits to be accepted here.
    Pending(Pending),
    /// It waits to be accepted there.
    Connecting(Connecting, Target, Options),
    /// It is there.
    Joined(Key),
}

#[derive(Debug)]
enum Served {
    Guest(Box<crate::Guest>),
    Conversation(Box<Seat>),
}

/// A conversation, and the function that it is about.
#[derive(Debug)]
struct Seat {
    id: ConversationId,
    conversation: Conversation,
    running: Option<Running>,
}

impl Guest {
    /// Makes a guest one of APPC/VM. Connections for anything else are refused from now on. Resources are
    /// managed as ever: [`crate::Guest::identify`].
    ///
    /// # Errors
    /// No descriptors left.
    pub fn declare(guest: crate::Guest, wait: Wait) -> io::Result<Guest> {
        let mut waiter = Waiter::new(wait)?;
        let guest = waiter.add(Served::Guest(Box::new(guest)))?;
        Ok(Guest {
            waiter,
            guest,
            places: BTreeMap::new(),
            active: BTreeSet::new(),
            connections: VecDeque::new(),
        })
    }

    /// Gives the guest back. All its conversations are severed.
    pub fn retrieve(mut self) -> crate::Guest {
        for id in self.places.keys().copied().collect::<Vec<_>>() {
            // It is there.
            let _ = self.sever(id, [0; END_DATA_BYTES]);
        }
        match self.waiter.remove(self.guest) {
            Some(Served::Guest(guest)) => *guest,
            _ => unreachable!("declared with a guest"),
        }
    }

    /// The guest, for what is not a conversation's.
    pub fn guest(&self) -> &crate::Guest {
        match self.waiter.get(self.guest) {
            Some(Served::Guest(guest)) => guest,
            _ => unreachable!("declared with a guest"),
        }
    }

    /// (CONNECT) Asks for a conversation with a guest, or with whoever manages a resource. It is there with
    /// [`GuestEvent::ConnectionComplete`].
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn allocate(
        &mut self,
        target: Target,
        options: &Options,
    ) -> Result<ConversationId, ConnectError> {
        let id = self.free_id()?;
        let connecting = Conversation::start_allocating(self.guest(), target, options)?;
        self.places.insert(id, Place::Connecting(connecting, target, *options));
        Ok(id)
    }

    /// (ACCEPT) Accepts a conversation that is pending. It is there when this returns, in RECEIVE state.
    ///
    /// # Errors
    /// [`AcceptError`].
    pub fn accept(&mut self, id: ConversationId, options: &Options) -> Result<(), AcceptError> {
        let Some(Place::Pending(pending)) = self.places.get(&id) else {
            return Err(StateError { verb: Verb::Accept, state: self.state(id) }.into());
        };
        let pending = *pending;
        self.places.remove(&id);
        let conversation = Conversation::accept_pending(self.guest(), pending, options)?;
        self.join(id, conversation).map_err(ConnectError::from)?;
        Ok(())
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
        match self.places.remove(&id).ok_or(none)? {
            Place::Pending(pending) => self.guest().refuse(pending, data),
            Place::Connecting(connecting, ..) => drop(connecting),
            Place::Joined(key) => {
                if let Some(Served::Conversation(mut seat)) = self.waiter.remove(key) {
                    // If it has ended, that is what is wanted.
                    let _ = seat.conversation.sever(data);
                }
            }
        }
        self.active.remove(&id);
        Ok(())
    }

    /// The state of a conversation: RESET if there is none, CONNECT if it was not accepted yet.
    pub fn state(&self, id: ConversationId) -> State {
        match self.places.get(&id) {
            None => State::Reset,
            Some(Place::Pending(_) | Place::Connecting(..)) => State::Connect,
            Some(Place::Joined(key)) => match self.waiter.get(*key) {
                Some(Served::Conversation(seat)) => seat.conversation.state(),
                _ => State::Reset,
            },
        }
    }

    /// Starts a function. If it is complete at once, it is given back; if not,
    /// [`GuestEvent::FunctionComplete`] will tell.
    ///
    /// # Errors
    /// [`Busy`].
    pub fn start(
        &mut self,
        id: ConversationId,
        function: Function,
    ) -> Result<Option<Completed>, Busy> {
        let state = self.state(id);
        let Some(seat) = self.seat(id) else {
            let error = StateError { verb: function.verb(), state };
            return Ok(Some(Completed { function, outcome: Err(error.into()) }));
        };
        if seat.running.is_some() {
            return Err(Busy(function));
        }
        seat.running = Some(Running::new(function));
        let completed = seat.go_on();
        self.active.insert(id);
        Ok(completed)
    }

    fn seat(&mut self, id: ConversationId) -> Option<&mut Seat> {
        let Some(Place::Joined(key)) = self.places.get(&id) else { return None };
        match self.waiter.get_mut(*key) {
            Some(Served::Conversation(seat)) => Some(seat),
            _ => None,
        }
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// The kernel refuses to let us wait: nothing that can be helped.
    pub fn event(&mut self) -> io::Result<GuestEvent> {
        loop {
            if let Some(event) = self.try_event()? {
                return Ok(event);
            }
            let key = self.waiter.wait()?;
            self.take_note(key);
        }
    }

    /// The next event, if there is one.
    ///
    /// # Errors
    /// As [`Guest::event`].
    pub fn try_event(&mut self) -> io::Result<Option<GuestEvent>> {
        for _ in 0..=self.places.len() {
            let Some(key) = self.waiter.try_next()? else { break };
            if !self.take_note(key) {
                break;
            }
        }
        if let Some(event) = self.connections.pop_front() {
            return Ok(Some(event));
        }
        while let Some(id) = self.active.first().copied() {
            if let Some(event) = self.seat(id).and_then(Seat::next_event) {
                return Ok(Some(event));
            }
            self.active.remove(&id);
        }
        Ok(None)
    }

    /// Prepares for waiting elsewhere. True if there is nothing to tell: then the descriptor becomes readable
    /// when there may be.
    pub fn prepare_wait(&mut self) -> bool {
        self.connections.is_empty() && self.active.is_empty() && self.waiter.prepare_wait()
    }

    /// Somebody has something. False if that was known.
    fn take_note(&mut self, key: Key) -> bool {
        if key == self.guest {
            self.take_connections();
            return true;
        }
        match self.waiter.get(key) {
            Some(Served::Conversation(seat)) => self.active.insert(seat.id),
            _ => false,
        }
    }

    fn take_connections(&mut self) {
        while let Some(pending) = self.guest().pending() {
            let id = match self.free_id() {
                Ok(id) if pending.kind == Kind::APPC => id,
                _ => {
                    self.guest().refuse(pending, [0; END_DATA_BYTES]);
                    continue;
                }
            };
            let Pending { from, resource, flags, data, .. } = pending;
            self.places.insert(id, Place::Pending(pending));
            self.connections.push_back(GuestEvent::ConnectionPending {
                conversation: id,
                from,
                resource,
                level: level(flags),
                data,
            });
        }
        let is_connecting = |place: &Place| matches!(place, Place::Connecting(..));
        let connecting = self.places.iter().filter(|(_, place)| is_connecting(place));
        for id in connecting.map(|(id, _)| *id).collect::<Vec<_>>() {
            let Some(Place::Connecting(connecting, target, options)) = self.places.remove(&id)
            else {
                continue;
            };
            let severed =
                |problem, data| GuestEvent::ConnectionSevered { conversation: id, problem, data };
            let event = match self.guest().try_complete(connecting) {
                Ok(Err(connecting)) => {
                    self.places.insert(id, Place::Connecting(connecting, target, options));
                    continue;
                }
                Ok(Ok(path)) => {
                    let conversation = Conversation::allocated(path, target, &options);
                    let data = conversation.user_data();
                    match self.join(id, conversation) {
                        Ok(()) => GuestEvent::ConnectionComplete { conversation: id, data },
                        Err(_) => severed(None, [0; END_DATA_BYTES]),
                    }
                }
                Err(ConnectError::Refused { problem, data }) => severed(Some(problem), data),
                Err(_) => severed(None, [0; END_DATA_BYTES]),
            };
            self.connections.push_back(event);
        }
    }

    fn join(&mut self, id: ConversationId, conversation: Conversation) -> io::Result<()> {
        let seat = Seat { id, conversation, running: None };
        let key = self.waiter.add(Served::Conversation(Box::new(seat)))?;
        self.places.insert(id, Place::Joined(key));
        self.active.insert(id);
        Ok(())
    }

    /// The lowest number that is no conversation's.
    fn free_id(&self) -> io::Result<ConversationId> {
        let used = self.places.keys().enumerate();
        let next = used.take_while(|(at, id)| usize::from(id.0) == *at).count();
        let next = u16::try_from(next);
        let next = next.map_err(|_| io::Error::other("65536 conversations are in use"))?;
        Ok(ConversationId(next))
    }
}

/// Readable when there may be an event: for a program's own epoll. Call [`Guest::prepare_wait`] before.
impl AsFd for Guest {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiter.as_fd()
    }
}

impl Seat {
    /// Goes on with the function; what came of it if it is complete.
    fn go_on(&mut self) -> Option<Completed> {
        let running = self.running.as_mut()?;
        let outcome = running.go_on(&mut self.conversation.inner);
        if outcome == Err(fabric::appc::VerbError::Pending) {
            return None;
        }
        let function = self.running.take().expect("looked at just now").function;
        Some(Completed { function, outcome })
    }

    fn next_event(&mut self) -> Option<GuestEvent> {
        let id = self.id;
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

impl Member for Served {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        match self {
            Served::Guest(guest) => guest.doorbells(add),
            Served::Conversation(seat) => {
                seat.conversation.inner.descriptors().into_iter().for_each(add);
            }
        }
    }

    fn hear(&mut self, index: usize) -> bool {
        match self {
            Served::Guest(guest) => guest.hear(index),
            Served::Conversation(seat) => {
                let (sender, receiver) = seat.conversation.inner.halves();
                if index == 0 {
                    receiver.hear(Listen::Now);
                    receiver.ended().is_none()
                } else {
                    sender.hear(Listen::Now);
                    sender.ended().is_none()
                }
            }
        }
    }

    fn is_ready(&mut self) -> bool {
        match self {
            Served::Guest(guest) => guest.is_ready(),
            Served::Conversation(seat) => {
                let inner = &mut seat.conversation.inner;
                match &seat.running {
                    Some(running) => inner.has_request() || running.wanted().is_there(inner),
                    None => inner.has_news(),
                }
            }
        }
    }

    fn sleep(&mut self) {
        match self {
            Served::Guest(guest) => guest.sleep(),
            Served::Conversation(seat) => {
                let inner = &mut seat.conversation.inner;
                inner.flush();
                // Both: a function that is started while we sleep may wait for room.
                let (sender, receiver) = inner.halves();
                receiver.announce_sleep();
                sender.announce_sleep();
                inner.counters().add(Counter::Sleeps, 1);
            }
        }
    }

    fn wake(&mut self) {
        match self {
            Served::Guest(guest) => guest.wake(),
            Served::Conversation(seat) => {
                let (sender, receiver) = seat.conversation.inner.halves();
                receiver.wake();
                sender.wake();
            }
        }
    }

    fn tidy(&mut self) -> bool {
        match self {
            Served::Guest(guest) => guest.tidy(),
            Served::Conversation(seat) => seat.conversation.inner.tidy(),
        }
    }

    fn poll(&mut self, now_ns: u64) -> Option<u64> {
        match self {
            Served::Guest(guest) => Member::poll(&mut **guest, now_ns),
            Served::Conversation(_) => None,
        }
    }

    fn count(&mut self, looks: u64, spinning_ns: u64) {
        match self {
            Served::Guest(guest) => guest.count(looks, spinning_ns),
            Served::Conversation(seat) => {
                let counters = seat.conversation.inner.counters();
                counters.add(Counter::Polls, looks);
                counters.add(Counter::PollsEmpty, looks);
                counters.add(Counter::SpinningNs, spinning_ns);
            }
        }
    }
}
