//! Lists of entries into storage that the sender's user has lent.

use os::storage::Borrowed;

use super::Receiver;
use super::incoming::View;
use crate::queue::{ENTRIES_MAX, Entry, GiveBack, Taken};

/// A list of entries into storage that the sender's user has lent. Look at it with
/// [`Receiver::view`], give it back with [`Receiver::give_back_list`].
#[derive(Debug)]
#[must_use = "a list that is never given back is lost to the path"]
pub struct List {
    taken: Taken,
    named: Box<Named>,
}

/// Entries, and the storages they name: kept here, so that they can be read though the sender retires
/// them meanwhile.
#[derive(Debug)]
struct Named {
    entries: [Entry; ENTRIES_MAX],
    /// The storage of each entry; none if it is that of the entry before.
    storages: [Option<Borrowed>; ENTRIES_MAX],
}

impl List {
    /// What the sender's user wrote beside it.
    pub fn note(&self) -> u8 {
        self.taken.note()
    }

    /// The entries. All of them point into storage that was lent.
    pub fn entries(&self) -> &[Entry] {
        &self.named.entries[..self.taken.entries()]
    }
}

impl Receiver {
    /// The list whose entries were parked just now.
    pub(super) fn list(&self, taken: Taken) -> List {
        let mut named =
            Box::new(Named { entries: *self.entries, storages: [const { None }; ENTRIES_MAX] });
        let mut before = None;
        for (entry, storage) in self.entries[..taken.entries()].iter().zip(&mut named.storages) {
            if before.replace(entry.segment) != Some(entry.segment) {
                *storage = self.segments[usize::from(entry.segment)].clone();
            }
        }
        List { taken, named }
    }

    /// The bytes of one of a list's entries.
    ///
    /// # Panics
    /// If there is no such entry.
    pub fn view(&self, list: &List, index: usize) -> View {
        let entry = list.entries()[index];
        let borrowed = list.named.storages[..=index].iter().rev().find_map(Option::clone);
        let borrowed = borrowed.expect("the first entry has one");
        View { borrowed, offset: entry.offset as usize, bytes: entry.length as usize }
    }

    /// Gives a list back: the sender may use its storage again.
    pub fn give_back_list(&mut self, list: List) {
        self.give_back_as(list.taken, GiveBack::Empty);
    }
}
