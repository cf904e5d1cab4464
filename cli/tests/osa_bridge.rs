//! A LAN that `siga up` bridges to the port of an adapter, and the kernel at the other end of the cable. A test is skipped, and says so, where a program or
//! a right is missing.

#[path = "common/cable.rs"]
mod cable;
#[expect(dead_code, reason = "used by other tests")]
mod common;
#[path = "common/lacking.rs"]
mod lacking;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cable::{Cable, HERE, THERE, in_network};
use common::{Process, System, text};
use lacking::{has_program, skip};
use serde_json::Value;

/// A directory that goes with the test.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Place {
    fn new(test: &str) -> Place {
        let place = std::env::temp_dir().join(format!("siga-{test}-{}", std::process::id()));
        std::fs::create_dir(&place).unwrap();
        Place(place)
    }

    fn siga(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
        command.args(words).env("SIGA_SOCKET", self.0.join("siga.sock"));
        command
    }

    /// A shell script of a member of the LAN with this address.
    fn script(&self, address: &str, script: &str) -> Command {
        let words = ["run", "--isolated", "--address", address, "--", "timeout", "60", "sh", "-c"];
        self.siga(&[&words[..], &[script]].concat())
    }
}

const FILE: &str = r#"
[[guest]]
name = "*"

[osa.osa1]
wire = "macvtap"
interface = "siga0"
wait = "block"
lan = "hs0"

[[lan]]
name = "hs0"
range = ["10.7.0.0/24", "fd07::/64"]
"#;

/// The time after which something is taken to hang: that of a script, too.
const LONG: Duration = Duration::from_secs(60);

/// A host with the bridge, and what it has printed. None, with the reason said, if this machine has no such wire.
fn up(place: &Place, test: &str, wire: &str) -> Option<(Process, Value)> {
    let file = place.0.join("system.toml");
    std::fs::write(&file, FILE.replace("siga0", HERE).replace("macvtap", wire)).unwrap();
    let mut command = place.siga(&["up", "--json", file.to_str().unwrap()]);
    let mut host = Process(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(host.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if line.contains("listening") {
        // Nobody reads what it says: it goes on all the same.
        return Some((host, serde_json::from_str(&line).unwrap()));
    }
    let mut said = String::new();
    host.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    // All else is a fault: what siga says of its own faults has a "must", too.
    let is_missing =
        ["must have CAP_", "must be built with"].iter().any(|what| said.contains(what));
    assert!(is_missing, "{said}");
    skip(test, said.trim());
    None
}

#[test]
fn programs_on_a_lan_and_the_network_behind_the_port_are_in_one_network() {
    let test = "osa-bridge";
    if !["ip", "ping", "curl", "python3"].iter().all(|one| has_program(test, one, one)) {
        return;
    }
    in_network(test, || {
        let place = Place::new(test);
        let cable = Cable::make();
        let there = |words: &str| {
            let mut words = words.split(' ');
            let mut command = Command::new(words.next().unwrap());
            command.args(words);
            cable.inside(move || command.output().unwrap())
        };
        assert!(there(&format!("ip -6 addr add fd07::2/64 dev {THERE} nodad")).status.success());
        let Some(_host) = up(&place, test, "macvtap") else { return };
        // The kernel there is reached, over both families, and a packet that is too long for the cable is told of.
        let pings = "until ping -c 1 -W 1 10.7.0.2 >/dev/null; do :; done
            ping -c 1 -M do -s 4000 10.7.0.2; echo ; ip neigh show";
        let output = place.script("10.7.0.5", pings).output().unwrap();
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(said.contains("mtu") && said.contains("1500"), "{said}");
        let ping = "until ping -6 -c 1 -W 1 fd07::2 >/dev/null; do :; done";
        let output = place.script("fd07::5", ping).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        // A program on the LAN serves the kernel there.
        let page: Vec<u8> = (0..3_000_000).map(|at: u32| (at ^ at >> 8) as u8).collect();
        std::fs::write(place.0.join("page"), &page).unwrap();
        let serve = format!(
            "python3 -m http.server 80 --directory {} >/dev/null 2>&1 & read line; kill $!",
            place.0.display()
        );
        let mut command = place.script("10.7.0.6", &serve);
        let mut server = Process(command.stdin(Stdio::piped()).spawn().unwrap());
        let fetched = place.0.join("fetched");
        let fetch = format!("curl -s -m 20 -o {} http://10.7.0.6/page", fetched.display());
        let end = Instant::now() + LONG;
        while !there(&fetch).status.success() {
            let lan = || text(&place.siga(&["query", "lan", "--json"]).output().unwrap().stdout);
            assert!(
                Instant::now() < end,
                "nothing is fetched; the members have counted: {}",
                lan()
            );
        }
        assert!(std::fs::read(&fetched).unwrap() == page, "other bytes have come");
        // And the other way.
        let directory = place.0.clone();
        let _web = Process(cable.inside(move || {
            let mut command = Command::new("python3");
            command.args(["-m", "http.server", "80", "--directory"]).arg(directory);
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        }));
        let fetch = format!(
            "until curl -s -m 20 -o {} http://10.7.0.2/page; do :; done",
            fetched.display()
        );
        std::fs::remove_file(&fetched).unwrap();
        let output = place.script("10.7.0.5", &fetch).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(std::fs::read(&fetched).unwrap() == page, "other bytes have come");
        writeln!(server.0.stdin.as_mut().unwrap()).unwrap();
        server.0.wait().unwrap();
    });
}

#[test]
fn host_says_of_an_adapter_what_a_command_for_it_would_say() {
    let test = "osa-up";
    if !has_program(test, "ip", "iproute2") {
        return;
    }
    in_network(test, || {
        let place = Place::new(test);
        let _cable = Cable::make();
        let Some((host, said)) = up(&place, test, "xdp") else { return };
        let of_host = said["adapters"][0].clone();
        drop(host);
        assert_eq!((&of_host["wire"], &of_host["interface"]), (&"xdp".into(), &HERE.into()));
        let other = System::start("osa-up-command");
        let words = ["osa", "serve", "OSA1", "--wire", "xdp", "--interface", HERE, "--json"];
        let mut command = other.command(&words);
        let mut adapter = Process(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(adapter.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let of_command: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(of_host, of_command);
        assert!(of_host["mode"].as_str().is_some_and(|mode| mode.ends_with(" copy")), "{of_host}");
    });
}
