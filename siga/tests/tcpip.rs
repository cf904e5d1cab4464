//! TCP/IP on a LAN: two guests of one host, a stack each, each in a thread of its own.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use siga::host::{Embedded, System};
use siga::lan::{Address, Checksum, Lan, LanOptions, Offload};
use siga::tcpip::{Counter, Drive, Stack, StackOptions, TcpListener, TcpStream, UdpSocket};
use siga::{Guest, Wait};

const LONG: Duration = Duration::from_secs(20);

fn member(host: &Embedded, name: &str) -> Lan {
    let options = LanOptions { address: Address::Chosen, wait: Wait::Block, ..Default::default() };
    Lan::join(Guest::attach_embedded(host, name).unwrap(), "hs0", &options).unwrap()
}

fn stack(lan: Lan) -> Stack {
    Stack::new(lan, &StackOptions::default()).unwrap()
}

/// Runs a server and a client, a stack each. The client is told the server's address.
fn run(
    server: impl FnOnce(Stack) + Send + 'static,
    client: impl FnOnce(Stack, IpAddr) + Send + 'static,
) {
    run_with(StackOptions::default(), server, client);
}

/// The same, with stacks that behave so.
fn run_with(
    options: StackOptions,
    server: impl FnOnce(Stack) + Send + 'static,
    client: impl FnOnce(Stack, IpAddr) + Send + 'static,
) {
    let host = Embedded::start(System::open()).unwrap();
    let (served, asking) = (member(&host, "SERVER"), member(&host, "CLIENT"));
    let address = served.addresses()[0];
    let (ended, has_ended) = mpsc::channel();
    let start = |run: Box<dyn FnOnce() + Send>| {
        let ended = ended.clone();
        thread::spawn(move || ended.send(catch_unwind(AssertUnwindSafe(run))));
    };
    let stack = move |lan| Stack::new(lan, &options).unwrap();
    start(Box::new(move || server(stack(served))));
    start(Box::new(move || client(stack(asking), address)));
    // The first that fails ends the test: the other may wait for it without end.
    for _ in 0..2 {
        if let Err(panic) = has_ended.recv().unwrap() {
            resume_unwind(panic);
        }
    }
}

#[test]
fn hello_goes_there_and_back() {
    run(
        |stack| {
            let listener = TcpListener::bind(&stack, "0.0.0.0:7").unwrap();
            let (mut stream, peer) = listener.accept().unwrap();
            assert_eq!(stream.peer_addr().unwrap(), peer);
            let mut bytes = [0; 5];
            stream.read_exact(&mut bytes).unwrap();
            stream.write_all(&bytes).unwrap();
            drop(stream);
            assert!(stack.finish(LONG).unwrap());
        },
        |stack, address| {
            let mut stream = TcpStream::connect(&stack, (address, 7)).unwrap();
            assert_eq!(stream.peer_addr().unwrap(), SocketAddr::new(address, 7));
            assert_eq!(stream.local_addr().unwrap().ip(), stack.addresses()[0]);
            stream.write_all(b"hello").unwrap();
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).unwrap();
            assert_eq!(bytes, b"hello");
            drop(stream);
            assert!(stack.finish(LONG).unwrap());
            assert_eq!(stack.counter(Counter::Connected), 1);
        },
    );
}

/// Bytes that differ from their neighbours for long, so that a piece that is lost or doubled is seen.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 23) as u8).collect()
}

/// Accepts so many connections, and sends back what comes over each until its end.
fn echo(stack: &Stack, port: u16, connections: usize) {
    let listener = TcpListener::bind(stack, ("0.0.0.0", port)).unwrap();
    for stream in listener.incoming().take(connections) {
        let mut stream = stream.unwrap();
        loop {
            let piece = stream.receive_with(|bytes| (bytes.len(), bytes.to_vec())).unwrap();
            if piece.is_empty() {
                break;
            }
            stream.write_all(&piece).unwrap();
        }
    }
    assert!(stack.finish(LONG).unwrap());
}

#[test]
fn megabyte_is_echoed_byte_for_byte() {
    run(
        |stack| echo(&stack, 7, 1),
        |stack, address| {
            let stream = TcpStream::connect(&stack, (address, 7)).unwrap();
            let sent = pattern(1 << 20);
            let mut received = Vec::new();
            let mut left = &sent[..];
            // Both buffers are smaller than what is sent: so reading must not wait for the end of writing.
            stream.set_nonblocking(true).unwrap();
            let mut piece = vec![0; 100_000];
            while received.len() < sent.len() {
                let mut is_idle = true;
                match (&stream).write(left) {
                    Ok(count) => {
                        left = &left[count..];
                        is_idle &= count == 0;
                    }
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
                match (&stream).read(&mut piece) {
                    Ok(count) => {
                        assert!(count > 0, "the end came too early");
                        received.extend_from_slice(&piece[..count]);
                        is_idle = false;
                    }
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
                if is_idle {
                    stack.wait(LONG).unwrap();
                }
            }
            assert!(received == sent);
            drop(stream);
            assert!(stack.finish(LONG).unwrap());
        },
    );
}

#[test]
fn closed_port_and_unknown_host_are_told_apart() {
    run(
        |stack| {
            // Serves until the client has connected here.
            let listener = TcpListener::bind(&stack, "0.0.0.0:2").unwrap();
            listener.accept().unwrap();
            assert_eq!(stack.counter(Counter::ResetsSent), 1);
        },
        |stack, address| {
            let connect = |to: SocketAddr| TcpStream::connect(&stack, to).unwrap_err().kind();
            assert_eq!(connect((address, 1).into()), ErrorKind::ConnectionRefused);
            assert_eq!(connect("10.1.77.77:1".parse().unwrap()), ErrorKind::HostUnreachable);
            let own = SocketAddr::new(stack.addresses()[0], 1);
            assert_eq!(connect(own), ErrorKind::ConnectionRefused);
            assert_eq!(connect((address, 0).into()), ErrorKind::InvalidInput);
            TcpStream::connect(&stack, (address, 2)).unwrap();
        },
    );
}

#[test]
fn half_that_is_closed_leaves_the_other_open() {
    run(
        |stack| {
            let listener = TcpListener::bind(&stack, "0.0.0.0:7").unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).unwrap();
            assert!(bytes == pattern(100_000));
            stream.write_all(&pattern(200_000)).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(stream.write(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
            drop(stream);
            assert!(stack.finish(LONG).unwrap());
        },
        |stack, address| {
            let mut stream = TcpStream::connect(&stack, (address, 7)).unwrap();
            stream.write_all(&pattern(100_000)).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(stream.write(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).unwrap();
            assert!(bytes == pattern(200_000));
            drop(stream);
            assert!(stack.finish(LONG).unwrap());
        },
    );
}

#[test]
fn stream_dropped_with_unread_bytes_resets_the_connection() {
    run(
        |stack| {
            let listener = TcpListener::bind(&stack, "0.0.0.0:7").unwrap();
            let (stream, _) = listener.accept().unwrap();
            let mut bytes = [0; 3];
            assert!(stream.peek(&mut bytes).unwrap() > 0);
            drop(stream);
            // The next is closed with nothing unread: its end is an end.
            drop(listener.accept().unwrap());
            assert!(stack.finish(LONG).unwrap());
        },
        |stack, address| {
            let mut stream = TcpStream::connect(&stack, (address, 7)).unwrap();
            stream.write_all(b"nobody reads this").unwrap();
            let mut bytes = [0; 10];
            let error = stream.read(&mut bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            assert_eq!(stream.read(&mut bytes).unwrap(), 0);
            assert_eq!(stream.write(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
            let mut stream = TcpStream::connect(&stack, (address, 7)).unwrap();
            assert_eq!(stream.read(&mut bytes).unwrap(), 0);
            drop(stream);
            assert!(stack.finish(LONG).unwrap());
        },
    );
}

#[test]
fn stack_that_is_dropped_resets_its_connections() {
    // Windows are offered in steps: the last bytes of the buffer stay empty.
    const FULL: std::ops::RangeInclusive<usize> = (256 << 10) - 16..=256 << 10;
    let (full, is_full) = mpsc::channel::<()>();
    let (gone, is_gone) = mpsc::channel::<()>();
    // The window does not grow, however late the machine lets the sides run.
    let options = StackOptions { receive_bytes: *FULL.end(), ..StackOptions::default() };
    run_with(
        options,
        move |stack| {
            let listener = TcpListener::bind(&stack, "0.0.0.0:7").unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            // Nobody reads meanwhile: so the client cannot send all.
            let mut bytes = vec![0; 1 << 20];
            while !FULL.contains(&stream.peek(&mut bytes).unwrap()) {
                stack.wait(Duration::from_millis(10)).unwrap();
            }
            full.send(()).unwrap();
            while is_gone.try_recv() == Err(mpsc::TryRecvError::Empty) {
                stack.wait(Duration::from_millis(10)).unwrap();
            }
            let mut bytes = Vec::new();
            let error = stream.read_to_end(&mut bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            assert!(FULL.contains(&bytes.len()), "what has come is received first");
            assert!(bytes == pattern(bytes.len()));
        },
        move |stack, address| {
            let mut stream = TcpStream::connect(&stack, (address, 7)).unwrap();
            stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
            let (body, mut written) = (pattern(1 << 20), 0);
            let mut is_told = false;
            while !is_told || written <= *FULL.end() {
                is_told |= is_full.try_recv() != Err(mpsc::TryRecvError::Empty);
                match stream.write(&body[written..]) {
                    Ok(count) => written += count,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
            }
            // Not finished: the program goes, and what is not acknowledged goes with it.
            drop(stream);
            drop(stack);
            gone.send(()).unwrap();
        },
    );
}

#[test]
fn full_backlog_lets_nobody_in_until_one_is_accepted() {
    let (full, is_full) = mpsc::channel::<()>();
    let (done, is_done) = mpsc::channel::<()>();
    run(
        move |stack| {
            let listener = TcpListener::bind_with_backlog(&stack, "0.0.0.0:7", 2).unwrap();
            // The client says when two are there and the third is not.
            while is_full.try_recv().is_err() {
                stack.wait(Duration::from_millis(10)).unwrap();
            }
            // This side may have had no processor until now. The third request comes again each second.
            while stack.counter(Counter::BacklogFull) == 0 {
                stack.wait(Duration::from_millis(10)).unwrap();
            }
            let streams = [0; 3].map(|_| listener.accept().unwrap());
            assert_eq!(stack.counter(Counter::Accepted), 3);
            // The client still looks at the third, which is reset when it is dropped with an unread byte.
            let _ = is_done.recv();
            drop(streams);
            assert!(stack.finish(LONG).unwrap());
        },
        move |stack, address| {
            let to = SocketAddr::new(address, 7);
            let two = [0; 2].map(|_| TcpStream::connect(&stack, to).unwrap());
            let error = TcpStream::connect_timeout(&stack, &to, Duration::from_millis(50));
            assert_eq!(error.unwrap_err().kind(), ErrorKind::TimedOut);
            let third = TcpStream::start_connecting(&stack, to).unwrap();
            stack.wait(Duration::from_millis(50)).unwrap();
            assert_eq!(third.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
            assert_eq!((&third).write(b"x").unwrap_err().kind(), ErrorKind::WouldBlock);
            full.send(()).unwrap();
            third.set_nonblocking(false).unwrap();
            assert_eq!((&third).write(b"x").unwrap(), 1);
            assert_eq!(third.peer_addr().unwrap(), to);
            assert!(third.take_error().unwrap().is_none());
            done.send(()).unwrap();
            drop((two, third));
            assert!(stack.finish(LONG).unwrap());
        },
    );
}

/// Answers the first request for a connection, as a stack would, and leaves the LAN without a word of it.
fn answer_and_leave(mut lan: Lan) {
    let request = loop {
        let frame = lan.receive_within(LONG).unwrap().expect("a request").bytes.to_vec();
        if frame[12..14] == [8, 0] && frame[23] == 6 {
            break frame;
        }
    };
    let mut frame = [&request[6..12], &lan.mac().0, &[8, 0]].concat();
    // A header of IP whose checksum the other side verifies, and one of TCP whose checksum is marked as right.
    let mut ip =
        [&[0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0], &request[30..34], &request[26..30]];
    let words = |ip: &[&[u8]]| {
        let sum: u32 =
            ip.concat().chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
        !((sum & 0xffff) + (sum >> 16)) as u16
    };
    let sum = words(&ip).to_be_bytes();
    let head = [0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, sum[0], sum[1]];
    ip[0] = &head;
    frame.extend(ip.concat());
    let first = u32::from_be_bytes(request[38..42].try_into().unwrap());
    frame.extend_from_slice(&[&request[36..38], &request[34..36], &[0, 0, 0, 7]].concat());
    frame.extend_from_slice(&first.wrapping_add(1).to_be_bytes());
    frame.extend_from_slice(&[5 << 4, 0x12, 255, 255, 0, 0, 0, 0]);
    let offload = Offload { checksum: Checksum::Verified, ..Offload::NONE };
    lan.send(offload, &frame).unwrap();
    // The acknowledgement of that, which shows that the other side has it.
    lan.receive_within(LONG).unwrap().expect("an acknowledgement");
}

#[test]
fn reader_learns_that_the_other_member_is_gone() {
    let host = Embedded::start(System::open()).unwrap();
    let (gone, asking) = (member(&host, "SERVER"), member(&host, "CLIENT"));
    let address = gone.addresses()[0];
    let gone = thread::spawn(move || answer_and_leave(gone));
    let stack = stack(asking);
    let mut stream = TcpStream::connect(&stack, (address, 7)).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let error = stream.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HostUnreachable);
    assert_eq!(stack.counter(Counter::Gone), 1);
    gone.join().unwrap();
}

/// A connection is with the guest that had the address, and not with whoever has it next.
#[test]
fn guest_that_takes_an_address_does_not_get_its_connections() {
    let host = Embedded::start(System::open()).unwrap();
    let (gone, asking) = (member(&host, "SERVER"), member(&host, "CLIENT"));
    let address = gone.addresses()[0];
    // It answers, and is gone.
    let gone = thread::spawn(move || answer_and_leave(gone));
    let stack = stack(asking);
    let mut stream = TcpStream::connect(&stack, (address, 7)).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    gone.join().unwrap();
    let options = LanOptions { address: Address::This(address), ..Default::default() };
    let other = Guest::attach_embedded(&host, "OTHER").unwrap();
    let mut other = Lan::join(other, "hs0", &options).unwrap();
    let written = stream.write_all(b"a secret");
    let error = written.and_then(|()| stream.read(&mut [0])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HostUnreachable);
    // Whatever went there before comes before this.
    let socket = UdpSocket::bind(&stack, "0.0.0.0:0").unwrap();
    socket.send_to(b"marker", (address, 9)).unwrap();
    loop {
        let frame = other.receive_within(LONG).unwrap().expect("the marker comes");
        let is_ip = frame.bytes[12..14] == [8, 0];
        assert!(!is_ip || frame.bytes[23] != 6, "a segment: {frame:?}");
        if is_ip && frame.bytes.ends_with(b"marker") {
            break;
        }
    }
}

#[test]
fn two_hundred_connections_at_once() {
    const CONNECTIONS: usize = 200;
    const BYTES: usize = 20_000;
    run(
        |stack| {
            let listener = TcpListener::bind_with_backlog(&stack, "0.0.0.0:7", 256).unwrap();
            listener.set_nonblocking(true).unwrap();
            let mut streams = Vec::new();
            let mut ended = 0;
            let mut bytes = vec![0; BYTES];
            while ended < CONNECTIONS {
                stack.wait(LONG).unwrap();
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true).unwrap();
                    streams.push((stream, Vec::new()));
                }
                streams.retain_mut(|(stream, held): &mut (TcpStream, Vec<u8>)| {
                    loop {
                        match stream.read(&mut bytes) {
                            Ok(0) => {
                                stream.set_nonblocking(false).unwrap();
                                stream.write_all(held).unwrap();
                                ended += 1;
                                return false;
                            }
                            Ok(count) => held.extend_from_slice(&bytes[..count]),
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                                return true;
                            }
                        }
                    }
                });
            }
            assert!(stack.finish(LONG).unwrap());
        },
        |stack, address| {
            let streams: Vec<TcpStream> = (0..CONNECTIONS)
                .map(|_| TcpStream::connect(&stack, (address, 7)).unwrap())
                .collect();
            let body = pattern(BYTES + CONNECTIONS);
            for (number, mut stream) in streams.iter().enumerate() {
                stream.write_all(&body[number..number + BYTES]).unwrap();
            }
            for stream in &streams {
                stream.shutdown(Shutdown::Write).unwrap();
            }
            for (number, mut stream) in streams.iter().enumerate() {
                let mut bytes = Vec::new();
                stream.read_to_end(&mut bytes).unwrap();
                assert!(bytes == body[number..number + BYTES], "connection {number}");
            }
            drop(streams);
            assert!(stack.finish(LONG).unwrap());
            assert_eq!(stack.counter(Counter::Connected), CONNECTIONS as u64);
        },
    );
}

/// A datagram of UDP from port 9 to port 7, its checksum left out.
fn datagram(from: (&[u8], IpAddr), to: (&[u8], IpAddr), data: &[u8]) -> Vec<u8> {
    let octets = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(_) => unreachable!("the range of the LAN is one of IPv4"),
    };
    let length = |bytes: usize| (bytes as u16).to_be_bytes();
    let mut ip = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0].to_vec();
    ip[2..4].copy_from_slice(&length(28 + data.len()));
    ip.extend([octets(from.1), octets(to.1)].concat());
    let sum: u32 = ip.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    ip[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    let [high, low] = length(8 + data.len());
    [to.0, from.0, &[8, 0], &ip, &[0, 9, 0, 7, high, low, 0, 0], data].concat()
}

#[test]
fn datagram_of_a_member_that_has_left_is_received_though_nothing_of_it_was_heard_before() {
    let host = Embedded::start(System::open()).unwrap();
    let (receiving, mut leaving) = (member(&host, "SERVER"), member(&host, "CLIENT"));
    let (mac, address, from) = (receiving.mac(), receiving.addresses()[0], leaving.addresses()[0]);
    let stack = stack(receiving);
    let socket = UdpSocket::bind(&stack, "0.0.0.0:7").unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    // The path is there when a frame has come that says nothing of addresses.
    let frame = [&mac.0[..], &leaving.mac().0, &[0x88, 0xb5, 0]].concat();
    leaving.send(Offload::NONE, &frame).unwrap();
    // Both sides have a part in making the path.
    while stack.counter(Counter::FramesReceived) == 0 {
        assert!(leaving.try_receive().unwrap().is_none());
        stack.wait(Duration::from_millis(1)).unwrap();
    }
    let own = leaving.mac();
    let frame = datagram((&own.0, from), (&mac.0, address), b"farewell");
    leaving.send(Offload::NONE, &frame).unwrap();
    drop(leaving);
    let mut bytes = [0; 100];
    let (count, source) = socket.recv_from(&mut bytes).unwrap();
    assert_eq!((&bytes[..count], source), (&b"farewell"[..], SocketAddr::new(from, 9)));
}

#[test]
fn datagrams_go_there_and_back() {
    run(
        |stack| {
            let socket = UdpSocket::bind(&stack, "0.0.0.0:53").unwrap();
            let mut bytes = vec![0; 1 << 16];
            loop {
                let (count, from) = socket.recv_from(&mut bytes).unwrap();
                socket.send_to(&bytes[..count], from).unwrap();
                if count == 0 {
                    break;
                }
            }
        },
        |stack, address| {
            let socket = UdpSocket::bind(&stack, "0.0.0.0:0").unwrap();
            assert_ne!(socket.local_addr().unwrap().port(), 0);
            let mut bytes = vec![0; 1 << 16];
            // The longest packet of IP has 65,535 bytes, of which IP and UDP take 28.
            let error = socket.send_to(&[0; 65_508], (address, 53)).unwrap_err();
            assert_eq!(error.to_string(), "a datagram of 65508 bytes: must be at most 65507");
            // The LAN's packets have 8 KiB: what is longer goes in fragments.
            for count in [1, 100, 8192 - 28, 8192 - 27, 9000, 65_507, 0] {
                let sent = pattern(count);
                assert_eq!(socket.send_to(&sent, (address, 53)).unwrap(), count);
                socket.set_read_timeout(Some(LONG)).unwrap();
                assert_eq!(socket.peek_from(&mut bytes).unwrap().0, count);
                let (received, from) = socket.recv_from(&mut bytes).unwrap();
                assert_eq!((received, from), (count, SocketAddr::new(address, 53)));
                assert!(bytes[..count] == sent);
            }
            let error = socket.send_to(b"x", ("10.1.77.77", 53)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::HostUnreachable);
            socket.set_nonblocking(true).unwrap();
            assert_eq!(socket.recv_from(&mut bytes).unwrap_err().kind(), ErrorKind::WouldBlock);
        },
    );
}

#[test]
fn datagram_of_a_member_that_leaves_before_it_was_heard_is_received() {
    let host = Embedded::start(System::open()).unwrap();
    let mut watching = member(&host, "WATCHER");
    let (served, mut leaving) = (member(&host, "SERVER"), member(&host, "CLIENT"));
    let (to, from) = (served.addresses()[0], leaving.addresses()[0]);
    let ends = [&served.mac().0[..], &leaving.mac().0].concat();
    let stack = stack(served);
    let socket = UdpSocket::bind(&stack, "0.0.0.0:53").unwrap();
    // A path, over which nothing comes that says who it is from.
    let nothing = [&ends[..], &[0x88, 0xb5], &[0; 46]].concat();
    leaving.send(Offload::NONE, &nothing).unwrap();
    while stack.counter(Counter::FramesReceived) == 0 {
        assert!(leaving.try_receive().unwrap().is_none());
        stack.wait(Duration::from_millis(1)).unwrap();
    }
    let [IpAddr::V4(from), IpAddr::V4(to)] = [from, to] else { panic!("addresses of IPv4") };
    let mut ip = [0x45, 0, 0, 33, 0, 0, 0x40, 0, 64, 17, 0, 0].to_vec();
    ip.extend_from_slice(&[from.octets(), to.octets()].concat());
    let words = ip.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let datagram = [0, 99, 0, 53, 0, 13, 0, 0, b'h', b'e', b'l', b'l', b'o'];
    leaving.send(Offload::NONE, &[&ends[..], &[8, 0], &ip, &datagram].concat()).unwrap();
    drop(leaving);
    while watching.find_address(from.into()).is_some() {
        watching.receive_within(Duration::from_millis(1)).unwrap();
    }
    socket.set_read_timeout(Some(LONG)).unwrap();
    let mut bytes = [0; 10];
    assert_eq!(socket.recv_from(&mut bytes).unwrap(), (5, SocketAddr::new(from.into(), 99)));
    assert_eq!(&bytes[..5], b"hello");
}

#[test]
fn time_limits_and_settings_are_those_of_the_standard_library() {
    let (done, is_done) = mpsc::channel::<()>();
    run(
        move |stack| {
            let listener = TcpListener::bind(&stack, "0.0.0.0:7").unwrap();
            let in_use = TcpListener::bind(&stack, "0.0.0.0:7").unwrap_err();
            assert_eq!(in_use.kind(), ErrorKind::AddrInUse);
            let foreign = TcpListener::bind(&stack, "10.1.77.77:7").unwrap_err();
            assert_eq!(foreign.kind(), ErrorKind::AddrNotAvailable);
            let (stream, _) = listener.accept().unwrap();
            // What comes is acknowledged and not read.
            while is_done.try_recv() == Err(mpsc::TryRecvError::Empty) {
                stack.wait(Duration::from_millis(10)).unwrap();
            }
            drop(stream);
        },
        move |stack, address| {
            let mut stream = TcpStream::connect(&stack, (address, 7)).unwrap();
            // A closure that the stack has called may not call the stack.
            let inner = stream.send_with(|_| (0, stack.poll().unwrap_err().kind())).unwrap();
            assert_eq!(inner, ErrorKind::ResourceBusy);
            let zero = stream.set_read_timeout(Some(Duration::ZERO)).unwrap_err();
            assert_eq!(zero.kind(), ErrorKind::InvalidInput);
            let limit = Duration::from_millis(20);
            stream.set_read_timeout(Some(limit)).unwrap();
            stream.set_write_timeout(Some(limit)).unwrap();
            assert_eq!(stream.read_timeout().unwrap(), Some(limit));
            assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
            assert!(!stream.nodelay().unwrap());
            stream.set_nodelay(true).unwrap();
            assert!(stream.nodelay().unwrap());
            assert_eq!(stream.tos().unwrap(), 0);
            stream.set_tos(0x10).unwrap();
            assert_eq!(stream.tos().unwrap(), 0x10);
            // Nobody reads: both buffers are full in the end, of 256 KiB each, but for the part of ours that has to be empty before
            // more is put there. A limit passes sooner where the other side has no processor.
            let body = pattern(1 << 20);
            let mut written = 0;
            while written < (448 << 10) - 16 {
                match stream.write(&body[written..]) {
                    Ok(count) => written += count,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
            }
            let error = loop {
                match stream.write(&body[written..]) {
                    Ok(count) => written += count,
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            assert!(written <= 512 << 10, "{written}");
            done.send(()).unwrap();
        },
    );
}

#[test]
fn descriptor_is_readable_when_there_is_something_to_do() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    run(
        |stack| {
            let listener = TcpListener::bind(&stack, "0.0.0.0:7").unwrap();
            listener.set_nonblocking(true).unwrap();
            let descriptor = stack.descriptor().unwrap();
            let mut waits = 0;
            let mut wait = |stack: &Stack| {
                let time = stack.prepare_wait().unwrap().min(LONG);
                if !time.is_zero() {
                    waits += 1;
                    let time = Timespec::try_from(time).unwrap();
                    let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
                    poll(&mut polled, Some(&time)).unwrap();
                }
                assert!(waits < 1000, "it does not wait");
            };
            let (mut stream, _) = loop {
                match listener.accept() {
                    Ok(accepted) => break accepted,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
                wait(&stack);
            };
            stream.set_nonblocking(true).unwrap();
            let mut received = Vec::new();
            let mut bytes = vec![0; 1 << 20];
            while received.len() < 500_000 {
                match stream.read(&mut bytes) {
                    Ok(0) => panic!("the end came too early"),
                    Ok(count) => received.extend_from_slice(&bytes[..count]),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::WouldBlock);
                        wait(&stack);
                    }
                }
            }
            assert!(received == pattern(500_000));
            stream.set_nonblocking(false).unwrap();
            stream.write_all(b"all").unwrap();
            drop(stream);
            assert!(stack.finish(LONG).unwrap());
        },
        |stack, address| {
            let mut stream = TcpStream::connect(&stack, (address, 7)).unwrap();
            stream.write_all(&pattern(500_000)).unwrap();
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).unwrap();
            assert_eq!(bytes, b"all");
            drop(stream);
            assert!(stack.finish(LONG).unwrap());
        },
    );
}

#[test]
fn connected_socket_has_its_other_side_alone_and_learns_of_a_closed_port() {
    run(
        |stack| {
            let socket = UdpSocket::bind(&stack, "0.0.0.0:53").unwrap();
            let other = UdpSocket::bind(&stack, "0.0.0.0:54").unwrap();
            let mut bytes = [0; 10];
            let (count, from) = socket.recv_from(&mut bytes).unwrap();
            other.send_to(b"not from there", from).unwrap();
            socket.send_to(&bytes[..count], from).unwrap();
            // Serves until the client has learnt what it wants to.
            assert_eq!(socket.recv_from(&mut bytes).unwrap().0, 3);
            assert_eq!(stack.counter(Counter::ErrorsSent), 2);
        },
        |stack, address| {
            let socket = UdpSocket::bind(&stack, "0.0.0.0:0").unwrap();
            let kind = |result: std::io::Result<usize>| result.unwrap_err().kind();
            let mut bytes = [0; 100];
            assert_eq!(kind(socket.send(b"x")), ErrorKind::NotConnected);
            assert_eq!(kind(socket.recv(&mut bytes)), ErrorKind::NotConnected);
            assert_eq!(socket.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
            assert!(socket.local_addr().unwrap().ip().is_unspecified());
            let nobody = socket.connect("10.1.77.77:53").unwrap_err();
            assert_eq!(nobody.kind(), ErrorKind::HostUnreachable);
            socket.connect((address, 53)).unwrap();
            assert_eq!(socket.peer_addr().unwrap(), SocketAddr::new(address, 53));
            assert_eq!(socket.local_addr().unwrap().ip(), stack.addresses()[0]);
            socket.set_read_timeout(Some(LONG)).unwrap();
            assert_eq!(socket.send(b"hello").unwrap(), 5);
            assert_eq!(socket.peek(&mut bytes).unwrap(), 5);
            assert_eq!(socket.recv(&mut bytes).unwrap(), 5);
            assert_eq!(&bytes[..5], b"hello");
            socket.connect((address, 99)).unwrap();
            socket.send(b"anybody?").unwrap();
            assert_eq!(kind(socket.recv(&mut bytes)), ErrorKind::ConnectionRefused);
            socket.send(b"anybody?").unwrap();
            let error = loop {
                match socket.take_error().unwrap() {
                    Some(error) => break error,
                    None => stack.wait(Duration::from_millis(10)).unwrap(),
                }
            };
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            assert!(socket.take_error().unwrap().is_none());
            socket.send_to(b"bye", (address, 53)).unwrap();
        },
    );
}

#[test]
fn stack_connects_to_itself() {
    let host = Embedded::start(System::open()).unwrap();
    let stack = stack(member(&host, "ALONE"));
    let own = stack.addresses()[0];
    let listener = TcpListener::bind(&stack, (own, 7)).unwrap();
    let mut asking = TcpStream::connect(&stack, (own, 7)).unwrap();
    let (mut served, peer) = listener.accept().unwrap();
    assert_eq!(peer, asking.local_addr().unwrap());
    let sent = pattern(100_000);
    asking.write_all(&sent).unwrap();
    drop(asking);
    let mut received = Vec::new();
    served.read_to_end(&mut received).unwrap();
    assert!(received == sent);
    drop(served);
    let socket = UdpSocket::bind(&stack, (own, 53)).unwrap();
    socket.send_to(&sent[..20_000], (own, 53)).unwrap();
    let mut bytes = vec![0; 1 << 16];
    assert_eq!(socket.recv_from(&mut bytes).unwrap(), (20_000, SocketAddr::new(own, 53)));
    assert!(bytes[..20_000] == sent[..20_000]);
    assert!(stack.finish(LONG).unwrap());
}

#[test]
fn lingering_stream_waits_until_all_is_there_or_resets() {
    let (reads, may_read) = mpsc::channel();
    run(
        move |stack| {
            let listener = TcpListener::bind(&stack, "0.0.0.0:7").unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0]).unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
            // More than the other side's buffer, so that it has something left when it closes.
            let (mut stream, _) = listener.accept().unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            assert!(received == pattern(200_000));
            reads.send(()).unwrap();
            drop(stream);
            assert!(stack.finish(LONG).unwrap());
        },
        move |stack, address| {
            let mut stream = TcpStream::connect(&stack, (address, 7)).unwrap();
            assert_eq!(stream.linger().unwrap(), None);
            stream.set_linger(Some(Duration::ZERO)).unwrap();
            stream.write_all(b"x").unwrap();
            drop(stream);
            let mut stream = TcpStream::connect(&stack, (address, 7)).unwrap();
            stream.set_linger(Some(LONG)).unwrap();
            assert_eq!(stream.linger().unwrap(), Some(LONG));
            stream.write_all(&pattern(200_000)).unwrap();
            drop(stream);
            // Nobody serves this stack any more: what the other side has, it has got before.
            may_read.recv().unwrap();
        },
    );
}

#[test]
fn keep_alive_has_the_terms_that_were_set() {
    let host = Embedded::start(System::open()).unwrap();
    let stack = stack(member(&host, "ALONE"));
    let listener = TcpListener::bind(&stack, "0.0.0.0:7").unwrap();
    let stream = TcpStream::connect(&stack, (stack.addresses()[0], 7)).unwrap();
    assert_eq!(stream.keepalive().unwrap(), None);
    stream.set_keepalive(Some(Duration::from_secs(7))).unwrap();
    assert_eq!(stream.keepalive().unwrap(), Some(Duration::from_secs(7)));
    let zero = stream.set_keepalive(Some(Duration::ZERO)).unwrap_err();
    assert_eq!(zero.kind(), ErrorKind::InvalidInput);
    let (short, none) = (Duration::from_millis(1), 0);
    let zero = stream.set_keepalive_probes(short, short, none).unwrap_err();
    assert_eq!(zero.kind(), ErrorKind::InvalidInput);
    // Both ends are served here, so it is asked and answers for as long as there is work.
    stream.set_keepalive_probes(short, short, 3).unwrap();
    while stack.counter(Counter::ProbesSent) < 20 {
        stack.wait(Duration::from_millis(10)).unwrap();
    }
    assert!(stream.take_error().unwrap().is_none());
    stream.set_keepalive(None).unwrap();
    assert_eq!(stream.keepalive().unwrap(), None);
    drop(listener);
}

#[test]
fn program_that_does_something_else_still_acknowledges() {
    let (go_on, told) = mpsc::channel();
    run(
        move |stack| {
            let listener = TcpListener::bind(&stack, "0.0.0.0:7").unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            // The client goes on only when all that it sent is acknowledged: meanwhile no verb of this stack runs.
            told.recv_timeout(LONG).unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            assert!(received == pattern(100_000));
        },
        move |stack, address| {
            let mut stream = TcpStream::connect(&stack, (address, 7)).unwrap();
            stream.write_all(&pattern(100_000)).unwrap();
            stream.set_linger(Some(LONG)).unwrap();
            drop(stream);
            go_on.send(()).unwrap();
            assert!(stack.finish(LONG).unwrap());
        },
    );
}

/// Sends back what comes over a connection until its end.
fn echo_one(mut stream: TcpStream) {
    let mut bytes = [0; 10_000];
    loop {
        match stream.read(&mut bytes).unwrap() {
            0 => return,
            count => stream.write_all(&bytes[..count]).unwrap(),
        }
    }
}

/// A stack with a thread, or without.
fn driven(lan: Lan, drive: Drive) -> Stack {
    Stack::new(lan, &StackOptions { drive, ..StackOptions::default() }).unwrap()
}

#[test]
fn threads_share_a_stack() {
    const THREADS: usize = 12;
    const BYTES: usize = 300_000;
    for (wait, drive) in [
        (Wait::Block, Drive::Thread),
        (Wait::Adaptive, Drive::Inline),
        (Wait::Spin, Drive::Thread),
        (Wait::Block, Drive::Inline),
    ] {
        let host = Embedded::start(System::open()).unwrap();
        let [server, client] = ["SERVER", "CLIENT"].map(|name| {
            let options = LanOptions { address: Address::Chosen, wait, ..Default::default() };
            let guest = Guest::attach_embedded(&host, name).unwrap();
            driven(Lan::join(guest, "hs0", &options).unwrap(), drive)
        });
        let listener = TcpListener::bind(&server, "0.0.0.0:7").unwrap();
        let address = server.addresses()[0];
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::scope(|scope| {
                    for stream in listener.incoming().take(THREADS) {
                        scope.spawn(|| echo_one(stream.unwrap()));
                    }
                });
                assert!(server.finish(LONG).unwrap());
            });
            scope.spawn(|| {
                thread::scope(|scope| {
                    for number in 0..THREADS {
                        let client = &client;
                        scope.spawn(move || {
                            let sent = pattern(BYTES + number);
                            let stream = TcpStream::connect(client, (address, 7)).unwrap();
                            // One thread writes and another reads.
                            let mut writer = stream.try_clone().unwrap();
                            thread::scope(|scope| {
                                scope.spawn(|| {
                                    writer.write_all(&sent).unwrap();
                                    writer.shutdown(Shutdown::Write).unwrap();
                                });
                                let mut received = Vec::new();
                                (&stream).read_to_end(&mut received).unwrap();
                                assert!(received == sent, "connection {number}");
                            });
                        });
                    }
                });
                assert!(client.finish(LONG).unwrap());
            });
        });
    }
}

#[test]
fn last_handle_ends_the_stack_and_its_membership() {
    let host = Embedded::start(System::open()).unwrap();
    for _ in 0..20 {
        // The name is free again at once.
        let stack = stack(member(&host, "AGAIN"));
        let listener = TcpListener::bind(&stack, "0.0.0.0:7").unwrap();
        drop(stack);
        drop(listener);
    }
}

#[test]
fn verb_inside_a_closure_of_the_stack_is_refused_and_a_closure_that_panics_harms_nobody() {
    let host = Embedded::start(System::open()).unwrap();
    let stack = stack(member(&host, "SELF"));
    let listener = TcpListener::bind(&stack, "0.0.0.0:7").unwrap();
    let near = TcpStream::connect(&stack, (stack.addresses()[0], 7)).unwrap();
    let (far, _) = listener.accept().unwrap();
    (&near).write_all(b"hello").unwrap();
    let (refused, other) = far
        .receive_with(|_| {
            let clone = near.try_clone();
            (0, (stack.poll().unwrap_err().kind(), clone.unwrap_err().kind()))
        })
        .unwrap();
    assert_eq!((refused, other), (ErrorKind::ResourceBusy, ErrorKind::ResourceBusy));
    let panicked = thread::scope(|scope| {
        scope.spawn(|| far.receive_with(|_| -> (usize, ()) { panic!("on purpose") })).join()
    });
    assert!(panicked.is_err());
    let mut bytes = [0; 5];
    (&far).read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"hello");
}

/// Two stacks, each of whose connections is the other's, and both ends of one.
fn connected(host: &Embedded) -> (Stack, Stack, TcpStream, TcpStream) {
    let (one, other) = (stack(member(host, "ONE")), stack(member(host, "OTHER")));
    let listener = TcpListener::bind(&other, "0.0.0.0:7").unwrap();
    let near = TcpStream::connect(&one, (other.addresses()[0], 7)).unwrap();
    let (far, _) = listener.accept().unwrap();
    (one, other, near, far)
}

#[test]
fn member_that_finds_a_new_host_late_learns_that_its_connections_are_over() {
    let socket = std::env::temp_dir().join(format!("siga-tcpip-late-{}", std::process::id()));
    let host = || {
        let mut system = System::open();
        system.socket = Some(socket.clone());
        Embedded::start(system).unwrap()
    };
    let first = host();
    let member = |name| {
        let options = LanOptions { wait: Wait::Block, ..Default::default() };
        Lan::join(Guest::attach(&socket, name).unwrap(), "hs0", &options).unwrap()
    };
    // What a stack does that has no thread, its verbs do.
    let options = StackOptions { drive: Drive::Inline, ..Default::default() };
    let (prompt, late) = (stack(member("PROMPT")), Stack::new(member("LATE"), &options).unwrap());
    let listener = TcpListener::bind(&prompt, "0.0.0.0:7").unwrap();
    let mut near = TcpStream::connect(&late, (prompt.addresses()[0], 7)).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    drop(first);
    let _second = host();
    far.set_read_timeout(Some(LONG)).unwrap();
    assert_eq!(far.read(&mut [0]).unwrap_err().kind(), ErrorKind::HostUnreachable);
    // It has nothing to send, and has missed all that.
    near.set_read_timeout(Some(LONG)).unwrap();
    assert_eq!(near.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    let _ = std::fs::remove_file(&socket);
}

#[test]
fn thread_that_reads_learns_that_another_has_shut_or_reset_the_connection() {
    let host = Embedded::start(System::open()).unwrap();
    let (_one, _other, near, far) = connected(&host);
    let mut reader = near.try_clone().unwrap();
    let reading = thread::spawn(move || reader.read(&mut [0]));
    // Whether it reads already or begins after: it finds the end.
    near.shutdown(Shutdown::Read).unwrap();
    assert_eq!(reading.join().unwrap().unwrap(), 0);
    let mut reader = far.try_clone().unwrap();
    let reading = thread::spawn(move || reader.read(&mut [0]));
    far.reset().unwrap();
    // Our own reset is the end, not an error; or it is one of a connection that is gone.
    assert!(reading.join().unwrap().is_ok_and(|count| count == 0));
}

#[test]
fn program_that_only_looks_at_counters_does_not_keep_its_stack_from_working() {
    let host = Embedded::start(System::open()).unwrap();
    let (one, other) = (stack(member(&host, "ONE")), stack(member(&host, "OTHER")));
    let _listener = TcpListener::bind(&other, "0.0.0.0:7").unwrap();
    let address = other.addresses()[0];
    let connecting = thread::spawn(move || {
        let stream = TcpStream::connect(&one, (address, 7)).unwrap();
        (one, stream)
    });
    // No verb of this stack receives.
    while !connecting.is_finished() {
        other.counter(Counter::Accepted);
        thread::yield_now();
    }
    connecting.join().unwrap();
}

#[test]
fn descriptor_is_readable_when_a_connection_has_timed_out() {
    for drive in [Drive::Thread, Drive::Inline] {
        let host = Embedded::start(System::open()).unwrap();
        let options =
            StackOptions { drive, connect_max: Duration::from_millis(50), ..Default::default() };
        let asking = Stack::new(member(&host, "ASKING"), &options).unwrap();
        // A member that answers nothing.
        let mute = member(&host, "MUTE");
        let target = SocketAddr::new(mute.addresses()[0], 7);
        let stream = TcpStream::start_connecting(&asking, target).unwrap();
        stream.watch(5).unwrap();
        assert_eq!(asking.take_changed().unwrap(), Some(5));
        let descriptor = asking.descriptor().unwrap();
        while asking.take_changed().unwrap().is_none() {
            let time = asking.prepare_wait().unwrap();
            os::poller::wait_readable(&descriptor, Some(time.min(LONG))).unwrap();
        }
        assert_eq!(stream.take_error().unwrap().unwrap().kind(), ErrorKind::TimedOut, "{drive:?}");
    }
}

#[test]
fn descriptor_of_a_stack_without_a_thread_is_readable_though_another_thread_was_at_the_stack() {
    let host = Embedded::start(System::open()).unwrap();
    let one = driven(member(&host, "ONE"), Drive::Inline);
    let other = stack(member(&host, "OTHER"));
    let listener = TcpListener::bind(&other, "0.0.0.0:7").unwrap();
    let near = TcpStream::connect(&one, (other.addresses()[0], 7)).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    let descriptor = one.descriptor().unwrap();
    for _ in 0..200 {
        while one.prepare_wait().unwrap().is_zero() {}
        // It works with the LAN while the other waits for the descriptor.
        thread::scope(|scope| scope.spawn(|| (&near).write_all(b"x").unwrap()).join().unwrap());
        let mut byte = [0];
        far.read_exact(&mut byte).unwrap();
        far.write_all(&byte).unwrap();
        while (&near).read(&mut byte).is_err() {
            os::poller::wait_readable(&descriptor, Some(LONG)).unwrap();
        }
    }
}

#[test]
fn what_comes_after_a_program_has_looked_is_not_slept_over_at_the_descriptor() {
    let host = Embedded::start(System::open()).unwrap();
    let (one, _other, near, mut far) = connected(&host);
    near.set_nonblocking(true).unwrap();
    let descriptor = one.descriptor().unwrap();
    for _ in 0..100 {
        while one.prepare_wait().unwrap().is_zero() {}
        assert_eq!((&near).read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        // The program's wait ends for another reason. It has looked already when the stack's thread receives this.
        far.write_all(b"x").unwrap();
        os::poller::wait_readable(&descriptor, Some(LONG)).unwrap();
        assert!(one.prepare_wait().unwrap().is_zero());
        (&near).read_exact(&mut [0]).unwrap();
    }
}

#[test]
fn descriptor_is_readable_for_what_a_verb_of_another_thread_has_received() {
    let host = Embedded::start(System::open()).unwrap();
    let one = driven(member(&host, "ONE"), Drive::Inline);
    let other = stack(member(&host, "OTHER"));
    let listener = TcpListener::bind(&other, "0.0.0.0:7").unwrap();
    let connect = || {
        let near = TcpStream::connect(&one, (other.addresses()[0], 7)).unwrap();
        (near, listener.accept().unwrap().0)
    };
    let ((near, mut far), (mut driving, mut far_driving)) = (connect(), connect());
    let descriptor = one.descriptor().unwrap();
    while one.prepare_wait().unwrap().is_zero() {}
    thread::scope(|scope| {
        scope.spawn(|| driving.read_exact(&mut [0]).unwrap());
        far.write_all(b"x").unwrap();
        // Dropping it waits until the other side has all, and only the verb in the other thread receives there.
        far.set_linger(Some(LONG)).unwrap();
        drop(far);
        let [is_told] = os::poller::wait_any([Some(descriptor.as_fd())], Some(LONG)).unwrap();
        far_driving.write_all(b"x").unwrap();
        assert!(is_told);
    });
    near.set_nonblocking(true).unwrap();
    (&near).read_exact(&mut [0]).unwrap();
}

#[test]
fn datagram_of_a_stack_to_itself_is_told_at_the_descriptor() {
    let host = Embedded::start(System::open()).unwrap();
    let stack = driven(member(&host, "ALONE"), Drive::Inline);
    let socket = UdpSocket::bind(&stack, (stack.addresses()[0], 53)).unwrap();
    while stack.prepare_wait().unwrap().is_zero() {}
    socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
    assert!(stack.prepare_wait().unwrap().is_zero());
    assert_eq!(socket.recv_from(&mut [0]).unwrap().0, 1);
}

#[test]
fn each_of_several_threads_that_wait_for_anything_is_told() {
    let host = Embedded::start(System::open()).unwrap();
    let stack = driven(member(&host, "ALONE"), Drive::Inline);
    let socket = UdpSocket::bind(&stack, (stack.addresses()[0], 53)).unwrap();
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        // The first waits may end for reasons of their own.
        for _ in 0..20 {
            socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
            // Another thread has seen it: this one has not.
            let other = || stack.wait(Duration::ZERO).unwrap();
            thread::scope(|scope| scope.spawn(other).join().unwrap());
            stack.wait(Duration::MAX).unwrap();
        }
        done.send(()).unwrap();
    });
    is_done.recv_timeout(LONG).unwrap();
}

#[test]
fn pieces_are_filled_and_taken_where_they_lie() {
    let host = Embedded::start(System::open()).unwrap();
    let (_one, _other, near, far) = connected(&host);
    let sent = pattern(1 << 20);
    let sending = {
        let sent = sent.clone();
        thread::spawn(move || {
            let mut left = &sent[..];
            while !left.is_empty() {
                let before = left.len();
                let bytes = near.send_pieces_with(100_000, |pieces| {
                    let filled = pieces.iter_mut().map(|piece| {
                        let bytes = piece.len().min(left.len());
                        piece[..bytes].copy_from_slice(&left[..bytes]);
                        left = &left[bytes..];
                        bytes
                    });
                    filled.sum()
                });
                assert_eq!(bytes.unwrap(), before - left.len());
            }
            near.shutdown(std::net::Shutdown::Write).unwrap();
            near
        })
    };
    let mut received = Vec::new();
    loop {
        let mut has_ended = false;
        let taken = far.receive_pieces_with(|pieces| {
            has_ended = pieces.is_empty();
            let before = received.len();
            pieces.iter().for_each(|piece| received.extend_from_slice(piece));
            // Some of it stays, and comes again.
            let all = received.len() - before;
            received.truncate(before + all - all / 3);
            received.len() - before
        });
        assert_eq!(taken.unwrap() == 0, has_ended);
        if has_ended {
            break;
        }
    }
    assert!(received == sent, "{} bytes", received.len());
    drop(sending.join().unwrap());
}

#[test]
fn closure_of_one_stack_may_not_call_another_but_drop_it() {
    let host = Embedded::start(System::open()).unwrap();
    let (one, other, near, mut far) = connected(&host);
    far.write_all(b"hello").unwrap();
    // A third stack, with a connection: its last handles are dropped while bytes of the first are looked at.
    let third = stack(member(&host, "THIRD"));
    let listener = TcpListener::bind(&other, "0.0.0.0:8").unwrap();
    let dropped = TcpStream::connect(&third, (other.addresses()[0], 8)).unwrap();
    let (mut ended, _) = listener.accept().unwrap();
    let held = &mut Some((third, dropped));
    let refused = near.receive_with(|bytes| {
        let (third, dropped) = held.take().unwrap();
        let kinds =
            [third.poll(), (&dropped).write(b"x").map(|_| ()), far.shutdown(Shutdown::Both)];
        (bytes.len(), kinds.map(|refused| refused.unwrap_err().kind()))
    });
    assert_eq!(refused.unwrap(), [ErrorKind::ResourceBusy; 3]);
    // The connection was dropped before its stack.
    assert_eq!(ended.read(&mut [0]).unwrap(), 0);
    // The guest's name is free again.
    stack(member(&host, "THIRD"));
    // A closure that panics leaves the stacks free.
    far.write_all(b"hello").unwrap();
    let panics = || near.receive_with(|_| -> (usize, ()) { panic!("on purpose") });
    assert!(thread::scope(|scope| {
        let thread = scope.spawn(|| {
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).unwrap_err();
            other.poll().unwrap();
            one.poll().unwrap();
        });
        thread.join().is_ok()
    }));
}

#[test]
fn what_is_dropped_inside_a_closure_is_closed_when_that_is_over() {
    let host = Embedded::start(System::open()).unwrap();
    let (_one, _other, near, mut far) = connected(&host);
    let (_one, second) = (_one.clone(), near.try_clone().unwrap());
    far.write_all(b"x").unwrap();
    // A second connection, which is dropped while the first one's bytes are looked at.
    let listener = TcpListener::bind(&_other, "0.0.0.0:8").unwrap();
    let dropped = TcpStream::connect(&_one, (_other.addresses()[0], 8)).unwrap();
    let (mut ended, _) = listener.accept().unwrap();
    let held = &mut Some(dropped);
    second
        .receive_with(|bytes| {
            held.take();
            (bytes.len(), ())
        })
        .unwrap();
    // No verb of that stack runs from now on.
    assert_eq!(ended.read(&mut [0]).unwrap(), 0);
}
