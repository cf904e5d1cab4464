//! Operations of transport mode: the commands of a TCCB, all in one go.

use super::ending::Ending;
use super::output::Output;
use super::perform::{self, Refusal};
use super::{Connection, EXCHANGES_MAX, Exchange, Unit};
use crate::exchange::{Broken, Head, Kind, flag};
use crate::format::scsw::DeviceStatus;
use crate::format::sense::Fault;
use crate::format::tccb::{BadTccb, Service, Tccb, transfer_bytes};

/// Bytes of the longest TCCB that a TCW can name.
const TCCB_BYTES_MAX: usize = 272;

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
        // The TCCB is copied: the output data behind it are long, and stay where they are.
        let body = self.link(connection.link)?.body(unit);
        let exchange = Exchange::new(head.connection, head.exchange, &connection.device);
        let bytes = head.count as usize;
        if bytes > body.len() {
            return Err(Broken::Rules);
        }
        let has_output = body.len() > bytes;
        let mut tccb_bytes = [0; TCCB_BYTES_MAX];
        let Some(tccb_bytes) = tccb_bytes.get_mut(..bytes) else { return Err(Broken::Rules) };
        tccb_bytes.copy_from_slice(&body[..bytes]);
        // The link is laid aside while its bytes are used: no command sends anything.
        let link = if has_output { self.links[connection.link].take() } else { None };
        let data = link.as_ref().map_or(&[][..], |link| &link.body(unit)[bytes..]);
        let ending = self.operate(connection, head, exchange, tccb_bytes, data);
        if link.is_some() {
            self.links[connection.link] = link;
        }
        match ending {
            Some(ending) => self.end(connection, ending),
            None => Ok(()),
        }
    }

    /// A transport mode operation, from its start to its end. None if it was put aside.
    pub(super) fn operate(
        &mut self,
        connection: &mut Connection,
        head: Head,
        mut exchange: Exchange,
        tccb_bytes: &[u8],
        data: &[u8],
    ) -> Option<Ending> {
        let mut ending = Ending::new(head.connection, Exchange::default(), Kind::TransportResponse);
        let mut output = Output::default();
        // Only so many can be put aside.
        exchange.must_block |= connection.exchanges.len() >= EXCHANGES_MAX
            || self.is_aside_full(connection, tccb_bytes.len() + data.len());
        let commands = self.counters.commands;
        let refused =
            self.transport_commands(connection, head, &mut exchange, tccb_bytes, data, &mut output);
        let (residual, refused) = match refused {
            Ok(residual) => (residual, None),
            Err(refused) => (0, Some(refused)),
        };
        ending.residual = residual;
        match refused {
            None => {}
            Some((at, Stop::Bad(bad))) => {
                ending.fail(Fault::InvalidParameter, connection, &exchange.chain);
                ending.sense.0[8] = bad as u8;
                ending.flags |= flag::PROGRAM_CHECK;
                exchange.commands = at as u64;
            }
            Some((at, Stop::Refused(Refusal::Fault(fault)))) => {
                ending.fail(fault, connection, &exchange.chain);
                exchange.commands = at as u64;
            }
            Some((at, Stop::Refused(Refusal::Busy))) => {
                ending.be_busy(connection, &exchange);
                exchange.commands = at as u64;
            }
            Some((_, Stop::Refused(Refusal::Wait(awaited)))) => {
                self.counters.commands = commands;
                let held = std::mem::take(&mut exchange.slots);
                let again = Exchange {
                    misses: exchange.misses,
                    passing: exchange.passing,
                    turns: exchange.turns,
                    asked: exchange.asked,
                    ..Exchange::new(head.connection, head.exchange, &connection.device)
                };
                let bytes = [tccb_bytes, data].concat();
                self.put_aside(connection, again, awaited, head, bytes, held);
                return None;
            }
            Some((at, Stop::Status(status))) => {
                ending.status = status;
                exchange.commands = at as u64;
            }
        }
        if exchange.misses > 0 {
            ending.flags |= flag::CACHE_MISS;
        }
        ending.exchange = exchange;
        ending.output = output;
        Some(ending)
    }

    /// Runs the commands of a TCCB. Returns how many bytes of data were not moved, or where it stopped.
    fn transport_commands(
        &mut self,
        connection: &mut Connection,
        head: Head,
        exchange: &mut Exchange,
        tccb_bytes: &[u8],
        data: &[u8],
        output: &mut Output,
    ) -> Result<u32, (usize, Stop)> {
        let tccb = Tccb::parse(tccb_bytes).map_err(|(bad, at)| (at, Stop::Bad(bad)))?;
        if tccb.service == Service::Interrogate {
            // Of one that waits for a track there is nothing to tell either: it has done nothing yet.
            return Ok(0);
        }
        let all: u64 = tccb.dcws().map(|(_, dcw)| u64::from(dcw.count)).sum();
        let all = u32::try_from(all).map_err(|_| (0, Stop::Bad(BadTccb::Trailer)))?;
        if all > u32::MAX - 8 || transfer_bytes(all) != tccb.transfer_bytes {
            return Err((tccb_bytes.len() - 8, Stop::Bad(BadTccb::Trailer)));
        }
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
