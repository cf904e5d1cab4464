//! A control unit, a channel and their guests, some of which break the rules.
//!
//! | module | what it is |
//! |---|---|
//! | `guest` | guests of a channel that start any programs and send any requests |
//! | `honest` | a guest with a cylinder of blocks that does as it should, whatever others do |
//! | `parties` | the control unit, the channel, and the paths between all of them |
//! | `program` | channel programs of both modes, right and wrong |
//! | `status` | what may become of a program |
//! | `units` | a channel and a control unit that send any information units |
//! | `visitor` | a guest that starts one program at a time |
//! | `volume` | volume files that hold anything |

mod guest;
mod honest;
mod parties;
mod program;
mod status;
mod units;
mod visitor;
mod volume;

pub use guest::disk_guest;
pub use units::disk_units;
pub use volume::disk_volume;
