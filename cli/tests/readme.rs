//! The README, line by line: every command of its blocks runs as it stands there, as root and as a user without rights, in namespaces
//! of its own. Its snippets of Rust are those of an example, which runs too.

#[path = "common/lacking.rs"]
mod lacking;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use lacking::{has_program, skip};

/// Seconds after which a command is taken to hang.
const TIME: &str = "120";

/// How a line is run.
enum Run {
    /// It lasts; the next line is for when it has printed this.
    Lasts(&'static str),
    /// It lasts; the next line is for when the guest is there.
    Attaches(&'static str),
    /// It ends well, and prints this among other things.
    Ends(&'static str),
    /// It ends well after minutes: in the long form of the tests alone.
    EndsLate(&'static str),
    /// It is no line of the README, and ends well, and prints this: what the lines before it have brought about.
    Shows(&'static str),
    /// It is no line of the README, and lasts once it has printed this.
    Helps(&'static str),
    /// It is not run, for this reason.
    Not(&'static str),
}

use Run::{Attaches, Ends, EndsLate, Helps, Lasts, Not, Shows};

/// The blocks of commands, in the order of the README, with what shows that they work.
const SCENES: &[&[(&str, Run)]] = &[
    &[
        ("cargo run --release -- lab run", EndsLate("siga")),
        ("./test", Not("it is what runs this test")),
    ],
    &[
        ("siga up systems/two-guests.toml", Lasts("listening at ")),
        ("siga receive SERVER > copy.iso", Attaches("SERVER")),
        ("siga send CLIENT SERVER < big.iso", Ends("bytes delivered to SERVER")),
        ("cmp big.iso copy.iso && echo same", Shows("same")),
        ("siga query", Shows("no guests")),
        ("siga top --count 1 --seconds 0.05", Shows("0 guests, 0 paths")),
        ("siga up --check systems/two-guests.toml", Shows("2 guests, 0 LANs, 0 volumes")),
    ],
    &[
        ("siga up", Lasts("listening at ")),
        ("siga run --name web -- python3 -m http.server 80", Lasts("Serving HTTP")),
        ("siga run -- curl http://web/", Ends("Directory listing")),
        ("siga join --pid PID", Lasts("is on the LAN hs0")),
        ("siga forward 127.0.0.1:8080 hs0 web:80", Lasts("forwards 127.0.0.1:8080")),
        ("curl http://127.0.0.1:8080/", Shows("Directory listing")),
        ("python3 -m http.server 8000", Helps("Serving HTTP")),
        ("siga forward --from hs0:10.1.0.9:80 127.0.0.1:8000", Lasts("forwards 10.1.0.9:80")),
        ("siga run -- curl http://10.1.0.9/", Shows("Directory listing")),
        ("siga capture hs0 -w frames.pcapng", Lasts("capturing hs0")),
        ("siga query lan", Ends("WEB")),
    ],
    &[
        ("siga up systems/two-lans.toml", Lasts("listening at ")),
        ("siga route hs0:10.1.0.1 hs1:10.2.0.1", Lasts("passing packets on")),
        (
            "siga run --lan hs1 --address 10.2.0.2 --gateway 10.2.0.1 -- python3 -m http.server 80",
            Lasts("Serving HTTP"),
        ),
        (
            "siga run --lan hs0 --gateway 10.1.0.1 -- curl http://10.2.0.2/",
            Ends("Directory listing"),
        ),
    ],
    &[
        ("siga volume create /tmp/alone1.ckd --name ALONE1", Ends("ALONE1")),
        ("siga volume create /tmp/parts1.ckd --name PARTS1", Ends("PARTS1")),
        ("siga up systems/disks.toml", Lasts("listening at ")),
        (
            "cargo run --release --package siga --example random_reads -- --guest ALICE 0200",
            Ends("reads a second"),
        ),
        ("siga query dasd channel", Ends("ALONE1")),
    ],
    &[
        ("siga up systems/resources.toml", Lasts("listening at ")),
        ("siga identify CLERK UPPER -- tr a-z A-Z", Lasts("CLERK manages UPPER")),
        ("siga query resource iucv", Ends("UPPER")),
    ],
];

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The blocks of the README that are in a language, by lines.
fn blocks(language: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(top().join("README.md")).unwrap();
    let head = format!("```{language}");
    let (mut blocks, mut inside) = (Vec::new(), false);
    for line in text.lines() {
        if line == head {
            inside = true;
            blocks.push(Vec::new());
        } else if line.starts_with("```") {
            inside = false;
        } else if inside {
            blocks.last_mut().expect("inside of one").push(line.to_owned());
        }
    }
    blocks
}

#[test]
fn every_line_of_a_block_is_run() {
    let of_readme: Vec<String> = blocks("sh")
        .into_iter()
        .flatten()
        .map(|line| line.split(" #").next().unwrap().trim().to_owned())
        .collect();
    let is_of_readme = |run: &Run| !matches!(run, Shows(_) | Helps(_));
    let has_reason = |run: &Run| !matches!(run, Not(""));
    assert!(SCENES.iter().copied().flatten().all(|(_, run)| has_reason(run)));
    let lines = SCENES.iter().copied().flatten();
    let run: Vec<&str> =
        lines.filter(|(_, run)| is_of_readme(run)).map(|(line, _)| *line).collect();
    assert_eq!(of_readme, run);
}

/// Comments may stand in columns, and a long line may be broken.
fn without_spaces(lines: &[String]) -> String {
    lines.iter().flat_map(|line| line.chars()).filter(|letter| !letter.is_whitespace()).collect()
}

#[test]
fn snippets_are_those_of_the_example() {
    let example = fs::read_to_string(top().join("siga/examples/readme.rs")).unwrap();
    let example = without_spaces(&[example]);
    let snippets = blocks("rust");
    assert_eq!(snippets.len(), 4);
    for snippet in snippets {
        assert!(example.contains(&without_spaces(&snippet)), "{}", snippet.join("\n"));
    }
}

/// A process in a mount, a network and a process namespace of its own; all that is in there ends with it.
struct Place {
    holder: Child,
    /// The first process inside, as it is called outside.
    inside: String,
    /// What is `/tmp` there.
    folder: PathBuf,
    user: User,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum User {
    Root,
    Nobody,
}

/// Prepares the namespaces: an empty `/run`, a device for networks that everybody may open, and the folder as `/tmp`.
const SET_UP: &str = "set -e
mount -t tmpfs run /run
mkdir -m 777 /run/user
mknod -m 666 /run/tun c 10 200
mount --bind /run/tun /dev/net/tun
mount --bind \"$0\" /tmp
chown -R \"$1\" /tmp
ip link set lo up
echo ready
exec sleep infinity";

impl Place {
    /// None, and a word about it, if this user may not make one, or a program is not installed.
    fn make(user: User, scene: usize) -> Option<Place> {
        let test = format!("readme, scene {scene} as {user:?}");
        for (program, package) in [
            ("unshare", "util-linux"),
            ("setpriv", "util-linux"),
            ("ip", "iproute2"),
            ("python3", "python3"),
            ("curl", "curl"),
        ] {
            if !has_program(&test, program, package) {
                return None;
            }
        }
        let folder = format!("siga-readme-{scene}-{user:?}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir_all(folder.join("work/systems")).unwrap();
        for file in fs::read_dir(top().join("systems")).unwrap().map(Result::unwrap) {
            fs::copy(file.path(), folder.join("work/systems").join(file.file_name())).unwrap();
        }
        // A user without rights may not reach the folder in which it was built.
        fs::create_dir(folder.join("bin")).unwrap();
        fs::copy(env!("CARGO_BIN_EXE_siga"), folder.join("bin/siga")).unwrap();
        let image: Vec<u8> = (0..3_000_000_u32).map(|at| (at * 31 + at / 4096) as u8).collect();
        fs::write(folder.join("work/big.iso"), image).unwrap();
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        unshare.args(["sh", "-c", SET_UP]).arg(&folder);
        unshare.arg(if user == User::Root { "0:0" } else { "65534:65534" });
        let mut holder = unshare.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(holder.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        if line != "ready\n" {
            let mut why = String::new();
            holder.stderr.take().unwrap().read_to_string(&mut why).unwrap();
            let _ = holder.wait();
            let _ = fs::remove_dir_all(folder);
            skip(&test, &format!("no namespaces: {}", why.trim()));
            return None;
        }
        let number = holder.id();
        let children = format!("/proc/{number}/task/{number}/children");
        let inside = fs::read_to_string(children).unwrap().trim().to_owned();
        Some(Place { holder, inside, folder, user })
    }

    /// A line of a shell inside, with standard output and errors in one stream.
    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.inside, "--mount", "--net", "--pid"]);
        if self.user == User::Nobody {
            command.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
        }
        let path = std::env::var("PATH").unwrap_or_default();
        command.args(["env", "XDG_RUNTIME_DIR=/run/user", "HOME=/tmp", "PYTHONUNBUFFERED=1"]);
        command.arg(format!("PATH=/tmp/bin:{path}"));
        command.args(["timeout", TIME, "sh", "-c"]);
        command.arg(format!("cd /tmp/work && {{ {line}; }} 2>&1"));
        command.env_remove("SIGA_SOCKET").stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }

    /// Runs a line to its end.
    fn end(&self, line: &str, shows: &str) {
        let output = self.command(line).output().unwrap();
        let said = text(&output.stdout);
        assert!(output.status.success() && said.contains(shows), "{line}:\n{said}");
    }

    /// Starts a line that lasts, and returns what it has printed when it has printed this.
    fn begin(&self, line: &str, shows: &str) -> (Lasting, String) {
        let mut process = self.command(line).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (mut lasting, mut said) = (Lasting { process, output }, String::new());
        while !said.contains(shows) {
            let count = lasting.output.read_line(&mut said).unwrap();
            assert!(count > 0, "{line} has ended:\n{said}");
        }
        (lasting, said)
    }
}

/// A command that goes on, and the reader of what it prints: a reader that is gone would end it.
struct Lasting {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Drop for Lasting {
    fn drop(&mut self) {
        // What is in the namespaces ends with them.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// An example of the package `siga`, as `cargo test` of the workspace builds it: then nothing is left to build. One from another time
/// may speak to no host of today.
fn example(name: &str) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--workspace", "--profile", "test", "--example", name]);
    assert!(cargo.current_dir(top()).status().unwrap().success());
    Path::new(env!("CARGO_BIN_EXE_siga")).parent().unwrap().join("examples").join(name)
}

/// The example that a line runs, and its arguments.
fn example_of(line: &str) -> Option<(&str, &str)> {
    line.split_once(" --example ")?.1.split_once(" -- ")
}

/// A line as it is run: what was built is not built again, and the container has a number.
fn as_run(place: &Place, line: &str, lasting: &mut Vec<Lasting>) -> String {
    if let Some((name, arguments)) = example_of(line) {
        return format!("{name} {arguments}");
    }
    if !line.contains("PID") {
        return line.replace("cargo run --release --", "siga");
    }
    // A container has a network of its own, and says so when it has.
    let rights = if place.user == User::Root { "" } else { "--user --map-root-user" };
    let container = format!("unshare {rights} --net sh -c 'echo $$; exec sleep infinity'");
    let (container, number) = place.begin(&container, "\n");
    lasting.push(container);
    line.replace("PID", number.trim())
}

fn play(user: User) {
    let is_long = std::env::var_os("SIGA_LONG").is_some_and(|value| !value.is_empty());
    for (number, scene) in SCENES.iter().enumerate() {
        // Two volumes are 2 GB on the disk: once is enough for a short run.
        let has_volumes = scene.iter().any(|(line, _)| line.starts_with("siga volume"));
        if has_volumes && user == User::Nobody && !is_long {
            continue;
        }
        let Some(place) = Place::make(user, number) else { continue };
        // Before anything lasts: what lasts has an end, and a build may take longer.
        for (name, _) in scene.iter().filter_map(|(line, _)| example_of(line)) {
            fs::copy(example(name), place.folder.join("bin").join(name)).unwrap();
        }
        let mut lasting = Vec::new();
        for (line, run) in *scene {
            let line = as_run(&place, line, &mut lasting);
            match run {
                Lasts(shows) | Helps(shows) => lasting.push(place.begin(&line, shows).0),
                Attaches(guest) => {
                    lasting.push(place.begin(&line, "").0);
                    while !text(&place.command("siga query guest").output().unwrap().stdout)
                        .contains(guest)
                    {
                        std::thread::yield_now();
                    }
                }
                Ends(shows) | Shows(shows) => place.end(&line, shows),
                EndsLate(shows) if is_long => place.end(&line, shows),
                EndsLate(_) | Not(_) => {}
            }
        }
    }
}

#[test]
fn commands_work_as_printed_as_root() {
    play(User::Root);
}

#[test]
fn commands_work_as_printed_without_rights() {
    play(User::Nobody);
}

#[test]
fn snippets_run() {
    let Some(place) = Place::make(User::Nobody, SCENES.len()) else { return };
    fs::copy(example("readme"), place.folder.join("bin/readme")).unwrap();
    place.end("readme", "all snippets have run");
}
