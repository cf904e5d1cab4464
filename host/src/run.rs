//! Driving a host: as a daemon, or on a thread inside a program.

use std::io;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};

use os::packets::Packets;
use os::processor::now_ns;

use crate::plane::{Handle, Host};
use crate::system::System;

/// Where guests attach, if nobody says otherwise: `siga.sock` in `/run` for root, otherwise in
/// `$XDG_RUNTIME_DIR`, or in `/run/user/UID` where that is set up.
///
/// # Errors
/// If there is no such directory.
pub fn default_socket() -> io::Result<PathBuf> {
    let user = os::peer::Credentials::own().user;
    let directory = if user == 0 {
        PathBuf::from("/run")
    } else if let Some(directory) = std::env::var_os("XDG_RUNTIME_DIR") {
        PathBuf::from(directory)
    } else {
        PathBuf::from(format!("/run/user/{user}"))
    };
    if !directory.is_dir() {
        let what = format!(
            "no place for the host's socket: {} is not there; set XDG_RUNTIME_DIR or say --socket",
            directory.display()
        );
        return Err(io::Error::new(io::ErrorKind::NotFound, what));
    }
    Ok(directory.join("siga.sock"))
}

/// Drives a host on this thread until it is told to stop.
///
/// # Errors
/// The kernel refuses to let us wait: nothing that can be helped.
pub fn run(mut host: Host) -> io::Result<()> {
    let mut wait = None;
    while !host.is_stopped() {
        wait = host.poll(now_ns(), wait)?;
    }
    Ok(())
}

/// A host on a thread of this process. It ends when this is dropped; paths that it made go on.
#[derive(Debug)]
pub struct Embedded {
    handle: Handle,
    thread: Option<JoinHandle<io::Result<()>>>,
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
        Ok(Embedded { handle, thread: Some(thread) })
    }

    /// A new connection to this host, for a guest in this process.
    ///
    /// # Errors
    /// No descriptors left, or the host has failed.
    pub fn connect(&self) -> io::Result<Packets> {
        self.handle.connect()
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            // What it could not do it has said to those who asked.
            let _ = thread.join();
        }
    }
}
