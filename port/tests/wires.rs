//! Wires at interfaces of networks that the tests make: what comes, what does not come, and what stays behind.

#[path = "common/mod.rs"]
mod common;

use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

use net::lan::frame::{ETHERNET_BYTES, Mac, destination};
use net::lan::link::FrameInPlace;
use net::lan::offload::{Checksum, Kind, Offload, Segmentation, complete_checksum};
use net::osa::wire::{Carrier, NotSent, Wire};
use os::foreign::Foreign;
use os::interface::Interface;
use os::offload::{switch_offloads_off, switch_tags_off};
use os::poller::{wait_any, wait_readable};
use os::processor::now_ns;
use os::storage::{Borrowed, Storage, StorageOptions};
use os::xdp::{Mode, XdpOptions};
use port::link::{Address, LinkReport, Links};
use port::wires::{MACVTAP_ADDRESSES_MAX, OpenWireError, WireKind, WireOptions, XdpWire, open};

use common::{
    Cable, HERE, HERE_IP, HERE_MAC, THERE, THERE_IP, THERE_MAC, in_network, ip, neighbour,
};

/// The adapter, a guest of it, and a group.
const ADAPTER: Mac = Mac([2, 0, 0, 0, 1, 9]);
const ADAPTER_IP: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 9);
const GUEST: Mac = Mac([2, 0, 0, 0, 1, 10]);
const GUEST_IP: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 10);
const GROUP: Mac = Mac([1, 0, 0x5e, 1, 2, 3]);
const GROUP_IP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const ALL_IP: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 255);

const PORT: u16 = 7000;

/// The time after which something is taken to hang.
const LONG: Duration = Duration::from_secs(10);

/// The time in which what is not to come would have come.
const SHORT: Duration = Duration::from_millis(200);

/// How an `AF_XDP` wire receives and sends.
#[derive(Clone, Copy, Debug)]
struct How {
    mode: Mode,
    by_ring: Option<bool>,
}

const NATIVE: How = How { mode: Mode::Native, by_ring: None };
const GENERIC: How = How { mode: Mode::Generic, ..NATIVE };
/// As with a network card that reads the memory itself, of which a cable has none.
const BY_RING: How = How { by_ring: Some(true), ..NATIVE };

/// The wires that stand beside a kernel.
const BESIDE: [(WireKind, How); 4] = [
    (WireKind::Xdp, NATIVE),
    (WireKind::Xdp, GENERIC),
    (WireKind::Xdp, BY_RING),
    (WireKind::Macvtap, NATIVE),
];

fn options(How { mode, by_ring }: How) -> WireOptions {
    let xdp = XdpOptions { mode, receive_frames: 256, send_frames: 64 };
    WireOptions { mac: Some(ADAPTER), xdp, sends_by_ring: by_ring, ..WireOptions::default() }
}

/// A cable at whose other end the kernel knows where the adapter and its guest are.
fn cable(cable: Cable) -> Cable {
    cable.inside(|| {
        for (ip, mac) in [(ADAPTER_IP, ADAPTER), (GUEST_IP, GUEST)] {
            neighbour(THERE, ip, mac);
        }
    });
    cable
}

fn socket_there(cable: &Cable) -> UdpSocket {
    cable.inside(socket)
}

/// A socket for everything that comes to a port.
fn socket() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap();
    socket.set_broadcast(true).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket
}

/// Opens a wire; none, and the reason is printed, if this machine has no such wire.
fn opened(kind: WireKind, mode: How) -> Option<Box<dyn Wire>> {
    match open(kind, HERE, &options(mode)) {
        Ok(wire) => Some(wire),
        Err(error) => {
            let is_missing = match &error {
                OpenWireError::Xdp(error) => error.to_string().contains("must have CAP_"),
                OpenWireError::OwnNetwork(_) => true,
                _ => false,
            };
            assert!(is_missing, "{kind} {mode:?}: {error}");
            eprintln!("SKIPPED: a wire of kind {kind}: {error}");
            None
        }
    }
}

/// What a wire has received.
type Frames = Vec<(Offload, Vec<u8>)>;

/// Receives until `is_done`, or for a time.
fn receive_until(
    wire: &mut dyn Wire,
    time: Duration,
    mut is_done: impl FnMut(&Frames) -> bool,
) -> Frames {
    let mut frames = Frames::new();
    let end = now_ns() + time.as_nanos() as u64;
    while !is_done(&frames) && now_ns() < end {
        let descriptor = wire.descriptor().unwrap();
        wait_readable(descriptor, Some(Duration::from_millis(20))).unwrap();
        wire.receive(now_ns(), 32, &mut |offload, frame| frames.push((offload, frame.to_vec())))
            .unwrap();
    }
    frames
}

/// The data of a datagram to the port, and its VLAN; none if the frame is something else.
fn datagram(offload: Offload, frame: &[u8]) -> Option<Vec<u8>> {
    let is_udp = frame.get(12..14)? == [8, 0] && *frame.get(23)? == 17;
    let is_to_port = frame.get(36..38)? == PORT.to_be_bytes();
    let mut whole = frame.to_vec();
    complete_checksum(offload.checksum, &mut whole);
    let bytes = usize::from(u16::from_be_bytes([*frame.get(38)?, *frame.get(39)?]));
    (is_udp && is_to_port).then(|| frame.get(42..34 + bytes).map(<[u8]>::to_vec))?
}

fn datagrams(frames: &Frames, to: Mac) -> Vec<Vec<u8>> {
    let ours = frames.iter().filter(|(_, frame)| destination(frame) == Some(to));
    ours.filter_map(|(offload, frame)| datagram(*offload, frame)).collect()
}

/// A frame with a datagram of `data` from the adapter.
fn frame_to(to: Mac, to_ip: Ipv4Addr, data: &[u8]) -> Vec<u8> {
    let mut frame = [&to.0[..], &ADAPTER.0, &[8, 0]].concat();
    let ip_bytes = (28 + data.len()) as u16;
    frame.extend([0x45, 0]);
    frame.extend(ip_bytes.to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend(ADAPTER_IP.octets());
    frame.extend(to_ip.octets());
    let sum = !sum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.extend(PORT.to_be_bytes());
    frame.extend(PORT.to_be_bytes());
    frame.extend((8 + data.len() as u16).to_be_bytes());
    // Without a checksum, which UDP over IPv4 allows.
    frame.extend([0, 0]);
    frame.extend(data);
    frame
}

fn send(wire: &mut dyn Wire, frame: &[u8]) -> Result<(), NotSent> {
    let sent =
        wire.send(now_ns(), &FrameInPlace { offload: Offload::NONE, start: frame, rest: None });
    wire.flush(now_ns());
    sent
}

fn numbered(number: u32, bytes: usize) -> Vec<u8> {
    let mut data: Vec<u8> = (0..bytes).map(|at| (at as u32 + number) as u8).collect();
    data[..4].copy_from_slice(&number.to_be_bytes());
    data
}

#[test]
fn frames_to_the_adapter_come_whole_and_in_order_and_the_kernel_goes_on() {
    for (kind, mode) in BESIDE {
        in_network("frames to an adapter", || {
            let cable = cable(Cable::make(1500));
            let Some(mut wire) = opened(kind, mode) else { return };
            assert_eq!(
                (wire.look().0, wire.mac(), wire.capabilities().mtu),
                (Carrier::Up, ADAPTER, 1500)
            );
            let (here, there) = (socket(), socket_there(&cable));
            let mut expected = Vec::new();
            for number in 0..100 {
                expected.push(numbered(number, 4 + number as usize * 14));
                there.send_to(expected.last().unwrap(), (ADAPTER_IP, PORT)).unwrap();
                // Beside them the two kernels talk.
                let mut buffer = [0; 2000];
                there.send_to(b"question", (HERE_IP, PORT)).unwrap();
                let (bytes, from) = here.recv_from(&mut buffer).unwrap();
                assert_eq!((&buffer[..bytes], from), (&b"question"[..], (THERE_IP, PORT).into()));
                here.send_to(b"answer", from).unwrap();
                let (bytes, _) = there.recv_from(&mut buffer).unwrap();
                assert_eq!(&buffer[..bytes], b"answer");
            }
            let frames =
                receive_until(&mut *wire, LONG, |frames| datagrams(frames, ADAPTER).len() == 100);
            assert!(datagrams(&frames, ADAPTER) == expected, "{kind} {mode:?}");
            assert!(
                datagrams(&frames, HERE_MAC).is_empty(),
                "{kind} {mode:?}: they are the kernel's"
            );
            let counters = wire.counters();
            assert_eq!(counters.frames_received as usize, frames.len());
            assert_eq!((counters.dropped_bad, counters.dropped_behind), (0, 0));
        });
    }
}

#[test]
fn frames_to_groups_reach_the_adapter_and_the_kernel() {
    for (kind, mode) in BESIDE {
        in_network("frames to groups", || {
            let cable = cable(Cable::make(1500));
            let Some(mut wire) = opened(kind, mode) else { return };
            let (here, there) = (socket(), socket_there(&cable));
            here.join_multicast_v4(&GROUP_IP, &HERE_IP).unwrap();
            let mut buffer = [0; 100];
            let mut exchange = |wire: &mut dyn Wire, text: &[u8]| {
                for to in [ALL_IP, GROUP_IP] {
                    there.send_to(text, (to, PORT)).unwrap();
                    let (bytes, _) = here.recv_from(&mut buffer).unwrap();
                    assert_eq!(&buffer[..bytes], text);
                }
                there.send_to(b"end", (ADAPTER_IP, PORT)).unwrap();
                let mut frames =
                    receive_until(wire, LONG, |frames| !datagrams(frames, ADAPTER).is_empty());
                frames.extend(receive_until(wire, SHORT, |_| false));
                (datagrams(&frames, Mac::BROADCAST), datagrams(&frames, GROUP))
            };
            assert_eq!(
                exchange(&mut *wire, b"one"),
                (vec![b"one".to_vec()], vec![]),
                "{kind} {mode:?}"
            );
            wire.add_address(GROUP).unwrap();
            let both = (vec![b"two".to_vec()], vec![b"two".to_vec()]);
            assert_eq!(exchange(&mut *wire, b"two"), both, "{kind} {mode:?}");
            wire.remove_address(GROUP);
            assert_eq!(exchange(&mut *wire, b"three"), (vec![b"three".to_vec()], vec![]));
        });
    }
}

#[test]
fn address_of_a_guest_is_added_and_removed() {
    for (kind, mode) in BESIDE {
        in_network("addresses of guests", || {
            let cable = cable(Cable::make(1500));
            let Some(mut wire) = opened(kind, mode) else { return };
            let there = socket_there(&cable);
            let exchange = |wire: &mut dyn Wire| {
                there.send_to(b"guest", (GUEST_IP, PORT)).unwrap();
                there.send_to(b"all", (ALL_IP, PORT)).unwrap();
                let frames = receive_until(wire, SHORT, |_| false);
                [GUEST, Mac::BROADCAST].map(|to| datagrams(&frames, to).len())
            };
            assert_eq!(exchange(&mut *wire), [0, 1], "{kind} {mode:?}");
            wire.add_address(GUEST).unwrap();
            wire.add_address(GUEST).unwrap();
            assert_eq!(exchange(&mut *wire), [1, 1], "{kind} {mode:?}");
            // A guest's frame to all is not received by its own adapter.
            let mut frame = frame_to(Mac::BROADCAST, ALL_IP, b"from a guest");
            frame[6..12].copy_from_slice(&GUEST.0);
            send(&mut *wire, &frame).unwrap();
            let mut buffer = [0; 100];
            // The kernel there also has what it has sent to all.
            let heard = (0..3).any(|_| {
                let (bytes, _) = there.recv_from(&mut buffer).unwrap();
                &buffer[..bytes] == b"from a guest"
            });
            assert!(heard, "{kind} {mode:?}");
            assert!(
                datagrams(&receive_until(&mut *wire, SHORT, |_| false), Mac::BROADCAST).is_empty()
            );
            wire.remove_address(GUEST);
            assert_eq!(exchange(&mut *wire), [0, 1], "{kind} {mode:?}");
            let dropped = wire.counters().dropped_behind;
            assert_eq!(dropped, 0);
        });
    }
}

#[test]
fn macvtap_wire_has_a_bounded_number_of_addresses() {
    in_network("many addresses", || {
        let cable = cable(Cable::make(1500));
        let Some(mut wire) = opened(WireKind::Macvtap, NATIVE) else { return };
        let guest = |number: usize| Mac([2, 0, 0, 0, 2, number as u8]);
        for number in 1..MACVTAP_ADDRESSES_MAX {
            wire.add_address(guest(number)).unwrap();
        }
        let refused = wire.add_address(guest(MACVTAP_ADDRESSES_MAX)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::QuotaExceeded);
        wire.remove_address(guest(1));
        wire.add_address(guest(MACVTAP_ADDRESSES_MAX)).unwrap();
        let there = socket_there(&cable);
        cable.inside(|| neighbour(THERE, GUEST_IP, guest(MACVTAP_ADDRESSES_MAX)));
        there.send_to(b"last", (GUEST_IP, PORT)).unwrap();
        let last = |frames: &Frames| datagrams(frames, guest(MACVTAP_ADDRESSES_MAX)).len() == 1;
        assert!(last(&receive_until(&mut *wire, LONG, last)));
        let _ = wire.look();
    });
}

#[test]
fn frames_that_are_sent_arrive() {
    for (kind, mode) in BESIDE {
        in_network("frames that are sent", || {
            let cable = cable(Cable::make(1500));
            let Some(mut wire) = opened(kind, mode) else { return };
            let there = socket_there(&cable);
            let mut buffer = [0; 2000];
            for number in 0..300 {
                let data = numbered(number, 4 + number as usize * 4);
                send(&mut *wire, &frame_to(THERE_MAC, THERE_IP, &data)).unwrap();
                let (bytes, from) = there.recv_from(&mut buffer).unwrap();
                assert_eq!((&buffer[..bytes], from), (&data[..], (ADAPTER_IP, PORT).into()));
            }
            let counters = wire.counters();
            assert_eq!((counters.frames_sent, counters.dropped_unsent), (300, 0));
            let too_long = frame_to(THERE_MAC, THERE_IP, &[0; 1473]);
            if kind == WireKind::Xdp {
                assert_eq!(send(&mut *wire, &too_long), Err(NotSent::Dropped));
            }
            assert_eq!(send(&mut *wire, &too_long[..13]), Err(NotSent::Dropped));
            // An interface that is down takes nothing, and up again it takes everything.
            let set = |state| {
                assert!(
                    Command::new("ip")
                        .args(["link", "set", HERE, state])
                        .status()
                        .unwrap()
                        .success()
                );
            };
            set("down");
            assert_eq!(wire.look(), (Carrier::Down, false));
            assert_eq!(
                send(&mut *wire, &frame_to(THERE_MAC, THERE_IP, b"lost")),
                Err(NotSent::Dropped)
            );
            ip(&format!("link set {HERE} up"));
            let is_up = |wire: &mut dyn Wire| wire.look().0 == Carrier::Up;
            assert!(happens(|| is_up(&mut *wire)));
            assert!(happens(|| {
                let _ = send(&mut *wire, &frame_to(THERE_MAC, THERE_IP, b"again"));
                there.set_read_timeout(Some(SHORT)).unwrap();
                there.recv_from(&mut buffer).is_ok_and(|(bytes, _)| &buffer[..bytes] == b"again")
            }));
        });
    }
}

/// Returns true if something is so before long.
fn happens(mut is_so: impl FnMut() -> bool) -> bool {
    let end = now_ns() + LONG.as_nanos() as u64;
    while now_ns() < end {
        if is_so() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

#[test]
fn interface_that_is_down_is_left_alone_until_it_is_up() {
    for (kind, mode) in BESIDE {
        in_network("an interface that is down", || {
            let cable = cable(Cable::make(1500));
            let Some(mut wire) = opened(kind, mode) else { return };
            let there = socket_there(&cable);
            // Frames that were not flushed, and a change that nobody has asked for.
            let frame = frame_to(THERE_MAC, THERE_IP, b"early");
            let frame = FrameInPlace { offload: Offload::NONE, start: &frame, rest: None };
            let _ = wire.send(now_ns(), &frame);
            ip(&format!("link set {HERE} mtu 1400"));
            ip(&format!("link set {HERE} down"));
            wire.flush(now_ns());
            assert_eq!(wire.look(), (Carrier::Down, true), "{kind} {mode:?}");
            assert_eq!(wire.look(), (Carrier::Down, false));
            let calls = wire.counters().calls;
            for _ in 0..100 {
                let none = wire.receive(now_ns(), 32, &mut |_, _| panic!("nothing comes"));
                assert_eq!(none.unwrap(), 0);
                let lost = frame_to(THERE_MAC, THERE_IP, b"lost");
                assert_eq!(send(&mut *wire, &lost), Err(NotSent::Dropped));
                assert_eq!(wire.due(), None);
            }
            assert_eq!(wire.counters().calls, calls, "{kind} {mode:?}");
            let is_readable =
                |wire: &dyn Wire| wait_any([wire.descriptor()], Some(Duration::ZERO)).unwrap()[0];
            // What the kernel has said of the way down.
            while wire.on_ready() {
                assert_eq!(wire.look(), (Carrier::Down, false));
            }
            assert!(!is_readable(&*wire), "{kind} {mode:?}");
            ip(&format!("link set {HERE} up"));
            while wire.look().0 != Carrier::Up {
                wait_readable(wire.descriptor().unwrap(), Some(LONG)).unwrap();
                assert!(wire.on_ready(), "{kind} {mode:?}: no news");
            }
            assert!(!wire.on_ready());
            assert!(happens(|| {
                there.send_to(b"again", (ADAPTER_IP, PORT)).unwrap();
                let frames = receive_until(&mut *wire, SHORT, |frames| !frames.is_empty());
                datagrams(&frames, ADAPTER).iter().any(|data| data == b"again")
            }));
            let mut buffer = [0; 100];
            assert!(happens(|| {
                let _ = send(&mut *wire, &frame_to(THERE_MAC, THERE_IP, b"back"));
                there.set_read_timeout(Some(SHORT)).unwrap();
                there.recv_from(&mut buffer).is_ok_and(|(bytes, _)| &buffer[..bytes] == b"back")
            }));
        });
    }
}

#[test]
fn long_frames_cross_in_several_pieces() {
    for (kind, mode) in BESIDE {
        in_network("long frames", || {
            let cable = cable(Cable::make(9000));
            let Some(mut wire) = opened(kind, mode) else { return };
            assert_eq!(wire.capabilities().mtu, 9000, "{kind} {mode:?}");
            let there = socket_there(&cable);
            let mut buffer = [0; 9000];
            // Around the frames of the memory, of which 3840 bytes are for what is received.
            let lengths = [100, 3798, 3799, 4054, 4055, 7638, 7639, 8150, 8151, 8972];
            let mut expected = Vec::new();
            for (number, bytes) in (0..).zip(lengths) {
                let data = numbered(number, bytes);
                there.send_to(&data, (ADAPTER_IP, PORT)).unwrap();
                send(&mut *wire, &frame_to(THERE_MAC, THERE_IP, &data)).unwrap();
                let (bytes, _) = there.recv_from(&mut buffer).unwrap();
                assert!(buffer[..bytes] == data, "{kind} {mode:?}: {bytes} bytes sent");
                expected.push(data);
            }
            let frames =
                receive_until(&mut *wire, LONG, |frames| datagrams(frames, ADAPTER).len() == 10);
            let found = datagrams(&frames, ADAPTER);
            let found_bytes: Vec<_> = found.iter().map(Vec::len).collect();
            assert_eq!(found_bytes, lengths, "{kind} {mode:?}");
            assert!(found == expected, "{kind} {mode:?}");
        });
    }
}

#[test]
fn full_wire_says_so_and_takes_frames_again() {
    in_network("a full wire", || {
        let cable = cable(Cable::make(1500));
        let Some(mut wire) = opened(WireKind::Xdp, BY_RING) else { return };
        let there = socket_there(&cable);
        let mut buffer = [0; 100];
        for round in 0..10 {
            let mut sent = 0;
            loop {
                let frame = frame_to(THERE_MAC, THERE_IP, &numbered(sent, 40));
                let frame = FrameInPlace { offload: Offload::NONE, start: &frame, rest: None };
                match wire.send(now_ns(), &frame) {
                    Ok(()) => sent += 1,
                    Err(error) => {
                        assert_eq!(error, NotSent::Full);
                        break;
                    }
                }
            }
            assert_eq!(sent, 64, "round {round}: as many frames as there are to send");
            assert!(wire.due().is_some());
            wire.flush(now_ns());
            for number in 0..sent {
                let (bytes, _) = there.recv_from(&mut buffer).unwrap();
                assert!(buffer[..bytes] == numbered(number, 40));
            }
            assert!(happens(|| {
                wire.flush(now_ns());
                wire.due().is_none()
            }));
        }
        assert_eq!(wire.counters().dropped_unsent, 0);
    });
}

#[test]
fn burst_that_is_too_long_is_counted_and_what_follows_comes() {
    in_network("a burst", || {
        let cable = cable(Cable::make(1500));
        let Some(mut wire) = opened(WireKind::Xdp, BY_RING) else { return };
        let there = socket_there(&cable);
        let burst = 600;
        for number in 0..burst {
            there.send_to(&numbered(number, 40), (ADAPTER_IP, PORT)).unwrap();
        }
        std::thread::sleep(SHORT);
        let frames = receive_until(&mut *wire, SHORT, |_| false);
        let found = datagrams(&frames, ADAPTER).len() as u64;
        assert_eq!(
            found + wire.counters().dropped_behind,
            u64::from(burst),
            "{:?}",
            wire.counters()
        );
        assert!(found >= 256, "{found}");
        there.send_to(b"after", (ADAPTER_IP, PORT)).unwrap();
        let frames = receive_until(&mut *wire, LONG, |frames| !frames.is_empty());
        assert_eq!(datagrams(&frames, ADAPTER), [b"after"]);
    });
}

#[test]
fn interface_is_followed_when_it_is_renamed_and_missed_when_it_is_removed() {
    for (kind, mode) in BESIDE {
        in_network("a renamed interface", || {
            let _cable = cable(Cable::make(1500));
            let Some(mut wire) = opened(kind, mode) else { return };
            ip(&format!("link set {HERE} down"));
            ip(&format!("link set {HERE} name other0"));
            ip("link set other0 up");
            assert!(happens(|| wire.look().0 == Carrier::Up));
            assert!(!wire.look().1);
            ip("link set other0 mtu 1400");
            assert_eq!((wire.look(), wire.capabilities().mtu), ((Carrier::Up, true), 1400));
            ip("link del other0");
            assert_eq!(wire.look().0, Carrier::Gone);
            assert!(send(&mut *wire, &frame_to(THERE_MAC, THERE_IP, b"lost")).is_err());
            let _ = wire.receive(now_ns(), 32, &mut |_, _| panic!("nothing comes"));
            assert!(wire.add_address(GUEST).is_err());
            wire.remove_address(GUEST);
        });
    }
}

/// The state of the interface that a wire must not change.
fn report() -> LinkReport {
    let report = Links::open().unwrap().report(HERE).unwrap();
    LinkReport { received_dropped: 0, ..report }
}

/// Returns true if an adapter with the same address can be opened, as far as this machine has such a wire, and nothing is different from
/// before.
fn is_as_before(before: &LinkReport) -> bool {
    drop(opened(WireKind::Macvtap, NATIVE));
    report() == *before
}

#[test]
fn nothing_stays_of_a_wire_that_is_dropped() {
    for (kind, mode) in BESIDE {
        in_network("a wire that is dropped", || {
            let _cable = cable(Cable::make(1500));
            let before = report();
            assert_eq!((before.has_xdp, before.promiscuity), (false, 0));
            let Some(mut wire) = opened(kind, mode) else { return };
            wire.add_address(GUEST).unwrap();
            wire.add_address(GROUP).unwrap();
            assert_eq!(report().has_xdp, kind == WireKind::Xdp);
            assert_ne!(report(), before);
            drop(wire);
            assert!(happens(|| report() == before), "{:?}", report());
            assert!(is_as_before(&before));
        });
    }
}

/// The variable of the environment that has a child of these tests hold a wire.
const HOLD: &str = "SIGA_TEST_HOLD_WIRE";

/// Not a test of its own: a child that holds a wire until it is killed.
#[test]
fn child_holds_a_wire() {
    let Some(which) = std::env::var(HOLD).ok().and_then(|which| which.parse::<usize>().ok()) else {
        return;
    };
    let (kind, mode) = BESIDE[which];
    let mut wire = open(kind, HERE, &options(mode)).unwrap();
    wire.add_address(GUEST).unwrap();
    wire.add_address(GROUP).unwrap();
    println!("\nopened");
    std::thread::sleep(LONG);
}

#[test]
fn nothing_stays_of_a_wire_whose_process_is_killed() {
    for (which, (kind, mode)) in BESIDE.into_iter().enumerate() {
        in_network("a wire whose process is killed", || {
            let _cable = cable(Cable::make(1500));
            let before = report();
            if opened(kind, mode).is_none() {
                return;
            }
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "child_holds_a_wire", "--nocapture"])
                .env(HOLD, which.to_string())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            assert!(lines.any(|line| line.unwrap() == "opened"), "{kind} {mode:?}");
            assert_eq!(report().has_xdp, kind == WireKind::Xdp);
            assert_ne!(report(), before);
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(happens(|| report() == before), "{kind} {mode:?}: {:?}", report());
            assert!(is_as_before(&before));
        });
    }
}

#[test]
fn address_that_another_macvtap_has_is_an_error_that_says_so() {
    in_network("an address that is taken", || {
        let _cable = cable(Cable::make(1500));
        let Some(_wire) = opened(WireKind::Macvtap, NATIVE) else { return };
        let error = open(WireKind::Macvtap, HERE, &options(NATIVE)).err().unwrap();
        let advice = ": no other macvtap or macvlan may have the MAC address";
        assert!(error.to_string().ends_with(advice), "{error}");
    });
}

#[test]
fn program_that_is_on_the_interface_is_not_replaced() {
    in_network("an interface with a program", || {
        let _cable = cable(Cable::make(1500));
        for mode in [Mode::Native, Mode::Generic] {
            let Some(_wire) = opened(WireKind::Xdp, How { mode, ..NATIVE }) else { return };
            for other in [Mode::Native, Mode::Generic] {
                let error = open(WireKind::Xdp, HERE, &options(How { mode: other, ..NATIVE }))
                    .err()
                    .unwrap();
                let expected = format!(
                    "there is an XDP program on {HERE} already: must be taken off first (`ip link set {HERE} xdp off`)"
                );
                assert_eq!(error.to_string(), expected);
            }
            assert!(report().has_xdp);
        }
        assert!(happens(|| !report().has_xdp));
        // The kernel's own address is not the adapter's.
        for kind in [WireKind::Xdp, WireKind::Macvtap] {
            let options = WireOptions { mac: Some(HERE_MAC), ..WireOptions::default() };
            let error = open(kind, HERE, &options).err().unwrap();
            assert!(matches!(error, OpenWireError::Mac { .. }), "{error}");
        }
    });
}

#[test]
fn interface_with_several_queues_is_received_from_all() {
    in_network("several queues", || {
        let cable = cable(Cable::with_offloads(1500, 4));
        cable.inside(|| switch_offloads_off(THERE).unwrap());
        assert_eq!(Interface::find(HERE).unwrap().receive_queues(), 4);
        let Some(mut wire) = opened(WireKind::Xdp, BY_RING) else { return };
        // Connections are spread over the queues.
        cable.inside(|| {
            for number in 0..64 {
                let socket = UdpSocket::bind((THERE_IP, 0)).unwrap();
                socket.send_to(&numbered(number, 40), (ADAPTER_IP, PORT)).unwrap();
            }
        });
        let frames =
            receive_until(&mut *wire, LONG, |frames| datagrams(frames, ADAPTER).len() == 64);
        let mut found = datagrams(&frames, ADAPTER);
        found.sort();
        assert_eq!(found, (0..64).map(|number| numbered(number, 40)).collect::<Vec<_>>());
        let there = socket_there(&cable);
        send(&mut *wire, &frame_to(THERE_MAC, THERE_IP, b"back")).unwrap();
        let mut buffer = [0; 10];
        assert_eq!(there.recv_from(&mut buffer).unwrap().0, 4);
    });
}

#[test]
fn wire_tells_how_the_kernel_takes_frames() {
    in_network("modes", || {
        let _cable = cable(Cable::make(1500));
        for mode in [Mode::Native, Mode::Generic] {
            match XdpWire::open(HERE, &options(How { mode, ..NATIVE })) {
                Ok(wire) => assert_eq!((wire.mode(), wire.is_zero_copy()), (mode, false)),
                Err(error) => eprintln!("SKIPPED: a wire of kind xdp: {error}"),
            }
        }
    });
}

#[test]
fn tags_of_a_vlan_are_beside_the_frame() {
    let tag = Offload { vlan: Some(7), ..Offload::NONE };
    for (kind, mode) in BESIDE {
        in_network("a VLAN", || {
            let cable = cable(Cable::make(1500));
            let Some(mut wire) = opened(kind, mode) else { return };
            // Another adapter is at the other end.
            let other = Mac([2, 0, 0, 0, 1, 11]);
            let options = WireOptions { mac: Some(other), ..options(NATIVE) };
            let Ok(mut there) = cable.inside(|| open(WireKind::Xdp, THERE, &options)) else {
                return eprintln!("SKIPPED: frames of a VLAN: no wire of kind xdp");
            };
            assert!(happens(|| wire.look().0 == Carrier::Up && there.look().0 == Carrier::Up));
            let send = |wire: &mut dyn Wire, offload: Offload, from: Mac, to: Mac| {
                let mut frame = frame_to(to, ADAPTER_IP, b"tagged");
                frame[6..12].copy_from_slice(&from.0);
                wire.send(now_ns(), &FrameInPlace { offload, start: &frame, rest: None }).unwrap();
                wire.flush(now_ns());
            };
            let receive = |wire: &mut dyn Wire| -> Vec<_> {
                let ours = |frames: &Frames| -> Vec<_> {
                    let ours = frames
                        .iter()
                        .filter(|(offload, frame)| datagram(*offload, frame).is_some());
                    ours.map(|(offload, frame)| (offload.vlan, destination(frame).unwrap()))
                        .collect()
                };
                let frames = receive_until(wire, LONG, |frames| ours(frames).len() == 3);
                let mut found = ours(&frames);
                found.sort();
                found
            };
            for (offload, to) in [(tag, ADAPTER), (tag, Mac::BROADCAST), (Offload::NONE, ADAPTER)] {
                send(&mut *there, offload, other, to);
            }
            let expected = [(None, ADAPTER), (Some(7), ADAPTER), (Some(7), Mac::BROADCAST)];
            assert_eq!(receive(&mut *wire), expected, "{kind} {mode:?}");
            for (offload, to) in [(tag, other), (tag, Mac::BROADCAST), (Offload::NONE, other)] {
                send(&mut *wire, offload, ADAPTER, to);
            }
            let expected = [(None, other), (Some(7), other), (Some(7), Mac::BROADCAST)];
            assert_eq!(receive(&mut *there), expected, "{kind} {mode:?}");
        });
    }
    in_network("a card that takes tags out", || {
        let _cable = cable(Cable::make(1500));
        for loses_tags in [true, false] {
            match XdpWire::open(HERE, &options(NATIVE)) {
                Ok(wire) => assert_eq!(wire.loses_tags(), loses_tags),
                Err(error) => eprintln!("SKIPPED: a wire of kind xdp: {error}"),
            }
            switch_tags_off(HERE).unwrap();
        }
    });
}

/// The sum over words of 16 bits.
fn sum(bytes: &[u8]) -> u16 {
    let low = |word: &[u8]| word.get(1).map_or(0, |low| u64::from(*low));
    let words = bytes.chunks(2).map(|word| u64::from(word[0]) << 8 | low(word));
    let mut sum = words.sum::<u64>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The sum over the pseudo-header of a datagram.
fn pseudo_sum(frame: &[u8]) -> u16 {
    let bytes = (frame.len() - 34) as u16;
    sum(&[&frame[26..34], &[0, 17], &bytes.to_be_bytes()].concat())
}

/// The sum over a datagram, its pseudo-header and its checksum, which is all ones if it is right.
fn whole_sum(frame: &[u8]) -> u16 {
    sum(&[&pseudo_sum(frame).to_be_bytes(), &frame[34..]].concat())
}

#[test]
fn checksums_that_the_kernel_leaves_out_are_beside_the_frame_or_in_it() {
    for (kind, mode) in BESIDE {
        in_network("checksums", || {
            let cable = cable(Cable::with_offloads(1500, 1));
            let Some(mut wire) = opened(kind, mode) else { return };
            let there = socket_there(&cable);
            // Frames to one address come as the other end has left them, those to all with their checksum.
            let to = if kind == WireKind::Xdp { ALL_IP } else { ADAPTER_IP };
            there.send_to(b"checked", (to, PORT)).unwrap();
            let is_ours =
                |(offload, frame): &(Offload, Vec<u8>)| datagram(*offload, frame).is_some();
            let frames = receive_until(&mut *wire, LONG, |frames| frames.iter().any(is_ours));
            let (offload, mut frame) = frames.into_iter().find(is_ours).unwrap();
            let is_partial = matches!(offload.checksum, Checksum::Partial { .. });
            assert_eq!(is_partial, kind == WireKind::Macvtap);
            complete_checksum(offload.checksum, &mut frame);
            assert_eq!(whole_sum(&frame), 0xffff, "{kind} {mode:?}");
            // What the adapter leaves out is refused, or completed.
            let mut frame = frame_to(THERE_MAC, THERE_IP, b"incomplete");
            let checksum = Checksum::Partial { start: 34, at: 6 };
            let pseudo = pseudo_sum(&frame);
            frame[40..42].copy_from_slice(&pseudo.to_be_bytes());
            let offload = Offload { checksum, ..Offload::NONE };
            let sent = wire.send(now_ns(), &FrameInPlace { offload, start: &frame, rest: None });
            if !wire.capabilities().completes_checksums {
                assert_eq!(sent, Err(NotSent::Dropped));
                assert_eq!(wire.counters().dropped_unsent, 1);
                return;
            }
            sent.unwrap();
            let mut buffer = [0; 300];
            if to == ALL_IP {
                // Who sends to all is one of them.
                assert_eq!(there.recv_from(&mut buffer).unwrap().0, 7);
            }
            assert_eq!(there.recv_from(&mut buffer).unwrap().0, 10);
            // So are segments: datagrams of 100 bytes, in one frame.
            let mut frame = frame_to(THERE_MAC, THERE_IP, &numbered(0, 250));
            let pseudo = pseudo_sum(&frame);
            frame[40..42].copy_from_slice(&pseudo.to_be_bytes());
            let segmentation = Some(Segmentation {
                kind: Kind::Udp,
                congestion: false,
                header_bytes: 42,
                segment_bytes: 100,
            });
            let offload = Offload { checksum, segmentation, vlan: None };
            assert!(wire.capabilities().cuts_segments);
            wire.send(now_ns(), &FrameInPlace { offload, start: &frame, rest: None }).unwrap();
            for (start, bytes) in [(0, 100), (100, 100), (200, 50)] {
                assert_eq!(there.recv_from(&mut buffer).unwrap().0, bytes);
                assert_eq!(buffer[..bytes], numbered(0, 250)[start..start + bytes]);
            }
        });
    }
}

#[test]
fn end_of_a_frame_is_sent_from_where_another_party_has_it() {
    for (kind, mode) in BESIDE {
        in_network("a lent end", || {
            let cable = cable(Cable::make(9000));
            let Some(mut wire) = opened(kind, mode) else { return };
            let there = socket_there(&cable);
            let (mut storage, descriptor) =
                Storage::create("wires", 16384, StorageOptions::default()).unwrap();
            let lent = Borrowed::borrow(Foreign::from(descriptor), 16384..=16384).unwrap();
            let mut buffer = [0; 9000];
            for (number, bytes) in (0..).zip([10, 4054, 4055, 4060, 8972]) {
                let data = numbered(number, bytes);
                let frame = frame_to(THERE_MAC, THERE_IP, &data);
                let (start, rest) = frame.split_at(48);
                storage.bytes_mut(4000, rest.len()).copy_from_slice(rest);
                let rest = lent.part(4000, rest.len()).unwrap();
                let frame = FrameInPlace { offload: Offload::NONE, start, rest: Some(rest) };
                wire.send(now_ns(), &frame).unwrap();
                wire.flush(now_ns());
                let (found, _) = there.recv_from(&mut buffer).unwrap();
                assert!(buffer[..found] == data, "{kind} {mode:?}: {bytes} bytes");
            }
        });
    }
}

#[test]
fn tap_wire_is_joined_with_the_kernel_and_goes() {
    in_network("a TAP interface", || {
        let mut wire = match open(WireKind::Tap, HERE, &options(NATIVE)) {
            Ok(wire) => wire,
            Err(error) => return eprintln!("SKIPPED: a wire of kind tap: {error}"),
        };
        let address = [Address { address: IpAddr::V4(THERE_IP), prefix_bits: 24 }];
        Links::open().unwrap().set_up(HERE, THERE_MAC, 9000, &address).unwrap();
        neighbour(HERE, ADAPTER_IP, ADAPTER);
        assert_eq!((wire.look(), wire.capabilities().mtu), ((Carrier::Up, true), 9000));
        let kernel = socket();
        let mut buffer = [0; 9000];
        let mut expected = Vec::new();
        for (number, bytes) in (0..).zip([4, 100, 1472, 8972]) {
            expected.push(numbered(number, bytes));
            kernel.send_to(&expected[number as usize], (ADAPTER_IP, PORT)).unwrap();
            send(&mut *wire, &frame_to(THERE_MAC, THERE_IP, &expected[number as usize])).unwrap();
            let (bytes, from) = kernel.recv_from(&mut buffer).unwrap();
            assert_eq!(&buffer[..bytes], expected[number as usize]);
            assert_eq!(from, SocketAddr::from((ADAPTER_IP, PORT)));
        }
        let frames =
            receive_until(&mut *wire, LONG, |frames| datagrams(frames, ADAPTER).len() == 4);
        assert!(datagrams(&frames, ADAPTER) == expected);
        let has_partial = |(offload, _): &(Offload, Vec<u8>)| {
            matches!(offload.checksum, Checksum::Partial { .. })
        };
        assert!(frames.iter().any(has_partial), "checksums are left to the wire");
        assert!(frames.iter().all(|(_, frame)| frame.len() >= ETHERNET_BYTES));
        drop(wire);
        // A program that another test starts has the descriptor for a moment.
        assert!(happens(|| Links::open().unwrap().report(HERE).is_err()));
    });
}
