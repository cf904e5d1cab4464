//! Peers driven by a script of bytes: bodies for property tests and for a fuzzer.
//!
//! Each body is deterministic: it depends on the bytes alone. Each has a second, honest path in the same
//! process. Permitted outcomes: messages, errors, a severed path. Faults: a panic, a hang, a byte read
//! outside lent storage, a descriptor or a mapping left over, memory beyond the terms, or an effect on the
//! second path.

mod adapter;
mod cable;
mod conversing;
mod disk;
mod doorbell;
mod hosting;
mod impostor;
mod intruder;
mod lan;
mod liar;
mod line;
mod neighbour;
mod partner;
mod port;
mod profile;
mod reader;
mod reading;
mod registration;
mod script;
mod serving;
mod stack;
mod talking;
mod terminal;
mod visiting;
mod writer;
mod writing;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use fabric::path::{PAGE_BYTES, Terms};

pub use adapter::osa_adapter;
pub use conversing::iucv_peer;
pub use disk::{disk_guest, disk_units, disk_volume};
pub use doorbell::doorbell_abuse;
pub use hosting::control_protocol_host;
pub use impostor::Impostor;
pub use lan::lan_peer;
pub use line::line_messages;
pub use partner::appc_peer;
pub use port::port_frames;
pub use profile::profile_import;
pub use reading::{reader_scribble, reader_scribble_meanwhile};
pub use registration::lan_registration;
pub use serving::{tcpip_client, tcpip_service};
pub use stack::tcpip_frames;
pub use talking::tcpip_conversation;
pub use terminal::{terminal_client, terminal_server};
pub use visiting::control_protocol_guest;
pub use writing::{writer_scribble, writer_scribble_meanwhile};

/// Deeds of one program, on either side.
const DEEDS_MAX: usize = 500;

/// The neighbour's path is used once in so many deeds.
const DEEDS_PER_VISIT: usize = 64;

/// How long others of this process may hold descriptors of their own before a descriptor counts as left over.
const PATIENCE: Duration = Duration::from_secs(10);

/// Terms that are soon reached.
const TERMS: Terms = Terms {
    window_bytes: 2 * PAGE_BYTES,
    announced_bytes_max: 500_000,
    messages_max: 20,
    storage_bytes_max: 4 << 20,
    peer_storage_bytes_max: 4 << 20,
    storage: os::storage::StorageOptions { huge: false, locked: false },
};

/// What a process has to give back. Bodies run one at a time, or they would count each other's.
struct Watch {
    descriptors: usize,
    mappings: usize,
    _alone: MutexGuard<'static, ()>,
}

/// Does what opens descriptors while no body counts them.
pub fn alone<T>(deed: impl FnOnce() -> T) -> T {
    let _alone = lock();
    deed()
}

fn lock() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Watch {
    fn start() -> Watch {
        let alone = lock();
        Watch { descriptors: descriptors(), mappings: mappings(), _alone: alone }
    }

    /// Everything was given back.
    fn stop(self) {
        // A thread closes refused descriptors. Closing those that the bodies pass cannot wait.
        while os::foreign::waiting() > 0 {
            thread::yield_now();
        }
        // Another test may read its seeds at this moment, and lose the processor over it.
        let began = Instant::now();
        let more = || descriptors().saturating_sub(self.descriptors);
        let mut left_over = more();
        while left_over > 0 && began.elapsed() < PATIENCE {
            thread::yield_now();
            left_over = more();
        }
        assert_eq!(left_over, 0, "descriptors are left over");
        assert_eq!(mappings(), self.mappings, "mappings are left over");
    }
}

/// Sets the flag when it is dropped, for any reason: a thread that goes on would hide a panic.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Descriptors of this process, those included that were refused and wait to be closed: they are as many as others.
fn descriptors() -> usize {
    os::memory::own_descriptors().expect("our own")
}

/// Mappings of storage, own and lent.
fn mappings() -> usize {
    os::memory::own_storage_mappings("siga ").expect("our own").len()
}
