//! The metrics of what control units show: volumes, devices, channel paths, subchannels.

use host::report::{ControlUnitReport, SubchannelReport, VolumeReport, VolumeState};
use siga::disk::UnitKind;

use super::page::Kind::{Counter, CounterNs, Gauge};
use super::page::{Of, Page, labels};

const VOLUMES: &[Of<VolumeReport>] = &[
    ("siga_volume_cylinders", Gauge, "Cylinders of the volume.", |volume| volume.cylinders.into()),
    ("siga_volume_damaged_tracks", Gauge, "Tracks found damaged, 16 at most.", |volume| {
        volume.damaged_tracks.len() as u64
    }),
    ("siga_volume_cache_tracks", Gauge, "Tracks in the cache.", |volume| {
        volume.cache_tracks.into()
    }),
    ("siga_volume_cache_tracks_max", Gauge, "Tracks that the cache has room for.", |volume| {
        volume.cache_tracks_max.into()
    }),
    (
        "siga_volume_cache_tracks_pinned",
        Gauge,
        "Tracks of the cache from which guests have results that they have not done with.",
        |volume| volume.cache_tracks_pinned.into(),
    ),
    ("siga_volume_cache_hits_total", Counter, "Tracks found in the cache.", |volume| {
        volume.cache_hits
    }),
    ("siga_volume_cache_misses_total", Counter, "Tracks read from the file.", |volume| {
        volume.cache_misses
    }),
];

/// Writes the metrics of volumes and devices.
pub fn volumes(page: &mut Page, units: &[ControlUnitReport]) {
    let volumes: Vec<(String, &ControlUnitReport, &VolumeReport)> = units
        .iter()
        .flat_map(|unit| unit.volumes.iter().map(move |volume| (unit, volume)))
        .map(|(unit, volume)| {
            // Two volumes can have the same name.
            let at = labels(&[
                ("unit", &unit.guest),
                ("number", &volume.number),
                ("volume", &volume.volume),
            ]);
            (at, unit, volume)
        })
        .collect();
    page.metric(
        "siga_volume_info",
        Gauge,
        "1, with the file of each volume and how it is read and written.",
        |samples| {
            for (at, _, volume) in &volumes {
                let writing = volume.writing.map_or(String::new(), |writing| writing.to_string());
                let sync = volume.sync.map_or(String::new(), |sync| sync.to_string());
                let more = labels(&[
                    ("file", &volume.file),
                    ("reading", &volume.reading),
                    ("writing", &writing),
                    ("sync", &sync),
                ]);
                samples.add(format!("{at},{more}"), 1_u64);
            }
        },
    );
    page.metric(
        "siga_volume_state",
        Gauge,
        "1 for the state that the volume is in, 0 for the others.",
        |samples| {
            for (at, _, volume) in &volumes {
                for state in VolumeState::ALL {
                    samples.add(format!("{at},state=\"{state}\""), volume.state == state);
                }
            }
        },
    );
    let each: Vec<_> = volumes.iter().map(|(at, _, volume)| (at.clone(), *volume)).collect();
    page.each(VOLUMES, &each);
    page.metric("siga_device_opens", Gauge, "Guests that have the device open.", |samples| {
        for unit in units {
            for device in &unit.devices {
                let of = device.guest.as_deref().unwrap_or("any");
                let at = labels(&[
                    ("unit", &unit.guest),
                    ("guest", &of),
                    ("device", &device.device),
                    ("volume", &device.volume),
                ]);
                samples.add(at, device.open);
            }
        }
    });
    page.metric(
        "siga_control_unit_not_shown",
        Gauge,
        "Volumes, devices, subchannels and guests of the control unit beside those that are shown.",
        |samples| {
            for unit in units {
                samples.add(labels(&[("unit", &unit.guest)]), unit.not_shown);
            }
        },
    );
    page.metric(
        "siga_control_unit_opens_refused_total",
        Counter,
        "Opens refused because a guest had as much as it may.",
        |samples| {
            for unit in units {
                samples.add(labels(&[("unit", &unit.guest)]), unit.opens_refused);
            }
        },
    );
}

const SUBCHANNELS: &[Of<SubchannelReport>] = &[
    (
        "siga_subchannel_starts_total",
        Counter,
        "Channel programs started, and resumptions.",
        |one| one.starts,
    ),
    (
        "siga_subchannel_samples_total",
        Counter,
        "Channel programs that have ended and were measured.",
        |one| one.samples,
    ),
    (
        "siga_subchannel_function_pending_seconds_total",
        CounterNs,
        "Time from the start to the first answer of the control unit.",
        |one| one.function_pending_ns,
    ),
    (
        "siga_subchannel_connect_seconds_total",
        CounterNs,
        "Time from the first answer to the end.",
        |one| one.connect_ns,
    ),
    (
        "siga_subchannel_disconnect_seconds_total",
        CounterNs,
        "Time in which programs waited for the file of their volume.",
        |one| one.disconnect_ns,
    ),
    (
        "siga_subchannel_control_unit_queuing_seconds_total",
        CounterNs,
        "Control unit queuing time.",
        |one| one.control_unit_queuing_ns,
    ),
    (
        "siga_subchannel_device_active_only_seconds_total",
        CounterNs,
        "Device active only time.",
        |one| one.device_active_only_ns,
    ),
    (
        "siga_subchannel_initial_command_response_seconds_total",
        CounterNs,
        "Time until the first command response, a part of the function pending time.",
        |one| one.initial_command_response_ns,
    ),
];

/// Writes the metrics of channel paths and subchannels.
pub fn channels(page: &mut Page, units: &[ControlUnitReport]) {
    let paths: Vec<_> = units
        .iter()
        .flat_map(|unit| unit.channel_paths.iter().map(move |path| (unit, path)))
        .map(|(unit, path)| {
            (labels(&[("unit", &unit.guest), ("channel_path", &path.channel_path)]), path)
        })
        .collect();
    page.metric(
        "siga_channel_path_guests",
        Gauge,
        "Guests whose programs run over the channel path.",
        |samples| paths.iter().for_each(|(at, path)| samples.add(at.clone(), path.guests)),
    );
    page.metric(
        "siga_channel_path_units_total",
        Counter,
        "Information units over the channel path by kind, both directions together.",
        |samples| {
            for (at, path) in &paths {
                for kind in UnitKind::ALL.map(UnitKind::name) {
                    let count = path.units.get(kind).copied().unwrap_or(0);
                    samples.add(format!("{at},kind=\"{kind}\""), count);
                }
            }
        },
    );
    // A guest can open a device several times: what its subchannels of one number have done is added up.
    let subchannels: Vec<_> = units
        .iter()
        .flat_map(|unit| unit.subchannels.iter().map(move |subchannel| (unit, subchannel)))
        .map(|(unit, subchannel)| {
            let at = labels(&[
                ("unit", &unit.guest),
                ("guest", &subchannel.guest),
                ("device", &subchannel.device),
                ("channel_path", &subchannel.channel_path),
                ("subchannel", &subchannel.subchannel),
            ]);
            (at, subchannel)
        })
        .collect();
    page.each(SUBCHANNELS, &subchannels);
}
