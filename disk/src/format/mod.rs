//! Formats in storage, as views over bytes and plain structs: those of every channel program, and those of ECKD commands.
//!
//! Numbers are big-endian, as on the mainframe; bit 0 is the leftmost. Every struct has `parse` and `emit`. What an
//! address means is decided by those who have the storage.
//!
//! The layouts of [`eckd`] and [`fault`] follow `drivers/s390/block/dasd_eckd.h` of Linux; the others are the channel's.

pub mod eckd;
pub mod fault;

pub use channel::format::{ccw, idaw, irb, orb, scsw, sense, tccb, tcw, tsb};
pub(crate) use channel::format::{u16_at, u32_at};
