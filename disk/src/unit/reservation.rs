//! Reservations of devices, and the programs that wait until a device is free.
//!
//! A program that finds its device reserved ends busy, and nothing of it is kept here but that it waits. When the device is free, the channel is
//! told by device end, which a real control unit owes in the same way after it was busy. Programs are told in the order in which they found
//! the device reserved: those that only use the device together, and those that reserve it one at a time, when nobody else uses it. A program
//! that cannot reserve yet keeps no others from using the device, until [`ENDS_BEFORE_RESERVE`] programs have ended on the volume meanwhile.
//! From then on new programs of others wait behind it, so it reserves the device when those that are under way have ended. An owner of a
//! reservation is never kept waiting so: it is to release the device.
//!
//! From then until the program comes, the device is kept for it: nobody else reserves the device, and if the program is to reserve it, nobody else
//! uses it. So a program's output data cross twice at most, however often others reserve and release. The wait is short: the channel begins the
//! program at once, or says that it does not come any more, without waiting for the guest.

use std::collections::{BTreeMap, BTreeSet};

use super::device::Device;
use super::ordered::Ordered;
use super::{Connection, Exchange, Mounted, Unit};
use crate::format::scsw::DeviceStatus;
use channel::exchange::{Head, Kind};

/// Programs of a volume that are told in one pass that their device is free.
const CALLS_PER_PASS_MAX: usize = 64;

/// Visits of one pass over the programs that wait: each looks at one program, connection, exchange, claim or unfinished end. A pass goes on with the
/// next poll where it has stopped. One program is looked at in any case, which takes a visit for each of these.
const VISITS_PER_PASS_MAX: usize = 1024;

/// Programs that end on the volume before others wait for a program that waits to reserve its device.
const ENDS_BEFORE_RESERVE: u64 = 1024;

/// Programs of a volume for which others wait at the same time, because they have waited so long to reserve their devices.
const OVERDUE_MAX: usize = 16;

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
    /// Programs that had ended on the volume when it began to wait.
    ends_before: u64,
}

/// A device that the first program which is to reserve it cannot have yet.
#[derive(Clone, Copy, Debug)]
struct Claim {
    connection: u16,
    device: Device,
    /// Programs of others wait for this one.
    is_overdue: bool,
}

/// A pass over the programs that wait, in their order, over several polls if they are many.
#[derive(Debug, Default)]
struct Pass {
    /// The position in the order of the next program; none if no pass is under way.
    next: Option<u64>,
    claims: Vec<Claim>,
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
    /// Of those that wait to reserve their device: others wait for them.
    overdue: BTreeSet<Place>,
    /// Programs that have ended on the volume while others waited.
    ends: u64,
    /// Something has changed that a program can wait for.
    has_changed: bool,
    pass: Pass,
}

impl Reservations {
    /// Returns true if any device is reserved, or kept for a program that waits.
    #[inline]
    pub(super) fn are_any(&self) -> bool {
        !self.owners.is_empty() || !self.called.is_empty() || !self.overdue.is_empty()
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
        self.overdue.retain(|(of, _)| *of != connection);
    }

    /// Something has ended that a program which is to reserve a device can wait for.
    #[inline]
    pub(super) fn note_end(&mut self) {
        if !self.waiting.is_empty() {
            self.has_changed = true;
            self.ends += 1;
        }
    }

    /// A program waits from now on, whose exchange has ended.
    pub(super) fn wait(&mut self, connection: u16, exchange: u32, reserves: bool) {
        let place = place(connection, exchange);
        self.waiting.remove(place);
        self.overdue.remove(&place);
        self.waiting.push(place, Waiter { exchange, reserves, ends_before: self.ends });
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
        let waited = self.waiting.remove(place).is_some();
        self.overdue.remove(&place);
        let was_called = self.called.remove(&place).is_some();
        // Others may have waited for it.
        self.has_changed |= waited || was_called;
        was_called
    }

    /// Returns true if a new program of a connection has to wait: the device is reserved, or a program of another connection has waited too
    /// long to reserve it.
    #[cold]
    pub(super) fn must_wait(
        &self,
        connections: &[Option<Box<Connection>>],
        device: &Device,
        number: u16,
    ) -> bool {
        let is_overdue = |(of, _): &Place| *of != number && overlaps(connections, *of, device);
        self.is_reserved(connections, device, number)
            || !self.has(number) && self.overdue.iter().any(is_overdue)
    }

    /// Returns true if a device is reserved by another connection, or kept for a program of another connection that is to reserve it.
    fn is_reserved(
        &self,
        connections: &[Option<Box<Connection>>],
        device: &Device,
        number: u16,
    ) -> bool {
        let overlaps = |other: u16| other != number && overlaps(connections, other, device);
        let mut called = self.called.iter().filter(|(_, waiter)| waiter.reserves);
        self.owners.iter().any(|owner| overlaps(*owner)) || called.any(|((of, _), _)| overlaps(*of))
    }

    /// Returns true if a device is kept for a program of another connection.
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

/// Returns true if a connection can reserve its device now: nobody else has reserved it, no program of others is under way there, and the
/// device is not kept for one. What has not come to the disk yet could fail, and be gone, while the device is reserved. Adds to `visits` the
/// connections, exchanges and unfinished ends that it looks at.
pub(super) fn is_free(
    mounted: &Mounted,
    connections: &[Option<Box<Connection>>],
    device: &Device,
    number: u16,
    visits: &mut usize,
) -> bool {
    let reservations = &mounted.reservations;
    if reservations.is_reserved(connections, device, number)
        || reservations.is_kept(connections, device, number)
    {
        return false;
    }
    // What waits for its output data has not begun, and finds the device reserved then, unless the device is kept for it.
    let has_begun = |exchange: &Exchange| exchange.transfer.is_none() || exchange.is_admitted;
    *visits += connections.len();
    let mut others = connections.iter().enumerate().filter_map(|(other, connection)| {
        connection
            .as_deref()
            .filter(|connection| other != usize::from(number) && connection.device.overlaps(device))
    });
    let is_under_way = others.any(|connection| {
        *visits += connection.exchanges.len();
        connection.exchanges.iter().any(has_begun)
    });
    if is_under_way {
        return false;
    }
    *visits += mounted.endings.len();
    let is_unwritten = |of: u16| of != number && overlaps(connections, of, device);
    !mounted.endings.iter().any(|((of, _), _)| is_unwritten(of))
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

    /// Tells programs whose device has become free, a bounded number of visits. Returns whether there was any, or more are to be visited.
    pub(super) fn call_waiting(&mut self, volume: usize) -> bool {
        let Unit { volumes, connections, links, counters, .. } = self;
        let mounted = &mut volumes[volume];
        let reservations = &mut mounted.reservations;
        if reservations.pass.next.is_none() {
            if !std::mem::take(&mut reservations.has_changed) {
                return false;
            }
            reservations.pass = Pass { next: Some(0), claims: Vec::new() };
        }
        let (mut visits, mut calls) = (0, 0);
        while let Some(next) = mounted.reservations.pass.next {
            let Some((position, place, waiter)) = mounted.reservations.waiting.at_or_after(next)
            else {
                mounted.reservations.pass.next = None;
                break;
            };
            if visits >= VISITS_PER_PASS_MAX || calls == CALLS_PER_PASS_MAX {
                break;
            }
            let waiter = *waiter;
            mounted.reservations.pass.next = Some(position + 1);
            let connection = connections.get(usize::from(place.0)).and_then(Option::as_deref);
            let Some(Connection { device, link, .. }) = connection else { continue };
            let (can_begin, visited) = mounted.judge(connections, device, place, waiter);
            visits += visited;
            if !can_begin {
                continue;
            }
            calls += 1;
            let reservations = &mut mounted.reservations;
            reservations.waiting.remove(place);
            reservations.overdue.remove(&place);
            reservations.called.insert(place, waiter);
            let head = Head {
                code: DeviceStatus::DEVICE_END.0,
                count: device.may_write.into(),
                ..Head::new(Kind::Attention, place.0, waiter.exchange)
            };
            if let Some(link) = &mut links[*link] {
                // A link that has ended says so when it is polled.
                let _ = link.send(&head, &[]);
            }
        }
        counters.waiters_visited += visits as u64;
        let Reservations { pass, has_changed, .. } = &mounted.reservations;
        calls > 0 || pass.next.is_some() || *has_changed
    }
}

impl Mounted {
    /// Returns whether a program that waits can begin, and how many visits that took. If it is to reserve its device and cannot, it claims
    /// it.
    fn judge(
        &mut self,
        connections: &[Option<Box<Connection>>],
        device: &Device,
        place: Place,
        waiter: Waiter,
    ) -> (bool, usize) {
        let reservations = &self.reservations;
        let claims = &reservations.pass.claims;
        let number = place.0;
        let mut visits = 1 + reservations.owners.len() + reservations.called.len() + claims.len();
        let mut claims = claims.iter().filter(|claim| claim.device.overlaps(device));
        if !waiter.reserves {
            // An owner may be waited for by whoever has that claim.
            let waits = !reservations.has(number)
                && claims.any(|claim| claim.is_overdue && claim.connection != number);
            return (!waits && !reservations.is_reserved(connections, device, number), visits);
        }
        // Whoever else is to reserve the device waits behind the first.
        if claims.next().is_some() {
            return (false, visits);
        }
        if is_free(self, connections, device, number, &mut visits) {
            return (true, visits);
        }
        let Reservations { overdue, ends, pass, .. } = &mut self.reservations;
        if *ends - waiter.ends_before >= ENDS_BEFORE_RESERVE && overdue.len() < OVERDUE_MAX {
            overdue.insert(place);
        }
        let is_overdue = overdue.contains(&place);
        pass.claims.push(Claim { connection: number, device: *device, is_overdue });
        (false, visits)
    }
}
