//! Host and guests in one process.

use siga::host::{Embedded, System};
use siga::{Guest, PathOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let host = Embedded::start(System::open())?;
    let server = Guest::attach_embedded(&host, "SERVER")?;
    let client = Guest::attach_embedded(&host, "CLIENT")?;
    let connecting = client.start_connecting("SERVER", &PathOptions::default())?;
    let mut accepted = server.accept()?;
    let mut path = client.complete(connecting)?;
    path.send(b"hello")?;
    assert_eq!(accepted.receive()?.body, b"hello");
    println!("hello arrived");
    Ok(())
}
