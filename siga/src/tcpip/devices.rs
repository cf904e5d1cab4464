//! What changes about the devices that a stack has at adapters.

use fabric::name::Name;

use super::own::Own;
use crate::osa::OsaChange;

/// A change of a device of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceChange {
    /// The number of the device in the stack.
    pub number: usize,
    /// The guest that has the device.
    pub guest: Name,
    /// The guest that serves the adapter.
    pub adapter: Name,
    /// The change.
    pub what: OsaChange,
}

impl Own {
    /// What has changed about devices since this was called last.
    pub(super) fn device_changes(&mut self) -> Vec<DeviceChange> {
        let mut changes = Vec::new();
        for number in 0..self.lans.end() {
            let Some(osa) = self.lans.osa(number) else { continue };
            while let Some(what) = osa.next_change() {
                let (guest, adapter) = (osa.guest_name(), osa.adapter());
                changes.push(DeviceChange { number, guest, adapter, what });
            }
        }
        changes
    }
}
