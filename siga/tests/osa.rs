//! Guests at adapters: stacks over a wire in memory, through hosts, servers and devices as programs have them.

use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use net::lan::frame::Mac;
use net::lan::link::FrameInPlace;
use net::lan::offload::Offload;
use net::wire::Conditions;
use siga::host::{Embedded, System};
use siga::osa::{
    CableOptions, Capabilities, Carrier, Layer, MemoryWire, Moderation, NotSent, OpenOsaError, Osa,
    OsaOptions, OsaState, Refused, Request, Server, ServerOptions, Wire, WireCounters, cable,
};
use siga::tcpip::{Links, Routing, Stack, StackOptions, TcpListener, TcpStream, UdpSocket};
use siga::{Guest, Path, PathOptions, Stopper, Wait};

const PATIENCE: Duration = Duration::from_secs(30);

/// Adapters that are served, each by a thread, until this is dropped.
#[derive(Default)]
struct Adapters {
    served: Vec<(Stopper, JoinHandle<()>)>,
}

impl Adapters {
    fn serve(&mut self, host: &Embedded, name: &str, wire: Box<dyn Wire>) {
        let guest = Guest::attach_embedded(host, name).unwrap();
        let (ready, is_ready) = channel();
        let thread = thread::spawn(move || {
            let mut options = ServerOptions::default();
            options.wait = Wait::Block;
            let mut server = Server::new(guest, wire, &options).unwrap();
            ready.send(server.stopper()).unwrap();
            server.serve().unwrap();
        });
        self.served.push((is_ready.recv().unwrap(), thread));
    }
}

impl Drop for Adapters {
    fn drop(&mut self) {
        for (stopper, thread) in self.served.drain(..) {
            stopper.stop();
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking());
        }
    }
}

/// Two adapters at the ends of a wire.
fn adapters(host: &Embedded, conditions: Conditions) -> Adapters {
    let macs = [Mac([2, 0, 0, 0, 0xa, 1]), Mac([2, 0, 0, 0, 0xa, 2])];
    let [one, other] = MemoryWire::pair(conditions, 7, macs).unwrap();
    let mut adapters = Adapters::default();
    adapters.serve(host, "OSA1", Box::new(one));
    adapters.serve(host, "OSA2", Box::new(other));
    adapters
}

fn device(host: &Embedded, name: &str, adapter: &str, address: &str, layer: Layer) -> Osa {
    let guest = Guest::attach_embedded(host, name).unwrap();
    let mut options = OsaOptions::default();
    (options.layer, options.wait) = (layer, Wait::Block);
    let mut osa = Osa::open(guest, adapter, &options).unwrap();
    osa.add_address(address.parse().unwrap(), 24);
    osa.wait_until_up(PATIENCE).unwrap();
    osa
}

fn stack(host: &Embedded, name: &str, adapter: &str, address: &str, layer: Layer) -> Stack {
    let devices = vec![device(host, name, adapter, address, layer)];
    let links = Links { devices, ..Links::default() };
    Stack::at(links, &Routing::default(), &StackOptions::default()).unwrap()
}

/// Has one stack send bytes to the other, and both look at all of them.
fn transfer(from: &Stack, to: &Stack, address: &str, bytes: usize) {
    let listener = TcpListener::bind(to, (address, 7)).unwrap();
    let receiver = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        stream.write_all(&[1]).unwrap();
        received
    });
    let sent: Vec<u8> = (0..bytes).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect();
    let mut stream = TcpStream::connect(from, (address, 7)).unwrap();
    stream.write_all(&sent).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = [0];
    stream.read_exact(&mut answer).unwrap();
    assert!(receiver.join().unwrap() == sent, "bytes are others than those that were sent");
}

#[test]
fn stacks_reach_each_other_over_a_wire_and_over_one_port() {
    let host = Embedded::start(System::open()).unwrap();
    let _adapters = adapters(&host, Conditions { mtu: 8992, ..Conditions::default() });
    let one = stack(&host, "ONE", "OSA1", "10.1.0.1", Layer::Three);
    let other = stack(&host, "OTHER", "OSA2", "10.1.0.2", Layer::Three);
    let third = stack(&host, "THIRD", "OSA1", "10.1.0.3", Layer::Three);
    transfer(&one, &other, "10.1.0.2", 3_000_000);
    transfer(&other, &one, "10.1.0.1", 3_000_000);
    transfer(&one, &third, "10.1.0.3", 3_000_000);
}

#[test]
fn stack_says_what_its_devices_have_counted() {
    const BYTES: usize = 1_000_000;
    // Each packet has that of the queue, of IP and of TCP at least.
    const HEADS_BYTES: u64 = 32 + 20 + 20;
    let host = Embedded::start(System::open()).unwrap();
    let first = adapters(&host, Conditions { mtu: 1500, ..Conditions::default() });
    let one = stack(&host, "ONE", "OSA1", "10.1.0.1", Layer::Three);
    let other = stack(&host, "OTHER", "OSA2", "10.1.0.2", Layer::Three);
    transfer(&one, &other, "10.1.0.2", BYTES);
    let of = |stack: &Stack| stack.devices().unwrap().remove(0);
    let device = of(&one);
    assert_eq!((device.number, device.adapter.as_str(), device.mtu), (0, "OSA1", 1500));
    assert!(matches!(device.state, OsaState::Up(_)) && device.guest.as_str() == "ONE");
    let [reads, writes] = device.queues;
    assert!(writes.bytes >= BYTES as u64 + HEADS_BYTES * writes.packets, "{writes:?}");
    assert!((1..=reads.packets + 8).contains(&reads.buffers), "{reads:?}");
    assert!(device.counters.polls >= reads.buffers, "{device:?}");
    assert!(device.interrupts > 0 && device.lent_bytes[1] > 0, "{device:?}");
    // A device that comes back goes on counting.
    drop(first);
    let _second = adapters(&host, Conditions::default());
    transfer(&one, &other, "10.1.0.2", BYTES);
    let later = of(&one);
    assert!(later.queues[1].bytes >= writes.bytes + BYTES as u64, "{later:?}");
    assert!(later.counters.polls > device.counters.polls, "{later:?}");
}

#[test]
fn stacks_of_layer_2_find_each_other_and_those_of_layer_3() {
    let host = Embedded::start(System::open()).unwrap();
    let conditions = Conditions {
        rate: std::num::NonZeroU64::new(1_000_000_000),
        delay: Duration::from_micros(20),
        ..Conditions::default()
    };
    let _adapters = adapters(&host, conditions);
    let one = stack(&host, "ONE", "OSA1", "10.1.0.1", Layer::Two);
    let other = stack(&host, "OTHER", "OSA2", "10.1.0.2", Layer::Two);
    let third = stack(&host, "THIRD", "OSA2", "10.1.0.3", Layer::Three);
    transfer(&one, &other, "10.1.0.2", 1_000_000);
    transfer(&third, &one, "10.1.0.1", 1_000_000);
    transfer(&other, &third, "10.1.0.3", 1_000_000);
}

#[test]
fn address_of_another_is_refused_and_told() {
    let host = Embedded::start(System::open()).unwrap();
    let _adapters = adapters(&host, Conditions::default());
    let _one = device(&host, "ONE", "OSA1", "10.1.0.1", Layer::Three);
    let guest = Guest::attach_embedded(&host, "OTHER").unwrap();
    let mut other = Osa::open(guest, "OSA1", &OsaOptions::default()).unwrap();
    let address = "10.1.0.1".parse().unwrap();
    other.add_address(address, 24);
    match other.wait_until_up(PATIENCE) {
        Err(OpenOsaError::Refused { request, why, .. }) => {
            assert_eq!((request, why), (Request::AddAddress(address), Refused::Taken));
        }
        up => panic!("{up:?}"),
    }
}

#[test]
fn nobody_binds_to_an_address_that_the_adapter_refuses() {
    let host = Embedded::start(System::open()).unwrap();
    let _adapters = adapters(&host, Conditions::default());
    let _one = device(&host, "ONE", "OSA1", "10.1.0.1", Layer::Three);
    let guest = Guest::attach_embedded(&host, "OTHER").unwrap();
    let mut other = Osa::open(guest, "OSA1", &OsaOptions::default()).unwrap();
    other.add_address("10.1.0.1".parse().unwrap(), 24);
    let links = Links { devices: vec![other], ..Links::default() };
    let stack = Stack::at(links, &Routing::default(), &StackOptions::default()).unwrap();
    // The adapter answers a moment later.
    let refused = loop {
        if let Err(refused) = TcpListener::bind(&stack, "10.1.0.1:7") {
            break refused;
        }
    };
    assert_eq!(refused.kind(), std::io::ErrorKind::AddrNotAvailable, "{refused}");
    let refused = UdpSocket::bind(&stack, "10.1.0.1:7").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::AddrNotAvailable, "{refused}");
}

#[test]
fn device_comes_back_when_its_adapter_does() {
    let host = Embedded::start(System::open()).unwrap();
    let first = adapters(&host, Conditions::default());
    let one = stack(&host, "ONE", "OSA1", "10.1.0.1", Layer::Three);
    let other = stack(&host, "OTHER", "OSA2", "10.1.0.2", Layer::Three);
    transfer(&one, &other, "10.1.0.2", 100_000);
    drop(first);
    let _second = adapters(&host, Conditions::default());
    transfer(&one, &other, "10.1.0.2", 100_000);
}

#[test]
fn device_of_an_adapter_that_is_not_there_says_so() {
    let host = Embedded::start(System::open()).unwrap();
    let guest = Guest::attach_embedded(&host, "ONE").unwrap();
    let mut osa = Osa::open(guest, "OSA9", &OsaOptions::default()).unwrap();
    let error = osa.wait_until_up(Duration::from_millis(50)).unwrap_err().to_string();
    assert!(error.contains("OSA9") && error.contains("not attached"), "{error}");
    assert!(matches!(osa.state(), OsaState::Down { .. }));
}

/// An adapter that is served when the test says so.
fn adapter_by_hand(host: &Embedded) -> Server {
    let guest = Guest::attach_embedded(host, "OSA1").unwrap();
    let macs = [Mac([2, 0, 0, 0, 0xa, 1]), Mac([2, 0, 0, 0, 0xa, 2])];
    let [wire, _other] = MemoryWire::pair(Conditions::default(), 7, macs).unwrap();
    let mut options = ServerOptions::default();
    options.wait = Wait::Block;
    Server::new(guest, Box::new(wire), &options).unwrap()
}

fn device_by_hand(host: &Embedded, name: &str, mac: Mac) -> Osa {
    let mut options = OsaOptions::default();
    (options.layer, options.wait) = (Layer::Two, Wait::Block);
    options.mac = Some(mac);
    Osa::open(Guest::attach_embedded(host, name).unwrap(), "OSA1", &options).unwrap()
}

/// Serves until the device is up.
fn bring_up(server: &mut Server, device: &mut Osa) {
    let end = os::processor::now_ns() + PATIENCE.as_nanos() as u64;
    while device.wait_until_up(Duration::ZERO).is_err() {
        server.poll().unwrap();
        assert!(os::processor::now_ns() < end, "{device:?}");
    }
}

#[test]
fn device_is_up_though_frames_are_in_front_of_the_last_answer() {
    let host = Embedded::start(System::open()).unwrap();
    let mut server = adapter_by_hand(&host);
    let [one, other] = [1, 2].map(|last| Mac([2, 0, 0, 0, 0xb, last]));
    let mut receiver = device_by_hand(&host, "ONE", one);
    let mut sender = device_by_hand(&host, "OTHER", other);
    bring_up(&mut server, &mut receiver);
    bring_up(&mut server, &mut sender);
    let frame = [&one.0[..], &other.0, &[0x88, 0xb5], &[7; 46]].concat();
    for _ in 0..3 {
        sender.send(os::processor::now_ns(), None, Offload::NONE, &frame).unwrap();
    }
    sender.flush();
    let received = |server: &mut Server| -> u64 {
        let reports = server.report();
        let report = reports.iter().find(|report| report.mac == one);
        report.map_or(0, |report| report.inputs.iter().map(|queue| queue.packets).sum())
    };
    let end = os::processor::now_ns() + PATIENCE.as_nanos() as u64;
    while received(&mut server) < 3 {
        server.poll().unwrap();
        assert!(os::processor::now_ns() < end);
    }
    receiver.register(Request::AddGroup(Mac([1, 0, 0x5e, 0, 0, 7])));
    receiver.flush();
    // The answer is there, behind the frames, and nobody serves any more.
    for _ in 0..1000 {
        server.poll().unwrap();
    }
    receiver.wait_until_up(PATIENCE).unwrap();
}

#[test]
fn device_comes_up_though_its_adapter_goes_while_it_is_waited_for() {
    let host = Embedded::start(System::open()).unwrap();
    for polls in [0, 1, 3, 10] {
        let mut server = adapter_by_hand(&host);
        let mut device = device_by_hand(&host, "ONE", Mac([2, 0, 0, 0, 0xb, 1]));
        let waiting = thread::spawn(move || {
            device.wait_until_up(Duration::MAX).unwrap();
        });
        for _ in 0..polls {
            server.serve_until(os::processor::now_ns() + 1_000_000).unwrap();
        }
        drop(server);
        let mut adapters = Adapters::default();
        let [wire, _other] =
            MemoryWire::pair(Conditions::default(), 7, [Mac([2; 6]), Mac([6; 6])]).unwrap();
        adapters.serve(&host, "OSA1", Box::new(wire));
        waiting.join().unwrap();
    }
}

#[test]
fn device_that_can_never_be_up_is_not_waited_for() {
    let host = Embedded::start(System::open()).unwrap();
    let mut server = adapter_by_hand(&host);
    let mut device = device_by_hand(&host, "ONE", Mac([2, 0, 0, 0, 0xb, 1]));
    bring_up(&mut server, &mut device);
    device.register(Request::Halt);
    device.flush();
    let serving = thread::spawn(move || {
        server.serve_until(os::processor::now_ns() + 500_000_000).unwrap();
        server
    });
    let Err(OpenOsaError::NotUp { why, .. }) = device.wait_until_up(Duration::MAX) else {
        panic!("it is halted");
    };
    assert_eq!(why, "this program has halted it");
    drop(serving.join().unwrap());
    let mut orphan = device_by_hand(&host, "TWO", Mac([2, 0, 0, 0, 0xb, 2]));
    let waiting = thread::spawn(move || orphan.wait_until_up(Duration::MAX));
    drop(host);
    let ended = waiting.join().unwrap();
    assert!(matches!(ended, Err(OpenOsaError::NotUp { .. })), "{ended:?}");
}

#[test]
fn server_that_sleeps_is_stopped_and_stays_stopped() {
    let host = Embedded::start(System::open()).unwrap();
    let mut server = adapter_by_hand(&host);
    let stopper = server.stopper();
    let serving = thread::spawn(move || {
        server.serve().unwrap();
        server.serve_until(u64::MAX).unwrap();
        server
    });
    stopper.clone().stop();
    let mut server = serving.join().unwrap();
    stopper.stop();
    server.serve().unwrap();
}

/// A wire that can be taken away.
struct Removable {
    wire: MemoryWire,
    is_gone: Arc<AtomicBool>,
}

impl Wire for Removable {
    fn capabilities(&self) -> Capabilities {
        self.wire.capabilities()
    }

    fn mac(&self) -> Mac {
        self.wire.mac()
    }

    fn add_address(&mut self, mac: Mac) -> io::Result<()> {
        match self.is_gone.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::NotFound.into()),
            false => self.wire.add_address(mac),
        }
    }

    fn remove_address(&mut self, mac: Mac) {
        self.wire.remove_address(mac);
    }

    fn receive(
        &mut self,
        now: u64,
        frames_max: usize,
        take: &mut dyn FnMut(Offload, &[u8]),
    ) -> io::Result<usize> {
        match self.is_gone.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::NotFound.into()),
            false => self.wire.receive(now, frames_max, take),
        }
    }

    fn send(&mut self, now: u64, frame: &FrameInPlace<'_>) -> Result<(), NotSent> {
        self.wire.send(now, frame)
    }

    fn flush(&mut self, now: u64) {
        self.wire.flush(now);
    }

    fn announce_sleep(&mut self) -> bool {
        self.wire.announce_sleep()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.wire.descriptor()
    }

    fn on_ready(&mut self) -> bool {
        self.wire.on_ready()
    }

    fn due(&self) -> Option<u64> {
        self.wire.due()
    }

    fn look(&mut self) -> (Carrier, bool) {
        match self.is_gone.load(Ordering::Relaxed) {
            true => (Carrier::Gone, false),
            false => self.wire.look(),
        }
    }

    fn counters(&self) -> WireCounters {
        self.wire.counters()
    }
}

#[test]
fn wire_that_is_gone_is_opened_again_and_devices_go_on_meanwhile() {
    let host = Embedded::start(System::open()).unwrap();
    let macs = [Mac([2, 0, 0, 0, 0xa, 1]), Mac([2, 0, 0, 0, 0xa, 2])];
    let removable = || {
        let is_gone = Arc::new(AtomicBool::new(false));
        let [one, other] = MemoryWire::pair(Conditions::default(), 7, macs).unwrap();
        (Removable { wire: one, is_gone: is_gone.clone() }, other, is_gone)
    };
    let mut options = ServerOptions::default();
    options.wait = Wait::Block;
    let (wire, _other, is_gone) = removable();
    let guest = Guest::attach_embedded(&host, "OSA1").unwrap();
    let mut server = Server::new(guest, Box::new(wire), &options).unwrap();
    // The opener waits in the middle of its work, as long as the test wants.
    let (asked, is_asked) = channel();
    let (give, given) = channel::<io::Result<Box<dyn Wire>>>();
    server
        .open_again_with(move || {
            asked.send(()).unwrap();
            given.recv().unwrap()
        })
        .unwrap();
    let stopper = server.stopper();
    let serving = thread::spawn(move || server.serve().unwrap());
    let one = stack(&host, "ONE", "OSA1", "10.1.0.1", Layer::Three);
    let third = stack(&host, "THIRD", "OSA1", "10.1.0.3", Layer::Three);
    assert!(is_asked.try_recv().is_err(), "it is there");
    is_gone.store(true, Ordering::Relaxed);
    is_asked.recv_timeout(PATIENCE).unwrap();
    transfer(&one, &third, "10.1.0.3", 300_000);
    // It is asked for again after a failure.
    give.send(Err(io::ErrorKind::NotFound.into())).unwrap();
    is_asked.recv_timeout(PATIENCE).unwrap();
    transfer(&third, &one, "10.1.0.1", 300_000);
    let (wire, other, _) = removable();
    let mut adapters = Adapters::default();
    adapters.serve(&host, "OSA2", Box::new(other));
    let far = stack(&host, "FAR", "OSA2", "10.1.0.2", Layer::Three);
    give.send(Ok(Box::new(wire))).unwrap();
    transfer(&one, &far, "10.1.0.2", 300_000);
    transfer(&far, &third, "10.1.0.3", 300_000);
    assert!(is_asked.try_recv().is_err(), "there is a wire");
    stopper.stop();
    serving.join().unwrap();
}

/// A stack with input queues by workload.
fn sorting_stack(host: &Embedded, name: &str, adapter: &str, address: &str) -> Stack {
    let guest = Guest::attach_embedded(host, name).unwrap();
    let mut options = OsaOptions::default();
    (options.workload_queues, options.wait) = (true, Wait::Block);
    let mut osa = Osa::open(guest, adapter, &options).unwrap();
    osa.add_address(address.parse().unwrap(), 24);
    osa.wait_until_up(PATIENCE).unwrap();
    let links = Links { devices: vec![osa], ..Links::default() };
    Stack::at(links, &Routing::default(), &StackOptions::default()).unwrap()
}

#[test]
fn stream_moves_to_the_queue_of_bulk_data_and_nothing_else_does() {
    let host = Embedded::start(System::open()).unwrap();
    let rate = std::num::NonZeroU64::new(1_000_000_000);
    let _adapters = adapters(&host, Conditions { mtu: 1500, rate, ..Conditions::default() });
    let one = sorting_stack(&host, "ONE", "OSA1", "10.1.0.1");
    let other = stack(&host, "OTHER", "OSA2", "10.1.0.2", Layer::Three);
    // Beside it a session.
    let listener = TcpListener::bind(&one, ("10.1.0.1", 23)).unwrap();
    let mut session = TcpStream::connect(&other, ("10.1.0.1", 23)).unwrap();
    let (mut screen, _) = listener.accept().unwrap();
    let sessions = thread::spawn(move || {
        let mut byte = [0];
        while screen.read(&mut byte).unwrap() == 1 {
            screen.write_all(&byte).unwrap();
        }
    });
    let inputs = |stack: &Stack| stack.devices().unwrap().remove(0).inputs;
    for round in 1..=3 {
        transfer(&other, &one, "10.1.0.1", 20_000_000);
        for key in 0..50 {
            session.write_all(&[key]).unwrap();
            let mut echo = [0];
            session.read_exact(&mut echo).unwrap();
            assert_eq!(echo, [key]);
        }
        let queues = inputs(&one);
        // It takes some 40 ms to be noticed, of 170.
        assert!(queues[1].packets > 3000 * round, "{queues:?}");
        assert!(queues[0].packets > 100, "{queues:?}");
        assert_eq!(queues[2..].iter().map(|queue| queue.packets).sum::<u64>(), 0);
    }
    assert_eq!(one.counter(siga::tcpip::Counter::OutOfOrder), 0);
    drop(session);
    sessions.join().unwrap();
}

/// A stack that serves the adapter that it is at.
fn stack_with_adapter(
    host: &Embedded,
    names: [&str; 2],
    wire: impl Wire + 'static,
    wait: Wait,
) -> Stack {
    stack_with_adapter_of(host, names, wire, wait, Moderation::NONE)
}

fn stack_with_adapter_of(
    host: &Embedded,
    names: [&str; 2],
    wire: impl Wire + 'static,
    wait: Wait,
    moderation: Moderation,
) -> Stack {
    let [name, adapter] = names;
    let mut options = ServerOptions::default();
    options.moderation = moderation;
    let server = Guest::attach_embedded(host, adapter).unwrap();
    let server = Server::new(server, Box::new(wire), &options).unwrap();
    let mut options = OsaOptions::default();
    options.wait = wait;
    let guest = Guest::attach_embedded(host, name).unwrap();
    let mut osa = Osa::open(guest, adapter, &options).unwrap();
    osa.serve_inline(server).unwrap();
    osa.add_address(format!("10.1.0.{}", &adapter[3..]).parse().unwrap(), 24);
    osa.wait_until_up(PATIENCE).unwrap();
    assert_eq!(osa.inline_server().map(|server| server.devices()), Some(1));
    let links = Links { devices: vec![osa], ..Links::default() };
    Stack::at(links, &Routing::default(), &StackOptions::default()).unwrap()
}

#[test]
fn adapters_are_served_by_the_stacks_that_are_at_them() {
    for wait in [Wait::Block, Wait::Adaptive, Wait::Spin] {
        let host = Embedded::start(System::open()).unwrap();
        let macs = [Mac([2, 0, 0, 0, 0xa, 1]), Mac([2, 0, 0, 0, 0xa, 2])];
        let conditions = Conditions { mtu: 8992, ..Conditions::default() };
        let [one, other] = MemoryWire::pair(conditions, 7, macs).unwrap();
        let one = stack_with_adapter(&host, ["ONE", "OSA1"], one, wait);
        let other = stack_with_adapter(&host, ["OTHER", "OSA2"], other, wait);
        transfer(&one, &other, "10.1.0.2", 3_000_000);
        transfer(&other, &one, "10.1.0.1", 3_000_000);
        // Another guest of the adapter is served while somebody waits at the stack.
        let third = device(&host, "THIRD", "OSA1", "10.1.0.3", Layer::Three);
        drop(third);
    }
}

/// The two ends of a path between guests of these names.
fn ends_of_path(host: &Embedded, names: [&str; 2]) -> [Path; 2] {
    let [one, other] = names.map(|name| Guest::attach_embedded(host, name).unwrap());
    let options = PathOptions { window_bytes: 2 << 20, ..PathOptions::default() };
    thread::scope(|scope| {
        let accepted = scope.spawn(move || other.accept_with(&options).unwrap());
        let connected = one.connect(names[1], &options).unwrap();
        [connected, accepted.join().unwrap()]
    })
}

#[test]
fn cable_joins_adapters_that_know_nothing_of_each_other() {
    let rate = std::num::NonZeroU64::new(1_000_000_000);
    let timed = CableOptions { rate, queue_bytes: 8 << 10, ..CableOptions::default() };
    let plain = CableOptions { mtu: 8992, ..CableOptions::default() };
    let cases =
        [(plain, Wait::Block), (plain, Wait::Spin), (timed, Wait::Adaptive), (timed, Wait::Block)];
    for (options, wait) in cases {
        let host = Embedded::start(System::open()).unwrap();
        let macs = [Mac([2, 0, 0, 0, 0xa, 1]), Mac([2, 0, 0, 0, 0xa, 2])];
        let [one, other] = ends_of_path(&host, ["CABLE1", "CABLE2"]);
        let one = stack_with_adapter(&host, ["ONE", "OSA1"], cable(one, macs[0], options), wait);
        let other =
            stack_with_adapter(&host, ["OTHER", "OSA2"], cable(other, macs[1], options), wait);
        transfer(&one, &other, "10.1.0.2", 3_000_000);
        transfer(&other, &one, "10.1.0.1", 3_000_000);
        let served = one.devices().unwrap()[0].served.unwrap();
        assert!(
            served.wire.bytes_sent > 3_000_000 && served.wire.dropped_unsent == 0,
            "{served:?}"
        );
        assert_eq!((served.drops.all(), served.device_drops.all()), (0, 0));
        // The other end is gone, and with it the carrier.
        drop(other);
        let begun = Instant::now();
        while !matches!(one.devices().unwrap()[0].state, OsaState::NoCarrier(_)) {
            assert!(begun.elapsed() < PATIENCE, "{:?}", one.devices().unwrap()[0].state);
            one.wait(Duration::from_millis(10)).unwrap();
        }
        if wait == Wait::Block {
            // Nobody looks again and again for what will never come.
            let polls = |one: &Stack| one.devices().unwrap()[0].counters.polls;
            let before = polls(&one);
            one.wait(Duration::from_millis(300)).unwrap();
            assert!(polls(&one) - before < 100, "{} polls", polls(&one) - before);
        }
    }
}

#[test]
fn stack_whose_own_adapter_rests_is_told_of_what_comes_behind_a_stream() {
    let rate = std::num::NonZeroU64::new(1_000_000_000);
    let options = CableOptions { rate, queue_bytes: 8 << 10, ..CableOptions::default() };
    let host = Embedded::start(System::open()).unwrap();
    let macs = [Mac([2, 0, 0, 0, 0xa, 1]), Mac([2, 0, 0, 0, 0xa, 2])];
    let [one, other] = ends_of_path(&host, ["CABLE1", "CABLE2"]);
    let stack = |names, end, mac| {
        let (cable, moderation) = (cable(end, mac, options), Moderation::default());
        stack_with_adapter_of(&host, names, cable, Wait::Block, moderation)
    };
    let one = stack(["ONE", "OSA1"], one, macs[0]);
    let other = stack(["OTHER", "OSA2"], other, macs[1]);
    for _ in 0..3 {
        // Dense, so that the adapters rest; and then now and then, so that they sleep.
        transfer(&one, &other, "10.1.0.2", 3_000_000);
        for _ in 0..20 {
            transfer(&other, &one, "10.1.0.1", 100);
        }
    }
}
