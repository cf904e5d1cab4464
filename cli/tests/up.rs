//! `siga up`, as a shell sees it.

mod common;
#[path = "common/signals.rs"]
mod signals;

use std::io::{BufRead, BufReader, Read};
use std::process::{ChildStderr, Command, Stdio};

use common::{Process, System, text};
use signals::{ask_to_end, is_ignored};

#[test]
fn file_that_is_no_socket_is_refused_in_one_line_and_left_alone() {
    let file = std::env::temp_dir().join(format!("siga-notes-{}.txt", std::process::id()));
    std::fs::write(&file, "notes").unwrap();
    let up = Command::new(env!("CARGO_BIN_EXE_siga")).arg("up").arg("--socket").arg(&file).output();
    let up = up.unwrap();
    assert_eq!((up.status.code(), up.stdout.as_slice()), (Some(1), &b""[..]));
    let what = "an ordinary file is there: name a place where nothing is, or where a host was";
    let line = format!("siga: cannot listen at {}: {what}\n", file.display());
    assert_eq!(String::from_utf8(up.stderr).unwrap(), line);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "notes");
    std::fs::remove_file(file).unwrap();
}

#[test]
fn what_is_wrong_in_a_file_is_said_once() {
    let file = std::env::temp_dir().join(format!("siga-wrong-{}.toml", std::process::id()));
    for (text, what) in [
        (
            "number = 1\n",
            ":1: unknown field `number`: must be one of `host`, `user`, `guest`, `lan`, `tcpip`, `line`, `osa`, `control_unit`, `volume`",
        ),
        ("\n[[guest]]\nname = 7\n", ":3: "),
    ] {
        std::fs::write(&file, text).unwrap();
        let up = Command::new(env!("CARGO_BIN_EXE_siga")).arg("up").arg(&file).output().unwrap();
        assert_eq!(up.status.code(), Some(2));
        let said = String::from_utf8(up.stderr).unwrap();
        assert!(said.starts_with(&format!("{}{what}", file.display())), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    std::fs::remove_file(file).unwrap();
}

/// A host with these arguments, which listens at `socket`: its process, and the reader of its log.
fn start(place: &System, arguments: &[&str], socket: &str) -> (Process, ChildStderr) {
    let mut up = place.command(&[&["up", "--socket", socket], arguments].concat());
    let mut up = Process(up.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(up.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let mut log = up.0.stderr.take().unwrap();
    if line != format!("listening at {socket}\n") {
        let _ = log.read_to_string(&mut line);
        panic!("{line}");
    }
    (up, log)
}

#[test]
fn closed_reader_of_the_log_does_not_end_the_host() {
    let place = System::start("up-log");
    let socket = place.file("other.sock");
    let (mut up, log) = start(&place, &[], &socket);
    drop(log);
    // The host logs each of them before it answers.
    for name in ["FIRST", "SECOND", "THIRD"] {
        siga::Guest::attach(&socket, name).unwrap();
    }
    assert_eq!(up.0.try_wait().unwrap(), None, "the host has ended");
}

#[test]
fn signal_ends_a_host_in_good_order() {
    let place = System::start("up-signal");
    let (volume, file) = (place.file("alone1.ckd"), place.file("system.toml"));
    let create = ["volume", "create", &volume, "--cylinders", "2", "--name", "ALONE1"];
    assert!(place.run(&create).status.success());
    let written = format!(
        "[[guest]]\nname = \"A\"\n[[volume]]\nfile = \"{volume}\"\ndedicated = {{ guest = \"A\", device = \"0200\" }}\n"
    );
    std::fs::write(&file, written).unwrap();
    let socket = place.file("other.sock");
    for signal in [15, 2, 1] {
        if is_ignored(signal) {
            continue;
        }
        for arguments in [&[][..], &[file.as_str()]] {
            let (mut up, mut log) = start(&place, arguments, &socket);
            let _guest = siga::Guest::attach(&socket, "A").unwrap();
            let code = ask_to_end(&mut up, signal);
            let mut said = String::new();
            log.read_to_string(&mut said).unwrap();
            assert_eq!(code, Some(0), "{signal} {arguments:?}: {said}");
            for name in ["other.sock", "other.sock.lock"] {
                assert!(!place.directory.join(name).exists(), "{signal} {arguments:?}: {name}");
            }
        }
    }
}

#[test]
fn signal_ends_a_host_whose_log_nobody_reads() {
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::OpenOptionsExt as _;

    if is_ignored(15) {
        return;
    }
    let place = System::start("up-full");
    let socket = place.file("other.sock");
    let (_unread, full) = std::io::pipe().unwrap();
    // Filled over another open file, so that the host waits where it cannot write.
    let nonblocking = std::fs::OpenOptions::new()
        .write(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
        .open(format!("/proc/self/fd/{}", full.as_raw_fd()));
    let mut filling = nonblocking.unwrap();
    while filling.write(b".").is_ok() {}
    let mut command = place.command(&["up", "--socket", &socket]);
    let mut up = Process(command.stdout(full).spawn().unwrap());
    while !std::path::Path::new(&socket).exists() {
        assert!(up.0.try_wait().unwrap().is_none(), "it has ended");
        std::thread::yield_now();
    }
    // It listens, and says so, or stands in the attempt.
    let kill = Command::new("kill").args(["-TERM", &up.0.id().to_string()]).status();
    assert!(kill.unwrap().success());
    assert!(up.0.wait().unwrap().code().is_some());
}

#[test]
fn addresses_in_the_log_are_written_as_people_do() {
    let place = System::start("up-addresses");
    let socket = place.file("other.sock");
    let (_up, log) = start(&place, &[], &socket);
    let guest = siga::Guest::attach(&socket, "MEMBER").unwrap();
    let _lan = siga::lan::Lan::join(guest, "hs0", &siga::lan::LanOptions::default()).unwrap();
    let joined = BufReader::new(log).lines().map(Result::unwrap);
    let joined = { joined }.find(|line| line.contains("joined a LAN guest=MEMBER")).unwrap();
    assert!(joined.contains(" address=10.1.0.1 "), "{joined}");
}

#[test]
fn way_out_is_there_when_the_host_says_so_unless_it_is_not_wanted() {
    for (arguments, is_there) in [(&[][..], true), (&["--without-outside"], false)] {
        let place = System::start("up-outside");
        let socket = place.file("other.sock");
        let _up = start(&place, arguments, &socket);
        let output = place.run(&["query", "lan", "--json", "--socket", &socket]);
        let report = common::text(&output.stdout);
        assert_eq!(report.contains("\"GATEWAY\""), is_there, "{report}");
    }
}

#[test]
fn commands_whose_readers_are_gone_end_in_good_order() {
    let file = format!("{}/../systems/disks.toml", env!("CARGO_MANIFEST_DIR"));
    for arguments in [
        &["--help"][..],
        &["run", "--help"],
        &["--version"],
        &["nonsense"],
        &["lab", "list"],
        &["lab", "run", "nonsense"],
        &["up", "--check", &file],
        &["query", "--socket", "/no/such/socket"],
        &["volume", "check", "/no/such/volume"],
    ] {
        let (out, err) = (std::io::pipe().unwrap().1, std::io::pipe().unwrap().1);
        let mut siga = Command::new(env!("CARGO_BIN_EXE_siga"));
        let end = siga.args(arguments).stdin(Stdio::null()).stdout(out).stderr(err).status();
        let code = end.unwrap().code();
        assert!(code.is_some_and(|code| code <= 2), "siga {arguments:?}: {code:?}");
    }
}

#[test]
fn check_prints_what_a_host_would_make_and_fails_on_what_is_not_meant() {
    let place = System::start("up-check");
    let siga = |arguments: &[&str]| {
        let output = place.run(arguments);
        (output.status.code(), [text(&output.stdout), text(&output.stderr)])
    };
    for name in ["two-guests", "resources", "lan", "two-lans", "line-drivers", "osa", "osa-machine"]
    {
        let file = format!("{}/../systems/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let (code, [out, err]) = siga(&["up", "--check", &file]);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
        assert!(out.starts_with(&format!("{file}: ")), "{out}");
    }
    let (code, [out, err]) = siga(&["up", "--check"]);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.starts_with("without a file: 1 guest, 1 LAN, 0 volumes\n"), "{out}");
    let (_, [out, _]) = siga(&["up", "--check", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&out).unwrap();
    let lan = &found["system"]["lans"][0]["name"];
    assert_eq!((&found["file"], lan), (&serde_json::Value::Null, &"hs0".into()));
    let none = place.file("none.toml");
    let (code, [out, err]) = siga(&["up", "--check", &none]);
    assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
    assert!(err.starts_with(&format!("{none}: cannot be read: ")), "{err}");
    let name = place.file("system.toml");
    let written =
        "[[guest]]\nname = \"SERVER\"\n[[guest]]\nname = \"CLIENT\"\nconnect = [\"SERVR\"]\n";
    std::fs::write(&name, written).unwrap();
    let what = "connect = \"SERVR\": no [[guest]] has such a name";
    let (code, [out, err]) = siga(&["up", "--check", &name]);
    assert_eq!((code, err.as_str()), (Some(1), "siga: 1 warning\n"));
    assert!(
        out.starts_with(&format!("{name}:5: {what}: did you mean SERVER?\n{name}: 2 guests")),
        "{out}"
    );
    let (code, [out, _]) = siga(&["up", "--check", "--json", &name]);
    let found: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &found["file"]), (Some(1), &name.clone().into()));
    let finding = &found["findings"][0];
    assert_eq!((&finding["line"], &finding["what"]), (&5.into(), &what.into()));
    assert_eq!(
        (&finding["right"], &finding["is_error"]),
        (&"did you mean SERVER?".into(), &false.into())
    );
    assert_eq!(found["system"]["guests"][1]["connect"][0], "SERVR");
    // A host of it starts, and warns.
    let (_up, log) = start(&place, &[&name], &place.file("other.sock"));
    let mut line = String::new();
    BufReader::new(log).read_line(&mut line).unwrap();
    assert_eq!(line, format!("siga: warning: {name}:5: {what}: did you mean SERVER?\n"));
    std::fs::write(&name, "[[guest]]\nnmae = \"A\"\n").unwrap();
    let (code, [out, err]) = siga(&["up", "--check", &name]);
    assert_eq!((code, err.as_str()), (Some(1), "siga: a host would not start\n"));
    assert_eq!(out, format!("{name}:2: unknown field `nmae`: did you mean `name`?\n"));
    let (_, [out, _]) = siga(&["up", "--check", "--json", &name]);
    let found: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&found["findings"][0]["is_error"], &found["system"]),
        (&true.into(), &serde_json::Value::Null)
    );
}

#[test]
fn check_shows_mac_addresses_of_adapters_and_who_captures() {
    let place = System::start("up-check-adapters");
    let name = place.file("system.toml");
    let written = "[[guest]]\nname = \"*\"\n\
                   [osa.osa1]\nwire = \"memory\"\nto = \"osa2\"\nmac = \"02:00:00:00:00:a1\"\ncapture = [\"SNIFFER\", \"SPY*\"]\n\
                   [osa.osa2]\nwire = \"memory\"\nto = \"osa1\"\n";
    std::fs::write(&name, written).unwrap();
    let output = place.run(&["up", "--check", &name]);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{out} {}", text(&output.stderr));
    let row = |of: &str| -> Vec<&str> {
        let line = out.lines().find(|line| line.trim_start().starts_with(of));
        line.unwrap_or_else(|| panic!("{of}: {out}")).split_whitespace().collect()
    };
    assert_eq!(row("adapter ")[4..8], ["interface", "MAC", "guests", "capture"][..], "{out}");
    let shown = ["OSA1", "memory", "-", "02:00:00:00:00:a1", "*", "SNIFFER", "SPY*", "-"];
    assert_eq!(row("osa1 ")[1..9], shown, "{out}");
    assert_eq!(row("osa2 ")[1..8], ["OSA2", "memory", "-", "-", "*", "-", "-"], "{out}");
}

#[test]
fn check_shows_limits_and_waits_for_no_pipe() {
    let place = System::start("up-check-limits");
    let (name, pipe) = (place.file("system.toml"), place.file("pipe"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let text_of_file = format!(
        "[host]\nmemory_max = \"2 GiB\"\n[[user]]\nname = 70001\nguests_max = 7\nmemory_max = \"3 MiB\"\n\
         [[guest]]\nname = \"A\"\n[[guest]]\nname = \"B*\"\nguests_max = 5\n\
         [control_unit]\nguest_opens_max = 9\n\
         [[volume]]\nfile = \"{pipe}\"\naccess = \"read\"\ndedicated = {{ guest = \"A\", device = \"0200\" }}\n"
    );
    std::fs::write(&name, text_of_file).unwrap();
    let output = place.run(&["up", "--check", &name]);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{out} {}", text(&output.stderr));
    for part in [
        "pipe: it is neither a regular file nor a block device",
        "of memory",
        "2 GiB",
        "70001",
        "3 MiB",
        "opens of one guest 9",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let output = place.run(&["up", "--check", "--json", &name]);
    let found: serde_json::Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    let system = &found["system"];
    assert_eq!(system["memory_bytes_max"], 2_u64 << 30);
    assert_eq!(system["users"][0]["guests_max"], 7);
    assert_eq!(system["users"][0]["mappings_max"], serde_json::Value::Null);
    assert_eq!(system["guests"][1]["guests_max"], 5);
    assert_eq!(system["control_unit_limits"]["guest_opens_max"], 9);
    // A host refuses it too, and does not wait either.
    let output = place.run(&["up", &name, "--socket", &place.file("other.sock")]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("it is neither a regular file nor a block device"), "{said}");
}
