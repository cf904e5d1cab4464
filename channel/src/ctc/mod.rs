//! The virtual channel-to-channel adapter: a control unit whose commands meet those of another guest.
//!
//! | module | what it is |
//! |---|---|
//! | [`command`] | the commands, by the bits of their codes |
//! | [`adapter`] | the state machine with two sides: command and state to response |
//! | [`unit`](mod@unit) | the control unit: it runs the programs of both sides, and moves data |
//! | [`line`](mod@line) | a guest's end of a line: the programs that ctcm writes, and what became of them |
//!
//! The reasons are in `docs/design/ctc.md`.

pub mod adapter;
pub mod command;
pub mod line;
pub mod unit;

use crate::commands::CommandSet;

/// Bytes that one READ or WRITE moves at most. What a longer command asks for beyond that is not transferred.
pub const TRANSFER_BYTES_MAX: u32 = 64 << 10;

/// The commands of the adapter, as far as they concern a channel.
pub const COMMANDS: CommandSet = CommandSet {
    output_bytes_max: TRANSFER_BYTES_MAX,
    is_immediate: command::is_immediate,
    is_branch: |_| false,
    halts_idle: true,
};
