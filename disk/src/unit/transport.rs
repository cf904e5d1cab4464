//! Operations of transport mode: the commands of a TCCB, all in one go.

use super::cache::Slot;
use super::ending::Ending;
use super::perform::{self, Refusal};
use super::transfer::Arrival;
use super::{Awaited, Connection, EXCHANGES_MAX, Exchange, OUTPUT_BYTES_MAX, Unit};
use crate::format::eckd::check_words;
use crate::format::fault::Fault;
use crate::format::scsw::DeviceStatus;
use crate::format::tccb::{
    BadTccb, Dcw, Service, TCAH_BYTES, TCCB_BYTES_MAX, Tccb, transfer_bytes,
};
use channel::exchange::{Broken, FIRST_BURST_BYTES, Head, Kind, flag};

/// Bytes of the TCCB that a transport command brings.
pub(super) fn tccb_bytes(head: Head) -> usize {
    usize::from(head.code) * 4
}

/// A TCCB, and bytes of all output data that its commands need.
///
/// # Errors
/// What is wrong with it, and where.
pub(super) fn check(tccb_bytes: &[u8]) -> Result<(Tccb<'_>, u64), (usize, BadTccb)> {
    let tccb = Tccb::parse(tccb_bytes).map_err(|(bad, at)| (at, bad))?;
    if tccb.service == Service::Interrogate {
        // An interrogation is a unit of its own, and asks about another operation.
        return Err((0, BadTccb::Header));
    }
    // Check words within the stream count too. No record has data that are no multiple of 4, or they would be filled up to one.
    let (mut all, mut output) = (0_u64, 0_u64);
    for (_, Dcw { command, count, control }) in tccb.dcws() {
        all += u64::from(count) + u64::from(check_words(command, control)) * 4;
        output += if perform::writes(command, control) { count.into() } else { 0 };
    }
    let all = u32::try_from(all).map_err(|_| (0, BadTccb::Trailer))?;
    if all > u32::MAX - 8 || transfer_bytes(all) != tccb.transfer_bytes {
        return Err((tccb_bytes.len() - 8, BadTccb::Trailer));
    }
    Ok((tccb, output))
}

/// Why a transport mode operation stopped.
#[derive(Debug)]
enum Stop {
    Bad(BadTccb),
    Refused(Refusal),
    Status(DeviceStatus),
}

impl Unit {
    /// Takes a transport command: runs the operation, or has it wait until its output data have come.
    pub(super) fn transport(
        &mut self,
        connection: &mut Connection,
        unit: channel::exchange::Unit,
        head: Head,
    ) -> Result<(), Broken> {
        // The link is laid aside while its bytes are used: no command sends anything.
        let link = self.links.get_mut(connection.link).and_then(Option::take);
        let link = link.ok_or(Broken::Rules)?;
        let exchange = self.arrive(connection, head);
        let is_admitted = exchange.is_admitted;
        let mut ending = Ending::new(exchange, Kind::TransportResponse);
        let all = head.count as usize;
        let is_later = all > FIRST_BURST_BYTES;
        let here = if is_later { 0 } else { all };
        let parts = link.body(unit).split_at_checked(tccb_bytes(head));
        let parts = parts.filter(|(tccb, data)| {
            tccb.len() <= TCCB_BYTES_MAX && data.len() == here && all <= OUTPUT_BYTES_MAX
        });
        let is_over = parts.ok_or(Broken::Rules).and_then(|(tccb, data)| {
            let arrival = match is_later {
                true => self.await_output(connection, head, tccb, is_admitted)?,
                false => Arrival::Runs,
            };
            Ok(match arrival {
                Arrival::Waits => false,
                Arrival::Runs => self.operate_first(connection, head, &mut ending, tccb, data),
                Arrival::Reserved => {
                    ending.be_reserved(false, connection);
                    true
                }
            })
        });
        self.links[connection.link] = Some(link);
        if is_over? { self.end(connection, ending) } else { Ok(()) }
    }

    /// A transport mode operation, from its start to its end. Otherwise what it waits for, and what it is when it runs again: the caller puts
    /// it aside.
    pub(super) fn operate(
        &mut self,
        connection: &mut Connection,
        head: Head,
        ending: &mut Ending,
        tccb_bytes: &[u8],
        data: &[u8],
    ) -> Option<(Awaited, Exchange, Vec<Slot>)> {
        // Only so many can be put aside.
        let is_full = connection.exchanges.len() >= EXCHANGES_MAX
            || (ending.exchange.room_bytes == 0
                && self.is_aside_full(connection, tccb_bytes.len() + data.len()));
        ending.exchange.must_block |= is_full;
        let commands = self.counters.commands;
        match self.transport_commands(connection, head, ending, tccb_bytes, data) {
            Ok(residual) => ending.residual = residual,
            Err((_, Stop::Refused(Refusal::Wait(awaited))))
                if awaited != Awaited::Turn || !is_full =>
            {
                self.counters.commands = commands;
                let exchange = std::mem::take(&mut ending.exchange);
                let again = Exchange {
                    misses: exchange.misses,
                    passing: exchange.passing,
                    turns: exchange.turns,
                    asked: exchange.asked,
                    empty: exchange.empty,
                    yields: exchange.yields,
                    room_bytes: exchange.room_bytes,
                    is_admitted: exchange.is_admitted,
                    disconnect_time: exchange.disconnect_time,
                    ..Exchange::new(head.connection, head.exchange, &connection.device)
                };
                return Some((awaited, again, exchange.slots.into()));
            }
            Err((at, stop)) => {
                ending.exchange.commands = at as u64;
                match stop {
                    Stop::Bad(bad) => {
                        ending.fail(Fault::InvalidParameter, connection);
                        ending.sense.0[8] = bad as u8;
                        ending.flags |= flag::PROGRAM_CHECK;
                    }
                    Stop::Refused(Refusal::Fault(fault)) => ending.fail(fault, connection),
                    Stop::Refused(Refusal::Reserved { reserves }) => {
                        ending.be_reserved(reserves, connection);
                    }
                    Stop::Refused(_) => ending.be_busy(connection),
                    Stop::Status(status) => ending.status = status,
                }
            }
        }
        if ending.exchange.misses > 0 {
            ending.flags |= flag::CACHE_MISS;
        }
        None
    }

    /// A transport mode operation, of which nothing is kept yet. False if it was put aside.
    pub(super) fn operate_first(
        &mut self,
        connection: &mut Connection,
        head: Head,
        ending: &mut Ending,
        tccb_bytes: &[u8],
        data: &[u8],
    ) -> bool {
        let again = self.operate(connection, head, ending, tccb_bytes, data);
        let Some((awaited, exchange, held)) = again else { return true };
        let bytes = [tccb_bytes, data].concat();
        self.put_aside(connection, exchange, awaited, head, bytes, held);
        false
    }

    /// Runs the commands of a TCCB. Returns how many bytes of data were not moved, or where it stopped.
    fn transport_commands(
        &mut self,
        connection: &mut Connection,
        head: Head,
        ending: &mut Ending,
        tccb_bytes: &[u8],
        data: &[u8],
    ) -> Result<u32, (usize, Stop)> {
        let Ending { exchange, output, .. } = ending;
        let (tccb, _) = check(tccb_bytes).map_err(|(at, bad)| (at, Stop::Bad(bad)))?;
        let hoards = connection.refuse_hoarder();
        hoards.map_err(|fault| (TCAH_BYTES, Stop::Refused(fault.into())))?;
        let (mut at, mut residual) = (0, 0);
        for (offset, dcw) in tccb.dcws() {
            self.counters.commands += 1;
            let stop = |refusal| (offset, Stop::Refused(refusal));
            let writes = perform::writes(dcw.command, dcw.control);
            // Parameters go with the command; what is written is the output data.
            let rest = &data[at.min(data.len())..];
            let piece = if writes { rest.get(..dcw.count as usize) } else { Some(&[][..]) };
            let piece = piece.ok_or((offset, Stop::Bad(BadTccb::Dcw)))?;
            at += piece.len();
            let moved = self
                .perform_transport(connection, head.connection, exchange, &dcw, piece, output)
                .map_err(stop)?;
            residual += dcw.count.saturating_sub(moved.bytes);
            if moved.status != DeviceStatus::ENDED {
                return Err((offset, Stop::Status(moved.status)));
            }
        }
        Ok(residual)
    }
}
