//! A guest's device.

use std::io;

use channel::client::{Client, ClientError, Event, LOOK_BYTES};
use channel::request::{self, Modification};
use disk::ckd::model::{CYLINDERS_MAX, HEADS};
use disk::ckd::track::{CONTENT_BYTES_MAX, CONTENT_BYTES_MIN};
use disk::format::fault;
use disk::format::irb::Irb;
use disk::format::orb::Orb;
use disk::format::scsw::{DeviceStatus, Scsw, TRANSPORT_FORMAT, control};
use disk::format::sense::Sense;
use disk::format::tsb::Tsb;
use disk::program::blocks::{self, BLOCKS_MAX, Mode, PROGRAM_BYTES, Verb};
use disk::program::tracks;
use disk::unit::Syncing;
use fabric::control::{Kind, Problem};
use fabric::path;
use thiserror::Error;

use super::{BLOCK_BYTES, Given, NotOpened, Wanted};
use crate::in_place::View;
use crate::serving::eight;
use crate::{ConnectError, Guest, Path, PathOptions, Severed, Wait};

/// Programs that run at a time.
const DEPTH_MAX: u16 = 128;

/// What to ask for when a device is opened. All fields have defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// How programs of blocks and tracks run: in transport mode unless set.
    pub mode: Mode,
    /// Programs that run at a time, 1 to 128; each has a subchannel. 1 unless set.
    pub depth: u16,
    /// Blocks of one program, 1 to 255; 64 unless set. They take storage when they are used. There is room for a track in any case.
    pub blocks_max: u32,
    /// The track with block 0, from the start of the device. Unless set, it is that of the first block of a volume that `siga volume
    /// create` has made: 15 of a device that begins with cylinder 0 of its volume, which has the label, and 0 of every other device.
    pub first_track: Option<u32>,
    /// Bytes that the program looks at in each record it reads: 64 unless set, more than 8192 are as 8192. So many are prefetched of what
    /// the next programs have read. It is a hint.
    pub look_bytes: u32,
    /// How to wait for the end of a program.
    pub wait: Wait,
}

impl Default for DiskOptions {
    fn default() -> DiskOptions {
        let mode = Mode::Transport;
        DiskOptions {
            mode,
            depth: 1,
            blocks_max: 64,
            first_track: None,
            look_bytes: LOOK_BYTES as u32,
            wait: Wait::Adaptive,
        }
    }
}

/// Why a device was not opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenDiskError {
    /// The name is too long, or empty.
    #[error("device name {name:?}: must have 1 to 8 letters")]
    Name {
        /// The name.
        name: String,
    },
    /// An option is out of its bounds.
    #[error("{option} = {value}: must be 1 to {most}")]
    Option {
        /// Which.
        option: &'static str,
        /// What it is.
        value: u32,
        /// What it may be.
        most: u32,
    },
    /// The guest has as much of the server as it may. It finds more when it closes devices, and unless the limit was set, when others do.
    #[error("limit {limit} of guest {guest} at {server} reached: {most} ({})", limit.setting())]
    Limit {
        /// The limit that was reached.
        limit: GuestLimit,
        /// The guest, whose limit it is.
        guest: String,
        /// The server.
        server: String,
        /// How much the guest may have.
        most: u64,
    },
    /// The device is dedicated, and open.
    #[error("{device} of {server} is in use: it is for one guest at a time, and was opened before")]
    InUse {
        /// The device.
        device: String,
        /// The server.
        server: String,
    },
    /// No path to the server, or it has no such device for this guest.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// No memory or no descriptors left.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The server gave no device.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// A limit of what one guest may have of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GuestLimit {
    /// Devices that it has open.
    Opens,
    /// Bytes of storage that its opens take.
    Storage,
}

impl GuestLimit {
    /// The setting that changes it.
    pub fn setting(self) -> &'static str {
        match self {
            GuestLimit::Opens => "guest_opens_max of [control_unit] in the system file",
            GuestLimit::Storage => "guest_storage_max of [control_unit] in the system file",
        }
    }
}

impl std::fmt::Display for GuestLimit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            GuestLimit::Opens => "opens",
            GuestLimit::Storage => "storage",
        })
    }
}

/// Why a device is of no more use, or a program was not started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DiskError {
    /// The path has ended.
    #[error(transparent)]
    Severed(#[from] Severed),
    /// The server has sent what is no result.
    #[error("the server broke the rules")]
    Rules,
    /// A request was not sent: something is lacking that waiting does not bring back. It is never refused for want of room: the call
    /// waits for that.
    #[error(transparent)]
    NotSent(path::SendError),
    /// Every subchannel has a program: wait for one.
    #[error("every subchannel has a program")]
    Busy,
    /// No program runs: there is nothing to wait for.
    #[error("no program runs")]
    Idle,
    /// The program has no blocks, more than the options allow, or blocks that the device has not.
    #[error(
        "{blocks} blocks from block {first}: the device has {device}, and a program at most {most}"
    )]
    Blocks {
        /// The first.
        first: u64,
        /// How many.
        blocks: u32,
        /// How many the device has.
        device: u64,
        /// How many a program has.
        most: u32,
    },
    /// The device has no such track.
    #[error("track {track}: the device has {tracks}")]
    Track {
        /// Which.
        track: u32,
        /// How many the device has.
        tracks: u32,
    },
    /// The content is shorter or longer than that of any track.
    #[error("{bytes} bytes: a track has {CONTENT_BYTES_MIN} to {CONTENT_BYTES_MAX}")]
    TrackBytes {
        /// How many there are.
        bytes: usize,
    },
    /// The buffer is not a number of whole blocks.
    #[error("{bytes} bytes: must be blocks of 4096")]
    Bytes {
        /// How many there are.
        bytes: usize,
    },
    /// A program ended well and moved less than it was to: the records of the device are not blocks.
    #[error("{moved} bytes of {wanted} were moved: the records there are shorter than 4096 bytes")]
    Short {
        /// Bytes that were moved.
        moved: u64,
        /// Bytes that were to be.
        wanted: u64,
    },
    /// A subchannel refused a request.
    #[error("subchannel {subchannel} refused, with condition code {code}")]
    Refused {
        /// Which.
        subchannel: u16,
        /// Why: 1 nothing to do it to, 2 busy, 3 not there.
        code: u8,
    },
    /// A program ended with an error.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

impl From<ClientError> for DiskError {
    fn from(error: ClientError) -> DiskError {
        match error {
            ClientError::Severed(severed) => DiskError::Severed(severed),
            _ => DiskError::Rules,
        }
    }
}

/// How a program ended that did not end well.
#[derive(Clone, Copy, Debug, Error)]
#[error("{}", said(scsw, sense))]
pub struct ProgramError {
    /// The status.
    pub scsw: Scsw,
    /// What the control unit says of it.
    pub sense: Option<Sense>,
}

fn said(scsw: &Scsw, sense: &Option<Sense>) -> String {
    if scsw.is_not_operational() {
        return "deferred condition code 3: the program's path mask does not name the device's channel path (see Disk::paths)".into();
    }
    let sense = sense.map_or(String::new(), |sense| format!(": {}", fault::describe(&sense)));
    format!(
        "device status {:02x}, subchannel status {:02x}{sense}",
        scsw.device.0, scsw.subchannel.0
    )
}

/// What to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Blocks one after the other, from the device.
    Read {
        /// The first.
        first: u64,
        /// How many.
        blocks: u32,
    },
    /// Blocks one after the other, to the device, from [`Disk::data`] of the subchannel that runs it.
    Write {
        /// The first.
        first: u64,
        /// How many.
        blocks: u32,
    },
    /// All records of a track, from the device: see [`Disk::read_track`].
    ReadTrack {
        /// Which, from the start of the device.
        track: u32,
    },
    /// All records of a track, to the device, from [`Disk::data`] of the subchannel that runs it: see [`Disk::write_track`].
    WriteTrack {
        /// Which, from the start of the device.
        track: u32,
        /// Bytes of the records, with the end.
        bytes: usize,
    },
}

/// A device of a server, as a guest has it. What it starts runs on a subchannel of its own.
#[derive(Debug)]
pub struct Disk {
    path: Path,
    client: Client,
    options: DiskOptions,
    first_track: u32,
    cylinders: u32,
    paths: u8,
    may_write: bool,
    syncing: Syncing,
    /// What the device has reported unasked since the program looked.
    attention: Option<DeviceStatus>,
    is_dedicated: bool,
    /// Subchannels without a program. The one that was used last is used next: its data are in cache.
    free: Vec<u16>,
}

/// Bytes of the data of a subchannel: whole pages for the blocks of a program, and for a track.
fn data_bytes(options: &DiskOptions) -> usize {
    (options.blocks_max as usize * BLOCK_BYTES).max(CONTENT_BYTES_MAX.next_multiple_of(BLOCK_BYTES))
}

impl Disk {
    /// Opens a device of a server, and waits until programs can be started. If the guest's host has died, this fails, and each
    /// attempt looks for a new host.
    ///
    /// # Errors
    /// [`OpenDiskError`].
    pub fn open(
        guest: &Guest,
        server: &str,
        device: &str,
        options: &DiskOptions,
    ) -> Result<Disk, OpenDiskError> {
        let name = eight(device).ok_or_else(|| OpenDiskError::Name { name: device.to_owned() })?;
        let bounded = |option, value: u32, most: u32| match (1..=most).contains(&value) {
            true => Ok(()),
            false => Err(OpenDiskError::Option { option, value, most }),
        };
        bounded("depth", options.depth.into(), DEPTH_MAX.into())?;
        bounded("blocks_max", options.blocks_max, BLOCKS_MAX)?;
        let data_bytes = data_bytes(options);
        let result_pages = (data_bytes / 4096) as u16;
        let wanted = Wanted { name, subchannels: options.depth, result_pages };
        let bytes = usize::from(options.depth) * (PROGRAM_BYTES + data_bytes);
        let path_options = PathOptions {
            kind: Kind::DISK,
            data: wanted.emit(),
            storage_bytes: bytes as u64 + (4 << 20),
            wait: options.wait,
            ..PathOptions::default()
        };
        // A guest that only has devices waits for nothing else, and would never hear of another host.
        guest.poll();
        let mut path = guest.connect(server, &path_options).map_err(|error| {
            let ConnectError::Refused { problem: Problem::Refused, data } = &error else {
                return error.into();
            };
            let (limit, most) = match NotOpened::parse(data) {
                None | Some(NotOpened::NoDevice) => return error.into(),
                Some(NotOpened::InUse) => {
                    let (device, server) = (device.to_owned(), server.to_owned());
                    return OpenDiskError::InUse { device, server };
                }
                Some(NotOpened::Opens { most }) => (GuestLimit::Opens, most),
                Some(NotOpened::Storage { most }) => (GuestLimit::Storage, most),
            };
            let (guest, server) = (guest.name().to_string(), server.to_owned());
            OpenDiskError::Limit { limit, guest, server, most }
        })?;
        let given = Given::parse(&path.user_data());
        let mut client = Client::new(bytes, path.sender().raw())?;
        client.set_look_bytes(options.look_bytes as usize);
        let mut disk = Disk {
            path,
            client,
            options: *options,
            first_track: options.first_track.unwrap_or_else(|| given.first_track()),
            cylinders: 0,
            paths: 0,
            may_write: false,
            syncing: Syncing::default(),
            attention: None,
            is_dedicated: false,
            free: (0..options.depth).rev().collect(),
        };
        match disk.next_event()? {
            Event::Attached(attached)
                if attached.paths.count_ones() != 1
                    || !(1..=CYLINDERS_MAX).contains(&attached.capacity) =>
            {
                Err(DiskError::Rules.into())
            }
            Event::Attached(attached) => {
                disk.cylinders = attached.capacity;
                disk.paths = attached.paths;
                disk.may_write = attached.may_write;
                disk.syncing = Syncing::of(attached.traits).ok_or(DiskError::Rules)?;
                disk.is_dedicated = attached.cache.is_some();
                disk.free.retain(|subchannel| *subchannel < attached.subchannels);
                Ok(disk)
            }
            Event::Refused { subchannel, code } => {
                Err(DiskError::Refused { subchannel, code }.into())
            }
            _ => Err(DiskError::Rules.into()),
        }
    }

    /// Cylinders of the device.
    pub fn cylinders(&self) -> u32 {
        self.cylinders
    }

    /// Tracks of the device.
    pub fn tracks(&self) -> u32 {
        self.cylinders * HEADS
    }

    /// The mask of the channel paths that the device has, for [`Orb::paths`]: the leftmost bit is the first path of the server's channel, the
    /// rightmost bit the eighth. One bit is set: the server chooses a path when the device is opened, and the device keeps the path until
    /// it is closed.
    ///
    /// The mask is the path-installed mask (PIM) of the device's subchannels (z/Architecture Principles of Operation, chapter 15).
    pub fn paths(&self) -> u8 {
        self.paths
    }

    /// The track with block 0, from the start of the device: see [`DiskOptions::first_track`].
    pub fn first_track(&self) -> u32 {
        self.first_track
    }

    /// Blocks of the device, from its first track with blocks on.
    pub fn blocks(&self) -> u64 {
        let tracks = self.tracks().saturating_sub(self.first_track);
        u64::from(tracks) * u64::from(disk::ckd::model::BLOCKS_PER_TRACK)
    }

    /// Whether the guest may write. The answer changes when a track of the volume is found damaged: [`Disk::take_attention`] tells of it.
    pub fn may_write(&self) -> bool {
        self.may_write
    }

    /// Durability of an acknowledged write, as the server says: with [`Syncing::Fdatasync`] the write survives a crash of the machine, with
    /// [`Syncing::File`] perhaps not. It does not change while the device is open, and means nothing if the guest may not write.
    pub fn durability(&self) -> Syncing {
        self.syncing
    }

    /// What the device has reported unasked since this was called last: attention, device end and unit exception
    /// ([`DeviceStatus::STATE_CHANGE`]) if the guest may not write any more. Reports arrive while the program waits for the ends of others,
    /// or calls [`Disk::try_next`].
    pub fn take_attention(&mut self) -> Option<DeviceStatus> {
        self.attention.take()
    }

    /// Whether what is read lies in the control unit's cache. Otherwise it was copied for this guest.
    pub fn is_in_place(&self) -> bool {
        self.is_dedicated
    }

    /// Subchannels that have no program.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Sets how programs of blocks run from now on.
    pub fn set_mode(&mut self, mode: Mode) {
        self.options.mode = mode;
    }

    /// The guest's storage, in which addresses of channel programs are: offsets from its start.
    pub fn storage(&mut self) -> &mut [u8] {
        self.client.storage()
    }

    fn data_at(&self, subchannel: u16) -> usize {
        let programs = usize::from(self.options.depth) * PROGRAM_BYTES;
        programs + usize::from(subchannel) * data_bytes(&self.options)
    }

    /// The subchannel that the next program runs on, and its data: room for the blocks of a program, and for a track.
    ///
    /// # Errors
    /// [`DiskError::Busy`].
    pub fn data(&mut self) -> Result<(u16, &mut [u8]), DiskError> {
        let subchannel = *self.free.last().ok_or(DiskError::Busy)?;
        let at = self.data_at(subchannel);
        let bytes = data_bytes(&self.options);
        Ok((subchannel, &mut self.client.storage()[at..at + bytes]))
    }

    /// Starts a program, and returns the subchannel that runs it.
    ///
    /// # Errors
    /// [`DiskError`]; nothing was started then.
    #[inline]
    pub fn start(&mut self, program: Program) -> Result<u16, DiskError> {
        let subchannel = *self.free.last().ok_or(DiskError::Busy)?;
        let (verb, first, count) = match program {
            Program::Read { first, blocks } => (Verb::Read, first, blocks),
            Program::Write { first, blocks } => (Verb::Write, first, blocks),
            Program::ReadTrack { track } => {
                return self.start_track(Verb::Read, track, CONTENT_BYTES_MAX);
            }
            Program::WriteTrack { track, bytes } => {
                return self.start_track(Verb::Write, track, bytes);
            }
        };
        let (device, most) = (self.blocks(), self.options.blocks_max);
        let end = first.checked_add(count.into());
        if !(1..=most).contains(&count) || end.is_none_or(|end| end > device) {
            return Err(DiskError::Blocks { first, blocks: count, device, most });
        }
        let at = u32::from(subchannel) * PROGRAM_BYTES as u32;
        let data = self.data_at(subchannel) as u32;
        let blocks = blocks::Blocks { first_track: self.first_track, first, count };
        let mode = self.options.mode;
        let mut orb = blocks::build(self.client.storage(), at, data, mode, verb, blocks);
        orb.parameter = subchannel.into();
        self.start_orb(&orb)
    }

    fn start_track(&mut self, verb: Verb, track: u32, bytes: usize) -> Result<u16, DiskError> {
        let subchannel = *self.free.last().ok_or(DiskError::Busy)?;
        let tracks = self.tracks();
        if track >= tracks {
            return Err(DiskError::Track { track, tracks });
        }
        if !(CONTENT_BYTES_MIN..=CONTENT_BYTES_MAX).contains(&bytes) {
            return Err(DiskError::TrackBytes { bytes });
        }
        let at = u32::from(subchannel) * PROGRAM_BYTES as u32;
        let data = self.data_at(subchannel) as u32;
        let mode = self.options.mode;
        let mut orb = tracks::build(self.client.storage(), at, data, mode, verb, track, bytes);
        orb.parameter = subchannel.into();
        self.start_orb(&orb)
    }

    /// Starts a program that the caller has put into [`Disk::storage`], and returns the subchannel that runs it.
    ///
    /// The path mask of the ORB has to name the device's channel path: [`Disk::paths`], or
    /// [`ALL_PATHS`](disk::format::orb::ALL_PATHS) for whichever path the device has. If the mask does not, the program is not run, and
    /// ends with deferred condition code 3 ([`Scsw::is_not_operational`]).
    ///
    /// # Errors
    /// [`DiskError`]; nothing was started then.
    #[inline]
    pub fn start_orb(&mut self, orb: &Orb) -> Result<u16, DiskError> {
        let subchannel = *self.free.last().ok_or(DiskError::Busy)?;
        self.send(|client, sender| client.start(subchannel, orb, sender))?;
        self.free.pop();
        Ok(subchannel)
    }

    /// Asks that the program of a subchannel be halted. It ends with the next results.
    ///
    /// # Errors
    /// [`DiskError::Severed`].
    pub fn halt(&mut self, subchannel: u16) -> Result<(), DiskError> {
        self.request(request::Kind::Halt, subchannel)
    }

    /// Asks that the program of a subchannel be ended, and its status be forgotten.
    ///
    /// # Errors
    /// [`DiskError::Severed`].
    pub fn clear(&mut self, subchannel: u16) -> Result<(), DiskError> {
        self.request(request::Kind::Clear, subchannel)
    }

    /// Lets a suspended program go on.
    ///
    /// # Errors
    /// [`DiskError::Severed`].
    pub fn resume(&mut self, subchannel: u16) -> Result<(), DiskError> {
        self.request(request::Kind::Resume, subchannel)
    }

    /// Asks that the program of a subchannel be withdrawn before the control unit has begun it: while another guest has reserved the device,
    /// or while the program is suspended. It ends with the next results, and [`Ended::is_withdrawn`]. A program of transport mode that has
    /// begun is interrogated, if its TCW names an interrogating TCW: the answer is a result that is not over, with a status block whose
    /// [`Interrogation`](disk::format::tsb::Interrogation) says what the program waits for. Any other program is refused, with condition code 2.
    ///
    /// # Errors
    /// [`DiskError::Severed`].
    pub fn cancel(&mut self, subchannel: u16) -> Result<(), DiskError> {
        self.request(request::Kind::Cancel, subchannel)
    }

    /// Changes the settings of a subchannel. If a program runs there, nothing is changed, and the next results begin with a refusal,
    /// condition code 2. A start on a subchannel that is not enabled is refused with condition code 3.
    ///
    /// # Errors
    /// [`DiskError::Severed`].
    pub fn modify(&mut self, subchannel: u16, modification: Modification) -> Result<(), DiskError> {
        self.send(|client, sender| client.modify(subchannel, modification, sender))
    }

    fn request(&mut self, kind: request::Kind, subchannel: u16) -> Result<(), DiskError> {
        self.send(|client, sender| client.request(kind, subchannel, sender))
    }

    /// Sends, and waits for room if there is none.
    #[inline]
    fn send(
        &mut self,
        mut attempt: impl FnMut(&mut Client, &mut path::Sender) -> Result<(), path::SendError>,
    ) -> Result<(), DiskError> {
        let Disk { path, client, .. } = self;
        let sent = match attempt(client, path.sender().raw()) {
            Err(path::SendError::Full) => {
                path.sender().until_done(|sender| attempt(client, sender))
            }
            sent => sent,
        };
        sent.map_err(|error| match error {
            path::SendError::Severed(severed) => DiskError::Severed(severed),
            error => DiskError::NotSent(error),
        })
    }

    fn next_event(&mut self) -> Result<Event, DiskError> {
        loop {
            if let Some(event) = self.poll()? {
                return Ok(event);
            }
            self.path.receiver().wait();
        }
    }

    /// The next event that is no report of the device.
    #[inline]
    fn poll(&mut self) -> Result<Option<Event>, DiskError> {
        loop {
            let Disk { path, client, .. } = self;
            match client.poll(path.receiver().raw())? {
                Some(Event::Attention { status, may_write, .. }) => {
                    (self.attention, self.may_write) = (Some(status), may_write);
                }
                event => return Ok(event),
            }
        }
    }

    /// Waits for the end of a program, or for news of one that goes on: it is suspended, has asked for an interruption, or was interrogated.
    /// This is what TEST SUBCHANNEL is for a system: it takes the status.
    ///
    /// # Errors
    /// [`DiskError`]; `Idle` if no program runs.
    #[inline]
    pub fn wait(&mut self) -> Result<Ended<'_>, DiskError> {
        if self.free.len() == usize::from(self.options.depth) {
            return Err(DiskError::Idle);
        }
        let event = self.next_event()?;
        self.ended(event)
    }

    /// The end of a program, if one has ended.
    ///
    /// # Errors
    /// [`DiskError`].
    #[inline]
    pub fn try_next(&mut self) -> Result<Option<Ended<'_>>, DiskError> {
        match self.poll()? {
            Some(event) => self.ended(event).map(Some),
            None => Ok(None),
        }
    }

    fn ended(&mut self, event: Event) -> Result<Ended<'_>, DiskError> {
        match event {
            Event::Ended { subchannel, parameter } => {
                if subchannel >= self.options.depth || self.free.contains(&subchannel) {
                    return Err(DiskError::Rules);
                }
                self.free.push(subchannel);
                Ok(Ended { disk: self, subchannel, parameter, is_over: true })
            }
            Event::Intermediate { subchannel, parameter } => {
                Ok(Ended { disk: self, subchannel, parameter, is_over: false })
            }
            Event::Refused { subchannel, code } => {
                // A start that was refused runs no program.
                if code == 3 && subchannel < self.options.depth && !self.free.contains(&subchannel)
                {
                    self.free.push(subchannel);
                }
                Err(DiskError::Refused { subchannel, code })
            }
            _ => Err(DiskError::Rules),
        }
    }

    /// Reads blocks, and waits. No other program may run.
    ///
    /// # Errors
    /// [`DiskError`].
    pub fn read(&mut self, first: u64, target: &mut [u8]) -> Result<(), DiskError> {
        if !target.len().is_multiple_of(BLOCK_BYTES) {
            return Err(DiskError::Bytes { bytes: target.len() });
        }
        let piece = self.options.blocks_max as usize * BLOCK_BYTES;
        let mut at = first;
        for target in target.chunks_mut(piece) {
            let blocks = (target.len() / BLOCK_BYTES) as u32;
            self.start(Program::Read { first: at, blocks })?;
            let ended = self.wait()?;
            ended.check()?;
            let (moved, wanted) = (ended.copy(target)? as u64, target.len() as u64);
            if moved < wanted {
                return Err(DiskError::Short { moved, wanted });
            }
            at += u64::from(blocks);
        }
        Ok(())
    }

    /// Writes blocks, and waits until the server acknowledges them. No other program may run.
    ///
    /// The setting `sync` of the volume decides which crashes an acknowledged write survives: see [`Disk::durability`]. By default the
    /// blocks are on the server's disk when this returns. With `sync = "file"` the kernel of the server's machine has them, and a crash of
    /// that machine can lose them.
    ///
    /// # Errors
    /// [`DiskError`]. The blocks before the fault were written then.
    pub fn write(&mut self, first: u64, source: &[u8]) -> Result<(), DiskError> {
        if !source.len().is_multiple_of(BLOCK_BYTES) {
            return Err(DiskError::Bytes { bytes: source.len() });
        }
        let piece = self.options.blocks_max as usize * BLOCK_BYTES;
        let mut at = first;
        for source in source.chunks(piece) {
            let blocks = (source.len() / BLOCK_BYTES) as u32;
            let (_, data) = self.data()?;
            data[..source.len()].copy_from_slice(source);
            self.start(Program::Write { first: at, blocks })?;
            let ended = self.wait()?;
            ended.check()?;
            let wanted = source.len() as u64;
            let residual = ended.residual();
            if residual > 0 {
                return Err(DiskError::Short { moved: wanted.saturating_sub(residual), wanted });
            }
            at += u64::from(blocks);
        }
        Ok(())
    }

    /// Reads all records of a track, from the start of the device, and waits: record 0, the others, and eight bytes of FF. Each record is
    /// its count field, its key and its data; [`records_from`](super::ckd::track::records_from) finds them. No other program may run.
    ///
    /// # Errors
    /// [`DiskError`].
    pub fn read_track(&mut self, track: u32) -> Result<Vec<u8>, DiskError> {
        self.start(Program::ReadTrack { track })?;
        let ended = self.wait()?;
        ended.check()?;
        let mut content = vec![0; (ended.bytes() as usize).min(CONTENT_BYTES_MAX)];
        ended.copy(&mut content)?;
        Ok(content)
    }

    /// Writes all records of a track, from the start of the device, in the place of those that are there, and waits until the server
    /// acknowledges them, with the same durability as [`Disk::write`]. `content` is as [`Disk::read_track`] returns it; the count field of its record 0 must name the track. No other program
    /// may run.
    ///
    /// # Errors
    /// [`DiskError`]. If the program has ended, the track is as it was, unless the server's disk has failed. If the path has ended, the track
    /// can be the old one, the new one, or damaged.
    pub fn write_track(&mut self, track: u32, content: &[u8]) -> Result<(), DiskError> {
        if content.len() > CONTENT_BYTES_MAX {
            return Err(DiskError::TrackBytes { bytes: content.len() });
        }
        let (_, data) = self.data()?;
        data[..content.len()].copy_from_slice(content);
        self.start(Program::WriteTrack { track, bytes: content.len() })?;
        Ok(self.wait()?.check()?)
    }

    /// Lets the server use what was read last for others. Done by every start too.
    ///
    /// # Errors
    /// [`DiskError::Severed`].
    pub fn consume(&mut self) -> Result<(), DiskError> {
        let Disk { path, client, .. } = self;
        match client.consume(path.sender().raw()) {
            Err(path::SendError::Severed(severed)) => Err(severed.into()),
            // The next start takes the news along.
            _ => Ok(()),
        }
    }
}

/// A program that has ended. What it has read is there until the next program is started.
#[derive(Debug)]
pub struct Ended<'a> {
    disk: &'a mut Disk,
    subchannel: u16,
    parameter: u32,
    is_over: bool,
}

impl Ended<'_> {
    /// The subchannel that ran it.
    pub fn subchannel(&self) -> u16 {
        self.subchannel
    }

    /// From its ORB.
    pub fn parameter(&self) -> u32 {
        self.parameter
    }

    /// Whether the program has ended. If not, it was suspended, with what it has read so far, asked for an interruption, or was
    /// interrogated.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether it was cancelled before the control unit had begun it, or was suspended when it was cancelled: it has no status.
    pub fn is_withdrawn(&self) -> bool {
        self.is_over && self.scsw().control == control::PENDING
    }

    /// Its status.
    pub fn scsw(&self) -> Scsw {
        self.disk.client.answer().scsw
    }

    /// What the control unit says of a unit check.
    pub fn sense(&self) -> Option<Sense> {
        self.disk.client.answer().sense
    }

    /// The interruption-response block, as TEST SUBCHANNEL stores it for a system that handles status itself: [`Ended::scsw`], with E set if there is
    /// sense, the channel path of the device ([`Disk::paths`]), and [`Ended::sense`], also while the program goes on. [`Irb::emit`] writes its 64
    /// bytes.
    ///
    /// The path is 0 if the program ended with deferred condition code 3. The layout follows the
    /// z/Architecture Principles of Operation, chapter 16, and `arch/s390/include/asm/cio.h` of Linux: see
    /// [`irb`](mod@disk::format::irb).
    pub fn irb(&self) -> Irb {
        self.disk.client.irb()
    }

    /// Whether it ended well.
    ///
    /// # Errors
    /// [`ProgramError`] if not.
    #[inline]
    pub fn check(&self) -> Result<(), ProgramError> {
        let scsw = self.scsw();
        if scsw.is_good() { Ok(()) } else { Err(ProgramError { scsw, sense: self.sense() }) }
    }

    /// Bytes that were read.
    pub fn bytes(&self) -> u64 {
        self.disk.client.read_bytes()
    }

    /// Bytes that were not moved: of the whole program in transport mode, of the last CCW in command mode.
    pub fn residual(&self) -> u64 {
        let answer = self.disk.client.answer();
        let tsb = answer.tsb.and_then(|(_, bytes)| Tsb::parse(&bytes));
        match tsb {
            Some(tsb) => tsb.residual_bytes.into(),
            None if answer.scsw.conditions & TRANSPORT_FORMAT != 0 => 0,
            None => answer.scsw.count.into(),
        }
    }

    /// Copies what was read, from the start. Returns how many bytes.
    ///
    /// # Errors
    /// [`DiskError::Rules`] if the server names what it has not lent.
    pub fn copy(&self, target: &mut [u8]) -> Result<usize, DiskError> {
        Ok(self.disk.client.copy(target)?)
    }

    /// Hands out where each record lies that was read: the storage, the offset, and how many bytes.
    ///
    /// # Errors
    /// [`DiskError::Rules`] if the server names what it has not lent.
    #[inline]
    pub fn in_place(&self, record: impl FnMut(&View, usize, usize)) -> Result<(), DiskError> {
        Ok(self.disk.client.in_place(record)?)
    }

    /// Places what was read at the addresses that the program names, as a channel does.
    ///
    /// # Errors
    /// [`DiskError::Rules`] if the server names what it has not lent.
    pub fn place(&mut self) -> Result<(), DiskError> {
        Ok(self.disk.client.place()?)
    }
}
