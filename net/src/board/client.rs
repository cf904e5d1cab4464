//! The clients of a TCPIP machine, as they stand in rows of its stack's board.

use fabric::name::Name;

use super::FIELDS;

/// A client of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientRow {
    /// The guest.
    pub guest: Name,
    /// Its sockets.
    pub sockets: u64,
    /// Sockets that it may have.
    pub sockets_max: u64,
    /// Bytes that its sockets may keep at the machine.
    pub buffers_bytes: u64,
    /// Bytes that they may at most.
    pub buffers_bytes_max: u64,
    /// Requests that were taken, data included.
    pub requests: u64,
    /// Bytes from the client.
    pub bytes_in: u64,
    /// Bytes to it.
    pub bytes_out: u64,
    /// Sockets that were refused for a limit of its own.
    pub refused: u64,
    /// Times that it had used up its turn, and waited for its next one.
    pub turns_cut: u64,
}

impl ClientRow {
    pub(super) fn fields(&self) -> [u64; FIELDS] {
        [
            u64::from_le_bytes(self.guest.bytes()),
            self.sockets,
            self.sockets_max,
            self.buffers_bytes,
            self.buffers_bytes_max,
            self.requests,
            self.bytes_in,
            self.bytes_out,
            self.refused,
            self.turns_cut,
        ]
    }

    /// None if it names no guest.
    pub(super) fn parse(fields: [u64; FIELDS]) -> Option<ClientRow> {
        let [name, sockets, sockets_max, buffers_bytes, buffers_bytes_max, rest @ ..] = fields;
        let [requests, bytes_in, bytes_out, refused, turns_cut] = rest;
        Some(ClientRow {
            guest: Name::parse(name.to_le_bytes())?,
            sockets,
            sockets_max,
            buffers_bytes,
            buffers_bytes_max,
            requests,
            bytes_in,
            bytes_out,
            refused,
            turns_cut,
        })
    }
}
