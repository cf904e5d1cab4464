//! A connection: a guest's use of a device, from establish to disconnect.

use std::collections::VecDeque;

use super::cache::Slot;
use super::device::Device;
use super::exchange::Exchange;
use super::{CONNECTIONS_MAX, PINS_PER_CONNECTION_MAX, SUBCHANNELS, Unit};
use crate::format::fault::Fault;
use crate::format::sense::Sense;
use channel::exchange::{Broken, Head, Kind, establish, established};

/// A guest's use of a device.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) device: Device,
    pub(super) link: usize,
    pub(super) segment: u16,
    /// The channel copies what is read when it takes the unit.
    pub(super) is_copied: bool,
    /// What the last unit check was for.
    pub(super) sense: Sense,
    pub(super) exchanges: Vec<Exchange>,
    /// By subchannel, which is in the low bits of an exchange's number: the last exchange that has ended. Commands
    /// of it that were on their way are not run.
    pub(super) over: [u32; SUBCHANNELS],
    /// Bytes of data of its exchanges that are put aside.
    pub(super) aside_bytes: usize,
    /// Bytes that were copied for its exchanges which wait for the disk before they end.
    pub(super) copied_bytes: usize,
    /// Bytes of room that output data of its operations have, and the exchanges that wait for room, in order.
    pub(super) room_bytes: usize,
    pub(super) awaiting_room: VecDeque<u32>,
    /// Operations that have ended, modulo 65536, and the slots that are pinned for each.
    pub(super) ended: u16,
    pub(super) pins: VecDeque<(u16, Slot)>,
}

impl Connection {
    pub(super) fn new(device: Device, link: usize, segment: u16, is_copied: bool) -> Connection {
        Connection {
            device,
            link,
            segment,
            is_copied,
            sense: Sense::default(),
            exchanges: Vec::new(),
            over: [0; SUBCHANNELS],
            aside_bytes: 0,
            copied_bytes: 0,
            room_bytes: 0,
            awaiting_room: VecDeque::new(),
            ended: 0,
            pins: VecDeque::new(),
        }
    }

    /// The guest has not done with what many operations have brought, and gets no more.
    #[inline]
    pub(super) fn refuse_hoarder(&self) -> Result<(), Fault> {
        if self.pins.len() < PINS_PER_CONNECTION_MAX { Ok(()) } else { Err(Fault::Overrun) }
    }
}

impl Unit {
    /// Makes a connection: the channel has chosen its number.
    pub(super) fn establish(
        &mut self,
        index: usize,
        head: Head,
        first_cylinder: u32,
        cylinders: u32,
    ) -> Result<(), Broken> {
        let place = usize::from(head.connection);
        if place >= CONNECTIONS_MAX || matches!(self.connections.get(place), Some(Some(_))) {
            return Err(Broken::Rules);
        }
        let volume = head.count as usize;
        let mut answer =
            Head { code: 1, ..Head::new(Kind::Established, head.connection, head.exchange) };
        let Some(mounted) = self.volumes.get_mut(volume) else {
            return self.link(index)?.send(&answer, &[0; 8]);
        };
        let end = first_cylinder.checked_add(cylinders);
        if cylinders == 0 || end.is_none_or(|end| end > mounted.volume.cylinders()) {
            return self.link(index)?.send(&answer, &[0; 8]);
        }
        if mounted.segments.len() <= index {
            mounted.segments.resize(index + 1, None);
        }
        let link = self.links[index].as_mut().ok_or(Broken::Rules)?;
        let segment = match mounted.segments[index] {
            Some(segment) => segment,
            None => match link.lend(&mounted.lendable) {
                Ok(segment) => *mounted.segments[index].insert(segment),
                Err(_) => return link.send(&answer, &[0; 8]),
            },
        };
        let may_write = head.code & establish::MAY_WRITE != 0 && mounted.is_writable();
        let is_cached = head.code & establish::UNCACHED == 0;
        let device = Device { volume, first_cylinder, cylinders, may_write, is_cached };
        if self.connections.len() <= place {
            self.connections.resize_with(place + 1, || None);
        }
        let is_copied = head.code & establish::COPIED != 0;
        let connection = Connection::new(device, index, segment, is_copied);
        self.connections[place] = Some(Box::new(connection));
        answer.code = 0;
        answer.number = if may_write { established::MAY_WRITE } else { 0 };
        let traits = u16::from(self.volumes[volume].syncing.code());
        answer.number |= traits << established::TRAITS_SHIFT;
        answer.count = segment.into();
        let bytes = self.volumes[volume].lendable.bytes();
        self.link(index)?.send(&answer, &bytes.to_le_bytes())
    }

    pub(super) fn disconnect(&mut self, number: u16) {
        let Some(mut connection) =
            self.connections.get_mut(usize::from(number)).and_then(Option::take)
        else {
            return;
        };
        for mut exchange in std::mem::take(&mut connection.exchanges) {
            self.give_back_aside(&mut connection, &exchange);
            self.forget_ticket(&connection, &exchange);
            self.forget_transfer(&mut connection, &exchange);
            self.give_back_room(&mut connection, &mut exchange);
            connection.exchanges.push(exchange);
        }
        let mounted = &mut self.volumes[connection.device.volume];
        for (_, slot) in connection.pins.drain(..) {
            mounted.cache.unpin(slot);
        }
        for mut exchange in connection.exchanges.drain(..) {
            exchange.evict_tracks_read(&mut mounted.cache);
            exchange.release_held(&mut mounted.cache);
            exchange.slots.iter().for_each(|slot| mounted.cache.unpin(*slot));
        }
        mounted.reservations.disconnect(number);
        for ending in mounted.endings.remove_range((number, 0)..=(number, u64::MAX)) {
            self.copied_bytes -= ending.waiting_bytes;
            ending.give_up(&mut mounted.cache);
        }
    }

    /// Frees what was pinned for operations that the guest has done with.
    #[inline]
    pub(super) fn release(&mut self, connection: &mut Connection, consumed: u16) {
        let cache = &mut self.volumes[connection.device.volume].cache;
        while let Some((ended, slot)) = connection.pins.front() {
            if (consumed.wrapping_sub(*ended) as i16) < 0 {
                break;
            }
            cache.unpin(*slot);
            connection.pins.pop_front();
        }
    }

    /// A channel is gone, or broke the rules: its connections end.
    pub(super) fn drop_link(&mut self, index: usize) {
        self.links[index] = None;
        let of_link = |connection: &Option<Box<Connection>>| {
            connection.as_ref().is_some_and(|connection| connection.link == index)
        };
        let gone: Vec<u16> = (0..self.connections.len() as u16)
            .filter(|number| of_link(&self.connections[usize::from(*number)]))
            .collect();
        for number in gone {
            self.disconnect(number);
        }
    }
}
