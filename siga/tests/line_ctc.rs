//! Stacks over channel-to-channel lines: blocks both ways, ends and servers that go and return, partners that break the rules.

#[path = "common/lines.rs"]
mod lines;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use siga::ctc::{self, End, LineEvent, READ_SUBCHANNEL, Server, WRITE_SUBCHANNEL};
use siga::host::{Embedded, System};
use siga::line::{Counter, Line, LineError, LineMedium, LineOptions, State};
use siga::tcpip::{Counter as StackCounter, Stack, StackLine, UdpSocket};
use siga::{Guest, Wait};

use lines::{LONG, alone, carry, end, is_up, of, pattern, until};

fn host() -> Embedded {
    Embedded::start(System::open()).unwrap()
}

/// A server of the line between LEFT and RIGHT, on a thread of its own.
struct Serving(Option<JoinHandle<()>>, Arc<AtomicBool>);

impl Serving {
    fn start(host: &Embedded) -> Serving {
        let guest = Guest::attach_embedded(host, "CTC").unwrap();
        let mut server = Server::new(guest, Wait::Block).unwrap();
        server.add_line("line0", "LEFT".parse().unwrap(), "RIGHT".parse().unwrap()).unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let seen = done.clone();
        let serving = thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                server.serve_within(Duration::from_millis(10)).unwrap();
            }
        });
        Serving(Some(serving), done)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.1.store(true, Ordering::Relaxed);
        let ended = self.0.take().unwrap().join();
        assert!(thread::panicking() || ended.is_ok(), "the server goes on");
    }
}

fn options(mtu: usize) -> LineOptions {
    LineOptions {
        medium: LineMedium::Ctc { server: "CTC".parse().unwrap() },
        name: Some("line0".parse().unwrap()),
        mtu,
        wait: Wait::Block,
    }
}

/// One end of the line between LEFT (10.9.0.1) and RIGHT (10.9.0.2).
fn line(host: &Embedded, is_left: bool, mtu: usize) -> Line {
    let [name, partner] = if is_left { ["LEFT", "RIGHT"] } else { ["RIGHT", "LEFT"] };
    let [own, peer] = if is_left { ["10.9.0.1", "10.9.0.2"] } else { ["10.9.0.2", "10.9.0.1"] };
    let guest = Guest::attach_embedded(host, name).unwrap();
    Line::new(guest, &end(partner, own, peer), &options(mtu)).unwrap()
}

fn stack(host: &Embedded, is_left: bool, mtu: usize) -> Stack {
    alone(line(host, is_left, mtu))
}

#[test]
fn two_stacks_talk_over_an_adapter_whoever_is_first() {
    let host = host();
    let _serving = Serving::start(&host);
    for left_first in [true, false] {
        let first = stack(&host, left_first, 9216);
        until(&first, "it waits for the other", |line| line.state == State::StartWait);
        let second = stack(&host, !left_first, 9216);
        // The adapter says that the other is there: nobody waits for a time.
        let (left, right) = if left_first { (first, second) } else { (second, first) };
        carry(&left, &right, "10.9.0.2", 1 << 20);
        carry(&right, &left, "10.9.0.1", 1 << 20);
        for stack in [&left, &right] {
            let StackLine { counters, mtu, .. } = of(stack);
            assert_eq!((mtu, counters.get(Counter::Connected)), (9216, 1));
            let [single, multi] =
                [Counter::SentSingle, Counter::SentMulti].map(|counter| counters.get(counter));
            assert!(single > 0 && multi > 0, "{counters:?}");
            // Three packets of 9216 bytes fit into a block, and many that only acknowledge.
            assert!(counters.get(Counter::PacketsPerMessageMax) >= 2, "{counters:?}");
            assert!(counters.get(Counter::MessageBytesReceived) > 1 << 20, "{counters:?}");
            assert_eq!(stack.counter(StackCounter::BadChecksum), 0);
        }
    }
}

#[test]
fn packets_are_as_long_as_the_framing_allows() {
    for mtu in [576, 1500, 32_760, 32_761, 65_527] {
        let host = host();
        let _serving = Serving::start(&host);
        let [left, right] = [true, false].map(|is_left| stack(&host, is_left, mtu));
        carry(&left, &right, "10.9.0.2", 3 << 20);
        assert_eq!([of(&left).mtu, of(&right).mtu], [mtu; 2]);
        let from = UdpSocket::bind(&left, "10.9.0.1:5").unwrap();
        let to = UdpSocket::bind(&right, "10.9.0.2:5").unwrap();
        to.set_read_timeout(Some(LONG)).unwrap();
        let data: Vec<u8> = (0..60_000).map(pattern).collect();
        from.send_to(&data, "10.9.0.2:5").unwrap();
        let mut received = vec![0; 65_536];
        let (bytes, _) = to.recv_from(&mut received).unwrap();
        assert!(received[..bytes] == data);
    }
}

#[test]
fn line_is_up_again_when_its_other_end_returns() {
    let host = host();
    let _serving = Serving::start(&host);
    let left = stack(&host, true, 1500);
    for round in 1..=3 {
        let right = stack(&host, false, 1500);
        carry(&left, &right, "10.9.0.2", 100_000);
        assert_eq!(of(&left).counters.get(Counter::Connected), round);
        drop(right);
        until(&left, "the other is gone", |line| !is_up(line));
    }
    // The path to the adapter was there all the time.
    let counters = of(&left).counters;
    assert_eq!((counters.get(Counter::Connects), counters.get(Counter::Severed)), (1, 0));
}

#[test]
fn line_is_up_again_when_its_server_returns() {
    let host = host();
    let serving = Serving::start(&host);
    let [left, right] = [true, false].map(|is_left| stack(&host, is_left, 1500));
    carry(&left, &right, "10.9.0.2", 100_000);
    drop(serving);
    for stack in [&left, &right] {
        until(stack, "the server is gone", |line| line.counters.get(Counter::Severed) == 1);
    }
    let _serving = Serving::start(&host);
    carry(&left, &right, "10.9.0.2", 100_000);
    assert_eq!(of(&left).counters.get(Counter::Connected), 2);
}

#[test]
fn line_that_no_server_knows_is_an_error_and_not_the_end() {
    let host = host();
    let _serving = Serving::start(&host);
    let guest = Guest::attach_embedded(&host, "LEFT").unwrap();
    let other = LineOptions { name: Some("line1".parse().unwrap()), ..options(1500) };
    let left = alone(Line::new(guest, &end("RIGHT", "10.9.0.1", "10.9.0.2"), &other).unwrap());
    until(&left, "it is refused", |line| line.state == State::ConnectError);
}

#[test]
fn options_that_no_adapter_has_are_refused() {
    let host = host();
    let refused = |options: &LineOptions| {
        let guest = Guest::attach_embedded(&host, "LEFT").unwrap();
        Line::new(guest, &end("RIGHT", "10.9.0.1", "10.9.0.2"), options).unwrap_err()
    };
    let long = refused(&options(65_528));
    assert_eq!(long.to_string(), "an MTU of 65528: must be 576 to 65527");
    let nameless = refused(&LineOptions { name: None, ..options(1500) });
    assert!(matches!(nameless, LineError::NoName { .. }));
    assert_eq!(
        nameless.to_string(),
        "a line over a channel-to-channel adapter without a name: must have the one under which CTC serves it"
    );
}

/// A partner that writes what a test says, by channel programs of its own.
struct Partner(ctc::Line);

impl Partner {
    /// Opens RIGHT's end, and does what ctcm does until the line is up.
    fn up(host: &Embedded) -> Partner {
        let guest = Guest::attach_embedded(host, "RIGHT").unwrap();
        let options = ctc::LineOptions { wait: Wait::Block, ..ctc::LineOptions::default() };
        let mut partner = Partner(ctc::Line::open(&guest, "CTC", "line0", &options).unwrap());
        for subchannel in [READ_SUBCHANNEL, WRITE_SUBCHANNEL] {
            loop {
                partner.0.set_extended_mode(subchannel).unwrap();
                if partner.end_of(subchannel) == End::Done {
                    break;
                }
            }
        }
        partner.0.read().unwrap();
        partner.write(&[0, 2]);
        partner
    }

    /// How the program of a subchannel has ended. A READ that has ended meanwhile is started again.
    fn end_of(&mut self, wanted: u16) -> End {
        loop {
            match self.0.wait().unwrap() {
                LineEvent::Ended { subchannel, end, .. } if subchannel == wanted => return end,
                LineEvent::Ended { subchannel: READ_SUBCHANNEL, .. } => self.0.read().unwrap(),
                _ => {}
            }
        }
    }

    fn write(&mut self, block: &[u8]) {
        self.0.write_buffer()[..block.len()].copy_from_slice(block);
        self.0.write(block.len() as u32).unwrap();
        assert_eq!(self.end_of(WRITE_SUBCHANNEL), End::Done);
    }
}

#[test]
fn blocks_that_are_none_are_counted_and_the_line_goes_on() {
    let host = host();
    let _serving = Serving::start(&host);
    let left = stack(&host, true, 1500);
    let mut partner = Partner::up(&host);
    until(&left, "it is up", is_up);
    let blocks: [(&[u8], Counter); 6] = [
        (&[0, 3, 0], Counter::ReceivedShort),
        (&[0, 80, 0, 7, 8, 0, 0, 0, 0x45], Counter::ReceivedBlockLength),
        (&[0, 9, 0, 6, 8, 0, 0, 0, 0x45], Counter::ReceivedBack),
        (&[0, 9, 0, 8, 8, 0, 0, 0, 0x45], Counter::ReceivedOut),
        (&[0, 9, 0, 7, 8, 6, 0, 0, 0x45], Counter::ReceivedType),
        (&[0, 9, 0, 7, 8, 0, 0, 0, 0x65], Counter::ReceivedNoPacket),
    ];
    for (block, counter) in blocks {
        partner.write(block);
        until(&left, counter.name(), |line| line.counters.get(counter) == 1);
    }
    // The end of a file says nothing.
    partner.0.write_end_of_file().unwrap();
    assert_eq!(partner.end_of(WRITE_SUBCHANNEL), End::Done);
    partner.write(&[0, 3, 0]);
    until(&left, "two", |line| line.counters.get(Counter::ReceivedShort) == 2);
    assert!(is_up(&of(&left)));
    assert_eq!(of(&left).counters.get(Counter::Connected), 1);
}

#[test]
fn partner_that_halts_its_programs_takes_the_line_down_and_not_the_path() {
    let host = host();
    let _serving = Serving::start(&host);
    let left = stack(&host, true, 1500);
    let mut partner = Partner::up(&host);
    until(&left, "it is up", is_up);
    partner.0.halt(READ_SUBCHANNEL).unwrap();
    // A block that was under way may have ended it before.
    let ended = partner.end_of(READ_SUBCHANNEL);
    assert!(matches!(ended, End::Stopped | End::Done), "{ended:?}");
    assert!(is_up(&of(&left)), "its WRITE has not met that yet");
    // No program is to be halted there, but the other end's READ waits for one, and ends with a check.
    partner.0.halt(WRITE_SUBCHANNEL).unwrap();
    until(&left, "it is down", |line| !is_up(line));
    drop(partner);
    let right = stack(&host, false, 1500);
    carry(&left, &right, "10.9.0.2", 100_000);
    assert_eq!(of(&left).counters.get(Counter::Connected), 2);
    assert_eq!(of(&left).counters.get(Counter::Severed), 0);
}
