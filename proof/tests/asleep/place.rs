//! The host of a program, which can be late, and how a descriptor is polled.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use host::Host;
use host::system::System;
use os::poller::wait_any;
use os::processor::now_ns;
use siga::{Guest, PathOptions};

/// How often somebody may be ready without anything to report, in a row.
pub const READY_WITH_NOTHING_MAX: usize = 16;

/// Longer than a guest waits before it looks for a host again. After some of it, it asks no more of one that is late.
const LATER_NS: u64 = 1_000_000_000;

/// More questions than a socket holds, and turns after which all that it did not hold was said and heard.
const FLOOD_MAX: usize = 2000;
const FLOOD_TURNS: usize = 16;

/// Turns after which a host has done all that it was asked: an answer may be asked for in the next.
const TURNS: usize = 4;

/// A place where hosts listen, one after the other.
pub struct Place {
    socket: PathBuf,
    host: Option<Host>,
    /// The host does nothing: it neither reads nor answers.
    is_stopped: bool,
    /// Guests may have more for the host than they could say.
    is_flooded: bool,
    /// How much later it is than the machine says.
    later_ns: u64,
}

impl Place {
    pub fn new() -> Place {
        static PLACES: AtomicU64 = AtomicU64::new(0);
        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        let name = format!("siga-asleep-{}-{number}", std::process::id());
        let socket = std::env::temp_dir().join(name);
        let mut place =
            Place { socket, host: None, is_stopped: false, is_flooded: false, later_ns: 0 };
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
        self.is_stopped = false;
    }

    /// The host does nothing until [`Place::go_on`], or until somebody waits for it.
    pub fn stop(&mut self) {
        self.is_stopped = self.host.is_some();
    }

    /// The host goes on, some time later.
    pub fn go_on(&mut self) {
        if self.is_stopped {
            self.is_stopped = false;
            self.later_ns += LATER_NS;
        }
    }

    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// The time now.
    pub fn now_ns(&self) -> u64 {
        now_ns() + self.later_ns
    }

    /// It is so much later that a guest without a host looks for one when it is polled.
    pub fn pass_time(&mut self) {
        self.later_ns += LATER_NS;
    }

    /// The host does all that it was asked, unless it is stopped.
    pub fn turn(&mut self) {
        let now_ns = self.now_ns();
        if let Some(host) = self.host.as_mut().filter(|_| !self.is_stopped) {
            for _ in 0..TURNS {
                host.poll(now_ns).unwrap();
            }
        }
    }

    /// The host does all that it was asked, unless it is stopped, and hears what these guests could not say.
    pub fn turn_with<'a>(&mut self, guests: impl Iterator<Item = &'a Guest> + Clone) {
        self.turn();
        if self.is_flooded && !self.is_stopped {
            for _ in 0..FLOOD_TURNS {
                for guest in guests.clone() {
                    guest.poll_at(self.now_ns());
                }
                self.turn();
            }
            self.is_flooded = false;
        }
    }

    /// A guest asks a host that is stopped for paths, and takes them back, until it can ask for no more.
    pub fn flood(&mut self, guest: &Guest, target: &str) {
        if self.is_stopped {
            self.is_flooded = true;
            for _ in 0..FLOOD_MAX {
                if guest.start_connecting(target, &PathOptions::default()).is_err() {
                    return;
                }
            }
        }
    }

    /// Whether a guest may have more for the host than can be said.
    pub fn is_flooded(&self) -> bool {
        self.is_flooded
    }

    /// Does what waits for the host, which goes on if it was stopped: it is asked behind all that it was asked before.
    pub fn meanwhile<T>(&mut self, verb: impl FnOnce() -> T) -> T {
        self.turn();
        self.go_on();
        let later_ns = self.later_ns;
        let Some(host) = &mut self.host else { return verb() };
        let is_done = AtomicBool::new(false);
        let done = thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    host.poll(now_ns() + later_ns).unwrap();
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

pub fn is_readable(descriptor: impl AsFd) -> bool {
    wait_any([Some(descriptor.as_fd())], Some(Duration::ZERO)).unwrap() == [true]
}

/// Waits until everything that was dropped is closed: what came from others is closed on a thread.
pub fn settle() {
    while os::foreign::waiting() > 0 {
        thread::yield_now();
    }
}
