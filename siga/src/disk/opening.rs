//! Guests open devices: how often, which, and how much each gets.

use channel::{SUBCHANNELS_MAX, Use, held_back_bytes_max, result_storage_bytes};
use disk::unit::usage::VolumeUse;
use fabric::control::{Kind, Pending};
use fabric::path::Shape;

use super::server::{Named, Opened, RESULT_BYTES_MAX, Server, ServerError};
use super::{Given, NotOpened, Wanted};
use crate::PathOptions;
use crate::serving::Serves;

/// Bytes that a guest's path lends besides results and cache.
const PATH_BYTES: u64 = 4 << 20;

/// The share of a guest that opens a device.
#[derive(Clone, Copy, Debug)]
struct Grant {
    /// The number of the device.
    device: usize,
    wanted: Wanted,
    /// Storage that the path lends, without a cache.
    lent_bytes: u64,
    /// Storage that the open takes of the guest's share.
    storage_bytes: u64,
}

impl Server {
    /// A guest opens a device, or is refused. Returns whether it is not.
    pub(super) fn open_device(&mut self, pending: Pending) -> Result<bool, ServerError> {
        // A guest that has just closed a device may open it again.
        let is_dedicated = |device: usize| self.devices[device].device.dedicated;
        let opened = self.agent.opened().filter(|(_, opened)| is_dedicated(opened.device));
        let dedicated: Vec<usize> = opened.map(|(number, _)| number).collect();
        for number in dedicated {
            self.serve_ahead(number)?;
        }
        let Grant { device: which, wanted, lent_bytes, storage_bytes } = match self.grant(&pending)
        {
            Ok(grant) => grant,
            Err(why) => {
                self.agent.refuse(pending, why.emit());
                return Ok(false);
            }
        };
        let Server { agent, unit, devices, cache_bytes, .. } = self;
        let device = &devices[which].device;
        let cache = if device.dedicated { cache_bytes[device.volume] } else { 0 };
        let options = PathOptions {
            storage_bytes: lent_bytes + cache,
            data: Given { first_cylinder: device.first_cylinder }.emit(),
            ..PathOptions::default()
        };
        let guest = pending.from;
        let wish = || {
            let lendable = device.dedicated.then(|| unit.lendable(device.volume)).transpose()?;
            Ok(Use::from(VolumeUse {
                volume: device.volume,
                first_cylinder: device.first_cylinder,
                cylinders: device.cylinders.unwrap_or(0),
                may_write: !device.read_only && unit.is_writable(device.volume),
                subchannels: wanted.subchannels,
                result_bytes: u32::from(wanted.result_pages) * 4096,
                is_cached: !device.uncached,
                cache: lendable,
            }))
        };
        if agent.join(pending, &options, wish, Opened { device: which, guest, storage_bytes }) {
            self.has_new_devices = true;
            self.shares.take(guest, storage_bytes);
        }
        Ok(true)
    }

    /// Decides how much of its wish a guest gets.
    ///
    /// # Errors
    /// The reason why it gets nothing.
    fn grant(&mut self, pending: &Pending) -> Result<Grant, NotOpened> {
        let wanted = Wanted::parse(&pending.data);
        let result_bytes = u32::from(wanted.result_pages) * 4096;
        let all = u64::from(wanted.subchannels) * u64::from(result_bytes);
        // Nobody reads a second queue.
        let fits = (1..=RESULT_BYTES_MAX).contains(&all)
            && wanted.subchannels <= SUBCHANNELS_MAX
            && pending.shape == Shape::SIMPLE
            && pending.kind == Kind::DISK;
        let is_wanted = |named: &Named| named.name == wanted.name && named.may_open(pending.from);
        let device = self.devices.iter().position(is_wanted).filter(|_| fits);
        let device = device.ok_or(NotOpened::NoDevice)?;
        let mut opened = self.agent.opened();
        if self.devices[device].device.dedicated && opened.any(|(_, open)| open.device == device) {
            return Err(NotOpened::InUse);
        }
        let lent_bytes = PATH_BYTES + result_storage_bytes(wanted.subchannels, result_bytes);
        // Results that the guest does not take are kept in memory of the server's.
        let storage_bytes = lent_bytes + held_back_bytes_max(wanted.subchannels) as u64;
        self.shares.check(pending.from, storage_bytes)?;
        Ok(Grant { device, wanted, lent_bytes, storage_bytes })
    }
}
