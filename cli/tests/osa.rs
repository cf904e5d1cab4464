//! OSA adapters that `siga up` serves, and guests and TCPIP machines with devices on them.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use common::{Process, System, text};
use serde_json::{Value, json};
use siga::Guest;
use siga::osa::{OpenOsaError, Osa, OsaOptions, Refused, Request};
use siga::tcpip::{ClientOptions, Links, Routing, Stack, StackOptions, TcpListener, TcpStream};

const PATIENCE: Duration = Duration::from_secs(30);

/// A file of the folder `systems`.
fn example(name: &str) -> String {
    format!("{}/../systems/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Starts a host of a system file, and returns its process once guests can have devices.
fn start(place: &System, file: &str, socket: &str) -> Process {
    start_with(place, &[file], socket)
}

/// The same with more words, or without a file.
fn start_with(place: &System, words: &[&str], socket: &str) -> Process {
    let mut up = place.command(&[&["up", "--socket", socket], words].concat());
    let mut up = Process(up.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(up.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if line != format!("listening at {socket}\n") {
        let _ = up.0.stderr.take().unwrap().read_to_string(&mut line);
        panic!("{line}");
    }
    up
}

fn device(socket: &str, name: &str, adapter: &str) -> Osa {
    let guest = Guest::attach(socket, name).unwrap();
    Osa::open(guest, adapter, &OsaOptions::default()).unwrap()
}

fn stack(socket: &str, name: &str, adapter: &str, address: &str) -> Stack {
    let mut osa = device(socket, name, adapter);
    osa.add_address(address.parse().unwrap(), 24);
    osa.wait_until_up(PATIENCE).unwrap();
    let links = Links { devices: vec![osa], ..Links::default() };
    Stack::at(links, &Routing::default(), &StackOptions::default()).unwrap()
}

/// Has one stack send bytes to a listener of the other, and looks at all of them.
fn transfer(from: &Stack, to: &Stack, address: &str) {
    let listener = TcpListener::bind(to, (address, 7)).unwrap();
    let receiver = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        received
    });
    let sent: Vec<u8> = (0..300_000_u32).map(|at| (at ^ at >> 8) as u8).collect();
    let mut stream = TcpStream::connect(from, (address, 7)).unwrap();
    stream.write_all(&sent).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(receiver.join().unwrap() == sent);
}

/// A client of a machine.
fn client(socket: &str, name: &str, machine: &str) -> Stack {
    let guest = Guest::attach(socket, name).unwrap();
    Stack::of_machine(guest, machine, &ClientOptions::default()).unwrap()
}

/// A machine in a process of its own, and what it says on standard error.
struct Machine {
    _process: Process,
    said: Receiver<String>,
}

impl Machine {
    fn start(place: &System, name: &str, file: &str, socket: &str) -> Machine {
        let words = ["tcpip", "serve", name, "--socket", socket, "--system", file];
        let mut command = place.command(&words);
        let mut process = Process(command.stderr(Stdio::piped()).spawn().unwrap());
        let lines = BufReader::new(process.0.stderr.take().unwrap()).lines();
        let (say, said) = channel();
        // Until the machine ends, or the test does not listen any more.
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| say.send(line)));
        Machine { _process: process, said }
    }

    /// Waits for a line that begins so, and returns it and the lines before.
    fn wait_for(&self, beginning: &str) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        while lines.last().is_none_or(|line| !line.starts_with(beginning)) {
            match self.said.recv_timeout(PATIENCE) {
                Ok(line) => lines.push(line),
                Err(error) => panic!("{error}: no line {beginning:?}: {lines:#?}"),
            }
        }
        lines
    }
}

#[test]
fn clients_of_machines_reach_each_other_over_adapters() {
    let place = System::start("osa-machines");
    let (file, socket) = (example("osa-machine.toml"), place.file("up.sock"));
    let _up = start(&place, &file, &socket);
    let [near, far] =
        [("CLIENT", "NEAR"), ("WEB", "FAR")].map(|(name, of)| client(&socket, name, of));
    assert_eq!(near.addresses(), ["192.168.1.5".parse::<std::net::IpAddr>().unwrap()]);
    transfer(&near, &far, "192.168.1.6");
    transfer(&far, &near, "192.168.1.5");
    let query = |words: &[&str]| {
        let words = [&["query", "tcpip", "--socket", &socket], words].concat();
        text(&place.run(&words).stdout)
    };
    let report: Value = serde_json::from_str(&query(&["--json"])).unwrap();
    let stacks = report["stacks"].as_array().unwrap();
    let near = stacks.iter().find(|of| of["guest"] == "NEAR1").unwrap();
    assert_eq!(near["stack"]["machine"], "NEAR");
    assert_eq!(
        near["stack"]["interfaces"],
        json!([{ "lan": 0, "vlan": null, "mtu": 1500, "address": "192.168.1.5", "forwards": false }])
    );
    let route = json!([{ "to": "0.0.0.0/0", "via": "192.168.1.6", "is_there": true }]);
    assert_eq!(near["stack"]["routes"], route);
    let table = query(&[]);
    let is_shown =
        |line: &str| ["NEAR", "OSA1", "192.168.1.5", "1500"].iter().all(|cell| line.contains(cell));
    assert!(table.lines().any(is_shown), "{table}");
}

#[test]
fn machine_does_not_wait_for_an_adapter_and_its_device_comes_back_with_the_host() {
    let place = System::start("osa-comes");
    let (file, socket) = (example("osa-machine.toml"), place.file("up.sock"));
    let adapters = ["--without-tcpip", &file];
    // Anybody may attach to this host, which serves no adapter.
    let up = start_with(&place, &["--without-outside"], &socket);
    let [near, far] = ["NEAR", "FAR"].map(|name| Machine::start(&place, name, &file, &socket));
    near.wait_for("NEAR serves sockets: 192.168.1.5/24 at osa1 as NEAR1");
    far.wait_for("FAR serves sockets: 192.168.1.6/24 at osa2 as FAR1");
    let down = "siga: warning: the device with 192.168.1.5 is down at osa1: ";
    assert_eq!(near.wait_for(down).len(), 1);
    drop(up);
    let up = start_with(&place, &adapters, &socket);
    let is_up = "siga: the device with 192.168.1.5 is up at osa1: packets of up to 1500 bytes";
    near.wait_for(is_up);
    far.wait_for("siga: the device with 192.168.1.6 is up at osa2: ");
    let [one, other] =
        [("CLIENT", "NEAR"), ("WEB", "FAR")].map(|(name, of)| client(&socket, name, of));
    let listener = TcpListener::bind(&other, "192.168.1.6:7").unwrap();
    let mut stream = TcpStream::connect(&one, "192.168.1.6:7").unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    let mut found = [0; 6];
    stream.write_all(b"before").unwrap();
    accepted.read_exact(&mut found).unwrap();
    drop(up);
    near.wait_for(&format!("{down}the path to it has ended"));
    let _up = start_with(&place, &adapters, &socket);
    let lines = near.wait_for(is_up);
    let of_device = lines.iter().filter(|line| line.contains("the device with"));
    assert_eq!(of_device.count(), 1, "{lines:#?}");
    stream.write_all(b"behind").unwrap();
    accepted.read_exact(&mut found).unwrap();
    assert_eq!(&found, b"behind");
}

#[test]
fn adapter_keeps_the_address_of_a_machine_from_others() {
    let place = System::start("osa-kept");
    let (file, other_file) = (place.file("kept.toml"), place.file("other.toml"));
    let socket = place.file("up.sock");
    let written = r#"
        [[guest]]
        name = "GUEST"
        [osa.osa1]
        wire = "memory"
        to = "osa2"
        guests = ["GUEST", "NEAR", "FAR"]
        [osa.osa2]
        wire = "memory"
        to = "osa1"
        [[tcpip]]
        name = "NEAR"
        osa = [{ adapter = "osa1", address = "10.1.0.5/24" }]
        [[tcpip]]
        name = "FAR"
        osa = [{ adapter = "osa1", address = "10.1.0.6/24" }]
        "#;
    std::fs::write(&file, written).unwrap();
    // NEAR believes that it has the address of FAR.
    let swapped = written.replace("10.1.0.6", "10.1.0.7").replace("10.1.0.5", "10.1.0.6");
    std::fs::write(&other_file, swapped).unwrap();
    let _up = start_with(&place, &["--without-tcpip", &file], &socket);
    let mut device = device(&socket, "GUEST", "OSA1");
    let kept = "10.1.0.5".parse().unwrap();
    device.add_address(kept, 24);
    let refused = device.wait_until_up(PATIENCE).unwrap_err();
    let OpenOsaError::Refused { request, why, .. } = refused else { panic!("{refused}") };
    assert_eq!((request, why), (Request::AddAddress(kept), Refused::NotAllowed));
    let near = Machine::start(&place, "NEAR", &other_file, &socket);
    let line = "siga: warning: osa1 refuses NEAR1 the address 10.1.0.6: the adapter does not give this to this guest";
    near.wait_for(line);
}

#[test]
fn guests_reach_each_other_over_the_adapters_of_a_file() {
    let place = System::start("osa-wire");
    let (file, socket) = (example("osa.toml"), place.file("up.sock"));
    let _up = start(&place, &file, &socket);
    let left = stack(&socket, "LEFT", "OSA1", "10.1.0.1");
    let right = stack(&socket, "RIGHT", "OSA2", "10.1.0.2");
    transfer(&left, &right, "10.1.0.2");
}

#[test]
fn guest_that_is_not_among_those_of_an_adapter_gets_no_device() {
    let place = System::start("osa-guests");
    let (file, socket) = (example("osa.toml"), place.file("up.sock"));
    let _up = start(&place, &file, &socket);
    let mut device = device(&socket, "RIGHT", "OSA1");
    // It is said at once, and asked for again all the same, because the host of another file may allow it.
    let error = device.wait_until_up(Duration::from_secs(60)).unwrap_err();
    let OpenOsaError::Forbidden { why, .. } = error else { panic!("{error}") };
    assert_eq!(why, "this guest may not connect to the target");
}

#[test]
fn interface_that_is_not_there_ends_the_host_with_the_place_in_the_file() {
    let place = System::start("osa-none");
    let file = place.file("none.toml");
    let written =
        "[[guest]]\nname = \"A\"\n[osa.osa1]\nwire = \"xdp\"\ninterface = \"siga-none\"\n";
    std::fs::write(&file, written).unwrap();
    let up = place.run(&["up", "--socket", &place.file("up.sock"), &file]);
    let what = format!("{file}:5: there is no interface siga-none in this network\n");
    assert_eq!((up.status.code(), text(&up.stderr)), (Some(1), what));
}
