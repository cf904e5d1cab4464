//! Paths and waiters that are awaited.

mod common;

use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use siga::host::{Embedded, System};
use siga::lan::{Address, Lan, LanOptions};
use siga::tcpip::{Drive, Stack, StackOptions, TcpListener, UdpSocket};
use siga::tokio::{
    AsyncPath, AsyncSender, AsyncTcpListener, AsyncTcpStream, AsyncUdpSocket, AsyncWaiter,
    ReceiveError,
};
use siga::waiter::Member;
use siga::{Guest, Path, PathOptions, Reason, SendError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const LONG: Duration = Duration::from_secs(20);

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

/// A stack of a host of its own, with an address.
fn stack(host: &Embedded, name: &str) -> Stack {
    let options = LanOptions { address: Address::Chosen, ..LanOptions::default() };
    let lan = Lan::join(Guest::attach_embedded(host, name).unwrap(), "hs0", &options).unwrap();
    Stack::new(lan, &StackOptions::default()).unwrap()
}

/// Many connections, each served by a task of one thread, both ways at once.
#[tokio::test(flavor = "current_thread")]
async fn tasks_share_a_stack() {
    const CONNECTIONS: usize = 50;
    let host = Embedded::start(System::open()).unwrap();
    let (server, client) = (stack(&host, "SERVER"), stack(&host, "CLIENT"));
    let address = SocketAddr::new(server.addresses()[0], 7);
    let listener = TcpListener::bind(&server, address).unwrap();
    let listener = AsyncTcpListener::new(listener).unwrap();
    let serving = tokio::spawn(async move {
        let mut served = tokio::task::JoinSet::new();
        for _ in 0..CONNECTIONS {
            let (mut reading, peer) = listener.accept().await.unwrap();
            assert_eq!(reading.get_ref().peer_addr().unwrap(), peer);
            let mut writing = reading.try_clone().unwrap();
            served.spawn(async move {
                let echoed = tokio::io::copy(&mut reading, &mut writing).await.unwrap();
                writing.shutdown().await.unwrap();
                echoed
            });
        }
        served.join_all().await
    });
    let mut asking = tokio::task::JoinSet::new();
    for number in 0..CONNECTIONS {
        let client = client.clone();
        asking.spawn(async move {
            let sent: Vec<u8> = (0..70_000).map(|at| ((at * (number + 3)) >> 5) as u8).collect();
            let mut reading = AsyncTcpStream::connect(&client, address).await.unwrap();
            let mut writing = reading.try_clone().unwrap();
            let mut received = Vec::new();
            let (written, read) = tokio::join!(
                async {
                    writing.write_all(&sent).await?;
                    writing.shutdown().await
                },
                reading.read_to_end(&mut received)
            );
            assert_eq!((written.unwrap(), read.unwrap()), ((), sent.len()));
            assert!(received == sent, "connection {number}");
        });
    }
    asking.join_all().await;
    let echoed = serving.await.unwrap();
    assert_eq!(echoed.iter().sum::<u64>(), 70_000 * CONNECTIONS as u64);
}

#[tokio::test(flavor = "current_thread")]
async fn connection_that_is_refused_or_given_up_says_so() {
    let host = Embedded::start(System::open()).unwrap();
    let stack = stack(&host, "ALONE");
    let address = SocketAddr::new(stack.addresses()[0], 7);
    let refused = AsyncTcpStream::connect(&stack, address).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    // A future that is dropped waits no longer, and has done nothing.
    let listener = TcpListener::bind(&stack, address).unwrap();
    let listener = AsyncTcpListener::new(listener).unwrap();
    tokio::select! {
        biased;
        _ = listener.accept() => panic!("nobody has connected"),
        () = std::future::ready(()) => {}
    }
    let (near, accepted) =
        tokio::join!(AsyncTcpStream::connect(&stack, address), listener.accept());
    let (mut near, (far, _)) = (near.unwrap(), accepted.unwrap());
    // A task that reads learns of the reset.
    let reading = tokio::spawn(async move { near.read_u8().await.unwrap_err().kind() });
    tokio::task::yield_now().await;
    far.get_ref().reset().unwrap();
    assert_eq!(reading.await.unwrap(), ErrorKind::ConnectionReset);
}

#[tokio::test(flavor = "current_thread")]
async fn datagrams_are_awaited() {
    let host = Embedded::start(System::open()).unwrap();
    let (one, other) = (stack(&host, "ONE"), stack(&host, "OTHER"));
    let bound = |stack: &Stack| {
        let socket = UdpSocket::bind(stack, SocketAddr::new(stack.addresses()[0], 9)).unwrap();
        AsyncUdpSocket::new(socket).unwrap()
    };
    let (one, other) = (bound(&one), bound(&other));
    let [at_one, at_other] = [&one, &other].map(|socket| socket.get_ref().local_addr().unwrap());
    let mut bytes = [0; 2000];
    let (received, sent) =
        tokio::join!(other.recv_from(&mut bytes), one.send_to(&[7; 1500], at_other));
    assert_eq!((received.unwrap(), sent.unwrap()), ((1500, at_one), 1500));
    assert_eq!(bytes[..1500], [7; 1500]);
}

/// Runs this when its task is woken.
struct OnWake<F>(F);

impl<F: Fn() + Send + Sync> Wake for OnWake<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn on_wake(run: impl Fn() + Send + Sync + 'static) -> Waker {
    Arc::new(OnWake(run)).into()
}

/// A socket of datagrams for tasks, and its address.
fn bound(stack: &Stack, port: u16) -> (Arc<AsyncUdpSocket>, SocketAddr) {
    let socket = UdpSocket::bind(stack, (stack.addresses()[0], port)).unwrap();
    let address = socket.local_addr().unwrap();
    (Arc::new(AsyncUdpSocket::new(socket).unwrap()), address)
}

#[test]
fn waker_that_panics_harms_nobody_else() {
    let host = Embedded::start(System::open()).unwrap();
    let (one, other) = (stack(&host, "ONE"), stack(&host, "OTHER"));
    let (socket, address) = bound(&one, 9);
    let sender = UdpSocket::bind(&other, "0.0.0.0:9").unwrap();
    let (woken, is_woken) = mpsc::channel();
    let panics = on_wake(|| panic!("on purpose"));
    let tells = on_wake(move || woken.send(()).unwrap());
    // The stack's thread rings both, and does so again.
    for _ in 0..3 {
        let mut room = [[0; 1]; 2];
        let [first, second] = &mut room;
        let mut first = pin!(socket.recv_from(first));
        let mut second = pin!(socket.recv_from(second));
        assert!(first.as_mut().poll(&mut Context::from_waker(&panics)).is_pending());
        assert!(second.as_mut().poll(&mut Context::from_waker(&tells)).is_pending());
        sender.send_to(b"x", address).unwrap();
        is_woken.recv_timeout(LONG).unwrap();
        assert!(second.as_mut().poll(&mut Context::from_waker(&tells)).is_ready());
    }
}

#[test]
fn waker_may_wait_for_the_stack_whose_thread_it_runs_on() {
    let host = Embedded::start(System::open()).unwrap();
    let (one, other) = (stack(&host, "ONE"), stack(&host, "OTHER"));
    let sender = UdpSocket::bind(&other, "0.0.0.0:9").unwrap();
    let (socket, address) = bound(&one, 9);
    let (awaited, at_awaited) = bound(&one, 10);
    let (idle, _) = bound(&one, 11);
    let ((begun, has_begun), (ended, has_ended)) = (mpsc::channel(), mpsc::channel());
    let waits = on_wake(move || {
        begun.send(()).unwrap();
        ended.send(awaited.get_ref().recv_from(&mut [0]).unwrap()).unwrap();
    });
    let (mut room, mut other_room) = ([0], [0]);
    // While this task waits, verbs that wait leave the stack to its thread.
    let mut idle = pin!(idle.recv_from(&mut other_room));
    assert!(idle.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let mut first = pin!(socket.recv_from(&mut room));
    assert!(first.as_mut().poll(&mut Context::from_waker(&waits)).is_pending());
    sender.send_to(b"x", address).unwrap();
    has_begun.recv_timeout(LONG).unwrap();
    sender.send_to(b"y", at_awaited).unwrap();
    let (count, from) = has_ended.recv_timeout(LONG).unwrap();
    let source = SocketAddr::new(other.addresses()[0], 9);
    assert_eq!((count, from), (1, source));
}

#[tokio::test(flavor = "current_thread")]
async fn tasks_need_a_stack_with_a_thread() {
    let host = Embedded::start(System::open()).unwrap();
    let options = LanOptions { address: Address::Chosen, ..LanOptions::default() };
    let lan = Lan::join(Guest::attach_embedded(&host, "INLINE").unwrap(), "hs0", &options).unwrap();
    let inline = StackOptions { drive: Drive::Inline, ..StackOptions::default() };
    let stack = Stack::new(lan, &inline).unwrap();
    let listener = TcpListener::bind(&stack, "0.0.0.0:7").unwrap();
    let error = AsyncTcpListener::new(listener).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}
