//! OSA adapters: several guests on the port of one network interface, by queued direct I/O.

pub mod adapter;
pub mod buffer;
pub mod control;
pub mod device;
pub mod interface;
pub mod memory;
pub mod packet;
mod router;
pub mod wire;

#[cfg(test)]
mod tests;
