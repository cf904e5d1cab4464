//! A waiter's descriptor in a program's own epoll, beside descriptors of other kinds.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use siga::host::{Embedded, System};
use siga::{Guest, PathOptions, Wait, Waiter};

const SOCKET: u64 = 1;
const PATHS: u64 = 2;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let host = Embedded::start(System::open())?;
    let (client, server) =
        (Guest::attach_embedded(&host, "CLIENT")?, Guest::attach_embedded(&host, "SERVER")?);
    let connecting = client.start_connecting("SERVER", &PathOptions::default())?;
    let accepted = server.accept()?;
    let mut path = client.complete(connecting)?;
    let (mut socket, mut other_end) = UnixStream::pair()?;
    let peers = thread::spawn(move || {
        other_end.write_all(b"over a socket").expect("the program reads");
        path.send(b"over a path").expect("the program reads");
        // Keeps both open until the program has answered.
        path.receive().map(|_| ()).expect("the program answers");
    });

    let mut waiter = Waiter::new(Wait::Block)?;
    let key = waiter.add(accepted)?;
    let loop_ = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&loop_, &socket, EventData::new_u64(SOCKET), EventFlags::IN)?;
    epoll::add(&loop_, &waiter, EventData::new_u64(PATHS), EventFlags::IN)?;
    let mut left = 2;
    while left > 0 {
        // Before each wait the waiter's members say that they sleep; if one has something, go on.
        if waiter.prepare_wait() {
            let mut events = Vec::<Event>::with_capacity(8);
            epoll::wait(&loop_, rustix::buffer::spare_capacity(&mut events), None)?;
            if events.iter().any(|event| event.data.u64() == SOCKET) {
                let mut bytes = [0; 64];
                let count = socket.read(&mut bytes)?;
                println!("{}", String::from_utf8_lossy(&bytes[..count]));
                left -= 1;
            }
        }
        while left > 0
            && let Some((_, path)) = waiter.try_next()?
        {
            while let Some(message) = path.try_receive()? {
                println!("{}", String::from_utf8_lossy(message.body));
                left -= 1;
            }
        }
    }
    waiter.get_mut(key).expect("still there").send(b"goodbye")?;
    peers.join().expect("the peers do not panic");
    Ok(())
}
