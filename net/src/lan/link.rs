//! Frames over the path between two members.

use std::fmt;

use fabric::path::{
    self, Claim, CommitError, Fetched, InPage, ListError, Receiver, SendError, Sender, Severed,
    Shared,
};

use super::admission::{addresses, admit, admit_start, has_tag};
use super::counters::{Counter, Counters};
use super::group;
pub use super::in_place::FrameInPlace;
use super::offload::{FRAME_BYTES_MAX, HEAD_BYTES, Offload, START_BYTES};
use super::table::Member;

/// One's end of a path to another member of the LAN.
#[derive(Debug)]
pub struct Link {
    sender: Sender,
    receiver: Receiver,
    /// The member at the other end, as the address table had it last.
    peer: Member,
    /// Bytes of the LAN's largest frame.
    frame_bytes_max: usize,
    /// The pack of frames to a group that is being given out, and where the next is.
    pack: Option<(path::MessageRef, usize)>,
    /// The frame that is being given out in its sender's page, and a copy of its start.
    page: Option<InPage>,
    start: [u8; START_BYTES],
    /// Audience storage that is to be retired, once the path takes it: no more than a path has storages.
    retiring: Vec<u16>,
}

/// A frame that has come, where it lies until the next is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    message: path::MessageRef,
    /// Where in the message it is.
    at: u32,
    bytes: u32,
    /// What is left to do for it.
    pub offload: Offload,
}

/// A frame that has come, where it lies until [`Link::give_back`]: perhaps in its sender's page.
#[derive(Clone, Copy, Debug)]
pub enum ReceivedInPlace {
    /// In memory of our own.
    Copied(Received),
    /// In its sender's page, but for its start.
    InPage {
        /// Its length.
        bytes: u32,
        /// What is left to do for it.
        offload: Offload,
    },
}

/// A frame, and what goes with it.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// What is left to do for it.
    pub offload: Offload,
    /// Its bytes, from the Ethernet header on.
    pub bytes: &'a [u8],
}

/// A frame whose data lies elsewhere: whoever sends it has it written to where the other side reads it, and nowhere in between.
pub struct FrameInParts<'a> {
    /// What is left to do for it.
    pub offload: Offload,
    /// Its first bytes, from the Ethernet header on, with all headers.
    pub start: &'a mut [u8],
    /// Bytes behind them.
    pub rest_bytes: usize,
    /// Writes these.
    pub write_rest: &'a dyn Fn(&mut [u8]),
}

impl fmt::Debug for FrameInParts<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FrameInParts { offload, start, rest_bytes, .. } = self;
        let mut fields = formatter.debug_struct("FrameInParts");
        fields.field("offload", offload).field("start", start).field("rest_bytes", rest_bytes);
        fields.finish_non_exhaustive()
    }
}

impl FrameInParts<'_> {
    /// Bytes of all of it.
    pub fn bytes(&self) -> usize {
        self.start.len() + self.rest_bytes
    }

    /// Writes it, into as many bytes.
    pub fn write(&self, target: &mut [u8]) {
        let (start, rest) = target.split_at_mut(self.start.len());
        start.copy_from_slice(self.start);
        (self.write_rest)(rest);
    }

    /// All of it, in one piece.
    pub fn whole(&self) -> Vec<u8> {
        let mut frame = vec![0; self.bytes()];
        self.write(&mut frame);
        frame
    }
}

/// How a frame is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Now.
    Now,
    /// With those that follow, while the receiver is behind: [`Link::flush`] sends it at the latest.
    WithOthers,
}

impl Link {
    /// A link over a path to this member, in a LAN whose frames have at most `frame_bytes_max` bytes.
    ///
    /// # Panics
    /// If the path has more than one queue each way: its maker sees to that.
    pub fn new(mut halves: path::Halves, peer: Member, frame_bytes_max: usize) -> Link {
        let (sender, receiver) = (halves.senders.pop(), halves.receivers.pop());
        assert!(halves.senders.is_empty() && halves.receivers.is_empty(), "one queue each way");
        let (sender, receiver) = (sender.expect("a queue"), receiver.expect("a queue"));
        let (pack, page, retiring) = (None, None, Vec::new());
        let start = [0; START_BYTES];
        Link { sender, receiver, peer, frame_bytes_max, pack, page, start, retiring }
    }

    /// The member at the other end.
    pub fn peer(&self) -> &Member {
        &self.peer
    }

    /// The address table has another entry for the member at the other end.
    pub fn set_peer(&mut self, peer: Member) {
        self.peer = peer;
    }

    /// The LAN has another largest frame.
    pub fn set_frame_bytes_max(&mut self, frame_bytes_max: usize) {
        self.frame_bytes_max = frame_bytes_max;
    }

    /// Sends a frame that may leave here: see [`check`](super::admission::check).
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent then.
    #[inline(always)]
    pub fn send(&mut self, frame: Frame<'_>, urgency: Urgency) -> Result<(), SendError> {
        if frame.offload != Offload::NONE {
            return self.send_with_head(frame, urgency);
        }
        // A frame of which there is nothing to say has no head.
        match urgency {
            Urgency::Now => self.sender.send(&[], frame.bytes),
            Urgency::WithOthers => self.sender.push(&[], frame.bytes),
        }
    }

    #[inline(never)]
    fn send_with_head(&mut self, frame: Frame<'_>, urgency: Urgency) -> Result<(), SendError> {
        let head = frame.offload.head();
        match urgency {
            Urgency::Now => self.sender.send(&head, frame.bytes),
            Urgency::WithOthers => self.sender.push(&head, frame.bytes),
        }
    }

    /// Sends a frame at once that may leave here: it is written to where the other side reads it.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent then.
    pub fn send_in_parts(&mut self, frame: &FrameInParts<'_>) -> Result<(), SendError> {
        let head = frame.offload.head();
        let head = if frame.offload == Offload::NONE { &[][..] } else { &head[..] };
        self.sender.send_built(head, frame.bytes(), |target| frame.write(target))
    }

    /// Takes in a frame that may leave here, so that [`Link::commit`] sends it: what has to be done before a frame goes can be
    /// done between.
    ///
    /// # Errors
    /// [`SendError`]; nothing was claimed then.
    pub fn claim(&mut self, frame: Frame<'_>) -> Result<Claim, SendError> {
        let head = frame.offload.head();
        let head = if frame.offload == Offload::NONE { &[][..] } else { &head[..] };
        let mut claim = self.sender.claim(head, frame.bytes.len())?;
        if let Some(room) = self.sender.claimed(&mut claim) {
            room.copy_from_slice(frame.bytes);
        }
        Ok(claim)
    }

    /// Buffers that the member has not given back, as far as is known.
    pub fn buffers_out(&self) -> usize {
        self.sender.buffers_out()
    }

    /// Sends a frame that was claimed of this link.
    ///
    /// # Errors
    /// [`SendError`]; the frame was not sent, and is claimed no longer.
    pub fn commit(&mut self, claim: Claim) -> Result<(), SendError> {
        self.sender.commit(claim).map_err(|(error, claim)| {
            // It is this link's.
            let _ = self.sender.cancel(claim);
            match error {
                CommitError::Send(error) => error,
                CommitError::NotOurs => unreachable!("claimed of this link"),
            }
        })
    }

    /// Hands over what was held back.
    #[inline]
    pub fn flush(&mut self) {
        self.sender.flush();
        if !self.retiring.is_empty() {
            self.retire_rest();
        }
    }

    /// Lends the storage of an audience.
    pub(super) fn lend(&mut self, shared: &Shared) -> Result<u16, SendError> {
        self.retire_rest();
        self.sender.lend_shared(shared)
    }

    /// Retires the storage of an audience: now, or when the path, which is full or quiet now, takes it. Until then the
    /// storage counts against what may be lent over the path.
    pub(super) fn retire(&mut self, segment: u16) {
        self.retiring.push(segment);
        self.retire_rest();
    }

    #[cold]
    fn retire_rest(&mut self) {
        while let Some(segment) = self.retiring.last() {
            if let Err(ListError::Send(_)) = self.sender.retire_shared(*segment) {
                break;
            }
            self.retiring.pop();
        }
    }

    /// The next frame that this member takes. Those that it must not take are dropped and counted, so that one call
    /// looks at a bounded number of messages: none may be found though [`Link::is_ready`].
    ///
    /// # Errors
    /// [`Severed`] once the path has ended and everything has been received.
    // Inlined into the caller's loop: a result in memory costs as much as the rest.
    #[inline(always)]
    pub fn receive(
        &mut self,
        own: &Member,
        counters: &mut Counters,
    ) -> Result<Option<Received>, Severed> {
        let is_in_pack = self.pack.is_some();
        let found = if is_in_pack { None } else { self.receiver.poll_short()? };
        if let Some(message) = found {
            let path::Message { head, body } = self.receiver.message(message);
            let is_its_own = addresses(body).is_some_and(|(_, from)| from == self.peer.mac);
            if head.is_empty() && is_its_own && !has_tag(body) {
                counters.add(Counter::FramesReceived, 1);
                counters.add(Counter::BytesReceived, body.len() as u64);
                counters.add(Counter::SegmentsReceived, 1);
                let bytes = body.len() as u32;
                return Ok(Some(Received { message, at: 0, bytes, offload: Offload::NONE }));
            }
        }
        self.receive_otherwise(found, own, counters)
    }

    /// Receives what is no short frame of which there is nothing to say.
    #[inline(never)]
    fn receive_otherwise(
        &mut self,
        found: Option<path::MessageRef>,
        own: &Member,
        counters: &mut Counters,
    ) -> Result<Option<Received>, Severed> {
        match self.receive_up_to(usize::MAX, found, own, counters)? {
            Some(ReceivedInPlace::Copied(received)) => Ok(Some(received)),
            Some(ReceivedInPlace::InPage { .. }) => {
                unreachable!("all that lie in pages are copied")
            }
            None => Ok(None),
        }
    }

    /// As [`Link::receive`], but most of a long frame stays in its sender's page until [`Link::give_back`], which has to be
    /// called before anything else is received.
    ///
    /// # Errors
    /// As of [`Link::receive`].
    pub fn receive_in_place(
        &mut self,
        own: &Member,
        counters: &mut Counters,
    ) -> Result<Option<ReceivedInPlace>, Severed> {
        self.receive_up_to(COPIED_BYTES_MAX, None, own, counters)
    }

    fn receive_up_to(
        &mut self,
        copied_bytes_max: usize,
        mut found: Option<path::MessageRef>,
        own: &Member,
        counters: &mut Counters,
    ) -> Result<Option<ReceivedInPlace>, Severed> {
        for _ in 0..DROPPED_PER_CALL_MAX {
            let (message, at) = match (found.take(), self.pack) {
                (Some(message), _) => (message, None),
                (None, Some((message, at))) => (message, Some(at)),
                (None, None) => match self.receiver.fetch_up_to(copied_bytes_max, BYTES_MAX)? {
                    Some(Fetched::Copied(message)) => (message, None),
                    Some(Fetched::TooLong) => {
                        counters.add(Counter::DroppedLength, 1);
                        continue;
                    }
                    Some(Fetched::InPage(page)) => match self.admit_page(page, own, counters) {
                        Some(received) => return Ok(Some(received)),
                        None => continue,
                    },
                    None => return Ok(None),
                },
            };
            let path::Message { mut head, body } = self.receiver.message(message);
            let mut at = at.or_else(|| group::is_pack(body).then_some(group::FIRST));
            let mut range = 0..body.len();
            if let Some(at) = &mut at {
                let Some((head_at, frame_at, next)) = group::next(body, *at) else {
                    // Nothing is behind the last.
                    if *at < body.len() {
                        counters.add(Counter::DroppedLength, 1);
                    }
                    self.pack = None;
                    continue;
                };
                (head, range) = (&body[head_at], frame_at);
                *at = next;
            }
            let bytes = &body[range.clone()];
            let most = self.frame_bytes_max;
            let admitted = admit(head, bytes, &self.peer, own, most);
            let (at, bytes, pack) = (range.start as u32, bytes.len() as u32, at);
            self.pack = pack.map(|next| (message, next));
            match admitted {
                Ok(offload) => {
                    count_received(counters, bytes, offload);
                    let received = Received { message, at, bytes, offload };
                    return Ok(Some(ReceivedInPlace::Copied(received)));
                }
                Err(reason) => counters.add(reason, 1),
            }
        }
        Ok(None)
    }

    /// Admits a frame in its sender's page, or counts why not.
    fn admit_page(
        &mut self,
        page: InPage,
        own: &Member,
        counters: &mut Counters,
    ) -> Option<ReceivedInPlace> {
        // What is checked is a copy: the sender can change the page.
        let mut head = [0; HEAD_BYTES];
        let head = head.get_mut(..page.head_bytes()).unwrap_or_default();
        let bytes = page.body_bytes();
        let start = &mut self.start[..bytes.min(START_BYTES)];
        let is_read = page.view().read(0, head).is_ok() && page.read(0, start).is_ok();
        let is_whole = is_read && head.len() == page.head_bytes();
        // Packs are in storage of their own.
        let admitted = match is_whole && !group::is_pack(start) {
            true => admit_start(head, start, bytes, &self.peer, own, self.frame_bytes_max),
            false => Err(Counter::DroppedOffload),
        };
        self.page = Some(page);
        match admitted {
            Ok(offload) => {
                let bytes = bytes as u32;
                count_received(counters, bytes, offload);
                Some(ReceivedInPlace::InPage { bytes, offload })
            }
            Err(reason) => {
                counters.add(reason, 1);
                self.give_back();
                None
            }
        }
    }

    /// Gives the page back to its sender in which the frame lies that was received in place last.
    pub fn give_back(&mut self) {
        if let Some(page) = self.page.take() {
            // It is this receiver's.
            let _ = self.receiver.give_back(page);
        }
    }

    /// A frame that was received in place last, and not given back.
    pub fn frame_in_place(&self, received: ReceivedInPlace) -> FrameInPlace<'_> {
        let (bytes, offload) = match received {
            ReceivedInPlace::Copied(received) => {
                let Frame { offload, bytes } = self.frame(received);
                return FrameInPlace { offload, start: bytes, rest: None };
            }
            ReceivedInPlace::InPage { bytes, offload } => (bytes as usize, offload),
        };
        let start = &self.start[..bytes.min(START_BYTES)];
        let rest = self.page.as_ref().and_then(|page| page.part(start.len()).ok());
        FrameInPlace { offload, start, rest }
    }

    /// A frame that was received last.
    #[inline(always)]
    pub fn frame(&self, received: Received) -> Frame<'_> {
        let Received { message, at, bytes, offload } = received;
        let body = self.receiver.message(message).body;
        Frame { offload, bytes: &body[at as usize..][..bytes as usize] }
    }

    /// Buffers received so far. What was handed over by a moment is within a queue's buffers of the count then.
    pub fn buffers_received(&mut self) -> u64 {
        self.receiver.counters().get(path::Counter::Buffers)
    }

    /// Whether there is something to receive, or the path has ended.
    #[inline]
    pub fn is_ready(&mut self) -> bool {
        self.pack.is_some() || self.receiver.is_ready()
    }

    /// Gives back memory that was not used lately, but for that of a pack which is being given out. Returns whether
    /// there may be more to give back later.
    pub fn trim(&mut self) -> bool {
        if self.pack.is_none() {
            self.receiver.trim();
        }
        self.retire_rest();
        self.sender.trim() || !self.retiring.is_empty() && self.sender.ended().is_none()
    }

    /// The two halves, to wait for.
    pub fn halves(&mut self) -> (&mut Sender, &mut Receiver) {
        (&mut self.sender, &mut self.receiver)
    }

    /// The two halves, to look at.
    pub fn as_halves(&self) -> (&Sender, &Receiver) {
        (&self.sender, &self.receiver)
    }

    /// Ends the path in good order: what was sent can still be received.
    pub fn close(&mut self) {
        self.sender.sever([0; _]);
        self.receiver.sever([0; _]);
    }
}

/// Bytes of the longest message: a frame. A pack of them is shorter.
const BYTES_MAX: usize = FRAME_BYTES_MAX;
const _: () = assert!(BYTES_MAX > group::PACK_BYTES);

/// Frames of which a copy costs less than what it saves: they are copied though they could stay where they are.
const COPIED_BYTES_MAX: usize = 4096;

fn count_received(counters: &mut Counters, bytes: u32, offload: Offload) {
    counters.add(Counter::FramesReceived, 1);
    counters.add(Counter::BytesReceived, bytes.into());
    counters.add(Counter::SegmentsReceived, offload.segments(bytes as usize) as u64);
}

/// Frames that one call drops at most.
pub(super) const DROPPED_PER_CALL_MAX: usize = 64;
