//! Proofs that need a peer without manners.
//!
//! A [`Bare`](bare::Bare) side has every word that a party may write in its hand, and writes what it
//! likes: `tests/rules.rs` breaks the rules one by one.
#![forbid(unsafe_code)]

pub mod bare;
