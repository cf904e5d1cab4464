//! A network in memory: what a stack sends lies in the queue of the shard where it enters the other stack.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;

use net::lan::frame::Mac;
use net::lan::offload::Offload;
use net::tcpip::{Link, Unsent, address};

/// The MAC addresses of the two stacks.
pub const MACS: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])];

/// Frames in a queue at most.
const FRAMES_MAX: usize = 4096;

type Frames = VecDeque<(Offload, Vec<u8>)>;

/// The queues into both stacks, one for each shard, and the threads of the shards.
pub struct Network {
    queues: [Vec<Mutex<Frames>>; 2],
    threads: Vec<OnceLock<Thread>>,
}

impl Network {
    pub fn new(shards: usize) -> Network {
        let queues = [0, 1].map(|_| (0..shards).map(|_| Mutex::default()).collect());
        Network { queues, threads: (0..shards).map(|_| OnceLock::new()).collect() }
    }

    pub fn shards(&self) -> usize {
        self.threads.len()
    }

    /// The calling thread serves this shard of both stacks.
    pub fn enter(&self, shard: usize) {
        self.threads[shard].get_or_init(std::thread::current);
    }

    /// Wakes the thread of a shard, if it sleeps.
    pub fn wake(&self, shard: usize) {
        if let Some(thread) = self.threads[shard].get() {
            thread.unpark();
        }
    }

    fn queue(&self, side: usize, shard: usize) -> MutexGuard<'_, Frames> {
        self.queues[side][shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next frame for a shard of this side.
    pub fn take(&self, side: usize, shard: usize) -> Option<(Offload, Vec<u8>)> {
        self.queue(side, shard).pop_front()
    }

    pub fn is_empty(&self, side: usize, shard: usize) -> bool {
        self.queue(side, shard).is_empty()
    }

    /// The shard where frames of a connection enter, in both directions.
    pub fn entry(&self, [one, other]: [u16; 2]) -> usize {
        usize::from(one ^ other) % self.shards()
    }
}

/// How one side sends, and the room of frames that were received: they are used again.
pub struct Sender<'a> {
    pub network: &'a Network,
    pub side: usize,
    /// The shard that sends: to itself it needs no wake.
    pub shard: usize,
    pub spare: Vec<Vec<u8>>,
}

impl Sender<'_> {
    fn put(&mut self, offload: Offload, frame: &[u8]) -> Result<(), Unsent> {
        let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        // All frames here are segments over IPv4 without options.
        let to = self.network.entry([port(34), port(36)]);
        let mut queue = self.network.queue(1 - self.side, to);
        if queue.len() >= FRAMES_MAX {
            return Err(Unsent::Full);
        }
        let was_empty = queue.is_empty();
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(frame);
        queue.push_back((offload, bytes));
        drop(queue);
        if was_empty && to != self.shard {
            self.network.wake(to);
        }
        Ok(())
    }
}

impl Link for Sender<'_> {
    fn transmit(
        &mut self,
        _: usize,
        _: IpAddr,
        offload: Offload,
        frame: &mut [u8],
    ) -> Result<(), Unsent> {
        address(frame, MACS[1 - self.side], MACS[self.side]);
        self.put(offload, frame)
    }

    fn send(&mut self, _: usize, offload: Offload, frame: &[u8]) -> Result<(), Unsent> {
        self.put(offload, frame)
    }

    fn may_send_from(&mut self, _: usize, _: &[u8], _: IpAddr) -> bool {
        true
    }
}
