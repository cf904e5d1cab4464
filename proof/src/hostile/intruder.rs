//! A connection to a host, driven by a script.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use fabric::control::{Kind, Reply, Request, Scope, Target, Token};
use fabric::name::Name;
use fabric::path::Shape;
use fabric::path::board;
use os::storage::{Storage, StorageOptions};
use os::sync::Ordering;
use os::words::Words;

use super::doorbell::descriptor;
use super::script::Script;
use crate::plane::{Heard, Party};

/// Names that it goes by, and others.
const NAMES: [&str; 8] =
    ["EVIL1", "EVIL2", "EVIL3", "EVIL4", "CLIENT", "SERVER", "NOBODY", "RESOURCE"];

/// Paths, tokens and boards that it remembers.
const REMEMBERED_MAX: usize = 8;

/// How often it says the same in one deed.
const TIMES_MAX: usize = 200;

/// Descriptors that come with nothing that wants any: as many as a packet can carry, at most.
const PASSED_MAX: usize = os::packets::PACKET_DESCRIPTORS_MAX;

/// A guest, an observer or a stranger without manners.
#[derive(Debug)]
pub(super) struct Intruder {
    party: Party,
    /// Paths that it has heard of, and their shapes.
    paths: Vec<(u64, Shape)>,
    tokens: Vec<Token>,
    boards: Vec<Words>,
}

impl Intruder {
    pub(super) fn new(party: Party) -> Intruder {
        Intruder { party, paths: Vec::new(), tokens: Vec::new(), boards: Vec::new() }
    }

    /// Does one deed.
    pub(super) fn act(&mut self, script: &mut Script<'_>) {
        match script.below(8) {
            0..4 => {
                let request = self.request(script);
                self.ask(&request, script);
            }
            4 => self.talk_nonsense(script),
            5 => self.insist(script),
            6 => self.listen(),
            _ => self.scribble(script),
        }
    }

    /// Attaches under one of its names.
    pub(super) fn attach(&mut self, script: &mut Script<'_>) {
        let name = name(script.pick(&NAMES[..4]));
        self.party.ask(&Request::Attach { name }, &[]);
    }

    fn ask(&mut self, request: &Request, script: &mut Script<'_>) {
        let descriptors = self.descriptors(request, script);
        let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        self.party.ask(request, &descriptors);
    }

    /// A request that is well formed.
    fn request(&self, script: &mut Script<'_>) -> Request {
        let data = script.data();
        match script.below(16) {
            0 => Request::Attach { name: name(script.pick(&NAMES)) },
            1 => Request::Observe,
            2..6 => {
                let other = name(script.pick(&NAMES));
                let target = match script.below(4) {
                    0 => Target::Resource(other),
                    _ => Target::Guest(other),
                };
                let (shape, allowance) = (script.shape(), script.allowance());
                let kind = script.pick(&[Kind::MESSAGES, Kind::MESSAGES, Kind::IUCV, Kind::APPC]);
                Request::Connect { target, kind, flags: 0, data, shape, allowance }
            }
            6 => {
                Request::Cancel { connect: self.party.serial.wrapping_sub(script.number() as u32) }
            }
            7..10 => {
                let allowance = script.allowance();
                Request::Accept { path: self.path(script), flags: 0, data, allowance }
            }
            10 => Request::Refuse { path: self.path(script), data },
            11 => Request::Ended { path: self.path(script) },
            12 => {
                let token = self.tokens.last().copied().unwrap_or(Token([0; 16]));
                let (peer, kind) = (name(script.pick(&NAMES)), Kind::MESSAGES);
                let (shape, allowance) = (script.shape(), script.allowance());
                Request::Rejoin { token, peer, kind, shape, allowance }
            }
            13 => Request::Query,
            14 => Request::Audit { path: self.path(script) },
            _ => {
                let resource = name(script.pick(&NAMES));
                let scope = script.pick(&[Scope::Local, Scope::Global]);
                match script.below(3) {
                    0 => Request::Revoke { resource, scope },
                    _ => Request::Identify { resource, scope },
                }
            }
        }
    }

    fn path(&self, script: &mut Script<'_>) -> u64 {
        if self.paths.is_empty() || script.below(4) == 0 {
            return script.number();
        }
        self.paths[script.below(self.paths.len())].0
    }

    /// Descriptors as the request wants them, most of the time.
    fn descriptors(&mut self, request: &Request, script: &mut Script<'_>) -> Vec<OwnedFd> {
        let (shape, wants_lines) = match request {
            Request::Connect { shape, .. } => (*shape, true),
            Request::Accept { path, .. } => {
                let known = self.paths.iter().find(|(known, _)| known == path);
                (known.map_or(Shape::SIMPLE, |(_, shape)| *shape), true)
            }
            Request::Rejoin { shape, .. } => (*shape, false),
            _ if script.below(8) > 0 => return Vec::new(),
            _ => (Shape::SIMPLE, true),
        };
        match script.below(16) {
            0 => (0..script.below(PASSED_MAX + 1)).map(|_| descriptor(script)).collect(),
            1 => vec![descriptor(script), lines(shape)],
            2 => vec![self.board(script.shape(), script), lines(shape)],
            _ if !wants_lines => vec![self.board(shape, script)],
            3 => vec![self.board(shape, script), descriptor(script)],
            4 => vec![lines(shape), self.board(shape, script)],
            _ => vec![self.board(shape, script), lines(shape)],
        }
    }

    /// A board, as it should be or with a word changed, to be written to later.
    fn board(&mut self, shape: Shape, script: &mut Script<'_>) -> OwnedFd {
        let (words, descriptor) = storage(shape.board_words());
        board::establish(&words, shape);
        if script.below(4) == 0 {
            scribble(&words, script);
        }
        remember(&mut self.boards, words);
        descriptor
    }

    /// Something that is no request, or just not one.
    fn talk_nonsense(&mut self, script: &mut Script<'_>) {
        let request = self.request(script);
        let descriptors = self.descriptors(&request, script);
        let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        let mut bytes = request.bytes(script.number() as u32);
        match script.below(4) {
            0 => bytes = script.bytes(300).to_vec(),
            1 => {
                let at = script.below(bytes.len());
                bytes[at] ^= 1 << script.below(8);
            }
            2 => bytes.truncate(script.below(bytes.len())),
            _ => bytes.extend(script.bytes(300)),
        }
        self.party.say(&bytes, &descriptors);
    }

    /// The same over and over, as far as it goes.
    fn insist(&mut self, script: &mut Script<'_>) {
        let (request, descriptors) = match script.below(3) {
            0 => {
                // Hardly more than a word for the host to send to somebody else, each time.
                let other = name(script.pick(&["CLIENT", "SERVER"]));
                for _ in 0..script.below(TIMES_MAX) {
                    let (went, _side) = self.party.ask_for_path(other, Shape::SIMPLE);
                    let connect = self.party.serial;
                    if !went || !self.party.ask(&Request::Cancel { connect }, &[]) {
                        return;
                    }
                }
                return;
            }
            1 => (Request::Query, Vec::new()),
            _ => {
                let request = self.request(script);
                let descriptors = self.descriptors(&request, script);
                (request, descriptors)
            }
        };
        let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        for _ in 0..script.below(TIMES_MAX) {
            if !self.party.ask(&request, &descriptors) {
                return;
            }
        }
    }

    /// Hears what the host has said, and remembers what can be of use.
    fn listen(&mut self) {
        while let Some(Heard { reply, descriptors, .. }) = self.party.receive() {
            let expected = match reply {
                Reply::Joined(joined) => {
                    remember(&mut self.tokens, joined.token);
                    remember(&mut self.paths, (joined.path, joined.shape));
                    // A conversation has two doorbells, whatever its shape.
                    let kind = if descriptors.len() == 4 { Kind::IUCV } else { Kind::MESSAGES };
                    2 + kind.doorbells(joined.shape)
                }
                Reply::Pending(pending) => {
                    remember(&mut self.paths, (pending.path, pending.shape));
                    0
                }
                Reply::Report { .. } => 1,
                _ => 0,
            };
            assert_eq!(descriptors.len(), expected, "descriptors with {reply:?}");
        }
    }

    fn scribble(&mut self, script: &mut Script<'_>) {
        if !self.boards.is_empty() {
            scribble(&self.boards[script.below(self.boards.len())], script);
        }
    }
}

/// Changes a word: one of those at the beginning, which are looked at, or any.
fn scribble(words: &Words, script: &mut Script<'_>) {
    let count = if script.below(2) == 0 { words.count() } else { 16 };
    let at = script.below(count);
    words.store(at, script.word(words.load(at, Ordering::Relaxed)), Ordering::Release);
}

fn lines(shape: Shape) -> OwnedFd {
    storage(shape.lines_words()).1
}

fn storage(words: usize) -> (Words, OwnedFd) {
    let created = Storage::create("siga bare", words * 8, StorageOptions::default());
    let (storage, descriptor) = created.expect("storage");
    (Words::own(storage), descriptor)
}

pub(super) fn name(name: &str) -> Name {
    name.parse().expect("a name")
}

fn remember<T>(all: &mut Vec<T>, one: T) {
    if all.len() == REMEMBERED_MAX {
        all.remove(0);
    }
    all.push(one);
}
