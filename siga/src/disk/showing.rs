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

/// How long a host that lacked something is left alone before it is asked again.
const ASK_AGAIN_NS: u64 = 1_000_000_000;

/// A report, and where it stands with the host.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) report: Showing,
    /// Of the report, to be lent to the host.
    lent: ForkSafeFd,
    /// The host that was asked: see [`Guest::attachments`].
    attachment: Option<u32>,
    /// When to ask the same host once more.
    again_ns: Option<u64>,
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
            again_ns: None,
            claim: None,
            refused: None,
        })
    }

    /// Whether a host is there that could not be asked yet: nobody rings when it can.
    pub(super) fn is_to_ask(&self, guest: &Guest) -> bool {
        guest.is_attached() && self.attachment != Some(guest.attachments())
    }

    /// Lends the report to the host if that is another than before, or lacked something when it was asked, and takes its answer.
    /// Waits for nothing.
    pub(super) fn follow_host(&mut self, guest: &Guest, now_ns: u64) {
        let attachment = guest.attachments();
        let is_new = self.attachment != Some(attachment);
        if is_new || self.again_ns.is_some_and(|again_ns| again_ns <= now_ns) {
            // A host that cannot be asked now is asked at the next turn: one that is gone is followed by another.
            let asked = guest.ask(&Request::ShowVolumes, &[self.lent.as_fd()]);
            match asked {
                Ok(claim) => {
                    if is_new {
                        self.refused = None;
                    }
                    (self.attachment, self.again_ns) = (Some(attachment), None);
                    self.claim = Some(claim);
                }
                Err(_) if is_new => {}
                Err(_) => self.ask_again(guest, now_ns),
            }
        }
        let answer = self.claim.as_ref().and_then(|claim| guest.take(claim));
        if let Some(answer) = answer {
            self.claim = None;
            self.refused = match answer {
                Some((Reply::Failed { problem, .. }, _)) => Some(problem),
                _ => None,
            };
            if self.refused.is_some_and(is_passing) {
                self.ask_again(guest, now_ns);
            }
        }
    }

    fn ask_again(&mut self, guest: &Guest, now_ns: u64) {
        let again_ns = now_ns.saturating_add(ASK_AGAIN_NS);
        self.again_ns = Some(again_ns);
        // The server may sleep until then.
        guest.remind(again_ns);
    }
}

/// Whether the same request can be granted later.
fn is_passing(problem: Problem) -> bool {
    matches!(problem, Problem::HostResources | Problem::VolumesLimit)
}
