//! Values in the order in which they were added, each found by a key.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Values in the order in which they were added, each under a key of its own.
#[derive(Debug)]
pub(super) struct Ordered<K, V> {
    values: BTreeMap<u64, (K, V)>,
    places: BTreeMap<K, u64>,
    /// The place of the next value.
    next: u64,
}

impl<K, V> Default for Ordered<K, V> {
    fn default() -> Ordered<K, V> {
        Ordered { values: BTreeMap::new(), places: BTreeMap::new(), next: 0 }
    }
}

impl<K: Copy + Ord, V> Ordered<K, V> {
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Adds a value behind all others.
    ///
    /// # Panics
    /// If there is a value under this key.
    pub(super) fn push(&mut self, key: K, value: V) {
        let before = self.places.insert(key, self.next);
        assert!(before.is_none(), "a key of its own");
        self.values.insert(self.next, (key, value));
        self.next += 1;
    }

    pub(super) fn has(&self, key: K) -> bool {
        self.places.contains_key(&key)
    }

    pub(super) fn get_mut(&mut self, key: K) -> Option<&mut V> {
        let place = self.places.get(&key)?;
        self.values.get_mut(place).map(|(_, value)| value)
    }

    pub(super) fn remove(&mut self, key: K) -> Option<V> {
        let place = self.places.remove(&key)?;
        self.values.remove(&place).map(|(_, value)| value)
    }

    /// Removes all values whose keys are in a range.
    pub(super) fn remove_range(&mut self, keys: RangeInclusive<K>) -> Vec<V> {
        let keys: Vec<K> = self.places.range(keys).map(|(key, _)| *key).collect();
        keys.into_iter().filter_map(|key| self.remove(key)).collect()
    }

    /// Removes the values of which this is true, in their order.
    pub(super) fn remove_where(&mut self, mut is_one: impl FnMut(&V) -> bool) -> Vec<V> {
        let keys: Vec<K> =
            self.iter().filter(|(_, value)| is_one(value)).map(|(key, _)| key).collect();
        keys.into_iter().filter_map(|key| self.remove(key)).collect()
    }

    /// The first value at this position or behind it, with its position and key. Positions grow, and are not used again.
    pub(super) fn at_or_after(&self, position: u64) -> Option<(u64, K, &V)> {
        let (position, (key, value)) = self.values.range(position..).next()?;
        Some((*position, *key, value))
    }

    /// All values, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.values.values().map(|(key, value)| (*key, value))
    }

    /// The values whose keys are in a range, in the order of their keys.
    pub(super) fn range(&self, keys: RangeInclusive<K>) -> impl Iterator<Item = &V> {
        self.places.range(keys).map(|(_, place)| &self.values[place].1)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.values.values_mut().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_in_order_and_are_found_by_their_keys() {
        let mut ordered = Ordered::default();
        for (key, value) in [(7, 'a'), (3, 'b'), (9, 'c'), (4, 'd'), (8, 'e')] {
            ordered.push(key, value);
        }
        assert_eq!(
            (ordered.remove(3), ordered.remove(3), ordered.has(3)),
            (Some('b'), None, false)
        );
        ordered.push(3, 'f');
        *ordered.get_mut(9).unwrap() = 'x';
        let all: String = ordered.iter().map(|(_, value)| value).collect();
        assert_eq!(all, "axdef");
        assert_eq!(ordered.at_or_after(3), Some((3, 4, &'d')));
        assert_eq!(ordered.at_or_after(1).map(|(at, ..)| at), Some(2), "the second is gone");
        assert_eq!(ordered.at_or_after(6), None);
        assert_eq!(ordered.range(4..=8).collect::<String>(), "dae");
        assert_eq!(ordered.remove_range(7..=8), ['a', 'e']);
        assert_eq!(ordered.remove_where(|value| *value != 'd'), ['x', 'f']);
        assert_eq!((ordered.len(), ordered.is_empty(), ordered.get_mut(3)), (1, false, None));
    }
}
