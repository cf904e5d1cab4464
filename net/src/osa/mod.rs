//! OSA adapters: several guests on the port of one network interface, by queued direct I/O.

pub mod wire;
