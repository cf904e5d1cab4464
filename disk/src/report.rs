//! What a server of volumes shows of itself: words in storage of its own, which the host reads when somebody asks.
//!
//! ```text
//! word 0       generation: odd while the server writes
//! word 1       volumes 16 | devices 16 | subchannels 32     how many there are; the first of them have rows
//! word 2       channel paths
//! word 3       guests that have devices open
//! word 4       opens that were refused because a guest had as much as it may
//! word 5       opens that there may be in a second
//! word 6       when none of those until now counts any more, on the clock CLOCK_MONOTONIC, in nanoseconds
//! word 7       how often opens had to wait for that
//! word 16      a row of 16 words for each channel path
//!              | guests | units of each kind, both directions together, in the order of their numbers |
//! word 144     a row of 64 for each volume
//!              | name | cylinders 32, flags 32 | slots 32, used 32 | pinned 32, damaged tracks 32 | lookups | misses |
//!              | why a sync has failed: 1 32, code of the error 32 from its low bits on; 0 if none has |
//!              word 16 of it: the name of its file, 256 bytes; word 48: for each damaged track offset 39, file 3, track 22
//! word 4240    a row of 8 for each device
//!              | name | volume 16, flags 16, guests that have it open 32 | first cylinder 32, cylinders 32 | guest |
//! word 8336    a row of 12 for each subchannel
//!              | guest | device 32, channel path 16, number 16 | starts | samples | times: see `Measurement` |
//! word 20624   a row of 8 for each guest that has devices open
//!              | name | opens 32, opens that it may have 32 | bytes of storage | bytes that it may have | opens that were refused 32 for
//!              their number, 32 for their storage |
//! ```
//!
//! Parts of a word are named from its low bits on. Names are 8 bytes of ASCII, with zeros or blanks behind. All words are written by
//! the server. The host believes none of them: a number is shown, a name is shown without what is no letter.

use fabric::snapshot;
use os::sync::Ordering;
use os::words::{LentWords, WORD_BYTES, Words};

use crate::ckd::model::{CYLINDERS_MAX, HEADS, track_number, track_of};
use crate::unit::{DAMAGED_TRACKS_MAX, DamagedTrack, Reading, Syncing, Writing};
use channel::exchange::Kind;
use channel::subchannel::Measurement;

/// Channel paths that have a row: all of a channel.
pub const PATHS_MAX: usize = channel::PATHS_MAX;
/// Volumes that have a row.
pub const VOLUMES_MAX: usize = 64;
/// Devices that have a row.
pub const DEVICES_MAX: usize = 512;
/// Subchannels that have a row.
pub const SUBCHANNELS_MAX: usize = 1024;
/// Guests that have a row.
pub const GUESTS_MAX: usize = 512;

const PATHS: Rows = Rows { first: 16, words: 16, most: PATHS_MAX };
const VOLUMES: Rows = Rows { first: PATHS.end(), words: 64, most: VOLUMES_MAX };
const DEVICES: Rows = Rows { first: VOLUMES.end(), words: 8, most: DEVICES_MAX };
const SUBCHANNELS: Rows = Rows { first: DEVICES.end(), words: 12, most: SUBCHANNELS_MAX };
const GUESTS: Rows = Rows { first: SUBCHANNELS.end(), words: 8, most: GUESTS_MAX };
const _: () = assert!(GUESTS.first == 20624);
const _: () = assert!(VOLUMES.first == 144 && DEVICES.first == 4240 && SUBCHANNELS.first == 8336);
const _: () = assert!(Kind::ALL.len() < PATHS.words);

const GENERATION: usize = 0;
const COUNTS: usize = 1;
const PATH_COUNT: usize = 2;
const GUEST_COUNT: usize = 3;
const REFUSED: usize = 4;
const RATE: usize = 5;
const FULL: usize = 6;
const WAITS: usize = 7;

/// Words of a report.
pub const REPORT_WORDS: usize = GUESTS.end();
/// Bytes of the storage that a report is in.
pub const REPORT_BYTES: usize = REPORT_WORDS * WORD_BYTES;

/// Bytes of a file's name: the end of a longer one is kept.
pub const FILE_BYTES: usize = 256;
const FILE_AT: usize = 16;
const DAMAGE_AT: usize = FILE_AT + FILE_BYTES / WORD_BYTES;
const _: () = assert!(DAMAGE_AT + DAMAGED_TRACKS_MAX <= VOLUMES.words);

/// Bits of an offset in a file, and of a file's number, in the word of a damaged track.
const OFFSET_BITS: u32 = 39;
const FILE_BITS: u32 = 3;
const _: () = assert!(CYLINDERS_MAX * HEADS <= 1 << (64 - OFFSET_BITS - FILE_BITS));

/// Rows of one kind.
struct Rows {
    first: usize,
    words: usize,
    most: usize,
}

impl Rows {
    const fn end(&self) -> usize {
        self.first + self.words * self.most
    }

    const fn at(&self, index: usize) -> usize {
        self.first + self.words * index
    }
}

mod flag {
    pub const READ_ONLY: u64 = 1;
    pub const DAMAGED: u64 = 2;
    pub const DEDICATED: u64 = 4;
    pub const UNCACHED: u64 = 8;
    /// Of a device: more guests than the one that is named may open it.
    pub const OTHERS: u64 = 16;
    /// Of a volume: its tracks are read directly.
    pub const DIRECT: u64 = 32;
    /// Of a volume: direct reads were wanted and refused.
    pub const DIRECT_REFUSED: u64 = 64;
    /// Of a volume: it is written past the page cache.
    pub const DIRECT_WRITES: u64 = 128;
    /// Of a volume: it is never synced.
    pub const UNSYNCED: u64 = 256;
}

/// A flag, if it is set.
fn bit(flag: u64, is_set: bool) -> u64 {
    if is_set { flag } else { 0 }
}

/// How many rows of each kind there are. There may be more than are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Channel paths.
    pub paths: usize,
    /// Volumes.
    pub volumes: usize,
    /// Devices.
    pub devices: usize,
    /// Subchannels.
    pub subchannels: usize,
    /// Guests that have devices open.
    pub guests: usize,
    /// Opens that were refused because a guest had as much as it may.
    pub refused: u64,
    /// How often guests open devices.
    pub rate: OpenRate,
}

/// How often guests open devices of a control unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenRate {
    /// Opens that there may be in a second; 0 from a server that has no such limit.
    pub most: u32,
    /// When none of those until now counts any more, on the clock that all processes share (`CLOCK_MONOTONIC`).
    pub full_ns: u64,
    /// How often opens had to wait.
    pub waits: u64,
}

/// A volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeState {
    /// The name in its label.
    pub name: String,
    /// Its file, or the first of several.
    pub file: String,
    /// Cylinders.
    pub cylinders: u32,
    /// Nobody writes.
    pub read_only: bool,
    /// How its tracks come from the file.
    pub reading: Reading,
    /// How what is written comes to the disk.
    pub writing: Writing,
    /// Durability of an acknowledged write.
    pub syncing: Syncing,
    /// Tracks that are damaged.
    pub damage: Vec<DamagedTrack>,
    /// Tracks that the cache has room for.
    pub slots: u32,
    /// Tracks that it has.
    pub used: u32,
    /// Places of the cache from which guests have results that they have not done with: tracks that it has, and former states of
    /// tracks that were written or have left it since.
    pub pinned: u32,
    /// How often a track was looked for.
    pub lookups: u64,
    /// How often it had to be read from the file.
    pub misses: u64,
    /// The code of the error with which a sync has failed. Nobody writes to the volume any more.
    pub failure: Option<i32>,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceState {
    /// Its name.
    pub name: String,
    /// Which volume.
    pub volume: usize,
    /// The first cylinder of the volume that belongs to it.
    pub first_cylinder: u32,
    /// How many do.
    pub cylinders: u32,
    /// Guests only read.
    pub read_only: bool,
    /// It is the whole volume, for one guest at a time, which reads in place.
    pub dedicated: bool,
    /// Its tracks stay in the cache.
    pub cached: bool,
    /// The guest that may open it; empty if all may.
    pub guest: String,
    /// Others may too.
    pub has_others: bool,
    /// Guests that have it open.
    pub open: u32,
}

/// A channel path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathState {
    /// Guests whose programs run over it.
    pub guests: u64,
    /// Information units, by the order of their kinds, both directions together.
    pub units: [u64; Kind::ALL.len()],
}

/// A subchannel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubchannelState {
    /// The guest that has it.
    pub guest: String,
    /// Which device.
    pub device: usize,
    /// Over which channel path.
    pub path: u16,
    /// Its number.
    pub number: u16,
    /// Its measurement block.
    pub measurement: Measurement,
}

/// A guest's share of a server: what it uses, and its limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestState {
    /// Its name.
    pub name: String,
    /// Devices that it has open.
    pub opens: u32,
    /// How many it may have open.
    pub opens_max: u32,
    /// Bytes of storage that these take.
    pub storage_bytes: u64,
    /// How many they may take.
    pub storage_bytes_max: u64,
    /// Opens that were refused because it had as many as it may, since it has had any.
    pub opens_refused: u32,
    /// Opens that were refused for their storage.
    pub storage_refused: u32,
}

/// What a server shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// How many there are of everything.
    pub totals: Totals,
    /// Channel paths.
    pub paths: Vec<PathState>,
    /// Volumes.
    pub volumes: Vec<VolumeState>,
    /// Devices.
    pub devices: Vec<DeviceState>,
    /// Subchannels.
    pub subchannels: Vec<SubchannelState>,
    /// Guests that have devices open.
    pub guests: Vec<GuestState>,
}

/// The server's side.
#[derive(Debug)]
pub struct Showing {
    words: Words,
}

impl Showing {
    /// A report of nothing, in fresh words.
    ///
    /// # Panics
    /// If the words are too few: a broken promise inside this program.
    pub fn new(words: Words) -> Showing {
        assert!(words.count() >= REPORT_WORDS, "words of a report");
        Showing { words }
    }

    /// Changes the report. What is in rows beyond those that there is room for is left out.
    pub fn change(&mut self, totals: &Totals, change: impl FnOnce(&mut Rewriting<'_>)) {
        snapshot::change(&self.words, GENERATION, || {
            let count = |count: usize, most: usize| count.min(most) as u64;
            let counts = count(totals.volumes, 0xffff)
                | count(totals.devices, 0xffff) << 16
                | count(totals.subchannels, u32::MAX as usize) << 32;
            let mut rewriting = Rewriting { words: &self.words };
            rewriting.put(COUNTS, &[counts, count(totals.paths, PATHS_MAX)]);
            let OpenRate { most, full_ns, waits } = totals.rate;
            let guests = count(totals.guests, u32::MAX as usize);
            rewriting.put(GUEST_COUNT, &[guests, totals.refused, most.into(), full_ns, waits]);
            change(&mut rewriting);
        });
    }
}

/// A report that is being changed.
#[derive(Debug)]
pub struct Rewriting<'a> {
    words: &'a Words,
}

impl Rewriting<'_> {
    fn put(&mut self, at: usize, values: &[u64]) {
        for (index, value) in values.iter().enumerate() {
            // Relaxed: the generation orders them.
            self.words.store(at + index, *value, Ordering::Relaxed);
        }
    }

    /// Puts a channel path into its row.
    pub fn path(&mut self, index: usize, guests: usize, units: impl Iterator<Item = u64>) {
        if index < PATHS.most {
            self.put(PATHS.at(index), &[guests as u64]);
            for (kind, count) in units.take(Kind::ALL.len()).enumerate() {
                self.put(PATHS.at(index) + 1 + kind, &[count]);
            }
        }
    }

    /// Puts what does not change of a volume into its row.
    pub fn name_volume(&mut self, index: usize, name: &str, file: &str) {
        if index < VOLUMES.most {
            self.put(VOLUMES.at(index), &[packed(name.as_bytes())]);
            let mut start = file.len().saturating_sub(FILE_BYTES);
            while !file.is_char_boundary(start) {
                start += 1;
            }
            let mut bytes = [0; FILE_BYTES];
            bytes[..file.len() - start].copy_from_slice(&file.as_bytes()[start..]);
            for (word, bytes) in bytes.chunks(WORD_BYTES).enumerate() {
                self.put(VOLUMES.at(index) + FILE_AT + word, &[packed(bytes)]);
            }
        }
    }

    /// Puts what changes of a volume into its row. Its name and its file are not looked at.
    pub fn volume(&mut self, index: usize, state: &VolumeState) {
        if index >= VOLUMES.most {
            return;
        }
        let damaged = state.damage.len().min(DAMAGED_TRACKS_MAX);
        let flags =
            bit(flag::READ_ONLY, state.read_only) | bit(flag::DAMAGED, !state.damage.is_empty());
        let flags = flags
            | bit(flag::DIRECT, state.reading == Reading::Direct)
            | bit(flag::DIRECT_REFUSED, state.reading == Reading::Refused)
            | bit(flag::DIRECT_WRITES, state.writing == Writing::Direct)
            | bit(flag::UNSYNCED, state.syncing == Syncing::File);
        let figures = [
            u64::from(state.cylinders) | flags << 32,
            u64::from(state.slots) | u64::from(state.used) << 32,
            u64::from(state.pinned) | (damaged as u64) << 32,
            state.lookups,
            state.misses,
            state.failure.map_or(0, |code| u64::from(code as u32) | 1 << 32),
        ];
        self.put(VOLUMES.at(index) + 1, &figures);
        for (place, damage) in state.damage.iter().take(damaged).enumerate() {
            let DamagedTrack { track, file, offset } = *damage;
            let word = (offset & ((1 << OFFSET_BITS) - 1))
                | (file as u64 & ((1 << FILE_BITS) - 1)) << OFFSET_BITS
                | u64::from(track_number(track)) << (OFFSET_BITS + FILE_BITS);
            self.put(VOLUMES.at(index) + DAMAGE_AT + place, &[word]);
        }
    }

    /// Puts what a guest has into its row.
    pub fn guest(&mut self, index: usize, name: u64, state: &GuestState) {
        if index < GUESTS.most {
            let opens = u64::from(state.opens) | u64::from(state.opens_max) << 32;
            let refused = u64::from(state.opens_refused) | u64::from(state.storage_refused) << 32;
            let row = [name, opens, state.storage_bytes, state.storage_bytes_max, refused];
            self.put(GUESTS.at(index), &row);
        }
    }

    /// Puts a device into its row.
    pub fn device(&mut self, index: usize, state: &DeviceState) {
        if index >= DEVICES.most {
            return;
        }
        let flags = bit(flag::READ_ONLY, state.read_only)
            | bit(flag::DEDICATED, state.dedicated)
            | bit(flag::UNCACHED, !state.cached)
            | bit(flag::OTHERS, state.has_others);
        let row = [
            packed(state.name.as_bytes()),
            (state.volume as u64 & 0xffff) | flags << 16 | u64::from(state.open) << 32,
            u64::from(state.first_cylinder) | u64::from(state.cylinders) << 32,
            packed(state.guest.as_bytes()),
        ];
        self.put(DEVICES.at(index), &row);
    }

    /// Puts a subchannel into its row.
    #[inline]
    pub fn subchannel(
        &mut self,
        index: usize,
        guest: u64,
        device: usize,
        path: usize,
        number: u16,
        measurement: &Measurement,
    ) {
        if index >= SUBCHANNELS.most {
            return;
        }
        let Measurement { starts, samples, pending_ns, connect_ns, .. } = *measurement;
        let place =
            (device as u64 & 0xffff_ffff) | (path as u64 & 0xffff) << 32 | u64::from(number) << 48;
        let times = [
            pending_ns,
            connect_ns,
            measurement.disconnect_ns,
            measurement.queue_ns,
            measurement.device_active_ns,
            measurement.initial_response_ns,
        ];
        self.put(SUBCHANNELS.at(index), &[guest, place, starts, samples]);
        self.put(SUBCHANNELS.at(index) + 4, &times);
    }
}

/// A name of up to 8 letters in a word.
pub fn packed(name: &[u8]) -> u64 {
    let mut bytes = [0; WORD_BYTES];
    let count = name.len().min(WORD_BYTES);
    bytes[..count].copy_from_slice(&name[..count]);
    u64::from_le_bytes(bytes)
}

/// Reads a report: the host's side.
///
/// # Panics
/// If the words are too few: a broken promise inside this program.
pub fn read(words: &LentWords) -> Shown {
    assert!(words.count() >= REPORT_WORDS, "words of a report");
    snapshot::read(words, GENERATION, read_once)
}

fn read_once(words: &LentWords) -> Shown {
    // Relaxed: the generation orders them.
    let word = |at: usize| words.load(at, Ordering::Relaxed);
    let low = |word: u64| word as u32;
    let high = |word: u64| (word >> 32) as u32;
    let is = |word: u64, flag: u64| word & flag != 0;
    let counts = word(COUNTS);
    let totals = Totals {
        paths: (word(PATH_COUNT) as usize).min(PATHS_MAX),
        volumes: (counts & 0xffff) as usize,
        devices: (counts >> 16 & 0xffff) as usize,
        subchannels: high(counts) as usize,
        guests: word(GUEST_COUNT) as u32 as usize,
        refused: word(REFUSED),
        rate: OpenRate { most: low(word(RATE)), full_ns: word(FULL), waits: word(WAITS) },
    };
    let rows = |count: usize, rows: Rows| {
        (0..count.min(rows.most)).map(move |index| rows.first + rows.words * index)
    };
    let path = |at: usize| PathState {
        guests: word(at),
        units: std::array::from_fn(|kind| word(at + 1 + kind)),
    };
    let damage = |word: u64| DamagedTrack {
        track: track_of((word >> (OFFSET_BITS + FILE_BITS)) as u32),
        file: (word >> OFFSET_BITS) as usize & ((1 << FILE_BITS) - 1),
        offset: word & ((1 << OFFSET_BITS) - 1),
    };
    let volume = |at: usize| {
        let (size, slots, pinned) = (word(at + 1), word(at + 2), word(at + 3));
        let file = (0..FILE_BYTES / WORD_BYTES).flat_map(|index| {
            let word = word(at + FILE_AT + index);
            word.to_le_bytes()
        });
        let damaged = (high(pinned) as usize).min(DAMAGED_TRACKS_MAX);
        VolumeState {
            name: text(&word(at).to_le_bytes()),
            file: text(&file.collect::<Vec<u8>>()),
            cylinders: low(size),
            read_only: is(size >> 32, flag::READ_ONLY),
            reading: match (is(size >> 32, flag::DIRECT_REFUSED), is(size >> 32, flag::DIRECT)) {
                (true, _) => Reading::Refused,
                (false, true) => Reading::Direct,
                (false, false) => Reading::Buffered,
            },
            writing: match is(size >> 32, flag::DIRECT_WRITES) {
                true => Writing::Direct,
                false => Writing::Buffered,
            },
            syncing: match is(size >> 32, flag::UNSYNCED) {
                true => Syncing::File,
                false => Syncing::Fdatasync,
            },
            damage: (0..damaged).map(|index| damage(word(at + DAMAGE_AT + index))).collect(),
            slots: low(slots),
            used: high(slots),
            pinned: low(pinned),
            lookups: word(at + 4),
            misses: word(at + 5),
            failure: (high(word(at + 6)) != 0).then_some(word(at + 6) as i32),
        }
    };
    let device = |at: usize| {
        let (what, size) = (word(at + 1), word(at + 2));
        DeviceState {
            name: text(&word(at).to_le_bytes()),
            volume: (what & 0xffff) as usize,
            first_cylinder: low(size),
            cylinders: high(size),
            read_only: is(what >> 16, flag::READ_ONLY),
            dedicated: is(what >> 16, flag::DEDICATED),
            cached: !is(what >> 16, flag::UNCACHED),
            guest: text(&word(at + 3).to_le_bytes()),
            has_others: is(what >> 16, flag::OTHERS),
            open: high(what),
        }
    };
    let subchannel = |at: usize| {
        let place = word(at + 1);
        SubchannelState {
            guest: text(&word(at).to_le_bytes()),
            device: low(place) as usize,
            path: (place >> 32) as u16,
            number: (place >> 48) as u16,
            measurement: Measurement {
                starts: word(at + 2),
                samples: word(at + 3),
                pending_ns: word(at + 4),
                connect_ns: word(at + 5),
                disconnect_ns: word(at + 6),
                queue_ns: word(at + 7),
                device_active_ns: word(at + 8),
                initial_response_ns: word(at + 9),
            },
        }
    };
    let guest = |at: usize| GuestState {
        name: text(&word(at).to_le_bytes()),
        opens: low(word(at + 1)),
        opens_max: high(word(at + 1)),
        storage_bytes: word(at + 2),
        storage_bytes_max: word(at + 3),
        opens_refused: low(word(at + 4)),
        storage_refused: high(word(at + 4)),
    };
    Shown {
        totals,
        paths: rows(totals.paths, PATHS).map(path).collect(),
        volumes: rows(totals.volumes, VOLUMES).map(volume).collect(),
        devices: rows(totals.devices, DEVICES).map(device).collect(),
        subchannels: rows(totals.subchannels, SUBCHANNELS).map(subchannel).collect(),
        guests: rows(totals.guests, GUESTS).map(guest).collect(),
    }
}

/// Text that somebody else has written. What is no letter, digit or mark by itself is a question mark: what moves a terminal's cursor,
/// what nobody sees, what changes the direction of writing, and what joins the letter before it.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().rposition(|byte| !matches!(byte, 0 | b' ')).map_or(0, |last| last + 1);
    let letters = String::from_utf8_lossy(&bytes[..end]);
    letters.chars().map(|letter| if is_visible(letter) { letter } else { '?' }).collect()
}

/// Whether a letter is shown as itself. The standard library escapes all others, and quotes and backslashes too.
fn is_visible(letter: char) -> bool {
    matches!(letter, '"' | '\'' | '\\') || letter.escape_debug().count() == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::eckd::Cchh;

    fn volume() -> VolumeState {
        let track = Cchh { cylinder: 262_667, head: 14 };
        VolumeState {
            name: "SIGA01".into(),
            file: "/a/b\u{e9}.ckd".into(),
            cylinders: 3339,
            read_only: true,
            reading: Reading::Direct,
            writing: Writing::Direct,
            syncing: Syncing::File,
            damage: vec![DamagedTrack { track, file: 7, offset: (1 << 39) - 1 }],
            slots: 4000,
            used: 30,
            pinned: 2,
            lookups: 1 << 40,
            misses: 31,
            failure: Some(5),
        }
    }

    fn device() -> DeviceState {
        DeviceState {
            name: "0191".into(),
            volume: 1,
            first_cylinder: 100,
            cylinders: 83,
            read_only: true,
            dedicated: false,
            cached: false,
            guest: "ALICE".into(),
            has_others: true,
            open: 3,
        }
    }

    fn guest() -> GuestState {
        GuestState {
            name: "ALICE".into(),
            opens: 5,
            opens_max: 64,
            storage_bytes: 7 << 30,
            storage_bytes_max: 1 << 40,
            opens_refused: 3,
            storage_refused: 2,
        }
    }

    #[test]
    fn what_is_shown_is_read() {
        let (words, lent) = Words::pair(REPORT_WORDS).unwrap();
        let mut showing = Showing::new(words);
        let rate = OpenRate { most: 512, full_ns: 1 << 50, waits: 1 << 40 };
        let totals = Totals {
            paths: 1,
            volumes: 1,
            devices: 2,
            subchannels: 1,
            guests: 1,
            refused: 9,
            rate,
        };
        let measurement = Measurement {
            starts: 1,
            samples: 2,
            pending_ns: 3,
            connect_ns: 4,
            disconnect_ns: 5,
            queue_ns: 6,
            device_active_ns: 7,
            initial_response_ns: 8,
        };
        showing.change(&totals, |rows| {
            rows.path(0, 5, 1..=Kind::ALL.len() as u64);
            rows.name_volume(0, "SIGA01", "/a/b\u{e9}.ckd");
            rows.volume(0, &volume());
            rows.device(1, &device());
            rows.subchannel(0, packed(b"ALICE   "), 1, 3, 200, &measurement);
            rows.guest(0, packed(b"ALICE   "), &guest());
        });
        let shown = read(&lent);
        assert_eq!(shown.guests, [guest()]);
        assert_eq!((shown.totals, &shown.volumes), (totals, &vec![volume()]));
        let units = std::array::from_fn(|kind| kind as u64 + 1);
        assert_eq!(shown.paths, [PathState { guests: 5, units }]);
        assert_eq!(shown.devices[1], device());
        let guest = "ALICE".into();
        let subchannel = SubchannelState { guest, device: 1, path: 3, number: 200, measurement };
        assert_eq!(shown.subchannels, [subchannel]);
    }

    #[test]
    fn words_are_where_the_picture_has_them() {
        let (words, lent) = Words::pair(REPORT_WORDS).unwrap();
        let rate = OpenRate { most: 512, full_ns: 7, waits: 8 };
        let totals = Totals {
            paths: 4,
            volumes: 2,
            devices: 3,
            subchannels: 5,
            guests: 2,
            refused: 6,
            rate,
        };
        Showing::new(words).change(&totals, |rows| {
            rows.name_volume(1, "SIGA01", "f");
            rows.volume(1, &volume());
            rows.device(2, &device());
            rows.guest(1, packed(b"ALICE   "), &guest());
        });
        let word = |at| lent.load(at, Ordering::Relaxed);
        assert_eq!([word(0), word(1), word(2)], [2, 5 << 32 | 3 << 16 | 2, 4]);
        let name = u64::from_le_bytes(*b"SIGA01\0\0");
        assert_eq!([word(208), word(209)], [name, 3339 | (1 | 2 | 32 | 128 | 256) << 32]);
        assert_eq!(
            [word(208 + 16), word(208 + 48)],
            [0x66, u64::MAX << 39 & 0x3ff_ffff_ffff | (262_668 * 15 - 1) << 42 | ((1 << 39) - 1)]
        );
        assert_eq!(word(4240 + 2 * 8 + 1), 1 | (1 | 8 | 16) << 16 | 3 << 32);
        assert_eq!([word(3), word(4), word(20624 + 8 + 1)], [2, 6, 5 | 64 << 32]);
        assert_eq!([word(5), word(6), word(7)], [512, 7, 8]);
    }

    #[test]
    fn rows_that_there_is_no_room_for_are_counted_and_left_out() {
        let (words, lent) = Words::pair(REPORT_WORDS).unwrap();
        let many = 100_000;
        let (paths, volumes, devices, subchannels) = (many, many, many, many);
        let totals =
            Totals { paths, volumes, devices, subchannels, guests: many, ..Totals::default() };
        Showing::new(words).change(&totals, |rows| {
            rows.path(PATHS_MAX, 1, [9; 11].into_iter());
            rows.name_volume(VOLUMES_MAX, "A", &"x".repeat(1000));
            rows.name_volume(0, "A", &"\u{e9}".repeat(1000));
            rows.volume(VOLUMES_MAX, &volume());
            rows.device(DEVICES_MAX, &device());
            rows.subchannel(SUBCHANNELS_MAX, 1, 1, 1, 1, &Measurement::default());
            rows.guest(GUESTS_MAX, 1, &guest());
        });
        let Shown { totals, paths, volumes, devices, subchannels, guests } = read(&lent);
        assert_eq!((totals.volumes, totals.subchannels), (0xffff, many));
        let rows = (paths.len(), volumes.len(), devices.len(), subchannels.len());
        assert_eq!(rows, (PATHS_MAX, VOLUMES_MAX, DEVICES_MAX, SUBCHANNELS_MAX));
        assert_eq!((guests.len(), totals.guests), (GUESTS_MAX, many));
        assert_eq!(volumes[0].file, "\u{e9}".repeat(128));
    }

    #[test]
    fn names_that_cannot_be_seen_as_they_are_are_not_shown_so() {
        for (name, shown) in [
            ("/a/b\u{e9}\u{4e2d} 'c\" \\d.ckd", "/a/b\u{e9}\u{4e2d} 'c\" \\d.ckd"),
            // A control, and an escape sequence.
            ("a\tb\u{1b}[2J", "a?b?[2J"),
            // Zero width, soft hyphen, no-break space, and the mark of byte order.
            ("a\u{200b}b\u{ad}c\u{a0}d\u{feff}", "a?b?c?d?"),
            // From right to left, and a tag.
            ("dkc.\u{202e}exe\u{2066}\u{e0041}", "dkc.?exe??"),
            // An accent over the letter before it, and lines.
            ("e\u{301}\u{2028}\u{85}", "e???"),
        ] {
            assert_eq!(text(name.as_bytes()), shown, "{name:?}");
        }
        assert_eq!(text(b"a\xffb\0\0 "), "a\u{fffd}b");
    }

    #[test]
    fn any_words_are_read() {
        let (words, lent) = Words::pair(REPORT_WORDS).unwrap();
        for word in 0..REPORT_WORDS {
            words.store(word, u64::MAX ^ (word as u64) << 7, Ordering::Relaxed);
        }
        let shown = read(&lent);
        assert_eq!(shown.subchannels.len(), SUBCHANNELS_MAX);
        let names = shown.volumes.iter().flat_map(|volume| volume.file.chars());
        assert!(names.into_iter().all(|letter| !letter.is_control()));
    }
}
