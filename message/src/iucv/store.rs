//! Things that wait, found as the next, by class, or by identity, each in the same time however many there
//! are.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;

use super::inbox::{Facts, Item, Known};
use super::record::MessageId;

/// Items in their order of arrival, those with priority before those without.
// What a deed touches is its own seat, and tables so small that they stay in the cache. With lists through the
// seats it was their neighbours too: of 10,000, half again the time of a receive. With a line for each class it was
// that line's own memory: of 10,000 classes, 1.5 to 1.9 times.
#[derive(Debug, Default)]
pub(super) struct Store<T> {
    /// Where they lie; free seats form a list.
    seats: Vec<Seat<T>>,
    free: Vec<Number>,
    /// By the place in their identity: the seat.
    places: Vec<Option<Number>>,
    /// Those that are found as the next, without priority, and with it.
    orders: [Line; 2],
    /// Of these, those that nobody was notified of.
    unnotified: [Line; 2],
    /// The first of each class, without priority, and with it.
    classes: [HashMap<u32, Number>; 2],
    /// Bytes of our own memory that they keep.
    kept_bytes: usize,
}

/// The number of a seat, from 1: that there is none takes no room.
type Number = NonZeroU32;

// Two lines of the cache, which come together: of many items each is found where it is in none.
#[derive(Debug)]
#[repr(align(128))]
struct Seat<T> {
    in_order: Turn,
    in_unnotified: Turn,
    /// Those of its class and priority form a ring.
    before_in_class: Number,
    after_in_class: Number,
    item: Option<Item<T>>,
}

/// Where a seat lies.
fn at(number: Number) -> usize {
    number.get() as usize - 1
}

/// A place in a line, counted from the beginning of time.
type Turn = u32;

/// Seats in the order in which they came.
#[derive(Debug, Default)]
struct Line {
    /// The first is there; behind it some may have been taken out.
    numbers: VecDeque<Option<Number>>,
    /// The turn of the first.
    first: Turn,
    taken_out: usize,
}

/// Lines are made anew when more than half of them was taken out, and so many at least.
const TAKEN_OUT_MAX: usize = if cfg!(test) { 2 } else { 64 };

impl Line {
    fn first(&self) -> Option<Number> {
        *self.numbers.front()?
    }

    fn append(&mut self, number: Number) -> Turn {
        self.numbers.push_back(Some(number));
        self.first.wrapping_add(self.numbers.len() as u32 - 1)
    }

    /// Takes a seat out; whether it was in. If that leaves too many gaps they are closed, and `moved` learns
    /// who has which turn from now on.
    fn remove(&mut self, number: Number, turn: Turn, mut moved: impl FnMut(Number, Turn)) -> bool {
        let behind = turn.wrapping_sub(self.first) as usize;
        match self.numbers.get_mut(behind) {
            Some(own) if *own == Some(number) => *own = None,
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
                moved(*number, self.first.wrapping_add(behind as u32));
            }
        }
        true
    }
}

impl<T: Facts> Store<T> {
    /// What each item takes.
    pub(super) const SEAT_BYTES: usize = size_of::<Seat<T>>();

    /// How many there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.seats.len() - self.free.len()
    }

    /// Bytes of our own memory that they keep.
    pub(super) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Whether an item has an identity with this place.
    #[inline]
    pub(super) fn has_place(&self, id: MessageId) -> bool {
        self.places.get(id.place()).is_some_and(Option::is_some)
    }

    /// Adds an item behind those of its priority. No other has an identity with the same place.
    pub(super) fn add(&mut self, item: Item<T>) {
        let Known { id, class, priority, .. } = item.of.known();
        assert!(!self.has_place(id), "a place is for one");
        if self.places.len() <= id.place() {
            self.places.resize(id.place() + 1, None);
        }
        let next = self.seats.len() as u32 + 1;
        let number = self.free.pop().unwrap_or(Number::new(next).expect("one is added"));
        let rank = usize::from(priority);
        let in_order = self.orders[rank].append(number);
        let in_unnotified = if item.notified { 0 } else { self.unnotified[rank].append(number) };
        let (before_in_class, after_in_class) = self.join_class(number, class, rank);
        self.kept_bytes += item.body.kept_bytes();
        let item = Some(item);
        let seat = Seat { in_order, in_unnotified, before_in_class, after_in_class, item };
        match self.seats.get_mut(at(number)) {
            Some(free) => *free = seat,
            None => self.seats.push(seat),
        }
        self.places[id.place()] = Some(number);
    }

    /// Makes room behind the last of a class, and returns who is before it and after it.
    fn join_class(&mut self, number: Number, class: u32, rank: usize) -> (Number, Number) {
        let first = *self.classes[rank].entry(class).or_insert(number);
        if first == number {
            return (number, number);
        }
        let last = std::mem::replace(&mut self.seats[at(first)].before_in_class, number);
        self.seats[at(last)].after_in_class = number;
        (last, first)
    }

    /// The identity of the next, or of the next of a class.
    #[inline]
    pub(super) fn next(&self, class: Option<u32>, priority: bool) -> Option<MessageId> {
        let rank = usize::from(priority);
        let number = match class {
            Some(class) => *self.classes[rank].get(&class)?,
            None => self.orders[rank].first()?,
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
        let Store { seats, unnotified, .. } = self;
        let turn = seats[at(number)].in_unnotified;
        let line = &mut unnotified[usize::from(priority)];
        line.remove(number, turn, |number, turn| seats[at(number)].in_unnotified = turn);
    }

    fn item(&self, number: Number) -> &Item<T> {
        self.seats[at(number)].item.as_ref().expect("a seat that is not free has an item")
    }

    fn seat(&self, id: MessageId) -> Option<Number> {
        let number = self.places.get(id.place()).copied().flatten()?;
        (self.item(number).of.known().id == id).then_some(number)
    }

    /// The item of this identity.
    pub(super) fn get(&self, id: MessageId) -> Option<&Item<T>> {
        self.seat(id).map(|number| self.item(number))
    }

    /// The item of this identity.
    pub(super) fn get_mut(&mut self, id: MessageId) -> Option<&mut Item<T>> {
        let number = self.seat(id)?;
        self.seats[at(number)].item.as_mut()
    }

    /// From now on the item is found by its identity alone.
    pub(super) fn unlist(&mut self, id: MessageId) {
        if let Some(number) = self.seat(id) {
            self.unlink(number);
        }
    }

    fn unlink(&mut self, number: Number) {
        let Known { class, priority, .. } = self.item(number).of.known();
        self.leave_unnotified(number, priority);
        let Store { seats, orders, .. } = self;
        let turn = seats[at(number)].in_order;
        let line = &mut orders[usize::from(priority)];
        if line.remove(number, turn, |number, turn| seats[at(number)].in_order = turn) {
            self.leave_class(number, class, usize::from(priority));
        }
    }

    fn leave_class(&mut self, number: Number, class: u32, rank: usize) {
        let Seat { before_in_class: before, after_in_class: after, .. } = self.seats[at(number)];
        if after == number {
            self.classes[rank].remove(&class);
            return;
        }
        self.seats[at(before)].after_in_class = after;
        self.seats[at(after)].before_in_class = before;
        let first = self.classes[rank].get_mut(&class).expect("a class of several has a first");
        if *first == number {
            *first = after;
        }
    }

    /// Takes an item out.
    pub(super) fn remove(&mut self, id: MessageId) -> Option<Item<T>> {
        let number = self.seat(id)?;
        self.unlink(number);
        self.places[id.place()] = None;
        self.free.push(number);
        let item = self.seats[at(number)].item.take()?;
        self.kept_bytes -= item.body.kept_bytes();
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
            for (deed, place, class, priority) in deeds {
                let id = MessageId(place | class << 16);
                match deed {
                    0 | 1 => {
                        let taken = model.0.iter().any(|(thing, _)| thing.0.place() == id.place());
                        prop_assert_eq!(store.has_place(id), taken);
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
