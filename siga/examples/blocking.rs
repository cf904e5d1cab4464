//! A server that answers, and a client that asks: both sleep while they wait.
//!
//! With `siga up` running, `cargo run --example blocking -- server` and, in another terminal,
//! `cargo run --example blocking -- client`. Without an argument both run in this process.

use std::thread;

use siga::host::{Embedded, System};
use siga::{Guest, PathOptions, Reason, Wait};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const BLOCK: PathOptions = PathOptions { wait: Wait::Block, ..PathOptions::DEFAULT };

fn serve(guest: &Guest) -> Result<()> {
    let mut path = guest.accept_with(&BLOCK)?;
    println!("serving {}", path.peer());
    loop {
        let answer = match path.receive() {
            Ok(question) => question.body.to_ascii_uppercase(),
            Err(severed) if severed.reason == Reason::Peer => return Ok(()),
            Err(severed) => return Err(severed.into()),
        };
        path.send(&answer)?;
    }
}

fn ask(guest: &Guest) -> Result<()> {
    let mut path = guest.connect("SERVER", &BLOCK)?;
    for question in ["hello", "who is there?"] {
        path.send(question.as_bytes())?;
        let answer = path.receive()?;
        println!("{question} -> {}", String::from_utf8_lossy(answer.body));
    }
    path.close();
    Ok(())
}

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("server") => serve(&Guest::attach(siga::default_socket()?, "SERVER")?),
        Some("client") => ask(&Guest::attach(siga::default_socket()?, "CLIENT")?),
        _ => {
            let host = Embedded::start(System::open())?;
            let server = Guest::attach_embedded(&host, "SERVER")?;
            let serving = thread::spawn(move || serve(&server));
            ask(&Guest::attach_embedded(&host, "CLIENT")?)?;
            serving.join().expect("the server does not panic")
        }
    }
}
