//! Sockets for the packets of a network interface that are to some MAC addresses: `AF_XDP` (`Documentation/networking/af_xdp.rst`).
//!
//! A program that the kernel runs for each packet redirects packets to the addresses that were added to the socket of their queue, and leaves
//! all others to the kernel: the interface works on. Packets are put into memory of this process, and are sent from there.
//!
//! There is one socket for each queue over which the interface receives, all with the same memory, and packets are sent over the
//! first. What is longer than a frame of the memory lies in several.
//!
//! Everything goes with its descriptors: when the process ends, in whichever way, the interface is as it was before.

mod fill;
mod program;
mod rings;
mod umem;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use thiserror::Error;

use crate::again::again_while;
use crate::fork::ForkSafeFd;
use crate::interface::Interface;
use crate::mapping::{Access, Mapping};
use crate::storage::LentPart;

use fill::{ENTRIES_PER_FRAME, Fill};
pub use program::{ADDRESSES_MAX, Mode};
use program::{AttachError, Program};
use rings::{Consumer, Descriptor, Entry, Offsets, Producer};
use umem::{FRAME_BYTES, Memory};

/// Queues of an interface at most.
pub const QUEUES_MAX: u32 = 64;

/// Frames of the memory in which one packet may lie: as many pieces as a packet of the kernel's has at most, beside its start.
pub const PIECES_MAX: usize = 16;

/// Slices from which a packet is sent, at most.
pub const PARTS_MAX: usize = 4;

/// Bytes that the kernel keeps free at the start of each frame that it puts a packet into.
const HEADROOM_BYTES: usize = 256;

/// Packets that the kernel copies and sends for one call.
const PACKETS_PER_CALL: u32 = 32;

/// How large the rings are, and how the program is put on the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpOptions {
    /// Frames of 4096 bytes for each queue, for packets that were received and not yet looked at. A power of two.
    pub receive_frames: u32,
    /// Frames of 4096 bytes for packets that are to be sent. A power of two.
    pub send_frames: u32,
    /// Where the program runs: [`Mode::Native`] is tried first unless this says generic.
    pub mode: Mode,
}

impl Default for XdpOptions {
    /// 12 MiB of memory for an interface with one queue.
    fn default() -> XdpOptions {
        XdpOptions { receive_frames: 2048, send_frames: 1024, mode: Mode::Native }
    }
}

/// Why there is no socket.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenXdpError {
    /// There is no such interface in this network.
    #[error("there is no interface {0} in this network")]
    NoInterface(String),
    /// The interface has more queues than this module takes.
    #[error(
        "{interface} receives over {queues} queues: must be at most {QUEUES_MAX} (`ethtool -L {interface} combined 1` leaves one)"
    )]
    Queues {
        /// The interface.
        interface: String,
        /// How many it has.
        queues: u32,
    },
    /// A number of frames is no power of two.
    #[error("{0} frames: must be a power of two, at most 65536")]
    Frames(u32),
    /// The kernel has no such sockets.
    #[error("the kernel has no AF_XDP sockets: must be built with CONFIG_XDP_SOCKETS")]
    Unsupported,
    /// The process may not have such a socket.
    #[error("this process may not open AF_XDP sockets: must have CAP_NET_RAW")]
    MayNotReceive,
    /// The process may not load the program.
    #[error(
        "this process may not put a program on an interface: must have CAP_BPF and CAP_NET_ADMIN"
    )]
    MayNotLoad,
    /// The memory of the packets is more than may be locked.
    #[error(
        "{0} bytes of memory cannot be locked: must be within RLIMIT_MEMLOCK, or the process have CAP_IPC_LOCK"
    )]
    LockedMemory(u64),
    /// There is an XDP program on the interface already, which is not replaced.
    #[error(
        "there is an XDP program on {0} already: must be taken off first (`ip link set {0} xdp off`)"
    )]
    Occupied(String),
    /// Another socket has a queue of the interface.
    #[error("queue {queue} of {interface} has an AF_XDP socket of another program's")]
    QueueTaken {
        /// The interface.
        interface: String,
        /// Which queue, from 0.
        queue: u32,
    },
    /// The interface takes no program.
    #[error("{interface} takes no XDP program: {error}")]
    Attach {
        /// The interface.
        interface: String,
        /// What the kernel says.
        error: io::Error,
    },
    /// Otherwise as from the kernel: no memory or no descriptor left.
    #[error("{what}: {error}")]
    Os {
        /// What was asked for.
        what: &'static str,
        /// What the kernel says.
        error: io::Error,
    },
}

/// Why a packet was not sent.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum SendXdpError {
    /// All frames are on their way. Try again after [`XdpSocket::flush`].
    #[error("all frames are on their way")]
    Full,
    /// The packet is shorter than an Ethernet header or longer than [`XdpSocket::packet_bytes_max`].
    #[error("a packet that is too short or too long")]
    Length,
}

/// What the kernel has counted, over all queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpStatistics {
    /// Packets that did not fit into a frame, or had no room for another reason.
    pub receive_dropped: u64,
    /// Packets dropped because the ring of received packets was full.
    pub receive_ring_full: u64,
    /// Times that there was no frame to put a packet into.
    pub fill_ring_empty: u64,
    /// Descriptors of ours that the kernel did not take: a broken promise of this module.
    pub invalid_descriptors: u64,
}

/// What one [`XdpSocket::receive`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpReceived {
    /// Packets that were given out.
    pub packets: usize,
    /// Packets that were dropped: the kernel's descriptors made no sense, or the packet had too many pieces.
    pub bad: u64,
}

/// The socket of one queue.
#[derive(Debug)]
struct Queue {
    socket: ForkSafeFd,
    received: Consumer<Descriptor>,
    fill: Fill,
    /// The packet of which not all pieces were taken, and how many were.
    packet: Vec<u8>,
    pieces: usize,
    /// Set if a piece of this packet was bad.
    is_bad: bool,
}

/// The sockets of an interface.
#[derive(Debug)]
pub struct XdpSocket {
    // The program is first: it is off the interface before its sockets go.
    program: Program,
    queues: Vec<Queue>,
    sending: Producer<Descriptor>,
    sent: Consumer<u64>,
    memory: Memory,
    is_zero_copy: bool,
    takes_pieces: bool,
    /// The queue that is looked at first next time.
    next: usize,
    /// Set if something was sent that the kernel was not told of.
    is_unpublished: bool,
    calls: u64,
}

impl XdpSocket {
    /// Opens the sockets of an interface of the calling thread's network. No packet comes before an address was added. Takes up to two seconds
    /// for a queue that another socket has.
    ///
    /// # Errors
    /// [`OpenXdpError`]; everything is as before then.
    pub fn open(interface: &str, options: &XdpOptions) -> Result<XdpSocket, OpenXdpError> {
        let name = interface;
        for frames in [options.receive_frames, options.send_frames] {
            if !frames.is_power_of_two() || frames > 1 << 16 {
                return Err(OpenXdpError::Frames(frames));
            }
        }
        let interface = Interface::find(name).map_err(|error| match error.raw_os_error() {
            Some(libc::ENODEV) => OpenXdpError::NoInterface(name.to_owned()),
            _ => OpenXdpError::Os { what: "the interface", error },
        })?;
        let count = interface.receive_queues();
        if count > QUEUES_MAX {
            return Err(OpenXdpError::Queues { interface: name.to_owned(), queues: count });
        }
        let first = open_socket()?;
        let program = Program::attach(interface.index(), count, options.mode == Mode::Native);
        let program = program.map_err(|error| match error {
            AttachError::Occupied => OpenXdpError::Occupied(name.to_owned()),
            AttachError::Load(error) | AttachError::Attach(error) if is_denied(&error) => {
                OpenXdpError::MayNotLoad
            }
            AttachError::Load(error) => OpenXdpError::Os { what: "the program", error },
            AttachError::Attach(error) => {
                OpenXdpError::Attach { interface: name.to_owned(), error }
            }
        })?;
        let frames = count * options.receive_frames + options.send_frames;
        let mut memory = Memory::new(frames).map_err(os("the memory of packets"))?;
        register(&first, &memory)?;
        let first = Rings::make(first, options, true)?;
        let flags = first.bind(name, interface.index(), program.has_fragments())?;
        let is_zero_copy = is_zero_copy(&first.socket).map_err(os("the socket's mode"))?;
        let mut rings = vec![first];
        for number in 1..count {
            let next = Rings::make(open_socket()?, options, false)?;
            next.bind_beside(&rings[0].socket, name, interface.index(), number)?;
            rings.push(next);
        }
        let (mut queues, mut senders) = (Vec::new(), None);
        for (number, rings) in (0..).zip(rings) {
            let Rings { socket, received, fill, sending } = rings;
            let mut fill = Fill::new(fill);
            for _ in 0..options.receive_frames {
                fill.give(memory.lend_to_receive().expect("there are frames for each queue"));
            }
            fill.publish();
            let set = program.set_socket(number, socket.as_fd());
            set.map_err(os("the table of sockets"))?;
            senders = senders.or(sending);
            let (packet, pieces, is_bad) = (Vec::new(), 0, false);
            queues.push(Queue { socket, received, fill, packet, pieces, is_bad });
        }
        let (sending, sent) = senders.expect("the first queue sends");
        let takes_pieces = flags & libc::XDP_USE_SG != 0;
        let (next, calls) = (0, 0);
        let is_unpublished = false;
        Ok(XdpSocket {
            program,
            queues,
            sending,
            sent,
            memory,
            is_zero_copy,
            takes_pieces,
            next,
            is_unpublished,
            calls,
        })
    }

    /// Returns true if the network card reads and writes the memory itself; otherwise the kernel copies.
    pub fn is_zero_copy(&self) -> bool {
        self.is_zero_copy
    }

    /// Where the program runs.
    pub fn mode(&self) -> Mode {
        self.program.mode()
    }

    /// Bytes of the longest packet that is received and sent, Ethernet header included.
    pub fn packet_bytes_max(&self) -> usize {
        if self.takes_pieces {
            PIECES_MAX * (FRAME_BYTES - HEADROOM_BYTES)
        } else {
            FRAME_BYTES - HEADROOM_BYTES
        }
    }

    /// System calls made to receive and to send.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// The sockets: each is readable when there is something to receive in its queue.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.queues.iter().map(|queue| queue.socket.as_fd())
    }

    /// Has packets to this address come here, and no longer to the kernel.
    ///
    /// # Errors
    /// `E2BIG`: there are [`ADDRESSES_MAX`] already. `NotConnected` in a forked child.
    pub fn add_address(&self, address: [u8; 6]) -> io::Result<()> {
        self.program.add_address(address)
    }

    /// Ends that. No effect if the address was not added.
    pub fn remove_address(&self, address: [u8; 6]) {
        // An address that is not there is all that can be wrong.
        let _ = self.program.remove_address(address);
    }

    /// Gives `take` up to `packets_max` packets, from the Ethernet header on, each in one piece.
    #[inline]
    pub fn receive(&mut self, packets_max: usize, mut take: impl FnMut(&mut [u8])) -> XdpReceived {
        let mut received = XdpReceived::default();
        let count = self.queues.len();
        for _ in 0..count {
            let queue = &mut self.queues[self.next];
            if !queue.socket.in_child() {
                let (memory, calls) = (&mut self.memory, &mut self.calls);
                queue.receive(memory, packets_max, &mut received, calls, &mut take);
            }
            // The queue that has used up the bound is not the first next time.
            self.next = (self.next + 1) % count;
            if received.packets >= packets_max {
                break;
            }
        }
        received
    }

    /// Sends a packet: the bytes of `parts`, and behind these storage of another party's, which may change meanwhile. Its bytes are read once.
    /// The packet goes with [`XdpSocket::flush`] at the latest.
    ///
    /// # Errors
    /// [`SendXdpError`]; nothing was sent then.
    ///
    /// # Panics
    /// If there are more parts than [`PARTS_MAX`].
    #[inline]
    pub fn send(
        &mut self,
        parts: &[&[u8]],
        rest: Option<LentPart<'_>>,
    ) -> Result<(), SendXdpError> {
        assert!(parts.len() <= PARTS_MAX, "{} parts", parts.len());
        let rest_bytes = rest.map_or(0, |rest| rest.bytes());
        let bytes = parts.iter().map(|part| part.len()).sum::<usize>() + rest_bytes;
        if !(ETHERNET_BYTES..=self.packet_bytes_max()).contains(&bytes) {
            return Err(SendXdpError::Length);
        }
        if self.queues[0].socket.in_child() {
            return Err(SendXdpError::Full);
        }
        let pieces = bytes.div_ceil(FRAME_BYTES);
        if self.memory.free() < pieces {
            self.reclaim();
        }
        if self.memory.free() < pieces || self.sending.room() < pieces as u32 {
            return Err(SendXdpError::Full);
        }
        for start in (0..bytes).step_by(FRAME_BYTES) {
            let piece_bytes = (bytes - start).min(FRAME_BYTES);
            let fill = |target: &mut [u8]| gather(parts, rest, start, target);
            let address = self.memory.lend_to_send(piece_bytes, fill).expect("a free frame");
            let options = if start + piece_bytes < bytes { libc::XDP_PKT_CONTD } else { 0 };
            let descriptor = Descriptor { address, bytes: piece_bytes as u32, options };
            assert!(self.sending.push(descriptor), "the ring had room");
        }
        self.is_unpublished = true;
        Ok(())
    }

    /// Has the kernel send what was sent, as far as the interface takes it. Returns true if everything is on its way; otherwise a later call goes on.
    ///
    /// # Errors
    /// As from the kernel: `ENETDOWN` if the interface is down, `ENXIO` or `ENODEV` if it was removed. What was sent waits.
    #[inline]
    pub fn flush(&mut self) -> io::Result<bool> {
        if self.queues[0].socket.in_child() {
            return Ok(true);
        }
        if self.is_unpublished {
            self.sending.publish();
            self.is_unpublished = false;
        }
        let mut waiting = self.sending.waiting();
        if waiting == 0 || self.is_zero_copy && !self.sending.needs_wakeup() {
            return Ok(waiting == 0);
        }
        // The kernel sends some packets for each call where it copies.
        for _ in 0..=waiting / PACKETS_PER_CALL {
            self.calls += 1;
            let woken = wake_to_send(&self.queues[0].socket);
            let before = waiting;
            waiting = self.sending.waiting();
            match woken.map_err(|error| (error.raw_os_error(), error)) {
                _ if waiting == 0 || self.is_zero_copy => break,
                // It has sent some, and says that there are more.
                Ok(()) | Err((Some(libc::EAGAIN | libc::EINTR), _)) if waiting != before => {}
                Ok(()) => break,
                // The interface, or the memory of the kernel's, takes no more now.
                Err((Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR), _)) => break,
                Err((_, error)) => return Err(error),
            }
        }
        self.reclaim();
        Ok(waiting == 0)
    }

    /// Takes back the frames of packets that have left.
    fn reclaim(&mut self) {
        while let Some(address) = self.sent.pop() {
            let was_sent = self.memory.take_sent(address);
            debug_assert!(was_sent, "the kernel gives back what it has got");
        }
        self.sent.release();
    }

    /// What the kernel has counted since the sockets were opened.
    ///
    /// # Errors
    /// As from the kernel: none is expected.
    pub fn statistics(&self) -> io::Result<XdpStatistics> {
        let mut all = XdpStatistics::default();
        for queue in &self.queues {
            let counted = statistics(&queue.socket)?;
            all.receive_dropped += counted.rx_dropped;
            all.receive_ring_full += counted.rx_ring_full;
            all.fill_ring_empty += counted.rx_fill_ring_empty_descs;
            all.invalid_descriptors += counted.rx_invalid_descs + counted.tx_invalid_descs;
        }
        Ok(all)
    }
}

/// Bytes of an Ethernet header: the shortest packet.
const ETHERNET_BYTES: usize = 14;

impl Queue {
    /// Receives until `received` has `packets_max` packets.
    #[inline]
    fn receive(
        &mut self,
        memory: &mut Memory,
        packets_max: usize,
        received: &mut XdpReceived,
        calls: &mut u64,
        take: &mut impl FnMut(&mut [u8]),
    ) {
        self.fill.give_kept();
        let mut is_any = false;
        while received.packets < packets_max {
            let Some(Descriptor { address, bytes, options }) = self.received.pop() else { break };
            is_any = true;
            let is_last = options & libc::XDP_PKT_CONTD == 0;
            let frame = if is_last && self.pieces == 0 {
                let frame = memory.receive(address, bytes, &mut *take);
                received.packets += usize::from(frame.is_some());
                received.bad += u64::from(frame.is_none());
                frame
            } else {
                let frame = memory.receive(address, bytes, |piece| self.keep(piece));
                // The first piece counts also if it is bad: the next is not the start of a packet.
                self.pieces = self.pieces.max(1);
                self.is_bad |= frame.is_none();
                if is_last {
                    received.packets += usize::from(!self.is_bad);
                    received.bad += u64::from(self.is_bad);
                    if !self.is_bad {
                        take(&mut self.packet);
                    }
                    (self.pieces, self.is_bad) = (0, false);
                    self.packet.clear();
                }
                frame
            };
            // A frame that the kernel did not have is no frame to give back.
            if let Some(frame) = frame {
                self.fill.give(frame);
            }
        }
        if is_any {
            self.received.release();
            self.fill.publish();
        }
        if self.fill.needs_wakeup() {
            *calls += 1;
            wake_to_receive(&self.socket);
        }
    }

    /// Keeps a piece of a packet until all are there.
    fn keep(&mut self, piece: &[u8]) {
        self.pieces += 1;
        // One more than are sent: the kernel may begin a packet with a short piece.
        self.is_bad |= self.pieces > PIECES_MAX + 1;
        if !self.is_bad {
            self.packet.extend_from_slice(piece);
        }
    }
}

/// Copies what lies from `start` on in the parts and behind them in `rest` to `target`.
#[inline]
fn gather(parts: &[&[u8]], rest: Option<LentPart<'_>>, start: usize, target: &mut [u8]) {
    let (mut at, mut skipped) = (0, start);
    for part in parts {
        let from = &part[skipped.min(part.len())..];
        skipped -= part.len() - from.len();
        let count = from.len().min(target.len() - at);
        target[at..at + count].copy_from_slice(&from[..count]);
        at += count;
    }
    if let Some(rest) = rest
        && at < target.len()
    {
        let copied = rest.read(skipped, &mut target[at..]);
        debug_assert!(copied.is_ok(), "as many bytes as the packet has");
    }
}

/// The rings of a socket that is not bound yet.
struct Rings {
    socket: ForkSafeFd,
    received: Consumer<Descriptor>,
    fill: Producer<u64>,
    /// To send, and what was sent.
    sending: Option<(Producer<Descriptor>, Consumer<u64>)>,
}

impl Rings {
    fn make(socket: OwnedFd, options: &XdpOptions, sends: bool) -> Result<Rings, OpenXdpError> {
        let XdpOptions { receive_frames, send_frames, .. } = *options;
        let make = || -> io::Result<Rings> {
            // The kernel wants a ring of frames that were sent for each queue, used or not.
            let sent = if sends { send_frames } else { 1 };
            let fill_entries = ENTRIES_PER_FRAME * receive_frames;
            set_option(&socket, libc::XDP_UMEM_FILL_RING, &fill_entries)?;
            set_option(&socket, libc::XDP_UMEM_COMPLETION_RING, &sent)?;
            set_option(&socket, libc::XDP_RX_RING, &receive_frames)?;
            if sends {
                set_option(&socket, libc::XDP_TX_RING, &send_frames)?;
            }
            let offsets = offsets(&socket)?;
            let at = |offset: libc::off_t| offset as u64;
            let received = map::<Descriptor>(
                &socket,
                at(libc::XDP_PGOFF_RX_RING),
                offsets.rx,
                receive_frames,
            )?;
            let fill =
                map::<u64>(&socket, libc::XDP_UMEM_PGOFF_FILL_RING, offsets.fr, fill_entries)?;
            let sending = match sends {
                true => {
                    let sending = map::<Descriptor>(
                        &socket,
                        at(libc::XDP_PGOFF_TX_RING),
                        offsets.tx,
                        send_frames,
                    )?;
                    let sent = map::<u64>(
                        &socket,
                        libc::XDP_UMEM_PGOFF_COMPLETION_RING,
                        offsets.cr,
                        send_frames,
                    )?;
                    Some((sending.producer(), sent.consumer()))
                }
                false => None,
            };
            Ok(Rings {
                received: received.consumer(),
                fill: fill.producer(),
                sending,
                socket: ForkSafeFd::new(socket),
            })
        };
        make().map_err(os("the rings"))
    }

    /// Binds the first socket to the first queue, and returns the flags with which that was possible. The kernel tries first to have the
    /// network card use the memory itself.
    fn bind(&self, name: &str, index: u32, has_fragments: bool) -> Result<u16, OpenXdpError> {
        // Since Linux 6.6 a packet can lie in several frames.
        let pieces = if has_fragments { libc::XDP_USE_SG } else { 0 };
        let flags = libc::XDP_USE_NEED_WAKEUP | pieces;
        let bound = match bind(&self.socket, index, 0, flags, None) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && pieces != 0 => {
                bind(&self.socket, index, 0, libc::XDP_USE_NEED_WAKEUP, None)
                    .map(|()| libc::XDP_USE_NEED_WAKEUP)
            }
            bound => bound.map(|()| flags),
        };
        bound.map_err(|error| not_bound(error, name, 0))
    }

    /// Binds a further socket to a queue, with the memory of the first.
    fn bind_beside(
        &self,
        first: &ForkSafeFd,
        name: &str,
        index: u32,
        queue: u32,
    ) -> Result<(), OpenXdpError> {
        let bound = bind(&self.socket, index, queue, libc::XDP_SHARED_UMEM, Some(first));
        bound.map_err(|error| not_bound(error, name, queue))
    }
}

/// A ring that is mapped and not used yet.
struct Mapped<T> {
    mapping: Arc<Mapping>,
    offsets: Offsets,
    entries: u32,
    entry: std::marker::PhantomData<T>,
}

impl<T: Entry> Mapped<T> {
    fn producer(self) -> Producer<T> {
        Producer::new(self.mapping, self.offsets, self.entries)
    }

    fn consumer(self) -> Consumer<T> {
        Consumer::new(self.mapping, self.offsets, self.entries)
    }
}

fn map<T: Entry>(
    socket: &OwnedFd,
    offset: u64,
    offsets: libc::xdp_ring_offset,
    entries: u32,
) -> io::Result<Mapped<T>> {
    let libc::xdp_ring_offset { producer, consumer, desc, flags } = offsets;
    let offsets = Offsets { producer, consumer, flags, entries: desc };
    let bytes = offsets.bytes::<T>(entries);
    let mapping = Mapping::shared_at(socket.as_fd(), offset, bytes, Access::ReadWrite)?;
    Ok(Mapped { mapping: Arc::new(mapping), offsets, entries, entry: std::marker::PhantomData })
}

fn open_socket() -> Result<OwnedFd, OpenXdpError> {
    let family = AddressFamily::from_raw(libc::AF_XDP as u16);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(family, SocketType::RAW, flags, None).map_err(|error| {
        let error = io::Error::from(error);
        match error.raw_os_error() {
            Some(libc::EAFNOSUPPORT) => OpenXdpError::Unsupported,
            _ if is_denied(&error) => OpenXdpError::MayNotReceive,
            _ => OpenXdpError::Os { what: "the socket", error },
        }
    })
}

fn is_denied(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

fn os(what: &'static str) -> impl FnOnce(io::Error) -> OpenXdpError {
    move |error| OpenXdpError::Os { what, error }
}

fn not_bound(error: io::Error, interface: &str, queue: u32) -> OpenXdpError {
    match error.raw_os_error() {
        Some(libc::EBUSY) => OpenXdpError::QueueTaken { interface: interface.to_owned(), queue },
        _ => OpenXdpError::Os { what: "the socket of a queue", error },
    }
}

/// Has the kernel know the memory of packets.
fn register(socket: &OwnedFd, memory: &Memory) -> Result<(), OpenXdpError> {
    let (addr, len) = memory.range();
    let memory = libc::xdp_umem_reg {
        addr,
        len,
        chunk_size: FRAME_BYTES as u32,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    set_option(socket, libc::XDP_UMEM_REG, &memory).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOBUFS) => OpenXdpError::LockedMemory(len),
        _ => OpenXdpError::Os { what: "the memory of packets", error },
    })
}

fn set_option<T: Copy>(socket: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    let (value, bytes) = (ptr::from_ref(value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the kernel reads as many bytes of the value. The memory that an `xdp_umem_reg` names is the mapping of `Memory`, and
    // what the kernel writes there is said in `umem`: the pages stay the kernel's also when the mapping goes first.
    let set = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, value, bytes) };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// # Safety
/// Any bytes are a `T`, zeros too.
unsafe fn option<T: Copy>(socket: impl AsFd, option: libc::c_int) -> io::Result<T> {
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    let mut bytes = size_of::<T>() as libc::socklen_t;
    let socket = socket.as_fd().as_raw_fd();
    let target = value.as_mut_ptr().cast();
    // SAFETY: the kernel writes at most as many bytes as there is room for.
    let got = unsafe { libc::getsockopt(socket, libc::SOL_XDP, option, target, &mut bytes) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all bytes are zeros or the kernel's, and any bytes are a value: the caller vouches for it.
    Ok(unsafe { value.assume_init() })
}

fn offsets(socket: &OwnedFd) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: it has numbers only.
    unsafe { option(socket, libc::XDP_MMAP_OFFSETS) }
}

fn is_zero_copy(socket: &ForkSafeFd) -> io::Result<bool> {
    // SAFETY: it has one number only.
    let options: libc::xdp_options = unsafe { option(socket, libc::XDP_OPTIONS) }?;
    Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

fn statistics(socket: &ForkSafeFd) -> io::Result<libc::xdp_statistics> {
    if socket.in_child() {
        return Err(io::ErrorKind::NotConnected.into());
    }
    // SAFETY: it has numbers only.
    unsafe { option(socket, libc::XDP_STATISTICS) }
}

fn bind(
    socket: &ForkSafeFd,
    index: u32,
    queue: u32,
    flags: u16,
    first: Option<&ForkSafeFd>,
) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: index,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: first.map_or(0, |first| first.as_fd().as_raw_fd() as u32),
    };
    let bytes = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    let (socket, address) = (socket.as_fd().as_raw_fd(), ptr::from_ref(&address).cast());
    // The kernel frees the queue of a socket that was closed some time later.
    again_while(
        || {
            // SAFETY: the kernel reads the address, which is as long as is said.
            let bound = unsafe { libc::bind(socket, address, bytes) };
            if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
        },
        |error| error.raw_os_error() == Some(libc::EBUSY),
    )
}

fn wake_to_send(socket: &ForkSafeFd) -> io::Result<()> {
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: there is no data and no address.
    let sent = unsafe { libc::sendto(socket, ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn wake_to_receive(socket: &ForkSafeFd) {
    let (socket, none) = (socket.as_fd().as_raw_fd(), ptr::null_mut());
    // What the kernel answers changes nothing: it was woken up, or the interface is gone.
    // SAFETY: there is no room for data, and none for an address.
    let _ = unsafe {
        libc::recvfrom(socket, none, 0, libc::MSG_DONTWAIT, ptr::null_mut(), ptr::null_mut())
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_packet_are_gathered_from_its_parts() {
        let bytes: Vec<u8> = (0..200).collect();
        let parts = [&bytes[..12], &bytes[12..16], &[], &bytes[16..]];
        for (start, count) in [(0, 200), (0, 5), (3, 12), (11, 1), (12, 4), (14, 186), (199, 1)] {
            let mut target = vec![0; count];
            gather(&parts, None, start, &mut target);
            assert_eq!(target, bytes[start..start + count], "{count} from {start}");
        }
    }

    #[test]
    fn interface_that_is_not_there_and_numbers_that_are_wrong_are_refused() {
        let error = XdpSocket::open("siga-none", &XdpOptions::default()).unwrap_err();
        assert_eq!(error.to_string(), "there is no interface siga-none in this network");
        let options = XdpOptions { receive_frames: 1000, ..XdpOptions::default() };
        let error = XdpSocket::open("lo", &options).unwrap_err();
        assert!(matches!(error, OpenXdpError::Frames(1000)), "{error}");
    }
}
