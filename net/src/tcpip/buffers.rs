//! The buffers that all connections of a stack share, and who may have how many of them.
//!
//! Those of connections with one host are one owner's. An owner gets another one as long as it has fewer in that direction than are free in it:
//! one alone may have half of what the direction may have. The last quarter of that is for owners that have two at most, so that a few
//! that take what they may leave some for others.

use crate::tcpip::hashed::HashMap;
use std::cell::{Cell, RefCell};
use std::net::IpAddr;

/// Bytes of a buffer.
pub(in crate::tcpip) const BUFFER_BYTES: usize = 16 << 10;

/// How many freed bytes the allocator may keep: to have it give them back takes it some time.
const FREED_BYTES_MAX: usize = 32 << 20;

/// Buffers that an owner may have as long as there are any, and the part of all that is left to owners which have fewer.
const ALWAYS: usize = 2;
const RESERVE: usize = 16;

pub(in crate::tcpip) type Buffer = Box<[u8; BUFFER_BYTES]>;

/// Stands for the owner of a connection's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tcpip) struct Owner(u32);

/// The buffers of an owner.
#[derive(Debug)]
struct Account {
    host: IpAddr,
    connections: usize,
    /// Of bytes that have come, and of those that are to be sent.
    in_use: [usize; 2],
    /// It wanted one to read next from, or to send with, and got none.
    is_refused: [Cell<bool>; 2],
}

/// The buffers of a stack.
#[derive(Debug)]
pub(in crate::tcpip) struct Buffers {
    /// Those that nobody uses. The last was used last.
    free: Vec<Buffer>,
    /// How many of them are kept.
    free_max: usize,
    in_use: usize,
    /// Those of them that have bytes which are to be sent.
    sending: usize,
    in_use_max: usize,
    high_water: usize,
    /// Those of them, in each direction, that have come from other pools with their connections.
    brought: [usize; 2],
    /// How many of those are not in use any more, and nobody was told yet.
    returned: usize,
    /// Bytes that were freed and that the allocator may have kept.
    freed_bytes: usize,
    accounts: Vec<Account>,
    /// Accounts of nobody.
    vacant: Vec<usize>,
    by_host: HashMap<IpAddr, usize>,
    /// Owners that wanted one and got none, and for which of these two.
    refused: RefCell<Vec<(usize, bool)>>,
}

/// The use that a buffer is wanted for. A quarter is left to each direction whatever the other takes, and of what is received an eighth
/// to what comes first: or two sides could wait for each other with all buffers full of what nobody can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tcpip) enum Purpose {
    /// Bytes that a program can read next.
    Next,
    /// Bytes behind a gap.
    Behind,
    /// Bytes that are to be sent.
    Sending,
}

/// How the buffers of a stack are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUse {
    /// Bytes of a buffer.
    pub buffer_bytes: usize,
    /// Buffers that hold bytes of connections.
    pub in_use: usize,
    /// The most that were in use at once.
    pub high_water: usize,
    /// Buffers that may be in use.
    pub in_use_max: usize,
    /// Buffers that wait for their next bytes.
    pub free: usize,
}

impl Buffers {
    /// Buffers of so many bytes in all, of which so many are kept when nobody uses them.
    pub(in crate::tcpip) fn new(bytes_max: usize, kept_bytes_max: usize) -> Buffers {
        Buffers {
            free: Vec::new(),
            free_max: kept_bytes_max / BUFFER_BYTES,
            in_use: 0,
            sending: 0,
            in_use_max: (bytes_max / BUFFER_BYTES).max(1),
            high_water: 0,
            brought: [0; 2],
            returned: 0,
            freed_bytes: 0,
            accounts: Vec::new(),
            vacant: Vec::new(),
            by_host: HashMap::default(),
            refused: RefCell::default(),
        }
    }

    /// The owner of the buffers of one connection more with this host, until [`Buffers::leave`].
    pub(in crate::tcpip) fn enter(&mut self, host: IpAddr) -> Owner {
        let Buffers { accounts, vacant, by_host, .. } = self;
        let number = *by_host.entry(host).or_insert_with(|| {
            let account =
                Account { host, connections: 0, in_use: [0; 2], is_refused: Default::default() };
            match vacant.pop() {
                Some(number) => {
                    accounts[number] = account;
                    number
                }
                None => {
                    accounts.push(account);
                    accounts.len() - 1
                }
            }
        });
        accounts[number].connections += 1;
        Owner(number as u32)
    }

    /// A connection has given its buffers back, and is no more.
    pub(in crate::tcpip) fn leave(&mut self, owner: Owner) {
        let number = owner.0 as usize;
        let account = &mut self.accounts[number];
        account.connections -= 1;
        if account.connections > 0 {
            return;
        }
        debug_assert_eq!(account.in_use, [0; 2], "all are given back");
        self.by_host.remove(&account.host);
        self.vacant.push(number);
        self.refused.get_mut().retain(|(refused, _)| *refused != number);
    }

    /// How many owners there are.
    #[cfg(test)]
    pub(in crate::tcpip) fn owners(&self) -> usize {
        self.by_host.len()
    }

    /// So many bytes in all, and so many kept, from now on.
    pub(in crate::tcpip) fn set_limits(&mut self, bytes_max: usize, kept_bytes_max: usize) {
        self.in_use_max = (bytes_max / BUFFER_BYTES).max(1);
        self.free_max = kept_bytes_max / BUFFER_BYTES;
        self.free.truncate(self.free_max);
    }

    /// A connection goes to another pool with so many buffers of bytes that have come, and of those that are to be sent.
    pub(in crate::tcpip) fn take_away(&mut self, owner: Owner, buffers: [usize; 2]) {
        for (direction, gone) in buffers.into_iter().enumerate() {
            self.accounts[owner.0 as usize].in_use[direction] -= gone;
            self.return_brought(direction, gone);
        }
        self.in_use -= buffers.iter().sum::<usize>();
        self.sending -= buffers[1];
        self.leave(owner);
    }

    /// A connection with this host has come from another pool with so many buffers. They do not count as used here: whoever sends them
    /// says how many there may be.
    pub(in crate::tcpip) fn bring(&mut self, host: IpAddr, buffers: [usize; 2]) -> Owner {
        let owner = self.enter(host);
        for (direction, come) in buffers.into_iter().enumerate() {
            self.accounts[owner.0 as usize].in_use[direction] += come;
            self.brought[direction] += come;
        }
        self.in_use += buffers.iter().sum::<usize>();
        self.sending += buffers[1];
        self.high_water = self.high_water.max(self.in_use);
        owner
    }

    /// So many in one direction are free, or gone: those that were brought first.
    fn return_brought(&mut self, direction: usize, count: usize) {
        let count = count.min(self.brought[direction]);
        self.brought[direction] -= count;
        self.returned += count;
    }

    /// Returns how many of those that were brought are free or gone since this was asked last.
    pub(in crate::tcpip) fn take_returned(&mut self) -> usize {
        std::mem::take(&mut self.returned)
    }

    pub(in crate::tcpip) fn usage(&self) -> PoolUse {
        let Buffers { free, in_use, in_use_max, high_water, .. } = self;
        PoolUse {
            buffer_bytes: BUFFER_BYTES,
            in_use: *in_use,
            high_water: *high_water,
            in_use_max: *in_use_max,
            free: free.len(),
        }
    }

    /// Returns true if bytes of this owner find a buffer for this purpose. An owner that finds none to send with, or to read next from, is named
    /// when it does: see [`Buffers::take_served`].
    pub(in crate::tcpip) fn has_one(&self, purpose: Purpose, owner: Owner) -> bool {
        let number = owner.0 as usize;
        let left = self.left_for(purpose);
        let is_sending = purpose == Purpose::Sending;
        let has_one = self.is_in_share(is_sending, number, left);
        let is_refused = &self.accounts[number].is_refused[usize::from(is_sending)];
        if !has_one && purpose != Purpose::Behind && !is_refused.replace(true) {
            self.refused.borrow_mut().push((number, is_sending));
        }
        has_one
    }

    /// How many this purpose may still take, so that the other direction finds some whatever this one takes.
    fn left_for(&self, purpose: Purpose) -> usize {
        let (has, kept) = match purpose {
            Purpose::Next => (self.in_use - self.sending, self.in_use_max / 4),
            Purpose::Behind => (self.in_use - self.sending, self.in_use_max * 3 / 8),
            Purpose::Sending => (self.sending, self.in_use_max / 4),
        };
        self.in_use_max
            .saturating_sub(self.in_use)
            .min((self.in_use_max - kept).saturating_sub(has))
    }

    /// Returns true if an owner may have one of so many that are left.
    fn is_in_share(&self, is_sending: bool, number: usize, left: usize) -> bool {
        let has = self.accounts[number].in_use[usize::from(is_sending)];
        let reserve = self.in_use_max / RESERVE;
        left > 0 && (has < ALWAYS || has < left.saturating_sub(reserve))
    }

    /// Returns true if owners found none, and were not told since that they find some.
    #[inline]
    pub(in crate::tcpip) fn has_refused(&mut self) -> bool {
        !self.refused.get_mut().is_empty()
    }

    /// The hosts whose connections found no buffer and find one now, and whether that was to send with.
    pub(in crate::tcpip) fn take_served(&mut self) -> Vec<(IpAddr, bool)> {
        if !self.has_refused() {
            return Vec::new();
        }
        let mut refused = self.refused.take();
        let left = [Purpose::Next, Purpose::Sending].map(|purpose| self.left_for(purpose));
        let served = refused.extract_if(.., |(number, is_sending)| {
            self.is_in_share(*is_sending, *number, left[usize::from(*is_sending)])
        });
        let hosts = served.map(|(number, is_sending)| {
            let account = &self.accounts[number];
            account.is_refused[usize::from(is_sending)].set(false);
            (account.host, is_sending)
        });
        let hosts = hosts.collect();
        *self.refused.get_mut() = refused;
        hosts
    }

    pub(in crate::tcpip) fn take(&mut self, purpose: Purpose, owner: Owner) -> Option<Buffer> {
        if !self.has_one(purpose, owner) {
            return None;
        }
        let is_sending = usize::from(purpose == Purpose::Sending);
        self.in_use += 1;
        self.accounts[owner.0 as usize].in_use[is_sending] += 1;
        self.sending += is_sending;
        self.high_water = self.high_water.max(self.in_use);
        Some(self.free.pop().unwrap_or_else(fresh))
    }

    pub(in crate::tcpip) fn put(&mut self, buffer: Buffer, is_sending: bool, owner: Owner) {
        let is_sending = usize::from(is_sending);
        self.in_use -= 1;
        self.accounts[owner.0 as usize].in_use[is_sending] -= 1;
        self.sending -= is_sending;
        if self.brought[is_sending] > 0 {
            self.return_brought(is_sending, 1);
        }
        if self.free.len() < self.free_max {
            return self.free.push(buffer);
        }
        drop(buffer);
        self.freed_bytes += BUFFER_BYTES;
        if self.freed_bytes >= FREED_BYTES_MAX {
            self.freed_bytes = 0;
            os::memory::give_back_freed();
        }
    }
}

/// A buffer that was not used before: it does not lie on the stack on its way to the heap.
fn fresh() -> Buffer {
    let bytes = vec![0; BUFFER_BYTES].into_boxed_slice();
    bytes.try_into().expect("it has as many bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(last: u8) -> IpAddr {
        [10, 1, 0, last].into()
    }

    /// All that an owner gets for this.
    fn take_all(pool: &mut Buffers, purpose: Purpose, owner: Owner) -> Vec<Buffer> {
        std::iter::from_fn(|| pool.take(purpose, owner)).collect()
    }

    #[test]
    fn whatever_two_owners_take_another_finds_some() {
        let mut pool = Buffers::new(64 * BUFFER_BYTES, 0);
        let owners = [1, 2, 3].map(|last| pool.enter(host(last)));
        let taken = owners.map(|owner| take_all(&mut pool, Purpose::Next, owner));
        // A quarter is for what is sent, and some for those that have two at most.
        assert_eq!(taken.each_ref().map(Vec::len), [22, 11, 6]);
        // Another connection with the same host has no more.
        let again = pool.enter(host(1));
        assert_eq!(again, owners[0]);
        assert!(pool.take(Purpose::Next, again).is_none());
        // What is sent has a share of its own.
        assert_eq!(take_all(&mut pool, Purpose::Sending, again).len(), 11);
        let late = pool.enter(host(4));
        assert_eq!(take_all(&mut pool, Purpose::Sending, late).len(), 5);
        assert_eq!(take_all(&mut pool, Purpose::Next, late).len(), 3);
    }

    #[test]
    fn owner_that_was_refused_is_named_when_there_are_some() {
        let mut pool = Buffers::new(8 * BUFFER_BYTES, 0);
        let [one, other] = [1, 2].map(|last| pool.enter(host(last)));
        let mut of_one = take_all(&mut pool, Purpose::Sending, one);
        let mut of_other = take_all(&mut pool, Purpose::Sending, other);
        assert_eq!((of_one.len(), of_other.len()), (3, 2));
        assert_eq!(pool.take_served(), []);
        pool.put(of_one.pop().unwrap(), true, one);
        pool.put(of_one.pop().unwrap(), true, one);
        assert_eq!(pool.take_served(), [(host(1), true), (host(2), true)]);
        assert_eq!(pool.take_served(), [], "once");
        of_one.drain(..).for_each(|buffer| pool.put(buffer, true, one));
        of_other.drain(..).for_each(|buffer| pool.put(buffer, true, other));
        assert_eq!(pool.take_served(), [], "nobody was refused since");
    }

    #[test]
    fn account_goes_with_the_last_connection() {
        let mut pool = Buffers::new(8 * BUFFER_BYTES, 0);
        let [one, same, other] = [1, 1, 2].map(|last| pool.enter(host(last)));
        assert!(one == same && one != other);
        pool.leave(one);
        let buffer = pool.take(Purpose::Next, same).unwrap();
        pool.put(buffer, false, same);
        pool.leave(same);
        assert_eq!(pool.enter(host(3)), one, "its place is taken again");
    }
}
