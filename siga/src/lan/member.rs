//! A member of a LAN: its verbs.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use fabric::control::{LanJoined, Request, WantedAddress};
use fabric::name::LanName;
use net::lan::admission::{Refused, check};
use net::lan::counters::Counter;
use net::lan::frame::{Mac, destination};
use net::lan::link::{Frame, FrameInPlace, Urgency};
use net::lan::neighbour;
use net::lan::offload::Offload;
use net::lan::table::Member;
use os::processor::now_ns;

use super::error::{JoinLanError, SendFrameError, TrySendFrameError};
use super::joining::{self, Wish};
use super::mesh::{Found, Mesh};
use crate::guest::Guest;
use crate::waiter;
use crate::waiting::{Wait, after};

/// What a guest asks for when it joins a LAN. All fields have defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LanOptions {
    /// The IP address to register. Unless set, the host chooses one of each range that the LAN has. The system file may fix
    /// some.
    pub address: WantedAddress,
    /// The MAC address; the host chooses one unless set.
    pub mac: Option<Mac>,
    /// Set if the guest passes packets on: its receivers accept packets from IP addresses that are not its own. The system
    /// file has to allow it.
    pub routes: bool,
    /// How to wait for frames and for room.
    pub wait: Wait,
}

impl Default for LanOptions {
    fn default() -> LanOptions {
        // With an address, because a stack needs one. A member that only exchanges frames does not notice.
        LanOptions {
            address: WantedAddress::Chosen,
            mac: None,
            routes: false,
            wait: Wait::default(),
        }
    }
}

/// The membership of a guest in a LAN. It ends when it is dropped.
///
/// Frames to one member arrive in the order in which they were sent, and no frame is dropped because its target is
/// busy: it is given back. Frames to a group go to all members that have room for them.
pub struct Lan {
    pub(super) mesh: Mesh,
    lan: LanName,
    ipv4_prefix_bits: u8,
    ipv6_prefix_bits: u8,
}

impl fmt::Debug for Lan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("Lan");
        fields.field("lan", &self.lan).field("own", self.mesh.own()).finish_non_exhaustive()
    }
}

/// What a packet of IP is shorter than the largest frame, in bytes.
const HEADROOM_BYTES: usize = 8 << 10;

impl Lan {
    /// Makes a guest a member of a LAN. Connections for anything but frames are refused from now on. Waits at most
    /// 10 s for the host.
    ///
    /// # Errors
    /// [`JoinLanError`].
    pub fn join(guest: Guest, lan: &str, options: &LanOptions) -> Result<Lan, JoinLanError> {
        let lan = lan.parse()?;
        let (wish, words) = Wish::new(lan, options.mac, options.address, false, options.routes)?;
        let claim = wish.ask(&guest)?;
        let (joined, table) = wish.joined(guest.answer(&claim))?;
        let mesh = Mesh::new(guest, wish, joined, table, words, options.wait)?;
        let LanJoined { ipv4_prefix_bits, ipv6_prefix_bits, .. } = joined;
        Ok(Lan { mesh, lan, ipv4_prefix_bits, ipv6_prefix_bits })
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

    /// Our entry in the address table.
    pub fn own(&self) -> &Member {
        self.mesh.own()
    }

    /// Our MAC address.
    pub fn mac(&self) -> Mac {
        self.mesh.own().mac
    }

    /// Our IP addresses.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.mesh.own().addresses
    }

    /// How many leading bits the IP addresses of the LAN have in common that are of the family of our first address; of IPv4 if we
    /// have none.
    pub fn prefix_bits(&self) -> u8 {
        self.addresses().first().map_or(self.ipv4_prefix_bits, |own| self.prefix_bits_of(*own))
    }

    /// How many leading bits the IP addresses of the LAN have in common that are of this one's family.
    pub fn prefix_bits_of(&self, address: IpAddr) -> u8 {
        match address {
            IpAddr::V4(_) => self.ipv4_prefix_bits,
            IpAddr::V6(_) => self.ipv6_prefix_bits,
        }
    }

    /// Bytes of the largest frame that does not stand for segments, Ethernet header included.
    pub fn frame_bytes_max(&self) -> usize {
        self.mesh.frame_bytes_max()
    }

    /// Bytes of the largest packet of IP that does not stand for segments.
    pub fn mtu(&self) -> u32 {
        self.frame_bytes_max().saturating_sub(HEADROOM_BYTES) as u32
    }

    /// The members of the LAN, this one included, as of now.
    pub fn members(&mut self) -> impl Iterator<Item = &Member> {
        self.mesh.refresh();
        self.mesh.table().members().map(|(_, member)| member)
    }

    /// The member that has an IP address, or from whose MAC address it follows as one of IPv6 that is local to the link.
    pub fn find_owner(&mut self, address: IpAddr) -> Option<&Member> {
        self.mesh.refresh();
        self.mesh.table().find_owner(address).map(|(_, member)| member)
    }

    /// The member that has registered an IP address.
    pub fn find_address(&mut self, address: IpAddr) -> Option<&Member> {
        self.mesh.refresh();
        self.mesh.table().find_address(address).map(|(_, member)| member)
    }

    /// The member behind which an IP address is that no member has: it passes packets on from a network with this address.
    pub fn find_way(&mut self, address: IpAddr) -> Option<&Member> {
        self.mesh.refresh();
        self.mesh.table().find_way(address).map(|(_, member)| member)
    }

    /// The MAC address to which a frame for `ip` is to go instead of `mac`, where a kernel that is behind the address table sends it; none if
    /// that is right. `gateways` are the IP addresses of the members over which it sends packets to elsewhere.
    ///
    /// The member that has the IP address now gets the frame, unless it is for a gateway.
    pub fn next_hop(&mut self, gateways: &[IpAddr], mac: Mac, ip: IpAddr) -> Option<Mac> {
        self.mesh.refresh();
        neighbour::next_hop(self.mesh.table(), gateways, mac, ip)
    }

    /// A count of changes: while it is the same, so are the members.
    pub fn changes(&mut self) -> u64 {
        self.mesh.refresh();
        self.mesh.changes()
    }

    /// Why the host that is there now has not given this member all that it had at the one before; none if it has, or if there
    /// was none before. The member goes on trying; meanwhile paths to others go on for some seconds.
    pub fn refused(&self) -> Option<&JoinLanError> {
        self.mesh.following.refused.as_ref()
    }

    /// Registers another IP address, for at most four. Waits at most 10 s for the host.
    ///
    /// # Errors
    /// [`JoinLanError`].
    pub fn register(&mut self, address: IpAddr) -> Result<(), JoinLanError> {
        self.change_registration(address, true)
    }

    /// Gives an IP address up. Waits at most 10 s for the host.
    ///
    /// # Errors
    /// [`JoinLanError`].
    pub fn unregister(&mut self, address: IpAddr) -> Result<(), JoinLanError> {
        self.change_registration(address, false)
    }

    fn change_registration(&mut self, address: IpAddr, is_ours: bool) -> Result<(), JoinLanError> {
        let request = joining::registration(address, is_ours);
        joining::change(self.mesh.guest(), self.lan, &request)?;
        self.note_registered(address, is_ours);
        Ok(())
    }

    /// The host has given this member an address, or has taken it back: so will later hosts.
    pub(super) fn note_registered(&mut self, address: IpAddr, is_ours: bool) {
        self.mesh.refresh();
        let addresses = &mut self.mesh.following.addresses;
        addresses.retain(|own| *own != address);
        if is_ours {
            addresses.push(address);
        }
    }

    /// Sends a frame, at once. Waits while its target is too far behind, for as long as it is: a member that takes no
    /// frames holds up those that send to it, and two members that only send to each other wait for ever once both are
    /// full. A program that must go on sends with [`Lan::send_within`] or [`Lan::try_send`], and receives between.
    ///
    /// A frame to a member without a path waits in this process until there is one, which the other member has to
    /// accept: verbs that receive or wait see to that, so that a program that sends must come to one of them.
    ///
    /// # Errors
    /// [`SendFrameError`].
    #[inline]
    pub fn send(&mut self, offload: Offload, frame: &[u8]) -> Result<(), SendFrameError> {
        let frame = Frame { offload, bytes: frame };
        match self.send_as(frame, Urgency::Now) {
            Ok(()) => Ok(()),
            Err(TrySendFrameError::Send(error)) => Err(error),
            Err(TrySendFrameError::Full) => match self.send_before(frame, u64::MAX) {
                Ok(()) => Ok(()),
                Err(TrySendFrameError::Send(error)) => Err(error),
                Err(TrySendFrameError::Full) => unreachable!("no time was set"),
            },
        }
    }

    /// Sends a frame, at once. Waits at most for `time` while its target is too far behind.
    ///
    /// # Errors
    /// [`TrySendFrameError`]; `Full` if the time is over.
    pub fn send_within(
        &mut self,
        offload: Offload,
        frame: &[u8],
        time: Duration,
    ) -> Result<(), TrySendFrameError> {
        self.send_before(Frame { offload, bytes: frame }, after(time))
    }

    #[inline(never)]
    fn send_before(&mut self, frame: Frame<'_>, deadline_ns: u64) -> Result<(), TrySendFrameError> {
        loop {
            match self.send_as(frame, Urgency::Now) {
                Err(TrySendFrameError::Full)
                    if deadline_ns == u64::MAX || now_ns() < deadline_ns => {}
                sent => return sent,
            }
            // Frames to a group are never given back.
            let destination = destination(frame.bytes).unwrap_or(Mac::BROADCAST);
            self.mesh.wait_for_room(destination, deadline_ns);
        }
    }

    /// Sends a frame, at once, if its target is not too far behind.
    ///
    /// # Errors
    /// [`TrySendFrameError`].
    #[inline]
    pub fn try_send(&mut self, offload: Offload, frame: &[u8]) -> Result<(), TrySendFrameError> {
        self.send_as(Frame { offload, bytes: frame }, Urgency::Now)
    }

    /// Sends a frame, but perhaps not at once: small ones go together while their target is behind.
    /// [`Lan::flush`] sends what is held back, and so does waiting.
    ///
    /// # Errors
    /// [`TrySendFrameError`].
    #[inline]
    pub fn try_push(&mut self, offload: Offload, frame: &[u8]) -> Result<(), TrySendFrameError> {
        self.send_as(Frame { offload, bytes: frame }, Urgency::WithOthers)
    }

    pub(super) fn checked(
        &mut self,
        checked: Result<Mac, Refused>,
    ) -> Result<Mac, TrySendFrameError> {
        checked.map_err(|refused| {
            self.mesh.count(Counter::Refused, 1);
            TrySendFrameError::Send(SendFrameError::Refused(refused))
        })
    }

    #[inline]
    fn send_as(&mut self, frame: Frame<'_>, urgency: Urgency) -> Result<(), TrySendFrameError> {
        if self.mesh.in_child() {
            return Err(SendFrameError::NotMember.into());
        }
        self.mesh.refresh();
        let checked = check(frame, self.mesh.own(), self.mesh.frame_bytes_max());
        let destination = self.checked(checked)?;
        if destination.is_group() {
            self.mesh.send_to_all(frame, urgency);
            return Ok(());
        }
        self.mesh.send(destination, frame, urgency)
    }

    /// Hands over what was held back.
    pub fn flush(&mut self) {
        self.mesh.flush();
    }

    /// The next frame, if there is one. It stays where it is until the next verb.
    ///
    /// # Errors
    /// `NotConnected` in a forked child; otherwise the kernel refuses to let us wait: nothing that can be helped.
    #[inline]
    pub fn try_receive(&mut self) -> io::Result<Option<Frame<'_>>> {
        let received = self.mesh.next_frame()?;
        Ok(received.map(|received| self.mesh.frame(received)))
    }

    /// The next frame, if there is one, for those who give it on to the kernel, which would believe what it claims: frames from an IP address
    /// that is not their sender's, and frames that say who has an IP address or is a router, are dropped and counted. The most of a long one stays in the page
    /// of its sender, who can change it at any time, until the next verb that receives or waits. Call it until there is none:
    /// until then the sender lacks the page.
    ///
    /// # Errors
    /// As [`Lan::try_receive`].
    #[inline]
    pub fn try_receive_in_place(&mut self) -> io::Result<Option<FrameInPlace<'_>>> {
        let received = self.mesh.next_frame_in_place()?;
        Ok(received.map(|received| self.mesh.frame_in_place(received)))
    }

    /// The next frame. It stays where it is until the next verb. Waits until there is one.
    ///
    /// # Errors
    /// As [`Lan::try_receive`].
    #[inline]
    pub fn receive(&mut self) -> io::Result<Frame<'_>> {
        let received = match self.mesh.next_of_current() {
            Some(received) => received,
            None => self.wait_for_frame(u64::MAX)?.expect("no time was set"),
        };
        Ok(self.mesh.frame(received))
    }

    /// The next frame, waiting at most for `time`. None if the time is over.
    ///
    /// # Errors
    /// As [`Lan::try_receive`].
    pub fn receive_within(&mut self, time: Duration) -> io::Result<Option<Frame<'_>>> {
        self.receive_before(after(time))
    }

    fn receive_before(&mut self, deadline_ns: u64) -> io::Result<Option<Frame<'_>>> {
        let received = self.wait_for_frame(deadline_ns)?;
        Ok(received.map(|received| self.mesh.frame(received)))
    }

    #[inline(never)]
    fn wait_for_frame(&mut self, deadline_ns: u64) -> io::Result<Option<Found>> {
        self.mesh.wait_for(deadline_ns, Mesh::next_frame)
    }

    /// How many frames wait for the path to their target, which is being made. They are lost if the membership ends.
    pub fn waiting_frames(&self) -> usize {
        self.mesh.waiting_frames()
    }

    /// What a counter of this member stands at.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.mesh.counter(counter)
    }

    /// Counts what a program does for the LAN in front of a device: [`Counter::DroppedDevice`] and others.
    pub fn count(&mut self, counter: Counter, number: u64) {
        self.mesh.count(counter, number);
    }

    /// Prepares for waiting elsewhere: hands over what was held back. True if there is nothing to do: then the
    /// descriptor becomes readable when there is.
    pub fn prepare_wait(&mut self) -> bool {
        self.mesh.prepare_wait()
    }
}

/// Readable when there may be a frame, or room again. Call [`Lan::prepare_wait`] before.
impl AsFd for Lan {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.mesh.as_fd()
    }
}

/// Ready when there may be a frame, or room again after one was given back. Take all that there are.
impl waiter::Member for Lan {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        add(self.as_fd());
    }

    fn hear(&mut self, _index: usize) -> bool {
        self.mesh.drain_doorbells();
        true
    }

    #[inline]
    fn is_ready(&mut self) -> bool {
        self.mesh.is_ready()
    }

    fn trim(&mut self) -> bool {
        self.mesh.trim()
    }

    fn sleep(&mut self) {
        self.mesh.sleep();
    }
}
