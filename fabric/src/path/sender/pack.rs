//! Packs: small messages sent together while the receiver is behind.

use os::copy::{EXPECTED_BYTES, expect_writes, put};

use super::{InFlight, SendError, Sender, piece_entry};
use crate::path::counters::Counter;
use crate::path::pages::Piece;
use crate::path::record::{HEAD_BYTES_MAX, Label, PACKED_HEADER_BYTES, Packed, packed_bytes};
use crate::path::severed::{Reason, Severed};
use crate::queue::Content;

/// Bytes up to which a pack is filled before it is handed over.
const PACK_BYTES: usize = 16 << 10;

/// Messages above this many bytes are not packed: they get a buffer of their own.
const PACKABLE_BYTES_MAX: usize = 4 << 10;

/// While packing, the writer polls whether the reader has caught up each time so many bytes were added.
const POLL_BYTES: usize = 4 << 10;

/// How far ahead in a pack its lines are asked for, as many as the message takes (1000 B packed: 4.5 M/s with
/// two for each message, 5.8 with all).
const AHEAD_BYTES: usize = 2 << 10;

/// The pack that is being filled. Without one there is no room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pack {
    piece: Piece,
    at: usize,
    end: usize,
    poll_at: usize,
}

impl Sender {
    /// Whether there is a pack with room for a message.
    #[inline(always)]
    pub(super) fn fits_into_pack(&self, head: &[u8], body: &[u8]) -> bool {
        self.pack.as_ref().is_some_and(|pack| {
            body.len() <= PACKABLE_BYTES_MAX
                && head.len() <= HEAD_BYTES_MAX
                && packed_bytes(head.len() + body.len()) <= pack.end - pack.at
        })
    }

    /// Begins a pack, if a message that may wait should; whether there is one.
    pub(super) fn begin_pack(&mut self, head: &[u8], body: &[u8]) -> Result<bool, SendError> {
        self.prepare(head)?;
        // The first after a flush is not held back, and need not poll: the line was idle.
        let may_wait = body.len() <= PACKABLE_BYTES_MAX;
        let is_first = !std::mem::replace(&mut self.busy, may_wait);
        if !may_wait || is_first || !self.writer.is_behind() {
            return Ok(false);
        }
        let piece = self.reserve(PACK_BYTES)?;
        let (at, end) = (piece.offset, piece.offset + PACK_BYTES);
        self.pack = Some(Pack { piece, at, end, poll_at: at + POLL_BYTES });
        Ok(true)
    }

    /// Adds a message to the pack, which has room for it.
    #[inline(always)]
    pub(super) fn append(&mut self, head: &[u8], body: &[u8]) -> Result<(), SendError> {
        if self.half.is_forked() {
            return Err(Severed::because(Reason::Forked).into());
        }
        let pack = self.pack.as_mut().expect("called with a pack");
        let length = head.len() + body.len();
        let segment = pack.piece.page.segment;
        let rest = self.lending.bytes_mut(segment, pack.at, pack.end - pack.at);
        if let Some(mut ahead) = rest.get_mut(AHEAD_BYTES..) {
            expect_writes(ahead);
            for _ in 0..length / EXPECTED_BYTES {
                let Some(more) = ahead.get_mut(EXPECTED_BYTES..) else { break };
                ahead = more;
                expect_writes(ahead);
            }
        }
        let (header, content) = rest.split_at_mut(PACKED_HEADER_BYTES);
        let content = &mut content[..length];
        header.copy_from_slice(&Packed { length, head: head.len() }.bytes());
        let (head_target, body_target) = content.split_at_mut(head.len());
        put(head_target, head);
        put(body_target, body);
        pack.at += packed_bytes(length);
        self.tally.count(body.len());
        Ok(())
    }

    /// Hands the pack over if the receiver has nothing left to do meanwhile.
    #[inline(always)]
    pub(super) fn publish_if_caught_up(&mut self) {
        if let Some(pack) = &mut self.pack
            && pack.at >= pack.poll_at
        {
            pack.poll_at = pack.at + POLL_BYTES;
            if !self.writer.is_behind() {
                self.publish();
            }
        }
    }

    /// Hands the pack over, if there is one. It does not ring beyond what [`super::Ringing`] says.
    pub fn publish(&mut self) {
        let Some(pack) = self.pack.take() else { return };
        if self.half.is_forked() {
            return;
        }
        let used = pack.at - pack.piece.offset;
        self.pages.shorten(pack.piece, used);
        let content = Content::Entry(piece_entry(pack.piece, used).bits());
        let in_flight = InFlight { page: Some(pack.piece.page), bytes: used as u32 };
        self.hand_over(Label::Pack, 0, content, Some(in_flight));
        self.half.counters.add(Counter::Packs, 1);
        self.tally.show(&mut self.half.counters);
        self.ring_if_due();
    }
}
