//! `siga import`: a system file of a TCP/IP profile.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A folder of a test's own.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder =
            std::env::temp_dir().join(format!("siga-import-{name}-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        Folder(folder)
    }

    /// Writes a file, and returns its name in the folder.
    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        std::fs::write(self.0.join(name), bytes).unwrap();
        name.to_owned()
    }

    /// Runs `siga import` in the folder.
    fn import(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
        command.arg("import").args(arguments).current_dir(&self.0).output().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const PROFILE: &str = "; HiperSockets, and a port that nobody needs to reserve
DEVICE HS0  HIPERS 7000 CPU 1
LINK   HSL0 QDIOIP HS0
HOME   10.1.0.5/24 HSL0
GATEWAY DEFAULTNET 10.1.0.1 HSL0 8192 0
PORT 21 TCP FTPSERVE
STRAT  HS0
";

#[test]
fn profile_is_read_from_standard_input() {
    let folder = Folder::new("input");
    let profile = folder.write("PROFILE.TCPIP", PROFILE);
    let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
    let input = std::fs::File::open(folder.0.join(profile)).unwrap();
    let output = command.args(["import", "-"]).stdin(input).output().unwrap();
    let (out, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(out.starts_with("# Made by siga import from standard input: "), "{out}");
    assert!(said.starts_with("standard input:2: DEVICE HS0 has no START: "), "{said}");
}

#[test]
fn result_goes_to_standard_output_and_findings_beside_it() {
    let folder = Folder::new("output");
    let profile = folder.write("PROFILE.TCPIP", PROFILE);
    let output = folder.import(&[&profile, "--name", "net1"]);
    let (out, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(out.starts_with("# Made by siga import from PROFILE.TCPIP: "), "{out}");
    assert!(out.contains("\n[[tcpip]]\nname = \"NET1\"\n"), "{out}");
    assert!(out.contains("#   line 6: PORT is left out: "), "{out}");
    let expected = "PROFILE.TCPIP:2: DEVICE HS0 has no START: the interface is used all the same\n\
                    PROFILE.TCPIP:6: PORT is left out: a port belongs to the client that listens at it first\n\
                    PROFILE.TCPIP:7: STRAT is no statement: did you mean START?\n\
                    siga: made 1 LAN and 0 lines; 1 mistake, 1 left out, 1 changed\n";
    assert_eq!(said, expected);

    let to_file = folder.import(&[&profile, "--name", "NET1", "--output", "system.toml"]);
    assert_eq!((to_file.status.code(), text(&to_file.stdout)), (Some(0), ""));
    assert_eq!(text(&to_file.stderr), expected);
    assert_eq!(std::fs::read_to_string(folder.0.join("system.toml")).unwrap(), out);
    let again = folder.import(&[&profile, "--output", "system.toml"]);
    let expected = "siga: system.toml is there already: must be a new file\n";
    assert_eq!((again.status.code(), text(&again.stderr)), (Some(1), expected));
    assert_eq!(std::fs::read_to_string(folder.0.join("system.toml")).unwrap(), out);
}

#[test]
fn json_has_the_findings_with_their_kinds() {
    let folder = Folder::new("json");
    let profile = folder.write("PROFILE.TCPIP", PROFILE);
    let object = |arguments: &[&str]| -> serde_json::Value {
        let output = folder.import(arguments);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let result = object(&[&profile, "--json"]);
    assert_eq!((&result["lans"], &result["lines"]), (&1.into(), &0.into()));
    assert!(result["output"].is_null());
    assert!(result["text"].as_str().unwrap().contains("[[tcpip.interface]]\nlan = \"hs0\"\n"));
    assert!(result["text"].as_str().unwrap().contains("\nmtu = 8192\ncpu = 1\n"));
    let kinds: Vec<_> = result["findings"].as_array().unwrap().iter().collect();
    let row = |at: usize| (kinds[at]["line"].as_u64(), kinds[at]["kind"].as_str());
    let expected = [(2, "changed"), (6, "left out"), (7, "mistake")];
    let expected = expected.map(|(line, kind)| (Some(line), Some(kind)));
    assert_eq!([row(0), row(1), row(2)], expected);
    let result = object(&[&profile, "--json", "--output", "system.toml"]);
    assert!(result["text"].is_null() && result["output"] == "system.toml");
}

#[test]
fn profile_of_which_nothing_can_be_made_is_an_error_and_wrong_use_another() {
    let folder = Folder::new("nothing");
    let nothing = folder.write("NOTHING.TCPIP", "START HS0\n");
    let output = folder.import(&[&nothing, "--output", "system.toml"]);
    assert_eq!(
        (output.status.code(), text(&output.stderr)),
        (
            Some(1),
            "NOTHING.TCPIP:1: no DEVICE has the name HS0: must be described by a DEVICE statement\n\
             siga: NOTHING.TCPIP: nothing to make a system file of: must have a LINK with a HOME address, of HiperSockets, an adapter, IUCV or CTC\n"
        )
    );
    assert!(!folder.0.join("system.toml").exists());

    let ebcdic = folder.write("EBCDIC.TCPIP", [0x40; 800]);
    for (arguments, line) in [
        (
            &["NOSUCH.TCPIP"][..],
            "NOSUCH.TCPIP: cannot be read: No such file or directory (os error 2)",
        ),
        (&["."], ".: cannot be read: it is no ordinary file"),
        (
            &[&ebcdic],
            "EBCDIC.TCPIP: is in EBCDIC: must be converted, like iconv -f IBM1047 -t UTF-8, or transferred as text",
        ),
        (&[&nothing, "--nmae", "X"], "siga: there is no option --nmae: did you mean --name?"),
    ] {
        let output = folder.import(arguments);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.trim_end()), (Some(2), line));
    }
    let output = folder.import(&[&nothing, "--name", "TOO-LONG-A-NAME"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("must be 1 to 8 of A-Z 0-9 $ # @ _ -"));
    let output = folder.import(&[&nothing, "--output", "no/such/folder.toml"]);
    let line =
        "siga: no/such/folder.toml cannot be written: No such file or directory (os error 2)\n";
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), line));
}

#[test]
fn file_that_is_made_is_one_that_a_host_takes() {
    let folder = Folder::new("check");
    let profile = folder.write("PROFILE.TCPIP", PROFILE);
    let output = folder.import(&[&profile]);
    let made = text(&output.stdout);
    let system = folder.write("system.toml", made);
    let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
    let check = command.args(["up", "--check", &system]).current_dir(Path::new(&folder.0));
    let output = check.output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}\n{made}");
    let expected = "system.toml: ";
    assert!(text(&output.stdout).starts_with(expected), "{}", text(&output.stdout));
}
