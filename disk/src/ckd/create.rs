//! New volumes, and blocks into and out of them.
//!
//! A new volume has a label and a table of contents on cylinder 0, and one data set, [`DATA_SET`], on all other cylinders.
//! Its tracks have 12 records of 4096 bytes each: the blocks of the volume, numbered from 0.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use os::fresh::FreshFile;

use super::header::{HEADER_BYTES, Header};
use super::label::{self, Contents, DataSet, FIXED, Label, LabelError, SEQUENTIAL, Tracks, VOL1};
use super::model::{
    BLOCK_BYTES, BLOCKS_PER_TRACK, CYLINDERS_MAX, HEADS, TRACK_BYTES, track_number, track_of,
};
use super::track::{self, BadTrack, Uniform};
use super::volume::{FILES_MAX, Volume, next_file};
use crate::format::eckd::{COUNT_BYTES, Cchh};

/// The name of the data set that has the volume's blocks.
pub const DATA_SET: &str = "SIGA.BLOCKS";

/// Bytes of the longest file of a volume in several, as Hercules makes them: below 2 GiB.
pub const SPLIT_BYTES_MAX: u64 = (1 << 31) - 1;

/// Bytes of a cylinder in a file.
const CYLINDER_BYTES: u64 = TRACK_BYTES as u64 * HEADS as u64;

/// Where blocks begin.
const FIRST_BLOCK: Cchh = Cchh { cylinder: 1, head: 0 };
const VTOC: Cchh = Cchh { cylinder: 0, head: 1 };

/// What a new volume is to be like.
#[derive(Clone, Debug)]
pub struct NewVolume {
    /// Cylinders: 2 to [`CYLINDERS_MAX`].
    pub cylinders: u32,
    /// Its name: up to 6 letters, digits, and `$#@`.
    pub name: String,
    /// The year, and the day of it.
    pub today: (u16, u16),
    /// Several files of less than 2 GiB, if the volume is larger.
    pub split: bool,
}

/// Bytes of the files of a volume of so many cylinders, about: each file has a header of 512 besides.
pub fn volume_bytes(cylinders: u32) -> u64 {
    u64::from(cylinders) * CYLINDER_BYTES
}

/// Why a volume was not created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// A file could not be written.
    #[error("{file}: {error}", file = file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Too small or too large.
    #[error("{cylinders} cylinders: must be 2 to {CYLINDERS_MAX}")]
    Cylinders {
        /// How many there were to be.
        cylinders: u32,
    },
    /// The name does not do.
    #[error("volume name {name:?}: must have 1 to 6 of A-Z, 0-9, $, # and @")]
    Name {
        /// The name.
        name: String,
    },
    /// More files than a volume has.
    #[error(
        "{cylinders} cylinders take {files} files of less than 2 GiB: must be {FILES_MAX} files at most, \
         {most} cylinders; or one file, of any length"
    )]
    Files {
        /// How many cylinders there were to be.
        cylinders: u32,
        /// How many files they take.
        files: u32,
        /// How many cylinders fit.
        most: u32,
    },
    /// Several files cannot be named.
    #[error("{file}: the name of a volume in several files must end in 1 before the dot", file = file.display())]
    FileName {
        /// The name of the first.
        file: PathBuf,
    },
}

/// Creates a volume. Its files get their names when all of them are on the disk, the first one last: see [`FreshFile`]. A file that is
/// there is not touched. If anything fails, or the process is killed before, nothing is left.
///
/// # Errors
/// [`CreateError`].
pub fn create(
    path: &Path,
    new: &NewVolume,
    mut progress: impl FnMut(u32),
) -> Result<(), CreateError> {
    let NewVolume { cylinders, name, split, .. } = new;
    if !(2..=CYLINDERS_MAX).contains(cylinders) {
        return Err(CreateError::Cylinders { cylinders: *cylinders });
    }
    let is_letter = |letter: u8| {
        letter.is_ascii_uppercase() || letter.is_ascii_digit() || b"$#@".contains(&letter)
    };
    if name.is_empty() || name.len() > 6 || !name.bytes().all(is_letter) {
        return Err(CreateError::Name { name: name.clone() });
    }
    let most = ((SPLIT_BYTES_MAX - HEADER_BYTES as u64) / CYLINDER_BYTES) as u32;
    let per_file = if *split { most } else { *cylinders };
    let files = cylinders.div_ceil(per_file);
    // Before anything is written.
    if files as usize > FILES_MAX {
        let most = most * FILES_MAX as u32;
        return Err(CreateError::Files { cylinders: *cylinders, files, most });
    }
    if files > 1 && next_file(path, 1).is_none() {
        return Err(CreateError::FileName { file: path.to_owned() });
    }
    let named = |path: &Path| {
        let file = path.to_owned();
        |error| CreateError::Io { file, error }
    };
    let mut made = Vec::new();
    let mut target = path.to_owned();
    // All of them, before anything is written.
    for index in 1..=files {
        made.push(FreshFile::create(&target).map_err(named(&target))?);
        if index < files {
            target = next_file(&target, index as u8).expect("checked above");
        }
    }
    for (index, file) in (0..files).zip(&mut made) {
        let first = index * per_file;
        let last = (first + per_file).min(*cylinders);
        let header = Header {
            file: if files > 1 { index as u8 + 1 } else { 0 },
            last_cylinder: if index + 1 < files { (last - 1) as u16 } else { 0 },
            ..Header::default()
        };
        let written = write_file(file.file(), header, first..last, new, &mut progress);
        written.map_err(|error| named(file.path())(error))?;
    }
    // Who finds the first finds all. None stays unless all have their names.
    for file in made.iter_mut().rev() {
        file.name().map_err(|error| named(file.path())(error))?;
    }
    for file in made.into_iter().rev() {
        let path = file.path().to_owned();
        file.keep().map_err(named(&path))?;
    }
    Ok(())
}

fn write_file(
    file: &mut File,
    header: Header,
    cylinders: std::ops::Range<u32>,
    new: &NewVolume,
    progress: &mut impl FnMut(u32),
) -> io::Result<()> {
    file.write_all(&[0; HEADER_BYTES])?;
    let mut bytes = vec![0; TRACK_BYTES * HEADS as usize];
    for cylinder in cylinders {
        for (head, target) in bytes.chunks_exact_mut(TRACK_BYTES).enumerate() {
            let here = Cchh { cylinder, head: head as u8 };
            new_track(target, here, new).expect("what a new track has fits on it");
        }
        file.write_all(&bytes)?;
        progress(cylinder + 1);
    }
    // Last, so that no part of a volume looks like one.
    file.write_all_at(&header.emit(), 0)?;
    file.sync_all()
}

/// A track of a new volume.
fn new_track(target: &mut [u8], here: Cchh, new: &NewVolume) -> Result<(), BadTrack> {
    track::clear(target, here);
    if here == Cchh::default() {
        let label = Label { volume: new.name.clone(), vtoc: Some(VTOC), owner: "SIGA".into() };
        let label = label.emit().expect("the name was checked");
        // A program that is loaded from here waits, disabled: there is no system on this volume.
        track::append(target, here, &[0xc9, 0xd7, 0xd3, 0xf1], &STOP)?;
        track::append(target, here, &[0xc9, 0xd7, 0xd3, 0xf2], &[0; 144])?;
        return track::append(target, here, &VOL1, &label);
    }
    if here == VTOC {
        return new_vtoc(target, here, new);
    }
    if here >= FIRST_BLOCK {
        let block = [0; BLOCK_BYTES];
        for _ in 0..BLOCKS_PER_TRACK {
            track::append(target, here, &[], &block)?;
        }
    }
    Ok(())
}

/// IPL1: a PSW that waits, and two CCWs that are not used.
const STOP: [u8; 24] = {
    let mut bytes = [0; 24];
    bytes[1] = 0x0a;
    bytes[7] = 0x0f;
    bytes
};

fn new_vtoc(target: &mut [u8], here: Cchh, new: &NewVolume) -> Result<(), BadTrack> {
    let vtoc = Tracks { first: VTOC, last: VTOC };
    let all = Tracks {
        first: FIRST_BLOCK,
        last: Cchh { cylinder: new.cylinders - 1, head: HEADS as u8 - 1 },
    };
    let data_set = DataSet {
        name: DATA_SET.into(),
        organisation: SEQUENTIAL,
        record_format: FIXED,
        block_bytes: BLOCK_BYTES as u16,
        record_bytes: BLOCK_BYTES as u16,
        extents: vec![all],
        last: (0, 0),
        created: new.today,
    };
    let used = 3;
    let free = label::DSCBS_PER_TRACK - used;
    let free_tracks = HEADS - 2;
    let (key, data) = label::format_4(new.cylinders, vtoc, free as u16);
    track::append(target, here, &key, &data)?;
    let (key, data) = label::format_5(Some((2, free_tracks)));
    track::append(target, here, &key, &data)?;
    let (key, data) = data_set.emit(&new.name).expect("names were checked");
    track::append(target, here, &key, &data)?;
    for _ in 0..free {
        track::append(target, here, &[0; label::KEY_BYTES], &[0; label::DATA_BYTES])?;
    }
    Ok(())
}

/// Why blocks were not copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The label or the table of contents.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// The volume has no data set of blocks.
    #[error(
        "no data set {DATA_SET} with records of 4096 bytes: `siga volume create` makes a volume with one"
    )]
    NoBlocks,
    /// A track is not one of 12 blocks.
    #[error("cylinder {}, head {}: its records are not 12 of 4096 bytes", track.cylinder, track.head)]
    Track {
        /// Which.
        track: Cchh,
    },
    /// More than fits.
    #[error("more than the {blocks} blocks of the volume")]
    TooLong {
        /// How many there are.
        blocks: u64,
    },
    /// The image does not end with a block.
    #[error("the image does not end with a block of {BLOCK_BYTES} bytes: {bytes} are left")]
    Part {
        /// What is left.
        bytes: usize,
    },
    /// The image could not be read or written.
    #[error("the image: {0}")]
    Image(io::Error),
    /// The volume could not be read or written.
    #[error("the volume: {0}")]
    Volume(io::Error),
}

/// The blocks of a volume.
#[derive(Debug)]
pub struct Blocks {
    volume_name: String,
    contents: Contents,
    /// Which of the contents.
    index: usize,
    first_track: u32,
    tracks: u32,
}

impl Blocks {
    /// Finds them.
    ///
    /// # Errors
    /// [`CopyError`].
    pub fn find(volume: &Volume) -> Result<Blocks, CopyError> {
        let label = label::label(volume)?;
        let contents = label::contents(volume, &label)?;
        let mut data_sets = contents.data_sets.iter();
        let index = data_sets.position(|(_, data_set)| is_data_set_of_blocks(data_set));
        let index = index.ok_or(CopyError::NoBlocks)?;
        let [extent] = contents.data_sets[index].1.extents[..] else {
            return Err(CopyError::NoBlocks);
        };
        let tracks = extent.count().ok_or(CopyError::NoBlocks)?;
        let first_track = track_number(extent.first);
        let end = first_track.checked_add(tracks);
        if end.is_none_or(|end| end > volume.tracks()) {
            return Err(CopyError::NoBlocks);
        }
        Ok(Blocks { volume_name: label.volume, contents, index, first_track, tracks })
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        u64::from(self.tracks) * u64::from(BLOCKS_PER_TRACK)
    }

    /// How many were written by the last import: those up to the last.
    pub fn used(&self) -> u64 {
        let (track, record) = self.contents.data_sets[self.index].1.last;
        (u64::from(track) * u64::from(BLOCKS_PER_TRACK) + u64::from(record)).min(self.count())
    }

    /// The track and the record that block `index` is.
    pub fn place(&self, index: u64) -> Option<(Cchh, u8)> {
        let track = u32::try_from(index / u64::from(BLOCKS_PER_TRACK)).ok()?;
        let record = (index % u64::from(BLOCKS_PER_TRACK)) as u8 + 1;
        (track < self.tracks).then(|| (track_of(self.first_track + track), record))
    }

    /// Copies an image into the blocks, from the first on, and writes into the table of contents how many there are.
    /// Everything is on the disk when this returns. Returns the number of blocks.
    ///
    /// # Errors
    /// [`CopyError`]. The blocks before the fault were written then, and the table of contents was not.
    pub fn import(
        &mut self,
        volume: &mut Volume,
        image: &mut impl Read,
        mut progress: impl FnMut(u64),
    ) -> Result<u64, CopyError> {
        let mut bytes = vec![0; TRACK_BYTES];
        let mut content = vec![0; BLOCK_BYTES * BLOCKS_PER_TRACK as usize];
        let mut blocks = 0;
        for index in 0..self.tracks {
            let read = read_full(image, &mut content).map_err(CopyError::Image)?;
            if read % BLOCK_BYTES != 0 {
                return Err(CopyError::Part { bytes: read % BLOCK_BYTES });
            }
            if read == 0 {
                break;
            }
            let number = self.first_track + index;
            let first = self.read_blocks(volume, number, &mut bytes)?;
            for (record, block) in content[..read].chunks_exact(BLOCK_BYTES).enumerate() {
                let at = first + record * (COUNT_BYTES + BLOCK_BYTES);
                bytes[at..at + BLOCK_BYTES].copy_from_slice(block);
            }
            volume.write(number, 0, &bytes).map_err(CopyError::Volume)?;
            blocks += (read / BLOCK_BYTES) as u64;
            progress(blocks);
        }
        if blocks == self.count()
            && read_full(image, &mut content[..1]).map_err(CopyError::Image)? > 0
        {
            return Err(CopyError::TooLong { blocks });
        }
        volume.sync().map_err(CopyError::Volume)?;
        self.set_used(volume, blocks)?;
        Ok(blocks)
    }

    /// Copies blocks into an image: those up to the last that was written, or all.
    ///
    /// # Errors
    /// [`CopyError`].
    pub fn export(
        &self,
        volume: &Volume,
        image: &mut impl Write,
        blocks: u64,
        mut progress: impl FnMut(u64),
    ) -> Result<(), CopyError> {
        let mut bytes = vec![0; TRACK_BYTES];
        let mut left = blocks.min(self.count());
        for index in 0..self.tracks {
            if left == 0 {
                break;
            }
            let first = self.read_blocks(volume, self.first_track + index, &mut bytes)?;
            for record in 0..left.min(BLOCKS_PER_TRACK.into()) as usize {
                let at = first + record * (COUNT_BYTES + BLOCK_BYTES);
                image.write_all(&bytes[at..at + BLOCK_BYTES]).map_err(CopyError::Image)?;
            }
            left -= left.min(BLOCKS_PER_TRACK.into());
            progress(blocks - left);
        }
        image.flush().map_err(CopyError::Image)
    }

    /// Reads a track of 12 blocks. Returns where the data of the first is.
    fn read_blocks(
        &self,
        volume: &Volume,
        number: u32,
        bytes: &mut [u8],
    ) -> Result<usize, CopyError> {
        volume.read_track(number, bytes).map_err(CopyError::Volume)?;
        let track = track_of(number);
        let shape =
            track::check(bytes, track).map_err(|fault| LabelError::Track { track, fault })?;
        let uniform = shape.uniform.filter(is_blocks).ok_or(CopyError::Track { track })?;
        Ok(uniform.data_at(1).expect("there are 12"))
    }

    fn set_used(&mut self, volume: &mut Volume, blocks: u64) -> Result<(), CopyError> {
        let per_track = u64::from(BLOCKS_PER_TRACK);
        let ((track, record), data_set) = &mut self.contents.data_sets[self.index];
        data_set.last = match blocks.checked_sub(1) {
            None => (0, 0),
            Some(last) => ((last / per_track) as u32, (last % per_track) as u8 + 1),
        };
        let (_, data) = data_set.emit(&self.volume_name).ok_or(CopyError::NoBlocks)?;
        volume.write(track_number(*track), record.data_at(), &data).map_err(CopyError::Volume)?;
        volume.sync().map_err(CopyError::Volume)
    }
}

/// Returns true for the data set that has the volume's blocks.
pub(super) fn is_data_set_of_blocks(data_set: &DataSet) -> bool {
    data_set.name == DATA_SET && usize::from(data_set.block_bytes) == BLOCK_BYTES
}

/// Returns true if the records of a track are blocks, as on a new volume.
pub(super) fn is_blocks(uniform: &Uniform) -> bool {
    u32::from(uniform.records) == BLOCKS_PER_TRACK && usize::from(uniform.data_bytes) == BLOCK_BYTES
}

/// Reads until `target` is full or there is no more.
fn read_full(source: &mut impl Read, target: &mut [u8]) -> io::Result<usize> {
    let mut at = 0;
    while at < target.len() {
        match source.read(&mut target[at..]) {
            Ok(0) => break,
            Ok(read) => at += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::ckd::backing::Simulated;
    use crate::ckd::volume::{Access, Volume};

    fn new(cylinders: u32) -> NewVolume {
        NewVolume { cylinders, name: "SIGA01".into(), today: (2026, 33), split: false }
    }

    /// A file of its own, which goes with this.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let name = format!("siga-disk-{name}-{}", std::process::id());
            Place(std::env::temp_dir().join(name))
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    #[test]
    fn what_is_imported_is_exported() {
        let place = Place::new("import");
        create(&place.0, &new(3), |_| ()).unwrap();
        let mut volume = Volume::open(&place.0, Access::Write).unwrap();
        let mut blocks = Blocks::find(&volume).unwrap();
        assert_eq!((blocks.count(), blocks.used()), (2 * 15 * 12, 0));
        let image: Vec<u8> = (0..BLOCK_BYTES * 31).map(|at| (at / 7) as u8).collect();
        assert_eq!(blocks.import(&mut volume, &mut &image[..], |_| ()).unwrap(), 31);
        drop(volume);
        let volume = Volume::open(&place.0, Access::Read).unwrap();
        let blocks = Blocks::find(&volume).unwrap();
        assert_eq!(blocks.used(), 31);
        let mut copy = Vec::new();
        blocks.export(&volume, &mut copy, blocks.used(), |_| ()).unwrap();
        assert!(copy == image);
        assert_eq!(blocks.place(13), Some((Cchh { cylinder: 1, head: 1 }, 2)));
        assert_eq!(blocks.place(360), None);
    }

    #[test]
    fn images_that_do_not_fit_are_refused() {
        let place = Place::new("refused");
        create(&place.0, &new(2), |_| ()).unwrap();
        let mut volume = Volume::open(&place.0, Access::Write).unwrap();
        let mut blocks = Blocks::find(&volume).unwrap();
        let long = vec![1; BLOCK_BYTES * 181];
        let error = blocks.import(&mut volume, &mut &long[..], |_| ()).unwrap_err();
        assert!(matches!(error, CopyError::TooLong { blocks: 180 }));
        let error = blocks.import(&mut volume, &mut &long[..5000], |_| ()).unwrap_err();
        assert!(matches!(error, CopyError::Part { bytes: 904 }));
        assert_eq!(blocks.used(), 0);
    }

    #[test]
    fn file_that_is_there_is_not_touched() {
        let place = Place::new("there");
        fs::write(&place.0, "notes").unwrap();
        assert!(matches!(create(&place.0, &new(2), |_| ()), Err(CreateError::Io { .. })));
        assert_eq!(fs::read(&place.0).unwrap(), b"notes");
    }

    #[test]
    fn volume_of_too_many_files_is_refused_before_anything_is_written() {
        let place = Place::new("many");
        let large = NewVolume { split: true, ..new(32_760) };
        let refused = create(&place.0, &large, |done| panic!("{done} cylinders are written"));
        let says = "32760 cylinders take 14 files of less than 2 GiB: must be 8 files at most, 20152 \
                    cylinders; or one file, of any length";
        assert_eq!(refused.unwrap_err().to_string(), says);
        let other = Place(place.0.with_file_name("siga-many.ckd"));
        let named =
            create(&other.0, &NewVolume { split: true, ..new(5000) }, |_| panic!("it writes"));
        assert!(matches!(named, Err(CreateError::FileName { .. })));
        assert!(!place.0.exists() && !other.0.exists());
    }

    #[test]
    fn volume_has_its_name_when_it_is_whole() {
        let place = Place::new("whole");
        create(&place.0, &new(3), |_| {
            // Where the file system has no files without a name, the file is there, and is no volume.
            let is_whole = Volume::open(&place.0, Access::Read).is_ok();
            assert!(!is_whole, "seen before it is whole");
        })
        .unwrap();
        assert_eq!(Volume::open(&place.0, Access::Read).unwrap().cylinders(), 3);
    }

    #[test]
    fn part_of_another_volume_is_not_touched_and_nothing_stays() {
        let place = Place::new("part");
        let first =
            Place(place.0.with_file_name(format!("siga-part-{}-1.ckd", std::process::id())));
        let second = Place(next_file(&first.0, 1).unwrap());
        fs::write(&second.0, "notes").unwrap();
        let split = NewVolume { split: true, ..new(2600) };
        let error = create(&first.0, &split, |_| panic!("it writes")).unwrap_err();
        assert!(matches!(error, CreateError::Io { file, .. } if file == second.0));
        assert!(!first.0.exists());
        assert_eq!(fs::read(&second.0).unwrap(), b"notes");
    }

    #[test]
    fn volume_is_open_for_one_writer() {
        let place = Place::new("locked");
        create(&place.0, &new(2), |_| ()).unwrap();
        let writer = Volume::open(&place.0, Access::Write).unwrap();
        let error = Volume::open(&place.0, Access::Read).unwrap_err();
        assert!(error.to_string().ends_with("in use by another process"), "{error}");
        drop(writer);
        let _first = Volume::open(&place.0, Access::Read).unwrap();
        let _second = Volume::open(&place.0, Access::Read).unwrap();
    }

    #[test]
    fn writer_that_only_reads_lets_others_read_and_keeps_writers_out() {
        let place = Place::new("shared");
        create(&place.0, &new(2), |_| ()).unwrap();
        let mut volume = Volume::open(&place.0, Access::Write).unwrap().into_read().unwrap();
        let error = Volume::open(&place.0, Access::Write).unwrap_err();
        assert!(error.to_string().ends_with("in use by another process"), "{error}");
        assert_eq!(Volume::open(&place.0, Access::Read).unwrap().cylinders(), 2);
        assert_eq!(volume.write(0, 0, b"x").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        drop(volume);
        Volume::open(&place.0, Access::Write).unwrap();
    }

    #[test]
    fn failing_disk_loses_no_block_that_was_acknowledged() {
        let place = Place::new("failing");
        create(&place.0, &new(2), |_| ()).unwrap();
        let bytes = fs::read(&place.0).unwrap();
        let image = vec![0x5a; BLOCK_BYTES * 30];
        for steps in 0..6 {
            let mut disk = Simulated::new(bytes.clone());
            (disk.steps_left, disk.torn_bytes) = (Some(steps), 1000);
            let mut volume = Volume::from_backing(Box::new(disk), Access::Write).unwrap();
            let mut blocks = Blocks::find(&volume).unwrap();
            // Three tracks, a sync, the table of contents, a sync.
            let imported = blocks.import(&mut volume, &mut &image[..], |_| ());
            assert!(matches!(imported, Err(CopyError::Volume(_))), "{steps}");
        }
    }
}
