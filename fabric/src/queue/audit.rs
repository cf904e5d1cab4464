//! What a watcher can say of each buffer from both sides' words, without touching the data path.

use super::word::{Owner, State};

/// One buffer, as its two words describe it at the moment of looking. The words are read one after the
/// other while the queue runs, so an owner may have changed between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferAudit {
    /// Who may use it now.
    pub owner: Owner,
    /// What the side that handed it over last says of it; `None` if that is no state.
    pub state: Option<State>,
    /// Hand-overs by the writer.
    pub primed: u32,
    /// Give-backs by the reader.
    pub given_back: u32,
}

/// Reads one buffer's two words. `writer` may be the mirror of the writer's word.
pub fn audit(writer: u64, reader: u64) -> BufferAudit {
    let (primed, given_back) = (writer as u32, reader as u32);
    let owner = Owner::of(primed, given_back);
    let last = match owner {
        Owner::Writer => reader,
        Owner::Reader => writer,
    };
    BufferAudit { owner, state: State::from_bits((last >> 32) as u8), primed, given_back }
}
