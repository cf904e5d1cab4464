//! OSA adapters: several guests on the port of one network interface, by queued direct I/O.
//!
//! | module | what it is for |
//! |---|---|
//! | [`packet`] | packets in a buffer, behind headers of 32 bytes |
//! | [`buffer`] | filling buffers and emptying them, at either end |
//! | [`capture`] | copies of frames for guests that capture at a port |
//! | [`control`] | what a guest asks, and the adapter answers and tells |
//! | `interface` | a data device, as its guest has it; with the feature `tcpip` |
//! | `order` | which of its input queues a guest reads next |
//! | `device` | the same, as the adapter has it; with that feature |
//! | `adapter` | the devices of several guests in front of one wire; with the same feature |
//! | `router` | which device a frame is for |
//! | `sorter` | by which input queue a packet comes; with that feature, too |
//! | `events` | what has become of a device's queues lately; with that feature, too |
//! | [`tuning`] | when buffers are handed over |
//! | [`workload`] | what packets are sorted by |
//! | [`wire`] | what a port is connected to |
//! | [`memory`] | a wire in memory |
//! | [`drops`] | why packets are dropped, and how many were |
//! | [`gauge`] | what observers see of a device, in its path |
//! | [`report`] | what observers see of a port and its devices, in storage of the adapter |
//!
//! Nothing here has a thread or a clock. The reasons are in `docs/design/osa.md`.

// Adapter and guest share code with the stack: neighbours, and the types of packets.
#[cfg(feature = "tcpip")]
pub mod adapter;
pub mod buffer;
pub mod cable;
pub mod capture;
pub mod control;
#[cfg(feature = "tcpip")]
pub mod device;
pub mod drops;
pub mod events;
pub mod gauge;
#[cfg(feature = "tcpip")]
pub mod interface;
pub mod memory;
#[cfg(feature = "tcpip")]
mod order;
pub mod packet;
pub mod report;
#[cfg(feature = "tcpip")]
mod router;
#[cfg(feature = "tcpip")]
mod sorter;
pub mod tuning;
pub mod wire;
pub mod workload;

#[cfg(all(test, feature = "tcpip"))]
mod tests;
