//! A distributed address in processes: TCPIP machines of which some are killed.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use siga::lan::{Address, Lan, LanOptions};
use siga::tcpip::{ClientOptions, Stack, StackOptions, TcpListener, TcpStream};
use siga::{Guest, Wait};

/// Longer than anything takes, on any machine.
const LONG: Duration = Duration::from_secs(60);

const AT: &str = "10.1.0.100:7";

/// A system with these machines, of which the first two may distribute.
fn file(targets: &[&str]) -> String {
    let mut file = String::from(
        "[[guest]]\nname = \"USER\"\n[[guest]]\nname = \"APP*\"\n[[lan]]\nname = \"hs0\"\nrange = \"10.1.0.0/24\"\nmembers = [\"USER\"]\n",
    );
    let names = targets.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
    let dvipa = format!(
        "dvipa = [{{ address = \"10.1.0.100\", targets = [{names}], backup = [\"BACK\"], spread = \"active\" }}]\n"
    );
    for (at, name) in ["DIST", "BACK"].iter().chain(targets).enumerate() {
        let dvipa = if at == 0 { &dvipa } else { "" };
        file.push_str(&format!(
            "[[tcpip]]\nname = \"{name}\"\nwait = \"block\"\n{dvipa}[[tcpip.interface]]\nlan = \"hs0\"\naddresses = [\"10.1.0.{}\"]\n",
            10 + at
        ));
    }
    file
}

/// A process that goes when we go.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Plex {
    directory: std::path::PathBuf,
    socket: String,
    machines: BTreeMap<String, Process>,
    host: Option<Process>,
    /// Programs that were started so far. Each has a name of its own.
    programs: Cell<usize>,
}

impl Plex {
    fn start(name: &str, targets: &[&str]) -> Plex {
        let directory = std::env::temp_dir().join(format!("siga-{name}-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let path = directory.join("system.toml");
        std::fs::write(&path, file(targets)).unwrap();
        let socket = directory.join("siga.sock").to_str().unwrap().to_owned();
        let (machines, host) = (BTreeMap::new(), None);
        let mut plex = Plex { directory, socket, machines, host, programs: Cell::new(0) };
        let words = ["up", path.to_str().unwrap(), "--without-tcpip"];
        plex.host = Some(plex.run(&words, "listening at"));
        for name in ["DIST", "BACK"].iter().chain(targets) {
            plex.serve(name);
        }
        plex
    }

    /// Starts a process, and waits for its first line.
    fn run(&self, words: &[&str], says: &str) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
        command.args(words).args(["--socket", &self.socket]).stdout(Stdio::piped());
        let mut process = Process(command.spawn().unwrap());
        let mut line = String::new();
        BufReader::new(process.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains(says), "{words:?}: {line}");
        process
    }

    fn serve(&mut self, name: &str) {
        let file = format!("--system={}", self.directory.join("system.toml").display());
        let process = self.run(&["tcpip", "serve", name, &file, "--json"], name);
        self.machines.insert(name.to_owned(), process);
    }

    /// Kills a machine at any instruction.
    fn kill(&mut self, name: &str) {
        let mut process = self.machines.remove(name).unwrap();
        process.0.kill().unwrap();
        process.0.wait().unwrap();
    }

    fn query(&self, words: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
        command.arg("query").args(words).args(["--socket", &self.socket]);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    }

    /// The part of each machine in the address, and what it shows of it.
    fn shown(&self) -> BTreeMap<String, Value> {
        let report: Value = serde_json::from_str(&self.query(&["tcpip", "--json"])).unwrap();
        let members = report["lans"][0]["members"].as_array().unwrap();
        let of = |member: &Value| {
            let stack = &member["stack"];
            let name = stack["machine"].as_str()?.to_owned();
            Some((name, stack["distributed"][0].clone()))
        };
        members.iter().filter_map(of).collect()
    }

    fn until(&self, what: &str, so: impl Fn(&BTreeMap<String, Value>) -> bool) {
        let begun = Instant::now();
        loop {
            let shown = self.shown();
            if so(&shown) {
                return;
            }
            assert!(begun.elapsed() < LONG, "{what}: {shown:?}");
            thread::yield_now();
        }
    }

    /// A program that echoes at a target, each connection behind the number of the target.
    fn echo(&self, number: usize, target: &str) {
        self.programs.set(self.programs.get() + 1);
        let name = format!("APP{}", self.programs.get());
        let guest = Guest::attach(&self.socket, &name).unwrap();
        let options = ClientOptions { wait: Wait::Block, ..ClientOptions::default() };
        let stack = Stack::of_machine(guest, target, &options).unwrap();
        let listener = TcpListener::bind(&stack, AT).unwrap();
        thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                thread::spawn(move || {
                    let _ = stream.write_all(&[number as u8]);
                    let mut bytes = [0; 100];
                    while let Ok(count @ 1..) = stream.read(&mut bytes) {
                        if stream.write_all(&bytes[..count]).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(stack);
        });
    }
}

impl Drop for Plex {
    fn drop(&mut self) {
        self.machines.clear();
        self.host = None;
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A connection, and the number of its target.
struct Talk {
    stream: TcpStream,
    target: u8,
}

impl Talk {
    /// Asks until there is a connection.
    fn open(stack: &Stack) -> Talk {
        let begun = Instant::now();
        loop {
            let opened = TcpStream::connect(stack, AT).and_then(|mut stream| {
                stream.set_read_timeout(Some(LONG))?;
                let mut target = [0];
                stream.read_exact(&mut target)?;
                Ok(Talk { stream, target: target[0] })
            });
            match opened {
                Ok(talk) => return talk,
                Err(error) => assert!(begun.elapsed() < LONG, "no connection: {error}"),
            }
            thread::yield_now();
        }
    }

    /// Has a byte echoed.
    fn goes_on(&mut self, byte: u8) -> std::io::Result<()> {
        self.stream.write_all(&[byte])?;
        let mut found = [0];
        self.stream.read_exact(&mut found)?;
        assert_eq!(found, [byte]);
        Ok(())
    }
}

fn all_go_on(talks: &mut [Talk], byte: u8) {
    for talk in talks {
        let target = talk.target;
        talk.goes_on(byte).unwrap_or_else(|error| panic!("of target {target}: {error}"));
    }
}

/// How many of each are killed.
fn kills() -> usize {
    std::env::var("SIGA_DISTRIBUTOR_KILLS").ok().map_or(1, |text| text.parse().expect("a number"))
}

#[test]
fn connections_of_others_outlive_a_target_and_all_outlive_the_distributor() {
    let targets = ["WEB1", "WEB2", "WEB3"];
    let mut plex = Plex::start("distributor", &targets);
    for (number, target) in targets.iter().enumerate() {
        plex.echo(number + 1, target);
    }
    let guest = Guest::attach(&plex.socket, "USER").unwrap();
    let options =
        LanOptions { address: Address::Chosen, wait: Wait::Block, ..LanOptions::default() };
    let lan = Lan::join(guest, "hs0", &options).unwrap();
    let stack = Stack::new(lan, &StackOptions::default()).unwrap();
    plex.until("all are there", |shown| {
        let dist = &shown["DIST"];
        let there = |target: &Value| target["is_there"] == true;
        dist["role"] == "distributes" && dist["targets"].as_array().unwrap().iter().all(there)
    });
    let mut talks: Vec<Talk> = (0..12).map(|_| Talk::open(&stack)).collect();
    all_go_on(&mut talks, 1);
    for number in 1..=3 {
        assert!(talks.iter().any(|talk| talk.target == number), "none at target {number}");
    }
    plex.until("counts", |shown| {
        let connections = |of: &Value| of["connections"].as_u64().unwrap();
        let all = shown["DIST"]["targets"].as_array().unwrap().iter();
        let packets = all.clone().all(|of| of["packets"].as_u64().unwrap() > 0);
        packets && all.map(connections).sum::<u64>() == 12
    });
    plex.until("a target shows itself", |shown| shown["WEB1"]["role"] == "target");
    let table = plex.query(&["tcpip"]);
    assert!(table.contains("distributed address") && table.contains("3 of 3"), "{table}");
    // A target alone spreads nothing, and hands nothing on.
    let rows: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    let address = AT.split(':').next().unwrap();
    assert!(rows.contains(&vec!["WEB1", address, "target", "-", "-", "-", "-"]), "{table}");
    let of_target =
        |row: &&Vec<&str>| row.starts_with(&["WEB1", address]) && row.get(3) == Some(&"yes");
    let row = rows.iter().find(of_target).unwrap_or_else(|| panic!("no target: {table}"));
    assert!(row[4].parse::<u32>().is_ok() && row[5..] == ["-", "-"], "{table}");
    let mut distributors = ["DIST", "BACK"];
    for round in 0..kills() {
        let victim = round % 3;
        plex.kill(targets[victim]);
        let begun = Instant::now();
        let new = Talk::open(&stack);
        let elapsed = begun.elapsed();
        assert_ne!(usize::from(new.target), victim + 1);
        eprintln!("round {round}: a connection {elapsed:?} after the death of a target");
        let number = victim as u8 + 1;
        let lost = talks.extract_if(.., |talk| talk.target == number);
        for mut talk in lost.collect::<Vec<_>>() {
            let error = talk.goes_on(2).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
        }
        all_go_on(&mut talks, 3);
        talks.push(new);
        plex.serve(targets[victim]);
        plex.echo(usize::from(number), targets[victim]);

        let [victim, next] = distributors;
        plex.kill(victim);
        let begun = Instant::now();
        let new = Talk::open(&stack);
        let elapsed = begun.elapsed();
        eprintln!("round {round}: a connection {elapsed:?} after the death of the distributor");
        talks.push(new);
        all_go_on(&mut talks, 4);
        plex.until("the backup distributes", |shown| shown[next]["role"] == "distributes");
        plex.serve(victim);
        plex.until("it is a backup", |shown| {
            shown.get(victim).is_some_and(|of| of["role"] == "backup")
        });
        all_go_on(&mut talks, 5);
        while talks.len() < 12 {
            talks.push(Talk::open(&stack));
        }
        distributors = [next, victim];
    }
}
