//! The figures of one interval: what counters have grown by between two reports.

use std::collections::BTreeMap;

use host::report::{
    AdapterReport, Counts, DataDeviceReport, DataQueueReport, HalfReport, MemberReport, PathReport,
    SideReport, SystemReport, VolumeReport, VolumeState,
};

use crate::export::{FAILED, GIVEN_BACK, OPENED};
use crate::reported::{StackOf, both, each_member, each_stack, guest};

/// Figures of one thing for one interval. `now_ns` is the end of the interval, in nanoseconds of the machine's clock.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Row {
    Path(PathRow),
    /// A member of a LAN.
    Lan(LanRow),
    Stack(StackRow),
    /// A data device at an adapter.
    Device(DeviceRow),
    Volume(VolumeRow),
    /// A device that a guest has open, all its subchannels together.
    Disk(DiskRow),
}

#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct PathRow {
    now_ns: u64,
    pub path: u64,
    pub from: String,
    pub to: String,
    pub messages_per_s: f64,
    pub bytes_per_s: f64,
    pub polls_per_s: f64,
    pub polls_empty_per_s: f64,
    pub rings_per_s: f64,
    pub sleeps_per_s: f64,
    /// Of one processor, both sides together.
    pub spinning_percent: f64,
    pub lent_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct LanRow {
    now_ns: u64,
    pub lan: String,
    pub guest: String,
    pub frames_sent_per_s: f64,
    pub bytes_sent_per_s: f64,
    pub frames_received_per_s: f64,
    pub bytes_received_per_s: f64,
    pub given_back_per_s: f64,
    pub dropped_per_s: f64,
}

#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct StackRow {
    now_ns: u64,
    pub stack: String,
    pub lan: String,
    pub guest: String,
    pub connections: u64,
    pub opened_per_s: f64,
    pub failed_per_s: f64,
    pub resent_per_s: f64,
    pub dropped_per_s: f64,
    pub buffers_in_use: u64,
    pub buffers_in_use_max: u64,
}

#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct DeviceRow {
    now_ns: u64,
    pub adapter: String,
    /// Of the port: see [`AdapterReport::carrier`].
    pub carrier: Option<String>,
    pub guest: String,
    pub path: u64,
    pub packets_in_per_s: f64,
    pub bytes_in_per_s: f64,
    pub packets_out_per_s: f64,
    pub bytes_out_per_s: f64,
    /// Doorbells rung for buffers that the guest reads.
    pub interrupts_per_s: f64,
    pub dropped_per_s: f64,
    /// Of one processor, the thread that serves the adapter: the same for all its devices.
    pub adapter_percent: f64,
}

#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct VolumeRow {
    now_ns: u64,
    pub unit: String,
    /// See [`host::report::VolumeReport::number`].
    pub number: usize,
    pub volume: String,
    pub state: VolumeState,
    pub hits_per_s: f64,
    pub misses_per_s: f64,
    pub cache_tracks: u32,
    pub cache_tracks_max: u32,
    pub cache_tracks_pinned: u32,
}

#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct DiskRow {
    now_ns: u64,
    pub unit: String,
    pub guest: String,
    pub device: String,
    pub starts_per_s: f64,
    pub samples_per_s: f64,
    /// The mean of the programs that have ended in the interval. None if none has.
    pub pending_us: Option<f64>,
    pub connect_us: Option<f64>,
    pub disconnect_us: Option<f64>,
}

/// Computes the figures of everything that is in both reports: paths, members of LANs, stacks, devices at adapters, volumes, disks.
pub fn rows(before: &SystemReport, now: &SystemReport) -> Vec<Row> {
    let seconds = now.now_ns.saturating_sub(before.now_ns).max(1) as f64 / 1e9;
    let interval = Interval { before, now, seconds };
    let rows = [
        interval.paths(),
        interval.lans(),
        interval.stacks(),
        interval.devices(),
        interval.volumes(),
        interval.disks(),
    ];
    rows.into_iter().flatten().collect()
}

/// Two reports, and the time between them.
struct Interval<'a> {
    before: &'a SystemReport,
    now: &'a SystemReport,
    seconds: f64,
}

impl Interval<'_> {
    /// How fast a counter has grown. Counters are what guests say: any numbers.
    fn rate(&self, old: u64, new: u64) -> f64 {
        new.saturating_sub(old) as f64 / self.seconds
    }

    /// How fast some counters have grown, together.
    fn rates(&self, old: &Counts, new: &Counts, is_meant: impl Fn(&str) -> bool) -> f64 {
        let meant = new.iter().filter(|(name, _)| is_meant(name));
        let rates = meant.map(|(name, new)| self.rate(old.get(name).copied().unwrap_or(0), *new));
        // The sum of no numbers is -0.
        rates.fold(0.0, |sum, rate| sum + rate)
    }

    fn paths(&self) -> Vec<Row> {
        let old: BTreeMap<u64, &PathReport> =
            self.before.paths.iter().map(|path| (path.path, path)).collect();
        let row = |path: &PathReport| {
            let old = old.get(&path.path)?;
            let grown = |halves: fn(&SideReport) -> &[HalfReport], name| {
                self.rate(sum(old, halves, name), sum(path, halves, name))
            };
            let sending = |name| grown(|side| &side.outputs, name);
            let all = |name| sending(name) + grown(|side| &side.inputs, name);
            Some(Row::Path(PathRow {
                now_ns: self.now.now_ns,
                path: path.path,
                from: guest(path, 0),
                to: guest(path, 1),
                messages_per_s: sending("messages"),
                bytes_per_s: sending("bytes"),
                polls_per_s: all("polls"),
                polls_empty_per_s: all("polls_empty"),
                rings_per_s: all("rings"),
                sleeps_per_s: all("sleeps"),
                spinning_percent: all("spinning_ns") / 1e7,
                lent_bytes: both(path, "lent_bytes"),
            }))
        };
        self.now.paths.iter().filter_map(row).collect()
    }

    fn lans(&self) -> Vec<Row> {
        let old: BTreeMap<_, _> = each_member(self.before).collect();
        let row = |(name, new): ((&str, &str), &MemberReport)| {
            let old = old.get(&name)?;
            let rate = |is_meant: &dyn Fn(&str) -> bool| {
                self.rates(&old.counters, &new.counters, is_meant)
            };
            Some(Row::Lan(LanRow {
                now_ns: self.now.now_ns,
                lan: name.0.to_owned(),
                guest: name.1.to_owned(),
                frames_sent_per_s: rate(&|name| name == "frames_sent"),
                bytes_sent_per_s: rate(&|name| name == "bytes_sent"),
                frames_received_per_s: rate(&|name| name == "frames_received"),
                bytes_received_per_s: rate(&|name| name == "bytes_received"),
                given_back_per_s: rate(&|name| GIVEN_BACK.contains(&name)),
                dropped_per_s: rate(&is_dropped),
            }))
        };
        each_member(self.now).filter_map(row).collect()
    }

    fn stacks(&self) -> Vec<Row> {
        let name = |one: &StackOf<'_>| (one.place.to_owned(), one.guest.to_owned());
        let old: BTreeMap<_, _> = each_stack(self.before).map(|one| (name(&one), one)).collect();
        let row = |one: StackOf<'_>| {
            let (lan, guest) = name(&one);
            let (old, new) = (old.get(&name(&one))?.stack, one.stack);
            let rate = |is_meant: &dyn Fn(&str) -> bool| {
                self.rates(&old.counters, &new.counters, is_meant)
            };
            Some(Row::Stack(StackRow {
                now_ns: self.now.now_ns,
                stack: one.name().to_owned(),
                lan,
                guest,
                connections: new.connections,
                opened_per_s: rate(&|name| OPENED.contains(&name)),
                failed_per_s: rate(&|name| FAILED.contains(&name)),
                resent_per_s: rate(&|name| name == "segments_resent"),
                dropped_per_s: rate(&is_dropped),
                buffers_in_use: new.pool.in_use,
                buffers_in_use_max: new.pool.in_use_max,
            }))
        };
        each_stack(self.now).filter_map(row).collect()
    }

    fn devices(&self) -> Vec<Row> {
        let old: BTreeMap<_, _> = each_device(self.before).collect();
        let row = |(of, (adapter, new)): ((&str, u64), (&AdapterReport, &DataDeviceReport))| {
            let (was, old) = old.get(&of)?;
            let rate = |queues: fn(&DataDeviceReport) -> &[DataQueueReport],
                        count: fn(&DataQueueReport) -> u64| {
                let all = |of| queues(of).iter().map(count).fold(0, u64::saturating_add);
                self.rate(all(old), all(new))
            };
            Some(Row::Device(DeviceRow {
                now_ns: self.now.now_ns,
                adapter: of.0.to_owned(),
                carrier: adapter.carrier.clone(),
                guest: new.guest.clone(),
                path: new.path,
                packets_in_per_s: rate(|of| &of.inputs, |queue| queue.packets),
                bytes_in_per_s: rate(|of| &of.inputs, |queue| queue.bytes),
                packets_out_per_s: rate(|of| &of.outputs, |queue| queue.packets),
                bytes_out_per_s: rate(|of| &of.outputs, |queue| queue.bytes),
                interrupts_per_s: rate(|of| &of.inputs, |queue| queue.rings),
                dropped_per_s: self.rate(old.dropped, new.dropped),
                adapter_percent: self.rate(was.cpu_ns, adapter.cpu_ns) / 1e7,
            }))
        };
        each_device(self.now).filter_map(row).collect()
    }

    fn volumes(&self) -> Vec<Row> {
        let old: BTreeMap<_, _> = each_volume(self.before).collect();
        let row = |(of, new): ((&str, usize), &VolumeReport)| {
            let old = old.get(&of)?;
            Some(Row::Volume(VolumeRow {
                now_ns: self.now.now_ns,
                unit: of.0.to_owned(),
                number: new.number,
                volume: new.volume.clone(),
                state: new.state,
                hits_per_s: self.rate(old.cache_hits, new.cache_hits),
                misses_per_s: self.rate(old.cache_misses, new.cache_misses),
                cache_tracks: new.cache_tracks,
                cache_tracks_max: new.cache_tracks_max,
                cache_tracks_pinned: new.cache_tracks_pinned,
            }))
        };
        each_volume(self.now).filter_map(row).collect()
    }

    fn disks(&self) -> Vec<Row> {
        let old = disks(self.before);
        let row = |(of, new): ((&str, &str, &str), Block)| {
            let old = old.get(&of)?;
            let grown = |word: usize| new[word].saturating_sub(old[word]);
            let samples = grown(1);
            let mean = |word| (samples > 0).then(|| grown(word) as f64 / samples as f64 / 1e3);
            Some(Row::Disk(DiskRow {
                now_ns: self.now.now_ns,
                unit: of.0.to_owned(),
                guest: of.1.to_owned(),
                device: of.2.to_owned(),
                starts_per_s: self.rate(old[0], new[0]),
                samples_per_s: self.rate(old[1], new[1]),
                pending_us: mean(2),
                connect_us: mean(3),
                disconnect_us: mean(4),
            }))
        };
        disks(self.now).into_iter().filter_map(row).collect()
    }
}

/// Adds up a counter of those halves of both sides that `halves` picks.
fn sum(path: &PathReport, halves: fn(&SideReport) -> &[HalfReport], name: &str) -> u64 {
    let halves = path.sides.iter().flat_map(halves);
    let counts = halves.filter_map(|half| half.counts.get(name));
    counts.fold(0, |sum, count| sum.saturating_add(*count))
}

fn is_dropped(counter: &str) -> bool {
    counter.starts_with("dropped_")
}

/// The data devices of all adapters, by adapter and path.
fn each_device(
    report: &SystemReport,
) -> impl Iterator<Item = ((&str, u64), (&AdapterReport, &DataDeviceReport))> {
    report.adapters.iter().flat_map(|adapter| {
        let devices = adapter.devices.iter();
        devices.map(move |device| ((adapter.adapter.as_str(), device.path), (adapter, device)))
    })
}

/// The volumes of all control units, by control unit and number.
fn each_volume(report: &SystemReport) -> impl Iterator<Item = ((&str, usize), &VolumeReport)> {
    report.control_units.iter().flat_map(|unit| {
        let volumes = unit.volumes.iter();
        volumes.map(|volume| ((unit.guest.as_str(), volume.number), volume))
    })
}

/// Starts, samples, and the nanoseconds of function pending, connect and disconnect time.
type Block = [u64; 5];

/// What is measured of the subchannels, by control unit, guest and device.
fn disks(report: &SystemReport) -> BTreeMap<(&str, &str, &str), Block> {
    let mut disks: BTreeMap<_, Block> = BTreeMap::new();
    for unit in &report.control_units {
        for one in &unit.subchannels {
            let of = (unit.guest.as_str(), one.guest.as_str(), one.device.as_str());
            let block = [
                one.starts,
                one.samples,
                one.function_pending_ns,
                one.connect_ns,
                one.disconnect_ns,
            ];
            for (sum, word) in disks.entry(of).or_default().iter_mut().zip(block) {
                *sum = sum.saturating_add(word);
            }
        }
    }
    disks
}

#[cfg(test)]
pub mod tests {
    use serde_json::json;

    use super::*;

    /// A report in which every counter stands at `count`, and every name is as long as it can be.
    fn report(now_ns: u64, count: u64) -> SystemReport {
        let half = json!({
            "asleep": false,
            "counts": { "messages": count, "bytes": count, "spinning_ns": count, "lent_bytes": count },
        });
        let side = |guest: &str| json!({ "guest": guest, "outputs": [half], "inputs": [half] });
        let counters = json!({
            "frames_sent": count, "bytes_sent": count, "full": count, "dropped_length": count,
            "connected": count, "reset": count, "segments_resent": count,
        });
        let pool = json!({
            "buffer_bytes": 1, "in_use": count, "in_use_max": count, "high_water": 0, "free": 0,
        });
        let stack = json!({
            "shown_ns": 0, "mtu": 1500, "connections": count, "time_wait": 0, "pool": pool,
            "counters": counters, "sockets": [],
        });
        let member = json!({
            "number": 0, "guest": "GUESTTWO", "mac": "", "addresses": [], "vlans": [], "captures": false,
            "counters": counters, "stack": stack,
        });
        let small = count.min(u32::MAX.into());
        let volume = json!({
            "number": 0, "volume": "VOLUME WITHOUT END", "file": "", "cylinders": 1, "state": "read-only",
            "damaged_tracks": [], "cache_tracks_max": small, "cache_tracks": small,
            "cache_tracks_pinned": small, "cache_hits": count, "cache_misses": count,
        });
        let subchannel = json!({
            "guest": "GUESTONE", "device": "DEVICE WITHOUT END", "channel_path": 0, "subchannel": 0,
            "starts": count, "samples": 2, "function_pending_ns": count, "connect_ns": 0,
            "disconnect_ns": 0, "control_unit_queuing_ns": 0, "device_active_only_ns": 0,
            "initial_command_response_ns": 0,
        });
        let earlier = |samples| {
            let mut subchannel = subchannel.clone();
            subchannel["samples"] = json!(samples);
            subchannel
        };
        let samples = if count == 0 { 0 } else { 2 };
        let queue = json!({
            "packets": count, "bytes": count, "buffers": 0, "rings": count, "polls": 0,
            "polls_empty": 0, "sleeps": 0, "unproductive": 0, "exhausted": 0, "storage_bytes": 0,
            "storage_used_bytes": 0, "primed": 0, "empty": 0, "pending": 0,
        });
        let report = json!({
            "now_ns": now_ns, "guests": [], "resources": [],
            "paths": [{
                "path": 4_294_967_295_u64, "kind": "messages", "state": "joined",
                "sides": [side("GUESTONE"), side("GUESTTWO")],
            }],
            "lans": [{
                "name": "longname", "frame_bytes": 1, "mtu": 1, "range": "", "members": [member],
            }],
            "adapters": [{
                "adapter": "ADAPTER1", "cpu_ns": count, "spinning_ns": 0,
                "devices": [{
                    "guest": "GUESTONE", "path": 4_294_967_295_u64, "dropped": count,
                    "inputs": [queue], "outputs": [queue, queue],
                }],
            }],
            "control_units": [{
                "guest": "UNITUNIT", "volumes": [volume],
                // A device that is opened twice.
                "subchannels": [earlier(samples), earlier(samples)],
            }],
        });
        serde_json::from_value(report).unwrap()
    }

    /// Two reports with the largest numbers that there can be.
    pub fn large() -> (SystemReport, SystemReport) {
        (report(0, 0), report(1_000_000_000, u64::MAX))
    }

    #[test]
    fn rate_of_no_counters_is_zero_without_a_sign() {
        let report = report(0, 0);
        let interval = Interval { before: &report, now: &report, seconds: 1.0 };
        let rate = interval.rates(&Counts::new(), &Counts::new(), |_| true);
        assert_eq!(rate.to_string(), "0");
    }

    #[test]
    fn figures_are_differences_over_the_time_between() {
        let rows = rows(&report(1_000, 0), &report(2_000_001_000, 1_000));
        assert_eq!(rows.len(), 6);
        let rows: Vec<serde_json::Value> =
            rows.iter().map(|row| serde_json::to_value(row).unwrap()).collect();
        let [path, lan, stack, device, volume, disk] = &rows[..] else { panic!() };
        assert_eq!(
            (&path["kind"], &path["from"], &path["messages_per_s"]),
            (&json!("path"), &json!("GUESTONE"), &json!(1000.0))
        );
        assert_eq!(path["spinning_percent"], json!(0.0002), "4000 ns of all halves in 2 s");
        assert_eq!(
            (&lan["kind"], &lan["frames_sent_per_s"], &lan["frames_received_per_s"]),
            (&json!("lan"), &json!(500.0), &json!(0.0))
        );
        assert_eq!(
            (&lan["given_back_per_s"], &lan["dropped_per_s"]),
            (&json!(500.0), &json!(500.0))
        );
        assert_eq!(
            (&stack["kind"], &stack["opened_per_s"], &stack["failed_per_s"]),
            (&json!("stack"), &json!(500.0), &json!(500.0))
        );
        assert_eq!(
            (&device["kind"], &device["packets_in_per_s"], &device["packets_out_per_s"]),
            (&json!("device"), &json!(500.0), &json!(1000.0)),
            "all queues together"
        );
        assert_eq!((&volume["kind"], &volume["hits_per_s"]), (&json!("volume"), &json!(500.0)));
        assert_eq!(
            (&disk["kind"], &disk["starts_per_s"], &disk["pending_us"]),
            (&json!("disk"), &json!(1000.0), &json!(0.5)),
            "both opens together"
        );
        let earlier = report(3_000_001_000, 1_000);
        let later = super::rows(&earlier, &report(4_000_001_000, 1_000));
        let disk = serde_json::to_value(later.last().unwrap()).unwrap();
        assert_eq!(disk["pending_us"], json!(null), "no program has ended");
        assert!(super::rows(&SystemReport::default(), &earlier).is_empty());
    }

    #[test]
    fn counters_that_a_guest_has_made_up_are_only_large() {
        let (before, now) = large();
        let rows = rows(&before, &now);
        let Row::Path(path) = &rows[0] else { panic!() };
        assert!(path.messages_per_s > 1e17);
        // Smaller than before.
        for row in super::rows(&now, &before) {
            let row = serde_json::to_value(row).unwrap();
            let rates = row.as_object().unwrap().iter();
            rates.filter(|(name, _)| name.ends_with("_per_s")).for_each(|(name, rate)| {
                assert_eq!(rate.as_f64(), Some(0.0), "{name}");
            });
        }
    }
}
