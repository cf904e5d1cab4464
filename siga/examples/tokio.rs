//! A waiter's descriptor in tokio: tasks go on while paths are quiet.

use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use siga::host::{Embedded, System};
use siga::{Guest, PathOptions, Wait, Waiter};
use tokio::io::unix::AsyncFd;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let host = Embedded::start(System::open())?;
    let (client, server) =
        (Guest::attach_embedded(&host, "CLIENT")?, Guest::attach_embedded(&host, "SERVER")?);
    let connecting = client.start_connecting("SERVER", &PathOptions::default())?;
    let accepted = server.accept()?;
    let mut path = client.complete(connecting)?;
    let peer = thread::spawn(move || {
        for number in 0..3_u32 {
            path.send(&number.to_le_bytes()).expect("the task reads");
            path.receive().map(|_| ()).expect("the task answers");
        }
    });

    let ticking = tokio::spawn(async {
        let mut ticks = tokio::time::interval(Duration::from_millis(1));
        loop {
            ticks.tick().await;
        }
    });
    let mut waiter = Waiter::new(Wait::Block)?;
    waiter.add(accepted)?;
    // A duplicate, owned by the runtime's side. The function is deprecated in favour of an unsafe one,
    // because of descriptors that may be closed meanwhile: this one cannot be.
    #[expect(deprecated, reason = "an owned descriptor stays open")]
    let readable = AsyncFd::new(waiter.as_fd().try_clone_to_owned()?)?;
    let mut received = 0;
    while received < 3 {
        // If a member has something already there is no need to wait.
        if waiter.prepare_wait() {
            readable.readable().await?.clear_ready();
        }
        while received < 3
            && let Some((_, path)) = waiter.try_next()?
        {
            let mut answers = 0;
            while let Some(message) = path.try_receive()? {
                println!("message {}", u32::from_le_bytes(message.body.try_into()?));
                answers += 1;
            }
            for _ in 0..answers {
                path.try_send(b"thanks")?;
            }
            received += answers;
        }
    }
    ticking.abort();
    peer.join().expect("the peer does not panic");
    Ok(())
}
