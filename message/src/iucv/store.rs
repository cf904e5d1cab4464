//! Waiting messages and completions, found as the next, by class, or by identity, each in the same time
//! however many there are.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;

use super::inbox::{Facts, Item, Known};
use super::record::MessageId;

/// Items in their order of arrival, those with priority before those without.
// An operation touches its own slot, and tables so small that they stay in the cache. With lists through the
// slots it touched their neighbours too: of 10,000, half again the time of a receive. With an order for each class
// it touched that order's own memory: of 10,000 classes, 1.5 to 1.9 times.
#[derive(Debug, Default)]
pub(super) struct Store<T> {
    /// The items. Free slots are listed in `free`.
    slots: Vec<Slot<T>>,
    free: Vec<Number>,
    /// By the index in the identity: the slot.
    by_index: Vec<Option<Number>>,
    /// Those that are found as the next, without priority, and with it.
    orders: [Order; 2],
    /// Of these, those that nobody was notified of.
    unnotified: [Order; 2],
    /// The first of each class, without priority, and with it.
    classes: [HashMap<u32, Number>; 2],
    /// Bytes of our own memory that they take.
    buffered_bytes: usize,
}

/// The number of a slot, from 1: that there is none takes no room.
type Number = NonZeroU32;

// Two cache lines, which are fetched together: with many items, each is found in neither line of another.
#[derive(Debug)]
#[repr(align(128))]
struct Slot<T> {
    in_order: Position,
    in_new: Position,
    /// Those of its class and priority form a ring.
    before_in_class: Number,
    after_in_class: Number,
    item: Option<Item<T>>,
}

/// The index of a slot.
fn at(number: Number) -> usize {
    number.get() as usize - 1
}

/// A position in an order, counted from the beginning of time.
type Position = u32;

/// Slots in the order in which their items came.
#[derive(Debug, Default)]
struct Order {
    /// The first is there; behind it some may have been taken out.
    numbers: VecDeque<Option<Number>>,
    /// The position of the first.
    first: Position,
    taken_out: usize,
}

/// An order is compacted when more than half of it was taken out, and so many at least.
const TAKEN_OUT_MAX: usize = if cfg!(test) { 2 } else { 64 };

impl Order {
    fn first(&self) -> Option<Number> {
        *self.numbers.front()?
    }

    fn append(&mut self, number: Number) -> Position {
        self.numbers.push_back(Some(number));
        self.first.wrapping_add(self.numbers.len() as u32 - 1)
    }

    /// Takes a slot out; whether it was in. If that leaves too many gaps they are closed, and `set` is called
    /// with the new position of each.
    fn take(&mut self, slot: Number, at: Position, mut set: impl FnMut(Number, Position)) -> bool {
        let behind = at.wrapping_sub(self.first) as usize;
        match self.numbers.get_mut(behind) {
            Some(own) if *own == Some(slot) => *own = None,
            _ => return false,
        }
        self.taken_out += 1;
        while self.numbers.front() == Some(&None) {
            self.numbers.pop_front();
            self.first = self.first.wrapping_add(1);
            self.taken_out -= 1;
        }
        if self.taken_out > TAKEN_OUT_MAX.max(self.numbers.len() / 2) {
            self.numbers.retain(Option::is_some);
            self.taken_out = 0;
            for (behind, number) in self.numbers.iter().flatten().enumerate() {
                set(*number, self.first.wrapping_add(behind as u32));
            }
        }
        true
    }
}

impl<T: Facts> Store<T> {
    /// What each item takes.
    pub(super) const SLOT_BYTES: usize = size_of::<Slot<T>>();

    /// How many there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Bytes of our own memory that they take.
    pub(super) fn buffered_bytes(&self) -> usize {
        self.buffered_bytes
    }

    /// Whether an item has an identity with this index.
    #[inline]
    pub(super) fn has_index(&self, id: MessageId) -> bool {
        self.by_index.get(id.index()).is_some_and(Option::is_some)
    }

    /// Adds an item behind those of its priority. No other has an identity with the same index.
    pub(super) fn add(&mut self, item: Item<T>) {
        let Known { id, class, priority, .. } = item.of.known();
        assert!(!self.has_index(id), "an index is one message's");
        if self.by_index.len() <= id.index() {
            self.by_index.resize(id.index() + 1, None);
        }
        let next = self.slots.len() as u32 + 1;
        let number = self.free.pop().unwrap_or(Number::new(next).expect("one is added"));
        let priority = usize::from(priority);
        let in_order = self.orders[priority].append(number);
        let in_new = if item.notified { 0 } else { self.unnotified[priority].append(number) };
        let (before_in_class, after_in_class) = self.join_class(number, class, priority);
        self.buffered_bytes += item.body.buffered_bytes();
        let item = Some(item);
        let slot = Slot { in_order, in_new, before_in_class, after_in_class, item };
        match self.slots.get_mut(at(number)) {
            Some(free) => *free = slot,
            None => self.slots.push(slot),
        }
        self.by_index[id.index()] = Some(number);
    }

    /// Makes room behind the last of a class, and returns who is before it and after it.
    fn join_class(&mut self, number: Number, class: u32, priority: usize) -> (Number, Number) {
        let first = *self.classes[priority].entry(class).or_insert(number);
        if first == number {
            return (number, number);
        }
        let last = std::mem::replace(&mut self.slots[at(first)].before_in_class, number);
        self.slots[at(last)].after_in_class = number;
        (last, first)
    }

    /// The identity of the next, or of the next of a class.
    #[inline]
    pub(super) fn next(&self, class: Option<u32>, priority: bool) -> Option<MessageId> {
        let priority = usize::from(priority);
        let number = match class {
            Some(class) => *self.classes[priority].get(&class)?,
            None => self.orders[priority].first()?,
        };
        Some(self.item(number).of.known().id)
    }

    /// Whether there is one that nobody was notified of.
    pub(super) fn has_new(&self, priority: bool) -> bool {
        self.unnotified[usize::from(priority)].first().is_some()
    }

    /// The next that nobody was notified of. Its event counts as given from now on.
    pub(super) fn notify(&mut self, priority: bool) -> Option<T> {
        let number = self.unnotified[usize::from(priority)].first()?;
        let of = self.item(number).of;
        self.leave_unnotified(number, priority);
        Some(of)
    }

    fn leave_unnotified(&mut self, number: Number, priority: bool) {
        let Store { slots, unnotified, .. } = self;
        let position = slots[at(number)].in_new;
        let order = &mut unnotified[usize::from(priority)];
        order.take(number, position, |number, to| slots[at(number)].in_new = to);
    }

    fn item(&self, number: Number) -> &Item<T> {
        self.slots[at(number)].item.as_ref().expect("a slot that is not free has an item")
    }

    fn slot(&self, id: MessageId) -> Option<Number> {
        let number = self.by_index.get(id.index()).copied().flatten()?;
        (self.item(number).of.known().id == id).then_some(number)
    }

    /// The item of this identity.
    pub(super) fn get(&self, id: MessageId) -> Option<&Item<T>> {
        self.slot(id).map(|number| self.item(number))
    }

    /// The item of this identity.
    pub(super) fn get_mut(&mut self, id: MessageId) -> Option<&mut Item<T>> {
        let number = self.slot(id)?;
        self.slots[at(number)].item.as_mut()
    }

    /// From now on the item is found by its identity alone.
    pub(super) fn unlist(&mut self, id: MessageId) {
        if let Some(number) = self.slot(id) {
            self.unlink(number);
        }
    }

    fn unlink(&mut self, number: Number) {
        let Known { class, priority, .. } = self.item(number).of.known();
        self.leave_unnotified(number, priority);
        let Store { slots, orders, .. } = self;
        let position = slots[at(number)].in_order;
        let order = &mut orders[usize::from(priority)];
        if order.take(number, position, |number, to| slots[at(number)].in_order = to) {
            self.leave_class(number, class, usize::from(priority));
        }
    }

    fn leave_class(&mut self, number: Number, class: u32, priority: usize) {
        let Slot { before_in_class: before, after_in_class: after, .. } = self.slots[at(number)];
        if after == number {
            self.classes[priority].remove(&class);
            return;
        }
        self.slots[at(before)].after_in_class = after;
        self.slots[at(after)].before_in_class = before;
        let first = self.classes[priority].get_mut(&class).expect("a class of several has a first");
        if *first == number {
            *first = after;
        }
    }

    /// Takes an item out.
    pub(super) fn remove(&mut self, id: MessageId) -> Option<Item<T>> {
        let number = self.slot(id)?;
        self.unlink(number);
        self.by_index[id.index()] = None;
        self.free.push(number);
        let item = self.slots[at(number)].item.take()?;
        self.buffered_bytes -= item.body.buffered_bytes();
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::BodyReader;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    struct Thing(MessageId, u32, bool);

    impl Facts for Thing {
        fn known(&self) -> Known {
            let Thing(id, class, priority) = *self;
            Known { id, class, priority, queue: 0 }
        }
    }

    /// The same, with a list that is searched: things, and whether they are listed; and those not notified.
    #[derive(Default)]
    struct Model(Vec<(Thing, bool)>, Vec<Thing>);

    impl Model {
        fn next(&self, priority: bool, class: Option<u32>) -> Option<MessageId> {
            let is_it = |(thing, listed): &&(Thing, bool)| {
                *listed && thing.2 == priority && class.is_none_or(|class| class == thing.1)
            };
            self.0.iter().find(is_it).map(|(thing, _)| thing.0)
        }
    }

    proptest! {
        #[test]
        fn store_finds_what_a_search_finds(deeds in prop::collection::vec(
            (0..5, 0..12_u32, 0..3_u32, any::<bool>()), 0..200
        )) {
            let mut store = Store::default();
            let mut model = Model::default();
            for (deed, index, class, priority) in deeds {
                let id = MessageId(index | class << 16);
                match deed {
                    0 | 1 => {
                        let taken = model.0.iter().any(|(thing, _)| thing.0.index() == id.index());
                        prop_assert_eq!(store.has_index(id), taken);
                        if !taken {
                            let (of, notified) = (Thing(id, class, priority), deed == 1);
                            store.add(Item { of, body: BodyReader::none(), notified });
                            model.0.push((of, true));
                            model.1.extend((!notified).then_some(of));
                        }
                    }
                    2 => {
                        let at = model.0.iter().position(|(thing, _)| thing.0 == id);
                        let removed = store.remove(id).map(|item| item.of);
                        prop_assert_eq!(removed, at.map(|at| model.0.remove(at).0));
                        model.1.retain(|item| item.0 != id);
                    }
                    3 => {
                        let at = model.1.iter().position(|item| item.2 == priority);
                        prop_assert_eq!(store.notify(priority), at.map(|at| model.1.remove(at)));
                    }
                    _ => {
                        store.unlist(id);
                        model.1.retain(|item| item.0 != id);
                        if let Some((_, listed)) = model.0.iter_mut().find(|(thing, _)| thing.0 == id) {
                            *listed = false;
                        }
                    }
                }
                prop_assert_eq!(store.len(), model.0.len());
                let known = model.0.iter().map(|(thing, _)| *thing).find(|thing| thing.0 == id);
                prop_assert_eq!(store.get(id).map(|item| item.of), known);
                for priority in [false, true] {
                    prop_assert_eq!(store.next(None, priority), model.next(priority, None));
                    let has_new = model.1.iter().any(|item| item.2 == priority);
                    prop_assert_eq!(store.has_new(priority), has_new);
                    let of_class = store.next(Some(class), priority);
                    prop_assert_eq!(of_class, model.next(priority, Some(class)));
                }
            }
            while let Some(id) = store.next(None, true).or_else(|| store.next(None, false)) {
                let at = model.0.iter().position(|(thing, _)| thing.0 == id).expect("in the model");
                let (thing, _) = model.0.remove(at);
                prop_assert_eq!(store.remove(id).map(|item| item.of), Some(thing));
            }
            prop_assert!(model.0.iter().all(|(_, listed)| !listed));
            prop_assert!(store.classes.iter().all(HashMap::is_empty));
        }
    }
}
