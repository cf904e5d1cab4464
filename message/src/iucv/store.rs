//! Things that wait, found as the next, by class, or by identity, each in the same time however many there
//! are.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;

use super::record::MessageId;

/// Items in their order of arrival, those with priority before those without.
// What a deed touches is its own seat, and tables so small that they stay in the cache. With lists through the
// seats it was their neighbours too: of 10,000, half again the time of a receive.
#[derive(Debug)]
pub(super) struct Store<T> {
    /// Where they lie; free seats form a list.
    seats: Vec<Seat<T>>,
    free: Vec<Number>,
    /// By the place in their identity: the seat.
    places: Vec<Option<Number>>,
    /// Without priority, and with it.
    orders: [Order; 2],
    /// Before these turns there is nobody who was not told of.
    news: [Turn; 2],
    /// The first of each class, without priority, and with it.
    classes: [HashMap<u32, Number>; 2],
}

/// The number of a seat, from 1: that there is none takes no room.
type Number = NonZeroU32;

// Two lines of the cache, which come together: of many items each is found where it is in none.
#[derive(Debug)]
#[repr(align(128))]
struct Seat<T> {
    id: MessageId,
    class: u32,
    priority: bool,
    /// Whether it is found as the next or by class, or by its identity alone.
    listed: bool,
    /// Whether somebody was told of it.
    told: bool,
    in_order: Turn,
    /// Those of its class and priority form a ring.
    before_in_class: Number,
    after_in_class: Number,
    item: Option<T>,
}

/// Where a seat lies.
fn at(number: Number) -> usize {
    number.get() as usize - 1
}

/// A place in an order, counted from the beginning of time.
type Turn = u32;

/// Seats in the order in which they came.
#[derive(Debug, Default)]
struct Order {
    /// The first is there; behind it some may have been taken out.
    line: VecDeque<Option<Number>>,
    /// The turn of the first.
    first: Turn,
    taken_out: usize,
}

/// Orders are made anew when more than half of them was taken out, and so many at least.
const TAKEN_OUT_MAX: usize = if cfg!(test) { 2 } else { 64 };

impl Order {
    fn first(&self) -> Option<Number> {
        *self.line.front()?
    }

    fn append(&mut self, number: Number) -> Turn {
        self.line.push_back(Some(number));
        self.first.wrapping_add(self.line.len() as u32 - 1)
    }

    /// Takes a seat out. True if the order is to be made anew.
    fn remove(&mut self, turn: Turn) -> bool {
        self.line[turn.wrapping_sub(self.first) as usize] = None;
        self.taken_out += 1;
        while self.line.front() == Some(&None) {
            self.line.pop_front();
            self.first = self.first.wrapping_add(1);
            self.taken_out -= 1;
        }
        self.taken_out > TAKEN_OUT_MAX.max(self.line.len() / 2)
    }

    /// How many are before this turn. One that is over comes before all.
    fn behind(&self, turn: Turn) -> usize {
        let behind = turn.wrapping_sub(self.first);
        if behind as usize <= self.line.len() { behind as usize } else { 0 }
    }

    /// Closes the gaps; `moved` learns who has which turn from now on.
    fn close_up(&mut self, mut moved: impl FnMut(Number, Turn)) {
        self.line.retain(Option::is_some);
        self.taken_out = 0;
        for (behind, number) in self.line.iter().flatten().enumerate() {
            moved(*number, self.first.wrapping_add(behind as u32));
        }
    }
}

impl<T> Default for Store<T> {
    fn default() -> Store<T> {
        Store {
            seats: Vec::new(),
            free: Vec::new(),
            places: Vec::new(),
            orders: Default::default(),
            news: Default::default(),
            classes: Default::default(),
        }
    }
}

impl<T> Store<T> {
    /// What each item takes.
    pub(super) const SEAT_BYTES: usize = size_of::<Seat<T>>();

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.seats.len() - self.free.len()
    }

    /// Whether there are none.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether an item has an identity with this place.
    #[inline]
    pub(super) fn has_place(&self, id: MessageId) -> bool {
        self.places.get(id.place()).is_some_and(Option::is_some)
    }

    /// Adds an item behind those of its priority. No other has an identity with the same place.
    pub(super) fn add(&mut self, id: MessageId, class: u32, priority: bool, told: bool, item: T) {
        assert!(!self.has_place(id), "a place is for one");
        if self.places.len() <= id.place() {
            self.places.resize(id.place() + 1, None);
        }
        let next = self.seats.len() as u32 + 1;
        let number = self.free.pop().unwrap_or(Number::new(next).expect("one is added"));
        let rank = usize::from(priority);
        let in_order = self.orders[rank].append(number);
        let (before_in_class, after_in_class) = self.join_class(number, class, rank);
        let seat = Seat {
            id,
            class,
            priority,
            listed: true,
            told,
            in_order,
            before_in_class,
            after_in_class,
            item: Some(item),
        };
        match self.seats.get_mut(at(number)) {
            Some(free) => *free = seat,
            None => self.seats.push(seat),
        }
        self.places[id.place()] = Some(number);
    }

    /// Makes room behind the last of a class, and says who is before it and after it.
    fn join_class(&mut self, number: Number, class: u32, rank: usize) -> (Number, Number) {
        let first = *self.classes[rank].entry(class).or_insert(number);
        if first == number {
            return (number, number);
        }
        let last = std::mem::replace(&mut self.seats[at(first)].before_in_class, number);
        self.seats[at(last)].after_in_class = number;
        (last, first)
    }

    /// The identity of the next.
    #[inline]
    pub(super) fn next(&self, priority: bool) -> Option<MessageId> {
        self.id_of(self.orders[usize::from(priority)].first())
    }

    /// The identity of the next of a class.
    pub(super) fn next_of_class(&self, class: u32, priority: bool) -> Option<MessageId> {
        self.id_of(self.classes[usize::from(priority)].get(&class).copied())
    }

    /// The identity of the next that nobody was told of.
    pub(super) fn next_news(&mut self, priority: bool) -> Option<MessageId> {
        let Store { seats, orders, news, .. } = self;
        let (order, news) = (&orders[usize::from(priority)], &mut news[usize::from(priority)]);
        let behind = order.behind(*news);
        let is_news = |number: &Number| !seats[at(*number)].told;
        let found = order.line.range(behind..).position(|n| n.as_ref().is_some_and(is_news));
        let passed = behind + found.unwrap_or(order.line.len() - behind);
        *news = order.first.wrapping_add(passed as u32);
        self.id_of(*self.orders[usize::from(priority)].line.get(passed)?)
    }

    /// Somebody was told of this one.
    pub(super) fn tell(&mut self, id: MessageId) {
        if let Some(number) = self.seat(id) {
            self.seats[at(number)].told = true;
        }
    }

    fn id_of(&self, seat: Option<Number>) -> Option<MessageId> {
        seat.map(|seat| self.seats[at(seat)].id)
    }

    fn seat(&self, id: MessageId) -> Option<Number> {
        let seat = self.places.get(id.place()).copied().flatten()?;
        (self.seats[at(seat)].id == id).then_some(seat)
    }

    /// The item of this identity.
    pub(super) fn get(&self, id: MessageId) -> Option<&T> {
        self.seats[at(self.seat(id)?)].item.as_ref()
    }

    /// The item of this identity.
    pub(super) fn get_mut(&mut self, id: MessageId) -> Option<&mut T> {
        let seat = self.seat(id)?;
        self.seats[at(seat)].item.as_mut()
    }

    /// From now on the item is found by its identity alone.
    pub(super) fn unlist(&mut self, id: MessageId) {
        if let Some(seat) = self.seat(id) {
            self.unlink(seat);
        }
    }

    fn unlink(&mut self, number: Number) {
        if !std::mem::replace(&mut self.seats[at(number)].listed, false) {
            return;
        }
        let Store { seats, orders, news, .. } = self;
        let seat = &seats[at(number)];
        let rank = usize::from(seat.priority);
        if orders[rank].remove(seat.in_order) {
            orders[rank].close_up(|number, turn| seats[at(number)].in_order = turn);
            news[rank] = orders[rank].first;
        }
        self.leave_class(number);
    }

    fn leave_class(&mut self, number: Number) {
        let Seat { class, before_in_class: before, after_in_class: after, .. } =
            self.seats[at(number)];
        let firsts = &mut self.classes[usize::from(self.seats[at(number)].priority)];
        if after == number {
            firsts.remove(&class);
            return;
        }
        self.seats[at(before)].after_in_class = after;
        self.seats[at(after)].before_in_class = before;
        let first = firsts.get_mut(&class).expect("a class of several has a first");
        if *first == number {
            *first = after;
        }
    }

    /// Takes an item out.
    pub(super) fn remove(&mut self, id: MessageId) -> Option<T> {
        let number = self.seat(id)?;
        self.unlink(number);
        self.places[id.place()] = None;
        self.free.push(number);
        self.seats[at(number)].item.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same, with a list that is searched.
    #[derive(Default)]
    struct Model(Vec<(MessageId, u32, bool, bool)>, Vec<MessageId>);

    impl Model {
        fn next(&self, priority: bool, class: Option<u32>) -> Option<MessageId> {
            let is_it = |item: &&(MessageId, u32, bool, bool)| {
                item.3 && item.2 == priority && class.is_none_or(|class| class == item.1)
            };
            self.0.iter().find(is_it).map(|item| item.0)
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
                        let taken = model.0.iter().any(|item| item.0.place() == id.place());
                        prop_assert_eq!(store.has_place(id), taken);
                        if !taken {
                            store.add(id, class, priority, deed == 1, id);
                            model.0.push((id, class, priority, true));
                            model.1.extend((deed == 0).then_some(id));
                        }
                    }
                    2 => {
                        let at = model.0.iter().position(|item| item.0 == id);
                        prop_assert_eq!(store.remove(id), at.map(|at| model.0.remove(at).0));
                        model.1.retain(|news| *news != id);
                    }
                    3 => {
                        store.tell(id);
                        model.1.retain(|news| *news != id);
                    }
                    _ => {
                        store.unlist(id);
                        model.1.retain(|news| *news != id);
                        if let Some(item) = model.0.iter_mut().find(|item| item.0 == id) {
                            item.3 = false;
                        }
                    }
                }
                prop_assert_eq!(store.len(), model.0.len());
                prop_assert_eq!(store.get(id), model.0.iter().map(|item| &item.0).find(|own| **own == id));
                for priority in [false, true] {
                    prop_assert_eq!(store.next(priority), model.next(priority, None));
                    let is_news = |id: &&MessageId| {
                        model.0.iter().any(|item| item.0 == **id && item.2 == priority)
                    };
                    let news = model.1.iter().find(is_news).copied();
                    prop_assert_eq!(store.next_news(priority), news);
                    let of_class = store.next_of_class(class, priority);
                    prop_assert_eq!(of_class, model.next(priority, Some(class)));
                }
            }
            while let Some(id) = store.next(true).or_else(|| store.next(false)) {
                let is_it = |item: &(MessageId, u32, bool, bool)| item.0 == id;
                let at = model.0.iter().position(is_it).expect("in the model");
                model.0.remove(at);
                prop_assert_eq!(store.remove(id), Some(id));
            }
            prop_assert!(model.0.iter().all(|item| !item.3));
            prop_assert!(store.classes.iter().all(HashMap::is_empty));
        }
    }
}
