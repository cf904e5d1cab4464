//! The bytes of the control protocol.

use super::{
    Allowance, Joined, Kind, Pending, Problem, Reply, Request, Scope, Target, Token, UserData,
    VERSION,
};
use crate::name::{NAME_BYTES, Name};
use crate::path::Shape;

/// Bytes of the longest packet.
pub const PACKET_BYTES_MAX: usize = 256;

const MAGIC: [u8; 4] = *b"SIGA";
const HEADER_BYTES: usize = 12;

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
    /// A kind that does not exist, or not in this direction.
    #[error("control message of unknown kind {kind}")]
    Kind {
        /// That kind.
        kind: u16,
        /// So that it can be answered.
        serial: u32,
    },
    /// The body is too short or too long, or a field makes no sense.
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

impl Request {
    fn kind(&self) -> u16 {
        match self {
            Request::Attach { .. } => 1,
            Request::Observe => 2,
            Request::Connect { .. } => 3,
            Request::Cancel { .. } => 4,
            Request::Accept { .. } => 5,
            Request::Refuse { .. } => 6,
            Request::Ended { .. } => 7,
            Request::Rejoin { .. } => 8,
            Request::Query => 9,
            Request::Audit { .. } => 10,
            Request::Identify { .. } => 11,
            Request::Revoke { .. } => 12,
        }
    }

    /// Puts the packet together.
    pub fn bytes(&self, serial: u32) -> Vec<u8> {
        let mut body = Body::new(self.kind(), serial);
        match self {
            Request::Observe | Request::Query => {}
            Request::Attach { name } => body.put(&name.bytes()),
            Request::Connect { target, kind, flags, data, shape, allowance } => {
                body.target(*target);
                body.put(&kind.0.to_le_bytes());
                body.put(&flags.to_le_bytes());
                body.put(data);
                body.shape(*shape);
                body.allowance(*allowance);
            }
            Request::Cancel { connect } => body.put(&connect.to_le_bytes()),
            Request::Accept { path, flags, data, allowance } => {
                body.put(&path.to_le_bytes());
                body.put(&flags.to_le_bytes());
                body.put(data);
                body.allowance(*allowance);
            }
            Request::Refuse { path, data } => {
                body.put(&path.to_le_bytes());
                body.put(data);
            }
            Request::Ended { path } | Request::Audit { path } => body.put(&path.to_le_bytes()),
            Request::Rejoin { token, peer, kind, shape, allowance } => {
                body.put(&token.0);
                body.put(&peer.bytes());
                body.put(&kind.0.to_le_bytes());
                body.shape(*shape);
                body.allowance(*allowance);
            }
            Request::Identify { resource, scope } | Request::Revoke { resource, scope } => {
                body.put(&resource.bytes());
                body.put(&[*scope as u8]);
            }
        }
        body.0
    }

    /// Takes a packet apart that a guest has sent.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn parse(packet: &[u8]) -> Result<(u32, Request), Malformed> {
        let mut fields = Fields::new(packet)?;
        let request = match fields.kind {
            1 => Request::Attach { name: fields.name()? },
            2 => Request::Observe,
            3 => Request::Connect {
                target: fields.target()?,
                kind: fields.kind()?,
                flags: fields.u16("flags")?,
                data: fields.user_data()?,
                shape: fields.shape()?,
                allowance: fields.allowance()?,
            },
            4 => Request::Cancel { connect: fields.u32("serial")? },
            5 => Request::Accept {
                path: fields.u64("path")?,
                flags: fields.u16("flags")?,
                data: fields.user_data()?,
                allowance: fields.allowance()?,
            },
            6 => Request::Refuse { path: fields.u64("path")?, data: fields.user_data()? },
            7 => Request::Ended { path: fields.u64("path")? },
            8 => Request::Rejoin {
                token: fields.token()?,
                peer: fields.name()?,
                kind: fields.kind()?,
                shape: fields.shape()?,
                allowance: fields.allowance()?,
            },
            9 => Request::Query,
            10 => Request::Audit { path: fields.u64("path")? },
            11 => Request::Identify { resource: fields.name()?, scope: fields.scope()? },
            12 => Request::Revoke { resource: fields.name()?, scope: fields.scope()? },
            kind => return Err(Malformed::Kind { kind, serial: fields.serial }),
        };
        fields.end()?;
        Ok((fields.serial, request))
    }
}

impl Reply {
    fn kind(&self) -> u16 {
        match self {
            Reply::Attached => 101,
            Reply::Failed { .. } => 102,
            Reply::Joined(_) => 103,
            Reply::Done { .. } => 104,
            Reply::Pending(_) => 105,
            Reply::Withdrawn { .. } => 106,
            Reply::Report { .. } => 107,
        }
    }

    /// Puts the packet together.
    pub fn bytes(&self, serial: u32) -> Vec<u8> {
        let mut body = Body::new(self.kind(), serial);
        match self {
            Reply::Attached => {}
            Reply::Failed { problem, data } => {
                body.put(&(*problem as u16).to_le_bytes());
                body.put(data);
            }
            Reply::Joined(joined) => {
                body.put(&joined.path.to_le_bytes());
                body.put(&joined.token.0);
                body.put(&joined.peer.bytes());
                body.put(&joined.flags.to_le_bytes());
                body.put(&joined.data);
                body.shape(joined.shape);
                body.allowance(joined.ours);
                body.allowance(joined.theirs);
            }
            Reply::Done { path } | Reply::Withdrawn { path } => body.put(&path.to_le_bytes()),
            Reply::Pending(pending) => {
                body.put(&pending.path.to_le_bytes());
                body.put(&pending.from.bytes());
                body.put(&pending.resource.map_or([0; NAME_BYTES], Name::bytes));
                body.put(&pending.kind.0.to_le_bytes());
                body.put(&pending.flags.to_le_bytes());
                body.put(&pending.data);
                body.shape(pending.shape);
            }
            Reply::Report { bytes } => body.put(&bytes.to_le_bytes()),
        }
        body.0
    }

    /// Takes a packet apart that the host has sent.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn parse(packet: &[u8]) -> Result<(u32, Reply), Malformed> {
        let mut fields = Fields::new(packet)?;
        let reply = match fields.kind {
            101 => Reply::Attached,
            102 => Reply::Failed {
                problem: Problem::parse(fields.u16("problem")?),
                data: fields.user_data()?,
            },
            103 => Reply::Joined(Joined {
                path: fields.u64("path")?,
                token: fields.token()?,
                peer: fields.name()?,
                flags: fields.u16("flags")?,
                data: fields.user_data()?,
                shape: fields.shape()?,
                ours: fields.allowance()?,
                theirs: fields.allowance()?,
            }),
            104 => Reply::Done { path: fields.u64("path")? },
            105 => Reply::Pending(Pending {
                path: fields.u64("path")?,
                from: fields.name()?,
                resource: fields.resource()?,
                kind: fields.kind()?,
                flags: fields.u16("flags")?,
                data: fields.user_data()?,
                shape: fields.shape()?,
            }),
            106 => Reply::Withdrawn { path: fields.u64("path")? },
            107 => Reply::Report { bytes: fields.u64("bytes")? },
            kind => return Err(Malformed::Kind { kind, serial: fields.serial }),
        };
        fields.end()?;
        Ok((fields.serial, reply))
    }
}

/// A packet that is being put together.
struct Body(Vec<u8>);

impl Body {
    fn new(kind: u16, serial: u32) -> Body {
        let mut body = Body(Vec::with_capacity(128));
        body.put(&MAGIC);
        body.put(&VERSION.to_le_bytes());
        body.put(&kind.to_le_bytes());
        body.put(&serial.to_le_bytes());
        body
    }

    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn target(&mut self, target: Target) {
        let (what, name) = match target {
            Target::Guest(name) => (0, name),
            Target::Resource(name) => (1, name),
        };
        self.put(&[what]);
        self.put(&name.bytes());
    }

    fn shape(&mut self, shape: Shape) {
        self.put(&[shape.outputs as u8, shape.inputs as u8]);
    }

    fn allowance(&mut self, allowance: Allowance) {
        self.put(&allowance.storage_bytes.to_le_bytes());
        self.put(&allowance.messages.to_le_bytes());
    }
}

/// What is left of a packet that is being taken apart.
struct Fields<'a> {
    kind: u16,
    serial: u32,
    left: &'a [u8],
}

impl<'a> Fields<'a> {
    fn new(packet: &'a [u8]) -> Result<Fields<'a>, Malformed> {
        let (header, left) = packet.split_first_chunk::<HEADER_BYTES>().ok_or(Malformed::Magic)?;
        let [a, b, c, d, v0, v1, k0, k1, s0, s1, s2, s3] = *header;
        if [a, b, c, d] != MAGIC {
            return Err(Malformed::Magic);
        }
        let serial = u32::from_le_bytes([s0, s1, s2, s3]);
        let found = u16::from_le_bytes([v0, v1]);
        if found != VERSION {
            return Err(Malformed::Version { found, serial });
        }
        Ok(Fields { kind: u16::from_le_bytes([k0, k1]), serial, left })
    }

    fn wrong(&self, field: &'static str) -> Malformed {
        Malformed::Field { kind: self.kind, serial: self.serial, field }
    }

    fn take<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Malformed> {
        let (bytes, left) = self.left.split_first_chunk().ok_or_else(|| self.wrong(field))?;
        self.left = left;
        Ok(*bytes)
    }

    fn u16(&mut self, field: &'static str) -> Result<u16, Malformed> {
        self.take(field).map(u16::from_le_bytes)
    }

    fn u32(&mut self, field: &'static str) -> Result<u32, Malformed> {
        self.take(field).map(u32::from_le_bytes)
    }

    fn u64(&mut self, field: &'static str) -> Result<u64, Malformed> {
        self.take(field).map(u64::from_le_bytes)
    }

    fn name(&mut self) -> Result<Name, Malformed> {
        let bytes = self.take("name")?;
        Name::parse(bytes).ok_or_else(|| self.wrong("name"))
    }

    fn target(&mut self) -> Result<Target, Malformed> {
        match self.take("target")? {
            [0] => Ok(Target::Guest(self.name()?)),
            [1] => Ok(Target::Resource(self.name()?)),
            _ => Err(self.wrong("target")),
        }
    }

    /// The name of a resource, or zeros.
    fn resource(&mut self) -> Result<Option<Name>, Malformed> {
        let bytes = self.take("resource")?;
        if bytes == [0; NAME_BYTES] {
            return Ok(None);
        }
        Name::parse(bytes).map(Some).ok_or_else(|| self.wrong("resource"))
    }

    fn scope(&mut self) -> Result<Scope, Malformed> {
        match self.take("scope")? {
            [0] => Ok(Scope::Local),
            [1] => Ok(Scope::Global),
            _ => Err(self.wrong("scope")),
        }
    }

    fn kind(&mut self) -> Result<Kind, Malformed> {
        self.u16("kind").map(Kind)
    }

    fn user_data(&mut self) -> Result<UserData, Malformed> {
        self.take("user data")
    }

    fn token(&mut self) -> Result<Token, Malformed> {
        self.take("token").map(Token)
    }

    fn shape(&mut self) -> Result<Shape, Malformed> {
        let [outputs, inputs] = self.take("shape")?;
        let shape = Shape { outputs: outputs.into(), inputs: inputs.into() };
        if shape.is_valid() { Ok(shape) } else { Err(self.wrong("shape")) }
    }

    fn allowance(&mut self) -> Result<Allowance, Malformed> {
        let storage_bytes = self.u64("allowance")?;
        Ok(Allowance { storage_bytes, messages: self.u32("allowance")? })
    }

    fn end(&self) -> Result<(), Malformed> {
        if self.left.is_empty() { Ok(()) } else { Err(self.wrong("length")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> Name {
        name.parse().unwrap()
    }

    const ALLOWANCE: Allowance = Allowance { storage_bytes: 1 << 33, messages: 7 };

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
        ];
        replies.extend(Problem::ALL.map(|problem| Reply::Failed { problem, data }));
        replies
    }

    #[test]
    fn attach_is_what_the_picture_says() {
        let bytes = b"SIGA\x01\x00\x01\x00\x04\x03\x02\x01CLIENT  ";
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
        assert_eq!(changed(4, 2), Malformed::Version { found: 2, serial: 7 });
        assert_eq!(changed(6, 101), Malformed::Kind { kind: 101, serial: 7 });
        assert_eq!(changed(12, b'c'), Malformed::Field { kind: 1, serial: 7, field: "name" });
        let mut connect = requests().swap_remove(2).bytes(7);
        connect[12 + 9 + 4 + 16] = 9;
        let error = Request::parse(&connect).unwrap_err();
        assert_eq!(error, Malformed::Field { kind: 3, serial: 7, field: "shape" });
    }
}
