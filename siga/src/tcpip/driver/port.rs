//! The stack's side of a LAN, whoever has the device.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::thread;

use fabric::name::{LanName, Name};
use net::lan::frame::{Mac, destination};
use net::lan::link::{FrameInParts, FrameInPlace};
use net::lan::offload::Offload;
use net::lan::table::{MEMBERS_MAX, Member};
use os::fork::ForkGuard;
use os::poller::{Poller, Sleeper};
use os::processor::now_ns;
use os::sync::pause;
use os::words::Words;

use super::agent;
use super::backlog::{Backlog, Device, Sent};
use super::station::{Arrived, Half, Lease, Station, add};
use super::view::{Place, View};
use super::{DriverCounters, GRACE_NS, LEASE_NS, Placement, StackDriver};
use crate::lan::{
    FoundInPlace, JoinLanError, Lan, Registration, SendFrameError, TrySendFrameError,
};
use crate::waiter::{self, Looked};
use crate::waiting::{SPIN_NS_MAX, Wait};

/// The names of the stack's event and of the one that ends its sleep, in the poller of a stack whose driver has the device.
const FROM_DRIVER: u64 = 0;
const INTERRUPT: u64 = 1;

/// How long a stack waits for a driver to leave its device in the middle of a turn: as long as one that is suspected has to show itself.
const TAKE_BACK_NS: u64 = GRACE_NS;

/// See the module. It has the verbs of a [`Lan`] that a stack uses.
pub(in crate::tcpip) struct Port {
    /// None while a driver has it.
    device: Option<Device>,
    /// None if no driver has had it yet.
    driven: Option<Box<Driven>>,
    name: LanName,
    prefix_bits: [u8; 2],
    wait: Wait,
    board: Words,
    guard: ForkGuard,
    /// What is added to the count of changes of the device, or of the view: each begins again.
    changes_before: u64,
    /// How long a driver may be away: [`LEASE_NS`], less in tests.
    pub(super) lease_ns: u64,
}

/// What there is once a driver has had the device.
struct Driven {
    station: Arc<Station>,
    /// The number of the last lease.
    epoch: u64,
    /// The lease of the driver that has the device, and its processor.
    driver: Option<(Arc<Lease>, usize)>,
    /// When the driver had been at work last when it was suspected to have stalled, and when that was.
    suspected: Option<(u64, u64)>,
    /// What is known of the LAN, and by which count of what the driver has published.
    view: View,
    places: u64,
    /// The sender of the frame that was taken last, if it has left.
    left: Option<Arc<Member>>,
    /// Readable when the driver has something.
    poller: Poller,
    moves: u64,
}

impl fmt::Debug for Port {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("Port");
        fields.field("name", &self.name).field("placement", &self.placement());
        fields.finish_non_exhaustive()
    }
}

impl Port {
    pub(in crate::tcpip) fn new(lan: Box<Lan>) -> Port {
        let bits = |any: IpAddr| lan.prefix_bits_of(any);
        Port {
            name: lan.name(),
            prefix_bits: [bits([0; 4].into()), bits([0; 16].into())],
            wait: lan.wait_policy(),
            board: lan.board().clone(),
            device: Some(Device { lan, backlog: Backlog::default() }),
            driven: None,
            guard: ForkGuard::here(),
            changes_before: 0,
            lease_ns: LEASE_NS,
        }
    }

    /// Where the driver is.
    pub(in crate::tcpip) fn placement(&self) -> Placement {
        let driver = self.driven.as_ref().and_then(|driven| driven.driver.as_ref());
        driver.map_or(Placement::Inline, |(_, number)| Placement::Processor(*number))
    }

    /// The LAN, if a driver does not have it.
    fn lan(&self) -> Option<&Lan> {
        self.device.as_ref().map(|device| &*device.lan)
    }

    /// # Panics
    /// If a driver has it: a broken promise inside this program.
    fn lan_mut(&mut self) -> &mut Lan {
        &mut self.device.as_mut().expect("the device is inline").lan
    }

    fn driven(&self) -> &Driven {
        self.driven.as_ref().expect("a driver has the device")
    }

    /// Takes over what the driver has published. One load if nothing has.
    fn refresh(&mut self) {
        let in_child = self.guard.in_child();
        let Some(driven) = &mut self.driven else { return };
        if driven.driver.is_none() || in_child {
            return;
        }
        let places = driven.station.places();
        if places != driven.places {
            driven.places = places;
            driven.view.set_place(driven.station.place());
        }
        driven.view.refresh();
    }

    // What a LAN is.

    pub(in crate::tcpip) fn name(&self) -> LanName {
        self.name
    }

    pub(in crate::tcpip) fn own(&self) -> &Member {
        self.lan().map_or_else(|| &self.driven().view.place.own, Lan::own)
    }

    pub(in crate::tcpip) fn mac(&self) -> Mac {
        self.own().mac
    }

    pub(in crate::tcpip) fn addresses(&self) -> &[IpAddr] {
        &self.own().addresses
    }

    pub(in crate::tcpip) fn mtu(&self) -> u32 {
        self.lan().map_or_else(|| self.driven().view.place.mtu, Lan::mtu)
    }

    pub(in crate::tcpip) fn prefix_bits_of(&self, address: IpAddr) -> u8 {
        self.prefix_bits[usize::from(address.is_ipv6())]
    }

    pub(in crate::tcpip) fn wait_policy(&self) -> Wait {
        self.wait
    }

    pub(in crate::tcpip) fn board(&self) -> &Words {
        &self.board
    }

    /// Counts the tables of members, of which each host has its own.
    pub(in crate::tcpip) fn tables(&self) -> u64 {
        self.lan().map_or_else(|| self.driven().view.place.tables, Lan::tables)
    }

    pub(in crate::tcpip) fn lost(&self) -> Option<(Vec<IpAddr>, String)> {
        match self.lan() {
            Some(lan) => lan.lost().map(|(addresses, why)| (addresses, why.to_string())),
            None => self.driven().view.place.lost.clone(),
        }
    }

    /// As [`Lan::start_registering`]. None while a driver has the LAN.
    pub(in crate::tcpip) fn start_registering(
        &mut self,
        address: IpAddr,
        is_ours: bool,
    ) -> Option<Result<Registration, JoinLanError>> {
        Some(self.device.as_mut()?.lan.start_registering(address, is_ours))
    }

    /// As [`Lan::take_registered`]. None while a driver has the LAN.
    pub(in crate::tcpip) fn take_registered(
        &mut self,
        asked: &Registration,
    ) -> Option<Result<(), JoinLanError>> {
        self.device.as_mut()?.lan.take_registered(asked)
    }

    // Who is there.

    /// A count of changes: while it is the same, so are the members.
    pub(in crate::tcpip) fn changes(&mut self) -> u64 {
        self.refresh();
        let changes = match &mut self.device {
            Some(device) => device.lan.changes(),
            None => self.driven().view.changes,
        };
        self.changes_before + changes
    }

    /// The device has changed hands, and whoever has it now counts changes by itself: no count of before comes again, and all entries count as
    /// changed.
    fn count_anew(&mut self, changes_before: u64) {
        self.changes_before = changes_before + 1;
    }

    pub(in crate::tcpip) fn find_address(&mut self, address: IpAddr) -> Option<&Member> {
        self.refresh();
        match &mut self.device {
            Some(device) => device.lan.find_address(address),
            None => {
                self.driven.as_ref()?.view.table().find_address(address).map(|(_, member)| member)
            }
        }
    }

    pub(in crate::tcpip) fn find_owner(&mut self, address: IpAddr) -> Option<&Member> {
        self.refresh();
        match &mut self.device {
            Some(device) => device.lan.find_owner(address),
            None => {
                self.driven.as_ref()?.view.table().find_owner(address).map(|(_, member)| member)
            }
        }
    }

    pub(in crate::tcpip) fn members(&mut self) -> Box<dyn Iterator<Item = &Member> + '_> {
        self.refresh();
        match &mut self.device {
            Some(device) => Box::new(device.lan.members()),
            None => {
                let tables = self.driven.iter().map(|driven| driven.view.table());
                Box::new(tables.flat_map(|table| table.members().map(|(_, member)| member)))
            }
        }
    }

    pub(in crate::tcpip) fn changed_since(
        &self,
        changes: u64,
    ) -> Box<dyn Iterator<Item = (usize, Option<&Member>)> + '_> {
        let changes = changes.saturating_sub(self.changes_before);
        match self.lan() {
            // The other may have seen one who came and left, of which this one knows nothing.
            Some(lan) if self.changes_before > 0 && changes == 0 => {
                Box::new((0..MEMBERS_MAX).map(|number| (number, lan.table().get(number))))
            }
            Some(lan) => Box::new(lan.changed_since(changes)),
            None => Box::new(self.driven().view.changed_since(changes)),
        }
    }

    /// The addresses of the members whose paths have ended since this was asked last.
    pub(in crate::tcpip) fn take_parted(&mut self) -> Vec<IpAddr> {
        let in_child = self.guard.in_child();
        let of_driver = self.driven.as_ref().filter(|_| !in_child);
        let mut parted = of_driver.map(|driven| driven.station.take_parted()).unwrap_or_default();
        if let Some(device) = &mut self.device {
            parted.extend(device.lan.take_parted());
        }
        parted.into_iter().flat_map(|member| member.addresses).collect()
    }

    /// The member that has left, and of which frames are still received, that had both of these addresses.
    pub(in crate::tcpip) fn left_with(&self, mac: Mac, address: IpAddr) -> Option<&Member> {
        let is_it = |member: &&Member| member.mac == mac && member.addresses.contains(&address);
        let last = self.driven.as_ref().and_then(|driven| driven.left.as_deref()).filter(is_it);
        last.or_else(|| self.lan()?.left_with(mac, address))
    }

    // Frames in.

    /// Returns true if frames come out of the queue of a driver, or are still there.
    #[inline]
    pub(in crate::tcpip) fn is_queued(&self) -> bool {
        self.driven.as_ref().is_some_and(|driven| {
            self.device.is_none() || driven.left.is_some() || !driven.station.frames_in.is_empty()
        })
    }

    /// Takes the next frame out of the queue of a driver, in place of the one that is in `frame`.
    pub(in crate::tcpip) fn take_queued(&mut self, frame: &mut Vec<u8>) -> Option<Offload> {
        if self.guard.in_child() {
            return None;
        }
        let driven = self.driven.as_mut()?;
        let mut offload = None;
        driven.left = None;
        let Driven { station, left, .. } = &mut **driven;
        station.frames_in.pop(|arrived: &mut Arrived| {
            std::mem::swap(frame, &mut arrived.bytes);
            *left = arrived.left.take();
            offload = Some(arrived.offload);
        });
        offload
    }

    /// Has the driver go on if it waits for room in its queue.
    pub(in crate::tcpip) fn note_taken(&self) {
        let Some(Driven { driver: Some((lease, _)), .. }) = self.driven.as_deref() else { return };
        // Pairs with the fence in `Sleeping::announce`: either the driver sees the room, or we see that it waits.
        fence(Ordering::SeqCst);
        if lease.wants_room.load(Ordering::Relaxed) {
            lease.driver.wake();
        }
    }

    /// Returns true if a driver has the device.
    pub(in crate::tcpip) fn is_driven(&self) -> bool {
        self.device.is_none()
    }

    pub(in crate::tcpip) fn try_find_in_place(&mut self) -> io::Result<Option<FoundInPlace>> {
        self.lan_mut().try_find_in_place()
    }

    pub(in crate::tcpip) fn found_in_place(&self, found: FoundInPlace) -> Option<FrameInPlace<'_>> {
        self.lan()?.found_in_place(found)
    }

    pub(in crate::tcpip) fn give_back_found(&mut self) {
        if let Some(device) = &mut self.device {
            device.lan.give_back_found();
        }
    }

    /// Sends what a driver has left for full targets. Returns true if one has room again.
    #[inline]
    pub(in crate::tcpip) fn retry(&mut self, now: u64) -> bool {
        match &mut self.device {
            Some(device) if !device.backlog.is_empty() => device.retry(now).0,
            _ => false,
        }
    }

    // Frames out.

    pub(in crate::tcpip) fn try_push(
        &mut self,
        target: Option<Name>,
        offload: Offload,
        frame: &[u8],
    ) -> Result<(), TrySendFrameError> {
        let mac = destination(frame).unwrap_or(Mac::BROADCAST);
        match &mut self.device {
            Some(device) if device.backlog.has(mac) => Err(TrySendFrameError::Full),
            Some(device) => device.lan.try_push(offload, frame),
            None => self.queue(mac, target, offload, |bytes| {
                bytes.clear();
                bytes.extend_from_slice(frame);
            }),
        }
    }

    pub(in crate::tcpip) fn try_push_in_parts(
        &mut self,
        target: Option<Name>,
        frame: &FrameInParts<'_>,
    ) -> Result<(), TrySendFrameError> {
        let mac = destination(frame.start).unwrap_or(Mac::BROADCAST);
        match &mut self.device {
            Some(device) if device.backlog.has(mac) => Err(TrySendFrameError::Full),
            Some(device) => device.lan.try_push_in_parts(frame),
            None => self.queue(mac, target, frame.offload, |bytes| {
                bytes.resize(frame.bytes(), 0);
                frame.write(bytes);
            }),
        }
    }

    /// Puts a frame into the driver's queue.
    fn queue(
        &self,
        mac: Mac,
        target: Option<Name>,
        offload: Offload,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), TrySendFrameError> {
        if self.guard.in_child() {
            return Err(SendFrameError::NotMember.into());
        }
        let station = &self.driven().station;
        if station.full.has(mac) {
            return Err(TrySendFrameError::Full);
        }
        if station.frames_out.is_full() {
            station.wants_room.store(true, Ordering::Relaxed);
            // Pairs with the fence in `agent::send`: either we see the room, or the driver sees that we wait.
            fence(Ordering::SeqCst);
            if station.frames_out.is_full() {
                return Err(TrySendFrameError::Full);
            }
        }
        station.frames_out.push(|leaving| {
            (leaving.offload, leaving.target) = (offload, target);
            write(&mut leaving.bytes);
            true
        });
        Ok(())
    }

    pub(in crate::tcpip) fn flush(&mut self) {
        if let Some(device) = &mut self.device {
            return device.lan.flush();
        }
        if let Some(Driven { station, driver: Some((lease, _)), .. }) = self.driven.as_deref()
            && !self.guard.in_child()
            && !station.frames_out.is_empty()
        {
            lease.driver.wake();
        }
    }

    // Waiting.

    pub(in crate::tcpip) fn sleeper(&self, interrupt: impl AsFd) -> io::Result<Sleeper> {
        match self.lan() {
            Some(lan) => lan.sleeper(interrupt),
            None => Ok(self.driven().poller.sleeper()),
        }
    }

    pub(in crate::tcpip) fn look(
        &mut self,
        deadline_ns: u64,
        is_wanted: impl Fn() -> bool,
    ) -> io::Result<Looked> {
        if let Some(device) = &mut self.device {
            return device.lan.look(deadline_ns, is_wanted);
        }
        if self.guard.in_child() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let until_ns = match self.wait {
            Wait::Block => 0,
            Wait::Adaptive => deadline_ns.min(now_ns() + SPIN_NS_MAX / 2),
            Wait::Spin => deadline_ns,
        };
        loop {
            let Driven { station, .. } = self.driven();
            if !station.frames_in.is_empty() || station.take_news() {
                return Ok(Looked::Ready);
            }
            if is_wanted() {
                return Ok(Looked::Wanted);
            }
            if now_ns() >= until_ns {
                return Ok(Looked::Nothing);
            }
            pause();
        }
    }

    pub(in crate::tcpip) fn prepare_sleep(&mut self) -> Option<u64> {
        match &mut self.device {
            Some(device) => {
                let retry_ns = device.backlog.retry_ns().unwrap_or(u64::MAX);
                Some(device.lan.prepare_sleep()?.min(retry_ns))
            }
            None => self.prepare_queued().then_some(u64::MAX),
        }
    }

    pub(in crate::tcpip) fn prepare_wait(&mut self) -> bool {
        match &mut self.device {
            Some(device) => device.lan.prepare_wait(),
            None => self.prepare_queued(),
        }
    }

    fn prepare_queued(&mut self) -> bool {
        if self.guard.in_child() {
            return false;
        }
        self.flush();
        let Driven { station, .. } = self.driven();
        station.stack.announce();
        // What is told once is told to whoever asks first.
        let is_prepared = station.frames_in.is_empty() && !station.take_news();
        if !is_prepared {
            station.stack.rise();
        }
        is_prepared
    }

    /// Gives back what the device does not need, if the stack has it: as [`waiter::Member::trim`].
    pub(in crate::tcpip) fn trim(&mut self) -> bool {
        self.device.as_mut().is_some_and(|device| waiter::Member::trim(&mut *device.lan))
    }

    pub(in crate::tcpip) fn heard(&mut self, rang: &[u64], slept_ns: u64) -> bool {
        match &mut self.device {
            Some(device) => device.lan.heard(rang, slept_ns),
            None => {
                let Driven { station, .. } = self.driven();
                station.stack.rise();
                let has_heard = rang.contains(&FROM_DRIVER);
                if has_heard {
                    station.stack.event.clear();
                }
                has_heard
            }
        }
    }

    // The driver.

    /// The counters of the drivers.
    pub(in crate::tcpip) fn driver(&self, number: usize) -> StackDriver {
        let counters = self.driven.as_ref().map(|driven| counters(driven)).unwrap_or_default();
        StackDriver { lan: number, name: self.name, placement: self.placement(), counters }
    }

    /// Has the driver run there, and returns where it runs: inline if there is no such processor. The sleeper of the stack is another then.
    ///
    /// # Errors
    /// No descriptors or threads left; then it runs where it has run before. `TimedOut` if no processor runs the driver in the middle of its turn:
    /// the driver ends with that turn, and the device is inline then.
    pub(in crate::tcpip) fn place(
        &mut self,
        placement: Placement,
        interrupt: impl AsFd,
    ) -> io::Result<Placement> {
        if self.guard.in_child() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let before = self.placement();
        // A driver that has ended, is to end, or has stalled, is not where it is to be.
        if placement == before && !self.is_ending() && !self.has_stalled(now_ns()) {
            return Ok(placement);
        }
        match placement {
            Placement::Inline => self.take_back()?,
            Placement::Processor(number) => match agent::start(number)? {
                None => self.take_back()?,
                Some(ready) => self.hand_over(ready, number, interrupt.as_fd())?,
            },
        }
        if let Some(driven) = &mut self.driven
            && before != self.device.as_ref().map_or(placement, |_| Placement::Inline)
        {
            driven.moves += 1;
        }
        Ok(self.placement())
    }

    fn hand_over(
        &mut self,
        ready: agent::Ready,
        number: usize,
        interrupt: impl AsFd,
    ) -> io::Result<()> {
        // All that can fail comes first.
        let epoch = self.driven.as_ref().map_or(0, |driven| driven.epoch) + 1;
        let lease = Arc::new(Lease::new(epoch, now_ns())?);
        if self.driven.is_none() {
            let device = self.device.as_mut().expect("no driver has had it yet");
            let place = Arc::new(Place::of(&device.lan, None));
            let station = Station::new(place.clone(), device.backlog.full().clone())?;
            let poller = Poller::new()?;
            poller.add(&station.stack.event, FROM_DRIVER)?;
            poller.add(&interrupt, INTERRUPT)?;
            self.driven = Some(Box::new(Driven {
                station: Arc::new(station),
                epoch: 0,
                driver: None,
                suspected: None,
                view: View::new(place),
                places: 0,
                left: None,
                poller,
                moves: 0,
            }));
        }
        self.take_back()?;
        let changes = self.changes();
        let (Some(mut device), Some(driven)) = (self.device.take(), self.driven.as_mut()) else {
            unreachable!("it was taken back just now")
        };
        device.lan.flush();
        let sleeper = device.lan.sleeper_alone(interrupt);
        let place = Arc::new(Place::of(&device.lan, None));
        driven.station.publish(place.clone());
        driven.places = driven.station.places();
        driven.view = View::new(place);
        driven.epoch = epoch;
        *driven.station.half() = Half { epoch, device: Some(device) };
        driven.driver = Some((lease.clone(), number));
        driven.suspected = None;
        ready.begin(driven.station.clone(), lease, sleeper);
        self.count_anew(changes);
        Ok(())
    }

    /// Returns true if the driver that has the device has ended, or ends with its turn.
    fn is_ending(&self) -> bool {
        let driver = self.driven.as_deref().and_then(|driven| driven.driver.as_ref());
        // Acquire: pairs with the Release in the driver's end.
        driver.is_some_and(|(lease, _)| lease.is_gone() || lease.is_over.load(Ordering::Acquire))
    }

    /// Returns true if the driver that has the device was suspected to have stalled, and has not been at work for too long since.
    fn has_stalled(&self, now: u64) -> bool {
        let Some(driven) = self.driven.as_deref() else { return false };
        let (Some((lease, _)), Some((of, since))) = (&driven.driver, driven.suspected) else {
            return false;
        };
        of == lease.renewed_ns.load(Ordering::Relaxed)
            && now.saturating_sub(since) >= GRACE_NS.min(self.lease_ns)
    }

    /// Takes the device back, if a driver has it. Waits until its turn is over, which it ends soon if a processor runs it.
    ///
    /// # Errors
    /// `TimedOut` if it has not left the device within [`TAKE_BACK_NS`]. It ends with its turn, and its device is taken over after that.
    fn take_back(&mut self) -> io::Result<()> {
        if self.device.is_some() {
            return Ok(());
        }
        let half = |station: &Station| {
            let until_ns = now_ns() + TAKE_BACK_NS;
            loop {
                if let Some(mut half) = station.try_half() {
                    return Some(half.device.take());
                }
                if now_ns() >= until_ns {
                    return None;
                }
                // The driver may have been on this processor.
                thread::yield_now();
            }
        };
        let is_taken = self.take_back_with(half);
        is_taken.then_some(()).ok_or_else(|| io::ErrorKind::TimedOut.into())
    }

    /// The same, of a driver that has stalled or ended. Returns false if it is in the middle of a turn.
    pub(in crate::tcpip) fn take_over(&mut self, now: u64) -> bool {
        let half = |station: &Station| Some(station.try_half()?.device.take());
        let is_taken = self.device.is_none() && self.take_back_with(half);
        if let Some(driven) = &mut self.driven {
            match is_taken {
                true => add(&driven.station.counts.takeovers, 1),
                // The next try comes after a while.
                false => driven.suspected = driven.suspected.map(|(of, _)| (of, now)),
            }
        }
        is_taken
    }

    fn take_back_with(&mut self, take: impl FnOnce(&Station) -> Option<Option<Device>>) -> bool {
        let changes = match &self.driven {
            Some(driven) => self.changes_before + driven.view.changes,
            None => return false,
        };
        let Some(driven) = self.driven.as_mut() else { return false };
        let Driven { station, driver, suspected, .. } = &mut **driven;
        let Some((lease, _)) = driver else { return false };
        // Release: pairs with the Acquire in `Lease::is_gone`. A driver that polls leaves the lock.
        lease.is_gone.store(true, Ordering::Release);
        lease.driver.event.set();
        let Some(device) = take(station) else { return false };
        let mut device = device.expect("the lease was a driver's");
        *driver = None;
        *suspected = None;
        device.backlog.recount();
        // Before anything newer goes.
        let now = now_ns();
        let counts = &station.counts;
        while station.frames_out.pop(|leaving| match device.send(now, leaving) {
            Sent::Gone => add(&counts.frames_out, 1),
            Sent::Waits => add(&counts.frames_waited, 1),
            Sent::Dropped => add(&counts.frames_dropped, 1),
        }) {}
        device.lan.flush();
        self.device = Some(device);
        self.count_anew(changes);
        true
    }

    /// Returns true if the driver has ended, or has not been at work for too long.
    pub(in crate::tcpip) fn is_expired(&mut self, now: u64) -> bool {
        if self.has_stalled(now) {
            return true;
        }
        let lease_ns = self.lease_ns;
        let Some(driven) = self.driven.as_deref_mut() else { return false };
        let Some((lease, _)) = &driven.driver else { return false };
        // Acquire: pairs with the Release in the driver's end.
        if lease.is_over.load(Ordering::Acquire) {
            return true;
        }
        let renewed_ns = lease.renewed_ns.load(Ordering::Relaxed);
        if now.saturating_sub(renewed_ns) < lease_ns {
            driven.suspected = None;
            return false;
        }
        if driven.suspected.is_none_or(|(of, _)| of != renewed_ns) {
            driven.suspected = Some((renewed_ns, now));
            lease.driver.event.set();
        }
        false
    }

    /// When to look whether the driver is there, or, inline, when to try again what it has left and something was lacking for.
    pub(in crate::tcpip) fn due(&self) -> Option<u64> {
        if let Some(device) = &self.device {
            return device.backlog.retry_ns();
        }
        let driven = self.driven.as_deref()?;
        let (lease, _) = driven.driver.as_ref()?;
        Some(match driven.suspected {
            Some((_, since)) => since + GRACE_NS.min(self.lease_ns),
            None => lease.renewed_ns.load(Ordering::Relaxed) + self.lease_ns,
        })
    }

    /// The number of the last lease.
    #[cfg(test)]
    pub(super) fn epoch(&self) -> u64 {
        self.driven().epoch
    }

    #[cfg(test)]
    pub(super) fn station(&self) -> &Arc<Station> {
        &self.driven().station
    }
}

fn counters(driven: &Driven) -> DriverCounters {
    let counts = &driven.station.counts;
    let get = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
    DriverCounters {
        polls: get(&counts.polls),
        polls_empty: get(&counts.polls_empty),
        frames_in: get(&counts.frames_in),
        frames_out: get(&counts.frames_out),
        frames_waited: get(&counts.frames_waited),
        frames_dropped: get(&counts.frames_dropped),
        sleeps: get(&counts.sleeps),
        processor_ns: get(&counts.processor_ns),
        takeovers: get(&counts.takeovers),
        moves: driven.moves,
    }
}

/// The driver ends, and what the stack has queued goes out.
impl Drop for Port {
    fn drop(&mut self) {
        if self.guard.in_child() {
            // A driver may have had the lock, and it is not here.
            std::mem::forget(self.driven.take());
            return;
        }
        // A driver that is in the middle of a turn, and that no processor runs, drops the device when it ends.
        let _ = self.take_back();
    }
}
