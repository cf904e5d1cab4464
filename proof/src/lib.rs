//! Proofs about whole paths.
//!
//! An [`honest`] path is compared with a model in `tests/model`, and IUCV and APPC over it with others in
//! `tests/iucv` and `tests/appc`, which has the [model of a conversation](conversation) from here, as
//! `tests/asleep` does. `tests/limits.rs` is about limits over all queues of a path, and `tests/tokens.rs` about
//! the tokens of a half.
//!
//! A [`Bare`](bare::Bare) side can write any value to every word that a party may write: `tests/rules.rs`
//! breaks the rules one by one, `tests/endurance.rs` obeys each single one without end; `tests/iucv/bare.rs`
//! breaks those of IUCV. A [`Plane`](plane::Plane) is a host that tests drive step by step, with parties that
//! can send it any packet: `tests/control.rs` breaks the rules of the control protocol. [`hostile`] peers are
//! driven by a script of bytes: of random bytes in `tests/hostile.rs`, of a fuzzer's in `fuzz/`. [`pattern`]
//! and [`dice`] make test bytes and random numbers from a seed, and a [`Hoard`](hoard::Hoard) uses up a
//! resource of the process.

pub mod bare;
pub mod conversation;
pub mod dice;
pub mod hoard;
pub mod honest;
pub mod hostile;
pub mod pattern;
pub mod plane;

/// Returns true if tests that have a larger size are to run at that size, as `./test long` says with the variable `SIGA_LONG`.
pub fn is_long() -> bool {
    std::env::var_os("SIGA_LONG").is_some_and(|value| !value.is_empty())
}
