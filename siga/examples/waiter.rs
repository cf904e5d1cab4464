//! A server that serves any number of clients with one thread.

use std::thread;

use siga::host::{Embedded, System};
use siga::{Guest, PathOptions, Served, Wait, Waiter};

const CLIENTS: usize = 10;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let host = Embedded::start(System::open())?;
    let mut waiter = Waiter::new(Wait::Adaptive)?;
    waiter.add(Served::Guest(Guest::attach_embedded(&host, "SERVER")?))?;

    let clients = Guest::attach_embedded(&host, "CLIENTS")?;
    let asking = thread::spawn(move || {
        for number in 0..CLIENTS {
            let mut path = clients.connect("SERVER", &PathOptions::default()).expect("a path");
            path.send(format!("client {number}").as_bytes()).expect("the server reads");
            let answer = path.receive().expect("the server answers");
            println!("{}", String::from_utf8_lossy(answer.body));
        }
    });

    let mut gone = 0;
    while gone < CLIENTS {
        let (key, member) = waiter.wait()?;
        match member {
            Served::Guest(server) => {
                // It may have been withdrawn meanwhile.
                let Some(pending) = server.pending() else { continue };
                let path = server.accept_pending(pending, &PathOptions::default())?;
                waiter.add(Served::Path(path))?;
            }
            Served::Path(path) => match path.try_receive() {
                Ok(Some(question)) => {
                    let answer = [b"hello, ", question.body].concat();
                    // One client that does not read must not stop the server: it is dropped.
                    if path.try_send(&answer).is_err() {
                        waiter.remove(key);
                        gone += 1;
                    }
                }
                Ok(None) => {}
                Err(_severed) => {
                    waiter.remove(key);
                    gone += 1;
                }
            },
        }
    }
    asking.join().expect("the clients do not panic");
    Ok(())
}
