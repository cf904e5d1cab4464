//! A time server by IUCV: questions go both ways, and each is answered by a reply.
//!
//! With `siga up` running, `cargo run --example time_server -- server` and, in another terminal,
//! `cargo run --example time_server -- client`. Without an argument both run in this process.

use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use siga::host::{Embedded, System};
use siga::iucv::{IucvPath, Options, Outgoing, ReceiveError};
use siga::{Guest, Reason, Wait};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const BLOCK: Options = Options { wait: Wait::Block, ..Options::DEFAULT };

/// (TRGCLS) What is asked for, as the two programs have agreed.
const SECONDS: u32 = 1;
const NANOSECONDS: u32 = 2;

fn serve(guest: &Guest) -> Result<()> {
    let mut path = IucvPath::accept(guest, &BLOCK)?;
    loop {
        let question = match path.next() {
            Ok((question, _)) => question,
            Err(ReceiveError::Severed(end)) if end.reason == Reason::Peer => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        match question.class {
            SECONDS => path.reply(question.id, &now.as_secs().to_le_bytes())?,
            NANOSECONDS => path.reply(question.id, &now.as_nanos().to_le_bytes())?,
            _ => path.reject(question.id)?,
        }
    }
}

fn ask(guest: &Guest) -> Result<()> {
    let mut path = IucvPath::connect(guest, "SERVER", &BLOCK)?;
    let mut answer = [0; 16];
    for (target_class, what) in [(SECONDS, "seconds"), (NANOSECONDS, "nanoseconds"), (9, "moons")] {
        answer.fill(0);
        let question = Outgoing { target_class, ..Outgoing::default() };
        match path.call(&question, &[], &mut answer) {
            Ok(_) => println!("{} {what} since 1970", u128::from_le_bytes(answer)),
            Err(error) => println!("{what}: {error}"),
        }
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
