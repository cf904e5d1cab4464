//! What the stacks of a distributed address say to each other: datagrams of UDP, in network byte order.
//!
//! ```text
//! byte 0        4     5      6       8                24
//!      | "SGDV" | 1   | kind | count | the address    | body
//!
//! kind 1, a distributor:  life u64, rank u8
//! kind 2, a target:       life u64, connections u32, 1 if it listens at more ports than follow u8, count times port u16
//! kind 3, a question:     count times flow
//! kind 4, an answer:      count times flow and 1 if the target has it u8
//! flow:                   client's address, its port u16, port u16
//! ```
//!
//! Addresses take 16 bytes, those of IPv4 as they are mapped into IPv6. A life is a number that another life of the same stack does not have.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::flows::Flow;

/// The port of UDP at both ends.
pub(in crate::tcpip) const PORT: u16 = 1043;

/// Flows in one datagram, at most: it fits into the shortest packet of IPv6.
pub(super) const FLOWS_MAX: usize = 48;

/// Ports in one datagram, at most. One that listens at more says so, and is taken for one that listens at all.
pub(super) const PORTS_MAX: usize = 256;

const MAGIC: [u8; 4] = *b"SGDV";
const EDITION: u8 = 1;
const HEAD_BYTES: usize = 24;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tcpip) enum Message {
    /// The sender distributes the address.
    Distributes { life: u64, rank: u8 },
    /// The sender is a target, with so many connections.
    Target { life: u64, connections: u32, listens: Listens },
    /// The sender asks which of these flows the target has.
    Question(Vec<Flow>),
    /// The flows that the sender has, and has not.
    Answer(Vec<(Flow, bool)>),
}

/// The ports at which a target listens at the address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::tcpip) enum Listens {
    /// More than are said one by one.
    #[default]
    AtMany,
    At(Vec<u16>),
}

impl Listens {
    pub(super) fn at(&self, port: u16) -> bool {
        match self {
            Listens::AtMany => true,
            Listens::At(ports) => ports.contains(&port),
        }
    }
}

impl Message {
    /// Writes the message about an address.
    pub(in crate::tcpip) fn bytes(&self, about: IpAddr) -> Vec<u8> {
        let (kind, count) = match self {
            Message::Distributes { .. } => (1, 0),
            Message::Target { listens: Listens::At(ports), .. } => (2, ports.len()),
            Message::Target { listens: Listens::AtMany, .. } => (2, 0),
            Message::Question(flows) => (3, flows.len()),
            Message::Answer(flows) => (4, flows.len()),
        };
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[EDITION, kind]);
        bytes.extend_from_slice(&(count as u16).to_be_bytes());
        put_address(&mut bytes, about);
        match self {
            Message::Distributes { life, rank } => {
                bytes.extend_from_slice(&life.to_be_bytes());
                bytes.push(*rank);
            }
            Message::Target { life, connections, listens } => {
                bytes.extend_from_slice(&life.to_be_bytes());
                bytes.extend_from_slice(&connections.to_be_bytes());
                bytes.push(u8::from(*listens == Listens::AtMany));
                if let Listens::At(ports) = listens {
                    bytes.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
                }
            }
            Message::Question(flows) => flows.iter().for_each(|flow| put_flow(&mut bytes, flow)),
            Message::Answer(flows) => {
                for (flow, has) in flows {
                    put_flow(&mut bytes, flow);
                    bytes.push(u8::from(*has));
                }
            }
        }
        bytes
    }

    /// Reads a message and the address that it is about. None if it is none, or longer or shorter than it says.
    pub(in crate::tcpip) fn parse(bytes: &[u8]) -> Option<(IpAddr, Message)> {
        let mut rest = Rest(bytes);
        if rest.take::<4>()? != MAGIC || rest.byte()? != EDITION {
            return None;
        }
        let kind = rest.byte()?;
        let count = usize::from(u16::from_be_bytes(rest.take()?));
        let about = rest.address()?;
        debug_assert_eq!(bytes.len() - rest.0.len(), HEAD_BYTES);
        let message = match kind {
            1 if count == 0 => Message::Distributes { life: rest.number()?, rank: rest.byte()? },
            2 if count <= PORTS_MAX => {
                let life = rest.number()?;
                let connections = u32::from_be_bytes(rest.take()?);
                let is_at_many = rest.flag()?;
                let ports = (0..count).map(|_| rest.take().map(u16::from_be_bytes));
                let ports = ports.collect::<Option<Vec<_>>>()?;
                let listens = match is_at_many {
                    true if count > 0 => return None,
                    true => Listens::AtMany,
                    false => Listens::At(ports),
                };
                Message::Target { life, connections, listens }
            }
            3 if count <= FLOWS_MAX => {
                Message::Question((0..count).map(|_| rest.flow()).collect::<Option<_>>()?)
            }
            4 if count <= FLOWS_MAX => {
                let mut one = || Some((rest.flow()?, rest.flag()?));
                Message::Answer((0..count).map(|_| one()).collect::<Option<_>>()?)
            }
            _ => return None,
        };
        rest.0.is_empty().then_some((about, message))
    }
}

fn put_address(bytes: &mut Vec<u8>, address: IpAddr) {
    let address = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    bytes.extend_from_slice(&address.octets());
}

fn put_flow(bytes: &mut Vec<u8>, flow: &Flow) {
    put_address(bytes, flow.client.ip());
    bytes.extend_from_slice(&flow.client.port().to_be_bytes());
    bytes.extend_from_slice(&flow.port.to_be_bytes());
}

/// The bytes that were not read yet.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    fn address(&mut self) -> Option<IpAddr> {
        self.take::<16>().map(|octets| IpAddr::V6(Ipv6Addr::from(octets)).to_canonical())
    }

    fn flow(&mut self) -> Option<Flow> {
        let address = self.address()?;
        let [client, port] = [self.take()?, self.take()?].map(u16::from_be_bytes);
        (client != 0 && port != 0)
            .then_some(Flow { client: SocketAddr::new(address, client), port })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn messages() -> Vec<Message> {
        let flow = |client: &str, port| Flow { client: client.parse().unwrap(), port };
        let flows = vec![flow("10.1.0.9:1024", 80), flow("[fd00::9]:65535", 443)];
        vec![
            Message::Distributes { life: 0x0102_0304_0506_0708, rank: 2 },
            Message::Target { life: 9, connections: 77, listens: Listens::At(vec![80, 443]) },
            Message::Target { life: 9, connections: 0, listens: Listens::AtMany },
            Message::Question(flows.clone()),
            Message::Answer(flows.into_iter().zip([true, false]).collect()),
        ]
    }

    #[test]
    fn first_message_is_byte_for_byte_what_the_picture_says() {
        let bytes = messages()[0].bytes("10.1.0.100".parse().unwrap());
        let mut expected = b"SGDV\x01\x01\x00\x00".to_vec();
        expected.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 0, 100]);
        expected.extend([1, 2, 3, 4, 5, 6, 7, 8, 2]);
        assert_eq!(bytes, expected);
    }

    #[test]
    fn messages_are_read_as_they_were_written_and_none_that_is_longer_or_shorter() {
        for about in ["10.1.0.100", "fd00::100"] {
            let about: IpAddr = about.parse().unwrap();
            for message in messages() {
                let mut bytes = message.bytes(about);
                assert_eq!(Message::parse(&bytes), Some((about, message)));
                for length in 0..bytes.len() {
                    assert_eq!(Message::parse(&bytes[..length]), None);
                }
                bytes.push(0);
                assert_eq!(Message::parse(&bytes), None);
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_much(at in 0..5usize, change in 0..200usize, value in any::<u8>(), rest in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut bytes = messages()[at].bytes("10.1.0.100".parse().unwrap());
            let change = change % bytes.len();
            bytes[change] = value;
            bytes.extend(&rest);
            if let Some((about, message)) = Message::parse(&bytes) {
                prop_assert_eq!(message.bytes(about), bytes);
            }
            let _ = Message::parse(&rest);
        }
    }
}
