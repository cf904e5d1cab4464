//! What Hercules's tools make of volumes that guests wrote, and guests of volumes that Hercules's tools wrote, where they are installed.
//!
//! Their exit codes mislead: what counts is what they say, and what they leave.

#[path = "common/lacking.rs"]
mod lacking;
#[path = "common/place.rs"]
mod place;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use siga::disk::ckd::header::{HEADER_BYTES, Header};
use siga::disk::ckd::label::{DataSet, Label, Tracks, VOL1, format_4};
use siga::disk::ckd::model::{HEADS, TRACK_BYTES, track_number, track_of};
use siga::disk::ckd::track::{self, records_from};
use siga::disk::ckd::volume::Access;
use siga::disk::format::ccw::{Ccw, CcwFlags, CcwFormat};
use siga::disk::format::eckd::{Cchh, Count, Extent, Locate, Permission, operation};
use siga::disk::format::orb::{ALL_PATHS, Orb, OrbFlags};
use siga::disk::{Device, Disk, DiskOptions, Mode, OpenVolume, Server};
use siga::host::{Embedded, System};
use siga::{Guest, Wait};

use place::{Place, image};

/// Returns true if Hercules's tools are installed.
fn has_hercules(test: &str) -> bool {
    lacking::has_program(test, "dasdls", "hercules")
}

fn at(cylinder: u32, head: u8) -> Cchh {
    Cchh { cylinder, head }
}

/// Letters, digits, periods and blanks in EBCDIC.
fn ebcdic(words: &str) -> Vec<u8> {
    let letter = |letter: u8| match letter {
        b' ' => 0x40,
        b'.' => 0x4b,
        b'A'..=b'I' => letter - b'A' + 0xc1,
        b'J'..=b'R' => letter - b'J' + 0xd1,
        b'S'..=b'Z' => letter - b'S' + 0xe2,
        b'0'..=b'9' => letter - b'0' + 0xf0,
        _ => panic!("{letter:#x}"),
    };
    words.bytes().map(letter).collect()
}

/// A line of a punched card.
fn card(words: &str) -> Vec<u8> {
    ebcdic(&format!("{words:80}"))
}

/// Serves a volume as device FULL, and cylinder `minidisk` of it as MINI, while a guest works with them. Nothing is checked first: a large
/// volume of a test has holes.
fn with_guest(file: &Path, minidisk: u32, work: impl FnOnce(&Guest)) {
    let host = Embedded::start(System::open()).unwrap();
    let guest = Guest::attach_embedded(&host, "DASD").unwrap();
    let mut server = Server::new(guest, Wait::Block).unwrap();
    let open = OpenVolume::open(file, Access::Write).unwrap();
    let volume = server.mount(open, 16 << 20).unwrap();
    let full = Device { volume, ..Device::default() };
    let part = Device { first_cylinder: minidisk, cylinders: Some(1), ..full.clone() };
    server.add_device("FULL", full).unwrap();
    server.add_device("MINI", part).unwrap();
    let guest = Guest::attach_embedded(&host, "ALICE").unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                server.serve_within(Duration::from_millis(10)).unwrap();
            }
        });
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&guest)));
        is_over.store(true, Ordering::Relaxed);
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn open(guest: &Guest, device: &str, mode: Mode) -> Disk {
    let options = DiskOptions { mode, wait: Wait::Block, ..DiskOptions::default() };
    Disk::open(guest, "DASD", device, &options).unwrap()
}

/// Where data of programs written CCW by CCW lie, and how far apart.
const DATA: usize = 0x2000;
const APART: usize = 0x400;

/// DEFINE EXTENT and LOCATE RECORD for a track, then one command for each of the data, which are written.
fn write_records(
    disk: &mut Disk,
    permission: Permission,
    locate: Locate,
    code: u8,
    data: &[&[u8]],
) {
    let track = locate.seek;
    let extent = Extent { permission, first: track, last: track, ..Extent::default() };
    let locate = Locate { count: data.len() as u8, search: track, ..locate };
    let storage = disk.storage();
    storage[0x1000..0x1010].copy_from_slice(&extent.emit());
    storage[0x1010..0x1020].copy_from_slice(&locate.emit()[..16]);
    let mut chain = vec![(0x63, 16, 0x1000), (0x47, 16, 0x1010)];
    for (index, bytes) in data.iter().enumerate() {
        let at = DATA + index * APART;
        storage[at..at + bytes.len()].copy_from_slice(bytes);
        chain.push((code, bytes.len() as u16, at as u32));
    }
    let last = chain.len() - 1;
    for (index, (command, count, address)) in chain.into_iter().enumerate() {
        let flags = if index < last { CcwFlags::CHAIN_COMMAND } else { CcwFlags::default() };
        let ccw = Ccw { command, flags, count, address };
        storage[0x1040 + index * 8..][..8].copy_from_slice(&ccw.emit(CcwFormat::One));
    }
    let flags = OrbFlags::FORMAT_1;
    disk.start_orb(&Orb { flags, paths: ALL_PATHS, program: 0x1040, ..Orb::default() }).unwrap();
    disk.wait().unwrap().check().unwrap();
}

/// The content of a track, as [`Disk::write_track`] takes it: records with key and data, from record 1 on.
fn content(track: Cchh, records: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut bytes = Count { track, record: 0, key_bytes: 0, data_bytes: 8 }.emit().to_vec();
    bytes.extend([0; 8]);
    for (index, (key, data)) in records.iter().enumerate() {
        bytes.extend(counted(track, index as u8 + 1, key, data));
    }
    bytes.extend([0xff; 8]);
    bytes
}

/// A record with its count field.
fn counted(track: Cchh, record: u8, key: &[u8], data: &[u8]) -> Vec<u8> {
    let (key_bytes, data_bytes) = (key.len() as u8, data.len() as u16);
    let count = Count { track, record, key_bytes, data_bytes }.emit();
    [&count[..], key, data].concat()
}

/// The key and the data of the last block of a directory with one member, which begins with record 1 of track 1 of its data set.
fn directory(member: &str) -> ([u8; 8], [u8; 256]) {
    let mut block = [0; 256];
    block[..2].copy_from_slice(&22_u16.to_be_bytes());
    block[2..10].copy_from_slice(&ebcdic(&format!("{member:8}")));
    block[10..14].copy_from_slice(&[0, 1, 1, 0]);
    block[14..22].fill(0xff);
    ([0xff; 8], block)
}

/// The DSCB of a partitioned data set of cards in blocks of 800 bytes, on two tracks.
fn partitioned(volume: &str, name: &str, first: Cchh, last: Cchh) -> ([u8; 44], [u8; 96]) {
    let data_set = DataSet {
        name: name.into(),
        organisation: 0x0200,
        record_format: 0x90,
        block_bytes: 800,
        record_bytes: 80,
        extents: vec![Tracks { first, last }],
        last: (1, 3),
        created: (2026, 5),
    };
    data_set.emit(volume).unwrap()
}

const CARDS: [&str; 3] = ["HELLO WORLD", "SECOND CARD", "THIRD CARD"];

/// Two blocks of cards, and the end of the member.
fn member() -> [Vec<u8>; 3] {
    [[card(CARDS[0]), card(CARDS[1])].concat(), card(CARDS[2]), Vec::new()]
}

/// Checks the output of `dasdcat` for a member: the cards, after lines about the program itself.
fn assert_member(place: &Place, file: &str, member: &str) {
    let printed = place.tool("dasdcat", &["-i", file, &format!("{member}:ca")]);
    let lines: Vec<&str> = printed.lines().map(str::trim_end).collect();
    assert!(lines.windows(3).any(|lines| lines == CARDS), "{printed}");
}

/// All records of each track of a volume: what is behind the end of a track is nothing.
fn records(bytes: &[u8]) -> Vec<Vec<u8>> {
    let tracks = bytes[HEADER_BYTES..].chunks_exact(TRACK_BYTES).enumerate();
    tracks
        .map(|(number, bytes)| {
            track::check(bytes, track_of(number as u32)).unwrap();
            let last = track::records(bytes).last().unwrap().unwrap();
            bytes[..last.end()].to_vec()
        })
        .collect()
}

#[test]
fn hercules_reads_what_we_write() {
    if !has_hercules("hercules_reads_what_we_write") {
        return;
    }
    let place = Place::new("hercules");
    place.good(&["create", "a.ckd", "--cylinders", "4", "--name", "OURS01"]);
    place.write("image", &image(540));
    place.good(&["import", "a.ckd", "image"]);
    let listed = place.tool("dasdls", &["-hdr", "-info", "a.ckd"]);
    assert!(listed.contains("VOLSER=OURS01"), "{listed}");
    assert!(listed.contains("SIGA.BLOCKS"), "{listed}");
    // The blocks are an ordinary sequential data set, which a tool writes into a file of the same name.
    let copied = place.tool("dasdseq", &["a.ckd", "SIGA.BLOCKS"]);
    assert!(place.read("SIGA.BLOCKS") == image(540), "{copied}");
    // To a compressed image, which a checker goes through, and back.
    let copied = place.tool("dasdcopy", &["-q", "-r", "-o", "CCKD", "a.ckd", "a.cckd"]);
    assert!(!copied.contains("null track"), "{copied}");
    assert_eq!(place.tool("cckdcdsk", &["-3", "-ro", "a.cckd"]), "", "silence is clean");
    place.tool("dasdcopy", &["-q", "-r", "-o", "CKD", "a.cckd", "b.ckd"]);
    assert!(place.read("b.ckd")[512..] == place.read("a.ckd")[512..], "{copied}");
    place.good(&["export", "b.ckd", "copy"]);
    assert!(place.read("copy") == image(540));
}

#[test]
fn volume_that_guests_wrote_goes_through_hercules_and_comes_back() {
    if !has_hercules("volume_that_guests_wrote_goes_through_hercules_and_comes_back") {
        return;
    }
    let place = Place::new("guests");
    place.good(&["create", "a.ckd", "--cylinders", "5", "--name", "GUEST1"]);
    let (first, last) = (at(0, 5), at(0, 6));
    with_guest(&place.0.join("a.ckd"), 3, |guest| {
        let mut full = open(guest, "FULL", Mode::Command);
        // Count, key and data: a directory of a partitioned data set, and the end of it.
        let (key, data) = directory("HELLO");
        let records = [counted(first, 1, &key, &data), counted(first, 2, &[], &[])];
        let locate =
            Locate { operation: operation::FORMAT_WRITE, seek: first, ..Locate::default() };
        let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        write_records(&mut full, Permission::All, locate, 0x1d, &records);
        // Key and data: the data set's DSCB takes the place of a free one.
        let (key, data) = partitioned("GUEST1", "GUEST.PDS", first, last);
        let dscb = [&key[..], &data].concat();
        let (operation, seek) = (operation::WRITE_DATA, at(0, 1));
        let locate = Locate { operation, seek, record: 4, ..Locate::default() };
        write_records(&mut full, Permission::Update, locate, 0x0d, &[&dscb]);
        // A full track: the member. Another in transport mode, with keys of many lengths.
        let [one, two, end] = member();
        full.write_track(
            track_number(last),
            &content(last, &[(&[], &one), (&[], &two), (&[], &end)]),
        )
        .unwrap();
        full.set_mode(Mode::Transport);
        let odd: Vec<(Vec<u8>, Vec<u8>)> = (0..40_u8)
            .map(|index| {
                (vec![index; usize::from(index) * 6], image(1)[..usize::from(index) * 13].to_vec())
            })
            .collect();
        let odd: Vec<(&[u8], &[u8])> =
            odd.iter().map(|(key, data)| (&key[..], &data[..])).collect();
        let track = at(0, 14);
        full.write_track(track_number(track), &content(track, &odd)).unwrap();
        // A whole minidisk, whose first block is a block of the volume.
        let mut mini = open(guest, "MINI", Mode::Transport);
        mini.write(0, &image(180)).unwrap();
    });
    assert_eq!(place.good(&["check", "a.ckd"]), "a.ckd: 75 tracks, no faults\n");
    let listed = place.tool("dasdls", &["-info", "a.ckd"]);
    assert!(listed.contains("VOLSER=GUEST1") && listed.contains("GUEST.PDS"), "{listed}");
    assert_member(&place, "a.ckd", "GUEST.PDS/HELLO");

    let copied = place.tool("dasdcopy", &["-q", "-r", "-o", "CCKD", "a.ckd", "a.cckd"]);
    assert!(!copied.contains("null track") && !copied.contains("error"), "{copied}");
    assert_eq!(place.tool("cckdcdsk", &["-3", "-ro", "a.cckd"]), "", "silence is clean");
    assert_member(&place, "a.cckd", "GUEST.PDS/HELLO");
    let copied = place.tool("dasdcopy", &["-q", "-r", "-o", "CKD", "a.cckd", "b.ckd"]);
    let (ours, theirs) = (records(&place.read("a.ckd")), records(&place.read("b.ckd")));
    for (number, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        assert!(ours == theirs, "track {number}: {copied}");
    }
    assert_eq!((ours.len(), theirs.len()), (75, 75));
    place.good(&["export", "b.ckd", "copy", "--all"]);
    assert!(place.read("copy")[360 * 4096..540 * 4096] == image(180));
}

/// Cylinders of the first file of a volume above 2 GB, as Hercules divides it.
const FIRST_FILE_CYLINDERS: u32 = 2519;

/// Makes a volume of two files with holes for most of its tracks. Cylinder 0 has a label, which leads to a table of contents in the second
/// file; the tracks around the border are empty.
fn make_split(place: &Place) {
    for (name, file, first, cylinders) in
        [("s1.ckd", 1, 0, FIRST_FILE_CYLINDERS), ("s2.ckd", 2, FIRST_FILE_CYLINDERS, 11)]
    {
        let target = File::create(place.0.join(name)).unwrap();
        let last_cylinder = if file == 1 { FIRST_FILE_CYLINDERS as u16 - 1 } else { 0 };
        let header = Header { file, last_cylinder, ..Header::default() };
        target.write_all_at(&header.emit(), 0).unwrap();
        let bytes = u64::from(cylinders * HEADS) * TRACK_BYTES as u64;
        target.set_len(HEADER_BYTES as u64 + bytes).unwrap();
        for track in [at(0, 0), at(2518, 13), at(2518, 14), at(2519, 0), at(2519, 1), at(2519, 2)] {
            let number = track_number(track).wrapping_sub(first * HEADS);
            if number >= cylinders * HEADS {
                continue;
            }
            let mut bytes = vec![0; TRACK_BYTES];
            track::clear(&mut bytes, track);
            if track == at(0, 0) {
                let vtoc = Some(at(2519, 1));
                let label = Label { volume: "SPLIT1".into(), vtoc, owner: String::new() };
                track::append(&mut bytes, track, &ebcdic("IPL1"), &[0; 24]).unwrap();
                track::append(&mut bytes, track, &ebcdic("IPL2"), &[0; 144]).unwrap();
                track::append(&mut bytes, track, &VOL1, &label.emit().unwrap()).unwrap();
            }
            let offset = HEADER_BYTES as u64 + u64::from(number) * TRACK_BYTES as u64;
            target.write_all_at(&bytes, offset).unwrap();
        }
    }
    assert_eq!(fs::metadata(place.0.join("s1.ckd")).unwrap().len(), 2_147_397_632);
}

#[test]
fn volume_above_2_gb_that_guests_wrote_is_read_by_hercules_across_its_files() {
    if !has_hercules("volume_above_2_gb_that_guests_wrote_is_read_by_hercules_across_its_files") {
        return;
    }
    let place = Place::new("split");
    make_split(&place);
    let (first, last, vtoc) = (at(2518, 14), at(2519, 0), at(2519, 1));
    with_guest(&place.0.join("s1.ckd"), 2519, |guest| {
        let mut full = open(guest, "FULL", Mode::Transport);
        assert_eq!(full.cylinders(), 2530);
        let mut write = |track, records: &[(&[u8], &[u8])]| {
            full.write_track(track_number(track), &content(track, records)).unwrap();
        };
        let (key, data) = directory("HELLO");
        write(first, &[(&key, &data), (&[], &[])]);
        let [one, two, end] = member();
        write(last, &[(&[], &one), (&[], &two), (&[], &end)]);
        let (key, data) = format_4(2530, Tracks { first: vtoc, last: vtoc }, 0);
        let (name, dscb) = partitioned("SPLIT1", "OURS.PDS", first, last);
        write(vtoc, &[(&key, &data), (&name, &dscb)]);
        // What belongs to the second file is there by its own device too.
        let mut mini = open(guest, "MINI", Mode::Command);
        let found = mini.read_track(0).unwrap();
        assert_eq!(records_from(&found, 0).count(), 4);
    });
    let listed: Value = serde_json::from_str(&place.good(&["ls", "s1.ckd", "--json"])).unwrap();
    assert_eq!((&listed["files"], &listed["cylinders"]), (&2.into(), &2530.into()));
    assert_eq!(listed["data_sets"][0]["name"], "OURS.PDS");
    let listed = place.tool("dasdls", &["-info", "s1.ckd"]);
    assert!(listed.contains("VOLSER=SPLIT1") && listed.contains("OURS.PDS"), "{listed}");
    assert_member(&place, "s1.ckd", "OURS.PDS/HELLO");
}

#[test]
fn volume_above_2_gb_that_hercules_made_is_served() {
    if !has_hercules("volume_above_2_gb_that_hercules_made_is_served") {
        return;
    }
    let place = Place::new("split-foreign");
    let made = place.tool("dasdinit", &["-linux", "big.ckd", "3390", "THEIRS", "2530"]);
    assert!(made.contains("successfully completed"), "{made}");
    let listed: Value = serde_json::from_str(&place.good(&["ls", "big_1.ckd", "--json"])).unwrap();
    assert_eq!((&listed["files"], &listed["cylinders"]), (&2.into(), &2530.into()));
    // 24 blocks around the border, of which the second track is the first of the second file.
    let border = u64::from(FIRST_FILE_CYLINDERS - 1) * 180;
    let mut track = vec![0; TRACK_BYTES];
    with_guest(&place.0.join("big_1.ckd"), FIRST_FILE_CYLINDERS, |guest| {
        let mut full = open(guest, "FULL", Mode::Transport);
        full.write(border - 12, &image(24)).unwrap();
        let mut found = vec![0; 12 * 4096];
        open(guest, "MINI", Mode::Command).read(0, &mut found).unwrap();
        assert!(found == image(24)[12 * 4096..]);
    });
    for (name, number, offset) in [
        ("big_1.ckd", FIRST_FILE_CYLINDERS * HEADS - 1, 2_147_397_632 - TRACK_BYTES as u64),
        ("big_2.ckd", FIRST_FILE_CYLINDERS * HEADS, HEADER_BYTES as u64),
    ] {
        let file = File::open(place.0.join(name)).unwrap();
        file.read_exact_at(&mut track, offset).unwrap();
        let shape = track::check(&track, track_of(number)).unwrap();
        let uniform = shape.uniform.unwrap();
        for record in 1..=12 {
            let block = usize::from(record) - 1 + if name == "big_1.ckd" { 0 } else { 12 };
            let at = uniform.data_at(record).unwrap();
            assert!(track[at..at + 4096] == image(24)[block * 4096..][..4096], "{name} {record}");
        }
    }
    let listed = place.tool("dasdls", &["-info", "big_1.ckd"]);
    assert!(listed.contains("VOLSER=THEIRS"), "{listed}");
}

#[test]
fn data_sets_that_hercules_loaded_are_read_record_for_record() {
    if !has_hercules("data_sets_that_hercules_loaded_are_read_record_for_record") {
        return;
    }
    let place = Place::new("loaded");
    // Two tracks of blocks of ten records.
    let source = &image(20)[..80 * 800];
    place.write("source", source);
    place.write(
        "layout",
        b"LOAD01 3390 20\ntheir.vtoc vtoc trk 3\nTHEIR.SEQ seq source trk 4 0 0 ps fb 80 800\n",
    );
    let loaded = place.tool("dasdload", &["layout", "a.ckd", "2"]);
    assert_eq!(place.good(&["check", "a.ckd"]), "a.ckd: 300 tracks, no faults\n", "{loaded}");
    let listed: Value = serde_json::from_str(&place.good(&["ls", "a.ckd", "--json"])).unwrap();
    let data_set = &listed["data_sets"][0];
    assert_eq!((&listed["volume"], &data_set["name"]), (&"LOAD01".into(), &"THEIR.SEQ".into()));
    let first = at(
        data_set["first_cylinder"].as_u64().unwrap() as u32,
        data_set["first_head"].as_u64().unwrap() as u8,
    );
    with_guest(&place.0.join("a.ckd"), 1, |guest| {
        for mode in [Mode::Command, Mode::Transport] {
            let mut full = open(guest, "FULL", mode);
            let mut found: Vec<u8> = Vec::new();
            for track in 0..4 {
                let bytes = full.read_track(track_number(first) + track).unwrap();
                for record in records_from(&bytes, 0).map(Result::unwrap).skip(1) {
                    found.extend(&bytes[record.data_at()..record.end()]);
                }
            }
            assert!(found == source, "{mode:?}: {} bytes", found.len());
        }
    });
    let unloaded = place.tool("dasdseq", &["a.ckd", "THEIR.SEQ"]);
    assert!(place.read("THEIR.SEQ") == source, "{unloaded}");
}

#[test]
fn we_read_what_hercules_writes() {
    if !has_hercules("we_read_what_hercules_writes") {
        return;
    }
    let place = Place::new("foreign");
    let made = place.tool("dasdinit", &["-linux", "a.ckd", "3390", "THEIRS", "20"]);
    assert!(made.contains("successfully completed"), "{made}");
    assert_eq!(place.good(&["check", "a.ckd"]), "a.ckd: 300 tracks, no faults\n");
    let listed: Value = serde_json::from_str(&place.good(&["ls", "a.ckd", "--json"])).unwrap();
    assert_eq!((&listed["volume"], &listed["cylinders"]), (&"THEIRS".into(), &20.into()));
    // Without a table of contents a volume has its name all the same.
    place.tool("dasdinit", &["b.ckd", "3390", "PLAIN", "20"]);
    let listed: Value = serde_json::from_str(&place.good(&["ls", "b.ckd", "--json"])).unwrap();
    assert_eq!(
        (&listed["volume"], listed["data_sets"].as_array().unwrap().len()),
        (&"PLAIN".into(), 0)
    );
    assert_eq!(place.siga(&["check", "b.ckd"]).status.code(), Some(1));
    let copied = place.tool("dasdcopy", &["-q", "-r", "-o", "CCKD", "a.ckd", "a.cckd"]);
    let refused = place.siga(&["ls", "a.cckd"]);
    assert_eq!(refused.status.code(), Some(1), "{copied}");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("dasdcopy -o CKD"), "{said}");
}
