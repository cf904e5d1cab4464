//! Members that capture, as a member sees them that sends.

use fabric::name::Name;
use fabric::path::SendError;
use net::lan::capture::{self, Content, Record};
use net::lan::link::{Frame, Link, Urgency};
use net::lan::waiting::WaitingFrames;

/// Copies that wait for the path to one of them.
const WAITING_MAX: usize = 16;

/// A member that captures.
#[derive(Debug)]
pub(super) struct Capturer {
    pub(super) number: usize,
    pub(super) name: Name,
    /// Copies that wait for the path.
    waiting: WaitingFrames<Record, WAITING_MAX>,
    /// Copies that the path has lost, and how many of these the other end was told of.
    lost: u64,
    told: u64,
}

impl Capturer {
    pub(super) fn new(number: usize, name: Name) -> Capturer {
        Capturer { number, name, waiting: WaitingFrames::default(), lost: 0, told: 0 }
    }

    /// Copies that wait for the path.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether the other end has yet to be told of copies that were lost.
    pub(super) fn has_to_tell(&self) -> bool {
        self.lost > self.told
    }

    /// Tells the other end how many copies were lost.
    pub(super) fn tell(&mut self, link: &mut Link, time_ns: u64) -> Result<(), SendError> {
        if self.has_to_tell() {
            let record = Record { time_ns, content: Content::Lost(self.lost) };
            capture::send(link, record, &[], Urgency::Now)?;
            self.told = self.lost;
        }
        Ok(())
    }

    /// Gives a copy of a frame over the path. If that fails, the copy is lost.
    pub(super) fn give(
        &mut self,
        link: &mut Link,
        time_ns: u64,
        frame: Frame<'_>,
        urgency: Urgency,
    ) -> Result<(), SendError> {
        let record = Record { time_ns, content: Content::Frame(frame.offload) };
        let told = self.tell(link, time_ns);
        let sent = told.and_then(|()| capture::send(link, record, frame.bytes, urgency));
        self.lost += u64::from(sent.is_err());
        sent
    }

    /// Keeps a copy until there is a path. False if too many wait: the copy is lost.
    pub(super) fn keep(&mut self, time_ns: u64, frame: Frame<'_>) -> bool {
        let record = Record { time_ns, content: Content::Frame(frame.offload) };
        let is_kept = self.waiting.push_copy(record, frame.bytes);
        self.lost += u64::from(!is_kept);
        is_kept
    }

    /// There is a path: what waited for it goes. How many copies were lost.
    pub(super) fn begin(&mut self, link: &mut Link, time_ns: u64) -> u64 {
        // What a path before this one has lost was told there, or is told here.
        self.lost -= std::mem::take(&mut self.told);
        let mut lost = 0;
        while let Some((record, bytes)) = self.waiting.pop() {
            lost += u64::from(capture::send(link, record, &bytes, Urgency::Now).is_err());
        }
        self.lost += lost;
        // Else with the next copy, or when there is room.
        let _ = self.tell(link, time_ns);
        lost
    }
}
