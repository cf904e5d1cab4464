//! Building in place: room in our storage is claimed, filled, and sent or given up.

use super::{SendError, Sender};
use crate::path::half::{HalfId, NotOurs};
use crate::path::pages::{PAGE_BYTES, Piece};
use crate::path::record::Head;
use crate::queue::IN_PLACE_BYTES_MAX;

/// Room in our storage to build a message in place, of the half that gave it out.
#[derive(Debug)]
#[must_use = "room that is neither sent nor cancelled is lost to the path"]
pub struct Claim {
    pub(super) half: HalfId,
    pub(super) room: Room,
    pub(super) bytes: usize,
    pub(super) head: Head,
}

impl Claim {
    /// How many bytes there are.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes the message that is built here shorter: it ends after `bytes`, if it is longer.
    pub fn truncate(&mut self, bytes: usize) {
        self.bytes = self.bytes.min(bytes);
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Room {
    /// In the claim itself: it goes into a line.
    Line([u8; IN_PLACE_BYTES_MAX]),
    Piece(Piece),
    Large(u16),
}

/// Why a claim was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// The claim is another half's.
    #[error("this was claimed of another half, which alone sends it")]
    NotOurs,
    /// The path does not take the message now.
    #[error(transparent)]
    Send(#[from] SendError),
}

impl Sender {
    /// Claims room for a message of `bytes`, to build it in place. The head is fixed now.
    ///
    /// # Errors
    /// [`SendError`].
    ///
    /// # Panics
    /// If the head is longer than [`HEAD_BYTES_MAX`](crate::path::HEAD_BYTES_MAX).
    pub fn claim(&mut self, head: &[u8], bytes: usize) -> Result<Claim, SendError> {
        // So that what was built is not refused for want of a buffer.
        self.prepare(head)?;
        let length = head.len().saturating_add(bytes);
        let room = if length <= IN_PLACE_BYTES_MAX {
            Room::Line([0; _])
        } else if length <= PAGE_BYTES {
            let piece = self.reserve(length)?;
            let target = self.lending.bytes_mut(piece.page.segment, piece.offset, head.len());
            target.copy_from_slice(head);
            Room::Piece(piece)
        } else {
            Room::Large(self.reserve_large(bytes)?)
        };
        Ok(Claim { half: self.half.id, room, bytes, head: Head::new(head) })
    }

    /// The bytes of claimed room. None to a forked child, which has no storage, and if the claim is another
    /// half's.
    pub fn claimed<'a>(&'a mut self, claim: &'a mut Claim) -> Option<&'a mut [u8]> {
        if self.half.is_forked() || claim.half != self.half.id {
            return None;
        }
        let (segment, offset) = match &mut claim.room {
            Room::Line(bytes) => return Some(&mut bytes[..claim.bytes]),
            Room::Piece(piece) => (piece.page.segment, piece.offset + claim.head.bytes().len()),
            Room::Large(segment) => (*segment, 0),
        };
        Some(self.lending.bytes_mut(segment, offset, claim.bytes))
    }

    /// Sends what was built in claimed room. A large message stays there until the receiver has released it.
    ///
    /// # Errors
    /// [`CommitError`], and the room back: to try again, or to cancel.
    pub fn commit(&mut self, claim: Claim) -> Result<(), (CommitError, Claim)> {
        if claim.half != self.half.id {
            return Err((CommitError::NotOurs, claim));
        }
        self.try_commit(&claim).map_err(|error| (error.into(), claim))
    }

    fn try_commit(&mut self, claim: &Claim) -> Result<(), SendError> {
        let head = claim.head.bytes();
        self.prepare(head)?;
        match &claim.room {
            Room::Line(bytes) => self.hand_over_in_place(head, &bytes[..claim.bytes]),
            Room::Piece(piece) => {
                self.hand_over_piece(*piece, head.len(), head.len() + claim.bytes);
            }
            Room::Large(segment) => {
                return self.announce(head, *segment, claim.bytes, claim.bytes).map(drop);
            }
        }
        self.ring_if_due();
        Ok(())
    }

    /// Sends a message of `bytes` that `build` makes in place.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent then, whether `build` was called or not.
    ///
    /// # Panics
    /// If the head is longer than [`HEAD_BYTES_MAX`](crate::path::HEAD_BYTES_MAX).
    pub fn send_built(
        &mut self,
        head: &[u8],
        bytes: usize,
        build: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        let mut claim = self.claim(head, bytes)?;
        build(self.claimed(&mut claim).expect("claimed just now"));
        let sent = self.try_commit(&claim);
        if sent.is_err() {
            // Nobody but the reader can have come between: it has ended, or wants quiet.
            self.give_up(&claim.room);
        }
        sent.map(drop)
    }

    /// Takes claimed room back unsent.
    ///
    /// # Errors
    /// [`NotOurs`] if it was claimed of another half.
    pub fn cancel(&mut self, claim: Claim) -> Result<(), NotOurs<Claim>> {
        let claim = self.half.own(claim.half, claim)?;
        self.give_up(&claim.room);
        Ok(())
    }

    fn give_up(&mut self, room: &Room) {
        match room {
            Room::Line(_) => {}
            Room::Piece(piece) => self.pages.release(piece.page),
            Room::Large(segment) => self.lending.release_large(*segment),
        }
    }
}
