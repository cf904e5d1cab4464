//! What a guest's waiter serves.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc;

use os::doorbell::{Doorbell, Listen};
use siga::waiter::{Member, OneOf};

use super::conversation::Conversation;
use super::echo::Echo;
use super::iucv::Inquiry;
use super::mesh::Attachment;
use super::threads::Note;
use crate::crew::{Heard, Line};
use crate::torture::wire::ToChild;

/// A member of a guest's waiter.
#[derive(Debug)]
pub enum Seat {
    /// The supervisor.
    Ear(Ear),
    /// Threads of this guest.
    Bell(Bell),
    /// The host.
    Guest(Box<Attachment>),
    /// A peer.
    Path(Box<Conversation>),
    /// A peer, over a path of IUCV.
    Iucv(Box<Inquiry>),
    /// The guest that exhausts.
    Echo(Box<Echo>),
}

impl OneOf for Seat {
    fn member(&self) -> &dyn Member {
        match self {
            Seat::Ear(ear) => ear,
            Seat::Bell(bell) => bell,
            Seat::Guest(guest) => guest.as_ref(),
            Seat::Path(conversation) => conversation.as_ref(),
            Seat::Iucv(inquiry) => inquiry.as_ref(),
            Seat::Echo(echo) => echo.as_ref(),
        }
    }

    fn member_mut(&mut self) -> &mut dyn Member {
        match self {
            Seat::Ear(ear) => ear,
            Seat::Bell(bell) => bell,
            Seat::Guest(guest) => guest.as_mut(),
            Seat::Path(conversation) => conversation.as_mut(),
            Seat::Iucv(inquiry) => inquiry.as_mut(),
            Seat::Echo(echo) => echo.as_mut(),
        }
    }
}

/// Ready when the supervisor has said something.
#[derive(Debug)]
pub struct Ear {
    line: Line,
    heard: bool,
}

impl Ear {
    /// Listens to `line`.
    pub fn new(line: Line) -> Ear {
        Ear { line, heard: false }
    }

    /// The next that was said.
    pub fn listen(&mut self) -> Heard<ToChild> {
        let heard = self.line.hear().expect("the supervisor speaks as we do");
        self.heard = !matches!(heard, Heard::Nothing);
        heard
    }

    /// The line itself.
    pub fn line(&self) -> &Line {
        &self.line
    }
}

impl Member for Ear {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        add(self.line.as_fd());
    }

    fn hear(&mut self, _index: usize) -> bool {
        self.heard = true;
        true
    }

    fn is_ready(&mut self) -> bool {
        self.heard
    }
}

/// Ready when a thread has left a note.
#[derive(Debug)]
pub struct Bell {
    bell: Doorbell,
    notes: mpsc::Receiver<Note>,
    rung: bool,
}

impl Bell {
    /// Listens to `bell`, which is rung for each of the `notes`.
    pub fn new(bell: Doorbell, notes: mpsc::Receiver<Note>) -> Bell {
        Bell { bell, notes, rung: false }
    }

    /// The next note.
    pub fn next(&mut self) -> Option<Note> {
        let note = self.notes.try_recv().ok();
        self.rung = note.is_some();
        note
    }
}

impl Member for Bell {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        add(self.bell.as_fd());
    }

    fn hear(&mut self, _index: usize) -> bool {
        self.rung = true;
        !self.bell.hear(Listen::Now).gone
    }

    fn is_ready(&mut self) -> bool {
        self.rung
    }
}
