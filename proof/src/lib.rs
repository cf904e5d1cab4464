//! Proofs about whole paths.
//!
//! An [`honest`] path is compared with a model in `tests/model`, and IUCV and APPC over it with others in
//! `tests/iucv` and `tests/appc`, which has the [model of a conversation](conversation) from here, as
//! `tests/asleep` does. `tests/limits.rs` is about limits over all queues of a path, and
//! `tests/tokens.rs` about what a half gives out.
//!
//! A [`Bare`](bare::Bare) side has every word that a party may write in its hand, and writes what it
//! likes: `tests/rules.rs` breaks the rules one by one, `tests/endurance.rs` keeps to each single one and
//! goes on and on; `tests/iucv/bare.rs` breaks those of IUCV. A [`Plane`](plane::Plane) is a host that is driven
//! by hand, with parties that say to it what they like: `tests/control.rs` breaks the rules of the control
//! protocol. [`hostile`] peers do what a program of bytes says: random ones in `tests/hostile.rs`, and those that
//! a fuzzer finds worth while in `fuzz/`.
#![forbid(unsafe_code)]

pub mod bare;
pub mod conversation;
pub mod honest;
pub mod hostile;
pub mod plane;
