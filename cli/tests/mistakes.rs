//! Mistakes that users make: each is answered with what would be right.

mod common;

use std::process::Stdio;

use common::{Process, System, text};
use siga::lan::{Lan, LanOptions};

/// Runs a command that must end with this code, and returns its message in one line.
fn said(system: &System, arguments: &[&str], code: i32) -> String {
    let output = system.command(arguments).stdin(Stdio::null()).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    assert_eq!(
        (text(&output.stdout).as_str(), said.lines().count()),
        ("", 1),
        "{arguments:?}: {said}"
    );
    said.strip_prefix("siga: ").unwrap_or(&said).trim_end().to_owned()
}

/// A host of one of the system files that come along, in this process.
fn described(name: &str, file: &str) -> System {
    let directory = std::env::temp_dir().join(format!("siga-{name}-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let file = format!("{}/../systems/{file}", env!("CARGO_MANIFEST_DIR"));
    let mut described = siga::host::System::read(file.as_ref()).unwrap();
    described.socket = Some(directory.join("siga.sock"));
    System { directory, _host: siga::host::Embedded::start(described).unwrap() }
}

#[test]
fn sender_is_told_what_is_missing() {
    let system = described("send-right", "two-guests.toml");
    let may_not = "this guest may not connect to the target; the system file must say so: connect";
    let server = Process(system.command(&["receive", "SERVER"]).spawn().unwrap());
    while !text(&system.run(&["query", "guest"]).stdout).contains("SERVER") {
        std::thread::yield_now();
    }
    assert_eq!(
        said(&system, &["send", "CLIENT", "SERVR"], 1),
        format!(
            "no path to SERVR: {may_not} = [\"SERVR\"] of the guest CLIENT; did you mean SERVER?"
        )
    );
    drop(server);
    while text(&system.run(&["query", "guest"]).stdout).contains("SERVER") {
        std::thread::yield_now();
    }
    assert_eq!(
        said(&system, &["send", "SERVER", "CLIENT"], 1),
        format!("no path to CLIENT: {may_not} = [\"CLIENT\"] of the guest SERVER")
    );
    assert_eq!(
        said(&system, &["send", "CLIENT", "SERVER"], 1),
        "no path to SERVER: the target is not attached; is it running: siga receive SERVER?"
    );
}

#[test]
fn name_that_is_nearly_a_guests_is_asked_about() {
    let system = System::start("mistakes-guest");
    let _server = siga::Guest::attach(system.file("siga.sock"), "SERVER").unwrap();
    assert_eq!(
        said(&system, &["send", "CLIENT", "SREVER"], 1),
        "no path to SREVER: the target is not attached; did you mean SERVER?"
    );
    let error = said(&system, &["run", "--lan", "hso", "--", "true"], 125);
    assert!(error.ends_with("; did you mean hs0?"), "{error}");
    let error = said(&system, &["join", "prod", "--netns", "/proc/self/ns/net"], 1);
    assert!(error.ends_with("; it has hs0"), "{error}");
    let error = said(&system, &["forward", "127.0.0.1:0", "hs9", "10.1.0.5:80"], 1);
    assert!(error.ends_with("; did you mean hs0?"), "{error}");
    let error = said(&system, &["route", "hs9"], 1);
    assert!(error.ends_with("; did you mean hs0?"), "{error}");
}

#[test]
fn unknown_words_are_wrong_use() {
    let system = System::start("mistakes-words");
    for (arguments, line) in [
        (
            &["run", "--nmae", "x", "--", "true"][..],
            "there is no option --nmae: did you mean --name?",
        ),
        (&["query", "lna"], "WHAT lna: did you mean lan?"),
        (&["lab", "run", "bordr"], "there is no case \"bordr\": did you mean border?"),
    ] {
        assert_eq!(said(&system, arguments, 2), line);
    }
}

#[test]
fn usage_shows_no_option_that_nobody_gave() {
    let system = System::start("mistakes-usage");
    let said = text(&system.run(&["send", "A"]).stderr);
    assert!(said.contains("\nUsage: siga send <NAME> <TARGET>\n"), "{said}");
    // A variable that is empty names no place.
    let output = system.command(&["query"]).env("SIGA_SOCKET", "").output().unwrap();
    assert!(!text(&output.stderr).contains("at : "), "{}", text(&output.stderr));
}

#[test]
fn names_are_written_in_small_letters_too_and_are_wrong_use_otherwise() {
    let system = System::start("mistakes-names");
    let error = said(&system, &["send", "client", "server"], 1);
    assert!(error.starts_with("no path to SERVER: the target is not attached"), "{error}");
    for arguments in [
        &["send", "muchtoolong", "B"][..],
        &["send", "A", "b/c"],
        &["receive", ""],
        &["identify", "a.b", "UPPER"],
        &["capture", "hs0", "-w", "-", "--name", "muchtoolong"],
        &["volume", "serve", "muchtoolong", "a.ckd"],
    ] {
        let output = system.run(arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains("is no name: must be 1 to 8 of"), "{arguments:?}: {error}");
    }
}

#[test]
fn system_without_guests_says_so_and_shows_its_lan() {
    let system = System::start("mistakes-empty");
    let shown = text(&system.run(&["query"]).stdout);
    assert_eq!(shown, "no guests\nthe LAN hs0 (10.1.0.0/16) has no members\n");
}

#[test]
fn program_of_a_manager_is_looked_for_before_anybody_relies_on_it() {
    let system = System::start("mistakes-identify");
    for (program, right) in [
        ("nosuch", "must be a program in a folder of $PATH"),
        ("/etc/passwd", "must be a file that can be executed"),
    ] {
        let error = said(&system, &["identify", "CLERK", "UPPER", "--", program], 2);
        assert_eq!(error, format!("there is no program {program}: {right}"));
    }
}

#[test]
fn name_that_the_system_file_does_not_have_is_to_be_chosen() {
    let system = described("no-name", "lan.toml");
    let right = "a [[guest]] of the system file must have this name, and this user among its users or groups";
    let error = said(&system, &["run", "--", "true"], 125);
    assert!(error.starts_with("cannot attach as TRUE"), "{error}");
    assert!(error.ends_with(&format!("{right}; choose one with --name")), "{error}");
    let error = said(&system, &["run", "--name", "other", "--", "true"], 125);
    assert!(error.starts_with("cannot attach as OTHER") && error.ends_with(right), "{error}");
}

#[test]
fn name_that_is_none_is_wrong_use_of_every_command() {
    let system = described("no-names", "lan.toml");
    for arguments in [
        &["send", "TOOLONGNAME", "SERVER"][..],
        &["run", "--name", "TOOLONGNAME", "--", "true"],
        &["join", "--pid", "1", "--name", "TOOLONGNAME"],
        &["route", "hs0", "hs1", "--name", "TOOLONGNAME"],
        &["gateway", "hs0", "--name", "TOOLONGNAME"],
        &["forward", "127.0.0.1:1", "hs0:10.1.0.1:1", "--name", "TOOLONGNAME"],
    ] {
        let output = system.command(arguments).stdin(Stdio::null()).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains("\"TOOLONGNAME\" is no name: must be 1 to 8 of"), "{error}");
    }
}

#[test]
fn refused_address_tells_a_reservation_from_a_range() {
    let system = described("kept", "two-lans.toml");
    assert_eq!(
        said(&system, &["run", "--address", "10.1.0.1", "--", "true"], 125),
        "the system file keeps this address of the LAN hs0 for the guest ROUTER: choose another, or attach as ROUTER"
    );
    let error = said(&system, &["route", "hs0", "hs1:10.3.0.1"], 1);
    assert!(error.contains("does not allow this address"), "{error}");
    assert!(error.ends_with("; its range is 10.2.0.0/24"), "{error}");
    let gateway = ["run", "--lan", "hs1", "--gateway", "10.9.0.1", "--", "true"];
    let right = "not in the LAN hs1: must be in the network of 10.2.0.2/24, where its members are";
    assert_eq!(said(&system, &gateway, 2), format!("--gateway 10.9.0.1: {right}"));
    // No member is given an address that is kept for the router: the gateway is near, and there is nobody yet.
    for (lan, first) in [("hs0", "10.1.0.2"), ("hs1", "10.2.0.2")] {
        // The host may not have seen yet that the guest of the LAN before is gone.
        let name = lan.to_uppercase();
        let guest = siga::Guest::attach(system.file("siga.sock"), &name).unwrap();
        let options = LanOptions { address: siga::lan::Address::Chosen, ..LanOptions::default() };
        let lan = Lan::join(guest, lan, &options).unwrap();
        assert_eq!(lan.addresses(), [first.parse::<std::net::IpAddr>().unwrap()]);
    }
    // Where none is kept, the first member may have it.
    let open = System::start("kept-none");
    let gateway = ["run", "--gateway", "10.1.0.1", "--", "true"];
    let right = "this is the program's own address in the LAN hs0: start the gateway first, which has it then";
    assert_eq!(said(&open, &gateway, 2), format!("--gateway 10.1.0.1: {right}"));
}

#[test]
fn results_that_cannot_be_written_name_standard_output() {
    let system = System::start("mistakes-full");
    for arguments in [["query", "limits"], ["query", "--json"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = system.command(&arguments).stdout(full).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.starts_with("siga: standard output cannot be written: No space"), "{error}");
    }
}

#[test]
fn one_guest_is_not_called_guests() {
    let system = System::start("mistakes-one");
    let _one = siga::Guest::attach(system.file("siga.sock"), "ONE").unwrap();
    let shown = text(&system.run(&["top", "--count", "1", "--seconds", "0.05"]).stdout);
    assert!(shown.starts_with("1 guest, 0 paths\n"), "{shown}");
}
