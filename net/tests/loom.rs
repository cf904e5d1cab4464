//! Every interleaving of the address table's writer and a reader.
#![cfg(loom)]

use net::lan::frame::Mac;
use net::lan::table::{LentTable, Member, TABLE_BYTES, Table};
use os::words::{WORD_BYTES, Words};

fn member(name: &str, last: u8) -> Member {
    Member {
        name: name.parse().unwrap(),
        mac: Mac([2, 0, 0, 0, 0, last]),
        vlans: vec![],
        addresses: vec![],
        captures: false,
        routes: false,
        routes_from: Vec::new(),
        life: last.into(),
    }
}

#[test]
fn reader_finds_whole_entries_and_in_the_end_the_last() {
    loom::model(|| {
        let (words, lent) = Words::pair(TABLE_BYTES / WORD_BYTES).unwrap();
        let mut table = Table::new(words);
        let mut lent = LentTable::new(lent).unwrap();
        let (first, second) = (member("FIRST", 1), member("SECOND", 2));
        table.set(0, Some(&first));
        let last = second.clone();
        let writer = loom::thread::spawn(move || table.set(0, Some(&last)));
        lent.refresh(|_, _| {});
        if let Some(found) = lent.get(0) {
            assert!(*found == first || *found == second, "{found:?}");
        }
        writer.join().unwrap();
        lent.refresh(|_, _| {});
        assert_eq!(lent.get(0), Some(&second));
    });
}
