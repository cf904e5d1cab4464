//! Channel programs, control units and volumes: no threads, no unsafe code, and no clock but one for waits for files.
//!
//! In the order in which an I/O passes them:
//!
//! | room | what it is |
//! |---|---|
//! | [`format`](mod@format) | what lies in storage: CCWs, ORB, SCSW, IRB, TCW, TCCB, parameters of ECKD commands |
//! | [`program`] | the guest's side: programs in its storage, and what became of them |
//! | [`channel`] | subchannels, which run a guest's channel programs |
//! | [`exchange`] | information units between a channel and a control unit, over a path |
//! | [`unit`](mod@unit) | the control unit: ECKD commands on volumes, with a cache of tracks |
//! | [`report`] | what a server of volumes shows of itself |
//! | [`ckd`] | volumes: files of count-key-data tracks, as Hercules reads and writes them |
//!
//! Programs use the crate `siga`, which adds waiting. The reasons are in `docs/design/disk.md`.

pub mod channel;
pub mod ckd;
pub mod exchange;
pub mod format;
pub mod program;
pub mod report;
pub mod unit;
