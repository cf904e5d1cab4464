//! A stream that goes to a listener and comes back.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown};
use std::thread;

use siga::tcpip::{Stack, TcpListener, TcpStream};

/// Connects to a listener at this address, sends the bytes there, and checks that they come back. Returns the address from which the connection came.
pub fn echo(listener: &TcpListener, client: &Stack, address: &str, sent: &[u8]) -> IpAddr {
    thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let (mut stream, from) = listener.accept().unwrap();
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).unwrap();
            stream.write_all(&bytes).unwrap();
            from.ip()
        });
        let mut stream = TcpStream::connect(client, address).unwrap();
        stream.write_all(sent).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        assert!(bytes == sent);
        serving.join().unwrap()
    })
}
