//! A guest of IUCV: many paths, and their events in IUCV's order.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use fabric::control::{Kind, Pending, Problem, Target, UserData};
use fabric::name::Name;
use fabric::path::END_DATA_BYTES;
use message::iucv::QUEUES;
use message::iucv::{Event, Interrupt};

use super::mask::{ControlMask, Mask, Masks};
use super::options::Options;
use super::path::IucvPath;
use crate::guest::ConnectError;
use crate::switchboard::{Call, News, Switchboard};
use crate::waiting::{Wait, after};

/// (IPPATHID) A path, as its guest knows it: 0 to 65535, unique in the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u16);

impl fmt::Display for PathId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// There is no path of this number in the state that the verb needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("path {0} is not there, or not in this state")]
pub struct PathError(pub PathId);

/// An event of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GuestEvent {
    /// A guest asks for a path. Accept it or sever it.
    ConnectionPending {
        /// The path that it may become.
        path: PathId,
        /// The guest.
        from: Name,
        /// For which resource; none if for the guest itself.
        resource: Option<Name>,
        /// From the other side's user.
        data: UserData,
    },
    /// A path that was asked for is there.
    ConnectionComplete {
        /// Which.
        path: PathId,
        /// From the other side's user.
        data: UserData,
    },
    /// A path that was asked for will not be.
    ConnectionSevered {
        /// Which.
        path: PathId,
        /// Why.
        problem: Option<Problem>,
        /// From the other side's user, if it refused.
        data: UserData,
    },
    /// An event of a path.
    Path(PathId, Event),
}

impl GuestEvent {
    /// The type of interrupt that this is.
    pub fn interrupt(&self) -> Interrupt {
        match self {
            GuestEvent::ConnectionPending { .. } => Interrupt::ConnectionPending,
            GuestEvent::ConnectionComplete { .. } => Interrupt::ConnectionComplete,
            GuestEvent::ConnectionSevered { .. } => Interrupt::PathSevered,
            GuestEvent::Path(_, event) => event.interrupt(),
        }
    }
}

/// A guest that has declared a buffer for IUCV: it serves many paths, and takes what happens on them
/// one event at a time: about paths first, then what has priority, then the rest; of paths that have events of the
/// same rank, each in its turn.
#[derive(Debug)]
pub struct IucvGuest {
    board: Switchboard<IucvPath>,
    masks: Masks,
    /// The path whose event was reported last, in each rank.
    last_reported: [u16; RANKS.len()],
}

impl Call for IucvPath {
    type Terms = Options;

    const KIND: Kind = Kind::IUCV;

    const QUEUES: usize = QUEUES;

    fn over(path: crate::Path, options: &Options) -> IucvPath {
        IucvPath::over(path, options)
    }

    fn sever(self, data: [u8; END_DATA_BYTES]) {
        IucvPath::sever(self, data);
    }
}

/// The three ranks of events, in the order in which they are reported.
const RANKS: [fn(Interrupt) -> bool; 3] = [
    |interrupt| (interrupt as u8) < Interrupt::PriorityMessageComplete as u8,
    |interrupt| {
        matches!(interrupt, Interrupt::PriorityMessageComplete | Interrupt::PriorityMessagePending)
    },
    |interrupt| matches!(interrupt, Interrupt::MessageComplete | Interrupt::MessagePending),
];

impl IucvGuest {
    /// (DECLARE BUFFER) Makes a guest one of IUCV, with all masks open. Connections for anything else are refused from
    /// now on.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn declare(guest: crate::Guest, wait: Wait) -> io::Result<IucvGuest> {
        let board = Switchboard::new(guest, wait)?;
        Ok(IucvGuest { board, masks: Masks::ALL, last_reported: [0; _] })
    }

    /// (RETRIEVE BUFFER) Gives the guest back. All its paths are severed.
    pub fn retrieve(self) -> crate::Guest {
        self.board.into_guest()
    }

    /// The guest, for what is not IUCV's.
    pub fn guest(&self) -> &crate::Guest {
        self.board.guest()
    }

    /// (CONNECT) Asks for a path. It is there with [`GuestEvent::ConnectionComplete`].
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(&mut self, target: &str, options: &Options) -> Result<PathId, ConnectError> {
        self.connect_to(Target::Guest(target.parse()?), options)
    }

    /// Asks for a path to a guest or to the manager of a resource.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect_to(
        &mut self,
        target: Target,
        options: &Options,
    ) -> Result<PathId, ConnectError> {
        let ask = |guest: &crate::Guest, options: &Options| {
            guest.start_connecting_to(target, &options.below())
        };
        self.board.connect(*options, ask).map(PathId)
    }

    /// (ACCEPT) Accepts a connection that is pending. The path is there when this returns. Waits at most 10 s for the
    /// host.
    ///
    /// # Errors
    /// [`ConnectError`]; there is no such connection any more then.
    pub fn accept(&mut self, id: PathId, options: &Options) -> Result<(), ConnectError> {
        let accept = |guest: &_, pending| IucvPath::accept_pending(guest, pending, options);
        self.board.accept(id.0, accept).unwrap_or(Err(ConnectError::Refused {
            problem: Problem::NoPath,
            data: [0; END_DATA_BYTES],
        }))
    }

    /// (SEVER) Ends a path, refuses a connection that is pending, or takes back one that was asked for.
    ///
    /// # Errors
    /// [`PathError`].
    pub fn sever(&mut self, id: PathId, data: [u8; END_DATA_BYTES]) -> Result<(), PathError> {
        if self.board.sever(id.0, data) { Ok(()) } else { Err(PathError(id)) }
    }

    /// A path that is there, to send and receive.
    ///
    /// # Errors
    /// [`PathError`].
    pub fn path(&mut self, id: PathId) -> Result<&mut IucvPath, PathError> {
        self.board.get_mut(id.0).ok_or(PathError(id))
    }

    /// (SETMASK) Sets which events are reported, [`Mask::ALL`] unless set. The others wait.
    pub fn set_mask(&mut self, mask: Mask) {
        self.masks.mask = mask;
        self.board.mark_all_active();
    }

    /// (SETCMASK) Sets which events about connections are reported, [`ControlMask::ALL`] unless set. The others wait.
    pub fn set_control_mask(&mut self, mask: ControlMask) {
        self.masks.control = mask;
        self.board.mark_all_active();
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
        let IucvGuest { board, masks, last_reported } = self;
        board.listen()?;
        let wanted = |interrupt| masks.let_through(interrupt);
        let news = board.next_news(|news| masks.let_news_through(news));
        if let Some(news) = news {
            return Ok(Some(news.into()));
        }
        // Once for all ranks: what came after the pass of its own rank would not be reported.
        board.visit(|path| {
            path.set_masks(*masks);
            path.raw().poll_events();
        });
        for (rank, last) in RANKS.into_iter().zip(last_reported) {
            let wanted = |interrupt| rank(interrupt) && wanted(interrupt);
            let event = board.ask_all(last, |number, path| {
                let event = path.raw().next_polled_event(wanted)?;
                Some(GuestEvent::Path(PathId(number), event))
            });
            if event.is_some() {
                return Ok(event);
            }
        }
        board.clear_active();
        Ok(None)
    }

    /// Prepares for waiting elsewhere. True if there is no event: then the descriptor becomes readable
    /// when there may be.
    pub fn prepare_wait(&mut self) -> bool {
        let masks = self.masks;
        self.board.prepare_wait(|news| masks.let_news_through(news))
    }
}

impl Masks {
    fn let_news_through(self, news: &News) -> bool {
        self.let_through(GuestEvent::from(*news).interrupt())
    }
}

impl From<News> for GuestEvent {
    fn from(news: News) -> GuestEvent {
        match news {
            News::Pending(number, Pending { from, resource, data, .. }) => {
                GuestEvent::ConnectionPending { path: PathId(number), from, resource, data }
            }
            News::Complete(number, data) => {
                GuestEvent::ConnectionComplete { path: PathId(number), data }
            }
            News::Severed(number, problem, data) => {
                GuestEvent::ConnectionSevered { path: PathId(number), problem, data }
            }
        }
    }
}

/// Readable when there may be an event: for a program's own epoll. Call [`IucvGuest::prepare_wait`] before.
impl AsFd for IucvGuest {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.board.as_fd()
    }
}
