//! Control records: what a guest asks of its data device, and what the adapter answers and tells.
//!
//! On the mainframe two subchannels beside the data device carry such commands (IP assists). Here they go over the first queue of each
//! direction, in order with the packets.
//!
//! ```text
//!  offset  0  verb u8
//!          1  status u8: 0 done, or why not; in a request 0
//!          2  vlan u16; of a profile its packets
//!          4  serial u32: of the request, repeated in the answer; 0 in what nobody asked for
//!          8  value u64; of a profile its gap u32 and hold-off u32, in nanoseconds
//!         16  address 16: an address of IPv4 as ::ffff:a.b.c.d; 0 none
//!         32  mac 6
//!         38  port u16: of a connection's end at the guest; of a profile its backlog
//!         40  peer 16: the address of the other end, as above
//!         56  peer_port u16
//!         58  0 u16, u32
//! ```
//!
//! Numbers are little-endian.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::packet::Layer;
use super::tuning::{Inbperf, Profile};
use super::workload::{Connection, Workload};
use crate::lan::frame::Mac;

/// Bytes of a record.
pub const RECORD_BYTES: usize = 64;

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The number of the request.
    pub serial: u32,
    /// What it says.
    pub what: What,
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A guest asks.
    Request(Request),
    /// The adapter has done, or refuses, what was asked.
    Answer(Result<(), Refused>),
    /// The adapter tells what the port is like: in answer to [`Request::Activate`], and when it changes.
    Port(Port),
    /// The adapter has stopped the device: nothing more goes or comes, and the path ends.
    Stopped(Stopped),
}

/// What a guest asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// ACTIVATE QUEUES: packets go and come from now on. In layer 2 with this MAC address; without one the adapter makes one.
    Activate(Layer, Option<Mac>),
    /// HALT SUBCHANNEL: nothing goes or comes any more, packets in buffers included. Addresses are there again after the next [`Request::Activate`].
    Halt,
    /// CLEAR SUBCHANNEL: packets that are in buffers are dropped, and addresses are forgotten.
    Clear,
    /// Packets to this address of IP are the guest's, and packets may come from there. An address of a group joins the group.
    AddAddress(IpAddr),
    /// They are no longer.
    RemoveAddress(IpAddr),
    /// Frames to this group of MAC addresses are the guest's too, in layer 2.
    AddGroup(Mac),
    /// They are no longer.
    RemoveGroup(Mac),
    /// The guest belongs to this VLAN: 1 to 4094.
    AddVlan(u16),
    /// It no longer does.
    RemoveVlan(u16),
    /// What becomes of packets to addresses that nobody has registered, in layer 3.
    Route(Router),
    /// Packets of this workload come by this input queue from now on, in layer 3: 0 is the primary one.
    Sort(Workload, u8),
    /// This connection of TCP is bulk data from now on: what comes of it later comes behind the answer, by the queue of bulk data.
    AddConnection(Connection),
    /// It is no longer: what comes of it later comes behind the answer, by the primary queue.
    RemoveConnection(Connection),
    /// This connection is over: nothing of it has to keep its order.
    ForgetConnection(Connection),
    /// The guest distributes connections to this address of its own over others: they come by the queue of the distributor. For an address that has no
    /// connections yet: the order of those that there are is not kept.
    Distribute(IpAddr),
    /// It no longer does.
    Gather(IpAddr),
    /// How packets are to come to the guest from now on.
    Tune(Inbperf),
    /// The same, by times of its own.
    Profile(Profile),
}

/// A device's part in packets to addresses that nobody has registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Router {
    /// It gets none of them.
    #[default]
    None,
    /// It gets them. A port has one such device.
    Primary,
    /// It gets them while there is no primary router. A port has one such device.
    Secondary,
}

/// What a port is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Set while frames go and come over the wire. Guests of the port reach each other all the same.
    pub is_up: bool,
    /// Bytes of the longest packet.
    pub mtu: u16,
    /// The MAC address of the device: the port's in layer 3.
    pub mac: Mac,
    /// Bits a second of the wire, as far as is known; 0 otherwise.
    pub rate: u64,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The device is not in a state for it.
    #[error("the device is not in a state for this")]
    State,
    /// Another guest has the address, or is the router.
    #[error("another device of the adapter has this already")]
    Taken,
    /// The device has as many as a device may have, or its guest as many as a guest may have at the wire.
    #[error("the device, or its guest, has as many of these as it may have")]
    Full,
    /// The address is no host's and no group's, or the number is no VLAN's.
    #[error("no device can have this")]
    Unfit,
    /// This guest may not have it, by the system file.
    #[error("the adapter does not give this to this guest")]
    NotAllowed,
    /// The wire does not take it: a right or a resource is missing.
    #[error("the network interface does not take this")]
    Wire,
}

/// Why a device was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Stopped {
    /// The guest handed over what is no buffer.
    #[error("a buffer that is none was handed over")]
    Buffer,
    /// A packet's header made no sense, or reached beyond its buffer.
    #[error("a packet's header made no sense")]
    Header,
    /// A request that is not for the state that the device is in.
    #[error("a request that is not for the state of the device")]
    State,
    /// The adapter goes.
    #[error("the adapter ends")]
    Adapter,
}

const REFUSALS: [Refused; 6] = [
    Refused::State,
    Refused::Taken,
    Refused::Full,
    Refused::Unfit,
    Refused::NotAllowed,
    Refused::Wire,
];
const STOPS: [Stopped; 4] = [Stopped::Buffer, Stopped::Header, Stopped::State, Stopped::Adapter];
const ROUTERS: [Router; 3] = [Router::None, Router::Primary, Router::Secondary];

mod verb {
    pub(super) const ACTIVATE: u8 = 1;
    pub(super) const HALT: u8 = 2;
    pub(super) const CLEAR: u8 = 3;
    pub(super) const ADD_ADDRESS: u8 = 4;
    pub(super) const REMOVE_ADDRESS: u8 = 5;
    pub(super) const ADD_GROUP: u8 = 6;
    pub(super) const REMOVE_GROUP: u8 = 7;
    pub(super) const ADD_VLAN: u8 = 8;
    pub(super) const REMOVE_VLAN: u8 = 9;
    pub(super) const ROUTE: u8 = 10;
    pub(super) const SORT: u8 = 11;
    pub(super) const ADD_CONNECTION: u8 = 12;
    pub(super) const REMOVE_CONNECTION: u8 = 13;
    pub(super) const DISTRIBUTE: u8 = 14;
    pub(super) const GATHER: u8 = 15;
    pub(super) const TUNE: u8 = 16;
    pub(super) const FORGET_CONNECTION: u8 = 17;
    pub(super) const PROFILE: u8 = 18;
    pub(super) const ANSWER: u8 = 0x80;
    pub(super) const PORT: u8 = 0x81;
    pub(super) const STOPPED: u8 = 0x82;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fields {
    verb: u8,
    status: u8,
    vlan: u16,
    value: u64,
    address: Option<IpAddr>,
    mac: Mac,
    port: u16,
    peer: Option<IpAddr>,
    peer_port: u16,
}

impl Fields {
    fn of(verb: u8) -> Fields {
        Fields {
            verb,
            status: 0,
            vlan: 0,
            value: 0,
            address: None,
            mac: Mac([0; 6]),
            port: 0,
            peer: None,
            peer_port: 0,
        }
    }

    fn of_connection(verb: u8, Connection { local, peer }: Connection) -> Fields {
        Fields {
            address: Some(local.ip()),
            port: local.port(),
            peer: Some(peer.ip()),
            peer_port: peer.port(),
            ..Fields::of(verb)
        }
    }

    fn connection(&self) -> Option<Connection> {
        let local = SocketAddr::new(self.address?, self.port);
        Some(Connection { local, peer: SocketAddr::new(self.peer?, self.peer_port) })
    }
}

/// An address as a record has it; that of IPv4 mapped into IPv6.
fn emit_address(address: Option<IpAddr>) -> [u8; 16] {
    match address {
        None => [0; 16],
        Some(IpAddr::V4(address)) => address.to_ipv6_mapped().octets(),
        Some(IpAddr::V6(address)) => address.octets(),
    }
}

fn parse_address(bytes: [u8; 16]) -> Option<IpAddr> {
    let address = Ipv6Addr::from(bytes);
    (!address.is_unspecified()).then(|| IpAddr::V6(address).to_canonical())
}

fn number_of<T: PartialEq>(all: &[T], one: &T) -> usize {
    all.iter().position(|other| other == one).expect("all are listed")
}

impl Request {
    /// Whether it says of one connection how it comes.
    pub fn is_of_connection(&self) -> bool {
        matches!(
            self,
            Request::AddConnection(_) | Request::RemoveConnection(_) | Request::ForgetConnection(_)
        )
    }
}

impl Record {
    /// A request.
    pub fn request(serial: u32, request: Request) -> Record {
        Record { serial, what: What::Request(request) }
    }

    fn fields(&self) -> Fields {
        let of = Fields::of;
        match self.what {
            What::Request(Request::Activate(layer, mac)) => Fields {
                value: if layer == Layer::Two { 2 } else { 3 },
                mac: mac.unwrap_or(Mac([0; 6])),
                ..of(verb::ACTIVATE)
            },
            What::Request(Request::Halt) => of(verb::HALT),
            What::Request(Request::Clear) => of(verb::CLEAR),
            What::Request(Request::AddAddress(address)) => {
                Fields { address: Some(address), ..of(verb::ADD_ADDRESS) }
            }
            What::Request(Request::RemoveAddress(address)) => {
                Fields { address: Some(address), ..of(verb::REMOVE_ADDRESS) }
            }
            What::Request(Request::AddGroup(mac)) => Fields { mac, ..of(verb::ADD_GROUP) },
            What::Request(Request::RemoveGroup(mac)) => Fields { mac, ..of(verb::REMOVE_GROUP) },
            What::Request(Request::AddVlan(vlan)) => Fields { vlan, ..of(verb::ADD_VLAN) },
            What::Request(Request::RemoveVlan(vlan)) => Fields { vlan, ..of(verb::REMOVE_VLAN) },
            What::Request(Request::Route(router)) => {
                Fields { value: number_of(&ROUTERS, &router) as u64, ..of(verb::ROUTE) }
            }
            What::Request(Request::Sort(workload, queue)) => {
                Fields { value: workload as u64, vlan: queue.into(), ..of(verb::SORT) }
            }
            What::Request(Request::AddConnection(connection)) => {
                Fields::of_connection(verb::ADD_CONNECTION, connection)
            }
            What::Request(Request::RemoveConnection(connection)) => {
                Fields::of_connection(verb::REMOVE_CONNECTION, connection)
            }
            What::Request(Request::ForgetConnection(connection)) => {
                Fields::of_connection(verb::FORGET_CONNECTION, connection)
            }
            What::Request(Request::Distribute(address)) => {
                Fields { address: Some(address), ..of(verb::DISTRIBUTE) }
            }
            What::Request(Request::Gather(address)) => {
                Fields { address: Some(address), ..of(verb::GATHER) }
            }
            What::Request(Request::Tune(inbperf)) => {
                Fields { value: inbperf as u64, ..of(verb::TUNE) }
            }
            What::Request(Request::Profile(profile)) => {
                let Profile { hold_off_ns, gap_ns, packets_max, backlog } = profile;
                Fields {
                    value: u64::from(hold_off_ns) << 32 | u64::from(gap_ns),
                    vlan: packets_max,
                    port: backlog,
                    ..of(verb::PROFILE)
                }
            }
            What::Answer(Ok(())) => of(verb::ANSWER),
            What::Answer(Err(refused)) => {
                Fields { status: 1 + number_of(&REFUSALS, &refused) as u8, ..of(verb::ANSWER) }
            }
            What::Port(Port { is_up, mtu, mac, rate }) => {
                Fields { status: u8::from(is_up), vlan: mtu, value: rate, mac, ..of(verb::PORT) }
            }
            What::Stopped(stopped) => {
                Fields { status: 1 + number_of(&STOPS, &stopped) as u8, ..of(verb::STOPPED) }
            }
        }
    }

    /// The bytes.
    pub fn emit(&self) -> [u8; RECORD_BYTES] {
        let Fields { verb, status, vlan, value, address, mac, port, peer, peer_port } =
            self.fields();
        let mut bytes = [0; RECORD_BYTES];
        (bytes[0], bytes[1]) = (verb, status);
        bytes[2..4].copy_from_slice(&vlan.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.serial.to_le_bytes());
        bytes[8..16].copy_from_slice(&value.to_le_bytes());
        bytes[16..32].copy_from_slice(&emit_address(address));
        bytes[32..38].copy_from_slice(&mac.0);
        bytes[38..40].copy_from_slice(&port.to_le_bytes());
        bytes[40..56].copy_from_slice(&emit_address(peer));
        bytes[56..58].copy_from_slice(&peer_port.to_le_bytes());
        bytes
    }

    /// Takes a record apart. None if it makes no sense.
    pub fn parse(bytes: &[u8; RECORD_BYTES]) -> Option<Record> {
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let serial = u32::from_le_bytes(*bytes[4..].first_chunk()?);
        let fields = Fields {
            verb: bytes[0],
            status: bytes[1],
            vlan: short(2),
            value: u64::from_le_bytes(*bytes[8..].first_chunk()?),
            address: parse_address(*bytes[16..].first_chunk()?),
            mac: Mac(*bytes[32..].first_chunk()?),
            port: short(38),
            peer: parse_address(*bytes[40..].first_chunk()?),
            peer_port: short(56),
        };
        let Fields { verb, status, vlan, value, mac, address, .. } = fields;
        let number = usize::try_from(value).ok()?;
        let request = match verb {
            verb::ACTIVATE => {
                let layer = match value {
                    2 => Layer::Two,
                    3 => Layer::Three,
                    _ => return None,
                };
                Some(Request::Activate(layer, Some(mac).filter(|mac| mac.0 != [0; 6])))
            }
            verb::HALT => Some(Request::Halt),
            verb::CLEAR => Some(Request::Clear),
            verb::ADD_ADDRESS => Some(Request::AddAddress(address?)),
            verb::REMOVE_ADDRESS => Some(Request::RemoveAddress(address?)),
            verb::ADD_GROUP => Some(Request::AddGroup(mac)),
            verb::REMOVE_GROUP => Some(Request::RemoveGroup(mac)),
            verb::ADD_VLAN => Some(Request::AddVlan(vlan)),
            verb::REMOVE_VLAN => Some(Request::RemoveVlan(vlan)),
            verb::ROUTE => Some(Request::Route(*ROUTERS.get(number)?)),
            verb::SORT => {
                Some(Request::Sort(*Workload::ALL.get(number)?, u8::try_from(vlan).ok()?))
            }
            verb::ADD_CONNECTION => Some(Request::AddConnection(fields.connection()?)),
            verb::REMOVE_CONNECTION => Some(Request::RemoveConnection(fields.connection()?)),
            verb::FORGET_CONNECTION => Some(Request::ForgetConnection(fields.connection()?)),
            verb::DISTRIBUTE => Some(Request::Distribute(address?)),
            verb::GATHER => Some(Request::Gather(address?)),
            verb::TUNE => Some(Request::Tune(*Inbperf::ALL.get(number)?)),
            verb::PROFILE => Some(Request::Profile(Profile {
                hold_off_ns: (value >> 32) as u32,
                gap_ns: value as u32,
                packets_max: vlan,
                backlog: fields.port,
            })),
            _ => None,
        };
        let listed = usize::from(status).checked_sub(1);
        let what = match (request, verb) {
            (Some(request), _) => What::Request(request),
            (None, verb::ANSWER) if status == 0 => What::Answer(Ok(())),
            (None, verb::ANSWER) => What::Answer(Err(*REFUSALS.get(listed?)?)),
            (None, verb::PORT) if status <= 1 => {
                What::Port(Port { is_up: status == 1, mtu: vlan, mac, rate: value })
            }
            (None, verb::STOPPED) => What::Stopped(*STOPS.get(listed?)?),
            _ => return None,
        };
        let record = Record { serial, what };
        // Nothing is said in fields that a record does not have.
        (record.fields() == fields && bytes[58..] == [0; RECORD_BYTES - 58]).then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_what_the_picture_says() {
        let record = Record::request(0x0403_0201, Request::AddAddress([10, 1, 0, 5].into()));
        let mut bytes = [0; RECORD_BYTES];
        bytes[..8].copy_from_slice(&[4, 0, 0, 0, 1, 2, 3, 4]);
        bytes[26..32].copy_from_slice(&[0xff, 0xff, 10, 1, 0, 5]);
        assert_eq!(record.emit(), bytes);
        assert_eq!(Record::parse(&bytes), Some(record));
    }

    #[test]
    fn all_records_are_what_they_were() {
        let mac = Mac([2, 0, 0, 0, 0, 5]);
        let requests = [
            Request::Activate(Layer::Two, Some(mac)),
            Request::Activate(Layer::Three, None),
            Request::Halt,
            Request::Clear,
            Request::AddAddress("fd00::5".parse().unwrap()),
            Request::RemoveAddress([224, 0, 0, 1].into()),
            Request::AddGroup(Mac([1, 0, 0x5e, 0, 0, 1])),
            Request::RemoveGroup(mac),
            Request::AddVlan(7),
            Request::RemoveVlan(4094),
            Request::Route(Router::Secondary),
            Request::Sort(Workload::EnterpriseExtender, 3),
            Request::AddConnection(Connection {
                local: "10.1.0.1:80".parse().unwrap(),
                peer: "10.1.0.2:4000".parse().unwrap(),
            }),
            Request::RemoveConnection(Connection {
                local: "[fd00::1]:80".parse().unwrap(),
                peer: "[fd00::2]:65535".parse().unwrap(),
            }),
            Request::ForgetConnection(Connection {
                local: "10.1.0.1:80".parse().unwrap(),
                peer: "10.1.0.2:4000".parse().unwrap(),
            }),
            Request::Distribute([10, 1, 0, 9].into()),
            Request::Gather("fd00::9".parse().unwrap()),
            Request::Tune(Inbperf::Dynamic),
            Request::Profile(Profile {
                hold_off_ns: u32::MAX,
                gap_ns: 5_000,
                packets_max: 64,
                backlog: 8,
            }),
        ];
        let told = [
            What::Answer(Ok(())),
            What::Answer(Err(Refused::Wire)),
            What::Port(Port { is_up: true, mtu: 8992, mac, rate: 1_000_000_000 }),
            What::Stopped(Stopped::Adapter),
        ];
        for what in requests.map(What::Request).into_iter().chain(told) {
            let record = Record { serial: 9, what };
            assert_eq!(Record::parse(&record.emit()), Some(record), "{what:?}");
        }
    }

    #[test]
    fn record_that_says_more_than_it_has_is_refused() {
        let good = Record::request(1, Request::Halt).emit();
        for at in [0, 1, 2, 8, 16, 32, 38, 40, 56, 58, 63] {
            let mut bytes = good;
            bytes[at] = 0xee;
            assert_eq!(Record::parse(&bytes), None, "{at}");
        }
    }
}
