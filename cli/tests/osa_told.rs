//! What a newcomer to adapters is told: who may have a device, what runs already, and what is missing.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use common::{Process, System, text};

const FILE: &str = r#"
[[guest]]
name = "WEB"
[[guest]]
name = "DB"
[osa.osa1]
wire = "memory"
to = "osa2"
guests = ["WEB"]
[osa.osa2]
wire = "memory"
to = "osa1"
"#;

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

/// A command that goes on, and its first line on standard error.
fn begin(command: &mut Command) -> (Process, String) {
    let mut process = Process(command.stderr(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(process.0.stderr.take().unwrap()).read_line(&mut line).unwrap();
    (process, line)
}

#[test]
fn guest_that_may_have_no_device_is_told_so_and_a_second_server_that_the_first_runs() {
    let source = siga::host::Source::of("system.toml", FILE);
    let system = System::of("osa-told", siga::host::System::parse(&source).unwrap());
    let words = ["osa", "serve", "osa1", "osa2", "--wire", "memory", "--wait", "block"];
    let (_adapters, line) = begin(&mut system.command(&words));
    assert!(line.starts_with("OSA1: a wire in memory to OSA2, MAC "), "{line}");
    let run = ["run", "--osa", "osa1", "--name", "db", "--address", "10.7.0.5/24", "--", "true"];
    let output = system.run(&run);
    let said = text(&output.stderr);
    assert_eq!(code(&output), Some(125), "{said}");
    assert!(said.starts_with("siga: DB may have no device at OSA1: "), "{said}");
    assert!(said.contains("the system file names in guests = [..]"), "{said}");
    let output = system.run(&words);
    let said = text(&output.stderr);
    assert_eq!(code(&output), Some(1), "{said}");
    assert!(
        said.starts_with("siga: OSA1 runs already: a guest of this name is attached"),
        "{said}"
    );
}

#[test]
fn addresses_that_no_host_can_have_are_refused() {
    let system = System::start("osa-hosts");
    for address in ["10.7.0.0/24", "10.7.0.255/24", "224.0.0.1/24", "127.0.0.1/8", "0.0.0.0/0"] {
        let run = ["run", "--osa", "OSA1", "--address", address, "--", "true"];
        let output = system.run(&run);
        let said = text(&output.stderr);
        assert_eq!(code(&output), Some(2), "{address}: {said}");
        let right = format!("siga: --address {address}: no host has it");
        assert!(said.starts_with(&right), "{said}");
    }
    for (words, right) in [
        (["--gap", "101us"], "at most 100us"),
        (["--hold-off", "6ms"], "at most 5000us"),
        (["--mtu", "575"], "576..=9000"),
    ] {
        let words = [&["osa", "serve", "A", "B", "--wire", "memory"], &words[..]].concat();
        let output = system.run(&words);
        assert_eq!(code(&output), Some(2), "{words:?}");
        assert!(text(&output.stderr).contains(right), "{}", text(&output.stderr));
    }
}

#[test]
fn host_says_which_adapters_it_has_made_and_a_second_host_that_there_is_one() {
    let place = std::env::temp_dir().join(format!("siga-osa-twice-{}", std::process::id()));
    std::fs::create_dir(&place).unwrap();
    let file = place.join("system.toml");
    std::fs::write(&file, FILE).unwrap();
    let siga = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
        command.args(words).env("SIGA_SOCKET", place.join("siga.sock")).env("RUST_LOG", "off");
        command
    };
    let (_host, line) = begin(&mut siga(&["up", file.to_str().unwrap()]));
    assert_eq!(line, "OSA1: a wire in memory to OSA2, MAC 02:6f:73:61:00:00, MTU 1500\n");
    let output = siga(&["query", "osa", "--json"]).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let shown = |field: &str| report["adapters"][0][field].clone();
    assert_eq!((shown("adapter"), shown("wire")), ("OSA1".into(), "memory".into()));
    assert_eq!((shown("interface"), shown("is_served")), ("osa2".into(), true.into()));
    assert!(shown("lan").is_null() && shown("devices") == serde_json::json!([]));
    // Of an adapter that cannot be had: the second host is told of the first one before it looks for that.
    let missing = FILE.replace("wire = \"memory\"\nto = \"osa2\"", "interface = \"none0\"");
    let missing = missing.split("[osa.osa2]").next().unwrap();
    std::fs::write(&file, missing).unwrap();
    let output = siga(&["up", file.to_str().unwrap()]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(code(&output), Some(1), "{said}");
    assert!(said.contains("another host is there already"), "{said}");
    // What the machine lacks is no wrong use.
    let output = siga(&["up", file.to_str().unwrap()])
        .env("SIGA_SOCKET", place.join("other.sock"))
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert_eq!(code(&output), Some(1), "{said}");
    assert!(said.contains("there is no interface none0"), "{said}");
    std::fs::remove_dir_all(&place).unwrap();
}
