//! Driving a host: as a daemon, or on a thread inside a program.

use std::io;
use std::os::fd::AsFd;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use os::fork::ForkGuard;
use os::packets::Packets;
use os::poller::wait_any;
use os::processor::now_ns;

use crate::plane::{Handle, Host};
use crate::system::System;

/// Drives a host on this thread until it is stopped.
///
/// # Errors
/// The kernel refuses the wait: not expected.
pub fn run(host: Host) -> io::Result<()> {
    drive(host, now_ns, |host, time| host.wait(time).map(|()| Woken::ToServe))
}

/// Drives a host on this thread until it is stopped, or until `end` is readable, as held signals are when one has come. Nothing is
/// read from `end`.
///
/// # Errors
/// The kernel refuses the wait: not expected.
pub fn run_until(host: Host, end: &impl AsFd) -> io::Result<()> {
    drive(host, now_ns, |host, time| {
        let [_, is_over] = wait_any([Some(host.as_fd()), Some(end.as_fd())], time)?;
        Ok(if is_over { Woken::ToEnd } else { Woken::ToServe })
    })
}

/// What a driver does after a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    ToServe,
    ToEnd,
}

/// Drives a host. The clock is read after each wait: what happened during the wait happened just now.
fn drive(
    mut host: Host,
    clock: impl Fn() -> u64,
    mut wait: impl FnMut(&Host, Option<Duration>) -> io::Result<Woken>,
) -> io::Result<()> {
    loop {
        let time = host.poll(clock())?;
        if host.is_stopped() || wait(&host, time)? == Woken::ToEnd {
            return Ok(());
        }
    }
}

/// A host on a thread of this process. It ends when this is dropped; paths that it made go on.
#[derive(Debug)]
pub struct Embedded {
    /// Both none only while it is dropped.
    handle: Option<Handle>,
    thread: Option<JoinHandle<io::Result<()>>>,
    guard: ForkGuard,
}

impl Embedded {
    /// Starts a host for this system. It listens at the system's socket, if one is given there.
    ///
    /// # Errors
    /// No descriptors or threads left, or another host listens there.
    pub fn start(system: System) -> io::Result<Embedded> {
        let socket = system.socket.clone();
        let (mut host, handle) = Host::new(system)?;
        if let Some(socket) = socket {
            host.listen(&socket)?;
        }
        let thread = thread::Builder::new().name("siga host".into()).spawn(move || run(host))?;
        let guard = ForkGuard::here();
        Ok(Embedded { handle: Some(handle), thread: Some(thread), guard })
    }

    /// A new connection to this host, for a guest in this process.
    ///
    /// # Errors
    /// No descriptors left, or the host has failed; `NotConnected` in a forked child, which has no host.
    pub fn connect(&self) -> io::Result<Packets> {
        let handle = self.handle.as_ref().filter(|_| !self.guard.in_child());
        handle.ok_or(io::ErrorKind::NotConnected)?.connect()
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if self.guard.in_child() {
            // The thread is the parent's, which may have held any lock at the fork.
            std::mem::forget((self.handle.take(), self.thread.take()));
            return;
        }
        self.handle.iter().for_each(Handle::stop);
        if let Some(thread) = self.thread.take() {
            // Errors were reported to the guests whose requests failed.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use fabric::control::{PACKET_BYTES_MAX, Reply, Request};

    use super::*;

    const HOUR_NS: u64 = 3_600_000_000_000;

    #[test]
    fn connection_after_an_idle_hour_has_as_much_time_as_any_other() {
        let (host, handle) = Host::new(System::open()).unwrap();
        let (now_ns, mut waits, mut stranger) = (Cell::new(0), 0, None);
        let mut buffer = [0; PACKET_BYTES_MAX];
        // What happens while the host waits.
        let wait = |_: &Host, _| {
            waits += 1;
            match waits {
                1 => {
                    now_ns.set(HOUR_NS);
                    stranger = Some(handle.connect().unwrap());
                }
                2 => handle.connect().map(drop).unwrap(),
                3 => {
                    let request = Request::Attach { name: "GUEST".parse().unwrap() };
                    let stranger = stranger.as_ref().unwrap();
                    stranger.send(&request.bytes(1), &[]).expect("the host has not hung up");
                }
                _ => {
                    let packet = stranger.as_ref().unwrap().receive(&mut buffer).unwrap();
                    let (_, reply) = Reply::parse(&buffer[..packet.bytes]).unwrap();
                    assert_eq!(reply, Reply::Attached);
                    handle.stop();
                }
            }
            Ok(Woken::ToServe)
        };
        drive(host, || now_ns.get(), wait).unwrap();
        assert_eq!(waits, 4);
    }
}
