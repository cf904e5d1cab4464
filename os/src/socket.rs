//! What the standard library's sockets lack.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{
    set_socket_keepalive, set_socket_linger, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl,
    set_tcp_user_timeout,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, ipproto, socket_with};

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

/// Begins to connect, and does not wait, nor does the stream that is returned: it can be written to when it is connected, and its error says
/// whether that has failed. What was sent and is not acknowledged for `silence_max` ends the connection, and so does a host that does not answer the first segment.
///
/// # Errors
/// As from the kernel: no way there, a descriptor or a port lacks.
pub fn start_connecting(to: SocketAddr, silence_max: Duration) -> io::Result<TcpStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family(to.ip()), SocketType::STREAM, flags, Some(ipproto::TCP))?;
    let silence_ms = u32::try_from(silence_max.as_millis()).unwrap_or(u32::MAX);
    set_tcp_user_timeout(&socket, silence_ms)?;
    match connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket.into()),
        Err(error) => Err(error.into()),
    }
}

/// Returns a socket that sends echo requests to one host, and receives replies from there. It does not wait. Both are messages of ICMP; the identifier is the
/// kernel's.
///
/// # Errors
/// `PermissionDenied` if the setting `net.ipv4.ping_group_range` leaves out the groups of this process; otherwise as from the kernel.
pub fn echo_socket(to: IpAddr) -> io::Result<UdpSocket> {
    let protocol = if to.is_ipv4() { ipproto::ICMP } else { ipproto::ICMPV6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family(to), SocketType::DGRAM, flags, Some(protocol))?;
    connect(&socket, &SocketAddr::new(to, 0))?;
    Ok(socket.into())
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}
