//! What a server shows of its volumes, to whichever host there is.

use std::io;
use std::os::fd::AsFd;

use disk::report::{REPORT_BYTES, Showing};
use fabric::control::{Problem, Reply, Request};
use os::fork::ForkSafeFd;
use os::storage::{STORAGE_GRAIN_BYTES, Storage, StorageOptions};
use os::words::Words;

use crate::Guest;
use crate::guest::Claim;

/// A report, and where it stands with the host.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) report: Showing,
    /// Of the report, to be lent to the host.
    lent: ForkSafeFd,
    /// The host that was asked: see [`Guest::attachments`].
    attachment: Option<u32>,
    claim: Option<Claim>,
    /// Why the host that was asked does not show it.
    pub(super) refused: Option<Problem>,
}

impl Shown {
    /// A report of nothing, which nobody sees yet.
    pub(super) fn new() -> io::Result<Shown> {
        let bytes = REPORT_BYTES.next_multiple_of(STORAGE_GRAIN_BYTES);
        let options = StorageOptions::default();
        let (storage, lent) = Storage::create("siga volumes", bytes, options)?;
        Ok(Shown {
            report: Showing::new(Words::own(storage)),
            lent: ForkSafeFd::new(lent),
            attachment: None,
            claim: None,
            refused: None,
        })
    }

    /// Whether a host is there that could not be asked yet: nobody rings when it can.
    pub(super) fn is_to_ask(&self, guest: &Guest) -> bool {
        guest.is_attached() && self.attachment != Some(guest.attachments())
    }

    /// Lends the report to the host if that is another than before, and takes its answer. Waits for nothing.
    pub(super) fn follow_host(&mut self, guest: &Guest) {
        let attachment = guest.attachments();
        if self.attachment != Some(attachment) {
            // A host that cannot be asked now is asked at the next turn: one that is gone is followed by another.
            let asked = guest.ask(&Request::ShowVolumes, &[self.lent.as_fd()]);
            if let Ok(claim) = asked {
                (self.attachment, self.refused) = (Some(attachment), None);
                self.claim = Some(claim);
            }
        }
        let answer = self.claim.as_ref().and_then(|claim| guest.take(claim));
        if let Some(answer) = answer {
            self.claim = None;
            if let Some((Reply::Failed { problem, .. }, _)) = answer {
                self.refused = Some(problem);
            }
        }
    }
}
