//! A guest that has volumes, with channel and control unit, and serves them to others.

use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use channel::PATHS_MAX;
use channel::exchange::{Broken, PairError, pair};
use disk::ckd::direct::{Direct, DirectWrites, NoDirect};
use disk::ckd::model::TRACK_BYTES;
use disk::ckd::volume::{Access, OpenError};
use disk::report::{
    self, DeviceState, GuestState, OpenRate, REPORT_BYTES, Showing, Totals, VolumeState,
};
use disk::unit::{Clock, DamagedTrack, Reading, Syncing, Unit, Writing};
use fabric::control::{Pending, Problem, Request};
use fabric::name::Name;
use fabric::path::Terms;
use os::memory::{Shortage, shortage};
use os::processor::now_ns;
use os::storage::StorageOptions;
use thiserror::Error;

use super::shares::{ServerLimits, Shares};
use super::volumes::OpenVolume;
use super::{Measurement, UnitKind};
use crate::lending::Lending;
use crate::serving::{Agent, OPENS_PER_S, Serves, eight};
use crate::{Guest, Wait};

/// Channel paths between channel and control unit.
const LINKS: usize = 4;
const _: () = assert!(LINKS <= PATHS_MAX);
/// Bytes of storage for results that a guest may want, over all its subchannels: 128 of programs of 255 blocks.
pub const RESULT_BYTES_MAX: u64 = 128 << 20;

/// A device that guests can open.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// Which volume: the number from [`Server::add_volume`].
    pub volume: usize,
    /// The first cylinder of the volume that belongs to the device.
    pub first_cylinder: u32,
    /// How many do: all behind the first unless set.
    pub cylinders: Option<u32>,
    /// Whether guests may only read.
    pub read_only: bool,
    /// One guest at a time has it, is lent the cache of the whole volume, and reads in place.
    pub dedicated: bool,
    /// Tracks that are read for the device leave the cache when the program that needed them is over: no minidisk cache.
    pub uncached: bool,
    /// The guests that may open it: all, if none is named. Devices that no guest may open both can have the same name.
    pub guests: Vec<Name>,
}

/// Why something could not be served.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// A volume could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// No memory or no descriptors left; or this is a forked child, to which the server does not belong.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Channel and control unit could not be joined.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// The name of a device does not do, or is there already for the same guest.
    #[error("device {name:?}: a name has 1 to 8 letters, and is there once for each guest")]
    Name {
        /// The name.
        name: String,
    },
    /// The cylinders of a device are not on its volume.
    #[error(
        "device {name}: {cylinders} cylinders from cylinder {first} are not on the volume, which has {volume}"
    )]
    Cylinders {
        /// The name.
        name: String,
        /// The first.
        first: u32,
        /// How many.
        cylinders: u32,
        /// How many the volume has.
        volume: u32,
    },
    /// There is no volume of this number.
    #[error("device {name}: there is no volume {volume}")]
    NoVolume {
        /// The name.
        name: String,
        /// The number.
        volume: usize,
    },
    /// A dedicated device shares its volume with another one.
    #[error("device {name}: a dedicated device has its volume for itself")]
    Shared {
        /// The name.
        name: String,
    },
    /// The channel and the control unit do not understand each other.
    #[error("the exchange between channel and control unit: {0}")]
    Exchange(#[from] Broken),
}

/// A guest that serves volumes to other guests. One thread runs the channel and the control unit.
#[derive(Debug)]
pub struct Server {
    pub(super) agent: Agent<Opened>,
    pub(super) unit: Unit,
    pub(super) devices: Vec<Named>,
    pub(super) cache_bytes: Vec<u64>,
    /// The volumes' files, or the first of each.
    files: Vec<PathBuf>,
    pub(super) shares: Shares,
    report: Showing,
    lending: Lending,
    /// What is shown of devices is out of date.
    pub(super) has_new_devices: bool,
}

/// A device, and what it is called.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) name: [u8; super::DEVICE_NAME_BYTES],
    pub(super) device: Device,
}

impl Named {
    pub(super) fn may_open(&self, guest: Name) -> bool {
        self.device.guests.is_empty() || self.device.guests.contains(&guest)
    }

    /// Whether a guest could mean either of them.
    fn is_confused_with(&self, name: [u8; super::DEVICE_NAME_BYTES], device: &Device) -> bool {
        let (ours, theirs) = (&self.device.guests, &device.guests);
        let is_for_both =
            ours.is_empty() || theirs.is_empty() || ours.iter().any(|guest| theirs.contains(guest));
        self.name == name && is_for_both
    }
}

/// A device that a guest has opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    /// The number of the device.
    pub(super) device: usize,
    /// The guest.
    pub(super) guest: Name,
    /// Storage that the open takes of the guest's share.
    pub(super) storage_bytes: u64,
}

impl Server {
    /// A server without volumes, under the name that the guest has.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn new(guest: Guest, wait: Wait) -> Result<Server, ServerError> {
        let mut agent = Agent::new(guest, wait)?;
        let mut unit = Unit::with_clock(Clock::new(now_ns));
        // Caches are lent over these paths, of which nobody else knows.
        let most = 1 << 46;
        let terms =
            Terms { storage_bytes_max: most, peer_storage_bytes_max: most, ..Terms::DEFAULT };
        for _ in 0..LINKS {
            let (ours, theirs) = pair(terms)?;
            agent.channel.add_link(ours);
            unit.add_link(theirs);
        }
        let (words, lending) = Lending::new("siga volumes", REPORT_BYTES, Request::ShowVolumes)?;
        let mut server = Server {
            agent,
            unit,
            devices: Vec::new(),
            cache_bytes: Vec::new(),
            files: Vec::new(),
            shares: Shares::default(),
            report: Showing::new(words),
            lending,
            has_new_devices: false,
        };
        server.follow_host();
        Ok(server)
    }

    /// Sets what guests may have of the server from now on. What they have already stays.
    pub fn set_limits(&mut self, limits: ServerLimits) {
        self.shares.limits = limits;
    }

    /// Opens a volume, with a cache of at most `cache_bytes` for its tracks, and returns its number. Waits for two seconds if another process
    /// has the volume, as [`super::open_volume`] does: where guests are served meanwhile, open it on another thread, and [`Server::mount`] it.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn add_volume(
        &mut self,
        file: impl AsRef<FilePath>,
        access: Access,
        cache_bytes: usize,
    ) -> Result<usize, ServerError> {
        self.mount(OpenVolume::open(file.as_ref(), access)?, cache_bytes)
    }

    /// Serves a volume that is open, with a cache of at most `cache_bytes` for its tracks, and returns its number. Nobody writes to
    /// one that has damaged tracks.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn mount(&mut self, open: OpenVolume, cache_bytes: usize) -> Result<usize, ServerError> {
        self.agent.refuse_child()?;
        let name = open.name();
        let OpenVolume { volume, file, damage, known, is_direct, writes, syncing } = open;
        // What has run out is no refusal.
        let lacks = |error: &io::Error| shortage(error) == Some(Shortage::Descriptors);
        let direct = match is_direct.then(|| Direct::open(&volume)) {
            Some(Err(NoDirect::File(error) | NoDirect::Ring(error))) if lacks(&error) => {
                return Err(error.into());
            }
            direct => direct.map(|direct| direct.map_err(|why| why.to_string())),
        };
        let writes = match writes {
            Writing::Direct => match DirectWrites::open(&volume) {
                Err(error) if lacks(&error) => return Err(error.into()),
                // Where there is no ring writes go by calls.
                writes => writes.ok().flatten(),
            },
            Writing::Buffered => None,
        };
        let all = (volume.tracks() as usize + 1) * TRACK_BYTES;
        let cache_bytes = cache_bytes.min(all);
        let reading = direct.iter().flatten().filter_map(Direct::descriptor);
        let writing = writes.iter().filter_map(DirectWrites::descriptor);
        let mut keys = Vec::new();
        let heard = reading.chain(writing).try_for_each(|ring| {
            keys.push(self.agent.listen_to(ring)?);
            Ok(())
        });
        let options = StorageOptions { huge: true, locked: false };
        let added = heard.and_then(|()| self.unit.add_volume(volume, cache_bytes, options));
        let number = match added {
            Ok(number) => number,
            Err(error) => {
                keys.into_iter().for_each(|key| drop(self.agent.waiter.remove(key)));
                return Err(error.into());
            }
        };
        // The channel takes in the cache now. With the first guest of the volume, descriptors can be lacking that guests have taken.
        self.poll_channel(now_ns())?;
        damage.iter().for_each(|(track, at)| self.unit.note_damage(number, *track, *at));
        match direct {
            None => {}
            Some(Ok(direct)) => self.unit.read_directly(number, direct, known),
            Some(Err(why)) => self.unit.refuse_direct(number, why),
        }
        if let Some(writes) = writes {
            self.unit.write_directly(number, writes);
        }
        self.unit.set_syncing(number, syncing);
        self.cache_bytes.push(cache_bytes.max(TRACK_BYTES * 4) as u64);
        self.files.push(file.clone());
        let totals = self.totals();
        let file = file.to_string_lossy();
        self.report.change(&totals, |rows| rows.name_volume(number, &name, &file));
        self.show();
        Ok(number)
    }

    /// Lets guests open a device.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn add_device(&mut self, name: &str, device: Device) -> Result<(), ServerError> {
        self.agent.refuse_child()?;
        let wrong = || ServerError::Name { name: name.to_owned() };
        let bytes = eight(name).ok_or_else(wrong)?;
        let name = name.to_owned();
        if device.volume >= self.cache_bytes.len() {
            return Err(ServerError::NoVolume { name, volume: device.volume });
        }
        let volume = self.unit.cylinders(device.volume);
        let first = device.first_cylinder;
        let cylinders = device.cylinders.unwrap_or(volume.saturating_sub(first));
        let end = first.checked_add(cylinders);
        if cylinders == 0 || end.is_none_or(|end| end > volume) {
            return Err(ServerError::Cylinders { name, first, cylinders, volume });
        }
        let is_shared =
            self.devices.iter().map(|named| &named.device).any(|other| {
                other.volume == device.volume && (other.dedicated || device.dedicated)
            });
        if is_shared {
            return Err(ServerError::Shared { name });
        }
        if self.devices.iter().any(|other| other.is_confused_with(bytes, &device)) {
            return Err(ServerError::Name { name });
        }
        if device.dedicated {
            self.shares.cache_bytes += self.cache_bytes[device.volume];
        }
        let device = Device { cylinders: Some(cylinders), ..device };
        self.devices.push(Named { name: bytes, device });
        self.has_new_devices = true;
        self.show();
        Ok(())
    }

    /// Serves until there is nothing to do for so long.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn serve_within(&mut self, time: Duration) -> Result<(), ServerError> {
        self.serve_for(time)
    }

    /// Serves until that time, on the clock that all processes share (`CLOCK_MONOTONIC`, in nanoseconds). A server that
    /// spins polls all the time.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn serve_until(&mut self, deadline_ns: u64) -> Result<(), ServerError> {
        self.serve_before(deadline_ns)
    }

    /// Processor time from polls that found nothing to the next ones, so far, in nanoseconds. The thread that polls may lose
    /// its processor meanwhile: that time does not count.
    pub fn spinning_ns(&self) -> u64 {
        self.agent.spinning_ns()
    }

    fn totals(&self) -> Totals {
        let Agent { channel, opens, .. } = &self.agent;
        let subchannels =
            self.agent.opened().map(|(number, _)| channel.measurements(number).count());
        Totals {
            paths: LINKS,
            volumes: self.cache_bytes.len(),
            devices: self.devices.len(),
            subchannels: subchannels.sum(),
            guests: self.shares.taken().count(),
            refused: self.shares.refused,
            rate: OpenRate {
                most: OPENS_PER_S as u32,
                full_ns: opens.full_ns(),
                waits: opens.times_put_off(),
            },
        }
    }

    /// Serves for ever.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn serve(&mut self) -> Result<std::convert::Infallible, ServerError> {
        self.serve_always()
    }

    /// Does what there is to do, without waiting. Returns whether there was anything.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn poll(&mut self) -> Result<bool, ServerError> {
        self.poll_all()
    }

    /// Guests that have a device open.
    pub fn guests(&self) -> usize {
        self.agent.opened().count()
    }

    /// Information units that channel and control unit have sent each other, by kind.
    pub fn units(&self) -> Vec<(UnitKind, u64)> {
        let of = |kind| (kind, self.agent.channel.sent_of(kind) + self.unit.sent_of(kind));
        UnitKind::ALL.into_iter().map(of).collect()
    }

    /// The measurement blocks of all subchannels, with the guest's number.
    pub fn measurements(&self) -> impl Iterator<Item = (usize, Measurement)> {
        let of =
            |(number, _)| self.agent.channel.measurements(number).map(move |one| (number, one));
        self.agent.opened().flat_map(of)
    }

    /// Tracks that were read from the file of a volume.
    pub fn misses(&self, volume: usize) -> u64 {
        self.unit.misses(volume)
    }

    /// Tracks of a volume that were found damaged, 16 at most. Nobody writes to a volume that has any.
    pub fn damage(&self, volume: usize) -> &[DamagedTrack] {
        self.unit.damage(volume)
    }

    /// Returns the error of a sync that failed. Nobody writes to such a volume until it is served anew.
    ///
    /// # Panics
    /// If there is no such volume.
    pub fn failure(&self, volume: usize) -> Option<&io::Error> {
        self.unit.failure(volume)
    }

    /// How tracks of a volume come from its file.
    ///
    /// # Panics
    /// If there is no such volume.
    pub fn reading(&self, volume: usize) -> Reading {
        self.unit.reading(volume)
    }

    /// How what is written comes to a volume's disk.
    ///
    /// # Panics
    /// If there is no such volume.
    pub fn writing(&self, volume: usize) -> Writing {
        self.unit.writing(volume)
    }

    /// Durability of an acknowledged write to a volume.
    ///
    /// # Panics
    /// If there is no such volume.
    pub fn syncing(&self, volume: usize) -> Syncing {
        self.unit.syncing(volume)
    }

    /// The files of volumes for which direct reads were wanted and are refused, and why.
    pub fn direct_refused(&self) -> impl Iterator<Item = (&FilePath, &str)> {
        let files = self.files.iter().enumerate();
        files.filter_map(|(volume, file)| Some((&**file, self.unit.refusal(volume)?)))
    }

    /// Why the host does not show the volumes to those who ask it, if it does not.
    pub fn not_shown(&self) -> Option<Problem> {
        self.lending.refused()
    }
}

impl Serves for Server {
    type What = Opened;
    type Error = ServerError;

    fn agent(&mut self) -> &mut Agent<Opened> {
        &mut self.agent
    }

    fn poll_unit(&mut self) -> bool {
        self.unit.poll()
    }

    fn open(&mut self, pending: Pending) -> Result<bool, ServerError> {
        self.open_device(pending)
    }

    fn left(&mut self, Opened { guest, storage_bytes, .. }: Opened) {
        self.has_new_devices = true;
        self.shares.give_back(guest, storage_bytes);
    }

    fn follow_host(&mut self) {
        self.lending.follow_host(self.agent.guest(), now_ns());
    }

    fn is_to_ask(&mut self) -> bool {
        self.lending.is_to_ask(self.agent.guest())
    }

    /// Puts into the report what is so now.
    fn show(&mut self) {
        let totals = self.totals();
        let are_new = std::mem::take(&mut self.has_new_devices);
        let Server { agent, unit, devices, shares, report, .. } = self;
        let channel = &agent.channel;
        let devices = if are_new { &devices[..] } else { &[] };
        report.change(&totals, |rows| {
            for (index, (link, guests)) in channel.links().enumerate() {
                let sent = link.sent().map(|(kind, sent)| sent + unit.sent_over(index, kind));
                rows.path(index, guests, sent);
            }
            for volume in 0..totals.volumes.min(report::VOLUMES_MAX) {
                let cache = unit.cache(volume);
                let state = VolumeState {
                    cylinders: unit.cylinders(volume),
                    read_only: !unit.is_writable(volume),
                    reading: unit.reading(volume),
                    writing: unit.writing(volume),
                    syncing: unit.syncing(volume),
                    damage: unit.damage(volume).to_vec(),
                    slots: cache.slots() as u32,
                    used: cache.used() as u32,
                    pinned: cache.pinned() as u32,
                    lookups: cache.lookups(),
                    misses: cache.misses(),
                    failure: unit.failure(volume).map(|error| error.raw_os_error().unwrap_or(0)),
                    ..VolumeState::default()
                };
                rows.volume(volume, &state);
            }
            for (index, named) in devices.iter().take(report::DEVICES_MAX).enumerate() {
                let device = &named.device;
                let open = agent.opened().filter(|(_, opened)| opened.device == index).count();
                let state = DeviceState {
                    name: String::from_utf8_lossy(&named.name).into_owned(),
                    volume: device.volume,
                    first_cylinder: device.first_cylinder,
                    cylinders: device.cylinders.unwrap_or(0),
                    read_only: device.read_only,
                    dedicated: device.dedicated,
                    cached: !device.uncached,
                    guest: device.guests.first().map(Name::to_string).unwrap_or_default(),
                    has_others: device.guests.len() > 1,
                    open: open as u32,
                };
                rows.device(index, &state);
            }
            for (row, (guest, taken)) in shares.taken().enumerate().take(report::GUESTS_MAX) {
                let most = shares.most(guest);
                let state = GuestState {
                    opens: taken.opens as u32,
                    opens_max: most.opens as u32,
                    storage_bytes: taken.storage_bytes,
                    storage_bytes_max: most.storage_bytes,
                    opens_refused: taken.refused.0,
                    storage_refused: taken.refused.1,
                    ..GuestState::default()
                };
                rows.guest(row, report::packed(&guest.bytes()), &state);
            }
            let mut row = 0;
            for (number, Opened { device, guest, .. }) in agent.opened() {
                let path = channel.link_of(number).unwrap_or(0);
                for (subchannel, measured) in channel.measurements(number).enumerate() {
                    let guest = report::packed(&guest.bytes());
                    rows.subchannel(row, guest, device, path, subchannel as u16, &measured);
                    row += 1;
                }
            }
        });
    }
}
