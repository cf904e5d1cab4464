//! What an observer can derive of each buffer from both sides' counts, without touching the data path.

use super::word::{State, keeps};
use super::{QUEUE_BUFFERS, Sequence};

/// Who may use a buffer now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The writer may fill it.
    Writer,
    /// The reader may read it.
    Reader,
}

/// One buffer, as the counts of both sides describe it when they are read. They are read one after
/// the other while the queue runs, so an owner may have changed between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferAudit {
    /// Who may use it now: the exclusive-or of the low bits of the two counts.
    pub owner: Owner,
    /// Its state, after the side that handed it over last.
    pub state: State,
    /// Hand-overs by the writer.
    pub primed: u32,
    /// Returns by the reader.
    pub returned: u32,
}

/// Describes buffer `index` of a queue with so many hand-overs and returns, whose reader's word of this
/// buffer is `kept`.
pub fn audit(index: usize, primed: u64, returned: u64, kept: u64) -> BufferAudit {
    // Of the hand-overs 0 to n - 1 those of this buffer.
    let of_buffer = |all: u64| {
        let ahead = QUEUE_BUFFERS as u64 - 1 - index as u64;
        Sequence(all.saturating_add(ahead)).count_before()
    };
    let was_used = primed > index as u64;
    let (primed, returned) = (of_buffer(primed), of_buffer(returned));
    let owner = if (primed ^ returned) & 1 == 0 { Owner::Writer } else { Owner::Reader };
    let state = match owner {
        Owner::Reader => State::Primed,
        Owner::Writer if !was_used => State::NotInitialised,
        Owner::Writer if keeps(kept, returned) == Ok(true) => State::Pending,
        Owner::Writer => State::Empty,
    };
    BufferAudit { owner, state, primed, returned }
}

#[cfg(test)]
mod tests {
    use super::super::word::kept_word;
    use super::*;

    #[test]
    fn counts_of_a_buffer_are_reckoned_from_those_of_the_queue() {
        let around = QUEUE_BUFFERS as u64;
        let of = |index, primed, returned| {
            let audit = audit(index, primed, returned, 0);
            (audit.owner, audit.state, audit.primed, audit.returned)
        };
        assert_eq!(of(0, 0, 0), (Owner::Writer, State::NotInitialised, 0, 0));
        assert_eq!(of(0, 1, 0), (Owner::Reader, State::Primed, 1, 0));
        assert_eq!(of(1, 1, 0), (Owner::Writer, State::NotInitialised, 0, 0));
        assert_eq!(of(0, around, around), (Owner::Writer, State::Empty, 1, 1));
        assert_eq!(of(0, around + 1, around), (Owner::Reader, State::Primed, 2, 1));
        let kept = kept_word(2, State::Pending);
        assert_eq!(audit(0, around + 1, around + 1, kept).state, State::Pending);
    }
}
