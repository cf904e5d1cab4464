//! Control units: volumes, devices, channel paths and subchannels.

use std::fmt;

use disk::unit::Syncing;
use serde::{Deserialize, Serialize};

use super::Counts;

/// A guest that serves volumes, as it shows itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ControlUnitReport {
    /// The guest.
    pub guest: String,
    /// Its volumes, 64 at most.
    #[serde(default)]
    pub volumes: Vec<VolumeReport>,
    /// Their devices, 512 at most.
    #[serde(default)]
    pub devices: Vec<DeviceReport>,
    /// Its channel paths.
    #[serde(default)]
    pub channel_paths: Vec<ChannelPathReport>,
    /// The subchannels of guests that have a device open, 1024 at most.
    #[serde(default)]
    pub subchannels: Vec<SubchannelReport>,
    /// How many volumes, devices and subchannels there are besides.
    #[serde(default)]
    pub not_shown: u64,
    /// Guests that have devices open: what they have of the control unit, and may have.
    #[serde(default)]
    pub users: Vec<ControlUnitUserReport>,
    /// Opens that were refused because a guest had as much as it may.
    #[serde(default)]
    pub opens_refused: u64,
    /// Opens that count still: at most those of a quarter of a second.
    #[serde(default)]
    pub opens_of_second: u64,
    /// How many opens there may be in a second; 0 for a server that has no such limit.
    #[serde(default)]
    pub opens_per_s: u32,
    /// How often opens had to wait because there were as many in a second.
    #[serde(default)]
    pub opens_waited: u64,
}

/// A guest's share of a control unit: what it uses, and its limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ControlUnitUserReport {
    /// The guest.
    pub guest: String,
    /// Devices that it has open, each open counting.
    pub opens: u32,
    /// How many it may have open: `guest_opens_max`, or half of what all other guests leave.
    pub opens_max: u32,
    /// Bytes of storage that its opens take.
    pub storage_bytes: u64,
    /// How many they may take: `guest_storage_max`, or half of what all other guests leave.
    pub storage_bytes_max: u64,
    /// Opens that were refused because the guest had as many as it may, since it has had any.
    pub opens_refused: u32,
    /// Opens that were refused for their storage.
    pub storage_refused: u32,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct VolumeReport {
    /// Its number among the volumes of its control unit, from 0. Two volumes can have the same name.
    #[serde(default)]
    pub number: usize,
    /// The name in its label.
    pub volume: String,
    /// Its file, or the first of several.
    pub file: String,
    /// Cylinders.
    pub cylinders: u32,
    /// Whether it can be written.
    pub state: VolumeState,
    /// How its tracks come from the file.
    #[serde(default)]
    pub reading: VolumeReading,
    /// How what is written comes to its disk. None if nobody writes.
    #[serde(default)]
    pub writing: Option<VolumeWriting>,
    /// Durability of an acknowledged write. None if nobody writes.
    #[serde(default)]
    pub sync: Option<VolumeSync>,
    /// Tracks that were found damaged, 16 at most.
    pub damaged_tracks: Vec<DamagedTrackReport>,
    /// The error of a sync of the volume that failed. None if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Tracks that the cache has room for.
    pub cache_tracks_max: u32,
    /// Tracks that it has.
    pub cache_tracks: u32,
    /// Tracks of the cache from which guests have results that they have not done with. Former states of tracks that were written
    /// since count too, so that there can be more than `cache_tracks`.
    pub cache_tracks_pinned: u32,
    /// How often a track was looked for, and was in the cache.
    pub cache_hits: u64,
    /// How often it had to be read from the file.
    pub cache_misses: u64,
}

/// The state of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum VolumeState {
    /// It is read and written.
    Online,
    /// It is only read.
    #[serde(rename = "read-only")]
    ReadOnly,
    /// It is only read, because tracks of it are damaged.
    Damaged,
    /// It is only read until it is served anew, because a sync of it has failed.
    Failed,
}

impl VolumeState {
    /// All states.
    pub const ALL: [VolumeState; 4] =
        [VolumeState::Online, VolumeState::ReadOnly, VolumeState::Damaged, VolumeState::Failed];
}

/// As in the JSON of a report.
impl fmt::Display for VolumeState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            VolumeState::Online => "online",
            VolumeState::ReadOnly => "read-only",
            VolumeState::Damaged => "damaged",
            VolumeState::Failed => "failed",
        })
    }
}

/// How tracks of a volume that are not in the cache come from the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum VolumeReading {
    /// One after the other, through the kernel's page cache.
    #[default]
    Buffered,
    /// Many at a time, past the page cache.
    Direct,
    /// As `Buffered`, because the kernel refuses direct reads, which were wanted.
    Refused,
}

/// As in the JSON of a report.
impl fmt::Display for VolumeReading {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            VolumeReading::Buffered => "buffered",
            VolumeReading::Direct => "direct",
            VolumeReading::Refused => "refused",
        })
    }
}

/// How what is written to a volume comes to its disk, before it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum VolumeWriting {
    /// One after the other, through the kernel's page cache.
    Buffered,
    /// Many at a time, past the page cache.
    Direct,
}

/// As in the JSON of a report.
impl fmt::Display for VolumeWriting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            VolumeWriting::Buffered => "buffered",
            VolumeWriting::Direct => "direct",
        })
    }
}

/// Durability of an acknowledged write to a volume: the setting `sync` of the system file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum VolumeSync {
    /// It survives a crash of the machine: the control unit has synced the file (`fdatasync`).
    Fdatasync,
    /// What the file guarantees by itself: nothing is synced.
    File,
}

/// As in the JSON of a report.
impl fmt::Display for VolumeSync {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            VolumeSync::Fdatasync => "fdatasync",
            VolumeSync::File => "file",
        })
    }
}

impl From<Syncing> for VolumeSync {
    fn from(syncing: Syncing) -> VolumeSync {
        match syncing {
            Syncing::Fdatasync => VolumeSync::Fdatasync,
            Syncing::File => VolumeSync::File,
        }
    }
}

impl From<VolumeSync> for Syncing {
    fn from(sync: VolumeSync) -> Syncing {
        match sync {
            VolumeSync::Fdatasync => Syncing::Fdatasync,
            VolumeSync::File => Syncing::File,
        }
    }
}

/// A track that is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DamagedTrackReport {
    /// Its cylinder.
    pub cylinder: u32,
    /// Its head.
    pub head: u8,
    /// The file of the volume that it is in, from 1.
    pub file: usize,
    /// Where the damage begins, in bytes from the start of that file.
    pub offset: u64,
}

/// As `siga volume check` names it.
impl fmt::Display for DamagedTrackReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DamagedTrackReport { cylinder, head, file, offset } = self;
        write!(formatter, "cylinder {cylinder}, head {head} (file {file}, byte {offset})")
    }
}

/// A device: a volume, or the part of it that a minidisk is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeviceReport {
    /// Its name.
    pub device: String,
    /// The guest that may open it, if not all may.
    pub guest: Option<String>,
    /// Others may open it too.
    pub has_others: bool,
    /// The name of the volume.
    pub volume: String,
    /// The number of the volume: see [`VolumeReport::number`].
    #[serde(default)]
    pub volume_number: usize,
    /// The first cylinder of the volume that belongs to it.
    pub first_cylinder: u32,
    /// How many do.
    pub cylinders: u32,
    /// Whether guests can only read, because of the device or of its volume.
    pub read_only: bool,
    /// Whether one guest at a time has the whole volume, and reads in place.
    pub dedicated: bool,
    /// Whether its tracks stay in the cache.
    pub cache: bool,
    /// Guests that have it open.
    pub open: u32,
}

/// A channel path between channel and control unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChannelPathReport {
    /// Its number.
    pub channel_path: usize,
    /// Guests whose programs run over it.
    pub guests: u64,
    /// Information units by kind, both directions together, but for kinds that stand at zero.
    pub units: Counts,
}

/// A subchannel with its measurement block. Times are added up over all samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SubchannelReport {
    /// The guest.
    pub guest: String,
    /// The name of the device.
    pub device: String,
    /// Over which channel path its programs run.
    pub channel_path: u16,
    /// Its number.
    pub subchannel: u16,
    /// Programs that were started, and resumptions.
    pub starts: u64,
    /// Programs that were measured: those that have ended.
    pub samples: u64,
    /// Function pending time: from the start to the first answer of the control unit, without disconnect time.
    pub function_pending_ns: u64,
    /// Connect time: from there to the end, without disconnect time.
    pub connect_ns: u64,
    /// Disconnect time: the program waited for the file of its volume, until a track was read, or what it wrote was written and synced.
    pub disconnect_ns: u64,
    /// Control unit queuing time.
    pub control_unit_queuing_ns: u64,
    /// Device active only time: 0, because channel end and device end come together.
    pub device_active_only_ns: u64,
    /// Initial command response time, which is part of the function pending time.
    pub initial_command_response_ns: u64,
}
