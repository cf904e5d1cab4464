//! The data path: no threads, no clock, no unsafe code.
//!
//! In the order in which a byte passes them:
//!
//! | room | what it is |
//! |---|---|
//! | [`queue`] | buffers that go from a writer to a reader and back |
//! | [`path`] | messages over queues: in place, packed, in pages, announced |
//! | [`control`] | what guests and the host send each other before there is a path |
//! | [`mod@name`] | names of guests |
//! | [`rate`] | how often an owner may have something done in a second |
//! | [`snapshot`] | words that are changed together and read together |
//!
//! Conversations over paths are in the crate `message`. Programs use the crate `siga`, which adds waiting.
//! The reasons are in `docs/design`.

#[cfg(not(loom))]
pub mod control;
mod listed;
pub mod name;
#[cfg(not(loom))]
pub mod path;
pub mod queue;
pub mod rate;
#[cfg(not(loom))]
pub mod snapshot;
