//! Commands of command mode, each a unit of its own, and their data.

use super::ending::Ending;
use super::flight::{Awaited, Ticket};
use super::output::Output;
use super::perform::Refusal;
use super::{COMMAND_OUTPUT_BYTES_MAX, Connection, EXCHANGES_MAX, SUBCHANNELS, Unit};
use crate::format::ccw::{Direction, direction};
use crate::format::eckd::Search;
use crate::format::scsw::DeviceStatus;
use channel::exchange::{Broken, Head, Kind, Length, PACING, flag};

impl Unit {
    /// A command of command mode.
    pub(super) fn command(
        &mut self,
        connection: &mut Connection,
        head: Head,
    ) -> Result<(), Broken> {
        if connection.over[head.exchange as usize % SUBCHANNELS] == head.exchange {
            return Ok(());
        }
        let found = connection.exchanges.iter().position(|one| one.number == head.exchange);
        let index = match found {
            Some(index) => index,
            None if connection.exchanges.len() < EXCHANGES_MAX => {
                let exchange = self.arrive(connection, head);
                connection.exchanges.push(exchange);
                connection.exchanges.len() - 1
            }
            None => return Err(Broken::Rules),
        };
        if let Some(aside) = &mut connection.exchanges[index].aside {
            return aside.keep(head, &[]);
        }
        let exchange = &connection.exchanges[index];
        if exchange.awaiting.is_some() || exchange.transfer.is_some() {
            return Err(Broken::Rules);
        }
        let commands = connection.exchanges[index].commands;
        // The first has arrived, or a whole group.
        if commands == 0 || commands % PACING as u64 == PACING as u64 - 1 {
            let response = Head::new(Kind::CommandResponse, head.connection, head.exchange);
            self.link(connection.link)?.send(&response, &[])?;
        }
        if connection.is_copied && commands.is_multiple_of(PACING as u64) {
            let cache = &mut self.volumes[connection.device.volume].cache;
            connection.exchanges[index].begin_group(cache);
        }
        if direction(head.code) == Some(Direction::Output) && head.count > 0 {
            connection.exchanges[index].awaiting = Some(head);
            return Ok(());
        }
        self.run(connection, index, head, &[])
    }

    /// Data that have arrived: of an operation that has asked for them, or of a command that waits for them.
    pub(super) fn data(
        &mut self,
        connection: &mut Connection,
        unit: channel::exchange::Unit,
        head: Head,
    ) -> Result<(), Broken> {
        // An exchange that has just ended early knows nothing of data that were on their way.
        let found = connection.exchanges.iter().position(|one| one.number == head.exchange);
        let Some(index) = found else { return Ok(()) };
        let exchange = &connection.exchanges[index];
        if exchange.transfer.is_some() {
            return self.take_output(connection, index, unit);
        }
        let body = self.link(connection.link)?.body(unit);
        let is_operation = exchange.aside.as_ref().is_some_and(|aside| aside.is_operation());
        if is_operation || body.len() > COMMAND_OUTPUT_BYTES_MAX as usize {
            // All data of an operation are there before it runs.
            return Err(Broken::Rules);
        }
        let body = body.to_vec();
        self.command_data(connection, head, &body)
    }

    /// Data for a command that waits for them.
    pub(super) fn command_data(
        &mut self,
        connection: &mut Connection,
        head: Head,
        body: &[u8],
    ) -> Result<(), Broken> {
        let found = connection.exchanges.iter().position(|one| one.number == head.exchange);
        let Some(index) = found else { return Ok(()) };
        let is_full = self.is_aside_full(connection, body.len());
        if let Some(aside) = connection.exchanges[index].aside.as_ref().filter(|_| is_full) {
            // It goes on by calls that wait.
            let ticket = Ticket { connection: head.connection, serial: aside.serial };
            self.resume_exchange(connection, ticket, true)?;
        }
        let found = connection.exchanges.iter().position(|one| one.number == head.exchange);
        let Some(index) = found else { return Ok(()) };
        if let Some(aside) = &mut connection.exchanges[index].aside {
            // One that has given way to others waits all the same: its units are few, and none is longer than a track.
            aside.keep(head, body)?;
            connection.aside_bytes += body.len();
            self.aside_bytes += body.len();
            return Ok(());
        }
        let command = connection.exchanges[index].awaiting.take().ok_or(Broken::Rules)?;
        if body.len() != command.count.min(COMMAND_OUTPUT_BYTES_MAX) as usize {
            return Err(Broken::Rules);
        }
        self.run(connection, index, command, body)
    }

    /// Runs a command of command mode, and sends what it brings.
    pub(super) fn run(
        &mut self,
        connection: &mut Connection,
        index: usize,
        head: Head,
        data: &[u8],
    ) -> Result<(), Broken> {
        let mut ending = Ending::new(connection.exchanges.swap_remove(index), Kind::Status);
        let Ending { exchange, output, .. } = &mut ending;
        let sequence = exchange.commands;
        exchange.commands = sequence + 1;
        self.counters.commands += 1;
        let count = head.count;
        // If it waits, it runs again from here.
        let (chain, pinned) = (exchange.chain, exchange.slots.len());
        exchange.has_effects = false;
        exchange.must_block |= self.is_aside_full(connection, data.len());
        let moved = connection.refuse_hoarder().map_err(Refusal::from).and_then(|()| {
            self.perform(connection, head.connection, exchange, head.code, count, data, output)
        });
        match moved {
            Ok(moved) => {
                let output = std::mem::take(&mut ending.output);
                if !output.is_empty() {
                    let data = Head::new(Kind::Data, head.connection, head.exchange);
                    let data = Head { number: sequence as u16, ..data };
                    let sent = self.link(connection.link).and_then(|link| output.send(link, data));
                    if sent.is_err() {
                        // Its pins go with the connection.
                        connection.exchanges.push(ending.exchange);
                        return sent;
                    }
                }
                ending.status = moved.status;
                let length = Length::of(&head, head.number);
                let (residual, flags) = length.ending(moved.bytes, moved.expected);
                ending.residual = residual;
                ending.flags |= flags;
            }
            Err(Refusal::Fault(fault)) => {
                ending.output = Output::default();
                ending.fail(fault, connection);
                ending.residual = count;
            }
            Err(Refusal::Busy) => {
                ending.output = Output::default();
                ending.be_busy(connection);
                ending.residual = count;
            }
            Err(Refusal::Reserved { reserves }) => {
                ending.output = Output::default();
                ending.be_reserved(reserves, connection);
                ending.residual = count;
            }
            Err(Refusal::Wait(Awaited::Turn)) if self.is_aside_full(connection, data.len()) => {
                ending.output = Output::default();
                ending.be_busy(connection);
                ending.residual = count;
            }
            Err(Refusal::Wait(awaited)) => {
                let mut exchange = ending.exchange;
                (exchange.chain, exchange.commands) = (chain, sequence);
                self.counters.commands -= 1;
                let held = exchange.slots.split_off(pinned);
                self.put_aside(connection, exchange, awaited, head, data.to_vec(), held);
                return Ok(());
            }
        }
        let exchange = &mut ending.exchange;
        (exchange.must_block, exchange.turns) = (false, 0);
        exchange.forget_empty();
        if !exchange.asked.is_empty() {
            exchange.evict_passed(&mut self.volumes[connection.device.volume]);
        }
        // A search that has found what it looks for ends with status modifier, and its chain goes on too.
        let found = DeviceStatus::ENDED.with(DeviceStatus::STATUS_MODIFIER);
        let goes_on = (ending.status == DeviceStatus::ENDED || ending.status == found)
            && ending.flags & flag::INCORRECT_LENGTH == 0
            && head.flags & flag::CHAINED != 0;
        if goes_on {
            connection.exchanges.push(ending.exchange);
            if Search::of(head.code).is_some() {
                // The channel waits for it.
                let response = Head::new(Kind::CommandResponse, head.connection, head.exchange);
                let code = ending.status.0;
                self.link(connection.link)?.send(&Head { code, ..response }, &[])?;
            }
            return Ok(());
        }
        exchange.commands = sequence;
        self.end(connection, ending)
    }
}
