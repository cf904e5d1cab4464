//! Packets of a line: into messages, and out of them.

use std::ops::Range;

use message::iucv::{Outgoing, ReceiveError, SendError, TrySendError, Which};
use net::lan::frame::{ETHERNET_BYTES, Mac};
use net::lan::link::FrameInParts;
use net::lan::offload::Offload;
use net::links::{NotTaken, Offer, Walk};
use net::tcpip::Unsent;
use os::processor::now_ns;

use super::end::Line;
use super::waits::Filling;

/// The MAC address of both ends, in the Ethernet header that frames of a stack have. It is on no network.
pub(crate) const MAC: Mac = Mac([2, 0, 0, 0, 0, 0]);

/// How long until a message that could not be sent is tried again.
pub(super) const RETRY_NS: u64 = 10_000_000;

/// Completions that one call takes, and looks at the guest. More is left to the next call.
const LOOKS_PER_CALL_MAX: usize = 4;

/// A message that has come, whose packets are taken one by one.
#[derive(Debug)]
pub(crate) struct Message {
    walk: Walk,
    bytes: usize,
}

impl Line {
    /// Does what there is to do beside packets that have come: the connection, completions, and what was collected. Returns whether there was
    /// anything.
    pub(crate) fn poll(&mut self, now: u64) -> std::io::Result<bool> {
        let mut has_worked = self.look_for_news(now)?;
        if self.adapter.is_none() {
            self.connect_if_due(now);
        }
        if self.retry_ns.is_some_and(|retry| retry <= now) {
            self.retry_ns = None;
        }
        if self.adapter.is_some() {
            return Ok(has_worked | self.poll_adapter(now));
        }
        has_worked |= self.take_completions(now);
        has_worked |= self.send_collected(now);
        Ok(has_worked)
    }

    /// Serves the guest if it has news.
    fn look_for_news(&mut self, now: u64) -> std::io::Result<bool> {
        let mut has_worked = false;
        for _ in 0..LOOKS_PER_CALL_MAX {
            let found = match std::mem::take(&mut self.has_slept) {
                true => self.waiter.try_next()?.map(|(key, _)| key),
                false => self.waiter.try_next_busy()?,
            };
            match found {
                Some(key) if key == self.guest => self.serve_guest(now),
                _ => break,
            }
            has_worked = true;
        }
        Ok(has_worked)
    }

    /// When there is something to do though nothing has come.
    pub(crate) fn due(&self) -> Option<u64> {
        self.connect_due().into_iter().chain(self.retry_ns).min()
    }

    /// The message under way may be complete.
    fn take_completions(&mut self, now: u64) -> bool {
        let mut has_worked = false;
        for _ in 0..LOOKS_PER_CALL_MAX {
            let Some(joined) = self.joined() else { break };
            match joined.path.raw().complete(Which::Any, &mut []) {
                Ok(Some((completion, ..))) if completion.audit.is_good() => {
                    self.driver.complete(now);
                }
                Ok(Some(_)) => self.driver.lose(),
                Ok(None) | Err(_) => break,
            }
            has_worked = true;
        }
        has_worked
    }

    /// Sends the packets that were collected, as one message, if none is under way.
    fn send_collected(&mut self, now: u64) -> bool {
        let Line { waiter, path, driver, retry_ns, .. } = self;
        let Some(message) = driver.collected().filter(|_| retry_ns.is_none()) else { return false };
        let joined = path.and_then(|key| waiter.get_mut(key)).and_then(|found| found.joined());
        let Some(joined) = joined else { return false };
        let sent = joined.path.raw().send(&Outgoing::default(), &message);
        let bytes = message.len();
        drop(message);
        match sent {
            Ok(_) => {
                driver.sent_collected(now, bytes);
                true
            }
            Err(error) => {
                self.unsent(now, error);
                false
            }
        }
    }

    /// A message was not sent: says what becomes of a packet that was to go with it.
    fn unsent(&mut self, now: u64, error: TrySendError) -> Unsent {
        match error {
            TrySendError::Send(SendError::Lacking(lack)) => {
                self.retry_ns = Some(now + RETRY_NS);
                Unsent::Lacking(lack)
            }
            // The storage of the path has room for several messages, so none is too long.
            TrySendError::Send(SendError::Severed(_) | SendError::TooLong { .. }) => {
                self.sever(now);
                Unsent::Unreachable
            }
            // Room, and the end of a quiesce, are found out by trying.
            _ => {
                self.retry_ns = Some(now + RETRY_NS);
                Unsent::Full
            }
        }
    }

    /// Sends a packet that lies behind the Ethernet header of a frame.
    ///
    /// # Errors
    /// [`Unsent`]; nothing of it has gone.
    pub(crate) fn send(&mut self, frame: &[u8]) -> Result<(), Unsent> {
        let packet = frame.get(ETHERNET_BYTES..).unwrap_or(&[]);
        let first = packet.first().copied().unwrap_or(0);
        self.send_by(first, packet.len(), |target| target.copy_from_slice(packet))
    }

    /// The same of a frame whose data lies elsewhere.
    ///
    /// # Errors
    /// [`Unsent`]; nothing of it has gone.
    pub(crate) fn send_in_parts(&mut self, frame: &FrameInParts<'_>) -> Result<(), Unsent> {
        let start = frame.start.get(ETHERNET_BYTES..).unwrap_or(&[]);
        let first = start.first().copied().unwrap_or(0);
        self.send_by(first, start.len() + frame.rest_bytes, |target| {
            let (head, rest) = target.split_at_mut(start.len());
            head.copy_from_slice(start);
            (frame.write_rest)(rest);
        })
    }

    fn send_by(
        &mut self,
        first: u8,
        bytes: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), Unsent> {
        let is_v4 = first >> 4 == 4;
        if self.driver.terms().is_none() && self.is_coming_up(now_ns()) {
            // What a program sends first need not be lost because the partner has not answered yet. If the partner is not there, it is.
            return Err(Unsent::Full);
        }
        let (framing, message_bytes) = match self.driver.offer(first, bytes) {
            Err(NotTaken::Full) => return Err(Unsent::Full),
            Err(NotTaken::Down | NotTaken::Unfit { .. }) => return Err(Unsent::Unreachable),
            Ok(Offer::Collect) => {
                self.driver.collect(is_v4, bytes, write);
                return Ok(());
            }
            Ok(Offer::Send(framing, message_bytes)) => (framing, message_bytes),
        };
        let now = now_ns();
        if self.adapter.is_some() {
            return self.write_one(now, (framing, is_v4), (bytes, message_bytes), write);
        }
        let Some(joined) = self.joined() else { return Err(Unsent::Unreachable) };
        let build = |target: &mut [u8]| framing.write_one(is_v4, target, write);
        match joined.path.raw().send_built(&Outgoing::default(), message_bytes, build) {
            Ok(_) => {
                self.driver.sent_one(now, bytes);
                Ok(())
            }
            Err(error) => Err(self.unsent(now, error)),
        }
    }

    /// Makes room for the longest message that the partner may send.
    pub(super) fn make_room(&mut self) {
        let bytes = self.driver.terms().map_or(0, |terms| terms.receive_bytes_max);
        self.received.resize(ETHERNET_BYTES + bytes, 0);
    }

    /// Takes the buffer out into which messages are received. [`Line::give_back`] puts it back.
    pub(crate) fn take_buffer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.received)
    }

    /// Takes the buffer back.
    pub(crate) fn give_back(&mut self, buffer: Vec<u8>) {
        self.received = buffer;
    }

    /// Keeps a message until it is received again, if it may have more packets. It lies in the buffer.
    pub(crate) fn keep(&mut self, message: Message) {
        if !message.walk.is_over() {
            self.kept = Some(message);
        }
    }

    /// Receives the next message into the line's buffer, if one is there as a whole, or returns the one that was kept there. Its packets are taken by
    /// [`Line::next_packet`].
    pub(crate) fn receive(&mut self, now: u64, buffer: &mut [u8]) -> Option<Message> {
        if let Some(message) = self.kept.take() {
            return Some(message);
        }
        if self.adapter.is_some() {
            let bytes = self.receive_block(now, buffer)?;
            let message = buffer.get(ETHERNET_BYTES..ETHERNET_BYTES + bytes)?;
            let walk = self.driver.receive(message)?;
            return Some(Message { walk, bytes });
        }
        let joined = self.waiter.get_mut(self.path?)?.joined()?;
        let filling = joined.filling.take();
        let (which, begun) = filling.map_or((Which::Any, 0), |filling| {
            (Which::Message { id: filling.id, class: filling.class }, filling.bytes)
        });
        let target = &mut buffer[ETHERNET_BYTES + begun..];
        let room = target.len();
        let received = match joined.path.raw().receive(which, target) {
            Ok(received) => received,
            Err(ReceiveError::Severed(_)) => {
                self.sever(now);
                return None;
            }
            Err(_) => return None,
        };
        let (of, bytes) = (received.message, begun + received.bytes);
        if received.residual > 0 {
            match received.residual + received.bytes > room {
                true => {
                    joined.path.raw().skip(of.id);
                    self.driver.refuse_long();
                }
                false => {
                    let (id, class, priority) = (of.id, of.class, of.priority);
                    joined.filling = Some(Filling { id, class, priority, bytes });
                }
            }
            return None;
        }
        if of.reply_bytes_max.is_some() {
            // A driver sends one way. What waits for a reply would count against the limit of the path.
            let _ = joined.path.raw().reject(of.id);
        }
        // The partner sends its next message when this one is complete: it need not wait for what this one brings.
        joined.path.raw().flush();
        let message = &buffer[ETHERNET_BYTES..ETHERNET_BYTES + bytes];
        let walk = self.driver.receive(message)?;
        Some(Message { walk, bytes })
    }

    /// Returns where in the buffer the frame with the next packet of a message is: behind an Ethernet header, which is written over what was taken
    /// out of the message before.
    ///
    /// None if there is no other, or after `looks` packets, which are counted down.
    pub(crate) fn next_packet(
        &mut self,
        message: &mut Message,
        buffer: &mut [u8],
        looks: &mut usize,
    ) -> Option<(Range<usize>, Offload)> {
        let bytes = buffer.get(ETHERNET_BYTES..ETHERNET_BYTES + message.bytes)?;
        let packet = self.driver.next_packet(&mut message.walk, bytes, looks)?;
        // The message begins behind as many bytes as the header has.
        let frame = packet.start..packet.end + ETHERNET_BYTES;
        net::tcpip::address(&mut buffer[frame.clone()], MAC, MAC);
        let offload = net::tcpip::trust(&mut buffer[frame.clone()]);
        Some((frame, offload))
    }
}
