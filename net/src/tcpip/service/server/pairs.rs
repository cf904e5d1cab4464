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
    /// There is none, and will be none unless one of them says yet that it lacks something: the host does not allow it, one of them does not want it,
    /// the path has ended, or they were introduced often enough.
    Apart,
    /// There is none for want of something. They are introduced again if they go on talking after this time.
    PutOff(u64),
}

/// How often two clients are introduced, at most: it may be one of them that makes it fail each time.
const ATTEMPTS_MAX: u32 = 8;

/// How long two clients talk over the machine, at least, before they are introduced again: after the first attempt, and twice as long after each
/// other one.
const PUT_OFF_NS: u64 = 1_000_000_000;

/// Two clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    /// What it is called: no other pair was or will be called so.
    pub(super) number: u32,
    /// Who asks for the path, and who is asked, by their numbers.
    pub(super) asks: usize,
    pub(super) is_asked: usize,
    pub(super) stage: Stage,
    /// How often they were introduced, with this time.
    attempts: u32,
    /// The number of the next connection.
    next: u32,
}

impl Pair {
    /// How far they are if there is no path between the two now, and may be one later.
    pub(super) fn put_off(&self, now: u64) -> Stage {
        match self.attempts {
            ATTEMPTS_MAX.. => Stage::Apart,
            attempts => Stage::PutOff(now.saturating_add(PUT_OFF_NS << (attempts - 1))),
        }
    }

    pub(super) fn has(&self, client: usize) -> bool {
        self.asks == client || self.is_asked == client
    }

    /// A number for a connection, with that of the pair above it.
    ///
    /// None once all numbers were used: a number that is used again could be taken for another.
    pub(super) fn next_connection(&mut self) -> Option<u64> {
        let number = self.next;
        self.next = number.checked_add(1)?;
        Some(u64::from(self.number) << 32 | u64::from(number))
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
    /// The pair of two clients, as an error if it is new, or was put off until now: then it is expected from now on that one asks the other for a
    /// path. None once all numbers of pairs were used.
    pub(super) fn get_or_begin(
        &mut self,
        asks: usize,
        is_asked: usize,
        now: u64,
    ) -> Option<Result<&mut Pair, Pair>> {
        let key = (asks.min(is_asked), asks.max(is_asked));
        let is_due = |pair: &Pair| matches!(pair.stage, Stage::PutOff(until) if until <= now);
        if self.pairs.get(&key).is_none_or(is_due) {
            let (number, stage) = (self.next, Stage::Expected);
            self.next = number.checked_add(1)?;
            let before = self.pairs.remove(&key);
            // What either still says of an earlier attempt is of a number that no pair has.
            if let Some(before) = &before {
                self.by_number.remove(&before.number);
            }
            let attempts = before.map_or(1, |before| before.attempts + 1);
            let pair = Pair { number, asks, is_asked, stage, attempts, next: 0 };
            self.by_number.insert(number, key);
            self.pairs.insert(key, pair);
            return Some(Err(pair));
        }
        self.pairs.get_mut(&key).map(Ok)
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
