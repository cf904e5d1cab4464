//! OSA adapters: guests with devices on the port of a network interface, by queued direct I/O.
//!
//! A [`Server`] is a guest that has a wire and serves an adapter: to the devices of other guests, which are its clients. A stack is at a device
//! ([`Stack::at`](crate::tcpip::Stack)), and so can any program be that has frames of its own:
//!
//! ```no_run
//! use siga::Guest;
//! use siga::osa::{Osa, OsaOptions, Request};
//!
//! let guest = Guest::attach(siga::default_socket()?, "ALICE")?;
//! let mut device = Osa::open(guest, "OSA1", &OsaOptions::default())?;
//! device.register(Request::AddAddress("192.168.1.5".parse()?));
//! device.wait_until_up(std::time::Duration::from_secs(5))?;
//! println!("packets of up to {} bytes", device.mtu());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `docs/design/osa.md` has the reasons.

mod cable;
mod capture;
mod changes;
mod client;
mod connecting;
mod inline;
mod reopening;
mod server;
mod waits;

pub use cable::{Cable, CableOptions, DELAY_MAX, cable};
pub use capture::{CAPTURES_MAX, Capture, CaptureOver, OpenCaptureError, Passed, Way};
pub use changes::OsaChange;
pub use client::{OpenOsaError, Osa, OsaOptions, OsaState};
pub use inline::Served;
pub use net::osa::adapter::Counters;
pub use net::osa::buffer::QueueCounters;
pub use net::osa::control::{Port, Refused, Request, Router, Stopped};
pub use net::osa::device::{DropReason, Drops, INPUTS_MAX, OUTPUTS_MAX, State};
pub use net::osa::interface::Counters as DeviceCounters;
pub use net::osa::memory::MemoryWire;
pub use net::osa::packet::Layer;
pub use net::osa::tuning::{Inbperf, Moderation, Profile};
pub use net::osa::wire::{Capabilities, Carrier, NotSent, Wire, WireCounters};
pub use net::osa::workload::{Connection, Workload};
pub use net::tcpip::BulkState;
pub use net::wire::Conditions;
pub use reopening::OpenWire;
pub use server::{DeviceReport, Server, ServerError, ServerOptions};

use crate::UserData;

/// Letters in the user data with which a guest asks an adapter for a device.
const LETTERS: [u8; 8] = *b"SIGAOSA\0";

/// Letters in the user data with which a guest asks to capture at a port.
const CAPTURE_LETTERS: [u8; 8] = *b"SIGAOCAP";

/// The user data with which a guest asks for a device: the letters, and zeros.
const WANTED: UserData = with_zeros(LETTERS);

/// The user data with which a guest asks to capture.
const CAPTURED: UserData = with_zeros(CAPTURE_LETTERS);

const fn with_zeros(letters: [u8; 8]) -> UserData {
    let mut bytes = [0; 16];
    let mut at = 0;
    while at < letters.len() {
        bytes[at] = letters[at];
        at += 1;
    }
    bytes
}

/// Storage that an end of a device may lend for each of its queues: as many buffers as may be on their way, and those that are being filled.
const QUEUE_STORAGE_BYTES: u64 = 160 * net::osa::packet::BUFFER_BYTES as u64;

/// Bytes in buffers of a queue that may be on their way: all of them.
const WINDOW_BYTES: usize = 128 * net::osa::packet::BUFFER_BYTES;
