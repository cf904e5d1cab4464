//! The control protocol between guests and the host.
//!
//! Each packet of a local seqpacket socket is one message, with its descriptors:
//!
//! ```text
//! offset  0  "SIGA"
//!         4  version u16
//!         6  kind u16
//!         8  serial u32: chosen by the guest, repeated in the answer; 0 in what is no answer
//!        12  body
//! ```
//!
//! Numbers are little-endian, names are eight characters filled up with blanks. `docs/protocol.md` describes
//! each kind, and which party may send it when. The host answers a version it does not speak with
//! [`Problem::Version`], in a packet of that version, and ends the connection.

mod limit;
mod packet;

use std::net::IpAddr;

use crate::name::{LanName, Name};
use crate::path::Shape;

pub use crate::path::{NO_DATA, USER_DATA_BYTES, UserData};
pub use limit::{Limit, Owner, Reached, RuleName, setting};
pub use packet::{Malformed, PACKET_BYTES_MAX};

use packet::{Field, fields, messages};

/// Version of this protocol.
pub const VERSION: u16 = 5;

/// Connections that a guest may leave unanswered. A host refuses more.
pub const PENDING_MAX: usize = 64;

/// Orders of observers that a machine may leave unanswered. A host refuses more.
pub const ORDERS_MAX: usize = 16;

/// A number that only the two parties of a path and the host that made it know. With it the parties
/// have the path accounted again after the host has died.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub [u8; 16]);

impl std::fmt::Debug for Token {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A secret is not for logs.
        formatter.write_str("Token")
    }
}

/// What kind of conversation a path is for. The host passes it on and shows it; only the two parties
/// need to know what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kind(pub u16);

impl Kind {
    /// Messages as the path itself has them.
    pub const MESSAGES: Kind = Kind(0);
    /// IUCV.
    pub const IUCV: Kind = Kind(1);
    /// APPC/VM.
    pub const APPC: Kind = Kind(2);
    /// Frames between two members of a LAN.
    pub const LAN: Kind = Kind(3);
    /// Channel programs of a guest, and what becomes of them.
    pub const DISK: Kind = Kind(4);
    /// Sockets of a guest at a TCPIP machine.
    pub const TCPIP: Kind = Kind(5);
    /// Channel programs of a guest, for a channel-to-channel line.
    pub const CTC: Kind = Kind(6);
    /// Connections between two guests that a TCPIP machine has introduced to each other.
    pub const INTRODUCED: Kind = Kind(7);
    /// A data device of a guest at a network adapter.
    pub const OSA: Kind = Kind(8);
    /// Copies of the frames that pass the port of an adapter, for a guest that may capture there.
    pub const CAPTURE: Kind = Kind(9);

    /// How many doorbells a path of this kind has: one for each queue, or two for all queues of a
    /// conversation, which one thread serves.
    pub fn doorbells(self, shape: Shape) -> usize {
        match self {
            Kind::IUCV
            | Kind::APPC
            | Kind::LAN
            | Kind::TCPIP
            | Kind::INTRODUCED
            | Kind::OSA
            | Kind::CAPTURE => 2,
            _ => shape.outputs + shape.inputs,
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Kind::MESSAGES => formatter.write_str("messages"),
            Kind::IUCV => formatter.write_str("IUCV"),
            Kind::APPC => formatter.write_str("APPC"),
            Kind::LAN => formatter.write_str("LAN"),
            Kind::DISK => formatter.write_str("disk"),
            Kind::TCPIP => formatter.write_str("TCPIP"),
            Kind::CTC => formatter.write_str("CTC"),
            Kind::INTRODUCED => formatter.write_str("introduced"),
            Kind::OSA => formatter.write_str("OSA"),
            Kind::CAPTURE => formatter.write_str("capture"),
            Kind(other) => write!(formatter, "kind {other}"),
        }
    }
}

/// To whom a path is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To the guest of this name.
    Guest(Name),
    /// To whoever manages this resource: the local one of this name, or else the global one.
    Resource(Name),
}

/// How far a resource is known. Both kinds have names of their own; the local one is found first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// In this system.
    Local,
    /// In this system and those joined with it.
    Global,
}

/// What one party of a path asks for, or is granted, of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Bytes of data storage that it may lend.
    pub storage_bytes: u64,
    /// Messages that it may have waiting: the large ones, or those of any length, as the kind of the
    /// conversation has it.
    pub messages: u32,
}

messages! {
    /// What a guest sends to the host. Descriptors in brackets.
    Request:
    /// I am this guest. First message of a connection.
    1 Attach {
        /// Under this name.
        name: Name,
    },
    /// I only want to observe. First message of a connection.
    2 Observe,
    /// Make a path. [our board, our lines]
    3 Connect {
        /// The other party.
        target: Target,
        /// What it is for.
        kind: Kind,
        /// For the other party, as the kind has them.
        flags: u16,
        /// For the other party.
        data: UserData,
        /// Queues, as the asking side has them.
        shape: Shape,
        /// Asked for.
        allowance: Allowance,
    },
    /// I do not want to wait for this connection any longer.
    4 Cancel {
        /// The serial of its [`Request::Connect`].
        connect: u32,
    },
    /// I take this pending connection. [our board, our lines]
    5 Accept {
        /// Which.
        path: u64,
        /// For the other party, as the kind has them.
        flags: u16,
        /// For the other party.
        data: UserData,
        /// Asked for.
        allowance: Allowance,
    },
    /// I do not take this pending connection.
    6 Refuse {
        /// Which.
        path: u64,
        /// For the other party.
        data: UserData,
    },
    /// A path of mine has ended: no longer account it.
    7 Ended {
        /// Which.
        path: u64,
    },
    /// I have a path that another host made: account it. [our board]
    8 Rejoin {
        /// What only its parties know.
        token: Token,
        /// The other party.
        peer: Name,
        /// What it is for.
        kind: Kind,
        /// Queues, as this side has them.
        shape: Shape,
        /// Granted by that host.
        allowance: Allowance,
    },
    /// I manage a resource: connections to it are for me.
    11 Identify {
        /// Its name.
        resource: Name,
        /// How far it is known.
        scope: Scope,
    },
    /// I do not manage a resource any longer.
    12 Revoke {
        /// Its name.
        resource: Name,
        /// How far it is known.
        scope: Scope,
    },
    /// I join this LAN; a guest is a member of one at most. [our counters]
    13 JoinLan {
        /// Which.
        lan: LanName,
        /// The MAC address that it wants, as a member that comes back does; zeros for any.
        mac: [u8; 6],
        /// The IP address that it wants.
        address: WantedAddress,
        /// Whether it captures, and is no receiver of frames of its own. It has no IP address then.
        captures: bool,
        /// Set if the member passes packets on, and so sends from IP addresses that are not its own.
        routes: bool,
    },
    /// I leave the LAN.
    14 LeaveLan,
    /// This IP address is mine too.
    15 Register {
        /// Which.
        address: IpAddr,
    },
    /// This IP address is mine no longer.
    16 Unregister {
        /// Which.
        address: IpAddr,
    },
    /// I serve volumes: this is what I show of them. [our report]
    17 ShowVolumes,
    /// My stack is at lines alone: this is what it shows of itself. [our board]
    21 ShowStack,
    /// I serve an adapter: this is what I show of it. [our report]
    22 ShowAdapter,
    /// I am a TCPIP machine, and take orders.
    18 TakeOrders,
    /// I have carried out an order, or have not.
    19 OrderDone {
        /// Which.
        order: u64,
        /// What came of it.
        placed: Placed,
    },
    /// Have a TCPIP machine run the driver of a LAN there. From observers.
    20 PlaceDriver {
        /// The machine.
        machine: Name,
        /// The LAN.
        lan: LanName,
        /// The processor. None: inline, in the machine's stack.
        processor: Option<u32>,
    },
    /// Report guests and paths.
    9 Query,
    /// Report each buffer of a path.
    10 Audit {
        /// Which.
        path: u64,
    },
}

messages! {
    /// What the host sends to a guest.
    Reply:
    /// To [`Request::Attach`] and [`Request::Observe`].
    101 Attached,
    /// To any request: it was not done, and why.
    102 Failed {
        /// Why.
        problem: Problem,
        /// Of the other party, if it refused.
        data: UserData,
    },
    /// To [`Request::Connect`] and [`Request::Accept`]: the path is there.
    /// [the peer's board, its lines, our ends of as many doorbells as [`Kind::doorbells`] says]
    103 Joined(joined: Joined),
    /// To [`Request::Rejoin`], [`Request::Refuse`], [`Request::Cancel`], [`Request::Identify`],
    /// [`Request::Revoke`], [`Request::LeaveLan`], [`Request::Register`], [`Request::Unregister`],
    /// [`Request::ShowVolumes`], [`Request::ShowStack`], [`Request::ShowAdapter`], [`Request::TakeOrders`].
    104 Done {
        /// The number of the path here, for [`Request::Rejoin`].
        path: u64,
    },
    /// No answer: a guest wants a path to this one.
    105 Pending(pending: Pending),
    /// No answer: a pending connection is not wanted any more.
    106 Withdrawn {
        /// Which.
        path: u64,
    },
    /// To [`Request::Query`] and [`Request::Audit`]: a report, which is JSON. [the storage it is in]
    107 Report {
        /// How long it is.
        bytes: u64,
    },
    /// To [`Request::JoinLan`]. [the LAN's address table]
    108 LanJoined(joined: LanJoined),
    /// No answer: an observer orders this machine to run the driver of a LAN there.
    109 Order(order: Order),
    /// To [`Request::PlaceDriver`]: where the driver runs now.
    110 DriverPlaced {
        /// The processor. None: inline. That is so, too, if the machine cannot use the processor that was asked for.
        processor: Option<u32>,
    },
}

/// What an observer has ordered a TCPIP machine to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Its number at this host.
    pub order: u64,
    /// The LAN whose driver is meant.
    pub lan: LanName,
    /// The processor that the driver is to have. None: inline.
    pub processor: Option<u32>,
}

fields!(Order { order, lan, processor });

/// What came of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// The driver runs on this processor now, or inline.
    At(Option<u32>),
    /// The machine is at no LAN of this name. Nothing has changed.
    NoLan,
    /// The machine lacks descriptors, memory or threads. Nothing has changed.
    Lacking,
    /// Nothing of the machine runs on that processor, or the driver that is to leave does not run on its own: others have them. The driver is where
    /// it was, or inline in a moment.
    NotRun,
}

/// The IP address that a new member of a LAN wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WantedAddress {
    /// None, but for those that the system file fixes.
    #[default]
    None,
    /// One of each range of the LAN, which the host chooses.
    Chosen,
    /// This one.
    This(IpAddr),
}

/// A guest has become a member of a LAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LanJoined {
    /// Its number there.
    pub number: u16,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Bytes of the LAN's largest frame.
    pub frame_bytes: u32,
    /// Its first IP address, if it has one. The address table has all of them.
    pub address: Option<IpAddr>,
    /// How many leading bits the addresses of IPv4 in this LAN have in common.
    pub ipv4_prefix_bits: u8,
    /// How many leading bits the addresses of IPv6 in this LAN have in common.
    pub ipv6_prefix_bits: u8,
}

fields!(LanJoined { number, mac, frame_bytes, address, ipv4_prefix_bits, ipv6_prefix_bits });

/// A path that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Its number at this host.
    pub path: u64,
    /// What only its parties know.
    pub token: Token,
    /// The other party.
    pub peer: Name,
    /// From the other party, as the kind has them.
    pub flags: u16,
    /// From the other party.
    pub data: UserData,
    /// Queues, as this side has them.
    pub shape: Shape,
    /// What we may lend.
    pub ours: Allowance,
    /// What the other party may lend.
    pub theirs: Allowance,
}

fields!(Joined { path, token, peer, flags, data, shape, ours, theirs });

/// A connection that waits to be accepted or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its number.
    pub path: u64,
    /// Who asks.
    pub from: Name,
    /// For which resource of this guest; none if for the guest itself.
    pub resource: Option<Name>,
    /// What it is for.
    pub kind: Kind,
    /// From the other party, as the kind has them.
    pub flags: u16,
    /// From the other party.
    pub data: UserData,
    /// Queues, as this side would have them.
    pub shape: Shape,
}

fields!(Pending { path, from, resource, kind, flags, data, shape });

/// The refusal for a peer that speaks version `found`, in a packet of that version: the header and
/// [`Reply::Failed`] are the same in all.
pub fn version_refused(found: u16, serial: u32) -> Vec<u8> {
    let failed = Reply::Failed { problem: Problem::Version, data: NO_DATA };
    let mut packet = failed.bytes(serial);
    packet[4..6].copy_from_slice(&found.to_le_bytes());
    packet
}

/// The reason for which a request was refused. The numbers in brackets are those of IUCV's CONNECT, where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// Another version of the protocol, or of the layout of boards.
    #[error(
        "the host and this program are of different versions of siga: both must be of one version"
    )]
    Version,
    /// The message makes no sense, or not here and now.
    #[error("the host does not understand this request here")]
    Request,
    /// Somebody is attached under this name.
    #[error("a guest is attached under this name already")]
    NameTaken,
    /// The system file does not let this user be this guest.
    #[error("this user may not attach under this name")]
    NotPermitted,
    /// (11) No such guest is attached.
    #[error("the target is not attached")]
    NotAttached,
    /// (12) The guest has as many unanswered connections as it may.
    #[error("the target does not answer the connections it has pending")]
    NotAnswering,
    /// (13) This guest has as many paths as it may.
    #[error("this guest has as many paths as it may (paths_max in the system file)")]
    OwnPathLimit,
    /// (14) The other guest has as many paths as it may.
    #[error("the target has as many paths as it may (paths_max in the system file)")]
    TargetPathLimit,
    /// (15) The system file does not let this guest connect to that one.
    #[error("this guest may not connect to the target")]
    NotAuthorised,
    /// The guest has lent as much storage as it may.
    #[error(
        "the paths of a guest would lend more storage than it may (storage_max in the system file)"
    )]
    StorageLimit,
    /// The other guest does not want the path.
    #[error("the target refused the path")]
    Refused,
    /// The connection is not pending any more, or there is no such path.
    #[error("there is no such path, or not any more")]
    NoPath,
    /// Storage or descriptors that came along are not what they must be.
    #[error("the storage lent for the path is not what it must be")]
    Storage,
    /// The host lacks memory or descriptors.
    #[error("the host lacks memory or descriptors")]
    HostResources,
    /// Nobody manages a resource of this name.
    #[error("nobody manages this resource")]
    NoResource,
    /// Somebody manages a resource of this name.
    #[error("the resource is managed already")]
    ResourceTaken,
    /// There is no LAN of this name.
    #[error("the system has no LAN of this name")]
    NoLan,
    /// The guest is a member of a LAN already, or of none.
    #[error("a guest is a member of one LAN at a time")]
    LanMembership,
    /// The LAN has as many members as it may.
    #[error("the LAN has as many members as it may")]
    LanFull,
    /// Another member, whose name the data begins with, has this address.
    #[error("another member of the LAN has this address")]
    AddressTaken,
    /// The address is not in the LAN's range, not the one that the system file fixes, or one too many.
    #[error("the LAN does not allow this address")]
    AddressRefused,
    /// The system file does not let this guest capture in the LAN, or at the adapter.
    #[error("the system file does not let this guest capture there")]
    CaptureRefused,
    /// As many guests show volumes as may.
    #[error("the host shows the volumes of as many guests as it can: 64 (fixed)")]
    VolumesLimit,
    /// A limit with an owner was reached.
    #[error("{0}")]
    Limit(Reached),
    /// The system file does not let this guest pass packets on in the LAN.
    #[error("the system file does not let this guest pass packets on in the LAN")]
    RoutingRefused,
    /// The guest takes no orders: it is no TCPIP machine.
    #[error("the guest of this name is no TCPIP machine, or one of an older build")]
    NoMachine,
    /// The machine lacks descriptors, memory or threads.
    #[error("the TCPIP machine lacks descriptors, memory or threads")]
    MachineResources,
    /// The TCPIP machine's driver got no time on its processor, or on the one that it is to have: others have them.
    #[error(
        "the driver of the TCPIP machine gets no time on that processor, or on the one that it leaves: others have them"
    )]
    ProcessorTaken,
    /// The machine may take over a distributed address at the LAN, which its driver there asks the host for.
    #[error(
        "the TCPIP machine may take over a distributed address at that LAN: its driver there must be inline"
    )]
    DriverInline,
}

/// The number of [`Problem::Limit`].
const LIMIT: u16 = 30;

/// Bytes of a [`Reached`] in a packet.
const REACHED_BYTES: usize = 18;

impl Problem {
    /// All that their number says everything about, in its order.
    pub const ALL: [Problem; 28] = [
        Problem::Version,
        Problem::Request,
        Problem::NameTaken,
        Problem::NotPermitted,
        Problem::NotAttached,
        Problem::NotAnswering,
        Problem::OwnPathLimit,
        Problem::TargetPathLimit,
        Problem::NotAuthorised,
        Problem::StorageLimit,
        Problem::Refused,
        Problem::NoPath,
        Problem::Storage,
        Problem::HostResources,
        Problem::NoResource,
        Problem::ResourceTaken,
        Problem::NoLan,
        Problem::LanMembership,
        Problem::LanFull,
        Problem::AddressTaken,
        Problem::AddressRefused,
        Problem::CaptureRefused,
        Problem::VolumesLimit,
        Problem::RoutingRefused,
        Problem::NoMachine,
        Problem::MachineResources,
        Problem::ProcessorTaken,
        Problem::DriverInline,
    ];

    /// The number that it has in a packet.
    pub fn number(self) -> u16 {
        match self {
            Problem::Version => 1,
            Problem::Request => 2,
            Problem::NameTaken => 3,
            Problem::NotPermitted => 4,
            Problem::NotAttached => 11,
            Problem::NotAnswering => 12,
            Problem::OwnPathLimit => 13,
            Problem::TargetPathLimit => 14,
            Problem::NotAuthorised => 15,
            Problem::StorageLimit => 16,
            Problem::Refused => 17,
            Problem::NoPath => 18,
            Problem::Storage => 19,
            Problem::HostResources => 20,
            Problem::NoResource => 21,
            Problem::ResourceTaken => 22,
            Problem::NoLan => 23,
            Problem::LanMembership => 24,
            Problem::LanFull => 25,
            Problem::AddressTaken => 26,
            Problem::AddressRefused => 27,
            Problem::CaptureRefused => 28,
            Problem::VolumesLimit => 29,
            Problem::Limit(_) => LIMIT,
            Problem::RoutingRefused => 31,
            Problem::NoMachine => 32,
            Problem::MachineResources => 33,
            Problem::ProcessorTaken => 34,
            Problem::DriverInline => 35,
        }
    }

    fn parse(number: u16) -> Problem {
        // A number from a later version is some problem all the same.
        Problem::ALL
            .into_iter()
            .find(|problem| problem.number() == number)
            .unwrap_or(Problem::Request)
    }
}

/// The number, and behind that of [`Problem::Limit`] the limit.
impl Field for Problem {
    fn put(&self, packet: &mut Vec<u8>) {
        self.number().put(packet);
        if let Problem::Limit(reached) = self {
            reached.put(packet);
        }
    }

    fn take(left: &mut &[u8]) -> Option<Problem> {
        match u16::take(left)? {
            LIMIT => {
                let reached = <[u8; REACHED_BYTES]>::take(left)?;
                // So is a limit from a later build, or one with an owner of another kind.
                Some(Field::take(&mut &reached[..]).map_or(Problem::Request, Problem::Limit))
            }
            number => Some(Problem::parse(number)),
        }
    }
}

fields!(Reached { limit, owner, most });
