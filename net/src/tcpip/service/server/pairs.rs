//! Pairs of clients that talk with each other, and are introduced: they get a path of their own for that.

use std::collections::HashMap;

/// How far a pair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// One was told that the other asks for a path.
    Expected,
    /// The other was told to ask.
    Meeting,
    /// There is a path.
    Met,
    /// There is none, and will be none: the host does not allow it, or one of them does not want it.
    Apart,
}

/// Two clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    /// What it is called: no other pair was or will be called so.
    pub(super) number: u32,
    /// Who asks for the path, and who is asked, by their numbers.
    pub(super) asks: usize,
    pub(super) is_asked: usize,
    pub(super) stage: Stage,
    /// The number of the next connection.
    next: u32,
}

impl Pair {
    pub(super) fn has(&self, client: usize) -> bool {
        self.asks == client || self.is_asked == client
    }

    /// A number for a connection, with that of the pair above it.
    pub(super) fn next_connection(&mut self) -> u64 {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        u64::from(self.number) << 32 | u64::from(number)
    }
}

/// All pairs of a machine's clients.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    /// By the numbers of both clients, the smaller first.
    pairs: HashMap<(usize, usize), Pair>,
    by_number: HashMap<u32, (usize, usize)>,
    next: u32,
}

impl Pairs {
    /// The pair of two clients. None if it is new: then it is expected from now on that one asks the other for a path.
    pub(super) fn get_or_begin(&mut self, asks: usize, is_asked: usize) -> Result<&mut Pair, Pair> {
        let key = (asks.min(is_asked), asks.max(is_asked));
        if !self.pairs.contains_key(&key) {
            let pair = Pair { number: self.next, asks, is_asked, stage: Stage::Expected, next: 0 };
            self.next = self.next.wrapping_add(1);
            self.by_number.insert(pair.number, key);
            self.pairs.insert(key, pair);
            return Err(pair);
        }
        Ok(self.pairs.get_mut(&key).expect("it is there"))
    }

    /// The pair of this number, if it is one of this client.
    pub(super) fn of(&mut self, number: u32, client: usize) -> Option<&mut Pair> {
        let key = self.by_number.get(&number)?;
        self.pairs.get_mut(key).filter(|pair| pair.has(client))
    }

    /// A client is gone. Returns the pairs that it was one of.
    pub(super) fn remove(&mut self, client: usize) -> Vec<Pair> {
        let Pairs { pairs, by_number, .. } = self;
        let removed: Vec<Pair> =
            pairs.extract_if(|_, pair| pair.has(client)).map(|(_, pair)| pair).collect();
        for pair in &removed {
            by_number.remove(&pair.number);
        }
        removed
    }
}
