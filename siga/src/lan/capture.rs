//! A member that captures: what the others send.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use fabric::control::{Request, WantedAddress};
use fabric::name::LanName;
use net::lan::counters::Counter;
use net::lan::link::Frame;
use net::lan::table::Member;

use super::error::JoinLanError;
use super::joining::{self, Wish};
use super::mesh::{FoundRecord, Mesh};
use crate::guest::Guest;
use crate::waiter;
use crate::waiting::{Wait, after};

/// A guest that captures the frames of a LAN. It captures until it is dropped.
///
/// Each member gives it a copy of each frame that the member sends, once, before the frame goes. What was sent because of a
/// frame comes behind that frame, whoever sent it. A member drops copies for which there is no room, and reports how many.
pub struct Capture {
    mesh: Mesh,
    lan: LanName,
}

/// A frame that a member has sent, or a report that copies of some were lost.
#[derive(Clone, Copy, Debug)]
pub struct Captured<'a> {
    /// The member.
    pub from: &'a Member,
    /// When the frame was sent: the member's word, in nanoseconds of the machine's monotonic clock, but not later than it came
    /// nor before the frame that the member sent before.
    pub time_ns: u64,
    /// Frames of this member that were lost since what was given out before.
    pub lost: u64,
    /// The frame. None in a report of losses.
    pub frame: Option<Frame<'a>>,
}

impl fmt::Debug for Capture {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("Capture");
        fields.field("lan", &self.lan).field("own", self.mesh.own()).finish_non_exhaustive()
    }
}

impl Capture {
    /// Makes a guest a member of a LAN that captures, if the system file lets it. It has a MAC address, to which nothing
    /// can be sent, and no IP address. Waits at most 10 s for the host.
    ///
    /// # Errors
    /// [`JoinLanError`]; `Refused` with [`Problem::CaptureRefused`](fabric::control::Problem::CaptureRefused) if the
    /// guest must not capture.
    pub fn join(guest: Guest, lan: &str, wait: Wait) -> Result<Capture, JoinLanError> {
        let lan = lan.parse()?;
        let (wish, words) = Wish::new(lan, None, WantedAddress::None, true, false)?;
        let claim = wish.ask(&guest)?;
        let (joined, table) = wish.joined(guest.answer(&claim))?;
        let mesh = Mesh::new(guest, wish, joined, table, words, wait)?;
        Ok(Capture { mesh, lan })
    }

    /// Leaves the LAN, and gives the guest back.
    ///
    /// # Errors
    /// [`JoinLanError`]; the guest is gone then, which ends the membership too.
    pub fn leave(self) -> Result<Guest, JoinLanError> {
        let guest = self.mesh.into_guest();
        joining::change(&guest, self.lan, &Request::LeaveLan)?;
        Ok(guest)
    }

    /// The LAN.
    pub fn name(&self) -> LanName {
        self.lan
    }

    /// The members of the LAN whose frames are captured, as of now: all that do not capture.
    pub fn members(&mut self) -> impl Iterator<Item = &Member> {
        self.mesh.refresh();
        let members = self.mesh.table().members().map(|(_, member)| member);
        members.filter(|member| !member.captures)
    }

    /// What a member has sent, if there is something. It stays where it is until the next verb.
    ///
    /// # Errors
    /// `NotConnected` in a forked child; otherwise the kernel refuses to let us wait: nothing that can be helped.
    pub fn try_receive(&mut self) -> io::Result<Option<Captured<'_>>> {
        let found = self.mesh.next_record()?;
        Ok(found.map(|found| self.captured(found)))
    }

    /// What a member has sent. It stays where it is until the next verb. Waits until there is something.
    ///
    /// # Errors
    /// As [`Capture::try_receive`].
    pub fn receive(&mut self) -> io::Result<Captured<'_>> {
        let found = self.mesh.wait_for(u64::MAX, Mesh::next_record)?;
        Ok(self.captured(found.expect("no time was set")))
    }

    /// What a member has sent, waiting at most for `time`. None if the time is over.
    ///
    /// # Errors
    /// As [`Capture::try_receive`].
    pub fn receive_within(&mut self, time: Duration) -> io::Result<Option<Captured<'_>>> {
        let found = self.mesh.wait_for(after(time), Mesh::next_record)?;
        Ok(found.map(|found| self.captured(found)))
    }

    fn captured(&self, found: FoundRecord) -> Captured<'_> {
        let (from, frame) = self.mesh.record(found);
        Captured { from, time_ns: found.time_ns, lost: found.lost, frame }
    }

    /// What a counter of this member stands at.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.mesh.counter(counter)
    }

    /// Prepares for waiting elsewhere. True if there is nothing to do: then the descriptor becomes readable when there
    /// is.
    pub fn prepare_wait(&mut self) -> bool {
        self.mesh.prepare_wait()
    }
}

/// Readable when there may be something to receive. Call [`Capture::prepare_wait`] before.
impl AsFd for Capture {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.mesh.as_fd()
    }
}

/// Ready when there may be something to receive. Take all that there is.
impl waiter::Member for Capture {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        add(self.as_fd());
    }

    fn hear(&mut self, _index: usize) -> bool {
        self.mesh.drain_doorbells();
        true
    }

    fn is_ready(&mut self) -> bool {
        self.mesh.is_ready()
    }

    fn sleep(&mut self) {
        self.mesh.sleep();
    }
}
