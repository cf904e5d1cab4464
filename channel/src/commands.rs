//! What a channel has to know of the commands of a control unit.

/// The commands of a control unit, as far as they concern the channel.
///
/// The channel sends the commands of a chain ahead of their ends, and their output data with them. It knows no command itself, so whoever
/// attaches a guest says which commands need more than that.
#[derive(Clone, Copy, Debug)]
pub struct CommandSet {
    /// The most bytes of output data that a command of command mode can use. The channel sends no more of a longer command.
    pub output_bytes_max: u32,
    /// Returns true for an immediate command: one that ends without moving data. Its count is no wrong length in format 0, and in format
    /// 1 if the ORB suppresses that.
    pub is_immediate: fn(u8) -> bool,
    /// Returns true for a command whose status says which CCW comes next, such as a search of a disk. The channel sends no further command of the
    /// chain until a command response brings that status.
    pub is_branch: fn(u8) -> bool,
    /// Halt and clear reset the device also if the control unit has no program of the subchannel: none is under way, or the program is suspended.
    /// The control unit gets a cancel with the number of the last exchange then.
    pub halts_idle: bool,
}
