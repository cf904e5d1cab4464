//! A data device, as the adapter has it.
//!
//! ```text
//!            path made             ACTIVATE             HALT, CLEAR
//!   nothing -----------> ESTABLISHED -------> ACTIVE ---------------> HALTED ---- ACTIVATE --> ACTIVE
//!                              |                 |                       |
//!                              '----- a rule is broken: STOPPED <--------'       the path ends
//! ```

use std::net::IpAddr;

use fabric::name::Name;
use fabric::path::Halves;

use super::buffer::{NotPut, QueueCounters, Reading, Walk, Writing};
use super::control::{Record, Stopped, What};
pub use super::drops::{DropReason, Drops};
use super::events::{EventKind, Events};
use super::gauge;
use super::packet::Layer;
use super::report;
use super::sorter::Sorter;
use super::tuning::{Inbperf, Moderation, Profile, Walker};
use super::workload::Workload;
use crate::lan::frame::Mac;

/// Addresses, groups and VLANs that a device may register, of each.
pub const REGISTERED_MAX: usize = 64;
const _: () = assert!(REGISTERED_MAX <= report::ADDRESSES_OF_DEVICE_MAX);

/// Output queues of a device: its priorities.
pub const OUTPUTS_MAX: usize = 4;

/// Input queues of a device.
pub const INPUTS_MAX: usize = 8;

/// Answers and news that wait for room on the way to the guest: a guest that asks for more, and takes nothing, has its device stopped.
const TOLD_MAX: usize = 256;

/// The state of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its queues are there, and nothing goes or comes yet.
    Established,
    /// Packets go and come.
    Active,
    /// The guest has halted it.
    Halted,
    /// The adapter has stopped it.
    Stopped(Stopped),
}

/// When packets are handed over to a guest, by input queue.
#[derive(Debug, Default)]
pub struct Tuning {
    inbperf: Inbperf,
    /// The guest's own profile, in place of that.
    own: Option<Moderation>,
    walkers: [Walker; INPUTS_MAX],
}

impl Tuning {
    pub(super) fn new(inbperf: Inbperf) -> Tuning {
        Tuning { inbperf, ..Tuning::default() }
    }

    pub(super) fn own(profile: Profile) -> Tuning {
        Tuning { own: Some(profile.into()), ..Tuning::default() }
    }

    /// How long the adapter may rest for the sake of the guest; none if as long as it does by itself.
    pub(super) fn rest_ns(&self) -> Option<u64> {
        self.own.map_or(self.inbperf.rest_ns(), |own| Some(own.rest_ns()))
    }

    /// What the guest has asked for; none if it has a profile of its own.
    pub fn inbperf(&self) -> Option<Inbperf> {
        self.own.is_none().then_some(self.inbperf)
    }

    /// What walks the profiles for a queue.
    pub fn walker(&self, queue: usize) -> &Walker {
        &self.walkers[queue]
    }

    /// Steps that were taken for all queues: up, and down.
    pub fn steps(&self) -> [u64; 2] {
        self.walkers
            .iter()
            .map(Walker::steps)
            .fold([0; 2], |[up, down], [more_up, more_down]| [up + more_up, down + more_down])
    }

    /// The profile of a queue; none if it is that of the adapter.
    pub(super) fn moderation(&self, queue: usize) -> Option<&Moderation> {
        self.own.as_ref().or_else(|| match self.inbperf {
            Inbperf::Balanced => None,
            Inbperf::Mincpu => Some(&Moderation::MINCPU),
            Inbperf::Minlatency => Some(&Moderation::NONE),
            Inbperf::Dynamic => Some(self.walkers[queue].moderation()),
        })
    }

    /// Packets have come by a queue. Returns the step before if one was taken.
    #[inline]
    pub(super) fn note(
        &mut self,
        queue: usize,
        now: u64,
        packets: usize,
        bytes: usize,
    ) -> Option<usize> {
        if self.inbperf != Inbperf::Dynamic || self.own.is_some() {
            return None;
        }
        let walker = &mut self.walkers[queue];
        let before = walker.step();
        walker.note(now, packets, bytes).then_some(before)
    }
}

/// A data device.
#[derive(Debug)]
pub struct Device {
    owner: Name,
    pub(super) state: State,
    pub(super) layer: Layer,
    /// Queues that the guest reads.
    pub(super) inputs: Vec<Writing>,
    /// Queues that the guest writes, the most urgent first.
    pub(super) outputs: Vec<Reading>,
    /// The buffer of each that is not finished yet.
    pub(super) walks: Vec<Option<Walk>>,
    pub(super) mac: Mac,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) groups: Vec<Mac>,
    pub(super) vlans: Vec<u16>,
    /// By which input queue packets come.
    pub(super) sorter: Sorter,
    /// When they are handed over.
    pub(super) tuning: Tuning,
    /// What has become of its queues lately.
    pub(super) events: Events,
    /// Bytes that it may send in its turn.
    pub(super) deficit: i64,
    /// Bytes of each output queue that go in this round still.
    pub(super) credits: [i64; OUTPUTS_MAX],
    /// Set while it waits for its turn.
    pub(super) is_waiting: bool,
    /// Set if the path has ended.
    pub(super) is_over: bool,
    /// A request that waits until the guest may ask again, or until there is room for what it brings about. What follows it in its queue waits too.
    pub(super) held: Option<Record>,
    /// Set while that is so.
    pub(super) is_held: bool,
    /// For how long it has waited for room last.
    pub(super) held_ns: u64,
    told: Vec<Record>,
    pub(super) drops: Drops,
}

impl Device {
    /// A device of a guest over these queues, that may have so many buffers of each input queue at once.
    pub fn new(owner: Name, halves: Halves, buffers_max: usize) -> Device {
        let outputs: Vec<_> = halves.receivers.into_iter().map(Reading::new).collect();
        let inputs = halves.senders.into_iter().map(|sender| Writing::new(sender, buffers_max));
        Device {
            owner,
            state: State::Established,
            layer: Layer::Three,
            inputs: inputs.collect(),
            walks: outputs.iter().map(|_| None).collect(),
            outputs,
            mac: Mac([0; 6]),
            addresses: Vec::new(),
            groups: Vec::new(),
            vlans: Vec::new(),
            sorter: Sorter::default(),
            tuning: Tuning::default(),
            deficit: 0,
            credits: [0; OUTPUTS_MAX],
            is_waiting: false,
            is_over: false,
            held: None,
            is_held: false,
            held_ns: 0,
            events: Events::default(),
            told: Vec::new(),
            drops: Drops::default(),
        }
    }

    /// The guest.
    pub fn owner(&self) -> Name {
        self.owner
    }

    /// The state.
    pub fn state(&self) -> State {
        self.state
    }

    /// The layer, once it is active.
    pub fn layer(&self) -> Layer {
        self.layer
    }

    /// Its MAC address, once it is active.
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Its addresses of IP.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// The VLANs that it belongs to.
    pub fn vlans(&self) -> &[u16] {
        &self.vlans
    }

    /// Packets from it, or for it, that were dropped.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Queues that the guest reads, in order.
    pub fn inputs(&mut self) -> &mut [Writing] {
        &mut self.inputs
    }

    /// Queues that the guest writes, in order.
    pub fn outputs(&mut self) -> &mut [Reading] {
        &mut self.outputs
    }

    /// Queues that the guest reads, and those that it writes.
    pub fn queues(&self) -> (&[Writing], &[Reading]) {
        (&self.inputs, &self.outputs)
    }

    /// The same.
    pub fn queues_mut(&mut self) -> (&mut [Writing], &mut [Reading]) {
        (&mut self.inputs, &mut self.outputs)
    }

    /// What has become of its queues lately.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// The profile of a queue has changed.
    #[cold]
    pub(super) fn note_step(&mut self, now: u64, queue: usize, before: usize) {
        let walker = self.tuning.walker(queue);
        let (from, to) = (before as u8, walker.step() as u8);
        let load = u32::try_from(walker.load()).unwrap_or(u32::MAX);
        self.events.note(now, EventKind::Stepped { queue: queue as u8, from, to, load });
    }

    /// When packets are handed over to the guest.
    pub fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// Connections that are registered as bulk data.
    pub fn bulk_connections(&self) -> usize {
        self.sorter.connections()
    }

    /// Hands over what has been put into the primary queue and into that of bulk data, so that the next packet of a connection may come by the other
    /// one. False: there is no room for that now, or for the answer behind it.
    pub(super) fn settle(&mut self) -> bool {
        let bulk = self.sorter.queue_of(Workload::Bulk);
        let mut is_settled = self.told.is_empty();
        for queue in [0, bulk] {
            let packets = self.inputs[queue].open_since().map_or(0, |(.., packets)| packets);
            match self.inputs[queue].close() {
                Ok(_) => {}
                Err(NotPut::Exhausted) => is_settled = false,
                Err(NotPut::Lacking(_)) => self.drops.add(DropReason::Lacking, packets.into()),
                Err(NotPut::Severed) => self.is_over = true,
            }
        }
        is_settled && self.inputs[0].has_room()
    }

    /// Returns true if answers or news wait for room on the way to the guest.
    pub fn has_untold(&self) -> bool {
        !self.told.is_empty()
    }

    /// Returns true if the path has ended, or the device was stopped and everything was told: its maker drops it.
    pub fn is_over(&self) -> bool {
        self.is_over || matches!(self.state, State::Stopped(_)) && self.told.is_empty()
    }

    /// Returns true if there is something to take from the guest, or the path has ended, or there is room for what waits to be told. A device that
    /// waits for its turn, for the wire, or until it may ask again, is not ready: the adapter knows of it.
    #[inline]
    pub fn is_ready(&mut self) -> bool {
        !self.is_waiting && self.has_come()
            || !self.told.is_empty() && self.inputs[0].sender().is_ready()
    }

    /// Shows observers of the path what was counted of each queue, and the processor time of the adapter: all of it, and of that what found nothing.
    pub fn show(&mut self, cpu_ns: u64, spinning_ns: u64) {
        let dropped = self.drops.all();
        for (queue, input) in self.inputs.iter_mut().enumerate() {
            let QueueCounters { packets, bytes, exhausted, .. } = *input.counters();
            let sender = input.sender();
            sender.show(gauge::PACKETS, packets);
            sender.show(gauge::BYTES, bytes);
            sender.show(gauge::EXHAUSTED, exhausted);
            sender.show(gauge::DROPPED, if queue == 0 { dropped } else { 0 });
        }
        for (queue, output) in self.outputs.iter_mut().enumerate() {
            let QueueCounters { packets, bytes, .. } = *output.counters();
            let receiver = output.receiver();
            receiver.show(gauge::PACKETS, packets);
            receiver.show(gauge::BYTES, bytes);
            receiver.show(gauge::CPU_NS, if queue == 0 { cpu_ns } else { 0 });
            receiver.show(gauge::SPINNING_NS, if queue == 0 { spinning_ns } else { 0 });
        }
    }

    pub(super) fn is_active(&self) -> bool {
        self.state == State::Active
    }

    pub(super) fn takes_vlan(&self, tag: Option<u16>) -> bool {
        tag.is_none_or(|tag| self.vlans.contains(&(tag & 0x0fff)))
    }

    /// Tells the guest something, now or when there is room.
    pub(super) fn tell(&mut self, serial: u32, what: What) {
        let record = Record { serial, what };
        if self.told.len() >= TOLD_MAX {
            self.is_over = true;
            return;
        }
        self.told.push(record);
        self.tell_rest();
    }

    /// Tells what has waited for room.
    pub(super) fn tell_rest(&mut self) {
        while let Some(record) = self.told.first() {
            match self.inputs[0].send_control(record) {
                Ok(()) => drop(self.told.remove(0)),
                Err(NotPut::Severed) => {
                    self.told.clear();
                    self.is_over = true;
                }
                Err(NotPut::Exhausted | NotPut::Lacking(_)) => break,
            }
        }
    }

    /// Stops the device for a reason that the guest is told.
    pub(super) fn stop(&mut self, why: Stopped) {
        if !matches!(self.state, State::Stopped(_)) {
            self.state = State::Stopped(why);
            self.give_back();
            self.tell(0, What::Stopped(why));
        }
    }

    /// Gives back all buffers that were begun, and forgets the request that waits.
    pub(super) fn give_back(&mut self) {
        (self.held, self.is_held) = (None, false);
        for (walk, output) in self.walks.iter_mut().zip(&mut self.outputs) {
            if let Some(walk) = walk.take() {
                output.finish(walk);
            }
        }
    }

    /// Returns true if packets of the guest are begun or there, or a request may go on.
    pub(super) fn has_output(&self) -> bool {
        self.walks.iter().any(Option::is_some) || self.has_come()
    }

    /// Returns true if a buffer has come that may be taken, or a request may go on.
    #[inline]
    fn has_come(&self) -> bool {
        let behind = usize::from(self.held.is_some());
        let may_go = self.held.is_some() && !self.is_held;
        may_go || self.outputs[behind..].iter().any(|output| output.as_receiver().is_ready())
    }
}
