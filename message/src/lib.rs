//! Conversations over paths: no threads, no clock, no unsafe code.
//!
//! | room | what it is |
//! |---|---|
//! | [`iucv`] | messages with classes, priorities and replies over a path |
//! | [`appc`] | conversations, in which one side sends while the other receives, over a path |
//!
//! Programs use the crate `siga`, which adds waiting. The reasons are in `docs/design`.

pub mod appc;
mod body;
pub mod iucv;
#[cfg(test)]
mod tests;
