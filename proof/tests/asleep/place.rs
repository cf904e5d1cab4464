//! The host of a program, and how a descriptor is polled.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use host::Host;
use host::system::System;
use os::poller::wait_any;
use os::processor::now_ns;
use siga::Guest;

/// How often somebody may be ready without anything to report, in a row.
pub const READY_WITH_NOTHING_MAX: usize = 16;

/// Longer than a guest waits before it looks for a host again.
const LATER_NS: u64 = 1_000_000_000;

/// Turns after which a host has done all that it was asked: an answer may be asked for in the next.
const TURNS: usize = 4;

/// A place where hosts listen, one after the other.
pub struct Place {
    socket: PathBuf,
    host: Option<Host>,
}

impl Place {
    pub fn new() -> Place {
        static PLACES: AtomicU64 = AtomicU64::new(0);
        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        let name = format!("siga-asleep-{}-{number}", std::process::id());
        let mut place = Place { socket: std::env::temp_dir().join(name), host: None };
        place.start();
        place
    }

    pub fn has_host(&self) -> bool {
        self.host.is_some()
    }

    /// Starts a host, if there is none.
    pub fn start(&mut self) {
        if self.host.is_none() {
            let (mut host, _) = Host::new(System::open()).unwrap();
            host.listen(&self.socket).unwrap();
            self.host = Some(host);
        }
    }

    pub fn kill(&mut self) {
        self.host = None;
    }

    /// The host does all that it was asked.
    pub fn turn(&mut self) {
        if let Some(host) = &mut self.host {
            for _ in 0..TURNS {
                host.poll(now_ns()).unwrap();
            }
        }
    }

    /// Does what waits for the host.
    pub fn meanwhile<T>(&mut self, verb: impl FnOnce() -> T) -> T {
        self.turn();
        let Some(host) = &mut self.host else { return verb() };
        let is_done = AtomicBool::new(false);
        let done = thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    host.poll(now_ns()).unwrap();
                    thread::yield_now();
                }
            });
            let done = verb();
            is_done.store(true, Ordering::Relaxed);
            done
        });
        self.turn();
        done
    }

    pub fn guest(&mut self, name: &str) -> Guest {
        let socket = self.socket.clone();
        self.meanwhile(|| Guest::attach(socket, name)).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// What a guest's clock says so much later that it looks for a host again, and again.
pub fn later_ns(times: u64) -> u64 {
    now_ns() + times * LATER_NS
}

pub fn is_readable(descriptor: impl AsFd) -> bool {
    wait_any([Some(descriptor.as_fd())], Some(Duration::ZERO)).unwrap() == [true]
}

/// Waits until everything that was dropped is closed: what came from others is closed on a thread.
pub fn settle() {
    while os::foreign::waiting() > 0 {
        thread::yield_now();
    }
}
