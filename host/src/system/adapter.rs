//! OSA adapters in the system file: several guests on the port of one network interface, or on a wire in memory.
//!
//! ```toml
//! [osa.osa1]                    # the name of the adapter; the guest that serves it has the same in capitals, OSA1
//! wire = "macvtap"              # or "xdp", "tap", "memory"; left out: "macvtap"
//! interface = "eth1"            # of this machine; with "tap" the one that is made
//! mac = "02:00:00:00:00:a1"     # of the port; left out: one that stays the same
//! wait = "adaptive"             # or "block", or "spin"
//! cpu = 1                       # the processor of the adapter; left out: any
//! hold_off_us = 250             # from the first packet in a buffer until the guest has the buffer, at most: 0 to 5000
//! gap_us = 5                    # without a packet, after which the guest has the buffer: 0 to 100
//! gap_jumbo_us = 15             # the same where packets are longer than 1500 bytes: 0 to 100
//! buffers = 64                  # of each queue of a device: 8 to 126
//! guests = ["WEB", "DB*"]       # which may have devices; left out: all
//! capture = ["SNIFFER"]         # which may capture what passes the port; left out: none
//! lan = "hs0"                   # a LAN that is bridged to the port; left out: none
//!
//! [osa.osa2]
//! wire = "memory"
//! to = "osa3"                   # the adapter at the other end; each names the other
//! mtu = 1500                    # bytes of the longest packet: 576 to 9000; left out: 1500
//! rate = "1Gb/s"                # left out: no limit
//! delay_us = 0                  # from the end of a frame's transmission to its arrival
//! loss = 0.0                    # the share of frames that are lost: 0 to 0.5
//! ```
//!
//! Guests that may have devices may connect to the guest that serves the adapter without `connect`. [`interface`](super::interface)
//! describes the devices of TCPIP machines.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

use fabric::name::{LanName, NAME_BYTES, Name};
use net::lan::frame::Mac;
use net::wire::{Conditions, Share};
use serde::Deserialize;
use toml::Spanned;

use super::interface::InterfaceRule;
use super::lan::{FixedMember, LanRule, parsed};
use super::line::LineRule;
use super::machine::{MachineRule, MachineWait, named, processor};
use super::volume::Volumes;
use super::warnings::Guests;
use super::{Pattern, Rule, within};
use crate::config::{BitRate, FileError, Place, Source};

/// Adapters that a system may have, at most.
pub const ADAPTERS_MAX: usize = 64;

/// Bytes of the longest name of a network interface, as Linux has them (`IFNAMSIZ`).
const INTERFACE_BYTES_MAX: usize = 15;

/// Bytes of the longest packet of a wire in memory, unless the file says otherwise.
const MTU: u64 = 1500;

/// Buffers of each queue of a device, unless the file says otherwise.
const BUFFERS: u64 = 64;

/// The longest hold-off of a [`ModerationRule`], in microseconds.
pub const HOLD_OFF_US_MAX: u64 = 5000;

/// The longest gap of a [`ModerationRule`], in microseconds.
pub const GAP_US_MAX: u64 = 100;

/// The fewest bytes that the longest packet of a wire in memory may have.
pub const MTU_MIN: u64 = 576;

/// The most bytes that the longest packet of a wire in memory may have.
pub const MTU_MAX: u64 = 9000;

/// Bits a second of a wire in memory.
const RATE_MIN: BitRate = BitRate(1_000);
const RATE_MAX: BitRate = BitRate(1_000_000_000_000);

/// The largest share of frames that a wire in memory may lose.
const LOSS_MAX: f64 = 0.5;

const MACVTAP: &str = "macvtap";
const XDP: &str = "xdp";
const TAP: &str = "tap";
const MEMORY: &str = "memory";

/// An adapter.
#[derive(Clone, Debug)]
pub struct AdapterRule {
    /// Its name.
    pub name: LanName,
    /// The guest that serves it.
    pub server: Name,
    /// What its port is connected to.
    pub wire: WireRule,
    /// The MAC address of its port, if the file says so.
    pub mac: Option<Mac>,
    /// How it waits.
    pub wait: MachineWait,
    /// Its processor.
    pub processor: Option<usize>,
    /// When a buffer with packets for a guest is handed over.
    pub moderation: ModerationRule,
    /// Buffers of each queue of a device.
    pub buffers: usize,
    pub(super) guests: Vec<Pattern>,
    pub(super) capture: Vec<Pattern>,
    /// The bridge from a LAN to the port, if there is one.
    pub bridge: Option<BridgeRule>,
    /// Devices that TCPIP machines have by the file.
    pub devices: Vec<InterfaceRule>,
    /// Where the file has the adapter.
    pub place: Place,
    /// Where the file has the network interface or, if it leaves the wire out, the adapter.
    pub wire_place: Place,
    /// Where the file has its MAC address.
    pub mac_place: Option<Place>,
    /// The number of the processor that the file names, and where.
    pub processor_named: Option<(u64, Place)>,
}

/// A bridge from a LAN to the port of an adapter. Its two guests have names of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BridgeRule {
    /// The LAN.
    pub lan: LanName,
    /// The guest that is a member of the LAN: it passes packets on there, from the LAN's own networks alone.
    pub member: Name,
    /// The guest that has a device at the adapter.
    pub device: Name,
}

impl BridgeRule {
    /// The bridge from a LAN to the adapter that a guest serves. Names of adapters have neither of the two letters.
    fn new(lan: LanName, server: Name) -> BridgeRule {
        let name = |letter: char| {
            let begin = server.as_str().chars().take(NAME_BYTES - 1);
            let name: String = begin.chain([letter]).collect();
            name.parse().expect("the letters of a guest's name")
        };
        BridgeRule { lan, member: name('@'), device: name('#') }
    }

    fn guests(&self) -> [Name; 2] {
        [self.member, self.device]
    }
}

/// When a buffer with packets for a guest is handed over, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModerationRule {
    /// The longest time from the first packet in a buffer until the guest has the buffer.
    pub hold_off_ns: u64,
    /// A buffer is handed over when nothing has come for so long after a packet.
    pub gap_ns: u64,
    /// The same where packets are longer than 1500 bytes.
    pub gap_jumbo_ns: u64,
}

impl Default for ModerationRule {
    /// As the adapter has them by itself (`osa::adapter::Moderation` in the crate `net`).
    fn default() -> ModerationRule {
        ModerationRule { hold_off_ns: 250_000, gap_ns: 5_000, gap_jumbo_ns: 15_000 }
    }
}

/// What the port of an adapter is connected to.
#[derive(Clone, Debug, PartialEq)]
pub enum WireRule {
    /// A macvtap interface on this network interface.
    Macvtap(String),
    /// An `AF_XDP` socket at this network interface.
    Xdp(String),
    /// A TAP interface, which is made with this name.
    Tap(String),
    /// A wire in memory to another adapter.
    Memory(MemoryRule),
}

/// A wire in memory, as one of its ends has it. All but [`MemoryRule::to`] is the same at the other end.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryRule {
    /// The adapter at the other end.
    pub to: LanName,
    /// Bytes of the longest packet.
    pub mtu: usize,
    /// Bits a second. None: a frame takes no time.
    pub rate: Option<NonZeroU64>,
    /// The time from the end of a frame's transmission to its arrival.
    pub delay: Duration,
    /// The share of frames that are lost.
    pub loss: f64,
}

impl AdapterRule {
    /// Returns true if the file lets a guest have devices.
    pub fn serves(&self, guest: Name) -> bool {
        guest != self.server && self.guests.iter().any(|pattern| pattern.matches(guest))
    }

    /// Returns true if the file lets a guest capture what passes the port.
    pub fn may_capture(&self, guest: Name) -> bool {
        self.capture.iter().any(|pattern| pattern.matches(guest))
    }

    /// The guests that may capture, as the file writes them.
    pub fn capturers(&self) -> Vec<String> {
        self.capture.iter().map(ToString::to_string).collect()
    }

    /// The guests that the adapter itself needs: the one that serves it, and those of its bridge.
    pub(super) fn own_guests(&self) -> impl Iterator<Item = Name> {
        let bridge = self.bridge.iter().flat_map(BridgeRule::guests);
        [self.server].into_iter().chain(bridge)
    }

    /// The guests that may have devices, as the file writes them.
    pub fn guests(&self) -> Vec<String> {
        self.guests.iter().map(ToString::to_string).collect()
    }
}

impl WireRule {
    /// The kind, as the file names it.
    pub fn kind(&self) -> &'static str {
        match self {
            WireRule::Macvtap(_) => MACVTAP,
            WireRule::Xdp(_) => XDP,
            WireRule::Tap(_) => TAP,
            WireRule::Memory(_) => MEMORY,
        }
    }

    /// The network interface. None for a wire in memory.
    pub fn interface(&self) -> Option<&str> {
        match self {
            WireRule::Macvtap(interface) | WireRule::Xdp(interface) | WireRule::Tap(interface) => {
                Some(interface)
            }
            WireRule::Memory(_) => None,
        }
    }

    /// Returns true if two adapters can have these wires at one network interface.
    fn shares_interface_with(&self, other: &WireRule) -> bool {
        matches!((self, other), (WireRule::Macvtap(_), WireRule::Macvtap(_)))
    }
}

impl MemoryRule {
    /// The conditions on the wire, each way.
    pub fn conditions(&self) -> Conditions {
        // Within 0 and LOSS_MAX.
        let loss = Share::per_million((self.loss * 1e6).round() as u32);
        let MemoryRule { mtu, rate, delay, .. } = *self;
        Conditions { rate, delay, mtu, loss, ..Conditions::default() }
    }
}

/// The table `[osa.NAME]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenAdapter {
    wire: Option<Spanned<String>>,
    interface: Option<Spanned<String>>,
    to: Option<Spanned<String>>,
    mtu: Option<Spanned<u64>>,
    rate: Option<Spanned<BitRate>>,
    delay_us: Option<Spanned<u64>>,
    loss: Option<Spanned<f64>>,
    #[serde(default)]
    wait: MachineWait,
    cpu: Option<Spanned<u64>>,
    hold_off_us: Option<Spanned<u64>>,
    gap_us: Option<Spanned<u64>>,
    gap_jumbo_us: Option<Spanned<u64>>,
    buffers: Option<Spanned<u64>>,
    mac: Option<Spanned<String>>,
    guests: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default)]
    capture: Vec<Spanned<String>>,
    lan: Option<Spanned<String>>,
}

/// An end of a wire, before the other end is known.
enum End {
    Interface(WireRule, Place),
    Memory(MemoryEnd),
}

/// What the file says of a wire in memory at one end.
struct MemoryEnd {
    to: Spanned<LanName>,
    mtu: Option<Spanned<u64>>,
    rate: Option<Spanned<BitRate>>,
    delay_us: Option<Spanned<u64>>,
    loss: Option<Spanned<f64>>,
}

/// The adapters that a file's tables make, which the LANs that are bridged to them let in.
pub(super) fn rules(
    source: &Source,
    written: BTreeMap<Spanned<String>, WrittenAdapter>,
    lans: &mut [LanRule],
) -> Result<Vec<AdapterRule>, FileError> {
    let mut written: Vec<_> = written.into_iter().collect();
    written.sort_by_key(|(name, _)| name.span().start);
    if let Some((name, _)) = written.get(ADAPTERS_MAX) {
        let what = format!("there are more than {ADAPTERS_MAX} adapters");
        return Err(source.error(name.span(), what, format!("must be at most {ADAPTERS_MAX}")));
    }
    let mut ends: Vec<(LanName, End)> = Vec::new();
    for (written_name, adapter) in &written {
        let right = "must be 1 to 8 of a-z 0-9 _ -";
        let name: LanName = parsed(source, written_name, "name of an adapter", right)?;
        ends.push((name, adapter.end(source, written_name, name)?));
    }
    let mut rules: Vec<AdapterRule> = Vec::new();
    for ((written_name, adapter), (name, end)) in written.into_iter().zip(&ends) {
        let place = Place::new(source, written_name.span());
        let (wire, wire_place) = match end {
            End::Interface(wire, place) => (wire.clone(), place.clone()),
            End::Memory(end) => (memory(source, *name, end, &ends)?, place.clone()),
        };
        let same = |other: &&AdapterRule| {
            wire.interface().is_some() && other.wire.interface() == wire.interface()
        };
        if let Some(other) = rules.iter().find(same)
            && !wire.shares_interface_with(&other.wire)
        {
            let what = format!(
                "{} is the interface of {} too",
                wire.interface().unwrap_or_default(),
                other.name
            );
            let right = "must be another interface: only adapters that both have wire = \"macvtap\" share one";
            return Err(wire_place.error(what, right));
        }
        if let (Some(written), Some(own)) = (&adapter.mac, adapter.mac(source)?)
            && let Some(other) = rules.iter().find(|other| other.mac == Some(own))
        {
            let what = format!("{own} is the MAC address of {} too", other.name);
            return Err(source.error(written.span(), what, "must be another for each adapter"));
        }
        let lan_span = span(&adapter.lan);
        let rule = adapter.rule(source, (*name, place), (wire, wire_place), lans)?;
        let is_same = |other: &&AdapterRule| {
            rule.bridge.is_some_and(|own| other.bridge.is_some_and(|it| it.member == own.member))
        };
        if let (Some(span), Some(other)) = (lan_span, rules.iter().find(is_same)) {
            let what =
                format!("the bridge of {name} would have the names of that of {}", other.name);
            let right = "must be an adapter whose name has other first 7 letters";
            return Err(source.error(span, what, right));
        }
        rules.push(rule);
    }
    Ok(rules)
}

/// Refuses adapters whose guest has another part in the system.
pub(super) fn are_alone(
    adapters: &[AdapterRule],
    guests: &[Rule],
    machines: &[MachineRule],
    lines: &[LineRule],
    volumes: Option<&Volumes>,
) -> Result<(), FileError> {
    let own = adapters.iter().flat_map(|one| one.own_guests().map(move |guest| (one, guest)));
    for (AdapterRule { server, place, .. }, guest) in own {
        let machine = machines.iter().find(|machine| machine.guests().any(|one| one == guest));
        let line = lines.iter().find(|line| line.end_of(guest).is_some());
        let what = match (machine, line) {
            (Some(machine), _) if machine.name == guest => "a [[tcpip]]".to_owned(),
            (Some(machine), _) => format!("a guest of the machine {}", machine.name),
            (None, Some(line)) => format!("an end of the line {}", line.name),
            (None, None) if volumes.is_some_and(|volumes| volumes.control_unit == guest) => {
                "the control unit".to_owned()
            }
            (None, None) if guests.iter().any(|rule| rule.is_named(guest)) => {
                "a [[guest]], or a guest of the host".to_owned()
            }
            (None, None) => continue,
        };
        let does = if guest == *server { "serves" } else { "is of the bridge of" };
        let what = format!("{guest} is {what}, and {does} this adapter");
        return Err(place.error(what, "must be an adapter of another name"));
    }
    Ok(())
}

/// The adapter of this name.
pub(super) fn find<'a>(
    source: &Source,
    written: &Spanned<String>,
    adapters: &'a mut [AdapterRule],
) -> Result<&'a mut AdapterRule, FileError> {
    let name = written.get_ref();
    adapters.iter_mut().find(|adapter| adapter.name.as_str() == name).ok_or_else(|| {
        let what = format!("there is no adapter {name}");
        source.error(written.span(), what, format!("must be described as [osa.{name}]"))
    })
}

/// The wire of the adapter `name`, whose other end must lead back.
fn memory(
    source: &Source,
    name: LanName,
    own: &MemoryEnd,
    ends: &[(LanName, End)],
) -> Result<WireRule, FileError> {
    let (to, span) = (*own.to.get_ref(), own.to.span());
    let error = |what: String, right: String| Err(source.error(span.clone(), what, right));
    if to == name {
        let what = format!("{name} is at both ends of its wire");
        return error(what, "must be another adapter".to_owned());
    }
    let other = match ends.iter().find(|(other, _)| *other == to) {
        None => {
            let what = format!("there is no adapter {to}");
            return error(what, format!("must be described as [osa.{to}]"));
        }
        Some((_, End::Interface(wire, _))) => {
            let what = format!("{to} has wire = {:?}", wire.kind());
            return error(what, "must be an adapter with wire = \"memory\"".to_owned());
        }
        Some((_, End::Memory(other))) => other,
    };
    if *other.to.get_ref() != name {
        let what = format!("the wire of {to} leads to {}", other.to.get_ref());
        return error(what, format!("must be an adapter with to = \"{name}\""));
    }
    let number = |field, own: &Option<_>, other: &Option<_>| alike(source, field, own, (to, other));
    let mtu = number("mtu", &own.mtu, &other.mtu)?.unwrap_or(MTU) as usize;
    let rate = alike(source, "rate", &own.rate, (to, &other.rate))?;
    let rate = rate.and_then(|BitRate(bits)| NonZeroU64::new(bits));
    let delay_us = number("delay_us", &own.delay_us, &other.delay_us)?.unwrap_or(0);
    let loss = alike(source, "loss", &own.loss, (to, &other.loss))?.unwrap_or(0.0);
    let delay = Duration::from_micros(delay_us);
    Ok(WireRule::Memory(MemoryRule { to, mtu, rate, delay, loss }))
}

/// What is written at either end of a wire, or at both alike.
fn alike<T: Copy + PartialEq + std::fmt::Display>(
    source: &Source,
    field: &str,
    own: &Option<Spanned<T>>,
    (to, other): (LanName, &Option<Spanned<T>>),
) -> Result<Option<T>, FileError> {
    if let (Some(own), Some(other)) = (own, other)
        && own.get_ref() != other.get_ref()
    {
        let what = format!("{field} = {}, and {to} has {}", own.get_ref(), other.get_ref());
        let right = "must be the same at both ends of the wire, or be left out at one";
        return Err(source.error(own.span(), what, right));
    }
    Ok(own.as_ref().or(other.as_ref()).map(|written| *written.get_ref()))
}

/// Warns of a gap that is longer than the hold-off, both in microseconds: it never hands over a buffer.
pub(super) fn long_gap(
    source: &Source,
    field: &str,
    gap: &Spanned<u64>,
    hold_off: u64,
) -> Option<FileError> {
    if *gap.get_ref() <= hold_off {
        return None;
    }
    let what = format!(
        "{field} = {}: buffers are handed over after {hold_off} us already, by hold_off_us",
        gap.get_ref()
    );
    Some(source.error(gap.span(), what, "must be less than hold_off_us"))
}

impl WrittenAdapter {
    /// Returns warnings about settings that are probably mistakes.
    pub(super) fn warnings(&self, source: &Source, guests: &Guests<'_>) -> Vec<FileError> {
        let patterns = self.guests.iter().flat_map(|list| list.get_ref());
        let mut warnings: Vec<_> =
            patterns.filter_map(|text| guests.warn("guests", text)).collect();
        warnings.extend(self.capture.iter().filter_map(|text| guests.warn("capture", text)));
        let standard = ModerationRule::default().hold_off_ns / 1000;
        let hold_off = self.hold_off_us.as_ref().map_or(standard, |written| *written.get_ref());
        for (field, written) in [("gap_us", &self.gap_us), ("gap_jumbo_us", &self.gap_jumbo_us)] {
            let gap = written.as_ref();
            warnings.extend(gap.and_then(|gap| long_gap(source, field, gap, hold_off)));
        }
        warnings
    }

    /// The MAC address of the port.
    fn mac(&self, source: &Source) -> Result<Option<Mac>, FileError> {
        let Some(written) = &self.mac else { return Ok(None) };
        let right = "must be six bytes, like 02:00:00:00:00:a1";
        let mac: Mac = parsed(source, written, "MAC address", right)?;
        if mac.is_group() || mac == Mac([0; 6]) {
            let what = format!("{mac} is no station's MAC address");
            let right = "must be like 02:00:00:00:00:a1: its first byte even, and not all zeros";
            return Err(source.error(written.span(), what, right));
        }
        Ok(Some(mac))
    }

    /// The end of the wire that the file describes here.
    fn end(
        &self,
        source: &Source,
        written_name: &Spanned<String>,
        name: LanName,
    ) -> Result<End, FileError> {
        let kind = self.wire.as_ref().map_or(MACVTAP, |kind| kind.get_ref());
        let make = match kind {
            MACVTAP => WireRule::Macvtap,
            XDP => WireRule::Xdp,
            TAP => WireRule::Tap,
            MEMORY => return self.memory_end(source, written_name, name).map(End::Memory),
            other => {
                let span = self.wire.as_ref().map_or(0..0, Spanned::span);
                let right = "must be \"macvtap\", \"xdp\", \"tap\" or \"memory\"";
                return Err(source.error(span, format!("wire = {other:?}"), right));
            }
        };
        let only_memory = "must be left out: only wire = \"memory\" has it";
        let fields = [
            ("to", span(&self.to), only_memory),
            ("mtu", span(&self.mtu), "must be left out: the interface has one"),
            ("rate", span(&self.rate), only_memory),
            ("delay_us", span(&self.delay_us), only_memory),
            ("loss", span(&self.loss), only_memory),
        ];
        if let Some((field, Some(span), right)) =
            fields.into_iter().find(|(_, span, _)| span.is_some())
        {
            return Err(source.error(span, format!("{field} with wire = {kind:?}"), right));
        }
        let Some(interface) = &self.interface else {
            let right = match kind {
                TAP => "must have interface = with the name of the interface that is to be made",
                _ => "must have interface = with an interface of this machine",
            };
            return Err(source.error(
                written_name.span(),
                format!("{name} has no interface"),
                right,
            ));
        };
        let text = interface.get_ref();
        let is_fit = |letter: char| letter.is_ascii_graphic() && !['/', ':', '%'].contains(&letter);
        let is_name = (1..=INTERFACE_BYTES_MAX).contains(&text.len())
            && text.chars().all(is_fit)
            && ![".", ".."].contains(&text.as_str());
        if !is_name {
            let what = format!("{text:?} is no name of an interface");
            let right = "must be 1 to 15 characters without spaces, /, : and %, like eth1";
            return Err(source.error(interface.span(), what, right));
        }
        Ok(End::Interface(make(text.clone()), Place::new(source, interface.span())))
    }

    fn memory_end(
        &self,
        source: &Source,
        written_name: &Spanned<String>,
        name: LanName,
    ) -> Result<MemoryEnd, FileError> {
        if let Some(interface) = &self.interface {
            let right = "must be left out: the wire leads to the adapter that to = names";
            return Err(source.error(interface.span(), "interface with wire = \"memory\"", right));
        }
        let Some(to) = &self.to else {
            let what = format!("the wire of {name} leads nowhere");
            let right = "must have to = with the adapter at its other end";
            return Err(source.error(written_name.span(), what, right));
        };
        let right = "must be 1 to 8 of a-z 0-9 _ -";
        let other: LanName = parsed(source, to, "name of an adapter", right)?;
        let checked = |field, written: &Option<Spanned<u64>>, least, most| match written {
            None => Ok(None),
            Some(written) => {
                within(source, field, written.clone(), least, most)?;
                Ok(Some(written.clone()))
            }
        };
        if let Some(rate) = &self.rate
            && !(RATE_MIN..=RATE_MAX).contains(rate.get_ref())
        {
            let what = format!("rate = {}", rate.get_ref());
            return Err(source.error(
                rate.span(),
                what,
                format!("must be {RATE_MIN} to {RATE_MAX}"),
            ));
        }
        if let Some(loss) = &self.loss
            && !(0.0..=LOSS_MAX).contains(loss.get_ref())
        {
            let what = format!("loss = {}", loss.get_ref());
            return Err(source.error(loss.span(), what, format!("must be 0 to {LOSS_MAX}")));
        }
        Ok(MemoryEnd {
            to: Spanned::new(to.span(), other),
            mtu: checked("mtu", &self.mtu, MTU_MIN, MTU_MAX)?,
            rate: self.rate.clone(),
            delay_us: checked("delay_us", &self.delay_us, 0, 1_000_000)?,
            loss: self.loss.clone(),
        })
    }

    fn rule(
        self,
        source: &Source,
        (name, place): (LanName, Place),
        (wire, wire_place): (WireRule, Place),
        lans: &mut [LanRule],
    ) -> Result<AdapterRule, FileError> {
        let server: Name =
            name.as_str().to_ascii_uppercase().parse().expect("the letters of a LAN's name");
        let mac = self.mac(source)?;
        let standard = ModerationRule::default();
        let time = |field, written: Option<Spanned<u64>>, standard, most| match written {
            None => Ok(standard),
            Some(us) => within(source, field, us, 0, most).map(|us| us * 1000),
        };
        let moderation = ModerationRule {
            hold_off_ns: time(
                "hold_off_us",
                self.hold_off_us,
                standard.hold_off_ns,
                HOLD_OFF_US_MAX,
            )?,
            gap_ns: time("gap_us", self.gap_us, standard.gap_ns, GAP_US_MAX)?,
            gap_jumbo_ns: time(
                "gap_jumbo_us",
                self.gap_jumbo_us,
                standard.gap_jumbo_ns,
                GAP_US_MAX,
            )?,
        };
        let buffers = match self.buffers {
            None => BUFFERS,
            Some(buffers) => within(source, "buffers", buffers, 8, 126)?,
        };
        let guests = match &self.guests {
            None => vec![Pattern::Beginning(String::new())],
            Some(list) if list.get_ref().is_empty() => {
                let right = "must name one, or be left out for all";
                return Err(source.error(list.span(), "guests = []", right));
            }
            Some(list) => {
                let list = list.get_ref().iter().map(|text| Pattern::read(text, source));
                list.collect::<Result<_, _>>()?
            }
        };
        let bridge = match &self.lan {
            None => None,
            Some(written) => Some(bridge(source, written, server, lans)?),
        };
        let mut guests = guests;
        if let Some(BridgeRule { device, .. }) = bridge
            && !guests.iter().any(|pattern: &Pattern| pattern.matches(device))
        {
            guests.push(Pattern::Name(device));
        }
        let capture = self.capture.iter().map(|text| Pattern::read(text, source));
        let capture = capture.collect::<Result<_, _>>()?;
        let processor_named = named(source, &self.cpu);
        Ok(AdapterRule {
            name,
            server,
            wire,
            mac,
            mac_place: span(&self.mac).map(|span| Place::new(source, span)),
            wait: self.wait,
            processor: processor(source, self.cpu)?,
            moderation,
            buffers: buffers as usize,
            guests,
            capture,
            bridge,
            devices: Vec::new(),
            place,
            wire_place,
            processor_named,
        })
    }
}

/// Where a field is, if it is written.
fn span<T>(written: &Option<Spanned<T>>) -> Option<std::ops::Range<usize>> {
    written.as_ref().map(Spanned::span)
}

/// The bridge from a LAN to the port of an adapter, whose guest may pass packets on in the LAN, from the LAN's own networks.
fn bridge(
    source: &Source,
    written: &Spanned<String>,
    server: Name,
    lans: &mut [LanRule],
) -> Result<BridgeRule, FileError> {
    let right = "must be 1 to 8 of a-z 0-9 _ -";
    let name: LanName = parsed(source, written, "name of a LAN", right)?;
    let Some(lan) = lans.iter_mut().find(|lan| lan.name == name) else {
        let what = format!("there is no LAN {name}");
        return Err(source.error(written.span(), what, "must be described as a [[lan]]"));
    };
    if let Some(other) = lan.bridge {
        let what = format!("{name} is bridged to the port of another adapter, by {other}");
        // Over two ports of one network each frame would go round for ever.
        return Err(source.error(written.span(), what, "must be the LAN of one adapter"));
    }
    let bridge = BridgeRule::new(name, server);
    lan.bridge = Some(bridge.member);
    lan.let_route(bridge.member);
    lan.fixed.push(FixedMember {
        guest: bridge.member,
        mac: None,
        addresses: Vec::new(),
        vlans: Vec::new(),
        routes_from: lan.ranges.clone(),
    });
    Ok(bridge)
}

#[cfg(test)]
mod tests {
    use super::super::System;
    use super::*;

    fn parse(text: &str) -> Result<System, String> {
        let text = format!("[[guest]]\nname = \"WEB\"\n[[guest]]\nname = \"DB*\"\n{text}");
        System::parse(&Source::of("s.toml", &text)).map_err(|error| error.to_string())
    }

    fn name(name: &str) -> Name {
        name.parse().unwrap()
    }

    /// Two adapters at the ends of a wire in memory, with these fields.
    fn wire(one: &str, other: &str) -> String {
        format!(
            "[osa.osa2]\nwire = \"memory\"\nto = \"osa3\"\n{one}\n[osa.osa3]\nwire = \"memory\"\nto = \"osa2\"\n{other}"
        )
    }

    #[test]
    fn adapter_says_what_its_port_is_connected_to_and_who_may_have_devices() {
        let system = parse(
            r#"
            [osa.osa1]
            wire = "xdp"
            interface = "eth1"
            wait = "spin"
            cpu = 1
            hold_off_us = 100
            gap_us = 0
            gap_jumbo_us = 100
            buffers = 126
            guests = ["DB*"]
            lan = "hs0"
            [osa.a]
            interface = "eth0"
            [[lan]]
            name = "hs0"
            members = ["WEB"]
            "#,
        )
        .unwrap();
        let [first, second] = &system.adapters[..] else { panic!("two, in the file's order") };
        assert_eq!((first.name.as_str(), first.server), ("osa1", name("OSA1")));
        assert_eq!(first.wire, WireRule::Xdp("eth1".to_owned()));
        assert_eq!((first.wait, first.processor), (MachineWait::Spin, Some(1)));
        let times = ModerationRule { hold_off_ns: 100_000, gap_ns: 0, gap_jumbo_ns: 100_000 };
        assert_eq!((first.moderation, first.buffers), (times, 126));
        assert_eq!(first.guests(), ["DB*", "OSA1#"]);
        assert!(first.serves(name("DB7")) && !first.serves(name("WEB")));
        assert_eq!(second.wire, WireRule::Macvtap("eth0".to_owned()));
        assert_eq!((second.wait, second.processor), (MachineWait::Adaptive, None));
        assert_eq!((second.moderation, second.buffers), (ModerationRule::default(), 64));
        assert!(second.serves(name("WEB")) && !second.serves(second.server));
        // The bridge carries packets of others, of the LAN's range alone.
        let lan = &system.lans[0];
        let (member, device) = (name("OSA1@"), name("OSA1#"));
        assert_eq!(first.bridge, Some(BridgeRule { lan: lan.name, member, device }));
        assert_eq!(
            (lan.bridge, &lan.fixed(member).unwrap().routes_from),
            (Some(member), &lan.ranges)
        );
        assert!(lan.may_join(member) && lan.may_route(member));
        assert!(!lan.may_join(first.server) && !lan.may_route(name("WEB")));
        assert!(system.may_connect(device, first.server) && !system.may_connect(member, device));
        assert!([member, device].iter().all(|guest| system.rule(*guest).is_some()));
        assert!(system.warnings.is_empty(), "{:?}", system.warnings);
    }

    #[test]
    fn guests_of_an_adapter_may_connect_to_the_guest_that_serves_it() {
        let text = "[osa.osa1]\ninterface = \"eth1\"\nguests = [\"DB*\"]";
        let system = parse(text).unwrap();
        let [web, db, server] = ["WEB", "DB1", "OSA1"].map(name);
        assert!(system.may_connect(db, server) && !system.may_connect(web, server));
        assert!(!system.may_connect(server, db) && !system.may_connect(server, server));
        assert!(system.rule(server).is_some());
        // It is no guest of the file, which may name it all the same.
        let outline = system.outline();
        assert_eq!(outline.guests.len(), 2);
        assert_eq!((outline.adapters[0].server.as_str(), outline.adapters[0].gap_us), ("OSA1", 5));
        let system =
            parse(&format!("{text}\n[[guest]]\nname = \"A\"\nconnect = [\"OSA1\"]")).unwrap();
        assert!(system.may_connect(name("A"), server));
        assert!(system.warnings.is_empty(), "{:?}", system.warnings);
    }

    #[test]
    fn port_has_the_mac_address_that_the_file_says() {
        let (one, other) = ("mac = \"02:00:00:00:00:a1\"", "mac = \"00:1b:21:00:00:01\"");
        let system = parse(&wire(one, other)).unwrap();
        let macs = [0, 1].map(|at: usize| system.adapters[at].mac.unwrap().to_string());
        assert_eq!(macs, ["02:00:00:00:00:a1", "00:1b:21:00:00:01"]);
        assert_eq!(system.outline().adapters[0].mac.as_deref(), Some("02:00:00:00:00:a1"));
        assert_eq!(parse(&wire("", "")).unwrap().adapters[0].mac, None);
        for (one, other, error) in [
            ("mac = \"02:00\"", "", "must be six bytes, like 02:00:00:00:00:a1"),
            ("mac = \"ff:ff:ff:ff:ff:ff\"", "", "its first byte even, and not all zeros"),
            ("mac = \"01:00:5e:00:00:01\"", "", "its first byte even, and not all zeros"),
            ("mac = \"00:00:00:00:00:00\"", "", "its first byte even, and not all zeros"),
            (
                one,
                one,
                "02:00:00:00:00:a1 is the MAC address of osa2 too: must be another for each adapter",
            ),
        ] {
            let found = parse(&wire(one, other)).unwrap_err();
            assert!(found.ends_with(error), "{found}");
        }
    }

    #[test]
    fn guests_capture_where_the_file_says_so() {
        let text =
            "[osa.osa1]\ninterface = \"eth1\"\nguests = [\"WEB\"]\ncapture = [\"DB*\", \"NOBODY\"]";
        let system = parse(text).unwrap();
        let [web, db, server, other] = ["WEB", "DB1", "OSA1", "OTHER"].map(name);
        assert!(system.may_capture_at(db, server) && !system.may_capture_at(web, server));
        // To capture is not to have a device.
        assert!(!system.may_connect(db, server));
        assert!(!system.may_capture_at(db, other) && !system.may_capture_at(server, server));
        assert_eq!(system.adapters[0].capturers(), ["DB*", "NOBODY"]);
        let warnings: Vec<_> = system.warnings.iter().map(ToString::to_string).collect();
        assert!(
            warnings.len() == 1 && warnings[0].contains("capture = \"NOBODY\""),
            "{warnings:?}"
        );
        let open = System::open();
        assert!(open.may_capture_at(db, other) && open.may_capture_at(web, server));
    }

    #[test]
    fn wire_in_memory_is_the_same_at_both_ends() {
        let system = parse(&wire(
            "rate = \"1Gb/s\"\nloss = 0.25\nmtu = 9000",
            "delay_us = 7\nmtu = 9000\nloss = 0.25",
        ))
        .unwrap();
        let [one, other] = &system.adapters[..] else { panic!("two") };
        let (WireRule::Memory(one_end), WireRule::Memory(other_end)) = (&one.wire, &other.wire)
        else {
            panic!("in memory")
        };
        assert_eq!((one_end.to, other_end.to), (other.name, one.name));
        assert_eq!(one_end, &MemoryRule { to: other.name, ..other_end.clone() });
        assert_eq!((one_end.mtu, one_end.rate.unwrap().get()), (9000, 1_000_000_000));
        let conditions = Conditions {
            rate: NonZeroU64::new(1_000_000_000),
            delay: Duration::from_micros(7),
            mtu: 9000,
            loss: Share::percent(25),
            ..Conditions::default()
        };
        assert_eq!(one_end.conditions(), conditions);
        let system = parse(&wire("", "")).unwrap();
        let WireRule::Memory(end) = &system.adapters[0].wire else { panic!("in memory") };
        assert_eq!(end.conditions(), Conditions::default());
        assert_eq!(system.adapters[0].wire.interface(), None);
    }

    #[test]
    fn interface_is_shared_by_adapters_over_macvtap_alone() {
        let two = |one: &str, other: &str| {
            parse(&format!(
                "[osa.a]\nwire = {one:?}\ninterface = \"eth1\"\n[osa.b]\nwire = {other:?}\ninterface = \"eth1\""
            ))
        };
        two("macvtap", "macvtap").unwrap();
        for (one, other) in [("macvtap", "xdp"), ("xdp", "macvtap"), ("xdp", "xdp"), ("tap", "tap")]
        {
            assert_eq!(
                two(one, other).unwrap_err(),
                "s.toml:10: eth1 is the interface of a too: must be another interface: only adapters that both have wire = \"macvtap\" share one"
            );
        }
    }

    #[test]
    fn settings_that_are_probably_mistakes_are_warned_of() {
        let text = "[osa.a]\ninterface = \"eth1\"\nguests = [\"WBE\"]\nhold_off_us = 3\ngap_us = 5";
        let system = parse(text).unwrap();
        let warnings: Vec<String> = system.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(
            warnings,
            [
                "s.toml:7: guests = \"WBE\": no [[guest]] has such a name: did you mean WEB?",
                "s.toml:9: gap_us = 5: buffers are handed over after 3 us already, by hold_off_us: must be less than hold_off_us",
            ]
        );
    }

    #[test]
    fn faults_are_named_with_their_line_and_the_cure() {
        let eth = "[osa.osa1]\ninterface = \"eth1\"\n";
        for (text, error) in [
            (
                eth.replace("osa.osa1", "osa.OSA1"),
                "s.toml:5: \"OSA1\" is no name of an adapter: must be 1 to 8 of a-z 0-9 _ -",
            ),
            (
                eth.replace("osa.osa1", "osa.adapter12"),
                "s.toml:5: \"adapter12\" is no name of an adapter: must be 1 to 8 of a-z 0-9 _ -",
            ),
            (format!("{eth}{eth}"), "s.toml:7: duplicate key"),
            (
                format!("{eth}wire = \"veth\""),
                "s.toml:7: wire = \"veth\": must be \"macvtap\", \"xdp\", \"tap\" or \"memory\"",
            ),
            (
                "[osa.osa1]\nwire = \"xdp\"".to_owned(),
                "s.toml:5: osa1 has no interface: must have interface = with an interface of this machine",
            ),
            (
                "[osa.osa1]\nwire = \"tap\"".to_owned(),
                "s.toml:5: osa1 has no interface: must have interface = with the name of the interface that is to be made",
            ),
            (
                "[osa.osa1]\ninterface = \"a/b\"".to_owned(),
                "s.toml:6: \"a/b\" is no name of an interface: must be 1 to 15 characters without spaces, /, : and %, like eth1",
            ),
            (
                format!("{eth}mtu = 1500"),
                "s.toml:7: mtu with wire = \"macvtap\": must be left out: the interface has one",
            ),
            (
                format!("{eth}wire = \"tap\"\nrate = 1000"),
                "s.toml:8: rate with wire = \"tap\": must be left out: only wire = \"memory\" has it",
            ),
            (
                format!("{eth}to = \"osa2\""),
                "s.toml:7: to with wire = \"macvtap\": must be left out: only wire = \"memory\" has it",
            ),
            (format!("{eth}cpu = 4096"), "s.toml:7: cpu = 4096: must be 0 to 4095"),
            (format!("{eth}hold_off_us = 5001"), "s.toml:7: hold_off_us = 5001: must be 0 to 5000"),
            (format!("{eth}gap_us = 101"), "s.toml:7: gap_us = 101: must be 0 to 100"),
            (format!("{eth}gap_jumbo_us = 101"), "s.toml:7: gap_jumbo_us = 101: must be 0 to 100"),
            (format!("{eth}buffers = 7"), "s.toml:7: buffers = 7: must be 8 to 126"),
            (
                format!("{eth}wait = \"spni\""),
                "s.toml:7: unknown variant `spni`: did you mean `spin`?",
            ),
            (
                format!("{eth}guests = []"),
                "s.toml:7: guests = []: must name one, or be left out for all",
            ),
            (
                format!("{eth}guests = [\"web\"]"),
                "s.toml:7: \"web\" is no name: must be 1 to 8 of A-Z 0-9 $ # @ _ -, or the beginning of one and *",
            ),
            (
                format!("{eth}lan = \"hs0\""),
                "s.toml:7: there is no LAN hs0: must be described as a [[lan]]",
            ),
            (
                format!(
                    "{eth}lan = \"hs0\"\n[osa.osa2]\ninterface = \"eth1\"\nlan = \"hs0\"\n[[lan]]\nname = \"hs0\""
                ),
                "s.toml:10: hs0 is bridged to the port of another adapter, by OSA1@: must be the LAN of one adapter",
            ),
            (
                "[osa.adapter1]\ninterface = \"eth1\"\nlan = \"hs0\"\n[osa.adapter2]\ninterface = \"eth1\"\nlan = \"hs1\"\n[[lan]]\nname = \"hs0\"\n[[lan]]\nname = \"hs1\"\nrange = \"10.2.0.0/24\""
                    .to_owned(),
                "s.toml:10: the bridge of adapter2 would have the names of that of adapter1: must be an adapter whose name has other first 7 letters",
            ),
            (
                format!("{eth}lan = \"hs0\"\n[[lan]]\nname = \"hs0\"\n[[guest]]\nname = \"OSA1@\""),
                "s.toml:5: OSA1@ is a [[guest]], or a guest of the host, and is of the bridge of this adapter: must be an adapter of another name",
            ),
            (
                eth.replace("osa1", "web"),
                "s.toml:5: WEB is a [[guest]], or a guest of the host, and serves this adapter: must be an adapter of another name",
            ),
            (
                format!(
                    "{}[[volume]]\nfile = \"a\"\ndedicated = {{ guest = \"WEB\", device = \"0200\" }}",
                    eth.replace("osa1", "dasd")
                ),
                "s.toml:5: DASD is the control unit, and serves this adapter: must be an adapter of another name",
            ),
            (
                format!(
                    "{}[[line]]\nname = \"line0\"\n[[line.end]]\nguest = \"WEB\"\naddress = \"10.9.0.1\"\n[[line.end]]\nguest = \"DB1\"\naddress = \"10.9.0.2\"",
                    eth.replace("osa1", "db1")
                ),
                "s.toml:5: DB1 is an end of the line line0, and serves this adapter: must be an adapter of another name",
            ),
            (
                format!(
                    "{}[[lan]]\nname = \"hs0\"\noutside = true",
                    eth.replace("osa1", "gateway")
                ),
                "s.toml:5: GATEWAY is a [[guest]], or a guest of the host, and serves this adapter: must be an adapter of another name",
            ),
            (
                wire("interface = \"eth1\"", ""),
                "s.toml:8: interface with wire = \"memory\": must be left out: the wire leads to the adapter that to = names",
            ),
            (
                "[osa.osa2]\nwire = \"memory\"".to_owned(),
                "s.toml:5: the wire of osa2 leads nowhere: must have to = with the adapter at its other end",
            ),
            (
                wire("", "").replace("osa3", "osa2").replacen("osa2", "osa4", 1),
                "s.toml:7: the wire of osa2 leads to osa2: must be an adapter with to = \"osa4\"",
            ),
            (
                "[osa.osa2]\nwire = \"memory\"\nto = \"osa2\"".to_owned(),
                "s.toml:7: osa2 is at both ends of its wire: must be another adapter",
            ),
            (
                "[osa.osa2]\nwire = \"memory\"\nto = \"osa9\"".to_owned(),
                "s.toml:7: there is no adapter osa9: must be described as [osa.osa9]",
            ),
            (
                format!("{eth}[osa.osa2]\nwire = \"memory\"\nto = \"osa1\""),
                "s.toml:9: osa1 has wire = \"macvtap\": must be an adapter with wire = \"memory\"",
            ),
            (
                wire("rate = 1000", "rate = \"2kb/s\""),
                "s.toml:8: rate = 1 kb/s, and osa3 has 2 kb/s: must be the same at both ends of the wire, or be left out at one",
            ),
            (
                wire("mtu = 9000", "mtu = 1500"),
                "s.toml:8: mtu = 9000, and osa3 has 1500: must be the same at both ends of the wire, or be left out at one",
            ),
            (wire("mtu = 575", ""), "s.toml:8: mtu = 575: must be 576 to 9000"),
            (wire("loss = 0.6", ""), "s.toml:8: loss = 0.6: must be 0 to 0.5"),
            (wire("loss = nan", ""), "s.toml:8: loss = NaN: must be 0 to 0.5"),
            (wire("delay_us = 1000001", ""), "s.toml:8: delay_us = 1000001: must be 0 to 1000000"),
            (wire("rate = 999", ""), "s.toml:8: rate = 999 b/s: must be 1 kb/s to 1000 Gb/s"),
            (
                wire("rate = \"1 GB/s\"", ""),
                "s.toml:8: \"1 GB/s\" is no rate: must be a number of bits a second, or one with kb/s, Mb/s or Gb/s",
            ),
        ] {
            let found = parse(&text).unwrap_err();
            assert!(
                found == error || error.ends_with("duplicate key") && found.starts_with(error),
                "{found}\n{error}"
            );
        }
    }
}
