//! What the standard library's sockets lack.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt::{
    set_socket_keepalive, set_socket_linger, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl,
};

/// Ends a connection of TCP with a reset when its socket is closed: the other side learns that what it has may not be all.
///
/// # Errors
/// As from the kernel: it is no socket.
pub fn reset_when_closed(socket: impl AsFd) -> io::Result<()> {
    Ok(set_socket_linger(socket, Some(Duration::ZERO))?)
}

/// Lets so many connections wait to be accepted by a socket that listens: the standard library lets 128.
///
/// # Errors
/// As from the kernel: it is no socket that listens.
pub fn set_backlog(listener: impl AsFd, connections: u32) -> io::Result<()> {
    Ok(rustix::net::listen(listener, i32::try_from(connections).unwrap_or(i32::MAX))?)
}

/// Has the other side of a connection of TCP asked whether it is there when it was silent for `time`, and again after each
/// `interval`. After `probes` questions without an answer the connection ends with `TimedOut`.
///
/// # Errors
/// As from the kernel: it is no socket of TCP, or a time is longer than it takes.
pub fn set_keepalive(
    socket: impl AsFd,
    time: Duration,
    interval: Duration,
    probes: u32,
) -> io::Result<()> {
    let socket = socket.as_fd();
    set_tcp_keepidle(socket, time)?;
    set_tcp_keepintvl(socket, interval)?;
    set_tcp_keepcnt(socket, probes)?;
    Ok(set_socket_keepalive(socket, true)?)
}
