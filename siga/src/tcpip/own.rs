//! A stack of one's own and the LANs that it is at, for one who has them to itself.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};

use fabric::name::Name;
use net::board::{self, DriverRow};
use net::lan::link::{Frame, FrameInParts};
use net::lan::offload::Offload;
use net::tcpip::{Link, SendToError, Stack, Unsent};
use os::event::Event;
use os::poller::Sleeper;
use os::processor::now_ns;

use super::distributing::{self, Distributing};
use super::driver::{Placement, StackDriver};
use super::lans::Lans;
use super::members::{Members, is_fair};
use super::questions::Questions;
use super::routing::Routing;
use super::sorting::Sorting;
use crate::lan::{SendFrameError, TrySendFrameError};
use crate::osa::Osa;

/// Frames received before what they bring is answered: a few, so that the other side goes on meanwhile.
const FRAMES_PER_POLL: usize = 4;

/// Messages received from a line before what they bring is answered: one, which the partner waits for.
const MESSAGES_PER_POLL: usize = 1;

/// Packets that are taken out of that message, good or bad, before what they bring is answered. The rest waits for the next turn of the line.
const PACKETS_PER_POLL: usize = 64;

/// Packets that are taken out of an adapter's buffers before what they bring is answered.
const FRAMES_PER_BUFFER: usize = 16;

/// Rounds of that in one verb that does not wait. More is left to the next verb.
const ROUNDS_MAX: usize = 64;

/// Rounds in which no time runs out because something was received.
const ROUNDS_HELD_MAX: usize = 16;

/// How long connections with a host that is missing from the LAN go on after a new host of the system has come, which has to hear from all members
/// again first; and how long the host may be missing where no host of the system has heard from us.
const GONE_NS: u64 = 3_000_000_000;

/// How long it may be missing where the host of the system is there and has taken it off the LAN, or where its path to us has ended: paths go on while
/// members become members at a new host.
const LEFT_NS: u64 = 500_000_000;

/// How long until a stack tries again to sleep where the driver of a LAN has gone to, if descriptors were lacking.
const SETTLE_NS: u64 = 1_000_000;

/// How often a stack that is at work shows observers how it stands. One that waits has shown it before.
const SHOWN_NS: u64 = 50_000_000;

pub(super) struct Own {
    pub(super) lans: Lans,
    pub(super) routing: Routing,
    /// How long packets may be at LANs at most, where somebody has said so.
    pub(super) mtus: HashMap<usize, usize>,
    pub(super) net: Stack,
    /// The frame that is looked at: a copy, because its sender may still write where it lies.
    frame: Vec<u8>,
    pub(super) members: Members,
    /// When observers were shown how the stack stands.
    shown_ns: u64,
    /// LANs whose devices have changed hands, and at which the stack still sleeps where it slept before.
    moved: BTreeSet<usize>,
    /// What they were shown of the drivers.
    drivers_shown: Vec<DriverRow>,
    /// Hosts to which there are connections and whose members are missing, and since when.
    gone: HashMap<IpAddr, u64>,
    /// When paths have ended to hosts that there are connections with, in the last [`GONE_NS`].
    parted: HashMap<IpAddr, u64>,
    /// Addresses that have left, of which a stack with parts in distributed addresses has not been told.
    left: HashSet<IpAddr>,
    /// When to look at those that are missing again.
    gone_due: Option<u64>,
    /// The count of tables of each LAN, and when one was last another: a new host has come.
    tables: Vec<Option<u64>>,
    tables_ns: u64,
    /// Addresses of ours that the host that is there now does not give us, and why.
    lost: HashMap<IpAddr, String>,
    /// Hosts that are asked whether they still have their connections.
    questions: Questions,
    sorting: Sorting,
    distributing: Distributing,
}

/// What came of work with a stack.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Worked {
    /// Set if something has come or was sent, which is news for those who wait for anything.
    pub(super) has_worked: bool,
    /// Set if there may be more to do at once.
    pub(super) has_more: bool,
}

impl Own {
    pub(super) fn new(lans: Lans, routing: Routing, net: Stack) -> Own {
        Own {
            lans,
            routing,
            mtus: HashMap::new(),
            net,
            frame: Vec::new(),
            members: Members::default(),
            shown_ns: 0,
            moved: BTreeSet::new(),
            drivers_shown: Vec::new(),
            gone: HashMap::new(),
            parted: HashMap::new(),
            left: HashSet::new(),
            gone_due: None,
            tables: Vec::new(),
            tables_ns: 0,
            lost: HashMap::new(),
            questions: Questions::default(),
            sorting: Sorting::default(),
            distributing: Distributing::default(),
        }
    }

    /// Receives what has come, and sends what is due. What is left when somebody else waits for the stack is left to that one.
    pub(super) fn pump(&mut self, is_wanted: impl Fn() -> bool) -> io::Result<Worked> {
        let mut now = 0;
        let mut worked = Worked::default();
        for round in 0..ROUNDS_MAX {
            now = now_ns();
            let mut has_received = false;
            for number in 0..self.lans.end() {
                if self.lans.has(number) {
                    has_received |= self.receive_from(number, now)?;
                } else if self.lans.has_line(number) {
                    has_received |= self.receive_over(number, now)?;
                } else if self.lans.has_osa(number) {
                    has_received |= self.receive_at(number, now)?;
                }
            }
            // What has come may be what a timer waits for. Whoever floods us does not stop all timers.
            self.net.hold_timers(has_received && round < ROUNDS_HELD_MAX);
            let mut wire = Wire { lans: &mut self.lans, members: &self.members };
            let has_more = self.net.poll(now, &mut wire);
            worked.has_more = has_received || has_more;
            worked.has_worked |= worked.has_more;
            if !worked.has_more || is_wanted() {
                break;
            }
        }
        self.follow_members();
        self.follow_hosts();
        self.sorting.follow(now, &mut self.lans, &mut self.net);
        if self.net.has_distributions() {
            let Own { distributing, lans, members, net, .. } = self;
            distributing.follow(now, lans, members, net);
        }
        self.lans.flush();
        if now.saturating_sub(self.shown_ns) >= SHOWN_NS {
            self.show(now);
        }
        Ok(worked)
    }

    /// Receives some of what has come from a LAN: whether there was anything.
    fn receive_from(&mut self, lan: usize, now: u64) -> io::Result<bool> {
        // A frame can be the first of a new member, or for one.
        self.note_members();
        if self.lans.get(lan).is_queued() {
            let has_received = self.receive_queued(lan, now);
            if has_received || self.lans.get(lan).is_driven() {
                return Ok(has_received);
            }
        }
        let has_room = self.lans.get(lan).retry(now);
        let mut received = 0;
        while received < FRAMES_PER_POLL
            && let Some(found) = self.lans.get(lan).try_find_in_place()?
        {
            received += 1;
            let Own { lans, net, members, frame, .. } = self;
            let Some(in_place) = lans.get(lan).found_in_place(found) else { continue };
            let offload = in_place.offload;
            frame.clear();
            frame.extend_from_slice(in_place.start);
            if let Some(rest) = in_place.rest {
                let bytes = frame.len() + rest.bytes();
                let mut wire = Wire { lans, members };
                if let Some(admitted) = net.admit_in_place(lan, offload, (frame, bytes), &mut wire)
                {
                    if let Some(in_place) = lans.get(lan).found_in_place(found) {
                        net.receive_in_place(now, admitted, in_place);
                    }
                    continue;
                }
                let start = frame.len();
                frame.resize(bytes, 0);
                let in_place = lans.get(lan).found_in_place(found);
                // What its sender took away meanwhile is no frame.
                let rest = in_place.and_then(|in_place| in_place.rest);
                let is_there = rest.is_some_and(|rest| {
                    rest.bytes() == bytes - start && rest.read(0, &mut frame[start..]).is_ok()
                });
                if !is_there {
                    continue;
                }
            }
            net.receive(now, lan, Frame { offload, bytes: frame }, &mut Wire { lans, members });
        }
        self.lans.get(lan).give_back_found();
        Ok(received > 0 || has_room)
    }

    /// Receives some of what the driver of a LAN has received: whether there was anything.
    fn receive_queued(&mut self, lan: usize, now: u64) -> bool {
        let mut frame = std::mem::take(&mut self.frame);
        let mut received = 0;
        while received < FRAMES_PER_POLL
            && let Some(offload) = self.lans.get(lan).take_queued(&mut frame)
        {
            received += 1;
            // The driver has published its sender before.
            self.note_members();
            let Own { lans, net, members, .. } = self;
            let bytes = &mut frame[..];
            net.receive(now, lan, Frame { offload, bytes }, &mut Wire { lans, members });
        }
        self.frame = frame;
        if received > 0 {
            self.lans.get(lan).note_taken();
        }
        received > 0
    }

    /// Receives some of what has come over a line, and does what else the line has to do: whether there was anything.
    fn receive_over(&mut self, number: usize, now: u64) -> io::Result<bool> {
        let Own { lans, net, members, .. } = self;
        let Some(line) = lans.line(number) else { return Ok(false) };
        let mut has_worked = line.poll(now)?;
        let mut buffer = line.take_buffer();
        for _ in 0..MESSAGES_PER_POLL {
            let Some(mut message) =
                lans.line(number).and_then(|line| line.receive(now, &mut buffer))
            else {
                break;
            };
            has_worked = true;
            let mut looks = PACKETS_PER_POLL;
            while let Some((frame, offload)) = lans
                .line(number)
                .and_then(|line| line.next_packet(&mut message, &mut buffer, &mut looks))
            {
                let frame = Frame { offload, bytes: &buffer[frame] };
                net.receive(now, number, frame, &mut Wire { lans, members });
            }
            if let Some(line) = lans.line(number) {
                line.keep(message);
            }
        }
        if let Some(line) = lans.line(number) {
            line.give_back(buffer);
            has_worked |= line.take_worked();
        }
        Ok(has_worked)
    }

    /// Receives some of what has come from an adapter: whether there was anything.
    fn receive_at(&mut self, number: usize, now: u64) -> io::Result<bool> {
        let Some(osa) = self.lans.osa(number) else { return Ok(false) };
        let mut has_worked = osa.poll(now)?;
        for _ in 0..FRAMES_PER_BUFFER {
            let Own { lans, net, members, frame, .. } = self;
            let Some(offload) = lans.osa(number).and_then(Osa::next_frame) else { break };
            has_worked = true;
            let Some(found) = lans.osa(number).and_then(|osa| osa.found()) else { continue };
            frame.clear();
            frame.extend_from_slice(found.start);
            if let Some(rest) = found.rest {
                let (start, bytes) = (frame.len(), frame.len() + rest.bytes());
                let mut wire = Wire { lans, members };
                if let Some(admitted) =
                    net.admit_in_place(number, offload, (frame, bytes), &mut wire)
                {
                    if let Some(in_place) = lans.osa(number).and_then(|osa| osa.found()) {
                        net.receive_in_place(now, admitted, in_place);
                    }
                    continue;
                }
                frame.resize(bytes, 0);
                let found = lans.osa(number).and_then(|osa| osa.found());
                let rest = found.and_then(|found| found.rest);
                if rest.is_none_or(|rest| rest.read(0, &mut frame[start..]).is_err()) {
                    continue;
                }
            }
            net.receive(now, number, Frame { offload, bytes: frame }, &mut Wire { lans, members });
        }
        if let Some(osa) = self.lans.osa(number) {
            osa.finish();
        }
        Ok(has_worked)
    }

    /// When observers were shown last how the stack stands.
    pub(super) fn shown_ns(&self) -> u64 {
        self.shown_ns
    }

    /// Shows observers how the stack stands.
    pub(super) fn show(&mut self, now: u64) {
        self.shown_ns = now;
        self.lans.show_at_line(now);
        if let Some(first) = self.lans.first() {
            self.net.show(now, first.board());
            let drivers = || self.lans.iter().map(|(number, port)| port.driver(number).row());
            // Most drivers are inline, and nothing of them is ever new.
            if !drivers().eq(self.drivers_shown.iter().copied()) {
                board::show_drivers(first.board(), drivers());
                self.drivers_shown = drivers().collect();
            }
        }
    }

    /// Takes note of whose addresses are whose, before one of them leaves whose frames are still to be received. One load if
    /// nothing has changed.
    pub(super) fn note_members(&mut self) {
        let Own { lans, net, members, questions, gone, .. } = self;
        members.follow(lans, net);
        for (lan, address) in members.take_taken_over() {
            // Another LAN may have the same address, and ours be there.
            if net.neighbour_to(address).is_some_and(|way| way != (lan, address)) {
                continue;
            }
            // A gateway only passes on what is for those behind it, but it may be one that stands in for them.
            if net.is_gateway(address) {
                let mut hosts = net.hosts();
                hosts.retain(|host| net.neighbour_to(*host) == Some((lan, address)));
                hosts.into_iter().for_each(|host| questions.ask(host));
            }
            // Those behind an address that is distributed are the same as before, and whoever has it now finds out who they are.
            if members.is_shared(lan, address) {
                questions.ask(address);
                continue;
            }
            // Whoever has it now is to learn nothing of what was with the other.
            net.end_with(address);
            gone.remove(&address);
        }
    }

    /// Takes note of new hosts, each of which has tables of its own. Other members may have been there before this one, and have taken it for gone:
    /// all are asked whether they know their connections.
    fn note_tables(&mut self) {
        let Own { lans, net, questions, tables, tables_ns, .. } = self;
        tables.resize(lans.end(), None);
        for (number, lan) in lans.iter() {
            let count = Some(lan.tables());
            let before = std::mem::replace(&mut tables[number], count);
            if before == count {
                continue;
            }
            *tables_ns = now_ns();
            if before.is_some() {
                let is_here =
                    |host: &IpAddr| net.neighbour_to(*host).is_some_and(|(lan, _)| lan == number);
                net.hosts().into_iter().filter(is_here).for_each(|host| questions.ask(host));
            }
        }
    }

    /// Finds out which connections have lost their other side: nothing may come from there that would say so.
    fn follow_members(&mut self) {
        // What is decided is decided by one state of the tables.
        self.note_members();
        self.note_tables();
        let Own { lans, net, members, questions, gone, .. } = self;
        let parted = lans.take_parted();
        if !parted.is_empty() || !self.parted.is_empty() {
            let now = now_ns();
            let hosts = parted.iter().map(|(_, host)| *host);
            self.parted.extend(
                hosts.filter(|host| net.has_connections_with(*host)).map(|host| (host, now)),
            );
            self.parted.retain(|_, since| now.saturating_sub(*since) < GONE_NS);
        }
        if members.has_changed() || !parted.is_empty() {
            let changed = members.take_changed();
            self.left.extend(changed.iter().copied().filter(|_| net.has_distributions()));
            members.forget(|address| {
                net.has_connections_with(address)
                    || net.is_gateway(address)
                    || net.holds_frames_for(address)
            });
            let is_gateway = |address: &IpAddr| net.is_gateway(*address);
            let mut hosts: HashSet<IpAddr> =
                changed.iter().copied().chain(parted.iter().map(|(_, address)| *address)).collect();
            // What becomes of a gateway concerns all hosts behind it.
            match hosts.iter().any(is_gateway) {
                true => hosts = net.hosts(),
                false => hosts.retain(|host| net.has_connections_with(*host)),
            }
            for host in hosts {
                let Some(member) = member_to(lans, net, host) else {
                    gone.entry(host).or_insert_with(now_ns);
                    continue;
                };
                // A host that is still there, or there again, is asked whether it knows its connections.
                if gone.remove(&host).is_some() || parted.contains(&member) {
                    questions.ask(host);
                }
            }
        }
        self.gone_due = None;
        if !gone.is_empty() {
            let now = now_ns();
            // A host that ends, too, takes members off the LAN, but then all.
            let is_kept = lans.iter_mut().all(|(_, lan)| {
                let (mac, address) = (lan.mac(), lan.addresses().first().copied());
                let own = address.and_then(|address| lan.find_address(address));
                own.is_some_and(|own| own.mac == mac)
            });
            let tables_ns = self.tables_ns;
            gone.retain(|host, since| {
                let until_ns = match self.parted.contains_key(host) {
                    true => *since + LEFT_NS,
                    // Another takes over what is distributed.
                    false if members.has_shared(*host) => (*since).max(tables_ns) + GONE_NS,
                    false if is_kept => (*since + LEFT_NS).max(tables_ns + GONE_NS),
                    false => (*since).max(tables_ns) + GONE_NS,
                };
                if now < until_ns {
                    self.gone_due = self.gone_due.into_iter().chain([until_ns]).min();
                    return true;
                }
                // One that has come back meanwhile is asked at the next look at the tables.
                let is_over = member_to(lans, net, *host).is_none();
                if is_over {
                    net.end_with(*host);
                }
                !is_over
            });
        }
        if !questions.is_empty() {
            let now = now_ns();
            questions.take_due(now, |host| net.question(host));
        }
        self.lose_distributed();
    }

    /// Stacks that have parts in distributed addresses may be among those that have left. While a new host is hearing from all members, nobody has; those that
    /// it does not have after that have.
    fn lose_distributed(&mut self) {
        if self.left.is_empty() {
            return;
        }
        let (now, until_ns) = (now_ns(), self.tables_ns + GONE_NS);
        if now < until_ns {
            self.gone_due = self.gone_due.into_iter().chain([until_ns]).min();
            return;
        }
        let Own { lans, net, members, .. } = self;
        // A host that ends takes members off the LAN, too, but then all: ours as well, where the stack has an address.
        let is_kept = lans.iter_mut().all(|(_, lan)| {
            let (mac, own) = (lan.mac(), lan.addresses().first().copied());
            own.is_none_or(|own| lan.find_address(own).is_some_and(|own| own.mac == mac))
        });
        if !is_kept {
            return;
        }
        for address in self.left.drain() {
            let is_here = lans.iter_mut().any(|(_, lan)| lan.find_address(address).is_some());
            if !is_here {
                net.lose_distributed(now, address, &mut Wire { lans, members });
            }
        }
    }

    /// Takes over what new hosts say: how long packets may be, and which addresses are not ours any more.
    fn follow_hosts(&mut self) {
        let Own { lans, net, lost, mtus, members, .. } = self;
        // What the two ends of a line agree on may be less than one of them has asked for.
        for (number, line) in lans.lines() {
            set_mtu(net, number, limited(line.mtu(), mtus.get(&number)));
        }
        for (number, osa) in lans.osas() {
            set_mtu(net, number, limited(osa.mtu(), mtus.get(&number)));
        }
        let mut refused = HashMap::new();
        for (_, osa) in lans.osas() {
            let why = |why| format!("{} refuses it: {why}", osa.adapter());
            let addresses = osa.refused_addresses().iter();
            refused.extend(addresses.map(|(address, refused)| (*address, why(refused))));
        }
        for (number, lan) in lans.iter_mut() {
            set_mtu(net, number, limited(lan.mtu() as usize, mtus.get(&number)));
            if let Some((addresses, why)) = lan.lost() {
                refused.extend(addresses.into_iter().map(|address| (address, why.clone())));
            }
        }
        if refused.is_empty() && lost.is_empty() {
            return;
        }
        // Another distributes it at this host. What the stack has as a target goes on.
        let distributed = refused.extract_if(|address, _| net.has_part_in(*address));
        for (address, _) in distributed.collect::<Vec<_>>() {
            net.set_distributes(now_ns(), address, false, &mut Wire { lans, members });
        }
        for address in refused.keys().filter(|address| !lost.contains_key(*address)) {
            net.end_from(*address);
        }
        net.set_unavailable(refused.keys().copied());
        *lost = refused;
    }

    /// Checks that an address of the stack is its own now. For the unspecified address: that at least one is.
    pub(super) fn check_own(&self, address: IpAddr) -> io::Result<()> {
        if !address.is_unspecified() && !self.net.addresses().contains(&address) {
            let why = format!("{address} is an address of this stack no longer");
            return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, why));
        }
        if self.lost.is_empty() {
            return Ok(());
        }
        let lost = match address.is_unspecified() {
            false => self.lost.get(&address),
            true if self.net.addresses().iter().all(|own| self.lost.contains_key(own)) => {
                self.lost.values().next()
            }
            true => None,
        };
        match lost {
            Some(why) => {
                let why = format!(
                    "the host that is there now does not give this stack its address: {why}"
                );
                Err(io::Error::new(io::ErrorKind::AddrNotAvailable, why))
            }
            None => Ok(()),
        }
    }

    /// Returns the first address that the stack does not have now, and the reason. None if it has all.
    pub(super) fn refused(&self) -> Option<(IpAddr, &str)> {
        self.lost.iter().next().map(|(address, why)| (*address, why.as_str()))
    }

    /// When something is to be done at the latest, if nothing comes before.
    pub(super) fn due(&self) -> Option<u64> {
        let lines = self.lans.lines().filter_map(|(_, line)| line.due());
        let lines = lines.chain(self.lans.osas().filter_map(|(_, osa)| osa.due()));
        let drivers = self.lans.iter().filter_map(|(_, lan)| lan.due());
        let is_unsettled = !self.moved.is_empty() || self.distributing.is_waiting();
        let unsettled = is_unsettled.then(|| now_ns() + SETTLE_NS);
        let others = lines.chain(drivers).chain(self.questions.due()).chain(unsettled);
        self.net.due().into_iter().chain(self.gone_due).chain(others).min()
    }

    /// Has the driver of a LAN run there, and returns where it runs now. The stack may sleep elsewhere from now on: [`Own::sleepers`].
    ///
    /// # Errors
    /// `InvalidInput` if the stack is not at this LAN, or may take over a distributed address there; otherwise as [`Port::place`].
    pub(super) fn place(
        &mut self,
        lan: usize,
        placement: Placement,
        interrupt: &Event,
    ) -> io::Result<Placement> {
        let wrong = |problem| io::Error::new(io::ErrorKind::InvalidInput, problem);
        let is_elsewhere = placement != Placement::Inline;
        if is_elsewhere && distributing::may_distribute_at(&self.lans, &self.net, lan) {
            let problem = format!(
                "LAN {lan}: the stack may take over a distributed address there, so its driver must be inline"
            );
            return Err(wrong(problem));
        }
        let Some(port) = self.lans.lan(lan) else {
            return Err(wrong(format!("LAN {lan}: the stack is not at it")));
        };
        let was_driven = port.is_driven();
        let placed = port.place(placement, interrupt)?;
        if port.is_driven() != was_driven {
            self.moved.insert(lan);
        }
        Ok(placed)
    }

    /// Takes over the devices of drivers that have stalled or ended. The stack sleeps elsewhere from now on: [`Own::sleepers`].
    pub(super) fn take_over(&mut self) {
        let now = now_ns();
        for (number, port) in self.lans.iter_mut() {
            if port.is_expired(now) && port.take_over(now) {
                self.moved.insert(number);
            }
        }
    }

    /// Where the stack is to sleep at the LANs whose devices have changed hands. A sleeper for which a descriptor is lacking is left out, and
    /// made with a later poll: [`Own::due`] says when.
    pub(super) fn sleepers(&mut self, interrupt: &Event) -> Vec<(usize, Sleeper)> {
        let Own { lans, moved, .. } = self;
        moved.retain(|number| lans.has(*number));
        let sleeper = |number: &usize| Some((*number, lans.lan(*number)?.sleeper(interrupt).ok()?));
        moved.iter().filter_map(sleeper).collect()
    }

    /// The stack sleeps at a LAN where it is to.
    pub(super) fn has_settled(&mut self, lan: usize) {
        self.moved.remove(&lan);
    }

    /// Returns true if a driver has a device, or the stack does not sleep yet where it is to.
    pub(super) fn is_driven(&self) -> bool {
        !self.moved.is_empty() || self.lans.iter().any(|(_, port)| port.is_driven())
    }

    /// The drivers of all LANs.
    pub(super) fn drivers(&self) -> Vec<StackDriver> {
        self.lans.iter().map(|(number, port)| port.driver(number)).collect()
    }

    /// Sends what there is to send.
    pub(super) fn push(&mut self) -> Worked {
        let now = now_ns();
        let mut worked = Worked { has_more: true, has_worked: false };
        // What has come meanwhile is received by the next pump.
        self.net.hold_timers(true);
        for _ in 0..ROUNDS_MAX {
            if !self.net.poll(now, &mut Wire { lans: &mut self.lans, members: &self.members }) {
                worked.has_more = false;
                break;
            }
            worked.has_worked = true;
        }
        self.lans.flush();
        worked
    }

    /// What is to be said of an address that is neither the stack's own nor a member's, and that no route leads to.
    pub(super) fn check_reachable(&mut self, address: IpAddr) -> io::Result<()> {
        self.note_members();
        if !self.lost.is_empty() {
            self.check_own(self.net.source_for(address).unwrap_or(address))?;
        }
        if self.net.addresses().contains(&address) {
            return Ok(());
        }
        let way = self.net.neighbour_to(address);
        // Nobody but the other end, or the adapter, knows who is there.
        let is_elsewhere = |number| self.lans.has_line(number) || self.lans.has_osa(number);
        if way.is_some_and(|(number, _)| is_elsewhere(number))
            || member_to(&mut self.lans, &self.net, address).is_some()
        {
            return Ok(());
        }
        Err(io::ErrorKind::HostUnreachable.into())
    }

    /// The first address of our families that a guest has.
    pub(super) fn address_of(&mut self, guest: Name) -> Option<IpAddr> {
        let Own { lans, net, .. } = self;
        let is_ours =
            |address: &IpAddr| net.addresses().iter().any(|own| own.is_ipv4() == address.is_ipv4());
        lans.iter_mut().find_map(|(_, lan)| {
            let mut addresses = lan.members().filter(|member| member.name == guest);
            addresses.find_map(|member| member.addresses.iter().copied().find(is_ours))
        })
    }

    /// The guest that has an address at the first LAN now.
    pub(super) fn guest_at(&mut self, address: IpAddr) -> Option<Name> {
        self.lans.first_mut()?.find_owner(address).map(|member| member.name)
    }

    /// The stack, and what it sends over.
    pub(super) fn wired(&mut self) -> (&mut Stack, Wire<'_>) {
        let Own { lans, net, members, .. } = self;
        (net, Wire { lans, members })
    }

    pub(super) fn send_to(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        data: &[u8],
    ) -> Result<(), SendToError> {
        let mut wire = Wire { lans: &mut self.lans, members: &self.members };
        self.net.send_to(now_ns(), from, to, data, &mut wire)
    }
}

/// The other sides learn that nobody is here any more.
impl Drop for Own {
    fn drop(&mut self) {
        self.net.abort_all();
        self.push();
    }
}

/// Bytes of the longest packet at an interface, with a limit that somebody has set.
pub(super) fn limited(mtu: usize, limit: Option<&usize>) -> usize {
    limit.map_or(mtu, |limit| mtu.min(*limit))
}

/// Sets how long packets may be at an interface, if that is new.
fn set_mtu(net: &mut Stack, number: usize, mtu: usize) {
    let before = net.interfaces().iter().find(|interface| interface.lan == number);
    if before.is_some_and(|interface| interface.mtu != mtu) {
        net.set_mtu(number, mtu);
    }
}

/// The member that has an address, or passes on what goes there, if it is there.
fn member_to(lans: &mut Lans, net: &Stack, address: IpAddr) -> Option<(usize, IpAddr)> {
    let (lan, member) = net.neighbour_to(address)?;
    lans.lan(lan)?.find_address(member).map(|_| (lan, member))
}

fn unsent(sent: Result<(), TrySendFrameError>) -> Result<(), Unsent> {
    sent.map_err(|error| match error {
        TrySendFrameError::Full => Unsent::Full,
        TrySendFrameError::Send(SendFrameError::Lacking(lack)) => Unsent::Lacking(lack),
        TrySendFrameError::Send(_) => Unsent::Unreachable,
    })
}

/// The LANs, as a stack sees them.
pub(super) struct Wire<'a> {
    pub(super) lans: &'a mut Lans,
    pub(super) members: &'a Members,
}

impl Link for Wire<'_> {
    fn transmit(
        &mut self,
        number: usize,
        to: IpAddr,
        offload: Offload,
        frame: &mut [u8],
    ) -> Result<(), Unsent> {
        if let Some(line) = self.lans.line(number) {
            return line.send(frame);
        }
        if let Some(osa) = self.lans.osa(number) {
            return osa.send(0, Some(to), offload, frame);
        }
        let lan = self.lans.get(number);
        let source = lan.mac();
        let found = lan.find_address(to).map(|member| (member.name, member.mac));
        let (name, mac) = found.ok_or(Unsent::Unreachable)?;
        // Asked after that: a table that has not changed by now had not changed before, either.
        if !self.members.is_known(number, lan.changes(), to, name) {
            return Err(Unsent::Unreachable);
        }
        net::tcpip::address(frame, mac, source);
        unsent(lan.try_push(Some(name), offload, frame))
    }

    fn transmit_in_parts(
        &mut self,
        number: usize,
        to: IpAddr,
        frame: FrameInParts<'_>,
    ) -> Result<(), Unsent> {
        if let Some(line) = self.lans.line(number) {
            return line.send_in_parts(&frame);
        }
        if let Some(osa) = self.lans.osa(number) {
            return osa.send_in_parts(0, Some(to), &frame);
        }
        let lan = self.lans.get(number);
        let source = lan.mac();
        let found = lan.find_address(to).map(|member| (member.name, member.mac));
        let (name, mac) = found.ok_or(Unsent::Unreachable)?;
        // Asked after that: a table that has not changed by now had not changed before, either.
        if !self.members.is_known(number, lan.changes(), to, name) {
            return Err(Unsent::Unreachable);
        }
        net::tcpip::address(frame.start, mac, source);
        unsent(lan.try_push_in_parts(Some(name), &frame))
    }

    fn send(&mut self, number: usize, offload: Offload, frame: &[u8]) -> Result<(), Unsent> {
        if let Some(osa) = self.lans.osa(number) {
            return osa.send(0, None, offload, frame);
        }
        match self.lans.line(number) {
            Some(line) => line.send(frame),
            None => unsent(self.lans.get(number).try_push(None, offload, frame)),
        }
    }

    fn may_send_from(&mut self, lan: usize, frame: &[u8], address: IpAddr) -> bool {
        // That the MAC address is the sender's has been checked by the LAN.
        let Some(source) = net::lan::frame::source(frame) else { return false };
        // Nobody vouches for what comes over a line: the stack asks where its own packets would go.
        let Some(of) = self.lans.lan(lan) else { return false };
        // A target answers from an address that another has.
        if self.members.may_share(lan, address, source) {
            return true;
        }
        match of.find_address(address) {
            Some(owner) => owner.mac == source && is_fair(frame, owner),
            // What one has sent before it left is still received; and what one sends that is not a member yet at a new host.
            None => match self.members.sender(lan, address) {
                Some(sender) if sender.mac == source => sender.may_have_sent(frame),
                _ => of.left_with(source, address).is_some_and(|member| is_fair(frame, member)),
            },
        }
    }

    fn is_sender(&mut self, lan: usize, frame: &[u8], address: IpAddr) -> bool {
        let Some(source) = net::lan::frame::source(frame) else { return false };
        let Some(of) = self.lans.lan(lan) else { return false };
        match of.find_address(address) {
            Some(owner) => owner.mac == source,
            None => self.members.sender(lan, address).is_some_and(|sender| sender.mac == source),
        }
    }

    fn may_pass_from(&mut self, lan: usize, source: IpAddr) -> bool {
        self.lans.lan(lan).is_none_or(|lan| lan.own().may_pass_from(source))
    }
}
