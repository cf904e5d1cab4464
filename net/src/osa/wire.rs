//! Wires: what an adapter's port is connected to.
//!
//! An adapter receives frames from a wire in batches and sends frames in batches. A wire is the body of a network interface (`AF_XDP`,
//! macvtap, TAP: in the crate `port`), or memory.

use std::io;
use std::os::fd::BorrowedFd;

use crate::lan::frame::Mac;
use crate::lan::link::FrameInPlace;
use crate::lan::offload::Offload;

/// What a wire takes and gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Bytes of the longest packet in a frame, without the Ethernet header.
    pub mtu: usize,
    /// Set if the wire takes frames whose checksums of TCP and UDP are missing, and may give such frames. Otherwise the adapter completes
    /// them before it sends.
    pub completes_checksums: bool,
    /// Set if the wire takes frames that stand for several segments, with their checksums left out, and may give such frames. Otherwise the adapter cuts them
    /// before it sends.
    pub cuts_segments: bool,
    /// Bits a second of the medium, as far as is known.
    pub rate: Option<u64>,
}

/// The state of the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Frames go and come.
    Up,
    /// The interface is down, or has no carrier. Frames that are sent are lost.
    Down,
    /// The interface was removed: no frame will ever come again. The adapter opens another wire.
    Gone,
}

/// What a wire has counted since it was opened. All numbers grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireCounters {
    /// Frames received and given to the adapter.
    pub frames_received: u64,
    /// Bytes of these, from the Ethernet header on.
    pub bytes_received: u64,
    /// Frames sent.
    pub frames_sent: u64,
    /// Bytes of these.
    pub bytes_sent: u64,
    /// Frames for the adapter that were dropped in front of it because it was too far behind: by the kernel's count, if the kernel counts.
    pub dropped_behind: u64,
    /// Received frames dropped: shorter than an Ethernet header, longer than a frame may be, or with a head that makes no sense.
    pub dropped_bad: u64,
    /// Frames that were to be sent and that the wire did not take.
    pub dropped_unsent: u64,
    /// System calls made to receive and to send.
    pub calls: u64,
}

/// Why a frame did not go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// The wire is full. Try again when [`Wire::due`] has passed or the descriptor says so; nothing was sent.
    Full,
    /// The frame was dropped and counted: the wire is down, or does not take such a frame.
    Dropped,
}

/// A port's wire. All verbs return at once and do bounded work. One thread has it.
pub trait Wire: Send {
    /// What it takes and gives. This changes if somebody changes the interface's MTU: the adapter asks again when [`Wire::look`] says so.
    fn capabilities(&self) -> Capabilities;

    /// The MAC address of the port, in frames of guests that have none of their own.
    fn mac(&self) -> Mac;

    /// Has frames to this unicast MAC address, or to this group, come, too. The port's own address and frames to all come always. Nothing of it
    /// stays when the wire is dropped or its process is killed.
    ///
    /// # Errors
    /// The kernel's: the table is full, or a right is missing. The adapter says so to the guest that wanted the address.
    fn add_address(&mut self, mac: Mac) -> io::Result<()>;

    /// Ends that. No effect if the address was not added.
    fn remove_address(&mut self, mac: Mac);

    /// Receives up to `frames_max` frames, each given to `take`, and returns how many there were. Bytes are from the Ethernet header on,
    /// without a VLAN tag, which is in the offload. A count of `frames_max` says that more may be there.
    ///
    /// # Errors
    /// The kernel's: the wire is of no more use, which [`Wire::look`] explains.
    fn receive(
        &mut self,
        now: u64,
        frames_max: usize,
        take: &mut dyn FnMut(Offload, &[u8]),
    ) -> io::Result<usize>;

    /// Sends a frame that fits [`Wire::capabilities`]: it goes with [`Wire::flush`] at the latest. A part of the frame may lie where another
    /// process can change it at any time.
    ///
    /// # Errors
    /// [`NotSent`].
    fn send(&mut self, now: u64, frame: &FrameInPlace<'_>) -> Result<(), NotSent>;

    /// Has the kernel send what was sent, with few system calls.
    fn flush(&mut self, now: u64);

    /// Whoever has the wire is about to sleep until the descriptor is readable: [`Wire::receive`] ends that. Returns false if there is something to receive already. A wire
    /// whose other end is a process need not tell one that is awake.
    fn announce_sleep(&mut self) -> bool;

    /// A descriptor that is readable when there is something to receive, after [`Wire::announce_sleep`]; none if [`Wire::due`] says all. While the medium is down nothing is received, and it is
    /// readable when the medium may be up again.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// The descriptor was readable: to be called by whoever has waited for that. Returns true if the medium is to be looked at now.
    fn on_ready(&mut self) -> bool {
        false
    }

    /// When to receive, or to send what was full, though the descriptor says nothing.
    fn due(&self) -> Option<u64>;

    /// Looks at the state of the medium: to be called some times a second. Returns the carrier, and true if the capabilities have changed since.
    fn look(&mut self) -> (Carrier, bool);

    /// What was counted.
    fn counters(&self) -> WireCounters;
}
