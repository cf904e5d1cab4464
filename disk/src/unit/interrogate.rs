//! Interrogations: what has become of an operation of transport mode that has not ended.

use super::{Connection, Unit};
use crate::format::fault::Fault;
use crate::format::scsw::DeviceStatus;
use crate::format::tccb::{INTERROGATE, Service, Tccb};
use crate::format::tsb::{DeviceState, Interrogation, OperationState};
use channel::exchange::{Broken, Head, Kind, flag};

impl Unit {
    /// Answers an interrogation of an exchange, which is not disturbed.
    pub(super) fn interrogate(
        &mut self,
        connection: &mut Connection,
        head: Head,
        tccb: &[u8],
    ) -> Result<(), Broken> {
        let answer = Head::new(Kind::Interrogation, head.connection, head.exchange);
        let is_asked = |tccb: &Tccb<'_>| {
            let mut commands = tccb.dcws();
            let first = commands.next().is_some_and(|(_, dcw)| dcw.command == INTERROGATE);
            tccb.service == Service::Interrogate && first && commands.next().is_none()
        };
        if !Tccb::parse(tccb).is_ok_and(|tccb| is_asked(&tccb)) {
            let status = DeviceStatus::ENDED.with(DeviceStatus::UNIT_CHECK);
            let sense = Fault::InvalidParameter.sense(0, 0);
            let answer = Head { code: status.0, flags: flag::SENSE, ..answer };
            return self.link(connection.link)?.send(&answer, &sense.0);
        }
        let states = Interrogation {
            device: self.device_state(connection, head.connection),
            operation: self.operation_state(connection, head),
        };
        let answer = Head { code: DeviceStatus::ENDED.0, ..answer };
        self.link(connection.link)?.send(&answer, &states.emit())
    }

    fn device_state(&self, connection: &Connection, number: u16) -> DeviceState {
        let reservations = &self.volumes[connection.device.volume].reservations;
        if reservations.has(number) { DeviceState::Reserved } else { DeviceState::Free }
    }

    fn operation_state(&self, connection: &Connection, head: Head) -> OperationState {
        let mut exchanges = connection.exchanges.iter();
        if let Some(exchange) = exchanges.find(|exchange| exchange.number == head.exchange) {
            return match exchange.transfer {
                Some(_) => OperationState::AwaitsOutput,
                None => OperationState::AwaitsData,
            };
        }
        let endings = &self.volumes[connection.device.volume].endings;
        let mut of_connection = endings.range((head.connection, 0)..=(head.connection, u64::MAX));
        if of_connection.any(|ending| ending.exchange.number == head.exchange) {
            return OperationState::AwaitsSync;
        }
        OperationState::NotHere
    }
}
