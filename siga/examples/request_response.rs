//! Requests of 200 bytes and answers of 1000 over the guests' own TCP/IP: how long does one take?
//!
//! Two guests of one program, a stack each, on threads of their own. `cargo run --release --package siga --example
//! request_response`.

use std::io::{Read, Write};
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use siga::Guest;
use siga::host::{Embedded, System};
use siga::lan::{Address, Lan, LanOptions};
use siga::tcpip::{Stack, StackOptions, TcpListener, TcpStream};

const PORT: u16 = 7;
const REQUEST_BYTES: usize = 200;
const RESPONSE_BYTES: usize = 1000;
const REQUESTS: usize = 10_000;

type Problem = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Problem> {
    let host = Embedded::start(System::open())?;
    let (server, client) = (stack(&host, "SERVER")?, stack(&host, "CLIENT")?);
    let address = server.addresses()[0];
    let listener = TcpListener::bind(&server, ("0.0.0.0", PORT))?;
    let serving = thread::spawn(move || serve(&listener));
    let mut times = ask(&client, address)?;
    times.sort();
    println!(
        "{REQUESTS} requests, median {:?}, slowest {:?}",
        times[REQUESTS / 2],
        times[REQUESTS - 1]
    );
    serving.join().expect("it does not panic")
}

fn stack(host: &Embedded, name: &str) -> Result<Stack, Problem> {
    let guest = Guest::attach_embedded(host, name)?;
    let options = LanOptions { address: Address::Chosen, ..LanOptions::default() };
    Ok(Stack::new(Lan::join(guest, "hs0", &options)?, &StackOptions::default())?)
}

/// Answers all requests of one connection.
fn serve(listener: &TcpListener) -> Result<(), Problem> {
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut request = [0; REQUEST_BYTES];
    while stream.peek(&mut request)? > 0 {
        stream.read_exact(&mut request)?;
        stream.write_all(&[request[0]; RESPONSE_BYTES])?;
    }
    Ok(())
}

/// Asks, and returns how long each answer took.
fn ask(stack: &Stack, address: IpAddr) -> Result<Vec<Duration>, Problem> {
    let mut stream = TcpStream::connect(stack, (address, PORT))?;
    stream.set_nodelay(true)?;
    let mut response = [0; RESPONSE_BYTES];
    (0..REQUESTS)
        .map(|number| {
            let start = Instant::now();
            stream.write_all(&[number as u8; REQUEST_BYTES])?;
            stream.read_exact(&mut response)?;
            assert_eq!(response, [number as u8; RESPONSE_BYTES]);
            Ok(start.elapsed())
        })
        .collect()
}
