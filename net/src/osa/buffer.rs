//! Buffers of a data device: how one end fills them, and how the other empties them. Both ends do both.
//!
//! A buffer is a message of the path: a page of the writer's storage, or the line itself if it is short. Its head says what is in it:
//!
//! ```text
//!  head 8   | kind u8: 1 packets, 2 control | 0 u8 | packets u16 | 0 u32 |     little-endian
//! ```

use fabric::path::{Claim, InPage, Incoming, Receiver, SendError, Sender, Severed};
use os::storage::LentPart;

use super::control::{RECORD_BYTES, Record};
use super::packet::{
    BUFFER_BYTES, HEAD_ROOM_BYTES, HEADER_BYTES, Header, counted_bytes, taken_bytes,
};
use crate::lan::offload::{Offload, START_BYTES};

/// Buffers of a queue that are on their way at once, at most: never all 128, so that head and tail differ.
pub const BUFFERS_OUT_MAX: usize = 127;

/// Bytes of a buffer behind its head.
pub(super) const ROOM_BYTES: usize = BUFFER_BYTES - HEAD_ROOM_BYTES;

/// The longest content of a buffer that lies in its line.
const SHORT_BYTES: usize = fabric::path::IN_PLACE_BYTES_MAX - HEAD_ROOM_BYTES;

const PACKETS: u8 = 1;
const CONTROL: u8 = 2;

fn head(kind: u8, packets: u16) -> [u8; HEAD_ROOM_BYTES] {
    let [low, high] = packets.to_le_bytes();
    [kind, 0, low, high, 0, 0, 0, 0]
}

/// What was counted of one queue, by the end that has the count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Buffers handed over, or taken.
    pub buffers: u64,
    /// Packets in these.
    pub packets: u64,
    /// Bytes of these, as the studies count them: [`counted_bytes`].
    pub bytes: u64,
    /// Packets for which there was no buffer: they are dropped, or wait with their sender.
    pub exhausted: u64,
}

/// A buffer that is being filled.
#[derive(Debug)]
struct Filling {
    claim: Claim,
    used: usize,
    packets: u16,
    first_ns: u64,
    last_ns: u64,
}

/// The end of a queue that fills buffers.
#[derive(Debug)]
pub struct Writing {
    sender: Sender,
    filling: Option<Filling>,
    buffers_max: usize,
    counters: QueueCounters,
}

/// How much room a buffer is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// For this packet alone.
    One,
    /// For those that follow, too.
    Whole,
}

/// Why a packet was not put into a buffer. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPut {
    /// The other end has all buffers: it will give some back.
    Exhausted,
    /// This process lacks memory or descriptors, or the path may lend no more.
    Lacking(fabric::path::Lack),
    /// The path has ended.
    Severed,
}

impl From<SendError> for NotPut {
    fn from(error: SendError) -> NotPut {
        match error {
            SendError::Full | SendError::Quiesced => NotPut::Exhausted,
            SendError::Lacking(lack) => NotPut::Lacking(lack),
            // A buffer is as long as a page.
            SendError::TooLong { .. } | SendError::Severed(_) => NotPut::Severed,
        }
    }
}

impl Writing {
    /// The end of a queue whose other end may have as many buffers at once.
    pub fn new(sender: Sender, buffers_max: usize) -> Writing {
        let buffers_max = buffers_max.clamp(1, BUFFERS_OUT_MAX);
        Writing { sender, filling: None, buffers_max, counters: QueueCounters::default() }
    }

    /// Puts a packet behind those in the buffer that is being filled, or into a new buffer. `write` writes the frame.
    ///
    /// # Errors
    /// [`NotPut`].
    pub fn put(
        &mut self,
        now: u64,
        header: &Header,
        room: Room,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), NotPut> {
        let taken = taken_bytes(header.bytes);
        if self.filling.as_ref().is_some_and(|filling| taken > filling.claim.bytes() - filling.used)
        {
            self.close()?;
        }
        if self.filling.is_none() {
            self.open(now, if room == Room::One { taken } else { ROOM_BYTES })?;
        }
        let Writing { sender, filling: Some(filling), counters, .. } = self else {
            return Err(NotPut::Severed);
        };
        let (used, claim) = (filling.used, &mut filling.claim);
        // None: in a forked child, whose path this is not.
        let target = sender.claimed(claim).and_then(|all| all.get_mut(used..used + taken));
        let target = target.ok_or(NotPut::Severed)?;
        let (front, frame) = target.split_at_mut(HEADER_BYTES);
        front.copy_from_slice(&header.emit());
        write(&mut frame[..header.bytes]);
        filling.used += taken;
        filling.packets += 1;
        filling.last_ns = now;
        counters.packets += 1;
        counters.bytes += counted_bytes(header.layer, header.bytes);
        Ok(())
    }

    /// Claims a new buffer with room for so many bytes.
    fn open(&mut self, now: u64, bytes: usize) -> Result<(), NotPut> {
        if !self.has_room() {
            self.counters.exhausted += 1;
            return Err(NotPut::Exhausted);
        }
        // The count of packets is known when the buffer is handed over, and is written then: it is the user's word, and no head of the path.
        let claim = self.sender.claim(&[], HEAD_ROOM_BYTES + bytes).map_err(|error| {
            let error = NotPut::from(error);
            self.counters.exhausted += u64::from(error == NotPut::Exhausted);
            error
        })?;
        let (first_ns, last_ns) = (now, now);
        self.filling =
            Some(Filling { claim, used: HEAD_ROOM_BYTES, packets: 0, first_ns, last_ns });
        Ok(())
    }

    /// Returns true if another buffer may be on its way.
    pub fn has_room(&mut self) -> bool {
        // What came back is collected if the count says that nothing has.
        self.buffers_out() < self.buffers_max || self.look() < self.buffers_max
    }

    /// Hands over the buffer that is being filled, if there is one, and rings if the other end sleeps. Returns true if there was one.
    ///
    /// # Errors
    /// [`NotPut`]: the buffer is still being filled, or the path has ended.
    pub fn close(&mut self) -> Result<bool, NotPut> {
        let Some(mut filling) = self.filling.take() else { return Ok(false) };
        filling.claim.truncate(filling.used);
        let Filling { claim, packets, .. } = &mut filling;
        if let Some(start) =
            self.sender.claimed(claim).and_then(|all| all.get_mut(..HEAD_ROOM_BYTES))
        {
            start.copy_from_slice(&head(PACKETS, *packets));
        }
        let Filling { claim, used, packets, first_ns, last_ns } = filling;
        match self.sender.commit(claim) {
            Ok(()) => {
                self.counters.buffers += 1;
                Ok(true)
            }
            Err((error, claim)) => {
                let error = match error {
                    fabric::path::CommitError::Send(error) => NotPut::from(error),
                    fabric::path::CommitError::NotOurs => NotPut::Severed,
                };
                if error == NotPut::Exhausted {
                    self.filling = Some(Filling { claim, used, packets, first_ns, last_ns });
                } else {
                    let _ = self.sender.cancel(claim);
                }
                Err(error)
            }
        }
    }

    /// Sends a control record, behind everything that was put.
    ///
    /// # Errors
    /// [`NotPut`]; it was not sent then.
    pub fn send_control(&mut self, record: &Record) -> Result<(), NotPut> {
        self.close()?;
        let mut bytes = [0; HEAD_ROOM_BYTES + RECORD_BYTES];
        bytes[..HEAD_ROOM_BYTES].copy_from_slice(&head(CONTROL, 0));
        bytes[HEAD_ROOM_BYTES..].copy_from_slice(&record.emit());
        Ok(self.sender.send(&[], &bytes)?)
    }

    /// Times of the first and of the last packet in the buffer that is being filled, and how many there are; none if there is no such buffer.
    pub fn open_since(&self) -> Option<(u64, u64, u16)> {
        self.filling.as_ref().map(|filling| (filling.first_ns, filling.last_ns, filling.packets))
    }

    /// Buffers that the other end has, as far as is known.
    pub fn buffers_out(&self) -> usize {
        self.sender.buffers_out()
    }

    /// Takes back what the other end has given back, and returns how many buffers it has now.
    pub fn look(&mut self) -> usize {
        self.sender.is_ready();
        self.sender.buffers_out()
    }

    /// What was counted.
    pub fn counters(&self) -> &QueueCounters {
        &self.counters
    }

    /// The half of the path.
    pub fn sender(&mut self) -> &mut Sender {
        &mut self.sender
    }

    /// The same, to be asked.
    pub fn as_sender(&self) -> &Sender {
        &self.sender
    }
}

/// A buffer that has come.
#[derive(Debug)]
enum Buffer {
    Short([u8; SHORT_BYTES], usize),
    Page(InPage),
}

impl Buffer {
    fn read(&self, at: usize, target: &mut [u8]) -> bool {
        match self {
            Buffer::Short(bytes, all) => {
                let found = bytes[..*all].get(at..).and_then(|rest| rest.get(..target.len()));
                found.is_some_and(|found| {
                    target.copy_from_slice(found);
                    true
                })
            }
            Buffer::Page(page) => page.read(HEAD_ROOM_BYTES + at, target).is_ok(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Buffer::Short(_, bytes) => *bytes,
            Buffer::Page(page) => page.body_bytes().saturating_sub(HEAD_ROOM_BYTES),
        }
    }
}

/// The way of a reader through the packets of a buffer.
#[derive(Debug)]
pub struct Walk {
    buffer: Buffer,
    at: usize,
}

/// A packet in a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Its header.
    pub header: Header,
    /// What is left to do for the frame: it agrees with the frame's start.
    pub offload: Offload,
    /// Bytes of the frame that were copied: [`START_BYTES`], or all.
    pub start_bytes: usize,
    /// Where the frame begins in the buffer.
    at: usize,
}

/// What the other end must not send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A buffer that is none: a message of another kind, a head or a control record that makes no sense.
    Buffer,
    /// A packet's header makes no sense, or reaches beyond the buffer.
    Header,
}

/// A frame whose head does not agree with it: the frame is dropped, and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadPacket;

impl Walk {
    /// Finds the next packet, and copies the start of its frame. None after the last.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn next(
        &mut self,
        start: &mut [u8; START_BYTES],
    ) -> Result<Option<Result<Found, BadPacket>>, Broken> {
        let bytes = self.buffer.bytes();
        if self.at >= bytes {
            return Ok(None);
        }
        let mut header = [0; HEADER_BYTES];
        if !self.buffer.read(self.at, &mut header) {
            return Err(Broken::Header);
        }
        let at = self.at + HEADER_BYTES;
        let header =
            Header::parse(&header, bytes.saturating_sub(at)).map_err(|_| Broken::Header)?;
        self.at += taken_bytes(header.bytes);
        let start_bytes = header.bytes.min(START_BYTES);
        let start = &mut start[..start_bytes];
        if !self.buffer.read(at, start) {
            return Err(Broken::Header);
        }
        let offload = Offload::parse_start(&header.offload, start, header.bytes);
        Ok(Some(match offload {
            Ok(offload) => Ok(Found { header, offload, start_bytes, at }),
            Err(_) => Err(BadPacket),
        }))
    }

    /// Where the next packet is: [`Walk::rewind`] goes back there.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Goes back to a packet.
    pub fn rewind(&mut self, position: usize) {
        self.at = position.min(self.at);
    }

    /// Returns true if no packet is left.
    pub fn is_over(&self) -> bool {
        self.at >= self.buffer.bytes()
    }

    /// The bytes of a packet's frame behind its start, where the other end can change them; none if there are none.
    pub fn rest(&self, found: &Found) -> Option<LentPart<'_>> {
        let bytes = found.header.bytes - found.start_bytes;
        let Buffer::Page(page) = &self.buffer else { return None };
        let part = page.part(HEAD_ROOM_BYTES + found.at + found.start_bytes).ok()?;
        (bytes > 0).then(|| part.truncated(bytes))
    }
}

/// What has come.
#[derive(Debug)]
pub enum Came {
    /// Packets.
    Packets(Walk),
    /// A control record.
    Control(Record),
}

/// Why there is nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The path has ended.
    Severed(Severed),
    /// The other end breaks the rules.
    Broken(Broken),
}

/// The end of a queue that empties buffers.
#[derive(Debug)]
pub struct Reading {
    receiver: Receiver,
    counters: QueueCounters,
}

impl Reading {
    /// The end of a queue.
    pub fn new(receiver: Receiver) -> Reading {
        Reading { receiver, counters: QueueCounters::default() }
    }

    /// Takes the next buffer, if there is one. [`Reading::finish`] gives it back.
    ///
    /// # Errors
    /// [`Over`].
    pub fn take(&mut self) -> Result<Option<Came>, Over> {
        let mut start = [0; HEAD_ROOM_BYTES];
        let incoming = self.receiver.poll(0).map_err(Over::Severed)?;
        let buffer = match incoming {
            None => return Ok(None),
            Some(Incoming::Message(message)) => {
                let body = self.receiver.message(message).body;
                let (head, content) =
                    body.split_at_checked(HEAD_ROOM_BYTES).ok_or(Over::Broken(Broken::Buffer))?;
                start.copy_from_slice(head);
                let mut bytes = [0; SHORT_BYTES];
                let room = bytes.get_mut(..content.len()).ok_or(Over::Broken(Broken::Buffer))?;
                room.copy_from_slice(content);
                Buffer::Short(bytes, content.len())
            }
            Some(Incoming::InPage(page)) => {
                let is_read = page.head_bytes() == 0 && page.read(0, &mut start).is_ok();
                let buffer = Buffer::Page(page);
                if !is_read {
                    self.give_back(buffer);
                    return Err(Over::Broken(Broken::Buffer));
                }
                buffer
            }
            Some(Incoming::Announced(message)) => {
                let _ = self.receiver.release(message);
                return Err(Over::Broken(Broken::Buffer));
            }
            Some(Incoming::List(list)) => {
                let _ = self.receiver.give_back_list(list);
                return Err(Over::Broken(Broken::Buffer));
            }
        };
        self.counters.buffers += 1;
        match start {
            [PACKETS, 0, _, _, 0, 0, 0, 0] => Ok(Some(Came::Packets(Walk { buffer, at: 0 }))),
            [CONTROL, 0, 0, 0, 0, 0, 0, 0] if buffer.bytes() == RECORD_BYTES => {
                let mut bytes = [0; RECORD_BYTES];
                let is_read = buffer.read(0, &mut bytes);
                self.give_back(buffer);
                let record = Record::parse(&bytes).filter(|_| is_read);
                record.map(|record| Some(Came::Control(record))).ok_or(Over::Broken(Broken::Buffer))
            }
            _ => {
                self.give_back(buffer);
                Err(Over::Broken(Broken::Buffer))
            }
        }
    }

    /// Counts a packet that was taken.
    #[inline]
    pub fn count(&mut self, header: &Header) {
        self.counters.packets += 1;
        self.counters.bytes += counted_bytes(header.layer, header.bytes);
    }

    /// Gives a buffer back: the other end may fill it again.
    pub fn finish(&mut self, walk: Walk) {
        self.give_back(walk.buffer);
    }

    fn give_back(&mut self, buffer: Buffer) {
        if let Buffer::Page(page) = buffer {
            // It is this half's.
            let _ = self.receiver.give_back(page);
        }
    }

    /// What was counted.
    pub fn counters(&self) -> &QueueCounters {
        &self.counters
    }

    /// The half of the path.
    pub fn receiver(&mut self) -> &mut Receiver {
        &mut self.receiver
    }

    /// The same, to be asked.
    pub fn as_receiver(&self) -> &Receiver {
        &self.receiver
    }
}
