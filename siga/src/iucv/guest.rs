//! A guest of IUCV: many paths, and their events in IUCV's order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use fabric::control::{self, Kind, Problem, Target, UserData};
use fabric::iucv::{Event, Interrupt};
use fabric::name::Name;
use fabric::path::END_DATA_BYTES;

use super::options::Options;
use super::path::Path;
use crate::guest::{ConnectError, Connecting};
use crate::waiter::{Key, Member, Waiter};
use crate::waiting::Wait;

/// (IPPATHID) A path, as its guest knows it.
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

/// Which events are told, by the bits of SETMASK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mask(pub u8);

impl Mask {
    /// All.
    pub const ALL: Mask = Mask(0xf8);
    /// Messages without priority that wait.
    pub const MESSAGES: Mask = Mask(0x80);
    /// Messages with priority that wait.
    pub const PRIORITY_MESSAGES: Mask = Mask(0x40);
    /// Messages without priority that are complete.
    pub const REPLIES: Mask = Mask(0x20);
    /// Messages with priority that are complete.
    pub const PRIORITY_REPLIES: Mask = Mask(0x10);
    /// What is about paths: see [`ControlMask`].
    pub const CONTROL: Mask = Mask(0x08);
}

/// Which events about paths are told, by the bits of SETCMASK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlMask(pub u8);

impl ControlMask {
    /// All.
    pub const ALL: ControlMask = ControlMask(0xf8);
    /// Connections that wait.
    pub const PENDING: ControlMask = ControlMask(0x80);
    /// Connections that were accepted.
    pub const COMPLETE: ControlMask = ControlMask(0x40);
    /// Paths that have ended.
    pub const SEVERED: ControlMask = ControlMask(0x20);
    /// Paths that were quiesced.
    pub const QUIESCED: ControlMask = ControlMask(0x10);
    /// Paths that were resumed.
    pub const RESUMED: ControlMask = ControlMask(0x08);
}

fn lets_through(mask: Mask, control: ControlMask, interrupt: Interrupt) -> bool {
    let bit = match interrupt {
        Interrupt::MessagePending => Mask::MESSAGES,
        Interrupt::PriorityMessagePending => Mask::PRIORITY_MESSAGES,
        Interrupt::MessageComplete => Mask::REPLIES,
        Interrupt::PriorityMessageComplete => Mask::PRIORITY_REPLIES,
        about_paths => {
            let bit = 0x80 >> (about_paths as u8 - 1);
            return mask.0 & Mask::CONTROL.0 != 0 && control.0 & bit != 0;
        }
    };
    mask.0 & bit.0 != 0
}

/// Something that a guest is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestEvent {
    /// Somebody wants a path. Accept it or sever it.
    ConnectionPending {
        /// The path that it may become.
        path: PathId,
        /// Who.
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
    /// A path has something to tell.
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

/// A guest that has declared a buffer for IUCV: it serves many paths, and is told what happens on them
/// one event at a time: about paths first, then what has priority, then the rest.
#[derive(Debug)]
pub struct Guest {
    waiter: Waiter<Served>,
    guest: Key,
    paths: BTreeMap<PathId, State>,
    /// Paths that may have something to tell.
    active: BTreeSet<PathId>,
    /// What is to be told about connections.
    connections: VecDeque<GuestEvent>,
    mask: Mask,
    control_mask: ControlMask,
}

#[derive(Debug)]
enum State {
    /// It waits to be accepted here.
    Pending(control::Pending),
    /// It waits to be accepted there.
    Connecting(Connecting, Options),
    /// It is there.
    Joined(Key),
}

#[derive(Debug)]
enum Served {
    Guest(Box<crate::Guest>),
    Path(Box<Path>, PathId),
}

/// The three ranks of events, in the order in which they are told.
const RANKS: [fn(Interrupt) -> bool; 3] = [
    |interrupt| (interrupt as u8) < Interrupt::PriorityMessageComplete as u8,
    |interrupt| {
        matches!(interrupt, Interrupt::PriorityMessageComplete | Interrupt::PriorityMessagePending)
    },
    |interrupt| matches!(interrupt, Interrupt::MessageComplete | Interrupt::MessagePending),
];

impl Guest {
    /// (DECLARE BUFFER) Makes a guest one of IUCV. Connections for anything else are refused from now on.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn declare(guest: crate::Guest, wait: Wait) -> io::Result<Guest> {
        let mut waiter = Waiter::new(wait)?;
        let guest = waiter.add(Served::Guest(Box::new(guest)))?;
        Ok(Guest {
            waiter,
            guest,
            paths: BTreeMap::new(),
            active: BTreeSet::new(),
            connections: VecDeque::new(),
            mask: Mask::ALL,
            control_mask: ControlMask::ALL,
        })
    }

    /// (RETRIEVE BUFFER) Gives the guest back. All its paths are severed.
    pub fn retrieve(mut self) -> crate::Guest {
        for id in self.paths.keys().copied().collect::<Vec<_>>() {
            // It is there.
            let _ = self.sever(id, [0; END_DATA_BYTES]);
        }
        match self.waiter.remove(self.guest) {
            Some(Served::Guest(guest)) => *guest,
            _ => unreachable!("declared with a guest"),
        }
    }

    /// The guest, for what is not IUCV's.
    pub fn guest(&self) -> &crate::Guest {
        match self.waiter.get(self.guest) {
            Some(Served::Guest(guest)) => guest,
            _ => unreachable!("declared with a guest"),
        }
    }

    /// (CONNECT) Asks for a path. It is there with [`GuestEvent::ConnectionComplete`].
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(&mut self, target: &str, options: &Options) -> Result<PathId, ConnectError> {
        self.connect_to(Target::Guest(target.parse()?), options)
    }

    /// Asks for a path to a guest or to whoever manages a resource.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect_to(
        &mut self,
        target: Target,
        options: &Options,
    ) -> Result<PathId, ConnectError> {
        let id = self.free_id()?;
        let connecting = self.guest().start_connecting_to(target, &options.below())?;
        self.paths.insert(id, State::Connecting(connecting, *options));
        Ok(id)
    }

    /// (ACCEPT) Accepts a connection that is pending. The path is there when this returns.
    ///
    /// # Errors
    /// [`ConnectError`]; there is no such connection any more then.
    pub fn accept(&mut self, id: PathId, options: &Options) -> Result<(), ConnectError> {
        let Some(State::Pending(pending)) = self.paths.get(&id) else {
            let refused = ConnectError::Refused { problem: Problem::NoPath, data: [0; 16] };
            return Err(refused);
        };
        let pending = *pending;
        self.paths.remove(&id);
        let path = Path::accept_pending(self.guest(), pending, options)?;
        self.join(id, path)?;
        Ok(())
    }

    /// (SEVER) Ends a path, refuses a connection that is pending, or takes back one that was asked for.
    ///
    /// # Errors
    /// [`PathError`].
    pub fn sever(&mut self, id: PathId, data: [u8; END_DATA_BYTES]) -> Result<(), PathError> {
        match self.paths.remove(&id).ok_or(PathError(id))? {
            State::Pending(pending) => self.guest().refuse(pending, data),
            State::Connecting(connecting, _) => drop(connecting),
            State::Joined(key) => {
                if let Some(Served::Path(path, _)) = self.waiter.remove(key) {
                    path.sever(data);
                }
            }
        }
        self.active.remove(&id);
        Ok(())
    }

    /// A path that is there, to send and receive.
    ///
    /// # Errors
    /// [`PathError`].
    pub fn path(&mut self, id: PathId) -> Result<&mut Path, PathError> {
        let Some(State::Joined(key)) = self.paths.get(&id) else { return Err(PathError(id)) };
        // A verb may take in what there is to tell.
        self.active.insert(id);
        match self.waiter.get_mut(*key) {
            Some(Served::Path(path, _)) => Ok(path),
            _ => Err(PathError(id)),
        }
    }

    /// (SETMASK) Says what to be told of. What is not told waits.
    pub fn set_mask(&mut self, mask: Mask) {
        self.mask = mask;
        self.look_at_all();
    }

    /// (SETCMASK) Says what about paths to be told of.
    pub fn set_control_mask(&mut self, mask: ControlMask) {
        self.control_mask = mask;
        self.look_at_all();
    }

    fn look_at_all(&mut self) {
        let joined =
            |(id, state): (&PathId, &State)| matches!(state, State::Joined(_)).then_some(*id);
        self.active.extend(self.paths.iter().filter_map(joined));
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
        for _ in 0..=self.paths.len() {
            let Some(key) = self.waiter.try_next()? else { break };
            if !self.take_note(key) {
                break;
            }
        }
        let (mask, control_mask) = (self.mask, self.control_mask);
        let wanted = |interrupt| lets_through(mask, control_mask, interrupt);
        if let Some(at) = self.connections.iter().position(|event| wanted(event.interrupt())) {
            return Ok(self.connections.remove(at));
        }
        for rank in RANKS {
            for id in &self.active {
                let Some(State::Joined(key)) = self.paths.get(id) else { continue };
                let Some(Served::Path(path, _)) = self.waiter.get_mut(*key) else { continue };
                if let Some(event) =
                    path.try_event(|interrupt| rank(interrupt) && wanted(interrupt))
                {
                    return Ok(Some(GuestEvent::Path(*id, event)));
                }
            }
        }
        self.active.clear();
        Ok(None)
    }

    /// Somebody has something. False if that was known.
    fn take_note(&mut self, key: Key) -> bool {
        if key == self.guest {
            self.take_connections();
            return true;
        }
        match self.waiter.get(key) {
            Some(Served::Path(_, id)) => self.active.insert(*id),
            _ => false,
        }
    }

    fn take_connections(&mut self) {
        while let Some(pending) = self.guest().pending() {
            let id = match self.free_id() {
                Ok(id) if pending.kind == Kind::IUCV => id,
                _ => {
                    self.guest().refuse(pending, [0; 16]);
                    continue;
                }
            };
            let control::Pending { from, resource, data, .. } = pending;
            self.paths.insert(id, State::Pending(pending));
            self.connections.push_back(GuestEvent::ConnectionPending {
                path: id,
                from,
                resource,
                data,
            });
        }
        let connecting: Vec<PathId> = self
            .paths
            .iter()
            .filter_map(|(id, state)| matches!(state, State::Connecting(..)).then_some(*id))
            .collect();
        for id in connecting {
            let Some(State::Connecting(connecting, options)) = self.paths.remove(&id) else {
                continue;
            };
            let event = match self.guest().try_complete(connecting) {
                Ok(Err(connecting)) => {
                    self.paths.insert(id, State::Connecting(connecting, options));
                    continue;
                }
                Ok(Ok(path)) => {
                    let path = Path::over(path, &options);
                    let data = path.user_data();
                    match self.join(id, path) {
                        Ok(()) => GuestEvent::ConnectionComplete { path: id, data },
                        Err(_) => severed(id, None, [0; 16]),
                    }
                }
                Err(ConnectError::Refused { problem, data }) => severed(id, Some(problem), data),
                Err(_) => severed(id, None, [0; 16]),
            };
            self.connections.push_back(event);
        }
    }

    fn join(&mut self, id: PathId, path: Path) -> io::Result<()> {
        let key = self.waiter.add(Served::Path(Box::new(path), id))?;
        self.paths.insert(id, State::Joined(key));
        self.active.insert(id);
        Ok(())
    }

    /// The lowest number that is no path's.
    fn free_id(&self) -> io::Result<PathId> {
        let used = self.paths.keys().enumerate();
        let next = used.take_while(|(at, id)| usize::from(id.0) == *at).count();
        let next = u16::try_from(next).map_err(|_| io::Error::other("65536 paths are in use"))?;
        Ok(PathId(next))
    }
}

fn severed(path: PathId, problem: Option<Problem>, data: UserData) -> GuestEvent {
    GuestEvent::ConnectionSevered { path, problem, data }
}

/// Readable when there may be an event: for a program's own epoll. Call [`Guest::prepare_wait`] before.
impl AsFd for Guest {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiter.as_fd()
    }
}

impl Guest {
    /// Prepares for waiting elsewhere. True if there is nothing to tell: then the descriptor becomes readable
    /// when there may be.
    pub fn prepare_wait(&mut self) -> bool {
        self.active.is_empty() && self.connections.is_empty() && self.waiter.prepare_wait()
    }
}

impl Served {
    fn member(&self) -> &dyn Member {
        match self {
            Served::Guest(guest) => &**guest,
            Served::Path(path, _) => &**path,
        }
    }

    fn member_mut(&mut self) -> &mut dyn Member {
        match self {
            Served::Guest(guest) => &mut **guest,
            Served::Path(path, _) => &mut **path,
        }
    }
}

impl Member for Served {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        self.member().doorbells(add);
    }

    fn hear(&mut self, index: usize) -> bool {
        self.member_mut().hear(index)
    }

    fn is_ready(&mut self) -> bool {
        self.member_mut().is_ready()
    }

    fn sleep(&mut self) {
        self.member_mut().sleep();
    }

    fn wake(&mut self) {
        self.member_mut().wake();
    }

    fn tidy(&mut self) -> bool {
        self.member_mut().tidy()
    }

    fn poll(&mut self, now_ns: u64) -> Option<u64> {
        self.member_mut().poll(now_ns)
    }

    fn count(&mut self, looks: u64, spinning_ns: u64) {
        self.member_mut().count(looks, spinning_ns);
    }
}
