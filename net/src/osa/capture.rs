//! Copies of the frames that pass a port, from the adapter to the guests that capture there.
//!
//! A path between the two carries nothing else, and only in this direction. A message is a copy of one frame. Its head is that of a copy in a LAN: see
//! [`crate::lan::capture`]. Its body:
//!
//! ```text
//! offset  0  way u8: 1 from the wire, 2 to the wire, 3 from one guest to another
//!         1  seven zeros
//!         8  name of the guest that has sent it, 8 bytes, if the adapter says so; or zeros
//!        16  the frame, from the Ethernet header on
//! ```
//!
//! A copy for which the path has no room is lost. Before the next copy, or as soon as there is room again, comes a message without a body, which says how many were
//! lost, as in a LAN. The receiver checks what it is sent, and believes the time.

use std::any::Any;
use std::fmt;

use fabric::name::{NAME_BYTES, Name};
use fabric::path::{Halves, Receiver, SendError, Sender};
use os::doorbell::Listen;

use crate::lan::capture::{Content, Record};
use crate::lan::counters::Counter;
use crate::lan::link::{Frame, FrameInPlace};
use crate::lan::offload::FRAME_BYTES_MAX;

/// Guests that may capture at a port at once.
pub const CAPTURES_MAX: usize = 4;

/// Bytes in front of a frame in a message's body.
pub const ABOUT_BYTES: usize = 16;
const AT_NAME: usize = 8;

/// Where a frame was going.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It has come from the wire.
    FromWire,
    /// It has gone to the wire.
    ToWire,
    /// From one guest of the port to another.
    Between,
}

impl Way {
    const ALL: [Way; 3] = [Way::FromWire, Way::ToWire, Way::Between];

    fn code(self) -> u8 {
        match self {
            Way::FromWire => 1,
            Way::ToWire => 2,
            Way::Between => 3,
        }
    }
}

/// What a message of a capture says.
#[derive(Clone, Copy, Debug)]
pub struct Passed<'a> {
    /// When the frame passed, on the clock that all processes share.
    pub time_ns: u64,
    /// What it is.
    pub what: What<'a>,
}

/// What a message of a capture is about.
#[derive(Clone, Copy, Debug)]
pub enum What<'a> {
    /// A frame.
    Frame {
        /// Where it was going.
        way: Way,
        /// The guest that has sent it, if the adapter says so.
        from: Option<Name>,
        /// The frame.
        frame: Frame<'a>,
    },
    /// The number of copies that this path has lost so far.
    Lost(u64),
}

fn about(way: Way, from: Option<Name>) -> [u8; ABOUT_BYTES] {
    let mut about = [0; ABOUT_BYTES];
    about[0] = way.code();
    if let Some(name) = from {
        about[AT_NAME..].copy_from_slice(&name.bytes());
    }
    about
}

/// What a message says.
///
/// # Errors
/// The counter of the reason why it is dropped.
pub fn parse<'a>(head: &[u8], body: &'a [u8]) -> Result<Passed<'a>, Counter> {
    if body.is_empty() {
        let Record { time_ns, content } = Record::parse(head, body)?;
        let Content::Lost(lost) = content else { return Err(Counter::DroppedOffload) };
        return Ok(Passed { time_ns, what: What::Lost(lost) });
    }
    let (about, bytes) = body.split_first_chunk::<ABOUT_BYTES>().ok_or(Counter::DroppedLength)?;
    if bytes.is_empty() || bytes.len() > FRAME_BYTES_MAX {
        return Err(Counter::DroppedLength);
    }
    let Record { time_ns, content } = Record::parse(head, bytes)?;
    let Content::Frame(offload) = content else { return Err(Counter::DroppedOffload) };
    let way = Way::ALL.into_iter().find(|way| way.code() == about[0]);
    let (zeros, name) = (&about[1..AT_NAME], &about[AT_NAME..]);
    let name = name.first_chunk::<NAME_BYTES>().filter(|name| **name != [0; NAME_BYTES]);
    let from = name.map(|name| Name::parse(*name).ok_or(Counter::DroppedOffload)).transpose()?;
    match way.filter(|_| zeros.iter().all(|zero| *zero == 0)) {
        Some(way) => {
            let frame = Frame { offload, bytes };
            Ok(Passed { time_ns, what: What::Frame { way, from, frame } })
        }
        None => Err(Counter::DroppedOffload),
    }
}

/// A guest that captures, as the adapter has it.
struct Capturer {
    guest: Name,
    sender: Sender,
    receiver: Receiver,
    /// Copies that were lost, and how many of these the guest was told of.
    lost: u64,
    told: u64,
    is_over: bool,
    /// Dropped with it.
    _kept: Box<dyn Any + Send>,
}

/// The guests that capture at a port.
#[derive(Default)]
pub struct Captures {
    of: Vec<Capturer>,
    /// A message's body.
    room: Vec<u8>,
}

impl fmt::Debug for Captures {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Captures").field("guests", &self.of.len()).finish_non_exhaustive()
    }
}

impl Captures {
    /// Returns true if nobody captures.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// How many guests capture.
    pub fn count(&self) -> usize {
        self.of.len()
    }

    /// Returns true if a guest may capture: it does not yet, and there are not as many as there may be.
    pub fn has_room_for(&self, guest: Name) -> bool {
        self.of.len() < CAPTURES_MAX && self.of.iter().all(|of| of.guest != guest)
    }

    /// Gives the guest at the other end of a path copies from now on, until the path ends. `kept` is dropped then. False: see [`Captures::has_room_for`].
    ///
    /// # Panics
    /// If the path has more than one queue each way: its maker sees to that.
    pub fn add(&mut self, guest: Name, mut halves: Halves, kept: Box<dyn Any + Send>) -> bool {
        if !self.has_room_for(guest) {
            return false;
        }
        let (sender, receiver) = (halves.senders.pop(), halves.receivers.pop());
        assert!(halves.senders.is_empty() && halves.receivers.is_empty(), "one queue each way");
        let (sender, receiver) = (sender.expect("a queue"), receiver.expect("a queue"));
        let of =
            Capturer { guest, sender, receiver, lost: 0, told: 0, is_over: false, _kept: kept };
        self.of.push(of);
        true
    }

    /// A frame passes. Copies for which there is no room are lost. Nobody waits.
    #[inline]
    pub fn take(&mut self, now: u64, way: Way, from: Option<Name>, piece: &FrameInPlace<'_>) {
        // All that a port costs at which nobody captures.
        if !self.of.is_empty() {
            self.copy(now, way, from, piece);
        }
    }

    #[cold]
    fn copy(&mut self, now: u64, way: Way, from: Option<Name>, piece: &FrameInPlace<'_>) {
        let Captures { of, room } = self;
        let bytes = piece.bytes();
        let is_fit = bytes <= FRAME_BYTES_MAX;
        room.clear();
        if is_fit {
            room.extend_from_slice(&about(way, from));
            room.resize(ABOUT_BYTES + bytes, 0);
            piece.read(0, &mut room[ABOUT_BYTES..]);
        }
        let head = Record { time_ns: now, content: Content::Frame(piece.offload) }.head();
        for capturer in of {
            capturer.tell(now);
            let is_given = is_fit && {
                let sent = capturer.sender.push(&head, room);
                capturer.is_over |= matches!(sent, Err(SendError::Severed(_)));
                sent.is_ok()
            };
            capturer.lost += u64::from(!is_given);
        }
    }

    /// Hands over what was held back, behind all frames of a poll.
    #[inline]
    pub fn flush(&mut self) {
        if !self.of.is_empty() {
            self.of.iter_mut().for_each(|capturer| capturer.sender.flush());
        }
    }

    /// Looks whether guests still capture, and tells them what was lost: to be called some times a second.
    pub fn look(&mut self, now: u64) {
        for capturer in &mut self.of {
            capturer.look(now);
        }
        self.of.retain(|capturer| !capturer.is_over);
    }
}

impl Capturer {
    /// Tells the guest how many copies were lost.
    fn tell(&mut self, now: u64) {
        if self.lost > self.told {
            let record = Record { time_ns: now, content: Content::Lost(self.lost) };
            if self.sender.send(&record.head(), &[]).is_ok() {
                self.told = self.lost;
            }
        }
    }

    fn look(&mut self, now: u64) {
        // A guest that was killed is known by its doorbells alone.
        self.receiver.hear(Listen::Now);
        self.sender.hear(Listen::Now);
        self.tell(now);
        self.sender.trim();
        // One that sends something breaks a rule: nothing of it is looked at.
        self.is_over |= !matches!(self.receiver.fetch_up_to(usize::MAX, 0), Ok(None));
        self.is_over |= self.sender.ended().is_some();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::lan::offload::Offload;

    fn head(content: Content) -> Vec<u8> {
        Record { time_ns: 9, content }.head().to_vec()
    }

    #[test]
    fn messages_are_what_the_picture_says() {
        let frame = [7; 60];
        let offload = Offload { vlan: Some(5), ..Offload::NONE };
        for (way, code) in [(Way::FromWire, 1), (Way::ToWire, 2), (Way::Between, 3)] {
            let mut body = [&[code][..], &[0; 7], b"ALICE   ", &frame].concat();
            let head = head(Content::Frame(offload));
            assert_eq!(about(way, Some("ALICE".parse().unwrap())), body[..16]);
            let passed = parse(&head, &body).unwrap();
            let What::Frame { way: found, from, frame: Frame { offload: of, bytes } } = passed.what
            else {
                panic!("{passed:?}")
            };
            assert_eq!((passed.time_ns, found, of, bytes), (9, way, offload, &frame[..]));
            assert_eq!(from.unwrap().as_str(), "ALICE");
            body[8..16].fill(0);
            assert_eq!(about(way, None), body[..16]);
            assert!(matches!(parse(&head, &body).unwrap().what, What::Frame { from: None, .. }));
            for (at, byte) in [(0, 0), (0, 4), (1, 1), (7, 1), (8, b'a'), (15, b'A')] {
                let mut bad = body.clone();
                bad[at] = byte;
                assert_eq!(parse(&head, &bad).unwrap_err(), Counter::DroppedOffload, "{at}");
            }
            for bytes in [1, 15, 16, 16 + 13] {
                assert_eq!(parse(&head, &body[..bytes]).unwrap_err(), Counter::DroppedLength);
            }
        }
        let passed = parse(&head(Content::Lost(5)), &[]).unwrap();
        assert!(matches!(passed.what, What::Lost(5)));
    }

    proptest! {
        #[test]
        fn any_message_is_one_or_is_dropped(
            head in prop::collection::vec(any::<u8>(), 23..=25),
            body in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            if let Ok(Passed { what: What::Frame { frame, .. }, .. }) = parse(&head, &body) {
                prop_assert_eq!(frame.bytes.len(), body.len() - ABOUT_BYTES);
            }
        }
    }
}
