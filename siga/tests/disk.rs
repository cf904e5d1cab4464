//! Volumes by channel programs, between guests of a host.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use siga::connect::Kind;
use siga::disk::ckd::create::{NewVolume, create};
use siga::disk::ckd::track::records_from;
use siga::disk::ckd::volume::Access;
use siga::disk::format::orb::{Orb, OrbFlags};
use siga::disk::{
    BLOCK_BYTES, Device, Disk, DiskError, DiskOptions, GuestLimit, Mode, OpenDiskError, OpenVolume,
    Program, Reading, Server, ServerLimits, Syncing, UnitKind, Writing,
};
use siga::error::Problem;
use siga::host::{Embedded, Observer, System};
use siga::{ConnectError, Guest, Path, PathOptions, Wait};

/// A volume's file, which goes with this.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("siga-dasd-{name}-{}", std::process::id()));
        let new = NewVolume { cylinders: 3, name: "SIGA01".into(), today: (2026, 1), split: false };
        create(&path, &new, |_| ()).unwrap();
        Place(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A server on a thread of its own.
struct Serving(Option<JoinHandle<Server>>, Arc<AtomicBool>);

impl Serving {
    fn start(host: &Embedded, place: &Place, device: Device) -> Serving {
        Serving::start_with(host, device, |server| {
            server.add_volume(&place.0, Access::Write, 64 << 20).unwrap();
        })
    }

    fn start_with(host: &Embedded, device: Device, mount: impl FnOnce(&mut Server)) -> Serving {
        let guest = Guest::attach_embedded(host, "DASD").unwrap();
        let mut server = Server::new(guest, Wait::Block).unwrap();
        mount(&mut server);
        server.add_device("SIGA01", device).unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let seen = done.clone();
        let serving = thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                server.serve_within(Duration::from_millis(10)).unwrap();
            }
            server
        });
        Serving(Some(serving), done)
    }

    fn stop(mut self) -> Server {
        self.1.store(true, Ordering::Relaxed);
        self.0.take().unwrap().join().unwrap()
    }
}

fn options(mode: Mode) -> DiskOptions {
    DiskOptions { mode, depth: 4, wait: Wait::Block, ..DiskOptions::default() }
}

fn pattern(seed: u64, blocks: usize) -> Vec<u8> {
    (0..blocks * BLOCK_BYTES)
        .map(|at| (at as u64 * 13 + seed * 7 + at as u64 / 4096) as u8)
        .collect()
}

#[test]
fn what_is_written_is_read_in_both_modes_copied_and_in_place() {
    for dedicated in [false, true] {
        let host = Embedded::start(System::open()).unwrap();
        let place = Place::new(if dedicated { "dedicated" } else { "minidisk" });
        let serving = Serving::start(&host, &place, Device { dedicated, ..Device::default() });
        let guest = Guest::attach_embedded(&host, "ALICE").unwrap();
        for mode in [Mode::Command, Mode::Transport] {
            let mut disk = Disk::open(&guest, "DASD", "SIGA01", &options(mode)).unwrap();
            assert_eq!((disk.cylinders(), disk.blocks(), disk.is_in_place()), (3, 360, dedicated));
            let bytes = pattern(mode as u64, 100);
            disk.write(17, &bytes).unwrap();
            let mut found = vec![0; bytes.len()];
            disk.read(17, &mut found).unwrap();
            assert!(found == bytes);
            for first in 0..4 {
                disk.start(Program::Read { first: 17 + first * 20, blocks: 20 }).unwrap();
            }
            assert!(matches!(
                disk.start(Program::Read { first: 0, blocks: 1 }),
                Err(DiskError::Busy)
            ));
            for _ in 0..4 {
                let ended = disk.wait().unwrap();
                ended.check().unwrap();
                let first = ended.subchannel();
                let mut content = Vec::new();
                ended
                    .in_place(|view, at, bytes| {
                        let start = content.len();
                        content.resize(start + bytes, 0);
                        view.read(at, &mut content[start..]).unwrap();
                    })
                    .unwrap();
                let at = bytes.chunks(20 * BLOCK_BYTES).position(|part| part == content);
                assert!(at.is_some(), "subchannel {first}");
            }
            assert!(matches!(disk.wait(), Err(DiskError::Idle)));
        }
        let server = serving.stop();
        let units = server.units();
        assert!(units.iter().any(|(kind, sent)| *kind == UnitKind::TransportCommand && *sent > 0));
    }
}

#[test]
fn whole_tracks_are_read_and_written_in_both_modes() {
    let host = Embedded::start(System::open()).unwrap();
    let place = Place::new("tracks");
    let serving = Serving::start(&host, &place, Device::default());
    let guest = Guest::attach_embedded(&host, "ALICE").unwrap();
    for mode in [Mode::Command, Mode::Transport] {
        // A track has more bytes than the blocks of a program.
        let options = DiskOptions { blocks_max: 1, ..options(mode) };
        let mut disk = Disk::open(&guest, "DASD", "SIGA01", &options).unwrap();
        assert_eq!(disk.tracks(), 45);
        // The first track with blocks, and the one behind it.
        disk.write(0, &pattern(mode as u64, 1)).unwrap();
        let blocks = disk.read_track(15).unwrap();
        assert_eq!(blocks.len(), 16 + 12 * (8 + BLOCK_BYTES) + 8);
        assert_eq!(blocks[16..24], [0, 1, 0, 0, 1, 0, 0x10, 0]);
        assert!(blocks[24..24 + BLOCK_BYTES] == pattern(mode as u64, 1));
        let mut other = blocks.clone();
        let records: Vec<_> = records_from(&blocks, 0).map(Result::unwrap).collect();
        records.iter().for_each(|record| other[record.offset + 3] = 1);
        disk.write_track(16, &other).unwrap();
        let mut block = [0; BLOCK_BYTES];
        disk.read(12, &mut block).unwrap();
        assert!(block[..] == pattern(mode as u64, 1));
        assert!(disk.read_track(16).unwrap() == other);
        // Record 0 names another track, there is no such track, too few bytes or too many.
        assert!(matches!(disk.write_track(17, &other), Err(DiskError::Program(_))));
        for found in [disk.write_track(45, &other), disk.read_track(45).map(drop)] {
            assert!(matches!(found, Err(DiskError::Track { track: 45, tracks: 45 })), "{found:?}");
        }
        for length in [0, 23, 56_828] {
            match disk.write_track(16, &vec![0; length]) {
                Err(DiskError::TrackBytes { bytes }) => assert_eq!(bytes, length),
                found => panic!("{length} bytes: {found:?}"),
            }
        }
    }
    serving.stop();
}

#[test]
fn volume_that_is_larger_than_its_cache_is_read_directly_by_a_server_that_sleeps() {
    for (is_checked, uncached) in [(false, false), (true, false), (true, true)] {
        let host = Embedded::start(System::open()).unwrap();
        let place = Place::new(&format!("direct-{is_checked}-{uncached}"));
        let device = Device { uncached, ..Device::default() };
        let serving = Serving::start_with(&host, device, |server| {
            let open = match is_checked {
                true => OpenVolume::open_checked(&place.0, Access::Write, |_| ()),
                false => OpenVolume::open(&place.0, Access::Write),
            };
            let open = if uncached { open.unwrap().write_buffered() } else { open.unwrap() };
            // 18 of its 45 tracks.
            // Both settings of syncs, by direct writes and by calls.
            let syncing = if is_checked { Syncing::File } else { Syncing::Fdatasync };
            let open = open.read_directly().with_syncing(syncing);
            let volume = server.mount(open, 1 << 20).unwrap();
            assert_eq!(server.syncing(volume), syncing);
            match server.writing(volume) {
                Writing::Direct => assert!(!uncached),
                Writing::Buffered if uncached => {}
                Writing::Buffered => eprintln!("SKIPPED: no direct writes here"),
            }
            let refused: Vec<_> = server.direct_refused().collect();
            match server.reading(volume) {
                Reading::Direct => assert_eq!(refused, []),
                reading => {
                    assert_eq!((reading, refused[0].0), (Reading::Refused, &*place.0));
                    eprintln!("SKIPPED: no direct reads here: {}", refused[0].1);
                }
            }
        });
        let guest = Guest::attach_embedded(&host, "ALICE").unwrap();
        for mode in [Mode::Command, Mode::Transport] {
            let mut disk = Disk::open(&guest, "DASD", "SIGA01", &options(mode)).unwrap();
            let syncing = if is_checked { Syncing::File } else { Syncing::Fdatasync };
            assert_eq!(disk.durability(), syncing);
            let blocks = disk.blocks();
            let block = |number: u64| pattern(number + u64::from(mode == Mode::Command), 1);
            for first in (0..blocks).step_by(32) {
                let count = 32.min(blocks - first);
                let data: Vec<u8> = (first..first + count).flat_map(block).collect();
                disk.write(first, &data).unwrap();
            }
            // From all over the volume, four at a time, so that tracks leave the cache all the time.
            let firsts: Vec<u64> = (0..300).map(|index| index * 131 % (blocks - 3)).collect();
            let mut under_way = [0; 4];
            for (index, first) in firsts.iter().enumerate() {
                if index >= under_way.len() {
                    let ended = disk.wait().unwrap();
                    ended.check().unwrap();
                    let first: u64 = under_way[usize::from(ended.subchannel())];
                    let mut found = vec![0; 3 * BLOCK_BYTES];
                    assert_eq!(ended.copy(&mut found).unwrap(), found.len());
                    assert_eq!(found, (first..first + 3).flat_map(block).collect::<Vec<u8>>());
                }
                let subchannel = disk.start(Program::Read { first: *first, blocks: 3 }).unwrap();
                under_way[usize::from(subchannel)] = *first;
            }
            // Some are still under way when the guest goes.
        }
        let server = serving.stop();
        assert!(server.misses(0) > 100, "{}", server.misses(0));
    }
}

#[test]
fn host_that_could_not_show_the_volumes_is_asked_again() {
    let socket = std::env::temp_dir().join(format!("siga-dasd-shown-{}", std::process::id()));
    let mut system = System::open();
    system.socket = Some(socket.clone());
    let host = Embedded::start(system).unwrap();
    let observer = Observer::attach(&socket).unwrap();
    let server = |name: &str| {
        let guest = Guest::attach_embedded(&host, name).unwrap();
        Server::new(guest, Wait::Block).unwrap()
    };
    // The host shows 64.
    let mut others: Vec<Server> = (0..64).map(|number| server(&format!("U{number}"))).collect();
    let shown = |server: &mut Server| {
        server.serve_within(Duration::from_millis(1)).unwrap();
        server.not_shown()
    };
    while observer.query().unwrap().control_units.len() < 64 {
        others.iter_mut().for_each(|other| assert_eq!(shown(other), None));
    }
    let mut last = server("LAST");
    while shown(&mut last) != Some(Problem::VolumesLimit) {}
    drop(others.pop());
    while shown(&mut last).is_some() {}
    assert!(observer.query().unwrap().control_units.iter().any(|unit| unit.guest == "LAST"));
}

#[test]
fn volume_that_is_found_damaged_is_only_read_and_nobody_else_writes_it() {
    let place = Place::new("damaged");
    let mut bytes = std::fs::read(&place.0).unwrap();
    // The length of record 1 on cylinder 1, head 0.
    bytes[512 + 15 * 56832 + 27] = 0xff;
    std::fs::write(&place.0, &bytes).unwrap();
    let open = OpenVolume::open_checked(&place.0, Access::Write, |_| ()).unwrap();
    assert_eq!((open.damaged_tracks(), open.volume().access()), (1, Access::Read));
    let other = |access| OpenVolume::open(&place.0, access).map(drop);
    let error = other(Access::Write).unwrap_err().to_string();
    assert!(error.ends_with("in use by another process"), "{error}");
    other(Access::Read).unwrap();
}

#[test]
fn devices_are_given_to_those_who_may_have_them() {
    let host = Embedded::start(System::open()).unwrap();
    let place = Place::new("allowed");
    let guests = vec!["ALICE".parse().unwrap()];
    let device = Device { dedicated: true, guests, read_only: true, ..Device::default() };
    let serving = Serving::start(&host, &place, device);
    let alice = Guest::attach_embedded(&host, "ALICE").unwrap();
    let bob = Guest::attach_embedded(&host, "BOB").unwrap();
    let refused = |guest: &Guest, device: &str| {
        let opened = Disk::open(guest, "DASD", device, &options(Mode::Transport));
        match opened {
            Err(OpenDiskError::Connect(ConnectError::Refused { .. })) => Some("no device"),
            Err(OpenDiskError::InUse { .. }) => Some("in use"),
            Err(error) => panic!("{error}"),
            Ok(_) => None,
        }
    };
    assert_eq!(refused(&bob, "SIGA01"), Some("no device"));
    assert_eq!(refused(&alice, "OTHER"), Some("no device"));
    let mut disk = Disk::open(&alice, "DASD", "SIGA01", &options(Mode::Transport)).unwrap();
    assert_eq!(refused(&alice, "SIGA01"), Some("in use"), "one guest at a time");
    assert!(!disk.may_write());
    let error = disk.write(0, &[1; BLOCK_BYTES]).unwrap_err().to_string();
    assert!(error.contains("write inhibited"), "{error}");
    disk.read(0, &mut [0; BLOCK_BYTES]).unwrap();
    assert!(matches!(disk.read(360, &mut [0; BLOCK_BYTES]), Err(DiskError::Blocks { .. })));
    drop(disk);
    // The server learns of the end from the path.
    let mut tries = 0;
    while refused(&alice, "SIGA01").is_some() {
        tries += 1;
        assert!(tries < 1000);
        thread::yield_now();
    }
    let server = serving.stop();
    assert_eq!(server.misses(0), 1);
}

#[test]
fn refusal_of_a_server_without_disks_is_no_limit_of_disks() {
    let host = Embedded::start(System::open()).unwrap();
    let plain = Guest::attach_embedded(&host, "PLAIN").unwrap();
    // In a refusal of a server of disks the first byte is the reason, and the last ones are the limit.
    for why in 0..4 {
        let opened = thread::scope(|scope| {
            let opening = scope.spawn(|| {
                let alice = Guest::attach_embedded(&host, &format!("ALICE{why}")).unwrap();
                Disk::open(&alice, "PLAIN", "SIGA01", &options(Mode::Transport)).map(drop)
            });
            let pending = loop {
                if let Some(pending) = plain.pending() {
                    break pending;
                }
                plain.poll();
                thread::yield_now();
            };
            let mut data = [7; 16];
            data[0] = why;
            plain.refuse(pending, data);
            opening.join().unwrap()
        });
        let Err(OpenDiskError::Connect(ConnectError::Refused { data, .. })) = opened else {
            panic!("{why}: {opened:?}");
        };
        assert_eq!(data[0], why);
    }
}

/// A path to a server, for a device: what a guest sends that does not use [`Disk`].
fn connect(
    guest: &Guest,
    subchannels: u16,
    pages: u16,
    outputs: usize,
) -> Result<Path, ConnectError> {
    let mut data = [0; 16];
    data[..6].copy_from_slice(b"SIGA01");
    data[8..10].copy_from_slice(&subchannels.to_le_bytes());
    data[10..12].copy_from_slice(&pages.to_le_bytes());
    let options = PathOptions {
        kind: Kind::DISK,
        data,
        outputs,
        wait: Wait::Block,
        ..PathOptions::default()
    };
    guest.connect("DASD", &options)
}

#[test]
fn what_a_guest_wants_is_bounded() {
    let host = Embedded::start(System::open()).unwrap();
    let place = Place::new("bounded");
    let serving = Serving::start(&host, &place, Device::default());
    let guest = Guest::attach_embedded(&host, "ALICE").unwrap();
    for (subchannels, pages, outputs) in [(128, 65535, 1), (128, 257, 1), (0, 1, 1), (1, 1, 2)] {
        let refused = connect(&guest, subchannels, pages, outputs);
        assert!(matches!(refused, Err(ConnectError::Refused { .. })), "{subchannels} {pages}");
    }
    drop(connect(&guest, 128, 256, 1).unwrap());
    serving.stop();
}

#[test]
fn guest_that_opens_again_and_again_leaves_others_something() {
    let host = Embedded::start(System::open()).unwrap();
    let place = Place::new("again");
    let limits = ServerLimits { opens_max: 16, ..ServerLimits::default() };
    let limits = ServerLimits { storage_bytes_max: 1 << 30, ..limits };
    let serving = Serving::start_with(&host, Device::default(), |server| {
        server.add_volume(&place.0, Access::Write, 4 << 20).unwrap();
        server.set_limits(limits);
    });
    let [alice, bob] = ["ALICE", "BOB"].map(|name| Guest::attach_embedded(&host, name).unwrap());
    let open = |guest: &Guest, depth| {
        let options = DiskOptions { depth, ..options(Mode::Transport) };
        Disk::open(guest, "DASD", "SIGA01", &options)
    };
    let mut disks = Vec::new();
    let refused = loop {
        match open(&alice, 1) {
            Ok(disk) => disks.push(disk),
            Err(error) => break error,
        }
    };
    assert_eq!(disks.len(), 8);
    let says = "limit opens of guest ALICE at DASD reached: 8 (guest_opens_max of [control_unit] in the system file)";
    assert_eq!(refused.to_string(), says);
    // Another guest finds room, and its own storage is bounded too: 128 subchannels take some 60 MiB.
    let mut others = Vec::new();
    let refused = loop {
        match open(&bob, 128) {
            Ok(disk) => others.push(disk),
            Err(error) => break error,
        }
    };
    let is_opens =
        matches!(refused, OpenDiskError::Limit { limit: GuestLimit::Opens, most: 4, .. });
    assert!(is_opens && others.len() == 4, "{refused}");
    others[3].write(0, &pattern(1, 4)).unwrap();
    // What is closed can be opened again, once the server has learned of it, within half of what the other guest leaves now: 6.
    disks.truncate(5);
    let mut tries = 0;
    while let Err(error) = open(&alice, 1).map(|disk| disks.push(disk)) {
        assert!(matches!(error, OpenDiskError::Limit { .. }), "{error}");
        tries += 1;
        assert!(tries < 1000);
        thread::yield_now();
    }
    drop((disks, others));
    serving.stop();
}

#[test]
fn guest_that_opens_as_fast_as_it_can_waits_and_others_go_on() {
    let socket = std::env::temp_dir().join(format!("siga-dasd-fast-{}.sock", std::process::id()));
    let mut system = System::open();
    system.socket = Some(socket.clone());
    let host = Embedded::start(system).unwrap();
    let place = Place::new("fast");
    let serving = Serving::start(&host, &place, Device::default());
    let attach = |name| Guest::attach_embedded(&host, name).unwrap();
    let (alice, bob) = (attach("ALICE"), attach("BOB"));
    let open = |guest: &Guest| Disk::open(guest, "DASD", "SIGA01", &options(Mode::Transport));
    let mut disk = open(&bob).unwrap();
    disk.write(0, &pattern(1, 1)).unwrap();
    // A burst, and for a moment more: on a slow machine none has to wait. Each is opened in the end.
    let (begun, opens) = (Instant::now(), 300);
    let mut block = [0; BLOCK_BYTES];
    for _ in 0..opens {
        drop(open(&alice).unwrap());
        disk.read(0, &mut block).unwrap();
    }
    let most = 512 / 4 + 1 + (begun.elapsed().as_secs_f64() * 512.0) as u64;
    assert!(opens <= most, "{opens} of {most}");
    assert_eq!(block[..], pattern(1, 1)[..]);
    let limits = Observer::attach(&socket).unwrap().query().unwrap().limits;
    let is_rate =
        |owner: &str, limit: &str| owner == "control unit DASD" && limit == "opens a second";
    let rate = limits.into_iter().find(|row| is_rate(&row.owner, &row.limit)).unwrap();
    assert_eq!((rate.most, rate.setting.as_str()), (512, "fixed"));
    serving.stop();
}

#[test]
fn storage_of_the_opens_of_a_guest_is_bounded() {
    let host = Embedded::start(System::open()).unwrap();
    let place = Place::new("storage");
    let limits =
        ServerLimits { guest_storage_bytes_max: Some(300 << 20), ..ServerLimits::default() };
    let serving = Serving::start_with(&host, Device::default(), |server| {
        server.add_volume(&place.0, Access::Write, 4 << 20).unwrap();
        server.set_limits(limits);
    });
    let alice = Guest::attach_embedded(&host, "ALICE").unwrap();
    let options = DiskOptions { depth: 128, ..options(Mode::Transport) };
    let mut disks = Vec::new();
    let refused = loop {
        match Disk::open(&alice, "DASD", "SIGA01", &options) {
            Ok(disk) => disks.push(disk),
            Err(error) => break error.to_string(),
        }
    };
    // Results of 32 MiB, as much again in results that may wait, and messages.
    assert!((4..8).contains(&disks.len()), "{}", disks.len());
    let says = "limit storage of guest ALICE at DASD reached: 314572800 (guest_storage_max of [control_unit] in the system file)";
    assert_eq!(refused, says);
    drop(disks);
    serving.stop();
}

#[test]
fn server_that_sleeps_hears_of_room_for_what_it_has_held_back() {
    let host = Embedded::start(System::open()).unwrap();
    let place = Place::new("room");
    let serving = Serving::start(&host, &place, Device::default());
    let guest = Guest::attach_embedded(&host, "ALICE").unwrap();
    let mut path = connect(&guest, 1, 1, 1).unwrap();
    // Halts of a subchannel with no program: each is refused, and the path has room for fewer refusals.
    let halts = 600;
    let mut halt = [0; 16];
    halt[0] = 3;
    for _ in 0..halts {
        path.sender().send_with_head(&halt, &[]).unwrap();
    }
    let mut refused = 0;
    while refused < halts {
        let message = path.receiver().receive().unwrap();
        refused += u32::from(message.head[0] == 19);
    }
    serving.stop();
}

#[test]
fn busy_program_has_its_turn_while_others_work_all_the_time() {
    let host = Embedded::start(System::open()).unwrap();
    let place = Place::new("turn");
    let serving = Serving::start(&host, &place, Device::default());
    let guest = Guest::attach_embedded(&host, "ALICE").unwrap();
    let open = || Disk::open(&guest, "DASD", "SIGA01", &options(Mode::Transport)).unwrap();
    let (mut owner, mut waiting, mut looping) = (open(), open(), open());
    let run = |disk: &mut Disk, ccws: &[[u8; 8]]| {
        for (index, ccw) in ccws.iter().enumerate() {
            disk.storage()[0x400 + index * 8..][..8].copy_from_slice(ccw);
        }
        let (flags, paths) = (OrbFlags::FORMAT_1, disk.paths());
        disk.start_orb(&Orb { flags, paths, program: 0x400, ..Orb::default() }).unwrap()
    };
    // Reserve, with 32 bytes of sense at 0x800.
    run(&mut owner, &[[0xb4, 0, 0, 32, 0, 0, 8, 0]]);
    owner.wait().unwrap().check().unwrap();
    waiting.start(Program::Read { first: 0, blocks: 1 }).unwrap();
    // Release, then a chain without an end.
    run(&mut owner, &[[0x94, 0, 0, 32, 0, 0, 8, 0]]);
    owner.wait().unwrap().check().unwrap();
    let endless = run(&mut looping, &[[3, 0x40, 0, 1, 0, 0, 0, 0], [8, 0, 0, 0, 0, 0, 4, 0]]);
    waiting.wait().unwrap().check().unwrap();
    looping.halt(endless).unwrap();
    looping.wait().unwrap();
    serving.stop();
}

#[test]
fn end_of_a_program_has_an_irb() {
    let host = Embedded::start(System::open()).unwrap();
    let place = Place::new("irb");
    let serving = Serving::start(&host, &place, Device::default());
    let guest = Guest::attach_embedded(&host, "ALICE").unwrap();
    let open = || Disk::open(&guest, "DASD", "SIGA01", &options(Mode::Transport)).unwrap();
    let (mut first, mut second) = (open(), open());
    assert_ne!(first.paths(), second.paths());
    for disk in [&mut first, &mut second] {
        let paths = disk.paths();
        // A command that no device has.
        disk.storage()[0x400..0x408].copy_from_slice(&[0xff, 0x20, 0, 1, 0, 0, 8, 0]);
        let orb = Orb { flags: OrbFlags::FORMAT_1, paths, program: 0x400, ..Orb::default() };
        disk.start_orb(&orb).unwrap();
        let ended = disk.wait().unwrap();
        let irb = ended.irb();
        assert_eq!((irb.path, irb.sense), (paths, ended.sense()));
        let bytes = irb.emit();
        assert_eq!((bytes[0], bytes[8] & 0x02, bytes[32]), (0x00, 0x02, 0x80));
        disk.start_orb(&Orb { paths: !paths, ..orb }).unwrap();
        let irb = disk.wait().unwrap().irb();
        assert_eq!((irb.scsw.conditions & 0x0300, irb.path, irb.sense), (0x0300, 0, None));
    }
    serving.stop();
}

#[test]
fn minidisks_of_one_volume_are_apart() {
    let host = Embedded::start(System::open()).unwrap();
    let place = Place::new("apart");
    let guest = Guest::attach_embedded(&host, "DASD").unwrap();
    let mut server = Server::new(guest, Wait::Block).unwrap();
    let volume = server.add_volume(&place.0, Access::Write, 64 << 20).unwrap();
    for (name, first_cylinder) in [("ONE", 1), ("TWO", 2)] {
        let device = Device { volume, first_cylinder, cylinders: Some(1), ..Device::default() };
        server.add_device(name, device).unwrap();
    }
    let outside = Device { volume, first_cylinder: 2, cylinders: Some(2), ..Device::default() };
    assert!(server.add_device("THREE", outside).is_err());
    assert!(server.add_device("FOUR", Device { dedicated: true, ..Device::default() }).is_err());
    let done = Arc::new(AtomicBool::new(false));
    let seen = done.clone();
    let serving = thread::spawn(move || {
        while !seen.load(Ordering::Relaxed) {
            server.serve_within(Duration::from_millis(10)).unwrap();
        }
    });
    let alice = Guest::attach_embedded(&host, "ALICE").unwrap();
    let options = options(Mode::Transport);
    let mut one = Disk::open(&alice, "DASD", "ONE", &options).unwrap();
    let mut two = Disk::open(&alice, "DASD", "TWO", &options).unwrap();
    assert_eq!((one.blocks(), two.blocks()), (180, 180));
    one.write(0, &pattern(1, 180)).unwrap();
    two.write(0, &pattern(2, 180)).unwrap();
    let mut found = vec![0; 180 * BLOCK_BYTES];
    one.read(0, &mut found).unwrap();
    assert!(found == pattern(1, 180));
    two.read(0, &mut found).unwrap();
    assert!(found == pattern(2, 180));
    done.store(true, Ordering::Relaxed);
    serving.join().unwrap();
}

#[test]
fn blocks_are_neither_read_from_shorter_records_nor_written_to_them() {
    let host = Embedded::start(System::open()).unwrap();
    let place = Place::new("short");
    let serving = Serving::start(&host, &place, Device::default());
    let guest = Guest::attach_embedded(&host, "ALICE").unwrap();
    for mode in [Mode::Command, Mode::Transport] {
        let mut disk = Disk::open(&guest, "DASD", "SIGA01", &options(mode)).unwrap();
        // Track 15, the first with blocks: record 0 with 8 bytes, 12 records of 512 bytes, the end.
        let mut content = vec![0, 1, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0];
        for record in 1..=12 {
            content.extend([0, 1, 0, 0, record, 0, 2, 0]);
            content.extend([record; 512]);
        }
        content.extend([0xff; 8]);
        disk.write_track(15, &content).unwrap();
        let is_refused = |result: Result<(), DiskError>| match (mode, result.unwrap_err()) {
            (Mode::Transport, DiskError::Short { moved, wanted }) => {
                assert_eq!((moved, wanted), (512, 4096));
            }
            (Mode::Command, DiskError::Program(error)) => {
                assert_eq!((error.scsw.subchannel.0, error.scsw.count), (0x40, 4096 - 512));
            }
            (mode, error) => panic!("{mode:?}: {error}"),
        };
        is_refused(disk.read(0, &mut [0; BLOCK_BYTES]));
        is_refused(disk.write(0, &[7; BLOCK_BYTES]));
        disk.read(12, &mut [0; BLOCK_BYTES]).unwrap();
    }
    serving.stop();
}

#[test]
fn block_0_of_a_device_is_behind_the_label_if_the_device_has_the_label() {
    let host = Embedded::start(System::open()).unwrap();
    let place = Place::new("first-track");
    let serving = Serving::start_with(&host, Device::default(), |server| {
        let volume = server.add_volume(&place.0, Access::Write, 64 << 20).unwrap();
        let device = Device { volume, ..Device::default() };
        let part = Device { cylinders: Some(2), ..device.clone() };
        let behind = Device { first_cylinder: 1, cylinders: Some(2), ..device };
        server.add_device("PART", part).unwrap();
        server.add_device("BEHIND", behind).unwrap();
    });
    let guest = Guest::attach_embedded(&host, "ALICE").unwrap();
    let open = |device, first_track| {
        let options = DiskOptions { first_track, ..options(Mode::Transport) };
        Disk::open(&guest, "DASD", device, &options).unwrap()
    };
    let mut behind = open("BEHIND", None);
    assert_eq!((behind.first_track(), behind.blocks()), (0, 360));
    behind.write(0, &pattern(1, 1)).unwrap();
    // The same block, as it is block 0 of each device; a guest can say otherwise.
    for (device, first_track, block, blocks) in [
        ("SIGA01", None, 0, 360),
        ("PART", None, 0, 180),
        ("SIGA01", Some(0), 180, 540),
        ("SIGA01", Some(14), 12, 372),
        ("SIGA01", Some(1000), 0, 0),
    ] {
        let mut disk = open(device, first_track);
        assert_eq!((disk.first_track(), disk.blocks()), (first_track.unwrap_or(15), blocks));
        let mut found = vec![0; BLOCK_BYTES];
        match disk.read(block, &mut found) {
            Ok(()) => assert!(found == pattern(1, 1), "{device} {first_track:?}"),
            Err(error) => assert!(matches!(error, DiskError::Blocks { device: 0, .. }), "{error}"),
        }
    }
    serving.stop();
}
