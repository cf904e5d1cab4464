//! Paths to other members are made when they are needed, and replaced when they break.

use fabric::control::{Kind, Pending, Target};
use fabric::path::{END_DATA_BYTES, Lack, Shape};
use net::lan::counters::{Counter, Counters};
use net::lan::link::{Frame, Link, Urgency};
use net::lan::offload::Offload;
use net::lan::table::{MEMBERS_MAX, Member};
use net::lan::waiting::WaitingFrames;
use os::processor::now_ns;

use super::links::PeerLink;
use super::{Mesh, RETRY_NS};
use crate::guest::{ConnectError, Connecting, PENDING_PER_CALL_MAX};
use crate::lan::churn::Asked;
use crate::lan::error::{SendFrameError, TrySendFrameError};
use crate::options::PathOptions;
use crate::path::Path;
use crate::waiter::Key;

/// Frames that wait for the path to one member.
const WAITING_MAX: usize = 16;

/// Bytes that may be on their way to one member.
const WINDOW_BYTES: usize = 1 << 20;

/// Bytes of copies that may be on their way to a member that captures: more, because what does not fit is lost. All buffers of
/// the path can be full pages.
const CAPTURE_WINDOW_BYTES: usize = 16 << 20;

/// Bytes of copies longer than a page: frames of 64 KiB with what goes with them.
const CAPTURE_ANNOUNCED_BYTES: u64 = 32 << 20;

/// Why a path is refused or ended: nothing to say to the other side's user.
const NO_DATA: [u8; END_DATA_BYTES] = [0; END_DATA_BYTES];

/// The state of the paths to other members.
pub(super) struct Peers {
    /// By the numbers of members.
    states: Vec<PeerState>,
    /// Paths that each has asked for lately, by its number.
    asked: Vec<Asked>,
    /// Paths that members have asked for, and that are being accepted: one of each.
    accepting: Vec<Accepting>,
    counters: Counters,
}

/// The state of the path to another member.
#[derive(Debug, Default)]
enum PeerState {
    /// There is no path.
    #[default]
    Disconnected,
    /// No path could be made, perhaps for something that this process lacks: leave it alone until then.
    Failed { retry_ns: u64, lack: Option<Lack> },
    /// A path was asked for, by us or, if there is nothing of ours, by the member, and frames wait for it.
    Connecting(Option<Box<Connecting>>, WaitingFrames<Offload, WAITING_MAX>),
    /// There is a path.
    Connected(Key),
}

/// A path that a member has asked for, and that is being accepted.
#[derive(Debug)]
struct Accepting {
    number: usize,
    member: Member,
    connecting: Box<Connecting>,
}

impl Peers {
    pub(super) fn new(counters: Counters) -> Peers {
        Peers {
            states: (0..MEMBERS_MAX).map(|_| PeerState::Disconnected).collect(),
            asked: vec![Asked::default(); MEMBERS_MAX],
            accepting: Vec::new(),
            counters,
        }
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(super) fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// The link over which a member is reached.
    #[inline(always)]
    pub(super) fn key(&self, number: usize) -> Option<Key> {
        match self.states.get(number)? {
            PeerState::Connected(key) => Some(*key),
            _ => None,
        }
    }

    /// Returns true if a path to a member is being made.
    pub(super) fn is_connecting(&self, number: usize) -> bool {
        matches!(self.states[number], PeerState::Connecting(..))
    }

    /// Returns true if a path is being made for which no more frames may wait.
    pub(super) fn is_full(&self, number: usize) -> bool {
        match &self.states[number] {
            PeerState::Connecting(_, waiting) => waiting.is_full(),
            _ => false,
        }
    }

    /// Returns true if there is neither a path to a member nor a request for one.
    fn is_apart(&self, number: usize) -> bool {
        matches!(self.states[number], PeerState::Disconnected | PeerState::Failed { .. })
    }

    /// The links over which members are reached.
    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        (0..MEMBERS_MAX).filter_map(|number| self.key(number))
    }

    /// Takes the link of a member out, or takes the request for one back: then frames that waited are lost.
    pub(super) fn detach(&mut self, number: usize) -> Option<Key> {
        self.replace(number, PeerState::Disconnected)
    }

    fn replace(&mut self, number: usize, state: PeerState) -> Option<Key> {
        match std::mem::replace(&mut self.states[number], state) {
            PeerState::Connected(key) => Some(key),
            PeerState::Connecting(_, waiting) => {
                self.counters.add(Counter::Lost, waiting.len() as u64);
                None
            }
            PeerState::Disconnected | PeerState::Failed { .. } => None,
        }
    }

    /// No path to a member could be made: frames that wait for it are lost.
    fn fail(&mut self, number: usize, lack: Option<Lack>) {
        self.counters.add(Counter::PathsFailed, 1);
        // A path that is there goes on: without a state nobody would end it.
        if self.key(number).is_none() {
            self.replace(number, PeerState::Failed { retry_ns: now_ns() + RETRY_NS, lack });
        }
    }
}

impl Mesh {
    /// Asks for paths to all whose frames are captured: a member that sends its first frame has one by then.
    pub(super) fn connect_to_all(&mut self) {
        let members: Vec<usize> = self.view.takers().map(|(number, _)| number).collect();
        for number in members {
            if let PeerState::Disconnected = self.peers.states[number] {
                // It makes the path with its first frame then.
                let _ = self.connect(number);
            }
        }
    }

    /// Asks for a path to a member, unless there is one, or a request. What fails is tried again with the next frame.
    pub(super) fn reconnect(&mut self, number: usize) {
        if self.peers.is_apart(number) {
            let _ = self.connect(number);
        }
    }

    /// Keeps a frame until there is a path, which is asked for if it was not.
    pub(super) fn send_later(
        &mut self,
        number: usize,
        frame: Frame<'_>,
    ) -> Result<(), TrySendFrameError> {
        if self.peers.is_apart(number) {
            self.connect(number)?;
        }
        let PeerState::Connecting(_, waiting) = &mut self.peers.states[number] else {
            return Err(TrySendFrameError::Full);
        };
        if !waiting.push_copy(frame.offload, frame.bytes) {
            self.outbound.counters_mut().add(Counter::Full, 1);
            return Err(TrySendFrameError::Full);
        }
        Ok(())
    }

    /// Asks for a path to a member.
    fn connect(&mut self, number: usize) -> Result<(), TrySendFrameError> {
        let Some(member) = self.view.get(number) else { return Err(TrySendFrameError::Full) };
        let name = member.name;
        let failed = |lack: Option<Lack>| {
            let unreachable = SendFrameError::Unreachable(name);
            Err(lack.map_or(unreachable, SendFrameError::Lacking).into())
        };
        if let PeerState::Failed { retry_ns, lack } = self.peers.states[number]
            && now_ns() < retry_ns
        {
            return failed(lack);
        }
        // The member was first.
        if self.is_accepting(number) {
            self.peers.states[number] = PeerState::Connecting(None, WaitingFrames::default());
            return Ok(());
        }
        let options = path_options(member.captures);
        match self.guest().start_connecting_to(Target::Guest(name), &options) {
            Ok(connecting) => {
                let waiting = WaitingFrames::default();
                self.peers.states[number] =
                    PeerState::Connecting(Some(Box::new(connecting)), waiting);
                Ok(())
            }
            Err(error) => {
                let lack = lack_of(&error);
                self.peers.fail(number, lack);
                failed(lack)
            }
        }
    }

    /// Frames that wait for a path.
    pub(crate) fn waiting_frames(&self) -> usize {
        let waiting = self.peers.states.iter().map(|state| match state {
            PeerState::Connecting(_, waiting) => waiting.len(),
            _ => 0,
        });
        waiting.sum()
    }

    /// Does what the guest has news of: members that want a path, paths that were asked for, a new host.
    pub(crate) fn serve_guest(&mut self) {
        self.refresh();
        // Each takes descriptors and memory. What is left is news still.
        for _ in 0..PENDING_PER_CALL_MAX {
            let Some(pending) = self.guest().pending() else { break };
            // If there is a new host, it has said before who is a member there.
            self.follow_host();
            self.refresh();
            self.take_pending(pending);
        }
        for number in 0..MEMBERS_MAX {
            self.take_complete(number);
        }
        self.take_accepted();
        self.follow_host();
        self.settle();
        if let Some(due_ns) = self.following.due_ns()
            && self.guest().is_attached()
        {
            self.guest().remind(due_ns);
        }
    }

    /// A member wants a path.
    fn take_pending(&mut self, pending: Pending) {
        let is_fit = pending.kind == Kind::LAN && pending.shape == Shape::SIMPLE;
        let known = self.view.find_name(pending.from);
        // Nothing goes between two that capture.
        let is_fit = |(number, member): &(usize, &Member)| {
            is_fit && *number != self.view.number() && !(member.captures && self.own().captures)
        };
        let Some((number, member)) = known.filter(is_fit) else {
            return self.guest().refuse(pending, NO_DATA);
        };
        let member = member.clone();
        let options = path_options(member.captures);
        // If both ask at once, the path is kept that the member with the lower number has asked for.
        if let PeerState::Connecting(Some(_), _) = self.peers.states[number]
            && self.view.number() < number
        {
            return self.guest().refuse(pending, NO_DATA);
        }
        // A path that we want, too, is no other's doing.
        if !self.peers.is_connecting(number)
            && !self.peers.asked[number].allows(now_ns(), member.life)
        {
            self.peers.counters.add(Counter::PathsRefused, 1);
            return self.guest().refuse(pending, NO_DATA);
        }
        match self.guest().start_accepting(pending, &options) {
            Ok(connecting) => {
                // What we asked for before is taken back, and so is what it asked for before.
                if let PeerState::Connecting(ours, _) = &mut self.peers.states[number] {
                    *ours = None;
                }
                self.peers.accepting.retain(|other| other.number != number);
                let connecting = Box::new(connecting);
                self.peers.accepting.push(Accepting { number, member, connecting });
            }
            Err(_) => self.peers.counters.add(Counter::PathsFailed, 1),
        }
    }

    /// Takes the path that was asked for, if it is there.
    fn take_complete(&mut self, number: usize) {
        let PeerState::Connecting(ours, _) = &mut self.peers.states[number] else { return };
        let Some(mut connecting) = ours.take() else { return };
        match self.guest().try_complete(&mut connecting) {
            Ok(None) => self.ask_on(number, connecting),
            Ok(Some(path)) => self.join(number, path, None),
            Err(error) => {
                // It refuses because it has asked too, and that path is kept. The host has passed its request on before
                // the refusal, but it may not have had its turn here.
                let from = self.view.get(number).map(|member| member.name);
                let pending = from.and_then(|from| self.guest().pending_from(from, Kind::LAN));
                if let Some(pending) = pending {
                    self.take_pending(pending);
                }
                if !self.is_accepting(number) && self.peers.is_connecting(number) {
                    self.peers.fail(number, lack_of(&error));
                }
            }
        }
    }

    fn ask_on(&mut self, number: usize, connecting: Box<Connecting>) {
        if let PeerState::Connecting(ours, _) = &mut self.peers.states[number] {
            *ours = Some(connecting);
        }
    }

    /// Takes paths that members have asked for, as far as they are there.
    fn take_accepted(&mut self) {
        for mut accepting in std::mem::take(&mut self.peers.accepting) {
            let number = accepting.number;
            match self.guest().try_complete(&mut accepting.connecting) {
                Ok(None) => self.peers.accepting.push(accepting),
                Ok(Some(path)) => self.join(number, path, Some(accepting.member)),
                // Frames that waited for this path are lost.
                Err(error)
                    if matches!(self.peers.states[number], PeerState::Connecting(None, _)) =>
                {
                    self.peers.fail(number, lack_of(&error));
                }
                Err(_) => self.peers.counters.add(Counter::PathsFailed, 1),
            }
        }
    }

    /// Returns true if a path is being accepted that the member has asked for which has this number now.
    fn is_accepting(&self, number: usize) -> bool {
        let mut accepting = self.peers.accepting.iter();
        accepting.any(|other| other.number == number && self.view.is_there(number, &other.member))
    }

    /// There is a path to a member: frames that waited for it go. If the member was accepted and has left meanwhile, what it
    /// has sent is still received.
    fn join(&mut self, number: usize, path: Path, accepted: Option<Member>) {
        let left = accepted.filter(|accepted| !self.view.is_there(number, accepted));
        let has_left = left.is_some();
        let found = self.view.get(number).filter(|member| member.name == path.peer());
        let Some(peer) = left.or_else(|| found.cloned()) else {
            return self.peers.fail(number, None);
        };
        self.waiting.note_room();
        let (halves, membership, _) = path.into_parts();
        let mut link = Link::new(halves, peer, self.frame_bytes_max());
        self.begin_copies(number, &mut link);
        self.end_audience();
        let key = match self.links.add(PeerLink::new(link, number, membership)) {
            Ok(key) => key,
            Err(error) => return self.peers.fail(number, Some(Lack::of(&error))),
        };
        self.peers.counters.add(Counter::PathsMade, 1);
        if has_left {
            // Its number may be another's. Frames that waited for this path alone have none.
            if let PeerState::Connecting(None, _) = self.peers.states[number] {
                self.disconnect(number);
            }
            return self.drain(key, number);
        }
        match std::mem::replace(&mut self.peers.states[number], PeerState::Connected(key)) {
            // The member has asked again: what it sent over the old path is still received.
            PeerState::Connected(old) => self.drain(old, number),
            PeerState::Connecting(_, mut waiting) => {
                while let Some((offload, bytes)) = waiting.pop() {
                    let frame = Frame { offload, bytes: &bytes };
                    if self.send_over(key, frame, Urgency::Now).is_err() {
                        self.peers.counters.add(Counter::Lost, 1);
                    }
                }
            }
            PeerState::Disconnected | PeerState::Failed { .. } => {}
        }
    }
}

/// Returns the options of a path to a member of a LAN.
pub(crate) fn path_options(captures: bool) -> PathOptions {
    let options = PathOptions { kind: Kind::LAN, ..PathOptions::DEFAULT };
    match captures {
        true => PathOptions {
            window_bytes: CAPTURE_WINDOW_BYTES,
            announced_bytes: CAPTURE_ANNOUNCED_BYTES,
            ..options
        },
        false => PathOptions { window_bytes: WINDOW_BYTES, ..options },
    }
}

/// Returns the resource that this process lacks, if a path was not made for want of it.
fn lack_of(error: &ConnectError) -> Option<Lack> {
    match error {
        ConnectError::Resources(error) => Some(Lack::of(error)),
        _ => None,
    }
}
