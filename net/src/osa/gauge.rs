//! What an adapter shows observers of a device, in the gauges of its side of the path: of each queue that the guest reads those of the sender, and of each
//! that it writes those of the receiver.

/// In both: packets.
pub const PACKETS: usize = 0;

/// In both: bytes of these, as the studies count them.
pub const BYTES: usize = 1;

/// The sender's: packets for which the guest had left no buffer.
pub const EXHAUSTED: usize = 2;

/// The first sender's: packets of and for the device that were dropped, whatever the reason.
pub const DROPPED: usize = 3;

/// The first receiver's: processor time of the thread that serves the adapter, in nanoseconds.
pub const CPU_NS: usize = 2;

/// The first receiver's: that part of it in which nothing was found.
pub const SPINNING_NS: usize = 3;
