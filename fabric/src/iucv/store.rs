//! Things that wait, found as the next, by class, or by identity, each in the same time however many there
//! are.

use std::collections::HashMap;
use std::num::NonZeroU32;

use super::record::MessageId;

/// Items in their order of arrival, those with priority before those without.
#[derive(Debug)]
pub(super) struct Store<T> {
    /// Where they lie; free seats form a list.
    seats: Vec<Seat<T>>,
    free: Vec<Number>,
    /// By the place in their identity: the seat.
    places: Vec<Option<Number>>,
    /// Without priority, and with it.
    orders: [List; 2],
    /// Of these, those that nobody was told of yet.
    news: [List; 2],
    classes: HashMap<u32, [List; 2]>,
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
    in_order: Links,
    in_news: Links,
    in_class: Links,
    item: Option<T>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Links {
    before: Option<Number>,
    after: Option<Number>,
}

#[derive(Clone, Copy, Debug, Default)]
struct List {
    first: Option<Number>,
    last: Option<Number>,
}

/// Which links of a seat a list goes by.
type Pick<T> = fn(&mut Seat<T>) -> &mut Links;

/// Where a seat lies.
fn at(number: Number) -> usize {
    number.get() as usize - 1
}

impl List {
    fn append<T>(&mut self, seats: &mut [Seat<T>], seat: Number, links: Pick<T>) {
        *links(&mut seats[at(seat)]) = Links { before: self.last, after: None };
        match self.last {
            Some(last) => links(&mut seats[at(last)]).after = Some(seat),
            None => self.first = Some(seat),
        }
        self.last = Some(seat);
    }

    fn remove<T>(&mut self, seats: &mut [Seat<T>], seat: Number, links: Pick<T>) {
        let Links { before, after } = *links(&mut seats[at(seat)]);
        match before {
            Some(before) => links(&mut seats[at(before)]).after = after,
            None => self.first = after,
        }
        match after {
            Some(after) => links(&mut seats[at(after)]).before = before,
            None => self.last = before,
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
            classes: HashMap::new(),
        }
    }
}

impl<T> Store<T> {
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
        let links = Links::default();
        let (in_order, in_news, in_class) = (links, links, links);
        let item = Some(item);
        let seat =
            Seat { id, class, priority, listed: true, told, in_order, in_news, in_class, item };
        let number = match self.free.pop() {
            Some(number) => {
                self.seats[at(number)] = seat;
                number
            }
            None => {
                self.seats.push(seat);
                Number::new(self.seats.len() as u32).expect("there is one now")
            }
        };
        self.places[id.place()] = Some(number);
        let rank = usize::from(priority);
        self.orders[rank].append(&mut self.seats, number, |seat| &mut seat.in_order);
        if !told {
            self.news[rank].append(&mut self.seats, number, |seat| &mut seat.in_news);
        }
        let class = self.classes.entry(class).or_default();
        class[rank].append(&mut self.seats, number, |seat| &mut seat.in_class);
    }

    /// The identity of the next.
    #[inline]
    pub(super) fn next(&self, priority: bool) -> Option<MessageId> {
        self.id_of(self.orders[usize::from(priority)].first)
    }

    /// The identity of the next of a class.
    pub(super) fn next_of_class(&self, class: u32, priority: bool) -> Option<MessageId> {
        self.id_of(self.classes.get(&class)?[usize::from(priority)].first)
    }

    /// The identity of the next that nobody was told of.
    pub(super) fn next_news(&self, priority: bool) -> Option<MessageId> {
        self.id_of(self.news[usize::from(priority)].first)
    }

    /// Somebody was told of this one.
    pub(super) fn tell(&mut self, id: MessageId) {
        if let Some(number) = self.seat(id) {
            self.take_from_news(number);
        }
    }

    fn take_from_news(&mut self, number: Number) {
        let seat = &mut self.seats[at(number)];
        if !std::mem::replace(&mut seat.told, true) {
            let rank = usize::from(seat.priority);
            self.news[rank].remove(&mut self.seats, number, |seat| &mut seat.in_news);
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
        let seat = &mut self.seats[at(number)];
        if !std::mem::replace(&mut seat.listed, false) {
            return;
        }
        let (class, rank) = (seat.class, usize::from(seat.priority));
        self.take_from_news(number);
        self.orders[rank].remove(&mut self.seats, number, |seat| &mut seat.in_order);
        let lists = self.classes.get_mut(&class).expect("a listed item has a class");
        lists[rank].remove(&mut self.seats, number, |seat| &mut seat.in_class);
        if lists.iter().all(|list| list.first.is_none()) {
            self.classes.remove(&class);
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
            prop_assert!(store.classes.is_empty());
        }
    }
}
