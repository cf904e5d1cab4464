//! What the tests of this crate have in common.

use fabric::control::Kind;
use fabric::path::{Halves, Shape, Side, Terms};
use os::doorbell::Doorbell;

/// Both sides of a path that has a conversation over it. `shape` is that of the first.
pub(crate) fn joined(shape: Shape, terms: Terms) -> (Halves, Halves) {
    let (one, one_descriptors) = Side::create(shape).unwrap();
    let (other, other_descriptors) = Side::create(shape.mirrored()).unwrap();
    let ends = (0..Kind::APPC.doorbells(shape)).map(|_| Doorbell::ends().unwrap());
    let (one_ends, other_ends): (Vec<_>, Vec<_>) = ends.unzip();
    let one = one.join(other_descriptors, one_ends, terms).unwrap();
    let other = other.join(one_descriptors, other_ends, terms).unwrap();
    (one, other)
}
