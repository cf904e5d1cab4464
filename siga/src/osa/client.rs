//! A guest's data device at an adapter.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use fabric::control::Request as HostRequest;
use fabric::name::{Name, NoName};
use fabric::path::Counter as PathCounter;
use net::lan::counters::BOARD_BYTES;
use net::lan::frame::Mac;
use net::lan::link::{FrameInParts, FrameInPlace};
use net::lan::offload::{Offload, segment};
use net::osa::buffer::{NotPut, QueueCounters, Reading};
use net::osa::control::{Port, Refused, Request, Stopped};
use net::osa::device::{INPUTS_MAX, OUTPUTS_MAX};
use net::osa::interface::{Counters as DeviceCounters, Interface, News, State};
use net::osa::packet::{FRAME_BYTES_MAX, Layer};
use net::osa::tuning::{Inbperf, Profile};
use net::osa::workload::{Connection, Workload};
use net::tcpip::{BulkState, Prefix, Unsent};
use os::poller::Sleeper;
use os::processor::now_ns;
use os::words::Words;

use super::changes::Changes;
use super::connecting::Connecting;
use super::inline::Inline;
use super::waits::AtGuest;
use crate::guest::Guest;
use crate::lending::Lending;
use crate::waiter::{Key, Looked, Member, OneOf, Waiter};
use crate::waiting::{SPIN_NS_MAX, Wait, after};

/// The MTU of a device that is not up yet.
const MTU: usize = 1500;

/// How often requests are sent again that could not be sent.
const ASK_AGAIN_NS: u64 = 10_000_000;

/// Refusals that are kept for the program.
const REFUSALS_MAX: usize = 64;

/// How a device is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OsaOptions {
    /// By which addresses the adapter gives frames to the device: of IP unless set.
    pub layer: Layer,
    /// In layer 2, the MAC address. Without one the device has one by chance.
    pub mac: Option<Mac>,
    /// Output queues: 1, or 4, of which the type of service of a packet, or the priority of its VLAN, chooses. 4 unless set.
    pub outputs: usize,
    /// Input queues: 1 to 8, and 1 unless set.
    pub inputs: usize,
    /// Inbound workload queuing: whether bulk data, distributed connections, Enterprise Extender and IPsec come by input queues of their own, so that nobody waits behind them. The
    /// device has five input queues at least then. They do not unless set.
    pub workload_queues: bool,
    /// How packets are to come: as the adapter has it unless set.
    pub inbperf: Inbperf,
    /// Times of one's own in place of that.
    pub profile: Option<Profile>,
    /// Buffers of an output queue that the adapter may have at once: 8 to 126, and 64 unless set.
    pub buffers_max: usize,
    /// Whether frames may be sent without checksums and with several segments, which the adapter or the wire completes. They may unless set.
    pub offloads: bool,
    /// How to wait.
    pub wait: Wait,
}

impl Default for OsaOptions {
    fn default() -> OsaOptions {
        OsaOptions {
            layer: Layer::Three,
            mac: None,
            outputs: OUTPUTS_MAX,
            inputs: 1,
            workload_queues: false,
            inbperf: Inbperf::Balanced,
            profile: None,
            buffers_max: 64,
            offloads: true,
            wait: Wait::Adaptive,
        }
    }
}

/// Why there is no device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenOsaError {
    /// The name of the adapter is no name.
    #[error(transparent)]
    Name(#[from] NoName),
    /// The queues are not those of a device.
    #[error(
        "{outputs} output queues and {inputs} input queues: must be 1 or {OUTPUTS_MAX}, and 1 to {INPUTS_MAX}"
    )]
    Queues {
        /// Output queues.
        outputs: usize,
        /// Input queues.
        inputs: usize,
    },
    /// The buffers are too few or too many.
    #[error("buffers_max = {0}: must be 8 to 126")]
    Buffers(usize),
    /// This process lacks descriptors or memory.
    #[error("cannot wait for a device: {0}")]
    Resources(#[from] io::Error),
    /// The time is over. The device is still asked for.
    #[error("no device at {adapter} within {time:?}: {why}")]
    NotUp {
        /// The adapter.
        adapter: Name,
        /// How long it was waited for.
        time: Duration,
        /// The last that the host or the adapter has said.
        why: String,
    },
    /// The guest may have no device there.
    #[error("{guest} may have no device at {adapter}: {why}")]
    Forbidden {
        /// The guest.
        guest: Name,
        /// The adapter.
        adapter: Name,
        /// What the host or the adapter has said.
        why: String,
    },
    /// The adapter refuses an address, or another request.
    #[error("{adapter} refuses {request:?}: {why}")]
    Refused {
        /// The adapter.
        adapter: Name,
        /// The request.
        request: Request,
        /// Why.
        why: Refused,
    },
}

/// The state of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OsaState {
    /// The adapter was asked for the device, or will be.
    Down {
        /// What was said last time.
        why: String,
    },
    /// Packets go and come.
    Up(Port),
    /// The guests of the port reach each other, and nobody else: the wire is down.
    NoCarrier(Port),
}

/// A member of the device's waiter.
#[derive(Debug)]
pub(super) enum Occupant {
    Guest(Box<Guest>),
    Device(Box<AtGuest>),
    Server(Inline),
}

impl OneOf for Occupant {
    fn member(&self) -> &dyn Member {
        match self {
            Occupant::Guest(guest) => &**guest,
            Occupant::Device(device) => &**device,
            Occupant::Server(inline) => inline,
        }
    }

    fn member_mut(&mut self) -> &mut dyn Member {
        match self {
            Occupant::Guest(guest) => &mut **guest,
            Occupant::Device(device) => &mut **device,
            Occupant::Server(inline) => inline,
        }
    }

    #[inline]
    fn is_one_ready(&mut self) -> bool {
        match self {
            Occupant::Guest(guest) => guest.is_ready(),
            Occupant::Device(device) => device.is_ready(),
            Occupant::Server(inline) => inline.is_ready(),
        }
    }
}

/// A guest's data device at an adapter. Its guest is the device's alone. The device comes back when its adapter does, with all that was registered.
pub struct Osa {
    pub(super) waiter: Waiter<Occupant>,
    pub(super) guest: Key,
    pub(super) device: Option<Key>,
    /// The server of the adapter, if this device serves it.
    pub(super) inline: Option<Key>,
    pub(super) adapter: Name,
    pub(super) options: OsaOptions,
    /// What every device of this is to have.
    registered: Vec<Request>,
    /// Requests to this device that wait until fewer are unanswered.
    unasked: VecDeque<Request>,
    networks: Vec<Prefix>,
    pub(super) connecting: Connecting,
    pub(super) why: String,
    /// Keeps the path in the host's accounts.
    pub(super) membership: Option<std::sync::Arc<crate::link::Membership>>,
    refused: Vec<(Request, Refused)>,
    /// Connections that the adapter has not taken as bulk data.
    refused_bulk: Vec<Connection>,
    joins: u64,
    pub(super) changes: Changes,
    /// The doorbells are to be drained before anything is looked at.
    has_slept: bool,
    words: Words,
    lending: Lending,
    is_shown: bool,
    /// For a frame that is longer than a buffer.
    room: Vec<u8>,
    /// Sums of devices before this one.
    before: Counted,
}

/// What was counted of a device.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    queues: [QueueCounters; 2],
    device: DeviceCounters,
    interrupts: u64,
}

impl Counted {
    /// Adds what this device has counted.
    fn add(&mut self, end: &Interface) {
        let (inputs, outputs) = end.queues();
        let [reads, writes] = &mut self.queues;
        inputs.iter().for_each(|input| add(reads, input.counters()));
        outputs.iter().for_each(|output| add(writes, output.counters()));
        let DeviceCounters { polls, polls_empty, dropped_offload, packs } = *end.counters();
        self.device.polls += polls;
        self.device.polls_empty += polls_empty;
        self.device.dropped_offload += dropped_offload;
        self.device.packs += packs;
        let heard = |input: &Reading| input.as_receiver().counter(PathCounter::Heard);
        self.interrupts += inputs.iter().map(heard).sum::<u64>();
    }
}

impl fmt::Debug for Osa {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("Osa");
        fields.field("adapter", &self.adapter).field("state", &self.state()).finish_non_exhaustive()
    }
}

impl Osa {
    /// Asks an adapter for a device, which is there as soon as the adapter is: [`Osa::wait_until_up`] waits for that.
    ///
    /// # Errors
    /// [`OpenOsaError`].
    pub fn open(guest: Guest, adapter: &str, options: &OsaOptions) -> Result<Osa, OpenOsaError> {
        let OsaOptions { outputs, inputs, buffers_max, .. } = *options;
        if !(outputs == 1 || outputs == OUTPUTS_MAX) || !(1..=INPUTS_MAX).contains(&inputs) {
            return Err(OpenOsaError::Queues { outputs, inputs });
        }
        if !(8..=126).contains(&buffers_max) {
            return Err(OpenOsaError::Buffers(buffers_max));
        }
        let adapter = adapter.parse()?;
        let mut options = *options;
        if options.workload_queues {
            options.inputs = options.inputs.max(Workload::ALL.len());
        }
        if options.layer == Layer::Two && options.mac.is_none() {
            let mut mac = [0; 6];
            os::random::fill(&mut mac)?;
            // Of one station, and administered here.
            mac[0] = mac[0] & !1 | 2;
            options.mac = Some(Mac(mac));
        }
        let mut waiter = Waiter::new(options.wait)?;
        guest.follow_hosts();
        let guest = waiter.add(Occupant::Guest(Box::new(guest)))?;
        let (words, lending) = Lending::new("siga stack", BOARD_BYTES, HostRequest::ShowStack)?;
        let mut osa = Osa {
            waiter,
            guest,
            device: None,
            inline: None,
            adapter,
            options,
            registered: Vec::new(),
            unasked: VecDeque::new(),
            networks: Vec::new(),
            connecting: Connecting::default(),
            why: "it was not asked yet".to_owned(),
            membership: None,
            refused: Vec::new(),
            refused_bulk: Vec::new(),
            joins: 0,
            changes: Changes::default(),
            has_slept: false,
            words,
            lending,
            is_shown: false,
            room: Vec::new(),
            before: Counted::default(),
        };
        osa.connect_if_due(now_ns());
        Ok(osa)
    }

    /// The adapter.
    pub fn adapter(&self) -> Name {
        self.adapter
    }

    /// The guest at this end.
    pub fn guest_name(&self) -> Name {
        self.guest().name()
    }

    pub(super) fn guest(&self) -> &Guest {
        match self.waiter.get(self.guest) {
            Some(Occupant::Guest(guest)) => guest,
            _ => unreachable!("made with a guest"),
        }
    }

    pub(super) fn interface(&self) -> Option<&Interface> {
        match self.waiter.get(self.device?) {
            Some(Occupant::Device(device)) => Some(&device.interface),
            _ => None,
        }
    }

    pub(super) fn at_guest(&mut self) -> Option<&mut AtGuest> {
        match self.waiter.get_mut(self.device?) {
            Some(Occupant::Device(device)) => Some(device),
            _ => None,
        }
    }

    /// Asks the adapter for something, of this device and of those that follow when the adapter has come back: an address, a group, a VLAN, a part in routing, how packets are to come.
    /// What is said of a connection ([`Osa::set_bulk`]) is of this device alone.
    pub fn register(&mut self, request: Request) {
        let takes_back = |kept: &Request| match (request, *kept) {
            (Request::RemoveAddress(one), Request::AddAddress(other)) => one == other,
            (Request::RemoveGroup(one), Request::AddGroup(other)) => one == other,
            (Request::RemoveVlan(one), Request::AddVlan(other)) => one == other,
            (Request::Gather(one), Request::Distribute(other)) => one == other,
            (Request::Route(_), Request::Route(_))
            | (Request::Tune(_) | Request::Profile(_), Request::Tune(_) | Request::Profile(_)) => {
                true
            }
            (Request::Sort(one, _), Request::Sort(other, _)) => one == other,
            (one, other) => one == other,
        };
        self.registered.retain(|kept| !takes_back(kept));
        let is_kept = match request {
            Request::AddAddress(_)
            | Request::AddGroup(_)
            | Request::AddVlan(_)
            | Request::Route(_)
            | Request::Sort(..)
            | Request::Distribute(_)
            | Request::Tune(_)
            | Request::Profile(_) => true,
            Request::Activate(..)
            | Request::Halt
            | Request::Clear
            | Request::RemoveAddress(_)
            | Request::RemoveGroup(_)
            | Request::RemoveVlan(_)
            | Request::Gather(_)
            | Request::AddConnection(_)
            | Request::RemoveConnection(_)
            | Request::ForgetConnection(_) => false,
        };
        if is_kept {
            self.registered.push(request);
        }
        self.unasked.push_back(request);
        self.ask_rest();
    }

    /// Asks what has waited because too much was asked.
    fn ask_rest(&mut self) {
        while let Some(request) = self.unasked.front().copied() {
            let Some(device) = self.at_guest() else { return self.unasked.clear() };
            if !device.interface.ask(request) {
                return;
            }
            self.unasked.pop_front();
        }
    }

    /// Waits until packets go and come, or only the wire is missing for that, and the adapter has answered all requests. Frames that come before are dropped.
    ///
    /// # Errors
    /// [`OpenOsaError::NotUp`] when the time is over, and at once if the device can never be up: the program has halted it, or there will never be a host
    /// again. [`OpenOsaError::Forbidden`] at once, [`OpenOsaError::Refused`] of the first request that the adapter refuses. [`OpenOsaError::Resources`].
    pub fn wait_until_up(&mut self, time: Duration) -> Result<(), OpenOsaError> {
        let deadline_ns = after(time);
        // What has come by the end of the time counts, also if there was none.
        let mut has_listened = false;
        loop {
            let now = now_ns();
            self.poll(now)?;
            // What the adapter says may stand behind frames, and so does the end of the path.
            while !self.is_up() && self.next_frame().is_some() {}
            self.take_news(now);
            if let Some((request, why)) = self.refused.first().copied() {
                return Err(OpenOsaError::Refused { adapter: self.adapter, request, why });
            }
            if self.is_up() {
                return Ok(());
            }
            if self.device.is_none() && self.connecting.is_forbidden() {
                let (guest, adapter, why) = (self.guest_name(), self.adapter, self.why.clone());
                return Err(OpenOsaError::Forbidden { guest, adapter, why });
            }
            if now >= deadline_ns && has_listened || self.is_never_up() {
                let why = self.why.clone();
                return Err(OpenOsaError::NotUp { adapter: self.adapter, time, why });
            }
            let until = self.due().unwrap_or(u64::MAX).min(deadline_ns);
            self.flush();
            self.wait(until.min(self.ask_again_ns(now)))?;
            has_listened = true;
        }
    }

    /// Returns true if packets go and come, or only the wire is missing for that, and nothing is asked of the adapter.
    fn is_up(&self) -> bool {
        let is_asked = self.interface().is_some_and(|end| end.is_waiting_for_answers());
        !is_asked && !matches!(self.state(), OsaState::Down { .. })
    }

    /// Returns true if the device is not up, and nothing is under way that could change that.
    fn is_never_up(&self) -> bool {
        match self.interface() {
            Some(end) => end.state() == State::Idle && !end.is_waiting_for_answers(),
            None => self.guest().is_forsaken(),
        }
    }

    /// When requests are to be sent again that were not sent for want of memory: nobody tells when there is some.
    fn ask_again_ns(&self, now: u64) -> u64 {
        match self.interface().is_some_and(Interface::has_unsent) {
            true => now.saturating_add(ASK_AGAIN_NS),
            false => u64::MAX,
        }
    }

    /// The state of the device.
    pub fn state(&self) -> OsaState {
        let port = self.interface().filter(|end| end.state() == State::Active);
        match port.and_then(|end| end.port()) {
            Some(port) if port.is_up => OsaState::Up(*port),
            Some(port) => OsaState::NoCarrier(*port),
            None => OsaState::Down { why: self.why.clone() },
        }
    }

    /// Bytes of the longest packet, as of now.
    pub fn mtu(&self) -> usize {
        let port = self.interface().and_then(Interface::port);
        port.map_or(MTU, |port| usize::from(port.mtu))
    }

    /// The MAC address of the device, once it is up.
    pub fn mac(&self) -> Option<Mac> {
        Some(self.interface()?.port()?.mac)
    }

    /// The layer.
    pub fn layer(&self) -> Layer {
        self.options.layer
    }

    /// Whether frames may be sent without checksums and with several segments.
    pub fn offloads(&self) -> bool {
        self.options.offloads
    }

    /// Whether workloads come by input queues of their own.
    pub fn workload_queues(&self) -> bool {
        self.options.workload_queues
    }

    /// How often there was a device: each has nothing of the connections of the one before.
    pub(crate) fn joins(&self) -> u64 {
        self.joins
    }

    /// Has a connection come by the queue of bulk data from now on, or no longer, or says that it is over: of this device alone. False: too much waits for answers of the
    /// adapter.
    pub fn set_bulk(&mut self, connection: Connection, state: BulkState) -> bool {
        let request = match state {
            BulkState::Bulk => Request::AddConnection(connection),
            BulkState::Plain => Request::RemoveConnection(connection),
            BulkState::Over => Request::ForgetConnection(connection),
        };
        // Without a device nothing comes by any queue.
        self.at_guest().is_none_or(|device| device.interface.ask(request))
    }

    /// A connection that the adapter has not taken as bulk data.
    pub fn take_refused_bulk(&mut self) -> Option<Connection> {
        self.refused_bulk.pop()
    }

    /// What was asked for to be registered.
    pub fn registered(&self) -> &[Request] {
        &self.registered
    }

    /// Addresses that were asked for.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let address = |request: &Request| match request {
            Request::AddAddress(address) if !address.is_multicast() => Some(*address),
            _ => None,
        };
        self.registered.iter().filter_map(address).collect()
    }

    /// Gives the device an address of IP, in a network of so many leading bits, whose hosts are reached without a router.
    pub fn add_address(&mut self, address: IpAddr, prefix_bits: u8) {
        self.register(Request::AddAddress(address));
        let network = Prefix::of(address, prefix_bits);
        self.networks.extend(network.filter(|network| !self.networks.contains(network)));
    }

    /// The networks of its addresses.
    pub fn networks(&self) -> &[Prefix] {
        &self.networks
    }

    /// The VLAN of its packets, if it was registered for one.
    pub fn vlan(&self) -> Option<u16> {
        self.registered.iter().find_map(|request| match request {
            Request::AddVlan(vlan) => Some(*vlan),
            _ => None,
        })
    }

    /// In layer 2, the MAC address that it asks for.
    pub fn own_mac(&self) -> Option<Mac> {
        self.options.mac
    }

    /// The next request that the adapter has refused.
    pub fn take_refused(&mut self) -> Option<(Request, Refused)> {
        (!self.refused.is_empty()).then(|| self.refused.remove(0))
    }

    /// What was counted of what the guest reads and writes, of all queues and devices so far.
    pub fn queues(&self) -> [QueueCounters; 2] {
        self.counted().queues
    }

    /// What was counted of each queue that the guest reads, of the device that is there now.
    pub fn inputs(&self) -> Vec<QueueCounters> {
        let inputs = self.interface().map(|end| end.queues().0);
        inputs.into_iter().flatten().map(|input| *input.counters()).collect()
    }

    /// What the guest's end has counted beside that, of all devices so far.
    pub fn counters(&self) -> DeviceCounters {
        self.counted().device
    }

    /// Doorbells heard of buffers that have come, of all devices so far: interrupts.
    pub fn interrupts(&self) -> u64 {
        self.counted().interrupts
    }

    /// Bytes of storage that the queues of the device hold now: what the adapter has lent for those that the guest reads, and what the guest has lent for
    /// those that it writes. Both grow with traffic, and are given back after a while without.
    pub fn lent_bytes(&self) -> [u64; 2] {
        let Some(end) = self.interface() else { return [0; 2] };
        let (inputs, outputs) = end.queues();
        let lent = PathCounter::LentBytes;
        [
            inputs.iter().map(|input| input.as_receiver().counter(lent)).sum(),
            outputs.iter().map(|output| output.as_sender().counter(lent)).sum(),
        ]
    }

    fn counted(&self) -> Counted {
        let mut counted = self.before;
        if let Some(end) = self.interface() {
            counted.add(end);
        }
        counted
    }

    // Frames.

    /// Does what there is to do beside frames that have come: the connection, and what the adapter has said. Returns whether there was anything.
    ///
    /// # Errors
    /// The kernel's: it does not let this process wait.
    pub fn poll(&mut self, now: u64) -> io::Result<bool> {
        let mut has_worked = false;
        if std::mem::take(&mut self.has_slept) {
            // Whoever is found is found again.
            self.waiter.try_next()?;
        }
        if self.guest().has_news() {
            self.serve_guest(now);
            has_worked = true;
        }
        has_worked |= self.serve_own()?;
        self.connect_if_due(now);
        has_worked |= self.at_guest().is_some_and(AtGuest::take_room);
        has_worked |= self.take_news(now);
        self.ask_rest();
        Ok(has_worked)
    }

    /// When there is something to do though nothing has come.
    pub fn due(&self) -> Option<u64> {
        self.connecting.due(self.device.is_some()).into_iter().chain(self.inline_due()).min()
    }

    fn take_news(&mut self, now: u64) -> bool {
        let mut has_worked = false;
        while let Some(device) = self.at_guest()
            && let Some(news) = device.interface.take_news()
        {
            has_worked = true;
            self.changes.note();
            if let News::Answer(request, done) = news {
                self.changes.answered(request, done);
            }
            match news {
                News::Answer(Request::AddConnection(connection), Err(_)) => {
                    // Of a program that does not ask, the oldest is forgotten.
                    if self.refused_bulk.len() >= REFUSALS_MAX {
                        self.refused_bulk.remove(0);
                    }
                    self.refused_bulk.push(connection);
                }
                News::Answer(Request::Clear, Ok(())) => {
                    self.why = "this program has halted it".to_owned();
                    // With all else the adapter has forgotten how packets are to come.
                    self.joins += 1;
                    let wishes = self.wishes();
                    self.unasked.extend(wishes);
                }
                News::Answer(request, Err(why)) if self.refused.len() < REFUSALS_MAX => {
                    self.why = format!("it refuses {request:?}: {why}");
                    self.refused.push((request, why));
                }
                News::Answer(Request::Halt, Ok(())) => {
                    self.why = "this program has halted it".to_owned();
                }
                News::Answer(..) | News::Port(_) => {}
                News::Stopped(why) => self.lose(now, Some(why)),
            }
        }
        if self.interface().is_some_and(|end| matches!(end.state(), State::Over(_))) {
            self.lose(now, None);
        }
        has_worked
    }

    /// The path has ended, or the adapter has stopped the device.
    pub(super) fn lose(&mut self, now: u64, why: Option<Stopped>) {
        if let Some(key) = self.device.take() {
            if let Some(Occupant::Device(device)) = self.waiter.remove(key) {
                self.before.add(&device.interface);
            }
            self.why = match why {
                Some(why) => format!("it has stopped the device: {why}"),
                None => "the path to it has ended".to_owned(),
            };
        }
        self.membership = None;
        self.connecting.lost(now);
        self.changes.note();
    }

    /// The path is there.
    pub(super) fn joined(&mut self, now: u64, interface: Interface) {
        let device = AtGuest { interface, wants_room: [false; OUTPUTS_MAX] };
        let Ok(key) = self.waiter.add(Occupant::Device(Box::new(device))) else {
            return self.connecting.lost(now);
        };
        self.device = Some(key);
        self.joins += 1;
        self.refused_bulk.clear();
        self.changes.begin();
        let OsaOptions { layer, mac, .. } = self.options;
        self.unasked.clear();
        self.unasked.push_back(Request::Activate(layer, mac));
        self.unasked.extend(self.wishes());
        self.unasked.extend(self.registered.iter().copied());
        self.ask_rest();
    }

    /// How packets are to come, as requests.
    fn wishes(&self) -> Vec<Request> {
        let OsaOptions { workload_queues, inbperf, profile, .. } = self.options;
        let sorted = Workload::ALL.into_iter().skip(1).filter(|_| workload_queues);
        let sort = |workload: Workload| Request::Sort(workload, workload.usual_queue() as u8);
        let tune = match profile {
            Some(profile) => Some(Request::Profile(profile)),
            None => (inbperf != Inbperf::Balanced).then_some(Request::Tune(inbperf)),
        };
        sorted.map(sort).chain(tune).collect()
    }

    /// Finds the next frame that has come, which [`Osa::found`] has until the next call; none if there is none.
    pub fn next_frame(&mut self) -> Option<Offload> {
        let found = self.at_guest()?.interface.next_packet();
        match found {
            Ok(found) => found,
            Err(_) => {
                self.take_news(now_ns());
                self.lose(now_ns(), None);
                None
            }
        }
    }

    /// The frame that was found last.
    pub fn found(&self) -> Option<FrameInPlace<'_>> {
        self.interface()?.found()
    }

    /// Gives the buffer back whose frames were all taken.
    pub fn finish(&mut self) {
        if let Some(device) = self.at_guest() {
            device.interface.finish();
        }
    }

    /// Sends a frame: in layer 3 to this neighbour. Its Ethernet header is empty then.
    ///
    /// # Errors
    /// [`Unsent`]; nothing of it has gone.
    pub fn send(
        &mut self,
        now: u64,
        next_hop: Option<IpAddr>,
        offload: Offload,
        frame: &[u8],
    ) -> Result<(), Unsent> {
        if frame.len() > FRAME_BYTES_MAX {
            return self.send_cut(now, next_hop, offload, frame);
        }
        let start = &frame[..frame.len().min(64)];
        self.send_by(now, next_hop, offload, (start, frame.len()), |target| {
            target.copy_from_slice(frame);
        })
    }

    /// The same of a frame whose data lies elsewhere.
    ///
    /// # Errors
    /// [`Unsent`]; nothing of it has gone.
    pub fn send_in_parts(
        &mut self,
        now: u64,
        next_hop: Option<IpAddr>,
        frame: &FrameInParts<'_>,
    ) -> Result<(), Unsent> {
        if frame.bytes() > FRAME_BYTES_MAX {
            return self.send_cut(now, next_hop, frame.offload, &frame.whole());
        }
        self.send_by(now, next_hop, frame.offload, (frame.start, frame.bytes()), |target| {
            frame.write(target);
        })
    }

    /// The same of a frame that has come from elsewhere, and of which a part may change at any time.
    ///
    /// # Errors
    /// [`Unsent`]; nothing of it has gone.
    pub fn send_in_place(
        &mut self,
        now: u64,
        next_hop: Option<IpAddr>,
        frame: &FrameInPlace<'_>,
    ) -> Result<(), Unsent> {
        let bytes = frame.bytes();
        if bytes > FRAME_BYTES_MAX {
            let mut whole = vec![0; bytes];
            frame.read(0, &mut whole);
            return self.send_cut(now, next_hop, frame.offload, &whole);
        }
        self.send_by(now, next_hop, frame.offload, (frame.start, bytes), |target| {
            // As long as the frame is.
            frame.read(0, target);
        })
    }

    fn send_by(
        &mut self,
        now: u64,
        next_hop: Option<IpAddr>,
        offload: Offload,
        (start, bytes): (&[u8], usize),
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), Unsent> {
        let is_coming_up = self.connecting.is_under_way();
        let Some(device) = self.at_guest() else {
            // What a program sends first need not be lost because the adapter has not answered yet.
            return Err(if is_coming_up { Unsent::Full } else { Unsent::Unreachable });
        };
        let packet = start.get(net::lan::frame::ETHERNET_BYTES..).unwrap_or(&[]);
        let queue = device.interface.queue_of(offload, packet);
        let sent = device.interface.send(now, queue, (offload, bytes), next_hop, write);
        device.wants_room[queue] = sent == Err(NotPut::Exhausted);
        sent.map_err(|error| match error {
            NotPut::Exhausted => Unsent::Full,
            NotPut::Lacking(lack) => Unsent::Lacking(lack),
            NotPut::Severed => Unsent::Unreachable,
        })
    }

    /// A frame of several segments that is longer than a buffer: each goes by itself.
    #[cold]
    fn send_cut(
        &mut self,
        now: u64,
        next_hop: Option<IpAddr>,
        offload: Offload,
        frame: &[u8],
    ) -> Result<(), Unsent> {
        let mut room = std::mem::take(&mut self.room);
        let left = Offload { vlan: offload.vlan, ..Offload::NONE };
        let (mut sent, mut has_sent) = (Ok(()), false);
        segment(offload, frame, &mut room, |bytes| {
            if sent.is_ok() && bytes.len() <= FRAME_BYTES_MAX {
                sent = self.send(now, next_hop, left, bytes);
                has_sent |= sent.is_ok();
            }
        });
        self.room = room;
        // What has not gone of it is sent again by whoever misses it.
        if has_sent { Ok(()) } else { sent }
    }

    // Waiting.

    /// Hands over what was held back.
    pub fn flush(&mut self) {
        if let Some(device) = self.at_guest() {
            device.interface.flush(false);
        }
        // An error is found again by whoever polls. Who has announced a sleep would take that back.
        if !self.has_slept {
            let _ = self.serve_own();
        }
    }

    /// Waits until there is something to do: a frame, news, or room; at most until that time on the machine's clock.
    ///
    /// # Errors
    /// The kernel's: it does not let this process wait.
    pub fn wait_until(&mut self, deadline_ns: u64) -> io::Result<()> {
        self.flush();
        let until = self.due().unwrap_or(u64::MAX).min(deadline_ns);
        self.wait(until.min(self.ask_again_ns(now_ns())))
    }

    fn wait(&mut self, until_ns: u64) -> io::Result<()> {
        // A server of its own is polled first, as long as the device is to be looked for.
        if self.inline.is_none() || self.look(until_ns, || false)? == Looked::Nothing {
            // What was looked at may have made something due sooner than was known before.
            self.waiter.wait_until(until_ns.min(self.inline_due().unwrap_or(u64::MAX)))?;
        }
        Ok(())
    }

    pub(crate) fn wait_policy(&self) -> Wait {
        self.options.wait
    }

    /// Looks whether there may be something, as [`crate::line::Line`] does.
    pub(crate) fn look(
        &mut self,
        deadline_ns: u64,
        is_wanted: impl Fn() -> bool,
    ) -> io::Result<Looked> {
        if !self.has_slept {
            self.flush();
        }
        // Who has announced a sleep asks only whether something has rung: to poll would take the announcement back.
        if self.inline.is_none() || self.has_slept {
            return self.waiter.look(deadline_ns, is_wanted);
        }
        // The waiter knows nothing of what the server would find.
        let until_ns = match self.options.wait {
            Wait::Block => 0,
            Wait::Adaptive => deadline_ns.min(now_ns().saturating_add(SPIN_NS_MAX)),
            Wait::Spin => deadline_ns,
        };
        loop {
            let has_worked = self.serve_own()?;
            match self.waiter.look(0, &is_wanted)? {
                Looked::Nothing if has_worked => return Ok(Looked::Ready),
                Looked::Nothing if now_ns() < until_ns => os::sync::pause(),
                looked => return Ok(looked),
            }
        }
    }

    /// Prepares for a sleep until the descriptor is readable. When it has to end for trimming; none if there is something.
    pub(crate) fn prepare_sleep(&mut self) -> Option<u64> {
        self.finish();
        let trim_ns = self.waiter.prepare_sleep()?;
        self.has_slept = true;
        Some(trim_ns)
    }

    /// Prepares for waiting elsewhere, at [`Osa::as_fd`]. True if there is nothing to do.
    pub fn prepare_wait(&mut self) -> bool {
        self.finish();
        let is_prepared = self.waiter.prepare_wait();
        self.has_slept |= is_prepared;
        is_prepared
    }

    /// The descriptor has become readable: listen before anything is looked at.
    pub fn drain_doorbells(&mut self) {
        self.has_slept = true;
    }

    /// A sleep was ended by these doorbells, after so long. Whether one of them is the device's.
    pub(crate) fn heard(&mut self, rang: &[u64], slept_ns: u64) -> bool {
        self.has_slept = false;
        self.waiter.heard(rang, slept_ns)
    }

    /// Sleeps while others have the device. `interrupt` ends that sleep, too.
    pub(crate) fn sleeper(&self, interrupt: impl AsFd) -> io::Result<Sleeper> {
        self.waiter.add_interrupt(interrupt)?;
        Ok(self.waiter.sleeper())
    }

    // What a stack shows.

    pub(crate) fn board(&self) -> &Words {
        &self.words
    }

    /// From now on the board is lent to the host, and to each that follows.
    pub(crate) fn show_stack(&mut self, now: u64) {
        self.is_shown = true;
        self.lend_board(now);
    }

    /// The stack shows itself elsewhere.
    pub(crate) fn hide_stack(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            net::board::hide(&self.words);
        }
    }

    pub(super) fn lend_board(&mut self, now: u64) {
        let Osa { waiter, guest, lending, is_shown, .. } = self;
        if let Some(Occupant::Guest(guest)) = waiter.get(*guest)
            && *is_shown
        {
            lending.follow_host(guest, now);
        }
    }
}

fn add(sum: &mut QueueCounters, one: &QueueCounters) {
    sum.buffers += one.buffers;
    sum.packets += one.packets;
    sum.bytes += one.bytes;
    sum.exhausted += one.exhausted;
}

impl AsFd for Osa {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiter.as_fd()
    }
}
