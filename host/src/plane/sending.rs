//! Packets from the host to connections, and those that wait until the kernel has memory for them.

use std::io;
use std::os::fd::BorrowedFd;

use fabric::control::{NO_DATA, Problem, Reply};
use tracing::warn;

use super::{Host, UNSENT_MAX};

impl Host {
    /// Sends to a connection. One that leaves so much unread that nothing more fits is given up: it can only
    /// be broken. If the host cannot pass the descriptors, the guest gets that error instead; if the kernel
    /// has no memory for a packet, the packet waits. Whether the reply went, or needs not to go any more.
    pub(super) fn send(
        &mut self,
        number: u64,
        serial: u32,
        reply: &Reply,
        descriptors: &[BorrowedFd<'_>],
    ) -> bool {
        let Some(connection) = self.connections.get_mut(&number) else { return true };
        let bytes = reply.bytes(serial);
        match connection.send(&bytes, descriptors) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory && !descriptors.is_empty() => {
                warn!(%error, "cannot pass descriptors to a guest");
                let failed = Reply::Failed { problem: Problem::HostResources, data: NO_DATA };
                self.send(number, serial, &failed, &[]);
                false
            }
            Err(error) => {
                self.not_sent(number, bytes, &error);
                true
            }
        }
    }

    /// A packet could not be sent. It goes later if it is we who lack something; otherwise the connection is given
    /// up.
    pub(super) fn not_sent(&mut self, number: u64, bytes: Vec<u8>, error: &io::Error) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        if error.kind() != io::ErrorKind::OutOfMemory || connection.unsent.len() >= UNSENT_MAX {
            return self.doomed.push(number);
        }
        connection.unsent.push_back(bytes);
        if self.unsent.insert(number) {
            // What it asks meanwhile stays unread.
            warn!(%error, connection = number, "a notice has to wait");
        }
    }

    /// Sends what waits until the kernel has memory for it.
    pub(super) fn send_unsent(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        match connection.send_unsent() {
            Ok(()) => self.is_ready(number),
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory => {
                self.unsent.insert(number);
            }
            Err(_) => self.doomed.push(number),
        }
    }
}
