//! Volume files that hold anything.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::LazyLock;

use disk::ckd::check::{Fault, check, check_tracks};
use disk::ckd::create::{Blocks as ImageBlocks, NewVolume, create};
use disk::ckd::header::{HEADER_BYTES, Header};
use disk::ckd::model::{HEADS, TRACK_BYTES};
use disk::ckd::track::{CONTENT_BYTES_MAX, HOME_BYTES};
use disk::ckd::volume::{Access, Volume};
use disk::format::scsw::DeviceStatus;
use disk::program::blocks::{Blocks, Mode, PROGRAM_BYTES, Verb, build};
use disk::program::tracks;
use disk::unit::usage::VolumeUse;
use disk::unit::{Clock, Unit};

use super::super::Watch;
use super::super::script::{Script, TAME};
use super::parties::{Memory, Parties, ticks};
use super::status::check_end;
use super::visitor::Visitor;

/// Cylinders of the volume that is damaged.
const CYLINDERS: u32 = 2;
const TRACKS: u32 = CYLINDERS * HEADS;
const CYLINDER_BYTES: usize = HEADS as usize * TRACK_BYTES;

/// Programs that run against a damaged volume.
const PROGRAMS_MAX: usize = 30;
/// Where their data are.
const DATA: usize = PROGRAM_BYTES;

/// A volume with a label, a table of contents, and blocks.
static WHOLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let folder = Folder::new("whole");
    let file = folder.0.join("whole.ckd");
    let new = NewVolume {
        cylinders: CYLINDERS,
        name: "PROOF1".to_owned(),
        today: (2026, 1),
        split: false,
    };
    create(&file, &new, |_| ()).expect("a volume");
    fs::read(&file).expect("a file")
});

/// A volume file, or two, with some bytes changed, cut short, or with tracks that change places: opened, checked and served.
///
/// # Panics
/// If that does harm: opening writes, an error names no place, a damaged track is read or written, or a write to one track makes another
/// one a damaged one.
pub fn disk_volume(program: &[u8]) {
    LazyLock::force(&WHOLE);
    let watch = Watch::start();
    let mut script = Script::new(program);
    let mut bytes = WHOLE.clone();
    for _ in 0..=script.below(6) {
        damage(&mut script, &mut bytes);
    }
    if script.below(TAME) == 0 {
        open_files(&mut script, &bytes);
    } else {
        open_one(&mut script, bytes);
    }
    watch.stop();
}

fn damage(script: &mut Script<'_>, bytes: &mut Vec<u8>) {
    let track = script.pick(&[0, 1, 1, 2, 15, 29, 16]).min(TRACKS as usize - 1);
    let start = HEADER_BYTES + track * TRACK_BYTES;
    let other = HEADER_BYTES + script.below(TRACKS as usize) * TRACK_BYTES;
    let is_whole = bytes.len() == WHOLE.len();
    match script.below(16) {
        0 => {
            let at = script.pick(&[0, 4, 8, 12, 16, 17, 17, 18, 19, 25]);
            let number = script.number() as u8;
            bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = number);
        }
        1 => {
            let few = script.pick(&[0, 1, HEADER_BYTES, HEADER_BYTES + 1, WHOLE.len() - 1]);
            let whole = HEADER_BYTES + CYLINDER_BYTES * script.below(4);
            let any = script.below(2 * WHOLE.len());
            let length = script.pick(&[few, whole, whole, any]);
            bytes.resize(length, 0);
        }
        2 | 3 if is_whole => bytes.copy_within(other..other + TRACK_BYTES, start),
        4 if is_whole => bytes[start..start + TRACK_BYTES].fill(script.pick(&[0, 0xff, 1])),
        _ => {
            // Most of what is interesting is at the start, in count fields.
            let within = script.pick(&[21, 100, 400, 4200, TRACK_BYTES]);
            let mut at = start + script.below(within);
            at += script.pick(&[0, 0, 0, 4104, 11 * 4104, 13 + 12 * 4104]);
            let new = match script.below(4) {
                0 => script.bytes(16).to_vec(),
                1 => vec![0xff; 8],
                2 => vec![0; 8],
                _ => vec![script.number() as u8],
            };
            bytes.iter_mut().skip(at).zip(new).for_each(|(byte, new)| *byte = new);
        }
    }
}

/// What is wrong with the tracks of a volume: where it is named.
fn damaged(volume: &Volume, file_bytes: &[u64]) -> BTreeMap<u32, usize> {
    let mut found = BTreeMap::new();
    check_tracks(volume, |number, checked| {
        let Err(fault) = checked else { return };
        let says = fault.to_string();
        let Fault::Track { file, offset, .. } = fault else { panic!("{says}") };
        let (place, start) = volume.place(number);
        assert_eq!(place, file, "{says}");
        let track = start..(start + TRACK_BYTES as u64).min(file_bytes[file]);
        assert!(track.contains(&offset), "{says}");
        assert!(says.contains(&format!("byte {offset}")), "{says}");
        found.insert(number, (offset - start) as usize);
    });
    found
}

/// Everything that looks at a volume and leaves it as it is.
fn look(volume: &Volume) {
    check(volume, |_| (), |fault| assert!(!fault.to_string().is_empty()));
    let Ok(blocks) = ImageBlocks::find(volume) else { return };
    assert!(blocks.used() <= blocks.count());
    let last = blocks.count().checked_sub(1).and_then(|last| blocks.place(last));
    assert!(last.is_none_or(|(track, _)| track.cylinder < volume.cylinders()));
    assert_eq!(blocks.place(blocks.count()), None);
    if let Err(error) = blocks.export(volume, &mut io::sink(), u64::MAX, |_| ()) {
        assert!(!error.to_string().is_empty());
    }
}

fn open_one(script: &mut Script<'_>, bytes: Vec<u8>) {
    let file = Memory::new(bytes.clone());
    let open = |access| Volume::from_backing(Box::new(file.clone()), access);
    let (reading, writing) = (open(Access::Read), open(Access::Write));
    assert_eq!(reading.is_ok(), writing.is_ok(), "one of two opens");
    let (reading, writing) = match (reading, writing) {
        (Ok(reading), Ok(writing)) => (reading, writing),
        (Err(error), _) | (_, Err(error)) => return assert!(!error.to_string().is_empty()),
    };
    look(&reading);
    let damage = damaged(&reading, &[bytes.len() as u64]);
    assert!(file.content().writes == 0 && file.content().bytes == bytes, "opening has written");
    serve(script, &file, writing, &damage);
    let after = damaged(&reading, &[bytes.len() as u64]);
    assert!(after.keys().all(|track| damage.contains_key(track)), "{damage:?} became {after:?}");
    for track in damage.keys() {
        let (_, start) = reading.place(*track);
        let place = start as usize..start as usize + TRACK_BYTES;
        assert!(file.content().bytes[place.clone()] == bytes[place], "a damaged track was written");
    }
}

/// A guest reads and writes what it likes, on a volume that was checked before or not.
fn serve(script: &mut Script<'_>, file: &Memory, volume: Volume, damage: &BTreeMap<u32, usize>) {
    let (cylinders, track_count) = (volume.cylinders(), volume.tracks());
    let mut unit = Unit::with_clock(Clock::new(ticks));
    unit.add_volume(volume, 4 * TRACK_BYTES, os::storage::StorageOptions::default())
        .expect("memory");
    let is_checked = script.below(2) == 0;
    if is_checked {
        damage.iter().for_each(|(track, offset)| unit.note_damage(0, *track, *offset));
    }
    let mut parties = Parties::over(unit, vec![file.clone()]);
    parties.connect();
    let wish = VolumeUse { cylinders, ..Parties::cylinder(0, true) };
    let mut visitor =
        Visitor::new(&mut parties, 0, wish, DATA + CONTENT_BYTES_MAX.next_power_of_two());
    for _ in 0..PROGRAMS_MAX {
        if script.is_over() {
            break;
        }
        let mode = script.pick(&[Mode::Command, Mode::Transport]);
        let verb = script.pick(&[Verb::Read, Verb::Read, Verb::Write]);
        let near = script.pick(&[0, 1, 2, 15, 29]).min(track_count as usize - 1);
        let any = script.below(track_count as usize);
        let track = script.pick(&[near, near, any]) as u32;
        let storage = visitor.client.storage();
        let is_whole = script.below(2) == 0;
        let orb = if is_whole {
            let is_read = verb == Verb::Read;
            let bytes = if is_read { CONTENT_BYTES_MAX } else { fill(script, storage, track) };
            tracks::build(storage, 0, DATA as u32, mode, verb, track, bytes)
        } else {
            let (first, count) = (script.below(3) as u64, 1 + script.below(12) as u32);
            let blocks = Blocks { first_track: track, first, count };
            build(storage, 0, DATA as u32, mode, verb, blocks)
        };
        let before = file.content().bytes.clone();
        visitor.run(&mut parties, &orb);
        let answer = visitor.client.answer();
        check_end(answer, false);
        let is_good = answer.scsw.is_good();
        // Tracks behind it are used if it has no more records.
        assert!(
            !(is_good && damage.contains_key(&track)),
            "{mode:?} {verb:?} of damaged track {track}: {:x?}",
            answer.scsw
        );
        if is_checked && !damage.is_empty() && verb == Verb::Write {
            assert!(answer.scsw.device.has(DeviceStatus::UNIT_CHECK), "{:x?}", answer.scsw);
            assert_eq!(file.content().writes, 0, "a volume with damaged tracks was written");
        }
        if is_good && is_whole && verb == Verb::Read {
            let read = visitor.client.read_bytes() as usize;
            // Record 0 says on which track it is, whatever the file has.
            let start = HEADER_BYTES + track as usize * TRACK_BYTES + HOME_BYTES + 4;
            let found = &visitor.client.storage()[DATA + 4..DATA + read];
            let differs = found.iter().zip(&before[start..]).position(|(one, other)| one != other);
            assert_eq!(differs, None, "{mode:?}: {read} bytes of track {track} are read otherwise");
        }
    }
    visitor.consume();
    (0..4).for_each(|_| parties.round());
    assert_eq!(parties.unit.pinned(0), 0, "pinned tracks");
}

/// Data of a track, which are right more often than not. Returns how many bytes.
fn fill(script: &mut Script<'_>, storage: &mut [u8], track: u32) -> usize {
    let (cylinder, head) = ((track / HEADS) as u8, (track % HEADS) as u8);
    let mut bytes = vec![0, cylinder, 0, head, 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];
    for record in 1..=script.below(4) as u8 {
        let data_bytes = script.pick(&[4096_u16, 0, 100, 30_000]);
        let [high, low] = data_bytes.to_be_bytes();
        bytes.extend([0, cylinder, 0, head, record, 0, high, low]);
        bytes.resize(bytes.len() + usize::from(data_bytes), record);
    }
    bytes.extend([0xff; 8]);
    if script.below(4) == 0 {
        let at = script.below(24);
        bytes[at] = script.number() as u8;
    }
    let all = bytes.len().min(CONTENT_BYTES_MAX);
    storage[DATA..DATA + all].copy_from_slice(&bytes[..all]);
    all
}

/// A folder of its own, which goes with all that is in it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("siga-proof-{name}-{}", std::process::id()));
        // What an earlier process of this number has left.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("a folder");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A volume in two files, each with a cylinder, which do not always fit together.
fn open_files(script: &mut Script<'_>, bytes: &[u8]) {
    let folder = Folder::new("split");
    let cut = (HEADER_BYTES + CYLINDER_BYTES).min(bytes.len());
    let mut first = bytes[..cut].to_vec();
    let mut headers = [
        Header { file: 1, last_cylinder: 0, ..Header::default() },
        Header { file: 2, last_cylinder: 0, ..Header::default() },
    ];
    if script.below(4) > 0 {
        // The last cylinder of the first file is 0, which says that no other file follows.
        headers[0].last_cylinder = script.pick(&[0, 1, 2, u16::MAX]);
        headers[1].last_cylinder = script.pick(&[0, 0, 1, 2, 3]);
        first.resize(HEADER_BYTES + CYLINDER_BYTES * script.pick(&[1, 2, 2]), 0);
    }
    if script.below(TAME) == 0 {
        headers[script.below(2)].file = script.number() as u8;
    }
    let mut second = headers[1].emit().to_vec();
    second.extend(&bytes[cut..]);
    if first.len() >= HEADER_BYTES && script.below(4) > 0 {
        first[..HEADER_BYTES].copy_from_slice(&headers[0].emit());
    }
    let name = script.pick(&["split1.ckd", "split1.ckd", "split1.ckd", "split.ckd", "1", "split1"]);
    let path = folder.0.join(name);
    let next = disk::ckd::volume::next_file(&path, 1).unwrap_or_else(|| folder.0.join("other"));
    let contents = [(path.as_path(), &first), (next.as_path(), &second)];
    match script.below(TAME) {
        0 => fs::write(&path, &first).expect("room"),
        1 => {
            fs::write(&path, &first).expect("room");
            fs::create_dir(&next).expect("room");
        }
        _ => contents.iter().for_each(|(path, bytes)| fs::write(path, bytes).expect("room")),
    }
    for access in [Access::Read, Access::Write] {
        match Volume::open(&path, access) {
            Ok(volume) => {
                look(&volume);
                damaged(&volume, &[first.len() as u64, second.len() as u64]);
            }
            Err(error) => {
                let says = error.to_string();
                assert_eq!(error.file.parent(), Some(folder.0.as_path()), "{says}");
                assert!(says.starts_with(&format!("{}: ", error.file.display())), "{says}");
            }
        }
    }
    assert!(fs::read(&path).expect("it is there") == first, "opening has written");
    if let Ok(found) = fs::read(&next) {
        assert!(found == second, "opening has written");
    }
}
