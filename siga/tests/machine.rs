//! A TCPIP machine and its clients, over a host in this process.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use host::Embedded;
use host::config::Source;
use host::system::System;
use siga::connect::Kind;
use siga::error::Problem;
use siga::lan::{Address, Lan, LanOptions};
use siga::tcpip::{
    ClientLimits, ClientOptions, Drive, Machine, MachineClient, MachineOptions, Placement, Routing,
    Stack, StackOptions, TcpListener, TcpStream, UdpSocket,
};
use siga::{ConnectError, Guest, PathOptions, Stopper, Wait};

const LONG: Duration = Duration::from_secs(20);

/// A machine that a thread serves until this is dropped.
struct Serving {
    stop: Stopper,
    thread: Option<JoinHandle<Machine>>,
    address: SocketAddr,
}

fn lan(host: &Embedded, name: &str) -> Lan {
    let guest = Guest::attach_embedded(host, name).unwrap();
    let options = LanOptions { address: Address::Chosen, ..LanOptions::default() };
    Lan::join(guest, "hs0", &options).unwrap()
}

fn serve(host: &Embedded, limits: ClientLimits) -> Serving {
    let guest = Guest::attach_embedded(host, "TCPIP").unwrap();
    let options = MachineOptions { wait: Wait::Block, limits, ..MachineOptions::default() };
    let lans = vec![lan(host, "TCPIP1")];
    let mut machine = Machine::new(guest, lans, Vec::new(), &Routing::default(), &options).unwrap();
    let address = SocketAddr::new(machine.addresses()[0], 0);
    let stop = machine.stopper();
    let thread = thread::spawn(move || {
        machine.serve().unwrap();
        machine
    });
    Serving { stop, thread: Some(thread), address }
}

impl Serving {
    fn end(mut self) -> Machine {
        self.stop.stop();
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn client(host: &Embedded, name: &str) -> Stack {
    client_with(host, name, Drive::Inline)
}

fn client_with(host: &Embedded, name: &str, drive: Drive) -> Stack {
    let guest = Guest::attach_embedded(host, name).unwrap();
    let options = ClientOptions { wait: Wait::Block, drive, ..ClientOptions::default() };
    Stack::of_machine(guest, "TCPIP", &options).unwrap()
}

fn host() -> Embedded {
    Embedded::start(System::open()).unwrap()
}

fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|at| ((at + seed).wrapping_mul(0x9e37_79b9) >> 11) as u8).collect()
}

#[test]
fn clients_of_a_machine_talk_with_each_other_and_with_a_member_of_the_lan() {
    let host = host();
    let machine = serve(&host, ClientLimits::default());
    let (near, far) = (client(&host, "NEAR"), client(&host, "FAR"));
    assert_eq!(near.addresses(), [machine.address.ip()]);
    let member = Stack::new(lan(&host, "MEMBER"), &StackOptions::default()).unwrap();
    let listeners = [
        TcpListener::bind(&far, (machine.address.ip(), 7)).unwrap(),
        TcpListener::bind(&member, (member.addresses()[0], 7)).unwrap(),
    ];
    for listener in listeners {
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, peer) = listener.accept().unwrap();
            assert_eq!(stream.peer_addr().unwrap(), peer);
            let mut question = Vec::new();
            stream.read_to_end(&mut question).unwrap();
            question.reverse();
            stream.write_all(&question).unwrap();
            peer
        });
        let mut stream = TcpStream::connect(&near, address).unwrap();
        let question = pattern(3_000_000, 5);
        let mut copy = stream.try_clone().unwrap();
        let asked = question.clone();
        let writer = thread::spawn(move || {
            copy.write_all(&asked).unwrap();
            copy.shutdown(Shutdown::Write).unwrap();
        });
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        writer.join().unwrap();
        answer.reverse();
        assert!(answer == question, "to {address}");
        assert_eq!(server.join().unwrap(), stream.local_addr().unwrap());
    }
    // And the other way round: a member connects to a client.
    let listener = TcpListener::bind(&far, (machine.address.ip(), 8)).unwrap();
    let address = listener.local_addr().unwrap();
    let mut stream = TcpStream::connect(&member, address).unwrap();
    stream.write_all(b"from the LAN").unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    let mut found = [0; 12];
    accepted.read_exact(&mut found).unwrap();
    assert_eq!(&found, b"from the LAN");
}

#[test]
fn clients_that_talk_with_each_other_are_introduced_and_a_setting_keeps_them_apart() {
    for introduce in [true, false] {
        let host = host();
        let machine = serve(&host, ClientLimits { introduce, ..ClientLimits::default() });
        let (near, far) = (client(&host, "NEAR"), client(&host, "FAR"));
        let listener = TcpListener::bind(&far, (machine.address.ip(), 7)).unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut found = [0; 100];
            for _ in 0..1000 {
                stream.read_exact(&mut found).unwrap();
                stream.write_all(&found).unwrap();
            }
            // The rest of a stream that is closed while it is written: a reset.
            drop(stream);
            far
        });
        let mut stream = TcpStream::connect(&near, address).unwrap();
        for round in 0..1000 {
            let question = pattern(100, round);
            stream.write_all(&question).unwrap();
            let mut answer = [0; 100];
            stream.read_exact(&mut answer).unwrap();
            assert!(answer[..] == question[..], "round {round}");
        }
        assert_eq!(stream.read(&mut [0; 10]).unwrap(), 0);
        let far = server.join().unwrap();
        drop(stream);
        let machine = machine.end();
        let clients: Vec<MachineClient> = machine.clients().collect();
        let [moved, requests] = [
            clients.iter().map(|client| client.counters.moved).sum::<u64>(),
            clients.iter().map(|client| client.counters.requests).sum(),
        ];
        let introduced = machine.counters().introduced;
        match introduce {
            true => assert_eq!((moved, introduced), (2, 1)),
            false => assert_eq!((moved, introduced), (0, 0)),
        }
        // All bytes of 1000 questions went over the machine, or few of them.
        assert_eq!(requests < 1000, introduce, "{requests}");
        drop((near, far));
    }
}

#[test]
fn what_had_come_directly_is_read_before_the_machines_end() {
    let host = host();
    let machine = serve(&host, ClientLimits::default());
    let (near, far) = (client(&host, "NEAR"), client(&host, "FAR"));
    let listener = TcpListener::bind(&far, (machine.address.ip(), 7)).unwrap();
    let address = listener.local_addr().unwrap();
    // Those that are introduced send directly long before the last round.
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut found = [0; 100];
        for _ in 0..1000 {
            stream.read_exact(&mut found).unwrap();
            stream.write_all(&found).unwrap();
        }
        stream
    });
    let mut stream = TcpStream::connect(&near, address).unwrap();
    for round in 0..1000 {
        stream.write_all(&pattern(100, round)).unwrap();
        stream.read_exact(&mut [0; 100]).unwrap();
    }
    let mut server = server.join().unwrap();
    // More messages than are taken in by one call.
    for round in 0..200 {
        stream.write_all(&pattern(100, round)).unwrap();
    }
    let clients: Vec<u64> = machine.end().clients().map(|client| client.counters.moved).collect();
    assert_eq!(clients, [1, 1]);
    for round in 0..200 {
        let mut found = [0; 100];
        server.read_exact(&mut found).unwrap();
        assert!(found[..] == pattern(100, round)[..], "round {round}");
    }
    let error = server.read(&mut [0; 10]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
}

#[test]
fn guest_that_nobody_has_introduced_gets_no_path_to_a_client() {
    let source = Source::of(
        "system.toml",
        r#"
        [[guest]]
        name = "*"
        [[lan]]
        name = "hs0"
        range = "10.1.0.0/24"
        [[tcpip]]
        name = "TCPIP"
        clients = ["CLIENT", "OTHER", "CALLER"]
        [[tcpip.interface]]
        lan = "hs0"
        "#,
    );
    let host = Embedded::start(System::parse(&source).unwrap()).unwrap();
    let _machine = serve(&host, ClientLimits::default());
    // The stack's thread answers.
    let _client = client_with(&host, "CLIENT", Drive::Thread);
    let options = PathOptions { kind: Kind::INTRODUCED, ..PathOptions::default() };
    let ask = |guest: &Guest| match guest.connect("CLIENT", &options).unwrap_err() {
        ConnectError::Refused { problem, .. } => problem,
        error => panic!("{error}"),
    };
    // One that is no client of the machine is stopped by the host.
    let caller = Guest::attach_embedded(&host, "CALLER").unwrap();
    assert_eq!(ask(&caller), Problem::NotAttached);
    // One that is, by the client, which was not told of it.
    let other = Guest::attach_embedded(&host, "OTHER").unwrap();
    let kind = Kind::TCPIP;
    let _path = other.connect("TCPIP", &PathOptions { kind, ..PathOptions::default() }).unwrap();
    for _ in 0..100 {
        assert_eq!(ask(&other), Problem::Refused);
    }
}

#[test]
fn machine_serves_on_while_its_driver_moves() {
    const MOVES: usize = 100;
    let host = host();
    let guest = Guest::attach_embedded(&host, "TCPIP").unwrap();
    let options = MachineOptions { wait: Wait::Block, ..MachineOptions::default() };
    let lans = vec![lan(&host, "TCPIP1")];
    let mut machine = Machine::new(guest, lans, Vec::new(), &Routing::default(), &options).unwrap();
    let (stop, is_over) = (machine.stopper(), Arc::new(AtomicBool::new(false)));
    let serving = thread::spawn({
        let is_over = is_over.clone();
        move || {
            let allowed = os::processor::allowed();
            let deadline = Instant::now() + LONG;
            let place = |machine: &mut Machine, placement| loop {
                match machine.set_driver(0, placement) {
                    // Other programs have that processor for long.
                    Err(error) if error.kind() == ErrorKind::TimedOut => {
                        assert!(Instant::now() < deadline, "{placement:?}: {error}");
                        machine.serve_within(Duration::from_millis(2)).unwrap();
                    }
                    placed => return placed.unwrap(),
                }
            };
            for at in 0..MOVES {
                let placement = match at % 3 {
                    0 => Placement::Processor(allowed[at % allowed.len()]),
                    1 => Placement::Processor(*allowed.last().unwrap()),
                    _ => Placement::Inline,
                };
                assert_eq!(place(&mut machine, placement), placement);
                machine.serve_within(Duration::from_millis(2)).unwrap();
            }
            assert_eq!(place(&mut machine, Placement::Processor(4095)), Placement::Inline);
            place(&mut machine, Placement::Processor(allowed[0]));
            is_over.store(true, Ordering::Relaxed);
            machine.serve().unwrap();
            machine
        }
    });
    let client = client(&host, "CLIENT");
    let member = Stack::new(lan(&host, "MEMBER"), &StackOptions::default()).unwrap();
    let listener = TcpListener::bind(&member, (member.addresses()[0], 7)).unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = vec![0; 10_000];
        while let count @ 1.. = stream.read(&mut bytes).unwrap() {
            stream.write_all(&bytes[..count]).unwrap();
        }
    });
    let mut stream = TcpStream::connect(&client, address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let mut rounds = 0;
    while !is_over.load(Ordering::Relaxed) || rounds < 100 {
        let question = pattern(9_000, rounds);
        stream.write_all(&question).unwrap();
        let mut answer = vec![0; question.len()];
        stream.read_exact(&mut answer).unwrap();
        assert!(answer == question, "round {rounds}");
        rounds += 1;
    }
    drop(stream);
    server.join().unwrap();
    stop.stop();
    let machine = serving.join().unwrap();
    let [driver] = machine.drivers()[..] else { panic!("it is at one LAN") };
    assert_eq!(driver.name.to_string(), "hs0");
    let counters = driver.counters;
    assert!(counters.moves >= MOVES as u64 / 2 && counters.takeovers == 0, "{counters:?}");
    assert!(counters.frames_in > 0 && counters.frames_out > 0, "{counters:?}");
    assert!(counters.processor_ns > 0 && counters.polls >= counters.polls_empty, "{counters:?}");
}

#[test]
fn options_limits_of_time_and_errors_are_those_of_a_stack_of_ones_own() {
    let host = host();
    let machine = serve(&host, ClientLimits::default());
    let stack = client(&host, "CLIENT");
    let at = |port| SocketAddr::new(machine.address.ip(), port);
    let listener = TcpListener::bind(&stack, at(0)).unwrap();
    let address = listener.local_addr().unwrap();
    assert_ne!(address.port(), 0);
    assert_eq!(TcpListener::bind(&stack, address).unwrap_err().kind(), ErrorKind::AddrInUse);
    let elsewhere = "10.99.0.1:5".parse::<SocketAddr>().unwrap();
    let refused = TcpListener::bind(&stack, elsewhere).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AddrNotAvailable);
    let refused = TcpStream::connect(&stack, at(9)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let refused = TcpStream::connect(&stack, elsewhere).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::HostUnreachable);
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    listener.set_nonblocking(false).unwrap();
    let mut near = TcpStream::connect(&stack, address).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    near.set_nodelay(true).unwrap();
    assert!(near.nodelay().unwrap());
    near.set_keepalive(Some(Duration::from_secs(60))).unwrap();
    near.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    assert_eq!(near.read(&mut [0; 10]).unwrap_err().kind(), ErrorKind::WouldBlock);
    far.write_all(b"peeked").unwrap();
    let mut found = [0; 10];
    near.set_read_timeout(Some(LONG)).unwrap();
    assert_eq!(near.peek(&mut found).unwrap(), 6);
    assert_eq!(near.receive_with(|bytes| (2, bytes.len())).unwrap(), 6);
    assert_eq!(near.read(&mut found).unwrap(), 4);
    assert_eq!(&found[..4], b"eked");
    let had_more = near.send_with(|room| {
        room[..5].copy_from_slice(b"built");
        (5, room.len() > 5)
    });
    assert!(had_more.unwrap());
    far.read_exact(&mut found[..5]).unwrap();
    assert_eq!(&found[..5], b"built");
    near.reset().unwrap();
    assert_eq!(far.read(&mut found).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(far.read(&mut found).unwrap(), 0, "it is said once");
    assert_eq!(stack.add_lan(lan(&host, "EXTRA")).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn datagrams_of_clients_go_where_they_are_sent() {
    let host = host();
    let machine = serve(&host, ClientLimits::default());
    let (near, far) = (client(&host, "NEAR"), client(&host, "FAR"));
    let bind = |stack: &Stack| UdpSocket::bind(stack, machine.address).unwrap();
    let (one, other) = (bind(&near), bind(&far));
    let (from, to) = (one.local_addr().unwrap(), other.local_addr().unwrap());
    for bytes in [0, 1, 1000, 20_000] {
        let data = pattern(bytes, bytes);
        assert_eq!(one.send_to(&data, to).unwrap(), bytes);
        let mut target = vec![0; bytes + 1];
        assert_eq!(other.recv_from(&mut target).unwrap(), (bytes, from));
        assert!(target[..bytes] == data);
    }
    one.connect(to).unwrap();
    assert_eq!(one.peer_addr().unwrap(), to);
    other.connect(from).unwrap();
    other.send(b"answer").unwrap();
    let mut target = [0; 10];
    assert_eq!(one.recv(&mut target).unwrap(), 6);
    drop(other);
    // The port is free when the machine has heard of it.
    let deadline = std::time::Instant::now() + LONG;
    let refused = loop {
        assert!(std::time::Instant::now() < deadline);
        let sent = one.send(b"anybody?");
        one.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        match sent.and_then(|_| one.recv(&mut target)) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => break error,
            Ok(_) => {}
        }
    };
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn many_sockets_of_a_client_are_waited_for_at_one_descriptor() {
    let host = host();
    let machine = serve(&host, ClientLimits::default());
    let (near, far) = (client(&host, "NEAR"), client(&host, "FAR"));
    let listener = TcpListener::bind(&far, machine.address).unwrap();
    let address = listener.local_addr().unwrap();
    let mut pairs: Vec<_> = (0..20)
        .map(|_| (TcpStream::connect(&near, address).unwrap(), listener.accept().unwrap().0))
        .collect();
    for (token, (_, stream)) in pairs.iter().enumerate() {
        stream.set_nonblocking(true).unwrap();
        stream.watch(token as u64).unwrap();
    }
    while far.take_changed().unwrap().is_some() {}
    let descriptor = far.descriptor().unwrap();
    for round in 0..60 {
        let at = round * 7 % pairs.len();
        pairs[at].0.write_all(b"news").unwrap();
        let named = loop {
            far.poll().unwrap();
            if let Some(named) = far.take_changed().unwrap() {
                break named;
            }
            let wait = far.prepare_wait().unwrap();
            if !wait.is_zero() {
                let wait = wait.min(LONG);
                let ready = os::poller::wait_any([Some(descriptor.as_fd())], Some(wait)).unwrap();
                assert_eq!(ready, [true], "round {round}");
            }
        };
        assert_eq!(named, at as u64, "round {round}");
        let mut target = [0; 10];
        assert_eq!(pairs[at].1.read(&mut target).unwrap(), 4);
        assert_eq!(pairs[at].1.read(&mut target).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}

#[test]
fn machine_that_ends_is_an_error_at_once_and_the_next_one_serves() {
    let host = host();
    let machine = serve(&host, ClientLimits::default());
    let stack = client(&host, "CLIENT");
    let listener = TcpListener::bind(&stack, machine.address).unwrap();
    let mut near = TcpStream::connect(&stack, listener.local_addr().unwrap()).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    far.write_all(b"before").unwrap();
    near.read_exact(&mut [0; 6]).unwrap();
    let reader = thread::spawn(move || near.read(&mut [0; 10]).unwrap_err());
    let acceptor = thread::spawn(move || listener.accept().unwrap_err());
    drop(machine.end());
    for error in [reader.join().unwrap(), acceptor.join().unwrap()] {
        assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
        assert!(error.to_string().contains("the TCPIP machine TCPIP is gone"), "{error}");
    }
    assert_eq!(far.write(b"after").unwrap_err().kind(), ErrorKind::ConnectionAborted);
    let refused = TcpListener::bind(&stack, "0.0.0.0:0").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionAborted);
    let next = serve(&host, ClientLimits::default());
    let options = ClientOptions { wait: Wait::Block, ..ClientOptions::default() };
    stack.attach_again(&options).unwrap();
    assert_eq!(stack.addresses(), [next.address.ip()]);
    let listener = TcpListener::bind(&stack, next.address).unwrap();
    let mut near = TcpStream::connect(&stack, listener.local_addr().unwrap()).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    near.write_all(b"again").unwrap();
    let mut found = [0; 5];
    far.read_exact(&mut found).unwrap();
    assert_eq!(&found, b"again");
}

#[test]
fn threads_that_attach_again_at_once_take_no_socket_from_each_other() {
    const THREADS: usize = 2;
    for round in 0..20 {
        let host = host();
        let machine = serve(&host, ClientLimits::default());
        let stack = client(&host, "CLIENT");
        drop(machine.end());
        let next = serve(&host, ClientLimits::default());
        assert!(UdpSocket::bind(&stack, next.address).is_err(), "the first machine is gone");
        let barrier = Arc::new(Barrier::new(THREADS));
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (stack, barrier, address) = (stack.clone(), barrier.clone(), next.address);
                thread::spawn(move || {
                    barrier.wait();
                    let options = ClientOptions { wait: Wait::Block, ..ClientOptions::default() };
                    stack.attach_again(&options).unwrap();
                    (stack.clone(), UdpSocket::bind(&stack, address).unwrap())
                })
            })
            .collect();
        let sockets: Vec<_> = threads.into_iter().map(|one| one.join().unwrap().1).collect();
        for socket in &sockets {
            let own = socket.local_addr().unwrap();
            assert_eq!(socket.send_to(b"echo", own).unwrap(), 4, "round {round}");
            socket.set_read_timeout(Some(LONG)).unwrap();
            assert_eq!(socket.recv_from(&mut [0; 10]).unwrap(), (4, own), "round {round}");
        }
        assert_eq!(next.end().counters().faults, 0);
    }
}

#[test]
fn guest_that_asks_for_many_paths_at_once_gets_two() {
    let host = host();
    let guest = Guest::attach_embedded(&host, "TCPIP").unwrap();
    let lans = vec![lan(&host, "TCPIP1")];
    let options = MachineOptions::default();
    let mut machine = Machine::new(guest, lans, Vec::new(), &Routing::default(), &options).unwrap();
    let greedy = Guest::attach_embedded(&host, "GREEDY").unwrap();
    let options = PathOptions { kind: Kind::TCPIP, ..PathOptions::default() };
    let mut asked: Vec<_> =
        (0..16).map(|_| greedy.start_connecting("TCPIP", &options).unwrap()).collect();
    let (mut paths, mut refused) = (Vec::new(), 0);
    let deadline = std::time::Instant::now() + LONG;
    while !asked.is_empty() {
        assert!(std::time::Instant::now() < deadline, "{} have no answer", asked.len());
        machine.poll().unwrap();
        asked.retain_mut(|one| match greedy.try_complete(one) {
            Ok(None) => true,
            Ok(Some(path)) => {
                paths.push(path);
                false
            }
            Err(_) => {
                refused += 1;
                false
            }
        });
    }
    assert_eq!((paths.len(), refused), (2, 14));
    // A path may be there before the machine has heard that it is.
    while machine.counters().attached < 2 {
        assert!(std::time::Instant::now() < deadline, "a client is missing");
        machine.poll().unwrap();
    }
    assert_eq!(machine.clients().count(), 2);
}

#[test]
fn client_that_leaves_takes_its_sockets_along_and_nobody_elses() {
    let host = host();
    let machine = serve(&host, ClientLimits::default());
    let (near, far) = (client(&host, "NEAR"), client(&host, "FAR"));
    let listener = TcpListener::bind(&far, machine.address).unwrap();
    let address = listener.local_addr().unwrap();
    let stream = TcpStream::connect(&near, address).unwrap();
    let (mut lost, _) = listener.accept().unwrap();
    let other = client(&host, "OTHER");
    let mut kept = TcpStream::connect(&other, address).unwrap();
    let (mut kept_far, _) = listener.accept().unwrap();
    // What it leaves unread is a reset at the other side.
    lost.write_all(b"unread").unwrap();
    stream.peek(&mut [0; 6]).unwrap();
    drop((near, stream));
    assert_eq!(lost.read(&mut [0; 10]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    kept.write_all(b"on").unwrap();
    let mut found = [0; 2];
    kept_far.read_exact(&mut found).unwrap();
    assert_eq!(&found, b"on");
    // It hears of the reset before it hears of the end of the path.
    let mut machine = machine.end();
    let names = |machine: &Machine| -> Vec<_> {
        machine.clients().map(|client| client.guest.to_string()).collect()
    };
    let deadline = std::time::Instant::now() + LONG;
    while names(&machine).len() > 2 {
        assert!(std::time::Instant::now() < deadline, "{:?}", names(&machine));
        machine.poll().unwrap();
    }
    assert_eq!(names(&machine), ["FAR", "OTHER"]);
}

#[test]
fn many_small_writes_wait_for_room_on_the_path_to_the_machine() {
    // More than the path to a machine that is not served has buffers for.
    const WRITES: usize = 20_000;
    let host = host();
    let machine = serve(&host, ClientLimits::default());
    let (near, far) = (client(&host, "NEAR"), client(&host, "FAR"));
    let listener = TcpListener::bind(&far, (machine.address.ip(), 7)).unwrap();
    let address = listener.local_addr().unwrap();
    let reader = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        received
    });
    let mut stream = TcpStream::connect(&near, address).unwrap();
    let data = pattern(64 * WRITES, 3);
    for piece in data.chunks(64) {
        stream.write_all(piece).unwrap();
    }
    stream.shutdown(Shutdown::Write).unwrap();
    // The path may be full: a stack that is driven inline says what is left while a verb waits.
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    assert!(reader.join().unwrap() == data);
}

#[test]
fn program_that_serves_a_machine_has_sockets_of_its_own() {
    let host = host();
    let make = |name: &str, member: &str| {
        let guest = Guest::attach_embedded(&host, name).unwrap();
        let options = MachineOptions { wait: Wait::Block, ..MachineOptions::default() };
        let lans = vec![lan(&host, member)];
        Machine::new(guest, lans, Vec::new(), &Routing::default(), &options).unwrap()
    };
    let (mut machine, mut other) = (make("TCPIP", "TCPIP1"), make("OTHER", "OTHER1"));
    let home = machine.addresses()[0];
    let listener = machine.listen((home, 7), 4).unwrap();
    let address = listener.local_addr();
    assert_eq!(machine.listen(address, 4).unwrap_err().kind(), ErrorKind::AddrInUse);
    let elsewhere = (other.addresses()[0], 7);
    assert_eq!(machine.listen(elsewhere, 4).unwrap_err().kind(), ErrorKind::AddrNotAvailable);
    assert_eq!(machine.accept(&listener).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(other.accept(&listener).unwrap_err().kind(), ErrorKind::InvalidInput);

    const BYTES: usize = 1_000_000;
    let member = Stack::new(lan(&host, "MEMBER"), &StackOptions::default()).unwrap();
    let guests = ["NEAR", "FAR"].map(|name| Guest::attach_embedded(&host, name).unwrap());
    let (is_gone, gone) = mpsc::channel();
    let asking = thread::spawn(move || {
        let options = ClientOptions { wait: Wait::Block, ..ClientOptions::default() };
        let [near, far] = guests.map(|guest| Stack::of_machine(guest, "TCPIP", &options).unwrap());
        // A client of the machine, and a member of its LAN.
        for stack in [near, member] {
            let mut stream = TcpStream::connect(&stack, address).unwrap();
            let question = pattern(BYTES, 5);
            stream.write_all(&question).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap();
            answer.reverse();
            assert!(answer == question);
        }
        gone.recv().unwrap();
        let refused = TcpStream::connect(&far, address).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    });
    for _ in 0..2 {
        let stream = loop {
            match machine.accept(&listener) {
                Ok((stream, _)) => break stream,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            machine.serve_some(LONG).unwrap();
        };
        machine.set_nodelay(&stream, true).unwrap();
        let (mut question, mut room) = (Vec::new(), vec![0; 10_000]);
        loop {
            match machine.read(&stream, &mut room) {
                Ok(0) => break,
                Ok(count) => question.extend_from_slice(&room[..count]),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    machine.serve_some(LONG).unwrap();
                }
            }
        }
        assert_eq!(machine.read(&stream, &mut []).unwrap(), 0);
        assert_eq!(other.read(&stream, &mut room).unwrap_err().kind(), ErrorKind::InvalidInput);
        question.reverse();
        let mut left = &question[..];
        while !left.is_empty() {
            match machine.write(&stream, left) {
                Ok(count) => left = &left[count..],
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    machine.serve_some(LONG).unwrap();
                }
            }
        }
        machine.shut_sending(&stream).unwrap();
        assert_eq!(machine.write(&stream, b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
    }
    drop(listener);
    machine.poll().unwrap();
    is_gone.send(()).unwrap();
    while !asking.is_finished() {
        machine.serve_within(Duration::from_millis(1)).unwrap();
    }
    asking.join().unwrap();
}
