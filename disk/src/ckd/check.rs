//! Everything that is wrong with a volume. Nothing is changed.

use std::ops::Range;

use super::create::{DATA_SET, is_blocks, is_data_set_of_blocks};
use super::label::{self, Contents, LabelError, Tracks};
use super::model::{BLOCK_BYTES, BLOCKS_PER_TRACK, TRACK_BYTES, track_number, track_of};
use super::track::{self, BadTrack, Shape};
use super::volume::Volume;
use crate::format::eckd::Cchh;

/// Faults of extents that are handed out one by one. A damaged table of contents has up to 765,000.
const EXTENT_FAULTS_MAX: u64 = 1000;

/// Something that is wrong.
#[derive(Debug)]
pub enum Fault {
    /// A track is damaged, or could not be read.
    Track {
        /// Which.
        track: Cchh,
        /// In which file it is, from 0.
        file: usize,
        /// Where the fault is, from the start of the file.
        offset: u64,
        /// What is wrong.
        what: TrackFault,
    },
    /// The label, or the table of contents.
    Label(LabelError),
    /// A data set is not on the volume, or two are on one track.
    DataSet {
        /// Which.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// So many faults of data sets that not all were handed out.
    More {
        /// How many there are besides.
        faults: u64,
    },
}

/// What is wrong with a track.
#[derive(Debug, thiserror::Error)]
pub enum TrackFault {
    /// Its content.
    #[error(transparent)]
    Content(#[from] BadTrack),
    /// It could not be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// It belongs to the data set of the volume's blocks, and its records are no blocks.
    #[error(
        "its records are not {BLOCKS_PER_TRACK} of {BLOCK_BYTES} bytes, as those of data set {DATA_SET} must be: \
         a count field may have been overwritten"
    )]
    Blocks,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Track { track, file, offset, what } => {
                let Cchh { cylinder, head } = track;
                write!(formatter, "cylinder {cylinder}, head {head}")?;
                write!(formatter, " (file {}, byte {offset}): {what}", file + 1)
            }
            Fault::Label(error) => write!(formatter, "{error}"),
            Fault::DataSet { name, what } => write!(formatter, "data set {name}: {what}"),
            Fault::More { faults } => {
                write!(formatter, "{faults} more faults of data sets, which are not listed")
            }
        }
    }
}

/// Reads every track of a volume and hands what each is like, or its fault, to `found`, in their order.
pub fn check_tracks(volume: &Volume, mut found: impl FnMut(u32, Result<Shape, Fault>)) {
    let mut bytes = vec![0; TRACK_BYTES];
    for number in 0..volume.tracks() {
        let track = track_of(number);
        let read = volume.read_track(number, &mut bytes).map_err(TrackFault::from);
        let checked = read.and_then(|()| Ok(track::check(&bytes, track)?));
        let checked = checked.map_err(|what| {
            let within = match &what {
                TrackFault::Content(fault) => fault.offset() as u64,
                TrackFault::Io(_) | TrackFault::Blocks => 0,
            };
            let (file, start) = volume.place(number);
            Fault::Track { track, file, offset: start + within, what }
        });
        found(number, checked);
    }
}

/// Reads a whole volume and hands each fault to `found`. `progress` has the number of tracks that were read.
pub fn check(volume: &Volume, mut progress: impl FnMut(u32), mut found: impl FnMut(Fault)) {
    // The tracks that are whole and have other records than blocks, in order.
    let mut others = Vec::new();
    check_tracks(volume, |number, checked| {
        match checked {
            Ok(shape) if !shape.uniform.is_some_and(|uniform| is_blocks(&uniform)) => {
                others.push(number);
            }
            Ok(_) => {}
            Err(fault) => found(fault),
        }
        progress(number + 1);
    });
    let contents = match label::label(volume).and_then(|label| label::contents(volume, &label)) {
        Ok(contents) => contents,
        Err(error) => return found(Fault::Label(error)),
    };
    if let Some(tracks) = blocks_of(&contents) {
        let in_extent = others.partition_point(|track| *track < tracks.start)
            ..others.partition_point(|track| *track < tracks.end);
        for number in &others[in_extent] {
            let (file, offset) = volume.place(*number);
            let (track, what) = (track_of(*number), TrackFault::Blocks);
            found(Fault::Track { track, file, offset, what });
        }
    }
    check_extents(volume.tracks(), &contents, found);
}

/// The tracks of the data set that has the volume's blocks, if there is one.
fn blocks_of(contents: &Contents) -> Option<Range<u32>> {
    let data_set = contents.data_sets.iter().map(|(_, data_set)| data_set);
    let data_set = data_set.into_iter().find(|data_set| is_data_set_of_blocks(data_set))?;
    let [Tracks { first, last }] = data_set.extents[..] else { return None };
    let (first, last) = (track_number(first), track_number(last));
    (first <= last).then_some(first..last + 1)
}

/// Checks that every extent is on a volume of so many tracks, and that no two have a track in common. Of those that have, each is reported
/// once, with one of the others.
fn check_extents(tracks: u32, contents: &Contents, mut found: impl FnMut(Fault)) {
    let Contents { vtoc, data_sets } = contents;
    let name = |owner: Option<usize>| match owner {
        None => "the table of contents",
        Some(index) => &data_sets[index].1.name,
    };
    let mut faults = 0;
    let mut found_of = |owner: Option<usize>, what: String| {
        faults += 1;
        if faults <= EXTENT_FAULTS_MAX {
            found(Fault::DataSet { name: name(owner).to_owned(), what });
        }
    };
    let of_data_sets = data_sets.iter().enumerate().flat_map(|(index, (_, data_set))| {
        data_set.extents.iter().map(move |extent| (Some(index), extent))
    });
    let mut used = Vec::new();
    for (owner, Tracks { first, last }) in std::iter::once((None, vtoc)).chain(of_data_sets) {
        let (first, end) = (track_number(*first), track_number(*last) + 1);
        if first >= end || end > tracks {
            found_of(owner, format!("its tracks {first} to {} are not on the volume", end - 1));
        } else {
            used.push((first, end, owner));
        }
    }
    used.sort_unstable();
    // Of those that begin at or before this one: where the farthest ends.
    let mut farthest: Option<(u32, Option<usize>)> = None;
    for (first, end, owner) in used {
        match farthest {
            Some((far, other)) if first < far => {
                let (later, earlier) = (owner.max(other), owner.min(other));
                found_of(later, format!("it has tracks in common with {}", name(earlier)));
                farthest = farthest.max(Some((end, owner)));
            }
            _ => farthest = Some((end, owner)),
        }
    }
    if let Some(faults) = faults.checked_sub(EXTENT_FAULTS_MAX).filter(|faults| *faults > 0) {
        found(Fault::More { faults });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ckd::label::{DataSet, FIXED, SEQUENTIAL};
    use crate::ckd::track::records;

    /// A table of contents of data sets with these tracks.
    fn contents(extents: impl Iterator<Item = (u32, u32)>) -> Contents {
        let mut track = vec![0; TRACK_BYTES];
        track::clear(&mut track, Cchh::default());
        let place = (Cchh::default(), records(&track).next().unwrap().unwrap());
        let extents: Vec<_> = extents.collect();
        let data_sets = extents.chunks(3).enumerate().map(|(index, extents)| {
            let extents = extents
                .iter()
                .map(|(first, last)| Tracks { first: track_of(*first), last: track_of(*last) });
            let data_set = DataSet {
                name: format!("SET{index}"),
                organisation: SEQUENTIAL,
                record_format: FIXED,
                block_bytes: 4096,
                record_bytes: 4096,
                extents: extents.collect(),
                last: (0, 0),
                created: (2026, 1),
            };
            (place, data_set)
        });
        let vtoc = Tracks { first: track_of(1), last: track_of(2) };
        Contents { vtoc, data_sets: data_sets.collect() }
    }

    fn faults(tracks: u32, contents: &Contents) -> Vec<String> {
        let mut faults = Vec::new();
        check_extents(tracks, contents, |fault| faults.push(fault.to_string()));
        faults
    }

    #[test]
    fn extents_in_common_and_beyond_the_volume_are_found() {
        // Of SET0, SET1 and SET2. Tracks 20 to 40 hold 22 to 23 and 30 to 50.
        let extents =
            [(20, 40), (60, 60), (3, 9), (22, 23), (10, 19), (61, 70), (30, 50), (71, 90), (2, 2)];
        let says = [
            "data set SET2: its tracks 71 to 90 are not on the volume",
            "data set SET2: it has tracks in common with the table of contents",
            "data set SET1: it has tracks in common with SET0",
            "data set SET2: it has tracks in common with SET0",
        ];
        assert_eq!(faults(75, &contents(extents.into_iter())), says);
    }

    #[test]
    fn largest_table_of_contents_is_checked_and_its_faults_are_bounded() {
        // 255 data sets of three extents on each of 1000 tracks.
        let extents = 765_000;
        let apart = contents((3..extents + 3).map(|track| (track, track)));
        assert_eq!(faults(extents + 3, &apart), [""; 0]);
        let same = faults(extents + 3, &contents((0..extents).map(|_| (3, 3))));
        assert_eq!(same.len(), EXTENT_FAULTS_MAX as usize + 1);
        assert_eq!(same.last().unwrap(), "763999 more faults of data sets, which are not listed");
    }
}
