//! A server that sends back what it receives, and a client, over the guests' own TCP/IP.
//!
//! Two guests of one program. With `siga up` in one terminal and
//! `cargo run --package siga --example echo -- 10.1.0.9` in another, the server serves programs too, port 7:
//! `siga run --lan hs0 -- nc 10.1.0.9 7`. A second argument is the host's socket, if it is not the default one.

use std::io::{ErrorKind, Read, Write};
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use siga::host::{Embedded, System};
use siga::lan::{Address, JoinLanError, Lan, LanOptions};
use siga::tcpip::{Stack, StackOptions, TcpListener, TcpStream};
use siga::{Guest, Wait};

const PORT: u16 = 7;

type Problem = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Problem> {
    let mut arguments = std::env::args().skip(1);
    if let Some(address) = arguments.next() {
        let socket = arguments.next().map_or_else(siga::default_socket, |path| Ok(path.into()))?;
        let guest = Guest::attach(socket, "ECHO")?;
        return serve(join(guest, Address::This(address.parse()?))?, usize::MAX);
    }
    let host = Embedded::start(System::open())?;
    let server = join(Guest::attach_embedded(&host, "ECHO")?, Address::Chosen)?;
    let address = server.addresses()[0];
    let client = join(Guest::attach_embedded(&host, "CLIENT")?, Address::Chosen)?;
    let serving = thread::spawn(move || serve(server, 1));
    ask(client, address)?;
    serving.join().expect("it does not panic")
}

fn join(guest: Guest, address: Address) -> Result<Lan, JoinLanError> {
    Lan::join(guest, "hs0", &LanOptions { address, wait: Wait::Block, ..LanOptions::default() })
}

/// Serves until so many connections have ended: all in one thread, none of which waits for another.
fn serve(lan: Lan, mut left: usize) -> Result<(), Problem> {
    let stack = Stack::new(lan, &StackOptions::default())?;
    let listener = TcpListener::bind(&stack, ("0.0.0.0", PORT))?;
    listener.set_nonblocking(true)?;
    let mut streams: Vec<TcpStream> = Vec::new();
    while left > 0 {
        stack.wait(Duration::from_secs(60))?;
        while let Ok((stream, peer)) = listener.accept() {
            println!("{peer} is there");
            stream.set_nonblocking(true)?;
            streams.push(stream);
        }
        streams.retain(|stream| {
            let is_open = echo(stream);
            left = left.saturating_sub(usize::from(!is_open));
            is_open
        });
    }
    stack.finish(Duration::from_secs(10))?;
    Ok(())
}

/// Sends back what has come. False at the end of the connection.
fn echo(mut stream: &TcpStream) -> bool {
    loop {
        // From the buffer of what came into the buffer of what goes: what does not fit stays where it is.
        let mut bytes = [0; 16 << 10];
        let count = match stream.peek(&mut bytes) {
            Ok(0) => return false,
            Ok(count) => count,
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        };
        let written = match stream.write(&bytes[..count]) {
            Ok(written) => written,
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        };
        if stream.read_exact(&mut bytes[..written]).is_err() {
            return false;
        }
    }
}

/// Sends a line, closes the sending half, and prints what comes back.
fn ask(lan: Lan, address: IpAddr) -> Result<(), Problem> {
    let stack = Stack::new(lan, &StackOptions::default())?;
    let mut stream = TcpStream::connect(&stack, (address, PORT))?;
    stream.write_all(b"from memory to memory")?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    println!("{address} answers: {answer}");
    drop(stream);
    stack.finish(Duration::from_secs(10))?;
    Ok(())
}
