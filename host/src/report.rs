//! What a host reports to observers: guests, paths, counters, and each buffer of a path.
//!
//! The host reads states and counters from the boards of guests, without their help and while they run.

mod adapter;
mod control_unit;
mod line;
mod path;
mod stack;

use std::collections::BTreeMap;
use std::fmt;

use fabric::control::Scope;
use serde::{Deserialize, Serialize};

pub use self::adapter::{
    AdapterReport, DataDeviceReport, DataQueueReport, QueueEventReport, StoppedDeviceReport,
};
pub(crate) use self::adapter::{Side, device, ended};
pub use self::control_unit::{
    ChannelPathReport, ControlUnitReport, ControlUnitUserReport, DamagedTrackReport, DeviceReport,
    SubchannelReport, VolumeReading, VolumeReport, VolumeState, VolumeSync, VolumeWriting,
};
pub use self::line::{DriverReport, LineEndReport, LineReport, LineState};
pub(crate) use self::line::{adapter_driver, adapter_line_name, driver, line_name};
pub use self::path::{
    AuditReport, Buffer, BufferOwner, BufferState, HalfReport, PathReport, PathState, QueueAudit,
    SideReport,
};
pub(crate) use self::path::{audit_queues, side};
pub use self::stack::{
    ClientReport, DistributedReport, GuestStackReport, InterfaceReport, PoolReport, RouteReport,
    SocketReport, StackDriverReport, StackReport, TargetReport,
};

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
    /// The stacks that are at lines and adapters alone, by the guests that show them. A stack at a LAN is shown by its member.
    #[serde(default)]
    pub stacks: Vec<GuestStackReport>,
    /// The lines that the system file describes, in its order.
    #[serde(default)]
    pub lines: Vec<LineReport>,
    /// The adapters of the system file, those that show themselves, and those that guests have devices on, by the guests that serve them.
    #[serde(default)]
    pub adapters: Vec<AdapterReport>,
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

#[cfg(test)]
mod tests {
    use fabric::queue::State;

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
