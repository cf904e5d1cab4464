//! A client of a TCPIP machine: a guest that has sockets, and neither an address nor a LAN.
//!
//! ```sh
//! siga up systems/tcpip.toml
//! cargo run --package siga --features tcpip --example machine_client -- SERVER
//! cargo run --package siga --features tcpip --example machine_client -- CLIENT 10.1.0.5:7
//! ```
//!
//! The first listens at the machine's address and sends back what comes; the second asks it something. Both may be anywhere where the
//! host's socket is reached.
//!
//! With another machine than TCPIP, and at another address of it, as one that is distributed over several machines:
//!
//! ```sh
//! siga up systems/distributor.toml
//! cargo run --package siga --features tcpip --example machine_client -- APP1 --machine WEB1 --listen 10.1.0.100:7
//! cargo run --package siga --features tcpip --example machine_client -- APP2 --machine WEB2 --listen 10.1.0.100:7
//! cargo run --package siga --features tcpip --example machine_client -- CLIENT --machine USERS 10.1.0.100:7
//! ```

use std::error::Error;
use std::io::{Read, Write};
use std::net::SocketAddr;

use siga::Guest;
use siga::tcpip::{ClientOptions, Stack, TcpListener, TcpStream};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().ok_or("which guest? CLIENT or SERVER")?;
    let (mut machine, mut listen, mut server) = ("TCPIP".to_owned(), None, None);
    while let Some(word) = arguments.next() {
        match &*word {
            "--machine" => machine = arguments.next().ok_or("--machine: which one?")?,
            "--listen" => listen = Some(arguments.next().ok_or("--listen: where?")?.parse()?),
            _ => server = Some(word),
        }
    }
    let guest = Guest::attach(siga::default_socket()?, &name)?;
    // From here on it is as with a stack of one's own.
    let stack = Stack::of_machine(guest, &machine, &ClientOptions::default())?;
    match server {
        Some(server) => ask(&stack, &server),
        None => serve(&stack, listen),
    }
}

fn ask(stack: &Stack, server: &str) -> Result<(), Box<dyn Error>> {
    let mut stream = TcpStream::connect(stack, server)?;
    stream.write_all(b"are you there?")?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    println!("{} says: {answer}", stream.peer_addr()?);
    Ok(())
}

fn serve(stack: &Stack, at: Option<SocketAddr>) -> Result<(), Box<dyn Error>> {
    let first = stack.addresses().first().map(|address| SocketAddr::new(*address, 7));
    let listener = TcpListener::bind(stack, at.or(first).ok_or("the machine has no address")?)?;
    println!("listening at {}", listener.local_addr()?);
    for stream in listener.incoming() {
        let mut stream = stream?;
        let mut question = Vec::new();
        stream.read_to_end(&mut question)?;
        stream.write_all(&question)?;
    }
    Ok(())
}
