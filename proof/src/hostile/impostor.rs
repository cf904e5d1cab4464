//! A host driven by a script.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use fabric::control::{Joined, Kind, PACKET_BYTES_MAX, Pending, Problem, Reply, Request, Token};
use fabric::path::Shape;
use os::packets::{Listener, Packets};
use os::poller::wait_readable;
use siga::Guest;

use super::doorbell::descriptor;
use super::intruder::name;
use super::script::Script;
use super::writer::Vandal;
use crate::bare::Bare;

/// Sides of paths, all its own work, that it has joined guests with.
const SIDES_MAX: usize = 4;

/// How often it says the same in one deed: more than a socket holds.
const TIMES_MAX: usize = 400;

/// A host without manners, and its guest.
#[derive(Debug)]
pub struct Impostor {
    place: PathBuf,
    listener: Listener,
    packets: Option<Packets>,
    /// Of the guest's last request.
    serial: u32,
    sides: Vec<Vandal>,
}

impl Impostor {
    /// Listens, and takes in a guest.
    ///
    /// # Panics
    /// If the machine has no descriptors left.
    pub fn admit(guest: &str) -> (Impostor, Guest) {
        static PLACES: AtomicU64 = AtomicU64::new(0);
        let place = PLACES.fetch_add(1, Ordering::Relaxed);
        let place = format!("siga-impostor-{}-{place}", std::process::id());
        let place = std::env::temp_dir().join(place);
        let listener = Listener::bind(&place, 0o600).expect("a place to listen");
        let mut impostor =
            Impostor { place, listener, packets: None, serial: 0, sides: Vec::new() };
        let place: &Path = &impostor.place.clone();
        let guest = thread::scope(|scope| {
            let guest = scope.spawn(|| Guest::attach(place, guest).expect("it was admitted"));
            // A signal ends waiting too.
            while impostor.packets.is_none() {
                wait_readable(&impostor.listener, None).expect("nothing keeps us from waiting");
                impostor.accept();
            }
            while impostor.serial == 0 {
                let packets = impostor.packets.as_ref().expect("it has connected");
                wait_readable(packets, None).expect("nothing keeps us from waiting");
                impostor.listen();
            }
            assert!(impostor.say(impostor.serial, &Reply::Attached, &[]));
            guest.join().expect("admitted")
        });
        (impostor, guest)
    }

    /// Takes in the guest once more, if it has connected again: its last connection is what it hears.
    pub fn accept(&mut self) {
        while let Ok(packets) = self.listener.accept() {
            self.packets = Some(packets);
        }
    }

    /// Hears what the guest says, which makes sense whatever is said to it.
    ///
    /// # Panics
    /// If it does not.
    pub fn listen(&mut self) {
        let Some(packets) = &self.packets else { return };
        let mut buffer = [0; PACKET_BYTES_MAX];
        while let Ok(packet) = packets.receive(&mut buffer)
            && packet.bytes > 0
        {
            let request = Request::parse(&buffer[..packet.bytes]);
            let (serial, request) = request.expect("a guest of this version");
            let expected = match request {
                Request::Connect { .. } | Request::Accept { .. } => 2,
                Request::Rejoin { .. } => 1,
                _ => 0,
            };
            assert_eq!(
                packet.passed().map_or(0, |passed| passed.len()),
                expected,
                "descriptors with {request:?}"
            );
            self.serial = serial;
        }
    }

    /// Says something. Whether it went.
    pub fn say(&self, serial: u32, reply: &Reply, descriptors: &[BorrowedFd<'_>]) -> bool {
        let Some(packets) = &self.packets else { return false };
        packets.send(&reply.bytes(serial), descriptors).is_ok()
    }

    /// Does one deed.
    pub(super) fn act(&mut self, script: &mut Script<'_>) {
        match script.below(16) {
            0..7 => {
                let (serial, reply) = (self.serial(script), self.reply(script));
                self.answer(serial, &reply, script);
            }
            7 => self.talk_nonsense(script),
            8 => {
                let (serial, reply) = (self.serial(script), self.reply(script));
                for _ in 0..script.below(TIMES_MAX) {
                    if !self.say(serial, &reply, &[]) {
                        return;
                    }
                }
            }
            9..12 => self.listen(),
            12 => {
                if script.below(4) == 0 {
                    self.packets = None;
                }
            }
            13 => self.accept(),
            _ => {
                for side in &mut self.sides {
                    side.act(script);
                }
            }
        }
    }

    /// Answers the request that the guest makes next, before it is made, or hangs up. All that the guest
    /// has said so far was heard.
    pub(super) fn answer_ahead(&mut self, script: &mut Script<'_>) {
        let reply = self.reply(script);
        let serial = self.serial.wrapping_add(1);
        if script.below(8) == 0 || !self.answer(serial, &reply, script) {
            self.packets = None;
        }
    }

    fn serial(&self, script: &mut Script<'_>) -> u32 {
        match script.below(4) {
            0 => 0,
            1 => script.number() as u32,
            _ => self.serial.wrapping_sub(script.below(3) as u32),
        }
    }

    /// A reply that is well formed.
    fn reply(&self, script: &mut Script<'_>) -> Reply {
        let (data, shape) = (script.data(), script.shape());
        let (path, peer) = (script.below(4) as u64, name(script.pick(&["CLIENT", "OTHER"])));
        let kind = Kind::MESSAGES;
        match script.below(12) {
            0..5 => Reply::Joined(Joined {
                path,
                token: Token([script.below(3) as u8; 16]),
                peer,
                flags: 0,
                data,
                shape,
                ours: script.allowance(),
                theirs: script.allowance(),
            }),
            5..7 => {
                let resource = (script.below(4) == 0).then_some(peer);
                Reply::Pending(Pending { path, from: peer, resource, kind, flags: 0, data, shape })
            }
            7 => Reply::Withdrawn { path },
            8 => Reply::Attached,
            9 => Reply::Failed { problem: script.pick(&Problem::ALL), data },
            10 => Reply::Done { path },
            _ => Reply::Report { bytes: script.number() },
        }
    }

    /// Says something with the descriptors that belong to it, most of the time. Whether it went.
    fn answer(&mut self, serial: u32, reply: &Reply, script: &mut Script<'_>) -> bool {
        let descriptors = match (reply, script.below(8)) {
            (_, 0) => (0..script.below(33)).map(|_| descriptor(script)).collect(),
            (Reply::Joined(_), wrong) => self.side(wrong == 1, script),
            _ => Vec::new(),
        };
        let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        self.say(serial, reply, &descriptors)
    }

    /// What makes a path of one queue each way, or all but one of that.
    fn side(&mut self, is_wrong: bool, script: &mut Script<'_>) -> Vec<OwnedFd> {
        let (mut bare, lent, doorbells) = Bare::create(Shape::SIMPLE, Kind::MESSAGES);
        let mut descriptors = vec![lent.board, lent.lines];
        descriptors.extend(doorbells);
        if is_wrong {
            let wrong = script.below(descriptors.len());
            descriptors[wrong] = descriptor(script);
        }
        if self.sides.len() == SIDES_MAX {
            self.sides.remove(0);
        }
        self.sides.push(Vandal::new(bare.remove(0)));
        descriptors
    }

    /// Something that is no reply, or just not one.
    fn talk_nonsense(&mut self, script: &mut Script<'_>) {
        let mut bytes = self.reply(script).bytes(self.serial(script));
        match script.below(4) {
            0 => bytes = script.bytes(300).to_vec(),
            1 => {
                let at = script.below(bytes.len());
                bytes[at] ^= 1 << script.below(8);
            }
            2 => bytes.truncate(script.below(bytes.len())),
            _ => bytes.extend(script.bytes(300)),
        }
        let passed = descriptor(script);
        if let Some(packets) = &self.packets {
            // Whether it goes does not matter.
            let _ = packets.send(&bytes, &[passed.as_fd()]);
        }
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        // Somebody may have trimmed up.
        let _ = std::fs::remove_file(&self.place);
    }
}
