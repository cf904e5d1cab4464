//! The devices of a TCPIP machine at OSA adapters.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use host::system::interface::{InbperfRule, InterfaceRule, ProfileRule, RouterRule};
use serde::Serialize;
use siga::osa::{Inbperf, Osa, OsaChange, OsaOptions, OsaState, Profile, Request, Router};
use siga::tcpip::{DeviceChange, Prefix, Route};
use siga::{Guest, Wait};

use crate::outcome::Outcome;
use crate::output::try_say;

/// Attaches the guest that has a device, and asks the adapter for the device, which is there as soon as the adapter is.
pub fn open_device(socket: &Path, rule: &InterfaceRule, wait: Wait) -> Result<Osa, Outcome> {
    let wrong = |error: String| Outcome::No(format!("adapter {}: {error}", rule.adapter));
    let guest = Guest::attach(socket, rule.member.as_str());
    let guest = guest.map_err(|error| wrong(error.to_string()))?;
    let mut options = OsaOptions::default();
    options.wait = wait;
    options.workload_queues = rule.workloadq;
    options.profile = profile(rule.inbperf);
    options.inbperf = match rule.inbperf {
        InbperfRule::Balanced | InbperfRule::Own(_) => Inbperf::Balanced,
        InbperfRule::Mincpu => Inbperf::Mincpu,
        InbperfRule::Minlatency => Inbperf::Minlatency,
        InbperfRule::Dynamic => Inbperf::Dynamic,
    };
    let device = Osa::open(guest, rule.server.as_str(), &options);
    let mut device = device.map_err(|error| wrong(error.to_string()))?;
    // Before the address, which the adapter announces in the first VLAN that the device belongs to.
    if let Some(vlan) = rule.vlan {
        device.register(Request::AddVlan(vlan));
    }
    device.add_address(rule.address.addr(), rule.address.prefix_len());
    if let Some(router) = rule.router {
        device.register(Request::Route(match router {
            RouterRule::Primary => Router::Primary,
            RouterRule::Secondary => Router::Secondary,
        }));
    }
    Ok(device)
}

/// The times of a machine's own, if it has any.
fn profile(rule: InbperfRule) -> Option<Profile> {
    let InbperfRule::Own(ProfileRule { hold_off_us, gap_us, packets, backlog }) = rule else {
        return None;
    };
    // A system file has less than that of each.
    let ns = |us: u64| u32::try_from(us.saturating_mul(1000)).unwrap_or(u32::MAX);
    let count = |count: Option<u64>| count.and_then(|count| count.try_into().ok());
    Some(Profile {
        hold_off_ns: ns(hold_off_us),
        gap_ns: ns(gap_us),
        packets_max: count(packets).unwrap_or(u16::MAX),
        backlog: count(backlog).unwrap_or(u16::MAX),
    })
}

/// The route over a gateway to all networks of its family.
pub fn default_route(gateway: IpAddr) -> Option<Route> {
    let all: IpAddr = match gateway {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    Some(Route { to: Prefix::of(all, 0)?, via: gateway })
}

/// Says what has changed about one of these devices.
pub fn say_change(devices: &[InterfaceRule], change: &DeviceChange) {
    if let Some(rule) = devices.iter().find(|rule| rule.member == change.guest) {
        // Whoever serves the machine does not wait for readers of standard error.
        try_say(format_args!("siga: {}", text(rule, &change.what)));
    }
}

fn text(rule: &InterfaceRule, change: &OsaChange) -> String {
    let InterfaceRule { member, adapter, address, .. } = rule;
    let device = format!("the device with {}", address.addr());
    match change {
        OsaChange::State(OsaState::Up(port)) => {
            format!("{device} is up at {adapter}: packets of up to {} bytes", port.mtu)
        }
        OsaChange::State(OsaState::NoCarrier(_)) => format!(
            "warning: {device} is up at {adapter}, whose wire is down: only guests of the adapter are reached"
        ),
        OsaChange::State(OsaState::Down { why }) => {
            format!("warning: {device} is down at {adapter}: {why}")
        }
        OsaChange::Refused(request, why) => {
            let what = match request {
                Request::AddAddress(address) => format!("{member} the address {address}"),
                Request::AddVlan(vlan) => format!("{member} the VLAN {vlan}"),
                Request::Route(_) => format!("to make {member} its router"),
                request => format!("{member} {request:?}"),
            };
            format!("warning: {adapter} refuses {what}: {why}")
        }
        change => format!("{device} at {adapter}: {change:?}"),
    }
}

/// A device, as `--json` prints it when the machine begins.
#[derive(Debug, Serialize)]
pub struct UpDevice {
    name: String,
    adapter: String,
    address: String,
}

impl UpDevice {
    pub fn new(rule: &InterfaceRule) -> UpDevice {
        UpDevice {
            name: rule.member.to_string(),
            adapter: rule.adapter.to_string(),
            address: rule.address.to_string(),
        }
    }
}

impl fmt::Display for UpDevice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UpDevice { name, adapter, address } = self;
        write!(formatter, "{address} at {adapter} as {name}")
    }
}
