//! Random reads and writes of volumes by channel programs, in both modes, and by the kernel's calls on a plain file.
//!
//! A guest for each device starts I/Os of some records at random places, a number of them at a time, and verifies what it
//! reads. One thread runs channel and control unit, the role `channel`: its processor time, less what it polls without
//! finding anything, is what CP pays.
//!
//! Every record says which it is, so that a guest knows it whoever wrote it last. See [`content`].

mod channel;
mod content;
mod each;
mod guest;
mod peer;

use siga::disk::ckd::model::HEADS;

use super::check_work;
use super::prelude::*;
use crate::placement::Placement;
use crate::role::ONE;

pub(super) const WORKLOAD: Workload = Workload {
    name: "io3390",
    summary: "guests start I/Os at random places of volumes, by channel programs of either mode or by the kernel's calls",
    factors: &[
        Factor {
            name: "mode",
            meaning: "how an I/O goes: a chain of commands, one transport command; or calls of the kernel on a plain file, its mapped pages, its rings",
            domain: Domain::Words(&[
                "command",
                "transport",
                CALLS,
                TWO_CALLERS,
                MAPPED,
                RING,
                POLLED_RING,
                COPY_LIMIT,
            ]),
            usual: &["command", "transport"],
        },
        Factor {
            name: "read_percent",
            meaning: "how many I/Os of a hundred read",
            domain: Domain::Number { least: 0, most: 100 },
            usual: &["100"],
        },
        Factor {
            name: "records",
            meaning: "records of 4096 bytes of an I/O, one after the other",
            domain: Domain::Number { least: 1, most: 255 },
            usual: &["1", "64"],
        },
        Factor {
            name: "depth",
            meaning: "I/Os of a guest that are under way",
            domain: Domain::Number { least: 1, most: 128 },
            usual: &["1"],
        },
        Factor {
            name: "disk",
            meaning: "what a guest has: a volume for itself, read in place; a volume with others; 83 cylinders of one",
            domain: Domain::Words(&[DEDICATED, FULL_PACK, PARTIAL_PACK]),
            usual: &[DEDICATED],
        },
        Factor {
            name: "look_bytes",
            meaning: "bytes of each record read that the guest verifies: a data rate is of these",
            domain: Domain::Number { least: 64, most: 4096 },
            usual: &["4096"],
        },
        Factor {
            name: "volumes",
            meaning: "volumes",
            domain: Domain::Number { least: 1, most: 8 },
            usual: &["1"],
        },
        Factor {
            name: "guests_per_volume",
            meaning: "guests of each volume",
            domain: Domain::Number { least: 1, most: 10 },
            usual: &["1"],
        },
        Factor {
            name: "cylinders",
            meaning: "cylinders of a volume: more if its guests need more",
            domain: Domain::Number { least: 2, most: 10_017 },
            usual: &["100"],
        },
        Factor {
            name: "storage",
            meaning: "where the files of the volumes are: in memory, where a sync does nothing, or on the disk of temporary files",
            domain: Domain::Words(&["memory", "disk"]),
            usual: &["memory"],
        },
        Factor {
            name: "reads",
            meaning: "where tracks come from: the control unit's cache, or the disk, by direct reads; a ring of the kernel's reads the same places directly",
            domain: Domain::Words(&[CACHED, DIRECT]),
            usual: &[CACHED],
        },
        Factor {
            name: "minidisk_cache",
            meaning: "whether tracks that were read for a guest of a shared volume stay in the control unit's cache",
            domain: Domain::Words(&["on", OFF]),
            usual: &["on"],
        },
        Factor { usual: &["spin"], ..WAIT },
    ],
    roles: &[
        RoleSpec { name: CHANNEL, attends: true, ..ONE },
        RoleSpec {
            name: GUEST,
            count: |factors| Layout::of(factors).guests(),
            place: Placement::Shared,
            is_measured: true,
            peer: Some(CHANNEL),
            ..ONE
        },
    ],
    measures: &[&[
        "rate_ios_per_s",
        "rate_ios_per_cpu_s",
        "rate_bytes_per_s",
        "service_ns_per_io",
        "disconnect_ns_per_io",
        "channel_busy_cpu_ns_per_io",
        "channel_spinning_ns_per_io",
        "guest_cpu_ns_per_io",
        "latency_p50_ns",
        "latency_p99_ns",
        "units_per_io",
        "unit_commands_per_io",
        "unit_responses_per_io",
        "unit_data_per_io",
        "unit_status_per_io",
        "unit_transport_per_io",
        "unit_ready_per_io",
    ]],
    fit,
    set_up_time,
    work,
    unit: "ios",
    check,
    ..PLAIN
};

/// The roles.
const CHANNEL: &str = "channel";
const GUEST: &str = "guest";

/// Peers, which do without a channel.
const CALLS: &str = "calls";
const TWO_CALLERS: &str = "calls-two";
const MAPPED: &str = "mmap";
const RING: &str = "io-uring";
const POLLED_RING: &str = "io-uring-polled";
const COPY_LIMIT: &str = "copy-limit";

const CACHED: &str = "cached";
const DIRECT: &str = "direct";

const OFF: &str = "off";

const DEDICATED: &str = "dedicated";
const FULL_PACK: &str = "full-pack";
const PARTIAL_PACK: &str = "partial-pack";

/// Cylinders of a minidisk that is a part of a volume.
const PART_CYLINDERS: u32 = 83;

/// Bytes of a record.
const RECORD_BYTES: usize = siga::disk::BLOCK_BYTES;

/// The number that a factor has; 1 if it does not apply.
fn count(factors: &Factors, name: &str) -> usize {
    number(factors, name).unwrap_or(1) as usize
}

/// Bytes of an I/O that are verified: all of a write is made anew, of a record read the guest looks at some.
fn verified_bytes(factors: &Factors) -> f64 {
    let of = |name: &str, usual| number(factors, name).unwrap_or(usual) as f64;
    let read_part = of("read_percent", 100) / 100.0;
    let looked = of("look_bytes", RECORD_BYTES as u64);
    of("records", 1) * (read_part * looked + (1.0 - read_part) * RECORD_BYTES as f64)
}

/// Whether an I/O is a channel program.
fn has_channel(factors: &Factors) -> bool {
    let peers = [CALLS, TWO_CALLERS, MAPPED, RING, POLLED_RING, COPY_LIMIT];
    !peers.contains(&word(factors, "mode"))
}

fn fit(factors: &mut Factors) {
    let is_peer = !has_channel(factors);
    let mode = word(factors, "mode").to_owned();
    let mut remove = |names: &[&str]| factors.retain(|name, _| !names.contains(&&**name));
    if is_peer {
        remove(&["disk", "volumes", "guests_per_volume", "minidisk_cache", "wait"]);
    }
    if mode == COPY_LIMIT {
        remove(&["read_percent", "look_bytes", "storage", "reads"]);
    }
    if [TWO_CALLERS, MAPPED].contains(&&*mode) {
        factors.insert("read_percent".to_owned(), Level::Number(100));
    }
    let only_reads = number(factors, "read_percent") == Some(100);
    // Peers write plain files, which are in the page cache; so are mapped pages.
    if is_peer && (!only_reads || mode == MAPPED) {
        factors.remove("reads");
    }
    // Calls read one after the other, and write as many before a sync as there are I/Os under way.
    if [CALLS, TWO_CALLERS, MAPPED].contains(&&*mode) && only_reads {
        factors.remove("depth");
    }
    if word(factors, "disk") == DEDICATED {
        factors.insert("guests_per_volume".to_owned(), Level::Number(1));
        factors.remove("minidisk_cache");
    }
}

/// What making a track of a volume takes, opening it and reading it once; and a track of a peer's file. On two virtual processors
/// that do nothing else it took 130 us and 60; beside eight busy threads five times as long.
const VOLUME_TRACK_TIME: Duration = Duration::from_micros(200);
const PEER_TRACK_TIME: Duration = Duration::from_micros(60);
/// The same of writing a track to a disk, which differs most.
const DISK_TRACK_TIME: Duration = Duration::from_micros(60);
/// Starting a guest and opening its device, beyond what every trial takes.
const GUEST_TIME: Duration = Duration::from_millis(10);

fn set_up_time(factors: &Factors) -> Duration {
    let layout = Layout::of(factors);
    let tracks = layout.volumes as u32 * layout.cylinders * HEADS;
    let is_on_disk = word(factors, "storage") == "disk";
    let written = if is_on_disk { DISK_TRACK_TIME } else { Duration::ZERO };
    if !has_channel(factors) {
        return (PEER_TRACK_TIME + written) * tracks;
    }
    (VOLUME_TRACK_TIME + written) * tracks + GUEST_TIME * layout.guests() as u32
}

fn work(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let has_channel = has_channel(&order.factors);
    match (&*order.role, has_channel) {
        (CHANNEL, true) => channel::work(order, control),
        (CHANNEL, false) => super::attend(control),
        (_, true) => guest::work(order, control),
        (_, false) => peer::work(order, control),
    }
}

fn check(reports: &Reports) -> Result<(), Fault> {
    let guests = reports.0.iter().filter(|party| party.role == GUEST).cloned();
    check_work(&Reports(guests.collect()), "ios")
}

/// The devices of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    volumes: usize,
    guests_per_volume: usize,
    /// Of a volume.
    cylinders: u32,
    is_partial: bool,
}

impl Layout {
    fn of(factors: &Factors) -> Layout {
        let guests_per_volume = count(factors, "guests_per_volume");
        let is_partial = word(factors, "disk") == PARTIAL_PACK;
        let parts = if is_partial { guests_per_volume as u32 * PART_CYLINDERS } else { 0 };
        Layout {
            volumes: count(factors, "volumes"),
            guests_per_volume,
            cylinders: (count(factors, "cylinders") as u32).max(parts),
            is_partial,
        }
    }

    fn guests(&self) -> usize {
        self.volumes * self.guests_per_volume
    }

    /// The name of a guest's device.
    fn device(&self, guest: usize) -> String {
        let (volume, part) = (guest / self.guests_per_volume, guest % self.guests_per_volume);
        if self.is_partial { format!("D{volume}P{part}") } else { format!("D{volume}") }
    }

    /// The first cylinder of a guest's device.
    fn first_cylinder(&self, guest: usize) -> u32 {
        let part = (guest % self.guests_per_volume) as u32;
        if self.is_partial { part * PART_CYLINDERS } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factors(levels: &[(&str, Level)]) -> Factors {
        levels.iter().map(|(name, level)| ((*name).to_owned(), level.clone())).collect()
    }

    #[test]
    fn factors_that_do_not_apply_are_left_out() {
        let word = |word: &str| Level::Word(word.to_owned());
        let fitted = |mode: &str, read_percent| {
            let mut factors = factors(&[
                ("mode", word(mode)),
                ("read_percent", Level::Number(read_percent)),
                ("depth", Level::Number(8)),
                ("disk", word(DEDICATED)),
                ("guests_per_volume", Level::Number(10)),
                ("reads", word(DIRECT)),
                ("minidisk_cache", word("on")),
                ("wait", word("spin")),
            ]);
            fit(&mut factors);
            let shown =
                ["mode", "depth", "disk", "guests_per_volume", "reads", "minidisk_cache", "wait"];
            crate::factor::describe(&factors, &shown)
        };
        assert_eq!(fitted("command", 100), "command, 8, dedicated, 1, direct, spin");
        assert_eq!(fitted("calls", 100), "calls, direct");
        assert_eq!(fitted("calls", 33), "calls, 8");
        assert_eq!(fitted("calls-two", 33), "calls-two, direct");
        assert_eq!(fitted("mmap", 33), "mmap");
        assert_eq!(fitted("io-uring", 100), "io-uring, 8, direct");
        assert_eq!(fitted("io-uring", 33), "io-uring, 8");
        assert_eq!(fitted("copy-limit", 100), "copy-limit, 8");
    }

    #[test]
    fn time_to_set_up_grows_with_volumes_and_their_cylinders() {
        let time = |mode: &str, volumes, cylinders| {
            set_up_time(&factors(&[
                ("mode", Level::Word(mode.to_owned())),
                ("volumes", Level::Number(volumes)),
                ("cylinders", Level::Number(cylinders)),
            ]))
        };
        assert!(time("transport", 8, 100) >= 8 * (time("transport", 1, 100) - GUEST_TIME));
        assert!(time("calls", 1, 2800) > 20 * time("calls", 1, 100));
    }

    #[test]
    fn data_rate_is_of_bytes_that_are_verified() {
        let of = |read_percent, look_bytes| {
            verified_bytes(&factors(&[
                ("read_percent", Level::Number(read_percent)),
                ("records", Level::Number(64)),
                ("look_bytes", Level::Number(look_bytes)),
            ]))
        };
        assert_eq!((of(100, 4096), of(100, 64), of(0, 64)), (262_144.0, 4096.0, 262_144.0));
        assert_eq!(of(50, 64), (262_144.0 + 4096.0) / 2.0);
        // Copying alone has neither.
        assert_eq!(verified_bytes(&factors(&[("records", Level::Number(2))])), 8192.0);
    }

    #[test]
    fn parts_of_a_volume_are_apart_and_on_it() {
        let layout = Layout::of(&factors(&[
            ("disk", Level::Word(PARTIAL_PACK.to_owned())),
            ("volumes", Level::Number(2)),
            ("guests_per_volume", Level::Number(3)),
            ("cylinders", Level::Number(100)),
        ]));
        assert_eq!(layout.cylinders, 249);
        assert_eq!((layout.device(4), layout.first_cylinder(4)), ("D1P1".to_owned(), 83));
    }
}
