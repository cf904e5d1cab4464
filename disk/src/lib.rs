//! Disks: channel programs for volumes, their control unit, and the volumes: no threads, no unsafe code, and no clock but one for waits for files.
//!
//! In the order in which an I/O passes them:
//!
//! | room | what it is |
//! |---|---|
//! | [`format`](mod@format) | what lies in storage: parameters of ECKD commands, and what every channel program has |
//! | [`program`] | the guest's side: programs in its storage |
//! | [`unit`](mod@unit) | the control unit: ECKD commands on volumes, with a cache of tracks |
//! | [`report`] | what a server of volumes shows of itself |
//! | [`ckd`] | volumes: files of count-key-data tracks, as Hercules reads and writes them |
//!
//! The channel that runs the programs, and the exchange with the control unit, are the crate `channel`. Programs use the crate `siga`, which adds
//! waiting. The reasons are in `docs/design/disk.md`.

pub mod ckd;
pub mod format;
pub mod program;
pub mod report;
pub mod unit;
