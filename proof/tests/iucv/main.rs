//! A path of IUCV between two honest sides.

mod alone;
