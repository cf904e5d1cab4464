//! Operations of transport mode: the commands of a TCCB, all in one go.

use super::ending::Ending;
use super::perform::{self, Refusal};
use super::{Awaited, Connection, EXCHANGES_MAX, Exchange, Unit};
use crate::exchange::{Broken, Head, Kind, flag};
use crate::format::eckd::check_words;
use crate::format::scsw::DeviceStatus;
use crate::format::sense::Fault;
use crate::format::tccb::{
    BadTccb, Dcw, Service, TCAH_BYTES, TCCB_BYTES_MAX, Tccb, transfer_bytes,
};

/// Why a transport mode operation stopped.
#[derive(Debug)]
enum Stop {
    Bad(BadTccb),
    Refused(Refusal),
    Status(DeviceStatus),
}

impl Unit {
    /// All commands of a transport mode operation.
    pub(super) fn transport(
        &mut self,
        connection: &mut Connection,
        unit: crate::exchange::Unit,
        head: Head,
    ) -> Result<(), Broken> {
        // The link is laid aside while its bytes are used: no command sends anything.
        let link = self.links.get_mut(connection.link).and_then(Option::take);
        let link = link.ok_or(Broken::Rules)?;
        let exchange = Exchange::new(head.connection, head.exchange, &connection.device);
        let mut ending = Ending::new(exchange, Kind::TransportResponse);
        let parts = link.body(unit).split_at_checked(head.count as usize);
        let parts = parts.filter(|(tccb, _)| tccb.len() <= TCCB_BYTES_MAX);
        let is_over =
            parts.map(|(tccb, data)| self.operate(connection, head, &mut ending, tccb, data));
        self.links[connection.link] = Some(link);
        if is_over.ok_or(Broken::Rules)? { self.end(connection, ending) } else { Ok(()) }
    }

    /// A transport mode operation, from its start to its end. False if it was put aside.
    pub(super) fn operate(
        &mut self,
        connection: &mut Connection,
        head: Head,
        ending: &mut Ending,
        tccb_bytes: &[u8],
        data: &[u8],
    ) -> bool {
        // Only so many can be put aside.
        let is_full = connection.exchanges.len() >= EXCHANGES_MAX
            || self.is_aside_full(connection, tccb_bytes.len() + data.len());
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
                    ..Exchange::new(head.connection, head.exchange, &connection.device)
                };
                let bytes = [tccb_bytes, data].concat();
                self.put_aside(connection, again, awaited, head, bytes, exchange.slots.into());
                return false;
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
                    Stop::Refused(_) => ending.be_busy(connection),
                    Stop::Status(status) => ending.status = status,
                }
            }
        }
        if ending.exchange.misses > 0 {
            ending.flags |= flag::CACHE_MISS;
        }
        true
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
        let tccb = Tccb::parse(tccb_bytes).map_err(|(bad, at)| (at, Stop::Bad(bad)))?;
        if tccb.service == Service::Interrogate {
            // An interrogation is a unit of its own, and asks about another operation.
            return Err((0, Stop::Bad(BadTccb::Header)));
        }
        // Check words within the stream count too. No record has data that are no multiple of 4, or they would be filled up to one.
        let all: u64 = tccb
            .dcws()
            .map(|(_, Dcw { command, count, control })| {
                u64::from(count) + u64::from(check_words(command, control)) * 4
            })
            .sum();
        let all = u32::try_from(all).map_err(|_| (0, Stop::Bad(BadTccb::Trailer)))?;
        if all > u32::MAX - 8 || transfer_bytes(all) != tccb.transfer_bytes {
            return Err((tccb_bytes.len() - 8, Stop::Bad(BadTccb::Trailer)));
        }
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
