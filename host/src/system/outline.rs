//! A system, as `siga up --check` shows it: what a host of this file would allow and serve, with all defaults filled in.

use std::num::NonZeroU64;
use std::path::PathBuf;

use fabric::name::{LanName, Name};
use serde::Serialize;

use super::adapter::{AdapterRule, WireRule};
use super::distributed::{DistributedPart, DistributedRule, SpreadRule};
use super::interface::{InbperfRule, InterfaceRule, RouterRule};
use super::lan::LanRule;
use super::line::{self, LineKind, LineRule};
use super::machine::{MachineInterface, MachineRule, MachineWait};
use super::outside::OutsideRule;
use super::volume::{DeviceRule, VolumeRule, Volumes};
use super::{Pattern, Rule, System, UserRule};
use crate::report::VolumeSync;

/// A system as a host reads it from a system file, with defaults filled in.
#[derive(Clone, Debug, Serialize)]
pub struct Outline {
    /// Where guests attach. None for the usual place.
    pub socket: Option<PathBuf>,
    /// Permissions of that place, as octal digits.
    pub mode: String,
    /// Guests at once.
    pub guests_max: usize,
    /// Bytes of memory that the host may have to hold for all its users.
    pub memory_bytes_max: u64,
    /// Limits that the file sets for users, in its order.
    pub users: Vec<UserOutline>,
    /// Rights of guests, in the order of the file.
    pub guests: Vec<GuestOutline>,
    /// The LANs.
    pub lans: Vec<LanOutline>,
    /// The TCPIP machines.
    pub machines: Vec<MachineOutline>,
    /// The lines.
    pub lines: Vec<LineOutline>,
    /// The OSA adapters.
    pub adapters: Vec<AdapterOutline>,
    /// The guest that serves the volumes, if there are any.
    pub control_unit: Option<String>,
    /// Limits of this guest.
    pub control_unit_limits: Option<UnitOutline>,
    /// The volumes.
    pub volumes: Vec<VolumeOutline>,
}

/// Limits of a user. None is a share, and for what is counted in a second the default.
#[derive(Clone, Debug, Serialize)]
pub struct UserOutline {
    /// The number of the user, or `*` for all users without limits of their own.
    pub user: String,
    /// Guests at once.
    pub guests_max: Option<u64>,
    /// Descriptors that the host holds for it.
    pub descriptors_max: Option<u64>,
    /// Mappings that the host holds for it.
    pub mappings_max: Option<u64>,
    /// Bytes of memory that the host may have to hold for it.
    pub memory_bytes_max: Option<u64>,
    /// Connections that wait for one guest.
    pub pending_max: Option<u64>,
    /// Requests that the host reads in a second.
    pub requests_per_s: Option<u64>,
    /// Changes of address tables in a second.
    pub table_writes_per_s: Option<u64>,
}

/// Limits of the guest that serves the volumes.
#[derive(Clone, Debug, Serialize)]
pub struct UnitOutline {
    /// Bytes of storage that it may lend to all guests together.
    pub storage_bytes_max: u64,
    /// Devices that one guest has open. None is a share.
    pub guest_opens_max: Option<u64>,
    /// Bytes of storage that the opens of one guest take. None is a share.
    pub guest_storage_bytes_max: Option<u64>,
}

/// Rights of a guest.
#[derive(Clone, Debug, Serialize)]
pub struct GuestOutline {
    /// Its name, or the beginning of names and `*`.
    pub name: String,
    /// Numbers of the users that may attach as this guest.
    pub users: Vec<u32>,
    /// Numbers of the groups whose members may.
    pub groups: Vec<u32>,
    /// Guests that it may connect to.
    pub connect: Vec<String>,
    /// Resources that it may manage.
    pub manage: Vec<String>,
    /// Guests of this rule at once. None is no limit.
    pub guests_max: Option<u64>,
    /// Paths at once.
    pub paths_max: usize,
    /// Messages that may wait.
    pub messages_max: u32,
    /// Bytes of data storage that all its paths together may lend.
    pub storage_bytes_max: u64,
}

/// A LAN.
#[derive(Clone, Debug, Serialize)]
pub struct LanOutline {
    /// Its name.
    pub name: String,
    /// Where addresses of members are.
    pub range: String,
    /// Bytes of the largest frame.
    pub frame_bytes: u32,
    /// Guests that may join.
    pub members: Vec<String>,
    /// Guests that may capture.
    pub capture: Vec<String>,
    /// Guests that may pass packets on.
    pub routers: Vec<String>,
    /// The gateway to other networks, if there is one.
    pub outside: Option<OutsideOutline>,
    /// Addresses that the file gives guests.
    pub fixed: Vec<FixedOutline>,
}

/// An OSA adapter.
#[derive(Clone, Debug, Serialize)]
pub struct AdapterOutline {
    /// Its name.
    pub name: String,
    /// The guest that serves it.
    pub server: String,
    /// What its port is connected to: `macvtap`, `xdp`, `tap` or `memory`.
    pub wire: String,
    /// The network interface. None for a wire in memory.
    pub interface: Option<String>,
    /// The wire in memory, if it is one.
    pub memory: Option<MemoryOutline>,
    /// The MAC address of the port. None for one that siga chooses.
    pub mac: Option<String>,
    /// How it waits.
    pub wait: MachineWait,
    /// Its processor. None for any.
    pub cpu: Option<usize>,
    /// Microseconds from the first packet in a buffer until the guest has the buffer, at most.
    pub hold_off_us: u64,
    /// Microseconds without a packet after which the guest has the buffer.
    pub gap_us: u64,
    /// The same where packets are longer than 1500 bytes.
    pub gap_jumbo_us: u64,
    /// Buffers of each queue of a device.
    pub buffers: usize,
    /// Guests that may have devices.
    pub guests: Vec<String>,
    /// Guests that may capture what passes the port.
    pub capture: Vec<String>,
    /// The LAN that is bridged to the port.
    pub lan: Option<String>,
}

/// A wire in memory, from one end.
#[derive(Clone, Debug, Serialize)]
pub struct MemoryOutline {
    /// The adapter at the other end.
    pub to: String,
    /// Bytes of the longest packet.
    pub mtu: usize,
    /// Bits a second. None for no limit.
    pub bits_per_s: Option<u64>,
    /// Microseconds from the end of a frame's transmission to its arrival.
    pub delay_us: u64,
    /// The share of frames that are lost.
    pub loss: f64,
}

/// A line.
#[derive(Clone, Debug, Serialize)]
pub struct LineOutline {
    /// Its name.
    pub name: String,
    /// What carries its packets: `iucv` or `ctc`.
    pub kind: String,
    /// Bytes of its longest packet.
    pub mtu: usize,
    /// The guests at its ends.
    pub guests: Vec<String>,
    /// Their addresses, in the same order.
    pub addresses: Vec<String>,
}

/// The gateway of a LAN.
#[derive(Clone, Debug, Serialize)]
pub struct OutsideOutline {
    /// The guest that is the gateway.
    pub gateway: String,
    /// Its addresses.
    pub addresses: Vec<String>,
    /// Guests that may use it. None for all.
    pub guests: Option<Vec<String>>,
    /// Networks that may be reached. All but this machine if there are none.
    pub to: Vec<String>,
    /// Networks that may not be reached.
    pub refused: Vec<String>,
}

/// A member's fixed addresses and VLANs.
#[derive(Clone, Debug, Serialize)]
pub struct FixedOutline {
    /// The guest.
    pub guest: String,
    /// Its MAC address. None if the host chooses one.
    pub mac: Option<String>,
    /// The addresses that it may have. Any that is free if there are none.
    pub addresses: Vec<String>,
    /// The VLANs that it belongs to.
    pub vlans: Vec<u16>,
    /// Networks from which it may pass packets on. All if there are none.
    pub routes_from: Vec<String>,
}

/// A TCPIP machine.
#[derive(Clone, Debug, Serialize)]
pub struct MachineOutline {
    /// The guest that serves.
    pub name: String,
    /// Guests that it serves.
    pub clients: Vec<String>,
    /// Sockets that a client may have, unless it has limits of its own.
    pub sockets_max: u64,
    /// Bytes that the sockets of a client may keep at the machine.
    pub buffers_bytes_max: u64,
    /// Bytes that a connection keeps each way.
    pub connection_bytes: u64,
    /// How it waits.
    pub wait: MachineWait,
    /// Its processor. None for any.
    pub cpu: Option<usize>,
    /// Whether clients that talk with each other get a path of their own.
    pub introduce: bool,
    /// LANs that it is at.
    pub interfaces: Vec<InterfaceOutline>,
    /// Lines that it is at.
    pub lines: Vec<MachineLineOutline>,
    /// OSA adapters that it is at.
    pub osa: Vec<MachineDeviceOutline>,
    /// Addresses whose connections it spreads over other machines.
    pub dvipa: Vec<DistributedOutline>,
    /// Networks that it reaches over others: the network, and the address.
    pub routes: Vec<(String, String)>,
    /// Clients with limits of their own.
    pub limits: Vec<ClientOutline>,
}

/// An address whose connections a TCPIP machine spreads over others.
#[derive(Clone, Debug, Serialize)]
pub struct DistributedOutline {
    /// The address.
    pub address: String,
    /// The LAN at which it is.
    pub lan: String,
    /// The machines over which connections are spread.
    pub targets: Vec<String>,
    /// The machines that take the address over, in this order.
    pub backup: Vec<String>,
    /// How connections are spread.
    pub spread: SpreadRule,
    /// Connections that the distributor keeps note of, at most.
    pub connections_max: u64,
}

/// A LAN that a TCPIP machine is at.
#[derive(Clone, Debug, Serialize)]
pub struct InterfaceOutline {
    /// The LAN.
    pub lan: String,
    /// The guest that is the member.
    pub member: String,
    /// Its addresses. Any that are free if there are none.
    pub addresses: Vec<String>,
    /// Bytes of the longest packet. None for what the LAN takes.
    pub mtu: Option<u32>,
    /// The processor of its driver. None for inline.
    pub cpu: Option<usize>,
}

/// A line that a TCPIP machine is at.
#[derive(Clone, Debug, Serialize)]
pub struct MachineLineOutline {
    /// The line.
    pub line: String,
    /// The guest at its end.
    pub guest: String,
}

/// An OSA adapter that a TCPIP machine is at.
#[derive(Clone, Debug, Serialize)]
pub struct MachineDeviceOutline {
    /// The adapter.
    pub adapter: String,
    /// The guest that has the device.
    pub member: String,
    /// Its address, and the bits that this has in common with its network.
    pub address: String,
    /// The address over which all networks are reached that no route is for.
    pub gateway: Option<String>,
    /// Its part in packets to addresses that nobody has. None for none.
    pub router: Option<RouterRule>,
    /// The VLAN that it belongs to.
    pub vlan: Option<u16>,
    /// How packets are to come.
    pub inbperf: InbperfRule,
    /// Whether workloads come by input queues of their own.
    pub workloadq: bool,
    /// The processor of its driver. None for inline.
    pub cpu: Option<usize>,
}

/// Limits of a client of a TCPIP machine.
#[derive(Clone, Debug, Serialize)]
pub struct ClientOutline {
    /// The guest, or the beginning of names and `*`.
    pub guest: String,
    /// Sockets at once.
    pub sockets_max: u64,
    /// Bytes that its sockets may keep at the machine.
    pub buffers_bytes_max: u64,
    /// Its share of the machine's time.
    pub share: u32,
}

/// A volume.
#[derive(Clone, Debug, Serialize)]
pub struct VolumeOutline {
    /// Its file, or the first of several.
    pub file: PathBuf,
    /// Nobody writes.
    pub read_only: bool,
    /// Bytes of its cache at most.
    pub cache_bytes: u64,
    /// Its tracks are read past the kernel's page cache.
    pub direct: bool,
    /// When a write is acknowledged.
    pub sync: VolumeSync,
    /// Every track is read before the volume is served.
    pub check: bool,
    /// Devices on the volume: the guests, and their cylinders.
    pub devices: Vec<DeviceOutline>,
}

/// A device of a guest.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceOutline {
    /// The guest.
    pub guest: String,
    /// The device's name at the guest.
    pub device: String,
    /// The guest has the whole volume for itself.
    pub dedicated: bool,
    /// Its first cylinder.
    pub first_cylinder: u32,
    /// How many there are. None if all from the first on.
    pub cylinders: Option<u32>,
    /// The guest only reads.
    pub read_only: bool,
    /// Its tracks stay in memory.
    pub cache: bool,
}

impl System {
    /// Returns the system as a host reads it, with defaults filled in.
    pub fn outline(&self) -> Outline {
        let volumes = self.volumes.as_ref();
        // The rules of the control unit and of the servers of lines and adapters are not in the file.
        let unit = volumes.map(|volumes: &Volumes| volumes.control_unit);
        let is_ctc = self.lines.iter().any(|line| line.kind == LineKind::Ctc);
        let server = is_ctc.then(line::server);
        let adapters = self.adapters.iter().flat_map(AdapterRule::own_guests);
        let own: Vec<Name> = unit.into_iter().chain(server).chain(adapters).collect();
        let is_own = |rule: &Rule| own.iter().any(|own| rule.is_named(*own));
        let guests = self.rules.iter().filter(|rule| !is_own(rule));
        let limits = volumes.map(Volumes::outline);
        let volumes = volumes.iter().flat_map(|volumes| &volumes.volumes);
        Outline {
            socket: self.socket.clone(),
            mode: format!("{:04o}", self.mode),
            guests_max: self.guests_max,
            memory_bytes_max: self.memory_max,
            users: self.users.iter().map(UserRule::outline).collect(),
            guests: guests.map(Rule::outline).collect(),
            lans: self.lans.iter().map(LanRule::outline).collect(),
            machines: self.machines.iter().map(MachineRule::outline).collect(),
            lines: self.lines.iter().map(LineRule::outline).collect(),
            adapters: self.adapters.iter().map(AdapterRule::outline).collect(),
            control_unit: unit.map(|unit| unit.to_string()),
            control_unit_limits: limits,
            volumes: volumes.map(VolumeRule::outline).collect(),
        }
    }
}

fn texts(patterns: &[Pattern]) -> Vec<String> {
    patterns.iter().map(ToString::to_string).collect()
}

impl UserRule {
    fn outline(&self) -> UserOutline {
        UserOutline {
            user: self.user.map_or("*".to_owned(), |user| user.to_string()),
            guests_max: self.guests_max,
            descriptors_max: self.descriptors_max,
            mappings_max: self.mappings_max,
            memory_bytes_max: self.memory_max,
            pending_max: self.pending_max,
            requests_per_s: self.requests_per_s,
            table_writes_per_s: self.table_writes_per_s,
        }
    }
}

impl Volumes {
    fn outline(&self) -> UnitOutline {
        UnitOutline {
            storage_bytes_max: self.storage_bytes_max,
            guest_opens_max: self.guest_opens_max,
            guest_storage_bytes_max: self.guest_storage_bytes_max,
        }
    }
}

impl Rule {
    fn outline(&self) -> GuestOutline {
        GuestOutline {
            name: self.name.to_string(),
            users: self.users.clone(),
            groups: self.groups.clone(),
            connect: texts(&self.connect),
            manage: texts(&self.manage),
            guests_max: Some(self.guests_max).filter(|most| *most < u64::MAX),
            paths_max: self.paths_max,
            messages_max: self.messages_max,
            storage_bytes_max: self.storage_bytes_max,
        }
    }
}

impl LineRule {
    fn outline(&self) -> LineOutline {
        LineOutline {
            name: self.name.to_string(),
            kind: self.kind.to_string(),
            mtu: self.mtu,
            guests: self.ends.iter().map(|end| end.guest.to_string()).collect(),
            addresses: self.ends.iter().map(|end| end.address.to_string()).collect(),
        }
    }
}

impl AdapterRule {
    fn outline(&self) -> AdapterOutline {
        let memory = match &self.wire {
            WireRule::Memory(wire) => Some(MemoryOutline {
                to: wire.to.to_string(),
                mtu: wire.mtu,
                bits_per_s: wire.rate.map(NonZeroU64::get),
                delay_us: wire.delay.as_micros() as u64,
                loss: wire.loss,
            }),
            _ => None,
        };
        AdapterOutline {
            name: self.name.to_string(),
            server: self.server.to_string(),
            wire: self.wire.kind().to_owned(),
            interface: self.wire.interface().map(str::to_owned),
            memory,
            mac: self.mac.map(|mac| mac.to_string()),
            wait: self.wait,
            cpu: self.processor,
            hold_off_us: self.moderation.hold_off_ns / 1000,
            gap_us: self.moderation.gap_ns / 1000,
            gap_jumbo_us: self.moderation.gap_jumbo_ns / 1000,
            buffers: self.buffers,
            guests: self.guests(),
            capture: self.capturers(),
            lan: self.bridge.map(|bridge| bridge.lan.to_string()),
        }
    }
}

impl LanRule {
    fn outline(&self) -> LanOutline {
        let fixed = self.fixed.iter().map(|member| FixedOutline {
            guest: member.guest.to_string(),
            mac: member.mac.map(|mac| mac.to_string()),
            addresses: member.addresses.iter().map(ToString::to_string).collect(),
            vlans: member.vlans.clone(),
            routes_from: member.routes_from.iter().map(ToString::to_string).collect(),
        });
        LanOutline {
            name: self.name.to_string(),
            range: self.ranges_text(),
            frame_bytes: self.frame_bytes,
            members: texts(&self.members),
            capture: texts(&self.capture),
            routers: texts(&self.routers),
            outside: self.outside.as_ref().map(OutsideRule::outline),
            fixed: fixed.collect(),
        }
    }
}

impl OutsideRule {
    fn outline(&self) -> OutsideOutline {
        let networks =
            |networks: &[ipnet::IpNet]| networks.iter().map(ToString::to_string).collect();
        OutsideOutline {
            gateway: self.gateway.to_string(),
            addresses: self.addresses.iter().map(ToString::to_string).collect(),
            guests: self.guests(),
            to: networks(&self.to),
            refused: networks(&self.refused),
        }
    }
}

impl MachineRule {
    fn outline(&self) -> MachineOutline {
        let interface = |interface: &MachineInterface| InterfaceOutline {
            lan: interface.lan.to_string(),
            member: interface.member.to_string(),
            addresses: interface.addresses.iter().map(ToString::to_string).collect(),
            mtu: interface.mtu,
            cpu: interface.processor,
        };
        let line = |(guest, line): &(Name, LanName)| MachineLineOutline {
            line: line.to_string(),
            guest: guest.to_string(),
        };
        let device = |device: &InterfaceRule| MachineDeviceOutline {
            adapter: device.adapter.to_string(),
            member: device.member.to_string(),
            address: device.address.to_string(),
            gateway: device.gateway.map(|gateway| gateway.to_string()),
            router: device.router,
            vlan: device.vlan,
            inbperf: device.inbperf,
            workloadq: device.workloadq,
            cpu: device.processor,
        };
        let names = |parts: &[DistributedPart]| {
            parts.iter().map(|part| part.machine.to_string()).collect::<Vec<String>>()
        };
        let is_own = |rule: &&DistributedRule| {
            rule.distributors.first().map(|first| first.machine) == Some(self.name)
        };
        let dvipa = self.distributed.iter().filter(is_own).map(|rule| DistributedOutline {
            address: rule.address.to_string(),
            lan: rule.lan.to_string(),
            targets: names(&rule.targets),
            backup: names(&rule.distributors[1..]),
            spread: rule.spread,
            connections_max: rule.connections_max,
        });
        let limits = self.of_clients.iter().map(|(guest, limits)| ClientOutline {
            guest: guest.to_string(),
            sockets_max: limits.sockets_max,
            buffers_bytes_max: limits.buffers_bytes_max,
            share: limits.share,
        });
        let routes = self.routes.iter().map(|(to, via)| (to.to_string(), via.to_string()));
        MachineOutline {
            name: self.name.to_string(),
            clients: texts(&self.clients),
            sockets_max: self.limits.sockets_max,
            buffers_bytes_max: self.limits.buffers_bytes_max,
            connection_bytes: self.connection_bytes,
            wait: self.wait,
            cpu: self.processor,
            introduce: self.introduce,
            interfaces: self.interfaces.iter().map(interface).collect(),
            lines: self.lines.iter().map(line).collect(),
            osa: self.osa.iter().map(device).collect(),
            dvipa: dvipa.collect(),
            routes: routes.collect(),
            limits: limits.collect(),
        }
    }
}

impl VolumeRule {
    fn outline(&self) -> VolumeOutline {
        let device = |rule: &DeviceRule| DeviceOutline {
            guest: rule.guest.to_string(),
            device: rule.device.to_string(),
            dedicated: rule.dedicated,
            first_cylinder: rule.first_cylinder,
            cylinders: rule.cylinders,
            read_only: rule.read_only,
            cache: rule.cached,
        };
        VolumeOutline {
            file: self.file.clone(),
            read_only: self.read_only,
            cache_bytes: self.cache_bytes,
            direct: self.direct,
            sync: self.syncing.into(),
            check: self.check,
            devices: self.devices.iter().map(device).collect(),
        }
    }
}
