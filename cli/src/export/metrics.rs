//! The metrics of a host's report.

use std::collections::BTreeMap;

use host::report::{Counts, GuestReport, HalfReport, LanReport, MemberReport, SystemReport};

use super::counted::{Counted, HALVES, LAN};
use super::page::Kind::{Counter, CounterNs, Gauge};
use super::page::{Of, Page, labels};
use super::{adapters, disks, lines, stacks};
use crate::query::Subject;
use crate::reported::is_conversation;

/// Writes the metrics of the subjects, or of all. Each metric has its help and type, also if it has no samples.
pub fn write(page: &mut Page, report: &SystemReport, subjects: &[Subject]) {
    let is_about = |wanted: &[Subject]| {
        subjects.is_empty() || wanted.iter().any(|wanted| subjects.contains(wanted))
    };
    if is_about(&[Subject::Guest]) {
        guests(page, report);
    }
    if is_about(&[Subject::Path, Subject::Iucv]) {
        let all = is_about(&[Subject::Path]);
        paths(page, report, all);
    }
    if is_about(&[Subject::Resource]) {
        resources(page, report);
    }
    if is_about(&[Subject::Lan]) {
        lans(page, &report.lans);
    }
    if is_about(&[Subject::Line]) {
        lines::lines(page, report);
    }
    if is_about(&[Subject::Tcpip]) {
        stacks::stacks(page, report);
        stacks::clients(page, report);
        stacks::drivers(page, report);
    }
    if is_about(&[Subject::Osa, Subject::Qdio]) {
        adapters::adapters(page, report);
    }
    if is_about(&[Subject::Dasd]) {
        disks::volumes(page, &report.control_units);
    }
    if is_about(&[Subject::Channel]) {
        disks::channels(page, &report.control_units);
    }
    if is_about(&[Subject::Limits]) {
        limits(page, report);
    }
}

const GUESTS: &[Of<GuestReport>] = &[
    ("siga_guest_paths", Gauge, "Paths of the guest.", |guest| guest.paths as u64),
    ("siga_guest_paths_max", Gauge, "Paths that the guest may have.", |guest| {
        guest.paths_max as u64
    }),
    ("siga_guest_storage_bytes", Gauge, "Storage that the guest's paths may lend.", |guest| {
        guest.storage_bytes
    }),
    ("siga_guest_storage_max_bytes", Gauge, "The most that the guest's paths may lend.", |guest| {
        guest.storage_bytes_max
    }),
];

fn guests(page: &mut Page, report: &SystemReport) {
    let guests = &report.guests;
    page.metric("siga_guests", Gauge, "Guests that are attached.", |samples| {
        samples.add(String::new(), guests.len() as u64);
    });
    page.metric("siga_guest_info", Gauge, "1, with the user of each guest.", |samples| {
        for guest in guests {
            samples.add(labels(&[("guest", &guest.name), ("user", &guest.user)]), 1_u64);
        }
    });
    let each: Vec<_> =
        guests.iter().map(|guest| (labels(&[("guest", &guest.name)]), guest)).collect();
    page.each(GUESTS, &each);
}

/// A half of a queue, with the labels of its direction.
struct Half<'a> {
    labels: String,
    is_reader: bool,
    half: &'a HalfReport,
}

/// The paths, or those of IUCV and APPC alone.
fn paths(page: &mut Page, report: &SystemReport, all: bool) {
    let paths: Vec<_> = report.paths.iter().filter(|path| all || is_conversation(path)).collect();
    let mut counts: BTreeMap<(String, String), u64> = BTreeMap::new();
    let mut halves = Vec::new();
    for path in &paths {
        *counts.entry((path.kind.clone(), path.state.to_string())).or_default() += 1;
        for (from, to) in [(0, 1), (1, 0)] {
            let (Some(source), Some(target)) = (path.sides.get(from), path.sides.get(to)) else {
                continue;
            };
            let writers =
                source.outputs.iter().enumerate().map(|(queue, half)| (queue, half, false));
            let readers = target.inputs.iter().enumerate().map(|(queue, half)| (queue, half, true));
            for (queue, half, is_reader) in writers.chain(readers) {
                let labels = labels(&[
                    ("path", &path.path),
                    ("from", &source.guest),
                    ("to", &target.guest),
                    ("queue", &queue),
                ]);
                halves.push(Half { labels, is_reader, half });
            }
        }
    }
    page.metric("siga_paths", Gauge, "Paths, by kind and state.", |samples| {
        for ((kind, state), count) in counts {
            samples.add(labels(&[("kind", &kind), ("state", &state)]), count);
        }
    });
    page.metric(
        "siga_path_info",
        Gauge,
        "1, with the kind of each path, the guest that asked for the path and the guest that was asked.",
        |samples| {
            for path in &paths {
                let side = |side: usize| path.sides.get(side).map_or("", |side| &side.guest);
                samples.add(
                    labels(&[
                        ("path", &path.path),
                        ("from", &side(0)),
                        ("to", &side(1)),
                        ("kind", &path.kind),
                    ]),
                    1_u64,
                );
            }
        },
    );
    let with_side = |half: &Half| {
        let side = if half.is_reader { "reader" } else { "writer" };
        format!("{},side=\"{side}\"", half.labels)
    };
    let value = |half: &Half, counter| half.half.counts.get(counter).copied().unwrap_or(0);
    for of in HALVES {
        let kind = match (of.is_gauge, of.counter.ends_with("_ns")) {
            (true, _) => Gauge,
            (false, true) => CounterNs,
            (false, false) => Counter,
        };
        let total = if of.is_gauge { "" } else { "_total" };
        let name = |name: &str| format!("siga_path_{name}{total}");
        let Some(of_reader) = of.of_reader else {
            page.metric(&name(of.name), kind, of.help, |samples| {
                for half in &halves {
                    samples.add(with_side(half), value(half, of.counter));
                }
            });
            continue;
        };
        for (is_reader, (metric, help)) in [(false, (of.name, of.help)), (true, of_reader)] {
            page.metric(&name(metric), kind, help, |samples| {
                for half in halves.iter().filter(|half| half.is_reader == is_reader) {
                    samples.add(half.labels.clone(), value(half, of.counter));
                }
            });
        }
    }
    page.metric(
        "siga_path_asleep",
        Gauge,
        "1 if the side sleeps until its doorbell rings.",
        |samples| {
            for half in &halves {
                samples.add(with_side(half), half.half.asleep);
            }
        },
    );
    page.metric(
        "siga_path_outstanding_messages_max",
        Gauge,
        "Messages of IUCV and APPC that the writer may have outstanding.",
        |samples| {
            for (half, limit) in halves.iter().filter_map(|half| Some((half, half.half.limit?))) {
                samples.add(with_side(half), limit);
            }
        },
    );
}

fn resources(page: &mut Page, report: &SystemReport) {
    page.metric(
        "siga_resource_info",
        Gauge,
        "1, with the scope of each resource and the guest that manages it.",
        |samples| {
            for resource in &report.resources {
                samples.add(
                    labels(&[
                        ("resource", &resource.name),
                        ("scope", &resource.scope),
                        ("manager", &resource.manager),
                    ]),
                    1_u64,
                );
            }
        },
    );
}

const LANS: &[Of<LanReport>] = &[
    ("siga_lan_members", Gauge, "Members of the LAN.", |lan| lan.members.len() as u64),
    ("siga_lan_mtu_bytes", Gauge, "The largest packet of IP that is not segmented.", |lan| {
        lan.mtu.into()
    }),
    ("siga_lan_frame_max_bytes", Gauge, "The largest frame.", |lan| lan.frame_bytes.into()),
];

fn lans(page: &mut Page, lans: &[LanReport]) {
    let each: Vec<_> = lans.iter().map(|lan| (labels(&[("lan", &lan.name)]), lan)).collect();
    page.each(LANS, &each);
    let members =
        || lans.iter().flat_map(|lan| lan.members.iter().map(move |member| (lan, member)));
    page.metric(
        "siga_lan_member_captures",
        Gauge,
        "1 if the member captures: others give it copies of the frames that they send.",
        |samples| {
            members().for_each(|(lan, member)| samples.add(at(lan, member), member.captures));
        },
    );
    let each: Vec<_> = members().map(|(lan, member)| (at(lan, member), &member.counters)).collect();
    add_counts(page, "siga_lan", LAN, &each);
}

/// The labels of a member of a LAN.
fn at(lan: &LanReport, member: &MemberReport) -> String {
    labels(&[("lan", &lan.name), ("guest", &member.guest)])
}

/// Writes metrics of counters that a report has by name.
pub fn add_counts(page: &mut Page, prefix: &str, table: &[Counted], each: &[(String, &Counts)]) {
    for metric in table {
        let name = format!("{prefix}_{}_total", metric.name);
        page.metric(&name, Counter, metric.help, |samples| {
            for (at, counts) in each {
                for counter in metric.of {
                    let value = counts.get(*counter).copied().unwrap_or(0);
                    let short = counter.strip_prefix("dropped_").unwrap_or(counter);
                    let labels = match metric.label {
                        Some(label) => format!("{at},{label}=\"{short}\""),
                        None => at.clone(),
                    };
                    samples.add(labels, value);
                }
            }
        });
    }
}

fn limits(page: &mut Page, report: &SystemReport) {
    let limits: Vec<_> = report
        .limits
        .iter()
        .map(|limit| (labels(&[("owner", &limit.owner), ("limit", &limit.limit)]), limit))
        .collect();
    page.metric(
        "siga_limit_used",
        Gauge,
        "How much the owner has; of a rate the events of the last second.",
        |samples| limits.iter().for_each(|(at, limit)| samples.add(at.clone(), limit.used)),
    );
    page.metric(
        "siga_limit_max",
        Gauge,
        "How much the owner may have, if that is limited.",
        |samples| {
            for (at, limit) in limits.iter().filter(|(_, limit)| limit.most != u64::MAX) {
                samples.add(at.clone(), limit.most);
            }
        },
    );
    page.metric(
        "siga_limit_refused_total",
        Counter,
        "How often more was refused, or, of a rate, had to wait.",
        |samples| limits.iter().for_each(|(at, limit)| samples.add(at.clone(), limit.refused)),
    );
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::exposition;
    use super::*;

    #[test]
    fn whatever_a_control_unit_and_a_stack_show_is_a_page_that_can_be_read() {
        let name = "a\"} 1\nsiga_up 0\n# \\";
        let volume = |number: usize| {
            json!({
                "number": number, "volume": name, "file": name, "cylinders": 3, "state": "failed",
                "damaged_tracks": [], "cache_tracks_max": 9, "cache_tracks": 8,
                "cache_tracks_pinned": 7, "cache_hits": u64::MAX, "cache_misses": 5,
            })
        };
        let device = json!({
            "device": name, "guest": name, "has_others": false, "volume": name, "first_cylinder": 0,
            "cylinders": 1, "read_only": true, "dedicated": false, "cache": true, "open": 2,
        });
        let subchannel = json!({
            "guest": name, "device": name, "channel_path": 1, "subchannel": 2, "starts": 3,
            "samples": 4, "function_pending_ns": 5, "connect_ns": 1_500_000_000_u64, "disconnect_ns": 7,
            "control_unit_queuing_ns": 8, "device_active_only_ns": 9,
            "initial_command_response_ns": 10,
        });
        let socket = json!({
            "state": name, "local": "10.1.0.1:80", "remote": null,
            "send_queue": 0, "receive_queue": 0, "resent": 0, "round_trip_ns": 0,
        });
        let pool = json!({
            "buffer_bytes": 1, "in_use": 2, "in_use_max": 3, "high_water": 4, "free": 5,
        });
        let client = json!({
            "guest": name, "sockets": 3, "sockets_max": 4, "buffers_bytes": 5,
            "buffers_bytes_max": 6, "requests": 7, "bytes_in": 8, "bytes_out": 9, "refused": 10,
            "turns_cut": 11,
        });
        let driver = json!({
            "name": "hs0", "lan": 0, "processor": 2, "polls": 1, "polls_empty": 2, "frames_in": 3,
            "frames_out": 4, "frames_waited": 5, "frames_dropped": 6, "sleeps": 7,
            "processor_ns": 1_500_000_000_u64, "takeovers": 9, "moves": 10,
        });
        let end = |guest: &str, driver: Option<Value>| json!({ "guest": guest, "address": "10.9.0.1", "is_attached": true, "driver": driver });
        let counted = json!({
            "messages_sent": 1, "bytes_sent": 2, "messages_received": 3, "bytes_received": 4,
            "sent_multi": 5, "packets_per_message_max": 6, "sending_ns": 2_500_000_000_u64,
            "dropped": 8,
        });
        let line = json!({
            "name": "line0", "kind": "ctc", "mtu": 9000, "state": "up",
            "ends": [end("LEFT", Some(counted)), end("RIGHT", None)],
        });
        let member = json!({
            "number": 0, "guest": name, "mac": "", "addresses": [], "vlans": [], "captures": true,
            "counters": { "full": 6, "dropped_source": 7 },
            "stack": {
                "shown_ns": 0, "mtu": 1500, "connections": 8, "time_wait": 0, "pool": pool,
                "counters": { "gone": 9 }, "sockets": [socket, socket],
                "machine": name, "clients": [client, client], "drivers": [driver],
            },
        });
        let report = json!({
            "now_ns": 0, "guests": [], "paths": [], "resources": [], "lines": [line],
            "lans": [{ "name": name, "frame_bytes": 1, "mtu": 1, "range": "", "members": [member] }],
            // Two volumes of a name, two devices and two subchannels that nothing tells apart.
            "control_units": [{
                "guest": name, "volumes": [volume(0), volume(1)], "devices": [device, device],
                "channel_paths": [{ "channel_path": 0, "guests": 1, "units": { "status": 11 } }],
                "subchannels": [subchannel, subchannel], "not_shown": 12,
            }],
        });
        let mut page = Page::default();
        write(&mut page, &serde_json::from_value(report).unwrap(), &[]);
        let page = exposition::Page::read(&page.text());
        let is = |metric: &str, labels: &[(&str, &str)], value: f64| {
            assert_eq!(page.value(metric, labels), value, "{metric}");
        };
        let at = [("lan", name), ("guest", name)];
        let with = |label, value| [at[0], at[1], (label, value)];
        is("siga_lan_frames_given_back_total", &with("reason", "full"), 6.0);
        is("siga_lan_frames_dropped_total", &with("reason", "source"), 7.0);
        is("siga_lan_frames_dropped_total", &with("reason", "vlan"), 0.0);
        let stack = [("stack", name), ("lan", name)];
        let of_stack = |label, value| [stack[0], stack[1], (label, value)];
        is("siga_stack_connections_failed_total", &of_stack("reason", "gone"), 9.0);
        is("siga_stack_sockets", &of_stack("state", name), 2.0);
        is("siga_stack_info", &[stack[0], stack[1], ("guest", name), ("machine", name)], 1.0);
        // Two clients of a name count together.
        is("siga_machine_client_sockets", &[("machine", name), ("client", name)], 6.0);
        let driver = [("stack", name), ("lan", "hs0")];
        is("siga_driver_processor_seconds_total", &driver, 1.5);
        is("siga_driver_info", &[driver[0], driver[1], ("processor", "2")], 1.0);
        is("siga_line_up", &[("line", "line0"), ("kind", "ctc")], 1.0);
        is("siga_line_sending_seconds_total", &[("line", "line0"), ("guest", "LEFT")], 2.5);
        is("siga_line_end_attached", &[("line", "line0"), ("guest", "RIGHT")], 1.0);
        let volume = [("unit", name), ("number", "1"), ("volume", name)];
        is("siga_volume_cache_hits_total", &volume, u64::MAX as f64);
        let failed = [volume[0], volume[1], volume[2], ("state", "failed")];
        is("siga_volume_state", &failed, 1.0);
        let device = [("unit", name), ("guest", name), ("device", name), ("volume", name)];
        is("siga_device_opens", &device, 4.0);
        let units = [("unit", name), ("channel_path", "0"), ("kind", "status")];
        is("siga_channel_path_units_total", &units, 11.0);
        let subchannel =
            [device[0], device[1], device[2], ("channel_path", "1"), ("subchannel", "2")];
        is("siga_subchannel_connect_seconds_total", &subchannel, 3.0);
        assert!(!page.types.contains_key("siga_up"), "nobody can say that the host is up");
    }
}
