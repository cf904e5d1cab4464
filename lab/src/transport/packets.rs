//! Unix sockets that keep packets whole: one system call for each message.

use std::os::fd::{AsFd, OwnedFd};

use os::sync::pause;
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send, shutdown,
    socketpair, sockopt,
};

use super::{End, KERNEL, Opened, Opening, Transport, is_source, spins};
use crate::fault::{Doing, Fault};

pub(super) const UNIX_SEQPACKET: Transport = Transport {
    name: "unix-seqpacket",
    meaning: "a Unix packet socket with a send buffer of 4 MiB",
    stream: Some(|opening| opening.stream(PacketEnd::open)),
    exchange: Some(|opening| opening.exchange(PacketEnd::open)),
    request: Some(|opening| opening.request(PacketEnd::open)),
    has_pairs: true,
    ..KERNEL
};

/// What a socket may hold before its sender waits. The usual 208 KiB do not hold the longest messages.
const SEND_BYTES: usize = 4 << 20;

/// One end of a packet socket.
#[derive(Debug)]
pub(crate) struct PacketEnd {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl PacketEnd {
    pub(crate) fn open(opening: Opening<'_>) -> Opened<PacketEnd> {
        let Opening { order, control, bytes, .. } = opening;
        let socket = if is_source(order) {
            let flags = SocketFlags::CLOEXEC;
            let (ours, theirs) =
                socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
                    .doing("make a packet socket")?;
            for socket in [&ours, &theirs] {
                sockopt::set_socket_send_buffer_size(socket, SEND_BYTES)
                    .doing("set the size of a socket")?;
            }
            control.pass("socket", &[theirs.as_fd()])?;
            ours
        } else {
            let [ours] = control.descriptors()?;
            ours
        };
        if spins(order) {
            ioctl_fionbio(&socket, true).doing("keep a socket from sleeping")?;
        }
        Ok(PacketEnd { socket, buffer: vec![0; bytes] })
    }
}

impl End for PacketEnd {
    #[inline(always)]
    fn send(&mut self, bytes: usize, mut build: impl FnMut(&mut [u8])) -> Result<(), Fault> {
        let message = &mut self.buffer[..bytes];
        build(message);
        loop {
            match send(&self.socket, message, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()),
                Err(Errno::AGAIN) => pause(),
                Err(Errno::INTR) => {}
                Err(Errno::MSGSIZE) => {
                    let why = format!("no packet of {bytes} B goes through a Unix socket here");
                    return Err(Fault::Unable(why));
                }
                Err(error) => return Err(error).doing("send"),
            }
        }
    }

    fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    #[inline(always)]
    fn receive(&mut self, bytes: usize, mut read: impl FnMut(usize, &[u8])) -> Result<bool, Fault> {
        loop {
            match recv(&self.socket, &mut self.buffer[..bytes], RecvFlags::empty()) {
                Ok((_, 0)) => return Ok(false),
                Ok((_, came)) => {
                    read(0, &self.buffer[..came.min(bytes)]);
                    return Ok(true);
                }
                Err(Errno::AGAIN) => pause(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error).doing("receive"),
            }
        }
    }

    fn finish(&mut self) -> Result<(), Fault> {
        shutdown(&self.socket, Shutdown::Write).doing("end the connection")
    }
}
