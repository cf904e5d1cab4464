//! Storage that a guest lends to whichever host there is, which shows observers what the guest writes there.

use std::io;
use std::os::fd::AsFd;

use fabric::control::{Problem, Reply, Request};
use os::fork::ForkSafeFd;
use os::storage::{STORAGE_GRAIN_BYTES, Storage, StorageOptions};
use os::words::Words;

use crate::Guest;
use crate::guest::Claim;

/// How long a host that lacked something is left alone before it is asked again. It is twice as long each time, up to [`ASK_AGAIN_MAX_NS`]: the host
/// counts each refusal, and the guest's program may wake up for it.
const ASK_AGAIN_NS: u64 = 1_000_000_000;
const ASK_AGAIN_MAX_NS: u64 = 64 * ASK_AGAIN_NS;

/// Storage to be lent, and where it stands with the host.
#[derive(Debug)]
pub(crate) struct Lending {
    /// Lends the storage.
    request: Request,
    lent: ForkSafeFd,
    /// The host that was asked: see [`Guest::attachments`].
    attachment: Option<u32>,
    /// When to ask the same host once more.
    again_ns: Option<u64>,
    /// How long the host is left alone next time.
    pause_ns: u64,
    claim: Option<Claim>,
    /// Why the host that was asked does not take it.
    refused: Option<Problem>,
}

impl Lending {
    /// Fresh storage of so many bytes at least, which nobody sees yet, and the words in it. The request lends it.
    ///
    /// # Errors
    /// No memory or descriptors left.
    pub(crate) fn new(name: &str, bytes: usize, request: Request) -> io::Result<(Words, Lending)> {
        let bytes = bytes.next_multiple_of(STORAGE_GRAIN_BYTES);
        let (storage, lent) = Storage::create(name, bytes, StorageOptions::default())?;
        let lending = Lending {
            request,
            lent: ForkSafeFd::new(lent),
            attachment: None,
            again_ns: None,
            pause_ns: ASK_AGAIN_NS,
            claim: None,
            refused: None,
        };
        Ok((Words::own(storage), lending))
    }

    /// Why the host that was asked does not show it, if it does not.
    #[cfg(feature = "disk")]
    pub(crate) fn refused(&self) -> Option<Problem> {
        self.refused
    }

    /// Whether a host is there that could not be asked yet: nobody rings when it can.
    #[cfg(feature = "disk")]
    pub(crate) fn is_to_ask(&self, guest: &Guest) -> bool {
        guest.is_attached() && self.attachment != Some(guest.attachments())
    }

    /// Lends the storage to the host if that is another than before, or lacked something when it was asked, and takes its answer.
    /// Waits for nothing.
    pub(crate) fn follow_host(&mut self, guest: &Guest, now_ns: u64) {
        let attachment = guest.attachments();
        let is_new = self.attachment != Some(attachment);
        if is_new || self.again_ns.is_some_and(|again_ns| again_ns <= now_ns) {
            // A host that cannot be asked now is asked at the next turn: one that is gone is followed by another.
            let asked = guest.ask(&self.request, &[self.lent.as_fd()]);
            match asked {
                Ok(claim) => {
                    if is_new {
                        (self.refused, self.pause_ns) = (None, ASK_AGAIN_NS);
                    }
                    (self.attachment, self.again_ns) = (Some(attachment), None);
                    self.claim = Some(claim);
                }
                Err(_) if is_new => {}
                Err(_) => self.ask_again(guest, now_ns, ASK_AGAIN_NS),
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
                self.ask_again(guest, now_ns, self.pause_ns);
                self.pause_ns = (self.pause_ns * 2).min(ASK_AGAIN_MAX_NS);
            }
        }
    }

    fn ask_again(&mut self, guest: &Guest, now_ns: u64, pause_ns: u64) {
        let again_ns = now_ns.saturating_add(pause_ns);
        self.again_ns = Some(again_ns);
        // The guest's program may sleep until then.
        guest.remind(again_ns);
    }
}

/// Returns true if the same request can be granted later.
fn is_passing(problem: Problem) -> bool {
    matches!(problem, Problem::HostResources | Problem::VolumesLimit | Problem::Limit(_))
}
