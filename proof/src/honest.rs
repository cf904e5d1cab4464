//! Honest paths, and messages that tell where they belong.

use std::sync::LazyLock;

use fabric::iucv::{self, Limits};
use fabric::path::{Halves, Receiver, Sender, Shape, Side, Terms};
use os::doorbell::Doorbell;

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

/// A path between two honest sides.
///
/// # Panics
/// If the machine has no memory or no descriptors left.
pub fn pair(terms: Terms) -> Pair {
    let (mut one, mut other) = sides(Shape::SIMPLE, terms);
    Pair { sender: one.senders.remove(0), receiver: other.receivers.remove(0), back: (one, other) }
}

/// Both sides of a path of IUCV. `limits` are those of the first.
///
/// # Panics
/// If the machine has no memory or no descriptors left.
pub fn iucv(terms: Terms, limits: Limits) -> [iucv::Path; 2] {
    let shape = Shape { outputs: iucv::QUEUES, inputs: iucv::QUEUES };
    let (one, other) = sides(shape, terms);
    let Limits { ours, theirs, parameters_for_us, parameters_for_them } = limits;
    let mirrored = Limits {
        ours: theirs,
        theirs: ours,
        parameters_for_us: parameters_for_them,
        parameters_for_them: parameters_for_us,
    };
    [iucv::Path::new(one, limits), iucv::Path::new(other, mirrored)]
}

/// Both sides of a path. `shape` is that of the first.
fn sides(shape: Shape, terms: Terms) -> (Halves, Halves) {
    let (one, one_descriptors) = Side::create(shape).expect("a side");
    let (other, other_descriptors) = Side::create(shape.mirrored()).expect("a side");
    let bells = (0..shape.outputs + shape.inputs).map(|_| Doorbell::ends().expect("a doorbell"));
    let (bells, far_bells): (Vec<_>, Vec<_>) = bells.unzip();
    let one = one.join(other_descriptors, bells, terms).expect("honest");
    let other = other.join(one_descriptors, far_bells, terms).expect("honest");
    (one, other)
}

/// The longest message that [`body`] can make.
pub const BODY_BYTES_MAX: usize = 4 << 20;

/// Messages with neighbouring numbers start so far apart in the table.
const STEP_BYTES: usize = 61;

const STEPS: usize = 1024;

/// The bytes of message `number`: different from those of its neighbours at every place.
///
/// # Panics
/// If `bytes` are more than [`BODY_BYTES_MAX`].
pub fn body(number: usize, bytes: usize) -> &'static [u8] {
    static TABLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut state = 1_u64;
        (0..BODY_BYTES_MAX + STEPS * STEP_BYTES)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect()
    });
    &TABLE[number % STEPS * STEP_BYTES..][..bytes]
}
