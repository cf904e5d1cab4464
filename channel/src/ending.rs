//! What comes back from the control unit, and how programs end.

use fabric::path::Sender;

use super::guest::{Guest, send};
use super::request::{self, Attached};
use super::run::{Channel, Guests};
use super::subchannel::{Flight, Stop, Subchannel};
use crate::exchange::{Broken, Head, Kind, Pieces, Unit, established, flag, split_tail};
use crate::format::orb::{Orb, OrbFlags};
use crate::format::scsw::{
    DEFERRED_1, DeviceStatus, Scsw, SubchannelStatus, TRANSPORT_FORMAT, TSB_STORED, control,
};
use crate::format::tsb::{TransportStatus, Tsb};

impl Channel {
    pub(super) fn take_unit(
        &mut self,
        link: usize,
        unit: Unit,
        guests: &mut impl Guests,
        now: u64,
    ) -> Result<(), Broken> {
        let head = unit.head;
        let number = usize::from(head.connection);
        let Some(Some(guest)) = self.guests.get_mut(number) else { return Ok(()) };
        if guest.link != link {
            return Err(Broken::Rules);
        }
        if head.kind == Kind::Established {
            if head.exchange != guest.connection {
                return Ok(());
            }
            if guest.is_established || guest.is_refused {
                return Err(Broken::Rules);
            }
            guest.is_established = head.code == 0;
            guest.may_write &= head.number & established::MAY_WRITE != 0;
            guest.traits = (head.number >> established::TRAITS_SHIFT) as u8;
            guest.is_refused = head.code != 0;
            guest.cache_segment = head.count as u16;
            guest.cache = self.links[link].lent(guest.cache_segment);
            return self.tell_attached(number, guests);
        }
        if !guest.is_established {
            return Ok(());
        }
        let is_unsolicited = head.flags & flag::UNSOLICITED != 0;
        if head.kind == Kind::Attention
            && DeviceStatus(head.code) == DeviceStatus::DEVICE_END
            && !is_unsolicited
        {
            return self.take_device_end(number, head.exchange, guests, now);
        }
        let subchannel = (head.exchange & 0xff) as u16;
        let Some(one) = guest.subchannels.get_mut(usize::from(subchannel)) else {
            return Err(Broken::Rules);
        };
        if head.kind == Kind::Attention {
            guest.may_write = head.count != 0;
            if let Some((sender, _)) = guests.halves(number) {
                // A guest that is gone is noticed when it is polled.
                let _ = guest.tell_attention(subchannel, DeviceStatus(head.code), sender);
            }
            return Ok(());
        }
        let is_end = matches!(head.kind, Kind::Status | Kind::TransportResponse);
        // One that the control unit was too busy for brings nothing, and is not counted.
        if is_end && DeviceStatus(head.code) != DeviceStatus::BUSY {
            guest.ended = guest.ended.wrapping_add(1);
            if guest.guest_cache.is_none() {
                // What was read has been copied by now, or is with this unit.
                guest.released = guest.ended;
            }
        }
        if !one.is_running || one.run.exchange != Some(head.exchange) {
            // Of an exchange that has ended here.
            return Ok(());
        }
        if head.kind == Kind::Interrogation {
            let Some((sender, _)) = guests.halves(number) else { return Ok(()) };
            return self.take_interrogation(number, subchannel, link, unit, sender);
        }
        let run = &mut one.run;
        if run.responded_ns.is_none() {
            run.responded_ns = Some(now);
        }
        match head.kind {
            Kind::CommandResponse => {
                match DeviceStatus(head.code) {
                    DeviceStatus(0) if run.respond() => {}
                    status if run.end_search(status) => {}
                    _ => return Err(Broken::Rules),
                }
                if let Some((sender, _)) = guests.halves(number) {
                    // A guest that is gone is noticed when it is polled.
                    let _ = self.advance(number, subchannel, sender, now);
                }
                Ok(())
            }
            Kind::Data => {
                let body = self.links[link].body(unit);
                let pieces = data_of(&head, body);
                let is_of = |flight: &Flight| flight.sequence as u16 == head.number;
                while run.flights.front().is_some_and(|flight| !is_of(flight)) {
                    run.flights.pop_front();
                }
                let flight = run.flights.front_mut().ok_or(Broken::Rules)?;
                if std::mem::replace(&mut flight.has_data, true) {
                    return Err(Broken::Rules);
                }
                let targets = std::mem::take(&mut flight.pieces);
                guest.take_data(subchannel, targets.iter(), pieces).ok_or(Broken::Rules)?;
                let run = &mut guest.subchannels[usize::from(subchannel)].run;
                let stop = run.stop;
                if run.lost != SubchannelStatus::default()
                    && matches!(stop, None | Some(Stop::Suspend))
                {
                    run.stop = Some(Stop::Lost);
                    if stop.is_none() {
                        let head = Head::new(Kind::Cancel, number as u16, head.exchange);
                        // A link that has ended says so when it is polled.
                        let _ = self.links[link].send(&head, &[]);
                    }
                }
                Ok(())
            }
            Kind::TransferReady => self.take_ready(number, subchannel, link, unit),
            Kind::Status => self.take_status(number, subchannel, link, unit, guests, now),
            Kind::TransportResponse => {
                self.take_response(number, subchannel, link, unit, guests, now)
            }
            _ => Err(Broken::Rules),
        }
    }

    fn tell_attached(&mut self, number: usize, guests: &mut impl Guests) -> Result<(), Broken> {
        let Some((sender, _)) = guests.halves(number) else { return Ok(()) };
        let Some(Some(guest)) = self.guests.get_mut(number) else { return Ok(()) };
        if guest.is_refused {
            let _ = guest.refuse(0, 3, sender);
            return Ok(());
        }
        if let Some(lendable) = guest.lendable.take() {
            // A guest that cannot be lent the cache gets copies.
            guest.guest_cache = sender.lend(&lendable).ok();
        }
        let attached = Attached {
            capacity: guest.capacity,
            subchannels: guest.subchannels.len() as u16,
            may_write: guest.may_write,
            cache: guest.guest_cache,
            results: guest.results_segment,
            result_bytes: guest.result_bytes,
            paths: guest.paths(),
            traits: guest.traits,
        };
        let head = request::Head::new(request::Kind::Attached, 0);
        let _ = guest.send(&head, &attached.emit(), sender);
        Ok(())
    }

    fn take_status(
        &mut self,
        number: usize,
        subchannel: u16,
        link: usize,
        unit: Unit,
        guests: &mut impl Guests,
        now: u64,
    ) -> Result<(), Broken> {
        let head = unit.head;
        let Some(Some(guest)) = self.guests.get_mut(number) else { return Ok(()) };
        let one = &mut guest.subchannels[usize::from(subchannel)];
        let run = &mut one.run;
        let tail = split_tail(&head, self.links[link].body(unit)).ok_or(Broken::Rules)?;
        let (&[], disconnect_ns, sense) = tail else { return Err(Broken::Rules) };
        let device = DeviceStatus(head.code);
        if sense.is_some() != device.has(DeviceStatus::UNIT_CHECK) {
            return Err(Broken::Rules);
        }
        run.note_disconnect(disconnect_ns, now);
        run.answer.sense = sense;
        let stop = run.stop;
        let Some((sender, _)) = guests.halves(number) else { return Ok(()) };
        // A guest that is gone is noticed when it is polled.
        if device == DeviceStatus::BUSY {
            let waits = (head.flags & flag::WAITS != 0).then_some(head.exchange);
            match stop {
                Some(stop @ (Stop::Halt | Stop::Clear)) => {
                    let _ = self.stopped(number, subchannel, stop, sender, now);
                    waits.into_iter().for_each(|exchange| self.dismiss(number, exchange));
                }
                _ => guest.retry(subchannel, waits, now),
            }
            return Ok(());
        }
        let is_good = device == DeviceStatus::ENDED && head.flags & flag::INCORRECT_LENGTH == 0;
        if is_good && let Some(stop) = stop {
            let _ = self.stopped(number, subchannel, stop, sender, now);
            return Ok(());
        }
        let is_of = |flight: &&Flight| flight.sequence as u16 == head.number;
        let flight = run.flights.iter().find(is_of);
        let (count, address) = flight.map_or((0, 0), |flight| flight.ended(head.count));
        let incorrect = head.flags & flag::INCORRECT_LENGTH != 0;
        let subchannel_status = if incorrect {
            SubchannelStatus::INCORRECT_LENGTH
        } else {
            SubchannelStatus::default()
        };
        // Busy for the first command: the program was not begun.
        let is_refused = device.has(DeviceStatus::BUSY) && head.number == 0;
        let scsw = Scsw {
            conditions: if is_refused { DEFERRED_1 } else { 0 },
            address,
            device,
            subchannel: subchannel_status,
            count: count as u16,
            ..Scsw::default()
        };
        let _ = self.finish(number, subchannel, scsw, sender, now);
        Ok(())
    }

    fn take_response(
        &mut self,
        number: usize,
        subchannel: u16,
        link: usize,
        unit: Unit,
        guests: &mut impl Guests,
        now: u64,
    ) -> Result<(), Broken> {
        let head = unit.head;
        let Some(Some(guest)) = self.guests.get_mut(number) else { return Ok(()) };
        let tail = split_tail(&head, self.links[link].body(unit)).ok_or(Broken::Rules)?;
        let (body, disconnect_ns, sense) = tail;
        let device = DeviceStatus(head.code);
        let is_check = device.has(DeviceStatus::UNIT_CHECK);
        if sense.is_some() != is_check {
            return Err(Broken::Rules);
        }
        let sense = sense.unwrap_or_default();
        let index = usize::from(subchannel);
        guest.subchannels[index].run.note_disconnect(disconnect_ns, now);
        if device == DeviceStatus::BUSY {
            let run = &mut guest.subchannels[usize::from(subchannel)].run;
            if run.interrogation.is_some() && run.stop.is_none() {
                // It was to be cancelled, and has not begun.
                run.stop = Some(Stop::Cancel);
            }
            let waits = (head.flags & flag::WAITS != 0).then_some(head.exchange);
            let Some(stop) = run.stop else {
                guest.retry(subchannel, waits, now);
                return Ok(());
            };
            waits.into_iter().for_each(|exchange| self.dismiss(number, exchange));
            let Some((sender, _)) = guests.halves(number) else { return Ok(()) };
            // A guest that is gone is noticed when it is polled.
            let _ = self.stopped(number, subchannel, stop, sender, now);
            return Ok(());
        }
        let run = &mut guest.subchannels[index].run;
        let targets = std::mem::take(&mut run.input);
        let pieces = data_of(&head, body);
        let absorbed = guest.take_data(subchannel, targets.iter(), pieces);
        let run = &mut guest.subchannels[index].run;
        run.input = targets;
        absorbed.ok_or(Broken::Rules)?;
        let mut scsw = Scsw { address: run.orb.program, device, ..Scsw::default() };
        if is_check
            || head.count > 0
            || head.flags & flag::CACHE_MISS != 0
            || device != DeviceStatus::ENDED
        {
            let is_program = head.flags & flag::PROGRAM_CHECK != 0;
            let device_us = (now.saturating_sub(run.started_ns) / 1000) as u32;
            let queue_us = (run.queue_ns / 1000) as u32;
            let tsb = Tsb {
                dcw_offset: (device != DeviceStatus::ENDED).then_some(head.number),
                residual_bytes: head.count,
                cache_miss: head.flags & flag::CACHE_MISS != 0,
                status: match is_program {
                    true => TransportStatus::ProgramCheck { reason: sense.0[8], sense },
                    false => TransportStatus::Io { device_us, queue_us, sense },
                },
            };
            run.answer.tsb = Some((run.tsb, tsb.emit()));
            run.answer.sense = is_check.then_some(sense);
            scsw.count = TSB_STORED;
            if is_program {
                scsw.subchannel = SubchannelStatus::PROGRAM_CHECK;
                self.counters.program_checks += 1;
            }
        }
        let Some((sender, _)) = guests.halves(number) else { return Ok(()) };
        let _ = self.finish(number, subchannel, scsw, sender, now);
        Ok(())
    }

    /// A program has ended by itself, and everything before has been done.
    pub(super) fn stopped(
        &mut self,
        number: usize,
        subchannel: u16,
        stop: Stop,
        sender: &mut Sender,
        now: u64,
    ) -> Result<(), Broken> {
        match stop {
            Stop::Check(check) => {
                self.program_check(number, subchannel, check.address, sender, now)
            }
            Stop::Suspend => {
                let Some(Some(guest)) = self.guests.get_mut(number) else { return Ok(()) };
                let run = &mut guest.subchannels[usize::from(subchannel)].run;
                (run.exchange, run.stop, run.is_suspended) = (None, None, true);
                let scsw = Scsw {
                    conditions: conditions(&run.orb),
                    control: control::START
                        | control::SUSPENDED
                        | control::INTERMEDIATE
                        | control::PENDING,
                    address: run.flights.back().map_or(run.orb.program, |flight| flight.end),
                    ..Scsw::default()
                };
                // What was read so far goes with it: the control unit may use its place again once the guest has
                // consumed this, or what ended after it.
                run.answer.scsw = scsw;
                let mut head = run.answer.head(subchannel);
                head.flags |= request::flag::INTERMEDIATE;
                (head.token, head.values[0]) = (guest.ended, run.orb.parameter);
                run.answer.emit(&mut guest.body);
                run.answer.clear();
                send(sender, &mut guest.backlog, &mut guest.lacks, &head, &guest.body)
            }
            Stop::Halt | Stop::Clear | Stop::Cancel => {
                self.finish(number, subchannel, Scsw::default(), sender, now)
            }
            Stop::Lost => {
                let guest = self.guests.get(number).and_then(Option::as_ref);
                let run = guest.map(|guest| &guest.subchannels[usize::from(subchannel)].run);
                let address =
                    run.and_then(|run| run.flights.front()).map_or(0, |flight| flight.end);
                let scsw = Scsw { address, device: DeviceStatus::ENDED, ..Scsw::default() };
                self.finish(number, subchannel, scsw, sender, now)
            }
        }
    }

    pub(super) fn program_check(
        &mut self,
        number: usize,
        subchannel: u16,
        address: u32,
        sender: &mut Sender,
        now: u64,
    ) -> Result<(), Broken> {
        self.counters.program_checks += 1;
        let scsw = Scsw { address, subchannel: SubchannelStatus::PROGRAM_CHECK, ..Scsw::default() };
        self.finish(number, subchannel, scsw, sender, now)
    }

    /// A program has ended: its status goes to the guest.
    pub(super) fn finish(
        &mut self,
        number: usize,
        subchannel: u16,
        scsw: Scsw,
        sender: &mut Sender,
        now: u64,
    ) -> Result<(), Broken> {
        let Some(Some(guest)) = self.guests.get_mut(number) else { return Ok(()) };
        self.counters.results += 1;
        let token = guest.ended;
        let Guest { subchannels, backlog, lacks, body, .. } = guest;
        let one = &mut subchannels[usize::from(subchannel)];
        let Subchannel { run, is_running, measurement, settings, .. } = one;
        *is_running = false;
        run.end_queuing(now);
        if settings.is_measured {
            measurement.add(run, now);
        }
        run.exchange = None;
        let function = match run.stop {
            Some(Stop::Halt) => control::START | control::HALT,
            Some(Stop::Clear) => control::CLEAR,
            Some(Stop::Cancel) => 0,
            _ => control::START,
        };
        let is_undone = matches!(run.stop, Some(Stop::Clear | Stop::Cancel));
        let mut scsw = scsw;
        if run.is_interrupt_held {
            scsw.subchannel.0 |= SubchannelStatus::INTERRUPT.0;
        }
        if run.lost != SubchannelStatus::default() {
            scsw.subchannel.0 |= run.lost.0;
            run.answer.places.clear();
            run.answer.sources.clear();
        }
        let is_alert = scsw.subchannel.0 & !0x80 != 0
            || scsw.device.has(DeviceStatus::UNIT_CHECK)
            || scsw.device.has(DeviceStatus::BUSY);
        let ends = match is_undone {
            true => control::PENDING,
            // As with QEMU (hw/s390x/css.c): nothing has ended, because nothing began.
            false if scsw.is_not_operational() => control::PENDING | control::ALERT,
            false => control::PRIMARY | control::SECONDARY | control::PENDING,
        };
        run.answer.scsw = Scsw {
            conditions: scsw.conditions | conditions(&run.orb),
            control: function | ends | if is_alert { control::ALERT } else { 0 },
            ..scsw
        };
        let mut head = run.answer.head(subchannel);
        (head.token, head.values[0]) = (token, run.orb.parameter);
        run.answer.emit(body);
        send(sender, backlog, lacks, &head, body)
    }
}

/// What an SCSW says of the ORB: key, and transport mode, or suspend, format and prefetch.
pub(super) fn conditions(orb: &Orb) -> u16 {
    let bit = |flag: OrbFlags, bit: u16| if orb.flags.has(flag) { bit } else { 0 };
    let key = u16::from(orb.key) << 12;
    if orb.flags.has(OrbFlags::TRANSPORT) {
        return key | TRANSPORT_FORMAT;
    }
    key | bit(OrbFlags::SUSPEND, 0x0800)
        | bit(OrbFlags::FORMAT_1, 0x0080)
        | bit(OrbFlags::PREFETCH, 0x0040)
}

fn data_of<'a>(head: &Head, body: &'a [u8]) -> Pieces<'a> {
    if head.flags & flag::EXTENTS != 0 { Pieces::Extents(body) } else { Pieces::Bytes(body) }
}
