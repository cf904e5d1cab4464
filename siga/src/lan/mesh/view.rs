//! The address table as a member sees it, and what follows from its changes.

use fabric::control::LanJoined;
use fabric::name::Name;
use net::lan::frame::Mac;
use net::lan::table::{LentTable, MEMBERS_MAX, Member};

use super::Mesh;

/// The address table, and this member's place in it.
pub(super) struct View {
    table: LentTable,
    /// Counts the tables that came after the first.
    #[cfg(feature = "tcpip")]
    tables: u64,
    changes: u64,
    /// The value of `changes` when each entry of the table last changed.
    changed_at: Vec<u64>,
    own: Member,
    number: usize,
    frame_bytes_max: usize,
}

/// The changes that a look at the table has found.
struct Changed {
    /// A new host's table says nothing of those who were members at the one before.
    is_new_table: bool,
    /// The entries that are others now, by their numbers, and what they were.
    entries: Vec<(usize, Option<Member>)>,
}

impl View {
    pub(super) fn new(table: LentTable, own: Member, joined: LanJoined) -> View {
        let (number, frame_bytes_max) = (joined.number.into(), joined.frame_bytes as usize);
        View {
            table,
            #[cfg(feature = "tcpip")]
            tables: 0,
            changes: 0,
            changed_at: vec![0; MEMBERS_MAX],
            own,
            number,
            frame_bytes_max,
        }
    }

    pub(super) fn keep_place(&mut self, joined: LanJoined) {
        self.number = joined.number.into();
        self.frame_bytes_max = joined.frame_bytes as usize;
    }

    pub(super) fn set_table(&mut self, table: LentTable) {
        self.table = table;
        #[cfg(feature = "tcpip")]
        {
            self.tables += 1;
        }
    }

    #[cfg(feature = "tcpip")]
    pub(super) fn tables(&self) -> u64 {
        self.tables
    }

    pub(super) fn table(&self) -> &LentTable {
        &self.table
    }

    #[inline(always)]
    pub(super) fn own(&self) -> &Member {
        &self.own
    }

    pub(super) fn number(&self) -> usize {
        self.number
    }

    #[inline(always)]
    pub(super) fn frame_bytes_max(&self) -> usize {
        self.frame_bytes_max
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    #[cfg(feature = "tcpip")]
    pub(super) fn changed_since(&self, changes: u64) -> impl Iterator<Item = usize> {
        let changed_at = self.changed_at.iter().enumerate();
        changed_at.filter(move |(_, at)| **at > changes).map(|(number, _)| number)
    }

    /// One load.
    #[inline(always)]
    pub(super) fn is_current(&self) -> bool {
        self.table.is_current()
    }

    pub(super) fn get(&self, number: usize) -> Option<&Member> {
        self.table.get(number)
    }

    /// The member with this name, and its number.
    pub(super) fn find_name(&self, name: Name) -> Option<(usize, &Member)> {
        self.table.find_name(name)
    }

    /// The other member that takes frames to this address, and its number.
    pub(super) fn find_taker(&self, mac: Mac) -> Option<(usize, &Member)> {
        self.table.find(mac).filter(|(number, member)| self.is_taker(*number, member))
    }

    /// The other members that take frames, and their numbers.
    pub(super) fn takers(&self) -> impl Iterator<Item = (usize, &Member)> {
        self.table.members().filter(|(number, member)| self.is_taker(*number, member))
    }

    /// The members that capture.
    pub(super) fn capturers(&self) -> impl Iterator<Item = (usize, &Member)> {
        self.table.members().filter(|(_, member)| member.captures)
    }

    fn is_taker(&self, number: usize, member: &Member) -> bool {
        number != self.number && !member.captures
    }

    /// Returns true if a member is still there: nobody has come in its place, nor itself again.
    pub(super) fn is_there(&self, number: usize, member: &Member) -> bool {
        let found = self.get(number);
        found.is_some_and(|found| is_same(found, member) && found.life == member.life)
    }

    fn refresh(&mut self) -> Changed {
        let mut entries = Vec::new();
        let is_new_table = !self.table.was_read();
        self.table.refresh(|number, was| entries.push((number, was)));
        self.changes += 1;
        if is_new_table {
            self.changed_at.fill(self.changes);
        }
        for (number, _) in &entries {
            self.changed_at[*number] = self.changes;
        }
        Changed { is_new_table, entries }
    }
}

impl Mesh {
    /// Takes note of members that have come and gone. One load if none has.
    #[inline]
    pub(crate) fn refresh(&mut self) {
        if !self.in_child() && !self.view.is_current() {
            self.take_changes();
        }
    }

    #[cold]
    fn take_changes(&mut self) {
        let Changed { is_new_table, entries } = self.view.refresh();
        if is_new_table {
            // Another member may have the MAC address there.
            self.outbound.invalidate();
        }
        let mut are_capturers_changed = is_new_table;
        for (number, was) in entries {
            let found = self.view.get(number).cloned();
            let captures =
                |member: &Option<Member>| member.as_ref().is_some_and(|one| one.captures);
            are_capturers_changed |= captures(&was) || captures(&found);
            self.take_change(number, was, found);
        }
        if self.view.own.captures {
            self.connect_to_all();
        } else if are_capturers_changed {
            self.find_capturers();
        }
    }

    /// The entry with this number is another.
    fn take_change(&mut self, number: usize, was: Option<Member>, found: Option<Member>) {
        // The next frame finds out whether it goes there still.
        if let Some(key) = self.peers.key(number) {
            self.outbound.forget(key);
        }
        // One that has left and come again meanwhile has nothing left of what it had.
        let is_reborn =
            was.as_ref().zip(found.as_ref()).is_some_and(|(was, found)| was.life != found.life);
        let is_other = match (&was, &found) {
            (Some(was), Some(found)) => is_reborn || !is_same(found, was),
            (None, None) => false,
            _ => true,
        };
        if is_other {
            // What is sent to all from now on is for others.
            self.end_audience();
            // So is a path that was asked for, and that none could be made to the member before says nothing of this one.
            if self.peers.key(number).is_none() {
                self.disconnect(number);
            }
        }
        if number == self.view.number {
            if let Some(own) = found.filter(|own| own.name == self.view.own.name) {
                self.view.own = own;
            }
            // At a host before it was another's number.
            return self.leave(number);
        }
        let key = self.peers.key(number);
        let Some(peer) = key.and_then(|key| self.links.get_mut(key)) else { return };
        match found {
            Some(found) if !is_reborn && is_same(&found, peer.link.peer()) => {
                peer.set_member(found);
            }
            // Somebody else has its number, or nobody.
            _ => self.leave(number),
        }
    }

    /// Ends the paths of those that the table does not name, once what they sent has been received.
    pub(crate) fn leave_absent(&mut self) {
        for number in 0..MEMBERS_MAX {
            let Some(key) = self.peers.key(number) else { continue };
            let found = self.view.get(number);
            if let Some(peer) = self.links.get(key)
                && !found.is_some_and(|found| is_same(found, peer.link.peer()))
            {
                self.leave(number);
            }
        }
    }
}

/// Returns true if a member is still the one that it was, and does what it did. Lives are counted anew by each host.
fn is_same(one: &Member, other: &Member) -> bool {
    one.name == other.name && one.captures == other.captures
}
