//! Tables by hash.
//!
//! Whoever chooses what is put there must not know where it lies, so each table has a secret. In this crate's tests none has: what a seed
//! brings about is the same each time.

#[cfg(test)]
use std::hash::{BuildHasherDefault, DefaultHasher};

#[cfg(not(test))]
pub(super) type Hashing = std::hash::RandomState;
#[cfg(test)]
pub(super) type Hashing = BuildHasherDefault<DefaultHasher>;

pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, Hashing>;
pub(crate) type HashSet<K> = std::collections::HashSet<K, Hashing>;
