//! Requests of 200 B and answers of 1000 B over TCP, with nothing but `std::net`: what runs unmodified in a port.
//!
//! ```text
//! siga run --name server -- requests serve 7000
//! siga run --name client -- requests ask server:7000 3
//! ```
//!
//! The second prints how many requests a second were answered, and the median time of one in microseconds.

use std::env;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const REQUEST_BYTES: usize = 200;
const ANSWER_BYTES: usize = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve", port] => serve(TcpListener::bind(("0.0.0.0", port.parse()?))?),
        ["ask", server, seconds] => ask(server, Duration::from_secs(seconds.parse()?)),
        _ => Err("usage: requests serve PORT | requests ask SERVER:PORT SECONDS".into()),
    }
}

/// Answers one client after the other, until the program is ended.
fn serve(listener: TcpListener) -> Result<(), Box<dyn std::error::Error>> {
    let (mut request, answer) = ([0; REQUEST_BYTES], [7; ANSWER_BYTES]);
    loop {
        let (mut client, _) = listener.accept()?;
        client.set_nodelay(true)?;
        while client.read_exact(&mut request).is_ok() {
            client.write_all(&answer)?;
        }
    }
}

fn ask(server: &str, time: Duration) -> Result<(), Box<dyn std::error::Error>> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_nodelay(true)?;
    let (request, mut answer) = ([3; REQUEST_BYTES], [0; ANSWER_BYTES]);
    let mut times = Vec::new();
    let start = Instant::now();
    while start.elapsed() < time {
        let asked = Instant::now();
        stream.write_all(&request)?;
        stream.read_exact(&mut answer)?;
        times.push(asked.elapsed());
    }
    times.sort_unstable();
    let rate = times.len() as f64 / start.elapsed().as_secs_f64();
    println!("{rate:.0} {:.1}", times[times.len() / 2].as_secs_f64() * 1e6);
    Ok(())
}
