//! TCPIP machines in the system file: stacks that serve the sockets of other guests.
//!
//! ```toml
//! [[tcpip]]
//! name = "TCPIP"                # the guest that serves; no [[guest]] describes it
//! clients = ["WEB*"]            # guests that it serves; left out: all
//! sockets_max = 1024            # that each client may have
//! buffers_max = "64 MiB"        # that the sockets of each client may keep at the machine
//! connection_buffers = "6 MiB"      # that a connection keeps, each way
//! wait = "adaptive"             # or "block", or "spin"
//! cpu = 1                       # the processor of the machine; left out: any
//! introduce = true              # clients that talk with each other get a path of their own
//! osa = [ .. ]                  # OSA adapters that it is at: see [`super::interface`]
//! dvipa = [ .. ]                # addresses whose connections it spreads over other machines: see [`super::distributed`]
//!
//! [[tcpip.interface]]           # where it is: one LAN, line or adapter at least
//! lan = "hs0"
//! addresses = ["10.1.0.5"]      # left out: any that are free
//! mtu = 8192                    # left out: what the LAN takes
//! cpu = 1                       # the processor of the driver there; left out: inline, on that of the machine
//!
//! [[tcpip.interface]]
//! line = "line0"                # of which TCPIP is an end
//!
//! [[tcpip.route]]               # networks behind other members
//! to = "0.0.0.0/0"
//! via = "10.1.0.1"
//!
//! [[tcpip.client]]              # what one client, or some, may have in place of the above
//! guest = "WEB1"
//! share = 4                     # of the machine's time, beside 1 of others
//! ```
//!
//! On LANs, lines and adapters the machine is another guest each: its name with the number of the interface behind it, TCPIP1 and TCPIP2 here; those
//! at adapters come last. The host's reports have these names.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use fabric::name::{LanName, Name};
use ipnet::IpNet;
use serde::Deserialize;
use toml::Spanned;

use super::adapter::AdapterRule;
use super::distributed::{self, DistributedRule, WrittenDistributed};
use super::interface::{InterfaceRule, WrittenDevice};
use super::lan::{FixedMember, LanRule, parsed};
use super::line::LineRule;
use super::warnings::Guests;
use super::{Pattern, Rule, within, within_bytes};
use crate::config::{Bytes, FileError, Place, Source};

/// Machines of a system, at most.
pub const MACHINES_MAX: usize = 64;

/// LANs, lines and adapters that a machine may be at: the names of its guests there have one digit.
pub const INTERFACES_MAX: usize = 9;

/// Routes of a machine.
pub const ROUTES_MAX: usize = 64;

/// The greatest number of a processor.
const PROCESSOR_MAX: u64 = 4095;

/// What a client may have unless the file says otherwise.
const SOCKETS_MAX: u64 = 1024;
const BUFFERS_BYTES_MAX: u64 = 64 << 20;

/// Bytes that a connection keeps each way unless the file says otherwise.
const CONNECTION_BYTES: u64 = 6 << 20;

/// Bytes that a connection may keep each way.
pub const CONNECTION_BYTES_RANGE: RangeInclusive<u64> = 4 << 10..=16 << 20;

/// Bytes that a client may have for the buffers of its sockets.
pub const BUFFERS_BYTES_RANGE: RangeInclusive<u64> = 16 << 10..=1 << 40;

/// How a machine waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MachineWait {
    /// It polls for a while, and then sleeps.
    #[default]
    Adaptive,
    /// It sleeps at once.
    Block,
    /// It polls for ever.
    Spin,
}

/// A TCPIP machine.
#[derive(Clone, Debug)]
pub struct MachineRule {
    /// The guest that serves.
    pub name: Name,
    pub(super) clients: Vec<Pattern>,
    /// What each client may have that has no table of its own.
    pub limits: ClientLimits,
    /// What some may have: the first that is for a guest counts.
    pub(super) of_clients: Vec<(Pattern, ClientLimits)>,
    /// Bytes that a connection keeps each way.
    pub connection_bytes: u64,
    /// How it waits.
    pub wait: MachineWait,
    /// Its processor.
    pub processor: Option<usize>,
    /// Whether clients that talk with each other get a path of their own.
    pub introduce: bool,
    /// LANs that it is at.
    pub interfaces: Vec<MachineInterface>,
    /// Lines that it is at: the guest that is its end, and the line.
    pub lines: Vec<(Name, LanName)>,
    /// OSA adapters that it is at.
    pub osa: Vec<InterfaceRule>,
    /// Networks that are reached over others, and the addresses of those.
    pub routes: Vec<(IpNet, IpAddr)>,
    /// Distributed addresses in which it has a part.
    pub distributed: Vec<DistributedRule>,
    /// The numbers of processors that the file names, its own and those of its drivers, and where.
    pub processors_named: Vec<(u64, Place)>,
}

/// A LAN that a machine is at.
#[derive(Clone, Debug)]
pub struct MachineInterface {
    /// The guest that is the member.
    pub member: Name,
    /// The LAN.
    pub lan: LanName,
    /// Its addresses there; any that are free if there are none.
    pub addresses: Vec<IpAddr>,
    /// Bytes of the longest packet; what the LAN takes if there is none.
    pub mtu: Option<u32>,
    /// The processor of the driver; inline if there is none.
    pub processor: Option<usize>,
}

/// What a client of a machine may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Sockets at once.
    pub sockets_max: u64,
    /// Bytes that its sockets may keep at the machine.
    pub buffers_bytes_max: u64,
    /// Its share of the machine's time.
    pub share: u32,
}

impl MachineRule {
    /// Returns true if the file lets a guest be a client.
    pub fn serves(&self, guest: Name) -> bool {
        guest != self.name && self.clients.iter().any(|pattern| pattern.matches(guest))
    }

    /// What a guest may have as a client.
    pub fn limits_of(&self, guest: Name) -> ClientLimits {
        let own = self.of_clients.iter().find(|(pattern, _)| pattern.matches(guest));
        own.map_or(self.limits, |(_, limits)| *limits)
    }

    /// Its guests: itself, and those that it is on LANs, lines and adapters.
    pub fn guests(&self) -> impl Iterator<Item = Name> {
        let members = self.interfaces.iter().map(|interface| interface.member);
        let ends = self.lines.iter().map(|(guest, _)| *guest);
        let devices = self.osa.iter().map(|device| device.member);
        members.chain(ends).chain(devices).chain([self.name])
    }

    /// The end of a line that has the name of one of its guests, but is not the end that this guest is: the file means somebody else there.
    fn end_of_another(&self, lines: &[LineRule]) -> Option<(Name, LanName)> {
        let members: Vec<Name> = self.guests().filter(|guest| *guest != self.name).collect();
        lines.iter().find_map(|line| {
            let [one, other] = line.ends.map(|end| end.guest);
            let is_others = |guest: &Name| {
                members.contains(guest)
                    && (one == other || !self.lines.contains(&(*guest, line.name)))
            };
            let found = [one, other].into_iter().find(is_others)?;
            Some((found, line.name))
        })
    }

    /// The guests that it serves, as the file writes them.
    pub fn clients(&self) -> Vec<String> {
        self.clients.iter().map(ToString::to_string).collect()
    }
}

/// The table `[[tcpip]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenMachine {
    name: Spanned<String>,
    clients: Option<Vec<Spanned<String>>>,
    sockets_max: Option<Spanned<u64>>,
    buffers_max: Option<Spanned<Bytes>>,
    connection_buffers: Option<Spanned<Bytes>>,
    #[serde(default)]
    wait: MachineWait,
    cpu: Option<Spanned<u64>>,
    introduce: Option<bool>,
    #[serde(default)]
    osa: Vec<WrittenDevice>,
    #[serde(default)]
    dvipa: Vec<WrittenDistributed>,
    #[serde(default)]
    interface: Vec<WrittenInterface>,
    #[serde(default)]
    route: Vec<WrittenRoute>,
    #[serde(default)]
    client: Vec<WrittenClient>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenInterface {
    lan: Option<Spanned<String>>,
    line: Option<Spanned<String>>,
    #[serde(default)]
    addresses: Vec<Spanned<String>>,
    mtu: Option<Spanned<u64>>,
    cpu: Option<Spanned<u64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRoute {
    to: Spanned<String>,
    via: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table [[tcpip.client]]; the guests that it serves are in clients"
)]
struct WrittenClient {
    guest: Spanned<String>,
    sockets_max: Option<Spanned<u64>>,
    buffers_max: Option<Spanned<Bytes>>,
    share: Option<Spanned<u64>>,
}

/// Where machines can be.
pub(super) struct Places<'a> {
    pub(super) lans: &'a mut [LanRule],
    pub(super) lines: &'a mut [LineRule],
    pub(super) adapters: &'a mut [AdapterRule],
}

/// The machines of a file's tables, whose members the LANs and adapters let in.
pub(super) fn rules(
    source: &Source,
    written: Vec<WrittenMachine>,
    guests: &[Rule],
    places: &mut Places<'_>,
    warnings: &mut Vec<FileError>,
) -> Result<Vec<MachineRule>, FileError> {
    let mut rules: Vec<MachineRule> = Vec::new();
    let mut distributed = Vec::new();
    for mut machine in written {
        let span = machine.name.span();
        let its = std::mem::take(&mut machine.dvipa);
        if rules.len() == MACHINES_MAX {
            let what = format!("there are more than {MACHINES_MAX} TCPIP machines");
            return Err(source.error(span, what, format!("must be at most {MACHINES_MAX}")));
        }
        let rule = machine.rule(source, places, warnings)?;
        let own: Vec<Name> = rule.guests().collect();
        if let Some(twice) = own.iter().enumerate().find(|(at, name)| own[..*at].contains(name)) {
            let what = format!(
                "{} would be a guest of its own: {} shortened, with a digit",
                twice.1, rule.name
            );
            return Err(source.error(span, what, "must be shorter, or end with another character"));
        }
        for name in own {
            if guests.iter().any(|guest| guest.is_named(name)) {
                let what = match name == rule.name {
                    true => format!("{name} is described as a [[guest]]"),
                    false => format!("{name}, a guest of {}, is a [[guest]]", rule.name),
                };
                let right = "must be no [[guest]]: the machine is described here";
                return Err(source.error(span, what, right));
            }
            if rules.iter().any(|other| other.guests().any(|other| other == name)) {
                let what = format!("{name} is a guest of the machine that is described above");
                return Err(source.error(span, what, "must have another name"));
            }
        }
        if let Some((guest, line)) = rule.end_of_another(places.lines) {
            let what = format!("{guest}, a guest of {}, is an end of the line {line}", rule.name);
            let right =
                format!("must be another guest, or {} with a [[tcpip.interface]]", rule.name);
            return Err(source.error(span, what, right));
        }
        distributed.extend(its.into_iter().map(|written| (rule.name, written)));
        rules.push(rule);
    }
    distributed::add(source, distributed, &mut rules, places.lans)?;
    Ok(rules)
}

impl WrittenMachine {
    /// Returns warnings about settings that are probably mistakes.
    pub(super) fn warnings(&self, guests: &Guests<'_>) -> Vec<FileError> {
        let clients = self.clients.iter().flatten();
        let of_clients = self.client.iter().map(|client| &client.guest);
        clients
            .filter_map(|text| guests.warn("clients", text))
            .chain(of_clients.filter_map(|text| guests.warn("guest", text)))
            .collect()
    }

    /// Returns true if one of its interfaces is at this line.
    pub(super) fn is_at_line(&self, line: &str) -> bool {
        let mut lines = self.interface.iter().filter_map(|interface| interface.line.as_ref());
        lines.any(|name| name.get_ref() == line)
    }

    /// Its name, if it is one.
    pub(super) fn name(&self) -> &str {
        self.name.get_ref()
    }

    fn rule(
        self,
        source: &Source,
        places: &mut Places<'_>,
        warnings: &mut Vec<FileError>,
    ) -> Result<MachineRule, FileError> {
        let Places { lans, lines, adapters } = places;
        let span = self.name.span();
        let right = "must be 1 to 8 of A-Z 0-9 $ # @ _ -";
        let name: Name = parsed(source, &self.name, "name", right)?;
        let clients = match &self.clients {
            None => vec![Pattern::Beginning(String::new())],
            Some(texts) => {
                texts.iter().map(|text| Pattern::read(text, source)).collect::<Result<_, _>>()?
            }
        };
        let most = ClientLimits {
            sockets_max: SOCKETS_MAX,
            buffers_bytes_max: BUFFERS_BYTES_MAX,
            share: 1,
        };
        let limits = limits(source, most, self.sockets_max, self.buffers_max, None)?;
        let mut of_clients = Vec::new();
        for client in self.client {
            let pattern = Pattern::read(&client.guest, source)?;
            if of_clients.iter().any(|(other, _)| *other == pattern) {
                let what = "this client is described above";
                return Err(source.error(client.guest.span(), what, "must be described once"));
            }
            let WrittenClient { sockets_max, buffers_max, share, .. } = client;
            let own = self::limits(source, limits, sockets_max, buffers_max, share)?;
            of_clients.push((pattern, own));
        }
        let connection_bytes = match self.connection_buffers {
            None => CONNECTION_BYTES,
            Some(bytes) => {
                let (least, most) = CONNECTION_BYTES_RANGE.into_inner();
                within_bytes(source, "connection_buffers", bytes, least, most)?
            }
        };
        let of_interfaces = self.interface.iter().map(|interface| &interface.cpu);
        let of_devices = self.osa.iter().map(|device| &device.cpu);
        let processors = [&self.cpu].into_iter().chain(of_interfaces).chain(of_devices);
        let processors_named = processors.filter_map(|cpu| named(source, cpu)).collect();
        let processor = processor(source, self.cpu)?;
        if self.interface.is_empty() && self.osa.is_empty() {
            let what = format!("{name} is nowhere");
            return Err(source.error(
                span,
                what,
                "must have a [[tcpip.interface]] with a LAN or a line, or an adapter in osa = [..]",
            ));
        }
        let count = self.interface.len() + self.osa.len();
        if count > INTERFACES_MAX {
            let what = format!("{count} interfaces");
            return Err(source.error(span, what, format!("must be at most {INTERFACES_MAX}")));
        }
        let mut interfaces: Vec<MachineInterface> = Vec::new();
        let mut at_lines: Vec<(Name, LanName)> = Vec::new();
        let first_device = self.interface.len();
        for (at, written) in self.interface.into_iter().enumerate() {
            let guest = member_name(name, at);
            match (&written.lan, &written.line) {
                (Some(lan), None) => {
                    let span = lan.span();
                    let others = lines.iter().map(|line| &line.name);
                    is_not_among(source, ("lan", lan), ("line", "a line"), others)?;
                    let interface = written.interface(source, guest, lans)?;
                    if interfaces.iter().any(|other| other.lan == interface.lan) {
                        let what = format!("{name} is at {} twice", interface.lan);
                        return Err(source.error(span, what, "must be there once"));
                    }
                    interfaces.push(interface);
                }
                (None, Some(line)) => {
                    if let Some(other) = written.addresses.first() {
                        let right = "must be left out: the line has the addresses of its ends";
                        return Err(source.error(other.span(), "addresses of a line", right));
                    }
                    if let Some(mtu) = &written.mtu {
                        let right = "must be left out: the line has one";
                        return Err(source.error(mtu.span(), "mtu of a line", right));
                    }
                    if let Some(number) = &written.cpu {
                        let right = "must be left out: the driver of a line runs inline";
                        return Err(source.error(number.span(), "cpu of a line", right));
                    }
                    let others = lans.iter().map(|lan| &lan.name);
                    is_not_among(source, ("line", line), ("lan", "a LAN"), others)?;
                    at_lines.push((guest, end_of(source, line, (name, guest), lines)?));
                }
                (Some(both), Some(_)) => {
                    let right = "must be a LAN or a line: two tables";
                    return Err(source.error(both.span(), "a LAN and a line", right));
                }
                (None, None) => {
                    let what = "an interface without a LAN or a line";
                    return Err(source.error(span, what, "must have lan = or line ="));
                }
            }
        }
        let devices = self.osa.into_iter().enumerate();
        let devices = devices.map(|(at, written)| (written, member_name(name, first_device + at)));
        let ranges: Vec<_> = lans_of(&interfaces, lans)
            .into_iter()
            .flat_map(|lan| lan.ranges.iter().map(|range| (*range, lan.name)))
            .collect();
        let devices = devices.collect();
        let osa = super::interface::rules(source, name, devices, &ranges, adapters, warnings)?;
        if self.route.len() > ROUTES_MAX {
            let what = format!("{} routes", self.route.len());
            return Err(source.error(span, what, format!("must be at most {ROUTES_MAX}")));
        }
        let mut routes = Vec::new();
        for WrittenRoute { to, via } in &self.route {
            let network = super::outside::network(source, to)?;
            let right = "must be an IP address, like 10.1.0.1";
            let gateway: IpAddr = parsed(source, via, "IP address", right)?;
            if gateway.is_ipv4() != network.addr().is_ipv4() {
                let what = format!("{gateway} is of another family than {network}");
                return Err(source.error(
                    via.span(),
                    what,
                    "must be an address of the same family",
                ));
            }
            routes.push((network, gateway));
            let (lans, lines) = (lans_of(&interfaces, lans), partners(&at_lines, lines));
            let is_at_lan = lans.iter().any(|lan| may_be_at(lan, gateway, name));
            let is_at_adapter = osa.iter().any(|device| device.address.contains(&gateway));
            if !is_at_lan && !is_at_adapter && !lines.contains(&gateway) {
                let what = format!(
                    "via = \"{gateway}\": {name} is at no LAN, line or adapter that has it"
                );
                let ranges =
                    lans.iter().map(|lan| format!("a member's address in {}", lan.ranges_text()));
                let ends = lines.iter().map(IpAddr::to_string);
                let networks =
                    osa.iter().map(|device| format!("an address in {}", device.address.trunc()));
                let near: Vec<String> = ranges.chain(ends).chain(networks).collect();
                let right = format!("must be {}", near.join(" or "));
                warnings.push(source.error(via.span(), what, right));
            }
        }
        let wait = self.wait;
        Ok(MachineRule {
            name,
            clients,
            limits,
            of_clients,
            connection_bytes,
            wait,
            processor,
            introduce: self.introduce.unwrap_or(true),
            interfaces,
            lines: at_lines,
            osa,
            routes,
            distributed: Vec::new(),
            processors_named,
        })
    }
}

/// The largest share of a client, as machines have it (`service::SHARE_MAX` in the crate `net`).
const SHARE_MAX: u64 = 20;

/// The number of the processor that is written, and where.
pub(super) fn named(source: &Source, written: &Option<Spanned<u64>>) -> Option<(u64, Place)> {
    let written = written.as_ref()?;
    Some((*written.get_ref(), Place::new(source, written.span())))
}

/// The number of a processor. Whether there is such a processor is known where the machine runs.
pub(super) fn processor(
    source: &Source,
    written: Option<Spanned<u64>>,
) -> Result<Option<usize>, FileError> {
    let number = written.map(|number| within(source, "cpu", number, 0, PROCESSOR_MAX));
    Ok(number.transpose()?.map(|number| number as usize))
}

fn limits(
    source: &Source,
    base: ClientLimits,
    sockets_max: Option<Spanned<u64>>,
    buffers_max: Option<Spanned<Bytes>>,
    share: Option<Spanned<u64>>,
) -> Result<ClientLimits, FileError> {
    let sockets_max = sockets_max.map(|of| within(source, "sockets_max", of, 1, 1 << 20));
    let (least, most) = BUFFERS_BYTES_RANGE.into_inner();
    let buffers_max = buffers_max.map(|of| within_bytes(source, "buffers_max", of, least, most));
    let share = share.map(|share| within(source, "share", share, 1, SHARE_MAX));
    Ok(ClientLimits {
        sockets_max: sockets_max.transpose()?.unwrap_or(base.sockets_max),
        buffers_bytes_max: buffers_max.transpose()?.unwrap_or(base.buffers_bytes_max),
        share: share.transpose()?.map_or(base.share, |share| share as u32),
    })
}

impl WrittenInterface {
    /// The interface, whose member the LAN lets in with its addresses.
    fn interface(
        self,
        source: &Source,
        member: Name,
        lans: &mut [LanRule],
    ) -> Result<MachineInterface, FileError> {
        let written = self.lan.as_ref().expect("it is at a LAN");
        let right = "must be 1 to 8 of a-z 0-9 _ -";
        let name: LanName = parsed(source, written, "name of a LAN", right)?;
        let Some(lan) = lans.iter_mut().find(|lan| lan.name == name) else {
            let what = format!("there is no LAN {name}");
            return Err(source.error(written.span(), what, "must be described as a [[lan]]"));
        };
        let mut addresses = Vec::new();
        for text in &self.addresses {
            let right = "must be one, like 10.1.0.5";
            let address: IpAddr = parsed(source, text, "IP address", right)?;
            if !lan.may_have(member, address) {
                let what = match lan.kept_for(address) {
                    Some(other) => format!("{address} is {other}'s"),
                    None => format!("{address} is no member's address in {}", lan.ranges_text()),
                };
                let right = "must be in the LAN's range, and nobody else's";
                return Err(source.error(text.span(), what, right));
            }
            if addresses.contains(&address) {
                let what = format!("{address} stands here twice");
                return Err(source.error(text.span(), what, "must be there once"));
            }
            addresses.push(address);
        }
        let mtu = match self.mtu {
            None => None,
            Some(mtu) => {
                let most = u64::from(lan.frame_bytes - super::lan::HEADROOM_BYTES);
                Some(within(source, "mtu", mtu, 576, most)? as u32)
            }
        };
        if !lan.may_join(member) {
            lan.members.push(Pattern::Name(member));
        }
        lan.fixed.push(FixedMember {
            guest: member,
            mac: None,
            addresses: addresses.clone(),
            vlans: Vec::new(),
            routes_from: Vec::new(),
        });
        let processor = processor(source, self.cpu)?;
        Ok(MachineInterface { member, lan: name, addresses, mtu, processor })
    }
}

/// The LANs that a machine is at.
fn lans_of<'a>(interfaces: &[MachineInterface], lans: &'a [LanRule]) -> Vec<&'a LanRule> {
    let is_at = |lan: &&LanRule| interfaces.iter().any(|interface| interface.lan == lan.name);
    lans.iter().filter(is_at).collect()
}

/// The addresses at the other ends of a machine's lines.
fn partners(at_lines: &[(Name, LanName)], lines: &[LineRule]) -> Vec<IpAddr> {
    let partner = |(guest, name): &(Name, LanName)| {
        let line = lines.iter().find(|line| line.name == *name)?;
        line.end_of(*guest).map(|[_, partner]| partner.address)
    };
    at_lines.iter().filter_map(partner).collect()
}

/// Returns true if a member of a LAN may have a gateway's address: the guest that the address is kept for, or any other.
fn may_be_at(lan: &LanRule, gateway: IpAddr, machine: Name) -> bool {
    lan.may_have(lan.kept_for(gateway).unwrap_or(machine), gateway)
}

/// Refuses a LAN under `line`, or a line under `lan`: the name is one of the others.
fn is_not_among<'a>(
    source: &Source,
    (field, written): (&str, &Spanned<String>),
    (right, what): (&str, &str),
    mut others: impl Iterator<Item = &'a LanName>,
) -> Result<(), FileError> {
    let name = written.get_ref();
    match others.any(|other| other.as_str() == name) {
        true => {
            let right = format!("must be {right} = {name:?}");
            let what = format!("{field} = {name:?}: {name} is {what}");
            Err(source.error(written.span(), what, right))
        }
        false => Ok(()),
    }
}

/// Makes a guest of the machine the end of a line that the file says is the machine's, and returns the line's name.
fn end_of(
    source: &Source,
    written: &Spanned<String>,
    (machine, guest): (Name, Name),
    lines: &mut [LineRule],
) -> Result<LanName, FileError> {
    let right = "must be 1 to 8 of a-z 0-9 _ -";
    let name: LanName = parsed(source, written, "name of a line", right)?;
    let Some(line) = lines.iter_mut().find(|line| line.name == name) else {
        let what = format!("there is no line {name}");
        return Err(source.error(written.span(), what, "must be described as a [[line]]"));
    };
    let Some(end) = line.ends.iter_mut().find(|end| end.guest == machine) else {
        let what = format!("{machine} is no end of the line {name}");
        let right = "must be the guest of one of its [[line.end]], and of one interface";
        return Err(source.error(written.span(), what, right));
    };
    end.guest = guest;
    Ok(name)
}

/// Returns true if a machine has this name itself, or may have it on a LAN, line or adapter.
pub(crate) fn is_name_of(machine: Name, name: Name) -> bool {
    name == machine || (0..INTERFACES_MAX).any(|at| name == member_name(machine, at))
}

/// The name of a machine on the LAN, line or adapter of this number: its own, with a digit behind it.
pub fn member_name(machine: Name, at: usize) -> Name {
    let beginning: String = machine.as_str().chars().take(7).collect();
    format!("{beginning}{}", at + 1).parse().expect("eight characters at most")
}

#[cfg(test)]
mod tests {
    use super::super::System;
    use super::*;

    fn parse(text: &str) -> Result<System, String> {
        System::parse(&Source::of("s.toml", text)).map_err(|error| error.to_string())
    }

    const BASE: &str = "[[guest]]\nname = \"WEB*\"\n[[lan]]\nname = \"hs0\"\nrange = \"10.1.0.0/24\"\nmembers = [\"WEB9\"]\n";

    #[test]
    fn gateway_out_of_reach_is_warned_of_and_a_line_is_no_lan() {
        let with = |interface: &str, via: &str| {
            let line = "[[line]]\nname = \"line0\"\n[[line.end]]\nguest = \"TCPIP\"\naddress = \"10.9.0.1\"\n[[line.end]]\nguest = \"WEB1\"\naddress = \"10.9.0.2\"\n";
            format!(
                "{BASE}{line}[[tcpip]]\nname = \"TCPIP\"\nclients = [\"WEB1\"]\n[[tcpip.interface]]\nlan = \"hs0\"\n[[tcpip.interface]]\n{interface}\n[[tcpip.route]]\nto = \"10.7.0.0/16\"\nvia = \"{via}\"\n"
            )
        };
        let warnings = |via: &str| -> Vec<String> {
            let system = parse(&with("line = \"line0\"", via)).unwrap();
            system.warnings.iter().map(ToString::to_string).collect()
        };
        assert_eq!(warnings("10.1.0.9"), [""; 0]);
        assert_eq!(warnings("10.9.0.2"), [""; 0]);
        // No member has the address of a network.
        for via in ["10.8.0.1", "10.1.0.0", "10.1.0.255"] {
            let [warning] = &warnings(via)[..] else { panic!("one") };
            let why = format!(
                "via = \"{via}\": TCPIP is at no LAN, line or adapter that has it: must be a member's address in 10.1.0.0/24 or 10.9.0.2"
            );
            assert!(warning.ends_with(&why), "{warning}");
        }
        for (interface, why) in [
            ("lan = \"line0\"", "lan = \"line0\": line0 is a line: must be line = \"line0\""),
            ("line = \"hs0\"", "line = \"hs0\": hs0 is a LAN: must be lan = \"hs0\""),
        ] {
            let error = parse(&with(interface, "10.1.0.9")).unwrap_err();
            assert!(error.ends_with(why), "{error}");
        }
    }

    #[test]
    fn machine_has_its_clients_and_is_a_member_of_its_lans() {
        let text = format!(
            "{BASE}{}",
            r#"
            [[tcpip]]
            name = "TCPIP"
            clients = ["WEB*"]
            sockets_max = 10
            buffers_max = "1 MiB"
            wait = "spin"
            cpu = 1
            [[tcpip.interface]]
            lan = "hs0"
            addresses = ["10.1.0.5"]
            mtu = 1500
            cpu = 2
            [[tcpip.route]]
            to = "0.0.0.0/0"
            via = "10.1.0.1"
            [[tcpip.client]]
            guest = "WEB1"
            share = 4"#
        );
        let system = parse(&text).unwrap();
        let [machine] = &system.machines[..] else { panic!("one machine") };
        let name = |text: &str| text.parse::<Name>().unwrap();
        assert!(machine.serves(name("WEB2")) && !machine.serves(name("OTHER")));
        assert!(system.may_connect(name("WEB2"), name("TCPIP")));
        assert!(!system.may_connect(name("TCPIP"), name("TCPIP")));
        let limits = ClientLimits { sockets_max: 10, buffers_bytes_max: 1 << 20, share: 1 };
        assert_eq!(machine.limits_of(name("WEB2")), limits);
        assert_eq!(machine.limits_of(name("WEB1")), ClientLimits { share: 4, ..limits });
        assert_eq!((machine.wait, machine.processor), (MachineWait::Spin, Some(1)));
        let [interface] = &machine.interfaces[..] else { panic!("one LAN") };
        assert_eq!(interface.member, name("TCPIP1"));
        assert_eq!((interface.mtu, interface.processor), (Some(1500), Some(2)));
        let lan = &system.lans[0];
        assert!(lan.may_join(interface.member));
        assert!(lan.may_have(interface.member, "10.1.0.5".parse().unwrap()));
        assert!(!lan.may_have(name("WEB9"), "10.1.0.5".parse().unwrap()));
        assert!(system.rule(name("TCPIP")).is_some() && system.rule(name("TCPIP1")).is_some());
        assert!(system.warnings.is_empty(), "{:?}", system.warnings);
    }

    #[test]
    fn machine_is_the_end_of_a_line() {
        let text = format!(
            "{BASE}{}",
            r#"
            [[line]]
            name = "line0"
            [[line.end]]
            guest = "TCPIP"
            address = "10.9.0.1"
            [[line.end]]
            guest = "WEB1"
            address = "10.9.0.2"
            [[tcpip]]
            name = "TCPIP"
            [[tcpip.interface]]
            line = "line0""#
        );
        let system = parse(&text).unwrap();
        let [machine] = &system.machines[..] else { panic!("one machine") };
        let [guest, web] = ["TCPIP1", "WEB1"].map(|text| text.parse::<Name>().unwrap());
        assert_eq!(machine.lines, [(guest, "line0".parse().unwrap())]);
        assert_eq!(machine.guests().collect::<Vec<_>>(), [guest, machine.name]);
        assert!(system.may_connect(guest, web) && system.may_connect(web, guest));
        let error = parse(&text.replace("guest = \"TCPIP\"", "guest = \"WEB2\"")).unwrap_err();
        assert_eq!(
            error,
            "s.toml:19: TCPIP is no end of the line line0: must be the guest of one of its [[line.end]], and of one interface"
        );
    }

    /// A line between two guests, and the machine TCPIP at these interfaces.
    fn at_a_line(ends: [&str; 2], interfaces: &str) -> Result<System, String> {
        let line = format!(
            "[[line]]\nname = \"line0\"\n[[line.end]]\nguest = \"{}\"\naddress = \"10.9.0.1\"\n[[line.end]]\nguest = \"{}\"\naddress = \"10.9.0.2\"\n",
            ends[0], ends[1]
        );
        parse(&format!(
            "{}{line}[[tcpip]]\nname = \"TCPIP\"\n{interfaces}",
            BASE.replace("WEB*", "*")
        ))
    }

    const AT_LAN: &str = "[[tcpip.interface]]\nlan = \"hs0\"\n";
    const AT_LINE: &str = "[[tcpip.interface]]\nline = \"line0\"\n";

    #[test]
    fn other_end_of_a_line_is_no_guest_of_the_machine() {
        let error = "s.toml:16: TCPIP1, a guest of TCPIP, is an end of the line line0: must be another guest, or TCPIP with a [[tcpip.interface]]";
        for (ends, interfaces) in [
            // The machine's own end gets the name that the other end has, whichever is first.
            (["TCPIP", "TCPIP1"], AT_LINE.to_owned()),
            (["TCPIP1", "TCPIP"], AT_LINE.to_owned()),
            // The name is that of the machine's member of the LAN.
            (["TCPIP", "TCPIP1"], format!("{AT_LAN}{AT_LINE}")),
            (["WEB1", "TCPIP1"], AT_LAN.to_owned()),
        ] {
            assert_eq!(at_a_line(ends, &interfaces).unwrap_err(), error, "{ends:?} {interfaces}");
        }
        at_a_line(["TCPIP", "TCPIP2"], AT_LINE).unwrap();
        at_a_line(["TCPIP2", "TCPIP"], AT_LINE).unwrap();
    }

    #[test]
    fn end_of_a_line_that_is_no_interface_of_the_machine_is_warned_of() {
        let system = at_a_line(["WEB1", "TCPIP"], AT_LAN).unwrap();
        let warnings: Vec<String> = system.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(
            warnings,
            [
                "s.toml:13: TCPIP is an end of the line line0, and no interface of it is there: must have a [[tcpip.interface]] with line = \"line0\""
            ]
        );
        assert!(at_a_line(["WEB1", "TCPIP"], AT_LINE).unwrap().warnings.is_empty());
    }

    #[test]
    fn clients_of_one_machine_may_be_introduced_unless_the_file_keeps_them_apart() {
        let machine =
            "[[tcpip]]\nname = \"TCPIP\"\nclients = [\"WEB*\"]\n[[tcpip.interface]]\nlan = \"hs0\"";
        let [one, two, other] = ["WEB1", "WEB2", "OTHER"].map(|text| text.parse().unwrap());
        for (introduce, may) in
            [("", true), ("introduce = true\n", true), ("introduce = false\n", false)]
        {
            let system = parse(&format!(
                "{BASE}{}",
                machine.replace("[[tcpip.i", &format!("{introduce}[[tcpip.i"))
            ))
            .unwrap();
            assert_eq!(system.may_be_introduced(one, two), may);
            assert!(!system.may_be_introduced(one, other) && !system.may_be_introduced(one, one));
            // For these connections, and nothing else.
            assert!(!system.may_connect(one, two));
        }
    }

    #[test]
    fn faults_are_named_with_their_line_and_the_cure() {
        let at = "[[tcpip.interface]]\nlan = \"hs0\"\n";
        for (text, error) in [
            (
                "[[tcpip]]\nname = \"TCPIP\"".to_owned(),
                "s.toml:8: TCPIP is nowhere: must have a [[tcpip.interface]] with a LAN or a line, or an adapter in osa = [..]",
            ),
            (
                format!("[[tcpip]]\nname = \"TCPIP\"\n{}", at.replace("hs0", "hs1")),
                "s.toml:10: there is no LAN hs1: must be described as a [[lan]]",
            ),
            (
                format!("[[tcpip]]\nname = \"TCPIP\"\n{at}addresses = [\"10.2.0.5\"]"),
                "s.toml:11: 10.2.0.5 is no member's address in 10.1.0.0/24: must be in the LAN's range, and nobody else's",
            ),
            (
                format!(
                    "[[tcpip]]\nname = \"TCPIP\"\n{at}addresses = [\"10.1.0.5\", \"10.1.0.5\"]"
                ),
                "s.toml:11: 10.1.0.5 stands here twice: must be there once",
            ),
            (
                format!("[[tcpip]]\nname = \"TCPIP\"\n{at}mtu = 9000"),
                "s.toml:11: mtu = 9000: must be 576 to 8192",
            ),
            (
                "[[tcpip]]\nname = \"TCPIP\"\n[[tcpip.interface]]\nline = \"l0\"\ncpu = 1"
                    .to_owned(),
                "s.toml:11: cpu of a line: must be left out: the driver of a line runs inline",
            ),
            (
                format!("[[tcpip]]\nname = \"TCPIP\"\n{at}{at}"),
                "s.toml:12: TCPIP is at hs0 twice: must be there once",
            ),
            (
                format!("[[tcpip]]\nname = \"TCPIP\"\n{at}[[guest]]\nname = \"TCPIP\""),
                "s.toml:8: TCPIP is described as a [[guest]]: must be no [[guest]]: the machine is described here",
            ),
            (
                format!("[[tcpip]]\nname = \"TCPIP\"\n{at}[[guest]]\nname = \"TCPIP1\""),
                "s.toml:8: TCPIP1, a guest of TCPIP, is a [[guest]]: must be no [[guest]]: the machine is described here",
            ),
            (
                format!(
                    "[[tcpip]]\nname = \"TCPIP\"\n{at}[[tcpip.client]]\nguest = \"WEB1\"\nshare = 21"
                ),
                "s.toml:13: share = 21: must be 1 to 20",
            ),
            (
                format!("[[tcpip]]\nname = \"TCPIP\"\nsockets_max = 0\n{at}"),
                "s.toml:9: sockets_max = 0: must be 1 to 1048576",
            ),
            (
                format!(
                    "[[tcpip]]\nname = \"TCPIP\"\n{at}[[tcpip.route]]\nto = \"::/0\"\nvia = \"10.1.0.1\""
                ),
                "s.toml:13: 10.1.0.1 is of another family than ::/0: must be an address of the same family",
            ),
        ] {
            assert_eq!(parse(&format!("{BASE}{text}")).unwrap_err(), error);
        }
    }

    #[test]
    fn clients_that_nobody_is_are_warned_of() {
        let text =
            "[[tcpip]]\nname = \"TCPIP\"\nclients = [\"WBE*\"]\n[[tcpip.interface]]\nlan = \"hs0\"";
        let system = parse(&format!("{BASE}{text}")).unwrap();
        let warnings: Vec<String> = system.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(
            warnings,
            ["s.toml:9: clients = \"WBE*\": no [[guest]] has such a name: did you mean WEB*?"]
        );
    }
}
