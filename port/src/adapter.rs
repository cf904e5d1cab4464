//! A port at an adapter: it moves frames between a TAP device and a data device of layer 2.
//!
//! The kernel at the interface has the MAC address of the data device, and speaks with the network as on a cable: it resolves addresses
//! itself. The interface follows the port of the adapter: its MTU, and its carrier. The groups that the kernel joins are registered at the
//! adapter, which gives the device the frames to these groups alone.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use net::lan::frame::{Mac, destination};
use net::lan::link::FrameInPlace;
use net::lan::offload::Offload;
use net::tcpip::Unsent;
use os::interface::Interface;
use os::processor::now_ns;
use os::tap::{HEAD_BYTES, Tap};
use siga::osa::{Layer, OpenOsaError, Osa, OsaOptions, OsaState, Refused, Request};
use siga::{AttachError, Name, Wait};

use crate::agent::{BATCH, Counters, Ended, Ready, write};
use crate::backlog::{Backlog, Tried};
use crate::head;
use crate::link::Address;
use crate::member::attach;
use crate::serve::Moves;
use crate::setup::{Network, Place, Setup};

/// How long an adapter may take to give a device before the user is told that it does not.
const UP_TIME: Duration = Duration::from_secs(5);

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where the host listens.
    pub socket: PathBuf,
    /// The adapter.
    pub adapter: String,
    /// The guest's name; one that no other guest has, if none is given.
    pub name: Option<String>,
    /// The addresses of the interface, which are registered at the adapter.
    pub addresses: Vec<Address>,
    /// The MAC address; one by chance, if none is given.
    pub mac: Option<Mac>,
    /// Bytes of the longest packet; as the port, if nothing is given. No more than the port's.
    pub mtu: Option<u32>,
    /// The VLAN of its packets, of which the kernel at the interface knows nothing. None: packets have no tag.
    pub vlan: Option<u16>,
    /// What the interface is called: as the adapter, in small letters, if nothing is given.
    pub interface: Option<String>,
    /// Hosts behind the port over which packets go to elsewhere.
    pub gateways: Vec<IpAddr>,
    /// How the port waits.
    pub wait: Wait,
}

/// Why there is no device.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no guest.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The adapter refuses an address.
    #[error("the adapter {adapter} refuses the address {address}: {why}{}", advice(*why))]
    Address {
        /// The adapter.
        adapter: Name,
        /// The address.
        address: IpAddr,
        /// Why.
        why: Refused,
    },
    /// There is no adapter, or it gives no device.
    #[error("{error}{}", hint(.error))]
    Device {
        /// Why.
        error: OpenOsaError,
    },
    /// The packets would not fit into the frames of the port.
    #[error("an MTU of {asked}: must be at most {most}, that of the port of {adapter}")]
    Mtu {
        /// What was asked for.
        asked: u32,
        /// The port's.
        most: usize,
        /// The adapter.
        adapter: Name,
    },
}

fn advice(why: Refused) -> &'static str {
    match why {
        Refused::Taken => ": choose another with --address",
        Refused::Unfit => ": must be the address of one host",
        _ => "",
    }
}

fn hint(error: &OpenOsaError) -> &'static str {
    match error {
        OpenOsaError::NotUp { .. } => ": is the adapter served (siga osa serve)?",
        OpenOsaError::Forbidden { .. } => {
            ": must be a guest that the system file names in guests = [..] of the adapter ([osa.NAME]; siga up --check shows them)"
        }
        _ => "",
    }
}

/// Opens a device of layer 2 with the addresses that are asked for. `purpose` is a part of the guest's name, if none is given.
///
/// # Errors
/// [`OpenError`].
pub fn open(options: &Options, purpose: &OsStr) -> Result<Osa, OpenError> {
    let guest = attach(&options.socket, options.name.as_deref(), purpose)?;
    let mut osa_options = OsaOptions::default();
    osa_options.layer = Layer::Two;
    (osa_options.mac, osa_options.wait) = (options.mac, options.wait);
    let opened = Osa::open(guest, &options.adapter, &osa_options);
    let mut osa = opened.map_err(|error| OpenError::Device { error })?;
    // Before the addresses, which the adapter announces in the VLAN.
    if let Some(vlan) = options.vlan {
        osa.register(Request::AddVlan(vlan));
    }
    for Address { address, prefix_bits } in &options.addresses {
        osa.add_address(*address, *prefix_bits);
    }
    osa.wait_until_up(UP_TIME).map_err(|error| match error {
        OpenOsaError::Refused { adapter, request: Request::AddAddress(address), why } => {
            OpenError::Address { adapter, address, why }
        }
        error => OpenError::Device { error },
    })?;
    let most = osa.mtu();
    match options.mtu {
        Some(asked) if asked as usize > most => {
            Err(OpenError::Mtu { asked, most, adapter: osa.adapter() })
        }
        _ => Ok(osa),
    }
}

/// What is set up for this device.
pub fn setup(osa: &Osa, options: &Options, place: Place) -> Setup {
    let interface = options.interface.clone();
    let interface = interface.unwrap_or_else(|| osa.adapter().as_str().to_lowercase());
    Setup {
        place,
        network: Network::Adapter,
        interface,
        mac: own_mac(osa),
        mtu: options.mtu.unwrap_or(osa.mtu() as u32),
        addresses: options.addresses.clone(),
        gateways: options.gateways.clone(),
        resolvers: Vec::new(),
    }
}

fn own_mac(osa: &Osa) -> Mac {
    osa.own_mac().expect("a device of layer 2 has one")
}

/// The interface, as it was made last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    has_carrier: bool,
    mtu: usize,
}

/// A port at an adapter: a guest that stands for a TAP device.
#[derive(Debug)]
pub struct AdapterAgent {
    osa: Osa,
    tap: Tap,
    interface: Interface,
    /// The list of the groups that the kernel is in.
    list: Option<File>,
    groups: BTreeSet<Mac>,
    /// Bytes of the longest packet, however long those of the port may be.
    mtu_max: usize,
    /// The tag that packets have on the other side of the port.
    vlan: Option<u16>,
    /// What is read from the device.
    room: Vec<u8>,
    backlog: Backlog,
    shape: Shape,
    /// The device is not there: the user was told so.
    is_gone: bool,
    /// The kernel has told the network that it joins or leaves groups.
    has_new_groups: bool,
    /// The user was told that the adapter refuses a group.
    has_told: bool,
    counters: Counters,
    notices: Vec<String>,
}

impl AdapterAgent {
    /// A port of the device for an interface that was made as [`setup`] says. `groups` is the list of the groups that the kernel there is in.
    pub fn new(
        osa: Osa,
        options: &Options,
        tap: Tap,
        interface: Interface,
        groups: Option<File>,
    ) -> AdapterAgent {
        let mut backlog = Backlog::default();
        let room = backlog.room();
        let mtu_max = options.mtu.map_or(usize::MAX, |mtu| mtu as usize);
        let shape = Shape { has_carrier: true, mtu: osa.mtu().min(mtu_max) };
        AdapterAgent {
            osa,
            tap,
            interface,
            list: groups,
            groups: BTreeSet::new(),
            mtu_max,
            vlan: options.vlan,
            room,
            backlog,
            shape,
            is_gone: false,
            has_new_groups: true,
            has_told: false,
            counters: Counters::default(),
            notices: Vec::new(),
        }
    }

    /// From the adapter into the device. Returns true if there was something.
    fn write_batch(&mut self) -> bool {
        let AdapterAgent { osa, tap, vlan, counters, .. } = self;
        for number in 0..BATCH {
            if osa.next_frame().is_none() {
                return number > 0;
            }
            let Some(frame) = osa.found() else { continue };
            match untagged(frame.offload, *vlan) {
                Some(offload) => drop(write(tap, &FrameInPlace { offload, ..frame }, counters)),
                None => counters.dropped_vlan += 1,
            }
        }
        true
    }

    /// From the device to the adapter. Returns true if there may be more.
    fn read_batch(&mut self, now: u64) -> Result<bool, Ended> {
        let mut head = [0; HEAD_BYTES];
        for _ in 0..BATCH {
            let read = self.tap.read(&mut head, &mut self.room).map_err(|_| Ended::Device)?;
            let Some(bytes) = read else { return Ok(false) };
            self.counters.frames_read += 1;
            self.counters.bytes_read += bytes as u64;
            let tagged = checked(&head, &mut self.room[..bytes])
                .map(|(offload, start)| (tagged(offload, self.vlan), start));
            match tagged {
                Some((Some(offload), start)) => self.send(now, offload, (start, bytes)),
                Some((None, _)) => self.counters.dropped_vlan += 1,
                None => self.counters.dropped_bad += 1,
            }
        }
        Ok(true)
    }

    /// Sends the frame from `start` to `end` of the room, or keeps it, or drops it.
    fn send(&mut self, now: u64, offload: Offload, (start, end): (usize, usize)) {
        let AdapterAgent { osa, room, backlog, counters, has_new_groups, .. } = self;
        let frame = &room[start..end];
        *has_new_groups |= is_about_groups(frame);
        if backlog.is_empty() {
            match osa.send(now, None, offload, frame) {
                Err(Unsent::Full) => {}
                sent => return count(sent, counters),
            }
        }
        // There is one target: whoever is behind the port waits behind those that were before.
        if !backlog.keep(own_mac(osa), offload, room, (start, end)) {
            counters.dropped_full += 1;
        }
    }

    /// Tries the frames again that wait for room. Returns true if any went.
    fn retry(&mut self, now: u64) -> bool {
        let AdapterAgent { osa, backlog, counters, .. } = self;
        !backlog.is_empty()
            && backlog.retry(|offload, frame| match osa.send(now, None, offload, frame) {
                Err(Unsent::Full) => Tried::Full,
                sent => {
                    count(sent, counters);
                    Tried::Done
                }
            })
    }

    /// Has the interface be like the port, and tells the user when the device goes and comes.
    fn follow_port(&mut self) {
        let (is_up, mtu) = match self.osa.state() {
            OsaState::Up(port) => (true, usize::from(port.mtu)),
            OsaState::NoCarrier(port) => (false, usize::from(port.mtu)),
            OsaState::Down { why } => return self.lose(&why),
            _ => return,
        };
        let adapter = self.osa.adapter();
        if std::mem::take(&mut self.is_gone) {
            let name = self.osa.guest_name();
            self.notices.push(format!("{name}: the adapter {adapter} is there again"));
            self.has_new_groups = true;
        }
        let shape = Shape { has_carrier: is_up, mtu: mtu.min(self.mtu_max) };
        if shape.mtu != self.shape.mtu
            && let Err(error) = self.interface.set_mtu(shape.mtu)
        {
            self.notices.push(format!(
                "the interface keeps an MTU of {}, and the port of {adapter} has {mtu}: {error}",
                self.shape.mtu
            ));
        }
        self.set_carrier(shape.has_carrier);
        self.shape = shape;
    }

    #[cold]
    fn lose(&mut self, why: &str) {
        if !std::mem::replace(&mut self.is_gone, true) {
            let (name, adapter) = (self.osa.guest_name(), self.osa.adapter());
            self.notices.push(format!(
                "{name}: no device at the adapter {adapter}: {why}; it is asked again"
            ));
        }
        self.set_carrier(false);
    }

    fn set_carrier(&mut self, has_carrier: bool) {
        if self.shape.has_carrier != has_carrier {
            // A kernel that cannot goes on sending, and what it sends is dropped here.
            let _ = self.tap.set_carrier(has_carrier);
            self.shape.has_carrier = has_carrier;
        }
    }

    fn take_refused(&mut self) {
        while let Some((request, why)) = self.osa.take_refused() {
            let what = match request {
                Request::AddAddress(address) => format!("the address {address}"),
                Request::AddGroup(group) if !std::mem::replace(&mut self.has_told, true) => {
                    format!("the group {group}")
                }
                _ => continue,
            };
            let (name, adapter) = (self.osa.guest_name(), self.osa.adapter());
            let notice = format!("{name}: the adapter {adapter} refuses {what}: {why}");
            self.notices.push(notice);
        }
    }

    /// Registers the groups that the kernel is in.
    fn follow_groups(&mut self) {
        let Some(list) = &self.list else { return };
        let Ok(text) = read(list) else { return };
        let groups = groups(&text, self.interface.index());
        for group in groups.difference(&self.groups) {
            self.osa.register(Request::AddGroup(*group));
        }
        for group in self.groups.difference(&groups) {
            self.osa.register(Request::RemoveGroup(*group));
        }
        self.groups = groups;
    }
}

impl Moves for AdapterAgent {
    fn poll(&mut self, ready: Ready) -> Result<bool, Ended> {
        let now = now_ns();
        if ready.network {
            self.osa.drain_doorbells();
        }
        let mut has_worked = self.osa.poll(now).map_err(Ended::Network)?;
        let has_written = self.write_batch();
        // What the adapter says comes between its frames.
        has_worked |= self.osa.poll(now).map_err(Ended::Network)?;
        self.take_refused();
        self.follow_port();
        let has_more = (ready.device || has_written) && self.read_batch(now)?;
        if std::mem::take(&mut self.has_new_groups) {
            self.follow_groups();
        }
        let has_tried = self.retry(now);
        self.osa.flush();
        Ok(has_worked || has_written || has_more || has_tried)
    }

    fn prepare_wait(&mut self) -> bool {
        // There may have been room for a frame that was looked at before: so it is tried once more.
        !self.retry(now_ns()) && self.osa.prepare_wait()
    }

    fn due(&self) -> Option<u64> {
        self.osa.due()
    }

    fn has_to_look(&self) -> bool {
        self.backlog.has_spare()
    }

    fn follow(&mut self) {}

    fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    fn trim(&mut self) {
        self.backlog.trim();
    }

    fn take_notice(&mut self) -> Option<String> {
        (!self.notices.is_empty()).then(|| self.notices.remove(0))
    }

    fn name(&self) -> Name {
        self.osa.guest_name()
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn tap(&self) -> &Tap {
        &self.tap
    }

    fn network(&self) -> BorrowedFd<'_> {
        self.osa.as_fd()
    }
}

/// What goes with a frame, and where the frame begins; none if the head is not true of the frame. An adapter takes nobody's word for that
/// either.
fn checked(head: &[u8; HEAD_BYTES], frame: &mut [u8]) -> Option<(Offload, usize)> {
    let (offload, start) = head::from_kernel(head, frame).ok()?;
    if offload == Offload::NONE {
        return Some((offload, start));
    }
    let offload = Offload::parse(&offload.head(), &frame[start..]).ok()?;
    Some((offload, start))
}

/// A frame from the kernel, as it goes into the VLAN. None if it has a tag already, which would be a second one.
fn tagged(offload: Offload, vlan: Option<u16>) -> Option<Offload> {
    match vlan {
        None => Some(offload),
        Some(_) => offload.vlan.is_none().then_some(Offload { vlan, ..offload }),
    }
}

/// A frame from the adapter, as the kernel gets it. None if it belongs to another VLAN than the device, or to none.
fn untagged(offload: Offload, vlan: Option<u16>) -> Option<Offload> {
    match vlan {
        None => Some(offload),
        // The priority in the tag is the sender's.
        Some(vlan) => (offload.vlan.map(|tag| tag & 0x0fff) == Some(vlan))
            .then_some(Offload { vlan: None, ..offload }),
    }
}

fn count(sent: Result<(), Unsent>, counters: &mut Counters) {
    match sent {
        Ok(()) => {}
        Err(Unsent::Full) => counters.dropped_full += 1,
        Err(Unsent::Unreachable) => counters.dropped_no_member += 1,
        Err(Unsent::Lacking(_)) => counters.dropped_lacking += 1,
    }
}

/// Returns true if a frame tells the network of groups: IGMP, or IPv6 with options for each hop, as MLD has them.
fn is_about_groups(frame: &[u8]) -> bool {
    destination(frame).is_some_and(Mac::is_group)
        && match frame.get(12..14) {
            Some([0x08, 0x00]) => frame.get(23) == Some(&2),
            Some([0x86, 0xdd]) => frame.get(20) == Some(&0),
            _ => false,
        }
}

/// Bytes of the list of groups that are read: those at its end are not looked for.
const LIST_BYTES_MAX: usize = 1 << 16;

fn read(list: &File) -> io::Result<String> {
    let mut text = vec![0; LIST_BYTES_MAX];
    let mut bytes = 0;
    while bytes < text.len() {
        match list.read_at(&mut text[bytes..], bytes as u64)? {
            0 => break,
            more => bytes += more,
        }
    }
    Ok(String::from_utf8_lossy(&text[..bytes]).into_owned())
}

/// The groups of the interface with this index: its lines are index, name, two counts, and the address in hexadecimal digits.
fn groups(text: &str, index: u32) -> BTreeSet<Mac> {
    let group = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let is_ours = words.next()?.parse() == Ok(index);
        let number = u64::from_str_radix(words.nth(3)?, 16).ok()?;
        let [_, _, mac @ ..] = number.to_be_bytes();
        (is_ours && Mac(mac).is_group()).then_some(Mac(mac))
    };
    text.lines().filter_map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_those_of_the_interface() {
        let text = "2    osa1            1     0     333300000001\n\
                    2    osa1            1     0     01005e000001\n\
                    21   eth0            1     0     3333ff000001\n\
                    2    osa1            x\n\n2 osa1 1 0 020000000001\n2 osa1 1 0 infiniband";
        let found: Vec<Mac> = groups(text, 2).into_iter().collect();
        assert_eq!(found, [Mac([1, 0, 0x5e, 0, 0, 1]), Mac([0x33, 0x33, 0, 0, 0, 1])]);
    }

    #[test]
    fn frames_about_groups_are_told_from_others() {
        let mut report = [&[1, 0, 0x5e, 0, 0, 22][..], &[2, 0, 0, 0, 0, 1], &[8, 0]].concat();
        report.resize(60, 0);
        assert!(!is_about_groups(&report));
        report[23] = 2;
        assert!(is_about_groups(&report) && !is_about_groups(&report[..20]));
        report[0] = 2;
        assert!(!is_about_groups(&report), "to one station");
        let mut report =
            [&[0x33, 0x33, 0, 0, 0, 22][..], &[2, 0, 0, 0, 0, 1], &[0x86, 0xdd]].concat();
        report.resize(90, 0);
        assert!(is_about_groups(&report));
        report[20] = 58;
        assert!(!is_about_groups(&report));
    }

    #[test]
    fn frames_of_a_device_in_a_vlan_have_its_tag_behind_the_port_alone() {
        let of = |vlan| Offload { vlan, ..Offload::NONE };
        assert_eq!(tagged(of(None), Some(7)), Some(of(Some(7))));
        assert_eq!(tagged(of(Some(8)), Some(7)), None);
        assert_eq!(tagged(of(Some(8)), None), Some(of(Some(8))));
        // With a priority.
        assert_eq!(untagged(of(Some(0x6007)), Some(7)), Some(of(None)));
        assert_eq!((untagged(of(None), Some(7)), untagged(of(Some(8)), Some(7))), (None, None));
        assert_eq!(untagged(of(None), None), Some(of(None)));
    }

    #[test]
    fn head_that_is_not_true_of_its_frame_is_refused() {
        let mut frame = vec![2; 60];
        assert_eq!(checked(&[0; HEAD_BYTES], &mut frame), Some((Offload::NONE, 0)));
        // A checksum behind the frame.
        assert_eq!(checked(&[1, 0, 0, 0, 0, 0, 58, 0, 16, 0], &mut frame), None);
    }
}
