//! What has come over a path and was not taken: messages of the other side's, or completions of our own.
//!
//! One of each queue stays *in front*, where it lies; the others are *kept*, found as the next, by class, or by
//! identity.

use fabric::path::{Receiver, Severed};

use super::event::{Completion, Pending};
use super::path::Which;
use super::record::{MessageId, QUEUES};
use super::store::Store;
use crate::body::BodyReader;

/// What is known of what has come.
pub(super) trait Facts: Copy {
    fn id(&self) -> MessageId;
    fn class(&self) -> u32;
    fn priority(&self) -> bool;
    /// The queue over which it came.
    fn queue(&self) -> usize;
}

impl Facts for Pending {
    fn id(&self) -> MessageId {
        self.id
    }

    fn class(&self) -> u32 {
        self.class
    }

    fn priority(&self) -> bool {
        self.priority
    }

    fn queue(&self) -> usize {
        usize::from(self.priority)
    }
}

/// All completions come over the second queue.
impl Facts for Completion {
    fn id(&self) -> MessageId {
        self.id
    }

    fn class(&self) -> u32 {
        self.source_class
    }

    fn priority(&self) -> bool {
        self.priority
    }

    fn queue(&self) -> usize {
        1
    }
}

/// Something that has come, and its body.
#[derive(Debug)]
pub(super) struct Item<T> {
    pub(super) of: T,
    pub(super) body: BodyReader,
}

// A short message is one look away.
const _: () = assert!(Store::<Item<Pending>>::SEAT_BYTES == 128);

/// All of a kind that have come.
#[derive(Debug)]
pub(super) struct Inbox<T> {
    /// By queue, and whether somebody was told of it.
    fronts: [Option<(Item<T>, bool)>; QUEUES],
    kept: Store<Item<T>>,
    kept_bytes: usize,
}

/// Where something was found.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    Front(usize),
    Kept(MessageId),
}

/// The one of the identity that was asked for is of another class.
#[derive(Clone, Copy, Debug)]
pub(super) struct WrongClass(pub(super) u32);

impl<T> Default for Inbox<T> {
    fn default() -> Inbox<T> {
        Inbox { fronts: [None, None], kept: Store::default(), kept_bytes: 0 }
    }
}

impl<T: Facts> Inbox<T> {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.kept.len() + self.fronts.iter().flatten().count()
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.fronts.iter().all(Option::is_none)
    }

    /// Bytes of our own memory that are kept.
    pub(super) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Whether one has an identity with this place.
    pub(super) fn has_place(&self, id: MessageId) -> bool {
        let mut fronts = self.fronts.iter().flatten();
        self.kept.has_place(id) || fronts.any(|(item, _)| item.of.id().place() == id.place())
    }

    /// What stands in front of a queue.
    #[inline]
    pub(super) fn front(&self, queue: usize) -> Option<&Item<T>> {
        self.fronts[queue].as_ref().map(|(item, _)| item)
    }

    /// Puts something in front of its queue, where nothing stands.
    #[inline]
    pub(super) fn put_in_front(&mut self, item: Item<T>) {
        let queue = item.of.queue();
        self.fronts[queue] = Some((item, false));
    }

    #[inline]
    pub(super) fn take_front(&mut self, queue: usize) -> Option<Item<T>> {
        self.fronts[queue].take().map(|(item, _)| item)
    }

    /// Takes what stands in front of a queue out of its way.
    pub(super) fn park(&mut self, queue: usize, receivers: &mut [Receiver; QUEUES]) {
        if let Some((Item { of, body }, told)) = self.fronts[queue].take() {
            self.keep(Item { of, body: body.park(&mut receivers[queue]) }, told);
        }
    }

    /// Keeps something, behind those of before.
    pub(super) fn keep(&mut self, item: Item<T>, told: bool) {
        self.kept_bytes += item.body.kept_bytes();
        let of = item.of;
        self.kept.add(of.id(), of.class(), of.priority(), told, item);
    }

    /// The one that is meant, if it has come.
    #[inline]
    pub(super) fn find(&self, which: Which) -> Result<Option<Found>, WrongClass> {
        let Which::Message { id, class } = which else {
            return Ok([true, false].into_iter().find_map(|priority| self.next(which, priority)));
        };
        let kept = self.kept.get(id).map(|item| (item, Found::Kept(id)));
        let front = |queue| Some((self.front(queue)?, Found::Front(queue)));
        let mut all = kept.into_iter().chain((0..QUEUES).filter_map(front));
        match all.find(|(item, _)| item.of.id() == id) {
            Some((item, _)) if item.of.class() != class => Err(WrongClass(item.of.class())),
            found => Ok(found.map(|(_, place)| place)),
        }
    }

    /// The next of those with priority, or of those without.
    #[inline]
    fn next(&self, which: Which, priority: bool) -> Option<Found> {
        let kept = match which {
            Which::Class(class) => self.kept.next_of_class(class, priority),
            _ => self.kept.next(priority),
        };
        let is_meant = |item: &Item<T>| {
            item.of.priority() == priority
                && !matches!(which, Which::Class(class) if class != item.of.class())
        };
        let front = || (0..QUEUES).find(|queue| self.front(*queue).is_some_and(is_meant));
        kept.map(Found::Kept).or_else(|| front().map(Found::Front))
    }

    /// What is known of one that was found, and its body.
    pub(super) fn get(&self, found: Found) -> &Item<T> {
        let item = match found {
            Found::Front(queue) => self.front(queue),
            Found::Kept(id) => self.kept.get(id),
        };
        item.expect("found")
    }

    /// The body of one of this identity.
    pub(super) fn body(&self, id: MessageId) -> Option<&BodyReader> {
        let mut fronts = self.fronts.iter().flatten().map(|(item, _)| item);
        let item = self.kept.get(id).or_else(|| fronts.find(|item| item.of.id() == id));
        item.map(|item| &item.body)
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
        let (of, read, left) = match found {
            Found::Front(queue) => {
                let (mut item, told) = self.fronts[queue].take().expect("found");
                let read = item.body.read(&mut receivers[queue], target);
                let (of, left) = (item.of, item.body.left());
                if read.is_err() || left == 0 {
                    item.body.release(&mut receivers[queue]);
                } else {
                    self.fronts[queue] = Some((item, told));
                    self.park(queue, receivers);
                }
                (of, read, left)
            }
            Found::Kept(id) => {
                let item = self.kept.get_mut(id).expect("found");
                let read = item.body.read(&mut receivers[item.of.queue()], target);
                let (of, left) = (item.of, item.body.left());
                if read.is_err() || left == 0 {
                    self.take(id, receivers);
                }
                (of, read, left)
            }
        };
        if left > 0 && read.is_ok_and(|bytes| bytes > 0) {
            self.kept.unlist(of.id());
        }
        (of, read.map(|bytes| (bytes, left)))
    }

    /// Takes the one of this identity out, and gives back what it keeps.
    pub(super) fn take(&mut self, id: MessageId, receivers: &mut [Receiver; QUEUES]) -> Option<T> {
        let is_it = |front: &Option<(Item<T>, bool)>| {
            front.as_ref().is_some_and(|(item, _)| item.of.id() == id)
        };
        let front = self.fronts.iter_mut().find(|front| is_it(front)).and_then(Option::take);
        let item = match front {
            Some((item, _)) => item,
            None => {
                let item = self.kept.remove(id)?;
                self.kept_bytes -= item.body.kept_bytes();
                item
            }
        };
        item.body.release(&mut receivers[item.of.queue()]);
        Some(item.of)
    }

    /// The next with or without priority that nobody was told of. Somebody is told of it now.
    pub(super) fn tell(&mut self, priority: bool) -> Option<T> {
        if let Some(id) = self.kept.next_news(priority) {
            self.kept.tell(id);
            return self.kept.get(id).map(|item| item.of);
        }
        let mut fronts = self.fronts.iter_mut().flatten();
        let (item, told) = fronts.find(|(item, told)| item.of.priority() == priority && !*told)?;
        *told = true;
        Some(item.of)
    }

    /// Whether there is one without priority that nobody was told of.
    pub(super) fn has_plain_news(&mut self) -> bool {
        let mut fronts = self.fronts.iter().flatten();
        self.kept.next_news(false).is_some()
            || fronts.any(|(item, told)| !item.of.priority() && !told)
    }
}
