//! Proofs about whole paths.
//!
//! An [`honest`] path is compared with a model in `tests/model.rs`.
//!
//! A [`Bare`](bare::Bare) side has every word that a party may write in its hand, and writes what it
//! likes: `tests/rules.rs` breaks the rules one by one.
#![forbid(unsafe_code)]

pub mod bare;
pub mod honest;
