//! What a source has sent and not seen complete.

use super::event::{Audit, Completion};
use super::record::MessageId;
use fabric::path::{self, Lack, Severed};
use fabric::queue::Violation;

/// How to send a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outgoing {
    /// (TRGCLS) The class by which the target finds it.
    pub target_class: u32,
    /// (SRCCLS) The class by which we find its completion.
    pub source_class: u32,
    /// (MSGTAG) A number of ours that its completion carries.
    pub tag: u32,
    /// Whether it goes before those without priority.
    pub priority: bool,
    /// The longest reply that we take; none for a one-way message.
    pub reply_bytes_max: Option<u32>,
    /// Whether we want no completion when it was received. Only of use one-way; that it was not received is
    /// notified anyway.
    pub quiet: bool,
}

/// Why a message was not sent. The numbers in brackets are IUCV's return codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// (3) As many messages are outstanding as the path allows. What frees an index may stand behind more than
    /// one verb polls: the path is ready then, and sending again polls on.
    #[error("{limit} messages are outstanding, as many as the path allows")]
    Limit {
        /// How many that is.
        limit: u32,
    },
    /// (2) The target has quiesced the path.
    #[error("the target has quiesced the path")]
    Quiesced,
    /// (21) The target does not take data in the parameter list.
    #[error("the target takes no data in the parameter list")]
    NoParameters,
    /// The message is longer than the storage of the path allows.
    #[error("a message of this length does not go through this path: at most {most} bytes")]
    TooLong {
        /// The limit.
        most: u64,
    },
    /// Something is missing that no wait brings back.
    #[error("nothing was sent: {0}")]
    Lacking(Lack),
    /// (1) The path has ended.
    #[error(transparent)]
    Severed(#[from] Severed),
}

/// Why a message was not sent by a verb that does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrySendError {
    /// The target is too far behind: it does not take what is sent.
    #[error("the target is too far behind")]
    Full,
    /// Waiting for room would not have helped.
    #[error(transparent)]
    Send(#[from] SendError),
}

impl From<path::SendError> for TrySendError {
    fn from(error: path::SendError) -> TrySendError {
        TrySendError::Send(match error {
            path::SendError::Full => return TrySendError::Full,
            path::SendError::TooLong { most } => SendError::TooLong { most },
            path::SendError::Lacking(lack) => SendError::Lacking(lack),
            path::SendError::Quiesced => SendError::Quiesced,
            path::SendError::Severed(severed) => SendError::Severed(severed),
        })
    }
}

/// A message that was sent and is not complete, or whose completion was not taken.
// As short as can be: a stream goes through thousands of them before it comes to the first again.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
pub(super) struct Entry {
    pub(super) id: MessageId,
    pub(super) source_class: u32,
    pub(super) tag: u32,
    pub(super) state: State,
    pub(super) priority: bool,
    pub(super) quiet: bool,
    pub(super) is_two_way: bool,
}

const _: () = assert!(size_of::<Entry>() == 16);

impl Entry {
    #[inline(always)]
    fn of(outgoing: &Outgoing, id: MessageId) -> Entry {
        Entry {
            id,
            source_class: outgoing.source_class,
            tag: outgoing.tag,
            state: State::Sent,
            priority: outgoing.priority,
            quiet: outgoing.quiet,
            is_two_way: outgoing.reply_bytes_max.is_some(),
        }
    }

    /// What has become of it, if it was not replied to.
    pub(super) fn completion(&self, audit: Audit) -> Completion {
        let Entry { id, source_class, tag, priority, .. } = *self;
        Completion { id, source_class, tag, priority, audit, ..Completion::default() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Its index is free.
    Free,
    /// It is with the target.
    Sent,
    /// We have purged it; the control record is pending.
    Purging,
    /// We have purged it; the control record is pending, and the target is done with the message.
    PurgedLate,
    /// We have purged it; the target has not acknowledged that.
    Purged,
    /// It waits for its completion to be taken.
    Complete,
}

/// The messages of one source, by the indexes in their identities.
#[derive(Debug)]
pub(super) struct Table {
    entries: Vec<Entry>,
    /// Of entries that are two-way: the longest reply.
    reply_limits: Vec<u32>,
    /// The index that was freed last at the end.
    free: Vec<u16>,
    /// How many there have been: its low half tells those apart that have had an index one after the other.
    // As wide as it is loaded: a load of more than was stored just now waits for all stores before it.
    opened: u32,
    limit: u32,
}

impl Table {
    pub(super) fn new(limit: u32) -> Table {
        Table { entries: Vec::new(), reply_limits: Vec::new(), free: Vec::new(), opened: 0, limit }
    }

    /// How many there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty() && self.entries.len() >= self.limit as usize
    }

    /// Makes an entry for a message; none if as many are outstanding as may be.
    #[inline(always)]
    pub(super) fn open(&mut self, outgoing: &Outgoing) -> Option<MessageId> {
        let index = match self.free.pop() {
            Some(index) => usize::from(index),
            None => self.add_index()?,
        };
        self.opened = self.opened.wrapping_add(1);
        let id = MessageId::new(index, self.opened as u16);
        self.entries[index] = Entry::of(outgoing, id);
        if let Some(most) = outgoing.reply_bytes_max {
            self.reply_limits[index] = most;
        }
        Some(id)
    }

    /// An index that no message has had.
    #[inline(never)]
    fn add_index(&mut self) -> Option<usize> {
        let index = self.entries.len();
        (index < self.limit as usize).then(|| {
            self.entries.push(Entry::of(&Outgoing::default(), MessageId::new(index, 0)));
            self.reply_limits.push(0);
            index
        })
    }

    /// The longest reply to a message; none if there is no such message, or it is one-way.
    pub(super) fn reply_bytes_max(&mut self, id: MessageId) -> Option<u32> {
        let is_two_way = self.get_mut(id)?.is_two_way;
        is_two_way.then(|| self.reply_limits[id.index()])
    }

    /// The entry of this identity, if there is one.
    #[inline]
    pub(super) fn get_mut(&mut self, id: MessageId) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(id.index())?;
        (entry.id == id && entry.state != State::Free).then_some(entry)
    }

    /// The target is done with a message. None if we have purged it: then no completion comes, and its index is
    /// taken until our control record about it is sent, so that there are never more such records than indexes.
    ///
    /// # Errors
    /// If the target was done with it before.
    pub(super) fn end(&mut self, id: MessageId) -> Result<Option<Entry>, Violation> {
        let entry = self.get_mut(id).ok_or(Violation::Record)?;
        match entry.state {
            State::Sent => {
                entry.state = State::Complete;
                return Ok(Some(*entry));
            }
            State::Purging => entry.state = State::PurgedLate,
            State::Purged => self.close(id),
            _ => return Err(Violation::Record),
        }
        Ok(None)
    }

    /// The target has received a one-way message. None if we have purged it, or no completion is wanted.
    ///
    /// # Errors
    /// If the target was done with it before, or if the message is two-way: then the path ends, and a source that waits
    /// for the reply learns that.
    #[inline]
    pub(super) fn end_one_way(&mut self, id: MessageId) -> Result<Option<Entry>, Violation> {
        let entry = self.get_mut(id).filter(|entry| !entry.is_two_way).ok_or(Violation::Record)?;
        if entry.state == State::Sent && entry.quiet {
            self.close(id);
            return Ok(None);
        }
        self.end(id)
    }

    /// All that are with the target are complete now, in the order of their indexes.
    pub(super) fn end_all(&mut self) -> Vec<Entry> {
        let sent = self.entries.iter_mut().filter(|entry| entry.state == State::Sent);
        sent.map(|entry| (entry.state = State::Complete, *entry).1).collect()
    }

    /// Frees an entry's index.
    #[inline]
    pub(super) fn close(&mut self, id: MessageId) {
        if let Some(entry) = self.get_mut(id) {
            entry.state = State::Free;
            self.free.push(id.index() as u16);
        }
    }

    /// Whether one will be freed without anybody taking its completion.
    pub(super) fn will_free(&self) -> bool {
        self.entries.iter().any(|entry| match entry.state {
            State::Sent => entry.quiet && !entry.is_two_way,
            State::Purging | State::Purged | State::PurgedLate => true,
            State::Free | State::Complete => false,
        })
    }

    /// Whether there is an entry in this state.
    pub(super) fn has(&self, state: State) -> bool {
        self.entries.iter().any(|entry| entry.state == state)
    }

    /// How many entries are in this state.
    pub(super) fn count(&self, state: State) -> usize {
        self.entries.iter().filter(|entry| entry.state == state).count()
    }
}
