//! A wire that is an `AF_XDP` socket beside the kernel.
//!
//! Frames are sent by the ring of the socket if the network card reads the memory itself. Where the kernel copies in any case, as over a veth, a frame costs less by its
//! usual way: the socket for groups sends what is left to cut and to sum up as a whole, and the kernel, or the card, does the rest.
//!
//! Frames to the adapter's addresses do not reach the kernel. Frames to groups go to both: the adapter gets them by a socket of their own.
//!
//! The socket gets a frame before the kernel does, as the network card or the other end of a veth has left it. Two offloads do harm there,
//! and nothing in the frame shows it. A card that takes VLAN tags out leaves a frame that seems to have none ([`XdpWire::loses_tags`]). The
//! other end of a veth leaves checksums out, unless its offloads are off (`os::offload`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use net::lan::frame::{ETHERNET_BYTES, Mac};
use net::lan::link::FrameInPlace;
use net::lan::offload::{Checksum, FRAME_BYTES_MAX, Offload, segment};
use net::osa::wire::{Capabilities, Carrier, NotSent, Wire, WireCounters};
use os::offload::takes_tags_out;
use os::packet::{GroupPacket, GroupSocket};
use os::xdp::{Mode, SendXdpError, XdpSocket};
use rustix::io::Errno;

use super::medium::{Addresses, Medium, RETRY_NS, Source};
use super::{OpenWireError, WireOptions, find, os};
use crate::head::{TAG_AT, TAG_BYTES, from_kernel, in_vlan, is_tagged, to_kernel, untag};

/// How often frames to groups are asked for, which takes a system call.
const GROUPS_NS: u64 = 20_000;

/// Bytes of the shortest frame of an Ethernet, without its check sequence: shorter ones are filled up with zeros.
const FRAME_BYTES_MIN: usize = 60;

/// An `AF_XDP` socket, and one for groups.
#[derive(Debug)]
pub struct XdpWire {
    medium: Medium,
    socket: XdpSocket,
    groups: GroupSocket,
    addresses: Addresses,
    counters: WireCounters,
    /// A frame to a group, and a segment of it.
    frame: Vec<u8>,
    segment: Vec<u8>,
    /// When frames to groups are asked for next.
    groups_ns: u64,
    due: Option<u64>,
    loses_tags: bool,
    sends_by_ring: bool,
}

impl XdpWire {
    /// Opens the sockets at `interface` in the network of the calling thread.
    ///
    /// # Errors
    /// [`OpenWireError`]; everything is as before then.
    pub fn open(interface: &str, options: &WireOptions) -> Result<XdpWire, OpenWireError> {
        let (found, mac) = find(interface, options)?;
        let socket = XdpSocket::open(interface, &options.xdp)?;
        let groups = GroupSocket::open(found.index()).map_err(os("the socket for groups"))?;
        let mut medium = Medium::new(found).map_err(os("news of the interface"))?;
        medium.look(|| sources(&socket, &groups));
        // The table first: what the network card lets through for us is never the kernel's.
        socket.add_address(mac.0).map_err(os("the table of addresses"))?;
        let sends_by_ring = options.sends_by_ring.unwrap_or(socket.is_zero_copy());
        groups.set_address(mac.0, true).map_err(os("the address at the interface"))?;
        Ok(XdpWire {
            medium,
            socket,
            groups,
            addresses: Addresses::new(mac),
            counters: WireCounters::default(),
            frame: vec![0; FRAME_BYTES_MAX + TAG_BYTES],
            segment: Vec::new(),
            groups_ns: 0,
            due: None,
            loses_tags: takes_tags_out(interface).unwrap_or(false),
            sends_by_ring,
        })
    }

    /// Returns true if the network card reads and writes the wire's memory itself; otherwise the kernel copies.
    pub fn is_zero_copy(&self) -> bool {
        self.socket.is_zero_copy()
    }

    /// Returns true if the interface took VLAN tags out of frames when the wire was opened: a frame of a VLAN comes as if it were of none.
    /// `ethtool -K INTERFACE rxvlan off` ends that.
    pub fn loses_tags(&self) -> bool {
        self.loses_tags
    }

    /// Where the kernel takes the frames.
    pub fn mode(&self) -> Mode {
        self.socket.mode()
    }

    fn look_at_medium(&mut self) {
        let XdpWire { medium, socket, groups, .. } = self;
        medium.look(|| sources(socket, groups));
    }

    /// Receives frames to groups. The kernel may have left checksums and segments to others: they are completed here.
    fn receive_groups(&mut self, frames_max: usize, take: &mut dyn FnMut(Offload, &[u8])) -> usize {
        for count in 0..frames_max {
            self.counters.calls += 1;
            let packet = match self.groups.receive(&mut self.frame) {
                Ok(Some(packet)) => packet,
                Ok(None) => return count,
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    self.counters.dropped_bad += 1;
                    continue;
                }
                // The interface is down, or gone: `look` says so.
                Err(_) => return count,
            };
            let GroupPacket { head, vlan, bytes } = packet;
            let frame = self.frame.get_mut(..bytes);
            let read = frame.and_then(|frame| {
                let (offload, start) = from_kernel(&head, frame).ok()?;
                let frame = &frame[start..];
                Some((Offload::parse(&offload.head(), frame).ok()?, frame))
            });
            let Some((offload, frame)) = read else {
                self.counters.dropped_bad += 1;
                continue;
            };
            if !self.addresses.takes(frame) {
                continue;
            }
            let checksum = match offload.checksum {
                Checksum::Partial { .. } => Checksum::Unknown,
                checksum => checksum,
            };
            let vlan = vlan.map_or(offload.vlan, in_vlan);
            let left = Offload { checksum, segmentation: None, vlan };
            let counters = &mut self.counters;
            let mut take = |frame: &[u8]| {
                counters.frames_received += 1;
                counters.bytes_received += frame.len() as u64;
                take(left, frame);
            };
            match (offload.checksum, offload.segmentation) {
                (Checksum::Unknown | Checksum::Verified, None) => take(frame),
                _ => segment(offload, frame, &mut self.segment, |frame| take(frame)),
            }
        }
        frames_max
    }
}

impl XdpWire {
    /// Sends a frame by the kernel's usual way, on which it cuts segments and completes checksums. Frames of one wire all go one way, or some would overtake others.
    fn send_by_kernel(&mut self, now: u64, frame: &FrameInPlace<'_>) -> Result<(), NotSent> {
        let FrameInPlace { offload, start, rest } = *frame;
        if self.medium.carrier != Carrier::Up || start.len() < ETHERNET_BYTES {
            self.counters.dropped_unsent += 1;
            return Err(NotSent::Dropped);
        }
        let (head, tag) = to_kernel(offload);
        let (addresses, behind) = start.split_at(TAG_AT);
        let mut send = || {
            self.counters.calls += 1;
            match &tag {
                None => self.groups.send(&[&head, start], rest),
                Some(tag) => self.groups.send(&[&head, addresses, tag, behind], rest),
            }
        };
        // That the interface was down is said once more when it is up again.
        let sent = match send() {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NETDOWN) => send(),
            sent => sent,
        };
        match sent {
            Ok(()) => {
                self.counters.frames_sent += 1;
                self.counters.bytes_sent += frame.bytes() as u64;
                Ok(())
            }
            // The interface has as much as it takes, or the kernel has no memory now.
            Err(error) if is_passing(&error) => {
                self.due = Some(now + RETRY_NS);
                Err(NotSent::Full)
            }
            Err(error) => {
                if is_of_interface(&error) {
                    self.look_at_medium();
                }
                self.counters.dropped_unsent += 1;
                Err(NotSent::Dropped)
            }
        }
    }
}

/// Returns true if there may be room for a frame later.
fn is_passing(error: &io::Error) -> bool {
    let codes = [Errno::AGAIN, Errno::NOBUFS, Errno::NOMEM, Errno::INTR];
    Errno::from_io_error(error).is_some_and(|code| codes.contains(&code))
}

/// Returns true if the interface is down, or was removed, or was down since something was sent last.
fn is_of_interface(error: &io::Error) -> bool {
    let codes = [Errno::NETDOWN, Errno::NXIO, Errno::NODEV];
    Errno::from_io_error(error).is_some_and(|code| codes.contains(&code))
}

fn sources<'a>(socket: &'a XdpSocket, groups: &'a GroupSocket) -> Vec<Source<'a>> {
    socket.sockets().chain([groups.as_fd()]).zip(0..).collect()
}

impl Wire for XdpWire {
    fn capabilities(&self) -> Capabilities {
        let mtu = self.medium.mtu.min(self.socket.packet_bytes_max() - ETHERNET_BYTES - TAG_BYTES);
        let (rate, leaves) = (self.medium.rate, !self.sends_by_ring);
        Capabilities { mtu, completes_checksums: leaves, cuts_segments: leaves, rate }
    }

    fn mac(&self) -> Mac {
        self.addresses.own
    }

    fn add_address(&mut self, mac: Mac) -> io::Result<()> {
        // The interface keeps working for the kernel.
        if self.medium.interface.mac()? == mac.0 {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        if !self.addresses.add(mac)? {
            return Ok(());
        }
        let is_unicast = !mac.is_group();
        let added = match is_unicast {
            true => self.socket.add_address(mac.0),
            false => Ok(()),
        };
        let added = added.and_then(|()| self.groups.set_address(mac.0, true));
        if added.is_err() {
            self.addresses.remove(mac);
            if is_unicast {
                self.socket.remove_address(mac.0);
            }
        }
        added
    }

    fn remove_address(&mut self, mac: Mac) {
        if self.addresses.remove(mac) {
            // The interface may be gone.
            let _ = self.groups.set_address(mac.0, false);
            if !mac.is_group() {
                self.socket.remove_address(mac.0);
            }
        }
    }

    fn receive(
        &mut self,
        now: u64,
        frames_max: usize,
        take: &mut dyn FnMut(Offload, &[u8]),
    ) -> io::Result<usize> {
        if self.medium.is_resting() {
            return Ok(0);
        }
        let mut received = 0;
        if now >= self.groups_ns {
            self.groups_ns = now + GROUPS_NS;
            // Most of the bound is for the others.
            received = self.receive_groups(frames_max.div_ceil(4), take);
        }
        let counters = &mut self.counters;
        let mut bad = 0;
        let done = self.socket.receive(frames_max - received, |frame| {
            let (vlan, start) = match is_tagged(frame) {
                false => (None, 0),
                true => match untag(frame) {
                    Ok(vlan) => (vlan, TAG_BYTES),
                    Err(_) => {
                        bad += 1;
                        return;
                    }
                },
            };
            let frame = &frame[start..];
            if frame.len() < ETHERNET_BYTES {
                bad += 1;
                return;
            }
            counters.frames_received += 1;
            counters.bytes_received += frame.len() as u64;
            take(Offload { vlan, ..Offload::NONE }, frame);
        });
        counters.dropped_bad += done.bad + bad;
        Ok(received + done.packets)
    }

    fn send(&mut self, now: u64, frame: &FrameInPlace<'_>) -> Result<(), NotSent> {
        if !self.sends_by_ring {
            return self.send_by_kernel(now, frame);
        }
        let FrameInPlace { offload, start, rest } = *frame;
        let bytes = frame.bytes();
        let is_complete =
            offload.segmentation.is_none() && !matches!(offload.checksum, Checksum::Partial { .. });
        let fits = start.len() >= ETHERNET_BYTES && bytes <= self.medium.mtu + ETHERNET_BYTES;
        if self.medium.carrier != Carrier::Up || !is_complete || !fits {
            self.counters.dropped_unsent += 1;
            return Err(NotSent::Dropped);
        }
        let padding = [0; FRAME_BYTES_MIN];
        let padding = &padding[..FRAME_BYTES_MIN.saturating_sub(bytes)];
        let (_, tag) = to_kernel(Offload { vlan: offload.vlan, ..Offload::NONE });
        let (addresses, behind) = start.split_at(TAG_AT);
        // Only a frame without a rest is short enough to be filled up, unless the rest is a few bytes: those go unfilled.
        let padding = if rest.is_some() { &[] } else { padding };
        let sent = match &tag {
            None => self.socket.send(&[start, padding], rest),
            Some(tag) => self.socket.send(&[addresses, tag, behind, padding], rest),
        };
        match sent {
            Ok(()) => {
                self.counters.frames_sent += 1;
                self.counters.bytes_sent += bytes as u64;
                Ok(())
            }
            Err(SendXdpError::Full) => {
                self.due = Some(now + RETRY_NS);
                Err(NotSent::Full)
            }
            Err(SendXdpError::Length) => {
                self.counters.dropped_unsent += 1;
                Err(NotSent::Dropped)
            }
        }
    }

    fn flush(&mut self, now: u64) {
        if !self.sends_by_ring {
            // Whoever is still refused sets it again.
            self.due = self.due.filter(|due| *due > now);
            return;
        }
        self.due = match self.medium.is_resting() {
            // What was sent waits for the carrier.
            true => None,
            false => match self.socket.flush() {
                Ok(true) => None,
                Ok(false) => Some(now + RETRY_NS),
                Err(_) => {
                    self.look_at_medium();
                    (!self.medium.is_resting()).then_some(now + RETRY_NS)
                }
            },
        };
    }

    fn announce_sleep(&mut self) -> bool {
        // The kernel says in any case what has come.
        true
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.medium.poller.as_fd())
    }

    fn on_ready(&mut self) -> bool {
        self.medium.has_news()
    }

    fn due(&self) -> Option<u64> {
        self.due
    }

    fn look(&mut self) -> (Carrier, bool) {
        self.look_at_medium();
        (self.medium.carrier, self.medium.take_change())
    }

    fn counters(&self) -> WireCounters {
        let counted = self.socket.statistics().unwrap_or_default();
        let behind = counted.receive_dropped + counted.receive_ring_full + self.groups.dropped();
        let calls = self.counters.calls + self.socket.calls();
        WireCounters { dropped_behind: behind, calls, ..self.counters }
    }
}
