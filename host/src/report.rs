//! What a host reports to observers: guests, paths, counters, and each buffer of a path.
//!
//! The host reads states and counters from the boards of guests, without their help and while they run.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use disk::unit::Syncing;
use fabric::control::Scope;
use fabric::path::board::{SLEEP_WORD, reader_block, writer_block};
use fabric::path::{Counter, Shape, gauge_word};
use fabric::queue::{Owner, QUEUE_BUFFERS, RETURNED_WORD, State, audit};
use message::iucv::gauge;
use net::board::{self, ClientRow, DriverRow, Row, Shown, Way};
use net::links;
use os::sync::Ordering;
use os::words::LentWords;
use serde::{Deserialize, Serialize};

/// Counters of a half, by name.
pub type Counts = BTreeMap<String, u64>;

/// All guests and paths of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SystemReport {
    /// When it was made, in nanoseconds of the machine's clock.
    pub now_ns: u64,
    /// The guests, by name.
    pub guests: Vec<GuestReport>,
    /// The paths, by number.
    pub paths: Vec<PathReport>,
    /// The resources, by name.
    pub resources: Vec<ResourceReport>,
    /// The LANs, by name.
    #[serde(default)]
    pub lans: Vec<LanReport>,
    /// The stacks that are at lines alone, by the guests that show them. A stack at a LAN is shown by its member.
    #[serde(default)]
    pub stacks: Vec<GuestStackReport>,
    /// The lines that the system file describes, in its order.
    #[serde(default)]
    pub lines: Vec<LineReport>,
    /// The control units, by the guests that they are.
    #[serde(default)]
    pub control_units: Vec<ControlUnitReport>,
    /// The limits, with their owners: of the host, then of its users, its rules and its guests.
    #[serde(default)]
    pub limits: Vec<LimitReport>,
}

/// A limit of an owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LimitReport {
    /// The owner: the host, a user, a rule of the system file, a guest.
    pub owner: String,
    /// The limit.
    pub limit: String,
    /// How much the owner has; of a rate the events of the last second, as far as they count still.
    pub used: u64,
    /// How much it may have.
    pub most: u64,
    /// How often more was refused, or, of a rate, had to wait.
    pub refused: u64,
    /// The setting that changes it, or `fixed`.
    pub setting: String,
}

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

/// A line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LineReport {
    /// Its name.
    pub name: String,
    /// What carries its packets: `iucv` or `ctc`.
    pub kind: String,
    /// Bytes of its longest packet, as the system file says.
    pub mtu: usize,
    /// Whether it is up.
    pub state: LineState,
    /// Its ends, in the order of the file.
    pub ends: Vec<LineEndReport>,
}

/// Whether a line is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LineState {
    /// Packets go over it.
    Up,
    /// There is no path between its ends, or none that both ends serve as this line.
    Down,
}

/// An end of a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LineEndReport {
    /// The guest.
    pub guest: String,
    /// Its IP address there.
    pub address: String,
    /// Set if the guest is attached.
    pub is_attached: bool,
    /// Set if its driver has its part of what carries the line: over IUCV its side of the path to the partner, over an adapter a path to the
    /// guest that serves the line.
    #[serde(default)]
    pub is_connected: bool,
    /// What its driver has counted since the line is up. None while the line is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<DriverReport>,
}

/// What the driver at an end of a line has counted. Over IUCV messages and bytes are those of the path since the line is up; all else is since the driver
/// began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DriverReport {
    /// Messages sent, of one packet or several.
    pub messages_sent: u64,
    /// Bytes of these.
    pub bytes_sent: u64,
    /// Messages received.
    pub messages_received: u64,
    /// Bytes of these.
    pub bytes_received: u64,
    /// Messages sent with several packets.
    pub sent_multi: u64,
    /// The most packets that a message had.
    pub packets_per_message_max: u64,
    /// Nanoseconds from sending messages to their completion, all together.
    pub sending_ns: u64,
    /// Packets and messages dropped, sent and received.
    pub dropped: u64,
}

/// A LAN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LanReport {
    /// Its name.
    pub name: String,
    /// Bytes of its largest frame.
    pub frame_bytes: u32,
    /// Bytes of the largest packet of IP that goes without being segmented.
    pub mtu: u32,
    /// Where its members' IP addresses are.
    pub range: String,
    /// Its members, by number.
    pub members: Vec<MemberReport>,
}

/// A member of a LAN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MemberReport {
    /// Its number in the LAN.
    pub number: usize,
    /// The guest.
    pub guest: String,
    /// Its MAC address.
    pub mac: String,
    /// Its IP addresses.
    pub addresses: Vec<String>,
    /// The VLANs that it belongs to.
    pub vlans: Vec<u16>,
    /// Whether it captures: the others give it copies of the frames that they send.
    pub captures: bool,
    /// Set if it passes packets on: members of this LAN and those of others that it is in reach each other over it.
    #[serde(default)]
    pub routes: bool,
    /// The networks from which it passes packets on into this LAN. All if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes_from: Vec<String>,
    /// What it has counted since it joined, but for counters that stand at zero.
    pub counters: Counts,
    /// Its TCP/IP stack, if it shows one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<StackReport>,
}

/// A TCP/IP stack that is at lines alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GuestStackReport {
    /// The guest at its end of the first of the lines.
    pub guest: String,
    /// The stack.
    pub stack: StackReport,
}

/// A TCP/IP stack, as it says itself. It says so before it waits, and 20 times a second while it is at work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StackReport {
    /// When it said so, in nanoseconds of the machine's clock.
    pub shown_ns: u64,
    /// Bytes of its largest packet.
    pub mtu: u64,
    /// Its connections, but for those in TIME-WAIT.
    pub connections: u64,
    /// Pairs of ports in TIME-WAIT.
    pub time_wait: u64,
    /// The buffers of its connections.
    pub pool: PoolReport,
    /// What it has counted, but for counters that stand at zero.
    pub counters: Counts,
    /// Its connections and sockets, as far as it shows them one by one: 296 connections and 64 sockets.
    pub sockets: Vec<SocketReport>,
    /// Its interfaces, each once for each of its addresses.
    #[serde(default)]
    pub interfaces: Vec<InterfaceReport>,
    /// Its routes. Interfaces and routes together are 64 at most.
    #[serde(default)]
    pub routes: Vec<RouteReport>,
    /// Its name as a TCPIP machine, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Its clients, if it is a TCPIP machine's: 64 at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientReport>,
    /// The drivers of its LANs: 16 at most.
    #[serde(default)]
    pub drivers: Vec<StackDriverReport>,
}

/// The driver of a LAN of a stack, and what it has done while it had a processor of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StackDriverReport {
    /// The LAN.
    pub name: String,
    /// Its number in the stack, from 0 on.
    pub lan: u16,
    /// The processor of the driver. None: the driver runs inline, in the stack.
    pub processor: Option<u32>,
    /// Turns in which it has polled the device.
    pub polls: u64,
    /// Those that found nothing.
    pub polls_empty: u64,
    /// Frames received for the stack.
    pub frames_in: u64,
    /// Frames sent for it.
    pub frames_out: u64,
    /// Frames whose target was full when their turn came. They are sent later, or dropped if the target leaves.
    pub frames_waited: u64,
    /// Frames whose target had left.
    pub frames_dropped: u64,
    /// Sleeps.
    pub sleeps: u64,
    /// Processor time, in nanoseconds.
    pub processor_ns: u64,
    /// Devices that the stack has taken back from a driver that had stalled or ended.
    pub takeovers: u64,
    /// Changes of the placement that somebody has asked for.
    pub moves: u64,
}

impl From<DriverRow> for StackDriverReport {
    fn from(row: DriverRow) -> StackDriverReport {
        StackDriverReport {
            name: row.name.to_string(),
            lan: row.lan,
            processor: row.processor,
            polls: row.polls,
            polls_empty: row.polls_empty,
            frames_in: row.frames_in,
            frames_out: row.frames_out,
            frames_waited: row.frames_waited,
            frames_dropped: row.frames_dropped,
            sleeps: row.sleeps,
            processor_ns: row.processor_ns,
            takeovers: row.takeovers,
            moves: row.moves,
        }
    }
}

/// A client of a TCPIP machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClientReport {
    /// The guest.
    pub guest: String,
    /// Its sockets.
    pub sockets: u64,
    /// Sockets that it may have.
    pub sockets_max: u64,
    /// Bytes that its sockets may keep at the machine.
    pub buffers_bytes: u64,
    /// Bytes that they may at most.
    pub buffers_bytes_max: u64,
    /// Requests that were taken since it attached, data included.
    pub requests: u64,
    /// Bytes that came from it.
    pub bytes_in: u64,
    /// Bytes that went to it.
    pub bytes_out: u64,
    /// Sockets that were refused for a limit of its own.
    pub refused: u64,
    /// Times that it had used up its turn, and waited for its next one.
    pub turns_cut: u64,
}

impl From<ClientRow> for ClientReport {
    fn from(row: ClientRow) -> ClientReport {
        ClientReport {
            guest: row.guest.to_string(),
            sockets: row.sockets,
            sockets_max: row.sockets_max,
            buffers_bytes: row.buffers_bytes,
            buffers_bytes_max: row.buffers_bytes_max,
            requests: row.requests,
            bytes_in: row.bytes_in,
            bytes_out: row.bytes_out,
            refused: row.refused,
            turns_cut: row.turns_cut,
        }
    }
}

/// An address of an interface of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InterfaceReport {
    /// Which of the stack's LANs and lines it is at, from 0 on. The first LAN, or line if there is no LAN, is the one that shows the stack.
    pub lan: u16,
    /// The VLAN of that LAN, if it is one.
    pub vlan: Option<u16>,
    /// Bytes of its largest packet.
    pub mtu: u64,
    /// The address.
    pub address: IpAddr,
    /// Whether packets for others are passed on.
    pub forwards: bool,
}

/// A route of a stack, to what no member of its LANs has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RouteReport {
    /// The network, as `10.2.0.0/24`.
    pub to: String,
    /// The member over which packets go there.
    pub via: IpAddr,
    /// Whether it is there.
    pub is_there: bool,
}

/// The buffers of a stack's connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PoolReport {
    /// Bytes of a buffer.
    pub buffer_bytes: u64,
    /// Buffers that hold bytes of connections.
    pub in_use: u64,
    /// Buffers that may be in use.
    pub in_use_max: u64,
    /// The most that were in use at once.
    pub high_water: u64,
    /// Buffers that wait for their next bytes.
    pub free: u64,
}

/// A connection of a stack, or a socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SocketReport {
    /// The state of a connection (RFC 9293), `listen` or `udp`.
    pub state: String,
    /// Its address.
    pub local: SocketAddr,
    /// That of the other side.
    pub remote: Option<SocketAddr>,
    /// Bytes that were written and are not acknowledged; of a listener the connections that may wait.
    pub send_queue: u64,
    /// Bytes that have come and were not read; of a listener the connections that wait, of a socket of UDP the datagrams.
    pub receive_queue: u64,
    /// Segments with data that were sent again.
    pub resent: u64,
    /// Smoothed time until a segment is acknowledged, in nanoseconds; 0 if none was measured.
    pub round_trip_ns: u64,
}

impl StackReport {
    /// What a member's board shows of its stack; none if there is no stack.
    pub(crate) fn read(words: &LentWords) -> Option<StackReport> {
        let Shown { overview, counters, rows, machine, clients, ways, drivers } =
            board::read(words)?;
        let counted = counters.into_iter().filter(|(_, count)| *count > 0);
        let counters = counted.map(|(counter, count)| (counter.name().to_owned(), count));
        let socket = |row: Row| SocketReport {
            state: row.state.name().to_owned(),
            local: row.local,
            remote: row.remote,
            send_queue: row.send_queue,
            receive_queue: row.receive_queue,
            resent: row.resent,
            round_trip_ns: row.round_trip_ns,
        };
        let (mut interfaces, mut routes) = (Vec::new(), Vec::new());
        for way in ways {
            match way {
                Way::Interface { lan, vlan, mtu, address, forwards } => {
                    interfaces.push(InterfaceReport { lan, vlan, mtu, address, forwards });
                }
                Way::Route { network, bits, via, is_there } => {
                    routes.push(RouteReport { to: format!("{network}/{bits}"), via, is_there });
                }
            }
        }
        Some(StackReport {
            shown_ns: overview.shown_ns,
            mtu: overview.mtu,
            connections: overview.connections,
            time_wait: overview.time_wait,
            pool: PoolReport {
                buffer_bytes: overview.buffer_bytes,
                in_use: overview.in_use,
                in_use_max: overview.in_use_max,
                high_water: overview.high_water,
                free: overview.free,
            },
            counters: counters.collect(),
            sockets: rows.into_iter().map(socket).collect(),
            interfaces,
            routes,
            machine: machine.map(|name| name.to_string()),
            clients: clients.into_iter().map(ClientReport::from).collect(),
            drivers: drivers.into_iter().map(StackDriverReport::from).collect(),
        })
    }
}

/// A resource that a guest manages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ResourceReport {
    /// Its name.
    pub name: String,
    /// Where it is known.
    pub scope: ResourceScope,
    /// The guest that manages it.
    pub manager: String,
}

impl ResourceReport {
    /// The report of one resource.
    pub fn new(name: String, scope: ResourceScope, manager: String) -> ResourceReport {
        ResourceReport { name, scope, manager }
    }
}

/// Where a resource is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResourceScope {
    /// In this system.
    Local,
    /// In this system and those joined with it.
    Global,
}

/// As in the JSON of a report.
impl fmt::Display for ResourceScope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            ResourceScope::Local => "local",
            ResourceScope::Global => "global",
        })
    }
}

impl From<Scope> for ResourceScope {
    fn from(scope: Scope) -> ResourceScope {
        match scope {
            Scope::Local => ResourceScope::Local,
            Scope::Global => ResourceScope::Global,
        }
    }
}

/// A guest that is attached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GuestReport {
    /// Its name.
    pub name: String,
    /// Its process, as the host counts processes; `None` if it has no number there, because it is in a PID namespace that is
    /// not below the host's (a sibling container).
    pub process: Option<u32>,
    /// The user it runs as.
    pub user: u32,
    /// Its paths.
    pub paths: usize,
    /// How many it may have.
    pub paths_max: usize,
    /// Data storage that its paths may lend, in bytes.
    pub storage_bytes: u64,
    /// How much that may be at most.
    pub storage_bytes_max: u64,
}

/// A path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PathReport {
    /// Its number.
    pub path: u64,
    /// What it is for: `messages`, `IUCV`, `APPC`, `LAN`, `disk`.
    pub kind: String,
    /// Its state.
    pub state: PathState,
    /// Both sides: first the guest that asked for the path, then the guest that was asked. If only one has
    /// it, the other has no counters.
    pub sides: Vec<SideReport>,
}

/// The state of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PathState {
    /// It waits to be accepted.
    Pending,
    /// Both sides have it.
    Joined,
    /// Only one side has it: the other has not reported it to this host yet, or has ended it.
    #[serde(rename = "one-sided")]
    OneSided,
}

/// As in the JSON of a report.
impl fmt::Display for PathState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            PathState::Pending => "pending",
            PathState::Joined => "joined",
            PathState::OneSided => "one-sided",
        })
    }
}

/// A side of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SideReport {
    /// Whose side.
    pub guest: String,
    /// Counters of the halves that send, one for each output queue.
    pub outputs: Vec<HalfReport>,
    /// Counters of the halves that receive, one for each input queue.
    pub inputs: Vec<HalfReport>,
}

/// A half of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HalfReport {
    /// Whether its sleep word says that it sleeps.
    pub asleep: bool,
    /// How many messages it may have outstanding, if it sends messages of a conversation with a limit.
    #[serde(default)]
    pub limit: Option<u64>,
    /// Its counters.
    pub counts: Counts,
}

/// Every buffer of every queue of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AuditReport {
    /// The path.
    pub path: u64,
    /// Its queues.
    pub queues: Vec<QueueAudit>,
}

/// Every buffer of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct QueueAudit {
    /// Which of its writer's outputs it is.
    pub queue: usize,
    /// Who writes.
    pub writer: String,
    /// Who reads.
    pub reader: String,
    /// The buffers, in order.
    pub buffers: Vec<Buffer>,
}

/// A buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Buffer {
    /// The side that may use it now.
    pub owner: BufferOwner,
    /// The state that the side which handed it over last has given it.
    pub state: BufferState,
    /// How often the writer has handed it over.
    pub primed: u32,
    /// How often the reader has given it back.
    pub given_back: u32,
}

/// The side of a queue that may use a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BufferOwner {
    /// The writer, to fill it.
    Writer,
    /// The reader, to read it.
    Reader,
}

/// As in the JSON of a report.
impl fmt::Display for BufferOwner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            BufferOwner::Writer => "writer",
            BufferOwner::Reader => "reader",
        })
    }
}

impl BufferOwner {
    fn of(owner: Owner) -> BufferOwner {
        match owner {
            Owner::Writer => BufferOwner::Writer,
            Owner::Reader => BufferOwner::Reader,
        }
    }
}

/// The state of a buffer, as QDIO names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum BufferState {
    /// It was never used.
    #[serde(rename = "not initialised")]
    NotInitialised,
    /// It is free to be filled; its content has been read.
    Empty,
    /// It is filled.
    Primed,
    /// It is free to be filled; the storage that it pointed to is still being read.
    Pending,
    /// The queue ends with it.
    Halted,
}

/// As in the JSON of a report.
impl fmt::Display for BufferState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            BufferState::NotInitialised => State::NotInitialised.name(),
            BufferState::Empty => State::Empty.name(),
            BufferState::Primed => State::Primed.name(),
            BufferState::Pending => State::Pending.name(),
            BufferState::Halted => State::Halted.name(),
        })
    }
}

impl BufferState {
    fn of(state: State) -> BufferState {
        match state {
            State::NotInitialised => BufferState::NotInitialised,
            State::Empty => BufferState::Empty,
            State::Primed => BufferState::Primed,
            State::Pending => BufferState::Pending,
            State::Halted => BufferState::Halted,
        }
    }
}

/// The counters of all halves of a side.
pub(crate) fn side(guest: String, board: &LentWords, shape: Shape) -> SideReport {
    let half = |control: LentWords, counters: LentWords| {
        let load = |word| counters.load(word, Ordering::Relaxed);
        let counted = Counter::ALL.iter().map(|counter| (counter.name(), *counter as usize));
        let gauges = [("outstanding", gauge::OUTSTANDING), ("waiting", gauge::WAITING)];
        let shown = gauges.map(|(name, gauge)| (name, gauge_word(gauge)));
        let limit = load(gauge_word(gauge::LIMIT));
        HalfReport {
            asleep: control.load(SLEEP_WORD, Ordering::Relaxed) & 1 == 1,
            limit: (limit > 0).then_some(limit),
            counts: counted
                .chain(shown)
                .map(|(name, word)| (name.to_owned(), load(word)))
                .collect(),
        }
    };
    let outputs = (0..shape.outputs).map(|queue| {
        let block = writer_block(board, shape, queue);
        half(block.control, block.counters)
    });
    let inputs = (0..shape.inputs).map(|queue| {
        let block = reader_block(board, shape, queue);
        half(block.control, block.counters)
    });
    SideReport { guest, outputs: outputs.collect(), inputs: inputs.collect() }
}

/// The name of the line that a side serves over its path of IUCV, as a number; zero if it is none or has none.
pub(crate) fn line_name(board: &LentWords, shape: Shape) -> u64 {
    line_gauge(writer_block(board, shape, 0).counters)
}

/// What the driver of a line shows in its side of a path of IUCV.
pub(crate) fn driver(board: &LentWords, shape: Shape) -> DriverReport {
    let [plain, urgent] = [0, 1].map(|queue| writer_block(board, shape, queue).counters);
    let [from_plain, from_urgent] = [0, 1].map(|queue| reader_block(board, shape, queue).counters);
    let load = |words: &LentWords, counter| words.load(counter as usize, Ordering::Relaxed);
    let (sent_multi, packets_per_message_max) = links::gauge::parse_multi(line_gauge(urgent));
    DriverReport {
        messages_sent: load(&plain, Counter::Messages),
        bytes_sent: load(&plain, Counter::Bytes),
        messages_received: load(&from_plain, Counter::Messages),
        bytes_received: load(&from_plain, Counter::Bytes),
        sent_multi,
        packets_per_message_max,
        sending_ns: line_gauge(from_urgent),
        dropped: line_gauge(from_plain),
    }
}

/// The name of the line that an end shows in its path to the server of a line over an adapter, as a number; zero while the line is down.
pub(crate) fn adapter_line_name(board: &LentWords, shape: Shape) -> u64 {
    gauge(&writer_block(board, shape, 0).counters, links::gauge::adapter::NAME)
}

/// What the driver of a line shows in its side of a path to the server of a line over an adapter.
pub(crate) fn adapter_driver(board: &LentWords, shape: Shape) -> DriverReport {
    use links::gauge::adapter::{BYTES, DROPPED, MESSAGES, MULTI, SENDING_NS};
    let sent = writer_block(board, shape, 0).counters;
    let received = reader_block(board, shape, 0).counters;
    let (sent_multi, packets_per_message_max) = links::gauge::parse_multi(gauge(&sent, MULTI));
    DriverReport {
        messages_sent: gauge(&sent, MESSAGES),
        bytes_sent: gauge(&sent, BYTES),
        messages_received: gauge(&received, MESSAGES),
        bytes_received: gauge(&received, BYTES),
        sent_multi,
        packets_per_message_max,
        sending_ns: gauge(&received, SENDING_NS),
        dropped: gauge(&received, DROPPED),
    }
}

fn gauge(counters: &LentWords, number: usize) -> u64 {
    counters.load(gauge_word(number), Ordering::Relaxed)
}

fn line_gauge(counters: LentWords) -> u64 {
    gauge(&counters, links::gauge::GAUGE)
}

/// The queues that go from the side with board `writer` to that with board `reader`.
pub(crate) fn audit_queues(
    (writer_name, writer): (&str, &LentWords),
    (reader_name, reader): (&str, &LentWords),
    writer_shape: Shape,
) -> Vec<QueueAudit> {
    let queue = |queue| {
        let counters = writer_block(writer, writer_shape, queue).counters;
        let block = reader_block(reader, writer_shape.mirrored(), queue);
        let primed = counters.load(Counter::Buffers as usize, Ordering::Acquire);
        let returned = block.returns.load(RETURNED_WORD, Ordering::Acquire);
        let buffer = |index| {
            let kept = block.kept.load(index, Ordering::Acquire);
            let audit = audit(index, primed, returned.min(primed), kept);
            Buffer {
                owner: BufferOwner::of(audit.owner),
                state: BufferState::of(audit.state),
                primed: audit.primed,
                given_back: audit.returned,
            }
        };
        QueueAudit {
            queue,
            writer: writer_name.into(),
            reader: reader_name.into(),
            buffers: (0..QUEUE_BUFFERS).map(buffer).collect(),
        }
    };
    (0..writer_shape.outputs).map(queue).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The JSON of each value is its name, and is read back.
    fn is_its_name<T>(values: impl IntoIterator<Item = T>)
    where
        T: Serialize + for<'a> Deserialize<'a> + fmt::Display + fmt::Debug + PartialEq,
    {
        for value in values {
            let json = serde_json::to_string(&value).unwrap();
            assert_eq!(json, format!("\"{value}\""));
            assert_eq!(serde_json::from_str::<T>(&json).unwrap(), value);
        }
    }

    #[test]
    fn states_and_owners_have_the_names_that_json_has() {
        is_its_name(State::ALL.map(BufferState::of));
        is_its_name([BufferOwner::Writer, BufferOwner::Reader]);
        is_its_name([PathState::Pending, PathState::Joined, PathState::OneSided]);
        is_its_name([ResourceScope::Local, ResourceScope::Global]);
        is_its_name(VolumeState::ALL);
    }
}
