//! The sockets of state machines, with their buffers, which are used again.
//!
//! Fresh buffers are page faults on first touch, and zeros: for a short connection both cost more than all else. So the socket
//! of a connection that is over waits for the next one. Its ring begins at the front again, where the memory has been touched.

use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp;

use super::machine::Manner;

/// A socket in a set of its own, and its buffers.
pub(super) struct Room {
    pub(super) set: SocketSet<'static>,
    pub(super) handle: SocketHandle,
}

impl Room {
    fn new(manner: &Manner) -> Room {
        let buffer = |bytes| tcp::SocketBuffer::new(vec![0; bytes]);
        let socket = tcp::Socket::new(buffer(manner.receive_bytes), buffer(manner.send_bytes));
        let mut set = SocketSet::new(Vec::with_capacity(1));
        let handle = set.add(socket);
        Room { set, handle }
    }

    pub(super) fn socket(&self) -> &tcp::Socket<'static> {
        self.set.get(self.handle)
    }

    pub(super) fn socket_mut(&mut self) -> &mut tcp::Socket<'static> {
        self.set.get_mut(self.handle)
    }
}

/// The sockets of a stack, all of which have buffers of the same size.
pub(super) struct Pool {
    /// Those that are over. The last was used last.
    free: Vec<Room>,
    /// How many of them are kept.
    free_max: usize,
    in_use: usize,
    in_use_max: usize,
    high_water: usize,
    /// Bytes that were freed and that the allocator may have kept.
    freed_bytes: usize,
}

/// How many freed bytes the allocator may keep: to have it give them back takes it some time.
const FREED_BYTES_MAX: usize = 32 << 20;

/// How the buffers of a stack's connections are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUse {
    /// Bytes of both buffers of a connection.
    pub connection_bytes: usize,
    /// Connections that have buffers.
    pub in_use: usize,
    /// The most that have had buffers at once.
    pub high_water: usize,
    /// Connections that may have buffers.
    pub in_use_max: usize,
    /// Buffers that wait for their next connection.
    pub free: usize,
}

impl Pool {
    /// Buffers for so many bytes of connections at most, of which so many wait for the next connection: for one connection
    /// at least.
    pub(super) fn new(manner: &Manner, bytes_max: usize, kept_bytes_max: usize) -> Pool {
        let each = manner.receive_bytes + manner.send_bytes;
        let in_use_max = (bytes_max / each).max(1);
        let free_max = kept_bytes_max / each;
        Pool { free: Vec::new(), free_max, in_use: 0, in_use_max, high_water: 0, freed_bytes: 0 }
    }

    pub(super) fn usage(&self, manner: &Manner) -> PoolUse {
        let Pool { free, in_use, in_use_max, high_water, .. } = self;
        PoolUse {
            connection_bytes: manner.receive_bytes + manner.send_bytes,
            in_use: *in_use,
            high_water: *high_water,
            in_use_max: *in_use_max,
            free: free.len(),
        }
    }

    /// Whether a new connection finds no buffers.
    pub(super) fn is_exhausted(&self) -> bool {
        self.in_use >= self.in_use_max
    }

    /// A socket that was never used, or that knows nothing of what it was used for. Whoever has to keep the limit has asked
    /// [`Pool::is_exhausted`].
    pub(super) fn take(&mut self, manner: &Manner) -> Room {
        self.in_use += 1;
        self.high_water = self.high_water.max(self.in_use);
        let mut room = self.free.pop().unwrap_or_else(|| Room::new(manner));
        // What a socket of smoltcp does not forget when it listens or connects.
        let socket = room.socket_mut();
        socket.set_congestion_control(manner.congestion());
        socket.set_ack_delay(manner.acknowledge_after());
        socket.set_nagle_enabled(true);
        socket.set_keep_alive(None);
        socket.set_timeout(None);
        socket.set_hop_limit(None);
        room
    }

    /// A connection has done with a socket, which can be used again unless it was told to send a lost segment: smoltcp does
    /// not forget that.
    pub(super) fn put(&mut self, mut room: Room, is_reusable: bool) {
        self.in_use -= 1;
        if is_reusable && self.free.len() < self.free_max {
            room.socket_mut().abort();
            return self.free.push(room);
        }
        let socket = room.socket();
        self.freed_bytes += socket.recv_capacity() + socket.send_capacity();
        drop(room);
        if self.freed_bytes >= FREED_BYTES_MAX {
            self.freed_bytes = 0;
            os::memory::give_back_freed();
        }
    }
}
