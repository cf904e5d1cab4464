//! Programs in networks of their own, without a LAN: what is between their interfaces is the test's.

use std::ffi::OsString;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};

use os::poller::wait_any;
use os::program::{Change, End};
use os::signals::HeldSignals;
use os::tap::{HEAD_BYTES, Tap};
use port::link::Address;
use port::outside::{Made, StartError, Waiting, start};
use port::setup::{Network, Place, Setup};

const SIGA: &str = env!("CARGO_BIN_EXE_siga");

fn setup(number: u8, program: &[&str]) -> Setup {
    let program: Vec<OsString> = program.iter().map(OsString::from).collect();
    Setup {
        place: Place::Own { program },
        network: Network::Lan,
        interface: "hs0".to_owned(),
        mac: format!("02:00:00:00:00:{number:02x}").parse().unwrap(),
        mtu: 8192,
        addresses: vec![Address::parse(&format!("10.1.0.{number}/24")).unwrap()],
        gateways: Vec::new(),
        resolvers: Vec::new(),
    }
}

/// None, and a line that says why, where this machine or user cannot.
fn started(test: &str, setup: &Setup) -> Option<(Made, Waiting)> {
    let held = HeldSignals::hold_to_pass_on().unwrap();
    match start(Path::new(SIGA), setup, &held) {
        Ok(ready) => Some(ready),
        Err(StartError::Refused(why)) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {why}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn have(test: &str, programs: &[&str]) -> bool {
    programs.iter().all(|program| {
        let found = Command::new("sh")
            .arg("-c")
            .arg(format!("command -v {program}"))
            .stdout(Stdio::null())
            .status()
            .unwrap();
        if !found.success() {
            let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {program} is not installed");
        }
        found.success()
    })
}

fn carry(from: &Tap, to: &Tap, room: &mut [u8]) {
    let mut head = [0; HEAD_BYTES];
    while let Some(bytes) = from.read(&mut head, room).unwrap() {
        // A frame that the other end does not take is lost, as on a wire.
        let _ = to.write(&[&head, &room[..bytes]], None);
    }
}

/// Lets one program serve and another ask until the second has ended, and returns how.
fn ask(test: &str, server: &[&str], client: &[&str]) -> Option<End> {
    let (server, server_waits) = started(test, &setup(1, server))?;
    let (client, client_waits) = started(test, &setup(2, client))?;
    let (mut serving, mut asking) = (server_waits.go(), client_waits.go());
    let mut room = vec![0; 1 << 17];
    loop {
        carry(&client.tap, &server.tap, &mut room);
        carry(&server.tap, &client.tap, &mut room);
        if let Some(Change::Ended(end)) = asking.poll().unwrap() {
            serving.kill();
            return Some(end);
        }
        let both = [Some(client.tap.as_fd()), Some(server.tap.as_fd())];
        wait_any(both, Some(std::time::Duration::from_millis(10))).unwrap();
    }
}

#[test]
fn programs_in_two_networks_reach_each_other() {
    let test = "ping";
    if have(test, &["ping"])
        && let Some(end) =
            ask(test, &["sleep", "1000"], &["ping", "-c", "3", "-i", "0.1", "10.1.0.1"])
    {
        assert_eq!(end, End::Exit(0));
    }
    let test = "iperf3";
    let server = ["iperf3", "--server", "--one-off"];
    let script = "until iperf3 --client 10.1.0.1 --time 1; do :; done";
    if have(test, &["iperf3"])
        && let Some(end) = ask(test, &server, &["sh", "-c", script])
    {
        assert_eq!(end, End::Exit(0));
    }
}
