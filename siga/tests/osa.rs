//! Guests at adapters: stacks over a wire in memory, through hosts, servers and devices as programs have them.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use net::lan::frame::Mac;
use net::wire::Conditions;
use siga::host::{Embedded, System};
use siga::osa::{
    Layer, MemoryWire, OpenOsaError, Osa, OsaOptions, OsaState, Refused, Request, Server,
    ServerOptions, Wire,
};
use siga::tcpip::{Links, Routing, Stack, StackOptions, TcpListener, TcpStream, UdpSocket};
use siga::{Guest, Wait};

const PATIENCE: Duration = Duration::from_secs(30);

/// Adapters that are served, each by a thread, until this is dropped.
struct Adapters {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Adapters {
    fn new() -> Adapters {
        Adapters { is_over: Arc::default(), threads: Vec::new() }
    }

    fn serve(&mut self, host: &Embedded, name: &str, wire: Box<dyn Wire>) {
        let guest = Guest::attach_embedded(host, name).unwrap();
        let is_over = self.is_over.clone();
        let (ready, is_ready) = std::sync::mpsc::channel();
        self.threads.push(thread::spawn(move || {
            let mut options = ServerOptions::default();
            options.wait = Wait::Block;
            let mut server = Server::new(guest, wire, &options).unwrap();
            ready.send(()).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                server.serve_until(os::processor::now_ns() + 10_000_000).unwrap();
            }
        }));
        is_ready.recv().unwrap();
    }
}

impl Drop for Adapters {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking());
        }
    }
}

/// Two adapters at the ends of a wire.
fn adapters(host: &Embedded, conditions: Conditions) -> Adapters {
    let macs = [Mac([2, 0, 0, 0, 0xa, 1]), Mac([2, 0, 0, 0, 0xa, 2])];
    let [one, other] = MemoryWire::pair(conditions, 7, macs).unwrap();
    let mut adapters = Adapters::new();
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
