//! The channel with its control unit, and the host beside them.

use std::os::fd::AsRawFd;

use siga::Guest;
use siga::disk::ckd::model::{HEADS, TRACK_BYTES};
use siga::disk::ckd::volume::Access;
use siga::disk::{Device, OpenVolume, Server, UnitKind};
use siga::host::{Embedded, System};

use super::content::{unnamed, write_volume};
use super::{CHANNEL, DEDICATED, DIRECT, GUEST, Layout, OFF};
use crate::measure::work_for;
use crate::role::Address;
use crate::transport::wait;
use crate::workload::prelude::*;
use crate::workload::{Service, serve_until_told};

/// The guest that has the volumes.
pub(super) const SERVER: &str = "DASD";

/// Tracks of which the cache has parts when tracks are read directly: a few for each I/O that is under way.
const DIRECT_SLOTS: usize = 256;

pub(super) fn work(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    os::memory::allow_descriptors(1 << 16);
    let layout = Layout::of(&order.factors);
    let socket = order.socket.as_ref().expect("there is a party that attends");
    let mut system = System::open();
    system.socket = Some(socket.clone());
    let host = Embedded::start(system).doing("start a host")?;
    let guest = Guest::attach_embedded(&host, SERVER).doing("attach to the host")?;
    let mut server = Server::new(guest, wait(order)).doing("make a server of volumes")?;
    let is_in_memory = order.word("storage") == "memory";
    // A slot more than there are tracks: everything is cached, and a write finds a second one.
    let slots = layout.cylinders as usize * HEADS as usize + 2;
    for volume in 0..layout.volumes {
        let unnamed = unnamed(is_in_memory).doing("make a file")?;
        write_volume(&unnamed, layout.cylinders).doing("write a volume")?;
        let file = format!("/proc/self/fd/{}", unnamed.as_raw_fd());
        let file = std::path::Path::new(&file);
        if word(&order.factors, "reads") == DIRECT {
            // What its tracks are like is known from the check.
            let open = OpenVolume::open_checked(file, Access::Write, |_| {});
            let open = open.doing("open a volume")?.read_directly();
            server.mount(open, DIRECT_SLOTS * TRACK_BYTES).doing("mount a volume")?;
            if let Some((_, why)) = server.direct_refused().next() {
                return Err(Fault::Unable(format!("no direct reads: {why}")));
            }
        } else {
            server.add_volume(file, Access::Write, slots * TRACK_BYTES).doing("open a volume")?;
        }
        let first = volume * layout.guests_per_volume;
        let devices = if layout.is_partial { layout.guests_per_volume } else { 1 };
        for guest in first..first + devices {
            let device = Device {
                volume,
                first_cylinder: layout.first_cylinder(guest),
                cylinders: layout.is_partial.then_some(super::PART_CYLINDERS),
                dedicated: order.word("disk") == DEDICATED,
                uncached: word(&order.factors, "minidisk_cache") == OFF,
                ..Device::default()
            };
            server.add_device(&layout.device(guest), device).doing("add a device")?;
        }
    }
    work_for(CHANNEL);
    control.announce()?;
    // What the channel costs and counts is of the I/Os that have ended in its own window.
    serve_until_told(order, control, &[("ios", 1.0)], &mut Channel { server, layout })
}

/// The server of volumes, and its guests.
struct Channel {
    server: Server,
    layout: Layout,
}

impl Service for Channel {
    fn serve_until(&mut self, until_ns: u64) -> Result<(), Fault> {
        self.server.serve_until(until_ns).doing("serve volumes")
    }

    /// I/Os that have ended so far, by the measurement blocks.
    fn done(&self) -> u64 {
        self.server.measurements().map(|(_, block)| block.samples).sum()
    }

    /// Information units by kind, and the measurement blocks of all subchannels.
    fn counts(&self) -> Counts {
        let mut counts = Counts::new();
        let mut add = |name: &str, count| *counts.entry(name.to_owned()).or_default() += count;
        for (kind, sent) in self.server.units() {
            let name = match kind {
                UnitKind::Command => "unit_commands",
                UnitKind::CommandResponse => "unit_responses",
                UnitKind::Data => "unit_data",
                UnitKind::Status => "unit_status",
                UnitKind::TransportCommand | UnitKind::TransportResponse => "unit_transport",
                UnitKind::TransferReady => "unit_ready",
                _ => continue,
            };
            add(name, sent);
            add("units", sent);
        }
        let mut service_ns = 0;
        for (_, block) in self.server.measurements() {
            service_ns += block.pending_ns + block.connect_ns + block.disconnect_ns;
            add("samples", block.samples);
            add("disconnect_ns", block.disconnect_ns);
        }
        add("service_ns", service_ns);
        // What is missing in the blocks of a guest that has one I/O under way at a time.
        let elapsed_ns = now_ns() * self.layout.guests() as u64;
        add("missing_ns", elapsed_ns.saturating_sub(service_ns));
        add("spinning_ns", self.server.spinning_ns());
        counts
    }

    /// A guest that leaves takes its measurement blocks along.
    fn let_go(&self, control: &Control) -> Result<(), Fault> {
        (0..self.layout.guests())
            .try_for_each(|guest| control.pass_to(&Address::of(GUEST, guest), "counted", &[]))
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use os::packets::Packets;
    use os::poller::wait_readable;

    use super::*;
    use crate::control::{FROM_WORKER_BYTES_MAX, FromWorker, ToWorker, hear, send};
    use crate::measure::Window;
    use crate::place::Place;

    /// The lab's end of a worker's connection.
    struct Worker(Packets);

    impl Worker {
        fn tell(&self, what: &ToWorker) {
            send(&self.0, what, &[]).unwrap();
        }

        fn hear(&self) -> FromWorker {
            loop {
                if let Some((said, _)) = hear(&self.0, FROM_WORKER_BYTES_MAX).unwrap() {
                    return said;
                }
                wait_readable(&self.0, None).unwrap();
            }
        }
    }

    /// The report of a guest, and that of a channel whose window ends twenty times as late. None of a guest who had no time in its window.
    fn played(window_ms: u64) -> (Option<Report>, Report) {
        let place = Place::make().unwrap();
        let word = |word: &str| Level::Word(word.to_owned());
        let number = Level::Number;
        let levels = [
            ("mode", word("command")),
            ("disk", word(DEDICATED)),
            ("storage", word("memory")),
            ("wait", word("block")),
            ("volumes", number(1)),
            ("guests_per_volume", number(1)),
            ("cylinders", number(3)),
            ("depth", number(2)),
            ("records", number(1)),
            ("read_percent", number(50)),
            ("look_bytes", number(4096)),
        ];
        let order = |role: &str| Order {
            role: role.to_owned(),
            copies: 1,
            is_thread: true,
            factors: levels.clone().map(|(name, level)| (name.to_owned(), level)).into(),
            socket: Some(place.file("host")),
            ..Order::default()
        };
        thread::scope(|scope| {
            let start = |role: &str| {
                let (ours, theirs) = Packets::pair().unwrap();
                let worker = Worker(ours);
                worker.tell(&ToWorker::Order(Box::new(order(role))));
                scope.spawn(|| {
                    let mut control = Control::over(theirs);
                    let order = control.receive_order(|_| unreachable!()).unwrap();
                    let done = super::super::work(&order, &mut control);
                    control.conclude(done).unwrap();
                });
                assert!(matches!(worker.hear(), FromWorker::Ready));
                worker
            };
            let (channel, guest) = (start(CHANNEL), start(GUEST));
            let start_ns = now_ns();
            let window = |ms: u64| Window { start_ns, end_ns: start_ns + ms * 1_000_000 };
            channel.tell(&ToWorker::Go(window(20 * window_ms)));
            guest.tell(&ToWorker::Go(window(window_ms)));
            let FromWorker::Parcel { to, note } = channel.hear() else { panic!("its word to go") };
            assert_eq!(to, Address::of(GUEST, 0));
            guest.tell(&ToWorker::Parcel { from: Some(Address::of(CHANNEL, 0)), note });
            let of_guest = match guest.hear() {
                FromWorker::Done(report) => Some(*report),
                other => {
                    assert!(matches!(other, FromWorker::Failed(_)), "{other:?}");
                    None
                }
            };
            channel.tell(&ToWorker::Parcel { from: None, note: "end".to_owned() });
            let FromWorker::Done(of_channel) = channel.hear() else { panic!("a report") };
            (of_guest, *of_channel)
        })
    }

    #[test]
    fn channel_counts_all_when_its_window_ends_long_after_that_of_its_guest() {
        // A machine that is busy beyond measure needs a longer one.
        for window_ms in [10, 100, 1000] {
            let (of_guest, of_channel) = played(window_ms);
            // No block is gone.
            let samples = of_channel.counters.get("samples").copied().unwrap_or(0);
            assert_eq!(samples, of_channel.work("ios"));
            if of_guest.is_some_and(|guest| guest.work("ios") > 0) && samples > 0 {
                return;
            }
        }
        panic!("no window in which a guest did I/Os");
    }
}
