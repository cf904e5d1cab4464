//! The channel: subchannels that run a guest's channel programs against a control unit.
//!
//! | module | what it is |
//! |---|---|
//! | [`storage`] | the guest's storage, which may change while it is read |
//! | [`walk`] | CCWs, IDAWs and MIDAWs: what a program in command mode asks for |
//! | [`commands`] | what a channel has to know of the commands of a control unit |
//! | [`stream`] | TIDAWs: where the data of a program in transport mode are |
//! | [`request`] | what a guest and the channel send each other |
//! | [`subchannel`] | what a subchannel is doing |
//! | `ending` | what comes back from the control unit, and how programs end |
//! | `cancel` | withdrawing programs, and asking what became of them |
//! | `output` | output data for which the control unit has sent transfer ready |
//! | `guest` | a guest, and where its data come to |
//! | `run` | starting programs |

mod cancel;
pub mod commands;
mod ending;
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
