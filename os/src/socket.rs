//! What the standard library's sockets lack.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

/// Ends a connection of TCP with a reset when its socket is closed: the other side learns that what it has may not be all.
///
/// # Errors
/// As from the kernel: it is no socket.
pub fn reset_when_closed(socket: impl AsFd) -> io::Result<()> {
    Ok(set_socket_linger(socket, Some(Duration::ZERO))?)
}
