//! Adapters, and the data devices that guests have on them: from the paths between them.

use fabric::path::board::{reader_block, writer_block};
use fabric::path::{Counter, Shape, gauge_word};
use fabric::queue::{QUEUE_BUFFERS, RETURNED_WORD, State, audit};
use net::osa::gauge;
use os::sync::Ordering;
use os::words::LentWords;
use serde::{Deserialize, Serialize};

/// An adapter, by the guest that serves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AdapterReport {
    /// The guest.
    pub adapter: String,
    /// What its port is connected to, as the system file says: `macvtap`, `xdp`, `tap` or `memory`. None of an adapter that is served without the file.
    #[serde(default)]
    pub wire: Option<String>,
    /// The network interface, or the adapter at the other end of a wire in memory, as the system file says.
    #[serde(default)]
    pub interface: Option<String>,
    /// The LAN that is bridged to the port.
    #[serde(default)]
    pub lan: Option<String>,
    /// Set if the guest that serves it is attached.
    #[serde(default)]
    pub is_served: bool,
    /// Processor time of the thread that serves it, in nanoseconds, as it has shown last: some times a second.
    pub cpu_ns: u64,
    /// That part of it in which the adapter polled and found nothing.
    pub spinning_ns: u64,
    /// The devices, by their paths.
    pub devices: Vec<DataDeviceReport>,
}

/// A data device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DataDeviceReport {
    /// The guest that has it.
    pub guest: String,
    /// The number of its path.
    pub path: u64,
    /// Packets from it, and for it, that the adapter has dropped.
    pub dropped: u64,
    /// The queues that the guest reads.
    pub inputs: Vec<DataQueueReport>,
    /// The queues that it writes, the most urgent first.
    pub outputs: Vec<DataQueueReport>,
}

/// A queue of a data device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DataQueueReport {
    /// Packets.
    pub packets: u64,
    /// Bytes of these, each with the header of 32 bytes, and in layer 3 without that of Ethernet.
    pub bytes: u64,
    /// Buffers handed over, those with requests and answers included: direct reads or writes.
    pub buffers: u64,
    /// Doorbells that the side which writes the queue has rung: interrupts of the guest, or SIGA.
    pub rings: u64,
    /// Polls of the side that reads the queue.
    pub polls: u64,
    /// Of these, those that found nothing.
    pub polls_empty: u64,
    /// How often the side that reads the queue went to sleep.
    pub sleeps: u64,
    /// How often it was woken and found nothing.
    pub unproductive: u64,
    /// Packets for which there was no buffer: reads exhausted, or target full.
    pub exhausted: u64,
    /// Bytes of storage that the writer has lent for it: the fixed page storage, in pages of 4096 bytes.
    pub storage_bytes: u64,
    /// Of these, bytes of pages that hold something, when the writer looked last.
    pub storage_used_bytes: u64,
    /// Buffers that the reader has: primed.
    pub primed: u64,
    /// Buffers that the writer has, and that were used: empty.
    pub empty: u64,
    /// Buffers of which the storage is still being read: pending.
    pub pending: u64,
}

/// A side of a device's path.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a> {
    pub(crate) board: &'a LentWords,
    pub(crate) shape: Shape,
}

fn shown(counters: &LentWords, number: usize) -> u64 {
    counters.load(gauge_word(number), Ordering::Relaxed)
}

/// One queue from a writer to a reader.
fn queue(writer: Side<'_>, reader: Side<'_>, number: usize) -> DataQueueReport {
    let sends = writer_block(writer.board, writer.shape, number).counters;
    let reads = reader_block(reader.board, reader.shape, number);
    let load = |words: &LentWords, counter| words.load(counter as usize, Ordering::Relaxed);
    let buffers = load(&sends, Counter::Buffers);
    let returned = reads.returns.load(RETURNED_WORD, Ordering::Acquire).min(buffers);
    let mut report = DataQueueReport {
        buffers,
        rings: load(&sends, Counter::Rings),
        polls: load(&reads.counters, Counter::Polls),
        polls_empty: load(&reads.counters, Counter::PollsEmpty),
        sleeps: load(&reads.counters, Counter::Sleeps),
        unproductive: load(&reads.counters, Counter::WakesUnproductive),
        storage_bytes: load(&sends, Counter::LentBytes),
        storage_used_bytes: load(&sends, Counter::UsedBytes),
        ..DataQueueReport::default()
    };
    for index in 0..QUEUE_BUFFERS {
        let kept = reads.kept.load(index, Ordering::Acquire);
        match audit(index, buffers, returned, kept).state {
            State::Primed => report.primed += 1,
            State::Empty => report.empty += 1,
            State::Pending => report.pending += 1,
            _ => {}
        }
    }
    report
}

/// Returns a device and the processor time of its adapter, all of it and what found nothing. The path is from the guest to the adapter.
pub(crate) fn device(
    (guest_name, path): (String, u64),
    guest: Side<'_>,
    adapter: Side<'_>,
) -> (DataDeviceReport, [u64; 2]) {
    let inputs = (0..guest.shape.inputs).map(|number| {
        let counters = writer_block(adapter.board, adapter.shape, number).counters;
        DataQueueReport {
            packets: shown(&counters, gauge::PACKETS),
            bytes: shown(&counters, gauge::BYTES),
            exhausted: shown(&counters, gauge::EXHAUSTED),
            ..queue(adapter, guest, number)
        }
    });
    let outputs = (0..guest.shape.outputs).map(|number| {
        let counters = reader_block(adapter.board, adapter.shape, number).counters;
        let refused = writer_block(guest.board, guest.shape, number).counters;
        DataQueueReport {
            packets: shown(&counters, gauge::PACKETS),
            bytes: shown(&counters, gauge::BYTES),
            exhausted: refused.load(Counter::Full as usize, Ordering::Relaxed),
            ..queue(guest, adapter, number)
        }
    });
    let first = writer_block(adapter.board, adapter.shape, 0).counters;
    let dropped = shown(&first, gauge::DROPPED);
    let first = reader_block(adapter.board, adapter.shape, 0).counters;
    let times = [gauge::CPU_NS, gauge::SPINNING_NS].map(|number| shown(&first, number));
    let (inputs, outputs) = (inputs.collect(), outputs.collect());
    (DataDeviceReport { guest: guest_name, path, dropped, inputs, outputs }, times)
}
