//! Output data of transport mode that did not go with the command: they are sent when the control unit has room for them.

use super::run::Channel;
use super::storage::{gather_behind, part};
use super::subchannel::Stop;
use super::walk::Check;
use crate::exchange::{Broken, Head, Kind, Unit};
use crate::format::scsw::SubchannelStatus;

impl Channel {
    /// The control unit has sent transfer ready.
    ///
    /// # Errors
    /// It asks for what is not there, or has asked before.
    pub(super) fn take_ready(
        &mut self,
        number: usize,
        subchannel: u16,
        link: usize,
        unit: Unit,
    ) -> Result<(), Broken> {
        let Some(Some(guest)) = self.guests.get_mut(number) else { return Ok(()) };
        let run = &mut guest.subchannels[usize::from(subchannel)].run;
        let offset = self.links[link].body(unit).try_into().map_err(|_| Broken::Rules)?;
        let (offset, count) = (u32::from_le_bytes(offset), unit.head.count);
        // Of a program whose output has gone with its command, or was asked for, there are none.
        let there = std::mem::take(&mut run.output_bytes);
        if count == 0 || offset.checked_add(count).is_none_or(|end| end > there) {
            return Err(Broken::Rules);
        }
        run.asked = Some((offset, count));
        self.send_output(number, subchannel);
        Ok(())
    }

    /// Sends the output data that the control unit has asked for, or waits until the link is not behind. They are copied out of the guest's
    /// storage now, from where the TCW and its TIDAWs said when the program began.
    pub(super) fn send_output(&mut self, number: usize, subchannel: u16) {
        let Some(Some(guest)) = self.guests.get_mut(number) else { return };
        let Some(one) = guest.subchannels.get_mut(usize::from(subchannel)) else { return };
        let run = &mut one.run;
        let (Some(storage), Some(exchange)) = (&guest.storage, run.exchange) else { return };
        let Some((offset, count)) = run.asked else { return };
        let link = &mut self.links[guest.link];
        if link.is_behind() {
            self.waiting[guest.link].push_back((number, exchange));
            return;
        }
        run.asked = None;
        if run.stop.is_some() {
            // The control unit has been told that the exchange is to end.
            return;
        }
        self.body.clear();
        let pieces = part(run.output.iter(), offset, count);
        // A link that has ended says so when it is polled.
        if gather_behind(storage, pieces.iter(), &mut self.body).is_some() {
            self.counters.output_bytes += u64::from(count);
            let _ = link.send(&Head::new(Kind::Data, number as u16, exchange), &self.body);
        } else {
            let status = SubchannelStatus::PROGRAM_CHECK;
            run.stop = Some(Stop::Check(Check { status, address: run.orb.program }));
            let _ = link.send(&Head::new(Kind::Cancel, number as u16, exchange), &[]);
        }
    }
}
