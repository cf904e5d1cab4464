//! Honest paths, and messages whose bytes identify them.

use std::sync::LazyLock;

use fabric::control::Kind;
use fabric::path::board::{self, ReaderBlock, WriterBlock};
use fabric::path::{Halves, Receiver, Sender, Shape, Side, SideDescriptors, Terms};
use message::iucv::{self, Limits};
use os::doorbell::Doorbell;
use os::foreign::Foreign;
use os::storage::Borrowed;
use os::words::LentWords;

use crate::pattern;

/// A path in one direction, with both its halves in this process.
#[derive(Debug)]
pub struct Pair {
    /// The half that sends.
    pub sender: Sender,
    /// The half that receives.
    pub receiver: Receiver,
    /// The other direction, which has to live too.
    pub back: (Halves, Halves),
}

/// What the halves of a [`Pair`] show to those who watch.
#[derive(Debug)]
pub struct Shown {
    /// The half that sends.
    pub writer: WriterBlock<LentWords>,
    /// The half that receives.
    pub reader: ReaderBlock<LentWords>,
    /// The halves of the other direction.
    pub back: (WriterBlock<LentWords>, ReaderBlock<LentWords>),
}

/// A path between two honest sides.
///
/// # Panics
/// If the machine has no memory or no descriptors left.
pub fn pair(terms: Terms) -> Pair {
    shown_pair(terms).0
}

/// The same, with what it shows.
///
/// # Panics
/// If the machine has no memory or no descriptors left.
pub fn shown_pair(terms: Terms) -> (Pair, Shown) {
    let shape = Shape::SIMPLE;
    let (sides, [of_one, of_other]) = created(shape);
    let (mut one, mut other) = join(shape, Kind::MESSAGES, terms, sides);
    let (sender, receiver) = (one.senders.remove(0), other.receivers.remove(0));
    let shown = Shown {
        writer: board::writer_block(&of_one, shape, 0),
        reader: board::reader_block(&of_other, shape, 0),
        back: (board::writer_block(&of_other, shape, 0), board::reader_block(&of_one, shape, 0)),
    };
    (Pair { sender, receiver, back: (one, other) }, shown)
}

/// Both sides of a path of IUCV. `limits` are those of the first.
///
/// # Panics
/// If the machine has no memory or no descriptors left.
pub fn iucv(terms: Terms, limits: Limits) -> [iucv::Path; 2] {
    let shape = Shape { outputs: iucv::QUEUES, inputs: iucv::QUEUES };
    let (one, other) = sides(shape, Kind::IUCV, terms);
    let Limits { ours, theirs, parameters_for_us, parameters_for_them } = limits;
    let mirrored = Limits {
        ours: theirs,
        theirs: ours,
        parameters_for_us: parameters_for_them,
        parameters_for_them: parameters_for_us,
    };
    [iucv::Path::new(one, limits), iucv::Path::new(other, mirrored)]
}

/// Both sides of a path of this kind. `shape` is that of the first.
///
/// # Panics
/// If the machine has no memory or no descriptors left.
pub fn sides(shape: Shape, kind: Kind, terms: Terms) -> (Halves, Halves) {
    join(shape, kind, terms, created(shape).0)
}

type Created = (Side, SideDescriptors);

/// Both sides, and what they show.
fn created(shape: Shape) -> ([Created; 2], [LentWords; 2]) {
    let sides = [shape, shape.mirrored()].map(|shape| Side::create(shape).expect("a side"));
    let shown = sides.each_ref().map(|(_, descriptors)| {
        let board = descriptors.board.try_clone().expect("a descriptor left");
        let board = Borrowed::borrow(Foreign::from(board), 1..=usize::MAX).expect("a board");
        LentWords::borrow(board)
    });
    (sides, shown)
}

fn join(
    shape: Shape,
    kind: Kind,
    terms: Terms,
    [(one, one_descriptors), (other, other_descriptors)]: [Created; 2],
) -> (Halves, Halves) {
    let ends = (0..kind.doorbells(shape)).map(|_| Doorbell::ends().expect("a doorbell"));
    let (ends, far_ends): (Vec<_>, Vec<_>) = ends.unzip();
    let one = one.join(other_descriptors, ends, terms).expect("honest");
    let other = other.join(one_descriptors, far_ends, terms).expect("honest");
    (one, other)
}

/// The longest message that [`body`] can make.
pub const BODY_BYTES_MAX: usize = 4 << 20;

/// Messages with neighbouring numbers start so far apart in the table.
const STEP_BYTES: usize = 61;

const STEPS: usize = 1024;

/// The bytes of message `number`: different from those of the messages with nearby numbers.
///
/// # Panics
/// If `bytes` are more than [`BODY_BYTES_MAX`].
pub fn body(number: usize, bytes: usize) -> &'static [u8] {
    static TABLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut table = vec![0; BODY_BYTES_MAX + STEPS * STEP_BYTES];
        pattern::fill(1, &mut table);
        table
    });
    &TABLE[number % STEPS * STEP_BYTES..][..bytes]
}
