//! Reservations of devices, and the programs that wait until a device is free.
//!
//! A program that finds its device reserved ends busy, and nothing of it is kept here but that it waits. When the device is free, the channel is
//! told by device end, which a real control unit owes in the same way after it was busy. Programs are told in the order in which they found
//! the device reserved: those that only use the device together, and those that reserve it one at a time, when nobody else uses it. A program
//! that cannot reserve yet keeps no others from using the device, so it waits as long as others use the device without a pause.
//!
//! From then until the program comes, the device is kept for it: nobody else reserves the device, and if the program is to reserve it, nobody else
//! uses it. So a program's output data cross twice at most, however often others reserve and release. The wait is short: the channel begins the
//! program at once, or says that it does not come any more, without waiting for the guest.

use std::collections::BTreeMap;

use super::device::Device;
use super::ordered::Ordered;
use super::{Connection, Exchange, Mounted, Unit};
use crate::exchange::{Head, Kind};
use crate::format::scsw::DeviceStatus;

/// Programs of a volume that are told in one pass that their device is free.
const CALLS_PER_PASS_MAX: usize = 64;

/// A connection, and one of its subchannels: the low bits of the number of an exchange.
type Place = (u16, u8);

fn place(connection: u16, exchange: u32) -> Place {
    (connection, (exchange & 0xff) as u8)
}

/// All subchannels of a connection.
fn places(connection: u16) -> std::ops::RangeInclusive<Place> {
    (connection, 0)..=(connection, u8::MAX)
}

/// A program that has found its device reserved.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    /// The exchange that has ended busy.
    exchange: u32,
    /// The program is to reserve the device.
    reserves: bool,
}

/// Reservations of the devices of a volume, and who waits.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    /// Connections that have reserved their device.
    owners: Vec<u16>,
    /// Programs that wait, in order. A subchannel has one at most.
    waiting: Ordered<Place, Waiter>,
    /// Programs that were told that their device is free, and have not come yet.
    called: BTreeMap<Place, Waiter>,
    /// Something has changed that a program can wait for.
    has_changed: bool,
}

impl Reservations {
    /// Whether a program may find its device reserved, or kept for another program.
    #[inline]
    pub(super) fn are_any(&self) -> bool {
        !self.owners.is_empty() || !self.called.is_empty()
    }

    pub(super) fn has(&self, connection: u16) -> bool {
        self.owners.contains(&connection)
    }

    /// How many programs wait, or were told and have not come yet.
    pub(super) fn waiters(&self) -> usize {
        self.waiting.len() + self.called.len()
    }

    pub(super) fn reserve(&mut self, connection: u16) {
        if !self.has(connection) {
            self.owners.push(connection);
        }
    }

    pub(super) fn release(&mut self, connection: u16) {
        self.owners.retain(|owner| *owner != connection);
        self.has_changed = true;
    }

    /// A connection has ended: it has no reservation, and its programs do not wait.
    pub(super) fn disconnect(&mut self, connection: u16) {
        self.release(connection);
        self.waiting.remove_range(places(connection));
        self.called.retain(|(of, _), _| *of != connection);
    }

    /// Something has ended that a program which is to reserve a device can wait for.
    #[inline]
    pub(super) fn note_end(&mut self) {
        self.has_changed |= !self.waiting.is_empty();
    }

    /// A program waits from now on, whose exchange has ended.
    pub(super) fn wait(&mut self, connection: u16, exchange: u32, reserves: bool) {
        let place = place(connection, exchange);
        self.waiting.remove(place);
        self.waiting.push(place, Waiter { exchange, reserves });
        // What it waits for may have ended meanwhile.
        self.has_changed = true;
    }

    /// The program of a subchannel has come, or does not come any more. Returns true if it was told that its device is free.
    #[inline]
    pub(super) fn take(&mut self, connection: u16, exchange: u32) -> bool {
        if self.waiting.is_empty() && self.called.is_empty() {
            return false;
        }
        let place = place(connection, exchange);
        self.waiting.remove(place);
        let was_called = self.called.remove(&place).is_some();
        self.has_changed |= was_called;
        was_called
    }

    /// Whether a device is reserved by another connection, or kept for a program of another one that is to reserve it.
    #[cold]
    pub(super) fn is_reserved(
        &self,
        connections: &[Option<Box<Connection>>],
        device: &Device,
        number: u16,
    ) -> bool {
        let overlaps = |other: u16| other != number && overlaps(connections, other, device);
        let mut called = self.called.iter().filter(|(_, waiter)| waiter.reserves);
        self.owners.iter().any(|owner| overlaps(*owner)) || called.any(|((of, _), _)| overlaps(*of))
    }

    /// Whether a device is kept for a program of another connection.
    fn is_kept(
        &self,
        connections: &[Option<Box<Connection>>],
        device: &Device,
        number: u16,
    ) -> bool {
        let mut called = self.called.keys();
        called.any(|(of, _)| *of != number && overlaps(connections, *of, device))
    }
}

fn overlaps(connections: &[Option<Box<Connection>>], number: u16, device: &Device) -> bool {
    let connection = connections.get(usize::from(number)).and_then(Option::as_ref);
    connection.is_some_and(|connection| connection.device.overlaps(device))
}

/// Whether a connection can reserve its device now: nobody else has reserved it, no program of others is under way there, and the device is not
/// kept for one. What has not come to the disk yet could fail, and be gone, while the device is reserved.
pub(super) fn is_free(
    mounted: &Mounted,
    connections: &[Option<Box<Connection>>],
    device: &Device,
    number: u16,
) -> bool {
    // What waits for its output data has not begun, and finds the device reserved then, unless the device is kept for it.
    let has_begun = |exchange: &Exchange| exchange.transfer.is_none() || exchange.is_admitted;
    let is_under_way = |(other, connection): (usize, &Option<Box<Connection>>)| {
        connection.as_ref().is_some_and(|connection| {
            other != usize::from(number)
                && connection.device.overlaps(device)
                && connection.exchanges.iter().any(has_begun)
        })
    };
    let is_unwritten = |of: u16| of != number && overlaps(connections, of, device);
    let reservations = &mounted.reservations;
    !reservations.is_reserved(connections, device, number)
        && !reservations.is_kept(connections, device, number)
        && !connections.iter().enumerate().any(is_under_way)
        && !mounted.endings.iter().any(|((of, _), _)| is_unwritten(of))
}

impl Unit {
    /// Programs of a volume that wait because their device is reserved, or was when they came.
    ///
    /// # Panics
    /// If there is no such volume.
    pub fn waiting_for_devices(&self, volume: usize) -> usize {
        self.volumes[volume].reservations.waiters()
    }

    /// An exchange whose first unit has come.
    #[inline]
    pub(super) fn arrive(&mut self, connection: &Connection, head: Head) -> Exchange {
        let reservations = &mut self.volumes[connection.device.volume].reservations;
        let is_admitted = reservations.take(head.connection, head.exchange);
        let exchange = Exchange::new(head.connection, head.exchange, &connection.device);
        Exchange { is_admitted, ..exchange }
    }

    /// Tells programs whose device has become free. Returns whether there was any.
    pub(super) fn call_waiting(&mut self, volume: usize) -> bool {
        let Unit { volumes, connections, links, .. } = self;
        let mounted = &mut volumes[volume];
        if !std::mem::take(&mut mounted.reservations.has_changed) {
            return false;
        }
        let places: Vec<Place> =
            mounted.reservations.waiting.iter().map(|(place, _)| place).collect();
        // Devices that the first who is to reserve them cannot have yet: whoever else is to reserve them waits behind.
        let mut claimed: Vec<Device> = Vec::new();
        let mut calls = 0;
        for place in places {
            if calls == CALLS_PER_PASS_MAX {
                mounted.reservations.has_changed = true;
                break;
            }
            let (number, _) = place;
            let connection = connections.get(usize::from(number)).and_then(Option::as_deref);
            let Some(Connection { device, link, .. }) = connection else { continue };
            let waiter = mounted.reservations.waiting.get_mut(place).map(|waiter| *waiter);
            let Some(waiter) = waiter else { continue };
            let can_begin = if waiter.reserves {
                !claimed.iter().any(|other| other.overlaps(device))
                    && is_free(mounted, connections, device, number)
            } else {
                !mounted.reservations.is_reserved(connections, device, number)
            };
            if !can_begin {
                if waiter.reserves {
                    claimed.push(*device);
                }
                continue;
            }
            calls += 1;
            mounted.reservations.waiting.remove(place);
            mounted.reservations.called.insert(place, waiter);
            let head = Head {
                code: DeviceStatus::DEVICE_END.0,
                count: device.may_write.into(),
                ..Head::new(Kind::Attention, number, waiter.exchange)
            };
            if let Some(link) = &mut links[*link] {
                // A link that has ended says so when it is polled.
                let _ = link.send(&head, &[]);
            }
        }
        calls > 0
    }
}
