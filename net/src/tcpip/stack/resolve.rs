//! What a stack does that finds its neighbours itself: it asks, answers, and gives up those that do not answer.

use super::*;
use crate::lan::frame::source;
use crate::tcpip::control::Complaint;
use crate::tcpip::neighbours::{Heard, Kind, Message, Step};
use crate::tcpip::passing::Passing;

/// The shortest time between two frames that say that an address is ours, because another has said that it has it (RFC 5227 2.4, DEFEND_INTERVAL).
const DEFEND_NS: u64 = 10_000_000_000;

impl Stack {
    /// Takes a frame that is about neighbours and has come to another shard.
    pub(super) fn take_message_of_others(
        &mut self,
        now: u64,
        lan: usize,
        frame: Frame<'_>,
        link: &mut impl Link,
    ) -> Result<(), Counter> {
        let interface = self.output.routes.interface_with(lan, frame.offload.vlan);
        // The interfaces may be others by now.
        let Some(interface) = interface else { return Ok(()) };
        match neighbours::parse(frame.bytes, frame.offload.checksum)? {
            Some(message) if self.interfaces()[interface].device.asks() => {
                self.take_message(now, interface, frame, message, link)
            }
            _ => Ok(()),
        }
    }

    /// Takes a frame that is about neighbours. Of several shards the first answers for all, and each knows its own neighbours.
    pub(super) fn take_message(
        &mut self,
        now: u64,
        interface: usize,
        frame: Frame<'_>,
        message: Message,
        link: &mut impl Link,
    ) -> Result<(), Counter> {
        let at = &self.output.routes.interfaces()[interface];
        let (to, from) = (destination(frame.bytes), source(frame.bytes));
        if to != Some(at.mac) && !to.is_some_and(Mac::is_group) {
            return Err(Counter::NotOurs);
        }
        // One of our own that has come back says nothing new.
        if from == Some(at.mac) || message.about.is_some_and(|(_, mac)| mac == at.mac) {
            return Ok(());
        }
        let find = |address: IpAddr| at.addresses.contains(&address).then_some(at.mac);
        let (lan, offload) = (at.lan, Offload { vlan: at.vlan, ..Offload::NONE });
        let conflict = message.about.filter(|(address, _)| at.addresses.contains(address));
        let answers = !self.has_only_connections();
        let is_for_us = matches!(message.kind, Kind::Question(of) if find(of).is_some());
        if answers
            && is_for_us
            && conflict.is_none()
            && let Some(answer) = neighbour::answer(frame.bytes, find)
        {
            self.counters.count(Counter::NeighboursAnswered);
            // Whoever asked asks again.
            let _ = link.send(lan, offload, &answer);
        }
        let Some((address, mac)) = message.about else { return Ok(()) };
        if conflict.is_some() {
            if answers {
                self.defend(now, interface, address, link);
            }
            return Ok(());
        }
        let hop = Hop::Neighbour { interface, address };
        let may_learn = is_for_us && self.output.routes.is_of_interface(interface, address);
        let is_answer = match message.kind {
            Kind::Answer(Some(asked_by)) => at.addresses.contains(&asked_by),
            Kind::Answer(None) => to == Some(at.mac),
            Kind::Question(_) | Kind::Announcement => false,
        };
        if self.output.routes.is_silent(hop) {
            // It may be back. Only its answer shows that.
            self.output.seek(now, link, &mut self.counters, (interface, address));
        }
        let Some(cache) = self.output.neighbours.at(interface) else { return Ok(()) };
        let heard = match may_learn {
            true => cache.learn(now, address, mac),
            false => cache.hear(now, address, mac, is_answer),
        };
        if let Heard::Resolved(_) = heard {
            self.output.routes.note_answer(hop, true);
        }
        self.output.take_heard(link, &mut self.counters, (interface, mac), heard)
    }

    /// Somebody else says that it has an address of ours: whoever listens is told that it is ours, if that was not said a short time ago.
    fn defend(&mut self, now: u64, interface: usize, address: IpAddr, link: &mut impl Link) {
        self.counters.count(Counter::AddressConflicts);
        if self.defended.get(&address).is_some_and(|until| now < *until) {
            return;
        }
        let at = &self.output.routes.interfaces()[interface];
        let announcement = neighbour::announcement(address, at.mac);
        let offload = Offload { vlan: at.vlan, ..Offload::NONE };
        if link.send(at.lan, offload, &announcement).is_ok() {
            self.defended.retain(|_, until| now < *until);
            self.defended.insert(address, now.saturating_add(DEFEND_NS));
        }
    }

    /// Asks for neighbours again whose time has come, and gives those up that were asked often enough.
    pub(super) fn poll_neighbours(&mut self, now: u64, link: &mut impl Link) {
        if self.are_timers_held {
            return;
        }
        while let Some((interface, step)) = self.output.neighbours.poll(now) {
            match step {
                Step::Ask(address, to) => {
                    let neighbour = (interface, address);
                    self.output.ask(now, link, &mut self.counters, neighbour, to);
                }
                Step::Failed(address, waiting) => {
                    self.counters.count(Counter::NeighboursUnreachable);
                    self.counters.add(Counter::Unresolved, waiting.len() as u64);
                    for one in waiting.iter().filter(|one| one.is_passed) {
                        let frame = Frame { offload: one.offload, bytes: &one.frame };
                        if let Ok(packet) = Passing::parse(frame.bytes) {
                            self.complain(now, &packet, frame, Complaint::NoHost, link);
                        }
                    }
                    self.give_up(Hop::Neighbour { interface, address });
                }
            }
        }
    }

    /// Nobody is at this hop. Connections that are being made over it end, unless another gateway leads to their other sides; others send
    /// again after a while, and so ask again. Half-open ones of this neighbour itself are forgotten: probably nobody has asked for them.
    fn give_up(&mut self, hop: Hop) {
        self.output.routes.note_answer(hop, false);
        self.output.drop_held(&mut self.counters, hop);
        self.has_moved = true;
        for index in self.stalled.remove(&hop).unwrap_or_default() {
            let Some(connection) = self.connections.get_mut(index) else { continue };
            connection.waits_for = None;
            match connection.state() {
                State::SynSent | State::SynReceived
                    if self.output.routes.hop(connection.tuple.remote.ip()) == Some(hop) =>
                {
                    self.end_unmade(index, End::HostUnreachable);
                }
                _ => self.make_busy(index),
            }
        }
        let Hop::Neighbour { address, .. } = hop else { return };
        let of_host = self.by_host.get(&address).into_iter().flatten().copied();
        for index in of_host.collect::<Vec<_>>() {
            let Some(connection) = self.connections.get_mut(index) else { continue };
            if connection.state() == State::SynReceived && !connection.is_held {
                self.forget(index);
            }
        }
    }

    /// Ends a connection that is being made.
    pub(super) fn end_unmade(&mut self, index: u32, end: End) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        // A half-open connection of a listener. Where both sides have asked at once, a program has it already.
        if connection.state() == State::SynReceived && !connection.is_held {
            return self.forget(index);
        }
        connection.end = Some(Box::new(end));
        let counter = if end == End::Refused { Counter::Refused } else { Counter::NotReached };
        self.counters.count(counter);
        self.retire(index);
    }
}
