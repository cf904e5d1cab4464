//! Guests open devices: how often, which, and how much each gets.

use channel::{SUBCHANNELS_MAX, held_back_bytes_max, result_storage_bytes};
use disk::unit::usage::VolumeUse;
use fabric::control::{Kind, Pending};
use fabric::path::Shape;
use os::processor::now_ns;

use super::server::{Named, Opened, Party, RESULT_BYTES_MAX, Server, ServerError};
use super::{Given, NotOpened, Wanted};
use crate::PathOptions;

/// Bytes that a guest's path lends besides results and cache.
const PATH_BYTES: u64 = 4 << 20;

/// The share of a guest that opens a device.
#[derive(Clone, Copy, Debug)]
struct Grant {
    /// The number of the path at the channel.
    number: usize,
    /// The number of the device.
    device: usize,
    wanted: Wanted,
    /// Storage that the path lends, without a cache.
    lent_bytes: u64,
    /// Storage that the open takes of the guest's share.
    storage_bytes: u64,
}

impl Server {
    /// Takes in the guests that want to open a device, and lets those open it whose turn it is.
    pub(super) fn accept(&mut self) -> Result<(), ServerError> {
        self.follow_host();
        let Some(Party::Guest(guest)) = self.waiter.get_mut(self.guest) else { return Ok(()) };
        self.asking.retain(|pending| guest.still_waits(pending));
        // As many as the host lets wait for one guest.
        while let Some(pending) = guest.pending() {
            self.asking.add(pending);
        }
        self.let_open(now_ns()).map(drop)
    }

    /// When the next guest may open a device, perhaps now; none if nobody wants to.
    pub(super) fn next_open_ns(&self, now: u64) -> Option<u64> {
        (!self.asking.is_empty()).then(|| self.opens.due_ns(now).unwrap_or(now))
    }

    /// Lets guests open devices, each in its turn, as often as the rate allows. Returns whether any was answered.
    pub(super) fn let_open(&mut self, now: u64) -> Result<bool, ServerError> {
        let mut found = false;
        while !self.asking.is_empty() {
            if self.opens.due_ns(now).is_some() {
                self.opens.put_off(now);
                break;
            }
            let Some(pending) = self.asking.next() else { break };
            let Some(Party::Guest(guest)) = self.waiter.get_mut(self.guest) else { break };
            // An open that was taken back does not count, and one that is refused takes nothing from others: the host bounds how often guests ask.
            if guest.still_waits(&pending) && self.open(pending)? {
                self.opens.take(1, now);
            }
            found = true;
        }
        Ok(found)
    }

    /// A guest opens a device, or is refused. Returns whether it is not.
    fn open(&mut self, pending: Pending) -> Result<bool, ServerError> {
        // A guest that has just closed a device may open it again.
        for number in 0..self.paths.len() {
            if let Some(opened) = self.paths[number]
                && self.devices[opened.device].device.dedicated
            {
                self.serve_member(opened.key, now_ns())?;
            }
        }
        let grant = match self.grant(&pending) {
            Ok(grant) => grant,
            Err(why) => {
                let Some(Party::Guest(guest)) = self.waiter.get_mut(self.guest) else {
                    return Ok(false);
                };
                guest.refuse(pending, why.emit());
                return Ok(false);
            }
        };
        let Grant { number, device: which, wanted, lent_bytes, storage_bytes } = grant;
        let device = self.devices[which].device.clone();
        let result_bytes = u32::from(wanted.result_pages) * 4096;
        let cache = if device.dedicated { self.cache_bytes[device.volume] } else { 0 };
        let options = PathOptions {
            storage_bytes: lent_bytes + cache,
            data: Given { first_cylinder: device.first_cylinder }.emit(),
            wait: self.wait,
            ..PathOptions::default()
        };
        let Some(Party::Guest(guest)) = self.waiter.get_mut(self.guest) else { return Ok(false) };
        // It was withdrawn, or something is lacking, of which the asking guest learns.
        let from = pending.from;
        let Ok(mut path) = guest.accept_pending(pending, &options) else { return Ok(true) };
        // What is lacking for this guest must not end the others: its path ends, which tells the guest.
        let lendable = device.dedicated.then(|| self.unit.lendable(device.volume)).transpose();
        let Ok(lendable) = lendable else { return Ok(true) };
        let wish = VolumeUse {
            volume: device.volume,
            first_cylinder: device.first_cylinder,
            cylinders: device.cylinders.unwrap_or(0),
            may_write: !device.read_only && self.unit.is_writable(device.volume),
            subchannels: wanted.subchannels,
            result_bytes,
            is_cached: !device.uncached,
            cache: lendable,
        };
        if self.channel.attach(number, path.sender().raw(), wish).is_err() {
            return Ok(true);
        }
        match self.waiter.add(Party::Path(path)) {
            Ok(key) => {
                if self.paths.len() <= number {
                    self.paths.resize(number + 1, None);
                }
                self.has_new_devices = true;
                self.numbers.insert(key, number);
                self.shares.take(from, storage_bytes);
                let (device, guest) = (which, from);
                self.paths[number] = Some(Opened { key, device, guest, storage_bytes });
            }
            Err(_) => self.channel.detach(number),
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
        let mut opened = self.paths.iter().flatten();
        if self.devices[device].device.dedicated && opened.any(|opened| opened.device == device) {
            return Err(NotOpened::InUse);
        }
        let lent_bytes = PATH_BYTES + result_storage_bytes(wanted.subchannels, result_bytes);
        // Results that the guest does not take are kept in memory of the server's.
        let storage_bytes = lent_bytes + held_back_bytes_max(wanted.subchannels) as u64;
        self.shares.check(pending.from, storage_bytes)?;
        let number = self.paths.iter().position(Option::is_none).unwrap_or(self.paths.len());
        Ok(Grant { number, device, wanted, lent_bytes, storage_bytes })
    }
}

#[cfg(test)]
mod tests {
    use host::Embedded;
    use host::system::System;

    use super::*;
    use crate::serving::asking::OPENS_PER_S;
    use crate::{Guest, PathOptions, Wait};

    #[test]
    fn server_with_a_guest_that_waits_to_open_never_sleeps_without_a_limit() {
        let host = Embedded::start(System::open()).unwrap();
        let attach = |name| Guest::attach_embedded(&host, name).unwrap();
        let mut server = Server::new(attach("DASD"), Wait::Block).unwrap();
        let now = now_ns();
        assert_eq!(server.next_open_ns(now), None);
        // The rate of seconds to come is used up.
        server.opens.take(10 * OPENS_PER_S, now);
        let guest = attach("ALICE");
        let _connecting = guest.start_connecting("DASD", &PathOptions::default()).unwrap();
        while server.asking.is_empty() {
            server.poll().unwrap();
        }
        let due = server.next_open_ns(now).unwrap();
        assert!(due > now);
        for later in [due - 1, due, due + 1, due + 3_600_000_000_000] {
            assert_eq!(server.next_open_ns(later), Some(due.max(later)));
        }
    }
}
