//! TCPIP machines in processes of their own: started by a host, killed, and started again.

mod common;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Process, System, text};
use serde_json::Value;
use siga::lan::{Address, Lan, LanOptions};
use siga::tcpip::{ClientOptions, Stack, StackOptions, TcpListener, TcpStream};
use siga::{Guest, Wait};

const LONG: Duration = Duration::from_secs(30);

const FILE: &str = r#"
[[guest]]
name = "CLIENT"
[[guest]]
name = "SERVER"
[[guest]]
name = "STRANGER"
[[lan]]
name = "hs0"
range = "10.1.0.0/24"
members = []
[[tcpip]]
name = "TCPIP"
clients = ["CLIENT", "SERVER"]
wait = "block"
[[tcpip.interface]]
lan = "hs0"
addresses = ["10.1.0.5"]
"#;

fn options() -> ClientOptions {
    ClientOptions { wait: Wait::Block, ..ClientOptions::default() }
}

fn client(socket: &str, name: &str) -> std::io::Result<Stack> {
    Stack::of_machine(Guest::attach(socket, name).unwrap(), "TCPIP", &options())
}

fn line_of(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    line
}

/// The process that is the machine: the only child of the host's threads.
fn machine_of(host: &Child) -> rustix::process::Pid {
    let threads = std::fs::read_dir(format!("/proc/{}/task", host.id())).unwrap();
    let children = threads.map(|thread| {
        let children = thread.unwrap().path().join("children");
        std::fs::read_to_string(children).unwrap_or_default()
    });
    let number = children.collect::<String>().trim().parse().expect("one child");
    rustix::process::Pid::from_raw(number).unwrap()
}

#[test]
fn host_starts_its_machine_and_starts_it_again_when_it_is_killed() {
    let directory = std::env::temp_dir().join(format!("siga-machine-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let (file, socket) = (directory.join("system.toml"), directory.join("siga.sock"));
    std::fs::write(&file, FILE).unwrap();
    let socket = socket.to_str().unwrap().to_owned();
    let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
    command.arg("up").arg(&file).args(["--socket", &socket]).stdout(Stdio::piped());
    let mut host = Process(command.spawn().unwrap());
    assert!(line_of(&mut host.0).contains("listening at"));
    let refused = client(&socket, "STRANGER").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert!(refused.to_string().contains("clients = [..]"), "{refused}");
    let (near, far) = (client(&socket, "CLIENT").unwrap(), client(&socket, "SERVER").unwrap());
    let listener = TcpListener::bind(&far, "10.1.0.5:7").unwrap();
    let mut stream = TcpStream::connect(&near, "10.1.0.5:7").unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    stream.write_all(b"before").unwrap();
    let mut found = [0; 6];
    accepted.read_exact(&mut found).unwrap();
    let query = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
        text(&command.args(words).args(["--socket", &socket]).output().unwrap().stdout)
    };
    let shown: serde_json::Value =
        serde_json::from_str(&query(&["query", "tcpip", "--json"])).unwrap();
    let members = shown["lans"][0]["members"].as_array().unwrap();
    let clients = members[0]["stack"]["clients"].as_array().unwrap();
    let seen: Vec<_> = clients
        .iter()
        .map(|client| (client["guest"].as_str(), client["sockets"].as_u64()))
        .collect();
    assert_eq!(seen, [(Some("CLIENT"), Some(1)), (Some("SERVER"), Some(2))], "{shown}");
    assert_eq!(clients[0]["bytes_in"].as_u64(), Some(6));
    assert_eq!(members[0]["stack"]["machine"], "TCPIP");
    let table = query(&["query", "tcpip"]);
    assert!(table.contains("CLIENT") && table.contains("turns cut"), "{table}");
    let machine = machine_of(&host.0);
    let reader = std::thread::spawn(move || accepted.read(&mut [0; 10]).unwrap_err());
    rustix::process::kill_process(machine, rustix::process::Signal::KILL).unwrap();
    assert_eq!(reader.join().unwrap().kind(), ErrorKind::ConnectionAborted);
    assert_eq!(stream.read(&mut found).unwrap_err().kind(), ErrorKind::ConnectionAborted);
    let begun = Instant::now();
    while let Err(error) = near.attach_again(&options()) {
        assert!(begun.elapsed() < LONG, "{error}");
        std::thread::yield_now();
    }
    far.attach_again(&options()).unwrap();
    let listener = TcpListener::bind(&far, "10.1.0.5:7").unwrap();
    let mut stream = TcpStream::connect(&near, "10.1.0.5:7").unwrap();
    stream.write_all(b"after").unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    accepted.read_exact(&mut found[..5]).unwrap();
    assert_eq!(&found[..5], b"after");
    drop(host);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn machine_serves_by_the_words_of_its_command_and_ends_with_a_signal() {
    let system = System::start("machine-words");
    let mut command = system.command(&["tcpip", "serve", "tcpip", "hs0:10.1.0.77", "--json"]);
    let mut machine = Process(command.stdout(Stdio::piped()).spawn().unwrap());
    let up = line_of(&mut machine.0);
    assert!(up.contains(r#""name":"TCPIP""#) && up.contains("10.1.0.77"), "{up}");
    let socket = system.file("siga.sock");
    let stack = client(&socket, "CLIENT").unwrap();
    assert_eq!(stack.addresses(), ["10.1.0.77".parse::<std::net::IpAddr>().unwrap()]);
    let pid = rustix::process::Pid::from_child(&machine.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(machine.0.wait().unwrap().success());
    let refused = TcpListener::bind(&stack, "0.0.0.0:0").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionAborted);
}

#[test]
fn machine_at_lines_alone_has_routes_over_them_and_says_when_its_host_ends_and_comes_again() {
    let system = System::start("machine-line");
    let socket = system.file("other.sock");
    let start_host = || {
        let mut host = system.command(&["up", "--without-outside", "--socket", &socket]);
        let mut host = Process(host.stdout(Stdio::piped()).spawn().unwrap());
        assert!(line_of(&mut host.0).contains("listening at"));
        host
    };
    let host = start_host();
    let serve = |name: &str, line: &str, to: &str| {
        let words = ["tcpip", "serve", name, line, to, "--wait=block", "--socket", &socket];
        let mut command = system.command(&words);
        let mut machine = Process(command.stderr(Stdio::piped()).spawn().unwrap());
        let mut said = BufReader::new(machine.0.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert!(line.starts_with(&format!("{name} serves sockets: ")), "{line}");
        (machine, said)
    };
    let near =
        serve("NEAR", "--line=line0=LEFT:10.9.0.1,RIGHT:10.9.0.2", "--to=10.1.0.0/24=10.9.0.2");
    let (_far, mut said) =
        serve("FAR", "--line=line0=RIGHT:10.9.0.2,LEFT:10.9.0.1", "--to=10.2.0.0/24=10.9.0.1");
    let taken = system.run(&["tcpip", "serve", "near", "hs0", "--socket", &socket]);
    assert_eq!(taken.status.code(), Some(1));
    let why = format!("siga: NEAR is attached already by the process {}: ", near.0.0.id());
    let error = text(&taken.stderr);
    assert!(error.starts_with(&why) && error.contains("--without-tcpip"), "{error}");
    let (one, other) = (machine_client(&socket, "A", "NEAR"), machine_client(&socket, "B", "FAR"));
    let listener = TcpListener::bind(&other, "10.9.0.2:7").unwrap();
    let mut stream = TcpStream::connect(&one, "10.9.0.2:7").unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    stream.write_all(b"over the line").unwrap();
    accepted.read_exact(&mut [0; 13]).unwrap();
    let mut next = || {
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        line
    };
    drop(host);
    let gone = next();
    let _host = start_host();
    assert_eq!(
        [gone, next()],
        [
            "siga: the host is gone: clients go on, and new ones come with the next host\n",
            "siga: there is a host again\n"
        ]
    );
    stream.write_all(b"and on").unwrap();
    accepted.read_exact(&mut [0; 6]).unwrap();
    // Both show themselves to the next host, as they did to the first, and their routes, whose gateways are at the other end of the line.
    let begun = Instant::now();
    loop {
        let shown = system.run(&["query", "tcpip", "--json", "--socket", &socket]).stdout;
        let shown: Value = serde_json::from_slice(&shown).unwrap();
        let has_route = |machine: &str, to: &str, via: &str| {
            let mut stacks = shown["stacks"].as_array().unwrap().iter().map(|of| &of["stack"]);
            let stack = stacks.find(|stack| stack["machine"] == machine);
            let routes = stack.and_then(|stack| stack["routes"].as_array());
            routes
                .into_iter()
                .flatten()
                .any(|route| route["to"] == to && route["via"] == via && route["is_there"] == true)
        };
        if has_route("NEAR", "10.1.0.0/24", "10.9.0.2")
            && has_route("FAR", "10.2.0.0/24", "10.9.0.1")
        {
            return;
        }
        assert!(begun.elapsed() < LONG, "{shown}");
    }
}

fn machine_client(socket: &str, name: &str, machine: &str) -> Stack {
    Stack::of_machine(Guest::attach(socket, name).unwrap(), machine, &options()).unwrap()
}

/// A machine by the words of its command, which is there.
fn serve(system: &System, more: &[&str]) -> Process {
    let words = [&["tcpip", "serve", "TCPIP", "hs0:10.1.0.77", "--wait=block", "--json"], more];
    let mut command = system.command(&words.concat());
    let mut machine = Process(command.stdout(Stdio::piped()).spawn().unwrap());
    assert!(line_of(&mut machine.0).contains("10.1.0.77"));
    machine
}

/// The driver of the machine's LAN, as the query shows it when it is `so`: a machine shows itself up to 20 times a second.
fn shown(system: &System, so: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let report = text(&system.run(&["query", "tcpip", "--json"]).stdout);
        let report: Value = serde_json::from_str(&report).unwrap();
        let members = report["lans"][0]["members"].as_array().unwrap();
        let of_machine = members
            .iter()
            .find(|member| member["addresses"][0] == "10.1.0.77")
            .map(|member| &member["stack"]["drivers"]);
        let drivers = of_machine.and_then(Value::as_array).cloned().unwrap_or_default();
        if let [driver] = &drivers[..]
            && so(driver)
        {
            return driver.clone();
        }
        assert!(begun.elapsed() < LONG, "{report}");
    }
}

/// Bytes that say where they are.
fn numbered(at: usize) -> u8 {
    (at * 31 + at / 251) as u8
}

#[test]
fn driver_of_a_running_machine_moves_while_a_stream_goes_on() {
    let system = System::start("machine-driver");
    let socket = system.file("siga.sock");
    let _machine = serve(&system, &[]);
    let driver = shown(&system, |_| true);
    let names: Vec<&str> = driver.as_object().unwrap().keys().map(String::as_str).collect();
    let mut wanted = [
        "name",
        "lan",
        "processor",
        "polls",
        "polls_empty",
        "frames_in",
        "frames_out",
        "frames_waited",
        "frames_dropped",
        "sleeps",
        "processor_ns",
        "takeovers",
        "moves",
    ];
    wanted.sort_unstable();
    assert_eq!(names, wanted);
    assert_eq!((&driver["name"], &driver["lan"]), (&Value::from("hs0"), &Value::from(0)));
    assert_eq!((&driver["processor"], &driver["moves"]), (&Value::Null, &Value::from(0)));

    let lan = LanOptions { address: Address::Chosen, wait: Wait::Block, ..LanOptions::default() };
    let lan = Lan::join(Guest::attach(&socket, "FAR").unwrap(), "hs0", &lan).unwrap();
    let far = Stack::new(lan, &StackOptions::default()).unwrap();
    let listener = TcpListener::bind(&far, "0.0.0.0:7").unwrap();
    let to = (far.addresses()[0], 7);
    let near = client(&socket, "CLIENT").unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let until = is_over.clone();
    let sending = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(&near, to).unwrap();
        let mut sent = 0;
        while !until.load(Ordering::Relaxed) {
            let bytes: Vec<u8> = (sent..sent + 10_000).map(numbered).collect();
            stream.write_all(&bytes).unwrap();
            sent += bytes.len();
        }
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
        sent
    });
    let (mut stream, _) = listener.accept().unwrap();
    let receiving = std::thread::spawn(move || {
        let (mut received, mut buffer) = (0, vec![0; 1 << 16]);
        loop {
            let bytes = stream.read(&mut buffer).unwrap();
            if bytes == 0 {
                return received;
            }
            for byte in &buffer[..bytes] {
                assert_eq!(*byte, numbered(received), "byte {received}");
                received += 1;
            }
        }
    });

    let processors = os::processor::allowed();
    for turn in 0..8 {
        let number = processors[turn % processors.len()];
        let set =
            system.run(&["set", "tcpip", "tcpip", "driver", "hs0", "cpu", &number.to_string()]);
        assert_eq!(
            (text(&set.stdout), text(&set.stderr)),
            (format!("the driver of hs0 at TCPIP runs on processor {number}\n"), String::new())
        );
        let frames = shown(&system, |driver| driver["processor"] == number);
        let frames = frames["frames_out"].as_u64();
        shown(&system, |driver| driver["frames_out"].as_u64() > frames);
        if turn == 0 {
            let table = text(&system.run(&["query", "tcpip"]).stdout);
            let is_shown = |line: &str| line.contains("hs0") && line.contains("processor");
            assert!(table.contains("frames in/s") && table.lines().any(is_shown), "{table}");
        }
        let set = system.run(&["set", "tcpip", "TCPIP", "driver", "hs0", "inline", "--json"]);
        assert_eq!(
            (text(&set.stdout), text(&set.stderr)),
            (
                "{\"machine\":\"TCPIP\",\"lan\":\"hs0\",\"processor\":null}\n".to_owned(),
                String::new()
            )
        );
    }
    let driver = shown(&system, |driver| driver["moves"] == 16);
    let count = |what: &str| driver[what].as_u64().unwrap();
    assert!(count("frames_in") > 0 && count("processor_ns") > 0, "{driver}");
    assert!(count("polls") >= count("polls_empty"), "{driver}");
    assert_eq!((count("takeovers"), count("frames_dropped")), (0, 0));
    let table = text(&system.run(&["query", "tcpip"]).stdout);
    assert!(table.lines().any(|line| line.contains("hs0") && line.contains("inline")), "{table}");
    is_over.store(true, Ordering::Relaxed);
    let received = receiving.join().unwrap();
    drop(listener);
    assert_eq!((sending.join().unwrap(), received), (received, received));
}

#[test]
fn driver_begins_where_the_words_say_and_without_its_processor_inline() {
    let system = System::start("machine-begin");
    let number = os::processor::allowed()[0];
    let machine = serve(&system, &[&format!("--driver=hs0={number}")]);
    shown(&system, |driver| driver["processor"] == number);
    // No system has so many.
    for beyond in ["1000000", "4294967295"] {
        let set = system.run(&["set", "tcpip", "TCPIP", "driver", "hs0", "cpu", beyond]);
        assert_eq!(set.status.code(), Some(0));
        assert_eq!(text(&set.stdout), "the driver of hs0 at TCPIP runs inline\n");
        let base = "the driver of hs0 runs inline, on the processor of the machine";
        let warning = format!("siga: warning: there is no processor {beyond}: {base}\n");
        assert_eq!(text(&set.stderr), warning);
        shown(&system, |driver| driver["processor"].is_null());
    }
    drop(machine);
    let mut command = system.command(&["tcpip", "serve", "TCPIP", "hs0:10.1.0.77", "--json"]);
    command.arg("--driver=hs0=1000000").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut machine = Process(command.spawn().unwrap());
    line_of(&mut machine.0);
    let mut said = String::new();
    BufReader::new(machine.0.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    let inline = "the driver of hs0 runs inline, on the processor of the machine";
    assert_eq!(said, format!("siga: warning: there is no processor 1000000: {inline}\n"));
}

#[test]
fn orders_that_cannot_be_carried_out_say_why() {
    let system = System::start("machine-orders");
    let _machine = serve(&system, &[]);
    let _other = Guest::attach(system.file("siga.sock"), "OTHER").unwrap();
    let set = |words: &[&str]| system.run(&[&["set", "tcpip"], words].concat());
    for (words, code, says) in [
        (
            &["TCPIP", "driver", "hs9", "inline"][..],
            1,
            "siga: TCPIP: the driver of hs9: the TCPIP machine is at no LAN of this name\n",
        ),
        (
            &["NOBODY", "driver", "hs0", "cpu", "0"],
            1,
            "siga: NOBODY: the driver of hs0: no guest of this name is attached\n",
        ),
        (
            &["OTHER", "driver", "hs0", "inline"],
            1,
            "siga: OTHER: the driver of hs0: the guest of this name is no TCPIP machine, or one of an older build\n",
        ),
        (
            &["TCPIP", "driver", "hs0", "inline", "1"],
            2,
            "siga: inline: must be without a processor's number\n",
        ),
        (&["TCPIP", "drivr", "hs0", "inline"], 2, "siga: WHAT drivr: did you mean driver?\n"),
        (&["TCPIP", "driver", "hs0", "cpu"], 2, "NUMBER"),
        (&["TCPIP", "driver", "hs0", "cpu", "-1"], 2, "-1"),
        (&["TCPIP", "driver", "HS0", "inline"], 2, "HS0"),
        (&["TOO-LONG-A-NAME", "driver", "hs0", "inline"], 2, "name"),
    ] {
        let run = set(words);
        assert_eq!(run.status.code(), Some(code), "{words:?}: {}", text(&run.stderr));
        assert!(text(&run.stderr).contains(says), "{words:?}: {}", text(&run.stderr));
        assert_eq!(text(&run.stdout), "");
    }
    shown(&system, |driver| driver["processor"].is_null() && driver["moves"] == 0);
}

#[test]
fn wrong_use_says_what_would_be_right() {
    let system = System::start("machine-wrong");
    let file = system.file("system.toml");
    std::fs::write(&file, FILE).unwrap();
    for (words, code, says) in [
        (
            &["tcpip", "serve", "NOBODY", "--system", &file][..],
            2,
            "there is no [[tcpip]] of the name NOBODY",
        ),
        (&["tcpip", "serve", "TCPIP"], 2, "<LAN[:ADDRESS]>..."),
        (&["tcpip", "serve", "TCPIP", "hs9"], 1, "has no LAN of this name"),
        (&["tcpip", "serve", "TCPIP", "HS0"], 1, "\"HS0\" is no name of a LAN"),
        (
            &["tcpip", "serve", "TCPIP", "hs0:10.99.0.1"],
            1,
            "name one in its range, or leave the choice to the host; its range is",
        ),
        (
            &["tcpip", "serve", "LEFT", "--line=line0=LEFT:10.9.0.1,RIGHT:10.9.0.2"],
            2,
            "--line line0: LEFT is the machine itself: must be another guest",
        ),
        (
            &["tcpip", "serve", "TCPIP", "--line=line0=LEFT:10.9.0.1,RIGHT:10.9.0.2,ctc"],
            2,
            "--line line0: the host serves no adapter for a line of this name",
        ),
        (&["tcpip", "serve", "TOO-LONG-A-NAME", "hs0"], 2, "name"),
        (&["tcpip", "serve", "TCPIP", "hs0", "--driver=hs0"], 2, "must be like hs0=1"),
        (&["tcpip", "serve", "TCPIP", "hs0", "--driver=hs0=x"], 2, "must be like hs0=1"),
        (
            &["tcpip", "serve", "TCPIP", "hs0", "--driver=hs1=1"],
            2,
            "--driver hs1=1: must be of one of the machine's LANs",
        ),
        (
            &["tcpip", "serve", "TCPIP", "hs0", "--driver=hs0=1", "--driver=hs0=0"],
            2,
            "--driver hs0=0: must be the only one of this LAN",
        ),
    ] {
        let run = system.run(words);
        assert_eq!(run.status.code(), Some(code), "{words:?}: {}", text(&run.stderr));
        assert!(text(&run.stderr).contains(says), "{words:?}: {}", text(&run.stderr));
    }
}
