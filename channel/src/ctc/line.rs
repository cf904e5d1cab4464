//! A guest's end of a line: channel programs on the read and the write subchannel, as Linux's ctcm writes them.
//!
//! ```text
//! read    PREPARE (CC, SLI)            READ  (CC, SLI) to the read buffer     NOP (SLI)
//! write   PREPARE (CC, SLI)            WRITE (CC, SLI) from the write buffer  NOP (SLI)
//! mode    SET EXTENDED MODE (CC, SLI)  NOP (SLI)
//! ```
//!
//! `drivers/s390/net/ctcm_main.c` of Linux, `add_channel`. PREPARE keeps both sides from busy and attention: a side that has nothing to do
//! waits in PREPARE, and not in READ. The two subchannels know nothing of each other, and each has one program at a time.

use std::io;

use fabric::path::{Receiver, SendError, Sender};

use super::TRANSFER_BYTES_MAX;
use super::command::code;
use super::unit::{ADAPTERS, READ_SUBCHANNEL, WRITE_SUBCHANNEL};
use crate::client::{Client, ClientError, Event};
use crate::format::ccw::{CCW_BYTES, Ccw, CcwFlags, CcwFormat};
use crate::format::orb::{ALL_PATHS, Orb, OrbFlags};
use crate::format::scsw::{DeviceStatus, Scsw, SubchannelStatus, control};
use crate::request;

/// The longest block: a CCW counts 16 bits.
pub const BLOCK_BYTES_MAX: u32 = u16::MAX as u32;
const _: () = assert!(BLOCK_BYTES_MAX <= TRANSFER_BYTES_MAX);

/// CCWs of a program at most.
pub const CCWS_MAX: usize = 16;
/// Storage for the program of a subchannel.
const PROGRAM_BYTES: usize = CCWS_MAX * CCW_BYTES;
const PAGE_BYTES: u32 = 4096;
const _: () = assert!(PROGRAM_BYTES * ADAPTERS <= PAGE_BYTES as usize);

/// Both buffers begin on a page: the read buffer behind the programs, the write buffer behind the read buffer.
const READ_BUFFER: u32 = PAGE_BYTES;

/// Why a program was not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The subchannel has a program.
    #[error("subchannel {subchannel} has a program")]
    Busy {
        /// Which.
        subchannel: u16,
    },
    /// The block is empty, or longer than the buffer.
    #[error("a block of {bytes} bytes: must be 1 to {most}")]
    Block {
        /// Bytes of the block.
        bytes: u32,
        /// The longest.
        most: u32,
    },
    /// No CCWs, or too many; or there is no such subchannel.
    #[error("{ccws} CCWs on subchannel {subchannel}: must be 1 to {CCWS_MAX}, on 0 or 1")]
    Program {
        /// The subchannel.
        subchannel: u16,
        /// How many CCWs.
        ccws: usize,
    },
    /// The path takes nothing.
    #[error(transparent)]
    Send(#[from] SendError),
}

/// How a program has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// All commands are done.
    Done,
    /// The peer has written the end of a file (unit exception).
    EndOfFile,
    /// The peer has a command that must be answered first (busy and attention): the program, or the rest of it, was not done.
    Collided,
    /// Unit check, with byte 0 of the sense: 40 the peer's system was reset or is gone, 41 the peer was halted, 80 command reject.
    Check(u8),
    /// It was halted or cleared.
    Stopped,
    /// All else: a wrong length, a program check, a path that does not answer. The status says which.
    Failed,
}

/// What has happened on a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LineEvent {
    /// Programs can be started.
    Attached,
    /// A program has ended. What was read is to be had from [`Line::copy`] until the next event is asked for, or something is started.
    Ended {
        /// Where it ran.
        subchannel: u16,
        /// How.
        end: End,
        /// Bytes that it has read.
        bytes: u32,
        /// Bytes of the count of its last command that were not moved.
        residual: u16,
        /// All of its status.
        status: Scsw,
    },
    /// The peer waits for a command of this side (attention), or is ready again (device end).
    Interruption {
        /// Of which subchannel.
        subchannel: u16,
        /// Attention, device end, or both.
        status: DeviceStatus,
    },
    /// A request was not accepted.
    Refused {
        /// Of which subchannel.
        subchannel: u16,
        /// The condition code: 1 there is nothing to halt or clear, 2 busy, 3 not there.
        code: u8,
    },
}

/// A guest's end of a line. The caller has the two halves of the path to the channel, and waits.
#[derive(Debug)]
pub struct Line {
    client: Client,
    block_bytes: u32,
    is_running: [bool; ADAPTERS],
}

impl Line {
    /// Makes storage for programs and for a block of each direction, and lends it to the channel. Blocks have up to `block_bytes`.
    ///
    /// # Errors
    /// `block_bytes` is not 1 to [`BLOCK_BYTES_MAX`]; no memory or no descriptors left, or the path takes nothing.
    pub fn new(block_bytes: u32, sender: &mut Sender) -> io::Result<Line> {
        if !(1..=BLOCK_BYTES_MAX).contains(&block_bytes) {
            let wrong = format!("blocks of {block_bytes} bytes: must be 1 to {BLOCK_BYTES_MAX}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, wrong));
        }
        let bytes = READ_BUFFER + 2 * block_bytes.next_multiple_of(PAGE_BYTES);
        let client = Client::new(bytes as usize, sender)?;
        Ok(Line { client, block_bytes, is_running: [false; ADAPTERS] })
    }

    /// The longest block.
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Returns true if a subchannel has a program that has not ended.
    pub fn is_running(&self, subchannel: u16) -> bool {
        self.is_running.get(usize::from(subchannel)).copied().unwrap_or(false)
    }

    /// The address of the write buffer in the storage, for programs of the caller's own.
    pub fn write_address(&self) -> u32 {
        READ_BUFFER + self.block_bytes.next_multiple_of(PAGE_BYTES)
    }

    /// The address of the read buffer in the storage, for programs of the caller's own.
    pub fn read_address(&self) -> u32 {
        READ_BUFFER
    }

    /// The write buffer. It must not change while a program writes it: the channel reads it at some time between start and end.
    pub fn write_buffer(&mut self) -> &mut [u8] {
        let (start, bytes) = (self.write_address() as usize, self.block_bytes as usize);
        &mut self.client.storage()[start..start + bytes]
    }

    /// Starts a read program on the read subchannel. It ends when the peer has written a block.
    ///
    /// # Errors
    /// [`StartError`]; nothing was started then.
    pub fn read(&mut self, sender: &mut Sender) -> Result<(), StartError> {
        let read = (code::READ, self.block_bytes as u16, READ_BUFFER);
        self.start_prepared(READ_SUBCHANNEL, read, sender)
    }

    /// Starts a write program on the write subchannel, with the first bytes of the write buffer. It ends when the peer has read them, or
    /// as many as the peer's READ takes.
    ///
    /// # Errors
    /// [`StartError`]; nothing was started then.
    pub fn write(&mut self, bytes: u32, sender: &mut Sender) -> Result<(), StartError> {
        if !(1..=self.block_bytes).contains(&bytes) {
            return Err(StartError::Block { bytes, most: self.block_bytes });
        }
        let write = (code::WRITE, bytes as u16, self.write_address());
        self.start_prepared(WRITE_SUBCHANNEL, write, sender)
    }

    /// Starts a program on a subchannel that sets the adapter to extended mode. Drivers do so before all else.
    ///
    /// # Errors
    /// [`StartError`]; nothing was started then.
    pub fn set_extended_mode(
        &mut self,
        subchannel: u16,
        sender: &mut Sender,
    ) -> Result<(), StartError> {
        self.start(subchannel, &[chained(code::SET_EXTENDED_MODE, 0, 0), NOP], sender)
    }

    /// Starts a program on the write subchannel that writes the end of a file: the peer's READ, this one or the next, ends with
    /// [`End::EndOfFile`]. The program itself ends at once, whether the peer reads or not. Only in extended mode; in basic mode the command is a WRITE.
    ///
    /// # Errors
    /// [`StartError`]; nothing was started then.
    pub fn write_end_of_file(&mut self, sender: &mut Sender) -> Result<(), StartError> {
        let end = ccw(code::WRITE_END_OF_FILE, CcwFlags::SUPPRESS_LENGTH, 1, self.write_address());
        self.start(WRITE_SUBCHANNEL, &[end], sender)
    }

    fn start_prepared(
        &mut self,
        subchannel: u16,
        (code, count, address): (u8, u16, u32),
        sender: &mut Sender,
    ) -> Result<(), StartError> {
        let program = [chained(code::PREPARE, 0, 0), chained(code, count, address), NOP];
        self.start(subchannel, &program, sender)
    }

    /// Starts a program of the caller's own on a subchannel. Addresses are those of the storage, in which the two buffers lie.
    ///
    /// # Errors
    /// [`StartError`]; nothing was started then.
    ///
    /// # Panics
    /// If an address has more than 31 bits.
    pub fn start(
        &mut self,
        subchannel: u16,
        program: &[Ccw],
        sender: &mut Sender,
    ) -> Result<(), StartError> {
        let place = usize::from(subchannel);
        if place >= ADAPTERS || !(1..=CCWS_MAX).contains(&program.len()) {
            return Err(StartError::Program { subchannel, ccws: program.len() });
        }
        if self.is_running[place] {
            return Err(StartError::Busy { subchannel });
        }
        let start = place * PROGRAM_BYTES;
        let target =
            self.client.storage()[start..start + PROGRAM_BYTES].chunks_exact_mut(CCW_BYTES);
        for (ccw, target) in program.iter().zip(target) {
            target.copy_from_slice(&ccw.emit(CcwFormat::One));
        }
        let flags = OrbFlags::FORMAT_1;
        let orb = Orb { flags, paths: ALL_PATHS, program: start as u32, ..Orb::default() };
        self.client.start(subchannel, &orb, sender)?;
        self.is_running[place] = true;
        Ok(())
    }

    /// Halts the program of a subchannel, which ends with [`End::Stopped`] unless it has ended by then. The side is reset, with a program or
    /// without: a command of the peer that waits ends with unit check. Without a program the answer is [`LineEvent::Refused`] with code 1.
    ///
    /// # Errors
    /// [`SendError`]; nothing was asked then.
    pub fn halt(&mut self, subchannel: u16, sender: &mut Sender) -> Result<(), SendError> {
        self.client.request(request::Kind::Halt, subchannel, sender)
    }

    /// Clears the program of a subchannel: as [`Line::halt`], and its status says nothing of it.
    ///
    /// # Errors
    /// [`SendError`]; nothing was asked then.
    pub fn clear(&mut self, subchannel: u16, sender: &mut Sender) -> Result<(), SendError> {
        self.client.request(request::Kind::Clear, subchannel, sender)
    }

    /// What has happened next, if something has. What the last program has read is done with then.
    ///
    /// # Errors
    /// [`ClientError`]: the path is of no more use.
    pub fn poll(&mut self, receiver: &mut Receiver) -> Result<Option<LineEvent>, ClientError> {
        loop {
            let Some(event) = self.client.poll(receiver)? else { return Ok(None) };
            return Ok(Some(match event {
                Event::Attached(_) => LineEvent::Attached,
                Event::Ended { subchannel, .. } => {
                    let running = self.is_running.get_mut(usize::from(subchannel));
                    *running.ok_or(ClientError::Rules)? = false;
                    let answer = self.client.answer();
                    let (status, sense) = (answer.scsw, answer.sense);
                    LineEvent::Ended {
                        subchannel,
                        end: end_of(&status, sense.map_or(0, |sense| sense.0[0])),
                        bytes: self.client.read_bytes().min(u32::MAX.into()) as u32,
                        residual: status.count,
                        status,
                    }
                }
                // A program that asked for an interruption, or has suspended itself, goes on.
                Event::Intermediate { .. } => continue,
                Event::Attention { subchannel, status, .. } => {
                    LineEvent::Interruption { subchannel, status }
                }
                Event::Refused { subchannel, code } => LineEvent::Refused { subchannel, code },
            }));
        }
    }

    /// Copies what the program that ended last has read. Returns how many bytes.
    ///
    /// # Errors
    /// [`ClientError::Rules`] if the channel names what it has not lent.
    pub fn copy(&self, target: &mut [u8]) -> Result<usize, ClientError> {
        self.client.copy(target)
    }
}

/// A CCW of format 1.
pub const fn ccw(command: u8, flags: CcwFlags, count: u16, address: u32) -> Ccw {
    Ccw { command, flags, count, address }
}

/// One to which the next is chained, and whose length is no error.
pub fn chained(command: u8, count: u16, address: u32) -> Ccw {
    ccw(command, CcwFlags::CHAIN_COMMAND.with(CcwFlags::SUPPRESS_LENGTH), count, address)
}

/// The end of each program of ctcm.
pub const NOP: Ccw = ccw(code::NOP, CcwFlags::SUPPRESS_LENGTH, 0, 0);

/// How a program has ended, by its status.
fn end_of(status: &Scsw, sense: u8) -> End {
    let is_stopped = status.control & (control::HALT | control::CLEAR) != 0;
    let device = status.device;
    if device.has(DeviceStatus::UNIT_CHECK) {
        End::Check(sense)
    } else if device.has(DeviceStatus::BUSY) {
        End::Collided
    } else if device.has(DeviceStatus::UNIT_EXCEPTION) {
        End::EndOfFile
    } else if is_stopped {
        End::Stopped
    } else if device == DeviceStatus::ENDED && status.subchannel == SubchannelStatus::default() {
        End::Done
    } else {
        End::Failed
    }
}
