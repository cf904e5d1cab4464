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
    pub(super) taken: Taken,
    pub(super) entries: Box<[Entry; ENTRIES_MAX]>,
    /// Storages retired before it came.
    pub(super) retired: u64,
}

impl List {
    /// What the sender's user wrote beside it.
    pub fn note(&self) -> u8 {
        self.taken.note()
    }

    /// The entries. All of them point into storage that was lent.
    pub fn entries(&self) -> &[Entry] {
        &self.entries[..self.taken.entries()]
    }
}

/// A storage that was retired while lists that may point into it are held.
#[derive(Debug)]
pub(super) struct Retired {
    pub(super) segment: u16,
    /// Which retirement it was.
    pub(super) number: u64,
    pub(super) borrowed: Borrowed,
}

impl Receiver {
    /// The bytes of one of a list's entries.
    ///
    /// # Panics
    /// If there is no such entry.
    pub fn view(&self, list: &List, index: usize) -> View {
        let entry = list.entries()[index];
        // Had its storage been retired since, the first retirement of that number would be it: the list
        // was checked when the storage was there.
        let retired = self
            .retired_in_use
            .iter()
            .find(|retired| retired.segment == entry.segment && retired.number > list.retired);
        let borrowed = match retired {
            Some(retired) => retired.borrowed.clone(),
            None => {
                self.segments[usize::from(entry.segment)].clone().expect("checked, not retired")
            }
        };
        View { borrowed, offset: entry.offset as usize, bytes: entry.length as usize }
    }

    /// Gives a list back: the sender may use its storage again.
    pub fn give_back_list(&mut self, list: List) {
        self.lists_held -= 1;
        if self.lists_held == 0 {
            self.retired_in_use.clear();
        }
        self.give_back_as(list.taken, GiveBack::Empty);
    }
}
