//! Adapters, and the data devices that guests have on them: from the paths between them.

use fabric::path::board::{reader_block, writer_block};
use fabric::path::{Counter, Shape, gauge_word};
use fabric::queue::{QUEUE_BUFFERS, RETURNED_WORD, State, audit};
use net::lan::frame::Mac;
use net::osa::drops::Drops;
use net::osa::events::{Event, EventKind};
use net::osa::gauge;
use net::osa::packet::Layer;
use net::osa::report::{DeviceState, Ended, Shown};
use net::osa::wire::{Carrier, WireCounters};
use net::osa::workload::Connection;
use os::sync::Ordering;
use os::words::LentWords;
use serde::{Deserialize, Serialize};

use super::Counts;

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
    /// The state of the medium: `up`, `down`, or `gone` if the interface was removed. None of an adapter that does not show its port.
    #[serde(default)]
    pub carrier: Option<String>,
    /// The MAC address of the port.
    #[serde(default)]
    pub mac: Option<String>,
    /// Bytes of the longest packet.
    #[serde(default)]
    pub mtu: Option<u32>,
    /// Bits a second of the medium, if the adapter knows.
    #[serde(default)]
    pub bits_per_s: Option<u64>,
    /// When the adapter has shown its port last, in nanoseconds of the machine's clock: some times a second.
    #[serde(default)]
    pub shown_ns: Option<u64>,
    /// Frames from the wire that were dropped before they were a device's, by reason, but for reasons that stand at zero.
    #[serde(default)]
    pub dropped: Counts,
    /// What its wire has counted since it was opened last, but for counters that stand at zero.
    #[serde(default)]
    pub wire_counters: Counts,
    /// Guests that capture what passes the port.
    #[serde(default)]
    pub captures: u16,
    /// How an adapter of the system file has ended that is not served any more: `ended` if somebody has ended it, `died`, or the error.
    #[serde(default)]
    pub ended: Option<String>,
    /// Devices that the adapter has stopped because their guests broke a rule.
    #[serde(default)]
    pub devices_stopped: u64,
    /// The last of these, the latest first.
    #[serde(default)]
    pub stopped: Vec<StoppedDeviceReport>,
    /// The devices, by their paths.
    pub devices: Vec<DataDeviceReport>,
}

/// A device that an adapter has stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StoppedDeviceReport {
    /// The guest that had it.
    pub guest: String,
    /// When, in nanoseconds of the machine's clock.
    pub stopped_ns: u64,
    /// Why.
    pub why: String,
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
    /// Its state: `established`, `active`, `halted` or `stopped`. None of a device that the adapter does not show.
    #[serde(default)]
    pub state: Option<String>,
    /// Its layer, 2 or 3.
    #[serde(default)]
    pub layer: Option<u8>,
    /// Its MAC address: in layer 3 that of the port.
    #[serde(default)]
    pub mac: Option<String>,
    /// The IP addresses that it has registered.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// The first of its VLANs.
    #[serde(default)]
    pub vlans: Vec<u16>,
    /// Addresses and VLANs besides.
    #[serde(default)]
    pub not_shown: u64,
    /// The dropped packets by reason, but for reasons that stand at zero.
    #[serde(default)]
    pub dropped_by_reason: Counts,
    /// What has become of its input queues lately, the oldest first.
    #[serde(default)]
    pub events: Vec<QueueEventReport>,
    /// The queues that the guest reads.
    pub inputs: Vec<DataQueueReport>,
    /// The queues that it writes, the most urgent first.
    pub outputs: Vec<DataQueueReport>,
}

/// Something that has become of an input queue of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct QueueEventReport {
    /// Its number among those of the device, from 1.
    pub number: u64,
    /// When, in nanoseconds of the machine's clock.
    pub when_ns: u64,
    /// `joined`: the guest has registered a connection as bulk data. `left`: it has taken that back. `over`: the connection is over. `refused`: the guest has as
    /// many as it may have. `stepped`: the profile of a queue has changed, because `dynamic` has taken a step.
    pub what: String,
    /// The guest's end of the connection.
    #[serde(default)]
    pub local: Option<String>,
    /// Its other end.
    #[serde(default)]
    pub peer: Option<String>,
    /// The queue whose profile has changed: 0 is the primary one.
    #[serde(default)]
    pub queue: Option<u8>,
    /// The profiles before and now: 0 has the shortest delay.
    #[serde(default)]
    pub from: Option<u8>,
    /// See `from`.
    #[serde(default)]
    pub to: Option<u8>,
    /// Packets a second that were the reason; long ones count twice.
    #[serde(default)]
    pub load: Option<u32>,
}

impl From<Event> for QueueEventReport {
    fn from(event: Event) -> QueueEventReport {
        let of = |what: &str, connection: Option<Connection>| QueueEventReport {
            number: event.number,
            when_ns: event.when_ns,
            what: what.to_owned(),
            local: connection.map(|connection| connection.local.to_string()),
            peer: connection.map(|connection| connection.peer.to_string()),
            queue: None,
            from: None,
            to: None,
            load: None,
        };
        match event.what {
            EventKind::Joined(connection) => of("joined", Some(connection)),
            EventKind::Left(connection) => of("left", Some(connection)),
            EventKind::Over(connection) => of("over", Some(connection)),
            EventKind::Refused(connection) => of("refused", Some(connection)),
            EventKind::Stepped { queue, from, to, load } => QueueEventReport {
                queue: Some(queue),
                from: Some(from),
                to: Some(to),
                load: Some(load),
                ..of("stepped", None)
            },
        }
    }
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
    let device =
        DataDeviceReport { dropped, inputs, outputs, ..DataDeviceReport::of(guest_name, path) };
    (device, times)
}

/// The word for how an adapter has ended; `died` if it could not say so.
pub(crate) fn ended(ended: Option<Ended>) -> String {
    match ended {
        None => "died".to_owned(),
        Some(Ended::Orderly) => "ended".to_owned(),
        Some(Ended::Failed(code)) => std::io::Error::from_raw_os_error(code).to_string(),
    }
}

fn counts(drops: &Drops) -> Counts {
    drops.iter().map(|(reason, count)| (reason.name().to_owned(), count)).collect()
}

fn wire_counts(wire: &WireCounters) -> Counts {
    let WireCounters { frames_received, bytes_received, frames_sent, bytes_sent, .. } = *wire;
    let WireCounters { dropped_behind, dropped_bad, dropped_unsent, calls, .. } = *wire;
    let counts = [
        ("frames_received", frames_received),
        ("bytes_received", bytes_received),
        ("frames_sent", frames_sent),
        ("bytes_sent", bytes_sent),
        ("dropped_behind", dropped_behind),
        ("dropped_bad", dropped_bad),
        ("dropped_unsent", dropped_unsent),
        ("calls", calls),
    ];
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    counts.map(|(name, count)| (name.to_owned(), count)).collect()
}

impl AdapterReport {
    /// An adapter of which nothing is known but its name.
    pub(crate) fn of(adapter: String) -> AdapterReport {
        AdapterReport {
            adapter,
            wire: None,
            interface: None,
            lan: None,
            is_served: false,
            cpu_ns: 0,
            spinning_ns: 0,
            carrier: None,
            mac: None,
            mtu: None,
            bits_per_s: None,
            shown_ns: None,
            dropped: Counts::new(),
            wire_counters: Counts::new(),
            captures: 0,
            ended: None,
            devices_stopped: 0,
            stopped: Vec::new(),
            devices: Vec::new(),
        }
    }

    /// Adds what the adapter shows of its port, and of the devices that are here.
    pub(crate) fn show(&mut self, shown: Shown) {
        let Shown { port, devices, stopped, .. } = shown;
        self.carrier = port.carrier.map(|carrier| {
            let name = match carrier {
                Carrier::Up => "up",
                Carrier::Down => "down",
                Carrier::Gone => "gone",
            };
            name.to_owned()
        });
        self.mac = Some(port.mac.to_string());
        self.mtu = Some(port.mtu);
        self.bits_per_s = port.rate;
        self.shown_ns = Some(port.shown_ns);
        self.dropped = counts(&port.drops);
        self.wire_counters = wire_counts(&port.wire);
        self.captures = port.captures;
        self.devices_stopped = port.stopped;
        let stopped = stopped.into_iter().map(|device| StoppedDeviceReport {
            guest: device.guest.to_string(),
            stopped_ns: device.when_ns,
            why: device.why.to_string(),
        });
        self.stopped = stopped.collect();
        for device in devices {
            // Numbers of paths are the host's: the adapter may know those of another.
            let is_meant = |of: &&mut DataDeviceReport| {
                of.path == device.path && of.guest == device.guest.as_str()
            };
            if let Some(of) = self.devices.iter_mut().find(is_meant) {
                of.show(device);
            }
        }
    }
}

impl DataDeviceReport {
    fn of(guest: String, path: u64) -> DataDeviceReport {
        DataDeviceReport {
            guest,
            path,
            dropped: 0,
            state: None,
            layer: None,
            mac: None,
            addresses: Vec::new(),
            vlans: Vec::new(),
            not_shown: 0,
            dropped_by_reason: Counts::new(),
            events: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
        }
    }

    fn show(&mut self, device: DeviceState) {
        let DeviceState { addresses, addresses_count, vlans, vlans_count, .. } = device;
        let hidden = |all: u16, shown: usize| usize::from(all).saturating_sub(shown) as u64;
        self.not_shown =
            hidden(addresses_count, addresses.len()) + hidden(vlans_count, vlans.len());
        self.state = device.activity.map(|activity| activity.name().to_owned());
        self.layer = device.layer.map(|layer| match layer {
            Layer::Two => 2,
            Layer::Three => 3,
        });
        // Before it is active it has none.
        self.mac = (device.mac != Mac::default()).then(|| device.mac.to_string());
        self.addresses = addresses.iter().map(ToString::to_string).collect();
        self.vlans = vlans;
        self.dropped_by_reason = counts(&device.drops);
        self.events = device.events.into_iter().map(QueueEventReport::from).collect();
    }
}
