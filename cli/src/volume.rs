//! `siga volume`: files of count-key-data tracks, and guests that use them.

mod serve;

use std::fs::File;
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Seek, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use disk::ckd::check::{Fault, check};
use disk::ckd::create::{Blocks, CopyError, CreateError, NewVolume, create, volume_bytes};
use disk::ckd::label::{self, DataSet, LabelError};
use disk::ckd::model::{self, BLOCK_BYTES};
use disk::ckd::volume::{Access, OpenError, Problem, Volume};
use indicatif::{ProgressBar, ProgressStyle};
use os::fresh::FreshFile;
use serde::Serialize;
use siga::disk::{open_volume, part_number};

use self::serve::Serve;
pub use self::serve::serve_system;
use crate::outcome::Outcome;
use crate::output::{Output, can_draw, print, print_json, say};

/// Create, list, check, fill and empty volumes
///
/// A volume is a file, or several, of count-key-data tracks, as Hercules reads and writes them.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Create(Create),
    Ls(Ls),
    Check(Check),
    Import(Copy),
    Export(Export),
    Serve(Serve),
}

/// Create a volume, with a label, a table of contents, and blocks of 4096 bytes
///
/// Its files take all of their bytes on the disk: 852480 for each cylinder, 949 MB for the smallest model.
#[derive(Debug, Args)]
struct Create {
    /// The file, which must not be there yet
    file: PathBuf,
    /// The model: 3390-1, -2, -3, -9, -27 or -54
    #[arg(long, default_value = "3390-1", conflicts_with = "cylinders")]
    model: String,
    /// Cylinders, if not those of a model
    #[arg(long, value_name = "NUMBER")]
    cylinders: Option<u32>,
    /// The volume's name: up to 6 of A-Z, 0-9, $, # and @
    #[arg(long, default_value = "SIGA01")]
    name: String,
    /// Several files of less than 2 GiB if the volume is larger: FILE must end in 1 before the dot
    #[arg(long)]
    split: bool,
    #[command(flatten)]
    output: Output,
}

/// List the data sets of volumes
#[derive(Debug, Args)]
#[command(visible_alias = "list")]
struct Ls {
    /// The volumes' files, or the first of each
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Check every track, the label and the table of contents of a volume
///
/// Nothing is changed. The exit code is 1 if something is wrong.
#[derive(Debug, Args)]
struct Check {
    /// The volume's file, or the first of them
    file: PathBuf,
    #[command(flatten)]
    output: Output,
}

/// Copy an image into the blocks of a volume
///
/// The image is bytes, a multiple of 4096. What was in the blocks before is lost.
#[derive(Debug, Args)]
struct Copy {
    /// The volume's file, or the first of them
    file: PathBuf,
    /// The image; - is standard input
    image: PathBuf,
    #[command(flatten)]
    output: Output,
}

/// Copy the blocks of a volume into an image
#[derive(Debug, Args)]
struct Export {
    /// The volume's file, or the first of them
    file: PathBuf,
    /// The image, which must not be there yet; - is standard output
    image: PathBuf,
    /// All blocks, not only those up to the last that was imported
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    output: Output,
}

/// Runs one of the commands.
pub fn run(arguments: &Arguments) -> Result<(), Outcome> {
    match &arguments.command {
        Command::Create(arguments) => create_volume(arguments),
        Command::Ls(arguments) => list(arguments),
        Command::Check(arguments) => check_volume(arguments),
        Command::Import(arguments) => import(arguments),
        Command::Export(arguments) => export(arguments),
        Command::Serve(arguments) => serve::serve(arguments),
    }
}

/// A volume, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Described {
    file: PathBuf,
    volume: String,
    model: &'static str,
    cylinders: u32,
    files: usize,
    data_sets: Vec<Listed>,
}

/// A data set of a volume.
#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    organisation: &'static str,
    record_format: &'static str,
    block_bytes: u16,
    record_bytes: u16,
    tracks: u32,
    first_cylinder: u32,
    first_head: u8,
    created: String,
}

impl Listed {
    fn new(data_set: DataSet) -> Listed {
        let first = data_set.extents.first().map(|extent| extent.first).unwrap_or_default();
        Listed {
            organisation: match data_set.organisation & 0x7fff {
                0x4000 => "sequential",
                0x0200 => "partitioned",
                0x2000 => "direct",
                0x0008 => "VSAM",
                _ => "other",
            },
            record_format: match (data_set.record_format & 0xc0, data_set.record_format & 0x10) {
                (0x80, 0) => "fixed",
                (0x80, _) => "fixed blocked",
                (0x40, 0) => "variable",
                (0x40, _) => "variable blocked",
                _ => "undefined",
            },
            block_bytes: data_set.block_bytes,
            record_bytes: data_set.record_bytes,
            // A damaged volume may say anything.
            tracks: data_set
                .extents
                .iter()
                .filter_map(label::Tracks::count)
                .fold(0, u32::saturating_add),
            first_cylinder: first.cylinder,
            first_head: first.head,
            created: format!("{}.{:03}", data_set.created.0, data_set.created.1),
            name: data_set.name,
        }
    }
}

fn describe(file: &Path, volume: &Volume) -> Result<Described, Outcome> {
    let wrong = |error| Outcome::No(format!("{}: {error}", file.display()));
    let label = label::label(volume).map_err(wrong)?;
    let data_sets = match label::contents(volume, &label) {
        Ok(contents) => contents.data_sets,
        // As Hercules's `dasdinit` leaves a volume, without -linux.
        Err(LabelError::NoVtoc) => Vec::new(),
        Err(error) => return Err(wrong(error)),
    };
    let listed = data_sets.into_iter().map(|(_, data_set)| Listed::new(data_set));
    Ok(Described {
        file: file.to_owned(),
        volume: label.volume,
        model: model_of(volume.cylinders()),
        cylinders: volume.cylinders(),
        files: volume.files(),
        data_sets: listed.collect(),
    })
}

fn open(file: &Path, access: Access) -> Result<Volume, Outcome> {
    open_volume(file, access).map_err(|error| not_opened(file, &error))
}

/// Explains why a volume was not opened, also if the error is in a further file that the user has not named.
fn not_opened(first: &Path, error: &OpenError) -> Outcome {
    match part_number(first, &error.file).filter(|part| *part > 1) {
        Some(part) => Outcome::No(format!(
            "{error}: it is part {part} of the volume that begins with {}",
            first.display()
        )),
        None => match &error.problem {
            Problem::Io(why) => unread(&error.file, why),
            _ => Outcome::no(error),
        },
    }
}

/// Explains why a file cannot be read: wrong use if it is not there.
fn unread(file: &Path, error: &io::Error) -> Outcome {
    let why = format!("{}: {error}", file.display());
    if error.kind() == ErrorKind::NotFound { Outcome::Usage(why) } else { Outcome::No(why) }
}

/// The model of a volume with so many cylinders: a 3390, if no model has just as many.
fn model_of(cylinders: u32) -> &'static str {
    let name = model::name(cylinders);
    // There is no other name for a volume that is larger than the largest model.
    if model::cylinders(name).is_none_or(|exact| exact == cylinders) { name } else { "3390" }
}

/// A bar that shows how far something is, if it can be drawn.
pub fn bar(length: u64) -> ProgressBar {
    if !can_draw() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {percent} %, {eta} left {msg}");
    ProgressBar::new(length).with_style(style.expect("a template that is right"))
}

fn create_volume(arguments: &Create) -> Result<(), Outcome> {
    let Create { file, model, cylinders, name, split, output } = arguments;
    let cylinders = match cylinders {
        Some(cylinders) => *cylinders,
        None => model::cylinders(model).ok_or_else(|| {
            let names: Vec<&str> = model::MODELS.iter().map(|(name, _)| *name).collect();
            Outcome::Usage(format!("--model {model}: must be one of {}", names.join(", ")))
        })?,
    };
    let new = NewVolume { cylinders, name: name.clone(), today: today(), split: *split };
    let bar = bar(cylinders.into());
    let created = create(file, &new, |done| {
        // Nothing was wrong with what was asked for. Count fields lie in every page of a file, so it has no holes.
        if done == 1 {
            let bytes = size(volume_bytes(cylinders));
            say(format_args!("{}: {cylinders} cylinders take {bytes} on the disk", file.display()));
        }
        bar.set_position(done.into());
    });
    bar.finish_and_clear();
    created.map_err(|error| match error {
        CreateError::Io { file, error } if error.kind() == ErrorKind::AlreadyExists => {
            let file = file.display();
            Outcome::No(format!(
                "{file}: exists, and is not overwritten: remove it first, or name another file"
            ))
        }
        CreateError::Io { file, error } => {
            let hint = match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => {
                    ": must be in a directory that is there"
                }
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                    ": must be in a directory that you may write to"
                }
                _ => "",
            };
            Outcome::No(format!("{} cannot be written: {error}{hint}", file.display()))
        }
        wrong => Outcome::Usage(wrong.to_string()),
    })?;
    let volume = open(file, Access::Read)?;
    let described = describe(file, &volume)?;
    if output.json {
        return print_json(&described);
    }
    let Described { volume, model, cylinders, files, .. } = described;
    let files = if files == 1 { "in one file".to_owned() } else { format!("in {files} files") };
    print(format_args!("{volume}: {model}, {cylinders} cylinders, {files}"))
}

/// Bytes as people read them, in powers of 1000 as `df -H` has them.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000_000 => format!("{} MB", bytes.div_ceil(1_000_000)),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// The year, and the day of it, in UTC.
fn today() -> (u16, u16) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut day = (since.as_secs() / 86_400) as u32;
    let mut year = 1970;
    loop {
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let days = if is_leap { 366 } else { 365 };
        if day < days {
            return (year, day as u16 + 1);
        }
        day -= days;
        year += 1;
    }
}

fn list(arguments: &Ls) -> Result<(), Outcome> {
    let mut failed = None;
    for (number, file) in arguments.files.iter().enumerate() {
        match open(file, Access::Read).and_then(|volume| describe(file, &volume)) {
            Ok(described) if arguments.output.json => print_json(&described)?,
            Ok(described) => {
                if number > 0 {
                    print("")?;
                }
                print_described(described)?;
            }
            // The others are listed all the same.
            Err(outcome @ (Outcome::No(_) | Outcome::Usage(_))) => {
                if let Some(Outcome::No(why) | Outcome::Usage(why)) = failed.replace(outcome) {
                    say(format_args!("siga: {why}"));
                }
            }
            Err(other) => return Err(other),
        }
    }
    failed.map_or(Ok(()), Err)
}

fn print_described(described: Described) -> Result<(), Outcome> {
    let Described { volume, model, cylinders, data_sets, .. } = described;
    print(format_args!("{volume}: {model}, {cylinders} cylinders"))?;
    let heads =
        ["data set", "organisation", "records", "created", "block", "record", "tracks", "at"];
    let mut table = crate::output::table(&heads, 4);
    for data_set in data_sets {
        let Listed { first_cylinder, first_head, .. } = data_set;
        table.add_row([
            data_set.name,
            data_set.organisation.to_owned(),
            data_set.record_format.to_owned(),
            data_set.created,
            data_set.block_bytes.to_string(),
            data_set.record_bytes.to_string(),
            data_set.tracks.to_string(),
            format!("{first_cylinder}/{first_head}"),
        ]);
    }
    print(table.trim_fmt())
}

/// Something that is wrong with a volume.
#[derive(Debug, Serialize)]
struct Found {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cylinder: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    head: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    what: String,
}

impl Found {
    fn new(fault: &Fault) -> Found {
        let (kind, track, offset) = match fault {
            Fault::Track { track, offset, .. } => ("track", Some(*track), Some(*offset)),
            Fault::Label(_) => ("label", None, None),
            Fault::DataSet { .. } | Fault::More { .. } => ("data set", None, None),
        };
        let (cylinder, head) = (track.map(|track| track.cylinder), track.map(|track| track.head));
        Found { kind, cylinder, head, offset, what: fault.to_string() }
    }
}

/// The result of a check.
#[derive(Debug, Serialize)]
struct Checked<'a> {
    file: &'a Path,
    tracks: u32,
    faults: u64,
}

fn check_volume(arguments: &Check) -> Result<(), Outcome> {
    let Check { file, output } = arguments;
    let volume = open(file, Access::Read)?;
    let bar = bar(volume.tracks().into());
    let (mut faults, mut printed) = (0, Ok(()));
    check(
        &volume,
        |done| bar.set_position(done.into()),
        |fault| {
            faults += if let Fault::More { faults } = &fault { *faults } else { 1 };
            if printed.is_ok() {
                printed = if output.json { print_json(&Found::new(&fault)) } else { print(&fault) };
            }
        },
    );
    bar.finish_and_clear();
    printed?;
    let tracks = volume.tracks();
    if output.json {
        print_json(&Checked { file, tracks, faults })?;
    } else if faults == 0 {
        print(format_args!("{}: {tracks} tracks, no faults", file.display()))?;
    }
    match faults {
        0 => Ok(()),
        1 => Err(Outcome::No(format!("{}: one fault", file.display()))),
        _ => Err(Outcome::No(format!("{}: {faults} faults", file.display()))),
    }
}

/// The result of a copy.
#[derive(Debug, Serialize)]
struct Copied<'a> {
    file: &'a Path,
    blocks: u64,
    bytes: u64,
}

impl Copied<'_> {
    fn print(&self, output: Output) -> Result<(), Outcome> {
        if output.json {
            return print_json(self);
        }
        let Copied { file, blocks, bytes } = self;
        say(format_args!("{}: {blocks} blocks, {bytes} bytes", file.display()));
        Ok(())
    }
}

fn copied(file: &Path, blocks: u64) -> Copied<'_> {
    Copied { file, blocks, bytes: blocks * BLOCK_BYTES as u64 }
}

fn named(file: &Path) -> impl Fn(CopyError) -> Outcome {
    move |error| Outcome::No(format!("{}: {error}", file.display()))
}

fn import(arguments: &Copy) -> Result<(), Outcome> {
    let Copy { file, image, output } = arguments;
    let wrong = |error: io::Error| unread(image, &error);
    let (mut source, length): (Box<dyn Read>, u64) = if image == Path::new("-") {
        (Box::new(io::stdin().lock()), standard_input_bytes().unwrap_or(0))
    } else {
        let source = File::open(image).map_err(wrong)?;
        let length = source.metadata().map_err(wrong)?.len();
        (Box::new(BufReader::new(source)), length)
    };
    let mut volume = open(file, Access::Write)?;
    let mut blocks = Blocks::find(&volume).map_err(named(file))?;
    // Before anything is overwritten.
    if length > blocks.count() * BLOCK_BYTES as u64 {
        return Err(named(file)(CopyError::TooLong { blocks: blocks.count() }));
    }
    if !length.is_multiple_of(BLOCK_BYTES as u64) {
        return Err(named(file)(CopyError::Part { bytes: length as usize % BLOCK_BYTES }));
    }
    let bar = bar(length / BLOCK_BYTES as u64);
    let mut overwritten = 0;
    let imported = blocks.import(&mut volume, &mut source, |done| {
        overwritten = done;
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let blocks = imported.map_err(|error| match overwritten {
        0 => named(file)(error),
        1 => Outcome::No(format!("{}: {error}; block 0 is overwritten", file.display())),
        _ => Outcome::No(format!(
            "{}: {error}; the blocks 0 to {} are overwritten",
            file.display(),
            overwritten - 1
        )),
    })?;
    copied(file, blocks).print(*output)
}

/// Bytes that are left of standard input, if it is a file, whose length is known.
fn standard_input_bytes() -> Option<u64> {
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned().ok()?);
    let metadata = input.metadata().ok().filter(|metadata| metadata.is_file())?;
    Some(metadata.len().saturating_sub(input.stream_position().ok()?))
}

fn export(arguments: &Export) -> Result<(), Outcome> {
    let Export { file, image, all, output } = arguments;
    let is_standard = image == Path::new("-");
    if is_standard && output.json {
        let why =
            "--json prints to standard output, where the image goes: name a file for the image";
        return Err(Outcome::Usage(why.into()));
    }
    let volume = open(file, Access::Read)?;
    let blocks = Blocks::find(&volume).map_err(named(file))?;
    let count = if *all { blocks.count() } else { blocks.used() };
    let bar = bar(count);
    let wrong = |error: io::Error| Outcome::No(format!("{}: {error}", image.display()));
    // There when it is whole, or not at all.
    let mut fresh = match is_standard {
        true => None,
        false => Some(FreshFile::create(image).map_err(wrong)?),
    };
    let mut target: Box<dyn Write> = match &mut fresh {
        None => Box::new(io::stdout().lock()),
        Some(fresh) => Box::new(BufWriter::new(fresh.file())),
    };
    let exported = blocks.export(&volume, &mut target, count, |done| bar.set_position(done));
    bar.finish_and_clear();
    match exported {
        Err(CopyError::Image(error)) if is_standard && error.kind() == ErrorKind::BrokenPipe => {
            Err(Outcome::Unread)
        }
        other => {
            other.map_err(named(file))?;
            drop(target);
            fresh.map_or(Ok(()), FreshFile::keep).map_err(wrong)?;
            copied(file, count).print(*output)
        }
    }
}
