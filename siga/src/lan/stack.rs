//! A member of a LAN as a stack uses it.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

use fabric::control::Reply;
use net::lan::admission::check_start;
use net::lan::frame::Mac;
use net::lan::link::{Frame, FrameInParts, FrameInPlace, Urgency};
use net::lan::table::{LentTable, Member};
use os::poller::Sleeper;

use super::error::{JoinLanError, SendFrameError, TrySendFrameError};
use super::joining::{declined, registration};
use super::member::Lan;
use super::mesh::FoundInPlace;
use crate::guest::Claim;
use crate::waiter::Looked;
use crate::waiting::Wait;

/// An address that the host was asked for, or asked to take back.
#[derive(Debug)]
pub(crate) struct Registration {
    address: IpAddr,
    is_ours: bool,
    claim: Claim,
}

impl Registration {
    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns true if the address was asked for.
    pub(crate) fn is_ours(&self) -> bool {
        self.is_ours
    }
}

impl Lan {
    /// As [`Lan::register`] or [`Lan::unregister`], but does not wait for the host: [`Lan::take_registered`] has its answer.
    pub(crate) fn start_registering(
        &mut self,
        address: IpAddr,
        is_ours: bool,
    ) -> Result<Registration, JoinLanError> {
        let request = registration(address, is_ours);
        let claim = self.mesh.guest().ask(&request, &[])?;
        Ok(Registration { address, is_ours, claim })
    }

    /// The host's answer, if it has come.
    pub(crate) fn take_registered(
        &mut self,
        asked: &Registration,
    ) -> Option<Result<(), JoinLanError>> {
        let answer = self.mesh.guest().take(&asked.claim)?;
        Some(match answer {
            Some((Reply::Done { .. }, _)) => {
                self.note_registered(asked.address, asked.is_ours);
                Ok(())
            }
            Some((reply, _)) => Err(declined(self.name(), &reply)),
            None => Err(JoinLanError::HostGone),
        })
    }

    /// The members whose entries have become others since [`Lan::changes`] was this, by their numbers; none for one that
    /// has left.
    pub(crate) fn changed_since(
        &self,
        changes: u64,
    ) -> impl Iterator<Item = (usize, Option<&Member>)> {
        let numbers = self.mesh.changed_since(changes);
        numbers.map(|number| (number, self.mesh.table().get(number)))
    }

    /// Those of our addresses that the host that is there now does not give us, and why: for as long as it refuses them for
    /// a reason that lasts.
    pub(crate) fn lost(&self) -> Option<(Vec<IpAddr>, &JoinLanError)> {
        self.mesh.lost()
    }

    /// As [`Lan::try_push`], a frame whose data lies elsewhere.
    pub(crate) fn try_push_in_parts(
        &mut self,
        frame: &FrameInParts<'_>,
    ) -> Result<(), TrySendFrameError> {
        if self.mesh.in_child() {
            return Err(SendFrameError::NotMember.into());
        }
        self.mesh.refresh();
        let start = Frame { offload: frame.offload, bytes: frame.start };
        let most = self.mesh.frame_bytes_max();
        let destination = self.checked(check_start(start, frame.bytes(), self.mesh.own(), most))?;
        match destination.is_group() {
            true => {
                let whole = Frame { offload: frame.offload, bytes: &frame.whole() };
                self.mesh.send_to_all(whole, Urgency::WithOthers);
                Ok(())
            }
            false => self.mesh.send_in_parts(destination, frame),
        }
    }

    /// The next frame, of which most stays in its sender's page if it is long, until the next is looked for.
    pub(crate) fn try_find_in_place(&mut self) -> io::Result<Option<FoundInPlace>> {
        self.mesh.find_in_place()
    }

    /// A frame that was found last. None if the path over which it came is known to have ended since.
    pub(crate) fn found_in_place(&self, found: FoundInPlace) -> Option<FrameInPlace<'_>> {
        self.mesh.frame_still_in_place(found)
    }

    /// The member that has sent a frame that was found last, if that has left the LAN: the table does not name it any more.
    pub(crate) fn found_of_left(&self, found: FoundInPlace) -> Option<Member> {
        self.mesh.sender_that_left(found)
    }

    /// The address table.
    pub(crate) fn table(&self) -> &LentTable {
        self.mesh.table()
    }

    /// Counts the tables, of which each host has its own.
    pub(crate) fn tables(&self) -> u64 {
        self.mesh.tables()
    }

    /// The member that has a MAC address.
    pub(crate) fn find_mac(&mut self, mac: Mac) -> Option<&Member> {
        self.mesh.refresh();
        self.mesh.table().find(mac).map(|(_, member)| member)
    }

    /// Sleeps while others have the LAN, and `interrupt` ends its sleeps no longer.
    pub(crate) fn sleeper_alone(&self, interrupt: impl AsFd) -> Sleeper {
        self.mesh.waiter().remove_interrupt(interrupt);
        self.mesh.waiter().sleeper()
    }

    /// Gives the page back of the frame that was found last.
    pub(crate) fn give_back_found(&mut self) {
        self.mesh.give_back();
    }

    /// Looks whether there may be a frame, or room again after one was given back, for as long as one who waits looks before
    /// it sleeps. It ends at `deadline_ns` or when somebody wants the LAN.
    pub(crate) fn look(
        &mut self,
        deadline_ns: u64,
        is_wanted: impl Fn() -> bool,
    ) -> io::Result<Looked> {
        self.mesh.look(deadline_ns, is_wanted)
    }

    /// As [`Lan::prepare_wait`], but for one who ends the wait at the time that is returned, to give back memory.
    pub(crate) fn prepare_sleep(&mut self) -> Option<u64> {
        self.mesh.prepare_sleep()
    }

    /// A sleep was ended by the doorbells that are called so, after so long. Whether one of them is a member's.
    pub(crate) fn heard(&mut self, rang: &[u64], slept_ns: u64) -> bool {
        self.mesh.woken_by(rang, slept_ns)
    }

    /// How it waits for frames.
    pub(crate) fn wait_policy(&self) -> Wait {
        self.mesh.wait()
    }

    /// Sleeps while others have the LAN. `interrupt` ends that sleep, too.
    pub(crate) fn sleeper(&self, interrupt: impl AsFd) -> io::Result<Sleeper> {
        self.mesh.waiter().add_interrupt(interrupt)?;
        Ok(self.mesh.waiter().sleeper())
    }

    /// The words of this member that observers see, behind whose first ones a stack shows itself.
    pub(crate) fn board(&self) -> &os::words::Words {
        self.mesh.board()
    }

    /// The members whose paths have ended since this was asked last.
    pub(crate) fn take_parted(&mut self) -> Vec<Member> {
        self.mesh.take_disconnected()
    }

    /// Returns the member that has left, and of which frames are still received, that had both of these addresses.
    pub(crate) fn left_with(&self, mac: Mac, address: IpAddr) -> Option<&Member> {
        self.mesh.left_with(mac, address)
    }
}
