//! TCP/IP on a LAN: two guests of one host, a stack each, each in a thread of its own.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

use siga::host::{Embedded, System};
use siga::lan::{Address, Lan, LanOptions};
use siga::tcpip::{Counter, Stack, StackOptions, TcpListener, TcpStream};
use siga::{Guest, Wait};

const LONG: Duration = Duration::from_secs(20);

fn member(host: &Embedded, name: &str) -> Lan {
    let options = LanOptions { address: Address::Chosen, wait: Wait::Block, ..Default::default() };
    Lan::join(Guest::attach_embedded(host, name).unwrap(), "hs0", &options).unwrap()
}

fn stack(lan: Lan) -> Stack {
    Stack::new(lan, &StackOptions::default()).unwrap()
}

/// Runs a server and a client, a stack each. The client is told the server's address.
fn run(
    server: impl FnOnce(Stack) + Send + 'static,
    client: impl FnOnce(Stack, IpAddr) + Send + 'static,
) {
    let host = Embedded::start(System::open()).unwrap();
    let (served, asking) = (member(&host, "SERVER"), member(&host, "CLIENT"));
    let address = served.addresses()[0];
    let server = thread::spawn(move || server(stack(served)));
    let client = thread::spawn(move || client(stack(asking), address));
    let (client, server) = (client.join(), server.join());
    client.unwrap();
    server.unwrap();
}

#[test]
fn hello_goes_there_and_back() {
    run(
        |stack| {
            let listener = TcpListener::bind(&stack, "0.0.0.0:7").unwrap();
            let (mut stream, peer) = listener.accept().unwrap();
            assert_eq!(stream.peer_addr().unwrap(), peer);
            let mut bytes = [0; 5];
            stream.read_exact(&mut bytes).unwrap();
            stream.write_all(&bytes).unwrap();
            drop(stream);
            assert!(stack.finish(LONG).unwrap());
        },
        |stack, address| {
            let mut stream = TcpStream::connect(&stack, (address, 7)).unwrap();
            assert_eq!(stream.peer_addr().unwrap(), SocketAddr::new(address, 7));
            assert_eq!(stream.local_addr().unwrap().ip(), stack.addresses()[0]);
            stream.write_all(b"hello").unwrap();
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).unwrap();
            assert_eq!(bytes, b"hello");
            drop(stream);
            assert!(stack.finish(LONG).unwrap());
            assert_eq!(stack.counter(Counter::Connected), 1);
        },
    );
}
