//! The bytes of the control protocol.

use std::net::{IpAddr, Ipv6Addr};

use super::{Allowance, Kind, Placed, Scope, Target, Token, UserData, VERSION, WantedAddress};
use crate::name::{LanName, NAME_BYTES, Name};
use crate::path::Shape;

/// Bytes of the longest packet.
pub const PACKET_BYTES_MAX: usize = 256;

const MAGIC: [u8; 4] = *b"SIGA";

/// Why a packet is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It does not begin as every message does.
    #[error("not a control message: it must begin with \"SIGA\"")]
    Magic,
    /// It is of another version.
    #[error("version {found} of the control protocol: must be {VERSION}")]
    Version {
        /// That version.
        found: u16,
        /// So that it can be answered.
        serial: u32,
    },
    /// The kind does not exist, or not in this direction: another build of the same version may know it.
    #[error("control message of kind {kind}, which is not known here")]
    Kind {
        /// The kind.
        kind: u16,
        /// So that it can be answered.
        serial: u32,
    },
    /// The body is too short or too long, or a field of it makes no sense.
    #[error("control message of kind {kind}: {field} makes no sense")]
    Field {
        /// The kind.
        kind: u16,
        /// So that it can be answered.
        serial: u32,
        /// Which field.
        field: &'static str,
    },
}

impl Malformed {
    /// The serial of the message, if it had one.
    pub fn serial(self) -> u32 {
        match self {
            Malformed::Magic => 0,
            Malformed::Version { serial, .. }
            | Malformed::Kind { serial, .. }
            | Malformed::Field { serial, .. } => serial,
        }
    }
}

/// Something that lies in a packet.
pub(super) trait Field: Sized {
    /// Appends it.
    fn put(&self, packet: &mut Vec<u8>);
    /// Takes it off what is left of a packet; none if that is too short, or it makes no sense.
    fn take(left: &mut &[u8]) -> Option<Self>;
}

/// What the fields of a message, or of a part of one, are: each goes after the other.
macro_rules! fields {
    ($part:ident { $($field:ident),* }) => {
        impl Field for $part {
            fn put(&self, packet: &mut Vec<u8>) {
                $(self.$field.put(packet);)*
            }

            fn take(left: &mut &[u8]) -> Option<$part> {
                Some($part { $($field: Field::take(left)?),* })
            }
        }
    };
}

/// The messages of one direction: number, name, and fields in the order in which they lie in a packet.
macro_rules! messages {
    ($(#[$about:meta])* $type:ident: $(
        $(#[$doc:meta])*
        $kind:literal $name:ident
            $({ $($(#[$field_doc:meta])* $field:ident: $field_type:ty,)* })?
            $(($part:ident: $part_type:ty))?,
    )*) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $type {
            $($(#[$doc])* $name $({ $($(#[$field_doc])* $field: $field_type,)* })? $(($part_type))?,)*
        }

        impl $type {
            /// Puts the packet together.
            pub fn bytes(&self, serial: u32) -> Vec<u8> {
                match self {
                    $($type::$name { $($($field,)*)? $(0: $part)? } => {
                        let mut packet = Vec::new();
                        packet::begin(&mut packet, $kind, serial);
                        $($($field.put(&mut packet);)*)?
                        $($part.put(&mut packet);)?
                        packet
                    })*
                }
            }

            /// Takes a packet apart that was sent in this direction.
            ///
            /// # Errors
            /// [`Malformed`].
            pub fn parse(packet: &[u8]) -> Result<(u32, $type), Malformed> {
                let mut fields = packet::Fields::new(packet)?;
                let message = match fields.kind {
                    $($kind => $type::$name {
                        $($($field: fields.take(stringify!($field))?,)*)?
                        $(0: fields.take(stringify!($part))?)?
                    },)*
                    kind => return Err(Malformed::Kind { kind, serial: fields.serial }),
                };
                fields.end()?;
                Ok((fields.serial, message))
            }
        }
    };
}

pub(super) use {fields, messages};

/// Appends the header of a packet, which its fields follow.
pub(super) fn begin(packet: &mut Vec<u8>, kind: u16, serial: u32) {
    MAGIC.put(packet);
    ((VERSION, kind), serial).put(packet);
}

/// What is left of a packet that is being taken apart.
pub(super) struct Fields<'a> {
    pub(super) kind: u16,
    pub(super) serial: u32,
    left: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn new(packet: &'a [u8]) -> Result<Fields<'a>, Malformed> {
        let mut left = packet.strip_prefix(&MAGIC).ok_or(Malformed::Magic)?;
        let header = <((u16, u16), u32)>::take(&mut left);
        let ((found, kind), serial) = header.ok_or(Malformed::Magic)?;
        if found != VERSION {
            return Err(Malformed::Version { found, serial });
        }
        Ok(Fields { kind, serial, left })
    }

    pub(super) fn take<T: Field>(&mut self, field: &'static str) -> Result<T, Malformed> {
        T::take(&mut self.left).ok_or(self.wrong(field))
    }

    pub(super) fn end(&self) -> Result<(), Malformed> {
        if self.left.is_empty() { Ok(()) } else { Err(self.wrong("length")) }
    }

    pub(super) fn wrong(&self, field: &'static str) -> Malformed {
        Malformed::Field { kind: self.kind, serial: self.serial, field }
    }
}

impl<const N: usize> Field for [u8; N] {
    fn put(&self, packet: &mut Vec<u8>) {
        packet.extend_from_slice(self);
    }

    fn take(left: &mut &[u8]) -> Option<[u8; N]> {
        let (bytes, rest) = left.split_first_chunk()?;
        *left = rest;
        Some(*bytes)
    }
}

/// What lies in a packet as something else does: how to make that of it, and perhaps back.
macro_rules! as_other {
    ($($type:ty as $other:ty: $put:expr, $take:expr;)*) => {
        $(impl Field for $type {
            fn put(&self, packet: &mut Vec<u8>) {
                let put: fn(&$type) -> $other = $put;
                put(self).put(packet);
            }

            fn take(left: &mut &[u8]) -> Option<$type> {
                let take: fn($other) -> Option<$type> = $take;
                take(Field::take(left)?)
            }
        })*
    };
}

as_other! {
    u8 as [u8; 1]: |number| [*number], |[byte]| Some(byte);
    u16 as [u8; 2]: |number| number.to_le_bytes(), |bytes| Some(u16::from_le_bytes(bytes));
    u32 as [u8; 4]: |number| number.to_le_bytes(), |bytes| Some(u32::from_le_bytes(bytes));
    u64 as [u8; 8]: |number| number.to_le_bytes(), |bytes| Some(u64::from_le_bytes(bytes));
    bool as u8: |is_so| u8::from(*is_so), |byte| match byte {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    };
    Name as [u8; NAME_BYTES]: |name| name.bytes(), Name::parse;
    LanName as [u8; NAME_BYTES]: |name| name.bytes(), LanName::parse;
    // IPv4 addresses as IPv6 has them: `::ffff:10.1.0.5`.
    IpAddr as [u8; 16]: |address| bytes_of(*address), address_of;
    Option<IpAddr> as [u8; 16]: |address| address.map_or([0; 16], bytes_of), |bytes| {
        if bytes == [0; 16] { Some(None) } else { address_of(bytes).map(Some) }
    };
    WantedAddress as (u8, Option<IpAddr>): |wanted| match *wanted {
        WantedAddress::None => (0, None),
        WantedAddress::Chosen => (1, None),
        WantedAddress::This(address) => (2, Some(address)),
    }, |wanted| match wanted {
        (0, None) => Some(WantedAddress::None),
        (1, None) => Some(WantedAddress::Chosen),
        (2, Some(address)) => Some(WantedAddress::This(address)),
        _ => None,
    };
    Token as UserData: |token| token.0, |bytes| Some(Token(bytes));
    Kind as u16: |kind| kind.0, |number| Some(Kind(number));
    Shape as (u8, u8): |shape| (shape.outputs as u8, shape.inputs as u8), |(outputs, inputs)| {
        let shape = Shape { outputs: outputs.into(), inputs: inputs.into() };
        shape.is_valid().then_some(shape)
    };
    Scope as u8: |scope| *scope as u8, |byte| match byte {
        0 => Some(Scope::Local),
        1 => Some(Scope::Global),
        _ => None,
    };
    Target as (u8, Name): |target| match *target {
        Target::Guest(name) => (0, name),
        Target::Resource(name) => (1, name),
    }, |(what, name)| match what {
        0 => Some(Target::Guest(name)),
        1 => Some(Target::Resource(name)),
        _ => None,
    };
    Option<u32> as (u8, u32): |number| number.map_or((0, 0), |number| (1, number)), |number| match number {
        (0, 0) => Some(None),
        (1, number) => Some(Some(number)),
        _ => None,
    };
    Placed as (u8, Option<u32>): |placed| match *placed {
        Placed::At(processor) => (0, processor),
        Placed::NoLan => (1, None),
        Placed::Lacking => (2, None),
        Placed::NotRun => (3, None),
    }, |placed| match placed {
        (0, processor) => Some(Placed::At(processor)),
        (1, None) => Some(Placed::NoLan),
        (2, None) => Some(Placed::Lacking),
        (3, None) => Some(Placed::NotRun),
        _ => None,
    };
    // Zeros are no name.
    Option<Name> as [u8; NAME_BYTES]: |name| name.map_or([0; NAME_BYTES], Name::bytes), |bytes| {
        if bytes == [0; NAME_BYTES] { Some(None) } else { Name::parse(bytes).map(Some) }
    };
}

impl<A: Field, B: Field> Field for (A, B) {
    fn put(&self, packet: &mut Vec<u8>) {
        self.0.put(packet);
        self.1.put(packet);
    }

    fn take(left: &mut &[u8]) -> Option<(A, B)> {
        Some((A::take(left)?, B::take(left)?))
    }
}

fields!(Allowance { storage_bytes, messages });

fn bytes_of(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// None of zeros, which are no party's address.
fn address_of(bytes: [u8; 16]) -> Option<IpAddr> {
    let address = Ipv6Addr::from(bytes);
    (!address.is_unspecified()).then_some(IpAddr::V6(address).to_canonical())
}

#[cfg(test)]
mod tests {
    use super::super::{
        Joined, LanJoined, Limit, Order, Owner, Pending, Problem, Reached, Reply, Request, RuleName,
    };
    use super::*;

    fn name(name: &str) -> Name {
        name.parse().unwrap()
    }

    const ALLOWANCE: Allowance = Allowance { storage_bytes: 1 << 33, messages: 7 };

    fn join_lan(address: WantedAddress, captures: bool, routes: bool) -> Request {
        let (lan, mac) = ("hs0".parse().unwrap(), [2, 0, 0, 0, 0, 1]);
        Request::JoinLan { lan, mac, address, captures, routes }
    }

    fn place_driver(processor: Option<u32>) -> Request {
        Request::PlaceDriver { machine: name("TCPIP"), lan: "hs0".parse().unwrap(), processor }
    }

    fn requests() -> Vec<Request> {
        let shape = Shape { outputs: 4, inputs: 8 };
        let data = *b"0123456789abcdef";
        vec![
            Request::Attach { name: name("CLIENT") },
            Request::Observe,
            Request::Connect {
                target: Target::Guest(name("SERVER")),
                kind: Kind::MESSAGES,
                flags: 0x8002,
                data,
                shape,
                allowance: ALLOWANCE,
            },
            Request::Connect {
                target: Target::Resource(name("PAYROLL")),
                kind: Kind::APPC,
                flags: 0,
                data,
                shape,
                allowance: ALLOWANCE,
            },
            Request::Cancel { connect: 9 },
            Request::Accept { path: 3, flags: 9, data, allowance: ALLOWANCE },
            Request::Refuse { path: 3, data },
            Request::Ended { path: u64::MAX },
            Request::Rejoin {
                token: Token([9; 16]),
                peer: name("SERVER"),
                kind: Kind::IUCV,
                shape,
                allowance: ALLOWANCE,
            },
            Request::Query,
            Request::Audit { path: 5 },
            Request::Identify { resource: name("PAYROLL"), scope: Scope::Global },
            Request::Revoke { resource: name("PAYROLL"), scope: Scope::Local },
            join_lan(WantedAddress::None, true, false),
            join_lan(WantedAddress::Chosen, false, true),
            join_lan(WantedAddress::This("10.1.0.5".parse().unwrap()), false, false),
            Request::LeaveLan,
            Request::ShowVolumes,
            Request::ShowStack,
            Request::ShowAdapter,
            Request::TakeOrders,
            place_driver(None),
            place_driver(Some(u32::MAX)),
            Request::OrderDone { order: 1, placed: Placed::At(None) },
            Request::OrderDone { order: 2, placed: Placed::At(Some(0)) },
            Request::OrderDone { order: 3, placed: Placed::NoLan },
            Request::OrderDone { order: u64::MAX, placed: Placed::Lacking },
            Request::OrderDone { order: 4, placed: Placed::NotRun },
            Request::Register { address: "fe80::5".parse().unwrap() },
            Request::Unregister { address: "10.1.0.5".parse().unwrap() },
        ]
    }

    fn replies() -> Vec<Reply> {
        let data = *b"0123456789abcdef";
        let joined = Joined {
            path: 1,
            token: Token([3; 16]),
            peer: name("SERVER"),
            flags: 0x0102,
            data,
            shape: Shape::SIMPLE,
            ours: ALLOWANCE,
            theirs: ALLOWANCE,
        };
        let pending = Pending {
            path: 2,
            from: name("A"),
            resource: None,
            kind: Kind::IUCV,
            flags: 3,
            data,
            shape: Shape::SIMPLE,
        };
        let for_resource = Pending { resource: Some(name("PAYROLL")), ..pending };
        let mut replies = vec![
            Reply::Attached,
            Reply::Joined(joined),
            Reply::Done { path: 4 },
            Reply::Pending(pending),
            Reply::Pending(for_resource),
            Reply::Withdrawn { path: 4 },
            Reply::Report { bytes: 77 },
            Reply::Order(Order { order: 5, lan: "hs0".parse().unwrap(), processor: None }),
            Reply::Order(Order { order: 6, lan: "hs0".parse().unwrap(), processor: Some(1) }),
            Reply::DriverPlaced { processor: None },
            Reply::DriverPlaced { processor: Some(7) },
        ];
        for address in [None, Some("10.1.0.5".parse().unwrap()), Some("fd00::1".parse().unwrap())] {
            let (number, mac) = (7, [2, 0, 0, 0, 0, 7]);
            let frame_bytes = 16 << 10;
            let (ipv4_prefix_bits, ipv6_prefix_bits) = (24, 64);
            let joined =
                LanJoined { number, mac, frame_bytes, address, ipv4_prefix_bits, ipv6_prefix_bits };
            replies.push(Reply::LanJoined(joined));
        }
        replies.extend(Problem::ALL.map(|problem| Reply::Failed { problem, data }));
        let owners = [
            Owner::Host,
            Owner::User(u32::MAX),
            Owner::Unmapped,
            Owner::Others,
            Owner::Rule(RuleName::beginning("").unwrap()),
            Owner::Rule(RuleName::of(name("SERVER"))),
            Owner::Guest(name("A")),
            Owner::Lan("hs0".parse().unwrap()),
        ];
        for (limit, owner) in Limit::ALL.into_iter().zip(owners.into_iter().cycle()) {
            let problem = Problem::Limit(Reached { limit, owner, most: u64::MAX });
            replies.push(Reply::Failed { problem, data });
        }
        replies
    }

    #[test]
    fn attach_is_what_the_picture_says() {
        let bytes = b"SIGA\x05\x00\x01\x00\x04\x03\x02\x01CLIENT  ";
        let request = Request::Attach { name: name("CLIENT") };
        assert_eq!(request.bytes(0x0102_0304), bytes);
        assert_eq!(Request::parse(bytes), Ok((0x0102_0304, request)));
    }

    #[test]
    fn every_message_comes_out_as_it_went_in() {
        for request in requests() {
            assert_eq!(Request::parse(&request.bytes(7)), Ok((7, request)));
        }
        for reply in replies() {
            assert_eq!(Reply::parse(&reply.bytes(7)), Ok((7, reply)));
        }
    }

    #[test]
    fn messages_cut_short_or_drawn_out_are_refused() {
        for request in requests() {
            let mut bytes = request.bytes(7);
            bytes.push(0);
            assert!(Request::parse(&bytes).is_err(), "{request:?} with a byte more");
            for length in 0..bytes.len() - 1 {
                assert!(Request::parse(&bytes[..length]).is_err(), "{request:?} cut to {length}");
            }
        }
    }

    #[test]
    fn other_versions_kinds_names_and_shapes_are_refused() {
        let good = Request::Attach { name: name("CLIENT") }.bytes(7);
        let changed = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            Request::parse(&bytes).unwrap_err()
        };
        assert_eq!(changed(0, b's'), Malformed::Magic);
        assert_eq!(changed(4, 1), Malformed::Version { found: 1, serial: 7 });
        assert_eq!(changed(4, 2), Malformed::Version { found: 2, serial: 7 });
        assert_eq!(changed(6, 101), Malformed::Kind { kind: 101, serial: 7 });
        assert_eq!(changed(12, b'c'), Malformed::Field { kind: 1, serial: 7, field: "name" });
        let mut connect = requests().swap_remove(2).bytes(7);
        connect[12 + 9 + 4 + 16] = 9;
        let error = Request::parse(&connect).unwrap_err();
        assert_eq!(error, Malformed::Field { kind: 3, serial: 7, field: "shape" });
    }

    #[test]
    fn order_is_what_the_page_says_and_a_placement_of_nobody_is_refused() {
        let bytes = b"SIGA\x05\x00\x14\x00\x04\x03\x02\x01TCPIP   hs0     \x01\x07\x00\x00\x00";
        assert_eq!(place_driver(Some(7)).bytes(0x0102_0304), bytes);
        let refused = |at: usize, byte: u8, field| {
            let mut bytes = bytes.to_vec();
            bytes[at] = byte;
            let error = Request::parse(&bytes).unwrap_err();
            assert_eq!(error, Malformed::Field { kind: 20, serial: 0x0102_0304, field });
        };
        refused(12, b't', "machine");
        refused(20, b'H', "lan");
        // Neither inline nor a processor, and inline with the number of one.
        refused(28, 2, "processor");
        refused(28, 0, "processor");
        let done = Request::OrderDone { order: 1, placed: Placed::NoLan }.bytes(0);
        assert_eq!(done[12..], [1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
        for (at, byte) in [(20, 4), (21, 1), (22, 1)] {
            let mut wrong = done.clone();
            wrong[at] = byte;
            let malformed = Malformed::Field { kind: 19, serial: 0, field: "placed" };
            assert_eq!(Request::parse(&wrong), Err(malformed));
        }
    }

    #[test]
    fn limit_from_a_later_build_is_some_problem_all_the_same() {
        let data = [7; 16];
        let reached = Reached { limit: Limit::Guests, owner: Owner::Host, most: 9 };
        let bytes = Reply::Failed { problem: Problem::Limit(reached), data }.bytes(7);
        let [limit, owner] = [14, 15];
        assert_eq!(bytes[limit..=owner], [Limit::Guests as u8, 0]);
        for at in [limit, owner] {
            let mut later = bytes.clone();
            later[at] = 200;
            let failed = Reply::Failed { problem: Problem::Request, data };
            assert_eq!(Reply::parse(&later), Ok((7, failed)));
        }
    }
}
