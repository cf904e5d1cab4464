//! The control unit of channel-to-channel lines: it runs the channel programs of both sides, and moves data from WRITE to READ.
//!
//! ```text
//!     left guest                                right guest
//!   subchannel 0, read  <---- adapter 0 ----  subchannel 1, write
//!   subchannel 1, write ----> adapter 1 ---->  subchannel 0, read
//! ```
//!
//! A *line* joins two guests by two adapters, crossed as above, so that both guests read on subchannel 0 and write on subchannel 1. That is
//! the use that drivers make of them; each adapter takes every command from both sides.
//!
//! A guest is a connection over a channel path, as with a disk. Establish names the line, and the side in the first of its parameters: 0 left,
//! 1 right. The control unit keeps no data: those of a WRITE stay with the command until a READ takes them, and the command ends then.

use std::collections::VecDeque;

use super::adapter::{Adapter, Fate, Place, Reset, Side, State};
use super::command::Command;
use super::{COMMANDS, TRANSFER_BYTES_MAX};
use crate::exchange::{
    Broken, Head, Kind, Link, PACING, PARAMETER_BYTES, UNITS_PER_POLL_MAX, Unit as Received,
    cancel, established, flag,
};
use crate::format::ccw::{Direction, direction};
use crate::format::scsw::DeviceStatus;
use crate::format::sense::{SENSE_BYTES, Sense, bit};
use crate::{GUESTS_MAX, Use};

/// The subchannel on which a driver reads.
pub const READ_SUBCHANNEL: u16 = 0;
/// The subchannel on which a driver writes.
pub const WRITE_SUBCHANNEL: u16 = 1;
/// Adapters of a line, and subchannels of each of its sides.
pub const ADAPTERS: usize = 2;
/// Lines of a control unit.
pub const LINES_MAX: usize = GUESTS_MAX / 2;
/// Commands of one chain that have come and are not done: the channel sends a group ahead of the responses.
const COMMANDS_MAX: usize = 2 * PACING;
/// Bytes that a program can read into storage of the channel: ctcm reads one block, other drivers chain a few.
pub const RESULT_BYTES: u32 = 4 * TRANSFER_BYTES_MAX;
/// A code that is no command's.
const INVALID: u8 = 0x00;

/// SENSE ID: control unit 3088 of model 08, an adapter without a device type.
///
/// ```text
/// | FF | control unit type 16, 3088 | model 8, 08 | device type 16, 0 | model 8: 01 basic mode first |
/// ```
const ID: [u8; 7] = [0xff, 0x30, 0x88, 0x08, 0x00, 0x00, 0x01];

/// A channel's use of a side of a line.
pub fn use_of(line: u32, side: Side) -> Use {
    let mut parameters = [0; PARAMETER_BYTES];
    parameters[0] = side as u8;
    Use {
        device: line,
        parameters,
        capacity: TRANSFER_BYTES_MAX,
        may_write: true,
        subchannels: ADAPTERS as u16,
        result_bytes: RESULT_BYTES,
        is_cached: false,
        cache: None,
        are_gaps_public: false,
        commands: COMMANDS,
    }
}

/// What a control unit has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commands that were given to adapters.
    pub commands: u64,
    /// Data that moved from a WRITE to a READ.
    pub transfers: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Interruptions that nobody had asked for: attention, and device end of a peer that is ready again.
    pub interruptions: u64,
    /// Commands that were answered by busy and attention: both sides wanted the same.
    pub collisions: u64,
    /// Commands that ended with unit check.
    pub unit_checks: u64,
    /// Sides that were halted or cleared, with a program or without.
    pub resets: u64,
    /// Guests that are gone.
    pub disconnects: u64,
    /// Uses that were refused: no such line, no such side, or the side is taken.
    pub refused: u64,
}

/// A command that has come.
#[derive(Debug)]
struct Arrived {
    code: u8,
    flags: u8,
    count: u32,
    /// Bytes of the last of its CCWs.
    last_bytes: u16,
    /// What it writes, once that has come.
    data: Option<Vec<u8>>,
}

/// A channel program that is under way.
#[derive(Debug)]
struct Exchange {
    number: u32,
    /// Its commands that are not done. The adapter has the first of them, if that waits.
    commands: VecDeque<Arrived>,
    /// Which command of the program the first of them is. A chain may have no end: 64 bits do not wrap.
    sequence: u64,
    /// The first command waits for the peer.
    is_waiting: bool,
    /// Of that command: what its side was presented.
    presented: DeviceStatus,
    /// The program ends with the commands that have come.
    ends_in_order: bool,
}

/// A side of an adapter.
#[derive(Debug, Default)]
struct Port {
    exchange: Option<Exchange>,
    /// The exchange that has ended last: what comes late of it is ignored.
    over: Option<u32>,
}

/// An adapter, with the programs of both sides.
#[derive(Debug, Default)]
struct Device {
    adapter: Adapter,
    ports: [Port; 2],
}

/// Two guests, or the place for them.
#[derive(Debug, Default)]
struct Line {
    connections: [Option<u16>; 2],
    devices: [Device; ADAPTERS],
}

/// A guest.
#[derive(Clone, Copy, Debug)]
struct Connection {
    link: usize,
    line: usize,
    side: Side,
}

/// Where a side of an adapter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At {
    line: usize,
    adapter: usize,
    side: Side,
}

impl At {
    /// The side of an adapter that a subchannel of a guest is.
    fn of(connection: Connection, subchannel: u32) -> Option<At> {
        let subchannel = usize::try_from(subchannel).ok().filter(|number| *number < ADAPTERS)?;
        let Connection { line, side, .. } = connection;
        // The line is crossed.
        let adapter = subchannel ^ side as usize;
        Some(At { line, adapter, side })
    }

    /// The subchannel of its guest.
    fn subchannel(self) -> u32 {
        (self.adapter ^ self.side as usize) as u32
    }

    fn peer(self) -> At {
        At { side: self.side.peer(), ..self }
    }
}

/// A control unit of lines.
#[derive(Debug, Default)]
pub struct Unit {
    links: Vec<Option<Link>>,
    connections: Vec<Option<Connection>>,
    lines: Vec<Line>,
    counters: Counters,
}

impl Unit {
    /// A control unit without lines.
    pub fn new() -> Unit {
        Unit::default()
    }

    /// Adds a channel path: the control unit's end.
    pub fn add_link(&mut self, link: Link) {
        self.links.push(Some(link));
    }

    /// Adds a line, which nobody uses. Returns its number; None if there are [`LINES_MAX`].
    pub fn add_line(&mut self) -> Option<u32> {
        if self.lines.len() >= LINES_MAX {
            return None;
        }
        self.lines.push(Line::default());
        Some(self.lines.len() as u32 - 1)
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Units of a kind that were sent to channels.
    pub fn sent_of(&self, kind: Kind) -> u64 {
        self.links.iter().flatten().map(|link| link.sent_of(kind)).sum()
    }

    /// Returns true if a guest uses this side of a line.
    pub fn is_connected(&self, line: u32, side: Side) -> bool {
        self.lines.get(line as usize).is_some_and(|line| line.connections[side as usize].is_some())
    }

    /// The state of the side of an adapter that a subchannel is, as the peer sees it. None if there is no such line or subchannel.
    pub fn state(&self, line: u32, side: Side, subchannel: u16) -> Option<State> {
        let device =
            self.lines.get(line as usize)?.devices.get(usize::from(subchannel) ^ side as usize)?;
        Some(device.adapter.state(side))
    }

    /// Takes and runs what has arrived, a bounded number of units. Returns whether there was anything.
    pub fn poll(&mut self) -> bool {
        let mut found = false;
        for index in 0..self.links.len() {
            for _ in 0..UNITS_PER_POLL_MAX {
                match self.poll_link(index) {
                    Ok(true) => found = true,
                    Ok(false) => {
                        found |= self.links[index].as_ref().is_some_and(Link::is_ready);
                        break;
                    }
                    Err(broken) => {
                        self.drop_link(index, broken);
                        found = true;
                        break;
                    }
                }
            }
        }
        if found {
            self.links.iter_mut().flatten().for_each(Link::flush);
        }
        found
    }

    /// Takes one unit of a link. False if there is none.
    fn poll_link(&mut self, index: usize) -> Result<bool, Broken> {
        let Some(link) = &mut self.links[index] else { return Ok(false) };
        link.begin_pass();
        let Some(unit) = link.receive()? else { return Ok(false) };
        let head = unit.head;
        if head.kind == Kind::Establish {
            let parameters = link.body(unit).try_into().map_err(|_| Broken::Rules)?;
            self.establish(index, head, parameters)?;
            return Ok(true);
        }
        let Some(Some(connection)) = self.connections.get(usize::from(head.connection)).copied()
        else {
            // Of a connection that has just ended.
            return Ok(true);
        };
        if connection.link != index {
            return Err(Broken::Rules);
        }
        self.take_unit(connection, unit).map(|()| true)
    }

    fn take_unit(&mut self, connection: Connection, unit: Received) -> Result<(), Broken> {
        let head = unit.head;
        match head.kind {
            Kind::Disconnect => {
                self.disconnect(head.connection);
                return Ok(());
            }
            // Nothing of a cache was lent.
            Kind::Release => return Ok(()),
            _ => {}
        }
        let at = At::of(connection, head.exchange & 0xff).ok_or(Broken::Rules)?;
        match head.kind {
            Kind::Command => {
                let last_bytes = match self.body(connection, unit)? {
                    [] => head.count as u16,
                    body => u16::from_le_bytes(body.try_into().map_err(|_| Broken::Rules)?),
                };
                self.take_command(at, head, last_bytes)
            }
            Kind::Data => self.take_data(at, connection, unit),
            Kind::Cancel => {
                self.cancel(at, head);
                Ok(())
            }
            Kind::TransportCommand => self.refuse_transport(at, head),
            // Of a program in transport mode, which has ended: its end is on its way.
            Kind::Interrogate => Ok(()),
            Kind::Establish
            | Kind::Established
            | Kind::CommandResponse
            | Kind::Status
            | Kind::TransportResponse
            | Kind::Release
            | Kind::Disconnect
            | Kind::Attention
            | Kind::Interrogation
            | Kind::TransferReady => Err(Broken::Rules),
        }
    }

    fn body(&self, connection: Connection, unit: Received) -> Result<&[u8], Broken> {
        let link = self.links[connection.link].as_ref().ok_or(Broken::Rules)?;
        Ok(link.body(unit))
    }

    /// Makes a connection: the channel has chosen its number.
    fn establish(
        &mut self,
        index: usize,
        head: Head,
        parameters: [u8; PARAMETER_BYTES],
    ) -> Result<(), Broken> {
        let place = usize::from(head.connection);
        if place >= GUESTS_MAX || matches!(self.connections.get(place), Some(Some(_))) {
            return Err(Broken::Rules);
        }
        let number = head.count as usize;
        let side = match parameters {
            [0, 0, 0, 0, 0, 0, 0, 0] => Some(Side::Left),
            [1, 0, 0, 0, 0, 0, 0, 0] => Some(Side::Right),
            _ => None,
        };
        let mut answer = Head::new(Kind::Established, head.connection, head.exchange);
        let free = self.lines.get_mut(number).zip(side).filter(|(line, side)| {
            // A side has one guest at a time.
            line.connections[*side as usize].is_none()
        });
        match free {
            Some((line, side)) => {
                line.connections[side as usize] = Some(head.connection);
                if self.connections.len() <= place {
                    self.connections.resize(place + 1, None);
                }
                self.connections[place] = Some(Connection { link: index, line: number, side });
                answer.number = established::MAY_WRITE;
                self.send(head.connection, &answer, &[0; 8]);
                for adapter in 0..ADAPTERS {
                    // The peer may be waiting already.
                    self.present(At { line: number, adapter, side });
                }
                Ok(())
            }
            None => {
                self.counters.refused += 1;
                answer.code = 1;
                let link = self.links[index].as_mut().ok_or(Broken::Rules)?;
                link.send(&answer, &[0; 8])
            }
        }
    }

    /// A guest is gone: its sides are as after a system reset.
    fn disconnect(&mut self, number: u16) {
        let connection = self.connections.get_mut(usize::from(number)).and_then(Option::take);
        let Some(Connection { line, side, .. }) = connection else { return };
        self.counters.disconnects += 1;
        self.lines[line].connections[side as usize] = None;
        for adapter in 0..ADAPTERS {
            let at = At { line, adapter, side };
            *self.port(at) = Port::default();
            self.reset(at, Reset::System);
        }
    }

    /// A channel is gone, or broke the rules: its guests are.
    fn drop_link(&mut self, index: usize, broken: Broken) {
        if let Some(mut link) = self.links[index].take() {
            link.give_up(broken);
        }
        for number in 0..self.connections.len() {
            if self.connections[number].is_some_and(|connection| connection.link == index) {
                self.disconnect(number as u16);
            }
        }
    }

    fn port(&mut self, at: At) -> &mut Port {
        &mut self.lines[at.line].devices[at.adapter].ports[at.side as usize]
    }

    fn adapter(&mut self, at: At) -> &mut Adapter {
        &mut self.lines[at.line].devices[at.adapter].adapter
    }

    /// Sends a unit to the guest of a connection.
    fn send(&mut self, connection: u16, head: &Head, body: &[u8]) {
        let found = self.connections.get(usize::from(connection)).copied().flatten();
        let link = found.and_then(|found| self.links[found.link].as_mut());
        // A link that has ended says so when it is polled.
        let _ = link.map(|link| link.send(head, body));
    }

    /// Sends a unit of the exchange of a side, or its subchannel.
    fn send_to(
        &mut self,
        at: At,
        kind: Kind,
        exchange: u32,
        with: impl FnOnce(&mut Head),
        body: &[u8],
    ) {
        let Some(connection) = self.lines[at.line].connections[at.side as usize] else { return };
        let mut head = Head::new(kind, connection, exchange);
        with(&mut head);
        self.send(connection, &head, body);
    }

    /// A command of command mode.
    fn take_command(&mut self, at: At, head: Head, last_bytes: u16) -> Result<(), Broken> {
        let port = self.port(at);
        if port.over == Some(head.exchange) {
            return Ok(());
        }
        let exchange = port.exchange.get_or_insert_with(|| Exchange {
            number: head.exchange,
            commands: VecDeque::new(),
            sequence: 0,
            is_waiting: false,
            presented: DeviceStatus(0),
            ends_in_order: false,
        });
        let is_data_missing = exchange.commands.back().is_some_and(|last| last.data.is_none());
        if exchange.number != head.exchange
            || exchange.ends_in_order
            || is_data_missing
            || exchange.commands.len() >= COMMANDS_MAX
        {
            return Err(Broken::Rules);
        }
        let is_output = direction(head.code) == Some(Direction::Output);
        let data = if is_output && head.count > 0 { None } else { Some(Vec::new()) };
        let Head { code, flags, count, .. } = head;
        exchange.commands.push_back(Arrived { code, flags, count, last_bytes, data });
        self.run(at);
        Ok(())
    }

    /// Data of the command that came last.
    fn take_data(&mut self, at: At, connection: Connection, unit: Received) -> Result<(), Broken> {
        let number = unit.head.exchange;
        let body = self.body(connection, unit)?.to_vec();
        // An exchange that has ended early knows nothing of data that were on their way.
        let exchange = self.port(at).exchange.as_mut().filter(|one| one.number == number);
        let Some(exchange) = exchange else { return Ok(()) };
        let last = exchange.commands.back_mut().filter(|last| last.data.is_none());
        let last = last.ok_or(Broken::Rules)?;
        if body.len() != last.count.min(TRANSFER_BYTES_MAX) as usize {
            return Err(Broken::Rules);
        }
        last.data = Some(body);
        self.run(at);
        Ok(())
    }

    /// An exchange is to end: at once, because its program is halted or cleared, or when its commands are done. A side that has no exchange is
    /// halted or cleared all the same: its program has just ended, or it has none.
    fn cancel(&mut self, at: At, head: Head) {
        let is_at_once = head.code != cancel::IN_ORDER;
        match &mut self.port(at).exchange {
            Some(exchange) if exchange.number != head.exchange => return,
            Some(exchange) if !is_at_once => {
                exchange.ends_in_order = true;
                if exchange.commands.is_empty() {
                    self.end_exchange(at, DeviceStatus::ENDED, 0, 0);
                    self.present(at);
                }
                return;
            }
            None if !is_at_once => return,
            Some(_) | None => {}
        }
        self.counters.resets += 1;
        self.end_exchange(at, DeviceStatus::ENDED, 0, 0);
        self.reset(at, Reset::Selective);
    }

    /// A side is reset. A command of its peer that waits ends.
    fn reset(&mut self, at: At, reset: Reset) {
        let rest = self.adapter(at).reset(at.side, reset);
        if rest != DeviceStatus(0) {
            self.end_command(at.peer(), rest, 0, 0);
            self.run(at.peer());
        }
        self.present(at);
        self.present(at.peer());
    }

    /// Refuses a program in transport mode, by unit check with command reject: the 3088 has no transport commands, and command reject is how a
    /// control unit answers a command that it does not have (IBM SA22-7203, sense byte 0).
    fn refuse_transport(&mut self, at: At, head: Head) -> Result<(), Broken> {
        let port = self.port(at);
        if port.exchange.is_some() {
            return Err(Broken::Rules);
        }
        port.over = Some(head.exchange);
        self.counters.unit_checks += 1;
        let with = |answer: &mut Head| {
            (answer.code, answer.flags) = (DeviceStatus::UNIT_CHECK.0, flag::SENSE);
        };
        let sense = sense_of(bit::COMMAND_REJECT);
        self.send_to(at, Kind::TransportResponse, head.exchange, with, &sense.0);
        Ok(())
    }

    /// Gives the adapter the commands of a side, as far as they have come and do not wait, and those of the peer that can go on
    /// because of them. Each turn takes a command that has come, so there are no more turns than those.
    fn run(&mut self, at: At) {
        loop {
            let has_run = self.run_one(at);
            // What the side did can have ended a command of the peer, and the other way round.
            if !self.run_one(at.peer()) && !has_run {
                break;
            }
        }
        self.present(at);
        self.present(at.peer());
    }

    /// Gives the adapter the next command of a side. False if there is none, or one waits.
    fn run_one(&mut self, at: At) -> bool {
        let Some(exchange) = &self.port(at).exchange else { return false };
        let (number, sequence) = (exchange.number, exchange.sequence);
        let next = exchange.commands.front().filter(|next| next.data.is_some());
        let Some(next) = next.filter(|_| !exchange.is_waiting) else { return false };
        let (code, count) = (next.code, next.count);
        self.counters.commands += 1;
        // To the first, and to the last of each group: what came before is done.
        if sequence == 0 || sequence % PACING as u64 == PACING as u64 - 1 {
            self.send_to(at, Kind::CommandResponse, number, |_| {}, &[]);
        }
        let place = if sequence == 0 { Place::First } else { Place::Chained };
        let command = Command::of(code, self.adapter(at).is_extended());
        let (answer, there) = self.answer(at, command);
        // The channel stores no data backward.
        let code = if command == Some(Command::ReadBackward) { INVALID } else { code };
        let response = self.adapter(at).command(at.side, code, place);
        match response.fate {
            Fate::Waits => {
                if let Some(exchange) = &mut self.port(at).exchange {
                    (exchange.is_waiting, exchange.presented) = (true, response.status);
                }
                if response.peer.has(DeviceStatus::DEVICE_END) {
                    self.end_command(at.peer(), response.peer, 0, 0);
                }
            }
            Fate::Ended => {
                if response.peer != DeviceStatus(0) {
                    self.end_command(at.peer(), response.peer, 0, 0);
                }
                let is_good = response.status == DeviceStatus::ENDED;
                let there = if is_good { there } else { 0 };
                if is_good && command == Some(Command::SenseAdapterState) {
                    self.adapter(at).take_sense(at.side);
                }
                let moved = count.min(there);
                self.send_data(at, &answer[..moved as usize]);
                self.end_command(at, response.status, moved, there);
            }
            Fate::Moves => {
                let is_reader = command == Some(Command::Read);
                let (reader, writer) = if is_reader { (at, at.peer()) } else { (at.peer(), at) };
                let moved = self.transfer(reader, writer);
                self.end_command(at.peer(), response.peer, moved, moved);
                self.end_command(at, response.status, moved, moved);
            }
        }
        true
    }

    /// What a command reads that moves no data of the peer, and how many bytes of that there are.
    fn answer(&mut self, at: At, command: Option<Command>) -> ([u8; ID.len()], u32) {
        let adapter = self.adapter(at);
        let mut bytes = ID;
        match command {
            Some(Command::SenseId) => (bytes, ID.len() as u32),
            Some(Command::SenseCommandByte) => {
                bytes[0] = adapter.waiting_code(at.side.peer());
                (bytes, 1)
            }
            Some(Command::SenseAdapterState) => {
                (bytes[0], bytes[1]) = (adapter.sense(at.side), 0);
                (bytes, 2)
            }
            _ => (bytes, 0),
        }
    }

    /// Moves data from a WRITE to a READ: as many bytes as both have. Returns how many.
    fn transfer(&mut self, reader: At, writer: At) -> u32 {
        let first = |port: &mut Port| {
            let first = port.exchange.as_mut().and_then(|one| one.commands.front_mut());
            first.map(|first| (first.count, first.data.take().unwrap_or_default()))
        };
        let (count, _) = first(self.port(reader)).unwrap_or_default();
        let (_, data) = first(self.port(writer)).unwrap_or_default();
        let moved = count.min(data.len() as u32);
        self.counters.transfers += 1;
        self.counters.bytes += u64::from(moved);
        self.send_data(reader, &data[..moved as usize]);
        moved
    }

    /// Sends data that the first command of a side reads.
    fn send_data(&mut self, at: At, data: &[u8]) {
        let Some(exchange) = &self.port(at).exchange else { return };
        if data.is_empty() {
            return;
        }
        let (number, sequence) = (exchange.number, exchange.sequence as u16);
        self.send_to(at, Kind::Data, number, |head| head.number = sequence, data);
    }

    /// The first command of a side has ended, and with it the program, unless it goes on. `status` goes with what was presented. Of
    /// its count so many bytes were moved, and so many were there to be moved.
    fn end_command(&mut self, at: At, status: DeviceStatus, moved: u32, there: u32) {
        let Some(exchange) = &mut self.port(at).exchange else { return };
        let status = status.with(std::mem::take(&mut exchange.presented));
        exchange.is_waiting = false;
        let Some(command) = exchange.commands.pop_front() else { return };
        let residual = command.count - moved.min(command.count);
        let is_suppressed =
            command.flags & flag::SUPPRESS_LENGTH != 0 && residual <= u32::from(command.last_bytes);
        let is_good = status == DeviceStatus::ENDED;
        let is_wrong_length = is_good && (residual > 0 || moved != there) && !is_suppressed;
        if is_good && !is_wrong_length && command.flags & flag::CHAINED != 0 {
            exchange.sequence += 1;
            if exchange.ends_in_order && exchange.commands.is_empty() {
                self.end_exchange(at, DeviceStatus::ENDED, 0, 0);
            }
            return;
        }
        let flags = if is_wrong_length { flag::INCORRECT_LENGTH } else { 0 };
        self.end_exchange(at, status, residual, flags);
    }

    /// A program has ended.
    fn end_exchange(&mut self, at: At, status: DeviceStatus, residual: u32, flags: u8) {
        let port = self.port(at);
        let Some(Exchange { number, sequence, .. }) = port.exchange.take() else { return };
        port.over = Some(number);
        let is_check = status.has(DeviceStatus::UNIT_CHECK);
        let sense = sense_of(self.adapter(at).sense(at.side));
        self.counters.unit_checks += u64::from(is_check);
        let is_collision = status == DeviceStatus::BUSY.with(DeviceStatus::ATTENTION);
        self.counters.collisions += u64::from(is_collision);
        let with = |head: &mut Head| {
            (head.code, head.number, head.count) = (status.0, sequence as u16, residual);
            head.flags = flags | if is_check { flag::SENSE } else { 0 };
        };
        let body = if is_check { &sense.0[..] } else { &[] };
        self.send_to(at, Kind::Status, number, with, body);
    }

    /// Presents the interruptions that are pending at a side, if no program of it is under way: within a chain nothing is presented.
    fn present(&mut self, at: At) {
        let is_connected = self.lines[at.line].connections[at.side as usize].is_some();
        if !is_connected || self.port(at).exchange.is_some() {
            return;
        }
        let pending = self.adapter(at).accept(at.side);
        if pending == DeviceStatus(0) {
            return;
        }
        self.counters.interruptions += 1;
        let with = |head: &mut Head| {
            (head.code, head.flags, head.count) = (pending.0, flag::UNSOLICITED, 1);
        };
        self.send_to(at, Kind::Attention, at.subchannel(), with, &[]);
    }
}

/// Sense data with this first byte.
fn sense_of(first: u8) -> Sense {
    let mut bytes = [0; SENSE_BYTES];
    bytes[0] = first;
    Sense(bytes)
}
