//! What control units show: volumes, devices, channel paths and subchannels.

use comfy_table::Table;
use host::report::{ControlUnitReport, SubchannelReport};

use crate::output::table;

/// The volumes of all control units.
pub fn volumes(units: &[ControlUnitReport]) -> Table {
    let heads = [
        "control unit",
        "volume",
        "state",
        "reads",
        "writes",
        "sync",
        "file",
        "cylinders",
        "cached tracks",
        "of",
        "pinned",
        "hits",
        "misses",
    ];
    let mut table = table(&heads, 7);
    for (unit, volume) in units.iter().flat_map(|unit| {
        let volumes = unit.volumes.iter();
        volumes.map(move |volume| (unit, volume))
    }) {
        table.add_row([
            unit.guest.clone(),
            volume.volume.clone(),
            match &volume.failure {
                Some(why) => format!("{}: {why}", volume.state),
                None => volume.state.to_string(),
            },
            volume.reading.to_string(),
            volume.writing.map_or_else(|| "-".to_owned(), |writing| writing.to_string()),
            volume.sync.map_or_else(|| "-".to_owned(), |sync| sync.to_string()),
            volume.file.clone(),
            volume.cylinders.to_string(),
            volume.cache_tracks.to_string(),
            volume.cache_tracks_max.to_string(),
            volume.cache_tracks_pinned.to_string(),
            volume.cache_hits.to_string(),
            volume.cache_misses.to_string(),
        ]);
    }
    table
}

/// The devices of all control units, by guest.
pub fn devices(units: &[ControlUnitReport]) -> Table {
    let heads = [
        "guest",
        "device",
        "kind",
        "access",
        "cache",
        "control unit",
        "volume",
        "cylinders",
        "from",
        "open",
    ];
    let mut table = table(&heads, 7);
    let mut devices: Vec<_> = units
        .iter()
        .flat_map(|unit| unit.devices.iter().map(move |device| (unit, device)))
        .collect();
    devices.sort_by_key(|(_, device)| (&device.guest, &device.device));
    for (unit, device) in devices {
        let of_volume = unit.volumes.iter().find(|volume| volume.number == device.volume_number);
        // A name that another volume has too says nothing: the file does.
        let mut others = unit.volumes.iter().filter(|other| other.number != device.volume_number);
        let is_shared = others.any(|other| other.volume == device.volume);
        let volume = match of_volume.filter(|_| is_shared) {
            Some(volume) => format!("{} ({})", device.volume, volume.file),
            None => device.volume.clone(),
        };
        let is_whole = device.first_cylinder == 0
            && of_volume.is_some_and(|volume| volume.cylinders == device.cylinders);
        let others = if device.has_others { ".." } else { "" };
        table.add_row([
            device.guest.as_ref().map_or("any".to_owned(), |guest| format!("{guest}{others}")),
            device.device.clone(),
            match (device.dedicated, is_whole) {
                (true, _) => "dedicated",
                (false, true) => "full-pack",
                (false, false) => "minidisk",
            }
            .to_owned(),
            if device.read_only { "read" } else { "write" }.to_owned(),
            if device.cache { "on" } else { "off" }.to_owned(),
            unit.guest.clone(),
            volume,
            device.cylinders.to_string(),
            device.first_cylinder.to_string(),
            device.open.to_string(),
        ]);
    }
    table
}

/// The channel paths of all control units, with a row for each kind of unit that has crossed them.
pub fn channel_paths(units: &[ControlUnitReport]) -> Table {
    let heads = ["control unit", "channel path", "information unit", "guests", "count"];
    let mut table = table(&heads, 3);
    for unit in units {
        for path in &unit.channel_paths {
            let nothing = || std::iter::once(("-", 0));
            let counts: Vec<(&str, u64)> = match path.units.is_empty() {
                true => nothing().collect(),
                false => path.units.iter().map(|(kind, count)| (kind.as_str(), *count)).collect(),
            };
            for (kind, count) in counts {
                table.add_row([
                    unit.guest.clone(),
                    path.channel_path.to_string(),
                    kind.to_owned(),
                    path.guests.to_string(),
                    count.to_string(),
                ]);
            }
        }
    }
    table
}

/// The subchannels of all control units, with mean times of their samples in microseconds.
pub fn subchannels(units: &[ControlUnitReport]) -> Table {
    let heads = [
        "control unit",
        "guest",
        "device",
        "subchannel",
        "path",
        "starts",
        "samples",
        "pending us",
        "connect us",
        "disconnect us",
        "queuing us",
        "active us",
        "response us",
    ];
    let mut table = table(&heads, 3);
    // What a guest says of others is its own affair: so it is said whose words these are.
    let each = |unit: &ControlUnitReport| (unit.guest.clone(), unit.subchannels.clone());
    let each = units.iter().map(each).flat_map(|(unit, subchannels)| {
        subchannels.into_iter().map(move |subchannel| (unit.clone(), subchannel))
    });
    for (unit, subchannel) in each {
        let SubchannelReport { guest, device, samples, .. } = &subchannel;
        let mean = |total_ns: u64| match samples {
            0 => "-".to_owned(),
            samples => format!("{:.1}", total_ns as f64 / *samples as f64 / 1e3),
        };
        table.add_row([
            unit,
            guest.clone(),
            device.clone(),
            subchannel.subchannel.to_string(),
            subchannel.channel_path.to_string(),
            subchannel.starts.to_string(),
            samples.to_string(),
            mean(subchannel.function_pending_ns),
            mean(subchannel.connect_ns),
            mean(subchannel.disconnect_ns),
            mean(subchannel.control_unit_queuing_ns),
            mean(subchannel.device_active_only_ns),
            mean(subchannel.initial_command_response_ns),
        ]);
    }
    table
}
