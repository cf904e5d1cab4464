//! Two guests, a channel and the control unit of a line in one thread, with every path between them.

use channel::client::ClientError;
use channel::ctc::adapter::Side;
use channel::ctc::line::{Line, LineEvent};
use channel::ctc::unit::{Unit, use_of};
use channel::exchange::pair;
use channel::{Channel, Guests};
use fabric::path::{Receiver, Sender, Shape, Terms};
use os::doorbell::Doorbell;

/// Blocks of each line at most, in these tests.
pub const BLOCK_BYTES: u32 = 8192;
/// Turns in which everything that was begun must come to rest.
const TURNS_MAX: usize = 10_000;

/// One side of every guest's path.
pub struct Sides(pub Vec<Option<(Sender, Receiver)>>);

impl Guests for Sides {
    fn halves(&mut self, guest: usize) -> Option<(&mut Sender, &mut Receiver)> {
        self.0.get_mut(guest)?.as_mut().map(|(sender, receiver)| (sender, receiver))
    }
}

/// Both ends of a path.
pub fn path() -> ((Sender, Receiver), (Sender, Receiver)) {
    let terms =
        Terms { storage_bytes_max: 1 << 24, peer_storage_bytes_max: 1 << 24, ..Terms::DEFAULT };
    let (left, left_shown) = fabric::path::Side::create(Shape::SIMPLE).unwrap();
    let (right, right_shown) = fabric::path::Side::create(Shape::SIMPLE).unwrap();
    let (mut left_bells, mut right_bells) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let (one, other) = Doorbell::ends().unwrap();
        left_bells.push(one);
        right_bells.push(other);
    }
    let mut left = left.join(right_shown, left_bells, terms).unwrap();
    let mut right = right.join(left_shown, right_bells, terms).unwrap();
    (
        (left.senders.remove(0), left.receivers.remove(0)),
        (right.senders.remove(0), right.receivers.remove(0)),
    )
}

/// All parties but the guests.
pub struct World {
    pub unit: Unit,
    pub channel: Channel,
    pub sides: Sides,
    pub now_ns: u64,
}

impl World {
    /// A control unit with so many lines, and a channel with two channel paths.
    pub fn new(lines: u32) -> World {
        let (mut unit, mut channel) = (Unit::new(), Channel::new());
        for _ in 0..2 {
            let (ours, theirs) = pair(Terms::DEFAULT).unwrap();
            channel.add_link(ours);
            unit.add_link(theirs);
        }
        (0..lines).for_each(|line| assert_eq!(unit.add_line(), Some(line)));
        World { unit, channel, sides: Sides(Vec::new()), now_ns: 0 }
    }

    /// A guest on a side of a line, which is attached.
    pub fn guest(&mut self, line: u32, side: Side) -> Guest {
        let mut guest = self.asking(line, side);
        assert_eq!(guest.poll(), Some(LineEvent::Attached));
        guest
    }

    /// A guest that wants a side of a line, and has an answer.
    pub fn asking(&mut self, line: u32, side: Side) -> Guest {
        let (theirs, mut ours) = path();
        let number = self.sides.0.len();
        self.sides.0.push(Some(theirs));
        let (sender, _) = self.sides.0[number].as_mut().unwrap();
        self.channel.attach(number, sender, use_of(line, side)).unwrap();
        let line = Line::new(BLOCK_BYTES, &mut ours.0).unwrap();
        self.run();
        Guest { number, line, sender: ours.0, receiver: ours.1 }
    }

    /// A guest is gone.
    pub fn kill(&mut self, guest: Guest) {
        let number = guest.number;
        drop(guest);
        self.sides.0[number] = None;
        self.channel.detach(number);
        self.run();
    }

    /// Everybody does what there is to do.
    pub fn run(&mut self) {
        for _ in 0..TURNS_MAX {
            if !self.turn() {
                return;
            }
        }
        panic!("no rest");
    }

    /// Everybody has a turn. False if nobody had anything to do.
    pub fn turn(&mut self) -> bool {
        self.now_ns += 1000;
        let mut found = false;
        for number in 0..self.sides.0.len() {
            let Some((sender, receiver)) = &mut self.sides.0[number] else { continue };
            match self.channel.poll_guest(number, sender, receiver, self.now_ns) {
                Ok(polled) => found |= polled,
                Err(_) => {
                    self.sides.0[number] = None;
                    self.channel.detach(number);
                    found = true;
                }
            }
        }
        found |= self.unit.poll();
        found |= self.channel.poll_units(&mut self.sides, self.now_ns).unwrap();
        self.channel.flush();
        found
    }
}

/// A guest.
pub struct Guest {
    pub number: usize,
    pub line: Line,
    pub sender: Sender,
    pub receiver: Receiver,
}

impl Guest {
    pub fn try_poll(&mut self) -> Result<Option<LineEvent>, ClientError> {
        self.line.poll(&mut self.receiver)
    }

    pub fn poll(&mut self) -> Option<LineEvent> {
        self.try_poll().unwrap()
    }

    /// What the last program has read.
    pub fn block(&self) -> Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES as usize];
        let bytes = self.line.copy(&mut block).unwrap();
        block.truncate(bytes);
        block
    }

    pub fn read(&mut self) {
        self.line.read(&mut self.sender).unwrap();
    }

    /// Writes a block.
    pub fn write(&mut self, block: &[u8]) {
        self.line.write_buffer()[..block.len()].copy_from_slice(block);
        self.line.write(block.len() as u32, &mut self.sender).unwrap();
    }
}
