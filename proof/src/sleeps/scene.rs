//! What two sides do so that each of them has a reason to sleep.
//!
//! The sides alternate: a side that has sent or returned something waits for the other's answer. So a later
//! wake-up cannot repair a lost one: both sleep for ever.

use std::collections::VecDeque;

use fabric::path::{
    CommitError, Incoming, ListError, NO_DATA, PAGE_BYTES, Reason, Receiver, SendError, Sender,
    Severed, Shared, Terms,
};
use fabric::queue::{DATA_BUFFERS, Entry, EntryFlags, IN_PLACE_BYTES_MAX, RESERVED_BUFFERS};
use os::storage::StorageOptions;
use proof::dice::Dice;

use super::nap::{Gauge, Half, Sleeper};

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scene {
    /// Each message is answered by another: both sides read.
    Answers,
    /// A message or two fill the window: the writer sleeps until they were read.
    Window,
    /// The reader keeps all buffers, and gives a few back when nothing comes.
    Buffers,
    /// A large message or two may wait: the writer sleeps until one was released.
    Announced,
    /// Large messages are read while they are filled in: the reader sleeps for more.
    Filling,
    /// The writer sleeps until a list has come back.
    Lists,
    /// The reader asks for quiet, sleeps until it is there, and resumes.
    Quiet,
}

impl Scene {
    /// All of them.
    pub const ALL: [Scene; 7] = [
        Scene::Answers,
        Scene::Window,
        Scene::Announced,
        Scene::Lists,
        Scene::Quiet,
        Scene::Buffers,
        Scene::Filling,
    ];

    /// What the writer and what the reader sleep for, in words.
    pub fn sleeps_for(self) -> [&'static str; 2] {
        match self {
            Scene::Answers => ["one for an answer", "other for a message"],
            Scene::Window => ["writer for the window", "reader for a message"],
            Scene::Buffers => ["writer for a buffer", "reader for a message, buffers kept"],
            Scene::Announced => ["writer for a slot", "reader for an announcement"],
            Scene::Filling => ["writer for a slot, filling", "reader for more of a message"],
            Scene::Lists => ["writer for a list", "reader for a list"],
            Scene::Quiet => ["writer for the end of quiet", "reader for quiet"],
        }
    }

    /// How many sleeps of another scene take as long as one of this.
    pub fn weight(self) -> u64 {
        match self {
            Scene::Filling => 16,
            Scene::Buffers | Scene::Quiet => 4,
            _ => 1,
        }
    }

    /// Terms of a path under which it happens.
    pub fn terms(self, dice: &mut Dice) -> Terms {
        let mut terms = Terms::DEFAULT;
        match self {
            // What lies in a page counts, and the second time it is too much.
            Scene::Window | Scene::Quiet => terms.window_bytes = 1 + dice.below(2) * PAGE_MESSAGE,
            Scene::Buffers => terms.window_bytes = DATA_BUFFERS * PAGE_BYTES,
            Scene::Announced => terms.messages_max = 1 + dice.below(2) as u32,
            Scene::Filling => terms.messages_max = 1,
            Scene::Answers | Scene::Lists => {}
        }
        terms
    }
}

/// Bytes of a message that goes into a page.
const PAGE_MESSAGE: usize = IN_PLACE_BYTES_MAX + 8;

/// Bytes of the longest message that is filled in while it is read: four steps.
const FILLED_BYTES_MAX: usize = 256 << 10;

/// Buffers that a reader keeps when nothing comes: the writer may have others out that bring no message.
const KEPT_MAX: usize = DATA_BUFFERS - 2 * RESERVED_BUFFERS;

/// Buffers that are given back when nothing comes: enough for a message, whatever the reserve was used for.
const GIVEN_BACK: usize = RESERVED_BUFFERS + 1;

/// Messages between two checks of how much the other side has slept.
const MESSAGES_PER_CHECK: u64 = 64;

/// The side that writes, and in [`Scene::Answers`] reads the answers.
#[derive(Debug)]
pub struct Writer<'a> {
    pub sender: Sender,
    pub answers: Receiver,
    pub sleeper: Sleeper<'a>,
    /// How far the other side is.
    pub other: &'a Gauge,
    /// Sleeps of both sides after which it is enough.
    pub enough: u64,
}

/// The side that reads.
#[derive(Debug)]
pub struct Reader<'a> {
    pub receiver: Receiver,
    pub answers: Sender,
    pub sleeper: Sleeper<'a>,
}

/// What a poll has found.
enum Found {
    Number(u64),
    Nothing,
    End,
}

impl Writer<'_> {
    /// Writes until both have slept enough, and ends the path.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn play(&mut self, scene: Scene) -> Result<(), String> {
        let mut long = match scene {
            Scene::Filling => vec![0; FILLED_BYTES_MAX],
            _ => vec![0; PAGE_MESSAGE],
        };
        let mut shared = match scene {
            Scene::Lists => Some(self.lend()?),
            _ => None,
        };
        for number in 0.. {
            if number % MESSAGES_PER_CHECK == 0
                && self.sleeper.announced() + self.other.read().0 >= self.enough
            {
                break;
            }
            self.sleeper.dawdle();
            match scene {
                Scene::Answers => self.ask(number)?,
                Scene::Window | Scene::Quiet | Scene::Buffers => {
                    long[..8].copy_from_slice(&number.to_le_bytes());
                    self.until_done(|sender| sender.send(&[], &long))?;
                }
                Scene::Filling => {
                    let spread = FILLED_BYTES_MAX - 2 * PAGE_BYTES;
                    let bytes = FILLED_BYTES_MAX - self.sleeper.dice().below(spread);
                    long[..8].copy_from_slice(&number.to_le_bytes());
                    self.until_done(|sender| sender.send(&[], &long[..bytes]))?;
                }
                Scene::Announced => self.announce(number)?,
                Scene::Lists => {
                    let (shared, segment) = shared.as_mut().expect("lent above");
                    shared.bytes_mut()[..8].copy_from_slice(&number.to_le_bytes());
                    self.send_list(*segment, number)?;
                }
            }
        }
        self.sender.sever(NO_DATA);
        Ok(())
    }

    /// Sends a message and waits for the answer.
    fn ask(&mut self, number: u64) -> Result<(), String> {
        self.until_done(|sender| sender.send(&[], &number.to_le_bytes()))?;
        loop {
            match next(&mut self.answers)? {
                Found::Number(answer) => return expect(answer, number),
                Found::End => return Err("the other side has ended the path".into()),
                Found::Nothing => {}
            }
            let rings = self.sender.rings();
            self.sleeper.until(&mut self.answers, rings, |half| half.is_ready());
        }
    }

    /// Announces a large message of which only the number is filled in.
    fn announce(&mut self, number: u64) -> Result<(), String> {
        let bytes = PAGE_BYTES + 1 + self.sleeper.dice().below(PAGE_BYTES);
        let mut claim = self.until_done(|sender| sender.claim(&[], bytes))?;
        let room = self.sender.claimed(&mut claim).expect("claimed just now");
        room[..8].copy_from_slice(&number.to_le_bytes());
        let mut claim = Some(claim);
        self.until_done(|sender| match sender.commit(claim.take().expect("put back below")) {
            Ok(_) => Ok(()),
            Err((CommitError::Send(error), back)) => {
                claim = Some(back);
                Err(error)
            }
            Err((CommitError::NotOurs, _)) => unreachable!("claimed of this half"),
        })
    }

    fn lend(&mut self) -> Result<(Shared, u16), String> {
        let shared = Shared::create(PAGE_BYTES, StorageOptions::default());
        let shared = shared.map_err(|error| error.to_string())?;
        let segment = self.until_done(|sender| sender.lend_shared(&shared))?;
        Ok((shared, segment))
    }

    /// Sends a list and waits until it has come back.
    fn send_list(&mut self, segment: u16, number: u64) -> Result<(), String> {
        let flags = EntryFlags::LAST_ENTRY;
        let entry = Entry { segment, offset: 0, length: 8, flags, metadata: 0 };
        self.until_done(|sender| match sender.send_list(0, &[entry], Some(number)) {
            Ok(()) => Ok(()),
            Err(ListError::Send(error)) => Err(error),
            Err(error) => panic!("a list within what was lent: {error}"),
        })?;
        let mut back = None;
        while back.is_none() {
            let rings = self.sender.rings();
            self.sleeper.until(&mut self.sender, rings, |half| {
                back = half.completed();
                back.is_some()
            });
            if let (None, Some(severed)) = (back, self.sender.ended()) {
                return Err(severed.to_string());
            }
        }
        expect(back.unwrap_or(u64::MAX), number)
    }

    /// Does something as soon as there is room, sleeping for it.
    fn until_done<T>(
        &mut self,
        mut attempt: impl FnMut(&mut Sender) -> Result<T, SendError>,
    ) -> Result<T, String> {
        loop {
            match attempt(&mut self.sender) {
                Ok(done) => return Ok(done),
                Err(SendError::Full | SendError::Quiesced) => {}
                Err(error) => return Err(error.to_string()),
            }
            let rings = self.sender.rings();
            self.sleeper.until(&mut self.sender, rings, Sender::is_ready);
        }
    }
}

impl Reader<'_> {
    /// Reads until the path has ended.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn play(&mut self, scene: Scene) -> Result<(), String> {
        match scene {
            Scene::Answers | Scene::Window | Scene::Filling => self.read(scene),
            Scene::Announced | Scene::Lists | Scene::Buffers => self.read_in_place(),
            Scene::Quiet => self.read_quietly(),
        }
    }

    /// Receives messages whole, and answers them if that is wanted.
    fn read(&mut self, scene: Scene) -> Result<(), String> {
        let mut expected = 0;
        loop {
            match next(&mut self.receiver)? {
                Found::Number(number) => {
                    expect(number, expected)?;
                    expected += 1;
                    self.sleeper.dawdle();
                    if scene == Scene::Answers {
                        let sent = self.answers.send(&[], &number.to_le_bytes());
                        sent.map_err(|error| error.to_string())?;
                    }
                }
                Found::End => return Ok(()),
                Found::Nothing => self.sleep(),
            }
        }
    }

    /// Reads messages where they lie, and gives them back.
    fn read_in_place(&mut self) -> Result<(), String> {
        let mut kept = VecDeque::new();
        let mut bytes = [0; 8];
        for expected in 0.. {
            let incoming = loop {
                match self.receiver.poll(0) {
                    Ok(Some(incoming)) => break incoming,
                    Ok(None) => {}
                    Err(severed) => return is_end(severed),
                }
                if kept.len() >= KEPT_MAX {
                    for message in kept.drain(..GIVEN_BACK) {
                        self.receiver.give_back(message).map_err(|not| not.to_string())?;
                        self.sleeper.dawdle();
                    }
                    continue;
                }
                self.sleep();
            };
            match incoming {
                Incoming::InPage(message) => {
                    message.read(0, &mut bytes).map_err(|error| error.to_string())?;
                    kept.push_back(message);
                }
                Incoming::Announced(mut message) => {
                    let pulled = self.receiver.pull(&mut message, &mut bytes);
                    pulled.map_err(|severed| severed.to_string())?;
                    self.sleeper.dawdle();
                    self.receiver.release(message).map_err(|not| not.to_string())?;
                }
                Incoming::List(list) => {
                    let view = list.view(0).ok_or("a list without an entry")?;
                    view.read(0, &mut bytes).map_err(|error| error.to_string())?;
                    self.sleeper.dawdle();
                    self.receiver.give_back_list(list).map_err(|not| not.to_string())?;
                }
                Incoming::Message(_) => return Err("a message that nobody sends".into()),
            }
            expect(u64::from_le_bytes(bytes), expected)?;
        }
        Ok(())
    }

    /// Receives messages, and asks for quiet again and again.
    fn read_quietly(&mut self) -> Result<(), String> {
        let mut received = 0;
        let mut until_quiet = 0;
        loop {
            match next(&mut self.receiver)? {
                Found::Number(number) => {
                    expect(number, received)?;
                    received += 1;
                    self.sleeper.dawdle();
                    if until_quiet == 0 {
                        self.receiver.quiesce();
                        until_quiet = 1 + self.sleeper.dice().below(8);
                    } else {
                        until_quiet -= 1;
                    }
                }
                Found::End => return Ok(()),
                Found::Nothing => match self.receiver.known_point() {
                    Some(point) => {
                        expect(point, received)?;
                        self.sleeper.dawdle();
                        self.receiver.resume();
                    }
                    None => self.sleep(),
                },
            }
        }
    }

    fn sleep(&mut self) {
        let rings = self.receiver.rings() + self.answers.rings();
        self.sleeper.until(&mut self.receiver, rings, |half| half.is_ready());
    }
}

/// The number of the next message, if one is there.
fn next(half: &mut Receiver) -> Result<Found, String> {
    match half.receive() {
        Ok(Some(message)) => {
            let number = message.body.first_chunk().ok_or("a message without its number")?;
            Ok(Found::Number(u64::from_le_bytes(*number)))
        }
        Ok(None) => Ok(Found::Nothing),
        Err(severed) => is_end(severed).map(|()| Found::End),
    }
}

/// Whether the path has ended as it should.
fn is_end(severed: Severed) -> Result<(), String> {
    if severed.reason == Reason::Peer { Ok(()) } else { Err(severed.to_string()) }
}

fn expect(number: u64, expected: u64) -> Result<(), String> {
    if number == expected { Ok(()) } else { Err(format!("{number} came: must be {expected}")) }
}
