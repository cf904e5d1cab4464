//! The examples that open volumes: files, and devices of a running host.

#![expect(clippy::duplicate_mod, reason = "each example is a program with all that it needs")]

#[path = "../examples/copy_volume.rs"]
#[expect(dead_code, reason = "it is a program with a main function")]
mod copy_volume;
#[path = "../examples/list_vtoc.rs"]
#[expect(dead_code, reason = "it is a program with a main function")]
mod list_vtoc;
#[path = "../examples/random_reads.rs"]
#[expect(dead_code, reason = "it is a program with a main function")]
mod random_reads;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use siga::disk::ckd::create::{Blocks, NewVolume, create};
use siga::disk::ckd::label::{DataSet, Tracks, format_4};
use siga::disk::ckd::model::{TRACK_BYTES, track_number};
use siga::disk::ckd::track;
use siga::disk::ckd::volume::{Access, Volume};
use siga::disk::format::eckd::Cchh;
use siga::disk::{BLOCK_BYTES, Device, Server};
use siga::host::{Embedded, System};
use siga::{Guest, Wait};

/// A directory that goes with this.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let name = format!("siga-examples-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).unwrap();
        Place(directory)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn volume(&self, name: &str, label: &str) -> String {
        let new = NewVolume { cylinders: 3, name: label.into(), today: (2026, 1), split: false };
        create(&self.0.join(name), &new, |_| ()).unwrap();
        self.file(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn image(blocks: usize) -> Vec<u8> {
    (0..blocks * BLOCK_BYTES).map(|at| (at * 31 + at / 4096) as u8).collect()
}

fn import(file: &str, image: &[u8]) {
    let mut volume = Volume::open(Path::new(file), Access::Write).unwrap();
    let mut blocks = Blocks::find(&volume).unwrap();
    blocks.import(&mut volume, &mut &image[..], |_| ()).unwrap();
}

fn export(file: &str) -> Vec<u8> {
    let volume = Volume::open(Path::new(file), Access::Read).unwrap();
    let (blocks, mut image) = (Blocks::find(&volume).unwrap(), Vec::new());
    blocks.export(&volume, &mut image, blocks.count(), |_| ()).unwrap();
    image
}

/// A table of contents of the tracks 1 to 4 of cylinder 0, with a data set on each of the last three, and one behind the table.
fn extend_vtoc(file: &str) {
    let mut volume = Volume::open(Path::new(file), Access::Write).unwrap();
    let at = |head| Cchh { cylinder: 0, head };
    for head in 1..=5 {
        let mut bytes = vec![0; TRACK_BYTES];
        track::clear(&mut bytes, at(head));
        let (key, data) = match head {
            1 => format_4(3, Tracks { first: at(1), last: at(4) }, 0),
            head => {
                let extents = vec![Tracks { first: at(10), last: at(10) }];
                let name = format!("PART.NUMBER{head}");
                let data_set = DataSet { name, extents, block_bytes: 80, ..DataSet::default() };
                DataSet { created: (2026, 1), ..data_set }.emit("LONG01").unwrap()
            }
        };
        track::append(&mut bytes, at(head), &key, &data).unwrap();
        volume.write(track_number(at(head)), 0, &bytes).unwrap();
    }
    volume.sync().unwrap();
}

/// What an example prints.
macro_rules! printed {
    ($example:ident, $arguments:expr) => {{
        let arguments: Vec<String> =
            $arguments.iter().map(|one: &&str| (*one).to_owned()).collect();
        let arguments = $example::volumes::Arguments::parse(arguments).unwrap();
        let mut output = Vec::new();
        let ended = $example::run(&arguments, &mut output).map_err(|error| error.to_string());
        ended.map(|()| String::from_utf8(output).unwrap())
    }};
}

const LISTED: &str = "LONG01\nPART.NUMBER2 80\nPART.NUMBER3 80\nPART.NUMBER4 80\n";

fn listed(printed: &str) -> String {
    let line = |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ") + "\n";
    printed.lines().map(line).collect()
}

#[test]
fn examples_open_files() {
    let place = Place::new("files");
    let (long, target) = (place.volume("a.ckd", "LONG01"), place.volume("b.ckd", "COPY01"));
    import(&long, &image(360));
    assert_eq!(printed!(copy_volume, [&*long, &*target]).unwrap(), COPIED);
    extend_vtoc(&long);
    let found = printed!(list_vtoc, [&*long]).unwrap();
    assert_eq!(listed(&found), LISTED);
    assert!(export(&target) == image(360));
    let found = printed!(random_reads, [&*target, "0.001"]).unwrap();
    assert_eq!(found.lines().count(), 2 + 8 + 1, "{found}");
    for unknown in [&["--gast", "ALICE"][..], &["--guest"]] {
        let arguments = unknown.iter().map(|argument| (*argument).to_owned());
        assert!(list_vtoc::volumes::Arguments::parse(arguments).is_none());
    }
}

const COPIED: &str = "360 blocks copied, and on the disk\n";

#[test]
fn examples_open_devices_of_a_running_host() {
    let place = Place::new("devices");
    let (long, target) = (place.volume("a.ckd", "LONG01"), place.volume("b.ckd", "COPY01"));
    extend_vtoc(&long);
    let mut system = System::open();
    let socket = place.file("siga.sock");
    system.socket = Some(socket.clone().into());
    let host = Embedded::start(system).unwrap();
    let mut server =
        Server::new(Guest::attach_embedded(&host, "UNIT").unwrap(), Wait::Block).unwrap();
    let volume = server.add_volume(&long, Access::Write, 64 << 20).unwrap();
    server.add_device("0200", Device { volume, ..Device::default() }).unwrap();
    // The blocks of a minidisk begin with it.
    let minidisk = Device { volume, first_cylinder: 1, ..Device::default() };
    server.add_device("0191", minidisk).unwrap();
    let volume = server.add_volume(&target, Access::Write, 64 << 20).unwrap();
    server.add_device("0300", Device { volume, dedicated: true, ..Device::default() }).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let seen = done.clone();
    let serving = thread::spawn(move || {
        while !seen.load(Ordering::Relaxed) {
            server.serve_within(Duration::from_millis(10)).unwrap();
        }
    });
    let options = ["--socket", &socket, "--control-unit", "UNIT", "--guest", "ALICE"];
    let with = |volumes: &[&'static str]| [&options[..], volumes].concat();

    assert_eq!(listed(&printed!(list_vtoc, with(&["0200"])).unwrap()), LISTED);
    let refused = printed!(list_vtoc, with(&["0191"])).unwrap_err();
    assert_eq!(refused, "no volume label in record 3 of cylinder 0, head 0");
    assert_eq!(printed!(copy_volume, with(&["0191", "0300"])).unwrap(), COPIED);
    let found = printed!(random_reads, with(&["0300", "0.001"])).unwrap();
    assert_eq!(found.lines().count(), 2 + 8, "{found}");
    let refused = printed!(random_reads, with(&["0400"])).unwrap_err();
    assert!(refused.contains("refused"), "{refused}");
    done.store(true, Ordering::Relaxed);
    serving.join().unwrap();
}
