//! `siga run` and `siga join`: unmodified programs on a LAN. A test is skipped, and says so, where a program or a right is
//! missing.

mod claims;
#[path = "../common/mod.rs"]
mod common;
mod families;
#[path = "../common/lacking.rs"]
mod lacking;
mod programs;
mod reached;
mod refusals;

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Process, System, text};
use lacking::skip;
use programs::{TIME, code, read_until, spawn, system};
use serde_json::Value;

/// Numbers of the network namespaces that processes are in.
fn networks() -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let links = processes.map(|process| std::fs::read_link(process.path().join("ns/net")));
    links.filter_map(|link| Some(link.ok()?.to_str()?.to_owned())).collect()
}

/// Returns the command lines of all processes.
fn commands() -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let commands = processes.map(|process| std::fs::read(process.path().join("cmdline")));
    commands
        .filter_map(|command| Some(String::from_utf8_lossy(&command.ok()?).into_owned()))
        .collect()
}

#[test]
fn exit_codes_are_those_of_env() {
    let Some(system) = system("run-codes", &[]) else { return };
    let run = |program: &[&str]| code(&system.run(&[&["run", "--"], program].concat()));
    assert_eq!(run(&["true"]), Some(0));
    assert_eq!(run(&["sh", "-c", "exit 7"]), Some(7));
    assert_eq!(run(&["sh", "-c", "kill -KILL $$"]), Some(137));
    assert_eq!(run(&["no-such-program-here"]), Some(127));
    assert_eq!(run(&["/etc/passwd"]), Some(126));
}

#[test]
fn input_output_directory_and_environment_are_the_callers() {
    let Some(system) = system("run-streams", &[]) else { return };
    let mut command = system.command(&["run", "--", "sh", "-c", "pwd; echo $X; cat; echo e >&2"]);
    let mut child = spawn(command.current_dir("/usr").env("X", "a b"));
    child.stdin.take().unwrap().write_all(b"input").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (text(&output.stdout), text(&output.stderr)),
        ("/usr\na b\ninput".into(), "e\n".into())
    );
}

#[test]
fn program_has_no_descriptor_and_no_signal_mask_of_sigas() {
    let Some(system) = system("run-clean", &[]) else { return };
    let script = "ls /proc/self/fd; grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status";
    let mut plain = Command::new("sh");
    let plain = plain.args(["-c", script]).stdin(Stdio::null()).output().unwrap();
    let mut command = system.command(&["run", "--", "sh", "-c", script]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert_eq!(text(&output.stdout), text(&plain.stdout));
}

#[test]
fn signals_are_passed_on() {
    let Some(system) = system("run-signals", &[]) else { return };
    for (signal, number) in [("TERM", 15), ("HUP", 1), ("USR1", 10), ("USR2", 12), ("INT", 2)] {
        let script = format!(
            "trap 'echo got {signal}; exit 5' {signal}; echo ready; while :; do read line; done"
        );
        // A shell cannot trap what was ignored when it began, as by nohup, or in the background.
        let shell = ["run", "--", "env", "--default-signal", "sh", "-c", &script];
        let mut child = spawn(&mut system.command(&shell));
        read_until(&mut child, "ready\n");
        let number: i32 = number;
        let sent =
            Command::new("kill").arg(format!("-{number}")).arg(child.id().to_string()).status();
        assert!(sent.unwrap().success());
        // A shell that gets the signal just before it waits for input would go on to wait.
        drop(child.stdin.take());
        read_until(&mut child, &format!("got {signal}\n"));
        assert_eq!(child.wait().unwrap().code(), Some(5), "{signal}");
    }
}

#[test]
fn names_are_those_of_the_members_and_only_inside() {
    let Some(system) = system("run-names", &["ping"]) else { return };
    let before = std::fs::read("/etc/hosts").unwrap();
    let mut web = spawn(&mut system.script("web", "cat /etc/hosts; echo ready; read line"));
    let hosts = read_until(&mut web, "ready\n");
    assert!(hosts.contains("\tweb\n"), "{hosts}");
    assert!(hosts.contains(String::from_utf8_lossy(&before).trim_end()), "{hosts}");
    // A server that binds the machine's name is on the LAN.
    let machine = rustix::system::uname().nodename().to_str().unwrap().to_owned();
    let own =
        hosts.lines().find(|line| line.split_whitespace().skip(1).any(|name| name == machine));
    assert!(own.is_some_and(|line| line.starts_with("10.1.0.")), "{machine}: {hosts}");
    // One that comes later is known to those that were there.
    let mut other = spawn(&mut system.script("other", "echo ready; read line"));
    read_until(&mut other, "ready\n");
    let ping = "until ping -c 1 -W 1 other; do :; done; ping -c 2 -i 0.1 web";
    let output = system.script("client", ping).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
    writeln!(web.stdin.as_mut().unwrap()).unwrap();
    writeln!(other.stdin.as_mut().unwrap()).unwrap();
    assert!(web.wait().unwrap().success() && other.wait().unwrap().success());
    assert_eq!(std::fs::read("/etc/hosts").unwrap(), before);
}

#[test]
fn web_server_serves_curl() {
    let Some(system) = system("run-web", &["curl", "python3"]) else { return };
    std::fs::write(system.file("page"), vec![b'x'; 3_000_000]).unwrap();
    let directory = system.file("");
    let mut command =
        system.command(&["run", "--name", "web", "--", "python3", "-m", "http.server"]);
    let command = command.args(["80", "--directory", &directory]);
    let _web = Process(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let script = "until curl -s http://web/page; do :; done";
    let output = system.script("client", script).output().unwrap();
    assert_eq!((code(&output), output.stdout.len()), (Some(0), 3_000_000));
}

#[test]
fn iperf3_runs_in_both_directions() {
    let Some(system) = system("run-iperf", &["iperf3"]) else { return };
    let mut server = spawn(&mut system.script("server", "iperf3 -s -1 && iperf3 -s -1"));
    let script =
        "until iperf3 -c server -t 1; do :; done; until iperf3 -c server -t 1 -R; do :; done";
    let output = system.script("client", script).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", text(&output.stdout));
    // Not read until now: what it prints fits into the pipe.
    assert!(server.wait().unwrap().success());
}

#[test]
fn datagrams_of_socat_cross() {
    let Some(system) = system("run-socat", &["socat"]) else { return };
    let script = "echo ready; socat -u UDP-RECVFROM:7 -";
    let mut server = spawn(&mut system.script("server", script));
    read_until(&mut server, "ready\n");
    // One of them arrives when the socket is there.
    let script =
        "n=0; while [ $n -lt 300 ]; do n=$((n+1)); printf datagram | socat -u - UDP:server:7; done";
    let mut client = spawn(&mut system.command(&["run", "--", "sh", "-c", script]));
    assert_eq!(read_until(&mut server, "datagram"), "datagram");
    assert!(server.wait().unwrap().success());
    client.kill().unwrap();
    client.wait().unwrap();
}

#[test]
fn what_a_program_sends_before_it_ends_arrives() {
    let Some(system) = system("run-linger", &["python3"]) else { return };
    let server = "import socket; s = socket.create_server(('', 7)); print('ready', flush=True); \
                  c, _ = s.accept(); n = 0\n\
                  while True:\n  b = c.recv(1 << 16); n += len(b)\n  if not b: break\n\
                  print(n)";
    let mut command = system.command(&["run", "--name", "server", "--", "python3", "-c", server]);
    let mut server = spawn(&mut command);
    read_until(&mut server, "ready\n");
    // It leaves all that to its kernel and ends at once.
    let client = "import socket, os; c = socket.create_connection(('server', 7)); \
                  c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 21); \
                  c.sendall(bytes(1500000)); os._exit(3)";
    let output = system.run(&["run", "--", "python3", "-c", client]);
    assert_eq!(code(&output), Some(3), "{}", text(&output.stderr));
    assert_eq!(read_until(&mut server, "\n"), "1500000\n");
}

#[test]
fn nothing_is_left_when_the_port_is_killed() {
    let Some(system) = system("run-kill-port", &[]) else { return };
    for _ in 0..10 {
        let script = "readlink /proc/self/ns/net; read line";
        let mut child = spawn(&mut system.command(&["run", "--", "sh", "-c", script]));
        let network = read_until(&mut child, "\n");
        assert!(networks().contains(&network.trim().to_owned()));
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        while networks().contains(&network.trim().to_owned()) {
            std::thread::yield_now();
        }
    }
}

#[test]
fn port_stays_for_what_its_program_leaves_behind() {
    let Some(system) = system("run-daemon", &["setsid", "ping"]) else { return };
    let mut run = spawn(&mut system.command(&[
        "run",
        "--name",
        "box",
        "--",
        "sh",
        "-c",
        "setsid sleep 1000 & exit 3",
    ]));
    let mut said = String::new();
    let mut stderr = std::io::BufReader::new(run.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut stderr, &mut said).unwrap();
    assert!(said.starts_with("siga: sh has ended, and 1 that it started go on"), "{said}");
    let output = system.script("client", "ping -c 1 box").output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
    assert_eq!(run.try_wait().unwrap(), None);
    assert!(Command::new("kill").arg(run.id().to_string()).status().unwrap().success());
    assert_eq!(run.wait().unwrap().code(), Some(3), "how the program ended");
    // One that ends by itself is no reason to stay.
    let output = system.run(&["run", "--", "sh", "-c", "(sleep 0.1; echo late) & exit 4"]);
    assert_eq!((code(&output), text(&output.stdout)), (Some(4), "late\n".to_owned()));
}

/// While its program runs, and afterwards.
#[test]
fn processes_that_are_left_to_a_port_are_waited_for_when_they_end() {
    let Some(system) = system("run-orphans", &["setsid"]) else { return };
    let script = r#"exec 3<&0; (sh -c 'echo $$' &); read line
        setsid sh -c 'read line <&3; (sh -c "echo \$\$" &); exec sleep 1000' & exit 3"#;
    let mut run = spawn(&mut system.command(&["run", "--", "sh", "-c", script]));
    for _ in 0..2 {
        let orphan = read_until(&mut run, "\n");
        let orphan = Path::new("/proc").join(orphan.trim());
        while orphan.exists() {
            std::thread::yield_now();
        }
        writeln!(run.stdin.as_mut().unwrap()).unwrap();
        writeln!(run.stdin.as_mut().unwrap()).unwrap();
    }
    assert!(Command::new("kill").arg(run.id().to_string()).status().unwrap().success());
    assert_eq!(run.wait().unwrap().code(), Some(3));
}

#[test]
fn others_in_the_network_are_not_killed_at_an_end_in_good_order() {
    let Some(system) = system("run-others", &["nsenter"]) else { return };
    if os::peer::Credentials::own().user != 0 {
        return skip("run-others", "only root can enter another network");
    }
    let script = "echo $$; readlink /proc/self/ns/net; read line";
    let mut run = spawn(&mut system.command(&["run", "--", "sh", "-c", script]));
    let said = read_until(&mut run, "]\n");
    let (number, network) = said.trim().split_once('\n').unwrap();
    let entered = format!("--net=/proc/{number}/ns/net");
    let other = ["sh", "-c", "echo; read line"];
    let mut other = Process(spawn(Command::new("nsenter").arg(entered).args(other)));
    read_until(&mut other.0, "\n");
    let guards = || commands().iter().filter(|command| command.contains(network)).count();
    assert_eq!(guards(), 1);
    writeln!(run.stdin.as_mut().unwrap()).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(0));
    while guards() > 0 {
        std::thread::yield_now();
    }
    assert_eq!(other.0.try_wait().unwrap(), None);
}

/// Or its number would be another network's before the guard has looked for it.
#[test]
fn guard_holds_its_network() {
    let Some(system) = system("run-guard", &[]) else { return };
    let script = "readlink /proc/self/ns/net; read line";
    let mut run = Process(spawn(&mut system.command(&["run", "--", "sh", "-c", script])));
    let network = read_until(&mut run.0, "]\n");
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let is_guard = |process: &std::fs::DirEntry| {
        let command = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command).contains(network.trim())
    };
    let guards: Vec<_> = processes.filter(is_guard).collect();
    let held = guards.iter().map(|guard| std::fs::read_link(guard.path().join("fd/1")).unwrap());
    assert_eq!(held.collect::<Vec<_>>(), [Path::new(network.trim())]);
}

#[test]
fn message_that_nobody_reads_is_no_reason_to_end() {
    let Some(system) = system("run-unread", &[]) else { return };
    let (unread, _) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut command = system.command(&["run", "-v", "--", "sh", "-c", "sleep 0.2 & exit 3"]);
    command.stderr(Stdio::from(std::os::fd::OwnedFd::from(unread)));
    assert_eq!(command.status().unwrap().code(), Some(3));
}

#[test]
fn nothing_is_left_of_daemons_when_the_port_is_killed() {
    let Some(system) = system("run-kill-daemon", &["setsid"]) else { return };
    for _ in 0..5 {
        let script = "readlink /proc/self/ns/net; setsid sh -c 'sleep 1000 & sleep 1000' & echo ready; read line";
        let mut child = spawn(&mut system.command(&["run", "--", "sh", "-c", script]));
        let network = read_until(&mut child, "\n");
        read_until(&mut child, "ready\n");
        child.kill().unwrap();
        child.wait().unwrap();
        while networks().contains(&network.trim().to_owned()) {
            std::thread::yield_now();
        }
    }
}

#[test]
fn nothing_is_left_when_the_port_is_killed_at_any_moment() {
    let Some(system) = system("run-kill-any", &[]) else { return };
    let mark = format!("mark-{}", std::process::id());
    let run = ["run", "--", "sh", "-c", "read line", &mark];
    for round in 0..60 {
        let mut child = spawn(&mut system.command(&run));
        // From before there is a second process to after it has become the program.
        for _ in 0..round * 20 {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    while commands().iter().any(|command| command.contains(&mark)) {
        std::thread::yield_now();
    }
}

#[test]
fn killed_program_is_an_exit_code() {
    let Some(system) = system("run-kill-program", &[]) else { return };
    let mut child = spawn(&mut system.command(&["run", "--", "sh", "-c", "echo $$; read line"]));
    let number = read_until(&mut child, "\n");
    assert!(Command::new("kill").args(["-9", number.trim()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(137));
}

#[test]
fn programs_go_on_without_a_host() {
    let Some(system) = system("run-no-host", &["ping"]) else { return };
    let mut other = spawn(&mut system.script("other", "echo ready; read line"));
    read_until(&mut other, "ready\n");
    let script = "ping -c 1 other >&2; echo ready; read line; ping -c 1 other";
    let mut client = spawn(&mut system.script("client", script));
    read_until(&mut client, "ready\n");
    drop(system);
    writeln!(client.stdin.as_mut().unwrap()).unwrap();
    let output = client.wait_with_output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", text(&output.stdout));
    writeln!(other.stdin.as_mut().unwrap()).unwrap();
    assert!(other.wait().unwrap().success());
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let Some(system) = system("run-wrong", &[]) else { return };
    let taken =
        ["run", "--name", "first", "--address", "10.1.0.9", "--", "sh", "-c", "echo; read line"];
    let mut first = spawn(&mut system.command(&taken));
    read_until(&mut first, "\n");
    let run = |options: &[&str]| system.run(&[&["run"], options, &["--", "true"]].concat());
    for (options, says) in [
        (&["--lan", "hs9"][..], "the system has no LAN of this name: name one"),
        (&["--address", "10.1.0.9/24"], "FIRST has this address in the LAN hs0"),
        (&["--address", "192.168.0.1"], "does not allow this address: name one in its range"),
        (&["--name", "first"], "a guest is attached under this name already"),
        (&["--mtu", "9000"], "an MTU of 9000: must be at most 8192, that of the LAN hs0"),
        (&["--interface", "a/b"], "choose another with --interface"),
        (
            &["--interface", "sixteen-letters-"],
            "a name has 1 to 15 characters, and no space, /, : or %",
        ),
        (&["--interface", "lo"], "there is one of this name: choose another"),
        (&["--socket", "/no/such/socket"], "start one with: siga up"),
    ] {
        let output = run(options);
        let why = text(&output.stderr);
        assert!(why.contains(says), "{options:?}: {why}");
        assert_eq!((code(&output), why.lines().count()), (Some(125), 1), "{why}");
    }
    for options in [
        &["--address", "10.1.0"][..],
        &["--name", "a name of more"],
        &["--wait", "never"],
        &["--mac", "2:3"],
        &["--mtu", "67"],
    ] {
        assert_eq!(code(&run(options)), Some(2), "{options:?}");
    }
    assert_eq!(code(&run(&["--cpu", "4095"])), Some(2));
    for mac in ["ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01", "00:00:00:00:00:00"] {
        let output = run(&["--mac", mac]);
        assert_eq!(code(&output), Some(2), "{mac}");
        assert!(text(&output.stderr).contains("is no station's"), "{}", text(&output.stderr));
    }
}

#[test]
fn results_are_objects_in_a_file() {
    let Some(system) = system("run-json", &["ping"]) else { return };
    let mut other = spawn(&mut system.script("other", "echo ready; read line"));
    read_until(&mut other, "ready\n");
    let file = system.file("results");
    let ping = ["ping", "-c", "1", "other"];
    let run = ["run", "--json", &file, "--name", "client", "--mtu", "1400", "--"];
    assert!(system.run(&[&run[..], &ping].concat()).status.success());
    let lines = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [up, done] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(
        (&up["name"], &up["lan"], &up["interface"]),
        (&"CLIENT".into(), &"hs0".into(), &"hs0".into())
    );
    assert_eq!(up["mtu"], 1400);
    assert_eq!((&done["name"], &done["exit_code"]), (&"CLIENT".into(), &0.into()));
    // A question after the address, which the port answers, the echo request, and the echo.
    let count = |name: &str| done[name].as_u64().unwrap();
    assert!(count("frames_read") >= 2 && count("frames_written") >= 1, "{done}");
    assert_eq!((count("frames_answered"), count("dropped_bad")), (1, 0), "{done}");
}

#[test]
fn network_that_is_there_joins_until_it_is_gone() {
    let Some(system) = system("join-process", &["unshare", "nsenter", "ping"]) else { return };
    let mut inside = Command::new("unshare");
    let mut inside = Process(spawn(inside.args(["--net", "sh", "-c", "echo; read line"])));
    read_until(&mut inside.0, "\n");
    let number = inside.0.id().to_string();
    let join = ["join", "--pid", &number, "--name", "box", "--interface", "eth9", "--json"];
    let mut joined = spawn(&mut system.command(&join));
    let up = read_until(&mut joined, "\n");
    assert!(up.contains("\"interface\":\"eth9\""), "{up}");
    let output = system.script("client", "ping -c 1 box").output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
    let again = system.run(&["join", "--pid", &number, "--interface", "eth9"]);
    assert_eq!(code(&again), Some(1));
    assert!(text(&again.stderr).contains("there is one of this name"));
    drop(inside);
    let output = joined.wait_with_output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("\"frames_answered\""));
    for (arguments, says) in [
        (["--netns", "/no/such/file"], "is the process or the namespace still there?"),
        (["--netns", "/etc/passwd"], "is no network namespace"),
    ] {
        let output = system.run(&[&["join"], &arguments[..]].concat());
        let why = text(&output.stderr);
        assert!(code(&output) == Some(1) && why.contains(says), "{why}");
        assert_eq!(why.lines().count(), 1, "{why}");
    }
}

#[test]
fn network_joins_two_lans() {
    let Some(system) = system("join-two", &["unshare", "nsenter", "ping"]) else { return };
    let mut inside = Command::new("unshare");
    let mut inside = Process(spawn(inside.args(["--net", "sh", "-c", "echo; read line"])));
    read_until(&mut inside.0, "\n");
    let number = inside.0.id().to_string();
    let other = "[[guest]]\nname = \"*\"\n[[lan]]\nname = \"hs1\"\nrange = \"10.2.0.0/24\"\n";
    let other = System::start_with("join-other", other);
    let join = |system: &System, lan: &str| {
        let join = ["join", lan, "--pid", &number, "--name", "box", "--json"];
        let mut joined = Process(spawn(&mut system.command(&join)));
        read_until(&mut joined.0, "\n");
        joined
    };
    let _joined = [join(&system, "hs0"), join(&other, "hs1")];
    for (system, lan) in [(&system, "hs0"), (&other, "hs1")] {
        let run = ["run", "--lan", lan, "--", "ping", "-c", "1", "box"];
        let output = system.run(&run);
        assert_eq!(code(&output), Some(0), "{lan}: {}", text(&output.stderr));
    }
}

#[test]
fn user_without_rights_serves_at_port_80_and_pings() {
    let Some(system) = system("run-port-80", &["setpriv", "perl", "ping"]) else { return };
    if os::peer::Credentials::own().user != 0 {
        return skip("run-port-80", "only root can become another user");
    }
    let own = text(&system.run(&["run", "-v", "--name", "me", "--", "true"]).stderr);
    assert!(
        own.starts_with("siga: ME is on the LAN hs0, as 10.1.0.") && own.lines().count() == 1,
        "{own}"
    );
    let bind = "use Socket; socket(S, PF_INET, SOCK_STREAM, 0) && bind(S, sockaddr_in(80, INADDR_ANY)) \
                && listen(S, 1) or die $!; print 'served'";
    let user =
        ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all"];
    let run = |program: &[&str]| {
        system.run(&[&["run", "--name", "me", "--"], &user[..], program].concat())
    };
    let output = run(&["perl", "-e", bind]);
    assert_eq!(text(&output.stdout), "served", "{}", text(&output.stderr));
    let output = run(&["ping", "-c", "1", "me"]);
    assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
    // What the port answers for, nobody else may say.
    let script =
        "cat /proc/sys/net/ipv6/conf/hs0/accept_ra /proc/sys/net/ipv6/conf/hs0/accept_redirects";
    assert_eq!(text(&run(&["sh", "-c", script]).stdout), "0\n0\n");
    let script = "cd /proc/sys/net/ipv4/conf; cat all/accept_redirects hs0/accept_redirects";
    assert_eq!(text(&run(&["sh", "-c", script]).stdout), "0\n0\n");
}

#[test]
fn port_of_a_network_ends_in_good_order_when_it_is_asked_to() {
    let Some(system) = system("join-signal", &["unshare"]) else { return };
    let mut inside = Command::new("unshare");
    let mut inside =
        Process(spawn(inside.args(["--net", "sh", "-c", "echo; read line; cat /proc/net/dev"])));
    read_until(&mut inside.0, "\n");
    let mut joined =
        spawn(&mut system.command(&["join", "--pid", &inside.0.id().to_string(), "--json"]));
    read_until(&mut joined, "\n");
    let sent = Command::new("kill").arg(joined.id().to_string()).status();
    assert!(sent.unwrap().success());
    assert_eq!(joined.wait().unwrap().code(), Some(0));
    writeln!(inside.0.stdin.as_mut().unwrap()).unwrap();
    let mut left = String::new();
    inside.0.stdout.take().unwrap().read_to_string(&mut left).unwrap();
    assert!(left.contains("lo:") && !left.contains("hs0:"), "{left}");
}

/// As root, to see what others see: a user of no name, and a device that all may open, which not every machine has.
#[test]
fn user_without_rights_has_programs_on_a_lan() {
    let test = "run-user";
    let Some(system) = system(test, &["setpriv", "unshare", "ping"]) else { return };
    if os::peer::Credentials::own().user != 0 {
        return skip(test, "only root can become another user");
    }
    let siga = system.file("siga");
    std::fs::copy(env!("CARGO_BIN_EXE_siga"), &siga).unwrap();
    let (node, socket) = (system.file("tun"), system.file("user.sock"));
    let own = system.file("");
    let script = format!(
        "set -e; mknod {node} c 10 200; chmod 666 {node}; mount --bind {node} /dev/net/tun; \
         chmod 777 {own}; exec setpriv --reuid 65534 --regid 65534 --clear-groups sh -c '\
         {siga} up --socket {socket} 2>/dev/null & up=$!; export SIGA_SOCKET={socket}; \
         until {siga} query >/dev/null 2>&1; do :; done; \
         {siga} run --name other -- sleep 60 & other=$!; \
         until {siga} run -- ping -c 1 -W 1 other; do :; done; \
         {siga} run -- id -u; kill $other $up'"
    );
    let mut command = Command::new("timeout");
    let output = command.args([TIME, "unshare", "--mount", "sh", "-c", &script]).output().unwrap();
    let said = text(&output.stdout);
    assert!(
        said.ends_with("65534\n") && said.contains(" 0% packet loss"),
        "{said}{}",
        text(&output.stderr)
    );
    assert!(Path::new(&siga).exists());
}
