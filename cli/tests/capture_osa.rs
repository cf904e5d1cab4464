//! `siga capture --osa`: what passes the port of an adapter is written, and read back, here and by tshark where that is installed.

mod common;
#[path = "common/signals.rs"]
mod signals;

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use common::{Process, System, text};
use os::processor::now_ns;
use serde_json::{Value, json};
use siga::Guest;
use siga::lan::{Mac, Offload};
use siga::osa::{Layer, Osa, OsaOptions};
use signals::{ask_to_end, is_ignored};

const PATIENCE: Duration = Duration::from_secs(30);

const SIGTERM: i32 = 15;

const SYSTEM: &str = r#"
[[guest]]
name = "*"
[osa.osa1]
wire = "memory"
to = "osa2"
capture = ["SNIFFER"]
[osa.osa2]
wire = "memory"
to = "osa1"
"#;

/// A host of the file above, both adapters in a process, and guests with devices of layer 2.
struct Scene {
    system: System,
    adapters: Process,
}

impl Scene {
    fn start(name: &str) -> Scene {
        let file = std::env::temp_dir().join(format!("siga-{name}-{}.toml", std::process::id()));
        std::fs::write(&file, SYSTEM).unwrap();
        let read = siga::host::System::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        Scene::of(System::of(name, read))
    }

    fn of(system: System) -> Scene {
        let words = ["osa", "serve", "OSA1", "OSA2", "--wire", "memory", "--json"];
        let mut adapters = Process(system.command(&words).stdout(Stdio::piped()).spawn().unwrap());
        let mut lines = BufReader::new(adapters.0.stdout.take().unwrap()).lines();
        assert!(lines.by_ref().take(2).all(|line| line.unwrap().contains("memory")));
        Scene { system, adapters }
    }

    fn device(&self, name: &str, adapter: &str, mac: Mac) -> Osa {
        let guest = Guest::attach(self.system.file("siga.sock"), name).unwrap();
        let mut options = OsaOptions::default();
        (options.layer, options.mac) = (Layer::Two, Some(mac));
        let mut device = Osa::open(guest, adapter, &options).unwrap();
        device.wait_until_up(PATIENCE).unwrap();
        device
    }

    fn capture(&self, words: &[&str]) -> Process {
        let words = [&["capture", "--osa", "osa1"], words].concat();
        let mut command = self.system.command(&words);
        Process(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Waits until so many capture at the first adapter.
    fn wait_for_captures(&self, count: u64) {
        let start = Instant::now();
        loop {
            let output = self.system.run(&["query", "osa", "--json"]);
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            if report["adapters"][0]["captures"] == count {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{report:#}");
        }
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn mac(last: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, last])
}

/// Sends a frame from a device to a station, of so many bytes.
fn send(device: &mut Osa, from: Mac, to: Mac, bytes: usize) {
    let mut frame = [&to.0[..], &from.0, &[0x88, 0xb5]].concat();
    frame.resize(bytes, 7);
    let end = now_ns() + PATIENCE.as_nanos() as u64;
    while device.send(now_ns(), None, Offload::NONE, &frame).is_err() {
        device.flush();
        assert!(now_ns() < end, "{device:?}");
        device.wait_until(now_ns() + 1_000_000).unwrap();
        device.poll(now_ns()).unwrap();
    }
    device.flush();
}

fn output(mut process: Process) -> Output {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    process.0.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
    process.0.stderr.take().unwrap().read_to_end(&mut stderr).unwrap();
    Output { status: process.0.wait().unwrap(), stdout, stderr }
}

/// The packets that tshark finds in a file. None where it is not installed.
fn tshark(file: &str) -> Option<Vec<String>> {
    let fields = ["frame.interface_name", "frame.packet_flags_direction", "frame.len", "eth.dst"];
    let mut command = Command::new("tshark");
    command.args(["-n", "-r", file, "-T", "fields"]);
    command.args(fields.iter().flat_map(|field| ["-e", field]));
    match command.output() {
        Ok(Output { status, stdout, stderr }) => {
            assert!(status.success(), "{}", text(&stderr));
            Some(text(&stdout).lines().map(str::to_owned).collect())
        }
        Err(error) => {
            eprintln!("SKIPPED: tshark is not installed ({error}): the file was read here alone");
            None
        }
    }
}

/// The type and the body of each block of a file.
fn blocks(mut file: &[u8]) -> Vec<(u32, &[u8])> {
    let mut blocks = Vec::new();
    while !file.is_empty() {
        let bytes = number(file, 4) as usize;
        assert!(bytes.is_multiple_of(4) && number(file, bytes - 4) as usize == bytes);
        blocks.push((number(file, 0), &file[8..bytes - 4]));
        file = &file[bytes..];
    }
    blocks
}

#[test]
fn file_has_what_came_what_went_and_what_stayed() {
    let scene = Scene::start("capture-osa");
    let (near, other, far) = (mac(5), mac(6), mac(7));
    let mut a = scene.device("A", "OSA1", near);
    let _b = scene.device("B", "OSA1", other);
    let mut c = scene.device("C", "OSA2", far);
    let file = scene.system.file("frames.pcapng");
    let capture = scene.capture(&["-w", &file, "--count", "3", "--json"]);
    scene.wait_for_captures(1);
    send(&mut a, near, far, 100);
    send(&mut a, near, other, 200);
    send(&mut c, far, near, 300);
    let output = output(capture);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = json!({
        "adapter": "OSA1",
        "packets": 3,
        "lost": 0,
        "members": [
            { "guest": "A", "mac": "02:00:00:00:00:05", "packets": 1, "lost": 0 },
            { "guest": "OSA1", "packets": 2, "lost": 0 },
        ],
    });
    assert_eq!(summary, expected);
    let bytes = std::fs::read(&file).unwrap();
    let blocks = blocks(&bytes);
    let packets = blocks.iter().filter(|(kind, _)| *kind == 6);
    // Interface, bytes, and the direction in the flags, if there are any.
    let mut packets: Vec<_> = packets
        .map(|(_, body)| {
            let bytes = number(body, 12);
            let options = 20 + bytes.next_multiple_of(4) as usize;
            let flags = (body.len() > options).then(|| number(body, options + 4));
            (number(body, 0), bytes, flags)
        })
        .collect();
    packets.sort_by_key(|(_, bytes, _)| *bytes);
    assert_eq!(packets, [(0, 100, Some(2)), (1, 200, None), (0, 300, Some(1))]);
    if let Some(mut packets) = tshark(&file) {
        packets.sort();
        let inbound = packets.iter().find(|packet| packet.contains("\t300\t")).unwrap();
        assert!(
            inbound.starts_with("OSA1\t") && inbound.ends_with("02:00:00:00:00:05"),
            "{inbound}"
        );
        assert!(
            packets.iter().any(|packet| packet.starts_with("A\t") && packet.contains("\t200\t"))
        );
    }
    // Whoever has captured is forgotten.
    scene.wait_for_captures(0);
}

#[test]
fn capture_whose_file_is_not_read_loses_copies_and_nobody_waits_for_it() {
    const FRAMES: u64 = 24_000;
    const BYTES: usize = 1500;
    let scene = Scene::start("capture-osa-slow");
    let (near, far) = (mac(5), mac(7));
    let mut a = scene.device("A", "OSA1", near);
    if is_ignored(SIGTERM) {
        return eprintln!("SKIPPED: this process ignores SIGTERM, and so do those that it starts");
    }
    let mut capture = scene.capture(&["-w", "-"]);
    scene.wait_for_captures(1);
    // More than fits into the path, and nobody reads the pipe.
    for _ in 0..FRAMES {
        send(&mut a, near, far, BYTES);
    }
    let mut stdout = capture.0.stdout.take().unwrap();
    let (say, lost) = channel();
    let reader = thread::spawn(move || {
        let mut file = Vec::new();
        let mut at = 0;
        let mut room = vec![0; 1 << 16];
        while let Some(count) = stdout.read(&mut room).ok().filter(|count| *count > 0) {
            file.extend_from_slice(&room[..count]);
            while let Some(bytes) = file.get(at + 4..at + 8).map(|bytes| number(bytes, 0) as usize)
                && let Some(block) = file.get(at..at + bytes)
            {
                // A packet with a direction and a count of those that were lost before.
                if number(block, 0) == 6 {
                    let kept = number(block, 8 + 12).next_multiple_of(4) as usize;
                    if bytes > 28 + kept + 4 + 8 + 4 {
                        let _ = say.send(());
                    }
                }
                at += bytes;
            }
        }
    });
    let end = Instant::now() + PATIENCE;
    while lost.try_recv().is_err() {
        assert!(Instant::now() < end, "nothing was lost, or nobody has said so");
        send(&mut a, near, far, 60);
    }
    assert_eq!(ask_to_end(&mut capture, SIGTERM), Some(0));
    reader.join().unwrap();
    let mut said = String::new();
    capture.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains(" were lost: ") && said.ends_with(" of OSA1\n"), "{said}");
}

#[test]
fn without_a_system_file_guests_of_the_same_user_capture() {
    let scene = Scene::of(System::start("capture-osa-open"));
    let file = scene.system.file("frames.pcapng");
    let capture = scene.capture(&["-w", &file, "--name", "SPY", "--seconds", "0.05"]);
    let output = output(capture);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn capture_needs_a_right_and_ends_with_its_adapter() {
    let mut scene = Scene::start("capture-osa-ends");
    let file = scene.system.file("frames.pcapng");
    let refused = output(scene.capture(&["-w", &file, "--name", "SPY"]));
    let said = "siga: SPY may not capture at the adapter OSA1: [osa.osa1] of the system file must name SPY in capture = [\"SPY\"], and siga up must be started again with that file\n";
    assert_eq!((refused.status.code(), text(&refused.stderr).as_str()), (Some(1), said));
    let output_of = |adapter: &str| scene.system.run(&["capture", "--osa", adapter, "-w", &file]);
    let refused = output_of("OSA2");
    assert!(text(&refused.stderr).contains("may not capture at the adapter OSA2"));
    let neither = scene.system.run(&["capture", "-w", &file]);
    assert_eq!(neither.status.code(), Some(2));
    // One that is killed is forgotten, and the next captures.
    let mut killed = scene.capture(&["-w", &file]);
    scene.wait_for_captures(1);
    killed.0.kill().unwrap();
    killed.0.wait().unwrap();
    scene.wait_for_captures(0);
    let capture = scene.capture(&["-w", &file]);
    scene.wait_for_captures(1);
    scene.adapters.0.kill().unwrap();
    scene.adapters.0.wait().unwrap();
    let ended = output(capture);
    let said = text(&ended.stderr);
    assert!(said.contains("OSA1: the adapter has ended"), "{said}");
    assert!(said.ends_with("0 frames were captured, none was lost\n"), "{said}");
    assert_eq!(ended.status.code(), Some(1));
    // The file is whole.
    assert_eq!(blocks(&std::fs::read(&file).unwrap()).last().unwrap().0, 5);
    // Both remedies are named where both are needed.
    let refused = text(&output(scene.capture(&["-w", &file, "--name", "SPY"])).stderr);
    let right = "again with that file; nobody serves the adapter now: siga up does with that file, or siga osa serve by hand\n";
    assert!(refused.contains("capture = [\"SPY\"]") && refused.ends_with(right), "{refused}");
}
