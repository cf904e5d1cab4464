//! What an adapter shows of its port and its devices: words in storage of its own, which the host reads when somebody asks.
//!
//! ```text
//! word 0       generation: see `snapshot`
//! word 1       edition of this layout; 0 until something is shown
//! word 2       carrier 8 | how the adapter has ended 8 | devices 16 | captures 16
//! word 3       MAC address of the port 48, from its first byte on
//! word 4       bytes of the longest packet 32
//! word 5       bits a second of the medium; 0 if nobody knows
//! word 6       when this was shown, on the clock CLOCK_MONOTONIC, in nanoseconds
//! word 7       code of the error with which the adapter has ended
//! word 8       devices that were stopped, in all
//! word 16      frames that were dropped before they were a device's, by the order of the reasons: 16 words
//! word 32      counters of the wire: 8 words
//! word 40      a row of 4 for each of the 16 devices that were stopped last, in a ring; it is empty if its time is 0
//!              | guest | when | why 8 |
//! word 104     a row of 24 for each device
//!              | guest | number of its path | MAC address 48, state 8, layer 8
//!              | number of its first address 16, addresses with a row 16, addresses 16, VLANs 16 | VLANs, 16 each: 2 words |
//!              word 8 of it: packets that were dropped, by the order of the reasons: 16 words
//! word 6248    a row of 2 for each address, IPv4 as IPv6 has it (::ffff:a.b.c.d): high half, low half
//! word 10344   for each device 16 rows of 8, of what has become of its queues lately; a row is empty if its number is 0
//!              | number | when | kind 8, queue 8, from 8, to 8, load 32 | port here 16, port there 16 | address here: 2 words | address there: 2 words |
//! ```
//!
//! Parts of a word are named from its low bits on. Names are 8 bytes of ASCII, with blanks behind. All words are written by the adapter. The host believes
//! none of them: a number is shown, what is no name, no address or no known kind is left out.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use fabric::name::Name;
use fabric::snapshot;
use os::sync::Ordering;
use os::words::{LentWords, WORD_BYTES, Words};

use super::control::Stopped;
use super::drops::{DropReason, Drops};
use super::events::{EVENTS_MAX, Event, EventKind, Events};
use super::packet::Layer;
use super::wire::{Carrier, WireCounters};
use super::workload::Connection;
use crate::lan::frame::Mac;

/// Devices that have a row: all that an adapter has.
pub const DEVICES_MAX: usize = 256;
/// Addresses that have a row, of all devices together.
pub const ADDRESSES_MAX: usize = 2048;
/// Addresses of a device that are shown: as many as it may register.
pub const ADDRESSES_OF_DEVICE_MAX: usize = 64;
/// VLANs of a device that are shown.
pub const VLANS_MAX: usize = 8;
/// Devices that were stopped and are still shown.
pub const STOPPED_MAX: usize = 16;

/// Which edition of the layout this is.
const EDITION: u64 = 1;

const GENERATION: usize = 0;
const EDITION_AT: usize = 1;
const HEAD: usize = 2;
const HEAD_WORDS: usize = 7;
const DROPS: usize = 16;
const DROPS_WORDS: usize = 16;
const WIRE: usize = DROPS + DROPS_WORDS;
const STOPPED: usize = WIRE + 8;
const STOPPED_WORDS: usize = 4;
const DEVICES: usize = STOPPED + STOPPED_WORDS * STOPPED_MAX;
const DEVICE_WORDS: usize = 24;
const DEVICE_VLANS: usize = 4;
const DEVICE_DROPS: usize = 8;
const ADDRESSES: usize = DEVICES + DEVICE_WORDS * DEVICES_MAX;
const ADDRESS_WORDS: usize = 2;

const EVENTS: usize = ADDRESSES + ADDRESS_WORDS * ADDRESSES_MAX;
const EVENT_WORDS: usize = 8;

/// Words of a report.
pub const REPORT_WORDS: usize = EVENTS + EVENT_WORDS * EVENTS_MAX * DEVICES_MAX;
/// Bytes of the storage that a report is in.
pub const REPORT_BYTES: usize = REPORT_WORDS * WORD_BYTES;

const _: () = assert!(HEAD + HEAD_WORDS <= DROPS && DEVICES == 104 && ADDRESSES == 6248);
const _: () = assert!(EVENTS == 10_344);
const _: () = assert!(DropReason::ALL.len() <= DROPS_WORDS);
const _: () = assert!(DEVICE_VLANS + VLANS_MAX / 4 <= DEVICE_DROPS);
const _: () = assert!(DEVICE_DROPS + DROPS_WORDS <= DEVICE_WORDS);

/// What a port is like, and what has become of what came to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortState {
    /// The state of the medium, as the adapter has found it last.
    pub carrier: Option<Carrier>,
    /// The MAC address of the port.
    pub mac: Mac,
    /// Bytes of the longest packet.
    pub mtu: u32,
    /// Bits a second of the medium, as far as is known.
    pub rate: Option<u64>,
    /// When this was shown, on the clock that all processes share (`CLOCK_MONOTONIC`).
    pub shown_ns: u64,
    /// Frames from the wire that were dropped before they were a device's.
    pub drops: Drops,
    /// What the wire has counted.
    pub wire: WireCounters,
    /// Devices that were stopped, in all.
    pub stopped: u64,
    /// Guests that capture.
    pub captures: u16,
}

/// A state of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Its queues are there, and nothing goes or comes yet.
    Established,
    /// Packets go and come.
    Active,
    /// The guest has halted it.
    Halted,
    /// The adapter has stopped it.
    Stopped,
}

impl Activity {
    const ALL: [Activity; 4] =
        [Activity::Established, Activity::Active, Activity::Halted, Activity::Stopped];

    /// As people read it.
    pub fn name(self) -> &'static str {
        match self {
            Activity::Established => "established",
            Activity::Active => "active",
            Activity::Halted => "halted",
            Activity::Stopped => "stopped",
        }
    }
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceState {
    /// The guest that has it.
    pub guest: Name,
    /// The number of its path at the host that the adapter knows.
    pub path: u64,
    /// Its MAC address.
    pub mac: Mac,
    /// Its state.
    pub activity: Option<Activity>,
    /// Its layer.
    pub layer: Option<Layer>,
    /// Its addresses, as far as there are rows for them.
    pub addresses: Vec<IpAddr>,
    /// All addresses that it has registered, those without a row included.
    pub addresses_count: u16,
    /// The first of its VLANs.
    pub vlans: Vec<u16>,
    /// All of them.
    pub vlans_count: u16,
    /// Packets from it, and for it, that were dropped.
    pub drops: Drops,
    /// What has become of its queues lately, the oldest first.
    pub events: Vec<Event>,
}

/// A device that was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoppedDevice {
    /// The guest that had it.
    pub guest: Name,
    /// When, on the clock that all processes share.
    pub when_ns: u64,
    /// Why.
    pub why: Stopped,
}

/// How an adapter has ended, if it could say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Somebody has ended it.
    Orderly,
    /// With the error of this code of the system.
    Failed(i32),
}

/// What an adapter shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Of its port.
    pub port: PortState,
    /// Its devices.
    pub devices: Vec<DeviceState>,
    /// The devices that were stopped last, the latest first.
    pub stopped: Vec<StoppedDevice>,
    /// How it has ended, if it has.
    pub ended: Option<Ended>,
}

/// The adapter's side.
#[derive(Debug)]
pub struct Showing {
    words: Words,
    /// Devices that were stopped.
    stopped: u64,
}

impl Showing {
    /// A report of nothing, in fresh words.
    ///
    /// # Panics
    /// If the words are too few: a broken promise inside this program.
    pub fn new(words: Words) -> Showing {
        assert!(words.count() >= REPORT_WORDS, "words of a report");
        Showing { words, stopped: 0 }
    }

    /// Shows the port as it is now, and with `change` its devices. Those that are not put into rows are shown no longer. `stopped` of the port is counted here.
    pub fn change(&mut self, port: &PortState, change: impl FnOnce(&mut Rewriting<'_>)) {
        let Showing { words, stopped } = self;
        snapshot::change(words, GENERATION, || {
            let mut rewriting = Rewriting { words, devices: 0, addresses: 0 };
            change(&mut rewriting);
            let devices = rewriting.devices as u64;
            let carrier = match port.carrier {
                None => 0,
                Some(Carrier::Up) => 1,
                Some(Carrier::Down) => 2,
                Some(Carrier::Gone) => 3,
            };
            let PortState { mac, mtu, rate, shown_ns, drops, wire, captures, .. } = *port;
            let head = [
                carrier | devices << 16 | u64::from(captures) << 32,
                mac_word(mac),
                mtu.into(),
                rate.unwrap_or(0),
                shown_ns,
                0,
                *stopped,
            ];
            rewriting.put(HEAD, &head);
            rewriting.put(DROPS, drops.counts());
            rewriting.put(WIRE, &wire_words(&wire));
            rewriting.put(EDITION_AT, &[EDITION]);
        });
    }

    /// Shows that a device was stopped, in place of the one that was stopped the longest ago.
    pub fn stopped(&mut self, device: &StoppedDevice) {
        let at = STOPPED + STOPPED_WORDS * (self.stopped % STOPPED_MAX as u64) as usize;
        self.stopped += 1;
        let words = &self.words;
        snapshot::change(words, GENERATION, || {
            let row = [name_word(device.guest), device.when_ns.max(1), stopped_code(device.why)];
            put(words, at, &row);
            put(words, HEAD + 6, &[self.stopped]);
        });
    }

    /// Shows that the adapter ends, and how. Nothing is to be shown behind that.
    pub fn end(&mut self, ended: Ended) {
        let words = &self.words;
        let (kind, code) = match ended {
            Ended::Orderly => (1, 0),
            Ended::Failed(code) => (2, u64::from(code as u32)),
        };
        snapshot::change(words, GENERATION, || {
            let head = words.load(HEAD, Ordering::Relaxed) & !0xff00;
            put(words, HEAD, &[head | kind << 8]);
            put(words, HEAD + 5, &[code]);
        });
    }
}

/// Devices that are being shown.
#[derive(Debug)]
pub struct Rewriting<'a> {
    words: &'a Words,
    devices: usize,
    addresses: usize,
}

impl Rewriting<'_> {
    fn put(&mut self, at: usize, values: &[u64]) {
        put(self.words, at, values);
    }

    /// Shows a device. One for which there is no row is left out, and so are addresses and VLANs for which there is none: they are counted. The counts of
    /// `device` are not looked at.
    pub fn device(&mut self, device: &DeviceView<'_>) {
        if self.devices >= DEVICES_MAX {
            return;
        }
        let at = DEVICES + DEVICE_WORDS * self.devices;
        let mut event_at = EVENTS + EVENT_WORDS * EVENTS_MAX * self.devices;
        self.devices += 1;
        for event in device.events.last().take(EVENTS_MAX) {
            self.put(event_at, &event_words(event));
            event_at += EVENT_WORDS;
        }
        // The rows behind are those of a device that had this place before, or none.
        if event_at < EVENTS + EVENT_WORDS * EVENTS_MAX * self.devices {
            self.put(event_at, &[0]);
        }
        let first = self.addresses;
        for address in device.addresses.iter().take(ADDRESSES_MAX - first) {
            let row = ADDRESSES + ADDRESS_WORDS * self.addresses;
            self.put(row, &address_words(*address));
            self.addresses += 1;
        }
        let count = |count: usize| count.min(0xffff) as u64;
        let state = device.activity as u64 + 1;
        let layer = match device.layer {
            Layer::Two => 2,
            Layer::Three => 3,
        };
        let mut vlans = [0; VLANS_MAX / 4];
        for (number, vlan) in device.vlans.iter().take(VLANS_MAX).enumerate() {
            vlans[number / 4] |= u64::from(*vlan) << (16 * (number % 4));
        }
        let row = [
            name_word(device.guest),
            device.path,
            mac_word(device.mac) | state << 48 | layer << 56,
            count(first)
                | count(self.addresses - first) << 16
                | count(device.addresses.len()) << 32
                | count(device.vlans.len()) << 48,
        ];
        self.put(at, &row);
        self.put(at + DEVICE_VLANS, &vlans);
        self.put(at + DEVICE_DROPS, device.drops.counts());
    }
}

/// A device, as the adapter has it.
#[derive(Clone, Copy, Debug)]
pub struct DeviceView<'a> {
    /// The guest that has it.
    pub guest: Name,
    /// The number of its path.
    pub path: u64,
    /// Its MAC address.
    pub mac: Mac,
    /// Its state.
    pub activity: Activity,
    /// Its layer.
    pub layer: Layer,
    /// Its addresses.
    pub addresses: &'a [IpAddr],
    /// Its VLANs.
    pub vlans: &'a [u16],
    /// Packets from it, and for it, that were dropped.
    pub drops: &'a Drops,
    /// What has become of its queues lately.
    pub events: &'a Events,
}

/// Reads a report: the host's side. None if nothing is shown yet, or in a way that we do not know.
///
/// # Panics
/// If the words are too few: a broken promise inside this program.
pub fn read(words: &LentWords) -> Option<Shown> {
    assert!(words.count() >= REPORT_WORDS, "words of a report");
    snapshot::read(words, GENERATION, read_once)
}

fn read_once(words: &LentWords) -> Option<Shown> {
    // Relaxed: the generation orders them.
    let word = |at: usize| words.load(at, Ordering::Relaxed);
    if word(EDITION_AT) != EDITION {
        return None;
    }
    let drops = |at: usize| Drops(std::array::from_fn(|reason| word(at + reason)));
    let head = word(HEAD);
    let port = PortState {
        carrier: match head as u8 {
            1 => Some(Carrier::Up),
            2 => Some(Carrier::Down),
            3 => Some(Carrier::Gone),
            _ => None,
        },
        mac: mac(word(HEAD + 1)),
        mtu: word(HEAD + 2) as u32,
        rate: Some(word(HEAD + 3)).filter(|rate| *rate > 0),
        shown_ns: word(HEAD + 4),
        drops: drops(DROPS),
        wire: wire_counters(std::array::from_fn(|counter| word(WIRE + counter))),
        stopped: word(HEAD + 6),
        captures: (head >> 32) as u16,
    };
    let ended = match (head >> 8) as u8 {
        1 => Some(Ended::Orderly),
        2 => Some(Ended::Failed(word(HEAD + 5) as i32)),
        _ => None,
    };
    // Up to the first row that is empty, or makes no sense.
    let events = |device: usize| -> Vec<Event> {
        let first = EVENTS + EVENT_WORDS * EVENTS_MAX * device;
        let row = |row: usize| {
            event(std::array::from_fn(|number| word(first + EVENT_WORDS * row + number)))
        };
        (0..EVENTS_MAX).map_while(row).collect()
    };
    let device = |number: usize| {
        let at = DEVICES + DEVICE_WORDS * number;
        let (what, counts) = (word(at + 2), word(at + 3));
        let part = |number: u32| (counts >> (16 * number)) as u16;
        let (first, shown) = (usize::from(part(0)), usize::from(part(1)));
        let (addresses_count, vlans_count) = (part(2), part(3));
        // However many rows it says: it has no more addresses than it says, nor more than it may register.
        let shown = shown.min(addresses_count.into()).min(ADDRESSES_OF_DEVICE_MAX);
        let rows = first.min(ADDRESSES_MAX)..(first + shown).min(ADDRESSES_MAX);
        let addresses = rows.map(|row| {
            let at = ADDRESSES + ADDRESS_WORDS * row;
            address(word(at), word(at + 1))
        });
        let vlans = (0..usize::from(vlans_count).min(VLANS_MAX)).map(|number| {
            let word = word(at + DEVICE_VLANS + number / 4);
            (word >> (16 * (number % 4))) as u16
        });
        Some(DeviceState {
            guest: Name::parse(word(at).to_le_bytes())?,
            path: word(at + 1),
            mac: mac(what),
            activity: usize::from((what >> 48) as u8)
                .checked_sub(1)
                .and_then(|state| Activity::ALL.get(state).copied()),
            layer: match (what >> 56) as u8 {
                2 => Some(Layer::Two),
                3 => Some(Layer::Three),
                _ => None,
            },
            addresses: addresses.collect(),
            addresses_count,
            vlans: vlans.collect(),
            vlans_count,
            drops: drops(at + DEVICE_DROPS),
            events: events(number),
        })
    };
    let stopped = |number: usize| {
        let at = STOPPED + STOPPED_WORDS * number;
        let when_ns = word(at + 1);
        let why = stopped_of(word(at + 2)).filter(|_| when_ns > 0)?;
        Some(StoppedDevice { guest: Name::parse(word(at).to_le_bytes())?, when_ns, why })
    };
    let devices = usize::from((head >> 16) as u16).min(DEVICES_MAX);
    let mut stopped: Vec<StoppedDevice> = (0..STOPPED_MAX).filter_map(stopped).collect();
    stopped.sort_by_key(|device| std::cmp::Reverse(device.when_ns));
    let devices = (0..devices).filter_map(device).collect();
    Some(Shown { port, devices, stopped, ended })
}

fn put(words: &Words, at: usize, values: &[u64]) {
    for (index, value) in values.iter().enumerate() {
        // Relaxed: the generation orders them.
        words.store(at + index, *value, Ordering::Relaxed);
    }
}

fn name_word(name: Name) -> u64 {
    u64::from_le_bytes(name.bytes())
}

fn mac_word(mac: Mac) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

fn mac(word: u64) -> Mac {
    let [a, b, c, d, e, f, ..] = word.to_le_bytes();
    Mac([a, b, c, d, e, f])
}

fn address_words(address: IpAddr) -> [u64; ADDRESS_WORDS] {
    let bits = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    };
    [(bits >> 64) as u64, bits as u64]
}

fn address(high: u64, low: u64) -> IpAddr {
    Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)).to_canonical()
}

/// An event as a row has it.
fn event_words(event: &Event) -> [u64; EVENT_WORDS] {
    let of = |kind: u64, connection: Option<Connection>| {
        let ends = connection.map(|Connection { local, peer }| [local, peer]);
        let [port, peer_port] = ends.map_or([0; 2], |ends| ends.map(|end| u64::from(end.port())));
        let [here, there] =
            ends.map_or([[0; 2]; 2], |ends| ends.map(|end| address_words(end.ip())));
        (kind, port | peer_port << 16, here, there)
    };
    let (what, ports, here, there) = match event.what {
        EventKind::Joined(connection) => of(1, Some(connection)),
        EventKind::Left(connection) => of(2, Some(connection)),
        EventKind::Over(connection) => of(3, Some(connection)),
        EventKind::Refused(connection) => of(4, Some(connection)),
        EventKind::Stepped { queue, from, to, load } => {
            let steps = u64::from(queue) << 8 | u64::from(from) << 16 | u64::from(to) << 24;
            of(5 | steps | u64::from(load) << 32, None)
        }
    };
    [event.number, event.when_ns, what, ports, here[0], here[1], there[0], there[1]]
}

/// None if the row is empty, or is of no known kind.
fn event(row: [u64; EVENT_WORDS]) -> Option<Event> {
    let [number, when_ns, what, ports, here_high, here_low, there_high, there_low] = row;
    let connection = Connection {
        local: SocketAddr::new(address(here_high, here_low), ports as u16),
        peer: SocketAddr::new(address(there_high, there_low), (ports >> 16) as u16),
    };
    let [kind, queue, from, to, ..] = what.to_le_bytes();
    let what = match kind {
        1 => EventKind::Joined(connection),
        2 => EventKind::Left(connection),
        3 => EventKind::Over(connection),
        4 => EventKind::Refused(connection),
        5 => EventKind::Stepped { queue, from, to, load: (what >> 32) as u32 },
        _ => return None,
    };
    (number > 0).then_some(Event { number, when_ns, what })
}

fn stopped_code(why: Stopped) -> u64 {
    match why {
        Stopped::Buffer => 1,
        Stopped::Header => 2,
        Stopped::State => 3,
        Stopped::Adapter => 4,
    }
}

fn stopped_of(word: u64) -> Option<Stopped> {
    let all = [Stopped::Buffer, Stopped::Header, Stopped::State, Stopped::Adapter];
    all.into_iter().find(|why| stopped_code(*why) == u64::from(word as u8))
}

fn wire_words(counters: &WireCounters) -> [u64; 8] {
    let WireCounters { frames_received, bytes_received, frames_sent, bytes_sent, .. } = *counters;
    let WireCounters { dropped_behind, dropped_bad, dropped_unsent, calls, .. } = *counters;
    [
        frames_received,
        bytes_received,
        frames_sent,
        bytes_sent,
        dropped_behind,
        dropped_bad,
        dropped_unsent,
        calls,
    ]
}

fn wire_counters(words: [u64; 8]) -> WireCounters {
    let [frames_received, bytes_received, frames_sent, bytes_sent, behind, bad, unsent, calls] =
        words;
    WireCounters {
        frames_received,
        bytes_received,
        frames_sent,
        bytes_sent,
        dropped_behind: behind,
        dropped_bad: bad,
        dropped_unsent: unsent,
        calls,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAC: Mac = Mac([2, 3, 4, 5, 6, 7]);

    fn name(name: &str) -> Name {
        name.parse().unwrap()
    }

    fn drops(count: u64) -> Drops {
        let mut drops = Drops::default();
        for (number, reason) in DropReason::ALL.into_iter().enumerate() {
            drops.add(reason, count + number as u64);
        }
        drops
    }

    fn port() -> PortState {
        PortState {
            carrier: Some(Carrier::Down),
            mac: MAC,
            mtu: 8992,
            rate: Some(1_000_000_000),
            shown_ns: 77,
            drops: drops(100),
            wire: wire_counters([1, 2, 3, 4, 5, 6, 7, 8]),
            stopped: 0,
            captures: 1,
        }
    }

    fn view<'a>(addresses: &'a [IpAddr], vlans: &'a [u16], drops: &'a Drops) -> DeviceView<'a> {
        static NO_EVENTS: std::sync::OnceLock<Events> = std::sync::OnceLock::new();
        DeviceView {
            events: NO_EVENTS.get_or_init(Events::default),
            guest: name("ALICE"),
            path: 1 << 40,
            mac: MAC,
            activity: Activity::Halted,
            layer: Layer::Two,
            addresses,
            vlans,
            drops,
        }
    }

    #[test]
    fn what_is_shown_is_read() {
        let (words, lent) = Words::pair(REPORT_WORDS).unwrap();
        let mut showing = Showing::new(words);
        assert_eq!(read(&lent), None);
        let addresses = ["10.1.0.5", "fd00::5"].map(|address| address.parse().unwrap());
        let of_device = drops(5);
        showing.change(&port(), |rows| {
            rows.device(&view(&[], &[], &Drops::default()));
            rows.device(&view(&addresses, &[1, 2, 3, 4, 4094], &of_device));
        });
        let shown = read(&lent).unwrap();
        assert_eq!((shown.port, shown.ended, shown.stopped), (port(), None, vec![]));
        let [_, device] = &shown.devices[..] else { panic!("two") };
        assert_eq!((device.guest, device.path, device.mac), (name("ALICE"), 1 << 40, MAC));
        assert_eq!((device.activity, device.layer), (Some(Activity::Halted), Some(Layer::Two)));
        assert_eq!((&device.addresses[..], device.addresses_count), (&addresses[..], 2));
        assert_eq!((&device.vlans[..], device.vlans_count), (&[1, 2, 3, 4, 4094][..], 5));
        assert_eq!(device.drops, of_device);
        for activity in Activity::ALL {
            let none = Drops::default();
            showing.change(&PortState { carrier: None, rate: None, ..port() }, |rows| {
                rows.device(&DeviceView { activity, layer: Layer::Three, ..view(&[], &[], &none) });
            });
            let shown = read(&lent).unwrap();
            assert_eq!((shown.port.carrier, shown.port.rate), (None, None));
            assert_eq!(shown.devices[0].activity, Some(activity));
        }
    }

    #[test]
    fn events_of_a_device_are_shown_up_to_the_first_that_makes_no_sense() {
        let (words, lent) = Words::pair(REPORT_WORDS).unwrap();
        let mut showing = Showing::new(words);
        let connection = |local: &str, peer: &str| Connection {
            local: local.parse().unwrap(),
            peer: peer.parse().unwrap(),
        };
        let (four, six) =
            (connection("10.1.0.1:80", "10.1.0.2:4000"), connection("[fd00::1]:80", "[fd00::2]:1"));
        let kinds = [
            EventKind::Joined(four),
            EventKind::Left(six),
            EventKind::Over(four),
            EventKind::Refused(six),
            EventKind::Stepped { queue: 1, from: 2, to: 3, load: u32::MAX },
        ];
        let mut events = Events::default();
        for (when_ns, kind) in (100..).zip(kinds) {
            events.note(when_ns, kind);
        }
        let none = Drops::default();
        showing.change(&port(), |rows| {
            rows.device(&view(&[], &[], &none));
            rows.device(&DeviceView { events: &events, ..view(&[], &[], &none) });
        });
        let shown = read(&lent).unwrap();
        assert_eq!(shown.devices[0].events, []);
        assert_eq!(shown.devices[1].events, events.last().copied().collect::<Vec<_>>());
        // More than there are rows, and then a device that has none in the same place.
        for when_ns in 0..100 {
            events.note(when_ns, EventKind::Over(four));
        }
        showing.change(&port(), |rows| {
            rows.device(&DeviceView { events: &events, ..view(&[], &[], &none) });
        });
        assert_eq!(read(&lent).unwrap().devices[0].events.len(), EVENTS_MAX);
        showing.change(&port(), |rows| rows.device(&view(&[], &[], &none)));
        assert_eq!(read(&lent).unwrap().devices[0].events, []);
        assert_eq!(event([1, 2, 6, 0, 0, 0, 0, 0]), None);
        assert_eq!(event([0, 2, 5, 0, 0, 0, 0, 0]), None);
    }

    #[test]
    fn the_last_devices_that_were_stopped_and_the_end_are_shown() {
        let (words, lent) = Words::pair(REPORT_WORDS).unwrap();
        let mut showing = Showing::new(words);
        showing.change(&port(), |_| {});
        for number in 1..=STOPPED_MAX as u64 + 3 {
            let why = stopped_of(1 + number % 4).unwrap();
            showing.stopped(&StoppedDevice { guest: name("ROGUE"), when_ns: number, why });
        }
        let shown = read(&lent).unwrap();
        let times: Vec<u64> = shown.stopped.iter().map(|device| device.when_ns).collect();
        assert_eq!(times, (4..=STOPPED_MAX as u64 + 3).rev().collect::<Vec<u64>>());
        assert_eq!((shown.port.stopped, shown.stopped[0].why), (19, Stopped::Adapter));
        for ended in [Ended::Orderly, Ended::Failed(12), Ended::Failed(-1)] {
            showing.end(ended);
            let shown = read(&lent).unwrap();
            assert_eq!((shown.ended, shown.port.carrier), (Some(ended), Some(Carrier::Down)));
        }
    }

    #[test]
    fn what_there_is_no_room_for_is_counted_and_left_out() {
        let (words, lent) = Words::pair(REPORT_WORDS).unwrap();
        let mut showing = Showing::new(words);
        let addresses: Vec<IpAddr> = (0..64).map(|at| IpAddr::from([10, 1, 0, at])).collect();
        let (vlans, none): (Vec<u16>, _) = ((1..=64).collect(), Drops::default());
        showing.change(&port(), |rows| {
            (0..DEVICES_MAX + 1).for_each(|_| rows.device(&view(&addresses, &vlans, &none)));
        });
        let shown = read(&lent).unwrap();
        assert_eq!(shown.devices.len(), DEVICES_MAX);
        let all: usize = shown.devices.iter().map(|device| device.addresses.len()).sum();
        let last = &shown.devices[DEVICES_MAX - 1];
        assert_eq!((all, last.addresses.len(), last.addresses_count), (ADDRESSES_MAX, 0, 64));
        assert_eq!((&last.vlans[..], last.vlans_count), (&vlans[..VLANS_MAX], 64));
    }

    #[test]
    fn words_are_where_the_picture_has_them() {
        let (words, lent) = Words::pair(REPORT_WORDS).unwrap();
        let mut showing = Showing::new(words);
        let none = Drops::default();
        let address = ["10.1.0.5".parse().unwrap()];
        showing.change(&port(), |rows| {
            rows.device(&view(&address, &[], &none));
            rows.device(&view(&address, &[7, 9], &drops(1)));
        });
        let guest = name("BOB");
        showing.stopped(&StoppedDevice { guest, when_ns: 9, why: Stopped::Header });
        showing.end(Ended::Failed(5));
        let word = |at| lent.load(at, Ordering::Relaxed);
        let head: Vec<u64> = (0..9).map(word).collect();
        let state = 2 | 2 << 8 | 2 << 16 | 1 << 32;
        assert_eq!(head, [6, 1, state, 0x0706_0504_0302, 8992, 1_000_000_000, 77, 5, 1]);
        assert_eq!([word(16), word(27), word(28), word(32), word(39)], [100, 111, 0, 1, 8]);
        let bob = u64::from_le_bytes(*b"BOB     ");
        assert_eq!([word(40), word(41), word(42)], [bob, 9, 2]);
        let row: Vec<u64> = (128..137).map(word).collect();
        let alice = u64::from_le_bytes(*b"ALICE   ");
        let what = 0x0706_0504_0302 | 3 << 48 | 2 << 56;
        let counts = 1 | 1 << 16 | 1 << 32 | 2 << 48;
        assert_eq!(row, [alice, 1 << 40, what, counts, 7 | 9 << 16, 0, 0, 0, 1]);
        assert_eq!([word(6250), word(6251)], [0, 0xffff_0a01_0005]);
    }

    proptest! {
        #[test]
        fn any_words_are_read_and_bounded(seed: u64, edition in prop_oneof![Just(EDITION), any::<u64>()]) {
            let (words, lent) = Words::pair(REPORT_WORDS).unwrap();
            let mut number = seed;
            for at in 0..REPORT_WORDS {
                number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                words.store(at, number ^ number >> 29, Ordering::Relaxed);
            }
            // Some names are names.
            for device in (0..DEVICES_MAX).step_by(3) {
                words.store(DEVICES + DEVICE_WORDS * device, name_word(name("A")), Ordering::Relaxed);
            }
            words.store(EDITION_AT, edition, Ordering::Relaxed);
            let shown = read(&lent);
            prop_assert_eq!(shown.is_some(), edition == EDITION);
            if let Some(shown) = shown {
                prop_assert!(shown.devices.len() <= DEVICES_MAX && shown.stopped.len() <= STOPPED_MAX);
                for device in shown.devices {
                    prop_assert!(device.addresses.len() <= usize::from(device.addresses_count));
                    prop_assert!(device.addresses.len() <= ADDRESSES_OF_DEVICE_MAX);
                    prop_assert!(device.vlans.len() <= VLANS_MAX);
                }
            }
        }
    }
}
