//! The channel subsystem: subchannels that run a guest's channel programs against a control unit. No threads, no clock, no unsafe code.
//!
//! In the order in which an I/O passes them:
//!
//! | module | what it is |
//! |---|---|
//! | [`format`](mod@format) | what lies in storage: CCWs, ORB, SCSW, IRB, TCW, TCCB |
//! | [`client`] | the guest's side: its end of the path to a channel |
//! | [`request`] | what a guest and the channel send each other |
//! | [`storage`] | the guest's storage, which may change while it is read |
//! | [`commands`] | what a channel has to know of the commands of a control unit |
//! | [`walk`] | CCWs, IDAWs and MIDAWs: what a program in command mode asks for |
//! | [`stream`] | TIDAWs: where the data of a program in transport mode are |
//! | [`subchannel`] | what a subchannel is doing |
//! | `run` | starting programs |
//! | `output` | output data for which the control unit has sent transfer ready |
//! | `ending` | what comes back from the control unit, and how programs end |
//! | `cancel` | withdrawing programs, and asking what became of them |
//! | `guest` | a guest, and where its data come to |
//! | [`exchange`] | information units between a channel and a control unit, over a path |
//!
//! A control unit is in a crate or module of its own, such as the crate `disk`: the channel knows no commands but NOP and transfer in channel. The
//! reasons are in `docs/design/disk.md`.

mod cancel;
pub mod client;
pub mod commands;
pub mod ctc;
mod ending;
pub mod exchange;
pub mod format;
mod guest;
mod output;
pub mod request;
mod run;
pub mod storage;
pub mod stream;
pub mod subchannel;
pub mod walk;

pub use guest::{held_back_bytes_max, result_storage_bytes};
pub use run::{
    AttachError, Channel, Counters, GUESTS_MAX, Guests, PATHS_MAX, SUBCHANNELS_MAX, Use,
};
