//! A client's side of a machine: its sockets, and the path to the machine that they share.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fabric::control::{Kind, Problem, UserData};
use fabric::name::Name;
use fabric::path::{Reason, SendError, Severed, Shape};
use net::tcpip::ConnectionId;
use net::tcpip::service::{self, CALLS_AT_END_MAX, CLOSE_NS_MAX, Left};
use os::event::Event;
use os::processor::now_ns;

use super::engine::Opening;
use super::failure::{failed, lacking};
use super::lans::{LansSleeper, Rang};
use super::own::Worked;
use crate::guest::{ConnectError, Connecting, Guest, PENDING_PER_CALL_MAX};
use crate::members::Served;
use crate::options::PathOptions;
use crate::path::Path;
use crate::waiter::{Key, Looked, Waiter};
use crate::waiting::after;

/// The interval between two attempts for which memory or descriptors were lacking.
const RETRY: Duration = Duration::from_millis(1);

/// How long a path to another client may take to be made. Bytes go over the machine meanwhile.
const MEETING_MAX: Duration = Duration::from_secs(5);

/// Bytes that are given in one piece to a program that takes what has come where it lies: they are copied for that.
const PIECE_BYTES_MAX: usize = 64 << 10;

/// Rounds of taking in what has come in one verb that does not wait.
const ROUNDS_MAX: usize = 64;

/// Calls in one such verb that take in what other clients had sent before an end. The rest is taken in by the next one.
const LOOKS_MAX: usize = 16;

pub(super) struct Client {
    pub(super) net: service::Client,
    machine: Name,
    /// How its paths to other clients of the machine are made.
    options: PathOptions,
    /// The guest, the path as long as there is one, and those to other clients.
    waiter: Waiter<Served>,
    guest: Key,
    path: Option<Key>,
    meetings: Vec<Meeting>,
    peers: Vec<Peer>,
    sleeper: Arc<LansSleeper>,
    /// Set after a sleep was prepared, here or elsewhere, until it is known whose doorbells have rung.
    has_slept: bool,
    /// When what failed for want of memory or descriptors is tried again: nobody says when they are there.
    retry_ns: Option<u64>,
    /// What has come, put together for a program that takes it where it lies.
    scratch: Vec<u8>,
}

/// A path to another client of the machine that is being made, until that time at most.
struct Meeting {
    /// What the machine calls the other client and us.
    at: u32,
    /// None as long as the other client, which is to ask, has not asked.
    connecting: Option<Connecting>,
    until_ns: u64,
}

impl Meeting {
    fn new(at: u32, connecting: Option<Connecting>) -> Meeting {
        Meeting { at, connecting, until_ns: after(MEETING_MAX) }
    }
}

/// Another client of the machine, to which there is a path.
struct Peer {
    at: u32,
    path: Key,
    /// When the path is given up, because it has had no room for so long for what is to be said of a connection that is closed.
    closes_by: Option<u64>,
}

/// The end of a path that this side wants no more.
const GIVEN_UP: Left = Left::Severed(Severed { reason: Reason::Ours, data: [0; 16] });

/// When the path to another client is given up that has no room since then for what is to be said of connections that are closed.
fn closes_by(since: u64) -> u64 {
    since.saturating_add(CLOSE_NS_MAX)
}

/// There is no path to another client: for good, or for want of something that may be there later.
fn not_met(net: &mut service::Client, at: u32, error: &ConnectError) {
    let is_lack = match error {
        ConnectError::Resources(_) | ConnectError::HostBehind | ConnectError::HostGone => true,
        // The host may have begun anew, and not all of its guests are back.
        ConnectError::Refused { problem, .. } => matches!(
            problem,
            Problem::NotAttached
                | Problem::NotAnswering
                | Problem::OwnPathLimit
                | Problem::TargetPathLimit
                | Problem::StorageLimit
                | Problem::HostResources
                | Problem::Limit(_)
        ),
        _ => false,
    };
    match is_lack {
        true => net.put_off_peer(at),
        false => net.lose_peer(at),
    }
}

/// A pair of clients, as a request for its path names it.
fn of_pair(pair: u32) -> UserData {
    let mut data = UserData::default();
    data[..4].copy_from_slice(&pair.to_le_bytes());
    data
}

fn pair_of(data: UserData) -> u32 {
    u32::from_le_bytes([data[0], data[1], data[2], data[3]])
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("Client");
        fields.field("machine", &self.machine).field("sockets", &self.net.sockets());
        fields.finish_non_exhaustive()
    }
}

impl Client {
    /// A client with a path to its machine, which `interrupt` ends the sleep of, too.
    ///
    /// # Errors
    /// No descriptors or no memory left.
    pub(super) fn new(
        guest: Guest,
        machine: Name,
        path: Path,
        options: PathOptions,
        interrupt: &Event,
    ) -> io::Result<Client> {
        let mut waiter = Waiter::new(options.wait)?;
        waiter.add_interrupt(interrupt)?;
        let guest = waiter.add(Served::Guest(guest))?;
        let path = Some(waiter.add(Served::Path(path))?);
        let sleeper = Arc::new(LansSleeper::new(vec![Some(waiter.sleeper())])?);
        let net = service::Client::default();
        Ok(Client {
            net,
            machine,
            options,
            waiter,
            guest,
            path,
            meetings: Vec::new(),
            peers: Vec::new(),
            sleeper,
            has_slept: false,
            retry_ns: None,
            scratch: Vec::new(),
        })
    }

    /// The machine's name.
    pub(super) fn machine(&self) -> Name {
        self.machine
    }

    /// The guest that is the client.
    pub(super) fn guest(&self) -> &Guest {
        match self.waiter.get(self.guest) {
            Some(Served::Guest(guest)) => guest,
            _ => unreachable!("the client was made with its guest"),
        }
    }

    /// Asks for a path to the machine that is there now.
    pub(super) fn start_connecting(
        &self,
        options: &PathOptions,
    ) -> Result<Connecting, ConnectError> {
        self.guest().start_connecting(self.machine.as_str(), options)
    }

    /// Uses another path after the last has ended: to this machine or to one in its place. The sockets of before have ended.
    pub(super) fn attach_again(&mut self, path: Path) -> io::Result<()> {
        self.end_path();
        // What had come before stays readable.
        while self.net.next_to_look_at().is_some() {
            self.look_behind_ends();
        }
        self.path = Some(self.waiter.add(Served::Path(path))?);
        self.net.attach_again();
        Ok(())
    }

    /// Checks that there is a machine.
    ///
    /// # Errors
    /// `ConnectionAborted`, with the reason.
    pub(super) fn check_there(&self) -> io::Result<()> {
        let Some(left) = self.net.gone() else { return Ok(()) };
        let why = match left {
            Left::Severed(severed) => severed.to_string(),
            Left::Fault(fault) => format!("it sent {fault}"),
        };
        let machine = self.machine;
        let problem = format!("the TCPIP machine {machine} is gone: {why}");
        Err(io::Error::new(io::ErrorKind::ConnectionAborted, problem))
    }

    /// Checks that the machine knows a socket: that it is there, and not another in the place of the one that the socket was of.
    ///
    /// # Errors
    /// `ConnectionAborted`, with the reason.
    pub(super) fn check_known(&self, id: ConnectionId) -> io::Result<()> {
        self.check_there()?;
        match self.net.is_lost(id) {
            true => Err(failed(service::Failure::MachineGone)),
            false => Ok(()),
        }
    }

    /// The client's state, and the path, which is awake from now on.
    fn split(&mut self) -> Option<(&mut service::Client, &mut Path)> {
        let Client { net, waiter, path, .. } = self;
        match waiter.get_mut((*path)?) {
            Some(Served::Path(path)) => Some((net, path)),
            _ => None,
        }
    }

    /// Says what there is to say, and notes what has become of the path.
    fn flush(&mut self) {
        self.flush_to_peers();
        if !self.net.has_to_say() && !self.net.is_blocked() {
            return;
        }
        let Some((net, path)) = self.split() else { return };
        let flushed = net.flush(path.sender().raw());
        let mut is_short = false;
        let wants_room = match flushed {
            Ok(is_all) => !is_all || net.is_blocked(),
            Err(SendError::Severed(severed)) => {
                net.lose_path(severed, path.receiver().raw());
                false
            }
            Err(_) => {
                is_short = true;
                false
            }
        };
        path.sender().set_wants_room(wants_room);
        if is_short {
            self.retry_ns.get_or_insert_with(|| after(RETRY));
        }
    }

    /// Takes in what has come at those who are awake. The others have nothing, or it is found within some calls: they have rung.
    pub(super) fn pump(&mut self, is_wanted: impl Fn() -> bool) -> io::Result<Worked> {
        let mut worked = Worked::default();
        if self.retry_ns.is_some_and(|retry| retry <= now_ns()) {
            self.retry_ns = None;
            self.net.retry();
            worked.has_worked = true;
        }
        // A verb may have found that the machine is gone.
        if self.net.gone().is_some() {
            self.end_path();
        }
        for _ in 0..ROUNDS_MAX {
            let found = match std::mem::take(&mut self.has_slept) {
                true => self.waiter.try_next()?.map(|(key, _)| key),
                false => self.waiter.try_next_busy()?,
            };
            let Some(key) = found else {
                worked.has_more = false;
                break;
            };
            self.take_in(key);
            (worked.has_worked, worked.has_more) = (true, true);
            if is_wanted() {
                break;
            }
        }
        self.look_behind_ends();
        if self.meeting_until().is_some_and(|until| until <= now_ns()) {
            self.complete();
        }
        if self.closes_by().is_some_and(|until| until <= now_ns()) {
            self.give_up_peers();
        }
        self.flush();
        Ok(worked)
    }

    /// Takes in some of what has come at the guest, from the machine or from another client.
    fn take_in(&mut self, key: Key) {
        if key == self.guest {
            self.serve_guest();
            self.complete();
        } else if self.path == Some(key) {
            self.take_in_from_machine();
            let Client { net, meetings, .. } = self;
            // Those that the machine has called off.
            meetings.retain(|meeting| net.is_meeting(meeting.at));
            self.begin_to_meet();
        } else if let Some(index) = self.peers.iter().position(|peer| peer.path == key) {
            self.take_in_from_peer(index);
        }
    }

    /// Takes in some of what other clients had sent before the machine said that a connection has ended, or ended itself.
    fn look_behind_ends(&mut self) {
        for _ in 0..LOOKS_MAX {
            let Some(at) = self.net.next_to_look_at() else { break };
            let looked = match self.split_peer(at) {
                Some((net, path)) => net.look_at(at, path.receiver().raw()),
                None => Ok(false),
            };
            let ended = match looked {
                Ok(true) => continue,
                // Without the machine there are no paths to its clients.
                Ok(false) => self.net.gone().map(|_| GIVEN_UP),
                Err(left) => Some(left),
            };
            self.net.has_looked_at(at);
            let index = self.peers.iter().position(|peer| peer.at == at);
            if let (Some(left), Some(index)) = (ended, index) {
                self.end_peer(index, left);
            }
        }
    }

    /// Asks for paths to the clients that the machine has named, and waits for those that it is to be asked for.
    fn begin_to_meet(&mut self) {
        while let Some(at) = self.net.next_to_expect() {
            self.meetings.push(Meeting::new(at, None));
        }
        while let Some((at, name)) = self.net.next_to_meet() {
            let options = PathOptions { kind: Kind::INTRODUCED, data: of_pair(at), ..self.options };
            match self.guest().start_connecting(name.as_str(), &options) {
                Ok(connecting) => self.meetings.push(Meeting::new(at, Some(connecting))),
                // Then they talk over the machine.
                Err(error) => not_met(&mut self.net, at, &error),
            }
        }
    }

    /// Takes in the paths to other clients that are there now.
    fn complete(&mut self) {
        let Client { net, waiter, guest, meetings, peers, .. } = self;
        let mut completed = Vec::new();
        if let Some(Served::Guest(guest)) = waiter.get_mut(*guest) {
            let now = now_ns();
            meetings.retain_mut(|Meeting { at, connecting, until_ns }| {
                if !net.is_meeting(*at) {
                    return false;
                }
                let completed_now =
                    connecting.as_mut().map_or(Ok(None), |it| guest.try_complete(it));
                match completed_now {
                    Ok(None) if now < *until_ns => return true,
                    Ok(Some(path)) => completed.push((*at, path)),
                    // The other one may be busy.
                    Ok(None) => net.put_off_peer(*at),
                    Err(error) => not_met(net, *at, &error),
                }
                false
            });
            // An answer of the machine's, or of the one in its place, is for whoever attaches again, who has been told: until it is taken it keeps nobody
            // else from sleeping.
            guest.leave_others(meetings.iter().filter_map(|meeting| meeting.connecting.as_ref()));
        }
        for (at, path) in completed {
            match waiter.add(Served::Path(path)) {
                Ok(path) if net.meet(at) => peers.push(Peer { at, path, closes_by: None }),
                // It was called off meanwhile.
                Ok(path) => drop(waiter.remove(path)),
                Err(_) => net.put_off_peer(at),
            }
        }
    }

    /// The path to another client.
    fn split_peer(&mut self, at: u32) -> Option<(&mut service::Client, &mut Path)> {
        let Client { net, waiter, peers, .. } = self;
        let peer = peers.iter().find(|peer| peer.at == at)?;
        match waiter.get_mut(peer.path) {
            Some(Served::Path(path)) => Some((net, path)),
            _ => None,
        }
    }

    /// Takes in some of what another client has sent.
    fn take_in_from_peer(&mut self, index: usize) {
        let at = self.peers[index].at;
        let Some((net, path)) = self.split_peer(at) else { return };
        let (senders, receivers) = path.halves();
        let taken = net.take_in_from(at, receivers[0].raw());
        if senders[0].wants_room() && senders[0].raw().is_ready() {
            senders[0].set_wants_room(false);
            net.has_room_at(at);
        }
        if let Err(left) = taken {
            self.end_peer(index, left);
        }
    }

    /// Says what is to be said to other clients.
    fn flush_to_peers(&mut self) {
        let mut last = None;
        while let Some(at) = self.net.next_to_flush(last) {
            last = Some(at);
            let Some((net, path)) = self.split_peer(at) else { continue };
            let (senders, receivers) = path.halves();
            net.give_back_at(at, receivers[0].raw());
            let flushed = net.flush_to(at, senders[0].raw());
            let since = match flushed {
                Ok(false) => net.leaving_since(at, now_ns()),
                Ok(true) => None,
                // What is lacking here is not counted against the peer.
                Err(SendError::Lacking(_)) => {
                    net.begin_leaving_anew(at);
                    None
                }
                Err(_) => None,
            };
            senders[0].set_wants_room(flushed.is_ok() && net.is_waiting_at(at));
            match flushed {
                Ok(_) => {}
                Err(SendError::Severed(severed)) => self.end_path_to(at, severed),
                Err(_) => drop(self.retry_ns.get_or_insert_with(|| after(RETRY))),
            }
            if let Some(peer) = self.peers.iter_mut().find(|peer| peer.at == at) {
                peer.closes_by = since.map(closes_by);
            }
        }
    }

    /// When the first path is given up that has no room for what is to be said of connections that are closed.
    fn closes_by(&self) -> Option<u64> {
        self.peers.iter().filter_map(|peer| peer.closes_by).min()
    }

    /// Gives up the paths to clients that have not taken the last of a connection for so long: the machine is to hear of the closes.
    fn give_up_peers(&mut self) {
        let now = now_ns();
        for peer in &mut self.peers {
            // A verb may have told it all since.
            if peer.closes_by.is_some() {
                let since = self.net.leaving_since(peer.at, now);
                peer.closes_by = since.map(closes_by);
            }
        }
        let is_over = |peer: &Peer| peer.closes_by.is_some_and(|until| until <= now);
        while let Some(index) = self.peers.iter().position(is_over) {
            self.end_peer(index, GIVEN_UP);
        }
    }

    /// The path to another client has ended, which is learned by sending: what had come before is taken in first.
    fn end_path_to(&mut self, at: u32, severed: Severed) {
        let mut ended = Left::Severed(severed);
        for _ in 0..CALLS_AT_END_MAX {
            let Some((net, path)) = self.split_peer(at) else { return };
            match net.take_in_from(at, path.receiver().raw()) {
                Ok(true) => {}
                // The peer may have ended its half alone.
                Ok(false) => break,
                Err(left) => {
                    ended = left;
                    break;
                }
            }
        }
        if let Some(index) = self.peers.iter().position(|peer| peer.at == at) {
            self.end_peer(index, ended);
        }
    }

    /// The path to another client has ended, or is to end. Its pages stay readable.
    fn end_peer(&mut self, index: usize, left: Left) {
        let Peer { at, path, .. } = self.peers.swap_remove(index);
        self.net.lose_peer(at);
        if let Some(Served::Path(path)) = self.waiter.remove(path) {
            match left {
                Left::Severed(_) => path.close(),
                Left::Fault(fault) => path.close_with(fault.text()),
            }
        }
    }

    /// Takes in some of what the machine has sent.
    fn take_in_from_machine(&mut self) {
        let Some((net, path)) = self.split() else { return };
        let (senders, receivers) = path.halves();
        net.take_in(receivers[0].raw());
        if senders[0].wants_room() && senders[0].raw().is_ready() {
            senders[0].set_wants_room(false);
            net.has_room();
        }
        if net.gone().is_some() {
            self.end_path();
        }
    }

    /// The path has ended. Its pages stay readable. The paths to other clients end once what has come over them is taken in.
    fn end_path(&mut self) {
        if let Some(path) = self.path.take() {
            self.waiter.remove(path);
        }
        // Who is met is met at a machine.
        for Meeting { at, .. } in self.meetings.drain(..) {
            self.net.lose_peer(at);
        }
    }

    /// Nobody connects to a client but other clients, of which the machine has told it.
    fn serve_guest(&mut self) {
        let Client { net, waiter, guest, meetings, options, .. } = self;
        let Some(Served::Guest(guest)) = waiter.get_mut(*guest) else { return };
        // What is left keeps the guest ready.
        for _ in 0..PENDING_PER_CALL_MAX {
            let Some(pending) = guest.pending() else { break };
            let is_path = pending.kind == Kind::INTRODUCED && pending.shape == Shape::SIMPLE;
            let at = pair_of(pending.data);
            let is_expected = is_path && net.expects(at, pending.from);
            let mut meetings = meetings.iter_mut().filter(|_| is_expected);
            let is_it = |meeting: &&mut Meeting| meeting.at == at && meeting.connecting.is_none();
            let Some(meeting) = meetings.find(is_it) else {
                guest.refuse(pending, UserData::default());
                continue;
            };
            match guest.start_accepting(pending, options) {
                Ok(connecting) => meeting.connecting = Some(connecting),
                Err(error) => not_met(net, at, &error),
            }
        }
    }

    pub(super) fn push(&mut self) -> Worked {
        self.flush();
        Worked { has_worked: false, has_more: false }
    }

    /// Nothing else is due by itself: all times are the machine's.
    pub(super) fn due(&self) -> Option<u64> {
        // What is left to be taken in behind an end is due at once: no doorbell tells of it.
        let look = self.net.next_to_look_at().map(|_| 0);
        let dues = [look, self.retry_ns, self.meeting_until(), self.closes_by()];
        dues.into_iter().flatten().min()
    }

    /// When the first path that is being made to another client is given up.
    fn meeting_until(&self) -> Option<u64> {
        self.meetings.iter().map(|meeting| meeting.until_ns).min()
    }

    pub(super) fn look(
        &mut self,
        deadline_ns: u64,
        is_wanted: impl Fn() -> bool,
    ) -> io::Result<Looked> {
        self.waiter.look(deadline_ns, is_wanted)
    }

    pub(super) fn prepare_sleep(&mut self) -> Option<u64> {
        self.has_slept = true;
        self.waiter.prepare_sleep()
    }

    pub(super) fn prepare_wait(&mut self) -> bool {
        self.has_slept = true;
        self.waiter.prepare_wait()
    }

    pub(super) fn sleeper(&self) -> &Arc<LansSleeper> {
        &self.sleeper
    }

    pub(super) fn heard(&mut self, rang: &Rang, slept_ns: u64) -> bool {
        self.has_slept = false;
        rang.of_first().is_some_and(|rang| self.waiter.heard(rang, slept_ns))
    }

    /// Asks the machine to open a socket.
    pub(super) fn open(
        &mut self,
        open: impl FnOnce(&mut service::Client) -> Option<ConnectionId>,
    ) -> io::Result<Opening> {
        self.check_there()?;
        let problem = "this client has as many sockets as a client can have";
        let no_room = || io::Error::new(io::ErrorKind::QuotaExceeded, problem);
        open(&mut self.net).map(Opening::Asked).ok_or_else(no_room)
    }

    pub(super) fn opened(&mut self, id: ConnectionId) -> Option<io::Result<SocketAddr>> {
        let opened = self.net.opened(id)?;
        Some(opened.map_err(|failure| self.explained(failure)))
    }

    /// What the machine says, or why it says nothing.
    fn explained(&self, failure: service::Failure) -> io::Error {
        match failure {
            service::Failure::MachineGone => {
                self.check_there().err().unwrap_or_else(|| failed(failure))
            }
            failure => failed(failure),
        }
    }

    pub(super) fn take_end(&mut self, id: ConnectionId) -> Option<io::Error> {
        let failure = self.net.take_end(id)?;
        Some(self.explained(failure))
    }

    pub(super) fn take_refused(&mut self, id: ConnectionId) -> Option<io::Error> {
        let failure = self.net.take_refused(id)?;
        Some(self.explained(failure))
    }

    pub(super) fn read(&mut self, id: ConnectionId, target: &mut [u8]) -> usize {
        let count = match self.net.is_direct(id) {
            true => 0,
            false => match self.split() {
                Some((net, path)) => net.read(id, target, Some(path.receiver().raw())),
                None => self.net.read(id, target, None),
            },
        };
        let Some(at) = self.net.source(id) else { return count };
        let target = &mut target[count..];
        let more = match self.split_peer(at) {
            Some((net, path)) => net.read_directly(id, target, Some(path.receiver().raw())),
            None => self.net.read_directly(id, target, None),
        };
        count + more
    }

    /// Copies as much as the machine takes. None if it takes nothing now.
    pub(super) fn write(&mut self, id: ConnectionId, source: &[u8]) -> Option<usize> {
        let mut count = 0;
        while count < source.len() {
            let left = &source[count..];
            let route = self.net.route(id);
            let fill = |room: &mut [u8]| room.copy_from_slice(&left[..room.len()]);
            match self.write_once(id, left.len(), fill) {
                // A path to another client that has ended: what has not moved goes over the machine.
                0 if route.is_some() && self.net.route(id) != route => {}
                0 => break,
                sent => count += sent,
            }
        }
        (count > 0).then_some(count)
    }

    /// Sends bytes that `fill` makes: how many went into one message, or none.
    fn write_once(
        &mut self,
        id: ConnectionId,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> usize {
        let route = self.net.route(id);
        let way = match route {
            Some(at) => self.split_peer(at),
            None => self.split(),
        };
        let Some((net, path)) = way else {
            self.net.break_moved(id);
            return 0;
        };
        let sender = path.sender();
        let sent = match route {
            Some(_) => net.write_directly(id, bytes, sender.raw(), fill),
            None => net.write_with(id, bytes, sender.raw(), fill),
        };
        match sent {
            Ok(sent) => sent,
            Err(SendError::Severed(severed)) => {
                match route {
                    Some(at) => self.end_path_to(at, severed),
                    None => net.lose_path(severed, path.receiver().raw()),
                }
                0
            }
            Err(SendError::Full | SendError::Quiesced) => {
                sender.set_wants_room(true);
                0
            }
            Err(_) => {
                self.retry_ns.get_or_insert_with(|| after(RETRY));
                0
            }
        }
    }

    pub(super) fn receive_with<R>(
        &mut self,
        id: ConnectionId,
        take: impl FnOnce(&[u8]) -> (usize, R),
    ) -> Option<R> {
        let waiting = self.net.waiting(id).min(PIECE_BYTES_MAX);
        if waiting == 0 {
            return None;
        }
        // Where it lies the machine can still write.
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(waiting, 0);
        let bytes = self.net.peek(id, &mut scratch);
        let (taken, result) = take(&scratch[..bytes]);
        self.scratch = scratch;
        self.skip(id, taken.min(bytes));
        Some(result)
    }

    /// Throws away the first bytes of what has come.
    fn skip(&mut self, id: ConnectionId, bytes: usize) {
        let over_machine = match self.net.source(id) {
            Some(_) => self.net.waiting_over_machine(id),
            None => bytes,
        };
        let first = bytes.min(over_machine);
        if first > 0 {
            match self.split() {
                Some((net, path)) => net.skip(id, first, Some(path.receiver().raw())),
                None => self.net.skip(id, first, None),
            }
        }
        let left = bytes - first;
        let Some(at) = self.net.source(id).filter(|_| left > 0) else { return };
        match self.split_peer(at) {
            Some((net, path)) => net.skip_directly(id, left, Some(path.receiver().raw())),
            None => self.net.skip_directly(id, left, None),
        }
    }

    pub(super) fn send_with<R>(
        &mut self,
        id: ConnectionId,
        fill: impl FnOnce(&mut [u8]) -> (usize, R),
    ) -> Option<R> {
        if let Some(at) = self.net.route(id) {
            match self.split_peer(at).map(|(_, path)| path.sender().raw().ended()) {
                Some(None) => {}
                Some(Some(severed)) => self.end_path_to(at, severed),
                None => self.net.break_moved(id),
            }
        }
        let room = self.net.room(id);
        if room == 0 {
            return None;
        }
        // How much `fill` has to send is known when it has filled.
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(room, 0);
        let (filled, result) = fill(&mut scratch);
        let bytes = &scratch[..filled.min(room)];
        if let Some(at) = self.net.route(id) {
            if let Some((net, path)) = self.split_peer(at) {
                let sender = path.sender();
                // What a path that has ended since does not take is kept, and lost with it: that is a reset.
                net.write_all_directly(id, bytes, sender.raw());
                sender.set_wants_room(net.is_waiting_at(at));
            }
        } else if let Some((net, path)) = self.split() {
            let sender = path.sender();
            let written = net.write_all(id, bytes, sender.raw());
            sender.set_wants_room(net.is_blocked());
            if let Err(SendError::Severed(severed)) = written {
                net.lose_path(severed, path.receiver().raw());
            }
        }
        self.scratch = scratch;
        Some(result)
    }

    pub(super) fn close(&mut self, id: ConnectionId) {
        match self.split() {
            Some((net, path)) => net.close(id, Some(path.receiver().raw())),
            None => self.net.close(id, None),
        }
    }

    pub(super) fn stop_listening(&mut self, id: ConnectionId) {
        match self.split() {
            Some((net, path)) => net.stop_listening(id, Some(path.receiver().raw())),
            None => self.net.stop_listening(id, None),
        }
    }

    /// Closes what the machine was asked for and has not answered.
    pub(super) fn give_up_opening(&mut self, id: ConnectionId) {
        match self.split() {
            Some((net, path)) => net.give_up_opening(id, Some(path.receiver().raw())),
            None => self.net.give_up_opening(id, None),
        }
    }

    /// Sends a datagram. None if there is no room for it now.
    pub(super) fn send_to(
        &mut self,
        id: ConnectionId,
        to: SocketAddr,
        data: &[u8],
    ) -> Option<io::Result<()>> {
        if let Err(error) = self.check_known(id) {
            return Some(Err(error));
        }
        let (net, path) = self.split()?;
        let sender = path.sender();
        match net.send_to(id, to, data, sender.raw()) {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(SendError::Full | SendError::Quiesced) => {
                sender.set_wants_room(true);
                None
            }
            Err(SendError::Lacking(lack)) => {
                self.retry_ns.get_or_insert_with(|| after(RETRY));
                Some(Err(lacking(lack)))
            }
            Err(SendError::Severed(severed)) => {
                net.lose_path(severed, path.receiver().raw());
                self.check_there().err().map(Err)
            }
            Err(error @ SendError::TooLong { .. }) => {
                Some(Err(io::Error::new(io::ErrorKind::InvalidInput, error)))
            }
        }
    }
}
