//! Cancel: a program that has not begun is withdrawn, and of one of transport mode that has begun the control unit is asked what became.

use fabric::path::Sender;

use super::ending::conditions;
use super::guest::Guest;
use super::run::Channel;
use super::storage::Storage;
use super::stream::{self, Wrong};
use super::subchannel::Stop;
use crate::exchange::{Broken, Head, Kind, Unit, flag};
use crate::format::orb::OrbFlags;
use crate::format::scsw::{DeviceStatus, Scsw, SubchannelStatus, TSB_STORED, control};
use crate::format::sense::{SENSE_BYTES, Sense};
use crate::format::tsb::{INTERROGATION_BYTES, Interrogation, TSB_BYTES, TransportStatus, Tsb};

impl Channel {
    /// A guest wants a program cancelled. One that the control unit has not is withdrawn. Of one in transport mode that names an
    /// interrogating TCW the control unit is asked what became; the program goes on. Others are refused.
    pub(super) fn cancel(
        &mut self,
        number: usize,
        subchannel: u16,
        sender: &mut Sender,
        now: u64,
    ) -> Result<(), Broken> {
        let Some(Some(guest)) = self.guests.get_mut(number) else { return Ok(()) };
        let one = &mut guest.subchannels[usize::from(subchannel)];
        if !one.is_running {
            return guest.refuse(subchannel, 1, sender);
        }
        let run = &mut one.run;
        let Some(exchange) = run.exchange else {
            // The control unit was busy, or the program is suspended.
            run.stop = Some(Stop::Cancel);
            if let Some(exchange) = guest.stop_waiting(subchannel) {
                self.dismiss(number, exchange);
            }
            return self.finish(number, subchannel, Scsw::default(), sender, now);
        };
        let is_transport = run.orb.flags.has(OrbFlags::TRANSPORT);
        if !is_transport || run.interrogate == 0 || run.interrogation.is_some() {
            return guest.refuse(subchannel, 2, sender);
        }
        match guest.interrogating_program(subchannel) {
            Ok((tsb, tccb)) => {
                let run = &mut guest.subchannels[usize::from(subchannel)].run;
                run.interrogation = Some(tsb);
                let head = Head {
                    count: tccb.len() as u32,
                    ..Head::new(Kind::Interrogate, number as u16, exchange)
                };
                // A link that has ended says so when it is polled.
                let _ = self.links[guest.link].send(&head, &tccb);
                Ok(())
            }
            Err(Wrong) => {
                self.counters.program_checks += 1;
                let scsw = Scsw { subchannel: SubchannelStatus::PROGRAM_CHECK, ..Scsw::default() };
                guest.tell_interrogation(subchannel, scsw, None, sender)
            }
        }
    }

    /// The control unit has answered an interrogation.
    pub(super) fn take_interrogation(
        &mut self,
        number: usize,
        subchannel: u16,
        link: usize,
        unit: Unit,
        sender: &mut Sender,
    ) -> Result<(), Broken> {
        let Some(Some(guest)) = self.guests.get_mut(number) else { return Ok(()) };
        let run = &mut guest.subchannels[usize::from(subchannel)].run;
        let address = run.interrogation.take().ok_or(Broken::Rules)?;
        let body = self.links[link].body(unit);
        let status = if unit.head.flags & flag::SENSE != 0 {
            let sense: [u8; SENSE_BYTES] = body.try_into().map_err(|_| Broken::Rules)?;
            TransportStatus::ProgramCheck { reason: 0, sense: Sense(sense) }
        } else {
            let bytes: &[u8; INTERROGATION_BYTES] = body.try_into().map_err(|_| Broken::Rules)?;
            TransportStatus::Interrogation(Interrogation::parse(bytes).ok_or(Broken::Rules)?)
        };
        let tsb = Tsb { status, ..Tsb::default() };
        let device = DeviceStatus(unit.head.code);
        let scsw = Scsw { device, count: TSB_STORED, ..Scsw::default() };
        let _ = guest.tell_interrogation(subchannel, scsw, Some((address, tsb.emit())), sender);
        Ok(())
    }
}

impl Guest {
    /// The TSB's address and the TCCB of the program that interrogates what runs on a subchannel.
    fn interrogating_program(&self, subchannel: u16) -> Result<(u64, Vec<u8>), Wrong> {
        let storage = self.storage.as_ref().ok_or(Wrong)?;
        let address = self.subchannels[usize::from(subchannel)].run.interrogate;
        let tcw = stream::fetch_tcw(storage, address)?;
        let has_data = tcw.output.is_some() || tcw.input.is_some();
        if has_data || !storage.holds(tcw.tsb, TSB_BYTES as u64) {
            return Err(Wrong);
        }
        let mut tccb = Vec::new();
        stream::fetch_tccb(storage, &tcw, &mut tccb)?;
        Ok((tcw.tsb, tccb))
    }

    /// Tells the guest what became of an interrogation. The program goes on.
    fn tell_interrogation(
        &mut self,
        subchannel: u16,
        scsw: Scsw,
        tsb: Option<(u64, [u8; TSB_BYTES])>,
        sender: &mut Sender,
    ) -> Result<(), Broken> {
        let run = &self.subchannels[usize::from(subchannel)].run;
        let is_alert = scsw.subchannel != SubchannelStatus::default();
        let scsw = Scsw {
            conditions: conditions(&run.orb),
            control: control::START
                | control::SUBCHANNEL_ACTIVE
                | control::INTERMEDIATE
                | control::PENDING
                | if is_alert { control::ALERT } else { 0 },
            address: run.interrogate,
            ..scsw
        };
        self.send_intermediate(subchannel, scsw, tsb, sender)
    }
}
