//! The OSA adapters that a host serves, each by a guest of its own on a thread of the host.

use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::mpsc::Sender;

use host::system::System;
use host::system::adapter::{AdapterRule, WireRule};
use port::bridge;
use port::wires::{OpenWireError, WireKind, WireOptions};
use siga::lan::Mac;
use siga::osa::{MemoryWire, Moderation, OpenWire, Server, ServerOptions, Wire};
use siga::{Guest, Stopper, Wait};

use crate::bridges;
use crate::member::WaitKind;
use crate::osa::up::{self, Up};
use crate::outcome::Outcome;
use crate::output::try_say;
use crate::processors;

/// An adapter with its wire, before it is served.
pub struct Adapter {
    rule: AdapterRule,
    wire: Box<dyn Wire>,
    up: Up,
}

/// Opens the wires of all adapters of a system.
///
/// # Errors
/// The place in the system file, and the reason why the wire there cannot be opened.
pub fn open(system: &System) -> Result<Vec<Adapter>, Outcome> {
    let rules = &system.adapters;
    let mut wires: Vec<Option<up::Opened>> = rules.iter().map(|_| None).collect();
    for (at, rule) in rules.iter().enumerate() {
        if wires[at].is_some() {
            continue;
        }
        if let WireRule::Memory(memory) = &rule.wire {
            let other = rules.iter().position(|other| other.name == memory.to);
            let other = other.expect("the file has both ends of a wire");
            // Others know these addresses: they stay the same as long as the file has the adapters in this order.
            let macs = [at, other].map(|at| rules[at].mac.unwrap_or_else(|| mac(at)));
            let ends = MemoryWire::pair(memory.conditions(), at as u64, macs);
            let [one_end, other_end] = ends.map_err(Outcome::no)?;
            for (at, to, end) in [(at, other, one_end), (other, at, other_end)] {
                let up = Up::of_memory(rules[at].server, &end, rules[to].server.as_str());
                wires[at] = Some((Box::new(end), up));
            }
        } else if let Some(opened) = open_interface(rule) {
            wires[at] = Some(opened.map_err(|error| {
                let place = match (&error, &rule.mac_place) {
                    (OpenWireError::Mac { .. }, Some(place)) => place,
                    _ => &rule.wire_place,
                };
                let mut error = place.error(error.to_string(), "");
                // The file is right: the machine lacks something, and may have it the next time.
                error.may_pass = true;
                error
            })?);
        }
    }
    let adapters = rules.iter().zip(wires);
    Ok(adapters
        .filter_map(|(rule, opened)| {
            let (wire, up) = opened?;
            Some(Adapter { rule: rule.clone(), wire, up })
        })
        .collect())
}

/// The MAC address of the port of the adapter with this number, at a wire in memory.
fn mac(at: usize) -> Mac {
    // Administered by its owner. There are fewer adapters than that.
    Mac([2, b'o', b's', b'a', 0, at as u8])
}

/// Opens the wire at a network interface. None of a wire in memory.
fn open_interface(rule: &AdapterRule) -> Option<Result<up::Opened, OpenWireError>> {
    let (kind, interface) = match &rule.wire {
        WireRule::Macvtap(interface) => (WireKind::Macvtap, interface),
        WireRule::Xdp(interface) => (WireKind::Xdp, interface),
        WireRule::Tap(interface) => (WireKind::Tap, interface),
        WireRule::Memory(_) => return None,
    };
    let options =
        WireOptions { mac: rule.mac, adapter: Some(rule.server), ..WireOptions::default() };
    Some(up::open(rule.server, kind, interface, &options))
}

impl Adapter {
    /// Its name.
    pub fn name(&self) -> &str {
        self.rule.name.as_str()
    }

    /// What it has made, and on what.
    pub fn up(&self) -> Up {
        self.up.clone()
    }

    /// The bridge to its port, if it has one.
    pub fn bridge(&self) -> Option<bridge::Options> {
        bridges::options(&self.rule)
    }

    /// Serves the adapter on the calling thread until the stopper that it puts into `stop` is used, and says once guests can have devices.
    ///
    /// # Errors
    /// The adapter cannot be served, or is served no longer.
    pub fn serve(
        self,
        socket: &Path,
        is_served: &Sender<()>,
        stop: &OnceLock<Stopper>,
    ) -> Result<(), Outcome> {
        let Adapter { rule, wire, .. } = self;
        processors::take(rule.processor, &format!("the adapter {}", rule.name));
        let guest = Guest::attach(socket, rule.server.as_str()).map_err(Outcome::no)?;
        let mut server = Server::new(guest, wire, &options(&rule)).map_err(Outcome::no)?;
        // One adapter has one stopper.
        let _ = stop.set(server.stopper());
        if rule.wire.interface().is_some() {
            let reopener = Reopener { rule, is_lost: false };
            server.open_again_with(reopener).map_err(Outcome::no)?;
        }
        // Nobody hears if something else cannot be served: the host ends then.
        let _ = is_served.send(());
        server.serve().map_err(Outcome::no)
    }
}

/// Opens the wire of an adapter again, and says so.
struct Reopener {
    rule: AdapterRule,
    /// It was said that the interface is lost.
    is_lost: bool,
}

impl OpenWire for Reopener {
    fn open(&mut self) -> io::Result<Box<dyn Wire>> {
        let interface = self.rule.wire.interface().unwrap_or_default();
        if !std::mem::replace(&mut self.is_lost, true) {
            try_say(format_args!(
                "siga: warning: the adapter {} has lost {interface}, and looks for it twice a second",
                self.rule.name
            ));
        }
        let opened = open_interface(&self.rule);
        let (wire, _) = opened.ok_or(io::ErrorKind::Unsupported)?.map_err(io::Error::other)?;
        Ok(wire)
    }

    fn on_use(&mut self, taken: io::Result<()>) {
        self.is_lost = false;
        let (name, interface) = (&self.rule.name, self.rule.wire.interface().unwrap_or_default());
        let _ = match taken {
            Ok(()) => try_say(format_args!("siga: the adapter {name} has {interface} again")),
            Err(error) => try_say(format_args!(
                "siga: warning: the adapter {name} has {interface} again, without the MAC addresses of some devices: {error}"
            )),
        };
    }
}

/// How an adapter is served by the system file. Its guests are those that the host lets connect.
fn options(rule: &AdapterRule) -> ServerOptions {
    let times = rule.moderation;
    let mut options = ServerOptions::default();
    options.wait = Wait::from(WaitKind::from(rule.wait));
    options.buffers_max = rule.buffers;
    options.moderation = Moderation {
        hold_off_ns: times.hold_off_ns,
        gap_ns: times.gap_ns,
        gap_jumbo_ns: times.gap_jumbo_ns,
        ..Moderation::default()
    };
    let devices = rule.devices.iter();
    options.reserved = devices.map(|device| (device.address.addr(), device.member)).collect();
    options
}

#[cfg(test)]
mod tests {
    use host::config::Source;
    use host::system::adapter::ModerationRule;

    use super::*;

    #[test]
    fn times_that_a_file_leaves_out_are_those_of_the_adapter() {
        let (file, own) = (ModerationRule::default(), Moderation::default());
        assert_eq!(
            (file.hold_off_ns, file.gap_ns, file.gap_jumbo_ns),
            (own.hold_off_ns, own.gap_ns, own.gap_jumbo_ns)
        );
    }

    #[test]
    fn wire_that_cannot_be_opened_is_an_error_at_its_place() {
        let text =
            "[[guest]]\nname = \"WEB\"\n[osa.osa1]\nwire = \"xdp\"\ninterface = \"siga-none\"";
        let system = System::parse(&Source::of("s.toml", text)).unwrap();
        let Err(Outcome::File(error)) = open(&system) else { panic!("there is no such interface") };
        let what = "s.toml:5: there is no interface siga-none in this network";
        assert_eq!(error.to_string(), what);
    }

    #[test]
    fn port_has_the_mac_address_of_the_file() {
        let text = "[[guest]]\nname = \"WEB\"\n[osa.a]\nwire = \"memory\"\nto = \"b\"\nmac = \"02:00:00:00:00:a1\"\n[osa.b]\nwire = \"memory\"\nto = \"a\"";
        let system = System::parse(&Source::of("s.toml", text)).unwrap();
        let adapters = open(&system).unwrap_or_else(|_| panic!("it needs no rights"));
        assert_eq!(adapters[0].wire.mac(), Mac([2, 0, 0, 0, 0, 0xa1]));
        assert_eq!(
            (adapters[1].wire.mac(), adapters[0].up.mac.as_str()),
            (mac(1), "02:00:00:00:00:a1")
        );
    }

    #[test]
    fn ends_of_a_wire_in_memory_have_addresses_of_their_own() {
        let text = include_str!("../../systems/osa.toml");
        let system = System::parse(&Source::of("osa.toml", text)).unwrap();
        let adapters = open(&system).unwrap_or_else(|_| panic!("it needs no rights"));
        let [one, other] = &adapters[..] else { panic!("two") };
        assert_ne!(one.wire.mac(), other.wire.mac());
        assert_eq!((one.name(), one.wire.capabilities().rate), ("osa1", Some(1_000_000_000)));
    }
}
