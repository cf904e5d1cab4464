//! `siga capture`: what it writes is read back, here and by tshark where that is installed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use siga::lan::{Address, Checksum, Lan, LanOptions, Mac, Offload};
use siga::tcpip::{Stack, StackOptions, TcpListener, TcpStream};
use siga::{Guest, Wait};

const SYSTEM: &str = r#"
[[guest]]
name = "*"
[[lan]]
name = "hs0"
capture = ["SNIFFER"]
[[lan.member]]
guest = "A"
vlans = [7]
[[lan.member]]
guest = "B"
vlans = [7]
"#;

/// A host in this process, with a directory of its own, and a member that takes whatever it is sent.
struct Scene {
    directory: PathBuf,
    _host: siga::host::Embedded,
    sender: Lan,
    to: Mac,
    is_over: Arc<AtomicBool>,
    taker: Option<thread::JoinHandle<()>>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(taker) = self.taker.take() {
            let _ = taker.join();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Scene {
    fn start(name: &str) -> Scene {
        let directory = std::env::temp_dir().join(format!("siga-{name}-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("system.toml"), SYSTEM).unwrap();
        let mut system = siga::host::System::read(&directory.join("system.toml")).unwrap();
        system.socket = Some(directory.join("siga.sock"));
        let host = siga::host::Embedded::start(system).unwrap();
        let join = |name: &str| {
            let options = LanOptions { wait: Wait::Block, ..Default::default() };
            Lan::join(Guest::attach_embedded(&host, name).unwrap(), "hs0", &options).unwrap()
        };
        let (mut sender, mut taker) = (join("A"), join("B"));
        let to = taker.mac();
        // The path is there before anything is captured.
        sender.send(Offload::NONE, &frame(to, sender.mac(), &[0x88, 0xb5])).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let ended = is_over.clone();
        let taker = thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let _ = taker.receive_within(Duration::from_millis(5)).unwrap();
            }
        });
        let taker = Some(taker);
        Scene { directory, _host: host, sender, to, is_over, taker }
    }

    fn file(&self, name: &str) -> String {
        self.directory.join(name).to_str().unwrap().to_owned()
    }

    fn capture(&self, arguments: &[&str]) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
        command.args(["capture", "hs0"]).args(arguments).env("SIGA_SOCKET", self.file("siga.sock"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Waits until it captures.
    fn wait_for_capture(&mut self) {
        while !self.sender.members().any(|member| member.captures) {
            assert!(self.sender.receive_within(Duration::from_millis(1)).unwrap().is_none());
        }
    }

    /// Sends a frame, and does what there is to do for paths.
    fn send(&mut self, offload: Offload, body: &[u8]) {
        let frame = frame(self.to, self.sender.mac(), body);
        self.sender.send(offload, &frame).unwrap();
        (0..3).for_each(|_| self.serve());
    }

    /// Lets the sender do what there is to do for paths: what it has sent may wait for one.
    fn serve(&mut self) {
        assert!(self.sender.receive_within(Duration::from_millis(1)).unwrap().is_none());
    }
}

fn frame(to: Mac, from: Mac, body: &[u8]) -> Vec<u8> {
    [&to.0[..], &from.0, body].concat()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The type and the body of each block of a file.
fn blocks(mut file: &[u8]) -> Vec<(u32, &[u8])> {
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes[..4].try_into().unwrap());
    let mut blocks = Vec::new();
    while !file.is_empty() {
        let bytes = number(&file[4..]) as usize;
        assert!(bytes.is_multiple_of(4) && number(&file[bytes - 4..]) as usize == bytes);
        blocks.push((number(file), &file[8..bytes - 4]));
        file = &file[bytes..];
    }
    blocks
}

/// IPv4 and UDP, from port 4660 to 4661, with the sum of the pseudo-header where the checksum is to be.
fn datagram(data: &[u8]) -> (Offload, Vec<u8>) {
    let udp_bytes = (8 + data.len()) as u16;
    let mut packet = vec![0x08, 0x00, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
    packet.extend([10, 1, 0, 1, 10, 1, 0, 2]);
    packet[4..6].copy_from_slice(&(20 + udp_bytes).to_be_bytes());
    let sum = |bytes: &[u8]| -> u32 {
        bytes.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum()
    };
    let folded = |sum: u32| (sum & 0xffff) + (sum >> 16);
    let header = !(folded(folded(sum(&packet[2..]))) as u16);
    packet[12..14].copy_from_slice(&header.to_be_bytes());
    let pseudo = folded(sum(&packet[14..22]) + 17 + u32::from(udp_bytes)) as u16;
    packet.extend([0x12, 0x34, 0x12, 0x35]);
    packet.extend(udp_bytes.to_be_bytes());
    packet.extend(pseudo.to_be_bytes());
    packet.extend(data);
    let checksum = Checksum::Partial { start: 34, at: 6 };
    (Offload { checksum, ..Offload::NONE }, packet)
}

/// Returns the packets that tshark finds in a file. None where it is not installed.
fn tshark(file: &str) -> Option<Vec<String>> {
    let fields = [
        "frame.interface_name",
        "frame.len",
        "frame.cap_len",
        "vlan.id",
        "udp.checksum.status",
        "frame.time_epoch",
    ];
    let mut command = Command::new("tshark");
    command.args(["-n", "-r", file, "-o", "udp.check_checksum:TRUE", "-T", "fields"]);
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

#[test]
fn file_has_members_frames_and_what_was_lost() {
    let mut scene = Scene::start("capture-file");
    let file = scene.file("frames.pcapng");
    let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut capture = scene.capture(&["-w", &file, "--count", "3", "--snap", "100", "--json"]);
    scene.wait_for_capture();
    let (offload, packet) = datagram(b"data");
    scene.send(offload, &packet);
    let tagged = Offload { vlan: Some(7), ..Offload::NONE };
    scene.send(tagged, &[0x88, 0xb5, 1, 2, 3]);
    scene.send(Offload::NONE, &[&[0x88, 0xb5][..], &[9; 986]].concat());
    while capture.try_wait().unwrap().is_none() {
        scene.serve();
    }
    let output = capture.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&summary["lan"], &summary["packets"]), (&"hs0".into(), &3.into()));
    assert_eq!((&summary["lost"], &summary["members"][0]["packets"]), (&0.into(), &3.into()));
    assert_eq!(summary["members"][1]["guest"], "B");

    let bytes = std::fs::read(&file).unwrap();
    let blocks = blocks(&bytes);
    let kinds: Vec<u32> = blocks.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [0x0a0d_0d0a, 1, 1, 6, 6, 6, 5, 5]);
    let packets: Vec<&[u8]> =
        blocks.iter().filter(|(kind, _)| *kind == 6).map(|(_, body)| *body).collect();
    let lengths: Vec<(u8, u8)> = packets.iter().map(|body| (body[12], body[16])).collect();
    assert_eq!(lengths, [(46, 46), (21, 21), (100, 232)], "1000 is 0x3e8");
    // The tag is behind the addresses.
    assert_eq!(packets[1][32..41], [0x81, 0, 0, 7, 0x88, 0xb5, 1, 2, 3]);

    let Some(lines) = tshark(&file) else { return };
    let fields: Vec<Vec<&str>> = lines.iter().map(|line| line.split('\t').collect()).collect();
    let facts: Vec<&[&str]> = fields.iter().map(|fields| &fields[..5]).collect();
    // 1 is a checksum that is good.
    let expected =
        [["A", "46", "46", "", "1"], ["A", "21", "21", "7", ""], ["A", "1000", "100", "", ""]];
    assert_eq!(facts, expected);
    let times: Vec<f64> = fields.iter().map(|fields| fields[5].parse().unwrap()).collect();
    assert!(times.is_sorted() && times[0] >= start.as_secs_f64() - 0.001, "{times:?}");
    assert!(times[2] < start.as_secs_f64() + 100.0, "{times:?}");
}

#[test]
fn signal_ends_it_in_good_order() {
    let mut scene = Scene::start("capture-signal");
    let file = scene.file("frames.pcapng");
    let capture = scene.capture(&["-w", &file]);
    scene.wait_for_capture();
    scene.send(Offload::NONE, &[0x88, 0xb5]);
    // Frames are in the file while the LAN is quiet.
    while blocks(&std::fs::read(&file).unwrap_or_default()).len() < 4 {
        scene.serve();
    }
    // Not SIGINT, which a process started in the background ignores.
    let kill = Command::new("kill").args(["-TERM", &capture.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let output = capture.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let said = "siga: capturing hs0 as SNIFFER; Ctrl-C ends it\nsiga: 1 frames were captured, none was lost\n";
    assert_eq!(text(&output.stderr), said);
    let bytes = std::fs::read(&file).unwrap();
    assert_eq!(blocks(&bytes).last().unwrap().0, 5, "statistics");
}

#[test]
fn pipe_that_is_closed_and_disk_that_is_full_end_it_with_a_sentence() {
    let mut scene = Scene::start("capture-pipe");
    let mut capture = scene.capture(&["-w", "-"]);
    scene.wait_for_capture();
    let mut pipe = capture.stdout.take().unwrap();
    let mut head = [0; 4];
    pipe.read_exact(&mut head).unwrap();
    assert_eq!(head, [0x0a, 0x0d, 0x0d, 0x0a]);
    // Nothing is sent: it hears of the end all the same.
    drop(pipe);
    let lines: Vec<String> =
        BufReader::new(capture.stderr.take().unwrap()).lines().map(Result::unwrap).collect();
    let said = "siga: standard output cannot be written: nobody reads it any more; 0 frames were captured, none was lost";
    assert_eq!(lines[1..], [said]);
    assert_eq!(capture.wait().unwrap().code(), Some(1));

    let output = scene.capture(&["-w", "/dev/full"]).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = "siga: /dev/full cannot be written: No space left on device (os error 28); 0 frames were captured, none was lost";
    assert_eq!(text(&output.stderr).lines().nth(1), Some(said));
}

#[test]
fn guest_that_must_not_capture_is_told_what_to_change() {
    let scene = Scene::start("capture-refused");
    let file = scene.file("frames.pcapng");
    let output = scene.capture(&["-w", &file, "--name", "SPY"]).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = "siga: SPY may not capture in the LAN hs0: the system file must say so: capture = [\"SPY\"]\n";
    assert_eq!(text(&output.stderr), said);
    assert!(!std::fs::exists(&file).unwrap());
    let output = scene.capture(&["-w", "-", "--json"]).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn transfer_of_a_stream_is_captured_in_the_order_of_cause() {
    let mut scene = Scene::start("capture-stream");
    let file = scene.file("stream.pcapng");
    let socket = scene.file("siga.sock");
    let stack = |name: &str| {
        let options = LanOptions { address: Address::Chosen, ..LanOptions::default() };
        let lan = Lan::join(Guest::attach(&socket, name).unwrap(), "hs0", &options).unwrap();
        Stack::new(lan, &StackOptions::default()).unwrap()
    };
    let (server, client) = (stack("SERVER"), stack("CLIENT"));
    let capture = scene.capture(&["-w", &file, "--snap", "100", "--json"]);
    scene.wait_for_capture();
    let at = SocketAddr::new(server.addresses()[0], 80);
    let listener = TcpListener::bind(&server, at).unwrap();
    let sender = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        for _ in 0..200 {
            stream.write_all(&[7; 1 << 20]).unwrap();
        }
        drop(stream);
        server.finish(Duration::from_secs(30)).unwrap();
    });
    let mut stream = TcpStream::connect(&client, at).unwrap();
    let bytes = std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
    assert_eq!(bytes, 200 << 20);
    drop(stream);
    sender.join().unwrap();
    let number = capture.id().to_string();
    assert!(Command::new("kill").args(["-INT", &number]).status().unwrap().success());
    let output = capture.wait_with_output().unwrap();
    let summary: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    assert!(summary["packets"].as_u64().unwrap() > 1000, "{summary}");
    let count = |filter: &str| {
        let output =
            Command::new("tshark").args(["-n", "-r", &file, "-Y", filter]).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).lines().count()
    };
    if tshark(&file).is_some() {
        // An answer that is seen before its cause makes hundreds of segments look as if they had been sent again without need. A few have been: a
        // receiver that has no processor for 2 ms is asked by a tail probe (none on a quiet machine, up to 7 with four of these at once).
        let packets = count("tcp");
        let spurious = count("tcp.analysis.spurious_retransmission");
        assert!(packets > 1000 && spurious <= packets / 100, "{spurious} of {packets}");
    }
}
