//! Unix sockets that keep packets whole: one system call for each message.

use std::os::fd::OwnedFd;

use os::sync::pause;
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send, shutdown,
    socketpair, sockopt,
};

use super::{End, KERNEL, Opening, Transport, spins};
use crate::fault::{Doing, Fault};

pub(super) const UNIX_SEQPACKET: Transport = Transport {
    name: "unix-seqpacket",
    meaning: "a Unix packet socket with a send buffer of 4 MiB",
    carry: |opening| opening.over(PacketEnd::open),
    ..KERNEL
};

/// What a socket may hold before its sender waits. The usual 208 KiB do not hold the longest messages.
const SEND_BYTES: usize = 4 << 20;

/// One end of a packet socket.
#[derive(Debug)]
struct PacketEnd {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl PacketEnd {
    fn open(opening: &mut Opening<'_>) -> Result<PacketEnd, Fault> {
        let socket = opening.end(|| {
            let flags = SocketFlags::CLOEXEC;
            let ends = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
                .doing("make a packet socket")?;
            for socket in [&ends.0, &ends.1] {
                sockopt::set_socket_send_buffer_size(socket, SEND_BYTES)
                    .doing("set the size of a socket")?;
            }
            Ok(ends)
        })?;
        if spins(opening.order) {
            ioctl_fionbio(&socket, true).doing("keep a socket from sleeping")?;
        }
        Ok(PacketEnd { socket, buffer: vec![0; opening.bytes] })
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
