//! Tasks that await paths, in a runtime of tokio: a server of any number of clients, and a client.

use siga::host::{Embedded, System};
use siga::tokio::{AsyncPath, AsyncWaiter};
use siga::{Guest, PathOptions, Served};

const QUESTIONS: u32 = 3;

/// Answers all that is asked, until the first client has gone.
async fn serve(guest: Guest) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut waiter = AsyncWaiter::new()?;
    waiter.add(Served::Guest(guest))?;
    loop {
        match waiter.next().await? {
            (_, Served::Guest(guest)) => {
                if let Some(pending) = guest.pending() {
                    let path = guest.accept_pending(pending, &PathOptions::default())?;
                    waiter.add(Served::Path(path))?;
                }
            }
            (_, Served::Path(path)) => match path.try_receive() {
                Ok(Some(question)) => {
                    let answer = [question.body, b" is a good question"].concat();
                    path.try_send(&answer)?;
                }
                Ok(None) => {}
                Err(_severed) => return Ok(()),
            },
        }
    }
}

async fn ask(path: siga::Path) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut path = AsyncPath::new(path)?;
    for number in 0..QUESTIONS {
        path.send(format!("number {number}").as_bytes()).await?;
        println!("{}", String::from_utf8_lossy(path.receive().await?.body));
    }
    path.close();
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let host = Embedded::start(System::open())?;
    let server = Guest::attach_embedded(&host, "SERVER")?;
    let client = Guest::attach_embedded(&host, "CLIENT")?;
    let tasks = tokio::task::LocalSet::new();
    tasks
        .run_until(async {
            let serving = tokio::task::spawn_local(serve(server));
            // Making a path waits for the other side, so it has a thread of its own.
            let connect = move || client.connect("SERVER", &PathOptions::default());
            let path = tokio::task::spawn_blocking(connect).await??;
            ask(path).await?;
            serving.await?
        })
        .await
}
