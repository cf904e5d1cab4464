//! The agent: it moves frames between a TAP device and a LAN.
//!
//! Frames from the device are read in batches into a room, checked, and copied into the pages of the path to their
//! target. Frames from the LAN are written to the device from the pages of their sender. Questions of ARP and of
//! IPv6's neighbour discovery are answered from the address table of the LAN, and a frame goes to the member that has its IP destination
//! now, whomever the kernel takes for that.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use net::lan::admission::Refused;
use net::lan::claim::{Claim, claim};
use net::lan::frame;
use net::lan::neighbour;
use net::lan::offload::Offload;
use net::lan::too_long;
use os::tap::{HEAD_BYTES, Tap};
use siga::Name;
use siga::lan::{Counter, FrameInPlace, Lan, SendFrameError, TrySendFrameError};
use siga::waiter::Member;

use crate::backlog::{Backlog, Tried};
use crate::head;
use crate::hosts::Hosts;
use crate::neighbours::Neighbours;
use crate::serve::Moves;

/// Frames that go one way before those that go the other have their turn.
pub(crate) const BATCH: usize = 32;

/// A port of a LAN: a member that stands for a TAP device.
#[derive(Debug)]
pub struct Agent {
    lan: Lan,
    tap: Tap,
    /// What is read from the device.
    room: Vec<u8>,
    backlog: Backlog,
    neighbours: Neighbours,
    /// The names of the members, for the program.
    hosts: Option<Hosts>,
    counters: Counters,
    /// The user was told of frames from another MAC address, and of frames that are too long.
    has_told: [bool; 2],
    /// The user was told that a new host refuses what the port had.
    has_told_refused: bool,
    /// Messages to the user.
    notices: Vec<String>,
}

/// What may have something for a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// The device.
    pub device: bool,
    /// The network: its doorbells have rung.
    pub network: bool,
}

/// What a port has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames read from the device.
    pub frames_read: u64,
    /// Bytes of these.
    pub bytes_read: u64,
    /// Frames written to the device.
    pub frames_written: u64,
    /// Bytes of these.
    pub bytes_written: u64,
    /// Questions after an address that were answered from the address table.
    pub frames_answered: u64,
    /// Frames that the device did not take.
    pub dropped_device: u64,
    /// Frames from the device that make no sense, or are refused by the network.
    pub dropped_bad: u64,
    /// Frames of another VLAN than the device's, either way.
    pub dropped_vlan: u64,
    /// Frames from the device for nobody, or for a member that cannot be reached.
    pub dropped_no_member: u64,
    /// Frames from the device that did not go because this process lacks descriptors or memory.
    pub dropped_lacking: u64,
    /// Frames from the device for a member that was too far behind for too long.
    pub dropped_full: u64,
}

/// Why a port has come to its end.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// The interface is gone.
    #[error("the interface is gone")]
    Device,
    /// The network cannot be received from, or the kernel lets nobody wait.
    #[error("the network: {0}")]
    Network(io::Error),
}

impl Agent {
    /// A port of `lan` for the interface of `tap`, whose kernel sends packets to elsewhere over `gateways`, and whose program reads `hosts`.
    pub fn new(lan: Lan, tap: Tap, gateways: Vec<IpAddr>, hosts: Option<Hosts>) -> Agent {
        let mut backlog = Backlog::default();
        let (room, counters) = (backlog.room(), Counters::default());
        let neighbours = Neighbours::new(gateways);
        Agent {
            lan,
            tap,
            room,
            backlog,
            neighbours,
            hosts,
            counters,
            has_told: [false; 2],
            has_told_refused: false,
            notices: Vec::new(),
        }
    }

    /// The membership.
    pub fn lan(&mut self) -> &mut Lan {
        &mut self.lan
    }

    /// From the device into the LAN. Whether there may be more.
    fn read_batch(&mut self) -> Result<bool, Ended> {
        let mut head = [0; HEAD_BYTES];
        for _ in 0..BATCH {
            let read = self.tap.read(&mut head, &mut self.room).map_err(|_| Ended::Device)?;
            let Some(bytes) = read else { return Ok(false) };
            self.counters.frames_read += 1;
            self.counters.bytes_read += bytes as u64;
            match head::from_kernel(&head, &mut self.room[..bytes]) {
                Ok((offload, start)) => self.send(offload, (start, bytes)),
                Err(_) => self.counters.dropped_bad += 1,
            }
        }
        Ok(true)
    }

    /// Sends the frame from `start` to `end` of the room, or answers it, or keeps it, or drops it.
    fn send(&mut self, offload: Offload, (start, end): (usize, usize)) {
        let Agent { lan, tap, room, backlog, neighbours, counters, .. } = self;
        let bytes = &room[start..end];
        let is_probe = neighbour::is_probe(bytes);
        let find = |address| {
            let owner = lan.find_owner(address).map(|member| member.mac);
            // What is behind a member is reached over it. An address that nobody on the LAN has may be taken all the same.
            owner.or_else(|| Some(lan.find_way(address).filter(|_| !is_probe)?.mac))
        };
        // The answer has no tag: to a question in a VLAN its members answer.
        let answer = if offload.vlan.is_none() { neighbour::answer(bytes, find) } else { None };
        if let Some(answer) = answer {
            counters.frames_answered += 1;
            lan.count(Counter::AnsweredHere, 1);
            if tap.write(&[&[0; HEAD_BYTES], &answer], None).is_err() {
                counters.dropped_device += 1;
            }
            return;
        }
        // Nobody else is to be asked: no kernel would be told what another member answers.
        if claim(bytes, offload, lan.own()) == Claim::Discovery {
            counters.dropped_no_member += 1;
            lan.count(Counter::DroppedDiscovery, 1);
            return;
        }
        let Some(mut target) = frame::destination(bytes) else {
            counters.dropped_bad += 1;
            return;
        };
        // Members of a VLAN know each other's MAC addresses from each other.
        if !target.is_group()
            && offload.vlan.is_none()
            && let Some(instead) = neighbours.instead(lan, target, bytes)
        {
            target = instead;
            room[start..start + target.0.len()].copy_from_slice(&target.0);
        }
        let bytes = &room[start..end];
        let has_to_wait = !backlog.is_empty() && backlog.has(target);
        if !has_to_wait {
            match lan.try_push(offload, bytes) {
                Ok(()) => return,
                Err(TrySendFrameError::Full) => {}
                Err(error) => {
                    let refused = match &error {
                        TrySendFrameError::Send(SendFrameError::Refused(refused)) => Some(*refused),
                        _ => None,
                    };
                    counters.drop_for(error);
                    if let Some(refused) = refused {
                        self.tell_refused(refused, offload, (start, end));
                    }
                    return;
                }
            }
        }
        if !backlog.keep(target, offload, room, (start, end)) {
            counters.dropped_full += 1;
        }
    }

    /// Tells the sender and the user why the LAN refuses the frame from `start` to `end` of the room, where they can help it.
    #[cold]
    fn tell_refused(&mut self, refused: Refused, offload: Offload, (start, end): (usize, usize)) {
        let Agent { lan, tap, room, counters, has_told, notices, .. } = self;
        let reason = match refused {
            Refused::Source { .. } => 0,
            Refused::Length { .. } => 1,
            _ => return,
        };
        if reason == 1
            && let Some(answer) = too_long::answer(&room[start..end], lan.mtu())
        {
            let (head, tag) = head::to_kernel(Offload { vlan: offload.vlan, ..Offload::NONE });
            let (addresses, behind) = answer.split_at(12);
            let tag = tag.as_ref().map_or(&[][..], |tag| &tag[..]);
            if tap.write(&[&head, addresses, tag, behind], None).is_err() {
                counters.dropped_device += 1;
            }
        }
        if !std::mem::replace(&mut has_told[reason], true) {
            let what = match refused {
                Refused::Source { found, own } => {
                    format!("source address {found} is not the member's, which is {own}")
                }
                _ => format!("packets have at most {} bytes on this LAN: {refused}", lan.mtu()),
            };
            let name = lan.own().name;
            notices.push(format!(
                "{name}: {what}; such frames are dropped, and counted as refused (siga query lan)"
            ));
        }
    }

    /// Tries the frames again that wait for their targets. Whether any went.
    fn retry(&mut self) -> bool {
        let Agent { lan, backlog, counters, .. } = self;
        !backlog.is_empty()
            && backlog.retry(|offload, bytes| match lan.try_push(offload, bytes) {
                Ok(()) => Tried::Done,
                Err(TrySendFrameError::Full) => Tried::Full,
                Err(error) => {
                    counters.drop_for(error);
                    Tried::Done
                }
            })
    }

    /// From the LAN into the device.
    fn write_batch(&mut self) -> Result<bool, Ended> {
        let Agent { lan, tap, counters, .. } = self;
        for number in 0..BATCH {
            let frame = lan.try_receive_in_place().map_err(Ended::Network)?;
            let Some(frame) = frame else { return Ok(number > 0) };
            if !write(tap, &frame, counters) {
                lan.count(Counter::DroppedDevice, 1);
            }
        }
        Ok(true)
    }
}

impl Moves for Agent {
    /// A frame that comes alone is to cost few system calls: the device is read only if it is `ready`, or was written to
    /// just now, for then a program may have answered.
    fn poll(&mut self, ready: Ready) -> Result<bool, Ended> {
        if ready.network {
            self.lan.hear(0);
        }
        let Agent { lan, tap, neighbours, .. } = self;
        // If the device has no room for the news, the frames find their way all the same.
        neighbours.tell_changes(lan, |frame| drop(tap.write(&[&[0; HEAD_BYTES], frame], None)));
        let has_written = self.lan.is_ready() && self.write_batch()?;
        let has_more = (ready.device || has_written) && self.read_batch()?;
        let has_tried = self.retry();
        self.lan.flush();
        Ok(has_more || has_tried || self.lan.is_ready())
    }

    fn prepare_wait(&mut self) -> bool {
        // The LAN may have had room for a frame that was looked at before: so it is tried once more.
        !self.retry() && self.lan.prepare_wait()
    }

    fn due(&self) -> Option<u64> {
        None
    }

    /// Members change in memory, and nobody is woken for that.
    fn has_to_look(&self) -> bool {
        self.hosts.is_some() || self.backlog.has_spare()
    }

    fn follow(&mut self) {
        let Agent { lan, hosts, has_told_refused, notices, .. } = self;
        if let Some(hosts) = hosts {
            // Without memory the names stay what they were, and are tried again with the next change.
            let _ = hosts.follow(lan);
        }
        let refused = lan.refused();
        if let Some(error) = refused
            && !*has_told_refused
        {
            notices.push(format!("{}: the new host says: {error}; it is asked again", lan.name()));
        }
        *has_told_refused = refused.is_some();
    }

    fn has_backlog(&self) -> bool {
        !self.backlog.is_empty() || self.lan.waiting_frames() > 0
    }

    fn trim(&mut self) {
        self.backlog.trim();
    }

    fn take_notice(&mut self) -> Option<String> {
        (!self.notices.is_empty()).then(|| self.notices.remove(0))
    }

    fn name(&self) -> Name {
        self.lan.own().name
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn tap(&self) -> &Tap {
        &self.tap
    }

    fn network(&self) -> BorrowedFd<'_> {
        self.lan.as_fd()
    }
}

/// Writes a frame to the device. False if the device does not take it.
pub(crate) fn write(tap: &Tap, frame: &FrameInPlace<'_>, counters: &mut Counters) -> bool {
    let FrameInPlace { offload, start, rest } = *frame;
    let (head, tag) = head::to_kernel(offload);
    // A tag is behind the two addresses. What has none is no frame of a network.
    let (addresses, behind) = start.split_at(start.len().min(12));
    let tag = tag.as_ref().map_or(&[][..], |tag| &tag[..]);
    let is_written = tap.write(&[&head, addresses, tag, behind], rest).is_ok();
    if is_written {
        counters.frames_written += 1;
        counters.bytes_written += (start.len() + rest.map_or(0, |rest| rest.bytes())) as u64;
    } else {
        counters.dropped_device += 1;
    }
    is_written
}

impl Counters {
    fn drop_for(&mut self, error: TrySendFrameError) {
        match error {
            TrySendFrameError::Full => self.dropped_full += 1,
            TrySendFrameError::Send(SendFrameError::Refused(_)) => self.dropped_bad += 1,
            TrySendFrameError::Send(SendFrameError::Lacking(_)) => self.dropped_lacking += 1,
            _ => self.dropped_no_member += 1,
        }
    }
}
