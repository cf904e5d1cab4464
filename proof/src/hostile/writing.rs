//! An honest sender, and a reader driven by a script.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fabric::path::{
    Claim, CommitError, Counter, ListError, NO_DATA, PAGE_BYTES, Receiver, Ringing, SendError,
    Sender, Severed, Shared,
};
use fabric::queue::Entry;
use os::doorbell::Listen;
use os::storage::StorageOptions;

use super::neighbour::Neighbour;
use super::reader::Vandal;
use super::script::Script;
use super::{DEEDS_MAX, DEEDS_PER_VISIT, Stop, TERMS, Watch};
use crate::bare::{Facing, face};
use crate::honest::body;

/// Rooms and storages that the sender's user has at a time.
const HELD_MAX: usize = 20;

const OURS: &str = "this sender gave it out";

/// A sender, and what its user holds.
struct Writing {
    sender: Sender,
    claims: Vec<Claim>,
    shared: Vec<(u16, Shared)>,
    cookies: BTreeSet<u64>,
    /// What the path ended with.
    end: Option<Severed>,
}

/// A reader that may write anything, at any time between two verbs of the writer, into all that a reader
/// may write; that passes descriptors, rings without end and hangs up.
///
/// # Panics
/// If it does harm.
pub fn writer_scribble(program: &[u8]) {
    let watch = Watch::start();
    {
        let mut script = Script::new(program);
        let mut neighbour = Neighbour::new();
        let (mut vandal, mut writing, mut receiver) = meet();
        for deed in 0..DEEDS_MAX {
            if script.is_over() {
                break;
            }
            if writing.sender.ended().is_some() && script.below(8) == 0 {
                writing.finish();
                (vandal, writing, receiver) = meet();
            }
            if script.below(2) == 0 {
                vandal.act(&mut script);
            } else {
                writing.act(&mut script);
            }
            if deed.is_multiple_of(DEEDS_PER_VISIT) {
                neighbour.visit();
            }
        }
        writing.finish();
        neighbour.visit();
        drop(receiver);
    }
    watch.stop();
}

/// The same, while the writer is in the middle of a verb: the reader is a thread of its own, and does its
/// part of the program over and over. It is not deterministic.
///
/// # Panics
/// If it does harm.
pub fn writer_scribble_meanwhile(writer: &[u8], reader: &[u8]) {
    let watch = Watch::start();
    {
        let mut neighbour = Neighbour::new();
        let (mut vandal, mut writing, receiver) = meet();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let _stop = Stop(&stop);
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let mut script = Script::new(reader);
                    while !script.is_over() && !stop.load(Ordering::Relaxed) {
                        vandal.act(&mut script);
                    }
                }
            });
            let mut script = Script::new(writer);
            for _ in 0..DEEDS_MAX {
                writing.act(&mut script);
                if script.is_over() {
                    script = Script::new(writer);
                }
            }
            neighbour.visit();
        });
        writing.finish();
        neighbour.visit();
        drop((receiver, vandal));
    }
    watch.stop();
}

/// A new path: both its sides, and the other direction, which has to live too.
fn meet() -> (Vandal, Writing, Receiver) {
    let Facing { bare, receiver, sender, shown_writer, shown_lines, .. } = face(TERMS);
    let vandal = Vandal::new(bare, shown_writer.counters, shown_lines.lines);
    (vandal, Writing::new(sender), receiver)
}

impl Writing {
    fn new(sender: Sender) -> Writing {
        Writing {
            sender,
            claims: Vec::new(),
            shared: Vec::new(),
            cookies: BTreeSet::new(),
            end: None,
        }
    }

    /// One verb.
    fn act(&mut self, script: &mut Script<'_>) {
        match script.below(16) {
            0..5 => self.send(script),
            5 => self.claim(script),
            6 | 7 => self.commit(script),
            8 => self.lend_shared(script),
            9 => self.send_list(script),
            10 => {
                if let Some(cookie) = self.sender.completed() {
                    assert!(self.cookies.remove(&cookie), "list {cookie} came back twice");
                }
            }
            11 => {
                let ringing = [Ringing::Now, Ringing::After(3), Ringing::Deferred];
                self.sender.set_ringing(script.pick(&ringing));
                match script.below(4) {
                    0 => self.sender.publish(),
                    1 => self.sender.ring(),
                    2 => self.sender.wake_peer(),
                    _ => self.sender.flush(),
                }
            }
            12 => {
                self.sender.announce_sleep();
                self.sender.is_ready();
                self.sender.wake();
            }
            13 => {
                self.sender.hear(Listen::Now);
            }
            14 => {
                self.sender.trim();
            }
            _ => {
                if script.below(16) == 0 {
                    self.sender.sever([2; 16]);
                }
                self.sender.is_ready();
            }
        }
        let lent = self.sender.counters().get(Counter::LentBytes);
        assert!(lent <= TERMS.storage_bytes_max, "{lent} bytes are lent");
        if let Some(end) = self.end {
            assert_eq!(self.sender.ended(), Some(end), "it ends once");
        }
        self.end = self.sender.ended();
    }

    fn check<T>(&self, result: Result<T, SendError>) -> Option<T> {
        match result {
            Ok(sent) => {
                // What was not known to have ended may have taken a message.
                assert!(self.end.is_none(), "sent after the end");
                Some(sent)
            }
            Err(SendError::Severed(severed)) => {
                assert_eq!(Some(severed), self.sender.ended());
                None
            }
            Err(_) => None,
        }
    }

    fn check_list<T>(&self, result: Result<T, ListError>) -> Option<T> {
        match result {
            Ok(done) => self.check(Ok(done)),
            Err(ListError::Send(error)) => self.check(Err(error)),
            Err(error) => panic!("{error}"),
        }
    }

    fn send(&mut self, script: &mut Script<'_>) {
        let bytes =
            script.pick(&[0, 8, 57, 300, 3000, 30_000, PAGE_BYTES, PAGE_BYTES + 1, 300_000]);
        let (head, whole) = (body(1, script.pick(&[0, 24])), body(2, bytes));
        let build = |target: &mut [u8]| target.copy_from_slice(whole);
        let sent = match script.below(4) {
            0 => self.sender.send(head, whole),
            1 => self.sender.send_built(head, bytes, build),
            _ => self.sender.push(head, whole),
        };
        self.check(sent);
    }

    fn claim(&mut self, script: &mut Script<'_>) {
        let claim = self.sender.claim(&[1; 5], script.pick(&[0, 100, PAGE_BYTES, 200_000]));
        if let Some(claim) = self.check(claim) {
            if self.claims.len() < HELD_MAX {
                self.claims.push(claim);
            } else {
                self.sender.cancel(claim).expect(OURS);
            }
        }
    }

    fn commit(&mut self, script: &mut Script<'_>) {
        let Some(mut claim) = pick(&mut self.claims, script) else { return };
        self.sender.claimed(&mut claim).expect(OURS).fill(3);
        match script.below(4) {
            0 => return self.sender.cancel(claim).expect(OURS),
            1 => claim.truncate(script.pick(&[0, 50, 70_000])),
            _ => {}
        }
        match self.sender.commit(claim) {
            Ok(()) => {}
            Err((CommitError::NotOurs, _)) => panic!("{OURS}"),
            Err((CommitError::Send(error), claim)) => {
                self.check::<()>(Err(error));
                self.claims.push(claim);
            }
        }
    }

    fn lend_shared(&mut self, script: &mut Script<'_>) {
        if self.shared.len() < HELD_MAX && script.below(2) == 0 {
            let shared = Shared::create(4096, StorageOptions::default()).expect("one page");
            let lent = self.sender.lend_shared(&shared);
            if let Some(segment) = self.check(lent) {
                self.shared.push((segment, shared));
            }
        } else if let Some((segment, shared)) = pick(&mut self.shared, script) {
            let retired = self.sender.retire_shared(segment);
            if self.check_list(retired).is_none() {
                self.shared.push((segment, shared));
            }
        }
    }

    fn send_list(&mut self, script: &mut Script<'_>) {
        let Some((segment, _)) = self.shared.last() else { return };
        let entry = Entry { segment: *segment, length: 100, ..Entry::default() };
        let cookie = self.sender.counters().get(Counter::Messages);
        let sent = self.sender.send_list(1, &vec![entry; 1 + script.below(16)], Some(cookie));
        if self.check_list(sent).is_some() {
            self.cookies.insert(cookie);
        }
    }

    /// Takes everything back, and ends.
    fn finish(mut self) {
        while let Some(claim) = self.claims.pop() {
            self.sender.cancel(claim).expect(OURS);
        }
        self.sender.trim();
        self.sender.sever(NO_DATA);
        assert!(matches!(self.sender.send(&[], b"x"), Err(SendError::Severed(_))));
        assert!(self.sender.is_ready(), "nobody sleeps on a path that has ended");
    }
}

fn pick<T>(all: &mut Vec<T>, script: &mut Script<'_>) -> Option<T> {
    (!all.is_empty()).then(|| all.swap_remove(script.below(all.len())))
}
