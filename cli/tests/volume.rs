//! `siga volume`.

#[path = "common/place.rs"]
#[expect(dead_code, reason = "the tests with Hercules's tools use more of it")]
mod place;

mod common;
#[path = "common/lacking.rs"]
mod lacking;

use std::fs;
use std::process::Command;

use serde_json::Value;

use common::text;
use lacking::has_program;
use place::{Place, image};

#[test]
fn volume_is_created_listed_and_checked() {
    let place = Place::new("create");
    let line = place.good(&["create", "a.ckd", "--cylinders", "3", "--name", "MINE01"]);
    assert_eq!(line, "MINE01: 3390, 3 cylinders, in one file\n");
    let listed = place.good(&["ls", "a.ckd"]);
    assert!(listed.contains("SIGA.BLOCKS"), "{listed}");
    let listed: Value = serde_json::from_str(&place.good(&["ls", "a.ckd", "--json"])).unwrap();
    assert_eq!((&listed["volume"], &listed["cylinders"]), (&"MINE01".into(), &3.into()));
    assert_eq!(listed["data_sets"][0]["tracks"], 30);
    assert_eq!(place.good(&["check", "a.ckd"]), "a.ckd: 45 tracks, no faults\n");
    let again = place.siga(&["create", "a.ckd"]);
    assert_eq!(again.status.code(), Some(1));
    let why =
        "siga: a.ckd: exists, and is not overwritten: remove it first, or name another file\n";
    assert_eq!(text(&again.stderr), why);
    for (arguments, code, why) in [
        (
            &["none/a.ckd"][..],
            1,
            "none/a.ckd cannot be written: No such file or directory (os error 2): must be in a directory that is there",
        ),
        (
            &["/proc/a.ckd"],
            1,
            "/proc/a.ckd cannot be written: No such file or directory (os error 2): must be in a directory that is there",
        ),
        (&["b.ckd", "--cylinders", "1"], 2, "1 cylinders: must be 2 to 262668"),
        (
            &["b.ckd", "--name", "a b"],
            2,
            "volume name \"a b\": must have 1 to 6 of A-Z, 0-9, $, # and @",
        ),
    ] {
        let refused = place.siga(&[&["create"], arguments].concat());
        let said = (refused.status.code(), text(&refused.stderr));
        assert_eq!(said, (Some(code), format!("siga: {why}\n")), "{arguments:?}");
    }
}

#[test]
fn several_volumes_are_listed_with_those_that_are_wrong() {
    let place = Place::new("several");
    for (file, label) in [("a.ckd", "FIRST1"), ("b.ckd", "OTHER2")] {
        place.good(&["create", file, "--cylinders", "2", "--name", label]);
    }
    let listed = place.good(&["ls", "a.ckd", "b.ckd"]);
    let names: Vec<&str> = listed.lines().filter(|line| line.contains("3390, 2")).collect();
    assert_eq!(names, ["FIRST1: 3390, 2 cylinders", "OTHER2: 3390, 2 cylinders"]);
    let output = place.siga(&["ls", "a.ckd", "none.ckd", "b.ckd", "--json"]);
    let volumes: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |index: usize| &volumes[index]["volume"];
    assert_eq!((of(0), of(1), volumes.len()), (&"FIRST1".into(), &"OTHER2".into(), 2));
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).starts_with("siga: none.ckd: "), "{}", text(&output.stderr));
    assert_eq!(place.siga(&["ls"]).status.code(), Some(2));
}

#[test]
fn part_that_is_missing_is_named_with_its_volume() {
    let place = Place::new("part");
    place.good(&["create", "a1.ckd", "--cylinders", "2"]);
    // The first of several files.
    let mut bytes = place.read("a1.ckd");
    bytes[17] = 1;
    bytes[18..20].copy_from_slice(&1_u16.to_le_bytes());
    place.write("a1.ckd", &bytes);
    let missing = "a2.ckd: No such file or directory (os error 2): ";
    let what = "it is part 2 of the volume that begins with a1.ckd\n";
    for command in [&["ls", "a1.ckd"][..], &["serve", "DASD", "a1.ckd"]] {
        let output = place.siga(command);
        assert_eq!(text(&output.stderr), format!("siga: {missing}{what}"), "{command:?}");
        assert_eq!(output.status.code(), Some(1));
    }
    let system = "[[volume]]\nfile = \"a1.ckd\"\ndedicated = { guest = \"A\", device = \"D\" }\n";
    place.write("s.toml", format!("[[guest]]\nname = \"A\"\n{system}").as_bytes());
    let output = place.siga(&["serve", "--system", "s.toml"]);
    let what = "must be there: it is part 2 of the volume in a1.ckd";
    assert!(text(&output.stderr).contains(&format!("{missing}{what}")), "{}", text(&output.stderr));
}

#[test]
fn import_of_a_wrong_length_says_what_is_overwritten() {
    use std::io::Write;
    use std::process::Stdio;

    let place = Place::new("wrong-length");
    place.good(&["create", "a.ckd", "--cylinders", "2"]);
    let import = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
        command.args(["volume", "import", "a.ckd", "-"]).current_dir(&place.0);
        command.stderr(Stdio::piped());
        command
    };
    let before = place.read("a.ckd");
    let mut wrong = image(30);
    wrong.push(1);
    let why = "siga: a.ckd: the image does not end with a block of 4096 bytes: 1 are left";
    // The length of a file is known.
    place.write("wrong", &wrong);
    let file = fs::File::open(place.0.join("wrong")).unwrap();
    let output = import().stdin(file).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), format!("{why}\n")));
    assert!(place.read("a.ckd") == before);
    // That of a pipe is not.
    for (bytes, overwritten) in
        [(&wrong[..], "; the blocks 0 to 23 are overwritten"), (&wrong[30 * 4096..], "")]
    {
        let mut child = import().stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(bytes).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said), (Some(1), format!("{why}{overwritten}\n")));
    }
    place.good(&["export", "a.ckd", "copy", "--all"]);
    assert!(place.read("copy")[..24 * 4096] == wrong[..24 * 4096]);
}

#[test]
fn serve_says_what_is_only_read_and_how_it_is_used() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    let system = common::System::start("volume-said");
    let files = ["a.ckd", "b.ckd"].map(|name| system.file(name));
    for (file, label) in files.iter().zip(["WHOLE1", "BROKEN"]) {
        let create = ["volume", "create", file, "--cylinders", "4", "--name", label];
        assert_eq!(system.run(&create).status.code(), Some(0));
    }
    let mut bytes = fs::read(&files[1]).unwrap();
    bytes[512 + 16 * 56832 + 27] = 0xff;
    fs::write(&files[1], bytes).unwrap();
    for (unit, sync, said_of_it) in [("DASD1", "fdatasync", ""), ("DASD2", "file", ", not synced")]
    {
        let serve = ["volume", "serve", unit, &files[0], &files[1], "--sync", sync];
        let mut command = system.command(&serve);
        let mut server = common::Process(command.stderr(Stdio::piped()).spawn().unwrap());
        let said = BufReader::new(server.0.stderr.take().unwrap()).lines().map(Result::unwrap);
        let serves: Vec<String> = said.filter(|line| line.contains(" serves ")).take(2).collect();
        let expected = [
            format!("{unit} serves WHOLE1: 4 cylinders from 0 of WHOLE1{said_of_it}"),
            format!("{unit} serves BROKEN: 4 cylinders from 0 of BROKEN, read-only"),
        ];
        assert_eq!(serves, expected);
    }
    let usage = text(&system.run(&["volume", "serve"]).stderr);
    for line in [
        "siga volume serve [OPTIONS] NAME FILE...",
        "siga volume serve [--json] [--socket PATH] --system FILE",
    ] {
        assert!(usage.contains(line), "{usage}");
    }
}

#[test]
fn image_comes_out_as_it_went_in() {
    let place = Place::new("image");
    place.good(&["create", "a.ckd", "--cylinders", "2"]);
    place.write("image", &image(100));
    place.good(&["import", "a.ckd", "image"]);
    place.good(&["export", "a.ckd", "copy"]);
    assert!(place.read("copy") == image(100));
    let exported = place.siga(&["export", "a.ckd", "-"]);
    assert!(exported.stdout == image(100));
    place.write("long", &image(181));
    let refused = place.siga(&["import", "a.ckd", "long"]);
    let why = "siga: a.ckd: more than the 180 blocks of the volume\n";
    assert_eq!((refused.status.code(), text(&refused.stderr).as_str()), (Some(1), why));
}

#[test]
fn damage_is_found_and_nothing_is_changed() {
    let place = Place::new("damage");
    place.good(&["create", "a.ckd", "--cylinders", "2"]);
    let mut bytes = place.read("a.ckd");
    // The length of record 1 on cylinder 1, head 0.
    let at = 512 + 15 * 56832 + 21;
    bytes[at + 6] = 0xff;
    place.write("a.ckd", &bytes);
    let output = place.siga(&["check", "a.ckd"]);
    assert_eq!(output.status.code(), Some(1));
    let what = format!("cylinder 1, head 0 (file 1, byte {at}): record 1 at byte 21 of the track");
    assert!(text(&output.stdout).starts_with(&what), "{}", text(&output.stdout));
    let output = place.siga(&["check", "a.ckd", "--json"]);
    let first: Value = serde_json::from_str(text(&output.stdout).lines().next().unwrap()).unwrap();
    assert_eq!((&first["cylinder"], &first["offset"]), (&1.into(), &at.into()));
    assert_eq!(place.siga(&["export", "a.ckd", "copy", "--all"]).status.code(), Some(1));
    assert!(place.read("a.ckd") == bytes);
    // No part of an image stays, which would be in the way of the next try.
    let files = || fs::read_dir(&place.0).unwrap().count();
    assert_eq!(files(), 1);
    bytes[at + 6] = 0x10;
    place.write("a.ckd", &bytes);
    place.good(&["export", "a.ckd", "copy", "--all"]);
    assert_eq!((place.read("copy").len(), files()), (180 * 4096, 2));
}

#[test]
fn track_whose_records_are_no_blocks_any_more_is_found() {
    let place = Place::new("count");
    place.good(&["create", "a.ckd", "--cylinders", "3"]);
    let bytes = place.read("a.ckd");
    let start = 512 + 17 * 56832;
    // The count field of record 2 on cylinder 1, head 2: its cylinder, its number, the length of its key, and the end of the track in its place.
    let at = start + 21 + 8 + 4096;
    for change in [(at + 1, &[9][..]), (at + 4, &[7]), (at + 5, &[1]), (at, &[0xff; 8])] {
        let mut damaged = bytes.clone();
        damaged[change.0..change.0 + change.1.len()].copy_from_slice(change.1);
        place.write("a.ckd", &damaged);
        let checked = place.siga(&["check", "a.ckd"]);
        let exported = place.siga(&["export", "a.ckd", "copy", "--all"]);
        assert_eq!((checked.status.code(), exported.status.code()), (Some(1), Some(1)));
        let says = text(&checked.stdout);
        assert!(says.starts_with("cylinder 1, head 2 (file 1, byte "), "{change:x?}: {says}");
        assert_eq!(says.lines().count(), 1, "{says}");
    }
    // Tracks of others may have any records: those of the label and of the table of contents have.
    place.write("a.ckd", &bytes);
    place.good(&["check", "a.ckd"]);
}

#[test]
fn size_of_a_volume_is_said_before_its_disk_is_taken() {
    let place = Place::new("size");
    let created = place.siga(&["create", "a.ckd", "--cylinders", "3"]);
    assert_eq!(text(&created.stderr), "a.ckd: 3 cylinders take 3 MB on the disk\n");
    assert_eq!(place.read("a.ckd").len(), 512 + 3 * 15 * 56832);
}

/// A command in the background of a terminal would draw over the output of the one in the foreground.
#[test]
fn progress_is_drawn_in_the_foreground_alone() {
    let place = Place::new("progress");
    if !has_program("progress", "script", "bsdutils") {
        return;
    }
    for (file, behind, is_drawn) in [("a.ckd", "", true), ("b.ckd", " & wait", false)] {
        let create = concat!(env!("CARGO_BIN_EXE_siga"), " volume create");
        // With -m the shell gives each command a process group of its own, as at a prompt.
        let script = format!("sh -mc '{create} {file} --cylinders 3{behind}'");
        let output = place.run("script", &["-qec", &script, "/dev/null"]);
        let shown = text(&output.stdout);
        assert!(output.status.success() && shown.contains("3 cylinders, in one file"), "{shown}");
        assert_eq!(shown.contains("\u{2591}"), is_drawn, "{shown}");
    }
}

#[test]
fn served_volume_is_read_and_written_by_a_guest() {
    use siga::disk::{Disk, DiskOptions};
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    let system = common::System::start("volume-serve");
    let file = system.file("a.ckd");
    let create = ["volume", "create", &file, "--cylinders", "4", "--name", "SERVED"];
    assert_eq!(system.run(&create).status.code(), Some(0));
    let mut command =
        system.command(&["volume", "serve", "DASD", &file, "--minidisk", "MINI=2+2", "--json"]);
    let mut server = common::Process(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let served: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&served["devices"][0]["device"], &served["devices"][1]["cylinders"]),
        (&"SERVED".into(), &2.into())
    );
    assert_eq!(served["devices"][1]["sync"], "fdatasync");
    assert_eq!(
        (&served["devices"][0]["read_only"], &served["devices"][0]["sync"]),
        (&true.into(), &Value::Null)
    );
    let guest = siga::Guest::attach(system.file("siga.sock"), "ALICE").unwrap();
    let mut disk = Disk::open(&guest, "DASD", "SERVED", &DiskOptions::default()).unwrap();
    let mut minidisk = Disk::open(&guest, "DASD", "MINI", &DiskOptions::default()).unwrap();
    // The whole volume has the cylinders of the minidisk too, and is only read.
    assert_eq!((disk.may_write(), minidisk.may_write()), (false, true));
    minidisk.write(0, &image(10)).unwrap();
    let mut found = vec![0; 10 * 4096];
    disk.read(180, &mut found).unwrap();
    assert!(found == image(10), "block 180 is the first of cylinder 2");
    drop((disk, minidisk));
    // Nobody else has the file while it is served; afterwards it is whole.
    assert_eq!(system.run(&["volume", "check", &file]).status.code(), Some(1));
    drop(server);
    let checked = system.run(&["volume", "check", &file]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
}

#[test]
fn minidisks_that_have_cylinders_in_common_are_not_served() {
    let place = Place::new("overlap");
    place.good(&["create", "a.ckd", "--cylinders", "4"]);
    let serve = |more: &[&str]| {
        let parts = ["serve", "DASD", "a.ckd", "--minidisk", "ONE=0+2", "--minidisk", "TWO=1+3"];
        let output = place.siga(&[&parts[..], more].concat());
        (output.status.code(), text(&output.stderr))
    };
    let why = "siga: --minidisk TWO: it is written, and so is ONE, on the same cylinders: must have cylinders of its own\n";
    assert_eq!(serve(&[]), (Some(2), why.to_owned()));
    // Guests that only read may share cylinders: what is refused now is only that there is no host.
    let (code, why) = serve(&["--read-only", "--socket", "/nonexistent/siga.sock"]);
    assert!(code == Some(1) && why.contains("/nonexistent/siga.sock"), "{why}");
}

/// A command that says on standard output when it is ready, and what it says there.
fn started(mut command: Command) -> (common::Process, Value) {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = common::Process(command.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(!line.is_empty(), "{command:?} has ended");
    (process, serde_json::from_str(&line).unwrap())
}

/// A system file with three volumes: one that guest ALICE has for itself, one of minidisks, one of which track 1 of cylinder 1 is damaged.
fn system_file(place: &Place) -> String {
    for (name, label) in [("a.ckd", "ALONE1"), ("b.ckd", "PARTS1"), ("c.ckd", "BROKEN")] {
        place.good(&["create", name, "--cylinders", "4", "--name", label]);
    }
    let mut bytes = place.read("c.ckd");
    bytes[512 + 16 * 56832 + 27] = 0xff;
    place.write("c.ckd", &bytes);
    let text = r#"
        [host]
        socket = "SOCKET"
        [[guest]]
        name = "ALICE"
        [[guest]]
        name = "BOB"
        [[guest]]
        name = "EVE"
        [control_unit]
        name = "UNIT"
        [[volume]]
        file = "a.ckd"
        dedicated = { guest = "ALICE", device = "0200" }
        [[volume]]
        file = "b.ckd"
        cache = "2 MiB"
        sync = "file"
        [[volume.minidisk]]
        guest = "ALICE"
        device = "0191"
        first = 1
        cylinders = 2
        [[volume.minidisk]]
        guest = "BOB"
        device = "0191"
        access = "read"
        cache = false
        [[volume]]
        file = "c.ckd"
        [[volume.minidisk]]
        guest = "BOB"
        device = "0192"
        first = 1
    "#;
    let socket = place.0.join("siga.sock");
    place.write("s.toml", text.replace("SOCKET", socket.to_str().unwrap()).as_bytes());
    socket.to_str().unwrap().to_owned()
}

#[test]
fn system_file_gives_guests_their_volumes_and_minidisks() {
    use siga::Guest;
    use siga::disk::{Disk, DiskOptions};

    let place = Place::new("system");
    let socket = system_file(&place);
    let siga = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
        command.args(arguments).current_dir(&place.0).env("SIGA_SOCKET", &socket);
        command
    };
    let before = place.read("c.ckd");
    let from_0 = DiskOptions { first_track: Some(0), ..DiskOptions::default() };
    // The host serves them itself, or a process of its own does.
    for is_apart in [false, true] {
        let (_host, _unit, served) = if is_apart {
            let (host, _) = started(siga(&["up", "s.toml", "--without-volumes", "--json"]));
            let (unit, served) =
                started(siga(&["volume", "serve", "--system", "s.toml", "--json"]));
            (host, Some(unit), served)
        } else {
            let (host, said) = started(siga(&["up", "s.toml", "--json"]));
            assert_eq!(said["listening"], socket.as_str());
            (host, None, said["control_unit"].clone())
        };
        let devices = served["devices"].as_array().unwrap().iter();
        let devices: Vec<String> = devices
            .map(|one| {
                let members = [
                    "guest",
                    "device",
                    "volume",
                    "first_cylinder",
                    "cylinders",
                    "read_only",
                    "sync",
                    "cache",
                ];
                members.map(|member| one[member].to_string().replace('"', "")).join(" ")
            })
            .collect();
        let expected = [
            "ALICE 0200 ALONE1 0 4 false fdatasync true",
            "ALICE 0191 PARTS1 1 2 false file true",
            "BOB 0191 PARTS1 0 4 true null false",
            "BOB 0192 BROKEN 1 3 true null true",
        ];
        assert_eq!(
            (devices, &served["name"]),
            (expected.map(str::to_owned).to_vec(), &"UNIT".into())
        );

        let [alice, bob, eve] =
            ["ALICE", "BOB", "EVE"].map(|name| Guest::attach(&socket, name).unwrap());
        let mut own = Disk::open(&alice, "UNIT", "0200", &DiskOptions::default()).unwrap();
        assert!(own.is_in_place() && own.may_write());
        own.write(0, &image(3)).unwrap();
        let mut mini = Disk::open(&alice, "UNIT", "0191", &from_0).unwrap();
        assert_eq!((mini.cylinders(), mini.may_write(), mini.is_in_place()), (2, true, false));
        mini.write(0, &image(5)).unwrap();
        // Another device of the same name, which has the same cylinders and more, and does not keep them in the cache.
        let mut full = Disk::open(&bob, "UNIT", "0191", &from_0).unwrap();
        assert_eq!((full.cylinders(), full.may_write()), (4, false));
        let mut found = vec![0; 5 * 4096];
        full.read(180, &mut found).unwrap();
        assert!(found == image(5));
        assert!(full.write(180, &image(1)).is_err());
        // The damaged volume is read where it is whole, and written nowhere.
        let mut broken = Disk::open(&bob, "UNIT", "0192", &from_0).unwrap();
        let mut block = vec![0; 4096];
        broken.read(0, &mut block).unwrap();
        assert!(broken.read(12, &mut block).is_err() && !broken.may_write());
        assert!(broken.write(0, &block).is_err());
        // What is another guest's is not there for anybody else, and a guest without a device does not even come near.
        let refused = |guest: &Guest, device: &str| {
            Disk::open(guest, "UNIT", device, &from_0).map(drop).unwrap_err().to_string()
        };
        assert!(refused(&bob, "0200").contains("refused"), "{}", refused(&bob, "0200"));
        assert!(refused(&eve, "0191").contains("may not connect"), "{}", refused(&eve, "0191"));

        let query = || -> Value {
            let output = siga(&["query", "dasd", "--json"]).output().unwrap();
            serde_json::from_str(&text(&output.stdout)).unwrap()
        };
        // Alice's two blocks of tracks are in the cache; of Bob's nothing stays but what Alice reads too.
        let unit = loop {
            let unit = query()["control_units"][0].clone();
            if unit["volumes"][1]["cache_hits"].as_u64() >= Some(1) {
                break unit;
            }
        };
        let states = ["ALONE1 online", "PARTS1 online", "BROKEN damaged"];
        for (volume, state) in unit["volumes"].as_array().unwrap().iter().zip(states) {
            let found = format!("{} {}", volume["volume"], volume["state"]).replace('"', "");
            assert_eq!(found, state);
        }
        // Nobody writes to the last one.
        let syncs = [0, 1, 2].map(|number: usize| unit["volumes"][number]["sync"].clone());
        assert_eq!(syncs, ["fdatasync".into(), "file".into(), Value::Null]);
        let at = 512 + 16 * 56832 + 21;
        let damaged = &unit["volumes"][2]["damaged_tracks"][0];
        assert_eq!(
            (&damaged["cylinder"], &damaged["head"], &damaged["file"], &damaged["offset"]),
            (&1.into(), &1.into(), &1.into(), &at.into())
        );
        let table = text(&siga(&["query", "dasd"]).output().unwrap().stdout);
        let line = format!("c.ckd: damaged: cylinder 1, head 1 (file 1, byte {at})");
        assert!(table.contains(&line), "{table}");
        // They are in the column behind the one of writes.
        let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let syncs = rows.filter_map(|words| {
            let is_volume = ["ALONE1", "PARTS1", "BROKEN"].contains(words.get(1)?);
            is_volume.then(|| words[5].to_owned())
        });
        assert_eq!(syncs.take(3).collect::<Vec<_>>(), ["fdatasync", "file", "-"], "{table}");
        assert!(table.contains(" sync "), "{table}");
    }
    assert!(place.read("c.ckd") == before);
    place.good(&["check", "a.ckd"]);
    place.good(&["check", "b.ckd"]);
}

#[test]
fn volumes_that_do_not_fit_their_system_file_are_refused_with_the_line() {
    let place = Place::new("misfit");
    system_file(&place);
    place.good(&["create", "d1.ckd", "--cylinders", "2700", "--split"]);
    std::os::unix::fs::symlink("a.ckd", place.0.join("link.ckd")).unwrap();
    place.write("text.ckd", b"no volume");
    fs::create_dir(place.0.join("directory")).unwrap();
    let good = text(&place.read("s.toml"));
    let file_b = "b.ckd\"\n        cache = \"2 MiB\"";
    for (from, to, line, what) in [
        (
            "first = 1\n        cylinders = 2",
            "first = 3\n        cylinders = 2",
            19,
            "cylinders 3 to 4 are not on the volume: must be within 0 to 3",
        ),
        (
            "0192\"\n        first = 1",
            "0192\"\n        first = 4",
            31,
            "cylinder 4 is not on the volume: must be within 0 to 3",
        ),
        (
            file_b,
            "link.ckd\"",
            16,
            "link.ckd is a file of the volume in line 13: must be described once",
        ),
        (
            file_b,
            "none.ckd\"",
            16,
            "none.ckd: No such file or directory (os error 2): must be there: siga volume create makes a volume",
        ),
        (
            file_b,
            "directory\"",
            16,
            "directory: it is neither a regular file nor a block device: must be a file: siga volume create makes a volume",
        ),
        (file_b, "text.ckd\"", 16, "text.ckd: "),
        ("a.ckd", "d1.ckd", 0, ""),
    ] {
        assert!(good.contains(from), "{from}");
        let mut wrong = good.replacen(from, to, 1);
        if line == 0 {
            // The second file of the first volume.
            wrong = wrong.replacen("b.ckd", "d2.ckd", 1);
        }
        place.write("wrong.toml", wrong.as_bytes());
        let output = place.run(env!("CARGO_BIN_EXE_siga"), &["up", "wrong.toml"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        let (line, what) = match line {
            0 => (16, "d2.ckd is a file of the volume in line 13: must be described once"),
            line => (line, what),
        };
        let last = said.lines().last().unwrap();
        assert!(last.starts_with(&format!("wrong.toml:{line}: {what}")), "{said}");
        assert!(!place.0.join("siga.sock").exists(), "before anybody can attach");
    }
    // Somebody else has a volume.
    let volume = siga::disk::OpenVolume::open(
        &place.0.join("a.ckd"),
        siga::disk::ckd::volume::Access::Write,
    );
    let output = place.run(env!("CARGO_BIN_EXE_siga"), &["up", "s.toml"]);
    let what = "s.toml:13: a.ckd: in use by another process: must be used by nobody else while it is served\n";
    // It may be free the next time, so that a supervisor tries again: 2 would be a system file that is wrong.
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(1), what));
    drop(volume);
    // A system file without volumes has nothing to serve.
    place.write("none.toml", b"");
    let output = place.siga(&["serve", "--system", "none.toml"]);
    let what = "siga: none.toml: it has no volumes: must have a [[volume]]\n";
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(1), what));
    assert_eq!(place.siga(&["serve"]).status.code(), Some(2));
}

/// Starts a server of a volume, with this option `--sync`, and waits until guests can open it.
fn start_server(system: &common::System, file: &str, sync: &str) -> common::Process {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    loop {
        let mut command = system.command(&[
            "volume",
            "serve",
            "DASD",
            file,
            "--dedicated",
            "--json",
            "--sync",
            sync,
        ]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = common::Process(command.spawn().unwrap());
        let mut line = String::new();
        BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        // The host may not have heard yet that the last one was killed.
        if !line.is_empty() {
            return server;
        }
    }
}

/// A block that says which it is, and which write of it this is.
fn stamped(number: u64, turn: u64) -> Vec<u8> {
    let words =
        (0..512_u64).map(|word| if word == 0 { turn } else { turn ^ (number << 32) ^ word });
    words.flat_map(u64::to_le_bytes).collect()
}

#[test]
fn killed_server_loses_nothing_that_was_acknowledged() {
    use siga::disk::{BLOCK_BYTES, Disk, DiskOptions, Mode, Program};
    use std::time::{Duration, Instant};

    // SIGA_KILLS=200 for the whole of it.
    let kills = std::env::var("SIGA_KILLS").map_or(5, |kills| kills.parse().unwrap());
    const BLOCKS: u64 = 180;
    let system = common::System::start("volume-kill");
    let file = system.file("a.ckd");
    let create = ["volume", "create", &file, "--cylinders", "2"];
    assert_eq!(system.run(&create).status.code(), Some(0));
    let guest = siga::Guest::attach(system.file("siga.sock"), "ALICE").unwrap();
    // Of each block: the last write that was acknowledged, and the last that was begun.
    let mut known = vec![(0, 0); BLOCKS as usize];
    let (mut turn, mut dice) = (0_u64, 0x9e37_79b9_7f4a_7c15_u64);
    for round in 0..kills {
        let sync = if round % 4 < 2 { "fdatasync" } else { "file" };
        let mut server = start_server(&system, &file, sync);
        let mode = if round % 2 == 0 { Mode::Command } else { Mode::Transport };
        let options = DiskOptions { mode, depth: 4, blocks_max: 4, ..DiskOptions::default() };
        let mut disk = Disk::open(&guest, "DASD", "SIGA01", &options).unwrap();
        let mut running = [(0, 0, 0); 4];
        let (start, time) = (Instant::now(), Duration::from_micros(2000 + dice % 20_000));
        let mut killed = false;
        loop {
            if !killed && start.elapsed() > time {
                server.0.kill().unwrap();
                killed = true;
            }
            while let Ok((_, data)) = disk.data() {
                dice ^= dice << 13;
                dice ^= dice >> 7;
                dice ^= dice << 17;
                turn += 1;
                let (count, first) = (1 + dice % 4, dice / 7 % (BLOCKS - 4));
                // Two writes of a block at a time have no order.
                let is_free =
                    |one: &(u64, u64, u64)| first >= one.0 + one.1 || one.0 >= first + count;
                if !running.iter().all(is_free) {
                    break;
                }
                for index in 0..count {
                    let at = index as usize * BLOCK_BYTES;
                    data[at..at + BLOCK_BYTES].copy_from_slice(&stamped(first + index, turn));
                }
                let program = Program::Write { first, blocks: count as u32 };
                let Ok(subchannel) = disk.start(program) else { break };
                running[usize::from(subchannel)] = (first, count, turn);
                for number in first..first + count {
                    known[number as usize].1 = turn;
                }
            }
            match disk.wait() {
                Ok(ended) => {
                    ended.check().unwrap();
                    let (first, count, turn) =
                        std::mem::take(&mut running[usize::from(ended.subchannel())]);
                    for number in first..first + count {
                        known[number as usize].0 = turn;
                    }
                }
                Err(siga::disk::DiskError::Severed(_)) => break,
                Err(error) => panic!("{error}"),
            }
        }
        drop(server);
        let image = system.file("copy");
        let exported = system.run(&["volume", "export", &file, &image, "--all"]);
        assert_eq!(exported.status.code(), Some(0), "{}", text(&exported.stderr));
        let bytes = fs::read(&image).unwrap();
        fs::remove_file(&image).unwrap();
        for (number, (acknowledged, begun)) in known.iter_mut().enumerate() {
            let block = &bytes[number * BLOCK_BYTES..][..BLOCK_BYTES];
            let found = u64::from_le_bytes(*block.first_chunk().unwrap());
            assert!((*acknowledged..=*begun).contains(&found), "round {round}, block {number}");
            // A block is written in one call, which a kill does not tear here.
            assert!(
                found == 0 || block == stamped(number as u64, found),
                "round {round}, block {number}"
            );
            (*acknowledged, *begun) = (found, found);
        }
    }
    assert!(turn > 0);
}

#[test]
fn option_says_what_a_write_survives() {
    use siga::disk::{Disk, DiskOptions};

    let system = common::System::start("volume-sync");
    let file = system.file("a.ckd");
    let create = ["volume", "create", &file, "--cylinders", "2"];
    assert_eq!(system.run(&create).status.code(), Some(0));
    let guest = siga::Guest::attach(system.file("siga.sock"), "ALICE").unwrap();
    for sync in ["fdatasync", "file"] {
        let server = start_server(&system, &file, sync);
        let mut disk = Disk::open(&guest, "DASD", "SIGA01", &DiskOptions::default()).unwrap();
        disk.write(3, &image(10)).unwrap();
        let mut found = vec![0; 10 * 4096];
        disk.read(3, &mut found).unwrap();
        assert!(found == image(10), "{sync}");
        let volume = loop {
            let output = system.run(&["query", "dasd", "--json"]);
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            let volume = report["control_units"][0]["volumes"][0].clone();
            if volume["cylinders"] == 2 {
                break volume;
            }
        };
        assert_eq!(volume["sync"], sync);
        drop((disk, server));
        let checked = system.run(&["volume", "check", &file]);
        assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
    }
    let wrong = |options: &[&str]| {
        let output = system.run(&[&["volume", "serve"], options].concat());
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        text(&output.stderr)
    };
    let said = wrong(&["DASD", &file, "--sync", "never"]);
    assert!(said.contains("--sync never: must be one of fdatasync, file"), "{said}");
    let said = wrong(&["DASD", &file, "--sync", "file", "--read-only"]);
    assert!(said.contains("'--sync <WHEN>' cannot be used with '--read-only'"), "{said}");
    let said = wrong(&["--sync", "file", "--system", "s.toml"]);
    assert!(said.contains("cannot be used with"), "{said}");
}

#[test]
fn server_attaches_when_its_files_are_right() {
    let place = Place::new("serve-files");
    // There is no host: what is wrong with a file is said before anybody is asked.
    place.write("a.ckd", b"no volume");
    let serve = ["serve", "DASD", "a.ckd", "--socket", "none.sock"];
    let served = place.siga(&serve);
    let said = text(&served.stderr);
    assert_eq!(served.status.code(), Some(1), "{said}");
    assert!(said.contains("a.ckd: "), "{said}");
    assert!(!said.contains("none.sock"), "{said}");
}

#[test]
fn volumes_of_one_name_are_told_apart_by_queries() {
    use std::process::Stdio;

    let system = common::System::start("volume-twins");
    let files = ["a.ckd", "b.ckd"].map(|name| system.file(name));
    for (file, cylinders) in files.iter().zip(["3", "4"]) {
        let create = ["volume", "create", file, "--cylinders", cylinders, "--name", "TWIN01"];
        assert_eq!(system.run(&create).status.code(), Some(0));
    }
    let guest = siga::Guest::attach(system.file("siga.sock"), "DASD").unwrap();
    let mut server = siga::disk::Server::new(guest, siga::Wait::Block).unwrap();
    for (number, file) in files.iter().enumerate() {
        let volume = server.add_volume(file, siga::disk::ckd::volume::Access::Read, 0).unwrap();
        let device = siga::disk::Device { volume, ..siga::disk::Device::default() };
        server.add_device(&format!("T{number}"), device).unwrap();
    }
    let query = |json: &[&str]| {
        let arguments = [&["query", "dasd"], json].concat();
        let mut command = system.command(&arguments);
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        child.wait_with_output().unwrap()
    };
    let shown = loop {
        server.serve_within(std::time::Duration::from_millis(1)).unwrap();
        let found: Value = serde_json::from_slice(&query(&["--json"]).stdout).unwrap();
        let unit = found["control_units"][0].clone();
        if unit["devices"].as_array().is_some_and(|devices| devices.len() == 2) {
            break unit;
        }
    };
    for (number, file) in files.iter().enumerate() {
        let (volume, device) = (&shown["volumes"][number], &shown["devices"][number]);
        assert_eq!((&volume["number"], &volume["file"]), (&number.into(), &file.as_str().into()));
        assert_eq!(device["volume_number"], number, "{device}");
    }
    let printed = text(&query(&[]).stdout);
    for file in &files {
        assert!(printed.contains(&format!("TWIN01 ({file})")), "{printed}");
    }
    // Each device is the whole of its own volume.
    assert_eq!(printed.matches("full-pack").count(), 2, "{printed}");
}
