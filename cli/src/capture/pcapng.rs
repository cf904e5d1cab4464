//! Files of packets in the format pcapng, as `draft-ietf-opsawg-pcapng` describes it, as far as a capture needs it.
//!
//! ```text
//! block   0  type u32
//!         4  bytes of the block u32
//!         8  body, options; each option: code u16, bytes u16, value up to a multiple of 4
//!        -4  bytes of the block u32
//! ```
//!
//! Numbers are little-endian, which the section header says. Times are nanoseconds since 1970, which each interface
//! says. The crate `pcap-file` reads and writes the whole format, but its version 3 is a release candidate; `pcapng-writer`
//! has stood at 0.1.0 for years. Four kinds of blocks are less than either.

use std::io::{self, Write};

use siga::lan::Mac;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const LINK_ETHERNET: u16 = 1;

const END: u16 = 0;
const SECTION_PROGRAM: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_ABOUT: u16 = 3;
const INTERFACE_MAC: u16 = 6;
const INTERFACE_RESOLUTION: u16 = 9;
/// Times in units of ten to the minus ninth.
const NANOSECONDS: u8 = 9;
/// Whose low two bits are the direction.
const PACKET_FLAGS: u16 = 2;
const PACKET_DROPS: u16 = 4;
const STATISTICS_START: u16 = 2;
const STATISTICS_END: u16 = 3;
const STATISTICS_RECEIVED: u16 = 4;
const STATISTICS_DROPPED: u16 = 5;

/// Bytes that are gathered before they are written: with each frame copied once, and a call for many.
const GATHERED_BYTES: usize = 1 << 20;

/// Writes a file of one section.
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
    /// Blocks that are to be written, the last of which may not be whole.
    gathered: Vec<u8>,
    /// Where the last one begins.
    begun: usize,
    interfaces: u32,
}

/// Where packets come from.
#[derive(Clone, Debug)]
pub struct Interface {
    pub name: String,
    pub about: String,
    pub mac: Option<Mac>,
}

/// The fields of a packet beside its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// The number of its interface.
    pub interface: u32,
    /// When it was sent, since 1970.
    pub time_ns: u64,
    /// How many of its bytes are written, at most.
    pub kept_bytes_max: usize,
    /// Packets of the interface that were lost since the one before.
    pub lost: u64,
    /// Its direction at the interface, if there is one.
    pub direction: Option<Direction>,
}

/// The direction of a packet at an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Inbound,
    Outbound,
}

/// Counters of an interface between two times.
#[derive(Clone, Copy, Debug)]
pub struct Statistics {
    pub start_ns: u64,
    pub end_ns: u64,
    /// Packets, those that were lost included.
    pub received: u64,
    pub lost: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a file that this program has written.
    pub fn new(output: W, program: &str) -> io::Result<Writer<W>> {
        let gathered = Vec::with_capacity(GATHERED_BYTES);
        let mut writer = Writer { output, gathered, begun: 0, interfaces: 0 };
        writer.begin(SECTION_HEADER);
        writer.put(&BYTE_ORDER.to_le_bytes());
        // Version 1.0, and a section whose length is not known.
        writer.put(&[1, 0, 0, 0]);
        writer.put(&u64::MAX.to_le_bytes());
        writer.option(SECTION_PROGRAM, program.as_bytes());
        writer.end_options();
        writer.end()?;
        Ok(writer)
    }

    /// Adds an interface, whose packets have at most `snap` bytes here (0: any number). Returns its number.
    pub fn interface(&mut self, interface: &Interface, snap: u32) -> io::Result<u32> {
        let number = self.interfaces;
        self.interfaces += 1;
        self.begin(INTERFACE_DESCRIPTION);
        self.put(&LINK_ETHERNET.to_le_bytes());
        self.put(&[0; 2]);
        self.put(&snap.to_le_bytes());
        self.option(INTERFACE_NAME, interface.name.as_bytes());
        self.option(INTERFACE_ABOUT, interface.about.as_bytes());
        if let Some(mac) = interface.mac {
            self.option(INTERFACE_MAC, &mac.0);
        }
        self.option(INTERFACE_RESOLUTION, &[NANOSECONDS]);
        self.end_options();
        self.end()?;
        Ok(number)
    }

    /// Adds a packet, whose bytes `put` appends to what it is given.
    pub fn packet(&mut self, packet: Packet, put: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let Packet { interface, time_ns, kept_bytes_max, lost, direction } = packet;
        self.begin(ENHANCED_PACKET);
        self.put(&interface.to_le_bytes());
        self.time(time_ns);
        // The lengths are put here when they are known.
        self.put(&[0; 8]);
        let from = self.gathered.len();
        put(&mut self.gathered);
        let length = self.gathered.len() - from;
        let kept = length.min(kept_bytes_max);
        self.gathered.truncate(from + kept);
        self.gathered[from - 8..from - 4].copy_from_slice(&(kept as u32).to_le_bytes());
        self.gathered[from - 4..from].copy_from_slice(&(length as u32).to_le_bytes());
        self.pad();
        if let Some(direction) = direction {
            let flags: u32 = match direction {
                Direction::Inbound => 1,
                Direction::Outbound => 2,
            };
            self.option(PACKET_FLAGS, &flags.to_le_bytes());
        }
        if lost > 0 {
            self.option(PACKET_DROPS, &lost.to_le_bytes());
        }
        if lost > 0 || direction.is_some() {
            self.end_options();
        }
        self.end()
    }

    /// Adds what happened at an interface.
    pub fn statistics(&mut self, interface: u32, statistics: Statistics) -> io::Result<()> {
        let Statistics { start_ns, end_ns, received, lost } = statistics;
        self.begin(INTERFACE_STATISTICS);
        self.put(&interface.to_le_bytes());
        self.time(end_ns);
        for (code, time_ns) in [(STATISTICS_START, start_ns), (STATISTICS_END, end_ns)] {
            self.put(&code.to_le_bytes());
            self.put(&8u16.to_le_bytes());
            self.time(time_ns);
        }
        self.option(STATISTICS_RECEIVED, &received.to_le_bytes());
        self.option(STATISTICS_DROPPED, &lost.to_le_bytes());
        self.end_options();
        self.end()
    }

    /// Writes what was gathered.
    pub fn flush(&mut self) -> io::Result<()> {
        let written = self.output.write_all(&self.gathered);
        self.gathered.clear();
        written?;
        self.output.flush()
    }

    fn begin(&mut self, kind: u32) {
        self.begun = self.gathered.len();
        self.put(&kind.to_le_bytes());
        // The length is put here at the end.
        self.put(&[0; 4]);
    }

    fn end(&mut self) -> io::Result<()> {
        let bytes = ((self.gathered.len() - self.begun) as u32 + 4).to_le_bytes();
        self.gathered[self.begun + 4..self.begun + 8].copy_from_slice(&bytes);
        self.put(&bytes);
        if self.gathered.len() >= GATHERED_BYTES / 2 { self.flush() } else { Ok(()) }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.gathered.extend_from_slice(bytes);
    }

    /// Fills the last block up to a multiple of 4 bytes, which all before it have.
    fn pad(&mut self) {
        self.gathered.resize(self.gathered.len().next_multiple_of(4), 0);
    }

    /// A time, the high half first.
    fn time(&mut self, time_ns: u64) {
        self.put(&((time_ns >> 32) as u32).to_le_bytes());
        self.put(&(time_ns as u32).to_le_bytes());
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        // A longer text is cut: its length would not fit.
        let value = &value[..value.len().min(usize::from(u16::MAX))];
        self.put(&code.to_le_bytes());
        self.put(&(value.len() as u16).to_le_bytes());
        self.put(value);
        self.pad();
    }

    fn end_options(&mut self) {
        self.put(&END.to_le_bytes());
        self.put(&[0; 2]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Writer<Vec<u8>>)) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), "siga").unwrap();
        let head = writer.gathered.len();
        write(&mut writer);
        writer.flush().unwrap();
        writer.output.split_off(head)
    }

    #[test]
    fn section_says_byte_order_version_and_program() {
        let mut writer = Writer::new(Vec::new(), "siga").unwrap();
        writer.flush().unwrap();
        let head = b"\x0a\x0d\x0d\x0a\x28\0\0\0\x4d\x3c\x2b\x1a\x01\0\0\0\
            \xff\xff\xff\xff\xff\xff\xff\xff\x04\0\x04\0siga\0\0\0\0\x28\0\0\0";
        assert_eq!(writer.output, head);
    }

    #[test]
    fn interface_says_name_address_and_nanoseconds() {
        let interface = Interface {
            name: "ALICE".to_owned(),
            about: "guest".to_owned(),
            mac: Some(Mac([2, 0x53, 0x47, 0, 0, 1])),
        };
        let bytes = written(|writer| {
            assert_eq!(writer.interface(&interface, 96).unwrap(), 0);
        });
        let expected = b"\x01\0\0\0\x44\0\0\0\x01\0\0\0\x60\0\0\0\
            \x02\0\x05\0ALICE\0\0\0\x03\0\x05\0guest\0\0\0\x06\0\x06\0\x02SG\0\0\x01\0\0\
            \x09\0\x01\0\x09\0\0\0\0\0\0\0\x44\0\0\0";
        assert_eq!(bytes, expected);
    }

    #[test]
    fn packet_says_time_lengths_and_what_was_lost() {
        let time_ns = 0x0102_0304_0506_0708;
        let packet = Packet { interface: 1, time_ns, kept_bytes_max: 5, lost: 0, direction: None };
        let frame = |room: &mut Vec<u8>| {
            room.extend_from_slice(b"hello");
            room.resize(room.len() + 55, 1);
        };
        let bytes = written(|writer| writer.packet(packet, frame).unwrap());
        let expected = b"\x06\0\0\0\x28\0\0\0\x01\0\0\0\x04\x03\x02\x01\x08\x07\x06\x05\
            \x05\0\0\0\x3c\0\0\0hello\0\0\0\x28\0\0\0";
        assert_eq!(bytes, expected);
        let bytes = written(|writer| writer.packet(Packet { lost: 7, ..packet }, frame).unwrap());
        let expected = b"hello\0\0\0\x04\0\x08\0\x07\0\0\0\0\0\0\0\0\0\0\0\x38\0\0\0";
        assert_eq!(bytes[28..], expected[..]);
        for (direction, flags) in [(Direction::Inbound, 1), (Direction::Outbound, 2)] {
            let packet = Packet { direction: Some(direction), ..packet };
            let bytes = written(|writer| writer.packet(packet, frame).unwrap());
            let mut expected = *b"hello\0\0\0\x02\0\x04\0\x01\0\0\0\0\0\0\0\x34\0\0\0";
            expected[12] = flags;
            assert_eq!(bytes[28..], expected[..]);
        }
    }

    #[test]
    fn statistics_say_what_came_and_what_was_lost() {
        let statistics = Statistics { start_ns: 1 << 32, end_ns: 2 << 32, received: 9, lost: 4 };
        let bytes = written(|writer| writer.statistics(3, statistics).unwrap());
        let expected = b"\x05\0\0\0\x4c\0\0\0\x03\0\0\0\x02\0\0\0\0\0\0\0\
            \x02\0\x08\0\x01\0\0\0\0\0\0\0\x03\0\x08\0\x02\0\0\0\0\0\0\0\
            \x04\0\x08\0\x09\0\0\0\0\0\0\0\x05\0\x08\0\x04\0\0\0\0\0\0\0\0\0\0\0\x4c\0\0\0";
        assert_eq!(bytes, expected);
    }
}
