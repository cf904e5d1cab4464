//! OSA adapters that `siga up` serves, and guests with devices on them.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use common::{Process, System, text};
use siga::Guest;
use siga::osa::{OpenOsaError, Osa, OsaOptions};
use siga::tcpip::{Links, Routing, Stack, StackOptions, TcpListener, TcpStream};

const PATIENCE: Duration = Duration::from_secs(30);

/// Starts a host of a system file, and returns its process once guests can have devices.
fn start(place: &System, file: &str, socket: &str) -> Process {
    let mut up = place.command(&["up", "--socket", socket, file]);
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

#[test]
fn guests_reach_each_other_over_the_adapters_of_a_file() {
    let place = System::start("osa-wire");
    let (file, socket) =
        (format!("{}/../systems/osa.toml", env!("CARGO_MANIFEST_DIR")), place.file("up.sock"));
    let _up = start(&place, &file, &socket);
    let left = stack(&socket, "LEFT", "OSA1", "10.1.0.1");
    let right = stack(&socket, "RIGHT", "OSA2", "10.1.0.2");
    let listener = TcpListener::bind(&right, ("10.1.0.2", 7)).unwrap();
    let receiver = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        received
    });
    let sent: Vec<u8> = (0..300_000_u32).map(|at| (at ^ at >> 8) as u8).collect();
    let mut stream = TcpStream::connect(&left, ("10.1.0.2", 7)).unwrap();
    stream.write_all(&sent).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(receiver.join().unwrap() == sent);
}

#[test]
fn guest_that_is_not_among_those_of_an_adapter_gets_no_device() {
    let place = System::start("osa-guests");
    let (file, socket) =
        (format!("{}/../systems/osa.toml", env!("CARGO_MANIFEST_DIR")), place.file("up.sock"));
    let _up = start(&place, &file, &socket);
    let mut device = device(&socket, "RIGHT", "OSA1");
    // It is asked for until then, because the host of another file may allow it.
    let error = device.wait_until_up(Duration::from_millis(300)).unwrap_err();
    let OpenOsaError::NotUp { why, .. } = error else { panic!("{error}") };
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
    assert_eq!((up.status.code(), text(&up.stderr)), (Some(2), what));
}
