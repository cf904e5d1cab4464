//! The walls of ARCHITECTURE.md, held against the sources.

use std::fs;
use std::path::{Path, PathBuf};

/// A place in the sources, and what it must not mention.
struct Wall {
    /// Below the top of the repository.
    place: &'static str,
    /// Words that do not stand there in code.
    without: &'static [&'static str],
    /// Why.
    because: &'static str,
}

const CLOCKS: [&str; 5] = ["std::thread", "Instant", "SystemTime", "now_ns", "sleep("];

const WALLS: &[Wall] = &[
    Wall {
        place: "os/src",
        without: &["fabric::", "host::", "siga::", "port::", "lab::"],
        because: "os stands on Linux alone",
    },
    Wall {
        place: "fabric/src",
        without: &["message::", "net::lan", "host::", "siga::", "lab::"],
        because: "fabric stands on os alone",
    },
    Wall {
        place: "fabric/src",
        without: &CLOCKS,
        because: "fabric starts no thread, asks no clock and does not sleep: time is an argument",
    },
    Wall {
        place: "message/src",
        without: &CLOCKS,
        because: "message starts no thread, asks no clock and does not sleep: time is an argument",
    },
    Wall {
        place: "net/src",
        without: &CLOCKS,
        because: "net starts no thread, asks no clock and does not sleep: time is an argument",
    },
    Wall {
        place: "net/src",
        without: &["message::", "host::", "siga::", "lab::", "fabric::control"],
        because: "a network needs its paths alone",
    },
    Wall {
        place: "channel/src",
        without: &CLOCKS,
        because: "channel starts no thread, asks no clock and does not sleep: time is an argument",
    },
    Wall {
        place: "channel/src",
        without: &[
            "disk::",
            "message::",
            "net::",
            "host::",
            "siga::",
            "lab::",
            "fabric::control",
            "std::fs",
        ],
        because: "a channel knows no device, and needs its paths alone",
    },
    Wall {
        place: "channel/src/format",
        without: &["crate::exchange", "crate::run", "std::fs", "std::io"],
        because: "a format is bytes, whoever uses it",
    },
    Wall {
        place: "disk/src",
        without: &CLOCKS,
        because: "disk starts no thread, does not sleep, and has no clock of its own: time is an argument, and a control unit is given a clock for waits for files",
    },
    Wall {
        place: "disk/src",
        without: &["message::", "net::", "host::", "siga::", "lab::", "fabric::control"],
        because: "a disk needs its paths alone",
    },
    Wall {
        place: "disk/src/format",
        without: &["crate::ckd", "std::fs", "std::io"],
        because: "a format is bytes, whoever uses it",
    },
    Wall {
        place: "disk/src/ckd",
        without: &["fabric::", "crate::unit", "channel::exchange", "channel::request"],
        because: "a volume does not know who reads it",
    },
    Wall {
        place: "net/src/lan",
        without: &["crate::board", "crate::tcpip"],
        because: "a LAN does not know what its frames carry",
    },
    Wall {
        place: "net/src/board.rs",
        without: &["crate::tcpip"],
        because: "a host reads a stack's board, and is built without the stack",
    },
    Wall {
        place: "net/src/tcpip/tcp.rs",
        without: &["std::net", "std::time", "super::stack", "super::output", "crate::lan::link"],
        because: "a connection has no address, no clock and no link",
    },
    Wall {
        place: "net/src/tcpip/tcp",
        without: &["std::net", "std::time", "tcpip::stack", "tcpip::output", "crate::lan::link"],
        because: "a connection has no address, no clock and no link",
    },
    Wall {
        place: "message/src",
        without: &["net::lan", "net::tcpip"],
        because: "messages and networks do not know each other",
    },
    Wall {
        place: "fabric/src/queue",
        without: &["crate::path", "crate::control", "crate::name"],
        because: "queue knows no user of it",
    },
    Wall {
        place: "fabric/src/path",
        without: &["crate::control"],
        because: "a path needs no control plane once it is made",
    },
    Wall {
        place: "message/src",
        without: &["host::", "siga::", "lab::", "fabric::control", "fabric::name"],
        because: "a conversation needs its path alone",
    },
    Wall {
        place: "message/src/iucv",
        without: &["crate::appc"],
        because: "one kind of conversation knows no other",
    },
    Wall {
        place: "message/src/appc",
        without: &["crate::iucv"],
        because: "one kind of conversation knows no other",
    },
    Wall {
        place: "fabric/src/path/sender",
        without: &["path::receiver", "super::receiver"],
        because: "the two sides of a border do not import each other",
    },
    Wall {
        place: "fabric/src/path/receiver",
        without: &["path::sender", "super::sender"],
        because: "the two sides of a border do not import each other",
    },
    Wall {
        place: "fabric/src/queue/writer.rs",
        without: &["super::reader"],
        because: "the two sides of a border do not import each other",
    },
    Wall {
        place: "fabric/src/queue/reader.rs",
        without: &["super::writer"],
        because: "the two sides of a border do not import each other",
    },
    Wall {
        place: "terminal/src",
        without: &CLOCKS,
        because: "terminal starts no thread, asks no clock and does not sleep: time is an argument",
    },
    Wall {
        place: "terminal/src",
        without: &["os::", "fabric::", "net::", "host::", "siga::", "std::net", "std::io"],
        because: "a terminal takes bytes and gives bytes, whoever carries them",
    },
    Wall {
        place: "terminal/src/stream",
        without: &["crate::telnet", "crate::tn3270e", "crate::server", "crate::client"],
        because: "the data stream does not know how it is carried",
    },
    Wall {
        place: "terminal/src/server.rs",
        without: &["crate::client"],
        because: "the two ends of a session do not import each other",
    },
    Wall {
        place: "terminal/src/client.rs",
        without: &["crate::server"],
        because: "the two ends of a session do not import each other",
    },
    Wall {
        place: "host/src",
        without: &["siga::", "lab::"],
        because: "host serves guests, it is none",
    },
    Wall {
        place: "host/src/profile",
        without: &["crate::plane", "crate::run", "crate::report", "std::thread"],
        because: "a format is text, whoever uses it",
    },
    Wall {
        place: "siga/src",
        without: &["lab::"],
        because: "what a program depends on has no lab",
    },
    Wall {
        place: "cli/src",
        without: &["eprintln!", "println!"],
        because: "a reader that is gone ends no command: output::say and output::print",
    },
    Wall {
        place: "port/src/serve.rs",
        without: &["eprintln!"],
        because: "a reader that is gone ends no port",
    },
    Wall {
        place: "port/src",
        without: &["host::", "lab::", "thread::sleep", "Command::new(\"ip\")"],
        because: "a port is a guest, and waits for events",
    },
    Wall {
        place: "siga/src",
        without: &["port::"],
        because: "what a program depends on makes no namespaces",
    },
    Wall {
        place: "siga/src",
        without: &["thread::sleep"],
        because: "nothing waits for a time where it can wait for an event",
    },
];

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the repository").into()
}

/// All Rust files at or below `place`.
fn sources(place: &Path) -> Vec<PathBuf> {
    if place.is_file() {
        return vec![place.to_owned()];
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(place).unwrap_or_else(|error| panic!("{}: {error}", place.display()))
    {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") && !path.ends_with(".git") {
            found.extend(sources(&path));
        } else if path.ends_with("tests.rs") {
            // Like the test modules in other files.
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The lines of a file that are code: no comments, and nothing from the first test module on.
fn code(file: &Path) -> Vec<(usize, String)> {
    let text = fs::read_to_string(file).unwrap();
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim().to_owned()));
    lines
        .take_while(|(_, line)| line != "#[cfg(test)]")
        .filter(|(_, line)| !line.starts_with("//"))
        .collect()
}

#[test]
fn walls_stand() {
    let mut holes = Vec::new();
    for wall in WALLS {
        for file in sources(&top().join(wall.place)) {
            for (number, line) in code(&file) {
                for word in wall.without.iter().filter(|word| mentions(&line, word)) {
                    let place = file.strip_prefix(top()).unwrap().display();
                    holes.push(format!("{place}:{number}: {word:?}: {}", wall.because));
                }
            }
        }
    }
    assert!(holes.is_empty(), "\n{}", holes.join("\n"));
}

/// Returns true if a line of code has this word, and not as the end of a longer one.
fn mentions(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_' || letter == ':')
    })
}

#[test]
fn only_os_has_unsafe_code() {
    let needle = ["unsa", "fe"].concat();
    for file in sources(&top()) {
        let place = file.strip_prefix(top()).unwrap().to_owned();
        // `peers` is no crate of this workspace, and stands on bindings of other languages.
        if ["os", "target", "peers"].iter().any(|room| place.starts_with(room)) {
            continue;
        }
        for (number, line) in code(&file) {
            // Neither unsafe code nor an attribute that permits it.
            assert!(!mentions(&line, &needle), "{}:{number}: {line}", place.display());
        }
    }
    let manifest = |room: &str| fs::read_to_string(top().join(room).join("Cargo.toml")).unwrap();
    let workspace = manifest("");
    assert!(workspace.contains(&format!("\n{needle}_code = \"deny\"\n")));
    let members = workspace.lines().find_map(|line| line.strip_prefix("members = ")).unwrap();
    let members: Vec<&str> = members.split('"').skip(1).step_by(2).collect();
    assert!(members.contains(&"fabric"), "{members:?}");
    for room in members {
        assert!(manifest(room).contains("\n[lints]\nworkspace = true\n"), "{room}/Cargo.toml");
    }
}

#[test]
fn a_hole_in_a_wall_is_seen() {
    assert!(mentions("use crate::path::Sender;", "crate::path"));
    assert!(mentions("let t = std::thread::spawn(f);", "std::thread"));
    assert!(!mentions("use my_host::x;", "host::"));
    assert!(!mentions("fabric::siga_host::x", "host::"));
}
