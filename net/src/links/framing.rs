//! Framing: how packets lie in the messages of a line.
//!
//! Numbers are in network order. A message has one packet or several, one behind the other.
//!
//! ```text
//! netiucv, as Linux' driver of this name has it: `next` is where the next header begins, counted from the start of
//! the message, and 0 in the header behind the last packet
//!     | next u16 | packet | next u16 | packet | .. | 0 u16 |
//!
//! ctcm, as Linux' driver of this name has it: all lengths include their headers
//!     | block length u16 | length u16 | type u16 | 0 u16 | packet | length u16 | type u16 | 0 u16 | packet | ..
//!
//! wide, which is our own: the length is that of the packet alone, and the message ends with the last packet
//!     | length u32 | packet | length u32 | packet | ..
//! ```
//!
//! What comes from the partner is checked one packet at a time: each header leads forward, so a message of n bytes
//! holds fewer than n packets, and those in front of a fault are good.

use std::ops::Range;

use crate::lan::frame::{u16_at, u32_at};

/// Bytes of netiucv's buffer: of the longest message.
pub const NETIUCV_BYTES_MAX: usize = 32_768;

/// Bytes of ctcm's buffer unless the MTU needs more.
pub const CTCM_BYTES: usize = 32_768;

/// Bytes of the longest block of ctcm, whose length has 16 bits.
pub const CTCM_BYTES_MAX: usize = 65_535;

/// Bytes of the longest message of the wide framing: 2 MiB of packets and one header.
pub const WIDE_BYTES_MAX: usize = (2 << 20) + 4;

/// Bytes of the shortest message of netiucv: a header, a packet of one byte, and the end mark.
const NETIUCV_BYTES_MIN: usize = 5;

/// Bytes that may follow a block of ctcm: drivers of OS/390 write two more than they say.
const CTCM_SURPLUS_MAX: usize = 2;

/// Types of packets, as Ethernet has them.
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// How packets lie in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Framing {
    /// Headers are offsets of 16 bits.
    Netiucv,
    /// Headers are lengths of 16 bits and a type, behind the length of the block.
    Ctcm,
    /// Headers are lengths of 32 bits.
    Wide,
}

/// The first fault of a message. The packets in front of it are good, and nothing behind it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The message is shorter than one with a packet.
    #[error("a message of {bytes} bytes: must be {least} at least")]
    Short {
        /// Its length.
        bytes: usize,
        /// That of the shortest.
        least: usize,
    },
    /// The block says that it has another length than the message.
    #[error("a block of {said} bytes: the message has {bytes}")]
    BlockLength {
        /// What it says.
        said: usize,
        /// What it has.
        bytes: usize,
    },
    /// A header leads to where it is, or in front of it, or its packet has no byte.
    #[error("the header at {at} says {said}: must lead past itself")]
    Back {
        /// Where the header is.
        at: usize,
        /// The offset or length in it.
        said: usize,
    },
    /// A header leads out of the message.
    #[error("the header at {at} says {said}: leads out of the message of {bytes} bytes")]
    Out {
        /// Where the header is.
        at: usize,
        /// The offset or length in it.
        said: usize,
        /// Bytes of the message.
        bytes: usize,
    },
    /// Behind the last packet are bytes that are neither a header nor an end mark.
    #[error("{bytes} bytes behind the last packet, at {at}, are no header")]
    Trailing {
        /// Where they begin.
        at: usize,
        /// How many there are.
        bytes: usize,
    },
    /// The packet is of a type that no line carries. Those behind it are looked at.
    #[error("a packet of type {found:04x}: must be IPv4 (0800) or IPv6 (86dd)")]
    Type {
        /// The type.
        found: u16,
    },
    /// The packet is not of the version of IP that its type says, or of none. Those behind it are looked at.
    #[error("a packet that begins with {found:02x}: must be IPv4 or IPv6, as its header says")]
    NoPacket {
        /// Its first byte.
        found: u8,
    },
}

impl Malformed {
    /// Returns true if the packets behind this one can be found.
    fn goes_on(self) -> bool {
        matches!(self, Malformed::Type { .. } | Malformed::NoPacket { .. })
    }
}

impl Framing {
    /// Bytes in front of each packet.
    pub const fn header_bytes(self) -> usize {
        match self {
            Framing::Netiucv => 2,
            Framing::Ctcm => 6,
            Framing::Wide => 4,
        }
    }

    /// Bytes of a message beside its packets and their headers.
    const fn fixed_bytes(self) -> usize {
        match self {
            // The end mark, or the block length.
            Framing::Netiucv | Framing::Ctcm => 2,
            Framing::Wide => 0,
        }
    }

    /// Bytes of a message with one packet of `packet_bytes`.
    pub const fn message_bytes(self, packet_bytes: usize) -> usize {
        self.fixed_bytes() + self.header_bytes() + packet_bytes
    }

    /// Bytes of the longest message that this framing can describe.
    pub const fn message_bytes_max(self) -> usize {
        match self {
            Framing::Netiucv => NETIUCV_BYTES_MAX,
            Framing::Ctcm => CTCM_BYTES_MAX,
            Framing::Wide => WIDE_BYTES_MAX,
        }
    }

    /// Bytes of the longest packet that fits into a message of `message_bytes`.
    pub const fn packet_bytes_max(self, message_bytes: usize) -> usize {
        message_bytes.saturating_sub(self.fixed_bytes() + self.header_bytes())
    }

    /// Where the headers of the first packet begin.
    const fn start(self) -> usize {
        match self {
            Framing::Ctcm => 2,
            Framing::Netiucv | Framing::Wide => 0,
        }
    }

    /// Writes a message with one packet into `target`, which has [`Framing::message_bytes`] of it. `write` writes the packet.
    ///
    /// # Panics
    /// If `target` has another length than such a message, or one that the framing cannot describe: a broken promise inside this program.
    pub fn write_one(self, is_v4: bool, target: &mut [u8], write: impl FnOnce(&mut [u8])) {
        let packet_bytes = self.packet_bytes_max(target.len());
        assert!(
            packet_bytes > 0 && target.len() <= self.message_bytes_max(),
            "a message of {} bytes",
            target.len()
        );
        let at = self.start();
        let packet = at + self.header_bytes();
        self.write_header(is_v4, at, packet_bytes, target);
        write(&mut target[packet..packet + packet_bytes]);
        self.close(target);
    }

    /// Writes the header at `at` of a packet of `packet_bytes`.
    fn write_header(self, is_v4: bool, at: usize, packet_bytes: usize, target: &mut [u8]) {
        // No length is beyond `message_bytes_max`, so that none is cut.
        match self {
            Framing::Netiucv => {
                let next = (at + 2 + packet_bytes) as u16;
                target[at..at + 2].copy_from_slice(&next.to_be_bytes());
            }
            Framing::Ctcm => {
                let length = (6 + packet_bytes) as u16;
                let kind = if is_v4 { IPV4 } else { IPV6 };
                target[at..at + 2].copy_from_slice(&length.to_be_bytes());
                target[at + 2..at + 4].copy_from_slice(&kind.to_be_bytes());
                target[at + 4..at + 6].copy_from_slice(&[0, 0]);
            }
            Framing::Wide => {
                target[at..at + 4].copy_from_slice(&(packet_bytes as u32).to_be_bytes());
            }
        }
    }

    /// Writes what a message has beside its packets.
    fn close(self, message: &mut [u8]) {
        let bytes = message.len();
        match self {
            Framing::Netiucv => message[bytes - 2..].copy_from_slice(&[0, 0]),
            Framing::Ctcm => message[..2].copy_from_slice(&(bytes as u16).to_be_bytes()),
            Framing::Wide => {}
        }
    }
}

/// A message that packets are added to.
#[derive(Debug)]
pub struct Collected {
    framing: Framing,
    bytes_max: usize,
    bytes: Vec<u8>,
    packets: usize,
}

impl Collected {
    /// An empty message of at most `bytes_max` bytes, or fewer if the framing cannot describe as many.
    pub fn new(framing: Framing, bytes_max: usize) -> Collected {
        let bytes_max = bytes_max.min(framing.message_bytes_max());
        Collected { framing, bytes_max, bytes: Vec::new(), packets: 0 }
    }

    /// Returns how many packets there are.
    pub fn packets(&self) -> usize {
        self.packets
    }

    /// Returns true if there is no packet.
    pub fn is_empty(&self) -> bool {
        self.packets == 0
    }

    /// Bytes of the message with one more packet of `packet_bytes`.
    fn bytes_with(&self, packet_bytes: usize) -> usize {
        let framing = self.framing;
        // The block length is at the start, and the end mark behind the last packet.
        let closing = framing.fixed_bytes() - framing.start();
        self.bytes.len().max(framing.start()) + framing.header_bytes() + packet_bytes + closing
    }

    /// Returns true if there is room for a packet of `packet_bytes`.
    pub fn has_room(&self, packet_bytes: usize) -> bool {
        packet_bytes > 0 && self.bytes_with(packet_bytes) <= self.bytes_max
    }

    /// Adds a packet of `packet_bytes`, which `write` writes. False if the message has no room for it: nothing is added then.
    #[must_use]
    pub fn add(&mut self, is_v4: bool, packet_bytes: usize, write: impl FnOnce(&mut [u8])) -> bool {
        if !self.has_room(packet_bytes) {
            return false;
        }
        let framing = self.framing;
        let at = self.bytes.len().max(framing.start());
        let packet = at + framing.header_bytes();
        self.bytes.resize(packet + packet_bytes, 0);
        framing.write_header(is_v4, at, packet_bytes, &mut self.bytes);
        write(&mut self.bytes[packet..]);
        self.packets += 1;
        true
    }

    /// Returns the message, with its end. Packets that are added after that are behind those that are there.
    pub fn message(&mut self) -> Message<'_> {
        let framing = self.framing;
        let open = self.bytes.len().max(framing.start());
        self.bytes.resize(open, 0);
        if framing.fixed_bytes() > framing.start() {
            self.bytes.resize(open + framing.fixed_bytes(), 0);
        }
        framing.close(&mut self.bytes);
        Message { bytes: &mut self.bytes, open }
    }

    /// Forgets all packets. The memory is kept for the next.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.packets = 0;
    }
}

/// A message with its end, which is taken off again when it is dropped: it may have to wait, and grow meanwhile.
#[derive(Debug)]
pub struct Message<'a> {
    bytes: &'a mut Vec<u8>,
    open: usize,
}

impl std::ops::Deref for Message<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl Drop for Message<'_> {
    fn drop(&mut self) {
        self.bytes.truncate(self.open);
    }
}

/// A walk over the packets of a message. It keeps no reference to the message, so that whoever takes a packet may overwrite what lies
/// in front of the packet: it is never looked at again.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    framing: Framing,
    /// Where the next header is. None: there is none, or a fault was found.
    at: Option<usize>,
    /// Bytes that are looked at: those of the block.
    end: usize,
}

impl Walk {
    /// A walk over `message`.
    ///
    /// # Errors
    /// [`Malformed`] if the message has no good packet because of its length.
    pub fn new(framing: Framing, message: &[u8]) -> Result<Walk, Malformed> {
        let bytes = message.len();
        let least = match framing {
            Framing::Netiucv => NETIUCV_BYTES_MIN,
            Framing::Ctcm | Framing::Wide => framing.message_bytes(1),
        };
        if bytes < least {
            return Err(Malformed::Short { bytes, least });
        }
        let end = match framing {
            Framing::Ctcm => {
                let said = usize::from(u16_at(message, 0).unwrap_or(0));
                if said > bytes || said < least || bytes - said > CTCM_SURPLUS_MAX {
                    return Err(Malformed::BlockLength { said, bytes });
                }
                said
            }
            Framing::Netiucv | Framing::Wide => bytes,
        };
        Ok(Walk { framing, at: Some(framing.start()), end })
    }

    /// Returns true if there is no other packet.
    pub fn is_over(&self) -> bool {
        self.at.is_none()
    }

    /// Returns where the next packet is in the same message as before; none if there is no other.
    ///
    /// # Errors
    /// [`Malformed`]. If the fault is in a header there is no next packet; if it is one of the packet, the walk goes on behind it.
    pub fn next(&mut self, message: &[u8]) -> Option<Result<Range<usize>, Malformed>> {
        let at = self.at.take()?;
        let message = message.get(..self.end)?;
        match self.framing.read(message, at) {
            Ok(None) => None,
            Ok(Some((packet, next, kind))) => {
                self.at = Some(next);
                Some(check(&message[packet.clone()], kind).map(|()| packet))
            }
            Err(fault) => {
                debug_assert!(!fault.goes_on(), "a fault of a header: {fault}");
                Some(Err(fault))
            }
        }
    }
}

/// Where a packet is, where the header behind it is, and the type that its own header says.
type Read = (Range<usize>, usize, Option<u16>);

impl Framing {
    /// Reads the header at `at`. None: it is the end.
    fn read(self, message: &[u8], at: usize) -> Result<Option<Read>, Malformed> {
        let bytes = message.len();
        let left = bytes.saturating_sub(at);
        if left == 0 && self != Framing::Netiucv {
            return Ok(None);
        }
        if left < self.header_bytes() {
            return Err(Malformed::Trailing { at, bytes: left });
        }
        let packet = at + self.header_bytes();
        let (said, end, kind) = match self {
            Framing::Netiucv => {
                let next = usize::from(u16_at(message, at).unwrap_or(0));
                if next == 0 {
                    return match left - 2 {
                        0 => Ok(None),
                        more => Err(Malformed::Trailing { at: at + 2, bytes: more }),
                    };
                }
                (next, next, None)
            }
            Framing::Ctcm => {
                let length = usize::from(u16_at(message, at).unwrap_or(0));
                (length, at + length, u16_at(message, at + 2))
            }
            Framing::Wide => {
                let length = u32_at(message, at).unwrap_or(0) as usize;
                (length, packet.saturating_add(length), None)
            }
        };
        if end <= packet {
            return Err(Malformed::Back { at, said });
        }
        if end > bytes {
            return Err(Malformed::Out { at, said, bytes });
        }
        Ok(Some((packet..end, end, kind)))
    }
}

/// Checks that a packet is one of IP, of the version that its header says.
fn check(packet: &[u8], kind: Option<u16>) -> Result<(), Malformed> {
    let found = packet.first().copied().unwrap_or(0);
    let wanted = match kind {
        None => found >> 4,
        Some(IPV4) => 4,
        Some(IPV6) => 6,
        Some(found) => return Err(Malformed::Type { found }),
    };
    match (wanted, found >> 4) {
        (4, 4) | (6, 6) => Ok(()),
        _ => Err(Malformed::NoPacket { found }),
    }
}

#[cfg(test)]
mod tests;
