//! The paths of a member to the others: made when they are needed, replaced when they break.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use fabric::control::{Kind, LanJoined, Pending, Target};
use fabric::path::{END_DATA_BYTES, Lack, SendError, Sender, Severed, Shape};
use net::lan::audience::{Audience, Links};
use net::lan::capture::{self, Content, ReceivedRecord};
use net::lan::claim::{Claim, claim};
use net::lan::counters::{Counter, Counters};
use net::lan::frame::Mac;
#[cfg(feature = "tcpip")]
use net::lan::link::FrameInParts;
use net::lan::link::{Frame, FrameInPlace, Link, Received, ReceivedInPlace, Urgency};
use net::lan::offload::Offload;
use net::lan::table::{LentTable, MEMBERS_MAX, Member};
use os::doorbell::Listen;
use os::fork::ForkGuard;
use os::poller::wait_any;
use os::processor::now_ns;
use os::sync::pause;

use super::capturer::Capturer;
use super::churn::{AUDIENCE_NS, Asked};
use super::error::{SendFrameError, TrySendFrameError};
use super::following::Following;
use super::joining::Wish;
use crate::guest::{ConnectError, Connecting, Guest};
use crate::link::Membership;
use crate::options::PathOptions;
use crate::path::Path;
use crate::waiter::{self, Key, OneOf, Waiter};
use crate::waiting::{POLLS_PER_CLOCK, SPIN_NS_MAX, Wait, count_polls};

/// Frames that wait for the path to one member.
const WAITING_MAX: usize = 16;

/// How long a member is left alone to which no path could be made, or nothing could be lent.
pub(super) const RETRY_NS: u64 = 100_000_000;

/// Frames that are taken from one member before the next has its turn.
const FRAMES_PER_TURN: u32 = 64;

/// Bytes that may be on their way to one member.
const WINDOW_BYTES: usize = 1 << 20;

/// Bytes of copies that may be on their way to a member that captures: more, because what does not fit is lost. All buffers of
/// the path can be full pages.
const CAPTURE_WINDOW_BYTES: usize = 16 << 20;

/// Bytes of copies longer than a page: frames of 64 KiB with what goes with them.
const CAPTURE_ANNOUNCED_BYTES: u64 = 32 << 20;

/// Buffers of copies that one that captures may be behind before small copies go together.
const COPIES_ALONE_MAX: usize = fabric::queue::QUEUE_BUFFERS / 2;

/// How often a member that sends looks whether the path is there over which copies go.
const LOOK_NS: u64 = 1_000_000;

/// How often a member that waits for room looks whether the other is still in the address table.
const TABLE_LOOK_NS: u64 = 1_000_000_000;

/// Members from which on they are an audience: fewer get a copy each.
const AUDIENCE_MIN: usize = 3;

/// Looks at all links for one record, at most: what the first look finds was sent before the second.
const RECORD_LOOKS: usize = 3;

/// Frames in a row that are dropped for what they claim before a call returns.
const CLAIMS_PER_CALL_MAX: usize = 64;

/// IP addresses that a member had before, and that are remembered for what it sent from them.
const FORMER_MAX: usize = 8;

/// Requests for paths that one call takes.
const PENDING_PER_CALL_MAX: usize = 4;

/// Why a path is refused or ended: nothing to say to the other side's user.
const NO_DATA: [u8; END_DATA_BYTES] = [0; END_DATA_BYTES];

/// A member's paths, and its view of the LAN.
pub(super) struct Mesh {
    waiter: Waiter<Occupant>,
    guest: Key,
    pub(super) wish: Wish,
    pub(super) table: LentTable,
    changes: u64,
    /// The value of `changes` when each entry of the table last changed.
    changed_at: Vec<u64>,
    number: usize,
    frame_bytes_max: usize,
    own: Member,
    counters: Counters,
    /// By the numbers of members.
    peers: Vec<Standing>,
    /// How many paths each has asked for lately, by its number.
    asked: Vec<Asked>,
    /// Paths that members have asked for, and that are being accepted: one of each.
    accepting: Vec<Accepting>,
    /// Where the last frame went.
    last: Option<(Mac, Key)>,
    /// From whom frames are taken, and how many more before the next has its turn.
    current: Option<(Key, u32)>,
    /// Over which link the frame has come that is in its sender's page still.
    in_page: Option<Key>,
    /// Links of members that have left, and the numbers that these had: one of each number.
    leaving: Vec<(Key, usize)>,
    /// Links with frames that were held back.
    unflushed: Vec<Key>,
    /// Who gets frames to all without a tag, and how many audiences there have been.
    audience: Option<Audience>,
    pub(super) audiences: u32,
    /// When the next may begin: not at once after a member did not take the loan of its storage, nor after the one before,
    /// however often others come, go or ask for paths.
    pub(super) audience_retry_ns: u64,
    /// Who gets copies of what is sent.
    capturers: Vec<Capturer>,
    /// When to look for paths to them, if some have none.
    look_ns: u64,
    /// Links with records that were not given out, and until when all that was handed over before is among them, if this one
    /// captures.
    with_record: Vec<Key>,
    looked_ns: u64,
    wait: Wait,
    /// A forked child has none of the memory that all this stands for.
    guard: ForkGuard,
    pub(super) following: Following,
    /// The doorbells are to be heard before anything is looked at.
    has_slept: bool,
    /// They have rung since anything was looked at.
    has_heard: bool,
    /// There is room, or a path, for a frame that was given back.
    has_room: bool,
    /// Members whose paths have ended, once each, for a stack that has connections with them.
    #[cfg(feature = "tcpip")]
    parted: Vec<Member>,
}

/// How things stand with another member.
#[derive(Debug, Default)]
enum Standing {
    /// There is no path.
    #[default]
    Apart,
    /// No path could be made, perhaps for something that this process lacks: leave it alone until then.
    Failed { retry_ns: u64, lack: Option<Lack> },
    /// A path was asked for, by us or, if there is nothing of ours, by the member, and frames wait for it.
    Connecting(Option<Box<Connecting>>, VecDeque<(Offload, Vec<u8>)>),
    /// There is a path.
    Joined(Key),
}

/// A path that a member has asked for, and that is being accepted.
#[derive(Debug)]
struct Accepting {
    number: usize,
    member: Member,
    connecting: Box<Connecting>,
}

/// What the waiter serves.
#[derive(Debug)]
enum Occupant {
    Guest(Box<Guest>),
    Link(Box<Joint>),
}

/// A link, and what keeps it in the host's accounts.
#[derive(Debug)]
pub(super) struct Joint {
    link: Link,
    number: usize,
    /// A frame was given back for want of room.
    wants_room: bool,
    /// Something was pushed since it was last flushed.
    is_unflushed: bool,
    /// The member has left: the link ends once this many buffers were received over it, or none is there.
    ends_after: Option<u64>,
    /// Copies of frames that the member says it has lost, if this one captures.
    lost: u64,
    /// The time of its last record, and a record that was not given out yet.
    time_ns: u64,
    waiting: Option<FoundRecord>,
    /// IP addresses that the member had before, at this host or another: frames from there may be under way.
    former: Vec<IpAddr>,
    _membership: Arc<Membership>,
}

/// A frame that has come, and over which link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    key: Key,
    received: Received,
}

/// A frame that has come and may lie in its sender's page, and over which link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundInPlace {
    key: Key,
    received: ReceivedInPlace,
}

/// What has come for one that captures, and over which link.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundRecord {
    key: Key,
    received: ReceivedRecord,
    /// When it was sent.
    pub(super) time_ns: u64,
    /// Copies lost since the record before.
    pub(super) lost: u64,
}

impl Joint {
    /// The address table has another entry for the member.
    fn set_peer(&mut self, peer: Member) {
        for address in &self.link.peer().addresses {
            if !peer.addresses.contains(address) && !self.former.contains(address) {
                self.former.push(*address);
            }
        }
        let most = self.former.len().saturating_sub(FORMER_MAX);
        self.former.drain(..most);
        self.link.set_peer(peer);
    }
}

impl Mesh {
    pub(super) fn new(
        guest: Guest,
        wish: Wish,
        joined: LanJoined,
        table: LentTable,
        counters: Counters,
        wait: Wait,
    ) -> io::Result<Mesh> {
        guest.follow_hosts();
        let attachment = guest.attachments();
        let own = Member {
            name: guest.name(),
            mac: Mac(joined.mac),
            vlans: Vec::new(),
            addresses: joined.address.into_iter().collect(),
            captures: wish.captures,
            routes: wish.routes,
            life: 0,
        };
        let mut waiter = Waiter::new(wait)?;
        let guest = waiter.add(Occupant::Guest(Box::new(guest)))?;
        let peers = (0..MEMBERS_MAX).map(|_| Standing::Apart).collect();
        let mut mesh = Mesh {
            waiter,
            guest,
            wish,
            table,
            changes: 0,
            changed_at: vec![0; MEMBERS_MAX],
            number: joined.number.into(),
            frame_bytes_max: joined.frame_bytes as usize,
            own,
            counters,
            peers,
            asked: vec![Asked::default(); MEMBERS_MAX],
            accepting: Vec::new(),
            last: None,
            current: None,
            in_page: None,
            leaving: Vec::new(),
            unflushed: Vec::new(),
            audience: None,
            audiences: 0,
            audience_retry_ns: 0,
            capturers: Vec::new(),
            look_ns: 0,
            with_record: Vec::new(),
            looked_ns: 0,
            wait,
            guard: ForkGuard::here(),
            following: Following::new(attachment),
            has_slept: false,
            has_heard: false,
            has_room: false,
            #[cfg(feature = "tcpip")]
            parted: Vec::new(),
        };
        mesh.keep_place(joined);
        mesh.refresh();
        mesh.following.addresses.clone_from(&mesh.own.addresses);
        Ok(mesh)
    }

    /// Whatever host comes next is to give us the same place.
    pub(super) fn keep_place(&mut self, joined: LanJoined) {
        self.number = joined.number.into();
        self.frame_bytes_max = joined.frame_bytes as usize;
        self.wish.mac = Mac(joined.mac);
        for number in 0..self.peers.len() {
            let frame_bytes_max = self.frame_bytes_max;
            if let Some(joint) = self.joint_of(number) {
                joint.link.set_frame_bytes_max(frame_bytes_max);
            }
        }
    }

    /// Gives the guest back. All paths end.
    pub(super) fn into_guest(mut self) -> Guest {
        // The paths of a forked child are its parent's.
        let own = if self.in_child() { 0 } else { self.peers.len() };
        for number in 0..own {
            self.part(number);
        }
        match self.waiter.remove(self.guest) {
            Some(Occupant::Guest(guest)) => {
                guest.stop_following();
                *guest
            }
            _ => unreachable!("made with a guest"),
        }
    }

    pub(super) fn guest(&self) -> &Guest {
        match self.waiter.get(self.guest) {
            Some(Occupant::Guest(guest)) => guest,
            _ => unreachable!("made with a guest"),
        }
    }

    /// How many numbers of members there are.
    pub(super) fn peers(&self) -> usize {
        self.peers.len()
    }

    pub(super) fn own(&self) -> &Member {
        &self.own
    }

    /// Bytes of the LAN's largest frame, by the last host.
    pub(super) fn frame_bytes_max(&self) -> usize {
        self.frame_bytes_max
    }

    pub(super) fn table(&self) -> &LentTable {
        &self.table
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// The numbers of the entries that have become others since [`Mesh::changes`] was this.
    #[cfg(feature = "tcpip")]
    pub(super) fn changed_since(&self, changes: u64) -> impl Iterator<Item = usize> {
        let changed_at = self.changed_at.iter().enumerate();
        changed_at.filter(move |(_, at)| **at > changes).map(|(number, _)| number)
    }

    /// The words that observers see.
    #[cfg(feature = "tcpip")]
    pub(super) fn board(&self) -> &os::words::Words {
        self.counters.board()
    }

    pub(super) fn counter(&self, counter: Counter) -> u64 {
        self.counters.get(counter)
    }

    pub(super) fn count(&mut self, counter: Counter, number: u64) {
        if !self.in_child() {
            self.counters.add(counter, number);
        }
    }

    /// Whether the caller is a forked child of the member, and so no member.
    #[inline(always)]
    pub(super) fn in_child(&self) -> bool {
        self.guard.in_child()
    }

    /// Takes note of members that have come and gone. One load if none has.
    #[inline]
    pub(super) fn refresh(&mut self) {
        if !self.in_child() && !self.table.is_current() {
            self.take_changes();
        }
    }

    #[cold]
    fn take_changes(&mut self) {
        let mut changed = Vec::new();
        // A new host's table says nothing of those who were members at the one before.
        let is_new_table = !self.table.was_read();
        self.table.refresh(|number, was| changed.push((number, was)));
        self.changes += 1;
        if is_new_table {
            self.changed_at.fill(self.changes);
            // Another member may have the MAC address there.
            self.last = None;
        }
        let mut are_capturers_changed = is_new_table;
        for (number, was) in changed {
            self.changed_at[number] = self.changes;
            let found = self.table.get(number).cloned();
            let captures =
                |member: &Option<Member>| member.as_ref().is_some_and(|one| one.captures);
            are_capturers_changed |= captures(&was) || captures(&found);
            // The next frame finds out whether it goes there still.
            if let Some((_, key)) = self.last
                && is_joined_by(&self.peers[number], key)
            {
                self.last = None;
            }
            // One that has left and come again meanwhile has nothing left of what it had.
            let is_reborn =
                was.as_ref().zip(found.as_ref()).is_some_and(|(was, found)| was.life != found.life);
            let is_other = match (&was, &found) {
                (Some(was), Some(found)) => is_reborn || !is_same(found, was),
                (None, None) => false,
                _ => true,
            };
            if is_other {
                // What is sent to all from now on is for others.
                self.end_audience();
                // So is a path that was asked for, and that none could be made to the member before says nothing of this one.
                if let Standing::Connecting(..) | Standing::Failed { .. } = self.peers[number] {
                    self.part(number);
                }
            }
            if number == self.number {
                if let Some(own) = found.filter(|own| own.name == self.own.name) {
                    self.own = own;
                }
                // At a host before it was another's number.
                self.leave(number);
                continue;
            }
            let Some(joint) = self.joint_of(number) else { continue };
            match found {
                Some(found) if !is_reborn && is_same(&found, joint.link.peer()) => {
                    joint.set_peer(found);
                }
                // Somebody else has its number, or nobody.
                _ => self.leave(number),
            }
        }
        if self.own.captures {
            self.connect_to_all();
        } else if are_capturers_changed {
            self.find_capturers();
        }
    }

    /// Asks for paths to all whose frames are captured: a member that sends its first frame has one by then.
    fn connect_to_all(&mut self) {
        let members = self.table.members().filter(|(_, member)| !member.captures);
        let members: Vec<usize> = members.map(|(number, _)| number).collect();
        for number in members {
            if let Standing::Apart = self.peers[number] {
                // It makes the path with its first frame then.
                let _ = self.connect(number);
            }
        }
    }

    /// Who gets copies from now on.
    fn find_capturers(&mut self) {
        let Mesh { table, capturers, .. } = self;
        let mut before = std::mem::take(capturers);
        for (number, member) in table.members().filter(|(_, member)| member.captures) {
            let known = |one: &Capturer| (one.number, one.name) == (number, member.name);
            let known = before.iter().position(known).map(|at| before.swap_remove(at));
            capturers.push(known.unwrap_or_else(|| Capturer::new(number, member.name)));
        }
        let lost: usize = before.iter().map(Capturer::waiting).sum();
        self.counters.add(Counter::CapturesLost, lost as u64);
    }

    /// The member of this number has left: what it sent before is still received.
    pub(super) fn leave(&mut self, number: usize) {
        let Standing::Joined(key) = self.peers[number] else { return };
        self.peers[number] = Standing::Apart;
        self.let_end(key, number);
    }

    /// Ends a link once what was handed over by now has been received: no more than a queue holds, whatever comes behind it.
    /// Of the links of one member, one goes on so far: a member that asks for paths again and again has no more.
    fn let_end(&mut self, key: Key, number: usize) {
        self.last = self.last.filter(|(_, last)| *last != key);
        // Who has its turn is not asked whether it has left.
        self.current = self.current.filter(|(current, _)| *current != key);
        if let Some(at) = self.leaving.iter().position(|(_, before)| *before == number) {
            let (before, _) = self.leaving.swap_remove(at);
            self.end(before);
        }
        if let Some(joint) = joint(&mut self.waiter, key) {
            let buffers = joint.link.buffers_received();
            joint.ends_after = Some(buffers + fabric::queue::QUEUE_BUFFERS as u64);
            self.leaving.push((key, number));
        }
    }

    pub(super) fn joint_of(&mut self, number: usize) -> Option<&mut Joint> {
        match self.peers.get(number)? {
            Standing::Joined(key) => joint(&mut self.waiter, *key),
            _ => None,
        }
    }

    /// Sends a frame that was checked to one member, and copies to those that capture.
    #[inline(always)]
    pub(super) fn send(
        &mut self,
        destination: Mac,
        frame: Frame<'_>,
        urgency: Urgency,
    ) -> Result<(), TrySendFrameError> {
        if !self.capturers.is_empty() {
            return self.send_captured(destination, frame);
        }
        self.send_to_one(destination, frame, urgency)
    }

    /// Sends a frame to one member, after copies of it to those that capture: what the member answers was sent later, whoever
    /// looks at the copies first. A frame that no member takes is copied too, one that is given back because its target is
    /// full is not.
    #[inline(never)]
    fn send_captured(
        &mut self,
        destination: Mac,
        frame: Frame<'_>,
    ) -> Result<(), TrySendFrameError> {
        self.publish_to_all();
        let found = self.table.find(destination);
        let is_other =
            |(number, member): &(usize, &Member)| *number != self.number && !member.captures;
        let number = found.filter(is_other).map(|(number, _)| number);
        let key = match number.map(|number| &self.peers[number]) {
            Some(Standing::Joined(key)) => *key,
            Some(Standing::Connecting(_, waiting)) if waiting.len() >= WAITING_MAX => {
                return self.send_elsewhere(destination, frame, Urgency::Now);
            }
            // It waits for its path, or goes nowhere.
            _ => {
                self.copy(frame);
                return self.send_elsewhere(destination, frame, Urgency::Now);
            }
        };
        let claimed = match joint(&mut self.waiter, key) {
            Some(joint) => joint.link.claim(frame),
            None => {
                self.copy(frame);
                return self.send_after_the_end(key, frame, Urgency::Now);
            }
        };
        match claimed {
            Ok(claim) => {
                self.copy(frame);
                let Some(joint) = joint(&mut self.waiter, key) else {
                    return self.send_after_the_end(key, frame, Urgency::Now);
                };
                let sent = joint.link.commit(claim);
                self.after_sending(key, frame.offload, frame.bytes.len(), sent)
            }
            // The path has ended, perhaps because its member has come again.
            Err(SendError::Severed(_)) => {
                self.copy(frame);
                self.send_elsewhere(destination, frame, Urgency::Now)
            }
            Err(error) => self.not_sent(key, error),
        }
    }

    fn after_sending(
        &mut self,
        key: Key,
        offload: Offload,
        bytes: usize,
        sent: Result<(), SendError>,
    ) -> Result<(), TrySendFrameError> {
        if let Err(error) = sent {
            return self.not_sent(key, error);
        }
        count_sent(&mut self.counters, offload, bytes);
        if let Some(joint) = joint(&mut self.waiter, key) {
            joint.wants_room = false;
        }
        Ok(())
    }

    /// Sends a frame that was checked and whose data lies elsewhere, at once. It is put into one piece unless it goes over the path that
    /// was used last.
    #[cfg(feature = "tcpip")]
    pub(super) fn send_in_parts(
        &mut self,
        destination: Mac,
        frame: &FrameInParts<'_>,
    ) -> Result<(), TrySendFrameError> {
        let key = self.last.filter(|(mac, _)| *mac == destination).map(|(_, key)| key);
        if let Some(key) = key.filter(|_| self.capturers.is_empty()) {
            self.publish_to_all();
            if let Some(joint) = joint(&mut self.waiter, key) {
                let sent = joint.link.send_in_parts(frame);
                match self.after_sending(key, frame.offload, frame.bytes(), sent) {
                    // The path has ended, perhaps because its member has come again.
                    Err(TrySendFrameError::Send(SendFrameError::Unreachable(_))) => {}
                    sent => return sent,
                }
            }
        }
        let whole = Frame { offload: frame.offload, bytes: &frame.whole() };
        self.send(destination, whole, Urgency::WithOthers)
    }

    #[inline(always)]
    fn send_to_one(
        &mut self,
        destination: Mac,
        frame: Frame<'_>,
        urgency: Urgency,
    ) -> Result<(), TrySendFrameError> {
        self.publish_to_all();
        if let Some((mac, key)) = self.last
            && mac == destination
        {
            match self.send_over(key, frame, urgency) {
                // The path has ended, perhaps because its member has come again.
                Err(TrySendFrameError::Send(SendFrameError::Unreachable(_))) => {}
                sent => return sent,
            }
        }
        self.send_elsewhere(destination, frame, urgency)
    }

    #[inline(never)]
    fn send_elsewhere(
        &mut self,
        destination: Mac,
        frame: Frame<'_>,
        urgency: Urgency,
    ) -> Result<(), TrySendFrameError> {
        let found = self.table.find(destination);
        let takes =
            |(number, member): &(usize, &Member)| *number != self.number && !member.captures;
        let Some((number, _)) = found.filter(takes) else {
            self.counters.add(Counter::NoMember, 1);
            return Err(SendFrameError::NoMember(destination).into());
        };
        self.send_to(number, Some(destination), frame, urgency)
    }

    /// Sends a frame to the member of this number, over a path that is there or is to be made.
    fn send_to(
        &mut self,
        number: usize,
        destination: Option<Mac>,
        frame: Frame<'_>,
        urgency: Urgency,
    ) -> Result<(), TrySendFrameError> {
        if let Standing::Joined(key) = self.peers[number] {
            if let Some(mac) = destination {
                self.last = Some((mac, key));
            }
            match self.send_over(key, frame, urgency) {
                // The path has ended, perhaps because its member has come again.
                Err(TrySendFrameError::Send(SendFrameError::Unreachable(_))) => self.part(number),
                sent => return sent,
            }
        }
        self.send_later(number, frame)
    }

    #[inline(always)]
    fn send_over(
        &mut self,
        key: Key,
        frame: Frame<'_>,
        urgency: Urgency,
    ) -> Result<(), TrySendFrameError> {
        let Mesh { waiter, counters, unflushed, .. } = self;
        let Some(joint) = joint(waiter, key) else {
            return self.send_after_the_end(key, frame, urgency);
        };
        let sent = joint.link.send(frame, urgency);
        match sent {
            Ok(()) => {
                if urgency == Urgency::WithOthers && !joint.is_unflushed {
                    joint.is_unflushed = true;
                    unflushed.push(key);
                }
                count_sent(counters, frame.offload, frame.bytes.len());
                joint.wants_room = false;
                Ok(())
            }
            Err(error) => self.not_sent(key, error),
        }
    }

    #[cold]
    fn send_after_the_end(
        &mut self,
        key: Key,
        frame: Frame<'_>,
        urgency: Urgency,
    ) -> Result<(), TrySendFrameError> {
        // Only `last` outlives its link.
        self.last = self.last.filter(|(_, last)| *last != key);
        let destination = net::lan::frame::destination(frame.bytes).unwrap_or(Mac::BROADCAST);
        self.send_elsewhere(destination, frame, urgency)
    }

    #[cold]
    fn not_sent(&mut self, key: Key, error: SendError) -> Result<(), TrySendFrameError> {
        let Mesh { waiter, counters, .. } = self;
        let Some(joint) = joint(waiter, key) else { return Err(TrySendFrameError::Full) };
        match error {
            SendError::Full | SendError::Quiesced => {
                joint.wants_room = true;
                counters.add(Counter::Full, 1);
                Err(TrySendFrameError::Full)
            }
            SendError::Lacking(lack) => Err(SendFrameError::Lacking(lack).into()),
            SendError::TooLong { .. } | SendError::Severed(_) => {
                let name = joint.link.peer().name;
                self.last = None;
                Err(SendFrameError::Unreachable(name).into())
            }
        }
    }

    /// Keeps a frame until there is a path, which is asked for if it was not.
    fn send_later(&mut self, number: usize, frame: Frame<'_>) -> Result<(), TrySendFrameError> {
        if let Standing::Apart | Standing::Failed { .. } = self.peers[number] {
            self.connect(number)?;
        }
        let Standing::Connecting(_, waiting) = &mut self.peers[number] else {
            return Err(TrySendFrameError::Full);
        };
        if waiting.len() >= WAITING_MAX {
            self.counters.add(Counter::Full, 1);
            return Err(TrySendFrameError::Full);
        }
        waiting.push_back((frame.offload, frame.bytes.to_vec()));
        Ok(())
    }

    /// Asks for a path to a member.
    fn connect(&mut self, number: usize) -> Result<(), TrySendFrameError> {
        let Some(member) = self.table.get(number) else { return Err(TrySendFrameError::Full) };
        let name = member.name;
        let failed = |lack: Option<Lack>| {
            let unreachable = SendFrameError::Unreachable(name);
            Err(lack.map_or(unreachable, SendFrameError::Lacking).into())
        };
        if let Standing::Failed { retry_ns, lack } = self.peers[number]
            && now_ns() < retry_ns
        {
            return failed(lack);
        }
        // The member was first.
        if self.is_accepting(number) {
            self.peers[number] = Standing::Connecting(None, VecDeque::new());
            return Ok(());
        }
        let options = path_options(member.captures);
        match self.guest().start_connecting_to(Target::Guest(name), &options) {
            Ok(connecting) => {
                let waiting = VecDeque::new();
                self.peers[number] = Standing::Connecting(Some(Box::new(connecting)), waiting);
                Ok(())
            }
            Err(error) => {
                let lack = lack_of(&error);
                self.fail(number, lack);
                failed(lack)
            }
        }
    }

    /// No path to a member could be made: frames that wait for it are lost.
    fn fail(&mut self, number: usize, lack: Option<Lack>) {
        self.counters.add(Counter::PathsFailed, 1);
        // A path that is there goes on: without a standing nobody would end it.
        if let Standing::Joined(_) = self.peers[number] {
            return;
        }
        let failed = Standing::Failed { retry_ns: now_ns() + RETRY_NS, lack };
        if let Standing::Connecting(_, waiting) = std::mem::replace(&mut self.peers[number], failed)
        {
            self.counters.add(Counter::Lost, waiting.len() as u64);
        }
    }

    /// Ends the path to a member, or the request for one.
    fn part(&mut self, number: usize) {
        if let Standing::Joined(_) = self.peers[number] {
            self.end_audience();
        }
        match std::mem::take(&mut self.peers[number]) {
            Standing::Joined(key) => self.end(key),
            Standing::Connecting(_, waiting) => {
                self.counters.add(Counter::Lost, waiting.len() as u64);
            }
            Standing::Apart | Standing::Failed { .. } => {}
        }
    }

    /// Frames that wait for a path.
    pub(super) fn waiting_frames(&self) -> usize {
        let waiting = self.peers.iter().map(|standing| match standing {
            Standing::Connecting(_, waiting) => waiting.len(),
            _ => 0,
        });
        waiting.sum()
    }

    /// Ends a link.
    fn end(&mut self, key: Key) {
        self.last = self.last.filter(|(_, last)| *last != key);
        self.current = self.current.filter(|(current, _)| *current != key);
        if self.is_joined(key) {
            self.end_audience();
        }
        self.leaving.retain(|(leaving, _)| *leaving != key);
        if let Some(Occupant::Link(mut joint)) = self.waiter.remove(key) {
            joint.link.close();
            #[cfg(feature = "tcpip")]
            if !self.parted.iter().any(|member| member.name == joint.link.peer().name) {
                self.parted.push(joint.link.peer().clone());
            }
            let is_its_own =
                |standing: &Standing| matches!(standing, Standing::Joined(own) if *own == key);
            if is_its_own(&self.peers[joint.number]) {
                self.peers[joint.number] = Standing::Apart;
            }
        }
    }

    /// Whether a link is the one that its member is reached by.
    fn is_joined(&self, key: Key) -> bool {
        match self.waiter.get(key) {
            Some(Occupant::Link(joint)) => is_joined_by(&self.peers[joint.number], key),
            _ => false,
        }
    }

    /// Gives a copy of a frame that is about to be sent to each member that captures, with the time. What one of them has no
    /// room for is lost, and slows nobody.
    #[inline(never)]
    fn copy(&mut self, frame: Frame<'_>) {
        let now = now_ns();
        self.find_paths_for_copies(now);
        let mut ended = None;
        let Mesh { waiter, peers, capturers, counters, unflushed, .. } = self;
        for capturer in capturers {
            let Standing::Joined(key) = peers[capturer.number] else {
                let is_kept = capturer.keep(now, frame);
                counters.add(Counter::CapturesLost, u64::from(!is_kept));
                continue;
            };
            let Some(joint) = joint(waiter, key) else { continue };
            // At once: held back, it might be seen after what the frame's target answers. Only where the one that captures is
            // so far behind that it would lose copies, small ones go together.
            let urgency = match joint.link.buffers_out() > COPIES_ALONE_MAX {
                true => Urgency::WithOthers,
                false => Urgency::Now,
            };
            let given = capturer.give(&mut joint.link, now, frame, urgency);
            if urgency == Urgency::WithOthers && !joint.is_unflushed {
                joint.is_unflushed = true;
                unflushed.insert(0, key);
            }
            if let Err(error) = given {
                counters.add(Counter::CapturesLost, 1);
                joint.wants_room = true;
                if let SendError::Severed(_) = error {
                    ended = Some(key);
                }
            }
        }
        if let Some(key) = ended {
            self.end(key);
        }
    }

    /// Asks for paths to those that capture, and takes those that are there: a program that sends, and does nothing
    /// else, learns it nowhere else.
    #[inline]
    fn find_paths_for_copies(&mut self, now: u64) {
        let Mesh { capturers, peers, .. } = self;
        let is_joined = |one: &Capturer| matches!(peers[one.number], Standing::Joined(_));
        if now < self.look_ns || capturers.iter().all(is_joined) {
            return;
        }
        self.look_ns = now + LOOK_NS;
        let numbers: Vec<usize> = capturers.iter().map(|one| one.number).collect();
        for number in numbers {
            if let Standing::Apart | Standing::Failed { .. } = self.peers[number] {
                // The next frame is another try.
                let _ = self.connect(number);
            }
        }
        self.serve_guest();
    }

    /// Tells a member that captures of copies that were lost, now that there is room.
    #[cold]
    fn tell_lost(&mut self, key: Key) {
        let Mesh { waiter, capturers, .. } = self;
        let Some(joint) = joint(waiter, key) else { return };
        if let Some(capturer) = capturers.iter_mut().find(|one| one.number == joint.number)
            && let Err(SendError::Full) = capturer.tell(&mut joint.link, now_ns())
        {
            joint.wants_room = true;
        }
    }

    /// Sends a frame to all other members that have room for it, and copies to those that capture.
    pub(super) fn send_to_all(&mut self, frame: Frame<'_>, urgency: Urgency) {
        // Before: see `send_captured`. Frames to a group are never given back.
        if !self.capturers.is_empty() {
            self.copy(frame);
        }
        self.send_to_each(frame, urgency);
    }

    fn send_to_each(&mut self, frame: Frame<'_>, urgency: Urgency) {
        self.counters.add(Counter::GroupFramesSent, 1);
        if frame.offload.vlan.is_none() && self.has_audience() {
            let Mesh { waiter, peers, audience, counters, .. } = self;
            let mut links = Peers { waiter, peers };
            if let Some(audience) = audience
                && audience.push(frame, &mut links, counters)
            {
                if urgency == Urgency::Now {
                    audience.publish(&mut links, counters);
                }
                return;
            }
        }
        // A copy for each does not overtake what waits for all.
        self.publish_to_all();
        let takes = |(number, member): &(usize, &Member)| {
            *number != self.number && !member.captures && member.takes(frame.offload.vlan)
        };
        let members: Vec<usize> =
            self.table.members().filter(takes).map(|(number, _)| number).collect();
        for number in members {
            // A member that is full, or cannot be reached, misses it: that was counted.
            let _ = self.send_to(number, None, frame, urgency);
        }
    }

    /// Whether there is an audience of all other members. It begins when all of them have paths, and are several.
    pub(super) fn has_audience(&mut self) -> bool {
        if self.audience.is_some() {
            return true;
        }
        if self.audience_retry_ns != 0 && now_ns() < self.audience_retry_ns {
            return false;
        }
        let is_other =
            |(number, member): &(usize, &Member)| *number != self.number && !member.captures;
        let others = self.table.members().filter(is_other);
        let numbers: Vec<usize> = others.map(|(number, _)| number).collect();
        let is_joined = |number: &usize| matches!(self.peers[*number], Standing::Joined(_));
        if numbers.len() < AUDIENCE_MIN || !numbers.iter().all(is_joined) {
            return false;
        }
        self.audiences = self.audiences.wrapping_add(1);
        let Mesh { waiter, peers, audience, audiences, .. } = self;
        // Without memory for it, each gets a copy.
        let begun = Audience::begin(&numbers, *audiences, &mut Peers { waiter, peers });
        *audience = begun.ok().flatten();
        let has_begun = audience.is_some();
        self.audience_retry_ns = now_ns() + if has_begun { AUDIENCE_NS } else { RETRY_NS };
        has_begun
    }

    /// Somebody has come or gone: what is sent from now on is for others.
    pub(super) fn end_audience(&mut self) {
        let Some(mut audience) = self.audience.take() else { return };
        let Mesh { waiter, peers, counters, .. } = self;
        let mut links = Peers { waiter, peers };
        audience.publish(&mut links, counters);
        audience.end(&mut links);
    }

    /// Frames to all go before what is sent to one of them after that.
    #[inline]
    fn publish_to_all(&mut self) {
        let Mesh { waiter, peers, audience, counters, .. } = self;
        if let Some(audience) = audience
            && audience.holds_back()
        {
            audience.publish(&mut Peers { waiter, peers }, counters);
        }
    }

    pub(super) fn flush(&mut self) {
        if self.in_child() {
            return;
        }
        self.publish_to_all();
        let Mesh { waiter, unflushed, .. } = self;
        for key in unflushed.drain(..) {
            if let Some(joint) = joint(waiter, key) {
                joint.is_unflushed = false;
                joint.link.flush();
            }
        }
    }

    /// The next frame.
    #[inline]
    pub(super) fn next_frame(&mut self) -> io::Result<Option<Found>> {
        match self.next_of_current() {
            Some(found) => Ok(Some(found)),
            None => self.next_frame_of_others(),
        }
    }

    /// The next frame of the member from which the last one was, as long as it has its turn.
    #[inline(always)]
    pub(super) fn next_of_current(&mut self) -> Option<Found> {
        let (key, received) =
            self.next_in_turn(|joint, own, counters| joint.link.receive(own, counters))?;
        Some(Found { key, received })
    }

    #[inline(never)]
    fn next_frame_of_others(&mut self) -> io::Result<Option<Found>> {
        let found = self.next_of_others(|joint, own, counters| {
            if joint.link.peer().captures {
                return capture::drop_all(&mut joint.link, counters).map(|()| None);
            }
            joint.link.receive(own, counters)
        })?;
        Ok(found.map(|(key, received)| Found { key, received }))
    }

    /// Gives the page back to its sender in which a frame was received in place, if there is one.
    #[inline]
    pub(super) fn give_back(&mut self) {
        if let Some(key) = self.in_page.take()
            && !self.in_child()
            && let Some(joint) = joint(&mut self.waiter, key)
        {
            joint.link.give_back();
        }
    }

    /// The next frame, left in its sender's page if it is long. The last one is given back.
    #[inline]
    pub(super) fn next_frame_in_place(&mut self) -> io::Result<Option<FoundInPlace>> {
        for _ in 0..CLAIMS_PER_CALL_MAX {
            match self.find_in_place()? {
                Some(found) if !self.is_fair(found) => self.give_back(),
                found => return Ok(found),
            }
        }
        Ok(None)
    }

    /// Returns true if all claims of a frame are true. If not, counts the frame.
    #[inline]
    fn is_fair(&mut self, FoundInPlace { key, received }: FoundInPlace) -> bool {
        let Some(joint) = joint(&mut self.waiter, key) else { return true };
        let FrameInPlace { offload, start, .. } = joint.link.frame_in_place(received);
        match claim(start, offload, joint.link.peer()) {
            Claim::Fair => true,
            Claim::Discovery => {
                self.counters.add(Counter::DroppedDiscovery, 1);
                false
            }
            Claim::Source(ip) => self.is_source(key, ip),
        }
    }

    /// Returns true if an IP address is that of the member at the other end of a link, though its entry did not say so: it may have
    /// registered the address just now, or have had it. What is dropped is counted.
    #[cold]
    fn is_source(&mut self, key: Key, ip: IpAddr) -> bool {
        self.refresh();
        let Mesh { waiter, table, counters, .. } = self;
        let Some(joint) = joint(waiter, key) else { return false };
        let is_its = joint.link.peer().addresses.contains(&ip)
            || joint.former.contains(&ip) && table.find_address(ip).is_none();
        if !is_its {
            counters.add(Counter::DroppedAddress, 1);
        }
        is_its
    }

    #[inline]
    pub(super) fn find_in_place(&mut self) -> io::Result<Option<FoundInPlace>> {
        self.give_back();
        let receive = |joint: &mut Joint, own: &Member, counters: &mut Counters| {
            if joint.link.peer().captures {
                return capture::drop_all(&mut joint.link, counters).map(|()| None);
            }
            joint.link.receive_in_place(own, counters)
        };
        let found = match self.next_in_turn(receive) {
            Some(found) => Some(found),
            None => self.next_of_others(receive)?,
        };
        if let Some((key, ReceivedInPlace::InPage { .. })) = found {
            self.in_page = Some(key);
        }
        Ok(found.map(|(key, received)| FoundInPlace { key, received }))
    }

    /// What has come next for one that captures: of all members', the record with the earliest time. A member hands a copy
    /// over before the frame itself, so whatever was sent because of a frame has a later time, and is given out later.
    pub(super) fn next_record(&mut self) -> io::Result<Option<FoundRecord>> {
        if self.in_child() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        // The record that was given out last is done with.
        if let Some(key) = self.current.take().map(|(key, _)| key)
            && let Some(joint) = joint(&mut self.waiter, key)
        {
            joint.waiting = None;
            self.fetch_record(key);
        }
        for _ in 0..RECORD_LOOKS {
            if let Some((key, found)) = self.earliest_record()
                && found.time_ns <= self.looked_ns
            {
                self.current = Some((key, 0));
                return Ok(Some(FoundRecord { key, ..found }));
            }
            // All that was handed over before this time is found now.
            self.looked_ns = now_ns();
            self.look_for_records()?;
        }
        Ok(None)
    }

    /// The record with the earliest time, of those that wait.
    fn earliest_record(&self) -> Option<(Key, FoundRecord)> {
        let keys = self.with_record.iter();
        let waiting = keys.filter_map(|key| match self.waiter.get(*key)? {
            Occupant::Link(joint) => joint.waiting.map(|found| (*key, found)),
            Occupant::Guest(_) => None,
        });
        waiting.min_by_key(|(_, found)| found.time_ns)
    }

    /// Looks at all links for records, and does what the guest has news of.
    fn look_for_records(&mut self) -> io::Result<()> {
        self.refresh();
        self.has_heard = false;
        let has_slept = std::mem::take(&mut self.has_slept);
        for _ in 0..=self.waiter.len() {
            let found = match has_slept {
                true => self.waiter.try_next()?.map(|(key, _)| key),
                false => self.waiter.try_next_busy()?,
            };
            match found {
                Some(key) if key == self.guest => self.serve_guest(),
                // It is looked at below, with all others.
                Some(_) => {}
                None => break,
            }
        }
        let joined = self.peers.iter().filter_map(|standing| match standing {
            Standing::Joined(key) => Some(*key),
            _ => None,
        });
        let keys: Vec<Key> = joined.chain(self.leaving.iter().map(|(key, _)| *key)).collect();
        for key in keys {
            self.fetch_record(key);
        }
        Ok(())
    }

    /// Fetches the next record of a link that has none waiting.
    fn fetch_record(&mut self, key: Key) {
        let Mesh { waiter, counters, with_record, .. } = self;
        let Some(joint) = joint(waiter, key) else { return with_record.retain(|one| *one != key) };
        if joint.waiting.is_some() {
            return;
        }
        let is_late = |joint: &mut Joint| {
            let most = joint.ends_after;
            most.is_some_and(|most| joint.link.buffers_received() > most)
        };
        match capture::receive(&mut joint.link, counters) {
            // What it sent after it had left.
            Ok(Some(_)) if is_late(joint) => counters.add(Counter::DroppedSource, 1),
            Ok(Some(received)) => {
                let mut lost = 0;
                if let Content::Lost(total) = received.record.content {
                    // It only grows, if the member is right.
                    lost = total.saturating_sub(joint.lost);
                    joint.lost = joint.lost.max(total);
                }
                // Nothing was sent later than now, whatever a member says, nor before what the member sent before.
                let time_ns = received.record.time_ns.min(now_ns()).max(joint.time_ns);
                joint.time_ns = time_ns;
                joint.waiting = Some(FoundRecord { key, received, time_ns, lost });
                if !with_record.contains(&key) {
                    with_record.push(key);
                }
                return;
            }
            Ok(None) if joint.ends_after.is_none() => return with_record.retain(|one| *one != key),
            Ok(None) | Err(_) => {}
        }
        self.with_record.retain(|one| *one != key);
        self.end(key);
    }

    /// What `receive` finds at the member that has its turn.
    #[inline(always)]
    fn next_in_turn<R>(
        &mut self,
        receive: impl Fn(&mut Joint, &Member, &mut Counters) -> Result<Option<R>, Severed>,
    ) -> Option<(Key, R)> {
        // Others learn it when they look at all members.
        if self.in_child() {
            return None;
        }
        let Mesh { waiter, current, own, counters, .. } = self;
        let (key, turns) = current.as_mut()?;
        *turns = turns.checked_sub(1)?;
        let key = *key;
        match receive(joint(waiter, key)?, own, counters) {
            Ok(Some(received)) => Some((key, received)),
            _ => None,
        }
    }

    /// What `receive` finds at the next member that has something.
    #[inline(always)]
    fn next_of_others<R>(
        &mut self,
        receive: impl Fn(&mut Joint, &Member, &mut Counters) -> Result<Option<R>, Severed>,
    ) -> io::Result<Option<(Key, R)>> {
        if self.in_child() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        self.give_back();
        self.refresh();
        self.current = None;
        self.has_heard = false;
        // Each is looked at once; those that have nothing are not ready again for that.
        for _ in 0..=self.waiter.len() {
            let found = match std::mem::take(&mut self.has_slept) {
                true => self.waiter.try_next()?.map(|(key, _)| key),
                false => self.waiter.try_next_busy()?,
            };
            let Some(key) = found else { return Ok(None) };
            if key == self.guest {
                self.serve_guest();
                continue;
            }
            let Mesh { waiter, own, counters, has_room, .. } = self;
            let Some(joint) = joint(waiter, key) else { continue };
            match receive(joint, own, counters) {
                Ok(Some(received)) => match joint.ends_after {
                    None => {
                        self.current = Some((key, FRAMES_PER_TURN));
                        return Ok(Some((key, received)));
                    }
                    Some(most) if joint.link.buffers_received() <= most => {
                        return Ok(Some((key, received)));
                    }
                    // What it sent after it had left.
                    Some(_) => {
                        self.counters.add(Counter::DroppedSource, 1);
                        self.end(key);
                    }
                },
                Ok(None) if joint.ends_after.is_some() => self.end(key),
                Ok(None) => {
                    // It was ready because there is room again: whoever wants it tries again.
                    *has_room |= std::mem::take(&mut joint.wants_room);
                    if joint.link.peer().captures {
                        self.tell_lost(key);
                    }
                }
                Err(_) => self.end(key),
            }
        }
        Ok(None)
    }

    #[inline(always)]
    pub(super) fn frame(&self, Found { key, received }: Found) -> Frame<'_> {
        match self.waiter.get(key) {
            Some(Occupant::Link(joint)) => joint.link.frame(received),
            _ => unreachable!("the frame was received just now"),
        }
    }

    #[inline]
    pub(super) fn frame_in_place(&self, found: FoundInPlace) -> FrameInPlace<'_> {
        self.frame_still_in_place(found).expect("the frame was received just now")
    }

    /// The same, if its link is there: who looks at the address table meanwhile may learn that it is not.
    #[inline]
    pub(super) fn frame_still_in_place(
        &self,
        FoundInPlace { key, received }: FoundInPlace,
    ) -> Option<FrameInPlace<'_>> {
        match self.waiter.get(key) {
            Some(Occupant::Link(joint)) => Some(joint.link.frame_in_place(received)),
            _ => None,
        }
    }

    /// Whose record it is, and its frame.
    pub(super) fn record(
        &self,
        FoundRecord { key, received, .. }: FoundRecord,
    ) -> (&Member, Option<Frame<'_>>) {
        match self.waiter.get(key) {
            Some(Occupant::Link(joint)) => {
                (joint.link.peer(), capture::frame(&joint.link, received))
            }
            _ => unreachable!("the record was received just now"),
        }
    }

    /// Does what the guest has news of: members that want a path, paths that were asked for, a new host.
    pub(super) fn serve_guest(&mut self) {
        self.refresh();
        // Each takes descriptors and memory. What is left is news still.
        for _ in 0..PENDING_PER_CALL_MAX {
            let Some(pending) = self.guest().pending() else { break };
            // If there is a new host, it has said before who is a member there.
            self.follow_host();
            self.refresh();
            self.take_pending(pending);
        }
        for number in 0..self.peers.len() {
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
        let known = self.table.find_name(pending.from);
        // Nothing goes between two that capture.
        let is_fit = |(number, member): &(usize, &Member)| {
            is_fit && *number != self.number && !(member.captures && self.own.captures)
        };
        let Some((number, member)) = known.filter(is_fit) else {
            return self.guest().refuse(pending, NO_DATA);
        };
        let member = member.clone();
        let options = path_options(member.captures);
        // If both ask at once, the path is kept that the member with the lower number has asked for.
        if let Standing::Connecting(Some(_), _) = self.peers[number]
            && self.number < number
        {
            return self.guest().refuse(pending, NO_DATA);
        }
        // A path that we want, too, is no other's doing.
        if !matches!(self.peers[number], Standing::Connecting(..))
            && !self.asked[number].allows(now_ns(), member.life)
        {
            self.counters.add(Counter::PathsRefused, 1);
            return self.guest().refuse(pending, NO_DATA);
        }
        match self.guest().start_accepting(pending, &options) {
            Ok(connecting) => {
                // What we asked for before is taken back, and so is what it asked for before.
                if let Standing::Connecting(ours, _) = &mut self.peers[number] {
                    *ours = None;
                }
                self.accepting.retain(|other| other.number != number);
                let connecting = Box::new(connecting);
                self.accepting.push(Accepting { number, member, connecting });
            }
            Err(_) => self.counters.add(Counter::PathsFailed, 1),
        }
    }

    /// Whether a path that was asked for is there.
    fn take_complete(&mut self, number: usize) {
        let Standing::Connecting(ours, _) = &mut self.peers[number] else { return };
        let Some(mut connecting) = ours.take() else { return };
        match self.guest().try_complete(&mut connecting) {
            Ok(None) => self.ask_on(number, connecting),
            Ok(Some(path)) => self.join(number, path, None),
            Err(error) => {
                // It refuses because it has asked too, and that path is kept. The host has passed its request on before
                // the refusal, but it may not have had its turn here.
                let from = self.table.get(number).map(|member| member.name);
                let pending = from.and_then(|from| self.guest().pending_from(from, Kind::LAN));
                if let Some(pending) = pending {
                    self.take_pending(pending);
                }
                if !self.is_accepting(number)
                    && let Standing::Connecting(..) = self.peers[number]
                {
                    self.fail(number, lack_of(&error));
                }
            }
        }
    }

    fn ask_on(&mut self, number: usize, connecting: Box<Connecting>) {
        if let Standing::Connecting(ours, _) = &mut self.peers[number] {
            *ours = Some(connecting);
        }
    }

    /// Whether paths that members have asked for are there.
    fn take_accepted(&mut self) {
        for mut accepting in std::mem::take(&mut self.accepting) {
            let number = accepting.number;
            match self.guest().try_complete(&mut accepting.connecting) {
                Ok(None) => self.accepting.push(accepting),
                Ok(Some(path)) => self.join(number, path, Some(accepting.member)),
                // Frames that waited for this path are lost.
                Err(error) if matches!(self.peers[number], Standing::Connecting(None, _)) => {
                    self.fail(number, lack_of(&error));
                }
                Err(_) => self.counters.add(Counter::PathsFailed, 1),
            }
        }
    }

    /// Whether a path is being accepted that the member has asked for which has this number now.
    fn is_accepting(&self, number: usize) -> bool {
        let mut accepting = self.accepting.iter();
        accepting.any(|other| other.number == number && self.is_there(number, &other.member))
    }

    /// Whether a member is still there: nobody has come in its place, nor itself again.
    fn is_there(&self, number: usize, member: &Member) -> bool {
        let found = self.table.get(number);
        found.is_some_and(|found| is_same(found, member) && found.life == member.life)
    }

    /// There is a path to a member: frames that waited for it go. If the member was accepted and has left meanwhile, what it
    /// has sent is still received.
    fn join(&mut self, number: usize, path: Path, accepted: Option<Member>) {
        let left = accepted.filter(|accepted| !self.is_there(number, accepted));
        let has_left = left.is_some();
        let found = self.table.get(number).filter(|member| member.name == path.peer());
        let Some(peer) = left.or_else(|| found.cloned()) else { return self.fail(number, None) };
        self.has_room = true;
        let (halves, membership, _) = path.into_parts();
        let mut link = Link::new(halves, peer, self.frame_bytes_max);
        let is_it = |one: &&mut Capturer| (one.number, one.name) == (number, link.peer().name);
        if let Some(capturer) = self.capturers.iter_mut().find(is_it) {
            let lost = capturer.begin(&mut link, now_ns());
            self.counters.add(Counter::CapturesLost, lost);
        }
        let joint = Joint {
            link,
            number,
            wants_room: false,
            is_unflushed: false,
            ends_after: None,
            lost: 0,
            time_ns: 0,
            waiting: None,
            former: Vec::new(),
            _membership: membership,
        };
        self.end_audience();
        let key = match self.waiter.add(Occupant::Link(Box::new(joint))) {
            Ok(key) => key,
            Err(error) => return self.fail(number, Some(Lack::of(&error))),
        };
        self.counters.add(Counter::PathsMade, 1);
        if has_left {
            // Its number may be another's. Frames that waited for this path alone have none.
            if let Standing::Connecting(None, _) = self.peers[number] {
                self.part(number);
            }
            return self.let_end(key, number);
        }
        match std::mem::replace(&mut self.peers[number], Standing::Joined(key)) {
            // The member has asked again: what it sent over the old path is still received.
            Standing::Joined(old) => {
                self.let_end(old, number);
            }
            Standing::Connecting(_, waiting) => {
                for (offload, bytes) in waiting {
                    let frame = Frame { offload, bytes: &bytes };
                    if self.send_over(key, frame, Urgency::Now).is_err() {
                        self.counters.add(Counter::Lost, 1);
                    }
                }
            }
            Standing::Apart | Standing::Failed { .. } => {}
        }
    }

    /// What `next` finds, waiting until there is something. None if the time is over; `u64::MAX` never is.
    pub(super) fn wait_for<T>(
        &mut self,
        deadline_ns: u64,
        next: impl Fn(&mut Mesh) -> io::Result<Option<T>>,
    ) -> io::Result<Option<T>> {
        loop {
            if let Some(found) = next(self)? {
                return Ok(Some(found));
            }
            self.wait_until(deadline_ns)?;
            if deadline_ns != u64::MAX && now_ns() >= deadline_ns {
                return next(self);
            }
        }
    }

    /// The members whose paths have ended since this was asked last.
    #[cfg(feature = "tcpip")]
    pub(super) fn take_parted(&mut self) -> Vec<Member> {
        std::mem::take(&mut self.parted)
    }

    /// Whether a member that has left, and of which frames are still received, had both of these addresses.
    #[cfg(feature = "tcpip")]
    pub(super) fn has_left_with(&self, mac: Mac, address: std::net::IpAddr) -> bool {
        let mut links = self.leaving.iter().filter_map(|(key, _)| match self.waiter.get(*key)? {
            Occupant::Link(joint) => Some(joint.link.peer()),
            Occupant::Guest(_) => None,
        });
        links.any(|member| member.mac == mac && member.addresses.contains(&address))
    }

    /// Looks for a frame, or room, without sleeping.
    #[cfg(feature = "tcpip")]
    pub(super) fn look(
        &mut self,
        deadline_ns: u64,
        is_wanted: impl Fn() -> bool,
    ) -> io::Result<waiter::Looked> {
        if std::mem::take(&mut self.has_room) {
            return Ok(waiter::Looked::Ready);
        }
        self.give_back();
        self.flush();
        self.waiter.look(deadline_ns, is_wanted)
    }

    /// Prepares for a sleep until the descriptor is readable. When it has to end for trimming; None if there is something.
    #[cfg(feature = "tcpip")]
    pub(super) fn prepare_sleep(&mut self) -> Option<u64> {
        if self.in_child() {
            return None;
        }
        self.give_back();
        self.flush();
        if std::mem::take(&mut self.has_room) {
            return None;
        }
        let trim_ns = self.waiter.prepare_sleep()?;
        self.has_slept = true;
        // What came meanwhile has rung.
        self.table.is_current().then_some(trim_ns)
    }

    /// A sleep was ended by the doorbells that are called so, after so long. Whether one of them is a member's.
    #[cfg(feature = "tcpip")]
    pub(super) fn heard(&mut self, rang: &[u64], slept_ns: u64) -> bool {
        self.has_slept = false;
        self.waiter.heard(rang, slept_ns)
    }

    #[cfg(feature = "tcpip")]
    pub(super) fn wait(&self) -> Wait {
        self.wait
    }

    #[cfg(feature = "tcpip")]
    pub(super) fn waiter(&self) -> &Waiter<impl waiter::Member> {
        &self.waiter
    }

    /// Waits until there may be a frame, or room.
    pub(super) fn wait_until(&mut self, deadline_ns: u64) -> io::Result<()> {
        self.give_back();
        self.flush();
        self.waiter.wait_until(deadline_ns)?;
        // It was found and is not served: it is found again.
        Ok(())
    }

    /// Waits until a frame for this member that was given back may go, or there is something new to know about the member;
    /// at most until `deadline_ns`. Frames that wait to be received do not end the wait: nobody takes them meanwhile.
    pub(super) fn wait_for_room(&mut self, destination: Mac, deadline_ns: u64) {
        self.flush();
        let key = match self.table.find(destination).map(|(number, _)| &self.peers[number]) {
            Some(Standing::Joined(key)) => Some(*key),
            Some(Standing::Connecting(..)) => None,
            // The next try shows what became of it.
            _ => return,
        };
        // The address table has no doorbell: whether the member is still in it is asked now and then.
        let deadline_ns = deadline_ns.min(now_ns().saturating_add(TABLE_LOOK_NS));
        let spin_until_ns = match self.wait {
            Wait::Block => 0,
            Wait::Adaptive => deadline_ns.min(now_ns() + SPIN_NS_MAX),
            Wait::Spin => deadline_ns,
        };
        while now_ns() < spin_until_ns {
            for _ in 0..POLLS_PER_CLOCK {
                if self.may_have_room(key) {
                    return;
                }
                pause();
            }
            // A peer that is gone, and the host, are heard of by their doorbells alone.
            if self.hear_of_room(key, Duration::ZERO) {
                return;
            }
        }
        if self.wait == Wait::Spin {
            return;
        }
        if let Some(sender) = self.sender_of(key) {
            sender.announce_sleep();
            sender.counters().add(fabric::path::Counter::Sleeps, 1);
        }
        let time = Duration::from_nanos(deadline_ns.saturating_sub(now_ns()));
        if !self.may_have_room(key) {
            self.hear_of_room(key, time);
        }
        if let Some(sender) = self.sender_of(key) {
            sender.wake();
        }
    }

    /// Listens to the doorbells of a link's sender and of the guest, at most for `time`, and does what the guest has news
    /// of: whether it had any.
    fn hear_of_room(&mut self, key: Option<Key>, time: Duration) -> bool {
        let link = match key.and_then(|key| self.waiter.get(key)) {
            Some(Occupant::Link(joint)) => Some(joint.link.as_halves().0.descriptor()),
            _ => None,
        };
        let heard = wait_any([link, Some(self.guest().as_fd())], Some(time));
        let has_news = heard.is_ok_and(|[_, has_news]| has_news);
        if let Some(sender) = self.sender_of(key) {
            sender.hear(Listen::Now);
        }
        let has_news = has_news || self.guest().has_news();
        if has_news {
            self.guest().hear(now_ns());
            self.serve_guest();
        }
        has_news
    }

    fn may_have_room(&mut self, key: Option<Key>) -> bool {
        // A link that has ended meanwhile holds up nothing.
        let has_room = key.is_some() && self.sender_of(key).is_none_or(|sender| sender.is_ready());
        has_room || self.guest().has_news()
    }

    fn sender_of(&mut self, key: Option<Key>) -> Option<&mut Sender> {
        Some(joint(&mut self.waiter, key?)?.link.halves().0)
    }

    /// The descriptor has become readable: listen before anything is looked at.
    pub(super) fn hear(&mut self) {
        self.has_slept = true;
        self.has_heard = true;
    }

    /// Whether there may be something to do: members that have come and gone are something.
    #[inline]
    pub(super) fn is_ready(&mut self) -> bool {
        // A forked child finds out when it receives.
        self.in_child() || self.has_heard || self.waiter.is_one_ready() || !self.table.is_current()
    }

    /// Gives back memory of all links that was not used lately. Returns whether there may be more later. Links that sleep
    /// go on sleeping: whoever trims a member that sleeps does not prepare it for sleep again.
    pub(super) fn trim(&mut self) -> bool {
        !self.in_child() && self.waiter.trim()
    }

    /// Prepares for a wait in a waiter, which asks [`Mesh::is_ready`] then. Room, or a path, is told once.
    pub(super) fn sleep(&mut self) {
        let has_room = std::mem::take(&mut self.has_room);
        self.prepare_wait();
        self.has_heard |= has_room;
    }

    pub(super) fn prepare_wait(&mut self) -> bool {
        if self.in_child() {
            return false;
        }
        self.give_back();
        self.flush();
        // A frame that was given back may go now, and nobody has been told.
        if std::mem::take(&mut self.has_room) || !self.waiter.prepare_wait() {
            return false;
        }
        self.has_slept = true;
        // What came meanwhile has rung.
        self.table.is_current()
    }
}

#[inline(always)]
fn count_sent(counters: &mut Counters, offload: Offload, bytes: usize) {
    counters.add(Counter::FramesSent, 1);
    counters.add(Counter::BytesSent, bytes as u64);
    counters.add(Counter::SegmentsSent, offload.segments(bytes) as u64);
}

/// The links of a mesh, for an audience.
struct Peers<'a> {
    waiter: &'a mut Waiter<Occupant>,
    peers: &'a [Standing],
}

impl Links for Peers<'_> {
    fn link(&mut self, number: usize) -> Option<&mut Link> {
        match self.peers.get(number)? {
            Standing::Joined(key) => joint(self.waiter, *key).map(|joint| &mut joint.link),
            _ => None,
        }
    }
}

/// What a path to a member of a LAN is asked for with.
pub(super) fn path_options(captures: bool) -> PathOptions {
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

/// What this process lacks, if a path was not made for that.
fn lack_of(error: &ConnectError) -> Option<Lack> {
    match error {
        ConnectError::Resources(error) => Some(Lack::of(error)),
        _ => None,
    }
}

/// Whether a member is still the one that it was, and does what it did. Lives are counted anew by each host.
pub(super) fn is_same(one: &Member, other: &Member) -> bool {
    one.name == other.name && one.captures == other.captures
}

fn is_joined_by(standing: &Standing, key: Key) -> bool {
    matches!(standing, Standing::Joined(own) if *own == key)
}

#[inline(always)]
fn joint(waiter: &mut Waiter<Occupant>, key: Key) -> Option<&mut Joint> {
    match waiter.get_mut(key)? {
        Occupant::Link(joint) => Some(joint),
        Occupant::Guest(_) => None,
    }
}

impl Joint {
    /// The member that it leads to, as the last table has it.
    pub(super) fn peer(&self) -> &Member {
        self.link.peer()
    }
}

impl AsFd for Mesh {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiter.as_fd()
    }
}

impl OneOf for Occupant {
    fn member(&self) -> &dyn waiter::Member {
        match self {
            Occupant::Guest(guest) => &**guest,
            Occupant::Link(joint) => &**joint,
        }
    }

    fn member_mut(&mut self) -> &mut dyn waiter::Member {
        match self {
            Occupant::Guest(guest) => &mut **guest,
            Occupant::Link(joint) => &mut **joint,
        }
    }

    #[inline]
    fn is_one_ready(&mut self) -> bool {
        match self {
            Occupant::Guest(guest) => waiter::Member::is_ready(&mut **guest),
            Occupant::Link(joint) => waiter::Member::is_ready(&mut **joint),
        }
    }
}

/// Ready when a frame waits, or there is room again, or the path has ended.
impl waiter::Member for Joint {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        let (sender, receiver) = self.link.as_halves();
        add(receiver.descriptor());
        add(sender.descriptor());
    }

    fn hear(&mut self, index: usize) -> bool {
        let (sender, receiver) = self.link.halves();
        match index {
            0 => {
                receiver.hear(Listen::Now);
                receiver.ended().is_none()
            }
            _ => {
                sender.hear(Listen::Now);
                sender.ended().is_none()
            }
        }
    }

    #[inline]
    fn is_ready(&mut self) -> bool {
        let wants_room = self.wants_room;
        let is_left = self.ends_after.is_some() || self.waiting.is_some();
        self.link.is_ready() || is_left || wants_room && self.link.halves().0.is_ready()
    }

    fn sleep(&mut self) {
        let wants_room = self.wants_room;
        let (sender, receiver) = self.link.halves();
        receiver.announce_sleep();
        receiver.counters().add(fabric::path::Counter::Sleeps, 1);
        if wants_room {
            sender.announce_sleep();
        } else {
            sender.flush();
        }
    }

    fn wake(&mut self) {
        let (sender, receiver) = self.link.halves();
        receiver.wake();
        sender.wake();
    }

    fn trim(&mut self) -> bool {
        self.link.trim()
    }

    fn count(&mut self, polls: u64, spinning_ns: u64) {
        let (_, receiver) = self.link.halves();
        count_polls(receiver.counters(), polls, false, spinning_ns);
    }
}
