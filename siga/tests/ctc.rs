//! Channel-to-channel lines between guests of a host.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use siga::connect::Kind;
use siga::ctc::{
    AddLineError, Counters, End, Line, LineError, LineEvent, LineOptions, OpenLineError,
    READ_SUBCHANNEL, Server, WRITE_SUBCHANNEL,
};
use siga::host::{Embedded, System};
use siga::{ConnectError, Guest, Name, PathOptions, Wait, Waiter};

/// A server on a thread of its own.
struct Serving(Option<JoinHandle<Counters>>, Arc<AtomicBool>);

impl Serving {
    fn start(host: &Embedded, lines: &[(&str, &str, &str)]) -> Serving {
        let guest = Guest::attach_embedded(host, "CTC").unwrap();
        let mut server = Server::new(guest, Wait::Block).unwrap();
        for (line, left, right) in lines {
            server.add_line(line, name(left), name(right)).unwrap();
        }
        let done = Arc::new(AtomicBool::new(false));
        let seen = done.clone();
        let serving = thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                server.serve_within(Duration::from_millis(10)).unwrap();
            }
            server.counters()
        });
        Serving(Some(serving), done)
    }

    fn stop(mut self) -> Counters {
        self.1.store(true, Ordering::Relaxed);
        self.0.take().unwrap().join().unwrap()
    }
}

fn name(name: &str) -> Name {
    name.parse().unwrap()
}

fn open(guest: &Guest, line: &str) -> Result<Line, OpenLineError> {
    let options = LineOptions { wait: Wait::Block, ..LineOptions::default() };
    Line::open(guest, "CTC", line, &options)
}

/// A block that says which it is.
fn block(number: u32, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at as u32 * 31 + number) as u8).collect()
}

/// The next end of a program on a subchannel; ends on the other one are counted.
fn write(line: &mut Line, block: &[u8]) {
    line.write_buffer()[..block.len()].copy_from_slice(block);
    line.write(block.len() as u32).unwrap();
}

#[test]
fn two_guests_exchange_blocks_both_ways() {
    const BLOCKS: u32 = 500;
    let host = Embedded::start(System::open()).unwrap();
    let serving = Serving::start(&host, &[("LINE0", "ALICE", "BOB")]);
    let side = |name: &'static str, sign: u32| {
        let guest = Guest::attach_embedded(&host, name).unwrap();
        thread::spawn(move || {
            let mut line = open(&guest, "LINE0").unwrap();
            line.read().unwrap();
            write(&mut line, &block(sign, 1 + sign as usize));
            let (mut read, mut written) = (0, 1);
            let mut target = vec![0; line.block_bytes() as usize];
            while read < BLOCKS || line.is_running(WRITE_SUBCHANNEL) {
                match line.wait().unwrap() {
                    LineEvent::Ended {
                        subchannel: READ_SUBCHANNEL, end: End::Done, bytes, ..
                    } => {
                        let found = line.copy(&mut target).unwrap();
                        assert_eq!(found, bytes as usize);
                        let length = (1 + read as usize * 97 % 30_000).max(2 - sign as usize);
                        let expected = if read == 0 {
                            block(1 - sign, 2 - sign as usize)
                        } else {
                            block(read + 1 - sign, length)
                        };
                        assert!(target[..found] == expected, "block {read}");
                        read += 1;
                        line.read().unwrap();
                    }
                    LineEvent::Ended { subchannel: WRITE_SUBCHANNEL, end: End::Done, .. } => {
                        if written < BLOCKS {
                            let length =
                                (1 + written as usize * 97 % 30_000).max(1 + sign as usize);
                            write(&mut line, &block(written + sign, length));
                            written += 1;
                        }
                    }
                    LineEvent::Interruption { .. } => {}
                    event => panic!("{event:?}"),
                }
            }
        })
    };
    let (alice, bob) = (side("ALICE", 0), side("BOB", 1));
    alice.join().unwrap();
    bob.join().unwrap();
    let counters = serving.stop();
    assert_eq!((counters.transfers, counters.collisions), (u64::from(2 * BLOCKS), 0));
    assert_eq!(counters.disconnects, 2);
}

#[test]
fn only_the_two_guests_of_a_line_open_its_ends_and_each_once() {
    let host = Embedded::start(System::open()).unwrap();
    let lines =
        [("LINE0", "ALICE", "BOB"), ("LINE0", "CAROL", "DAVE"), ("LINE1", "ALICE", "CAROL")];
    let serving = Serving::start(&host, &lines);
    let attach = |name| Guest::attach_embedded(&host, name).unwrap();
    let (alice, bob, eve) = (attach("ALICE"), attach("BOB"), attach("EVE"));
    let first = open(&alice, "LINE0").unwrap();
    let _second = open(&bob, "LINE0").unwrap();
    let _third = open(&alice, "LINE1").unwrap();
    assert_eq!(
        open(&alice, "LINE0").unwrap_err().to_string(),
        "ALICE has its end of LINE0 of CTC open: a line has one program at each end"
    );
    for (guest, line) in [(&eve, "LINE0"), (&bob, "LINE1"), (&alice, "LINE2")] {
        let said = open(guest, line).unwrap_err().to_string();
        assert_eq!(said, format!("CTC has no line {line} with an end for {}", guest.name()));
    }
    for line in ["", "LINE01234"] {
        assert!(matches!(open(&alice, line), Err(OpenLineError::Name { .. })));
    }
    for block_bytes in [0, 0x1_0000] {
        let options = LineOptions { block_bytes, ..LineOptions::default() };
        let found = Line::open(&alice, "CTC", "LINE0", &options);
        assert!(matches!(found, Err(OpenLineError::Block { .. })));
    }
    // Another kind of conversation, and more queues than the server reads.
    for options in [
        PathOptions { data: *b"LINE0\0\0\0\0\0\0\0\0\0\0\0", ..PathOptions::default() },
        PathOptions { kind: Kind::CTC, outputs: 2, ..PathOptions::default() },
        PathOptions { kind: Kind::CTC, data: [1; 16], ..PathOptions::default() },
    ] {
        assert!(matches!(bob.connect("CTC", &options), Err(ConnectError::Refused { .. })));
    }
    // Who has closed it can open it again.
    drop(first);
    for _ in 0..20 {
        drop(open(&alice, "LINE0").unwrap());
    }
    serving.stop();
}

#[test]
fn lines_that_cannot_be_are_refused() {
    let host = Embedded::start(System::open()).unwrap();
    let guest = Guest::attach_embedded(&host, "CTC").unwrap();
    let mut server = Server::new(guest, Wait::Block).unwrap();
    let (alice, bob) = (name("ALICE"), name("BOB"));
    server.add_line("LINE0", alice, bob).unwrap();
    let said = |found: Result<(), AddLineError>| found.unwrap_err().to_string();
    assert_eq!(
        said(server.add_line("LINE0", name("EVE"), bob)),
        "line LINE0: BOB has an end of another line of this name"
    );
    assert_eq!(
        said(server.add_line("LINE1", bob, bob)),
        "line LINE1: both ends are BOB's; they must be two guests'"
    );
    assert_eq!(
        said(server.add_line("LINE01234", alice, bob)),
        "line name \"LINE01234\": must have 1 to 8 letters"
    );
}

/// Waits for the next end of a program.
fn next_end(line: &mut Line) -> (u16, End, u32) {
    loop {
        match line.wait().unwrap() {
            LineEvent::Ended { subchannel, end, bytes, .. } => return (subchannel, end, bytes),
            LineEvent::Interruption { .. } => {}
            event => panic!("{event:?}"),
        }
    }
}

#[test]
fn peer_learns_of_a_guest_that_goes_and_of_the_next_one() {
    let host = Embedded::start(System::open()).unwrap();
    let serving = Serving::start(&host, &[("LINE0", "ALICE", "BOB")]);
    let attach = |name| Guest::attach_embedded(&host, name).unwrap();
    let (alice, bob) = (attach("ALICE"), attach("BOB"));
    let mut left = open(&alice, "LINE0").unwrap();
    // Nobody is at the other end: SET EXTENDED MODE is done, and the NOP behind it has no peer.
    left.set_extended_mode(READ_SUBCHANNEL).unwrap();
    assert_eq!(next_end(&mut left), (READ_SUBCHANNEL, End::Check(0x40), 0));
    for _ in 0..3 {
        let mut right = open(&bob, "LINE0").unwrap();
        write(&mut right, b"hello");
        // Device end says that Bob has given a command.
        let ready = left.wait().unwrap();
        assert!(matches!(ready, LineEvent::Interruption { .. }), "{ready:?}");
        left.read().unwrap();
        assert_eq!(next_end(&mut left), (READ_SUBCHANNEL, End::Done, 5));
        assert_eq!(next_end(&mut right), (WRITE_SUBCHANNEL, End::Done, 0));
        left.read().unwrap();
        drop(right);
        // Whether Alice's PREPARE came before Bob went, or after that.
        assert_eq!(next_end(&mut left), (READ_SUBCHANNEL, End::Check(0x40), 0));
        // If before, nothing was refused yet, and Bob's next command is no news.
        left.read().unwrap();
        assert_eq!(next_end(&mut left), (READ_SUBCHANNEL, End::Check(0x40), 0));
    }
    serving.stop();
    // The server is gone.
    assert!(matches!(left.wait(), Err(LineError::Severed(_))));
}

#[test]
fn line_is_served_by_a_waiter_beside_others() {
    let host = Embedded::start(System::open()).unwrap();
    let serving = Serving::start(&host, &[("LINE0", "ALICE", "BOB"), ("LINE1", "ALICE", "BOB")]);
    let attach = |name| Guest::attach_embedded(&host, name).unwrap();
    let (alice, bob) = (attach("ALICE"), attach("BOB"));
    let mut waiter = Waiter::new(Wait::Block).unwrap();
    let mut keys = Vec::new();
    for line in ["LINE0", "LINE1"] {
        let mut line = open(&alice, line).unwrap();
        line.read().unwrap();
        keys.push(waiter.add(line).unwrap());
    }
    for (number, line) in ["LINE1", "LINE0"].into_iter().enumerate() {
        let mut line = open(&bob, line).unwrap();
        write(&mut line, &block(number as u32, 100));
        let found = loop {
            let (key, line) = waiter.wait().unwrap();
            let mut found = None;
            while let Some(event) = line.poll().unwrap() {
                if let LineEvent::Ended { end: End::Done, .. } = event {
                    let mut target = [0; 100];
                    assert_eq!(line.copy(&mut target), Ok(100));
                    found = Some((key, target));
                }
            }
            if let Some(found) = found {
                break found;
            }
        };
        assert_eq!(found.0, keys[1 - number]);
        assert!(found.1[..] == block(number as u32, 100));
    }
    serving.stop();
}
