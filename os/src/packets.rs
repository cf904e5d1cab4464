//! Sockets for the control plane: whole packets with descriptors, between processes of one machine.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, sockopt,
};

use crate::foreign::{self, Account, End, Foreign, Received};
use crate::fork::ForkSafeFd;
use crate::place::Place;

/// Descriptors that one packet can carry.
pub const PACKET_DESCRIPTORS_MAX: usize = 32;

/// One end of a connection that keeps packets whole and in order.
#[derive(Debug)]
pub struct Packets {
    socket: End,
}

/// What one receive brought.
#[derive(Debug)]
pub struct Packet {
    /// How many bytes were put into the buffer. Zero only when the peer is gone.
    pub bytes: usize,
    /// Descriptors that came along, as far as this process had numbers left for them.
    descriptors: Vec<Foreign>,
    /// The packet was longer than the buffer, or had more descriptors than [`PACKET_DESCRIPTORS_MAX`]: the
    /// rest is lost.
    pub truncated: bool,
    /// Not all descriptors that came along are there.
    lost: bool,
}

impl Packets {
    /// Connects to a listener.
    ///
    /// # Errors
    /// As from the kernel: no process listens there, no permission, a path too long for a socket.
    pub fn connect(path: &Path) -> io::Result<Packets> {
        let socket = socket()?;
        net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Packets { socket: End::new(ForkSafeFd::new(socket)) })
    }

    /// Both ends of a new connection, to be passed to two parties.
    ///
    /// # Errors
    /// No descriptor or no memory left.
    pub fn ends() -> io::Result<(OwnedFd, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        Ok(net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
    }

    /// Both ends for two parties in this process.
    ///
    /// # Errors
    /// No descriptor or no memory left.
    pub fn pair() -> io::Result<(Packets, Packets)> {
        let (one, other) = Packets::ends()?;
        Ok((
            Packets { socket: End::new(ForkSafeFd::new(one)) },
            Packets { socket: End::new(ForkSafeFd::new(other)) },
        ))
    }

    /// Takes over an end that was passed to us.
    ///
    /// # Errors
    /// If it is not a connected local socket of the right type.
    pub fn adopt(end: impl Into<Foreign>) -> io::Result<Packets> {
        let end = end.into();
        // The first question is for any descriptor, and no file system is asked.
        let kind = sockopt::socket_domain(&end).ok().zip(sockopt::socket_type(&end).ok());
        if kind != Some((AddressFamily::UNIX, SocketType::SEQPACKET)) {
            return Err(io::Error::other("the descriptor passed as a connection is none"));
        }
        let account = end.account();
        Ok(Packets { socket: End::of(end.adopt()?, account) })
    }

    /// Charges what comes over this connection to an account, if it is refused.
    pub fn charge_to(&mut self, account: &Account) {
        self.socket.charge_to(account);
    }

    /// Sends one packet, without waiting.
    ///
    /// # Errors
    /// `WouldBlock` if the peer is far behind; `OutOfMemory` if the kernel has no memory, or this user has
    /// too many descriptors on their way, be it to another process; otherwise the peer is gone.
    ///
    /// # Panics
    /// If there are more descriptors than [`PACKET_DESCRIPTORS_MAX`].
    pub fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.check_fork()?;
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PACKET_DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            let fits = ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
            assert!(fits, "a packet carries at most {PACKET_DESCRIPTORS_MAX} descriptors");
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match net::sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut ancillary, flags) {
            Ok(sent) => {
                debug_assert_eq!(sent, bytes.len(), "a packet goes whole or not at all");
                Ok(())
            }
            Err(error @ (Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM)) => {
                Err(io::Error::new(io::ErrorKind::OutOfMemory, error))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether at most a quarter of the room is taken by packets that the peer has not received. If its end
    /// is gone, there is room: sending reports it.
    pub fn has_room(&self) -> bool {
        let mut asked = [PollFd::new(&self.socket, PollFlags::OUT)];
        poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
    }

    /// Returns true if a packet, or the end of the connection, waits to be received; also if that cannot be found out.
    pub fn has_arrived(&self) -> bool {
        let mut asked = [PollFd::new(&self.socket, PollFlags::IN)];
        poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).map_or(true, |ready| ready > 0)
    }

    /// Returns true if the peer has closed its end, whatever of it is not received yet.
    pub fn has_hung_up(&self) -> bool {
        let mut asked = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
    }

    /// Whether descriptors lie in the queue of this end, to be received; also if that cannot be found out.
    pub fn holds_descriptors(&self) -> bool {
        !self.socket.in_child() && foreign::descriptors_in(self.as_fd()) != Some(0)
    }

    /// Receives one packet, without waiting.
    ///
    /// # Errors
    /// `WouldBlock` if there is none. An end that is gone is a packet of zero bytes, or an error.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Packet> {
        self.check_fork()?;
        let (mut descriptors, mut has_too_many) = (Vec::new(), false);
        let Received { bytes, is_cut, has_lost } =
            self.socket.receive(buffer, RecvFlags::DONTWAIT, |passed| {
                if descriptors.len() < PACKET_DESCRIPTORS_MAX {
                    descriptors.push(passed);
                } else {
                    has_too_many = true;
                }
            })?;
        Ok(Packet { bytes, descriptors, truncated: is_cut || has_too_many, lost: has_lost })
    }
}

impl Packet {
    /// Whether any descriptor came along, be it lost.
    pub fn has_descriptors(&self) -> bool {
        self.lost || !self.descriptors.is_empty()
    }

    /// Whether all descriptors that are there are memory files.
    pub fn has_only_memory_files(&self) -> bool {
        self.descriptors.iter().all(Foreign::is_memory_file)
    }

    /// The descriptors that came along.
    ///
    /// # Errors
    /// This process had no number left for all of them, which is no fault of the peer that passed them.
    pub fn passed(self) -> io::Result<Vec<Foreign>> {
        if self.lost { Err(Errno::MFILE.into()) } else { Ok(self.descriptors) }
    }
}

impl Packets {
    /// A forked child has no part in its parent's connections.
    fn check_fork(&self) -> io::Result<()> {
        if self.socket.in_child() { Err(io::ErrorKind::NotConnected.into()) } else { Ok(()) }
    }
}

impl AsFd for Packets {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A place in the file system where others can connect.
#[derive(Debug)]
pub struct Listener {
    /// Given up before the socket is closed: until then no other socket can have its number in the file system.
    _place: Place,
    socket: ForkSafeFd,
}

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

impl Listener {
    /// Listens at `path`, which only those whom `mode` lets write can connect to. What a dead listener left
    /// there is replaced. A file beside it, `path` with `.lock` behind, marks it as taken; both are removed
    /// in the end.
    ///
    /// # Errors
    /// `AddrInUse` if a process listens there already, or is about to; `AlreadyExists` if something is there
    /// that is no socket, which is left alone; otherwise as from the kernel.
    pub fn bind(path: &Path, mode: u32) -> io::Result<Listener> {
        let (address, mode) = (SocketAddrUnix::new(path)?, mode & 0o777);
        let mut place = Place::claim(path)?;
        let socket = socket()?;
        // Before it has a name: no process can connect while the mode is too wide for a moment.
        rustix::fs::fchmod(&socket, Mode::from_raw_mode(mode))?;
        net::bind(&socket, &address)?;
        place.settle(mode)?;
        net::listen(&socket, BACKLOG)?;
        Ok(Listener { _place: place, socket: ForkSafeFd::new(socket) })
    }

    /// Takes the next connection, without waiting.
    ///
    /// # Errors
    /// `WouldBlock` if no connection waits; `NotConnected` in a forked child; otherwise as from the kernel,
    /// for example if no descriptor is left.
    pub fn accept(&self) -> io::Result<Packets> {
        if self.socket.in_child() {
            // The number may be another descriptor's by now.
            return Err(io::ErrorKind::NotConnected.into());
        }
        match net::accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => Ok(Packets { socket: End::new(ForkSafeFd::new(socket)) }),
            Err(Errno::CONNABORTED | Errno::INTR) => Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.socket.in_child() {
            return;
        }
        // Those who wait to be taken in may have sent descriptors: each is dropped as a connection is. No
        // connection is added from here on, so they are at most as many as may wait.
        let _ = net::shutdown(&self.socket, net::Shutdown::Both);
        while self.accept().is_ok() {}
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_stay_whole_and_carry_descriptors() {
        let (ours, theirs) = Packets::pair().unwrap();
        let (reader, _writer) = std::io::pipe().unwrap();
        ours.send(b"one", &[]).unwrap();
        ours.send(b"two!", &[reader.as_fd(), reader.as_fd()]).unwrap();
        let mut buffer = [0; 16];
        let first = theirs.receive(&mut buffer).unwrap();
        assert_eq!((&buffer[..first.bytes], first.descriptors.len()), (&b"one"[..], 0));
        let second = theirs.receive(&mut buffer).unwrap();
        assert_eq!((&buffer[..second.bytes], second.descriptors.len()), (&b"two!"[..], 2));
        assert_eq!(theirs.receive(&mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(ours);
        assert_eq!(theirs.receive(&mut buffer).unwrap().bytes, 0);
    }

    #[test]
    fn only_an_end_of_a_connection_is_adopted() {
        let (ours, theirs) = Packets::ends().unwrap();
        let (ours, theirs) = (Packets::adopt(ours).unwrap(), Packets::adopt(theirs).unwrap());
        ours.send(b"hello", &[]).unwrap();
        assert_eq!(theirs.receive(&mut [0; 16]).unwrap().bytes, 5);
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(Packets::adopt(OwnedFd::from(reader)).is_err());
        let (stream, _) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(Packets::adopt(OwnedFd::from(stream)).is_err());
    }

    #[test]
    fn too_long_a_packet_is_seen_to_be_cut() {
        let (ours, theirs) = Packets::pair().unwrap();
        ours.send(&[7; 100], &[]).unwrap();
        let packet = theirs.receive(&mut [0; 16]).unwrap();
        assert!(packet.truncated && packet.bytes == 16);
    }

    #[test]
    fn room_is_gone_long_before_nothing_more_can_be_sent() {
        let (ours, theirs) = Packets::pair().unwrap();
        let mut sent_with_room = 0;
        while ours.has_room() {
            ours.send(b"a packet", &[]).unwrap();
            sent_with_room += 1;
        }
        for _ in 0..2 * sent_with_room {
            ours.send(b"a packet", &[]).unwrap();
        }
        for _ in 0..3 * sent_with_room {
            theirs.receive(&mut [0; 16]).unwrap();
        }
        assert!(ours.has_room());
    }

    #[test]
    fn child_takes_in_nobody() {
        let path = std::env::temp_dir().join(format!("siga-packets-child-{}", std::process::id()));
        let listener = Listener::bind(&path, 0o600).unwrap();
        let _client = Packets::connect(&path).unwrap();
        let refused = || {
            let accepted = listener.accept().map_err(|error| error.kind());
            u8::from(accepted.is_err_and(|kind| kind == io::ErrorKind::NotConnected))
        };
        assert_eq!(crate::fork::tests::run_in_child(refused), 1);
        listener.accept().unwrap();
    }

    #[test]
    fn listener_takes_over_from_a_dead_one_and_not_from_a_live_one() {
        let path = std::env::temp_dir().join(format!("siga-packets-{}", std::process::id()));
        let listener = Listener::bind(&path, 0o600).unwrap();
        let again = Listener::bind(&path, 0o600).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        let listener = Listener::bind(&path, 0o666).unwrap();
        // The two attempts above to find a listener are not waiting here.
        let client = Packets::connect(&path).unwrap();
        let server = listener.accept().unwrap();
        client.send(b"hello", &[]).unwrap();
        assert_eq!(server.receive(&mut [0; 16]).unwrap().bytes, 5);
    }
}
