//! An honest receiver, and a writer driven by a script.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fabric::path::{
    Announced, Counter, HEAD_BYTES_MAX, InPage, Incoming, List, MessageRef, NO_DATA, PAGE_BYTES,
    Reason, Receiver, Sender, Severed,
};
use fabric::queue::QUEUE_BUFFERS;
use os::doorbell::Listen;

use super::neighbour::Neighbour;
use super::script::Script;
use super::writer::Vandal;
use super::{DEEDS_MAX, DEEDS_PER_VISIT, Stop, TERMS, Watch};
use crate::bare::{Facing, face};

const OURS: &str = "this receiver gave it out";

/// A receiver, and what its user holds.
struct Reading {
    receiver: Receiver,
    in_pages: Vec<InPage>,
    announced: Vec<Announced>,
    lists: Vec<List>,
    /// What the path ended with, once nothing more can come.
    end: Option<Severed>,
}

/// A writer that may write anything, at any time between two verbs of the reader, into all that a writer
/// may write; that lends, retires, passes descriptors of all kinds, rings without end and hangs up.
///
/// # Panics
/// If it does harm.
pub fn reader_scribble(program: &[u8]) {
    let watch = Watch::start();
    {
        let mut script = Script::new(program);
        let mut neighbour = Neighbour::new();
        let (mut vandal, mut reading, mut sender) = meet();
        for deed in 0..DEEDS_MAX {
            if script.is_over() {
                break;
            }
            if reading.receiver.ended().is_some() && script.below(8) == 0 {
                reading.finish();
                (vandal, reading, sender) = meet();
            }
            if script.below(2) == 0 {
                vandal.act(&mut script);
            } else {
                reading.act(&mut script);
            }
            if deed.is_multiple_of(DEEDS_PER_VISIT) {
                neighbour.visit();
            }
        }
        reading.finish();
        neighbour.visit();
        drop(sender);
    }
    watch.stop();
}

/// The same, while the reader is in the middle of a verb: the writer is a thread of its own, and does
/// its part of the program over and over. It is not deterministic.
///
/// # Panics
/// If it does harm.
pub fn reader_scribble_meanwhile(writer: &[u8], reader: &[u8]) {
    let watch = Watch::start();
    {
        let mut neighbour = Neighbour::new();
        let (mut vandal, mut reading, sender) = meet();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let _stop = Stop(&stop);
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let mut script = Script::new(writer);
                    while !script.is_over() && !stop.load(Ordering::Relaxed) {
                        vandal.act(&mut script);
                    }
                }
            });
            let mut script = Script::new(reader);
            for _ in 0..DEEDS_MAX {
                reading.act(&mut script);
                if script.is_over() {
                    script = Script::new(reader);
                }
            }
            neighbour.visit();
        });
        reading.finish();
        neighbour.visit();
        drop((sender, vandal));
    }
    watch.stop();
}

/// A new path: both its sides, and the other direction, which has to live too.
fn meet() -> (Vandal, Reading, Sender) {
    let Facing { bare, receiver, sender, .. } = face(TERMS);
    (Vandal::new(bare), Reading::new(receiver), sender)
}

impl Reading {
    fn new(receiver: Receiver) -> Reading {
        let (in_pages, announced, lists) = (Vec::new(), Vec::new(), Vec::new());
        Reading { receiver, in_pages, announced, lists, end: None }
    }

    /// One verb.
    fn act(&mut self, script: &mut Script<'_>) {
        match script.below(16) {
            0..4 => self.receive(),
            4..6 => self.poll(script),
            6 => self.poll_short(),
            7 => self.read(script),
            8 => self.pull(script),
            9 => self.give_back(script),
            10 => {
                let ready_before = self.receiver.is_ready();
                self.receiver.announce_sleep();
                let ready = self.receiver.is_ready();
                if !ready_before && !ready {
                    self.receiver.hear(Listen::Now);
                }
                self.receiver.wake();
            }
            11 => {
                self.receiver.hear(Listen::Now);
            }
            12 => match script.below(3) {
                0 => self.receiver.quiesce(),
                1 => {
                    self.receiver.known_point();
                    self.receiver.resume();
                }
                _ => self.receiver.trim(),
            },
            13 if script.below(16) == 0 => self.receiver.sever([1; 16]),
            _ => {
                if let Ok(Some(message)) = self.receiver.fetch() {
                    self.read_message(message);
                }
            }
        }
        let borrowed = self.receiver.counters().get(Counter::LentBytes);
        assert!(borrowed <= TERMS.peer_storage_bytes_max, "{borrowed} bytes are borrowed");
    }

    /// What may come of asking for a message; whether there was one.
    fn check_end<T>(end: &mut Option<Severed>, found: &Result<Option<T>, Severed>) {
        let before = *end;
        match (found, before) {
            (Err(severed), None) => *end = Some(*severed),
            (Err(severed), Some(before)) => {
                let is_final = matches!(
                    before.reason,
                    Reason::Ours | Reason::Lacking(_) | Reason::Violation(_)
                );
                assert!(
                    !is_final || severed.reason == before.reason,
                    "{before} and then {severed}"
                );
                *end = Some(*severed);
            }
            (Ok(_), Some(before)) => {
                // A peer that is gone and writes all the same is read, as one is that died just now.
                let may_go_on =
                    [Reason::Gone, Reason::Peer, Reason::ViolationReported, Reason::PeerLacking];
                assert!(may_go_on.contains(&before.reason), "something came after {before}");
            }
            (Ok(_), None) => {}
        }
    }

    fn receive(&mut self) {
        let found = self.receiver.receive();
        Reading::check_end(&mut self.end, &found);
        if let Ok(Some(message)) = found {
            assert!(message.head.len() <= HEAD_BYTES_MAX);
            assert!(message.body.len() as u64 <= TERMS.peer_storage_bytes_max);
            touch(message.body);
        }
    }

    /// What is at hand and short.
    fn poll_short(&mut self) {
        let found = self.receiver.poll_short();
        // None says nothing about what else there is.
        if !matches!(found, Ok(None)) {
            Reading::check_end(&mut self.end, &found);
        }
        if let Ok(Some(message)) = found {
            self.read_message(message);
        }
    }

    fn read_message(&self, message: MessageRef) {
        let message = self.receiver.message(message);
        assert!(message.head.len() <= HEAD_BYTES_MAX);
        touch(message.body);
    }

    fn poll(&mut self, script: &mut Script<'_>) {
        let copied_bytes_max = script.pick(&[0, 0, 100, 4096, usize::MAX]);
        let found = self.receiver.poll(copied_bytes_max);
        Reading::check_end(&mut self.end, &found);
        match found {
            Ok(Some(Incoming::Message(message))) => self.read_message(message),
            Ok(Some(Incoming::InPage(message))) => {
                assert!(message.head_bytes() <= HEAD_BYTES_MAX);
                let bytes = message.view().bytes();
                assert!(bytes <= PAGE_BYTES && bytes > copied_bytes_max);
                self.in_pages.push(message);
            }
            Ok(Some(Incoming::Announced(message))) => {
                assert!(message.body_bytes() as u64 <= TERMS.peer_storage_bytes_max);
                self.announced.push(message);
            }
            Ok(Some(Incoming::List(list))) => self.lists.push(list),
            Ok(None) | Err(_) => {}
        }
    }

    /// Reads what is held, and tries to read beyond it.
    fn read(&self, script: &mut Script<'_>) {
        let view = match (self.in_pages.last(), self.lists.last()) {
            (Some(message), _) if script.below(2) == 0 => message.view(),
            (_, Some(list)) => {
                assert!(list.view(list.entries().len()).is_none());
                list.view(script.below(list.entries().len())).expect("an entry")
            }
            _ => return,
        };
        let most = view.bytes().min(1 << 17);
        let mut bytes = vec![0; most];
        view.read(view.bytes() - most, &mut bytes).expect("all of it is there");
        assert!(view.read(view.bytes() - most + 1, &mut bytes).is_err() || most == 0);
        assert!(view.read(usize::MAX, &mut bytes).is_err());
    }

    fn pull(&mut self, script: &mut Script<'_>) {
        let Some(message) = self.announced.last_mut() else { return };
        let left = message.left_bytes();
        let mut piece = vec![0; script.pick(&[0, 1, 4096, 100_000])];
        let is_pullable = self.receiver.is_pullable(message);
        match self.receiver.pull(message, &mut piece) {
            Ok(pulled) => assert!(pulled <= left && message.left_bytes() == left - pulled),
            Err(_) => assert!(is_pullable || self.receiver.ended().is_some()),
        }
    }

    fn give_back(&mut self, script: &mut Script<'_>) {
        if let Some(message) = pick(&mut self.in_pages, script) {
            self.receiver.give_back(message).expect(OURS);
        }
        if let Some(message) = pick(&mut self.announced, script) {
            self.receiver.release(message).expect(OURS);
        }
        if let Some(list) = pick(&mut self.lists, script) {
            self.receiver.give_back_list(list).expect(OURS);
        }
    }

    /// Gives everything back, and ends.
    fn finish(mut self) {
        while let Some(message) = self.in_pages.pop() {
            self.receiver.give_back(message).expect(OURS);
        }
        while let Some(message) = self.announced.pop() {
            self.receiver.release(message).expect(OURS);
        }
        while let Some(list) = self.lists.pop() {
            self.receiver.give_back_list(list).expect(OURS);
        }
        self.receiver.trim();
        self.receiver.sever(NO_DATA);
        // One that had ended before, in good order, has a queue of messages still to give out.
        let most = QUEUE_BUFFERS * PAGE_BYTES / 8;
        let left = (0..most).position(|_| self.receiver.receive().is_err());
        assert!(left.is_some(), "it has ended");
    }
}

/// Reads every byte, which ends the process if one is not there.
fn touch(bytes: &[u8]) {
    let sum = bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    std::hint::black_box(sum);
}

fn pick<T>(all: &mut Vec<T>, script: &mut Script<'_>) -> Option<T> {
    (!all.is_empty()).then(|| all.swap_remove(script.below(all.len())))
}
