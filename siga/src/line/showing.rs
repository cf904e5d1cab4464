//! What a stack at lines alone shows of itself: in storage of its first line, whose guest lends it to the host.

use std::io;

use fabric::control::Request;
use net::board;
use net::lan::counters::BOARD_BYTES;
use os::words::Words;

use super::end::Line;
use super::waits::Occupant;
use crate::lending::Lending;

/// The board of a line. A stack at a LAN shows itself there, and this one is lent to nobody.
#[derive(Debug)]
pub(super) struct Showing {
    words: Words,
    lending: Lending,
    is_shown: bool,
}

impl Showing {
    /// # Errors
    /// No memory or descriptors left.
    pub(super) fn new() -> io::Result<Showing> {
        let (words, lending) = Lending::new("siga stack", BOARD_BYTES, Request::ShowStack)?;
        Ok(Showing { words, lending, is_shown: false })
    }
}

impl Line {
    /// Where a stack can show itself.
    pub(crate) fn board(&self) -> &Words {
        &self.showing.words
    }

    /// From now on the board is lent to the host, and to each that follows.
    pub(crate) fn show_stack(&mut self, now: u64) {
        self.showing.is_shown = true;
        self.lend_board(now);
    }

    /// The stack shows itself elsewhere.
    pub(crate) fn hide_stack(&mut self) {
        if std::mem::take(&mut self.showing.is_shown) {
            board::hide(&self.showing.words);
        }
    }

    /// Does what a new host, or an answer of the host, is reason for.
    pub(super) fn lend_board(&mut self, now: u64) {
        let Line { waiter, guest, showing, .. } = self;
        if let Some(Occupant::Guest(guest)) = waiter.get(*guest)
            && showing.is_shown
        {
            showing.lending.follow_host(guest, now);
        }
    }
}
