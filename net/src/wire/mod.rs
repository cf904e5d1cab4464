//! A wire: a network link with a rate, a delay and faults, in memory.
//!
//! [`Model`] decides which frame arrives, when, and in which state, from what was sent, the time and a seed alone. A [`Direction`]
//! is a model with the frames that are under way; a wire is two of them ([`duplex`]). Neither has a clock or a thread: a simulation
//! calls them with virtual time, and whoever moves frames between two devices (`port::wire`) with the machine's.
//!
//! ```text
//!  put -> queue -> transmitter -> propagation -> take
//!         |        rate           delay, and more for a reordered frame
//!         |        lost, duplicated, corrupted
//!         full: dropped
//! ```
//!
//! The reasons are in `docs/design/wire.md`.

mod chance;
mod direction;
mod model;

pub use chance::{Chance, Share};
pub use direction::{Direction, UNDER_WAY_BYTES_MAX, duplex};
pub use model::{Conditions, Counters, Fate, Model, wire_bytes};

#[cfg(test)]
mod tests;
