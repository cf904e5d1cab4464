//! What has come over a path and was not taken: messages of the other side's, or completions of our own.
//!
//! One of each queue stays *in front*, where it lies; the others are *buffered*, found as the next, by class, or
//! by identity.

use fabric::path::{Receiver, Severed};

use super::event::{Completion, PendingMessage};
use super::path::{ReceiveError, Which};
use super::record::{MessageId, QUEUES};
use super::store::Store;
use crate::body::BodyReader;

/// What has come, by which it is found.
pub(super) trait Facts: Copy {
    fn known(&self) -> Known;
}

/// What is known of what has come.
pub(super) struct Known {
    pub(super) id: MessageId,
    pub(super) class: u32,
    pub(super) priority: bool,
    /// The queue over which it came.
    pub(super) queue: usize,
}

impl Facts for PendingMessage {
    #[inline(always)]
    fn known(&self) -> Known {
        let PendingMessage { id, class, priority, .. } = *self;
        Known { id, class, priority, queue: usize::from(priority) }
    }
}

/// All completions come over the second queue.
impl Facts for Completion {
    #[inline(always)]
    fn known(&self) -> Known {
        let Completion { id, source_class: class, priority, .. } = *self;
        Known { id, class, priority, queue: 1 }
    }
}

/// Something that has come, and its body.
#[derive(Debug)]
pub(super) struct Item<T> {
    pub(super) of: T,
    pub(super) body: BodyReader,
    /// Whether its event was given.
    pub(super) notified: bool,
}

// A short message lies within the two cache lines of its slot.
const _: () = assert!(Store::<PendingMessage>::SLOT_BYTES == 128);

/// All of a kind that have come.
#[derive(Debug, Default)]
pub(super) struct Inbox<T> {
    /// By queue.
    fronts: [Option<Item<T>>; QUEUES],
    store: Store<T>,
}

/// Where something was found.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    Front(usize),
    Buffered(MessageId),
}

impl<T: Facts> Inbox<T> {
    /// How many there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.store.len() + self.fronts.iter().flatten().count()
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.store.len() == 0 && self.fronts.iter().all(Option::is_none)
    }

    /// Bytes of our own memory that buffered items take.
    pub(super) fn buffered_bytes(&self) -> usize {
        self.store.buffered_bytes()
    }

    /// Whether one has an identity with this index.
    pub(super) fn has_index(&self, id: MessageId) -> bool {
        let mut fronts = self.fronts.iter().flatten();
        self.store.has_index(id) || fronts.any(|item| item.of.known().id.index() == id.index())
    }

    /// What stands in front of a queue.
    #[inline]
    pub(super) fn front(&self, queue: usize) -> Option<&Item<T>> {
        self.fronts[queue].as_ref()
    }

    /// Puts something in front of its queue, where nothing stands.
    #[inline]
    pub(super) fn put_in_front(&mut self, of: T, body: BodyReader) {
        self.fronts[of.known().queue] = Some(Item { of, body, notified: false });
    }

    /// Buffers what stands in front of a queue. A forked child, to which nothing comes, does not have the bytes
    /// to copy.
    pub(super) fn buffer_front(&mut self, queue: usize, receivers: &mut [Receiver; QUEUES]) {
        if receivers[queue].refuse_child().is_ok()
            && let Some(item) = self.fronts[queue].take()
        {
            self.store.add(Item { body: item.body.buffer(&mut receivers[queue]), ..item });
        }
    }

    /// Keeps something without a body, behind those of before.
    pub(super) fn keep(&mut self, of: T) {
        self.store.add(Item { of, body: BodyReader::none(), notified: false });
    }

    /// The one that is meant, if it has come.
    ///
    /// # Errors
    /// [`ReceiveError::WrongClass`].
    #[inline]
    pub(super) fn find(&self, which: Which) -> Result<Option<Found>, ReceiveError> {
        let class = match which {
            Which::Any => None,
            Which::Class(class) => Some(class),
            Which::Message { id, class } => {
                let Some(found) = self.find_id(id) else { return Ok(None) };
                let known = self.get(found).of.known();
                let wrong = ReceiveError::WrongClass { class: known.class };
                return if known.class == class { Ok(Some(found)) } else { Err(wrong) };
            }
        };
        Ok(self.next(class, true).or_else(|| self.next(class, false)))
    }

    #[inline]
    fn find_id(&self, id: MessageId) -> Option<Found> {
        let is_front = |queue: &usize| self.front(*queue).is_some_and(|f| f.of.known().id == id);
        let front = (0..QUEUES).find(is_front).map(Found::Front);
        front.or_else(|| self.store.get(id).map(|_| Found::Buffered(id)))
    }

    /// The next of those with priority, or of those without, perhaps of a class.
    #[inline]
    fn next(&self, class: Option<u32>, priority: bool) -> Option<Found> {
        let is_meant = |item: &Item<T>| {
            let known = item.of.known();
            known.priority == priority && class.is_none_or(|class| class == known.class)
        };
        let front = || (0..QUEUES).find(|queue| self.front(*queue).is_some_and(is_meant));
        self.store.next(class, priority).map(Found::Buffered).or_else(|| front().map(Found::Front))
    }

    /// What is known of one that was found, and its body.
    pub(super) fn get(&self, found: Found) -> &Item<T> {
        let item = match found {
            Found::Front(queue) => self.front(queue),
            Found::Buffered(id) => self.store.get(id),
        };
        item.expect("found")
    }

    /// The body of one of this identity.
    pub(super) fn body(&self, id: MessageId) -> Option<&BodyReader> {
        self.find_id(id).map(|found| &self.get(found).body)
    }

    /// Copies what is left of one that was found into `target`: what is known of it, how many bytes were
    /// copied, and how many are left. It is taken out when none are; when some are left of it, it is found by
    /// its identity alone.
    ///
    /// # Errors
    /// The end of the path, if the rest is not to be had: it is taken out then.
    #[inline]
    pub(super) fn read(
        &mut self,
        found: Found,
        receivers: &mut [Receiver; QUEUES],
        target: &mut [u8],
    ) -> (T, Result<(usize, usize), Severed>) {
        let item = match found {
            Found::Front(queue) => self.fronts[queue].as_mut(),
            Found::Buffered(id) => self.store.get_mut(id),
        };
        let Item { of, body, .. } = item.expect("found");
        let (of, Known { id, queue, .. }) = (*of, of.known());
        let read = body.read(&mut receivers[queue], target);
        let left = body.left();
        if read.is_err() || left == 0 {
            self.take_found(found, receivers);
        } else {
            if let Found::Front(queue) = found {
                self.buffer_front(queue, receivers);
            }
            if read.is_ok_and(|bytes| bytes > 0) {
                self.store.unlist(id);
            }
        }
        (of, read.map(|bytes| (bytes, left)))
    }

    /// Takes the one of this identity out, and gives back what it keeps.
    pub(super) fn take(&mut self, id: MessageId, receivers: &mut [Receiver; QUEUES]) -> Option<T> {
        self.find_id(id).map(|found| self.take_found(found, receivers))
    }

    /// Takes one out that was found, and gives back what it keeps.
    #[inline]
    pub(super) fn take_found(&mut self, found: Found, receivers: &mut [Receiver; QUEUES]) -> T {
        let item = match found {
            Found::Front(queue) => self.fronts[queue].take(),
            Found::Buffered(id) => self.store.remove(id),
        };
        let Item { of, body, .. } = item.expect("found");
        body.release(&mut receivers[of.known().queue]);
        of
    }

    /// The next with or without priority that nobody was notified of. Its event counts as given from now on.
    pub(super) fn notify(&mut self, priority: bool) -> Option<T> {
        self.store.notify(priority).or_else(|| {
            let is_new = |new: &&mut Item<T>| new.of.known().priority == priority && !new.notified;
            let item = self.fronts.iter_mut().flatten().find(is_new)?;
            item.notified = true;
            Some(item.of)
        })
    }

    /// Whether there is one without priority that nobody was notified of.
    pub(super) fn has_plain_new(&self) -> bool {
        let mut fronts = self.fronts.iter().flatten();
        self.store.has_new(false) || fronts.any(|item| !item.of.known().priority && !item.notified)
    }
}
