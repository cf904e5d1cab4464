//! A line over a channel-to-channel adapter: its end is opened, its programs are started, and their ends taken.

use channel::ctc::line::{Line as Programs, LineEvent, StartError};
use channel::ctc::unit::{READ_SUBCHANNEL, WRITE_SUBCHANNEL};
use fabric::control::Target;
use fabric::name::{LanName, Name};
use fabric::path::{NO_DATA, SendError, Sender};
use net::lan::frame::ETHERNET_BYTES;
use net::links::{
    CTCM_MTU_MAX, Channel, Channels, Counters, Ended, FIRST_BLOCK, Framing, Step, Terms,
    Unconnected, gauge,
};
use net::tcpip::Unsent;

use super::connecting::why;
use super::end::Line;
use super::packets::RETRY_NS;
use super::waits::Occupant;
use crate::ctc;
use crate::guest::Connecting;

/// Events that one call takes. More is left to the next call.
const EVENTS_PER_CALL_MAX: usize = 8;

/// Requests that one call refuses. More is left to the next call.
const REFUSALS_PER_CALL_MAX: usize = 4;

/// Steps that one call does: each channel has one or two at a time, and a path begins with one of each.
const STEPS_PER_CALL_MAX: usize = 8;

/// What a line over an adapter has beside its driver.
#[derive(Debug)]
pub(super) struct Adapter {
    /// The guest that serves the line.
    server: Name,
    name: LanName,
    pub(super) channels: Channels,
    /// The request for the end of the line, while it is out.
    asking: Option<Box<Connecting>>,
    /// Bytes of the block that was read into the line's buffer and not taken yet.
    block: Option<usize>,
    /// Something has happened while a block was looked for: there may be more, of which no doorbell tells.
    has_worked: bool,
}

impl Adapter {
    pub(super) fn new(server: Name, name: LanName, now: u64) -> Adapter {
        let mut channels = Channels::new();
        channels.start(now);
        Adapter { server, name, channels, asking: None, block: None, has_worked: false }
    }
}

/// The bytes of the longest block of a line with this MTU.
fn block_bytes(mtu: usize) -> u32 {
    Terms::ctcm(mtu.min(CTCM_MTU_MAX)).receive_bytes_max as u32
}

impl Line {
    /// The end of the line at the adapter, if there is one.
    fn end_of_adapter(&mut self) -> Option<&mut ctc::Line> {
        match self.waiter.get_mut(self.path?) {
            Some(Occupant::Adapter(end)) => Some(end),
            _ => None,
        }
    }

    /// Does what there is to do beside blocks that have come: the guest's news, what is due, the ends of programs, and what was collected. Returns
    /// whether there was anything.
    pub(super) fn poll_adapter(&mut self, now: u64) -> bool {
        let mut buffer = self.take_buffer();
        let has_worked = self.work(now, &mut buffer);
        self.give_back(buffer);
        has_worked
    }

    /// Takes what has happened, and does what is to be done next. Whoever takes the end of a WRITE starts the next: nothing else would have it
    /// looked for.
    fn work(&mut self, now: u64, buffer: &mut [u8]) -> bool {
        let mut has_worked = self.take_events(now, buffer);
        has_worked |= self.step(now);
        has_worked | self.write_collected(now)
    }

    /// Does what the guest has news of.
    pub(super) fn serve_guest_at_adapter(&mut self, now: u64) {
        // Nobody asks a line over an adapter for anything.
        for _ in 0..REFUSALS_PER_CALL_MAX {
            let Some(pending) = self.guest().pending() else { break };
            self.guest().refuse(pending, NO_DATA);
        }
        let asking = self.adapter.as_mut().and_then(|adapter| adapter.asking.take());
        let Some(mut connecting) = asking else { return };
        match self.guest().try_complete(&mut connecting) {
            Ok(None) => self.adapter_mut().asking = Some(connecting),
            Ok(Some(path)) => self.join_adapter(now, path),
            Err(error) => {
                let why = match ctc::why_not_opened(&error) {
                    // The end of the program before this one is not noticed yet.
                    Some(ctc::NotOpened::InUse) => Unconnected::Absent,
                    Some(ctc::NotOpened::NoLine) => Unconnected::NotAllowed,
                    None => why(&error),
                };
                self.adapter_mut().channels.unopened(now, why);
            }
        }
    }

    fn adapter_mut(&mut self) -> &mut Adapter {
        self.adapter.as_mut().expect("a line over an adapter")
    }

    /// There is a path to the adapter: programs can be started when the server says so.
    fn join_adapter(&mut self, now: u64, path: crate::Path) {
        let bytes = block_bytes(self.driver.mtu());
        let end = ctc::Line::over(path, bytes);
        let added = end.and_then(|end| self.waiter.add(Occupant::Adapter(Box::new(end))));
        match added {
            Ok(key) => {
                self.path = Some(key);
                self.received.resize(ETHERNET_BYTES + bytes as usize, 0);
            }
            // Memory or descriptors are lacking: the path has ended by being dropped.
            Err(_) => self.adapter_mut().channels.unopened(now, Unconnected::Absent),
        }
    }

    /// Takes what has happened at the adapter. A block that was read is put into `buffer`, behind room for an Ethernet header, and the next is taken
    /// when that one was ([`Line::receive_block`]). Returns whether anything has happened.
    fn take_events(&mut self, now: u64, buffer: &mut [u8]) -> bool {
        let mut has_worked = false;
        for _ in 0..EVENTS_PER_CALL_MAX {
            // The buffer has a block that is not taken yet, or packets of one that are not.
            let has_block = self.adapter.as_ref().is_none_or(|adapter| adapter.block.is_some());
            if has_block || self.kept.is_some() {
                break;
            }
            let Some(end) = self.end_of_adapter() else { break };
            let event = match end.poll() {
                Ok(None) => break,
                Ok(Some(event)) => event,
                Err(_) => {
                    self.sever_adapter(now);
                    return true;
                }
            };
            has_worked = true;
            if !self.take_event(now, event, buffer) {
                self.sever_adapter(now);
                break;
            }
        }
        has_worked
    }

    /// Returns false if the path is of no more use.
    fn take_event(&mut self, now: u64, event: LineEvent, buffer: &mut [u8]) -> bool {
        let target = buffer.get_mut(ETHERNET_BYTES..).unwrap_or(&mut []);
        let Line { waiter, path, driver, adapter, .. } = self;
        let Some(adapter) = adapter else { return false };
        let channels = &mut adapter.channels;
        match event {
            LineEvent::Attached => return channels.attached(now),
            LineEvent::Interruption { subchannel, .. } => {
                if let Some(channel) = channel_of(subchannel) {
                    channels.interrupted(now, channel);
                }
            }
            LineEvent::Ended { subchannel, end, bytes, .. } => {
                let Some(channel) = channel_of(subchannel) else { return false };
                let ended = match end {
                    ctc::End::Done => Ended::Done,
                    ctc::End::EndOfFile => Ended::EndOfFile,
                    ctc::End::Collided => Ended::Collided,
                    ctc::End::Check(_) => Ended::Check,
                    _ => Ended::Other,
                };
                let has_read = ended == Ended::Done && channel == Channel::Read && bytes > 0;
                if !has_read {
                    channels.ended(now, channel, ended, driver);
                    return true;
                }
                let end = path.and_then(|key| waiter.get_mut(key));
                let Some(Occupant::Adapter(end)) = end else { return false };
                let Ok(bytes) = end.copy(target) else { return false };
                let block = target.get(..bytes).unwrap_or(&[]);
                adapter.block = channels.read(now, block, driver).then_some(bytes);
            }
            // What was to be halted has ended before.
            LineEvent::Refused { code: 1, .. } => {}
            // A program that was not started never ends: the end of the line is opened anew.
            LineEvent::Refused { .. } => channels.refused(),
            _ => return false,
        }
        true
    }

    /// Does what the channels have to do now. Returns whether there was anything.
    pub(super) fn step(&mut self, now: u64) -> bool {
        let mut has_worked = false;
        for _ in 0..STEPS_PER_CALL_MAX {
            if self.retry_ns.is_some() {
                break;
            }
            let Line { adapter: Some(adapter), driver, .. } = self else { break };
            let Some(step) = adapter.channels.poll(now, driver) else { break };
            has_worked = true;
            let started = match step {
                Step::Open => {
                    self.open(now);
                    continue;
                }
                Step::Withdraw => {
                    adapter.asking = None;
                    self.drop_path();
                    continue;
                }
                Step::Detach => {
                    self.sever_adapter(now);
                    continue;
                }
                Step::SetMode(channel) => self.start(now, |end, sender| {
                    end.set_extended_mode(subchannel_of(channel), sender)
                }),
                Step::Read => self.start(now, Programs::read),
                Step::Greet => self.start(now, |end, sender| {
                    end.write_buffer()[..FIRST_BLOCK.len()].copy_from_slice(&FIRST_BLOCK);
                    end.write(FIRST_BLOCK.len() as u32, sender)
                }),
            };
            if started.is_err() {
                break;
            }
            self.adapter_mut().channels.started(step);
        }
        has_worked
    }

    /// Asks the server for this end of the line.
    fn open(&mut self, now: u64) {
        let bytes = block_bytes(self.driver.mtu());
        let wait = self.wait_policy();
        let Adapter { server, name, .. } = *self.adapter_mut();
        let asked = ctc::request(name.as_str(), bytes, wait)
            .map(|options| self.guest().start_connecting_to(Target::Guest(server), &options));
        match asked {
            Some(Ok(connecting)) => self.adapter_mut().asking = Some(Box::new(connecting)),
            Some(Err(error)) => self.adapter_mut().channels.unopened(now, why(&error)),
            None => unreachable!("names of lines have 8 letters at most"),
        }
    }

    /// Starts a program.
    fn start(
        &mut self,
        now: u64,
        start: impl FnOnce(&mut Programs, &mut Sender) -> Result<(), StartError>,
    ) -> Result<(), Unsent> {
        let Some(line) = self.end_of_adapter() else { return Err(Unsent::Unreachable) };
        let (end, sender) = line.parts();
        match start(end, sender) {
            Ok(()) => Ok(()),
            Err(StartError::Send(SendError::Lacking(lack))) => {
                self.retry_ns = Some(now + RETRY_NS);
                Err(Unsent::Lacking(lack))
            }
            Err(StartError::Send(SendError::Severed(_) | SendError::TooLong { .. })) => {
                self.sever_adapter(now);
                Err(Unsent::Unreachable)
            }
            // Room, and the end of a quiesce, are found out by trying.
            Err(_) => {
                self.retry_ns = Some(now + RETRY_NS);
                Err(Unsent::Full)
            }
        }
    }

    /// Writes the packets that were collected as one block, if none is under way.
    fn write_collected(&mut self, now: u64) -> bool {
        let Line { waiter, path, driver, adapter, retry_ns, .. } = self;
        let may_send = adapter.as_ref().is_some_and(|adapter| adapter.channels.may_send());
        if !may_send || retry_ns.is_some() {
            return false;
        }
        let Some(message) = driver.collected() else { return false };
        let end = path.and_then(|key| waiter.get_mut(key));
        let Some(Occupant::Adapter(end)) = end else { return false };
        let bytes = message.len();
        end.write_buffer()[..bytes].copy_from_slice(&message);
        drop(message);
        if self.start(now, |end, sender| end.write(bytes as u32, sender)).is_err() {
            return false;
        }
        self.adapter_mut().channels.sending();
        self.driver.sent_collected(now, bytes);
        true
    }

    /// Writes a block with one packet.
    ///
    /// # Errors
    /// [`Unsent`]; nothing of it has gone.
    pub(super) fn write_one(
        &mut self,
        now: u64,
        (framing, is_v4): (Framing, bool),
        (packet_bytes, block_bytes): (usize, usize),
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), Unsent> {
        if self.retry_ns.is_some() || !self.adapter_mut().channels.may_send() {
            return Err(Unsent::Full);
        }
        let Some(end) = self.end_of_adapter() else { return Err(Unsent::Unreachable) };
        framing.write_one(is_v4, &mut end.write_buffer()[..block_bytes], write);
        self.start(now, |end, sender| end.write(block_bytes as u32, sender))?;
        self.adapter_mut().channels.sending();
        self.driver.sent_one(now, packet_bytes);
        Ok(())
    }

    /// Returns the bytes of the next block, which is in the buffer behind room for an Ethernet header. The next READ is started before its
    /// packets are looked at.
    pub(super) fn receive_block(&mut self, now: u64, buffer: &mut [u8]) -> Option<usize> {
        if self.adapter_mut().block.is_none() {
            let has_worked = self.work(now, buffer);
            self.adapter_mut().has_worked |= has_worked;
        }
        self.adapter_mut().block.take()
    }

    /// Returns true if something has happened while blocks were looked for, once.
    pub(crate) fn take_worked(&mut self) -> bool {
        self.adapter.as_mut().is_some_and(|adapter| std::mem::take(&mut adapter.has_worked))
    }

    /// Drops the path to the adapter, which resets both sides of this end.
    fn drop_path(&mut self) {
        if let Some(key) = self.path.take() {
            self.waiter.remove(key);
        }
        self.retry_ns = None;
        self.adapter_mut().block = None;
    }

    /// The path to the adapter has ended, or is ended now.
    pub(super) fn sever_adapter(&mut self, now: u64) {
        self.drop_path();
        let Line { adapter: Some(adapter), driver, .. } = self else { return };
        adapter.asking = None;
        // A path that was not attached yet is a request that came to nothing.
        adapter.channels.unopened(now, Unconnected::Absent);
        adapter.channels.detached(now, driver);
    }

    /// Halts what is under way, so that the peer learns that this end was stopped, and is not gone. The path ends with the line.
    pub(super) fn halt_adapter(&mut self) {
        let Some(line) = self.end_of_adapter() else { return };
        let (end, sender) = line.parts();
        for subchannel in [READ_SUBCHANNEL, WRITE_SUBCHANNEL] {
            if end.is_running(subchannel) {
                // A path that takes nothing is ended in any case.
                let _ = end.halt(subchannel, sender);
            }
        }
    }

    /// Shows observers how the line stands.
    pub(super) fn show_adapter(&mut self) {
        let name = gauge::name(self.name().filter(|_| self.driver.terms().is_some()));
        let counters: Counters = *self.driver.counters();
        let Some(line) = self.end_of_adapter() else { return };
        let path = line.path();
        let [sent, received] = gauge::of_adapter(name, &counters);
        for (number, level) in sent.into_iter().enumerate() {
            path.sender().raw().show(number, level);
        }
        for (number, level) in received.into_iter().enumerate() {
            path.receiver().raw().show(number, level);
        }
    }
}

fn channel_of(subchannel: u16) -> Option<Channel> {
    match subchannel {
        READ_SUBCHANNEL => Some(Channel::Read),
        WRITE_SUBCHANNEL => Some(Channel::Write),
        _ => None,
    }
}

fn subchannel_of(channel: Channel) -> u16 {
    match channel {
        Channel::Read => READ_SUBCHANNEL,
        Channel::Write => WRITE_SUBCHANNEL,
    }
}

#[cfg(test)]
mod tests;
