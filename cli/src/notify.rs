//! Messages to a service manager: the protocol of `sd_notify(3)`, a datagram to the socket that `NOTIFY_SOCKET` names.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Names the socket of the service manager. An abstract address begins with `@`.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// Tells the service manager that the service is ready, with a line about its state. Does nothing where no service
/// manager has asked for it.
///
/// # Errors
/// The socket that is named does not take the datagram, and the manager goes on waiting.
pub fn ready(status: &str) -> io::Result<()> {
    match std::env::var_os(VARIABLE) {
        Some(address) => send(&address, status),
        None => Ok(()),
    }
}

fn send(address: &OsStr, status: &str) -> io::Result<()> {
    let address = match address.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(address)?,
    };
    // A line each: what stands after a line break would be another word to the manager.
    let status = status.replace('\n', " ");
    let words = format!("READY=1\nSTATUS={status}\n");
    UnixDatagram::unbound()?.send_to_addr(words.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manager_receives_one_datagram_by_path_and_by_abstract_name() {
        let name = format!("siga-notify-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let by_path = UnixDatagram::bind(&path).unwrap();
        let by_name = SocketAddr::from_abstract_name(&name).unwrap();
        let by_name = UnixDatagram::bind_addr(&by_name).unwrap();
        for (socket, address) in
            [(by_path, path.to_str().unwrap()), (by_name, &*format!("@{name}"))]
        {
            send(address.as_ref(), "listening at a\nFDSTORE=1").unwrap();
            let mut buffer = [0; 64];
            let bytes = socket.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..bytes], b"READY=1\nSTATUS=listening at a FDSTORE=1\n");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(send(path.as_os_str(), "").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
