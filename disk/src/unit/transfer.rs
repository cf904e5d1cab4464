//! Flow control of output data: an operation waits for room, and is then asked for its data by transfer ready.
//!
//! An operation whose output is more than a first burst waits, with nothing but its TCCB, until there is room for the output. Then the control
//! unit sends transfer ready, and the channel sends the data. The operation has the room until it ends, also while it is put aside.
//!
//! Every channel path has room of its own: a channel that never sends its data blocks only its own path. The connections of a path take
//! turns. A connection whose own limit is reached is passed over and keeps its turn; the first of the others waits until there is room for
//! it, and nobody behind goes first. So an operation waits for the operations that hold room, and for at most one more of each other
//! connection.

use std::collections::VecDeque;

use super::ending::Ending;
use super::transport::check;
use super::{Connection, EXCHANGES_MAX, Exchange, OUTPUT_BYTES_MAX, Unit};
use channel::exchange::{Broken, Head, Kind};

/// Limit of the output data that have room of one connection, which is a guest's use of one device, in bytes. One operation can have all of it.
pub const DEVICE_OUTPUT_BYTES_MAX: usize = OUTPUT_BYTES_MAX;
/// Limit of the output data that have room of one channel path, in bytes: no connection has more than half. Each path has this limit of its own.
pub const PATH_OUTPUT_BYTES_MAX: usize = 2 * DEVICE_OUTPUT_BYTES_MAX;

/// What an operation keeps while it waits for room, and then for its output data.
#[derive(Debug)]
pub(super) struct Transfer {
    /// The transport command.
    head: Head,
    /// What has come with it, checked.
    tccb: Vec<u8>,
    /// How many bytes the channel is asked for: what the commands need, if there are so many.
    bytes: u32,
    /// Transfer ready was sent.
    is_ready: bool,
}

/// How a transport command goes on that has come without its output data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It waits for them.
    Waits,
    /// It needs none, and runs now.
    Runs,
    /// Another guest has reserved the device: it is begun again when the device is free.
    Reserved,
}

/// Room for the output data of a channel path.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Bytes that are taken.
    taken_bytes: usize,
    /// Connections that wait, each once, in the order of their turns.
    turns: VecDeque<u16>,
}

impl Unit {
    /// Bytes of output data that have room now, of all guests of a channel path.
    ///
    /// # Panics
    /// If there is no such path.
    pub fn room_taken(&self, link: usize) -> usize {
        self.rooms[link].taken_bytes
    }

    /// Puts an operation where it waits for its output data, unless it ends without them: then nothing is kept.
    ///
    /// # Errors
    /// The exchange is under way, or there are too many.
    pub(super) fn await_output(
        &mut self,
        connection: &mut Connection,
        head: Head,
        tccb: &[u8],
        is_admitted: bool,
    ) -> Result<Arrival, Broken> {
        let is_there = connection.exchanges.iter().any(|one| one.number == head.exchange);
        if is_there || connection.exchanges.len() >= EXCHANGES_MAX {
            return Err(Broken::Rules);
        }
        let mounted = &self.volumes[connection.device.volume];
        let Connection { device, .. } = connection;
        let reservations = &mounted.reservations;
        if !is_admitted && reservations.must_wait(&self.connections, device, head.connection) {
            return Ok(Arrival::Reserved);
        }
        // A TCCB that is wrong needs no data either: it ends in a program check.
        let needed = check(tccb).map_or(0, |(_, output)| output);
        let bytes = needed.min(head.count.into()) as u32;
        if bytes == 0 {
            return Ok(Arrival::Runs);
        }
        let mut exchange = Exchange::new(head.connection, head.exchange, &connection.device);
        let transfer = Transfer { head, tccb: tccb.to_vec(), bytes, is_ready: false };
        (exchange.transfer, exchange.is_admitted) = (Some(Box::new(transfer)), is_admitted);
        connection.exchanges.push(exchange);
        if connection.awaiting_room.is_empty() {
            self.rooms[connection.link].turns.push_back(head.connection);
        }
        connection.awaiting_room.push_back(head.exchange);
        Ok(Arrival::Waits)
    }

    /// Gives room to the operations of a channel path that wait for it, in turn, and sends transfer ready for each. Returns whether any got
    /// room.
    pub(super) fn grant_room(&mut self, link: usize) -> Result<bool, Broken> {
        let Unit { rooms, links, connections, .. } = self;
        let Room { taken_bytes, turns } = &mut rooms[link];
        let (mut at, mut found) = (0, false);
        while let Some(number) = turns.get(at).copied() {
            let connection = connections[usize::from(number)].as_deref_mut();
            let Connection { exchanges, room_bytes, awaiting_room, .. } =
                connection.expect("who has ended has no turn");
            let first = awaiting_room.front().copied();
            let is_it = |one: &&mut Exchange| Some(one.number) == first && one.transfer.is_some();
            let exchange = exchanges.iter_mut().find(is_it);
            let exchange = exchange.expect("what has ended does not wait");
            let transfer = exchange.transfer.as_mut().expect("seen above");
            let bytes = transfer.bytes as usize;
            if *room_bytes + bytes > DEVICE_OUTPUT_BYTES_MAX {
                at += 1;
                continue;
            }
            if *taken_bytes + bytes > PATH_OUTPUT_BYTES_MAX {
                break;
            }
            transfer.is_ready = true;
            exchange.room_bytes = bytes;
            *room_bytes += bytes;
            *taken_bytes += bytes;
            awaiting_room.pop_front();
            turns.remove(at);
            if !awaiting_room.is_empty() {
                turns.push_back(number);
            }
            found = true;
            let head = Head {
                count: transfer.bytes,
                ..Head::new(Kind::TransferReady, number, exchange.number)
            };
            let link = links[link].as_deref_mut().ok_or(Broken::Rules)?;
            link.send(&head, &0_u32.to_le_bytes())?;
        }
        Ok(found)
    }

    /// Takes the output data of the operation at this place among the connection's exchanges, and runs it.
    ///
    /// # Errors
    /// The control unit has not asked for them, or there are more or fewer.
    pub(super) fn take_output(
        &mut self,
        connection: &mut Connection,
        index: usize,
        unit: channel::exchange::Unit,
    ) -> Result<(), Broken> {
        let link = self.links[connection.link].take().ok_or(Broken::Rules)?;
        let data = link.body(unit);
        let is_asked = |transfer: &mut Box<Transfer>| {
            transfer.is_ready && transfer.bytes as usize == data.len()
        };
        let transfer = connection.exchanges[index].transfer.take_if(is_asked);
        let over = transfer.map(|transfer| {
            let exchange = connection.exchanges.swap_remove(index);
            let mut ending = Ending::new(exchange, Kind::TransportResponse);
            let Transfer { head, tccb, .. } = *transfer;
            self.operate_first(connection, head, &mut ending, &tccb, data).then_some(ending)
        });
        self.links[connection.link] = Some(link);
        match over.ok_or(Broken::Rules)? {
            Some(ending) => self.end(connection, ending),
            None => Ok(()),
        }
    }

    /// An exchange that is over waits for no room any more.
    pub(super) fn forget_transfer(&mut self, connection: &mut Connection, exchange: &Exchange) {
        if exchange.transfer.as_ref().is_none_or(|transfer| transfer.is_ready) {
            return;
        }
        connection.awaiting_room.retain(|number| *number != exchange.number);
        if connection.awaiting_room.is_empty() {
            self.rooms[connection.link].turns.retain(|number| *number != exchange.connection);
        }
    }

    /// The output data of an exchange need no room any more.
    #[inline]
    pub(super) fn give_back_room(&mut self, connection: &mut Connection, exchange: &mut Exchange) {
        let bytes = std::mem::take(&mut exchange.room_bytes);
        if bytes > 0 {
            connection.room_bytes -= bytes;
            self.rooms[connection.link].taken_bytes -= bytes;
        }
    }
}
