//! The control unit: it runs ECKD commands on volumes, for connections over the paths of channels.
//!
//! | module | what it is |
//! |---|---|
//! | `aside` | exchanges that wait for a track, or let others have a turn |
//! | [`device`] | a volume, or the part of it that a minidisk is |
//! | [`cache`] | tracks in lent storage |
//! | [`chain`] | extent, position and domain of an exchange |
//! | `command` | commands of command mode, one by one, and their data |
//! | `connection` | a guest's use of a device |
//! | `ending` | how an exchange ends |
//! | `exchange` | what is kept of an exchange that is under way |
//! | `fetch` | tracks that commands need, out of the cache or the file |
//! | `few` | lists that mostly have one |
//! | `flight` | direct reads that are under way, and who waits for them |
//! | `interrogate` | what has become of an operation |
//! | `ordered` | values in order, found by a key |
//! | `output` | what commands bring |
//! | `perform` | the commands |
//! | `reservation` | reserved devices, and programs that wait for them |
//! | [`search`] | seeks and searches |
//! | `syncing` | durability of an acknowledged write |
//! | `tracks` | commands on whole tracks |
//! | `transfer` | output data that cross behind their transport command, and room for them |
//! | `transport` | operations of transport mode |
//! | [`usage`] | what a guest is to have of a volume |
//! | `writes` | direct writes that are under way, and who ends with them |
//!
//! An exchange that needs a track which is being read is *put aside*, and runs when the track is there; others go on meanwhile. A
//! command, or the whole of a transport mode operation, then runs again from its start, so that it sees the volume as it is at one time.
//!
//! By default an operation that writes ends only when its data are on the disk. Operations share a sync of the volume that they write: all that arrive
//! before a [`Unit::poll`]; or with direct writes those that have ended while others are under way. A volume with [`Syncing::File`] is not
//! synced: an operation ends when the kernel says that its data are written.

mod aside;
pub mod cache;
pub mod chain;
mod command;
mod connection;
pub mod device;
mod ending;
mod exchange;
mod fetch;
mod few;
mod flight;
mod interrogate;
mod ordered;
mod output;
mod perform;
mod reservation;
pub mod search;
mod syncing;
mod tracks;
mod transfer;
mod transport;
pub mod usage;
mod writes;

use std::collections::{HashSet, VecDeque};
use std::io;

use fabric::path::Lendable;
use os::storage::StorageOptions;

use self::cache::{Cache, Slot};
use self::connection::Connection;
use self::device::Device;
use self::ending::Ending;
use self::exchange::Exchange;
pub use self::flight::Awaited;
use self::flight::{Flights, Landed, Ticket};
use self::ordered::Ordered;
use self::reservation::Reservations;
pub use self::syncing::Syncing;
use self::transfer::Room;
pub use self::transfer::{DEVICE_OUTPUT_BYTES_MAX, PATH_OUTPUT_BYTES_MAX};
use self::writes::{WRITES_PER_POLL_MAX, Writes};
use crate::ckd::direct::{DIRECT_READS_MAX, Direct, DirectWrites};
use crate::ckd::model::{TRACK_BYTES, track_of};
use crate::ckd::track::{self, Uniform};
use crate::ckd::volume::{Access, Volume};
use crate::format::ccw::NOP;
use crate::format::eckd::{Cchh, Search, destination};
use crate::format::scsw::DeviceStatus;
use crate::format::tccb::Tccb;
use channel::commands::CommandSet;
pub use channel::exchange::OUTPUT_BYTES_MAX;
use channel::exchange::{Broken, Head, Kind, Link, PACING, UNITS_PER_POLL_MAX, cancel};

/// Connections of a control unit.
pub const CONNECTIONS_MAX: usize = 4096;
/// Exchanges of a connection that are under way in command mode, or wait.
pub const EXCHANGES_MAX: usize = 256;
/// Numbers of subchannels that an exchange's number can have.
const SUBCHANNELS: usize = 256;
/// Bytes of output data that a command of command mode can use: no record with its count is longer than a track.
pub const COMMAND_OUTPUT_BYTES_MAX: u32 = TRACK_BYTES as u32;
/// The commands of this control unit, as far as they concern a channel.
pub const COMMANDS: CommandSet = CommandSet {
    output_bytes_max: COMMAND_OUTPUT_BYTES_MAX,
    is_immediate: |code| code == NOP,
    is_branch: |code| Search::of(code).is_some(),
    halts_idle: false,
};
/// Damaged tracks of a volume that are remembered.
pub const DAMAGED_TRACKS_MAX: usize = 16;
/// Slots of the cache that an exchange pins at most. A program of 255 blocks pins 23.
pub const SLOTS_PER_EXCHANGE_MAX: usize = 256;
/// Pins of a connection at most, of operations that have ended and that the guest has not done with: a guest that starts a program on a
/// subchannel has done with the last one, so 128 subchannels have no more. A guest that never says so gets overrun.
pub const PINS_PER_CONNECTION_MAX: usize = 128 * SLOTS_PER_EXCHANGE_MAX;

/// How tracks that are not in the cache come from the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// By calls that wait, through the kernel's page cache.
    #[default]
    Buffered,
    /// Past the page cache, many at a time, while other programs go on.
    Direct,
    /// Direct reads were wanted and refused: as [`Reading::Buffered`].
    Refused,
}

/// How what is written comes to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writing {
    /// By calls that wait, through the kernel's page cache.
    #[default]
    Buffered,
    /// Past the page cache, many at a time, while other programs go on.
    Direct,
}

/// A volume and its cache.
#[derive(Debug)]
struct Mounted {
    volume: Volume,
    clock: Clock,
    syncing: Syncing,
    cache: Cache,
    reading: Reading,
    /// Why there are no direct reads, though they were wanted.
    refusal: Option<String>,
    /// Direct reads.
    flights: Option<Flights>,
    /// Direct writes.
    writes: Option<Writes>,
    /// Of which exchanges a direct write is over, and whether the file has it.
    written: VecDeque<(Ticket, bool)>,
    lendable: Lendable,
    /// The number under which the cache is lent over each link.
    segments: Vec<Option<u16>>,
    /// Tracks that were written since the last sync, by whomever. If the sync fails nobody knows what the file has of them. With
    /// [`Syncing::File`] no track comes here, and there is no sync.
    unsynced: Vec<u32>,
    /// Exchanges that wait for the next sync, or for their direct writes: by their connection, and the serial number of their ticket.
    endings: Ordered<(u16, u64), Ending>,
    /// Of the ticket that was given out last for an exchange that writes.
    writer_serial: u64,
    /// How many of these there were after the last pass, and how many passes have brought more.
    gathered: usize,
    gathering: u32,
    reservations: Reservations,
    /// Tracks that were found damaged. There is none on a volume that may be written.
    damage: Vec<DamagedTrack>,
    /// A sync has failed: nobody writes until the volume is mounted anew.
    failure: Option<SyncFailure>,
    /// Guests have to be told that they cannot write any more.
    is_to_protect: bool,
}

/// A sync that has failed. The kernel reports such an error once, and then marks the pages that it could not write as clean: a later sync would
/// succeed, and a read through the page cache would bring data that the disk does not have.
#[derive(Debug)]
struct SyncFailure {
    /// The reason.
    error: io::Error,
    /// Tracks of which nobody knows what the disk has. They are not read.
    tracks: HashSet<u32>,
}

/// A track of a volume that is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedTrack {
    /// Which.
    pub track: Cchh,
    /// In which file of the volume, from 0.
    pub file: usize,
    /// Where the damage begins, in bytes from the start of that file.
    pub offset: u64,
}

impl Mounted {
    /// A track was found damaged.
    fn note_damage(&mut self, track: u32, offset: usize) {
        let (file, start) = self.volume.place(track);
        let found = DamagedTrack { track: track_of(track), file, offset: start + offset as u64 };
        let is_known = self.damage.iter().any(|known| known.track == found.track);
        if !is_known && self.damage.len() < DAMAGED_TRACKS_MAX {
            self.damage.push(found);
        }
        self.is_to_protect |= self.damage.len() == 1;
    }

    /// Nobody knows what the file has of a track.
    fn forget(&mut self, track: u32) {
        self.cache.forget(track);
        if let Some(flights) = &mut self.flights {
            flights.spoil(track);
        }
    }

    /// Stands for an exchange that writes.
    fn next_writer(&mut self, connection: u16) -> Ticket {
        self.writer_serial += 1;
        Ticket { connection, serial: self.writer_serial }
    }

    /// A sync has failed, and with it nobody knows what the disk has of these tracks. Nobody writes from now on.
    fn fail(&mut self, error: io::Error, tracks: &[u32]) {
        tracks.iter().for_each(|track| self.forget(*track));
        // Whoever mounts the volume next is to read the disk.
        self.volume.drop_cached();
        let failure =
            self.failure.get_or_insert_with(|| SyncFailure { error, tracks: HashSet::new() });
        failure.tracks.extend(tracks);
        self.is_to_protect = true;
    }

    /// Returns true if a sync has failed that was to bring this track to the disk.
    #[inline]
    fn is_lost(&self, track: u32) -> bool {
        self.failure.as_ref().is_some_and(|failure| failure.tracks.contains(&track))
    }

    fn is_writable(&self) -> bool {
        let is_sound = self.damage.is_empty() && self.failure.is_none();
        self.volume.access() == Access::Write && is_sound
    }
}

/// What a control unit has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Exchanges that ended.
    pub exchanges: u64,
    /// Of them, those with unit check.
    pub unit_checks: u64,
    /// Commands that were run.
    pub commands: u64,
    /// Syncs of volumes.
    pub syncs: u64,
    /// Exchanges that wrote.
    pub writes: u64,
    /// How often an exchange was put aside until a track was there.
    pub asides: u64,
    /// Programs, connections and the like that were looked at to find programs whose device has become free.
    pub waiters_visited: u64,
}

/// Passes that a sync waits for at most while each brings more that is to be synced.
const GATHERING_PASSES_MAX: u32 = 64;

/// A clock for the disconnect time of programs. A control unit asks it only where a program waits for a file.
#[derive(Clone, Copy, Debug)]
pub struct Clock(fn() -> u64);

impl Clock {
    /// A clock that gives nanoseconds since an arbitrary moment, and never goes back.
    pub fn new(read: fn() -> u64) -> Clock {
        Clock(read)
    }

    fn read(self) -> u64 {
        (self.0)()
    }
}

impl Default for Clock {
    /// A clock that stands still.
    fn default() -> Clock {
        Clock(|| 0)
    }
}

/// A control unit.
#[derive(Debug, Default)]
pub struct Unit {
    clock: Clock,
    volumes: Vec<Mounted>,
    /// In boxes, because a link is laid aside while bytes of it are used.
    links: Vec<Option<Box<Link>>>,
    /// By link: room for output data that cross behind their transport commands.
    rooms: Vec<Room>,
    /// In boxes, because a connection is taken out while a unit of it is looked at.
    connections: Vec<Option<Box<Connection>>>,
    /// Of the ticket that was given out last.
    serial: u64,
    /// Exchanges that are put aside only until others have had a turn.
    yielded: VecDeque<Ticket>,
    /// Bytes of data of all exchanges that are put aside.
    aside_bytes: usize,
    /// Bytes that were copied for all exchanges which wait for the disk before they end.
    copied_bytes: usize,
    counters: Counters,
}

impl Unit {
    /// A control unit without volumes, whose clock stands still: it reports no disconnect time.
    pub fn new() -> Unit {
        Unit::default()
    }

    /// A control unit without volumes, which measures the disconnect time of programs.
    pub fn with_clock(clock: Clock) -> Unit {
        Unit { clock, ..Unit::default() }
    }

    /// Adds a volume, with a cache of at most `cache_bytes`, which is lent over all channel paths that are there. Returns its number.
    ///
    /// # Errors
    /// No memory or no descriptors left.
    pub fn add_volume(
        &mut self,
        volume: Volume,
        cache_bytes: usize,
        options: StorageOptions,
    ) -> io::Result<usize> {
        let cache = Cache::new(volume.tracks(), cache_bytes, options)?;
        let lendable = cache.lendable()?;
        let lend = |link: &mut Option<Box<Link>>| match link {
            Some(link) => link.lend(&lendable).map(Some).map_err(io::Error::other),
            None => Ok(None),
        };
        let segments = self.links.iter_mut().map(lend).collect::<io::Result<_>>()?;
        self.volumes.push(Mounted {
            volume,
            clock: self.clock,
            syncing: Syncing::default(),
            cache,
            reading: Reading::Buffered,
            refusal: None,
            flights: None,
            writes: None,
            written: VecDeque::new(),
            lendable,
            segments,
            unsynced: Vec::new(),
            endings: Ordered::default(),
            writer_serial: 0,
            gathered: 0,
            gathering: 0,
            reservations: Reservations::default(),
            damage: Vec::new(),
            failure: None,
            is_to_protect: false,
        });
        Ok(self.volumes.len() - 1)
    }

    /// Reads what is not in the cache of a volume by direct reads from now on. `known` is what its tracks are like, as far as that was
    /// found out: of those whose records are alike no more is read than a program needs. The others are learned when they are read.
    ///
    /// # Panics
    /// If there is no such volume, or it has fewer tracks.
    pub fn read_directly(&mut self, volume: usize, direct: Direct, known: Vec<Option<Uniform>>) {
        let mounted = &mut self.volumes[volume];
        mounted.cache.remember(known);
        mounted.flights = Some(Flights::new(direct));
        mounted.reading = Reading::Direct;
    }

    /// Takes note that direct reads of a volume were wanted and are not to be had, and why.
    ///
    /// # Panics
    /// If there is no such volume.
    pub fn refuse_direct(&mut self, volume: usize, why: String) {
        let mounted = &mut self.volumes[volume];
        (mounted.reading, mounted.refusal) = (Reading::Refused, Some(why));
    }

    /// Why a volume has no direct reads, though they were wanted.
    ///
    /// # Panics
    /// If there is no such volume.
    pub fn refusal(&self, volume: usize) -> Option<&str> {
        self.volumes[volume].refusal.as_deref()
    }

    /// Writes to a volume by direct writes from now on.
    ///
    /// # Panics
    /// If there is no such volume, or it has direct writes.
    pub fn write_directly(&mut self, volume: usize, direct: DirectWrites) {
        let before = self.volumes[volume].writes.replace(Writes::new(direct));
        assert!(before.is_none(), "volume {volume} has direct writes");
    }

    /// How what is written comes to a volume's disk.
    ///
    /// # Panics
    /// If there is no such volume.
    pub fn writing(&self, volume: usize) -> Writing {
        match self.volumes[volume].writes {
            Some(_) => Writing::Direct,
            None => Writing::Buffered,
        }
    }

    /// Changes what a write to a volume survives, from now on.
    ///
    /// # Panics
    /// If there is no such volume, or a write to it is not over.
    pub fn set_syncing(&mut self, volume: usize, syncing: Syncing) {
        let mounted = &mut self.volumes[volume];
        let is_written = mounted.writes.as_ref().is_some_and(|writes| writes.count() > 0)
            || !(mounted.written.is_empty() && mounted.unsynced.is_empty());
        assert!(!is_written, "volume {volume} is being written");
        mounted.syncing = syncing;
    }

    /// What a write to a volume survives.
    ///
    /// # Panics
    /// If there is no such volume.
    pub fn syncing(&self, volume: usize) -> Syncing {
        self.volumes[volume].syncing
    }

    /// How tracks of a volume come from the file.
    ///
    /// # Panics
    /// If there is no such volume.
    pub fn reading(&self, volume: usize) -> Reading {
        self.volumes[volume].reading
    }

    /// Direct reads of a volume that are under way.
    ///
    /// # Panics
    /// If there is no such volume.
    pub fn reads_under_way(&self, volume: usize) -> usize {
        self.volumes[volume].flights.as_ref().map_or(0, Flights::count)
    }

    /// Direct writes of a volume that are under way.
    ///
    /// # Panics
    /// If there is no such volume.
    pub fn writes_under_way(&self, volume: usize) -> usize {
        self.volumes[volume].writes.as_ref().map_or(0, Writes::count)
    }

    /// Adds a channel path: the control unit's end.
    pub fn add_link(&mut self, link: Link) {
        self.links.push(Some(Box::new(link)));
        self.rooms.push(Room::default());
    }

    /// What is needed to lend the cache of a volume to a guest.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn lendable(&self, volume: usize) -> io::Result<Lendable> {
        self.volumes[volume].cache.lendable()
    }

    /// The cylinders of a volume.
    pub fn cylinders(&self, volume: usize) -> u32 {
        self.volumes[volume].volume.cylinders()
    }

    /// Returns true if a volume may be written: it was opened for that, no track of it was found damaged, and no sync has failed.
    pub fn is_writable(&self, volume: usize) -> bool {
        self.volumes[volume].is_writable()
    }

    /// Tracks of a volume that were found damaged, up to [`DAMAGED_TRACKS_MAX`] of them.
    pub fn damage(&self, volume: usize) -> &[DamagedTrack] {
        &self.volumes[volume].damage
    }

    /// Takes note of a damaged track that the caller has found, so many bytes from its start. From now on nobody writes to the
    /// volume.
    ///
    /// # Panics
    /// If there is no such volume, or no such track.
    pub fn note_damage(&mut self, volume: usize, track: u32, offset: usize) {
        self.volumes[volume].note_damage(track, offset);
        self.protect();
    }

    /// Returns the error of a sync that failed. Nobody writes to such a volume until it is mounted anew.
    ///
    /// # Panics
    /// If there is no such volume.
    pub fn failure(&self, volume: usize) -> Option<&io::Error> {
        self.volumes[volume].failure.as_ref().map(|failure| &failure.error)
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Units that were sent to channels, by kind.
    pub fn sent_of(&self, kind: Kind) -> u64 {
        self.links.iter().flatten().map(|link| link.sent_of(kind)).sum()
    }

    /// Units of a kind that were sent to the channel of one path.
    pub fn sent_over(&self, link: usize, kind: Kind) -> u64 {
        self.links.get(link).and_then(Option::as_deref).map_or(0, |link| link.sent_of(kind))
    }

    /// Tracks that were read from the file of a volume.
    pub fn misses(&self, volume: usize) -> u64 {
        self.volumes[volume].cache.misses()
    }

    /// The cache of a volume.
    pub fn cache(&self, volume: usize) -> &Cache {
        &self.volumes[volume].cache
    }

    /// Slots of a volume's cache that are pinned.
    pub fn pinned(&self, volume: usize) -> usize {
        self.volumes[volume].cache.pinned()
    }

    /// Takes and runs what has arrived, a bounded number of units. Returns whether there was anything.
    pub fn poll(&mut self) -> bool {
        let mut found = self.resume_yielded();
        for volume in 0..self.volumes.len() {
            found |= self.volumes[volume].land_writes(WRITES_PER_POLL_MAX);
            found |= self.end_writes(volume);
            if let Some(flights) = &self.volumes[volume].flights {
                let may_feed = flights.may_feed();
                found |= self.take_reads(volume) || may_feed;
                self.feed_starved(volume);
            }
        }
        for index in 0..self.links.len() {
            for _ in 0..UNITS_PER_POLL_MAX {
                match self.poll_link(index) {
                    Ok(true) => found = true,
                    Ok(false) => {
                        found |= self.links[index].as_deref().is_some_and(Link::is_ready);
                        break;
                    }
                    Err(_) => {
                        self.drop_link(index);
                        break;
                    }
                }
            }
        }
        for index in 0..self.rooms.len() {
            match self.grant_room(index) {
                Ok(has_granted) => found |= has_granted,
                Err(_) => self.drop_link(index),
            }
        }
        // Before the syncs, which wait.
        for volume in 0..self.volumes.len() {
            match self.volumes[volume].flights.as_mut().map(Flights::submit) {
                None | Some(Ok(true)) => {}
                Some(Ok(false)) => found = true,
                Some(Err(error)) => {
                    self.give_up_direct(volume, &error);
                    found = true;
                }
            }
            found |= !self.volumes[volume].submit_writes();
        }
        for volume in 0..self.volumes.len() {
            // Some had to be waited for.
            found |= self.end_writes(volume);
            let mounted = &mut self.volumes[volume];
            if mounted.unsynced.is_empty() {
                continue;
            }
            if let Some(writes) = &mounted.writes {
                // Each sync is for half of them: the disk has the other half meanwhile.
                if mounted.unsynced.len() < writes.count() {
                    continue;
                }
            } else if mounted.endings.len() > mounted.gathered
                && mounted.gathering < GATHERING_PASSES_MAX
            {
                found = true;
                // Whoever writes much starts the next write when it has the last one's end: what comes while others are
                // written shares their sync.
                (mounted.gathered, mounted.gathering) =
                    (mounted.endings.len(), mounted.gathering + 1);
                continue;
            }
            (mounted.gathered, mounted.gathering) = (0, 0);
            // Its ends are to go.
            found = true;
            self.sync(volume);
        }
        if self.volumes.iter().any(|mounted| mounted.is_to_protect) {
            self.protect();
        }
        for volume in 0..self.volumes.len() {
            found |= self.call_waiting(volume);
        }
        if found {
            self.links.iter_mut().flatten().for_each(|link| link.flush());
        }
        found
    }

    /// Nobody writes any more to a volume that was found damaged, or whose sync has failed: what else is wrong with it is not known, and a
    /// write could make it worse.
    fn protect(&mut self) {
        let Unit { volumes, connections, links, .. } = self;
        for (volume, mounted) in volumes.iter_mut().enumerate() {
            if !std::mem::take(&mut mounted.is_to_protect) {
                continue;
            }
            for (number, connection) in connections.iter_mut().enumerate() {
                let Some(connection) = connection else { continue };
                let Device { volume: of, may_write, .. } = &mut connection.device;
                if *of != volume || !std::mem::take(may_write) {
                    continue;
                }
                // A state change: those who could write are told that they cannot any more.
                let code = DeviceStatus::STATE_CHANGE.0;
                let head = Head { code, ..Head::new(Kind::Attention, number as u16, 0) };
                if let Some(link) = &mut links[connection.link] {
                    // A link that has ended says so when it is polled.
                    let _ = link.send(&head, &[]);
                    link.flush();
                }
            }
        }
    }

    fn link(&mut self, index: usize) -> Result<&mut Link, Broken> {
        self.links.get_mut(index).and_then(Option::as_deref_mut).ok_or(Broken::Rules)
    }

    /// Takes one unit of a link. False if there is none.
    fn poll_link(&mut self, index: usize) -> Result<bool, Broken> {
        let Some(link) = &mut self.links[index] else { return Ok(false) };
        let Some(unit) = link.receive()? else { return Ok(false) };
        let head = unit.head;
        if head.kind == Kind::Establish {
            let body = link.body(unit);
            let number = |at: usize| {
                let bytes = body.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
                bytes.map(u32::from_le_bytes).ok_or(Broken::Rules)
            };
            let (first, cylinders) = (number(0)?, number(4)?);
            self.establish(index, head, first, cylinders)?;
            return Ok(true);
        }
        self.expect_next(index);
        // A unit of a connection that is another link's, or none, breaks the rules; one of a connection that has
        // just ended does not.
        let place = usize::from(head.connection);
        let Some(Some(connection)) = self.connections.get_mut(place) else { return Ok(true) };
        if connection.link != index {
            return Err(Broken::Rules);
        }
        let mut connection = self.connections[place].take().expect("seen above");
        let done = self.take_unit(&mut connection, unit, head);
        let is_there = head.kind != Kind::Disconnect;
        self.connections[place] = Some(connection);
        if !is_there {
            self.disconnect(head.connection);
        }
        done.map(|()| true)
    }

    /// Prefetches what the cache knows of the track that the next operation goes to.
    #[inline]
    fn expect_next(&self, link: usize) {
        let next = self.links[link].as_deref().and_then(Link::foresee);
        let Some((head, body)) = next else { return };
        let connection = self.connections.get(usize::from(head.connection));
        let Some(Some(connection)) = connection else { return };
        let device = &connection.device;
        let is_operation = head.kind == Kind::TransportCommand;
        let first = if is_operation { Tccb::foresee(body) } else { None };
        let track = first.and_then(|first| destination(first.command, first.control));
        if let Some(track) = track.and_then(|track| device.track(track)) {
            self.volumes[device.volume].cache.expect(track);
        }
    }

    fn take_unit(
        &mut self,
        connection: &mut Connection,
        unit: channel::exchange::Unit,
        head: Head,
    ) -> Result<(), Broken> {
        match head.kind {
            Kind::Command => {
                self.release(connection, head.number);
                let last_bytes = match self.link(connection.link)?.body(unit) {
                    [] => head.count as u16,
                    body => u16::from_le_bytes(body.try_into().map_err(|_| Broken::Rules)?),
                };
                // Consumed is dealt with: from here on the number is how many bytes the last CCW has.
                self.command(connection, Head { number: last_bytes, ..head })
            }
            Kind::Data => self.data(connection, unit, head),
            Kind::TransportCommand => {
                self.release(connection, head.number);
                self.transport(connection, unit, head)
            }
            Kind::Release => {
                self.release(connection, head.number);
                Ok(())
            }
            Kind::Cancel => self.cancel(connection, head),
            Kind::Interrogate => {
                let tccb = self.link(connection.link)?.body(unit).to_vec();
                self.interrogate(connection, head, &tccb)
            }
            Kind::Disconnect => Ok(()),
            Kind::Establish
            | Kind::Established
            | Kind::CommandResponse
            | Kind::Status
            | Kind::TransportResponse
            | Kind::Attention
            | Kind::Interrogation
            | Kind::TransferReady => Err(Broken::Rules),
        }
    }
}
