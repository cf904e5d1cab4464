//! What guests that serve volumes show of them.

use std::collections::BTreeMap;

use channel::exchange::Kind;
use disk::report::{
    DeviceState, OpenRate, PathState, REPORT_BYTES, Shown, SubchannelState, Totals, read,
};
use disk::unit::{Reading, Writing};
use fabric::control::{Problem, Reply};
use fabric::name::Name;
use fabric::rate::TokenBucket;
use os::foreign::Foreign;
use os::storage::{Borrowed, STORAGE_GRAIN_BYTES};
use os::words::LentWords;

use super::{Answer, Host};
use crate::report::{
    ChannelPathReport, ControlUnitReport, ControlUnitUserReport, DamagedTrackReport, DeviceReport,
    LimitReport, SubchannelReport, VolumeReading, VolumeReport, VolumeState, VolumeWriting,
};

/// Guests that show volumes, at most: what they show is mapped here.
const SHOWN_MAX: usize = 64;

/// The reports of guests that serve volumes.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    of: BTreeMap<Name, LentWords>,
}

impl Volumes {
    /// A guest shows volumes no longer.
    pub(super) fn forget(&mut self, guest: Name) {
        self.of.remove(&guest);
    }

    pub(super) fn report(&self) -> Vec<ControlUnitReport> {
        self.of.iter().map(|(guest, words)| control_unit(*guest, read(words))).collect()
    }
}

/// Opens of a control unit that count still, by what it shows: no more than there may be in a second, whatever that is.
fn opens_of_second(rate: &OpenRate, now_ns: u64) -> u64 {
    let most = rate.most.into();
    TokenBucket::full_at(most, rate.full_ns).used(now_ns).min(most)
}

/// The limits of a control unit and of its guests, as the control unit shows them.
pub(super) fn limits(unit: &ControlUnitReport) -> impl Iterator<Item = LimitReport> {
    let rate = (unit.opens_per_s > 0).then(|| LimitReport {
        owner: format!("control unit {}", unit.guest),
        limit: "opens a second".to_owned(),
        used: unit.opens_of_second,
        most: unit.opens_per_s.into(),
        refused: unit.opens_waited,
        setting: "fixed".to_owned(),
    });
    let of_guests = unit.users.iter().flat_map(move |user| {
        let row = |limit: &str, used, most, refused: u32, setting: &str| LimitReport {
            owner: format!("guest {} at {}", user.guest, unit.guest),
            limit: limit.to_owned(),
            used,
            most,
            refused: refused.into(),
            setting: format!("[control_unit] {setting}"),
        };
        let (opens, most) = (user.opens.into(), user.opens_max.into());
        let (bytes, bytes_max) = (user.storage_bytes, user.storage_bytes_max);
        [
            row("opens", opens, most, user.opens_refused, "guest_opens_max"),
            row("storage", bytes, bytes_max, user.storage_refused, "guest_storage_max"),
        ]
    });
    rate.into_iter().chain(of_guests)
}

impl Host {
    pub(super) fn show_volumes(
        &mut self,
        (connection, serial): (u64, u32),
        guest: Name,
        descriptors: Vec<Foreign>,
    ) -> Answer {
        let [report] = <[Foreign; 1]>::try_from(descriptors).map_err(|_| Problem::Storage)?;
        let of = &mut self.volumes.of;
        if of.len() >= SHOWN_MAX && !of.contains_key(&guest) {
            return Err(Problem::VolumesLimit);
        }
        let bytes = REPORT_BYTES.next_multiple_of(STORAGE_GRAIN_BYTES);
        let borrowed = Borrowed::borrow(&report, bytes..=bytes)
            .map_err(|error| super::brokering::not_borrowed(&error))?;
        of.insert(guest, LentWords::borrow(borrowed));
        self.send(connection, serial, &Reply::Done { path: 0 }, &[]);
        Ok(())
    }
}

/// What a guest shows, with names in the place of numbers.
fn control_unit(guest: Name, shown: Shown) -> ControlUnitReport {
    let Shown { totals, paths, volumes, devices, subchannels, guests } = shown;
    let Totals { volumes: all_volumes, devices: all_devices, subchannels: all, .. } = totals;
    let hidden = [
        totals.guests.saturating_sub(guests.len()),
        all_volumes.saturating_sub(volumes.len()),
        all_devices.saturating_sub(devices.len()),
        all.saturating_sub(subchannels.len()),
    ];
    let nobody = || "?".to_owned();
    let volumes: Vec<VolumeReport> = volumes
        .into_iter()
        .enumerate()
        .map(|(number, volume)| VolumeReport {
            number,
            state: match (volume.failure, volume.damage.is_empty(), volume.read_only) {
                (Some(_), ..) => VolumeState::Failed,
                (None, false, _) => VolumeState::Damaged,
                (None, true, true) => VolumeState::ReadOnly,
                (None, true, false) => VolumeState::Online,
            },
            failure: volume.failure.map(|code| std::io::Error::from_raw_os_error(code).to_string()),
            reading: match volume.reading {
                Reading::Buffered => VolumeReading::Buffered,
                Reading::Direct => VolumeReading::Direct,
                Reading::Refused => VolumeReading::Refused,
            },
            writing: (!volume.read_only).then_some(match volume.writing {
                Writing::Buffered => VolumeWriting::Buffered,
                Writing::Direct => VolumeWriting::Direct,
            }),
            sync: (!volume.read_only).then_some(volume.syncing.into()),
            damaged_tracks: volume
                .damage
                .iter()
                .map(|damage| DamagedTrackReport {
                    cylinder: damage.track.cylinder,
                    head: damage.track.head,
                    file: damage.file + 1,
                    offset: damage.offset,
                })
                .collect(),
            volume: volume.name,
            file: volume.file,
            cylinders: volume.cylinders,
            cache_tracks_max: volume.slots,
            cache_tracks: volume.used,
            cache_tracks_pinned: volume.pinned,
            cache_hits: volume.lookups.saturating_sub(volume.misses),
            cache_misses: volume.misses,
        })
        .collect();
    let device = |device: DeviceState| {
        let volume = volumes.get(device.volume);
        let is_protected = volume.is_some_and(|volume| volume.state != VolumeState::Online);
        DeviceReport {
            volume: volume.map_or_else(nobody, |volume| volume.volume.clone()),
            volume_number: device.volume,
            guest: (!device.guest.is_empty()).then_some(device.guest),
            has_others: device.has_others,
            device: device.name,
            first_cylinder: device.first_cylinder,
            cylinders: device.cylinders,
            read_only: device.read_only || is_protected,
            dedicated: device.dedicated,
            cache: device.cached,
            open: device.open,
        }
    };
    let devices: Vec<DeviceReport> = devices.into_iter().map(device).collect();
    let path = |(channel_path, path): (usize, PathState)| {
        let units = Kind::ALL.into_iter().zip(path.units).filter(|(_, count)| *count > 0);
        let units = units.map(|(kind, count)| (kind.name().to_owned(), count)).collect();
        ChannelPathReport { channel_path, guests: path.guests, units }
    };
    let subchannel = |subchannel: SubchannelState| {
        let SubchannelState { guest, device, path, number, measurement } = subchannel;
        let device = devices.get(device).map_or_else(nobody, |device| device.device.clone());
        SubchannelReport {
            guest,
            device,
            channel_path: path,
            subchannel: number,
            starts: measurement.starts,
            samples: measurement.samples,
            function_pending_ns: measurement.pending_ns,
            connect_ns: measurement.connect_ns,
            disconnect_ns: measurement.disconnect_ns,
            control_unit_queuing_ns: measurement.queue_ns,
            device_active_only_ns: measurement.device_active_ns,
            initial_command_response_ns: measurement.initial_response_ns,
        }
    };
    let subchannels = subchannels.into_iter().map(subchannel).collect();
    let users = guests.into_iter().map(|guest| ControlUnitUserReport {
        guest: guest.name,
        opens: guest.opens,
        opens_max: guest.opens_max,
        storage_bytes: guest.storage_bytes,
        storage_bytes_max: guest.storage_bytes_max,
        opens_refused: guest.opens_refused,
        storage_refused: guest.storage_refused,
    });
    ControlUnitReport {
        users: users.collect(),
        opens_refused: totals.refused,
        opens_of_second: opens_of_second(&totals.rate, os::processor::now_ns()),
        opens_per_s: totals.rate.most,
        opens_waited: totals.rate.waits,
        guest: guest.to_string(),
        channel_paths: paths.into_iter().enumerate().map(path).collect(),
        subchannels,
        not_shown: hidden.iter().sum::<usize>() as u64,
        volumes,
        devices,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use disk::report::{GuestState, REPORT_WORDS, Showing, VolumeState as Shown};
    use disk::unit::Syncing;
    use fabric::control::{NO_DATA, PACKET_BYTES_MAX, Request};
    use net::board::{self, Overview};
    use net::lan::counters::BOARD_BYTES;
    use os::packets::Packets;
    use os::storage::{Storage, StorageOptions};
    use os::words::Words;

    use super::*;
    use crate::plane::Handle;
    use crate::report::VolumeSync;
    use crate::system::System;

    fn ask(
        host: &mut Host,
        packets: &Packets,
        request: &Request,
        lent: Option<&OwnedFd>,
    ) -> Option<Reply> {
        let lent: Vec<_> = lent.map(AsFd::as_fd).into_iter().collect();
        packets.send(&request.bytes(1), &lent).unwrap();
        host.poll(0).unwrap();
        host.poll(0).unwrap();
        let mut buffer = [0; PACKET_BYTES_MAX];
        let packet = packets.receive(&mut buffer).ok().filter(|packet| packet.bytes > 0)?;
        Some(Reply::parse(&buffer[..packet.bytes]).unwrap().1)
    }

    fn guest(host: &mut Host, handle: &Handle, number: usize) -> Packets {
        let packets = handle.connect().unwrap();
        let name = format!("UNIT{number}").parse().unwrap();
        let reply = ask(host, &packets, &Request::Attach { name }, None);
        assert_eq!(reply, Some(Reply::Attached));
        packets
    }

    fn report(bytes: usize) -> (Storage, OwnedFd) {
        Storage::create("siga volumes", bytes, StorageOptions::default()).unwrap()
    }

    const BYTES: usize = REPORT_BYTES.next_multiple_of(STORAGE_GRAIN_BYTES);

    #[test]
    fn guest_shows_its_volumes_until_it_is_gone() {
        let (mut host, handle) = Host::new(System::open()).unwrap();
        let packets = guest(&mut host, &handle, 0);
        let (storage, lent) = report(BYTES);
        let words = Words::own(storage);
        assert!(words.count() >= REPORT_WORDS);
        let mut showing = Showing::new(words);
        let reply = ask(&mut host, &packets, &Request::ShowVolumes, Some(&lent));
        assert_eq!(reply, Some(Reply::Done { path: 0 }));
        // A time that no clock has reached: as much as can count.
        let rate = OpenRate { most: 512, full_ns: u64::MAX, waits: 1 };
        let totals =
            Totals { volumes: 70, devices: 1, guests: 1, refused: 9, rate, ..Totals::default() };
        showing.change(&totals, |rows| {
            rows.name_volume(0, "SIGA01", "a.ckd");
            rows.volume(0, &Shown { lookups: 5, misses: 7, ..Shown::default() });
            let syncing = Syncing::File;
            rows.volume(1, &Shown { syncing, ..Shown::default() });
            let failed = Shown { syncing, read_only: true, ..Shown::default() };
            rows.volume(2, &Shown { failure: Some(5), ..failed });
            let state = GuestState { opens: 3, opens_max: 64, ..GuestState::default() };
            rows.guest(0, u64::from_le_bytes(*b"ALICE\0\0\0"), &state);
            // A device of a volume that is not there, with a name that is no text.
            let name = "a\u{7}b".to_owned();
            rows.device(0, &DeviceState { name, volume: 99, ..DeviceState::default() });
        });
        let [unit] = &host.volumes.report()[..] else { panic!("one") };
        assert_eq!((unit.guest.as_str(), unit.not_shown), ("UNIT0", 6));
        let volume = &unit.volumes[0];
        assert_eq!((volume.volume.as_str(), volume.cache_hits), ("SIGA01", 0));
        let syncs = [0, 1, 2].map(|number: usize| unit.volumes[number].sync);
        assert_eq!(syncs, [Some(VolumeSync::Fdatasync), Some(VolumeSync::File), None]);
        assert_eq!(unit.volumes[2].state, VolumeState::Failed);
        assert!(unit.volumes[2].failure.as_ref().unwrap().starts_with("Input/output error"));
        let user = &unit.users[0];
        assert_eq!((user.guest.as_str(), user.opens, user.opens_max), ("ALICE", 3, 64));
        assert_eq!(unit.opens_refused, 9);
        let rows: Vec<_> = limits(unit).map(|row| (row.owner, row.limit, row.used)).collect();
        let owner = || "guest ALICE at UNIT0".to_owned();
        let rate = ("control unit UNIT0".into(), "opens a second".into(), 512);
        assert_eq!(rows, [rate, (owner(), "opens".into(), 3), (owner(), "storage".into(), 0)]);
        assert_eq!((&*unit.devices[0].device, &*unit.devices[0].volume), ("a?b", "?"));
        // Another report takes its place.
        let (_storage, lent) = report(BYTES);
        ask(&mut host, &packets, &Request::ShowVolumes, Some(&lent));
        assert_eq!(host.volumes.report()[0].not_shown, 0);
        drop(packets);
        host.poll(0).unwrap();
        assert!(host.volumes.report().is_empty());
    }

    #[test]
    fn guest_shows_its_stack_at_lines_until_it_is_gone() {
        let (mut host, handle) = Host::new(System::open()).unwrap();
        let packets = guest(&mut host, &handle, 0);
        let bytes = BOARD_BYTES.next_multiple_of(STORAGE_GRAIN_BYTES);
        let (_storage, lent) = report(bytes + STORAGE_GRAIN_BYTES);
        let reply = ask(&mut host, &packets, &Request::ShowStack, Some(&lent));
        assert_eq!(reply, Some(Reply::Failed { problem: Problem::Storage, data: NO_DATA }));
        let (storage, lent) = report(bytes);
        let words = Words::own(storage);
        let reply = ask(&mut host, &packets, &Request::ShowStack, Some(&lent));
        assert_eq!(reply, Some(Reply::Done { path: 0 }));
        assert_eq!(host.report().stacks, []);
        board::show(&words, &Overview { mtu: 9216, ..Overview::default() }, &[]);
        board::show_machine(&words, "UNIT1".parse().unwrap());
        let stacks = host.report().stacks;
        assert_eq!(
            (stacks.len(), stacks[0].guest.as_str(), stacks[0].stack.mtu),
            (1, "UNIT0", 9216)
        );
        assert_eq!(stacks[0].stack.machine, None, "no such guest is attached by its process");
        let _machine = guest(&mut host, &handle, 1);
        assert_eq!(host.report().stacks[0].stack.machine.as_deref(), Some("UNIT1"));
        drop(packets);
        host.poll(0).unwrap();
        assert_eq!(host.report().stacks, []);
    }

    #[test]
    fn what_is_no_report_is_refused_and_so_is_one_too_many() {
        let (mut host, handle) = Host::new(System::open()).unwrap();
        let packets = guest(&mut host, &handle, 0);
        let problem = |reply| match reply {
            Some(Reply::Failed { problem, .. }) => problem,
            reply => panic!("{reply:?}"),
        };
        for bytes in [STORAGE_GRAIN_BYTES, BYTES - STORAGE_GRAIN_BYTES, BYTES + STORAGE_GRAIN_BYTES]
        {
            let (_storage, lent) = report(bytes);
            let reply = ask(&mut host, &packets, &Request::ShowVolumes, Some(&lent));
            assert_eq!(problem(reply), Problem::Storage, "{bytes}");
        }
        assert_eq!(
            problem(ask(&mut host, &packets, &Request::ShowVolumes, None)),
            Problem::Storage
        );
        let mut others = Vec::new();
        for number in 1..=SHOWN_MAX + 1 {
            let packets = guest(&mut host, &handle, number);
            let (storage, lent) = report(BYTES);
            let reply = ask(&mut host, &packets, &Request::ShowVolumes, Some(&lent));
            match number > SHOWN_MAX {
                false => assert_eq!(reply, Some(Reply::Done { path: 0 })),
                true => assert_eq!(problem(reply), Problem::VolumesLimit),
            }
            others.push((packets, storage));
        }
        assert_eq!(host.volumes.report().len(), SHOWN_MAX);
    }
}
