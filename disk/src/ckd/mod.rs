//! Volumes: files of count-key-data tracks, as Hercules reads and writes them.
//!
//! ```text
//! file    | header 512 | track 0 | track 1 | ...        tracks of 56832 bytes, 15 a cylinder
//! track   | 0 8 | cylinder 16 | head 16 | record 0 | record 1 | ... | FF 8 bytes | anything |
//! record  | count field 8 | key | data |
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`model`] | models of the 3390, and what fits on a track |
//! | [`header`] | the first 512 bytes of a file |
//! | [`track`] | a track's records, and what can be wrong with them |
//! | [`backing`] | what a file has to do, and a simulated one that fails |
//! | [`volume`] | a volume in one file or several |
//! | [`direct`] | reads of its files past the page cache, many at a time |
//! | [`label`] | the volume label and the table of contents |
//! | [`create`](mod@create) | new volumes, and blocks into and out of them |
//! | [`check`](mod@check) | everything that is wrong with a volume |

pub mod backing;
pub mod check;
pub mod create;
pub mod direct;
mod ebcdic;
pub mod header;
pub mod label;
pub mod model;
pub mod track;
pub mod volume;
