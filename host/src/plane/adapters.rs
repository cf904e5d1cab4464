//! Adapters: what their guests show of them, and how they have ended.

use std::collections::BTreeMap;

use fabric::control::{Kind, Problem, Reply};
use fabric::name::Name;
use net::osa::report::{Ended, REPORT_BYTES, read};
use os::foreign::Foreign;
use os::storage::{Borrowed, STORAGE_GRAIN_BYTES};
use os::words::LentWords;

use super::{Answer, Host, PathRecord, ReportShown, State};
use crate::report::{self, AdapterReport};
use crate::system::adapter::WireRule;

/// How adapters of the system file have ended that are not served now.
#[derive(Debug, Default)]
pub(super) struct Adapters {
    /// None of an adapter that could not say so: it died.
    ended: BTreeMap<Name, Option<Ended>>,
}

impl Host {
    pub(super) fn show_adapter(
        &mut self,
        (connection, serial): (u64, u32),
        name: Name,
        descriptors: Vec<Foreign>,
    ) -> Answer {
        let [lent] = <[Foreign; 1]>::try_from(descriptors).map_err(|_| Problem::Storage)?;
        let charges = self.charge_mapping(name, REPORT_BYTES)?;
        let bytes = REPORT_BYTES.next_multiple_of(STORAGE_GRAIN_BYTES);
        let borrowed = Borrowed::borrow(&lent, bytes..=bytes)
            .map_err(|error| super::brokering::not_borrowed(&error))?;
        let words = LentWords::borrow(borrowed);
        if let Some(guest) = self.guests.get_mut(&name) {
            guest.adapter = Some(ReportShown { words, _charges: charges });
        }
        self.adapters.ended.remove(&name);
        self.send(connection, serial, &Reply::Done { path: 0 }, &[]);
        Ok(())
    }

    /// A guest is about to be forgotten: if it has served an adapter of the system file, how that has ended is kept.
    pub(super) fn note_adapter_end(&mut self, name: Name) {
        if !self.system.adapters.iter().any(|rule| rule.server == name) {
            return;
        }
        let shown = self.guests.get(&name).and_then(|guest| guest.adapter.as_ref());
        match shown {
            Some(shown) => {
                let ended = read(&shown.words).and_then(|shown| shown.ended);
                self.adapters.ended.insert(name, ended);
            }
            // Of one that has shown nothing nothing is known, whatever the one before it has said.
            None => drop(self.adapters.ended.remove(&name)),
        }
    }

    /// The adapters of the system file, those that show themselves, and those that have devices, by the paths of these.
    pub(super) fn report_adapters(&self) -> Vec<AdapterReport> {
        let of_file = self.system.adapters.iter().map(|rule| rule.server);
        let shown = self.guests.iter().filter(|(_, guest)| guest.adapter.is_some());
        let mut adapters: BTreeMap<Name, AdapterReport> = of_file
            .chain(shown.map(|(name, _)| *name))
            .map(|server| (server, self.report_adapter(server)))
            .collect();
        for (path, record) in &self.paths {
            let PathRecord { from, to, .. } = record;
            if record.kind != Kind::OSA || !matches!(record.state, State::Joined) {
                continue;
            }
            let (Some(guest), Some(adapter)) = (&from.board, &to.board) else { continue };
            let guest = report::Side { board: &guest.words, shape: from.shape };
            let adapter = report::Side { board: &adapter.words, shape: to.shape };
            let (device, [cpu_ns, spinning_ns]) =
                report::device((from.guest.to_string(), *path), guest, adapter);
            let of = adapters.entry(to.guest).or_insert_with(|| self.report_adapter(to.guest));
            (of.cpu_ns, of.spinning_ns) = (of.cpu_ns.max(cpu_ns), of.spinning_ns.max(spinning_ns));
            of.devices.push(device);
        }
        for (server, report) in &mut adapters {
            let shown = self.guests.get(server).and_then(|guest| guest.adapter.as_ref());
            if let Some(shown) = shown.and_then(|shown| read(&shown.words)) {
                report.show(shown);
            }
        }
        adapters.into_values().collect()
    }

    /// An adapter without its devices, by the guest that serves it.
    fn report_adapter(&self, server: Name) -> AdapterReport {
        let rule = self.system.adapters.iter().find(|rule| rule.server == server);
        let wire = rule.map(|rule| &rule.wire);
        let interface = wire.and_then(|wire| match wire {
            WireRule::Memory(memory) => Some(memory.to.to_string()),
            wire => wire.interface().map(str::to_owned),
        });
        let ended = self.adapters.ended.get(&server);
        let is_served = self.guests.contains_key(&server);
        AdapterReport {
            wire: wire.map(|wire| wire.kind().to_owned()),
            interface,
            lan: rule.and_then(|rule| Some(rule.bridge?.lan.to_string())),
            is_served,
            ended: ended.filter(|_| !is_served).map(|ended| report::ended(*ended)),
            ..AdapterReport::of(server.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use fabric::control::{NO_DATA, PACKET_BYTES_MAX, Request};
    use net::lan::frame::Mac;
    use net::osa::report::{PortState, Showing};
    use net::osa::wire::Carrier;
    use os::packets::Packets;
    use os::storage::{Storage, StorageOptions};
    use os::words::Words;

    use super::*;
    use crate::config::Source;
    use crate::system::System;

    const SYSTEM: &str = "
        [[guest]]
        name = \"*\"
        [osa.osa1]
        wire = \"memory\"
        to = \"osa2\"
        [osa.osa2]
        wire = \"memory\"
        to = \"osa1\"
        ";

    const BYTES: usize = REPORT_BYTES.next_multiple_of(STORAGE_GRAIN_BYTES);

    fn ask(host: &mut Host, packets: &Packets, request: &Request, lent: &[&OwnedFd]) -> Reply {
        let lent: Vec<_> = lent.iter().map(|lent| lent.as_fd()).collect();
        packets.send(&request.bytes(1), &lent).unwrap();
        host.poll(0).unwrap();
        host.poll(0).unwrap();
        let mut buffer = [0; PACKET_BYTES_MAX];
        let packet = packets.receive(&mut buffer).unwrap();
        Reply::parse(&buffer[..packet.bytes]).unwrap().1
    }

    fn report(bytes: usize) -> (Storage, OwnedFd) {
        Storage::create("siga adapter", bytes, StorageOptions::default()).unwrap()
    }

    /// A host whose file describes OSA1 and OSA2, and a guest of this name.
    fn start(name: &str) -> (Host, super::super::Handle, Packets) {
        let system = System::parse(&Source::of("s.toml", SYSTEM)).unwrap();
        let (mut host, handle) = Host::new(system).unwrap();
        let packets = attach(&mut host, &handle, name);
        (host, handle, packets)
    }

    fn attach(host: &mut Host, handle: &super::super::Handle, name: &str) -> Packets {
        let packets = handle.connect().unwrap();
        let attach = Request::Attach { name: name.parse().unwrap() };
        assert_eq!(ask(host, &packets, &attach, &[]), Reply::Attached);
        packets
    }

    fn adapter(host: &Host, name: &str) -> AdapterReport {
        let reports = host.report_adapters();
        reports.into_iter().find(|report| report.adapter == name).unwrap()
    }

    fn show(host: &mut Host, packets: &Packets) -> Showing {
        let (storage, lent) = report(BYTES);
        let reply = ask(host, packets, &Request::ShowAdapter, &[&lent]);
        assert_eq!(reply, Reply::Done { path: 0 });
        let mut showing = Showing::new(Words::own(storage));
        let mac = Mac([2, 0, 0, 0, 0, 1]);
        let port = PortState { carrier: Some(Carrier::Gone), mac, ..PortState::default() };
        showing.change(&port, |_| {});
        showing
    }

    #[test]
    fn adapter_shows_its_port_until_it_dies_or_ends() {
        let (mut host, handle, packets) = start("OSA1");
        let before = adapter(&host, "OSA1");
        assert_eq!((before.is_served, before.carrier, before.ended), (true, None, None));
        let _showing = show(&mut host, &packets);
        let shown = adapter(&host, "OSA1");
        assert_eq!(shown.carrier.as_deref(), Some("gone"));
        assert_eq!(shown.mac.as_deref(), Some("02:00:00:00:00:01"));
        drop(packets);
        host.poll(0).unwrap();
        let died = adapter(&host, "OSA1");
        assert_eq!(
            (died.is_served, died.carrier, died.ended.as_deref()),
            (false, None, Some("died"))
        );
        for (ended, word) in [(Ended::Orderly, "ended"), (Ended::Failed(12), "Cannot allocate")] {
            let packets = attach(&mut host, &handle, "OSA1");
            let mut showing = show(&mut host, &packets);
            assert_eq!(adapter(&host, "OSA1").ended, None);
            showing.end(ended);
            drop(packets);
            host.poll(0).unwrap();
            let said = adapter(&host, "OSA1").ended.unwrap();
            assert!(said.starts_with(word), "{said}");
        }
        assert_eq!(adapter(&host, "OSA2").ended, None);
    }

    #[test]
    fn adapter_that_the_file_does_not_have_is_shown_and_forgotten() {
        let (mut host, _handle, packets) = start("OTHER");
        let _showing = show(&mut host, &packets);
        assert_eq!(adapter(&host, "OTHER").carrier.as_deref(), Some("gone"));
        drop(packets);
        host.poll(0).unwrap();
        assert!(host.report_adapters().iter().all(|report| report.adapter != "OTHER"));
        assert!(host.adapters.ended.is_empty());
    }

    #[test]
    fn what_is_no_report_is_refused() {
        let (mut host, _handle, packets) = start("OSA1");
        let refused = Reply::Failed { problem: Problem::Storage, data: NO_DATA };
        let bad = [STORAGE_GRAIN_BYTES, BYTES - STORAGE_GRAIN_BYTES, BYTES + STORAGE_GRAIN_BYTES];
        for bytes in bad {
            let (_storage, lent) = report(bytes);
            assert_eq!(
                ask(&mut host, &packets, &Request::ShowAdapter, &[&lent]),
                refused,
                "{bytes}"
            );
        }
        assert_eq!(ask(&mut host, &packets, &Request::ShowAdapter, &[]), refused);
        let (_storage, lent) = report(BYTES);
        // In which nothing was shown yet.
        let reply = ask(&mut host, &packets, &Request::ShowAdapter, &[&lent]);
        assert_eq!((reply, adapter(&host, "OSA1").carrier), (Reply::Done { path: 0 }, None));
    }
}
