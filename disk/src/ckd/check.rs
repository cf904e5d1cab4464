//! Everything that is wrong with a volume. Nothing is changed.

use super::label::{self, LabelError, Tracks};
use super::model::{TRACK_BYTES, track_number, track_of};
use super::track::{self, BadTrack, Shape};
use super::volume::Volume;
use crate::format::eckd::Cchh;

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
                TrackFault::Io(_) => 0,
            };
            let (file, start) = volume.place(number);
            Fault::Track { track, file, offset: start + within, what }
        });
        found(number, checked);
    }
}

/// Reads a whole volume and hands each fault to `found`. `progress` has the number of tracks that were read.
pub fn check(volume: &Volume, mut progress: impl FnMut(u32), mut found: impl FnMut(Fault)) {
    check_tracks(volume, |number, checked| {
        if let Err(fault) = checked {
            found(fault);
        }
        progress(number + 1);
    });
    let contents = match label::label(volume).and_then(|label| label::contents(volume, &label)) {
        Ok(contents) => contents,
        Err(error) => return found(Fault::Label(error)),
    };
    let mut used: Vec<(u32, u32, String)> = Vec::new();
    let vtoc = ("the table of contents".to_owned(), contents.vtoc);
    let data_sets = contents.data_sets.into_iter().flat_map(|(_, data_set)| {
        let name = data_set.name;
        data_set.extents.into_iter().map(move |extent| (name.clone(), extent))
    });
    for (name, extent) in std::iter::once(vtoc).chain(data_sets) {
        let Tracks { first, last } = extent;
        let (first, end) = (track_number(first), track_number(last) + 1);
        if first >= end || end > volume.tracks() {
            let what = format!("its tracks {first} to {} are not on the volume", end - 1);
            found(Fault::DataSet { name, what });
            continue;
        }
        let other = used.iter().find(|(start, stop, _)| first < *stop && *start < end);
        if let Some((_, _, other)) = other {
            let what = format!("it has tracks in common with {other}");
            found(Fault::DataSet { name: name.clone(), what });
        }
        used.push((first, end, name));
    }
}
