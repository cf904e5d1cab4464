//! Stacks hear what a new host says: an address that is another's, and frames that are smaller.

use std::io::{ErrorKind, Read, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use siga::host::{Embedded, Observer, Source, System};
use siga::lan::{Address, Lan, LanOptions};
use siga::tcpip::{Stack, StackOptions, TcpListener, TcpStream, UdpSocket};
use siga::{Guest, Wait};

const LONG: Duration = Duration::from_secs(30);

/// A place where hosts listen, one after the other.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        Place(std::env::temp_dir().join(format!("siga-refused-{name}-{}", std::process::id())))
    }

    fn host(&self, lan: &str) -> Embedded {
        let text = format!("[[guest]]\nname = \"*\"\n[[lan]]\nname = \"hs0\"\n{lan}");
        let mut system = System::parse(&Source::of("system.toml", &text)).unwrap();
        system.socket = Some(self.0.clone());
        Embedded::start(system).unwrap()
    }

    fn stack(&self, guest: &str, address: IpAddr) -> Stack {
        let address = Address::This(address);
        let options = LanOptions { address, wait: Wait::Block, ..LanOptions::default() };
        let guest = Guest::attach(&self.0, guest).unwrap();
        Stack::new(Lan::join(guest, "hs0", &options).unwrap(), &StackOptions::default()).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Both ends of a connection between two stacks.
fn connected(from: &Stack, listener: &TcpListener) -> [TcpStream; 2] {
    let to = listener.local_addr().unwrap();
    let asking = TcpStream::connect(from, to).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    for stream in [&asking, &accepted] {
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
    }
    [asking, accepted]
}

#[test]
fn address_that_a_new_host_gives_to_another_ends_what_was_there_and_is_named() {
    let place = Place::new("address");
    let host = place.host("");
    let [one, other] = [5, 6].map(|last: u8| IpAddr::from([10, 1, 0, last]));
    let (server, client) = (place.stack("SERVER", one), place.stack("CLIENT", other));
    let listener = Arc::new(TcpListener::bind(&server, (one, 80)).unwrap());
    let [_asking, mut accepted] = connected(&client, &listener);
    let waiting = {
        let listener = listener.clone();
        thread::spawn(move || listener.accept().map(|_| ()))
    };
    assert_eq!(server.refused().unwrap(), None);
    let socket = UdpSocket::bind(&server, (one, 9)).unwrap();
    drop(host);
    let host = place.host("[[lan.member]]\nguest = \"OTHER\"\naddresses = [\"10.1.0.5\"]\n");
    let error = accepted.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
    assert!(error.to_string().contains("does not give this stack its address"), "{error}");
    let error = waiting.join().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
    let connecting = TcpStream::connect(&server, (other, 80)).map(|_| ());
    assert_eq!(connecting.unwrap_err().kind(), ErrorKind::AddrNotAvailable);
    let bound = UdpSocket::bind(&server, (one, 10)).map(|_| ());
    assert_eq!(bound.unwrap_err().kind(), ErrorKind::AddrNotAvailable);
    let sent = socket.send_to(b"hello", (other, 9));
    assert_eq!(sent.unwrap_err().kind(), ErrorKind::AddrNotAvailable);
    let said = server.refused().unwrap().unwrap();
    assert!(said.starts_with("10.1.0.5 is not ours now"), "{said}");
    // A host that gives it back: the stack goes on asking.
    drop(host);
    let _host = place.host("");
    while server.refused().unwrap().is_some() {
        server.wait(Duration::from_millis(10)).unwrap();
    }
    while TcpStream::connect(&client, (one, 80)).is_err() {
        client.wait(Duration::from_millis(10)).unwrap();
    }
    listener.accept().unwrap();
}

#[test]
fn smaller_frames_of_a_new_host_are_kept_to() {
    let place = Place::new("frames");
    let host = place.host("frame = \"64 KiB\"\n");
    let [one, other] = [5, 6].map(|last: u8| IpAddr::from([10, 1, 0, last]));
    let (server, client) = (place.stack("SERVER", one), place.stack("CLIENT", other));
    let listener = TcpListener::bind(&server, (one, 80)).unwrap();
    let [mut asking, mut accepted] = connected(&client, &listener);
    let bytes: Vec<u8> =
        (0..300_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 23) as u8).collect();
    let mut exchange = || {
        let sent = bytes.clone();
        thread::scope(|scope| {
            let sender = scope.spawn(|| asking.write_all(&sent).unwrap());
            let mut received = vec![0; bytes.len()];
            accepted.read_exact(&mut received).unwrap();
            assert!(received == bytes);
            sender.join().unwrap();
        });
    };
    exchange();
    drop(host);
    let _host = place.host("frame = \"16 KiB\"\n");
    let observer = Observer::attach(&place.0).unwrap();
    while observer.query().unwrap().lans[0].members.len() < 2 {
        client.wait(Duration::from_millis(5)).unwrap();
    }
    exchange();
}
