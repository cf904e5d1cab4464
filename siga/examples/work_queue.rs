//! A work queue by IUCV: jobs wait until a worker takes them, and urgent ones go before all others.
//!
//! With `siga up` running, `cargo run --example work_queue -- worker` and, in another terminal,
//! `cargo run --example work_queue -- office`. Without an argument both run in this process.

use std::thread;

use siga::host::{Embedded, System};
use siga::iucv::{IucvPath, Options, Outgoing, ReceiveError, Which};
use siga::{Guest, Reason, Wait};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const BLOCK: Options = Options { wait: Wait::Block, ..Options::DEFAULT };

/// (TRGCLS) What kind of message it is, as the two programs have agreed.
const JOB: u32 = 1;
const OPENING: u32 = 2;

fn work(guest: &Guest) -> Result<()> {
    let mut path = IucvPath::accept(guest, &BLOCK)?;
    // Jobs may come, but wait until the office opens: a message is found by its class, whatever is before it.
    path.receive(Which::Class(OPENING), &mut [])?;
    loop {
        match path.next() {
            Ok((job, what)) => {
                let urgent = if job.priority { " at once" } else { "" };
                println!("{}{urgent}", String::from_utf8_lossy(what));
            }
            Err(ReceiveError::Severed(end)) if end.reason == Reason::Peer => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn order(guest: &Guest) -> Result<()> {
    let mut path = IucvPath::connect(guest, "WORKER", &BLOCK)?;
    // One-way, and nobody needs to be told when it was received: that it was not is told anyway.
    let job = Outgoing { target_class: JOB, quiet: true, ..Outgoing::default() };
    let urgent = Outgoing { priority: true, ..job };
    path.send(&job, b"wash the windows")?;
    let garden =
        path.send(&Outgoing { quiet: false, source_class: 7, ..job }, b"dig the garden")?;
    path.send(&job, b"sweep the floor")?;
    path.send(&urgent, b"put out the fire")?;
    // It rains: taken back, and never received.
    path.purge(garden, 7)?;
    path.send(&Outgoing { target_class: OPENING, ..job }, &[])?;
    path.close();
    Ok(())
}

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("worker") => work(&Guest::attach(siga::default_socket()?, "WORKER")?),
        Some("office") => order(&Guest::attach(siga::default_socket()?, "OFFICE")?),
        _ => {
            let host = Embedded::start(System::open())?;
            let worker = Guest::attach_embedded(&host, "WORKER")?;
            let working = thread::spawn(move || work(&worker));
            order(&Guest::attach_embedded(&host, "OFFICE")?)?;
            working.join().expect("the worker does not panic")
        }
    }
}
