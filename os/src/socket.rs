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
/// whether that has failed. A host that does not answer for `silence_max` fails it; so does, once it is connected, whatever is not acknowledged for so long,
/// and a window that stays closed: [`connected`] takes that limit away.
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

/// Takes the limit of [`start_connecting`] from a stream that is connected: a reader may pause for as long as it likes.
///
/// # Errors
/// As from the kernel: it is no socket of TCP.
pub fn connected(stream: &TcpStream) -> io::Result<()> {
    Ok(set_tcp_user_timeout(stream, 0)?)
}

/// Returns a socket that sends echo requests to one host. It does not wait. Requests and replies are messages of ICMP; the identifier is the
/// kernel's. Replies of other hosts are received too: the kernel compares the identifier only.
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

/// Returns true if an error says that this system has no such family of addresses, as where IPv6 is turned off.
pub fn is_no_family(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::AFNOSUPPORT)
}

/// Returns true if an error of a socket is what a host or a router has answered, in words that [`io::ErrorKind`] has not (icmp(7), RFC 1122 4.2.3.9).
pub fn is_from_elsewhere(error: &io::Error) -> bool {
    let answers =
        [Errno::HOSTDOWN, Errno::NONET, Errno::NOPROTOOPT, Errno::PROTO, Errno::OPNOTSUPP];
    Errno::from_io_error(error).is_some_and(|errno| answers.contains(&errno))
}

/// Returns true if an error of a socket says that this process or the system has run out of something: descriptors, memory or watched descriptors. It may
/// have some again soon.
pub fn is_lack(error: &io::Error) -> bool {
    let lacks =
        [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS, Errno::NOSPC, Errno::AGAIN];
    Errno::from_io_error(error).is_some_and(|errno| lacks.contains(&errno))
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use rustix::net::sockopt::tcp_user_timeout;

    use super::*;

    #[test]
    fn stream_that_is_connected_waits_for_its_reader_without_a_limit() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let time = Duration::from_secs(60);
        let mut stream = start_connecting(listener.local_addr().unwrap(), time).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        stream.set_nonblocking(false).unwrap();
        assert_eq!(tcp_user_timeout(&stream).unwrap(), 60_000);
        connected(&stream).unwrap();
        assert_eq!(tcp_user_timeout(&stream).unwrap(), 0);
        stream.write_all(b"x").unwrap();
        other.read_exact(&mut [0]).unwrap();
    }
}
