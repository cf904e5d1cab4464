//! OSA adapters, and the devices that stacks have at them: two at the ends of a wire in memory, or one at another wire.
//!
//! A wire in memory has both ends in one process. So one party serves the adapters, each with a thread of its own.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use host::report::Counts;
use net::lan::frame::Mac;
use net::wire::Conditions;
use os::processor::{keep_on, now_ns};
use siga::osa::{
    Cable, CableOptions, DeviceReport, DropReason, Drops, MemoryWire, Moderation, Osa, OsaOptions,
    Served, Server, ServerError, ServerOptions, Wire, cable,
};
use siga::tcpip::StackDevice;
use siga::{Guest, PathOptions, Wait};

use crate::control::{Control, Order};
use crate::factor::word;
use crate::fault::{Doing, Fault};
use crate::measure::work_for;
use crate::workload::Service;

/// The guests that serve the adapters, that of the clients or the source first, and the MAC addresses of their ports.
const ADAPTERS: [&str; 2] = ["OSA1", "OSA2"];
pub(crate) const MACS: [Mac; 2] = [Mac([2, 0, 0, 0, 0xa, 1]), Mac([2, 0, 0, 0, 0xa, 2])];

/// The guests whose path is a cable between the adapters of source and target. What is under way in it at most, and what waits for its transmitter, as drivers of network
/// cards keep it short: what is sent later waits in the queues of the device, where what is urgent goes first.
const CABLES: [&str; 2] = ["CABLE1", "CABLE2"];
const CABLE_WINDOW_BYTES: usize = 2 << 20;
const CABLE_QUEUE_US: u64 = 25;
const CABLE_QUEUE_BYTES_MIN: u64 = 3 << 10;

/// The guests that the devices of the machines have, and the addresses.
const DEVICES: [&str; 2] = ["TCPIP-Q", "TCPIP2-Q"];
pub(crate) const ADDRESSES: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 8, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 8, 0, 2))];
pub(crate) const PREFIX_BITS: u8 = 24;

/// Packets of an adapter's port are as long as this, at least and at most.
const MTU_MIN: u64 = 576;
const MTU_MAX: u64 = 9000;

/// The MTU of a trial whose order has none.
const MTU: u64 = 8 << 10;

/// How long a machine waits for its device.
pub(crate) const UP_MAX: Duration = Duration::from_secs(10);

/// How long the second adapter is served before its thread shows what was counted, and looks whether the trial is over.
const SLICE_NS: u64 = 5_000_000;

/// Conditions of the wire have no faults, so that no seed matters.
const SEED: u64 = 7;

/// What a machine counts of its devices.
pub(crate) const DEVICE_COUNTERS: [&str; 12] = [
    "device_bytes",
    "device_input_buffers",
    "device_input_packets",
    "device_input_bytes",
    "device_output_buffers",
    "device_output_packets",
    "device_output_bytes",
    "device_output_exhausted",
    "device_polls",
    "device_polls_empty",
    "device_packs",
    "device_interrupts",
];

/// What an adapter counts. The counters of the servers' adapter have [`PEER`] before these.
pub(crate) const ADAPTER_COUNTERS: [&str; 12] = [
    "closed_full",
    "closed_gap",
    "closed_hold_off",
    "closed_packets",
    "interrupts",
    "dropped",
    "dropped_exhausted",
    "wire_frames_in",
    "wire_frames_out",
    "wire_bytes_out",
    "steps_up",
    "steps_down",
];
pub(crate) const PEER: &str = "peer_";

/// What the counters of an adapter that a stack serves have before these.
pub(crate) const OWN: &str = "own_adapter_";

/// Connections that the guest of the second adapter had registered as bulk data at once, at most: of trials that have workload queues.
const PEER_BULK_CONNECTIONS: &str = "peer_bulk_connections";

/// What is done of a machine's work by its adapter, or by itself, as the levels of the factor `offloads` are called.
pub(crate) const OFFLOADS: [&str; 2] = ["on", "off"];

/// Memory that the queues of a machine's devices hold, in pages of 4 KiB: those that it reads, and those that it writes.
pub(crate) const PAGES: [&str; 3] = ["device_pages", "device_input_pages", "device_output_pages"];
const PAGE_BYTES: f64 = 4096.0;

/// Gives stack `number` a device at its adapter, to which it leaves segments and checksums if there are offloads.
pub(crate) fn device(
    number: usize,
    has_offloads: bool,
    wait: Wait,
    order: &Order,
) -> Result<Osa, Fault> {
    let mut options = OsaOptions::default();
    (options.wait, options.offloads) = (wait, has_offloads);
    device_with(number, &options, order)
}

/// Gives stack `number` a device with these options at its adapter.
pub(crate) fn device_with(
    number: usize,
    options: &OsaOptions,
    order: &Order,
) -> Result<Osa, Fault> {
    let socket = order.socket.as_ref().expect("trials with adapters have a host");
    let guest = Guest::attach(socket, DEVICES[number]).doing("attach to the host")?;
    let mut osa = Osa::open(guest, ADAPTERS[number], options).doing("ask for a device")?;
    osa.add_address(ADDRESSES[number], PREFIX_BITS);
    osa.wait_until_up(UP_MAX).doing("wait for a device")?;
    Ok(osa)
}

/// Gives stack `number` a device with these options at an adapter of its own in front of this wire, which the stack serves.
pub(crate) fn device_of_own(
    number: usize,
    wire: Box<dyn Wire>,
    moderation: Moderation,
    options: &OsaOptions,
    order: &Order,
) -> Result<Osa, Fault> {
    let socket = order.socket.as_ref().expect("trials with adapters have a host");
    let attach = |name| Guest::attach(socket, name).doing("attach to the host");
    let mut serving = ServerOptions::default();
    serving.moderation = moderation;
    let server = Server::new(attach(ADAPTERS[number])?, wire, &serving);
    let server = server.doing("serve an adapter")?;
    let mut osa =
        Osa::open(attach(DEVICES[number])?, ADAPTERS[number], options).doing("ask for a device")?;
    osa.serve_inline(server).doing("serve an adapter")?;
    osa.add_address(ADDRESSES[number], PREFIX_BITS);
    osa.wait_until_up(UP_MAX).doing("wait for a device")?;
    Ok(osa)
}

/// This side's end of a cable between the adapters of source and target: of the conditions that the order has.
pub(crate) fn cable_to_peer(order: &Order, control: &mut Control) -> Result<Cable, Fault> {
    let socket = order.socket.as_ref().expect("trials with adapters have a host");
    let number = usize::from(!order.is_source());
    let guest = Guest::attach(socket, CABLES[number]).doing("attach to the host")?;
    let paths = PathOptions {
        wait: Wait::Block,
        window_bytes: CABLE_WINDOW_BYTES,
        ..PathOptions::default()
    };
    let path = if order.is_source() {
        control.note_from(order.peer.as_ref().expect("source and target are peers"))?;
        guest.connect(CABLES[1], &paths).doing("lay a cable")?
    } else {
        control.tell("plug it in")?;
        guest.accept_with(&paths).doing("wait for a cable")?
    };
    let rate = NonZeroU64::new(order.number_if_any("mbit").unwrap_or(0) * 1_000_000);
    let queue = rate.map_or(u64::MAX, |rate| rate.get() / 8 * CABLE_QUEUE_US / 1_000_000);
    let queue_bytes = queue.clamp(CABLE_QUEUE_BYTES_MIN, CABLE_WINDOW_BYTES as u64 / 2) as usize;
    let options =
        CableOptions { mtu: mtu(order) as usize, rate, queue_bytes, ..CableOptions::default() };
    Ok(cable(path, MACS[number], options))
}

/// Whether stacks of the order leave segments and checksums to their adapters.
pub(crate) fn has_offloads(order: &Order) -> bool {
    word(&order.factors, "offloads") != "off"
}

/// The level of the factor `inbperf` for [`siga::osa::Inbperf::Dynamic`] with workload queues, as the study calls it.
pub(crate) const DYNAMIC_IWQ: &str = "dynamic-iwq";

/// Whether the receiving stack of the order has workload queues.
pub(super) fn has_workload_queues(order: &Order) -> bool {
    word(&order.factors, "inbperf") == DYNAMIC_IWQ
}

/// Checks that an adapter can have this MTU.
///
/// # Errors
/// Which it can have.
pub(crate) fn check_mtu(mtu: u64) -> Result<(), String> {
    match (MTU_MIN..=MTU_MAX).contains(&mtu) {
        true => Ok(()),
        false => Err(format!("mtu = {mtu}: that of an adapter is {MTU_MIN} to {MTU_MAX}")),
    }
}

/// The MTU of the order's adapters.
pub(crate) fn mtu(order: &Order) -> u64 {
    order.number_if_any("mtu").unwrap_or(MTU)
}

/// How the order says by this factor to wait; adaptively if it has no such factor.
pub(crate) fn wait_by(factor: &str, order: &Order) -> Wait {
    match word(&order.factors, factor) {
        "spin" => Wait::Spin,
        "block" => Wait::Block,
        _ => Wait::Adaptive,
    }
}

/// What these devices have counted.
pub(crate) fn counts(devices: &[StackDevice]) -> Counts {
    let sum = |of: &dyn Fn(&StackDevice) -> u64| devices.iter().map(of).sum::<u64>();
    let counts = [
        sum(&|of| of.queues[0].bytes + of.queues[1].bytes),
        sum(&|of| of.queues[0].buffers),
        sum(&|of| of.queues[0].packets),
        sum(&|of| of.queues[0].bytes),
        sum(&|of| of.queues[1].buffers),
        sum(&|of| of.queues[1].packets),
        sum(&|of| of.queues[1].bytes),
        sum(&|of| of.queues[1].exhausted),
        sum(&|of| of.counters.polls),
        sum(&|of| of.counters.polls_empty),
        sum(&|of| of.counters.packs),
        sum(&|of| of.interrupts),
    ];
    DEVICE_COUNTERS.map(str::to_owned).into_iter().zip(counts).collect()
}

/// What is counted of each input queue.
const OF_INPUT: [&str; 2] = ["packets", "buffers"];

/// The counters of an input queue. They have its number from 1, as the studies count the queues: RD/1 is the primary one.
pub(crate) fn input_counters(number: usize) -> [String; OF_INPUT.len()] {
    OF_INPUT.map(|what| format!("device_rd{number}_{what}"))
}

/// What was counted of each input queue of these devices.
pub(super) fn counts_by_input(devices: &[StackDevice]) -> Counts {
    let inputs = devices.iter().flat_map(|device| (1..).zip(&device.inputs));
    let mut counts = Counts::new();
    for (number, queue) in inputs {
        for (name, count) in input_counters(number).into_iter().zip([queue.packets, queue.buffers])
        {
            *counts.entry(name).or_default() += count;
        }
    }
    counts
}

/// What the adapter of a device has counted that its stack serves.
pub(super) fn counts_of_own(devices: &[StackDevice]) -> Counts {
    let mut counts = Counts::new();
    for Served { counters, wire, drops, device_drops, steps, .. } in
        devices.iter().filter_map(|device| device.served)
    {
        let counted: Counted = [
            counters.closed_full,
            counters.closed_gap,
            counters.closed_hold_off,
            counters.closed_packets,
            // Nobody is woken up between the two.
            0,
            drops.all() + device_drops.all(),
            device_drops.get(DropReason::Exhausted),
            wire.frames_received,
            wire.frames_sent,
            wire.bytes_sent,
            steps[0],
            steps[1],
        ];
        let names = ADAPTER_COUNTERS.map(|name| format!("{OWN}{name}"));
        counts.extend(names.into_iter().zip(counted));
    }
    counts
}

/// How much memory their queues hold.
pub(crate) fn levels(devices: &[StackDevice]) -> Vec<(&'static str, f64)> {
    if devices.is_empty() {
        return Vec::new();
    }
    let pages = |half: usize| {
        devices.iter().map(|device| device.lent_bytes[half]).sum::<u64>() as f64 / PAGE_BYTES
    };
    let [inputs, outputs] = [pages(0), pages(1)];
    PAGES.into_iter().zip([inputs + outputs, inputs, outputs]).collect()
}

/// When adapters hand over buffers, as the order says.
pub(super) fn moderation(order: &Order) -> Moderation {
    let usual = Moderation::default();
    let ns = |factor| order.number_if_any(factor).map(|us| us * 1000);
    let hold_off_ns = ns("hold_off_us").unwrap_or(usual.hold_off_ns);
    let gap = ns("gap_us");
    Moderation {
        hold_off_ns,
        gap_ns: gap.unwrap_or(usual.gap_ns),
        gap_jumbo_ns: gap.unwrap_or(usual.gap_jumbo_ns),
        ..usual
    }
}

/// How adapters are served that wait so.
fn options(wait: Wait, order: &Order) -> ServerOptions {
    let mut options = ServerOptions::default();
    (options.wait, options.moderation) = (wait, moderation(order));
    options
}

/// Two adapters, or one. This thread serves that of the clients or the source, and another the second, until this is dropped.
#[derive(Debug)]
pub(crate) struct ServedAdapters {
    server: RefCell<Server>,
    shared: Arc<Shared>,
    has_workload_queues: bool,
    serving: Option<JoinHandle<Result<(), ServerError>>>,
}

/// What both threads have.
#[derive(Debug, Default)]
struct Shared {
    is_over: AtomicBool,
    /// What the adapter of the servers has counted.
    counted: Mutex<Counted>,
    /// Connections that were registered as bulk data there at once, at most, as far as anybody has looked.
    bulk_connections_max: AtomicU64,
}

type Counted = [u64; ADAPTER_COUNTERS.len()];

impl Shared {
    fn counted(&self) -> std::sync::MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServedAdapters {
    /// Serves two adapters at a wire as the order has it, the second on the place of this party's thread and for that role.
    pub(crate) fn start(wait: Wait, role: &'static str, order: &Order) -> Result<Self, Fault> {
        let socket = order.socket.as_ref().expect("trials with adapters have a host");
        let attach = |name| Guest::attach(socket, name).doing("attach to the host");
        let conditions = Conditions {
            rate: NonZeroU64::new(order.number_if_any("mbit").unwrap_or(0) * 1_000_000),
            mtu: mtu(order) as usize,
            ..Conditions::default()
        };
        let [one, other] = MemoryWire::pair(conditions, SEED, MACS).doing("make a wire")?;
        let options = options(wait, order);
        let [guest, second] = ADAPTERS.map(attach);
        let (guest, second) = (guest?, second?);
        let server = Server::new(guest, Box::new(one), &options).doing("serve an adapter")?;
        let shared = Arc::<Shared>::default();
        let (ready, is_ready) = mpsc::channel();
        let (theirs, place) = (shared.clone(), order.thread_place.clone());
        let serve = move || {
            work_for(role);
            if !place.is_empty() {
                keep_on(&place)?;
            }
            serve(Server::new(second, Box::new(other), &options)?, &theirs, &ready)
        };
        let serving = thread::Builder::new().name("adapter".into()).spawn(serve);
        let serving = Some(serving.doing("start a thread")?);
        let server = RefCell::new(server);
        let has_workload_queues = has_workload_queues(order);
        let adapters = ServedAdapters { server, shared, has_workload_queues, serving };
        match is_ready.recv() {
            Ok(()) => Ok(adapters),
            Err(_) => Err(adapters.stop().err().unwrap_or(Fault::Ended)),
        }
    }

    /// Serves one adapter at this wire.
    pub(crate) fn at_wire(wire: Box<dyn Wire>, wait: Wait, order: &Order) -> Result<Self, Fault> {
        let socket = order.socket.as_ref().expect("trials with adapters have a host");
        let guest = Guest::attach(socket, ADAPTERS[0]).doing("attach to the host")?;
        let server = Server::new(guest, wire, &options(wait, order)).doing("serve an adapter")?;
        let (server, shared) = (RefCell::new(server), Arc::default());
        Ok(ServedAdapters { server, shared, has_workload_queues: false, serving: None })
    }

    /// Ends the second adapter, if there is one.
    ///
    /// # Errors
    /// Why it was served no longer.
    pub(crate) fn stop(mut self) -> Result<(), Fault> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let ended = self.serving.take().map_or(Ok(Ok(())), JoinHandle::join);
        ended
            .map_err(|_| Fault::Unable("the server of an adapter has panicked".into()))?
            .doing("serve an adapter")
    }
}

/// Serves the second adapter.
fn serve(mut server: Server, shared: &Shared, ready: &Sender<()>) -> Result<(), ServerError> {
    // Whoever waits for that has gone if the trial has ended.
    let _ = ready.send(());
    while !shared.is_over.load(Ordering::Relaxed) {
        server.serve_until(now_ns() + SLICE_NS)?;
        *shared.counted() = counted(&mut server);
        let bulk = bulk_connections(&server.report());
        shared.bulk_connections_max.fetch_max(bulk, Ordering::Relaxed);
    }
    Ok(())
}

/// What an adapter has counted, in the order of the names.
fn counted(server: &mut Server) -> Counted {
    let (counters, wire) = (server.counters(), server.wire_counters());
    let devices = server.report();
    let sum = |of: fn(&Drops) -> u64| devices.iter().map(|device| of(&device.drops)).sum::<u64>();
    [
        counters.closed_full,
        counters.closed_gap,
        counters.closed_hold_off,
        counters.closed_packets,
        devices.iter().map(|device| device.interrupts).sum(),
        sum(Drops::all) + server.drops().all(),
        // The machine had all buffers that it may have.
        sum(|drops| drops.get(DropReason::Exhausted)),
        wire.frames_received,
        wire.frames_sent,
        wire.bytes_sent,
        steps(&devices, 0),
        steps(&devices, 1),
    ]
}

/// Steps that `inbperf = "dynamic"` has taken for all queues of these devices: up (0), or down (1).
fn steps(devices: &[DeviceReport], which: usize) -> u64 {
    devices.iter().flat_map(|device| &device.steps).map(|(_, steps)| steps[which]).sum()
}

/// Connections that guests of these devices have registered as bulk data.
fn bulk_connections(devices: &[DeviceReport]) -> u64 {
    devices.iter().map(|device| device.bulk_connections as u64).sum()
}

impl Service for ServedAdapters {
    fn serve_until(&mut self, until_ns: u64) -> Result<(), Fault> {
        self.server.get_mut().serve_until(until_ns).doing("serve an adapter")
    }

    fn counts(&self) -> Counts {
        let own = counted(&mut self.server.borrow_mut());
        let names = ADAPTER_COUNTERS.map(str::to_owned);
        let of_peer = ADAPTER_COUNTERS.map(|name| format!("{PEER}{name}"));
        let theirs = *self.shared.counted();
        let theirs = of_peer.into_iter().zip(theirs).filter(|_| self.serving.is_some());
        let spinning = ("spinning_ns".to_owned(), self.server.borrow().spinning_ns());
        names.into_iter().zip(own).chain(theirs).chain([spinning]).collect()
    }

    fn levels(&self) -> Vec<(&'static str, f64)> {
        if !self.has_workload_queues {
            return Vec::new();
        }
        let most = self.shared.bulk_connections_max.load(Ordering::Relaxed);
        vec![(PEER_BULK_CONNECTIONS, most as f64)]
    }
}
