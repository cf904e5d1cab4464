//! Paths and waiters that are awaited.

mod common;

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use siga::host::{Embedded, System};
use siga::tokio::{AsyncPath, AsyncSender, AsyncWaiter, ReceiveError};
use siga::waiter::Member;
use siga::{Guest, Path, PathOptions, Reason, SendError};

/// A host, and both ends of a path that a guest has to itself.
fn joined() -> (Embedded, Path, Path) {
    let host = Embedded::start(System::open()).unwrap();
    let guest = Guest::attach_embedded(&host, "ALONE").unwrap();
    let (near, far) = common::joined(&guest, &guest, &PathOptions::default());
    (host, near, far)
}

/// Far more than fits, between two tasks of one thread: each has to sleep for the other.
#[tokio::test(flavor = "current_thread")]
async fn stream_arrives_whole_though_its_sender_has_to_wait() {
    const MESSAGES: u32 = 20_000;
    let (_host, near, far) = joined();
    let (mut near, mut far) = (AsyncPath::new(near).unwrap(), AsyncPath::new(far).unwrap());
    let sending = async {
        for number in 0..MESSAGES {
            near.send(&number.to_le_bytes().repeat(250)).await.unwrap();
        }
        near.receive().await.unwrap().body.to_vec()
    };
    let receiving = async {
        for number in 0..MESSAGES {
            let message = far.receive().await.unwrap();
            assert_eq!(message.body, number.to_le_bytes().repeat(250));
        }
        far.send(b"all").await.unwrap();
    };
    let (answer, ()) = tokio::join!(sending, receiving);
    assert_eq!(answer, b"all");
    near.close();
    let Err(ReceiveError::Severed(end)) = far.receive().await else { panic!("it is over") };
    assert_eq!(end.reason, Reason::Peer);
}

#[tokio::test(flavor = "current_thread")]
async fn waiter_finds_each_of_many_and_leaves_other_tasks_their_turn() {
    const PATHS: usize = 40;
    const MESSAGES: usize = 50;
    let pairs: Vec<_> = (0..PATHS).map(|_| joined()).collect();
    let mut waiter = AsyncWaiter::new().unwrap();
    let (mut hosts, mut senders) = (Vec::new(), Vec::new());
    for (host, near, far) in pairs {
        waiter.add(far).unwrap();
        hosts.push(host);
        senders.push(AsyncPath::new(near).unwrap());
    }
    let sending = async {
        for number in 0..MESSAGES {
            for path in &mut senders {
                path.send(&number.to_le_bytes()).await.unwrap();
                tokio::task::yield_now().await;
            }
        }
    };
    let receiving = async {
        let mut received = vec![0; PATHS];
        while received.iter().sum::<usize>() < PATHS * MESSAGES {
            let (key, path) = waiter.next().await.unwrap();
            let Some(message) = path.try_receive().unwrap() else { continue };
            let number = usize::from_le_bytes(message.body.try_into().unwrap());
            assert!(number < MESSAGES, "{key:?}");
            received[number % PATHS] += 1;
        }
    };
    tokio::join!(sending, receiving);
}

/// A future that is dropped has sent nothing, and the half goes on.
#[tokio::test(flavor = "current_thread")]
async fn send_that_is_cancelled_has_sent_nothing() {
    let (_host, near, mut far) = joined();
    let (mut senders, _receivers) = near.split();
    let mut sender = AsyncSender::new(senders.remove(0)).unwrap();
    let mut sent: usize = 0;
    let soon = std::time::Duration::from_millis(20);
    while tokio::time::timeout(soon, sender.send(&sent.to_le_bytes().repeat(500))).await.is_ok() {
        sent += 1;
    }
    sender.into_inner().close();
    for number in 0..sent {
        assert_eq!(far.receive().unwrap().body, number.to_le_bytes().repeat(500));
    }
    assert_eq!(far.receive().unwrap_err().reason, Reason::Peer);
}

/// Whoever receives all the time yields to other tasks.
#[tokio::test(flavor = "current_thread")]
async fn stream_without_end_leaves_a_time_limit_its_turn() {
    let (_host, mut near, far) = joined();
    let mut far = AsyncPath::new(far).unwrap();
    let sending = std::thread::spawn(move || while near.send(b"more").is_ok() {});
    let endless = async { while far.receive().await.is_ok() {} };
    let soon = std::time::Duration::from_millis(20);
    assert!(tokio::time::timeout(soon, endless).await.is_err());
    far.close();
    sending.join().unwrap();
}

/// Its descriptor is readable for ever, and there is never anything to do.
struct Restless {
    readable: UnixStream,
    hears: usize,
}

impl Member for Restless {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        add(self.readable.as_fd());
    }

    fn hear(&mut self, _index: usize) -> bool {
        self.hears += 1;
        assert!(self.hears < 1_000_000, "no other task has had a turn");
        true
    }

    fn is_ready(&mut self) -> bool {
        false
    }
}

#[tokio::test(flavor = "current_thread")]
async fn member_that_rings_for_nothing_leaves_other_tasks_their_turn() {
    let (readable, mut other) = UnixStream::pair().unwrap();
    other.write_all(b"!").unwrap();
    let mut waiter = AsyncWaiter::new().unwrap();
    waiter.add(Restless { readable, hears: 0 }).unwrap();
    let other_task = tokio::spawn(async {
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    });
    tokio::select! {
        found = waiter.next() => panic!("{:?}", found.map(|(key, _)| key)),
        done = other_task => done.unwrap(),
    }
}

/// The other side wants quiet while this one waits for a message.
#[tokio::test(flavor = "current_thread")]
async fn path_that_is_awaited_falls_quiet() {
    let (_host, near, mut far) = joined();
    let mut near = AsyncPath::new(near).unwrap();
    near.send(b"before").await.unwrap();
    let asking = std::thread::spawn(move || {
        far.quiesce();
        assert_eq!(far.receive().unwrap().body, b"before");
        while far.known_point().is_none() {
            assert!(far.try_receive().unwrap().is_none());
        }
        assert_eq!(far.known_point(), Some(1));
        far.resume();
        far.send(b"go on").unwrap();
        assert_eq!(far.receive().unwrap().body, b"after");
    });
    assert_eq!(near.receive().await.unwrap().body, b"go on");
    while let Err(siga::tokio::SendError::Send(SendError::Quiesced)) = near.send(b"after").await {
        near.room().await.unwrap();
    }
    asking.join().unwrap();
}

/// A burst leaves storage behind, which is given back while the task waits for something else.
#[tokio::test(flavor = "current_thread")]
async fn storage_is_given_back_while_a_path_is_awaited() {
    use siga::raw::Counter;
    let (_host, near, mut far) = joined();
    let mut near = AsyncPath::new(near).unwrap();
    near.send(&vec![1; 8 << 20]).await.unwrap();
    let lent = |path: &mut Path| path.sender().raw().counters().get(Counter::LentBytes);
    assert!(lent(near.get_mut()) >= 8 << 20);
    let answering = std::thread::spawn(move || {
        assert_eq!(far.receive().unwrap().body.len(), 8 << 20);
        // Until the storage that was lent is retired, which this side hears while it waits.
        let soon = std::time::Duration::from_millis(10);
        while far.receiver().raw().counters().get(Counter::LentBytes) >= 8 << 20 {
            assert!(far.receive_within(soon).unwrap().is_none());
        }
        far.send(b"done").unwrap();
        let _ = far.receive();
    });
    assert_eq!(near.receive().await.unwrap().body, b"done");
    assert!(lent(near.get_mut()) < 8 << 20);
    near.close();
    answering.join().unwrap();
}
